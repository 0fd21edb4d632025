/* SPDX-License-Identifier: Apache-2.0 */
/* test_box.c - runs and ranges against brute force on small shapes. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>
#include <string.h>

#include "tensor/box.h"

#define BYTES 20000

static uint64_t next_random(uint64_t *s)
{
	*s ^= *s << 13;
	*s ^= *s >> 7;
	*s ^= *s << 17;
	return *s;
}

/* Offset of element @at in C order of @extent, or -1 when it is outside. */
static uint64_t offset_in(const struct ckpt_box *b, const uint64_t *at)
{
	uint64_t off = 0;

	for (uint32_t d = 0; d < b->ndim; d++)
		off = off * b->extent[d] + at[d] - b->origin[d];
	return off;
}

static bool step(const struct ckpt_box *b, uint64_t *at)
{
	for (uint32_t d = b->ndim; d-- > 0;) {
		if (++at[d] < b->origin[d] + b->extent[d])
			return true;
		at[d] = b->origin[d];
	}
	return false;
}

static void random_inside(uint64_t *seed, const struct ckpt_box *in,
			  struct ckpt_box *out)
{
	out->ndim = in->ndim;
	for (uint32_t d = 0; d < in->ndim; d++) {
		uint64_t first = next_random(seed) % in->extent[d];

		out->origin[d] = in->origin[d] + first;
		out->extent[d] = 1 + next_random(seed) %
					     (in->extent[d] - first);
	}
}

/* Copy by runs; then every element must be where brute force puts it, and the
 * runs ascend in the source. */
static void runs_copy_a_box(void **state)
{
	static uint8_t src[BYTES], dst[BYTES];
	uint64_t seed = 42;

	(void)state;
	for (size_t i = 0; i < BYTES; i++)
		src[i] = (uint8_t)(next_random(&seed) >> 32);
	for (int round = 0; round < 3000; round++) {
		struct ckpt_box whole = { .ndim = (uint32_t)(next_random(&seed) % 5) };
		struct ckpt_box box, target;
		uint64_t strides[CKPT_NDIM_MAX], at[CKPT_NDIM_MAX];
		uint64_t from, to, len, last = 0;
		struct ckt_runs r;

		for (uint32_t d = 0; d < whole.ndim; d++) {
			whole.origin[d] = next_random(&seed) % 50;
			whole.extent[d] = 1 + next_random(&seed) % 8;
		}
		random_inside(&seed, &whole, &box);
		target = round % 2 ? box : whole; /* dense, or in place */
		ckt_strides(strides, target.ndim, target.extent, 4);
		memset(dst, 0, sizeof(dst));
		ckt_runs_init(&r, &whole, &box, 4, strides, target.origin);
		for (int n = 0; ckt_runs_next(&r, &from, &to, &len); n++) {
			assert_true(n == 0 || from >= last);
			memcpy(dst + to, src + from, len);
			last = from + len;
		}
		memcpy(at, box.origin, sizeof(at));
		do {
			assert_memory_equal(dst + 4 * offset_in(&target, at),
					    src + 4 * offset_in(&whole, at),
					    4);
		} while (step(&box, at));
	}
}

/* The boxes of a linear range, in order, are that range. */
static void ranges_are_boxes_in_order(void **state)
{
	static struct ckpt_box parts[CKT_RANGE_BOXES_MAX];
	uint64_t seed = 4711;

	(void)state;
	for (int round = 0; round < 5000; round++) {
		uint32_t ndim = (uint32_t)(next_random(&seed) % 5);
		struct ckpt_box whole = { .ndim = ndim };
		uint64_t total = 1, at[CKPT_NDIM_MAX], want;

		for (uint32_t d = 0; d < ndim; d++) {
			whole.extent[d] = 1 + next_random(&seed) % 6;
			total *= whole.extent[d];
		}
		uint64_t first = next_random(&seed) % total;
		uint64_t count = next_random(&seed) % (total - first + 1);
		uint32_t n = ckt_range_boxes(ndim, whole.extent, first, count,
					     parts);

		assert_true(n <= (ndim ? 2 * ndim - 1 : 1));
		want = first;
		for (uint32_t i = 0; i < n; i++) {
			assert_true(ckt_box_inside(&parts[i], ndim,
						   whole.extent));
			memcpy(at, parts[i].origin, sizeof(at));
			do
				assert_int_equal(offset_in(&whole, at),
						 want++);
			while (step(&parts[i], at));
		}
		assert_int_equal(want, first + count);
	}
}

static void boxes_that_only_touch_do_not_meet(void **state)
{
	struct ckpt_box a = { 1, { 0 }, { 5 } }, b = { 1, { 5 }, { 5 } }, out;

	(void)state;
	assert_false(ckt_box_meet(&a, &b, &out));
	b.origin[0] = 4;
	assert_true(ckt_box_meet(&a, &b, &out));
	assert_int_equal(out.origin[0], 4);
	assert_int_equal(out.extent[0], 1);
	a.ndim = b.ndim = 0;
	assert_true(ckt_box_meet(&a, &b, &out));
}

static void a_box_whose_end_wraps_is_outside(void **state)
{
	struct ckpt_box b = { 1, { UINT64_MAX }, { 2 } };
	uint64_t shape[] = { 10 };

	(void)state;
	assert_false(ckt_box_inside(&b, 1, shape));
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(runs_copy_a_box),
		cmocka_unit_test(ranges_are_boxes_in_order),
		cmocka_unit_test(boxes_that_only_touch_do_not_meet),
		cmocka_unit_test(a_box_whose_end_wraps_is_outside),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
