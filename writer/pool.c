/* SPDX-License-Identifier: Apache-2.0 */
/*
 * pool.c - the writer's threads, and what each does next.
 *
 *	capture   bytes out of the caller's memory into a slab
 *	store     a slab's chunk: statistics, digest, known?, encode, write
 *
 * Every thread does both. At most `threads` of them compute at once; the others
 * are in a write, which takes no processor, so the disk has several writes to
 * do while tiles are hashed. A thread captures while a caller waits for that,
 * the disk has enough to do, or there are too few tiles to hash side by side;
 * else it stores. So a caller that waits is stopped for a copy only, one that
 * computes meanwhile loses nothing, and the disk is not idle for want of tiles.
 *
 * Chunks of a save are stored when all saves before it are over: one that
 * repeats its predecessor finds it published. Its capture begins before that,
 * when all chunks of saves before it are captured, or about to be.
 *
 * Lock: the writer's, around lists, cursors and counts; no byte is moved and no
 * call made under it.
 */
#include <stdlib.h>
#include <string.h>

#include "base/limits.h"
#include "chunk/pack.h"
#include "pipeline.h"

#define WRITERS 12u /* threads beside those that compute */
#define BEHIND 8u  /* writes under way: the disk is what all wait for */
#define BEHIND_LARGE 3u /* as much as so many of the largest, likewise */
#define WRITE_BYTES (32u << 20) /* of one write, when there are so many */
#define COPY_BYTES (1u << 20)  /* copied between two looks at the lists */
#define COPY_SLABS 16u
#define READERS 4u /* of sources that many may read */

struct ckw_pool {
	struct ckpt_writer *writer;
	struct ckw_ring ring;
	pthread_cond_t work;
	struct ckw_worker *workers;
	uint32_t worker_count, threads;
	uint32_t computing, writing, idle;
	uint32_t reading;        /* sources that many may read */
	uint64_t write_bytes;    /* of what is hashed together, and written */
	uint64_t writing_bytes;  /* of writes under way */
	void *windows;           /* spare ones */
	bool no_room;            /* the ring had none when last asked */
	bool stop;
};

struct job {
	struct ckw_progress *save;
	enum ckw_kind kind;      /* of what it captures; to store: MEMORY */
	struct ckw_slab *slabs[COPY_SLABS]; /* to fill */
	uint32_t slab_count;     /* 0: to store */
	/* large chunks are hashed side by side, and written in one call */
	struct part {
		struct ckw_slab *slab;
		uint32_t first, count; /* of its chunks */
	} parts[CKC_PUT_MAX];
	uint32_t part_count;
};

/* Do as many threads compute as may? One that reads does not count: a source
 * may be slow, and takes little of a processor. */
static bool is_busy(const struct ckw_pool *pool)
{
	uint32_t more = pool->reading > 0 ? pool->reading - 1 : 0;

	return pool->computing + more >= pool->threads;
}

/* The lock is held. An abort becomes the save's error here. */
static bool failed(struct ckw_progress *p)
{
	if (p->err.code == 0)
		(void)ckw_aborted(p->save, &p->err);
	return p->err.code != 0;
}

/* Has all of the save room, or will it never need any? */
static bool is_cut(struct ckpt_save *s)
{
	struct ckw_progress *p = s->run;

	if (!p)
		return s->has_run;
	return failed(p) ||
	       (p->uncut == 0 && s->ready == s->tensor_count);
}

void ckw_pool_wake(struct ckpt_writer *w)
{
	pthread_cond_broadcast(&w->pool->work);
	pthread_cond_broadcast(&w->turn_changed);
}

/* ---- what to do: all with the lock held ---- */

/* Move a cursor to the next chunk of its kind of tensor; false: at the end. */
static bool cursor_next(const struct ckpt_save *s, struct ckw_cursor *c,
			enum ckw_kind kind)
{
	for (; c->tensor < s->ready; c->tensor++) {
		const struct ckw_tensor *t = &s->tensors[c->tensor];

		if (c->chunk < t->first_chunk)
			c->chunk = t->first_chunk;
		if (ckw_kind(t) == kind &&
		    c->chunk < t->first_chunk + t->chunk_count)
			return true;
	}
	return false;
}

