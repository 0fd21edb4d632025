/* SPDX-License-Identifier: Apache-2.0 */
/*
 * test_staging.c - the ring of slabs: what is out never overlaps and never
 * leaves the mapping, in whatever order it comes back (S9).
 */
#include <stdlib.h>
#include <sys/mman.h>

#include "asserts.h"
#include "base/limits.h"
#include "pipeline.h"

#define BLOCK ((size_t)CKB_PAYLOAD_ALIGN)

static void made(struct ckw_ring *r, size_t bytes)
{
	struct ckpt_err err = { 0 };

	assert_ok(ckw_ring_init(r, bytes, false, &err));
}

static struct ckw_slab *take(struct ckw_ring *r, size_t blocks, size_t at)
{
	struct ckw_slab *slab = ckw_ring_take(r, blocks * BLOCK);

	assert_non_null(slab);
	assert_int_equal(slab->off, at * BLOCK);
	assert_int_equal(slab->bytes, blocks * BLOCK);
	assert_ptr_equal(slab->data, r->base + at * BLOCK);
	assert_int_equal((uintptr_t)slab->data % BLOCK, 0);
	/* nothing of who had it before */
	assert_null(slab->save);
	assert_null(slab->behind);
	assert_int_equal(slab->count + slab->taken + slab->done, 0);
	return slab;
}

/* By hand, of ten blocks. */
static void room_is_had_again_as_soon_as_it_comes_back(void **state)
{
	struct ckw_slab *a, *b, *c, *d;
	struct ckw_ring r;

	(void)state;
	made(&r, 10 * BLOCK + 100);
	assert_int_equal(r.bytes, 10 * BLOCK);
	a = take(&r, 4, 0);
	b = take(&r, 3, 4);
	c = take(&r, 3, 7);
	assert_null(ckw_ring_take(&r, BLOCK)); /* full, to the last byte */
	ckw_ring_give(&r, b);
	assert_null(ckw_ring_take(&r, 4 * BLOCK)); /* one too many */
	b = take(&r, 2, 4); /* though an older one is out */
	d = take(&r, 1, 6);
	assert_null(ckw_ring_take(&r, BLOCK)); /* a, b, d, c: full again */
	ckw_ring_give(&r, c);
	ckw_ring_give(&r, a);
	assert_null(ckw_ring_take(&r, 5 * BLOCK)); /* four, and three */
	a = take(&r, 3, 0); /* where some last came back */
	c = take(&r, 3, 7); /* and around */
	ckw_ring_give(&r, b);
	assert_null(ckw_ring_take(&r, 4 * BLOCK)); /* three side by side */
	b = take(&r, 3, 3);
	ckw_ring_give(&r, d);
	d = take(&r, 1, 6);
	ckw_ring_give(&r, a);
	ckw_ring_give(&r, d);
	ckw_ring_give(&r, c);
	ckw_ring_give(&r, b);
	assert_null(r.first);
	a = take(&r, 10, 0); /* when all is back it begins anew */
	ckw_ring_give(&r, a);
	ckw_ring_fini(&r);
}

/* Tiles that had not changed leave their room to the next, whoever else is at
 * work: half of the ring serves any number of them. */
static void one_who_gives_back_takes_the_same_again(void **state)
{
	struct ckw_slab *kept, *a, *b;
	struct ckw_ring r;

	(void)state;
	made(&r, 10 * BLOCK);
	kept = take(&r, 2, 0);
	a = take(&r, 2, 2);
	b = take(&r, 2, 4);
	for (int i = 0; i < 100; i++) {
		ckw_ring_give(&r, a);
		a = take(&r, 2, 2);
		ckw_ring_give(&r, b);
		b = take(&r, 2, 4);
	}
	ckw_ring_give(&r, kept);
	ckw_ring_give(&r, a);
	ckw_ring_give(&r, b);
	ckw_ring_fini(&r);
}

/* What is at the end and too small is passed over, and had back with the rest.
 * So half of the ring always comes, if only all that is out is given. */
static void what_is_passed_over_comes_back(void **state)
{
	struct ckw_slab *a, *b;
	struct ckw_ring r;

	(void)state;
	made(&r, 10 * BLOCK);
	a = take(&r, 5, 0);
	b = take(&r, 3, 5);
	ckw_ring_give(&r, a);
	a = take(&r, 5, 0); /* two blocks at the end are not enough */
	assert_null(ckw_ring_take(&r, 3 * BLOCK));
	ckw_ring_give(&r, b);
	b = take(&r, 5, 5);
	assert_null(ckw_ring_take(&r, BLOCK));
	ckw_ring_give(&r, a);
	ckw_ring_give(&r, b);
	ckw_ring_fini(&r);
}

/* The table of slabs has an end, too: that is no room, and no fault. */
static void there_are_only_so_many_slabs(void **state)
{
	enum { MOST = 1 << 20 };
	struct ckw_slab **out = calloc(MOST, sizeof(struct ckw_slab *));
	struct ckw_ring r;
	size_t n = 0;

	(void)state;
	assert_non_null(out);
	made(&r, CKB_STAGING_MIN_BYTES);
	while (n < MOST && (out[n] = ckw_ring_take(&r, BLOCK)))
		n++;
	assert_int_equal(n, r.slab_count);
	/* enough of them for units of the smallest size that is common */
	assert_true(n >= CKB_STAGING_MIN_BYTES / CKW_SMALL_BYTES);
	assert_true(n * BLOCK < r.bytes);
	ckw_ring_give(&r, out[0]);
	assert_ptr_equal(ckw_ring_take(&r, BLOCK), out[0]);
	assert_null(ckw_ring_take(&r, BLOCK));
	ckw_ring_fini(&r);
	free(out);
}

