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

#include <errno.h>
#include <string.h>

#include "base/buf.h"
#include "base/log.h"
#include "base/text.h"
#include "catalog/index.h"
#include "catalog/manifest.h"

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
static int put_pack(struct job *j, const uint8_t uuid[16])
{
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

/* The uuid of "UUID.pack" in folder "packs/ab", or false. */
static bool pack_of(const char *name, const char *folder, uint8_t uuid[16])
{
	char text[CKB_UUID_TEXT_BYTES];
	size_t len = CKB_UUID_TEXT_BYTES - 1;

	if (strlen(name) != len + strlen(".pack") ||
	    strcmp(name + len, ".pack") != 0 ||
	    strncmp(name, folder + strlen("packs/"), 2) != 0)
		return false;
	memcpy(text, name, len);
	text[len] = '\0';
	return ckb_uuid_parse(uuid, text);
}

struct packs {
	const char *folder;
	struct ckb_buf uuids; /* 16 bytes each */
};

static int collect_pack(void *ctx, const char *name, unsigned char type)
{
	struct packs *p = ctx;
	uint8_t uuid[CKPT_UUID_BYTES];

	(void)type;
	if (pack_of(name, p->folder, uuid))
		ckb_buf_put(&p->uuids, uuid, sizeof(uuid));
	return 0;
}

static int put_folder(struct job *j, const char *folder)
{
	const struct ckb_sys *sys = j->s->sys;
	struct packs p = { .folder = folder };
	/* a pack may have been moved here a moment ago: what a save is offered
	 * must be there after a power loss too (S2) */
	int rc = ckb_sync_dir(sys, j->s->dirfd, folder, j->err);

	if (rc < 0)
		return rc;
	rc = sys->list(sys, j->s->dirfd, folder, collect_pack, &p);
	if (rc < 0)
		rc = ckb_err_sys(j->err, -rc, "cannot read folder '%s/%s'",
				 j->s->path, folder);
	else if (p.uuids.failed)
		rc = ckb_err_nomem(j->err);
	for (size_t at = 0; rc == 0 && at < p.uuids.len; at += CKPT_UUID_BYTES)
		rc = put_pack(j, p.uuids.data + at);
	ckb_buf_fini(&p.uuids);
	return rc;
}

static int collect_folder(void *ctx, const char *name, unsigned char type)
{
	(void)type;
	if (strlen(name) == 2 && strspn(name, "0123456789abcdef") == 2)
		ckb_buf_put(ctx, name, 2);
	return 0;
}

static int put_packs(struct job *j)
{
	const struct ckb_sys *sys = j->s->sys;
	CKB_BUF struct ckb_buf names = { 0 };
	int rc = sys->list(sys, j->s->dirfd, "packs", collect_folder, &names);

	if (rc == -ENOENT) /* a copy without empty folders */
		return 0;
	if (rc < 0)
		return ckb_err_sys(j->err, -rc, "cannot read folder '%s/packs'",
				   j->s->path);
	if (names.failed)
		return ckb_err_nomem(j->err);
	rc = ckb_sync_dir(sys, j->s->dirfd, "packs", j->err);
	for (size_t at = 0; rc == 0 && at < names.len; at += 2) {
		char folder[] = "packs/ab";

		memcpy(folder + strlen("packs/"), names.data + at, 2);
		rc = put_folder(j, folder);
	}
	return rc;
}

static int put_checkpoint(void *ctx, const char *name)
{
	struct job *j = ctx;
	char path[CKS_NAME_PATH_BYTES];
	struct ckpt_err why = { 0 };
	struct ckq_manifest *m;

	cks_name_path(path, name);
	if (ckq_manifest_open(j->s->sys, j->s->dirfd, path, &m, &why) < 0) {
		j->result->skipped_count++;
		ckb_log(CKB_WARN, "store '%s': checkpoint '%s' is passed over: "
			"%s", j->s->path, name, why.message);
		return 0;
	}
	const struct ckq_facts *f = ckq_manifest_facts(m);
	int rc = ckq_index_put_checkpoint(j->index, name, f->uuid, f->seq,
					  j->err);

	ckq_manifest_close(m);
	if (rc == 0)
		j->result->checkpoint_count++;
	else
		j->failed = true;
	return rc;
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
	rc = put_packs(j);
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
			       "none, else the folder must be writable",
			       s->path);
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
