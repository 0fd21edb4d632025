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
/* As ckc_sha256_add() to each of @count, at most CKC_SHA256_LANES, one after
 * another. Where the processor has SHA's instructions two together take two
 * thirds of that time, where it has AVX-512 sixteen take two fifths: as far as
 * their lengths are alike, and if all have had whole blocks of 64 bytes so far.
 * What lies CKC_AHEAD_BYTES behind the bytes may be brought near meanwhile, for
 * who looks at it next; it need not be memory. */
#define CKC_SHA256_LANES 16
#define CKC_AHEAD_BYTES (24u << 10)
void ckc_sha256_add_each(struct ckc_sha256 *h, const void *const *data,
			 const size_t *len, uint32_t count);

#endif
