/* SPDX-License-Identifier: Apache-2.0 */
/*
 * wait.c - how a caller learns where its save stands: waits, polls, a
 * descriptor, a call from the save's own thread, figures.
 *
 * A phase is told when it is reached, to all of them. A failure is told when
 * the save is over, and nothing of the caller's is in use any more; but one
 * that was aborted wakes those who wait at once, whatever a provider is at.
 * abort and commit agree under the save's lock which of them was first, so who
 * was told ECANCELED never finds the checkpoint there.
 *
 * Threads: any. The call from the save's own thread is made without locks;
 * what would wait for that very thread is refused there.
 */
#include <errno.h>
#include <string.h>
#include <sys/eventfd.h>
#include <time.h>

#include "pipeline.h"

static const char *const phase_words[] = { "", "captured", "durable" };

/* ---- telling ---- */

/* The lock is held. Can @phase be waited for no longer? */
static bool is_over(const struct ckpt_save *s, enum ckpt_phase phase)
{
	return s->state >= CKW_DONE ||
	       (phase == CKPT_CAPTURED && s->state == CKW_CAPTURED) ||
	       atomic_load_explicit(&s->abort, memory_order_relaxed);
}

void ckw_wake(struct ckpt_save *s)
{
	const uint64_t one = 1;

	pthread_cond_broadcast(&s->changed);
	for (int i = 0; i < CKW_PHASES; i++)
		if (s->fd[i] >= 0 && is_over(s, (enum ckpt_phase)(i + 1)))
			/* fails when it was told 2^64 - 2 times before */
			(void)!write(s->fd[i], &one, sizeof(one));
}

void ckw_set_state(struct ckpt_save *s, enum ckw_state state,
		   const struct ckpt_err *err)
{
	/* release: the caller's buffers were read before */
	const memory_order after = memory_order_release;

	pthread_mutex_lock(&s->lock);
	s->state = state;
	if (err)
		s->err = *err;
	if (state == CKW_CAPTURED)
		atomic_store_explicit(&s->reached, CKPT_CAPTURED, after);
	else if (state == CKW_DONE)
		atomic_store_explicit(&s->reached, CKPT_DURABLE, after);
	else if (state == CKW_FAILED)
		atomic_store_explicit(&s->ended, s->err.code, after);
	ckw_wake(s);
	pthread_mutex_unlock(&s->lock);
}

void ckw_call_back(struct ckpt_save *s, enum ckpt_phase phase,
		   const struct ckpt_err *err)
{
	if (!s->on_phase)
		return;
	if (err)
		atomic_store(&s->told, true);
	s->on_phase(s->on_phase_ctx, s, phase, err ? err->code : 0, err);
}

bool ckw_is_own_thread(const struct ckpt_save *s)
{
	return s->threaded && pthread_equal(s->thread, pthread_self());
}

/* ---- waiting ---- */

static void deadline(uint64_t timeout_ns, struct timespec *out)
{
	const uint64_t second = 1000000000, most = 1ull << 30;

	clock_gettime(CLOCK_MONOTONIC, out);
	timeout_ns = ckb_min_u64(timeout_ns, most * second);
	timeout_ns += (uint64_t)out->tv_nsec;
	out->tv_sec += (time_t)(timeout_ns / second);
	out->tv_nsec = (long)(timeout_ns % second);
}

/* The lock is held. Returns: can it be waited for no longer? */
static bool await(struct ckpt_save *s, enum ckpt_phase phase,
		  uint64_t timeout_ns)
{
	struct timespec until;
	int rc = timeout_ns == 0 ? ETIMEDOUT : 0;

	if (timeout_ns > 0 && timeout_ns != UINT64_MAX)
		deadline(timeout_ns, &until);
	while (!is_over(s, phase) && rc != ETIMEDOUT)
		rc = timeout_ns == UINT64_MAX
			? pthread_cond_wait(&s->changed, &s->lock)
			: pthread_cond_timedwait(&s->changed, &s->lock,
						 &until);
	return is_over(s, phase);
}

/* What a wait came to; the lock is held. */
static int answer(struct ckpt_save *s, enum ckpt_phase phase,
		  uint64_t timeout_ns, struct ckpt_err *err)
{
	if (s->state == CKW_FAILED) {
		if (err)
			*err = s->err;
		atomic_store(&s->told, true);
		return s->err.code;
	}
	if (s->state != CKW_DONE && ckw_aborted(s, err))
		return CKPT_ECANCELED;
	if (is_over(s, phase))
		return 0;
	return ckb_err(err, CKPT_ETIMEDOUT, "save '%s' is not %s after %ju ms; "
		       "it goes on", s->name, phase_words[phase],
		       (uintmax_t)timeout_ns / 1000000);
}

static int check_phase(enum ckpt_phase phase, struct ckpt_err *err)
{
	return phase == CKPT_CAPTURED || phase == CKPT_DURABLE ? 0
	     : ckb_err(err, CKPT_EINVAL, "a save has no phase %d to wait for",
		       (int)phase);
}

