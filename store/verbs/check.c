/* SPDX-License-Identifier: Apache-2.0 */
/*
 * check.c - look for damage, tell all of it, go on.
 *
 * Every chunk of every checkpoint asked for becomes a demand (pack, offset,
 * and whose it is). Demands are sorted, so each pack is opened once and read in
 * offset order, and each record is verified once however many tensors share
 * it; each of them is told. A record must be what the manifest and the pack's
 * trailer say it is (S6). A manifest that cannot be read is a finding, as is a
 * chunk list or a layout that does not cover its tensor (S7). When the whole
 * store is checked, packs are walked as well: trailers, records nobody demands,
 * and the zero bytes between records, so that any flipped byte is found.
 * Staging and what an abandoned save left in packs/ are no damage.
 *
 * What is wrong with a pack's records is gathered and told when the pack is
 * done, checkpoint by checkpoint, so that each is opened once for its names.
 * One thread; memory follows the number of chunks, not their bytes.
 */
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/text.h"
#include "chunk/digest.h"
#include "tensor/box.h"
#include "verbs/checkpoint.h"
#include "verbs/store_impl.h"

/* One chunk that a tensor needs. */
struct demand {
	uint8_t pack[CKPT_UUID_BYTES];
	uint64_t off, stored_len;
	uint32_t head_len, raw_len;
	uint16_t codec;
	uint8_t digest[CKPT_DIGEST_BYTES];
	uint32_t ckpt;          /* in check.names */
	uint32_t tensor;
	uint64_t entry;         /* in its chunk list */
};

/* A demand that is not met, and why: whats[what] of the pack at hand. */
struct finding {
	const struct demand *demand;
	size_t what;
};

struct check {
	struct ckpt_store *store;
	const struct ckpt_check_opts *opts;
	struct ckpt_check_result *result;
	struct demand *demands;
	size_t demand_count, demand_cap;
	char **names;
	size_t name_count, name_cap;
	/* of the pack at hand */
	struct ckf_trailer_entry *extents; /* its trailer, by offset */
	size_t extent_count, extent_cap;
	struct finding *findings;
	size_t finding_count, finding_cap;
	char **whats;
	size_t what_count, what_cap;

	uint8_t *cell, *scratch; /* CKB_CELL_BYTES each */
	uint64_t done, total;    /* stored bytes, as known so far */
	struct ckpt_err *err;
};

static bool grow(void *array, size_t count, size_t *cap, size_t each)
{
	void **p = array;

	if (count < *cap)
		return true;
	size_t more = *cap ? *cap * 2 : 256;
	void *grown = realloc(*p, more * each);

	if (!grown)
		return false;
	*p = grown;
	*cap = more;
	return true;
}

static void tell(struct check *k, const struct ckpt_damage *d)
{
	k->result->damage_count++;
	if (k->opts->on_damage)
		k->opts->on_damage(k->opts->ctx, d);
}

/* Out of memory, cancelled, no descriptors: not damage, ends the check. */
static bool fatal(struct check *k, int rc, const struct ckpt_err *why)
{
	if (rc != CKPT_ENOMEM && rc != CKPT_ECANCELED &&
	    !(rc < 0 && (why->sys_errno == EMFILE || why->sys_errno == ENFILE)))
		return false;
	if (k->err)
		*k->err = *why;
	return true;
}

static void tell_tensor(struct check *k, struct ckpt_checkpoint *c,
			const struct ckpt_tensor_info *t, const char *what)
{
	tell(k, &(struct ckpt_damage){
		.checkpoint = ckpt_checkpoint_info(c)->name,
		.item = ckpt_item_at(c, t->item)->name,
		.tensor = t->name, .tensor_len = t->name_len, .what = what });
}

/* ---- manifests ---- */

static int demand_chunks(struct check *k, struct ckpt_checkpoint *c,
			 const struct ckpt_tensor_info *t,
			 const struct cks_chunks *chunks)
{
	for (uint64_t i = 0; i < chunks->count; i++) {
		const struct ckf_chunk_entry *e = &chunks->entries[i];

		if (!grow(&k->demands, k->demand_count, &k->demand_cap,
			  sizeof(*k->demands)))
			return ckb_err_nomem(k->err);
		struct demand *d = &k->demands[k->demand_count++];

		*d = (struct demand){
			.off = e->off, .stored_len = e->stored_len,
			.head_len = e->head_len, .raw_len = e->raw_len,
			.codec = e->codec,
			.ckpt = (uint32_t)k->name_count,
			.tensor = (uint32_t)t->index, .entry = i,
		};
		memcpy(d->pack, cks_checkpoint_pack(c, e->pack),
		       CKPT_UUID_BYTES);
		memcpy(d->digest, e->digest, CKPT_DIGEST_BYTES);
	}
	return 0;
}

