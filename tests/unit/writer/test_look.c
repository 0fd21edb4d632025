/* SPDX-License-Identifier: Apache-2.0 */
/*
 * test_look.c - chunks looked at together, block by block, are what each is by
 * itself: OpenSSL's digest of it, statistics and marks of all its bytes.
 */
#include <openssl/sha.h>

#include "base/hash.h"
#include "chunk/pack.h"
#include "contract/save_fixture.h"
#include "pipeline.h"
#include "tensor/stats.h"

#define MOST (3 * 24576u + 48) /* three blocks and a little, whole elements */

static uint8_t bytes[CKC_PUT_MAX][MOST];

/* A save of @count chunks, each its own tensor, nothing of them known. */
struct looked {
	struct ckpt_writer w;
	struct ckpt_save s;
	struct ckw_chunk chunks[CKC_PUT_MAX];
	struct ckw_tensor tensors[CKC_PUT_MAX];
	struct ckpt_stats parts[CKC_PUT_MAX];
	struct ckw_todo todo[CKC_PUT_MAX];
};

/* Multiples of 48 bytes: whole elements of all kinds. */
static uint32_t length(uint32_t i, uint32_t count)
{
	static const uint32_t odd[] = { 48, 24576, 24576 + 48, 2 * 24576 };

	/* most are as long as each other, as tiles are */
	return count % 3 == 0 && i < CKB_ARRAY_LEN(odd) ? odd[i] : MOST;
}

static void look(struct looked *l, enum ckpt_dtype dtype, uint32_t count)
{
	const struct ckw_todo *changed[CKC_PUT_MAX];

	*l = (struct looked){ .w.seed = 7 };
	l->s.writer = &l->w;
	l->s.plan = l->chunks;
	for (uint32_t i = 0; i < count; i++) {
		struct ckw_tensor *t = &l->tensors[i];

		t->dtype = dtype;
		t->past = SIZE_MAX;
		t->first_chunk = i;
		ckt_stats_init(&t->stats, dtype);
		l->chunks[i].raw_len = length(i, count);
		l->todo[i] = (struct ckw_todo){ t, &l->chunks[i],
						&l->parts[i], bytes[i] };
	}
	assert_int_equal(ckw_look(&l->s, l->todo, count, changed), count);
	for (uint32_t i = 0; i < count; i++)
		assert_ptr_equal(changed[i], &l->todo[i]);
}

/* Sums of floating-point elements are rounded differently, and no further. */
static void same_stats(const struct ckpt_stats *a, const struct ckpt_stats *b)
{
	assert_int_equal(a->count, b->count);
	assert_int_equal(a->nan_count, b->nan_count);
	assert_int_equal(a->inf_count, b->inf_count);
	assert_int_equal(a->zero_count, b->zero_count);
	assert_int_equal(a->value_class, b->value_class);
	assert_memory_equal(&a->min, &b->min, sizeof(a->min));
	assert_memory_equal(&a->max, &b->max, sizeof(a->max));
	double most = a->absmax > 0 ? a->absmax : 1;

	assert_true(a->absmax == b->absmax);
	assert_true(a->sum - b->sum <= most * (double)a->count * 0x1p-40 &&
		    b->sum - a->sum <= most * (double)a->count * 0x1p-40);
}

static void expect(const struct looked *l, uint32_t i)
{
	const struct ckw_chunk *c = &l->chunks[i];
	enum ckpt_dtype dtype = l->tensors[i].dtype;
	uint8_t digest[CKPT_DIGEST_BYTES];
	struct ckpt_stats whole;
	struct ckb_mark m;
	uint64_t mark[2];

	SHA256(bytes[i], c->raw_len, digest);
	assert_memory_equal(c->digest, digest, sizeof(digest));
	ckb_mark_init(&m, l->w.seed);
	ckb_mark_add(&m, bytes[i], c->raw_len);
	ckb_mark_end(&m, mark);
	assert_memory_equal(c->mark, mark, sizeof(mark));
	assert_int_equal(c->quick, ckw_quick(bytes[i], c->raw_len));
	ckt_stats_init(&whole, dtype);
	ckt_stats_add(&whole, dtype, bytes[i], c->raw_len);
	same_stats(&whole, &l->parts[i]);
}

static void chunks_together_are_each_their_own(void **state)
{
	static struct looked l;
	unsigned kinds = 0;

	(void)state;
	for (uint32_t i = 0; i < CKC_PUT_MAX; i++)
		for (size_t at = 0; at < MOST; at++)
			/* no exponents that overflow a sum */
			bytes[i][at] = (uint8_t)((at + i) * 2654435761u >> 15 &
						 0x3f);
	for (int dtype = 0; dtype < 256; dtype++) {
		if (ckpt_dtype_bits((enum ckpt_dtype)dtype) == 0)
			continue;
		kinds++;
		for (uint32_t n = 1; n <= CKC_PUT_MAX; n++) {
			look(&l, (enum ckpt_dtype)dtype, n);
			for (uint32_t i = 0; i < n; i++)
				expect(&l, i);
		}
	}
	assert_true(kinds >= 20);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(chunks_together_are_each_their_own),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
