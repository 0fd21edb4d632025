/* SPDX-License-Identifier: Apache-2.0 */
/*
 * mem.c - memory of a device: the kind's table, references, staging memory,
 * and what is remembered of failures.
 *
 * The kinds are other people's code: what they say goes on with the device's
 * name before it, and a code that says more than a failed copy can know
 * becomes CKPT_EIO. A table may be shorter than ours (an older one): what it
 * lacks is NULL.
 *
 * Staging memory that a stuck lane may write to is never given back while that
 * lasts: neither to the kind nor, when the memory ends so, at all. A leak is
 * better than a device that writes to memory that others have now.
 *
 * Threads: any. Locks: slab_lock and lost_lock, none within the other; the
 * kind's alloc and free are called under slab_lock.
 */
#include "mem/mem_impl.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define DEADLINE_NS 60000000000ull
#define ALIGN 4096u

/* ---- failures ---- */

static void remember_lost(struct ckpt_memory *mem, const char *why)
{
	pthread_mutex_lock(&mem->lost_lock);
	if (!atomic_load_explicit(&mem->lost, memory_order_relaxed)) {
		snprintf(mem->lost_why, sizeof(mem->lost_why), "%s", why);
		atomic_store_explicit(&mem->lost, true, memory_order_release);
	}
	pthread_mutex_unlock(&mem->lost_lock);
}

static int say_lost(const struct ckpt_memory *mem, struct ckpt_err *err)
{
	ckb_err(err, CKPT_EIO, "device '%s' is lost: %s", mem->name,
		mem->lost_why);
	if (err)
		err->sys_errno = ENODEV;
	return CKPT_EIO;
}

int ckd_check_lost(struct ckpt_memory *mem, struct ckpt_err *err)
{
	return atomic_load_explicit(&mem->lost, memory_order_acquire)
		       ? say_lost(mem, err) : 0;
}

int ckd_failed(struct ckpt_memory *mem, int rc, const struct ckpt_err *theirs,
	       struct ckpt_err *err)
{
	int code = rc < 0 && rc >= CKPT_ESTALE && rc != CKPT_EUNSURE
			   ? rc : CKPT_EIO;
	size_t len = strnlen(theirs->message, sizeof(theirs->message));

	if (theirs->sys_errno == ENODEV) {
		remember_lost(mem, len > 0 ? theirs->message
					   : "it does not say why");
		return say_lost(mem, err);
	}
	if (len == 0)
		return ckb_err(err, code, "device '%s' failed (%d) and does "
			       "not say why", mem->name, rc);
	ckb_err(err, code, "device '%s': %.*s", mem->name, (int)len,
		theirs->message);
	if (err)
		err->sys_errno = theirs->sys_errno;
	return code;
}

int ckd_stalled(const struct ckpt_memory *mem, uint64_t ns, const char *what,
		const char *more, struct ckpt_err *err)
{
	uint64_t ms = ns / 1000000;
	bool whole = ms % 1000 == 0;

	ckb_err(err, CKPT_EIO, "device '%s' stalled: %s within %ju %s%s",
		mem->name, what, (uintmax_t)(whole ? ms / 1000 : ms),
		whole ? "s" : "ms", more);
	if (err)
		err->sys_errno = ETIMEDOUT;
	return CKPT_EIO;
}

/* ---- the object ---- */

static int check_ops(const struct ckpt_memory_ops *ops, struct ckpt_err *err)
{
	if (!ops->lane_open || !ops->lane_close || !ops->copy_2d ||
	    !ops->record || !ops->wait)
		return ckb_err(err, CKPT_EINVAL, "a kind of memory must have "
			       "lane_open, lane_close, copy_2d, record and "
			       "wait");
	if (!ops->alloc != !ops->free)
		return ckb_err(err, CKPT_EINVAL, "a kind of memory has alloc "
			       "and free, or neither");
	if (!ops->ready_open != !ops->follow ||
	    !ops->ready_open != !ops->ready_close)
		return ckb_err(err, CKPT_EINVAL, "a kind of memory has "
			       "ready_open, follow and ready_close, or none");
	return 0;
}

int ckpt_memory_new(const char *name, const struct ckpt_memory_ops *ops,
		    void *ctx, struct ckpt_memory **out, struct ckpt_err *err)
{
	struct ckpt_memory_ops mine = { 0 };

	*out = NULL;
	if (ops->size < sizeof(ops->size))
		return ckb_err(err, CKPT_EINVAL, "a kind's table has no size");
	memcpy(&mine, ops, ckb_min_u64(ops->size, sizeof(mine)));
	int rc = check_ops(&mine, err);

	if (rc < 0)
		return rc;
	struct ckpt_memory *mem = calloc(1, sizeof(*mem));

	if (!mem)
		return ckb_err_nomem(err);
	mem->name = strdup(name);
	if (!mem->name) {
		free(mem);
		return ckb_err_nomem(err);
	}
	mem->ops = mine;
	mem->ctx = ctx;
	atomic_init(&mem->refs, 1);
	atomic_init(&mem->deadline_ns, DEADLINE_NS);
	sem_init(&mem->free_lanes, 0, CKB_LANE_MAX);
	pthread_rwlock_init(&mem->slab_lock, NULL);
	pthread_mutex_init(&mem->lost_lock, NULL);
	for (size_t i = 0; i < CKB_LANE_MAX; i++)
		mem->lanes[i].mem = mem;
	*out = mem;
	return 0;
}

struct ckpt_memory *ckpt_memory_ref(struct ckpt_memory *mem)
{
	atomic_fetch_add_explicit(&mem->refs, 1, memory_order_relaxed);
	return mem;
}

