/* SPDX-License-Identifier: Apache-2.0 */
/*
 * pack_write.c - append records to a pack, then seal it.
 *
 * A record gets its place under the lock, in the order of appends; its bytes
 * are written outside of it, by the thread that brought them, so that several
 * writes are under way at once. Small records are gathered in one buffer, so
 * thousands of small tensors cost few system calls. A large payload goes to the
 * file from the caller's own memory, and what was gathered before it goes in
 * the same call.
 *
 * Direct writes (O_DIRECT) are of whole blocks from aligned memory. The last
 * block of a payload is shared with the next record's header, so it stays in
 * the buffer for whoever comes next; the file is cut to its length when sealed.
 * Buffered writes start their write-out at once, so the sync at the end finds
 * little to do. A failed write or sync poisons the pack (S5): every later call
 * fails with the same sentence, and fsync is never repeated.
 *
 * Invariants, under the lock: buffer holds file bytes [held, end); all before
 * `held` is written or being written by whom it belongs to. Seal comes when
 * every append has returned.
 */
#include "chunk/pack.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <sys/uio.h>

#include "base/hash.h"

#define GATHER_BYTES (1u << 20)
#define ASIDE_MAX 8u /* buffers of so many bytes, beside staging (S9) */
#define GROW_BYTES (256ull << 20) /* reserved on disk at a time */

struct ckc_pack_writer {
	const struct ckb_sys *sys;
	int fd;
	uint64_t align;          /* of writes: the block, or 1 */
	uint8_t uuid[CKPT_UUID_BYTES];
	char *path;
	uint8_t *coded;          /* of ckc_pack_append(); a cell behind */
	struct ckf_cell *cells;  /* likewise */
	uint32_t cell_cap;
	size_t coded_cap;

	pthread_mutex_t lock;    /* guards all below */
	uint8_t *buffer;         /* GATHER_BYTES, aligned */
	void *spares;            /* others */
	uint32_t aside;          /* being written, beside the buffer */
	uint64_t held, end, reserved;
	struct ckf_trailer_entry *entries;
	size_t entry_count, entry_cap;
	struct ckpt_err poison;  /* code 0: none */
};

/* The lock is held. Kept in its own words and with its errno: of threads that
 * write at once, one that comes later may be the first to be asked. */
static int poison(struct ckc_pack_writer *w, int rc,
		  const struct ckpt_err *why, struct ckpt_err *err)
{
	if (w->poison.code == 0)
		w->poison = *why;
	if (err)
		*err = *why;
	return rc;
}

static int poisoned(const struct ckc_pack_writer *w, struct ckpt_err *err)
{
	if (w->poison.code != 0 && err)
		*err = w->poison;
	return w->poison.code;
}

/* Room on disk, so that blocks lie together and several writes may be under way
 * in one file. Where it cannot be had, writes tell. */
static void reserve_disk(struct ckc_pack_writer *w)
{
	if (w->align == 1 || w->end <= w->reserved)
		return;
	uint64_t len = ckb_div_up(w->end - w->reserved, GROW_BYTES) *
		       GROW_BYTES;

	if (w->sys->fallocate(w->sys, w->fd, w->reserved, len) == 0)
		w->reserved += len;
	else
		w->reserved = UINT64_MAX;
}

/* Advice: a file system without it loses only speed. */
static void write_out(const struct ckc_pack_writer *w, uint64_t off,
		      uint64_t len)
{
	if (w->align == 1)
		w->sys->sync_range(w->sys, w->fd, off, len);
}

/* The lock is held. What swap_buffer() gave, back. */
static void give_spare(struct ckc_pack_writer *w, uint8_t *buffer)
{
	ckb_spare_give(&w->spares, buffer);
	w->aside -= buffer != NULL;
}

static void drop_spares(struct ckc_pack_writer *w)
{
	for (void *spare; (spare = ckb_spare_take(&w->spares)) != NULL;)
		free(spare);
}

/* The lock is held. The buffer becomes the caller's, its whole blocks with it,
 * and a spare takes its place with the rest. NULL: there is no more memory. */
