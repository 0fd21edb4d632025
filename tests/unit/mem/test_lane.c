/* SPDX-License-Identifier: Apache-2.0 */
/*
 * test_lane.c - the pool of lanes: who gets one, what becomes of one that
 * failed, and of memory that a device may still write to.
 */
#include "mem_fixture.h"

static void a_thread_gets_its_lane_again(void **state)
{
	struct toy t = { 0 };
	struct ckpt_memory *mem = toy_new(&t);
	struct ckd_lane *lane, *first;
	struct ckpt_err err = { 0 };

	(void)state;
	assert_ok(ckd_lane_get(mem, &first, &err));
	ckd_lane_put(first, true);
	for (int i = 0; i < 100; i++) {
		assert_ok(ckd_lane_get(mem, &lane, &err));
		assert_ptr_equal(lane, first);
		ckd_lane_put(lane, true);
	}
	assert_int_equal(t.opened, 1);
	ckpt_memory_unref(mem);
}

static void lanes_are_few_and_waited_for(void **state)
{
	struct toy t = { 0 };
	struct ckpt_memory *mem = toy_new(&t);
	struct ckd_lane *lanes[CKB_LANE_MAX], *more;
	struct ckpt_err err = { 0 };

	(void)state;
	for (size_t i = 0; i < CKB_LANE_MAX; i++) {
		assert_ok(ckd_lane_get(mem, &lanes[i], &err));
		for (size_t k = 0; k < i; k++)
			assert_ptr_not_equal(lanes[i], lanes[k]);
	}
	ckpt_memory_set_deadline(mem, 20 * MS);
	uint64_t from = fix_now_ns();

	assert_code(ckd_lane_get(mem, &more, &err), CKPT_EIO);
	assert_true(fix_now_ns() - from >= 20 * MS);
	assert_null(more);
	assert_says(err, "no lane came free within 20 ms");
	assert_int_equal(err.sys_errno, ETIMEDOUT);
	ckd_lane_put(lanes[7], true);
	assert_ok(ckd_lane_get(mem, &more, &err));
	assert_ptr_equal(more, lanes[7]);
	for (size_t i = 0; i < CKB_LANE_MAX; i++)
		ckd_lane_put(lanes[i], true);
	assert_int_equal(t.opened, CKB_LANE_MAX);
	ckpt_memory_unref(mem);
	assert_int_equal(t.open, 0);
}

static void what_is_queued_is_bounded(void **state)
{
	struct toy t = { 0 };
	struct ckpt_memory *mem = toy_new(&t);
	struct ckd_lane *lane;
	struct ckpt_err err = { 0 };
	uint8_t from[200], to[200];

	(void)state;
	for (int i = 0; i < 200; i++)
		from[i] = (uint8_t)i;
	assert_ok(ckd_lane_get(mem, &lane, &err));
	for (int i = 0; i < 200; i++)
		assert_ok(ckd_copy_2d(lane, to + i, 1, from + i, 1, 1, 1,
				      &err));
	assert_int_equal(t.unwaited_max, CKPT_MEMORY_QUEUE);
	assert_memory_equal(from, to, 200);
	ckd_lane_put(lane, true);
	ckpt_memory_unref(mem);
}

static void a_lane_that_failed_is_made_anew(void **state)
{
	struct toy t = { .says = "no", .sys_errno = EFAULT };
	struct ckpt_memory *mem = toy_new(&t);
	struct ckpt_err err = { 0 };
	char byte = 0;
	int *const fails[] = { &t.copy_rc, &t.record_rc, &t.wait_rc };

	(void)state;
	for (size_t i = 0; i < CKB_ARRAY_LEN(fails); i++) {
		*fails[i] = CKPT_EIO;
		assert_code(fix_copy(mem, &byte, "x", 1, &err), CKPT_EIO);
		assert_string_equal(err.message, "device 'toy': no");
		assert_int_equal(t.open, 0);
		*fails[i] = 0;
		assert_ok(fix_copy(mem, &byte, "x", 1, &err));
		assert_int_equal(t.opened, i + 2);
	}
	t.lane_open_rc = CKPT_ENOMEM;
	t.wait_rc = CKPT_EIO;
	assert_code(fix_copy(mem, &byte, "x", 1, &err), CKPT_EIO);
	for (size_t i = 0; i < 2 * CKB_LANE_MAX; i++) /* no lane is lost */
		assert_code(fix_copy(mem, &byte, "x", 1, &err), CKPT_ENOMEM);
	t.lane_open_rc = t.wait_rc = 0;
	assert_ok(fix_copy(mem, &byte, "x", 1, &err));
	ckpt_memory_unref(mem);
}

