/* SPDX-License-Identifier: Apache-2.0 */
/*
 * manifest.c - read a manifest: open it, its facts, BLOBs, verification. Rows
 * of items, packs and tensors are in rows.c.
 *
 * Defensive: the file is untrusted until each page matched its checksum, the
 * schema is exactly ours, and each row kept the format's rules; what callers
 * get is valid in itself (S6, S10). A row that is not, or a bad page under it,
 * is CKPT_ECORRUPT naming file and page.
 *
 * A connection costs some 100 KiB, so it lives and goes with the descriptor
 * (handles.c) and is made again when a statement is wanted.
 *
 * Threads: any; one mutex guards the connection, held for a statement. It is
 * taken before the lock of handles.c; give_up(), which runs under that one,
 * only tries it.
 */
#include "catalog/manifest_impl.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "base/limits.h"
#include "catalog/schema.h"
#include "format/name.h"

int ckq_manifest_failed(struct ckq_manifest *m, struct ckpt_err *err)
{
	struct ckq_file was = m->file;
	int code = sqlite3_errcode(m->db);

	m->file.bad_page = 0;
	m->file.bad_errno = 0;
	m->file.cut = false;
	if (was.bad_errno != 0)
		return ckb_err_sys(err, was.bad_errno, "cannot read page %u of "
				   "manifest '%s'", was.bad_page, m->path);
	if (was.bad_page != 0)
		return ckb_err(err, CKPT_ECORRUPT, "manifest '%s' is damaged: "
			       "%s %u %s", m->path,
			       was.cut ? "it ends before page" : "page",
			       was.bad_page,
			       was.cut ? "does"
				       : "does not match its checksum");
	if (code == SQLITE_NOMEM)
		return ckb_err_nomem(err);
	return ckb_err(err, CKPT_ECORRUPT, "manifest '%s' is damaged: %s",
		       m->path, sqlite3_errmsg(m->db));
}

int ckq_manifest_bad(struct ckq_manifest *m, struct ckpt_err *err,
		     const char *what)
{
	return ckb_err(err, CKPT_ECORRUPT, "manifest '%s' is damaged: %s",
		       m->path, what);
}

static int connect(struct ckq_manifest *m, struct ckpt_err *err);

int ckq_manifest_prepare(struct ckq_manifest *m, const char *sql,
			 sqlite3_stmt **out, struct ckpt_err *err)
{
	int rc = m->db ? 0 : connect(m, err);

	if (rc < 0)
		return rc;
	return sqlite3_prepare_v2(m->db, sql, -1, out, NULL) == SQLITE_OK
		       ? 0 : ckq_manifest_failed(m, err);
}

/* ---- opening ---- */

static void disconnect(struct ckq_manifest *m)
{
	sqlite3_finalize(m->chunks);
	sqlite3_close(m->db);
	m->chunks = NULL;
	m->db = NULL;
}

/* Its descriptor is wanted by others; false: it is in use. */
static bool give_up(struct ckq_file *f)
{
	struct ckq_manifest *m = f->owner;

	if (pthread_mutex_trylock(&m->lock) != 0)
		return false;
	disconnect(m);
	pthread_mutex_unlock(&m->lock);
	return true;
}

static int open_file(struct ckq_manifest *m, int dirfd, struct ckpt_err *err)
{
	m->file.dirfd = dirfd;
	m->file.path = m->path;
	m->file.owner = m;
	m->file.give_up = give_up;
	int rc = ckq_file_open(&m->file);

	if (rc < 0)
		return ckb_err_sys(err, -rc, "cannot open manifest '%s'",
				   m->path);
	m->file.bytes = (uint64_t)m->file.st.st_size;
	if (!S_ISREG(m->file.st.st_mode) || m->file.bytes == 0 ||
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
		return ckq_manifest_failed(m, err);
	if (memcmp(page, "SQLite format 3", 16) != 0 ||
	    page[16] != CKB_MANIFEST_PAGE >> 8 || page[17] != 0 ||
	    page[18] != 1 || page[19] != 1 || page[20] != 8 ||
	    memcmp(page + 56, "\0\0\0\1", 4) != 0) /* UTF-8 */
		return ckq_manifest_bad(m, err, "it is no manifest of this "
					"format");
	uint32_t pages = (uint32_t)page[28] << 24 | (uint32_t)page[29] << 16 |
			 (uint32_t)page[30] << 8 | page[31];

	if (pages != m->file.bytes / CKB_MANIFEST_PAGE)
		return ckb_err(err, CKPT_ECORRUPT, "manifest '%s' is damaged: "
			       "it has %" PRIu64 " pages and says %u",
			       m->path, m->file.bytes / CKB_MANIFEST_PAGE,
			       pages);
	return 0;
}

/* A row may be as large as SQLite allows (10^9 bytes): a chunk list grows with
 * its tensor. Pages are verified, so what is not in the file costs nothing. */
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
		     "PRAGMA cache_size=-1024; PRAGMA temp_store=2", NULL, NULL,
		     NULL);
}

static int pragma(struct ckq_manifest *m, const char *sql, int *out,
		  struct ckpt_err *err)
{
	sqlite3_stmt *s = NULL;
	int rc = ckq_manifest_prepare(m, sql, &s, err);

