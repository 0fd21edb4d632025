/* SPDX-License-Identifier: Apache-2.0 */
/*
 * handles.c - descriptors of open manifests: a bounded number (S9).
 *
 * A mount may have thousands of checkpoints open; each needs its manifest only
 * for chunk lists, once a tensor. So a descriptor that nobody reads from may be
 * given up, the one used longest ago first, and is opened again by name at
 * need. A name that then shows another file, or none, is ESTALE: what was open
 * is shown whole or not at all (S3).
 *
 * Threads: any; a file belongs to one connection, so one thread at a time reads
 * from it. One lock guards the list of all open files of the process and is
 * held for no system call but close. Other locks are taken before it.
 */
#include <errno.h>
#include <pthread.h>
#include <sys/resource.h>

#include "base/bytes.h"
#include "base/limits.h"
#include "catalog/manifest.h"
#include "catalog/vfs.h"

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static struct ckq_file *newest, *oldest; /* guard: lock */
static size_t count;                     /* guard: lock */

/* A quarter of what the process may open. */
static size_t most(void)
{
	struct rlimit limit;

	if (getrlimit(RLIMIT_NOFILE, &limit) != 0)
		return CKB_OPEN_MANIFESTS;
	return (size_t)ckb_min_u64(CKB_OPEN_MANIFESTS, limit.rlim_cur / 4);
}

/* Under lock. */
static void unlink_file(struct ckq_file *f)
{
	*(f->newer ? &f->newer->older : &newest) = f->older;
	*(f->older ? &f->older->newer : &oldest) = f->newer;
	f->newer = f->older = NULL;
	f->listed = false;
	count--;
}

/* Under lock. */
static void push(struct ckq_file *f)
{
	f->older = newest;
	*(newest ? &newest->newer : &oldest) = f;
	newest = f;
	f->listed = true;
	count++;
}

/* Under lock: give up descriptors until @keep are left, or all are in use.
 * true: at least one came free. */
static bool trim(size_t keep)
{
	struct ckq_file *f = oldest, *next;
	bool any = false;

	for (; f && count > keep; f = next) {
		next = f->newer;
		if (f->busy || (f->give_up && !f->give_up(f)))
			continue;
		unlink_file(f);
		f->sys->close(f->sys, f->fd);
		f->fd = -1;
		any = true;
	}
	return any;
}

static bool no_room(int rc)
{
	bool any;

	if (rc != -EMFILE && rc != -ENFILE)
		return false;
	pthread_mutex_lock(&lock);
	any = trim(0);
	pthread_mutex_unlock(&lock);
	return any;
}

/* A new descriptor of @f's name, in @out_st what it shows; or -errno. */
static int open_name(const struct ckq_file *f, struct stat *out_st)
{
	const int flags = O_RDONLY | O_NOFOLLOW | O_NONBLOCK;
	int fd = f->sys->openat(f->sys, f->dirfd, f->path, flags, 0);

	if (no_room(fd))
		fd = f->sys->openat(f->sys, f->dirfd, f->path, flags, 0);
	if (fd < 0)
		return fd;
	int rc = f->sys->fstat(f->sys, fd, out_st);

	if (rc < 0) {
		f->sys->close(f->sys, fd);
		return rc;
	}
	return fd;
}

static bool same(const struct stat *a, const struct stat *b)
{
	return a->st_dev == b->st_dev && a->st_ino == b->st_ino &&
	       a->st_size == b->st_size &&
	       a->st_mtim.tv_sec == b->st_mtim.tv_sec &&
	       a->st_mtim.tv_nsec == b->st_mtim.tv_nsec;
}

/* Take @fd as @f's, in use. */
static void take(struct ckq_file *f, int fd)
{
	pthread_mutex_lock(&lock);
	f->fd = fd;
	f->busy = true;
	push(f);
	trim(most());
	pthread_mutex_unlock(&lock);
}

int ckq_file_open(struct ckq_file *f)
{
	int fd = open_name(f, &f->st);

	if (fd < 0)
		return fd;
	take(f, fd);
	ckq_file_put(f);
	return 0;
}

int ckq_file_get(struct ckq_file *f)
{
	struct stat st;

	pthread_mutex_lock(&lock);
	if (f->listed) {
		unlink_file(f);
		push(f);
		f->busy = true;
		pthread_mutex_unlock(&lock);
		return f->fd;
	}
	pthread_mutex_unlock(&lock);
	int fd = open_name(f, &st);

	if (fd == -ENOENT || fd == -ENOTDIR || fd == -ELOOP)
		return -ESTALE;
	if (fd >= 0 && !same(&st, &f->st)) {
		f->sys->close(f->sys, fd);
		return -ESTALE;
	}
	if (fd >= 0)
		take(f, fd);
	return fd;
}

void ckq_file_put(struct ckq_file *f)
{
	pthread_mutex_lock(&lock);
	f->busy = false;
	pthread_mutex_unlock(&lock);
}

void ckq_file_close(struct ckq_file *f)
{
	pthread_mutex_lock(&lock);
	if (f->listed) {
		unlink_file(f);
		f->sys->close(f->sys, f->fd);
	}
	f->fd = -1;
	pthread_mutex_unlock(&lock);
}

size_t ckq_manifests_open(void)
{
	pthread_mutex_lock(&lock);
	size_t n = count;

	pthread_mutex_unlock(&lock);
	return n;
}
