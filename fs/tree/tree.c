/* SPDX-License-Identifier: Apache-2.0 */
/*
 * tree.c - nodes: lookup, resolve, attributes.
 *
 * A node is a small counted handle: kind, checkpoint, path. Two handles of one
 * file are equal by ckv_same(), not by address. Looking up in a run asks the
 * store's folder each time, so what is new is seen and what is gone is not;
 * inside a checkpoint everything is fixed. Any thread.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/hash.h"
#include "base/limits.h"
#include "base/text.h"
#include "tree/internal.h"
#include "verbs/store.h"

int ckv_tree_new(struct ckpt_store *store, struct ckv_tree **out,
		 struct ckpt_err *err)
{
	struct ckv_tree *t = calloc(1, sizeof(*t));

	*out = t;
	if (!t)
		return ckb_err_nomem(err);
	t->store = store;
	pthread_mutex_init(&t->lock, NULL);
	return 0;
}

void ckv_tree_free(struct ckv_tree *t)
{
	if (!t)
		return;
	CKB_REQUIRE(!t->open);
	ckv_facts_fini(t);
	pthread_mutex_destroy(&t->lock);
	free(t);
}

uint64_t ckv_ino(const uint8_t uuid[16], const char *path, size_t len)
{
	uint64_t h = ckb_xxh3(path, len) ^
		     ckb_xxh3(uuid, CKPT_UUID_BYTES) * 0x9e3779b97f4a7c15ull;

	/* 0 is none and 1 the root */
	return h < 2 ? h + 2 : h;
}

static struct ckv_node *node_new(struct ckv_tree *t, enum ckv_kind kind,
				 const char *path)
{
	struct ckv_node *n = calloc(1, sizeof(*n));

	if (n)
		n->path = strdup(path);
	if (!n || !n->path) {
		free(n);
		return NULL;
	}
	atomic_init(&n->refs, 1);
	n->tree = t;
	n->kind = kind;
	return n;
}

struct ckv_node *ckv_root(struct ckv_tree *tree)
{
	struct ckv_node *n = node_new(tree, CKV_ROOT, "");

	if (n)
		n->ino = 1;
	return n;
}

struct ckv_node *ckv_ref(struct ckv_node *node)
{
	atomic_fetch_add_explicit(&node->refs, 1, memory_order_relaxed);
	return node;
}

void ckv_put(struct ckv_node *n)
{
	if (!n || atomic_fetch_sub_explicit(&n->refs, 1,
					    memory_order_acq_rel) > 1)
		return;
	ckv_ckpt_put(n->tree, n->ckpt);
	free(n->path);
	free(n);
}

enum ckv_kind ckv_node_kind(const struct ckv_node *n)
{
	return n->kind;
}

const struct ckpt_tensor_info *ckv_node_tensor(const struct ckv_node *n)
{
	return n->tensor;
}

struct ckpt_checkpoint *ckv_node_checkpoint(const struct ckv_node *n)
{
	return n->ckpt ? n->ckpt->ckpt : NULL;
}

bool ckv_same(const struct ckv_node *a, const struct ckv_node *b)
{
	return a->kind == b->kind && a->ckpt == b->ckpt &&
	       strcmp(a->path, b->path) == 0;
}

/* ---- lookup in a run ---- */

static int64_t time_of(const struct stat *st)
{
	return (int64_t)st->st_mtim.tv_sec * 1000000000 + st->st_mtim.tv_nsec;
}

static int make_link(struct ckv_node *dir, const char *name,
		     struct ckv_node **out, struct ckpt_err *err)
{
	const uint8_t *uuid = ckpt_store_uuid(dir->tree->store);
	CKB_FREE char *target = NULL, *path = NULL;
	struct stat st = { 0 };
	bool is_run;
	int rc = ckv_link_target(dir->tree, dir->path, name, &target, err);

	if (rc < 0)
		return rc;
	if (asprintf(&path, "%s/%s", dir->path, name) < 0)
		path = NULL;
	*out = path ? node_new(dir->tree, CKV_LINK, path) : NULL;
	if (!*out)
		return ckb_err_nomem(err);
	(*out)->ino = ckv_ino(uuid, path, strlen(path));
	if (cks_name_stat(dir->tree->store, dir->path, &is_run, &st, NULL) ==
	    0)
		(*out)->time_ns = time_of(&st);
	return 0;
}

