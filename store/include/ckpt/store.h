/* SPDX-License-Identifier: Apache-2.0 */
/*
 * ckpt/store.h - stores and the checkpoints in them.
 *
 * Unless a call says otherwise: it blocks on disk reads only; it makes nothing
 * durable; handles may be used by many threads at once; `const T *` results
 * are borrowed until the handle they came from is closed. A checkpoint is
 * immutable: an open handle keeps showing what it showed (S3).
 */
#ifndef CKPT_STORE_H
#define CKPT_STORE_H

#include <stdbool.h>

#include <ckpt/types.h>

#ifdef __cplusplus
extern "C" {
#endif

struct ckpt_store;
struct ckpt_checkpoint;

#define CKPT_UUID_BYTES 16
#define CKPT_DIGEST_BYTES 32 /* SHA-256 */

enum ckpt_store_flag {
	CKPT_STORE_READONLY = 1u << 0, /* write nothing, nor damage marks */
};

struct ckpt_store_opts {
	size_t size;        /* sizeof(struct ckpt_store_opts) */
	uint32_t flags;     /* enum ckpt_store_flag */
	size_t cache_bytes; /* decoded cells kept; 0: 64 MiB */
};

/**
 * Make an empty store in the folder @path, which must be absent or empty.
 *
 * Blocks:      for a few writes and syncs.
 * Durability:  on return 0 the store outlives power loss.
 * Returns:     0; CKPT_EEXIST, a store or something else is there, or it
 *              would lie inside another store; CKPT_ENOENT, nor is the folder
 *              it lies in; CKPT_EINVAL, the path is empty; CKPT_EIO,
 *              CKPT_ENOSPC, CKPT_EPERM.
 */
CKPT_API CKPT_MUST int ckpt_store_init(const char *path, struct ckpt_err *err);

/**
 * Open the store at @path. @opts may be NULL.
 *
 * Ownership:   *@out is the caller's; ckpt_store_close() ends it, after every
 *              checkpoint and writer opened from it has been closed.
 * Returns:     0; CKPT_ENOENT, no ckptfs.json there; CKPT_EVERSION, it needs
 *              a newer ckptfs; CKPT_ECORRUPT, CKPT_EIO, CKPT_EPERM.
 */
CKPT_API CKPT_MUST int ckpt_store_open(const char *path,
				       const struct ckpt_store_opts *opts,
				       struct ckpt_store **out,
				       struct ckpt_err *err);
CKPT_API void ckpt_store_close(struct ckpt_store *store);

/** The store's uuid, borrowed until close. */
CKPT_API const uint8_t *ckpt_store_uuid(const struct ckpt_store *store);

/** Facts of a checkpoint. Texts are UTF-8; JSON texts are objects or NULL. */
struct ckpt_checkpoint_info {
	const char *name;      /* its path in the store: "gpt2-125m/4000" */
	uint8_t uuid[CKPT_UUID_BYTES];
	uint64_t generation;   /* 1 when saved; join makes the next */
	uint64_t seq;          /* order of commits: larger is later */
	bool has_step;
	uint64_t step;
	int64_t created_ns;    /* wall clock of the save, Unix epoch */
	bool has_parent;
	uint8_t parent[CKPT_UUID_BYTES];
	const char *metadata;  /* user's JSON object, or NULL */
	const char *metrics;   /* user's JSON object, or NULL */
	const char *writer;    /* program and version that saved it */
	uint64_t bytes;        /* raw bytes of all entries, aliases excluded */
};

enum ckpt_item_kind {
	CKPT_ITEM_TENSORS = 1, /* a tree of tensors */
	CKPT_ITEM_FILES = 2,   /* opaque files */
	CKPT_ITEM_ORIGIN = 3,  /* what import keeps of originals; not shown */
};

/** One checkpointable. */
struct ckpt_item_info {
	const char *name;
	enum ckpt_item_kind kind;
	const char *separator; /* splits tensor names: ".", "/", or "" */
	const char *metadata;  /* JSON object, or NULL */
	size_t first;          /* its entries: [first, first + count) */
	size_t count;
	uint64_t bytes;
};

enum ckpt_value_class {
	CKPT_VALUES_NONE = 0,     /* no statistics (opaque, empty, complex) */
	CKPT_VALUES_FLOAT = 1,
	CKPT_VALUES_SIGNED = 2,
	CKPT_VALUES_UNSIGNED = 3, /* BOOL too */
};

union ckpt_value {
	double f;
	int64_t i;
	uint64_t u;
};

/** Statistics of a tensor. min, max, mean and absmax skip NaN and Inf. */
struct ckpt_stats {
	enum ckpt_value_class value_class;
	uint64_t count;        /* elements */
	uint64_t nan_count;
	uint64_t inf_count;    /* both signs */
	uint64_t zero_count;   /* both signs */
	union ckpt_value min;  /* meaningless when no element is finite */
	union ckpt_value max;
	double absmax;
	double sum;            /* of finite elements, in double, tile order */
};

/** One entry: a tensor, or an opaque file (dtype U8, one dimension). */
struct ckpt_tensor_info {
	size_t index;           /* its number in the checkpoint */
	size_t item;            /* its item's number */
	const char *name;       /* UTF-8; may hold NUL: use name_len */
	size_t name_len;
	enum ckpt_dtype dtype;
	const struct ckpt_shape *shape; /* borrowed until close */
	uint64_t bytes;         /* raw bytes */
	const char *media_type; /* opaque file: its media type; tensor: NULL */
	size_t alias_of;        /* entry it is an alias of, or SIZE_MAX */
	bool has_root;
	uint8_t root[CKPT_DIGEST_BYTES]; /* FORMAT.md: equal across shardings */
	struct ckpt_stats stats;
};

/**
 * Open checkpoint @name. Reads and verifies its manifest's facts and names;
 * no chunk is touched.
 *
 * Returns:     0; CKPT_ENOENT; CKPT_EINVAL, not a legal name; CKPT_ECORRUPT,
 *              CKPT_EVERSION, CKPT_EIO.
 */
CKPT_API CKPT_MUST int ckpt_checkpoint_open(struct ckpt_store *store,
					    const char *name,
					    struct ckpt_checkpoint **out,
					    struct ckpt_err *err);
CKPT_API void ckpt_checkpoint_close(struct ckpt_checkpoint *ckpt);

CKPT_API const struct ckpt_checkpoint_info *
ckpt_checkpoint_info(const struct ckpt_checkpoint *ckpt);

/**
 * Payload bytes that the checkpoint's chunks take in packs, each once. Reads
 * every tensor's chunk list on the first call.
 *
 * Returns:     0; CKPT_ECORRUPT, CKPT_EIO, CKPT_ENOMEM.
 */
CKPT_API CKPT_MUST int
ckpt_checkpoint_stored_bytes(struct ckpt_checkpoint *ckpt, uint64_t *out,
			     struct ckpt_err *err);

/** Items, in the order they were saved. NULL past the end. */
CKPT_API size_t ckpt_item_count(const struct ckpt_checkpoint *ckpt);
CKPT_API const struct ckpt_item_info *
ckpt_item_at(const struct ckpt_checkpoint *ckpt, size_t index);

/** Entries, item by item, each in the order they were saved. */
CKPT_API size_t ckpt_tensor_count(const struct ckpt_checkpoint *ckpt);
CKPT_API const struct ckpt_tensor_info *
ckpt_tensor_at(const struct ckpt_checkpoint *ckpt, size_t index);

/** The item called @name, or NULL. */
CKPT_API const struct ckpt_item_info *
ckpt_item_find(const struct ckpt_checkpoint *ckpt, const char *name);

/**
 * The entry called @name in @item, or NULL. @name_len 0: strlen(@name); else
 * NUL is allowed. O(log n).
 */
CKPT_API const struct ckpt_tensor_info *
ckpt_tensor_find(const struct ckpt_checkpoint *ckpt,
		 const struct ckpt_item_info *item, const char *name,
		 size_t name_len);

/**
 * Called for each name of a listing. @is_run: a folder of checkpoints, else a
 * checkpoint. @name is the last component. Return non-zero to stop.
 */
typedef int (*ckpt_list_fn)(void *ctx, const char *name, bool is_run);

/**
 * List what lies directly in the run @run ("" for the top), sorted by bytes.
 *
 * Returns:     0; CKPT_ENOENT, no such run; what @fn returned; CKPT_EIO.
 */
CKPT_API CKPT_MUST int ckpt_store_list(struct ckpt_store *store,
				       const char *run, ckpt_list_fn fn,
				       void *ctx, struct ckpt_err *err);

/* ---- the table of checkpoints ---- */

/** One checkpoint in the table of a store's. Borrowed for the call. */
struct ckpt_entry {
	const char *name;
	const char *damage;     /* its manifest cannot be read, and why: then
				   nothing else is known; else NULL */
	int damage_code;        /* CKPT_ECORRUPT: it is damaged; others: it may
				   be whole, but cannot be read now */
	uint8_t uuid[CKPT_UUID_BYTES];
	uint64_t generation, seq;
	bool has_step;
	uint64_t step;
	int64_t created_ns;
	bool has_parent;
	uint8_t parent[CKPT_UUID_BYTES];
	const char *metrics;    /* JSON object, or NULL */
	uint64_t bytes;         /* raw bytes, aliases excluded */
	uint64_t stored_bytes;  /* payload bytes in packs, each once */
	uint64_t own_bytes;     /* of those, what no other checkpoint uses:
				   what removing it would give back */
};

enum ckpt_entries_flag {
	CKPT_ENTRIES_SIZES = 1u << 0, /* fill in bytes and stored_bytes */
	CKPT_ENTRIES_OWN = 1u << 1,   /* and own_bytes */
};

struct ckpt_entries_opts {
	size_t size;
	uint32_t flags;         /* enum ckpt_entries_flag */
	const char *run;        /* only what is in this run, at any depth;
				   NULL or "": everything */
};

/** Return non-zero to stop. */
typedef int (*ckpt_entry_fn)(void *ctx, const struct ckpt_entry *entry);

/**
 * Every checkpoint, folder by folder, names sorted by bytes. @opts may be NULL.
 *
 * Comes from the index as far as that holds, so it is quick with one that is
 * up to date; an old, wrong or absent one costs time, not truth.
 *
 * Returns:     0; CKPT_ENOENT, no such run; what @fn returned; CKPT_EIO,
 *              CKPT_ENOMEM.
 */
CKPT_API CKPT_MUST int ckpt_store_entries(struct ckpt_store *store,
					  const struct ckpt_entries_opts *opts,
					  ckpt_entry_fn fn, void *ctx,
					  struct ckpt_err *err);

/* ---- removing, renaming, forking ---- */

/**
 * Remove checkpoint @name, and run folders that become empty. Tags on it are
 * refused unless @force; then they go with it. A damaged one is refused, too,
 * while there is a tag whose checkpoint is not found: it may be that. Its bytes
 * stay in the packs until gc. Who has it open keeps reading it.
 *
 * Blocks:      for a few writes and syncs.
 * Durability:  on return 0 it stays removed, also after power loss.
 * Returns:     0; CKPT_ENOENT; CKPT_EBUSY, it is or may be tagged;
 *              CKPT_EUNSURE, it is gone, but may be back after a power loss;
 *              CKPT_EIO, CKPT_EPERM.
 */
CKPT_API CKPT_MUST int ckpt_store_remove(struct ckpt_store *store,
					 const char *name, bool force,
					 struct ckpt_err *err);

/**
 * Give checkpoint @from the name @to, and remove run folders that become
 * empty. Tags go with it. Killed half-way it has both names; again finishes.
 *
 * Blocks:      for a few writes and syncs.
 * Durability:  on return 0 the new name outlives power loss.
 * Returns:     0; CKPT_ENOENT; CKPT_EEXIST, @to is taken, or is @from spelt
 *              otherwise; CKPT_EBUSY, gc is about to remove bytes of it;
 *              CKPT_ESTALE, @from was replaced meanwhile; CKPT_EUNSURE,
 *              renamed, but may have both names after a power loss; CKPT_EIO,
 *              CKPT_EPERM.
 */
CKPT_API CKPT_MUST int ckpt_store_rename(struct ckpt_store *store,
					 const char *from, const char *to,
					 struct ckpt_err *err);

/** What a fork changes. A text that is NULL is taken from the source. */
struct ckpt_fork_opts {
	size_t size;
	bool has_step;          /* else the source's */
	uint64_t step;
	const char *metadata;   /* JSON object */
	const char *metrics;    /* JSON object */
};

/**
 * Make checkpoint @to of the bytes of @from: a new uuid and manifest, its
 * parent @from; no chunk is copied. @opts may be NULL.
 *
 * Blocks:      for reading one manifest, writing another, and syncs.
 * Durability:  as a save: on return 0 it outlives power loss.
 * Returns:     0; CKPT_ENOENT; CKPT_EEXIST, @to is taken; CKPT_EINVAL, no
 *              JSON object; CKPT_EBUSY, gc is about to remove bytes of it;
 *              CKPT_EUNSURE; CKPT_ECORRUPT, @from is damaged, or a chunk of it
 *              was found bad; CKPT_EIO, CKPT_EPERM.
 */
CKPT_API CKPT_MUST int ckpt_store_fork(struct ckpt_store *store,
				       const char *from, const char *to,
				       const struct ckpt_fork_opts *opts,
				       struct ckpt_err *err);

/* ---- tags ---- */

/** A tag. @checkpoint NULL: what it named is gone; one that cannot be read is
 * not, as long as it has the name that was tagged. Borrowed for the call. */
struct ckpt_tag {
	const char *name;
	const char *checkpoint;
	uint8_t uuid[CKPT_UUID_BYTES]; /* of the checkpoint */
};
typedef int (*ckpt_tag_fn)(void *ctx, const struct ckpt_tag *tag);

/**
 * Let tag @tag name @checkpoint, whatever it named before. It holds on to the
 * checkpoint's uuid, so a rename does not lose it.
 *
 * Durability:  on return 0 the tag outlives power loss.
 * Returns:     0; CKPT_ENOENT, no such checkpoint; CKPT_EINVAL, no legal tag;
 *              CKPT_EIO, CKPT_EPERM.
 */
CKPT_API CKPT_MUST int ckpt_tag_set(struct ckpt_store *store, const char *tag,
				    const char *checkpoint,
				    struct ckpt_err *err);

/** Remove a tag. CKPT_ENOENT: there is none. Durable on return 0. */
CKPT_API CKPT_MUST int ckpt_tag_remove(struct ckpt_store *store,
				       const char *tag, struct ckpt_err *err);

/** Every tag, sorted by name. A damaged one is logged and passed over. */
CKPT_API CKPT_MUST int ckpt_tag_list(struct ckpt_store *store, ckpt_tag_fn fn,
				     void *ctx, struct ckpt_err *err);

/**
 * The name of the checkpoint that @tag names, into *@out; the caller frees it.
 *
 * Returns:     0; CKPT_ENOENT, no such tag, or what it named is gone;
 *              CKPT_ECORRUPT, CKPT_EIO.
 */
CKPT_API CKPT_MUST int ckpt_tag_get(struct ckpt_store *store, const char *tag,
				    char **out, struct ckpt_err *err);

/* ---- what a store holds ---- */

/** How the bytes of a chunk lie in its pack. */
enum ckpt_stored {
	CKPT_STORED_RAW,
	CKPT_STORED_ZSTD,
	CKPT_STORED_PLANES,   /* numbers by the bytes of their elements, or
				 zstd, or raw, as each 256 KiB of it gives */
	CKPT_STORED_CONSTANT, /* eight bytes repeat: nothing but a header */
	CKPT_STORED_NEWER,    /* a codec of a newer program */
	CKPT_STORED_END,
};

/** Of one of these. */
struct ckpt_usage_codec {
	uint64_t chunk_count;   /* as in ckpt_usage */
	uint64_t unique_bytes, stored_bytes;
};

/** Of one dtype. */
struct ckpt_usage_dtype {
	uint64_t tensor_count;
	uint64_t bytes;         /* raw, over all checkpoints */
	uint64_t unique_bytes;  /* raw, each chunk in a pack once */
	uint64_t stored_bytes;  /* of those chunks, in packs */
};

struct ckpt_usage {
	uint64_t checkpoint_count, tag_count;
	uint64_t damaged_count;            /* manifests that are damaged */
	uint64_t unread_count;             /* that cannot be read now */
	uint64_t pack_count, pack_bytes;   /* files in packs/ */
	uint64_t unused_pack_count, unused_pack_bytes; /* no manifest's */
	uint64_t chunk_count;              /* distinct places in use */
	uint64_t duplicate_count, duplicate_bytes; /* equal bytes, stored
						      again elsewhere */
	struct ckpt_usage_dtype total;      /* counts no header */
	struct ckpt_usage_dtype dtype[CKPT_DTYPE_END]; /* [0]: opaque files */
	struct ckpt_usage_dtype headers;    /* kept of imported files */
	struct ckpt_usage_codec codec[CKPT_STORED_END]; /* of all chunks */
};

/**
 * Add up what the store holds. Reads every manifest.
 *
 * Returns:     0; CKPT_EIO, CKPT_ENOMEM.
 */
CKPT_API CKPT_MUST int ckpt_store_usage(struct ckpt_store *store,
					struct ckpt_usage *out,
					struct ckpt_err *err);

enum ckpt_check_depth {
	CKPT_CHECK_QUICK = 0, /* manifests whole, packs and records in place */
	CKPT_CHECK_CELLS = 1, /* and every stored byte against its checksum */
	CKPT_CHECK_FULL = 2,  /* and every raw byte against its SHA-256 */
};

/**
 * One damage found, and where. Fields that do not apply are NULL or zero.
 * @code CKPT_EPERM and CKPT_EVERSION: no damage is known, but this part could
 * not be looked at.
 */
struct ckpt_damage {
	int code;
	const char *checkpoint;
	const char *item;
	const char *tensor;    /* tensor_len bytes */
	size_t tensor_len;
	const struct ckpt_box *box;
	const char *pack;      /* path under the store */
	uint64_t pack_off;
	const char *what;      /* one sentence */
};

struct ckpt_check_opts {
	size_t size;
	enum ckpt_check_depth depth;
	void (*on_damage)(void *ctx, const struct ckpt_damage *damage);
	/* bytes checked, bytes in all; may be NULL */
	void (*on_progress)(void *ctx, uint64_t done, uint64_t total);
	void *ctx;
};

struct ckpt_check_result {
	uint64_t checkpoint_count;
	uint64_t tensor_count; /* aliases too */
	uint64_t file_count;   /* opaque files; kept headers are checked, but
				  not counted */
	uint64_t chunk_count;  /* each record once */
	uint64_t bytes;        /* stored bytes looked at */
	uint64_t damage_count;
	uint64_t unread_count; /* may not be read, or of a newer version */
};

/**
 * Check one checkpoint, or all of them and the packs when @name is NULL.
 *
 * Damage is a finding, not a failure: the call goes on and returns 0. Chunks
 * found bad are noted in bad/ (S6) unless the store was opened read-only.
 *
 * Returns:     0, see @out; CKPT_EINVAL; CKPT_ENOENT, no such checkpoint;
 *              CKPT_EIO, the store's folders cannot be listed; CKPT_ENOMEM.
 */
CKPT_API CKPT_MUST int ckpt_store_check(struct ckpt_store *store,
					const char *name,
					const struct ckpt_check_opts *opts,
					struct ckpt_check_result *out,
					struct ckpt_err *err);

struct ckpt_reindex_result {
	uint64_t pack_count;
	uint64_t chunk_count;
	uint64_t checkpoint_count;
	uint64_t skipped_count; /* packs or manifests that could not be read */
};

/**
 * Make index.db again from packs and manifests. The old one is given up.
 *
 * Durability:  none needed: the index is a cache.
 * Returns:     0; CKPT_EIO, CKPT_EPERM, CKPT_ENOSPC.
 */
CKPT_API CKPT_MUST int ckpt_store_reindex(struct ckpt_store *store,
					  struct ckpt_reindex_result *out,
					  struct ckpt_err *err);

#ifdef __cplusplus
}
#endif
#endif
