/* SPDX-License-Identifier: Apache-2.0 */
/*
 * test_commit.c - the n-th system call fails: of init, of a whole save.
 *
 * For n = 1, 2, ... until a body runs without meeting the fault, and for
 * several errnos, a call fails before it did anything, or (where the caller
 * cannot lose a descriptor by it) after it did all, its answer lost. After
 * each: no descriptor leaked, the store opens, older checkpoints are whole,
 * the new one is whole or absent, and absent unless the save said so (S3-S5).
 */
#include "unit/verbs/store_fixture.h"

#include "fault_sys.h"
#include "verbs/stage_impl.h"

static const int errors[] = FAULT_ERRORS;

/* ---- init ---- */

static void init_is_whole_or_can_be_done_again(void **state)
{
	char dir[256], path[300];

	(void)state;
	fix_folder(dir);
	snprintf(path, sizeof(path), "%s/s", dir);
	for (size_t e = 0; e < 2 * CKB_ARRAY_LEN(errors); e++)
		for (int n = 1;; n++) {
			struct fault_sys f;
			struct ckpt_store *s;
			struct ckpt_err err = { 0 };
			int fds = fix_fds();

			fault_init(&f);
			f.fail_at = n;
			f.error = errors[e / 2];
			f.when = (enum fault_when)(e % 2);
			int rc = cks_store_init_sys(&f.sys, path, &err);

			assert_int_equal(fix_fds(), fds);
			assert_int_equal(fault_open_count(&f), 0);
			assert_true(rc == 0 || err.message[0]);
			if (ckpt_store_open(path, NULL, &s, NULL) == 0)
				ckpt_store_close(s);
			else if (rc == 0)
				fail_msg("call %d: 0, and no store", n);
			else
				assert_ok(ckpt_store_init(path, &err));
			assert_ok(ckpt_store_open(path, NULL, &s, &err));
			ckpt_store_close(s);
			fix_remove(path);
			if (!f.met)
				break;
			assert_true(n < 1000);
		}
	fix_remove(dir);
}

/* ---- a save ---- */

static int open_and_save(struct fault_sys *f, const char *path,
			 const char *name, uint64_t seq, bool replace,
			 struct ckpt_err *err)
{
	struct ckpt_store *s;
	int rc = cks_store_open_sys(&f->sys, path, NULL, &s, err);

	if (rc == 0) {
		rc = fix_save(s, name, seq, replace, err);
		ckpt_store_close(s);
	}
	assert_int_equal(fault_open_count(f), 0);
	return rc;
}

static void check_after(const char *path, const char *name, uint64_t seq,
			uint64_t before, int rc)
{
	struct ckpt_store *s;
	struct ckpt_err err = { 0 };

	assert_ok(ckpt_store_open(path, NULL, &s, &err));
	assert_ok(fix_whole(s, "old/1", 1, &err));
	if (rc == 0 || rc == CKPT_EUNSURE)
		assert_ok(fix_whole(s, name, seq, &err));
	else if (before)
		assert_ok(fix_whole(s, name, before, &err));
	else
		assert_code(fix_whole(s, name, seq, &err), CKPT_ENOENT);
	ckpt_store_close(s);
}

/* @before: seq of what already has the name, or 0. */
static void sweep_saves(struct fix *fix, int error, enum fault_when when,
			const char *name, uint64_t before)
{
	static uint64_t seq = 100;
	int unsure = 0;

	for (int n = 1;; n++) {
		struct fault_sys f;
		struct ckpt_err err = { 0 };
		char each[64];
		int fds = fix_fds();

		fault_init(&f);
		f.fail_at = n;
		f.error = error;
		f.when = when;
		f.tag = (uint8_t)++seq;
		snprintf(each, sizeof(each), before ? "%s" : "%s/%d", name, n);
		int rc = open_and_save(&f, fix->path, each, seq, before != 0,
				       &err);

		assert_int_equal(fix_fds(), fds);
		if (rc < 0 && (err.code != rc || !err.message[0]))
			fail_msg("call %d: %d without its sentence", n, rc);
		check_after(fix->path, each, seq, before, rc);
		if (before && (rc == 0 || rc == CKPT_EUNSURE))
			before = seq;
		unsure += rc == CKPT_EUNSURE;
		if (!f.met) {
			assert_int_equal(rc, 0);
			break;
		}
		assert_true(n < 1000);
	}
	assert_true(unsure >= 1); /* the last sync, at least */
}

