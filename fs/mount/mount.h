/* SPDX-License-Identifier: Apache-2.0 */
/*
 * mount/mount.h - serve a store through FUSE, read-only.
 *
 * A thin adapter: what a path is and what it holds is tree/'s business.
 */
#ifndef CKM_MOUNT_H
#define CKM_MOUNT_H

#include "base/err.h"

#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

struct ckm_opts {
	const char *store;     /* path of the store */
	const char *dir;       /* mount point */
	bool foreground;       /* stay; log to stderr, not to syslog */
	bool allow_other;      /* let other users in (modes are checked) */
	bool xattr;            /* answer user.ckptfs.* */
	bool noexec;           /* run no program from it */
	bool has_uid, has_gid; /* else the daemon's own */
	uid_t uid;             /* owner that files show */
	gid_t gid;
	mode_t umask;          /* bits that 0555 and 0444 lack */
	const char *fsname;    /* source in /proc/mounts; NULL: the store */
	size_t cache_bytes;    /* decoded cells kept; 0: the default */
	uint32_t threads;      /* most threads serving requests; 0: 16 */
};

/*
 * Mount. In the background (the default) returns 0 in the calling process as
 * soon as the mount answers, or the error that kept it from doing so; the
 * daemon is a process of its own. In the foreground returns when unmounted.
 *
 * Call it before the process has threads. Started by systemd (foreground, with
 * NOTIFY_SOCKET set) it says READY=1 when the mount answers.
 */
CKB_MUST int ckm_mount(const struct ckm_opts *opts, struct ckpt_err *err);

/* Unmount the ckptfs mount at @dir. CKPT_EBUSY when it is in use: the message
 * names who uses it; @lazy detaches it all the same, and the daemon ends with
 * the last user. CKPT_EINVAL when @dir is no ckptfs mount. A dead mount is
 * cleared. The working folder, which may be in the mount, becomes "/". */
CKB_MUST int ckm_umount(const char *dir, bool lazy, struct ckpt_err *err);

/* The figures of the mount at @dir (requests, bytes, cells, memory), one call
 * of @fn each; non-zero stops and is returned. CKPT_EINVAL: no ckptfs mount is
 * there; CKPT_EIO: its daemon is gone. */
typedef int (*ckm_stat_fn)(void *ctx, const char *name, uint64_t value);
CKB_MUST int ckm_stat(const char *dir, ckm_stat_fn fn, void *ctx,
		      struct ckpt_err *err);

#endif
