/* SPDX-License-Identifier: Apache-2.0 */
/*
 * tree/tree.h - a store as folders and files, without FUSE (DESIGN 8).
 *
 * The mount, `ls`, `cat` and `export` all go through it. A node is counted;
 * its size is exact before it is read; its inode number is stable across
 * mounts (from checkpoint uuid and path). All calls are thread-safe.
 */
#ifndef CKV_TREE_H
#define CKV_TREE_H

#include <ckpt/ckpt.h>

#include "base/buf.h"
#include "base/err.h"

struct ckv_tree;
struct ckv_node;

enum ckv_kind {
	CKV_ROOT,        /* folder of runs, checkpoints, README.txt */
	CKV_RUN,         /* folder of checkpoints: lives, may change */
	CKV_CHECKPOINT,  /* folder of items, checkpoint.json */
	CKV_FOLDER,      /* item, or part of a split name */
	CKV_LINK,        /* latest, newest */
	CKV_README,
	CKV_CHECKPOINT_JSON,
	CKV_NPY,
	CKV_TXT,
	CKV_OPAQUE,
};

CKB_MUST int ckv_tree_new(struct ckpt_store *store, struct ckv_tree **out,
			  struct ckpt_err *err);
/* Nodes that were not put, as of files open at a forced unmount, must not be
 * used any more; what they hold is freed, they are not. */
void ckv_tree_free(struct ckv_tree *tree);

/* The root, with a reference. */
struct ckv_node *ckv_root(struct ckv_tree *tree);
struct ckv_node *ckv_ref(struct ckv_node *node);
void ckv_put(struct ckv_node *node);

/* Child @name of folder @dir. CKPT_ENOENT without message: none there.
 * CKPT_ECORRUPT: its checkpoint's manifest is damaged. CKPT_ESTALE: its
 * checkpoint was removed or replaced. Others: it cannot be read now; so too
 * for a link, if that is so of any checkpoint it might mean. */
CKB_MUST int ckv_lookup(struct ckv_node *dir, const char *name,
			struct ckv_node **out, struct ckpt_err *err);

/* Path relative to the root, '/'-separated, "" for the root; links are
 * followed. CKPT_ENOENT says what is missing and what is there like it. */
CKB_MUST int ckv_resolve(struct ckv_tree *tree, const char *path,
			 struct ckv_node **out, struct ckpt_err *err);

struct ckv_attr {
	enum ckv_kind kind;
	bool is_folder, is_link;
	bool damaged;        /* a checkpoint whose manifest is, or is newer:
				ckv_inside_get() says why */
	bool immutable;      /* never changes while its parent shows it */
	uint64_t ino;
	uint64_t size;       /* exact; links: length of the target */
	int64_t time_ns;     /* the checkpoint's; runs: newest change */
	uint32_t subfolders; /* of a folder, links not counted: for st_nlink */
};
/* Of what is in a checkpoint it is known already and never fails. */
CKB_MUST int ckv_attr(struct ckv_node *node, struct ckv_attr *out,
		      struct ckpt_err *err);

/* Do both show the same file of the same state of the store? */
bool ckv_same(const struct ckv_node *a, const struct ckv_node *b);

/* Name of the checkpoint @node is of, by which it was found. Borrowed. */
const char *ckv_node_name(const struct ckv_node *node);

/* Was the checkpoint that @node is of removed, renamed or replaced since? */
bool ckv_gone(const struct ckv_node *node);

/* Close checkpoints that are gone and that no node is of: nothing else would
 * ask for them again. Now and then, in a tree that lives long. */
void ckv_tidy(struct ckv_tree *tree);

/* Figures for people. */
struct ckv_counts {
	uint64_t open;        /* checkpoints whose names are in memory */
	uint64_t known;       /* checkpoints whose facts are */
	uint64_t descriptors; /* of manifests, in the whole process */
};
void ckv_counts(struct ckv_tree *tree, struct ckv_counts *out);

