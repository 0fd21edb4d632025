/* SPDX-License-Identifier: Apache-2.0 */
/*
 * build.c - make a manifest: an in-memory SQLite database, then one byte
 * string with every page's checksum in its reserved bytes (DESIGN 4).
 *
 * Built in memory so that the caller writes and syncs it like any other file,
 * through struct ckb_sys; its size follows from names and chunk entries, not
 * from tensor bytes. The same calls give the same bytes. One thread.
 */
#include <inttypes.h>
#include <sqlite3.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/bytes.h"
#include "base/hash.h"
#include "base/limits.h"
#include "catalog/manifest.h"
#include "catalog/schema.h"

enum { INS_ITEM, INS_PACK, INS_LAYOUT, FIND_LAYOUT, INS_TENSOR, STMT_COUNT };

static const char *const statements[STMT_COUNT] = {
	"INSERT INTO item VALUES(?,?,?,?,?)",
	"INSERT INTO pack VALUES(?,?)",
	"INSERT INTO layout VALUES(?,?)",
	"SELECT id FROM layout WHERE spec=?",
	"INSERT INTO tensor VALUES(?,?,?,?,?,?,?,?,?,?,?,?)",
};

struct ckq_build {
	sqlite3 *db;
	sqlite3_stmt *stmt[STMT_COUNT];
	int64_t items, packs, layouts, tensors;
	int bad_bind; /* SQLITE_*: a value of the row at hand cannot be held */
};

static int failed(struct ckq_build *b, struct ckpt_err *err)
{
	switch (b->bad_bind ? b->bad_bind : sqlite3_errcode(b->db)) {
	case SQLITE_NOMEM:
		return ckb_err_nomem(err);
	case SQLITE_TOOBIG:
		return ckb_err(err, CKPT_ELIMIT, "the manifest cannot hold a "
			       "row of 10^9 bytes or more");
	case SQLITE_CONSTRAINT:
		return ckb_err(err, CKPT_EINVAL, "the manifest has one like "
			       "it already (%s)", sqlite3_errmsg(b->db));
	default:
		return ckb_err(err, CKPT_EINVAL, "cannot build the manifest: "
			       "%s", sqlite3_errmsg(b->db));
	}
}

/* SQLite holds 63 bits. */
static int fits(uint64_t v, const char *what, struct ckpt_err *err)
{
	return v <= INT64_MAX ? 0 : ckb_err(err, CKPT_ELIMIT, "%s %" PRIu64
					    " is 2^63 or more", what, v);
}

/* A value that is too big binds as NULL: step() must not let it pass. */
static void bind_blob(struct ckq_build *b, sqlite3_stmt *s, int i,
		      const void *p, size_t len)
{
	int rc = sqlite3_bind_blob64(s, i, len ? p : "", len, SQLITE_STATIC);

	if (rc != SQLITE_OK)
		b->bad_bind = rc;
}

static void bind_text(struct ckq_build *b, sqlite3_stmt *s, int i,
		      const char *text)
{
	if (!text)
		sqlite3_bind_null(s, i);
	else if (sqlite3_bind_text(s, i, text, -1, SQLITE_STATIC) != SQLITE_OK)
		b->bad_bind = SQLITE_TOOBIG;
}

/* Bound values are borrowed: they are gone when the caller returns. */
static int step(struct ckq_build *b, int which, struct ckpt_err *err)
{
	sqlite3_stmt *s = b->stmt[which];
	int rc = b->bad_bind ? b->bad_bind : sqlite3_step(s);
	int result = rc == SQLITE_DONE || rc == SQLITE_ROW ? 0
							   : failed(b, err);

	sqlite3_reset(s);
	sqlite3_clear_bindings(s);
	b->bad_bind = 0;
	return result;
}

static int insert_facts(struct ckq_build *b, const struct ckq_facts *f,
			struct ckpt_err *err)
{
	sqlite3_stmt *s = NULL;

	CKB_REQUIRE(f->saved_as && f->writer);
	int rc = fits(f->generation, "generation", err);