static struct ckw_slab *cut_slab(struct ckw_pool *pool, struct ckw_progress *p,
				 enum ckw_kind kind)
{
	struct ckw_cursor *c = &p->cursors[kind];
	size_t bytes;

	if (!cursor_next(p->save, c, kind))
		return NULL;
	uint32_t n = ckw_unit(p->save, c->tensor, c->chunk, &bytes);
	struct ckw_slab *slab = ckw_ring_take(&pool->ring, bytes);

	pool->no_room = !slab;
	if (!slab)
		return NULL;
	if (p->begun_ns == 0)
		p->begun_ns = ckw_now_ns();
	p->uncut -= n;
	slab->save = p->save;
	slab->tensor = c->tensor;
	slab->first = c->chunk;
	slab->count = n;
	c->chunk += n;
	while (c->tensor + 1 < p->save->ready &&
	       c->chunk >= p->save->tensors[c->tensor + 1].first_chunk)
		c->tensor++;
	return slab;
}

/* May one more thread read? Where all wait for a source, one can compute. */
static bool may_read(const struct ckw_pool *pool, const struct ckw_progress *p,
		     enum ckw_kind kind)
{
	if (kind == CKW_PARALLEL)
		return pool->reading < READERS && pool->reading < pool->threads;
	return kind == CKW_MEMORY || !p->source_busy;
}

/* Is there anything of it to capture, and may one more thread do so? */
static bool may_cut(const struct ckw_pool *pool, struct ckw_progress *p)
{
	for (int kind = 0; kind < CKW_KINDS && !failed(p); kind++)
		if (may_read(pool, p, kind) &&
		    cursor_next(p->save, &p->cursors[kind], kind))
			return true;
	return false;
}

/* The lock is held. One more thread to work, if there is something to do for
 * one: a wake that finds nothing costs as much as hashing 4 KiB. */
static void call_one(struct ckw_pool *pool)
{
	struct ckpt_save *s = pool->writer->first;
	bool work = s && s->run && s->run->queue;

	if (pool->idle == 0 || is_busy(pool))
		return;
	for (; s && !work && !pool->no_room; s = s->next) {
		work = s->run && may_cut(pool, s->run);
		if (!is_cut(s))
			break;
	}
	if (work)
		pthread_cond_signal(&pool->work);
}

/* A job begins, or ends (@by -1). */
static void count_job(struct ckw_pool *pool, const struct job *j, uint32_t by)
{
	j->save->jobs += by;
	if (j->kind == CKW_MEMORY)
		pool->computing += by;
	else if (j->kind == CKW_PARALLEL)
		pool->reading += by;
	else
		j->save->source_busy = by == 1;
}

/* Some tiles of memory, or one band of a source. */
static bool cut_slabs(struct ckw_pool *pool, struct ckw_progress *p,
		      enum ckw_kind kind, struct job *out)
{
	struct ckw_slab *slab;
	size_t bytes = 0;

	if (!may_read(pool, p, kind))
		return false;
	out->kind = kind;
	out->slab_count = 0;
	do {
		slab = cut_slab(pool, p, kind);
		if (!slab)
			break;
		out->slabs[out->slab_count++] = slab;
		bytes += slab->bytes;
	} while (kind == CKW_MEMORY && out->slab_count < COPY_SLABS &&
		 bytes < COPY_BYTES);
	if (out->slab_count == 0)
		return false;
	out->save = p;
	return true;
}

/* Slabs of a later save stay in the ring until the earlier is over: it takes
 * none before that has all it needs. */
static bool find_capture(struct ckw_pool *pool, struct job *out)
{
	for (struct ckpt_save *s = pool->writer->first; s; s = s->next) {
		struct ckw_progress *p = s->run;

		for (int kind = 0; p && kind < CKW_KINDS; kind++)
			if (!failed(p) && cut_slabs(pool, p, kind, out))
				return true;
		if (!is_cut(s))
			return false;
	}
	return false;
}

/* The next chunk that is to be stored, or a whole slab of small ones. Returns
 * its bytes, roughly. */
