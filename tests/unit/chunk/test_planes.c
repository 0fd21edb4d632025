/* SPDX-License-Identifier: Apache-2.0 */
/* test_planes.c - cells by planes: round trips of every dtype, what is chosen,
 * the format's own bytes, and stored bytes that lie. */
#include <pthread.h>

#include "base/hash.h"
#include "chunk/planes.h"
#include "pack_fixture.h"

static uint8_t raw[CKB_CELL_BYTES], coded[CKB_CELL_BYTES],
	again[CKB_CELL_BYTES];
static struct ckf_cell cell;
static const void *data;

static int setup(void **state)
{
	struct ckc_codec *c;
	struct ckpt_err err = { 0 };

	assert_ok(ckc_codec_new(CKF_CODEC_PLANES, 1, &c, &err));
	*state = c;
	return 0;
}

static int teardown(void **state)
{
	ckc_codec_free(*state);
	return 0;
}

static void encode(struct ckc_codec *c, size_t len)
{
	struct ckpt_err err = { 0 };

	memset(coded, 0xee, sizeof(coded));
	assert_ok(ckc_cell_encode(c, raw, len, coded, &cell, &data, &err));
	for (size_t i = len; i < sizeof(coded); i++)
		assert_int_equal(coded[i], 0xee);
	memset(again, 0xdd, sizeof(again));
	assert_ok(ckc_cell_decode(&cell, data, again, len, &err));
	assert_memory_equal(raw, again, len);
	for (size_t i = len; i < sizeof(again) && i < len + 64; i++)
		assert_int_equal(again[i], 0xdd);
}

static uint64_t seed;

static uint32_t random32(void)
{
	seed = seed * 6364136223846793005u + 1442695040888963407u;
	return (uint32_t)(seed >> 32);
}

/* A float near 0.02 of either sign, whose mantissa is noise. */
static uint32_t float_bits(void)
{
	uint32_t exponent = 121;

	while (random32() % 2 && exponent > 60)
		exponent--;
	return random32() << 31 | exponent << 23 | random32() >> 9;
}

static void fill_floats(enum ckpt_dtype dtype, size_t len)
{
	size_t width = ckc_plan_of(dtype).width;

	seed = 7;
	for (size_t i = 0; i < len; i++)
		raw[i] = (uint8_t)random32();
	for (size_t i = 0; i + width <= len; i += width) {
		uint32_t b = float_bits();
		uint32_t top = b >> 31, exponent = b >> 23 & 255;

		if (dtype == CKPT_BF16)
			ckb_put_u16(raw + i, (uint16_t)(b >> 16));
		else if (dtype == CKPT_F16)
			ckb_put_u16(raw + i, (uint16_t)(
				top << 15 | (exponent / 5 & 31) << 10 |
				(b & 0x3ff)));
		else if (dtype == CKPT_F64 || dtype == CKPT_C128)
			ckb_put_u32(raw + i + 4, top << 31 |
				    (exponent + 896) << 20 | (b & 0xfffff));
		else if (width == 1)
			raw[i] = (uint8_t)(top << 7 | (exponent & 15) << 3 |
					   (b & 7));
		else
			ckb_put_u32(raw + i, b);
	}
}

static const struct {
	enum ckpt_dtype dtype;
	double at_most; /* of the raw bytes */
} floats[] = {
	{ CKPT_BF16, 0.68 }, { CKPT_F32, 0.85 }, { CKPT_F64, 0.93 },
	{ CKPT_F16, 0.90 }, { CKPT_C64, 0.93 }, { CKPT_C128, 0.93 },
	{ CKPT_F8_E4M3, 0.90 }, { CKPT_F8_E5M2, 0.90 },
	{ CKPT_F8_E8M0, 0.90 },
};

