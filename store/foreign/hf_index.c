/* SPDX-License-Identifier: Apache-2.0 */
/*
 * hf_index.c - the index of a Hugging Face folder.
 *
 * One pass over the strict scanner's tokens; an entry takes 24 bytes, its texts
 * stay where they are. Keys other than weight_map are skipped, whatever they
 * hold. A shard must be a path inside the folder: what begins with '/' or has a
 * component '..' is refused here, before anybody opens it (S10). Pure; one
 * thread per index.
 */
#include "foreign/hf_index.h"

#include <string.h>

#include "base/buf.h"
#include "base/limits.h"
#include "foreign/json_scan.h"
#include "foreign/safetensors.h"

/* The string just scanned, decoded in place. */
static uint32_t take(const struct ckx_scan *s, char *text, const char **out)
{
	char *at = text + (s->str - s->text);

	*out = at;
	return (uint32_t)(s->escaped ? ckx_scan_decode(s, at) : s->str_len);
}

/* Is it a path that stays inside? */
static bool inside(const char *file, size_t len)
{
	for (size_t at = 0;;) {
		const char *slash = memchr(file + at, '/', len - at);
		size_t end = slash ? (size_t)(slash - file) : len;
		size_t n = end - at;

		if (n == 0 || (n == 1 && file[at] == '.') ||
		    (n == 2 && file[at] == '.' && file[at + 1] == '.'))
			return false;
		if (!slash)
			return !memchr(file, '\0', len);
		at = end + 1;
	}
}

static int bad_file(const struct ckx_hf_entry *e, struct ckpt_err *err)
{
	char name[CKB_QUOTE_BYTES], file[CKB_QUOTE_BYTES];

	return ckb_err(err, CKPT_EFORMAT, "weight_map puts tensor '%s' into "
		       "'%s', which is no path inside the folder",
		       ckb_quote(name, sizeof(name), e->name, e->name_len),
		       ckb_quote(file, sizeof(file), e->file, e->file_len));
}

static int add(struct ckx_hf_index *ix, struct ckx_scan *s, char *text,
	       struct ckpt_err *err)
{
	struct ckx_hf_entry *e;
	enum ckx_token token;
	char q[CKB_QUOTE_BYTES];
	int rc;

	if (ix->count >= CKX_ST_TENSOR_MAX)
		return ckb_err(err, CKPT_ELIMIT, "weight_map has more than %u "
			       "names", CKX_ST_TENSOR_MAX);
	if (!ckb_room(&ix->entries, ix->count, &ix->cap,
		      sizeof(*ix->entries)))
		return ckb_err_nomem(err);
	e = &ix->entries[ix->count];
	e->name_len = take(s, text, &e->name);
	if (e->name_len > CKB_TENSOR_NAME_MAX)
		return ckb_err(err, CKPT_ELIMIT, "weight_map has a name of "
			       "%u bytes; at most %u are supported",
			       e->name_len, CKB_TENSOR_NAME_MAX);
	rc = ckx_scan_next(s, &token, err);
	if (rc < 0)
		return rc;
	if (token != CKX_STRING || s->str_len > UINT32_MAX)
		return ckb_err(err, CKPT_EFORMAT, "weight_map gives tensor "
			       "'%s' no file name (byte %zu)",
			       ckb_quote(q, sizeof(q), e->name, e->name_len),
			       s->token_at);
	e->file_len = take(s, text, &e->file);
	ix->count++;
	return inside(e->file, e->file_len) ? 0 : bad_file(e, err);
}

static int parse_map(struct ckx_hf_index *ix, struct ckx_scan *s, char *text,
		     struct ckpt_err *err)
{
	enum ckx_token token;
	int rc = ckx_scan_next(s, &token, err);

	if (rc == 0 && token != CKX_OBJECT)
		return ckb_err(err, CKPT_EFORMAT, "its weight_map is no JSON "
			       "object (byte %zu)", s->token_at);
	while (rc == 0) {
		rc = ckx_scan_next(s, &token, err);
		if (rc == 0 && token == CKX_OBJECT_END)
			return 0;
		if (rc == 0)
			rc = add(ix, s, text, err);
	}
	return rc;
}

/* The members of the top object. */
static int parse_top(struct ckx_hf_index *ix, struct ckx_scan *s, char *text,
		     bool *out_map, struct ckpt_err *err)
{
	enum ckx_token token;
	int rc = 0;

	while (rc == 0) {
		rc = ckx_scan_next(s, &token, err);
		if (rc < 0 || token == CKX_OBJECT_END)
			break;
		if (ckx_scan_is(s, "weight_map")) {
			if (*out_map)
				return ckb_err(err, CKPT_EFORMAT, "it has two "
					       "keys weight_map");
			*out_map = true;
			rc = parse_map(ix, s, text, err);
			continue;
		}
		rc = ckx_scan_next(s, &token, err);
		if (rc == 0)
			rc = ckx_scan_skip(s, token, err);
	}
	if (rc == 0) /* nothing may follow */
		rc = ckx_scan_next(s, &token, err);
	return rc;
}

int ckx_name_compare(const char *a, size_t a_len, const char *b, size_t b_len)
{
	size_t n = a_len < b_len ? a_len : b_len;
	int c = n ? memcmp(a, b, n) : 0;

	return c ? c : a_len < b_len ? -1 : a_len > b_len;
}

static int by_name(const void *a, const void *b)
{
	const struct ckx_hf_entry *x = a, *y = b;

	return ckx_name_compare(x->name, x->name_len, y->name, y->name_len);
}

static int check_twice(const struct ckx_hf_index *ix, struct ckpt_err *err)
{
	char q[CKB_QUOTE_BYTES];

	for (size_t i = 1; i < ix->count; i++) {
		const struct ckx_hf_entry *e = &ix->entries[i];

		if (by_name(e - 1, e) == 0)
			return ckb_err(err, CKPT_EFORMAT, "weight_map names "
				       "tensor '%s' twice",
				       ckb_quote(q, sizeof(q), e->name,
						 e->name_len));
	}
	return 0;
}

static int parse(struct ckx_hf_index *ix, char *text, size_t len,
		 struct ckpt_err *err)
{
	struct ckx_scan s;
	enum ckx_token token;
	bool has_map = false;
	int rc;

	ckx_scan_init(&s, text, len, "");
	rc = ckx_scan_next(&s, &token, err);
	if (rc == 0 && token != CKX_OBJECT)
		return ckb_err(err, CKPT_EFORMAT, "it is JSON, but no object");
	if (rc == 0)
		rc = parse_top(ix, &s, text, &has_map, err);
	if (rc == 0 && !has_map)
		return ckb_err(err, CKPT_EFORMAT, "it has no weight_map, which "
			       "says which shard holds which tensor");
	if (rc < 0)
		return rc;
	if (ix->count > 0)
		qsort(ix->entries, ix->count, sizeof(*ix->entries), by_name);
	return check_twice(ix, err);
}

int ckx_hf_index_parse(struct ckx_hf_index *ix, char *text, size_t len,
		       struct ckpt_err *err)
{
	int rc;

	memset(ix, 0, sizeof(*ix));
	rc = parse(ix, text, len, err);
	if (rc < 0)
		ckx_hf_index_fini(ix);
	return rc;
}

void ckx_hf_index_fini(struct ckx_hf_index *ix)
{
	free(ix->entries);
	memset(ix, 0, sizeof(*ix));
}
