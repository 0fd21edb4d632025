/* SPDX-License-Identifier: Apache-2.0 */
/*
 * pack_write.c - append records to a pack, then seal it.
 *
 * Small records are gathered in one buffer, so thousands of small tensors cost
 * few system calls; a large payload goes to the file from the caller's own
 * memory. Write-out is started in steps while more is appended, so the sync at
 * the end finds little to do. A failed write or sync poisons the pack (S5):
 * every later call fails with the same sentence, and fsync is never repeated.
 *
 * Invariants: file bytes [0, flushed) are written; buffer follows them; `end`
 * is where the pack ends when all is written. One thread.
 */
#include "chunk/pack.h"

#include <stdlib.h>
#include <string.h>

#include "base/hash.h"

#define GATHER_BYTES (1u << 20)
#define DIRECT_FROM (64u << 10) /* payloads this big skip the buffer */
#define PACE_BYTES (8u << 20)

struct ckc_pack_writer {
	const struct ckb_sys *sys;
	int fd;
	uint8_t uuid[CKPT_UUID_BYTES];
	char *path;
	uint8_t *buffer;         /* GATHER_BYTES */
	size_t buffered;
	uint64_t flushed, paced;
	struct ckf_trailer_entry *entries;
	size_t entry_count, entry_cap;
	struct ckf_cell *cells;
	uint8_t *head;           /* record header being made */
	uint8_t *coded;          /* cells of a record that shrank */
	uint32_t cell_cap;
	size_t coded_cap;
	struct ckpt_err poison;  /* code 0: none */
};

static int poison(struct ckc_pack_writer *w, int rc, struct ckpt_err *err)
{
	if (rc < 0 && w->poison.code == 0)
		ckb_err(&w->poison, rc, "pack '%s' failed earlier: %s",
			w->path, err ? err->message : "see the first error");
	return rc;
}

/* To the file at `flushed`. */
static int put(struct ckc_pack_writer *w, const void *data, size_t len,
	       struct ckpt_err *err)
{
	struct ckpt_err mine = { 0 };
	int rc = ckb_pwrite_full(w->sys, w->fd, data, len, w->flushed, w->path,
				 &mine);

	if (rc < 0) {
		if (err)
			*err = mine;
		return poison(w, rc, &mine);
	}
	w->flushed += len;
	if (w->flushed - w->paced >= PACE_BYTES) {
		/* advice: a file system without it loses only speed */
		w->sys->sync_range(w->sys, w->fd, w->paced,
				   w->flushed - w->paced);
		w->paced = w->flushed;
	}
	return 0;
}

static int flush(struct ckc_pack_writer *w, struct ckpt_err *err)
{
	size_t n = w->buffered;

	w->buffered = 0;
	return n > 0 ? put(w, w->buffer, n, err) : 0;
}

/* Append @len bytes (NULL: zeros) behind what is there. */
static int gather(struct ckc_pack_writer *w, const void *data, size_t len,
		  struct ckpt_err *err)
{
	const uint8_t *from = data;

	while (len > 0) {
		size_t n = ckb_min_u64(len, GATHER_BYTES - w->buffered);

		if (from)
			memcpy(w->buffer + w->buffered, from, n);
		else
			memset(w->buffer + w->buffered, 0, n);
		w->buffered += n;
		from = from ? from + n : NULL;
		len -= n;
		if (w->buffered == GATHER_BYTES) {
			int rc = flush(w, err);

			if (rc < 0)
				return rc;
		}
	}
	return 0;
}

int ckc_pack_create(const struct ckb_sys *sys, int dirfd, const char *path,
		    const uint8_t uuid[16], const uint8_t store_uuid[16],
		    struct ckc_pack_writer **out, struct ckpt_err *err)
{
	struct ckc_pack_writer *w = calloc(1, sizeof(*w));
	struct ckf_pack_header h = { 0 };
	uint8_t head[CKF_PACK_HEADER_BYTES];
	int rc;

	*out = NULL;
	if (!w)
		return ckb_err_nomem(err);
	w->sys = sys;
	w->fd = -1;
	memcpy(w->uuid, uuid, CKPT_UUID_BYTES);
	w->path = strdup(path);
	w->buffer = malloc(GATHER_BYTES);
	if (!w->path || !w->buffer) {
		rc = ckb_err_nomem(err);
		goto fail;
	}
	w->fd = sys->openat(sys, dirfd, path,
			    O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW, 0666);
	if (w->fd < 0) {
		rc = ckb_err_sys(err, -w->fd, "cannot make pack '%s'", path);
		goto fail;
	}
	memcpy(h.uuid, uuid, CKPT_UUID_BYTES);
	memcpy(h.store_uuid, store_uuid, CKPT_UUID_BYTES);
	ckf_pack_header_encode(&h, head);
	rc = gather(w, head, sizeof(head), err);
	if (rc < 0)
		goto fail;
	*out = w;
	return 0;
fail:
	ckc_pack_writer_close(w);
	return rc;
}

