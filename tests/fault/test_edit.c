/* SPDX-License-Identifier: Apache-2.0 */
/*
 * test_edit.c - the n-th system call of rm, mv, cp and tag fails.
 *
 * For n = 1, 2, ... until a body runs without meeting the fault, and for
 * several errnos, a call fails before it did anything or after it did all, its
 * answer lost. After each: no descriptor leaked, the store opens, the other
 * checkpoint is whole, and of the one at hand: removed or whole, under one
 * name or the other, forked whole or not at all; and what was answered holds.
 */
#include "unit/verbs/store_fixture.h"

#include "fault_sys.h"

static const int errors[] = FAULT_ERRORS;

/* One body, and what must be so after it answered @rc. */
struct action {
	int (*run)(struct ckpt_store *s, struct ckpt_err *err);
	/* NULL: well; else what is wrong */
	const char *(*wrong)(struct ckpt_store *s, int rc, enum fault_when when);
};

static bool whole(struct ckpt_store *s, const char *name, uint64_t seq)
{
	struct ckpt_err err = { 0 };

	return fix_whole(s, name, seq, &err) == 0;
}

static bool absent(struct ckpt_store *s, const char *name)
{
	bool is_run;

	return cks_name_stat(s, name, &is_run, NULL, NULL) == CKPT_ENOENT;
}

/* ---- rm ---- */

static int do_remove(struct ckpt_store *s, struct ckpt_err *err)
{
	return ckpt_store_remove(s, "run/x/a", true, err);
}

static const char *remove_wrong(struct ckpt_store *s, int rc, enum fault_when when)
{
	bool gone = absent(s, "run/x/a");
	char *name = NULL;

	if (!gone && !whole(s, "run/x/a", 2))
		return "it is neither whole nor gone";
	if (!gone && ckpt_tag_get(s, "best", &name, NULL) < 0)
		return "its tag is gone and it is not";
	free(name);
	if ((rc == 0 || rc == CKPT_EUNSURE) && !gone)
		return "it is said to be gone and is not";
	if (rc < 0 && rc != CKPT_EUNSURE && gone && when == FAULT_BEFORE)
		return "it is gone though the call failed";
	return NULL;
}

/* ---- mv ---- */

static int do_rename(struct ckpt_store *s, struct ckpt_err *err)
{
	return ckpt_store_rename(s, "run/x/a", "new/y/b", err);
}

static const char *rename_wrong(struct ckpt_store *s, int rc, enum fault_when when)
{
	bool old = whole(s, "run/x/a", 2), new = whole(s, "new/y/b", 2);
	char *name = NULL;

	if (!old && !new)
		return "it is lost";
	if ((rc == 0 || rc == CKPT_EUNSURE) &&
	    (!new || !absent(s, "run/x/a")))
		return "it is said to be renamed and is not";
	if (rc < 0 && rc != CKPT_EUNSURE && when == FAULT_BEFORE && !old)
		return "the old name is gone though the call failed";
	if (ckpt_tag_get(s, "best", &name, NULL) < 0)
		return "its tag lost it";
	free(name);
	return NULL;
}

/* ---- cp ---- */

static int do_fork(struct ckpt_store *s, struct ckpt_err *err)
{
	return ckpt_store_fork(s, "run/x/a", "new/y/b", NULL, err);
}

static const char *fork_wrong(struct ckpt_store *s, int rc, enum fault_when when)
{
	struct ckpt_checkpoint *c = NULL;
	struct ckpt_err err = { 0 };
	uint8_t parent[16];

	(void)when; /* the commit knows its own link by its inode */
	if (!whole(s, "run/x/a", 2))
		return "the source is hurt";
	if (absent(s, "new/y/b"))
		return rc == 0 || rc == CKPT_EUNSURE ? "it is not there"
						     : NULL;
	if (rc < 0 && rc != CKPT_EUNSURE)
		return "it is there though the call failed";
	if (ckpt_checkpoint_open(s, "new/y/b", &c, &err) < 0)
		return "it cannot be read";
	fix_uuid(parent, 2);
	bool child = ckpt_checkpoint_info(c)->has_parent &&
		     memcmp(ckpt_checkpoint_info(c)->parent, parent, 16) == 0;

	ckpt_checkpoint_close(c);
	return child ? NULL : "it is another one";
}

