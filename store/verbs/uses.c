/* SPDX-License-Identifier: Apache-2.0 */
/*
 * uses.c - places in packs that a checkpoint uses; news for the index.
 *
 * The index is a cache: what it is not told is found out by comparing it with
 * the manifests that are there (entries.c), so nothing here may fail a verb
 * that has done its work.
 *
 * Memory: 32 bytes for each chunk of one checkpoint. No state; any thread.
 */
#include "verbs/uses.h"

#include <stdlib.h>
#include <string.h>

#include "base/log.h"
#include "verbs/checkpoint.h"
#include "verbs/store_impl.h"

struct uses {
	struct ckq_use *list;
	size_t count, cap;
};

static int by_place(const void *a, const void *b)
{
	const struct ckq_use *x = a, *y = b;
	int c = memcmp(x->pack, y->pack, CKPT_UUID_BYTES);

	return c ? c : (x->off > y->off) - (x->off < y->off);
}

static int add_chunks(struct ckpt_checkpoint *c, const struct cks_chunks *k,
		      struct uses *u, struct ckpt_err *err)
{
	for (uint64_t i = 0; i < k->count; i++) {
		const struct ckf_chunk_entry *e = &k->entries[i];

		if (!ckb_room(&u->list, u->count, &u->cap, sizeof(*u->list)))
			return ckb_err_nomem(err);
		struct ckq_use *use = &u->list[u->count++];

		memcpy(use->pack, cks_checkpoint_pack(c, e->pack),
		       CKPT_UUID_BYTES);
		use->off = e->off;
		use->stored_len = e->stored_len;
	}
	return 0;
}

int cks_uses(struct ckpt_checkpoint *c, struct ckq_use **out,
	     size_t *out_count, uint64_t *out_stored, struct ckpt_err *err)
{
	struct uses u = { 0 };
	size_t kept = 0;
	uint64_t stored = 0;
	int rc = 0;

	*out = NULL;
	for (size_t i = 0; rc == 0 && i < ckpt_tensor_count(c); i++) {
		const struct ckpt_tensor_info *t = ckpt_tensor_at(c, i);
		struct cks_chunks *k;

		if (t->alias_of != SIZE_MAX)
			continue;
		rc = cks_chunks_load(c, t, &k, err);
		if (rc == 0)
			rc = add_chunks(c, k, &u, err);
		cks_chunks_free(k);
	}
	if (rc < 0) {
		free(u.list);
		return rc;
	}
	if (u.count > 0)
		qsort(u.list, u.count, sizeof(*u.list), by_place);
	for (size_t i = 0; i < u.count; i++) {
		if (kept > 0 && by_place(&u.list[kept - 1], &u.list[i]) == 0)
			continue;
		stored += u.list[i].stored_len;
		u.list[kept++] = u.list[i];
	}
	*out = u.list;
	*out_count = kept;
	*out_stored = stored;
	return 0;
}

int ckpt_checkpoint_stored_bytes(struct ckpt_checkpoint *c, uint64_t *out,
				 struct ckpt_err *err)
{
	CKB_FREE struct ckq_use *uses = NULL;
	size_t count = 0;

	return cks_uses(c, &uses, &count, out, err);
}

/* ---- the index ---- */

void cks_row_identity(struct ckq_row *row, const struct stat *st)
{
	row->ino = st->st_ino;
	row->size = (uint64_t)st->st_size;
	row->mtime_ns = ckb_time_ns(&st->st_mtim);
}

static void fill_row(struct ckq_row *row, const struct ckpt_checkpoint_info *i)
{
	row->name = i->name;
	memcpy(row->uuid, i->uuid, sizeof(row->uuid));
	row->generation = i->generation;
	row->seq = i->seq;
	row->has_step = i->has_step;
	row->step = i->step;
	row->created_ns = i->created_ns;
	row->has_parent = i->has_parent;
	memcpy(row->parent, i->parent, sizeof(row->parent));
	row->metrics = i->metrics;
	row->bytes = i->bytes;
}

static int stat_row(struct ckpt_store *s, const char *name,
		    struct ckq_row *row, struct ckpt_err *err)
{
	struct stat st;
	bool is_run = false;
	int rc = cks_name_stat(s, name, &is_run, &st, err);

