/* SPDX-License-Identifier: Apache-2.0 */
/*
 * planes_wide.c - elements to byte planes and back, 32 at a time with AVX2.
 *
 * Only the folder's meson.build may compile it, with -mavx2; planes.c asks the
 * processor. A step of 32 elements fills one vector of each plane. AVX2 moves
 * bytes within halves of 16, so what a step makes is put in order at its end
 * (split) or at its start (join). Eight bytes are twice four: their low and
 * their high words. Pure.
 */
#include "tensor/planes.h"

#include <immintrin.h>

#define STEP 32u

#define INLINE static inline __attribute__((always_inline))

INLINE __m256i load(const uint8_t *p)
{
	return _mm256_loadu_si256((const __m256i *)p);
}

INLINE void store(uint8_t *p, __m256i v)
{
	_mm256_storeu_si256((__m256i *)p, v);
}

INLINE __m256i turn(__m256i v, uint32_t width, bool turned)
{
	if (!turned)
		return v;
	if (width == 2)
		return _mm256_or_si256(_mm256_slli_epi16(v, 1),
				       _mm256_srli_epi16(v, 15));
	if (width == 4)
		return _mm256_or_si256(_mm256_slli_epi32(v, 1),
				       _mm256_srli_epi32(v, 31));
	return _mm256_or_si256(_mm256_slli_epi64(v, 1),
			       _mm256_srli_epi64(v, 63));
}

INLINE __m256i turn_back(__m256i v, uint32_t width, bool turned)
{
	if (!turned)
		return v;
	if (width == 2)
		return _mm256_or_si256(_mm256_srli_epi16(v, 1),
				       _mm256_slli_epi16(v, 15));
	if (width == 4)
		return _mm256_or_si256(_mm256_srli_epi32(v, 1),
				       _mm256_slli_epi32(v, 31));
	return _mm256_or_si256(_mm256_srli_epi64(v, 1),
			       _mm256_slli_epi64(v, 63));
}

/* ---- split ---- */

INLINE void split2(const uint8_t *p, bool turned, __m256i out[2])
{
	const __m256i low = _mm256_set1_epi16(0xff);
	__m256i a = turn(load(p), 2, turned), b = turn(load(p + 32), 2, turned);
	__m256i l = _mm256_packus_epi16(_mm256_and_si256(a, low),
					_mm256_and_si256(b, low));
	__m256i h = _mm256_packus_epi16(_mm256_srli_epi16(a, 8),
					_mm256_srli_epi16(b, 8));

	out[0] = _mm256_permute4x64_epi64(l, 0xd8);
	out[1] = _mm256_permute4x64_epi64(h, 0xd8);
}

/* Four vectors of eight words each. */
INLINE void split4(const __m256i v[4], __m256i out[4])
{
	/* byte k of the four words of a half, side by side */
	const __m256i gather = _mm256_setr_epi8(
		0, 4, 8, 12, 1, 5, 9, 13, 2, 6, 10, 14, 3, 7, 11, 15,
		0, 4, 8, 12, 1, 5, 9, 13, 2, 6, 10, 14, 3, 7, 11, 15);
	const __m256i order = _mm256_setr_epi32(0, 4, 1, 5, 2, 6, 3, 7);
	__m256i a = _mm256_shuffle_epi8(v[0], gather);
	__m256i b = _mm256_shuffle_epi8(v[1], gather);
	__m256i c = _mm256_shuffle_epi8(v[2], gather);
	__m256i d = _mm256_shuffle_epi8(v[3], gather);
	__m256i ab01 = _mm256_unpacklo_epi32(a, b);
	__m256i ab23 = _mm256_unpackhi_epi32(a, b);
	__m256i cd01 = _mm256_unpacklo_epi32(c, d);
	__m256i cd23 = _mm256_unpackhi_epi32(c, d);

	out[0] = _mm256_unpacklo_epi64(ab01, cd01);
	out[1] = _mm256_unpackhi_epi64(ab01, cd01);
	out[2] = _mm256_unpacklo_epi64(ab23, cd23);
	out[3] = _mm256_unpackhi_epi64(ab23, cd23);
	for (int k = 0; k < 4; k++)
		out[k] = _mm256_permutevar8x32_epi32(out[k], order);
}

INLINE void split8(const uint8_t *p, bool turned, __m256i out[8])
{
	__m256i low[4], high[4];

	for (int i = 0; i < 4; i++) {
		__m256 a = _mm256_castsi256_ps(
			turn(load(p + 64 * i), 8, turned));
		__m256 b = _mm256_castsi256_ps(
			turn(load(p + 64 * i + 32), 8, turned));
		__m256 l = _mm256_shuffle_ps(a, b, 0x88);
		__m256 h = _mm256_shuffle_ps(a, b, 0xdd);

		low[i] = _mm256_permute4x64_epi64(_mm256_castps_si256(l), 0xd8);
		high[i] = _mm256_permute4x64_epi64(_mm256_castps_si256(h),
						   0xd8);
	}
	split4(low, out);
	split4(high, out + 4);
}

