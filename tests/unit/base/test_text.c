/* SPDX-License-Identifier: Apache-2.0 */
/* test_text.c - strict UTF-8, hex and uuids. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>
#include <string.h>

#include "base/check.h"
#include "base/text.h"

/* Python's '...'.encode() by its definition. */
static size_t encode(char *dst, uint32_t c)
{
	if (c < 0x80) {
		dst[0] = (char)c;
		return 1;
	}
	size_t n = c < 0x800 ? 2 : c < 0x10000 ? 3 : 4;

	for (size_t i = n; i-- > 1; c >>= 6)
		dst[i] = (char)(0x80 | (c & 0x3f));
	dst[0] = (char)(0xf00 >> n | c);
	return n;
}

static void every_character_is_utf8_and_no_surrogate(void **state)
{
	char text[4];

	(void)state;
	for (uint32_t c = 0; c <= 0x110fff; c++) {
		size_t n = encode(text, c);
		bool good = c <= 0x10ffff && (c < 0xd800 || c > 0xdfff);

		assert_int_equal(ckb_utf8_char(text, n), good ? n : 0);
		assert_int_equal(ckb_utf8_ok(text, n), good);
		assert_int_equal(ckb_utf8_ok(text, n - 1), n == 1);
	}
}

static void characters_come_back(void **state)
{
	char text[4];

	(void)state;
	for (uint32_t c = 0; c <= 0x10ffff; c += c < 0x3000 ? 1 : 31)
		if (c < 0xd800 || c > 0xdfff)
			assert_int_equal(ckb_utf8_value(text, encode(text, c)),
					 c);
}

/* Of the Unicode Character Database. */
static void hidden_characters_are_known(void **state)
{
	static const uint32_t hidden[] = {
		0, '\n', 0x1b, 0x7f, 0x85, 0x9b, 0xad, 0x34f, 0x61c, 0x115f,
		0x180e, 0x200b, 0x200d, 0x200e, 0x200f, 0x2028, 0x2029, 0x202a,
		0x202e, 0x2060, 0x2066, 0x2069, 0x3164, 0xfe0f, 0xfeff, 0xffa0,
		0xfff9, 0x1d173, 0xe0001, 0xe007f, 0xe01ef,
	};
	static const uint32_t visible[] = {
		' ', 'a', '~', 0xa0, 0xa1, 0xac, 0xae, 0xe9, 0x34e, 0x350,
		0x5d0, 0x600, 0x61b, 0x61d, 0x1100, 0x200a, 0x2010, 0x202f,
		0x205f, 0x2070, 0x3042, 0x65e5, 0xfdff, 0xfe10, 0xfffc, 0xfffd,
		0x1d172, 0x1f642, 0x20000,
	};

	(void)state;
	for (size_t i = 0; i < CKB_ARRAY_LEN(hidden); i++)
		assert_true(ckb_utf8_hidden(hidden[i]));
	for (size_t i = 0; i < CKB_ARRAY_LEN(visible); i++)
		assert_false(ckb_utf8_hidden(visible[i]));
}

/* Two bytes: good are two ASCII characters and C2..DF with 80..BF. */
static void every_pair_of_bytes_is_judged(void **state)
{
	(void)state;
	for (int a = 0; a < 256; a++)
		for (int b = 0; b < 256; b++) {
			const char text[] = { (char)a, (char)b };
			bool good = (a < 128 && b < 128) ||
				    (a >= 0xc2 && a <= 0xdf && b >= 0x80 &&
				     b <= 0xbf);

			assert_int_equal(ckb_utf8_ok(text, 2), good);
		}
}

static void overlong_forms_are_refused(void **state)
{
	const char *const bad[] = {
		"\xc0\x80", "\xc1\xbf", "\xe0\x80\x80", "\xe0\x9f\xbf",
		"\xf0\x80\x80\x80", "\xf0\x8f\xbf\xbf", "\xf5\x80\x80\x80",
		"\xf8\x88\x80\x80\x80", "\xfe", "\x80", "a\xbf",
		"\xe2\x82", "\xf0\x9f\x98", "\xe2\x28\xa1",
	};

	(void)state;
	for (size_t i = 0; i < CKB_ARRAY_LEN(bad); i++)
		assert_false(ckb_utf8_ok(bad[i], strlen(bad[i])));
	assert_true(ckb_utf8_ok("", 0));
	assert_int_equal(ckb_utf8_char("", 0), 0);
}

static void hex_goes_there_and_back(void **state)
{
	uint8_t all[256], back[256];
	char text[513];

	(void)state;
	for (int i = 0; i < 256; i++)
		all[i] = (uint8_t)i;
	ckb_hex(text, all, 256);
	assert_int_equal(strlen(text), 512);
	assert_memory_equal(text, "000102030405060708090a0b0c0d0e0f10", 34);
	assert_true(ckb_unhex(back, text, 256));
	assert_memory_equal(back, all, 256);
	assert_false(ckb_unhex(back, "0g", 1));
	assert_false(ckb_unhex(back, "g0", 1));
	assert_false(ckb_unhex(back, "AB", 1)); /* one form only */
	assert_false(ckb_unhex(back, "0", 1));  /* ends too early */
	assert_true(ckb_unhex(back, "", 0));
}

static void uuids_have_one_text(void **state)
{
	const uint8_t uuid[16] = { 0x9e, 0xe7, 0xe1, 0x04, 0x65, 0xe0, 0x47,
				   0x07, 0x86, 0xd3, 0xee, 0x5e, 0xef, 0x27,
				   0x7a, 0xda };
	const char *good = "9ee7e104-65e0-4707-86d3-ee5eef277ada";
	const char *const bad[] = {
		"", "9ee7e104", "9ee7e104-65e0-4707-86d3-ee5eef277ad",
		"9ee7e104-65e0-4707-86d3-ee5eef277adaa",
		"9EE7E104-65e0-4707-86d3-ee5eef277ada",
		"9ee7e10-465e0-4707-86d3-ee5eef277ada",
		"9ee7e104_65e0-4707-86d3-ee5eef277ada",
		"9ee7e104-65e0-4707-86d3-ee5eef277adg",
		"9ee7e104-65e0-4707-86d3-ee5eef277ada\n",
	};
	char text[CKB_UUID_TEXT_BYTES];
	uint8_t back[16];

	(void)state;
	ckb_uuid_text(text, uuid);
	assert_string_equal(text, good);
	assert_true(ckb_uuid_parse(back, text));
	assert_memory_equal(back, uuid, 16);
	for (size_t i = 0; i < CKB_ARRAY_LEN(bad); i++)
		assert_false(ckb_uuid_parse(back, bad[i]));
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(every_character_is_utf8_and_no_surrogate),
		cmocka_unit_test(characters_come_back),
		cmocka_unit_test(hidden_characters_are_known),
		cmocka_unit_test(every_pair_of_bytes_is_judged),
		cmocka_unit_test(overlong_forms_are_refused),
		cmocka_unit_test(hex_goes_there_and_back),
		cmocka_unit_test(uuids_have_one_text),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
