/* SPDX-License-Identifier: Apache-2.0 */
/*
 * chunks.c - a tensor's chunk list: loaded, proved, asked.
 *
 * A list that is returned covers its tensor: entries in order of (tile, shard),
 * each of a box that it has and with that box's bytes, and every tile exactly
 * once (S7), so that readers need not look again. Anything else is
 * CKPT_ECORRUPT (S10). Threads: a list never changes; loading is thread-safe.
 */
#include "verbs/checkpoint.h"

#include <stdlib.h>
#include <string.h>

#include "base/limits.h"
#include "tensor/box.h"

static void shard_box(const struct cks_chunks *k, uint32_t i,
		      struct ckpt_box *out)
{
	const struct ckf_shard *s = &k->layout->shards[i];
	size_t len = k->grid.ndim * sizeof(out->origin[0]);

	out->ndim = k->grid.ndim;
	memcpy(out->origin, s->origin, len);
	memcpy(out->extent, s->extent, len);
}

void cks_chunk_box(const struct cks_chunks *k,
		   const struct ckf_chunk_entry *e, struct ckpt_box *out)
{
	ckt_grid_tile(&k->grid, e->tile, out);
	if (e->shard == CKF_WHOLE_TILE)
		return;
	struct ckpt_box tile = *out, shard;

	shard_box(k, e->shard, &shard);
	if (!ckt_box_meet(&tile, &shard, out))
		memset(out->extent, 0, sizeof(out->extent));
}

uint64_t cks_chunks_of_tile(const struct cks_chunks *k, uint64_t tile,
			    uint64_t *first)
{
	uint64_t low = 0, high = k->count;

	/* every tile whole: entry number is tile number */
	if (k->count == k->grid.tile_count) {
		*first = tile;
		return tile + 1;
	}
	while (low < high) {
		uint64_t mid = (low + high) / 2;

		if (k->entries[mid].tile < tile)
			low = mid + 1;
		else
			high = mid;
	}
	*first = low;
	while (low < k->count && k->entries[low].tile == tile)
		low++;
	return low;
}

bool cks_box_logical(const struct cks_chunks *k,
		     const struct ckpt_tensor_info *t, struct ckpt_box *box)
{
	uint32_t bits = ckpt_dtype_bits(t->dtype);

	if (bits % 8 == 0)
		return true;
	if (k->grid.ndim != t->shape->ndim || k->grid.ndim == 0)
		return false;
	uint32_t d = box->ndim - 1;
	uint64_t first = box->origin[d], end = first + box->extent[d];

	/* rows begin and end on whole elements, tiles within may not */
	if (first % bits * 8 % bits != 0 || end % bits * 8 % bits != 0)
		return false;
	box->origin[d] = first / bits * 8 + first % bits * 8 / bits;
	box->extent[d] = end / bits * 8 + end % bits * 8 / bits -
			 box->origin[d];
	return true;
}

/* The entries of one tile cover it exactly once (S7). */
static int check_tile(const struct cks_chunks *k, uint64_t first, uint64_t end,
		      struct ckpt_err *err)
{
	struct ckpt_box tile, *boxes;
	uint32_t a, b, n = (uint32_t)(end - first);
	int rc = 0;

	if (n == 1 && k->entries[first].shard == CKF_WHOLE_TILE)
		return 0;
	if (end - first > CKB_TILE_CHUNK_MAX)
		return ckb_err(err, CKPT_ECORRUPT, "tile %ju has %ju chunks; "
			       "at most %u are supported",
			       (uintmax_t)k->entries[first].tile,
			       (uintmax_t)(end - first), CKB_TILE_CHUNK_MAX);
	boxes = calloc(n, sizeof(*boxes));
	if (!boxes)
		return ckb_err_nomem(err);
	ckt_grid_tile(&k->grid, k->entries[first].tile, &tile);
	for (uint32_t i = 0; i < n; i++) {
		cks_chunk_box(k, &k->entries[first + i], &boxes[i]);
		for (uint32_t d = 0; d < tile.ndim; d++)
			boxes[i].origin[d] -= tile.origin[d];
	}
	rc = ckt_cover_check(tile.ndim, tile.extent, boxes, n, &a, &b, err);
	free(boxes);
	return rc < 0 && rc != CKPT_ENOMEM
		       ? ckb_err(err, CKPT_ECORRUPT, "its chunks do not cover "
				 "tile %ju exactly once",
				 (uintmax_t)k->entries[first].tile) : rc;
}

