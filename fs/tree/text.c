/* SPDX-License-Identifier: Apache-2.0 */
/*
 * text.c - a tensor for people: dtype, shape, statistics, a preview.
 *
 * The preview has NumPy's form: brackets, the first and last three of each
 * dimension with '...' between when there are more than a thousand elements.
 * Numbers have a fixed width by dtype, so the size of the file follows from
 * metadata: it is rendered once with blanks for numbers to learn its size, and
 * with numbers when it is read. At most PREVIEW_MAX numbers are shown.
 */
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tensor/box.h"
#include "tensor/dtype.h"
#include "tensor/stats.h"
#include "tree/internal.h"
#include "verbs/checkpoint.h"

#define EDGE 3u
#define SUMMARY_FROM 1000u
#define PREVIEW_MAX 1000u

/* ---- numbers ---- */

/* Width of one element in the preview. */
static int width_of(enum ckpt_dtype dtype)
{
	switch (dtype) {
	case CKPT_BOOL:
		return 5;
	case CKPT_U8:
		return 3;
	case CKPT_I8:
		return 4;
	case CKPT_U16:
		return 5;
	case CKPT_I16:
		return 6;
	case CKPT_U32:
		return 10;
	case CKPT_I32:
		return 11;
	case CKPT_U64:
		return 20;
	case CKPT_I64:
		return 20;
	case CKPT_F64:
		return 24;
	case CKPT_C64:
		return 2 * 15 + 1;
	case CKPT_C128:
		return 2 * 24 + 1;
	case CKPT_F32:
		return 15;
	default:
		return 12; /* the short floats need few digits */
	}
}

/* A float with @digits significant ones, right-aligned in @width. */
static void put_float(struct ckb_buf *b, double v, int width, int digits)
{
	ckb_buf_printf(b, "%*.*e", width, digits - 1, v);
}

static void put_real(struct ckb_buf *b, enum ckpt_dtype dtype, const void *p,
		     uint64_t i)
{
	double v = ckt_value_f64(dtype, p, i);
	int w = width_of(dtype);

	if (dtype == CKPT_F64)
		put_float(b, v, w, 17);
	else if (dtype == CKPT_F32)
		put_float(b, v, w, 9);
	else
		put_float(b, v, w, 5);
}

static void put_number(struct ckb_buf *b, enum ckpt_dtype dtype, const void *p)
{
	int w = width_of(dtype);
	const struct ckt_dtype *d = ckt_dtype_get(dtype);
	double re, im;

	if (dtype == CKPT_BOOL) {
		ckb_buf_printf(b, "%*s", w,
			       *(const uint8_t *)p ? "True" : "False");
	} else if (dtype == CKPT_C64 || dtype == CKPT_C128) {
		enum ckpt_dtype half = dtype == CKPT_C64 ? CKPT_F32 : CKPT_F64;
		int digits = dtype == CKPT_C64 ? 9 : 17;

		re = ckt_value_f64(half, p, 0);
		im = ckt_value_f64(half, p, 1);
		put_float(b, re, w / 2, digits);
		ckb_buf_printf(b, "%+-*.*ej", w / 2, digits - 1, im);
		/* the sign is part of the width; j closes it */
	} else if (d->value_class == CKPT_VALUES_SIGNED) {
		struct ckpt_stats s; /* exact beyond 2^53 */

		ckt_stats_init(&s, dtype);
		ckt_stats_add(&s, dtype, p, d->bits / 8);
		ckb_buf_printf(b, "%*" PRId64, w, s.min.i);
	} else if (d->value_class == CKPT_VALUES_UNSIGNED) {
		struct ckpt_stats s;

		ckt_stats_init(&s, dtype);
		ckt_stats_add(&s, dtype, p, d->bits / 8);
		ckb_buf_printf(b, "%*" PRIu64, w, s.min.u);
	} else {
		put_real(b, dtype, p, 0);
	}
}

/* ---- preview ---- */

struct preview {
	struct ckb_buf *out;
	struct ckpt_checkpoint *ckpt; /* NULL: blanks for numbers */
	const struct ckpt_tensor_info *t;
	const struct ckpt_shape *shape;
	uint64_t step[CKPT_NDIM_MAX];  /* elements between neighbours */
	bool summary;
	uint32_t shown;
	struct ckpt_err *err;
};

/* Bytes of element @index: whole ones for sub-byte dtypes too. */
static int read_element(struct preview *v, uint64_t index, uint8_t dst[16])
{
	uint32_t bits = ckpt_dtype_bits(v->t->dtype);
	uint64_t first = index / 8 * bits + index % 8 * bits / 8;
	uint8_t raw[17] = { 0 };
	size_t len = (size_t)ckb_min_u64(bits < 8 ? 2 : bits / 8,
					 v->t->bytes - first);
	int rc = ckpt_read_bytes(v->ckpt, v->t, first, len, raw, v->err);

	if (bits < 8) {
		/* shift the element down to bit 0 */
		uint32_t shift = (uint32_t)(index % 8 * bits % 8);
		uint32_t both = raw[0] | (uint32_t)raw[1] << 8;

		dst[0] = (uint8_t)(both >> shift & ((1u << bits) - 1));
		dst[1] = 0;
	} else {
		memcpy(dst, raw, 16);
	}
	return rc;
}

static int put_element(struct preview *v, uint64_t index)
{
	uint8_t bytes[16];

	v->shown++;
	if (!v->ckpt) {
		ckb_buf_printf(v->out, "%*s", width_of(v->t->dtype), "");
		return 0;
	}
	int rc = read_element(v, index, bytes);

	if (rc == 0)
		put_number(v->out, v->t->dtype, bytes);
	return rc;
}

