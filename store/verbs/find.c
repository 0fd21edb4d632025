/* SPDX-License-Identifier: Apache-2.0 */
/*
 * find.c - deduplication: is this chunk in the store already?
 *
 * First what this save wrote or proved itself, in a hash table keyed by the
 * digest's own bits; then the index. A hit of the index is only a hint: it
 * counts after the record header was read and shows digest and length, the
 * pack is neither condemned nor bad (DESIGN 4, S8), and its name is still
 * there: the store may hold a removed pack open. So an index that is old,
 * foreign or wrong costs space, never bytes; one that fails is asked no more.
 *
 * Where many hits lie in one pack, its trailer is read once and stands for the
 * headers.
 *
 * Threads that meet the same chunk at once: the first claims it and writes it,
 * the others take it for known; its place is there when all have come to an
 * end. Memory: one entry a chunk of this save, and trailers of at most 16 MiB.
 * Locks: one around the table, under which no lookup and no read is made; one
 * around the trailers, held while one is read.
 */
#include "verbs/find.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/bytes.h"
#include "base/limits.h"
#include "base/log.h"
#include "verbs/store_impl.h"
#include "verbs/uses.h"

#define CAP_FIRST 256

struct known {
	uint8_t digest[CKPT_DIGEST_BYTES];
	struct ckq_place place;
	bool used;
	bool fresh;   /* written by this save */
	bool claimed; /* being written: no place yet */
};

#define WITNESSES 64u
#define WITNESS_FROM 8u                  /* hits by header before */
#define WITNESS_ENTRIES ((16u << 20) / CKF_TRAILER_ENTRY_BYTES)

/* A pack that hits lie in. */
struct witness {
	uint8_t pack[CKPT_UUID_BYTES];
	uint32_t asked;
	bool tried;
	struct ckf_trailer_entry *entries; /* by digest; NULL: not read */
	size_t count, cap;
};

struct cks_find {
	struct ckpt_store *store;
	const struct cks_stage *stage;
	struct ckq_index *index;      /* or NULL */
	atomic_bool no_index;         /* it failed: ask it no more */
	pthread_mutex_t lock;         /* of slots, cap, count */
	struct known *slots;          /* open addressing, cap a power of two */
	size_t cap, count;
	pthread_mutex_t witness_lock; /* of all below */
	struct witness witnesses[WITNESSES];
	size_t witness_count, witness_entries;
};

int cks_find_new(struct ckpt_store *s, const struct cks_stage *stage,
		 struct cks_find **out, struct ckpt_err *err)
{
	struct cks_find *f = calloc(1, sizeof(*f));

	*out = NULL;
	if (!f)
		return ckb_err_nomem(err);
	f->store = s;
	f->stage = stage;
	f->cap = CAP_FIRST;
	pthread_mutex_init(&f->lock, NULL);
	pthread_mutex_init(&f->witness_lock, NULL);
	f->slots = calloc(f->cap, sizeof(*f->slots));
	if (!f->slots) {
		cks_find_free(f);
		return ckb_err_nomem(err);
	}
	/* no index: equal bytes of older saves are stored again */
	if (ckq_index_open(s->index_path, s->uuid, !s->readonly, &f->index,
			   NULL) < 0)
		ckb_log(CKB_INFO, "store '%s' has no index", s->path);
	*out = f;
	return 0;
}

void cks_find_free(struct cks_find *f)
{
	if (!f)
		return;
	ckq_index_close(f->index);
	pthread_mutex_destroy(&f->lock);
	pthread_mutex_destroy(&f->witness_lock);
	for (size_t i = 0; i < f->witness_count; i++)
		free(f->witnesses[i].entries);
	free(f->slots);
	free(f);
}

static struct known *slot_of(const struct cks_find *f,
			     const uint8_t digest[32])
{
	size_t at = (size_t)ckb_get_u64(digest) & (f->cap - 1);

	while (f->slots[at].used &&
	       memcmp(f->slots[at].digest, digest, CKPT_DIGEST_BYTES) != 0)
		at = (at + 1) & (f->cap - 1);
	return &f->slots[at];
}

/* The lock is held. The entry of @digest, made if there is none; NULL: out of
 * memory. */
static struct known *entry_of(struct cks_find *f, const uint8_t digest[32])
{
	if ((f->count + 1) * 4 > f->cap * 3) {
		struct known *old = f->slots;
		size_t old_cap = f->cap;

		f->slots = calloc(old_cap * 2, sizeof(*f->slots));
		if (!f->slots) {
			f->slots = old;
			return NULL;
		}
		f->cap = old_cap * 2;
		for (size_t i = 0; i < old_cap; i++)
			if (old[i].used)
				*slot_of(f, old[i].digest) = old[i];
		free(old);
	}
	struct known *k = slot_of(f, digest);

	if (!k->used) {
		f->count++;
		k->used = true;
		memcpy(k->digest, digest, CKPT_DIGEST_BYTES);
	}
	return k;
}

