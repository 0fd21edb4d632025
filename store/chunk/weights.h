/* SPDX-License-Identifier: Apache-2.0 */
/* chunk/weights.h - the table of code lengths that begins zstd's literals. */
#ifndef CKC_WEIGHTS_H
#define CKC_WEIGHTS_H

#include <stddef.h>
#include <stdint.h>

#define CKC_WEIGHTS_MAX 128u /* bytes of a table */

/* The table of codes of @bits[0..@last] bits, 0 where there is none, @longest
 * of which is the most, into @dst. bits[@last] > 0. 0: it has no form. Pure. */
size_t ckc_weights_encode(const uint8_t *bits, uint32_t longest, uint32_t last,
			  uint8_t *dst);

#endif
