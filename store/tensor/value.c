/* SPDX-License-Identifier: Apache-2.0 */
/*
 * value.c - single elements of every dtype as double.
 *
 * The small float kinds differ in bias and in what their last codes mean:
 * E4M3 (torch's e4m3fn) has NaN but no Inf, the FNUZ kinds one NaN (0x80) and
 * neither Inf nor -0, E8M0 is a power of two, F6 and F4 have neither. Pure.
 */
#include "tensor/value.h"

#include <math.h>

#include "base/bytes.h"
#include "tensor/stats.h"

float ckt_f16(uint16_t v)
{
	uint32_t sign = (uint32_t)(v & 0x8000) << 16;
	uint32_t exp = v >> 10 & 31, man = v & 0x3ff;

	if (exp == 0) {
		float f = (float)man * 0x1p-24f;

		return sign ? -f : f;
	}
	if (exp == 31)
		return ckt_bits_f32(sign | 0x7f800000 | man << 13);
	return ckt_bits_f32(sign | (exp + 112) << 23 | man << 13);
}

/* Sign, @exp_bits, @man_bits with @bias; codes all mean finite values. */
static float plain(uint32_t bits, int exp_bits, int man_bits, int bias)
{
	uint32_t man = bits & ((1u << man_bits) - 1);
	int exp = (int)(bits >> man_bits & ((1u << exp_bits) - 1));
	bool negative = bits >> (exp_bits + man_bits) & 1;
	float f = exp == 0 ? ldexpf((float)man, 1 - bias - man_bits)
			   : ldexpf((float)(man | 1u << man_bits),
				    exp - bias - man_bits);

	return negative ? -f : f;
}

float ckt_small_float(enum ckpt_dtype dtype, uint8_t b)
{
	switch (dtype) {
	case CKPT_F8_E5M2:
		if ((b & 0x7c) == 0x7c)
			return b & 3 ? NAN : b & 0x80 ? -INFINITY : INFINITY;
		return plain(b, 5, 2, 15);
	case CKPT_F8_E4M3:
		return (b & 0x7f) == 0x7f ? NAN : plain(b, 4, 3, 7);
	case CKPT_F8_E5M2FNUZ:
		return b == 0x80 ? NAN : plain(b, 5, 2, 16);
	case CKPT_F8_E4M3FNUZ:
		return b == 0x80 ? NAN : plain(b, 4, 3, 8);
	case CKPT_F8_E8M0:
		return b == 0xff ? NAN : ldexpf(1, b - 127);
	case CKPT_F6_E2M3:
		return plain(b & 0x3f, 2, 3, 1);
	case CKPT_F6_E3M2:
		return plain(b & 0x3f, 3, 2, 3);
	case CKPT_F4:
		return plain(b & 15, 2, 1, 1);
	default:
		return NAN;
	}
}

/* Bits [6 * index, 6 * index + 6) of packed little-endian @p. */
static uint8_t six(const uint8_t *p, uint64_t index)
{
	uint64_t bit = index * 6, byte = bit / 8;
	uint32_t shift = bit % 8;
	uint32_t v = p[byte];

	if (shift > 2)
		v |= (uint32_t)p[byte + 1] << 8;
	return v >> shift & 0x3f;
}

double ckt_value_f64(enum ckpt_dtype dtype, const void *data, uint64_t index)
{
	const uint8_t *p = data;
	uint32_t bytes = ckpt_dtype_bits(dtype) / 8;
	const uint8_t *e = p + index * bytes;
	uint64_t bits;
	double d;

	switch (dtype) {
	case CKPT_BOOL:
	case CKPT_U8:
		return *e;
	case CKPT_I8:
		return (int8_t)*e;
	case CKPT_U16:
		return ckb_get_u16(e);
	case CKPT_I16:
		return (int16_t)ckb_get_u16(e);
	case CKPT_U32:
		return ckb_get_u32(e);
	case CKPT_I32:
		return (int32_t)ckb_get_u32(e);
	case CKPT_U64:
		return (double)ckb_get_u64(e);
	case CKPT_I64:
		return (double)(int64_t)ckb_get_u64(e);
	case CKPT_F16:
		return (double)ckt_f16(ckb_get_u16(e));
	case CKPT_BF16:
		return (double)ckt_bf16(ckb_get_u16(e));
	case CKPT_F32:
	case CKPT_C64:
		return (double)ckt_bits_f32(ckb_get_u32(e));
	case CKPT_F64:
	case CKPT_C128:
		bits = ckb_get_u64(e);
		memcpy(&d, &bits, sizeof(d));
		return d;
	case CKPT_F4:
		return (double)ckt_small_float(
			dtype, (uint8_t)(p[index / 2] >> (index % 2 * 4)));
	case CKPT_F6_E2M3:
	case CKPT_F6_E3M2:
		return (double)ckt_small_float(dtype, six(p, index));
	default:
		return (double)ckt_small_float(dtype, *e);
	}
}
