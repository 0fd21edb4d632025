/* SPDX-License-Identifier: Apache-2.0 */
/*
 * test_fake.c - the fake device: order, bytes that are not there before their
 * event, slowness, and each fault.
 */
#include "mem_fixture.h"
#include "fake_device.h"

/* An int that the producer sets. The threads see it in order, so what is read
 * before it is set was not written yet. */
struct producer {
	int done;
};

static void finish_producer(struct producer *p)
{
	__atomic_store_n(&p->done, 1, __ATOMIC_RELEASE);
}

static void bytes_are_poison_before_their_event(void **state)
{
	struct ckpt_memory *mem = fake((struct ckpt_fake_opts){ 0 });
	struct producer p = { 0 };
	struct ckd_lane *lane;
	struct ckpt_err err = { 0 };
	uint8_t from[100], to[100] = { 0 };
	void *ready;
	uint64_t event;

	(void)state;
	memset(from, 7, sizeof(from));
	assert_ok(ckd_ready_open(mem, &p.done, &ready, &err));
	assert_ok(ckd_lane_get(mem, &lane, &err));
	assert_ok(ckd_follow(lane, ready, &err));
	assert_ok(ckd_copy_2d(lane, to, 10, from, 20, 8, 5, &err));
	assert_ok(ckd_record(lane, &event, &err));
	for (int i = 0; i < 50; i++)
		assert_int_equal(to[i], i % 10 < 8 ? 0xDB : 0);
	assert_int_equal(to[50], 0);
	finish_producer(&p);
	assert_ok(ckd_wait(lane, event, &err));
	for (int i = 0; i < 50; i++)
		assert_int_equal(to[i], i % 10 < 8 ? 7 : 0);
	ckd_lane_put(lane, true);
	ckd_ready_close(mem, ready);
	ckpt_memory_unref(mem);
}

/* Copies of one lane in the order they were queued, each event after what was
 * before it and not after more. */
static void a_lane_keeps_its_order(void **state)
{
	struct ckpt_memory *mem = fake((struct ckpt_fake_opts){ 0 });
	struct producer p = { 0 };
	struct ckd_lane *lane;
	struct ckpt_err err = { 0 };
	uint8_t cell = 1, other = 2, to = 0, to_other = 0;
	uint64_t first, last;
	void *ready;

	(void)state;
	assert_ok(ckd_ready_open(mem, &p.done, &ready, &err));
	assert_ok(ckd_lane_get(mem, &lane, &err));
	assert_ok(ckd_copy_2d(lane, &to, 1, &cell, 1, 1, 1, &err));
	assert_ok(ckd_record(lane, &first, &err));
	assert_ok(ckd_follow(lane, ready, &err));
	assert_ok(ckd_copy_2d(lane, &to_other, 1, &other, 1, 1, 1, &err));
	assert_ok(ckd_record(lane, &last, &err));
	assert_ok(ckd_wait(lane, first, &err)); /* the second waits */
	assert_int_equal(to, 1);
	assert_int_equal(to_other, 0xDB);
	finish_producer(&p);
	assert_ok(ckd_wait(lane, last, &err));
	assert_int_equal(to_other, 2);
	assert_ok(ckd_wait(lane, first, &err)); /* again is harmless */
	ckd_lane_put(lane, true);
	ckpt_memory_unref(mem);
}

static void lanes_do_not_wait_for_each_other(void **state)
{
	struct ckpt_memory *mem = fake((struct ckpt_fake_opts){ 0 });
	struct producer p = { 0 };
	struct ckd_lane *held, *lane;
	struct ckpt_err err = { 0 };
	uint8_t from = 3, a = 0, b = 0;
	uint64_t event, later;
	void *ready;

	(void)state;
	assert_ok(ckd_ready_open(mem, &p.done, &ready, &err));
	assert_ok(ckd_lane_get(mem, &held, &err));
	assert_ok(ckd_follow(held, ready, &err));
	assert_ok(ckd_copy_2d(held, &a, 1, &from, 1, 1, 1, &err));
	assert_ok(ckd_record(held, &later, &err));
	assert_ok(ckd_lane_get(mem, &lane, &err));
	assert_ok(ckd_copy_2d(lane, &b, 1, &from, 1, 1, 1, &err));
	assert_ok(ckd_record(lane, &event, &err));
	assert_ok(ckd_wait(lane, event, &err));
	assert_int_equal(b, 3);
	assert_int_equal(a, 0xDB);
	finish_producer(&p);
	assert_ok(ckd_wait(held, later, &err));
	assert_int_equal(a, 3);
	ckd_lane_put(lane, true);
	ckd_lane_put(held, true);
	ckpt_memory_unref(mem);
}