/* A tensor of whole tiles has a root that follows from their digests; nothing
 * else has one. */
static int check_root(const struct ckpt_tensor_info *t,
		      const struct cks_chunks *chunks, struct ckpt_err *err)
{
	CKB_BUF struct ckb_buf input = { 0 };
	uint8_t made[CKPT_DIGEST_BYTES];
	bool whole = true;

	ckf_root_preamble(t->dtype, t->shape, &input);
	for (uint64_t i = 0; i < chunks->count; i++) {
		whole = whole && chunks->entries[i].shard == CKF_WHOLE_TILE;
		ckb_buf_put(&input, chunks->entries[i].digest,
			    CKPT_DIGEST_BYTES);
	}
	if (input.failed)
		return ckb_err_nomem(err);
	ckc_sha256(input.data, input.len, made);
	if (t->has_root != (whole && !t->media_type))
		return ckb_err(err, CKPT_ECORRUPT, "it has %s",
			       t->has_root ? "a root, which it cannot have"
					   : "no root");
	if (t->has_root && memcmp(made, t->root, sizeof(made)) != 0)
		return ckb_err(err, CKPT_ECORRUPT, "its root does not follow "
			       "from its tiles' digests");
	return 0;
}

static int by_box(const void *a, const void *b, void *ctx)
{
	const struct ckpt_box *x = a, *y = b;
	size_t n = *(const uint32_t *)ctx * sizeof(x->origin[0]);
	int c = memcmp(x->origin, y->origin, n);

	return c ? c : memcmp(x->extent, y->extent, n);
}

/* The shards cover the tensor exactly once, replicas counted once (S7). */
static int check_layout(const struct cks_chunks *chunks, struct ckpt_err *err)
{
	const struct ckt_grid *g = &chunks->grid;
	uint32_t n = 0, a, b, count = chunks->layout.shard_count;
	CKB_FREE struct ckpt_box *boxes = NULL;

	if (count == 0 || g->bytes == 0)
		return 0;
	boxes = calloc(count, sizeof(*boxes));
	if (!boxes)
		return ckb_err_nomem(err);
	for (uint32_t i = 0; i < count; i++) {
		const struct ckf_shard *s = &chunks->layout.shards[i];

		boxes[i].ndim = g->ndim;
		memcpy(boxes[i].origin, s->origin, g->ndim * sizeof(uint64_t));
		memcpy(boxes[i].extent, s->extent, g->ndim * sizeof(uint64_t));
	}
	qsort_r(boxes, count, sizeof(*boxes), by_box, (void *)&g->ndim);
	for (uint32_t i = 0; i < count; i++)
		if (n == 0 || !ckt_box_equal(&boxes[n - 1], &boxes[i]))
			boxes[n++] = boxes[i];
	int rc = ckt_cover_check(g->ndim, g->shape, boxes, n, &a, &b, err);

	return rc == CKPT_EINVAL ? ckb_err_prefix(err, CKPT_ECORRUPT,
						  "its layout") : rc;
}

static int check_tensor(struct check *k, struct ckpt_checkpoint *c,
			const struct ckpt_tensor_info *t)
{
	struct cks_chunks *chunks;
	struct ckpt_err why = { 0 };
	int rc = cks_chunks_load(c, t, &chunks, &why);

	if (rc == 0) {
		rc = check_root(t, chunks, &why);
		if (rc == CKPT_ECORRUPT) {
			tell_tensor(k, c, t, why.message);
			rc = 0;
		}
	}
	if (rc == 0)
		rc = check_layout(chunks, &why);
	if (rc < 0 && fatal(k, rc, &why)) {
		cks_chunks_free(chunks);
		return rc;
	}
	if (rc < 0)
		tell_tensor(k, c, t, why.message);
	/* what is there is looked at all the same; aliases have no chunks */
	rc = chunks && t->alias_of == SIZE_MAX
		     ? demand_chunks(k, c, t, chunks) : 0;
	cks_chunks_free(chunks);
	return rc;
}

