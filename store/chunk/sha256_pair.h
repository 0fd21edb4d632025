/* SPDX-License-Identifier: Apache-2.0 */
/* chunk/sha256_pair.h - blocks of two messages at once; digest.c asks the
 * processor. */
#ifndef CKC_SHA256_PAIR_H
#define CKC_SHA256_PAIR_H

#include <stddef.h>
#include <stdint.h>

#ifdef __x86_64__
#include <cpuid.h>
#include <stdbool.h>

static inline bool ckc_sha256_pair_here(void)
{
	unsigned a, b, c, d;

	return __builtin_cpu_supports("sse4.1") &&
	       __get_cpuid_count(7, 0, &a, &b, &c, &d) && (b & 1u << 29);
}

/* Take @blocks blocks of 64 bytes into each of two running states, FIPS
 * 180-4's H0 to H7. Only where ckc_sha256_pair_here(). */
void ckc_sha256_pair_blocks(uint32_t h[2][8], const uint8_t *const data[2],
			    size_t blocks);
#endif

#endif
