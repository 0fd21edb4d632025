/* SPDX-License-Identifier: Apache-2.0 */
/*
 * npy_parse.c - .npy headers as NumPy reads them, never laxer.
 *
 * NumPy gives the text to Python's literal_eval; here is just the part of that
 * grammar which a header needs: one dict of three keys in any order, strings
 * without escapes, True or False, a tuple of decimal numbers, white space, a
 * comma before the end. "3L" is read where NumPy reads it, in versions 1 and
 * 2: Python 2 wrote it. Refused though NumPy takes them, as no version of it
 * ever wrote them: other spellings of numbers (0x3, 1_0, +3), prefixed, escaped
 * or joined strings, comments, a key given twice, parentheses around a value.
 * Dtype names ("float32", "=f4", "f4") are refused too: they mean the byte
 * order of the machine that wrote, which nobody knows.
 *
 * Every length is checked before use (S10). Pure; any thread.
 */
#include "foreign/npy.h"

#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "base/bytes.h"
#include "tensor/dtype.h"

struct text {
	const char *s;
	size_t len, at;
	uint32_t version;
	struct ckpt_err *err;
};

enum { DESCR = 1, ORDER = 2, SHAPE = 4 };

CKB_PRINTF(2, 3)
static int bad(const struct text *t, const char *fmt, ...)
{
	char what[CKB_QUOTE_BYTES];
	va_list ap;

	va_start(ap, fmt);
	vsnprintf(what, sizeof(what), fmt, ap);
	va_end(ap);
	return ckb_err(t->err, CKPT_EFORMAT, "byte %zu of the .npy header's "
		       "text: %s", t->at, what);
}

/* ---- the literal ---- */

static int peek(struct text *t)
{
	while (t->at < t->len && strchr(" \t\n\r\f", t->s[t->at]) &&
	       t->s[t->at])
		t->at++;
	return t->at < t->len ? (unsigned char)t->s[t->at] : -1;
}

static int want(struct text *t, char c, const char *where)
{
	if (peek(t) != c)
		return bad(t, "a '%c' must stand %s", c, where);
	t->at++;
	return 0;
}

static int string(struct text *t, const char **out, size_t *out_len)
{
	int quote = peek(t);
	const char *end;

	if (quote != '\'' && quote != '"')
		return bad(t, "a string in quotes must stand here");
	*out = t->s + t->at + 1;
	end = memchr(*out, quote, t->len - t->at - 1);
	if (!end)
		return bad(t, "a string does not end");
	*out_len = (size_t)(end - *out);
	for (size_t i = 0; i < *out_len; i++)
		if ((*out)[i] < 32 || (*out)[i] > 126 || (*out)[i] == '\\')
			return bad(t, "a string holds something other than "
				   "plain ASCII");
	t->at += *out_len + 2;
	return 0;
}

static bool word(struct text *t, const char *w)
{
	size_t n = strlen(w);

	if (t->len - t->at < n || memcmp(t->s + t->at, w, n) != 0)
		return false;
	t->at += n;
	return true;
}

static int order(struct text *t, bool *out)
{
	peek(t);
	*out = word(t, "True");
	if (*out || word(t, "False"))
		return 0;
	return bad(t, "fortran_order must be True or False");
}

static int number(struct text *t, uint64_t *out)
{
	size_t from = t->at;
	uint64_t v = 0;

	for (; t->at < t->len && t->s[t->at] >= '0' && t->s[t->at] <= '9';
	     t->at++)
		if (!ckb_mul_u64(v, 10, &v) ||
		    !ckb_add_u64(v, (uint64_t)(t->s[t->at] - '0'), &v) ||
		    v > INT64_MAX)
			return bad(t, "a dimension of 2^63 or more");
	if (t->at == from)
		return bad(t, "the shape holds something other than decimal "
			   "whole numbers from 0 on");
	if (t->s[from] == '0' && t->at - from > 1)
		return bad(t, "a number with a leading zero");
	if (t->version < 3 && t->at < t->len && t->s[t->at] == 'L')
		t->at++;
	*out = v;
	return 0;
}

