/* SPDX-License-Identifier: Apache-2.0 */
/*
 * catalog/manifest.h - one SQLite file per checkpoint (owns sqlite3.h, with
 * index.h). FORMAT.md holds the schema; a reader demands exactly it.
 */
#ifndef CKQ_MANIFEST_H
#define CKQ_MANIFEST_H

#include "base/buf.h"
#include "base/sys.h"
#include "format/entry.h"

/* ---- building: in memory, then one byte string ---- */
struct ckq_build;

struct ckq_facts {
	uint8_t uuid[CKPT_UUID_BYTES];
	uint8_t store_uuid[CKPT_UUID_BYTES];
	uint64_t generation, seq;
	bool has_step;
	uint64_t step;
	int64_t created_ns;
	bool has_parent;
	uint8_t parent[CKPT_UUID_BYTES];
	const char *saved_as;    /* name at the save; the path is the name */
	const char *metadata, *metrics; /* JSON or NULL */
	const char *writer;
	uint32_t tile_rule;
};
CKB_MUST int ckq_build_new(const struct ckq_facts *facts,
			   struct ckq_build **out, struct ckpt_err *err);
void ckq_build_free(struct ckq_build *b);

/* Ids are given in order from 0. */
CKB_MUST int ckq_build_item(struct ckq_build *b, const char *name,
			    enum ckpt_item_kind kind, const char *separator,
			    const char *metadata, struct ckpt_err *err);
CKB_MUST int ckq_build_pack(struct ckq_build *b, const uint8_t uuid[16],
			    struct ckpt_err *err);
/* The same blob twice gives the same id. */
CKB_MUST int ckq_build_layout(struct ckq_build *b, const void *blob,
			      size_t len, uint64_t *out_id,
			      struct ckpt_err *err);
struct ckq_tensor {
	uint64_t id;             /* reading: its number; building: ignored */
	uint64_t item;
	const char *name;
	size_t name_len;
	enum ckpt_dtype dtype;
	struct ckpt_shape shape;
	uint64_t bytes;
	const char *media_type;  /* or NULL */
	bool has_layout;
	uint64_t layout;
	bool has_alias;
	uint64_t alias_of;
	struct ckpt_stats stats;
	bool has_root;
	uint8_t root[CKPT_DIGEST_BYTES];
	const void *chunks;      /* encoded entries; reading: not loaded */
	size_t chunks_len;
};
CKB_MUST int ckq_build_tensor(struct ckq_build *b, const struct ckq_tensor *t,
			      struct ckpt_err *err);
/* The finished file: pages with their checksums in place (DESIGN 4). */
CKB_MUST int ckq_build_finish(struct ckq_build *b, struct ckb_buf *out,
			      struct ckpt_err *err);

/* ---- reading ---- */
struct ckq_manifest;

/* Open read-only, immutable, defensively; pages verified as they are read;
 * schema, application_id and user_version demanded. */
CKB_MUST int ckq_manifest_open(const struct ckb_sys *sys, int dirfd,
			       const char *path, struct ckq_manifest **out,
			       struct ckpt_err *err);
void ckq_manifest_close(struct ckq_manifest *m);

/* How many manifests of this process hold a descriptor and a connection: a
 * bounded number, the rest open theirs again at need. */
size_t ckq_manifests_open(void);

/* Borrowed until close. */
const struct ckq_facts *ckq_manifest_facts(const struct ckq_manifest *m);

typedef int (*ckq_item_fn)(void *ctx, uint64_t id, const char *name,
			   enum ckpt_item_kind kind, const char *separator,
			   const char *metadata);
typedef int (*ckq_pack_fn)(void *ctx, uint64_t id, const uint8_t uuid[16]);
typedef int (*ckq_tensor_fn)(void *ctx, const struct ckq_tensor *t);
/* In id order; ids must be 0, 1, 2, ...; every field is validated before the
 * callback (names legal, shape and bytes agree, alias one level and earlier,
 * chunks length a multiple of the entry size). What @fn gets is borrowed for
 * the call. @fn non-zero stops; it must not call the manifest. */
CKB_MUST int ckq_manifest_items(struct ckq_manifest *m, ckq_item_fn fn,
				void *ctx, struct ckpt_err *err);
CKB_MUST int ckq_manifest_packs(struct ckq_manifest *m, ckq_pack_fn fn,
				void *ctx, struct ckpt_err *err);
CKB_MUST int ckq_manifest_tensors(struct ckq_manifest *m, ckq_tensor_fn fn,
				  void *ctx, struct ckpt_err *err);
/* Chunk entries of tensor @id, appended to @out still encoded. Thread-safe. */
CKB_MUST int ckq_manifest_chunks(struct ckq_manifest *m, uint64_t id,
				 struct ckb_buf *out, struct ckpt_err *err);
CKB_MUST int ckq_manifest_layout(struct ckq_manifest *m, uint64_t id,
				 struct ckb_buf *out, struct ckpt_err *err);

/* Verify every page, and SQLite's own integrity_check. */
CKB_MUST int ckq_manifest_verify(struct ckq_manifest *m, struct ckpt_err *err);

#endif
