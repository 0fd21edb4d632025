/* SPDX-License-Identifier: Apache-2.0 */
/* chunk/codec.h - cells to stored bytes and back (owns zstd.h). */
#ifndef CKC_CODEC_H
#define CKC_CODEC_H

#include <ckpt/types.h>

#include "format/record.h"

struct ckc_codec; /* contexts of one thread; below 1 MiB at level 1 */

/* @level is zstd's, for whatever goes to its match finder. CKPT_EINVAL: it has
 * no such level. */
CKB_MUST int ckc_codec_new(enum ckf_codec codec, int level,
			   struct ckc_codec **out, struct ckpt_err *err);
void ckc_codec_free(struct ckc_codec *c);
uint16_t ckc_codec_kind(const struct ckc_codec *c); /* enum ckf_codec */

/* What the next cells hold; U8 at first. Only CKF_CODEC_PLANES asks, and a
 * wrong answer costs room, never bytes. */
void ckc_codec_dtype(struct ckc_codec *c, enum ckpt_dtype dtype);

/* Encode one cell of @len <= CKB_CELL_BYTES into @dst (room for @len). A cell
 * that does not shrink is kept raw. Fills *@cell, checksum included;
 * *@out_data is @dst, or @raw when the cell is raw (no copy). */
CKB_MUST int ckc_cell_encode(struct ckc_codec *c, const void *raw, size_t len,
			     void *dst, struct ckf_cell *cell,
			     const void **out_data, struct ckpt_err *err);

/* Verify (S6) and decode stored bytes into @dst of exactly @raw_len bytes.
 * @stored is not looked at when the cell is constant. Thread-safe without a
 * codec. CKPT_ECORRUPT: what disagrees. */
CKB_MUST int ckc_cell_decode(const struct ckf_cell *cell, const void *stored,
			     void *dst, size_t raw_len, struct ckpt_err *err);

#endif
