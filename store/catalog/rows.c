/* SPDX-License-Identifier: Apache-2.0 */
/*
 * rows.c - a manifest's items, packs and tensors, each row proved before it
 * is handed out (S10).
 *
 * A page checksum says that the bytes are what was written, not that who wrote
 * them meant well: types are held against the schema again (STRICT binds only
 * writers), then every field against the format's rules and against the rows
 * it names.
 *
 * Threads: as manifest.c; the lock is held over a whole walk, so callbacks
 * must not come back to the manifest.
 */
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "base/limits.h"
#include "base/text.h"
#include "catalog/manifest_impl.h"
#include "catalog/schema.h"
#include "format/config.h"
#include "format/name.h"
#include "tensor/dtype.h"

bool ckq_row_types(sqlite3_stmt *s, const char *types)
{
	for (int i = 0; types[i]; i++) {
		int have = sqlite3_column_type(s, i);
		char want = types[i];

		if (want < 'a') {
			if (have == SQLITE_NULL)
				continue;
			want = (char)(want - 'A' + 'a');
		}
		if (have != (want == 'i' ? SQLITE_INTEGER
			     : want == 't' ? SQLITE_TEXT : SQLITE_BLOB))
			return false;
	}
	return true;
}

bool ckq_row_text(sqlite3_stmt *s, int i)
{
	const char *text = (const char *)sqlite3_column_text(s, i);
	size_t len = (size_t)sqlite3_column_bytes(s, i);

	return text && strlen(text) == len && ckb_utf8_ok(text, len);
}

bool ckq_row_json(sqlite3_stmt *s, int i)
{
	return sqlite3_column_type(s, i) == SQLITE_NULL ||
	       (sqlite3_column_bytes(s, i) <= (int)CKB_JSON_MAX &&
		ckq_row_text(s, i) &&
		ckf_json_object((const char *)sqlite3_column_text(s, i), "it",
				NULL) == 0);
}

bool ckq_row_blob(sqlite3_stmt *s, int i, void *out, size_t len)
{
	const void *blob = sqlite3_column_blob(s, i);

	if (!blob || (size_t)sqlite3_column_bytes(s, i) != len)
		return false;
	memcpy(out, blob, len);
	return true;
}

/* ---- walking ---- */

typedef int (*row_fn)(struct ckq_manifest *m, sqlite3_stmt *s, uint64_t number,
		      void *ctx, struct ckpt_err *err);

/* Run @sql; @row takes one row (its number from 0). 0, negative, or what a
 * callback returned to stop. The lock is held. */
static int walk(struct ckq_manifest *m, const char *sql, row_fn row, void *ctx,
		struct ckpt_err *err)
{
	sqlite3_stmt *s = NULL;
	uint64_t number = 0;
	int step = SQLITE_DONE;
	int rc = ckq_manifest_prepare(m, sql, &s, err);

	while (rc == 0 && (step = sqlite3_step(s)) == SQLITE_ROW) {
		if ((uint64_t)sqlite3_column_int64(s, 0) != number)
			rc = ckq_manifest_bad(m, err, "its rows are not "
					      "numbered 0, 1, 2, ...");
		else
			rc = row(m, s, number, ctx, err);
		number++;
	}
	if (rc == 0 && step != SQLITE_DONE)
		rc = ckq_manifest_failed(m, err);
	sqlite3_finalize(s);
	return rc;
}

/* ---- items and packs ---- */

struct item_ctx {
	ckq_item_fn fn;
	void *ctx;
};

static int item_row(struct ckq_manifest *m, sqlite3_stmt *s, uint64_t number,
		    void *ctx, struct ckpt_err *err)
{
	struct item_ctx *c = ctx;

	if (!ckq_row_types(s, "itttT") || !ckq_row_text(s, 1) ||
	    !ckq_row_text(s, 2) || !ckq_row_text(s, 3) ||
	    !ckq_row_json(s, 4))
		return ckq_manifest_bad(m, err, "an item's row is malformed");
	const char *name = (const char *)sqlite3_column_text(s, 1);
	int kind = ckq_kind_parse((const char *)sqlite3_column_text(s, 2));
	const char *separator = (const char *)sqlite3_column_text(s, 3);

	if (kind == 0 || strlen(separator) > 1 ||
	    (unsigned char)separator[0] > 127 ||
	    ckf_item_name(name, kind == CKPT_ITEM_ORIGIN, NULL) < 0)
		return ckq_manifest_bad(m, err, "an item's name, kind or "
					"separator is not a legal one");
	return c->fn(c->ctx, number, name, (enum ckpt_item_kind)kind,
		     separator, (const char *)sqlite3_column_text(s, 4));
}

int ckq_manifest_items(struct ckq_manifest *m, ckq_item_fn fn, void *ctx,
		       struct ckpt_err *err)
{
	struct item_ctx c = { fn, ctx };

