/* SPDX-License-Identifier: Apache-2.0 */
/*
 * fake.c - a device for tests: memory of the process, and lanes that copy later
 * and fail when told to.
 *
 * A lane is a thread and a bounded queue of jobs. copy_2d poisons its
 * destination and queues; the thread waits as long as a slow device would, and
 * copies. An event is the number of the last job before it.
 *
 * A failure is the lane's: the job that failed and all later ones are never
 * done. A lost device is all lanes'. A copy that hangs for ever ends with its
 * lane; one that hangs for a time keeps its lane from being closed, and is done
 * in the end, late, as a real device would.
 *
 * Threads: a lane's caller and its thread, under the lane's lock, which is not
 * held over a copy; `copies` and `lost` of the device are atomic.
 */
#include <errno.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "base/err.h"
#include "mem/mem.h"

#define JOB_MAX (CKPT_MEMORY_QUEUE + 1) /* and an order to follow */
#define POISON 0xDB
#define POLL_NS 50000u /* how often a stream's int is looked at */

struct fake {
	struct ckpt_fake_opts opts;
	_Atomic uint64_t copies; /* relaxed: a count alone */
	atomic_bool lost;        /* relaxed: a flag alone */
};

struct job {
	const int *ready; /* wait for it; NULL: a copy */
	uint8_t *dst;
	const uint8_t *src;
	size_t dst_pitch, src_pitch, width, height;
	uint64_t number;  /* of the device's copies */
};

struct lane {
	struct fake *fake;
	pthread_t thread;
	pthread_mutex_t lock;   /* of all below */
	pthread_cond_t changed; /* by the monotonic clock */
	struct job jobs[JOB_MAX];
	uint64_t queued, done;  /* jobs so far; done ones have left the queue */
	bool stop, held;        /* held: must not be closed now */
	struct ckpt_err failed; /* code 0: it has not */
};

static void after(uint64_t ns, struct timespec *out)
{
	clock_gettime(CLOCK_MONOTONIC, out);
	ns += (uint64_t)out->tv_nsec;
	out->tv_sec += (time_t)ckb_min_u64(ns / 1000000000, 1u << 30);
	out->tv_nsec = (long)(ns % 1000000000);
}

/* ---- the lane's thread; the lock is held where a function says so ---- */

/* Let @ns pass; false: the lane is to stop. Lock held. */
static bool pass(struct lane *l, uint64_t ns)
{
	struct timespec until;

	after(ns, &until);
	while (!l->stop &&
	       pthread_cond_timedwait(&l->changed, &l->lock, &until) == 0)
		;
	return !l->stop;
}

static void move_rows(const struct job *j, size_t height)
{
	for (size_t i = 0; i < height; i++)
		memcpy(j->dst + i * j->dst_pitch, j->src + i * j->src_pitch,
		       j->width);
}

static int say_lost(struct ckpt_err *err)
{
	ckb_err(err, CKPT_EIO, "the fake device was lost, as it was told");
	if (err)
		err->sys_errno = ENODEV;
	return CKPT_EIO;
}

/* Half of it is there, and the device no more. */
static void lose(struct lane *l, const struct job *j)
{
	struct job half = *j;

	if (j->height == 1)
		half.width /= 2;
	move_rows(&half, (j->height + 1) / 2);
	atomic_store_explicit(&l->fake->lost, true, memory_order_relaxed);
	say_lost(&l->failed);
}

/* Lock held. */
static bool hang(struct lane *l)
{
	uint64_t ns = l->fake->opts.hang_ns;
	struct timespec until;

	if (ns == 0) {
		while (!l->stop)
			pthread_cond_wait(&l->changed, &l->lock);
		return false;
	}
	l->held = true;
	after(ns, &until);
	while (pthread_cond_timedwait(&l->changed, &l->lock, &until) == 0)
		;
	l->held = false;
	return true;
}

/* One job; false: the lane is at its end, or has failed. Lock held, and let go
 * over the copy. */
static bool work(struct lane *l, const struct job *j)
{
	const struct ckpt_fake_opts *o = &l->fake->opts;
	uint64_t ns = o->delay_ns;

	while (j->ready && !__atomic_load_n(j->ready, __ATOMIC_ACQUIRE))
		if (!pass(l, POLL_NS))
			return false;
	if (j->ready)
		return true;
	if (o->bytes_per_second > 0)
		ns += (uint64_t)((double)(j->width * j->height) * 1e9 /
				 (double)o->bytes_per_second);
	if ((ns > 0 && !pass(l, ns)) ||
	    (j->number == o->hang_at && !hang(l)))
		return false;
	if (atomic_load_explicit(&l->fake->lost, memory_order_relaxed))
		say_lost(&l->failed);
	else if (j->number == o->fail_at)
		ckb_err(&l->failed, CKPT_EIO, "copy %ju failed, as it was told",
			(uintmax_t)j->number);
	else if (j->number == o->lost_at)
		lose(l, j);
	if (l->failed.code != 0)
		return false;
	pthread_mutex_unlock(&l->lock);
	move_rows(j, j->height);
	pthread_mutex_lock(&l->lock);
	return true;
}

static void *run(void *arg)
{
	struct lane *l = arg;
	bool ok = true;

	pthread_mutex_lock(&l->lock);
	while (ok) {
		while (l->done == l->queued && !l->stop)
			pthread_cond_wait(&l->changed, &l->lock);
		if (l->stop)
			break;
		ok = work(l, &l->jobs[l->done % JOB_MAX]);
		if (ok)
			l->done++;
		pthread_cond_broadcast(&l->changed);
	}
	pthread_mutex_unlock(&l->lock);
	return NULL;
}

/* ---- lanes ---- */

