/* SPDX-License-Identifier: Apache-2.0 */
/*
 * stats.c - statistics in one pass over a tile's bytes.
 *
 * Floats of every kind are widened to blocks of float (F64: double), then one
 * branch-free loop counts and folds them in LANES accumulators that the
 * compiler keeps in vector registers. The order of additions depends on the
 * bytes alone, so equal tiles give equal sums whatever the thread. Kinds of 8
 * bits and less are counted into a histogram of codes first. Pure.
 */
#include "tensor/stats.h"

#include <math.h>

#include "base/bytes.h"
#include "tensor/value.h"

#define LANES 8
#define BLOCK 512 /* elements widened at a time */

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

/* Running folds of one ckt_stats_add(). */
struct fold {
	float min[LANES], max[LANES];
	double sum[LANES];
	uint64_t nan, inf, zero;
};

static void fold_init(struct fold *f)
{
	memset(f, 0, sizeof(*f));
	for (int l = 0; l < LANES; l++) {
		f->min[l] = INFINITY;
		f->max[l] = -INFINITY;
	}
}

/* @n is a multiple of LANES. */
static void fold_f32(struct fold *f, const float *v, size_t n)
{
	uint32_t nan[LANES] = { 0 }, inf[LANES] = { 0 }, zero[LANES] = { 0 };

	for (size_t i = 0; i < n; i += LANES)
		for (int l = 0; l < LANES; l++) {
			float x = v[i + l];
			uint32_t bits, mag;

			memcpy(&bits, &x, sizeof(bits));
			mag = bits & 0x7fffffff;
			bool finite = mag < 0x7f800000;
			float low = finite ? x : INFINITY;
			float high = finite ? x : -INFINITY;

			nan[l] += mag > 0x7f800000;
			inf[l] += mag == 0x7f800000;
			zero[l] += mag == 0;
			f->min[l] = low < f->min[l] ? low : f->min[l];
			f->max[l] = high > f->max[l] ? high : f->max[l];
			f->sum[l] += (double)(finite ? x : 0.0f);
		}
	for (int l = 0; l < LANES; l++) {
		f->nan += nan[l];
		f->inf += inf[l];
		f->zero += zero[l];
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

static void fold_end(struct ckpt_stats *s, const struct fold *f)
{
	for (int l = 0; l < LANES; l++) {
		double low = (double)f->min[l], high = (double)f->max[l];

		s->min.f = low < s->min.f ? low : s->min.f;
		s->max.f = high > s->max.f ? high : s->max.f;
		s->sum += f->sum[l];
	}
	s->nan_count += f->nan;
	s->inf_count += f->inf;
	s->zero_count += f->zero;
}

static void widen(float *out, enum ckpt_dtype dtype, const uint8_t *p,
		  size_t n)
{
	if (dtype == CKPT_F32)
		for (size_t i = 0; i < n; i++)
			out[i] = ckt_bits_f32(ckb_get_u32(p + 4 * i));
	else if (dtype == CKPT_BF16)
		for (size_t i = 0; i < n; i++)
			out[i] = ckt_bf16(ckb_get_u16(p + 2 * i));
	else
		for (size_t i = 0; i < n; i++)
			out[i] = ckt_f16(ckb_get_u16(p + 2 * i));
}

static void add_f32_like(struct ckpt_stats *s, enum ckpt_dtype dtype,
			 const uint8_t *p, size_t count)
{
	size_t bytes = ckpt_dtype_bits(dtype) / 8, i = 0;
	float block[BLOCK];
	struct fold f;

	fold_init(&f);
	while (count - i >= LANES) {
		size_t n = ckb_min_u64(BLOCK, (count - i) / LANES * LANES);

		widen(block, dtype, p + i * bytes, n);
		fold_f32(&f, block, n);
		i += n;
	}
	fold_end(s, &f);
	for (; i < count; i++)
		take_one(s, ckt_value_f64(dtype, p, i));
}

static void add_f64(struct ckpt_stats *s, const uint8_t *p, size_t count)
{
	for (size_t i = 0; i < count; i++)
		take_one(s, ckt_value_f64(CKPT_F64, p, i));
}

/* Codes of 8 bits and less: count each, then weigh. */
static void add_small_float(struct ckpt_stats *s, enum ckpt_dtype dtype,
			    const uint8_t *p, size_t len)
{
	uint64_t count[256] = { 0 };
	uint32_t bits = ckpt_dtype_bits(dtype);

	if (bits == 6) {
		for (size_t i = 0; i < len * 8 / 6; i++)
			take_one(s, ckt_value_f64(dtype, p, i));
		return;
	}
	for (size_t i = 0; i < len; i++)
		count[p[i]]++;
	if (bits == 4) {
		uint64_t nibble[16] = { 0 };

		for (int b = 0; b < 256; b++) {
			nibble[b & 15] += count[b];
			nibble[b >> 4] += count[b];
		}
		memset(count, 0, sizeof(count));
		memcpy(count, nibble, sizeof(nibble));
	}
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

static void add_signed(struct ckpt_stats *s, enum ckpt_dtype dtype,
		       const uint8_t *p, size_t count)
{
	uint32_t bytes = ckpt_dtype_bits(dtype) / 8;

	for (size_t i = 0; i < count; i++, p += bytes) {
		int64_t v = bytes == 1 ? (int8_t)*p
			  : bytes == 2 ? (int16_t)ckb_get_u16(p)
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
		uint64_t v = bytes == 1 ? *p
			   : bytes == 2 ? ckb_get_u16(p)
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
		add_signed(stats, dtype, data, count);
		break;
	case CKPT_VALUES_UNSIGNED:
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
