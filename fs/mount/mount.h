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

struct ckm_opts {
	const char *store;     /* path of the store */
	const char *dir;       /* mount point */
	bool foreground;       /* stay; log to stderr, not to syslog */
	bool allow_other;      /* let other users in (modes are checked) */
	size_t cache_bytes;    /* decoded cells kept; 0: the default */
	uint32_t threads;      /* most threads serving requests; 0: 16 */
};

/*
 * Mount. In the background (the default) returns 0 in the calling process as
 * soon as the mount answers, or the error that kept it from doing so; the
 * daemon is a process of its own. In the foreground returns when unmounted.
 *
 * Call it before the process has threads.
 */
CKB_MUST int ckm_mount(const struct ckm_opts *opts, struct ckpt_err *err);

/* Unmount the ckptfs mount at @dir. CKPT_EBUSY when it is in use;
 * CKPT_EINVAL when @dir is no ckptfs mount. A dead mount is cleared. */
CKB_MUST int ckm_umount(const char *dir, struct ckpt_err *err);

#endif
