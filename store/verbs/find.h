/* SPDX-License-Identifier: Apache-2.0 */
/*
 * verbs/find.h - is this chunk in the store already? (deduplication)
 *
 * Knows what this save has written, then asks the index; an index hit counts
 * only after the record header was read and shows digest and length, and the
 * pack is neither condemned nor bad (DESIGN 4). Any thread, but for new, free
 * and publish.
 */
#ifndef CKS_FIND_H
#define CKS_FIND_H

#include "catalog/index.h"
#include "verbs/stage.h"

struct cks_find;

CKB_MUST int cks_find_new(struct ckpt_store *s, const struct cks_stage *stage,
			  struct cks_find **out, struct ckpt_err *err);
void cks_find_free(struct cks_find *f);

/* true: *@out is a proved place. A doubtful or unreadable hit is a miss. */
bool cks_find_chunk(struct cks_find *f, const uint8_t digest[32],
		    uint32_t raw_len, struct ckq_place *out);

/* true: the chunk is there, or another thread of this save has claimed it.
 * false: it is the caller's to write and to tell of by cks_find_add(). */
bool cks_find_claim(struct cks_find *f, const uint8_t digest[32],
		    uint32_t raw_len);

/* Does @place hold that chunk, as its record header says? Then it is known from
 * now on. For places that are had from elsewhere than the index. */
bool cks_find_proved(struct cks_find *f, const uint8_t digest[32],
		     const struct ckq_place *place);

/* A chunk this save has just written. */
CKB_MUST int cks_find_add(struct cks_find *f, const uint8_t digest[32],
			  const struct ckq_place *place, struct ckpt_err *err);

/* After publication: tell the index. Failure is logged, never returned. */
void cks_find_publish(struct cks_find *f, const char *checkpoint);

#endif