static void a_stalled_lane_costs_one_deadline(void **state)
{
	struct toy t = { .wait_rc = CKPT_EBUSY, .keep = 3 };
	struct ckpt_memory *mem = toy_new(&t);
	struct ckpt_err err = { 0 };
	char byte = 0;

	(void)state;
	ckpt_memory_set_deadline(mem, 2000 * MS);
	assert_code(fix_copy(mem, &byte, "x", 1, &err), CKPT_EIO);
	assert_string_equal(err.message, "device 'toy' stalled: a copy did "
					 "not end within 2 s");
	assert_int_equal(err.sys_errno, ETIMEDOUT);
	t.wait_rc = 0;
	for (int i = 0; i < 2; i++) { /* the device still has it */
		assert_code(fix_copy(mem, &byte, "x", 1, &err), CKPT_EIO);
		assert_says(err, "still holds on to it");
		assert_int_equal(t.opened, 1);
	}
	assert_ok(fix_copy(mem, &byte, "x", 1, &err));
	assert_int_equal(t.opened, 2);
	assert_int_equal(t.open, 1);
	ckpt_memory_unref(mem);
	assert_int_equal(t.open, 0);
}

static void memory_is_kept_while_a_device_may_write_to_it(void **state)
{
	struct toy t = { .wait_rc = CKPT_EBUSY, .keep = 2 };
	struct ckpt_memory *mem = toy_new(&t);
	struct ckpt_err err = { 0 };
	void *p, *q;
	char byte = 0;

	(void)state;
	assert_ok(ckd_alloc(mem, 100, &p, &err));
	assert_ok(ckd_alloc(mem, 100, &q, &err));
	assert_code(fix_copy(mem, p, "x", 1, &err), CKPT_EIO);
	t.wait_rc = 0;
	ckd_free(mem, p);
	assert_int_equal(t.staged, 2);
	assert_code(fix_copy(mem, &byte, "x", 1, &err), CKPT_EIO);
	assert_int_equal(t.staged, 2);
	assert_ok(fix_copy(mem, &byte, "x", 1, &err)); /* it let go */
	assert_int_equal(t.staged, 1);
	ckd_free(mem, q);
	assert_int_equal(t.staged, 0);
	ckpt_memory_unref(mem);
}

static struct ckpt_memory *left; /* reachable: a leak on purpose */

static void memory_that_never_comes_free_is_left_to_the_device(void **state)
{
	static struct toy t = { .wait_rc = CKPT_EBUSY, .keep = 1000 };
	struct ckpt_err err = { 0 };
	void *p;

	(void)state;
	left = toy_new(&t);
	assert_ok(ckd_alloc(left, 100, &p, &err));
	assert_code(fix_copy(left, p, "x", 1, &err), CKPT_EIO);
	ckpt_memory_unref(left);
	assert_int_equal(t.staged, 1);
	assert_int_equal(t.closed, 0);
}

static void a_lane_has_memory_of_its_own(void **state)
{
	struct toy t = { 0 };
	struct ckpt_memory *mem = toy_new(&t);
	struct ckd_lane *lane;
	struct ckpt_err err = { 0 };
	uint8_t *a, *b;

	(void)state;
	assert_ok(ckd_lane_get(mem, &lane, &err));
	assert_ok(ckd_bounce(lane, &a, &err));
	assert_ok(ckd_bounce(lane, &b, &err));
	assert_ptr_equal(a, b);
	assert_true(ckd_is_staging(mem, a, CKB_BOUNCE_BYTES));
	ckd_lane_put(lane, false); /* closed; its memory stays */
	assert_ok(ckd_lane_get(mem, &lane, &err));
	assert_ok(ckd_bounce(lane, &b, &err));
	assert_ptr_equal(a, b);
	assert_int_equal(t.opened, 2);
	ckd_lane_put(lane, true);
	ckpt_memory_unref(mem);
	assert_int_equal(t.staged, 0);
}

/* ---- many threads ---- */

struct crowd {
	struct ckpt_memory *mem;
	atomic_int failed;
};

static void *copy_often(void *arg)
{
	struct crowd *c = arg;
	struct ckpt_err err;

	for (uint32_t i = 0; i < 300; i++) {
		uint32_t to = 0;

		if (fix_copy(c->mem, &to, &i, sizeof(i), &err) != 0 ||
		    to != i)
			c->failed++;
	}
	return NULL;
}

static void many_threads_share_few_lanes(void **state)
{
	struct toy t = { 0 };
	struct crowd c = { .mem = toy_new(&t) };
	pthread_t threads[2 * CKB_LANE_MAX];

	(void)state;
	for (size_t i = 0; i < CKB_ARRAY_LEN(threads); i++)
		assert_int_equal(pthread_create(&threads[i], NULL, copy_often,
						&c), 0);
	for (size_t i = 0; i < CKB_ARRAY_LEN(threads); i++)
		pthread_join(threads[i], NULL);
	assert_int_equal(c.failed, 0);
	assert_true(t.opened <= CKB_LANE_MAX);
	ckpt_memory_unref(c.mem);
	assert_int_equal(t.open, 0);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(a_thread_gets_its_lane_again),
		cmocka_unit_test(lanes_are_few_and_waited_for),
		cmocka_unit_test(what_is_queued_is_bounded),
		cmocka_unit_test(a_lane_that_failed_is_made_anew),
		cmocka_unit_test(a_stalled_lane_costs_one_deadline),
		cmocka_unit_test(memory_is_kept_while_a_device_may_write_to_it),
		cmocka_unit_test(
			memory_that_never_comes_free_is_left_to_the_device),
		cmocka_unit_test(a_lane_has_memory_of_its_own),
		cmocka_unit_test(many_threads_share_few_lanes),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
