/* SPDX-License-Identifier: Apache-2.0 */
/*
 * fault_sys.c - see fault_sys.h.
 *
 * A failing call does nothing, but for close: as on Linux the descriptor is
 * gone whatever close answers.
 */
#include "fault_sys.h"

#include <errno.h>
#include <string.h>

#define OS ckb_sys_real()

static struct fault_sys *of(const struct ckb_sys *sys)
{
	return (struct fault_sys *)(uintptr_t)sys;
}

/* 0, or the negative errno that this call must fail with. */
static int fault(const struct ckb_sys *sys, enum fault_kind kind)
{
	struct fault_sys *f = of(sys);

	if (f->kinds && !(f->kinds & FAULT_BIT(kind)))
		return 0;
	int n = atomic_fetch_add(&f->calls, 1) + 1;

	if (f->fail_at == 0 || n < f->fail_at ||
	    n - f->fail_at >= f->fail_count)
		return 0;
	atomic_store(&f->met, true);
	return -f->error;
}

static size_t few(const struct ckb_sys *sys, size_t len)
{
	size_t max = of(sys)->move_max;

	return max && len > max ? max : len;
}

static int f_openat(const struct ckb_sys *sys, int dirfd, const char *path,
		    int flags, mode_t mode)
{
	int rc = fault(sys, FAULT_OPEN);

	if (rc == 0)
		rc = OS->openat(OS, dirfd, path, flags, mode);
	if (rc >= 0 && rc < FAULT_FD_MAX)
		atomic_store(&of(sys)->open[rc], 1);
	return rc;
}

static int f_close(const struct ckb_sys *sys, int fd)
{
	int rc = fault(sys, FAULT_CLOSE);

	if (fd >= 0 && fd < FAULT_FD_MAX)
		atomic_store(&of(sys)->open[fd], 0);
	int done = OS->close(OS, fd);

	return rc ? rc : done;
}

static ssize_t f_pread(const struct ckb_sys *sys, int fd, void *dst,
		       size_t len, uint64_t off)
{
	int rc = fault(sys, FAULT_READ);

	return rc ? rc : OS->pread(OS, fd, dst, few(sys, len), off);
}

static ssize_t f_pwrite(const struct ckb_sys *sys, int fd, const void *src,
			size_t len, uint64_t off)
{
	int rc = fault(sys, FAULT_WRITE);

	return rc ? rc : OS->pwrite(OS, fd, src, few(sys, len), off);
}

static int f_fsync(const struct ckb_sys *sys, int fd)
{
	int rc = fault(sys, FAULT_FSYNC);

	return rc ? rc : OS->fsync(OS, fd);
}

static int f_fdatasync(const struct ckb_sys *sys, int fd)
{
	int rc = fault(sys, FAULT_FDATASYNC);

	return rc ? rc : OS->fdatasync(OS, fd);
}

static int f_sync_range(const struct ckb_sys *sys, int fd, uint64_t off,
			uint64_t len)
{
	int rc = fault(sys, FAULT_SYNC_RANGE);

	return rc ? rc : OS->sync_range(OS, fd, off, len);
}

static int f_fallocate(const struct ckb_sys *sys, int fd, uint64_t off,
		       uint64_t len)
{
	int rc = fault(sys, FAULT_FALLOCATE);

	return rc ? rc : OS->fallocate(OS, fd, off, len);
}

static int f_ftruncate(const struct ckb_sys *sys, int fd, uint64_t len)
{
	int rc = fault(sys, FAULT_TRUNCATE);

	return rc ? rc : OS->ftruncate(OS, fd, len);
}

static int f_mkdirat(const struct ckb_sys *sys, int dirfd, const char *path,
		     mode_t mode)
{
	int rc = fault(sys, FAULT_MKDIR);

	return rc ? rc : OS->mkdirat(OS, dirfd, path, mode);
}

static int f_linkat(const struct ckb_sys *sys, int from_dirfd,
		    const char *from, int to_dirfd, const char *to)
{
	int rc = fault(sys, FAULT_LINK);

	return rc ? rc : OS->linkat(OS, from_dirfd, from, to_dirfd, to);
}

static int f_renameat(const struct ckb_sys *sys, int from_dirfd,
		      const char *from, int to_dirfd, const char *to)
{
	int rc = fault(sys, FAULT_RENAME);

	return rc ? rc : OS->renameat(OS, from_dirfd, from, to_dirfd, to);
}

static int f_unlinkat(const struct ckb_sys *sys, int dirfd, const char *path,
		      int flags)
{
	int rc = fault(sys, FAULT_UNLINK);

	return rc ? rc : OS->unlinkat(OS, dirfd, path, flags);
}

static int f_fstat(const struct ckb_sys *sys, int fd, struct stat *out)
{
	int rc = fault(sys, FAULT_STAT);

	return rc ? rc : OS->fstat(OS, fd, out);
}

static int f_fstatat(const struct ckb_sys *sys, int dirfd, const char *path,
		     struct stat *out)
{
	int rc = fault(sys, FAULT_STAT);

	return rc ? rc : OS->fstatat(OS, dirfd, path, out);
}

static int f_list(const struct ckb_sys *sys, int dirfd, const char *path,
		  ckb_dirent_fn fn, void *ctx)
{
	int rc = fault(sys, FAULT_LIST);

	return rc ? rc : OS->list(OS, dirfd, path, fn, ctx);
}

static int f_flock(const struct ckb_sys *sys, int fd, int op)
{
	int rc = fault(sys, FAULT_FLOCK);

	return rc ? rc : OS->flock(OS, fd, op);
}

static int f_fs_magic(const struct ckb_sys *sys, int fd, uint64_t *out)
{
	int rc = fault(sys, FAULT_FS_MAGIC);

	return rc ? rc : OS->fs_magic(OS, fd, out);
}

static int f_random(const struct ckb_sys *sys, void *dst, size_t len)
{
	int rc = fault(sys, FAULT_RANDOM);

	return rc ? rc : OS->random(OS, dst, len);
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
		.pwrite = f_pwrite, .fsync = f_fsync,
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

int fault_open_count(const struct fault_sys *f)
{
	int n = 0;

	for (int fd = 0; fd < FAULT_FD_MAX; fd++)
		n += atomic_load(&f->open[fd]);
	return n;
}