static int remember(struct cks_find *f, const uint8_t digest[32],
		    const struct ckq_place *place, bool fresh)
{
	pthread_mutex_lock(&f->lock);
	struct known *k = entry_of(f, digest);

	if (k) {
		k->place = *place;
		k->fresh = fresh;
		k->claimed = false;
	}
	pthread_mutex_unlock(&f->lock);
	return k ? 0 : CKPT_ENOMEM;
}

/* Is the pack's name still there, and this very file? */
static bool in_place(const struct cks_find *f, struct ckc_pack *pack)
{
	const struct ckpt_store *s = f->store;
	struct stat st;

	return s->sys->fstatat(s->sys, s->dirfd, ckc_pack_path(pack), &st) ==
		       0 && S_ISREG(st.st_mode) &&
	       (uint64_t)st.st_size == ckc_pack_file_bytes(pack);
}

/* ---- proof ---- */

static int take_entry(void *ctx, const struct ckf_trailer_entry *e)
{
	struct witness *w = ctx;

	if (w->count == WITNESS_ENTRIES ||
	    !ckb_room(&w->entries, w->count, &w->cap, sizeof(*w->entries)))
		return CKPT_ENOMEM;
	w->entries[w->count++] = *e;
	return 0;
}

/* The lock is held. A pack that cannot be read whole is no witness. */
static void read_trailer(struct cks_find *f, struct witness *w)
{
	struct ckc_pack *pack = NULL;

	w->tried = true;
	if (cks_pack_get(f->store, w->pack, &pack, NULL) < 0)
		return;
	if (!in_place(f, pack) ||
	    ckc_pack_trailer(pack, take_entry, w, NULL) != 0 ||
	    f->witness_entries + w->count > WITNESS_ENTRIES) {
		free(CKB_TAKE(w->entries));
		w->count = 0;
	}
	f->witness_entries += w->count;
	cks_pack_put(f->store, pack);
}

/* The lock is held. NULL: all that there may be are other packs'. */
static struct witness *witness_of(struct cks_find *f, const uint8_t pack[16])
{
	struct witness *w = f->witnesses;

	for (; w < f->witnesses + f->witness_count; w++)
		if (memcmp(w->pack, pack, CKPT_UUID_BYTES) == 0)
			return w;
	if (f->witness_count == WITNESSES)
		return NULL;
	f->witness_count++;
	memcpy(w->pack, pack, CKPT_UUID_BYTES);
	return w;
}

/* Does the trailer say so? -1: none was read. */
static int by_trailer(struct cks_find *f, const uint8_t digest[32],
		      const struct ckq_place *p)
{
	int answer = -1;

	pthread_mutex_lock(&f->witness_lock);
	struct witness *w = witness_of(f, p->pack);

	if (w && !w->tried && ++w->asked > WITNESS_FROM)
		read_trailer(f, w);
	if (w && w->entries) {
		size_t low = 0, high = w->count;

		while (low < high) {
			size_t mid = (low + high) / 2;
			const struct ckf_trailer_entry *e = &w->entries[mid];
			int c = memcmp(e->digest, digest, CKPT_DIGEST_BYTES);

			if (c < 0 || (c == 0 && e->off < p->off))
				low = mid + 1;
			else
				high = mid;
		}
		const struct ckf_trailer_entry *e = &w->entries[low];

		answer = low < w->count && e->off == p->off &&
			 memcmp(e->digest, digest, CKPT_DIGEST_BYTES) == 0 &&
			 e->kind == CKF_RECORD_CHUNK &&
			 e->head_len == p->head_len && e->codec == p->codec &&
			 e->stored_len == p->stored_len &&
			 e->raw_len == p->raw_len;
	}
	pthread_mutex_unlock(&f->witness_lock);
	return answer;
}

static bool by_header(struct cks_find *f, const uint8_t digest[32],
		      const struct ckq_place *p)
{
	struct ckf_cell cells[CKB_CHUNK_CELL_MAX];
	struct ckc_pack *pack = NULL;
	struct ckf_record r;
	uint64_t payload, end;

	if (!ckb_add_u64(p->off, p->head_len, &payload) ||
	    !ckb_add_u64(payload, p->stored_len, &end) ||
	    cks_pack_get(f->store, p->pack, &pack, NULL) < 0)
		return false;
	bool ok = end <= ckc_pack_file_bytes(pack) && in_place(f, pack) &&
		  ckc_pack_head(pack, p->off, p->head_len, cells,
				CKB_CHUNK_CELL_MAX, &r, NULL) == 0 &&
		  r.kind == CKF_RECORD_CHUNK && r.raw_len == p->raw_len &&
		  r.stored_len == p->stored_len && r.codec == p->codec &&
		  memcmp(r.digest, digest, CKPT_DIGEST_BYTES) == 0;

	cks_pack_put(f->store, pack);
	return ok;
}

