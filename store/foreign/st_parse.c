/* SPDX-License-Identifier: Apache-2.0 */
/*
 * st_parse.c - a safetensors header's JSON -> tensors and metadata.
 *
 * One pass over the scanner's tokens. Each tensor is checked by itself here
 * (fields, dtype, bytes of its shape); st_check.c then looks at all of them
 * together. Accepted as the reference library does: unknown fields, white
 * space around the object, any name that is UTF-8. Refused though the library
 * takes it: an info given as an array, a dtype given as an object, a null
 * __metadata__ (accidents of its parser, not the format), more than
 * CKPT_NDIM_MAX dimensions, names over 64 KiB, __metadata__ over 16 MiB.
 * Names and dimensions have bounded memory, see st_store.c. Pure; one thread
 * per header.
 */
#include "foreign/st_internal.h"

#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "base/limits.h"
#include "foreign/json_scan.h"
#include "tensor/dtype.h"

/* One tensor while its info is read. */
struct info {
	const char *name;
	size_t name_len;
	enum ckpt_dtype dtype;
	uint32_t ndim;
	uint64_t dim[CKPT_NDIM_MAX];
	uint64_t offset[2];
	uint32_t seen; /* bit per entry of fields[] */
};

/* A tensor's own mistake: "tensor 'a' (byte 17 of the header): ..." */
CKB_PRINTF(5, 6)
static int bad(const struct ckx_scan *s, const struct info *info,
	       struct ckpt_err *err, int code, const char *fmt, ...)
{
	char what[2 * CKB_QUOTE_BYTES], q[CKB_QUOTE_BYTES];
	va_list ap;

	va_start(ap, fmt);
	vsnprintf(what, sizeof(what), fmt, ap);
	va_end(ap);
	return ckb_err(err, code, "tensor '%s' (byte %zu of the header): %s",
		       ckb_quote(q, sizeof(q), info->name, info->name_len),
		       s->token_at, what);
}

/* The string just scanned, where it lies or decoded into @st's memory. */
static int take_text(struct ckx_st *st, const struct ckx_scan *s,
		     const char **out, size_t *out_len, struct ckpt_err *err)
{
	void *copy;
	int rc;

	*out = s->str;
	*out_len = s->str_len;
	if (!s->escaped)
		return 0;
	rc = ckx_st_alloc(st, s->str_len, &copy, err);
	if (rc < 0)
		return rc;
	*out_len = ckx_scan_decode(s, copy);
	ckx_st_shrink(st, s->str_len, *out_len);
	*out = copy;
	return 0;
}

static int parse_dtype(struct ckx_scan *s, struct info *info,
		       struct ckpt_err *err)
{
	char code[96], q[CKB_QUOTE_BYTES]; /* the longest: 11, all escaped */
	enum ckx_token token;
	size_t len = 0;
	int rc = ckx_scan_next(s, &token, err);

	if (rc < 0)
		return rc;
	if (token != CKX_STRING)
		return bad(s, info, err, CKPT_EFORMAT,
			   "its dtype is no string");
	if (s->str_len <= sizeof(code))
		len = ckx_scan_decode(s, code);
	/* C128 is a code of ours, which safetensors does not have */
	if (!ckt_dtype_from_code(code, len, &info->dtype) ||
	    info->dtype == CKPT_C128)
		return bad(s, info, err, CKPT_EFORMAT, "its dtype '%s' is "
			   "unknown", ckb_quote(q, sizeof(q), s->str,
						s->str_len));
	return 0;
}

/* A list of unsigned integers, at most @max, into @out. */
static int parse_list(struct ckx_scan *s, const struct info *info,
		      const char *what, uint32_t max, uint64_t *out,
		      uint32_t *out_count, struct ckpt_err *err)
{
	enum ckx_token token;
	uint32_t n = 0;
	int rc = ckx_scan_next(s, &token, err);

	if (rc < 0)
		return rc;
	if (token != CKX_ARRAY)
		return bad(s, info, err, CKPT_EFORMAT, "its %s is no list",
			   what);
	for (;; n++) {
		rc = ckx_scan_next(s, &token, err);
		if (rc < 0)
			return rc;
		if (token == CKX_ARRAY_END)
			break;
		if (token != CKX_UINT)
			return bad(s, info, err, CKPT_EFORMAT, "its %s holds "
				   "something other than a whole number from "
				   "0 to 2^64 - 1", what);
		if (n < max)
			out[n] = s->number;
	}
	*out_count = n;
	return 0;
}

static int parse_shape(struct ckx_scan *s, struct info *info,
		       struct ckpt_err *err)
{
	int rc = parse_list(s, info, "shape", CKPT_NDIM_MAX, info->dim,
			    &info->ndim, err);

