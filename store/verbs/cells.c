/* SPDX-License-Identifier: Apache-2.0 */
/*
 * cells.c - the cache of verified, decoded cells.
 *
 * Keyed by pack, record offset, cell number and what the manifest claims of the
 * record, so it knows nothing of checkpoints: equal chunks are cached once. A
 * miss is loaded by the thread that met it, without the lock, while others that
 * want the same cell wait for it; a failed load is told to all of them and
 * forgotten. Bounded (S9): before a load the least recently used idle cells go
 * until the budget holds; pinned cells are never evicted, so memory is the
 * budget plus what readers pin. A budget too small for a few cells is raised to
 * them, so that runs of one cell do not decode it again and again. The record
 * header of each chunk is cached the same way, as a cell without number, and
 * must agree with the manifest (S6).
 *
 * Locks: one per shard of the table; `changed` is its condition. No other lock
 * is taken under it. An entry's data is fixed once its state is READY.
 */
#include "verbs/cells.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#include "base/bytes.h"
#include "base/hash.h"
#include "verbs/store_impl.h"

#define SHARDS_MAX 16u
#define SHARD_CELLS 32u    /* that a shard has room for at least */
#define CELLS_MIN 4u       /* whatever the budget */
#define BUCKETS 512u       /* per shard */
#define HEAD UINT32_MAX    /* the "cell" that is the record header */

enum state { LOADING, READY, FAILED };

struct key {
	uint8_t pack[CKPT_UUID_BYTES];
	uint64_t off;
	uint32_t index;
	uint32_t claim;        /* hash of what the manifest says: one that
				  lies fails alone */
};

struct cks_cell {
	struct key key;
	enum state state;      /* guard: shard lock */
	uint32_t refs;         /* guard: shard lock */
	struct cks_cell *next; /* in the bucket; guard: shard lock */
	struct cks_cell *newer, *older; /* idle list; guard: shard lock */
	uint32_t shard;
	uint32_t len;
	uint8_t *data;         /* cell bytes, or a struct head */
	int code;              /* of FAILED; guard: shard lock */
	struct ckpt_err *err;  /* of FAILED, or NULL; guard: shard lock */
};

/* A record header, verified: what cell loads need. */
struct head {
	uint32_t head_len;
	struct ckf_record record;
	struct ckf_cell cells[];
};

struct shard {
	pthread_mutex_t lock;
	pthread_cond_t changed;
	struct cks_cell *buckets[BUCKETS];
	struct cks_cell idle;  /* list head: newer = oldest idle cell */
	size_t held;           /* bytes, idle and pinned */
	uint64_t hits, misses, decoded; /* cells; headers do not count */
};

struct cks_cells {
	size_t budget;         /* of one shard */
	uint32_t shard_count;
	struct shard shards[SHARDS_MAX];
};

/* What an entry counts for. */
static size_t cost(size_t len)
{
	return sizeof(struct cks_cell) + len;
}

int cks_cells_new(size_t budget_bytes, struct cks_cells **out,
		  struct ckpt_err *err)
{
	struct cks_cells *c = calloc(1, sizeof(*c));
	size_t least = CELLS_MIN * cost(CKB_CELL_BYTES);

	*out = NULL;
	if (!c)
		return ckb_err_nomem(err);
	if (budget_bytes < least)
		budget_bytes = least;
	c->shard_count = (uint32_t)ckb_min_u64(
		budget_bytes / (SHARD_CELLS * cost(CKB_CELL_BYTES)),
		SHARDS_MAX);
	if (c->shard_count == 0)
		c->shard_count = 1;
	c->budget = budget_bytes / c->shard_count;
	for (size_t i = 0; i < SHARDS_MAX; i++) {
		struct shard *s = &c->shards[i];

		pthread_mutex_init(&s->lock, NULL);
		pthread_cond_init(&s->changed, NULL);
		s->idle.newer = &s->idle;
		s->idle.older = &s->idle;
	}
	*out = c;
	return 0;
}

static void cell_free(struct cks_cell *cell)
{
	free(cell->err);
	free(cell->data);
	free(cell);
}