/* Dimensions from @d on, the element at @index first. */
static int put_dims(struct preview *v, uint32_t d, uint64_t index)
{
	uint32_t ndim = v->shape->ndim;
	uint64_t n;
	int rc = 0;

	if (d == ndim)
		return put_element(v, index);
	n = v->shape->dim[d];
	ckb_buf_putc(v->out, '[');
	for (uint64_t i = 0; rc == 0 && i < n; i++) {
		if (i > 0)
			ckb_buf_puts(v->out, d + 1 == ndim ? " " : "\n");
		if (i > 0 && d + 1 < ndim)
			ckb_buf_printf(v->out, "%*s", (int)d + 1, "");
		bool skip = (v->summary && n > 2 * EDGE && i == EDGE) ||
			    (v->shown >= PREVIEW_MAX && i > 0);

		if (!skip) {
			rc = put_dims(v, d + 1, index + i * v->step[d]);
			continue;
		}
		ckb_buf_puts(v->out, "...");
		if (v->shown >= PREVIEW_MAX)
			break;
		i = n - EDGE - 1;
	}
	ckb_buf_putc(v->out, ']');
	return rc;
}

static int put_preview(struct ckb_buf *b, struct ckpt_checkpoint *ckpt,
		       const struct ckpt_tensor_info *t, struct ckpt_err *err)
{
	struct preview v = { .out = b, .ckpt = ckpt, .t = t,
			     .shape = t->shape, .err = err };

	ckt_strides(v.step, t->shape->ndim, t->shape->dim, 1);
	v.summary = ckt_shape_count(t->shape) > SUMMARY_FROM;
	if (ckt_shape_count(t->shape) == 0) {
		ckb_buf_puts(b, "[]\n");
		return 0;
	}
	int rc = put_dims(&v, 0, 0);

	ckb_buf_putc(b, '\n');
	return rc;
}

/* ---- head ---- */

static void put_value(struct ckb_buf *b, const char *key,
		      enum ckpt_value_class c, union ckpt_value v)
{
	if (c == CKPT_VALUES_FLOAT)
		ckb_buf_printf(b, "%-9s%.9g\n", key, v.f);
	else if (c == CKPT_VALUES_SIGNED)
		ckb_buf_printf(b, "%-9s%" PRId64 "\n", key, v.i);
	else
		ckb_buf_printf(b, "%-9s%" PRIu64 "\n", key, v.u);
}

static void put_stats(struct ckb_buf *b, const struct ckpt_stats *s)
{
	uint64_t finite = s->count - s->nan_count - s->inf_count;

	if (s->value_class == CKPT_VALUES_NONE || s->count == 0)
		return;
	if (finite > 0) {
		put_value(b, "min", s->value_class, s->min);
		put_value(b, "max", s->value_class, s->max);
		ckb_buf_printf(b, "%-9s%.9g\n", "mean",
			       s->sum / (double)finite);
		ckb_buf_printf(b, "%-9s%.9g\n", "absmax", s->absmax);
	}
	ckb_buf_printf(b, "%-9s%" PRIu64 "\n%-9s%" PRIu64 "\n%-9s%" PRIu64
		       "\n", "zeros", s->zero_count, "nan", s->nan_count,
		       "inf", s->inf_count);
}

static void put_head(struct ckb_buf *b, const struct ckpt_tensor_info *t)
{
	char name[512], shape[CKT_TEXT_BYTES];

	ckb_buf_printf(b, "%-9s%s\n", "name",
		       ckb_quote(name, sizeof(name), t->name, t->name_len));
	ckb_buf_printf(b, "%-9s%s\n%-9s%s\n%-9s%" PRIu64 "\n", "dtype",
		       ckpt_dtype_name(t->dtype), "shape",
		       ckt_shape_text(shape, sizeof(shape), t->shape), "bytes",
		       t->bytes);
}

/* How the save's ranks held it. */
static int put_sharding(struct ckb_buf *b, struct ckpt_checkpoint *ckpt,
			const struct ckpt_tensor_info *t,
			struct ckpt_err *err)
{
	const struct cks_chunks *chunks;
	int rc = cks_checkpoint_chunks(ckpt, t, &chunks, err);

	if (rc < 0)
		return rc;
	if (chunks->layout.shard_count == 0)
		ckb_buf_printf(b, "%-9swhole\n", "sharding");
	else
		ckb_buf_printf(b, "%-9s%u shards\n", "sharding",
			       chunks->layout.shard_count);
	return 0;
}

/* @numbers: read the tensor; else blanks of the same width. */
static int render(struct ckpt_checkpoint *ckpt,
		  const struct ckpt_tensor_info *t, bool numbers,
		  struct ckb_buf *b, struct ckpt_err *err)
{
	put_head(b, t);
	int rc = put_sharding(b, ckpt, t, err);

	if (rc < 0)
		return rc;
	put_stats(b, &t->stats);
	ckb_buf_putc(b, '\n');
	rc = put_preview(b, numbers ? ckpt : NULL, t, err);
	if (rc == 0 && b->failed)
		rc = ckb_err_nomem(err);
	return rc;
}

uint64_t ckv_text_size(const struct ckpt_checkpoint *ckpt,
		       const struct ckpt_tensor_info *t)
{
	CKB_BUF struct ckb_buf b = { 0 };

	/* the chunk list is metadata: rendering without numbers reads no pack;
	 * a damaged one leaves the size at what was rendered */
	if (render((struct ckpt_checkpoint *)ckpt, t, false, &b, NULL) < 0)
		return b.len;
	return b.len;
}

int ckv_text(struct ckpt_checkpoint *ckpt, const struct ckpt_tensor_info *t,
	     struct ckb_buf *out, struct ckpt_err *err)
{
	return render(ckpt, t, true, out, err);
}