/* ---- tag ---- */

static int do_tag(struct ckpt_store *s, struct ckpt_err *err)
{
	return ckpt_tag_set(s, "best", "old", err);
}

static int do_untag(struct ckpt_store *s, struct ckpt_err *err)
{
	return ckpt_tag_remove(s, "best", err);
}

static const char *tag_wrong(struct ckpt_store *s, int rc, enum fault_when when)
{
	CKB_FREE char *name = NULL;
	struct ckpt_err err = { 0 };

	(void)when;
	if (ckpt_tag_get(s, "best", &name, &err) < 0)
		return "the tag is neither the old nor the new one";
	if (strcmp(name, "old") != 0 && (rc == 0 ||
					 strcmp(name, "run/x/a") != 0))
		return "it names something else";
	return NULL;
}

static const char *untag_wrong(struct ckpt_store *s, int rc, enum fault_when when)
{
	CKB_FREE char *name = NULL;
	int get = ckpt_tag_get(s, "best", &name, NULL);

	(void)when;
	if (get != 0 && get != CKPT_ENOENT)
		return "the tag is damaged";
	return rc == 0 && get == 0 ? "it is still there" : NULL;
}

/* ---- the sweep ---- */

static void sweep_one(const struct action *a, int n, int error,
		      enum fault_when when, bool *out_met)
{
	struct fix f = { .dir = "" };
	struct fault_sys sys;
	struct ckpt_store *s;
	struct ckpt_err err = { 0 };

	fault_init(&sys);
	sys.fail_at = n;
	sys.error = error;
	sys.when = when;
	fix_folder(f.dir);
	snprintf(f.path, sizeof(f.path), "%s/store", f.dir);
	assert_ok(ckpt_store_init(f.path, &err));
	assert_ok(ckpt_store_open(f.path, NULL, &f.store, &err));
	assert_ok(fix_save(f.store, "old", 1, false, &err));
	assert_ok(fix_save(f.store, "run/x/a", 2, false, &err));
	assert_ok(ckpt_tag_set(f.store, "best", "run/x/a", &err));
	int fds = fix_fds();
	int rc = cks_store_open_sys(&sys.sys, f.path, NULL, &s, &err);

	if (rc == 0) {
		rc = a->run(s, &err);
		ckpt_store_close(s);
	} else {
		rc = CKPT_EIO;
	}
	*out_met = sys.met;
	assert_int_equal(fault_open_count(&sys), 0);
	assert_int_equal(fix_fds(), fds);
	if (!*out_met)
		assert_ok(rc);
	assert_true(rc == 0 || err.message[0]);
	const char *wrong = a->wrong(f.store, rc, when);

	if (wrong || !whole(f.store, "old", 1))
		fail_msg("call %d, errno %d, %s, answer %d (%s): %s", n, error,
			 when == FAULT_AFTER ? "after" : "before", rc,
			 err.message, wrong ? wrong : "the other is hurt");
	/* and life goes on */
	assert_ok(fix_save(f.store, "run/x/next", 3, false, &err));
	ckpt_store_close(f.store);
	fix_remove(f.dir);
}

static void sweep(const struct action *a)
{
	for (size_t e = 0; e < CKB_ARRAY_LEN(errors); e++)
		for (int when = FAULT_BEFORE; when <= FAULT_AFTER; when++) {
			bool met = true;
			int n = 1;

			for (; met; n++)
				sweep_one(a, n, errors[e],
					  (enum fault_when)when, &met);
			assert_true(n > 8); /* it does something */
		}
}