int ckpt_save_wait_for(struct ckpt_save *s, enum ckpt_phase phase,
		       uint64_t timeout_ns, struct ckpt_err *err)
{
	bool wants = timeout_ns > 0; /* who only looks changes nothing */
	int rc = check_phase(phase, err);

	if (rc == 0)
		rc = ckw_own_process(s->writer, err);
	if (rc < 0)
		return rc;
	if (wants)
		ckw_pool_want(s, phase, true);
	pthread_mutex_lock(&s->lock);
	if (s->state == CKW_DESCRIBING) {
		rc = ckb_err(err, CKPT_ESTATE, "save '%s' was not started",
			     s->name);
	} else if (timeout_ns > 0 && !is_over(s, phase) &&
		   ckw_is_own_thread(s)) {
		rc = ckb_err(err, CKPT_ESTATE, "save '%s' cannot be waited "
			     "for by the thread that does it", s->name);
	} else {
		await(s, phase, timeout_ns);
		rc = answer(s, phase, timeout_ns, err);
	}
	pthread_mutex_unlock(&s->lock);
	if (wants)
		ckw_pool_want(s, phase, false);
	return rc;
}

int ckpt_save_wait(struct ckpt_save *s, enum ckpt_phase phase,
		   struct ckpt_err *err)
{
	return ckpt_save_wait_for(s, phase, UINT64_MAX, err);
}

/* ---- without waiting ---- */

enum ckpt_phase ckpt_save_phase(const struct ckpt_save *s)
{
	/* acquire: what the caller does next comes after the last read */
	return (enum ckpt_phase)atomic_load_explicit(&s->reached,
						     memory_order_acquire);
}

int ckpt_save_fd(struct ckpt_save *s, enum ckpt_phase phase, int *out_fd,
		 struct ckpt_err *err)
{
	int rc = check_phase(phase, err);

	if (rc == 0)
		rc = ckw_own_process(s->writer, err);
	if (rc < 0)
		return rc;
	pthread_mutex_lock(&s->lock);
	int *fd = &s->fd[phase == CKPT_DURABLE];

	if (*fd < 0) {
		*fd = eventfd(is_over(s, phase), EFD_CLOEXEC | EFD_NONBLOCK);
		if (*fd < 0)
			rc = ckb_err_sys(err, errno, "save '%s': no "
					 "descriptor to wait with", s->name);
	}
	if (rc == 0)
		*out_fd = *fd;
	pthread_mutex_unlock(&s->lock);
	return rc;
}

int ckpt_save_on_phase(struct ckpt_save *s, ckpt_phase_fn fn, void *ctx,
		       struct ckpt_err *err)
{
	int rc = ckw_describing(s, err);

	if (rc < 0)
		return rc;
	s->on_phase = fn;
	s->on_phase_ctx = ctx;
	return 0;
}

void ckpt_save_progress(const struct ckpt_save *s,
			struct ckpt_save_progress *out)
{
	const memory_order any = memory_order_relaxed;

	out->bytes_total = atomic_load_explicit(&s->total, any);
	out->bytes_captured = atomic_load_explicit(&s->captured, any);
	out->bytes_hashed = atomic_load_explicit(&s->hashed, any);
	out->bytes_new = atomic_load_explicit(&s->fresh, any);
	out->bytes_written = atomic_load_explicit(&s->written, any);
	out->chunk_count = atomic_load_explicit(&s->chunks, any);
	out->chunk_new_count = atomic_load_explicit(&s->fresh_chunks, any);
	out->phase = ckpt_save_phase(s);
	out->failed = atomic_load_explicit(&s->ended, memory_order_acquire);
	out->capture_ns = ckw_capture_ns(s);
}

/* ---- giving it up ---- */

void ckpt_save_abort(struct ckpt_save *s)
{
	struct ckpt_writer *w = s->writer;

	if (ckw_foreign(w, "ckpt_save_abort()"))
		return;
	pthread_mutex_lock(&s->lock);
	if (s->state < CKW_DONE && !s->committing)
		atomic_store_explicit(&s->abort, true, memory_order_relaxed);
	if (s->state == CKW_DESCRIBING) {
		ckw_aborted(s, &s->err);
		s->state = CKW_FAILED;
		atomic_store(&s->ended, CKPT_ECANCELED);
		ckw_discard(s);
	}
	ckw_wake(s);
	bool own = ckw_is_own_thread(s);

	pthread_mutex_unlock(&s->lock);
	pthread_mutex_lock(&w->lock);
	ckw_pool_wake(w);
	pthread_mutex_unlock(&w->lock);
	pthread_mutex_lock(&s->lock);
	while (s->state < CKW_DONE && !own)
		pthread_cond_wait(&s->changed, &s->lock);
	pthread_mutex_unlock(&s->lock);
}

bool ckw_may_commit(struct ckpt_save *s, struct ckpt_err *err)
{
	pthread_mutex_lock(&s->lock);
	s->committing = !ckw_aborted(s, err);
	bool may = s->committing;

	pthread_mutex_unlock(&s->lock);
	return may;
}
