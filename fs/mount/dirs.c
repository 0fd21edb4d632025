/* SPDX-License-Identifier: Apache-2.0 */
/*
 * dirs.c - FUSE requests of folders.
 *
 * An open folder is one snapshot, so entries are neither lost nor seen twice
 * while a run changes; the offset is the entry's number, so any can be resumed
 * at. READDIRPLUS teaches the kernel an entry only when it fits the reply: a
 * lookup that is not sent would never be forgotten.
 *
 * Threads: libfuse's workers; the kernel sends one READDIR of a handle at a
 * time.
 */
#include "mount/internal.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

/* An open folder: one snapshot for all its READDIRs. */
struct dir {
	struct ckm_handle handle; /* first */
	struct ckv_list *list;
	uint64_t ino;
	bool live;
};

static void dir_end(struct ckm_handle *one)
{
	struct dir *d = (struct dir *)one;

	ckv_list_free(d->list);
	free(d);
}

void ckm_op_opendir(fuse_req_t req, fuse_ino_t ino,
		       struct fuse_file_info *fi)
{
	struct ckm_fs *fs = ckm_fs_of(req);
	struct ckv_node *node = ckm_nodes_get(fs->nodes, ino);
	struct ckpt_err err = { 0 };
	struct ckv_attr attr;
	struct dir *d;

	ckm_count(fs, CKM_OPENDIR, 1);
	if (!node) {
		fuse_reply_err(req, ESTALE);
		return;
	}
	d = calloc(1, sizeof(*d));
	int rc = d ? ckv_attr(node, &attr, &err) : ckb_err_nomem(&err);

	if (rc == 0)
		rc = ckv_list_new(node, &d->list, &err);
	if (rc == 0) {
		d->ino = attr.ino;
		d->live = ckm_lives(node);
	}
	ckv_put(node);
	if (rc < 0) {
		free(d);
		ckm_fail(req, rc, &err);
		return;
	}
	ckm_handles_add(&fs->handles, &d->handle, dir_end);
	fi->fh = (uint64_t)(uintptr_t)d;
	fi->cache_readdir = !d->live;
	fi->keep_cache = !d->live;
	if (fuse_reply_open(req, fi) != 0)
		ckm_handles_end(&fs->handles, &d->handle);
}

void ckm_op_releasedir(fuse_req_t req, fuse_ino_t ino,
			  struct fuse_file_info *fi)
{
	struct ckm_fs *fs = ckm_fs_of(req);

	(void)ino;
	ckm_count(fs, CKM_RELEASEDIR, 1);
	ckm_handles_end(&fs->handles, (struct ckm_handle *)(uintptr_t)fi->fh);
	fuse_reply_err(req, 0);
}

/* Entry @index of the folder with "." and ".." before the rest. */
static const char *dir_entry(const struct dir *d, size_t index,
			     struct stat *st)
{
	memset(st, 0, sizeof(*st));
	st->st_mode = S_IFDIR;
	st->st_ino = d->ino;
	if (index == 0)
		return ".";
	if (index == 1)
		return "..";
	index -= 2;
	if (index >= ckv_list_count(d->list))
		return NULL;
	st->st_ino = ckv_list_ino(d->list, index);
	if (ckv_list_is_link(d->list, index))
		st->st_mode = S_IFLNK;
	else if (!ckv_list_is_folder(d->list, index))
		st->st_mode = S_IFREG;
	return ckv_list_name(d->list, index);
}

void ckm_op_readdir(fuse_req_t req, fuse_ino_t ino, size_t size, off_t off,
		       struct fuse_file_info *fi)
{
	const struct dir *d = (const struct dir *)(uintptr_t)fi->fh;
	char *out = (char *)ckm_reply_buffer(size);
	size_t used = 0, index = (size_t)off;
	const char *name;
	struct stat st;

	(void)ino;
	ckm_count(ckm_fs_of(req), CKM_READDIR, 1);
	if (!out) {
		fuse_reply_err(req, ENOMEM);
		return;
	}
	while ((name = dir_entry(d, index, &st)) != NULL) {
		size_t need = fuse_add_direntry(req, out + used, size - used,
						name, &st, (off_t)index + 1);
		if (need > size - used)
			break;
		used += need;
		index++;
	}
	fuse_reply_buf(req, out, used);
}

/* READDIRPLUS entry @index; "." and "..", and what cannot be opened now, go
 * out by name only (id 0), which the kernel looks up when it needs to. */
static void plus_entry(struct ckm_fs *fs, const struct dir *d, size_t index,
		       const struct stat *st, struct fuse_entry_param *e)
{
	struct ckpt_err err = { 0 };
	struct ckv_node *node = NULL;

	if (index >= 2 &&
	    ckv_list_node(d->list, index - 2, &node, &err) == 0 &&
	    ckm_learn(fs, d->live, node, e, &err) == 0)
		return;
	memset(e, 0, sizeof(*e));
	e->attr = *st;
}

void ckm_op_readdirplus(fuse_req_t req, fuse_ino_t ino, size_t size,
			   off_t off, struct fuse_file_info *fi)
{
	struct ckm_fs *fs = ckm_fs_of(req);
	const struct dir *d = (const struct dir *)(uintptr_t)fi->fh;
	char *out = (char *)ckm_reply_buffer(size);
	size_t used = 0, index = (size_t)off;
	const char *name;
	struct stat st;

	(void)ino;
	ckm_count(fs, CKM_READDIR, 1);
	if (!out) {
		fuse_reply_err(req, ENOMEM);
		return;
	}
	while ((name = dir_entry(d, index, &st)) != NULL) {
		struct fuse_entry_param e;

		/* learn only what fits: ask for the length first */
		if (fuse_add_direntry_plus(req, NULL, 0, name, &e, 0) >
		    size - used)
			break;
		plus_entry(fs, d, index, &st, &e);
		used += fuse_add_direntry_plus(req, out + used, size - used,
					       name, &e, (off_t)index + 1);
		index++;
	}
	fuse_reply_buf(req, out, used);
}
