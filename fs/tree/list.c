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
	/* of the listing under way */
	struct ckv_image *image;
	struct ckpt_err *err;
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

/* What is no checkpoint: a run, a link, README.txt. */
static int add_plain(struct ckv_list *l, const char *name, enum ckv_kind kind)
{
	struct ckv_node *dir = l->dir;
	CKB_FREE char *path = kind == CKV_LINK
				      ? ckv_link_path(dir->path, name)
				      : ckv_join(dir->path, name);

	if (!path)
		return ckb_err_nomem(l->err);
	return add(l, (struct entry){ .ino = ckv_ino_store(dir->tree, path),
				      .is_folder = kind <= CKV_FOLDER,
				      .is_link = kind == CKV_LINK },
		   name, strlen(name));
}

/* A checkpoint; one that cannot be read now is there all the same: its lookup
 * says why. */
static int add_checkpoint(struct ckv_list *l, struct ckv_run *r, uint32_t i)
{
	struct ckv_node *dir = l->dir;
	const char *name = r->entry[i].name;
	struct ckpt_err why = { 0 };
	struct ckv_facts f;
	int rc = ckv_run_facts(dir->tree, r, i, &f, &why);

	if (rc == CKPT_ENOENT)
		return 0; /* gone meanwhile */
	if (rc == CKPT_ENOMEM)
		return ckb_err_nomem(l->err);
	if (rc < 0) {
		ckv_run_tell(dir->tree, r, i, &why);
		f.damaged = true;
	}
	CKB_FREE char *full = ckv_join(dir->path, name);

	if (!full)
		return ckb_err_nomem(l->err);
	return add(l, (struct entry){
			.ino = ckv_ino_checkpoint(dir->tree, full, &f),
			.is_folder = true }, name, strlen(name));
}

/* A link, if there is something it means, or might mean. */
static int add_link(struct ckv_list *l, const char *name)
{
	CKB_BUF struct ckb_buf target = { 0 };
	int rc = ckv_link_target(l->dir->tree, l->dir->path, name, &target,
				 NULL);

	if (rc == CKPT_ENOENT)
		return 0;
	return rc == CKPT_ENOMEM ? ckb_err_nomem(l->err)
				 : add_plain(l, name, CKV_LINK);
}

static int list_run(struct ckv_list *l)
{
	struct ckv_node *dir = l->dir;
	struct ckv_run *r;
	int rc = ckv_run_get(dir->tree, dir->path, &r, l->err);

	if (rc == CKPT_ENOENT)
		return ckb_err(l->err, CKPT_ESTALE, "run '%s' is gone",
			       dir->path);
	if (rc < 0)
		return rc;
	for (uint32_t i = 0; rc == 0 && i < r->count; i++)
		rc = r->entry[i].is_run
			     ? add_plain(l, r->entry[i].name, CKV_RUN)
			     : add_checkpoint(l, r, i);
	ckv_run_put(dir->tree, r);
	if (rc == 0)
		rc = add_link(l, "latest");
	if (rc == 0)
		rc = add_link(l, "newest");
	if (rc == 0 && dir->kind == CKV_ROOT)
		rc = add_plain(l, "README.txt", CKV_README);
	return rc;
}

/* ---- checkpoints ---- */

static int add_file(struct ckv_list *l, const char *name, size_t len)
{
	const struct ckv_paths *p = &l->image->paths;
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
	t = ckpt_tensor_at(l->image->ckpt, p->tensor);
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
	const struct ckv_paths *p = &l->image->paths;
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

static int list_image(struct ckv_list *l)
{
	int rc = list_inner(l);

	ckv_image_put(l->dir->tree, l->image);
	l->image = NULL;
	return rc;
}

static int fill(struct ckv_list *l)
{
	struct ckv_node *dir = l->dir;

	if (dir->kind == CKV_ROOT || dir->kind == CKV_RUN)
		return list_run(l);
	if (dir->kind != CKV_CHECKPOINT && dir->kind != CKV_FOLDER)
		return ckb_err(l->err, CKPT_EINVAL, "this is no folder");
	int rc = ckv_image_get(dir->tree, dir->ckpt, &l->image, l->err);

	return rc == 0 ? list_image(l) : rc;
}

static int fill_open(struct ckv_list *l)
{
	struct ckv_node *dir = l->dir;

	CKB_REQUIRE(dir->kind == CKV_CHECKPOINT || dir->kind == CKV_FOLDER);
	l->image = ckv_image_peek(dir->tree, dir->ckpt);
	return l->image ? list_image(l)
			: ckb_err(l->err, CKPT_ESTALE, "checkpoint '%s' is "
				  "not open", dir->ckpt->name);
}

static int list_new(struct ckv_node *dir, int (*how)(struct ckv_list *l),
		    struct ckv_list **out, struct ckpt_err *err)
{
	struct ckv_list *l = calloc(1, sizeof(*l));
	int rc;

	*out = NULL;
	if (!l)
		return ckb_err_nomem(err);
	l->dir = ckv_ref(dir);
	l->err = err;
	rc = how(l);
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

int ckv_list_new(struct ckv_node *dir, struct ckv_list **out,
		 struct ckpt_err *err)
{
	return list_new(dir, fill, out, err);
}

int ckv_list_open(struct ckv_node *dir, struct ckv_list **out,
		  struct ckpt_err *err)
{
	return list_new(dir, fill_open, out, err);
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