	if (rc == 0)
		rc = fits(f->seq, "commit number", err);
	if (rc == 0 && f->has_step)
		rc = fits(f->step, "step", err);
	if (rc < 0)
		return rc;
	if (sqlite3_prepare_v2(b->db, "INSERT INTO checkpoint VALUES"
			       "(1,?,?,?,?,?,?,?,?,?,?,?,?,'sha256')", -1, &s,
			       NULL) != SQLITE_OK)
		return failed(b, err);
	bind_blob(b, s, 1, f->uuid, CKPT_UUID_BYTES);
	bind_blob(b, s, 2, f->store_uuid, CKPT_UUID_BYTES);
	sqlite3_bind_int64(s, 3, (int64_t)f->generation);
	sqlite3_bind_int64(s, 4, (int64_t)f->seq);
	if (f->has_step)
		sqlite3_bind_int64(s, 5, (int64_t)f->step);
	sqlite3_bind_int64(s, 6, f->created_ns);
	if (f->has_parent)
		bind_blob(b, s, 7, f->parent, CKPT_UUID_BYTES);
	bind_text(b, s, 8, f->saved_as);
	bind_text(b, s, 9, f->metadata);
	bind_text(b, s, 10, f->metrics);
	bind_text(b, s, 11, f->writer);
	sqlite3_bind_int64(s, 12, f->tile_rule);
	rc = !b->bad_bind && sqlite3_step(s) == SQLITE_DONE ? 0
							     : failed(b, err);
	sqlite3_finalize(s);
	return rc;
}

static int create(struct ckq_build *b, struct ckpt_err *err)
{
	char pragma[80];
	int reserve = 8;

	if (sqlite3_open_v2(":memory:", &b->db,
			    SQLITE_OPEN_READWRITE | SQLITE_OPEN_CREATE |
			    SQLITE_OPEN_NOMUTEX, NULL) != SQLITE_OK)
		return failed(b, err);
	snprintf(pragma, sizeof(pragma), "PRAGMA page_size=%u",
		 CKB_MANIFEST_PAGE);
	if (sqlite3_exec(b->db, pragma, NULL, NULL, NULL) != SQLITE_OK ||
	    sqlite3_file_control(b->db, NULL, SQLITE_FCNTL_RESERVE_BYTES,
				 &reserve) != SQLITE_OK)
		return failed(b, err);
	snprintf(pragma, sizeof(pragma),
		 "PRAGMA application_id=%d; PRAGMA user_version=%d",
		 CKQ_APPLICATION_ID, CKQ_USER_VERSION);
	if (sqlite3_exec(b->db, pragma, NULL, NULL, NULL) != SQLITE_OK ||
	    sqlite3_exec(b->db, "BEGIN", NULL, NULL, NULL) != SQLITE_OK)
		return failed(b, err);
	for (int i = 0; i < CKQ_TABLE_COUNT; i++)
		if (sqlite3_exec(b->db, ckq_schema[i], NULL, NULL, NULL) !=
		    SQLITE_OK)
			return failed(b, err);
	for (int i = 0; i < STMT_COUNT; i++)
		if (sqlite3_prepare_v2(b->db, statements[i], -1, &b->stmt[i],
				       NULL) != SQLITE_OK)
			return failed(b, err);
	return 0;
}

int ckq_build_new(const struct ckq_facts *facts, struct ckq_build **out,
		  struct ckpt_err *err)
{
	struct ckq_build *b = calloc(1, sizeof(*b));

	*out = NULL;
	if (!b)
		return ckb_err_nomem(err);
	int rc = create(b, err);

	if (rc == 0)
		rc = insert_facts(b, facts, err);
	if (rc < 0) {
		ckq_build_free(b);
		return rc;
	}
	*out = b;
	return 0;
}

void ckq_build_free(struct ckq_build *b)
{
	if (!b)
		return;
	for (int i = 0; i < STMT_COUNT; i++)
		sqlite3_finalize(b->stmt[i]);
	sqlite3_close(b->db);
	free(b);
}

int ckq_build_item(struct ckq_build *b, const char *name,
		   enum ckpt_item_kind kind, const char *separator,
		   const char *metadata, struct ckpt_err *err)
{
	sqlite3_stmt *s = b->stmt[INS_ITEM];

	CKB_REQUIRE(name && separator && ckq_kind_name((int)kind));
	sqlite3_bind_int64(s, 1, b->items++);
	bind_text(b, s, 2, name);
	bind_text(b, s, 3, ckq_kind_name((int)kind));
	bind_text(b, s, 4, separator);
	bind_text(b, s, 5, metadata);
	int rc = step(b, INS_ITEM, err);

	return rc < 0 ? ckb_err_prefix(err, rc, "item '%s'", name) : rc;
}

