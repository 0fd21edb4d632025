/* SPDX-License-Identifier: Apache-2.0 */
/*
 * base/sys.h - the operating system, as a table.
 *
 * Everything that touches files goes through a struct ckb_sys, so that tests
 * fail the n-th call or record writes, syncs and renames. Calls return >= 0,
 * or a negative errno. Paths are relative to a directory descriptor.
 *
 * The helpers below loop on short counts and EINTR and fill in @err; @what in
 * them names the file for the message.
 */
#ifndef CKB_SYS_H
#define CKB_SYS_H

#include <fcntl.h>
#include <sys/stat.h>
#include <sys/types.h>
#include <sys/uio.h>
#include <time.h>

#include "base/err.h"

/* One name of a folder; @type is DT_* or DT_UNKNOWN. Non-zero stops. */
typedef int (*ckb_dirent_fn)(void *ctx, const char *name, unsigned char type);

struct ckb_sys {
	int (*openat)(const struct ckb_sys *sys, int dirfd, const char *path,
		      int flags, mode_t mode);
	int (*close)(const struct ckb_sys *sys, int fd);
	ssize_t (*pread)(const struct ckb_sys *sys, int fd, void *dst,
			 size_t len, uint64_t off);
	ssize_t (*pwrite)(const struct ckb_sys *sys, int fd, const void *src,
			  size_t len, uint64_t off);
	ssize_t (*pwritev)(const struct ckb_sys *sys, int fd,
			   const struct iovec *iov, int count, uint64_t off);
	int (*fsync)(const struct ckb_sys *sys, int fd);
	int (*fdatasync)(const struct ckb_sys *sys, int fd);
	int (*sync_range)(const struct ckb_sys *sys, int fd, uint64_t off,
			  uint64_t len); /* start write-out; advice only */
	int (*fallocate)(const struct ckb_sys *sys, int fd, uint64_t off,
			 uint64_t len);
	int (*ftruncate)(const struct ckb_sys *sys, int fd, uint64_t len);
	int (*mkdirat)(const struct ckb_sys *sys, int dirfd, const char *path,
		       mode_t mode);
	int (*linkat)(const struct ckb_sys *sys, int from_dirfd,
		      const char *from, int to_dirfd, const char *to);
	int (*renameat)(const struct ckb_sys *sys, int from_dirfd,
			const char *from, int to_dirfd, const char *to);
	int (*unlinkat)(const struct ckb_sys *sys, int dirfd, const char *path,
			int flags);
	int (*fstat)(const struct ckb_sys *sys, int fd, struct stat *out);
	int (*fstatat)(const struct ckb_sys *sys, int dirfd, const char *path,
		       struct stat *out); /* follows no symbolic link */
	int (*list)(const struct ckb_sys *sys, int dirfd, const char *path,
		    ckb_dirent_fn fn, void *ctx); /* not "." and ".." */
	int (*flock)(const struct ckb_sys *sys, int fd, int op);
	/* f_type of statfs(2), for telling network file systems */
	int (*fs_magic)(const struct ckb_sys *sys, int fd, uint64_t *out);
	int (*random)(const struct ckb_sys *sys, void *dst, size_t len);
	int64_t (*now_ns)(const struct ckb_sys *sys); /* wall clock */
};

/* @t in nanoseconds; years that do not fit, as 1600 and 2400, are clamped. */
int64_t ckb_time_ns(const struct timespec *t);

/* The real one. */
const struct ckb_sys *ckb_sys_real(void);

CKB_MUST int ckb_pread_full(const struct ckb_sys *sys, int fd, void *dst,
			    size_t len, uint64_t off, const char *what,
			    struct ckpt_err *err); /* early: CKPT_ECORRUPT */
CKB_MUST int ckb_pwrite_full(const struct ckb_sys *sys, int fd,
			     const void *src, size_t len, uint64_t off,
			     const char *what, struct ckpt_err *err);

/* @iov is used up. */
CKB_MUST int ckb_pwritev_full(const struct ckb_sys *sys, int fd,
			      struct iovec *iov, int count, uint64_t off,
			      const char *what, struct ckpt_err *err);

/* Whole small file into @out (a buf with init/fini by the caller); over
 * @max bytes is CKPT_ELIMIT. */
struct ckb_buf;
CKB_MUST int ckb_read_file(const struct ckb_sys *sys, int dirfd,
			   const char *path, size_t max, struct ckb_buf *out,
			   struct ckpt_err *err);

/* Create @path (must not exist), write, fsync, close. */
CKB_MUST int ckb_write_file(const struct ckb_sys *sys, int dirfd,
			    const char *path, const void *data, size_t len,
			    struct ckpt_err *err);

/* fsync of folder @path under @dirfd. A file system that cannot sync folders
 * (EINVAL, ENOSYS, EOPNOTSUPP) has done what it can: 0, or, where a promise
 * hangs on it (S3), CKPT_EUNSURE. */
CKB_MUST int ckb_sync_dir(const struct ckb_sys *sys, int dirfd,
			  const char *path, struct ckpt_err *err);
CKB_MUST int ckb_sync_dir_surely(const struct ckb_sys *sys, int dirfd,
				 const char *path, struct ckpt_err *err);

/* mkdir -p of @path under @dirfd, each new folder's parent synced (S2). */
CKB_MUST int ckb_make_dirs(const struct ckb_sys *sys, int dirfd,
			   const char *path, struct ckpt_err *err);

#endif