static uint8_t *swap_buffer(struct ckc_pack_writer *w, size_t *out_whole)
{
	size_t len = (size_t)(w->end - w->held);
	size_t whole = (size_t)(len / w->align * w->align);
	uint8_t *full = w->buffer;

	if (w->aside == ASIDE_MAX)
		return NULL;
	uint8_t *spare = ckb_spare_take(&w->spares);

	if (!spare)
		spare = aligned_alloc(CKB_PAYLOAD_ALIGN, GATHER_BYTES);
	if (!spare)
		return NULL;
	memcpy(spare, full + whole, len - whole);
	w->buffer = spare;
	w->aside++;
	w->held += whole;
	*out_whole = whole;
	return full;
}

/* The lock is held. Whole blocks of the buffer to the file; the rest stays. */
static int flush(struct ckc_pack_writer *w, struct ckpt_err *err)
{
	size_t n = (size_t)((w->end - w->held) / w->align * w->align);

	if (n == 0)
		return 0;
	reserve_disk(w);
	int rc = ckb_pwrite_full(w->sys, w->fd, w->buffer, n, w->held, w->path,
				 err);

	if (rc < 0)
		return rc;
	write_out(w, w->held, n);
	w->held += n;
	memmove(w->buffer, w->buffer + n, (size_t)(w->end - w->held));
	return 0;
}

/* The same, but others go on meanwhile: the lock is given up. */
static int flush_aside(struct ckc_pack_writer *w, struct ckpt_err *err)
{
	uint64_t off = w->held;
	size_t n = 0;

	reserve_disk(w);
	uint8_t *full = swap_buffer(w, &n);

	if (!full)
		return flush(w, err);
	pthread_mutex_unlock(&w->lock);
	int rc = ckb_pwrite_full(w->sys, w->fd, full, n, off, w->path, err);

	if (rc == 0)
		write_out(w, off, n);
	pthread_mutex_lock(&w->lock);
	give_spare(w, full);
	return rc < 0 ? rc : poisoned(w, err);
}

/* The lock is held. Append @len bytes (NULL: zeros) behind what is there. */
static int gather(struct ckc_pack_writer *w, const void *data, size_t len,
		  struct ckpt_err *err)
{
	const uint8_t *from = data;

	while (len > 0) {
		size_t at = (size_t)(w->end - w->held);
		size_t n = ckb_min_u64(len, GATHER_BYTES - at);

		if (from)
			memcpy(w->buffer + at, from, n);
		else
			memset(w->buffer + at, 0, n);
		w->end += n;
		from = from ? from + n : NULL;
		len -= n;
		if (at + n == GATHER_BYTES) {
			int rc = flush(w, err);

			if (rc < 0)
				return rc;
		}
	}
	return 0;
}

static int open_file(struct ckc_pack_writer *w, int dirfd, bool direct,
		     struct ckpt_err *err)
{
	const int flags = O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW;

	w->align = direct ? CKB_PAYLOAD_ALIGN : 1;
	w->fd = w->sys->openat(w->sys, dirfd, w->path,
			       flags | (direct ? O_DIRECT : 0), 0666);
	return w->fd >= 0 ? 0 : ckb_err_sys(err, -w->fd, "cannot make pack "
					    "'%s'", w->path);
}

/* A file system may refuse direct writes at the open or at the first write;
 * the first block is written to know. */
static int open_any(struct ckc_pack_writer *w, int dirfd, bool direct,
		    struct ckpt_err *err)
{
	if (direct && open_file(w, dirfd, true, NULL) == 0) {
		ssize_t n = w->sys->pwrite(w->sys, w->fd, w->buffer,
					   CKB_PAYLOAD_ALIGN, 0);

		if (n == (ssize_t)CKB_PAYLOAD_ALIGN)
			return 0;
		w->sys->close(w->sys, w->fd);
		w->fd = -1;
		(void)w->sys->unlinkat(w->sys, dirfd, w->path, 0);
	}
	return open_file(w, dirfd, false, err);
}

