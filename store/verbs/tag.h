/* SPDX-License-Identifier: Apache-2.0 */
/* verbs/tag.h - tags on a checkpoint, for who removes or replaces it. */
#ifndef CKS_TAG_H
#define CKS_TAG_H

#include "base/buf.h"
#include "verbs/store.h"

/* Names of the tags on checkpoint @name, each with its NUL, appended to @out.
 * @uuid: its uuid; NULL: it cannot be read, and names must do. */
CKB_MUST int cks_tags_on(struct ckpt_store *s, const char *name,
			 const uint8_t *uuid, struct ckb_buf *out,
			 struct ckpt_err *err);

/* 0, or CKPT_EBUSY: a tag protects it, or, as it cannot be read, may do so:
 * that tag's checkpoint is not found. */
CKB_MUST int cks_tags_none(struct ckpt_store *s, const char *name,
			   const uint8_t *uuid, struct ckpt_err *err);

/* The same of whatever checkpoint lies at @name, if one does. */
CKB_MUST int cks_name_untagged(struct ckpt_store *s, const char *name,
			       struct ckpt_err *err);

#endif
