/* SPDX-License-Identifier: Apache-2.0 */
/*
 * inside.c - CKPT[/ITEM[/TENSOR]]: where a checkpoint's name ends in a path.
 *
 * The longest head of the path that is a checkpoint counts; latest and newest
 * are followed. An item is meant by its own name or by that of its folder.
 */
#include <stdlib.h>
#include <string.h>

#include "base/near.h"
#include "cli/inside.h"

int cli_head(struct ckv_tree *tree, const char *path, struct ckv_node **out,
	     const char **out_rest, struct ckpt_err *err)
{
	CKB_FREE char *head = strdup(path);
	size_t len = strlen(path);
	struct ckpt_err first = { 0 };

	*out = NULL;
	if (!head)
		return ckb_err_nomem(err);
	while (len > 0) {
		struct ckpt_err mine = { 0 };
		struct ckv_node *node = NULL;

		head[len] = '\0';
		int rc = ckv_resolve(tree, head, &node, &mine);

		if (rc == 0 && ckv_node_kind(node) == CKV_CHECKPOINT) {
			*out = node;
			*out_rest = path + len + strspn(path + len, "/");
			return 0;
		}
		ckv_put(node);
		if (rc < 0 && rc != CKPT_ENOENT) {
			if (err)
				*err = mine;
			return rc;
		}
		if (rc < 0 && !first.code)
			first = mine;
		while (len > 0 && head[len] != '/')
			len--;
		while (len > 0 && head[len - 1] == '/')
			len--;
	}
	if (!first.code)
		return ckb_err(err, CKPT_EINVAL, "'%s' is a run, and a "
			       "checkpoint is wanted; ckptfs log lists those "
			       "of a run, and '%s/latest' is one", path, path);
	if (err)
		*err = first;
	return first.code;
}

int cli_item(struct ckpt_checkpoint *ckpt, const char *name, size_t len,
	     const struct ckpt_item_info **out, struct ckpt_err *err)
{
	struct ckb_near near;

	ckb_near_init(&near, name, len);
	for (size_t i = 0; i < ckpt_item_count(ckpt); i++) {
		const struct ckpt_item_info *it = ckpt_item_at(ckpt, i);
		CKB_BUF struct ckb_buf folder = { 0 };
		size_t own = strlen(it->name);
		bool cut;

		ckv_escape(&folder, it->name, own, true, 0, &cut);
		if (folder.failed)
			return ckb_err_nomem(err);
		if ((folder.len == len &&
		     memcmp(folder.data, name, len) == 0) ||
		    (own == len && memcmp(it->name, name, len) == 0)) {
			*out = it;
			return 0;
		}
		ckb_near_try(&near, it->name, own);
	}
	return ckb_err(err, CKPT_ENOENT, "checkpoint '%s' has no item "
		       "'%.*s'%s%s%s", ckpt_checkpoint_info(ckpt)->name,
		       (int)len, name, *near.best ? "; did you mean '" : "",
		       near.best, *near.best ? "'?" : "");
}

int cli_no_tensor(struct ckpt_checkpoint *ckpt,
		  const struct ckpt_item_info *item, const char *name,
		  struct ckpt_err *err)
{
	const struct ckpt_tensor_info *best = NULL;
	char quoted[CKB_QUOTE_BYTES], like[CKB_QUOTE_BYTES] = "";
	size_t len = strlen(name);
	struct ckb_near near;

	ckb_quote(quoted, sizeof(quoted), name, len);
	if (len > 4 && (strcmp(name + len - 4, ".npy") == 0 ||
			strcmp(name + len - 4, ".txt") == 0))
		len -= 4;
	ckb_near_init(&near, name, len);
	for (size_t i = 0; i < ckpt_tensor_count(ckpt); i++) {
		const struct ckpt_tensor_info *t = ckpt_tensor_at(ckpt, i);
		const struct ckpt_item_info *it = ckpt_item_at(ckpt, t->item);

		CKB_BUF struct ckb_buf path = { 0 };
		bool cut;

		if (item ? it != item : it->kind != CKPT_ITEM_TENSORS)
			continue;
		/* its path in the tree is meant as often */
		ckv_tensor_path(&path, t->name, t->name_len,
				t->media_type ? "/" : it->separator, 0, &cut);
		if (ckb_near_try(&near, t->name, t->name_len) ||
		    (!path.failed && ckb_near_try(&near, (char *)path.data,
						  path.len)))
			best = t;
	}
	if (best)
		ckb_quote(like, sizeof(like), best->name, best->name_len);
	return ckb_err(err, CKPT_ENOENT, "%s%s%scheckpoint '%s' has no tensor "
		       "'%s'%s%s%s", item ? "item '" : "",
		       item ? item->name : "", item ? "' of " : "",
		       ckpt_checkpoint_info(ckpt)->name, quoted,
		       *like ? "; did you mean '" : "", like,
		       *like ? "'?" : "");
}

int cli_follow(struct ckpt_store *store, char **path, struct ckpt_err *err)
{
	const char *base = strrchr(*path, '/');
	struct ckv_tree *tree = NULL;
	struct ckv_node *node = NULL;
	char *name = NULL;

	base = base ? base + 1 : *path;
	if (strcmp(base, "latest") != 0 && strcmp(base, "newest") != 0)
		return 0;
	int rc = ckv_tree_new(store, &tree, err);

	if (rc == 0)
		rc = ckv_resolve(tree, *path, &node, err);
	if (rc == 0) {
		name = strdup(ckv_node_name(node));
		rc = name ? 0 : ckb_err_nomem(err);
	}
	ckv_put(node);
	ckv_tree_free(tree);
	if (rc < 0)
		return rc;
	free(*path);
	*path = name;
	return 0;
}
