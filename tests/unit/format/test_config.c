/* SPDX-License-Identifier: Apache-2.0 */
/* test_config.c - ckptfs.json: versions, features, damage. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>
#include <stdio.h>
#include <string.h>

#include "format/config.h"

#define UUID "00112233-4455-6677-8899-aabbccddeeff"

static int decode(const char *version, const char *compat, const char *ro,
		  const char *incompat, struct ckf_config *out,
		  struct ckpt_err *err)
{
	char text[600];

	snprintf(text, sizeof(text), "{\"format\": \"ckptfs\", \"version\": "
		 "%s, \"uuid\": \"" UUID "\", \"digest\": \"sha256\", "
		 "\"tile_rule\": 1, \"compat\": %s, \"ro_compat\": %s, "
		 "\"incompat\": %s}", version, compat, ro, incompat);
	return ckf_config_decode(text, strlen(text), out, err);
}

static void what_encode_writes_decode_reads(void **state)
{
	struct ckf_config c = { .version = 1, .tile_rule = 1,
				.uuid = { 9, 8, 7 } }, out;
	CKB_BUF struct ckb_buf b = { 0 };

	(void)state;
	assert_int_equal(ckf_config_encode(&c, &b), 0);
	assert_int_equal(ckf_config_decode((char *)b.data, b.len, &out, NULL),
			 0);
	assert_memory_equal(out.uuid, c.uuid, 16);
	assert_false(out.ro_only);
}

static void the_text_is_the_formats(void **state)
{
	struct ckf_config c = { .version = 1, .tile_rule = 1 };
	CKB_BUF struct ckb_buf b = { 0 };

	(void)state;
	memcpy(c.uuid, "\x00\x11\x22\x33\x44\x55\x66\x77"
	       "\x88\x99\xaa\xbb\xcc\xdd\xee\xff", 16);
	assert_int_equal(ckf_config_encode(&c, &b), 0);
	assert_string_equal((char *)b.data,
		"{\n  \"format\": \"ckptfs\",\n  \"version\": 1,\n"
		"  \"uuid\": \"" UUID "\",\n  \"digest\": \"sha256\",\n"
		"  \"tile_rule\": 1,\n  \"compat\": [],\n"
		"  \"ro_compat\": [],\n  \"incompat\": []\n}\n");
	/* ... and cut anywhere it is none (its last byte is a new line) */
	for (size_t n = 0; n + 1 < b.len; n++)
		assert_int_equal(ckf_config_decode((char *)b.data, n, &c, NULL),
				 CKPT_ECORRUPT);
}

/* Values of the wrong kind, in a text that is right but for them. */
static void wrong_values_are_told(void **state)
{
	static const struct {
		const char *from, *to;
		int code;
	} cases[] = {
		{ "\"ckptfs\"", "\"Ckptfs\"", CKPT_ECORRUPT },
		{ "\"ckptfs\"", "7", CKPT_ECORRUPT },
		{ "version\": 1", "version\": \"1\"", CKPT_ECORRUPT },
		{ "version\": 1", "version\": 1.0", CKPT_ECORRUPT },
		{ "version\": 1", "version\": true", CKPT_ECORRUPT },
		{ "version\": 1", "version\": -1", CKPT_ECORRUPT },
		{ "version\": 1", "version\": 99999999999999999999",
		  CKPT_ECORRUPT },
		{ "version\": 1", "version\": 4294967297", CKPT_EVERSION },
		{ "-ccddeeff0011", "-CCDDEEFF0011", CKPT_ECORRUPT },
		{ "-ccddeeff0011", "", CKPT_ECORRUPT },
		{ "-ccddeeff0011", "-ccddeeff00112", CKPT_ECORRUPT },
		{ "-ccddeeff0011", "-ccddeeff001g", CKPT_ECORRUPT },
		{ "\"sha256\"", "\"blake3\"", CKPT_EVERSION },
		{ "tile_rule\": 1", "tile_rule\": 2", CKPT_EVERSION },
		{ "\"compat\": []", "\"compat\": {}", CKPT_ECORRUPT },
		{ "\"ro_compat\": []", "\"ro_compat\": [[]]",
		  CKPT_ECORRUPT },
		{ "\"incompat\": []", "\"incompat\": null", CKPT_ECORRUPT },
		{ "\"incompat\": []", "\"incompat\": [\"a\\n\"]",
		  CKPT_EVERSION },
		{ "\"incompat\": []}", "\"incompat\": []} x",
		  CKPT_ECORRUPT },
		{ "\"incompat\": []}", "\"incompat\": [],}", CKPT_ECORRUPT },
		{ "\"compat\": []", "\"compat\": [], \"compat\": []",
		  CKPT_ECORRUPT },
		/* keys that nobody knows say nothing */
		{ "\"compat\": []", "\"compat\": [], \"x\": {\"y\": 1}", 0 },
	};
	static const char right[] =
		"{\"format\": \"ckptfs\", \"version\": 1, \"uuid\": "
		"\"00112233-4455-6677-8899-ccddeeff0011\", \"digest\": "
		"\"sha256\", \"tile_rule\": 1, \"compat\": [], "
		"\"ro_compat\": [], \"incompat\": []}";
	struct ckf_config out;

	(void)state;
	assert_int_equal(ckf_config_decode(right, strlen(right), &out, NULL),
			 0);
	for (size_t i = 0; i < CKB_ARRAY_LEN(cases); i++) {
		const char *at = strstr(right, cases[i].from);
		struct ckpt_err err = { 0 };
		char text[600];

		assert_non_null(at);
		snprintf(text, sizeof(text), "%.*s%s%s", (int)(at - right),
			 right, cases[i].to, at + strlen(cases[i].from));
		int rc = ckf_config_decode(text, strlen(text), &out, &err);

		if (rc != cases[i].code)
			fail_msg("case %zu: %d: %s", i, rc, err.message);
		assert_null(strchr(err.message, '\n'));
		assert_true(rc == 0 || strlen(err.message) > 10);
	}
}

