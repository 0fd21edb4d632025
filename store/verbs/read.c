/* SPDX-License-Identifier: Apache-2.0 */
/*
 * read.c - boxes and byte ranges of tensors into memory.
 *
 * A box meets tiles, tiles have chunks, a chunk's part of the box is a list of
 * runs in ascending order, and runs lie in cells: each cell is pinned once per
 * chunk while its runs are copied. Only cells that meet the box are read and
 * decoded. A byte range is read as boxes over bytes: the tensor's storage shape
 * with the element's bytes folded into its last dimension, so a range may cut
 * elements.
 *
 * A bad chunk is CKPT_ECORRUPT naming checkpoint, tensor, box, pack and offset,
 * and is noted in bad/ (S6). No state; any thread.
 */
#include <ckpt/read.h>

#include <stdio.h>
#include <string.h>

#include "tensor/box.h"
#include "verbs/checkpoint.h"

/* One read under way. */
struct job {
	struct ckpt_checkpoint *ckpt;
	const struct ckpt_tensor_info *tensor;
	const struct cks_chunks *chunks;
	bool bytes;               /* boxes count bytes, not elements */
	const struct ckpt_box *box;
	uint8_t *dst;
	const uint64_t *strides;  /* of dst, bytes */
};

/* Boxes over bytes: the last dimension times the element's bytes; a scalar
 * becomes one dimension. */
static void to_bytes(struct ckpt_box *b, uint32_t item_bytes)
{
	if (b->ndim == 0) {
		b->ndim = 1;
		b->origin[0] = 0;
		b->extent[0] = item_bytes;
		return;
	}
	b->origin[b->ndim - 1] *= item_bytes;
	b->extent[b->ndim - 1] *= item_bytes;
}

static int bad_chunk(struct job *j, const struct ckf_chunk_entry *e,
		     const struct ckpt_box *box, struct ckpt_err *err,
		     const struct ckpt_err *why)
{
	char where[CKS_WHERE_BYTES], text[CKT_TEXT_BYTES];
	char path[CKS_PACK_PATH_BYTES];
	const uint8_t *pack = cks_checkpoint_pack(j->ckpt, e->pack);

	cks_pack_path(path, pack);
	if (why->code == CKPT_ECORRUPT)
		cks_bad_note(cks_checkpoint_store(j->ckpt), pack, e->off,
			     e->digest, why->message);
	return ckb_err(err, why->code, "%s, box %s, pack %s, offset %ju: %s",
		       cks_where(where, j->ckpt, j->tensor),
		       ckt_box_text(text, sizeof(text), box), path,
		       (uintmax_t)e->off, why->message);
}

/* Copy the runs of @part, which lies in @whole, the chunk's box. */
static int copy_chunk(struct job *j, const struct ckf_chunk_entry *e,
		      const struct ckpt_box *whole,
		      const struct ckpt_box *part, struct ckpt_err *err)
{
	struct ckpt_store *store = cks_checkpoint_store(j->ckpt);
	struct cks_chunk chunk = {
		.off = e->off, .stored_len = e->stored_len,
		.head_len = e->head_len, .raw_len = e->raw_len,
		.codec = e->codec, .digest = e->digest,
	};
	uint32_t item = j->bytes ? 1 : j->chunks->grid.item_bytes;
	uint32_t have = UINT32_MAX, cell_len = 0;
	uint64_t src, dst, len;
	struct cks_cell *cell = NULL;
	const uint8_t *data = NULL;
	struct ckt_runs runs;

	memcpy(chunk.pack, cks_checkpoint_pack(j->ckpt, e->pack),
	       sizeof(chunk.pack));
	ckt_runs_init(&runs, whole, part, item, j->strides, j->box->origin);
	while (ckt_runs_next(&runs, &src, &dst, &len)) {
		while (len > 0) {
			uint32_t index = (uint32_t)(src / CKB_CELL_BYTES);
			uint32_t at = (uint32_t)(src % CKB_CELL_BYTES);

			if (index != have) {
				struct ckpt_err why = { 0 };

				cks_cell_put(store, cell);
				int rc = cks_cell_get(store, &chunk, index,
						      &cell, &why);

				if (rc < 0)
					return bad_chunk(j, e, whole, err,
							 &why);
				data = cks_cell_data(cell, &cell_len);
				have = index;
			}
			uint64_t n = ckb_min_u64(len, cell_len - at);

			memcpy(j->dst + dst, data + at, n);
			src += n;
			dst += n;
			len -= n;
		}
	}
	cks_cell_put(store, cell);
	return 0;
}

