/* SPDX-License-Identifier: Apache-2.0 */
/*
 * npy_read.c - an array's bytes, little-endian and in C order, whatever order
 * the file has.
 *
 * Big-endian elements are swapped where they were read to. F4 elements, a byte
 * each in the file, are packed in pairs.
 *
 * Fortran order: the pipeline asks for ranges in C order, more or less one
 * after another. A slab of SLAB_BYTES of them, whole rows where a row fits, is
 * gathered at once: boxes of it, each read in runs along the first dimension,
 * which lie in the file as one. Runs with small gaps are read together, in
 * steps of READ_BYTES. So a file is read about once where SLAB_BYTES hold rows
 * enough for runs of some KiB (any matrix up to hundreds of GiB). With a short
 * leading dimension every page holds something of every row: then it is read as
 * often as there are slabs, at most once for each element of that dimension.
 *
 * Memory: SLAB_BYTES and READ_BYTES while a Fortran array is read (S9); an
 * array in C order takes none. Never mmap: a file that is cut would kill the
 * program. Threads: the capture thread.
 */
#include "npy.h"

#include <string.h>

#include "tensor/box.h"

#define SLAB_BYTES ((size_t)48 << 20)
#define READ_BYTES ((size_t)1 << 20)
#define GAP_BYTES 8192u /* less than a system call costs */
#define GROUP_MAX 64u   /* runs transposed together */

/* What a Fortran array needs while it is read. */
struct slab {
	uint64_t off, len;       /* bytes of the array, in C order */
	uint64_t read_off, read_len; /* bytes of the file in buf */
	struct ckpt_box box[CKT_RANGE_BOXES_MAX];
	uint8_t *data;           /* SLAB_BYTES or all of the array */
	uint8_t buf[READ_BYTES];
};

struct array {
	struct ckw_bytes src;
	uint64_t data_off, data_bytes;
	uint32_t item, swap;
	bool nibbles;            /* F4 */
	struct slab *slab;       /* NULL: not needed yet */
	uint32_t ndim;           /* of dim; 0: C order */
	uint64_t dim[];          /* those of more than 1 */
};

/* One box on its way from the file into the slab. */
struct gather {
	struct array *a;
	const struct ckpt_box *box;
	uint64_t file_step[CKPT_NDIM_MAX]; /* bytes between neighbours */
	uint64_t slab_step[CKPT_NDIM_MAX];
	uint64_t file_end;       /* of the box */
	uint32_t group;          /* runs at a time */
};

/* ---- bytes in the file's order ---- */

static int read_file(struct array *a, uint64_t off, void *dst, size_t len,
		     struct ckpt_err *err)
{
	return a->src.read(a->src.ctx, a->data_off + off, dst, len, err);
}

static void swap(uint8_t *data, size_t len, uint32_t unit)
{
	for (size_t at = 0; at + unit <= len; at += unit) {
		if (unit == 2) {
			uint16_t v;

			memcpy(&v, data + at, 2);
			v = __builtin_bswap16(v);
			memcpy(data + at, &v, 2);
		} else if (unit == 4) {
			uint32_t v;

			memcpy(&v, data + at, 4);
			v = __builtin_bswap32(v);
			memcpy(data + at, &v, 4);
		} else {
			uint64_t v;

			memcpy(&v, data + at, 8);
			v = __builtin_bswap64(v);
			memcpy(data + at, &v, 8);
		}
	}
}

/* ---- Fortran order ---- */

/* @count runs of @run bytes, @step apart from @off on: run k begins at *@out +
 * k * *@out_step. */
static int read_runs(struct gather *g, uint64_t off, uint64_t run,
		     uint32_t count, const uint8_t **out, uint64_t *out_step,
		     struct ckpt_err *err)
{
	struct slab *s = g->a->slab;
	uint64_t step = g->file_step[1], span = (count - 1) * step + run;
	int rc = 0;

	if (step - run <= GAP_BYTES && span <= READ_BYTES) {
		if (off < s->read_off ||
		    off + span > s->read_off + s->read_len) {
			s->read_len = 0; /* void until it has succeeded */
			uint64_t len = ckb_min_u64(g->file_end - off,
						   READ_BYTES);

			rc = read_file(g->a, off, s->buf, (size_t)len, err);
			if (rc < 0)
				return rc;
			s->read_off = off;
			s->read_len = len;
		}
		*out = s->buf + (off - s->read_off);
		*out_step = step;
		return 0;
	}
	s->read_len = 0;
	for (uint32_t k = 0; rc == 0 && k < count; k++)
		rc = read_file(g->a, off + k * step, s->buf + k * run,
			       (size_t)run, err);
	*out = s->buf;
	*out_step = run;
	return rc;
}