	if (rc < 0 || is_run)
		return rc < 0 && rc != CKPT_ENOENT ? rc :
		       ckb_err(err, CKPT_ENOENT, "there is no checkpoint '%s'",
			       name);
	cks_row_identity(row, &st);
	return 0;
}

int cks_index_put(struct ckpt_store *s, struct ckq_index *ix,
		  const char *name, bool *out_fatal, struct ckpt_err *err)
{
	CKB_FREE struct ckq_use *uses = NULL;
	struct ckpt_checkpoint *c = NULL;
	struct ckq_row row = { 0 }, again = { 0 };
	size_t count = 0;
	int rc = stat_row(s, name, &row, err);

	*out_fatal = false;
	if (rc == 0)
		rc = ckpt_checkpoint_open(s, name, &c, err);
	if (rc == 0)
		rc = cks_uses(c, &uses, &count, &row.stored, err);
	/* replaced between the look and the opening: the row would lie */
	if (rc == 0)
		rc = stat_row(s, name, &again, err);
	if (rc == 0 && (again.ino != row.ino || again.size != row.size ||
			again.mtime_ns != row.mtime_ns))
		rc = ckb_err(err, CKPT_ESTALE, "checkpoint '%s' was replaced "
			     "meanwhile", name);
	if (rc == 0) {
		fill_row(&row, ckpt_checkpoint_info(c));
		rc = ckq_index_list_put(ix, &row, uses, count, err);
		*out_fatal = rc < 0;
	}
	ckpt_checkpoint_close(c);
	return rc;
}

static void behind(const struct ckpt_store *s, const struct ckpt_err *err)
{
	ckb_log(CKB_INFO, "store '%s': the index's list of checkpoints was not "
		"brought up to date, which costs time (ckptfs reindex makes it "
		"again): %s", s->path, err->message);
}

static void end(struct ckpt_store *s, struct ckq_index *ix, int rc,
		struct ckpt_err *err)
{
	if (rc == 0)
		rc = ckq_index_end(ix, true, err);
	else
		(void)!ckq_index_end(ix, false, NULL);
	if (rc < 0)
		behind(s, err);
}

void cks_index_note(struct ckpt_store *s, struct ckq_index *ix,
		    const char *name)
{
	struct ckpt_err err = { 0 };
	bool fatal;

	if (ckq_index_begin(ix, false, &err) < 0)
		behind(s, &err);
	else
		end(s, ix, cks_index_put(s, ix, name, &fatal, &err), &err);
}

/* The index, if there is one, with a transaction begun. */
static struct ckq_index *begin(struct ckpt_store *s)
{
	struct ckq_index *ix;
	struct ckpt_err err = { 0 };

	if (ckq_index_open(s->index_path, s->uuid, true, &ix, NULL) < 0)
		return NULL;
	if (ckq_index_begin(ix, false, &err) == 0)
		return ix;
	behind(s, &err);
	ckq_index_close(ix);
	return NULL;
}

void cks_index_forget(struct ckpt_store *s, const char *name,
		      const struct ckq_use *uses, size_t count)
{
	struct ckq_index *ix = begin(s);
	struct ckpt_err err = { 0 };

	if (!ix)
		return;
	end(s, ix, ckq_index_list_drop(ix, name, uses, count, &err), &err);
	ckq_index_close(ix);
}

void cks_index_moved(struct ckpt_store *s, const char *from, const char *to)
{
	struct ckq_index *ix = begin(s);
	struct ckpt_checkpoint *c = NULL;
	struct ckq_row row = { 0 };
	struct ckpt_err err = { 0 };

	if (!ix)
		return;
	int rc = stat_row(s, to, &row, &err);

	if (rc == 0)
		rc = ckpt_checkpoint_open(s, to, &c, &err);
	if (rc == 0)
		rc = ckpt_checkpoint_stored_bytes(c, &row.stored, &err);
	if (rc == 0) {
		fill_row(&row, ckpt_checkpoint_info(c));
		rc = ckq_index_list_move(ix, from, &row, &err);
	}
	end(s, ix, rc, &err);
	ckpt_checkpoint_close(c);
	ckq_index_close(ix);
}

void cks_index_came(struct ckpt_store *s, const char *name)
{
	struct ckq_index *ix;

	if (ckq_index_open(s->index_path, s->uuid, true, &ix, NULL) < 0)
		return;
	cks_index_note(s, ix, name);
	ckq_index_close(ix);
}
