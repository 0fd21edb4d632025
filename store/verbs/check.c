/* SPDX-License-Identifier: Apache-2.0 */
/*
 * check.c - look for damage, tell all of it, go on.
 *
 * Every chunk of every checkpoint asked for becomes a demand (pack, offset,
 * and whose it is). Demands are sorted, so each pack is opened once and read in
 * offset order, and each record is verified once however many tensors share
 * it; each of them is told. A manifest that cannot be read is a finding, as is
 * a chunk list that does not cover its tensor (S7). When the whole store is
 * checked, packs are walked as well: trailers, records nobody demands, and the
 * zero bytes between records, so that any flipped byte is found.
 *
 * One thread; memory follows the number of chunks, not their bytes.
 */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/text.h"
#include "chunk/digest.h"
#include "tensor/box.h"
#include "verbs/checkpoint.h"
#include "verbs/store_impl.h"

/* One chunk that a tensor needs. */
struct demand {
	uint8_t pack[CKPT_UUID_BYTES];
	uint64_t off, stored_len;
	uint32_t head_len, raw_len;
	uint16_t codec;
	uint8_t digest[CKPT_DIGEST_BYTES];
	uint32_t ckpt;          /* in check.names */
	uint32_t tensor;
	uint64_t entry;         /* in its chunk list */
};

/* A record as a pack's own trailer has it. */
struct extent {
	struct ckf_trailer_entry e;
};

struct check {
	struct ckpt_store *store;
	const struct ckpt_check_opts *opts;
	struct ckpt_check_result *result;
	struct demand *demands;
	size_t demand_count, demand_cap;
	char **names;
	size_t name_count, name_cap;
	struct extent *extents; /* of the pack at hand */
	size_t extent_count, extent_cap;
	uint8_t *chunk, *scratch; /* CKB_TILE_MAX_BYTES, CKB_CELL_BYTES */
	uint64_t total;         /* stored bytes to look at */
	struct ckpt_err *err;
};

static bool grow(void *array, size_t count, size_t *cap, size_t each)
{
	void **p = array;

	if (count < *cap)
		return true;
	size_t more = *cap ? *cap * 2 : 256;
	void *grown = realloc(*p, more * each);

	if (!grown)
		return false;
	*p = grown;
	*cap = more;
	return true;
}

static void tell(struct check *k, const struct ckpt_damage *d)
{
	k->result->damage_count++;
	if (k->opts->on_damage)
		k->opts->on_damage(k->opts->ctx, d);
}

/* Out of memory, interrupted, no descriptors: not damage, ends the check. */
static bool fatal(int rc)
{
	return rc == CKPT_ENOMEM || rc == CKPT_ECANCELED;
}

/* ---- manifests ---- */

static int demand_tensor(struct check *k, struct ckpt_checkpoint *c,
			 const struct ckpt_tensor_info *t)
{
	const struct cks_chunks *chunks;
	struct ckpt_err why = { 0 };
	int rc = cks_checkpoint_chunks(c, t, &chunks, &why);

	if (rc < 0) {
		tell(k, &(struct ckpt_damage){
			.checkpoint = ckpt_checkpoint_info(c)->name,
			.item = ckpt_item_at(c, t->item)->name,
			.tensor = t->name, .tensor_len = t->name_len,
			.what = why.message });
		return fatal(rc) ? rc : 0;
	}
	for (uint64_t i = 0; i < chunks->count; i++) {
		const struct ckf_chunk_entry *e = &chunks->entries[i];

		if (!grow(&k->demands, k->demand_count, &k->demand_cap,
			  sizeof(*k->demands)))
			return ckb_err_nomem(k->err);
		struct demand *d = &k->demands[k->demand_count++];

		*d = (struct demand){
			.off = e->off, .stored_len = e->stored_len,
			.head_len = e->head_len, .raw_len = e->raw_len,
			.codec = e->codec,
			.ckpt = (uint32_t)k->name_count,
			.tensor = (uint32_t)t->index, .entry = i,
		};
		memcpy(d->pack, cks_checkpoint_pack(c, e->pack),
		       CKPT_UUID_BYTES);
		memcpy(d->digest, e->digest, CKPT_DIGEST_BYTES);
		k->total += e->stored_len;
	}
	return 0;
}

