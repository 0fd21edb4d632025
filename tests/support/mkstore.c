/* SPDX-License-Identifier: Apache-2.0 */
/*
 * mkstore.c - stores made by hand.
 *
 * Chunks are cut out of a tensor's bytes row by row, not with the library's
 * runs, so that a mistake there is not made twice. What cannot go wrong in a
 * test aborts. One thread.
 */
#include "mkstore.h"

#include <glob.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "chunk/digest.h"
#include "fixtures.h"
#include "tensor/box.h"
#include "tensor/grid.h"
#include "verbs/store_impl.h"

struct mk_known {
	uint8_t digest[CKPT_DIGEST_BYTES];
	uint8_t pack[CKPT_UUID_BYTES];
	struct ckc_place place;
};

/* One save under way. */
struct saving {
	struct mkstore *mk;
	const struct mk_opts *opts;
	struct cks_stage *stage;
	struct ckc_codec *codec;
	struct ckc_pack_writer *pack; /* being written, or NULL */
	struct ckq_build *build;
	uint8_t packs[64][CKPT_UUID_BYTES]; /* as the manifest numbers them */
	uint32_t pack_count;
	bool lie;                     /* about digests */
	struct root {
		bool has;
		uint8_t digest[CKPT_DIGEST_BYTES];
	} *roots;                     /* of each tensor put so far */
};

static void *need(void *p)
{
	if (!p)
		abort();
	return p;
}

int mkstore_reopen(struct mkstore *mk, size_t cache_bytes,
		   struct ckpt_err *err)
{
	struct ckpt_store_opts opts = { .size = sizeof(opts),
					.cache_bytes = cache_bytes };

	ckpt_store_close(mk->store);
	mk->store = NULL;
	return ckpt_store_open(mk->path, &opts, &mk->store, err);
}

int mkstore_new(struct mkstore *mk, size_t cache_bytes, struct ckpt_err *err)
{
	memset(mk, 0, sizeof(*mk));
	mk->dir = make_folder();
	if (asprintf(&mk->path, "%s/store", mk->dir) < 0)
		abort();
	int rc = ckpt_store_init(mk->path, err);

	return rc < 0 ? rc : mkstore_reopen(mk, cache_bytes, err);
}

void mkstore_free(struct mkstore *mk)
{
	ckpt_store_close(mk->store);
	free(mk->known);
	free(mk->path);
	remove_folder(mk->dir);
	memset(mk, 0, sizeof(*mk));
}

/* ---- bytes ---- */

static void shape_of(const struct mk_tensor *t, struct ckpt_shape *out)
{
	memset(out, 0, sizeof(*out));
	out->ndim = t->ndim;
	memcpy(out->dim, t->dim, t->ndim * sizeof(t->dim[0]));
}

static enum ckpt_dtype dtype_of(const struct mk_tensor *t)
{
	return t->dtype ? t->dtype : CKPT_U8;
}

static void grid_of(const struct mk_tensor *t, struct ckt_grid *out)
{
	struct ckpt_shape shape;

	shape_of(t, &shape);
	if (t->media_type)
		ckt_grid_init_file(out, t->dim[0]);
	else if (ckt_grid_init(out, dtype_of(t), &shape, NULL) < 0)
		abort();
}

/* Every byte depends on its place; half the bits are zero, so zstd works. */
uint8_t *mk_bytes(const struct mk_tensor *t, uint64_t *out_len)
{
	struct ckt_grid g;

	grid_of(t, &g);
	uint8_t *p = need(malloc(g.bytes + 1));

	for (uint64_t i = 0; i < g.bytes; i += 8) {
		uint64_t x = (t->seed + 1) * 0x9e3779b97f4a7c15ull + i;

		x = (x ^ x >> 29) * 0xbf58476d1ce4e5b9ull;
		x = (x ^ x >> 32) & 0x0f0f0f0f0f0f0f0full;
		memcpy(p + i, &x, ckb_min_u64(8, g.bytes - i));
	}
	*out_len = g.bytes;
	return p;
}

