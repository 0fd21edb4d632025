/* SPDX-License-Identifier: Apache-2.0 */
/* base/hash.h - XXH3-64, unseeded: finds rot, not malice. */
#ifndef CKB_HASH_H
#define CKB_HASH_H

#include <stddef.h>
#include <stdint.h>

uint64_t ckb_xxh3(const void *data, size_t len);

/* XXH3-64 of @prefix (as 4 bytes, little-endian) followed by the bytes. */
uint64_t ckb_xxh3_u32(uint32_t prefix, const void *data, size_t len);

#endif