static int fake_lane_open(void *ctx, void **out_lane, struct ckpt_err *err)
{
	struct fake *f = ctx;
	pthread_condattr_t attr;

	if (atomic_load_explicit(&f->lost, memory_order_relaxed))
		return say_lost(err);
	struct lane *l = calloc(1, sizeof(*l));

	if (!l)
		return ckb_err_nomem(err);
	l->fake = f;
	pthread_mutex_init(&l->lock, NULL);
	pthread_condattr_init(&attr);
	pthread_condattr_setclock(&attr, CLOCK_MONOTONIC);
	pthread_cond_init(&l->changed, &attr);
	pthread_condattr_destroy(&attr);
	int rc = pthread_create(&l->thread, NULL, run, l);

	if (rc != 0) {
		pthread_cond_destroy(&l->changed);
		pthread_mutex_destroy(&l->lock);
		free(l);
		return ckb_err_sys(err, rc, "start a lane's thread");
	}
	*out_lane = l;
	return 0;
}

static int fake_lane_close(void *lane)
{
	struct lane *l = lane;

	pthread_mutex_lock(&l->lock);
	bool held = l->held;

	if (!held)
		l->stop = true;
	pthread_cond_broadcast(&l->changed);
	pthread_mutex_unlock(&l->lock);
	if (held)
		return CKPT_EBUSY;
	pthread_join(l->thread, NULL);
	pthread_cond_destroy(&l->changed);
	pthread_mutex_destroy(&l->lock);
	free(l);
	return 0;
}

/* What is the matter with the lane; lock held. */
static int state_of(const struct lane *l, struct ckpt_err *err)
{
	if (l->failed.code == 0 &&
	    atomic_load_explicit(&l->fake->lost, memory_order_relaxed))
		return say_lost(err);
	if (l->failed.code != 0 && err)
		*err = l->failed;
	return l->failed.code;
}

static int queue(struct lane *l, const struct job *j, struct ckpt_err *err)
{
	pthread_mutex_lock(&l->lock);
	int rc = state_of(l, err);

	if (rc == 0 && l->queued - l->done == JOB_MAX)
		rc = ckb_err(err, CKPT_ELIMIT, "more than %u copies are queued",
			     JOB_MAX);
	if (rc == 0) {
		l->jobs[l->queued++ % JOB_MAX] = *j;
		pthread_cond_broadcast(&l->changed);
	}
	pthread_mutex_unlock(&l->lock);
	return rc;
}

static int fake_copy_2d(void *lane, void *dst, size_t dst_pitch,
			const void *src, size_t src_pitch, size_t width,
			size_t height, struct ckpt_err *err)
{
	struct lane *l = lane;
	struct job j = {
		.dst = dst, .src = src, .dst_pitch = dst_pitch,
		.src_pitch = src_pitch, .width = width, .height = height,
		.number = 1 + atomic_fetch_add_explicit(
				      &l->fake->copies, 1,
				      memory_order_relaxed),
	};

	if (height > 1 && (dst_pitch < width || src_pitch < width))
		return ckb_err(err, CKPT_EINVAL, "rows of %zu bytes do not fit "
			       "pitches of %zu and %zu", width, dst_pitch,
			       src_pitch);
	for (size_t i = 0; i < height; i++)
		memset(j.dst + i * dst_pitch, POISON, width);
	return queue(l, &j, err);
}

static int fake_record(void *lane, uint64_t *out_event, struct ckpt_err *err)
{
	struct lane *l = lane;

	pthread_mutex_lock(&l->lock);
	int rc = state_of(l, err);

	if (rc == 0)
		*out_event = l->queued;
	pthread_mutex_unlock(&l->lock);
	return rc;
}

static int fake_wait(void *lane, uint64_t event, uint64_t timeout_ns,
		     struct ckpt_err *err)
{
	struct lane *l = lane;
	struct timespec until;
	int rc = 0;

	after(timeout_ns, &until);
	pthread_mutex_lock(&l->lock);
	while (rc == 0 && l->done < event) {
		rc = state_of(l, err);
		if (rc == 0 && pthread_cond_timedwait(&l->changed, &l->lock,
						      &until) != 0 &&
		    l->done < event)
			rc = CKPT_EBUSY;
	}
	pthread_mutex_unlock(&l->lock);
	return rc;
}

/* ---- streams: an int that the producer sets ---- */

static int fake_ready_open(void *ctx, void *stream, void **out_ready,
			   struct ckpt_err *err)
{
	(void)ctx;
	(void)err;
	*out_ready = stream;
	return 0;
}

static int fake_follow(void *lane, void *ready, struct ckpt_err *err)
{
	struct job j = { .ready = ready };

	return queue(lane, &j, err);
}

static void fake_ready_close(void *ctx, void *ready)
{
	(void)ctx;
	(void)ready;
}

static const struct ckpt_memory_ops fake_ops = {
	.size = sizeof(fake_ops),
	.lane_open = fake_lane_open,
	.lane_close = fake_lane_close,
	.copy_2d = fake_copy_2d,
	.record = fake_record,
	.wait = fake_wait,
	.ready_open = fake_ready_open,
	.follow = fake_follow,
	.ready_close = fake_ready_close,
	.close = free,
};

int ckpt_memory_fake(const struct ckpt_fake_opts *opts,
		     struct ckpt_memory **out, struct ckpt_err *err)
{
	*out = NULL;
	if (opts && opts->size < sizeof(*opts))
		return ckb_err(err, CKPT_EINVAL, "the fake device's options "
			       "have no size");
	struct fake *f = calloc(1, sizeof(*f));

	if (!f)
		return ckb_err_nomem(err);
	if (opts)
		f->opts = *opts;
	int rc = ckpt_memory_new("fake", &fake_ops, f, out, err);

	if (rc < 0)
		free(f);
	return rc;
}
