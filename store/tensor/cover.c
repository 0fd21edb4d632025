/* SPDX-License-Identifier: Apache-2.0 */
/*
 * cover.c - S7: do boxes cover a shape exactly once?
 *
 * The space is halved at edges of boxes, the boxes clipped into the halves,
 * until one box fills its part of the space or none reaches it. Where the
 * volumes in a part do not add up to the part's, the fault is in the half
 * that does not add up either, and only that half is looked at. So a wrong
 * cover is found in O(n), a right one in O(n log n) for slabs, grids and most
 * uneven cuts. A scatter made to be slow is refused after WORK_MAX steps
 * (S10).
 *
 * Boxes are copied, without the dimensions that all of them span: struct
 * ckpt_box has room for 64, and a walk over a million of those is slow.
 * Pure; memory is linear in the boxes.
 */
#include "base/limits.h"
#include "tensor/box.h"

#include <stdlib.h>
#include <string.h>

#define WORK_MAX (1ull << 32) /* a grid of 1,024 x 1,024 takes 2^26 */

/* A box clipped to the part: its index, then first and end per dimension. */
struct cover {
	const struct ckpt_box *boxes;
	uint32_t ndim, dim[CKPT_NDIM_MAX]; /* the dimensions in play */
	size_t words;     /* of one piece */
	uint64_t space[2 * CKPT_NDIM_MAX]; /* the part: first, end */
	uint64_t *edges;  /* scratch, two per box */
	uint64_t work, held; /* steps; bytes of pieces kept */
	uint32_t a, b;    /* what overlaps */
};

/* CKPT codes are negative: what a part turned out to be. */
enum verdict { COVERED, HOLE, OVERLAP };

static uint64_t volume(const uint64_t *range, uint32_t ndim)
{
	uint64_t n = 1;

	for (uint32_t d = 0; d < ndim; d++)
		n *= range[2 * d + 1] - range[2 * d];
	return n;
}

/* Overlaps may add up past 2^64. */
static void add_up(uint64_t *sum, uint64_t n)
{
	if (!ckb_add_u64(*sum, n, sum))
		*sum = UINT64_MAX;
}

static uint64_t sum_of(const struct cover *c, const uint64_t *pieces,
		       uint32_t n)
{
	uint64_t sum = 0;

	for (uint32_t i = 0; i < n; i++)
		add_up(&sum, volume(pieces + i * c->words + 1, c->ndim));
	return sum;
}

/* The median of v[0..n), n > 0: Hoare's selection, its pivots from the
 * middle, so that sorted input is the good case. Reorders @v. */
static uint64_t median(uint64_t *v, size_t n)
{
	size_t low = 0, high = n - 1, k = n / 2;

	while (low < high) {
		uint64_t pivot = v[low + (high - low) / 2];
		size_t i = low, j = high;

		for (;; i++, j--) {
			while (v[i] < pivot)
				i++;
			while (v[j] > pivot)
				j--;
			if (i >= j)
				break;
			uint64_t t = v[i];

			v[i] = v[j];
			v[j] = t;
		}
		if (k <= j)
			high = j;
		else
			low = j + 1;
	}
	return v[low];
}

/* The middle edge along @d inside the part. false: there is none. */
static bool middle_edge(struct cover *c, const uint64_t *pieces, uint32_t n,
			uint32_t d, uint64_t *out)
{
	uint64_t first = c->space[2 * d], end = c->space[2 * d + 1];
	size_t count = 0;

	for (uint32_t i = 0; i < n; i++) {
		const uint64_t *p = pieces + i * c->words + 1 + 2 * d;

		if (p[0] > first)
			c->edges[count++] = p[0];
		if (p[1] < end)
			c->edges[count++] = p[1];
	}
	if (count > 0)
		*out = median(c->edges, count);
	return count > 0;
}

/* Where to halve: the plane that leaves the fewest boxes in the fuller half.
 * There is one, as no box fills the part. */
