/* SPDX-License-Identifier: Apache-2.0 */
/*
 * ckpt/types.h - dtypes, shapes and boxes.
 *
 * A shape lists dimensions slowest first (C order, as NumPy and torch print
 * it). ndim 0 is a scalar: one element. Any dimension may be 0: an empty
 * tensor. Bytes are little-endian, C order, without padding.
 */
#ifndef CKPT_TYPES_H
#define CKPT_TYPES_H

#include <stddef.h>
#include <stdint.h>

#include <ckpt/err.h>

#ifdef __cplusplus
extern "C" {
#endif

#define CKPT_NDIM_MAX 64

/** Names are safetensors' codes (C128 added). Values are ABI, not format. */
enum ckpt_dtype {
	CKPT_BOOL = 1,     /* one byte, 0 or 1 */
	CKPT_U8, CKPT_I8,
	CKPT_U16, CKPT_I16,
	CKPT_U32, CKPT_I32,
	CKPT_U64, CKPT_I64,
	CKPT_F16, CKPT_BF16,
	CKPT_F32, CKPT_F64,
	CKPT_C64,          /* two F32: real, imaginary */
	CKPT_C128,         /* two F64 */
	CKPT_F8_E5M2,
	CKPT_F8_E4M3,      /* torch's e4m3fn */
	CKPT_F8_E5M2FNUZ,
	CKPT_F8_E4M3FNUZ,
	CKPT_F8_E8M0,      /* scale exponents */
	CKPT_F6_E2M3,      /* 6 bits, packed little-endian */
	CKPT_F6_E3M2,
	CKPT_F4,           /* e2m1, two in a byte, low nibble first */
	CKPT_DTYPE_END,
};

/** The safetensors code of @dtype ("BF16"), or NULL when it is none. */
CKPT_API const char *ckpt_dtype_name(enum ckpt_dtype dtype);

/** Bits of one element: 4, 6, 8, ... 128; 0 when @dtype is none. */
CKPT_API uint32_t ckpt_dtype_bits(enum ckpt_dtype dtype);

/** Code of any case -> dtype. Returns 0, or CKPT_EINVAL (no message). */
CKPT_API CKPT_MUST int ckpt_dtype_parse(const char *name,
					enum ckpt_dtype *out);

/** A shape: dimensions, slowest first. */
struct ckpt_shape {
	uint32_t ndim;
	uint64_t dim[CKPT_NDIM_MAX];
};

/** A box: the elements origin[d] <= i[d] < origin[d] + extent[d]. */
struct ckpt_box {
	uint32_t ndim;
	uint64_t origin[CKPT_NDIM_MAX];
	uint64_t extent[CKPT_NDIM_MAX];
};

#ifdef __cplusplus
}
#endif
#endif
