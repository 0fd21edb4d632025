/* SPDX-License-Identifier: Apache-2.0 */
/* text.c - UTF-8, hex and uuids. Pure; any thread. */
#include "base/text.h"

#include <string.h>

uint32_t ckb_utf8_value(const char *text, size_t n)
{
	const unsigned char *s = (const unsigned char *)text;
	uint32_t c = n == 1 ? s[0] : s[0] & (0xffu >> (n + 1));

	for (size_t i = 1; i < n; i++)
		c = c << 6 | (s[i] & 0x3fu);
	return c;
}

bool ckb_utf8_hidden(uint32_t c)
{
	/* controls; Default_Ignorable_Code_Point of Unicode 15; U+2028 and
	 * U+2029, which end lines; U+FFF9 to U+FFFB, which annotate */
	static const uint32_t ranges[][2] = {
		{ 0, 0x1f }, { 0x7f, 0x9f }, { 0xad, 0xad },
		{ 0x34f, 0x34f }, { 0x61c, 0x61c }, { 0x115f, 0x1160 },
		{ 0x17b4, 0x17b5 }, { 0x180b, 0x180f }, { 0x200b, 0x200f },
		{ 0x2028, 0x202e }, { 0x2060, 0x206f }, { 0x3164, 0x3164 },
		{ 0xfe00, 0xfe0f }, { 0xfeff, 0xfeff }, { 0xffa0, 0xffa0 },
		{ 0xfff0, 0xfffb }, { 0x1bca0, 0x1bca3 },
		{ 0x1d173, 0x1d17a }, { 0xe0000, 0xe0fff },
	};

	for (size_t i = 0; i < sizeof(ranges) / sizeof(*ranges); i++)
		if (c >= ranges[i][0] && c <= ranges[i][1])
			return true;
	return false;
}

size_t ckb_utf8_char(const char *text, size_t len)
{
	const unsigned char *s = (const unsigned char *)text;
	uint32_t c;
	size_t n;

	if (len == 0)
		return 0;
	if (s[0] < 0x80)
		return 1;
	if (s[0] < 0xc2 || s[0] > 0xf4)
		return 0;
	n = s[0] < 0xe0 ? 2 : s[0] < 0xf0 ? 3 : 4;
	if (len < n)
		return 0;
	for (size_t i = 1; i < n; i++)
		if ((s[i] & 0xc0) != 0x80)
			return 0;
	c = ckb_utf8_value(text, n);
	if (n == 3 && (c < 0x800 || (c >= 0xd800 && c <= 0xdfff)))
		return 0;
	if (n == 4 && (c < 0x10000 || c > 0x10ffff))
		return 0;
	return n;
}

bool ckb_utf8_ok(const char *text, size_t len)
{
	while (len > 0) {
		size_t n = ckb_utf8_char(text, len);

		if (n == 0)
			return false;
		text += n;
		len -= n;
	}
	return true;
}

void ckb_hex(char *dst, const uint8_t *bytes, size_t len)
{
	static const char digits[] = "0123456789abcdef";

	for (size_t i = 0; i < len; i++) {
		*dst++ = digits[bytes[i] >> 4];
		*dst++ = digits[bytes[i] & 15];
	}
	*dst = '\0';
}

static int digit(char c)
{
	if (c >= '0' && c <= '9')
		return c - '0';
	if (c >= 'a' && c <= 'f')
		return c - 'a' + 10;
	return -1;
}

bool ckb_unhex(uint8_t *dst, const char *hex, size_t len)
{
	for (size_t i = 0; i < len; i++) {
		int high = digit(hex[2 * i]);
		int low = high < 0 ? -1 : digit(hex[2 * i + 1]);

		if (low < 0)
			return false;
		dst[i] = (uint8_t)(high << 4 | low);
	}
	return true;
}

/* Bytes before each '-' of the text form. */
static const size_t groups[] = { 4, 2, 2, 2, 6 };

void ckb_uuid_text(char dst[CKB_UUID_TEXT_BYTES], const uint8_t uuid[16])
{
	for (size_t g = 0; g < 5; g++) {
		ckb_hex(dst, uuid, groups[g]);
		uuid += groups[g];
		dst += 2 * groups[g];
		*dst++ = g < 4 ? '-' : '\0';
	}
}

bool ckb_uuid_parse(uint8_t uuid[16], const char *text)
{
	if (strlen(text) != CKB_UUID_TEXT_BYTES - 1)
		return false;
	for (size_t g = 0; g < 5; g++) {
		if (!ckb_unhex(uuid, text, groups[g]))
			return false;
		uuid += groups[g];
		text += 2 * groups[g];
		if (*text++ != (g < 4 ? '-' : '\0'))
			return false;
	}
	return true;
}
