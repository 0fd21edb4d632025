/* SPDX-License-Identifier: Apache-2.0 */
/*
 * format/entry.h - the BLOBs inside a manifest: chunk entries, shapes,
 * layouts, statistics; and the root digest's input.
 */
#ifndef CKF_ENTRY_H
#define CKF_ENTRY_H

#include "base/buf.h"
#include "base/err.h"

#include <ckpt/store.h>

#define CKF_WHOLE_TILE UINT32_MAX
#define CKF_CHUNK_ENTRY_BYTES 80u

/* One chunk of a tensor. Entries are sorted by (tile, shard). */
struct ckf_chunk_entry {
	uint64_t tile;       /* number in the grid */
	uint32_t shard;      /* CKF_WHOLE_TILE, or shard number of the layout:
				the chunk is then shard box ∩ tile */
	uint32_t pack;       /* number in the manifest's packs table */
	uint64_t off;        /* of the record header in the pack */
	uint64_t stored_len;
	uint32_t raw_len;
	uint32_t head_len;   /* payload begins at off + head_len */
	uint16_t codec;
	uint8_t digest[CKPT_DIGEST_BYTES];
};
void ckf_chunk_entry_encode(const struct ckf_chunk_entry *e, uint8_t *out);
/* CKPT_ECORRUPT when reserved bytes are not zero or lengths cannot be. */
CKB_MUST int ckf_chunk_entry_decode(const uint8_t *in,
				    struct ckf_chunk_entry *out,
				    struct ckpt_err *err);

/* ndim u64s. */
void ckf_shape_encode(const struct ckpt_shape *shape, struct ckb_buf *out);
CKB_MUST int ckf_shape_decode(const uint8_t *bytes, size_t len,
			      struct ckpt_shape *out, struct ckpt_err *err);

/* A layout: the boxes each rank held, in storage space. */
struct ckf_shard {
	uint32_t rank, replica, replica_count;
	const uint64_t *origin, *extent; /* ndim each */
};
struct ckf_layout {
	uint32_t ndim, world, shard_count;
	struct ckf_shard *shards;
	uint64_t *dims;      /* storage behind origin and extent */
};
void ckf_layout_encode(const struct ckf_layout *layout, struct ckb_buf *out);
CKB_MUST int ckf_layout_decode(const uint8_t *bytes, size_t len,
			       struct ckf_layout *out, struct ckpt_err *err);
void ckf_layout_fini(struct ckf_layout *layout);

#define CKF_STATS_BYTES 72u
void ckf_stats_encode(const struct ckpt_stats *stats,
		      uint8_t out[CKF_STATS_BYTES]);
CKB_MUST int ckf_stats_decode(const uint8_t *bytes, size_t len,
			      struct ckpt_stats *out, struct ckpt_err *err);

/* The bytes before the tile digests in a root's SHA-256 input (DESIGN 6):
 * "ckptfs-root-1" (13 bytes, no NUL), tile rule u32, bits per element u32,
 * ndim u32, dims u64. @shape is the logical shape. */
void ckf_root_preamble(enum ckpt_dtype dtype, const struct ckpt_shape *shape,
		       struct ckb_buf *out);

#endif
