/* SPDX-License-Identifier: Apache-2.0 */
/* test_entry.c - the BLOBs of a manifest: round trips and refusals. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>
#include <string.h>

#include "base/bytes.h"
#include "format/entry.h"
#include "vector.h"

static const struct ckf_chunk_entry entry = {
	.tile = 7, .shard = 2, .pack = 3, .off = 4096, .stored_len = 900,
	.raw_len = 1000, .head_len = 104, .codec = 1, .digest = { 0xAA },
};

static void chunk_entries_have_the_formats_bytes(void **state)
{
	struct ckf_chunk_entry e = entry, out;
	uint8_t b[CKF_CHUNK_ENTRY_BYTES];

	(void)state;
	e.tile = 0x0102030405060708;
	count_up(e.digest, sizeof(e.digest), 0);
	memset(b, 0xff, sizeof(b)); /* whatever was there */
	ckf_chunk_entry_encode(&e, b);
	assert_vector(b, sizeof(b),
		"0807060504030201020000000300000000100000000000008403000000000000"
		"e8030000680000000100000000000000000102030405060708090a0b0c0d0e0f"
		"101112131415161718191a1b1c1d1e1f");
	assert_int_equal(ckf_chunk_entry_decode(b, &out, NULL), 0);
	assert_true(out.tile == e.tile && out.shard == 2 && out.pack == 3 &&
		    out.off == 4096 && out.stored_len == 900 &&
		    out.raw_len == 1000 && out.head_len == 104 &&
		    out.codec == 1);
	assert_memory_equal(out.digest, e.digest, sizeof(e.digest));
}

static void impossible_entries_are_refused(void **state)
{
	static const struct {
		size_t at;
		uint32_t value;
	} lies[] = {
		{ 32, 0 }, { 32, 8388609 }, { 24, 0 }, { 24, 1001 },
		{ 36, 96 }, { 36, 1048577 }, { 36, 108 }, { 36, 0 },
		{ 16, 63 }, { 16, 0 }, { 16, 4097 }, { 20, 0xffffffff },
		{ 28, 1 }, { 42, 1 }, { 44, 1 }, { 40, 1u << 16 },
	};
	struct ckf_chunk_entry out;
	uint8_t b[CKF_CHUNK_ENTRY_BYTES];

	(void)state;
	for (size_t i = 0; i < CKB_ARRAY_LEN(lies); i++) {
		ckf_chunk_entry_encode(&entry, b);
		ckb_put_u32(b + lies[i].at, lies[i].value);
		assert_int_equal(ckf_chunk_entry_decode(b, &out, NULL),
				 CKPT_ECORRUPT);
	}
	/* nothing stored: where cells may be constant */
	ckf_chunk_entry_encode(&entry, b);
	ckb_put_u64(b + 24, 0);
	for (uint16_t codec = 0; codec < 4; codec++) {
		ckb_put_u16(b + 40, codec);
		assert_int_equal(ckf_chunk_entry_decode(b, &out, NULL),
				 codec < 2 ? CKPT_ECORRUPT : 0);
	}
}

static void layouts_have_the_formats_bytes(void **state)
{
	const uint64_t o[] = { 0, 0, 0, 6 }, e[] = { 5, 6, 5, 7 };
	struct ckf_shard shards[] = { { 0, 0, 1, o, e },
				      { 3, 1, 2, o + 2, e + 2 } };
	struct ckf_layout l = { 2, 4, 2, shards, NULL };
	CKB_BUF struct ckb_buf b = { 0 };

	(void)state;
	ckf_layout_encode(&l, &b);
	assert_vector(b.data, b.len,
		"0100000002000000040000000200000000000000000000000100000000000000"
		"0000000000000000000000000000000005000000000000000600000000000000"
		"0300000001000000020000000000000000000000000000000600000000000000"
		"05000000000000000700000000000000");
}

static void impossible_layouts_are_refused(void **state)
{
	static const struct {
		size_t at;
		uint32_t value;
	} lies[] = {
		{ 0, 0 }, { 0, 2 },            /* version */
		{ 4, 3 }, { 4, 65 }, { 4, 1u << 28 },
		{ 8, 0 }, { 8, 3 },            /* world: rank 3 is none */
		{ 12, 1 }, { 12, 3 }, { 12, (1u << 20) + 1 },
		{ 48 + 16, 4 },                /* rank */
		{ 48 + 20, 2 },                /* replica 2 of 2 */
		{ 48 + 24, 0 },                /* of none */
		{ 48 + 28, 1 },                /* reserved */
	};
	const uint64_t z[] = { 0, 0 };
	struct ckf_shard shards[] = { { 0, 0, 1, z, z }, { 3, 1, 2, z, z } };
	struct ckf_layout l = { 2, 4, 2, shards, NULL }, out;

	(void)state;
	for (size_t i = 0; i < CKB_ARRAY_LEN(lies); i++) {
		CKB_BUF struct ckb_buf b = { 0 };

		ckf_layout_encode(&l, &b);
		ckb_put_u32(b.data + lies[i].at, lies[i].value);
		if (ckf_layout_decode(b.data, b.len, &out, NULL) !=
		    CKPT_ECORRUPT)
			fail_msg("lie %zu is believed", i);
	}
}

