/* SPDX-License-Identifier: Apache-2.0 */
/* mount/internal.h - what the files of the daemon share. */
#ifndef CKM_INTERNAL_H
#define CKM_INTERNAL_H

#define FUSE_USE_VERSION 312
#include <fuse_lowlevel.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>

#include "mount/mount.h"
#include "tree/tree.h"

/* The status file: at the top, never listed. A name of a checkpoint does not
 * begin with a dot, so it hides nothing. */
#define CKM_STATUS_NAME ".ckptfs"
#define CKM_STATUS_INO ((fuse_ino_t)2)

/* ---- nodes.c: what the kernel knows, by node id ---- */
struct ckm_nodes;

CKB_MUST int ckm_nodes_new(struct ckv_node *root, struct ckm_nodes **out,
			   struct ckpt_err *err);
void ckm_nodes_free(struct ckm_nodes *n);

/* The node behind @id, with a reference; NULL: the kernel made it up. */
struct ckv_node *ckm_nodes_get(struct ckm_nodes *n, fuse_ino_t id);

/* The kernel learns of @node (taken): its id, with one more lookup. 0: out
 * of memory (then @node was put). */
fuse_ino_t ckm_nodes_learn(struct ckm_nodes *n, struct ckv_node *node,
			   uint64_t ino);
void ckm_nodes_forget(struct ckm_nodes *n, fuse_ino_t id, uint64_t count);
size_t ckm_nodes_count(struct ckm_nodes *n);

/* Every checkpoint that the kernel knows, each with a reference; malloc'ed,
 * NULL when there are none or memory is out. */
struct ckm_known {
	fuse_ino_t id;
	struct ckv_node *node;
};
struct ckm_known *ckm_nodes_checkpoints(struct ckm_nodes *n,
					size_t *out_count);

/* ---- handles.c: what is open, each behind its fuse_file_info's fh ---- */
struct ckm_handle {
	struct ckm_handle *prev, *next;
	void (*end)(struct ckm_handle *one); /* frees it */
};
struct ckm_handles {
	pthread_mutex_t lock;
	struct ckm_handle head; /* of the ring; guard: lock */
};
void ckm_handles_init(struct ckm_handles *h);
void ckm_handles_add(struct ckm_handles *h, struct ckm_handle *one,
		     void (*end)(struct ckm_handle *one));
void ckm_handles_end(struct ckm_handles *h, struct ckm_handle *one);
/* End what is left; no request is under way. */
void ckm_handles_fini(struct ckm_handles *h);

/* ---- what a mount counts; status.c names them ---- */
enum ckm_counter {
	CKM_LOOKUP, CKM_FORGET, CKM_GETATTR, CKM_READLINK, CKM_OPEN, CKM_READ,
	CKM_RELEASE, CKM_OPENDIR, CKM_READDIR, CKM_RELEASEDIR, CKM_STATFS,
	CKM_XATTR, CKM_ERRORS, CKM_BYTES, CKM_COUNTERS
};

struct ckm_fs {
	struct ckpt_store *store;
	struct ckv_tree *tree;
	struct ckm_nodes *nodes;
	struct ckm_handles handles;
	uid_t uid;
	gid_t gid;
	mode_t umask;           /* bits that modes lack */
	void (*ready)(void *ctx); /* called once, from INIT */
	void *ready_ctx;
	int64_t start_ns;
	atomic_uint_least64_t counters[CKM_COUNTERS]; /* relaxed: figures */
	pthread_mutex_t size_lock;
	uint64_t size_bytes;    /* of all packs; guard: size_lock */
	int64_t size_at_ns;     /* when that was; guard: size_lock */
	bool size_busy;         /* a thread counts; guard: size_lock */
	int minor;              /* device minor of the mount; -1: unknown */
	atomic_bool asked;      /* relaxed: there was a request */
};

static inline struct ckm_fs *ckm_fs_of(fuse_req_t req)
{
	return fuse_req_userdata(req);
}
/* The first request has come, so the kernel has dealt with INIT. */
void ckm_asked(struct ckm_fs *fs);
/* Every request counts itself first. */
static inline void ckm_count(struct ckm_fs *fs, enum ckm_counter c,
			     uint64_t n)
{
	atomic_fetch_add_explicit(&fs->counters[c], n, memory_order_relaxed);
	if (!atomic_load_explicit(&fs->asked, memory_order_relaxed))
		ckm_asked(fs);
}

/* ---- ops.c ---- */
/* With @xattr the table answers xattr calls; without, the kernel is told once
 * that there are none. */