void cks_cells_free(struct cks_cells *c)
{
	if (!c)
		return;
	for (size_t i = 0; i < SHARDS_MAX; i++) {
		struct shard *s = &c->shards[i];

		for (size_t b = 0; b < BUCKETS; b++)
			while (s->buckets[b]) {
				struct cks_cell *cell = s->buckets[b];

				CKB_REQUIRE(cell->refs == 0);
				s->buckets[b] = cell->next;
				cell_free(cell);
			}
		pthread_mutex_destroy(&s->lock);
		pthread_cond_destroy(&s->changed);
	}
	free(c);
}

/* ---- the table; all under the shard's lock ---- */

static struct cks_cell **bucket_of(struct shard *s, const struct key *key)
{
	uint64_t h = ckb_xxh3(key, sizeof(*key));

	return &s->buckets[(h >> 32) % BUCKETS];
}

static uint32_t shard_of(const struct cks_cells *cells, const struct key *key)
{
	return (uint32_t)(ckb_xxh3(key, sizeof(*key)) % cells->shard_count);
}

static struct cks_cell *find(struct shard *s, const struct key *key)
{
	struct cks_cell *c = *bucket_of(s, key);

	while (c && memcmp(&c->key, key, sizeof(*key)) != 0)
		c = c->next;
	return c;
}

static void unlink_idle(struct cks_cell *c)
{
	if (!c->newer)
		return;
	c->newer->older = c->older;
	c->older->newer = c->newer;
	c->newer = c->older = NULL;
}

static void unlink_bucket(struct shard *s, struct cks_cell *c)
{
	struct cks_cell **at = bucket_of(s, &c->key);

	while (*at != c)
		at = &(*at)->next;
	*at = c->next;
}

/* Let idle cells go, the oldest first, until @more bytes fit the budget. */
static void make_room(struct cks_cells *cells, struct shard *s, size_t more)
{
	while (s->held + more > cells->budget && s->idle.newer != &s->idle) {
		struct cks_cell *c = s->idle.newer;

		unlink_idle(c);
		unlink_bucket(s, c);
		s->held -= cost(c->len);
		cell_free(c);
	}
}

/* ---- loading, without a lock ---- */

/* S6: the record header must say what the manifest says. */
static int check_head(const struct cks_cell *c, const struct cks_chunk *chunk,
		      struct ckpt_err *err)
{
	const struct head *h = (const struct head *)c->data;
	const struct ckf_record *r = &h->record;

	if (h->head_len == chunk->head_len && r->kind == CKF_RECORD_CHUNK &&
	    r->raw_len == chunk->raw_len &&
	    r->stored_len == chunk->stored_len && r->codec == chunk->codec &&
	    memcmp(r->digest, chunk->digest, CKPT_DIGEST_BYTES) == 0)
		return 0;
	return ckb_err(err, CKPT_ECORRUPT, "the record there is another one "
		       "than the manifest names");
}

static int load_head(struct ckpt_store *s, struct cks_cell *c,
		     const struct cks_chunk *chunk, struct ckpt_err *err)
{
	struct head *h = (struct head *)c->data;
	struct ckc_pack *pack = NULL;
	int rc = cks_pack_get(s, chunk->pack, &pack, err);

	h->head_len = chunk->head_len;
	if (rc == 0)
		rc = ckc_pack_head(pack, chunk->off, chunk->head_len, h->cells,
				   ckf_cell_count(chunk->raw_len), &h->record,
				   err);
	if (rc == 0)
		rc = check_head(c, chunk, err);
	cks_pack_put(s, pack);
	return rc;
}

/* Cell @index of @chunk, whose verified header is @head, into @dst. */
static int decode(struct ckpt_store *s, const struct cks_cell *head,
		  const struct cks_chunk *chunk, uint32_t index, void *dst,
		  struct ckpt_err *err)
{
	const struct ckf_record *r = &((const struct head *)head->data)->record;
	CKB_FREE uint8_t *scratch = NULL;
	struct ckc_pack *pack = NULL;
	int rc = cks_pack_get(s, chunk->pack, &pack, err);

	if (rc == 0 && r->cells[index].coding != CKF_CELL_RAW &&
	    r->cells[index].coding != CKF_CELL_CONSTANT) {
		scratch = malloc(CKB_CELL_BYTES);
		rc = scratch ? 0 : ckb_err_nomem(err);
	}
	if (rc == 0)
		rc = ckc_pack_cell(pack, chunk->off, chunk->head_len, r, index,
				   dst, scratch, err);
	cks_pack_put(s, pack);
	return rc;
}

