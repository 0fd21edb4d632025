/* SPDX-License-Identifier: Apache-2.0 */
/*
 * box.c - boxes: intersection, contiguous runs, linear ranges. Pure.
 *
 * All boxes of one call have the same number of dimensions. Offsets are in
 * bytes; callers have checked that boxes lie inside their tensors, so sums
 * here cannot overflow.
 */
#include "tensor/box.h"

#include <string.h>

void ckt_box_whole(struct ckpt_box *out, uint32_t ndim, const uint64_t *shape)
{
	out->ndim = ndim;
	for (uint32_t d = 0; d < ndim; d++) {
		out->origin[d] = 0;
		out->extent[d] = shape[d];
	}
}

bool ckt_box_equal(const struct ckpt_box *a, const struct ckpt_box *b)
{
	size_t n = a->ndim * sizeof(a->origin[0]);

	return a->ndim == b->ndim && memcmp(a->origin, b->origin, n) == 0 &&
	       memcmp(a->extent, b->extent, n) == 0;
}

bool ckt_box_empty(const struct ckpt_box *box)
{
	for (uint32_t d = 0; d < box->ndim; d++)
		if (box->extent[d] == 0)
			return true;
	return false;
}

bool ckt_box_meet(const struct ckpt_box *a, const struct ckpt_box *b,
		  struct ckpt_box *out)
{
	out->ndim = a->ndim;
	for (uint32_t d = 0; d < a->ndim; d++) {
		uint64_t first = a->origin[d] > b->origin[d] ? a->origin[d]
							     : b->origin[d];
		uint64_t end = ckb_min_u64(a->origin[d] + a->extent[d],
					   b->origin[d] + b->extent[d]);
		if (end <= first)
			return false;
		out->origin[d] = first;
		out->extent[d] = end - first;
	}
	return true;
}

bool ckt_box_inside(const struct ckpt_box *box, uint32_t ndim,
		    const uint64_t *shape)
{
	uint64_t end;

	if (box->ndim != ndim)
		return false;
	for (uint32_t d = 0; d < ndim; d++)
		if (!ckb_add_u64(box->origin[d], box->extent[d], &end) ||
		    end > shape[d])
			return false;
	return true;
}

void ckt_strides(uint64_t *out, uint32_t ndim, const uint64_t *extent,
		 uint32_t item_bytes)
{
	uint64_t step = item_bytes;

	for (uint32_t d = ndim; d-- > 0;) {
		out[d] = step;
		step *= extent[d];
	}
}

void ckt_runs_init(struct ckt_runs *r, const struct ckpt_box *src,
		   const struct ckpt_box *box, uint32_t item_bytes,
		   const uint64_t *dst_strides, const uint64_t *dst_origin)
{
	uint64_t src_strides[CKPT_NDIM_MAX];
	uint32_t d = box->ndim;

	memset(r, 0, sizeof(*r));
	ckt_strides(src_strides, src->ndim, src->extent, item_bytes);
	r->run_bytes = item_bytes;
	/* take dimensions into the run while both sides stay contiguous */
	while (d > 0 && (box->extent[d - 1] == 1 ||
			 (src_strides[d - 1] == r->run_bytes &&
			  dst_strides[d - 1] == r->run_bytes))) {
		d--;
		r->run_bytes *= box->extent[d];
	}
	r->outer = d;
	for (uint32_t i = 0; i < box->ndim; i++) {
		r->extent[i] = box->extent[i];
		r->src_step[i] = src_strides[i];
		r->dst_step[i] = dst_strides[i];
		r->src_off += (box->origin[i] - src->origin[i]) *
			      src_strides[i];
		r->dst_off += (box->origin[i] - dst_origin[i]) *
			      dst_strides[i];
		r->done = r->done || box->extent[i] == 0;
	}
}

bool ckt_runs_next(struct ckt_runs *r, uint64_t *out_src_off,
		   uint64_t *out_dst_off, uint64_t *out_len)
{
	if (r->done)
		return false;
	*out_src_off = r->src_off;
	*out_dst_off = r->dst_off;
	*out_len = r->run_bytes;
	for (uint32_t d = r->outer; d-- > 0;) {
		r->src_off += r->src_step[d];
		r->dst_off += r->dst_step[d];
		if (++r->at[d] < r->extent[d])
			return true;
		r->src_off -= r->src_step[d] * r->extent[d];
		r->dst_off -= r->dst_step[d] * r->extent[d];
		r->at[d] = 0;
	}
	r->done = true;
	return true;
}

/*
 * The boxes of a linear range, greedily: at each point take the largest
 * aligned slab that fits. A slab at level d is a range of rows along d under
 * one index of every dimension before it.
 */
uint32_t ckt_range_boxes(uint32_t ndim, const uint64_t *shape, uint64_t first,
			 uint64_t count, struct ckpt_box *out)
{
	uint64_t step[CKPT_NDIM_MAX];
	uint32_t n = 0;

	if (count == 0)
		return 0;
	ckt_strides(step, ndim, shape, 1);
	if (ndim == 0) {
		out[0].ndim = 0;
		return 1;
	}
	while (count > 0) {
		uint32_t d = 0;
		uint64_t rest = first;

		/* the outermost level whose rows start here and fit */
		while (d + 1 < ndim && (first % step[d] != 0 ||
					count < step[d]))
			d++;
		struct ckpt_box *b = &out[n++];

		b->ndim = ndim;
		for (uint32_t i = 0; i < ndim; i++) {
			b->origin[i] = rest / step[i];
			rest %= step[i];
			b->extent[i] = i < d ? 1 : shape[i];
		}
		b->extent[d] = ckb_min_u64(count / step[d],
					   shape[d] - b->origin[d]);
		first += b->extent[d] * step[d];
		count -= b->extent[d] * step[d];
	}
	return n;
}
