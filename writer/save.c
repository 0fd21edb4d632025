/* SPDX-License-Identifier: Apache-2.0 */
/*
 * save.c - one save as its caller sees it: begin, start, free (wait and abort:
 * wait.c).
 *
 *	begin -> DESCRIBING -start-> RUNNING -> CAPTURED -> DONE
 *	            \-abort-> FAILED <-/------------/
 *
 * begin is the check phase: it refuses what can be refused before anything is
 * described, and makes the staging folder (S8). start proves coverage (S7) and
 * hands everything to one thread, which alone touches the pipeline's fields
 * from then on; state and error pass through `lock`. A failure keeps its
 * sentence for every later wait. If nobody asked for it, free writes it to the
 * log: a lost checkpoint never goes unsaid.
 *
 * Nothing here assumes one process: the attempt is passed on, and boxes are
 * what this process holds; the proof of coverage alone is solo's.
 */
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "base/limits.h"
#include "base/log.h"
#include "base/text.h"
#include "format/name.h"
#include "pipeline.h"
#include "tensor/box.h"

#define PROGRAM "libckpt " CKPT_VERSION

bool ckw_aborted(const struct ckpt_save *s, struct ckpt_err *err)
{
	if (!atomic_load_explicit(&s->abort, memory_order_relaxed))
		return false;
	ckb_err(err, CKPT_ECANCELED, "saving '%s' was aborted", s->name);
	return true;
}

int ckw_describing(struct ckpt_save *s, struct ckpt_err *err)
{
	int rc = ckw_own_process(s->writer, err);

	if (rc < 0)
		return rc;
	pthread_mutex_lock(&s->lock);
	bool open = s->state == CKW_DESCRIBING, started = s->started;

	pthread_mutex_unlock(&s->lock);
	if (open)
		return 0;
	if (started)
		return ckb_err(err, CKPT_ESTATE, "save '%s' was started "
			       "already", s->name);
	return ckb_err(err, CKPT_ECANCELED, "saving '%s' was aborted",
		       s->name);
}

void ckw_discard(struct ckpt_save *s)
{
	ckw_put_discard(s);
	cks_stage_close(CKB_TAKE(s->stage));
}

/* ---- begin ---- */

/* The words that trainers put before the number. */
static const char *const step_words[] = {
	"global_step", "step", "checkpoint", "ckpt", "iteration", "iter",
	"epoch",
};

/* Where the number of a name begins: after a word and '-', '_', '=' or none. */
static const char *after_word(const char *s)
{
	for (size_t i = 0; i < CKB_ARRAY_LEN(step_words); i++) {
		size_t len = strlen(step_words[i]);

		if (strncmp(s, step_words[i], len) == 0) {
			s += len;
			return s + (*s && strchr("-_=", *s));
		}
	}
	return s;
}

/* "run/4000", "run/step_4000" -> 4000; what else a name may be has no step, nor
 * has a number that SQLite's 63 bits cannot hold. */
static bool step_of(const char *name, uint64_t *out)
{
	const char *s = strrchr(name, '/');
	uint64_t step = 0;

	s = after_word(s ? s + 1 : name);
	if (!*s)
		return false;
	for (; *s; s++)
		if (*s < '0' || *s > '9' || !ckb_mul_u64(step, 10, &step) ||
		    !ckb_add_u64(step, (uint64_t)(*s - '0'), &step) ||
		    step > INT64_MAX)
			return false;
	*out = step;
	return true;
}

/* Free to take? Asked before anything is read or copied; commit decides. */
static int check_name(struct ckpt_store *store,
		      const struct ckpt_save_desc *d, struct ckpt_err *err)
{
	int rc = d->name ? ckf_checkpoint_name(d->name, err)
			 : ckb_err(err, CKPT_EINVAL, "a save has no name");

	return rc < 0 ? rc : cks_name_free(store, d->name, d->replace, err);
}

static int check_desc(const struct ckpt_save_desc *d, struct ckpt_err *err)
{
	if (d->size < sizeof(*d))
		return ckb_err(err, CKPT_EINVAL, "ckpt_save_desc.size is %zu, "
			       "not %zu", d->size, sizeof(*d));
	if (d->has_step && d->step > INT64_MAX)
		return ckb_err(err, CKPT_ELIMIT, "step %ju is 2^63 or more",
			       (uintmax_t)d->step);
	if (d->program && (strlen(d->program) > CKB_NAME_MAX ||
			   !ckb_utf8_ok(d->program, strlen(d->program))))
		return ckb_err(err, CKPT_EINVAL, "the program's name is too "
			       "long or not UTF-8");
	int rc = ckw_check_json(d->metadata, "the metadata", err);

	return rc == 0 ? ckw_check_json(d->metrics, "the metrics", err) : rc;
}

