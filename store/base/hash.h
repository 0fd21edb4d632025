/* SPDX-License-Identifier: Apache-2.0 */
/* base/hash.h - XXH3: finds rot, not malice. */
#ifndef CKB_HASH_H
#define CKB_HASH_H

#include <stddef.h>
#include <stdint.h>

/* XXH3-64, unseeded. */
uint64_t ckb_xxh3(const void *data, size_t len);
#ifdef __x86_64__
uint64_t ckb_xxh3_wide(const void *data, size_t len); /* where there is AVX2 */
#endif

/* XXH3-64 of @prefix (as 4 bytes, little-endian) followed by the bytes. */
uint64_t ckb_xxh3_u32(uint32_t prefix, const void *data, size_t len);

/* XXH3-128 with a seed, of bytes that come in pieces. */
struct ckb_mark {
	_Alignas(64) uint8_t state[640];
};
void ckb_mark_init(struct ckb_mark *m, uint64_t seed);
void ckb_mark_add(struct ckb_mark *m, const void *data, size_t len);
#ifdef __x86_64__
/* As ckb_mark_add(), for processors with AVX2. */
void ckb_mark_add_wide(struct ckb_mark *m, const void *data, size_t len);
#endif
void ckb_mark_end(const struct ckb_mark *m, uint64_t out[2]);

#endif
