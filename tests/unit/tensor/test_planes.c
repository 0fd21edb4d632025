/* SPDX-License-Identifier: Apache-2.0 */
/* test_planes.c - planes against bytes picked one by one, both forms alike. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>
#include <string.h>

#include "base/bytes.h"
#include "base/check.h"
#include "tensor/planes.h"

#define N 300

static const uint32_t widths[] = { 2, 4, 8 };
static uint8_t raw[8 * N + 64], again[8 * N + 64];
static uint8_t plain[8][N + 64], wide[8][N + 64], want[8][N + 64];

static void fill(void)
{
	uint64_t x = 1;

	for (size_t i = 0; i < sizeof(raw); i++) {
		x = x * 6364136223846793005u + 1442695040888963407u;
		raw[i] = (uint8_t)(x >> 56);
	}
}

/* Bit b of an element becomes bit b + 1, the highest one bit 0. */
static void pick(const uint8_t *from, size_t n, uint32_t width, bool turned)
{
	memset(want, 0xee, sizeof(want));
	for (size_t i = 0; i < n; i++)
		for (uint32_t k = 0; k < width; k++) {
			const uint8_t *e = from + i * width;
			uint8_t below = e[k ? k - 1 : width - 1];

			want[k][i] = turned ? (uint8_t)(e[k] << 1 | below >> 7)
					    : e[k];
		}
}

static void pointers(uint8_t (*of)[N + 64], uint8_t **out, size_t shift)
{
	for (int k = 0; k < 8; k++)
		out[k] = of[k] + shift;
}

typedef void (*check_fn)(size_t n, uint32_t width, bool turned, size_t shift);

/* Every length up to N, with and without a turn, aligned and not. */
static void sweep(check_fn check)
{
	fill();
	for (size_t w = 0; w < CKB_ARRAY_LEN(widths); w++)
		for (int turned = 0; turned < 2; turned++)
			for (size_t n = 0; n <= N; n++)
				check(n, widths[w], turned, n % 3);
}

static void split_one(size_t n, uint32_t width, bool turned, size_t shift)
{
	uint8_t *p[8], *q[8];

	memset(plain, 0xee, sizeof(plain));
	memset(wide, 0xee, sizeof(wide));
	pointers(plain, p, 0);
	pointers(wide, q, 0);
	pick(raw + shift, n, width, turned);
	ckt_planes_split_plain(raw + shift, 0, n, width, turned, p);
	ckt_planes_split(raw + shift, n, width, turned, q);
	assert_memory_equal(plain, want, sizeof(want));
	assert_memory_equal(wide, want, sizeof(want));
}

static void both_forms_split_as_bytes_are_picked(void **state)
{
	(void)state;
	sweep(split_one);
}

static void join_one(size_t n, uint32_t width, bool turned, size_t shift)
{
	const uint8_t *p[8];

	memset(plain, 0, sizeof(plain));
	pick(raw, n, width, turned);
	for (int k = 0; k < 8; k++) {
		memmove(plain[k] + shift, want[k], n);
		p[k] = plain[k] + shift;
	}
	memset(again, 0xee, sizeof(again));
	ckt_planes_join_plain(p, 0, n, width, turned, again + shift);
	assert_memory_equal(again + shift, raw, n * width);
	assert_int_equal(again[shift + n * width], 0xee);
	memset(again, 0xee, sizeof(again));
	ckt_planes_join(p, n, width, turned, again + shift);
	assert_memory_equal(again + shift, raw, n * width);
	assert_int_equal(again[shift + n * width], 0xee);
}

static void both_forms_join_what_was_split(void **state)
{
	(void)state;
	sweep(join_one);
}

static void the_wide_form_leaves_fewer_than_its_step(void **state)
{
	(void)state;
#ifdef __x86_64__
	uint8_t *p[8];

	if (!ckt_planes_has_wide())
		skip();
	pointers(wide, p, 0);
	for (size_t n = 0; n <= N; n++) {
		size_t done = ckt_planes_split_wide(raw, n, 4, true, p);

		assert_true(done <= n && n - done < 32);
		assert_int_equal(ckt_planes_join_wide(
					 (const uint8_t *const *)p, n, 2,
					 false, again), done);
	}
#else
	skip();
#endif
}

static void a_turn_puts_the_sign_below_and_the_exponent_above(void **state)
{
	const uint8_t f32[] = { 0, 0, 0x80, 0xbf }; /* -1.0 */
	uint8_t *p[8];

	(void)state;
	pointers(plain, p, 0);
	ckt_planes_split(f32, 1, 4, true, p);
	assert_int_equal(plain[0][0], 1);
	assert_int_equal(plain[1][0] | plain[2][0], 0);
	assert_int_equal(plain[3][0], 127);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(both_forms_split_as_bytes_are_picked),
		cmocka_unit_test(both_forms_join_what_was_split),
		cmocka_unit_test(the_wide_form_leaves_fewer_than_its_step),
		cmocka_unit_test(
			a_turn_puts_the_sign_below_and_the_exponent_above),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
