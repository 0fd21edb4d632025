/* SPDX-License-Identifier: Apache-2.0 */
/*
 * look.c - what a captured chunk is: as in the last save, or its statistics,
 * marks and SHA-256.
 *
 * Memory is slower than all of them but SHA-256. So a chunk whose head says
 * that it has changed, as in every step of dense training, is looked at block
 * by block: statistics and mark find in the cache what was brought there while
 * the block before was hashed, all chunks side by side: SHA-256 takes several
 * messages at once in little more time than one.
 *
 * Nothing fails and nothing is allocated. Threads: any, each with its own
 * chunks.
 */
#include <string.h>

#include "base/hash.h"
#include "chunk/digest.h"
#include "chunk/pack.h"
#include "pipeline.h"
#include "tensor/stats.h"

/* Whole elements of every kind: F6 has four in three bytes. */
#define BLOCK_BYTES CKC_AHEAD_BYTES
_Static_assert(CKC_PUT_MAX <= CKC_SHA256_LANES, "side by side");
_Static_assert(BLOCK_BYTES % (3 * 64) == 0, "elements, and SHA-256's blocks");

static bool unchanged(struct ckpt_save *s, const struct ckw_todo *d)
{
	struct ckw_chunk *c = d->chunk;
	size_t i = (size_t)(c - s->plan) - d->tensor->first_chunk;
	struct ckq_place place;
	const struct ckw_chunk *was = ckw_past_chunk(s, d->tensor, i, &place);
	struct ckb_mark m;

	c->quick = ckw_quick(d->data, c->raw_len);
	if (!was || was->raw_len != c->raw_len || was->quick != c->quick)
		return false;
	ckb_mark_init(&m, s->writer->seed);
	ckb_mark_add(&m, d->data, c->raw_len);
	ckb_mark_end(&m, c->mark);
	if (memcmp(was->mark, c->mark, sizeof(c->mark)) != 0 ||
	    !cks_find_proved(s->find, was->digest, &place))
		return false;
	memcpy(c->digest, was->digest, sizeof(c->digest));
	*d->part = *ckw_past_stats(s, d->tensor, i);
	return true;
}

/* Chunks side by side. */
static void take_in(uint64_t seed, const struct ckw_todo *const *todo,
		    uint32_t count)
{
	struct ckb_mark marks[CKC_PUT_MAX];
	struct ckc_sha256 sha[CKC_PUT_MAX];
	const void *data[CKC_PUT_MAX];
	size_t len[CKC_PUT_MAX], most = 0;

	for (uint32_t i = 0; i < count; i++) {
		const struct ckw_todo *d = todo[i];

		ckt_stats_init(d->part, d->tensor->dtype);
		d->part->value_class = d->tensor->stats.value_class;
		ckb_mark_init(&marks[i], seed);
		ckc_sha256_init(&sha[i]);
		most = d->chunk->raw_len > most ? d->chunk->raw_len : most;
	}
	for (size_t at = 0; at < most; at += BLOCK_BYTES) {
		for (uint32_t i = 0; i < count; i++) {
			const struct ckw_todo *d = todo[i];
			size_t end = ckb_min_u64(d->chunk->raw_len,
						 at + BLOCK_BYTES);

			len[i] = end > at ? end - at : 0;
			data[i] = d->data + end - len[i];
			if (len[i] == 0)
				continue;
			ckt_stats_add(d->part, d->tensor->dtype, data[i],
				      len[i]);
			ckb_mark_add(&marks[i], data[i], len[i]);
		}
		ckc_sha256_add_each(sha, data, len, count);
	}
	for (uint32_t i = 0; i < count; i++) {
		ckb_mark_end(&marks[i], todo[i]->chunk->mark);
		ckc_sha256_end(&sha[i], todo[i]->chunk->digest);
	}
}

uint32_t ckw_look(struct ckpt_save *s, const struct ckw_todo *todo,
		  uint32_t count, const struct ckw_todo **out_changed)
{
	uint32_t n = 0;

	for (uint32_t i = 0; i < count; i++)
		if (!unchanged(s, &todo[i]))
			out_changed[n++] = &todo[i];
	take_in(s->writer->seed, out_changed, n);
	return n;
}