/* Bytes of @box out of the whole tensor's, row by row. */
static void cut(const struct ckt_grid *g, const uint8_t *all,
		const struct ckpt_box *box, uint8_t *to)
{
	uint64_t row = g->item_bytes, rows = 1;
	uint32_t last = g->ndim ? g->ndim - 1 : 0;

	if (g->ndim > 0)
		row *= box->extent[last];
	for (uint32_t d = 0; d < last; d++)
		rows *= box->extent[d];
	for (uint64_t i = 0; i < rows; i++) {
		uint64_t rest = i, at = 0, step = 1;

		for (uint32_t d = g->ndim; d-- > 0;) {
			uint64_t n = d == last ? 1 : box->extent[d];

			at += (box->origin[d] + rest % n) * step;
			rest /= n;
			step *= g->shape[d];
		}
		memcpy(to + i * row, all + at * g->item_bytes, row);
	}
}

/* ---- packs ---- */

static uint32_t pack_number(struct saving *s, const uint8_t uuid[16])
{
	struct ckpt_err err;

	for (uint32_t i = 0; i < s->pack_count; i++)
		if (memcmp(s->packs[i], uuid, CKPT_UUID_BYTES) == 0)
			return i;
	if (s->pack_count == CKB_ARRAY_LEN(s->packs) ||
	    ckq_build_pack(s->build, uuid, &err) < 0)
		abort();
	memcpy(s->packs[s->pack_count], uuid, CKPT_UUID_BYTES);
	return s->pack_count++;
}

static int publish(struct saving *s, struct ckpt_err *err)
{
	return s->pack ? cks_stage_publish(s->stage, CKB_TAKE(s->pack), err)
		       : 0;
}

/* Write one chunk, or find it: place and pack into @e. */
static int put(struct saving *s, const uint8_t *raw, size_t len,
	       struct ckf_chunk_entry *e, struct ckpt_err *err)
{
	struct mkstore *mk = s->mk;
	struct mk_known k = { 0 };
	size_t i = s->opts->reuse ? 0 : mk->known_count;
	int rc = 0;

	ckc_sha256(raw, len, k.digest);
	k.digest[0] ^= s->lie;
	while (i < mk->known_count && memcmp(mk->known[i].digest, k.digest,
					     sizeof(k.digest)) != 0)
		i++;
	if (i < mk->known_count) {
		k = mk->known[i];
	} else {
		if (!s->pack)
			rc = cks_stage_pack(s->stage, false, &s->pack, err);
		if (rc == 0)
			rc = ckc_pack_append(s->pack, CKF_RECORD_CHUNK,
					     s->codec, k.digest, raw, len,
					     &k.place, err);
		if (rc < 0)
			return rc;
		memcpy(k.pack, ckc_pack_writer_uuid(s->pack), sizeof(k.pack));
		mk->known = need(realloc(mk->known, (mk->known_count + 1) *
						    sizeof(k)));
		mk->known[mk->known_count++] = k;
	}
	e->pack = pack_number(s, k.pack);
	e->off = k.place.off;
	e->head_len = k.place.head_len;
	e->codec = k.place.codec;
	e->stored_len = k.place.stored_len;
	e->raw_len = (uint32_t)k.place.raw_len;
	memcpy(e->digest, k.digest, sizeof(e->digest));
	return 0;
}

/* ---- rows ---- */

static void shard_box(const struct mk_tensor *t, uint32_t ndim, uint32_t i,
		      struct ckpt_box *out)
{
	out->ndim = ndim;
	memcpy(out->origin, t->shards[i].origin, ndim * sizeof(uint64_t));
	memcpy(out->extent, t->shards[i].extent, ndim * sizeof(uint64_t));
}

/* All chunks of @t, in the order of FORMAT.md; the caller frees *@out. */
static int put_chunks(struct saving *s, const struct mk_tensor *t,
		      const struct ckt_grid *g, struct ckf_chunk_entry **out,
		      size_t *count, struct ckpt_err *err)
{
	uint64_t len;
	CKB_FREE uint8_t *all = mk_bytes(t, &len);
	CKB_FREE uint8_t *raw = need(malloc(ckb_min_u64(
		g->bytes + 1, CKB_TILE_MAX_BYTES)));
	uint32_t shards = t->shard_count ? t->shard_count : 1;
	int rc = 0;

	*count = 0;
	*out = need(calloc(g->tile_count * shards + 1, sizeof(**out)));
	ckc_codec_dtype(s->codec, dtype_of(t));
	for (uint64_t tile = 0; tile < g->tile_count; tile++) {
		for (uint32_t i = 0; rc == 0 && i < shards; i++) {
			struct ckf_chunk_entry *e = &(*out)[*count];
			struct ckpt_box box, shard, part;

			ckt_grid_tile(g, tile, &box);
			part = box;
			if (t->shard_count > 0) {
				shard_box(t, g->ndim, i, &shard);
				if (!ckt_box_meet(&box, &shard, &part))
					continue;
			}
			e->tile = tile;
			e->shard = ckt_box_equal(&box, &part) ? CKF_WHOLE_TILE
							      : i;
			cut(g, all, &part, raw);
			rc = put(s, raw, ckt_box_bytes(&part, g->item_bytes),
				 e, err);
			++*count;
		}
	}
	return rc;
}

