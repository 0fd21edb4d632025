/* SPDX-License-Identifier: Apache-2.0 */
/*
 * chunk/huffman.h - bytes to zstd frames that hold literals only.
 *
 * What zstd itself makes when told to find no matches, several times faster;
 * any zstd decodes it. Pure.
 */
#ifndef CKC_HUFFMAN_H
#define CKC_HUFFMAN_H

#include <stddef.h>
#include <stdint.h>

#define CKC_HUFFMAN_MIN 64u     /* bytes of a frame */
#define CKC_HUFFMAN_NARROW 64u  /* values in a row that go two at a time */

/* Scratch of one encoder. Codes: bits above 6 bits of length. */
struct ckc_huffman {
	uint32_t seen[4][256];
	uint32_t codes[256];
	uint32_t pairs[CKC_HUFFMAN_NARROW * CKC_HUFFMAN_NARROW];
};

/* One frame of @n >= CKC_HUFFMAN_MIN bytes into @dst, which has @room; what
 * lies behind it there is garbage. 0: not within @room, or not worth it. */
size_t ckc_huffman_encode(struct ckc_huffman *h, const uint8_t *raw, size_t n,
			  uint8_t *dst, size_t room);

#endif