static size_t take_part(struct ckw_progress *p, struct part *out)
{
	struct ckw_slab *slab = p->queue;

	*out = (struct part){ slab, slab->taken, 1 };
	if (slab->count > CKW_BAND_CHUNKS)
		out->count = slab->count;
	slab->taken += out->count;
	if (slab->taken == slab->count) {
		p->queue = slab->behind;
		if (!p->queue)
			p->queue_last = NULL;
	}
	return slab->bytes / slab->count * out->count;
}

/* Enough to be hashed side by side and written in one large call; less near the
 * end, where each thread had better have some. */
static bool more_of_it(const struct ckw_pool *pool,
		       const struct ckw_progress *p, const struct job *j,
		       size_t bytes)
{
	return p->queue && p->queue->count <= CKW_BAND_CHUNKS &&
	       j->parts[0].count == 1 && j->part_count < CKC_PUT_MAX &&
	       (bytes < pool->write_bytes || j->part_count % 2 == 1) &&
	       p->unstored > 2 * (size_t)pool->threads * j->part_count;
}

static bool find_store(struct ckw_pool *pool, struct job *out)
{
	struct ckpt_save *front = pool->writer->first;
	struct ckw_progress *p = front ? front->run : NULL;
	size_t bytes = 0;

	if (!p || !p->queue)
		return false;
	out->save = p;
	out->kind = CKW_MEMORY;
	out->slab_count = out->part_count = 0;
	do {
		bytes += take_part(p, &out->parts[out->part_count++]);
	} while (more_of_it(pool, p, out, bytes));
	return true;
}

static bool caller_waits(const struct ckw_pool *pool)
{
	const struct ckpt_save *s = pool->writer->first;

	for (; s; s = s->next)
		if (s->run && s->wanted[CKPT_CAPTURED - 1] > 0 &&
		    s->run->uncaptured > 0)
			return true;
	return false;
}

static bool disk_behind(const struct ckw_pool *pool)
{
	return pool->writing >= BEHIND ||
	       pool->writing_bytes >= BEHIND_LARGE * pool->write_bytes;
}

/* Has the disk enough to do, so that captures may come before stores? Who waits
 * for all to be durable gains by every byte that is written early. */
static bool enough_writes(const struct ckw_pool *pool)
{
	const struct ckpt_save *front = pool->writer->first;
	bool waits = front && front->wanted[CKPT_DURABLE - 1] > 0;

	return waits ? disk_behind(pool) : pool->writing > 0;
}

/* Are there so many tiles to store that more could not be hashed together? The
 * first of a save are fewer: the disk has nothing to do. */
static bool has_batch(const struct ckw_pool *pool)
{
	const struct ckpt_save *front = pool->writer->first;
	const struct ckw_slab *slab = front && front->run ? front->run->queue
							  : NULL;
	uint64_t bytes = 0, enough = pool->write_bytes;
	uint32_t count = 0;

	if (slab && pool->writing == 0 && atomic_load(&front->written) == 0)
		enough /= 4;
	for (; slab && count < CKC_PUT_MAX; slab = slab->behind) {
		count += slab->count - slab->taken;
		bytes += slab->bytes;
		if (bytes >= enough)
			return true;
	}
	return count >= CKC_PUT_MAX;
}

static bool find_job(struct ckw_pool *pool, struct job *out)
{
	bool waited = caller_waits(pool);
	struct timespec until;

	if (is_busy(pool) ||
	    (!waited && ckw_share_spent(pool->writer, &until)))
		return false;
	if ((waited || enough_writes(pool) || !has_batch(pool)) &&
	    find_capture(pool, out))
		return true;
	return find_store(pool, out);
}

/* ---- doing it ---- */

/* The lock is held. */
static void give(struct ckw_pool *pool, struct ckw_slab *slab)
{
	ckw_ring_give(&pool->ring, slab);
	pool->no_room = false;
}

/* The lock is held. */
static void enqueue(struct ckw_progress *p, struct ckw_slab *slab)
{
	if (p->queue_last)
		p->queue_last->behind = slab;
	else
		p->queue = slab;
	p->queue_last = slab;
}

