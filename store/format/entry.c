/* SPDX-License-Identifier: Apache-2.0 */
/*
 * entry.c - the BLOBs inside a manifest to bytes and back.
 *
 * FORMAT.md is the law. Decoders hold every length and reserved byte against
 * it; what depends on other rows (tiles, packs) is the reader's to check.
 * Pure; layouts own their arrays.
 */
#include "format/entry.h"

#include <stdlib.h>
#include <string.h>

#include "base/bytes.h"
#include "base/limits.h"
#include "format/record.h"

void ckf_chunk_entry_encode(const struct ckf_chunk_entry *e, uint8_t *out)
{
	memset(out, 0, CKF_CHUNK_ENTRY_BYTES);
	ckb_put_u64(out, e->tile);
	ckb_put_u32(out + 8, e->shard);
	ckb_put_u32(out + 12, e->pack);
	ckb_put_u64(out + 16, e->off);
	ckb_put_u64(out + 24, e->stored_len);
	ckb_put_u32(out + 32, e->raw_len);
	ckb_put_u32(out + 36, e->head_len);
	ckb_put_u16(out + 40, e->codec);
	memcpy(out + 48, e->digest, CKPT_DIGEST_BYTES);
}

int ckf_chunk_entry_decode(const uint8_t *in, struct ckf_chunk_entry *out,
			   struct ckpt_err *err)
{
	struct ckf_chunk_entry e = {
		.tile = ckb_get_u64(in), .shard = ckb_get_u32(in + 8),
		.pack = ckb_get_u32(in + 12), .off = ckb_get_u64(in + 16),
		.stored_len = ckb_get_u64(in + 24),
		.raw_len = ckb_get_u32(in + 32),
		.head_len = ckb_get_u32(in + 36),
		.codec = ckb_get_u16(in + 40),
	};

	memcpy(e.digest, in + 48, CKPT_DIGEST_BYTES);
	if (ckb_get_u16(in + 42) != 0 || ckb_get_u32(in + 44) != 0 ||
	    e.raw_len == 0 || e.raw_len > CKB_TILE_MAX_BYTES ||
	    !ckf_stored_len_ok(e.codec, e.stored_len, e.raw_len) ||
	    e.head_len < ckf_record_head_bytes(ckf_cell_count(e.raw_len)) ||
	    e.head_len > CKB_RECORD_HEAD_MAX || e.head_len % 8 != 0 ||
	    e.off < CKF_PACK_HEADER_BYTES || e.off > CKB_PACK_MAX_BYTES ||
	    e.off % 8 != 0)
		return ckb_err(err, CKPT_ECORRUPT, "a chunk entry's lengths "
			       "cannot be");
	*out = e;
	return 0;
}

void ckf_shape_encode(const struct ckpt_shape *shape, struct ckb_buf *out)
{
	for (uint32_t d = 0; d < shape->ndim; d++) {
		uint8_t b[8];

		ckb_put_u64(b, shape->dim[d]);
		ckb_buf_put(out, b, sizeof(b));
	}
	if (shape->ndim == 0)
		ckb_buf_put(out, "", 0); /* an empty BLOB, not NULL */
}

int ckf_shape_decode(const uint8_t *bytes, size_t len, struct ckpt_shape *out,
		     struct ckpt_err *err)
{
	if (len % 8 != 0 || len / 8 > CKPT_NDIM_MAX)
		return ckb_err(err, CKPT_ECORRUPT, "a shape of %zu bytes "
			       "cannot be", len);
	out->ndim = (uint32_t)(len / 8);
	for (uint32_t d = 0; d < out->ndim; d++)
		out->dim[d] = ckb_get_u64(bytes + 8 * (size_t)d);
	return 0;
}

/* ---- layouts: u32 version 1, ndim, world, shard count; each shard u32 rank,
 * replica, replica count, 0; origin and extent u64[ndim] ---- */

void ckf_layout_encode(const struct ckf_layout *layout, struct ckb_buf *out)
{
	uint8_t b[16];

	ckb_put_u32(b, 1);
	ckb_put_u32(b + 4, layout->ndim);
	ckb_put_u32(b + 8, layout->world);
	ckb_put_u32(b + 12, layout->shard_count);
	ckb_buf_put(out, b, sizeof(b));
	for (uint32_t i = 0; i < layout->shard_count; i++) {
		const struct ckf_shard *s = &layout->shards[i];

		ckb_put_u32(b, s->rank);
		ckb_put_u32(b + 4, s->replica);
		ckb_put_u32(b + 8, s->replica_count);
		ckb_put_u32(b + 12, 0);
		ckb_buf_put(out, b, sizeof(b));
		for (uint32_t d = 0; d < 2 * layout->ndim; d++) {
			ckb_put_u64(b, d < layout->ndim
					       ? s->origin[d]
					       : s->extent[d - layout->ndim]);
			ckb_buf_put(out, b, 8);
		}
	}
}

int ckf_layout_decode(const uint8_t *bytes, size_t len, struct ckf_layout *out,
		      struct ckpt_err *err)
{
	struct ckf_layout l = { 0 };

