/* SPDX-License-Identifier: Apache-2.0 */
/*
 * fold_512.c - fold.c's lanes in vectors of 64 bytes: the same values, in a
 * third of the time.
 *
 * Sixteen elements at a time. Weights are finite, so that all of them are is
 * foreseen, and only others are told apart by masks. Minimum, maximum and sum
 * stay eight lanes wide, the lower elements before the upper. Compiled for
 * AVX-512 (F, BW, DQ, VL), so called only where it is. Pure.
 */
#include "tensor/fold.h"

#include <immintrin.h>

struct part {
	__m256 min, max;
	__m512d sum;
	__m512i zero;     /* negative, as is what is added */
	uint64_t nan, finite;
};

static inline void take_half(struct part *t, __m256 x)
{
	t->min = _mm256_min_ps(x, t->min);
	t->max = _mm256_max_ps(x, t->max);
	t->sum = _mm512_add_pd(t->sum, _mm512_cvtps_pd(x));
}

static inline void take_some(struct part *t, __mmask8 k, __m256 x)
{
	t->min = _mm256_mask_min_ps(t->min, k, x, t->min);
	t->max = _mm256_mask_max_ps(t->max, k, x, t->max);
	t->sum = _mm512_add_pd(t->sum, _mm512_maskz_cvtps_pd(k, x));
}

/* Of @bits, F32, those that @there says. */
static inline void take(struct part *t, __mmask16 there, __m512i bits)
{
	const __m512i inf = _mm512_set1_epi32(0x7f800000);
	__m512i mag = _mm512_and_si512(bits, _mm512_set1_epi32(0x7fffffff));
	__mmask16 finite = _mm512_mask_cmplt_epi32_mask(there, mag, inf);
	__mmask16 zero = _mm512_mask_testn_epi32_mask(there, mag, mag);
	__m512 x = _mm512_castsi512_ps(bits);
	__m256 low = _mm512_castps512_ps256(x);
	__m256 high = _mm512_extractf32x8_ps(x, 1);

	t->zero = _mm512_mask_add_epi32(t->zero, zero, t->zero,
					_mm512_set1_epi32(-1));
	if (__builtin_expect(finite == 0xffff, 1)) {
		t->finite += 16;
		take_half(t, low);
		take_half(t, high);
		return;
	}
	t->nan += (uint64_t)__builtin_popcount(
		_mm512_mask_cmpgt_epi32_mask(there, mag, inf));
	t->finite += (uint64_t)__builtin_popcount(finite);
	take_some(t, (__mmask8)finite, low);
	take_some(t, (__mmask8)(finite >> 8), high);
}

static inline __m512i from_f32(__mmask16 there, const uint8_t *p)
{
	return _mm512_maskz_loadu_epi32(there, p);
}

static inline __m512i from_bf16(__mmask16 there, const uint8_t *p)
{
	return _mm512_slli_epi32(_mm512_cvtepu16_epi32(
		_mm256_maskz_loadu_epi16(there, p)), 16);
}

static inline __m512i from_f16(__mmask16 there, const uint8_t *p)
{
	return _mm512_castps_si512(_mm512_cvtph_ps(
		_mm256_maskz_loadu_epi16(there, p)));
}

#define FOLD_KIND(kind, bytes)                                              \
	void ckt_fold_##kind##_512(struct ckt_fold *f, const uint8_t *p,    \
				   size_t n)                                \
	{                                                                   \
		struct part t = { _mm256_loadu_ps(f->min),                  \
				  _mm256_loadu_ps(f->max),                  \
				  _mm512_loadu_pd(f->sum),                  \
				  _mm512_setzero_si512(), 0, 0 };           \
		size_t i = 0;                                               \
                                                                            \
		for (; i + 16 <= n; i += 16, p += 16 * (bytes))             \
			take(&t, 0xffff, from_##kind(0xffff, p));           \
		if (i < n)                                                  \
			take(&t, 0xff, from_##kind(0xff, p));               \
		_mm256_storeu_ps(f->min, t.min);                            \
		_mm256_storeu_ps(f->max, t.max);                            \
		_mm512_storeu_pd(f->sum, t.sum);                            \
		f->nan += t.nan;                                            \
		f->finite += t.finite;                                      \
		f->zero += (uint32_t)-_mm512_reduce_add_epi32(t.zero);      \
	}

FOLD_KIND(f32, 4)
FOLD_KIND(bf16, 2)
FOLD_KIND(f16, 2)