static int make_readme(struct ckv_node *dir, struct ckv_node **out,
		       struct ckpt_err *err)
{
	const uint8_t *uuid = ckpt_store_uuid(dir->tree->store);
	struct stat st = { 0 };
	bool is_run;

	*out = node_new(dir->tree, CKV_README, "README.txt");
	if (!*out)
		return ckb_err_nomem(err);
	(*out)->ino = ckv_ino(uuid, "README.txt", 10);
	if (cks_name_stat(dir->tree->store, "", &is_run, &st, NULL) == 0)
		(*out)->time_ns = time_of(&st);
	return 0;
}

static int make_run(struct ckv_node *dir, const char *full,
		    const struct stat *st, struct ckv_node **out,
		    struct ckpt_err *err)
{
	const uint8_t *uuid = ckpt_store_uuid(dir->tree->store);

	*out = node_new(dir->tree, CKV_RUN, full);
	if (!*out)
		return ckb_err_nomem(err);
	(*out)->ino = ckv_ino(uuid, full, strlen(full));
	(*out)->time_ns = time_of(st);
	return 0;
}

/* The inode number of a checkpoint's folder. */
static uint64_t ckpt_ino(struct ckv_tree *t, const struct ckv_facts *f,
			 const char *name)
{
	return f->damaged ? ckv_ino(ckpt_store_uuid(t->store), name,
				    strlen(name))
			  : ckv_ino(f->uuid, "", 0);
}

static int make_checkpoint(struct ckv_node *dir, const char *full,
			   const struct stat *st, struct ckv_node **out,
			   struct ckpt_err *err)
{
	struct ckv_facts f;
	int rc = ckv_facts(dir->tree, full, st, &f, err);

	if (rc < 0)
		return rc;
	*out = node_new(dir->tree, CKV_CHECKPOINT, "");
	if (!*out)
		return ckb_err_nomem(err);
	(*out)->ino = ckpt_ino(dir->tree, &f, full);
	(*out)->time_ns = f.created_ns;
	rc = ckv_ckpt_get(dir->tree, full, st, &(*out)->ckpt, err);
	if (rc < 0) {
		ckv_put(*out);
		*out = NULL;
	}
	return rc;
}

static int lookup_run(struct ckv_node *dir, const char *name,
		      struct ckv_node **out, struct ckpt_err *err)
{
	char full[CKB_NAME_MAX + 300];
	struct stat st;
	bool is_run;

	if (dir->kind == CKV_ROOT && strcmp(name, "README.txt") == 0)
		return make_readme(dir, out, err);
	if (strcmp(name, "latest") == 0 || strcmp(name, "newest") == 0)
		return make_link(dir, name, out, err);
	if (strlen(name) > CKB_NAME_COMPONENT_MAX)
		return CKPT_ENOENT;
	snprintf(full, sizeof(full), "%s%s%s", dir->path,
		 *dir->path ? "/" : "", name);
	/* a name that cannot be a checkpoint's is simply not there */
	int rc = cks_name_stat(dir->tree->store, full, &is_run, &st, err);

	if (rc == CKPT_EINVAL || rc == CKPT_ENOENT)
		return CKPT_ENOENT;
	if (rc < 0)
		return rc;
	return is_run ? make_run(dir, full, &st, out, err)
		      : make_checkpoint(dir, full, &st, out, err);
}

/* ---- lookup in a checkpoint ---- */

static struct ckv_node *inner_new(struct ckv_node *dir, enum ckv_kind kind,
				  const char *path)
{
	struct ckv_node *n = node_new(dir->tree, kind, path);

	if (!n)
		return NULL;
	pthread_mutex_lock(&dir->tree->lock);
	dir->ckpt->refs++;
	pthread_mutex_unlock(&dir->tree->lock);
	n->ckpt = dir->ckpt;
	const struct ckpt_checkpoint_info *i =
		ckpt_checkpoint_info(dir->ckpt->ckpt);

	n->ino = ckv_ino(i->uuid, path, strlen(path));
	n->time_ns = i->created_ns;
	return n;
}

