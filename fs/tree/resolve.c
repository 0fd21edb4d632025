/* SPDX-License-Identifier: Apache-2.0 */
/*
 * resolve.c - a path walked from the root, for commands.
 *
 * Links are followed; repeated '/' count once; a '/' at the end demands a
 * folder. Refuses '.' and '..': a place has one name. What is not there is
 * answered with what is there like it: the nearest names of the folder by
 * edit distance, or those that go on where the name ends. No state; any thread.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/near.h"
#include "tree/internal.h"

#define NEAR_MAX 3u       /* names a message offers */

/* Edits from @name to @there; SIZE_MAX: too many. */
static size_t distance(const char *name, const char *there)
{
	size_t len = strlen(name);

	/* the name without its suffix, or the start of a folder's name */
	if (len > 0 && strncmp(name, there, len) == 0 && there[len] != '\0')
		return 1;
	return ckb_edits(name, len, there, strlen(there), len / 3 + 1);
}

struct near {
	const char *name[NEAR_MAX];
	size_t edits[NEAR_MAX];
	size_t count;
};

static void near_add(struct near *n, const char *name, size_t edits)
{
	size_t at = n->count;

	while (at > 0 && n->edits[at - 1] > edits)
		at--;
	if (at == NEAR_MAX)
		return;
	if (n->count < NEAR_MAX)
		n->count++;
	for (size_t i = n->count - 1; i > at; i--) {
		n->name[i] = n->name[i - 1];
		n->edits[i] = n->edits[i - 1];
	}
	n->name[at] = name;
	n->edits[at] = edits;
}

static void near_try(struct near *n, const char *name, const char *there)
{
	size_t edits = distance(name, there);

	if (edits != SIZE_MAX)
		near_add(n, there, edits);
}

/* "; there is 'a', 'b'" of folder @dir appended, or "". Of a run the names
 * alone are asked for, so that no manifest is opened. */
static void hint(struct ckb_buf *out, struct ckv_node *dir, const char *name)
{
	struct near n = { .count = 0 };
	struct ckv_list *l = NULL;
	struct ckv_run *r = NULL;
	bool links = false;

	if (dir->kind == CKV_ROOT || dir->kind == CKV_RUN) {
		if (ckv_run_get(dir->tree, dir->path, &r, NULL) < 0)
			return;
		for (uint32_t i = 0; i < r->count; i++) {
			near_try(&n, name, r->entry[i].name);
			links = links || !r->entry[i].is_run;
		}
		if (links) {
			near_try(&n, name, "latest");
			near_try(&n, name, "newest");
		}
		if (dir->kind == CKV_ROOT)
			near_try(&n, name, "README.txt");
	} else if (ckv_list_new(dir, &l, NULL) == 0) {
		for (size_t i = 0; i < ckv_list_count(l); i++)
			near_try(&n, name, ckv_list_name(l, i));
	}
	for (size_t i = 0; i < n.count; i++)
		ckb_buf_printf(out, "%s'%s'", i ? ", " : "; there is ",
			       n.name[i]);
	ckv_list_free(l);
	ckv_run_put(dir->tree, r);
}

/* "a.b", with or without a suffix, for what lies at "a/b.npy": its path into
 * @out. @out stays empty: there is none. */
static void dotted(struct ckb_buf *out, struct ckv_node *dir, const char *name)
{
	const char *suffix = ".npy";
	size_t len = strlen(name);
	CKB_FREE char *copy = NULL;
	struct ckv_node *node = NULL;

	if (len > 4 && (strcmp(name + len - 4, ".npy") == 0 ||
			strcmp(name + len - 4, ".txt") == 0)) {
		len -= 4;
		suffix = name + len;
	}
	if ((dir->kind != CKV_CHECKPOINT && dir->kind != CKV_FOLDER) ||
	    !memchr(name, '.', len))
		return;
	if (asprintf(&copy, "%.*s%s", (int)len, name, suffix) < 0) {
		copy = NULL;
		return;
	}
	node = ckv_ref(dir);
	for (char *at = copy, *dot = copy; dot && node;) {
		struct ckv_node *child = NULL;

		dot = memchr(at, '.', len - (size_t)(at - copy));
		if (dot)
			*dot = '\0';
		if (ckv_lookup(node, at, &child, NULL) < 0)
			child = NULL;
		ckv_put(node);
		node = child;
		if (dot) {
			*dot = '/';
			at = dot + 1;
		}
	}
	if (node)
		ckb_buf_puts(out, copy);
	ckv_put(node);
}

