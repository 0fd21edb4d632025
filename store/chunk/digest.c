/* SPDX-License-Identifier: Apache-2.0 */
/*
 * digest.c - SHA-256 through OpenSSL's EVP, which picks the CPU's own
 * instructions (owns openssl).
 *
 * A running hash belongs to one thread; ckc_sha256() to any. OpenSSL can fail
 * here only for want of memory or a broken build: an invariant.
 */
#include "chunk/digest.h"

#include <openssl/evp.h>
#include <pthread.h>

/* Fetched once and kept: looking the algorithm up costs more than a small
 * hash does. */
static const EVP_MD *fetched;

static void fetch(void)
{
	fetched = EVP_MD_fetch(NULL, "SHA256", NULL);
	if (!fetched)
		fetched = EVP_sha256();
}

static const EVP_MD *md(void)
{
	static pthread_once_t once = PTHREAD_ONCE_INIT;

	pthread_once(&once, fetch);
	return fetched;
}

struct ckc_sha256 {
	EVP_MD_CTX *ctx;
};

struct ckc_sha256 *ckc_sha256_new(void)
{
	struct ckc_sha256 *h = calloc(1, sizeof(*h));

	if (!h)
		return NULL;
	h->ctx = EVP_MD_CTX_new();
	if (!h->ctx || EVP_DigestInit_ex(h->ctx, md(), NULL) != 1) {
		ckc_sha256_free(h);
		return NULL;
	}
	return h;
}

void ckc_sha256_add(struct ckc_sha256 *h, const void *data, size_t len)
{
	CKB_INVARIANT(EVP_DigestUpdate(h->ctx, data, len) == 1);
}

void ckc_sha256_end(struct ckc_sha256 *h, uint8_t out[CKPT_DIGEST_BYTES])
{
	CKB_INVARIANT(EVP_DigestFinal_ex(h->ctx, out, NULL) == 1);
	CKB_INVARIANT(EVP_DigestInit_ex(h->ctx, md(), NULL) == 1);
}

void ckc_sha256_free(struct ckc_sha256 *h)
{
	if (h)
		EVP_MD_CTX_free(h->ctx);
	free(h);
}

void ckc_sha256(const void *data, size_t len, uint8_t out[CKPT_DIGEST_BYTES])
{
	CKB_INVARIANT(EVP_Digest(data, len, out, NULL, md(), NULL) == 1);
}
