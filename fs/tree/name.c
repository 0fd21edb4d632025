/* SPDX-License-Identifier: Apache-2.0 */
/*
 * name.c - names of tensors as paths of files (DESIGN 8, FORMAT.md).
 *
 * A function of the name alone, reversible, and never a name that a file
 * system or a shell loop trips over: control bytes, '/', '%', '@', invalid
 * UTF-8 and a leading '.' become %XX; an empty component is '%'. A component
 * too long for a file system ends in '%x' and a digest: 'x' is no hexadecimal
 * digit, so it cannot be mistaken for an escape. Pure.
 */
#include <string.h>

#include "base/limits.h"
#include "base/text.h"
#include "chunk/digest.h"
#include "tree/internal.h"

#define CUT_BYTES 34u /* "%x" and 32 digits */

/* Escaped form of the unit at @raw into @out (at most 4 bytes); its length in
 * *@out_len, the raw bytes it took as the result. */
static size_t unit(const char *raw, size_t len, bool first, char out[4],
		   size_t *out_len)
{
	static const char digits[] = "0123456789ABCDEF";
	unsigned char c = (unsigned char)*raw;
	size_t n = ckb_utf8_char(raw, len);

	if (n == 0 || c < 32 || c == 127 || c == '/' || c == '%' || c == '@' ||
	    (first && c == '.')) {
		out[0] = '%';
		out[1] = digits[c >> 4];
		out[2] = digits[c & 15];
		*out_len = 3;
		return 1;
	}
	memcpy(out, raw, n);
	*out_len = n;
	return n;
}

/* Bytes of the unit (escape or character) at @text of an escaped name. */
static size_t escaped_unit(const char *text, size_t len)
{
	if (text[0] == '%')
		return len < 3 ? len : 3;
	size_t n = ckb_utf8_char(text, len);

	return n ? n : 1;
}

/* "x.npy" as a folder would look like a file: escape that dot. */
static void escape_suffix(struct ckb_buf *b, size_t start)
{
	static const char *const suffixes[] = { ".npy", ".txt",
						".safetensors" };
	size_t len = b->len - start;

	for (size_t i = 0; i < CKB_ARRAY_LEN(suffixes); i++) {
		size_t n = strlen(suffixes[i]);

		if (len < n || memcmp(b->data + b->len - n, suffixes[i], n))
			continue;
		b->len -= n;
		ckb_buf_puts(b, "%2E");
		ckb_buf_puts(b, suffixes[i] + 1);
		return;
	}
}

static void cut(struct ckb_buf *b, size_t start, size_t max, const char *raw,
		size_t len)
{
	uint8_t digest[CKPT_DIGEST_BYTES];
	char hex[33];
	size_t at = 0;

	for (;;) {
		size_t n = escaped_unit((char *)b->data + start + at,
					b->len - start - at);

		if (at + n > max - CUT_BYTES)
			break;
		at += n;
	}
	b->len = start + at;
	ckc_sha256(raw, len, digest);
	ckb_hex(hex, digest, 16);
	ckb_buf_puts(b, "%x");
	ckb_buf_puts(b, hex);
}

void ckv_escape(struct ckb_buf *out, const char *raw, size_t len, bool folder,
		size_t suffix_len, bool *out_cut)
{
	size_t start = out->len, max = CKB_NAME_COMPONENT_MAX - suffix_len;

	if (len == 0)
		ckb_buf_putc(out, '%');
	for (size_t at = 0; at < len;) {
		char text[4];
		size_t n;

		at += unit(raw + at, len - at, at == 0, text, &n);
		ckb_buf_put(out, text, n);
	}
	if (out->failed)
		return;
	if (folder)
		escape_suffix(out, start);
	if (!out->failed && out->len - start > max) {
		cut(out, start, max, raw, len);
		*out_cut = true;
	}
}

void ckv_tensor_path(struct ckb_buf *out, const char *name, size_t name_len,
		     const char *separator, size_t suffix_len, bool *out_cut)
{
	*out_cut = false;
	for (;;) {
		const char *at = *separator
				       ? memchr(name, *separator, name_len)
				       : NULL;

		if (!at)
			break;
		ckv_escape(out, name, (size_t)(at - name), true, 0, out_cut);
		ckb_buf_putc(out, '/');
		name_len -= (size_t)(at - name) + 1;
		name = at + 1;
	}
	ckv_escape(out, name, name_len, false, suffix_len, out_cut);
}
