/* SPDX-License-Identifier: Apache-2.0 */
/* tree/internal.h - what the files of the tree share. */
#ifndef CKV_INTERNAL_H
#define CKV_INTERNAL_H

#include <pthread.h>
#include <stdatomic.h>
#include <sys/stat.h>

#include "tree/tree.h"

#define CKV_IDLE_MAX 4u /* open checkpoints kept without a node */

/* ---- facts.c: what a run needs to know of its checkpoints ---- */

struct ckv_facts {
	bool damaged;            /* the manifest cannot be read */
	uint8_t uuid[CKPT_UUID_BYTES];
	bool has_step;
	uint64_t step, seq;
	int64_t created_ns;      /* damaged: the file's time */
	uint32_t item_count;     /* shown ones */
};
struct ckv_known;                /* one cached checkpoint */

struct ckv_tree {
	struct ckpt_store *store;
	pthread_mutex_t lock;
	struct ckv_known **known; /* hash by name; guard: lock */
	size_t known_count, known_cap; /* guard: lock */
	struct ckv_ckpt *open;    /* last used first; guard: lock */
};

/* Facts of checkpoint @name whose manifest file is @st; cached until another
 * file is there. Damage is no failure: see `damaged`. CKPT_ENOENT without
 * message: it is gone. */
CKB_MUST int ckv_facts(struct ckv_tree *tree, const char *name,
		       const struct stat *st, struct ckv_facts *out,
		       struct ckpt_err *err);
void ckv_facts_fini(struct ckv_tree *tree);

/* Name of the checkpoint @link ("latest" or "newest") of @run points to,
 * malloc'ed. CKPT_ENOENT without message: none. */
CKB_MUST int ckv_link_target(struct ckv_tree *tree, const char *run,
			     const char *link, char **out,
			     struct ckpt_err *err);

/* st_mtim in nanoseconds. */
int64_t ckv_mtime_ns(const struct stat *st);
/* Are both the same state of one file: device, inode, size, time? */
bool ckv_same_file(const struct stat *a, const struct stat *b);

/* ---- ckpt.c: an open checkpoint; paths.c: the paths in it ---- */

#define CKV_NO_TENSOR UINT32_MAX

/*
 * One entry's path: "item/a/b", escaped, without suffix. An item without
 * entries is here as "item/" with CKV_NO_TENSOR, so that its folder exists.
 */
struct ckv_path {
	const char *text;
	uint32_t tensor;         /* entry of the checkpoint */
	bool cut;                /* a component of its name was cut */
};

/*
 * One folder, in the order of paths, a folder before what it holds; number 0
 * is the checkpoint itself. Its paths are [lo, hi), the folders below it are
 * (its own number, end), the first child, if any, comes next.
 */
struct ckv_folder {
	const char *text;        /* its path is the first @len bytes */
	uint32_t len;
	uint32_t lo, hi, end;
	uint32_t parent;
	uint32_t subfolders;     /* children that are shown */
	bool hidden;             /* a file has its name: it is not shown */
	uint64_t ino;
};

struct ckv_paths {
	struct ckb_buf texts;    /* behind path */
	struct ckv_path *path;   /* sorted, '/' before every other byte */
	uint32_t path_count;
	struct ckv_folder *folder;
	uint32_t folder_count;
	size_t folder_cap;
	uint32_t salt;           /* makes inode numbers distinct */
};

/* Paths, folders and inode numbers of @ckpt. On failure @out is empty. */
CKB_MUST int ckv_paths_init(struct ckv_paths *out,
			    const struct ckpt_checkpoint *ckpt,
			    struct ckpt_err *err);
void ckv_paths_fini(struct ckv_paths *paths);

/* Offset of the names of @folder's children in their paths. */
static inline uint32_t ckv_folder_skip(const struct ckv_folder *folder)
{
	return folder->len > 0 ? folder->len + 1 : 0;
}
/* Child @name of folder number @dir; NULL: none. The file's path comes without
 * suffix: @name_len bytes of @name are compared. */
const struct ckv_folder *ckv_folder_child(const struct ckv_paths *paths,
					  uint32_t dir, const char *name);
