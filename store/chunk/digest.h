/* SPDX-License-Identifier: Apache-2.0 */
/* chunk/digest.h - SHA-256 (owns OpenSSL). */
#ifndef CKC_DIGEST_H
#define CKC_DIGEST_H

#include <ckpt/store.h>

#include "base/err.h"

void ckc_sha256(const void *data, size_t len, uint8_t out[CKPT_DIGEST_BYTES]);

/* A running one; nothing to free. Its end begins the next. */
struct ckc_sha256 {
	uint64_t state[16];
};
void ckc_sha256_init(struct ckc_sha256 *h);
void ckc_sha256_add(struct ckc_sha256 *h, const void *data, size_t len);
void ckc_sha256_end(struct ckc_sha256 *h, uint8_t out[CKPT_DIGEST_BYTES]);
/* As ckc_sha256_add() to each of two: where the processor has SHA's
 * instructions, in two thirds of the time as far as their lengths are alike and
 * both have had whole blocks of 64 bytes so far. What lies CKC_AHEAD_BYTES
 * behind the bytes is brought near meanwhile, for who looks at it next. */
#define CKC_AHEAD_BYTES (48u << 10)
void ckc_sha256_add_pair(struct ckc_sha256 h[2], const void *const data[2],
			 const size_t len[2]);

#endif
