/* SPDX-License-Identifier: Apache-2.0 */
/* test_planes.c - planes against bytes picked one by one, all forms alike. */
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
static uint8_t got[8][N + 64], want[8][N + 64];

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
			uint32_t up = (uint32_t)e[k] << 1 | below >> 7;

			want[k][i] = turned ? (uint8_t)up : e[k];
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

/* ---- the forms ---- */

typedef size_t (*split_fn)(const uint8_t *from, size_t n, uint32_t width,
			   bool turned, uint8_t *const *planes);
typedef size_t (*join_fn)(const uint8_t *const *planes, size_t n,
			  uint32_t width, bool turned, uint8_t *to);

static size_t split_best(const uint8_t *from, size_t n, uint32_t width,
			 bool turned, uint8_t *const *planes)
{
	ckt_planes_split(from, n, width, turned, planes);
	return n;
}

static size_t join_best(const uint8_t *const *planes, size_t n,
			uint32_t width, bool turned, uint8_t *to)
{
	ckt_planes_join(planes, n, width, turned, to);
	return n;
}

static size_t split_none(const uint8_t *from, size_t n, uint32_t width,
			 bool turned, uint8_t *const *planes)
{
	(void)from, (void)n, (void)width, (void)turned, (void)planes;
	return 0;
}

static size_t join_none(const uint8_t *const *planes, size_t n,
			uint32_t width, bool turned, uint8_t *to)
{
	(void)planes, (void)n, (void)width, (void)turned, (void)to;
	return 0;
}

/* What a form leaves, the plain one does: "none" leaves all of it. */
static struct form {
	split_fn split;
	join_fn join;
	size_t step; /* fewer are left */
} forms[4] = { { split_none, join_none, SIZE_MAX },
	       { split_best, join_best, 1 } };
static size_t form_count = 2;

static void add_forms(void)
{
	form_count = 2;
#ifdef __x86_64__
	if (ckt_planes_has_wide())
		forms[form_count++] = (struct form){
			ckt_planes_split_wide, ckt_planes_join_wide, 32 };
	if (ckt_planes_has_vbmi())
		forms[form_count++] = (struct form){
			ckt_planes_split_vbmi, ckt_planes_join_vbmi, 64 };
#endif
}

static void split_one(size_t n, uint32_t width, bool turned, size_t shift)
{
	uint8_t *p[8];

	pointers(got, p, 0);
	pick(raw + shift, n, width, turned);
	for (size_t f = 0; f < form_count; f++) {
		memset(got, 0xee, sizeof(got));
		size_t done = forms[f].split(raw + shift, n, width, turned, p);

		assert_true(done <= n);
		if (width < 8 || forms[f].step != 64)
			assert_true(n - done < forms[f].step);
		ckt_planes_split_plain(raw + shift, done, n, width, turned, p);
		assert_memory_equal(got, want, sizeof(want));
	}
}

static void all_forms_split_as_bytes_are_picked(void **state)
{
	(void)state;
	add_forms();
	sweep(split_one);
}

static void join_one(size_t n, uint32_t width, bool turned, size_t shift)
{
	const uint8_t *p[8];

	pick(raw, n, width, turned);
	for (int k = 0; k < 8; k++) {
		memmove(got[k] + shift, want[k], n);
		p[k] = got[k] + shift;
	}
	for (size_t f = 0; f < form_count; f++) {
		memset(again, 0xee, sizeof(again));
		size_t done = forms[f].join(p, n, width, turned, again + shift);

		assert_true(done <= n);
		ckt_planes_join_plain(p, done, n, width, turned, again + shift);
		assert_memory_equal(again + shift, raw, n * width);
		assert_int_equal(again[shift + n * width], 0xee);
	}
}

static void all_forms_join_what_was_split(void **state)
{
	(void)state;
	add_forms();
	sweep(join_one);
}

static void a_turn_puts_the_sign_below_and_the_exponent_above(void **state)
{
	const uint8_t f32[] = { 0, 0, 0x80, 0xbf }; /* -1.0 */
	uint8_t *p[8];

	(void)state;
	pointers(got, p, 0);
	ckt_planes_split(f32, 1, 4, true, p);
	assert_int_equal(got[0][0], 1);
	assert_int_equal(got[1][0] | got[2][0], 0);
	assert_int_equal(got[3][0], 127);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(all_forms_split_as_bytes_are_picked),
		cmocka_unit_test(all_forms_join_what_was_split),
		cmocka_unit_test(
			a_turn_puts_the_sign_below_and_the_exponent_above),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
