/* SPDX-License-Identifier: Apache-2.0 */
/*
 * test_module.c - memory by name. $CKPT_MODULE_DIR has a module that works
 * (echo), a library that is none (empty) and a file that is no library (text).
 */
#include "mem_fixture.h"

static void a_module_is_loaded_by_its_name(void **state)
{
	static const char *const names[] = { "echo:0", "echo", "echo:gpu/7" };
	struct ckpt_memory *mem;
	struct ckpt_err err = { 0 };
	char from[] = "abcdef", to[7] = { 0 };

	(void)state;
	for (size_t i = 0; i < CKB_ARRAY_LEN(names); i++) {
		assert_ok(ckpt_memory_open(names[i], &mem, &err));
		assert_string_equal(ckpt_memory_name(mem), names[i]);
		assert_ok(fix_copy(mem, to, from, 7, &err));
		assert_string_equal(to, "abcdef");
		ckpt_memory_unref(mem);
	}
}

static void the_host_needs_no_module(void **state)
{
	struct ckpt_memory *mem;
	struct ckpt_err err = { 0 };

	(void)state;
	assert_ok(ckpt_memory_open("host", &mem, &err));
	assert_true(ckd_is_host(mem));
	ckpt_memory_unref(mem);
}

static void what_cannot_be_opened_says_why(void **state)
{
	static const struct {
		const char *name;
		int code;
		const char *says;
	} cases[] = {
		{ "", CKPT_EINVAL, "names no memory" },
		{ ":0", CKPT_EINVAL, "names no memory" },
		{ "host:1", CKPT_EINVAL, "names no memory" },
		{ "../echo:0", CKPT_EINVAL, "names no memory" },
		{ "a/b", CKPT_EINVAL, "names no memory" },
		{ "abcdefghijklmnopqrstuvwxyzabcdefghijklm:0", CKPT_EINVAL,
		  "names no memory" },
		{ "absent:0", CKPT_ENOENT, "no module 'ckpt_absent.so' in" },
		{ "empty:0", CKPT_EVERSION, "ckpt_memory_module_1" },
		{ "text:0", CKPT_EIO, "does not load" },
		{ "echo:gone", CKPT_ENOENT,
		  "memory 'echo:gone': there is no such device" },
		{ "echo:lacking", CKPT_EINVAL, "copy_2d" },
	};
	struct ckpt_memory *mem;

	(void)state;
	for (size_t i = 0; i < CKB_ARRAY_LEN(cases); i++) {
		struct ckpt_err err = { 0 };

		assert_code(ckpt_memory_open(cases[i].name, &mem, &err),
			    cases[i].code);
		assert_says(err, cases[i].says);
		assert_null(mem);
		assert_int_equal(ckpt_memory_open(cases[i].name, &mem, NULL),
				 cases[i].code);
	}
}

/* Where the folder that is asked for lacks it, others are looked in. */
static void all_places_are_named(void **state)
{
	struct ckpt_memory *mem;
	struct ckpt_err err = { 0 };

	(void)state;
	assert_code(ckpt_memory_open("absent:0", &mem, &err), CKPT_ENOENT);
	assert_says(err, getenv("CKPT_MODULE_DIR"));
	assert_says(err, CKPT_MODULE_DIR);
	unsetenv("CKPT_MODULE_DIR");
	/* the test's own folder, which is the modules' */
	assert_ok(ckpt_memory_open("echo:0", &mem, &err));
	ckpt_memory_unref(mem);
}

static int check_environment(void **state)
{
	(void)state;
	return getenv("CKPT_MODULE_DIR") ? 0 : -1;
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(a_module_is_loaded_by_its_name),
		cmocka_unit_test(the_host_needs_no_module),
		cmocka_unit_test(what_cannot_be_opened_says_why),
		cmocka_unit_test(all_places_are_named),
	};

	return cmocka_run_group_tests(tests, check_environment, NULL);
}
