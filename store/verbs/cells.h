/* SPDX-License-Identifier: Apache-2.0 */
/*
 * verbs/cells.h - verified, decoded cells, shared by all readers of a store.
 *
 * Bounded (S9): the budget, at least a few cells, plus what is pinned. A cell
 * asked for by many threads at once is decoded once. Record headers are kept
 * in it too. Any thread.
 */
#ifndef CKS_CELLS_H
#define CKS_CELLS_H

#include "verbs/store.h"

struct cks_cells;
struct cks_cell; /* a pinned cell */

CKB_MUST int cks_cells_new(size_t budget_bytes, struct cks_cells **out,
			   struct ckpt_err *err);
void cks_cells_free(struct cks_cells *c);

/* What a chunk must be: as the manifest says it. */
struct cks_chunk {
	uint8_t pack[16];
	uint64_t off, stored_len;
	uint32_t head_len, raw_len;
	uint16_t codec;
	const uint8_t *digest;
};

/* Pin cell @index of @chunk. The record header must agree with @chunk (S6). */
CKB_MUST int cks_cell_get(struct ckpt_store *s, const struct cks_chunk *chunk,
			  uint32_t index, struct cks_cell **out,
			  struct ckpt_err *err);
const uint8_t *cks_cell_data(const struct cks_cell *cell, uint32_t *out_len);
void cks_cell_put(struct ckpt_store *s, struct cks_cell *cell);

/* Cell @index of @chunk into @dst (its raw length): from the cache when it is
 * there, else decoded in place and not kept. For long reads, which would only
 * sweep the cache. */
CKB_MUST int cks_cell_read(struct ckpt_store *s, const struct cks_chunk *chunk,
			   uint32_t index, void *dst, struct ckpt_err *err);

/* Of cells; held_bytes counts headers and bookkeeping as well. */
struct cks_cells_counters {
	uint64_t hits, misses, decoded_bytes, held_bytes;
};
void cks_cells_counters(const struct ckpt_store *s,
			struct cks_cells_counters *out);

#endif
