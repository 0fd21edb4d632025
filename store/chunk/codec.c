/* SPDX-License-Identifier: Apache-2.0 */
/*
 * codec.c - cells to stored bytes and back (owns zstd.h).
 *
 * A cell is coded alone, so any 256 KiB decodes without its neighbours. What
 * does not shrink is kept raw and not copied. Decoding verifies the stored
 * bytes' checksum first (S6) and must yield exactly the raw length. Planes are
 * in planes.c, which borrows zstd from here.
 *
 * Threads: a codec belongs to one; decoding to any. A decoder, which is zstd's
 * context and scratch, is used by one thread at a time, and a few that nobody
 * uses are kept: atomic slots rather than a lock, so that a fork cannot leave
 * it taken.
 */
#include "chunk/codec.h"

#include <stdatomic.h>
#include <string.h>
#include <zstd.h>

#include "base/bytes.h"
#include "base/hash.h"
#include "chunk/planes.h"

#define IDLE_DECODERS 8u
#define WORTH 20u /* a twentieth less, or planes are not worth decoding */

struct ckc_codec {
	enum ckf_codec codec;
	ZSTD_CCtx *zstd;
	struct ckc_plan plan;
	struct ckc_planes *planes; /* of CKF_CODEC_PLANES */
};

/* ---- codecs ---- */

static int codec_init(struct ckc_codec *c, int level, struct ckpt_err *err)
{
	if (c->codec == CKF_CODEC_RAW)
		return 0;
	c->zstd = ZSTD_createCCtx();
	if (!c->zstd ||
	    ZSTD_isError(ZSTD_CCtx_setParameter(
		    c->zstd, ZSTD_c_compressionLevel, level)))
		return ckb_err_nomem(err);
	if (c->codec != CKF_CODEC_PLANES)
		return 0;
	c->planes = malloc(sizeof(*c->planes));
	if (!c->planes)
		return ckb_err_nomem(err);
	ckc_planes_init(c->planes);
	return 0;
}

int ckc_codec_new(enum ckf_codec codec, int level, struct ckc_codec **out,
		  struct ckpt_err *err)
{
	struct ckc_codec *c;

	*out = NULL;
	CKB_REQUIRE(codec == CKF_CODEC_RAW || codec == CKF_CODEC_ZSTD ||
		    codec == CKF_CODEC_PLANES);
	/* zstd itself would take the nearest level and not tell */
	if (codec != CKF_CODEC_RAW &&
	    (level < ZSTD_minCLevel() || level > ZSTD_maxCLevel()))
		return ckb_err(err, CKPT_EINVAL, "zstd has no level %d: it "
			       "must be between %d and %d", level,
			       ZSTD_minCLevel(), ZSTD_maxCLevel());
	c = calloc(1, sizeof(*c));
	if (!c)
		return ckb_err_nomem(err);
	c->codec = codec;
	int rc = codec_init(c, level, err);

	if (rc < 0) {
		ckc_codec_free(c);
		return rc;
	}
	*out = c;
	return 0;
}

void ckc_codec_free(struct ckc_codec *c)
{
	if (!c)
		return;
	ZSTD_freeCCtx(c->zstd);
	free(c->planes);
	free(c);
}

uint16_t ckc_codec_kind(const struct ckc_codec *c)
{
	return (uint16_t)c->codec;
}

void ckc_codec_dtype(struct ckc_codec *c, enum ckpt_dtype dtype)
{
	c->plan = ckc_plan_of(dtype);
}

/* ---- cells ---- */

size_t ckc_zstd_encode(struct ckc_codec *c, const void *raw, size_t len,
		       void *dst, size_t room)
{
	size_t n = ZSTD_compress2(c->zstd, dst, room, raw, len);

	/* "too small a room" is how zstd says it did not shrink */
	return ZSTD_isError(n) ? 0 : n;
}

/* The same 8 bytes over and over? Ends at the first that differs. */
static bool is_constant(const uint8_t *raw, size_t len)
{
	return len >= 8 && memcmp(raw, raw + 8, len - 8) == 0;
}

/* Coding of the cell and its length in @dst; RAW: neither is used. */
static enum ckf_cell_coding encode(struct ckc_codec *c, const uint8_t *raw,
				   size_t len, uint8_t *dst, size_t *out_len)
{
	size_t room = c->codec == CKF_CODEC_PLANES ? len - len / WORTH : len;

	if (c->codec == CKF_CODEC_RAW || len < 2)
		return CKF_CELL_RAW;
	room = room < len ? room : len - 1;
	if (c->codec == CKF_CODEC_PLANES && is_constant(raw, len)) {
		*out_len = 0;
		return CKF_CELL_CONSTANT;
	}
	if (c->codec == CKF_CODEC_PLANES && ckc_plan_fits(&c->plan, len)) {
		*out_len = ckc_planes_encode(c, c->planes, &c->plan, raw, len,
					     dst, room);
		return *out_len > 0 ? CKF_CELL_PLANES : CKF_CELL_RAW;
	}
	*out_len = ckc_zstd_encode(c, raw, len, dst, room);
	return *out_len > 0 ? CKF_CELL_ZSTD : CKF_CELL_RAW;
}

