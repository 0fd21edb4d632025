/* SPDX-License-Identifier: Apache-2.0 */
/*
 * put.c - chunks into packs: the second half of a chunk's way.
 *
 * What is it (look.c); known already (in this save, or in the index, a hit
 * proved by its record header)? else coded, in place, and written. Many threads
 * put chunks into one pack. A pack that is full gets no more; the last thread
 * that writes to it seals and publishes it. The save's last pack takes a copy
 * of the manifest along, so that a lost manifest can be had back from packs;
 * the places of all chunks are known by then.
 *
 * Refuses nothing; a failed write or sync comes back as it is, and the pack is
 * never written to again (S5).
 *
 * Locks: pack_lock for which pack is open and who writes to it; publish_lock
 * around the publication of one.
 */
#include <stdlib.h>
#include <string.h>

#include "base/limits.h"
#include "chunk/digest.h"
#include "format/entry.h"
#include "pipeline.h"

struct ckw_pack {
	struct ckc_pack_writer *w;
	uint32_t users;
	uint64_t bytes, records; /* given a place, or about to be */
	bool full;
};

static void count_up(atomic_ullong *counter, uint64_t n)
{
	atomic_fetch_add_explicit(counter, n, memory_order_relaxed);
}

/* ---- packs ---- */

/* Seal, sync and move @p; a failure discards it. @k: NULL, or the worker that
 * waits for the disk meanwhile. */
static int publish_pack(struct ckpt_save *s, struct ckw_worker *k,
			struct ckw_pack *p, struct ckpt_err *err)
{
	if (k)
		ckw_pool_writing(k, true, 0);
	pthread_mutex_lock(&s->publish_lock);
	int rc = cks_stage_publish(s->stage, p->w, err);

	pthread_mutex_unlock(&s->publish_lock);
	if (k)
		ckw_pool_writing(k, false, 0);
	free(p);
	return rc;
}

void ckw_put_discard(struct ckpt_save *s)
{
	struct ckw_pack *p = CKB_TAKE(s->pack);

	if (p)
		ckc_pack_writer_close(p->w);
	free(p);
}

static bool is_full(const struct ckpt_save *s, const struct ckw_pack *p)
{
	/* room is kept for what one call writes, and the manifest's copy */
	return p->bytes >= s->writer->opts.pack_bytes ||
	       p->records >= CKB_PACK_ENTRY_MAX - CKC_PUT_MAX - 1;
}

static int new_pack(struct ckpt_save *s, struct ckpt_err *err)
{
	struct ckw_pack *p = calloc(1, sizeof(*p));
	uint32_t number;
	int rc = p ? cks_stage_pack(s->stage, ckw_direct(s), &p->w, err)
		   : ckb_err_nomem(err);

	/* numbered as they are begun: the copy is in the last */
	if (rc == 0)
		rc = ckw_pack_number(s, ckc_pack_writer_uuid(p->w), &number,
				     err);
	if (rc == 0) {
		s->pack = p;
		return 0;
	}
	if (p)
		ckc_pack_writer_close(p->w);
	free(p);
	return rc;
}

/* For @records of @bytes. */
static int pack_get(struct ckpt_save *s, struct ckw_worker *k, uint64_t bytes,
		    uint32_t records, struct ckw_pack **out,
		    struct ckpt_err *err)
{
	struct ckw_pack *full = NULL;
	int rc = 0;

	*out = NULL;
	pthread_mutex_lock(&s->pack_lock);
	if (s->pack && is_full(s, s->pack)) {
		s->pack->full = true;
		if (s->pack->users == 0)
			full = s->pack;
		s->pack = NULL;
	}
	if (!s->pack)
		rc = new_pack(s, err);
	if (rc == 0) {
		s->pack->users++;
		s->pack->bytes += bytes;
		s->pack->records += records;
		*out = s->pack;
	}
	pthread_mutex_unlock(&s->pack_lock);
	if (full) {
		int published = publish_pack(s, k, full, rc == 0 ? err : NULL);

		rc = rc < 0 ? rc : published;
	}
	return rc;
}

static int pack_put(struct ckpt_save *s, struct ckw_worker *k,
		    struct ckw_pack *p, struct ckpt_err *err)
{
	pthread_mutex_lock(&s->pack_lock);
	bool last = --p->users == 0 && p->full;

	pthread_mutex_unlock(&s->pack_lock);
	return last ? publish_pack(s, k, p, err) : 0;
}

/* ---- a chunk ---- */

static struct ckc_codec *codec_for(struct ckw_worker *k,
				   const struct ckpt_save *s)
{
	if (!k->codec)
		return k->raw;
	/* raw while the disk keeps up; coded while others wait for it */
	if (s->writer->opts.codec == CKPT_CODEC_AUTO &&
	    !ckw_pool_disk_behind(k))
		return k->raw;
	return k->codec;
}

