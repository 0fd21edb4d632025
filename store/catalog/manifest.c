/* SPDX-License-Identifier: Apache-2.0 */
/*
 * manifest.c - read a manifest (owns sqlite3.h with build, vfs and index).
 *
 * Defensive: the file is untrusted until each page matched its checksum, the
 * schema is exactly ours, and each row kept the format's rules; what the
 * callbacks get is valid in itself (S6, S10). A row that is not, or a bad page
 * under it, is CKPT_ECORRUPT naming file and page.
 *
 * Threads: any; one mutex guards the connection, held for a statement.
 */
#include "catalog/manifest.h"

#include <errno.h>
#include <inttypes.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#include "base/bytes.h"
#include "base/limits.h"
#include "base/text.h"
#include "catalog/schema.h"
#include "catalog/vfs.h"
#include "format/name.h"
#include "tensor/dtype.h"

struct ckq_manifest {
	pthread_mutex_t lock;
	struct ckq_file file;
	sqlite3 *db;              /* guard: lock */
	sqlite3_stmt *chunks;     /* guard: lock */
	char *path;
	struct ckq_facts facts;
	char *texts[4];           /* saved_as, metadata, metrics, writer */
};

/* Why SQLite failed: a bad page, the system, or its own sentence. */
static int failed(struct ckq_manifest *m, struct ckpt_err *err)
{
	int code = sqlite3_errcode(m->db);

	if (m->file.bad_errno != 0)
		return ckb_err_sys(err, m->file.bad_errno,
				   "cannot read manifest '%s'", m->path);
	if (m->file.bad_page != 0)
		return ckb_err(err, CKPT_ECORRUPT, "manifest '%s' is damaged: "
			       "page %u does not match its checksum", m->path,
			       m->file.bad_page);
	if (code == SQLITE_NOMEM)
		return ckb_err_nomem(err);
	return ckb_err(err, CKPT_ECORRUPT, "manifest '%s' is damaged: %s",
		       m->path, sqlite3_errmsg(m->db));
}

static int bad_row(struct ckq_manifest *m, struct ckpt_err *err,
		   const char *what)
{
	return ckb_err(err, CKPT_ECORRUPT, "manifest '%s' is damaged: %s",
		       m->path, what);
}

static int prepare(struct ckq_manifest *m, const char *sql,
		   sqlite3_stmt **out, struct ckpt_err *err)
{
	return sqlite3_prepare_v2(m->db, sql, -1, out, NULL) == SQLITE_OK
		       ? 0 : failed(m, err);
}

/* ---- opening ---- */

static int open_file(struct ckq_manifest *m, int dirfd, struct ckpt_err *err)
{
	const struct ckb_sys *sys = m->file.sys;
	struct stat st;

	m->file.fd = sys->openat(sys, dirfd, m->path,
				 O_RDONLY | O_NOFOLLOW | O_NONBLOCK, 0);
	if (m->file.fd < 0)
		return ckb_err_sys(err, -m->file.fd, "cannot open manifest "
				   "'%s'", m->path);
	int rc = sys->fstat(sys, m->file.fd, &st);

	if (rc < 0)
		return ckb_err_sys(err, -rc, "cannot read manifest '%s'",
				   m->path);
	m->file.bytes = (uint64_t)st.st_size;
	if (!S_ISREG(st.st_mode) || m->file.bytes == 0 ||
	    m->file.bytes % CKB_MANIFEST_PAGE != 0 ||
	    m->file.bytes > CKB_MANIFEST_MAX_BYTES)
		return ckb_err(err, CKPT_ECORRUPT, "manifest '%s' is damaged: "
			       "%" PRIu64 " bytes are no whole number of pages",
			       m->path, m->file.bytes);
	return 0;
}

/* SQLite's header must say what build.c makes. */
static int check_header(struct ckq_manifest *m, struct ckpt_err *err)
{
	uint8_t page[CKB_MANIFEST_PAGE];
	int rc = ckq_vfs_page(&m->file, 1, page);

	if (rc != SQLITE_OK)
		return failed(m, err);
	if (memcmp(page, "SQLite format 3", 16) != 0 ||
	    page[16] != CKB_MANIFEST_PAGE >> 8 || page[17] != 0 ||
	    page[18] != 1 || page[19] != 1 || page[20] != 8)
		return bad_row(m, err, "it is no manifest of this format");
	uint32_t pages = (uint32_t)page[28] << 24 | (uint32_t)page[29] << 16 |
			 (uint32_t)page[30] << 8 | page[31];

	if (pages != m->file.bytes / CKB_MANIFEST_PAGE)
		return ckb_err(err, CKPT_ECORRUPT, "manifest '%s' is damaged: "
			       "it has %" PRIu64 " pages and says %u",
			       m->path, m->file.bytes / CKB_MANIFEST_PAGE,
			       pages);
	return 0;
}

