/* SPDX-License-Identifier: Apache-2.0 */
/*
 * format/record.h - what a pack is made of. FORMAT.md is the law; this file
 * encodes and decodes it: pure, bounded, no I/O. Decoders take any bytes and
 * answer CKPT_ECORRUPT or CKPT_EVERSION with a sentence.
 */
#ifndef CKF_RECORD_H
#define CKF_RECORD_H

#include "base/buf.h"
#include "base/err.h"
#include "base/limits.h"

#include <ckpt/store.h>

/* ---- pack header: the first CKF_PACK_HEADER_BYTES of a pack ---- */
#define CKF_PACK_HEADER_BYTES 64u
struct ckf_pack_header {
	uint32_t compat, incompat;
	uint8_t uuid[CKPT_UUID_BYTES];
	uint8_t store_uuid[CKPT_UUID_BYTES];
};
void ckf_pack_header_encode(const struct ckf_pack_header *h,
			    uint8_t out[CKF_PACK_HEADER_BYTES]);
CKB_MUST int ckf_pack_header_decode(const uint8_t *bytes, size_t len,
				    struct ckf_pack_header *out,
				    struct ckpt_err *err);

/* ---- record header ---- */
enum ckf_record_kind { CKF_RECORD_CHUNK = 1, CKF_RECORD_MANIFEST = 2 };
enum ckf_codec {
	CKF_CODEC_RAW = 0,
	CKF_CODEC_ZSTD = 1,
	CKF_CODEC_PLANES = 2,
};
enum ckf_cell_coding {
	CKF_CELL_RAW = 0,
	CKF_CELL_ZSTD = 1,
	CKF_CELL_PLANES = 2,   /* as chunk/planes.c says */
	CKF_CELL_CONSTANT = 3, /* nothing stored: xxh3 is what repeats */
};
#define CKF_DIGEST_SHA256 1u

struct ckf_cell {
	uint32_t stored_len; /* <= its raw length */
	uint32_t coding;     /* enum ckf_cell_coding */
	uint64_t xxh3;       /* of the stored bytes; of a constant cell the 8
				bytes that repeat, the first one lowest */
};

struct ckf_record {
	uint16_t kind;
	uint16_t codec;      /* RAW: every cell is raw. ZSTD: or zstd */
	uint32_t compat, incompat;
	uint64_t raw_len;
	uint64_t stored_len; /* sum over cells */
	uint8_t digest[CKPT_DIGEST_BYTES]; /* SHA-256 of the raw bytes */
	uint32_t cell_count; /* ceil(raw_len / CKB_CELL_BYTES) */
	struct ckf_cell *cells; /* caller's storage */
};

#define CKF_RECORD_FIXED_BYTES 80u
#define CKF_CELL_ENTRY_BYTES 16u
/* Whole header of a record with @cell_count cells and no TLVs. */
uint32_t ckf_record_head_bytes(uint32_t cell_count);
uint32_t ckf_cell_count(uint64_t raw_len);
/* Raw bytes of cell @index. */
uint32_t ckf_cell_raw_len(uint64_t raw_len, uint32_t index);

/* Can a record of that codec store @stored_len bytes for @raw_len? Nothing at
 * all only where cells may be constant; of a codec this build does not know
 * it says no more than that. */
bool ckf_stored_len_ok(uint16_t codec, uint64_t stored_len, uint64_t raw_len);

/* @out: ckf_record_head_bytes(r->cell_count) bytes. */
void ckf_record_encode(const struct ckf_record *r, uint8_t *out);

/* Header length of the record that begins with these 16 bytes. */
CKB_MUST int ckf_record_peek(const uint8_t *bytes, size_t len,
			     uint32_t *out_head_len, struct ckpt_err *err);

/* Decode and verify a whole header of @len bytes. @cells has room for
 * @cell_max; more cells are CKPT_ECORRUPT. out->cells = @cells. */
CKB_MUST int ckf_record_decode(const uint8_t *bytes, size_t len,
			       struct ckf_cell *cells, uint32_t cell_max,
			       struct ckf_record *out, struct ckpt_err *err);

/* Where the header of the next record goes when the pack ends at @end: its
 * payload starts on CKB_PAYLOAD_ALIGN if large, else the header is 8-aligned.
 * Bytes between are zero. */
uint64_t ckf_record_place(uint64_t end, uint32_t head_len, uint64_t stored_len);

/* ---- trailer: table of entries, then a footer; ends a sealed pack ---- */
#define CKF_TRAILER_ENTRY_BYTES 64u
#define CKF_FOOTER_BYTES 64u
struct ckf_trailer_entry {
	uint8_t digest[CKPT_DIGEST_BYTES];
	uint64_t off;        /* of the record header */
	uint32_t head_len;
	uint16_t kind, codec;
	uint64_t stored_len, raw_len;
};
struct ckf_footer {
	uint64_t entry_count;
	uint64_t table_off;  /* 8-aligned; the table ends where the footer is */
	uint64_t table_xxh3;
	uint8_t uuid[CKPT_UUID_BYTES];
};
void ckf_trailer_entry_encode(const struct ckf_trailer_entry *e, uint8_t *out);
void ckf_trailer_entry_decode(const uint8_t *in, struct ckf_trailer_entry *out);
void ckf_footer_encode(const struct ckf_footer *f, uint8_t *out);
/* @pack_bytes: size of the file; every length is checked against it. */
CKB_MUST int ckf_footer_decode(const uint8_t *bytes, uint64_t pack_bytes,
			       struct ckf_footer *out, struct ckpt_err *err);

#endif