int ckc_pack_create(const struct ckb_sys *sys, int dirfd, const char *path,
		    const uint8_t uuid[16], const uint8_t store_uuid[16],
		    bool direct, struct ckc_pack_writer **out,
		    struct ckpt_err *err)
{
	struct ckc_pack_writer *w = calloc(1, sizeof(*w));
	struct ckf_pack_header h = { 0 };
	int rc;

	*out = NULL;
	if (!w)
		return ckb_err_nomem(err);
	w->sys = sys;
	w->fd = -1;
	pthread_mutex_init(&w->lock, NULL);
	memcpy(w->uuid, uuid, CKPT_UUID_BYTES);
	w->path = strdup(path);
	w->buffer = aligned_alloc(CKB_PAYLOAD_ALIGN, GATHER_BYTES);
	if (!w->path || !w->buffer) {
		rc = ckb_err_nomem(err);
	} else {
		memcpy(h.uuid, uuid, CKPT_UUID_BYTES);
		memcpy(h.store_uuid, store_uuid, CKPT_UUID_BYTES);
		memset(w->buffer, 0, CKB_PAYLOAD_ALIGN);
		ckf_pack_header_encode(&h, w->buffer);
		w->end = CKF_PACK_HEADER_BYTES;
		rc = open_any(w, dirfd, direct, err);
	}
	if (rc < 0) {
		ckc_pack_writer_close(w);
		return rc;
	}
	*out = w;
	return 0;
}

void ckc_pack_writer_close(struct ckc_pack_writer *w)
{
	if (!w)
		return;
	if (w->fd >= 0)
		w->sys->close(w->sys, w->fd);
	pthread_mutex_destroy(&w->lock);
	free(w->path);
	free(w->buffer);
	drop_spares(w);
	free(w->entries);
	free(w->cells);
	free(w->coded);
	free(w);
}

const uint8_t *ckc_pack_writer_uuid(const struct ckc_pack_writer *w)
{
	return w->uuid;
}

/* ---- coding ---- */

int ckc_record_code(struct ckc_codec *codec, const uint8_t digest[32],
		    const void *raw, size_t len, uint8_t *to, uint8_t *cell,
		    struct ckf_record *r, const uint8_t **out_data,
		    struct ckpt_err *err)
{
	const uint8_t *from = raw;
	bool shrank = false;
	size_t at = 0;

	r->codec = ckc_codec_kind(codec);
	r->raw_len = len;
	r->cell_count = ckf_cell_count(len);
	memcpy(r->digest, digest, CKPT_DIGEST_BYTES);
	for (uint32_t i = 0; i < r->cell_count; i++) {
		uint32_t n = ckf_cell_raw_len(len, i);
		const void *data;
		int rc = ckc_cell_encode(codec, from, n, cell, &r->cells[i],
					 &data, err);

		if (rc < 0)
			return rc;
		shrank = shrank || r->cells[i].coding != CKF_CELL_RAW;
		/* never past what is coded already, so @to may be @raw */
		if (to && data != to + at && r->codec != CKF_CODEC_RAW)
			memmove(to + at, data, r->cells[i].stored_len);
		at += r->cells[i].stored_len;
		from += n;
	}
	r->stored_len = at;
	if (!shrank)
		r->codec = CKF_CODEC_RAW;
	*out_data = shrank ? to : raw;
	return 0;
}

/* ---- appending ---- */

/* The lock is held: the next record's place, and its line in the trailer. */
static int take_place(struct ckc_pack_writer *w, enum ckf_record_kind kind,
		      const struct ckf_record *r, struct ckc_place *out,
		      struct ckpt_err *err)
{
	uint32_t head_len = ckf_record_head_bytes(r->cell_count);
	uint64_t off = ckf_record_place(w->end, head_len, r->stored_len);

