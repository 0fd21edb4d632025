/* SPDX-License-Identifier: Apache-2.0 */
/*
 * fault_sys.c - see fault_sys.h.
 *
 * A failing close closes in any case: as on Linux the descriptor is gone
 * whatever it answers. A failing open never opens, as nobody could close what
 * it made.
 */
#include "fault_sys.h"

#include <limits.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#define OS ckb_sys_real()

static struct fault_sys *of(const struct ckb_sys *sys)
{
	return (struct fault_sys *)(uintptr_t)sys;
}

static bool ends_with(int fd, const char *end)
{
	char link[64], path[4096];

	snprintf(link, sizeof(link), "/proc/self/fd/%d", fd);
	ssize_t n = readlink(link, path, sizeof(path));
	ssize_t len = (ssize_t)strlen(end);

	return n >= len && memcmp(path + n - len, end, (size_t)len) == 0;
}

/* 0, or the negative errno that this call must fail with. @fd: -1 for none. */
static int fault(const struct ckb_sys *sys, enum fault_kind kind, int fd)
{
	struct fault_sys *f = of(sys);

	atomic_fetch_add(&f->made[kind], 1);
	if ((f->kinds && !(f->kinds & FAULT_BIT(kind))) ||
	    (f->path_end && !ends_with(fd, f->path_end)))
		return 0;
	int n = atomic_fetch_add(&f->calls, 1) + 1;

	if (f->fail_at == 0 || n < f->fail_at ||
	    n - f->fail_at >= f->fail_count)
		return 0;
	atomic_store(&f->met, true);
	return -f->error;
}

/* @call, unless it must fail. */
#define FAIL_OR(kind, fd, call) \
	do { \
		int rc_ = fault(sys, kind, fd); \
		if (rc_ == 0) \
			return call; \
		if (of(sys)->when == FAULT_AFTER) \
			(void)call; \
		return rc_; \
	} while (0)

static size_t few(const struct ckb_sys *sys, size_t len)
{
	size_t max = of(sys)->move_max;

	return max && len > max ? max : len;
}

static int f_openat(const struct ckb_sys *sys, int dirfd, const char *path,
		    int flags, mode_t mode)
{
	int rc = fault(sys, FAULT_OPEN, -1);

	if (rc == 0)
		rc = OS->openat(OS, dirfd, path, flags, mode);
	if (rc >= 0 && rc < FAULT_FD_MAX) {
		atomic_store(&of(sys)->open[rc], 1);
		atomic_store(&of(sys)->lost[rc], 0);
	}
	return rc;
}

static int f_close(const struct ckb_sys *sys, int fd)
{
	int rc = fault(sys, FAULT_CLOSE, fd);

	if (fd >= 0 && fd < FAULT_FD_MAX)
		atomic_store(&of(sys)->open[fd], 0);
	int done = OS->close(OS, fd);

	return rc ? rc : done;
}

static ssize_t f_pread(const struct ckb_sys *sys, int fd, void *dst,
		       size_t len, uint64_t off)
{
	FAIL_OR(FAULT_READ, fd, OS->pread(OS, fd, dst, few(sys, len), off));
}

static ssize_t f_pwrite(const struct ckb_sys *sys, int fd, const void *src,
			size_t len, uint64_t off)
{
	int rc = fault(sys, FAULT_WRITE, fd);

	if (rc == 0)
		return OS->pwrite(OS, fd, src, few(sys, len), off);
	if (of(sys)->when == FAULT_AFTER) /* half of it got there */
		(void)OS->pwrite(OS, fd, src, len / 2, off);
	return rc;
}

/* A short write is legal, so each piece is a call that can fail. */
static ssize_t f_pwritev(const struct ckb_sys *sys, int fd,
			 const struct iovec *iov, int count, uint64_t off)
{
	(void)count;
	return f_pwrite(sys, fd, iov->iov_base, iov->iov_len, off);
}

static int f_fsync(const struct ckb_sys *sys, int fd)
{
	struct fault_sys *f = of(sys);
	bool known = fd >= 0 && fd < FAULT_FD_MAX;
	int rc = fault(sys, FAULT_FSYNC, fd);

	if (known && atomic_load(&f->lost[fd]))
		atomic_fetch_add(&f->synced_again, 1);
	if (rc == 0)
		rc = OS->fsync(OS, fd);
	else if (f->when == FAULT_AFTER)
		(void)OS->fsync(OS, fd);
	if (known && rc < 0)
		atomic_store(&f->lost[fd], 1);
	return rc;
}

static int f_fdatasync(const struct ckb_sys *sys, int fd)
{
	FAIL_OR(FAULT_FDATASYNC, fd, OS->fdatasync(OS, fd));
}

