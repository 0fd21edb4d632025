/* SPDX-License-Identifier: Apache-2.0 */
/*
 * tensor/grid.h - the canonical tile grid, rule 1 (DESIGN 6, FORMAT.md).
 *
 * A grid lives in *storage space*: the tensor's own shape with whole-byte
 * elements; F4 and F6 become U8 of shape [..., bytes of a row] when rows are
 * whole bytes, else 1-D U8. Boxes of tiles are in storage space.
 */
#ifndef CKT_GRID_H
#define CKT_GRID_H

#include "tensor/dtype.h"

#define CKT_TILE_RULE 1u

struct ckt_grid {
	uint32_t ndim;
	uint32_t item_bytes;              /* bytes of a storage element */
	uint64_t bytes;                   /* of the whole tensor */
	uint64_t shape[CKPT_NDIM_MAX];    /* storage shape */
	uint64_t tile[CKPT_NDIM_MAX];     /* extent of an inner tile */
	uint64_t count[CKPT_NDIM_MAX];    /* tiles along each dimension */
	uint64_t tile_count;              /* 0 when bytes is 0 */
};

CKB_MUST int ckt_grid_init(struct ckt_grid *grid, enum ckpt_dtype dtype,
			   const struct ckpt_shape *shape,
			   struct ckpt_err *err);

/* Opaque file: 1-D, tiles of CKB_FILE_TILE_BYTES. */
void ckt_grid_init_file(struct ckt_grid *grid, uint64_t bytes);

/* Box of tile @index (< tile_count), cut by the tensor's edge. */
void ckt_grid_tile(const struct ckt_grid *grid, uint64_t index,
		   struct ckpt_box *out);

/* Bytes of a storage-space box. */
uint64_t ckt_box_bytes(const struct ckpt_box *box, uint32_t item_bytes);

/* Logical box -> storage box. CKPT_EINVAL when it leaves the shape or does
 * not fall on whole bytes. */
CKB_MUST int ckt_grid_box(const struct ckt_grid *grid, enum ckpt_dtype dtype,
			  const struct ckpt_shape *shape,
			  const struct ckpt_box *box, struct ckpt_box *out,
			  struct ckpt_err *err);

/* Walk the indices of the tiles that meet @box, ascending:
 *	ckt_tiles_init(&w, grid, box);
 *	while (ckt_tiles_next(&w, &index)) ...
 * An empty box meets none. */
struct ckt_tiles {
	const struct ckt_grid *grid;
	uint64_t first[CKPT_NDIM_MAX], last[CKPT_NDIM_MAX], at[CKPT_NDIM_MAX];
	bool done;
};
void ckt_tiles_init(struct ckt_tiles *w, const struct ckt_grid *grid,
		    const struct ckpt_box *box);
bool ckt_tiles_next(struct ckt_tiles *w, uint64_t *out_index);

#endif
