/* SPDX-License-Identifier: Apache-2.0 */
/*
 * near.c - the word that a mistyped one was meant to be.
 *
 * Edit distance with transpositions (optimal string alignment); a word counts
 * as near when at most a third of it, and one letter in any case, differs.
 * Pure.
 */
#include <string.h>

#include "cli/cli.h"

#define WORD_MAX 32 /* longer words are nobody's option */

static size_t min3(size_t a, size_t b, size_t c)
{
	size_t m = a < b ? a : b;

	return m < c ? m : c;
}

static size_t distance(const char *a, const char *b)
{
	size_t n = strlen(a), m = strlen(b);
	size_t d[WORD_MAX + 1][WORD_MAX + 1];

	if (n > WORD_MAX || m > WORD_MAX)
		return SIZE_MAX;
	for (size_t i = 0; i <= n; i++)
		for (size_t j = 0; j <= m; j++) {
			if (i == 0 || j == 0) {
				d[i][j] = i + j;
				continue;
			}
			size_t cost = a[i - 1] != b[j - 1];

			d[i][j] = min3(d[i - 1][j] + 1, d[i][j - 1] + 1,
				       d[i - 1][j - 1] + cost);
			if (i > 1 && j > 1 && a[i - 1] == b[j - 2] &&
			    a[i - 2] == b[j - 1])
				d[i][j] = min3(d[i][j], d[i - 2][j - 2] + 1,
					       d[i][j]);
		}
	return d[n][m];
}

void cli_near_init(struct cli_near *n, const char *typed)
{
	size_t len = strlen(typed);

	n->typed = typed;
	n->best[0] = '\0';
	n->distance = len / 3 > 1 ? len / 3 + 1 : 2; /* one more than allowed */
}

void cli_near_try(struct cli_near *n, const char *word, size_t len)
{
	char text[WORD_MAX + 1];

	if (len > WORD_MAX)
		return;
	memcpy(text, word, len);
	text[len] = '\0';
	size_t d = distance(n->typed, text);

	if (d < n->distance) {
		n->distance = d;
		memcpy(n->best, text, len + 1);
	}
}
