/* SPDX-License-Identifier: Apache-2.0 */
/* support/fake_device.h - a fake device as a test wants it. */
#ifndef TEST_FAKE_DEVICE_H
#define TEST_FAKE_DEVICE_H

#include <ckpt/memory.h>

#include "asserts.h"

static struct ckpt_memory *fake(struct ckpt_fake_opts opts)
{
	struct ckpt_memory *mem;
	struct ckpt_err err = { 0 };

	opts.size = sizeof(opts);
	assert_ok(ckpt_memory_fake(&opts, &mem, &err));
	return mem;
}

#endif