static void after_capture(struct ckw_pool *pool, const struct job *j)
{
	for (uint32_t i = 0; i < j->slab_count; i++) {
		struct ckw_slab *slab = j->slabs[i];

		j->save->uncaptured -= slab->count;
		if (failed(j->save) || slab->done == slab->count) {
			/* failed, or unchanged: nothing of it is left to do */
			j->save->unstored -= slab->count;
			give(pool, slab);
		} else {
			enqueue(j->save, slab);
		}
	}
}

static void after_store(struct ckw_pool *pool, const struct job *j)
{
	for (uint32_t i = 0; i < j->part_count; i++) {
		struct ckw_slab *slab = j->parts[i].slab;

		j->save->unstored -= j->parts[i].count;
		slab->done += j->parts[i].count;
		if (slab->done == slab->count)
			give(pool, slab);
	}
}

/* Chunks that wait for others to be stored with. */
struct batch {
	struct ckw_worker *worker;
	struct ckpt_save *save;
	struct ckw_todo todo[CKC_PUT_MAX];
	uint32_t count;
};

static bool put_batch(struct batch *q)
{
	struct ckpt_err err = { 0 };
	uint32_t n = q->count;

	q->count = 0;
	if (n == 0)
		return true;
	if (ckw_aborted(q->save, NULL))
		return false;
	if (ckw_put(q->worker, q->save, q->todo, n, &err) == 0)
		return true;
	ckw_pool_fail(q->save->writer, q->save->run, &err);
	return false;
}

static bool store_part(struct batch *q, const struct part *part)
{
	struct ckpt_save *s = q->save;
	const struct ckw_tensor *t = &s->tensors[part->slab->tensor];
	size_t at = 0, place;

	for (uint32_t i = 0; i < part->first + part->count; i++) {
		size_t chunk = part->slab->first + i;

		while (chunk >= t->first_chunk + t->chunk_count)
			t++;
		at = ckw_slab_place(at, s->plan[chunk].raw_len, &place);
		if (i < part->first)
			continue;
		q->todo[q->count++] = (struct ckw_todo){
			t, &s->plan[chunk], &s->parts[chunk],
			part->slab->data + place };
		if (q->count == CKC_PUT_MAX && !put_batch(q))
			return false;
	}
	return true;
}

static void store(struct ckw_worker *k, const struct job *j)
{
	struct batch q = { .worker = k, .save = j->save->save };

	for (uint32_t i = 0; i < j->part_count; i++)
		if (!store_part(&q, &j->parts[i]))
			return;
	(void)put_batch(&q);
}

/* The lock is held. */
static void wait_for_work(struct ckw_pool *pool)
{
	pthread_mutex_t *lock = &pool->writer->lock;
	struct timespec until;

	pool->idle++;
	if (ckw_share_spent(pool->writer, &until))
		(void)pthread_cond_timedwait(&pool->work, lock, &until);
	else
		pthread_cond_wait(&pool->work, lock);
	pool->idle--;
}

static void *work(void *arg)
{
	struct ckw_worker *k = arg;
	struct ckw_pool *pool = k->pool;
	pthread_mutex_t *lock = &pool->writer->lock;
	struct job j = { .save = NULL };

	ckw_share_begin(pool->writer);
	pthread_mutex_lock(lock);
	while (!pool->stop) {
		if (!find_job(pool, &j)) {
			wait_for_work(pool);
			continue;
		}
		count_job(pool, &j, 1);
		call_one(pool);
		pthread_mutex_unlock(lock);
		for (uint32_t i = 0; i < j.slab_count; i++)
			if (!ckw_capture(k, j.slabs[i]))
				break; /* aborted, or failed */
		if (j.slab_count == 0)
			store(k, &j);
		pthread_mutex_lock(lock);
		ckw_share_charge(pool->writer, &k->cpu_ns,
				 caller_waits(pool));
		count_job(pool, &j, -1u);
		if (j.slab_count > 0)
			after_capture(pool, &j);
		else
			after_store(pool, &j);
		if (j.save->uncaptured == 0 || j.save->unstored == 0 ||
		    j.save->err.code != 0)
			pthread_cond_broadcast(&pool->writer->turn_changed);
	}
	pthread_mutex_unlock(lock);
	return NULL;
}