	pthread_mutex_lock(&m->lock);
	int rc = walk(m, "SELECT id, name, kind, separator, metadata FROM item "
		      "ORDER BY id", item_row, &c, err);

	pthread_mutex_unlock(&m->lock);
	return rc;
}

struct pack_ctx {
	ckq_pack_fn fn;
	void *ctx;
};

static int pack_row(struct ckq_manifest *m, sqlite3_stmt *s, uint64_t number,
		    void *ctx, struct ckpt_err *err)
{
	struct pack_ctx *c = ctx;
	uint8_t uuid[CKPT_UUID_BYTES];

	if (!ckq_row_types(s, "ib") ||
	    !ckq_row_blob(s, 1, uuid, sizeof(uuid)))
		return ckq_manifest_bad(m, err, "a pack's row is malformed");
	return c->fn(c->ctx, number, uuid);
}

int ckq_manifest_packs(struct ckq_manifest *m, ckq_pack_fn fn, void *ctx,
		       struct ckpt_err *err)
{
	struct pack_ctx c = { fn, ctx };

	pthread_mutex_lock(&m->lock);
	int rc = walk(m, "SELECT id, uuid FROM pack ORDER BY id", pack_row, &c,
		      err);

	pthread_mutex_unlock(&m->lock);
	return rc;
}

/* ---- tensors ---- */

struct tensor_ctx {
	ckq_tensor_fn fn;
	void *ctx;
	sqlite3_stmt *named;  /* the row that an alias names */
	uint64_t item_count, layout_count;
	uint64_t last_item;
};

enum { T_ID, T_ITEM, T_NAME, T_DTYPE, T_SHAPE, T_BYTES, T_MEDIA, T_LAYOUT,
       T_ALIAS, T_STATS, T_ROOT, T_CHUNKS_LEN, T_CHUNKS_TYPE };
static const char tensor_types[] = "iibtbiTIIbBit";
/* length() and typeof() of a BLOB read its header, not its pages */
static const char tensor_sql[] =
	"SELECT id, item, name, dtype, shape, bytes, media_type, layout, "
	"alias_of, stats, root, coalesce(length(chunks), 0), typeof(chunks) "
	"FROM tensor ORDER BY id";

static bool is_null(sqlite3_stmt *s, int i)
{
	return sqlite3_column_type(s, i) == SQLITE_NULL;
}

static const char *take_shape(sqlite3_stmt *s, struct ckq_tensor *t)
{
	const char *code = (const char *)sqlite3_column_text(s, T_DTYPE);
	uint64_t bytes = 0;

	if (!code || !ckt_dtype_from_code(code, (size_t)sqlite3_column_bytes(
					  s, T_DTYPE), &t->dtype))
		return "its dtype is none";
	if (ckf_shape_decode(sqlite3_column_blob(s, T_SHAPE),
			     (size_t)sqlite3_column_bytes(s, T_SHAPE),
			     &t->shape, NULL) < 0)
		return "its shape is malformed";
	if (!is_null(s, T_MEDIA)) {
		t->media_type = (const char *)sqlite3_column_text(s, T_MEDIA);
		if (!ckq_row_text(s, T_MEDIA) ||
		    strlen(t->media_type) > CKB_MEDIA_TYPE_MAX)
			return "its media type is malformed";
		if (t->dtype != CKPT_U8 || t->shape.ndim != 1)
			return "a file is U8 of one dimension";
	}
	if (ckt_shape_bytes(t->dtype, &t->shape, &bytes, NULL) < 0 ||
	    bytes != t->bytes)
		return "its size does not fit its shape";
	return NULL;
}

/* Of a shape whose bytes are known to be below 2^63. */
static uint64_t elements(const struct ckpt_shape *shape)
{
	uint64_t n = 1;

	for (uint32_t d = 0; d < shape->ndim; d++)
		n *= shape->dim[d];
	return n;
}

/* NULL, or what is wrong with the row in itself. */
static const char *take_tensor(sqlite3_stmt *s, struct ckq_tensor *t)
{
	const char *kept = (const char *)sqlite3_column_text(s, T_CHUNKS_TYPE);

	t->item = (uint64_t)sqlite3_column_int64(s, T_ITEM);
	t->bytes = (uint64_t)sqlite3_column_int64(s, T_BYTES);
	t->has_layout = !is_null(s, T_LAYOUT);
	t->layout = (uint64_t)sqlite3_column_int64(s, T_LAYOUT);
	t->has_alias = !is_null(s, T_ALIAS);
	t->alias_of = (uint64_t)sqlite3_column_int64(s, T_ALIAS);
	t->has_root = !is_null(s, T_ROOT);
	t->chunks_len = (size_t)sqlite3_column_int64(s, T_CHUNKS_LEN);
	const char *why = take_shape(s, t);

	if (why)
		return why;
	if ((t->media_type ? ckf_file_name(t->name, t->name_len, NULL)
			   : ckf_tensor_name(t->name, t->name_len, NULL)) < 0)
		return "its name is not a legal one";
	if (ckf_stats_decode(sqlite3_column_blob(s, T_STATS),
			     (size_t)sqlite3_column_bytes(s, T_STATS),
			     &t->stats, NULL) < 0)
		return "its statistics are malformed";
	if (t->stats.value_class != CKPT_VALUES_NONE &&
	    t->stats.count != elements(&t->shape))
		return "its statistics are of another number of elements";
	if (t->has_root &&
	    !ckq_row_blob(s, T_ROOT, t->root, CKPT_DIGEST_BYTES))
		return "its root is malformed";
	bool none = t->has_alias || t->bytes == 0;

	if (!kept || strcmp(kept, none ? "null" : "blob") != 0 ||
	    (!none && t->chunks_len == 0) ||
	    t->chunks_len % CKF_CHUNK_ENTRY_BYTES != 0)
		return "its list of chunks is malformed";
	return NULL;
}

