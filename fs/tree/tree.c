/* SPDX-License-Identifier: Apache-2.0 */
/*
 * tree.c - nodes: lookup and attributes.
 *
 * A node is a small counted handle: kind, checkpoint, and the number of a
 * folder or entry in it, or a run's name. Two handles of one file are equal by
 * ckv_same(), not by address. Looking up in a run asks the store's folder each
 * time, so what is new is seen and what is gone is not; inside a checkpoint
 * everything is fixed, so a node has its attributes from the start and keeps
 * nothing open. Nodes never change after they are made: any thread.
 */
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>

#include "base/bytes.h"
#include "base/hash.h"
#include "base/limits.h"
#include "tree/internal.h"
#include "verbs/store.h"

/* Most of the descriptors are left to packs, to folders and to the caller. */
static size_t image_max(void)
{
	struct rlimit r;
	uint64_t n = CKV_IMAGES_MAX;

	if (getrlimit(RLIMIT_NOFILE, &r) == 0 && r.rlim_cur != RLIM_INFINITY)
		n = r.rlim_cur > CKB_OPEN_PACKS
			    ? (r.rlim_cur - CKB_OPEN_PACKS) / 8 : 0;
	if (n < CKV_IMAGES_MIN)
		n = CKV_IMAGES_MIN;
	return (size_t)ckb_min_u64(n, CKV_IMAGES_MAX);
}

int ckv_tree_new(struct ckpt_store *store, struct ckv_tree **out,
		 struct ckpt_err *err)
{
	struct ckv_tree *t = calloc(1, sizeof(*t));

	*out = t;
	if (!t)
		return ckb_err_nomem(err);
	t->store = store;
	t->image_max = image_max();
	t->image_bytes_max = CKV_IMAGE_BYTES;
	pthread_mutex_init(&t->lock, NULL);
	return 0;
}

