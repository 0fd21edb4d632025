/* SPDX-License-Identifier: Apache-2.0 */
/*
 * tensor/planes.h - elements to byte planes and back.
 *
 * Plane k holds byte k of every element, the lowest byte first. Turned, each
 * element is rotated left by one bit beforehand: the sign of a BF16, F32 or
 * F64 goes to bit 0, and its exponent fills the highest plane alone.
 *
 * Elements are little-endian, of 2, 4 or 8 bytes, any number of them, nothing
 * need be aligned. Planes overlap neither each other nor the elements. Each
 * function has three forms: for any processor, and for x86-64 _wide with AVX2
 * and _vbmi with AVX-512 VBMI.
 */
#ifndef CKT_PLANES_H
#define CKT_PLANES_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define CKT_PLANES_MAX 8u

/* @n elements of @width bytes to @width planes of @n bytes each. */
void ckt_planes_split(const uint8_t *from, size_t n, uint32_t width,
		      bool turned, uint8_t *const *planes);
/* The other way. */
void ckt_planes_join(const uint8_t *const *planes, size_t n, uint32_t width,
		     bool turned, uint8_t *to);

/* What the two above do where there is nothing wider, from element @first
 * on. */
void ckt_planes_split_plain(const uint8_t *from, size_t first, size_t n,
			    uint32_t width, bool turned,
			    uint8_t *const *planes);
void ckt_planes_join_plain(const uint8_t *const *planes, size_t first,
			   size_t n, uint32_t width, bool turned, uint8_t *to);

#ifdef __x86_64__
/* Only where ckt_planes_has_wide(). How many elements are done: @n less up to
 * 31, which are left to the plain form. */
size_t ckt_planes_split_wide(const uint8_t *from, size_t n, uint32_t width,
			     bool turned, uint8_t *const *planes);
size_t ckt_planes_join_wide(const uint8_t *const *planes, size_t n,
			    uint32_t width, bool turned, uint8_t *to);

static inline bool ckt_planes_has_wide(void)
{
	return __builtin_cpu_supports("avx2");
}

/* Only where ckt_planes_has_vbmi(). How many elements are done: @n less up to
 * 63, or none when the width is 8. */
size_t ckt_planes_split_vbmi(const uint8_t *from, size_t n, uint32_t width,
			     bool turned, uint8_t *const *planes);
size_t ckt_planes_join_vbmi(const uint8_t *const *planes, size_t n,
			    uint32_t width, bool turned, uint8_t *to);

static inline bool ckt_planes_has_vbmi(void)
{
	return __builtin_cpu_supports("avx512vbmi") &&
	       __builtin_cpu_supports("avx512bw");
}
#endif

#endif
