/* SPDX-License-Identifier: Apache-2.0 */
/* test_list.c - runs and checkpoints by name; what is not shown. */
#include "store_fixture.h"

#include "base/log.h"

struct listing {
	char text[4000]; /* "a b/ c": '/' marks a run */
	int stop_after, count;
};

static int add(void *ctx, const char *name, bool is_run)
{
	struct listing *l = ctx;
	size_t len = strlen(l->text);

	snprintf(l->text + len, sizeof(l->text) - len, "%s%s%s",
		 len ? " " : "", name, is_run ? "/" : "");
	return ++l->count == l->stop_after ? 77 : 0;
}

static int add_walk(void *ctx, const char *name)
{
	return add(ctx, name, false);
}

static const char *names(struct fix *f, const char *run)
{
	static struct listing l;
	struct ckpt_err err = { 0 };

	l = (struct listing){ 0 };
	assert_ok(ckpt_store_list(f->store, run, add, &l, &err));
	return l.text;
}

static void an_empty_store_lists_nothing(void **state)
{
	struct fix *f = *state;
	uint64_t seq = 99;
	struct ckpt_err err = { 0 };

	assert_string_equal(names(f, ""), "");
	assert_ok(cks_store_last_seq(f->store, &seq, &err));
	assert_int_equal(seq, 0);
	/* a copy that left out empty folders */
	assert_int_equal(rmdir(fix_at(f, "checkpoints")), 0);
	assert_string_equal(names(f, ""), "");
}

static void names_are_sorted_by_bytes(void **state)
{
	static const char *const made[] = {
		"b", "a", "Z", "a.b", "10", "9", "run/2", "run/10", "run/x/1",
		"\xc3\xa9", "bs=8_data=[[1],[2,3]]+x?*",
	};
	struct fix *f = *state;
	struct listing l = { 0 };
	struct ckpt_err err = { 0 };

	for (size_t i = 0; i < CKB_ARRAY_LEN(made); i++)
		assert_ok(fix_save(f->store, made[i], i + 1, false, &err));
	assert_string_equal(names(f, ""), "10 9 Z a a.b b bs=8_data=[[1],"
			    "[2,3]]+x?* run/ \xc3\xa9");
	assert_string_equal(names(f, "run"), "10 2 x/");
	assert_string_equal(names(f, "run/x"), "1");
	assert_ok(cks_store_walk(f->store, add_walk, NULL, &l, &err));
	assert_string_equal(l.text, "10 9 Z a a.b b bs=8_data=[[1],[2,3]]+x?* "
			    "run/10 run/2 run/x/1 \xc3\xa9");
}

static void a_callback_stops_and_its_answer_comes_back(void **state)
{
	struct fix *f = *state;
	struct listing l = { .stop_after = 1 };
	struct ckpt_err err = { 0 };

	assert_ok(fix_save(f->store, "a", 1, false, &err));
	assert_ok(fix_save(f->store, "r/b", 2, false, &err));
	assert_int_equal(ckpt_store_list(f->store, "", add, &l, &err), 77);
	assert_string_equal(l.text, "a");
	l = (struct listing){ .stop_after = 2 };
	assert_int_equal(cks_store_walk(f->store, add_walk, NULL, &l, &err), 77);
	assert_string_equal(l.text, "a r/b");
}

static void count_line(void *ctx, enum ckb_level level, const char *text)
{
	(void)level, (void)text;
	++*(int *)ctx;
}

static void what_is_no_checkpoint_is_passed_over(void **state)
{
	struct fix *f = *state;
	int lines = 0;
	struct ckpt_err err = { 0 };

	assert_ok(fix_save(f->store, "good", 1, false, &err));
	fix_put(f, "checkpoints/.hidden", "");
	fix_put(f, "checkpoints/@x", "");
	fix_put(f, "checkpoints/latest", "");
	fix_put(f, "checkpoints/bad\xff", "");
	fix_put(f, "checkpoints/new\nline", "");
	assert_int_equal(mkdir(fix_at(f, "checkpoints/newest"), 0777), 0);
	assert_int_equal(mkfifo(fix_at(f, "checkpoints/pipe"), 0600), 0);
	assert_int_equal(symlink("good", fix_at(f, "checkpoints/link")), 0);
	assert_int_equal(symlink("/etc", fix_at(f, "checkpoints/out")), 0);
	/* each is told of, and once however often it is listed */
	ckb_log_sink(count_line, &lines);
	for (int i = 0; i < 5; i++)
		assert_string_equal(names(f, ""), "good");
	ckb_log_sink(NULL, NULL);
	assert_int_equal(lines, 9);
}

