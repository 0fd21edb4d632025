/* SPDX-License-Identifier: Apache-2.0 */
/*
 * pipeline.c - the background work of a save.
 *
 *	capture thread:  tile from its provider into a slot, statistics
 *	    | ring of slots: bounded, so a slow disk holds capture back (S9)
 *	store thread:    SHA-256, known already? encode, append, chunk entry
 *	then, on the capture thread: manifest, seal and publish packs, commit
 *
 * Slots pass in order, so chunk entries and the merging of statistics follow
 * tile order whatever the threads do. When capture is through, the caller's
 * buffers are needed no more. A failure on either side stops both; staged bytes
 * are gone by then, so a poisoned pack fails the save (S5), and nothing becomes
 * visible. Locks: ring.lock guards counts and errors; a slot belongs to one
 * side at a time.
 */
#include <stdlib.h>
#include <string.h>

#include "base/limits.h"
#include "catalog/manifest.h"
#include "chunk/digest.h"
#include "save.h"
#include "tensor/box.h"
#include "tensor/stats.h"

#define SLOTS 4u

struct slot {
	uint8_t *data;          /* CKB_TILE_MAX_BYTES */
	size_t len;
	struct ckw_tensor *tensor;
	uint64_t tile;
	uint32_t shard;
	struct ckpt_stats stats;
};

struct ring {
	struct ckpt_save *save;
	pthread_mutex_t lock;
	pthread_cond_t moved;
	struct slot slots[SLOTS];
	uint64_t filled, taken;  /* counts; guard: lock */
	bool ended;              /* capture is through; guard: lock */
	struct ckpt_err err;     /* first failure; guard: lock */
};

static void ring_fail(struct ring *r, const struct ckpt_err *err)
{
	pthread_mutex_lock(&r->lock);
	if (r->err.code == 0)
		r->err = *err;
	pthread_cond_broadcast(&r->moved);
	pthread_mutex_unlock(&r->lock);
}

/* ---- store side ---- */

/* A pack to append to; a full one is published first. */
static int ready_pack(struct ckpt_save *s, struct ckpt_err *err)
{
	bool used;
	int rc = 0;

	if (s->pack && ckc_pack_bytes(s->pack) >= s->writer->opts.pack_bytes) {
		struct ckc_pack_writer *full = s->pack;

		s->pack = NULL;
		rc = cks_stage_publish(s->stage, full, &used, err);
	}
	if (rc == 0 && !s->pack)
		rc = cks_stage_pack(s->stage, &s->pack, err);
	return rc;
}

static int append(struct ckpt_save *s, const uint8_t digest[32],
		  const void *data, size_t len, struct ckq_place *out,
		  struct ckpt_err *err)
{
	struct ckc_place at;
	int rc = ready_pack(s, err);

	if (rc == 0)
		rc = ckc_pack_append(s->pack, CKF_RECORD_CHUNK, s->codec,
				     digest, data, len, &at, err);
	if (rc < 0)
		return rc;
	*out = (struct ckq_place){ .off = at.off, .stored_len = at.stored_len,
				   .head_len = at.head_len,
				   .raw_len = (uint32_t)at.raw_len,
				   .codec = at.codec };
	memcpy(out->pack, ckc_pack_writer_uuid(s->pack), sizeof(out->pack));
	atomic_fetch_add(&s->fresh, len);
	atomic_fetch_add(&s->fresh_chunks, 1);
	atomic_fetch_add(&s->written, at.head_len + at.stored_len);
	return cks_find_add(s->find, digest, out, err);
}

/* The manifest's number of @pack; a new one gets the next. */
static int pack_number(struct ckpt_save *s, const uint8_t pack[16],
		       uint32_t *out, struct ckpt_err *err)
{
	for (size_t i = s->pack_count; i-- > 0;)
		if (memcmp(s->packs[i], pack, CKPT_UUID_BYTES) == 0) {
			*out = (uint32_t)i;
			return 0;
		}
	if (s->pack_count == s->pack_cap) {
		size_t cap = s->pack_cap ? s->pack_cap * 2 : 16;
		void *p = realloc(s->packs, cap * sizeof(*s->packs));

		if (!p)
			return ckb_err_nomem(err);
		s->packs = p;
		s->pack_cap = cap;
	}
	memcpy(s->packs[s->pack_count], pack, CKPT_UUID_BYTES);
	*out = (uint32_t)s->pack_count++;
	return 0;
}

