/* SPDX-License-Identifier: Apache-2.0 */
/* tensor/value.h - bits of the small float kinds as float. Pure. */
#ifndef CKT_VALUE_H
#define CKT_VALUE_H

#include <stdint.h>
#include <string.h>

#include "tensor/dtype.h"

static inline float ckt_bits_f32(uint32_t bits)
{
	float f;

	memcpy(&f, &bits, sizeof(f));
	return f;
}
static inline float ckt_bf16(uint16_t v)
{
	return ckt_bits_f32((uint32_t)v << 16);
}
float ckt_f16(uint16_t v);

/* One element of a float kind of 8 bits or less: its bits -> value. */
float ckt_small_float(enum ckpt_dtype dtype, uint8_t bits);

#endif
