/* SPDX-License-Identifier: Apache-2.0 */
/*
 * provider.c - where bytes come from: host memory, strided memory, a copy, a
 * file.
 *
 * Each is a small context behind the public table; the writer knows none of
 * them by name, so a new kind needs no change elsewhere. Each says how many
 * bytes it has, so a description that disagrees is refused before anything is
 * read. Contexts do not change, so any number of threads may read them, and are
 * released once.
 *
 * Strided memory is gathered: runs where the inner dimensions are dense, else
 * element by element. Nothing is kept of a file but its descriptor, which stays
 * the caller's.
 */
#include <string.h>

#include <ckpt/writer.h>

#include "base/sys.h"
#include "tensor/box.h"

static int no_data(uint64_t bytes, struct ckpt_err *err)
{
	return ckb_err(err, CKPT_EINVAL, "no data: the address is NULL, and "
		       "%ju bytes are wanted", (uintmax_t)bytes);
}

/* ---- host memory, the caller's or a copy ---- */

struct host {
	const uint8_t *data;
	uint64_t bytes;
	uint8_t own[];           /* the copy */
};

static int host_read(void *ctx, uint64_t off, void *dst, size_t len,
		     struct ckpt_err *err)
{
	(void)err;
	memcpy(dst, ((const struct host *)ctx)->data + off, len);
	return 0;
}

static const void *host_borrow(void *ctx, uint64_t off, size_t len)
{
	(void)len;
	return ((const struct host *)ctx)->data + off;
}

static uint64_t host_bytes(void *ctx)
{
	return ((const struct host *)ctx)->bytes;
}

static const struct ckpt_provider_ops host_ops = {
	.size = sizeof(host_ops), .read = host_read, .borrow = host_borrow,
	.release = free, .bytes = host_bytes, .flags = CKPT_PROVIDER_PARALLEL,
};

int ckpt_provider_host(const void *data, uint64_t bytes,
		       struct ckpt_provider *out, struct ckpt_err *err)
{
	struct host *h;

	*out = (struct ckpt_provider){ NULL, NULL };
	if (!data && bytes > 0)
		return no_data(bytes, err);
	h = malloc(sizeof(*h));
	if (!h)
		return ckb_err_nomem(err);
	h->data = data;
	h->bytes = bytes;
	*out = (struct ckpt_provider){ &host_ops, h };
	return 0;
}

int ckpt_provider_bytes(const void *data, uint64_t bytes,
			struct ckpt_provider *out, struct ckpt_err *err)
{
	struct host *h;

	*out = (struct ckpt_provider){ NULL, NULL };
	if (!data && bytes > 0)
		return no_data(bytes, err);
	if (bytes > SIZE_MAX - sizeof(*h))
		return ckb_err_nomem(err);
	h = malloc(sizeof(*h) + (size_t)bytes);
	if (!h)
		return ckb_err_nomem(err);
	if (bytes > 0)
		memcpy(h->own, data, (size_t)bytes);
	h->data = h->own;
	h->bytes = bytes;
	*out = (struct ckpt_provider){ &host_ops, h };
	return 0;
}

/* ---- strided memory ---- */

struct strided {
	const uint8_t *data;     /* element [0, ..., 0] */
	uint64_t bytes, run;     /* run: dense bytes at a time */
	uint32_t outer;          /* dimensions walked; the rest is the run */
	struct {
		uint64_t dim;
		int64_t stride;
	} d[];
};

/* Element @index of the outer dimensions, counted in C order; *@out_at[d] its
 * place in each. */
static const uint8_t *seek(const struct strided *s, uint64_t index,
			   uint64_t *out_at)
{
	const uint8_t *p = s->data;

	for (uint32_t d = s->outer; d-- > 0;) {
		out_at[d] = index % s->d[d].dim;
		index /= s->d[d].dim;
		p += (int64_t)out_at[d] * s->d[d].stride;
	}
	return p;
}

/* The next one; after the last the first. */
static const uint8_t *step(const struct strided *s, const uint8_t *p,
			   uint64_t *at)
{
	for (uint32_t d = s->outer; d-- > 0;) {
		if (++at[d] < s->d[d].dim)
			return p + s->d[d].stride;
		p -= (int64_t)(s->d[d].dim - 1) * s->d[d].stride;
		at[d] = 0;
	}
	return p;
}

static int strided_read(void *ctx, uint64_t off, void *dst, size_t len,
			struct ckpt_err *err)
{
	const struct strided *s = ctx;
	uint64_t at[CKPT_NDIM_MAX], skip = off % s->run;
	const uint8_t *from = seek(s, off / s->run, at);
	uint8_t *to = dst;

	(void)err;
	while (len > 0) {
		size_t n = (size_t)ckb_min_u64(s->run - skip, len);

		memcpy(to, from + skip, n);
		to += n;
		len -= n;
		skip = 0;
		from = step(s, from, at);
	}
	return 0;
}