/* The root must follow from the tiles' digests. */
static bool root_ok(struct check *k, struct ckpt_checkpoint *c,
		    const struct ckpt_tensor_info *t)
{
	const struct cks_chunks *chunks;
	CKB_BUF struct ckb_buf input = { 0 };
	uint8_t root[CKPT_DIGEST_BYTES];

	if (!t->has_root || cks_checkpoint_chunks(c, t, &chunks, NULL) < 0)
		return true;
	ckf_root_preamble(t->dtype, t->shape, &input);
	for (uint64_t i = 0; i < chunks->count; i++) {
		if (chunks->entries[i].shard != CKF_WHOLE_TILE)
			return false;
		ckb_buf_put(&input, chunks->entries[i].digest,
			    CKPT_DIGEST_BYTES);
	}
	(void)k;
	if (input.failed)
		return true;
	ckc_sha256(input.data, input.len, root);
	return memcmp(root, t->root, sizeof(root)) == 0;
}

static int check_checkpoint(void *ctx, const char *name)
{
	struct check *k = ctx;
	struct ckpt_checkpoint *c = NULL;
	struct ckpt_err why = { 0 };
	int rc = ckpt_checkpoint_open(k->store, name, &c, &why);

	if (rc == 0)
		rc = ckq_manifest_verify(cks_checkpoint_manifest(c), &why);
	k->result->checkpoint_count++;
	if (rc < 0) {
		ckpt_checkpoint_close(c);
		if (fatal(rc)) {
			if (k->err)
				*k->err = why;
			return rc;
		}
		tell(k, &(struct ckpt_damage){ .checkpoint = name,
					       .what = why.message });
		return 0;
	}
	if (!grow(&k->names, k->name_count, &k->name_cap, sizeof(*k->names)))
		rc = ckb_err_nomem(k->err);
	for (size_t i = 0; rc == 0 && i < ckpt_tensor_count(c); i++) {
		const struct ckpt_tensor_info *t = ckpt_tensor_at(c, i);

		k->result->tensor_count++;
		if (!root_ok(k, c, t))
			tell(k, &(struct ckpt_damage){
				.checkpoint = name,
				.item = ckpt_item_at(c, t->item)->name,
				.tensor = t->name, .tensor_len = t->name_len,
				.what = "its root does not follow from its "
					"tiles' digests" });
		if (t->alias_of == SIZE_MAX)
			rc = demand_tensor(k, c, t);
	}
	ckpt_checkpoint_close(c);
	if (rc == 0) {
		k->names[k->name_count] = strdup(name);
		rc = k->names[k->name_count] ? 0 : ckb_err_nomem(k->err);
		k->name_count += rc == 0;
	}
	return rc;
}

/* ---- telling whose a bad record is ---- */

/* The checkpoint is opened again: damage is rare, and names need memory. */
static void tell_demand(struct check *k, const struct demand *d,
			const char *pack, const char *what)
{
	struct ckpt_checkpoint *c = NULL;
	const struct cks_chunks *chunks = NULL;
	struct ckpt_box box;
	struct ckpt_damage out = {
		.checkpoint = k->names[d->ckpt], .pack = pack,
		.pack_off = d->off, .what = what,
	};

	if (ckpt_checkpoint_open(k->store, k->names[d->ckpt], &c, NULL) == 0) {
		const struct ckpt_tensor_info *t = ckpt_tensor_at(c,
								  d->tensor);

		out.item = ckpt_item_at(c, t->item)->name;
		out.tensor = t->name;
		out.tensor_len = t->name_len;
		if (cks_checkpoint_chunks(c, t, &chunks, NULL) == 0) {
			cks_chunk_box(chunks, &chunks->entries[d->entry],
				      &box);
			out.box = &box;
		}
	}
	tell(k, &out);
	ckpt_checkpoint_close(c);
}

