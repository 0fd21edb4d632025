/* SPDX-License-Identifier: Apache-2.0 */
/*
 * crash_log.h - what a disk may hold after a power loss.
 *
 * A table of system calls that does them and notes what changed: entries of
 * folders, bytes of files, syncs. crash_replay() then makes, in an empty
 * folder, what may have survived a cut after the first @cut notes. As POSIX
 * has it: bytes are safe after fsync of the file, an entry after fsync of its
 * folder, and of what is not safe any part may be there, in any combination;
 * changes of one folder or file that survive do so in their order.
 *
 * Files are told apart by inode; the recorder sees only calls through it. They
 * come from any thread and are done one at a time, so notes have the order in
 * which things happened.
 */
#ifndef CRASH_LOG_H
#define CRASH_LOG_H

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "base/buf.h"
#include "base/sys.h"

#define LOST UINT32_MAX /* no node: the entry is removed */

enum note_kind { NOTE_ENTRY, NOTE_WRITE, NOTE_TRUNCATE, NOTE_SYNC };

struct note {
	enum note_kind kind;
	uint32_t node;    /* folder or file that changed, or was synced */
	uint32_t child;   /* ENTRY: what the name now means, or LOST */
	char name[264];
	char also[264];   /* ENTRY, or "": a name of the folder that goes */
	uint64_t off;     /* WRITE; TRUNCATE: length */
	struct ckb_buf data;
};

struct node {
	bool is_folder;
	ino_t ino;        /* at the time; 0: unlinked meanwhile */
};

/* The table is first: a call finds the rest behind it. */
struct crash_log {
	struct ckb_sys sys;
	pthread_mutex_t lock; /* held over each call, by the call */
	char root[PATH_MAX]; /* real path of node 0 */
	struct node *nodes;
	size_t node_count;
	struct note *notes;
	size_t note_count;
	bool broken;      /* the recorder met what it cannot note */
};

enum survivor {
	ALL,        /* everything written got there */
	ONLY_SYNCED,
	ENTRIES,    /* all names, but only synced bytes: files without data */
	BYTES,      /* all bytes, but only synced names */
	SOME,       /* a random part; seeds follow: SOME, SOME + 1, ... */
};

/* ---- recording ---- */

#define CRASH static __attribute__((unused))

CRASH struct crash_log *log_of(const struct ckb_sys *sys)
{
	return (struct crash_log *)(uintptr_t)sys;
}

CRASH pthread_mutex_t *alone_begin(struct crash_log *l)
{
	pthread_mutex_lock(&l->lock);
	return &l->lock;
}

CRASH void alone_end(pthread_mutex_t **lock)
{
	pthread_mutex_unlock(*lock);
}

/* To the end of the function. */
#define ALONE(l) \
	__attribute__((cleanup(alone_end))) pthread_mutex_t *alone = \
		alone_begin(l)

CRASH struct note *note_new(struct crash_log *l, enum note_kind kind,
			    uint32_t node)
{
	l->notes = realloc(l->notes, (l->note_count + 1) * sizeof(*l->notes));
	struct note *n = &l->notes[l->note_count++];

	memset(n, 0, sizeof(*n));
	n->kind = kind;
	n->node = node;
	return n;
}

CRASH uint32_t node_new(struct crash_log *l, bool is_folder, ino_t ino)
{
	/* numbers of removed files are used again: the older one lost its */
	for (size_t i = 0; i < l->node_count; i++)
		if (l->nodes[i].ino == ino)
			l->nodes[i].ino = 0;
	l->nodes = realloc(l->nodes, (l->node_count + 1) * sizeof(*l->nodes));
	l->nodes[l->node_count] = (struct node){ is_folder, ino };
	return (uint32_t)l->node_count++;
}

CRASH uint32_t node_find(struct crash_log *l, ino_t ino)
{
	for (size_t i = 0; i < l->node_count; i++)
		if (l->nodes[i].ino == ino)
			return (uint32_t)i;
	l->broken = true;
	return 0;
}

CRASH uint32_t node_of_fd(struct crash_log *l, int fd)
{
	struct stat st;

	return fstat(fd, &st) == 0 ? node_find(l, st.st_ino) : LOST;
}

/* The folder's node; *@out_name: the last component. */
CRASH uint32_t node_of_parent(struct crash_log *l, int dirfd, const char *path,
			      const char **out_name)
{
	char parent[PATH_MAX];
	const char *slash = strrchr(path, '/');
	struct stat st;

	*out_name = slash ? slash + 1 : path;
	snprintf(parent, sizeof(parent), "%.*s",
		 slash ? (int)(slash - path) : 1, slash ? path : ".");
	if (fstatat(dirfd, parent, &st, 0) == 0)
		return node_find(l, st.st_ino);
	l->broken = true;
	return 0;
}

CRASH uint32_t node_of_path(struct crash_log *l, int dirfd, const char *path)
{
	struct stat st;

	if (fstatat(dirfd, path, &st, AT_SYMLINK_NOFOLLOW) == 0)
		return node_find(l, st.st_ino);
	l->broken = true;
	return 0;
}