/* A folder below, if any path begins with it (or it is an item). */
static bool find_folder(struct ckv_node *dir, const char *path, size_t *lo,
			size_t *hi)
{
	const struct ckv_ckpt *c = dir->ckpt;
	CKB_BUF struct ckb_buf prefix = { 0 };

	ckb_buf_puts(&prefix, path);
	ckb_buf_putc(&prefix, '/');
	if (prefix.failed)
		return false;
	ckv_paths_below(c, (char *)prefix.data, prefix.len, lo, hi);
	if (*lo < *hi)
		return true;
	/* an item without entries is an empty folder */
	for (size_t i = 0; !strchr(path, '/') && i < ckpt_item_count(c->ckpt);
	     i++) {
		const struct ckpt_item_info *it = ckpt_item_at(c->ckpt, i);
		CKB_BUF struct ckb_buf name = { 0 };
		bool cut = false;

		ckv_escape(&name, it->name, strlen(it->name), true, 0, &cut);
		if (ckv_item_shown(it) && !name.failed &&
		    strcmp((char *)name.data, path) == 0)
			return true;
	}
	return false;
}

/* The file called @path: its kind, and the entry it shows. */
static bool find_file(const struct ckv_ckpt *c, const char *path,
		      enum ckv_kind *kind,
		      const struct ckpt_tensor_info **out)
{
	size_t len = strlen(path);
	const struct ckv_path *p = NULL;

	*kind = CKV_OPAQUE;
	if (len > 4 && (strcmp(path + len - 4, ".npy") == 0 ||
			strcmp(path + len - 4, ".txt") == 0)) {
		*kind = path[len - 1] == 'y' ? CKV_NPY : CKV_TXT;
		p = ckv_path_find(c, path, len - 4);
		if (p && ckpt_tensor_at(c->ckpt, p->tensor)->media_type)
			p = NULL;
	}
	if (!p) {
		*kind = CKV_OPAQUE;
		p = ckv_path_find(c, path, len);
		if (p && !ckpt_tensor_at(c->ckpt, p->tensor)->media_type)
			p = NULL;
	}
	*out = p ? ckpt_tensor_at(c->ckpt, p->tensor) : NULL;
	return *out && (*kind != CKV_NPY ||
			ckv_npy_size(*out) != UINT64_MAX);
}

static int lookup_inner(struct ckv_node *dir, const char *name,
			struct ckv_node **out, struct ckpt_err *err)
{
	CKB_FREE char *path = NULL;
	const struct ckpt_tensor_info *tensor = NULL;
	enum ckv_kind kind = CKV_FOLDER;
	size_t lo = 0, hi = 0;
	int rc = ckv_ckpt_load(dir->tree, dir->ckpt, err);

	if (rc < 0)
		return rc;
	if (asprintf(&path, "%s%s%s", dir->path, *dir->path ? "/" : "",
		     name) < 0) {
		path = NULL;
		return ckb_err_nomem(err);
	}
	if (dir->kind == CKV_CHECKPOINT && strcmp(name, "checkpoint.json") == 0)
		kind = CKV_CHECKPOINT_JSON;
	else if (dir->kind == CKV_CHECKPOINT ||
		 !find_file(dir->ckpt, path, &kind, &tensor)) {
		kind = CKV_FOLDER;
		tensor = NULL;
		if (!find_folder(dir, path, &lo, &hi))
			return CKPT_ENOENT;
	}
	struct ckv_node *n = inner_new(dir, kind, path);

	if (!n)
		return ckb_err_nomem(err);
	n->tensor = tensor;
	n->lo = lo;
	n->hi = hi;
	*out = n;
	return 0;
}

int ckv_lookup(struct ckv_node *dir, const char *name, struct ckv_node **out,
	       struct ckpt_err *err)
{
	*out = NULL;
	if (*name == '\0' || strchr(name, '/'))
		return CKPT_ENOENT;
	switch (dir->kind) {
	case CKV_ROOT:
	case CKV_RUN:
		return lookup_run(dir, name, out, err);
	case CKV_CHECKPOINT:
	case CKV_FOLDER:
		return lookup_inner(dir, name, out, err);
	default:
		return CKPT_ENOENT;
	}
}

/* ---- attributes ---- */

