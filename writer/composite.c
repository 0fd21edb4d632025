/* SPDX-License-Identifier: Apache-2.0 */
/*
 * composite.c - several providers one after another as one, and a callback as
 * a provider.
 *
 * A range is read part by part; one that lies in a single part is lent if that
 * part lends it. Where a part serialises, the whole does: the others are read
 * in pieces and handed over in their turn. Threads: any number may read where
 * every part allows it, else one; no locks.
 */
#include <string.h>

#include <ckpt/writer.h>

#include "pipeline.h"

#define PIECE_BYTES (1u << 20)

struct part {
	struct ckpt_provider provider;
	uint64_t first, bytes;   /* of the whole; not known if one serialises */
};

struct composite {
	uint64_t bytes;
	uint32_t count;
	struct part parts[];
};

/* The part that has byte @off: the last that begins at it or before. */
static const struct part *part_at(const struct composite *c, uint64_t off)
{
	uint32_t low = 0, high = c->count;

	while (high - low > 1) {
		uint32_t mid = low + (high - low) / 2;

		if (c->parts[mid].first <= off)
			low = mid;
		else
			high = mid;
	}
	return &c->parts[low];
}

static int composite_read(void *ctx, uint64_t off, void *dst, size_t len,
			  struct ckpt_err *err)
{
	const struct part *p = part_at(ctx, off);
	uint8_t *to = dst;
	int rc = 0;

	for (; rc == 0 && len > 0; p++) {
		uint64_t skip = off - p->first;
		size_t n = (size_t)ckb_min_u64(len, p->bytes - skip);

		if (n > 0)
			rc = p->provider.ops->read(p->provider.ctx, skip, to,
						   n, err);
		off += n;
		to += n;
		len -= n;
	}
	return rc;
}

static const void *composite_borrow(void *ctx, uint64_t off, size_t len)
{
	const struct composite *c = ctx;
	const struct part *p = part_at(c, off);
	uint64_t skip = off - p->first;

	if (c->count == 0 || skip > p->bytes || len > p->bytes - skip ||
	    !p->provider.ops->borrow)
		return NULL;
	return p->provider.ops->borrow(p->provider.ctx, skip, len);
}

static uint64_t composite_bytes(void *ctx)
{
	return ((const struct composite *)ctx)->bytes;
}

static void composite_release(void *ctx)
{
	struct composite *c = ctx;

	for (uint32_t i = 0; i < c->count; i++)
		ckpt_provider_release(&c->parts[i].provider);
	free(c);
}

/* All of a part that is read. */
static int pass_on(const struct part *p, ckpt_sink_fn write, void *sink,
		   struct ckpt_err *err)
{
	CKB_FREE uint8_t *piece = malloc(PIECE_BYTES);
	int rc = piece ? 0 : ckb_err_nomem(err);

	for (uint64_t off = 0; rc == 0 && off < p->bytes;) {
		size_t n = (size_t)ckb_min_u64(PIECE_BYTES, p->bytes - off);

		rc = p->provider.ops->read(p->provider.ctx, off, piece, n,
					   err);
		if (rc == 0)
			rc = write(sink, piece, n);
		off += n;
	}
	return rc;
}

static int composite_serialise(void *ctx, ckpt_sink_fn write, void *sink,
			       struct ckpt_err *err)
{
	const struct composite *c = ctx;
	int rc = 0;

	for (uint32_t i = 0; rc == 0 && i < c->count; i++) {
		const struct ckpt_provider *p = &c->parts[i].provider;

		rc = ckw_serialises(p)
			? p->ops->serialise(p->ctx, write, sink, err)
			: pass_on(&c->parts[i], write, sink, err);
	}
	return rc;
}

static const struct ckpt_provider_ops composite_ops = {
	.size = sizeof(composite_ops), .read = composite_read,
	.borrow = composite_borrow, .release = composite_release,
	.bytes = composite_bytes,
};

static const struct ckpt_provider_ops parallel_ops = {
	.size = sizeof(parallel_ops), .read = composite_read,
	.borrow = composite_borrow, .release = composite_release,
	.bytes = composite_bytes, .flags = CKPT_PROVIDER_PARALLEL,
};

static const struct ckpt_provider_ops made_ops = {
	.size = sizeof(made_ops), .release = composite_release,
	.serialise = composite_serialise,
};

