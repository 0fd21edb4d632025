/* SPDX-License-Identifier: Apache-2.0 */
/*
 * json_scan.c - a strict pull scanner of JSON.
 *
 * One pass, no recursion, no allocation: nesting is a bit per level, so a
 * header of 50,000 brackets costs nothing (S10). It refuses all that
 * serde_json refuses in the same place, and besides that numbers from 1e308
 * on, where serde_json goes on to 1.797e308. Duplicate keys are the business
 * of the caller, who knows which of them matter. Pure; one thread per scan.
 */
#include "foreign/json_scan.h"

#include <string.h>

#include "base/text.h"

/* What may come next. */
enum state {
	VALUE,        /* a value */
	VALUE_OR_END, /* after '[' */
	KEY_OR_END,   /* after '{' */
	KEY,          /* after ',' in an object */
	AFTER,        /* ',' or the end of what we are in */
	DONE,         /* only white space */
};

void ckx_scan_init(struct ckx_scan *s, const char *text, size_t len,
		   const char *of)
{
	memset(s, 0, sizeof(*s));
	s->text = text;
	s->len = len;
	s->of = of;
	s->state = VALUE;
}

static int fail(const struct ckx_scan *s, size_t at, struct ckpt_err *err,
		const char *what)
{
	return ckb_err(err, CKPT_EFORMAT, "JSON error at byte %zu%s: %s", at,
		       s->of, at >= s->len ? "it ends in the middle" : what);
}

static void skip_space(struct ckx_scan *s)
{
	while (s->at < s->len) {
		char c = s->text[s->at];

		if (c != ' ' && c != '\n' && c != '\t' && c != '\r')
			return;
		s->at++;
	}
}

/* The byte at the cursor, or -1 at the end. */
static int peek(const struct ckx_scan *s)
{
	return s->at < s->len ? (unsigned char)s->text[s->at] : -1;
}

/* ---- strings ---- */

/* Four hex digits at @at, or -1. */
static int32_t hex4(const char *text, size_t len, size_t at)
{
	int32_t v = 0;

	if (at > len || len - at < 4)
		return -1;
	for (size_t i = at; i < at + 4; i++) {
		char c = text[i];

		if (c >= '0' && c <= '9')
			v = v * 16 + (c - '0');
		else if ((c | 32) >= 'a' && (c | 32) <= 'f')
			v = v * 16 + ((c | 32) - 'a' + 10);
		else
			return -1;
	}
	return v;
}

/* Length of the escape at @at (a backslash), or 0 when it is none: a lone
 * surrogate is none. Its character into *@out. */
static size_t escape(const char *text, size_t len, size_t at, uint32_t *out)
{
	static const char from[] = "\"\\/bfnrt", to[] = "\"\\/\b\f\n\r\t";
	const char *known;

	if (len - at < 2)
		return 0;
	if (text[at + 1] != 'u') {
		known = text[at + 1] ? strchr(from, text[at + 1]) : NULL;
		if (!known)
			return 0;
		*out = (unsigned char)to[known - from];
		return 2;
	}
	int32_t high = hex4(text, len, at + 2), low;

	if (high < 0 || (high >= 0xdc00 && high < 0xe000))
		return 0;
	*out = (uint32_t)high;
	if (high < 0xd800 || high >= 0xe000)
		return 6;
	if (len - at < 12 || text[at + 6] != '\\' || text[at + 7] != 'u')
		return 0;
	low = hex4(text, len, at + 8);
	if (low < 0xdc00 || low >= 0xe000)
		return 0;
	*out = 0x10000u + ((uint32_t)(high - 0xd800) << 10) +
	       (uint32_t)(low - 0xdc00);
	return 12;
}

/* The string whose opening quote is at the cursor. */
static int string(struct ckx_scan *s, struct ckpt_err *err)
{
	size_t at = s->at + 1, n;
	uint32_t c32;

	s->str = s->text + at;
	s->escaped = false;
	while (at < s->len) {
		unsigned char c = (unsigned char)s->text[at];

		if (c == '"') {
			s->str_len = (size_t)(s->text + at - s->str);
			s->at = at + 1;
			return 0;
		}
		if (c == '\\') {
			n = escape(s->text, s->len, at, &c32);
			if (n == 0)
				return fail(s, at, err, "an escape that is "
					    "none, or half a surrogate pair");
			s->escaped = true;
		} else if (c < 0x20) {
			return fail(s, at, err, "a control character inside a "
				    "string; it must be escaped");
		} else if (c < 0x80) {
			n = 1;
		} else {
			n = ckb_utf8_char(s->text + at, s->len - at);
			if (n == 0)
				return fail(s, at, err, "a byte that is not "
					    "UTF-8");
		}
		at += n;
	}
	return fail(s, s->len, err, "");
}

