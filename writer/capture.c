/* SPDX-License-Identifier: Apache-2.0 */
/*
 * capture.c - every entry's bytes into slots: the capture side of the pipeline.
 *
 * Entry by entry, tile by tile in the grid's order, and in each tile box by
 * box: a box that holds the tile gives a whole tile, others give fragments. So
 * chunks come sorted by (tile, shard) as the manifest wants them, and the same
 * tensor gives the same chunks whoever holds it. Statistics are taken here,
 * while the bytes are warm. A provider is released as soon as its entry is
 * through.
 *
 * Memory: the slots, and windows within half of staging_bytes (S9). Thread: the
 * save's own; providers are called from it alone.
 */
#include <stdlib.h>
#include <string.h>

#include "format/entry.h"
#include "pipeline.h"
#include "tensor/box.h"
#include "tensor/stats.h"

/* One entry at work. */
struct capture {
	struct ckw_ring *ring;
	struct ckw_tensor *tensor;
	struct ckt_grid grid;
	struct ckw_source *sources; /* one a box */
	uint32_t count;
};

static void fail(const struct capture *c, struct ckpt_err *err)
{
	const struct ckw_tensor *t = c->tensor;
	char q[CKB_QUOTE_BYTES];

	ckb_err_prefix(err, err->code, "%s '%s'",
		       t->media_type ? "file" : "tensor",
		       ckb_quote(q, sizeof(q), t->name, t->name_len));
	ckw_ring_fail(c->ring, err);
}

static bool capture_part(struct capture *c, struct ckw_source *src,
			 const struct ckpt_box *part, uint64_t tile,
			 uint32_t shard)
{
	struct ckw_tensor *t = c->tensor;
	struct ckw_slot *slot = ckw_ring_slot(c->ring);
	struct ckpt_err err = { 0 };

	if (!slot)
		return false;
	slot->len = (size_t)ckt_box_bytes(part, c->grid.item_bytes);
	slot->tensor = t;
	slot->tile = tile;
	slot->shard = shard;
	if (ckw_source_read(src, part, slot->data, &err) < 0) {
		fail(c, &err);
		return false;
	}
	ckt_stats_init(&slot->stats, t->dtype);
	slot->stats.value_class = t->stats.value_class;
	ckt_stats_add(&slot->stats, t->dtype, slot->data, slot->len);
	atomic_fetch_add_explicit(&c->ring->save->captured, slot->len,
				  memory_order_relaxed);
	ckw_ring_fill(c->ring);
	return true;
}

static bool too_many_parts(struct capture *c, uint64_t tile)
{
	struct ckpt_err err = { 0 };

	ckb_err(&err, CKPT_ELIMIT, "tile %ju is cut by more than %u shards",
		(uintmax_t)tile, CKB_TILE_CHUNK_MAX);
	fail(c, &err);
	return false;
}

static bool capture_tile(struct capture *c, uint64_t tile)
{
	struct ckpt_box box, part;

	uint32_t parts = 0;

	ckt_grid_tile(&c->grid, tile, &box);
	for (uint32_t i = 0; i < c->count; i++) {
		struct ckw_source *src = &c->sources[i];

		if (!ckt_box_meet(&box, &src->box, &part))
			continue;
		bool whole = ckt_box_equal(&part, &box);

		if (++parts > CKB_TILE_CHUNK_MAX)
			return too_many_parts(c, tile);
		if (!capture_part(c, src, &part, tile,
				  whole ? CKF_WHOLE_TILE : i))
			return false;
		if (whole) /* then no other box meets it (S7) */
			break;
	}
	return true;
}

/* Can statistics be taken tile by tile? F6 elements of four to three bytes may
 * lie across the edge of two tiles; boxes never cut them. */
static bool countable(const struct capture *c)
{
	const struct ckt_grid *g = &c->grid;
	uint32_t last = g->ndim ? g->ndim - 1 : 0;

	if (c->tensor->media_type)
		return false;
	return ckpt_dtype_bits(c->tensor->dtype) != 6 || g->ndim == 0 ||
	       g->count[last] <= 1 || g->tile[last] % 3 == 0;
}

static void make_sources(struct capture *c)
{
	size_t staging = c->ring->save->writer->opts.staging_bytes;
	uint64_t base = 0;

	for (uint32_t i = 0; i < c->count; i++) {
		struct ckw_source *src = &c->sources[i];

		src->provider = &c->tensor->provider;
		src->item_bytes = c->grid.item_bytes;
		src->window_max = staging / 2 / c->count;
		ckw_box(c->tensor, &c->grid, i, &src->box);
		src->base = base;
		base += ckt_box_bytes(&src->box, c->grid.item_bytes);
	}
}

static bool capture_tensor(struct ckw_ring *r, struct ckw_tensor *t)
{
	struct capture c = { .ring = r, .tensor = t,
			     .count = t->boxes ? t->box_count : 1 };
	struct ckpt_err err = { 0 };
	bool ok = true;
	int rc = ckw_grid(t, &c.grid, &err);

	ckt_stats_init(&t->stats, t->dtype);
	if (rc == 0 && !countable(&c))
		t->stats.value_class = CKPT_VALUES_NONE;
	if (rc == 0) {
		c.sources = calloc(c.count, sizeof(*c.sources));
		rc = c.sources ? 0 : ckb_err_nomem(&err);
	}
	if (rc < 0) {
		fail(&c, &err);
		return false;
	}
	make_sources(&c);
	for (uint64_t tile = 0; ok && tile < c.grid.tile_count; tile++)
		ok = capture_tile(&c, tile);
	for (uint32_t i = 0; i < c.count; i++)
		ckw_source_fini(&c.sources[i]);
	free(c.sources);
	return ok;
}

bool ckw_capture(struct ckw_ring *r)
{
	struct ckpt_save *s = r->save;
	bool ok = true;

	for (size_t i = 0; ok && i < s->tensor_count; i++) {
		struct ckw_tensor *t = &s->tensors[i];

		if (t->alias_of == SIZE_MAX)
			ok = capture_tensor(r, t);
		ckpt_provider_release(&t->provider);
	}
	return ok;
}
