/* SPDX-License-Identifier: Apache-2.0 */
/*
 * npy.c - .npy headers, byte for byte as NumPy 2 writes them.
 *
 * Magic, version, length, then a Python literal with its keys sorted, padded
 * so that the data begin on a multiple of 64. Version 1.0 always: 64 dims of
 * 20 digits stay far below its 65,535 bytes. For each shape with a dimension
 * NumPy leaves room for the first one to grow to 21 characters, and it pads by
 * a full 64 when the header is aligned already; a reader needs neither, but
 * then files would differ from NumPy's own. C order only. Pure.
 */
#include "foreign/npy.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "base/bytes.h"
#include "tensor/dtype.h"

#define PREFIX_BYTES 10u /* magic 6, version 2, length 2 */
#define GROWTH_CHARS 21u /* numpy's GROWTH_AXIS_MAX_DIGITS */

bool ckx_npy_possible(enum ckpt_dtype dtype)
{
	const struct ckt_dtype *d = ckt_dtype_get(dtype);

	return d && d->npy_descr;
}

/* "(3, 4)"; one dimension is "(3,)", none "()". */
static void put_shape(struct ckb_buf *out, const struct ckpt_shape *shape)
{
	ckb_buf_putc(out, '(');
	for (uint32_t d = 0; d < shape->ndim; d++)
		ckb_buf_printf(out, d ? ", %" PRIu64 : "%" PRIu64,
			       shape->dim[d]);
	ckb_buf_puts(out, shape->ndim == 1 ? ",)" : ")");
}

static uint32_t decimals(uint64_t v)
{
	uint32_t n = 1;

	for (; v >= 10; v /= 10)
		n++;
	return n;
}

static uint32_t shape_chars(const struct ckpt_shape *shape)
{
	uint32_t n = 2;

	for (uint32_t d = 0; d < shape->ndim; d++)
		n += decimals(shape->dim[d]) + (d ? 2 : 0);
	return n + (shape->ndim == 1);
}

static const char before_descr[] = "{'descr': '";
static const char before_shape[] = "', 'fortran_order': False, 'shape': ";
static const char after_shape[] = ", }";

/* Characters of the literal and its growth, without padding and newline. */
static size_t text_chars(const char *descr, const struct ckpt_shape *shape)
{
	size_t n = strlen(before_descr) + strlen(descr) +
		   strlen(before_shape) + shape_chars(shape) +
		   strlen(after_shape);

	if (shape->ndim > 0)
		n += GROWTH_CHARS - decimals(shape->dim[0]);
	return n;
}

static size_t whole_len(const char *descr, const struct ckpt_shape *shape)
{
	size_t n = PREFIX_BYTES + text_chars(descr, shape) + 1;

	return n + 64 - n % 64;
}

size_t ckx_npy_header_len(enum ckpt_dtype dtype,
			  const struct ckpt_shape *shape)
{
	CKB_REQUIRE(ckx_npy_possible(dtype));
	CKB_REQUIRE(shape->ndim <= CKPT_NDIM_MAX);
	return whole_len(ckt_dtype_get(dtype)->npy_descr, shape);
}

void ckx_npy_header(enum ckpt_dtype dtype, const struct ckpt_shape *shape,
		    struct ckb_buf *out)
{
	size_t len = ckx_npy_header_len(dtype, shape), from = out->len, text;
	uint8_t prefix[PREFIX_BYTES] = "\223NUMPY\001";
	char *pad;

	ckb_put_u16(prefix + 8, (uint16_t)(len - PREFIX_BYTES));
	ckb_buf_put(out, prefix, sizeof(prefix));
	ckb_buf_puts(out, before_descr);
	ckb_buf_puts(out, ckt_dtype_get(dtype)->npy_descr);
	ckb_buf_puts(out, before_shape);
	put_shape(out, shape);
	ckb_buf_puts(out, after_shape);
	text = out->len - from;
	pad = out->failed ? NULL : ckb_buf_extend(out, len - text);
	if (!pad)
		return;
	memset(pad, ' ', len - text - 1);
	pad[len - text - 1] = '\n';
}
