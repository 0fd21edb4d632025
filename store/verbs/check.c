/* SPDX-License-Identifier: Apache-2.0 */
/*
 * check.c - look for damage, tell all of it, go on.
 *
 * Every chunk of every checkpoint asked for becomes a demand (pack, offset,
 * and whose it is). Demands are sorted, so each pack is opened once and read in
 * offset order, and each record is verified once however many tensors share
 * it; each of them is told. A manifest that cannot be read is a finding, as is
 * a chunk list or a layout that does not cover its tensor (S7), or a root that
 * does not follow from it. Staging and what an abandoned save left in packs/
 * are no damage.
 *
 * One thread; memory follows the number of chunks, not their bytes.
 */
#include "verbs/check_impl.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/buf.h"
#include "base/hash.h"
#include "base/text.h"
#include "chunk/digest.h"
#include "tensor/box.h"

static void tell_tensor(struct cks_check *k, struct ckpt_checkpoint *c,
			const struct ckpt_tensor_info *t,
			const struct ckpt_err *why)
{
	cks_check_tell(k, &(struct ckpt_damage){
		.code = why->code,
		.checkpoint = ckpt_checkpoint_info(c)->name,
		.item = ckpt_item_at(c, t->item)->name,
		.tensor = t->name, .tensor_len = t->name_len,
		.what = why->message });
}

/* ---- manifests ---- */

static int demand_chunks(struct cks_check *k, struct ckpt_checkpoint *c,
			 const struct ckpt_tensor_info *t,
			 const struct cks_chunks *chunks)
{
	for (uint64_t i = 0; i < chunks->count; i++) {
		const struct ckf_chunk_entry *e = &chunks->entries[i];

		if (!ckb_room(&k->demands, k->demand_count, &k->demand_cap,
			  sizeof(*k->demands)))
			return ckb_err_nomem(k->err);
		struct cks_demand *d = &k->demands[k->demand_count++];

		*d = (struct cks_demand){
			.off = e->off, .stored_len = e->stored_len,
			.head_len = e->head_len, .raw_len = e->raw_len,
			.codec = e->codec,
			.ckpt = (uint32_t)k->name_count,
			.tensor = (uint32_t)t->index, .entry = i,
		};
		memcpy(d->pack, cks_checkpoint_pack(c, e->pack),
		       CKPT_UUID_BYTES);
		memcpy(d->digest, e->digest, CKPT_DIGEST_BYTES);
	}
	return 0;
}

/* A tensor of whole tiles has a root that follows from their digests; nothing
 * else has one. */
static int check_root(const struct ckpt_tensor_info *t,
		      const struct cks_chunks *chunks, struct ckpt_err *err)
{
	CKB_BUF struct ckb_buf input = { 0 };
	uint8_t made[CKPT_DIGEST_BYTES];
	bool whole = true;

	ckf_root_preamble(t->dtype, t->shape, &input);
	for (uint64_t i = 0; i < chunks->count; i++) {
		whole = whole && chunks->entries[i].shard == CKF_WHOLE_TILE;
		ckb_buf_put(&input, chunks->entries[i].digest,
			    CKPT_DIGEST_BYTES);
	}
	if (input.failed)
		return ckb_err_nomem(err);
	ckc_sha256(input.data, input.len, made);
	if (t->has_root != (whole && !t->media_type))
		return ckb_err(err, CKPT_ECORRUPT, "it has %s",
			       t->has_root ? "a root, which it cannot have"
					   : "no root");
	if (t->has_root && memcmp(made, t->root, sizeof(made)) != 0)
		return ckb_err(err, CKPT_ECORRUPT, "its root does not follow "
			       "from its tiles' digests");
	return 0;
}

static int by_box(const void *a, const void *b, void *ctx)
{
	const struct ckpt_box *x = a, *y = b;
	size_t n = *(const uint32_t *)ctx * sizeof(x->origin[0]);
	int c = memcmp(x->origin, y->origin, n);

	return c ? c : memcmp(x->extent, y->extent, n);
}

/* The shards cover the tensor exactly once, replicas counted once (S7). */
static int check_layout(const struct cks_chunks *chunks, struct ckpt_err *err)
{
	const struct ckt_grid *g = &chunks->grid;
	uint32_t n = 0, a, b, count = chunks->layout->shard_count;
	CKB_FREE struct ckpt_box *boxes = NULL;

	boxes = calloc(count, sizeof(*boxes));
	if (!boxes)
		return ckb_err_nomem(err);
	for (uint32_t i = 0; i < count; i++) {
		const struct ckf_shard *s = &chunks->layout->shards[i];

		boxes[i].ndim = g->ndim;
		memcpy(boxes[i].origin, s->origin, g->ndim * sizeof(uint64_t));
		memcpy(boxes[i].extent, s->extent, g->ndim * sizeof(uint64_t));
	}
	qsort_r(boxes, count, sizeof(*boxes), by_box, (void *)&g->ndim);
	for (uint32_t i = 0; i < count; i++)
		if (n == 0 || !ckt_box_equal(&boxes[n - 1], &boxes[i]))
			boxes[n++] = boxes[i];
	int rc = ckt_cover_check(g->ndim, g->shape, boxes, n, &a, &b, err);

	return rc == CKPT_EINVAL ? ckb_err_prefix(err, CKPT_ECORRUPT,
						  "its layout") : rc;
}