static void floats_shrink_by_planes(void **state)
{
	for (size_t i = 0; i < CKB_ARRAY_LEN(floats); i++) {
		ckc_codec_dtype(*state, floats[i].dtype);
		fill_floats(floats[i].dtype, CKB_CELL_BYTES);
		encode(*state, CKB_CELL_BYTES);
		assert_int_equal(cell.coding, CKF_CELL_PLANES);
		assert_true(cell.stored_len < floats[i].at_most *
					      CKB_CELL_BYTES);
		assert_ptr_equal(data, coded);
		assert_int_equal(coded[0], ckc_plan_of(floats[i].dtype).width);
	}
}

static void cells_of_every_length_and_dtype_come_back(void **state)
{
	static const size_t lens[] = { 1, 2, 7, 8, 9, 63, 64, 127, 128, 130,
				       255, 256, 510, 512, 1000, 4096, 5000,
				       16384, 65536, 131073, 200000, 262143 };

	for (int d = CKPT_BOOL; d < CKPT_DTYPE_END; d++)
		for (size_t i = 0; i < CKB_ARRAY_LEN(lens); i++) {
			ckc_codec_dtype(*state, (enum ckpt_dtype)d);
			fill_floats(CKPT_F32, lens[i]);
			encode(*state, lens[i]);
			fill_floats(CKPT_BF16, lens[i]);
			encode(*state, lens[i]);
			fill(raw, lens[i], WORDS, i);
			encode(*state, lens[i]);
			fill(raw, lens[i], NOISE, i);
			encode(*state, lens[i]);
			assert_ptr_equal(data, lens[i] > 1 ? data : raw);
		}
}

static void noise_stays_raw(void **state)
{
	for (int d = CKPT_BOOL; d < CKPT_DTYPE_END; d++)
		for (size_t len = 16; len <= CKB_CELL_BYTES; len *= 4) {
			ckc_codec_dtype(*state, (enum ckpt_dtype)d);
			fill(raw, len, NOISE, len);
			encode(*state, len);
			assert_int_equal(cell.coding, CKF_CELL_RAW);
			assert_int_equal(cell.stored_len, len);
			assert_ptr_equal(data, raw);
		}
}

/* Of 64 bits two are known, or four. */
static void a_saving_below_a_twentieth_is_not_taken(void **state)
{
	ckc_codec_dtype(*state, CKPT_F64);
	for (int bits = 0; bits < 2; bits++) {
		fill(raw, sizeof(raw), NOISE, 5);
		for (size_t i = 7; i < sizeof(raw); i += 8)
			raw[i] &= bits ? 0x0f : 0x3f; /* 1/16, 1/32 */
		encode(*state, sizeof(raw));
		assert_int_equal(cell.coding, bits ? CKF_CELL_PLANES
						   : CKF_CELL_RAW);
	}
}

static void equal_elements_store_nothing(void **state)
{
	static const uint8_t pattern[8] = { 1, 2, 3, 4, 5, 6, 7, 8 };

	for (size_t width = 1; width <= 8; width *= 2)
		for (size_t len = 8; len <= CKB_CELL_BYTES; len = len * 3 / 2) {
			for (size_t i = 0; i < len; i++)
				raw[i] = pattern[i % width];
			encode(*state, len);
			assert_int_equal(cell.coding, CKF_CELL_CONSTANT);
			assert_int_equal(cell.stored_len, 0);
			for (size_t i = 0; i < 8; i++)
				assert_int_equal(cell.xxh3 >> 8 * i & 255,
						 pattern[i % width]);
			raw[len - 1] ^= 1;
			encode(*state, len);
			assert_true(len == 8 ||
				    cell.coding != CKF_CELL_CONSTANT);
		}
	memset(raw, 0, sizeof(raw));
	encode(*state, 7); /* too short to be one */
	assert_int_not_equal(cell.coding, CKF_CELL_CONSTANT);
}

