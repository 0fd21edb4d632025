/* SPDX-License-Identifier: Apache-2.0 */
/*
 * test_st_check.c - tensors taken together: holes, overlaps, names twice, and
 * that none of it takes long with 100,000 tensors.
 */
#include "st_case.h"

#include <stdlib.h>
#include <time.h>

static void coverage_faults_have_their_own_words(void **state)
{
	static const struct st_case cases[] = {
		{ "{" ONE("b", "U8", "[4]", "[4,8]") "}", 8, CKPT_EFORMAT,
		  "a hole in the data: bytes 0 to 4, before tensor 'b'" },
		/* stfile-06 */
		{ "{" ONE("a", "U8", "[4]", "[0,4]") ","
		  ONE("b", "U8", "[4]", "[16,20]") "}", 20, CKPT_EFORMAT,
		  "a hole in the data: bytes 4 to 16, before tensor 'b'" },
		/* stfile-04 */
		{ "{" ONE("a", "U8", "[16]", "[0,16]") ","
		  ONE("b", "U8", "[16]", "[0,16]") "}", 16, CKPT_EFORMAT,
		  "tensors 'a' (bytes 0 to 16 of the data) and 'b' (bytes 0 "
		  "to 16) overlap" },
		{ "{" ONE("b", "U8", "[0]", "[2,2]") ","
		  ONE("a", "U8", "[4]", "[0,4]") "}", 4, CKPT_EFORMAT,
		  "overlap" },
		/* stfile-07 */
		{ "{" ONE("a", "U8", "[1]", "[0,1]") "}", 8, CKPT_EFORMAT,
		  "7 trailing bytes after the last tensor" },
		{ "{" ONE("a", "U8", "[7]", "[0,7]") "}", 8, CKPT_EFORMAT,
		  "1 trailing byte after the last tensor" },
		{ "{}", 3, CKPT_EFORMAT, "3 trailing bytes" },
		/* stfile-08 */
		{ "{" ONE("a", "U8", "[8]", "[0,8]") "}", 7, CKPT_EFORMAT,
		  "truncated: the header describes 69 bytes, the file has 68" },
		{ "{" ONE("a", "U8", "[8]", "[0,8]") "}", 0, CKPT_EFORMAT,
		  "truncated: the header describes 69 bytes, the file has 61" },
		/* stfile-03: the name, not an offset, is what is wrong */
		{ "{" ONE("w", "U8", "[4]", "[0,4]") ","
		  ONE("w", "U8", "[4]", "[4,8]") "}", 8, CKPT_EFORMAT,
		  "tensor 'w' is given twice" },
		{ "{" ONE("w", "U8", "[4]", "[0,4]") ","
		  ONE("\\u0077", "U8", "[4]", "[0,4]") "}", 4, CKPT_EFORMAT,
		  "tensor 'w' is given twice" },
		{ "{\"__metadata__\":{\"k\":\"1\",\"l\":\"1\",\"\\u006b\":"
		  "\"1\"}}", 0, CKPT_EFORMAT,
		  "__metadata__ has the key 'k' twice" },
		{ "{" ONE("b", "U8", "[4]", "[4,8]") ","
		  ONE("a", "U8", "[4]", "[0,4]") ","
		  ONE("e", "U8", "[0]", "[4,4]") ","
		  ONE("f", "U8", "[0]", "[8,8]") "}", 8, 0, NULL },
	};

	(void)state;
	for (size_t i = 0; i < CKB_ARRAY_LEN(cases); i++)
		st_check_case(&cases[i]);
}

static double now_s(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return (double)t.tv_sec + (double)t.tv_nsec / 1e9;
}

enum { MANY = 100000 };

/* stfile-05: a tiny file that claims 16 GB. */
static void one_hundred_thousand_names_of_one_range_end_soon(void **state)
{
	struct ckb_buf json = { 0 };
	struct ckpt_err err = { 0 };
	struct ckx_st st;
	char *text;
	double began;

	(void)state;
	for (unsigned i = 0; i < MANY; i++)
		ckb_buf_printf(&json, "%c\"t%u\":{\"dtype\":\"F32\",\"shape\":"
			       "[40000],\"data_offsets\":[0,160000]}",
			       i ? ',' : '{', i);
	ckb_buf_putc(&json, '}');
	began = now_s();
	assert_int_equal(st_parse(&st, (char *)json.data, json.len, 160000,
				  &text, &err), CKPT_EFORMAT);
	assert_true(now_s() - began < 10); /* 0.1 s without sanitizers */
	assert_non_null(strstr(err.message, "overlap"));
	free(text);
	ckb_buf_fini(&json);
}

/* Good, but listed in an order that has nothing to do with its bytes. */
static void one_hundred_thousand_shuffled_tensors_are_sorted(void **state)
{
	struct ckb_buf json = { 0 };
	struct ckpt_err err = { 0 };
	struct ckx_st st;
	char *text;

	(void)state;
	for (unsigned i = 0; i < MANY; i++) {
		unsigned at = (unsigned)((uint64_t)i * 7919 % MANY);

		ckb_buf_printf(&json, "%c\"t%u\":{\"dtype\":\"U16\",\"shape\":"
			       "[],\"data_offsets\":[%u,%u]}", i ? ',' : '{',
			       at, 2 * at, 2 * at + 2);
	}
	ckb_buf_putc(&json, '}');
	assert_int_equal(st_parse(&st, (char *)json.data, json.len, 2 * MANY,
				  &text, &err), 0);
	assert_int_equal(st.tensor_count, MANY);
	for (unsigned i = 0; i < MANY; i++) {
		char name[16];
		int len = snprintf(name, sizeof(name), "t%u", i);

		assert_int_equal(st.tensors[i].begin, 2 * i);
		assert_ptr_equal(ckx_st_find(&st, name, (size_t)len),
				 &st.tensors[i]);
	}
	ckx_st_fini(&st);
	free(text);
	ckb_buf_fini(&json);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(coverage_faults_have_their_own_words),
		cmocka_unit_test(
			one_hundred_thousand_names_of_one_range_end_soon),
		cmocka_unit_test(
			one_hundred_thousand_shuffled_tensors_are_sorted),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
