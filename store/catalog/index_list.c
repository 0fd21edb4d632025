/* SPDX-License-Identifier: Apache-2.0 */
/*
 * index_list.c - the index's list of checkpoints, and who uses which bytes.
 *
 * A row repeats what a manifest says, with the identity of the manifest's
 * file: who reads it compares that with the file that is there, so a row that
 * is old is passed over, never believed. A checksum over the row finds rot.
 *
 * For each place in a pack, table "used" holds how many rows use it and the
 * sum of their ids: when one is left, the sum is its id. So the bytes that a
 * checkpoint shares with no other are kept up to date by what is put in or
 * dropped, without looking at the rest. When something happened that cannot be
 * counted (a row was replaced, whose places are not known any more), the
 * counts are marked inexact until they are made again.
 *
 * Threads: any; the index's mutex.
 */
#include "catalog/index_impl.h"

#include <string.h>

#include "base/buf.h"
#include "base/bytes.h"
#include "base/hash.h"

static void put_u64(struct ckb_buf *b, uint64_t v)
{
	uint8_t raw[8];

	ckb_put_u64(raw, v);
	ckb_buf_put(b, raw, sizeof(raw));
}

/* Everything that does not change while the row is there. */
static bool row_sum(const struct ckq_row *r, int64_t *out)
{
	CKB_BUF struct ckb_buf b = { 0 };

	ckb_buf_put(&b, r->name, strlen(r->name) + 1);
	put_u64(&b, r->ino);
	put_u64(&b, r->size);
	put_u64(&b, (uint64_t)r->mtime_ns);
	ckb_buf_put(&b, r->uuid, sizeof(r->uuid));
	put_u64(&b, r->generation);
	put_u64(&b, r->seq);
	put_u64(&b, r->has_step);
	put_u64(&b, r->has_step ? r->step : 0);
	put_u64(&b, (uint64_t)r->created_ns);
	put_u64(&b, r->has_parent);
	if (r->has_parent)
		ckb_buf_put(&b, r->parent, sizeof(r->parent));
	put_u64(&b, r->bytes);
	put_u64(&b, r->stored);
	if (r->metrics)
		ckb_buf_puts(&b, r->metrics);
	if (b.failed)
		return false;
	*out = (int64_t)ckb_xxh3(b.data, b.len);
	return true;
}

static int set_inexact(struct ckq_index *ix, struct ckpt_err *err)
{
	sqlite3_stmt *s = ix->stmt[CKQ_EXACT_PUT];

	sqlite3_bind_blob(s, 1, "\0", 1, SQLITE_STATIC);
	return ckq_index_step(ix, s, err);
}

/* ---- who uses what ---- */

/* own += @delta for row @id; kept back while the next is of the same row. */
struct owed {
	int64_t id, delta;
};

static int owe(struct ckq_index *ix, struct owed *o, int64_t id, int64_t delta,
	       struct ckpt_err *err)
{
	sqlite3_stmt *s = ix->stmt[CKQ_LIST_OWN];
	int rc = 0;

	if (o->id != id && o->delta != 0) {
		sqlite3_bind_int64(s, 1, o->delta);
		sqlite3_bind_int64(s, 2, o->id);
		rc = ckq_index_step(ix, s, err);
		o->delta = 0;
	}
	o->id = id;
	o->delta += delta;
	return rc;
}

struct used {
	int64_t pack, off, refs, owners;
};

static int used_get(struct ckq_index *ix, const struct ckq_use *use,
		    struct used *out, struct ckpt_err *err)
{
	sqlite3_stmt *s = ix->stmt[CKQ_USED_GET];
	int rc = ckq_index_pack_id(ix, use->pack, &out->pack, err);

	if (rc < 0)
		return rc;
	out->off = (int64_t)use->off;
	out->refs = out->owners = 0;
	sqlite3_bind_int64(s, 1, out->pack);
	sqlite3_bind_int64(s, 2, out->off);
	int step = sqlite3_step(s);

