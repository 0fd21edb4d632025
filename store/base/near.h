/* SPDX-License-Identifier: Apache-2.0 */
/* base/near.h - the word that a mistyped one was meant to be. */
#ifndef CKB_NEAR_H
#define CKB_NEAR_H

#include <stdbool.h>
#include <stddef.h>

/* Longer words are near to none. */
#define CKB_NEAR_BYTES 256u

/* Edits that make @b of @a: a byte put in, left out or changed, or two
 * neighbours swapped. SIZE_MAX: more than @most, or a word is too long. */
size_t ckb_edits(const char *a, size_t a_len, const char *b, size_t b_len,
		 size_t most);

/* Edits that a mistyped word of @len bytes may be away: a third, at least 1. */
size_t ckb_edits_most(size_t len);

/* The nearest of the words tried; of equally near ones the first. */
struct ckb_near {
	const char *typed;
	size_t len;
	size_t most;                   /* edits that count as near */
	char best[CKB_NEAR_BYTES + 1]; /* "": nothing is near */
};
/* @typed is borrowed. */
void ckb_near_init(struct ckb_near *near, const char *typed, size_t len);
/* True: @word is the best now. Words with a NUL in them are passed over. */
bool ckb_near_try(struct ckb_near *near, const char *word, size_t len);

#endif
