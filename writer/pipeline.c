/* SPDX-License-Identifier: Apache-2.0 */
/*
 * pipeline.c - the background work of a save.
 *
 *	capture thread:  tile from its provider into a slot, statistics
 *	    | ring of slots: bounded, so a slow disk holds capture back (S9)
 *	hash thread:     SHA-256
 *	store thread:    known already? encode, append, chunk entry
 *	then, on the capture thread: manifest, last pack, commit
 *
 * Slots pass in order, so chunk entries and the merging of statistics follow
 * tile order whatever the threads do. When capture is through, every byte is in
 * a slot or stored, and the caller's buffers are needed no more (CAPTURED).
 *
 * A failure on either side stops both. A poisoned pack fails the save (S5): its
 * older chunks have left staging, and the caller may have changed the source.
 * Nothing of a failed save becomes visible (S3, S4).
 *
 * Locks: ring.lock guards counts and the error; a slot belongs to one side at a
 * time. Each count is written by its own side. The store thread alone touches
 * find, packs and chunk entries until it is joined.
 */
#include <stdlib.h>
#include <string.h>

#include "base/limits.h"
#include "chunk/digest.h"
#include "pipeline.h"

/* ---- the ring ---- */

void ckw_ring_fail(struct ckw_ring *r, const struct ckpt_err *err)
{
	CKB_INVARIANT(err->code != 0);
	pthread_mutex_lock(&r->lock);
	if (r->err.code == 0)
		r->err = *err;
	pthread_cond_broadcast(&r->moved);
	pthread_mutex_unlock(&r->lock);
}

struct ckw_slot *ckw_ring_slot(struct ckw_ring *r)
{
	struct ckw_slot *slot = NULL;
	struct ckpt_err err;

	if (ckw_aborted(r->save, &err)) {
		ckw_ring_fail(r, &err);
		return NULL;
	}
	pthread_mutex_lock(&r->lock);
	while (r->filled - r->taken == CKW_SLOTS && r->err.code == 0)
		pthread_cond_wait(&r->moved, &r->lock);
	if (r->err.code == 0)
		slot = &r->slots[r->filled % CKW_SLOTS];
	pthread_mutex_unlock(&r->lock);
	return slot;
}

static void ring_done(struct ckw_ring *r, uint64_t *done)
{
	pthread_mutex_lock(&r->lock);
	++*done;
	pthread_cond_broadcast(&r->moved);
	pthread_mutex_unlock(&r->lock);
}

void ckw_ring_fill(struct ckw_ring *r)
{
	ring_done(r, &r->filled);
}

static void ring_end(struct ckw_ring *r)
{
	pthread_mutex_lock(&r->lock);
	r->ended = true;
	pthread_cond_broadcast(&r->moved);
	pthread_mutex_unlock(&r->lock);
}

/* Slot @done, when the side before has come to @made > @done; NULL: no more
 * come. */
static struct ckw_slot *ring_next(struct ckw_ring *r, const uint64_t *made,
				  const uint64_t *done)
{
	struct ckw_slot *slot = NULL;

	pthread_mutex_lock(&r->lock);
	while (*made == *done && r->err.code == 0 &&
	       !(r->ended && r->filled == *done))
		pthread_cond_wait(&r->moved, &r->lock);
	if (r->err.code == 0 && *made != *done)
		slot = &r->slots[*done % CKW_SLOTS];
	pthread_mutex_unlock(&r->lock);
	return slot;
}

static void *hash_side(void *arg)
{
	struct ckw_ring *r = arg;
	struct ckw_slot *slot;

	while ((slot = ring_next(r, &r->filled, &r->hashed)) != NULL) {
		ckc_sha256(slot->data, slot->len, slot->digest);
		ring_done(r, &r->hashed);
	}
	return NULL;
}

static void *store_side(void *arg)
{
	struct ckw_ring *r = arg;
	struct ckw_slot *slot;

	while ((slot = ring_next(r, &r->hashed, &r->taken)) != NULL) {
		struct ckpt_err err = { 0 };

		if (ckw_put_slot(r->save, slot, &err) < 0) {
			ckw_ring_fail(r, &err);
			break;
		}
		ring_done(r, &r->taken);
	}
	return NULL;
}