	if (step == SQLITE_ROW) {
		out->refs = sqlite3_column_int64(s, 0);
		out->owners = sqlite3_column_int64(s, 1);
	} else if (step != SQLITE_DONE) {
		rc = ckq_index_failed(ix, err);
	}
	sqlite3_reset(s);
	return rc;
}

static int used_put(struct ckq_index *ix, const struct used *u,
		    struct ckpt_err *err)
{
	sqlite3_stmt *s = ix->stmt[u->refs > 0 ? CKQ_USED_PUT
					       : CKQ_USED_DROP];

	sqlite3_bind_int64(s, 1, u->pack);
	sqlite3_bind_int64(s, 2, u->off);
	if (u->refs > 0) {
		sqlite3_bind_int64(s, 3, u->refs);
		sqlite3_bind_int64(s, 4, u->owners);
	}
	return ckq_index_step(ix, s, err);
}

static int count_use(struct ckq_index *ix, int64_t id,
		     const struct ckq_use *use, struct owed *owed,
		     struct ckpt_err *err)
{
	int64_t len = (int64_t)use->stored_len;
	struct used u;
	int rc = used_get(ix, use, &u, err);

	if (rc == 0 && u.refs == 0)
		rc = owe(ix, owed, id, len, err);
	else if (rc == 0 && u.refs == 1)
		rc = owe(ix, owed, u.owners, -len, err);
	u.refs++;
	u.owners += id;
	return rc < 0 ? rc : used_put(ix, &u, err);
}

static int uncount_use(struct ckq_index *ix, int64_t id,
		       const struct ckq_use *use, struct owed *owed,
		       struct ckpt_err *err)
{
	int64_t len = (int64_t)use->stored_len;
	struct used u;
	int rc = used_get(ix, use, &u, err);

	if (rc < 0)
		return rc;
	if (u.refs == 0) /* it was never counted */
		return set_inexact(ix, err);
	u.refs--;
	u.owners -= id;
	if (u.refs == 1)
		rc = owe(ix, owed, u.owners, len, err);
	return rc < 0 ? rc : used_put(ix, &u, err);
}

/* ---- rows ---- */

static uint64_t column_u64(sqlite3_stmt *s, int i)
{
	return (uint64_t)sqlite3_column_int64(s, i);
}

/* *@out_id 0: there is none. *@out_same: it is of the file that @row names. */
static int row_find(struct ckq_index *ix, const char *name,
		    const struct ckq_row *row, int64_t *out_id,
		    bool *out_same, struct ckpt_err *err)
{
	sqlite3_stmt *s = ix->stmt[CKQ_LIST_GET];
	int rc = 0;

	*out_id = 0;
	*out_same = false;
	sqlite3_bind_text(s, 1, name, -1, SQLITE_STATIC);
	int step = sqlite3_step(s);

	if (step == SQLITE_ROW) {
		*out_id = sqlite3_column_int64(s, 0);
		*out_same = row && column_u64(s, 1) == row->ino &&
			    column_u64(s, 2) == row->size &&
			    sqlite3_column_int64(s, 3) == row->mtime_ns;
	} else if (step != SQLITE_DONE) {
		rc = ckq_index_failed(ix, err);
	}
	sqlite3_reset(s);
	return rc;
}

static int row_drop(struct ckq_index *ix, int64_t id, struct ckpt_err *err)
{
	sqlite3_bind_int64(ix->stmt[CKQ_LIST_DROP], 1, id);
	return ckq_index_step(ix, ix->stmt[CKQ_LIST_DROP], err);
}