static size_t put_utf8(char *dst, uint32_t c)
{
	if (c < 0x80) {
		dst[0] = (char)c;
		return 1;
	}
	if (c < 0x800) {
		dst[0] = (char)(0xc0 | c >> 6);
		dst[1] = (char)(0x80 | (c & 63));
		return 2;
	}
	if (c < 0x10000) {
		dst[0] = (char)(0xe0 | c >> 12);
		dst[1] = (char)(0x80 | (c >> 6 & 63));
		dst[2] = (char)(0x80 | (c & 63));
		return 3;
	}
	dst[0] = (char)(0xf0 | c >> 18);
	dst[1] = (char)(0x80 | (c >> 12 & 63));
	dst[2] = (char)(0x80 | (c >> 6 & 63));
	dst[3] = (char)(0x80 | (c & 63));
	return 4;
}

size_t ckx_scan_decode(const struct ckx_scan *s, char *dst)
{
	size_t len = 0, at = 0;

	while (at < s->str_len) {
		const char *stop = s->escaped ? memchr(s->str + at, '\\',
						       s->str_len - at)
					      : NULL;
		size_t run = stop ? (size_t)(stop - s->str) - at
				  : s->str_len - at;
		uint32_t c = 0;

		memmove(dst + len, s->str + at, run); /* dst may be str */
		len += run;
		at += run;
		if (!stop)
			break;
		at += escape(s->str, s->str_len, at, &c);
		len += put_utf8(dst + len, c);
	}
	return len;
}

bool ckx_scan_is(const struct ckx_scan *s, const char *text)
{
	char small[128];
	size_t len = strlen(text);

	if (!s->escaped)
		return s->str_len == len && memcmp(s->str, text, len) == 0;
	if (s->str_len > sizeof(small))
		return false;
	return ckx_scan_decode(s, small) == len &&
	       memcmp(small, text, len) == 0;
}

/* ---- numbers ---- */

static size_t digits(const struct ckx_scan *s, size_t at)
{
	while (at < s->len && s->text[at] >= '0' && s->text[at] <= '9')
		at++;
	return at;
}

/* The decimal exponent of the first digit that is not zero, of the digits
 * [@from, @to) with the point before byte @point; INT32_MIN: all are zero. */
static int64_t magnitude(const struct ckx_scan *s, size_t from, size_t to,
			 size_t point)
{
	for (size_t i = from; i < to; i++) {
		if (s->text[i] == '.' || s->text[i] == '0')
			continue;
		return i < point ? (int64_t)(point - i) - 1
				 : -(int64_t)(i - point);
	}
	return INT32_MIN;
}

/* The exponent's digits [@from, @to), with its sign; saturates. */
static int64_t exponent(const struct ckx_scan *s, size_t from, size_t to)
{
	bool minus = s->text[from] == '-';
	int64_t v = 0;

	for (size_t i = from; i < to; i++)
		if (s->text[i] >= '0' && v < 1000000000000)
			v = v * 10 + (s->text[i] - '0');
	return minus ? -v : v;
}

static bool as_u64(const struct ckx_scan *s, size_t from, size_t to,
		   uint64_t *out)
{
	uint64_t v = 0;

	for (size_t i = from; i < to; i++)
		if (!ckb_mul_u64(v, 10, &v) ||
		    !ckb_add_u64(v, (uint64_t)(s->text[i] - '0'), &v))
			return false;
	*out = v;
	return true;
}

static int number(struct ckx_scan *s, enum ckx_token *out,
		  struct ckpt_err *err)
{
	bool minus = s->text[s->at] == '-', whole = true;
	size_t from = s->at + minus, point = digits(s, from), to = point;
	int64_t e = 0, m;

	if (point == from)
		return fail(s, from, err, "a digit is missing in a number");
	if (s->text[from] == '0' && point - from > 1)
		return fail(s, from, err, "a number with a leading zero");
	if (to < s->len && s->text[to] == '.') {
		to = digits(s, point + 1);
		whole = false;
		if (to == point + 1)
			return fail(s, to, err, "a digit is missing after a "
				    "number's point");
	}
	size_t end = to;

	if (end < s->len && (s->text[end] | 32) == 'e') {
		size_t sign = end + 1;

		whole = false;
		end = sign + (sign < s->len && (s->text[sign] == '+' ||
						s->text[sign] == '-'));
		if (digits(s, end) == end)
			return fail(s, end, err, "a digit is missing in a "
				    "number's exponent");
		end = digits(s, end);
		e = exponent(s, sign, end);
	}
	m = magnitude(s, from, to, point);
	if (m != INT32_MIN && m + e >= 308)
		return fail(s, s->at, err, "a number out of range");
	*out = !minus && whole && as_u64(s, from, point, &s->number)
		? CKX_UINT : CKX_NUMBER;
	s->at = end;
	return 0;
}

/* ---- tokens ---- */

