/* SPDX-License-Identifier: Apache-2.0 */
/*
 * test_save.c - power is lost after each change of saves through the writer.
 *
 * Four saves are recorded once: a first, one that shares a tensor with it, one
 * that replaces, one that fails half way. Then every cut is replayed under
 * every policy of what survives (crash_log.h). S4: the store opens, older
 * checkpoints read back whole, the new one is whole or absent. S2, S3: what
 * wait(CKPT_DURABLE) said 0 to is there even when only what was synced
 * survives. Then life goes on: the next save works, over whatever was left,
 * and a full check finds no damage.
 */
#include "contract/save_fixture.h"

#include "crash_story.h"

enum { STEPS = 4, SMALL = 3000, LARGE = 70000 };

/* What was done, and how many changes had been noted when it had answered. */
struct step {
	const char *name;
	uint32_t seed;
	bool replace, fails;
	size_t begin, end;
};

struct story {
	struct crash_story c; /* first */
	struct step steps[STEPS];
};

/* ---- saves ---- */

/* Two tensors: "own" follows from the seed, "shared" does not. A pack is full
 * after the first of them. */
static int save(struct ckpt_store *store, const struct step *p,
		struct ckpt_err *err)
{
	struct ckpt_writer_opts o = { .size = sizeof(o), .pack_bytes = 2000 };
	uint8_t *own = fix_bytes(SMALL, p->seed);
	uint8_t *shared = fix_bytes(LARGE, 7);
	struct watch w = { .data = shared, .bytes = LARGE,
			   .fail_rc = p->fails ? CKPT_EIO : 0 };
	struct ckpt_tensor_desc d = fix_desc("shared", CKPT_U8,
					     SHAPE(1, LARGE));
	struct ckpt_provider provider = watch_provider(&w);
	struct ckpt_writer *writer;
	uint32_t item;

	assert_int_equal(ckpt_writer_open(store, &o, &writer, err), 0);
	struct ckpt_save *s = fix_begin(writer, p->name, p->replace, &item);

	fix_tensor(s, item, "own", CKPT_U8, SHAPE(1, SMALL), own, SMALL);
	assert_int_equal(ckpt_save_tensor(s, item, &d, &provider, err), 0);
	int rc = fix_finish(s, err);

	ckpt_writer_close(writer);
	free(own);
	free(shared);
	return rc;
}

/* 0: there, whole and @seed's. CKPT_ENOENT: absent. Else another's. */
static int whole(struct ckpt_store *store, const char *name, uint32_t seed,
		 struct ckpt_err *err)
{
	static uint8_t have[LARGE];
	struct ckpt_checkpoint *c;
	int rc = ckpt_checkpoint_open(store, name, &c, err);

	if (rc < 0)
		return rc;
	uint8_t *want[2] = { fix_bytes(SMALL, seed), fix_bytes(LARGE, 7) };

	for (int i = 0; i < 2; i++) {
		const struct ckpt_tensor_info *t =
			fix_find(c, "model", i ? "shared" : "own");

		if (rc == 0)
			rc = ckpt_read_bytes(c, t, 0, t->bytes, have, err);
		if (rc == 0 && memcmp(have, want[i], t->bytes) != 0)
			rc = CKPT_ESTALE;
		free(want[i]);
	}
	ckpt_checkpoint_close(c);
	return rc;
}

/* ---- after the cut ---- */

/* The last step that had answered 0 at @cut for this name, and the one under
 * way; NULL: none. */
static void expected(const struct story *t, size_t cut, const char *name,
		     const struct step **done, const struct step **doing)
{
	*done = *doing = NULL;
	for (size_t i = 0; i < STEPS; i++) {
		const struct step *p = &t->steps[i];

		if (strcmp(p->name, name) != 0 || p->fails)
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
		rc = whole(s, name, doing->seed, &err);
		if (rc == 0 || (rc == CKPT_ENOENT && !done))
			return;
	}
	rc = whole(s, name, done ? done->seed : 0, &err);
	if (rc != (done ? 0 : CKPT_ENOENT))
		fail_msg("cut %zu, policy %d, '%s': %d: %s", cut, policy, name,
			 rc, err.message);
}

