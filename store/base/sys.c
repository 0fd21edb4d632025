/* SPDX-License-Identifier: Apache-2.0 */
/*
 * sys.c - the real operating system behind struct ckb_sys.
 *
 * Thin: each entry is one system call with its errno made the result. EINTR
 * is repeated where the call may be repeated; never for fsync (S5) and close.
 */
#include "base/sys.h"

#include <dirent.h>
#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/file.h>
#include <sys/random.h>
#include <sys/vfs.h>
#include <time.h>

static int result(long rc)
{
	return rc < 0 ? -errno : (int)rc;
}

static int real_openat(const struct ckb_sys *sys, int dirfd, const char *path,
		       int flags, mode_t mode)
{
	int fd;

	(void)sys;
	do
		fd = openat(dirfd, path, flags | O_CLOEXEC, mode);
	while (fd < 0 && errno == EINTR);
	return result(fd);
}

static int real_close(const struct ckb_sys *sys, int fd)
{
	(void)sys;
	return result(close(fd));
}

static ssize_t real_pread(const struct ckb_sys *sys, int fd, void *dst,
			  size_t len, uint64_t off)
{
	(void)sys;
	ssize_t n = pread(fd, dst, len, (off_t)off);

	return n < 0 ? -errno : n;
}

static ssize_t real_pwrite(const struct ckb_sys *sys, int fd, const void *src,
			   size_t len, uint64_t off)
{
	(void)sys;
	ssize_t n = pwrite(fd, src, len, (off_t)off);

	return n < 0 ? -errno : n;
}

static ssize_t real_pwritev(const struct ckb_sys *sys, int fd,
			    const struct iovec *iov, int count, uint64_t off)
{
	(void)sys;
	ssize_t n = pwritev(fd, iov, count, (off_t)off);

	return n < 0 ? -errno : n;
}

static int real_fsync(const struct ckb_sys *sys, int fd)
{
	(void)sys;
	return result(fsync(fd));
}

static int real_fdatasync(const struct ckb_sys *sys, int fd)
{
	(void)sys;
	return result(fdatasync(fd));
}

static int real_sync_range(const struct ckb_sys *sys, int fd, uint64_t off,
			   uint64_t len)
{
	(void)sys;
	return result(sync_file_range(fd, (off_t)off, (off_t)len,
				      SYNC_FILE_RANGE_WRITE));
}

static int real_fallocate(const struct ckb_sys *sys, int fd, uint64_t off,
			  uint64_t len)
{
	(void)sys;
	return result(fallocate(fd, 0, (off_t)off, (off_t)len));
}

static int real_ftruncate(const struct ckb_sys *sys, int fd, uint64_t len)
{
	(void)sys;
	return result(ftruncate(fd, (off_t)len));
}

static int real_mkdirat(const struct ckb_sys *sys, int dirfd, const char *path,
			mode_t mode)
{
	(void)sys;
	return result(mkdirat(dirfd, path, mode));
}

static int real_linkat(const struct ckb_sys *sys, int from_dirfd,
		       const char *from, int to_dirfd, const char *to)
{
	(void)sys;
	return result(linkat(from_dirfd, from, to_dirfd, to, 0));
}

static int real_renameat(const struct ckb_sys *sys, int from_dirfd,
			 const char *from, int to_dirfd, const char *to)
{
	(void)sys;
	return result(renameat(from_dirfd, from, to_dirfd, to));
}

static int real_unlinkat(const struct ckb_sys *sys, int dirfd,
			 const char *path, int flags)
{
	(void)sys;
	return result(unlinkat(dirfd, path, flags));
}

static int real_fstat(const struct ckb_sys *sys, int fd, struct stat *out)
{
	(void)sys;
	return result(fstat(fd, out));
}

static int real_fstatat(const struct ckb_sys *sys, int dirfd, const char *path,
			struct stat *out)
{
	(void)sys;
	return result(fstatat(dirfd, path, out, AT_SYMLINK_NOFOLLOW));
}

static int real_list(const struct ckb_sys *sys, int dirfd, const char *path,
		     ckb_dirent_fn fn, void *ctx)
{
	int fd = real_openat(sys, dirfd, path, O_RDONLY | O_DIRECTORY, 0);
	struct dirent *e;
	int rc = 0;

	if (fd < 0)
		return fd;
	DIR *dir = fdopendir(fd);

	if (!dir) {
		rc = -errno;
		close(fd);
		return rc;
	}
	while (rc == 0) {
		errno = 0;
		e = readdir(dir);
		if (!e) {
			rc = -errno;
			break;
		}
		if (strcmp(e->d_name, ".") != 0 && strcmp(e->d_name, "..") != 0)
			rc = fn(ctx, e->d_name, e->d_type);
	}
	closedir(dir);
	return rc;
}

static int real_flock(const struct ckb_sys *sys, int fd, int op)
{
	(void)sys;
	return result(flock(fd, op));
}

static int real_fs_magic(const struct ckb_sys *sys, int fd, uint64_t *out)
{
	struct statfs st;

	(void)sys;
	if (fstatfs(fd, &st) != 0)
		return -errno;
	*out = (uint64_t)st.f_type & 0xffffffffu;
	return 0;
}

static int real_random(const struct ckb_sys *sys, void *dst, size_t len)
{
	uint8_t *to = dst;

	(void)sys;
	while (len > 0) {
		ssize_t n = getrandom(to, len, 0);

		if (n < 0 && errno == EINTR)
			continue;
		if (n < 0)
			return -errno;
		to += n;
		len -= (size_t)n;
	}
	return 0;
}

static int64_t real_now_ns(const struct ckb_sys *sys)
{
	struct timespec ts;

	(void)sys;
	clock_gettime(CLOCK_REALTIME, &ts);
	return ckb_time_ns(&ts);
}

const struct ckb_sys *ckb_sys_real(void)
{
	static const struct ckb_sys real = {
		.openat = real_openat, .close = real_close,
		.pread = real_pread, .pwrite = real_pwrite,
		.pwritev = real_pwritev,
		.fsync = real_fsync, .fdatasync = real_fdatasync,
		.sync_range = real_sync_range, .fallocate = real_fallocate,
		.ftruncate = real_ftruncate, .mkdirat = real_mkdirat,
		.linkat = real_linkat, .renameat = real_renameat,
		.unlinkat = real_unlinkat, .fstat = real_fstat,
		.fstatat = real_fstatat, .list = real_list,
		.flock = real_flock, .fs_magic = real_fs_magic,
		.random = real_random, .now_ns = real_now_ns,
	};

	return &real;
}
