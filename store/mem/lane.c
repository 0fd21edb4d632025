/* SPDX-License-Identifier: Apache-2.0 */
/*
 * lane.c - the lanes of a memory: a pool that threads take from without a lock.
 *
 *	FREE -> ckd_lane_get() -> TAKEN -> ckd_lane_put() -> FREE
 *	TAKEN -> put, failed and not to be closed -> STUCK
 *	STUCK -> a later get closes it -> FREE
 *
 * The semaphore counts lanes that are free, so whoever passed it finds one; a
 * thread looks first where it looked last, and so keeps its lane. A lane that
 * failed is closed when it is put back: what it had queued is done or dropped
 * then, and its memory is its holder's again. Where the device does not let go
 * (a stalled copy), the lane is STUCK: it keeps its bounce memory and its count
 * of the semaphore, and nobody gets a lane until it could be closed, so that a
 * device that stands still costs one deadline, not one a tensor.
 *
 * Invariant: what is not atomic belongs to whoever set TAKEN.
 */
#include "mem/mem_impl.h"

#include <errno.h>
#include <time.h>

/* ---- the pool ---- */

static bool take(struct ckd_lane *lane, int from)
{
	return atomic_compare_exchange_strong_explicit(
		&lane->state, &from, CKD_LANE_TAKEN, memory_order_acquire,
		memory_order_relaxed);
}

static void give(struct ckd_lane *lane, int to)
{
	atomic_store_explicit(&lane->state, to, memory_order_release);
}

static uint64_t deadline_of(const struct ckpt_memory *mem)
{
	return atomic_load_explicit(&mem->deadline_ns, memory_order_relaxed);
}

/* Close the kind's lane; false: the device holds on to it. */
static bool shut(struct ckd_lane *lane)
{
	if (lane->lane && lane->mem->ops.lane_close(lane->lane) != 0)
		return false;
	lane->lane = NULL;
	lane->failed = false;
	lane->queued = 0;
	return true;
}

/* Lanes that were stuck, tried again. */
static int unstick(struct ckpt_memory *mem, struct ckpt_err *err)
{
	if (atomic_load_explicit(&mem->stuck, memory_order_relaxed) == 0)
		return 0;
	for (size_t i = 0; i < CKB_LANE_MAX; i++) {
		struct ckd_lane *lane = &mem->lanes[i];

		if (!take(lane, CKD_LANE_STUCK))
			continue;
		if (!shut(lane)) {
			uint64_t ns = lane->gave_up_ns;

			give(lane, CKD_LANE_STUCK);
			return ckd_stalled(mem, ns, "a copy did not end",
					   ", and it still holds on to it",
					   err);
		}
		give(lane, CKD_LANE_FREE);
		if (atomic_fetch_sub_explicit(&mem->stuck, 1,
					      memory_order_relaxed) == 1)
			ckd_slabs_settle(mem);
		sem_post(&mem->free_lanes);
	}
	return 0;
}

static int await_free(struct ckpt_memory *mem, struct ckpt_err *err)
{
	uint64_t ns = deadline_of(mem);
	struct timespec until;

	if (sem_trywait(&mem->free_lanes) == 0)
		return 0;
	clock_gettime(CLOCK_MONOTONIC, &until);
	until.tv_sec += (time_t)(ns / 1000000000);
	until.tv_nsec += (long)(ns % 1000000000);
	if (until.tv_nsec >= 1000000000) {
		until.tv_sec++;
		until.tv_nsec -= 1000000000;
	}
	while (sem_clockwait(&mem->free_lanes, CLOCK_MONOTONIC, &until) != 0)
		if (errno != EINTR)
			return ckd_stalled(mem, ns, "no lane came free", "",
					   err);
	return 0;
}

/* Where this thread looks first. */
static size_t first_lane(void)
{
	uint64_t self = (uint64_t)(uintptr_t)pthread_self();

	return (size_t)((self >> 12) * 0x9e3779b97f4a7c15ull >> 32);
}

int ckd_lane_get(struct ckpt_memory *mem, struct ckd_lane **out,
		 struct ckpt_err *err)
{
	struct ckpt_err theirs = { 0 };
	int rc = ckd_check_lost(mem, err);
	struct ckd_lane *lane;
	size_t i = first_lane();

