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
 * Returns 0; CKPT_ENOENT: no index (normal; no message); else as said: with
 * @write, why none can be made or written to.
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
CKB_MUST int ckq_index_end(struct ckq_index *ix, bool keep,
			   struct ckpt_err *err);

/* ---- the list of checkpoints (index_list.c) ---- */

/* One checkpoint, as its manifest said when it was put in. It holds while the
 * manifest's file is that one: same inode number, size and time. */
struct ckq_row {
	const char *name;
	uint64_t ino, size;
	int64_t mtime_ns;
	uint8_t uuid[CKPT_UUID_BYTES];
	uint64_t generation, seq;
	bool has_step;
	uint64_t step;
	int64_t created_ns;
	bool has_parent;
	uint8_t parent[CKPT_UUID_BYTES];
	const char *metrics;    /* or NULL */
	uint64_t bytes, stored; /* raw; in packs */
	uint64_t own;           /* reading: see ckq_index_list() */
};

/* A place that a checkpoint uses: sorted by pack and offset, each once. */
struct ckq_use {
	uint8_t pack[CKPT_UUID_BYTES];
	uint64_t off, stored_len;
};

#define CKQ_USES_UNKNOWN SIZE_MAX

/*
 * In a transaction. Put @row in and count what it uses; one of the same name
 * and file is left as it is. Drop the one called @name, which used @uses.
 * Another file under @name, or a @count of CKQ_USES_UNKNOWN, makes the counts
 * inexact.
 */
CKB_MUST int ckq_index_list_put(struct ckq_index *ix,
				const struct ckq_row *row,
				const struct ckq_use *uses, size_t count,
				struct ckpt_err *err);
CKB_MUST int ckq_index_list_drop(struct ckq_index *ix, const char *name,
				 const struct ckq_use *uses, size_t count,
				 struct ckpt_err *err);
/* @row: as its manifest says, under its new name; it was called @from. */
CKB_MUST int ckq_index_list_move(struct ckq_index *ix, const char *from,
				 const struct ckq_row *row,
				 struct ckpt_err *err);

/*
 * Every row, sorted by name (bytes), borrowed for the call; one that fails
 * its checksum is left out. *@out_exact: row->own is what no other *row* of
 * the list uses, so it is right when the list is all the store holds.
 */
typedef int (*ckq_row_fn)(void *ctx, const struct ckq_row *row);
CKB_MUST int ckq_index_list(struct ckq_index *ix, ckq_row_fn fn, void *ctx,
			    bool *out_exact, struct ckpt_err *err);

/* Remove the file and its -wal, -shm (before a reindex of a damaged one). */
CKB_MUST int ckq_index_remove(const char *path, struct ckpt_err *err);

#endif