static void removing_is_whole_or_nothing(void **state)
{
	(void)state;
	sweep(&(struct action){ do_remove, remove_wrong });
}

/* Not forced, it must stay, whatever cannot be read for a moment. */
static void a_tag_protects_it_whatever_fails(void **state)
{
	struct fix *f = *state;
	struct ckpt_err err = { 0 };
	bool met = true;

	assert_ok(fix_save(f->store, "run/x/a", 2, false, &err));
	assert_ok(ckpt_tag_set(f->store, "best", "run/x/a", &err));
	/* the tag finds it by its uuid alone */
	assert_ok(ckpt_store_rename(f->store, "run/x/a", "b", &err));
	for (size_t e = 0; e < CKB_ARRAY_LEN(errors); e++)
		/* a tag that is not there protects nothing */
		for (int n = 1; errors[e] != ENOENT && (met || n == 1); n++) {
			struct fault_sys sys;
			struct ckpt_store *s;

			fault_init(&sys);
			sys.fail_at = n;
			sys.error = errors[e];
			if (cks_store_open_sys(&sys.sys, f->path, NULL, &s,
					       &err) == 0) {
				if (ckpt_store_remove(s, "b", false,
						      &err) >= 0)
					fail_msg("call %d, errno %d: it is "
						 "gone", n, errors[e]);
				ckpt_store_close(s);
			}
			met = sys.met;
			assert_int_equal(fault_open_count(&sys), 0);
			assert_ok(fix_whole(f->store, "b", 2, &err));
		}
}

static void renaming_never_loses_it(void **state)
{
	(void)state;
	sweep(&(struct action){ do_rename, rename_wrong });
}

static void forking_is_whole_or_nothing(void **state)
{
	(void)state;
	sweep(&(struct action){ do_fork, fork_wrong });
}

static void tagging_is_the_old_or_the_new(void **state)
{
	(void)state;
	sweep(&(struct action){ do_tag, tag_wrong });
	sweep(&(struct action){ do_untag, untag_wrong });
}

/* A run that is removed as it becomes empty, while another save has made sure
 * of it and not yet linked: the save makes it again. */
static int (*real_linkat)(const struct ckb_sys *sys, int from_dirfd,
			  const char *from, int to_dirfd, const char *to);
static int stolen;

static int stealing_linkat(const struct ckb_sys *sys, int from_dirfd,
			   const char *from, int to_dirfd, const char *to)
{
	if (stolen++ == 0)
		assert_int_equal(unlinkat(to_dirfd, "checkpoints/run",
					  AT_REMOVEDIR), 0);
	return real_linkat(sys, from_dirfd, from, to_dirfd, to);
}

static void a_run_removed_under_a_commit_is_made_again(void **state)
{
	struct ckb_sys sys = *ckb_sys_real();
	struct ckpt_store *s;
	struct ckpt_err err = { 0 };
	struct fix *f = *state;

	real_linkat = sys.linkat;
	sys.linkat = stealing_linkat;
	assert_ok(cks_store_open_sys(&sys, f->path, NULL, &s, &err));
	stolen = 0;
	assert_ok(fix_save(s, "run/1", 1, false, &err));
	assert_int_equal(stolen, 2);
	assert_ok(fix_whole(f->store, "run/1", 1, &err));
	assert_ok(ckpt_store_rename(f->store, "run/1", "a", &err));
	stolen = 0;
	assert_ok(ckpt_store_rename(s, "a", "run/1", &err));
	assert_int_equal(stolen, 2);
	ckpt_store_close(s);
	assert_ok(fix_whole(f->store, "run/1", 1, &err));
}

/* A save that takes the old name while it is renamed. */
static int (*real_renameat)(const struct ckb_sys *sys, int from_dirfd,
			    const char *from, int to_dirfd, const char *to);
static struct ckpt_store *other;
static int replaced;

static void replace_it(const char *path)
{
	struct ckpt_err err = { 0 };

	if (strcmp(path, "checkpoints/a") == 0 && replaced++ == 0)
		assert_ok(fix_save(other, "a", 9, true, &err));
}

