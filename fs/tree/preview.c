/* SPDX-License-Identifier: Apache-2.0 */
/*
 * preview.c - a tensor's numbers for people, in NumPy's form.
 *
 * Brackets; lines of at most 79 columns; a blank line between matrices. Up to
 * SUMMARY_FROM elements all are shown, else the first and last three of each
 * dimension with '...' between, fewer in the outer dimensions once about
 * SHOWN_MAX numbers are reached, so a tensor of any rank fits a screen or two.
 *
 * A number's width follows from the dtype alone, so the text has the same
 * length with blanks for numbers: that is how its size is known before, and
 * without, reading the tensor. Any thread.
 */
#include <inttypes.h>
#include <math.h>
#include <string.h>

#include "base/bytes.h"
#include "tensor/box.h"
#include "tensor/dtype.h"
#include "tensor/stats.h"
#include "tree/internal.h"

#define EDGE 3u
#define SUMMARY_FROM 1000u
#define SHOWN_MAX 300u
#define COLUMNS 79u
#define RUN_BYTES ((SUMMARY_FROM + 8) * 16) /* an element: 16 at most */

struct preview {
	struct ckb_buf *out;
	struct ckpt_checkpoint *ckpt; /* NULL: blanks for numbers */
	const struct ckpt_tensor_info *t;
	struct ckpt_err *err;
	uint32_t ndim;
	uint32_t column;              /* of the line being written */
	uint64_t step[CKPT_NDIM_MAX]; /* elements between neighbours */
	/* shown of each dimension: the first, then a gap, then the last */
	uint32_t head[CKPT_NDIM_MAX], tail[CKPT_NDIM_MAX];
	uint8_t *bytes;               /* of one run: RUN_BYTES; or NULL */
};

/* ---- numbers ---- */

static uint32_t width_of(enum ckpt_dtype dtype)
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
	case CKPT_I64:
		return 20;
	case CKPT_F32:
		return 13; /* -1.234567e+38 */
	case CKPT_F64:
		return 14; /* -1.234567e-308 */
	case CKPT_C64:
		return 2 * 13 + 1;
	case CKPT_C128:
		return 2 * 14 + 1;
	default:
		return 11; /* -6.5504e+04: all that F16 can tell */
	}
}

static void put_float(struct ckb_buf *b, double v, uint32_t width, int digits,
		      bool sign)
{
	if (isnan(v)) /* of either sign, as NumPy has it */
		ckb_buf_printf(b, "%*s", (int)width, sign ? "+nan" : "nan");
	else if (sign)
		ckb_buf_printf(b, "%+*.*e", (int)width, digits, v);
	else
		ckb_buf_printf(b, "%*.*e", (int)width, digits, v);
}

static void put_complex(struct ckb_buf *b, enum ckpt_dtype dtype,
			const uint8_t *p)
{
	enum ckpt_dtype half = dtype == CKPT_C64 ? CKPT_F32 : CKPT_F64;
	uint32_t width = width_of(half);

	put_float(b, ckt_value_f64(half, p, 0), width, 6, false);
	put_float(b, ckt_value_f64(half, p, 1), width, 6, true);
	ckb_buf_putc(b, 'j');
}

static uint64_t get_unsigned(const uint8_t *p, uint32_t bits)
{
	return bits == 8    ? *p
	       : bits == 16 ? ckb_get_u16(p)
	       : bits == 32 ? ckb_get_u32(p)
			    : ckb_get_u64(p);
}

/* Element @i of packed @data. */
static void put_number(struct ckb_buf *b, enum ckpt_dtype dtype,
		       const uint8_t *data, uint64_t i)
{
	const struct ckt_dtype *d = ckt_dtype_get(dtype);
	const uint8_t *p = data + i * (d->bits / 8);
	uint32_t width = width_of(dtype);

	if (dtype == CKPT_BOOL)
		ckb_buf_printf(b, "%*s", (int)width, *p ? "True" : "False");
	else if (dtype == CKPT_C64 || dtype == CKPT_C128)
		put_complex(b, dtype, p);
	else if (d->value_class == CKPT_VALUES_UNSIGNED)
		ckb_buf_printf(b, "%*" PRIu64, (int)width,
			       get_unsigned(p, d->bits));
	else if (d->value_class == CKPT_VALUES_SIGNED)
		ckb_buf_printf(b, "%*" PRId64, (int)width,
			       (int64_t)(get_unsigned(p, d->bits)
					 << (64 - d->bits)) >>
				       (64 - d->bits));
	else
		put_float(b, ckt_value_f64(dtype, data, i), width,
			  dtype == CKPT_F32 || dtype == CKPT_F64 ? 6 : 4,
			  false);
}

/* ---- rows ---- */

/* What printf("%*s", count, "") does, at a tenth of its price: every `ls -l`
 * asks for the size of each text. */
static void put_blanks(struct ckb_buf *b, uint32_t count)
{
	static const char blanks[64] = "                              "
				       "                                 ";

	for (; count > 63; count -= 63)
		ckb_buf_put(b, blanks, 63);
	ckb_buf_put(b, blanks, count);
}

/*
 * Elements [@first, @first + @count) into v->bytes, from one that begins on a
 * byte; *@out_at is the place of the first there.
 */
