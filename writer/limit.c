/* SPDX-License-Identifier: Apache-2.0 */
/*
 * limit.c - so much a second, and no more at once than a small burst.
 *
 * Counts in time: what was taken says when the limit is free again. A pause
 * earns one burst at most, so over any stretch of time there goes what the rate
 * allows and two bursts. Who takes is told when to go, and waits by himself:
 * the clock is the caller's, so this file has none.
 *
 * Lock: the limit's own, for a moment; nothing is taken within it.
 */
#include "limit.h"

void ckw_limit_init(struct ckw_limit *l, uint64_t per_s, uint64_t burst)
{
	*l = (struct ckw_limit){ .per_s = per_s, .burst = burst };
	pthread_mutex_init(&l->lock, NULL);
}

void ckw_limit_fini(struct ckw_limit *l)
{
	pthread_mutex_destroy(&l->lock);
}

static int64_t time_of(const struct ckw_limit *l, uint64_t n)
{
	return (int64_t)((double)n * 1e9 / (double)l->per_s);
}

int64_t ckw_limit_take(struct ckw_limit *l, int64_t now_ns, uint64_t n)
{
	int64_t earliest = now_ns - time_of(l, l->burst);

	pthread_mutex_lock(&l->lock);
	int64_t at = l->free_ns > earliest ? l->free_ns : earliest;

	l->free_ns = at + time_of(l, n);
	pthread_mutex_unlock(&l->lock);
	return at;
}

int64_t ckw_limit_free(struct ckw_limit *l)
{
	pthread_mutex_lock(&l->lock);
	int64_t at = l->free_ns;

	pthread_mutex_unlock(&l->lock);
	return at;
}