const struct ckv_path *ckv_folder_file(const struct ckv_paths *paths,
				       uint32_t dir, const char *name,
				       size_t name_len);

struct ckv_ckpt {
	struct ckv_ckpt *next;   /* in tree->open; guard: tree->lock */
	uint32_t refs;           /* guard: tree->lock */
	char *name;
	struct stat st;          /* the manifest's identity */
	pthread_mutex_t lock;    /* of the lazy parts below */
	struct ckpt_checkpoint *ckpt; /* NULL until opened; guard: lock; who
				    saw ckv_ckpt_load() succeed, or holds a
				    node inside, may read it freely */
	atomic_bool loaded;      /* relaxed: for figures alone */
	struct ckv_paths paths;  /* set with ckpt */
	char *json;              /* checkpoint.json; guard: lock until set */
	size_t json_len;
};

CKB_MUST int ckv_ckpt_get(struct ckv_tree *tree, const char *name,
			  const struct stat *st, struct ckv_ckpt **out,
			  struct ckpt_err *err);
void ckv_ckpt_ref(struct ckv_tree *tree, struct ckv_ckpt *c);
void ckv_ckpt_put(struct ckv_tree *tree, struct ckv_ckpt *c);
/* Free what ckv_ckpt_put() kept; nothing may be in use. */
void ckv_ckpt_fini(struct ckv_tree *tree);
/* Open it, build the paths; once. CKPT_ENOENT, CKPT_ESTALE: it was removed or
 * replaced before anybody looked inside. */
CKB_MUST int ckv_ckpt_load(struct ckv_tree *tree, struct ckv_ckpt *c,
			   struct ckpt_err *err);
/* Is an item of @kind shown? */
static inline bool ckv_item_shown(enum ckpt_item_kind kind)
{
	return kind != CKPT_ITEM_ORIGIN;
}

/* ---- nodes ---- */

struct ckv_node {
	atomic_uint refs;        /* relaxed up, acq_rel down */
	struct ckv_tree *tree;
	enum ckv_kind kind;
	uint32_t folder;         /* CHECKPOINT, FOLDER: its number */
	struct ckv_ckpt *ckpt;   /* or NULL */
	char *path;              /* run's name; link "run/latest"; NULL in a
				    checkpoint */
	const struct ckpt_tensor_info *tensor; /* NPY, TXT, OPAQUE */
	uint64_t ino;
	int64_t time_ns;
	uint32_t subfolders;     /* CHECKPOINT: from its facts */
};

/*
 * Inode numbers hang on each other as the names do: a folder's number, or a
 * uuid's, and the name below it give the next. Never 0 (none) or 1 (the root).
 */
uint64_t ckv_ino_uuid(const uint8_t uuid[16]);
uint64_t ckv_ino_below(uint64_t parent, uint32_t salt, const char *name,
		       size_t len);

/* ---- text.c, json.c, npy.c, readme.c: the bytes of generated files ---- */

/* Fills c->json, once; @c is loaded. */
CKB_MUST int ckv_checkpoint_json(struct ckv_ckpt *c, struct ckpt_err *err);
const char *ckv_readme(size_t *out_len);

/* .txt: its exact size, from metadata alone; ckv_text() is in tree.h. */
uint64_t ckv_text_size(const struct ckpt_tensor_info *tensor);

/* preview.c: @tensor's numbers in brackets, read from @ckpt; NULL: blanks of
 * the same width. */
CKB_MUST int ckv_preview(struct ckb_buf *out, struct ckpt_checkpoint *ckpt,
			 const struct ckpt_tensor_info *tensor,
			 struct ckpt_err *err);

/* .npy: UINT64_MAX, the dtype has none. [off, off + len) lies inside. */
uint64_t ckv_npy_size(const struct ckpt_tensor_info *tensor);
CKB_MUST int ckv_npy_read(struct ckpt_checkpoint *ckpt,
			  const struct ckpt_tensor_info *tensor, uint64_t off,
			  uint8_t *dst, size_t len, struct ckpt_err *err);

#endif
