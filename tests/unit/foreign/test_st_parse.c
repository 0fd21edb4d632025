/* SPDX-License-Identifier: Apache-2.0 */
/*
 * test_st_parse.c - headers written by hand: what is accepted, and the one
 * sentence for each way to be wrong.
 */
#include "st_case.h"

#define A8 ONE("a", "F32", "[2]", "[0,8]")

static void wrong_infos_say_what_and_where(void **state)
{
	static const struct st_case cases[] = {
		{ "", 0, CKPT_EFORMAT, "the header is empty" },
		{ " ", 0, CKPT_EFORMAT, "JSON error at byte 1 of the header: " },
		{ "[]", 0, CKPT_EFORMAT, "no object" },
		{ "{" A8 "}x", 8, CKPT_EFORMAT,
		  "JSON error at byte 54 of the header: " },
		{ "{\"a\":[\"F32\",[2],[0,8]]}", 8, CKPT_EFORMAT,
		  "'a' (byte 5 of the header): its info is a list" },
		{ "{\"a\":7}", 8, CKPT_EFORMAT, "its info is no object" },
		{ "{\"a\":{}}", 0, CKPT_EFORMAT, "its dtype is missing" },
		{ "{" ONE("a", "F33", "[2]", "[0,8]") "}", 8, CKPT_EFORMAT,
		  "'a' (byte 14 of the header): its dtype 'F33' is unknown" },
		{ "{" ONE("a", "C128", "[1]", "[0,16]") "}", 16, CKPT_EFORMAT,
		  "its dtype 'C128' is unknown" },
		{ "{" ONE("a", "f32", "[2]", "[0,8]") "}", 8, CKPT_EFORMAT,
		  "its dtype 'f32' is unknown" },
		{ "{" ONE("a", "", "[2]", "[0,8]") "}", 8, CKPT_EFORMAT,
		  "its dtype '' is unknown" },
		{ "{\"a\":{\"dtype\":{\"F32\":null},\"shape\":[2],"
		  "\"data_offsets\":[0,8]}}", 8, CKPT_EFORMAT,
		  "its dtype is no string" },
		{ "{\"a\":{\"dtype\":\"F32\",\"dt\\u0079pe\":\"F32\"}}", 8,
		  CKPT_EFORMAT, "its dtype is given twice" },
		{ "{" ONE("a", "F32", "2", "[0,8]") "}", 8, CKPT_EFORMAT,
		  "its shape is no list" },
		{ "{" ONE("a", "F32", "[2.0]", "[0,8]") "}", 8, CKPT_EFORMAT,
		  "its shape holds something other than a whole number" },
		{ "{" ONE("a", "F32", "[[2]]", "[0,8]") "}", 8, CKPT_EFORMAT,
		  "its shape holds something other than a whole number" },
		{ "{" ONE("a", "F32", "[2]", "[0]") "}", 8, CKPT_EFORMAT,
		  "its data_offsets must be 2 numbers, not 1" },
		{ "{" ONE("a", "F32", "[2]", "[8,0]") "}", 8, CKPT_EFORMAT,
		  "end at 0, before they begin at 8" },
		{ "{" ONE("a", "F32", "[3]", "[0,8]") "}", 8, CKPT_EFORMAT,
		  "take 12 bytes, its data_offsets span 8" },
		{ "{" ONE("a", "F4", "[3]", "[0,2]") "}", 2, CKPT_EFORMAT,
		  "takes 12 bits" },
		/* width-05 */
		{ "{" ONE("a", "F32", "[4294967296,4294967296,2]", "[0,0]")
		  "}", 0, CKPT_EFORMAT, "overflows 64 bits" },
		{ "{" ONE("a", "F32", "[9223372036854775808,2,0]", "[0,0]")
		  "}", 0, CKPT_EFORMAT, "overflows 64 bits" },
		{ "{" ONE("a", "F64", "[4611686018427387904]", "[0,0]")
		  "}", 0, CKPT_EFORMAT, "overflows 64 bits" },
		{ "{" ONE("\\n", "F33", "[]", "[0,0]") "}", 0, CKPT_EFORMAT,
		  "tensor '\\x0a' (byte" },
		{ "{\"__metadata__\":{\"k\":1}}", 0, CKPT_EFORMAT,
		  "the value of 'k' is no string" },
		{ "{\"__metadata__\":[]}", 0, CKPT_EFORMAT, "is no object" },
		{ "{\"__metadata__\":null}", 0, CKPT_EFORMAT, "is no object" },
		{ "{\"__metadata__\":{},\"__meta\\u0064ata__\":{}}", 0,
		  CKPT_EFORMAT, "__metadata__ is given twice" },
	};

	(void)state;
	for (size_t i = 0; i < CKB_ARRAY_LEN(cases); i++)
		st_check_case(&cases[i]);
}