static void links_are_never_followed(void **state)
{
	struct fix *f = *state;
	struct listing l = { 0 };
	struct stat st;
	bool is_run;
	struct ckpt_err err = { 0 };

	assert_ok(fix_save(f->store, "run/good", 1, false, &err));
	assert_int_equal(symlink("/etc", fix_at(f, "checkpoints/out")), 0);
	assert_int_equal(symlink("run", fix_at(f, "checkpoints/alias")), 0);
	assert_code(ckpt_store_list(f->store, "out", add, &l, &err),
		    CKPT_ENOENT);
	assert_code(ckpt_store_list(f->store, "alias", add, &l, &err),
		    CKPT_ENOENT);
	assert_code(cks_name_stat(f->store, "out/passwd", &is_run, &st, &err),
		    CKPT_ENOENT);
	assert_code(cks_name_stat(f->store, "alias/good", &is_run, &st, &err),
		    CKPT_ENOENT);
	assert_code(cks_name_stat(f->store, "alias", &is_run, &st, &err),
		    CKPT_ENOENT);
}

static void a_name_says_what_lies_there(void **state)
{
	struct fix *f = *state;
	struct stat st;
	bool is_run;
	struct ckpt_err err = { 0 };

	assert_ok(fix_save(f->store, "run/4000", 1, false, &err));
	assert_ok(cks_name_stat(f->store, "run", &is_run, &st, &err));
	assert_true(is_run);
	assert_ok(cks_name_stat(f->store, "run/4000", &is_run, &st, &err));
	assert_false(is_run);
	assert_true(S_ISREG(st.st_mode) && st.st_size > 0);
	assert_code(cks_name_stat(f->store, "run/1", &is_run, &st, &err),
		    CKPT_ENOENT);
	assert_code(cks_name_stat(f->store, "run/4000/x", &is_run, &st, &err),
		    CKPT_ENOENT);
	assert_string_equal(err.message, ""); /* an answer, no error */
}

static void illegal_names_do_not_reach_the_file_system(void **state)
{
	static const char *const bad[] = {
		"..", "../packs", "a/../b", "a//b", "/a", "a/", ".", "latest",
		"@x", "a\nb",
	};
	struct fix *f = *state;
	struct stat st;
	bool is_run;

	for (size_t i = 0; i < CKB_ARRAY_LEN(bad); i++) {
		struct listing l = { 0 };
		struct ckpt_err err = { 0 };

		assert_code(cks_name_stat(f->store, bad[i], &is_run, &st,
					  &err), CKPT_EINVAL);
		assert_code(ckpt_store_list(f->store, bad[i], add, &l, &err),
			    CKPT_EINVAL);
	}
	struct ckpt_err err = { 0 };

	/* "" is no name: it means the top, as in ckpt_store_list() */
	assert_ok(cks_name_stat(f->store, "", &is_run, &st, &err));
	assert_true(is_run);
}

static void an_absent_run_is_named(void **state)
{
	struct fix *f = *state;
	struct listing l = { 0 };
	struct ckpt_err err = { 0 };

	assert_ok(fix_save(f->store, "a", 1, false, &err));
	assert_code(ckpt_store_list(f->store, "nope", add, &l, &err),
		    CKPT_ENOENT);
	assert_says(err, "no run 'nope'");
	assert_code(ckpt_store_list(f->store, "a", add, &l, &err),
		    CKPT_ENOENT);
}

static void the_last_seq_passes_over_damage(void **state)
{
	struct fix *f = *state;
	uint64_t seq;
	struct ckpt_err err = { 0 };

	assert_ok(fix_save(f->store, "a", 5, false, &err));
	assert_ok(fix_save(f->store, "r/b", 7, false, &err));
	assert_ok(fix_save(f->store, "c", 6, false, &err));
	assert_ok(cks_store_last_seq(f->store, &seq, &err));
	assert_int_equal(seq, 7);
	fix_put(f, "checkpoints/r/b", "rubbish");
	assert_ok(cks_store_last_seq(f->store, &seq, &err));
	assert_int_equal(seq, 6);
}

/* as deep as a name may be: no overflow, no lost name */
static void the_deepest_name_is_walked(void **state)
{
	struct fix *f = *state;
	char name[CKB_NAME_MAX + 1];
	struct listing l = { 0 };
	struct ckpt_err err = { 0 };

	for (size_t i = 0; i < CKB_NAME_MAX; i++)
		name[i] = i % 2 ? '/' : 'd';
	name[CKB_NAME_MAX - 1] = '\0';
	assert_ok(fix_save(f->store, name, 1, false, &err));
	assert_ok(cks_store_walk(f->store, add_walk, NULL, &l, &err));
	assert_string_equal(l.text, name);
}

#define TEST(name) \
	cmocka_unit_test_setup_teardown(name, fix_setup, fix_teardown)

int main(void)
{
	const struct CMUnitTest tests[] = {
		TEST(an_empty_store_lists_nothing),
		TEST(names_are_sorted_by_bytes),
		TEST(a_callback_stops_and_its_answer_comes_back),
		TEST(what_is_no_checkpoint_is_passed_over),
		TEST(links_are_never_followed),
		TEST(a_name_says_what_lies_there),
		TEST(illegal_names_do_not_reach_the_file_system),
		TEST(an_absent_run_is_named),
		TEST(the_last_seq_passes_over_damage),
		TEST(the_deepest_name_is_walked),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
