/* SPDX-License-Identifier: Apache-2.0 */
/* test_name.c - names as paths: every rule, and the hostile fixture. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "fixtures.h"
#include "tree/tree.h"

struct named {
	const char *name;
	size_t len;
	const char *separator, *path;
};

static void every_rule_holds(void **state)
{
	static const struct named cases[] = {
		{ "a.b.c", 5, ".", "a/b/c" },
		{ "a.b", 3, "", "a.b" },
		{ "a/b", 3, ".", "a%2Fb" },
		{ "a/b.c", 5, "/", "a/b.c" },
		{ "", 0, ".", "%" },
		{ ".", 1, ".", "%/%" },
		{ "a..b", 4, ".", "a/%/b" },
		{ ".", 1, "/", "%2E" },
		{ "..", 2, "/", "%2E." },
		{ ".hidden", 7, "/", "%2Ehidden" },
		{ "x.npy/y", 7, "/", "x%2Enpy/y" },
		{ "x.txt/y.txt", 11, "/", "x%2Etxt/y.txt" },
		{ "m.safetensors/y", 15, "/", "m%2Esafetensors/y" },
		{ "100%", 4, ".", "100%25" },
		{ "@as", 3, ".", "%40as" },
		{ "nul\0x", 5, ".", "nul%00x" },
		{ "\n\x7f", 2, ".", "%0A%7F" },
		{ "\xff", 1, ".", "%FF" },
		{ "é日", 5, ".", "é日" },
	};

	(void)state;
	for (size_t i = 0; i < CKB_ARRAY_LEN(cases); i++) {
		CKB_BUF struct ckb_buf b = { 0 };
		bool cut = true;

		ckv_tensor_path(&b, cases[i].name, cases[i].len,
				cases[i].separator, 4, &cut);
		assert_string_equal((char *)b.data, cases[i].path);
		assert_false(cut);
	}
}

/* The digest is `printf %s NAME | sha256sum | head -c 32`. */
static void long_components_end_in_a_digest(void **state)
{
	CKB_BUF struct ckb_buf b = { 0 };
	char name[400];
	bool cut = false;

	(void)state;
	memset(name, 'n', sizeof(name));
	ckv_escape(&b, name, 251, false, 4, &cut);
	assert_int_equal(b.len, 251);
	assert_false(cut);
	b.len = 0;
	ckv_escape(&b, name, 300, false, 4, &cut);
	assert_true(cut);
	assert_int_equal(b.len, 251);
	assert_memory_equal(b.data + 217, "%x", 2);
	assert_string_equal((char *)b.data + 219,
			    "230b077491957fb486227d8d66cc84eb");
}

static int by_text(const void *a, const void *b)
{
	return strcmp(*(char *const *)a, *(char *const *)b);
}

/* All hostile names at once: distinct, legal, never '.' or '..'. */
static void hostile_names_are_distinct_and_legal(void **state)
{
	char file[600];
	size_t n;

	(void)state;
	snprintf(file, sizeof(file), "%s/safetensors/names/expected.tsv",
		 fixtures_path());
	struct fixture_row *rows = fixtures_rows(file, &n);
	char **paths = calloc(n + 1, sizeof(*paths));

	assert_true(n > 60);
	for (size_t i = 0; i < n; i++) {
		struct ckb_buf b = { 0 };
		bool cut;

		ckv_tensor_path(&b, rows[i].name, rows[i].name_len, ".", 4,
				&cut);
		paths[i] = (char *)b.data;
		CKB_FREE char *copy = strdup(paths[i]);
		char *save = NULL;

		for (char *c = strtok_r(copy, "/", &save); c;
		     c = strtok_r(NULL, "/", &save)) {
			assert_true(strlen(c) <= 255);
			assert_true(c[0] != '.');
		}
		assert_null(strstr(paths[i], "//"));
	}
	qsort(paths, n, sizeof(*paths), by_text);
	for (size_t i = 1; i < n; i++)
		assert_string_not_equal(paths[i - 1], paths[i]);
	for (size_t i = 0; i < n; i++)
		free(paths[i]);
	free(paths);
	fixtures_free(rows, n);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(every_rule_holds),
		cmocka_unit_test(long_components_end_in_a_digest),
		cmocka_unit_test(hostile_names_are_distinct_and_legal),
	};

	fixtures_need();
	return cmocka_run_group_tests(tests, NULL, NULL);
}