/* Layouts whose length is right and whose numbers are too large. */
static void layouts_are_bounded(void **state)
{
	const uint32_t most = 1u << 20;
	CKB_BUF struct ckb_buf b = { 0 };
	struct ckf_layout out;
	uint8_t *p = ckb_buf_extend(&b, 16 * ((size_t)most + 2));

	(void)state;
	assert_non_null(p);
	ckb_put_u32(p, 1);
	ckb_put_u32(p + 8, 1); /* world */
	for (uint32_t i = 0; i <= most; i++)
		ckb_put_u32(p + 16 + 16 * (size_t)i + 8, 1); /* replicas */
	ckb_put_u32(p + 12, most);
	assert_int_equal(ckf_layout_decode(p, b.len - 16, &out, NULL), 0);
	ckf_layout_fini(&out);
	ckb_put_u32(p + 12, most + 1);
	assert_int_equal(ckf_layout_decode(p, b.len, &out, NULL),
			 CKPT_ECORRUPT);
	ckb_put_u32(p + 12, 0);
	ckb_put_u32(p + 4, CKPT_NDIM_MAX);
	assert_int_equal(ckf_layout_decode(p, 16, &out, NULL), 0);
	ckf_layout_fini(&out);
	ckb_put_u32(p + 4, CKPT_NDIM_MAX + 1);
	assert_int_equal(ckf_layout_decode(p, 16, &out, NULL), CKPT_ECORRUPT);
}

/* A scalar's layout: shards without dimensions, or none at all. */
static void layouts_may_have_no_dimensions(void **state)
{
	struct ckf_shard shard = { 0, 0, 1, NULL, NULL };
	struct ckf_layout l = { 0, 1, 1, &shard, NULL }, out;
	CKB_BUF struct ckb_buf b = { 0 };

	(void)state;
	ckf_layout_encode(&l, &b);
	assert_int_equal(b.len, 32);
	assert_int_equal(ckf_layout_decode(b.data, b.len, &out, NULL), 0);
	assert_int_equal(out.shard_count, 1);
	ckf_layout_fini(&out);
	ckb_put_u32(b.data + 12, 0);
	assert_int_equal(ckf_layout_decode(b.data, 16, &out, NULL), 0);
	assert_int_equal(out.shard_count, 0);
	ckf_layout_fini(&out);
}

static void layouts_come_back_and_cuts_are_refused(void **state)
{
	const uint64_t o[] = { 0, 5 }, e[] = { 5, 6 };
	struct ckf_shard shards[] = { { 0, 0, 1, o, e }, { 1, 1, 2, e, o } };
	struct ckf_layout l = { 2, 4, 2, shards, NULL }, out;
	CKB_BUF struct ckb_buf b = { 0 };

	(void)state;
	ckf_layout_encode(&l, &b);
	assert_int_equal(b.len, 16 + 2 * 48);
	assert_int_equal(ckf_layout_decode(b.data, b.len, &out, NULL), 0);
	assert_int_equal(out.world, 4);
	assert_int_equal(out.shards[1].replica_count, 2);
	assert_int_equal(out.shards[1].origin[1], 6);
	ckf_layout_fini(&out);
	for (size_t n = 0; n < b.len; n++)
		assert_true(ckf_layout_decode(b.data, n, &out, NULL) < 0);
	ckb_put_u32(b.data + 12, 0xffffffff); /* shards */
	assert_true(ckf_layout_decode(b.data, b.len, &out, NULL) < 0);
	ckb_put_u32(b.data + 12, 2);
	ckb_put_u32(b.data + 4, 0xffffffff);  /* ndim */
	assert_true(ckf_layout_decode(b.data, b.len, &out, NULL) < 0);
}

static void statistics_and_shapes_come_back(void **state)
{
	struct ckpt_stats s = { .value_class = CKPT_VALUES_SIGNED, .count = 9,
				.min.i = -5, .max.i = 7, .absmax = 7,
				.sum = 2.5 }, out;
	struct ckpt_shape shape = { 2, { 3, 0 } }, back;
	uint8_t b[CKF_STATS_BYTES];
	CKB_BUF struct ckb_buf sb = { 0 };

	(void)state;
	ckf_stats_encode(&s, b);
	assert_int_equal(ckf_stats_decode(b, sizeof(b), &out, NULL), 0);
	assert_true(out.min.i == -5 && out.sum == 2.5 && out.count == 9);
	assert_true(ckf_stats_decode(b, sizeof(b) - 1, &out, NULL) < 0);
	b[0] = 9;
	assert_true(ckf_stats_decode(b, sizeof(b), &out, NULL) < 0);
	ckf_shape_encode(&shape, &sb);
	assert_int_equal(ckf_shape_decode(sb.data, sb.len, &back, NULL), 0);
	assert_true(back.ndim == 2 && back.dim[0] == 3 && back.dim[1] == 0);
	assert_true(ckf_shape_decode(sb.data, 7, &back, NULL) < 0);
}

