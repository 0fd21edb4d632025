/* SPDX-License-Identifier: Apache-2.0 */
/* test_cover.c - S7: exact coverage, holes and overlaps named. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>
#include <stdlib.h>
#include <string.h>

#include "tensor/box.h"

static struct ckpt_err err;
static uint32_t a, b;

static int check1(uint64_t n, const uint64_t (*ranges)[2], uint32_t count)
{
	struct ckpt_box *boxes = calloc(count, sizeof(*boxes));

	for (uint32_t i = 0; i < count; i++)
		boxes[i] = (struct ckpt_box){ 1, { ranges[i][0] },
					      { ranges[i][1] } };
	int rc = ckt_cover_check(1, &n, boxes, count, &a, &b, &err);

	free(boxes);
	return rc;
}

/* shape-08: any exact cover, in any order, empty pieces too */
static void uneven_pieces_in_any_order_cover(void **state)
{
	const uint64_t r[][2] = { { 8, 3 }, { 1, 7 }, { 8, 0 }, { 0, 1 } };

	(void)state;
	assert_int_equal(check1(11, r, 4), 0);
}

static void a_hole_is_named(void **state)
{
	const uint64_t r[][2] = { { 0, 4 }, { 6, 4 } };

	(void)state;
	assert_int_equal(check1(10, r, 2), CKPT_EINVAL);
	assert_non_null(strstr(err.message, "hole"));
	assert_non_null(strstr(err.message, "[4:6]"));
}

static void an_overlap_names_both(void **state)
{
	const uint64_t r[][2] = { { 0, 4 }, { 7, 3 }, { 3, 4 } };

	(void)state;
	assert_int_equal(check1(10, r, 3), CKPT_EINVAL);
	assert_int_equal(a, 0);
	assert_int_equal(b, 2);
	assert_non_null(strstr(err.message, "overlap"));
}

/* The same volume as the tensor, and yet wrong. */
static void a_hole_and_an_overlap_do_not_cancel(void **state)
{
	const uint64_t r[][2] = { { 0, 5 }, { 4, 5 } };

	(void)state;
	assert_int_equal(check1(10, r, 2), CKPT_EINVAL);
}

/* replicas given twice: the whole tensor by two */
static void the_same_box_twice_overlaps(void **state)
{
	const uint64_t r[][2] = { { 0, 10 }, { 0, 10 } };

	(void)state;
	assert_int_equal(check1(10, r, 2), CKPT_EINVAL);
	assert_int_equal(a, 0);
	assert_int_equal(b, 1);
}

static void a_pinwheel_covers(void **state)
{
	const struct ckpt_box boxes[] = {
		{ 2, { 0, 0 }, { 1, 2 } }, { 2, { 0, 2 }, { 2, 1 } },
		{ 2, { 2, 1 }, { 1, 2 } }, { 2, { 1, 0 }, { 2, 1 } },
		{ 2, { 1, 1 }, { 1, 1 } },
	};
	const uint64_t shape[] = { 3, 3 };

	(void)state;
	assert_int_equal(ckt_cover_check(2, shape, boxes, 5, &a, &b, &err), 0);
	assert_int_equal(ckt_cover_check(2, shape, boxes, 4, &a, &b, &err),
			 CKPT_EINVAL);
	assert_non_null(strstr(err.message, "[1:2,1:2]"));
}

static uint64_t next_random(uint64_t *s)
{
	*s ^= *s << 13;
	*s ^= *s >> 7;
	*s ^= *s << 17;
	return *s;
}

/* How often each element is held, in C order. */
static void tally(const struct ckpt_box *boxes, uint32_t count,
		  const uint64_t *shape, uint32_t ndim, uint8_t *held)
{
	for (uint32_t i = 0; i < count; i++) {
		const struct ckpt_box *x = &boxes[i];
		uint64_t n = 1;

		for (uint32_t d = 0; d < ndim; d++)
			n *= x->extent[d];
		for (uint64_t k = 0; k < n; k++) {
			uint64_t rest = k, off = 0, step = 1;

			for (uint32_t d = ndim; d-- > 0;) {
				off += (x->origin[d] + rest % x->extent[d]) *
				       step;
				rest /= x->extent[d];
				step *= shape[d];
			}
			held[off]++;
		}
	}
}

/* Cut [0, shape) at random planes into @count boxes, unevenly. */
static uint32_t cut_up(uint64_t *seed, uint32_t ndim, const uint64_t *shape,
		       struct ckpt_box *boxes, uint32_t count)
{
	uint32_t n = 1;