/* An alias names an earlier tensor of the same item, dtype and shape that is
 * no alias itself. */
static int check_alias(struct ckq_manifest *m, struct tensor_ctx *c,
		       sqlite3_stmt *s, const struct ckq_tensor *t,
		       const char **out_why, struct ckpt_err *err)
{
	sqlite3_stmt *of = c->named;

	*out_why = "it is an alias of what it cannot be";
	if (t->alias_of >= t->id)
		return 0;
	sqlite3_bind_int64(of, 1, (int64_t)t->alias_of);
	sqlite3_bind_value(of, 2, sqlite3_column_value(s, T_ITEM));
	sqlite3_bind_value(of, 3, sqlite3_column_value(s, T_DTYPE));
	sqlite3_bind_value(of, 4, sqlite3_column_value(s, T_SHAPE));
	int step = sqlite3_step(of);
	int rc = step == SQLITE_ROW || step == SQLITE_DONE
			 ? 0 : ckq_manifest_failed(m, err);

	if (step == SQLITE_ROW)
		*out_why = NULL;
	sqlite3_reset(of);
	return rc;
}

static int tensor_row(struct ckq_manifest *m, sqlite3_stmt *s, uint64_t number,
		      void *ctx, struct ckpt_err *err)
{
	struct tensor_ctx *c = ctx;
	struct ckq_tensor t = { .id = number };
	char q[CKB_QUOTE_BYTES], what[CKB_QUOTE_BYTES + 100];
	const char *why = NULL;
	int rc = 0;

	if (!ckq_row_types(s, tensor_types))
		return ckq_manifest_bad(m, err, "a tensor's row is malformed");
	t.name = sqlite3_column_blob(s, T_NAME);
	t.name_len = (size_t)sqlite3_column_bytes(s, T_NAME);
	if (!t.name)
		t.name = "";
	why = take_tensor(s, &t);
	if (!why && t.item >= c->item_count)
		why = "it belongs to no item";
	if (!why && t.item < c->last_item)
		why = "it does not stand with its item";
	if (!why && t.has_layout && t.layout >= c->layout_count)
		why = "its layout is none";
	if (!why && t.has_alias)
		rc = check_alias(m, c, s, &t, &why, err);
	if (rc < 0)
		return rc;
	if (why) {
		snprintf(what, sizeof(what), "tensor '%s': %s",
			 ckb_quote(q, sizeof(q), t.name, t.name_len), why);
		return ckq_manifest_bad(m, err, what);
	}
	c->last_item = t.item;
	return c->fn(c->ctx, &t);
}

static int count(struct ckq_manifest *m, const char *sql, uint64_t *out,
		 struct ckpt_err *err)
{
	sqlite3_stmt *s = NULL;
	int rc = ckq_manifest_prepare(m, sql, &s, err);

	if (rc == 0 && sqlite3_step(s) != SQLITE_ROW)
		rc = ckq_manifest_failed(m, err);
	if (rc == 0)
		*out = (uint64_t)sqlite3_column_int64(s, 0);
	sqlite3_finalize(s);
	return rc;
}

int ckq_manifest_tensors(struct ckq_manifest *m, ckq_tensor_fn fn, void *ctx,
			 struct ckpt_err *err)
{
	struct tensor_ctx c = { .fn = fn, .ctx = ctx };

	pthread_mutex_lock(&m->lock);
	int rc = count(m, "SELECT count(*) FROM item", &c.item_count, err);

	if (rc == 0)
		rc = count(m, "SELECT count(*) FROM layout", &c.layout_count,
			   err);
	if (rc == 0)
		rc = ckq_manifest_prepare(m, "SELECT 1 FROM tensor WHERE id=? "
					  "AND item=? AND dtype=? AND shape=? "
					  "AND alias_of IS NULL", &c.named,
					  err);
	if (rc == 0)
		rc = walk(m, tensor_sql, tensor_row, &c, err);
	sqlite3_finalize(c.named);
	pthread_mutex_unlock(&m->lock);
	return rc;
}
