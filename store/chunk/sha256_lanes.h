/* SPDX-License-Identifier: Apache-2.0 */
/* chunk/sha256_lanes.h - blocks of sixteen messages at once. */
#ifndef CKC_SHA256_LANES_H
#define CKC_SHA256_LANES_H

#include "chunk/digest.h"

#ifdef __x86_64__
/* Take @blocks blocks of 64 bytes into each of sixteen running states, FIPS
 * 180-4's H0 to H7 of all, and bring near what lies @ahead bytes behind each.
 * Only where the processor has AVX-512 (F and BW). */
void ckc_sha256_lanes_blocks(uint32_t h[8][CKC_SHA256_LANES],
			     const uint8_t *const data[CKC_SHA256_LANES],
			     size_t blocks, size_t ahead);
#endif

#endif