	ckt_box_whole(&boxes[0], ndim, shape);
	for (uint32_t tries = 0; n < count && tries < 4 * count; tries++) {
		struct ckpt_box *x = &boxes[next_random(seed) % n];
		uint32_t d = (uint32_t)(next_random(seed) % ndim);

		if (x->extent[d] < 2)
			continue;
		uint64_t at = 1 + next_random(seed) % (x->extent[d] - 1);

		boxes[n] = *x;
		boxes[n].origin[d] += at;
		boxes[n++].extent[d] -= at;
		x->extent[d] = at;
	}
	for (uint32_t i = n; i-- > 1;) { /* in no order */
		uint32_t j = (uint32_t)(next_random(seed) % (i + 1));
		struct ckpt_box t = boxes[i];

		boxes[i] = boxes[j];
		boxes[j] = t;
	}
	return n;
}

/* One box of @n is dropped, doubled, moved or resized, or none is. */
static uint32_t spoil(uint64_t *seed, const uint64_t *shape,
		      struct ckpt_box *boxes, uint32_t n)
{
	struct ckpt_box *x = &boxes[next_random(seed) % n];
	uint32_t d = (uint32_t)(next_random(seed) % x->ndim);

	switch (next_random(seed) % 6) {
	case 0:
		*x = boxes[n - 1];
		return n - 1;
	case 1:
		boxes[n] = *x;
		return n + 1;
	case 2:
		x->origin[d] = next_random(seed) %
			       (shape[d] - x->extent[d] + 1);
		return n;
	case 3:
		x->extent[d] = next_random(seed) %
			       (shape[d] - x->origin[d] + 1);
		return n;
	default:
		return n;
	}
}

static struct ckpt_box many[80];

/* The answer is right, and so are the shards and the hole that it names. */
static void check_against(const uint8_t *held, uint64_t elements,
			  uint32_t ndim, const uint64_t *shape, uint32_t n)
{
	uint64_t wrong = 0;
	struct ckpt_box both;
	int rc = ckt_cover_check(ndim, shape, many, n, &a, &b, &err);

	for (uint64_t i = 0; i < elements; i++)
		wrong += held[i] != 1;
	assert_int_equal(rc, wrong ? CKPT_EINVAL : 0);
	if (rc == 0)
		return;
	if (a != UINT32_MAX) {
		assert_true(a < b && b < n);
		assert_true(ckt_box_meet(&many[a], &many[b], &both));
		return;
	}
	unsigned long long first[4] = { 0 }, end[4] = { 1, 1, 1, 1 };
	const char *p = strrchr(err.message, '[');

	for (uint32_t d = 0; d < ndim; d++) {
		char *q;

		first[d] = strtoull(p + 1, &q, 10);
		end[d] = strtoull(q + 1, &q, 10);
		assert_true(first[d] < end[d] && end[d] <= shape[d]);
		p = q;
	}
	for (uint64_t i = 0; i < elements; i++) {
		uint64_t rest = i;
		bool in = true;

		for (uint32_t d = ndim; d-- > 0; rest /= shape[d])
			in = in && rest % shape[d] >= first[d] &&
			     rest % shape[d] < end[d];
		if (in)
			assert_int_equal(held[i], 0);
	}
}

static void the_answer_is_that_of_brute_force(void **state)
{
	static uint8_t held[8 * 8 * 8 * 8];
	uint64_t seed = 20260101;

	(void)state;
	for (int round = 0; round < 4000; round++) {
		uint32_t ndim = 1 + (uint32_t)(next_random(&seed) % 4);
		uint64_t shape[4], elements = 1;

		for (uint32_t d = 0; d < ndim; d++) {
			shape[d] = 1 + next_random(&seed) % 8;
			elements *= shape[d];
		}
		uint32_t n = cut_up(&seed, ndim, shape, many,
				    1 + (uint32_t)(next_random(&seed) % 60));

		n = spoil(&seed, shape, many, n);
		n = n ? spoil(&seed, shape, many, n) : 0;
		memset(held, 0, sizeof(held));
		tally(many, n, shape, ndim, held);
		check_against(held, elements, ndim, shape, n);
	}
}

/* scale-01: 1,024 tensors of 1,024 shards, in a moment */
static void a_thousand_tensors_of_a_thousand_slabs_cover(void **state)
{
	uint32_t n = 1024;
	struct ckpt_box *boxes = calloc(n, sizeof(*boxes));
	const uint64_t shape[] = { 4096, 4096 };

	(void)state;
	for (uint32_t t = 0; t < 1024; t++) {
		uint32_t d = t % 2; /* by rows, by columns */

		for (uint32_t i = 0; i < n; i++) {
			ckt_box_whole(&boxes[i], 2, shape);
			boxes[i].origin[d] = 4 * ((i * 37 + t) % n);
			boxes[i].extent[d] = 4;
		}
		assert_int_equal(ckt_cover_check(2, shape, boxes, n, &a, &b,
						 &err), 0);
	}
	free(boxes);
}