static int store_slot(struct ckpt_save *s, const struct slot *slot,
		      struct ckpt_err *err)
{
	struct ckf_chunk_entry e = { .tile = slot->tile,
				     .shard = slot->shard };
	uint8_t encoded[CKF_CHUNK_ENTRY_BYTES];
	struct ckq_place place;
	int rc = 0;

	ckc_sha256(slot->data, slot->len, e.digest);
	if (!cks_find_chunk(s->find, e.digest, (uint32_t)slot->len, &place))
		rc = append(s, e.digest, slot->data, slot->len, &place, err);
	if (rc == 0)
		rc = pack_number(s, place.pack, &e.pack, err);
	if (rc < 0)
		return rc;
	e.off = place.off;
	e.stored_len = place.stored_len;
	e.raw_len = place.raw_len;
	e.head_len = place.head_len;
	e.codec = place.codec;
	ckf_chunk_entry_encode(&e, encoded);
	ckb_buf_put(&slot->tensor->chunks, encoded, sizeof(encoded));
	ckt_stats_merge(&slot->tensor->stats, &slot->stats);
	atomic_fetch_add(&s->chunks, 1);
	return slot->tensor->chunks.failed ? ckb_err_nomem(err) : 0;
}

static void *store_side(void *arg)
{
	struct ring *r = arg;

	for (;;) {
		struct ckpt_err err = { 0 };

		pthread_mutex_lock(&r->lock);
		while (r->filled == r->taken && !r->ended && r->err.code == 0)
			pthread_cond_wait(&r->moved, &r->lock);
		bool stop = r->err.code != 0 || r->filled == r->taken;
		struct slot *slot = &r->slots[r->taken % SLOTS];

		pthread_mutex_unlock(&r->lock);
		if (stop)
			return NULL;
		if (store_slot(r->save, slot, &err) < 0) {
			ring_fail(r, &err);
			return NULL;
		}
		pthread_mutex_lock(&r->lock);
		r->taken++;
		pthread_cond_broadcast(&r->moved);
		pthread_mutex_unlock(&r->lock);
	}
}

/* ---- capture side ---- */

/* The next free slot, or NULL: the save has failed or was aborted. */
static struct slot *free_slot(struct ring *r)
{
	struct slot *slot = NULL;
	struct ckpt_err err;

	if (atomic_load_explicit(&r->save->abort, memory_order_relaxed)) {
		ckb_err(&err, CKPT_ECANCELED, "saving '%s' was aborted",
			r->save->name);
		ring_fail(r, &err);
		return NULL;
	}
	pthread_mutex_lock(&r->lock);
	while (r->filled - r->taken == SLOTS && r->err.code == 0)
		pthread_cond_wait(&r->moved, &r->lock);
	if (r->err.code == 0)
		slot = &r->slots[r->filled % SLOTS];
	pthread_mutex_unlock(&r->lock);
	return slot;
}

static int capture_part(struct ring *r, struct ckw_tensor *t,
			struct ckw_source *src, const struct ckpt_box *part,
			uint64_t tile, uint32_t shard)
{
	struct ckpt_err err = { 0 };
	struct slot *slot = free_slot(r);

	if (!slot)
		return -1;
	slot->len = ckt_box_bytes(part, src->grid->item_bytes);
	slot->tensor = t;
	slot->tile = tile;
	slot->shard = shard;
	if (ckw_source_read(src, part, slot->data, &err) < 0) {
		char q[CKB_QUOTE_BYTES];

		ckb_err_prefix(&err, err.code, "tensor '%s'",
			       ckb_quote(q, sizeof(q), t->name, t->name_len));
		ring_fail(r, &err);
		return -1;
	}
	ckt_stats_init(&slot->stats, t->dtype);
	slot->stats.value_class = t->stats.value_class;
	ckt_stats_add(&slot->stats, t->dtype, slot->data, slot->len);
	atomic_fetch_add(&r->save->captured, slot->len);
	pthread_mutex_lock(&r->lock);
	r->filled++;
	pthread_cond_broadcast(&r->moved);
	pthread_mutex_unlock(&r->lock);
	return 0;
}

