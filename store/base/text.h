/* SPDX-License-Identifier: Apache-2.0 */
/* base/text.h - UTF-8, hex and uuids. */
#ifndef CKB_TEXT_H
#define CKB_TEXT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Strict UTF-8: no overlong form, no surrogate, nothing over U+10FFFF. */
bool ckb_utf8_ok(const char *text, size_t len);

/* Bytes of the UTF-8 character that begins at @text (1 to 4), or 0: none. */
size_t ckb_utf8_char(const char *text, size_t len);

/* Does the character move the cursor, turn the text's direction, or show
 * nothing at all (Unicode's default ignorable code points)? */
bool ckb_utf8_hidden(uint32_t c);

/* The character of @n bytes at @text, as ckb_utf8_char() found it. */
uint32_t ckb_utf8_value(const char *text, size_t n);

/* Lower-case hex of @len bytes into @dst, 2 * @len + 1 bytes. */
void ckb_hex(char *dst, const uint8_t *bytes, size_t len);
bool ckb_unhex(uint8_t *dst, const char *hex, size_t len);

#define CKB_UUID_TEXT_BYTES 37
/* "8-4-4-4-12" lower-case, RFC 9562's text form. */
void ckb_uuid_text(char dst[CKB_UUID_TEXT_BYTES], const uint8_t uuid[16]);
bool ckb_uuid_parse(uint8_t uuid[16], const char *text);

#endif
