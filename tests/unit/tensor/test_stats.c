/* SPDX-License-Identifier: Apache-2.0 */
/* test_stats.c - statistics and single values against NumPy and ml_dtypes. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>
#include <math.h>
#include <string.h>

#include "tensor/stats.h"
#include "tensor/value.h"

#define N 1000

static uint32_t words[N];
static uint64_t longs[N];

static void fill(void)
{
	for (uint64_t i = 0; i < N; i++) {
		words[i] = (uint32_t)(i * 2654435761u);
		longs[i] = i * 0x9e3779b97f4a7c15ull;
	}
}

/* From ml_dtypes 0.6.0: all codes of a kind as float32; NaN, Inf and zero
 * counts, least and greatest finite value, value of code count/2 - 1, of 1. */
struct kind {
	enum ckpt_dtype dtype;
	unsigned codes, nan, inf, zero;
	double min, max, middle, one;
};
static const struct kind kinds[] = {
	{ CKPT_F8_E5M2, 256, 6, 2, 2,
	  -0x1.c00p+15, 0x1.c00p+15, 0, 0x1.000p-16 },
	{ CKPT_F8_E4M3, 256, 2, 0, 2,
	  -0x1.c00p+8, 0x1.c00p+8, 0, 0x1.000p-9 },
	{ CKPT_F8_E5M2FNUZ, 256, 1, 0, 1,
	  -0x1.c00p+15, 0x1.c00p+15, 0x1.c00p+15, 0x1.000p-17 },
	{ CKPT_F8_E4M3FNUZ, 256, 1, 0, 1,
	  -0x1.e00p+7, 0x1.e00p+7, 0x1.e00p+7, 0x1.000p-10 },
	{ CKPT_F8_E8M0, 256, 1, 0, 0,
	  0x1.000p-127, 0x1.000p+127, 0x1.000p+0, 0x1.000p-126 },
	{ CKPT_F6_E2M3, 64, 0, 0, 2,
	  -0x1.e00p+2, 0x1.e00p+2, 0x1.e00p+2, 0x1.000p-3 },
	{ CKPT_F6_E3M2, 64, 0, 0, 2,
	  -0x1.c00p+4, 0x1.c00p+4, 0x1.c00p+4, 0x1.000p-4 },
	{ CKPT_F4, 16, 0, 0, 2,
	  -0x1.800p+2, 0x1.800p+2, 0x1.800p+2, 0x1.000p-1 },
};

static void small_floats_equal_ml_dtypes(void **state)
{
	(void)state;
	for (size_t k = 0; k < CKB_ARRAY_LEN(kinds); k++) {
		const struct kind *e = &kinds[k];
		unsigned nan = 0, inf = 0, zero = 0;
		double low = INFINITY, high = -INFINITY;

		for (unsigned c = 0; c < e->codes; c++) {
			double v = (double)ckt_small_float(e->dtype,
							   (uint8_t)c);

			nan += isnan(v) != 0;
			inf += isinf(v) != 0;
			zero += v == 0;
			if (isfinite(v)) {
				low = fmin(low, v);
				high = fmax(high, v);
			}
			if (c == e->codes / 2 - 1 && isfinite(v))
				assert_true(v == e->middle);
			if (c == 1)
				assert_true(v == e->one);
		}
		assert_int_equal(nan, e->nan);
		assert_int_equal(inf, e->inf);
		assert_int_equal(zero, e->zero);
		assert_true(low == e->min && high == e->max);
	}
}

static struct ckpt_stats of(enum ckpt_dtype dtype, const void *p, size_t len)
{
	struct ckpt_stats s;

	ckt_stats_init(&s, dtype);
	ckt_stats_add(&s, dtype, p, len);
	return s;
}