static bool in_object(const struct ckx_scan *s)
{
	uint32_t level = s->depth - 1;

	return s->is_object[level / 8] >> level % 8 & 1;
}

static int open_level(struct ckx_scan *s, bool object, enum ckx_token *out,
		      struct ckpt_err *err)
{
	uint32_t level = s->depth;

	if (s->depth >= CKB_JSON_DEPTH_MAX)
		return fail(s, s->at, err, "nested deeper than 127 levels");
	if (object)
		s->is_object[level / 8] |= (uint8_t)(1u << level % 8);
	else
		s->is_object[level / 8] &= (uint8_t)~(1u << level % 8);
	s->depth++;
	s->at++;
	s->state = object ? KEY_OR_END : VALUE_OR_END;
	*out = object ? CKX_OBJECT : CKX_ARRAY;
	return 0;
}

static void after_value(struct ckx_scan *s)
{
	s->state = s->depth == 0 ? DONE : AFTER;
}

static int close_level(struct ckx_scan *s, enum ckx_token *out)
{
	*out = in_object(s) ? CKX_OBJECT_END : CKX_ARRAY_END;
	s->at++;
	s->depth--;
	after_value(s);
	return 0;
}

static int word(struct ckx_scan *s, enum ckx_token *out, struct ckpt_err *err)
{
	static const struct {
		const char *text;
		enum ckx_token token;
	} words[] = {
		{ "true", CKX_TRUE },
		{ "false", CKX_FALSE },
		{ "null", CKX_NULL },
	};

	for (size_t i = 0; i < CKB_ARRAY_LEN(words); i++) {
		size_t len = strlen(words[i].text);

		if (s->len - s->at < len ||
		    memcmp(s->text + s->at, words[i].text, len) != 0)
			continue;
		s->at += len;
		*out = words[i].token;
		return 0;
	}
	return fail(s, s->at, err, "no JSON value begins like this");
}

static int value(struct ckx_scan *s, enum ckx_token *out,
		 struct ckpt_err *err)
{
	int c = peek(s), rc;

	if (c == '{' || c == '[')
		return open_level(s, c == '{', out, err);
	if (c == '"') {
		*out = CKX_STRING;
		rc = string(s, err);
	} else if (c == '-' || (c >= '0' && c <= '9')) {
		rc = number(s, out, err);
	} else {
		rc = word(s, out, err);
	}
	if (rc == 0)
		after_value(s);
	return rc;
}

static int key(struct ckx_scan *s, enum ckx_token *out, struct ckpt_err *err)
{
	int rc;

	if (peek(s) != '"')
		return fail(s, s->at, err, s->state == KEY
			    ? "a key in double quotes must follow the comma"
			    : "a key in double quotes or '}' must follow '{'");
	rc = string(s, err);
	if (rc < 0)
		return rc;
	skip_space(s);
	if (peek(s) != ':')
		return fail(s, s->at, err, "a ':' must follow the key");
	s->at++;
	s->state = VALUE;
	*out = CKX_KEY;
	return 0;
}

/* After a value: past the comma, or *@closed. */
static int separator(struct ckx_scan *s, bool *closed, struct ckpt_err *err)
{
	bool object = in_object(s);

	*closed = peek(s) == (object ? '}' : ']');
	if (*closed)
		return 0;
	if (peek(s) != ',')
		return fail(s, s->at, err, object
			    ? "',' or '}' must follow a value in an object"
			    : "',' or ']' must follow a value in an array");
	s->at++;
	s->state = object ? KEY : VALUE;
	skip_space(s);
	return 0;
}

int ckx_scan_next(struct ckx_scan *s, enum ckx_token *out,
		  struct ckpt_err *err)
{
	bool closed = false;

	skip_space(s);
	if (s->state == AFTER) {
		int rc = separator(s, &closed, err);

		if (rc < 0)
			return rc;
	}
	s->token_at = s->at;
	switch (s->state) {
	case DONE:
		*out = CKX_END;
		return s->at == s->len ? 0 : fail(s, s->at, err,
						  "text after the end");
	case KEY_OR_END:
		closed = peek(s) == '}';
		break;
	case VALUE_OR_END:
		closed = peek(s) == ']';
		break;
	default:
		break;
	}
	if (closed)
		return close_level(s, out);
	if (s->state == KEY || s->state == KEY_OR_END)
		return key(s, out, err);
	return value(s, out, err);
}

int ckx_scan_skip(struct ckx_scan *s, enum ckx_token first,
		  struct ckpt_err *err)
{
	uint32_t until = s->depth - 1;
	enum ckx_token token;
	int rc = 0;

	if (first != CKX_OBJECT && first != CKX_ARRAY)
		return 0;
	while (rc == 0 && s->depth > until)
		rc = ckx_scan_next(s, &token, err);
	return rc;
}