static void on_damage(void *ctx, const struct ckpt_damage *damage)
{
	(void)ctx;
	print_message("%s: %s\n", damage->checkpoint ? damage->checkpoint : "",
		      damage->what);
}

/* Save again, what was lost and what is new; then look at every byte. */
static void go_on(struct ckpt_store *s)
{
	static const struct step again[] = {
		{ .name = "after/1", .seed = 9 },
		{ .name = "run/x/2", .seed = 2, .replace = true },
	};
	struct ckpt_check_opts o = { .size = sizeof(o),
				     .depth = CKPT_CHECK_FULL,
				     .on_damage = on_damage };
	struct ckpt_check_result found;
	struct ckpt_err err = { 0 };

	for (size_t i = 0; i < CKB_ARRAY_LEN(again); i++) {
		assert_ok(save(s, &again[i], &err));
		assert_ok(whole(s, again[i].name, again[i].seed, &err));
	}
	assert_ok(ckpt_store_check(s, NULL, &o, &found, &err));
	assert_int_equal(found.damage_count, 0);
}

static void check_cut(struct crash_story *c, size_t cut, int policy)
{
	const struct story *t = (struct story *)c;
	struct ckpt_store *s;
	struct ckpt_err err = { 0 };

	if (ckpt_store_open(c->path, NULL, &s, &err) < 0)
		fail_msg("cut %zu, policy %d: %s", cut, policy, err.message);
	for (size_t i = 0; i < STEPS; i++)
		check_name(t, s, cut, policy, t->steps[i].name);
	if (cut % 7 == 0 || cut == t->c.log.note_count)
		go_on(s);
	ckpt_store_close(s);
}

static int record(void **state)
{
	static const struct step steps[STEPS] = {
		{ .name = "old/1", .seed = 1 },
		{ .name = "run/x/2", .seed = 2 },
		{ .name = "old/1", .seed = 3, .replace = true },
		{ .name = "run/y", .seed = 4, .fails = true },
	};
	struct ckpt_store *s;
	struct story *t = story_new(sizeof(*t), &s);
	struct ckpt_err err = { 0 };

	memcpy(t->steps, steps, sizeof(steps));
	for (size_t i = 0; i < STEPS; i++) {
		struct step *p = &t->steps[i];

		p->begin = t->c.log.note_count;
		assert_int_equal(save(s, p, &err), p->fails ? CKPT_EIO : 0);
		p->end = t->c.log.note_count;
	}
	ckpt_store_close(s);
	assert_false(t->c.log.broken);
	/* the tool must see enough: folders, packs, syncs, links */
	assert_true(t->c.log.note_count > t->steps[0].begin + 100);
	/* what comes before is test_commit.c's */
	t->c.first_cut = t->steps[0].begin;
	t->c.seeds = 4;
	t->c.check = check_cut;
	*state = t;
	return 0;
}

/* The tool must be able to find a fault: when the syncs of packs never got
 * there, a checkpoint that was said to be durable is damaged. */
static void without_the_syncs_of_packs_a_checkpoint_is_damaged(void **state)
{
	struct story *t = *state;
	const struct step *last = &t->steps[2];
	struct ckpt_store *s;
	struct ckpt_err err = { 0 };

	for (size_t i = 0; i < t->c.log.note_count; i++)
		for (size_t k = 0; t->c.log.notes[i].kind == NOTE_SYNC &&
				   k < i; k++)
			if (t->c.log.notes[k].kind == NOTE_ENTRY &&
			    t->c.log.notes[k].child == t->c.log.notes[i].node &&
			    strstr(t->c.log.notes[k].name, ".pack"))
				t->c.log.notes[i].node = LOST;
	story_survive(&t->c, last->end, ONLY_SYNCED);
	assert_ok(ckpt_store_open(t->c.path, NULL, &s, &err));
	assert_true(whole(s, last->name, last->seed, &err) < 0);
	ckpt_store_close(s);
	story_fade(&t->c);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		TEST_CUTS,
		/* last: it spoils the story */
		cmocka_unit_test(without_the_syncs_of_packs_a_checkpoint_is_damaged),
	};

	return cmocka_run_group_tests(tests, record, story_forget);
}
