/* SPDX-License-Identifier: Apache-2.0 */
/* mem_fixture.h - a kind of memory that counts, and one copy through a lane. */
#ifndef MEM_FIXTURE_H
#define MEM_FIXTURE_H

#include <errno.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "asserts.h"
#include "base/limits.h"
#include "mem/mem.h"

/* A kind that copies at once, and fails as its fields say. */
struct toy {
	atomic_int open, opened, closed; /* lanes now, so far; ctx closed */
	atomic_int staged;               /* pieces of staging memory now */
	atomic_int unwaited, unwaited_max; /* copies since the last wait */
	int keep;           /* lanes may not be closed so many times */
	int lane_open_rc, copy_rc, record_rc, wait_rc, alloc_rc, ready_rc;
	int sys_errno;      /* of what fails */
	const char *says;   /* NULL: nothing */
};

FIX int toy_fail(const struct toy *t, int rc, struct ckpt_err *err)
{
	if (rc != 0) {
		err->code = rc;
		err->sys_errno = t->sys_errno;
		if (t->says)
			strcpy(err->message, t->says);
	}
	return rc;
}

FIX int toy_alloc(void *ctx, size_t bytes, void **out, struct ckpt_err *err)
{
	struct toy *t = ctx;

	if (t->alloc_rc == 0) {
		*out = aligned_alloc(4096, (bytes + 4095) / 4096 * 4096);
		t->staged++;
	}
	return toy_fail(t, t->alloc_rc, err);
}

FIX void toy_free(void *ctx, void *staging, size_t bytes)
{
	(void)bytes;
	((struct toy *)ctx)->staged--;
	free(staging);
}

FIX int toy_lane_open(void *ctx, void **out_lane, struct ckpt_err *err)
{
	struct toy *t = ctx;

	if (t->lane_open_rc == 0) {
		t->open++;
		t->opened++;
		*out_lane = t;
	}
	return toy_fail(t, t->lane_open_rc, err);
}

FIX int toy_lane_close(void *lane)
{
	struct toy *t = lane;

	if (t->keep > 0 && t->keep--)
		return CKPT_EBUSY;
	t->open--;
	return 0;
}

FIX int toy_copy_2d(void *lane, void *dst, size_t dst_pitch, const void *src,
		    size_t src_pitch, size_t width, size_t height,
		    struct ckpt_err *err)
{
	struct toy *t = lane;

	for (size_t i = 0; i < height; i++)
		memcpy((char *)dst + i * dst_pitch,
		       (const char *)src + i * src_pitch, width);
	if (++t->unwaited > t->unwaited_max)
		t->unwaited_max = t->unwaited;
	return toy_fail(t, t->copy_rc, err);
}

FIX int toy_record(void *lane, uint64_t *out_event, struct ckpt_err *err)
{
	*out_event = 1;
	return toy_fail(lane, ((struct toy *)lane)->record_rc, err);
}

FIX int toy_wait(void *lane, uint64_t event, uint64_t timeout_ns,
		 struct ckpt_err *err)
{
	struct toy *t = lane;

	(void)event;
	(void)timeout_ns;
	t->unwaited = 0;
	return toy_fail(t, t->wait_rc, err);
}

FIX int toy_ready_open(void *ctx, void *stream, void **out_ready,
		       struct ckpt_err *err)
{
	*out_ready = stream;
	return toy_fail(ctx, ((struct toy *)ctx)->ready_rc, err);
}

FIX int toy_follow(void *lane, void *ready, struct ckpt_err *err)
{
	(void)ready;
	return toy_fail(lane, ((struct toy *)lane)->ready_rc, err);
}

FIX void toy_ready_close(void *ctx, void *ready)
{
	(void)ctx;
	(void)ready;
}

FIX void toy_close(void *ctx)
{
	((struct toy *)ctx)->closed++;
}

FIX const struct ckpt_memory_ops toy_ops = {
	.size = sizeof(toy_ops), .alloc = toy_alloc, .free = toy_free,
	.lane_open = toy_lane_open, .lane_close = toy_lane_close,
	.copy_2d = toy_copy_2d, .record = toy_record, .wait = toy_wait,
	.ready_open = toy_ready_open, .follow = toy_follow,
	.ready_close = toy_ready_close, .close = toy_close,
};

FIX struct ckpt_memory *toy_new(struct toy *t)
{
	struct ckpt_memory *mem;
	struct ckpt_err err = { 0 };

	assert_ok(ckpt_memory_new("toy", &toy_ops, t, &mem, &err));
	return mem;
}

/* One copy of @len bytes, waited for. */
FIX int fix_copy(struct ckpt_memory *mem, void *dst, const void *src,
		 size_t len, struct ckpt_err *err)
{
	struct ckd_lane *lane;
	uint64_t event;
	int rc = ckd_lane_get(mem, &lane, err);

	if (rc < 0)
		return rc;
	rc = ckd_copy_2d(lane, dst, len, src, len, len, 1, err);
	if (rc == 0)
		rc = ckd_record(lane, &event, err);
	if (rc == 0)
		rc = ckd_wait(lane, event, err);
	ckd_lane_put(lane, rc == 0);
	return rc;
}

FIX uint64_t fix_now_ns(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return (uint64_t)t.tv_sec * 1000000000 + (uint64_t)t.tv_nsec;
}

#define MS 1000000ull

#endif
