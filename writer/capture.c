/* SPDX-License-Identifier: Apache-2.0 */
/*
 * capture.c - chunks out of the caller's hands: what a save consists of, which
 * chunks go together, and their bytes into a slab.
 *
 * The plan lists the chunks of all entries, tile by tile in the grid's order,
 * and in each tile box by box: a box that holds the tile gives a whole tile,
 * others give fragments. So chunks come sorted by (tile, shard) as the manifest
 * wants them, and the same tensor gives the same chunks whoever holds it.
 *
 * Of borrowed memory a tile that is as it was in the last save is found where
 * it lies and takes no staging: its head is compared, then all of it. Where
 * heads differ, as in every step of dense training, nothing but the copy is
 * made. Nothing is allocated here once the plan stands.
 *
 * Threads: any, at once, for borrowed memory; some, or one at a time, for what
 * providers must be asked for (enum ckw_kind).
 */
#include <stdlib.h>
#include <string.h>

#include "base/hash.h"
#include "base/limits.h"
#include "format/entry.h"
#include "pipeline.h"
#include "tensor/stats.h"

/* ---- the plan ---- */

/* Can statistics be taken tile by tile? F6 elements of four to three bytes may
 * lie across the edge of two tiles; boxes never cut them. */
static bool countable(const struct ckw_tensor *t, const struct ckt_grid *g)
{
	uint32_t last = g->ndim ? g->ndim - 1 : 0;

	if (t->media_type)
		return false;
	return ckpt_dtype_bits(t->dtype) != 6 || g->ndim == 0 ||
	       g->count[last] <= 1 || g->tile[last] % 3 == 0;
}

static int add_chunk(struct ckpt_save *s, const struct ckw_tensor *t,
		     const struct ckt_grid *grid, uint64_t tile,
		     const struct ckpt_box *box, const struct ckpt_box *part,
		     uint32_t i, bool whole, uint64_t src_off,
		     struct ckpt_err *err)
{
	struct ckw_chunk *c;
	uint64_t end;

	if (!ckb_room(&s->plan, s->plan_count, &s->plan_cap, sizeof(*s->plan)))
		return ckb_err_nomem(err);
	c = &s->plan[s->plan_count++];
	*c = (struct ckw_chunk){
		.tile = tile, .shard = whole ? CKF_WHOLE_TILE : i, .box = i,
		.src_off = src_off,
		.raw_len = (uint32_t)ckt_box_bytes(part, grid->item_bytes),
	};
	if (!t->base)
		ckw_band(box, part, grid->item_bytes, &c->band, &end);
	return 0;
}

static int plan_tile(struct ckpt_save *s, const struct ckw_tensor *t,
		     const struct ckt_grid *grid, uint64_t tile,
		     const struct ckpt_box *boxes, uint32_t count,
		     struct ckpt_err *err)
{
	struct ckpt_box box, part;
	uint64_t src_off = 0;
	uint32_t parts = 0;

	ckt_grid_tile(grid, tile, &box);
	for (uint32_t i = 0; i < count; i++) {
		uint64_t bytes = ckt_box_bytes(&boxes[i], grid->item_bytes);

		if (ckt_box_meet(&box, &boxes[i], &part)) {
			bool whole = ckt_box_equal(&part, &box);
			int rc = ++parts > CKB_TILE_CHUNK_MAX
				? ckb_err(err, CKPT_ELIMIT, "tile %ju is cut "
					  "by more than %u shards",
					  (uintmax_t)tile, CKB_TILE_CHUNK_MAX)
				: add_chunk(s, t, grid, tile, &boxes[i], &part,
					    i, whole, src_off, err);

			if (rc < 0 || whole) /* no other box meets it (S7) */
				return rc;
		}
		src_off += bytes;
	}
	return 0;
}

static int plan_tensor(struct ckpt_save *s, struct ckw_tensor *t,
		       struct ckpt_err *err)
{
	const struct ckpt_provider *p = &t->provider;
	uint32_t count = t->boxes ? t->box_count : 1;
	CKB_FREE struct ckpt_box *boxes = calloc(count, sizeof(*boxes));
	struct ckt_grid grid;
	int rc = ckw_grid(t, &grid, err);

