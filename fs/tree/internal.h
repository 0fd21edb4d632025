/* SPDX-License-Identifier: Apache-2.0 */
/* tree/internal.h - what the files of the tree share. */
#ifndef CKV_INTERNAL_H
#define CKV_INTERNAL_H

#include <pthread.h>
#include <stdatomic.h>
#include <sys/stat.h>

#include "tree/tree.h"

/* ---- facts.c: what a run needs to know of its checkpoints ---- */

struct ckv_facts {
	bool damaged;            /* the manifest cannot be read */
	uint8_t uuid[CKPT_UUID_BYTES];
	bool has_step;
	uint64_t step, seq;
	int64_t created_ns;      /* damaged: the file's time */
};
struct ckv_known;                /* one cached checkpoint */

struct ckv_tree {
	struct ckpt_store *store;
	pthread_mutex_t lock;
	struct ckv_known **known; /* hash by name; guard: lock */
	size_t known_count, known_cap; /* guard: lock */
	struct ckv_ckpt *open;    /* list of open checkpoints; guard: lock */
};

/* Facts of checkpoint @name whose manifest file is @st; cached until another
 * file is there. Never fails for damage: see `damaged`. */
CKB_MUST int ckv_facts(struct ckv_tree *tree, const char *name,
		       const struct stat *st, struct ckv_facts *out,
		       struct ckpt_err *err);
void ckv_facts_fini(struct ckv_tree *tree);

/* Name of the checkpoint @link ("latest" or "newest") of @run points to,
 * malloc'ed. CKPT_ENOENT without message: none. */
CKB_MUST int ckv_link_target(struct ckv_tree *tree, const char *run,
			     const char *link, char **out,
			     struct ckpt_err *err);

/* ---- ckpt.c: an open checkpoint and the paths in it ---- */

/* One entry's path: "item/a/b", escaped, without suffix. */
struct ckv_path {
	const char *text;
	uint32_t tensor;         /* entry of the checkpoint */
	bool cut;                /* a component was cut */
};

struct ckv_ckpt {
	struct ckv_ckpt *next;   /* in tree->open; guard: tree->lock */
	uint32_t refs;           /* guard: tree->lock */
	char *name;
	struct stat st;          /* the manifest's identity */
	pthread_mutex_t lock;    /* of the lazy parts below */
	struct ckpt_checkpoint *ckpt; /* NULL until opened; guard: lock */
	struct ckv_path *paths;  /* sorted; set with ckpt */
	size_t path_count;
	struct ckb_buf texts;    /* behind paths */
	char *json;              /* checkpoint.json; guard: lock */
	size_t json_len;
};

CKB_MUST int ckv_ckpt_get(struct ckv_tree *tree, const char *name,
			  const struct stat *st, struct ckv_ckpt **out,
			  struct ckpt_err *err);
void ckv_ckpt_put(struct ckv_tree *tree, struct ckv_ckpt *c);
/* Open it, build the paths; once. */
CKB_MUST int ckv_ckpt_load(struct ckv_tree *tree, struct ckv_ckpt *c,
			   struct ckpt_err *err);
/* The paths that begin with @prefix (which ends in '/'): [*lo, *hi). */
void ckv_paths_below(const struct ckv_ckpt *c, const char *prefix,
		     size_t prefix_len, size_t *lo, size_t *hi);
/* The path that is exactly @path, or NULL. */
const struct ckv_path *ckv_path_find(const struct ckv_ckpt *c,
				     const char *path, size_t len);
/* Is item @item of the loaded @c shown? */
bool ckv_item_shown(const struct ckpt_item_info *item);

/* ---- nodes ---- */

struct ckv_node {
	atomic_uint refs;        /* relaxed up, acq_rel down */
	struct ckv_tree *tree;
	enum ckv_kind kind;
	struct ckv_ckpt *ckpt;   /* or NULL */
	char *path;              /* run's name; link "run/latest"; in a
				    checkpoint: path inside it, with suffix */
	const struct ckpt_tensor_info *tensor; /* NPY, TXT, OPAQUE */
	size_t lo, hi;           /* FOLDER: its range of paths */
	uint64_t ino;
	int64_t time_ns;
};

/* Inode number of @path under @uuid. */
uint64_t ckv_ino(const uint8_t uuid[16], const char *path, size_t len);

/* ---- text.c, json.c, npy.c: the bytes of generated files ---- */
/* Fills c->json, once; @c is loaded. */
CKB_MUST int ckv_checkpoint_json(struct ckv_ckpt *c, struct ckpt_err *err);
const char *ckv_readme(size_t *out_len);

/* .txt: its exact size, from metadata alone; and the text. */
uint64_t ckv_text_size(const struct ckpt_checkpoint *ckpt,
		       const struct ckpt_tensor_info *tensor);
CKB_MUST int ckv_text(struct ckpt_checkpoint *ckpt,
		      const struct ckpt_tensor_info *tensor,
		      struct ckb_buf *out, struct ckpt_err *err);

uint64_t ckv_npy_size(const struct ckpt_tensor_info *tensor);
CKB_MUST int ckv_npy_read(struct ckpt_checkpoint *ckpt,
			  const struct ckpt_tensor_info *tensor, uint64_t off,
			  uint8_t *dst, size_t len, struct ckpt_err *err);

#endif
