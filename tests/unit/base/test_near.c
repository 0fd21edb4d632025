/* SPDX-License-Identifier: Apache-2.0 */
/* test_near.c - edit distance and the nearest word. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>
#include <string.h>

#include "base/check.h"
#include "base/near.h"

static size_t edits(const char *a, const char *b, size_t most)
{
	return ckb_edits(a, strlen(a), b, strlen(b), most);
}

/* Values of the textbooks. */
static void known_distances(void **state)
{
	static const struct {
		const char *a, *b;
		size_t edits;
	} cases[] = {
		{ "", "", 0 }, { "", "abc", 3 }, { "abc", "abc", 0 },
		{ "kitten", "sitting", 3 }, { "saturday", "sunday", 3 },
		{ "flaw", "lawn", 2 }, { "ab", "ba", 1 },
		{ "lgo", "log", 1 }, { "h.0.onw", "h.0.own", 1 },
		/* two swaps that share a letter are three edits */
		{ "ca", "abc", 3 }, { "abcdef", "badcfe", 3 },
	};

	(void)state;
	for (size_t i = 0; i < CKB_ARRAY_LEN(cases); i++) {
		size_t want = cases[i].edits;

		assert_int_equal(edits(cases[i].a, cases[i].b, 99), want);
		assert_int_equal(edits(cases[i].b, cases[i].a, want), want);
		if (want > 0)
			assert_true(edits(cases[i].a, cases[i].b, want - 1) ==
				    SIZE_MAX);
	}
}

/* The definition, as it stands in books. */
static size_t by_definition(const char *a, size_t n, const char *b, size_t m)
{
	if (n == 0 || m == 0)
		return n + m;
	size_t best = by_definition(a, n - 1, b, m) + 1;
	size_t other = by_definition(a, n, b, m - 1) + 1;

	best = other < best ? other : best;
	other = by_definition(a, n - 1, b, m - 1) + (a[n - 1] != b[m - 1]);
	best = other < best ? other : best;
	if (n > 1 && m > 1 && a[n - 1] == b[m - 2] && a[n - 2] == b[m - 1]) {
		other = by_definition(a, n - 2, b, m - 2) + 1;
		best = other < best ? other : best;
	}
	return best;
}

/* All words of up to four letters of "abc", under every limit. */
static void short_words_agree_with_the_definition(void **state)
{
	char word[121][5];
	size_t count = 0;

	(void)state;
	for (size_t len = 0, of = 1; len <= 4; len++, of *= 3)
		for (size_t n = 0; n < of; n++, count++) {
			size_t rest = n;

			for (size_t i = 0; i < len; i++, rest /= 3)
				word[count][i] = (char)('a' + rest % 3);
			word[count][len] = '\0';
		}
	assert_int_equal(count, 121);
	for (size_t i = 0; i < count; i++)
		for (size_t j = 0; j < count; j++) {
			size_t want = by_definition(word[i], strlen(word[i]),
						    word[j], strlen(word[j]));

			for (size_t most = 0; most <= 4; most++)
				assert_true(edits(word[i], word[j], most) ==
					    (want <= most ? want : SIZE_MAX));
		}
}

static void long_words_are_near_to_none(void **state)
{
	char a[CKB_NEAR_BYTES + 2];

	(void)state;
	memset(a, 'x', sizeof(a));
	a[CKB_NEAR_BYTES + 1] = '\0';
	assert_true(edits(a, a, 9) == SIZE_MAX);
	a[CKB_NEAR_BYTES] = '\0';
	assert_int_equal(edits(a, a, 9), 0);
	a[CKB_NEAR_BYTES - 1] = '\0';
	assert_int_equal(ckb_edits(a, CKB_NEAR_BYTES - 1, a,
				   CKB_NEAR_BYTES - 2, 9), 1);
}

static void the_nearest_word_wins(void **state)
{
	struct ckb_near near;

	(void)state;
	ckb_near_init(&near, "--lmit=3", 6);
	ckb_near_try(&near, "--limits", 8);
	assert_string_equal(near.best, "--limits");
	ckb_near_try(&near, "--limit", 7);
	ckb_near_try(&near, "--lmits", 7); /* as near, later */
	assert_string_equal(near.best, "--limit");
	ckb_near_try(&near, "--lmit\0", 7);
	assert_string_equal(near.best, "--limit");
	ckb_near_try(&near, "--lmit", 6);
	ckb_near_try(&near, "--limit", 7);
	assert_string_equal(near.best, "--lmit");
}

static void what_is_far_is_not_offered(void **state)
{
	struct ckb_near near;

	(void)state;
	ckb_near_init(&near, "xyzzy", 5);
	ckb_near_try(&near, "log", 3);
	ckb_near_try(&near, "", 0);
	assert_string_equal(near.best, "");
	ckb_near_init(&near, "ab", 2);
	ckb_near_try(&near, "cd", 2);
	assert_string_equal(near.best, "");
	ckb_near_try(&near, "ac", 2);
	assert_string_equal(near.best, "ac");
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(known_distances),
		cmocka_unit_test(short_words_agree_with_the_definition),
		cmocka_unit_test(long_words_are_near_to_none),
		cmocka_unit_test(the_nearest_word_wins),
		cmocka_unit_test(what_is_far_is_not_offered),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
