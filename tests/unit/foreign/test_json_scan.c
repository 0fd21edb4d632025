/* SPDX-License-Identifier: Apache-2.0 */
/*
 * test_json_scan.c - the scanner against a table of texts, good and bad, and
 * the rules of RFC 8259 and serde_json that they stand for.
 */
#include "st_case.h"

#include <math.h>
#include <stdlib.h>

#include "foreign/json_scan.h"

/* Tokens of @text as letters; a string's decoded bytes follow it in <>. */
static int scan(const char *text, size_t len, struct ckb_buf *out,
		struct ckpt_err *err)
{
	static const char letters[] = ".{}[]ksunTFN";
	char *copy = malloc(len ? len : 1), *plain;
	struct ckx_scan s;
	enum ckx_token token = CKX_NULL;
	int rc = 0;

	assert_non_null(copy);
	memcpy(copy, text, len);
	ckx_scan_init(&s, copy, len, "");
	while (rc == 0 && token != CKX_END) {
		rc = ckx_scan_next(&s, &token, err);
		if (rc < 0)
			break;
		ckb_buf_putc(out, letters[token]);
		if (token == CKX_UINT)
			ckb_buf_printf(out, "%ju", (uintmax_t)s.number);
		if (token != CKX_KEY && token != CKX_STRING)
			continue;
		plain = malloc(s.str_len + 1);
		assert_non_null(plain);
		size_t n = ckx_scan_decode(&s, plain);

		assert_true(n <= s.str_len && n >= s.str_len / 6);
		plain[n] = '\0';
		assert_true(memchr(plain, 0, n) || ckx_scan_is(&s, plain) ||
			    s.str_len > 100);
		ckb_buf_putc(out, '<');
		ckb_buf_put(out, plain, n);
		ckb_buf_putc(out, '>');
		free(plain);
	}
	free(copy);
	return rc;
}

static void good_texts_give_their_tokens(void **state)
{
	static const struct {
		const char *text, *tokens;
	} cases[] = {
		{ "{}", "{}." },
		{ " \t\r\n[ ] \n", "[]." },
		{ "\"a\"", "s<a>." },
		{ "null", "N." },
		{ "[true,false,null]", "[TFN]." },
		{ "{\"a\":1,\"b\":[2,{\"c\":{}}]}",
		  "{k<a>u1k<b>[u2{k<c>{}}]}." },
		{ "[0,18446744073709551615]", "[u0u18446744073709551615]." },
		/* no unsigned integer of 64 bits */
		{ "[-0,-1,18446744073709551616,1.0,1e0,0.5E-2,1e+2]",
		  "[nnnnnnn]." },
		{ "[1e307,0e999999999999,0.0e400,1e-99999,0.001e310]",
		  "[nnnnn]." },
		{ "\"\\\"\\\\\\/\\b\\f\\n\\r\\t\"",
		  "s<\"\\/\b\f\n\r\t>." },
		{ "\"\\u0041\\u00e9\\u20ac\\ud83d\\ude00\\uD83D\\uDE00z\"",
		  "s<A\xc3\xa9\xe2\x82\xac\xf0\x9f\x98\x80"
		  "\xf0\x9f\x98\x80z>." },
		{ "\"\xc3\xa9\xf4\x8f\xbf\xbf\x7f\"",
		  "s<\xc3\xa9\xf4\x8f\xbf\xbf\x7f>." },
		{ "{ \"a\" : 1 , \"a\" : 2 }", "{k<a>u1k<a>u2}." },
	};

	(void)state;
	for (size_t i = 0; i < CKB_ARRAY_LEN(cases); i++) {
		struct ckb_buf out = { 0 };
		struct ckpt_err err = { 0 };
		int rc = scan(cases[i].text, strlen(cases[i].text), &out,
			      &err);

		if (rc < 0)
			print_error("%s: %s\n", cases[i].text, err.message);
		assert_int_equal(rc, 0);
		assert_string_equal((char *)out.data, cases[i].tokens);
		ckb_buf_fini(&out);
	}
}

