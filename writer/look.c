/* SPDX-License-Identifier: Apache-2.0 */
/*
 * look.c - what a captured chunk is: as in the last save, or its statistics,
 * marks and SHA-256.
 *
 * Memory is slower than all of them but SHA-256. So a chunk whose head says
 * that it has changed, as in every step of dense training, is looked at block
 * by block: statistics and mark find in the cache what was brought there while
 * the block before was hashed. Chunks go in pairs, as SHA-256 takes two
 * messages at once in little more time than one.
 *
 * Nothing fails and nothing is allocated. Threads: any, each with its own
 * chunks.
 */
#include <string.h>

#include "base/hash.h"
#include "chunk/digest.h"
#include "pipeline.h"
#include "tensor/stats.h"

/* Whole elements of every kind: F6 has four in three bytes. */
#define BLOCK_BYTES CKC_AHEAD_BYTES
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

/* One chunk, or two side by side. */
static void take_in(uint64_t seed, const struct ckw_todo *const *todo,
		    uint32_t count)
{
	struct ckb_mark marks[2];
	struct ckc_sha256 sha[2];
	const void *data[2];
	size_t len[2] = { 0 }, most = 0;

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
			ckt_stats_add(d->part, d->tensor->dtype, data[i],
				      len[i]);
			ckb_mark_add(&marks[i], data[i], len[i]);
		}
		if (count == 2)
			ckc_sha256_add_pair(sha, data, len);
		else
			ckc_sha256_add(&sha[0], data[0], len[0]);
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
	for (uint32_t i = 0; i < n; i += 2)
		take_in(s->writer->seed, out_changed + i, i + 1 < n ? 2 : 1);
	return n;
}
