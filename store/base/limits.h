/* SPDX-License-Identifier: Apache-2.0 */
/* base/limits.h - every bound, in one place (S9, S10). */
#ifndef CKB_LIMITS_H
#define CKB_LIMITS_H

#define CKB_NAME_COMPONENT_MAX 255
#define CKB_NAME_MAX 1024              /* a checkpoint's name */
#define CKB_ITEM_NAME_MAX 200
#define CKB_TENSOR_NAME_MAX (64u << 10)
#define CKB_MEDIA_TYPE_MAX 255
#define CKB_JSON_MAX (16u << 20)       /* user metadata, metrics */
#define CKB_CONFIG_MAX (1u << 20)      /* ckptfs.json */
#define CKB_SHARD_MAX (1u << 20)       /* shards in one layout */
#define CKB_TILE_CHUNK_MAX (1u << 16)  /* chunks of one tile */
#define CKB_COVER_BYTES (512ull << 20) /* memory to prove coverage with */

#define CKB_CELL_BYTES (256u << 10)
#define CKB_TILE_MIN_BYTES (256u << 10)
#define CKB_TILE_MAX_BYTES (8u << 20)
#define CKB_FILE_TILE_BYTES (1u << 20) /* tile of an opaque file */
#define CKB_CHUNK_CELL_MAX 32          /* 8 MiB / 256 KiB */

#define CKB_PACK_BYTES (2ull << 30)    /* a pack is sealed past this */
#define CKB_PACK_MAX_BYTES (1ull << 40)
#define CKB_PACK_ENTRY_MAX (1u << 24)  /* records in one pack */
#define CKB_PAYLOAD_ALIGN 4096u
#define CKB_PAYLOAD_ALIGN_FROM (64u << 10) /* payloads this big are aligned */
#define CKB_RECORD_HEAD_MAX (1u << 20)
#define CKB_RECORD_RAW_MAX (1ull << 40) /* a manifest copy may be large */

#define CKB_MANIFEST_PAGE 4096u
#define CKB_MANIFEST_MAX_BYTES (64ull << 30)

#define CKB_ST_HEADER_MAX 100000000u   /* safetensors' own bound */
#define CKB_JSON_DEPTH_MAX 127         /* serde_json's bound */

#define CKB_STAGING_THREAD_BYTES (64ull << 20) /* of each, by default, but */
#define CKB_STAGING_LEAST_BYTES (256ull << 20) /* this at least */
#define CKB_STAGING_MOST_BYTES (1ull << 30)    /* and this at most */
#define CKB_STAGING_MIN_BYTES (32ull << 20)
#define CKB_SERIALISED_MAX (64ull << 30) /* of a save, of unknown size */
#define CKB_DIRECT_FROM_BYTES (256ull << 20) /* smaller saves: buffered */
#define CKB_WRITER_THREADS_AUTO 16u
#define CKB_WRITER_THREADS_MAX 256u
#define CKB_CACHE_BYTES (64ull << 20)
#define CKB_LANE_MAX 16                /* copies at once from one device */
#define CKB_SLAB_MAX 256               /* pieces of its staging memory */
#define CKB_BOUNCE_BYTES (4u << 20)    /* of a lane, in two halves */
#define CKB_OPEN_PACKS 32              /* descriptors a store keeps */
#define CKB_OPEN_MANIFESTS 128u        /* descriptors a process keeps */

#endif