static void integers_of_64_bits_go_by_planes_and_others_to_zstd(void **state)
{
	for (int shift = 0; shift <= 20; shift += 20) {
		for (uint64_t i = 0; i < CKB_CELL_BYTES / 8; i++)
			ckb_put_u64(raw + 8 * i, i << shift);
		ckc_codec_dtype(*state, CKPT_I64);
		encode(*state, sizeof(raw));
		assert_int_equal(cell.coding, CKF_CELL_PLANES);
		assert_true(cell.stored_len < sizeof(raw) / 50);
	}
	ckc_codec_dtype(*state, CKPT_U8);
	encode(*state, sizeof(raw));
	assert_int_equal(cell.coding, CKF_CELL_ZSTD);
}

static void a_sample_that_misleads_costs_only_room(void **state)
{
	/* the sample sees one byte, and there are others elsewhere */
	ckc_codec_dtype(*state, CKPT_BF16);
	fill(raw, sizeof(raw), NOISE, 1);
	for (size_t i = 1; i < sizeof(raw); i += 2)
		raw[i] = 0x3f;
	raw[2 * 99 + 1] = 0x40;
	encode(*state, sizeof(raw));
	assert_int_equal(cell.coding, CKF_CELL_PLANES);
	/* runs that are sampled say constant, all others are noise */
	size_t n = sizeof(raw) / 4, runs = CKC_PLANES_SAMPLE / 64;

	ckc_codec_dtype(*state, CKPT_F32);
	fill(raw, sizeof(raw), NOISE, 1);
	for (size_t i = 0; i < runs; i++)
		memset(raw + (n - 64) * i / (runs - 1) * 4, 1, 64 * 4);
	encode(*state, sizeof(raw));
}

/* ---- stored bytes ---- */

static int decode_bytes(const uint8_t *stored, size_t len, size_t raw_len,
			struct ckpt_err *err)
{
	struct ckf_cell c = { (uint32_t)len, CKF_CELL_PLANES,
			      ckb_xxh3(stored, len) };

	memset(again, 0xdd, sizeof(again));
	return ckc_cell_decode(&c, stored, again, raw_len, err);
}

/* FORMAT.md's example: 32 BF16 from 1.0 on. */
static size_t example(uint8_t out[64])
{
	static const uint8_t head[] = { 2, 1, 0, 0, 32, 0, 0, 0, 1, 0, 0, 2 };

	memcpy(out, head, sizeof(head));
	for (size_t i = 0; i < 32; i++)
		out[12 + i] = (uint8_t)(2 * i);
	out[44] = 0x7f;
	return 45;
}

static void the_formats_example_decodes(void **state)
{
	struct ckpt_err err = { 0 };
	uint8_t stored[64];

	(void)state;
	assert_ok(decode_bytes(stored, example(stored), 64, &err));
	for (unsigned i = 0; i < 32; i++)
		assert_int_equal(ckb_get_u16(again + 2 * (size_t)i),
				 0x3f80 + i);
	assert_int_equal(again[64], 0xdd);
}

/* The checksum is right in all of these (S10). */
static void lying_planes_are_refused(void **state)
{
	static const struct {
		size_t at;
		uint8_t value;
		const char *says;
	} lies[] = {
		{ 0, 0, "elements of 0" }, { 0, 3, "elements of 3" },
		{ 0, 16, "elements of 16" }, { 0, 1, "header" },
		{ 0, 4, "plane" }, { 0, 8, "plane" }, { 1, 2, "header" },
		{ 2, 1, "header" }, { 3, 1, "header" }, { 4, 31, "31" },
		{ 4, 33, "33" }, { 4, 0, "0 bytes" }, { 4, 34, "cut short" },
		{ 6, 1, "cut short" }, { 7, 1, "zstd" }, { 7, 2, "mode 2" },
		{ 7, 3, "mode 3" }, { 7, 255, "mode 255" }, { 8, 0, "mode 2" },
		{ 8, 2, "cut short" }, { 11, 0, "plane 1" }, { 11, 1, "zstd" },
	};
	struct ckpt_err err = { 0 };
	uint8_t stored[64];

	(void)state;
	for (size_t i = 0; i < CKB_ARRAY_LEN(lies); i++) {
		size_t len = example(stored);

		stored[lies[i].at] = lies[i].value;
		assert_code(decode_bytes(stored, len, 64, &err),
			    CKPT_ECORRUPT);
		assert_says(err, lies[i].says);
	}
	for (size_t len = example(stored); len-- > 0;)
		assert_code(decode_bytes(stored, len, 64, &err),
			    CKPT_ECORRUPT);
	stored[45] = 0;
	assert_code(decode_bytes(stored, 46, 64, &err), CKPT_ECORRUPT);
	assert_says(err, "1 bytes follow");
	assert_code(decode_bytes(stored, 45, 62, &err), CKPT_ECORRUPT);
	assert_code(decode_bytes(stored, 45, 65, &err), CKPT_ECORRUPT);
	assert_code(decode_bytes(stored, 45, 66, &err), CKPT_ECORRUPT);
}

