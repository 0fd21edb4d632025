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
#include "vector.h"

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

static void the_bytes_are_the_formats(void **state)
{
	struct ckf_record r = sample();

	(void)state;
	ckf_record_encode(&r, head);
	assert_vector(head, sizeof(head),
		"636b707452454331880000000100010000000000000000000100200003000000"
		"64000800000000004c04040000000000abababababababababababababababab"
		"abababababababababababababababab00000400000000000b00000000000000"
		"e8030000010000000c0000000000000064000000000000000d00000000000000"
		"3bbbd9e0f53daa8d");
}

static void the_packs_ends_are_the_formats(void **state)
{
	struct ckf_pack_header h = { .compat = 5 };
	struct ckf_trailer_entry e = {
		.off = 0x0102030405060708, .head_len = 136, .kind = 1,
		.codec = 1, .stored_len = 263244, .raw_len = 524388,
	};
	struct ckf_footer f = { .entry_count = 2, .table_off = 640,
				.table_xxh3 = 0x1122334455667788 };
	uint8_t b[64];

	(void)state;
	count_up(h.uuid, 16, 0x10);
	count_up(h.store_uuid, 16, 0xa0);
	ckf_pack_header_encode(&h, b);
	assert_vector(b, sizeof(b),
		"636b70745041434b0500000000000000101112131415161718191a1b1c1d1e1f"
		"a0a1a2a3a4a5a6a7a8a9aaabacadaeaf000000000000000005ae92e4732f1933");
	count_up(e.digest, 32, 0);
	ckf_trailer_entry_encode(&e, b);
	assert_vector(b, sizeof(b),
		"000102030405060708090a0b0c0d0e0f101112131415161718191a1b1c1d1e1f"
		"080706050403020188000000010001004c040400000000006400080000000000");
	count_up(f.uuid, 16, 0x10);
	ckf_footer_encode(&f, b);
	assert_vector(b, sizeof(b),
		"636b7074464f4f54020000000000000080020000000000008877665544332211"
		"101112131415161718191a1b1c1d1e1f0000000000000000d4d2eeee0420739d");
}