/* The pack itself must say what the index says. */
static bool proved(struct cks_find *f, const uint8_t digest[32],
		   uint32_t raw_len, const struct ckq_place *p)
{
	if (p->raw_len != raw_len ||
	    !cks_stage_reusable(f->stage, p->pack, p->off))
		return false;
	int answer = by_trailer(f, digest, p);

	return answer >= 0 ? answer : by_header(f, digest, p);
}

/* What the index says, or false. */
static bool ask_index(struct cks_find *f, const uint8_t digest[32],
		      struct ckq_place *out)
{
	struct ckpt_err why = { 0 };

	if (!f->index || atomic_load(&f->no_index))
		return false;
	int rc = ckq_index_find(f->index, digest, out, &why);

	if (rc < 0 && rc != CKPT_ENOENT &&
	    !atomic_exchange(&f->no_index, true))
		ckb_log(CKB_WARN, "store '%s': %s; equal bytes of older saves "
			"are stored again (ckptfs reindex makes it anew)",
			f->store->path, why.message);
	return rc == 0;
}

/* 1: *@out; 0: claimed, no place yet; -1: not known. */
static int look_up(struct cks_find *f, const uint8_t digest[32],
		   struct ckq_place *out)
{
	pthread_mutex_lock(&f->lock);
	const struct known *k = slot_of(f, digest);
	int have = !k->used ? -1 : k->claimed ? 0 : 1;

	if (have == 1)
		*out = k->place;
	pthread_mutex_unlock(&f->lock);
	return have;
}

bool cks_find_proved(struct cks_find *f, const uint8_t digest[32],
		     const struct ckq_place *place)
{
	struct ckq_place known;

	if (look_up(f, digest, &known) == 1)
		return known.raw_len == place->raw_len;
	if (!proved(f, digest, place->raw_len, place))
		return false;
	/* out of memory here only means proving it again */
	return remember(f, digest, place, false) == 0;
}

bool cks_find_chunk(struct cks_find *f, const uint8_t digest[32],
		    uint32_t raw_len, struct ckq_place *out)
{
	struct ckq_place place;
	int have = look_up(f, digest, &place);

	if (have == 0 || (have == 1 && place.raw_len != raw_len))
		return false;
	if (have < 0 && (!ask_index(f, digest, &place) ||
			 !proved(f, digest, raw_len, &place)))
		return false;
	if (have < 0)
		(void)!remember(f, digest, &place, false);
	*out = place;
	return true;
}

bool cks_find_claim(struct cks_find *f, const uint8_t digest[32],
		    uint32_t raw_len)
{
	struct ckq_place place;

	pthread_mutex_lock(&f->lock);
	struct known *k = slot_of(f, digest);
	bool known = k->used;

	if (!known) {
		k = entry_of(f, digest);
		if (k)
			k->claimed = true;
	}
	pthread_mutex_unlock(&f->lock);
	if (known)
		return true;
	if (!ask_index(f, digest, &place) ||
	    !proved(f, digest, raw_len, &place))
		return false;
	return remember(f, digest, &place, false) == 0;
}

int cks_find_add(struct cks_find *f, const uint8_t digest[32],
		 const struct ckq_place *place, struct ckpt_err *err)
{
	return remember(f, digest, place, true) < 0 ? ckb_err_nomem(err) : 0;
}

static int by_digest(const void *a, const void *b)
{
	return memcmp(*(const struct known *const *)a,
		      *(const struct known *const *)b, CKPT_DIGEST_BYTES);
}

static int publish(struct cks_find *f, const struct known **fresh,
		   size_t count, struct ckpt_err *err)
{
	int rc = ckq_index_begin(f->index, false, err);

	if (rc < 0)
		return rc;
	for (size_t i = 0; rc == 0 && i < count; i++)
		rc = ckq_index_put(f->index, fresh[i]->digest,
				   &fresh[i]->place, err);
	if (rc == 0)
		return ckq_index_end(f->index, true, err);
	(void)!ckq_index_end(f->index, false, NULL);
	return rc;
}

void cks_find_publish(struct cks_find *f, const char *checkpoint)
{
	const struct known **fresh;
	struct ckpt_err err = { 0 };
	size_t n = 0;

	if (!f->index || atomic_load(&f->no_index))
		return;
	fresh = calloc(f->count + 1, sizeof(*fresh));
	if (!fresh)
		return;
	for (size_t i = 0; i < f->cap; i++)
		if (f->slots[i].used && f->slots[i].fresh)
			fresh[n++] = &f->slots[i];
	/* sorted by key: far fewer index pages are touched */
	if (n > 0)
		qsort(fresh, n, sizeof(*fresh), by_digest);
	if (publish(f, fresh, n, &err) < 0)
		ckb_log(CKB_WARN, "store '%s': the index was not brought up to "
			"date: %s", f->store->path, err.message);
	else
		cks_index_note(f->store, f->index, checkpoint);
	free(fresh);
}
