/* SPDX-License-Identifier: Apache-2.0 */
/*
 * test_edit.c - power is lost after each change of mv, cp, tag and rm.
 *
 * One story is recorded once, then every cut is replayed under every policy of
 * what survives (crash_log.h). S4: the store opens, what stood aside is whole;
 * a renamed checkpoint is under one name or the other; a fork is whole or
 * absent. S2, S3: what a call answered 0 to holds when only synced bytes and
 * names survive.
 */
#include "unit/verbs/store_fixture.h"

#include "crash_story.h"

enum { SAVED, RENAMED, FORKED, TAGGED, RETAGGED, REMOVED, STEPS };

struct story {
	struct crash_story c; /* first */
	size_t begin[STEPS], end[STEPS];
};

static int step(struct ckpt_store *s, int which, struct ckpt_err *err)
{
	switch (which) {
	case SAVED:
		return fix_save(s, "run/a", 2, false, err);
	case RENAMED:
		return ckpt_store_rename(s, "run/a", "new/y/b", err);
	case FORKED:
		return ckpt_store_fork(s, "new/y/b", "f/c", NULL, err);
	case TAGGED:
		return ckpt_tag_set(s, "best", "old", err);
	case RETAGGED:
		return ckpt_tag_set(s, "best", "new/y/b", err);
	default:
		return ckpt_store_remove(s, "f/c", false, err);
	}
}

static bool there(struct ckpt_store *s, const char *name)
{
	bool is_run = true;

	return cks_name_stat(s, name, &is_run, NULL, NULL) == 0 && !is_run;
}

static bool whole(struct ckpt_store *s, const char *name)
{
	struct ckpt_err err = { 0 };

	return fix_whole(s, name, 2, &err) == 0;
}

static bool is_fork(struct ckpt_store *s, const char *name)
{
	struct ckpt_checkpoint *c;
	uint8_t parent[16];
	struct ckpt_err err = { 0 };

	fix_uuid(parent, 2);
	if (ckpt_checkpoint_open(s, name, &c, &err) < 0)
		return false;
	bool yes = ckpt_checkpoint_info(c)->has_parent &&
		   memcmp(ckpt_checkpoint_info(c)->parent, parent, 16) == 0;

	ckpt_checkpoint_close(c);
	return yes;
}

/* NULL, or what is wrong at @cut. */
static const char *wrong(const struct story *t, struct ckpt_store *s,
			 size_t cut)
{
	CKB_FREE char *tag = NULL;
	struct ckpt_err err = { 0 };
	bool a = there(s, "run/a"), b = there(s, "new/y/b");
	bool c = there(s, "f/c");

	if (fix_whole(s, "old", 1, &err) < 0)
		return "what stood aside is hurt";
	if ((a && !whole(s, "run/a")) || (b && !whole(s, "new/y/b")) ||
	    (c && !is_fork(s, "f/c")))
		return "a checkpoint is there in part";
	if (cut >= t->end[SAVED] && !a && !b)
		return "a renamed checkpoint is lost";
	if (cut >= t->end[RENAMED] && (a || !b))
		return "a rename that was answered is undone";
	if (cut < t->begin[RENAMED] && b)
		return "a rename came before its time";
	if (cut >= t->end[FORKED] && cut < t->begin[REMOVED] && !c)
		return "a fork that was answered is lost";
	if (cut >= t->end[REMOVED] && c)
		return "what was removed is back";
	int rc = ckpt_tag_get(s, "best", &tag, &err);

	if (rc < 0 && rc != CKPT_ENOENT)
		return "a tag is there in part";
	if (rc < 0 && cut >= t->end[TAGGED])
		return "a tag that was set is lost";
	if (cut >= t->end[RETAGGED] && strcmp(tag, "new/y/b") != 0)
		return "a tag that was set anew is the old one";
	return NULL;
}

static void check_cut(struct crash_story *c, size_t cut, int policy)
{
	const struct story *t = (struct story *)c;
	struct ckpt_store *s;
	struct ckpt_err err = { 0 };

	assert_ok(ckpt_store_open(c->path, NULL, &s, &err));
	const char *what = wrong(t, s, cut);

	if (what)
		fail_msg("cut %zu, policy %d: %s", cut, policy, what);
	/* a rename that was cut is finished by the same call */
	if (there(s, "run/a") && there(s, "new/y/b")) {
		assert_ok(ckpt_store_rename(s, "run/a", "new/y/b", &err));
		assert_true(whole(s, "new/y/b"));
		assert_false(there(s, "run/a"));
	}
	ckpt_store_close(s);
}

static int record(void **state)
{
	struct ckpt_store *s;
	struct story *t = story_new(sizeof(*t), &s);
	struct ckpt_err err = { 0 };

	assert_ok(fix_save(s, "old", 1, false, &err));
	for (int i = 0; i < STEPS; i++) {
		t->begin[i] = t->c.log.note_count;
		assert_ok(step(s, i, &err));
		t->end[i] = t->c.log.note_count;
		assert_true(t->end[i] > t->begin[i] + 1);
	}
	ckpt_store_close(s);
	assert_false(t->c.log.broken);
	t->c.first_cut = t->begin[0];
	t->c.seeds = 6;
	t->c.check = check_cut;
	*state = t;
	return 0;
}

static bool lost(struct crash_story *c, struct ckpt_store *s)
{
	return wrong((struct story *)c, s, c->log.note_count) != NULL;
}

static void without_syncs_something_is_lost(void **state)
{
	struct story *t = *state;

	assert_true(story_without_syncs(&t->c, t->begin[0],
					t->c.log.note_count, lost) > 0);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		TEST_CUTS,
		cmocka_unit_test(without_syncs_something_is_lost), /* last */
	};

	return cmocka_run_group_tests(tests, record, story_forget);
}
