/* SPDX-License-Identifier: Apache-2.0 */
/*
 * device.c - bytes that lie in the memory of a device, by a kind of memory.
 *
 * A read takes a lane, queues copies, and has put the lane back when it
 * returns: on success all bytes are there, on failure nothing is written any
 * more, unless the device stalled and @dst is staging memory (mem/mem.h).
 *
 * Where @dst is staging memory of that kind, and rows are long, the device
 * copies right into it. Else bytes pass the lane's bounce memory, in two
 * halves: while one is copied into, the host gathers from the other. So @dst
 * may be any memory and any order of elements, and a stalled device never
 * writes to memory that is not its own.
 *
 * A range of the tensor's bytes is cut into boxes, each contiguous in C order,
 * and those into pieces that fit half of the bounce memory. No device is known
 * by name. Threads: any number, each on a lane of its own; no locks.
 */
#include <stdatomic.h>
#include <string.h>

#include <ckpt/writer.h>

#include "base/err.h"
#include "base/limits.h"
#include "mem/mem.h"
#include "mem/piece.h"
#include "tensor/dtype.h"

#define HALF (CKB_BOUNCE_BYTES / 2)

struct device {
	struct ckpt_memory *mem; /* a reference */
	uint64_t data;           /* address of element [0, ..., 0] */
	uint64_t bytes;
	void *ready;             /* of the producer's stream, or NULL */
	atomic_bool waited;      /* for it: a copy after it has ended.
				    Release, acquire: and so has its producer */
	uint32_t ndim, item;
	struct {
		uint64_t len;
		int64_t step;
	} d[];
};

/* A read under way. */
struct transfer {
	struct ckd_lane *lane;
	uint8_t *bounce;         /* NULL: not needed yet */
	bool staging;            /* what is read goes to staging memory */
	uint32_t half;           /* to be used next */
	struct pending {
		struct ckd_piece piece;
		uint8_t *dst;    /* NULL: nothing is under way */
		uint64_t event;
	} at[2];
};

/* ---- pieces ---- */

static int copy_all(struct transfer *t, const struct ckd_piece *p,
		    uint8_t *to, struct ckpt_err *err)
{
	uint64_t src, dst;
	int rc = 0;

	for (uint64_t i = 0; rc == 0 && ckd_piece_copy(p, i, &src, &dst); i++)
		rc = ckd_copy_2d(t->lane, to + dst, (size_t)p->dst_pitch,
				 (const void *)(uintptr_t)src,
				 (size_t)p->src_pitch, (size_t)p->width,
				 (size_t)p->height, err);
	return rc;
}

/* What half @half of the bounce memory waits for, to where it belongs. */
static int finish(struct transfer *t, uint32_t half, struct ckpt_err *err)
{
	struct pending *at = &t->at[half];

	if (!at->dst)
		return 0;
	int rc = ckd_wait(t->lane, at->event, err);

	if (rc == 0)
		ckd_piece_gather(&at->piece, t->bounce + half * HALF, at->dst);
	at->dst = NULL;
	return rc;
}

/* Queue a piece of @whole that fits; then finish the one before it. */
static int bounce(struct transfer *t, const struct ckd_piece *piece,
		  uint8_t *dst, struct ckpt_err *err)
{
	struct pending *at = &t->at[t->half];
	int rc = t->bounce ? 0 : ckd_bounce(t->lane, &t->bounce, err);

	if (rc < 0)
		return rc;
	at->piece = *piece;
	ckd_piece_plan(&at->piece);
	CKB_INVARIANT(at->piece.hold_bytes <= HALF);
	rc = copy_all(t, &at->piece, t->bounce + t->half * HALF, err);
	if (rc == 0)
		rc = ckd_record(t->lane, &at->event, err);
	if (rc < 0)
		return rc;
	at->dst = dst;
	t->half ^= 1;
	return finish(t, t->half, err);
}

/* A box of any size. */
static int read_piece(struct transfer *t, struct ckd_piece *whole,
		      uint8_t *dst, struct ckpt_err *err)
{
	uint64_t cut[CKPT_NDIM_MAX], at[CKPT_NDIM_MAX] = { 0 };
	uint32_t d;
	int rc;

	if (t->staging && ckd_piece_direct(whole))
		return copy_all(t, whole, dst, err);
	ckd_piece_cut(whole, HALF, cut);
	do {
		struct ckd_piece p = *whole;
		uint8_t *to = dst;

		for (d = 0; d < p.ndim; d++) {
			p.len[d] = ckb_min_u64(cut[d], whole->len[d] - at[d]);
			p.src += (uint64_t)((int64_t)at[d] * p.src_step[d]);
			to += at[d] * p.dst_step[d];
		}
		rc = bounce(t, &p, to, err);
		for (d = p.ndim; d-- > 0;) {
			at[d] += cut[d];
			if (at[d] < whole->len[d])
				break;
			at[d] = 0;
		}
	} while (rc == 0 && d != UINT32_MAX);
	return rc;
}

