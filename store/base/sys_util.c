/* SPDX-License-Identifier: Apache-2.0 */
/*
 * sys_util.c - whole reads and writes, small files, folders and their syncs.
 *
 * Loops on short counts and EINTR; a read that ends early is wrong bytes
 * (CKPT_ECORRUPT), not an I/O failure. A failed fsync is never repeated (S5).
 */
#include "base/sys.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "base/buf.h"

/* Linux moves at most about 2 GiB a call; stay well below. */
#define STEP_BYTES ((size_t)1 << 30)

int64_t ckb_time_ns(const struct timespec *t)
{
	const int64_t most = INT64_MAX / 1000000000;

	if (t->tv_sec < -most)
		return INT64_MIN;
	return t->tv_sec < most ? t->tv_sec * 1000000000 + t->tv_nsec
				: INT64_MAX;
}

int ckb_pread_full(const struct ckb_sys *sys, int fd, void *dst, size_t len,
		   uint64_t off, const char *what, struct ckpt_err *err)
{
	uint8_t *to = dst;

	while (len > 0) {
		size_t step = len < STEP_BYTES ? len : STEP_BYTES;
		ssize_t n = sys->pread(sys, fd, to, step, off);

		if (n == -EINTR)
			continue;
		if (n < 0)
			return ckb_err_sys(err, (int)-n,
					   "cannot read '%s' at offset %ju",
					   what, (uintmax_t)off);
		if (n == 0)
			return ckb_err(err, CKPT_ECORRUPT, "'%s' ends at "
				       "offset %ju, where %zu more bytes must "
				       "be: it is truncated", what,
				       (uintmax_t)off, len);
		to += n;
		off += (uint64_t)n;
		len -= (size_t)n;
	}
	return 0;
}

int ckb_pwrite_full(const struct ckb_sys *sys, int fd, const void *src,
		    size_t len, uint64_t off, const char *what,
		    struct ckpt_err *err)
{
	const uint8_t *from = src;

	while (len > 0) {
		size_t step = len < STEP_BYTES ? len : STEP_BYTES;
		ssize_t n = sys->pwrite(sys, fd, from, step, off);

		if (n == -EINTR)
			continue;
		if (n == 0)
			n = -EIO;
		if (n < 0)
			return ckb_err_sys(err, (int)-n, "cannot write %zu "
					   "bytes to '%s' at offset %ju", len,
					   what, (uintmax_t)off);
		from += n;
		off += (uint64_t)n;
		len -= (size_t)n;
	}
	return 0;
}

int ckb_pwritev_full(const struct ckb_sys *sys, int fd, struct iovec *iov,
		     int count, uint64_t off, const char *what,
		     struct ckpt_err *err)
{
	while (count > 0) {
		if (iov->iov_len == 0) {
			iov++;
			count--;
			continue;
		}
		ssize_t n = sys->pwritev(sys, fd, iov, count, off);

		if (n == -EINTR)
			continue;
		if (n <= 0)
			return ckb_err_sys(err, n < 0 ? (int)-n : EIO, "cannot "
					   "write to '%s' at offset %ju", what,
					   (uintmax_t)off);
		off += (uint64_t)n;
		for (; count > 0 && (size_t)n >= iov->iov_len; iov++, count--)
			n -= (ssize_t)iov->iov_len;
		if (count > 0) {
			iov->iov_base = (uint8_t *)iov->iov_base + n;
			iov->iov_len -= (size_t)n;
		}
	}
	return 0;
}

static int read_open(const struct ckb_sys *sys, int fd, const char *path,
		     size_t max, struct ckb_buf *out, struct ckpt_err *err)
{
	struct stat st;
	int rc = sys->fstat(sys, fd, &st);

	if (rc < 0)
		return ckb_err_sys(err, -rc, "cannot read '%s'", path);
	if (!S_ISREG(st.st_mode))
		return ckb_err(err, CKPT_EINVAL, "'%s' is no regular file",
			       path);
	if ((uint64_t)st.st_size > max)
		return ckb_err(err, CKPT_ELIMIT, "'%s' has %jd bytes, more "
			       "than the %zu it may have", path,
			       (intmax_t)st.st_size, max);
	void *to = ckb_buf_extend(out, (size_t)st.st_size);

	if (!to)
		return ckb_err_nomem(err);
	return ckb_pread_full(sys, fd, to, (size_t)st.st_size, 0, path, err);
}

