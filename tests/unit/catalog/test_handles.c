/* SPDX-License-Identifier: Apache-2.0 */
/* test_handles.c - many manifests open at once, few descriptors; what was
 * replaced or removed meanwhile is stale, never another file's pages. */
#include <sys/resource.h>

#include "catalog/vfs.h"
#include "manifest_fixture.h"

#define MANY 200

static void read_it(struct ckq_manifest *m)
{
	struct ckpt_err err = { 0 };
	struct walk w = { 0 };

	assert_ok(read_rows(m, &w, &err));
	assert_false(w.wrong);
}

static void many_are_open_and_few_descriptors(void **state)
{
	struct fix *f = *state;
	struct ckpt_err err = { 0 };
	struct ckq_manifest *m[MANY] = { NULL };
	struct rlimit was, few;

	assert_int_equal(getrlimit(RLIMIT_NOFILE, &was), 0);
	few = was;
	few.rlim_cur = 64;
	assert_int_equal(setrlimit(RLIMIT_NOFILE, &few), 0);
	for (int i = 0; i < MANY; i++) {
		assert_ok(open_it(f, "m", &m[i], &err));
		assert_true(ckq_manifests_open() <= 16);
	}
	for (int i = 0; i < MANY; i++)
		read_it(m[(i * 37) % MANY]);
	assert_int_equal(ckq_manifests_open(), 16);
	for (int i = 0; i < MANY; i++)
		ckq_manifest_close(m[i]);
	assert_int_equal(ckq_manifests_open(), 0);
	assert_int_equal(setrlimit(RLIMIT_NOFILE, &was), 0);
}

/* Descriptors taken by others: idle ones make room. */
static void idle_ones_make_room(void **state)
{
	struct fix *f = *state;
	struct ckpt_err err = { 0 };
	struct ckq_manifest *a = NULL, *b = NULL;
	int fd[256], count = 0;

	assert_ok(open_it(f, "m", &a, &err));
	struct rlimit was, few;

	assert_int_equal(getrlimit(RLIMIT_NOFILE, &was), 0);
	few = was;
	few.rlim_cur = 200;
	assert_int_equal(setrlimit(RLIMIT_NOFILE, &few), 0);
	while (count < 256 && (fd[count] = dup(f->fd)) >= 0)
		count++;
	assert_int_equal(errno, EMFILE);
	assert_ok(open_it(f, "m", &b, &err));
	assert_int_equal(ckq_manifests_open(), 1);
	while (count > 0)
		close(fd[--count]);
	assert_int_equal(setrlimit(RLIMIT_NOFILE, &was), 0);
	read_it(a);
	read_it(b);
	ckq_manifest_close(a);
	ckq_manifest_close(b);
}

/* Open so many others that what was open before gives its descriptor up. */
static void give_up(struct fix *f)
{
	struct ckpt_err err = { 0 };
	struct ckq_manifest *m[9] = { NULL };
	struct rlimit was, few;

	assert_int_equal(getrlimit(RLIMIT_NOFILE, &was), 0);
	few = was;
	few.rlim_cur = 32;
	assert_int_equal(setrlimit(RLIMIT_NOFILE, &few), 0);
	for (int i = 0; i < 9; i++)
		assert_ok(open_it(f, "m", &m[i], &err));
	assert_int_equal(ckq_manifests_open(), 8);
	for (int i = 0; i < 9; i++)
		ckq_manifest_close(m[i]);
	assert_int_equal(setrlimit(RLIMIT_NOFILE, &was), 0);
	assert_int_equal(ckq_manifests_open(), 0);
}

static void what_is_gone_or_replaced_is_stale(void **state)
{
	struct fix *f = *state;
	struct ckpt_err err = { 0 };
	struct ckq_manifest *kept = NULL, *lost[2];
	CKB_BUF struct ckb_buf blob = { 0 };

	for (int i = 0; i < 2; i++) {
		assert_ok(open_it(f, "m", &kept, &err));
		put_file(f, "n", f->image.data, f->image.len);
		assert_ok(open_it(f, "n", &lost[i], &err));
		give_up(f);
		unlinkat(f->fd, "n", 0);
		if (i == 1)
			put_file(f, "n", f->image.data, f->image.len);
		struct walk w = { 0 };
		int rc = read_rows(lost[i], &w, &err);

		/* pages SQLite still holds may answer; the file may not */
		if (rc == 0)
			rc = ckq_manifest_verify(lost[i], &err);
		assert_int_equal(rc, CKPT_ESTALE);
		assert_says(err, "'n'");
		read_it(kept);
		ckq_manifest_close(lost[i]);
		ckq_manifest_close(kept);
	}
}

int main(void)
{
#define T(name) cmocka_unit_test_setup_teardown(name, fix_setup, fix_teardown)
	const struct CMUnitTest tests[] = {
		T(many_are_open_and_few_descriptors),
		T(idle_ones_make_room),
		T(what_is_gone_or_replaced_is_stale),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
