/* SPDX-License-Identifier: Apache-2.0 */
/*
 * test_commit.c - whom a name belongs to, and what a commit answers. Faults
 * and crashes: tests/fault and tests/crash.
 */
#include "store_fixture.h"

#include "verbs/stage_impl.h"

static const uint8_t attempt[16] = { 0x77 };

static void a_commit_is_whole_and_leaves_no_staging(void **state)
{
	struct fix *f = *state;
	struct ckpt_err err = { 0 };
	struct stat st;
	bool is_run;

	assert_ok(fix_save(f->store, "run/x/4000", 1, false, &err));
	assert_ok(fix_whole(f->store, "run/x/4000", 1, &err));
	assert_int_equal(fix_count(f->store, "staging"), 0);
	assert_ok(cks_name_stat(f->store, "run/x/4000", &is_run, &st, &err));
	assert_int_equal(st.st_nlink, 1);
}

static void a_taken_name_is_not_replaced(void **state)
{
	struct fix *f = *state;
	struct ckpt_err err = { 0 };

	assert_ok(fix_save(f->store, "a", 1, false, &err));
	assert_code(fix_save(f->store, "a", 2, false, &err), CKPT_EEXIST);
	assert_string_equal(err.message, "checkpoint 'a' exists already; "
			    "name another, or ask to replace it");
	assert_ok(fix_whole(f->store, "a", 1, &err));
	assert_int_equal(fix_count(f->store, "staging"), 0);
}

static void replace_takes_the_name_and_what_is_open_stays(void **state)
{
	struct fix *f = *state;
	struct ckq_manifest *old;
	struct ckpt_err err = { 0 };

	assert_ok(fix_save(f->store, "a", 1, true, &err)); /* nothing there */
	assert_ok(ckq_manifest_open(f->store->sys, f->store->dirfd,
				    "checkpoints/a", &old, &err));
	assert_ok(fix_save(f->store, "a", 2, true, &err));
	assert_ok(fix_whole(f->store, "a", 2, &err));
	assert_ok(ckq_manifest_verify(old, &err));
	assert_int_equal(ckq_manifest_facts(old)->seq, 1);
	ckq_manifest_close(old);
}

static void a_run_and_a_checkpoint_never_share_a_name(void **state)
{
	static const struct {
		const char *name;
		bool replace;
		const char *says;
	} cases[] = {
		{ "run", false, "'run' is a run" },
		{ "run", true, "'run' is a run" },
		{ "one/x", false, "'one' is a checkpoint, so 'one/x'" },
		{ "one/x", true, "'one' is a checkpoint, so 'one/x'" },
		{ "one/x/y", false, "'one' is a checkpoint, so 'one/x/y'" },
		{ "run/1/y", false, "'run/1' is a checkpoint, so" },
		{ "pipe", true, "neither a checkpoint nor a run" },
		{ "out", true, "neither a checkpoint nor a run" },
		{ "out/x", false, "checkpoints/out' is neither" },
	};
	struct fix *f = *state;
	struct ckpt_err err = { 0 };
	char outside[300];

	assert_ok(fix_save(f->store, "run/1", 1, false, &err));
	assert_ok(fix_save(f->store, "one", 2, false, &err));
	assert_int_equal(mkfifo(fix_at(f, "checkpoints/pipe"), 0600), 0);
	snprintf(outside, sizeof(outside), "%s/outside", f->dir);
	assert_int_equal(mkdir(outside, 0777), 0);
	assert_int_equal(symlink(outside, fix_at(f, "checkpoints/out")), 0);
	for (size_t i = 0; i < CKB_ARRAY_LEN(cases); i++) {
		assert_code(fix_save(f->store, cases[i].name, 9,
				     cases[i].replace, &err), CKPT_EEXIST);
		assert_says(err, cases[i].says);
		assert_int_equal(fix_count(f->store, "staging"), 0);
	}
	assert_int_equal(rmdir(outside), 0); /* nothing was put there */
	assert_ok(fix_whole(f->store, "run/1", 1, &err));
	assert_ok(fix_whole(f->store, "one", 2, &err));
}

/* A save that staged all but has not committed. */
struct ready {
	struct cks_stage *st;
	struct ckb_buf manifest;
};

static void make_ready(struct ready *r, struct ckpt_store *s, const char *name,
		       uint64_t seq)
{
	struct ckc_place place;
	uint8_t pack[16];
	struct ckpt_err err = { 0 };

	memset(r, 0, sizeof(*r));
	assert_ok(cks_stage_open(s, name, attempt, &r->st, &err));
	assert_ok(fix_pack(r->st, seq, pack, &place, &err));
	assert_ok(fix_manifest(s, seq, pack, &r->manifest, &err));
}