static void ring_fini(struct ckw_ring *r)
{
	for (size_t i = 0; i < CKW_SLOTS; i++)
		free(r->slots[i].data);
	pthread_mutex_destroy(&r->lock);
	pthread_cond_destroy(&r->moved);
}

/* Pages of the slots are had as they are used: a small save takes little. */
static bool ring_init(struct ckw_ring *r, struct ckpt_save *s)
{
	bool ok = true;

	memset(r, 0, sizeof(*r));
	r->save = s;
	pthread_mutex_init(&r->lock, NULL);
	pthread_cond_init(&r->moved, NULL);
	for (size_t i = 0; i < CKW_SLOTS; i++) {
		r->slots[i].data = malloc(CKB_TILE_MAX_BYTES);
		ok = ok && r->slots[i].data;
	}
	return ok;
}

/* Capture and store every entry. On return 0 all chunks are in packs. */
static int move_bytes(struct ckpt_save *s, struct ckpt_err *err)
{
	struct ckw_ring r;
	pthread_t hash, store;
	int rc = ring_init(&r, s) ? 0 : ckb_err_nomem(&r.err);
	int hashing = -1, storing = -1;

	if (rc == 0)
		hashing = ckw_thread(&hash, "ckpt-hash", hash_side, &r);
	if (hashing == 0)
		storing = ckw_thread(&store, "ckpt-store", store_side, &r);
	if (rc == 0 && storing != 0)
		rc = ckb_err_sys(&r.err, hashing ? hashing : storing,
				 "cannot start a thread");
	if (rc == 0 && ckw_capture(&r))
		ckw_set_state(s, CKW_CAPTURED, NULL);
	ring_end(&r);
	if (hashing == 0)
		pthread_join(hash, NULL);
	if (storing == 0)
		pthread_join(store, NULL);
	rc = r.err.code;
	if (rc < 0)
		*err = r.err;
	ring_fini(&r);
	return rc;
}

/* ---- the save ---- */

static int commit(struct ckpt_save *s, struct ckpt_err *err)
{
	CKB_BUF struct ckb_buf manifest = { 0 };
	uint64_t seq = 0;
	int rc = ckw_manifest(s, &manifest, &seq, err);

	if (rc == 0)
		rc = ckw_put_end(s, &manifest, err);
	if (rc == 0 && ckw_aborted(s, err))
		rc = CKPT_ECANCELED;
	if (rc == 0) /* S2 is kept: every pack it names is published */
		rc = cks_stage_commit(s->stage, manifest.data, manifest.len,
				      s->replace, err);
	if (rc == 0 || rc == CKPT_EUNSURE)
		cks_find_publish(s->find, s->name);
	return rc;
}

static int run(struct ckpt_save *s, struct ckpt_err *err)
{
	int rc = ckw_codec(s->writer, &s->codec, err);

	if (rc == 0)
		rc = ckw_order(s, err);
	if (rc == 0)
		rc = move_bytes(s, err);
	if (rc == 0)
		rc = commit(s, err);
	if (rc < 0 && rc != CKPT_EUNSURE && rc != CKPT_ECANCELED)
		ckb_err_prefix(err, rc, "saving '%s'", s->name);
	return rc;
}

void *ckw_run(void *arg)
{
	struct ckpt_save *s = arg;
	struct ckpt_err err = { 0 };

	ckw_await_turn(s);
	int rc = ckw_aborted(s, &err) ? CKPT_ECANCELED : run(s, &err);

	/* before anybody is told: what was borrowed is free, staging gone */
	for (size_t i = 0; i < s->tensor_count; i++)
		ckpt_provider_release(&s->tensors[i].provider);
	ckw_discard(s);
	ckw_leave(s);
	ckw_set_state(s, rc == 0 ? CKW_DONE : CKW_FAILED,
		      rc == 0 ? NULL : &err);
	return NULL;
}
