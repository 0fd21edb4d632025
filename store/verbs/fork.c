/* SPDX-License-Identifier: Apache-2.0 */
/*
 * fork.c - a checkpoint made of another's bytes: a new manifest, no chunk.
 *
 * Rows are copied as they are, through the calls that prove them; facts are
 * new. It is a save that writes no pack: staging first, then condemned/ is
 * read (S8), then the manifest is published like any other (S3). The packs it
 * names were sealed and synced before its source was published (S2). A chunk
 * that was found bad is not passed on (S6).
 *
 * Memory: the new manifest. No state; any thread.
 */
#include <errno.h>
#include <string.h>

#include "base/log.h"
#include "catalog/manifest.h"
#include "format/config.h"
#include "format/name.h"
#include "tensor/grid.h"
#include "verbs/checkpoint.h"
#include "verbs/stage.h"
#include "verbs/store_impl.h"
#include "verbs/uses.h"

struct fork {
	struct ckq_manifest *m;
	struct ckq_build *b;
	struct ckpt_err *err;
};

static int copy_item(void *ctx, uint64_t id, const char *name,
		     enum ckpt_item_kind kind, const char *separator,
		     const char *metadata)
{
	struct fork *f = ctx;

	(void)id;
	return ckq_build_item(f->b, name, kind, separator, metadata, f->err);
}

static int copy_pack(void *ctx, uint64_t id, const uint8_t uuid[16])
{
	struct fork *f = ctx;

	(void)id;
	return ckq_build_pack(f->b, uuid, f->err);
}

/* A tensor's row without its BLOBs; names are borrowed for the call only. */
static int copy_tensor(void *ctx, const struct ckq_tensor *t)
{
	struct ckb_buf *rows = ctx;

	ckb_buf_put(rows, t, sizeof(*t));
	ckb_buf_put(rows, t->name, t->name_len);
	ckb_buf_put(rows, t->media_type ? t->media_type : "",
		    t->media_type ? strlen(t->media_type) + 1 : 1);
	return rows->failed ? CKPT_ENOMEM : 0;
}

static int put_tensor(struct fork *f, struct ckq_tensor *t)
{
	CKB_BUF struct ckb_buf layout = { 0 };
	CKB_BUF struct ckb_buf chunks = { 0 };
	int rc = 0;

	if (t->has_layout)
		rc = ckq_manifest_layout(f->m, t->layout, &layout, f->err);
	if (rc == 0 && t->has_layout)
		rc = ckq_build_layout(f->b, layout.data, layout.len,
				      &t->layout, f->err);
	if (rc == 0 && t->chunks_len > 0)
		rc = ckq_manifest_chunks(f->m, t->id, &chunks, f->err);
	t->chunks = chunks.data;
	t->chunks_len = chunks.len;
	return rc < 0 ? rc : ckq_build_tensor(f->b, t, f->err);
}

/* The manifest may not be asked while it gives its rows, so they are kept:
 * a few hundred bytes a tensor. */
static int copy_tensors(struct fork *f)
{
	CKB_BUF struct ckb_buf rows = { 0 };
	int rc = ckq_manifest_tensors(f->m, copy_tensor, &rows, f->err);

	if (rows.failed)
		return ckb_err_nomem(f->err);
	for (size_t at = 0; rc == 0 && at < rows.len;) {
		struct ckq_tensor t;

		memcpy(&t, rows.data + at, sizeof(t));
		at += sizeof(t);
		t.name = (char *)rows.data + at;
		at += t.name_len;
		if (t.media_type)
			t.media_type = (char *)rows.data + at;
		at += strlen((char *)rows.data + at) + 1;
		rc = put_tensor(f, &t);
	}
	return rc;
}

/* A fork of what is known to be damaged would look like one more whole copy. */
static int check_chunks(const struct cks_stage *st, struct ckpt_checkpoint *c,
			const struct ckpt_tensor_info *t, struct ckpt_err *err)
{
	char bad[CKS_BAD_NAME_BYTES], where[CKS_WHERE_BYTES];
	struct cks_chunks *k = NULL;
	int rc = cks_chunks_load(c, t, &k, err);

	for (uint64_t i = 0; rc == 0 && i < k->count; i++) {
		const struct ckf_chunk_entry *e = &k->entries[i];
		const uint8_t *pack = cks_checkpoint_pack(c, e->pack);

		if (cks_stage_reusable(st, pack, e->off))
			continue;
		cks_bad_name(bad, pack, e->off);
		rc = ckb_err(err, CKPT_ECORRUPT, "%s: a chunk of it was found "
			     "bad ('%s/bad/%s'), so it is not copied; ckptfs "
			     "check --full tells all that is damaged",
			     cks_where(where, c, t),
			     cks_checkpoint_store(c)->path, bad);
	}
	cks_chunks_free(k);
	return rc;
}