static void a_save_is_whole_or_absent_whatever_fails(void **state)
{
	struct fix *fix = *state;
	struct ckpt_err err = { 0 };

	assert_ok(fix_save(fix->store, "old/1", 1, false, &err));
	for (size_t e = 0; e < 2 * CKB_ARRAY_LEN(errors); e++) {
		char run[16];

		snprintf(run, sizeof(run), "r%d", (int)e);
		sweep_saves(fix, errors[e / 2], (enum fault_when)(e % 2), run,
			    0);
	}
}

static void replacing_shows_the_old_or_the_new_whatever_fails(void **state)
{
	struct fix *fix = *state;
	struct ckpt_err err = { 0 };

	assert_ok(fix_save(fix->store, "old/1", 1, false, &err));
	for (size_t e = 0; e < 2 * CKB_ARRAY_LEN(errors); e++) {
		assert_ok(fix_save(fix->store, "cur", 50, true, &err));
		sweep_saves(fix, errors[e / 2], (enum fault_when)(e % 2),
			    "cur", 50);
	}
}

/* ---- single faults ---- */

static void a_failed_sync_before_the_link_publishes_nothing(void **state)
{
	static const char *const of[] = {
		"/manifest", ".pack", "/packs", "/staging", "/save.json",
	};
	struct fix *fix = *state;

	for (size_t i = 0; i < CKB_ARRAY_LEN(of); i++) {
		struct fault_sys f;
		struct ckpt_err err = { 0 };

		fault_init(&f);
		fault_each(&f, FAULT_FSYNC, of[i]);
		assert_code(open_and_save(&f, fix->path, "a", 1, false, &err),
			    CKPT_EIO);
		assert_int_equal(f.calls, 1); /* S5: never again */
		assert_code(fix_whole(fix->store, "a", 1, &err), CKPT_ENOENT);
		assert_int_equal(fix_count(fix->store, "staging"), 0);
	}
}

static void a_failed_last_sync_is_unsure_and_unlinks_nothing(void **state)
{
	struct fix *fix = *state;
	struct fault_sys f;
	CKB_BUF struct ckb_buf manifest = { 0 };
	uint8_t attempt[16] = { 1 }, pack[16];
	char staged[CKS_STAGE_PATH_BYTES];
	struct ckc_place place;
	struct ckpt_store *s;
	struct cks_stage *st;
	struct ckpt_err err = { 0 };

	fault_init(&f);
	assert_ok(cks_store_open_sys(&f.sys, fix->path, NULL, &s, &err));
	assert_ok(cks_stage_open(s, "run/a", attempt, &st, &err));
	assert_ok(fix_pack(st, 1, pack, &place, &err));
	assert_ok(fix_manifest(s, 1, pack, &manifest, &err));
	fault_each(&f, FAULT_FSYNC, "/checkpoints/run");
	assert_code(cks_stage_commit(st, manifest.data, manifest.len, false,
				     &err), CKPT_EUNSURE);
	assert_says(err, "visible");
	assert_int_equal(err.sys_errno, EIO);
	cks_stage_path(staged, st, "manifest");
	cks_stage_close(st);
	assert_int_equal(f.made[FAULT_UNLINK], 0);
	assert_int_equal(f.calls, 1);
	assert_true(fix_there(fix, staged));
	assert_ok(fix_whole(s, "run/a", 1, &err));
	ckpt_store_close(s);
	assert_int_equal(fault_open_count(&f), 0);
}

/* Only the folder of the name holds a promise (S3). */
static void where_folders_cannot_be_synced_a_save_is_unsure(void **state)
{
	static const int unsupported[] = { EINVAL, ENOSYS, EOPNOTSUPP };
	static const char *const of[] = { "/checkpoints", "/packs", "/staging",
					  "/store" };
	struct fix *fix = *state;
	uint64_t seq = 1;

	for (size_t e = 0; e < CKB_ARRAY_LEN(unsupported); e++)
		for (size_t i = 0; i < CKB_ARRAY_LEN(of); i++, seq++) {
			struct fault_sys f;
			struct ckpt_err err = { 0 };

			fault_init(&f);
			f.error = unsupported[e];
			fault_each(&f, FAULT_FSYNC, of[i]);
			assert_code(open_and_save(&f, fix->path, "a", seq, true,
						  &err),
				    i == 0 ? CKPT_EUNSURE : 0);
			assert_true(f.calls > 0);
			if (i == 0)
				assert_says(err, "cannot sync folders");
			assert_ok(fix_whole(fix->store, "a", seq, &err));
		}
}