/* Once for all tensors of one layout, shape and element size. */
static int check_layout_once(struct cks_check *k,
			     const struct ckpt_tensor_info *t,
			     const struct cks_chunks *chunks,
			     struct ckpt_err *err)
{
	struct cks_proved now = { chunks->layout, t->shape,
				  ckpt_dtype_bits(t->dtype) };
	uint64_t h = ckb_xxh3(&now, offsetof(struct cks_proved, bits));
	struct cks_proved *slot = &k->proved[h % CKB_ARRAY_LEN(k->proved)];

	if (!now.layout || now.layout->shard_count == 0 ||
	    chunks->grid.bytes == 0)
		return 0;
	if (slot->layout == now.layout && slot->shape == now.shape &&
	    slot->bits == now.bits)
		return 0;
	int rc = check_layout(chunks, err);

	if (rc == 0)
		*slot = now;
	return rc;
}

static int check_tensor(struct cks_check *k, struct ckpt_checkpoint *c,
			const struct ckpt_tensor_info *t)
{
	struct cks_chunks *chunks;
	struct ckpt_err why = { 0 };
	int rc = cks_chunks_load(c, t, &chunks, &why);

	if (rc == 0) {
		rc = check_root(t, chunks, &why);
		if (rc == CKPT_ECORRUPT) {
			tell_tensor(k, c, t, &why);
			rc = 0;
		}
	}
	if (rc == 0)
		rc = check_layout_once(k, t, chunks, &why);
	if (rc < 0 && cks_check_fatal(k, rc, &why)) {
		cks_chunks_free(chunks);
		return rc;
	}
	if (rc < 0)
		tell_tensor(k, c, t, &why);
	/* what is there is looked at all the same; aliases have no chunks */
	rc = chunks && t->alias_of == SIZE_MAX
		     ? demand_chunks(k, c, t, chunks) : 0;
	cks_chunks_free(chunks);
	return rc;
}

static int open_whole(struct cks_check *k, const char *name,
		      struct ckpt_checkpoint **out, struct ckpt_err *err)
{
	int rc = ckpt_checkpoint_open(k->store, name, out, err);

	if (rc == 0)
		rc = ckq_manifest_verify(cks_checkpoint_manifest(*out), err);
	if (rc < 0) {
		ckpt_checkpoint_close(*out);
		*out = NULL;
	}
	return rc;
}

static int check_checkpoint(void *ctx, const char *name)
{
	struct cks_check *k = ctx;
	struct ckpt_checkpoint *c = NULL;
	struct ckpt_err why = { 0 };
	int rc = open_whole(k, name, &c, &why);

	if (rc == CKPT_ENOENT)
		return 0; /* removed since it was listed */
	k->result->checkpoint_count++;
	if (rc < 0 && cks_check_fatal(k, rc, &why))
		return rc;
	if (rc < 0) {
		cks_check_tell(k, &(struct ckpt_damage){
			.code = rc, .checkpoint = name, .what = why.message });
		return 0;
	}
	rc = ckb_room(&k->names, k->name_count, &k->name_cap,
		      sizeof(*k->names)) ? 0 : ckb_err_nomem(k->err);
	memset(k->proved, 0, sizeof(k->proved));
	for (size_t i = 0; rc == 0 && i < ckpt_tensor_count(c); i++) {
		const struct ckpt_tensor_info *t = ckpt_tensor_at(c, i);

		if (ckpt_item_at(c, t->item)->kind != CKPT_ITEM_ORIGIN)
			(*(t->media_type ? &k->result->file_count
					 : &k->result->tensor_count))++;
		rc = check_tensor(k, c, t);
	}
	ckpt_checkpoint_close(c);
	if (rc == 0) {
		k->names[k->name_count] = strdup(name);
		rc = k->names[k->name_count] ? 0 : ckb_err_nomem(k->err);
		k->name_count += rc == 0;
	}
	return rc;
}

/* ---- all packs ---- */

struct uuids {
	struct cks_check *k;
	const char *folder;  /* being listed */
	uint8_t (*list)[CKPT_UUID_BYTES];
	size_t count, cap;
};

static int take_pack(void *ctx, const char *name, unsigned char type)
{
	struct uuids *u = ctx;
	char text[CKB_UUID_TEXT_BYTES];
	uint8_t uuid[CKPT_UUID_BYTES];

	(void)type;
	snprintf(text, sizeof(text), "%s", name);
	if (!ckb_uuid_parse(uuid, text) || strcmp(name + 36, ".pack") != 0)
		return 0;
	if (!ckb_room(&u->list, u->count, &u->cap, sizeof(*u->list)))
		return -ENOMEM;
	memcpy(u->list[u->count++], uuid, CKPT_UUID_BYTES);
	return 0;
}