static int check_entry(const struct ckpt_checkpoint *c,
		       const struct cks_chunks *k,
		       const struct ckf_chunk_entry *e, struct ckpt_err *err)
{
	struct ckpt_box box;

	if (e->tile >= k->grid.tile_count || !cks_checkpoint_pack(c, e->pack) ||
	    (e->shard != CKF_WHOLE_TILE &&
	     e->shard >= (k->layout ? k->layout->shard_count : 0)))
		return ckb_err(err, CKPT_ECORRUPT, "a chunk names tile %ju, "
			       "shard %u or pack %u, which it does not have",
			       (uintmax_t)e->tile, e->shard, e->pack);
	cks_chunk_box(k, e, &box);
	if (ckt_box_bytes(&box, k->grid.item_bytes) != e->raw_len)
		return ckb_err(err, CKPT_ECORRUPT, "the chunk of tile %ju has "
			       "%u bytes, which its box does not have",
			       (uintmax_t)e->tile, e->raw_len);
	return 0;
}

static int check_chunks(const struct ckpt_checkpoint *c,
			const struct cks_chunks *k, struct ckpt_err *err)
{
	uint64_t tile = 0, first = 0;

	for (uint64_t i = 0; i < k->count; i++) {
		const struct ckf_chunk_entry *e = &k->entries[i];
		int rc = check_entry(c, k, e, err);

		if (rc < 0)
			return rc;
		if (e->tile != tile) {
			rc = check_tile(k, first, i, err);
			if (rc < 0)
				return rc;
			tile++;
			first = i;
		}
		if (e->tile != tile ||
		    (i > first && e->shard <= k->entries[i - 1].shard))
			return ckb_err(err, CKPT_ECORRUPT, "its chunks are "
				       "out of order or tile %ju is missing",
				       (uintmax_t)tile);
	}
	if (k->count > 0) {
		int rc = check_tile(k, first, k->count, err);

		if (rc < 0)
			return rc;
		tile++;
	}
	return tile == k->grid.tile_count ? 0
	     : ckb_err(err, CKPT_ECORRUPT, "it has chunks of %ju tiles, not "
		       "%ju", (uintmax_t)tile, (uintmax_t)k->grid.tile_count);
}

static int read_layout(struct ckpt_checkpoint *c, size_t index,
		       struct cks_chunks *k, struct ckpt_err *err)
{
	uint64_t id;
	int rc = cks_checkpoint_layout(c, index, &k->layout, &id, err);

	if (rc < 0 || !k->layout)
		return rc;
	if (k->layout->ndim != k->grid.ndim)
		return ckb_err(err, CKPT_ECORRUPT, "its layout has another "
			       "number of dimensions");
	for (uint32_t i = 0; i < k->layout->shard_count; i++) {
		struct ckpt_box b;

		shard_box(k, i, &b);
		if (!ckt_box_inside(&b, k->grid.ndim, k->grid.shape))
			return ckb_err(err, CKPT_ECORRUPT, "shard %u of its "
				       "layout leaves it", i);
	}
	return 0;
}

static int load_chunks(struct ckpt_checkpoint *c,
		       const struct ckpt_tensor_info *t,
		       struct cks_chunks **out, struct ckpt_err *err)
{
	CKB_BUF struct ckb_buf blob = { 0 };
	int rc = t->bytes ? ckq_manifest_chunks(cks_checkpoint_manifest(c),
						t->index, &blob, err) : 0;
	size_t n = blob.len / CKF_CHUNK_ENTRY_BYTES;
	struct cks_chunks *k;

	if (rc < 0)
		return rc;
	k = calloc(1, sizeof(*k) + n * sizeof(k->entries[0]));
	if (!k)
		return ckb_err_nomem(err);
	k->count = n;
	if (t->media_type)
		ckt_grid_init_file(&k->grid, t->bytes);
	else
		rc = ckt_grid_init(&k->grid, t->dtype, t->shape, err);
	for (size_t i = 0; rc == 0 && i < n; i++)
		rc = ckf_chunk_entry_decode(
			blob.data + i * CKF_CHUNK_ENTRY_BYTES, &k->entries[i],
			err);
	if (rc == 0)
		rc = read_layout(c, t->index, k, err);
	if (rc == 0)
		rc = check_chunks(c, k, err);
	if (rc < 0) {
		cks_chunks_free(k);
		return rc;
	}
	*out = k;
	return 0;
}

void cks_chunks_free(struct cks_chunks *k)
{
	free(k);
}

int cks_chunks_load(struct ckpt_checkpoint *c,
		    const struct ckpt_tensor_info *t, struct cks_chunks **out,
		    struct ckpt_err *err)
{
	char where[CKS_WHERE_BYTES];

	*out = NULL;
	if (t->alias_of != SIZE_MAX)
		t = ckpt_tensor_at(c, t->alias_of);
	int rc = load_chunks(c, t, out, err);

	return rc == CKPT_ECORRUPT ? ckb_err_prefix(err, rc, "%s",
						    cks_where(where, c, t))
				   : rc;
}
