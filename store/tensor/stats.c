/* SPDX-License-Identifier: Apache-2.0 */
/*
 * stats.c - statistics in one pass over a tile's bytes.
 *
 * Floating-point kinds of 16 and 32 bits are folded in lanes (fold.h). Kinds of
 * 8 bits and less are counted into a histogram of codes first. Sums do not
 * depend on thread or processor. Pure.
 */
#include "tensor/stats.h"

#include <math.h>

#include "base/bytes.h"
#include "tensor/fold.h"
#include "tensor/value.h"

void ckt_stats_init(struct ckpt_stats *stats, enum ckpt_dtype dtype)
{
	const struct ckt_dtype *d = ckt_dtype_get(dtype);

	memset(stats, 0, sizeof(*stats));
	stats->value_class = d ? d->value_class : CKPT_VALUES_NONE;
	switch (stats->value_class) {
	case CKPT_VALUES_FLOAT:
		stats->min.f = INFINITY;
		stats->max.f = -INFINITY;
		break;
	case CKPT_VALUES_SIGNED:
		stats->min.i = INT64_MAX;
		stats->max.i = INT64_MIN;
		break;
	case CKPT_VALUES_UNSIGNED:
		stats->min.u = UINT64_MAX;
		break;
	case CKPT_VALUES_NONE:
		break;
	}
}

static void take_one(struct ckpt_stats *s, double x)
{
	if (isnan(x)) {
		s->nan_count++;
	} else if (isinf(x)) {
		s->inf_count++;
	} else {
		s->zero_count += x == 0;
		s->min.f = x < s->min.f ? x : s->min.f;
		s->max.f = x > s->max.f ? x : s->max.f;
		s->sum += x;
	}
}

static ckt_fold_fn fold_for(enum ckpt_dtype dtype)
{
#ifdef __x86_64__
	if (ckt_fold_has_512())
		return dtype == CKPT_F32 ? ckt_fold_f32_512
		     : dtype == CKPT_BF16 ? ckt_fold_bf16_512
					  : ckt_fold_f16_512;
	if (ckt_fold_has_wide())
		return dtype == CKPT_F32 ? ckt_fold_f32_wide
		     : dtype == CKPT_BF16 ? ckt_fold_bf16_wide
					  : ckt_fold_f16_wide;
#endif
	return dtype == CKPT_F32 ? ckt_fold_f32
	     : dtype == CKPT_BF16 ? ckt_fold_bf16
				  : ckt_fold_f16;
}

/* @n elements are in @f. Lanes in their order. */
static void fold_end(struct ckpt_stats *s, const struct ckt_fold *f, size_t n)
{
	for (int l = 0; l < CKT_FOLD_LANES; l++) {
		double low = (double)f->min[l], high = (double)f->max[l];

		s->min.f = low < s->min.f ? low : s->min.f;
		s->max.f = high > s->max.f ? high : s->max.f;
		s->sum += f->sum[l];
	}
	s->nan_count += f->nan;
	s->inf_count += n - f->finite - f->nan;
	s->zero_count += f->zero;
}

static void add_f32_like(struct ckpt_stats *s, enum ckpt_dtype dtype,
			 const uint8_t *p, size_t count)
{
	size_t bytes = ckpt_dtype_bits(dtype) / 8, done = 0;
	size_t end = count / CKT_FOLD_LANES * CKT_FOLD_LANES;
	ckt_fold_fn fold = fold_for(dtype);
	struct ckt_fold f = { .nan = 0 };

	for (int l = 0; l < CKT_FOLD_LANES; l++) {
		f.min[l] = INFINITY;
		f.max[l] = -INFINITY;
	}
	while (done < end) {
		size_t n = (size_t)ckb_min_u64(CKT_FOLD_MAX, end - done);

		fold(&f, p + done * bytes, n);
		done += n;
	}
	fold_end(s, &f, end);
	for (; done < count; done++)
		take_one(s, ckt_value_f64(dtype, p, done));
}

static void add_f64(struct ckpt_stats *s, const uint8_t *p, size_t count)
{
	for (size_t i = 0; i < count; i++)
		take_one(s, ckt_value_f64(CKPT_F64, p, i));
}

/* How often each code of @bits (4, 6 or 8) is there. */
static void histogram(uint64_t count[256], uint32_t bits, const uint8_t *p,
		      size_t len)
{
	uint64_t byte[256] = { 0 };
	size_t i = 0;

	memset(count, 0, 256 * sizeof(*count));
	if (bits == 6) {
		for (; len - i >= 3; i += 3) {
			uint32_t w = p[i] | (uint32_t)p[i + 1] << 8 |
				     (uint32_t)p[i + 2] << 16;

			count[w & 63]++;
			count[w >> 6 & 63]++;
			count[w >> 12 & 63]++;
			count[w >> 18]++;
		}
		if (len - i >= 1)
			count[p[i] & 63]++;
		if (len - i == 2)
			count[(p[i] | (uint32_t)p[i + 1] << 8) >> 6 & 63]++;
		return;
	}
	for (; i < len; i++)
		byte[p[i]]++;
	for (int b = 0; b < 256; b++)
		if (bits == 4) {
			count[b & 15] += byte[b];
			count[b >> 4] += byte[b];
		} else {
			count[b] = byte[b];
		}
}