#define TRANSPOSE(type) \
	for (uint64_t i = 0; i < n; i++) \
		for (uint32_t k = 0; k < count; k++) \
			memcpy(dst + i * dst_step + k * sizeof(type), \
			       src + k * src_step + i * sizeof(type), \
			       sizeof(type))

/* @count runs of @n elements to @dst: elements of one run @dst_step apart, the
 * runs side by side. */
static void transpose(uint8_t *dst, uint64_t dst_step, const uint8_t *src,
		      uint64_t src_step, uint64_t n, uint32_t count,
		      uint32_t item)
{
	switch (item) {
	case 1:
		TRANSPOSE(uint8_t);
		break;
	case 2:
		TRANSPOSE(uint16_t);
		break;
	case 4:
		TRANSPOSE(uint32_t);
		break;
	case 8:
		TRANSPOSE(uint64_t);
		break;
	default:
		CKB_INVARIANT(item == 16);
		TRANSPOSE(uint64_t[2]);
	}
}

/* The runs of the box at the outer place @at (dimensions 2 and on), elements
 * [@first, @first + @n) of each. */
static int gather_plane(struct gather *g, const uint64_t *at, uint64_t first,
			uint64_t n, struct ckpt_err *err)
{
	const struct ckpt_box *b = g->box;
	uint32_t item = g->a->item;
	uint64_t file = first * item, to = first * g->slab_step[0];
	const uint8_t *src = NULL;
	uint64_t step = 0;
	int rc = 0;

	for (uint32_t d = 2; d < b->ndim; d++) {
		file += at[d] * g->file_step[d];
		to += at[d] * g->slab_step[d];
	}
	for (uint64_t i = 0; rc == 0 && i < b->extent[1];) {
		uint64_t x = b->origin[1] + i;
		uint32_t count = (uint32_t)ckb_min_u64(b->extent[1] - i,
						       g->group);

		rc = read_runs(g, file + x * g->file_step[1], n * item, count,
			       &src, &step, err);
		if (rc == 0)
			transpose(g->a->slab->data +
				  (to + x * g->slab_step[1] - g->a->slab->off),
				  g->slab_step[0], src, step, n, count, item);
		i += count;
	}
	return rc;
}

/* The next place in dimensions 2 and on, the first of them fastest; false:
 * that was the last. */
static bool next_place(const struct ckpt_box *b, uint64_t *at)
{
	for (uint32_t d = 2; d < b->ndim; d++) {
		if (++at[d] < b->origin[d] + b->extent[d])
			return true;
		at[d] = b->origin[d];
	}
	return false;
}

static int gather_box(struct array *a, const struct ckpt_box *box,
		      struct ckpt_err *err)
{
	struct gather g = { .a = a, .box = box, .file_end = a->item };
	uint64_t at[CKPT_NDIM_MAX], step = a->item, most;
	int rc = 0;

	ckt_strides(g.slab_step, a->ndim, a->dim, a->item);
	for (uint32_t d = 0; d < a->ndim; d++) {
		g.file_step[d] = step;
		step *= a->dim[d];
		g.file_end += (box->origin[d] + box->extent[d] - 1) *
			      g.file_step[d];
	}
	/* only in a matrix neighbouring runs are neighbours in C order */
	g.group = a->ndim == 2 ? GROUP_MAX : 1;
	most = READ_BYTES / g.group / a->item;
	for (uint64_t i = 0; rc == 0 && i < box->extent[0]; i += most) {
		uint64_t n = ckb_min_u64(box->extent[0] - i, most);

		a->slab->read_len = 0;
		memcpy(at, box->origin, sizeof(at));
		do {
			rc = gather_plane(&g, at, box->origin[0] + i, n, err);
		} while (rc == 0 && next_place(box, at));
	}
	return rc;
}

