/* SPDX-License-Identifier: Apache-2.0 */
/* tree/internal.h - what the files of the tree share. */
#ifndef CKV_INTERNAL_H
#define CKV_INTERNAL_H

#include <pthread.h>
#include <stdatomic.h>
#include <sys/stat.h>

#include "base/sys.h"
#include "tree/tree.h"

#include "tree/map.h"

/* What the tree keeps (S9). An image is an open checkpoint: a descriptor and
 * its names; how many follows from the descriptors the process may have. */
#define CKV_IMAGES_MIN 4u
#define CKV_IMAGES_MAX 64u
#define CKV_IMAGE_BYTES (256u << 20) /* of all images, by estimate */
#define CKV_RUN_ENTRIES (256u << 10) /* of all runs */
/* A folder's time says nothing about what came within its tick: a listing is
 * trusted later only if the folder had been left alone for so long. */
#define CKV_SETTLED_NS 2000000000ll
/* Damage is believed for so long: a bad read may have been memory's or the
 * network's, and a repair in place may leave size and time as they were. */
#define CKV_DAMAGED_NS 60000000000ll

struct ckv_tree {
	struct ckpt_store *store;
	pthread_mutex_t lock;     /* of all below, and of the counts in what
				     they hold */
	uint64_t clock;           /* counts uses: who was used last */
	struct ckv_map ckpts;     /* by name */
	struct ckv_image *images;
	size_t image_count, image_max;
	size_t image_bytes, image_bytes_max;
	struct ckv_map runs;      /* by name */
	size_t run_entries;       /* of all in runs, and one for each */
};

/* ---- ckpt.c: which file it is ---- */

/* One state of a manifest file. Not its ctime: links to it come and go. */
struct ckv_id {
	uint64_t dev, ino, size;
	int64_t mtime_ns;
};
struct ckv_id ckv_id(const struct stat *st);
bool ckv_id_same(const struct ckv_id *a, const struct ckv_id *b);

/* ---- facts.c: what a run shows of a checkpoint ---- */

struct ckv_facts {
	bool damaged;            /* its bytes are wrong, or of a newer format */
	int64_t read_ns;         /* when that was seen */
	uint8_t uuid[CKPT_UUID_BYTES];
	uint64_t generation;
	bool has_step;
	uint64_t step, seq;
	int64_t created_ns;      /* damaged: the file's time */
	uint32_t item_count;     /* shown ones */
};

/*
 * Facts of checkpoint @name, read from its manifest, whose file is @id. Damage
 * is a fact: then @why says what is wrong, else @why is untouched. CKPT_ENOENT
 * without message: it is gone.
 */
CKB_MUST int ckv_facts_read(struct ckv_tree *tree, const char *name,
			    const struct ckv_id *id, struct ckv_facts *out,
			    struct ckpt_err *why, struct ckpt_err *err);

/* ---- run.c: a run as it was last seen ---- */

struct ckv_run_entry {
	const char *name;
	bool is_run;
	/* the rest is of a checkpoint; guard: tree->lock */
	bool has_facts;          /* of the file @id */
	bool checked;            /* @id was looked at since the listing */
	bool told;               /* the log has what is wrong with @id */
	struct ckv_id id;
	struct ckv_facts facts;
};

struct ckv_pick {
	bool known;
	uint32_t entry;          /* UINT32_MAX: none */
};

struct ckv_run {
	struct ckv_link link;    /* in tree->runs; guard: tree->lock */
	uint32_t refs;           /* the tree's too; guard: tree->lock */
	uint64_t used;           /* tree->clock then; guard: tree->lock */
	char *name;
	struct stat st;          /* the folder, before it was listed */
	bool settled;            /* the listing holds while st does */
	struct ckb_buf names;
	struct ckv_run_entry *entry; /* sorted by bytes */
	uint32_t count;
	size_t cap;
	struct ckv_pick latest, newest; /* guard: tree->lock */
};

/* "run/name", or "name" at the top; malloc'ed. NULL: out of memory. */
char *ckv_join(const char *run, const char *name);
/* "run/latest"; "/latest" at the top, so that ckv_readlink() can split it. */
char *ckv_link_path(const char *run, const char *link);

/* Run @name as it is now, with a reference. CKPT_ENOENT without message: there
 * is none. The top is always there. */
CKB_MUST int ckv_run_get(struct ckv_tree *tree, const char *name,
			 struct ckv_run **out, struct ckpt_err *err);
void ckv_run_put(struct ckv_tree *tree, struct ckv_run *run);
void ckv_runs_fini(struct ckv_tree *tree);

/* Facts of entry @index of @run, a checkpoint; kept while its file is the same
 * one, damage for CKV_DAMAGED_NS; it is logged once. CKPT_ENOENT without
 * message: it is gone. */
CKB_MUST int ckv_run_facts(struct ckv_tree *tree, struct ckv_run *run,
			   uint32_t index, struct ckv_facts *out,
			   struct ckpt_err *err);
/* The same by name, of the file @id; a run seen before is not listed again. */
CKB_MUST int ckv_run_facts_of(struct ckv_tree *tree, const char *run,
			      const char *name, const struct ckv_id *id,
			      struct ckv_facts *out, struct ckpt_err *err);
/* Log @why of entry @index, once for each state of its file. */
void ckv_run_tell(struct ckv_tree *tree, struct ckv_run *run, uint32_t index,
		  const struct ckpt_err *why);

/* Name of the checkpoint @link ("latest" or "newest") of @run points to,
 * appended to @out. CKPT_ENOENT without message: none. A checkpoint that
 * cannot be read now fails it: it might be the one. */