enum ckv_kind ckv_node_kind(const struct ckv_node *node);
/*
 * What lies behind @node while the caller looks at it: its checkpoint, and the
 * entry a NPY, TXT or OPAQUE node shows (else NULL); all NULL for what is in no
 * checkpoint. Borrowed until ckv_inside_put(), which comes soon: as long, the
 * checkpoint cannot be closed to make room. Errors as of ckv_lookup().
 */
struct ckv_inside {
	struct ckpt_checkpoint *checkpoint;
	const struct ckpt_tensor_info *tensor;
	struct ckv_image *image; /* ours */
};
CKB_MUST int ckv_inside_get(const struct ckv_node *node,
			    struct ckv_inside *out, struct ckpt_err *err);
void ckv_inside_put(const struct ckv_node *node, struct ckv_inside *in);

/*
 * An open file: until it is released, its checkpoint stays open while
 * descriptors and memory allow, so that it reads on when the checkpoint is
 * removed or replaced; else a later read is CKPT_ESTALE. A node alone keeps
 * nothing open. Each call has its own release.
 */
CKB_MUST int ckv_hold(struct ckv_node *node, struct ckpt_err *err);
void ckv_release(struct ckv_node *node);

/*
 * One snapshot of a folder's entries, sorted by bytes; what cannot be read now
 * is there by its name. Entry @index of
 * [0, count): a name borrowed until ckv_list_free(), and its node with a new
 * reference on demand.
 */
struct ckv_list;
CKB_MUST int ckv_list_new(struct ckv_node *dir, struct ckv_list **out,
			  struct ckpt_err *err);
/* The same of a folder in a checkpoint that is open already, else CKPT_ESTALE:
 * for who tidies up. Nothing is opened for it, nor kept longer. */
CKB_MUST int ckv_list_open(struct ckv_node *dir, struct ckv_list **out,
			   struct ckpt_err *err);
void ckv_list_free(struct ckv_list *list);
size_t ckv_list_count(const struct ckv_list *list);
const char *ckv_list_name(const struct ckv_list *list, size_t index);
uint64_t ckv_list_ino(const struct ckv_list *list, size_t index);
bool ckv_list_is_folder(const struct ckv_list *list, size_t index);
bool ckv_list_is_link(const struct ckv_list *list, size_t index);
CKB_MUST int ckv_list_node(const struct ckv_list *list, size_t index,
			   struct ckv_node **out, struct ckpt_err *err);

/* Read up to @len bytes at @off; *@out_len is short only at the end. */
CKB_MUST int ckv_read(struct ckv_node *node, uint64_t off, void *dst,
		      size_t len, size_t *out_len, struct ckpt_err *err);

/* Target of a link, relative, appended to @out. */
CKB_MUST int ckv_readlink(struct ckv_node *node, struct ckb_buf *out,
			  struct ckpt_err *err);

/* What a tensor's .txt holds, appended to @out. */
CKB_MUST int ckv_text(struct ckpt_checkpoint *ckpt,
		      const struct ckpt_tensor_info *tensor,
		      struct ckb_buf *out, struct ckpt_err *err);

/* ---- names (tree/name.c; pure) ---- */

/* One raw component -> its file name, appended to @out. @folder: a trailing
 * .npy, .txt or .safetensors gets its dot escaped; else the result leaves
 * room for @suffix_len bytes within 255. *@out_cut: it was cut and ends in
 * "%x" and a digest. */
void ckv_escape(struct ckb_buf *out, const char *raw, size_t len, bool folder,
		size_t suffix_len, bool *out_cut);

/* Whole tensor name -> path of its file without suffix: split at @separator,
 * every component escaped. */
void ckv_tensor_path(struct ckb_buf *out, const char *name, size_t name_len,
		     const char *separator, size_t suffix_len, bool *out_cut);

#endif