void ckv_tree_free(struct ckv_tree *t)
{
	if (!t)
		return;
	ckv_ckpts_fini(t);
	ckv_runs_fini(t);
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

uint64_t ckv_ino_store(const struct ckv_tree *t, const char *path)
{
	return ckv_ino_below(ckv_ino_uuid(ckpt_store_uuid(t->store)), 0, path,
			     strlen(path));
}

uint64_t ckv_ino_checkpoint(const struct ckv_tree *t, const char *full,
			    const struct ckv_facts *f)
{
	return f->damaged ? ckv_ino_store(t, full) : ckv_ino_uuid(f->uuid);
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
	n->tensor = CKV_NO_TENSOR;
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
	n->ino = ckv_ino_store(dir->tree, path);
	if (cks_name_stat(dir->tree->store, run, &is_run, &st, NULL) == 0)
		n->time_ns = ckb_time_ns(&st.st_mtim);
	return 0;
}

static int make_readme(struct ckv_node *dir, struct ckv_node **out,
		       struct ckpt_err *err)
{
	int rc = make_plain(dir, CKV_README, "README.txt", "", out, err);
	size_t len;

	if (rc == 0) {
		ckv_readme(&len);
		(*out)->size = len;
	}
	return rc;
}

static int make_link(struct ckv_node *dir, const char *name,
		     struct ckv_node **out, struct ckpt_err *err)
{
	CKB_BUF struct ckb_buf target = { 0 };
	CKB_FREE char *path = NULL;
	int rc = ckv_link_target(dir->tree, dir->path, name, &target, err);

	if (rc < 0)
		return rc;
	path = ckv_link_path(dir->path, name);
	if (!path)
		return ckb_err_nomem(err);
	return make_plain(dir, CKV_LINK, path, dir->path, out, err);
}

static int make_checkpoint(struct ckv_node *dir, const char *name,
			   const char *full, const struct stat *st,
			   struct ckv_node **out, struct ckpt_err *err)
{
	struct ckv_id id = ckv_id(st);
	struct ckv_facts f;
	int rc = ckv_run_facts_of(dir->tree, dir->path, name, &id, &f, err);

	if (rc < 0)
		return rc;
	struct ckv_node *n = node_new(dir->tree, CKV_CHECKPOINT, NULL);

	if (!n)
		return ckb_err_nomem(err);
	n->ino = ckv_ino_checkpoint(dir->tree, full, &f);
	n->time_ns = f.created_ns;
	n->subfolders = f.item_count;
	rc = ckv_ckpt_get(dir->tree, full, &id, &f, &n->ckpt, err);
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
	struct stat st;
	bool is_run;

	if (dir->kind == CKV_ROOT && strcmp(name, "README.txt") == 0)
		return make_readme(dir, out, err);
	if (strcmp(name, "latest") == 0 || strcmp(name, "newest") == 0)
		return make_link(dir, name, out, err);
	CKB_FREE char *full = ckv_join(dir->path, name);

	if (!full)
		return ckb_err_nomem(err);
	/* a name that cannot be a checkpoint's is simply not there */
	int rc = cks_name_stat(dir->tree->store, full, &is_run, &st, err);

	if (rc == CKPT_EINVAL || rc == CKPT_ENOENT)
		return CKPT_ENOENT;
	if (rc < 0)
		return rc;
	return is_run ? make_plain(dir, CKV_RUN, full, full, out, err)
		      : make_checkpoint(dir, name, full, &st, out, err);
}

/* ---- lookup in a checkpoint ---- */

/* The file @name in folder number @dir; NULL: none. Its kind. */
static const struct ckpt_tensor_info *find_file(const struct ckv_image *m,
						uint32_t dir, const char *name,
						enum ckv_kind *kind)
{
	size_t len = strlen(name);
	const struct ckv_path *p = ckv_folder_file(&m->paths, dir, name, len);
	const struct ckpt_tensor_info *t;

	*kind = CKV_OPAQUE;
	if (p) {
		t = ckpt_tensor_at(m->ckpt, p->tensor);
		if (t->media_type)
			return t;
	}
	if (len <= 4 || (strcmp(name + len - 4, ".npy") != 0 &&
			 strcmp(name + len - 4, ".txt") != 0))
		return NULL;
	*kind = name[len - 1] == 'y' ? CKV_NPY : CKV_TXT;
	p = ckv_folder_file(&m->paths, dir, name, len - 4);
	if (!p)
		return NULL;
	t = ckpt_tensor_at(m->ckpt, p->tensor);
	if (t->media_type ||
	    (*kind == CKV_NPY && ckv_npy_size(t) == UINT64_MAX))
		return NULL;
	return t;
}

static int file_size(struct ckv_node *n, struct ckv_image *m,
		     const struct ckpt_tensor_info *t, struct ckpt_err *err)
{
	int rc = 0;

	if (n->kind == CKV_NPY) {
		n->size = ckv_npy_size(t);
	} else if (n->kind == CKV_TXT) {
		rc = ckv_text_size(t, &n->size, err);
	} else if (n->kind == CKV_OPAQUE) {
		n->size = t->bytes;
	} else {
		rc = ckv_checkpoint_json(n->tree, m, err);
		n->size = m->json_len;
	}
	return rc;
}

/* Child @name of folder or checkpoint @dir into @n. */
static int find_inner(const struct ckv_node *dir, struct ckv_image *m,
		      const char *name, struct ckv_node *n,
		      struct ckpt_err *err)
{
	const struct ckpt_tensor_info *t = NULL;
	const struct ckv_paths *p = &m->paths;

	n->time_ns = ckpt_checkpoint_info(m->ckpt)->created_ns;
	if (dir->kind == CKV_CHECKPOINT && strcmp(name, "checkpoint.json") == 0)
		n->kind = CKV_CHECKPOINT_JSON;
	else
		t = find_file(m, dir->folder, name, &n->kind);
	if (t || n->kind == CKV_CHECKPOINT_JSON) {
		if (t)
			n->tensor = (uint32_t)t->index;
		n->ino = ckv_ino_below(p->folder[dir->folder].ino, p->salt,
				       name, strlen(name));
		return file_size(n, m, t, err);
	}
	const struct ckv_folder *f = ckv_folder_child(p, dir->folder, name);

	if (!f)
		return CKPT_ENOENT;
	n->kind = CKV_FOLDER;
	n->folder = (uint32_t)(f - p->folder);
	n->subfolders = f->subfolders;
	n->ino = f->ino;
	return 0;
}

static int lookup_inner(struct ckv_node *dir, const char *name,
			struct ckv_node **out, struct ckpt_err *err)
{
	struct ckv_node *n = node_new(dir->tree, CKV_FOLDER, NULL);
	struct ckv_image *m = NULL;
	int rc = n ? ckv_image_get(dir->tree, dir->ckpt, &m, err)
		   : ckb_err_nomem(err);

	if (rc == 0)
		rc = find_inner(dir, m, name, n, err);
	ckv_image_put(dir->tree, m);
	if (rc < 0) {
		ckv_put(n);
		return rc;
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

/* A run that changes must show it by its time. */
static int run_attr(struct ckv_node *n, struct ckv_attr *out,
		    struct ckpt_err *err)
{
	struct ckv_run *r;
	int rc = ckv_run_get(n->tree, n->path, &r, err);

	if (rc == CKPT_ENOENT)
		return ckb_err(err, CKPT_ESTALE, "run '%s' is gone", n->path);
	if (rc < 0)
		return rc;
	out->subfolders = r->count; /* runs and checkpoints: folders all */
	out->time_ns = ckb_time_ns(&r->st.st_mtim);
	ckv_run_put(n->tree, r);
	return 0;
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
	*out = (struct ckv_attr){
		.kind = n->kind, .ino = n->ino, .size = n->size,
		.time_ns = n->time_ns, .subfolders = n->subfolders,
		.is_folder = n->kind <= CKV_FOLDER,
		.is_link = n->kind == CKV_LINK,
		.damaged = n->kind == CKV_CHECKPOINT && !n->ckpt->has_uuid,
		.immutable = n->kind != CKV_ROOT && n->kind != CKV_RUN &&
			     n->kind != CKV_LINK,
	};
	if (n->kind == CKV_ROOT || n->kind == CKV_RUN)
		return run_attr(n, out, err);
	return n->kind == CKV_LINK ? link_attr(n, out, err) : 0;
}

int ckv_readlink(struct ckv_node *n, struct ckb_buf *out, struct ckpt_err *err)
{
	CKB_FREE char *run = strdup(n->path);

	if (!run)
		return ckb_err_nomem(err);
	char *slash = strrchr(run, '/');

	CKB_REQUIRE(n->kind == CKV_LINK && slash);
	*slash = '\0';
	int rc = ckv_link_target(n->tree, run, slash + 1, out, err);

	return rc == CKPT_ENOENT
		       ? ckb_err(err, rc, "run '%s' has no checkpoint that "
				 "'%s' could mean", run, slash + 1)
		       : rc;
}