static int put_layout(struct saving *s, const struct mk_tensor *t,
		      uint32_t ndim, uint64_t *out_id, struct ckpt_err *err)
{
	CKB_FREE struct ckf_shard *shards =
		need(calloc(t->shard_count, sizeof(*shards)));
	struct ckf_layout l = { .ndim = ndim, .world = t->shard_count,
				.shard_count = t->shard_count,
				.shards = shards };
	CKB_BUF struct ckb_buf blob = { 0 };

	for (uint32_t i = 0; i < t->shard_count; i++)
		shards[i] = (struct ckf_shard){
			.rank = i, .replica_count = 1,
			.origin = t->shards[i].origin,
			.extent = t->shards[i].extent,
		};
	ckf_layout_encode(&l, &blob);
	return ckq_build_layout(s->build, blob.data, blob.len, out_id, err);
}

/* An alias repeats what it is an alias of. */
static void make_root(const struct saving *s, size_t index,
		      const struct ckf_chunk_entry *e, size_t count,
		      struct ckq_tensor *row)
{
	CKB_BUF struct ckb_buf input = { 0 };
	struct root *root = &s->roots[index];

	row->has_root = !row->media_type;
	if (row->has_alias) {
		*root = s->roots[row->alias_of];
		row->has_root = root->has;
		memcpy(row->root, root->digest, sizeof(row->root));
		return;
	}
	ckf_root_preamble(row->dtype, &row->shape, &input);
	for (size_t i = 0; i < count; i++) {
		row->has_root = row->has_root && e[i].shard == CKF_WHOLE_TILE;
		ckb_buf_put(&input, e[i].digest, CKPT_DIGEST_BYTES);
	}
	ckc_sha256(input.data, input.len, row->root);
	root->has = row->has_root;
	memcpy(root->digest, row->root, sizeof(row->root));
}

static int put_tensor(struct saving *s, const struct mk_tensor *all,
		      size_t index, uint64_t item, struct ckpt_err *err)
{
	const struct mk_tensor *t = &all[index];
	CKB_FREE struct ckf_chunk_entry *e = NULL;
	CKB_BUF struct ckb_buf blob = { 0 };
	struct ckq_tensor row = {
		.item = item, .name = t->name, .dtype = dtype_of(t),
		.name_len = t->name_len ? t->name_len : strlen(t->name),
		.media_type = t->media_type,
	};
	struct ckt_grid g;
	size_t count = 0;
	int rc = 0;

	s->lie = s->opts->wrong_digest && index == 0;
	grid_of(t, &g);
	shape_of(t, &row.shape);
	row.bytes = g.bytes;
	row.has_alias = t->alias_of != NULL;
	while (t->alias_of && strcmp(all[row.alias_of].name, t->alias_of) != 0)
		row.alias_of++;
	if (t->shard_count > 0) {
		row.has_layout = true;
		rc = put_layout(s, t, g.ndim, &row.layout, err);
	}
	if (rc == 0 && !row.has_alias)
		rc = put_chunks(s, t, &g, &e, &count, err);
	if (rc < 0)
		return rc;
	make_root(s, index, e, count, &row);
	if (s->opts->tamper)
		s->opts->tamper(s->opts->ctx, index, e, &count, &row);
	for (size_t i = 0; i < count; i++)
		ckf_chunk_entry_encode(&e[i], need(ckb_buf_extend(
					       &blob, CKF_CHUNK_ENTRY_BYTES)));
	row.chunks = blob.data;
	row.chunks_len = blob.len;
	return ckq_build_tensor(s->build, &row, err);
}