int ckw_lent(const struct ckpt_provider *p, uint64_t bytes, ckw_range_fn fn,
	     void *ctx, struct ckpt_err *err)
{
	const struct ckpt_provider_ops *ops = p->ops;
	int rc = 0;

	/* what serialises is released before CAPTURED */
	if (ckw_serialises(p))
		return 0;
	if (ops && ops->read == composite_read) {
		const struct composite *c = p->ctx;

		for (uint32_t i = 0; rc == 0 && i < c->count; i++)
			rc = ckw_lent(&c->parts[i].provider,
				      c->parts[i].bytes, fn, ctx, err);
		return rc;
	}
	if (!ops || !ops->borrow || bytes == 0)
		return 0;
	const void *data = ops->borrow(p->ctx, 0, (size_t)bytes);

	return data ? fn(ctx, data, bytes, err) : 0;
}

static int add_part(struct composite *c, struct part *p, bool *serialises,
		    struct ckpt_err *err)
{
	const struct ckpt_provider_ops *ops = p->provider.ops;
	uint32_t i = (uint32_t)(p - c->parts);

	p->first = c->bytes;
	if (ckw_serialises(&p->provider)) {
		*serialises = true;
		return 0;
	}
	if (!ops || ops->size < offsetof(struct ckpt_provider_ops, serialise) ||
	    !ops->read || !ops->bytes)
		return ckb_err(err, CKPT_EINVAL, "part %u of a composite has "
			       "no functions to read and to tell its size", i);
	p->bytes = ops->bytes(p->provider.ctx);
	if (!ckb_add_u64(c->bytes, p->bytes, &c->bytes))
		return ckb_err(err, CKPT_EINVAL, "the parts of a composite "
			       "have more than 2^64 bytes");
	return 0;
}

static void drop_parts(struct ckpt_provider *parts, uint32_t count)
{
	for (uint32_t i = 0; i < count; i++)
		ckpt_provider_release(&parts[i]);
}

int ckpt_provider_composite(struct ckpt_provider *parts, uint32_t count,
			    struct ckpt_provider *out, struct ckpt_err *err)
{
	struct composite *c = calloc(1, sizeof(*c) +
					((size_t)count + 1) *
						sizeof(c->parts[0]));
	bool serialises = false, parallel = true;
	int rc = 0;

	*out = (struct ckpt_provider){ NULL, NULL };
	if (!c) {
		drop_parts(parts, count);
		return ckb_err_nomem(err);
	}
	for (; c->count < count; c->count++) {
		c->parts[c->count].provider = parts[c->count];
		parts[c->count] = *out;
	}
	for (uint32_t i = 0; rc == 0 && i < count; i++) {
		parallel = parallel && ckw_parallel(&c->parts[i].provider);
		rc = add_part(c, &c->parts[i], &serialises, err);
	}
	if (rc < 0) {
		composite_release(c);
		return rc;
	}
	out->ops = serialises ? &made_ops
		 : parallel ? &parallel_ops : &composite_ops;
	out->ctx = c;
	return 0;
}

/* ---- a callback ---- */

struct callback {
	int (*serialise)(void *ctx, ckpt_sink_fn write, void *sink,
			 struct ckpt_err *err);
	void (*release)(void *ctx);
	void *ctx;
};

static int callback_serialise(void *ctx, ckpt_sink_fn write, void *sink,
			      struct ckpt_err *err)
{
	const struct callback *c = ctx;

	return c->serialise(c->ctx, write, sink, err);
}

static void callback_release(void *ctx)
{
	struct callback *c = ctx;

	if (c->release)
		c->release(c->ctx);
	free(c);
}

static const struct ckpt_provider_ops callback_ops = {
	.size = sizeof(callback_ops), .release = callback_release,
	.serialise = callback_serialise,
};

int ckpt_provider_callback(int (*serialise)(void *ctx, ckpt_sink_fn write,
					    void *sink, struct ckpt_err *err),
			   void (*release)(void *ctx), void *ctx,
			   struct ckpt_provider *out, struct ckpt_err *err)
{
	struct callback *c = malloc(sizeof(*c));

	*out = (struct ckpt_provider){ NULL, NULL };
	if (!c)
		return ckb_err_nomem(err);
	*c = (struct callback){ serialise, release, ctx };
	*out = (struct ckpt_provider){ &callback_ops, c };
	return 0;
}