static int not_there(struct ckv_node *dir, const char *name, const char *path,
		     size_t path_len, struct ckpt_err *err)
{
	char q[CKB_QUOTE_BYTES], p[CKB_QUOTE_BYTES];
	CKB_BUF struct ckb_buf like = { 0 };

	ckb_quote(q, sizeof(q), name, strlen(name));
	ckb_quote(p, sizeof(p), path, path_len);
	if (dir->kind > CKV_FOLDER)
		return ckb_err(err, CKPT_ENOENT, "no '%s' in '%s': that is a "
			       "file", q, p);
	CKB_BUF struct ckb_buf path_of = { 0 };

	dotted(&path_of, dir, name);
	if (path_of.len > 0)
		ckb_buf_printf(&like, "; there is '%s'", (char *)path_of.data);
	else
		hint(&like, dir, name);
	if (path_len == 0)
		return ckb_err(err, CKPT_ENOENT, "no '%s' in the store%s", q,
			       like.data ? (char *)like.data : "");
	return ckb_err(err, CKPT_ENOENT, "no '%s' in '%s'%s", q, p,
		       like.data ? (char *)like.data : "");
}

/* A link: the checkpoint it means, in its own folder @dir. */
static int follow(struct ckv_node *dir, struct ckv_node *link,
		  struct ckv_node **out, struct ckpt_err *err)
{
	CKB_BUF struct ckb_buf target = { 0 };
	int rc = ckv_readlink(link, &target, err);

	if (rc == 0)
		rc = ckv_lookup(dir, (char *)target.data, out, err);
	if (rc == CKPT_ENOENT && target.len > 0)
		return ckb_err(err, rc, "'%s' was removed meanwhile",
			       (char *)target.data);
	return rc;
}

/* One component, which ends @path[0, len): @node becomes its child. */
static int step(struct ckv_node **node, const char *name, const char *path,
		size_t parent_len, struct ckpt_err *err)
{
	struct ckv_node *child = NULL, *link;
	int rc;

	if (strcmp(name, "..") == 0 || strcmp(name, ".") == 0)
		return ckb_err(err, CKPT_EINVAL, "'%s': '.' and '..' are not "
			       "followed; name the place itself", path);
	rc = ckv_lookup(*node, name, &child, err);
	if (rc == CKPT_ENOENT)
		return not_there(*node, name, path, parent_len, err);
	if (rc == 0 && child->kind == CKV_LINK) {
		link = child;
		rc = follow(*node, link, &child, err);
		ckv_put(link);
	}
	if (rc < 0)
		return rc;
	ckv_put(*node);
	*node = child;
	return 0;
}

static int walk(struct ckv_node **node, char *copy, const char *path,
		struct ckpt_err *err)
{
	size_t parent_len = 0;
	char *save = NULL;
	int rc = 0;

	for (char *name = strtok_r(copy, "/", &save); rc == 0 && name;
	     name = strtok_r(NULL, "/", &save)) {
		rc = step(node, name, path, parent_len, err);
		parent_len = (size_t)(name - copy) + strlen(name);
	}
	if (rc == 0 && parent_len > 0 && path[strlen(path) - 1] == '/' &&
	    (*node)->kind > CKV_FOLDER)
		return ckb_err(err, CKPT_ENOENT, "'%s' is a file, not a folder",
			       path);
	return rc;
}

int ckv_resolve(struct ckv_tree *tree, const char *path, struct ckv_node **out,
		struct ckpt_err *err)
{
	CKB_FREE char *copy = strdup(path);
	struct ckv_node *node = ckv_root(tree);
	int rc = copy && node ? walk(&node, copy, path, err)
			      : ckb_err_nomem(err);

	*out = NULL;
	if (rc < 0)
		ckv_put(node);
	else
		*out = node;
	return rc;
}
