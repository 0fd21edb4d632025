/* SPDX-License-Identifier: Apache-2.0 */
/*
 * host.c - the process's own memory as a kind: a copy is a memcpy, done when it
 * was asked for. Nothing here fails or waits. Any thread; no locks.
 */
#include <string.h>

#include "base/err.h"
#include "mem/mem.h"

static char no_state; /* what a lane points to, as it must not be NULL */

static int host_lane_open(void *ctx, void **out_lane, struct ckpt_err *err)
{
	(void)ctx;
	(void)err;
	*out_lane = &no_state;
	return 0;
}

static int host_lane_close(void *lane)
{
	(void)lane;
	return 0;
}

static int host_copy_2d(void *lane, void *dst, size_t dst_pitch,
			const void *src, size_t src_pitch, size_t width,
			size_t height, struct ckpt_err *err)
{
	(void)lane;
	(void)err;
	for (size_t i = 0; i < height; i++)
		memcpy((uint8_t *)dst + i * dst_pitch,
		       (const uint8_t *)src + i * src_pitch, width);
	return 0;
}

static int host_record(void *lane, uint64_t *out_event, struct ckpt_err *err)
{
	(void)lane;
	(void)err;
	*out_event = 0;
	return 0;
}

static int host_wait(void *lane, uint64_t event, uint64_t timeout_ns,
		     struct ckpt_err *err)
{
	(void)lane;
	(void)event;
	(void)timeout_ns;
	(void)err;
	return 0;
}

static const struct ckpt_memory_ops host_ops = {
	.size = sizeof(host_ops),
	.flags = CKPT_MEMORY_HOST,
	.lane_open = host_lane_open,
	.lane_close = host_lane_close,
	.copy_2d = host_copy_2d,
	.record = host_record,
	.wait = host_wait,
};

int ckpt_memory_host(struct ckpt_memory **out, struct ckpt_err *err)
{
	return ckpt_memory_new("host", &host_ops, NULL, out, err);
}
