/* SPDX-License-Identifier: Apache-2.0 */
/*
 * status.c - what a mount says of itself: statfs, and the status file.
 *
 * The file MNT/.ckptfs is there by name and in no listing, so that `ls -R`,
 * `cp -r` and `grep -r` never meet it. Its text is one "NAME VALUE" a line;
 * new names may be added, none changes its meaning.
 *
 * Threads: any; figures are relaxed atomics, each right on its own.
 */
#include "mount/internal.h"

#include <dirent.h>
#include <errno.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/statvfs.h>

#include "base/limits.h"
#include "base/sys.h"
#include "verbs/cells.h"
#include "verbs/store.h"

#define SIZE_AGE_NS 60000000000ll
#define BLOCK_BYTES 4096u

/* ---- statfs ---- */

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

/* Bytes of all packs; counted at most once a minute, by one thread. Meanwhile
 * others say what was counted before: no worker waits for a walk. */
static uint64_t store_bytes(struct ckm_fs *fs)
{
	struct size_walk w = { cks_store_sys(fs->store),
			       cks_store_dirfd(fs->store), NULL, 0 };
	int64_t now = w.sys->now_ns(w.sys);

	pthread_mutex_lock(&fs->size_lock);
	bool mine = !fs->size_busy && (fs->size_at_ns == 0 ||
				       now - fs->size_at_ns > SIZE_AGE_NS);

	fs->size_busy = fs->size_busy || mine;
	uint64_t bytes = fs->size_bytes;

	pthread_mutex_unlock(&fs->size_lock);
	if (!mine)
		return bytes;
	w.sys->list(w.sys, w.dirfd, "packs", size_folder, &w);
	pthread_mutex_lock(&fs->size_lock);
	fs->size_bytes = w.bytes;
	fs->size_at_ns = now;
	fs->size_busy = false;
	pthread_mutex_unlock(&fs->size_lock);
	return w.bytes;
}

void ckm_op_statfs(fuse_req_t req, fuse_ino_t ino)
{
	struct ckm_fs *fs = ckm_fs_of(req);
	struct statvfs st = { 0 };

	(void)ino;
	ckm_count(fs, CKM_STATFS, 1);
	st.f_bsize = BLOCK_BYTES;
	st.f_frsize = BLOCK_BYTES;
	st.f_blocks = ckb_div_up(store_bytes(fs), BLOCK_BYTES);
	st.f_files = ckm_nodes_count(fs->nodes);
	st.f_namemax = CKB_NAME_COMPONENT_MAX;
	fuse_reply_statfs(req, &st);
}

/* ---- the status file ---- */

static uint64_t count_entries(const char *path)
{
	DIR *d = opendir(path);
	uint64_t n = 0;

	if (!d)
		return 0;
	while (readdir(d))
		n++;
	closedir(d);
	return n - 2; /* "." and ".." */
}

static uint64_t resident_bytes(void)
{
	FILE *f = fopen("/proc/self/statm", "re");
	unsigned long long pages = 0;

	if (!f)
		return 0;
	if (fscanf(f, "%*u %llu", &pages) != 1)
		pages = 0;
	fclose(f);
	return pages * (uint64_t)sysconf(_SC_PAGESIZE);
}

static void line(struct ckb_buf *out, const char *name, uint64_t value)
{
	ckb_buf_printf(out, "%s %llu\n", name, (unsigned long long)value);
}

int ckm_status_text(struct ckm_fs *fs, struct ckb_buf *out,
		    struct ckpt_err *err)
{
	static const char *const names[CKM_COUNTERS] = {
		[CKM_LOOKUP] = "requests.lookup",
		[CKM_FORGET] = "requests.forget",
		[CKM_GETATTR] = "requests.getattr",
		[CKM_READLINK] = "requests.readlink",
		[CKM_OPEN] = "requests.open",
		[CKM_READ] = "requests.read",
		[CKM_RELEASE] = "requests.release",
		[CKM_OPENDIR] = "requests.opendir",
		[CKM_READDIR] = "requests.readdir",
		[CKM_RELEASEDIR] = "requests.releasedir",
		[CKM_STATFS] = "requests.statfs",
		[CKM_XATTR] = "requests.xattr",
		[CKM_ERRORS] = "errors",
		[CKM_BYTES] = "bytes.served",
	};
	const struct ckb_sys *sys = cks_store_sys(fs->store);
	struct cks_cells_counters cells;
	struct ckv_counts tree;

	cks_cells_counters(fs->store, &cells);
	ckv_counts(fs->tree, &tree);
	for (int i = 0; i < CKM_COUNTERS; i++)
		line(out, names[i],
		     atomic_load_explicit(&fs->counters[i],
					  memory_order_relaxed));
	line(out, "cells.hits", cells.hits);
	line(out, "cells.decoded", cells.misses);
	line(out, "cells.decoded_bytes", cells.decoded_bytes);
	line(out, "cells.held_bytes", cells.held_bytes);
	line(out, "checkpoints.open", tree.open);
	line(out, "checkpoints.known", tree.known);
	line(out, "manifests.descriptors", tree.descriptors);
	line(out, "nodes", ckm_nodes_count(fs->nodes));
	line(out, "descriptors", count_entries("/proc/self/fd"));
	line(out, "threads", count_entries("/proc/self/task"));
	line(out, "memory.resident_bytes", resident_bytes());
	line(out, "seconds.up",
	     (uint64_t)((sys->now_ns(sys) - fs->start_ns) / 1000000000));
	line(out, "pid", (uint64_t)getpid());
	return out->failed ? ckb_err_nomem(err) : 0;
}

/* ---- reading it, in another process ---- */

int ckm_stat(const char *dir, ckm_stat_fn fn, void *ctx, struct ckpt_err *err)
{
	CKB_FREE char *point = NULL, *path = NULL;
	char name[64];
	unsigned long long value;
	int rc = ckm_point_find(dir, "say how", &point, err);

	if (rc < 0)
		return rc;
	if (asprintf(&path, "%s/%s", point, CKM_STATUS_NAME) < 0) {
		path = NULL;
		return ckb_err_nomem(err);
	}
	FILE *f = fopen(path, "re");

	if (!f && errno == ENOTCONN)
		return ckb_err(err, CKPT_EIO, "the daemon of mount '%s' is "
			       "gone; clear it with: ckptfs umount '%s'", dir,
			       dir);
	if (!f)
		return ckb_err_sys(err, errno, "cannot ask mount '%s'", dir);
	while (rc == 0 && fscanf(f, "%63s %llu", name, &value) == 2)
		rc = fn(ctx, name, value);
	if (rc == 0 && (ferror(f) || !feof(f)))
		rc = ckb_err(err, CKPT_EIO, "cannot read what mount '%s' says",
			     dir);
	fclose(f);
	return rc;
}