/* j->box into j->dst; the grid's tiles are walked in elements. */
static int read_storage(struct job *j, const struct ckpt_box *elements,
			struct ckpt_err *err)
{
	struct ckt_tiles walk;
	uint64_t tile, i;
	int rc = 0;

	ckt_tiles_init(&walk, &j->chunks->grid, elements);
	while (rc == 0 && ckt_tiles_next(&walk, &tile)) {
		uint64_t end = cks_chunks_of_tile(j->chunks, tile, &i);

		for (; rc == 0 && i < end; i++) {
			const struct ckf_chunk_entry *e =
				&j->chunks->entries[i];
			struct ckpt_box whole, part;

			cks_chunk_box(j->chunks, e, &whole);
			if (j->bytes)
				to_bytes(&whole, j->chunks->grid.item_bytes);
			if (ckt_box_meet(&whole, j->box, &part))
				rc = copy_chunk(j, e, &whole, &part, err);
		}
	}
	return rc;
}

int ckpt_read_box(struct ckpt_checkpoint *ckpt,
		  const struct ckpt_tensor_info *tensor,
		  const struct ckpt_box *box, void *dst,
		  const uint64_t *strides, struct ckpt_err *err)
{
	struct job j = { .ckpt = ckpt, .tensor = tensor, .dst = dst };
	char where[CKS_WHERE_BYTES];
	uint64_t own[CKPT_NDIM_MAX];
	struct ckpt_box storage;
	int rc = cks_checkpoint_chunks(ckpt, tensor, &j.chunks, err);

	if (rc < 0)
		return rc;
	rc = ckt_grid_box(&j.chunks->grid, tensor->dtype, tensor->shape, box,
			  &storage, err);
	if (rc == 0 && strides && ckpt_dtype_bits(tensor->dtype) % 8 != 0)
		rc = ckb_err(err, CKPT_EINVAL, "%s cannot be read with "
			     "strides: its elements are no whole bytes",
			     ckpt_dtype_name(tensor->dtype));
	if (rc < 0)
		return ckb_err_prefix(err, rc, "%s",
				      cks_where(where, ckpt, tensor));
	ckt_strides(own, storage.ndim, storage.extent,
		    j.chunks->grid.item_bytes);
	j.box = &storage;
	j.strides = strides ? strides : own;
	return read_storage(&j, &storage, err);
}

/* A box over bytes -> the elements it touches. */
static void to_elements(const struct ckpt_box *bytes, uint32_t ndim,
			uint32_t item_bytes, struct ckpt_box *out)
{
	*out = *bytes;
	out->ndim = ndim;
	if (ndim == 0)
		return;
	uint32_t d = ndim - 1;
	uint64_t end = bytes->origin[d] + bytes->extent[d];

	out->origin[d] = bytes->origin[d] / item_bytes;
	out->extent[d] = ckb_div_up(end, item_bytes) - out->origin[d];
}

int ckpt_read_bytes(struct ckpt_checkpoint *ckpt,
		    const struct ckpt_tensor_info *tensor, uint64_t off,
		    size_t len, void *dst, struct ckpt_err *err)
{
	struct job j = { .ckpt = ckpt, .tensor = tensor, .bytes = true };
	struct ckpt_box parts[CKT_RANGE_BOXES_MAX], whole, elements;
	char where[CKS_WHERE_BYTES];
	uint64_t strides[CKPT_NDIM_MAX];
	uint8_t *to = dst;
	uint32_t n;
	int rc;

	if (off > tensor->bytes || len > tensor->bytes - off)
		return ckb_err(err, CKPT_EINVAL, "%s: bytes %ju to %ju leave "
			       "its %ju bytes",
			       cks_where(where, ckpt, tensor), (uintmax_t)off,
			       (uintmax_t)off + len, (uintmax_t)tensor->bytes);
	if (len == 0)
		return 0;
	rc = cks_checkpoint_chunks(ckpt, tensor, &j.chunks, err);
	if (rc < 0)
		return rc;
	const struct ckt_grid *g = &j.chunks->grid;

	ckt_box_whole(&whole, g->ndim, g->shape);
	to_bytes(&whole, g->item_bytes);
	n = ckt_range_boxes(whole.ndim, whole.extent, off, len, parts);
	for (uint32_t i = 0; rc == 0 && i < n; i++) {
		to_elements(&parts[i], g->ndim, g->item_bytes, &elements);
		ckt_strides(strides, parts[i].ndim, parts[i].extent, 1);
		j.box = &parts[i];
		j.strides = strides;
		j.dst = to;
		rc = read_storage(&j, &elements, err);
		to += ckt_box_bytes(&parts[i], 1);
	}
	return rc;
}