void ckc_pack_writer_close(struct ckc_pack_writer *w)
{
	if (!w)
		return;
	if (w->fd >= 0)
		w->sys->close(w->sys, w->fd);
	free(w->path);
	free(w->buffer);
	free(w->entries);
	free(w->cells);
	free(w->head);
	free(w->coded);
	free(w);
}

uint64_t ckc_pack_bytes(const struct ckc_pack_writer *w)
{
	return w->flushed + w->buffered;
}

uint64_t ckc_pack_records(const struct ckc_pack_writer *w)
{
	return w->entry_count;
}

const uint8_t *ckc_pack_writer_uuid(const struct ckc_pack_writer *w)
{
	return w->uuid;
}

/* Room for the cells of a record of @len raw bytes, and one more entry. */
static int reserve(struct ckc_pack_writer *w, size_t len, bool coded,
		   struct ckpt_err *err)
{
	uint32_t n = ckf_cell_count(len);

	if (n > w->cell_cap) {
		free(w->cells);
		free(w->head);
		w->cells = malloc(n * sizeof(*w->cells));
		w->head = malloc(ckf_record_head_bytes(n));
		w->cell_cap = w->cells && w->head ? n : 0;
		if (w->cell_cap == 0)
			return ckb_err_nomem(err);
	}
	if (coded && len > w->coded_cap) {
		free(w->coded);
		w->coded = malloc(len);
		w->coded_cap = w->coded ? len : 0;
		if (!w->coded)
			return ckb_err_nomem(err);
	}
	return ckb_room(&w->entries, w->entry_count, &w->entry_cap,
			sizeof(*w->entries)) ? 0 : ckb_err_nomem(err);
}

/* Code all cells; *@out_data is @raw when none shrank. */
static int encode(struct ckc_pack_writer *w, struct ckc_codec *codec,
		  const uint8_t *raw, struct ckf_record *r,
		  const uint8_t **out_data, struct ckpt_err *err)
{
	bool shrank = false;
	size_t at = 0;

	for (uint32_t i = 0; i < r->cell_count; i++) {
		uint32_t len = ckf_cell_raw_len(r->raw_len, i);
		const uint8_t *from = raw + (size_t)i * CKB_CELL_BYTES;
		const void *data;
		int rc = ckc_cell_encode(codec, from, len,
					 r->codec == CKF_CODEC_RAW
						 ? NULL : w->coded + at,
					 &r->cells[i], &data, err);

		if (rc < 0)
			return rc;
		shrank = shrank || r->cells[i].coding != CKF_CELL_RAW;
		if (r->codec != CKF_CODEC_RAW && data == from)
			memcpy(w->coded + at, from, len);
		at += r->cells[i].stored_len;
	}
	r->stored_len = at;
	if (!shrank)
		r->codec = CKF_CODEC_RAW;
	*out_data = shrank ? w->coded : raw;
	return 0;
}

static int write_record(struct ckc_pack_writer *w, const struct ckf_record *r,
			const uint8_t *data, uint64_t *out_off,
			struct ckpt_err *err)
{
	uint32_t head_len = ckf_record_head_bytes(r->cell_count);
	uint64_t end = ckc_pack_bytes(w);
	uint64_t off = ckf_record_place(end, head_len, r->stored_len);
	int rc;

	if (off + head_len + r->stored_len > CKB_PACK_MAX_BYTES)
		return ckb_err(err, CKPT_ELIMIT, "pack '%s' is full", w->path);
	ckf_record_encode(r, w->head);
	rc = gather(w, NULL, (size_t)(off - end), err);
	if (rc == 0)
		rc = gather(w, w->head, head_len, err);
	if (rc < 0)
		return rc;
	*out_off = off;
	if (r->stored_len < DIRECT_FROM)
		return gather(w, data, (size_t)r->stored_len, err);
	rc = flush(w, err);
	/* in steps, so that write-out starts before the last byte is copied */
	for (uint64_t at = 0; rc == 0 && at < r->stored_len;) {
		size_t n = ckb_min_u64(PACE_BYTES, r->stored_len - at);

		rc = put(w, data + at, n, err);
		at += n;
	}
	return rc;
}