	if (rc == 0 && info->ndim > CKPT_NDIM_MAX)
		return bad(s, info, err, CKPT_ELIMIT, "its shape has %u "
			   "dimensions; at most %d are supported", info->ndim,
			   CKPT_NDIM_MAX);
	return rc;
}

static int parse_offsets(struct ckx_scan *s, struct info *info,
			 struct ckpt_err *err)
{
	uint32_t count = 0;
	int rc = parse_list(s, info, "data_offsets", 2, info->offset, &count,
			    err);

	if (rc < 0)
		return rc;
	if (count != 2)
		return bad(s, info, err, CKPT_EFORMAT, "its data_offsets "
			   "must be 2 numbers, not %u", count);
	if (info->offset[1] < info->offset[0])
		return bad(s, info, err, CKPT_EFORMAT, "its data_offsets end "
			   "at %" PRIu64 ", before they begin at %" PRIu64,
			   info->offset[1], info->offset[0]);
	return 0;
}

static const struct {
	const char *name;
	int (*parse)(struct ckx_scan *s, struct info *info,
		     struct ckpt_err *err);
} fields[] = {
	{ "dtype", parse_dtype },
	{ "shape", parse_shape },
	{ "data_offsets", parse_offsets },
};

static int parse_field(struct ckx_scan *s, struct info *info,
		       struct ckpt_err *err)
{
	enum ckx_token token;
	int rc;

	for (size_t i = 0; i < CKB_ARRAY_LEN(fields); i++) {
		if (!ckx_scan_is(s, fields[i].name))
			continue;
		if (info->seen & 1u << i)
			return bad(s, info, err, CKPT_EFORMAT, "its %s is "
				   "given twice", fields[i].name);
		info->seen |= 1u << i;
		return fields[i].parse(s, info, err);
	}
	rc = ckx_scan_next(s, &token, err);
	return rc < 0 ? rc : ckx_scan_skip(s, token, err);
}

/* Do the bytes fit the shape? The product is taken from left to right, as the
 * library does: [0, 2^63, 2] has no bytes, [2^63, 2, 0] overflows. */
static int check_bytes(const struct ckx_scan *s, const struct info *info,
		       struct ckpt_err *err)
{
	uint64_t bits = 1, have = info->offset[1] - info->offset[0];
	bool fits = true;

	for (uint32_t d = 0; fits && d < info->ndim; d++)
		fits = ckb_mul_u64(bits, info->dim[d], &bits);
	fits = fits && ckb_mul_u64(bits, ckpt_dtype_bits(info->dtype), &bits);
	if (!fits)
		return bad(s, info, err, CKPT_EFORMAT, "its size overflows 64 "
			   "bits");
	if (bits % 8 != 0)
		return bad(s, info, err, CKPT_EFORMAT, "it takes %" PRIu64
			   " bits, which is no whole number of bytes", bits);
	if (bits / 8 != have)
		return bad(s, info, err, CKPT_EFORMAT, "its dtype and shape "
			   "take %" PRIu64 " bytes, its data_offsets span %"
			   PRIu64, bits / 8, have);
	return 0;
}

static int parse_info(struct ckx_scan *s, struct info *info,
		      struct ckpt_err *err)
{
	enum ckx_token token;
	int rc = ckx_scan_next(s, &token, err);

	if (rc < 0)
		return rc;
	if (token == CKX_ARRAY)
		return bad(s, info, err, CKPT_EFORMAT, "its info is a list; "
			   "only an object with named fields is accepted");
	if (token != CKX_OBJECT)
		return bad(s, info, err, CKPT_EFORMAT, "its info is no object");
	for (;;) {
		rc = ckx_scan_next(s, &token, err);
		if (rc < 0)
			return rc;
		if (token == CKX_OBJECT_END)
			break;
		rc = parse_field(s, info, err);
		if (rc < 0)
			return rc;
	}
	for (size_t i = 0; i < CKB_ARRAY_LEN(fields); i++)
		if (!(info->seen & 1u << i))
			return bad(s, info, err, CKPT_EFORMAT, "its %s is "
				   "missing", fields[i].name);
	return check_bytes(s, info, err);
}

static int parse_tensor(struct ckx_st *st, struct ckx_scan *s,
			struct ckpt_err *err)
{
	struct info info = { .name = s->str, .name_len = s->str_len };
	struct ckx_st_tensor *t;
	void *dims = NULL;
	int rc = 0;