int ckc_cell_encode(struct ckc_codec *c, const void *raw, size_t len,
		    void *dst, struct ckf_cell *cell, const void **out_data,
		    struct ckpt_err *err)
{
	size_t n = 0;

	(void)err;
	CKB_REQUIRE(len > 0 && len <= CKB_CELL_BYTES);
	cell->coding = encode(c, raw, len, dst, &n);
	if (cell->coding == CKF_CELL_CONSTANT) {
		*out_data = dst;
		cell->stored_len = 0;
		cell->xxh3 = ckb_get_u64(raw);
		return 0;
	}
	*out_data = cell->coding == CKF_CELL_RAW ? raw : dst;
	cell->stored_len = (uint32_t)(cell->coding == CKF_CELL_RAW ? len : n);
	cell->xxh3 = ckb_xxh3(*out_data, cell->stored_len);
	return 0;
}

/* ---- decoders ---- */

struct ckc_decoder {
	ZSTD_DCtx *zstd;
	uint8_t scratch[CKB_CELL_BYTES];
};

/* Acquire and release: what one thread left in it the next one finds. */
static _Atomic(struct ckc_decoder *) idle[IDLE_DECODERS];

static struct ckc_decoder *decoder_get(void)
{
	struct ckc_decoder *d;

	for (size_t i = 0; i < IDLE_DECODERS; i++) {
		if (!atomic_load_explicit(&idle[i], memory_order_relaxed))
			continue;
		d = atomic_exchange_explicit(&idle[i], NULL,
					     memory_order_acquire);
		if (d)
			return d;
	}
	d = malloc(sizeof(*d));
	if (d)
		d->zstd = ZSTD_createDCtx();
	if (d && !d->zstd) {
		free(d);
		return NULL;
	}
	return d;
}

static void decoder_put(struct ckc_decoder *d)
{
	for (size_t i = 0; i < IDLE_DECODERS; i++) {
		struct ckc_decoder *none = NULL;

		if (atomic_compare_exchange_strong_explicit(
			    &idle[i], &none, d, memory_order_release,
			    memory_order_relaxed))
			return;
	}
	ZSTD_freeDCtx(d->zstd);
	free(d);
}

uint8_t *ckc_decoder_scratch(struct ckc_decoder *d)
{
	return d->scratch;
}

int ckc_zstd_decode(struct ckc_decoder *d, const void *stored, size_t len,
		    void *dst, size_t raw_len, struct ckpt_err *err)
{
	/* one frame and nothing behind it */
	if (ZSTD_findFrameCompressedSize(stored, len) != len)
		return ckb_err(err, CKPT_ECORRUPT, "it is not one zstd frame");
	size_t n = ZSTD_decompressDCtx(d->zstd, dst, raw_len, stored, len);

	if (ZSTD_isError(n))
		return ckb_err(err, CKPT_ECORRUPT, "zstd cannot decode it: %s",
			       ZSTD_getErrorName(n));
	if (n != raw_len)
		return ckb_err(err, CKPT_ECORRUPT, "it decodes to %zu bytes, "
			       "not %zu", n, raw_len);
	return 0;
}

static int decode_constant(const struct ckf_cell *cell, uint8_t *dst,
			   size_t raw_len, struct ckpt_err *err)
{
	if (cell->stored_len != 0 || raw_len < 8)
		return ckb_err(err, CKPT_ECORRUPT, "a constant cell cannot "
			       "have %u stored bytes and %zu raw ones",
			       cell->stored_len, raw_len);
	ckb_put_u64(dst, cell->xxh3);
	for (size_t have = 8; have < raw_len; have *= 2)
		memcpy(dst + have, dst, ckb_min_u64(have, raw_len - have));
	return 0;
}

static int decode_raw(const struct ckf_cell *cell, const void *stored,
		      void *dst, size_t raw_len, struct ckpt_err *err)
{
	if (cell->stored_len != raw_len)
		return ckb_err(err, CKPT_ECORRUPT, "a raw cell has %u bytes, "
			       "not %zu", cell->stored_len, raw_len);
	if (dst != stored)
		memcpy(dst, stored, raw_len);
	return 0;
}

int ckc_cell_decode(const struct ckf_cell *cell, const void *stored, void *dst,
		    size_t raw_len, struct ckpt_err *err)
{
	CKB_REQUIRE(cell->stored_len <= CKB_CELL_BYTES &&
		    raw_len <= CKB_CELL_BYTES);
	/* its bytes came with the record's header, which was verified */
	if (cell->coding == CKF_CELL_CONSTANT)
		return decode_constant(cell, dst, raw_len, err);
	if (ckb_xxh3(stored, cell->stored_len) != cell->xxh3)
		return ckb_err(err, CKPT_ECORRUPT, "stored bytes do not match "
			       "their checksum");
	if (cell->coding == CKF_CELL_RAW)
		return decode_raw(cell, stored, dst, raw_len, err);
	struct ckc_decoder *d = decoder_get();

	if (!d)
		return ckb_err_nomem(err);
	int rc = cell->coding == CKF_CELL_ZSTD
		       ? ckc_zstd_decode(d, stored, cell->stored_len, dst,
					 raw_len, err)
		       : ckc_planes_decode(d, stored, cell->stored_len, dst,
					   raw_len, err);

	decoder_put(d);
	return rc;
}
