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
#include <stdatomic.h>
#include <string.h>
#ifdef __x86_64__
#include <cpuid.h>
#endif

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
/* Are there SHA's instructions? Asked once: in a virtual machine the question
 * goes to the host, and takes as long as hashing a tenth of a megabyte. */
static bool has_sha(void)
{
	static atomic_int known; /* 1: no; 2: yes; relaxed: all ask the same */
	int is = atomic_load_explicit(&known, memory_order_relaxed);
	unsigned a, b, c, d;

	if (is == 0) {
		is = 1 + (__builtin_cpu_supports("sse4.1") &&
			  __get_cpuid_count(7, 0, &a, &b, &c, &d) &&
			  (b & 1u << 29));
		atomic_store_explicit(&known, is, memory_order_relaxed);
	}
	return is == 2;
}

/* The first blocks of both, as many as they have alike. Returns their bytes. */
static size_t add_blocks(struct ckc_sha256 h[2], const void *const data[2],
			 const size_t len[2])
{
	size_t blocks = ckb_min_u64(len[0], len[1]) / SHA256_CBLOCK;
	const uint8_t *from[2] = { data[0], data[1] };
	uint32_t words[2][8];

	for (int i = 0; i < 2; i++)
		memcpy(words[i], ctx(&h[i])->h, sizeof(words[i]));
	ckc_sha256_pair_blocks(words, from, blocks, CKC_AHEAD_BYTES);
	for (int i = 0; i < 2; i++) {
		SHA256_CTX *c = ctx(&h[i]);
		uint64_t bits = ((uint64_t)c->Nh << 32 | c->Nl) +
				(uint64_t)blocks * SHA256_CBLOCK * 8;

		memcpy(c->h, words[i], sizeof(words[i]));
		c->Nl = (SHA_LONG)bits;
		c->Nh = (SHA_LONG)(bits >> 32);
	}
	return blocks * SHA256_CBLOCK;
}
#endif

void ckc_sha256_add_pair(struct ckc_sha256 h[2], const void *const data[2],
			 const size_t len[2])
{
	size_t done = 0;

#ifdef __x86_64__
	if (ctx(&h[0])->num == 0 && ctx(&h[1])->num == 0 &&
	    has_sha())
		done = add_blocks(h, data, len);
#endif
	for (int i = 0; i < 2; i++)
		ckc_sha256_add(&h[i], (const uint8_t *)data[i] + done,
			       len[i] - done);
}