/* ---- records ---- */

static int check_cells(struct check *k, struct ckc_pack *p, uint64_t off,
		       uint32_t head_len, const struct ckf_record *r,
		       struct ckpt_err *err)
{
	struct ckc_sha256 *sha = k->opts->depth == CKPT_CHECK_FULL
					 ? ckc_sha256_new() : NULL;
	uint8_t digest[CKPT_DIGEST_BYTES];
	int rc = k->opts->depth == CKPT_CHECK_FULL && !sha ? ckb_err_nomem(err)
							   : 0;

	for (uint32_t i = 0; rc == 0 && i < r->cell_count; i++) {
		rc = ckc_pack_cell(p, off, head_len, r, i, k->chunk,
				   k->scratch, err);
		if (rc == 0 && sha)
			ckc_sha256_add(sha, k->chunk,
				       ckf_cell_raw_len(r->raw_len, i));
	}
	if (rc == 0 && sha) {
		ckc_sha256_end(sha, digest);
		if (memcmp(digest, r->digest, sizeof(digest)) != 0)
			rc = ckb_err(err, CKPT_ECORRUPT, "its bytes do not "
				     "match their SHA-256");
	}
	ckc_sha256_free(sha);
	return rc;
}

/* Read and verify the record at @off; @d, if any, says what it must be. */
static int check_record(struct check *k, struct ckc_pack *p, uint64_t off,
			uint32_t head_len, const struct demand *d,
			struct ckpt_err *err)
{
	uint32_t max = head_len / CKF_CELL_ENTRY_BYTES + 1;
	CKB_FREE struct ckf_cell *cells = calloc(max, sizeof(*cells));
	struct ckf_record r;
	int rc = cells ? ckc_pack_head(p, off, head_len, cells, max, &r, err)
		       : ckb_err_nomem(err);

	if (rc == 0 && d &&
	    (r.kind != CKF_RECORD_CHUNK || r.raw_len != d->raw_len ||
	     r.stored_len != d->stored_len || r.codec != d->codec ||
	     memcmp(r.digest, d->digest, sizeof(r.digest)) != 0))
		rc = ckb_err(err, CKPT_ECORRUPT, "the record there is another "
			     "one than the manifest names");
	if (rc == 0 && r.stored_len > ckc_pack_file_bytes(p) - off - head_len)
		rc = ckb_err(err, CKPT_ECORRUPT, "its bytes lie past the end "
			     "of the pack: it is truncated");
	if (rc == 0 && k->opts->depth >= CKPT_CHECK_CELLS)
		rc = check_cells(k, p, off, head_len, &r, err);
	if (rc == 0) {
		k->result->chunk_count++;
		k->result->bytes += r.stored_len;
		if (k->opts->on_progress)
			k->opts->on_progress(k->opts->ctx, k->result->bytes,
					     k->total);
	}
	return rc;
}

static int by_place(const void *a, const void *b)
{
	const struct demand *x = a, *y = b;
	int c = memcmp(x->pack, y->pack, CKPT_UUID_BYTES);

	return c ? c : (x->off > y->off) - (x->off < y->off);
}

static bool same_record(const struct demand *a, const struct demand *b)
{
	return by_place(a, b) == 0 && a->head_len == b->head_len &&
	       a->raw_len == b->raw_len && a->codec == b->codec &&
	       a->stored_len == b->stored_len &&
	       memcmp(a->digest, b->digest, sizeof(a->digest)) == 0;
}

/* ---- one pack as a whole ---- */

