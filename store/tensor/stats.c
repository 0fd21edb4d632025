/* SPDX-License-Identifier: Apache-2.0 */
/*
 * stats.c - statistics in one pass over a tile's bytes.
 *
 * Kinds of 16 and 32 bits are folded eight elements at a time, branch-free, in
 * vectors of four (GCC's vector types: SSE2, NEON, or plain code where there
 * are none): lane i % 8 of each accumulator takes in element i, so the order
 * of additions depends on the bytes alone, and equal tiles give equal sums
 * whatever the thread or the processor. Kinds of 8 bits and less are counted
 * into a histogram of codes first. Pure.
 */
#include "tensor/stats.h"

#include <math.h>

#include "base/bytes.h"
#include "tensor/value.h"

#define LANES 8
#define BLOCK (1u << 20) /* elements between sums of 32-bit counts */
#define F32_INF 0x7f800000

typedef float vec_f __attribute__((vector_size(16)));
typedef int32_t vec_i __attribute__((vector_size(16)));
typedef uint32_t vec_u __attribute__((vector_size(16)));
typedef float pair_f __attribute__((vector_size(8)));
typedef double pair_d __attribute__((vector_size(16)));

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

/* Running folds of four lanes; a negative count: comparisons give -1. */
struct fold {
	vec_f min, max;
	pair_d sum[2];
	vec_i nan, finite, zero;
};

static void fold_init(struct fold *f)
{
	memset(f, 0, sizeof(*f));
	f->min = f->min + INFINITY;
	f->max = f->max - INFINITY;
}

static inline vec_i pick(vec_i mask, vec_i yes, vec_i no)
{
	return (yes & mask) | (no & ~mask);
}

static inline void fold_four(struct fold *f, vec_i bits)
{
	vec_i mag = bits & 0x7fffffff, finite = mag < F32_INF;
	vec_i kept = bits & finite; /* the others become 0 */
	vec_f low = (vec_f)(kept | (F32_INF & ~finite));
	vec_f high = (vec_f)(kept | ((int32_t)0xff800000 & ~finite));
	union {
		vec_i all;
		pair_f half[2];
	} x = { kept };

	f->nan += mag > F32_INF;
	f->finite += finite;
	f->zero += mag == 0;
	f->min = (vec_f)pick(low < f->min, (vec_i)low, (vec_i)f->min);
	f->max = (vec_f)pick(high > f->max, (vec_i)high, (vec_i)f->max);
	f->sum[0] += __builtin_convertvector(x.half[0], pair_d);
	f->sum[1] += __builtin_convertvector(x.half[1], pair_d);
}

/* Four F16, in the low halves, as F32: the exponent's bias is moved, by the
 * same again for Inf and NaN; below 2^-14 the value is an integer scaled. */
static inline vec_i from_f16(vec_u half)
{
	vec_i mag = (vec_i)(half & 0x7fff), sign = (vec_i)(half << 16);
	vec_i wide = (mag << 13) + (112 << 23);
	vec_f tiny = __builtin_convertvector(mag, vec_f) * 0x1p-24f;

	wide += (mag >= 0x7c00) & (112 << 23);
	return pick(mag < 0x0400, (vec_i)tiny, wide) |
	       (sign & (int32_t)0x80000000);
}

/* 16 bytes as little-endian words. */
static inline vec_u words(const uint8_t *p)
{
	vec_u w;

	memcpy(&w, p, sizeof(w));
	for (int i = 0; i < 4 && __BYTE_ORDER == __BIG_ENDIAN; i++)
		w[i] = le32toh(w[i]);
	return w;
}

/* @n is a multiple of LANES. F32: lanes 0-3 go to f[0], 4-7 to f[1]. */
static void fold_f32(struct fold *f, const uint8_t *p, size_t n)
{
	struct fold a = f[0], b = f[1];

	for (size_t i = 0; i < n; i += LANES, p += 4 * LANES) {
		fold_four(&a, (vec_i)words(p));
		fold_four(&b, (vec_i)words(p + 16));
	}
	f[0] = a;
	f[1] = b;
}

/* 16 bits: even lanes, the low halves of words, go to f[0], odd to f[1]. */
static void fold_bf16(struct fold *f, const uint8_t *p, size_t n)
{
	struct fold a = f[0], b = f[1];

	for (size_t i = 0; i < n; i += LANES, p += 2 * LANES) {
		vec_u w = words(p);

		fold_four(&a, (vec_i)(w << 16));
		fold_four(&b, (vec_i)(w & 0xffff0000));
	}
	f[0] = a;
	f[1] = b;
}

static void fold_f16(struct fold *f, const uint8_t *p, size_t n)
{
	struct fold a = f[0], b = f[1];

	for (size_t i = 0; i < n; i += LANES, p += 2 * LANES) {
		vec_u w = words(p);

		fold_four(&a, from_f16(w & 0xffff));
		fold_four(&b, from_f16(w >> 16));
	}
	f[0] = a;
	f[1] = b;
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

/* Counts of one block into @s; 32 bits each are enough for it. */
static void fold_counts(struct ckpt_stats *s, struct fold *f, size_t n)
{
	uint64_t nan = 0, finite = 0, zero = 0;

	for (int h = 0; h < 2; h++)
		for (int l = 0; l < 4; l++) {
			nan += (uint32_t)-f[h].nan[l];
			finite += (uint32_t)-f[h].finite[l];
			zero += (uint32_t)-f[h].zero[l];
		}
	s->nan_count += nan;
	s->inf_count += n - finite - nan;
	s->zero_count += zero;
	for (int h = 0; h < 2; h++) {
		memset(&f[h].nan, 0, sizeof(f[h].nan));
		memset(&f[h].finite, 0, sizeof(f[h].finite));
		memset(&f[h].zero, 0, sizeof(f[h].zero));
	}
}

/* Lanes in their order. */
static void fold_end(struct ckpt_stats *s, const struct fold *f, bool halves)
{
	for (int l = 0; l < LANES; l++) {
		const struct fold *of = &f[halves ? l % 2 : l / 4];
		int at = halves ? l / 2 : l % 4;
		double low = (double)of->min[at], high = (double)of->max[at];

		s->min.f = low < s->min.f ? low : s->min.f;
		s->max.f = high > s->max.f ? high : s->max.f;
		s->sum += of->sum[at / 2][at % 2];
	}
}

static void add_f32_like(struct ckpt_stats *s, enum ckpt_dtype dtype,
			 const uint8_t *p, size_t count)
{
	size_t bytes = ckpt_dtype_bits(dtype) / 8, i = 0;
	struct fold f[2];

	fold_init(&f[0]);
	fold_init(&f[1]);
	while (count - i >= LANES) {
		size_t n = ckb_min_u64(BLOCK, (count - i) / LANES * LANES);

		if (dtype == CKPT_F32)
			fold_f32(f, p + i * bytes, n);
		else if (dtype == CKPT_BF16)
			fold_bf16(f, p + i * bytes, n);
		else
			fold_f16(f, p + i * bytes, n);
		fold_counts(s, f, n);
		i += n;
	}
	fold_end(s, f, bytes == 2);
	for (; i < count; i++)
		take_one(s, ckt_value_f64(dtype, p, i));
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
