/* SPDX-License-Identifier: Apache-2.0 */
/* foreign/npy.h - .npy headers: byte for byte as NumPy 2 writes them, and read
 * as strictly as it reads them. Pure. */
#ifndef CKX_NPY_H
#define CKX_NPY_H

#include "base/buf.h"
#include "base/err.h"

#include <ckpt/types.h>

/* ---- npy.c: writing ---- */

/* false: the dtype has no .npy form (F6). */
bool ckx_npy_possible(enum ckpt_dtype dtype);

/* Whole header, magic to newline, appended to @out. */
void ckx_npy_header(enum ckpt_dtype dtype, const struct ckpt_shape *shape,
		    struct ckb_buf *out);

/* Its length without making it. */
size_t ckx_npy_header_len(enum ckpt_dtype dtype,
			  const struct ckpt_shape *shape);

/* ---- npy_parse.c: reading ---- */

#define CKX_NPY_TEXT_MAX 10000u /* NumPy's own bound on the literal */
#define CKX_NPY_HEAD_MAX (12u + CKX_NPY_TEXT_MAX)

struct ckx_npy {
	enum ckpt_dtype dtype;
	uint32_t item_bytes;     /* of an element in the file; F4: 1, its
				    low nibble */
	uint32_t swap_bytes;     /* big-endian: units of so many bytes; or 0 */
	bool fortran;            /* and that makes a difference */
	struct ckpt_shape shape;
	uint64_t data_off;       /* length of the header */
	uint64_t data_bytes;     /* data_off + data_bytes is the file's size */
};

/*
 * Parse the header. @bytes: the first CKX_NPY_HEAD_MAX bytes of a file of
 * @file_len, or all of a shorter one. @void_dtype says what raw bytes of its
 * size ("V1", "V2"; F4 in one byte too) are, or 0; "<V2" is BF16 without it.
 *
 * CKPT_EFORMAT: NumPy would not read it either, or it is longer than the array
 * it announces (whose end is a second array, or a wrong shape: no guess).
 * CKPT_EINVAL: an array of something that no tensor holds, named.
 */
CKB_MUST int ckx_npy_parse(const uint8_t *bytes, size_t len, uint64_t file_len,
			   enum ckpt_dtype void_dtype, struct ckx_npy *out,
			   struct ckpt_err *err);

#endif