CRASH void note_entry(struct crash_log *l, int dirfd, const char *path,
		      uint32_t child)
{
	const char *name;
	uint32_t parent = node_of_parent(l, dirfd, path, &name);
	struct note *n = note_new(l, NOTE_ENTRY, parent);

	n->child = child;
	snprintf(n->name, sizeof(n->name), "%s", name);
}

CRASH int c_openat(const struct ckb_sys *sys, int dirfd, const char *path,
		   int flags, mode_t mode)
{
	ALONE(log_of(sys));
	const struct ckb_sys *os = ckb_sys_real();
	struct stat st;
	bool makes = (flags & O_CREAT) &&
		     fstatat(dirfd, path, &st, AT_SYMLINK_NOFOLLOW) != 0;
	int fd = os->openat(os, dirfd, path, flags, mode);

	if (fd >= 0 && makes && fstat(fd, &st) == 0)
		note_entry(log_of(sys), dirfd, path,
			   node_new(log_of(sys), false, st.st_ino));
	if (flags & O_TRUNC)
		log_of(sys)->broken = true;
	return fd;
}

CRASH int c_close(const struct ckb_sys *sys, int fd)
{
	(void)sys;
	return ckb_sys_real()->close(ckb_sys_real(), fd);
}

CRASH ssize_t c_pwrite(const struct ckb_sys *sys, int fd, const void *src,
		       size_t len, uint64_t off)
{
	struct crash_log *l = log_of(sys);
	ALONE(l);
	ssize_t done = ckb_sys_real()->pwrite(ckb_sys_real(), fd, src, len,
					      off);

	if (done > 0) {
		struct note *n = note_new(l, NOTE_WRITE, node_of_fd(l, fd));

		n->off = off;
		ckb_buf_put(&n->data, src, (size_t)done);
	}
	return done;
}

CRASH ssize_t c_pwritev(const struct ckb_sys *sys, int fd,
			const struct iovec *iov, int count, uint64_t off)
{
	(void)count; /* a short write is legal */
	return c_pwrite(sys, fd, iov->iov_base, iov->iov_len, off);
}

CRASH int c_ftruncate(const struct ckb_sys *sys, int fd, uint64_t len)
{
	struct crash_log *l = log_of(sys);
	ALONE(l);
	int rc = ckb_sys_real()->ftruncate(ckb_sys_real(), fd, len);

	if (rc == 0)
		note_new(l, NOTE_TRUNCATE, node_of_fd(l, fd))->off = len;
	return rc;
}

CRASH int c_fsync(const struct ckb_sys *sys, int fd)
{
	struct crash_log *l = log_of(sys);
	ALONE(l);
	struct stat st;

	/* folders above the recorder's world have no node: nothing to note */
	if (fstat(fd, &st) != 0)
		return -errno;
	for (size_t i = 0; i < l->node_count; i++)
		if (l->nodes[i].ino == st.st_ino)
			note_new(l, NOTE_SYNC, (uint32_t)i);
	return 0; /* the real disk need not work */
}

CRASH int c_mkdirat(const struct ckb_sys *sys, int dirfd, const char *path,
		    mode_t mode)
{
	struct crash_log *l = log_of(sys);
	ALONE(l);
	int rc = ckb_sys_real()->mkdirat(ckb_sys_real(), dirfd, path, mode);
	struct stat st;

	if (rc == 0 && fstatat(dirfd, path, &st, AT_SYMLINK_NOFOLLOW) == 0)
		note_entry(l, dirfd, path, node_new(l, true, st.st_ino));
	return rc;
}

CRASH int c_linkat(const struct ckb_sys *sys, int from_dirfd, const char *from,
		   int to_dirfd, const char *to)
{
	struct crash_log *l = log_of(sys);
	ALONE(l);
	int rc = ckb_sys_real()->linkat(ckb_sys_real(), from_dirfd, from,
					to_dirfd, to);

	if (rc == 0)
		note_entry(l, to_dirfd, to,
			   node_of_path(l, from_dirfd, from));
	return rc;
}

/* In one folder one change; over two, one in each: either may be lost. */
CRASH int c_renameat(const struct ckb_sys *sys, int from_dirfd,
		     const char *from, int to_dirfd, const char *to)
{
	struct crash_log *l = log_of(sys);
	ALONE(l);
	const char *old_name, *new_name;
	uint32_t child = node_of_path(l, from_dirfd, from);
	uint32_t a = node_of_parent(l, from_dirfd, from, &old_name);
	uint32_t b = node_of_parent(l, to_dirfd, to, &new_name);
	int rc = ckb_sys_real()->renameat(ckb_sys_real(), from_dirfd, from,
					  to_dirfd, to);

	if (rc < 0)
		return rc;
	note_entry(l, to_dirfd, to, child);
	if (a == b)
		snprintf(l->notes[l->note_count - 1].also, 264, "%s",
			 old_name);
	else
		note_entry(l, from_dirfd, from, LOST);
	return 0;
}