static int late_linkat(const struct ckb_sys *sys, int from_dirfd,
		       const char *from, int to_dirfd, const char *to)
{
	replace_it(from);
	return real_linkat(sys, from_dirfd, from, to_dirfd, to);
}

static int late_renameat(const struct ckb_sys *sys, int from_dirfd,
			 const char *from, int to_dirfd, const char *to)
{
	replace_it(from);
	return real_renameat(sys, from_dirfd, from, to_dirfd, to);
}

static void who_takes_the_old_name_keeps_it(void **state)
{
	struct ckb_sys sys = *ckb_sys_real();
	struct ckpt_store *s;
	struct ckpt_err err = { 0 };
	struct fix *f = *state;

	other = f->store;
	real_linkat = sys.linkat;
	real_renameat = sys.renameat;
	assert_ok(fix_save(f->store, "a", 1, false, &err));
	/* after the last look: the one that was there is renamed */
	sys.renameat = late_renameat;
	replaced = 0;
	assert_ok(cks_store_open_sys(&sys, f->path, NULL, &s, &err));
	assert_ok(ckpt_store_rename(s, "a", "run/1", &err));
	assert_int_equal(replaced, 1);
	assert_ok(fix_whole(f->store, "a", 9, &err));
	assert_ok(fix_whole(f->store, "run/1", 1, &err));
	assert_int_equal(fix_count(s, "staging"), 0);
	/* before the link: it is not the one that was looked at */
	sys.renameat = real_renameat;
	sys.linkat = late_linkat;
	replaced = 0;
	assert_code(ckpt_store_rename(s, "a", "x/b", &err), CKPT_ESTALE);
	assert_says(err, "replaced");
	assert_int_equal(replaced, 1);
	assert_ok(fix_whole(f->store, "a", 9, &err));
	assert_false(fix_there(f, "checkpoints/x"));
	assert_int_equal(fix_count(s, "staging"), 0);
	ckpt_store_close(s);
}

/* Its folder may not be written to: the new name goes again. */
static int refusing_renameat(const struct ckb_sys *sys, int from_dirfd,
			     const char *from, int to_dirfd, const char *to)
{
	if (strcmp(from, "checkpoints/a") == 0)
		return -EACCES;
	return real_renameat(sys, from_dirfd, from, to_dirfd, to);
}

static void what_cannot_leave_its_name_gets_no_other(void **state)
{
	struct ckb_sys sys = *ckb_sys_real();
	struct ckpt_store *s;
	struct ckpt_err err = { 0 };
	struct fix *f = *state;

	real_renameat = sys.renameat;
	sys.renameat = refusing_renameat;
	assert_ok(fix_save(f->store, "a", 1, false, &err));
	assert_ok(cks_store_open_sys(&sys, f->path, NULL, &s, &err));
	assert_code(ckpt_store_rename(s, "a", "run/1", &err), CKPT_EPERM);
	ckpt_store_close(s);
	assert_ok(fix_whole(f->store, "a", 1, &err));
	assert_false(fix_there(f, "checkpoints/run"));
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(removing_is_whole_or_nothing),
		cmocka_unit_test_setup_teardown(
			a_tag_protects_it_whatever_fails, fix_setup,
			fix_teardown),
		cmocka_unit_test(renaming_never_loses_it),
		cmocka_unit_test(forking_is_whole_or_nothing),
		cmocka_unit_test(tagging_is_the_old_or_the_new),
		cmocka_unit_test_setup_teardown(
			a_run_removed_under_a_commit_is_made_again, fix_setup,
			fix_teardown),
		cmocka_unit_test_setup_teardown(
			who_takes_the_old_name_keeps_it, fix_setup,
			fix_teardown),
		cmocka_unit_test_setup_teardown(
			what_cannot_leave_its_name_gets_no_other, fix_setup,
			fix_teardown),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