void ckw_pool_writing(struct ckw_worker *k, bool yes, uint64_t bytes)
{
	struct ckw_pool *pool = k->pool;

	pthread_mutex_lock(&pool->writer->lock);
	pool->computing += yes ? -1u : 1u;
	pool->writing += yes ? 1u : -1u;
	pool->writing_bytes += yes ? bytes : -bytes;
	if (yes)
		call_one(pool);
	pthread_mutex_unlock(&pool->writer->lock);
}

bool ckw_pool_disk_behind(struct ckw_worker *k)
{
	struct ckw_pool *pool = k->pool;

	pthread_mutex_lock(&pool->writer->lock);
	bool behind = disk_behind(pool);

	pthread_mutex_unlock(&pool->writer->lock);
	return behind;
}

/* ---- a save's way through ---- */

void ckw_pool_add(struct ckpt_writer *w, struct ckw_progress *p)
{
	pthread_mutex_lock(&w->lock);
	p->save->run = p;
	p->save->has_run = true;
	ckw_pool_wake(w);
	pthread_mutex_unlock(&w->lock);
}

void ckw_pool_more(struct ckpt_writer *w, struct ckw_progress *p,
		   size_t ready, size_t end, size_t more)
{
	struct ckpt_save *s = p->save;

	pthread_mutex_lock(&w->lock);
	p->uncut += end - s->ready_chunks;
	p->uncaptured += more;
	p->unstored += more;
	s->ready = ready;
	s->ready_chunks = end;
	ckw_pool_wake(w);
	pthread_mutex_unlock(&w->lock);
}

void ckw_pool_fail(struct ckpt_writer *w, struct ckw_progress *p,
		   const struct ckpt_err *err)
{
	CKB_INVARIANT(err->code != 0);
	pthread_mutex_lock(&w->lock);
	if (p->err.code == 0)
		p->err = *err;
	ckw_pool_wake(w);
	pthread_mutex_unlock(&w->lock);
}

bool ckw_pool_failed(struct ckpt_save *s, struct ckpt_err *err)
{
	pthread_mutex_lock(&s->writer->lock);
	bool yes = s->run ? failed(s->run) : ckw_aborted(s, err);

	if (yes && s->run && err)
		*err = s->run->err;
	pthread_mutex_unlock(&s->writer->lock);
	return yes;
}

bool ckw_pool_captured(struct ckpt_writer *w, struct ckw_progress *p)
{
	pthread_mutex_lock(&w->lock);
	while (p->uncaptured > 0 && !failed(p))
		pthread_cond_wait(&w->turn_changed, &w->lock);
	bool ok = !failed(p);

	pthread_mutex_unlock(&w->lock);
	return ok;
}

bool ckw_pool_stored(struct ckpt_writer *w, struct ckw_progress *p)
{
	pthread_mutex_lock(&w->lock);
	while (p->unstored > 0 && !failed(p))
		pthread_cond_wait(&w->turn_changed, &w->lock);
	bool ok = !failed(p);

	pthread_mutex_unlock(&w->lock);
	return ok;
}

void ckw_pool_remove(struct ckpt_writer *w, struct ckw_progress *p)
{
	struct ckw_pool *pool = w->pool;

	pthread_mutex_lock(&w->lock);
	while (p->queue) { /* of a failed one */
		struct ckw_slab *slab = p->queue;

		p->queue = slab->behind;
		slab->done += slab->count - slab->taken;
		/* else who has the rest of it gives it */
		if (slab->done == slab->count)
			give(pool, slab);
	}
	while (p->jobs > 0)
		pthread_cond_wait(&w->turn_changed, &w->lock);
	p->save->run = NULL;
	ckw_pool_wake(w);
	pthread_mutex_unlock(&w->lock);
}

void ckw_pool_want(struct ckpt_save *s, enum ckpt_phase phase, bool yes)
{
	struct ckpt_writer *w = s->writer;

	pthread_mutex_lock(&w->lock);
	s->wanted[phase - 1] += yes ? 1u : -1u;
	/* who waits for the end changes the order of work, and makes none */
	if (s->run && phase == CKPT_CAPTURED)
		ckw_pool_wake(w);
	pthread_mutex_unlock(&w->lock);
}

/* ---- the pool itself ---- */

