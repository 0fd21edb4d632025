/* SPDX-License-Identifier: Apache-2.0 */
/*
 * record.c - pack headers, record headers and trailers to bytes and back.
 *
 * FORMAT.md is the law; the offsets below are its tables. Decoders take any
 * bytes: the checksum comes first, then every reserved byte, length and count
 * is held against the rules, so what they hand out can be trusted (S6, S10).
 * Pure; no allocation.
 */
#include "format/record.h"

#include <inttypes.h>
#include <string.h>

#include "base/bytes.h"
#include "base/hash.h"

static const uint8_t pack_magic[8] = "ckptPACK";
static const uint8_t record_magic[8] = "ckptREC1";
static const uint8_t footer_magic[8] = "ckptFOOT";

static bool all_zero(const uint8_t *p, size_t len)
{
	for (size_t i = 0; i < len; i++)
		if (p[i] != 0)
			return false;
	return true;
}

/* The last 8 of @len bytes are XXH3-64 of those before. */
static bool sum_ok(const uint8_t *p, size_t len)
{
	return ckb_get_u64(p + len - 8) == ckb_xxh3(p, len - 8);
}

static void sum_put(uint8_t *p, size_t len)
{
	ckb_put_u64(p + len - 8, ckb_xxh3(p, len - 8));
}

/* ---- pack header: 0 magic, 8 compat, 12 incompat, 16 uuid, 32 store uuid,
 * 48 reserved, 56 checksum ---- */

void ckf_pack_header_encode(const struct ckf_pack_header *h,
			    uint8_t out[CKF_PACK_HEADER_BYTES])
{
	memset(out, 0, CKF_PACK_HEADER_BYTES);
	memcpy(out, pack_magic, 8);
	ckb_put_u32(out + 8, h->compat);
	ckb_put_u32(out + 12, h->incompat);
	memcpy(out + 16, h->uuid, CKPT_UUID_BYTES);
	memcpy(out + 32, h->store_uuid, CKPT_UUID_BYTES);
	sum_put(out, CKF_PACK_HEADER_BYTES);
}

int ckf_pack_header_decode(const uint8_t *bytes, size_t len,
			   struct ckf_pack_header *out, struct ckpt_err *err)
{
	if (len < CKF_PACK_HEADER_BYTES)
		return ckb_err(err, CKPT_ECORRUPT, "the pack header is cut "
			       "short at %zu bytes", len);
	if (memcmp(bytes, pack_magic, 8) != 0)
		return ckb_err(err, CKPT_ECORRUPT, "this is no pack: its first "
			       "bytes are wrong");
	if (!sum_ok(bytes, CKF_PACK_HEADER_BYTES))
		return ckb_err(err, CKPT_ECORRUPT, "the pack header does not "
			       "match its checksum");
	if (!all_zero(bytes + 48, 8))
		return ckb_err(err, CKPT_ECORRUPT, "reserved bytes of the pack "
			       "header are not zero");
	out->compat = ckb_get_u32(bytes + 8);
	out->incompat = ckb_get_u32(bytes + 12);
	memcpy(out->uuid, bytes + 16, CKPT_UUID_BYTES);
	memcpy(out->store_uuid, bytes + 32, CKPT_UUID_BYTES);
	if (out->incompat != 0)
		return ckb_err(err, CKPT_EVERSION, "the pack uses features "
			       "(0x%x) of a newer ckptfs", out->incompat);
	return 0;
}

/* ---- record header ---- */

uint32_t ckf_record_head_bytes(uint32_t cell_count)
{
	return CKF_RECORD_FIXED_BYTES + cell_count * CKF_CELL_ENTRY_BYTES + 8;
}

uint32_t ckf_cell_count(uint64_t raw_len)
{
	return (uint32_t)ckb_div_up(raw_len, CKB_CELL_BYTES);
}

uint32_t ckf_cell_raw_len(uint64_t raw_len, uint32_t index)
{
	return (uint32_t)ckb_min_u64(CKB_CELL_BYTES,
				     raw_len - (uint64_t)index *
				     CKB_CELL_BYTES);
}

bool ckf_stored_len_ok(uint16_t codec, uint64_t stored_len, uint64_t raw_len)
{
	return stored_len <= raw_len &&
	       (stored_len > 0 || codec >= CKF_CODEC_PLANES);
}

void ckf_record_encode(const struct ckf_record *r, uint8_t *out)
{
	uint32_t len = ckf_record_head_bytes(r->cell_count);

	memcpy(out, record_magic, 8);
	ckb_put_u32(out + 8, len);
	ckb_put_u16(out + 12, r->kind);
	ckb_put_u16(out + 14, r->codec);
	ckb_put_u32(out + 16, r->compat);
	ckb_put_u32(out + 20, r->incompat);
	ckb_put_u16(out + 24, CKF_DIGEST_SHA256);
	ckb_put_u16(out + 26, CKPT_DIGEST_BYTES);
	ckb_put_u32(out + 28, r->cell_count);
	ckb_put_u64(out + 32, r->raw_len);
	ckb_put_u64(out + 40, r->stored_len);
	memcpy(out + 48, r->digest, CKPT_DIGEST_BYTES);
	for (uint32_t i = 0; i < r->cell_count; i++) {
		uint8_t *c = out + CKF_RECORD_FIXED_BYTES +
			     (size_t)i * CKF_CELL_ENTRY_BYTES;

		ckb_put_u32(c, r->cells[i].stored_len);
		ckb_put_u32(c + 4, r->cells[i].coding);
		ckb_put_u64(c + 8, r->cells[i].xxh3);
	}
	sum_put(out, len);
}

