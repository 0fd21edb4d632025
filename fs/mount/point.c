/* SPDX-License-Identifier: Apache-2.0 */
/*
 * point.c - mount points: what may be mounted on, and what is mounted there.
 *
 * Refuses, with the sentence that mends it: a path that is absent or no
 * folder, a mount of ours, alive or dead, and any overlap with the store (a
 * daemon that reads its own mount waits for itself). A folder that is not empty
 * and another file system's mount are hidden while ours lasts, as with mount(8)
 * and libfuse. /proc/self/mountinfo is read instead of the mount, which need
 * not answer.
 */
#include "mount/internal.h"

#include <errno.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <sys/wait.h>

#define READAHEAD_KIB 4096
#define BUSY_TRIES 10
#define BUSY_MS 50

/* Is @inner @outer itself, or below it? Both real paths. */
static bool within(const char *outer, const char *inner)
{
	size_t len = strlen(outer);

	if (strcmp(outer, "/") == 0)
		return true;
	return strncmp(outer, inner, len) == 0 &&
	       (inner[len] == '\0' || inner[len] == '/');
}

int ckm_point_check(const char *store, const char *dir, char **out,
		    struct ckpt_err *err)
{
	struct stat st;

	*out = NULL;
	if (stat(dir, &st) != 0) {
		if (errno == ENOTCONN)
			return ckb_err(err, CKPT_EBUSY,
				       "cannot mount on '%s': a mount is there "
				       "whose daemon is gone; clear it with: "
				       "ckptfs umount '%s'", dir, dir);
		return ckb_err_sys(err, errno, "cannot mount on '%s'", dir);
	}
	if (!S_ISDIR(st.st_mode))
		return ckb_err(err, CKPT_EINVAL,
			       "cannot mount on '%s': not a folder", dir);
	CKB_FREE char *point = realpath(dir, NULL);
	CKB_FREE char *home = realpath(store, NULL);

	if (point && ckm_point_minor(point) >= 0)
		return ckb_err(err, CKPT_EBUSY, "cannot mount on '%s': a "
			       "ckptfs mount is there; take it down first "
			       "with: ckptfs umount '%s'", dir, dir);
	if (!point)
		return ckb_err_sys(err, errno, "cannot mount on '%s'", dir);
	if (!home)
		return ckb_err_sys(err, errno, "cannot find store '%s'", store);
	if (within(home, point) || within(point, home))
		return ckb_err(err, CKPT_EINVAL,
			       "cannot mount on '%s': it overlaps the store "
			       "'%s', and the mount would wait for itself; "
			       "choose a folder elsewhere", dir, store);
	*out = CKB_TAKE(point);
	return 0;
}

/* Undo mountinfo's \ooo in place. */
static void unescape(char *s)
{
	char *to = s;

	for (; *s; s++) {
		if (s[0] == '\\' && s[1] >= '0' && s[1] <= '3' && s[2] &&
		    s[3]) {
			*to++ = (char)((s[1] - '0') << 6 | (s[2] - '0') << 3 |
				       (s[3] - '0'));
			s += 3;
		} else {
			*to++ = *s;
		}
	}
	*to = '\0';
}

void ckm_point_each(ckm_point_fn fn, void *ctx)
{
	FILE *f = fopen("/proc/self/mountinfo", "re");
	CKB_FREE char *line = NULL;
	size_t cap = 0;

	if (!f)
		return;
	while (getline(&line, &cap, f) > 0) {
		CKB_FREE char *point = NULL;
		unsigned minor;

		if (sscanf(line, "%*s %*s %*u:%u %*s %ms", &minor, &point) !=
		    2)
			continue;
		unescape(point);
		bool ours = strstr(line, " - fuse.ckptfs ");
		/* the kernel's own options are the last field */
		const char *user = ours ? strstr(strrchr(line, ' '),
						 "user_id=") : NULL;

		fn(ctx, point, ours ? (int)minor : -1,
		   user ? strtol(user + strlen("user_id="), NULL, 10) : -1);
	}
	fclose(f);
}

struct at {
	const char *dir;
	int minor;
	long user;
};

static void match(void *ctx, const char *point, int minor, long user)
{
	struct at *at = ctx;

	if (strcmp(point, at->dir) != 0)
		return;
	at->minor = minor; /* the last one is on top */
	at->user = user;
}

static struct at mount_at(const char *dir)
{
	struct at at = { dir, -1, -1 };

	ckm_point_each(match, &at);
	return at;
}

int ckm_point_minor(const char *dir)
{
	return mount_at(dir).minor;
}

void ckm_point_readahead(int minor)
{
	char path[64];
	FILE *f;

	if (minor < 0 || geteuid() != 0)
		return;
	snprintf(path, sizeof(path), "/sys/class/bdi/0:%d/read_ahead_kb",
		 minor);
	f = fopen(path, "we");
	if (!f)
		return;
	fprintf(f, "%d\n", READAHEAD_KIB);
	fclose(f);
}

