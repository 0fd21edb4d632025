/* SPDX-License-Identifier: Apache-2.0 */
/*
 * foreign/safetensors.h - the header of a safetensors file. Pure.
 *
 * Never laxer than safetensors 0.8; stricter where a file is unsafe to show:
 * duplicate names (of tensors, of keys in __metadata__), over 64 dimensions,
 * names over 64 KiB, an info given as an array, a null __metadata__; each is
 * said in the error.
 *
 * Memory beyond the header's own text is bounded whatever the text holds
 * (S9, S10): CKX_ST_PARSED_MAX for all that parsing makes. A tensor of two
 * dimensions takes 64 bytes of it, so about 780,000 of them fit: as many as a
 * header of 100,000,000 bytes holds when each has a name and offsets of the
 * lengths that real models have.
 */
#ifndef CKX_SAFETENSORS_H
#define CKX_SAFETENSORS_H

#include "base/err.h"

#include <ckpt/types.h>

#define CKX_ST_TENSOR_MAX 1000000u
#define CKX_ST_PAIR_MAX 262144u       /* keys in __metadata__ */
#define CKX_ST_PARSED_MAX (48u << 20) /* bytes a parsed header may take */
#define CKX_ST_SNIFF_BYTES 512u       /* enough for ckx_st_header_len() */

/* Texts are not NUL-ended: they point into the header's text where it has no
 * escape. */
struct ckx_st_tensor {
	const char *name;
	const uint64_t *dim;     /* ndim of them */
	uint64_t begin, end;     /* in the data buffer */
	uint32_t name_len;
	uint16_t dtype;          /* enum ckpt_dtype */
	uint16_t ndim;
};
struct ckx_st_pair {
	const char *key, *value;
	uint32_t key_len, value_len;
};
struct ckx_st {
	uint64_t data_off;       /* 8 + header length */
	struct ckx_st_tensor *tensors; /* in the order of their bytes */
	size_t tensor_count;
	struct ckx_st_pair *pairs; /* __metadata__, in file order */
	size_t pair_count;
	bool has_metadata;

	/* private to the parser */
	uint32_t *by_name;       /* tensors, sorted by name */
	size_t tensor_cap, pair_cap;
	struct ckx_st_block *blocks; /* dims and decoded texts */
	size_t parsed_bytes;     /* charged against CKX_ST_PARSED_MAX */
};

/* Length of the JSON header from the first bytes of a file of @file_len
 * bytes: bounds checked, so that the caller may then allocate it. @bytes is
 * the first CKX_ST_SNIFF_BYTES of the file, or all of a shorter one. A Git-LFS
 * pointer, HTML, zip, pickle, npy or GGUF is named as such. */
CKB_MUST int ckx_st_header_len(const uint8_t *bytes, size_t len,
			       uint64_t file_len, uint64_t *out,
			       struct ckpt_err *err);

/* Parse the header's @len bytes of JSON; @file_len bytes the whole file. On
 * success @json must outlive @st; on failure @st is empty. */
CKB_MUST int ckx_st_parse(struct ckx_st *st, const char *json, size_t len,
			  uint64_t file_len, struct ckpt_err *err);
void ckx_st_fini(struct ckx_st *st);

/* The tensor called @name, or NULL. O(log n). */
const struct ckx_st_tensor *ckx_st_find(const struct ckx_st *st,
					const char *name, size_t len);

#endif