/* Every tile, and in it every box that it meets: a whole tile, or a fragment
 * for each. */
static int capture_tiles(struct ring *r, struct ckw_tensor *t,
			 const struct ckt_grid *g, struct ckw_source *sources,
			 uint32_t count)
{
	for (uint64_t tile = 0; tile < g->tile_count; tile++) {
		struct ckpt_box box, part;

		ckt_grid_tile(g, tile, &box);
		for (uint32_t i = 0; i < count; i++) {
			if (!ckt_box_meet(&box, &sources[i].box, &part))
				continue;
			bool whole = ckt_box_equal(&part, &box);

			if (capture_part(r, t, &sources[i], &part, tile,
					 whole ? CKF_WHOLE_TILE : i) < 0)
				return -1;
			if (whole)
				break;
		}
	}
	return 0;
}

static int capture_tensor(struct ring *r, struct ckw_tensor *t)
{
	uint32_t count = t->box_count ? t->box_count : 1;
	struct ckw_source *sources;
	struct ckpt_err err = { 0 };
	struct ckt_grid grid;
	uint64_t base = 0;
	int rc = 0;

	ckt_stats_init(&t->stats, t->dtype);
	if (t->media_type) {
		t->stats.value_class = CKPT_VALUES_NONE;
		ckt_grid_init_file(&grid, t->bytes);
	} else {
		rc = ckt_grid_init(&grid, t->dtype, t->shape, &err);
	}
	sources = rc == 0 ? calloc(count, sizeof(*sources)) : NULL;
	if (!sources) {
		ckb_err_nomem(&err);
		ring_fail(r, &err);
		return -1;
	}
	for (uint32_t i = 0; i < count; i++) {
		sources[i].provider = &t->provider;
		sources[i].grid = &grid;
		sources[i].window_max = r->save->writer->opts.staging_bytes /
					2 / count;
		if (t->box_count)
			sources[i].box = t->boxes[i];
		else
			ckt_box_whole(&sources[i].box, grid.ndim, grid.shape);
		sources[i].base = base;
		base += ckt_box_bytes(&sources[i].box, grid.item_bytes);
	}
	rc = capture_tiles(r, t, &grid, sources, count);
	for (uint32_t i = 0; i < count; i++)
		free(sources[i].window);
	free(sources);
	return rc;
}

static int ring_init(struct ring *r, struct ckpt_save *s, struct ckpt_err *err)
{
	memset(r, 0, sizeof(*r));
	r->save = s;
	pthread_mutex_init(&r->lock, NULL);
	pthread_cond_init(&r->moved, NULL);
	for (size_t i = 0; i < SLOTS; i++) {
		r->slots[i].data = malloc(CKB_TILE_MAX_BYTES);
		if (!r->slots[i].data)
			return ckb_err_nomem(err);
	}
	return 0;
}

static void ring_fini(struct ring *r)
{
	for (size_t i = 0; i < SLOTS; i++)
		free(r->slots[i].data);
	pthread_mutex_destroy(&r->lock);
	pthread_cond_destroy(&r->moved);
}

