/* SPDX-License-Identifier: Apache-2.0 */
/*
 * ops.c - FUSE requests, answered from the tree.
 *
 * Everything under a checkpoint is immutable, so the kernel may keep entries,
 * attributes, folders and pages for ever; runs may change, so what stands in
 * them is asked for again after a second. A READ is answered in full, with
 * verified bytes, or with EIO (S6): never short, as that would cut the file
 * for every reader. Nothing is ever written: the mount is `ro`, and an open
 * for writing is EROFS here too. There are no xattr calls: absent handlers
 * are asked once, present ones twice per `ls -l` entry.
 *
 * Threads: libfuse's workers, in parallel; the tree takes care of itself. Each
 * request is answered exactly once on every path.
 */
#include "mount/internal.h"

#include <errno.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/statvfs.h>

#include "base/limits.h"
#include "base/log.h"
#include "base/sys.h"
#include "verbs/store.h"

#define FOREVER_S 1e9
#define LIVE_S 1.0
#define SIZE_AGE_NS 60000000000ll
#define BLOCK_BYTES 4096u

static struct ckm_fs *fs_of(fuse_req_t req)
{
	return fuse_req_userdata(req);
}

static int errno_of(int code)
{
	switch (code) {
	case CKPT_ENOENT:
		return ENOENT;
	case CKPT_ENOMEM:
		return ENOMEM;
	case CKPT_ESTALE:
		return ESTALE;
	case CKPT_EPERM:
		return EACCES;
	default:
		return EIO;
	}
}

/* A failed request: log what a user cannot see behind an errno. */
static int fail(fuse_req_t req, int code, const struct ckpt_err *err)
{
	if (code != CKPT_ENOENT)
		ckb_log(CKB_ERROR, "%s", err->message);
	return fuse_reply_err(req, errno_of(code));
}

static void fill_stat(const struct ckm_fs *fs, const struct ckv_attr *a,
		      struct stat *st)
{
	memset(st, 0, sizeof(*st));
	st->st_ino = a->ino;
	st->st_uid = fs->uid;
	st->st_gid = fs->gid;
	if (a->is_folder) {
		st->st_mode = S_IFDIR | 0555;
		st->st_nlink = 2 + a->subfolders;
	} else {
		st->st_mode = a->is_link ? S_IFLNK | 0777 : S_IFREG | 0444;
		st->st_nlink = 1;
	}
	st->st_size = (off_t)a->size;
	st->st_blocks = (blkcnt_t)ckb_div_up(a->size, 512);
	st->st_blksize = 256 << 10;
	st->st_mtim.tv_sec = a->time_ns / 1000000000;
	st->st_mtim.tv_nsec = a->time_ns % 1000000000;
	st->st_atim = st->st_mtim;
	st->st_ctim = st->st_mtim;
}

/* What stands in a run may be renamed, removed or replaced. */
static bool lives(const struct ckv_node *dir)
{
	enum ckv_kind kind = ckv_node_kind(dir);

	return kind == CKV_ROOT || kind == CKV_RUN;
}

/* Attributes of @node (taken) as an entry of a folder; the kernel learns of
 * it. On failure nothing is learnt. */
static int learn(struct ckm_fs *fs, bool parent_lives, struct ckv_node *node,
		 struct fuse_entry_param *e, struct ckpt_err *err)
{
	struct ckv_attr attr;
	int rc = ckv_attr(node, &attr, err);

	if (rc < 0) {
		ckv_put(node);
		return rc;
	}
	memset(e, 0, sizeof(*e));
	fill_stat(fs, &attr, &e->attr);
	e->attr_timeout = attr.immutable ? FOREVER_S : LIVE_S;
	e->entry_timeout = parent_lives ? LIVE_S : FOREVER_S;
	e->ino = ckm_nodes_learn(fs->nodes, node, attr.ino);
	return e->ino ? 0 : ckb_err_nomem(err);
}

static void op_init(void *userdata, struct fuse_conn_info *conn)
{
	struct ckm_fs *fs = userdata;

	/* contents never change: no revalidation at every read */
	conn->want &= ~(unsigned)FUSE_CAP_AUTO_INVAL_DATA;
	if (conn->capable & FUSE_CAP_EXPLICIT_INVAL_DATA)
		conn->want |= FUSE_CAP_EXPLICIT_INVAL_DATA;
	conn->max_background = 64;
	conn->congestion_threshold = 48;
	conn->time_gran = 1;
	if (fs->ready)
		fs->ready(fs->ready_ctx);
}

static void op_lookup(fuse_req_t req, fuse_ino_t parent, const char *name)
{
	struct ckm_fs *fs = fs_of(req);
	struct ckv_node *dir = ckm_nodes_get(fs->nodes, parent), *node = NULL;
	struct fuse_entry_param e = { 0 };
	struct ckpt_err err = { 0 };

	if (!dir) {
		fuse_reply_err(req, ESTALE);
		return;
	}
	bool live = lives(dir);
	int rc = ckv_lookup(dir, name, &node, &err);

	ckv_put(dir);
	if (rc == CKPT_ENOENT && !live) {
		e.entry_timeout = FOREVER_S; /* it never will be there */
		fuse_reply_entry(req, &e);
		return;
	}
	if (rc == 0)
		rc = learn(fs, live, node, &e, &err);
	if (rc < 0)
		fail(req, rc, &err);
	else if (fuse_reply_entry(req, &e) != 0)
		ckm_nodes_forget(fs->nodes, e.ino, 1);
}