CRASH int c_unlinkat(const struct ckb_sys *sys, int dirfd, const char *path,
		     int flags)
{
	ALONE(log_of(sys));
	int rc = ckb_sys_real()->unlinkat(ckb_sys_real(), dirfd, path, flags);

	if (rc == 0)
		note_entry(log_of(sys), dirfd, path, LOST);
	return rc;
}

/* Everything that happens in folder @root, which is empty, from now on. */
CRASH void crash_begin(struct crash_log *l, const char *root)
{
	struct stat st;

	memset(l, 0, sizeof(*l));
	pthread_mutex_init(&l->lock, NULL);
	l->sys = *ckb_sys_real();
	l->sys.openat = c_openat;
	l->sys.close = c_close;
	l->sys.pwrite = c_pwrite;
	l->sys.pwritev = c_pwritev;
	l->sys.fsync = c_fsync;
	l->sys.fdatasync = c_fsync;
	l->sys.ftruncate = c_ftruncate;
	l->sys.mkdirat = c_mkdirat;
	l->sys.linkat = c_linkat;
	l->sys.renameat = c_renameat;
	l->sys.unlinkat = c_unlinkat;
	l->broken = stat(root, &st) != 0;
	snprintf(l->root, sizeof(l->root), "%s", root);
	node_new(l, true, st.st_ino);
}

CRASH void crash_end(struct crash_log *l)
{
	for (size_t i = 0; i < l->note_count; i++)
		ckb_buf_fini(&l->notes[i].data);
	free(l->notes);
	free(l->nodes);
	pthread_mutex_destroy(&l->lock);
}

/* ---- replaying ---- */

/* Index of the last sync of @node before @cut, or 0; what is before it is
 * safe. */
CRASH size_t last_sync(const struct crash_log *l, size_t cut, uint32_t node)
{
	for (size_t i = cut; i > 0; i--)
		if (l->notes[i - 1].kind == NOTE_SYNC &&
		    l->notes[i - 1].node == node)
			return i;
	return 0;
}

CRASH bool survives(const struct note *n, size_t index, bool safe, int policy)
{
	uint32_t x = (uint32_t)index * 2654435761u ^
		     (uint32_t)policy * 40503u * 65599u;

	if (safe || policy == ALL)
		return true;
	if (policy == ENTRIES || policy == BYTES)
		return (n->kind == NOTE_ENTRY) == (policy == ENTRIES);
	x ^= x >> 15;
	x *= 2246822519u;
	return policy >= SOME && (x >> 13 & 1);
}

CRASH bool replay_file(const struct crash_log *l, size_t cut, int policy,
		       uint32_t node, const char *path)
{
	size_t safe = last_sync(l, cut, node);
	bool ok = true;

	if (access(path, F_OK) == 0)
		return true; /* by its other name */
	int fd = open(path, O_WRONLY | O_CREAT | O_CLOEXEC, 0666);

	for (size_t i = 0; i < cut; i++) {
		const struct note *n = &l->notes[i];

		if (n->node != node || n->kind == NOTE_ENTRY ||
		    n->kind == NOTE_SYNC || !survives(n, i, i < safe, policy))
			continue;
		if (n->kind == NOTE_TRUNCATE)
			ok = ftruncate(fd, (off_t)n->off) == 0 && ok;
		else
			ok = pwrite(fd, n->data.data, n->data.len,
				    (off_t)n->off) == (ssize_t)n->data.len &&
			     ok;
	}
	return close(fd) == 0 && ok;
}

/* Folder @node, whose entries are the surviving changes in their order. */
CRASH bool replay_folder(const struct crash_log *l, size_t cut, int policy,
			 uint32_t node, const char *path)
{
	struct entry {
		const char *name;
		uint32_t child;
	} entries[128];
	size_t safe = last_sync(l, cut, node), count = 0;
	bool ok = true;

	for (size_t i = 0; i < cut; i++) {
		const struct note *n = &l->notes[i];
		size_t at = 0;

		if (n->node != node || n->kind != NOTE_ENTRY ||
		    !survives(n, i, i < safe, policy))
			continue;
		for (size_t k = 0; k < count; k++)
			if (strcmp(entries[k].name, n->also) == 0)
				entries[k].child = LOST;
		while (at < count && strcmp(entries[at].name, n->name) != 0)
			at++;
		if (at == 128)
			return false;
		count += at == count;
		entries[at] = (struct entry){ n->name, n->child };
	}
	for (size_t k = 0; k < count; k++) {
		char to[PATH_MAX];

		if (entries[k].child == LOST)
			continue;
		snprintf(to, sizeof(to), "%s/%s", path, entries[k].name);
		if (!l->nodes[entries[k].child].is_folder)
			ok = replay_file(l, cut, policy, entries[k].child,
					 to) && ok;
		else
			ok = mkdir(to, 0777) == 0 &&
			     replay_folder(l, cut, policy, entries[k].child,
					   to) && ok;
	}
	return ok;
}

/* Make in the empty folder @path what survived. false: could not. */
CRASH bool crash_replay(const struct crash_log *l, size_t cut, int policy,
			const char *path)
{
	return !l->broken && replay_folder(l, cut, policy, 0, path);
}

#endif