static void what_the_library_accepts_is_accepted(void **state)
{
	static const struct st_case cases[] = {
		{ "{}", 0, 0, NULL },
		{ " \n{}\t\r\n ", 0, 0, NULL },
		{ "{" A8 "}", 8, 0, NULL },
		{ "{" ONE("a", "F32", "[]", "[0,4]") "}", 4, 0, NULL },
		{ "{" ONE("a", "F32", "[0]", "[0,0]") "}", 0, 0, NULL },
		/* a zero before the overflow: no bytes */
		{ "{" ONE("a", "F32", "[0,9223372036854775808,2]", "[0,0]")
		  "}", 0, 0, NULL },
		{ "{" ONE("a", "F6_E2M3", "[4]", "[0,3]") "}", 3, 0, NULL },
		{ "{" ONE("a", "F4", "[4]", "[0,2]") "}", 2, 0, NULL },
		{ "{" ONE("a", "F\\u0033\\u0032", "[2]", "[0,8]") "}", 8, 0,
		  NULL },
		{ "{" ONE("", "U8", "[2]", "[0,2]") "}", 2, 0, NULL },
		{ "{" ONE("\\u0000", "U8", "[2]", "[0,2]") "}", 2, 0, NULL },
		{ "{\"a\":{\"x\":[{\"dtype\":1}],\"data_offsets\":[0,2],"
		  "\"x\":1e9,\"shape\":[2],\"dtype\":\"U8\"}}", 2, 0, NULL },
		{ "{\"__metadata__\":{}}", 0, 0, NULL },
		{ "{\"__metadata___\":{\"dtype\":\"U8\",\"shape\":[1],"
		  "\"data_offsets\":[0,1]}}", 1, 0, NULL },
	};

	(void)state;
	for (size_t i = 0; i < CKB_ARRAY_LEN(cases); i++)
		st_check_case(&cases[i]);
}

static void tensors_come_in_the_order_of_their_bytes(void **state)
{
	static const char json[] =
		"{" ONE("z", "BF16", "[2,1]", "[8,12]") ","
		"\"__metadata__\":{\"b\":\"1\",\"a\":\"x\\u0000\\\"y\","
		"\"\":\"\xc3\xa9\"}," ONE("\\u0061\\/", "I64", "[1]", "[0,8]")
		"," ONE("e", "F32", "[3,0]", "[8,8]") "}";
	struct ckx_st st;
	struct ckpt_err err = { 0 };
	char *text;

	(void)state;
	assert_int_equal(st_parse(&st, json, strlen(json), 12, &text, &err),
			 0);
	assert_int_equal(st.tensor_count, 3);
	assert_int_equal(st.data_off, 8 + strlen(json));
	assert_int_equal(st.tensors[0].name_len, 2);
	assert_memory_equal(st.tensors[0].name, "a/", 2);
	assert_int_equal(st.tensors[0].dtype, CKPT_I64);
	assert_int_equal(st.tensors[1].ndim, 2);
	assert_int_equal(st.tensors[1].dim[0], 3);
	assert_int_equal(st.tensors[1].dim[1], 0);
	assert_memory_equal(st.tensors[2].name, "z", 1);
	assert_int_equal(st.tensors[2].begin, 8);
	assert_int_equal(st.tensors[2].end, 12);
	/* metadata keeps the order of the file */
	assert_true(st.has_metadata);
	assert_int_equal(st.pair_count, 3);
	assert_memory_equal(st.pairs[0].key, "b", 1);
	assert_int_equal(st.pairs[1].value_len, 4);
	assert_memory_equal(st.pairs[1].value, "x\0\"y", 4);
	assert_int_equal(st.pairs[2].key_len, 0);
	assert_memory_equal(st.pairs[2].value, "\xc3\xa9", 2);
	assert_ptr_equal(ckx_st_find(&st, "a/", 2), &st.tensors[0]);
	assert_ptr_equal(ckx_st_find(&st, "z", 1), &st.tensors[2]);
	assert_null(ckx_st_find(&st, "", 0));
	assert_null(ckx_st_find(&st, "zz", 2));
	ckx_st_fini(&st);
	free(text);
}

