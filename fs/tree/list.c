/* SPDX-License-Identifier: Apache-2.0 */
/*
 * list.c - one snapshot of a folder's entries, and paths walked from the root.
 *
 * A snapshot keeps what it saw: names, kinds and inode numbers that equal what
 * attributes will say. Groups of paths that share a component are skipped by
 * binary search, so a folder costs its own entries, not all below it. Any
 * thread; a list belongs to one.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tree/internal.h"
#include "verbs/store.h"

struct entry {
	char *name;
	uint64_t ino;
	bool is_folder, is_link;
};

struct ckv_list {
	struct ckv_node *dir;
	struct entry *entries;
	size_t count, cap;
	struct ckpt_err *err; /* of the listing under way */
};

static int add(struct ckv_list *l, const char *name, size_t len,
	       bool is_folder, bool is_link, uint64_t ino)
{
	if (l->count == l->cap) {
		size_t cap = l->cap ? l->cap * 2 : 64;
		void *p = realloc(l->entries, cap * sizeof(*l->entries));

		if (!p)
			return ckb_err_nomem(l->err);
		l->entries = p;
		l->cap = cap;
	}
	char *copy = strndup(name, len);

	if (!copy)
		return ckb_err_nomem(l->err);
	l->entries[l->count++] = (struct entry){ copy, ino, is_folder,
						 is_link };
	return 0;
}

/* ---- runs ---- */

static int add_looked_up(struct ckv_list *l, const char *name)
{
	struct ckv_node *n = NULL;
	int rc = ckv_lookup(l->dir, name, &n, l->err);

	if (rc == CKPT_ENOENT)
		return 0; /* gone meanwhile */
	if (rc == 0)
		rc = add(l, name, strlen(name), n->kind <= CKV_FOLDER,
			 n->kind == CKV_LINK, n->ino);
	ckv_put(n);
	return rc;
}

static int add_name(void *ctx, const char *name, bool is_run)
{
	(void)is_run;
	return add_looked_up(ctx, name);
}

static int list_run(struct ckv_list *l)
{
	struct ckv_node *dir = l->dir;
	int rc = ckpt_store_list(dir->tree->store, dir->path, add_name, l,
				 l->err);

	if (rc == 0)
		rc = add_looked_up(l, "latest");
	if (rc == 0)
		rc = add_looked_up(l, "newest");
	if (rc == 0 && dir->kind == CKV_ROOT)
		rc = add_looked_up(l, "README.txt");
	return rc;
}

/* ---- checkpoints ---- */

/* An entry of the folder: its inode number is that of its whole path. */
static int add_inner(struct ckv_list *l, const char *name, size_t len,
		     bool is_folder)
{
	const struct ckv_node *dir = l->dir;
	CKB_BUF struct ckb_buf path = { 0 };

	ckb_buf_puts(&path, dir->path);
	if (*dir->path)
		ckb_buf_putc(&path, '/');
	ckb_buf_put(&path, name, len);
	if (path.failed)
		return ckb_err_nomem(l->err);
	return add(l, name, len, is_folder, false,
		   ckv_ino(ckpt_checkpoint_info(dir->ckpt->ckpt)->uuid,
			   (char *)path.data, path.len));
}

static int list_checkpoint(struct ckv_list *l)
{
	const struct ckpt_checkpoint *c = l->dir->ckpt->ckpt;
	int rc = add_inner(l, "checkpoint.json", 15, false);

	for (size_t i = 0; rc == 0 && i < ckpt_item_count(c); i++) {
		const struct ckpt_item_info *it = ckpt_item_at(c, i);
		CKB_BUF struct ckb_buf name = { 0 };
		bool cut = false;

		if (!ckv_item_shown(it))
			continue;
		ckv_escape(&name, it->name, strlen(it->name), true, 0, &cut);
		rc = name.failed ? ckb_err_nomem(l->err)
				 : add_inner(l, (char *)name.data, name.len,
					     true);
	}
	return rc;
}

static int add_file(struct ckv_list *l, const struct ckv_path *p,
		    const char *base)
{
	const struct ckpt_tensor_info *t =
		ckpt_tensor_at(l->dir->ckpt->ckpt, p->tensor);
	size_t len = strlen(base);
	char name[300];
	int rc = 0;

	if (t->media_type)
		return add_inner(l, base, len, false);
	CKB_REQUIRE(len + 5 <= sizeof(name));
	memcpy(name, base, len);
	if (ckv_npy_size(t) != UINT64_MAX) {
		memcpy(name + len, ".npy", 5);
		rc = add_inner(l, name, len + 4, false);
	}
	memcpy(name + len, ".txt", 5);
	return rc == 0 ? add_inner(l, name, len + 4, false) : rc;
}

static int list_folder(struct ckv_list *l)
{
	const struct ckv_node *dir = l->dir;
	const struct ckv_ckpt *c = dir->ckpt;
	size_t skip = strlen(dir->path) + 1;
	int rc = 0;

	for (size_t i = dir->lo; rc == 0 && i < dir->hi;) {
		const char *base = c->paths[i].text + skip;
		const char *slash = strchr(base, '/');
		size_t lo, hi;

		if (!slash) {
			rc = add_file(l, &c->paths[i], base);
			i++;
			continue;
		}
		ckv_paths_below(c, c->paths[i].text,
				(size_t)(slash + 1 - c->paths[i].text), &lo,
				&hi);
		rc = add_inner(l, base, (size_t)(slash - base), true);
		i = hi > i ? hi : i + 1;
	}
	return rc;
}

static int by_name(const void *a, const void *b)
{
	return strcmp(((const struct entry *)a)->name,
		      ((const struct entry *)b)->name);
}

