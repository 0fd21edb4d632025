/* SPDX-License-Identifier: Apache-2.0 */
/* foreign/npy.h - .npy headers, byte for byte as NumPy 2 writes them. Pure. */
#ifndef CKX_NPY_H
#define CKX_NPY_H

#include "base/buf.h"
#include "base/err.h"

#include <ckpt/types.h>

/* false: the dtype has no .npy form (F6). */
bool ckx_npy_possible(enum ckpt_dtype dtype);

/* Whole header, magic to newline, appended to @out. */
void ckx_npy_header(enum ckpt_dtype dtype, const struct ckpt_shape *shape,
		    struct ckb_buf *out);

/* Its length without making it. */
size_t ckx_npy_header_len(enum ckpt_dtype dtype,
			  const struct ckpt_shape *shape);

#endif