	if (rc == 0 && !boxes)
		rc = ckb_err_nomem(err);
	if (rc < 0)
		return rc;
	for (uint32_t i = 0; i < count; i++)
		ckw_box(t, &grid, i, &boxes[i]);
	if (p->ops && p->ops->borrow && t->held > 0 && !ckw_serialises(p))
		t->base = p->ops->borrow(p->ctx, 0, (size_t)t->held);
	t->parallel = ckw_parallel(p);
	ckt_stats_init(&t->stats, t->dtype);
	if (!countable(t, &grid))
		t->stats.value_class = CKPT_VALUES_NONE;
	for (uint64_t tile = 0; rc == 0 && tile < grid.tile_count; tile++)
		rc = plan_tile(s, t, &grid, tile, boxes, count, err);
	return rc;
}

int ckw_in_tensor(const struct ckw_tensor *t, struct ckpt_err *err)
{
	char q[CKB_QUOTE_BYTES];

	return ckb_err_prefix(err, err->code, "%s '%s'",
			      t->media_type ? "file" : "tensor",
			      ckb_quote(q, sizeof(q), t->name, t->name_len));
}

static int plan_entry(struct ckpt_save *s, struct ckw_tensor *t,
		      struct ckpt_err *err)
{
	struct ckpt_err why = { 0 };
	int rc = 0;

	t->first_chunk = s->plan_count;
	if (t->alias_of == SIZE_MAX && plan_tensor(s, t, &why) < 0) {
		rc = ckw_in_tensor(t, &why);
		if (err)
			*err = why;
	}
	t->chunk_count = s->plan_count - t->first_chunk;
	return rc;
}

/* Chunks of what tells its size later are put behind, and must not move those
 * that are in work. */
static int keep_room(struct ckpt_save *s, size_t late, struct ckpt_err *err)
{
	size_t room = late > 0 ? CKB_SERIALISED_MAX / CKB_FILE_TILE_BYTES + late
			       : 0;

	if (late > 0) {
		size_t cap = s->plan_count + room;
		void *plan = realloc(s->plan, cap * sizeof(*s->plan));

		if (!plan)
			return ckb_err_nomem(err);
		s->plan = plan;
		s->plan_cap = cap;
	}
	s->parts = calloc(s->plan_count + room + 1, sizeof(*s->parts));
	return s->parts ? 0 : ckb_err_nomem(err);
}

int ckw_plan(struct ckpt_save *s, struct ckpt_err *err)
{
	size_t late = 0;

	for (size_t i = 0; i < s->tensor_count; i++) {
		struct ckw_tensor *t = &s->tensors[i];

		late += t->late;
		if (t->late)
			continue;
		int rc = plan_entry(s, t, err);

		if (rc < 0)
			return rc;
		if (ckw_serialises(&t->provider))
			continue; /* last, as are those behind it */
		s->ready = i + 1;
		s->ready_chunks = s->plan_count;
	}
	return keep_room(s, late, err);
}

int ckw_plan_late(struct ckpt_save *s, struct ckw_tensor *t,
		  struct ckpt_err *err)
{
	int rc = plan_entry(s, t, err);

	if (rc == 0)
		ckw_past_match(s, t, 1);
	return rc;
}

/* ---- what goes together ---- */

uint32_t ckw_unit(const struct ckpt_save *s, size_t tensor, size_t first,
		  size_t *out_bytes)
{
	const struct ckw_tensor *t = &s->tensors[tensor];
	const struct ckw_chunk *c = &s->plan[first], *next = c + 1;
	enum ckw_kind kind = ckw_kind(t);
	bool small = c->raw_len < CKW_SMALL_BYTES;
	size_t most = small ? CKW_BATCH_BYTES
			    : s->writer->opts.staging_bytes / 2;
	uint32_t n = 1, max = small ? CKW_BATCH_CHUNKS
			    : kind != CKW_MEMORY ? CKW_BAND_CHUNKS : 1;
	size_t at, end = ckw_slab_place(0, c->raw_len, &at);

	for (; n < max && first + n < s->ready_chunks; n++, next++) {
		size_t more = ckw_slab_place(end, next->raw_len, &at);

		while (first + n >= t->first_chunk + t->chunk_count)
			t++;
		/* small ones with the small of the same kind; bands alone */
		if (more > most || ckw_kind(t) != kind ||
		    (next->raw_len < CKW_SMALL_BYTES) != small ||
		    (!small && (t != &s->tensors[tensor] ||
				next->box != c->box || next->band != c->band)))
			break;
		end = more;
	}
	*out_bytes = (size_t)ckb_div_up(end, CKB_PAYLOAD_ALIGN) *
		     CKB_PAYLOAD_ALIGN;
	return n;
}