int ckq_build_pack(struct ckq_build *b, const uint8_t uuid[16],
		   struct ckpt_err *err)
{
	sqlite3_bind_int64(b->stmt[INS_PACK], 1, b->packs++);
	bind_blob(b, b->stmt[INS_PACK], 2, uuid, CKPT_UUID_BYTES);
	return step(b, INS_PACK, err);
}

int ckq_build_layout(struct ckq_build *b, const void *blob, size_t len,
		     uint64_t *out_id, struct ckpt_err *err)
{
	sqlite3_stmt *find = b->stmt[FIND_LAYOUT];

	bind_blob(b, find, 1, blob, len);
	int rc = b->bad_bind ? b->bad_bind : sqlite3_step(find);

	if (rc == SQLITE_ROW)
		*out_id = (uint64_t)sqlite3_column_int64(find, 0);
	sqlite3_reset(find);
	if (rc == SQLITE_ROW)
		return 0;
	if (rc != SQLITE_DONE) {
		rc = failed(b, err);
		b->bad_bind = 0;
		return rc;
	}
	*out_id = (uint64_t)b->layouts;
	sqlite3_bind_int64(b->stmt[INS_LAYOUT], 1, b->layouts++);
	bind_blob(b, b->stmt[INS_LAYOUT], 2, blob, len);
	return step(b, INS_LAYOUT, err);
}

int ckq_build_tensor(struct ckq_build *b, const struct ckq_tensor *t,
		     struct ckpt_err *err)
{
	sqlite3_stmt *s = b->stmt[INS_TENSOR];
	CKB_BUF struct ckb_buf shape = { 0 };
	uint8_t stats[CKF_STATS_BYTES];
	char q[CKB_QUOTE_BYTES];
	int rc = fits(t->bytes, "byte count", err);

	if (rc < 0)
		return rc;
	CKB_REQUIRE(ckpt_dtype_name(t->dtype));
	ckf_shape_encode(&t->shape, &shape);
	ckf_stats_encode(&t->stats, stats);
	if (shape.failed)
		return ckb_err_nomem(err);
	sqlite3_bind_int64(s, 1, b->tensors++);
	sqlite3_bind_int64(s, 2, (int64_t)t->item);
	bind_blob(b, s, 3, t->name, t->name_len);
	bind_text(b, s, 4, ckpt_dtype_name(t->dtype));
	bind_blob(b, s, 5, shape.data, shape.len);
	sqlite3_bind_int64(s, 6, (int64_t)t->bytes);
	bind_text(b, s, 7, t->media_type);
	if (t->has_layout)
		sqlite3_bind_int64(s, 8, (int64_t)t->layout);
	if (t->has_alias)
		sqlite3_bind_int64(s, 9, (int64_t)t->alias_of);
	bind_blob(b, s, 10, stats, sizeof(stats));
	if (t->has_root)
		bind_blob(b, s, 11, t->root, CKPT_DIGEST_BYTES);
	if (t->chunks_len > 0)
		bind_blob(b, s, 12, t->chunks, t->chunks_len);
	rc = step(b, INS_TENSOR, err);
	return rc < 0 ? ckb_err_prefix(err, rc, "tensor '%s'",
				       ckb_quote(q, sizeof(q), t->name,
						 t->name_len))
		      : rc;
}

int ckq_build_finish(struct ckq_build *b, struct ckb_buf *out,
		     struct ckpt_err *err)
{
	sqlite3_int64 size = 0;

	if (sqlite3_exec(b->db, "COMMIT", NULL, NULL, NULL) != SQLITE_OK)
		return failed(b, err);
	unsigned char *image = sqlite3_serialize(b->db, "main", &size, 0);

	if (!image)
		return ckb_err(err, CKPT_ENOMEM, "out of memory: the manifest "
			       "takes its size in one piece, of 2 GiB at most");
	ckb_buf_put(out, image, (size_t)size);
	sqlite3_free(image);
	if (out->failed)
		return ckb_err_nomem(err);
	/* whole pages, rollback journal, 8 reserved bytes */
	CKB_INVARIANT(size % CKB_MANIFEST_PAGE == 0 && out->data[18] == 1 &&
		      out->data[19] == 1 && out->data[20] == 8);
	for (size_t page = 0; page < out->len / CKB_MANIFEST_PAGE; page++) {
		uint8_t *p = out->data + page * CKB_MANIFEST_PAGE;

		ckb_put_u64(p + CKB_MANIFEST_PAGE - 8,
			    ckb_xxh3_u32((uint32_t)page + 1, p,
					 CKB_MANIFEST_PAGE - 8));
	}
	return 0;
}
