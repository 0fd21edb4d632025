/* SPDX-License-Identifier: Apache-2.0 */
/* test_huffman.c - frames without matches: decoded by zstd itself, in every
 * length and for values of every spread, and never past the room. */
#include "base/hash.h"
#include "chunk/huffman.h"
#include "chunk/streams.h"
#include "pack_fixture.h"

#define MAX (300u << 10)

static struct ckc_huffman h;
static uint8_t raw[MAX], coded[MAX + 64], again[CKB_CELL_BYTES];
static uint64_t seed;

static uint32_t random32(void)
{
	seed = seed * 6364136223846793005u + 1442695040888963407u;
	return (uint32_t)(seed >> 32);
}

/* @from and below, each half as often as the one before, down to @from -
 * @depth; one in @rare (0: none) anything at all. */
static void geometric(size_t n, uint32_t from, uint32_t depth, uint32_t rare)
{
	seed = n + from;
	for (size_t i = 0; i < n; i++) {
		uint32_t step = 0;

		while (step < depth && random32() >> 31)
			step++;
		raw[i] = (uint8_t)(from - step);
		if (rare && random32() % rare == 0)
			raw[i] = (uint8_t)(random32() >> 24);
	}
}

/* Values below @values, all as frequent. */
static void even(size_t n, uint32_t values)
{
	seed = n;
	for (size_t i = 0; i < n; i++)
		raw[i] = (uint8_t)(random32() % values);
}

/* 0: not coded. */
static size_t check(size_t n)
{
	struct ckpt_err err = { 0 };

	memset(coded, 0xee, sizeof(coded));
	size_t len = ckc_huffman_encode(&h, raw, n, coded, n);

	for (size_t i = n; i < n + 64; i++)
		assert_int_equal(coded[i], 0xee);
	assert_true(len < n);
	if (len == 0)
		return 0;
	struct ckf_cell cell = { (uint32_t)len, CKF_CELL_ZSTD,
				 ckb_xxh3(coded, len) };

	assert_ok(ckc_cell_decode(&cell, coded, again, n, &err));
	assert_memory_equal(raw, again, n);
	return len;
}

static void zstd_decodes_frames_of_every_length(void **state)
{
	(void)state;
	for (size_t n = CKC_HUFFMAN_MIN; n < 3000; n += n < 300 ? 1 : 37) {
		geometric(n, 120, 30, 0);
		assert_true(check(n) > 0 || n < 600);
		geometric(n, 250, 200, 3);
		check(n);
	}
	for (size_t n = 131072 - 3; n < 131072 + 200; n += 13) {
		geometric(n, 120, 30, 0);
		assert_in_range(check(n), n / 5, n / 3);
	}
	geometric(CKB_CELL_BYTES, 120, 30, 0);
	assert_in_range(check(CKB_CELL_BYTES), CKB_CELL_BYTES / 5,
			CKB_CELL_BYTES / 3);
}

static void values_may_lie_anywhere(void **state)
{
	(void)state;
	for (uint32_t from = 0; from < 256; from++)
		for (uint32_t depth = 1; depth <= from; depth = depth * 2 + 1) {
			geometric(5000, from, depth, 0);
			assert_true(check(5000) > 0);
			geometric(20000, from, depth, 1000);
			assert_true(check(20000) > 0);
		}
}

/* Within 3 % of the entropy, for all that shrinks by a twentieth. */
static void even_values_take_their_entropy(void **state)
{
	(void)state;
	for (uint32_t values = 2; values <= 256; values++) {
		size_t n = 40000;
		uint32_t bits = 0;

		even(n, values);
		size_t len = check(n);

		while (1u << bits < values)
			bits++;
		if (values <= 128)
			assert_true(len > 0);
		if (len > 0)
			assert_in_range(len, n * (bits - 1) / 8,
					n * bits / 8 + 200);
	}
}

/* One value that the sample of close ones never sees. */
static void what_a_sample_misses_is_coded_too(void **state)
{
	(void)state;
	for (size_t at = 0; at < 131072; at += 997) {
		geometric(131072, 120, 8, 0);
		raw[at] = 80;
		raw[131071 - at] = 142;
		assert_true(check(131072) > 0);
	}
}

static void frequencies_that_ask_for_long_codes_get_short_ones(void **state)
{
	size_t n = 0, a = 1, b = 1;

	(void)state;
	/* Fibonacci's are the deepest tree there is: 24 values */
	for (uint8_t s = 0; n + a <= 131072; s++) {
		memset(raw + n, s * 10, a);
		n += a;
		size_t next = a + b;

		a = b;
		b = next;
	}
	size_t len = check(n);

	assert_in_range(len, n / 5, n * 3 / 8);
}

static void a_single_value_is_not_coded(void **state)
{
	(void)state;
	memset(raw, 7, 1000);
	assert_int_equal(check(1000), 0);
}

static void any_room_is_kept_to(void **state)
{
	(void)state;
	geometric(3000, 120, 30, 0);
	size_t len = check(3000), enough = 0;

	for (size_t room = 0; room <= 3000; room++) {
		memset(coded, 0xee, sizeof(coded));
		size_t got = ckc_huffman_encode(&h, raw, 3000, coded, room);

		assert_true(got == 0 || got == len);
		enough += got > 0;
		for (size_t i = room; i < room + 16; i++)
			assert_int_equal(coded[i], 0xee);
	}
	assert_in_range(enough, 1, 3000 - len + 1);
}

static void both_forms_write_the_same_streams(void **state)
{
	(void)state;
#ifdef __x86_64__
	static uint8_t other[MAX];

	if (!ckc_streams_has_bmi2()) {
		printf("no BMI2 here: that form is not tested\n");
		skip();
	}
	for (size_t n = 600; n < 5000; n += 61) {
		geometric(n, 120, 8, 0);
		raw[n / 2] = 112; /* the least, where pairs begin */
		assert_true(check(n) > 0);
		for (int narrow = 0; narrow < 2; narrow++) {
			/* the frame left its codes there */
			size_t a = ckc_streams_encode(&h, narrow, 112, raw, n,
						      coded, n);
			size_t b = ckc_streams_encode_bmi2(
				&h, !narrow, 112, raw, n, other, n);

			assert_true(a > 0 && a == b);
			assert_memory_equal(coded, other, a);
		}
	}
#else
	printf("no x86-64 here: it has one form\n");
	skip();
#endif
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(zstd_decodes_frames_of_every_length),
		cmocka_unit_test(values_may_lie_anywhere),
		cmocka_unit_test(even_values_take_their_entropy),
		cmocka_unit_test(what_a_sample_misses_is_coded_too),
		cmocka_unit_test(
			frequencies_that_ask_for_long_codes_get_short_ones),
		cmocka_unit_test(a_single_value_is_not_coded),
		cmocka_unit_test(any_room_is_kept_to),
		cmocka_unit_test(both_forms_write_the_same_streams),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
