/* SPDX-License-Identifier: Apache-2.0 */
/*
 * module_echo.c - a module of memory as a user may write one: the public header
 * and nothing else. Its device is the host; device "gone" does not exist, and
 * device "lacking" has a table that lacks copies.
 */
#include <string.h>

#include <ckpt/memory.h>

static char lane_state;

static int echo_lane_open(void *ctx, void **out_lane, struct ckpt_err *err)
{
	(void)ctx;
	(void)err;
	*out_lane = &lane_state;
	return 0;
}

static int echo_lane_close(void *lane)
{
	(void)lane;
	return 0;
}

static int echo_copy_2d(void *lane, void *dst, size_t dst_pitch,
			const void *src, size_t src_pitch, size_t width,
			size_t height, struct ckpt_err *err)
{
	(void)lane;
	(void)err;
	for (size_t i = 0; i < height; i++)
		memcpy((char *)dst + i * dst_pitch,
		       (const char *)src + i * src_pitch, width);
	return 0;
}

static int echo_record(void *lane, uint64_t *out_event, struct ckpt_err *err)
{
	(void)lane;
	(void)err;
	*out_event = 1;
	return 0;
}

static int echo_wait(void *lane, uint64_t event, uint64_t timeout_ns,
		     struct ckpt_err *err)
{
	(void)lane;
	(void)event;
	(void)timeout_ns;
	(void)err;
	return 0;
}

static const struct ckpt_memory_ops ops = {
	.size = sizeof(ops),
	.lane_open = echo_lane_open,
	.lane_close = echo_lane_close,
	.copy_2d = echo_copy_2d,
	.record = echo_record,
	.wait = echo_wait,
};
static const struct ckpt_memory_ops lacking = {
	.size = sizeof(lacking),
	.lane_open = echo_lane_open,
	.lane_close = echo_lane_close,
};

CKPT_API int ckpt_memory_module_1(const char *device,
				  const struct ckpt_memory_ops **out_ops,
				  void **out_ctx, struct ckpt_err *err);

int ckpt_memory_module_1(const char *device,
			 const struct ckpt_memory_ops **out_ops,
			 void **out_ctx, struct ckpt_err *err)
{
	if (strcmp(device, "gone") == 0) {
		if (err) {
			err->code = CKPT_ENOENT;
			strcpy(err->message, "there is no such device");
		}
		return CKPT_ENOENT;
	}
	*out_ops = strcmp(device, "lacking") == 0 ? &lacking : &ops;
	*out_ctx = NULL;
	return 0;
}
