/* SPDX-License-Identifier: Apache-2.0 */
/* verbs/checkpoint.h - an open checkpoint, as read.c and check.c see it. */
#ifndef CKS_CHECKPOINT_H
#define CKS_CHECKPOINT_H

#include "catalog/manifest.h"
#include "tensor/grid.h"
#include "verbs/cells.h"

/* A tensor's chunks, loaded when first asked for. */
struct cks_chunks {
	struct ckt_grid grid;
	const struct ckf_layout *layout; /* the checkpoint's; NULL: one shard,
					    the whole */
	uint64_t count;
	struct ckf_chunk_entry entries[]; /* by (tile, shard) */
};

struct ckpt_store *cks_checkpoint_store(const struct ckpt_checkpoint *ckpt);
struct ckq_manifest *cks_checkpoint_manifest(struct ckpt_checkpoint *ckpt);

/* uuid of pack number @pack of the manifest; NULL: there is none. */
const uint8_t *cks_checkpoint_pack(const struct ckpt_checkpoint *ckpt,
				   uint32_t pack);

/* The layout of @tensor, decoded once for all that share it, borrowed until
 * close; NULL: it has none. *@out_id: its row in the manifest. Thread-safe. */
CKB_MUST int cks_checkpoint_layout(struct ckpt_checkpoint *ckpt, size_t tensor,
				   const struct ckf_layout **out,
				   uint64_t *out_id, struct ckpt_err *err);

/*
 * The chunks of @tensor (of what it is an alias of), borrowed until close,
 * proved: sorted, each box exact, every tile covered exactly once (S7).
 * Thread-safe.
 */
CKB_MUST int cks_checkpoint_chunks(struct ckpt_checkpoint *ckpt,
				   const struct ckpt_tensor_info *tensor,
				   const struct cks_chunks **out,
				   struct ckpt_err *err);

/* The same, the caller's own: for who walks all tensors and keeps none. */
CKB_MUST int cks_chunks_load(struct ckpt_checkpoint *ckpt,
			     const struct ckpt_tensor_info *tensor,
			     struct cks_chunks **out, struct ckpt_err *err);
void cks_chunks_free(struct cks_chunks *chunks);

/* Storage-space box of one entry: its tile, or shard ∩ tile. */
void cks_chunk_box(const struct cks_chunks *chunks,
		   const struct ckf_chunk_entry *entry, struct ckpt_box *out);

/* Storage box -> logical box, in place. false: it cuts an element (F4, F6), or
 * storage has other dimensions; then it is left as it is. */
bool cks_box_logical(const struct cks_chunks *chunks,
		     const struct ckpt_tensor_info *tensor,
		     struct ckpt_box *box);

/* The entries of tile @tile: [*first, returned end). */
uint64_t cks_chunks_of_tile(const struct cks_chunks *chunks, uint64_t tile,
			    uint64_t *first);

/* "checkpoint 'run/1', tensor 'model/w'" */
#define CKS_WHERE_BYTES 512
const char *cks_where(char dst[CKS_WHERE_BYTES],
		      const struct ckpt_checkpoint *ckpt,
		      const struct ckpt_tensor_info *tensor);

#endif
