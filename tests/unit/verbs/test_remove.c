/* SPDX-License-Identifier: Apache-2.0 */
/* test_remove.c - a checkpoint is removed, and nothing besides it. */
#include "unit/verbs/store_fixture.h"

static void only_the_manifest_and_empty_runs_go(void **state)
{
	struct fix *f = *state;
	struct ckpt_err err = { 0 };

	assert_ok(fix_save(f->store, "a", 1, false, &err));
	assert_ok(fix_save(f->store, "run/x/1", 2, false, &err));
	assert_ok(fix_save(f->store, "run/2", 3, false, &err));
	int packs = fix_count(f->store, "packs");

	assert_ok(ckpt_store_remove(f->store, "run/x/1", false, &err));
	assert_false(fix_there(f, "checkpoints/run/x"));
	assert_ok(fix_whole(f->store, "a", 1, &err));
	assert_ok(fix_whole(f->store, "run/2", 3, &err));
	assert_ok(ckpt_store_remove(f->store, "run/2", false, &err));
	assert_false(fix_there(f, "checkpoints/run"));
	assert_ok(ckpt_store_remove(f->store, "a", false, &err));
	assert_true(fix_there(f, "checkpoints"));
	assert_int_equal(fix_count(f->store, "packs"), packs);
	/* and the store is as good as new */
	assert_ok(fix_save(f->store, "run/x/1", 4, false, &err));
}

static void what_is_no_checkpoint_is_refused(void **state)
{
	struct fix *f = *state;
	struct ckpt_err err = { 0 };

	assert_ok(fix_save(f->store, "run/1", 1, false, &err));
	assert_code(ckpt_store_remove(f->store, "nope", false, &err),
		    CKPT_ENOENT);
	assert_says(err, "no checkpoint 'nope'");
	assert_code(ckpt_store_remove(f->store, "run", false, &err),
		    CKPT_EINVAL);
	assert_says(err, "run");
	assert_code(ckpt_store_remove(f->store, "run/1/deeper", false, &err),
		    CKPT_ENOENT);
	assert_code(ckpt_store_remove(f->store, "../ckptfs.json", true, &err),
		    CKPT_EINVAL);
	assert_int_equal(symlink("/etc", fix_at(f, "checkpoints/link")), 0);
	assert_code(ckpt_store_remove(f->store, "link/passwd", true, &err),
		    CKPT_ENOENT);
	assert_code(ckpt_store_remove(f->store, "link", true, &err),
		    CKPT_ENOENT);
	assert_ok(fix_whole(f->store, "run/1", 1, &err));
}

static void a_damaged_one_can_be_removed(void **state)
{
	struct fix *f = *state;
	struct ckpt_err err = { 0 };

	assert_ok(fix_save(f->store, "a", 1, false, &err));
	assert_ok(ckpt_tag_set(f->store, "best", "a", &err));
	fix_put(f, "checkpoints/a", "rubbish");
	assert_code(ckpt_store_remove(f->store, "a", false, &err), CKPT_EBUSY);
	assert_ok(ckpt_store_remove(f->store, "a", true, &err));
	assert_false(fix_there(f, "checkpoints/a"));
	assert_false(fix_there(f, "tags/best"));
}

static void a_tag_protects_until_it_is_forced(void **state)
{
	struct fix *f = *state;
	struct ckpt_err err = { 0 };

	assert_ok(fix_save(f->store, "a", 1, false, &err));
	assert_ok(fix_save(f->store, "b", 2, false, &err));
	assert_ok(ckpt_tag_set(f->store, "best", "a", &err));
	assert_ok(ckpt_tag_set(f->store, "other", "b", &err));
	/* under another name it is still that checkpoint */
	assert_ok(ckpt_store_rename(f->store, "a", "run/a", &err));
	assert_code(ckpt_store_remove(f->store, "run/a", false, &err),
		    CKPT_EBUSY);
	assert_says(err, "'best'");
	assert_ok(fix_whole(f->store, "run/a", 1, &err));
	assert_ok(ckpt_store_remove(f->store, "run/a", true, &err));
	assert_false(fix_there(f, "tags/best"));
	assert_true(fix_there(f, "tags/other"));
	/* a new checkpoint of the old name has no tag */
	assert_ok(fix_save(f->store, "a", 3, false, &err));
	assert_ok(ckpt_store_remove(f->store, "a", false, &err));
}

/* What was renamed is found by the uuid inside it: damaged, it may have any tag
 * of nothing. */
static void a_tag_protects_a_damaged_one_of_another_name(void **state)
{
	struct fix *f = *state;
	struct ckpt_err err = { 0 };

	assert_ok(fix_save(f->store, "a", 1, false, &err));
	assert_ok(fix_save(f->store, "b", 2, false, &err));
	assert_ok(ckpt_tag_set(f->store, "best", "a", &err));
	assert_ok(ckpt_store_rename(f->store, "a", "run/a", &err));
	fix_put(f, "checkpoints/run/a", "rubbish");
	assert_code(ckpt_store_remove(f->store, "run/a", false, &err),
		    CKPT_EBUSY);
	assert_says(err, "may be the one with the tag 'best'");
	/* what can be read is known not to be it */
	assert_ok(ckpt_store_remove(f->store, "b", false, &err));
	assert_ok(ckpt_store_remove(f->store, "run/a", true, &err));
	assert_true(fix_there(f, "tags/best"));
}

static void who_has_it_open_goes_on(void **state)
{
	struct fix *f = *state;
	struct ckpt_checkpoint *c;
	struct ckpt_err err = { 0 };

	assert_ok(fix_save(f->store, "a", 1, false, &err));
	assert_ok(ckpt_checkpoint_open(f->store, "a", &c, &err));
	assert_ok(ckpt_store_remove(f->store, "a", false, &err));
	assert_int_equal(ckpt_checkpoint_info(c)->seq, 1);
	assert_int_equal(ckpt_item_count(c), 1);
	ckpt_checkpoint_close(c);
}

static void a_store_open_read_only_refuses(void **state)
{
	struct fix *f = *state;
	const struct ckpt_store_opts ro = { .size = sizeof(ro),
					    .flags = CKPT_STORE_READONLY };
	struct ckpt_store *s;
	struct ckpt_err err = { 0 };

	assert_ok(fix_save(f->store, "a", 1, false, &err));
	assert_ok(ckpt_store_open(f->path, &ro, &s, &err));
	assert_code(ckpt_store_remove(s, "a", true, &err), CKPT_EPERM);
	assert_code(ckpt_store_rename(s, "a", "b", &err), CKPT_EPERM);
	assert_code(ckpt_store_fork(s, "a", "b", NULL, &err), CKPT_EPERM);
	assert_code(ckpt_tag_set(s, "t", "a", &err), CKPT_EPERM);
	assert_code(ckpt_tag_remove(s, "t", &err), CKPT_EPERM);
	ckpt_store_close(s);
	assert_ok(fix_whole(f->store, "a", 1, &err));
}

#define TEST(name) \
	cmocka_unit_test_setup_teardown(name, fix_setup, fix_teardown)

int main(void)
{
	const struct CMUnitTest tests[] = {
		TEST(only_the_manifest_and_empty_runs_go),
		TEST(what_is_no_checkpoint_is_refused),
		TEST(a_damaged_one_can_be_removed),
		TEST(a_tag_protects_until_it_is_forced),
		TEST(a_tag_protects_a_damaged_one_of_another_name),
		TEST(who_has_it_open_goes_on),
		TEST(a_store_open_read_only_refuses),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