/* A slab that holds byte @off. */
static int fill(struct array *a, uint64_t off, struct ckpt_err *err)
{
	struct slab *s = a->slab;
	uint64_t row = a->data_bytes / a->dim[0], unit = row, from, len;
	uint32_t count;
	int rc = 0;

	if (row > SLAB_BYTES)
		unit = a->item;
	from = off - off % unit;
	len = ckb_min_u64(a->data_bytes - from, SLAB_BYTES / unit * unit);
	s->len = 0; /* void until it has succeeded */
	s->off = from;
	count = ckt_range_boxes(a->ndim, a->dim, from / a->item, len / a->item,
				s->box);
	for (uint32_t i = 0; rc == 0 && i < count; i++)
		rc = gather_box(a, &s->box[i], err);
	if (rc < 0)
		return rc;
	if (a->swap)
		swap(s->data, (size_t)len, a->swap);
	s->len = len;
	return 0;
}

static int need_slab(struct array *a, struct ckpt_err *err)
{
	if (a->slab)
		return 0;
	a->slab = calloc(1, sizeof(*a->slab));
	if (!a->slab)
		return ckb_err_nomem(err);
	a->slab->data = malloc((size_t)ckb_min_u64(SLAB_BYTES,
						   a->data_bytes));
	return a->slab->data ? 0 : ckb_err_nomem(err);
}

static int read_fortran(struct array *a, uint64_t off, uint8_t *dst,
			size_t len, struct ckpt_err *err)
{
	int rc = need_slab(a, err);

	while (rc == 0 && len > 0) {
		struct slab *s = a->slab;

		if (off < s->off || off >= s->off + s->len) {
			rc = fill(a, off, err);
			continue;
		}
		size_t n = (size_t)ckb_min_u64(s->off + s->len - off, len);

		memcpy(dst, s->data + (off - s->off), n);
		dst += n;
		off += n;
		len -= n;
	}
	return rc;
}

/* ---- the provider ---- */

static int read_items(struct array *a, uint64_t off, void *dst, size_t len,
		      struct ckpt_err *err)
{
	int rc;

	if (a->ndim > 0)
		return read_fortran(a, off, dst, len, err);
	rc = read_file(a, off, dst, len, err);
	if (rc == 0 && a->swap)
		swap(dst, len, a->swap);
	return rc;
}

/* Two F4 in a byte, the first in its low nibble. */
static int read_nibbles(struct array *a, uint64_t off, uint8_t *dst,
			size_t len, struct ckpt_err *err)
{
	uint8_t pairs[8192];

	for (size_t n; len > 0; len -= n, off += n, dst += n) {
		n = (size_t)ckb_min_u64(len, sizeof(pairs) / 2);
		int rc = read_items(a, 2 * off, pairs, 2 * n, err);

		if (rc < 0)
			return rc;
		for (size_t i = 0; i < n; i++) {
			if ((pairs[2 * i] | pairs[2 * i + 1]) > 15)
				return ckb_err(err, CKPT_EFORMAT, "it holds "
					       "bytes over 15, which are no "
					       "F4");
			dst[i] = (uint8_t)(pairs[2 * i] |
					   pairs[2 * i + 1] << 4);
		}
	}
	return 0;
}

static int array_read(void *ctx, uint64_t off, void *dst, size_t len,
		      struct ckpt_err *err)
{
	struct array *a = ctx;

	return a->nibbles ? read_nibbles(a, off, dst, len, err)
			  : read_items(a, off, dst, len, err);
}

static void array_release(void *ctx)
{
	struct array *a = ctx;

	if (a->slab)
		free(a->slab->data);
	free(a->slab);
	free(a);
}

static const struct ckpt_provider_ops array_ops = {
	.size = sizeof(array_ops),
	.read = array_read,
	.release = array_release,
};

int ckw_npy_provider(const struct ckx_npy *npy, struct ckw_bytes src,
		     struct ckpt_provider *out, struct ckpt_err *err)
{
	uint32_t ndim = npy->fortran ? npy->shape.ndim : 0;
	struct array *a = calloc(1, sizeof(*a) + ndim * sizeof(a->dim[0]));

	if (!a)
		return ckb_err_nomem(err);
	a->src = src;
	a->data_off = npy->data_off;
	a->data_bytes = npy->data_bytes;
	a->item = npy->item_bytes;
	a->swap = npy->swap_bytes;
	a->nibbles = npy->dtype == CKPT_F4;
	for (uint32_t d = 0; d < ndim; d++)
		if (npy->shape.dim[d] > 1)
			a->dim[a->ndim++] = npy->shape.dim[d];
	*out = (struct ckpt_provider){ &array_ops, a };
	return 0;
}