static int read_run(struct preview *v, uint64_t first, uint32_t count,
		    uint64_t *out_at)
{
	uint32_t bits = ckpt_dtype_bits(v->t->dtype);
	uint64_t at = first & 7, off = (first - at) / 8 * bits;
	uint64_t len = ckb_div_up((at + count) * bits, 8);

	CKB_INVARIANT(len <= RUN_BYTES);
	*out_at = at;
	return ckpt_read_bytes(v->ckpt, v->t, off,
			       (size_t)ckb_min_u64(len, v->t->bytes - off),
			       v->bytes, v->err);
}

/* Room for a word of @width in this line or the next. */
static void put_space(struct preview *v, bool first, uint32_t width)
{
	if (first)
		return;
	if (v->column + 1 + width < COLUMNS) {
		ckb_buf_putc(v->out, ' ');
		v->column++;
	} else {
		ckb_buf_putc(v->out, '\n');
		put_blanks(v->out, v->ndim);
		v->column = v->ndim;
	}
}

static int put_run(struct preview *v, uint64_t index, uint32_t count,
		   bool first)
{
	enum ckpt_dtype dtype = v->t->dtype;
	uint32_t width = width_of(dtype);
	uint64_t at = 0;
	int rc = v->ckpt && count > 0 ? read_run(v, index, count, &at) : 0;

	for (uint32_t i = 0; rc == 0 && i < count; i++) {
		put_space(v, first && i == 0, width);
		if (v->ckpt)
			put_number(v->out, dtype, v->bytes, at + i);
		else
			put_blanks(v->out, width);
		v->column += width;
	}
	return rc;
}

/* The innermost dimension, from element @index on. */
static int put_row(struct preview *v, uint64_t index)
{
	uint32_t d = v->ndim - 1;
	uint64_t n = v->t->shape->dim[d];
	int rc = put_run(v, index, v->head[d], true);

	if (rc == 0 && (uint64_t)v->head[d] + v->tail[d] < n) {
		put_space(v, false, 3);
		ckb_buf_puts(v->out, "...");
		v->column += 3;
	}
	return rc < 0 ? rc
		      : put_run(v, index + n - v->tail[d], v->tail[d], false);
}

/* ---- dimensions ---- */

/* Between two entries of dimension @d: a blank line unless they are rows. */
static void put_break(struct preview *v, uint32_t d)
{
	ckb_buf_puts(v->out, d + 2 < v->ndim ? "\n\n" : "\n");
	put_blanks(v->out, d + 1);
	v->column = d + 1;
}

/* Dimension @d, with the element at @index first. */
static int put_dims(struct preview *v, uint32_t d, uint64_t index)
{
	uint64_t n = v->t->shape->dim[d];
	uint32_t shown = v->head[d] + v->tail[d];
	int rc = 0;

	ckb_buf_putc(v->out, '[');
	v->column++;
	if (d + 1 == v->ndim)
		rc = put_row(v, index);
	for (uint32_t i = 0; rc == 0 && d + 1 < v->ndim && i < shown; i++) {
		bool is_tail = i >= v->head[d];
		uint64_t at = is_tail ? n - shown + i : i;

		if (i > 0)
			put_break(v, d);
		if (i == v->head[d]) {
			ckb_buf_puts(v->out, "...");
			put_break(v, d);
		}
		rc = put_dims(v, d + 1, index + at * v->step[d]);
	}
	if (d + 1 < v->ndim && v->tail[d] == 0 && shown < n) {
		put_break(v, d);
		ckb_buf_puts(v->out, "...");
	}
	ckb_buf_putc(v->out, ']');
	return rc;
}

/* How many of @n are shown at each end, when @inner numbers stand in each. */
static void choose(uint64_t n, uint64_t inner, uint32_t *head, uint32_t *tail)
{
	*tail = 0;
	if (n <= 2 * EDGE && inner * n <= SHOWN_MAX) {
		*head = (uint32_t)n;
		return;
	}
	for (uint32_t edge = EDGE; edge > 0; edge--)
		if (n > 2 * edge && inner * 2 * edge <= SHOWN_MAX) {
			*head = *tail = edge;
			return;
		}
	*head = 1;
}

static void plan(struct preview *v)
{
	const struct ckpt_shape *shape = v->t->shape;
	bool all = ckt_shape_count(shape) <= SUMMARY_FROM;
	uint64_t inner = 1;

	ckt_strides(v->step, shape->ndim, shape->dim, 1);
	for (uint32_t d = shape->ndim; d-- > 0;) {
		if (all) {
			v->head[d] = (uint32_t)shape->dim[d];
			v->tail[d] = 0;
		} else {
			choose(shape->dim[d], inner, &v->head[d], &v->tail[d]);
		}
		inner *= v->head[d] + v->tail[d];
	}
}

int ckv_preview(struct ckb_buf *out, struct ckpt_checkpoint *ckpt,
		const struct ckpt_tensor_info *t, struct ckpt_err *err)
{
	CKB_FREE uint8_t *bytes = NULL;
	struct preview v = { .out = out, .ckpt = ckpt, .t = t, .err = err,
			     .ndim = t->shape->ndim };
	int rc = 0;

	if (ckt_shape_count(t->shape) == 0) {
		ckb_buf_puts(out, "[]\n");
		return 0;
	}
	if (ckpt) {
		bytes = malloc(RUN_BYTES);
		if (!bytes)
			return ckb_err_nomem(err);
		v.bytes = bytes;
	}
	plan(&v);
	if (v.ndim == 0)
		rc = put_run(&v, 0, 1, true);
	else
		rc = put_dims(&v, 0, 0);
	ckb_buf_putc(out, '\n');
	return rc;
}
