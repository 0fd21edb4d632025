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

#include "base/text.h"
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
		{ "é", 2, ".", "é" },       /* composed */
		{ "e\xcc\x81", 3, ".", "e\xcc\x81" }, /* decomposed */
		{ "\xc3", 1, ".", "%C3" },   /* half a character */
		{ "\xed\xa0\x80", 3, ".", "%ED%A0%80" }, /* a surrogate */
		{ "\xc0\xaf", 2, ".", "%C0%AF" },     /* '/', too long */
		{ "a.npy.b", 7, ".", "a/npy/b" },
		{ "a.npy", 5, "/", "a.npy" },
		{ ".npy/x", 6, "/", "%2Enpy/x" },
		{ "..npy/x", 7, "/", "%2E%2Enpy/x" },
		{ "a%2Enpy/x", 9, "/", "a%252Enpy/x" },
		{ "a.", 2, ".", "a/%" },
		{ "a.", 2, "/", "a." },
		{ "a//b", 4, "/", "a/%/b" },
		{ "/", 1, "/", "%/%" },
		{ "%", 1, ".", "%25" },
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

/* Escapes end a component's form: the name back from the path. */
static void unescape(struct ckb_buf *out, const char *path,
		     const char *separator)
{
	static const char digits[] = "0123456789ABCDEF";

	for (; *path; path++) {
		if (*path == '/') {
			ckb_buf_puts(out, separator);
		} else if (*path != '%') {
			ckb_buf_putc(out, *path);
		} else if (path[1] && path[1] != '/') {
			const char *high = strchr(digits, path[1]);
			const char *low = strchr(digits, path[2]);

			assert_true(high && low && path[2]);
			ckb_buf_putc(out, (char)((high - digits) * 16 +
						 (low - digits)));
			path += 2;
		} /* a single '%': nothing */
	}
}

static void names_come_back_from_paths(void **state)
{
	static const char *const separators[] = { ".", "/", "" };
	char file[600];
	size_t n, long_ones = 0;

	(void)state;
	snprintf(file, sizeof(file), "%s/safetensors/names/expected.tsv",
		 fixtures_path());
	struct fixture_row *rows = fixtures_rows(file, &n);

	for (size_t i = 0; i < 3 * n; i++) {
		const struct fixture_row *r = &rows[i / 3];
		CKB_BUF struct ckb_buf path = { 0 };
		CKB_BUF struct ckb_buf name = { 0 };
		bool cut;

		ckv_tensor_path(&path, r->name, r->name_len,
				separators[i % 3], 4, &cut);
		assert_non_null(path.data);
		/* a cut one ends in "%x" and a digest, no other holds that */
		assert_true(cut == (strstr((char *)path.data, "%x") != NULL));
		long_ones += cut;
		if (cut)
			continue;
		unescape(&name, (char *)path.data, separators[i % 3]);
		assert_int_equal(name.len, r->name_len);
		if (name.len > 0)
			assert_memory_equal(name.data, r->name, name.len);
	}
	assert_true(long_ones > 0);
	fixtures_free(rows, n);
}

/* @prefix repeated to @count bytes of raw name, then what the cut leaves. */
struct long_name {
	const char *unit;
	size_t count, suffix_len, want_len;
	bool folder, cut;
};

/* 255 - 34 = 221 bytes stay, with a suffix of 4: 217; whole units of them. */
static void cuts_fall_between_characters_and_escapes(void **state)
{
	static const struct long_name cases[] = {
		{ "n", 251, 4, 251, false, false },
		{ "n", 252, 4, 251, false, true },
		{ "n", 255, 0, 255, true, false },
		{ "n", 256, 0, 255, true, true },
		{ "é", 255, 0, 220 + 34, false, true }, /* the last: half */
		{ "é", 300, 0, 220 + 34, false, true },
		{ "日", 300, 0, 219 + 34, false, true },
		{ "😀", 300, 0, 220 + 34, false, true },
		{ "%", 85, 0, 255, false, false },      /* %25 each */
		{ "%", 86, 0, 219 + 34, false, true },
		{ "\x01", 84, 4, 216 + 34, false, true },
		{ "n", 60000, 4, 251, false, true },
	};

	(void)state;
	for (size_t i = 0; i < CKB_ARRAY_LEN(cases); i++) {
		const struct long_name *c = &cases[i];
		CKB_BUF struct ckb_buf raw = { 0 };
		CKB_BUF struct ckb_buf b = { 0 };
		bool cut = false;

		while (raw.len < c->count)
			ckb_buf_puts(&raw, c->unit);
		raw.len = c->count;
		ckv_escape(&b, (char *)raw.data, raw.len, c->folder,
			   c->suffix_len, &cut);
		assert_true(cut == c->cut);
		assert_true(b.len + c->suffix_len <= 255);
		assert_int_equal(b.len, c->want_len);
		assert_true(ckb_utf8_ok((char *)b.data, b.len));
		if (cut)
			assert_memory_equal(b.data + b.len - 34, "%x", 2);
	}
}

/* Two names that share what a cut leaves of them stay apart. */
static void long_names_with_one_beginning_differ(void **state)
{
	CKB_BUF struct ckb_buf a = { 0 };
	CKB_BUF struct ckb_buf b = { 0 };
	char name[2000];
	bool cut;

	(void)state;
	memset(name, 'a', sizeof(name));
	ckv_tensor_path(&a, name, sizeof(name), ".", 4, &cut);
	name[sizeof(name) - 1] = 'b';
	ckv_tensor_path(&b, name, sizeof(name), ".", 4, &cut);
	assert_int_equal(a.len, b.len);
	assert_memory_equal(a.data, b.data, 217);
	assert_string_not_equal((char *)a.data, (char *)b.data);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(every_rule_holds),
		cmocka_unit_test(long_components_end_in_a_digest),
		cmocka_unit_test(hostile_names_are_distinct_and_legal),
		cmocka_unit_test(names_come_back_from_paths),
		cmocka_unit_test(cuts_fall_between_characters_and_escapes),
		cmocka_unit_test(long_names_with_one_beginning_differ),
	};

	fixtures_need();
	return cmocka_run_group_tests(tests, NULL, NULL);
}
