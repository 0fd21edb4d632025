/* SPDX-License-Identifier: Apache-2.0 */
/*
 * tensor/box.h - boxes: intersection, coverage, contiguous runs, copies.
 * Pure; all boxes of one call have the same ndim.
 */
#ifndef CKT_BOX_H
#define CKT_BOX_H

#include "tensor/dtype.h"

void ckt_box_whole(struct ckpt_box *out, uint32_t ndim, const uint64_t *shape);
bool ckt_box_equal(const struct ckpt_box *a, const struct ckpt_box *b);
bool ckt_box_empty(const struct ckpt_box *box);
/* false when they do not meet (then *@out is undefined). ndim 0 meets. */
bool ckt_box_meet(const struct ckpt_box *a, const struct ckpt_box *b,
		  struct ckpt_box *out);
/* box lies inside shape, sums checked against overflow */
bool ckt_box_inside(const struct ckpt_box *box, uint32_t ndim,
		    const uint64_t *shape);

/*
 * S7: do @boxes cover @shape exactly once? Volume sum, then a sorted sweep;
 * empty boxes are ignored. O(n log n) for boxes that are slabs or a grid.
 * CKPT_EINVAL names the two that overlap or a hole's box; *@out_a, *@out_b
 * get the indices (UINT32_MAX: none).
 */
CKB_MUST int ckt_cover_check(uint32_t ndim, const uint64_t *shape,
			     const struct ckpt_box *boxes, uint32_t count,
			     uint32_t *out_a, uint32_t *out_b,
			     struct ckpt_err *err);

/*
 * The runs of @box that are contiguous both in @src and in @dst, in ascending
 * source order. @src: the box whose C-order bytes are the source (a tile);
 * @box must lie in it. @dst_strides: bytes between neighbours in the
 * destination whose byte 0 is element @dst_origin. Offsets are in bytes.
 */
struct ckt_runs {
	uint32_t outer;     /* dimensions walked; the rest is one run */
	uint64_t run_bytes;
	uint64_t at[CKPT_NDIM_MAX], extent[CKPT_NDIM_MAX];
	uint64_t src_step[CKPT_NDIM_MAX], dst_step[CKPT_NDIM_MAX];
	uint64_t src_off, dst_off;
	bool done;
};
void ckt_runs_init(struct ckt_runs *r, const struct ckpt_box *src,
		   const struct ckpt_box *box, uint32_t item_bytes,
		   const uint64_t *dst_strides, const uint64_t *dst_origin);
bool ckt_runs_next(struct ckt_runs *r, uint64_t *out_src_off,
		   uint64_t *out_dst_off, uint64_t *out_len);

/* C-order strides of @extent in bytes. */
void ckt_strides(uint64_t *out, uint32_t ndim, const uint64_t *extent,
		 uint32_t item_bytes);

/*
 * A linear range of elements of a C-order shape as boxes, in order; each box
 * is contiguous. At most 2 * ndim - 1 (one for ndim 0). Returns the count.
 */
#define CKT_RANGE_BOXES_MAX (2 * CKPT_NDIM_MAX)
uint32_t ckt_range_boxes(uint32_t ndim, const uint64_t *shape, uint64_t first,
			 uint64_t count, struct ckpt_box *out);

#endif
