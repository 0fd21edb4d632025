/* SPDX-License-Identifier: Apache-2.0 */
/*
 * tree.c - nodes: lookup and attributes.
 *
 * A node is a small counted handle: kind, checkpoint, and the number of a
 * folder or entry in it, or a run's name. Two handles of one file are equal by
 * ckv_same(), not by address. Looking up in a run asks the store's folder each
 * time, so what is new is seen and what is gone is not; inside a checkpoint
 * everything is fixed. Nodes never change after they are made: any thread.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/bytes.h"
#include "base/hash.h"
#include "base/limits.h"
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
	ckv_ckpt_fini(t);
	ckv_facts_fini(t);
	pthread_mutex_destroy(&t->lock);
	free(t);
}

/* ---- inode numbers ---- */

static uint64_t legal_ino(uint64_t hash)
{
	return hash < 2 ? hash + 2 : hash;
}

uint64_t ckv_ino_uuid(const uint8_t uuid[16])
{
	return legal_ino(ckb_xxh3(uuid, CKPT_UUID_BYTES));
}

uint64_t ckv_ino_below(uint64_t parent, uint32_t salt, const char *name,
		       size_t len)
{
	uint8_t both[16];

	ckb_put_u64(both, parent);
	ckb_put_u64(both + 8, ckb_xxh3_u32(salt, name, len));
	return legal_ino(ckb_xxh3(both, sizeof(both)));
}

/* Of what is no checkpoint's: the store's uuid and the path from the top. */
static uint64_t store_ino(const struct ckv_tree *t, const char *path)
{
	return ckv_ino_below(ckv_ino_uuid(ckpt_store_uuid(t->store)), 0, path,
			     strlen(path));
}

/* ---- nodes ---- */

