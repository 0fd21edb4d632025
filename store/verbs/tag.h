/* SPDX-License-Identifier: Apache-2.0 */
/* verbs/tag.h - tags on a checkpoint, for who removes it. */
#ifndef CKS_TAG_H
#define CKS_TAG_H

#include "base/buf.h"
#include "verbs/store.h"

/* Names of the tags on checkpoint @name, each with its NUL, appended to @out.
 * @uuid: its uuid; NULL: it cannot be read, and names must do. */
CKB_MUST int cks_tags_on(struct ckpt_store *s, const char *name,
			 const uint8_t *uuid, struct ckb_buf *out,
			 struct ckpt_err *err);

/* The first tag, if any, whose checkpoint is not found now, appended with its
 * NUL: one that cannot be read may be it. */
CKB_MUST int cks_tags_lost(struct ckpt_store *s, struct ckb_buf *out,
			   struct ckpt_err *err);

#endif