/* Codes of 8 bits and less: count each, then weigh. */
static void add_small_float(struct ckpt_stats *s, enum ckpt_dtype dtype,
			    const uint8_t *p, size_t len)
{
	uint64_t count[256];

	histogram(count, ckpt_dtype_bits(dtype), p, len);
	for (int b = 0; b < 256; b++) {
		double x = (double)ckt_small_float(dtype, (uint8_t)b);

		if (count[b] == 0)
			continue;
		double before = s->sum;

		take_one(s, x);
		if (isnan(x)) {
			s->nan_count += count[b] - 1;
		} else if (isinf(x)) {
			s->inf_count += count[b] - 1;
		} else {
			s->zero_count += x == 0 ? count[b] - 1 : 0;
			s->sum = before + x * (double)count[b];
		}
	}
}

/* BOOL, U8, I8 */
static void add_byte(struct ckpt_stats *s, enum ckpt_dtype dtype,
		     const uint8_t *p, size_t len)
{
	uint64_t count[256];

	histogram(count, 8, p, len);
	s->zero_count += count[0];
	for (int b = 0; b < 256; b++) {
		int v = dtype == CKPT_I8 ? (int8_t)b : b;

		if (count[b] == 0)
			continue;
		s->sum += (double)v * (double)count[b];
		if (s->value_class == CKPT_VALUES_SIGNED) {
			s->min.i = v < s->min.i ? v : s->min.i;
			s->max.i = v > s->max.i ? v : s->max.i;
		} else {
			uint64_t u = (uint64_t)v;

			s->min.u = u < s->min.u ? u : s->min.u;
			s->max.u = u > s->max.u ? u : s->max.u;
		}
	}
}

static void add_signed(struct ckpt_stats *s, enum ckpt_dtype dtype,
		       const uint8_t *p, size_t count)
{
	uint32_t bytes = ckpt_dtype_bits(dtype) / 8;

	for (size_t i = 0; i < count; i++, p += bytes) {
		int64_t v = bytes == 2 ? (int16_t)ckb_get_u16(p)
			  : bytes == 4 ? (int32_t)ckb_get_u32(p)
				       : (int64_t)ckb_get_u64(p);

		s->min.i = v < s->min.i ? v : s->min.i;
		s->max.i = v > s->max.i ? v : s->max.i;
		s->zero_count += v == 0;
		s->sum += (double)v;
	}
}

static void add_unsigned(struct ckpt_stats *s, enum ckpt_dtype dtype,
			 const uint8_t *p, size_t count)
{
	uint32_t bytes = ckpt_dtype_bits(dtype) / 8;

	for (size_t i = 0; i < count; i++, p += bytes) {
		uint64_t v = bytes == 2 ? ckb_get_u16(p)
			   : bytes == 4 ? ckb_get_u32(p)
					: ckb_get_u64(p);

		s->min.u = v < s->min.u ? v : s->min.u;
		s->max.u = v > s->max.u ? v : s->max.u;
		s->zero_count += v == 0;
		s->sum += (double)v;
	}
}

static void set_absmax(struct ckpt_stats *s)
{
	double a = 0, b = 0;

	if (s->value_class == CKPT_VALUES_FLOAT && s->max.f >= s->min.f) {
		a = fabs(s->min.f);
		b = fabs(s->max.f);
	} else if (s->value_class == CKPT_VALUES_SIGNED &&
		   s->max.i >= s->min.i) {
		a = fabs((double)s->min.i);
		b = fabs((double)s->max.i);
	} else if (s->value_class == CKPT_VALUES_UNSIGNED) {
		a = (double)s->max.u;
	}
	s->absmax = a > b ? a : b;
}

void ckt_stats_add(struct ckpt_stats *stats, enum ckpt_dtype dtype,
		   const void *data, size_t len)
{
	uint32_t bits = ckpt_dtype_bits(dtype);
	size_t count = (size_t)((uint64_t)len * 8 / bits);

	stats->count += count;
	switch (stats->value_class) {
	case CKPT_VALUES_FLOAT:
		if (dtype == CKPT_F64)
			add_f64(stats, data, count);
		else if (bits >= 16)
			add_f32_like(stats, dtype, data, count);
		else
			add_small_float(stats, dtype, data, len);
		break;
	case CKPT_VALUES_SIGNED:
		if (bits == 8)
			add_byte(stats, dtype, data, len);
		else
			add_signed(stats, dtype, data, count);
		break;
	case CKPT_VALUES_UNSIGNED:
		if (bits == 8)
			add_byte(stats, dtype, data, len);
		else
			add_unsigned(stats, dtype, data, count);
		break;
	case CKPT_VALUES_NONE:
		break;
	}
	set_absmax(stats);
}

void ckt_stats_merge(struct ckpt_stats *stats, const struct ckpt_stats *next)
{
	stats->count += next->count;
	stats->nan_count += next->nan_count;
	stats->inf_count += next->inf_count;
	stats->zero_count += next->zero_count;
	stats->sum += next->sum;
	switch (stats->value_class) {
	case CKPT_VALUES_FLOAT:
		if (next->min.f < stats->min.f)
			stats->min.f = next->min.f;
		if (next->max.f > stats->max.f)
			stats->max.f = next->max.f;
		break;
	case CKPT_VALUES_SIGNED:
		if (next->min.i < stats->min.i)
			stats->min.i = next->min.i;
		if (next->max.i > stats->max.i)
			stats->max.i = next->max.i;
		break;
	case CKPT_VALUES_UNSIGNED:
		if (next->min.u < stats->min.u)
			stats->min.u = next->min.u;
		if (next->max.u > stats->max.u)
			stats->max.u = next->max.u;
		break;
	case CKPT_VALUES_NONE:
		break;
	}
	set_absmax(stats);
}
