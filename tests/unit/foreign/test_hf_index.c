/* SPDX-License-Identifier: Apache-2.0 */
/* test_hf_index.c - indexes of Hugging Face folders, good and bad. */
#include "st_case.h"

#include <stdlib.h>

#include "foreign/hf_index.h"

/* In memory of just its length: ASan sees a read past its end. */
static int parse(struct ckx_hf_index *ix, const char *text, char **out,
		 struct ckpt_err *err)
{
	size_t len = strlen(text);

	*out = malloc(len ? len : 1);
	assert_non_null(*out);
	memcpy(*out, text, len);
	return ckx_hf_index_parse(ix, *out, len, err);
}

static void check_entry(const struct ckx_hf_entry *e, const char *name,
			size_t name_len, const char *file)
{
	assert_int_equal(e->name_len, name_len);
	assert_memory_equal(e->name, name, name_len);
	assert_int_equal(e->file_len, strlen(file));
	assert_memory_equal(e->file, file, strlen(file));
}

static void entries_come_sorted_and_decoded(void **state)
{
	static const char text[] =
		" {\"metadata\": {\"total_size\": \"wrong\", \"x\": [{}]},\n"
		"\"weight_map\": {\"b\": \"s\\u0032.safetensors\", \"a.10\": \"d/s1\","
		"\"a\": \"s\\u00e9\", \"n\\u0000l\": \"..s\", \"\": \"s1\","
		"\"a.1\": \"s1\"}, \"more\": null} ";
	struct ckpt_err err = { 0 };
	struct ckx_hf_index ix;
	char *copy;

	(void)state;
	if (parse(&ix, text, &copy, &err) < 0)
		fail_msg("%s", err.message);
	assert_int_equal(ix.count, 6);
	check_entry(&ix.entries[0], "", 0, "s1");
	check_entry(&ix.entries[1], "a", 1, "s\xc3\xa9");
	check_entry(&ix.entries[2], "a.1", 3, "s1");
	check_entry(&ix.entries[3], "a.10", 4, "d/s1");
	check_entry(&ix.entries[4], "b", 1, "s2.safetensors");
	check_entry(&ix.entries[5], "n\0l", 3, "..s");
	ckx_hf_index_fini(&ix);
	free(copy);
}

static void bad_indexes_are_named(void **state)
{
	static const struct {
		const char *text, *says;
	} cases[] = {
		{ "", "JSON error" },
		{ "null", "no object" },
		{ "{}", "no weight_map" },
		{ "{\"weight_map\": {}", "JSON error" },
		{ "{\"weight_map\": {}} x", "text after the end" },
		{ "{\"weight_map\": {},}", "JSON error" },
		{ "{\"weight_map\": {}, \"weight_m\\u0061p\": {}}",
		  "two keys" },
		{ "{\"weight_map\": \"x\"}", "no JSON object" },
		{ "{\"weight_map\": {\"a\": null}}", "no file name" },
		{ "{\"weight_map\": {\"a\": {\"b\": \"c\"}}}",
		  "no file name" },
		{ "{\"weight_map\": {\"a\": \"x\", \"a\": \"x\"}}",
		  "tensor 'a' twice" },
		{ "{\"weight_map\": {\"a\": \"..\"}}", "'..', which is no" },
		{ "{\"weight_map\": {\"a\": \"./x\"}}", "no path inside" },
		{ "{\"weight_map\": {\"a\": \"x/\"}}", "no path inside" },
		{ "{\"weight_map\": {\"a\": \"x//y\"}}", "no path inside" },
		{ "{\"weight_map\": {\"a\": \"/x\"}}", "no path inside" },
		{ "{\"weight_map\": {\"a\": \"\\u002e./x\"}}",
		  "no path inside" },
	};

	(void)state;
	for (size_t i = 0; i < CKB_ARRAY_LEN(cases); i++) {
		struct ckpt_err err = { 0 };
		struct ckx_hf_index ix;
		char *copy;
		int rc = parse(&ix, cases[i].text, &copy, &err);

		if (rc != CKPT_EFORMAT || !strstr(err.message, cases[i].says))
			fail_msg("%s: %d '%s'", cases[i].text, rc,
				 err.message);
		assert_null(ix.entries); /* nothing to free */
		free(copy);
	}
}

static void names_have_a_bound(void **state)
{
	size_t len = (64u << 10) + 1;
	char *text = malloc(len + 64), *copy;
	struct ckpt_err err = { 0 };
	struct ckx_hf_index ix;

	(void)state;
	assert_non_null(text);
	strcpy(text, "{\"weight_map\":{\"");
	memset(text + 16, 'n', len);
	strcpy(text + 16 + len, "\":\"x\"}}");
	assert_int_equal(parse(&ix, text, &copy, &err), CKPT_ELIMIT);
	free(copy);
	memmove(text + 16, text + 17, strlen(text + 17) + 1);
	assert_int_equal(parse(&ix, text, &copy, &err), 0);
	ckx_hf_index_fini(&ix);
	free(copy);
	free(text);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(entries_come_sorted_and_decoded),
		cmocka_unit_test(bad_indexes_are_named),
		cmocka_unit_test(names_have_a_bound),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
