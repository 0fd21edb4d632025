/* SPDX-License-Identifier: Apache-2.0 */
/*
 * codec.c - cells to stored bytes and back (owns zstd.h).
 *
 * A cell is coded alone, so any 256 KiB decodes without its neighbours. What
 * does not shrink is kept raw and not copied. Decoding verifies the stored
 * bytes' checksum first (S6) and must yield exactly the raw length.
 *
 * Threads: a codec belongs to one; decoding to any.
 */
#include "chunk/codec.h"

#include <string.h>
#include <zstd.h>

#include "base/hash.h"

struct ckc_codec {
	enum ckf_codec codec;
	ZSTD_CCtx *zstd;
};

int ckc_codec_new(enum ckf_codec codec, int level, struct ckc_codec **out,
		  struct ckpt_err *err)
{
	struct ckc_codec *c;
	bool zstd = codec == CKF_CODEC_ZSTD;

	*out = NULL;
	CKB_REQUIRE(zstd || codec == CKF_CODEC_RAW);
	/* zstd itself would take the nearest level and not tell */
	if (zstd && (level < ZSTD_minCLevel() || level > ZSTD_maxCLevel()))
		return ckb_err(err, CKPT_EINVAL, "zstd has no level %d: it "
			       "must be between %d and %d", level,
			       ZSTD_minCLevel(), ZSTD_maxCLevel());
	c = calloc(1, sizeof(*c));
	if (!c)
		return ckb_err_nomem(err);
	c->codec = codec;
	if (zstd) {
		c->zstd = ZSTD_createCCtx();
		if (!c->zstd ||
		    ZSTD_isError(ZSTD_CCtx_setParameter(
			    c->zstd, ZSTD_c_compressionLevel, level))) {
			ckc_codec_free(c);
			return ckb_err_nomem(err);
		}
	}
	*out = c;
	return 0;
}

void ckc_codec_free(struct ckc_codec *c)
{
	if (c)
		ZSTD_freeCCtx(c->zstd);
	free(c);
}

uint16_t ckc_codec_kind(const struct ckc_codec *c)
{
	return (uint16_t)c->codec;
}

int ckc_cell_encode(struct ckc_codec *c, const void *raw, size_t len,
		    void *dst, struct ckf_cell *cell, const void **out_data,
		    struct ckpt_err *err)
{
	(void)err;
	CKB_REQUIRE(len > 0 && len <= CKB_CELL_BYTES);
	*out_data = raw;
	cell->stored_len = (uint32_t)len;
	cell->coding = CKF_CELL_RAW;
	if (c->codec == CKF_CODEC_ZSTD) {
		/* "too small a room" is how zstd says it did not shrink */
		size_t n = len > 1 ? ZSTD_compress2(c->zstd, dst, len - 1, raw,
						    len)
				   : 0;

		if (n > 0 && !ZSTD_isError(n)) {
			*out_data = dst;
			cell->stored_len = (uint32_t)n;
			cell->coding = CKF_CELL_ZSTD;
		}
	}
	cell->xxh3 = ckb_xxh3(*out_data, cell->stored_len);
	return 0;
}

int ckc_cell_decode(const struct ckf_cell *cell, const void *stored, void *dst,
		    size_t raw_len, struct ckpt_err *err)
{
	CKB_REQUIRE(cell->stored_len <= CKB_CELL_BYTES);
	if (ckb_xxh3(stored, cell->stored_len) != cell->xxh3)
		return ckb_err(err, CKPT_ECORRUPT, "stored bytes do not match "
			       "their checksum");
	if (cell->coding == CKF_CELL_RAW) {
		if (cell->stored_len != raw_len)
			return ckb_err(err, CKPT_ECORRUPT, "a raw cell has %u "
				       "bytes, not %zu", cell->stored_len,
				       raw_len);
		if (dst != stored)
			memcpy(dst, stored, raw_len);
		return 0;
	}
	/* one frame and nothing behind it */
	if (ZSTD_findFrameCompressedSize(stored, cell->stored_len) !=
	    cell->stored_len)
		return ckb_err(err, CKPT_ECORRUPT, "the cell is not one zstd "
			       "frame");
	size_t n = ZSTD_decompress(dst, raw_len, stored, cell->stored_len);

	if (ZSTD_isError(n))
		return ckb_err(err, CKPT_ECORRUPT, "zstd cannot decode it: %s",
			       ZSTD_getErrorName(n));
	if (n != raw_len)
		return ckb_err(err, CKPT_ECORRUPT, "it decodes to %zu bytes, "
			       "not %zu", n, raw_len);
	return 0;
}