static void defend(sqlite3 *db)
{
	static const int limits[][2] = {
		{ SQLITE_LIMIT_ATTACHED, 0 }, { SQLITE_LIMIT_COLUMN, 64 },
		{ SQLITE_LIMIT_EXPR_DEPTH, 20 }, { SQLITE_LIMIT_VDBE_OP, 5000 },
		{ SQLITE_LIMIT_SQL_LENGTH, 10000 },
		{ SQLITE_LIMIT_TRIGGER_DEPTH, 1 },
		{ SQLITE_LIMIT_COMPOUND_SELECT, 2 },
	};

	sqlite3_db_config(db, SQLITE_DBCONFIG_DEFENSIVE, 1, NULL);
	sqlite3_db_config(db, SQLITE_DBCONFIG_TRUSTED_SCHEMA, 0, NULL);
	for (size_t i = 0; i < CKB_ARRAY_LEN(limits); i++)
		sqlite3_limit(db, limits[i][0], limits[i][1]);
	sqlite3_exec(db, "PRAGMA cell_size_check=1; PRAGMA mmap_size=0; "
		     "PRAGMA cache_size=-1024", NULL, NULL, NULL);
}

static int pragma(struct ckq_manifest *m, const char *sql, int *out,
		  struct ckpt_err *err)
{
	sqlite3_stmt *s = NULL;
	int rc = prepare(m, sql, &s, err);

	if (rc == 0 && sqlite3_step(s) != SQLITE_ROW)
		rc = failed(m, err);
	if (rc == 0)
		*out = sqlite3_column_int(s, 0);
	sqlite3_finalize(s);
	return rc;
}

static int check_schema(struct ckq_manifest *m, struct ckpt_err *err)
{
	sqlite3_stmt *s = NULL;
	int application = 0, version = 0, n = 0, step;
	int rc = pragma(m, "PRAGMA application_id", &application, err);

	if (rc == 0)
		rc = pragma(m, "PRAGMA user_version", &version, err);
	if (rc < 0)
		return rc;
	if (application != CKQ_APPLICATION_ID)
		return bad_row(m, err, "it is no manifest of ckptfs");
	if (version > CKQ_USER_VERSION)
		return ckb_err(err, CKPT_EVERSION, "manifest '%s' has version "
			       "%d, which needs a newer ckptfs", m->path,
			       version);
	rc = prepare(m, "SELECT sql FROM sqlite_schema WHERE sql IS NOT NULL "
		     "ORDER BY rowid", &s, err);
	if (rc < 0)
		return rc;
	while ((step = sqlite3_step(s)) == SQLITE_ROW) {
		const char *sql = (const char *)sqlite3_column_text(s, 0);

		if (n >= CKQ_TABLE_COUNT || !sql ||
		    strcmp(sql, ckq_schema[n]) != 0)
			break;
		n++;
	}
	if (step != SQLITE_ROW && step != SQLITE_DONE)
		rc = failed(m, err);
	else if (step == SQLITE_ROW || n != CKQ_TABLE_COUNT)
		rc = bad_row(m, err, "its schema is not the format's");
	sqlite3_finalize(s);
	return rc;
}

/* A text column as an own copy; NULL stays NULL. false: not valid text. */
static bool take_text(sqlite3_stmt *s, int i, char **out)
{
	const char *text = (const char *)sqlite3_column_text(s, i);
	size_t len = (size_t)sqlite3_column_bytes(s, i);

	if (!text)
		return sqlite3_column_type(s, i) == SQLITE_NULL;
	if (memchr(text, '\0', len) || !ckb_utf8_ok(text, len))
		return false;
	*out = strdup(text);
	return *out != NULL;
}

static bool take_uuid(sqlite3_stmt *s, int i, uint8_t out[16])
{
	if (sqlite3_column_bytes(s, i) != CKPT_UUID_BYTES)
		return false;
	memcpy(out, sqlite3_column_blob(s, i), CKPT_UUID_BYTES);
	return true;
}

