/* SPDX-License-Identifier: Apache-2.0 */
/* test_buf.c - a buffer grows, ends in NUL, and fails once for all. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>
#include <string.h>

#include "base/buf.h"

static void pieces_of_any_size_append(void **state)
{
	static uint8_t want[200000];
	struct ckb_buf buf = { 0 };
	uint64_t seed = 7;
	size_t len = 0;

	(void)state;
	for (size_t i = 0; i < sizeof(want); i++)
		want[i] = (uint8_t)(i * 31 >> 3);
	while (len < 190000) {
		seed = seed * 6364136223846793005ull + 1442695040888963407ull;
		size_t n = (size_t)(seed >> 33) % (seed % 5 ? 300 : 9000);

		ckb_buf_put(&buf, want + len, n);
		len += n;
		assert_int_equal(buf.len, len);
		assert_int_equal(buf.data[len], 0);
		assert_true(buf.cap > buf.len);
	}
	assert_false(buf.failed);
	assert_memory_equal(buf.data, want, len);
	ckb_buf_fini(&buf);
	assert_null(buf.data);
	assert_int_equal(buf.len, 0);
	ckb_buf_fini(&buf); /* again is harmless */
}

static void texts_append_whatever_their_length(void **state)
{
	struct ckb_buf buf = { 0 };
	char name[1000];

	(void)state;
	ckb_buf_puts(&buf, "ab");
	ckb_buf_putc(&buf, 'c');
	ckb_buf_printf(&buf, "-%d-%s", 42, "");
	assert_string_equal((char *)buf.data, "abc-42-");
	/* around the bound of the small buffer inside */
	for (size_t n = 250; n < 262; n++) {
		size_t before = buf.len;

		memset(name, 'x', n);
		name[n] = '\0';
		ckb_buf_printf(&buf, "%s", name);
		assert_int_equal(buf.len, before + n);
		assert_string_equal((char *)buf.data + before, name);
	}
	ckb_buf_fini(&buf);
}

static void room_comes_zeroed(void **state)
{
	struct ckb_buf buf = { 0 };
	const uint8_t zero[100] = { 0 };

	(void)state;
	ckb_buf_puts(&buf, "x");
	uint8_t *at = ckb_buf_extend(&buf, sizeof(zero));

	assert_non_null(at);
	assert_int_equal(buf.len, 101);
	assert_memory_equal(at, zero, sizeof(zero));
	assert_non_null(ckb_buf_extend(&buf, 0));
	ckb_buf_fini(&buf);
	assert_non_null(ckb_buf_extend(&buf, 0)); /* an empty file is none */
	assert_int_equal(buf.data[0], 0);
	ckb_buf_fini(&buf);
}

/* Sizes that no memory has, or that overflow: void from then on. */
static void a_failure_sticks(void **state)
{
	const size_t sizes[] = { SIZE_MAX, SIZE_MAX - 1, SIZE_MAX - 4,
				 (size_t)1 << 62 };

	(void)state;
	for (size_t i = 0; i < CKB_ARRAY_LEN(sizes); i++) {
		struct ckb_buf buf = { 0 };

		ckb_buf_puts(&buf, "abc");
		assert_null(ckb_buf_extend(&buf, sizes[i]));
		assert_true(buf.failed);
		ckb_buf_puts(&buf, "more");
		ckb_buf_printf(&buf, "%300d", 1);
		assert_null(ckb_buf_extend(&buf, 1));
		assert_int_equal(buf.len, 3);
		ckb_buf_fini(&buf);
		assert_false(buf.failed);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(pieces_of_any_size_append),
		cmocka_unit_test(texts_append_whatever_their_length),
		cmocka_unit_test(room_comes_zeroed),
		cmocka_unit_test(a_failure_sticks),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
