/* SPDX-License-Identifier: Apache-2.0 */
/* chunk/digest.h - SHA-256 (owns OpenSSL). */
#ifndef CKC_DIGEST_H
#define CKC_DIGEST_H

#include <ckpt/store.h>

#include "base/err.h"

void ckc_sha256(const void *data, size_t len, uint8_t out[CKPT_DIGEST_BYTES]);

/* Two at once: where the processor has SHA's instructions, in two thirds of the
 * time as far as their lengths are alike. */
void ckc_sha256_pair(const void *const data[2], const size_t len[2],
		     uint8_t *const out[2]);

/* A running one; nothing to free. Its end begins the next. */
struct ckc_sha256 {
	uint64_t state[16];
};
void ckc_sha256_init(struct ckc_sha256 *h);
void ckc_sha256_add(struct ckc_sha256 *h, const void *data, size_t len);
void ckc_sha256_end(struct ckc_sha256 *h, uint8_t out[CKPT_DIGEST_BYTES]);

#endif