static int take_extent(void *ctx, const struct ckf_trailer_entry *e)
{
	struct check *k = ctx;

	if (!grow(&k->extents, k->extent_count, &k->extent_cap,
		  sizeof(*k->extents)))
		return ckb_err_nomem(k->err);
	k->extents[k->extent_count++].e = *e;
	return 0;
}

static int by_off(const void *a, const void *b)
{
	const struct extent *x = a, *y = b;

	return (x->e.off > y->e.off) - (x->e.off < y->e.off);
}

/* Bytes [from, to) of the pack must be zero: nothing lies there. */
static int check_gap(struct ckc_pack *p, uint64_t from, uint64_t to,
		     struct ckpt_err *err)
{
	uint8_t bytes[CKB_PAYLOAD_ALIGN + 8];

	if (from > to || to - from > sizeof(bytes))
		return ckb_err(err, CKPT_ECORRUPT, "records overlap, or leave "
			       "a gap of more than a page");
	int rc = ckc_pack_read(p, from, bytes, (size_t)(to - from), err);

	for (uint64_t i = 0; rc == 0 && i < to - from; i++)
		if (bytes[i] != 0)
			rc = ckb_err(err, CKPT_ECORRUPT, "a byte between "
				     "records is not zero");
	return rc;
}

/* Records that no checkpoint asked for, and the gaps. */
static void check_rest(struct check *k, struct ckc_pack *p, const char *path,
		       const struct demand *d, size_t n)
{
	uint64_t at = CKF_PACK_HEADER_BYTES;
	size_t next = 0;

	if (k->extent_count > 0)
		qsort(k->extents, k->extent_count, sizeof(*k->extents),
		      by_off);
	for (size_t i = 0; i <= k->extent_count; i++) {
		const struct ckf_trailer_entry *e =
			i < k->extent_count ? &k->extents[i].e : NULL;
		struct ckpt_err why = { 0 };
		uint64_t from = at;
		int rc = 0;

		if (e)
			rc = check_gap(p, at, e->off, &why);
		else
			rc = check_gap(p, at, ckb_div_up(at, 8) * 8, &why);
		if (rc < 0)
			tell(k, &(struct ckpt_damage){ .pack = path,
						       .pack_off = from,
						       .what = why.message });
		if (!e || fatal(rc))
			return;
		while (next < n && d[next].off < e->off)
			next++;
		at = e->off + e->head_len + e->stored_len;
		if (next < n && d[next].off == e->off)
			continue; /* somebody's: checked with it */
		rc = check_record(k, p, e->off, e->head_len, NULL, &why);
		if (rc < 0)
			tell(k, &(struct ckpt_damage){ .pack = path,
						       .pack_off = e->off,
						       .what = why.message });
	}
}

static int check_demands(struct check *k, struct ckc_pack *p, const char *path,
			 const struct demand *d, size_t n)
{
	for (size_t i = 0; i < n;) {
		struct ckpt_err why = { 0 };
		size_t same = i + 1;

		while (same < n && same_record(&d[i], &d[same]))
			same++;
		int rc = check_record(k, p, d[i].off, d[i].head_len, &d[i],
				      &why);

		if (fatal(rc)) {
			if (k->err)
				*k->err = why;
			return rc;
		}
		if (rc == CKPT_ECORRUPT)
			cks_bad_note(k->store, d[i].pack, d[i].off,
				     d[i].digest, why.message);
		for (; i < same; i++)
			if (rc < 0)
				tell_demand(k, &d[i], path, why.message);
	}
	return 0;
}

