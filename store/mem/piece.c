/* SPDX-License-Identifier: Apache-2.0 */
/*
 * piece.c - plans for strided memory: which rows to copy, and the gather after.
 *
 * A device copies long rows well and short ones badly. So dimensions are taken
 * in the order of their steps on the device, shortest first, whatever their
 * order in the tensor: a transposed matrix is copied as it lies, and put in
 * order by the host, from a buffer that its cache holds. Dense dimensions
 * lengthen the row. So do those with small gaps while the row is short: copying
 * the gap costs less than one more row. Dimensions that overlap (or repeat:
 * step 0) are copied once. The first dimension left is the height of a 2-D
 * copy, and so are those that continue it; copies are repeated over the rest.
 *
 * In the buffer rows are dense, so a step there follows from the plan. Steps
 * that go down on the device go down there too.
 *
 * Pure: no allocation, no I/O, no locks. Sizes never wrap: the caller's piece
 * lies in memory.
 */
#include "mem/piece.h"

#include <string.h>

#define LONG_ROW 512u /* bytes from which a row of its own is no loss */
#define GAP_MAX 4u    /* a short row may become this times as long */

static uint64_t size_of(int64_t step)
{
	return step < 0 ? -(uint64_t)step : (uint64_t)step;
}

/* Dimensions with more than one element, shortest step first. Of equal steps
 * the inner one is first. */
static uint32_t by_step(const struct ckd_piece *p, const uint64_t *len,
			uint32_t *out)
{
	uint32_t n = 0;

	for (uint32_t d = p->ndim; d-- > 0;) {
		if (len[d] <= 1)
			continue;
		uint32_t i = n++;

		for (; i > 0 && size_of(p->src_step[out[i - 1]]) >
					size_of(p->src_step[d]); i--)
			out[i] = out[i - 1];
		out[i] = d;
	}
	return n;
}

/* May a dimension of @step become part of a row of @width bytes? */
static bool joins(uint64_t width, uint64_t step)
{
	return step <= width || (width < LONG_ROW && step / GAP_MAX <= width);
}

/* How many of the @n dimensions in @dim make the row; *@width its bytes. */
static uint32_t row_of(const struct ckd_piece *p, const uint64_t *len,
		       const uint32_t *dim, uint32_t n, uint64_t *width)
{
	uint32_t i = 0;

	*width = p->item_bytes;
	for (; i < n; i++) {
		uint64_t step = size_of(p->src_step[dim[i]]);

		if (!joins(*width, step))
			break;
		*width += (len[dim[i]] - 1) * step;
	}
	return i;
}

void ckd_piece_cut(const struct ckd_piece *p, uint64_t room, uint64_t *out_len)
{
	uint32_t dim[CKPT_NDIM_MAX], n, row;
	uint64_t bytes;

	memcpy(out_len, p->len, p->ndim * sizeof(*out_len));
	for (;;) {
		n = by_step(p, out_len, dim);
		row = row_of(p, out_len, dim, n, &bytes);
		for (uint32_t i = row; i < n; i++)
			bytes *= out_len[dim[i]];
		if (bytes <= room || n == 0)
			return;
		uint64_t *longest = &out_len[dim[n - 1]];

		*longest = ckb_div_up(*longest, 2);
	}
}

void ckd_piece_plan(struct ckd_piece *p)
{
	uint32_t dim[CKPT_NDIM_MAX];
	uint32_t n = by_step(p, p->len, dim);
	uint32_t row = row_of(p, p->len, dim, n, &p->width);
	uint64_t step;

	memset(p->hold_step, 0, sizeof(p->hold_step));
	p->low = p->src;
	p->height = 1;
	p->src_pitch = p->dst_pitch = p->hold_bytes = p->width;
	p->hold_first = 0;
	p->outer = 0;
	for (uint32_t i = 0; i < n; i++) {
		uint32_t d = dim[i];
		uint64_t src = size_of(p->src_step[d]);

		step = i < row ? src : p->hold_bytes;
		p->hold_step[d] = p->src_step[d] < 0 ? -(int64_t)step
						     : (int64_t)step;
		if (p->src_step[d] < 0) {
			p->low -= (p->len[d] - 1) * src;
			p->hold_first += (p->len[d] - 1) * step;
		}
		if (i < row)
			continue;
		p->hold_bytes *= p->len[d];
		if (i == row)
			p->src_pitch = src;
		if (p->outer == 0 && src == p->src_pitch * p->height)
			p->height *= p->len[d];
		else
			p->dim[p->outer++] = d;
	}
}

