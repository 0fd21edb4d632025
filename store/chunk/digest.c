/* SPDX-License-Identifier: Apache-2.0 */
/*
 * digest.c - SHA-256 through OpenSSL, which picks the CPU's own instructions
 * (owns openssl).
 *
 * The older calls are taken on purpose: unlike EVP's they allocate nothing, so
 * that a hash cannot fail for want of memory in the middle of a save. A running
 * hash belongs to one thread. Several messages at once, for which OpenSSL has
 * no call, are sha256_pair.c's and sha256_lanes.c's, on OpenSSL's state.
 */
#define OPENSSL_SUPPRESS_DEPRECATED
#include "chunk/digest.h"

#include <openssl/sha.h>
#include <stdatomic.h>
#include <string.h>
#ifdef __x86_64__
#include <cpuid.h>
#endif

#include "base/check.h"
#include "chunk/sha256_lanes.h"
#include "chunk/sha256_pair.h"

/* From so many messages on lanes pay: fewer are quicker two by two, or, without
 * SHA's instructions, one by one. */
#define LANES_PAY 10u
#define LANES_PAY_PLAIN 2u

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

static bool has_lanes(void)
{
	return __builtin_cpu_supports("avx512f") &&
	       __builtin_cpu_supports("avx512bw");
}

static void count_blocks(SHA256_CTX *c, size_t blocks)
{
	uint64_t bits = ((uint64_t)c->Nh << 32 | c->Nl) +
			(uint64_t)blocks * SHA256_CBLOCK * 8;

	c->Nl = (SHA_LONG)bits;
	c->Nh = (SHA_LONG)(bits >> 32);
}

/* Blocks of those that have most of them, if they fill enough lanes. @done: the
 * bytes of each that were taken in. */
static void add_lanes(struct ckc_sha256 *h, const void *const *data,
		      const size_t *len, uint32_t count, size_t *done)
{
	uint32_t words[8][CKC_SHA256_LANES] = { 0 }, lane[CKC_SHA256_LANES];
	const uint8_t *from[CKC_SHA256_LANES];
	size_t most = 0;
	uint32_t n = 0;

	for (uint32_t i = 0; i < count; i++)
		most = len[i] / SHA256_CBLOCK > most ? len[i] / SHA256_CBLOCK
						     : most;
	for (uint32_t i = 0; i < count; i++)
		if (len[i] / SHA256_CBLOCK == most)
			lane[n++] = i;
	if (n < (has_sha() ? LANES_PAY : LANES_PAY_PLAIN) || most == 0)
		return;
	for (uint32_t l = 0; l < CKC_SHA256_LANES; l++) {
		uint32_t i = lane[l < n ? l : 0]; /* the others idle */

		from[l] = data[i];
		for (int k = 0; k < 8; k++)
			words[k][l] = ctx(&h[i])->h[k];
	}
	ckc_sha256_lanes_blocks(words, from, most, CKC_AHEAD_BYTES);
	for (uint32_t l = 0; l < n; l++) {
		SHA256_CTX *c = ctx(&h[lane[l]]);

		for (int k = 0; k < 8; k++)
			c->h[k] = words[k][l];
		count_blocks(c, most);
		done[lane[l]] = most * SHA256_CBLOCK;
	}
}

/* Blocks of two, as many as both have. */
static void add_pair(struct ckc_sha256 *h, const void *const *data,
		     const size_t *len, size_t *done)
{
	size_t left = ckb_min_u64(len[0] - done[0], len[1] - done[1]);
	size_t blocks = left / SHA256_CBLOCK;
	const uint8_t *from[2];
	uint32_t words[2][8];

	for (int i = 0; i < 2; i++) {
		from[i] = (const uint8_t *)data[i] + done[i];
		memcpy(words[i], ctx(&h[i])->h, sizeof(words[i]));
	}
	ckc_sha256_pair_blocks(words, from, blocks, CKC_AHEAD_BYTES);
	for (int i = 0; i < 2; i++) {
		memcpy(ctx(&h[i])->h, words[i], sizeof(words[i]));
		count_blocks(ctx(&h[i]), blocks);
		done[i] += blocks * SHA256_CBLOCK;
	}
}

/* Have all had whole blocks? */
static bool at_block(struct ckc_sha256 *h, uint32_t count)
{
	for (uint32_t i = 0; i < count; i++)
		if (ctx(&h[i])->num != 0)
			return false;
	return true;
}
#endif

void ckc_sha256_add_each(struct ckc_sha256 *h, const void *const *data,
			 const size_t *len, uint32_t count)
{
	size_t done[CKC_SHA256_LANES] = { 0 };

	CKB_REQUIRE(count <= CKC_SHA256_LANES);
#ifdef __x86_64__
	if (count >= 2 && at_block(h, count)) {
		if (has_lanes())
			add_lanes(h, data, len, count, done);
		for (uint32_t i = 0; i + 1 < count && has_sha(); i += 2)
			add_pair(h + i, data + i, len + i, done + i);
	}
#endif
	for (uint32_t i = 0; i < count; i++)
		ckc_sha256_add(&h[i], (const uint8_t *)data[i] + done[i],
			       len[i] - done[i]);
}