static int get(struct ckpt_store *s, const struct cks_chunk *chunk,
	       uint32_t index, struct cks_cell **out, struct ckpt_err *err);

static int load_cell(struct ckpt_store *s, struct cks_cell *c,
		     const struct cks_chunk *chunk, struct ckpt_err *err)
{
	struct cks_cell *head = NULL;
	int rc = get(s, chunk, HEAD, &head, err);

	if (rc == 0)
		rc = decode(s, head, chunk, c->key.index, c->data, err);
	cks_cell_put(s, head);
	return rc;
}

/* ---- getting ---- */

/* A new LOADING entry, with one reference. */
static struct cks_cell *add(struct cks_cells *cells, struct shard *s,
			    const struct key *key, uint32_t shard, size_t len)
{
	struct cks_cell *c = calloc(1, sizeof(*c));

	if (c)
		c->data = malloc(len);
	if (!c || !c->data) {
		free(c);
		return NULL;
	}
	make_room(cells, s, cost(len));
	c->key = *key;
	c->shard = shard;
	c->len = (uint32_t)len;
	c->refs = 1;
	c->next = *bucket_of(s, key);
	*bucket_of(s, key) = c;
	s->held += cost(len);
	return c;
}

/* Drop one reference; the last one of a failed cell frees it. Under lock. */
static void release(struct cks_cells *cells, struct shard *s,
		    struct cks_cell *c)
{
	if (--c->refs > 0)
		return;
	if (c->state == FAILED) {
		s->held -= cost(c->len);
		cell_free(c);
		return;
	}
	c->newer = &s->idle;
	c->older = s->idle.older;
	c->older->newer = c;
	s->idle.older = c;
	make_room(cells, s, 0);
}

/* Wait until @c, which somebody loads, is done. Under lock. */
static int await(struct cks_cells *cells, struct shard *s, struct cks_cell *c,
		 struct ckpt_err *err)
{
	int rc = 0;

	while (c->state == LOADING)
		pthread_cond_wait(&s->changed, &s->lock);
	if (c->state == FAILED) {
		rc = c->code;
		if (c->err && err)
			*err = *c->err;
		else if (!c->err)
			rc = ckb_err_nomem(err);
		release(cells, s, c);
	}
	return rc;
}

static size_t entry_bytes(const struct cks_chunk *chunk, uint32_t index)
{
	if (index == HEAD)
		return sizeof(struct head) + ckf_cell_count(chunk->raw_len) *
						     sizeof(struct ckf_cell);
	return ckf_cell_raw_len(chunk->raw_len, index);
}

static int load(struct ckpt_store *store, struct shard *s, struct cks_cell *c,
		const struct cks_chunk *chunk, struct ckpt_err *err)
{
	struct ckpt_err mine = { 0 }, *kept = NULL;
	int rc = c->key.index == HEAD ? load_head(store, c, chunk, &mine)
				      : load_cell(store, c, chunk, &mine);

	if (rc < 0) {
		kept = malloc(sizeof(*kept));
		if (kept)
			*kept = mine;
		if (err)
			*err = mine;
	}
	pthread_mutex_lock(&s->lock);
	pthread_cond_broadcast(&s->changed);
	if (rc < 0) {
		/* not kept: the next reader tries again */
		unlink_bucket(s, c);
		c->state = FAILED;
		c->code = rc;
		c->err = kept;
		release(store->cells, s, c);
	} else {
		c->state = READY;
		s->decoded += c->key.index == HEAD ? 0 : c->len;
	}
	pthread_mutex_unlock(&s->lock);
	return rc;
}

static struct key key_of(const struct cks_chunk *chunk, uint32_t index)
{
	struct key key = { .off = chunk->off, .index = index };
	uint8_t claim[CKPT_DIGEST_BYTES + 20];

	memcpy(key.pack, chunk->pack, CKPT_UUID_BYTES);
	memcpy(claim, chunk->digest, CKPT_DIGEST_BYTES);
	ckb_put_u64(claim + 32, chunk->stored_len);
	ckb_put_u32(claim + 40, chunk->raw_len);
	ckb_put_u32(claim + 44, chunk->head_len);
	ckb_put_u32(claim + 48, chunk->codec);
	key.claim = (uint32_t)ckb_xxh3(claim, sizeof(claim));
	return key;
}

