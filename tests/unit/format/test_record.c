/* SPDX-License-Identifier: Apache-2.0 */
/* test_record.c - pack records: known bytes, round trips, and every flip and
 * cut refused. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>
#include <string.h>

#include "base/bytes.h"
#include "base/hash.h"
#include "format/record.h"

#define CELLS 3
static struct ckf_cell cells[CELLS], got_cells[8];
static uint8_t head[CKF_RECORD_FIXED_BYTES + CELLS * 16 + 8];

static struct ckf_record sample(void)
{
	struct ckf_record r = {
		.kind = CKF_RECORD_CHUNK, .codec = CKF_CODEC_ZSTD,
		.raw_len = 2 * CKB_CELL_BYTES + 100, .cell_count = CELLS,
		.cells = cells,
	};

	cells[0] = (struct ckf_cell){ CKB_CELL_BYTES, CKF_CELL_RAW, 11 };
	cells[1] = (struct ckf_cell){ 1000, CKF_CELL_ZSTD, 12 };
	cells[2] = (struct ckf_cell){ 100, CKF_CELL_RAW, 13 };
	r.stored_len = CKB_CELL_BYTES + 1100;
	memset(r.digest, 0xAB, sizeof(r.digest));
	return r;
}

static int decode(const uint8_t *bytes, size_t len, struct ckf_record *out)
{
	struct ckpt_err err = { 0 };
	int rc = ckf_record_decode(bytes, len, got_cells, 8, out, &err);

	assert_true(rc == 0 || strlen(err.message) > 10);
	return rc;
}

/* FORMAT.md's offsets, spelled out: the format cannot drift silently. */
static void the_bytes_are_the_formats(void **state)
{
	struct ckf_record r = sample();

	(void)state;
	ckf_record_encode(&r, head);
	assert_memory_equal(head, "ckptREC1", 8);
	assert_int_equal(ckb_get_u32(head + 8), 136);
	assert_int_equal(ckb_get_u16(head + 12), 1);
	assert_int_equal(ckb_get_u16(head + 14), 1);
	assert_int_equal(ckb_get_u64(head + 16), 0);
	assert_int_equal(ckb_get_u32(head + 24), 32u << 16 | 1);
	assert_int_equal(ckb_get_u32(head + 28), 3);
	assert_int_equal(ckb_get_u64(head + 32), 524388);
	assert_int_equal(ckb_get_u64(head + 40), 263244);
	assert_int_equal(head[48], 0xAB);
	assert_int_equal(ckb_get_u32(head + 96), 1000);
	assert_int_equal(ckb_get_u32(head + 100), 1);
	assert_int_equal(ckb_get_u64(head + 104), 12);
	assert_int_equal(ckb_get_u64(head + 128), ckb_xxh3(head, 128));
}

static void records_come_back(void **state)
{
	struct ckf_record r = sample(), out;

	(void)state;
	ckf_record_encode(&r, head);
	assert_int_equal(decode(head, sizeof(head), &out), 0);
	assert_int_equal(out.raw_len, r.raw_len);
	assert_int_equal(out.stored_len, r.stored_len);
	assert_int_equal(out.cells[1].stored_len, 1000);
	assert_memory_equal(out.digest, r.digest, 32);
}

static void every_flip_and_cut_is_refused(void **state)
{
	struct ckf_record r = sample(), out;

	(void)state;
	ckf_record_encode(&r, head);
	for (size_t i = 0; i < sizeof(head) * 8; i++) {
		head[i / 8] ^= (uint8_t)(1u << i % 8);
		assert_true(decode(head, sizeof(head), &out) < 0);
		head[i / 8] ^= (uint8_t)(1u << i % 8);
	}
	for (size_t n = 0; n < sizeof(head); n++)
		assert_true(decode(head, n, &out) < 0);
	assert_int_equal(decode(head, sizeof(head), &out), 0);
}