static void features_decide_what_may_be_done(void **state)
{
	struct ckf_config out;
	struct ckpt_err err = { 0 };

	(void)state;
	assert_int_equal(decode("1", "[\"x\"]", "[]", "[]", &out, NULL), 0);
	assert_false(out.ro_only);
	assert_int_equal(decode("1", "[]", "[\"x\"]", "[]", &out, NULL), 0);
	assert_true(out.ro_only);
	assert_int_equal(decode("1", "[]", "[]", "[\"shiny\"]", &out, &err),
			 CKPT_EVERSION);
	assert_non_null(strstr(err.message, "'shiny'"));
	assert_int_equal(decode("2", "[]", "[]", "[]", &out, NULL),
			 CKPT_EVERSION);
}

static void damage_is_told(void **state)
{
	static const char *const bad[] = {
		"", "{", "[]", "{}", "{\"format\": \"other\"}",
		"{\"format\": \"ckptfs\", \"format\": \"ckptfs\"}",
		("{\"format\": \"ckptfs\", \"version\": 1, \"compat\": [], "
		 "\"ro_compat\": [], \"incompat\": []}"), /* no uuid */
	};
	struct ckf_config out;

	(void)state;
	for (size_t i = 0; i < CKB_ARRAY_LEN(bad); i++)
		assert_int_equal(ckf_config_decode(bad[i], strlen(bad[i]),
						   &out, NULL), CKPT_ECORRUPT);
	assert_int_equal(decode("0", "[]", "[]", "[]", &out, NULL),
			 CKPT_ECORRUPT);
	assert_int_equal(decode("1", "[1]", "[]", "[]", &out, NULL),
			 CKPT_ECORRUPT);
}

static void users_json_must_be_an_object(void **state)
{
	struct ckpt_err err = { 0 };

	(void)state;
	assert_int_equal(ckf_json_object(NULL, "x", NULL), 0);
	assert_int_equal(ckf_json_object("{\"a\": 1}", "x", NULL), 0);
	assert_int_equal(ckf_json_object("[1]", "the metadata", &err),
			 CKPT_EINVAL);
	assert_non_null(strstr(err.message, "the metadata"));
	assert_int_equal(ckf_json_object("{\"a\":1,\"a\":2}", "x", NULL),
			 CKPT_EINVAL);
	assert_int_equal(ckf_json_object("{", "x", NULL), CKPT_EINVAL);
}

static void strings_are_escaped(void **state)
{
	CKB_BUF struct ckb_buf b = { 0 };

	(void)state;
	ckf_json_string(&b, "a\"\\\n\0é", 7);
	assert_string_equal((char *)b.data, "\"a\\\"\\\\\\u000a\\u0000é\"");
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(what_encode_writes_decode_reads),
		cmocka_unit_test(the_text_is_the_formats),
		cmocka_unit_test(wrong_values_are_told),
		cmocka_unit_test(features_decide_what_may_be_done),
		cmocka_unit_test(damage_is_told),
		cmocka_unit_test(users_json_must_be_an_object),
		cmocka_unit_test(strings_are_escaped),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