/* ---- ranges ---- */

/* The largest box of whole rows from element @first on that is contiguous in C
 * order and has at most @count elements. Returns its elements. */
static uint64_t next_box(const struct device *dev, uint64_t first,
			 uint64_t count, struct ckd_piece *out)
{
	uint64_t rows = 1, at[CKPT_NDIM_MAX];
	uint32_t d = dev->ndim;

	out->ndim = dev->ndim;
	out->item_bytes = dev->item;
	out->src = dev->data;
	for (uint32_t i = dev->ndim; i-- > 0;) {
		at[i] = first % dev->d[i].len;
		first /= dev->d[i].len;
		out->src += (uint64_t)((int64_t)at[i] * dev->d[i].step);
		out->len[i] = 1;
		out->src_step[i] = dev->d[i].step;
	}
	while (d > 0 && at[d - 1] == 0 && dev->d[d - 1].len <= count / rows) {
		d--;
		out->len[d] = dev->d[d].len;
		rows *= out->len[d];
	}
	if (d > 0) {
		d--;
		out->len[d] = ckb_min_u64(dev->d[d].len - at[d], count / rows);
		rows *= out->len[d];
	}
	uint64_t step = dev->item;

	for (uint32_t i = dev->ndim; i-- > 0;) {
		out->dst_step[i] = step;
		step *= out->len[i];
	}
	return rows;
}

static int read_elements(const struct device *dev, struct transfer *t,
			 uint64_t first, uint64_t count, uint8_t *dst,
			 struct ckpt_err *err)
{
	struct ckd_piece box;
	int rc = 0;

	while (rc == 0 && count > 0) {
		uint64_t n = next_box(dev, first, count, &box);

		rc = read_piece(t, &box, dst, err);
		first += n;
		count -= n;
		dst += n * dev->item;
	}
	return rc;
}

/* Some bytes of one element. */
static int read_part(const struct device *dev, struct transfer *t,
		     uint64_t off, uint8_t *dst, size_t len,
		     struct ckpt_err *err)
{
	struct transfer part = { .lane = t->lane };
	uint8_t whole[16];
	int rc = read_elements(dev, &part, off / dev->item, 1, whole, err);

	if (rc == 0)
		rc = finish(&part, 0, err);
	if (rc == 0)
		memcpy(dst, whole + off % dev->item, len);
	return rc;
}

static int read_range(const struct device *dev, struct transfer *t,
		      uint64_t off, uint8_t *dst, size_t len,
		      struct ckpt_err *err)
{
	uint64_t skip = off % dev->item, event;
	int rc = 0;

	if (skip > 0) {
		size_t n = (size_t)ckb_min_u64(dev->item - skip, len);

		rc = read_part(dev, t, off, dst, n, err);
		off += n;
		dst += n;
		len -= n;
	}
	size_t tail = len % dev->item;

	if (rc == 0 && tail > 0)
		rc = read_part(dev, t, off + len - tail, dst + len - tail,
			       tail, err);
	if (rc == 0)
		rc = read_elements(dev, t, off / dev->item, len / dev->item,
				   dst, err);
	if (rc == 0)
		rc = finish(t, t->half ^ 1, err);
	/* rows that went straight to @dst */
	if (rc == 0 && t->staging)
		rc = ckd_record(t->lane, &event, err);
	if (rc == 0 && t->staging)
		rc = ckd_wait(t->lane, event, err);
	return rc;
}

/* ---- the provider ---- */

static int device_read(void *ctx, uint64_t off, void *dst, size_t len,
		       struct ckpt_err *err)
{
	struct device *dev = ctx;
	struct transfer t = { 0 };
	int rc = ckd_lane_get(dev->mem, &t.lane, err);

	if (rc < 0)
		return rc;
	t.staging = ckd_is_staging(dev->mem, dst, len);
	if (dev->ready &&
	    !atomic_load_explicit(&dev->waited, memory_order_acquire))
		rc = ckd_follow(t.lane, dev->ready, err);
	if (rc == 0)
		rc = read_range(dev, &t, off, dst, len, err);
	if (rc == 0)
		atomic_store_explicit(&dev->waited, true, memory_order_release);
	ckd_lane_put(t.lane, rc == 0);
	return rc;
}

/* Memory that the processor may read, dense and with nothing to wait for, is
 * lent as the process's own is. */