/* A name of @len bytes, each written as @unit, into a whole header. */
static int parse_named(const char *unit, size_t len, struct ckpt_err *err)
{
	struct ckb_buf json = { 0 };
	struct ckx_st st;
	char *text;
	int rc;

	ckb_buf_puts(&json, "{\"");
	for (size_t i = 0; i < len; i++)
		ckb_buf_puts(&json, unit);
	ckb_buf_puts(&json, "\":{\"dtype\":\"U8\",\"shape\":[1],"
		     "\"data_offsets\":[0,1]}}");
	rc = st_parse(&st, (char *)json.data, json.len, 1, &text, err);
	if (rc == 0) {
		assert_int_equal(st.tensors[0].name_len, len);
		ckx_st_fini(&st);
	}
	free(text);
	ckb_buf_fini(&json);
	return rc;
}

static void names_may_have_64_kib(void **state)
{
	static const char *const units[] = { "a", "\\u0061", "\\n" };
	struct ckpt_err err = { 0 };

	(void)state;
	for (size_t i = 0; i < CKB_ARRAY_LEN(units); i++) {
		assert_int_equal(parse_named(units[i], 60000, &err), 0);
		assert_int_equal(parse_named(units[i], 65536, &err), 0);
		assert_int_equal(parse_named(units[i], 65537, &err),
				 CKPT_ELIMIT);
		assert_non_null(strstr(err.message, "longer than 65536"));
	}
	assert_int_equal(parse_named("\\u0061", 1000000, &err), CKPT_ELIMIT);
}

static int parse_dims(size_t ndim, struct ckpt_err *err)
{
	struct ckb_buf json = { 0 };
	struct ckx_st st;
	char *text;
	int rc;

	ckb_buf_puts(&json, "{\"a\":{\"dtype\":\"U8\",\"shape\":[1");
	for (size_t i = 1; i < ndim; i++)
		ckb_buf_puts(&json, ",1");
	ckb_buf_puts(&json, "],\"data_offsets\":[0,1]}}");
	rc = st_parse(&st, (char *)json.data, json.len, 1, &text, err);
	if (rc == 0) {
		assert_int_equal(st.tensors[0].ndim, ndim);
		ckx_st_fini(&st);
	}
	free(text);
	ckb_buf_fini(&json);
	return rc;
}

static void shapes_may_have_64_dimensions(void **state)
{
	struct ckpt_err err = { 0 };

	(void)state;
	assert_int_equal(parse_dims(64, &err), 0);
	assert_int_equal(parse_dims(65, &err), CKPT_ELIMIT);
	assert_non_null(strstr(err.message, "65 dimensions; at most 64"));
	assert_int_equal(parse_dims(1000000, &err), CKPT_ELIMIT);
}

/* Cut anywhere, a good header is refused: nothing is read past its end. */
static void every_prefix_of_a_header_is_refused(void **state)
{
	static const char json[] =
		"{\"__metadata__\":{\"k\":\"\\ud83d\\ude00\"},"
		ONE("n\xc3\xa9", "F32", "[1,2]", "[0,8]") "}";
	char *text;
	struct ckx_st st;
	struct ckpt_err err;

	(void)state;
	for (size_t len = 0; len < strlen(json); len++) {
		assert_int_equal(st_parse(&st, json, len, 8, &text, &err),
				 CKPT_EFORMAT);
		free(text);
	}
	assert_int_equal(st_parse(&st, json, strlen(json), 8, &text, &err), 0);
	ckx_st_fini(&st);
	free(text);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(wrong_infos_say_what_and_where),
		cmocka_unit_test(what_the_library_accepts_is_accepted),
		cmocka_unit_test(tensors_come_in_the_order_of_their_bytes),
		cmocka_unit_test(names_may_have_64_kib),
		cmocka_unit_test(shapes_may_have_64_dimensions),
		cmocka_unit_test(every_prefix_of_a_header_is_refused),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
