/* SPDX-License-Identifier: Apache-2.0 */
/*
 * vector.h - known answers. The hex was put together from FORMAT.md's tables
 * by another program (Python's struct, and an XXH3 of its own), never by the
 * encoder under test, so that the format cannot drift silently. A vector that
 * has to change is a new version of the format.
 */
#ifndef TEST_FORMAT_VECTOR_H
#define TEST_FORMAT_VECTOR_H

#include "base/text.h"

static inline void assert_vector(const uint8_t *bytes, size_t len,
				 const char *hex)
{
	uint8_t want[256];

	assert_int_equal(strlen(hex), 2 * len);
	assert_true(len <= sizeof(want) && ckb_unhex(want, hex, len));
	assert_memory_equal(bytes, want, len);
}

/* @len bytes: @first, @first + 1, ... */
static inline void count_up(uint8_t *bytes, size_t len, uint8_t first)
{
	for (size_t i = 0; i < len; i++)
		bytes[i] = (uint8_t)(first + i);
}

#endif
