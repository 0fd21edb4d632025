/* SPDX-License-Identifier: Apache-2.0 */
/*
 * planes_vbmi.c - elements of 2 and 4 bytes to byte planes and back, 64 at a
 * time with AVX-512 VBMI, which moves any byte of a vector anywhere.
 *
 * Only the folder's meson.build may compile it, with -mavx512vbmi; planes.c
 * asks the processor. Half the instructions of planes_wide.c. Pure.
 */
#include "tensor/planes.h"

#include <immintrin.h>

#define STEP 64u
#define INLINE static inline __attribute__((always_inline))

INLINE __m512i load(const uint8_t *p)
{
	return _mm512_loadu_si512(p);
}

INLINE void store(uint8_t *p, __m512i v)
{
	_mm512_storeu_si512(p, v);
}

/* Byte i of it is first + i * step for the first @count, and so on from
 * first + 1, from first + 2, ...: how bytes are picked. */
INLINE __m512i picks(uint32_t step, uint32_t count)
{
	uint8_t at[64];

	for (uint32_t i = 0; i < 64; i++)
		at[i] = (uint8_t)(i % count * step + i / count);
	return load(at);
}

INLINE __m512i turn(__m512i v, uint32_t width, bool turned)
{
	if (!turned)
		return v;
	return width == 2 ? _mm512_or_si512(_mm512_slli_epi16(v, 1),
					    _mm512_srli_epi16(v, 15))
			  : _mm512_rol_epi32(v, 1);
}

INLINE __m512i turn_back(__m512i v, uint32_t width, bool turned)
{
	if (!turned)
		return v;
	return width == 2 ? _mm512_or_si512(_mm512_srli_epi16(v, 1),
					    _mm512_slli_epi16(v, 15))
			  : _mm512_ror_epi32(v, 1);
}

/* Quarter j of out[i] is quarter i of in[j]. */
INLINE void transpose(const __m512i in[4], __m512i out[4])
{
	__m512i a = _mm512_shuffle_i64x2(in[0], in[1], 0x44);
	__m512i b = _mm512_shuffle_i64x2(in[0], in[1], 0xee);
	__m512i c = _mm512_shuffle_i64x2(in[2], in[3], 0x44);
	__m512i d = _mm512_shuffle_i64x2(in[2], in[3], 0xee);

	out[0] = _mm512_shuffle_i64x2(a, c, 0x88);
	out[1] = _mm512_shuffle_i64x2(a, c, 0xdd);
	out[2] = _mm512_shuffle_i64x2(b, d, 0x88);
	out[3] = _mm512_shuffle_i64x2(b, d, 0xdd);
}

INLINE size_t split2(const uint8_t *from, size_t n, bool turned,
		     uint8_t *const *planes)
{
	uint8_t *low = planes[0], *high = planes[1];
	/* even bytes of two vectors, then odd ones */
	const __m512i even = picks(2, 64);
	const __m512i odd = _mm512_add_epi8(even, _mm512_set1_epi8(1));
	size_t i = 0;

	for (; n - i >= STEP; i += STEP, from += STEP * 2) {
		__m512i a = turn(load(from), 2, turned);
		__m512i b = turn(load(from + 64), 2, turned);

		store(low + i, _mm512_permutex2var_epi8(a, even, b));
		store(high + i, _mm512_permutex2var_epi8(a, odd, b));
	}
	return i;
}

INLINE size_t join2(const uint8_t *const *planes, size_t n, bool turned,
		    uint8_t *to)
{
	const uint8_t *low = planes[0], *high = planes[1];
	size_t i = 0;
	uint8_t at[64];

	for (uint32_t k = 0; k < 64; k++)
		at[k] = (uint8_t)(k / 2 + k % 2 * 64);
	const __m512i first = load(at);
	const __m512i second = _mm512_add_epi8(first, _mm512_set1_epi8(32));

	for (; n - i >= STEP; i += STEP, to += STEP * 2) {
		__m512i l = load(low + i), h = load(high + i);

		store(to, turn_back(_mm512_permutex2var_epi8(l, first, h), 2,
				    turned));
		store(to + 64, turn_back(_mm512_permutex2var_epi8(l, second,
								  h), 2,
					 turned));
	}
	return i;
}

INLINE size_t split4(const uint8_t *from, size_t n, bool turned,
		     uint8_t *const *planes)
{
	uint8_t *to[4] = { planes[0], planes[1], planes[2], planes[3] };
	const __m512i gather = picks(4, 16);
	size_t i = 0;

	for (; n - i >= STEP; i += STEP, from += STEP * 4) {
		__m512i v[4], out[4];

		for (int k = 0; k < 4; k++)
			v[k] = _mm512_permutexvar_epi8(
				gather, turn(load(from + 64 * k), 4, turned));
		transpose(v, out);
		for (int k = 0; k < 4; k++)
			store(to[k] + i, out[k]);
	}
	return i;
}

INLINE size_t join4(const uint8_t *const *planes, size_t n, bool turned,
		    uint8_t *to)
{
	const uint8_t *from[4] = { planes[0], planes[1], planes[2],
				   planes[3] };
	const __m512i spread = picks(16, 4);
	size_t i = 0;

	for (; n - i >= STEP; i += STEP, to += STEP * 4) {
		__m512i v[4], out[4];

		for (int k = 0; k < 4; k++)
			v[k] = load(from[k] + i);
		transpose(v, out);
		for (int k = 0; k < 4; k++)
			store(to + 64 * k,
			      turn_back(_mm512_permutexvar_epi8(spread,
								out[k]),
					4, turned));
	}
	return i;
}

/* ---- one function for each width ---- */

size_t ckt_planes_split_vbmi(const uint8_t *from, size_t n, uint32_t width,
			     bool turned, uint8_t *const *planes)
{
	if (width == 2)
		return turned ? split2(from, n, true, planes)
			      : split2(from, n, false, planes);
	if (width == 4)
		return turned ? split4(from, n, true, planes)
			      : split4(from, n, false, planes);
	return 0;
}

size_t ckt_planes_join_vbmi(const uint8_t *const *planes, size_t n,
			    uint32_t width, bool turned, uint8_t *to)
{
	if (width == 2)
		return turned ? join2(planes, n, true, to)
			      : join2(planes, n, false, to);
	if (width == 4)
		return turned ? join4(planes, n, true, to)
			      : join4(planes, n, false, to);
	return 0;
}
