/* SPDX-License-Identifier: Apache-2.0 */
/*
 * foreign/json_scan.h - a strict pull scanner of JSON (RFC 8259).
 *
 * For headers of up to 100 MB that must not be blown up into a tree: it
 * allocates nothing; strings are given as their place in the text and decoded
 * by the caller into its own memory. As strict as serde_json: depth <= 127, no
 * lone surrogate, no raw control character, no trailing comma, valid UTF-8,
 * no number beyond a double.
 */
#ifndef CKX_JSON_SCAN_H
#define CKX_JSON_SCAN_H

#include "base/err.h"
#include "base/limits.h"

enum ckx_token {
	CKX_END, CKX_OBJECT, CKX_OBJECT_END, CKX_ARRAY, CKX_ARRAY_END,
	CKX_KEY, CKX_STRING, CKX_UINT, CKX_NUMBER, CKX_TRUE, CKX_FALSE,
	CKX_NULL,
};

struct ckx_scan {
	const char *text;
	size_t len, at;
	const char *of;          /* for messages: " of the header", or "" */
	uint32_t depth;
	uint8_t state;
	uint8_t is_object[CKB_JSON_DEPTH_MAX / 8 + 1]; /* bit per level */
	size_t token_at;         /* where the last token begins */
	const char *str;         /* KEY, STRING: between the quotes, in text */
	size_t str_len;
	bool escaped;            /* str holds escapes */
	uint64_t number;         /* UINT: an integer 0..2^64-1, not "-0" */
};

/* @text is borrowed for as long as @s is used. @of says what its bytes are
 * counted in, when it is no whole file: " of the header"; else "". */
void ckx_scan_init(struct ckx_scan *s, const char *text, size_t len,
		   const char *of);

/* Next token into *@out; CKPT_EFORMAT names the byte and what is wrong. A KEY
 * takes its colon with it. After CKX_END only CKX_END comes. */
CKB_MUST int ckx_scan_next(struct ckx_scan *s, enum ckx_token *out,
			   struct ckpt_err *err);

/* Skip the value whose first token was @first. */
CKB_MUST int ckx_scan_skip(struct ckx_scan *s, enum ckx_token first,
			   struct ckpt_err *err);

/* The last KEY or STRING decoded to @dst, which has room for str_len bytes and
 * may be the place in the text where it stands.
 * Returns its length, at most str_len and at least str_len / 6. No NUL is
 * added; the text itself may hold NUL. */
size_t ckx_scan_decode(const struct ckx_scan *s, char *dst);

/* Is the last KEY or STRING @text, however it was escaped? */
bool ckx_scan_is(const struct ckx_scan *s, const char *text);

#endif
