/* SPDX-License-Identifier: Apache-2.0 */
/*
 * streams.c - the four streams of codes in a block of zstd's literals.
 *
 * Each is written backwards, as the format wants it, two at a time so that one
 * waits while the other works; values that lie close together by pairs, from a
 * table of 16 KiB.
 *
 * Streams are written a quarter of the room apart, straight to where the block
 * will be, then moved together. One that leaves its quarter ends the attempt:
 * such bytes do not shrink. Pure; never more than the room is written.
 *
 * Compiled twice, as shifts by a variable are half the work: for any processor,
 * and with CKC_STREAMS_BMI2, which only the folder's meson.build may do, with
 * -mbmi2.
 */
#include "chunk/streams.h"

#include <string.h>

#include "base/bytes.h"

#ifdef CKC_STREAMS_BMI2
#define ENCODE ckc_streams_encode_bmi2
#else
#define ENCODE ckc_streams_encode
#endif
#define JUMP 6u    /* lengths of three streams */
#define BATCH 64u  /* bytes of a stream between looks at its room */
#define SLACK 8u   /* a flush writes as much */

struct stream {
	uint64_t acc;     /* @bits of it are to be written */
	uint32_t bits;
	uint8_t *at, *end;
};

static inline void append(struct stream *s, uint64_t v, uint32_t bits)
{
	s->acc |= v << s->bits;
	s->bits += bits;
	ckb_put_u64(s->at, s->acc);
	s->at += s->bits >> 3;
	s->acc >>= s->bits & 56;
	s->bits &= 7;
}

static inline uint32_t pair_of(const struct ckc_huffman *h, uint64_t index)
{
	return h->pairs[index & 0xfff];
}

/* Eight bytes, the last one first. @low: the least value, eight times. */
static inline void append_narrow(const struct ckc_huffman *h,
				 struct stream *s, const uint8_t *raw,
				 uint64_t low)
{
	uint64_t d = ckb_get_u64(raw) - low;
	uint64_t x = (d & 0x003f003f003f003f) | (d >> 2 & 0x0fc00fc00fc00fc0);
	uint32_t a = pair_of(h, x), b = pair_of(h, x >> 16);
	uint32_t c = pair_of(h, x >> 32), e = pair_of(h, x >> 48);

	append(s, e >> 6 | (uint64_t)(c >> 6) << (e & 63), (c + e) & 63);
	append(s, b >> 6 | (uint64_t)(a >> 6) << (b & 63), (a + b) & 63);
}

static inline void append_wide(const struct ckc_huffman *h, struct stream *s,
			       const uint8_t *raw)
{
	for (int i = 4; i >= 0; i -= 4) {
		uint32_t a = h->codes[raw[i]], b = h->codes[raw[i + 1]];
		uint32_t c = h->codes[raw[i + 2]], e = h->codes[raw[i + 3]];
		uint64_t ab = b >> 6 | (uint64_t)(a >> 6) << (b & 63);
		uint64_t ce = e >> 6 | (uint64_t)(c >> 6) << (e & 63);
		uint32_t ce_bits = (c + e) & 63;

		append(s, ce | ab << ce_bits, (ce_bits + a + b) & 63);
	}
}

/* The first @n bytes, a multiple of 8, of two parts, the last one first.
 * False: a stream left its room. */
static bool encode_two(const struct ckc_huffman *h, bool narrow, uint64_t low,
		       const uint8_t *p, const uint8_t *q, size_t n,
		       struct stream *out_s, struct stream *out_t)
{
	struct stream s = *out_s, t = *out_t;

	while (n > 0) {
		size_t stop = n > BATCH ? n - BATCH : 0;
		size_t worst = (n - stop) / 8 * CKC_CODE_BITS_MAX + SLACK;

		if ((size_t)(s.end - s.at) < worst ||
		    (size_t)(t.end - t.at) < worst)
			return false;
		if (narrow)
			for (; n > stop; n -= 8) {
				append_narrow(h, &s, p + n - 8, low);
				append_narrow(h, &t, q + n - 8, low);
			}
		else
			for (; n > stop; n -= 8) {
				append_wide(h, &s, p + n - 8);
				append_wide(h, &t, q + n - 8);
			}
	}
	*out_s = s;
	*out_t = t;
	return true;
}

/* What is no multiple of 8 at a part's end, before the rest. */
static void encode_tail(const struct ckc_huffman *h, const uint8_t *raw,
			size_t n, struct stream *s)
{
	while (n-- > 0)
		append(s, h->codes[raw[n]] >> 6, h->codes[raw[n]] & 63);
}

size_t ENCODE(const struct ckc_huffman *h, bool narrow, uint32_t min,
	      const uint8_t *raw, size_t n, uint8_t *dst, size_t room)
{
	size_t part = (n + 3) / 4, last = n - 3 * part, bulk = last / 8 * 8;
	uint64_t low = min * UINT64_C(0x0101010101010101);
	struct stream s[4];
	uint8_t *at = dst + JUMP;

	/* tails are 11 bytes at most */
	if (room < JUMP + 4 * (32 + SLACK))
		return 0;
	for (size_t i = 0; i < 4; i++) {
		size_t each = (room - JUMP) / 4;

		s[i] = (struct stream){ 0, 0, at + i * each,
					at + (i + 1) * each };
		encode_tail(h, raw + i * part + bulk,
			    (i < 3 ? part : last) - bulk, &s[i]);
	}
	for (size_t i = 0; i < 4; i += 2)
		if (!encode_two(h, narrow, low, raw + i * part,
				raw + (i + 1) * part, bulk, &s[i], &s[i + 1]))
			return 0;
	for (size_t i = 0; i < 4; i++) {
		uint8_t *from = dst + JUMP + i * ((room - JUMP) / 4);

		if (s[i].end - s[i].at < (ptrdiff_t)SLACK)
			return 0;
		append(&s[i], 1, 1); /* where it ends */
		size_t len = (size_t)(s[i].at - from) + (s[i].bits > 0);

		if (i < 3)
			ckb_put_u16(dst + 2 * i, (uint16_t)len);
		memmove(at, from, len);
		at += len;
	}
	return (size_t)(at - dst);
}
