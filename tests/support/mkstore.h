/* SPDX-License-Identifier: Apache-2.0 */
/*
 * support/mkstore.h - stores made by hand, without the writer: packs, manifest
 * and commit from their own calls, so that readers are tested against any
 * layout, and against manifests that no writer would make.
 */
#ifndef TEST_MKSTORE_H
#define TEST_MKSTORE_H

#include "catalog/manifest.h"
#include "verbs/stage.h"

#define MK_NDIM_MAX CKPT_NDIM_MAX

/* A shard, in storage space. */
struct mk_box {
	uint64_t origin[MK_NDIM_MAX], extent[MK_NDIM_MAX];
};

struct mk_tensor {
	const char *item;       /* NULL: "model"; equal ones must be adjacent */
	const char *name;
	size_t name_len;        /* 0: strlen */
	enum ckpt_dtype dtype;  /* 0: U8 */
	uint32_t ndim;
	uint64_t dim[MK_NDIM_MAX];
	const char *media_type; /* an opaque file of dim[0] bytes */
	const char *alias_of;   /* name of an earlier tensor */
	uint32_t shard_count;   /* 0: one, the whole tensor */
	const struct mk_box *shards;
	uint64_t seed;          /* its bytes follow from it */
};

struct mk_known;

struct mkstore {
	char *dir;              /* temporary; holds the store */
	char *path;
	struct ckpt_store *store;
	struct mk_known *known; /* chunks, for reuse */
	size_t known_count;
	uint64_t seq;
};

struct mk_opts {
	enum ckf_codec codec;
	bool reuse;             /* equal chunks once, over saves too */
	bool pack_each;         /* a pack for each tensor, else one */
	bool manifest_copy;     /* as the writer: a record nobody demands */
	bool wrong_digest;      /* of the first tensor: not its bytes' */
	/* Change the chunk entries, or the row, before they are written. */
	void (*tamper)(void *ctx, size_t tensor, struct ckf_chunk_entry *e,
		       size_t *count, struct ckq_tensor *row);
	void *ctx;
};

/* A new store in a temporary folder, open with a cache of @cache_bytes (0: the
 * default). mkstore_free() closes and removes it. */
CKB_MUST int mkstore_new(struct mkstore *mk, size_t cache_bytes,
			 struct ckpt_err *err);
void mkstore_free(struct mkstore *mk);

/* Close and open again: nothing cached, another @cache_bytes. */
CKB_MUST int mkstore_reopen(struct mkstore *mk, size_t cache_bytes,
			    struct ckpt_err *err);

/* Save @tensors as checkpoint @name. @opts may be NULL: raw, one pack. */
CKB_MUST int mk_save(struct mkstore *mk, const char *name,
		     const struct mk_tensor *tensors, size_t count,
		     const struct mk_opts *opts, struct ckpt_err *err);

/* The tensor's bytes; the caller frees them. */
uint8_t *mk_bytes(const struct mk_tensor *t, uint64_t *out_len);

/* The one pack in packs/, as a path the caller frees; NULL when there is not
 * exactly one. */
char *mk_only_pack(const struct mkstore *mk);

/* Flip bits @mask of byte @off of a file; returns the file's size. */
uint64_t mk_flip(const char *path, uint64_t off, uint8_t mask);

#endif
