/* SPDX-License-Identifier: Apache-2.0 */
/*
 * guard.c - borrowed pages are write-protected until they are captured
 * (CKPT_WRITER_PROTECT): who writes too early is stopped where it does.
 *
 * The writer has one list of guarded stretches, by address, disjoint, each with
 * the number of saves that hold it and what it was before. A new save splits
 * them at its edges, so that each is held whole; a save remembers which it
 * holds. What was not writable is left as it is, and so are pages that only
 * begin or end in borrowed memory: others may be at work there.
 *
 * What serialises is passed over: it is released before CAPTURED, and then its
 * memory is the provider's again. Lock: the writer's guard_lock, taken alone.
 */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>

#include "pipeline.h"

struct ckw_span {
	uintptr_t lo, hi;
};

struct ckw_guard {
	struct ckw_guard *next;
	uintptr_t lo, hi;
	int prot;                /* as it was */
	uint32_t saves;
};

/* A mapping that may be written to. */
struct map {
	uintptr_t lo, hi;
	int prot;
};

struct work {
	struct ckpt_save *save;
	struct map *maps;        /* by address */
	size_t count, cap;
	uintptr_t page;
};

static int read_maps(struct work *w, struct ckpt_err *err)
{
	FILE *f = fopen("/proc/self/maps", "re");
	char *line = NULL, r, x;
	size_t len = 0;
	bool room = true;
	struct map m;

	if (!f)
		return ckb_err_sys(err, errno, "open '/proc/self/maps'");
	while (room && getline(&line, &len, f) > 0) {
		if (sscanf(line, "%zx-%zx %cw%c", &m.lo, &m.hi, &r, &x) != 4)
			continue;
		m.prot = PROT_WRITE | (r == 'r' ? PROT_READ : 0) |
			 (x == 'x' ? PROT_EXEC : 0);
		room = ckb_room(&w->maps, w->count, &w->cap, sizeof(m));
		if (room)
			w->maps[w->count++] = m;
	}
	free(line);
	fclose(f);
	return room ? 0 : ckb_err_nomem(err);
}

static bool remember(struct ckpt_save *s, uintptr_t lo, uintptr_t hi)
{
	if (!ckb_room(&s->guarded, s->guarded_count, &s->guarded_cap,
		      sizeof(*s->guarded)))
		return false;
	s->guarded[s->guarded_count++] = (struct ckw_span){ lo, hi };
	return true;
}

static struct ckw_guard *insert(struct ckw_guard **at, uintptr_t lo,
				uintptr_t hi, int prot, uint32_t saves)
{
	struct ckw_guard *g = malloc(sizeof(*g));

	if (!g)
		return NULL;
	*g = (struct ckw_guard){ *at, lo, hi, prot, saves };
	*at = g;
	return g;
}

/* Pages that nobody guards: what of them may be written to is guarded, from
 * *@at on. */
static int guard_new(struct work *w, struct ckw_guard **at, uintptr_t lo,
		     uintptr_t hi, struct ckpt_err *err)
{
	for (size_t i = 0; i < w->count && w->maps[i].lo < hi; i++) {
		const struct map *m = &w->maps[i];
		uintptr_t from = m->lo > lo ? m->lo : lo;
		uintptr_t to = m->hi < hi ? m->hi : hi;

		if (from >= to)
			continue;
		if (!remember(w->save, from, to))
			return ckb_err_nomem(err);
		if (!insert(at, from, to, m->prot, 1)) {
			w->save->guarded_count--;
			return ckb_err_nomem(err);
		}
		if (mprotect((void *)from, to - from, m->prot & ~PROT_WRITE))
			return ckb_err_sys(err, errno, "protect %zu bytes from "
					   "writes", to - from);
		at = &(*at)->next;
	}
	return 0;
}

/* One more save holds *@at, which begins at @lo or before. */
static int guard_again(struct work *w, struct ckw_guard *g, uintptr_t lo,
		       uintptr_t hi, struct ckpt_err *err)
{
	if (g->lo < lo) { /* it stays, up to @lo */
		if (!insert(&g->next, lo, g->hi, g->prot, g->saves))
			return ckb_err_nomem(err);
		g->hi = lo;
		g = g->next;
	}
	if (g->hi > hi) {
		if (!insert(&g->next, hi, g->hi, g->prot, g->saves))
			return ckb_err_nomem(err);
		g->hi = hi;
	}
	if (!remember(w->save, g->lo, g->hi))
		return ckb_err_nomem(err);
	g->saves++;
	return 0;
}

static int guard_range(void *ctx, const void *data, uint64_t bytes,
		       struct ckpt_err *err)
{
	struct work *w = ctx;
	uintptr_t lo = ((uintptr_t)data + w->page - 1) & ~(w->page - 1);
	uintptr_t hi = ((uintptr_t)data + (uintptr_t)bytes) & ~(w->page - 1);
	struct ckw_guard **at = &w->save->writer->guards;
	int rc = 0;

	while (rc == 0 && lo < hi) {
		while (*at && (*at)->hi <= lo)
			at = &(*at)->next;
		uintptr_t end = hi;

		if (!*at || (*at)->lo > lo) {
			if (*at && (*at)->lo < hi)
				end = (*at)->lo;
			rc = guard_new(w, at, lo, end, err);
		} else {
			if ((*at)->hi < hi)
				end = (*at)->hi;
			rc = guard_again(w, *at, lo, hi, err);
		}
		lo = end;
	}
	return rc;
}

int ckw_guard(struct ckpt_save *s, struct ckpt_err *err)
{
	struct work w = { .save = s, .page = (uintptr_t)sysconf(_SC_PAGESIZE) };
	int rc;

	if (!(s->writer->opts.flags & CKPT_WRITER_PROTECT))
		return 0;
	pthread_mutex_lock(&s->writer->guard_lock);
	rc = read_maps(&w, err);
	for (size_t i = 0; rc == 0 && i < s->tensor_count; i++)
		rc = ckw_lent(&s->tensors[i].provider, guard_range, &w, err);
	pthread_mutex_unlock(&s->writer->guard_lock);
	free(w.maps);
	return rc;
}

static void let_go(struct ckpt_writer *w, const struct ckw_span *span)
{
	struct ckw_guard **at = &w->guards;

	while (*at && (*at)->lo < span->hi) {
		struct ckw_guard *g = *at;

		if (g->lo < span->lo || --g->saves > 0) {
			at = &g->next;
			continue;
		}
		/* fails where the caller has unmapped it: then it is gone */
		(void)mprotect((void *)g->lo, g->hi - g->lo, g->prot);
		*at = g->next;
		free(g);
	}
}

void ckw_unguard(struct ckpt_save *s)
{
	struct ckpt_writer *w = s->writer;

	if (!(w->opts.flags & CKPT_WRITER_PROTECT))
		return;
	pthread_mutex_lock(&w->guard_lock);
	for (size_t i = 0; i < s->guarded_count; i++)
		let_go(w, &s->guarded[i]);
	s->guarded_count = 0;
	pthread_mutex_unlock(&w->guard_lock);
}