static int row_insert(struct ckq_index *ix, const struct ckq_row *r,
		      int64_t *out_id, struct ckpt_err *err)
{
	sqlite3_stmt *s = ix->stmt[CKQ_LIST_PUT];
	int64_t sum = 0;

	if (!row_sum(r, &sum))
		return ckb_err_nomem(err);
	sqlite3_clear_bindings(s);
	sqlite3_bind_text(s, 1, r->name, -1, SQLITE_STATIC);
	sqlite3_bind_int64(s, 2, (int64_t)r->ino);
	sqlite3_bind_int64(s, 3, (int64_t)r->size);
	sqlite3_bind_int64(s, 4, r->mtime_ns);
	sqlite3_bind_blob(s, 5, r->uuid, sizeof(r->uuid), SQLITE_STATIC);
	sqlite3_bind_int64(s, 6, (int64_t)r->generation);
	sqlite3_bind_int64(s, 7, (int64_t)r->seq);
	if (r->has_step)
		sqlite3_bind_int64(s, 8, (int64_t)r->step);
	sqlite3_bind_int64(s, 9, r->created_ns);
	if (r->has_parent)
		sqlite3_bind_blob(s, 10, r->parent, sizeof(r->parent),
				  SQLITE_STATIC);
	if (r->metrics)
		sqlite3_bind_text(s, 11, r->metrics, -1, SQLITE_STATIC);
	sqlite3_bind_int64(s, 12, (int64_t)r->bytes);
	sqlite3_bind_int64(s, 13, (int64_t)r->stored);
	sqlite3_bind_int64(s, 14, sum);
	sqlite3_bind_int64(s, 15, 0); /* own: counted next */
	int rc = ckq_index_step(ix, s, err);

	if (rc == 0)
		*out_id = sqlite3_last_insert_rowid(ix->db);
	return rc;
}

static int put(struct ckq_index *ix, const struct ckq_row *row,
	       const struct ckq_use *uses, size_t count, struct ckpt_err *err)
{
	struct owed owed = { 0 };
	int64_t id = 0;
	bool same;
	int rc = row_find(ix, row->name, row, &id, &same, err);

	if (rc < 0 || same)
		return rc;
	if (id != 0) {
		rc = set_inexact(ix, err);
		if (rc == 0)
			rc = row_drop(ix, id, err);
	}
	if (rc == 0)
		rc = row_insert(ix, row, &id, err);
	for (size_t i = 0; rc == 0 && i < count; i++)
		rc = count_use(ix, id, &uses[i], &owed, err);
	return rc < 0 ? rc : owe(ix, &owed, 0, 0, err);
}

int ckq_index_list_put(struct ckq_index *ix, const struct ckq_row *row,
		       const struct ckq_use *uses, size_t count,
		       struct ckpt_err *err)
{
	pthread_mutex_lock(&ix->lock);
	int rc = put(ix, row, uses, count, err);

	pthread_mutex_unlock(&ix->lock);
	return rc;
}

int ckq_index_list_drop(struct ckq_index *ix, const char *name,
			const struct ckq_use *uses, size_t count,
			struct ckpt_err *err)
{
	struct owed owed = { 0 };
	int64_t id = 0;
	bool same;

	pthread_mutex_lock(&ix->lock);
	int rc = row_find(ix, name, NULL, &id, &same, err);

	if (rc == 0 && id != 0 && count == CKQ_USES_UNKNOWN) {
		rc = set_inexact(ix, err);
		count = 0;
	}
	for (size_t i = 0; rc == 0 && id != 0 && i < count; i++)
		rc = uncount_use(ix, id, &uses[i], &owed, err);
	if (rc == 0)
		rc = owe(ix, &owed, 0, 0, err);
	/* one that was never in the list was not counted either */
	if (rc == 0 && id != 0)
		rc = row_drop(ix, id, err);
	pthread_mutex_unlock(&ix->lock);
	return rc;
}

