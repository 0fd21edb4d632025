/* SPDX-License-Identifier: Apache-2.0 */
/* tensor/dtype.h - the one table of dtypes. */
#ifndef CKT_DTYPE_H
#define CKT_DTYPE_H

#include <ckpt/store.h>

#include "base/err.h"

struct ckt_dtype {
	const char *name;      /* safetensors code: "BF16" */
	uint32_t bits;         /* of one element */
	const char *npy_descr; /* "<f4"; NULL: no .npy (F6) */
	uint32_t npy_bytes;    /* bytes an element takes in .npy (F4: 1) */
	enum ckpt_value_class value_class; /* NONE for complex */
};

/* NULL when @dtype is none. */
const struct ckt_dtype *ckt_dtype_get(enum ckpt_dtype dtype);

/* Exact, upper-case only, as safetensors demands; *@out on true. */
bool ckt_dtype_from_code(const char *code, size_t len, enum ckpt_dtype *out);

/* Raw bytes of a tensor: product checked against overflow and 2^63 (S10).
 * A zero anywhere gives 0. Sub-byte sizes that are no whole number of bytes:
 * CKPT_EINVAL. ndim > CKPT_NDIM_MAX: CKPT_ELIMIT. */
CKB_MUST int ckt_shape_bytes(enum ckpt_dtype dtype,
			     const struct ckpt_shape *shape, uint64_t *out,
			     struct ckpt_err *err);

/* Elements, saturating at UINT64_MAX. */
uint64_t ckt_shape_count(const struct ckpt_shape *shape);

/* "[3,0,2]"; a scalar is "[]". Cut with "..." when @len is short. */
const char *ckt_shape_text(char *dst, size_t len, const struct ckpt_shape *s);

/* "[0:128,3:4]" */
const char *ckt_box_text(char *dst, size_t len, const struct ckpt_box *box);
#define CKT_TEXT_BYTES 512

#endif
