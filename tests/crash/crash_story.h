/* SPDX-License-Identifier: Apache-2.0 */
/*
 * crash_story.h - a recorded story, and the tests that cut it everywhere.
 *
 * A test's state begins with a struct crash_story; its check looks at the store
 * that survived. TEST_CUTS are the tests: every cut from first_cut on, under
 * every policy of what survives (crash_log.h).
 */
#ifndef CRASH_STORY_H
#define CRASH_STORY_H

#include "asserts.h"
#include "crash_log.h"
#include "fixtures.h"
#include "verbs/store.h"

struct crash_story {
	char dir[256];
	struct crash_log log;
	char path[300];     /* of the store: recorded, then what survived */
	size_t inited;      /* notes when the store was made */
	size_t first_cut;
	int seeds;          /* of SOME */
	void (*check)(struct crash_story *story, size_t cut, int policy);
};

/* A story of @size bytes, recorded from the making of its store on. */
CRASH void *story_new(size_t size, struct ckpt_store **out)
{
	struct crash_story *c = calloc(1, size);
	struct ckpt_err err = { 0 };

	assert_non_null(c);
	fix_folder(c->dir);
	snprintf(c->path, sizeof(c->path), "%s/world", c->dir);
	assert_int_equal(mkdir(c->path, 0777), 0);
	crash_begin(&c->log, c->path);
	snprintf(c->path, sizeof(c->path), "%s/world/store", c->dir);
	assert_ok(cks_store_init_sys(&c->log.sys, c->path, &err));
	c->inited = c->log.note_count;
	assert_ok(cks_store_open_sys(&c->log.sys, c->path, NULL, out, &err));
	return c;
}

CRASH int story_forget(void **state)
{
	struct crash_story *c = *state;

	crash_end(&c->log);
	fix_remove(c->dir);
	free(c);
	return 0;
}

/* What survived, until story_fade(). */
CRASH void story_survive(struct crash_story *c, size_t cut, int policy)
{
	char world[300];

	snprintf(world, sizeof(world), "%s/after", c->dir);
	snprintf(c->path, sizeof(c->path), "%s/after/store", c->dir);
	assert_int_equal(mkdir(world, 0777), 0);
	if (!crash_replay(&c->log, cut, policy, world))
		fail_msg("cut %zu, policy %d cannot be replayed", cut, policy);
}

CRASH void story_fade(struct crash_story *c)
{
	char world[300];

	snprintf(world, sizeof(world), "%s/after", c->dir);
	fix_remove(world);
}

CRASH void story_cuts(struct crash_story *c, int policy)
{
	for (size_t cut = c->first_cut; cut <= c->log.note_count; cut++) {
		story_survive(c, cut, policy);
		c->check(c, cut, policy);
		story_fade(c);
	}
}

/* The tool must be able to find a fault: forget all syncs from @from on, and
 * count the seeds after which, at the end, @lost. Spoils the story. */
CRASH size_t story_without_syncs(struct crash_story *c, size_t from, size_t cut,
				 bool (*lost)(struct crash_story *story,
					      struct ckpt_store *store))
{
	size_t count = 0;

	for (size_t i = from; i < c->log.note_count; i++)
		if (c->log.notes[i].kind == NOTE_SYNC)
			c->log.notes[i].node = LOST;
	for (int seed = 0; seed < c->seeds; seed++) {
		struct ckpt_store *s;

		story_survive(c, cut, SOME + seed);
		if (ckpt_store_open(c->path, NULL, &s, NULL) < 0) {
			count++;
		} else {
			count += lost(c, s);
			ckpt_store_close(s);
		}
		story_fade(c);
	}
	return count;
}

CRASH void holds_when_all_survives(void **state)
{
	story_cuts(*state, ALL);
}

CRASH void holds_when_only_synced_survives(void **state)
{
	story_cuts(*state, ONLY_SYNCED);
}

CRASH void holds_when_names_outlive_bytes(void **state)
{
	story_cuts(*state, ENTRIES);
}

CRASH void holds_when_bytes_outlive_names(void **state)
{
	story_cuts(*state, BYTES);
}

CRASH void holds_when_any_part_survives(void **state)
{
	const struct crash_story *c = *state;

	for (int seed = 0; seed < c->seeds; seed++)
		story_cuts(*state, SOME + seed);
}

#define TEST_CUTS \
	cmocka_unit_test(holds_when_all_survives), \
	cmocka_unit_test(holds_when_only_synced_survives), \
	cmocka_unit_test(holds_when_names_outlive_bytes), \
	cmocka_unit_test(holds_when_bytes_outlive_names), \
	cmocka_unit_test(holds_when_any_part_survives)

#endif
