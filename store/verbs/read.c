/* SPDX-License-Identifier: Apache-2.0 */
/*
 * read.c - boxes and byte ranges of tensors into memory.
 *
 * A box meets tiles, tiles have chunks, a chunk's part of the box is a list of
 * runs in ascending order, and runs lie in cells: each cell is pinned once per
 * chunk while its runs are copied. Only cells that meet the box are read and
 * decoded; those of a long read that land whole in one piece of the destination
 * are decoded there and do not sweep the cache. A byte range is read as boxes
 * over bytes: the tensor's storage shape with the element's bytes folded into
 * its last dimension, so a range may cut elements.
 *
 * A bad chunk is CKPT_ECORRUPT naming checkpoint, tensor, box, pack and offset,
 * and is noted in bad/ (S6). No state; any thread.
 */
#include <ckpt/read.h>

#include <stdio.h>
#include <string.h>

#include "tensor/box.h"
#include "verbs/checkpoint.h"

/* From so many bytes on a read passes the cache by where it can. */
#define LONG_BYTES (16 * (uint64_t)CKB_CELL_BYTES)

/* One read under way. */
struct job {
	struct ckpt_checkpoint *ckpt;
	const struct ckpt_tensor_info *tensor;
	const struct cks_chunks *chunks;
	bool bytes;               /* boxes count bytes, not elements */
	bool is_long;
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

static int bad_chunk(const struct job *j, const struct ckf_chunk_entry *e,
		     struct ckpt_err *err, const struct ckpt_err *why)
{
	char where[CKS_WHERE_BYTES], text[CKT_TEXT_BYTES];
	char path[CKS_PACK_PATH_BYTES];
	const uint8_t *pack = cks_checkpoint_pack(j->ckpt, e->pack);
	struct ckpt_box box;

	cks_chunk_box(j->chunks, e, &box);
	cks_box_logical(j->chunks, j->tensor, &box);
	cks_pack_path(path, pack);
	/* bytes that are wrong, not a pack that is not there just now */
	if (why->code == CKPT_ECORRUPT && why->sys_errno == 0)
		cks_bad_note(cks_checkpoint_store(j->ckpt), pack, e->off,
			     e->digest, why->message);
	ckb_err(err, why->code, "%s, box %s, pack %s, offset %ju: %s",
		cks_where(where, j->ckpt, j->tensor),
		ckt_box_text(text, sizeof(text), &box), path,
		(uintmax_t)e->off, why->message);
	if (err)
		err->sys_errno = why->sys_errno;
	return why->code;
}

/* A chunk being read: the cell pinned last, while runs stay in it. */
struct source {
	struct ckpt_store *store;
	struct cks_chunk chunk;
	struct cks_cell *cell;
	uint32_t index;
};

/* Copy bytes [@src, @src + @len) of the chunk to @dst. */
static int copy_run(struct source *s, bool is_long, uint64_t src, uint8_t *dst,
		    uint64_t len, struct ckpt_err *err)
{
	while (len > 0) {
		uint32_t index = (uint32_t)(src / CKB_CELL_BYTES);
		uint32_t at = (uint32_t)(src % CKB_CELL_BYTES);
		uint32_t cell_len = ckf_cell_raw_len(s->chunk.raw_len, index);
		uint64_t n = ckb_min_u64(len, cell_len - at);
		int rc = 0;

		if (is_long && n == cell_len) {
			rc = cks_cell_read(s->store, &s->chunk, index, dst,
					   err);
		} else if (!s->cell || index != s->index) {
			cks_cell_put(s->store, CKB_TAKE(s->cell));
			rc = cks_cell_get(s->store, &s->chunk, index, &s->cell,
					  err);
			s->index = index;
		}
		if (rc < 0)
			return rc;
		if (!is_long || n < cell_len)
			memcpy(dst, cks_cell_data(s->cell, &cell_len) + at, n);
		src += n;
		dst += n;
		len -= n;
	}
	return 0;
}

/* Copy the runs of @part, which lies in @whole, the chunk's box. */
static int copy_chunk(struct job *j, const struct ckf_chunk_entry *e,
		      const struct ckpt_box *whole,
		      const struct ckpt_box *part, struct ckpt_err *err)
{
	struct source s = {
		.store = cks_checkpoint_store(j->ckpt),
		.chunk = {
			.off = e->off, .stored_len = e->stored_len,
			.head_len = e->head_len, .raw_len = e->raw_len,
			.codec = e->codec, .digest = e->digest,
		},
	};
	uint32_t item = j->bytes ? 1 : j->chunks->grid.item_bytes;
	uint64_t src, dst, len;
	struct ckpt_err why = { 0 };
	struct ckt_runs runs;
	int rc = 0;

	memcpy(s.chunk.pack, cks_checkpoint_pack(j->ckpt, e->pack),
	       sizeof(s.chunk.pack));
	ckt_runs_init(&runs, whole, part, item, j->strides, j->box->origin);
	while (rc == 0 && ckt_runs_next(&runs, &src, &dst, &len))
		rc = copy_run(&s, j->is_long, src, j->dst + dst, len, &why);
	cks_cell_put(s.store, s.cell);
	return rc < 0 ? bad_chunk(j, e, err, &why) : 0;
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
	j.is_long = ckt_box_bytes(&storage, j.chunks->grid.item_bytes) >=
		    LONG_BYTES;
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
	struct job j = { .ckpt = ckpt, .tensor = tensor, .bytes = true,
			 .is_long = len >= LONG_BYTES };
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
