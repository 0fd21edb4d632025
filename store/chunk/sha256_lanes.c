/* SPDX-License-Identifier: Apache-2.0 */
/*
 * sha256_lanes.c - SHA-256 of sixteen messages at once, one in each lane of
 * AVX-512.
 *
 * All that a round does is done to sixteen words in one instruction, in 13
 * cycles; the processor's own instructions for SHA-256 take 25 for as much of
 * two messages side by side. So it pays from ten messages on. Names as in FIPS
 * 180-4.
 *
 * Compiled for AVX-512 (F and BW), so called only where it is.
 */
#include "chunk/sha256_lanes.h"

#include <immintrin.h>

#include "chunk/sha256_keys.h"

#define LANES CKC_SHA256_LANES

static inline __m512i add(__m512i a, __m512i b)
{
	return _mm512_add_epi32(a, b);
}

static inline __m512i xor3(__m512i a, __m512i b, __m512i c)
{
	return _mm512_ternarylogic_epi32(a, b, c, 0x96);
}

#define ROTR(x, n) _mm512_ror_epi32(x, n)
#define SUM0(x) xor3(ROTR(x, 2), ROTR(x, 13), ROTR(x, 22))
#define SUM1(x) xor3(ROTR(x, 6), ROTR(x, 11), ROTR(x, 25))
#define SIGMA0(x) xor3(ROTR(x, 7), ROTR(x, 18), _mm512_srli_epi32(x, 3))
#define SIGMA1(x) xor3(ROTR(x, 17), ROTR(x, 19), _mm512_srli_epi32(x, 10))
#define CH(x, y, z) _mm512_ternarylogic_epi32(x, y, z, 0xca)
#define MAJ(x, y, z) _mm512_ternarylogic_epi32(x, y, z, 0xe8)

/* Sixteen rounds, from @t on. The letters go round instead of the words. */
static inline __attribute__((always_inline)) void
rounds(__m512i s[8], __m512i w[16], const uint32_t *k, bool schedule)
{
#pragma GCC unroll 16
	for (int i = 0; i < 16; i++) {
		__m512i *a = &s[(16 - i) & 7], *b = &s[(17 - i) & 7];
		__m512i *c = &s[(18 - i) & 7], *d = &s[(19 - i) & 7];
		__m512i *e = &s[(20 - i) & 7], *f = &s[(21 - i) & 7];
		__m512i *g = &s[(22 - i) & 7], *h = &s[(23 - i) & 7];

		if (schedule)
			w[i] = add(add(w[i], SIGMA0(w[(i + 1) & 15])),
				   add(w[(i + 9) & 15],
				       SIGMA1(w[(i + 14) & 15])));
		__m512i t1 = add(add(*h, add(w[i],
					     _mm512_set1_epi32((int)k[i]))),
				 add(SUM1(*e), CH(*e, *f, *g)));

		*d = add(*d, t1);
		*h = add(t1, add(SUM0(*a), MAJ(*a, *b, *c)));
	}
}

/* Word i of every message's block into w[i]: a transposition, in squares of
 * two, four, eight and sixteen words. */
static inline __attribute__((always_inline)) void
load_words(__m512i w[16], const uint8_t *const from[LANES])
{
	const __m512i swap = _mm512_broadcast_i32x4(_mm_set_epi64x(
		0x0c0d0e0f08090a0bll, 0x0405060700010203ll));
	__m512i r[16];

#pragma GCC unroll 16
	for (int i = 0; i < 16; i++)
		w[i] = _mm512_shuffle_epi8(_mm512_loadu_si512(from[i]), swap);
#pragma GCC unroll 8
	for (int i = 0; i < 16; i += 2) {
		r[i] = _mm512_unpacklo_epi32(w[i], w[i + 1]);
		r[i + 1] = _mm512_unpackhi_epi32(w[i], w[i + 1]);
	}
#pragma GCC unroll 4
	for (int i = 0; i < 16; i += 4) {
		w[i] = _mm512_unpacklo_epi64(r[i], r[i + 2]);
		w[i + 1] = _mm512_unpackhi_epi64(r[i], r[i + 2]);
		w[i + 2] = _mm512_unpacklo_epi64(r[i + 1], r[i + 3]);
		w[i + 3] = _mm512_unpackhi_epi64(r[i + 1], r[i + 3]);
	}
#pragma GCC unroll 4
	for (int i = 0; i < 4; i++) {
		r[i] = _mm512_shuffle_i32x4(w[i], w[i + 4], 0x88);
		r[i + 4] = _mm512_shuffle_i32x4(w[i], w[i + 4], 0xdd);
		r[i + 8] = _mm512_shuffle_i32x4(w[i + 8], w[i + 12], 0x88);
		r[i + 12] = _mm512_shuffle_i32x4(w[i + 8], w[i + 12], 0xdd);
	}
#pragma GCC unroll 4
	for (int i = 0; i < 4; i++) {
		w[i] = _mm512_shuffle_i32x4(r[i], r[i + 8], 0x88);
		w[i + 4] = _mm512_shuffle_i32x4(r[i + 4], r[i + 12], 0x88);
		w[i + 8] = _mm512_shuffle_i32x4(r[i], r[i + 8], 0xdd);
		w[i + 12] = _mm512_shuffle_i32x4(r[i + 4], r[i + 12], 0xdd);
	}
}

void ckc_sha256_lanes_blocks(uint32_t h[8][LANES],
			     const uint8_t *const data[LANES], size_t blocks,
			     size_t ahead)
{
	const uint8_t *from[LANES];
	__m512i s[8];

	for (int i = 0; i < LANES; i++)
		from[i] = data[i];
	for (int i = 0; i < 8; i++)
		s[i] = _mm512_loadu_si512(h[i]);
	for (; blocks > 0; blocks--) {
		__m512i w[16], before[8];

		load_words(w, from);
		for (int i = 0; i < LANES; i++) {
			__builtin_prefetch(from[i] + ahead, 0, 2);
			from[i] += 64;
		}
		for (int i = 0; i < 8; i++)
			before[i] = s[i];
		rounds(s, w, ckc_sha256_keys, false);
		for (int t = 16; t < 64; t += 16)
			rounds(s, w, ckc_sha256_keys + t, true);
		for (int i = 0; i < 8; i++)
			s[i] = add(s[i], before[i]);
	}
	for (int i = 0; i < 8; i++)
		_mm512_storeu_si512(h[i], s[i]);
}
