/* SPDX-License-Identifier: Apache-2.0 */
/* foreign/st_internal.h - what the parts of the safetensors reader share. */
#ifndef CKX_ST_INTERNAL_H
#define CKX_ST_INTERNAL_H

#include "foreign/safetensors.h"

/* st_store.c: memory that is counted against CKX_ST_PARSED_MAX. A failure is
 * CKPT_ELIMIT or CKPT_ENOMEM. */

/* @len bytes, 8-aligned, that live as long as @st. */
CKB_MUST int ckx_st_alloc(struct ckx_st *st, size_t len, void **out,
			  struct ckpt_err *err);
/* Give back what the last ckx_st_alloc() of @len bytes does not need. */
void ckx_st_shrink(struct ckx_st *st, size_t len, size_t used);
/* One more tensor or pair, zeroed; valid until the next of its kind. */
CKB_MUST int ckx_st_add_tensor(struct ckx_st *st, struct ckx_st_tensor **out,
			       struct ckpt_err *err);
CKB_MUST int ckx_st_add_pair(struct ckx_st *st, struct ckx_st_pair **out,
			     struct ckpt_err *err);

/* st_check.c: sorts tensors by their bytes and refuses what does not cover
 * the data exactly once, and names and keys given twice. */
CKB_MUST int ckx_st_check(struct ckx_st *st, uint64_t file_len,
			  struct ckpt_err *err);

#endif
