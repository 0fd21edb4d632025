/* SPDX-License-Identifier: Apache-2.0 */
/*
 * mem/piece.h - strided memory of a device, as few copies. Pure.
 *
 * A piece is a box of elements with steps between them on the device and where
 * they go. Planned, it says which rows are copied into a buffer, in the order
 * of the device's memory, and how the buffer is gathered from.
 */
#ifndef CKD_PIECE_H
#define CKD_PIECE_H

#include <ckpt/types.h>

#include "base/check.h"

struct ckd_piece {
	/* the caller's */
	uint32_t ndim, item_bytes;
	uint64_t len[CKPT_NDIM_MAX];     /* elements; none is 0 */
	int64_t src_step[CKPT_NDIM_MAX]; /* bytes */
	uint64_t dst_step[CKPT_NDIM_MAX];
	uint64_t src;                    /* address of element [0, ..., 0] */
	/*
	 * The plan: rows of @width bytes, @height at a time with a pitch of
	 * @src_pitch, each time from elsewhere (ckd_piece_rows()).
	 */
	uint64_t width, height, src_pitch, dst_pitch;
	uint32_t outer, dim[CKPT_NDIM_MAX]; /* dimensions walked, inner first */
	int64_t hold_step[CKPT_NDIM_MAX];   /* in the buffer */
	uint64_t hold_first;                /* offset of element [0, ..., 0] */
	uint64_t hold_bytes;
	uint64_t low;                       /* lowest address */
};

/*
 * Plan copies into a buffer. Rows are dense in it; gaps and overlaps of the
 * device's memory within a short row are copied as they are.
 */
void ckd_piece_plan(struct ckd_piece *p);

/*
 * Plan copies that need no buffer: rows go where they belong. false: not this
 * piece, or it would be many short rows.
 */
bool ckd_piece_direct(struct ckd_piece *p);

/*
 * The @index-th copy of a plan: *@out_src its address, *@out_dst the offset in
 * the buffer, or for a direct plan from where the piece goes. false: no more.
 */
bool ckd_piece_copy(const struct ckd_piece *p, uint64_t index,
		    uint64_t *out_src, uint64_t *out_dst);

/* Lengths that a piece may have of @p's so that its plan fits @room bytes (at
 * least 16). */
void ckd_piece_cut(const struct ckd_piece *p, uint64_t room, uint64_t *out_len);

/* From the buffer to where it goes. */
void ckd_piece_gather(const struct ckd_piece *p, const uint8_t *hold,
		      uint8_t *dst);

#endif
