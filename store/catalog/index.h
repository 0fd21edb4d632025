/* SPDX-License-Identifier: Apache-2.0 */
/*
 * catalog/index.h - index.db: digest -> pack and offset. A cache: wrong,
 * stale, foreign or missing, it may cost space, never bytes. A hit must be
 * proved by the record header before it is used.
 */
#ifndef CKQ_INDEX_H
#define CKQ_INDEX_H

#include "base/sys.h"

#include <ckpt/store.h>

struct ckq_index;

struct ckq_place {
	uint8_t pack[CKPT_UUID_BYTES];
	uint64_t off, stored_len;
	uint32_t head_len, raw_len;
	uint16_t codec;
};

/*
 * Open @path (absolute or relative to the working folder). An index that is
 * absent is made when @write; one of another store, another schema or damaged
 * counts as absent. On a network file system there is none.
 * Returns 0; CKPT_ENOENT: no index (normal; no message); else as said.
 */
CKB_MUST int ckq_index_open(const char *path, const uint8_t store_uuid[16],
			    bool write, struct ckq_index **out,
			    struct ckpt_err *err);
/* An index opened for writing that turned out damaged is removed: the next
 * open makes it anew. */
void ckq_index_close(struct ckq_index *ix);

/* Is this f_type of statfs(2) one whose hosts share no memory for a WAL? */
bool ckq_index_network(uint64_t fs_magic);

/* 0: *@out filled. CKPT_ENOENT: not known. Other: the index is no use.
 * Thread-safe. */
CKB_MUST int ckq_index_find(struct ckq_index *ix, const uint8_t digest[32],
			    struct ckq_place *out, struct ckpt_err *err);

/* One transaction: begin, put..., end(keep). Replaces older places. Sort by
 * digest for speed. */
CKB_MUST int ckq_index_begin(struct ckq_index *ix, bool wipe,
			     struct ckpt_err *err);
CKB_MUST int ckq_index_put(struct ckq_index *ix, const uint8_t digest[32],
			   const struct ckq_place *place, struct ckpt_err *err);
CKB_MUST int ckq_index_put_checkpoint(struct ckq_index *ix, const char *name,
				      const uint8_t uuid[16], uint64_t seq,
				      struct ckpt_err *err);
CKB_MUST int ckq_index_end(struct ckq_index *ix, bool keep,
			   struct ckpt_err *err);

/* Remove the file and its -wal, -shm (before a reindex of a damaged one). */
CKB_MUST int ckq_index_remove(const char *path, struct ckpt_err *err);

#endif
