/* SPDX-License-Identifier: Apache-2.0 */
/* writer/pipeline.h - the two sides of a running save, and what is between. */
#ifndef CKW_PIPELINE_H
#define CKW_PIPELINE_H

#include "save.h"

#define CKW_SLOTS 4u

/* The bytes of one chunk on their way: filled by the capture side, then
 * hashed, then stored. */
struct ckw_slot {
	uint8_t *data;           /* CKB_TILE_MAX_BYTES */
	size_t len;
	struct ckw_tensor *tensor;
	uint64_t tile;
	uint32_t shard;          /* or CKF_WHOLE_TILE */
	struct ckpt_stats stats; /* of these bytes */
	uint8_t digest[CKPT_DIGEST_BYTES]; /* once hashed */
};

/* A slot belongs to the capture side until filled, to the hash side until
 * hashed, then to the store side until taken. */
struct ckw_ring {
	struct ckpt_save *save;
	struct ckw_slot slots[CKW_SLOTS];
	pthread_mutex_t lock;
	pthread_cond_t moved;
	uint64_t filled, hashed, taken; /* counts; guard: lock */
	bool ended;              /* capture is through; guard: lock */
	struct ckpt_err err;     /* first failure; guard: lock */
};

/* ---- pipeline.c ---- */

/* The next free slot; NULL: the save has failed or was aborted. */
struct ckw_slot *ckw_ring_slot(struct ckw_ring *r);
/* Hand that slot to the store side. */
void ckw_ring_fill(struct ckw_ring *r);
/* Stop both sides; the first failure is kept. */
void ckw_ring_fail(struct ckw_ring *r, const struct ckpt_err *err);

/* ---- capture.c: every tensor's bytes into slots. false: r->err is set ---- */
bool ckw_capture(struct ckw_ring *r);

/* ---- put.c: chunks into packs ---- */

/* Store a slot's bytes unless they are there, and note the chunk. */
CKB_MUST int ckw_put_slot(struct ckpt_save *s, const struct ckw_slot *slot,
			  struct ckpt_err *err);
/* The copy of the manifest, then the last pack sealed and published. */
CKB_MUST int ckw_put_end(struct ckpt_save *s, const struct ckb_buf *manifest,
			 struct ckpt_err *err);

/* ---- tile.c: the bytes of tiles, from a provider ---- */

/* Reads tiles of one shard box of one tensor, in order. */
struct ckw_source {
	const struct ckpt_provider *provider;
	uint32_t item_bytes;
	struct ckpt_box box;             /* the shard's, storage space */
	uint64_t base;                   /* of the box in the provider */
	uint8_t *window;                 /* bytes of the band at hand */
	size_t window_size, window_max;  /* allocated; allowed */
	uint64_t window_off, window_len; /* of the box's own bytes */
};
void ckw_source_fini(struct ckw_source *src);
/* Bytes of @part (not empty, inside src->box) in C order to @dst. */
CKB_MUST int ckw_source_read(struct ckw_source *src,
			     const struct ckpt_box *part, uint8_t *dst,
			     struct ckpt_err *err);

#endif