uint8_t *ckw_window_take(struct ckw_pool *pool)
{
	pthread_mutex_lock(&pool->writer->lock);
	uint8_t *window = ckb_spare_take(&pool->windows);

	pthread_mutex_unlock(&pool->writer->lock);
	return window ? window : malloc(CKW_WINDOW_BYTES);
}

void ckw_window_give(struct ckw_pool *pool, uint8_t *window)
{
	pthread_mutex_lock(&pool->writer->lock);
	ckb_spare_give(&pool->windows, window);
	pthread_mutex_unlock(&pool->writer->lock);
}

static int start_worker(struct ckw_pool *pool, struct ckw_worker *k,
			struct ckpt_err *err)
{
	struct ckpt_writer *w = pool->writer;
	int rc = ckc_codec_new(CKF_CODEC_RAW, 0, &k->raw, err);

	k->pool = pool;
	if (rc == 0 && w->opts.codec != CKPT_CODEC_RAW)
		rc = ckw_codec(w, &k->codec, err);
	k->head = aligned_alloc(CKB_PAYLOAD_ALIGN, CKC_HEAD_BYTES);
	if (rc == 0 && k->codec)
		k->cell = malloc(CKB_CELL_BYTES);
	if (rc == 0 && (!k->head || (k->codec && !k->cell)))
		rc = ckb_err_nomem(err);
	if (rc < 0)
		return rc;
	rc = ckw_thread(&k->thread, "ckpt-worker", work, k);
	return rc == 0 ? 0 : ckb_err_sys(err, rc, "cannot start a thread");
}

static void worker_fini(struct ckw_worker *k)
{
	ckc_codec_free(k->raw);
	ckc_codec_free(k->codec);
	free(k->head);
	free(k->cell);
}

int ckw_pool_new(struct ckpt_writer *w, struct ckpt_err *err)
{
	struct ckw_pool *pool = calloc(1, sizeof(*pool));
	pthread_condattr_t attr;
	int rc;

	if (!pool)
		return ckb_err_nomem(err);
	pool->writer = w;
	pool->threads = w->opts.threads;
	/* the last of a pack passes its end by as much; and staging holds
	 * enough of them to keep the disk behind, and two for each thread */
	pool->write_bytes = ckb_min_u64(
		ckb_min_u64(WRITE_BYTES, w->opts.pack_bytes / 16),
		w->opts.staging_bytes / (2 * pool->threads < BEHIND
						 ? BEHIND
						 : 2 * pool->threads));
	pthread_condattr_init(&attr);
	pthread_condattr_setclock(&attr, CLOCK_MONOTONIC);
	pthread_cond_init(&pool->work, &attr);
	pthread_condattr_destroy(&attr);
	pool->workers = calloc(pool->threads + WRITERS,
			       sizeof(*pool->workers));
	rc = pool->workers ? ckw_ring_init(&pool->ring, w->opts.staging_bytes,
					   w->opts.flags & CKPT_WRITER_TOUCH,
					   err)
			   : ckb_err_nomem(err);
	w->pool = pool;
	for (uint32_t i = 0; rc == 0 && i < pool->threads + WRITERS; i++) {
		rc = start_worker(pool, &pool->workers[i], err);
		if (rc == 0)
			pool->worker_count++;
		else
			worker_fini(&pool->workers[i]);
	}
	if (rc < 0) {
		w->pool = NULL;
		ckw_pool_free(pool);
	}
	return rc;
}

void ckw_pool_free(struct ckw_pool *pool)
{
	if (!pool)
		return;
	pthread_mutex_lock(&pool->writer->lock);
	pool->stop = true;
	pthread_cond_broadcast(&pool->work);
	pthread_mutex_unlock(&pool->writer->lock);
	for (uint32_t i = 0; i < pool->worker_count; i++) {
		pthread_join(pool->workers[i].thread, NULL);
		worker_fini(&pool->workers[i]);
	}
	while (pool->windows)
		free(ckw_window_take(pool));
	CKB_INVARIANT(!pool->ring.first); /* every slab came back */
	ckw_ring_fini(&pool->ring);
	pthread_cond_destroy(&pool->work);
	free(pool->workers);
	free(pool);
}