/* Dense memory all over is as good as contiguous. */
static const void *strided_borrow(void *ctx, uint64_t off, size_t len)
{
	const struct strided *s = ctx;

	(void)len;
	return s->outer == 0 ? s->data + off : NULL;
}

static uint64_t strided_bytes(void *ctx)
{
	return ((const struct strided *)ctx)->bytes;
}

static const struct ckpt_provider_ops strided_ops = {
	.size = sizeof(strided_ops), .read = strided_read,
	.borrow = strided_borrow, .release = free, .bytes = strided_bytes,
	.flags = CKPT_PROVIDER_PARALLEL,
};

/* Take dimensions into the run while memory stays dense. */
static void find_run(struct strided *s, uint32_t ndim, uint32_t item_bytes,
		     const uint64_t *dim, const int64_t *strides)
{
	s->outer = ndim;
	s->run = item_bytes;
	while (s->outer > 0) {
		uint32_t d = s->outer - 1;

		if (dim[d] != 1 &&
		    (strides[d] < 0 || (uint64_t)strides[d] != s->run))
			break;
		s->run *= dim[d];
		s->outer--;
	}
	for (uint32_t d = 0; d < s->outer; d++) {
		s->d[d].dim = dim[d];
		s->d[d].stride = strides[d];
	}
}

int ckpt_provider_strided(const void *data, enum ckpt_dtype dtype,
			  const struct ckpt_shape *shape,
			  const int64_t *strides, struct ckpt_provider *out,
			  struct ckpt_err *err)
{
	uint32_t bits = ckpt_dtype_bits(dtype);
	struct strided *s;
	uint64_t bytes = 0;
	int rc = ckt_shape_bytes(dtype, shape, &bytes, err);

	*out = (struct ckpt_provider){ NULL, NULL };
	if (rc < 0)
		return rc;
	if (bits % 8 != 0)
		return ckb_err(err, CKPT_EINVAL, "%s has no strides: its "
			       "elements are no whole bytes",
			       ckpt_dtype_name(dtype));
	if (!data && bytes > 0)
		return no_data(bytes, err);
	if (!strides && shape->ndim > 0)
		return ckb_err(err, CKPT_EINVAL, "no strides are given for %u "
			       "dimensions", shape->ndim);
	s = malloc(sizeof(*s) + shape->ndim * sizeof(s->d[0]));
	if (!s)
		return ckb_err_nomem(err);
	s->data = data;
	s->bytes = bytes;
	/* nothing is read of an empty one */
	find_run(s, bytes > 0 ? shape->ndim : 0, bits / 8, shape->dim,
		 strides);
	*out = (struct ckpt_provider){ &strided_ops, s };
	return 0;
}

/* ---- a file ---- */

struct file {
	int fd;
	uint64_t off, bytes;
};

static int file_read(void *ctx, uint64_t off, void *dst, size_t len,
		     struct ckpt_err *err)
{
	const struct file *f = ctx;
	int rc = ckb_pread_full(ckb_sys_real(), f->fd, dst, len, f->off + off,
				"the source file", err);

	/* it ends early: the file's fault, no damage of the store's */
	return rc != CKPT_ECORRUPT ? rc
	     : ckb_err(err, CKPT_EIO, "the source file ends before offset "
		       "%ju: it was cut, or the range leaves it",
		       (uintmax_t)(f->off + off + len));
}

static uint64_t file_bytes(void *ctx)
{
	return ((const struct file *)ctx)->bytes;
}

static const struct ckpt_provider_ops file_ops = {
	.size = sizeof(file_ops), .read = file_read, .release = free,
	.bytes = file_bytes, .flags = CKPT_PROVIDER_PARALLEL,
};

int ckpt_provider_file(int fd, uint64_t off, uint64_t bytes,
		       struct ckpt_provider *out, struct ckpt_err *err)
{
	struct file *f;
	uint64_t end;

	*out = (struct ckpt_provider){ NULL, NULL };
	if (fd < 0)
		return ckb_err(err, CKPT_EINVAL, "no data: %d is no file "
			       "descriptor", fd);
	if (!ckb_add_u64(off, bytes, &end) || end > INT64_MAX)
		return ckb_err(err, CKPT_EINVAL, "a file has no bytes past "
			       "2^63: %ju bytes from offset %ju",
			       (uintmax_t)bytes, (uintmax_t)off);
	f = malloc(sizeof(*f));
	if (!f)
		return ckb_err_nomem(err);
	*f = (struct file){ fd, off, bytes };
	*out = (struct ckpt_provider){ &file_ops, f };
	return 0;
}

void ckpt_provider_release(struct ckpt_provider *provider)
{
	if (!provider)
		return;
	struct ckpt_provider p = *provider;

	*provider = (struct ckpt_provider){ NULL, NULL };
	if (p.ops && p.ops->size >= offsetof(struct ckpt_provider_ops, bytes) &&
	    p.ops->release)
		p.ops->release(p.ctx);
}
