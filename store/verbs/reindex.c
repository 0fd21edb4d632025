/* SPDX-License-Identifier: Apache-2.0 */
/*
 * reindex.c - make index.db again from packs and manifests.
 *
 * Believes a pack's trailer, or, when that is damaged, whatever records a scan
 * of the pack finds: each hit is proved again before it is used (DESIGN 4). A
 * pack or manifest that cannot be read is counted, logged and passed over.
 * All in one transaction: who opens the index meanwhile sees the old one. An
 * index that SQLite cannot use is removed first; it is a cache.
 *
 * Memory: one folder's names and one pack's trailer at a time (S9).
 * Threads: no state; any.
 */
#include "verbs/store_impl.h"

#include <string.h>

#include "base/log.h"
#include "catalog/index.h"
#include "verbs/uses.h"

struct job {
	struct ckpt_store *s;
	struct ckq_index *index;
	struct ckpt_reindex_result *result;
	struct ckpt_err *err;    /* never NULL */
	const uint8_t *pack;     /* the one being read */
	bool failed;             /* the index itself failed: @err says why */
};

static int put_entry(void *ctx, const struct ckf_trailer_entry *e)
{
	struct job *j = ctx;
	struct ckq_place place = {
		.off = e->off, .stored_len = e->stored_len,
		.head_len = e->head_len, .raw_len = (uint32_t)e->raw_len,
		.codec = e->codec,
	};

	/* no chunk is larger than a tile; a hostile pack may say otherwise */
	if (e->kind != CKF_RECORD_CHUNK || e->raw_len > CKB_TILE_MAX_BYTES)
		return 0;
	memcpy(place.pack, j->pack, CKPT_UUID_BYTES);
	int rc = ckq_index_put(j->index, e->digest, &place, j->err);

	j->failed = rc < 0;
	if (rc == 0)
		j->result->chunk_count++;
	return rc;
}

/* Negative only when the index failed. */
static int put_pack(void *ctx, const uint8_t uuid[16])
{
	struct job *j = ctx;
	char path[CKS_PACK_PATH_BYTES];
	struct ckpt_err why = { 0 };
	struct ckc_pack *p;

	j->pack = uuid;
	cks_pack_path(path, uuid);
	int rc = cks_pack_get(j->s, uuid, &p, &why);

	if (rc == 0) {
		rc = ckc_pack_trailer(p, put_entry, j, &why);
		if (rc == CKPT_ECORRUPT && !j->failed) {
			ckb_log(CKB_WARN, "store '%s': %s: %s; its records are "
				"looked for one by one", j->s->path, path,
				why.message);
			rc = ckc_pack_scan(p, put_entry, j, &why);
		}
		cks_pack_put(j->s, p);
	}
	if (j->failed)
		return rc;
	if (rc == 0) {
		j->result->pack_count++;
		return 0;
	}
	j->result->skipped_count++;
	ckb_log(CKB_WARN, "store '%s': %s is passed over: %s", j->s->path,
		path, why.message);
	return 0;
}

static int put_checkpoint(void *ctx, const char *name)
{
	struct job *j = ctx;
	struct ckpt_err why = { 0 };
	int rc = cks_index_put(j->s, j->index, name, &j->failed, &why);

	if (rc == 0) {
		j->result->checkpoint_count++;
	} else if (j->failed) {
		*j->err = why;
		return rc;
	} else {
		j->result->skipped_count++;
		ckb_log(CKB_WARN, "store '%s': checkpoint '%s' is passed over: "
			"%s", j->s->path, name, why.message);
	}
	return 0;
}

static void unread_run(void *ctx, const char *run, const struct ckpt_err *why)
{
	struct job *j = ctx;

	j->result->skipped_count++;
	ckb_log(CKB_WARN, "store '%s': run '%s' is passed over: %s", j->s->path,
		run, why->message);
}

static int fill(struct job *j)
{
	int rc = ckq_index_begin(j->index, true, j->err);

	j->failed = rc < 0;
	if (rc < 0)
		return rc;
	rc = cks_packs_walk(j->s, true, put_pack, j, j->err);
	if (rc == 0)
		rc = cks_store_walk(j->s, put_checkpoint, unread_run, j,
				    j->err);
	if (rc < 0) {
		(void)!ckq_index_end(j->index, false, NULL);
		return rc;
	}
	rc = ckq_index_end(j->index, true, j->err);
	j->failed = rc < 0;
	return rc;
}

/* One try with the index that is there, or a new one. */
static int try(struct job *j)
{
	struct ckpt_store *s = j->s;

	*j->result = (struct ckpt_reindex_result){ 0 };
	int rc = ckq_index_open(s->index_path, s->uuid, true, &j->index,
				j->err);

	j->failed = rc < 0;
	if (rc == CKPT_ENOENT)
		return ckb_err(j->err, CKPT_EIO, "no index can be made in "
			       "store '%s': on a network file system there is "
			       "none", s->path);
	if (rc == 0)
		rc = fill(j);
	ckq_index_close(j->index);
	return rc;
}

int ckpt_store_reindex(struct ckpt_store *s, struct ckpt_reindex_result *out,
		       struct ckpt_err *err)
{
	struct ckpt_reindex_result result = { 0 };
	struct ckpt_err mine = { 0 };
	struct job j = { .s = s, .result = &result, .err = &mine };

	CKB_REQUIRE(s && out);
	int rc = cks_store_writable(s, err);

	if (rc < 0)
		return rc;
	rc = try(&j);
	/* a damaged one is given up: it is a cache. Not one that is in use by
	 * another, whose chunks would be lost with it */
	if (rc == CKPT_ECORRUPT && j.failed &&
	    ckq_index_remove(s->index_path, NULL) == 0)
		rc = try(&j);
	if (rc == 0)
		*out = result;
	else if (err)
		*err = mine;
	return rc;
}
