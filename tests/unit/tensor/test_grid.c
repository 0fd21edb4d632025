/* SPDX-License-Identifier: Apache-2.0 */
/* test_grid.c - the tile grid: the worked values of the design, and its laws
 * on random shapes. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>
#include <stdlib.h>
#include <string.h>

#include "base/limits.h"
#include "tensor/box.h"
#include "tensor/grid.h"

struct worked {
	enum ckpt_dtype dtype;
	struct ckpt_shape shape;
	uint32_t ndim;
	uint64_t tile[4], count;
};

static void worked_values_hold(void **state)
{
	static const struct worked cases[] = {
		{ CKPT_BF16, { 2, { 4096, 4096 } }, 2, { 256, 512 }, 128 },
		{ CKPT_BF16, { 2, { 32000, 4096 } }, 2, { 1000, 512 }, 256 },
		{ CKPT_F32, { 2, { 50257, 768 } }, 2, { 197, 384 }, 512 },
		{ CKPT_BF16, { 3, { 64, 4096, 1408 } }, 3,
		  { 1, 2048, 704 }, 256 },
		{ CKPT_BF16, { 3, { 8192, 64, 128 } }, 3,
		  { 256, 8, 128 }, 256 },
		{ CKPT_F32, { 4, { 512, 512, 3, 3 } }, 4,
		  { 64, 64, 3, 3 }, 64 },
		{ CKPT_BF16, { 2, { 1, 100000000 } }, 2, { 1, 390625 }, 256 },
		{ CKPT_F32, { 2, { 7, 1000003 } }, 2, { 1, 62501 }, 112 },
		{ CKPT_BF16, { 2, { 8192, 28672 } }, 2, { 256, 3584 }, 256 },
		{ CKPT_F32, { 0, { 0 } }, 0, { 0 }, 1 },
		{ CKPT_F32, { 2, { 3, 0 } }, 2, { 3, 0 }, 0 },
		{ CKPT_F32, { 1, { 65536 } }, 1, { 65536 }, 1 },
		{ CKPT_F32, { 1, { 65537 } }, 1, { 32769 }, 2 },
		/* F4: rows of whole bytes; F6: 4 elements in 3 bytes */
		{ CKPT_F4, { 2, { 4, 6 } }, 2, { 4, 3 }, 1 },
		{ CKPT_F6_E2M3, { 1, { 12 } }, 1, { 9 }, 1 },
		{ CKPT_F4, { 2, { 2, 3 } }, 1, { 3 }, 1 },
	};

	(void)state;
	for (size_t i = 0; i < CKB_ARRAY_LEN(cases); i++) {
		const struct worked *w = &cases[i];
		struct ckt_grid g;

		assert_int_equal(ckt_grid_init(&g, w->dtype, &w->shape, NULL),
				 0);
		assert_int_equal(g.ndim, w->ndim);
		assert_int_equal(g.tile_count, w->count);
		for (uint32_t d = 0; d < g.ndim; d++)
			assert_int_equal(g.tile[d], w->tile[d]);
	}
}

static uint64_t next_random(uint64_t *s)
{
	*s ^= *s << 13;
	*s ^= *s >> 7;
	*s ^= *s << 17;
	return *s;
}

/* Volumes add up, every tile lies inside, is bounded, and no two meet. */
static void tiles_cover_every_element_once(void **state)
{
	uint64_t seed = 88172645463325252ull;

	(void)state;
	for (int round = 0; round < 2000; round++) {
		struct ckpt_shape s = { .ndim = 1 + next_random(&seed) % 4 };
		struct ckt_grid g;
		uint64_t sum = 0;

		for (uint32_t d = 0; d < s.ndim; d++)
			s.dim[d] = 1 + next_random(&seed) %
					       (s.ndim > 2 ? 90 : 3000);
		assert_int_equal(ckt_grid_init(&g, CKPT_F32, &s, NULL), 0);
		for (uint64_t i = 0; i < g.tile_count; i++) {
			struct ckpt_box b;

			ckt_grid_tile(&g, i, &b);
			assert_true(ckt_box_inside(&b, g.ndim, g.shape));
			uint64_t n = ckt_box_bytes(&b, g.item_bytes);

			assert_true(n > 0 && n <= CKB_TILE_MAX_BYTES);
			for (uint32_t d = 0; d < g.ndim; d++)
				assert_int_equal(b.origin[d] % g.tile[d], 0);
			sum += n;
		}
		assert_int_equal(sum, g.bytes);
	}
}