/* @d: the demands on this pack, by offset; @whole: look at the rest too. */
static int check_pack(struct check *k, const uint8_t uuid[16],
		      const struct demand *d, size_t n, bool whole)
{
	char path[CKS_PACK_PATH_BYTES];
	struct ckc_pack *p = NULL;
	struct ckpt_err why = { 0 };

	cks_pack_path(path, uuid);
	int rc = cks_pack_get(k->store, uuid, &p, &why);

	if (rc < 0) {
		if (n == 0)
			tell(k, &(struct ckpt_damage){ .pack = path,
						       .what = why.message });
		for (size_t i = 0; i < n; i++)
			tell_demand(k, &d[i], path, why.message);
		return fatal(rc) ? rc : 0;
	}
	k->extent_count = 0;
	rc = ckc_pack_trailer(p, take_extent, k, &why);
	if (rc < 0) {
		tell(k, &(struct ckpt_damage){
			.pack = path, .pack_off = ckc_pack_file_bytes(p),
			.what = why.message });
		whole = false;
	}
	rc = check_demands(k, p, path, d, n);
	if (rc == 0 && whole && k->opts->depth >= CKPT_CHECK_CELLS)
		check_rest(k, p, path, d, n);
	cks_pack_put(k->store, p);
	return rc;
}

/* ---- all packs ---- */

struct uuids {
	uint8_t (*list)[CKPT_UUID_BYTES];
	size_t count, cap;
	struct check *k;
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
	if (!grow(&u->list, u->count, &u->cap, sizeof(*u->list)))
		return ckb_err_nomem(u->k->err);
	memcpy(u->list[u->count++], uuid, CKPT_UUID_BYTES);
	return 0;
}

static int take_folder(void *ctx, const char *name, unsigned char type)
{
	struct uuids *u = ctx;
	char path[300];

	(void)type;
	snprintf(path, sizeof(path), "packs/%s", name);
	int rc = u->k->store->sys->list(u->k->store->sys, u->k->store->dirfd,
					path, take_pack, u);

	return rc == CKPT_ENOMEM ? rc : 0;
}

static int compare_uuid(const void *a, const void *b)
{
	return memcmp(a, b, CKPT_UUID_BYTES);
}

static int check_packs(struct check *k, bool all)
{
	struct uuids u = { .k = k };
	size_t at = 0;
	int rc = 0;

	if (all)
		rc = k->store->sys->list(k->store->sys, k->store->dirfd,
					 "packs", take_folder, &u);
	if (rc < 0 && rc != CKPT_ENOMEM)
		rc = ckb_err_sys(k->err, -rc, "cannot list 'packs'");
	if (u.count > 0)
		qsort(u.list, u.count, sizeof(*u.list), compare_uuid);
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
		rc = check_pack(k, uuid, k->demands + at, n, all);
		at += n;
		i += c <= 0;
	}
	free(u.list);
	return rc;
}

int ckpt_store_check(struct ckpt_store *store, const char *name,
		     const struct ckpt_check_opts *opts,
		     struct ckpt_check_result *out, struct ckpt_err *err)
{
	struct check k = { .store = store, .opts = opts, .result = out,
			   .err = err };
	bool is_run = false;
	int rc = 0;

	memset(out, 0, sizeof(*out));
	k.chunk = malloc(CKB_CELL_BYTES);
	k.scratch = malloc(CKB_CELL_BYTES);
	if (!k.chunk || !k.scratch)
		rc = ckb_err_nomem(err);
	if (rc == 0 && name) {
		rc = cks_name_stat(store, name, &is_run, NULL, err);
		if (rc == CKPT_ENOENT || (rc == 0 && is_run))
			rc = ckb_err(err, CKPT_ENOENT, "there is no "
				     "checkpoint '%s'", name);
		else if (rc == 0)
			rc = check_checkpoint(&k, name);
	} else if (rc == 0) {
		rc = cks_store_walk(store, check_checkpoint, &k, err);
	}
	if (rc == 0 && k.demand_count > 0)
		qsort(k.demands, k.demand_count, sizeof(*k.demands), by_place);
	if (rc == 0)
		rc = check_packs(&k, name == NULL);
	for (size_t i = 0; i < k.name_count; i++)
		free(k.names[i]);
	free(k.names);
	free(k.demands);
	free(k.extents);
	free(k.chunk);
	free(k.scratch);
	return rc;
}
