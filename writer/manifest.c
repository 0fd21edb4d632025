/* SPDX-License-Identifier: Apache-2.0 */
/*
 * manifest.c - the manifest of a save: order, roots, layouts, rows.
 *
 * Entries stand item by item, so that an item is one range; within an item they
 * keep the caller's order, so an alias stays behind what it names. A tensor
 * has a root when all its tiles are whole; a layout unless one process held it
 * whole. Built in memory, once every chunk has its place; nothing here touches
 * the disk but the look for the last commit's number. Threads: the save's own.
 */
#include <stdlib.h>
#include <string.h>

#include "catalog/manifest.h"
#include "chunk/digest.h"
#include "save.h"
#include "tensor/grid.h"
#include "tensor/stats.h"

typedef int (*compare_fn)(const void *a, const void *b);

static int by_item(const void *a, const void *b)
{
	const struct ckw_tensor *x = *(struct ckw_tensor *const *)a;
	const struct ckw_tensor *y = *(struct ckw_tensor *const *)b;

	if (x->item != y->item)
		return x->item < y->item ? -1 : 1;
	return (x->number > y->number) - (x->number < y->number);
}

static int by_lateness(const void *a, const void *b)
{
	const struct ckw_tensor *x = *(struct ckw_tensor *const *)a;
	const struct ckw_tensor *y = *(struct ckw_tensor *const *)b;
	int late_x = ckw_serialises(&x->provider) + x->late;
	int late_y = ckw_serialises(&y->provider) + y->late;

	return late_x != late_y ? late_x - late_y : by_item(a, b);
}

static bool in_order(const struct ckpt_save *s, compare_fn compare)
{
	for (size_t i = 1; i < s->tensor_count; i++) {
		const struct ckw_tensor *t = &s->tensors[i], *before = t - 1;

		if (compare(&before, &t) > 0)
			return false;
	}
	return true;
}

int ckw_order(struct ckpt_save *s, bool capture, struct ckpt_err *err)
{
	compare_fn compare = capture ? by_lateness : by_item;
	size_t n = s->tensor_count;
	CKB_FREE struct ckw_tensor **order = NULL;
	CKB_FREE struct ckw_tensor *sorted = NULL;
	CKB_FREE size_t *place = NULL;

	if (in_order(s, compare))
		return 0;
	order = calloc(n, sizeof(struct ckw_tensor *));
	place = calloc(n, sizeof(*place));
	sorted = calloc(n, sizeof(*sorted));
	if (!order || !place || !sorted)
		return ckb_err_nomem(err);
	for (size_t i = 0; i < n; i++)
		order[i] = &s->tensors[i];
	qsort(order, n, sizeof(*order), compare);
	for (size_t i = 0; i < n; i++) {
		place[order[i] - s->tensors] = i;
		sorted[i] = *order[i];
	}
	for (size_t i = 0; i < n; i++)
		if (sorted[i].alias_of != SIZE_MAX)
			sorted[i].alias_of = place[sorted[i].alias_of];
	free(s->tensors);
	s->tensors = CKB_TAKE(sorted);
	s->tensor_cap = n;
	return 0;
}

int ckw_pack_number(struct ckpt_save *s, const uint8_t pack[16],
		    uint32_t *out, struct ckpt_err *err)
{
	for (size_t i = s->pack_count; i-- > 0;)
		if (memcmp(s->packs[i], pack, CKPT_UUID_BYTES) == 0) {
			*out = (uint32_t)i;
			return 0;
		}
	if (!ckb_room(&s->packs, s->pack_count, &s->pack_cap,
		      sizeof(*s->packs)))
		return ckb_err_nomem(err);
	memcpy(s->packs[s->pack_count], pack, CKPT_UUID_BYTES);
	*out = (uint32_t)s->pack_count++;
	return 0;
}

static int add_entry(struct ckpt_save *s, struct ckw_tensor *t,
		     const struct ckw_chunk *c, struct ckpt_err *err)
{
	struct ckf_chunk_entry e = { .tile = c->tile, .shard = c->shard };
	uint8_t *to = ckb_buf_extend(&t->chunks, CKF_CHUNK_ENTRY_BYTES);
	struct ckq_place place;

	if (!to)
		return ckb_err_nomem(err);
	CKB_INVARIANT(cks_find_chunk(s->find, c->digest, c->raw_len, &place));
	int rc = ckw_pack_number(s, place.pack, &e.pack, err);

	memcpy(e.digest, c->digest, sizeof(e.digest));
	e.off = place.off;
	e.stored_len = place.stored_len;
	e.raw_len = place.raw_len;
	e.head_len = place.head_len;
	e.codec = place.codec;
	ckf_chunk_entry_encode(&e, to);
	return rc;
}

/* The chunks of a tensor, in their order: entries, statistics, and, when all
 * its tiles are whole, the root (DESIGN 6). */
static int join_chunks(struct ckpt_save *s, struct ckw_tensor *t,
		       struct ckpt_err *err)
{
	CKB_BUF struct ckb_buf input = { 0 };
	bool whole = !t->media_type;