static struct ckv_node *node_new(struct ckv_tree *t, enum ckv_kind kind,
				 const char *path)
{
	struct ckv_node *n = calloc(1, sizeof(*n));

	if (n && path)
		n->path = strdup(path);
	if (!n || (path && !n->path)) {
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
	if (!n->ckpt || ckv_ckpt_load(n->tree, n->ckpt, NULL) < 0)
		return NULL;
	return n->ckpt->ckpt;
}

bool ckv_same(const struct ckv_node *a, const struct ckv_node *b)
{
	if (a->kind != b->kind || a->ckpt != b->ckpt)
		return false;
	if (a->ckpt)
		return a->folder == b->folder && a->tensor == b->tensor;
	return strcmp(a->path, b->path) == 0;
}

/* ---- lookup in a run ---- */

/* A node of the store itself; its time is that of the run @run. */
static int make_plain(struct ckv_node *dir, enum ckv_kind kind,
		      const char *path, const char *run,
		      struct ckv_node **out, struct ckpt_err *err)
{
	struct ckv_node *n = node_new(dir->tree, kind, path);
	struct stat st;
	bool is_run;

	*out = n;
	if (!n)
		return ckb_err_nomem(err);
	n->ino = store_ino(dir->tree, path);
	if (cks_name_stat(dir->tree->store, run, &is_run, &st, NULL) == 0)
		n->time_ns = ckv_mtime_ns(&st);
	return 0;
}

static int make_link(struct ckv_node *dir, const char *name,
		     struct ckv_node **out, struct ckpt_err *err)
{
	CKB_FREE char *target = NULL;
	char path[CKB_NAME_MAX + 16];
	int rc = ckv_link_target(dir->tree, dir->path, name, &target, err);

	if (rc < 0)
		return rc;
	snprintf(path, sizeof(path), "%s/%s", dir->path, name);
	return make_plain(dir, CKV_LINK, path, dir->path, out, err);
}

static int make_checkpoint(struct ckv_node *dir, const char *full,
			   const struct stat *st, struct ckv_node **out,
			   struct ckpt_err *err)
{
	struct ckv_facts f;
	int rc = ckv_facts(dir->tree, full, st, &f, err);

	if (rc < 0)
		return rc;
	struct ckv_node *n = node_new(dir->tree, CKV_CHECKPOINT, NULL);

	if (!n)
		return ckb_err_nomem(err);
	n->ino = f.damaged ? store_ino(dir->tree, full) : ckv_ino_uuid(f.uuid);
	n->time_ns = f.created_ns;
	n->subfolders = f.item_count;
	rc = ckv_ckpt_get(dir->tree, full, st, &n->ckpt, err);
	if (rc < 0) {
		ckv_put(n);
		return rc;
	}
	*out = n;
	return 0;
}

static int lookup_run(struct ckv_node *dir, const char *name,
		      struct ckv_node **out, struct ckpt_err *err)
{
	char full[CKB_NAME_MAX + 1];
	struct stat st;
	bool is_run;
	int len;

	if (dir->kind == CKV_ROOT && strcmp(name, "README.txt") == 0)
		return make_plain(dir, CKV_README, name, "", out, err);
	if (strcmp(name, "latest") == 0 || strcmp(name, "newest") == 0)
		return make_link(dir, name, out, err);
	len = snprintf(full, sizeof(full), "%s%s%s", dir->path,
		       *dir->path ? "/" : "", name);
	if (len < 0 || (size_t)len >= sizeof(full))
		return CKPT_ENOENT;
	/* a name that cannot be a checkpoint's is simply not there */
	int rc = cks_name_stat(dir->tree->store, full, &is_run, &st, err);

	if (rc == CKPT_EINVAL || rc == CKPT_ENOENT)
		return CKPT_ENOENT;
	if (rc < 0)
		return rc;
	return is_run ? make_plain(dir, CKV_RUN, full, full, out, err)
		      : make_checkpoint(dir, full, &st, out, err);
}

/* ---- lookup in a checkpoint ---- */

/* Is there a file @name in folder number @dir? Its kind and entry. */
static bool find_file(const struct ckv_ckpt *c, uint32_t dir, const char *name,
		      enum ckv_kind *kind, const struct ckpt_tensor_info **out)
{
	size_t len = strlen(name);
	const struct ckv_path *p = ckv_folder_file(&c->paths, dir, name, len);

	*kind = CKV_OPAQUE;
	if (p) {
		*out = ckpt_tensor_at(c->ckpt, p->tensor);
		if ((*out)->media_type)
			return true;
	}
	if (len <= 4 || (strcmp(name + len - 4, ".npy") != 0 &&
			 strcmp(name + len - 4, ".txt") != 0))
		return false;
	*kind = name[len - 1] == 'y' ? CKV_NPY : CKV_TXT;
	p = ckv_folder_file(&c->paths, dir, name, len - 4);
	if (!p)
		return false;
	*out = ckpt_tensor_at(c->ckpt, p->tensor);
	return !(*out)->media_type &&
	       (*kind == CKV_TXT || ckv_npy_size(*out) != UINT64_MAX);
}

/* Child @name of folder or checkpoint @dir into @n. */
static bool find_inner(const struct ckv_node *dir, const char *name,
		       struct ckv_node *n)
{
	const struct ckv_paths *p = &dir->ckpt->paths;
	const struct ckv_folder *f = NULL;

	if (dir->kind == CKV_CHECKPOINT &&
	    strcmp(name, "checkpoint.json") == 0)
		n->kind = CKV_CHECKPOINT_JSON;
	else if (!find_file(dir->ckpt, dir->folder, name, &n->kind,
			    &n->tensor)) {
		f = ckv_folder_child(p, dir->folder, name);
		if (!f)
			return false;
		n->kind = CKV_FOLDER;
		n->tensor = NULL;
		n->folder = (uint32_t)(f - p->folder);
	}
	n->ino = f ? f->ino
		   : ckv_ino_below(p->folder[dir->folder].ino, p->salt, name,
				   strlen(name));
	n->time_ns = ckpt_checkpoint_info(dir->ckpt->ckpt)->created_ns;
	return true;
}

static int lookup_inner(struct ckv_node *dir, const char *name,
			struct ckv_node **out, struct ckpt_err *err)
{
	int rc = ckv_ckpt_load(dir->tree, dir->ckpt, err);

	if (rc < 0)
		return rc;
	struct ckv_node *n = node_new(dir->tree, CKV_FOLDER, NULL);

	if (!n)
		return ckb_err_nomem(err);
	if (!find_inner(dir, name, n)) {
		ckv_put(n);
		return CKPT_ENOENT;
	}
	ckv_ckpt_ref(dir->tree, dir->ckpt);
	n->ckpt = dir->ckpt;
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

static int count_entry(void *ctx, const char *name, bool is_run)
{
	uint32_t *count = ctx;

	(void)name;
	(void)is_run;
	*count += 1; /* runs and checkpoints: both are folders */
	return 0;
}

/* A run that changes must show it by its time. */
static int run_attr(struct ckv_node *n, struct ckv_attr *out,
		    struct ckpt_err *err)
{
	struct stat st = { 0 };
	bool is_run = true;
	int rc = cks_name_stat(n->tree->store, n->path, &is_run, &st, err);

	/* a store without checkpoints/ is empty */
	if (rc == CKPT_ENOENT && n->kind == CKV_ROOT)
		return 0;
	if (rc == 0 && is_run)
		rc = ckpt_store_list(n->tree->store, n->path, count_entry,
				     &out->subfolders, err);
	if (rc == CKPT_ENOENT || !is_run)
		return ckb_err(err, CKPT_ESTALE, "run '%s' is gone", n->path);
	out->time_ns = ckv_mtime_ns(&st);
	return rc;
}

static int link_attr(struct ckv_node *n, struct ckv_attr *out,
		     struct ckpt_err *err)
{
	CKB_BUF struct ckb_buf target = { 0 };
	int rc = ckv_readlink(n, &target, err);

	out->size = target.len;
	return rc;
}

int ckv_attr(struct ckv_node *n, struct ckv_attr *out, struct ckpt_err *err)
{
	size_t len;
	int rc = 0;

	*out = (struct ckv_attr){
		.kind = n->kind, .ino = n->ino, .time_ns = n->time_ns,
		.is_folder = n->kind <= CKV_FOLDER,
		.is_link = n->kind == CKV_LINK,
		.immutable = n->kind != CKV_ROOT && n->kind != CKV_RUN &&
			     n->kind != CKV_LINK,
		.subfolders = n->subfolders,
	};
	switch (n->kind) {
	case CKV_ROOT:
	case CKV_RUN:
		return run_attr(n, out, err);
	case CKV_CHECKPOINT:
		return 0;
	case CKV_FOLDER:
		out->subfolders = n->ckpt->paths.folder[n->folder].subfolders;
		return 0;
	case CKV_LINK:
		return link_attr(n, out, err);
	case CKV_README:
		ckv_readme(&len);
		out->size = len;
		return 0;
	case CKV_CHECKPOINT_JSON:
		rc = ckv_checkpoint_json(n->ckpt, err);
		out->size = n->ckpt->json_len;
		return rc;
	case CKV_NPY:
		out->size = ckv_npy_size(n->tensor);
		return 0;
	case CKV_TXT:
		out->size = ckv_text_size(n->tensor);
		return 0;
	case CKV_OPAQUE:
		out->size = n->tensor->bytes;
		return 0;
	}
	return 0;
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
		return ckb_err(err, rc, "run '%s' has no checkpoint that '%s' "
			       "could mean", run, slash + 1);
	if (rc < 0)
		return rc;
	ckb_buf_puts(out, target);
	return out->failed ? ckb_err_nomem(err) : 0;
}

/* ---- reading ---- */

static void copy_out(const void *text, size_t text_len, uint64_t off,
		     void *dst, size_t len, size_t *out_len)
{
	size_t n = off < text_len
			   ? (size_t)ckb_min_u64(len, text_len - off) : 0;

	if (n > 0)
		memcpy(dst, (const char *)text + off, n);
	*out_len = n;
}

static int read_text(struct ckv_node *n, uint64_t off, void *dst, size_t len,
		     size_t *out_len, struct ckpt_err *err)
{
	CKB_BUF struct ckb_buf text = { 0 };
	int rc = 0;

	/* past the end there is nothing to read, nor to fail */
	if (off < ckv_text_size(n->tensor))
		rc = ckv_text(n->ckpt->ckpt, n->tensor, &text, err);
	if (rc == 0)
		copy_out(text.data, text.len, off, dst, len, out_len);
	return rc;
}

/* @size: of the file. */
static int read_tensor(struct ckv_node *n, uint64_t size, uint64_t off,
		       void *dst, size_t len, size_t *out_len,
		       struct ckpt_err *err)
{
	int rc;

	if (off >= size)
		return 0;
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

int ckv_read(struct ckv_node *n, uint64_t off, void *dst, size_t len,
	     size_t *out_len, struct ckpt_err *err)
{
	const char *readme;
	size_t size;
	int rc;

	*out_len = 0;
	switch (n->kind) {
	case CKV_README:
		readme = ckv_readme(&size);
		copy_out(readme, size, off, dst, len, out_len);
		return 0;
	case CKV_CHECKPOINT_JSON:
		rc = ckv_checkpoint_json(n->ckpt, err);
		if (rc == 0)
			copy_out(n->ckpt->json, n->ckpt->json_len, off, dst,
				 len, out_len);
		return rc;
	case CKV_TXT:
		return read_text(n, off, dst, len, out_len, err);
	case CKV_NPY:
		return read_tensor(n, ckv_npy_size(n->tensor), off, dst, len,
				   out_len, err);
	case CKV_OPAQUE:
		return read_tensor(n, n->tensor->bytes, off, dst, len, out_len,
				   err);
	default:
		return ckb_err(err, CKPT_EINVAL, "this is no file");
	}
}
