/* SPDX-License-Identifier: Apache-2.0 */
/*
 * chunk/pack.h - packs: append records, seal; read headers and cells.
 *
 * Any thread may put records to a writer while others do; the rest of a writer
 * belongs to one thread at a time. A reader may serve many.
 */
#ifndef CKC_PACK_H
#define CKC_PACK_H

#include "base/sys.h"
#include "chunk/codec.h"

/* Where a record lies. */
struct ckc_place {
	uint64_t off;        /* of its header */
	uint32_t head_len;
	uint16_t codec;
	uint64_t stored_len, raw_len;
};

/* ---- writing ---- */
struct ckc_pack_writer;

/* Create @path under @dirfd (must not exist) for its header. @direct: write
 * past the page cache, where the file system can. */
CKB_MUST int ckc_pack_create(const struct ckb_sys *sys, int dirfd,
			     const char *path, const uint8_t uuid[16],
			     const uint8_t store_uuid[16], bool direct,
			     struct ckc_pack_writer **out,
			     struct ckpt_err *err);

/* Code @len bytes at @raw whose SHA-256 is @digest into @to (@len bytes; may be
 * @raw itself) by way of @cell (CKB_CELL_BYTES; both NULL with a raw codec).
 * Fills *@r, whose cells have room, but
 * for its kind. *@out_data: the payload, @to or @raw. */
CKB_MUST int ckc_record_code(struct ckc_codec *codec, const uint8_t digest[32],
			     const void *raw, size_t len, uint8_t *to,
			     uint8_t *cell, struct ckf_record *r,
			     const uint8_t **out_data, struct ckpt_err *err);

/* A coded record, and where it came to lie. */
struct ckc_put {
	struct ckf_record *record;
	const uint8_t *data;          /* its payload */
	struct ckc_place place;       /* out */
};

/* Write @count records, one after another. Any thread, many at once. @head:
 * CKC_HEAD_BYTES of the caller's, aligned to CKB_PAYLOAD_ALIGN; those that are
 * large and aligned likewise are then written from where they lie, in one call,
 * behind the others. NULL: all is copied. After any failure the pack is
 * poisoned (S5): every later call, and the seal, fails the same way. */
#define CKC_PUT_MAX 16u
/* of each: a block that was begun, a gap and a header */
#define CKC_HEAD_BYTES ((3 * CKC_PUT_MAX + 1) * CKB_PAYLOAD_ALIGN)
CKB_MUST int ckc_pack_put(struct ckc_pack_writer *w, enum ckf_record_kind kind,
			  struct ckc_put *puts, uint32_t count, uint8_t *head,
			  struct ckpt_err *err);

/* Code and put one record of @len raw bytes. One thread at a time. */
CKB_MUST int ckc_pack_append(struct ckc_pack_writer *w,
			     enum ckf_record_kind kind, struct ckc_codec *codec,
			     const uint8_t digest[32], const void *raw,
			     size_t len, struct ckc_place *out,
			     struct ckpt_err *err);

const uint8_t *ckc_pack_writer_uuid(const struct ckc_pack_writer *w);

/* Write the trailer, fsync the file. After it the bytes never change (S1).
 * The folder is the caller's to sync. A failed fsync poisons, is not retried
 * (S5). */
CKB_MUST int ckc_pack_seal(struct ckc_pack_writer *w, struct ckpt_err *err);

/* Close; discards nothing on disk, makes nothing durable, never fails. */
void ckc_pack_writer_close(struct ckc_pack_writer *w);

/* ---- reading ---- */
struct ckc_pack;

/* Open a sealed pack: its header must carry @uuid (NULL: any). */
CKB_MUST int ckc_pack_open(const struct ckb_sys *sys, int dirfd,
			   const char *path, const uint8_t uuid[16],
			   struct ckc_pack **out, struct ckpt_err *err);
void ckc_pack_close(struct ckc_pack *p);
uint64_t ckc_pack_file_bytes(const struct ckc_pack *p);
const uint8_t *ckc_pack_uuid(const struct ckc_pack *p);
const char *ckc_pack_path(const struct ckc_pack *p); /* as given to open */

/* Raw bytes of the file; past its end is CKPT_ECORRUPT. Not verified. */
CKB_MUST int ckc_pack_read(struct ckc_pack *p, uint64_t off, void *dst,
			   size_t len, struct ckpt_err *err);

/* Read and verify the record header at @off of @head_len bytes. @cells has
 * room for @cell_max. */
CKB_MUST int ckc_pack_head(struct ckc_pack *p, uint64_t off, uint32_t head_len,
			   struct ckf_cell *cells, uint32_t cell_max,
			   struct ckf_record *out, struct ckpt_err *err);

/* Read, verify and decode cell @index of that record into @dst
 * (ckf_cell_raw_len() bytes). @scratch: CKB_CELL_BYTES. */
CKB_MUST int ckc_pack_cell(struct ckc_pack *p, uint64_t off, uint32_t head_len,
			   const struct ckf_record *rec, uint32_t index,
			   void *dst, void *scratch, struct ckpt_err *err);

/* Every entry of the trailer, in the order of its table (by digest), verified
 * as a whole before the first call. @fn non-zero stops and is returned. */
typedef int (*ckc_entry_fn)(void *ctx, const struct ckf_trailer_entry *e);
CKB_MUST int ckc_pack_trailer(struct ckc_pack *p, ckc_entry_fn fn, void *ctx,
			      struct ckpt_err *err);

/* Every record found by a forward scan that resynchronises on the magic: for
 * a pack whose trailer is damaged or missing. */
CKB_MUST int ckc_pack_scan(struct ckc_pack *p, ckc_entry_fn fn, void *ctx,
			   struct ckpt_err *err);

#endif
