/* SPDX-License-Identifier: Apache-2.0 */
/*
 * grid.c - the canonical tile grid, rule 1 (DESIGN 6, FORMAT.md).
 *
 * A function of shape and item size alone: whoever saves a tensor, with
 * whatever ranks, cuts it into the same tiles, so equal tensors have equal
 * digests. It must never change; a better rule would be rule 2. Pure.
 */
#include "tensor/grid.h"

#include <string.h>

#include "base/limits.h"
#include "tensor/box.h"

/* Storage space: whole-byte elements, whatever the dtype. */
static int storage_shape(struct ckt_grid *g, enum ckpt_dtype dtype,
			 const struct ckpt_shape *shape, struct ckpt_err *err)
{
	uint32_t bits = ckpt_dtype_bits(dtype);
	int rc = ckt_shape_bytes(dtype, shape, &g->bytes, err);

	if (rc < 0)
		return rc;
	g->ndim = shape->ndim;
	memcpy(g->shape, shape->dim, shape->ndim * sizeof(g->shape[0]));
	g->item_bytes = bits / 8;
	if (bits % 8 == 0)
		return 0;
	g->item_bytes = 1;
	uint32_t last = shape->ndim ? shape->ndim - 1 : 0;
	uint64_t row = shape->ndim ? shape->dim[last] : 1;

	if (shape->ndim > 0 && row % 8 * bits % 8 == 0) {
		/* rows are whole bytes */
		g->shape[last] = row / 8 * bits + row % 8 * bits / 8;
	} else {
		g->ndim = 1;
		g->shape[0] = g->bytes;
	}
	return 0;
}

/* Product of the extents in bytes; it fits, as it is at most g->bytes. */
static uint64_t tile_bytes(const struct ckt_grid *g)
{
	uint64_t n = g->item_bytes;

	for (uint32_t d = 0; d < g->ndim; d++)
		n *= g->tile[d];
	return n;
}

/* ceil(size / 2^k) */
static uint64_t halved(uint64_t size, uint32_t k)
{
	return k >= 64 ? 1 : (size >> k) + ((size & ((1ull << k) - 1)) != 0);
}

static void cut(struct ckt_grid *g)
{
	uint64_t limit = g->bytes / 256, run[CKPT_NDIM_MAX];
	uint32_t k[CKPT_NDIM_MAX] = { 0 }, c = 0, cols = 0;

	if (limit < CKB_TILE_MIN_BYTES)
		limit = CKB_TILE_MIN_BYTES;
	if (limit > CKB_TILE_MAX_BYTES)
		limit = CKB_TILE_MAX_BYTES;
	ckt_strides(run, g->ndim, g->shape, g->item_bytes);
	for (uint32_t d = 1; d < g->ndim; d++)
		if (g->shape[d] > 1 && g->shape[d] * run[d] >= 2048)
			c = d; /* 0: none */
	while (tile_bytes(g) > limit) {
		if (c > 0 && cols < 3 && g->tile[c] > 1 &&
		    halved(g->shape[c], k[c] + 1) * run[c] >= 1024) {
			g->tile[c] = halved(g->shape[c], ++k[c]);
			cols++;
			continue;
		}
		uint32_t d = 0;

		while (d < g->ndim && g->tile[d] <= 1)
			d++;
		if (d == g->ndim)
			break;
		g->tile[d] = halved(g->shape[d], ++k[d]);
	}
}

static void number(struct ckt_grid *g)
{
	g->tile_count = g->bytes > 0;
	for (uint32_t d = 0; d < g->ndim; d++) {
		g->count[d] = g->tile[d] ? ckb_div_up(g->shape[d], g->tile[d])
					 : 0;
		g->tile_count *= g->count[d];
	}
}

int ckt_grid_init(struct ckt_grid *grid, enum ckpt_dtype dtype,
		  const struct ckpt_shape *shape, struct ckpt_err *err)
{
	memset(grid, 0, sizeof(*grid));
	int rc = storage_shape(grid, dtype, shape, err);

	if (rc < 0)
		return rc;
	memcpy(grid->tile, grid->shape, sizeof(grid->tile));
	if (grid->bytes > CKB_TILE_MIN_BYTES && grid->ndim > 0)
		cut(grid);
	if (grid->bytes > 0)
		number(grid);
	return 0;
}

