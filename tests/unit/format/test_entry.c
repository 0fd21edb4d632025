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

static const struct ckf_chunk_entry entry = {
	.tile = 7, .shard = 2, .pack = 3, .off = 4096, .stored_len = 900,
	.raw_len = 1000, .head_len = 104, .codec = 1, .digest = { 0xAA },
};

static void chunk_entries_have_the_formats_bytes(void **state)
{
	struct ckf_chunk_entry out;
	uint8_t b[CKF_CHUNK_ENTRY_BYTES];

	(void)state;
	ckf_chunk_entry_encode(&entry, b);
	assert_int_equal(ckb_get_u64(b), 7);
	assert_int_equal(ckb_get_u32(b + 8), 2);
	assert_int_equal(ckb_get_u32(b + 12), 3);
	assert_int_equal(ckb_get_u64(b + 16), 4096);
	assert_int_equal(ckb_get_u64(b + 24), 900);
	assert_int_equal(ckb_get_u32(b + 32), 1000);
	assert_int_equal(ckb_get_u32(b + 36), 104);
	assert_int_equal(ckb_get_u16(b + 40), 1);
	assert_int_equal(b[48], 0xAA);
	assert_int_equal(ckf_chunk_entry_decode(b, &out, NULL), 0);
	assert_int_equal(out.head_len, 104);
}

static void impossible_entries_are_refused(void **state)
{
	static const struct {
		size_t at;
		uint32_t value;
	} lies[] = {
		{ 32, 0 }, { 32, 8388609 }, { 24, 0 }, { 24, 1001 },
		{ 36, 96 }, { 36, 1048577 }, { 16, 63 }, { 42, 1 }, { 44, 1 },
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

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(chunk_entries_have_the_formats_bytes),
		cmocka_unit_test(impossible_entries_are_refused),
		cmocka_unit_test(layouts_come_back_and_cuts_are_refused),
		cmocka_unit_test(statistics_and_shapes_come_back),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