/* A quadratic check would take minutes over these. */
static void many_uneven_cells_cover(void **state)
{
	uint32_t count = 1u << 16, wide = 256;
	struct ckpt_box *boxes = calloc(count, sizeof(*boxes));
	const uint64_t shape[] = { 1u << 20, 1u << 20, 1u << 20 };
	const uint64_t flat[] = { 2 * 256, 3 * 256 };
	uint64_t seed = 99;

	(void)state;
	uint32_t n = cut_up(&seed, 3, shape, boxes, count);

	assert_true(n > count / 2);
	assert_int_equal(ckt_cover_check(3, shape, boxes, n, &a, &b, &err), 0);
	boxes[n / 2] = boxes[n / 3];
	assert_int_equal(ckt_cover_check(3, shape, boxes, n, &a, &b, &err),
			 CKPT_EINVAL);
	for (uint32_t i = 0; i < count; i++)
		boxes[i] = (struct ckpt_box){ 2, { i / wide * 2, i % wide * 3 },
					      { 2, 3 } };
	assert_int_equal(ckt_cover_check(2, flat, boxes, count, &a, &b, &err),
			 0);
	boxes[33333].extent[1] = 4;
	assert_int_equal(ckt_cover_check(2, flat, boxes, count, &a, &b, &err),
			 CKPT_EINVAL);
	assert_int_equal(a, 33333);
	assert_int_equal(b, 33334);
	free(boxes);
}

/* Volumes that add up past 2^64 are an overlap still. */
static void huge_volumes_do_not_wrap(void **state)
{
	const uint64_t shape[] = { 1ull << 31, 1ull << 31 };
	struct ckpt_box boxes[9];

	(void)state;
	for (int i = 0; i < 9; i++)
		ckt_box_whole(&boxes[i], 2, shape);
	for (uint32_t n = 2; n <= 9; n++) {
		assert_int_equal(ckt_cover_check(2, shape, boxes, n, &a, &b,
						 &err), CKPT_EINVAL);
		assert_non_null(strstr(err.message, "overlap"));
	}
}

static void a_shard_that_leaves_the_tensor_is_named(void **state)
{
	const uint64_t r[][2] = { { 0, 4 }, { 4, 7 } };
	const uint64_t wraps[][2] = { { 0, 10 }, { 5, UINT64_MAX } };

	(void)state;
	assert_int_equal(check1(10, r, 2), CKPT_EINVAL);
	assert_int_equal(a, 1);
	assert_non_null(strstr(err.message, "leaves the tensor"));
	assert_int_equal(check1(10, wraps, 2), CKPT_EINVAL);
	assert_int_equal(a, 1);
}

/* shape-01: no element, so nobody need hold any */
static void an_empty_tensor_is_covered_by_anything(void **state)
{
	const uint64_t shape[] = { 3, 0 };
	struct ckpt_box x = { 2, { 0, 0 }, { 3, 0 } };

	(void)state;
	assert_int_equal(ckt_cover_check(2, shape, NULL, 0, &a, &b, &err), 0);
	assert_int_equal(ckt_cover_check(2, shape, &x, 1, &a, &b, &err), 0);
	x.extent[1] = 1;
	assert_int_equal(ckt_cover_check(2, shape, &x, 1, &a, &b, &err),
			 CKPT_EINVAL);
}

static void scalars_are_covered_by_one(void **state)
{
	struct ckpt_box one[2] = { { .ndim = 0 }, { .ndim = 0 } };

	(void)state;
	assert_int_equal(ckt_cover_check(0, NULL, one, 1, &a, &b, &err), 0);
	assert_int_equal(ckt_cover_check(0, NULL, one, 2, &a, &b, &err),
			 CKPT_EINVAL);
	assert_int_equal(ckt_cover_check(0, NULL, one, 0, &a, &b, &err),
			 CKPT_EINVAL);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(uneven_pieces_in_any_order_cover),
		cmocka_unit_test(a_hole_is_named),
		cmocka_unit_test(an_overlap_names_both),
		cmocka_unit_test(a_hole_and_an_overlap_do_not_cancel),
		cmocka_unit_test(the_same_box_twice_overlaps),
		cmocka_unit_test(a_pinwheel_covers),
		cmocka_unit_test(the_answer_is_that_of_brute_force),
		cmocka_unit_test(a_thousand_tensors_of_a_thousand_slabs_cover),
		cmocka_unit_test(many_uneven_cells_cover),
		cmocka_unit_test(huge_volumes_do_not_wrap),
		cmocka_unit_test(a_shard_that_leaves_the_tensor_is_named),
		cmocka_unit_test(an_empty_tensor_is_covered_by_anything),
		cmocka_unit_test(scalars_are_covered_by_one),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
