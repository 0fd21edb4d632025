/* SPDX-License-Identifier: Apache-2.0 */
/* verbs/places.h - a set of places in packs, with what is known of each. For
 * who adds up over many checkpoints. Zero-initialised is empty. One thread. */
#ifndef CKS_PLACES_H
#define CKS_PLACES_H

#include "verbs/uses.h"

#define CKS_SHARED SIZE_MAX

struct cks_place {
	struct ckq_use use;
	size_t owner;         /* the caller's; CKS_SHARED: of several */
	uint32_t raw_len;
	uint8_t digest[CKPT_DIGEST_BYTES];
	bool used;
};

/* Open addressing: walk slots [0, cap), those that are used. */
struct cks_places {
	struct cks_place *slots;
	size_t cap, count;
};

void cks_places_fini(struct cks_places *p);

/* The place of @use; put in when it is new, all but `use` and `used` zero.
 * NULL: out of memory. */
struct cks_place *cks_places_get(struct cks_places *p,
				 const struct ckq_use *use, bool *out_new);

#endif