static void op_forget(fuse_req_t req, fuse_ino_t ino, uint64_t nlookup)
{
	ckm_nodes_forget(fs_of(req)->nodes, ino, nlookup);
	fuse_reply_none(req);
}

static void op_forget_multi(fuse_req_t req, size_t count,
			    struct fuse_forget_data *forgets)
{
	for (size_t i = 0; i < count; i++)
		ckm_nodes_forget(fs_of(req)->nodes, forgets[i].ino,
				 forgets[i].nlookup);
	fuse_reply_none(req);
}

static void op_getattr(fuse_req_t req, fuse_ino_t ino,
		       struct fuse_file_info *fi)
{
	struct ckm_fs *fs = fs_of(req);
	struct ckv_node *node = ckm_nodes_get(fs->nodes, ino);
	struct ckpt_err err = { 0 };
	struct ckv_attr attr;
	struct stat st;

	(void)fi;
	if (!node) {
		fuse_reply_err(req, ESTALE);
		return;
	}
	int rc = ckv_attr(node, &attr, &err);

	ckv_put(node);
	if (rc < 0) {
		fail(req, rc, &err);
		return;
	}
	fill_stat(fs, &attr, &st);
	fuse_reply_attr(req, &st, attr.immutable ? FOREVER_S : LIVE_S);
}

static void op_readlink(fuse_req_t req, fuse_ino_t ino)
{
	struct ckv_node *node = ckm_nodes_get(fs_of(req)->nodes, ino);
	struct ckpt_err err = { 0 };
	CKB_BUF struct ckb_buf target = { 0 };

	if (!node) {
		fuse_reply_err(req, ESTALE);
		return;
	}
	int rc = ckv_readlink(node, &target, &err);

	ckv_put(node);
	if (rc < 0)
		fail(req, rc, &err);
	else
		fuse_reply_readlink(req, (const char *)target.data);
}

static void op_open(fuse_req_t req, fuse_ino_t ino, struct fuse_file_info *fi)
{
	struct ckm_fs *fs = fs_of(req);
	struct ckv_node *node;

	if ((fi->flags & O_ACCMODE) != O_RDONLY) {
		fuse_reply_err(req, EROFS);
		return;
	}
	node = ckm_nodes_get(fs->nodes, ino);
	if (!node) {
		fuse_reply_err(req, ESTALE);
		return;
	}
	/* the open file keeps the node, whatever the kernel forgets */
	fi->fh = (uint64_t)(uintptr_t)node;
	fi->keep_cache = 1;
	fi->noflush = 1;
	if (fuse_reply_open(req, fi) != 0)
		ckv_put(node);
}

static void op_release(fuse_req_t req, fuse_ino_t ino,
		       struct fuse_file_info *fi)
{
	(void)ino;
	ckv_put((struct ckv_node *)(uintptr_t)fi->fh);
	fuse_reply_err(req, 0);
}

/* One reply buffer per worker, freed when the worker ends. */
static pthread_key_t reply_key;
static pthread_once_t reply_once = PTHREAD_ONCE_INIT;

struct reply {
	size_t cap;
	uint8_t *data;
};

static void reply_free(void *p)
{
	struct reply *r = p;

	free(r->data);
	free(r);
}

static void reply_make(void)
{
	pthread_key_create(&reply_key, reply_free);
}

static uint8_t *reply_buffer(size_t size)
{
	pthread_once(&reply_once, reply_make);
	struct reply *r = pthread_getspecific(reply_key);

	if (!r) {
		r = calloc(1, sizeof(*r));
		if (!r)
			return NULL;
		pthread_setspecific(reply_key, r);
	}
	if (r->cap < size) {
		void *data = NULL;

		if (posix_memalign(&data, BLOCK_BYTES, size) != 0)
			return NULL;
		free(r->data);
		r->data = data;
		r->cap = size;
	}
	return r->data;
}

static void op_read(fuse_req_t req, fuse_ino_t ino, size_t size, off_t off,
		    struct fuse_file_info *fi)
{
	struct ckv_node *node = (struct ckv_node *)(uintptr_t)fi->fh;
	struct ckpt_err err = { 0 };
	uint8_t *data = reply_buffer(size);
	size_t len = 0;

	(void)ino;
	if (!data) {
		fuse_reply_err(req, ENOMEM);
		return;
	}
	int rc = ckv_read(node, (uint64_t)off, data, size, &len, &err);

	if (rc < 0)
		fail(req, rc, &err);
	else
		fuse_reply_buf(req, (const char *)data, len);
}