static int f_sync_range(const struct ckb_sys *sys, int fd, uint64_t off,
			uint64_t len)
{
	FAIL_OR(FAULT_SYNC_RANGE, fd, OS->sync_range(OS, fd, off, len));
}

static int f_fallocate(const struct ckb_sys *sys, int fd, uint64_t off,
		       uint64_t len)
{
	FAIL_OR(FAULT_FALLOCATE, fd, OS->fallocate(OS, fd, off, len));
}

static int f_ftruncate(const struct ckb_sys *sys, int fd, uint64_t len)
{
	FAIL_OR(FAULT_TRUNCATE, fd, OS->ftruncate(OS, fd, len));
}

static int f_mkdirat(const struct ckb_sys *sys, int dirfd, const char *path,
		     mode_t mode)
{
	FAIL_OR(FAULT_MKDIR, -1, OS->mkdirat(OS, dirfd, path, mode));
}

static int f_linkat(const struct ckb_sys *sys, int from_dirfd,
		    const char *from, int to_dirfd, const char *to)
{
	FAIL_OR(FAULT_LINK, -1, OS->linkat(OS, from_dirfd, from, to_dirfd, to));
}

static int f_renameat(const struct ckb_sys *sys, int from_dirfd,
		      const char *from, int to_dirfd, const char *to)
{
	FAIL_OR(FAULT_RENAME, -1,
		OS->renameat(OS, from_dirfd, from, to_dirfd, to));
}

static int f_unlinkat(const struct ckb_sys *sys, int dirfd, const char *path,
		      int flags)
{
	FAIL_OR(FAULT_UNLINK, -1, OS->unlinkat(OS, dirfd, path, flags));
}

static int f_fstat(const struct ckb_sys *sys, int fd, struct stat *out)
{
	FAIL_OR(FAULT_STAT, fd, OS->fstat(OS, fd, out));
}

static int f_fstatat(const struct ckb_sys *sys, int dirfd, const char *path,
		     struct stat *out)
{
	FAIL_OR(FAULT_STAT, -1, OS->fstatat(OS, dirfd, path, out));
}

static int f_list(const struct ckb_sys *sys, int dirfd, const char *path,
		  ckb_dirent_fn fn, void *ctx)
{
	FAIL_OR(FAULT_LIST, -1, OS->list(OS, dirfd, path, fn, ctx));
}

static int f_flock(const struct ckb_sys *sys, int fd, int op)
{
	FAIL_OR(FAULT_FLOCK, fd, OS->flock(OS, fd, op));
}

static int f_fs_magic(const struct ckb_sys *sys, int fd, uint64_t *out)
{
	FAIL_OR(FAULT_FS_MAGIC, fd, OS->fs_magic(OS, fd, out));
}

static int f_random(const struct ckb_sys *sys, void *dst, size_t len)
{
	static atomic_uint drawn;
	int rc = fault(sys, FAULT_RANDOM, -1);
	unsigned n = atomic_fetch_add(&drawn, 1);

	memset(dst, of(sys)->tag, len);
	if (len > sizeof(n))
		memcpy((char *)dst + len - sizeof(n), &n, sizeof(n));
	return rc;
}

static int64_t f_now_ns(const struct ckb_sys *sys)
{
	(void)sys;
	return OS->now_ns(OS);
}

void fault_init(struct fault_sys *f)
{
	memset(f, 0, sizeof(*f));
	f->sys = (struct ckb_sys){
		.openat = f_openat, .close = f_close, .pread = f_pread,
		.pwrite = f_pwrite, .pwritev = f_pwritev, .fsync = f_fsync,
		.fdatasync = f_fdatasync, .sync_range = f_sync_range,
		.fallocate = f_fallocate, .ftruncate = f_ftruncate,
		.mkdirat = f_mkdirat, .linkat = f_linkat,
		.renameat = f_renameat, .unlinkat = f_unlinkat,
		.fstat = f_fstat, .fstatat = f_fstatat, .list = f_list,
		.flock = f_flock, .fs_magic = f_fs_magic,
		.random = f_random, .now_ns = f_now_ns,
	};
	f->fail_count = 1;
	f->error = EIO;
}

void fault_each(struct fault_sys *f, enum fault_kind kind, const char *end)
{
	f->kinds = FAULT_BIT(kind);
	f->path_end = end;
	f->fail_at = 1;
	f->fail_count = INT_MAX;
	atomic_store(&f->calls, 0);
}

int fault_open_count(const struct fault_sys *f)
{
	int n = 0;

	for (int fd = 0; fd < FAULT_FD_MAX; fd++)
		n += atomic_load(&f->open[fd]);
	return n;
}