int ckf_record_peek(const uint8_t *bytes, size_t len, uint32_t *out_head_len,
		    struct ckpt_err *err)
{
	if (len < 16)
		return ckb_err(err, CKPT_ECORRUPT, "the record header is cut "
			       "short at %zu bytes", len);
	if (memcmp(bytes, record_magic, 8) != 0)
		return ckb_err(err, CKPT_ECORRUPT, "no record begins here");
	uint32_t head = ckb_get_u32(bytes + 8);

	if (head < ckf_record_head_bytes(0) || head > CKB_RECORD_HEAD_MAX ||
	    head % 8 != 0)
		return ckb_err(err, CKPT_ECORRUPT, "a record header of %u "
			       "bytes cannot be", head);
	*out_head_len = head;
	return 0;
}

/* Can cell @c of a record of that codec, of @raw bytes, be? */
static bool cell_ok(const struct ckf_cell *c, uint16_t codec, uint32_t raw)
{
	switch (c->coding) {
	case CKF_CELL_RAW:
		return c->stored_len == raw;
	case CKF_CELL_ZSTD:
		return codec != CKF_CODEC_RAW && c->stored_len > 0 &&
		       c->stored_len < raw;
	case CKF_CELL_PLANES:
		return codec == CKF_CODEC_PLANES && c->stored_len > 0 &&
		       c->stored_len < raw;
	default:
		return codec == CKF_CODEC_PLANES && c->stored_len == 0 &&
		       raw >= 8;
	}
}

static int cells_decode(const uint8_t *bytes, struct ckf_record *r,
			struct ckpt_err *err)
{
	uint64_t sum = 0;

	for (uint32_t i = 0; i < r->cell_count; i++) {
		const uint8_t *p = bytes + (size_t)i * CKF_CELL_ENTRY_BYTES;
		struct ckf_cell *c = &r->cells[i];
		uint32_t raw = ckf_cell_raw_len(r->raw_len, i);

		c->stored_len = ckb_get_u32(p);
		c->coding = ckb_get_u32(p + 4);
		c->xxh3 = ckb_get_u64(p + 8);
		sum += c->stored_len;
		if (c->coding > CKF_CELL_CONSTANT)
			return ckb_err(err, CKPT_EVERSION, "cell %u is coded "
				       "in a way (%u) this ckptfs does not "
				       "know", i, c->coding);
		if (!cell_ok(c, r->codec, raw))
			return ckb_err(err, CKPT_ECORRUPT, "cell %u of the "
				       "record cannot have %u stored bytes, "
				       "coding %u", i, c->stored_len,
				       c->coding);
	}
	if (sum != r->stored_len)
		return ckb_err(err, CKPT_ECORRUPT, "the cells add up to %"
			       PRIu64 " stored bytes, the record says %" PRIu64,
			       sum, r->stored_len);
	return 0;
}

/* TLVs: u16 type, u16 length, that many bytes, padded with zeros to 8. Types
 * this build does not know are skipped. */
static int tlvs_check(const uint8_t *p, size_t len, struct ckpt_err *err)
{
	while (len > 0) {
		size_t body = len >= 4 ? ckb_get_u16(p + 2) : 0;
		size_t all = (4 + body + 7) / 8 * 8;

		if (len < 8 || all > len ||
		    !all_zero(p + 4 + body, all - 4 - body))
			return ckb_err(err, CKPT_ECORRUPT, "the record's extra "
				       "fields are malformed");
		p += all;
		len -= all;
	}
	return 0;
}

int ckf_record_decode(const uint8_t *bytes, size_t len,
		      struct ckf_cell *cells, uint32_t cell_max,
		      struct ckf_record *out, struct ckpt_err *err)
{
	uint32_t head;
	int rc = ckf_record_peek(bytes, len, &head, err);

	if (rc < 0)
		return rc;
	if (head != len)
		return ckb_err(err, CKPT_ECORRUPT, "the record header has %u "
			       "bytes where %zu are expected", head, len);
	if (!sum_ok(bytes, len))
		return ckb_err(err, CKPT_ECORRUPT, "the record header does not "
			       "match its checksum");
	struct ckf_record r = {
		.kind = ckb_get_u16(bytes + 12),
		.codec = ckb_get_u16(bytes + 14),
		.compat = ckb_get_u32(bytes + 16),
		.incompat = ckb_get_u32(bytes + 20),
		.cell_count = ckb_get_u32(bytes + 28),
		.raw_len = ckb_get_u64(bytes + 32),
		.stored_len = ckb_get_u64(bytes + 40),
		.cells = cells,
	};

