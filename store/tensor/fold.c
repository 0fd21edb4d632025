/* SPDX-License-Identifier: Apache-2.0 */
/*
 * fold.c - eight lanes at a time, branch-free, in GCC's vector types.
 *
 * Compiled twice: in vectors of 16 bytes, which every processor we know has
 * (SSE2, NEON; plain code elsewhere), and with CKT_FOLD_WIDE in 32 bytes, which
 * only the folder's meson.build may do, with -mavx2. Wider types than the
 * target's are no way out: compilers take them apart to single elements. Pure.
 */
#include "tensor/fold.h"

#include "base/bytes.h"

#ifdef CKT_FOLD_WIDE
#define VECTOR 32
#define FOLD(kind) ckt_fold_##kind##_wide
#else
#define VECTOR 16
#define FOLD(kind) ckt_fold_##kind
#endif
#define HALF (VECTOR / 2)
#define PER (VECTOR / 4)              /* elements in a vector */
#define VECTORS (CKT_FOLD_LANES / PER)
#define F32_INF 0x7f800000
#define BIG (__BYTE_ORDER == __BIG_ENDIAN)

typedef uint16_t vec_h __attribute__((vector_size(HALF)));
typedef float half_f __attribute__((vector_size(HALF)));
typedef float vec_f __attribute__((vector_size(VECTOR)));
typedef double vec_d __attribute__((vector_size(VECTOR)));
typedef int32_t vec_i __attribute__((vector_size(VECTOR)));
typedef uint32_t vec_u __attribute__((vector_size(VECTOR)));

/* A vector's folds; the counts are negative, as comparisons give -1. */
struct part {
	vec_f min, max;
	vec_d sum[2];
	vec_i nan, finite, zero;
};

static void part_load(struct part *t, const struct ckt_fold *f, int first)
{
	memset(t, 0, sizeof(*t));
	memcpy(&t->min, f->min + first, sizeof(t->min));
	memcpy(&t->max, f->max + first, sizeof(t->max));
	memcpy(t->sum, f->sum + first, sizeof(t->sum));
}

static void part_store(const struct part *t, struct ckt_fold *f, int first)
{
	memcpy(f->min + first, &t->min, sizeof(t->min));
	memcpy(f->max + first, &t->max, sizeof(t->max));
	memcpy(f->sum + first, t->sum, sizeof(t->sum));
	for (int i = 0; i < PER; i++) {
		f->nan += (uint32_t)-t->nan[i];
		f->finite += (uint32_t)-t->finite[i];
		f->zero += (uint32_t)-t->zero[i];
	}
}

/* @bits: F32. */
static inline void part_add(struct part *t, vec_i bits)
{
	vec_i mag = bits & 0x7fffffff, finite = mag < F32_INF;
	vec_i kept = bits & finite; /* the others become 0 */
	vec_f low = (vec_f)(kept | (F32_INF & ~finite));
	vec_f high = (vec_f)(kept | ((int32_t)0xff800000 & ~finite));
	vec_i less = low < t->min, more = high > t->max;
	union {
		vec_i all;
		half_f half[2];
	} x = { kept };

	t->nan += mag > F32_INF;
	t->finite += finite;
	t->zero += mag == 0;
	t->min = (vec_f)(((vec_i)low & less) | ((vec_i)t->min & ~less));
	t->max = (vec_f)(((vec_i)high & more) | ((vec_i)t->max & ~more));
	t->sum[0] += __builtin_convertvector(x.half[0], vec_d);
	t->sum[1] += __builtin_convertvector(x.half[1], vec_d);
}

static inline vec_i from_f32(const uint8_t *p)
{
	vec_i w;

	memcpy(&w, p, sizeof(w));
	for (int i = 0; i < PER && BIG; i++)
		w[i] = (int32_t)le32toh((uint32_t)w[i]);
	return w;
}

/* Half-words in words. */
static inline vec_i widen(const uint8_t *p)
{
	vec_h h;

	memcpy(&h, p, sizeof(h));
	for (int i = 0; i < PER && BIG; i++)
		h[i] = le16toh(h[i]);
	return __builtin_convertvector(h, vec_i);
}

static inline vec_i from_bf16(const uint8_t *p)
{
	return (vec_i)((vec_u)widen(p) << 16);
}

/* The exponent's bias is moved, by the same again for Inf and NaN; below 2^-14
 * the value is an integer scaled. */
static inline vec_i from_f16(const uint8_t *p)
{
	vec_i x = widen(p), mag = x & 0x7fff, small = mag < 0x0400;
	vec_i wide = (mag << 13) + (112 << 23);
	vec_f tiny = __builtin_convertvector(mag, vec_f) * 0x1p-24f;

	wide += (mag >= 0x7c00) & (112 << 23);
	return ((vec_i)tiny & small) | (wide & ~small) |
	       (vec_i)((vec_u)(x & 0x8000) << 16);
}

#define FOLD_KIND(kind, bytes)                                             \
	void FOLD(kind)(struct ckt_fold *f, const uint8_t *p, size_t n)    \
	{                                                                  \
		struct part t[VECTORS];                                    \
                                                                           \
		for (int v = 0; v < VECTORS; v++)                          \
			part_load(&t[v], f, v * PER);                      \
		for (size_t i = 0; i < n; i += CKT_FOLD_LANES)             \
			for (int v = 0; v < VECTORS; v++, p += PER * (bytes)) \
				part_add(&t[v], from_##kind(p));           \
		for (int v = 0; v < VECTORS; v++)                          \
			part_store(&t[v], f, v * PER);                     \
	}

FOLD_KIND(f32, 4)
FOLD_KIND(bf16, 2)
FOLD_KIND(f16, 2)
