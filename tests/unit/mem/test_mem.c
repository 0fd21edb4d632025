/* SPDX-License-Identifier: Apache-2.0 */
/*
 * test_mem.c - tables, references, staging memory, and what is said of a
 * kind's failures.
 */
#include "mem_fixture.h"

static void a_table_that_lacks_calls_is_refused(void **state)
{
	static const struct {
		size_t off;
		const char *says;
	} needed[] = {
#define OFF(member) offsetof(struct ckpt_memory_ops, member)
		{ OFF(lane_open), "lane_open" },
		{ OFF(lane_close), "lane_close" },
		{ OFF(copy_2d), "copy_2d" },
		{ OFF(record), "record" },
		{ OFF(wait), "wait" },
		{ OFF(alloc), "alloc and free" },
		{ OFF(free), "alloc and free" },
		{ OFF(ready_open), "ready_open" },
		{ OFF(follow), "follow" },
		{ OFF(ready_close), "ready_close" },
	};
	struct ckpt_memory *mem;
	struct toy t = { 0 };

	(void)state;
	for (size_t i = 0; i < CKB_ARRAY_LEN(needed); i++) {
		struct ckpt_memory_ops ops = toy_ops;
		struct ckpt_err err = { 0 };

		memset((char *)&ops + needed[i].off, 0, sizeof(ops.wait));
		assert_code(ckpt_memory_new("x", &ops, &t, &mem, &err),
			    CKPT_EINVAL);
		assert_says(err, needed[i].says);
		assert_null(mem);
	}
	assert_int_equal(t.closed, 0);
}

static void a_shorter_table_lacks_what_came_later(void **state)
{
	struct ckpt_memory_ops ops = toy_ops;
	struct ckpt_memory *mem;
	struct ckpt_err err = { 0 };
	struct toy t = { 0 };
	uint8_t from[4] = "abc", to[4];
	void *ready;

	(void)state;
	ops.size = offsetof(struct ckpt_memory_ops, ready_open);
	assert_ok(ckpt_memory_new("old", &ops, &t, &mem, &err));
	assert_ok(fix_copy(mem, to, from, 4, &err));
	assert_code(ckd_ready_open(mem, to, &ready, &err), CKPT_EINVAL);
	assert_says(err, "'old' has no streams");
	ckpt_memory_unref(mem);
	assert_int_equal(t.closed, 0);
	assert_int_equal(t.open, 0);
	ops.size = 0;
	assert_code(ckpt_memory_new("none", &ops, &t, &mem, &err),
		    CKPT_EINVAL);
}

static void the_last_reference_ends_it(void **state)
{
	struct toy t = { 0 };
	struct ckpt_memory *mem = toy_new(&t);
	struct ckpt_err err = { 0 };
	char byte;

	(void)state;
	assert_string_equal(ckpt_memory_name(mem), "toy");
	assert_false(ckd_is_host(mem));
	assert_ptr_equal(ckpt_memory_ref(mem), mem);
	assert_ok(fix_copy(mem, &byte, "x", 1, &err));
	ckpt_memory_unref(mem);
	assert_int_equal(t.closed, 0);
	ckpt_memory_unref(mem);
	assert_int_equal(t.closed, 1);
	assert_int_equal(t.open, 0);
	ckpt_memory_unref(NULL);
}

static void staging_memory_is_known_by_address(void **state)
{
	struct toy t = { 0 };
	struct ckpt_memory *mem = toy_new(&t);
	struct ckpt_err err = { 0 };
	char other;
	void *p, *q;

	(void)state;
	assert_ok(ckd_alloc(mem, 8192, &p, &err));
	assert_ok(ckd_alloc(mem, 100, &q, &err));
	assert_int_equal((uintptr_t)p % 4096, 0);
	assert_true(ckd_is_staging(mem, p, 8192));
	assert_true(ckd_is_staging(mem, (char *)p + 8191, 1));
	assert_false(ckd_is_staging(mem, (char *)p + 8191, 2));
	assert_false(ckd_is_staging(mem, (char *)p, SIZE_MAX));
	assert_true(ckd_is_staging(mem, q, 100));
	assert_false(ckd_is_staging(mem, &other, 1));
	ckd_free(mem, p);
	assert_int_equal(t.staged, 1);
	assert_false(ckd_is_staging(mem, p, 1));
	ckd_free(mem, NULL);
	ckpt_memory_unref(mem); /* with what was not freed */
	assert_int_equal(t.staged, 0);
}