static int open_whole(struct check *k, const char *name,
		      struct ckpt_checkpoint **out, struct ckpt_err *err)
{
	int rc = ckpt_checkpoint_open(k->store, name, out, err);

	if (rc == 0)
		rc = ckq_manifest_verify(cks_checkpoint_manifest(*out), err);
	if (rc < 0) {
		ckpt_checkpoint_close(*out);
		*out = NULL;
	}
	return rc;
}

static int check_checkpoint(void *ctx, const char *name)
{
	struct check *k = ctx;
	struct ckpt_checkpoint *c = NULL;
	struct ckpt_err why = { 0 };
	int rc = open_whole(k, name, &c, &why);

	if (rc == CKPT_ENOENT)
		return 0; /* removed since it was listed */
	k->result->checkpoint_count++;
	if (rc < 0 && fatal(k, rc, &why))
		return rc;
	if (rc < 0) {
		tell(k, &(struct ckpt_damage){ .checkpoint = name,
					       .what = why.message });
		return 0;
	}
	rc = grow(&k->names, k->name_count, &k->name_cap, sizeof(*k->names))
		     ? 0 : ckb_err_nomem(k->err);
	for (size_t i = 0; rc == 0 && i < ckpt_tensor_count(c); i++) {
		k->result->tensor_count++;
		rc = check_tensor(k, c, ckpt_tensor_at(c, i));
	}
	ckpt_checkpoint_close(c);
	if (rc == 0) {
		k->names[k->name_count] = strdup(name);
		rc = k->names[k->name_count] ? 0 : ckb_err_nomem(k->err);
		k->name_count += rc == 0;
	}
	return rc;
}

/* ---- telling whose a bad record is ---- */

/* Keep @what for the demands [@d, @d + @n) of the pack at hand. */
static int note(struct check *k, const struct demand *d, size_t n,
		const char *what)
{
	if (!grow(&k->whats, k->what_count, &k->what_cap, sizeof(*k->whats)))
		return ckb_err_nomem(k->err);
	k->whats[k->what_count] = strdup(what);
	if (!k->whats[k->what_count])
		return ckb_err_nomem(k->err);
	k->what_count++;
	for (size_t i = 0; i < n; i++) {
		if (!grow(&k->findings, k->finding_count, &k->finding_cap,
			  sizeof(*k->findings)))
			return ckb_err_nomem(k->err);
		k->findings[k->finding_count++] = (struct finding){
			&d[i], k->what_count - 1 };
	}
	return 0;
}

static int by_owner(const void *a, const void *b)
{
	const struct demand *x = ((const struct finding *)a)->demand;
	const struct demand *y = ((const struct finding *)b)->demand;

	if (x->ckpt != y->ckpt)
		return x->ckpt < y->ckpt ? -1 : 1;
	if (x->tensor != y->tensor)
		return x->tensor < y->tensor ? -1 : 1;
	return (x->entry > y->entry) - (x->entry < y->entry);
}

/* Findings [@f, @f + @n) are of one tensor of @c; @c may be NULL when its
 * manifest is gone meanwhile. */
static void tell_owner(struct check *k, struct ckpt_checkpoint *c,
		       const struct finding *f, size_t n, const char *pack)
{
	const struct demand *d = f->demand;
	struct ckpt_damage out = { .checkpoint = k->names[d->ckpt],
				   .pack = pack };
	struct cks_chunks *chunks = NULL;
	const struct ckpt_tensor_info *t = c ? ckpt_tensor_at(c, d->tensor)
					     : NULL;
	struct ckpt_box box;

	if (t) {
		out.item = ckpt_item_at(c, t->item)->name;
		out.tensor = t->name;
		out.tensor_len = t->name_len;
		if (cks_chunks_load(c, t, &chunks, NULL) < 0)
			chunks = NULL;
	}
	for (size_t i = 0; i < n; i++) {
		d = f[i].demand;
		out.box = NULL;
		if (chunks && d->entry < chunks->count) {
			cks_chunk_box(chunks, &chunks->entries[d->entry],
				      &box);
			cks_box_logical(chunks, t, &box);
			out.box = &box;
		}
		out.pack_off = d->off;
		out.what = k->whats[f[i].what];
		tell(k, &out);
	}
	cks_chunks_free(chunks);
}

