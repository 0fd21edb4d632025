/* SPDX-License-Identifier: Apache-2.0 */
/*
 * digest.c - SHA-256 through OpenSSL, which picks the CPU's own instructions
 * (owns openssl).
 *
 * The older calls are taken on purpose: unlike EVP's they allocate nothing, so
 * that a hash cannot fail for want of memory in the middle of a save. A running
 * hash belongs to one thread.
 */
#define OPENSSL_SUPPRESS_DEPRECATED
#include "chunk/digest.h"

#include <openssl/sha.h>

_Static_assert(sizeof(SHA256_CTX) <= sizeof(struct ckc_sha256), "it fits");

static SHA256_CTX *ctx(struct ckc_sha256 *h)
{
	return (SHA256_CTX *)h->state;
}

void ckc_sha256_init(struct ckc_sha256 *h)
{
	SHA256_Init(ctx(h));
}

void ckc_sha256_add(struct ckc_sha256 *h, const void *data, size_t len)
{
	SHA256_Update(ctx(h), data, len);
}

void ckc_sha256_end(struct ckc_sha256 *h, uint8_t out[CKPT_DIGEST_BYTES])
{
	SHA256_Final(out, ctx(h));
	ckc_sha256_init(h);
}

void ckc_sha256(const void *data, size_t len, uint8_t out[CKPT_DIGEST_BYTES])
{
	struct ckc_sha256 h;

	ckc_sha256_init(&h);
	ckc_sha256_add(&h, data, len);
	ckc_sha256_end(&h, out);
}