static void it_is_as_slow_as_it_is_told(void **state)
{
	static const struct ckpt_fake_opts slow[] = {
		{ .delay_ns = 30 * MS },
		{ .bytes_per_second = 100 << 20 },
		{ .delay_ns = 10 * MS, .bytes_per_second = 200 << 20 },
	};
	static const uint64_t least_ms[] = { 30, 19, 19 };
	size_t len = 2 << 20;
	uint8_t *from = calloc(1, len), *to = malloc(len);
	struct ckpt_err err = { 0 };

	(void)state;
	assert_true(from && to);
	for (size_t i = 0; i < CKB_ARRAY_LEN(slow); i++) {
		struct ckpt_memory *mem = fake(slow[i]);
		uint64_t start = fix_now_ns();

		assert_ok(fix_copy(mem, to, from, len, &err));
		assert_true(fix_now_ns() - start >= least_ms[i] * MS);
		ckpt_memory_unref(mem);
	}
	free(from);
	free(to);
}

static void the_nth_copy_fails_and_the_next_does_not(void **state)
{
	struct ckpt_memory *mem = fake((struct ckpt_fake_opts){
		.fail_at = 3 });
	struct ckpt_err err = { 0 };
	char to = 0;

	(void)state;
	assert_ok(fix_copy(mem, &to, "a", 1, &err));
	assert_ok(fix_copy(mem, &to, "b", 1, &err));
	assert_code(fix_copy(mem, &to, "c", 1, &err), CKPT_EIO);
	assert_string_equal(err.message, "device 'fake': copy 3 failed, as it "
					 "was told");
	assert_ok(fix_copy(mem, &to, "d", 1, &err));
	assert_int_equal(to, 'd');
	ckpt_memory_unref(mem);
}

static void a_device_that_is_lost_fails_every_call(void **state)
{
	struct ckpt_memory *mem = fake((struct ckpt_fake_opts){
		.lost_at = 2 });
	struct ckpt_err err = { 0 };
	uint8_t from[64], to[64];
	void *p;

	(void)state;
	memset(from, 1, sizeof(from));
	assert_ok(fix_copy(mem, to, from, 64, &err));
	assert_code(fix_copy(mem, to, from, 64, &err), CKPT_EIO);
	assert_says(err, "device 'fake' is lost");
	assert_int_equal(err.sys_errno, ENODEV);
	assert_int_equal(to[0], 1); /* amid the copy */
	assert_int_equal(to[63], 0xDB);
	for (int i = 0; i < 20; i++) {
		err = (struct ckpt_err){ 0 };
		assert_code(fix_copy(mem, to, from, 64, &err), CKPT_EIO);
		assert_says(err, "is lost");
	}
	assert_code(ckd_alloc(mem, 1, &p, &err), CKPT_EIO);
	ckpt_memory_unref(mem);
}

static void other_lanes_of_a_lost_device_fail_too(void **state)
{
	struct ckpt_memory *mem = fake((struct ckpt_fake_opts){
		.lost_at = 2 });
	struct ckd_lane *lane;
	struct ckpt_err err = { 0 };
	char to = 0;
	uint64_t event;

	(void)state;
	assert_ok(ckd_lane_get(mem, &lane, &err));
	assert_ok(ckd_copy_2d(lane, &to, 1, "a", 1, 1, 1, &err));
	assert_ok(ckd_record(lane, &event, &err));
	assert_ok(ckd_wait(lane, event, &err));
	assert_code(fix_copy(mem, &to, "b", 1, &err), CKPT_EIO);
	assert_code(ckd_copy_2d(lane, &to, 1, "c", 1, 1, 1, &err), CKPT_EIO);
	assert_says(err, "is lost");
	ckd_lane_put(lane, false);
	ckpt_memory_unref(mem);
}