static bool take_facts(struct ckq_manifest *m, sqlite3_stmt *s)
{
	struct ckq_facts *f = &m->facts;
	const char *digest = (const char *)sqlite3_column_text(s, 12);
	bool ok = take_uuid(s, 0, f->uuid) && take_uuid(s, 1, f->store_uuid) &&
		  sqlite3_column_int64(s, 2) > 0 &&
		  sqlite3_column_int64(s, 3) > 0 &&
		  sqlite3_column_int64(s, 4) >= 0;

	f->generation = (uint64_t)sqlite3_column_int64(s, 2);
	f->seq = (uint64_t)sqlite3_column_int64(s, 3);
	f->has_step = sqlite3_column_type(s, 4) != SQLITE_NULL;
	f->step = (uint64_t)sqlite3_column_int64(s, 4);
	f->created_ns = sqlite3_column_int64(s, 5);
	f->has_parent = sqlite3_column_type(s, 6) != SQLITE_NULL;
	ok = ok && (!f->has_parent || take_uuid(s, 6, f->parent));
	for (int i = 0; i < 4; i++)
		ok = ok && take_text(s, 7 + i, &m->texts[i]);
	f->saved_as = m->texts[0];
	f->metadata = m->texts[1];
	f->metrics = m->texts[2];
	f->writer = m->texts[3];
	f->tile_rule = (uint32_t)sqlite3_column_int64(s, 11);
	return ok && f->saved_as && f->writer && f->tile_rule == 1 && digest &&
	       strcmp(digest, "sha256") == 0 &&
	       ckf_checkpoint_name(f->saved_as, NULL) == 0;
}

static int read_facts(struct ckq_manifest *m, struct ckpt_err *err)
{
	sqlite3_stmt *s = NULL;
	int rc = prepare(m, "SELECT uuid, store_uuid, generation, seq, step, "
			 "created_ns, parent, saved_as, metadata, metrics, "
			 "writer, tile_rule, digest FROM checkpoint", &s, err);

	if (rc == 0) {
		int step = sqlite3_step(s);

		if (step == SQLITE_ROW && take_facts(m, s))
			rc = 0;
		else if (step == SQLITE_ROW || step == SQLITE_DONE)
			rc = bad_row(m, err, "its facts are malformed");
		else
			rc = failed(m, err);
	}
	sqlite3_finalize(s);
	return rc;
}

int ckq_manifest_open(const struct ckb_sys *sys, int dirfd, const char *path,
		      struct ckq_manifest **out, struct ckpt_err *err)
{
	struct ckq_manifest *m = calloc(1, sizeof(*m));
	int rc;

	*out = NULL;
	if (!m)
		return ckb_err_nomem(err);
	pthread_mutex_init(&m->lock, NULL);
	m->file.sys = sys;
	m->file.fd = -1;
	m->path = strdup(path);
	rc = m->path ? open_file(m, dirfd, err) : ckb_err_nomem(err);
	if (rc == 0)
		rc = check_header(m, err);
	if (rc == 0 && ckq_vfs_open(&m->file, &m->db) != SQLITE_OK)
		rc = failed(m, err);
	if (rc == 0) {
		defend(m->db);
		rc = check_schema(m, err);
	}
	if (rc == 0)
		rc = read_facts(m, err);
	if (rc == 0)
		rc = prepare(m, "SELECT chunks FROM tensor WHERE id=?",
			     &m->chunks, err);
	if (rc < 0) {
		ckq_manifest_close(m);
		return rc;
	}
	*out = m;
	return 0;
}

void ckq_manifest_close(struct ckq_manifest *m)
{
	if (!m)
		return;
	sqlite3_finalize(m->chunks);
	sqlite3_close(m->db);
	if (m->file.fd >= 0)
		m->file.sys->close(m->file.sys, m->file.fd);
	for (size_t i = 0; i < CKB_ARRAY_LEN(m->texts); i++)
		free(m->texts[i]);
	free(m->path);
	pthread_mutex_destroy(&m->lock);
	free(m);
}

const struct ckq_facts *ckq_manifest_facts(const struct ckq_manifest *m)
{
	return &m->facts;
}

/* ---- rows ---- */

/* Run @sql; @row takes one row (its number from 0). 0, negative, or what a
 * callback returned to stop. */