static int check_source(const struct cks_stage *st, struct ckpt_checkpoint *c,
			struct ckpt_err *err)
{
	int rc = cks_stage_keeps(st, c, err);

	if (rc < 0 || !cks_stage_bad_any(st))
		return rc; /* no chunk list is read for nothing */
	for (size_t i = 0; rc == 0 && i < ckpt_tensor_count(c); i++)
		if (ckpt_tensor_at(c, i)->alias_of == SIZE_MAX)
			rc = check_chunks(st, c, ckpt_tensor_at(c, i), err);
	return rc;
}

static int build(struct ckpt_store *s, struct ckpt_checkpoint *from,
		 const char *to, const struct ckpt_fork_opts *o,
		 struct ckb_buf *out, struct ckpt_err *err)
{
	const struct ckpt_checkpoint_info *i = ckpt_checkpoint_info(from);
	struct fork f = { .m = cks_checkpoint_manifest(from), .err = err };
	struct ckq_facts facts = {
		.generation = 1, .has_step = o->has_step || i->has_step,
		.step = o->has_step ? o->step : i->step,
		.created_ns = s->sys->now_ns(s->sys), .has_parent = true,
		.saved_as = to,
		.metadata = o->metadata ? o->metadata : i->metadata,
		.metrics = o->metrics ? o->metrics : i->metrics,
		.writer = "ckptfs " CKPT_VERSION " cp",
		.tile_rule = CKT_TILE_RULE,
	};
	int rc = cks_store_last_seq(s, &facts.seq, err);

	if (rc == 0)
		rc = cks_uuid_new(s->sys, facts.uuid, err);
	if (rc < 0)
		return rc;
	facts.seq++;
	memcpy(facts.store_uuid, s->uuid, sizeof(facts.store_uuid));
	memcpy(facts.parent, i->uuid, sizeof(facts.parent));
	rc = ckq_build_new(&facts, &f.b, err);
	if (rc == 0)
		rc = ckq_manifest_items(f.m, copy_item, &f, err);
	if (rc == 0)
		rc = ckq_manifest_packs(f.m, copy_pack, &f, err);
	if (rc == 0)
		rc = copy_tensors(&f);
	if (rc == 0)
		rc = ckq_build_finish(f.b, out, err);
	ckq_build_free(f.b);
	return rc;
}

static int check_opts(struct ckpt_store *s, const char *to,
		      const struct ckpt_fork_opts *o, struct ckpt_err *err)
{
	int rc = cks_store_writable(s, err);

	if (rc == 0 && o->size < sizeof(*o))
		rc = ckb_err(err, CKPT_EINVAL, "ckpt_fork_opts.size is %zu, "
			     "not %zu", o->size, sizeof(*o));
	if (rc == 0)
		rc = ckf_checkpoint_name(to, err);
	if (rc == 0)
		rc = ckf_json_object(o->metadata, "metadata", err);
	if (rc == 0)
		rc = ckf_json_object(o->metrics, "metrics", err);
	return rc;
}

int ckpt_store_fork(struct ckpt_store *s, const char *from, const char *to,
		    const struct ckpt_fork_opts *opts, struct ckpt_err *err)
{
	static const struct ckpt_fork_opts none = { .size = sizeof(none) };
	CKB_BUF struct ckb_buf manifest = { 0 };
	struct ckpt_checkpoint *c = NULL;
	struct cks_stage *st = NULL;
	uint8_t attempt[16];

	CKB_REQUIRE(s && from && to);
	int rc = check_opts(s, to, opts ? opts : &none, err);

	if (rc == 0)
		rc = cks_uuid_new(s->sys, attempt, err);
	/* S8: first seen by gc, then looked at */
	if (rc == 0)
		rc = cks_stage_open(s, to, attempt, &st, err);
	if (rc == 0)
		rc = ckpt_checkpoint_open(s, from, &c, err);
	if (rc == 0)
		rc = check_source(st, c, err);
	if (rc == 0)
		rc = build(s, c, to, opts ? opts : &none, &manifest, err);
	if (rc == 0)
		rc = cks_stage_commit(st, manifest.data, manifest.len, false,
				      err);
	if (rc == 0 || rc == CKPT_EUNSURE)
		cks_index_came(s, to);
	cks_stage_close(st);
	ckpt_checkpoint_close(c);
	return rc;
}
