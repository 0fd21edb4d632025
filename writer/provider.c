/* SPDX-License-Identifier: Apache-2.0 */
/*
 * provider.c - where bytes come from: host memory, strided memory, a copy, a
 * file.
 *
 * Each is a small context behind the public table; the writer knows none of
 * them by name, so a new kind needs no change elsewhere. Contexts are read by
 * one thread at a time and released once.
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <ckpt/writer.h>

#include "base/err.h"
#include "tensor/box.h"

struct source {
	const uint8_t *data;      /* host, strided, bytes */
	uint64_t bytes;
	int fd;                   /* file */
	uint64_t off;
	/* strided */
	uint32_t ndim, item_bytes;
	uint64_t dim[CKPT_NDIM_MAX];
	int64_t stride[CKPT_NDIM_MAX];
	uint8_t own[];            /* bytes */
};

static void source_release(void *ctx)
{
	free(ctx);
}

static int host_read(void *ctx, uint64_t off, void *dst, size_t len,
		     struct ckpt_err *err)
{
	const struct source *s = ctx;

	(void)err;
	memcpy(dst, s->data + off, len);
	return 0;
}

static const void *host_borrow(void *ctx, uint64_t off, size_t len)
{
	(void)len;
	return ((const struct source *)ctx)->data + off;
}

static const struct ckpt_provider_ops host_ops = {
	.size = sizeof(host_ops), .read = host_read, .borrow = host_borrow,
	.release = source_release,
};

static struct source *source_new(size_t more, struct ckpt_provider *out,
				 const struct ckpt_provider_ops *ops)
{
	struct source *s = calloc(1, sizeof(*s) + more);

	*out = (struct ckpt_provider){ s ? ops : NULL, s };
	return s;
}

int ckpt_provider_host(const void *data, uint64_t bytes,
		       struct ckpt_provider *out, struct ckpt_err *err)
{
	struct source *s;

	*out = (struct ckpt_provider){ NULL, NULL };
	if (!data && bytes > 0)
		return ckb_err(err, CKPT_EINVAL, "no data: the address is "
			       "NULL, and %ju bytes are wanted",
			       (uintmax_t)bytes);
	s = source_new(0, out, &host_ops);
	if (!s)
		return ckb_err_nomem(err);
	s->data = data;
	s->bytes = bytes;
	return 0;
}

int ckpt_provider_bytes(const void *data, uint64_t bytes,
			struct ckpt_provider *out, struct ckpt_err *err)
{
	*out = (struct ckpt_provider){ NULL, NULL };
	if (!data && bytes > 0)
		return ckb_err(err, CKPT_EINVAL, "no data: the address is "
			       "NULL");
	struct source *s = source_new((size_t)bytes, out, &host_ops);

	if (!s)
		return ckb_err_nomem(err);
	if (bytes > 0)
		memcpy(s->own, data, (size_t)bytes);
	s->data = s->own;
	s->bytes = bytes;
	return 0;
}

/* ---- strided: element by element, rows at once where they are dense ---- */

static int strided_read(void *ctx, uint64_t off, void *dst, size_t len,
			struct ckpt_err *err)
{
	const struct source *s = ctx;
	uint8_t *to = dst;
	uint32_t last = s->ndim ? s->ndim - 1 : 0;
	bool dense = s->ndim > 0 && s->stride[last] == (int64_t)s->item_bytes;

	(void)err;
	while (len > 0) {
		uint64_t index = off / s->item_bytes, rest = index;
		uint64_t in_item = off % s->item_bytes;
		const uint8_t *from = s->data;
		uint64_t in_row = s->ndim ? rest % s->dim[last] : 0;

		for (uint32_t d = s->ndim; d-- > 0;) {
			from += (int64_t)(rest % s->dim[d]) * s->stride[d];
			rest /= s->dim[d];
		}
		uint64_t n = s->item_bytes - in_item;

		if (dense)
			n += (s->dim[last] - in_row - 1) * s->item_bytes;
		n = ckb_min_u64(n, len);
		memcpy(to, from + in_item, n);
		to += n;
		off += n;
		len -= n;
	}
	return 0;
}

static const struct ckpt_provider_ops strided_ops = {
	.size = sizeof(strided_ops), .read = strided_read,
	.release = source_release,
};

int ckpt_provider_strided(const void *data, enum ckpt_dtype dtype,
			  const struct ckpt_shape *shape,
			  const int64_t *strides, struct ckpt_provider *out,
			  struct ckpt_err *err)
{
	uint32_t bits = ckpt_dtype_bits(dtype);
	uint64_t bytes;
	int rc = ckt_shape_bytes(dtype, shape, &bytes, err);

	*out = (struct ckpt_provider){ NULL, NULL };
	if (rc < 0)
		return rc;
	if (bits % 8 != 0)
		return ckb_err(err, CKPT_EINVAL, "%s has no strides: its "
			       "elements are no whole bytes",
			       ckpt_dtype_name(dtype));
	if (!data && bytes > 0)
		return ckb_err(err, CKPT_EINVAL, "no data: the address is "
			       "NULL");
	struct source *s = source_new(0, out, &strided_ops);

	if (!s)
		return ckb_err_nomem(err);
	s->data = data;
	s->bytes = bytes;
	s->ndim = shape->ndim;
	s->item_bytes = bits / 8;
	memcpy(s->dim, shape->dim, shape->ndim * sizeof(s->dim[0]));
	memcpy(s->stride, strides, shape->ndim * sizeof(s->stride[0]));
	return 0;
}

/* ---- file ---- */

static int file_read(void *ctx, uint64_t off, void *dst, size_t len,
		     struct ckpt_err *err)
{
	const struct source *s = ctx;
	uint8_t *to = dst;

	while (len > 0) {
		ssize_t n = pread(s->fd, to, len, (off_t)(s->off + off));

		if (n < 0 && errno == EINTR)
			continue;
		if (n < 0)
			return ckb_err_sys(err, errno, "cannot read the "
					   "source at offset %ju",
					   (uintmax_t)(s->off + off));
		if (n == 0)
			return ckb_err(err, CKPT_EIO, "the source ends at "
				       "offset %ju, before its time: it was "
				       "cut while it was being read",
				       (uintmax_t)(s->off + off));
		to += n;
		off += (uint64_t)n;
		len -= (size_t)n;
	}
	return 0;
}

static const struct ckpt_provider_ops file_ops = {
	.size = sizeof(file_ops), .read = file_read,
	.release = source_release,
};

int ckpt_provider_file(int fd, uint64_t off, uint64_t bytes,
		       struct ckpt_provider *out, struct ckpt_err *err)
{
	struct source *s = source_new(0, out, &file_ops);

	if (!s)
		return ckb_err_nomem(err);
	s->fd = fd;
	s->off = off;
	s->bytes = bytes;
	return 0;
}

void ckpt_provider_release(struct ckpt_provider *provider)
{
	if (provider && provider->ops && provider->ops->release)
		provider->ops->release(provider->ctx);
	if (provider)
		*provider = (struct ckpt_provider){ NULL, NULL };
}
