/* SPDX-License-Identifier: Apache-2.0 */
/*
 * expect.c - how long until a save is captured, by what saves before it took.
 *
 * Two rates: copies into staging memory that has room, and storing, which makes
 * room. What fits is copied; for the rest the slower of the two counts. Every
 * save counts half of the one after it. An estimate for people and schedulers:
 * nothing is decided by it here.
 *
 * Lock: the writer's.
 */
#include <time.h>

#include "pipeline.h"

uint64_t ckw_now_ns(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return (uint64_t)t.tv_sec * 1000000000 + (uint64_t)t.tv_nsec;
}

void ckw_rate_add(struct ckw_rate *r, uint64_t bytes, uint64_t ns)
{
	r->bytes = r->bytes / 2 + (double)bytes;
	r->ns = r->ns / 2 + (double)ns;
}

/* What it takes; < 0: not known. */
static double time_of(const struct ckw_rate *r, double bytes)
{
	return r->bytes > 0 ? bytes * r->ns / r->bytes : -1;
}

static double left(const struct ckpt_save *s, const atomic_ullong *done)
{
	uint64_t total = atomic_load_explicit(&s->total, memory_order_relaxed);
	uint64_t n = atomic_load_explicit(done, memory_order_relaxed);

	return n < total ? (double)(total - n) : 0;
}

uint64_t ckw_capture_ns(const struct ckpt_save *s)
{
	struct ckpt_writer *w = s->writer;
	const struct ckpt_save *at;
	double copy = 0, store = 0, ns, room;

	if (ckpt_save_phase(s) != CKPT_NO_PHASE || atomic_load(&s->ended))
		return 0;
	if (ckw_own_process(w, NULL) < 0)
		return CKPT_UNKNOWN;
	pthread_mutex_lock(&w->lock);
	room = (double)w->opts.staging_bytes;
	for (at = w->first; at && at != s; at = at->next) {
		copy += left(at, &at->captured);
		store += left(at, &at->hashed);
	}
	copy += left(s, &s->captured);
	store += left(s, &s->hashed);
	ns = time_of(&w->copying, copy);
	if (store > room) {
		double wait = time_of(&w->storing, store - room);

		ns = wait < 0 || wait > ns ? wait : ns;
	} else if (ns < 0) {
		ns = time_of(&w->storing, copy); /* no slower than that */
	}
	pthread_mutex_unlock(&w->lock);
	return ns < 0 ? CKPT_UNKNOWN : (uint64_t)ns;
}
