/* SPDX-License-Identifier: Apache-2.0 */
/* test_dtype.c - the dtype table and sizes that follow from it (width-05). */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>
#include <string.h>

#include "tensor/dtype.h"

static void every_dtype_has_its_row(void **state)
{
	(void)state;
	for (unsigned d = 1; d < CKPT_DTYPE_END; d++) {
		const struct ckt_dtype *t = ckt_dtype_get((enum ckpt_dtype)d);
		enum ckpt_dtype back;

		assert_non_null(t);
		assert_true(t->bits >= 4 && t->bits <= 128);
		assert_true(ckt_dtype_from_code(t->name, strlen(t->name),
						&back));
		assert_int_equal(back, d);
		assert_int_equal(ckpt_dtype_parse(t->name, &back), 0);
		assert_int_equal(back, d);
		if (t->npy_descr && t->bits >= 8)
			assert_int_equal(t->npy_bytes * 8, t->bits);
	}
	assert_null(ckt_dtype_get(CKPT_DTYPE_END));
	assert_null(ckt_dtype_get((enum ckpt_dtype)0));
}

static void codes_are_exact_and_names_of_any_case(void **state)
{
	enum ckpt_dtype d;

	(void)state;
	assert_false(ckt_dtype_from_code("f32", 3, &d));
	assert_false(ckt_dtype_from_code("F33", 3, &d));
	assert_int_equal(ckpt_dtype_parse("bf16", &d), 0);
	assert_int_equal(d, CKPT_BF16);
	assert_int_equal(ckpt_dtype_parse("float", &d), CKPT_EINVAL);
}

struct sized {
	enum ckpt_dtype dtype;
	struct ckpt_shape shape;
	int code;
	uint64_t bytes;
};

static void sizes_are_checked_against_overflow(void **state)
{
	static const struct sized cases[] = {
		{ CKPT_F32, { 0, { 0 } }, 0, 4 },
		{ CKPT_F32, { 3, { 3, 0, 2 } }, 0, 0 },
		{ CKPT_U8, { 2, { 1ull << 63, 0 } }, 0, 0 },
		{ CKPT_U8, { 3, { 0, 1ull << 63, 2 } }, 0, 0 },
		{ CKPT_U8, { 1, { (1ull << 63) - 1 } }, 0, (1ull << 63) - 1 },
		{ CKPT_U8, { 1, { 1ull << 63 } }, CKPT_ELIMIT, 0 },
		{ CKPT_U8, { 2, { 1ull << 63, 2 } }, CKPT_ELIMIT, 0 },
		{ CKPT_U8, { 2, { 2, (1ull << 63) + 1 } }, CKPT_ELIMIT, 0 },
		{ CKPT_F32, { 1, { (1ull << 62) + 2 } }, CKPT_ELIMIT, 0 },
		{ CKPT_F32, { 1, { 1ull << 62 } }, CKPT_ELIMIT, 0 },
		{ CKPT_F32, { 3, { 1ull << 32, 1ull << 32, 2 } },
		  CKPT_ELIMIT, 0 },
		{ CKPT_F4, { 1, { 3 } }, CKPT_EINVAL, 0 },
		{ CKPT_F4, { 2, { 2, 3 } }, 0, 3 },
		{ CKPT_F6_E3M2, { 1, { 8 } }, 0, 6 },
		{ CKPT_F6_E3M2, { 1, { 3 } }, CKPT_EINVAL, 0 },
		{ CKPT_F32, { CKPT_NDIM_MAX + 1, { 0 } }, CKPT_ELIMIT, 0 },
	};

	(void)state;
	for (size_t i = 0; i < CKB_ARRAY_LEN(cases); i++) {
		uint64_t bytes = 77;
		struct ckpt_err err = { 0 };
		int rc = ckt_shape_bytes(cases[i].dtype, &cases[i].shape,
					 &bytes, &err);

		assert_int_equal(rc, cases[i].code);
		if (rc == 0)
			assert_int_equal(bytes, cases[i].bytes);
		else
			assert_true(strlen(err.message) > 10);
	}
}

static void texts_are_cut_not_overrun(void **state)
{
	struct ckpt_shape s = { 3, { 3, 0, 2 } };
	struct ckpt_box b = { 2, { 0, 3 }, { 128, 1 } };
	char text[64];

	(void)state;
	assert_string_equal(ckt_shape_text(text, sizeof(text), &s), "[3,0,2]");
	assert_string_equal(ckt_box_text(text, sizeof(text), &b),
			    "[0:128,3:4]");
	s.ndim = 64;
	for (int i = 0; i < 64; i++)
		s.dim[i] = UINT64_MAX;
	ckt_shape_text(text, sizeof(text), &s);
	assert_non_null(strstr(text, "...]"));
	s.ndim = 0;
	assert_string_equal(ckt_shape_text(text, sizeof(text), &s), "[]");
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(every_dtype_has_its_row),
		cmocka_unit_test(codes_are_exact_and_names_of_any_case),
		cmocka_unit_test(sizes_are_checked_against_overflow),
		cmocka_unit_test(texts_are_cut_not_overrun),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
