/* SPDX-License-Identifier: Apache-2.0 */
/*
 * ops.c - FUSE requests, answered from the tree: names, attributes, reads.
 *
 * Everything under a checkpoint is immutable, so the kernel may keep entries,
 * attributes, folders and pages for ever; runs may change, so what stands in
 * them is asked for again after half a second: what is new, gone, renamed or
 * replaced is seen within a second: a replaced checkpoint is another node, with
 * other pages. No request notifies the kernel of anything, so none can wait for
 * one of its own (the deadlock of other mounts); sweep.c does, apart.
 *
 * A READ is answered in full, with verified bytes, or with EIO (S6): never
 * short, as that would cut the file for every reader. Nothing is ever written:
 * the mount is `ro`, and an open for writing is EROFS here too. Without
 * `-o xattr` there are no xattr calls: absent handlers are asked once, present
 * ones twice per `ls -l` entry.
 *
 * Threads: libfuse's workers, in parallel; the tree takes care of itself. Each
 * request is answered exactly once on every path.
 */
#include "mount/internal.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/limits.h"
#include "base/log.h"

#define BLOCK_BYTES 4096u
#define NS 1000000000

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

/* Logs what a user cannot see behind an errno. */
void ckm_fail(fuse_req_t req, int code, const struct ckpt_err *err)
{
	if (code != CKPT_ENOENT) {
		ckm_count(ckm_fs_of(req), CKM_ERRORS, 1);
		ckb_log(CKB_ERROR, "%s", err->message);
	}
	fuse_reply_err(req, errno_of(code));
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
	st->st_mode &= ~fs->umask;
	st->st_size = (off_t)a->size;
	st->st_blocks = (blkcnt_t)ckb_div_up(a->size, 512);
	st->st_blksize = 256 << 10;
	/* before 1970 too the nanoseconds count forward */
	st->st_mtim.tv_nsec = (a->time_ns % NS + NS) % NS;
	st->st_mtim.tv_sec = (a->time_ns - st->st_mtim.tv_nsec) / NS;
	st->st_atim = st->st_mtim;
	st->st_ctim = st->st_mtim;
}

bool ckm_lives(const struct ckv_node *dir)
{
	enum ckv_kind kind = ckv_node_kind(dir);

	return kind == CKV_ROOT || kind == CKV_RUN;
}

