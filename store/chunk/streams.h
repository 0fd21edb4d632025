/* SPDX-License-Identifier: Apache-2.0 */
/* chunk/streams.h - the four streams of codes in a block of zstd's literals. */
#ifndef CKC_STREAMS_H
#define CKC_STREAMS_H

#include <stdbool.h>

#include "chunk/huffman.h"

#define CKC_CODE_BITS_MAX 11u /* of a code, by the format */

/* The lengths of three of them, then four streams, of the codes of @n >=
 * CKC_HUFFMAN_MIN bytes into @dst. @narrow: all of them lie in
 * CKC_HUFFMAN_NARROW values from @min on, and h->pairs is made. 0: not within
 * @room, or too near to it; what lies behind them there is garbage. Pure. */
typedef size_t (*ckc_streams_fn)(const struct ckc_huffman *h, bool narrow,
				 uint32_t min, const uint8_t *raw, size_t n,
				 uint8_t *dst, size_t room);

size_t ckc_streams_encode(const struct ckc_huffman *h, bool narrow,
			  uint32_t min, const uint8_t *raw, size_t n,
			  uint8_t *dst, size_t room);

#ifdef __x86_64__
/* Only where ckc_streams_has_bmi2(). */
size_t ckc_streams_encode_bmi2(const struct ckc_huffman *h, bool narrow,
			       uint32_t min, const uint8_t *raw, size_t n,
			       uint8_t *dst, size_t room);

static inline bool ckc_streams_has_bmi2(void)
{
	return __builtin_cpu_supports("bmi2");
}
#endif

#endif