/* Expected values: NumPy 2.4.6 over the same bits (BF16: ml_dtypes). */
static void floats_equal_numpy(void **state)
{
	uint16_t halves[N];
	struct ckpt_stats s = of(CKPT_F32, words, sizeof(words));

	(void)state;
	assert_int_equal(s.count, N);
	assert_int_equal(s.nan_count, 4);
	assert_int_equal(s.inf_count, 0);
	assert_int_equal(s.zero_count, 1);
	assert_true(s.min.f == -0x1.c8d6a4p+127);
	assert_true(s.max.f == 0x1.98dee2p+127);
	for (size_t i = 0; i < N; i++)
		halves[i] = (uint16_t)words[i];
	s = of(CKPT_F16, halves, sizeof(halves));
	assert_int_equal(s.nan_count, 30);
	assert_int_equal(s.zero_count, 1);
	assert_true(s.min.f == -0x1.f84p+15 && s.max.f == 0x1.eccp+15);
	assert_true(s.sum == -0x1.2c3f4a6f5p+16); /* exact in double */
	assert_true(s.absmax == 0x1.f84p+15);
	s = of(CKPT_BF16, halves, sizeof(halves));
	assert_int_equal(s.nan_count, 3);
	assert_true(s.min.f == -0x1.dcp+127 && s.max.f == 0x1.b6p+127);
}

static void integers_are_exact(void **state)
{
	struct ckpt_stats s = of(CKPT_I32, words, sizeof(words));

	(void)state;
	assert_int_equal(s.min.i, -2145911839);
	assert_int_equal(s.max.i, 2143957386);
	assert_true(s.sum == -101394068);
	s = of(CKPT_U64, longs, sizeof(longs));
	assert_true(s.min.u == 0 && s.max.u == 18438385782879970551ull);
	s = of(CKPT_I64, longs, sizeof(longs));
	assert_true(s.min.i == -9216610037529717499ll &&
		    s.max.i == 9208251746700136434ll);
	assert_int_equal(s.zero_count, 1);
}

static void bool_and_packed_elements_are_counted(void **state)
{
	const uint8_t bools[] = { 0, 1, 1, 0, 1 };
	const uint8_t f4[] = { 0x20, 0xF0 };        /* 0, 1, 0, -6 */
	const uint8_t f6[] = { 0x00, 0x10, 0xFC };  /* 0, 0, 1, -7.5 */
	struct ckpt_stats s = of(CKPT_BOOL, bools, sizeof(bools));

	(void)state;
	assert_int_equal(s.count, 5);
	assert_int_equal(s.zero_count, 2);
	assert_int_equal(s.max.u, 1);
	s = of(CKPT_F4, f4, sizeof(f4));
	assert_int_equal(s.count, 4);
	assert_int_equal(s.zero_count, 2);
	assert_true(s.min.f == -6 && s.max.f == 1 && s.sum == -5);
	s = of(CKPT_F6_E2M3, f6, sizeof(f6));
	assert_int_equal(s.count, 4);
	assert_int_equal(s.zero_count, 2);
	assert_true(s.min.f == -7.5 && s.max.f == 0.125);
}

/* The same tiles merged in order give the same bits, whatever computed them. */
static void partials_merge_in_order(void **state)
{
	struct ckpt_stats a = of(CKPT_F32, words, 400 * 4);
	struct ckpt_stats b = of(CKPT_F32, words + 400, 600 * 4), c, d;

	(void)state;
	ckt_stats_init(&c, CKPT_F32);
	ckt_stats_merge(&c, &a);
	ckt_stats_merge(&c, &b);
	ckt_stats_init(&d, CKPT_F32);
	ckt_stats_merge(&d, &a);
	ckt_stats_merge(&d, &b);
	assert_memory_equal(&c, &d, sizeof(c));
	assert_int_equal(c.count, N);
	assert_int_equal(c.nan_count, 4);
	assert_true(c.min.f == -0x1.c8d6a4p+127);
}

static void nothing_finite_has_no_extremes(void **state)
{
	const float v[] = { NAN, INFINITY, -INFINITY };
	struct ckpt_stats s = of(CKPT_F32, v, sizeof(v));

	(void)state;
	assert_int_equal(s.nan_count, 1);
	assert_int_equal(s.inf_count, 2);
	assert_true(s.absmax == 0 && s.sum == 0);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(small_floats_equal_ml_dtypes),
		cmocka_unit_test(floats_equal_numpy),
		cmocka_unit_test(integers_are_exact),
		cmocka_unit_test(bool_and_packed_elements_are_counted),
		cmocka_unit_test(partials_merge_in_order),
		cmocka_unit_test(nothing_finite_has_no_extremes),
	};

	fill();
	return cmocka_run_group_tests(tests, NULL, NULL);
}