int ckm_learn(struct ckm_fs *fs, bool parent_lives, struct ckv_node *node,
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
	e->attr_timeout = attr.immutable ? CKM_FOREVER_S : CKM_LIVE_S;
	e->entry_timeout = parent_lives ? CKM_LIVE_S : CKM_FOREVER_S;
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

void ckm_asked(struct ckm_fs *fs)
{
	if (!atomic_exchange_explicit(&fs->asked, true, memory_order_relaxed))
		ckm_point_readahead(fs->minor);
}

/* As procfs: no size, read to the end. */
static void status_stat(const struct ckm_fs *fs, struct stat *st)
{
	struct ckv_attr a = { .ino = CKM_STATUS_INO, .time_ns = fs->start_ns };

	fill_stat(fs, &a, st);
}

static void op_lookup(fuse_req_t req, fuse_ino_t parent, const char *name)
{
	struct ckm_fs *fs = ckm_fs_of(req);
	struct ckv_node *dir = ckm_nodes_get(fs->nodes, parent), *node = NULL;
	struct fuse_entry_param e = { 0 };
	struct ckpt_err err = { 0 };

	ckm_count(fs, CKM_LOOKUP, 1);
	if (parent == FUSE_ROOT_ID && strcmp(name, CKM_STATUS_NAME) == 0) {
		ckv_put(dir);
		e.ino = CKM_STATUS_INO;
		e.entry_timeout = e.attr_timeout = CKM_FOREVER_S;
		status_stat(fs, &e.attr);
		fuse_reply_entry(req, &e);
		return;
	}
	if (!dir) {
		fuse_reply_err(req, ESTALE);
		return;
	}
	bool live = ckm_lives(dir);
	int rc = ckv_lookup(dir, name, &node, &err);

	ckv_put(dir);
	if (rc == CKPT_ENOENT && !live) {
		e.entry_timeout = CKM_FOREVER_S; /* it never will be there */
		fuse_reply_entry(req, &e);
		return;
	}
	if (rc == 0)
		rc = ckm_learn(fs, live, node, &e, &err);
	if (rc < 0)
		ckm_fail(req, rc, &err);
	else if (fuse_reply_entry(req, &e) != 0)
		ckm_nodes_forget(fs->nodes, e.ino, 1);
}

static void op_forget(fuse_req_t req, fuse_ino_t ino, uint64_t nlookup)
{
	ckm_count(ckm_fs_of(req), CKM_FORGET, 1);
	ckm_nodes_forget(ckm_fs_of(req)->nodes, ino, nlookup);
	fuse_reply_none(req);
}

static void op_forget_multi(fuse_req_t req, size_t count,
			    struct fuse_forget_data *forgets)
{
	ckm_count(ckm_fs_of(req), CKM_FORGET, count);
	for (size_t i = 0; i < count; i++)
		ckm_nodes_forget(ckm_fs_of(req)->nodes, forgets[i].ino,
				 forgets[i].nlookup);
	fuse_reply_none(req);
}

static void op_getattr(fuse_req_t req, fuse_ino_t ino,
		       struct fuse_file_info *fi)
{
	struct ckm_fs *fs = ckm_fs_of(req);
	struct ckv_node *node = ckm_nodes_get(fs->nodes, ino);
	struct ckpt_err err = { 0 };
	struct ckv_attr attr;
	struct stat st;

	(void)fi;
	ckm_count(fs, CKM_GETATTR, 1);
	if (ino == CKM_STATUS_INO) {
		status_stat(fs, &st);
		fuse_reply_attr(req, &st, CKM_FOREVER_S);
		return;
	}
	if (!node) {
		fuse_reply_err(req, ESTALE);
		return;
	}
	int rc = ckv_attr(node, &attr, &err);

	ckv_put(node);
	if (rc < 0) {
		ckm_fail(req, rc, &err);
		return;
	}
	fill_stat(fs, &attr, &st);
	fuse_reply_attr(req, &st, attr.immutable ? CKM_FOREVER_S : CKM_LIVE_S);
}

static void op_readlink(fuse_req_t req, fuse_ino_t ino)
{
	struct ckv_node *node = ckm_nodes_get(ckm_fs_of(req)->nodes, ino);
	struct ckpt_err err = { 0 };
	CKB_BUF struct ckb_buf target = { 0 };

	ckm_count(ckm_fs_of(req), CKM_READLINK, 1);
	if (!node) {
		fuse_reply_err(req, ESTALE);
		return;
	}
	int rc = ckv_readlink(node, &target, &err);

	ckv_put(node);
	if (rc < 0)
		ckm_fail(req, rc, &err);
	else
		fuse_reply_readlink(req, (const char *)target.data);
}

/* An open file. */
struct file {
	struct ckm_handle handle; /* first */
	struct ckv_node *node;    /* kept, whatever the kernel forgets */
	struct ckb_buf text;      /* of the status file, which has no node */
};

static void file_end(struct ckm_handle *one)
{
	struct file *f = (struct file *)one;

	if (f->node) {
		ckv_release(f->node);
		ckv_put(f->node);
	}
	ckb_buf_fini(&f->text);
	free(f);
}

static struct file *file_of(const struct fuse_file_info *fi)
{
	return (struct file *)(uintptr_t)fi->fh;
}

static int file_open(struct ckm_fs *fs, fuse_ino_t ino, struct file *f,
		     struct ckpt_err *err)
{
	/* a snapshot for each open, so that lines fit each other */
	if (ino == CKM_STATUS_INO)
		return ckm_status_text(fs, &f->text, err);
	struct ckv_node *node = ckm_nodes_get(fs->nodes, ino);
	int rc = node ? ckv_hold(node, err) : CKPT_ESTALE;

	if (rc == 0)
		f->node = CKB_TAKE(node);
	ckv_put(node);
	return rc;
}

static void op_open(fuse_req_t req, fuse_ino_t ino, struct fuse_file_info *fi)
{
	struct ckm_fs *fs = ckm_fs_of(req);

	ckm_count(fs, CKM_OPEN, 1);
	if ((fi->flags & O_ACCMODE) != O_RDONLY) {
		fuse_reply_err(req, EROFS);
		return;
	}
	struct file *f = calloc(1, sizeof(*f));
	struct ckpt_err err = { 0 };
	int rc = f ? file_open(fs, ino, f, &err) : ckb_err_nomem(&err);

	if (rc < 0) {
		if (f)
			file_end(&f->handle);
		ckm_fail(req, rc, &err);
		return;
	}
	ckm_handles_add(&fs->handles, &f->handle, file_end);
	fi->fh = (uint64_t)(uintptr_t)f;
	fi->direct_io = ino == CKM_STATUS_INO;
	fi->keep_cache = ino != CKM_STATUS_INO;
	fi->noflush = 1;
	if (fuse_reply_open(req, fi) != 0)
		ckm_handles_end(&fs->handles, &f->handle);
}

static void op_release(fuse_req_t req, fuse_ino_t ino,
		       struct fuse_file_info *fi)
{
	struct ckm_fs *fs = ckm_fs_of(req);

	(void)ino;
	ckm_count(fs, CKM_RELEASE, 1);
	ckm_handles_end(&fs->handles, &file_of(fi)->handle);
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

uint8_t *ckm_reply_buffer(size_t size)
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

/* A pack that is missing is damage, unless its checkpoint went before it. */
static int read_failed(struct ckv_node *node, int code,
		       const struct ckpt_err *err)
{
	return code == CKPT_ECORRUPT && err->sys_errno == ENOENT &&
	       ckv_gone(node) ? CKPT_ESTALE : code;
}

static void op_read(fuse_req_t req, fuse_ino_t ino, size_t size, off_t off,
		    struct fuse_file_info *fi)
{
	const struct file *f = file_of(fi);
	struct ckm_fs *fs = ckm_fs_of(req);
	struct ckpt_err err = { 0 };
	uint8_t *data = ckm_reply_buffer(size);
	size_t len = 0;

	ckm_count(fs, CKM_READ, 1);
	if (!data) {
		fuse_reply_err(req, ENOMEM);
		return;
	}
	if (ino == CKM_STATUS_INO) {
		const struct ckb_buf *b = &f->text;
		size_t at = (size_t)ckb_min_u64((uint64_t)off, b->len);

		/* once the kernel has it, a RELEASE may free the text while
		 * this thread still returns from the call */
		len = (size_t)ckb_min_u64(size, b->len - at);
		memcpy(data, b->data + at, len);
		fuse_reply_buf(req, (const char *)data, len);
		return;
	}
	int rc = ckv_read(f->node, (uint64_t)off, data, size, &len, &err);

	if (rc < 0) {
		ckm_fail(req, read_failed(f->node, rc, &err), &err);
		return;
	}
	ckm_count(fs, CKM_BYTES, len);
	fuse_reply_buf(req, (const char *)data, len);
}

const struct fuse_lowlevel_ops *ckm_ops(bool xattr)
{
#define OPS \
	.init = op_init, .lookup = op_lookup, .forget = op_forget, \
	.forget_multi = op_forget_multi, .getattr = op_getattr, \
	.readlink = op_readlink, .open = op_open, .read = op_read, \
	.release = op_release, .opendir = ckm_op_opendir, \
	.readdir = ckm_op_readdir, .readdirplus = ckm_op_readdirplus, \
	.releasedir = ckm_op_releasedir, .statfs = ckm_op_statfs
	static const struct fuse_lowlevel_ops plain = { OPS };
	static const struct fuse_lowlevel_ops with_xattr = {
		OPS, .getxattr = ckm_op_getxattr,
		.listxattr = ckm_op_listxattr,
	};
#undef OPS

	return xattr ? &with_xattr : &plain;
}
