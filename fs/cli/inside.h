/* SPDX-License-Identifier: Apache-2.0 */
/* cli/inside.h - CKPT[/ITEM[/TENSOR]]: what a path means in a checkpoint. */
#ifndef CLI_INSIDE_H
#define CLI_INSIDE_H

#include "cli/cli.h"
#include "tree/tree.h"

/* The checkpoint that @path begins with, links followed, and what comes behind
 * it in @path. CKPT_EINVAL: it is a run. Not there: the message says what. */
CKB_MUST int cli_head(struct ckv_tree *tree, const char *path,
		      struct ckv_node **out, const char **out_rest,
		      struct ckpt_err *err);

/* The item called so. CKPT_ENOENT with the nearest there is. */
CKB_MUST int cli_item(struct ckpt_checkpoint *ckpt, const char *name,
		      size_t len, const struct ckpt_item_info **out,
		      struct ckpt_err *err);

/* CKPT_ENOENT for tensor @name of @item, or of any item of tensors (NULL),
 * with the nearest there is. */
int cli_no_tensor(struct ckpt_checkpoint *ckpt,
		  const struct ckpt_item_info *item, const char *name,
		  struct ckpt_err *err);

/* A *@path that ends in latest or newest becomes the name of the checkpoint
 * that is meant; others stay. malloc'ed. */
CKB_MUST int cli_follow(struct ckpt_store *store, char **path,
			struct ckpt_err *err);

#endif