/* Pin what is there or on its way. *@out NULL: it is not. Under lock. */
static int join(struct cks_cells *cells, struct shard *s,
		const struct key *key, struct cks_cell **out,
		struct ckpt_err *err)
{
	struct cks_cell *c = find(s, key);

	*out = NULL;
	if (!c)
		return 0;
	c->refs++;
	unlink_idle(c);
	s->hits += key->index != HEAD;
	int rc = await(cells, s, c, err);

	if (rc == 0)
		*out = c;
	return rc;
}

static int get(struct ckpt_store *store, const struct cks_chunk *chunk,
	       uint32_t index, struct cks_cell **out, struct ckpt_err *err)
{
	struct cks_cells *cells = store->cells;
	struct key key = key_of(chunk, index);
	uint32_t number = shard_of(cells, &key);
	struct shard *s = &cells->shards[number];
	struct cks_cell *c, *fresh = NULL;

	*out = NULL;
	pthread_mutex_lock(&s->lock);
	int rc = join(cells, s, &key, &c, err);

	if (rc == 0 && !c) {
		s->misses += index != HEAD;
		fresh = add(cells, s, &key, number, entry_bytes(chunk, index));
		if (!fresh)
			rc = ckb_err_nomem(err);
	}
	pthread_mutex_unlock(&s->lock);
	if (fresh) {
		rc = load(store, s, fresh, chunk, err);
		c = rc == 0 ? fresh : NULL;
	} else if (c && index == HEAD) {
		/* a claim is a hash: look again */
		rc = check_head(c, chunk, err);
		if (rc < 0)
			cks_cell_put(store, CKB_TAKE(c));
	}
	*out = c;
	return rc;
}

int cks_cell_get(struct ckpt_store *s, const struct cks_chunk *chunk,
		 uint32_t index, struct cks_cell **out, struct ckpt_err *err)
{
	struct cks_cell *head = NULL;

	*out = NULL;
	CKB_REQUIRE(index < ckf_cell_count(chunk->raw_len));
	/* a cell cached for another manifest proves nothing about this one */
	int rc = get(s, chunk, HEAD, &head, err);

	if (rc == 0)
		rc = get(s, chunk, index, out, err);
	cks_cell_put(s, head);
	return rc;
}

int cks_cell_read(struct ckpt_store *store, const struct cks_chunk *chunk,
		  uint32_t index, void *dst, struct ckpt_err *err)
{
	struct key key = key_of(chunk, index);
	struct shard *s = &store->cells->shards[shard_of(store->cells, &key)];
	struct cks_cell *head = NULL, *c = NULL;

	CKB_REQUIRE(index < ckf_cell_count(chunk->raw_len));
	int rc = get(store, chunk, HEAD, &head, err);

	if (rc < 0)
		return rc;
	pthread_mutex_lock(&s->lock);
	rc = join(store->cells, s, &key, &c, err);
	s->misses += rc == 0 && !c;
	pthread_mutex_unlock(&s->lock);
	if (c)
		memcpy(dst, c->data, c->len);
	else if (rc == 0)
		rc = decode(store, head, chunk, index, dst, err);
	cks_cell_put(store, c);
	cks_cell_put(store, head);
	return rc;
}

const uint8_t *cks_cell_data(const struct cks_cell *cell, uint32_t *out_len)
{
	*out_len = cell->len;
	return cell->data;
}

void cks_cell_put(struct ckpt_store *store, struct cks_cell *cell)
{
	if (!cell)
		return;
	struct shard *s = &store->cells->shards[cell->shard];

	pthread_mutex_lock(&s->lock);
	release(store->cells, s, cell);
	pthread_mutex_unlock(&s->lock);
}

void cks_cells_counters(const struct ckpt_store *store,
			struct cks_cells_counters *out)
{
	memset(out, 0, sizeof(*out));
	for (size_t i = 0; i < SHARDS_MAX; i++) {
		struct shard *s = &store->cells->shards[i];

		pthread_mutex_lock(&s->lock);
		out->hits += s->hits;
		out->misses += s->misses;
		out->decoded_bytes += s->decoded;
		out->held_bytes += s->held;
		pthread_mutex_unlock(&s->lock);
	}
}