int ckc_pack_append(struct ckc_pack_writer *w, enum ckf_record_kind kind,
		    struct ckc_codec *codec, const uint8_t digest[32],
		    const void *raw, size_t len, struct ckc_place *out,
		    struct ckpt_err *err)
{
	struct ckf_record r = { .kind = (uint16_t)kind, .raw_len = len };
	const uint8_t *data;
	uint64_t off = 0;

	CKB_REQUIRE(len > 0 && len <= CKB_RECORD_RAW_MAX);
	if (w->poison.code != 0)
		return ckb_err(err, w->poison.code, "%s", w->poison.message);
	if (w->entry_count >= CKB_PACK_ENTRY_MAX ||
	    ckf_record_head_bytes(ckf_cell_count(len)) > CKB_RECORD_HEAD_MAX)
		return ckb_err(err, CKPT_ELIMIT, "pack '%s' cannot take a "
			       "record of %zu bytes", w->path, len);
	r.codec = ckc_codec_kind(codec);
	int rc = reserve(w, len, r.codec != CKF_CODEC_RAW, err);

	if (rc < 0)
		return rc;
	r.cells = w->cells;
	r.cell_count = ckf_cell_count(len);
	memcpy(r.digest, digest, CKPT_DIGEST_BYTES);
	rc = encode(w, codec, raw, &r, &data, err);
	if (rc == 0)
		rc = write_record(w, &r, data, &off, err);
	if (rc < 0)
		return rc;
	*out = (struct ckc_place){ off, ckf_record_head_bytes(r.cell_count),
				   r.codec, r.stored_len, len };
	struct ckf_trailer_entry *e = &w->entries[w->entry_count++];

	*e = (struct ckf_trailer_entry){
		.off = off, .head_len = out->head_len, .kind = r.kind,
		.codec = r.codec, .stored_len = r.stored_len, .raw_len = len,
	};
	memcpy(e->digest, digest, CKPT_DIGEST_BYTES);
	return 0;
}

static int by_digest(const void *a, const void *b)
{
	const struct ckf_trailer_entry *x = a, *y = b;
	int c = memcmp(x->digest, y->digest, CKPT_DIGEST_BYTES);

	return c ? c : (x->off > y->off) - (x->off < y->off);
}

static int write_trailer(struct ckc_pack_writer *w, struct ckpt_err *err)
{
	size_t table_len = w->entry_count * CKF_TRAILER_ENTRY_BYTES;
	uint64_t end = ckc_pack_bytes(w);
	struct ckf_footer f = { .entry_count = w->entry_count,
				.table_off = ckb_div_up(end, 8) * 8 };
	uint8_t foot[CKF_FOOTER_BYTES];
	CKB_FREE uint8_t *table = malloc(table_len + 1);

	if (!table)
		return ckb_err_nomem(err);
	if (w->entry_count > 0)
		qsort(w->entries, w->entry_count, sizeof(*w->entries),
		      by_digest);
	for (size_t i = 0; i < w->entry_count; i++)
		ckf_trailer_entry_encode(&w->entries[i],
					 table + i * CKF_TRAILER_ENTRY_BYTES);
	f.table_xxh3 = ckb_xxh3(table, table_len);
	memcpy(f.uuid, w->uuid, CKPT_UUID_BYTES);
	ckf_footer_encode(&f, foot);
	int rc = gather(w, NULL, (size_t)(f.table_off - end), err);

	if (rc == 0)
		rc = gather(w, table, table_len, err);
	if (rc == 0)
		rc = gather(w, foot, sizeof(foot), err);
	return rc == 0 ? flush(w, err) : rc;
}

int ckc_pack_seal(struct ckc_pack_writer *w, struct ckpt_err *err)
{
	struct ckpt_err mine = { 0 };

	if (w->poison.code != 0)
		return ckb_err(err, w->poison.code, "%s", w->poison.message);
	int rc = write_trailer(w, &mine);

	if (rc == 0) {
		int s = w->sys->fsync(w->sys, w->fd);

		if (s < 0)
			rc = ckb_err_sys(&mine, -s, "cannot sync pack '%s'",
					 w->path);
	}
	if (rc < 0) {
		if (err)
			*err = mine;
		return poison(w, rc, &mine);
	}
	/* sealed: any later append is a bug of ours */
	ckb_err(&w->poison, CKPT_ESTATE, "pack '%s' is sealed", w->path);
	return 0;
}
