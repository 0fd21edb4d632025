/* SPDX-License-Identifier: Apache-2.0 */
/*
 * tile.c - the bytes of one tile, from whatever provider.
 *
 * Memory that can be borrowed is gathered run by run. For the rest (a file, a
 * callback) the band of the tile, all the bytes that it and the column tiles
 * beside it lie in, is read at once into a window, and they find their bytes
 * there: the source is read once, in order, in large reads. Columns are cut at
 * most three times, so a band is at most eight tiles, 64 MiB; where it is more
 * than the window may have (S9), tiles are read run by run.
 */
#include <stdlib.h>
#include <string.h>

#include "save.h"
#include "tensor/box.h"

/* The band of @part: dimensions from its last cut one on are whole. Offsets in
 * the box's own bytes. */
static void band_of(const struct ckw_source *src, const struct ckpt_box *part,
		    uint64_t *out_first, uint64_t *out_end)
{
	uint64_t strides[CKPT_NDIM_MAX], first = 0, last = 0;
	uint32_t cut = src->box.ndim;

	ckt_strides(strides, src->box.ndim, src->box.extent,
		    src->grid->item_bytes);
	for (uint32_t d = 1; d < part->ndim; d++)
		if (part->extent[d] < src->box.extent[d])
			cut = d;
	for (uint32_t d = 0; d < part->ndim; d++) {
		uint64_t at = part->origin[d] - src->box.origin[d];
		uint64_t n = part->extent[d];

		if (d >= cut) {
			at = 0;
			n = src->box.extent[d];
		}
		first += at * strides[d];
		last += (at + n - 1) * strides[d];
	}
	*out_first = first;
	*out_end = last + src->grid->item_bytes;
}

/* Bytes [@first, @end) of the box into the window, unless they are there. */
static int fill(struct ckw_source *src, uint64_t first, uint64_t end,
		struct ckpt_err *err)
{
	if (first >= src->window_off &&
	    end <= src->window_off + src->window_len)
		return 0;
	if (end - first > src->window_size) {
		free(src->window);
		src->window_len = 0;
		src->window_size = 0;
		src->window = malloc((size_t)(end - first));
		if (!src->window)
			return ckb_err_nomem(err);
		src->window_size = (size_t)(end - first);
	}
	src->window_len = 0; /* void until the read has succeeded */
	int rc = src->provider->ops->read(src->provider->ctx,
					  src->base + first, src->window,
					  (size_t)(end - first), err);

	if (rc == 0) {
		src->window_off = first;
		src->window_len = end - first;
	}
	return rc;
}

int ckw_source_read(struct ckw_source *src, const struct ckpt_box *part,
		    uint8_t *dst, struct ckpt_err *err)
{
	const struct ckpt_provider_ops *ops = src->provider->ops;
	uint32_t item = src->grid->item_bytes;
	uint64_t strides[CKPT_NDIM_MAX], off, to, len, first, end;
	struct ckt_runs runs;
	int rc = 0;

	band_of(src, part, &first, &end);
	bool windowed = !ops->borrow && end - first <= src->window_max &&
			end - first > ckt_box_bytes(part, item);

	if (windowed)
		rc = fill(src, first, end, err);
	ckt_strides(strides, part->ndim, part->extent, item);
	ckt_runs_init(&runs, &src->box, part, item, strides, part->origin);
	while (rc == 0 && ckt_runs_next(&runs, &off, &to, &len)) {
		const void *from = NULL;

		if (windowed)
			from = src->window + (off - src->window_off);
		else if (ops->borrow)
			from = ops->borrow(src->provider->ctx,
					   src->base + off, (size_t)len);
		if (from)
			memcpy(dst + to, from, len);
		else
			rc = ops->read(src->provider->ctx, src->base + off,
				       dst + to, (size_t)len, err);
	}
	return rc;
}
