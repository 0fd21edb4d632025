/* SPDX-License-Identifier: Apache-2.0 */
/*
 * cover.c - S7: do boxes cover a shape exactly once?
 *
 * The volumes must add up to the shape's, and no two boxes may meet: then
 * every element is covered once. Overlaps are looked for by a sweep along the
 * dimension with the most distinct origins: boxes sorted by origin there, each
 * compared with those still open. For slabs and grids that is O(n log n) and a
 * few neighbours; for a grid cut along several dimensions boxes that begin
 * together are told apart by a sort over the other dimensions. Pure.
 */
#include "tensor/box.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

struct item {
	const struct ckpt_box *box;
	uint32_t index;
};

static int compare_at(const struct item *x, const struct item *y, uint32_t d)
{
	uint64_t a = x->box->origin[d], b = y->box->origin[d];

	return (a > b) - (a < b);
}

/* By dimension @d (passed in), then by the others in order. */
static int compare(const void *a, const void *b, void *ctx)
{
	const struct item *x = a, *y = b;
	uint32_t first = *(const uint32_t *)ctx;
	int c = compare_at(x, y, first);

	for (uint32_t d = 0; c == 0 && d < x->box->ndim; d++)
		c = compare_at(x, y, d);
	return c;
}

static int overlap(struct item *x, struct item *y, uint32_t *out_a,
		   uint32_t *out_b, struct ckpt_err *err)
{
	char a[CKT_TEXT_BYTES], b[CKT_TEXT_BYTES];
	uint32_t i = x->index < y->index ? x->index : y->index;
	uint32_t j = x->index < y->index ? y->index : x->index;
	const struct ckpt_box *p = x->index < y->index ? x->box : y->box;
	const struct ckpt_box *q = x->index < y->index ? y->box : x->box;

	*out_a = i;
	*out_b = j;
	return ckb_err(err, CKPT_EINVAL, "shards %u and %u overlap: %s and %s",
		       i, j, ckt_box_text(a, sizeof(a), p),
		       ckt_box_text(b, sizeof(b), q));
}

/*
 * Sweep items[0..n) along @d, which they are sorted by; recurse into groups
 * that share both ends along @d with the next dimension.
 */
static int sweep(struct item *items, uint32_t n, uint32_t d, uint32_t *out_a,
		 uint32_t *out_b, struct ckpt_err *err)
{
	uint32_t ndim = n ? items[0].box->ndim : 0;

	if (n < 2)
		return 0;
	if (d >= ndim)
		return overlap(&items[0], &items[1], out_a, out_b, err);
	qsort_r(items, n, sizeof(*items), compare, &d);
	for (uint32_t i = 0; i < n;) {
		uint64_t first = items[i].box->origin[d];
		uint64_t len = items[i].box->extent[d];
		uint32_t j = i;

		while (j < n && items[j].box->origin[d] == first &&
		       items[j].box->extent[d] == len)
			j++;
		/* the group is one column; does anything else reach in? */
		if (j < n && items[j].box->origin[d] < first + len) {
			/* no regular columns here: compare what is open */
			struct ckpt_box both;

			for (uint32_t a = i; a < n; a++)
				for (uint32_t b = a + 1; b < n &&
				     items[b].box->origin[d] <
				     items[a].box->origin[d] +
				     items[a].box->extent[d]; b++)
					if (ckt_box_meet(items[a].box,
							 items[b].box, &both))
						return overlap(&items[a],
							       &items[b],
							       out_a, out_b,
							       err);
			return 0;
		}
		int rc = sweep(items + i, j - i, d + 1, out_a, out_b, err);

		if (rc < 0)
			return rc;
		i = j;
	}
	return 0;
}

/* An element no box covers: halve the space until a hole is a whole cell. */
static void find_hole(struct ckpt_box *space, const struct ckpt_box *boxes,
		      uint32_t count)
{
	for (;;) {
		uint32_t d = space->ndim;
		uint64_t covered = 0, volume = 1;
		struct ckpt_box both, half;

		for (uint32_t i = 0; i < space->ndim; i++) {
			volume *= space->extent[i];
			if (space->extent[i] > 1 && d == space->ndim)
				d = i;
		}
		for (uint32_t i = 0; i < count; i++) {
			uint64_t v = 1;

			if (!ckt_box_meet(&boxes[i], space, &both))
				continue;
			for (uint32_t k = 0; k < both.ndim; k++)
				v *= both.extent[k];
			covered += v;
		}
		if (covered == 0 || d == space->ndim)
			return;
		half = *space;
		half.extent[d] /= 2;
		covered = 0;
		volume = 1;
		for (uint32_t k = 0; k < half.ndim; k++)
			volume *= half.extent[k];
		for (uint32_t i = 0; i < count; i++) {
			uint64_t v = 1;

			if (!ckt_box_meet(&boxes[i], &half, &both))
				continue;
			for (uint32_t k = 0; k < both.ndim; k++)
				v *= both.extent[k];
			covered += v;
		}
		if (covered < volume) {
			*space = half;
		} else {
			space->origin[d] += half.extent[d];
			space->extent[d] -= half.extent[d];
		}
	}
}

int ckt_cover_check(uint32_t ndim, const uint64_t *shape,
		    const struct ckpt_box *boxes, uint32_t count,
		    uint32_t *out_a, uint32_t *out_b, struct ckpt_err *err)
{
	uint64_t want = 1, have = 0;
	uint32_t n = 0;
	char text[CKT_TEXT_BYTES];
	CKB_FREE struct item *items = calloc(count ? count : 1,
					     sizeof(*items));

	*out_a = UINT32_MAX;
	*out_b = UINT32_MAX;
	if (!items)
		return ckb_err_nomem(err);
	for (uint32_t d = 0; d < ndim; d++)
		want *= shape[d];
	for (uint32_t i = 0; i < count; i++) {
		uint64_t v = 1;

		if (!ckt_box_inside(&boxes[i], ndim, shape)) {
			*out_a = i;
			return ckb_err(err, CKPT_EINVAL, "shard %u, %s, leaves "
				       "the tensor", i,
				       ckt_box_text(text, sizeof(text),
						    &boxes[i]));
		}
		for (uint32_t d = 0; d < ndim; d++)
			v *= boxes[i].extent[d];
		if (v == 0)
			continue;
		/* overlaps may add up past 2^64: they are found below */
		have = have > UINT64_MAX - v ? UINT64_MAX : have + v;
		items[n++] = (struct item){ &boxes[i], i };
	}
	int rc = sweep(items, n, 0, out_a, out_b, err);

	if (rc < 0 || have == want)
		return rc;
	struct ckpt_box hole;

	ckt_box_whole(&hole, ndim, shape);
	find_hole(&hole, boxes, count);
	return ckb_err(err, CKPT_EINVAL, "the shards leave a hole: nobody "
		       "holds %s", ckt_box_text(text, sizeof(text), &hole));
}