int ckv_list_new(struct ckv_node *dir, struct ckv_list **out,
		 struct ckpt_err *err)
{
	struct ckv_list *l = calloc(1, sizeof(*l));
	int rc = 0;

	*out = NULL;
	if (!l)
		return ckb_err_nomem(err);
	l->dir = ckv_ref(dir);
	l->err = err;
	if (dir->kind == CKV_ROOT || dir->kind == CKV_RUN) {
		rc = list_run(l);
	} else if (dir->kind == CKV_CHECKPOINT || dir->kind == CKV_FOLDER) {
		rc = ckv_ckpt_load(dir->tree, dir->ckpt, err);
		if (rc == 0)
			rc = dir->kind == CKV_FOLDER ? list_folder(l)
						     : list_checkpoint(l);
	} else {
		rc = ckb_err(err, CKPT_EINVAL, "this is no folder");
	}
	l->err = NULL;
	if (rc < 0) {
		ckv_list_free(l);
		return rc;
	}
	if (l->count > 0)
		qsort(l->entries, l->count, sizeof(*l->entries), by_name);
	*out = l;
	return 0;
}

void ckv_list_free(struct ckv_list *l)
{
	if (!l)
		return;
	for (size_t i = 0; i < l->count; i++)
		free(l->entries[i].name);
	free(l->entries);
	ckv_put(l->dir);
	free(l);
}

size_t ckv_list_count(const struct ckv_list *l)
{
	return l->count;
}

const char *ckv_list_name(const struct ckv_list *l, size_t i)
{
	return l->entries[i].name;
}

uint64_t ckv_list_ino(const struct ckv_list *l, size_t i)
{
	return l->entries[i].ino;
}

bool ckv_list_is_folder(const struct ckv_list *l, size_t i)
{
	return l->entries[i].is_folder;
}

bool ckv_list_is_link(const struct ckv_list *l, size_t i)
{
	return l->entries[i].is_link;
}

int ckv_list_node(const struct ckv_list *l, size_t i, struct ckv_node **out,
		  struct ckpt_err *err)
{
	int rc = ckv_lookup(l->dir, l->entries[i].name, out, err);

	return rc == CKPT_ENOENT ? ckb_err(err, rc, "'%s' is gone",
					   l->entries[i].name) : rc;
}

/* ---- resolve ---- */

/* Edits from @a to @b, up to what matters for a hint. */
static size_t distance(const char *a, const char *b)
{
	size_t row[64], n = strlen(a), m = strlen(b);

	if (n > 62 || m > 62)
		return SIZE_MAX;
	for (size_t j = 0; j <= m; j++)
		row[j] = j;
	for (size_t i = 1; i <= n; i++) {
		size_t diagonal = row[0];

		row[0] = i;
		for (size_t j = 1; j <= m; j++) {
			size_t cost = diagonal + (a[i - 1] != b[j - 1]);

			diagonal = row[j];
			if (row[j] + 1 < cost)
				cost = row[j] + 1;
			if (row[j - 1] + 1 < cost)
				cost = row[j - 1] + 1;
			row[j] = cost;
		}
	}
	return row[m];
}

static int not_there(struct ckv_node *dir, const char *name, const char *path,
		     struct ckpt_err *err)
{
	char q[CKB_QUOTE_BYTES], p[CKB_QUOTE_BYTES];
	struct ckv_list *l = NULL;
	const char *near = NULL;
	size_t best = strlen(name) / 2 + 1;

	if (ckv_list_new(dir, &l, NULL) == 0)
		for (size_t i = 0; i < l->count; i++) {
			size_t d = distance(name, l->entries[i].name);

			if (d < best) {
				best = d;
				near = l->entries[i].name;
			}
		}
	ckb_quote(q, sizeof(q), name, strlen(name));
	ckb_quote(p, sizeof(p), path, strlen(path));
	int rc = near ? ckb_err(err, CKPT_ENOENT, "there is no '%s' at '%s'; "
				"did you mean '%s'?", q, p, near)
		      : ckb_err(err, CKPT_ENOENT, "there is no '%s' at '%s'",
				q, p);

	ckv_list_free(l);
	return rc;
}

/* One component: @node (taken) -> the child. Links are followed at once. */
static int step(struct ckv_node **node, const char *name, const char *path,
		struct ckpt_err *err)
{
	struct ckv_node *child = NULL;
	int rc;

	if (strcmp(name, "..") == 0 || strcmp(name, ".") == 0)
		return ckb_err(err, CKPT_EINVAL, "'%s' in '%s': name the place "
			       "itself", name, path);
	rc = ckv_lookup(*node, name, &child, err);
	if (rc == CKPT_ENOENT)
		return not_there(*node, name, path, err);
	if (rc == 0 && child->kind == CKV_LINK) {
		CKB_BUF struct ckb_buf target = { 0 };

		rc = ckv_readlink(child, &target, err);
		ckv_put(child);
		child = NULL;
		if (rc == 0)
			rc = ckv_lookup(*node, (char *)target.data, &child,
					err);
	}
	if (rc < 0)
		return rc;
	ckv_put(*node);
	*node = child;
	return 0;
}

int ckv_resolve(struct ckv_tree *tree, const char *path, struct ckv_node **out,
		struct ckpt_err *err)
{
	CKB_FREE char *copy = strdup(path);
	struct ckv_node *node = ckv_root(tree);
	char *save = NULL;
	int rc = copy && node ? 0 : ckb_err_nomem(err);

	*out = NULL;
	for (char *name = rc == 0 ? strtok_r(copy, "/", &save) : NULL;
	     rc == 0 && name; name = strtok_r(NULL, "/", &save))
		rc = step(&node, name, path, err);
	if (rc < 0) {
		ckv_put(node);
		return rc;
	}
	*out = node;
	return 0;
}