/* Tell what was noted of the pack at hand, and forget it. */
static void tell_findings(struct check *k, const char *pack)
{
	struct ckpt_checkpoint *c = NULL;
	const struct finding *f = k->findings;
	size_t n = k->finding_count;

	if (n > 0)
		qsort(k->findings, n, sizeof(*k->findings), by_owner);
	for (size_t i = 0, end; i < n; i = end) {
		const struct demand *d = f[i].demand;

		if (i == 0 || f[i - 1].demand->ckpt != d->ckpt) {
			ckpt_checkpoint_close(c);
			if (ckpt_checkpoint_open(k->store, k->names[d->ckpt],
						 &c, NULL) < 0)
				c = NULL;
		}
		for (end = i + 1; end < n && f[end].demand->ckpt == d->ckpt &&
				  f[end].demand->tensor == d->tensor;)
			end++;
		tell_owner(k, c, f + i, end - i, pack);
	}
	ckpt_checkpoint_close(c);
	for (size_t i = 0; i < k->what_count; i++)
		free(k->whats[i]);
	k->finding_count = k->what_count = 0;
}

/* ---- records ---- */

static int check_cells(struct check *k, struct ckc_pack *p, uint64_t off,
		       uint32_t head_len, const struct ckf_record *r,
		       struct ckpt_err *err)
{
	bool full = k->opts->depth == CKPT_CHECK_FULL;
	struct ckc_sha256 *sha = full ? ckc_sha256_new() : NULL;
	uint8_t digest[CKPT_DIGEST_BYTES];
	int rc = full && !sha ? ckb_err_nomem(err) : 0;

	for (uint32_t i = 0; rc == 0 && i < r->cell_count; i++) {
		rc = ckc_pack_cell(p, off, head_len, r, i, k->cell,
				   k->scratch, err);
		if (rc == 0 && full)
			ckc_sha256_add(sha, k->cell,
				       ckf_cell_raw_len(r->raw_len, i));
	}
	if (rc == 0 && full) {
		ckc_sha256_end(sha, digest);
		if (memcmp(digest, r->digest, sizeof(digest)) != 0)
			rc = ckb_err(err, CKPT_ECORRUPT, "its bytes do not "
				     "match their SHA-256");
	}
	ckc_sha256_free(sha);
	return rc;
}