static int put_rows(struct saving *s, const struct mk_tensor *t, size_t count,
		    struct ckpt_err *err)
{
	uint64_t items = 0;
	int rc = 0;

	for (size_t i = 0; rc == 0 && i < count; i++) {
		const char *item = t[i].item ? t[i].item : "model";
		const char *last = i == 0 ? "" : t[i - 1].item ? t[i - 1].item
							       : "model";

		if (strcmp(item, last) != 0) {
			rc = ckq_build_item(s->build, item, t[i].media_type
					    ? CKPT_ITEM_FILES
					    : CKPT_ITEM_TENSORS, ".", NULL,
					    err);
			items++;
		}
		if (rc == 0)
			rc = put_tensor(s, t, i, items - 1, err);
		if (rc == 0 && s->opts->pack_each)
			rc = publish(s, err);
	}
	return rc;
}

static int commit(struct saving *s, struct ckpt_err *err)
{
	CKB_BUF struct ckb_buf manifest = { 0 };
	uint8_t digest[CKPT_DIGEST_BYTES];
	struct ckc_place place;
	int rc = ckq_build_finish(s->build, &manifest, err);

	if (rc == 0 && s->opts->manifest_copy && s->pack) {
		ckc_sha256(manifest.data, manifest.len, digest);
		rc = ckc_pack_append(s->pack, CKF_RECORD_MANIFEST, s->codec,
				     digest, manifest.data, manifest.len,
				     &place, err);
	}
	if (rc == 0)
		rc = publish(s, err);
	if (rc == 0)
		rc = cks_stage_commit(s->stage, manifest.data, manifest.len,
				      false, err);
	return rc;
}

int mk_save(struct mkstore *mk, const char *name,
	    const struct mk_tensor *tensors, size_t count,
	    const struct mk_opts *opts, struct ckpt_err *err)
{
	static const struct mk_opts plain = { 0 };
	struct saving s = { .mk = mk, .opts = opts ? opts : &plain };
	struct ckq_facts facts = {
		.generation = 1, .seq = ++mk->seq, .saved_as = name,
		.writer = "mkstore", .tile_rule = 1, .created_ns = 1000,
	};
	uint8_t attempt[16];
	int rc = cks_uuid_new(ckb_sys_real(), facts.uuid, err);

	s.roots = need(calloc(count + 1, sizeof(*s.roots)));
	if (rc == 0)
		rc = cks_uuid_new(ckb_sys_real(), attempt, err);
	memcpy(facts.store_uuid, ckpt_store_uuid(mk->store), CKPT_UUID_BYTES);
	if (rc == 0)
		rc = cks_stage_open(mk->store, name, attempt, &s.stage, err);
	if (rc == 0)
		rc = ckc_codec_new(s.opts->codec, 3, &s.codec, err);
	if (rc == 0)
		rc = ckq_build_new(&facts, &s.build, err);
	if (rc == 0)
		rc = put_rows(&s, tensors, count, err);
	if (rc == 0)
		rc = commit(&s, err);
	ckc_pack_writer_close(s.pack);
	ckq_build_free(s.build);
	ckc_codec_free(s.codec);
	cks_stage_close(s.stage);
	free(s.roots);
	return rc;
}

/* ---- damage ---- */

char *mk_only_pack(const struct mkstore *mk)
{
	char *pattern, *path = NULL;
	glob_t found;

	if (asprintf(&pattern, "%s/packs/*/*.pack", mk->path) < 0)
		abort();
	if (glob(pattern, 0, NULL, &found) == 0) {
		if (found.gl_pathc == 1)
			path = need(strdup(found.gl_pathv[0]));
		globfree(&found);
	}
	free(pattern);
	return path;
}

uint64_t mk_flip(const char *path, uint64_t off, uint8_t mask)
{
	FILE *f = need(fopen(path, "r+be"));
	uint8_t byte;

	if (fseeko(f, (off_t)off, SEEK_SET) != 0 || fread(&byte, 1, 1, f) != 1)
		abort();
	byte ^= mask;
	if (fseeko(f, (off_t)off, SEEK_SET) != 0 ||
	    fwrite(&byte, 1, 1, f) != 1 || fseeko(f, 0, SEEK_END) != 0)
		abort();
	uint64_t size = (uint64_t)ftello(f);

	if (fclose(f) != 0)
		abort();
	return size;
}