/* An open folder: one snapshot for all its READDIRs. */
struct dir {
	struct ckv_list *list;
	uint64_t ino, parent_ino;
	bool live;
};

static void dir_free(struct dir *d)
{
	if (d)
		ckv_list_free(d->list);
	free(d);
}

static void op_opendir(fuse_req_t req, fuse_ino_t ino,
		       struct fuse_file_info *fi)
{
	struct ckv_node *node = ckm_nodes_get(fs_of(req)->nodes, ino);
	struct ckpt_err err = { 0 };
	struct ckv_attr attr;
	struct dir *d;

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
		d->live = lives(node);
	}
	ckv_put(node);
	if (rc < 0) {
		dir_free(d);
		fail(req, rc, &err);
		return;
	}
	fi->fh = (uint64_t)(uintptr_t)d;
	fi->cache_readdir = !d->live;
	fi->keep_cache = !d->live;
	if (fuse_reply_open(req, fi) != 0)
		dir_free(d);
}

static void op_releasedir(fuse_req_t req, fuse_ino_t ino,
			  struct fuse_file_info *fi)
{
	(void)ino;
	dir_free((struct dir *)(uintptr_t)fi->fh);
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

static void op_readdir(fuse_req_t req, fuse_ino_t ino, size_t size, off_t off,
		       struct fuse_file_info *fi)
{
	const struct dir *d = (const struct dir *)(uintptr_t)fi->fh;
	char *out = (char *)reply_buffer(size);
	size_t used = 0, index = (size_t)off;
	const char *name;
	struct stat st;

	(void)ino;
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
	    learn(fs, d->live, node, e, &err) == 0)
		return;
	memset(e, 0, sizeof(*e));
	e->attr = *st;
}

static void op_readdirplus(fuse_req_t req, fuse_ino_t ino, size_t size,
			   off_t off, struct fuse_file_info *fi)
{
	struct ckm_fs *fs = fs_of(req);
	const struct dir *d = (const struct dir *)(uintptr_t)fi->fh;
	char *out = (char *)reply_buffer(size);
	size_t used = 0, index = (size_t)off;
	const char *name;
	struct stat st;

	(void)ino;
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

struct size_walk {
	const struct ckb_sys *sys;
	int dirfd;
	const char *folder;
	uint64_t bytes;
};

static int size_pack(void *ctx, const char *name, unsigned char type)
{
	struct size_walk *w = ctx;
	char path[PATH_MAX];
	struct stat st;

	(void)type;
	snprintf(path, sizeof(path), "%s/%s", w->folder, name);
	if (w->sys->fstatat(w->sys, w->dirfd, path, &st) == 0 &&
	    S_ISREG(st.st_mode))
		w->bytes += (uint64_t)st.st_size;
	return 0;
}

static int size_folder(void *ctx, const char *name, unsigned char type)
{
	struct size_walk *w = ctx;
	char path[300];

	(void)type;
	snprintf(path, sizeof(path), "packs/%s", name);
	w->folder = path;
	w->sys->list(w->sys, w->dirfd, path, size_pack, w);
	return 0;
}

/* Bytes of all packs; counted at most once a minute. */
static uint64_t store_bytes(struct ckm_fs *fs)
{
	struct size_walk w = { cks_store_sys(fs->store),
			       cks_store_dirfd(fs->store), NULL, 0 };
	int64_t now = w.sys->now_ns(w.sys);

	pthread_mutex_lock(&fs->size_lock);
	if (fs->size_at_ns == 0 || now - fs->size_at_ns > SIZE_AGE_NS) {
		w.sys->list(w.sys, w.dirfd, "packs", size_folder, &w);
		fs->size_bytes = w.bytes;
		fs->size_at_ns = now;
	}
	uint64_t bytes = fs->size_bytes;

	pthread_mutex_unlock(&fs->size_lock);
	return bytes;
}

static void op_statfs(fuse_req_t req, fuse_ino_t ino)
{
	struct ckm_fs *fs = fs_of(req);
	struct statvfs st = { 0 };

	(void)ino;
	st.f_bsize = BLOCK_BYTES;
	st.f_frsize = BLOCK_BYTES;
	st.f_blocks = ckb_div_up(store_bytes(fs), BLOCK_BYTES);
	st.f_files = ckm_nodes_count(fs->nodes);
	st.f_namemax = CKB_NAME_COMPONENT_MAX;
	fuse_reply_statfs(req, &st);
}

const struct fuse_lowlevel_ops *ckm_ops(void)
{
	static const struct fuse_lowlevel_ops ops = {
		.init = op_init,
		.lookup = op_lookup,
		.forget = op_forget,
		.forget_multi = op_forget_multi,
		.getattr = op_getattr,
		.readlink = op_readlink,
		.open = op_open,
		.read = op_read,
		.release = op_release,
		.opendir = op_opendir,
		.readdir = op_readdir,
		.readdirplus = op_readdirplus,
		.releasedir = op_releasedir,
		.statfs = op_statfs,
	};

	return &ops;
}