/* What one call writes: records of chunks that nobody has. */
struct batch {
	struct ckc_put puts[CKC_PUT_MAX];
	struct ckf_record records[CKC_PUT_MAX];
	struct ckf_cell cells[CKC_PUT_MAX][CKB_CHUNK_CELL_MAX];
	const struct ckw_todo *todo[CKC_PUT_MAX];
	uint32_t count;
};

static int code_batch(struct ckw_worker *k, const struct ckpt_save *s,
		      struct batch *b, struct ckpt_err *err)
{
	struct ckc_codec *codec = codec_for(k, s);
	bool raw = codec == k->raw;

	for (uint32_t i = 0; i < b->count; i++) {
		const struct ckw_todo *d = b->todo[i];

		b->records[i] = (struct ckf_record){ .cells = b->cells[i] };
		b->puts[i].record = &b->records[i];
		ckc_codec_dtype(codec, d->tensor->dtype);
		int rc = ckc_record_code(codec, d->chunk->digest, d->data,
					 d->chunk->raw_len,
					 raw ? NULL : d->data,
					 raw ? NULL : k->cell, &b->records[i],
					 &b->puts[i].data, err);

		if (rc < 0)
			return rc;
	}
	return 0;
}

static int write_batch(struct ckw_worker *k, struct ckpt_save *s,
		       struct ckw_pack *pack, struct batch *b,
		       uint64_t bytes, struct ckpt_err *err)
{
	ckw_pool_writing(k, true, bytes);
	int rc = ckc_pack_put(pack->w, CKF_RECORD_CHUNK, b->puts, b->count,
			  k->head, err);
	ckw_pool_writing(k, false, bytes);
	for (uint32_t i = 0; i < b->count && rc == 0; i++) {
		const struct ckc_place *at = &b->puts[i].place;
		struct ckq_place place = {
			.off = at->off, .stored_len = at->stored_len,
			.head_len = at->head_len,
			.raw_len = (uint32_t)at->raw_len, .codec = at->codec };

		memcpy(place.pack, ckc_pack_writer_uuid(pack->w),
		       sizeof(place.pack));
		count_up(&s->fresh, at->raw_len);
		count_up(&s->fresh_chunks, 1);
		count_up(&s->written, at->head_len + at->stored_len);
		rc = cks_find_add(s->find, b->todo[i]->chunk->digest, &place,
				  err);
	}
	return rc;
}

static int put_batch(struct ckw_worker *k, struct ckpt_save *s,
		     struct batch *b, struct ckpt_err *err)
{
	struct ckw_pack *pack = NULL;
	uint64_t bytes = 0;
	int rc = code_batch(k, s, b, err);

	for (uint32_t i = 0; i < b->count; i++)
		bytes += b->records[i].stored_len +
			 ckf_record_head_bytes(b->records[i].cell_count);
	if (rc == 0)
		rc = pack_get(s, k, bytes, b->count, &pack, err);
	if (!pack)
		return rc;
	if (rc == 0)
		rc = write_batch(k, s, pack, b, bytes, err);
	int last = pack_put(s, k, pack, rc == 0 ? err : NULL);

	return rc < 0 ? rc : last;
}

int ckw_put(struct ckw_worker *k, struct ckpt_save *s,
	    const struct ckw_todo *todo, uint32_t count, struct ckpt_err *err)
{
	const struct ckw_todo *changed[CKC_PUT_MAX];
	struct batch b = { 0 };
	uint64_t bytes = 0;

	CKB_REQUIRE(count <= CKC_PUT_MAX);
	for (uint32_t i = 0; i < count; i++)
		bytes += todo[i].chunk->raw_len;
	uint32_t n = ckw_look(s, todo, count, changed);

	count_up(&s->hashed, bytes);
	count_up(&s->chunks, count);
	for (uint32_t i = 0; i < n; i++)
		if (!cks_find_claim(s->find, changed[i]->chunk->digest,
				    changed[i]->chunk->raw_len))
			b.todo[b.count++] = changed[i];
	return b.count > 0 ? put_batch(k, s, &b, err) : 0;
}

/* ---- the end ---- */

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
	rc = ckc_pack_append(s->pack->w, CKF_RECORD_MANIFEST, zstd, digest,
			     manifest->data, manifest->len, &place, err);
	ckc_codec_free(zstd);
	if (rc == 0)
		count_up(&s->written, place.head_len + place.stored_len);
	return rc;
}

int ckw_put_end(struct ckpt_save *s, const struct ckb_buf *manifest,
		struct ckpt_err *err)
{
	if (!s->pack) /* all was there already */
		return 0;
	int rc = put_copy(s, manifest, err);

	return rc == 0 ? publish_pack(s, NULL, CKB_TAKE(s->pack), err) : rc;
}