/* NFS tells of a full disk at close */
static void a_failed_close_of_the_manifest_publishes_nothing(void **state)
{
	struct fix *fix = *state;
	struct fault_sys f;
	struct ckpt_err err = { 0 };

	fault_init(&f);
	f.error = EDQUOT;
	fault_each(&f, FAULT_CLOSE, "/manifest");
	assert_code(open_and_save(&f, fix->path, "a", 1, false, &err),
		    CKPT_ENOSPC);
	assert_code(fix_whole(fix->store, "a", 1, &err), CKPT_ENOENT);
}

static void short_writes_are_gone_on_with(void **state)
{
	struct fix *fix = *state;
	struct fault_sys f;
	struct ckpt_err err = { 0 };

	fault_init(&f);
	f.move_max = 100;
	assert_ok(open_and_save(&f, fix->path, "a", 1, false, &err));
	assert_ok(fix_whole(fix->store, "a", 1, &err));
}

/* S3: nothing of a failed save is visible, an empty run neither. */
static void a_failed_link_leaves_no_run_behind(void **state)
{
	struct fix *fix = *state;
	struct fault_sys f;
	struct ckpt_err err = { 0 };
	bool is_run;

	assert_ok(fix_save(fix->store, "there/0", 1, false, &err));
	assert_int_equal(fix_count(fix->store, "checkpoints"), 1);
	fault_init(&f);
	f.error = ENOSPC;
	fault_each(&f, FAULT_LINK, NULL);
	assert_code(open_and_save(&f, fix->path, "new/run/1", 1, false, &err),
		    CKPT_ENOSPC);
	fault_init(&f);
	f.error = ENOSPC;
	fault_each(&f, FAULT_LINK, NULL);
	assert_code(open_and_save(&f, fix->path, "there/new/1", 1, false,
				  &err), CKPT_ENOSPC);
	assert_int_equal(fix_count(fix->store, "checkpoints"), 1);
	assert_int_equal(fix_count(fix->store, "checkpoints/there"), 1);
	assert_ok(cks_name_stat(fix->store, "there/0", &is_run, NULL, &err));
}

/* ---- reading ---- */

static int ignore(void *ctx, const char *name)
{
	(void)ctx;
	(void)name;
	return 0;
}

static void listing_fails_clearly_and_leaks_nothing(void **state)
{
	struct fix *fix = *state;
	struct ckpt_err err = { 0 };

	assert_ok(fix_save(fix->store, "r/a", 1, false, &err));
	assert_ok(fix_save(fix->store, "b", 2, false, &err));
	for (int n = 1;; n++) {
		struct fault_sys f;
		struct ckpt_store *s;
		uint64_t seq = 0;
		int fds = fix_fds();

		err = (struct ckpt_err){ 0 };
		fault_init(&f);
		f.fail_at = n;
		int rc = cks_store_open_sys(&f.sys, fix->path, NULL, &s, &err);

		if (rc == 0) {
			rc = cks_store_walk(s, ignore, NULL, NULL, &err);
			if (rc == 0)
				rc = cks_store_last_seq(s, &seq, &err);
			ckpt_store_close(s);
		}
		assert_int_equal(fix_fds(), fds);
		assert_int_equal(fault_open_count(&f), 0);
		assert_true(rc == 0 || err.message[0]);
		if (!f.met) {
			assert_int_equal(rc, 0);
			assert_int_equal(seq, 2);
			break;
		}
	}
}

#define TEST(name) \
	cmocka_unit_test_setup_teardown(name, fix_setup, fix_teardown)

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(init_is_whole_or_can_be_done_again),
		TEST(a_save_is_whole_or_absent_whatever_fails),
		TEST(replacing_shows_the_old_or_the_new_whatever_fails),
		TEST(a_failed_sync_before_the_link_publishes_nothing),
		TEST(a_failed_last_sync_is_unsure_and_unlinks_nothing),
		TEST(where_folders_cannot_be_synced_a_save_is_unsure),
		TEST(a_failed_close_of_the_manifest_publishes_nothing),
		TEST(short_writes_are_gone_on_with),
		TEST(a_failed_link_leaves_no_run_behind),
		TEST(listing_fails_clearly_and_leaks_nothing),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