static void statistics_have_the_formats_bytes(void **state)
{
	struct ckpt_stats i = { .value_class = CKPT_VALUES_SIGNED, .count = 9,
				.zero_count = 1, .min.i = -5, .max.i = 7,
				.absmax = 7, .sum = 2.5 };
	struct ckpt_stats f = { .value_class = CKPT_VALUES_FLOAT, .count = 9,
				.nan_count = 1, .inf_count = 2,
				.zero_count = 3, .min.f = -1.5, .max.f = 4,
				.absmax = 4, .sum = 2.5 };
	uint8_t b[CKF_STATS_BYTES];

	(void)state;
	ckf_stats_encode(&i, b);
	assert_vector(b, sizeof(b),
		"0200000000000000090000000000000000000000000000000000000000000000"
		"0100000000000000fbffffffffffffff07000000000000000000000000001c40"
		"0000000000000440");
	ckf_stats_encode(&f, b);
	assert_vector(b, sizeof(b),
		"0100000000000000090000000000000001000000000000000200000000000000"
		"0300000000000000000000000000f8bf00000000000010400000000000001040"
		"0000000000000440");
}

static void impossible_statistics_are_refused(void **state)
{
	static const struct {
		size_t at;
		uint64_t value;
	} lies[] = {
		{ 0, 4 }, { 0, UINT32_MAX }, { 0, 1 | 1ull << 32 },
		{ 16, 10 }, { 24, 8 }, { 32, UINT64_MAX }, { 8, 5 },
	};
	struct ckpt_stats s = { .value_class = CKPT_VALUES_FLOAT, .count = 9,
				.nan_count = 1, .inf_count = 2,
				.zero_count = 3 }, out;
	uint8_t b[CKF_STATS_BYTES];

	(void)state;
	for (size_t i = 0; i < CKB_ARRAY_LEN(lies); i++) {
		ckf_stats_encode(&s, b);
		ckb_put_u64(b + lies[i].at, lies[i].value);
		if (ckf_stats_decode(b, sizeof(b), &out, NULL) !=
		    CKPT_ECORRUPT)
			fail_msg("lie %zu is believed", i);
	}
	ckf_stats_encode(&s, b);
	for (size_t n = 0; n < sizeof(b); n++)
		assert_true(ckf_stats_decode(b, n, &out, NULL) < 0);
	assert_int_equal(ckf_stats_decode(b, sizeof(b), &out, NULL), 0);
}

static void roots_begin_with_the_formats_bytes(void **state)
{
	struct ckpt_shape shape = { 2, { 3, 4 } }, scalar = { 0, { 0 } };
	CKB_BUF struct ckb_buf b = { 0 };
	CKB_BUF struct ckb_buf s = { 0 };

	(void)state;
	ckf_root_preamble(CKPT_BF16, &shape, &b);
	assert_vector(b.data, b.len,
		"636b707466732d726f6f742d3101000000100000000200000003000000000000"
		"000400000000000000");
	ckf_root_preamble(CKPT_F4, &scalar, &s);
	assert_vector(s.data, s.len,
		"636b707466732d726f6f742d31010000000400000000000000");
}

static void shapes_have_up_to_64_dimensions(void **state)
{
	static const uint8_t zeros[8 * (CKPT_NDIM_MAX + 1)];
	struct ckpt_shape out;

	(void)state;
	for (size_t n = 0; n <= sizeof(zeros); n++)
		assert_int_equal(ckf_shape_decode(zeros, n, &out, NULL),
				 n % 8 == 0 && n / 8 <= CKPT_NDIM_MAX
					 ? 0 : CKPT_ECORRUPT);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(chunk_entries_have_the_formats_bytes),
		cmocka_unit_test(impossible_entries_are_refused),
		cmocka_unit_test(layouts_have_the_formats_bytes),
		cmocka_unit_test(layouts_come_back_and_cuts_are_refused),
		cmocka_unit_test(layouts_may_have_no_dimensions),
		cmocka_unit_test(impossible_layouts_are_refused),
		cmocka_unit_test(layouts_are_bounded),
		cmocka_unit_test(statistics_have_the_formats_bytes),
		cmocka_unit_test(statistics_and_shapes_come_back),
		cmocka_unit_test(impossible_statistics_are_refused),
		cmocka_unit_test(roots_begin_with_the_formats_bytes),
		cmocka_unit_test(shapes_have_up_to_64_dimensions),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