static int shape(struct text *t, struct ckpt_shape *out)
{
	bool comma = true; /* "(3)" is a number in parentheses */
	int rc = want(t, '(', "where the shape begins: a tuple");

	out->ndim = 0;
	while (rc == 0 && peek(t) != ')') {
		if (!comma)
			return bad(t, "a ',' must stand between dimensions");
		if (out->ndim == CKPT_NDIM_MAX)
			return bad(t, "more than %d dimensions",
				   CKPT_NDIM_MAX);
		rc = number(t, &out->dim[out->ndim]);
		if (rc < 0)
			return rc;
		out->ndim++;
		comma = peek(t) == ',';
		t->at += comma;
	}
	if (rc == 0 && out->ndim == 1 && !comma)
		return bad(t, "the shape is a number, not a tuple");
	if (rc == 0)
		t->at++;
	return rc;
}

/* ---- the dtype ---- */

/* What an array holds that no tensor can; "" when there is no such dtype. */
static const char *no_tensor(const char *d, size_t len)
{
	static const struct {
		char kind;
		const char *what;
	} kinds[] = {
		{ 'O', "Python objects, which only pickle can read" },
		{ 'S', "byte strings" }, { 'a', "byte strings" },
		{ 'U', "text" }, { 'V', "raw bytes (void)" },
		{ 'M', "dates (datetime64)" }, { 'm', "times (timedelta64)" },
		{ 'T', "text of variable length" },
	};
	size_t at = len > 0 && strchr("<>|=", d[0]) ? 1 : 0;

	for (size_t i = 0; len > at && i < CKB_ARRAY_LEN(kinds); i++)
		if (d[at] == kinds[i].kind)
			return kinds[i].what;
	if (len == at + 3 && (memcmp(d + at, "f16", 3) == 0 ||
			      memcmp(d + at, "f12", 3) == 0 ||
			      memcmp(d + at, "c32", 3) == 0 ||
			      memcmp(d + at, "c24", 3) == 0))
		return "long doubles, whose form depends on the machine";
	return "";
}

static int refuse(const char *d, size_t len, struct ckpt_err *err)
{
	char q[CKB_QUOTE_BYTES / 2];
	const char *what = no_tensor(d, len);

	ckb_quote(q, sizeof(q), d, len);
	if (*what)
		return ckb_err(err, CKPT_EINVAL, "an array of %s (dtype '%s'), "
			       "which no tensor holds", what, q);
	if (len > 0 && !strchr("<>|", d[0]))
		return ckb_err(err, CKPT_EFORMAT, "its dtype '%s' does not say "
			       "the byte order; save it with NumPy again", q);
	return ckb_err(err, CKPT_EFORMAT, "its dtype '%s' is unknown", q);
}

/* "V1", "V2": what are these bytes? */
static int raw_bytes(const char *d, uint32_t bytes,
		     enum ckpt_dtype void_dtype, enum ckpt_dtype *out,
		     struct ckpt_err *err)
{
	if (ckpt_dtype_bits(void_dtype) == 8 * bytes ||
	    (void_dtype == CKPT_F4 && bytes == 1))
		*out = void_dtype;
	else if (d[0] == '<' && bytes == 2)
		*out = CKPT_BF16; /* as NumPy writes that of ml_dtypes */
	else
		return ckb_err(err, CKPT_EINVAL, "its dtype '%.3s' says only "
			       "that an element has %u byte%s; say with a "
			       "dtype (--dtype, void_dtype) which of that "
			       "size it is, such as %s", d, bytes,
			       bytes > 1 ? "s" : "",
			       bytes > 1 ? "BF16" : "F8_E4M3");
	return 0;
}

static int dtype(const char *d, size_t len, enum ckpt_dtype void_dtype,
		 struct ckx_npy *out, struct ckpt_err *err)
{
	static const struct {
		const char *code; /* kind and bytes */
		enum ckpt_dtype dtype;
		uint32_t unit;    /* bytes that have an order */
	} table[] = {
		{ "b1", CKPT_BOOL, 1 }, { "i1", CKPT_I8, 1 },
		{ "u1", CKPT_U8, 1 }, { "f1", CKPT_F8_E5M2, 1 },
		{ "i2", CKPT_I16, 2 }, { "u2", CKPT_U16, 2 },
		{ "i4", CKPT_I32, 4 }, { "u4", CKPT_U32, 4 },
		{ "i8", CKPT_I64, 8 }, { "u8", CKPT_U64, 8 },
		{ "f2", CKPT_F16, 2 }, { "f4", CKPT_F32, 4 },
		{ "f8", CKPT_F64, 8 }, { "c8", CKPT_C64, 4 },
		{ "c16", CKPT_C128, 8 },
	};

