/* SPDX-License-Identifier: Apache-2.0 */
/* verbs/stage_impl.h - one save's staging; for stage.c and commit.c only. */
#ifndef CKS_STAGE_IMPL_H
#define CKS_STAGE_IMPL_H

#include "verbs/stage.h"
#include "verbs/store_impl.h"

/* "staging/" + 16 + "-" + 32 hex digits */
#define CKS_STAGE_DIR_BYTES (8 + 16 + 1 + 32 + 1)
#define CKS_STAGE_PATH_BYTES (CKS_STAGE_DIR_BYTES + 64)

/* A place that must not be reused; a condemned pack has no offset. */
struct cks_barred {
	uint8_t pack[CKPT_UUID_BYTES];
	uint64_t off;
};

struct cks_barred_set {
	struct cks_barred *list; /* sorted by pack, then offset */
	size_t count, cap;
};

struct cks_stage {
	struct ckpt_store *s;
	const struct ckb_sys *packs;   /* writes them; NULL: the store's */
	char *name;
	char dir[CKS_STAGE_DIR_BYTES]; /* under the store, by path always */
	int lock_fd;                   /* held with flock; -1: none */
	bool made;                     /* the folder is ours */
	bool keep;                     /* close removes nothing */
	struct cks_barred_set condemned, bad;
};

/* "staging/DIR/@file" */
void cks_stage_path(char dst[CKS_STAGE_PATH_BYTES], const struct cks_stage *st,
		    const char *file);

#endif