/* ---- the copy ---- */

/* The box of chunk @c, and of the shard that it is from. */
static void boxes_of(const struct ckw_tensor *t, const struct ckt_grid *grid,
		     const struct ckw_chunk *c, struct ckpt_box *out_box,
		     struct ckpt_box *out_part)
{
	struct ckpt_box tile;

	ckt_grid_tile(grid, c->tile, &tile);
	ckw_box(t, grid, c->box, out_box);
	CKB_INVARIANT(ckt_box_meet(&tile, out_box, out_part));
}

/* ckw_quick() of a tile where it lies. */
static uint64_t head_mark(const uint8_t *base, const struct ckt_grid *grid,
			  const struct ckpt_box *box,
			  const struct ckpt_box *part, uint32_t raw_len)
{
	uint8_t head[CKW_QUICK_BYTES];
	uint64_t off, to, len;
	struct ckt_runs runs;

	ckw_runs(&runs, box, part, grid->item_bytes);
	while (ckt_runs_next(&runs, &off, &to, &len) && to < sizeof(head))
		memcpy(head + to, base + off,
		       (size_t)ckb_min_u64(len, sizeof(head) - to));
	return ckw_quick(head, raw_len);
}

/* The mark of a tile where it lies. Runs of a column tile are short, and a
 * hash that is fed with them is half as fast: they are joined before. */
static void mark_of(uint64_t seed, const uint8_t *base,
		    const struct ckpt_box *box, const struct ckpt_box *part,
		    uint32_t item_bytes, uint64_t mark[2])
{
	uint8_t joined[16 << 10];
	uint64_t off, to, len;
	struct ckt_runs runs;
	struct ckb_mark m;
	size_t n = 0;

	ckb_mark_init(&m, seed);
	ckw_runs(&runs, box, part, item_bytes);
	bool join = runs.run_bytes <= sizeof(joined) / 2; /* all are as long */

	while (ckt_runs_next(&runs, &off, &to, &len)) {
		ckw_foresee(&runs, base, 0);
		if (!join) {
			ckb_mark_add(&m, base + off, (size_t)len);
			continue;
		}
		if (len > sizeof(joined) - n) {
			ckb_mark_add(&m, joined, n);
			n = 0;
		}
		memcpy(joined + n, base + off, (size_t)len);
		n += (size_t)len;
	}
	ckb_mark_add(&m, joined, n);
	ckb_mark_end(&m, mark);
}

/* Is the tile in memory as it was in the last save, and its chunk still there?
 * Then it is done. */
static bool unchanged(const struct ckpt_save *s, const struct ckw_tensor *t,
		      const struct ckt_grid *grid, const struct ckpt_box *box,
		      const struct ckpt_box *part, struct ckw_chunk *c)
{
	struct ckq_place place;
	const struct ckw_chunk *was = ckw_past_chunk(
		s, t, (size_t)(c - s->plan) - t->first_chunk, &place);
	uint64_t mark[2];

	if (!was || was->raw_len != c->raw_len ||
	    head_mark(t->base + c->src_off, grid, box, part, c->raw_len) !=
		    was->quick)
		return false;
	mark_of(s->writer->seed, t->base + c->src_off, box, part,
		grid->item_bytes, mark);
	if (memcmp(mark, was->mark, sizeof(mark)) != 0 ||
	    !cks_find_proved(s->find, was->digest, &place))
		return false;
	memcpy(c->digest, was->digest, sizeof(c->digest));
	memcpy(c->mark, mark, sizeof(mark));
	c->quick = was->quick;
	s->parts[c - s->plan] = *ckw_past_stats(
		s, t, (size_t)(c - s->plan) - t->first_chunk);
	return true;
}

