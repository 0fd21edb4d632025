/* SPDX-License-Identifier: Apache-2.0 */
/* chunk/digest.h - SHA-256 (owns OpenSSL). */
#ifndef CKC_DIGEST_H
#define CKC_DIGEST_H

#include <ckpt/store.h>

#include "base/err.h"

void ckc_sha256(const void *data, size_t len, uint8_t out[CKPT_DIGEST_BYTES]);

struct ckc_sha256; /* a running one */
struct ckc_sha256 *ckc_sha256_new(void); /* NULL: out of memory */
void ckc_sha256_add(struct ckc_sha256 *h, const void *data, size_t len);
void ckc_sha256_end(struct ckc_sha256 *h, uint8_t out[CKPT_DIGEST_BYTES]);
void ckc_sha256_free(struct ckc_sha256 *h);

#endif