/* More threads than decoders are kept for. */
struct decoding {
	const struct ckf_cell *cell;
	const void *stored;
	const uint8_t *raw;
	size_t wrong;
};

static void *decode_again_and_again(void *arg)
{
	struct decoding *d = arg;
	uint8_t *out = malloc(CKB_CELL_BYTES);

	for (int i = 0; i < 40; i++) {
		memset(out, 0, CKB_CELL_BYTES);
		d->wrong += ckc_cell_decode(d->cell, d->stored, out,
					    CKB_CELL_BYTES, NULL) != 0 ||
			    memcmp(out, d->raw, CKB_CELL_BYTES) != 0;
	}
	free(out);
	return NULL;
}

static void any_number_of_threads_may_decode(void **state)
{
	struct decoding d[12];
	pthread_t threads[12];

	ckc_codec_dtype(*state, CKPT_F32);
	fill_floats(CKPT_F32, CKB_CELL_BYTES);
	encode(*state, CKB_CELL_BYTES);
	for (size_t i = 0; i < CKB_ARRAY_LEN(d); i++) {
		d[i] = (struct decoding){ &cell, data, raw, 0 };
		assert_int_equal(pthread_create(&threads[i], NULL,
						decode_again_and_again, &d[i]),
				 0);
	}
	for (size_t i = 0; i < CKB_ARRAY_LEN(d); i++)
		pthread_join(threads[i], NULL);
	for (size_t i = 0; i < CKB_ARRAY_LEN(d); i++)
		assert_int_equal(d[i].wrong, 0);
}

static void constant_cells_have_one_shape(void **state)
{
	struct ckf_cell c = { 0, CKF_CELL_CONSTANT, 0x0807060504030201 };
	struct ckpt_err err = { 0 };

	(void)state;
	/* no stored byte is looked at */
	memset(again, 0xdd, sizeof(again));
	assert_ok(ckc_cell_decode(&c, NULL, again, 11, &err));
	assert_memory_equal(again, "\1\2\3\4\5\6\7\10\1\2\3\xdd", 12);
	assert_code(ckc_cell_decode(&c, NULL, again, 7, &err), CKPT_ECORRUPT);
	c.stored_len = 1;
	assert_code(ckc_cell_decode(&c, coded, again, 8, &err), CKPT_ECORRUPT);
	assert_says(err, "constant");
}

#define T(name) cmocka_unit_test_setup_teardown(name, setup, teardown)

int main(void)
{
	const struct CMUnitTest tests[] = {
		T(floats_shrink_by_planes),
		T(cells_of_every_length_and_dtype_come_back),
		T(noise_stays_raw),
		T(a_saving_below_a_twentieth_is_not_taken),
		T(equal_elements_store_nothing),
		T(integers_of_64_bits_go_by_planes_and_others_to_zstd),
		T(a_sample_that_misleads_costs_only_room),
		T(the_formats_example_decodes),
		T(lying_planes_are_refused),
		T(any_number_of_threads_may_decode),
		T(constant_cells_have_one_shape),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