static void staging_memory_is_bounded(void **state)
{
	struct toy t = { 0 };
	struct ckpt_memory *mem = toy_new(&t);
	struct ckpt_err err = { 0 };
	void *p;

	(void)state;
	for (size_t i = 0; i < CKB_SLAB_MAX; i++)
		assert_ok(ckd_alloc(mem, 1, &p, &err));
	void *last = p;

	assert_code(ckd_alloc(mem, 1, &p, &err), CKPT_ELIMIT);
	assert_null(p);
	ckd_free(mem, last);
	assert_ok(ckd_alloc(mem, 1, &p, &err));
	ckpt_memory_unref(mem);
}

static void a_kind_without_alloc_gets_plain_memory(void **state)
{
	struct ckpt_memory_ops ops = toy_ops;
	struct ckpt_memory *mem;
	struct ckpt_err err = { 0 };
	struct toy t = { 0 };
	void *p;

	(void)state;
	ops.alloc = NULL;
	ops.free = NULL;
	assert_ok(ckpt_memory_new("plain", &ops, &t, &mem, &err));
	assert_ok(ckd_alloc(mem, 5000, &p, &err));
	assert_int_equal((uintptr_t)p % 4096, 0);
	memset(p, 1, 5000);
	ckd_free(mem, p);
	ckpt_memory_unref(mem);
}

/* What a kind answers, and what of it is passed on. */
static void a_failure_carries_the_device_and_a_code_of_ours(void **state)
{
	static const struct {
		int rc;
		const char *says;
		int want;
		const char *message;
	} cases[] = {
		{ CKPT_ENOMEM, "no pinned memory is left", CKPT_ENOMEM,
		  "device 'toy': no pinned memory is left" },
		{ CKPT_EUNSURE, "odd", CKPT_EIO, "device 'toy': odd" },
		{ -999, NULL, CKPT_EIO,
		  "device 'toy' failed (-999) and does not say why" },
		{ 1, "positive", CKPT_EIO, "device 'toy': positive" },
	};

	(void)state;
	for (size_t i = 0; i < CKB_ARRAY_LEN(cases); i++) {
		struct toy t = { .alloc_rc = cases[i].rc,
				 .says = cases[i].says, .sys_errno = E2BIG };
		struct ckpt_memory *mem = toy_new(&t);
		struct ckpt_err err = { 0 };
		void *p = &t;

		assert_code(ckd_alloc(mem, 10, &p, &err), cases[i].want);
		assert_string_equal(err.message, cases[i].message);
		assert_null(p);
		assert_int_equal(err.code, cases[i].want);
		if (cases[i].says)
			assert_int_equal(err.sys_errno, E2BIG);
		assert_true(ckd_alloc(mem, 10, &p, NULL) < 0);
		ckpt_memory_unref(mem);
	}
}

static void a_lost_device_stays_lost(void **state)
{
	struct toy t = { .alloc_rc = CKPT_EIO, .sys_errno = ENODEV,
			 .says = "an uncorrectable error" };
	struct ckpt_memory *mem = toy_new(&t);
	struct ckpt_err err = { 0 };
	struct ckd_lane *lane;
	void *p;

	(void)state;
	assert_code(ckd_alloc(mem, 10, &p, &err), CKPT_EIO);
	t = (struct toy){ .says = "not asked" }; /* well again, it says */
	for (int i = 0; i < 3; i++) {
		err = (struct ckpt_err){ 0 };
		int rc = i == 0 ? ckd_alloc(mem, 10, &p, &err)
		       : i == 1 ? ckd_lane_get(mem, &lane, &err)
				: ckd_ready_open(mem, &t, &p, &err);

		assert_int_equal(rc, CKPT_EIO);
		assert_int_equal(err.sys_errno, ENODEV);
		assert_string_equal(err.message, "device 'toy' is lost: an "
						 "uncorrectable error");
	}
	assert_int_equal(t.opened, 0);
	ckpt_memory_unref(mem);
	assert_int_equal(t.closed, 1);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(a_table_that_lacks_calls_is_refused),
		cmocka_unit_test(a_shorter_table_lacks_what_came_later),
		cmocka_unit_test(the_last_reference_ends_it),
		cmocka_unit_test(staging_memory_is_known_by_address),
		cmocka_unit_test(staging_memory_is_bounded),
		cmocka_unit_test(a_kind_without_alloc_gets_plain_memory),
		cmocka_unit_test(
			a_failure_carries_the_device_and_a_code_of_ours),
		cmocka_unit_test(a_lost_device_stays_lost),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
