/* SPDX-License-Identifier: Apache-2.0 */
/* mount/internal.h - what the files of the daemon share. */
#ifndef CKM_INTERNAL_H
#define CKM_INTERNAL_H

#define FUSE_USE_VERSION 312
#include <fuse_lowlevel.h>
#include <pthread.h>

#include "mount/mount.h"
#include "tree/tree.h"

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

/* ---- ops.c ---- */
struct ckm_fs {
	struct ckpt_store *store;
	struct ckv_tree *tree;
	struct ckm_nodes *nodes;
	uid_t uid;
	gid_t gid;
	void (*ready)(void *ctx); /* called once, from INIT */
	void *ready_ctx;
	pthread_mutex_t size_lock;
	uint64_t size_bytes;    /* of all packs; guard: size_lock */
	int64_t size_at_ns;     /* when that was; guard: size_lock */
};
const struct fuse_lowlevel_ops *ckm_ops(void);

/* ---- point.c: mount points ---- */

/* Refuse what cannot or must not be mounted on: absent, no folder, a dead
 * mount, overlap with the store. *@out: its real path, malloc'ed. */
CKB_MUST int ckm_point_check(const char *store, const char *dir, char **out,
			     struct ckpt_err *err);

/* Device minor of the FUSE mount of ours at @dir (a real path) from
 * /proc/self/mountinfo, without touching it; -1: there is none. */
int ckm_point_minor(const char *dir);

/* Root only, best effort: raise the kernel's read-ahead of the mount. */
void ckm_point_readahead(const char *dir);

#endif