/* A header whose checksum is right and whose lengths lie. */
static void lies_with_a_good_checksum_are_refused(void **state)
{
	static const struct {
		size_t at, width;
		uint64_t value;
		int code;
	} lies[] = {
		{ 12, 2, 9, CKPT_ECORRUPT },      /* kind */
		{ 14, 2, 0, CKPT_ECORRUPT },      /* raw codec, zstd cell */
		{ 14, 2, 7, CKPT_EVERSION },      /* codec */
		{ 20, 4, 1, CKPT_EVERSION },      /* incompat */
		{ 24, 2, 2, CKPT_EVERSION },      /* digest algorithm */
		{ 28, 4, 4, CKPT_ECORRUPT },      /* cells */
		{ 28, 4, 0xffffffff, CKPT_ECORRUPT },
		{ 32, 8, 0, CKPT_ECORRUPT },      /* raw length */
		{ 32, 8, UINT64_MAX, CKPT_ECORRUPT },
		{ 40, 8, 1, CKPT_ECORRUPT },      /* stored length */
		{ 80, 4, 5, CKPT_ECORRUPT },      /* a raw cell's length */
		{ 96, 4, 0xffffffff, CKPT_ECORRUPT },
		{ 96, 4, 0, CKPT_ECORRUPT },
		{ 100, 4, 2, CKPT_EVERSION },     /* coding */
		{ 8, 4, 128, CKPT_ECORRUPT },     /* header length */
	};
	struct ckf_record out;

	(void)state;
	for (size_t i = 0; i < CKB_ARRAY_LEN(lies); i++) {
		struct ckf_record r = sample();
		uint8_t v[8];

		ckf_record_encode(&r, head);
		ckb_put_u64(v, lies[i].value);
		memcpy(head + lies[i].at, v, lies[i].width);
		ckb_put_u64(head + 128, ckb_xxh3(head, 128));
		assert_int_equal(decode(head, sizeof(head), &out),
				 lies[i].code);
	}
}

static void unknown_extra_fields_are_skipped(void **state)
{
	uint8_t longer[sizeof(head) + 16] = { 0 };
	struct ckf_record r = sample(), out;

	(void)state;
	ckf_record_encode(&r, head);
	memcpy(longer, head, 128);
	ckb_put_u32(longer + 8, sizeof(longer));
	ckb_put_u16(longer + 128, 999);  /* type */
	ckb_put_u16(longer + 130, 5);    /* length: padded to 16 in all */
	memset(longer + 132, 'x', 5);
	ckb_put_u64(longer + 144, ckb_xxh3(longer, 144));
	assert_int_equal(decode(longer, sizeof(longer), &out), 0);
	longer[139] = 1; /* padding must be zero */
	ckb_put_u64(longer + 144, ckb_xxh3(longer, 144));
	assert_int_equal(decode(longer, sizeof(longer), &out), CKPT_ECORRUPT);
}

static void large_payloads_start_on_a_page(void **state)
{
	(void)state;
	assert_int_equal(ckf_record_place(64, 104, 65535), 64);
	assert_int_equal(ckf_record_place(65, 104, 100), 72);
	assert_int_equal(ckf_record_place(64, 104, 65536), 4096 - 104);
	assert_int_equal(ckf_record_place(4096, 104, 1u << 20), 8192 - 104);
	assert_int_equal(ckf_record_place(8192 - 104, 104, 1u << 20),
			 8192 - 104);
}

static void pack_headers_and_footers_refuse_flips(void **state)
{
	struct ckf_pack_header h = { .uuid = { 1 }, .store_uuid = { 2 } }, hout;
	struct ckf_footer f = { 2, 640, 99, { 1 } }, fout;
	uint8_t a[64], b[64];
	uint64_t size = 640 + 2 * 64 + 64;

	(void)state;
	ckf_pack_header_encode(&h, a);
	ckf_footer_encode(&f, b);
	assert_memory_equal(a, "ckptPACK", 8);
	assert_memory_equal(b, "ckptFOOT", 8);
	assert_int_equal(ckf_pack_header_decode(a, 64, &hout, NULL), 0);
	assert_memory_equal(hout.uuid, h.uuid, 16);
	assert_int_equal(ckf_footer_decode(b, size, &fout, NULL), 0);
	assert_int_equal(fout.entry_count, 2);
	assert_true(ckf_footer_decode(b, size + 64, &fout, NULL) < 0);
	assert_true(ckf_pack_header_decode(a, 63, &hout, NULL) < 0);
	for (size_t i = 0; i < 512; i++) {
		a[i / 8] ^= (uint8_t)(1u << i % 8);
		b[i / 8] ^= (uint8_t)(1u << i % 8);
		assert_true(ckf_pack_header_decode(a, 64, &hout, NULL) < 0);
		assert_true(ckf_footer_decode(b, size, &fout, NULL) < 0);
		a[i / 8] ^= (uint8_t)(1u << i % 8);
		b[i / 8] ^= (uint8_t)(1u << i % 8);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(the_bytes_are_the_formats),
		cmocka_unit_test(records_come_back),
		cmocka_unit_test(every_flip_and_cut_is_refused),
		cmocka_unit_test(lies_with_a_good_checksum_are_refused),
		cmocka_unit_test(unknown_extra_fields_are_skipped),
		cmocka_unit_test(large_payloads_start_on_a_page),
		cmocka_unit_test(pack_headers_and_footers_refuse_flips),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
