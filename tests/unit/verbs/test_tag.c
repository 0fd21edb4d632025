/* SPDX-License-Identifier: Apache-2.0 */
/* test_tag.c - tags name a checkpoint by its uuid, whatever it is called. */
#include "unit/verbs/store_fixture.h"

static int take(void *ctx, const struct ckpt_tag *t)
{
	char *text = ctx;
	size_t len = strlen(text);

	snprintf(text + len, 300 - len, "%s=%s ", t->name,
		 t->checkpoint ? t->checkpoint : "-");
	return 0;
}

static const char *tags(struct fix *f)
{
	static char text[300];
	struct ckpt_err err = { 0 };

	text[0] = '\0';
	assert_ok(ckpt_tag_list(f->store, take, text, &err));
	return text;
}

static void a_tag_follows_its_checkpoint(void **state)
{
	struct fix *f = *state;
	struct ckpt_err err = { 0 };
	char *name;

	assert_string_equal(tags(f), "");
	assert_ok(fix_save(f->store, "a", 1, false, &err));
	assert_ok(fix_save(f->store, "b", 2, false, &err));
	assert_ok(ckpt_tag_set(f->store, "best", "a", &err));
	assert_ok(ckpt_tag_set(f->store, "also", "a", &err));
	assert_string_equal(tags(f), "also=a best=a ");
	assert_ok(ckpt_tag_set(f->store, "best", "b", &err)); /* anew */
	assert_string_equal(tags(f), "also=a best=b ");
	/* renamed by the verb, and by hand */
	assert_ok(ckpt_store_rename(f->store, "b", "run/b", &err));
	assert_int_equal(rename(fix_at(f, "checkpoints/a"),
				fix_at(f, "checkpoints/z")), 0);
	assert_string_equal(tags(f), "also=z best=run/b ");
	assert_ok(ckpt_tag_get(f->store, "best", &name, &err));
	assert_string_equal(name, "run/b");
	free(name);
	/* another checkpoint under the old name is not what was tagged */
	assert_int_equal(unlink(fix_at(f, "checkpoints/z")), 0);
	assert_ok(fix_save(f->store, "z", 3, false, &err));
	assert_ok(fix_save(f->store, "a", 4, false, &err));
	assert_string_equal(tags(f), "also=- best=run/b ");
	assert_code(ckpt_tag_get(f->store, "also", &name, &err), CKPT_ENOENT);
	assert_says(err, "gone");
	assert_ok(ckpt_tag_remove(f->store, "also", &err));
	assert_code(ckpt_tag_remove(f->store, "also", &err), CKPT_ENOENT);
	assert_string_equal(tags(f), "best=run/b ");
	/* damage is no end of it, under the name that was tagged */
	assert_ok(ckpt_tag_set(f->store, "best", "run/b", &err));
	fix_put(f, "checkpoints/run/b", "rubbish");
	assert_string_equal(tags(f), "best=run/b ");
	assert_ok(ckpt_tag_get(f->store, "best", &name, &err));
	assert_string_equal(name, "run/b");
	free(name);
}

static void what_is_no_tag_is_refused(void **state)
{
	static const char *const bad[] = { "", ".", "..", ".x", "@x", "a/b",
					   "newest", "a\nb", "\xff" };
	struct fix *f = *state;
	struct ckpt_err err = { 0 };
	char *name;

	assert_ok(fix_save(f->store, "a", 1, false, &err));
	assert_ok(fix_save(f->store, "run/1", 2, false, &err));
	for (size_t i = 0; i < CKB_ARRAY_LEN(bad); i++) {
		assert_code(ckpt_tag_set(f->store, bad[i], "a", &err),
			    CKPT_EINVAL);
		assert_code(ckpt_tag_get(f->store, bad[i], &name, &err),
			    CKPT_EINVAL);
		assert_code(ckpt_tag_remove(f->store, bad[i], &err),
			    CKPT_EINVAL);
	}
	assert_code(ckpt_tag_set(f->store, "t", "nope", &err), CKPT_ENOENT);
	assert_code(ckpt_tag_set(f->store, "t", "run", &err), CKPT_ENOENT);
	assert_code(ckpt_tag_get(f->store, "t", &name, &err), CKPT_ENOENT);
	assert_int_equal(fix_count(f->store, "tags"), 0);
}

static void damage_is_said_and_passed_over(void **state)
{
	static const char *const bad[] = {
		"", "x", "00000000-0000-4000-8000-000000000000 a",
		"00000000-0000-4000-8000-000000000000 ../x\n",
		"00000000-0000-4000-8000-00000000000g a\n",
		"00000000-0000-4000-8000-000000000000a\n",
	};
	struct fix *f = *state;
	struct ckpt_err err = { 0 };
	char *name;

	assert_ok(fix_save(f->store, "a", 1, false, &err));
	assert_ok(ckpt_tag_set(f->store, "good", "a", &err));
	for (size_t i = 0; i < CKB_ARRAY_LEN(bad); i++) {
		fix_put(f, "tags/bad", bad[i]);
		assert_string_equal(tags(f), "good=a ");
		assert_code(ckpt_tag_get(f->store, "bad", &name, &err),
			    CKPT_ECORRUPT);
	}
	fix_put(f, "tags/.new-0011", "half"); /* left by a crash */
	assert_string_equal(tags(f), "good=a ");
	assert_ok(ckpt_tag_set(f->store, "bad", "a", &err)); /* set again */
	assert_string_equal(tags(f), "bad=a good=a ");
}

static void a_copy_without_empty_folders_has_none(void **state)
{
	struct fix *f = *state;
	struct ckpt_err err = { 0 };

	assert_ok(fix_save(f->store, "a", 1, false, &err));
	assert_int_equal(rmdir(fix_at(f, "tags")), 0);
	assert_string_equal(tags(f), "");
	assert_ok(ckpt_tag_set(f->store, "t", "a", &err));
	assert_string_equal(tags(f), "t=a ");
}

#define TEST(name) \
	cmocka_unit_test_setup_teardown(name, fix_setup, fix_teardown)

int main(void)
{
	const struct CMUnitTest tests[] = {
		TEST(a_tag_follows_its_checkpoint),
		TEST(what_is_no_tag_is_refused),
		TEST(damage_is_said_and_passed_over),
		TEST(a_copy_without_empty_folders_has_none),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
