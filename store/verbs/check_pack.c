/* SPDX-License-Identifier: Apache-2.0 */
/*
 * check_pack.c - one pack: the records that checkpoints need, and the rest.
 *
 * A record must be what the manifest and the pack's trailer say it is (S6).
 * Records are read in offset order, each once. When the whole store is
 * checked, the trailer, records nobody demands, and the zero bytes between
 * records are looked at as well, so that any flipped byte is found.
 */
#include "verbs/check_impl.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/buf.h"
#include "chunk/digest.h"

int cks_demand_order(const void *a, const void *b)
{
	const struct cks_demand *x = a, *y = b;
	int c = memcmp(x->pack, y->pack, CKPT_UUID_BYTES);

	if (c == 0)
		c = (x->off > y->off) - (x->off < y->off);
	/* claims that differ lie apart, so that each is looked at once */
	if (c == 0)
		c = memcmp(x->digest, y->digest, CKPT_DIGEST_BYTES);
	if (c == 0)
		c = (x->head_len > y->head_len) - (x->head_len < y->head_len);
	if (c == 0)
		c = (x->raw_len > y->raw_len) - (x->raw_len < y->raw_len);
	if (c == 0)
		c = (x->stored_len > y->stored_len) -
		    (x->stored_len < y->stored_len);
	return c ? c : x->codec - y->codec;
}

/* ---- records ---- */

static bool reads_cells(const struct cks_check *k)
{
	return k->opts->depth >= CKPT_CHECK_CELLS;
}

static int check_cells(struct cks_check *k, struct ckc_pack *p, uint64_t off,
		       uint32_t head_len, const struct ckf_record *r,
		       struct ckpt_err *err)
{
	bool full = k->opts->depth == CKPT_CHECK_FULL;
	struct ckc_sha256 sha;
	uint8_t digest[CKPT_DIGEST_BYTES];
	int rc = 0;

	ckc_sha256_init(&sha);
	for (uint32_t i = 0; rc == 0 && i < r->cell_count; i++) {
		rc = ckc_pack_cell(p, off, head_len, r, i, k->cell,
				   k->scratch, err);
		if (rc == 0 && full)
			ckc_sha256_add(&sha, k->cell,
				       ckf_cell_raw_len(r->raw_len, i));
	}
	if (rc == 0 && full) {
		ckc_sha256_end(&sha, digest);
		if (memcmp(digest, r->digest, sizeof(digest)) != 0)
			rc = ckb_err(err, CKPT_ECORRUPT, "its bytes do not "
				     "match their SHA-256");
	}
	return rc;
}

/* S6: what the manifest names is what lies there. */
static bool is_demanded(const struct ckf_record *r, const struct cks_demand *d)
{
	return r->kind == CKF_RECORD_CHUNK && r->raw_len == d->raw_len &&
	       r->stored_len == d->stored_len && r->codec == d->codec &&
	       memcmp(r->digest, d->digest, sizeof(r->digest)) == 0;
}

static bool is_listed(const struct ckf_record *r, uint32_t head_len,
		      const struct ckf_trailer_entry *e)
{
	return e->head_len == head_len && e->kind == r->kind &&
	       e->codec == r->codec && e->raw_len == r->raw_len &&
	       e->stored_len == r->stored_len &&
	       memcmp(e->digest, r->digest, sizeof(r->digest)) == 0;
}

/* The trailer's entry at @off, or NULL. */
static const struct ckf_trailer_entry *listed(const struct cks_check *k,
					      uint64_t off)
{
	size_t low = 0, high = k->extent_count;

	while (low < high) {
		size_t mid = (low + high) / 2;

		if (k->extents[mid].off < off)
			low = mid + 1;
		else
			high = mid;
	}
	return low < k->extent_count && k->extents[low].off == off
		       ? &k->extents[low] : NULL;
}

/*
 * Read and verify the record at @off. @d: what a manifest says it is, or NULL;
 * @has_trailer: the pack's trailer is whole and must list it.
 */
static int check_record(struct cks_check *k, struct ckc_pack *p, uint64_t off,
			uint32_t head_len, const struct cks_demand *d,
			bool has_trailer, struct ckpt_err *err)
{
	uint32_t max = head_len / CKF_CELL_ENTRY_BYTES + 1;
	const struct ckf_trailer_entry *e = listed(k, off);
	struct ckf_record r;

	if (head_len > CKB_RECORD_HEAD_MAX)
		return ckb_err(err, CKPT_ECORRUPT, "a record header of %u "
			       "bytes cannot be", head_len);
	CKB_FREE struct ckf_cell *cells = calloc(max, sizeof(*cells));
	int rc = cells ? ckc_pack_head(p, off, head_len, cells, max, &r, err)
		       : ckb_err_nomem(err);

	if (rc == 0 && d && !is_demanded(&r, d))
		rc = ckb_err(err, CKPT_ECORRUPT, "the record there is another "
			     "one than the manifest names");
	if (rc == 0 && has_trailer && (!e || !is_listed(&r, head_len, e)))
		rc = ckb_err(err, CKPT_ECORRUPT, "the pack's table of records "
			     "does not list it as it is");
	if (rc == 0 && r.stored_len > ckc_pack_file_bytes(p) - off - head_len)
		rc = ckb_err(err, CKPT_ECORRUPT, "its bytes lie past the end "
			     "of the pack: it is truncated");
	if (rc == 0 && reads_cells(k))
		rc = check_cells(k, p, off, head_len, &r, err);
	k->result->chunk_count += rc == 0;
	return rc;
}

