/* SPDX-License-Identifier: Apache-2.0 */
/*
 * sha256_pair.c - SHA-256 of two messages side by side, in the processor's own
 * instructions.
 *
 * Each pair of rounds waits for the one before it, and the unit that does them
 * is idle for half of that time: a second message's rounds go there. Words of
 * the schedule are made in place, four at a time, twelve words before they are
 * used. Two messages take all sixteen registers; a third would not pay.
 *
 * Compiled for SHA and SSE4.1, so called only where they are.
 */
#include "chunk/sha256_pair.h"

#include <immintrin.h>

#include "chunk/sha256_keys.h"

/* The instructions want the state as ABEF and CDGH, high word first. */
struct state {
	__m128i abef, cdgh;
};

static inline struct state state_load(const uint32_t h[8])
{
	__m128i badc = _mm_shuffle_epi32(
		_mm_loadu_si128((const __m128i *)h), 0xb1);
	__m128i efgh = _mm_shuffle_epi32(
		_mm_loadu_si128((const __m128i *)(h + 4)), 0x1b);

	return (struct state){ _mm_alignr_epi8(badc, efgh, 8),
			       _mm_blend_epi16(efgh, badc, 0xf0) };
}

static inline void state_store(struct state s, uint32_t h[8])
{
	__m128i feba = _mm_shuffle_epi32(s.abef, 0x1b);
	__m128i dchg = _mm_shuffle_epi32(s.cdgh, 0xb1);

	_mm_storeu_si128((__m128i *)h, _mm_blend_epi16(feba, dchg, 0xf0));
	_mm_storeu_si128((__m128i *)(h + 4), _mm_alignr_epi8(dchg, feba, 8));
}

static inline void block_load(__m128i w[4], const uint8_t *data)
{
	const __m128i swap = _mm_set_epi64x(0x0c0d0e0f08090a0bull,
					    0x0405060700010203ull);

	for (int i = 0; i < 4; i++)
		w[i] = _mm_shuffle_epi8(
			_mm_loadu_si128((const __m128i *)data + i), swap);
}

/* Words i .. i + 3 of the schedule become those of sixteen on. */
static inline void schedule(__m128i w[4], int i)
{
	__m128i last = w[(i + 3) & 3];
	__m128i s = _mm_sha256msg1_epu32(w[i & 3], w[(i + 1) & 3]);

	s = _mm_add_epi32(s, _mm_alignr_epi8(last, w[(i + 2) & 3], 4));
	w[i & 3] = _mm_sha256msg2_epu32(s, last);
}

static inline void two_rounds(struct state *s, __m128i words)
{
	__m128i cdgh = s->abef;

	s->abef = _mm_sha256rnds2_epu32(s->cdgh, s->abef, words);
	s->cdgh = cdgh;
}

void ckc_sha256_pair_blocks(uint32_t h[2][8], const uint8_t *const data[2],
			    size_t blocks, size_t ahead)
{
	struct state a = state_load(h[0]), b = state_load(h[1]);
	const uint8_t *from[2] = { data[0], data[1] };

	for (; blocks > 0; blocks--, from[0] += 64, from[1] += 64) {
		struct state a0 = a, b0 = b;
		__m128i wa[4], wb[4];

		__builtin_prefetch(from[0] + ahead, 0, 2);
		__builtin_prefetch(from[1] + ahead, 0, 2);
		block_load(wa, from[0]);
		block_load(wb, from[1]);
#pragma GCC unroll 16
		for (int i = 0; i < 16; i++) {
			__m128i k = _mm_load_si128(
				(const __m128i *)(ckc_sha256_keys + 4 * i));
			__m128i ma = _mm_add_epi32(wa[i & 3], k);
			__m128i mb = _mm_add_epi32(wb[i & 3], k);

			two_rounds(&a, ma);
			two_rounds(&b, mb);
			two_rounds(&a, _mm_shuffle_epi32(ma, 0x0e));
			two_rounds(&b, _mm_shuffle_epi32(mb, 0x0e));
			if (i < 12) {
				schedule(wa, i);
				schedule(wb, i);
			}
		}
		a.abef = _mm_add_epi32(a.abef, a0.abef);
		a.cdgh = _mm_add_epi32(a.cdgh, a0.cdgh);
		b.abef = _mm_add_epi32(b.abef, b0.abef);
		b.cdgh = _mm_add_epi32(b.cdgh, b0.cdgh);
	}
	state_store(a, h[0]);
	state_store(b, h[1]);
}
