/* SPDX-License-Identifier: Apache-2.0 */
/*
 * verbs/uses.h - which places in packs a checkpoint uses, and telling the
 * index of checkpoints that come, go and move.
 */
#ifndef CKS_USES_H
#define CKS_USES_H

#include "catalog/index.h"
#include "verbs/store.h"

/* Places, sorted by pack and offset, each once. The caller frees *@out. */
CKB_MUST int cks_uses(struct ckpt_checkpoint *ckpt, struct ckq_use **out,
		      size_t *out_count, uint64_t *out_stored,
		      struct ckpt_err *err);

/* Of the manifest's file: what the index knows it by. */
void cks_row_identity(struct ckq_row *row, const struct stat *st);

/* Put checkpoint @name into the list, in a transaction of @ix. *@out_fatal:
 * the index failed, not the checkpoint. */
CKB_MUST int cks_index_put(struct ckpt_store *s, struct ckq_index *ix,
			   const char *name, bool *out_fatal,
			   struct ckpt_err *err);

/* The same in a transaction of its own; a failure is logged. */
void cks_index_note(struct ckpt_store *s, struct ckq_index *ix,
		    const char *name);

/* Best effort, logged: @name, which used @uses, is gone; or its file is called
 * @to now. Without an index there is nothing to do. */
void cks_index_forget(struct ckpt_store *s, const char *name,
		      const struct ckq_use *uses, size_t count);
void cks_index_moved(struct ckpt_store *s, const char *from, const char *to);
/* @name is new: opens the index and notes it. */
void cks_index_came(struct ckpt_store *s, const char *name);

#endif