/* ckt_tiles names exactly the tiles that meet a box. */
static void the_walk_names_the_tiles_that_meet(void **state)
{
	uint64_t seed = 1234567;

	(void)state;
	for (int round = 0; round < 300; round++) {
		struct ckpt_shape s = { 2, { 1 + next_random(&seed) % 900,
					     1 + next_random(&seed) % 900 } };
		struct ckpt_box box = { .ndim = 2 }, tile, both;
		struct ckt_grid g;
		struct ckt_tiles w;
		uint64_t got, at = 0;

		assert_int_equal(ckt_grid_init(&g, CKPT_F64, &s, NULL), 0);
		for (int d = 0; d < 2; d++) {
			box.origin[d] = next_random(&seed) % s.dim[d];
			box.extent[d] = next_random(&seed) %
					(s.dim[d] - box.origin[d] + 1);
		}
		ckt_tiles_init(&w, &g, &box);
		while (ckt_tiles_next(&w, &got)) {
			for (; at < got; at++) {
				ckt_grid_tile(&g, at, &tile);
				assert_false(ckt_box_meet(&tile, &box, &both));
			}
			ckt_grid_tile(&g, at++, &tile);
			assert_true(ckt_box_meet(&tile, &box, &both));
		}
		for (; at < g.tile_count; at++) {
			ckt_grid_tile(&g, at, &tile);
			assert_false(ckt_box_meet(&tile, &box, &both));
		}
	}
}

static void boxes_of_packed_dtypes_fall_on_bytes(void **state)
{
	struct ckpt_shape s = { 2, { 4, 6 } };
	struct ckpt_box box = { 2, { 1, 2 }, { 2, 4 } }, out;
	struct ckpt_err err = { 0 };
	struct ckt_grid g;

	(void)state;
	assert_int_equal(ckt_grid_init(&g, CKPT_F4, &s, NULL), 0);
	assert_int_equal(ckt_grid_box(&g, CKPT_F4, &s, &box, &out, NULL), 0);
	assert_int_equal(out.origin[1], 1);
	assert_int_equal(out.extent[1], 2);
	box.origin[1] = 1;
	assert_int_equal(ckt_grid_box(&g, CKPT_F4, &s, &box, &out, &err),
			 CKPT_EINVAL);
	assert_non_null(strstr(err.message, "whole bytes"));
	box.origin[1] = 4;
	assert_int_equal(ckt_grid_box(&g, CKPT_F4, &s, &box, &out, &err),
			 CKPT_EINVAL);
	assert_non_null(strstr(err.message, "does not lie in"));
}

static void files_have_tiles_of_one_mib(void **state)
{
	struct ckt_grid g;

	(void)state;
	ckt_grid_init_file(&g, (3u << 20) + 1);
	assert_int_equal(g.tile_count, 4);
	ckt_grid_init_file(&g, 10);
	assert_int_equal(g.tile_count, 1);
	ckt_grid_init_file(&g, 0);
	assert_int_equal(g.tile_count, 0);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(worked_values_hold),
		cmocka_unit_test(tiles_cover_every_element_once),
		cmocka_unit_test(the_walk_names_the_tiles_that_meet),
		cmocka_unit_test(boxes_of_packed_dtypes_fall_on_bytes),
		cmocka_unit_test(files_have_tiles_of_one_mib),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