/* Capture and store every tensor. On return 0 all chunks are in packs. */
static int move_bytes(struct ckpt_save *s, struct ckpt_err *err)
{
	struct ring r;
	pthread_t store;
	int rc = ring_init(&r, s, err);

	if (rc == 0) {
		rc = pthread_create(&store, NULL, store_side, &r);
		if (rc != 0)
			rc = ckb_err_sys(err, rc, "cannot start a thread");
	}
	if (rc < 0) {
		ring_fini(&r);
		return rc;
	}
	for (size_t i = 0; rc == 0 && i < s->tensor_count; i++) {
		if (s->tensors[i].alias_of == SIZE_MAX)
			rc = capture_tensor(&r, &s->tensors[i]);
		ckpt_provider_release(&s->tensors[i].provider);
	}
	if (rc == 0)
		ckw_set_state(s, CKW_CAPTURED, NULL);
	pthread_mutex_lock(&r.lock);
	r.ended = true;
	pthread_cond_broadcast(&r.moved);
	pthread_mutex_unlock(&r.lock);
	pthread_join(store, NULL);
	rc = r.err.code;
	if (rc < 0)
		*err = r.err;
	ring_fini(&r);
	return rc;
}

/* ---- commit ---- */

static int commit(struct ckpt_save *s, struct ckpt_err *err)
{
	CKB_BUF struct ckb_buf manifest = { 0 };
	uint8_t digest[CKPT_DIGEST_BYTES];
	struct ckc_codec *zstd = NULL;
	struct ckc_place place;
	uint64_t seq = 0;
	bool used;
	int rc = ckw_manifest(s, &manifest, &seq, err);

	if (rc == 0 && s->pack && ckc_pack_records(s->pack) > 0) {
		/* a lost manifest can be had back from this pack */
		rc = ckc_codec_new(CKF_CODEC_ZSTD, 1, &zstd, err);
		if (rc == 0) {
			ckc_sha256(manifest.data, manifest.len, digest);
			rc = ckc_pack_append(s->pack, CKF_RECORD_MANIFEST,
					     zstd, digest, manifest.data,
					     manifest.len, &place, err);
		}
		ckc_codec_free(zstd);
	}
	if (rc == 0 && s->pack) {
		struct ckc_pack_writer *last = s->pack;

		s->pack = NULL;
		rc = cks_stage_publish(s->stage, last, &used, err);
	}
	if (rc == 0 &&
	    atomic_load_explicit(&s->abort, memory_order_relaxed))
		rc = ckb_err(err, CKPT_ECANCELED, "saving '%s' was aborted",
			     s->name);
	if (rc == 0)
		rc = cks_stage_commit(s->stage, manifest.data, manifest.len,
				      s->replace, err);
	if (rc == 0 || rc == CKPT_EUNSURE)
		cks_find_publish(s->find, s->name, s->uuid, seq);
	return rc;
}

void ckw_pass_turn(struct ckpt_save *s)
{
	struct ckpt_writer *w = s->writer;

	pthread_mutex_lock(&w->lock);
	while (w->turn != s->ticket)
		pthread_cond_wait(&w->turn_changed, &w->lock);
	w->turn++;
	pthread_cond_broadcast(&w->turn_changed);
	pthread_mutex_unlock(&w->lock);
}

static void await_turn(struct ckpt_save *s)
{
	struct ckpt_writer *w = s->writer;

	pthread_mutex_lock(&w->lock);
	while (w->turn != s->ticket)
		pthread_cond_wait(&w->turn_changed, &w->lock);
	pthread_mutex_unlock(&w->lock);
}

void *ckw_run(void *arg)
{
	struct ckpt_save *s = arg;
	struct ckpt_err err = { 0 };
	enum ckf_codec codec = s->writer->opts.codec == CKPT_CODEC_ZSTD
				       ? CKF_CODEC_ZSTD : CKF_CODEC_RAW;

	await_turn(s);
	int rc = ckc_codec_new(codec, s->writer->opts.zstd_level, &s->codec,
			       &err);

	if (rc == 0)
		rc = ckw_order(s, &err);
	if (rc == 0)
		rc = move_bytes(s, &err);
	if (rc == 0)
		rc = commit(s, &err);
	if (rc < 0 && rc != CKPT_EUNSURE && rc != CKPT_ECANCELED)
		ckb_err_prefix(&err, rc, "saving '%s'", s->name);
	ckw_pass_turn(s);
	ckw_set_state(s, rc == 0 ? CKW_DONE : CKW_FAILED,
		      rc == 0 ? NULL : &err);
	return NULL;
}