static void a_copy_that_never_ends_meets_its_deadline(void **state)
{
	struct ckpt_memory *mem = fake((struct ckpt_fake_opts){
		.hang_at = 2 });
	struct ckpt_err err = { 0 };
	char to = 0;

	(void)state;
	ckpt_memory_set_deadline(mem, 30 * MS);
	assert_ok(fix_copy(mem, &to, "a", 1, &err));
	uint64_t start = fix_now_ns();

	assert_code(fix_copy(mem, &to, "b", 1, &err), CKPT_EIO);
	assert_true(fix_now_ns() - start >= 30 * MS);
	assert_string_equal(err.message, "device 'fake' stalled: a copy did "
					 "not end within 30 ms");
	assert_int_equal(err.sys_errno, ETIMEDOUT);
	ckpt_memory_set_deadline(mem, 0);
	assert_ok(fix_copy(mem, &to, "c", 1, &err));
	assert_int_equal(to, 'c');
	ckpt_memory_unref(mem);
}

/* The late copy writes to memory that was freed: which the memory has kept. */
static void a_copy_that_ends_late_hurts_nobody(void **state)
{
	struct ckpt_memory *mem = fake((struct ckpt_fake_opts){
		.hang_at = 1, .hang_ns = 300 * MS });
	struct ckpt_err err = { 0 };
	uint64_t start = fix_now_ns();
	char to = 0;
	void *p;
	int rc, tries = 0;

	(void)state;
	ckpt_memory_set_deadline(mem, 20 * MS);
	assert_ok(ckd_alloc(mem, 100, &p, &err));
	assert_code(fix_copy(mem, p, "a", 1, &err), CKPT_EIO);
	assert_says(err, "stalled");
	ckd_free(mem, p);
	ckpt_memory_set_deadline(mem, 0);
	while ((rc = fix_copy(mem, &to, "b", 1, &err)) != 0) {
		assert_says(err, "still holds on to it");
		nanosleep(&(struct timespec){ .tv_nsec = 5 * MS }, NULL);
		tries++;
	}
	assert_true(tries > 0 || fix_now_ns() - start > 300 * MS);
	assert_int_equal(to, 'b');
	ckpt_memory_unref(mem);
}

static void options_and_rows_that_cannot_be_are_refused(void **state)
{
	struct ckpt_fake_opts old = { .size = 8 };
	struct ckpt_memory *mem;
	struct ckd_lane *lane;
	struct ckpt_err err = { 0 };
	char to[8] = { 0 };

	(void)state;
	assert_code(ckpt_memory_fake(&old, &mem, &err), CKPT_EINVAL);
	assert_null(mem);
	assert_ok(ckpt_memory_fake(NULL, &mem, &err));
	assert_ok(ckd_lane_get(mem, &lane, &err));
	assert_code(ckd_copy_2d(lane, to, 2, "abcdefgh", 4, 4, 2, &err),
		    CKPT_EINVAL);
	ckd_lane_put(lane, false);
	ckpt_memory_unref(mem);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(bytes_are_poison_before_their_event),
		cmocka_unit_test(a_lane_keeps_its_order),
		cmocka_unit_test(lanes_do_not_wait_for_each_other),
		cmocka_unit_test(it_is_as_slow_as_it_is_told),
		cmocka_unit_test(the_nth_copy_fails_and_the_next_does_not),
		cmocka_unit_test(a_device_that_is_lost_fails_every_call),
		cmocka_unit_test(other_lanes_of_a_lost_device_fail_too),
		cmocka_unit_test(a_copy_that_never_ends_meets_its_deadline),
		cmocka_unit_test(a_copy_that_ends_late_hurts_nobody),
		cmocka_unit_test(options_and_rows_that_cannot_be_are_refused),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
