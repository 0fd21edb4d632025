/* SPDX-License-Identifier: Apache-2.0 */
/*
 * tile.c - the bytes of tiles, from memory or from whatever provider.
 *
 * The band of a tile is the range of the shard's bytes that it and the column
 * tiles beside it lie in. A source that must be asked (a file, strided memory,
 * a callback) is read band by band through a small window, and each run goes
 * from there to its tile: the source is read once, in order, in large reads.
 * Where not all tiles of a band are wanted, they are read run by run.
 *
 * A provider is the caller's code: whatever it answers but 0 fails the save,
 * with its own sentence if it left one. Pure but for that; any thread.
 */
#include <string.h>

#include "pipeline.h"

#define FORESEEN_BYTES 4096u /* of a run; the rest is read in order */

void ckw_band(const struct ckpt_box *box, const struct ckpt_box *part,
	      uint32_t item_bytes, uint64_t *out_first, uint64_t *out_end)
{
	uint64_t strides[CKPT_NDIM_MAX], first = 0, last = 0;
	uint32_t cut = box->ndim;

	/* dimensions from the last cut one on are whole */
	ckt_strides(strides, box->ndim, box->extent, item_bytes);
	for (uint32_t d = 1; d < part->ndim; d++)
		if (part->extent[d] < box->extent[d])
			cut = d;
	for (uint32_t d = 0; d < part->ndim; d++) {
		uint64_t at = part->origin[d] - box->origin[d];
		uint64_t n = part->extent[d];

		if (d >= cut) {
			at = 0;
			n = box->extent[d];
		}
		first += at * strides[d];
		last += (at + n - 1) * strides[d];
	}
	*out_first = first;
	*out_end = last + item_bytes;
}

void ckw_runs(struct ckt_runs *runs, const struct ckpt_box *box,
	      const struct ckpt_box *part, uint32_t item_bytes)
{
	uint64_t strides[CKPT_NDIM_MAX];

	ckt_strides(strides, part->ndim, part->extent, item_bytes);
	ckt_runs_init(runs, box, part, item_bytes, strides, part->origin);
}

void ckw_foresee(const struct ckt_runs *runs, const uint8_t *base,
		 uint64_t first)
{
	uint64_t len = ckb_min_u64(runs->run_bytes, FORESEEN_BYTES);

	for (uint64_t i = 0; i < len && !runs->done; i += 64)
		__builtin_prefetch(base + (runs->src_off - first) + i);
}

void ckw_gather(const uint8_t *base, uint64_t first,
		const struct ckpt_box *box, const struct ckpt_box *part,
		uint32_t item_bytes, uint8_t *dst)
{
	uint64_t off, to, len;
	struct ckt_runs runs;

	ckw_runs(&runs, box, part, item_bytes);
	while (ckt_runs_next(&runs, &off, &to, &len)) {
		ckw_foresee(&runs, base, first);
		memcpy(dst + to, base + (off - first), (size_t)len);
	}
}

/* A code that says more than a failed read can know (published, durability
 * unknown) becomes CKPT_EIO. */
int ckw_provider_failed(int rc, const struct ckpt_err *theirs,
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

static int read_bytes(const struct ckpt_provider *p, uint64_t off, void *dst,
		      uint64_t len, struct ckpt_err *err)
{
	struct ckpt_err theirs = { 0 };
	int rc = p->ops->read(p->ctx, off, dst, (size_t)len, &theirs);

	return rc == 0 ? 0 : ckw_provider_failed(rc, &theirs, err);
}

/* How far a tile of the band has come: the run at hand. */
struct part_cursor {
	struct ckt_runs runs;
	uint64_t off, to, len;
};

static void part_begin(struct part_cursor *p)
{
	if (!ckt_runs_next(&p->runs, &p->off, &p->to, &p->len))
		p->len = 0;
}

/* Take what bytes [@off, @end) have of the tile. */
static void part_take(struct part_cursor *p, uint8_t *dst, uint64_t off,
		      uint64_t end, const uint8_t *bytes)
{
	while (p->len > 0 && p->off < end) {
		uint64_t n = ckb_min_u64(p->len, end - p->off);

		memcpy(dst + p->to, bytes + (p->off - off), (size_t)n);
		p->off += n;
		p->to += n;
		p->len -= n;
		if (p->len == 0)
			part_begin(p);
	}
}

static int read_runs(const struct ckpt_provider *p, uint64_t base,
		     const struct ckpt_box *box, uint32_t item_bytes,
		     const struct ckpt_box *part, uint8_t *dst,
		     struct ckpt_err *err)
{
	uint64_t off, to, len;
	struct ckt_runs runs;
	int rc = 0;

	ckw_runs(&runs, box, part, item_bytes);
	while (rc == 0 && ckt_runs_next(&runs, &off, &to, &len))
		rc = read_bytes(p, base + off, dst + to, len, err);
	return rc;
}

int ckw_read_band(const struct ckpt_provider *p, uint64_t base,
		  const struct ckpt_box *box, uint32_t item_bytes,
		  const struct ckpt_box *parts, uint32_t count,
		  uint8_t *const *dst, uint8_t *window, struct ckpt_err *err)
{
	struct part_cursor at[CKW_BAND_CHUNKS];
	uint64_t first, end, bytes = 0;
	int rc = 0;

	CKB_REQUIRE(count > 0 && count <= CKW_BAND_CHUNKS);
	ckw_band(box, &parts[0], item_bytes, &first, &end);
	/* some of a composite's bands lie in one piece */
	const uint8_t *lent = p->ops->borrow
		? p->ops->borrow(p->ctx, base + first, (size_t)(end - first))
		: NULL;

	for (uint32_t i = 0; lent && i < count; i++)
		ckw_gather(lent, first, box, &parts[i], item_bytes, dst[i]);
	if (lent)
		return 0;
	for (uint32_t i = 0; i < count; i++)
		bytes += ckt_box_bytes(&parts[i], item_bytes);
	if (bytes != end - first || count == 1) {
		/* a part that is its own band is one run */
		for (uint32_t i = 0; rc == 0 && i < count; i++)
			rc = read_runs(p, base, box, item_bytes, &parts[i],
				       dst[i], err);
		return rc;
	}
	for (uint32_t i = 0; i < count; i++) {
		ckw_runs(&at[i].runs, box, &parts[i], item_bytes);
		part_begin(&at[i]);
	}
	for (uint64_t off = first; rc == 0 && off < end;) {
		uint64_t n = ckb_min_u64(CKW_WINDOW_BYTES, end - off);

		rc = read_bytes(p, base + off, window, n, err);
		for (uint32_t i = 0; rc == 0 && i < count; i++)
			part_take(&at[i], dst[i], off, off + n, window);
		off += n;
	}
	return rc;
}