	/* a byte of a name takes at most 6 bytes of text */
	if (s->str_len / (s->escaped ? 6 : 1) <= CKB_TENSOR_NAME_MAX)
		rc = take_text(st, s, &info.name, &info.name_len, err);
	if (rc < 0)
		return rc;
	if (info.name_len > CKB_TENSOR_NAME_MAX)
		return bad(s, &info, err, CKPT_ELIMIT, "its name is longer "
			   "than %u bytes", CKB_TENSOR_NAME_MAX);
	rc = parse_info(s, &info, err);
	if (rc == 0)
		rc = ckx_st_alloc(st, info.ndim * sizeof(info.dim[0]), &dims,
				  err);
	if (rc == 0)
		rc = ckx_st_add_tensor(st, &t, err);
	if (rc < 0)
		return rc;
	memcpy(dims, info.dim, info.ndim * sizeof(info.dim[0]));
	t->name = info.name;
	t->name_len = (uint32_t)info.name_len;
	t->dim = dims;
	t->ndim = (uint16_t)info.ndim;
	t->dtype = (uint16_t)info.dtype;
	t->begin = info.offset[0];
	t->end = info.offset[1];
	return 0;
}

static int parse_pair(struct ckx_st *st, struct ckx_scan *s,
		      struct ckpt_err *err)
{
	char q[CKB_QUOTE_BYTES];
	struct ckx_st_pair *p;
	enum ckx_token token;
	const char *key, *value = NULL;
	size_t key_len, value_len = 0;
	int rc = take_text(st, s, &key, &key_len, err);

	if (rc == 0)
		rc = ckx_scan_next(s, &token, err);
	if (rc < 0)
		return rc;
	if (token != CKX_STRING)
		return ckb_err(err, CKPT_EFORMAT, "__metadata__ (byte %zu of "
			       "the header): the value of '%s' is no string",
			       s->token_at, ckb_quote(q, sizeof(q), key,
						      key_len));
	rc = take_text(st, s, &value, &value_len, err);
	if (rc == 0)
		rc = ckx_st_add_pair(st, &p, err);
	if (rc < 0)
		return rc;
	p->key = key;
	p->key_len = (uint32_t)key_len;
	p->value = value;
	p->value_len = (uint32_t)value_len;
	return 0;
}

static int parse_metadata(struct ckx_st *st, struct ckx_scan *s,
			  struct ckpt_err *err)
{
	size_t from = s->token_at;
	enum ckx_token token;
	int rc;

	if (st->has_metadata)
		return ckb_err(err, CKPT_EFORMAT, "__metadata__ is given twice "
			       "(byte %zu of the header)", from);
	rc = ckx_scan_next(s, &token, err);
	if (rc < 0)
		return rc;
	if (token != CKX_OBJECT)
		return ckb_err(err, CKPT_EFORMAT, "__metadata__ is no object "
			       "(byte %zu of the header)", s->token_at);
	st->has_metadata = true;
	while ((rc = ckx_scan_next(s, &token, err)) == 0) {
		if (s->at - from > CKB_JSON_MAX)
			return ckb_err(err, CKPT_ELIMIT, "__metadata__ has "
				       "more than %u bytes", CKB_JSON_MAX);
		if (token == CKX_OBJECT_END)
			return 0;
		rc = parse_pair(st, s, err);
		if (rc < 0)
			return rc;
	}
	return rc;
}

static int parse_header(struct ckx_st *st, struct ckx_scan *s,
			struct ckpt_err *err)
{
	enum ckx_token token;
	int rc = ckx_scan_next(s, &token, err);

	if (rc < 0)
		return rc;
	if (token != CKX_OBJECT)
		return ckb_err(err, CKPT_EFORMAT, "the header is JSON, but no "
			       "object");
	while ((rc = ckx_scan_next(s, &token, err)) == 0) {
		if (token == CKX_OBJECT_END)
			break;
		if (ckx_scan_is(s, "__metadata__"))
			rc = parse_metadata(st, s, err);
		else
			rc = parse_tensor(st, s, err);
		if (rc < 0)
			return rc;
	}
	if (rc == 0)
		rc = ckx_scan_next(s, &token, err); /* nothing but the end */
	return rc;
}

int ckx_st_parse(struct ckx_st *st, const char *json, size_t len,
		 uint64_t file_len, struct ckpt_err *err)
{
	struct ckx_scan s;
	int rc;

	CKB_REQUIRE(file_len >= 8 && len <= file_len - 8);
	memset(st, 0, sizeof(*st));
	st->data_off = 8 + (uint64_t)len;
	ckx_scan_init(&s, json, len, " of the header");
	if (len == 0)
		rc = ckb_err(err, CKPT_EFORMAT, "the header is empty: its "
			     "length is 0");
	else
		rc = parse_header(st, &s, err);
	if (rc == 0)
		rc = ckx_st_check(st, file_len, err);
	if (rc < 0)
		ckx_st_fini(st);
	return rc;
}
