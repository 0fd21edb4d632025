/* SPDX-License-Identifier: Apache-2.0 */
/*
 * hash.c - XXH3 (owns xxhash.h). Pure; any thread.
 *
 * The streamed form gives the same value as the one-shot form over the joined
 * bytes, which is what FORMAT.md promises for pages.
 *
 * Compiled twice: for any processor, and with CKB_HASH_WIDE in vectors of 32
 * bytes, which only the folder's meson.build may do, with -mavx2. What is long
 * goes there, where the processor has them: it takes half the time.
 */
#include "base/hash.h"

#include <string.h>

#include "base/bytes.h"
#include "base/check.h"

#define XXH_INLINE_ALL
#include <xxhash.h>

_Static_assert(sizeof(XXH3_state_t) <= sizeof(struct ckb_mark), "it fits");

static inline XXH3_state_t *mark_state(const struct ckb_mark *m)
{
	return (XXH3_state_t *)(uintptr_t)m->state;
}

#ifdef CKB_HASH_WIDE

void ckb_mark_add_wide(struct ckb_mark *m, const void *data, size_t len)
{
	CKB_INVARIANT(XXH3_128bits_update(mark_state(m), data, len) == XXH_OK);
}

uint64_t ckb_xxh3_wide(const void *data, size_t len)
{
	return XXH3_64bits(data, len);
}

#else

uint64_t ckb_xxh3(const void *data, size_t len)
{
#ifdef __x86_64__
	if (len >= 1024 && __builtin_cpu_supports("avx2"))
		return ckb_xxh3_wide(data, len);
#endif
	return XXH3_64bits(data, len);
}

/* Texts this short are joined to their prefix: streaming them costs more. */
#define JOINED_MAX 256

uint64_t ckb_xxh3_u32(uint32_t prefix, const void *data, size_t len)
{
	XXH3_state_t state;
	uint8_t head[4 + JOINED_MAX];

	ckb_put_u32(head, prefix);
	if (len <= JOINED_MAX) {
		if (len > 0)
			memcpy(head + 4, data, len);
		return XXH3_64bits(head, 4 + len);
	}
	XXH3_INITSTATE(&state);
	CKB_INVARIANT(XXH3_64bits_reset(&state) == XXH_OK);
	CKB_INVARIANT(XXH3_64bits_update(&state, head, 4) == XXH_OK);
	CKB_INVARIANT(XXH3_64bits_update(&state, data, len) == XXH_OK);
	return XXH3_64bits_digest(&state);
}

void ckb_mark_init(struct ckb_mark *m, uint64_t seed)
{
	XXH3_INITSTATE(mark_state(m));
	CKB_INVARIANT(XXH3_128bits_reset_withSeed(mark_state(m), seed) ==
		      XXH_OK);
}

void ckb_mark_add(struct ckb_mark *m, const void *data, size_t len)
{
#ifdef __x86_64__
	if (len >= 1024 && __builtin_cpu_supports("avx2")) {
		ckb_mark_add_wide(m, data, len);
		return;
	}
#endif
	CKB_INVARIANT(XXH3_128bits_update(mark_state(m), data, len) == XXH_OK);
}

void ckb_mark_end(const struct ckb_mark *m, uint64_t out[2])
{
	XXH128_hash_t h = XXH3_128bits_digest(mark_state(m));

	out[0] = h.low64;
	out[1] = h.high64;
}
#endif
