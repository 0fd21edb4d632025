/* SPDX-License-Identifier: Apache-2.0 */
/*
 * tensor/fold.h - running minimum, maximum, sum and counts of floating-point
 * elements, eight lanes wide.
 *
 * Lane i % 8 takes in element i: what comes out depends on the bytes alone,
 * not on the processor, so equal tiles give equal sums everywhere. Each kind
 * has three forms: for any processor, and for x86-64 _wide with AVX2 and _512
 * with AVX-512.
 */
#ifndef CKT_FOLD_H
#define CKT_FOLD_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define CKT_FOLD_LANES 8
#define CKT_FOLD_MAX (UINT64_C(1) << 32) /* elements in one call */

/* NaN and Inf are counted (finite: what is neither) and in nothing else. */
struct ckt_fold {
	float min[CKT_FOLD_LANES], max[CKT_FOLD_LANES];
	double sum[CKT_FOLD_LANES];
	uint64_t nan, finite, zero;
};

/* Take in @n packed little-endian elements, a multiple of CKT_FOLD_LANES and
 * at most CKT_FOLD_MAX. */
typedef void (*ckt_fold_fn)(struct ckt_fold *f, const uint8_t *p, size_t n);

void ckt_fold_f32(struct ckt_fold *f, const uint8_t *p, size_t n);
void ckt_fold_bf16(struct ckt_fold *f, const uint8_t *p, size_t n);
void ckt_fold_f16(struct ckt_fold *f, const uint8_t *p, size_t n);

#ifdef __x86_64__
/* Only where ckt_fold_has_wide(). */
void ckt_fold_f32_wide(struct ckt_fold *f, const uint8_t *p, size_t n);
void ckt_fold_bf16_wide(struct ckt_fold *f, const uint8_t *p, size_t n);
void ckt_fold_f16_wide(struct ckt_fold *f, const uint8_t *p, size_t n);

static inline bool ckt_fold_has_wide(void)
{
	return __builtin_cpu_supports("avx2");
}

/* Only where ckt_fold_has_512(). */
void ckt_fold_f32_512(struct ckt_fold *f, const uint8_t *p, size_t n);
void ckt_fold_bf16_512(struct ckt_fold *f, const uint8_t *p, size_t n);
void ckt_fold_f16_512(struct ckt_fold *f, const uint8_t *p, size_t n);

static inline bool ckt_fold_has_512(void)
{
	return __builtin_cpu_supports("avx512f") &&
	       __builtin_cpu_supports("avx512bw") &&
	       __builtin_cpu_supports("avx512dq") &&
	       __builtin_cpu_supports("avx512vl");
}
#endif

#endif