static int each(struct ckq_manifest *m, const char *sql,
		int (*row)(struct ckq_manifest *m, sqlite3_stmt *s,
			   uint64_t number, void *ctx, struct ckpt_err *err),
		void *ctx, struct ckpt_err *err)
{
	sqlite3_stmt *s = NULL;
	uint64_t number = 0;
	int step = SQLITE_DONE;

	pthread_mutex_lock(&m->lock);
	int rc = prepare(m, sql, &s, err);

	while (rc == 0 && (step = sqlite3_step(s)) == SQLITE_ROW) {
		if ((uint64_t)sqlite3_column_int64(s, 0) != number)
			rc = bad_row(m, err, "its rows are not numbered 0, 1, "
				     "2, ...");
		else
			rc = row(m, s, number, ctx, err);
		number++;
	}
	if (rc == 0 && step != SQLITE_DONE)
		rc = failed(m, err);
	sqlite3_finalize(s);
	pthread_mutex_unlock(&m->lock);
	return rc;
}

struct item_ctx {
	ckq_item_fn fn;
	void *ctx;
};

static bool plain_text(sqlite3_stmt *s, int i)
{
	const char *text = (const char *)sqlite3_column_text(s, i);
	size_t len = (size_t)sqlite3_column_bytes(s, i);

	return text && strlen(text) == len && ckb_utf8_ok(text, len);
}

static int item_row(struct ckq_manifest *m, sqlite3_stmt *s, uint64_t number,
		    void *ctx, struct ckpt_err *err)
{
	struct item_ctx *c = ctx;
	const char *name = (const char *)sqlite3_column_text(s, 1);
	int kind = ckq_kind_parse((const char *)sqlite3_column_text(s, 2));
	const char *separator = (const char *)sqlite3_column_text(s, 3);
	const char *metadata = (const char *)sqlite3_column_text(s, 4);

	if (!plain_text(s, 1) || !plain_text(s, 3) || kind == 0 ||
	    (metadata && !plain_text(s, 4)) || strlen(separator) > 1 ||
	    ckf_item_name(name, kind == CKPT_ITEM_ORIGIN, NULL) < 0)
		return bad_row(m, err, "an item's row is malformed");
	return c->fn(c->ctx, number, name, (enum ckpt_item_kind)kind,
		     separator, metadata);
}

int ckq_manifest_items(struct ckq_manifest *m, ckq_item_fn fn, void *ctx,
		       struct ckpt_err *err)
{
	struct item_ctx c = { fn, ctx };

	return each(m, "SELECT id, name, kind, separator, metadata FROM item "
		    "ORDER BY id", item_row, &c, err);
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

	if (!take_uuid(s, 1, uuid))
		return bad_row(m, err, "a pack's row is malformed");
	return c->fn(c->ctx, number, uuid);
}

int ckq_manifest_packs(struct ckq_manifest *m, ckq_pack_fn fn, void *ctx,
		       struct ckpt_err *err)
{
	struct pack_ctx c = { fn, ctx };

	return each(m, "SELECT id, uuid FROM pack ORDER BY id", pack_row, &c,
		    err);
}

struct tensor_ctx {
	ckq_tensor_fn fn;
	void *ctx;
};

static bool take_tensor(sqlite3_stmt *s, struct ckq_tensor *t)
{
	const char *code = (const char *)sqlite3_column_text(s, 3);
	uint64_t bytes = 0;

	t->item = (uint64_t)sqlite3_column_int64(s, 1);
	t->name = sqlite3_column_blob(s, 2);
	t->name_len = (size_t)sqlite3_column_bytes(s, 2);
	if (!t->name)
		t->name = "";
	t->bytes = (uint64_t)sqlite3_column_int64(s, 5);
	t->media_type = (const char *)sqlite3_column_text(s, 6);
	t->has_layout = sqlite3_column_type(s, 7) != SQLITE_NULL;
	t->layout = (uint64_t)sqlite3_column_int64(s, 7);
	t->has_alias = sqlite3_column_type(s, 8) != SQLITE_NULL;
	t->alias_of = (uint64_t)sqlite3_column_int64(s, 8);
	t->chunks_len = (size_t)sqlite3_column_int64(s, 11);
	t->has_root = sqlite3_column_type(s, 10) != SQLITE_NULL;
	if (!code || !ckt_dtype_from_code(code, strlen(code), &t->dtype) ||
	    ckf_shape_decode(sqlite3_column_blob(s, 4),
			     (size_t)sqlite3_column_bytes(s, 4), &t->shape,
			     NULL) < 0 ||
	    ckf_tensor_name(t->name, t->name_len, NULL) < 0 ||
	    ckf_stats_decode(sqlite3_column_blob(s, 9),
			     (size_t)sqlite3_column_bytes(s, 9), &t->stats,
			     NULL) < 0)
		return false;
	if (t->has_root) {
		if (sqlite3_column_bytes(s, 10) != CKPT_DIGEST_BYTES)
			return false;
		memcpy(t->root, sqlite3_column_blob(s, 10), CKPT_DIGEST_BYTES);
	}
	if (t->media_type &&
	    (!plain_text(s, 6) || t->dtype != CKPT_U8 || t->shape.ndim != 1 ||
	     t->shape.dim[0] != t->bytes || t->bytes > INT64_MAX))
		return false;
	if (!t->media_type &&
	    (ckt_shape_bytes(t->dtype, &t->shape, &bytes, NULL) < 0 ||
	     bytes != t->bytes))
		return false;
	if ((t->has_alias || t->bytes == 0) != (t->chunks_len == 0))
		return false;
	return t->chunks_len % CKF_CHUNK_ENTRY_BYTES == 0 &&
	       (!t->has_alias || t->alias_of < t->id);
}

