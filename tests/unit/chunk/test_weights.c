/* SPDX-License-Identifier: Apache-2.0 */
/* test_weights.c - tables of code lengths: RFC 8878's own example, and which
 * form is taken. That zstd reads both is test_huffman's to show. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>
#include <string.h>

#include "chunk/weights.h"

static uint8_t bits[256], table[CKC_WEIGHTS_MAX + 8];

static void the_rfcs_example_has_its_bytes(void **state)
{
	/* 4.2.1: literals 0 to 5 of 1, 2, 3, 0, 4, 4 bits; weights 4, 3, 2,
	 * 0, 1 are stored, in half a byte each */
	static const uint8_t lengths[] = { 1, 2, 3, 0, 4, 4 };
	static const uint8_t want[] = { 132, 0x43, 0x20, 0x10 };

	(void)state;
	memset(bits, 0, sizeof(bits));
	memcpy(bits, lengths, sizeof(lengths));
	assert_int_equal(ckc_weights_encode(bits, 4, 5, table), 4);
	assert_memory_equal(table, want, 4);
}

/* @count codes of @length bits up to @last, none elsewhere. */
static size_t encode(uint32_t last, uint32_t count, uint8_t length)
{
	memset(bits, 0, sizeof(bits));
	memset(bits + last + 1 - count, length, count);
	memset(table, 0xee, sizeof(table));
	size_t n = ckc_weights_encode(bits, length, last, table);

	for (size_t i = n; i < sizeof(table); i++)
		assert_int_equal(table[i], 0xee);
	return n;
}

static void the_shorter_form_is_taken(void **state)
{
	size_t n = encode(120, 16, 4);

	(void)state;
	/* FSE: many zeros cost little, and the first byte is a length */
	assert_in_range(n, 4, 40);
	assert_int_equal(table[0], n - 1);
	n = encode(250, 16, 4);
	assert_in_range(n, 4, 60);
	assert_int_equal(table[0], n - 1);
}

static void equal_weights_go_by_half_bytes_or_not_at_all(void **state)
{
	(void)state;
	assert_int_equal(encode(127, 128, 7), 65);
	assert_int_equal(table[0], 127 + 127);
	assert_int_equal(encode(1, 2, 1), 2);
	assert_int_equal(encode(255, 256, 8), 0); /* nothing would shrink */
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(the_rfcs_example_has_its_bytes),
		cmocka_unit_test(the_shorter_form_is_taken),
		cmocka_unit_test(equal_weights_go_by_half_bytes_or_not_at_all),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