int ckq_index_list_move(struct ckq_index *ix, const char *from,
			const struct ckq_row *row, struct ckpt_err *err)
{
	sqlite3_stmt *s = ix->stmt[CKQ_LIST_MOVE];
	int64_t id = 0, other = 0, sum = 0;
	bool same, unused;

	if (!row_sum(row, &sum))
		return ckb_err_nomem(err);
	pthread_mutex_lock(&ix->lock);
	int rc = row_find(ix, from, row, &id, &same, err);

	/* what was noted under the new name is gone from the store */
	if (rc == 0)
		rc = row_find(ix, row->name, NULL, &other, &unused, err);
	if (rc == 0 && other != 0)
		rc = set_inexact(ix, err);
	if (rc == 0 && other != 0)
		rc = row_drop(ix, other, err);
	if (rc == 0 && same) {
		sqlite3_bind_text(s, 1, row->name, -1, SQLITE_STATIC);
		sqlite3_bind_int64(s, 2, sum);
		sqlite3_bind_int64(s, 3, id);
		rc = ckq_index_step(ix, s, err);
	}
	pthread_mutex_unlock(&ix->lock);
	return rc;
}

/* ---- reading ---- */

static bool take_uuid(sqlite3_stmt *s, int i, uint8_t out[16])
{
	if (sqlite3_column_bytes(s, i) != CKPT_UUID_BYTES)
		return false;
	memcpy(out, sqlite3_column_blob(s, i), CKPT_UUID_BYTES);
	return true;
}

static bool row_take(sqlite3_stmt *s, struct ckq_row *r)
{
	int64_t own, sum;

	*r = (struct ckq_row){
		.name = (const char *)sqlite3_column_text(s, 1),
		.ino = column_u64(s, 2), .size = column_u64(s, 3),
		.mtime_ns = sqlite3_column_int64(s, 4),
		.generation = column_u64(s, 6), .seq = column_u64(s, 7),
		.has_step = sqlite3_column_type(s, 8) != SQLITE_NULL,
		.step = column_u64(s, 8),
		.created_ns = sqlite3_column_int64(s, 9),
		.has_parent = sqlite3_column_type(s, 10) != SQLITE_NULL,
		.metrics = (const char *)sqlite3_column_text(s, 11),
		.bytes = column_u64(s, 12), .stored = column_u64(s, 13),
	};
	own = sqlite3_column_int64(s, 15);
	if (!r->name || !take_uuid(s, 5, r->uuid) ||
	    (r->has_parent && !take_uuid(s, 10, r->parent)) || own < 0 ||
	    (uint64_t)own > r->stored || !row_sum(r, &sum))
		return false;
	r->own = (uint64_t)own;
	return sum == sqlite3_column_int64(s, 14);
}

int ckq_index_list(struct ckq_index *ix, ckq_row_fn fn, void *ctx,
		   bool *out_exact, struct ckpt_err *err)
{
	sqlite3_stmt *s = ix->stmt[CKQ_LIST_ALL];
	sqlite3_stmt *exact = ix->stmt[CKQ_EXACT_GET];
	int rc = 0, step;

	pthread_mutex_lock(&ix->lock);
	/* one state of the index, whoever writes to it meanwhile */
	bool own_view = sqlite3_get_autocommit(ix->db) &&
			sqlite3_exec(ix->db, "BEGIN", NULL, NULL, NULL) ==
				SQLITE_OK;

	*out_exact = sqlite3_step(exact) == SQLITE_ROW &&
		     sqlite3_column_bytes(exact, 0) == 1 &&
		     *(const char *)sqlite3_column_blob(exact, 0) == 1;
	sqlite3_reset(exact);
	while (rc == 0 && (step = sqlite3_step(s)) != SQLITE_DONE) {
		struct ckq_row row;

		if (step != SQLITE_ROW)
			rc = ckq_index_failed(ix, err);
		else if (row_take(s, &row))
			rc = fn(ctx, &row);
		else
			*out_exact = false;
	}
	sqlite3_reset(s);
	if (own_view)
		sqlite3_exec(ix->db, "COMMIT", NULL, NULL, NULL);
	pthread_mutex_unlock(&ix->lock);
	return rc;
}