static int tensor_row(struct ckq_manifest *m, sqlite3_stmt *s, uint64_t number,
		      void *ctx, struct ckpt_err *err)
{
	struct tensor_ctx *c = ctx;
	struct ckq_tensor t = { .id = number };

	if (!take_tensor(s, &t))
		return bad_row(m, err, "a tensor's row is malformed");
	return c->fn(c->ctx, &t);
}

int ckq_manifest_tensors(struct ckq_manifest *m, ckq_tensor_fn fn, void *ctx,
			 struct ckpt_err *err)
{
	struct tensor_ctx c = { fn, ctx };

	/* length() of a BLOB reads its header, not its pages */
	return each(m, "SELECT id, item, name, dtype, shape, bytes, "
		    "media_type, layout, alias_of, stats, root, "
		    "coalesce(length(chunks), 0) FROM tensor ORDER BY id",
		    tensor_row, &c, err);
}

static int read_blob(struct ckq_manifest *m, sqlite3_stmt *s, uint64_t id,
		     struct ckb_buf *out, struct ckpt_err *err)
{
	int rc = 0;

	sqlite3_bind_int64(s, 1, (int64_t)id);
	int step = sqlite3_step(s);

	if (step == SQLITE_ROW) {
		ckb_buf_put(out, sqlite3_column_blob(s, 0),
			    (size_t)sqlite3_column_bytes(s, 0));
		rc = out->failed ? ckb_err_nomem(err) : 0;
	} else {
		rc = step == SQLITE_DONE ? bad_row(m, err, "a row is missing")
					 : failed(m, err);
	}
	sqlite3_reset(s);
	return rc;
}

int ckq_manifest_chunks(struct ckq_manifest *m, uint64_t id,
			struct ckb_buf *out, struct ckpt_err *err)
{
	pthread_mutex_lock(&m->lock);
	int rc = read_blob(m, m->chunks, id, out, err);

	pthread_mutex_unlock(&m->lock);
	return rc;
}

int ckq_manifest_layout(struct ckq_manifest *m, uint64_t id,
			struct ckb_buf *out, struct ckpt_err *err)
{
	sqlite3_stmt *s = NULL;

	pthread_mutex_lock(&m->lock);
	int rc = prepare(m, "SELECT spec FROM layout WHERE id=?", &s, err);

	if (rc == 0)
		rc = read_blob(m, s, id, out, err);
	sqlite3_finalize(s);
	pthread_mutex_unlock(&m->lock);
	return rc;
}

int ckq_manifest_verify(struct ckq_manifest *m, struct ckpt_err *err)
{
	uint8_t page[CKB_MANIFEST_PAGE];
	sqlite3_stmt *s = NULL;
	int rc = 0;

	pthread_mutex_lock(&m->lock);
	for (uint64_t i = 0; rc == 0 && i < m->file.bytes / CKB_MANIFEST_PAGE;
	     i++)
		if (ckq_vfs_page(&m->file, (uint32_t)i + 1, page) != SQLITE_OK)
			rc = failed(m, err);
	if (rc == 0)
		rc = prepare(m, "PRAGMA integrity_check(1)", &s, err);
	if (rc == 0 && sqlite3_step(s) != SQLITE_ROW)
		rc = failed(m, err);
	if (rc == 0 &&
	    strcmp((const char *)sqlite3_column_text(s, 0), "ok") != 0)
		rc = bad_row(m, err, (const char *)sqlite3_column_text(s, 0));
	sqlite3_finalize(s);
	pthread_mutex_unlock(&m->lock);
	return rc;
}