static void slab_drop(struct ckpt_memory *mem, struct ckd_slab *slab)
{
	if (mem->ops.free)
		mem->ops.free(mem->ctx, slab->data, slab->bytes);
	else
		free(slab->data);
	*slab = (struct ckd_slab){ 0 };
}

void ckpt_memory_unref(struct ckpt_memory *mem)
{
	if (!mem || atomic_fetch_sub_explicit(&mem->refs, 1,
					      memory_order_acq_rel) > 1)
		return;
	if (!ckd_lanes_fini(mem))
		return; /* the device still writes: nothing may be freed */
	for (size_t i = 0; i < CKB_SLAB_MAX; i++)
		if (mem->slabs[i].data)
			slab_drop(mem, &mem->slabs[i]);
	if (mem->ops.close)
		mem->ops.close(mem->ctx);
	sem_destroy(&mem->free_lanes);
	pthread_rwlock_destroy(&mem->slab_lock);
	pthread_mutex_destroy(&mem->lost_lock);
	free(mem->name);
	free(mem);
}

const char *ckpt_memory_name(const struct ckpt_memory *mem)
{
	return mem->name;
}

void ckpt_memory_set_deadline(struct ckpt_memory *mem, uint64_t deadline_ns)
{
	atomic_store_explicit(&mem->deadline_ns,
			      deadline_ns ? deadline_ns : DEADLINE_NS,
			      memory_order_relaxed);
}

bool ckd_is_host(const struct ckpt_memory *mem)
{
	return mem->ops.flags & CKPT_MEMORY_HOST;
}

/* ---- staging memory ---- */

static int slab_make(struct ckpt_memory *mem, size_t bytes,
		     struct ckd_slab *slab, struct ckpt_err *err)
{
	struct ckpt_err theirs = { 0 };
	void *data = NULL;

	if (mem->ops.alloc) {
		int rc = mem->ops.alloc(mem->ctx, bytes, &data, &theirs);

		if (rc != 0)
			return ckd_failed(mem, rc, &theirs, err);
	} else if (posix_memalign(&data, ALIGN, bytes) != 0) {
		return ckb_err_nomem(err);
	}
	*slab = (struct ckd_slab){ data, bytes, false };
	return 0;
}

int ckd_alloc(struct ckpt_memory *mem, size_t bytes, void **out,
	      struct ckpt_err *err)
{
	int rc = ckd_check_lost(mem, err);
	size_t i = 0;

	*out = NULL;
	if (rc < 0)
		return rc;
	pthread_rwlock_wrlock(&mem->slab_lock);
	while (i < CKB_SLAB_MAX && mem->slabs[i].data)
		i++;
	if (i == CKB_SLAB_MAX)
		rc = ckb_err(err, CKPT_ELIMIT, "device '%s' has %u pieces of "
			     "staging memory already", mem->name,
			     CKB_SLAB_MAX);
	else
		rc = slab_make(mem, bytes, &mem->slabs[i], err);
	if (rc == 0)
		*out = mem->slabs[i].data;
	pthread_rwlock_unlock(&mem->slab_lock);
	return rc;
}

void ckd_free(struct ckpt_memory *mem, void *staging)
{
	size_t i = 0;

	if (!staging)
		return;
	pthread_rwlock_wrlock(&mem->slab_lock);
	while (i < CKB_SLAB_MAX && mem->slabs[i].data != staging)
		i++;
	CKB_REQUIRE(i < CKB_SLAB_MAX && !mem->slabs[i].dead);
	if (atomic_load_explicit(&mem->stuck, memory_order_relaxed) > 0)
		mem->slabs[i].dead = true;
	else
		slab_drop(mem, &mem->slabs[i]);
	pthread_rwlock_unlock(&mem->slab_lock);
}

void ckd_slabs_settle(struct ckpt_memory *mem)
{
	pthread_rwlock_wrlock(&mem->slab_lock);
	for (size_t i = 0; i < CKB_SLAB_MAX; i++)
		if (mem->slabs[i].dead)
			slab_drop(mem, &mem->slabs[i]);
	pthread_rwlock_unlock(&mem->slab_lock);
}

bool ckd_is_staging(struct ckpt_memory *mem, const void *p, size_t len)
{
	uintptr_t at = (uintptr_t)p;
	bool found = false;

	pthread_rwlock_rdlock(&mem->slab_lock);
	for (size_t i = 0; !found && i < CKB_SLAB_MAX; i++) {
		const struct ckd_slab *s = &mem->slabs[i];
		uintptr_t from = (uintptr_t)s->data;

		found = s->data && at >= from && at - from <= s->bytes &&
			len <= s->bytes - (at - from);
	}
	pthread_rwlock_unlock(&mem->slab_lock);
	return found;
}

/* ---- order after a producer ---- */

int ckd_ready_open(struct ckpt_memory *mem, void *stream, void **out_ready,
		   struct ckpt_err *err)
{
	struct ckpt_err theirs = { 0 };
	int rc = ckd_check_lost(mem, err);

	*out_ready = NULL;
	if (rc < 0)
		return rc;
	if (!mem->ops.ready_open)
		return ckb_err(err, CKPT_EINVAL, "device '%s' has no streams",
			       mem->name);
	rc = mem->ops.ready_open(mem->ctx, stream, out_ready, &theirs);
	return rc == 0 ? 0 : ckd_failed(mem, rc, &theirs, err);
}

void ckd_ready_close(struct ckpt_memory *mem, void *ready)
{
	if (ready)
		mem->ops.ready_close(mem->ctx, ready);
}
