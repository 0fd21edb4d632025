/* SPDX-License-Identifier: Apache-2.0 */
/*
 * foreign/hf_index.h - NAME.safetensors.index.json of a Hugging Face folder:
 * which shard holds which tensor. Pure.
 *
 * Only weight_map counts. metadata.total_size is advice that is often wrong,
 * and whether all is there is decided by the shards.
 */
#ifndef CKX_HF_INDEX_H
#define CKX_HF_INDEX_H

#include "base/err.h"

/* Texts are not NUL-ended: they point into the index's text. */
struct ckx_hf_entry {
	const char *name, *file;
	uint32_t name_len, file_len;
};
struct ckx_hf_index {
	struct ckx_hf_entry *entries; /* sorted by name, bytewise */
	size_t count, cap;
};

/*
 * Parse all of the file. Escaped strings are decoded where they lie, so @text
 * is changed, and must outlive @ix. CKPT_EFORMAT: no JSON, no weight_map, a
 * key or name given twice, a shard that is no path inside the folder; each
 * named. CKPT_ELIMIT: over a million names, or one over 64 KiB. On failure @ix
 * is empty.
 */
CKB_MUST int ckx_hf_index_parse(struct ckx_hf_index *ix, char *text,
				size_t len, struct ckpt_err *err);
void ckx_hf_index_fini(struct ckx_hf_index *ix);

/* Names by their bytes; a name comes before those it begins. */
int ckx_name_compare(const char *a, size_t a_len, const char *b,
		     size_t b_len);

#endif
