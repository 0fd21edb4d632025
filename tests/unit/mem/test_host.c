/* SPDX-License-Identifier: Apache-2.0 */
/* test_host.c - the process's own memory as a kind. */
#include "mem_fixture.h"

static void copies_are_there_at_once(void **state)
{
	struct ckpt_memory *mem;
	struct ckd_lane *lane;
	struct ckpt_err err = { 0 };
	uint8_t from[64], to[64] = { 0 };
	uint64_t event;

	(void)state;
	for (int i = 0; i < 64; i++)
		from[i] = (uint8_t)i;
	assert_ok(ckpt_memory_host(&mem, &err));
	assert_string_equal(ckpt_memory_name(mem), "host");
	assert_true(ckd_is_host(mem));
	assert_ok(ckd_lane_get(mem, &lane, &err));
	assert_ok(ckd_copy_2d(lane, to, 4, from + 2, 8, 3, 5, &err));
	for (int i = 0; i < 5; i++) {
		assert_memory_equal(to + i * 4, from + 2 + i * 8, 3);
		assert_int_equal(to[i * 4 + 3], 0);
	}
	assert_ok(ckd_record(lane, &event, &err));
	assert_ok(ckd_wait(lane, event, &err));
	ckd_lane_put(lane, true);
	ckpt_memory_unref(mem);
}

static void it_has_no_streams(void **state)
{
	struct ckpt_memory *mem;
	struct ckpt_err err = { 0 };
	void *ready;

	(void)state;
	assert_ok(ckpt_memory_host(&mem, &err));
	assert_code(ckd_ready_open(mem, &err, &ready, &err), CKPT_EINVAL);
	assert_says(err, "no streams");
	ckpt_memory_unref(mem);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(copies_are_there_at_once),
		cmocka_unit_test(it_has_no_streams),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