static void bad_texts_name_the_byte(void **state)
{
	static const struct {
		const char *text;
		size_t at;
		const char *says;
	} cases[] = {
		{ "", 0, "ends in the middle" },
		{ "  ", 2, "ends in the middle" },
		{ "{", 1, "ends in the middle" },
		{ "[1", 2, "ends in the middle" },
		{ "\"abc", 4, "ends in the middle" },
		{ "{\"a\"", 4, "ends in the middle" },
		{ "{\"a\":", 5, "ends in the middle" },
		{ "{} {}", 3, "after the end" },
		{ "{},", 2, "after the end" },
		{ "[1,]", 3, "value" },
		{ "[,1]", 1, "value" },
		{ "[1 2]", 3, "',' or ']'" },
		{ "[1}", 2, "',' or ']'" },
		{ "{\"a\":1]", 6, "',' or '}'" },
		{ "{\"a\":1,}", 7, "key in double quotes" },
		{ "{,}", 1, "key in double quotes" },
		{ "{'a':1}", 1, "key in double quotes" },
		{ "{1:1}", 1, "key in double quotes" },
		{ "{\"a\" 1}", 5, "':'" },
		{ "{\"a\":}", 5, "value" },
		{ "]", 0, "value" },
		{ "/*x*/1", 0, "value" },
		{ "nul", 0, "value" },
		{ "True", 0, "value" },
		{ "NaN", 0, "value" },
		{ "+1", 0, "value" },
		{ ".5", 0, "value" },
		{ "[01]", 1, "leading zero" },
		{ "[-01]", 2, "leading zero" },
		{ "[1.]", 3, "after a number's point" },
		{ "[1e]", 3, "exponent" },
		{ "[1e+]", 4, "exponent" },
		{ "[-]", 2, "digit is missing" },
		{ "[1e308]", 1, "out of range" },
		{ "[-1e400]", 1, "out of range" },
		{ "[0.01e311]", 1, "out of range" },
		{ "\"\x01\"", 1, "control character" },
		{ "\"\n\"", 1, "control character" },
		{ "\"\\x\"", 1, "escape" },
		{ "\"\\u12g4\"", 1, "escape" },
		{ "\"\\ud800\"", 1, "escape" },
		{ "\"\\ud800x\"", 1, "escape" },
		{ "\"\\ud800\\u0041\"", 1, "escape" },
		{ "\"\\udc00\"", 1, "escape" },
		{ "\"\xc0\x80\"", 1, "UTF-8" },
		{ "\"\xed\xa0\x80\"", 1, "UTF-8" },
		{ "\"a\xf4\x90\x80\x80\"", 2, "UTF-8" },
		{ "\"a\xe2\x82\"", 2, "UTF-8" },
		{ "\xef\xbb\xbf{}", 0, "value" },
		{ "\xc2\xa0{}", 0, "value" },
	};

	(void)state;
	for (size_t i = 0; i < CKB_ARRAY_LEN(cases); i++) {
		struct ckb_buf out = { 0 };
		struct ckpt_err err = { 0 };
		char at[64];
		int rc = scan(cases[i].text, strlen(cases[i].text), &out,
			      &err);

		snprintf(at, sizeof(at), "JSON error at byte %zu: ",
			 cases[i].at);
		if (rc != CKPT_EFORMAT || !strstr(err.message, cases[i].says) ||
		    strncmp(err.message, at, strlen(at)) != 0)
			fail_msg("'%s' gave %d '%s', not '%s...%s...'",
				 cases[i].text, rc, err.message, at,
				 cases[i].says);
		ckb_buf_fini(&out);
	}
}

static void a_nul_byte_is_no_space(void **state)
{
	struct ckb_buf out = { 0 };
	struct ckpt_err err = { 0 };

	(void)state;
	assert_int_equal(scan("{}\0", 3, &out, &err), CKPT_EFORMAT);
	assert_non_null(strstr(err.message, "byte 2"));
	assert_int_equal(scan("\"\0\"", 3, &out, &err), CKPT_EFORMAT);
	assert_non_null(strstr(err.message, "control character"));
	ckb_buf_fini(&out);
}

static void depth_is_bounded_at_127(void **state)
{
	struct ckb_buf text = { 0 }, out = { 0 };
	struct ckpt_err err = { 0 };

	(void)state;
	for (int i = 0; i < 127; i++)
		ckb_buf_putc(&text, '[');
	for (int i = 0; i < 127; i++)
		ckb_buf_putc(&text, ']');
	assert_int_equal(scan((char *)text.data, text.len, &out, &err), 0);
	ckb_buf_fini(&text);
	for (int i = 0; i < 100000; i++)
		ckb_buf_putc(&text, '[');
	assert_int_equal(scan((char *)text.data, text.len, &out, &err),
			 CKPT_EFORMAT);
	assert_non_null(strstr(err.message, "byte 127: nested deeper"));
	ckb_buf_fini(&text);
	ckb_buf_fini(&out);
}

static void skip_passes_over_one_value(void **state)
{
	static const char text[] = "[{\"a\":[1,{\"b\":[]}],\"c\":{}},"
				   "\"x\",[[]],7]";
	struct ckx_scan s;
	enum ckx_token token;

	(void)state;
	ckx_scan_init(&s, text, strlen(text), "");
	assert_int_equal(ckx_scan_next(&s, &token, NULL), 0);
	for (int i = 0; i < 3; i++) {
		assert_int_equal(ckx_scan_next(&s, &token, NULL), 0);
		assert_int_equal(ckx_scan_skip(&s, token, NULL), 0);
	}
	assert_int_equal(ckx_scan_next(&s, &token, NULL), 0);
	assert_int_equal(token, CKX_UINT);
	assert_int_equal(s.number, 7);
}

/* Every number text over a small alphabet: strtod agrees on its range. */
static void number_ranges_agree_with_strtod(void **state)
{
	static const char *const wholes[] = { "0", "1", "9", "10", "123456" };
	static const char *const fracs[] = { "", ".0", ".5", ".0001" };
	static const char *const exps[] = { "", "e0", "e5", "e-400", "e301",
					    "e304", "e306", "e309", "e400" };

	(void)state;
	for (size_t w = 0; w < CKB_ARRAY_LEN(wholes); w++)
	for (size_t f = 0; f < CKB_ARRAY_LEN(fracs); f++)
	for (size_t e = 0; e < CKB_ARRAY_LEN(exps); e++) {
		char text[64];
		struct ckb_buf out = { 0 };
		double v;

		snprintf(text, sizeof(text), "%s%s%s", wholes[w], fracs[f],
			 exps[e]);
		v = strtod(text, NULL);
		assert_int_equal(scan(text, strlen(text), &out, NULL),
				 v >= 1e308 ? CKPT_EFORMAT : 0);
		ckb_buf_fini(&out);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(good_texts_give_their_tokens),
		cmocka_unit_test(bad_texts_name_the_byte),
		cmocka_unit_test(a_nul_byte_is_no_space),
		cmocka_unit_test(depth_is_bounded_at_127),
		cmocka_unit_test(skip_passes_over_one_value),
		cmocka_unit_test(number_ranges_agree_with_strtod),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
