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
		"-rf", "~", "readme.txt",
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
		"\xed\xa0\x80",
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
	(void)state;
	assert_int_equal(ckf_item_name("model", false, NULL), 0);
	assert_int_equal(ckf_item_name("@orig", true, NULL), 0);
	assert_int_equal(ckf_item_name("@orig", false, NULL), CKPT_EINVAL);
	assert_int_equal(ckf_item_name("a/b", false, NULL), CKPT_EINVAL);
	assert_int_equal(ckf_item_name("checkpoint.json", false, NULL),
			 CKPT_EINVAL);
	assert_int_equal(ckf_item_name("", false, NULL), CKPT_EINVAL);
	assert_int_equal(ckf_item_name("@", true, NULL), CKPT_EINVAL);
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