static int take_folder(void *ctx, const char *name, unsigned char type)
{
	struct uuids *u = ctx;
	struct ckpt_store *s = u->k->store;
	struct ckpt_err why = { 0 };
	char path[300];

	(void)type;
	snprintf(path, sizeof(path), "packs/%s", name);
	int rc = s->sys->list(s->sys, s->dirfd, path, take_pack, u);

	if (rc == -ENOTDIR || rc >= 0)
		return 0;
	if (rc == -ENOMEM || rc == -EMFILE || rc == -ENFILE)
		return rc;
	ckb_err_sys(&why, -rc, "the folder cannot be listed");
	cks_check_tell(u->k, &(struct ckpt_damage){
		.code = why.code, .pack = path, .what = why.message });
	return 0;
}

static int compare_uuid(const void *a, const void *b)
{
	return memcmp(a, b, CKPT_UUID_BYTES);
}

static int list_packs(struct cks_check *k, struct uuids *u)
{
	struct ckpt_store *s = k->store;
	int rc = s->sys->list(s->sys, s->dirfd, "packs", take_folder, u);

	/* a store copied without its empty folders has none */
	if (rc == -ENOENT)
		rc = 0;
	if (rc == -ENOMEM)
		return ckb_err_nomem(k->err);
	if (rc < 0)
		return ckb_err_sys(k->err, -rc, "cannot list '%s/packs'",
				   s->path);
	if (u->count > 0)
		qsort(u->list, u->count, sizeof(*u->list), compare_uuid);
	return 0;
}

static int check_packs(struct cks_check *k, bool all)
{
	struct uuids u = { .k = k };
	size_t at = 0;
	int rc = all ? list_packs(k, &u) : 0;

	for (size_t i = 0; rc == 0 && (i < u.count || at < k->demand_count);) {
		/* the next pack of either list, in order of uuids */
		int c = i >= u.count ? 1 : at >= k->demand_count ? -1
			: memcmp(u.list[i], k->demands[at].pack,
				 CKPT_UUID_BYTES);
		const uint8_t *uuid = c < 0 ? u.list[i] : k->demands[at].pack;
		size_t n = 0;

		while (c >= 0 && at + n < k->demand_count &&
		       memcmp(k->demands[at + n].pack, uuid,
			      CKPT_UUID_BYTES) == 0)
			n++;
		rc = cks_check_pack(k, uuid, k->demands + at, n, all);
		at += n;
		i += c <= 0;
	}
	free(u.list);
	return rc;
}

static void unread_run(void *ctx, const char *run, const struct ckpt_err *why)
{
	cks_check_tell(ctx, &(struct ckpt_damage){
		.code = why->code, .checkpoint = run, .what = why->message });
}

static int gather(struct cks_check *k, const char *name)
{
	bool is_run = false;
	int rc;

	k->cell = malloc(CKB_CELL_BYTES);
	k->scratch = malloc(CKB_CELL_BYTES);
	if (!k->cell || !k->scratch)
		return ckb_err_nomem(k->err);
	if (!name) {
		rc = cks_store_walk(k->store, check_checkpoint, unread_run, k,
				    k->err);
	} else {
		rc = cks_name_stat(k->store, name, &is_run, NULL, k->err);
		if (rc == CKPT_ENOENT || (rc == 0 && is_run))
			return ckb_err(k->err, CKPT_ENOENT, "there is no "
				       "checkpoint '%s'", name);
		if (rc == 0)
			rc = check_checkpoint(k, name);
	}
	if (rc == 0 && k->demand_count > 0)
		qsort(k->demands, k->demand_count, sizeof(*k->demands),
		      cks_demand_order);
	for (size_t i = 0; i < k->demand_count; i++)
		if (i == 0 || cks_demand_order(&k->demands[i - 1],
					       &k->demands[i]) != 0)
			k->total += k->demands[i].stored_len;
	return rc;
}

int ckpt_store_check(struct ckpt_store *store, const char *name,
		     const struct ckpt_check_opts *opts,
		     struct ckpt_check_result *out, struct ckpt_err *err)
{
	struct ckpt_check_result result = { 0 };
	struct cks_check k = { .store = store, .opts = opts,
			       .result = &result, .err = err };

	CKB_REQUIRE(store && opts && out);
	if (opts->size < sizeof(*opts))
		return ckb_err(err, CKPT_EINVAL, "ckpt_check_opts.size is %zu, "
			       "not %zu", opts->size, sizeof(*opts));
	int rc = gather(&k, name);

	if (rc == 0)
		rc = check_packs(&k, name == NULL);
	for (size_t i = 0; i < k.name_count; i++)
		free(k.names[i]);
	free(k.names);
	free(k.demands);
	free(k.extents);
	free(k.findings);
	free(k.whats);
	free(k.cell);
	free(k.scratch);
	if (rc == 0)
		*out = result;
	return rc;
}
