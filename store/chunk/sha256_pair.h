/* SPDX-License-Identifier: Apache-2.0 */
/* chunk/sha256_pair.h - blocks of two messages at once. */
#ifndef CKC_SHA256_PAIR_H
#define CKC_SHA256_PAIR_H

#include <stddef.h>
#include <stdint.h>

#ifdef __x86_64__
/* Take @blocks blocks of 64 bytes into each of two running states, FIPS
 * 180-4's H0 to H7, and bring near what lies @ahead bytes behind each. Only
 * where the processor has SHA and SSE4.1. */
void ckc_sha256_pair_blocks(uint32_t h[2][8], const uint8_t *const data[2],
			    size_t blocks, size_t ahead);
#endif

#endif
