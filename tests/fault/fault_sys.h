/* SPDX-License-Identifier: Apache-2.0 */
/*
 * fault_sys.h - an operating system whose n-th call fails.
 *
 * A call fails before it did anything or, where the caller cannot lose a
 * descriptor by it, after it did all, its answer lost. Calls of one save come
 * from several threads, but never two at a time: each thread hands over by a
 * lock or a join, so the fields need no lock of their own.
 */
#ifndef FAULT_SYS_H
#define FAULT_SYS_H

#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "base/sys.h"

#define FAULTY static __attribute__((unused))

enum when { BEFORE, AFTER };

/* The table is first: a call finds the rest behind it. */
struct faulty {
	struct ckb_sys sys;
	int left;            /* calls until the fault; 0: it was met */
	int error;
	enum when when;
	const char *sync_of; /* fsync of a path that ends so fails, or NULL */
	const char *close_of;
	size_t write_max;    /* a write does no more; 0: no bound */
	int unlinks, syncs_of;
	uint8_t tag;         /* of what is drawn at random */
};

FAULTY const struct ckb_sys *os;

/* Is it this call that fails? */
FAULTY bool hit(const struct ckb_sys *sys)
{
	struct faulty *f = (struct faulty *)(uintptr_t)sys;

	return f->left > 0 && --f->left == 0;
}

FAULTY struct faulty *faulty(const struct ckb_sys *sys)
{
	return (struct faulty *)(uintptr_t)sys;
}

FAULTY bool after(const struct ckb_sys *sys)
{
	return faulty(sys)->when == AFTER;
}

FAULTY int error_of(const struct ckb_sys *sys)
{
	return -faulty(sys)->error;
}

FAULTY bool ends_with(int fd, const char *end)
{
	char link[64], path[4096];

	snprintf(link, sizeof(link), "/proc/self/fd/%d", fd);
	ssize_t n = readlink(link, path, sizeof(path) - 1);
	size_t len = strlen(end);

	return n >= (ssize_t)len && memcmp(path + n - len, end, len) == 0;
}

/* A call that leaves no descriptor behind when its answer is lost. */
#define FAIL_OR(call) \
	do { \
		if (!hit(sys)) \
			return call; \
		if (after(sys)) \
			(void)call; \
		return error_of(sys); \
	} while (0)

FAULTY int f_openat(const struct ckb_sys *sys, int dirfd, const char *path,
		    int flags, mode_t mode)
{
	return hit(sys) ? error_of(sys)
			: os->openat(os, dirfd, path, flags, mode);
}

FAULTY int f_close(const struct ckb_sys *sys, int fd)
{
	bool named = faulty(sys)->close_of &&
		     ends_with(fd, faulty(sys)->close_of);
	int rc = os->close(os, fd); /* as Linux: closed in any case */

	return hit(sys) || named ? error_of(sys) : rc;
}

FAULTY ssize_t f_pread(const struct ckb_sys *sys, int fd, void *dst,
		       size_t len, uint64_t off)
{
	return hit(sys) ? error_of(sys) : os->pread(os, fd, dst, len, off);
}

FAULTY ssize_t f_pwrite(const struct ckb_sys *sys, int fd, const void *src,
			size_t len, uint64_t off)
{
	size_t max = faulty(sys)->write_max;

	if (max && len > max)
		len = max;
	if (!hit(sys))
		return os->pwrite(os, fd, src, len, off);
	if (after(sys)) /* half of it got there */
		(void)!os->pwrite(os, fd, src, len / 2, off);
	return error_of(sys);
}

FAULTY int f_fsync(const struct ckb_sys *sys, int fd)
{
	struct faulty *f = faulty(sys);

	if (f->sync_of && ends_with(fd, f->sync_of)) {
		f->syncs_of++;
		return error_of(sys);
	}
	FAIL_OR(os->fsync(os, fd));
}

FAULTY int f_fdatasync(const struct ckb_sys *sys, int fd)
{
	FAIL_OR(os->fdatasync(os, fd));
}

FAULTY int f_sync_range(const struct ckb_sys *sys, int fd, uint64_t off,
			uint64_t len)
{
	FAIL_OR(os->sync_range(os, fd, off, len));
}

FAULTY int f_fallocate(const struct ckb_sys *sys, int fd, uint64_t off,
		       uint64_t len)
{
	FAIL_OR(os->fallocate(os, fd, off, len));
}

FAULTY int f_ftruncate(const struct ckb_sys *sys, int fd, uint64_t len)
{
	FAIL_OR(os->ftruncate(os, fd, len));
}

FAULTY int f_mkdirat(const struct ckb_sys *sys, int dirfd, const char *path,
		     mode_t mode)
{
	FAIL_OR(os->mkdirat(os, dirfd, path, mode));
}

FAULTY int f_linkat(const struct ckb_sys *sys, int from_dirfd,
		    const char *from, int to_dirfd, const char *to)
{
	FAIL_OR(os->linkat(os, from_dirfd, from, to_dirfd, to));
}

FAULTY int f_renameat(const struct ckb_sys *sys, int from_dirfd,
		      const char *from, int to_dirfd, const char *to)
{
	FAIL_OR(os->renameat(os, from_dirfd, from, to_dirfd, to));
}

FAULTY int f_unlinkat(const struct ckb_sys *sys, int dirfd, const char *path,
		      int flags)
{
	faulty(sys)->unlinks++;
	FAIL_OR(os->unlinkat(os, dirfd, path, flags));
}

FAULTY int f_fstat(const struct ckb_sys *sys, int fd, struct stat *out)
{
	return hit(sys) ? error_of(sys) : os->fstat(os, fd, out);
}

FAULTY int f_fstatat(const struct ckb_sys *sys, int dirfd, const char *path,
		     struct stat *out)
{
	return hit(sys) ? error_of(sys) : os->fstatat(os, dirfd, path, out);
}

FAULTY int f_list(const struct ckb_sys *sys, int dirfd, const char *path,
		  ckb_dirent_fn fn, void *ctx)
{
	FAIL_OR(os->list(os, dirfd, path, fn, ctx));
}

FAULTY int f_flock(const struct ckb_sys *sys, int fd, int op)
{
	FAIL_OR(os->flock(os, fd, op));
}

FAULTY int f_fs_magic(const struct ckb_sys *sys, int fd, uint64_t *out)
{
	FAIL_OR(os->fs_magic(os, fd, out));
}

/* No two alike, and uuids begin with @tag: whether a pack's folder is there
 * already follows from the test, so a body makes the same calls each time. */
FAULTY int f_random(const struct ckb_sys *sys, void *dst, size_t len)
{
	static uint32_t drawn;
	bool fails = hit(sys);

	if (fails && !after(sys))
		return error_of(sys);
	memset(dst, faulty(sys)->tag, len);
	drawn++;
	if (len >= 16)
		memcpy((char *)dst + 12, &drawn, sizeof(drawn));
	return fails ? error_of(sys) : 0;
}

FAULTY struct faulty faulty_new(int left, int error, enum when when)
{
	os = ckb_sys_real();
	return (struct faulty){
		.sys = {
			f_openat, f_close, f_pread, f_pwrite, f_fsync,
			f_fdatasync, f_sync_range, f_fallocate, f_ftruncate,
			f_mkdirat, f_linkat, f_renameat, f_unlinkat, f_fstat,
			f_fstatat, f_list, f_flock, f_fs_magic, f_random,
			os->now_ns,
		},
		.left = left, .error = error, .when = when,
	};
}

FAULTY const int errors[] = { EIO, ENOSPC, EMFILE, EROFS, ESTALE, ENOENT };

#endif
