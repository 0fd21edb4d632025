/* SPDX-License-Identifier: Apache-2.0 */
/*
 * pipeline.c - the background work of a save, seen from its own thread.
 *
 *	plan      what chunks there are
 *	    pool: captured, then stored, by the writer's threads (pool.c)
 *	    meanwhile, here: what must be serialised first (serialise.c)
 *	CAPTURED  the caller's buffers are needed no more
 *	    its turn: all saves started before it are over
 *	manifest, last pack, commit
 *	DURABLE
 *
 * A failure of any chunk ends the save. A poisoned pack fails it (S5): its
 * older chunks have left staging, and the caller may have changed the source.
 * Nothing of a failed save becomes visible (S3, S4).
 *
 * Threads: the save's own, which serialises or sleeps while the pool works.
 */
#include <stdlib.h>
#include <string.h>

#include "pipeline.h"

static int commit(struct ckpt_save *s, struct ckpt_err *err)
{
	CKB_BUF struct ckb_buf manifest = { 0 };
	uint64_t seq = 0;
	int rc = ckw_order(s, false, err);

	if (rc == 0)
		rc = ckw_manifest(s, &manifest, &seq, err);
	if (rc == 0)
		rc = ckw_put_end(s, &manifest, err);
	if (rc == 0 && !ckw_may_commit(s, err))
		rc = CKPT_ECANCELED;
	if (rc == 0) /* S2 is kept: every pack it names is published */
		rc = cks_stage_commit(s->stage, manifest.data, manifest.len,
				      s->replace, err);
	return rc;
}

/* What makes the next save quicker: nobody waits for it but that save. */
static void remember(struct ckpt_save *s, int rc)
{
	if (rc == 0 || rc == CKPT_EUNSURE)
		cks_find_publish(s->find, s->name);
	if (rc == 0)
		ckw_past_keep(s);
}

static void release(struct ckpt_save *s)
{
	ckw_unguard(s);
	for (size_t i = 0; i < s->tensor_count; i++)
		ckpt_provider_release(&s->tensors[i].provider);
}

/* What ckw_capture_ns() goes by. A save larger than staging says nothing of
 * how fast copies are: it waited for room. */
static void note_copied(struct ckpt_save *s, const struct ckw_progress *p)
{
	struct ckpt_writer *w = s->writer;
	uint64_t bytes = atomic_load(&s->captured);

	if (bytes > w->opts.staging_bytes / 2)
		return;
	pthread_mutex_lock(&w->lock);
	if (p->begun_ns > 0) /* not since its start: others came first */
		ckw_rate_add(&w->copying, bytes, ckw_now_ns() - p->begun_ns);
	pthread_mutex_unlock(&w->lock);
}

static void note_stored(struct ckpt_save *s, uint64_t start_ns)
{
	struct ckpt_writer *w = s->writer;

	pthread_mutex_lock(&w->lock);
	if (start_ns < w->turn_ns)
		start_ns = w->turn_ns;
	ckw_rate_add(&w->storing, atomic_load(&s->captured),
		     ckw_now_ns() - start_ns);
	pthread_mutex_unlock(&w->lock);
}

/* Every entry into packs. */
static int move_bytes(struct ckpt_save *s, struct ckpt_err *err)
{
	struct ckpt_writer *w = s->writer;
	struct ckw_progress p = { .save = s, .uncut = s->ready_chunks,
				  .uncaptured = s->plan_count,
				  .unstored = s->plan_count };

	uint64_t start_ns = ckw_now_ns();

	ckw_pool_add(w, &p);
	ckw_serialise(s, &p);
	bool ok = ckw_pool_captured(w, &p);

	if (ok) {
		note_copied(s, &p);
		release(s);
		ckw_set_state(s, CKW_CAPTURED, NULL);
		ckw_call_back(s, CKPT_CAPTURED, NULL);
		ckw_await_turn(s);
		ok = ckw_pool_stored(w, &p);
	}
	if (ok)
		note_stored(s, start_ns);
	ckw_pool_remove(w, &p);
	if (!ok)
		*err = p.err;
	return ok ? 0 : err->code;
}

static int run(struct ckpt_save *s, struct ckpt_err *err)
{
	int rc = ckw_order(s, true, err);

	if (rc == 0) /* which opens the index: not while the caller waits */
		rc = cks_find_new(s->writer->store, s->stage, &s->find, err);
	if (rc == 0)
		rc = ckw_plan(s, err);
	if (rc == 0) {
		ckw_past_match(s, s->tensors, s->tensor_count);
		ckw_paced_init(s);
		rc = move_bytes(s, err);
	}
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
	int64_t cpu_ns = 0;

	ckw_share_begin(s->writer);
	int rc = ckw_aborted(s, &err) ? CKPT_ECANCELED : run(s, &err);

	/* before anybody is told: what was borrowed is free, staging gone */
	release(s);
	ckw_discard(s);
	if (rc < 0)
		ckw_note_failure(s, &err);
	ckw_set_state(s, rc == 0 ? CKW_DONE : CKW_FAILED,
		      rc == 0 ? NULL : &err);
	remember(s, rc);
	ckw_share_charge(s->writer, &cpu_ns, false);
	ckw_leave(s);
	/* the queue goes on while the caller's code runs */
	ckw_call_back(s, ckpt_save_phase(s) == CKPT_NO_PHASE ? CKPT_CAPTURED
							     : CKPT_DURABLE,
		      rc == 0 ? NULL : &err);
	return NULL;
}