/* fusermount3 unmounts for users who may not call umount2(2). */
static int run_fusermount(const char *dir, bool lazy)
{
	int status;
	pid_t pid = fork();

	if (pid < 0)
		return -1;
	if (pid == 0) {
		execlp("fusermount3", "fusermount3", lazy ? "-uqz" : "-uq",
		       "--", dir, (char *)NULL);
		_exit(127);
	}
	while (waitpid(pid, &status, 0) < 0)
		if (errno != EINTR)
			return -1;
	return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
}

/* realpath() asks the mount itself, which may be dead: resolve its parent. */
static char *real_point(const char *dir)
{
	CKB_FREE char *copy = strdup(dir);
	char *full = NULL, *slash;

	if (!copy)
		return NULL;
	for (size_t n = strlen(copy); n > 1 && copy[n - 1] == '/'; n--)
		copy[n - 1] = '\0';
	slash = strrchr(copy, '/');
	const char *base = slash ? slash + 1 : copy;

	if (*base == '\0' || strcmp(base, ".") == 0 ||
	    strcmp(base, "..") == 0)
		return realpath(dir, NULL);
	if (slash)
		*slash = '\0';
	CKB_FREE char *parent = realpath(!slash ? "." : *copy ? copy : "/",
					 NULL);

	if (!parent)
		return NULL;
	if (asprintf(&full, "%s/%s", strcmp(parent, "/") ? parent : "",
		     base) < 0)
		return NULL;
	return full;
}

int ckm_point_find(const char *dir, const char *verb, char **out,
		   struct ckpt_err *err)
{
	CKB_FREE char *point = real_point(dir);

	*out = NULL;
	if (!point)
		return ckb_err_sys(err, errno, "cannot %s '%s'", verb, dir);
	if (ckm_point_minor(point) < 0) {
		/* it may be named through a symbolic link */
		free(point);
		point = realpath(dir, NULL);
		if (!point || ckm_point_minor(point) < 0)
			return ckb_err(err, CKPT_EINVAL, "cannot %s '%s': no "
				       "ckptfs mount is there", verb, dir);
	}
	*out = CKB_TAKE(point);
	return 0;
}

/* As umount2(2); -1 with EPERM: there is no fusermount3, which does it for
 * users. */
static int take_down(const char *point, bool lazy)
{
	if (umount2(point, UMOUNT_NOFOLLOW | (lazy ? MNT_DETACH : 0)) == 0)
		return 0;
	if (errno != EPERM || geteuid() == 0)
		return -1;
	int rc = run_fusermount(point, lazy);

	errno = rc == 127 ? EPERM : EBUSY;
	return rc == 0 ? 0 : -1;
}

/* A look at it, such as the daemon's own, keeps it busy for a moment only. */
static int busy(const char *dir, const char *point, struct ckpt_err *err)
{
	const struct timespec moment = { .tv_nsec = BUSY_MS * 1000000 };
	CKB_BUF struct ckb_buf who = { 0 };

	ckm_holders(point, &who);
	for (int i = 0; i < BUSY_TRIES && who.len == 0; i++) {
		nanosleep(&moment, NULL);
		/* or somebody else took it down */
		if (take_down(point, false) == 0 || ckm_point_minor(point) < 0)
			return 0;
		ckm_holders(point, &who);
	}
	return ckb_err(err, CKPT_EBUSY, "cannot unmount '%s': it is in use%s%s;"
		       " end that, or detach it now with: ckptfs umount -l "
		       "'%s'", dir, who.len > 0 ? " by " : " by somebody",
		       who.len > 0 && !who.failed ? (char *)who.data : "",
		       dir);
}

int ckm_umount(const char *dir, bool lazy, struct ckpt_err *err)
{
	CKB_FREE char *point = NULL;
	int rc = ckm_point_find(dir, "unmount", &point, err);

	if (rc < 0)
		return rc;
	/* whoever called us from within it holds it, we need not */
	(void)!chdir("/");
	long user = mount_at(point).user, self = (long)geteuid();

	if (self != 0 && user != self)
		return ckb_err(err, CKPT_EPERM, "cannot unmount '%s': user %ld "
			       "mounted it, and none but that user and root "
			       "may take it down", dir, user);
	if (take_down(point, lazy) == 0)
		return 0;
	if (errno == EBUSY && !lazy)
		return busy(dir, point, err);
	if (errno == EPERM && self != 0)
		return ckb_err(err, CKPT_EPERM, "cannot unmount '%s': there is "
			       "no fusermount3; install the package fuse3",
			       dir);
	return ckb_err_sys(err, errno, "cannot unmount '%s'", dir);
}
