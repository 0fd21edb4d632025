/* SPDX-License-Identifier: Apache-2.0 */
/*
 * tile.c - the bytes of one tile, from whatever provider.
 *
 * The band of a tile is the range of the shard's bytes that it and the column
 * tiles beside it lie in. Where the band can be borrowed, the tile is gathered
 * from it. For the rest (a file, strided memory, a callback) the band is read
 * at once into a window, and the tiles beside find their bytes there: the
 * source is read once, in order, in large reads. Columns are cut at most three
 * times, so a band is at most eight tiles, 64 MiB; where it is more than the
 * window may have (S9), tiles are read run by run.
 *
 * A provider is the caller's code: whatever it answers but 0 fails the save,
 * with its own sentence if it left one. Thread: the capture thread.
 */
#include <stdlib.h>
#include <string.h>

#include "pipeline.h"
#include "tensor/box.h"

void ckw_source_fini(struct ckw_source *src)
{
	free(src->window);
	src->window = NULL;
}

/* The band of @part: dimensions from its last cut one on are whole. Offsets in
 * the box's own bytes. */
static void band_of(const struct ckw_source *src, const struct ckpt_box *part,
		    uint64_t *out_first, uint64_t *out_end)
{
	uint64_t strides[CKPT_NDIM_MAX], first = 0, last = 0;
	uint32_t cut = src->box.ndim;

	ckt_strides(strides, src->box.ndim, src->box.extent, src->item_bytes);
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
	*out_end = last + src->item_bytes;
}

/* What a provider answered, as an error of ours. A code that says more than a
 * failed read can know (published, durability unknown) becomes CKPT_EIO. */
static int failed_read(int rc, const struct ckpt_err *theirs,
		       struct ckpt_err *err)
{
	int code = rc < 0 && rc >= CKPT_ESTALE && rc != CKPT_EUNSURE
			   ? rc : CKPT_EIO;
	size_t len = strnlen(theirs->message, sizeof(theirs->message));

	if (len == 0)
		return ckb_err(err, code, "its provider failed (%d) and does "
			       "not say why", rc);
	ckb_err(err, code, "%.*s", (int)len, theirs->message);
	if (err)
		err->sys_errno = theirs->sys_errno;
	return code;
}

static int read_bytes(const struct ckw_source *src, uint64_t off, void *dst,
		      uint64_t len, struct ckpt_err *err)
{
	const struct ckpt_provider *p = src->provider;
	struct ckpt_err theirs = { 0 };
	int rc = p->ops->read(p->ctx, src->base + off, dst, (size_t)len,
			      &theirs);

	return rc == 0 ? 0 : failed_read(rc, &theirs, err);
}

/* Bytes [@first, @end) of the box into the window, unless they are there. */
static int fill(struct ckw_source *src, uint64_t first, uint64_t end,
		struct ckpt_err *err)
{
	if (first >= src->window_off &&
	    end <= src->window_off + src->window_len)
		return 0;
	src->window_len = 0; /* void until the read has succeeded */
	if (end - first > src->window_size) {
		free(src->window);
		src->window_size = 0;
		src->window = malloc((size_t)(end - first));
		if (!src->window)
			return ckb_err_nomem(err);
		src->window_size = (size_t)(end - first);
	}
	int rc = read_bytes(src, first, src->window, end - first, err);

	if (rc == 0) {
		src->window_off = first;
		src->window_len = end - first;
	}
	return rc;
}

/* Where bytes [@first, @end) lie in memory, borrowed or in the window; *@out
 * NULL: nowhere as one, read them run by run. */
static int have_band(struct ckw_source *src, uint64_t first, uint64_t end,
		     uint64_t part_bytes, const uint8_t **out,
		     struct ckpt_err *err)
{
	const struct ckpt_provider *p = src->provider;
	int rc;

	*out = p->ops->borrow
		       ? p->ops->borrow(p->ctx, src->base + first,
					(size_t)(end - first))
		       : NULL;
	/* a part that is its own band goes straight to its slot */
	if (*out || end - first > src->window_max || end - first == part_bytes)
		return 0;
	rc = fill(src, first, end, err);
	if (rc == 0)
		*out = src->window + (first - src->window_off);
	return rc;
}

int ckw_source_read(struct ckw_source *src, const struct ckpt_box *part,
		    uint8_t *dst, struct ckpt_err *err)
{
	uint64_t strides[CKPT_NDIM_MAX], off, to, len, first, end;
	const uint8_t *band;
	struct ckt_runs runs;

	band_of(src, part, &first, &end);
	int rc = have_band(src, first, end,
			   ckt_box_bytes(part, src->item_bytes), &band, err);

	ckt_strides(strides, part->ndim, part->extent, src->item_bytes);
	ckt_runs_init(&runs, &src->box, part, src->item_bytes, strides,
		      part->origin);
	while (rc == 0 && ckt_runs_next(&runs, &off, &to, &len)) {
		if (band)
			memcpy(dst + to, band + (off - first), (size_t)len);
		else
			rc = read_bytes(src, off, dst + to, len, err);
	}
	return rc;
}