static const void *device_borrow(void *ctx, uint64_t off, size_t len)
{
	const struct device *dev = ctx;
	bool dense = dev->ndim == 0 ||
		     (dev->ndim == 1 && dev->d[0].step == dev->item);

	(void)len;
	return ckd_is_host(dev->mem) && dense && !dev->ready
		       ? (const void *)(uintptr_t)(dev->data + off) : NULL;
}

static uint64_t device_bytes(void *ctx)
{
	return ((const struct device *)ctx)->bytes;
}

static void device_release(void *ctx)
{
	struct device *dev = ctx;

	ckd_ready_close(dev->mem, dev->ready);
	ckpt_memory_unref(dev->mem);
	free(dev);
}

static const struct ckpt_provider_ops device_ops = {
	.size = sizeof(device_ops), .read = device_read,
	.borrow = device_borrow, .release = device_release,
	.bytes = device_bytes, .flags = CKPT_PROVIDER_PARALLEL,
};

/* Dimensions of one element are none, and those that continue the next are one
 * with it. */
static void set_dims(struct device *dev, uint32_t ndim, const uint64_t *len,
		     const int64_t *steps)
{
	for (uint32_t d = 0; d < ndim; d++) {
		uint32_t n = dev->ndim;
		int64_t whole;

		if (len[d] == 1)
			continue;
		if (n > 0 &&
		    !__builtin_mul_overflow(steps[d], len[d], &whole) &&
		    dev->d[n - 1].step == whole) {
			dev->d[n - 1].len *= len[d];
			dev->d[n - 1].step = steps[d];
			continue;
		}
		dev->d[n].len = len[d];
		dev->d[n].step = steps[d];
		dev->ndim++;
	}
}

static int make(struct ckpt_memory *mem, const void *data, uint64_t bytes,
		uint32_t ndim, void *stream, struct device **out,
		struct ckpt_err *err)
{
	struct device *dev;
	int rc = 0;

	if (!data && bytes > 0)
		return ckb_err(err, CKPT_EINVAL, "no data: the address is "
			       "NULL, and %ju bytes are wanted",
			       (uintmax_t)bytes);
	dev = calloc(1, sizeof(*dev) + ndim * sizeof(dev->d[0]));
	if (!dev)
		return ckb_err_nomem(err);
	if (stream && bytes > 0)
		rc = ckd_ready_open(mem, stream, &dev->ready, err);
	if (rc < 0) {
		free(dev);
		return rc;
	}
	dev->mem = ckpt_memory_ref(mem);
	dev->data = (uintptr_t)data;
	dev->bytes = bytes;
	*out = dev;
	return 0;
}

int ckpt_provider_device(struct ckpt_memory *mem, const void *data,
			 uint64_t bytes, void *stream,
			 struct ckpt_provider *out, struct ckpt_err *err)
{
	int64_t step = 1;
	struct device *dev;
	int rc;

	*out = (struct ckpt_provider){ NULL, NULL };
	if (bytes > INT64_MAX)
		return ckb_err(err, CKPT_EINVAL, "no device has %ju bytes",
			       (uintmax_t)bytes);
	rc = make(mem, data, bytes, 1, stream, &dev, err);
	if (rc < 0)
		return rc;
	dev->item = 1;
	set_dims(dev, 1, &bytes, &step);
	*out = (struct ckpt_provider){ &device_ops, dev };
	return 0;
}

int ckpt_provider_device_strided(struct ckpt_memory *mem, const void *data,
				 enum ckpt_dtype dtype,
				 const struct ckpt_shape *shape,
				 const int64_t *strides, void *stream,
				 struct ckpt_provider *out,
				 struct ckpt_err *err)
{
	uint32_t bits = ckpt_dtype_bits(dtype);
	struct device *dev;
	uint64_t bytes = 0;
	int rc = ckt_shape_bytes(dtype, shape, &bytes, err);

	*out = (struct ckpt_provider){ NULL, NULL };
	if (rc < 0)
		return rc;
	if (bits % 8 != 0)
		return ckb_err(err, CKPT_EINVAL, "%s has no strides: its "
			       "elements are no whole bytes",
			       ckpt_dtype_name(dtype));
	if (!strides && shape->ndim > 0)
		return ckb_err(err, CKPT_EINVAL, "no strides are given for %u "
			       "dimensions", shape->ndim);
	rc = make(mem, data, bytes, shape->ndim, stream, &dev, err);
	if (rc < 0)
		return rc;
	dev->item = bits / 8;
	if (bytes > 0)
		set_dims(dev, shape->ndim, shape->dim, strides);
	*out = (struct ckpt_provider){ &device_ops, dev };
	return 0;
}