	memcpy(r.digest, bytes + 48, CKPT_DIGEST_BYTES);
	if (r.incompat != 0 || r.codec > CKF_CODEC_PLANES ||
	    ckb_get_u16(bytes + 24) != CKF_DIGEST_SHA256)
		return ckb_err(err, CKPT_EVERSION, "the record was written by "
			       "a newer ckptfs (features 0x%x, codec %u)",
			       r.incompat, r.codec);
	if (ckb_get_u16(bytes + 26) != CKPT_DIGEST_BYTES ||
	    (r.kind != CKF_RECORD_CHUNK && r.kind != CKF_RECORD_MANIFEST) ||
	    r.raw_len == 0 ||
	    r.raw_len > (r.kind == CKF_RECORD_CHUNK ? CKB_TILE_MAX_BYTES
						    : CKB_RECORD_RAW_MAX) ||
	    r.cell_count != ckf_cell_count(r.raw_len) ||
	    r.cell_count > cell_max ||
	    ckf_record_head_bytes(r.cell_count) > len)
		return ckb_err(err, CKPT_ECORRUPT, "the record header's "
			       "lengths cannot be (kind %u, %" PRIu64
			       " raw bytes, %u cells)", r.kind, r.raw_len,
			       r.cell_count);
	rc = cells_decode(bytes + CKF_RECORD_FIXED_BYTES, &r, err);
	if (rc == 0) {
		size_t at = CKF_RECORD_FIXED_BYTES +
			    (size_t)r.cell_count * CKF_CELL_ENTRY_BYTES;

		rc = tlvs_check(bytes + at, len - 8 - at, err);
	}
	if (rc == 0)
		*out = r;
	return rc;
}

uint64_t ckf_record_place(uint64_t end, uint32_t head_len, uint64_t stored_len)
{
	uint64_t align = stored_len >= CKB_PAYLOAD_ALIGN_FROM
				 ? CKB_PAYLOAD_ALIGN : 8;

	return ckb_div_up(end + head_len, align) * align - head_len;
}

/* ---- trailer ---- */

void ckf_trailer_entry_encode(const struct ckf_trailer_entry *e, uint8_t *out)
{
	memcpy(out, e->digest, CKPT_DIGEST_BYTES);
	ckb_put_u64(out + 32, e->off);
	ckb_put_u32(out + 40, e->head_len);
	ckb_put_u16(out + 44, e->kind);
	ckb_put_u16(out + 46, e->codec);
	ckb_put_u64(out + 48, e->stored_len);
	ckb_put_u64(out + 56, e->raw_len);
}

void ckf_trailer_entry_decode(const uint8_t *in, struct ckf_trailer_entry *out)
{
	memcpy(out->digest, in, CKPT_DIGEST_BYTES);
	out->off = ckb_get_u64(in + 32);
	out->head_len = ckb_get_u32(in + 40);
	out->kind = ckb_get_u16(in + 44);
	out->codec = ckb_get_u16(in + 46);
	out->stored_len = ckb_get_u64(in + 48);
	out->raw_len = ckb_get_u64(in + 56);
}

/* 0 magic, 8 entry count, 16 table offset, 24 table checksum, 32 uuid,
 * 48 reserved, 56 checksum */
void ckf_footer_encode(const struct ckf_footer *f, uint8_t *out)
{
	memset(out, 0, CKF_FOOTER_BYTES);
	memcpy(out, footer_magic, 8);
	ckb_put_u64(out + 8, f->entry_count);
	ckb_put_u64(out + 16, f->table_off);
	ckb_put_u64(out + 24, f->table_xxh3);
	memcpy(out + 32, f->uuid, CKPT_UUID_BYTES);
	sum_put(out, CKF_FOOTER_BYTES);
}

int ckf_footer_decode(const uint8_t *bytes, uint64_t pack_bytes,
		      struct ckf_footer *out, struct ckpt_err *err)
{
	struct ckf_footer f;

	if (memcmp(bytes, footer_magic, 8) != 0)
		return ckb_err(err, CKPT_ECORRUPT, "the pack has no footer at "
			       "its end: it is truncated or was never sealed");
	if (!sum_ok(bytes, CKF_FOOTER_BYTES))
		return ckb_err(err, CKPT_ECORRUPT, "the pack's footer does not "
			       "match its checksum");
	f.entry_count = ckb_get_u64(bytes + 8);
	f.table_off = ckb_get_u64(bytes + 16);
	f.table_xxh3 = ckb_get_u64(bytes + 24);
	memcpy(f.uuid, bytes + 32, CKPT_UUID_BYTES);
	if (!all_zero(bytes + 48, 8) || f.entry_count > CKB_PACK_ENTRY_MAX ||
	    f.table_off % 8 != 0 || f.table_off < CKF_PACK_HEADER_BYTES ||
	    f.table_off > pack_bytes ||
	    pack_bytes - f.table_off !=
		    f.entry_count * CKF_TRAILER_ENTRY_BYTES + CKF_FOOTER_BYTES)
		return ckb_err(err, CKPT_ECORRUPT, "the pack's footer does not "
			       "fit its %" PRIu64 " bytes", pack_bytes);
	*out = f;
	return 0;
}
