/* SPDX-License-Identifier: Apache-2.0 */
/*
 * serialise.c - entries whose bytes must be made before they can be read.
 *
 * The save's own thread has them made, one after another, while the pool
 * captures all others. What is handed over is collected in one mapping, so that
 * it is captured like host memory: by all threads, from where it lies. The
 * provider ends when it has handed all over.
 *
 * Refuses: more or fewer bytes than were described; over CKB_SERIALISED_MAX of
 * unknown size. Invariant: chunks of these entries stand behind all others, and
 * the plan has room for them (ckw_plan()).
 *
 * Threads: the save's own.
 */
#include <string.h>
#include <sys/mman.h>

#include "base/limits.h"
#include "pipeline.h"

#define FIRST_BYTES (1u << 20)

struct collected {
	uint8_t *data;           /* a mapping of `room` bytes, or NULL */
	size_t len, room, most;
	bool late;               /* `most` is what others have left it */
	struct ckpt_save *save;
	struct ckpt_err err;     /* what write has answered */
};

static void collected_release(void *ctx)
{
	struct collected *c = ctx;

	if (c->data)
		munmap(c->data, c->room);
	free(c);
}

static int collected_read(void *ctx, uint64_t off, void *dst, size_t len,
			  struct ckpt_err *err)
{
	(void)err;
	memcpy(dst, ((const struct collected *)ctx)->data + off, len);
	return 0;
}

static const struct ckpt_provider_ops collected_ops = {
	.size = sizeof(collected_ops), .read = collected_read,
	.release = collected_release,
};

/* Pages that are not touched cost nothing. */
static bool grow(struct collected *c, size_t len)
{
	size_t room = c->room ? c->room : FIRST_BYTES;
	void *data;

	while (room - c->len < len)
		if (__builtin_mul_overflow(room, 2, &room))
			return false;
	if (room == c->room)
		return true;
	data = c->data ? mremap(c->data, c->room, room, MREMAP_MAYMOVE)
		       : mmap(NULL, room, PROT_READ | PROT_WRITE,
			      MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1,
			      0);
	if (data == MAP_FAILED)
		return false;
	c->data = data;
	c->room = room;
	return true;
}

static int take(void *sink, const void *data, size_t len)
{
	struct collected *c = sink;

	if (c->err.code != 0 || ckw_pool_failed(c->save, &c->err))
		return c->err.code;
	if (len > c->most - c->len && c->late)
		return ckb_err(&c->err, CKPT_ELIMIT, "with it the entries of "
			       "unknown size have more than %ju bytes",
			       (uintmax_t)CKB_SERIALISED_MAX);
	if (len > c->most - c->len)
		return ckb_err(&c->err, CKPT_EINVAL, "its provider hands over "
			       "more than %zu bytes", c->most);
	if (!grow(c, len))
		return ckb_err_nomem(&c->err);
	if (len > 0)
		memcpy(c->data + c->len, data, len);
	c->len += len;
	return 0;
}

/* Have @t made: *@c is what there is. */
static int make(struct ckw_tensor *t, struct collected *c,
		struct ckpt_err *err)
{
	const struct ckpt_provider *p = &t->provider;
	struct ckpt_err theirs = { 0 };
	int rc = ckw_pool_failed(c->save, &c->err)
		? c->err.code : p->ops->serialise(p->ctx, take, c, &theirs);

	if (c->err.code != 0) {
		*err = c->err;
		return c->err.code;
	}
	if (rc != 0)
		return ckw_provider_failed(rc, &theirs, err);
	if (t->late || c->len == c->most)
		return 0;
	return ckb_err(err, CKPT_EINVAL, "its provider handed over %zu bytes, "
		       "but its %zu bytes are described", c->len, c->most);
}

/* The entry is what was collected; @late: and so is its size. */
static int settle(struct ckpt_save *s, struct ckw_tensor *t,
		  struct collected *c, struct ckpt_err *err)
{
	bool late = t->late;

	ckpt_provider_release(&t->provider);
	t->provider = (struct ckpt_provider){ &collected_ops, c };
	if (late) {
		t->late = false;
		t->bytes = t->held = c->len;
		t->shape->dim[0] = c->len;
		atomic_fetch_add(&s->total, c->len);
	}
	int rc = late ? ckw_plan_late(s, t, err) : 0;

	t->base = c->data;
	return rc;
}

/* What the provider of @t must hand over: the bytes of its chunks. */
static int one(struct ckpt_save *s, struct ckw_progress *p, size_t i,
	       size_t *unknown, struct ckpt_err *err)
{
	struct ckw_tensor *t = &s->tensors[i];
	struct collected *c = calloc(1, sizeof(*c));
	bool late = t->late;

	if (!c)
		return ckb_err_nomem(err);
	c->save = s;
	c->late = late;
	c->most = late ? CKB_SERIALISED_MAX - *unknown : (size_t)t->held;
	int rc = make(t, c, err);

	if (rc < 0) {
		collected_release(c);
		return rc;
	}
	*unknown += late ? c->len : 0;
	rc = settle(s, t, c, err);
	if (rc == 0)
		ckw_pool_more(s->writer, p, i + 1,
			      t->first_chunk + t->chunk_count,
			      late ? t->chunk_count : 0);
	return rc;
}

void ckw_serialise(struct ckpt_save *s, struct ckw_progress *p)
{
	struct ckpt_err err = { 0 };
	size_t unknown = 0;

	for (size_t i = s->ready; i < s->tensor_count; i++) {
		if (one(s, p, i, &unknown, &err) == 0)
			continue;
		if (err.code != CKPT_ECANCELED)
			ckw_in_tensor(&s->tensors[i], &err);
		ckw_pool_fail(s->writer, p, &err);
		return;
	}
}