static uint32_t choose(struct cover *c, const uint64_t *pieces, uint32_t n,
		       uint64_t *out_at)
{
	uint32_t best = UINT32_MAX, best_d = 0;

	for (uint32_t d = 0; d < c->ndim; d++) {
		uint32_t left = 0, right = 0;
		uint64_t at;

		if (!middle_edge(c, pieces, n, d, &at))
			continue;
		for (uint32_t i = 0; i < n; i++) {
			const uint64_t *p = pieces + i * c->words + 1 + 2 * d;

			left += p[0] < at;
			right += p[1] > at;
		}
		left = left > right ? left : right;
		if (left < best) {
			best = left;
			best_d = d;
			*out_at = at;
		}
	}
	CKB_INVARIANT(best != UINT32_MAX);
	return best_d;
}

/* Left pieces go to @left, right ones stay, packed. @left has room for @n. */
static void split(const struct cover *c, uint64_t *pieces, uint32_t n,
		  uint32_t d, uint64_t at, uint64_t *left, uint32_t *out_left,
		  uint32_t *out_right)
{
	uint32_t l = 0, r = 0;

	for (uint32_t i = 0; i < n; i++) {
		const uint64_t *p = pieces + i * c->words;
		bool goes_right = p[2 + 2 * d] > at;

		if (p[1 + 2 * d] < at) {
			uint64_t *to = left + l++ * c->words;

			memcpy(to, p, c->words * sizeof(*p));
			if (goes_right)
				to[2 + 2 * d] = at;
		}
		if (goes_right) {
			uint64_t *to = pieces + r++ * c->words;

			memmove(to, p, c->words * sizeof(*p));
			if (to[1 + 2 * d] < at)
				to[1 + 2 * d] = at;
		}
	}
	*out_left = l;
	*out_right = r;
}

/* A box that fills the part, if any does: then it must be the only one. */
static bool filled(struct cover *c, const uint64_t *pieces, uint32_t n,
		   int *out)
{
	for (uint32_t i = 0; i < n; i++) {
		const uint64_t *p = pieces + i * c->words;

		if (memcmp(p + 1, c->space, (c->words - 1) * sizeof(*p)) != 0)
			continue;
		*out = n == 1 ? COVERED : OVERLAP;
		if (n > 1) {
			c->a = (uint32_t)p[0];
			c->b = (uint32_t)pieces[(i ? 0 : 1) * c->words];
		}
		return true;
	}
	return false;
}

/*
 * Look at the part c->space and the pieces in it, which it may reorder. On
 * COVERED the part is as it was; else it is the hole, or where boxes meet.
 * The depth is bounded: each level halves the edges along one dimension.
 */
static int look(struct cover *c, uint64_t *pieces, uint32_t n)
{
	int rc = HOLE;
	uint64_t at = 0;

	c->work += (uint64_t)n * c->ndim;
	if (c->work > WORK_MAX)
		return CKPT_ELIMIT;
	if (n == 0 || filled(c, pieces, n, &rc))
		return rc;
	uint64_t have = sum_of(c, pieces, n);
	uint64_t want = volume(c->space, c->ndim);
	uint32_t d = choose(c, pieces, n, &at), l, r;
	uint64_t first = c->space[2 * d], end = c->space[2 * d + 1];
	size_t bytes = n * c->words * sizeof(uint64_t);

	if (c->held + bytes > CKB_COVER_BYTES)
		return CKPT_ELIMIT;
	CKB_FREE uint64_t *left = malloc(bytes);

	if (!left)
		return CKPT_ENOMEM;
	c->held += bytes;
	split(c, pieces, n, d, at, left, &l, &r);
	c->space[2 * d + 1] = at;
	uint64_t left_have = sum_of(c, left, l);
	uint64_t left_want = volume(c->space, c->ndim);

	if (have == want || (have > want && left_have > left_want) ||
	    (have < want && left_have < left_want)) {
		rc = look(c, left, l);
		if (rc != COVERED)
			return rc;
	}
	free(CKB_TAKE(left)); /* before the right half needs memory */
	c->held -= bytes;
	c->space[2 * d] = at;
	c->space[2 * d + 1] = end;
	rc = look(c, pieces, r);
	if (rc == COVERED)
		c->space[2 * d] = first;
	return rc;
}