	out->swap_bytes = 0;
	if (len == 3 && d[0] != '>' && strchr("<|", d[0]) && d[1] == 'V' &&
	    (d[2] == '1' || d[2] == '2')) {
		out->item_bytes = (uint32_t)(d[2] - '0');
		return raw_bytes(d, out->item_bytes, void_dtype, &out->dtype,
				 err);
	}
	for (size_t i = 0; i < CKB_ARRAY_LEN(table); i++) {
		if (len < 2 || strlen(table[i].code) != len - 1 ||
		    memcmp(d + 1, table[i].code, len - 1) != 0 ||
		    !strchr("<>|", d[0]))
			continue;
		/* '|' has no order: only single bytes can do without */
		if (d[0] == '|' && table[i].unit > 1)
			break;
		/* the one form that ml_dtypes writes, and NumPy never reads */
		if (table[i].dtype == CKPT_F8_E5M2 && d[0] != '<')
			break;
		out->dtype = table[i].dtype;
		out->item_bytes = ckpt_dtype_bits(out->dtype) / 8;
		if (d[0] == '>' && table[i].unit > 1)
			out->swap_bytes = table[i].unit;
		return 0;
	}
	return refuse(d, len, err);
}

/* ---- the header ---- */

struct fields {
	unsigned seen;
	const char *descr;
	size_t descr_len;
	bool fortran;
	struct ckpt_shape shape;
};

static int field(struct text *t, struct fields *f)
{
	static const char *const names[] = { "descr", "fortran_order",
					     "shape" };
	const char *key;
	char q[CKB_QUOTE_BYTES / 2];
	size_t len = 0, i;
	int rc = string(t, &key, &len), c;

	if (rc == 0)
		rc = want(t, ':', "behind a key");
	if (rc < 0)
		return rc;
	for (i = 0; i < CKB_ARRAY_LEN(names); i++)
		if (strlen(names[i]) == len && memcmp(names[i], key, len) == 0)
			break;
	if (i == CKB_ARRAY_LEN(names))
		return bad(t, "'%s' is none of the keys descr, fortran_order "
			   "and shape", ckb_quote(q, sizeof(q), key, len));
	if (f->seen & 1u << i)
		return bad(t, "the key %s is given twice", names[i]);
	f->seen |= 1u << i;
	if (1u << i == ORDER)
		return order(t, &f->fortran);
	if (1u << i == SHAPE)
		return shape(t, &f->shape);
	c = peek(t);
	if (c == '[' || c == '(')
		return ckb_err(t->err, CKPT_EINVAL, c == '['
			       ? "a structured array: its elements are records "
				 "of several fields, which no tensor holds"
			       : "an array of arrays (a dtype with a shape), "
				 "which no tensor holds");
	return string(t, &f->descr, &f->descr_len);
}

static int literal(struct text *t, struct fields *f)
{
	bool comma = true;
	int rc = want(t, '{', "at the beginning");

	while (rc == 0 && peek(t) != '}') {
		if (!comma)
			return bad(t, "a ',' must stand behind a value");
		rc = field(t, f);
		if (rc == 0) {
			comma = peek(t) == ',';
			t->at += comma;
		}
	}
	if (rc < 0)
		return rc;
	t->at++;
	if (peek(t) != -1)
		return bad(t, "text follows the '}'");
	if (f->seen != (DESCR | ORDER | SHAPE))
		return bad(t, "it lacks one of descr, fortran_order and "
			   "shape");
	return 0;
}

/* Does the order make a difference? */
static bool two_dims(const struct ckpt_shape *s)
{
	uint32_t n = 0;

	for (uint32_t d = 0; d < s->ndim; d++)
		n += s->dim[d] > 1;
	return n > 1;
}

