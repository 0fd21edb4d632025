/* SPDX-License-Identifier: Apache-2.0 */
/* test_fold.c - lanes against one element at a time, all widths alike. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base/bytes.h"
#include "tensor/fold.h"
#include "tensor/stats.h"

#define N 65536 /* every F16 and BF16 once */

static uint8_t bytes[4 * N];

/* F16, BF16: every code, in an order that mixes the lanes. F32: every upper
 * half, lower halves 0 for half of them, so that zeros and Inf are there. */
static void fill(enum ckpt_dtype dtype)
{
	for (uint32_t i = 0; i < N; i++) {
		uint32_t code = i * 40503 & 0xffff;

		if (dtype == CKPT_F32)
			ckb_put_u32(bytes + 4 * (size_t)i,
				    code << 16 | (i % 2 ? i : 0));
		else
			ckb_put_u16(bytes + 2 * (size_t)i, (uint16_t)code);
	}
}

static void start(struct ckt_fold *f)
{
	memset(f, 0, sizeof(*f));
	for (int l = 0; l < CKT_FOLD_LANES; l++) {
		f->min[l] = INFINITY;
		f->max[l] = -INFINITY;
	}
}

static void one_at_a_time(struct ckt_fold *f, enum ckpt_dtype dtype)
{
	start(f);
	for (uint32_t i = 0; i < N; i++) {
		double x = ckt_value_f64(dtype, bytes, i);
		int l = i % CKT_FOLD_LANES;

		f->nan += isnan(x) != 0;
		f->zero += x == 0;
		if (!isfinite(x))
			continue;
		f->finite++;
		f->min[l] = fminf(f->min[l], (float)x);
		f->max[l] = fmaxf(f->max[l], (float)x);
		f->sum[l] += x;
	}
}

static void assert_same(const struct ckt_fold *a, const struct ckt_fold *b)
{
	assert_int_equal(a->nan, b->nan);
	assert_int_equal(a->finite, b->finite);
	assert_int_equal(a->zero, b->zero);
	for (int l = 0; l < CKT_FOLD_LANES; l++) {
		assert_true(a->min[l] == b->min[l] && a->max[l] == b->max[l]);
		assert_true(a->sum[l] == b->sum[l]);
	}
}

static void check(enum ckpt_dtype dtype, ckt_fold_fn fold)
{
	size_t half = N / 2 + CKT_FOLD_LANES, item = ckpt_dtype_bits(dtype) / 8;
	struct ckt_fold want, got;

	fill(dtype);
	one_at_a_time(&want, dtype);
	assert_true(want.nan > 0 && want.zero >= 2);
	assert_true(want.finite + want.nan < N);
	start(&got);
	fold(&got, bytes, half); /* goes on where it stopped */
	fold(&got, bytes + half * item, N - half);
	assert_same(&want, &got);
}

static void check_kinds(ckt_fold_fn f16, ckt_fold_fn bf16, ckt_fold_fn f32)
{
	check(CKPT_F16, f16);
	check(CKPT_BF16, bf16);
	check(CKPT_F32, f32);
}

static void plain_lanes_are_exact(void **state)
{
	(void)state;
	check_kinds(ckt_fold_f16, ckt_fold_bf16, ckt_fold_f32);
}

static void lanes_of_avx2_are_the_same(void **state)
{
	(void)state;
#ifdef __x86_64__
	if (ckt_fold_has_wide()) {
		check_kinds(ckt_fold_f16_wide, ckt_fold_bf16_wide,
			    ckt_fold_f32_wide);
		return;
	}
#endif
	printf("no AVX2 here: its lanes are not tested\n");
	skip();
}

static void lanes_of_avx512_are_the_same(void **state)
{
	(void)state;
#ifdef __x86_64__
	if (ckt_fold_has_512()) {
		check_kinds(ckt_fold_f16_512, ckt_fold_bf16_512,
			    ckt_fold_f32_512);
		return;
	}
#endif
	printf("no AVX-512 here: its lanes are not tested\n");
	skip();
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(plain_lanes_are_exact),
		cmocka_unit_test(lanes_of_avx2_are_the_same),
		cmocka_unit_test(lanes_of_avx512_are_the_same),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