static int finish(struct ready *r, bool replace, struct ckpt_err *err)
{
	int rc = cks_stage_commit(r->st, r->manifest.data, r->manifest.len,
				  replace, err);

	cks_stage_close(r->st);
	ckb_buf_fini(&r->manifest);
	return rc;
}

static void an_abandoned_save_cannot_commit(void **state)
{
	struct fix *f = *state;
	struct ready r;
	struct ckpt_err err = { 0 };

	make_ready(&r, f->store, "a", 1);
	/* what an abandoner does first (S8) */
	assert_int_equal(rename(fix_at(f, r.st->dir),
				fix_at(f, "staging/abandoned")), 0);
	assert_true(finish(&r, false, &err) < 0);
	assert_code(fix_whole(f->store, "a", 1, &err), CKPT_ENOENT);
	/* and its close touched nothing of the abandoner's */
	assert_true(fix_there(f, "staging/abandoned/lock"));
}

static void a_failed_commit_may_be_tried_again(void **state)
{
	struct fix *f = *state;
	struct ready r;
	struct ckpt_err err = { 0 };

	make_ready(&r, f->store, "a", 1);
	assert_int_equal(mkdir(fix_at(f, "checkpoints/a"), 0777), 0);
	assert_code(cks_stage_commit(r.st, r.manifest.data, r.manifest.len,
				     false, &err), CKPT_EEXIST);
	assert_int_equal(rmdir(fix_at(f, "checkpoints/a")), 0);
	assert_ok(finish(&r, false, &err));
	assert_ok(fix_whole(f->store, "a", 1, &err));
}

/* ---- retransmitted requests: done, but answered as failed ---- */

static const struct ckb_sys *real;

static int link_twice(const struct ckb_sys *sys, int from_dirfd,
		      const char *from, int to_dirfd, const char *to)
{
	int rc = real->linkat(sys, from_dirfd, from, to_dirfd, to);

	return rc < 0 ? rc : real->linkat(sys, from_dirfd, from, to_dirfd, to);
}

static int rename_twice(const struct ckb_sys *sys, int from_dirfd,
			const char *from, int to_dirfd, const char *to)
{
	int rc = real->renameat(sys, from_dirfd, from, to_dirfd, to);

	return rc < 0 || strncmp(to, "checkpoints/", 12) != 0 ? rc :
	       real->renameat(sys, from_dirfd, from, to_dirfd, to);
}

/* Another save takes the name at the last moment. */
static struct fix *rival_store;
static bool copied; /* ... and a hard-linked copy of the store is made */

static int link_late(const struct ckb_sys *sys, int from_dirfd,
		     const char *from, int to_dirfd, const char *to)
{
	if (rival_store) {
		struct fix *f = rival_store;
		struct ckpt_err err = { 0 };

		rival_store = NULL;
		if (copied)
			assert_int_equal(link(fix_at(f, from),
					      fix_at(f, "copy")), 0);
		assert_ok(fix_save(f->store, "a", 5, false, &err));
	}
	return real->linkat(sys, from_dirfd, from, to_dirfd, to);
}

static void a_retransmitted_link_is_success(void **state)
{
	struct fix *f = *state;
	struct ckb_sys sys = *ckb_sys_real();
	struct ckpt_store *s;
	struct ckpt_err err = { 0 };

	real = ckb_sys_real();
	sys.linkat = link_twice;
	assert_ok(cks_store_open_sys(&sys, f->path, NULL, &s, &err));
	assert_ok(fix_save(s, "a", 1, false, &err));
	assert_ok(fix_whole(s, "a", 1, &err));
	assert_code(fix_save(s, "a", 2, false, &err), CKPT_EEXIST);
	ckpt_store_close(s);
}

static void a_retransmitted_rename_is_success(void **state)
{
	struct fix *f = *state;
	struct ckb_sys sys = *ckb_sys_real();
	struct ckpt_store *s;
	struct ckpt_err err = { 0 };

	real = ckb_sys_real();
	sys.renameat = rename_twice;
	assert_ok(cks_store_open_sys(&sys, f->path, NULL, &s, &err));
	assert_ok(fix_save(s, "a", 1, true, &err));
	assert_ok(fix_save(s, "a", 2, true, &err));
	assert_ok(fix_whole(s, "a", 2, &err));
	ckpt_store_close(s);
}