	*out = NULL;
	if (rc == 0)
		rc = unstick(mem, err);
	if (rc == 0)
		rc = await_free(mem, err);
	if (rc < 0)
		return rc;
	do
		lane = &mem->lanes[i++ % CKB_LANE_MAX];
	while (!take(lane, CKD_LANE_FREE));
	if (!lane->lane) {
		rc = mem->ops.lane_open(mem->ctx, &lane->lane, &theirs);
		if (rc != 0) {
			lane->lane = NULL;
			ckd_lane_put(lane, true);
			return ckd_failed(mem, rc, &theirs, err);
		}
	}
	*out = lane;
	return 0;
}

void ckd_lane_put(struct ckd_lane *lane, bool idle)
{
	struct ckpt_memory *mem = lane->mem;

	if ((lane->failed || !idle) && !shut(lane)) {
		atomic_fetch_add_explicit(&mem->stuck, 1,
					  memory_order_relaxed);
		lane->gave_up_ns = deadline_of(mem);
		give(lane, CKD_LANE_STUCK);
		return;
	}
	give(lane, CKD_LANE_FREE);
	sem_post(&mem->free_lanes);
}

bool ckd_lanes_fini(struct ckpt_memory *mem)
{
	bool ok = true;

	for (size_t i = 0; i < CKB_LANE_MAX; i++)
		ok &= shut(&mem->lanes[i]);
	return ok;
}

/* ---- work ---- */

static int done(struct ckd_lane *lane, int rc, const struct ckpt_err *theirs,
		struct ckpt_err *err)
{
	if (rc == 0)
		return 0;
	lane->failed = true;
	return ckd_failed(lane->mem, rc, theirs, err);
}

/* A device's queue is finite too, and a full one would block for ever where a
 * copy hangs: so what is queued is waited for now and then. */
static int bound_queue(struct ckd_lane *lane, struct ckpt_err *err)
{
	uint64_t event;

	if (lane->queued++ < CKPT_MEMORY_QUEUE)
		return 0;
	int rc = ckd_record(lane, &event, err);

	if (rc == 0)
		rc = ckd_wait(lane, event, err);
	lane->queued = 1;
	return rc;
}

int ckd_copy_2d(struct ckd_lane *lane, void *dst, size_t dst_pitch,
		const void *src, size_t src_pitch, size_t width,
		size_t height, struct ckpt_err *err)
{
	struct ckpt_err theirs = { 0 };
	int rc = bound_queue(lane, err);

	if (rc < 0)
		return rc;
	return done(lane,
		    lane->mem->ops.copy_2d(lane->lane, dst, dst_pitch, src,
					   src_pitch, width, height, &theirs),
		    &theirs, err);
}

int ckd_record(struct ckd_lane *lane, uint64_t *out_event,
	       struct ckpt_err *err)
{
	struct ckpt_err theirs = { 0 };

	return done(lane,
		    lane->mem->ops.record(lane->lane, out_event, &theirs),
		    &theirs, err);
}

int ckd_wait(struct ckd_lane *lane, uint64_t event, struct ckpt_err *err)
{
	struct ckpt_memory *mem = lane->mem;
	struct ckpt_err theirs = { 0 };
	uint64_t ns = deadline_of(mem);
	int rc = mem->ops.wait(lane->lane, event, ns, &theirs);

	if (rc == CKPT_EBUSY) {
		lane->failed = true;
		return ckd_stalled(mem, ns, "a copy did not end", "", err);
	}
	return done(lane, rc, &theirs, err);
}

int ckd_bounce(struct ckd_lane *lane, uint8_t **out, struct ckpt_err *err)
{
	void *p = lane->bounce;
	int rc = p ? 0 : ckd_alloc(lane->mem, CKB_BOUNCE_BYTES, &p, err);

	lane->bounce = *out = p;
	return rc;
}

int ckd_follow(struct ckd_lane *lane, void *ready, struct ckpt_err *err)
{
	struct ckpt_err theirs = { 0 };

	return done(lane, lane->mem->ops.follow(lane->lane, ready, &theirs),
		    &theirs, err);
}
