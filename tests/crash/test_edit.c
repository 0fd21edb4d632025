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

#include "crash_log.h"

enum { SEEDS = 6 };
enum { SAVED, RENAMED, FORKED, TAGGED, RETAGGED, REMOVED, STEPS };

struct story {
	char dir[256];
	struct crash_log log;
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

static int record(void **state)
{
	struct story *t = calloc(1, sizeof(*t));
	struct ckpt_store *s;
	struct ckpt_err err = { 0 };
	char path[300];

	assert_non_null(t);
	fix_folder(t->dir);
	snprintf(path, sizeof(path), "%s/world", t->dir);
	assert_int_equal(mkdir(path, 0777), 0);
	crash_begin(&t->log, path);
	snprintf(path, sizeof(path), "%s/world/store", t->dir);
	assert_ok(cks_store_init_sys(&t->log.sys, path, &err));
	assert_ok(cks_store_open_sys(&t->log.sys, path, NULL, &s, &err));
	assert_ok(fix_save(s, "old", 1, false, &err));
	for (int i = 0; i < STEPS; i++) {
		t->begin[i] = t->log.note_count;
		assert_ok(step(s, i, &err));
		t->end[i] = t->log.note_count;
		assert_true(t->end[i] > t->begin[i] + 1);
	}
	ckpt_store_close(s);
	assert_false(t->log.broken);
	*state = t;
	return 0;
}

static int forget(void **state)
{
	struct story *t = *state;

	crash_end(&t->log);
	fix_remove(t->dir);
	free(t);
	return 0;
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

static void check_cut(const struct story *t, size_t cut, int policy)
{
	char path[300], world[300];
	struct ckpt_store *s;
	struct ckpt_err err = { 0 };

	snprintf(world, sizeof(world), "%s/after", t->dir);
	snprintf(path, sizeof(path), "%s/after/store", t->dir);
	assert_int_equal(mkdir(world, 0777), 0);
	if (!crash_replay(&t->log, cut, policy, world))
		fail_msg("cut %zu, policy %d cannot be replayed", cut, policy);
	assert_ok(ckpt_store_open(path, NULL, &s, &err));
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
	fix_remove(world);
}

static void all_cuts(const struct story *t, int policy)
{
	for (size_t cut = t->begin[0]; cut <= t->log.note_count; cut++)
		check_cut(t, cut, policy);
}

static void when_all_survives(void **state)
{
	all_cuts(*state, ALL);
}

static void when_only_synced_survives(void **state)
{
	all_cuts(*state, ONLY_SYNCED);
}

static void when_names_outlive_bytes(void **state)
{
	all_cuts(*state, ENTRIES);
}

static void when_bytes_outlive_names(void **state)
{
	all_cuts(*state, BYTES);
}

static void when_any_part_survives(void **state)
{
	for (int seed = 0; seed < SEEDS; seed++)
		all_cuts(*state, SOME + seed);
}

/* The tool must be able to find a fault: without syncs it must. */
static void without_syncs_something_is_lost(void **state)
{
	struct story *t = *state;
	size_t lost = 0;
	char world[300], path[320];

	snprintf(world, sizeof(world), "%s/after", t->dir);
	snprintf(path, sizeof(path), "%s/store", world);
	for (size_t i = t->begin[0]; i < t->log.note_count; i++)
		if (t->log.notes[i].kind == NOTE_SYNC)
			t->log.notes[i].node = LOST;
	for (int seed = 0; seed < SEEDS; seed++) {
		struct ckpt_store *s;

		assert_int_equal(mkdir(world, 0777), 0);
		assert_true(crash_replay(&t->log, t->log.note_count,
					 SOME + seed, world));
		if (ckpt_store_open(path, NULL, &s, NULL) < 0) {
			lost++;
		} else {
			lost += wrong(t, s, t->log.note_count) != NULL;
			ckpt_store_close(s);
		}
		fix_remove(world);
	}
	assert_true(lost > 0);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(when_all_survives),
		cmocka_unit_test(when_only_synced_survives),
		cmocka_unit_test(when_names_outlive_bytes),
		cmocka_unit_test(when_bytes_outlive_names),
		cmocka_unit_test(when_any_part_survives),
		cmocka_unit_test(without_syncs_something_is_lost), /* last */
	};

	return cmocka_run_group_tests(tests, record, forget);
}
