/* SPDX-License-Identifier: Apache-2.0 */
/*
 * chunk/planes.h - cells of numbers as byte planes, each coded by itself.
 *
 * codec.c calls it, and lends it zstd in return.
 */
#ifndef CKC_PLANES_H
#define CKC_PLANES_H

#include "chunk/codec.h"
#include "chunk/huffman.h"
#include "tensor/planes.h"

#define CKC_PLANES_SAMPLE 2048u /* elements of a cell that are looked at */

/* How the elements of a dtype are cut. */
struct ckc_plan {
	uint32_t width;  /* bytes of an element; 0: not by planes */
	bool turned;
	bool integer;    /* matches may be found where bytes look random */
};
struct ckc_plan ckc_plan_of(enum ckpt_dtype dtype);
/* Can a cell of @len bytes be cut so, and is it long enough? */
bool ckc_plan_fits(const struct ckc_plan *plan, size_t len);

/* Scratch of one encoder. */
struct ckc_planes {
	uint8_t cell[CKB_CELL_BYTES];
	uint8_t sample[2][CKT_PLANES_MAX * CKC_PLANES_SAMPLE];
	uint32_t seen[256];
	float bits[CKC_PLANES_SAMPLE + 1]; /* n * log2(n) */
	struct ckc_huffman huffman;
};
void ckc_planes_init(struct ckc_planes *p);

/* Stored bytes of a planes cell into @dst, which has room for @len; what lies
 * behind them there is garbage. 0: they would be more than @room < @len. */
size_t ckc_planes_encode(struct ckc_codec *c, struct ckc_planes *p,
			 const struct ckc_plan *plan, const uint8_t *raw,
			 size_t len, uint8_t *dst, size_t room);

struct ckc_decoder;
/* Any bytes (S10). CKPT_ECORRUPT: what disagrees. */
CKB_MUST int ckc_planes_decode(struct ckc_decoder *d, const uint8_t *stored,
			       size_t len, uint8_t *dst, size_t raw_len,
			       struct ckpt_err *err);

/* ---- lent by codec.c ---- */

/* One frame. 0: not within @room. */
size_t ckc_zstd_encode(struct ckc_codec *c, const void *raw, size_t len,
		       void *dst, size_t room);
/* One frame and nothing behind it, that has exactly @raw_len bytes. */
CKB_MUST int ckc_zstd_decode(struct ckc_decoder *d, const void *stored,
			     size_t len, void *dst, size_t raw_len,
			     struct ckpt_err *err);
/* CKB_CELL_BYTES of scratch. */
uint8_t *ckc_decoder_scratch(struct ckc_decoder *d);

#endif
