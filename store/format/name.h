/* SPDX-License-Identifier: Apache-2.0 */
/* format/name.h - names of checkpoints and items (DESIGN 4). */
#ifndef CKF_NAME_H
#define CKF_NAME_H

#include "base/err.h"

/* Is @name a legal checkpoint name? CKPT_EINVAL says which rule it breaks. */
CKB_MUST int ckf_checkpoint_name(const char *name, struct ckpt_err *err);

/* A legal item name: one component under the same rules, and neither
 * "checkpoint.json" nor over CKB_ITEM_NAME_MAX bytes. A leading '@' is legal
 * only when @origin. */
CKB_MUST int ckf_item_name(const char *name, bool origin,
			   struct ckpt_err *err);

/* A file's path inside its item: such a name without NUL, no part of which is
 * empty, "." or "..". */
CKB_MUST int ckf_file_name(const char *name, size_t len, struct ckpt_err *err);

/* A tensor's name: UTF-8 (NUL allowed), at most CKB_TENSOR_NAME_MAX bytes. */
CKB_MUST int ckf_tensor_name(const char *name, size_t len,
			     struct ckpt_err *err);

#endif
