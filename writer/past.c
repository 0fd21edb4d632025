/* SPDX-License-Identifier: Apache-2.0 */
/*
 * past.c - the writer's last published save: what did each tile look like?
 *
 * For every chunk its digest, its place, its statistics and two checksums by
 * which the same bytes are known again without SHA-256: XXH3-64 of the first
 * bytes, to see at once that a tile has changed, and XXH3-128 of all of it,
 * with a seed that this writer drew and nobody knows. Only a published save
 * gets here, and a chunk found so is still proved to be in the store (DESIGN
 * 4).
 *
 * Memory: about 200 bytes a chunk. Counted; never changed once made; any
 * thread.
 */
#include <stdlib.h>
#include <string.h>

#include "base/hash.h"
#include "format/entry.h"
#include "pipeline.h"

struct past_tensor {
	uint64_t key[2];          /* of its description */
	size_t first, count;
};

struct ckw_past {
	atomic_uint refs;
	struct past_tensor *tensors; /* sorted by key */
	size_t tensor_count;
	struct ckw_chunk *chunks;
	struct ckpt_stats *parts;
	struct ckq_place *places;
};

uint64_t ckw_quick(const uint8_t *data, uint32_t raw_len)
{
	return ckb_xxh3(data, ckb_min_u64(raw_len, CKW_QUICK_BYTES));
}

void ckw_past_unref(struct ckw_past *past)
{
	if (!past || atomic_fetch_sub(&past->refs, 1) > 1)
		return;
	free(past->tensors);
	free(past->chunks);
	free(past->parts);
	free(past->places);
	free(past);
}

/* What makes a tensor's chunks comparable: all of its description. */
static void key_of(const struct ckpt_save *s, const struct ckw_tensor *t,
		   uint64_t out[2])
{
	const char *item = s->items[t->item].name;
	uint64_t facts[4] = { (uint64_t)t->dtype, t->shape->ndim,
			      t->boxes ? t->box_count : 0,
			      t->media_type != NULL };
	struct ckb_mark m;

	ckb_mark_init(&m, 0);
	ckb_mark_add(&m, item, strlen(item) + 1);
	ckb_mark_add(&m, t->name, t->name_len + 1);
	ckb_mark_add(&m, facts, sizeof(facts));
	ckb_mark_add(&m, t->shape->dim,
		     t->shape->ndim * sizeof(t->shape->dim[0]));
	if (t->boxes)
		ckb_mark_add(&m, t->boxes, 2 * sizeof(*t->boxes) *
				     t->box_ndim * t->box_count);
	ckb_mark_end(&m, out);
}

static int by_key(const void *a, const void *b)
{
	return memcmp(a, b, sizeof(((struct past_tensor *)0)->key));
}

/* Every chunk has its place by now. */
static bool take_places(const struct ckpt_save *s, struct ckw_past *past)
{
	for (size_t i = 0; i < s->plan_count; i++)
		if (!cks_find_chunk(s->find, s->plan[i].digest,
				    s->plan[i].raw_len, &past->places[i]))
			return false;
	return true;
}

void ckw_past_keep(struct ckpt_save *s)
{
	struct ckpt_writer *w = s->writer;
	struct ckw_past *past = calloc(1, sizeof(*past));

	if (!past)
		return; /* the next save hashes all */
	atomic_init(&past->refs, 1);
	past->tensors = calloc(s->tensor_count + 1, sizeof(*past->tensors));
	past->places = calloc(s->plan_count + 1, sizeof(*past->places));
	if (!past->tensors || !past->places || !take_places(s, past)) {
		ckw_past_unref(past);
		return;
	}
	for (size_t i = 0; i < s->tensor_count; i++) {
		const struct ckw_tensor *t = &s->tensors[i];
		struct past_tensor *to = &past->tensors[past->tensor_count];

		if (t->chunk_count == 0)
			continue;
		key_of(s, t, to->key);
		to->first = t->first_chunk;
		to->count = t->chunk_count;
		past->tensor_count++;
	}
	qsort(past->tensors, past->tensor_count, sizeof(*past->tensors),
	      by_key);
	past->chunks = CKB_TAKE(s->plan);
	past->parts = CKB_TAKE(s->parts);
	s->plan_count = 0;
	pthread_mutex_lock(&w->lock);
	struct ckw_past *old = w->past;

	w->past = past;
	pthread_mutex_unlock(&w->lock);
	ckw_past_unref(old);
}

void ckw_past_match(struct ckpt_save *s, struct ckw_tensor *t, size_t count)
{
	struct ckpt_writer *w = s->writer;

	pthread_mutex_lock(&w->lock);
	if (!s->past) {
		s->past = w->past;
		if (s->past)
			atomic_fetch_add(&s->past->refs, 1);
	}
	pthread_mutex_unlock(&w->lock);
	for (size_t i = 0; i < count; i++, t++) {
		struct past_tensor want, *have = NULL;

		t->past = SIZE_MAX;
		if (!s->past || t->chunk_count == 0)
			continue;
		key_of(s, t, want.key);
		if (s->past->tensor_count > 0)
			have = bsearch(&want, s->past->tensors,
				       s->past->tensor_count, sizeof(want),
				       by_key);
		if (have && have->count == t->chunk_count)
			t->past = have->first;
	}
}

const struct ckw_chunk *ckw_past_chunk(const struct ckpt_save *s,
				       const struct ckw_tensor *t, size_t i,
				       struct ckq_place *out_place)
{
	if (t->past == SIZE_MAX)
		return NULL;
	*out_place = s->past->places[t->past + i];
	return &s->past->chunks[t->past + i];
}

const struct ckpt_stats *ckw_past_stats(const struct ckpt_save *s,
					const struct ckw_tensor *t, size_t i)
{
	return &s->past->parts[t->past + i];
}
