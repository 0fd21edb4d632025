/* SPDX-License-Identifier: Apache-2.0 */
/*
 * digest.c - SHA-256 through OpenSSL, which picks the CPU's own instructions
 * (owns openssl).
 *
 * The older calls are taken on purpose: unlike EVP's they allocate nothing, so
 * that a hash cannot fail for want of memory in the middle of a save. A running
 * hash belongs to one thread. Two messages at once, for which OpenSSL has no
 * call, are sha256_pair.c's; it works on OpenSSL's state.
 */
#define OPENSSL_SUPPRESS_DEPRECATED
#include "chunk/digest.h"

#include <openssl/sha.h>
#include <string.h>

#include "chunk/sha256_pair.h"

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

#ifdef __x86_64__
static void pair_wide(const void *const data[2], const size_t len[2],
		      uint8_t *const out[2])
{
	size_t blocks = ckb_min_u64(len[0], len[1]) / SHA256_CBLOCK;
	const uint8_t *from[2] = { data[0], data[1] };
	uint32_t h[2][8];
	SHA256_CTX c[2];

	for (int i = 0; i < 2; i++) {
		SHA256_Init(&c[i]);
		memcpy(h[i], c[i].h, sizeof(h[i]));
	}
	ckc_sha256_pair_blocks(h, from, blocks);
	for (int i = 0; i < 2; i++) {
		uint64_t bits = (uint64_t)blocks * SHA256_CBLOCK * 8;

		memcpy(c[i].h, h[i], sizeof(h[i]));
		c[i].Nl = (SHA_LONG)bits;
		c[i].Nh = (SHA_LONG)(bits >> 32);
		SHA256_Update(&c[i], from[i] + blocks * SHA256_CBLOCK,
			      len[i] - blocks * SHA256_CBLOCK);
		SHA256_Final(out[i], &c[i]);
	}
}
#endif

void ckc_sha256_pair(const void *const data[2], const size_t len[2],
		     uint8_t *const out[2])
{
#ifdef __x86_64__
	if (ckc_sha256_pair_here()) {
		pair_wide(data, len, out);
		return;
	}
#endif
	for (int i = 0; i < 2; i++)
		ckc_sha256(data[i], len[i], out[i]);
}