	if (rc == 0 && sqlite3_step(s) != SQLITE_ROW)
		rc = ckq_manifest_failed(m, err);
	if (rc == 0)
		*out = sqlite3_column_int(s, 0);
	sqlite3_finalize(s);
	return rc;
}

/* Exactly our tables in our order, and the indexes that SQLite makes for them
 * (which have no text): no view, trigger, or table besides. */
static int check_objects(struct ckq_manifest *m, struct ckpt_err *err)
{
	sqlite3_stmt *s = NULL;
	int n = 0, step;
	bool same = true;
	int rc = ckq_manifest_prepare(m, "SELECT type, name, tbl_name, sql "
				      "FROM sqlite_schema ORDER BY rowid", &s,
				      err);

	if (rc < 0)
		return rc;
	while (same && (step = sqlite3_step(s)) == SQLITE_ROW) {
		const char *texts[4];

		for (int i = 0; i < 4; i++)
			texts[i] = (const char *)sqlite3_column_text(s, i);
		same = n < CKQ_OBJECT_COUNT &&
		       ckq_schema_is(n++, texts[0], texts[1], texts[2],
				     texts[3]);
	}
	if (same && step != SQLITE_DONE)
		rc = ckq_manifest_failed(m, err);
	else if (!same || n != CKQ_OBJECT_COUNT)
		rc = ckq_manifest_bad(m, err, "its schema is not the format's");
	sqlite3_finalize(s);
	return rc;
}

static int check_schema(struct ckq_manifest *m, struct ckpt_err *err)
{
	int application = 0, version = 0;
	int rc = pragma(m, "PRAGMA application_id", &application, err);

	if (rc == 0)
		rc = pragma(m, "PRAGMA user_version", &version, err);
	if (rc < 0)
		return rc;
	if (application != CKQ_APPLICATION_ID)
		return ckq_manifest_bad(m, err, "it is no manifest of ckptfs");
	if (version > CKQ_USER_VERSION)
		return ckb_err(err, CKPT_EVERSION, "manifest '%s' has version "
			       "%d, which needs a newer ckptfs", m->path,
			       version);
	if (version < CKQ_USER_VERSION)
		return ckq_manifest_bad(m, err, "its version is none");
	return check_objects(m, err);
}

enum { F_ID, F_UUID, F_STORE, F_GENERATION, F_SEQ, F_STEP, F_CREATED,
       F_PARENT, F_SAVED_AS, F_METADATA, F_METRICS, F_WRITER, F_TILE_RULE,
       F_DIGEST };

/* A text column as an own copy; NULL stays NULL. */
static int take_text(sqlite3_stmt *s, int i, char **out)
{
	if (sqlite3_column_type(s, i) == SQLITE_NULL)
		return 0;
	if (!(i == F_METADATA || i == F_METRICS ? ckq_row_json(s, i)
						 : ckq_row_text(s, i)))
		return CKPT_ECORRUPT;
	*out = strdup((const char *)sqlite3_column_text(s, i));
	return *out ? 0 : CKPT_ENOMEM;
}

static const char facts_types[] = "ibbiiIiBtTTtit";
static const char facts_sql[] =
	"SELECT id, uuid, store_uuid, generation, seq, step, created_ns, "
	"parent, saved_as, metadata, metrics, writer, tile_rule, digest "
	"FROM checkpoint";

/* 0, CKPT_ENOMEM, or CKPT_ECORRUPT without a message. */
static int take_facts(struct ckq_manifest *m, sqlite3_stmt *s)
{
	struct ckq_facts *f = &m->facts;
	int rc = 0;

	if (!ckq_row_types(s, facts_types) ||
	    sqlite3_column_int64(s, F_ID) != 1 ||
	    !ckq_row_blob(s, F_UUID, f->uuid, CKPT_UUID_BYTES) ||
	    !ckq_row_blob(s, F_STORE, f->store_uuid, CKPT_UUID_BYTES) ||
	    sqlite3_column_int64(s, F_GENERATION) <= 0 ||
	    sqlite3_column_int64(s, F_SEQ) <= 0 ||
	    sqlite3_column_int64(s, F_STEP) < 0 ||
	    sqlite3_column_int64(s, F_TILE_RULE) != 1 ||
	    strcmp((const char *)sqlite3_column_text(s, F_DIGEST), "sha256"))
		return CKPT_ECORRUPT;
	f->generation = (uint64_t)sqlite3_column_int64(s, F_GENERATION);
	f->seq = (uint64_t)sqlite3_column_int64(s, F_SEQ);
	f->has_step = sqlite3_column_type(s, F_STEP) != SQLITE_NULL;
	f->step = (uint64_t)sqlite3_column_int64(s, F_STEP);
	f->created_ns = sqlite3_column_int64(s, F_CREATED);
	f->has_parent = sqlite3_column_type(s, F_PARENT) != SQLITE_NULL;
	if (f->has_parent &&
	    !ckq_row_blob(s, F_PARENT, f->parent, CKPT_UUID_BYTES))
		return CKPT_ECORRUPT;
	for (int i = 0; rc == 0 && i < 4; i++)
		rc = take_text(s, F_SAVED_AS + i, &m->texts[i]);
	if (rc < 0)
		return rc;
	f->saved_as = m->texts[0];
	f->metadata = m->texts[1];
	f->metrics = m->texts[2];
	f->writer = m->texts[3];
	f->tile_rule = 1;
	return ckf_checkpoint_name(f->saved_as, NULL) < 0 ? CKPT_ECORRUPT : 0;
}

