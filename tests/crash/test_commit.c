/* SPDX-License-Identifier: Apache-2.0 */
/*
 * test_commit.c - power is lost after each change of init, save and replace.
 *
 * The calls are recorded once; then every cut is replayed under every policy
 * of what survives (crash_log.h). S4: the store opens, or init works again;
 * older checkpoints are whole; the new one is whole or absent. S2, S3: what a
 * commit said 0 to is there even when only synced bytes and names survive.
 */
#include "unit/verbs/store_fixture.h"

#include "crash_log.h"

enum { SEEDS = 8, STEPS = 5 };

/* What was done, and how many changes had been noted when it had answered. */
struct step {
	const char *name;
	uint64_t seq;
	bool replace;
	size_t begin, end;
};

struct story {
	char dir[256];
	struct crash_log log;
	size_t inited;
	struct step steps[STEPS];
};

static int record(void **state)
{
	struct story *t = calloc(1, sizeof(*t));
	static const struct step steps[STEPS] = {
		{ .name = "old", .seq = 1 },
		{ .name = "run/x/1", .seq = 2 },
		{ .name = "run/x/2", .seq = 3 },
		{ .name = "run/x/1", .seq = 4, .replace = true },
		{ .name = "fresh", .seq = 5, .replace = true },
	};
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
	t->inited = t->log.note_count;
	assert_ok(cks_store_open_sys(&t->log.sys, path, NULL, &s, &err));
	memcpy(t->steps, steps, sizeof(steps));
	for (size_t i = 0; i < STEPS; i++) {
		struct step *p = &t->steps[i];

		p->begin = t->log.note_count;
		assert_ok(fix_save(s, p->name, p->seq, p->replace, &err));
		p->end = t->log.note_count;
	}
	ckpt_store_close(s);
	assert_false(t->log.broken);
	/* the tool must see enough: folders, files, syncs */
	assert_true(t->inited > 12 && t->log.note_count > 100);
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

/* The last step that had answered at @cut for this name, and the one under
 * way; NULL: none. */
static void expected(const struct story *t, size_t cut, const char *name,
		     const struct step **done, const struct step **doing)
{
	*done = *doing = NULL;
	for (size_t i = 0; i < STEPS; i++) {
		const struct step *p = &t->steps[i];

		if (strcmp(p->name, name) != 0)
			continue;
		if (p->end <= cut)
			*done = p;
		else if (p->begin <= cut)
			*doing = p;
	}
}

static void check_name(const struct story *t, struct ckpt_store *s, size_t cut,
		       int policy, const char *name)
{
	const struct step *done, *doing;
	struct ckpt_err err = { 0 };
	int rc;

	expected(t, cut, name, &done, &doing);
	if (doing) {
		rc = fix_whole(s, name, doing->seq, &err);
		/* S3: never the old and the new at once, never a part */
		if (rc == 0 || (rc == CKPT_ENOENT && !done))
			return;
	}
	rc = done ? fix_whole(s, name, done->seq, &err)
		  : fix_whole(s, name, 0, &err);
	if (rc != (done ? 0 : CKPT_ENOENT))
		fail_msg("cut %zu, policy %d, '%s': %d: %s", cut, policy, name,
			 rc, err.message);
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
	int rc = ckpt_store_open(path, NULL, &s, &err);

	if (rc < 0 && cut >= t->inited)
		fail_msg("cut %zu, policy %d: %s", cut, policy, err.message);
	if (rc < 0) { /* init did not come to its end: again */
		assert_ok(ckpt_store_init(path, &err));
		assert_ok(ckpt_store_open(path, NULL, &s, &err));
	}
	for (size_t i = 0; i < STEPS; i++)
		check_name(t, s, cut, policy, t->steps[i].name);
	/* and life goes on, over whatever staging was left */
	if (cut % 5 == 0)
		assert_ok(fix_save(s, "after/1", 99, false, &err));
	ckpt_store_close(s);
	fix_remove(world);
}

static void all_cuts(const struct story *t, int policy)
{
	for (size_t cut = 0; cut <= t->log.note_count; cut++)
		check_cut(t, cut, policy);
}

static void whole_or_absent_when_all_survives(void **state)
{
	all_cuts(*state, ALL);
}

static void whole_or_absent_when_only_synced_survives(void **state)
{
	all_cuts(*state, ONLY_SYNCED);
}

static void whole_or_absent_when_names_outlive_bytes(void **state)
{
	all_cuts(*state, ENTRIES);
}

static void whole_or_absent_when_bytes_outlive_names(void **state)
{
	all_cuts(*state, BYTES);
}

static void whole_or_absent_when_any_part_survives(void **state)
{
	for (int seed = 0; seed < SEEDS; seed++)
		all_cuts(*state, SOME + seed);
}

/* The tool itself must be able to find a fault: without syncs it must. */
static void without_syncs_a_commit_is_lost(void **state)
{
	struct story *t = *state;
	const struct step *last = &t->steps[STEPS - 1];
	size_t lost = 0;
	char world[300], path[320];

	snprintf(world, sizeof(world), "%s/after", t->dir);
	snprintf(path, sizeof(path), "%s/store", world);
	for (size_t i = 0; i < t->log.note_count; i++)
		if (t->log.notes[i].kind == NOTE_SYNC)
			t->log.notes[i].node = LOST;
	for (int seed = 0; seed < SEEDS; seed++) {
		struct ckpt_store *s;

		assert_int_equal(mkdir(world, 0777), 0);
		assert_true(crash_replay(&t->log, last->end, SOME + seed,
					 world));
		if (ckpt_store_open(path, NULL, &s, NULL) < 0) {
			lost++;
		} else {
			lost += fix_whole(s, last->name, last->seq, NULL) != 0;
			ckpt_store_close(s);
		}
		fix_remove(world);
	}
	assert_true(lost > 0);
}

#define TEST(name) cmocka_unit_test(name)

int main(void)
{
	const struct CMUnitTest tests[] = {
		TEST(whole_or_absent_when_all_survives),
		TEST(whole_or_absent_when_only_synced_survives),
		TEST(whole_or_absent_when_names_outlive_bytes),
		TEST(whole_or_absent_when_bytes_outlive_names),
		TEST(whole_or_absent_when_any_part_survives),
		TEST(without_syncs_a_commit_is_lost), /* last: spoils it */
	};

	return cmocka_run_group_tests(tests, record, forget);
}
