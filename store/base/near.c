/* SPDX-License-Identifier: Apache-2.0 */
/*
 * near.c - the word that a mistyped one was meant to be.
 *
 * Edit distance with transpositions (optimal string alignment), of bytes. Three
 * rows, and an end as soon as a row shows that it is too far: a checkpoint may
 * have 100,000 names. Pure; any thread.
 */
#include "base/near.h"

#include <stdint.h>
#include <string.h>

#include "base/check.h"

static size_t min3(size_t a, size_t b, size_t c)
{
	size_t m = a < b ? a : b;

	return m < c ? m : c;
}

size_t ckb_edits(const char *a, size_t a_len, const char *b, size_t b_len,
		 size_t most)
{
	size_t rows[3][CKB_NEAR_BYTES + 1];
	size_t *two = rows[0], *one = rows[1], *now = rows[2], least = 0;

	if (a_len > CKB_NEAR_BYTES || b_len > CKB_NEAR_BYTES ||
	    (a_len > b_len ? a_len - b_len : b_len - a_len) > most)
		return SIZE_MAX;
	for (size_t j = 0; j <= b_len; j++)
		one[j] = j;
	for (size_t i = 1; i <= a_len; i++) {
		size_t before = least, *free_row = two;

		now[0] = least = i;
		for (size_t j = 1; j <= b_len; j++) {
			size_t cost = one[j - 1] + (a[i - 1] != b[j - 1]);

			now[j] = min3(one[j] + 1, now[j - 1] + 1, cost);
			if (i > 1 && j > 1 && a[i - 1] == b[j - 2] &&
			    a[i - 2] == b[j - 1] && two[j - 2] + 1 < now[j])
				now[j] = two[j - 2] + 1;
			if (now[j] < least)
				least = now[j];
		}
		/* a swap takes from the row before the last */
		if (least > most && before > most)
			return SIZE_MAX;
		two = one;
		one = now;
		now = free_row;
	}
	return one[b_len] <= most ? one[b_len] : SIZE_MAX;
}

size_t ckb_edits_most(size_t len)
{
	return len / 3 > 1 ? len / 3 : 1;
}

void ckb_near_init(struct ckb_near *n, const char *typed, size_t len)
{
	n->typed = typed;
	n->len = len;
	n->most = ckb_edits_most(len);
	n->best[0] = '\0';
}

bool ckb_near_try(struct ckb_near *n, const char *word, size_t len)
{
	if (len == 0 || memchr(word, '\0', len) ||
	    (n->best[0] && n->most == 0))
		return false;
	/* after the first, only what is nearer */
	size_t edits = ckb_edits(n->typed, n->len, word, len,
				 n->most - (n->best[0] != '\0'));

	if (edits == SIZE_MAX)
		return false;
	n->most = edits;
	memcpy(n->best, word, len);
	n->best[len] = '\0';
	return true;
}