	if (w->entry_count >= CKB_PACK_ENTRY_MAX ||
	    head_len > CKB_RECORD_HEAD_MAX)
		return ckb_err(err, CKPT_ELIMIT, "pack '%s' cannot take a "
			       "record of %ju bytes", w->path,
			       (uintmax_t)r->raw_len);
	if (off + head_len + r->stored_len > CKB_PACK_MAX_BYTES)
		return ckb_err(err, CKPT_ELIMIT, "pack '%s' is full", w->path);
	if (!ckb_room(&w->entries, w->entry_count, &w->entry_cap,
		      sizeof(*w->entries)))
		return ckb_err_nomem(err);
	struct ckf_trailer_entry *e = &w->entries[w->entry_count++];

	*out = (struct ckc_place){ off, head_len, r->codec, r->stored_len,
				   r->raw_len };
	*e = (struct ckf_trailer_entry){
		.off = off, .head_len = head_len, .kind = (uint16_t)kind,
		.codec = r->codec, .stored_len = r->stored_len,
		.raw_len = r->raw_len,
	};
	memcpy(e->digest, r->digest, CKPT_DIGEST_BYTES);
	return 0;
}

/* The lock is held: zeros up to @off, then the header. */
static int put_head(struct ckc_pack_writer *w, struct ckf_record *r,
		    const struct ckc_place *at, struct ckpt_err *err)
{
	uint8_t small[1024];
	CKB_FREE uint8_t *large = NULL;
	uint8_t *head = small;

	if (at->head_len > sizeof(small)) {
		head = large = malloc(at->head_len);
		if (!large)
			return ckb_err_nomem(err);
	}
	ckf_record_encode(r, head);
	int rc = gather(w, NULL, (size_t)(at->off - w->end), err);

	return rc == 0 ? gather(w, head, at->head_len, err) : rc;
}

/* Where the payload begins a block, header and all before it end one. */
static bool is_large(const struct ckc_pack_writer *w,
		     const struct ckc_put *put)
{
	return put->record->stored_len >= CKB_PAYLOAD_ALIGN_FROM &&
	       (uintptr_t)put->data % w->align == 0 &&
	       ckf_record_head_bytes(put->record->cell_count) <=
	       CKB_PAYLOAD_ALIGN;
}

/* What goes to the file in one call: gaps and headers, and payloads. */
struct batch {
	struct iovec iov[2 * CKC_PUT_MAX + 1];
	int count;
	uint8_t *full;           /* what was gathered before; NULL: little */
	uint8_t *head;           /* where the next gap and header go */
	uint64_t from;
	const uint8_t *tail;     /* behind the last whole block */
	size_t tail_len;
};

static void batch_add(struct batch *b, const uint8_t *data, size_t len)
{
	b->iov[b->count++] = (struct iovec){ (void *)(uintptr_t)data, len };
}

/* The header of the record at @at behind what is there, and its payload. */
static void batch_record(struct batch *b, uint64_t align, uint64_t gap,
			 const struct ckc_put *put)
{
	size_t len = put->place.stored_len;
	size_t whole = (size_t)(len / align * align);
	uint8_t *to = b->head;

	memcpy(to, b->tail, b->tail_len);
	memset(to + b->tail_len, 0, gap);
	ckf_record_encode(put->record, to + b->tail_len + gap);
	batch_add(b, to, b->tail_len + gap + put->place.head_len);
	batch_add(b, put->data, whole);
	b->head += ckb_div_up(b->iov[b->count - 2].iov_len,
			      CKB_PAYLOAD_ALIGN) * CKB_PAYLOAD_ALIGN;
	b->tail = put->data + whole;
	b->tail_len = len - whole;
}

/* The lock is held. What was gathered goes along: a little of it in front of
 * the first header, more of it from where it lies. */
static int batch_begin(struct ckc_pack_writer *w, uint8_t *head,
		       struct batch *b, struct ckpt_err *err)
{
	size_t whole = 0;
	int rc = 0;

	*b = (struct batch){ .head = head };
	b->from = w->held;
	if (w->end - w->held > 2 * CKB_PAYLOAD_ALIGN) {
		b->full = swap_buffer(w, &whole);
		if (b->full)
			batch_add(b, b->full, whole);
		else
			rc = flush(w, err);
	}
	if (!b->full)
		b->from = w->held;
	b->tail = w->buffer;
	b->tail_len = (size_t)(w->end - w->held);
	return rc;
}