/* S6: what the manifest names is what lies there. */
static bool is_demanded(const struct ckf_record *r, const struct demand *d)
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
static const struct ckf_trailer_entry *listed(const struct check *k,
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
static int check_record(struct check *k, struct ckc_pack *p, uint64_t off,
			uint32_t head_len, const struct demand *d,
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
	if (rc == 0 && k->opts->depth >= CKPT_CHECK_CELLS)
		rc = check_cells(k, p, off, head_len, &r, err);
	k->result->chunk_count += rc == 0;
	return rc;
}

/* @looked: the bytes were there to look at. */
static void progress(struct check *k, uint64_t stored_len, bool looked)
{
	k->done += stored_len;
	if (looked)
		k->result->bytes += stored_len;
	if (k->opts->on_progress)
		k->opts->on_progress(k->opts->ctx, k->done, k->total);
}

static int by_place(const void *a, const void *b)
{
	const struct demand *x = a, *y = b;
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

static int check_demands(struct check *k, struct ckc_pack *p,
			 bool has_trailer, const struct demand *d, size_t n)
{
	for (size_t i = 0, same; i < n; i = same) {
		struct ckpt_err why = { 0 };
		int rc = check_record(k, p, d[i].off, d[i].head_len, &d[i],
				      has_trailer, &why);

		for (same = i + 1; same < n && by_place(&d[i], &d[same]) == 0;)
			same++;
		progress(k, d[i].stored_len, true);
		if (rc == 0)
			continue;
		if (fatal(k, rc, &why))
			return rc;
		if (rc == CKPT_ECORRUPT)
			cks_bad_note(k->store, d[i].pack, d[i].off,
				     d[i].digest, why.message);
		rc = note(k, &d[i], same - i, why.message);
		if (rc < 0)
			return rc;
	}
	return 0;
}

/* ---- one pack as a whole ---- */

static int take_extent(void *ctx, const struct ckf_trailer_entry *e)
{
	struct check *k = ctx;

	if (!grow(&k->extents, k->extent_count, &k->extent_cap,
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
static int tell_place(struct check *k, const char *path, uint64_t off, int rc,
		      const struct ckpt_err *why)
{
	if (rc == 0)
		return 0;
	if (fatal(k, rc, why))
		return rc;
	tell(k, &(struct ckpt_damage){ .pack = path, .pack_off = off,
				       .what = why->message });
	return 0;
}

/* Records that no checkpoint asked for, and the gaps. */
static int check_rest(struct check *k, struct ckc_pack *p, const char *path,
		      const struct demand *d, size_t n)
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
		rc = tell_place(k, path, e->off, rc, &why);
		progress(k, e->stored_len, true);
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
static int lost_pack(struct check *k, const char *path,
		     const struct demand *d, size_t n, const char *what)
{
	char text[CKPT_ERR_MESSAGE_BYTES + 64];
	size_t count = 0, end;

	if (n == 0) {
		tell(k, &(struct ckpt_damage){ .pack = path, .what = what });
		return 0;
	}
	int rc = note(k, d, n, what);

	for (size_t i = 0; i < n; i++)
		if (i == 0 || by_place(&d[i - 1], &d[i]) != 0)
			progress(k, d[i].stored_len, false);
	if (rc == 0)
		qsort(k->findings, n, sizeof(*k->findings), by_owner);
	for (size_t i = 0; rc == 0 && i < n; i = end) {
		struct finding first = k->findings[i];

		for (end = i + 1; end < n && k->findings[end].demand->ckpt ==
				  first.demand->ckpt &&
				  k->findings[end].demand->tensor ==
				  first.demand->tensor;)
			end++;
		if (end - i > 1) {
			snprintf(text, sizeof(text), "%s; %zu chunks of this "
				 "tensor lie in it", what, end - i);
			rc = note(k, NULL, 0, text);
			first.what = k->what_count - 1;
		}
		k->result->damage_count += end - i - 1;
		k->findings[count++] = first;
	}
	k->finding_count = count;
	return rc;
}

/* Not the store's table of open packs: what was read before proves nothing. */
static int open_pack(struct check *k, const uint8_t uuid[16],
		     struct ckc_pack **out, struct ckpt_err *err)
{
	char path[CKS_PACK_PATH_BYTES];

	cks_pack_path(path, uuid);
	int rc = ckc_pack_open(k->store->sys, k->store->dirfd, path, uuid, out,
			       err);

	return rc == CKPT_ENOENT ? ckb_err(err, CKPT_ECORRUPT, "the pack is "
					   "missing") : rc;
}

static int read_trailer(struct check *k, struct ckc_pack *p, const char *path)
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

/* @d: the demands on this pack, by offset; @whole: look at the rest too. */
static int check_pack(struct check *k, const uint8_t uuid[16],
		      const struct demand *d, size_t n, bool whole)
{
	char path[CKS_PACK_PATH_BYTES];
	struct ckc_pack *p = NULL;
	struct ckpt_err why = { 0 };

	cks_pack_path(path, uuid);
	int rc = open_pack(k, uuid, &p, &why);

	if (rc < 0) {
		if (fatal(k, rc, &why))
			return rc;
		rc = lost_pack(k, path, d, n, why.message);
		tell_findings(k, path);
		return rc;
	}
	int trailer = read_trailer(k, p, path);

	rc = trailer == CKPT_ECORRUPT ? 0 : trailer;
	if (rc == 0)
		rc = check_demands(k, p, trailer == 0, d, n);
	if (rc == 0 && trailer == 0 && whole &&
	    k->opts->depth >= CKPT_CHECK_CELLS)
		rc = check_rest(k, p, path, d, n);
	tell_findings(k, path);
	ckc_pack_close(p);
	return rc;
}

/* ---- all packs ---- */

struct uuids {
	struct check *k;
	const char *folder;  /* being listed */
	uint8_t (*list)[CKPT_UUID_BYTES];
	size_t count, cap;
};

static int take_pack(void *ctx, const char *name, unsigned char type)
{
	struct uuids *u = ctx;
	char text[CKB_UUID_TEXT_BYTES];
	uint8_t uuid[CKPT_UUID_BYTES];

	(void)type;
	snprintf(text, sizeof(text), "%s", name);
	if (!ckb_uuid_parse(uuid, text) || strcmp(name + 36, ".pack") != 0)
		return 0;
	if (!grow(&u->list, u->count, &u->cap, sizeof(*u->list)))
		return -ENOMEM;
	memcpy(u->list[u->count++], uuid, CKPT_UUID_BYTES);
	return 0;
}

static int take_folder(void *ctx, const char *name, unsigned char type)
{
	struct uuids *u = ctx;
	struct ckpt_store *s = u->k->store;
	struct ckpt_err why = { 0 };
	char path[300];

	(void)type;
	snprintf(path, sizeof(path), "packs/%s", name);
	int rc = s->sys->list(s->sys, s->dirfd, path, take_pack, u);

	if (rc == -ENOTDIR || rc >= 0)
		return 0;
	if (rc == -ENOMEM || rc == -EMFILE || rc == -ENFILE)
		return rc;
	ckb_err_sys(&why, -rc, "the folder cannot be listed");
	tell(u->k, &(struct ckpt_damage){ .pack = path, .what = why.message });
	return 0;
}

static int compare_uuid(const void *a, const void *b)
{
	return memcmp(a, b, CKPT_UUID_BYTES);
}

static int list_packs(struct check *k, struct uuids *u)
{
	struct ckpt_store *s = k->store;
	int rc = s->sys->list(s->sys, s->dirfd, "packs", take_folder, u);

	/* a store copied without its empty folders has none */
	if (rc == -ENOENT)
		rc = 0;
	if (rc == -ENOMEM)
		return ckb_err_nomem(k->err);
	if (rc < 0)
		return ckb_err_sys(k->err, -rc, "cannot list '%s/packs'",
				   s->path);
	if (u->count > 0)
		qsort(u->list, u->count, sizeof(*u->list), compare_uuid);
	return 0;
}

static int check_packs(struct check *k, bool all)
{
	struct uuids u = { .k = k };
	size_t at = 0;
	int rc = all ? list_packs(k, &u) : 0;

	for (size_t i = 0; rc == 0 && (i < u.count || at < k->demand_count);) {
		/* the next pack of either list, in order of uuids */
		int c = i >= u.count ? 1 : at >= k->demand_count ? -1
			: memcmp(u.list[i], k->demands[at].pack,
				 CKPT_UUID_BYTES);
		const uint8_t *uuid = c < 0 ? u.list[i] : k->demands[at].pack;
		size_t n = 0;

		while (c >= 0 && at + n < k->demand_count &&
		       memcmp(k->demands[at + n].pack, uuid,
			      CKPT_UUID_BYTES) == 0)
			n++;
		rc = check_pack(k, uuid, k->demands + at, n, all);
		at += n;
		i += c <= 0;
	}
	free(u.list);
	return rc;
}

static int gather(struct check *k, const char *name)
{
	bool is_run = false;
	int rc;

	k->cell = malloc(CKB_CELL_BYTES);
	k->scratch = malloc(CKB_CELL_BYTES);
	if (!k->cell || !k->scratch)
		return ckb_err_nomem(k->err);
	if (!name) {
		rc = cks_store_walk(k->store, check_checkpoint, k, k->err);
	} else {
		rc = cks_name_stat(k->store, name, &is_run, NULL, k->err);
		if (rc == CKPT_ENOENT || (rc == 0 && is_run))
			return ckb_err(k->err, CKPT_ENOENT, "there is no "
				       "checkpoint '%s'", name);
		if (rc == 0)
			rc = check_checkpoint(k, name);
	}
	if (rc == 0 && k->demand_count > 0)
		qsort(k->demands, k->demand_count, sizeof(*k->demands),
		      by_place);
	for (size_t i = 0; i < k->demand_count; i++)
		if (i == 0 || by_place(&k->demands[i - 1], &k->demands[i]) != 0)
			k->total += k->demands[i].stored_len;
	return rc;
}

int ckpt_store_check(struct ckpt_store *store, const char *name,
		     const struct ckpt_check_opts *opts,
		     struct ckpt_check_result *out, struct ckpt_err *err)
{
	struct check k = { .store = store, .opts = opts, .result = out,
			   .err = err };

	CKB_REQUIRE(store && opts && out);
	if (opts->size < sizeof(*opts))
		return ckb_err(err, CKPT_EINVAL, "ckpt_check_opts.size is %zu, "
			       "not %zu", opts->size, sizeof(*opts));
	memset(out, 0, sizeof(*out));
	int rc = gather(&k, name);

	if (rc == 0)
		rc = check_packs(&k, name == NULL);
	for (size_t i = 0; i < k.name_count; i++)
		free(k.names[i]);
	free(k.names);
	free(k.demands);
	free(k.extents);
	free(k.findings);
	free(k.whats);
	free(k.cell);
	free(k.scratch);
	return rc;
}
