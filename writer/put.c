/* SPDX-License-Identifier: Apache-2.0 */
/*
 * put.c - chunks into packs: the store side of the pipeline.
 *
 * Each chunk is looked for (in what this save wrote, then in the index,
 * a hit proved by its record header) and written only when it is new. A pack
 * is sealed and published when it is full, and another begun. The last one
 * takes a copy of the manifest along, so that a lost manifest can be had back
 * from packs; the places of all chunks are known by then.
 *
 * Refuses nothing; a failed write or sync comes back as it is, and the pack is
 * never written to again (S5). One thread at a time: the store thread, then,
 * after it was joined, the capture thread.
 */
#include <stdlib.h>
#include <string.h>

#include "base/limits.h"
#include "chunk/digest.h"
#include "format/entry.h"
#include "pipeline.h"
#include "tensor/stats.h"

/* Seal, sync and move the pack at hand; a failure discards it. */
static int publish_pack(struct ckpt_save *s, struct ckpt_err *err)
{
	return cks_stage_publish(s->stage, CKB_TAKE(s->pack), err);
}

static bool pack_is_full(const struct ckpt_save *s)
{
	/* one record is kept for the copy of the manifest */
	return ckc_pack_bytes(s->pack) >= s->writer->opts.pack_bytes ||
	       ckc_pack_records(s->pack) >= CKB_PACK_ENTRY_MAX - 1;
}

static int ready_pack(struct ckpt_save *s, struct ckpt_err *err)
{
	int rc = s->pack && pack_is_full(s) ? publish_pack(s, err) : 0;

	if (rc == 0 && !s->pack)
		rc = cks_stage_pack(s->stage, &s->pack, err);
	return rc;
}

static void count(atomic_ullong *counter, uint64_t n)
{
	atomic_fetch_add_explicit(counter, n, memory_order_relaxed);
}

static int append(struct ckpt_save *s, const uint8_t digest[32],
		  const void *data, size_t len, struct ckq_place *out,
		  struct ckpt_err *err)
{
	struct ckc_place at;
	int rc = ready_pack(s, err);

	if (rc == 0)
		rc = ckc_pack_append(s->pack, CKF_RECORD_CHUNK, s->codec,
				     digest, data, len, &at, err);
	if (rc < 0)
		return rc;
	*out = (struct ckq_place){ .off = at.off, .stored_len = at.stored_len,
				   .head_len = at.head_len,
				   .raw_len = (uint32_t)at.raw_len,
				   .codec = at.codec };
	memcpy(out->pack, ckc_pack_writer_uuid(s->pack), sizeof(out->pack));
	count(&s->fresh, len);
	count(&s->fresh_chunks, 1);
	count(&s->written, at.head_len + at.stored_len);
	return cks_find_add(s->find, digest, out, err);
}

/* The manifest's number of @pack; a new one gets the next. */
static int pack_number(struct ckpt_save *s, const uint8_t pack[16],
		       uint32_t *out, struct ckpt_err *err)
{
	for (size_t i = s->pack_count; i-- > 0;)
		if (memcmp(s->packs[i], pack, CKPT_UUID_BYTES) == 0) {
			*out = (uint32_t)i;
			return 0;
		}
	if (!ckb_room(&s->packs, s->pack_count, &s->pack_cap,
		      sizeof(*s->packs)))
		return ckb_err_nomem(err);
	memcpy(s->packs[s->pack_count], pack, CKPT_UUID_BYTES);
	*out = (uint32_t)s->pack_count++;
	return 0;
}

int ckw_put_slot(struct ckpt_save *s, const struct ckw_slot *slot,
		 struct ckpt_err *err)
{
	struct ckf_chunk_entry e = { .tile = slot->tile,
				     .shard = slot->shard };
	uint8_t encoded[CKF_CHUNK_ENTRY_BYTES];
	struct ckq_place place;
	int rc = 0;

	memcpy(e.digest, slot->digest, sizeof(e.digest));
	if (!cks_find_chunk(s->find, e.digest, (uint32_t)slot->len, &place))
		rc = append(s, e.digest, slot->data, slot->len, &place, err);
	if (rc == 0)
		rc = pack_number(s, place.pack, &e.pack, err);
	if (rc < 0)
		return rc;
	e.off = place.off;
	e.stored_len = place.stored_len;
	e.raw_len = place.raw_len;
	e.head_len = place.head_len;
	e.codec = place.codec;
	ckf_chunk_entry_encode(&e, encoded);
	ckb_buf_put(&slot->tensor->chunks, encoded, sizeof(encoded));
	ckt_stats_merge(&slot->tensor->stats, &slot->stats);
	count(&s->chunks, 1);
	return slot->tensor->chunks.failed ? ckb_err_nomem(err) : 0;
}

static int put_copy(struct ckpt_save *s, const struct ckb_buf *manifest,
		    struct ckpt_err *err)
{
	uint8_t digest[CKPT_DIGEST_BYTES];
	struct ckc_codec *zstd = NULL;
	struct ckc_place place;
	int rc = ckc_codec_new(CKF_CODEC_ZSTD, 1, &zstd, err);

	if (rc < 0)
		return rc;
	ckc_sha256(manifest->data, manifest->len, digest);
	rc = ckc_pack_append(s->pack, CKF_RECORD_MANIFEST, zstd, digest,
			     manifest->data, manifest->len, &place, err);
	ckc_codec_free(zstd);
	if (rc == 0)
		count(&s->written, place.head_len + place.stored_len);
	return rc;
}

int ckw_put_end(struct ckpt_save *s, const struct ckb_buf *manifest,
		struct ckpt_err *err)
{
	if (!s->pack) /* all was there already */
		return 0;
	int rc = put_copy(s, manifest, err);

	return rc == 0 ? publish_pack(s, err) : rc;
}
