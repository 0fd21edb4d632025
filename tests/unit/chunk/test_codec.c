/* SPDX-License-Identifier: Apache-2.0 */
/* test_codec.c - cells: round trips, what stays raw, every flip found, and
 * frames of the zstd program. */
#include "base/hash.h"
#include "pack_fixture.h"

static uint8_t raw[CKB_CELL_BYTES], coded[CKB_CELL_BYTES],
	again[CKB_CELL_BYTES];

static const size_t sizes[] = { 1, 2, 7, 100, 4095, 4096, 65537,
				CKB_CELL_BYTES - 1, CKB_CELL_BYTES };

static void cells_come_back_whatever_they_hold(void **state)
{
	struct packs *f = *state;
	struct ckc_codec *codecs[] = { f->raw, f->zstd };
	struct ckpt_err err = { 0 };

	for (size_t c = 0; c < 2; c++)
		for (int kind = 0; kind < KINDS; kind++)
			for (size_t i = 0; i < CKB_ARRAY_LEN(sizes); i++) {
				struct ckf_cell cell;
				const void *data;

				fill(raw, sizes[i], (enum kind)kind, i);
				assert_ok(ckc_cell_encode(codecs[c], raw,
							  sizes[i], coded,
							  &cell, &data, &err));
				memset(again, 0xee, sizeof(again));
				assert_ok(ckc_cell_decode(&cell, data, again,
							  sizes[i], &err));
				assert_memory_equal(raw, again, sizes[i]);
				assert_true(cell.stored_len <= sizes[i]);
			}
}

static void what_does_not_shrink_stays_raw_and_is_not_copied(void **state)
{
	struct packs *f = *state;
	struct ckpt_err err = { 0 };
	struct ckf_cell cell;
	const void *data;

	for (size_t i = 0; i < CKB_ARRAY_LEN(sizes); i++) {
		fill(raw, sizes[i], NOISE, 3);
		assert_ok(ckc_cell_encode(f->zstd, raw, sizes[i], coded, &cell,
					  &data, &err));
		assert_int_equal(cell.coding, CKF_CELL_RAW);
		assert_int_equal(cell.stored_len, sizes[i]);
		assert_ptr_equal(data, raw);
	}
	fill(raw, sizeof(raw), WORDS, 3);
	assert_ok(ckc_cell_encode(f->zstd, raw, sizeof(raw), coded, &cell,
				  &data, &err));
	assert_int_equal(cell.coding, CKF_CELL_ZSTD);
	assert_ptr_equal(data, coded);
	assert_true(cell.stored_len < sizeof(raw) / 10);
	/* the raw codec never tries */
	assert_ok(ckc_cell_encode(f->raw, raw, sizeof(raw), NULL, &cell, &data,
				  &err));
	assert_int_equal(cell.coding, CKF_CELL_RAW);
	assert_ptr_equal(data, raw);
}

static void every_flipped_bit_of_a_stored_cell_is_found(void **state)
{
	struct packs *f = *state;
	struct ckc_codec *codecs[] = { f->raw, f->zstd };
	struct ckpt_err err = { 0 };

	for (size_t c = 0; c < 2; c++) {
		struct ckf_cell cell;
		const void *data;

		fill(raw, 3000, WORDS, 9);
		assert_ok(ckc_cell_encode(codecs[c], raw, 3000, coded, &cell,
					  &data, &err));
		memmove(coded, data, cell.stored_len);
		for (size_t i = 0; i < 8 * (size_t)cell.stored_len; i++) {
			coded[i / 8] ^= (uint8_t)(1u << i % 8);
			assert_code(ckc_cell_decode(&cell, coded, again, 3000,
						    &err), CKPT_ECORRUPT);
			assert_says(err, "checksum");
			coded[i / 8] ^= (uint8_t)(1u << i % 8);
		}
		assert_ok(ckc_cell_decode(&cell, coded, again, 3000, &err));
	}
}