static int take_parent(struct ckpt_save *s, const char *parent,
		       struct ckpt_err *err)
{
	struct ckpt_checkpoint *c = NULL;

	if (!parent)
		return 0;
	int rc = ckpt_checkpoint_open(s->writer->store, parent, &c, err);

	if (rc < 0)
		return ckb_err_prefix(err, rc, "the parent");
	s->has_parent = true;
	memcpy(s->parent, ckpt_checkpoint_info(c)->uuid, sizeof(s->parent));
	ckpt_checkpoint_close(c);
	return 0;
}

/* Two random numbers: the checkpoint's uuid (RFC 9562, version 4), and the
 * attempt of a save that is alone. */
static int draw(struct ckpt_save *s, uint8_t attempt[16],
		struct ckpt_err *err)
{
	const struct ckb_sys *sys = cks_store_sys(s->writer->store);
	int rc = sys->random(sys, s->uuid, sizeof(s->uuid));

	if (rc >= 0)
		rc = sys->random(sys, attempt, 16);
	if (rc < 0)
		return ckb_err_sys(err, -rc, "no random numbers");
	s->uuid[6] = (uint8_t)((s->uuid[6] & 0x0f) | 0x40);
	s->uuid[8] = (uint8_t)((s->uuid[8] & 0x3f) | 0x80);
	return 0;
}

static int begin(struct ckpt_save *s, const struct ckpt_save_desc *d,
		 struct ckpt_err *err)
{
	struct ckpt_store *store = s->writer->store;
	uint8_t attempt[16];
	int rc = check_desc(d, err);

	if (rc == 0)
		rc = check_name(store, d, err);
	if (rc == 0)
		rc = take_parent(s, d->parent, err);
	if (rc == 0)
		rc = draw(s, attempt, err);
	if (rc < 0)
		return rc;
	s->replace = d->replace;
	s->has_step = d->has_step || step_of(d->name, &s->step);
	if (d->has_step)
		s->step = d->step;
	if (!ckw_copy_text(&s->name, d->name) ||
	    !ckw_copy_text(&s->metadata, d->metadata) ||
	    !ckw_copy_text(&s->metrics, d->metrics) ||
	    !ckw_copy_text(&s->program, d->program ? d->program : PROGRAM))
		return ckb_err_nomem(err);
	return cks_stage_open(store, s->name,
			      d->attempt ? d->attempt : attempt, &s->stage,
			      err);
}

static void init_clocked(pthread_cond_t *cond)
{
	pthread_condattr_t attr;

	pthread_condattr_init(&attr);
	pthread_condattr_setclock(&attr, CLOCK_MONOTONIC);
	pthread_cond_init(cond, &attr);
	pthread_condattr_destroy(&attr);
}

int ckpt_save_begin(struct ckpt_writer *writer,
		    const struct ckpt_save_desc *desc, struct ckpt_save **out,
		    struct ckpt_err *err)
{
	int rc = ckw_own_process(writer, err);
	struct ckpt_save *s = rc == 0 ? calloc(1, sizeof(*s)) : NULL;

	*out = NULL;
	if (!s)
		return rc < 0 ? rc : ckb_err_nomem(err);
	s->writer = writer;
	pthread_mutex_init(&s->lock, NULL);
	init_clocked(&s->changed);
	for (int i = 0; i < CKW_PHASES; i++)
		s->fd[i] = -1;
	pthread_mutex_init(&s->pack_lock, NULL);
	pthread_mutex_init(&s->publish_lock, NULL);
	pthread_mutex_lock(&writer->lock);
	writer->open_saves++;
	pthread_mutex_unlock(&writer->lock);
	rc = begin(s, desc, err);
	if (rc < 0) {
		ckw_discard(s);
		s->state = CKW_FAILED;
		atomic_store(&s->told, true); /* by this call */
		ckpt_save_free(s);
		return rc;
	}
	*out = s;
	return 0;
}

/* ---- start ---- */

/* S7: the boxes of a tensor cover it exactly once. */
static int prove_coverage(const struct ckw_tensor *t, struct ckpt_err *err)
{
	CKB_FREE struct ckpt_box *boxes = NULL;
	char q[CKB_QUOTE_BYTES];
	struct ckt_grid grid;
	uint32_t a, b;

	if (!t->boxes)
		return 0;
	boxes = malloc(t->box_count * sizeof(*boxes));
	if (!boxes)
		return ckb_err_nomem(err);
	int rc = ckw_grid(t, &grid, err);

	for (uint32_t i = 0; rc == 0 && i < t->box_count; i++)
		ckw_box(t, &grid, i, &boxes[i]);
	if (rc == 0)
		rc = ckt_cover_check(grid.ndim, grid.shape, boxes,
				     t->box_count, &a, &b, err);
	return rc < 0 ? ckb_err_prefix(err, rc, "tensor '%s'",
				       ckb_quote(q, sizeof(q), t->name,
						 t->name_len)) : 0;
}

