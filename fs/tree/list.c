/* SPDX-License-Identifier: Apache-2.0 */
/*
 * list.c - one snapshot of a folder's entries.
 *
 * A snapshot keeps what it saw: names, kinds and inode numbers that equal what
 * attributes will say. In a checkpoint it walks the folder's own entries and
 * steps over what lies below them, so a folder costs its entries, not all
 * under it. Names lie behind each other in one buffer. What vanishes from a
 * run meanwhile is left out. A list belongs to one thread at a time.
 */
#include <stdlib.h>
#include <string.h>

#include "base/limits.h"
#include "tree/internal.h"

struct entry {
	size_t name; /* offset in names */
	uint64_t ino;
	bool is_folder, is_link;
};

struct ckv_list {
	struct ckv_node *dir;
	struct ckb_buf names;
	struct entry *entries;
	size_t count, cap;
	struct ckpt_err *err; /* of the listing under way */
};

static int add(struct ckv_list *l, struct entry e, const char *name,
	       size_t len)
{
	if (!ckb_room(&l->entries, l->count, &l->cap, sizeof(*l->entries)))
		return ckb_err_nomem(l->err);
	e.name = l->names.len;
	ckb_buf_put(&l->names, name, len);
	ckb_buf_put(&l->names, "", 1);
	if (l->names.failed)
		return ckb_err_nomem(l->err);
	l->entries[l->count++] = e;
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
		rc = add(l, (struct entry){ .ino = n->ino,
					    .is_folder = n->kind <= CKV_FOLDER,
					    .is_link = n->kind == CKV_LINK },
			 name, strlen(name));
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

static int add_file(struct ckv_list *l, const char *name, size_t len)
{
	const struct ckv_paths *p = &l->dir->ckpt->paths;
	uint64_t parent = p->folder[l->dir->folder].ino;

	return add(l, (struct entry){ .ino = ckv_ino_below(parent, p->salt,
							   name, len) },
		   name, len);
}

/* The files of one entry, called @base. */
static int add_entry(struct ckv_list *l, const struct ckv_path *p,
		     const char *base)
{
	const struct ckpt_tensor_info *t;
	char name[CKB_NAME_COMPONENT_MAX + 1];
	size_t len = strlen(base);
	int rc = 0;

	if (p->tensor == CKV_NO_TENSOR)
		return 0;
	t = ckpt_tensor_at(l->dir->ckpt->ckpt, p->tensor);
	if (t->media_type)
		return add_file(l, base, len);
	CKB_INVARIANT(len + 4 < sizeof(name));
	memcpy(name, base, len);
	memcpy(name + len, ".npy", 4);
	if (ckv_npy_size(t) != UINT64_MAX)
		rc = add_file(l, name, len + 4);
	memcpy(name + len, ".txt", 4);
	return rc == 0 ? add_file(l, name, len + 4) : rc;
}

static int list_inner(struct ckv_list *l)
{
	const struct ckv_paths *p = &l->dir->ckpt->paths;
	const struct ckv_folder *f = &p->folder[l->dir->folder];
	const struct ckv_folder *child = f + 1, *end = p->folder + f->end;
	uint32_t skip = ckv_folder_skip(f), i = f->lo;
	int rc = 0;

	if (l->dir->kind == CKV_CHECKPOINT)
		rc = add_file(l, "checkpoint.json", 15);
	while (rc == 0 && i < f->hi) {
		if (child < end && child->lo == i) {
			if (!child->hidden)
				rc = add(l, (struct entry){
						.ino = child->ino,
						.is_folder = true },
					 child->text + skip,
					 child->len - skip);
			i = child->hi;
			child = p->folder + child->end;
			continue;
		}
		rc = add_entry(l, &p->path[i], p->path[i].text + skip);
		i++;
	}
	return rc;
}

/* ---- a list ---- */

static int by_name(const void *a, const void *b, void *names)
{
	return strcmp((const char *)names + ((const struct entry *)a)->name,
		      (const char *)names + ((const struct entry *)b)->name);
}

static int fill(struct ckv_list *l)
{
	struct ckv_node *dir = l->dir;
	int rc;

	if (dir->kind == CKV_ROOT || dir->kind == CKV_RUN)
		return list_run(l);
	if (dir->kind != CKV_CHECKPOINT && dir->kind != CKV_FOLDER)
		return ckb_err(l->err, CKPT_EINVAL, "this is no folder");
	rc = ckv_ckpt_load(dir->tree, dir->ckpt, l->err);
	return rc == 0 ? list_inner(l) : rc;
}

int ckv_list_new(struct ckv_node *dir, struct ckv_list **out,
		 struct ckpt_err *err)
{
	struct ckv_list *l = calloc(1, sizeof(*l));
	int rc;

	*out = NULL;
	if (!l)
		return ckb_err_nomem(err);
	l->dir = ckv_ref(dir);
	l->err = err;
	rc = fill(l);
	l->err = NULL;
	if (rc < 0) {
		ckv_list_free(l);
		return rc;
	}
	if (l->count > 0)
		qsort_r(l->entries, l->count, sizeof(*l->entries), by_name,
			l->names.data);
	*out = l;
	return 0;
}

void ckv_list_free(struct ckv_list *l)
{
	if (!l)
		return;
	ckb_buf_fini(&l->names);
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
	return (const char *)l->names.data + l->entries[i].name;
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
	const char *name = ckv_list_name(l, i);
	int rc = ckv_lookup(l->dir, name, out, err);

	return rc == CKPT_ENOENT ? ckb_err(err, rc, "'%s' is gone", name) : rc;
}