/* ---- any order ---- */

struct model {
	struct ckw_ring ring;
	struct ckw_slab *out[200];
	size_t count;
	uint64_t seed;
};

static size_t draw(struct model *m, size_t below)
{
	m->seed = m->seed * 6364136223846793005ull + 1442695040888963407ull;
	return (size_t)(m->seed >> 33) % below;
}

static void check_apart(const struct model *m)
{
	for (size_t i = 0; i < m->count; i++) {
		const struct ckw_slab *a = m->out[i];

		assert_true(a->off + a->bytes <= m->ring.bytes);
		assert_true(*a->data == (uint8_t)(a->off / BLOCK));
		for (size_t j = 0; j < i; j++) {
			const struct ckw_slab *b = m->out[j];

			assert_true(a->off + a->bytes <= b->off ||
				    b->off + b->bytes <= a->off);
		}
	}
}

static void give_one(struct model *m, size_t i)
{
	ckw_ring_give(&m->ring, m->out[i]);
	m->out[i] = m->out[--m->count];
}

static void what_is_out_never_overlaps(void **state)
{
	struct model m = { .seed = 4 };
	size_t taken = 0, refused = 0;

	(void)state;
	made(&m.ring, 100 * BLOCK);
	for (int step = 0; step < 50000; step++) {
		size_t blocks = 1 + draw(&m, draw(&m, 4) ? 5 : 50);
		struct ckw_slab *slab = NULL;

		if (draw(&m, 2) && m.count < CKB_ARRAY_LEN(m.out))
			slab = ckw_ring_take(&m.ring, blocks * BLOCK);
		if (slab) {
			*slab->data = (uint8_t)(slab->off / BLOCK);
			m.out[m.count++] = slab;
			check_apart(&m);
			taken++;
		} else if (m.count > 0) {
			give_one(&m, draw(&m, m.count));
			refused++;
		}
		if (step % 1000 == 999) { /* none is lost */
			while (m.count > 0)
				give_one(&m, draw(&m, m.count));
			take(&m.ring, 100, 0);
			ckw_ring_give(&m.ring, m.ring.first);
		}
	}
	assert_true(taken > 5000 && refused > 5000);
	ckw_ring_fini(&m.ring);
}

/* ---- places in a slab, and the mapping ---- */

static void chunks_lie_where_they_can_be_written_from(void **state)
{
	static const struct {
		size_t at;
		uint32_t raw_len;
		size_t place, end;
	} cases[] = {
		{ 0, 1, 0, 1 },
		{ 1, 1, 64, 65 },
		{ 64, 100, 64, 164 },
		{ 65, 65535, 128, 65663 },
		{ 1, 65536, 4096, 69632 },
		{ 4096, 65536, 4096, 69632 },
		{ 4097, 8 << 20, 8192, 8192 + (8 << 20) },
	};

	(void)state;
	for (size_t i = 0; i < CKB_ARRAY_LEN(cases); i++) {
		size_t place = 77;

		assert_int_equal(ckw_slab_place(cases[i].at, cases[i].raw_len,
						&place), cases[i].end);
		assert_int_equal(place, cases[i].place);
	}
}

/* Pages of the mapping that are there. */
static size_t resident(const struct ckw_ring *r)
{
	size_t pages = r->bytes / 4096, n = 0;
	unsigned char *there = malloc(pages);

	assert_non_null(there);
	assert_int_equal(mincore(r->base, r->bytes, there), 0);
	for (size_t i = 0; i < pages; i++)
		n += there[i] & 1;
	free(there);
	return n;
}

static void memory_is_had_when_asked_for(void **state)
{
	struct ckw_ring r;
	struct ckpt_err err = { 0 };

	(void)state;
	made(&r, 8 << 20);
	assert_int_equal(resident(&r), 0);
	ckw_ring_fini(&r);
	ckw_ring_fini(&r); /* it is empty */
	assert_ok(ckw_ring_init(&r, 8 << 20, true, &err));
	assert_int_equal(resident(&r), r.bytes / 4096);
	ckw_ring_fini(&r);
	assert_code(ckw_ring_init(&r, SIZE_MAX / 2, false, &err), CKPT_ENOMEM);
	assert_says(err, "bytes of staging");
	assert_null(r.base);
	assert_null(r.slabs);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(room_is_had_again_as_soon_as_it_comes_back),
		cmocka_unit_test(one_who_gives_back_takes_the_same_again),
		cmocka_unit_test(what_is_passed_over_comes_back),
		cmocka_unit_test(there_are_only_so_many_slabs),
		cmocka_unit_test(what_is_out_never_overlaps),
		cmocka_unit_test(chunks_lie_where_they_can_be_written_from),
		cmocka_unit_test(memory_is_had_when_asked_for),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
