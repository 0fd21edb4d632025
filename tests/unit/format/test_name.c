/* SPDX-License-Identifier: Apache-2.0 */
/* test_name.c - legal and illegal names (DESIGN 4). */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>
#include <string.h>

#include "base/limits.h"
#include "format/name.h"

static void good_names_pass(void **state)
{
	static const char *const good[] = {
		"a", "gpt2-125m/4000", "bs=8_data=[[1],[2,3]]+x?*",
		"日本/é", "a b/c:d", "x.latest", "Latest", "a.", "%41",
		"-rf", "~", "readme.txt", "x@y", "latest.1", "run/LATEST",
		"checkpoint.json", "index.db", "a\\b", "\xf4\x8f\xbf\xbf",
	};

	(void)state;
	for (size_t i = 0; i < CKB_ARRAY_LEN(good); i++)
		assert_int_equal(ckf_checkpoint_name(good[i], NULL), 0);
}

static void bad_names_say_why(void **state)
{
	static const char *const bad[] = {
		"", "/", "/a", "a/", "a//b", ".", "..", "a/..", "../x",
		".hidden", "a/.b", "@x", "a/@b", "latest", "a/newest",
		"README.txt", "a\nb", "a\x7f", "\xff", "\xc0\xaf",
		"\xed\xa0\x80", "run/latest", "latest/1", "newest",
		"a/README.txt", "README.txt/1", "a/./b", "a/../b", "...",
		"a\x1f", "\xf4\x90\x80\x80", "a\xc3", "\xe2\x82", "a/",
	};

	(void)state;
	for (size_t i = 0; i < CKB_ARRAY_LEN(bad); i++) {
		struct ckpt_err err = { 0 };

		assert_int_equal(ckf_checkpoint_name(bad[i], &err),
				 CKPT_EINVAL);
		assert_non_null(strstr(err.message, "cannot be"));
		assert_null(strchr(err.message, '\n'));
	}
}

static void lengths_are_bounded(void **state)
{
	char name[CKB_NAME_MAX + 2];

	(void)state;
	memset(name, 'a', sizeof(name));
	name[255] = '\0';
	assert_int_equal(ckf_checkpoint_name(name, NULL), 0);
	name[255] = 'a';
	name[256] = '\0';
	assert_int_equal(ckf_checkpoint_name(name, NULL), CKPT_EINVAL);
	memset(name, 'a', sizeof(name));
	for (int i = 200; i < 1024; i += 200)
		name[i] = '/';
	name[1024] = '\0';
	assert_int_equal(ckf_checkpoint_name(name, NULL), 0);
	name[1024] = 'a';
	name[1025] = '\0';
	assert_int_equal(ckf_checkpoint_name(name, NULL), CKPT_EINVAL);
}

static void items_are_one_component(void **state)
{
	static const struct {
		const char *name;
		bool origin;
		int code;
	} cases[] = {
		{ "model", false, 0 }, { "model.safetensors", false, 0 },
		{ "a b", false, 0 }, { "\xe6\x97\xa5", false, 0 },
		{ "checkpoint", false, 0 }, { "a@b", false, 0 },
		{ "@orig", true, 0 }, { "orig", true, 0 },
		{ "@orig", false, CKPT_EINVAL }, { "@", true, CKPT_EINVAL },
		{ "@@x", true, CKPT_EINVAL }, { "@.x", true, CKPT_EINVAL },
		{ "a/b", false, CKPT_EINVAL }, { "/", false, CKPT_EINVAL },
		{ "", false, CKPT_EINVAL }, { "", true, CKPT_EINVAL },
		{ ".", false, CKPT_EINVAL }, { "..", false, CKPT_EINVAL },
		{ ".x", false, CKPT_EINVAL }, { "latest", false, CKPT_EINVAL },
		{ "newest", false, CKPT_EINVAL },
		{ "README.txt", false, CKPT_EINVAL },
		{ "checkpoint.json", false, CKPT_EINVAL },
		{ "a\tb", false, CKPT_EINVAL }, { "\xc3", false, CKPT_EINVAL },
	};
	char name[CKB_ITEM_NAME_MAX + 2];

	(void)state;
	for (size_t i = 0; i < CKB_ARRAY_LEN(cases); i++) {
		struct ckpt_err err = { 0 };

		if (ckf_item_name(cases[i].name, cases[i].origin, &err) !=
		    cases[i].code)
			fail_msg("'%s': %s", cases[i].name, err.message);
		assert_null(strchr(err.message, '\n'));
	}
	memset(name, 'a', sizeof(name));
	name[CKB_ITEM_NAME_MAX] = '\0';
	assert_int_equal(ckf_item_name(name, false, NULL), 0);
	name[CKB_ITEM_NAME_MAX] = 'a';
	name[CKB_ITEM_NAME_MAX + 1] = '\0';
	assert_int_equal(ckf_item_name(name, false, NULL), CKPT_EINVAL);
}

static void tensors_take_any_utf8_up_to_64_kib(void **state)
{
	static char name[CKB_TENSOR_NAME_MAX + 1];

	(void)state;
	assert_int_equal(ckf_tensor_name("", 0, NULL), 0);
	assert_int_equal(ckf_tensor_name("a\0b", 3, NULL), 0);
	assert_int_equal(ckf_tensor_name("\xff", 1, NULL), CKPT_EINVAL);
	memset(name, 'x', sizeof(name));
	assert_int_equal(ckf_tensor_name(name, sizeof(name) - 1, NULL), 0);
	assert_int_equal(ckf_tensor_name(name, sizeof(name), NULL),
			 CKPT_ELIMIT);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(good_names_pass),
		cmocka_unit_test(bad_names_say_why),
		cmocka_unit_test(lengths_are_bounded),
		cmocka_unit_test(items_are_one_component),
		cmocka_unit_test(tensors_take_any_utf8_up_to_64_kib),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