/* @looked: the bytes were there to look at. */
static void progress(struct cks_check *k, uint64_t stored_len, bool looked)
{
	k->done += stored_len;
	if (looked)
		k->result->bytes += stored_len;
	if (k->opts->on_progress)
		k->opts->on_progress(k->opts->ctx, k->done, k->total);
}

static int check_demands(struct cks_check *k, struct ckc_pack *p,
			 bool has_trailer, const struct cks_demand *d, size_t n)
{
	for (size_t i = 0, same; i < n; i = same) {
		struct ckpt_err why = { 0 };
		int rc = check_record(k, p, d[i].off, d[i].head_len, &d[i],
				      has_trailer, &why);

		for (same = i + 1;
		     same < n && cks_demand_order(&d[i], &d[same]) == 0;)
			same++;
		progress(k, d[i].stored_len, reads_cells(k));
		if (rc == 0)
			continue;
		if (cks_check_fatal(k, rc, &why))
			return rc;
		if (rc == CKPT_ECORRUPT)
			cks_bad_note(k->store, d[i].pack, d[i].off,
				     d[i].digest, why.message);
		rc = cks_check_note(k, &d[i], same - i, why.code,
				    why.message);
		if (rc < 0)
			return rc;
	}
	return 0;
}

/* ---- one pack as a whole ---- */

static int take_extent(void *ctx, const struct ckf_trailer_entry *e)
{
	struct cks_check *k = ctx;

	if (!ckb_room(&k->extents, k->extent_count, &k->extent_cap,
		  sizeof(*k->extents)))
		return CKPT_ENOMEM;
	k->extents[k->extent_count++] = *e;
	return 0;
}

static int by_off(const void *a, const void *b)
{
	const struct ckf_trailer_entry *x = a, *y = b;

	return (x->off > y->off) - (x->off < y->off);
}

/* Bytes [from, to) of the pack must be zero: nothing lies there. */
static int check_gap(struct ckc_pack *p, uint64_t from, uint64_t to,
		     struct ckpt_err *err)
{
	uint8_t bytes[CKB_PAYLOAD_ALIGN + 8];

	if (from > to || to - from > sizeof(bytes))
		return ckb_err(err, CKPT_ECORRUPT, "records overlap, or leave "
			       "a gap of more than a page");
	int rc = ckc_pack_read(p, from, bytes, (size_t)(to - from), err);

	for (uint64_t i = 0; rc == 0 && i < to - from; i++)
		if (bytes[i] != 0)
			rc = ckb_err(err, CKPT_ECORRUPT, "a byte between "
				     "records is not zero");
	return rc;
}

/* A finding that is nobody's. Negative: the check ends. */
static int tell_place(struct cks_check *k, const char *path, uint64_t off,
		      int rc, const struct ckpt_err *why)
{
	if (rc == 0)
		return 0;
	if (cks_check_fatal(k, rc, why))
		return rc;
	cks_check_tell(k, &(struct ckpt_damage){
		.code = rc, .pack = path, .pack_off = off,
		.what = why->message });
	return 0;
}

/* Records that no checkpoint asked for, and the gaps. */
static int check_rest(struct cks_check *k, struct ckc_pack *p,
		      const uint8_t uuid[16], const char *path,
		      const struct cks_demand *d, size_t n)
{
	uint64_t at = CKF_PACK_HEADER_BYTES;
	uint64_t table = ckc_pack_file_bytes(p) - CKF_FOOTER_BYTES -
			 k->extent_count * CKF_TRAILER_ENTRY_BYTES;
	size_t next = 0;
	int rc = 0;

	for (size_t i = 0; rc == 0 && i < k->extent_count; i++) {
		const struct ckf_trailer_entry *e = &k->extents[i];
		struct ckpt_err why = { 0 };

		rc = check_gap(p, at, e->off, &why);
		rc = tell_place(k, path, at, rc, &why);
		if (!ckb_add_u64(e->off, e->head_len, &at) ||
		    !ckb_add_u64(at, e->stored_len, &at))
			at = UINT64_MAX;
		while (next < n && d[next].off < e->off)
			next++;
		if (rc < 0 || (next < n && d[next].off == e->off))
			continue; /* somebody's: checked with it */
		k->total += e->stored_len;
		rc = check_record(k, p, e->off, e->head_len, NULL, true, &why);
		if (rc == CKPT_ECORRUPT) /* the index may still offer it */
			cks_bad_note(k->store, uuid, e->off, e->digest,
				     why.message);
		rc = tell_place(k, path, e->off, rc, &why);
		progress(k, e->stored_len, reads_cells(k));
	}
	if (rc == 0) {
		struct ckpt_err why = { 0 };

		rc = check_gap(p, at, table, &why);
		rc = tell_place(k, path, at, rc, &why);
	}
	return rc;
}