static void of_two_saves_the_first_has_the_name(void **state)
{
	struct fix *f = *state;
	struct ckb_sys sys = *ckb_sys_real();
	struct ckpt_store *s;
	struct ready r;
	struct ckpt_err err = { 0 };

	real = ckb_sys_real();
	sys.linkat = link_late;
	assert_ok(cks_store_open_sys(&sys, f->path, NULL, &s, &err));
	make_ready(&r, s, "a", 1);
	rival_store = f;
	assert_code(finish(&r, false, &err), CKPT_EEXIST);
	assert_says(err, "exists already");
	assert_ok(fix_whole(s, "a", 5, &err));
	ckpt_store_close(s);
}

/* A save that fails takes its empty run folder away; another that counted on
 * the folder makes it again. */
static int link_late_once(const struct ckb_sys *sys, int from_dirfd,
			  const char *from, int to_dirfd, const char *to)
{
	static int calls;

	(void)sys;
	if (calls++ == 0)
		assert_int_equal(unlinkat(to_dirfd, "checkpoints/r",
					  AT_REMOVEDIR), 0);
	return real->linkat(real, from_dirfd, from, to_dirfd, to);
}

static void a_run_taken_away_meanwhile_is_made_again(void **state)
{
	struct fix *f = *state;
	struct ckb_sys sys = *ckb_sys_real();
	struct ckpt_store *s;
	struct ckpt_err err = { 0 };

	real = ckb_sys_real();
	sys.linkat = link_late_once;
	assert_ok(cks_store_open_sys(&sys, f->path, NULL, &s, &err));
	assert_ok(fix_save(s, "r/1", 1, false, &err));
	assert_ok(fix_whole(s, "r/1", 1, &err));
	ckpt_store_close(s);
}

/* `cp -al` of the store at the wrong moment gives the staged manifest a second
 * link: a lost race must not look won by it. */
static void links_of_others_prove_nothing(void **state)
{
	copied = true;
	of_two_saves_the_first_has_the_name(state);
	copied = false;
	assert_true(fix_there(*state, "copy"));
}

static void a_tag_protects_from_replacing(void **state)
{
	struct fix *f = *state;
	struct ckpt_err err = { 0 };
	char *name;

	assert_ok(fix_save(f->store, "run/1", 1, false, &err));
	assert_ok(ckpt_tag_set(f->store, "best", "run/1", &err));
	assert_ok(fix_save(f->store, "other", 2, false, &err));
	assert_ok(fix_save(f->store, "other", 3, true, &err));
	assert_code(fix_save(f->store, "run/1", 4, true, &err), CKPT_EBUSY);
	assert_says(err, "'run/1' has the tag 'best'");
	assert_says(err, "ckptfs tag -d");
	/* the tag is the checkpoint's, not the name's */
	assert_ok(ckpt_store_rename(f->store, "run/1", "run/2", &err));
	assert_ok(fix_save(f->store, "run/1", 5, false, &err));
	assert_ok(fix_save(f->store, "run/1", 6, true, &err));
	assert_code(fix_save(f->store, "run/2", 7, true, &err), CKPT_EBUSY);
	assert_ok(ckpt_tag_get(f->store, "best", &name, &err));
	assert_string_equal(name, "run/2");
	free(name);
	/* a damaged one may be it, when nothing else is */
	fix_put(f, "checkpoints/run/2", "damaged");
	assert_code(fix_save(f->store, "run/2", 8, true, &err), CKPT_EBUSY);
	assert_says(err, "may be the one with the tag 'best'");
	assert_ok(ckpt_tag_remove(f->store, "best", &err));
	assert_ok(fix_save(f->store, "run/2", 8, true, &err));
	assert_int_equal(fix_count(f->store, "staging"), 0);
}

#define TEST(name) \
	cmocka_unit_test_setup_teardown(name, fix_setup, fix_teardown)

int main(void)
{
	const struct CMUnitTest tests[] = {
		TEST(a_commit_is_whole_and_leaves_no_staging),
		TEST(a_taken_name_is_not_replaced),
		TEST(a_tag_protects_from_replacing),
		TEST(replace_takes_the_name_and_what_is_open_stays),
		TEST(a_run_and_a_checkpoint_never_share_a_name),
		TEST(an_abandoned_save_cannot_commit),
		TEST(a_failed_commit_may_be_tried_again),
		TEST(a_retransmitted_link_is_success),
		TEST(a_retransmitted_rename_is_success),
		TEST(of_two_saves_the_first_has_the_name),
		TEST(a_run_taken_away_meanwhile_is_made_again),
		TEST(links_of_others_prove_nothing),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
