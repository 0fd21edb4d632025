/* SPDX-License-Identifier: Apache-2.0 */
/* writer/import/st_file.h - one safetensors file, alone or a folder's shard. */
#ifndef CKW_ST_FILE_H
#define CKW_ST_FILE_H

#include "foreign/hf_index.h"
#include "foreign/safetensors.h"
#include "import.h"

struct ckw_owners;

struct ckw_st_file {
	struct ckw_input *input;
	uint8_t *head;           /* 8 + N bytes: the length and the JSON */
	struct ckx_st st;        /* points into head */
};

/* Read and check its header. Errors name the file; then @f is closed. */
CKB_MUST int ckw_st_file_open(struct ckw_st_file *f, struct ckw_input *in,
			      struct ckpt_err *err);
void ckw_st_file_close(struct ckw_st_file *f);

/* Its tensors, its aliases, and its header in @orig as file @name. @others:
 * the tensors of all shards, which no alias may hide; NULL: it is alone. */
CKB_MUST int ckw_st_file_describe(struct ckw_import *im,
				  const struct ckw_st_file *f,
				  const struct ckw_owners *others,
				  const char *name, struct ckpt_err *err);

/* Begin the save with the file's __metadata__ as the item's. */
CKB_MUST int ckw_st_file_begin(struct ckw_import *im,
			       const struct ckw_st_file *f,
			       struct ckpt_err *err);

/* safetensors.torch.save_model keeps one of several tied tensors and notes
 * "dropped": "kept" for each other. The kept tensor of @p, or NULL. */
const struct ckx_st_tensor *ckw_st_kept(const struct ckx_st *st,
					const struct ckx_st_pair *p);

/* ---- owners.c: which shard holds which tensor ---- */

struct ckw_owner {
	size_t name;             /* where it begins in names */
	uint32_t name_len;
	uint32_t file;           /* index of the shard in ckw_files */
	bool alias;              /* it only names another tensor of its shard */
};
struct ckw_owners {
	struct ckb_buf names;
	struct ckw_owner *owner; /* sorted by name, after the check */
	size_t count, cap;
	const struct ckw_files *files;
};
void ckw_owners_fini(struct ckw_owners *o);
/* Add the tensors and aliases of shard @file. */
CKB_MUST int ckw_owners_add(struct ckw_owners *o, uint32_t file,
			    const struct ckx_st *st, struct ckpt_err *err);
/* Sort them; refuse a tensor that lies in two shards, and those that an index
 * (may be NULL) and the shards disagree on. */
CKB_MUST int ckw_owners_check(struct ckw_owners *o, const char *path,
			      const char *index_name,
			      const struct ckx_hf_index *index,
			      struct ckpt_err *err);
/* Does any shard hold a tensor (no alias) of this name? */
bool ckw_owners_hold(const struct ckw_owners *o, const char *name,
		     size_t len);

/* Names for an error: the first few, and how many more. */
struct ckw_names {
	size_t count;
	struct ckb_buf text;
};
void ckw_names_add(struct ckw_names *n, const char *name, size_t len,
		   const char *where); /* may be NULL */
/* The text: "'a' (in b), 'c' (in d) and 3 more". */
const char *ckw_names_text(struct ckw_names *n);
void ckw_names_fini(struct ckw_names *n);

#endif
