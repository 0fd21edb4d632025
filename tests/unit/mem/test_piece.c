/* SPDX-License-Identifier: Apache-2.0 */
/*
 * test_piece.c - plans for strided memory against an element by element walk,
 * and that they have few copies.
 */
#include "mem_fixture.h"

#include "mem/piece.h"

struct layout {
	const char *what;
	uint32_t ndim, item;
	uint64_t len[4];
	int64_t step[4];      /* in elements */
	int64_t first;        /* of element [0, ..., 0] */
	uint64_t elements;    /* of the memory */
	uint64_t copies;      /* a plan has */
	bool direct;          /* has a plan without a buffer */
};

static const struct layout layouts[] = {
	{ "a scalar", 0, 8, { 0 }, { 0 }, 0, 1, 1, true },
	{ "dense", 2, 4, { 30, 40 }, { 40, 1 }, 0, 1200, 1, true },
	{ "transposed", 2, 2, { 700, 300 }, { 1, 700 }, 0, 210000, 1, false },
	{ "rows with much padding", 2, 4, { 30, 200 }, { 2000, 1 }, 5, 60000,
	  1, true },
	{ "short rows, small gaps", 2, 1, { 6, 5 }, { 8, 1 }, 0, 48, 1,
	  false },
	{ "short rows, large gaps", 2, 1, { 6, 5 }, { 80, 1 }, 0, 480, 1,
	  false },
	{ "channels last", 4, 4, { 2, 3, 40, 50 }, { 6000, 1, 150, 3 }, 0,
	  12000, 1, false },
	{ "backwards", 1, 8, { 9 }, { -1 }, 8, 9, 1, false },
	{ "long rows upside down", 2, 8, { 7, 100 }, { -128, 1 }, 768, 900, 1,
	  false },
	{ "one row for all", 2, 2, { 6, 10 }, { 0, 1 }, 0, 10, 1, false },
	{ "one element for all", 2, 16, { 3, 4 }, { 0, 0 }, 0, 1, 1, false },
	{ "every other column", 2, 4, { 4, 5 }, { 10, 2 }, 1, 40, 1, false },
	{ "every tenth element", 1, 4, { 50 }, { 10 }, 0, 500, 1, false },
	{ "windows that overlap", 2, 4, { 20, 5 }, { 1, 1 }, 0, 24, 1,
	  false },
	{ "a box of a tensor", 3, 4, { 3, 4, 150 }, { 20000, 300, 1 }, 7,
	  60000, 3, true },
	{ "a box, rows beside", 3, 4, { 3, 4, 150 }, { 1200, 300, 1 }, 7,
	  3600, 1, true },
	{ "all turned", 3, 2, { 5, 6, 700 }, { -4200, -700, -1 }, 20999,
	  21000, 1, false },
	{ "a dimension of one", 3, 4, { 4, 1, 500 }, { 500, 1 << 30, 1 }, 0,
	  2000, 1, true },
};

static struct ckd_piece piece_of(const struct layout *l, const uint8_t *memory)
{
	struct ckd_piece p = { .ndim = l->ndim, .item_bytes = l->item };
	uint64_t step = l->item;

	p.src = (uintptr_t)(memory + l->first * (int64_t)l->item);
	for (uint32_t d = l->ndim; d-- > 0;) {
		p.len[d] = l->len[d];
		p.src_step[d] = l->step[d] * (int64_t)l->item;
		p.dst_step[d] = step;
		step *= l->len[d];
	}
	return p;
}

static uint64_t count_of(const struct layout *l)
{
	uint64_t n = 1;

	for (uint32_t d = 0; d < l->ndim; d++)
		n *= l->len[d];
	return n;
}

static uint8_t *walk(const struct layout *l, const uint8_t *memory)
{
	uint64_t n = count_of(l);
	uint8_t *out = malloc(n * l->item);

	assert_non_null(out);
	for (uint64_t i = 0; i < n; i++) {
		int64_t at = l->first;
		uint64_t rest = i;

		for (uint32_t d = l->ndim; d-- > 0;) {
			at += (int64_t)(rest % l->len[d]) * l->step[d];
			rest /= l->len[d];
		}
		memcpy(out + i * l->item, memory + at * (int64_t)l->item,
		       l->item);
	}
	return out;
}