/* Bytes of the array, counted as NumPy does: empty dimensions aside, it must
 * stay below 2^63 too. */
static int sizes(struct ckx_npy *n, uint64_t file_len, struct ckpt_err *err)
{
	uint64_t bytes = n->item_bytes, have = file_len - n->data_off;
	char text[CKT_TEXT_BYTES];
	bool empty = false;

	ckt_shape_text(text, sizeof(text), &n->shape);
	for (uint32_t d = 0; d < n->shape.ndim; d++) {
		empty = empty || n->shape.dim[d] == 0;
		if (n->shape.dim[d] > 0 &&
		    (!ckb_mul_u64(bytes, n->shape.dim[d], &bytes) ||
		     bytes > INT64_MAX))
			return ckb_err(err, CKPT_EFORMAT, "its shape %s takes "
				       "2^63 bytes or more", text);
	}
	n->data_bytes = empty ? 0 : bytes;
	if (have < n->data_bytes)
		return ckb_err(err, CKPT_EFORMAT, "its shape %s takes %" PRIu64
			       " bytes, but only %" PRIu64 " follow the "
			       "header: it is truncated", text, n->data_bytes,
			       have);
	if (have > n->data_bytes)
		return ckb_err(err, CKPT_EFORMAT, "%" PRIu64 " bytes follow "
			       "the array of shape %s: a second array, or a "
			       "wrong shape; save the array by itself again",
			       have - n->data_bytes, text);
	return 0;
}

/* The prefix: version and place of the text. */
static int prefix(const uint8_t *bytes, size_t len, uint64_t file_len,
		  struct text *t, struct ckpt_err *err)
{
	uint64_t from = len >= 7 && bytes[6] == 1 ? 10 : 12, n;

	if (len < 8 || memcmp(bytes, "\223NUMPY", 6) != 0)
		return ckb_err(err, CKPT_EFORMAT, "it does not begin like an "
			       ".npy file, with \\x93NUMPY and a version");
	if (bytes[6] < 1 || bytes[6] > 3 || bytes[7] != 0)
		return ckb_err(err, CKPT_EFORMAT, "its version %u.%u is none "
			       "of .npy's: 1.0, 2.0 and 3.0", bytes[6],
			       bytes[7]);
	n = len < from ? 0 : from == 10 ? ckb_get_u16(bytes + 8)
					: ckb_get_u32(bytes + 8);
	if (len < from || n > file_len - from)
		return ckb_err(err, CKPT_EFORMAT, "it ends in its header: it "
			       "is truncated");
	if (n > CKX_NPY_TEXT_MAX)
		return ckb_err(err, CKPT_EFORMAT, "its header has %" PRIu64
			       " bytes%s; NumPy reads at most %u", n,
			       memmem(bytes, len, "'descr': [", 10)
			       ? ", as a structured array's, which no tensor "
				 "holds" : "", CKX_NPY_TEXT_MAX);
	CKB_REQUIRE(len >= from + n);
	*t = (struct text){ .s = (const char *)bytes + from, .len = (size_t)n,
			    .version = bytes[6], .err = err };
	return 0;
}

int ckx_npy_parse(const uint8_t *bytes, size_t len, uint64_t file_len,
		  enum ckpt_dtype void_dtype, struct ckx_npy *out,
		  struct ckpt_err *err)
{
	struct fields f = { 0 };
	struct text t;
	int rc;

	CKB_REQUIRE(len == ckb_min_u64(file_len, CKX_NPY_HEAD_MAX));
	rc = prefix(bytes, len, file_len, &t, err);
	if (rc == 0)
		rc = literal(&t, &f);
	if (rc < 0)
		return rc;
	memset(out, 0, sizeof(*out));
	out->shape = f.shape;
	out->data_off = (uint64_t)((const uint8_t *)t.s - bytes) + t.len;
	out->fortran = f.fortran && two_dims(&f.shape);
	rc = dtype(f.descr, f.descr_len, void_dtype, out, err);
	return rc == 0 ? sizes(out, file_len, err) : rc;
}