	if (len < 16 || ckb_get_u32(bytes) != 1)
		return ckb_err(err, CKPT_ECORRUPT, "a layout is malformed");
	l.ndim = ckb_get_u32(bytes + 4);
	l.world = ckb_get_u32(bytes + 8);
	l.shard_count = ckb_get_u32(bytes + 12);
	size_t each = 16 + 16 * (size_t)l.ndim;

	if (l.ndim > CKPT_NDIM_MAX || l.shard_count > CKB_SHARD_MAX ||
	    len - 16 != each * l.shard_count)
		return ckb_err(err, CKPT_ECORRUPT, "a layout of %u shards in "
			       "%zu bytes cannot be", l.shard_count, len);
	size_t dims = 2 * (size_t)l.ndim * l.shard_count;

	l.shards = calloc(l.shard_count + 1u, sizeof(*l.shards));
	l.dims = calloc(dims + 1, sizeof(*l.dims));
	if (!l.shards || !l.dims) {
		ckf_layout_fini(&l);
		return ckb_err_nomem(err);
	}
	const uint8_t *p = bytes + 16;
	uint64_t *to = l.dims;

	for (uint32_t i = 0; i < l.shard_count; i++) {
		struct ckf_shard *s = &l.shards[i];

		s->rank = ckb_get_u32(p);
		s->replica = ckb_get_u32(p + 4);
		s->replica_count = ckb_get_u32(p + 8);
		if (ckb_get_u32(p + 12) != 0 || s->rank >= l.world ||
		    s->replica_count == 0 || s->replica >= s->replica_count) {
			ckf_layout_fini(&l);
			return ckb_err(err, CKPT_ECORRUPT, "shard %u of a "
				       "layout cannot be", i);
		}
		s->origin = to;
		s->extent = to + l.ndim;
		for (uint32_t d = 0; d < 2 * l.ndim; d++)
			*to++ = ckb_get_u64(p + 16 + 8 * (size_t)d);
		p += each;
	}
	*out = l;
	return 0;
}

void ckf_layout_fini(struct ckf_layout *layout)
{
	free(layout->shards);
	free(layout->dims);
	memset(layout, 0, sizeof(*layout));
}

/* ---- statistics: u32 class, u32 0, u64 count, nan, inf, zero; min, max 8
 * bytes each by class; f64 absmax, sum ---- */

void ckf_stats_encode(const struct ckpt_stats *s,
		      uint8_t out[CKF_STATS_BYTES])
{
	uint64_t bits;

	memset(out, 0, CKF_STATS_BYTES);
	ckb_put_u32(out, (uint32_t)s->value_class);
	ckb_put_u64(out + 8, s->count);
	ckb_put_u64(out + 16, s->nan_count);
	ckb_put_u64(out + 24, s->inf_count);
	ckb_put_u64(out + 32, s->zero_count);
	memcpy(&bits, &s->min, 8);
	ckb_put_u64(out + 40, bits);
	memcpy(&bits, &s->max, 8);
	ckb_put_u64(out + 48, bits);
	memcpy(&bits, &s->absmax, 8);
	ckb_put_u64(out + 56, bits);
	memcpy(&bits, &s->sum, 8);
	ckb_put_u64(out + 64, bits);
}

/* NaN, Inf and zero elements are different ones of all. */
static bool counts_fit(const uint8_t *bytes)
{
	uint64_t sum = 0;

	for (int i = 16; i <= 32; i += 8)
		if (!ckb_add_u64(sum, ckb_get_u64(bytes + i), &sum))
			return false;
	return sum <= ckb_get_u64(bytes + 8);
}

int ckf_stats_decode(const uint8_t *bytes, size_t len, struct ckpt_stats *out,
		     struct ckpt_err *err)
{
	uint64_t bits;

	if (len != CKF_STATS_BYTES || ckb_get_u32(bytes + 4) != 0 ||
	    ckb_get_u32(bytes) > CKPT_VALUES_UNSIGNED || !counts_fit(bytes))
		return ckb_err(err, CKPT_ECORRUPT, "statistics of %zu bytes "
			       "are malformed", len);
	out->value_class = (enum ckpt_value_class)ckb_get_u32(bytes);
	out->count = ckb_get_u64(bytes + 8);
	out->nan_count = ckb_get_u64(bytes + 16);
	out->inf_count = ckb_get_u64(bytes + 24);
	out->zero_count = ckb_get_u64(bytes + 32);
	bits = ckb_get_u64(bytes + 40);
	memcpy(&out->min, &bits, 8);
	bits = ckb_get_u64(bytes + 48);
	memcpy(&out->max, &bits, 8);
	bits = ckb_get_u64(bytes + 56);
	memcpy(&out->absmax, &bits, 8);
	bits = ckb_get_u64(bytes + 64);
	memcpy(&out->sum, &bits, 8);
	return 0;
}

void ckf_root_preamble(enum ckpt_dtype dtype, const struct ckpt_shape *shape,
		       struct ckb_buf *out)
{
	uint8_t b[12];

	ckb_buf_put(out, "ckptfs-root-1", 13);
	ckb_put_u32(b, 1); /* tile rule */
	ckb_put_u32(b + 4, ckpt_dtype_bits(dtype));
	ckb_put_u32(b + 8, shape->ndim);
	ckb_buf_put(out, b, sizeof(b));
	ckf_shape_encode(shape, out);
}