/* The pack cannot be opened: each tensor that needs it is told once, all its
 * chunks are counted. */
static int lost_pack(struct cks_check *k, const char *path,
		     const struct cks_demand *d, size_t n,
		     const struct ckpt_err *why)
{
	char text[CKPT_ERR_MESSAGE_BYTES + 64];
	size_t count = 0, end;

	if (n == 0) {
		cks_check_tell(k, &(struct ckpt_damage){
			.code = why->code, .pack = path,
			.what = why->message });
		return 0;
	}
	int rc = cks_check_note(k, d, n, why->code, why->message);

	for (size_t i = 0; i < n; i++)
		if (i == 0 || cks_demand_order(&d[i - 1], &d[i]) != 0)
			progress(k, d[i].stored_len, false);
	if (rc == 0)
		qsort(k->findings, n, sizeof(*k->findings), cks_finding_order);
	for (size_t i = 0; rc == 0 && i < n; i = end) {
		struct cks_finding first = k->findings[i];

		for (end = i + 1; end < n && k->findings[end].demand->ckpt ==
				  first.demand->ckpt &&
				  k->findings[end].demand->tensor ==
				  first.demand->tensor;)
			end++;
		if (end - i > 1) {
			snprintf(text, sizeof(text), "%s; %zu chunks of this "
				 "tensor lie in it", why->message, end - i);
			rc = cks_check_note(k, NULL, 0, why->code, text);
			first.what = k->what_count - 1;
		}
		cks_check_count(k, why->code, end - i - 1);
		k->findings[count++] = first;
	}
	k->finding_count = count;
	return rc;
}

/* Not the store's table of open packs: what was read before proves nothing. */
static int open_pack(struct cks_check *k, const uint8_t uuid[16],
		     struct ckc_pack **out, struct ckpt_err *err)
{
	char path[CKS_PACK_PATH_BYTES];

	cks_pack_path(path, uuid);
	int rc = ckc_pack_open(k->store->sys, k->store->dirfd, path, uuid, out,
			       err);

	return rc == CKPT_ENOENT ? ckb_err(err, CKPT_ECORRUPT, "the pack is "
					   "missing") : rc;
}

static int read_trailer(struct cks_check *k, struct ckc_pack *p,
			const char *path)
{
	struct ckpt_err why = { 0 };

	k->extent_count = 0;
	int rc = ckc_pack_trailer(p, take_extent, k, &why);

	if (rc == 0) {
		if (k->extent_count > 0)
			qsort(k->extents, k->extent_count, sizeof(*k->extents),
			      by_off);
		return 0;
	}
	k->extent_count = 0;
	if (rc == CKPT_ENOMEM)
		return ckb_err_nomem(k->err);
	rc = tell_place(k, path, ckc_pack_file_bytes(p), rc, &why);
	return rc < 0 ? rc : CKPT_ECORRUPT;
}

int cks_check_pack(struct cks_check *k, const uint8_t uuid[16],
		      const struct cks_demand *d, size_t n, bool whole)
{
	char path[CKS_PACK_PATH_BYTES];
	struct ckc_pack *p = NULL;
	struct ckpt_err why = { 0 };

	cks_pack_path(path, uuid);
	int rc = open_pack(k, uuid, &p, &why);

	if (rc < 0) {
		if (cks_check_fatal(k, rc, &why))
			return rc;
		rc = lost_pack(k, path, d, n, &why);
		cks_check_tell_noted(k, path);
		return rc;
	}
	int trailer = read_trailer(k, p, path);

	rc = trailer == CKPT_ECORRUPT ? 0 : trailer;
	if (rc == 0)
		rc = check_demands(k, p, trailer == 0, d, n);
	if (rc == 0 && trailer == 0 && whole &&
	    k->opts->depth >= CKPT_CHECK_CELLS)
		rc = check_rest(k, p, uuid, path, d, n);
	cks_check_tell_noted(k, path);
	ckc_pack_close(p);
	return rc;
}