const struct fuse_lowlevel_ops *ckm_ops(bool xattr);

#define CKM_FOREVER_S 1e9
#define CKM_LIVE_S 0.5 /* what may change is asked for again after this */

/* Answer a failed request: the errno of @code. */
void ckm_fail(fuse_req_t req, int code, const struct ckpt_err *err);
/* What stands in a run may be renamed, removed or replaced. */
bool ckm_lives(const struct ckv_node *dir);
/* Attributes of @node (taken) as an entry of a folder; the kernel learns of
 * it. On failure nothing is learnt. */
CKB_MUST int ckm_learn(struct ckm_fs *fs, bool parent_lives,
		       struct ckv_node *node, struct fuse_entry_param *e,
		       struct ckpt_err *err);
/* The reply buffer of this thread; NULL: out of memory. */
uint8_t *ckm_reply_buffer(size_t size);

/* ---- dirs.c, xattr.c, status.c: the requests of folders and the rest ---- */
void ckm_op_opendir(fuse_req_t req, fuse_ino_t ino, struct fuse_file_info *fi);
void ckm_op_readdir(fuse_req_t req, fuse_ino_t ino, size_t size, off_t off,
		    struct fuse_file_info *fi);
void ckm_op_readdirplus(fuse_req_t req, fuse_ino_t ino, size_t size, off_t off,
			struct fuse_file_info *fi);
void ckm_op_releasedir(fuse_req_t req, fuse_ino_t ino,
		       struct fuse_file_info *fi);
void ckm_op_getxattr(fuse_req_t req, fuse_ino_t ino, const char *name,
		     size_t size);
void ckm_op_listxattr(fuse_req_t req, fuse_ino_t ino, size_t size);
void ckm_op_statfs(fuse_req_t req, fuse_ino_t ino);

/* The figures of now, "NAME VALUE" a line. */
CKB_MUST int ckm_status_text(struct ckm_fs *fs, struct ckb_buf *out,
			     struct ckpt_err *err);

/* ---- point.c: mount points ---- */

/* Refuse what cannot or must not be mounted on: absent, no folder, a dead
 * mount, overlap with the store. *@out: its real path, malloc'ed. */
CKB_MUST int ckm_point_check(const char *store, const char *dir, char **out,
			     struct ckpt_err *err);

/* Every mount of this process's view, without touching any; @minor and @user,
 * who mounted it: of a mount of ours, else -1. */
typedef void (*ckm_point_fn)(void *ctx, const char *point, int minor,
			     long user);
void ckm_point_each(ckm_point_fn fn, void *ctx);

/* Device minor of the FUSE mount of ours at @dir (a real path) from
 * /proc/self/mountinfo, without touching it; -1: there is none. */
int ckm_point_minor(const char *dir);

/* @dir's real path, malloc'ed, when a mount of ours is there, dead or alive.
 * CKPT_EINVAL: none is; @verb is what was wanted of it. */
CKB_MUST int ckm_point_find(const char *dir, const char *verb, char **out,
			    struct ckpt_err *err);

/* Root only, best effort: raise the kernel's read-ahead of the mount of device
 * @minor. INIT's reply would lower it again. */
void ckm_point_readahead(int minor);

/* ---- sweep.c ---- */
struct ckm_sweep;

/* Wakes the loop, and the thread; its handler does nothing. */
#define CKM_WAKE SIGUSR1

/* Start the thread; @point, where the mount of device @minor was made, and the
 * rest outlive it. The calling thread is to
 * run the session's loop: one of @stops, which every thread blocks, ends that.
 */
CKB_MUST int ckm_sweep_start(struct ckm_fs *fs, struct fuse_session *session,
			     const char *point, const sigset_t *stops,
			     struct ckm_sweep **out, struct ckpt_err *err);
/* The loop has ended, and so must the thread; it may be waiting for the mount.
 */
void ckm_sweep_ask_stop(struct ckm_sweep *s);
/* Wait for its end: the mount was taken down, or answers. */
void ckm_sweep_free(struct ckm_sweep *s);

/* ---- holders.c ---- */

/* Who keeps the mount at @point (a real path) busy: "123 (bash: its working
 * folder), ...", a few of them, appended to @out; nothing when none is seen.
 * The mount itself is not touched. */
void ckm_holders(const char *point, struct ckb_buf *out);

/* ---- notify.c ---- */

/* Tell systemd, if it started us (sd_notify(3)'s protocol): "READY=1". */
void ckm_notify(const char *state);

#endif