void ckt_grid_init_file(struct ckt_grid *grid, uint64_t bytes)
{
	memset(grid, 0, sizeof(*grid));
	grid->ndim = 1;
	grid->item_bytes = 1;
	grid->bytes = bytes;
	grid->shape[0] = bytes;
	grid->tile[0] = ckb_min_u64(bytes, CKB_FILE_TILE_BYTES);
	if (bytes > 0)
		number(grid);
}

void ckt_grid_tile(const struct ckt_grid *grid, uint64_t index,
		   struct ckpt_box *out)
{
	CKB_REQUIRE(index < grid->tile_count);
	out->ndim = grid->ndim;
	for (uint32_t d = grid->ndim; d-- > 0;) {
		uint64_t at = index % grid->count[d];

		index /= grid->count[d];
		out->origin[d] = at * grid->tile[d];
		out->extent[d] = ckb_min_u64(grid->tile[d], grid->shape[d] -
					     out->origin[d]);
	}
}

uint64_t ckt_box_bytes(const struct ckpt_box *box, uint32_t item_bytes)
{
	uint64_t n = item_bytes;

	for (uint32_t d = 0; d < box->ndim; d++)
		n *= box->extent[d];
	return n;
}

int ckt_grid_box(const struct ckt_grid *grid, enum ckpt_dtype dtype,
		 const struct ckpt_shape *shape, const struct ckpt_box *box,
		 struct ckpt_box *out, struct ckpt_err *err)
{
	char a[CKT_TEXT_BYTES], b[CKT_TEXT_BYTES];
	uint32_t bits = ckpt_dtype_bits(dtype);

	if (box->ndim != shape->ndim ||
	    !ckt_box_inside(box, shape->ndim, shape->dim))
		return ckb_err(err, CKPT_EINVAL, "box %s (%u dimensions) does "
			       "not lie in shape %s",
			       ckt_box_text(a, sizeof(a), box), box->ndim,
			       ckt_shape_text(b, sizeof(b), shape));
	*out = *box;
	if (bits % 8 == 0)
		return 0;
	if (grid->ndim == shape->ndim && shape->ndim > 0) {
		uint32_t d = shape->ndim - 1;
		uint64_t first = box->origin[d], n = box->extent[d];

		if (first % 8 * bits % 8 == 0 && n % 8 * bits % 8 == 0) {
			out->origin[d] = first / 8 * bits +
					 first % 8 * bits / 8;
			out->extent[d] = n / 8 * bits + n % 8 * bits / 8;
			/* 1-D [bytes] looks the same as rows of bytes */
			return 0;
		}
	} else {
		bool whole = true;

		for (uint32_t d = 0; d < box->ndim; d++)
			whole = whole && box->extent[d] == shape->dim[d];
		if (whole) {
			out->ndim = 1;
			out->origin[0] = 0;
			out->extent[0] = grid->bytes;
			return 0;
		}
	}
	return ckb_err(err, CKPT_EINVAL, "box %s of %s does not fall on whole "
		       "bytes", ckt_box_text(a, sizeof(a), box),
		       ckpt_dtype_name(dtype));
}

void ckt_tiles_init(struct ckt_tiles *w, const struct ckt_grid *grid,
		    const struct ckpt_box *box)
{
	w->grid = grid;
	w->done = grid->tile_count == 0;
	for (uint32_t d = 0; d < grid->ndim && !w->done; d++) {
		if (box->extent[d] == 0) {
			w->done = true;
			break;
		}
		w->first[d] = box->origin[d] / grid->tile[d];
		w->last[d] = (box->origin[d] + box->extent[d] - 1) /
			     grid->tile[d];
		w->at[d] = w->first[d];
	}
}

bool ckt_tiles_next(struct ckt_tiles *w, uint64_t *out_index)
{
	const struct ckt_grid *g = w->grid;
	uint64_t index = 0;

	if (w->done)
		return false;
	for (uint32_t d = 0; d < g->ndim; d++)
		index = index * g->count[d] + w->at[d];
	*out_index = index;
	uint32_t d = g->ndim;

	while (d-- > 0) {
		if (w->at[d] < w->last[d]) {
			w->at[d]++;
			return true;
		}
		w->at[d] = w->first[d];
	}
	w->done = true;
	return true;
}