/* The lock is held: places for all that are large. */
static int batch_places(struct ckc_pack_writer *w, enum ckf_record_kind kind,
			struct ckc_put *puts, uint32_t count,
			struct ckpt_err *err)
{
	uint64_t end = w->end;
	int rc = 0;

	for (uint32_t i = 0; i < count && rc == 0; i++) {
		struct ckc_place *at = &puts[i].place;

		if (!is_large(w, &puts[i]))
			continue;
		rc = take_place(w, kind, puts[i].record, at, err);
		if (rc == 0)
			w->end = at->off + at->head_len + at->stored_len;
	}
	w->end = end;
	return rc;
}

/* The lock is held: all to the batch; what is behind the last block stays. */
static void batch_fill(struct ckc_pack_writer *w, const struct ckc_put *puts,
		       uint32_t count, struct batch *b)
{
	for (uint32_t i = 0; i < count; i++) {
		const struct ckc_place *at = &puts[i].place;

		if (!is_large(w, &puts[i]))
			continue;
		batch_record(b, w->align, at->off - w->end, &puts[i]);
		w->end = at->off + at->head_len + at->stored_len;
	}
	memcpy(w->buffer, b->tail, b->tail_len);
	w->held = w->end - b->tail_len;
	reserve_disk(w);
}

/* The lock is held, and given up while bytes are written. */
static int put_large(struct ckc_pack_writer *w, enum ckf_record_kind kind,
		     struct ckc_put *puts, uint32_t count, uint8_t *head,
		     struct ckpt_err *err)
{
	struct batch b;
	int rc = batch_places(w, kind, puts, count, err);

	if (rc == 0)
		rc = batch_begin(w, head, &b, err);
	if (rc < 0)
		return rc;
	batch_fill(w, puts, count, &b);
	uint64_t bytes = w->held - b.from;

	pthread_mutex_unlock(&w->lock);
	rc = ckb_pwritev_full(w->sys, w->fd, b.iov, b.count, b.from, w->path,
			      err);
	if (rc == 0)
		write_out(w, b.from, bytes);
	pthread_mutex_lock(&w->lock);
	give_spare(w, b.full);
	return rc;
}

/* The lock is held, and given up while a full buffer is written: not in the
 * midst of a record. */
static int put_small(struct ckc_pack_writer *w, enum ckf_record_kind kind,
		     struct ckc_put *put, struct ckpt_err *err)
{
	size_t most = CKB_PAYLOAD_ALIGN + (size_t)put->record->stored_len +
		      ckf_record_head_bytes(put->record->cell_count);
	int rc = 0;

	while (rc == 0 && most < GATHER_BYTES / 2 &&
	       w->end - w->held + most > GATHER_BYTES)
		rc = flush_aside(w, err);
	if (rc == 0)
		rc = take_place(w, kind, put->record, &put->place, err);

	if (rc == 0)
		rc = put_head(w, put->record, &put->place, err);
	return rc < 0 ? rc : gather(w, put->data, put->place.stored_len, err);
}

int ckc_pack_put(struct ckc_pack_writer *w, enum ckf_record_kind kind,
		 struct ckc_put *puts, uint32_t count, uint8_t *head,
		 struct ckpt_err *err)
{
	struct ckpt_err mine = { 0 };
	uint32_t large = 0;

	CKB_REQUIRE(count > 0 && count <= CKC_PUT_MAX);
	pthread_mutex_lock(&w->lock);
	int rc = poisoned(w, &mine);

	for (uint32_t i = 0; rc == 0 && i < count; i++) {
		puts[i].record->kind = (uint16_t)kind;
		if (head && is_large(w, &puts[i]))
			large++;
		else
			rc = put_small(w, kind, &puts[i], &mine);
	}
	if (rc == 0 && large > 0)
		rc = put_large(w, kind, puts, count, head, &mine);
	if (rc < 0) /* some may have a place and not be there */
		rc = poison(w, rc, &mine, err);
	pthread_mutex_unlock(&w->lock);
	return rc;
}

