/* SPDX-License-Identifier: Apache-2.0 */
/* verbs/store.h - the open store, as the verbs, the writer and fs/ see it. */
#ifndef CKS_STORE_H
#define CKS_STORE_H

#include "base/sys.h"
#include "chunk/pack.h"

#include <ckpt/store.h>

/* As the public calls, over another operating system (tests). */
CKB_MUST int cks_store_init_sys(const struct ckb_sys *sys, const char *path,
				struct ckpt_err *err);
CKB_MUST int cks_store_open_sys(const struct ckb_sys *sys, const char *path,
				const struct ckpt_store_opts *opts,
				struct ckpt_store **out, struct ckpt_err *err);

const struct ckb_sys *cks_store_sys(const struct ckpt_store *s);
int cks_store_dirfd(const struct ckpt_store *s);      /* borrowed */
const char *cks_store_path(const struct ckpt_store *s); /* for messages */
bool cks_store_readonly(const struct ckpt_store *s);

/* "packs/ab/UUID.pack" */
#define CKS_PACK_PATH_BYTES 64
void cks_pack_path(char dst[CKS_PACK_PATH_BYTES], const uint8_t uuid[16]);

/* An open sealed pack from the bounded table; follows UUID.moved never (no
 * compaction yet). Put it back with cks_pack_put(). Thread-safe. */
CKB_MUST int cks_pack_get(struct ckpt_store *s, const uint8_t uuid[16],
			  struct ckc_pack **out, struct ckpt_err *err);
void cks_pack_put(struct ckpt_store *s, struct ckc_pack *p);

/* Note a bad chunk in bad/ ("PACKUUID-OFFSET"), best effort (S6). */
void cks_bad_note(struct ckpt_store *s, const uint8_t pack[16], uint64_t off,
		  const uint8_t digest[32], const char *why);

/* Log, once for each open store, that checkpoints/@name is passed over. */
void cks_name_skip(struct ckpt_store *s, const char *name, const char *why);

/* The highest seq among the checkpoints of the store; 0 when none. Opens only
 * the manifests that the index does not know. One that cannot be read is
 * skipped with a log line. */
CKB_MUST int cks_store_last_seq(struct ckpt_store *s, uint64_t *out,
				struct ckpt_err *err);

/* Every checkpoint, depth first, names sorted by bytes. Non-zero of @fn stops.
 * @unread is told of a run that may not be opened and the walk goes on; when it
 * is NULL, that ends it. */
typedef int (*cks_walk_fn)(void *ctx, const char *name);
typedef void (*cks_unread_fn)(void *ctx, const char *run,
			      const struct ckpt_err *why);
CKB_MUST int cks_store_walk(struct ckpt_store *s, cks_walk_fn fn,
			    cks_unread_fn unread, void *ctx,
			    struct ckpt_err *err);

/* Every file packs/ab/UUID.pack, in no order. @fn non-zero stops. @sync: what
 * is told of is there after a power loss too (S2). */
typedef int (*cks_packs_fn)(void *ctx, const uint8_t uuid[16]);
CKB_MUST int cks_packs_walk(struct ckpt_store *s, bool sync, cks_packs_fn fn,
			    void *ctx, struct ckpt_err *err);

/* What lies at checkpoints/@name ("": the top; @out_stat may be NULL).
 * CKPT_ENOENT without message: nothing. */
CKB_MUST int cks_name_stat(struct ckpt_store *s, const char *name,
			   bool *out_is_run, struct stat *out_stat,
			   struct ckpt_err *err);

#endif