	ckf_root_preamble(t->dtype, t->shape, &input);
	for (size_t i = 0; i < t->chunk_count; i++) {
		const struct ckw_chunk *c = &s->plan[t->first_chunk + i];
		int rc = add_entry(s, t, c, err);

		if (rc < 0)
			return rc;
		ckt_stats_merge(&t->stats, &s->parts[t->first_chunk + i]);
		whole = whole && c->shard == CKF_WHOLE_TILE;
		ckb_buf_put(&input, c->digest, sizeof(c->digest));
	}
	if (input.failed)
		return ckb_err_nomem(err);
	if (whole)
		ckc_sha256(input.data, input.len, t->root);
	t->has_root = whole;
	return 0;
}

static int add_layout(struct ckq_build *b, const struct ckw_tensor *t,
		      uint64_t *out_id, struct ckpt_err *err)
{
	CKB_FREE struct ckf_shard *shards = calloc(t->box_count,
						   sizeof(*shards));
	struct ckf_layout l = { .ndim = t->box_ndim, .world = 1,
				.shard_count = t->box_count,
				.shards = shards };
	CKB_BUF struct ckb_buf blob = { 0 };

	if (!shards)
		return ckb_err_nomem(err);
	for (uint32_t i = 0; i < t->box_count; i++) {
		const uint64_t *box = t->boxes +
				      2 * (size_t)i * t->box_ndim;

		shards[i] = (struct ckf_shard){
			.replica = t->replica,
			.replica_count = t->replica_count,
			.origin = box, .extent = box + t->box_ndim,
		};
	}
	ckf_layout_encode(&l, &blob);
	return blob.failed ? ckb_err_nomem(err)
			   : ckq_build_layout(b, blob.data, blob.len, out_id,
					      err);
}

static int add_tensor(struct ckpt_save *s, struct ckq_build *b,
		      struct ckw_tensor *t, struct ckpt_err *err)
{
	const struct ckw_tensor *a = t->alias_of == SIZE_MAX
		? t : &s->tensors[t->alias_of];
	struct ckq_tensor row = {
		.item = t->item, .name = t->name, .name_len = t->name_len,
		.dtype = t->dtype, .bytes = t->bytes,
		.media_type = t->media_type,
		.has_alias = t->alias_of != SIZE_MAX,
		.alias_of = t->alias_of == SIZE_MAX ? 0 : t->alias_of,
		.chunks = t->chunks.data, .chunks_len = t->chunks.len,
	};
	int rc = 0;

	if (t->boxes) {
		row.has_layout = true;
		rc = add_layout(b, t, &row.layout, err);
	}
	if (rc < 0)
		return rc;
	row.shape.ndim = t->shape->ndim;
	memcpy(row.shape.dim, t->shape->dim,
	       t->shape->ndim * sizeof(row.shape.dim[0]));
	row.stats = a->stats;
	/* exact also where tiles cut elements (F6) */
	if (!t->media_type)
		row.stats.count = ckt_shape_count(t->shape);
	row.has_root = a->has_root;
	memcpy(row.root, a->root, sizeof(row.root));
	return ckq_build_tensor(b, &row, err);
}

static int add_rows(struct ckpt_save *s, struct ckq_build *b,
		    struct ckpt_err *err)
{
	int rc = 0;

	for (size_t i = 0; rc == 0 && i < s->item_count; i++)
		rc = ckq_build_item(b, s->items[i].name, s->items[i].kind,
				    s->items[i].separator,
				    s->items[i].metadata, err);
	/* which names all packs */
	for (size_t i = 0; rc == 0 && i < s->tensor_count; i++)
		if (s->tensors[i].alias_of == SIZE_MAX)
			rc = join_chunks(s, &s->tensors[i], err);
	for (size_t i = 0; rc == 0 && i < s->pack_count; i++)
		rc = ckq_build_pack(b, s->packs[i], err);
	for (size_t i = 0; rc == 0 && i < s->tensor_count; i++)
		rc = add_tensor(s, b, &s->tensors[i], err);
	return rc;
}

int ckw_manifest(struct ckpt_save *s, struct ckb_buf *out, uint64_t *out_seq,
		 struct ckpt_err *err)
{
	struct ckpt_store *store = s->writer->store;
	const struct ckb_sys *sys = cks_store_sys(store);
	struct ckq_facts f = {
		.generation = 1, .has_step = s->has_step, .step = s->step,
		.created_ns = sys->now_ns(sys), .has_parent = s->has_parent,
		.saved_as = s->name, .metadata = s->metadata,
		.metrics = s->metrics, .writer = s->program,
		.tile_rule = CKT_TILE_RULE,
	};
	struct ckq_build *b = NULL;
	int rc = cks_store_last_seq(store, &f.seq, err);

	if (rc < 0)
		return rc;
	/* a file that somebody put there may claim the last number there is */
	if (f.seq < INT64_MAX)
		f.seq++;
	*out_seq = f.seq;
	memcpy(f.uuid, s->uuid, sizeof(f.uuid));
	memcpy(f.store_uuid, ckpt_store_uuid(store), sizeof(f.store_uuid));
	memcpy(f.parent, s->parent, sizeof(f.parent));
	rc = ckq_build_new(&f, &b, err);
	if (rc == 0)
		rc = add_rows(s, b, err);
	if (rc == 0)
		rc = ckq_build_finish(b, out, err);
	ckq_build_free(b);
	return rc;
}