static int read_facts(struct ckq_manifest *m, struct ckpt_err *err)
{
	sqlite3_stmt *s = NULL;
	int rc = ckq_manifest_prepare(m, facts_sql, &s, err);

	if (rc < 0)
		return rc;
	int step = sqlite3_step(s);

	if (step == SQLITE_ROW) {
		rc = take_facts(m, s);
		if (rc == CKPT_ENOMEM)
			rc = ckb_err_nomem(err);
		else if (rc < 0)
			rc = ckq_manifest_bad(m, err, "its facts are "
					      "malformed");
		else
			step = sqlite3_step(s);
	}
	if (rc == 0 && step == SQLITE_ROW)
		rc = ckq_manifest_bad(m, err, "it describes two checkpoints");
	else if (rc == 0 && step != SQLITE_DONE)
		rc = ckq_manifest_failed(m, err);
	else if (rc == 0 && !m->facts.saved_as)
		rc = ckq_manifest_bad(m, err, "it describes no checkpoint");
	sqlite3_finalize(s);
	return rc;
}

/* Under m->lock. */
static int connect(struct ckq_manifest *m, struct ckpt_err *err)
{
	int rc = 0;

	if (ckq_vfs_open(&m->file, &m->db) != SQLITE_OK)
		rc = ckq_manifest_failed(m, err);
	if (rc == 0) {
		defend(m->db);
		rc = check_schema(m, err);
	}
	if (rc < 0)
		disconnect(m);
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
	pthread_mutex_lock(&m->lock);
	rc = m->path ? open_file(m, dirfd, err) : ckb_err_nomem(err);
	if (rc == 0)
		rc = check_header(m, err);
	if (rc == 0)
		rc = read_facts(m, err);
	pthread_mutex_unlock(&m->lock);
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
	ckq_file_close(&m->file);
	disconnect(m);
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

/* ---- BLOBs ---- */

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
	} else if (step == SQLITE_DONE) {
		rc = ckq_manifest_bad(m, err, "a row is missing");
	} else {
		rc = ckq_manifest_failed(m, err);
	}
	sqlite3_reset(s);
	return rc;
}

int ckq_manifest_chunks(struct ckq_manifest *m, uint64_t id,
			struct ckb_buf *out, struct ckpt_err *err)
{
	pthread_mutex_lock(&m->lock);
	int rc = 0;

	if (!m->chunks)
		rc = ckq_manifest_prepare(m, "SELECT chunks FROM tensor "
					  "WHERE id=?", &m->chunks, err);
	if (rc == 0)
		rc = read_blob(m, m->chunks, id, out, err);

	pthread_mutex_unlock(&m->lock);
	return rc;
}

int ckq_manifest_layout(struct ckq_manifest *m, uint64_t id,
			struct ckb_buf *out, struct ckpt_err *err)
{
	sqlite3_stmt *s = NULL;

	pthread_mutex_lock(&m->lock);
	int rc = ckq_manifest_prepare(m, "SELECT spec FROM layout WHERE id=?",
				      &s, err);

	if (rc == 0)
		rc = read_blob(m, s, id, out, err);
	sqlite3_finalize(s);
	pthread_mutex_unlock(&m->lock);
	return rc;
}

static int check_integrity(struct ckq_manifest *m, struct ckpt_err *err)
{
	sqlite3_stmt *s = NULL;
	int rc = ckq_manifest_prepare(m, "PRAGMA integrity_check(1)", &s, err);

	if (rc == 0 && sqlite3_step(s) != SQLITE_ROW)
		rc = ckq_manifest_failed(m, err);
	if (rc == 0) {
		const char *says = (const char *)sqlite3_column_text(s, 0);

		if (!says)
			rc = ckb_err_nomem(err);
		else if (strcmp(says, "ok") != 0)
			rc = m->file.bad_page ? ckq_manifest_failed(m, err)
					      : ckq_manifest_bad(m, err, says);
	}
	sqlite3_finalize(s);
	return rc;
}

int ckq_manifest_verify(struct ckq_manifest *m, struct ckpt_err *err)
{
	uint64_t pages = m->file.bytes / CKB_MANIFEST_PAGE;
	uint8_t page[CKB_MANIFEST_PAGE];
	int rc = 0;

	pthread_mutex_lock(&m->lock);
	for (uint64_t i = 1; rc == 0 && i <= pages; i++)
		if (ckq_vfs_page(&m->file, (uint32_t)i, page) != SQLITE_OK)
			rc = ckq_manifest_failed(m, err);
	if (rc == 0)
		rc = check_integrity(m, err);
	pthread_mutex_unlock(&m->lock);
	return rc;
}