static void trailer_entries_come_back(void **state)
{
	struct ckf_trailer_entry e = {
		.off = UINT64_MAX, .head_len = UINT32_MAX, .kind = 2,
		.codec = UINT16_MAX, .stored_len = 1ull << 63, .raw_len = 3,
	}, out;
	uint8_t b[CKF_TRAILER_ENTRY_BYTES];

	(void)state;
	count_up(e.digest, 32, 7);
	ckf_trailer_entry_encode(&e, b);
	ckf_trailer_entry_decode(b, &out);
	assert_memory_equal(out.digest, e.digest, 32);
	assert_true(out.off == e.off && out.head_len == e.head_len &&
		    out.kind == e.kind && out.codec == e.codec &&
		    out.stored_len == e.stored_len && out.raw_len == e.raw_len);
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
		{ 26, 2, 20, CKPT_ECORRUPT },     /* digest length */
		{ 28, 4, 4, CKPT_ECORRUPT },      /* cells */
		{ 28, 4, 0xffffffff, CKPT_ECORRUPT },
		{ 32, 8, 0, CKPT_ECORRUPT },      /* raw length */
		{ 32, 8, UINT64_MAX, CKPT_ECORRUPT },
		/* three cells modulo 2^32 */
		{ 32, 8, (1ull << 50) + 524388, CKPT_ECORRUPT },
		{ 40, 8, 1, CKPT_ECORRUPT },      /* stored length */
		{ 80, 4, 5, CKPT_ECORRUPT },      /* a raw cell's length */
		{ 96, 4, 0xffffffff, CKPT_ECORRUPT },
		{ 96, 4, 0, CKPT_ECORRUPT },
		{ 96, 4, CKB_CELL_BYTES, CKPT_ECORRUPT }, /* not shorter */
		{ 100, 4, 4, CKPT_EVERSION },     /* coding */
		{ 100, 4, 2, CKPT_ECORRUPT },     /* not of codec 1 */
		{ 100, 4, 3, CKPT_ECORRUPT },
		{ 14, 2, 3, CKPT_EVERSION },
		{ 8, 4, 128, CKPT_ECORRUPT },     /* header length */
		{ 8, 4, 0xffffffff, CKPT_ECORRUPT },
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

/* A lie about a cell that the sum agrees with. */
static void a_zstd_cell_is_shorter_than_its_bytes(void **state)
{
	struct ckf_record r = sample(), out;

	(void)state;
	cells[1].stored_len = CKB_CELL_BYTES;
	r.stored_len = 2 * CKB_CELL_BYTES + 100;
	ckf_record_encode(&r, head);
	assert_int_equal(decode(head, sizeof(head), &out), CKPT_ECORRUPT);
	cells[1].stored_len--;
	r.stored_len--;
	ckf_record_encode(&r, head);
	assert_int_equal(decode(head, sizeof(head), &out), 0);
}

/* Cell 1 of three, and a last cell of @last bytes, of codec planes. */
static int decode_cell(uint32_t coding, uint32_t stored_len, uint32_t last)
{
	struct ckf_record r = sample(), out;

	r.codec = CKF_CODEC_PLANES;
	r.raw_len = 2 * CKB_CELL_BYTES + last;
	cells[1] = (struct ckf_cell){ stored_len, coding, 12 };
	cells[2] = (struct ckf_cell){ 0, CKF_CELL_CONSTANT, 13 };
	r.stored_len = CKB_CELL_BYTES + stored_len;
	ckf_record_encode(&r, head);
	return decode(head, sizeof(head), &out);
}

static void planes_records_may_store_nothing_of_a_cell(void **state)
{
	(void)state;
	assert_int_equal(decode_cell(CKF_CELL_CONSTANT, 0, 8), 0);
	assert_int_equal(decode_cell(CKF_CELL_PLANES, 1, 9), 0);
	assert_int_equal(decode_cell(CKF_CELL_PLANES, CKB_CELL_BYTES - 1, 9),
			 0);
	assert_int_equal(decode_cell(CKF_CELL_ZSTD, 1, 8), 0);
	assert_int_equal(decode_cell(CKF_CELL_RAW, CKB_CELL_BYTES, 8), 0);
	/* a constant cell has 8 raw bytes at least, and none stored */
	assert_int_equal(decode_cell(CKF_CELL_CONSTANT, 0, 7), CKPT_ECORRUPT);
	assert_int_equal(decode_cell(CKF_CELL_CONSTANT, 1, 8), CKPT_ECORRUPT);
	assert_int_equal(decode_cell(CKF_CELL_PLANES, 0, 8), CKPT_ECORRUPT);
	assert_int_equal(decode_cell(CKF_CELL_PLANES, CKB_CELL_BYTES, 8),
			 CKPT_ECORRUPT);
	assert_int_equal(decode_cell(CKF_CELL_ZSTD, 0, 8), CKPT_ECORRUPT);
	assert_int_equal(decode_cell(CKF_CELL_RAW, 0, 8), CKPT_ECORRUPT);
	assert_int_equal(decode_cell(4, 0, 8), CKPT_EVERSION);
}

static void stored_lengths_follow_the_codec(void **state)
{
	(void)state;
	for (uint16_t codec = 0; codec < 4; codec++) {
		assert_true(ckf_stored_len_ok(codec, 1, 1));
		assert_true(ckf_stored_len_ok(codec, 0, 1) == (codec >= 2));
		assert_false(ckf_stored_len_ok(codec, 2, 1));
	}
	/* a record without payload: its header may be anywhere */
	assert_int_equal(ckf_record_place(100, 104, 0), 104);
	assert_int_equal(ckf_record_place(208, 104, 0), 208);
}

/* 2^50 and three cells' bytes have three cells, modulo 2^32. */
static void lengths_that_wrap_around_are_refused(void **state)
{
	struct ckf_record r = sample(), out;

	(void)state;
	r.codec = CKF_CODEC_RAW;
	for (int i = 0; i < CELLS; i++)
		cells[i] = (struct ckf_cell){ CKB_CELL_BYTES, CKF_CELL_RAW, 1 };
	r.stored_len = CELLS * CKB_CELL_BYTES;
	r.raw_len = r.stored_len;
	ckf_record_encode(&r, head);
	assert_int_equal(decode(head, sizeof(head), &out), 0);
	r.raw_len += 1ull << 50;
	ckf_record_encode(&r, head);
	assert_int_equal(decode(head, sizeof(head), &out), CKPT_ECORRUPT);
}

static void more_cells_than_there_is_room_for_are_refused(void **state)
{
	struct ckf_record r = sample(), out;

	(void)state;
	ckf_record_encode(&r, head);
	assert_int_equal(ckf_record_decode(head, sizeof(head), got_cells,
					   CELLS - 1, &out, NULL),
			 CKPT_ECORRUPT);
	assert_int_equal(ckf_record_decode(head, sizeof(head), got_cells,
					   CELLS, &out, NULL), 0);
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
	longer[139] = 0;
	ckb_put_u16(longer + 130, 13); /* one byte past the area */
	ckb_put_u64(longer + 144, ckb_xxh3(longer, 144));
	assert_int_equal(decode(longer, sizeof(longer), &out), CKPT_ECORRUPT);
}

/* Footers whose checksum is right and whose numbers lie. */
static void lying_footers_are_refused(void **state)
{
	static const struct {
		size_t at;
		uint64_t value;
	} lies[] = {
		{ 8, 3 }, { 8, 0 }, { 8, UINT64_MAX }, { 8, (1u << 24) + 1 },
		/* the same number of bytes modulo 2^64 */
		{ 8, (1ull << 58) + 2 },
		{ 16, 641 }, { 16, 0 }, { 16, 56 }, { 16, UINT64_MAX - 7 },
		{ 16, 648 }, { 48, 1 },
	};
	struct ckf_footer f = { 2, 640, 99, { 1 } }, out;
	uint64_t size = 640 + 2 * 64 + 64;
	uint8_t b[64];

	(void)state;
	for (size_t i = 0; i < CKB_ARRAY_LEN(lies); i++) {
		ckf_footer_encode(&f, b);
		ckb_put_u64(b + lies[i].at, lies[i].value);
		ckb_put_u64(b + 56, ckb_xxh3(b, 56));
		assert_int_equal(ckf_footer_decode(b, size, &out, NULL),
				 CKPT_ECORRUPT);
	}
	ckf_footer_encode(&f, b);
	assert_int_equal(ckf_footer_decode(b, size, &out, NULL), 0);
	/* tables that fit the file and cannot be there */
	for (f.table_off = 0; f.table_off <= 72; f.table_off++) {
		size = f.table_off + 2 * 64 + 64;
		ckf_footer_encode(&f, b);
		assert_int_equal(ckf_footer_decode(b, size, &out, NULL),
				 f.table_off == 64 || f.table_off == 72
					 ? 0 : CKPT_ECORRUPT);
	}
}

static void pack_headers_tell_newer_from_damaged(void **state)
{
	struct ckf_pack_header h = { .compat = 0xffffffff }, out;
	uint8_t b[64];

	(void)state;
	ckf_pack_header_encode(&h, b);
	assert_int_equal(ckf_pack_header_decode(b, 64, &out, NULL), 0);
	h.incompat = 1;
	ckf_pack_header_encode(&h, b);
	assert_int_equal(ckf_pack_header_decode(b, 64, &out, NULL),
			 CKPT_EVERSION);
	h.incompat = 0;
	ckf_pack_header_encode(&h, b);
	b[50] = 1; /* reserved */
	ckb_put_u64(b + 56, ckb_xxh3(b, 56));
	assert_int_equal(ckf_pack_header_decode(b, 64, &out, NULL),
			 CKPT_ECORRUPT);
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
	for (size_t n = 0; n < 64; n++)
		assert_true(ckf_pack_header_decode(a, n, &hout, NULL) < 0);
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
		cmocka_unit_test(the_packs_ends_are_the_formats),
		cmocka_unit_test(trailer_entries_come_back),
		cmocka_unit_test(records_come_back),
		cmocka_unit_test(every_flip_and_cut_is_refused),
		cmocka_unit_test(lies_with_a_good_checksum_are_refused),
		cmocka_unit_test(a_zstd_cell_is_shorter_than_its_bytes),
		cmocka_unit_test(planes_records_may_store_nothing_of_a_cell),
		cmocka_unit_test(stored_lengths_follow_the_codec),
		cmocka_unit_test(lengths_that_wrap_around_are_refused),
		cmocka_unit_test(more_cells_than_there_is_room_for_are_refused),
		cmocka_unit_test(unknown_extra_fields_are_skipped),
		cmocka_unit_test(lying_footers_are_refused),
		cmocka_unit_test(pack_headers_tell_newer_from_damaged),
		cmocka_unit_test(large_payloads_start_on_a_page),
		cmocka_unit_test(pack_headers_and_footers_refuse_flips),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