int ckc_pack_append(struct ckc_pack_writer *w, enum ckf_record_kind kind,
		    struct ckc_codec *codec, const uint8_t digest[32],
		    const void *raw, size_t len, struct ckc_place *out,
		    struct ckpt_err *err)
{
	uint32_t n = ckf_cell_count(len);
	struct ckf_record r = { 0 };
	const uint8_t *data;

	CKB_REQUIRE(len > 0 && len <= CKB_RECORD_RAW_MAX);
	pthread_mutex_lock(&w->lock);
	int rc = poisoned(w, err);

	pthread_mutex_unlock(&w->lock);
	if (rc == 0 && ckf_record_head_bytes(n) > CKB_RECORD_HEAD_MAX)
		rc = ckb_err(err, CKPT_ELIMIT, "pack '%s' cannot take a "
			     "record of %zu bytes", w->path, len);
	if (rc < 0)
		return rc;
	if (n > w->cell_cap) {
		free(w->cells);
		w->cells = malloc(n * sizeof(*w->cells));
		w->cell_cap = w->cells ? n : 0;
	}
	bool coded = ckc_codec_kind(codec) != CKF_CODEC_RAW;

	if (coded && len > w->coded_cap) {
		free(w->coded);
		w->coded = malloc(len + CKB_CELL_BYTES);
		w->coded_cap = w->coded ? len : 0;
	}
	if (w->cell_cap == 0 || (coded && w->coded_cap == 0))
		return ckb_err_nomem(err);
	r.cells = w->cells;
	rc = ckc_record_code(codec, digest, raw, len,
			     coded ? w->coded : NULL,
			     coded ? w->coded + w->coded_cap : NULL, &r,
			     &data, err);
	struct ckc_put put = { .record = &r, .data = data };

	if (rc == 0)
		rc = ckc_pack_put(w, kind, &put, 1, NULL, err);
	if (rc == 0)
		*out = put.place;
	return rc;
}

static int by_digest(const void *a, const void *b)
{
	const struct ckf_trailer_entry *x = a, *y = b;
	int c = memcmp(x->digest, y->digest, CKPT_DIGEST_BYTES);

	return c ? c : (x->off > y->off) - (x->off < y->off);
}

/* The last, partial block, then the file's true length. */
static int finish(struct ckc_pack_writer *w, struct ckpt_err *err)
{
	uint64_t bytes = w->end;
	uint64_t rest = bytes % w->align;
	int rc = rest ? gather(w, NULL, (size_t)(w->align - rest), err) : 0;

	if (rc == 0)
		rc = flush(w, err);
	if (rc < 0 || w->align == 1)
		return rc;
	rc = w->sys->ftruncate(w->sys, w->fd, bytes);
	return rc == 0 ? 0 : ckb_err_sys(err, -rc, "cannot cut pack '%s' to "
					 "its length", w->path);
}

static int write_trailer(struct ckc_pack_writer *w, struct ckpt_err *err)
{
	size_t table_len = w->entry_count * CKF_TRAILER_ENTRY_BYTES;
	uint64_t end = w->end;
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
	return rc == 0 ? finish(w, err) : rc;
}

int ckc_pack_seal(struct ckc_pack_writer *w, struct ckpt_err *err)
{
	struct ckpt_err mine = { 0 };
	int rc = poisoned(w, err);

	if (rc < 0)
		return rc;
	drop_spares(w);
	rc = write_trailer(w, &mine);
	if (rc == 0) {
		int s = w->sys->fsync(w->sys, w->fd);

		if (s < 0)
			rc = ckb_err_sys(&mine, -s, "cannot sync pack '%s'",
					 w->path);
	}
	if (rc < 0)
		return poison(w, rc, &mine, err);
	/* sealed: any later append is a bug of ours */
	ckb_err(&w->poison, CKPT_ESTATE, "pack '%s' is sealed", w->path);
	return 0;
}
