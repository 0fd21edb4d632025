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

#include "crash_story.h"

enum { STEPS = 5 };

/* What was done, and how many changes had been noted when it had answered. */
struct step {
	const char *name;
	uint64_t seq;
	bool replace;
	size_t begin, end;
};

struct story {
	struct crash_story c; /* first */
	struct step steps[STEPS];
};

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

static void check_cut(struct crash_story *c, size_t cut, int policy)
{
	const struct story *t = (struct story *)c;
	struct ckpt_store *s;
	struct ckpt_err err = { 0 };
	int rc = ckpt_store_open(c->path, NULL, &s, &err);

	if (rc < 0 && cut >= t->c.inited)
		fail_msg("cut %zu, policy %d: %s", cut, policy, err.message);
	if (rc < 0) { /* init did not come to its end: again */
		assert_ok(ckpt_store_init(c->path, &err));
		assert_ok(ckpt_store_open(c->path, NULL, &s, &err));
	}
	for (size_t i = 0; i < STEPS; i++)
		check_name(t, s, cut, policy, t->steps[i].name);
	/* and life goes on, over whatever staging was left */
	if (cut % 5 == 0)
		assert_ok(fix_save(s, "after/1", 99, false, &err));
	ckpt_store_close(s);
}

static int record(void **state)
{
	static const struct step steps[STEPS] = {
		{ .name = "old", .seq = 1 },
		{ .name = "run/x/1", .seq = 2 },
		{ .name = "run/x/2", .seq = 3 },
		{ .name = "run/x/1", .seq = 4, .replace = true },
		{ .name = "fresh", .seq = 5, .replace = true },
	};
	struct ckpt_store *s;
	struct story *t = story_new(sizeof(*t), &s);
	struct ckpt_err err = { 0 };

	memcpy(t->steps, steps, sizeof(steps));
	for (size_t i = 0; i < STEPS; i++) {
		struct step *p = &t->steps[i];

		p->begin = t->c.log.note_count;
		assert_ok(fix_save(s, p->name, p->seq, p->replace, &err));
		p->end = t->c.log.note_count;
	}
	ckpt_store_close(s);
	assert_false(t->c.log.broken);
	/* the tool must see enough: folders, files, syncs */
	assert_true(t->c.inited > 12 && t->c.log.note_count > 100);
	t->c.seeds = 8;
	t->c.check = check_cut;
	*state = t;
	return 0;
}

static bool lost(struct crash_story *c, struct ckpt_store *s)
{
	const struct step *last = &((struct story *)c)->steps[STEPS - 1];

	return fix_whole(s, last->name, last->seq, NULL) != 0;
}

static void without_syncs_a_commit_is_lost(void **state)
{
	struct story *t = *state;

	assert_true(story_without_syncs(&t->c, 0, t->steps[STEPS - 1].end,
					lost) > 0);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		TEST_CUTS,
		cmocka_unit_test(without_syncs_a_commit_is_lost), /* last: spoils it */
	};

	return cmocka_run_group_tests(tests, record, story_forget);
}