/* The dimensions that some box does not span. */
static void in_play(struct cover *c, uint32_t ndim, const uint64_t *shape,
		    uint32_t count)
{
	for (uint32_t d = 0; d < ndim; d++)
		for (uint32_t i = 0; i < count; i++) {
			if (ckt_box_empty(&c->boxes[i]) ||
			    c->boxes[i].extent[d] == shape[d])
				continue;
			c->space[2 * c->ndim] = 0;
			c->space[2 * c->ndim + 1] = shape[d];
			c->dim[c->ndim++] = d;
			break;
		}
	c->words = 1 + 2 * (size_t)c->ndim;
}

/* Boxes that are not empty as pieces; their number. */
static uint32_t copy(const struct cover *c, uint32_t count, uint64_t *pieces)
{
	uint32_t n = 0;

	for (uint32_t i = 0; i < count; i++) {
		const struct ckpt_box *b = &c->boxes[i];
		uint64_t *p = pieces + n * c->words;

		if (ckt_box_empty(b))
			continue;
		*p++ = i;
		for (uint32_t k = 0; k < c->ndim; k++) {
			*p++ = b->origin[c->dim[k]];
			*p++ = b->origin[c->dim[k]] + b->extent[c->dim[k]];
		}
		n++;
	}
	return n;
}

static int say_overlap(const struct cover *c, uint32_t *out_a, uint32_t *out_b,
		       struct ckpt_err *err)
{
	uint32_t i = c->a < c->b ? c->a : c->b;
	uint32_t j = c->a < c->b ? c->b : c->a;
	char p[CKT_TEXT_BYTES], q[CKT_TEXT_BYTES];

	*out_a = i;
	*out_b = j;
	return ckb_err(err, CKPT_EINVAL, "shards %u and %u overlap: %s and %s",
		       i, j, ckt_box_text(p, sizeof(p), &c->boxes[i]),
		       ckt_box_text(q, sizeof(q), &c->boxes[j]));
}

static int say_hole(const struct cover *c, uint32_t ndim,
		    const uint64_t *shape, struct ckpt_err *err)
{
	char text[CKT_TEXT_BYTES];
	struct ckpt_box hole;

	ckt_box_whole(&hole, ndim, shape);
	for (uint32_t k = 0; k < c->ndim; k++) {
		hole.origin[c->dim[k]] = c->space[2 * k];
		hole.extent[c->dim[k]] = c->space[2 * k + 1] -
					 c->space[2 * k];
	}
	return ckb_err(err, CKPT_EINVAL, "the shards leave a hole: nobody "
		       "holds %s", ckt_box_text(text, sizeof(text), &hole));
}

int ckt_cover_check(uint32_t ndim, const uint64_t *shape,
		    const struct ckpt_box *boxes, uint32_t count,
		    uint32_t *out_a, uint32_t *out_b, struct ckpt_err *err)
{
	struct cover c = { .boxes = boxes };
	CKB_FREE uint64_t *pieces = NULL, *edges = NULL;
	char text[CKT_TEXT_BYTES];

	*out_a = UINT32_MAX;
	*out_b = UINT32_MAX;
	for (uint32_t i = 0; i < count; i++)
		if (!ckt_box_inside(&boxes[i], ndim, shape)) {
			*out_a = i;
			return ckb_err(err, CKPT_EINVAL, "shard %u, %s, leaves "
				       "the tensor", i,
				       ckt_box_text(text, sizeof(text),
						    &boxes[i]));
		}
	for (uint32_t d = 0; d < ndim; d++)
		if (shape[d] == 0)
			return 0; /* no element: nothing to hold */
	in_play(&c, ndim, shape, count);
	/* + 1: a size of 0 may give NULL */
	pieces = malloc((count * c.words + 1) * sizeof(*pieces));
	edges = malloc((2 * (size_t)count + 1) * sizeof(*edges));
	if (!pieces || !edges)
		return ckb_err_nomem(err);
	c.edges = edges;
	int rc = look(&c, pieces, copy(&c, count, pieces));

	if (rc == OVERLAP)
		return say_overlap(&c, out_a, out_b, err);
	if (rc == HOLE)
		return say_hole(&c, ndim, shape, err);
	if (rc == CKPT_ELIMIT)
		return ckb_err(err, rc, "%u shards lie too scattered to prove "
			       "that they cover the tensor", count);
	return rc < 0 ? ckb_err_nomem(err) : 0;
}
