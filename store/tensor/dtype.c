/* SPDX-License-Identifier: Apache-2.0 */
/*
 * dtype.c - the one table of dtypes, and sizes and texts that follow from it.
 *
 * Every other place asks this table, so a dtype cannot be known here and
 * unknown there. Pure; any thread.
 */
#include "tensor/dtype.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <strings.h>

#define F CKPT_VALUES_FLOAT
#define S CKPT_VALUES_SIGNED
#define U CKPT_VALUES_UNSIGNED
#define N CKPT_VALUES_NONE

static const struct ckt_dtype table[CKPT_DTYPE_END] = {
	[CKPT_BOOL] = { "BOOL", 8, "|b1", 1, U },
	[CKPT_U8] = { "U8", 8, "|u1", 1, U },
	[CKPT_I8] = { "I8", 8, "|i1", 1, S },
	[CKPT_U16] = { "U16", 16, "<u2", 2, U },
	[CKPT_I16] = { "I16", 16, "<i2", 2, S },
	[CKPT_U32] = { "U32", 32, "<u4", 4, U },
	[CKPT_I32] = { "I32", 32, "<i4", 4, S },
	[CKPT_U64] = { "U64", 64, "<u8", 8, U },
	[CKPT_I64] = { "I64", 64, "<i8", 8, S },
	[CKPT_F16] = { "F16", 16, "<f2", 2, F },
	/* NumPy has no name for these: opaque bytes, viewable with ml_dtypes */
	[CKPT_BF16] = { "BF16", 16, "<V2", 2, F },
	[CKPT_F32] = { "F32", 32, "<f4", 4, F },
	[CKPT_F64] = { "F64", 64, "<f8", 8, F },
	[CKPT_C64] = { "C64", 64, "<c8", 8, N },
	[CKPT_C128] = { "C128", 128, "<c16", 16, N },
	[CKPT_F8_E5M2] = { "F8_E5M2", 8, "<V1", 1, F },
	[CKPT_F8_E4M3] = { "F8_E4M3", 8, "<V1", 1, F },
	[CKPT_F8_E5M2FNUZ] = { "F8_E5M2FNUZ", 8, "<V1", 1, F },
	[CKPT_F8_E4M3FNUZ] = { "F8_E4M3FNUZ", 8, "<V1", 1, F },
	[CKPT_F8_E8M0] = { "F8_E8M0", 8, "<V1", 1, F },
	[CKPT_F6_E2M3] = { "F6_E2M3", 6, NULL, 0, F },
	[CKPT_F6_E3M2] = { "F6_E3M2", 6, NULL, 0, F },
	[CKPT_F4] = { "F4", 4, "<V1", 1, F },
};

const struct ckt_dtype *ckt_dtype_get(enum ckpt_dtype dtype)
{
	if ((unsigned)dtype >= CKPT_DTYPE_END || !table[dtype].name)
		return NULL;
	return &table[dtype];
}

bool ckt_dtype_from_code(const char *code, size_t len, enum ckpt_dtype *out)
{
	for (unsigned d = 1; d < CKPT_DTYPE_END; d++)
		if (strlen(table[d].name) == len &&
		    memcmp(table[d].name, code, len) == 0) {
			*out = (enum ckpt_dtype)d;
			return true;
		}
	return false;
}

const char *ckpt_dtype_name(enum ckpt_dtype dtype)
{
	const struct ckt_dtype *d = ckt_dtype_get(dtype);

	return d ? d->name : NULL;
}

uint32_t ckpt_dtype_bits(enum ckpt_dtype dtype)
{
	const struct ckt_dtype *d = ckt_dtype_get(dtype);

	return d ? d->bits : 0;
}

int ckpt_dtype_parse(const char *name, enum ckpt_dtype *out)
{
	for (unsigned d = 1; d < CKPT_DTYPE_END; d++)
		if (strcasecmp(table[d].name, name) == 0) {
			*out = (enum ckpt_dtype)d;
			return 0;
		}
	return CKPT_EINVAL;
}

int ckt_shape_bytes(enum ckpt_dtype dtype, const struct ckpt_shape *shape,
		    uint64_t *out, struct ckpt_err *err)
{
	const struct ckt_dtype *d = ckt_dtype_get(dtype);
	uint64_t n = 1, bytes;
	bool zero = false;
	char text[CKT_TEXT_BYTES];

	if (!d)
		return ckb_err(err, CKPT_EINVAL, "dtype number %d is none",
			       (int)dtype);
	if (shape->ndim > CKPT_NDIM_MAX)
		return ckb_err(err, CKPT_ELIMIT, "%u dimensions; at most %d "
			       "are supported", shape->ndim, CKPT_NDIM_MAX);
	for (uint32_t i = 0; i < shape->ndim; i++)
		zero = zero || shape->dim[i] == 0;
	for (uint32_t i = 0; !zero && i < shape->ndim; i++)
		if (!ckb_mul_u64(n, shape->dim[i], &n))
			goto huge;
	if (zero)
		n = 0;
	/* in eights of elements: bits may overflow where bytes do not */
	if (!ckb_mul_u64(n / 8, d->bits, &bytes) ||
	    !ckb_add_u64(bytes, n % 8 * d->bits / 8, &bytes) || bytes >> 63)
		goto huge;
	if (n % 8 * d->bits % 8 != 0)
		return ckb_err(err, CKPT_EINVAL, "shape %s of %s is no whole "
			       "number of bytes",
			       ckt_shape_text(text, sizeof(text), shape),
			       d->name);
	*out = bytes;
	return 0;
huge:
	return ckb_err(err, CKPT_ELIMIT, "shape %s of %s takes 2^63 bytes or "
		       "more", ckt_shape_text(text, sizeof(text), shape),
		       d->name);
}

uint64_t ckt_shape_count(const struct ckpt_shape *shape)
{
	uint64_t n = 1;

	for (uint32_t i = 0; i < shape->ndim; i++)
		if (shape->dim[i] == 0)
			return 0;
	for (uint32_t i = 0; i < shape->ndim; i++)
		if (!ckb_mul_u64(n, shape->dim[i], &n))
			return UINT64_MAX;
	return n;
}

const char *ckt_shape_text(char *dst, size_t len, const struct ckpt_shape *s)
{
	size_t at = 0;

	CKB_REQUIRE(len >= 32);
	dst[at++] = '[';
	for (uint32_t i = 0; i < s->ndim; i++) {
		char one[24];
		int n = snprintf(one, sizeof(one), "%s%" PRIu64, i ? "," : "",
				 s->dim[i]);

		if (at + (size_t)n + 6 > len) {
			memcpy(dst + at, "...", 3);
			at += 3;
			break;
		}
		memcpy(dst + at, one, (size_t)n);
		at += (size_t)n;
	}
	memcpy(dst + at, "]", 2);
	return dst;
}

const char *ckt_box_text(char *dst, size_t len, const struct ckpt_box *box)
{
	size_t at = 0;

	CKB_REQUIRE(len >= 64);
	dst[at++] = '[';
	for (uint32_t i = 0; i < box->ndim; i++) {
		char one[48];
		int n = snprintf(one, sizeof(one), "%s%" PRIu64 ":%" PRIu64,
				 i ? "," : "", box->origin[i],
				 box->origin[i] + box->extent[i]);

		if (at + (size_t)n + 6 > len) {
			memcpy(dst + at, "...", 3);
			at += 3;
			break;
		}
		memcpy(dst + at, one, (size_t)n);
		at += (size_t)n;
	}
	memcpy(dst + at, "]", 2);
	return dst;
}