int ckb_read_file(const struct ckb_sys *sys, int dirfd, const char *path,
		  size_t max, struct ckb_buf *out, struct ckpt_err *err)
{
	int fd = sys->openat(sys, dirfd, path,
			     O_RDONLY | O_NOFOLLOW | O_NONBLOCK, 0);

	if (fd < 0)
		return ckb_err_sys(err, -fd, "cannot open '%s'", path);
	int rc = read_open(sys, fd, path, max, out, err);

	sys->close(sys, fd);
	return rc;
}

int ckb_write_file(const struct ckb_sys *sys, int dirfd, const char *path,
		   const void *data, size_t len, struct ckpt_err *err)
{
	int fd = sys->openat(sys, dirfd, path,
			     O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW, 0666);

	if (fd < 0)
		return ckb_err_sys(err, -fd, "cannot make '%s'", path);
	int rc = ckb_pwrite_full(sys, fd, data, len, 0, path, err);

	if (rc == 0) {
		int s = sys->fsync(sys, fd);

		if (s < 0)
			rc = ckb_err_sys(err, -s, "cannot sync '%s'", path);
	}
	int c = sys->close(sys, fd);

	/* NFS tells of lost writes at close */
	if (rc == 0 && c < 0 && c != -EINTR)
		rc = ckb_err_sys(err, -c, "cannot close '%s'", path);
	return rc;
}

int ckb_sync_dir_surely(const struct ckb_sys *sys, int dirfd, const char *path,
			struct ckpt_err *err)
{
	int fd = sys->openat(sys, dirfd, path, O_RDONLY | O_DIRECTORY, 0);

	if (fd < 0)
		return ckb_err_sys(err, -fd, "cannot open folder '%s'", path);
	int rc = sys->fsync(sys, fd);

	sys->close(sys, fd);
	if (rc == -EINVAL || rc == -ENOSYS || rc == -EOPNOTSUPP)
		return ckb_err(err, CKPT_EUNSURE, "its file system cannot sync "
			       "folders");
	return rc < 0 ? ckb_err_sys(err, -rc, "cannot sync folder '%s'", path)
		      : 0;
}

int ckb_sync_dir(const struct ckb_sys *sys, int dirfd, const char *path,
		 struct ckpt_err *err)
{
	struct ckpt_err mine = { 0 };
	int rc = ckb_sync_dir_surely(sys, dirfd, path, &mine);

	if (rc == CKPT_EUNSURE)
		return 0;
	if (rc < 0 && err)
		*err = mine;
	return rc;
}

/* @path is there; is it a folder (or a link to one)? */
static int need_dir(const struct ckb_sys *sys, int dirfd, const char *path,
		    struct ckpt_err *err)
{
	int fd = sys->openat(sys, dirfd, path, O_PATH | O_DIRECTORY, 0);

	if (fd < 0)
		return ckb_err_sys(err, -fd, "cannot make folder '%s'", path);
	sys->close(sys, fd);
	return 0;
}

/* Make one folder whose parent is there, and sync that parent: also when the
 * folder exists, as whoever made it may not have come to that yet (S2). */
static int make_dir(const struct ckb_sys *sys, int dirfd, const char *path,
		    struct ckpt_err *err)
{
	char parent[4096];
	const char *slash = strrchr(path, '/');
	int rc = sys->mkdirat(sys, dirfd, path, 0777);

	if (rc < 0 && rc != -EEXIST)
		return ckb_err_sys(err, -rc, "cannot make folder '%s'", path);
	/* asked in both cases: the same calls whether it was there or not */
	rc = need_dir(sys, dirfd, path, err);
	if (rc < 0)
		return rc;
	snprintf(parent, sizeof(parent), "%.*s",
		 slash ? (int)(slash - path) : 1, slash ? path : ".");
	return ckb_sync_dir(sys, dirfd, parent, err);
}

int ckb_make_dirs(const struct ckb_sys *sys, int dirfd, const char *path,
		  struct ckpt_err *err)
{
	char part[4096];
	size_t len = strlen(path);

	if (len >= sizeof(part))
		return ckb_err(err, CKPT_ELIMIT, "the path '%.40s...' is too "
			       "long", path);
	for (size_t i = 1; i <= len; i++) {
		if (path[i] != '/' && path[i] != '\0')
			continue;
		memcpy(part, path, i);
		part[i] = '\0';
		int rc = make_dir(sys, dirfd, part, err);

		if (rc < 0)
			return rc;
	}
	return 0;
}