/* `head -c 100 /dev/zero | zstd -1 --no-check` */
static const uint8_t hundred_zeros[] = {
	0x28, 0xb5, 0x2f, 0xfd, 0x00, 0x48, 0x45, 0x00, 0x00,
	0x10, 0x00, 0x00, 0x01, 0x00, 0x3f, 0x01, 0x2c,
};

static int decode(const uint8_t *stored, size_t len, uint32_t coding,
		  size_t raw_len, struct ckpt_err *err)
{
	struct ckf_cell cell = { (uint32_t)len, coding,
				 ckb_xxh3(stored, len) };

	return ckc_cell_decode(&cell, stored, again, raw_len, err);
}

static void frames_of_the_zstd_program_decode(void **state)
{
	struct ckpt_err err = { 0 };

	(void)state;
	memset(again, 0xee, sizeof(again));
	assert_ok(decode(hundred_zeros, sizeof(hundred_zeros), CKF_CELL_ZSTD,
			 100, &err));
	for (size_t i = 0; i < 100; i++)
		assert_int_equal(again[i], 0);
	assert_int_equal(again[100], 0xee);
}

/* The checksum is right in all of these: who wrote them meant harm (S10). */
static void cells_of_another_length_are_refused(void **state)
{
	static const uint8_t junk[20] = { 1, 2, 3 };
	uint8_t two[2 * sizeof(hundred_zeros)];
	struct ckpt_err err = { 0 };
	size_t len = sizeof(hundred_zeros);

	(void)state;
	memcpy(two, hundred_zeros, len);
	memcpy(two + len, hundred_zeros, len);
	assert_code(decode(hundred_zeros, len, CKF_CELL_ZSTD, 101, &err),
		    CKPT_ECORRUPT);
	memset(again, 0xee, sizeof(again));
	assert_code(decode(hundred_zeros, len, CKF_CELL_ZSTD, 99, &err),
		    CKPT_ECORRUPT);
	assert_int_equal(again[99], 0xee);
	assert_code(decode(two, 2 * len, CKF_CELL_ZSTD, 200, &err),
		    CKPT_ECORRUPT);
	assert_code(decode(hundred_zeros, len - 1, CKF_CELL_ZSTD, 100, &err),
		    CKPT_ECORRUPT);
	assert_code(decode(junk, sizeof(junk), CKF_CELL_ZSTD, 100, &err),
		    CKPT_ECORRUPT);
	assert_code(decode(junk, sizeof(junk), CKF_CELL_RAW, 19, &err),
		    CKPT_ECORRUPT);
	assert_code(decode(junk, sizeof(junk), CKF_CELL_RAW, 21, &err),
		    CKPT_ECORRUPT);
}

static void a_level_that_zstd_has_not_is_refused(void **state)
{
	struct ckpt_err err = { 0 };
	struct ckc_codec *c = (struct ckc_codec *)1;

	(void)state;
	assert_code(ckc_codec_new(CKF_CODEC_ZSTD, 99, &c, &err), CKPT_EINVAL);
	assert_null(c);
	assert_says(err, "99");
	assert_code(ckc_codec_new(CKF_CODEC_ZSTD, -999999999, &c, &err),
		    CKPT_EINVAL);
	assert_ok(ckc_codec_new(CKF_CODEC_ZSTD, 19, &c, &err));
	assert_int_equal(ckc_codec_kind(c), CKF_CODEC_ZSTD);
	ckc_codec_free(c);
	ckc_codec_free(NULL);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(cells_come_back_whatever_they_hold),
		cmocka_unit_test(
			what_does_not_shrink_stays_raw_and_is_not_copied),
		cmocka_unit_test(every_flipped_bit_of_a_stored_cell_is_found),
		cmocka_unit_test(frames_of_the_zstd_program_decode),
		cmocka_unit_test(cells_of_another_length_are_refused),
		cmocka_unit_test(a_level_that_zstd_has_not_is_refused),
	};

	return cmocka_run_group_tests(tests, packs_setup, packs_teardown);
}