/* What a device would do of the plan; the copies. */
static uint64_t run(const struct ckd_piece *p, uint8_t *to)
{
	uint64_t i = 0, src, dst;

	for (; ckd_piece_copy(p, i, &src, &dst); i++) {
		assert_true(p->height == 1 || (p->src_pitch >= p->width &&
					       p->dst_pitch >= p->width));
		for (uint64_t k = 0; k < p->height; k++)
			memcpy(to + dst + k * p->dst_pitch,
			       (uint8_t *)(uintptr_t)(src + k * p->src_pitch),
			       p->width);
	}
	return i;
}

static uint8_t *numbered(size_t len)
{
	uint8_t *m = malloc(len);

	assert_non_null(m);
	for (size_t i = 0; i < len; i++)
		m[i] = (uint8_t)(i * 167 + i / 251);
	return m;
}

/* Plan @p for a buffer of its very size, and carry it out. */
static uint64_t through_buffer(struct ckd_piece *p, uint8_t *dst)
{
	ckd_piece_plan(p);
	uint8_t *hold = malloc(p->hold_bytes);

	assert_non_null(hold);
	uint64_t copies = run(p, hold);

	ckd_piece_gather(p, hold, dst);
	free(hold);
	return copies;
}

static void a_plan_and_its_gather_give_c_order(void **state)
{
	(void)state;
	for (size_t i = 0; i < CKB_ARRAY_LEN(layouts); i++) {
		const struct layout *l = &layouts[i];
		uint8_t *memory = numbered(l->elements * l->item);
		uint8_t *want = walk(l, memory);
		uint64_t bytes = count_of(l) * l->item;
		uint8_t *have = calloc(1, bytes);
		struct ckd_piece p = piece_of(l, memory);

		assert_non_null(have);
		uint64_t copies = through_buffer(&p, have);

		if (memcmp(have, want, bytes) != 0)
			fail_msg("%s: wrong bytes", l->what);
		if (copies != l->copies)
			fail_msg("%s: %d copies", l->what, (int)copies);
		free(have);
		free(want);
		free(memory);
	}
}

static void long_rows_need_no_buffer(void **state)
{
	(void)state;
	for (size_t i = 0; i < CKB_ARRAY_LEN(layouts); i++) {
		const struct layout *l = &layouts[i];
		uint8_t *memory = numbered(l->elements * l->item);
		uint8_t *want = walk(l, memory);
		uint64_t bytes = count_of(l) * l->item;
		uint8_t *have = calloc(1, bytes);
		struct ckd_piece p = piece_of(l, memory);

		assert_non_null(have);
		if (ckd_piece_direct(&p) != l->direct)
			fail_msg("%s: direct?", l->what);
		if (l->direct) {
			run(&p, have);
			if (memcmp(have, want, bytes) != 0)
				fail_msg("%s: wrong bytes", l->what);
		}
		free(have);
		free(want);
		free(memory);
	}
}

/* Pieces of every room that is enough for one element: within it, and all of
 * them together the whole. */
static void pieces_fit_their_room(void **state)
{
	static const uint64_t rooms[] = { 16, 17, 100, 700, 4096, 65536 };
	uint64_t cut[CKPT_NDIM_MAX];

	(void)state;
	for (size_t i = 0; i < CKB_ARRAY_LEN(layouts); i++)
		for (size_t k = 0; k < CKB_ARRAY_LEN(rooms); k++) {
			const struct layout *l = &layouts[i];
			uint8_t *memory = numbered(l->elements * l->item);
			struct ckd_piece p = piece_of(l, memory);
			struct layout first = *l;

			ckd_piece_cut(&p, rooms[k], cut);
			for (uint32_t d = 0; d < l->ndim; d++) {
				assert_true(cut[d] >= 1);
				assert_true(cut[d] <= l->len[d]);
				p.len[d] = first.len[d] = cut[d];
			}
			uint8_t *want = walk(&first, memory);
			struct ckd_piece q = piece_of(&first, memory);
			uint8_t *have = calloc(1, count_of(&first) * l->item);

			assert_non_null(have);
			ckd_piece_plan(&p);
			assert_true(p.hold_bytes <= rooms[k]);
			through_buffer(&q, have);
			assert_memory_equal(have, want,
					    count_of(&first) * l->item);
			free(have);
			free(want);
			free(memory);
		}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(a_plan_and_its_gather_give_c_order),
		cmocka_unit_test(long_rows_need_no_buffer),
		cmocka_unit_test(pieces_fit_their_room),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