/* Of borrowed memory. Returns how many chunks need no more. */
static uint32_t from_memory(struct ckpt_save *s, struct ckw_slab *slab)
{
	const struct ckw_tensor *t = &s->tensors[slab->tensor];
	uint32_t same = 0;
	size_t at = 0, place;

	for (uint32_t i = 0; i < slab->count; i++) {
		struct ckw_chunk *c = &s->plan[slab->first + i];
		struct ckpt_box box, part;
		struct ckt_grid grid;

		while (slab->first + i >= t->first_chunk + t->chunk_count)
			t++;
		CKB_INVARIANT(ckw_grid(t, &grid, NULL) == 0);
		boxes_of(t, &grid, c, &box, &part);
		at = ckw_slab_place(at, c->raw_len, &place);
		if (slab->count == 1 &&
		    unchanged(s, t, &grid, &box, &part, c)) {
			same++;
		} else {
			ckw_gather(t->base + c->src_off, 0, &box, &part,
				   grid.item_bytes, slab->data + place);
		}
	}
	return same;
}

/* Chunks of one band, from what must be asked. */
static int from_band(const struct ckw_tensor *t, const struct ckw_chunk *c,
		     uint32_t count, uint8_t *window, uint8_t *data, size_t *at,
		     struct ckpt_err *err)
{
	struct ckpt_box box, parts[CKW_BAND_CHUNKS];
	uint8_t *dst[CKW_BAND_CHUNKS];
	struct ckt_grid grid;
	size_t place;

	CKB_INVARIANT(ckw_grid(t, &grid, NULL) == 0);
	for (uint32_t i = 0; i < count; i++) {
		boxes_of(t, &grid, &c[i], &box, &parts[i]);
		*at = ckw_slab_place(*at, c[i].raw_len, &place);
		dst[i] = data + place;
	}
	return ckw_read_band(&t->provider, c->src_off, &box, grid.item_bytes,
			     parts, count, dst, window, err);
}

static int from_source(struct ckw_worker *k, struct ckpt_save *s,
		       struct ckw_slab *slab, struct ckpt_err *err)
{
	const struct ckw_tensor *t = &s->tensors[slab->tensor];
	const struct ckw_chunk *c = &s->plan[slab->first];
	bool band = c->raw_len >= CKW_SMALL_BYTES;
	struct ckpt_err why = { 0 };
	size_t at = 0;
	int rc = 0;

	uint8_t *window = ckw_window_take(k->pool);

	if (!window)
		return ckb_err_nomem(err);
	for (uint32_t i = 0; rc == 0 && i < slab->count;) {
		uint32_t n = band ? slab->count : 1;

		while (slab->first + i >= t->first_chunk + t->chunk_count)
			t++;
		rc = from_band(t, c + i, n, window, slab->data, &at, &why);
		i += n;
	}
	ckw_window_give(k->pool, window);
	if (rc < 0) {
		rc = ckw_in_tensor(t, &why);
		*err = why;
	}
	return rc;
}

bool ckw_capture(struct ckw_worker *k, struct ckw_slab *slab)
{
	struct ckpt_save *s = slab->save;
	struct ckpt_err err = { 0 };
	uint64_t bytes = 0;
	int rc = 0;

	if (ckw_aborted(s, NULL))
		return false;
	if (s->tensors[slab->tensor].base)
		slab->done = from_memory(s, slab);
	else
		rc = from_source(k, s, slab, &err);
	if (rc < 0) {
		ckw_pool_fail(s->writer, s->run, &err);
		return false;
	}
	for (uint32_t i = 0; i < slab->count; i++)
		bytes += s->plan[slab->first + i].raw_len;
	atomic_fetch_add_explicit(&s->captured, bytes, memory_order_relaxed);
	if (slab->done > 0) { /* the only one: it is as it was */
		atomic_fetch_add_explicit(&s->chunks, slab->done,
					  memory_order_relaxed);
		atomic_fetch_add_explicit(&s->hashed, bytes,
					  memory_order_relaxed);
	}
	return true;
}