static int size_of(struct ckv_node *n, uint64_t *out, struct ckpt_err *err)
{
	CKB_BUF struct ckb_buf text = { 0 };
	size_t len;
	int rc = 0;

	switch (n->kind) {
	case CKV_LINK:
		rc = ckv_readlink(n, &text, err);
		*out = text.len;
		break;
	case CKV_README:
		ckv_readme(&len);
		*out = len;
		break;
	case CKV_CHECKPOINT_JSON:
		rc = ckv_checkpoint_json(n->ckpt, err);
		*out = n->ckpt->json_len;
		break;
	case CKV_NPY:
		*out = ckv_npy_size(n->tensor);
		break;
	case CKV_TXT:
		*out = ckv_text_size(n->ckpt->ckpt, n->tensor);
		break;
	case CKV_OPAQUE:
		*out = n->tensor->bytes;
		break;
	default:
		*out = 0;
	}
	return rc;
}

int ckv_attr(struct ckv_node *n, struct ckv_attr *out, struct ckpt_err *err)
{
	struct stat st;
	bool is_run;

	memset(out, 0, sizeof(*out));
	out->kind = n->kind;
	out->is_folder = n->kind <= CKV_FOLDER;
	out->is_link = n->kind == CKV_LINK;
	out->immutable = n->kind != CKV_ROOT && n->kind != CKV_RUN &&
			 n->kind != CKV_LINK;
	out->ino = n->ino;
	out->time_ns = n->time_ns;
	if (n->kind == CKV_ROOT || n->kind == CKV_RUN) {
		/* a folder that changes must show it by its time */
		int rc = cks_name_stat(n->tree->store, n->path, &is_run, &st,
				       err);

		if (rc == CKPT_ENOENT)
			return ckb_err(err, CKPT_ESTALE, "run '%s' is gone",
				       n->path);
		if (rc < 0)
			return rc;
		out->time_ns = time_of(&st);
	}
	return size_of(n, &out->size, err);
}

int ckv_readlink(struct ckv_node *n, struct ckb_buf *out, struct ckpt_err *err)
{
	CKB_FREE char *run = strdup(n->path);
	CKB_FREE char *target = NULL;

	if (!run)
		return ckb_err_nomem(err);
	char *slash = strrchr(run, '/');

	CKB_REQUIRE(n->kind == CKV_LINK && slash);
	*slash = '\0';
	int rc = ckv_link_target(n->tree, run, slash + 1, &target, err);

	if (rc == CKPT_ENOENT)
		return ckb_err(err, rc, "run '%s' has no checkpoint", run);
	if (rc < 0)
		return rc;
	ckb_buf_puts(out, target);
	return out->failed ? ckb_err_nomem(err) : 0;
}

/* ---- reading ---- */

static void copy_out(const void *text, size_t text_len, uint64_t off,
		     void *dst, size_t len, size_t *out_len)
{
	size_t n = off < text_len ? ckb_min_u64(len, text_len - off) : 0;

	if (n > 0)
		memcpy(dst, (const char *)text + off, n);
	*out_len = n;
}

int ckv_read(struct ckv_node *n, uint64_t off, void *dst, size_t len,
	     size_t *out_len, struct ckpt_err *err)
{
	CKB_BUF struct ckb_buf text = { 0 };
	uint64_t size = 0;
	size_t text_len;
	int rc = 0;

	*out_len = 0;
	switch (n->kind) {
	case CKV_README: {
		const char *readme = ckv_readme(&text_len);

		copy_out(readme, text_len, off, dst, len, out_len);
		return 0;
	}
	case CKV_CHECKPOINT_JSON:
		rc = ckv_checkpoint_json(n->ckpt, err);
		if (rc == 0)
			copy_out(n->ckpt->json, n->ckpt->json_len, off, dst,
				 len, out_len);
		return rc;
	case CKV_TXT:
		rc = ckv_text(n->ckpt->ckpt, n->tensor, &text, err);
		if (rc == 0)
			copy_out(text.data, text.len, off, dst, len, out_len);
		return rc;
	case CKV_NPY:
	case CKV_OPAQUE:
		break;
	default:
		return ckb_err(err, CKPT_EINVAL, "this is no file");
	}
	rc = size_of(n, &size, err);
	if (rc < 0 || off >= size)
		return rc;
	len = (size_t)ckb_min_u64(len, size - off);
	if (n->kind == CKV_NPY)
		rc = ckv_npy_read(n->ckpt->ckpt, n->tensor, off, dst, len,
				  err);
	else
		rc = ckpt_read_bytes(n->ckpt->ckpt, n->tensor, off, len, dst,
				     err);
	if (rc == 0)
		*out_len = len;
	return rc;
}