/* The lock is held, so an abort comes before or after, never between: when one
 * has returned, nothing is write-protected. */
static int launch(struct ckpt_save *s, struct ckpt_err *err)
{
	if (s->state != CKW_DESCRIBING)
		return ckb_err(err, CKPT_ECANCELED, "saving '%s' was aborted",
			       s->name);
	int rc = ckw_guard(s, err);

	if (rc < 0)
		return rc;
	s->started = true;
	s->state = CKW_RUNNING;
	ckw_queue(s);
	rc = ckw_thread(&s->thread, "ckpt-capture", ckw_run, s);

	if (rc == 0) {
		s->threaded = true;
		return 0;
	}
	ckw_leave(s);
	ckw_discard(s);
	s->state = CKW_FAILED;
	atomic_store(&s->told, true);
	rc = ckb_err_sys(&s->err, rc, "saving '%s': cannot start a thread",
			 s->name);
	atomic_store(&s->ended, rc);
	if (err)
		*err = s->err;
	return rc;
}

int ckpt_save_start(struct ckpt_save *s, struct ckpt_err *err)
{
	int rc = ckw_describing(s, err);

	if (rc == 0)
		rc = ckw_check_folders(s, err);
	for (size_t i = 0; rc == 0 && i < s->tensor_count; i++)
		rc = prove_coverage(&s->tensors[i], err);
	if (rc == 0)
		rc = ckw_find_lent(s, err);
	if (rc < 0)
		return rc;
	pthread_mutex_lock(&s->lock);
	rc = launch(s, err);
	if (rc < 0)
		ckw_unguard(s);
	pthread_mutex_unlock(&s->lock);
	return rc;
}

/* ---- the end ---- */

const uint8_t *ckpt_save_uuid(const struct ckpt_save *s)
{
	return s->uuid;
}

/* Somebody must hear of it: the log, unless the caller did. */
static void bury(struct ckpt_save *s)
{
	struct ckpt_writer *w = s->writer;

	if (s->state == CKW_FAILED && !atomic_load(&s->told) &&
	    s->err.code != CKPT_ECANCELED)
		ckb_log(CKB_ERROR, "%s%s", s->err.code == CKPT_EUNSURE
			? "" : "a checkpoint was not saved: ", s->err.message);
	pthread_mutex_lock(&w->lock);
	if (w->failed_save == s) {
		w->failed_save = NULL;
		if (atomic_load(&s->told))
			w->failed.code = 0;
	}
	w->open_saves--;
	pthread_mutex_unlock(&w->lock);
}

/* The save's thread cannot end itself: the save stays, and a note says so. */
static bool freed_by_itself(struct ckpt_save *s)
{
	pthread_mutex_lock(&s->lock);
	bool own = ckw_is_own_thread(s);

	pthread_mutex_unlock(&s->lock);
	if (own)
		ckb_log(CKB_ERROR, "save '%s' was freed by the thread that "
			"does it; it stays", s->name);
	return own;
}

void ckpt_save_free(struct ckpt_save *s)
{
	if (!s || ckw_foreign(s->writer, "ckpt_save_free()") ||
	    freed_by_itself(s))
		return;
	ckpt_save_abort(s);
	if (s->threaded)
		pthread_join(s->thread, NULL);
	bury(s);
	for (int i = 0; i < CKW_PHASES; i++)
		if (s->fd[i] >= 0)
			close(s->fd[i]);
	for (size_t i = 0; i < s->tensor_count; i++)
		ckw_tensor_fini(&s->tensors[i]);
	for (size_t i = 0; i < s->item_count; i++)
		ckw_item_fini(&s->items[i]);
	cks_find_free(s->find);
	ckw_past_unref(s->past);
	pthread_mutex_destroy(&s->lock);
	pthread_cond_destroy(&s->changed);
	pthread_mutex_destroy(&s->pack_lock);
	pthread_mutex_destroy(&s->publish_lock);
	free(s->lent);
	free(s->guarded);
	free(s->plan);
	free(s->parts);
	free(s->items);
	free(s->tensors);
	free(s->names);
	free(s->packs);
	free(s->name);
	free(s->metadata);
	free(s->metrics);
	free(s->program);
	free(s);
}