CKB_MUST int ckv_link_target(struct ckv_tree *tree, const char *run,
			     const char *link, struct ckb_buf *out,
			     struct ckpt_err *err);

/* ---- paths.c: the paths in a checkpoint ---- */

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

/* ---- ckpt.c: checkpoints behind nodes ---- */

/* Which checkpoint it is; open or not. */
struct ckv_ckpt {
	struct ckv_link link;    /* in tree->ckpts; guard: tree->lock */
	uint32_t refs;           /* nodes; guard: tree->lock */
	uint32_t files;          /* that are held open; guard: tree->lock */
	struct ckv_image *image; /* or NULL; guard: tree->lock */
	pthread_mutex_t lock;    /* while it is opened; before tree->lock */
	struct ckv_id id;
	bool has_uuid;           /* its facts could be read */
	uint8_t uuid[CKPT_UUID_BYTES];
	uint64_t generation;
	char name[];
};

/* A checkpoint, open. Fixed but for what has a guard. */
struct ckv_image {
	struct ckv_image *next;  /* in tree->images; guard: tree->lock */
	struct ckv_ckpt *of;
	uint32_t uses;           /* calls under way; guard: tree->lock */
	uint64_t used;           /* tree->clock then; guard: tree->lock */
	size_t bytes;            /* guard: tree->lock */
	uint8_t *counted;        /* by tensor: its chunk list is in bytes;
				    guard: tree->lock */
	struct ckpt_checkpoint *ckpt;
	struct ckv_paths paths;
	pthread_mutex_t lock;
	char *json;              /* checkpoint.json; guard: lock until set */
	size_t json_len;
};

/* The checkpoint @name whose manifest file is @id, with a reference. */
CKB_MUST int ckv_ckpt_get(struct ckv_tree *tree, const char *name,
			  const struct ckv_id *id,
			  const struct ckv_facts *facts,
			  struct ckv_ckpt **out, struct ckpt_err *err);
void ckv_ckpt_ref(struct ckv_tree *tree, struct ckv_ckpt *c);
void ckv_ckpt_put(struct ckv_tree *tree, struct ckv_ckpt *c);
/* Close all images; no call may be under way. */
void ckv_ckpts_fini(struct ckv_tree *tree);

/*
 * @c open, for one call; ckv_image_put() soon. CKPT_ESTALE: it was removed or
 * replaced, and was not open any more (S3).
 */
CKB_MUST int ckv_image_get(struct ckv_tree *tree, struct ckv_ckpt *c,
			   struct ckv_image **out, struct ckpt_err *err);
void ckv_image_put(struct ckv_tree *tree, struct ckv_image *image);
/* The same if it is open already, else NULL; no use that keeps it longer. */
struct ckv_image *ckv_image_peek(struct ckv_tree *tree, struct ckv_ckpt *c);
/* @tensor was read: its chunk list now takes memory. */
void ckv_image_count(struct ckv_tree *tree, struct ckv_image *image,
		     const struct ckpt_tensor_info *tensor);
/* checkpoint.json takes memory. */
void ckv_image_grew(struct ckv_tree *tree, struct ckv_image *image,
		    size_t bytes);
/* Is @err a lack of descriptors? Then those of idle images are given back. */
bool ckv_images_spare(struct ckv_tree *tree, const struct ckpt_err *err);

/* Is an item of @kind shown? */
static inline bool ckv_item_shown(enum ckpt_item_kind kind)
{
	return kind != CKPT_ITEM_ORIGIN;
}

/* ---- nodes ---- */

/* Says what it shows; whether its checkpoint is open is no matter of its. */
struct ckv_node {
	atomic_uint refs;        /* relaxed up, acq_rel down */
	struct ckv_tree *tree;
	enum ckv_kind kind;
	uint32_t folder;         /* CHECKPOINT, FOLDER: its number */
	uint32_t tensor;         /* NPY, TXT, OPAQUE: entry; CKV_NO_TENSOR */
	uint32_t subfolders;     /* CHECKPOINT, FOLDER */
	struct ckv_ckpt *ckpt;   /* or NULL */
	char *path;              /* run's name; link "run/latest"; NULL in a
				    checkpoint */
	uint64_t ino, size;
	int64_t time_ns;
};

/* Of what is no checkpoint's: from the store's uuid and the path. */
uint64_t ckv_ino_store(const struct ckv_tree *tree, const char *path);
/* Of checkpoint @full, "run/name". */
uint64_t ckv_ino_checkpoint(const struct ckv_tree *tree, const char *full,
			    const struct ckv_facts *facts);
/*
 * Inode numbers hang on each other as the names do: a folder's number, or a
 * uuid's, and the name below it give the next. Never 0 (none) or 1 (the root).
 */
uint64_t ckv_ino_uuid(const uint8_t uuid[16]);
uint64_t ckv_ino_below(uint64_t parent, uint32_t salt, const char *name,
		       size_t len);

/* ---- text.c, json.c, npy.c, readme.c: the bytes of generated files ---- */

/* Fills image->json, once. */
CKB_MUST int ckv_checkpoint_json(struct ckv_tree *tree,
				 struct ckv_image *image,
				 struct ckpt_err *err);
const char *ckv_readme(size_t *out_len);

/* .txt: its exact size, from metadata alone; ckv_text() is in tree.h. */
CKB_MUST int ckv_text_size(const struct ckpt_tensor_info *tensor,
			   uint64_t *out, struct ckpt_err *err);

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