bool ckd_piece_direct(struct ckd_piece *p)
{
	uint32_t dim[CKPT_NDIM_MAX];
	uint32_t n = by_step(p, p->len, dim), i = 0;

	p->width = p->item_bytes;
	p->height = 1;
	p->low = p->src;
	p->outer = 0;
	for (; i < n && p->src_step[dim[i]] == (int64_t)p->width &&
	       p->dst_step[dim[i]] == p->width; i++)
		p->width *= p->len[dim[i]];
	if (i < n && p->width < LONG_ROW)
		return false;
	p->src_pitch = p->dst_pitch = p->width;
	for (uint32_t k = i; k < n; k++) {
		uint32_t d = dim[k];
		uint64_t src = size_of(p->src_step[d]);

		if (p->src_step[d] < 0 || src < p->width)
			return false;
		p->hold_step[d] = (int64_t)p->dst_step[d];
		if (k == i) {
			p->src_pitch = src;
			p->dst_pitch = p->dst_step[d];
		}
		if (p->outer == 0 && src == p->src_pitch * p->height &&
		    p->dst_step[d] == p->dst_pitch * p->height)
			p->height *= p->len[d];
		else
			p->dim[p->outer++] = d;
	}
	return true;
}

bool ckd_piece_copy(const struct ckd_piece *p, uint64_t index,
		    uint64_t *out_src, uint64_t *out_dst)
{
	uint64_t src = p->low, dst = 0;

	for (uint32_t i = 0; i < p->outer; i++) {
		uint32_t d = p->dim[i];
		uint64_t at = index % p->len[d];

		index /= p->len[d];
		src += at * size_of(p->src_step[d]);
		dst += at * size_of(p->hold_step[d]);
	}
	*out_src = src;
	*out_dst = dst;
	return index == 0;
}

/* ---- the gather ---- */

/* @n elements, dense at @dst; sizes that a constant makes one move each. */
static void gather_items(uint8_t *dst, const uint8_t *src, int64_t step,
			 uint64_t n, uint32_t item)
{
#define EACH(bytes) \
	case bytes: \
		for (uint64_t i = 0; i < n; i++) \
			memcpy(dst + i * (bytes), src + (int64_t)i * step, \
			       bytes); \
		break
	switch (item) {
	EACH(1);
	EACH(2);
	EACH(4);
	EACH(8);
	EACH(16);
	default:
		CKB_INVARIANT(item == 0);
	}
#undef EACH
}

void ckd_piece_gather(const struct ckd_piece *p, const uint8_t *hold,
		      uint8_t *dst)
{
	uint64_t run = p->item_bytes, at[CKPT_NDIM_MAX] = { 0 };
	uint32_t nd = p->ndim, d;

	hold += p->hold_first;
	while (nd > 0 && (p->len[nd - 1] == 1 ||
			  (p->dst_step[nd - 1] == run &&
			   p->hold_step[nd - 1] == (int64_t)run)))
		run *= p->len[--nd];
	/* where nothing is dense, the last dimension is walked item by item */
	bool items = nd > 0 && run == p->item_bytes &&
		     p->dst_step[nd - 1] == run;
	uint64_t last = items ? p->len[nd - 1] : 1;
	int64_t step = items ? p->hold_step[nd - 1] : 0;

	nd -= items;
	do {
		if (items)
			gather_items(dst, hold, step, last, p->item_bytes);
		else
			memcpy(dst, hold, (size_t)run);
		for (d = nd; d-- > 0;) {
			dst += p->dst_step[d];
			hold += p->hold_step[d];
			if (++at[d] < p->len[d])
				break;
			dst -= p->len[d] * p->dst_step[d];
			hold -= (int64_t)p->len[d] * p->hold_step[d];
			at[d] = 0;
		}
	} while (d != UINT32_MAX);
}
