/* SPDX-License-Identifier: Apache-2.0 */
/* test_rename.c - a checkpoint under another name, and never lost. */
#include "unit/verbs/store_fixture.h"

#include "verbs/checkpoint.h"

static void the_name_changes_and_nothing_else(void **state)
{
	struct fix *f = *state;
	struct ckpt_err err = { 0 };

	assert_ok(fix_save(f->store, "run/x/1", 1, false, &err));
	assert_ok(ckpt_store_rename(f->store, "run/x/1", "new/deep/er", &err));
	assert_ok(fix_whole(f->store, "new/deep/er", 1, &err));
	assert_false(fix_there(f, "checkpoints/run"));
	assert_int_equal(fix_count(f->store, "staging"), 0);
	assert_ok(ckpt_store_rename(f->store, "new/deep/er", "top", &err));
	assert_ok(fix_whole(f->store, "top", 1, &err));
	assert_false(fix_there(f, "checkpoints/new"));
}

static void nothing_is_ever_replaced(void **state)
{
	struct fix *f = *state;
	struct ckpt_err err = { 0 };

	assert_ok(fix_save(f->store, "a", 1, false, &err));
	assert_ok(fix_save(f->store, "b", 2, false, &err));
	assert_ok(fix_save(f->store, "run/1", 3, false, &err));
	assert_code(ckpt_store_rename(f->store, "a", "b", &err), CKPT_EEXIST);
	assert_says(err, "'b' exists");
	assert_code(ckpt_store_rename(f->store, "a", "a", &err), CKPT_EEXIST);
	assert_code(ckpt_store_rename(f->store, "a", "run", &err),
		    CKPT_EEXIST);
	assert_says(err, "run");
	assert_code(ckpt_store_rename(f->store, "a", "b/c", &err),
		    CKPT_EEXIST);
	assert_says(err, "b/c");
	assert_code(ckpt_store_rename(f->store, "run", "c", &err),
		    CKPT_ENOENT);
	assert_code(ckpt_store_rename(f->store, "nope", "c", &err),
		    CKPT_ENOENT);
	assert_code(ckpt_store_rename(f->store, "a", "x/../c", &err),
		    CKPT_EINVAL);
	assert_code(ckpt_store_rename(f->store, "a", "newest", &err),
		    CKPT_EINVAL);
	assert_ok(fix_whole(f->store, "a", 1, &err));
	assert_ok(fix_whole(f->store, "b", 2, &err));
	assert_ok(fix_whole(f->store, "run/1", 3, &err));
	assert_int_equal(fix_count(f->store, "staging"), 0);
}

/* Killed between link and unlink: two names of one file. */
static void an_interrupted_one_is_finished(void **state)
{
	struct fix *f = *state;
	struct ckpt_err err = { 0 };

	assert_ok(fix_save(f->store, "a", 1, false, &err));
	assert_int_equal(link(fix_at(f, "checkpoints/a"),
			      fix_at(f, "checkpoints/b")), 0);
	assert_ok(ckpt_store_rename(f->store, "a", "b", &err));
	assert_ok(fix_whole(f->store, "b", 1, &err));
	assert_false(fix_there(f, "checkpoints/a"));
}

/* S8: gc that did not see us may not lose what it is about to remove. */
/* A link on the way, a mount or a file system that knows no case: the new name
 * is the old one, and taking that away would take the last. */
static void another_spelling_of_its_name_is_no_new_name(void **state)
{
	struct fix *f = *state;
	struct ckpt_err err = { 0 };

	assert_ok(fix_save(f->store, "run/a", 1, false, &err));
	assert_int_equal(symlink("run", fix_at(f, "checkpoints/now")), 0);
	assert_code(ckpt_store_rename(f->store, "run/a", "now/a", &err),
		    CKPT_EEXIST);
	assert_says(err, "is the same name");
	assert_ok(fix_whole(f->store, "run/a", 1, &err));
	assert_int_equal(fix_count(f->store, "staging"), 0);
}

static void what_gc_condemned_is_not_renamed_or_forked(void **state)
{
	struct fix *f = *state;
	struct ckpt_checkpoint *c;
	struct ckpt_err err = { 0 };
	char text[CKB_UUID_TEXT_BYTES + 1];

	assert_ok(fix_save(f->store, "a", 1, false, &err));
	assert_ok(ckpt_checkpoint_open(f->store, "a", &c, &err));
	ckb_uuid_text(text, cks_checkpoint_pack(c, 0));
	ckpt_checkpoint_close(c);
	strcat(text, "\n");
	fix_put(f, "condemned/1", text);
	assert_code(ckpt_store_rename(f->store, "a", "b", &err), CKPT_EBUSY);
	assert_says(err, "gc");
	assert_code(ckpt_store_fork(f->store, "a", "b", NULL, &err),
		    CKPT_EBUSY);
	assert_ok(fix_whole(f->store, "a", 1, &err));
	assert_false(fix_there(f, "checkpoints/b"));
	assert_int_equal(unlink(fix_at(f, "condemned/1")), 0);
	assert_ok(ckpt_store_rename(f->store, "a", "b", &err));
}

#define TEST(name) \
	cmocka_unit_test_setup_teardown(name, fix_setup, fix_teardown)

int main(void)
{
	const struct CMUnitTest tests[] = {
		TEST(the_name_changes_and_nothing_else),
		TEST(nothing_is_ever_replaced),
		TEST(an_interrupted_one_is_finished),
		TEST(another_spelling_of_its_name_is_no_new_name),
		TEST(what_gc_condemned_is_not_renamed_or_forked),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