INLINE size_t split(const uint8_t *from, size_t n, uint32_t width, bool turned,
		    uint8_t *const *planes)
{
	uint8_t *to[CKT_PLANES_MAX];
	size_t i = 0;

	for (uint32_t k = 0; k < width; k++)
		to[k] = planes[k];
	for (; n - i >= STEP; i += STEP, from += STEP * width) {
		__m256i v[4], out[8];

		if (width == 2) {
			split2(from, turned, out);
		} else if (width == 4) {
			for (int j = 0; j < 4; j++)
				v[j] = turn(load(from + 32 * j), 4, turned);
			split4(v, out);
		} else {
			split8(from, turned, out);
		}
		for (uint32_t k = 0; k < width; k++)
			store(to[k] + i, out[k]);
	}
	return i;
}

/* ---- join ---- */

INLINE void join2(const __m256i in[2], bool turned, uint8_t *p)
{
	__m256i l = _mm256_permute4x64_epi64(in[0], 0xd8);
	__m256i h = _mm256_permute4x64_epi64(in[1], 0xd8);

	store(p, turn_back(_mm256_unpacklo_epi8(l, h), 2, turned));
	store(p + 32, turn_back(_mm256_unpackhi_epi8(l, h), 2, turned));
}

INLINE void join4(const __m256i in[4], __m256i out[4])
{
	__m256i l01 = _mm256_unpacklo_epi8(in[0], in[1]);
	__m256i h01 = _mm256_unpackhi_epi8(in[0], in[1]);
	__m256i l23 = _mm256_unpacklo_epi8(in[2], in[3]);
	__m256i h23 = _mm256_unpackhi_epi8(in[2], in[3]);
	/* words 0-3 and 16-19, then 4-7 and 20-23, and so on */
	__m256i a = _mm256_unpacklo_epi16(l01, l23);
	__m256i b = _mm256_unpackhi_epi16(l01, l23);
	__m256i c = _mm256_unpacklo_epi16(h01, h23);
	__m256i d = _mm256_unpackhi_epi16(h01, h23);

	out[0] = _mm256_permute2x128_si256(a, b, 0x20);
	out[1] = _mm256_permute2x128_si256(c, d, 0x20);
	out[2] = _mm256_permute2x128_si256(a, b, 0x31);
	out[3] = _mm256_permute2x128_si256(c, d, 0x31);
}

INLINE void join8(const __m256i in[8], bool turned, uint8_t *p)
{
	__m256i low[4], high[4];

	join4(in, low);
	join4(in + 4, high);
	for (int i = 0; i < 4; i++) {
		__m256i a = _mm256_unpacklo_epi32(low[i], high[i]);
		__m256i b = _mm256_unpackhi_epi32(low[i], high[i]);

		store(p + 64 * i, turn_back(_mm256_permute2x128_si256(
						    a, b, 0x20), 8, turned));
		store(p + 64 * i + 32, turn_back(_mm256_permute2x128_si256(
							 a, b, 0x31), 8,
						 turned));
	}
}

INLINE size_t join(const uint8_t *const *planes, size_t n, uint32_t width,
		   bool turned, uint8_t *to)
{
	const uint8_t *from[CKT_PLANES_MAX];
	size_t i = 0;

	for (uint32_t k = 0; k < width; k++)
		from[k] = planes[k];
	for (; n - i >= STEP; i += STEP, to += STEP * width) {
		__m256i in[8], out[4];

		for (uint32_t k = 0; k < width; k++)
			in[k] = load(from[k] + i);
		if (width == 2) {
			join2(in, turned, to);
		} else if (width == 4) {
			join4(in, out);
			for (int j = 0; j < 4; j++)
				store(to + 32 * j,
				      turn_back(out[j], 4, turned));
		} else {
			join8(in, turned, to);
		}
	}
	return i;
}

/* ---- one function for each width ---- */

size_t ckt_planes_split_wide(const uint8_t *from, size_t n, uint32_t width,
			     bool turned, uint8_t *const *planes)
{
	if (width == 2)
		return turned ? split(from, n, 2, true, planes)
			      : split(from, n, 2, false, planes);
	if (width == 4)
		return turned ? split(from, n, 4, true, planes)
			      : split(from, n, 4, false, planes);
	return turned ? split(from, n, 8, true, planes)
		      : split(from, n, 8, false, planes);
}

size_t ckt_planes_join_wide(const uint8_t *const *planes, size_t n,
			    uint32_t width, bool turned, uint8_t *to)
{
	if (width == 2)
		return turned ? join(planes, n, 2, true, to)
			      : join(planes, n, 2, false, to);
	if (width == 4)
		return turned ? join(planes, n, 4, true, to)
			      : join(planes, n, 4, false, to);
	return turned ? join(planes, n, 8, true, to)
		      : join(planes, n, 8, false, to);
}
