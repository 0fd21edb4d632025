/* SPDX-License-Identifier: Apache-2.0 */
/*
 * test_entries.c - the table of checkpoints: right with a good index, an old
 * one, a lying one and none; and quick when the index is good: then no
 * manifest is opened.
 */
#include <fcntl.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <sqlite3.h>

#include "asserts.h"
#include "fault_sys.h"
#include "mkstore.h"
#include "verbs/uses.h"

/* Raw, one chunk each: 1000, 2000, 4000 bytes. */
static const struct mk_tensor one = { .name = "one", .ndim = 1,
				      .dim = { 1000 }, .seed = 1 };
static const struct mk_tensor two = { .name = "two", .ndim = 1,
				      .dim = { 2000 }, .seed = 2 };
static const struct mk_tensor four = { .name = "four", .ndim = 1,
				       .dim = { 4000 }, .seed = 4 };

static int setup(void **state)
{
	struct mkstore *mk = calloc(1, sizeof(*mk));
	const struct mk_opts opts = { .reuse = true };
	struct mk_tensor ab[] = { one, two }, bc[] = { two, four };
	struct ckpt_err err = { 0 };

	assert_non_null(mk);
	assert_ok(mkstore_new(mk, 0, &err));
	assert_ok(mk_save(mk, "run/a", ab, 2, &opts, &err));
	assert_ok(mk_save(mk, "run/b", bc, 2, &opts, &err));
	assert_ok(mk_save(mk, "c", &four, 1, &opts, &err));
	*state = mk;
	return 0;
}

static int teardown(void **state)
{
	mkstore_free(*state);
	free(*state);
	return 0;
}

static int take(void *ctx, const struct ckpt_entry *e)
{
	char *text = ctx;
	size_t len = strlen(text);

	snprintf(text + len, 400 - len, "%s%s %d %d %d %d; ", e->name,
		 e->damage ? "!" : "", (int)e->seq, (int)e->bytes,
		 (int)e->stored_bytes, (int)e->own_bytes);
	return 0;
}

static const char *table(struct ckpt_store *s, const char *run)
{
	static char text[400];
	const struct ckpt_entries_opts opts = {
		.size = sizeof(opts), .run = run,
		.flags = CKPT_ENTRIES_SIZES | CKPT_ENTRIES_OWN,
	};
	struct ckpt_err err = { 0 };

	text[0] = '\0';
	assert_ok(ckpt_store_entries(s, &opts, take, text, &err));
	return text;
}

/* One row of the index, as SQL sees it. */
static void sql(const struct mkstore *mk, const char *text)
{
	char path[600];
	sqlite3 *db = NULL;
	char *why = NULL;

	snprintf(path, sizeof(path), "%s/index.db", mk->path);
	assert_int_equal(sqlite3_open(path, &db), SQLITE_OK);
	if (sqlite3_exec(db, text, NULL, NULL, &why) != SQLITE_OK)
		fail_msg("%s: %s", text, why);
	sqlite3_close(db);
}

static void reindex(struct mkstore *mk)
{
	struct ckpt_reindex_result r;
	struct ckpt_err err = { 0 };

	assert_ok(ckpt_store_reindex(mk->store, &r, &err));
}

/* seq, raw, stored, own: by hand from the three tensors */
#define ALL "c 3 4000 4000 0; run/a 1 3000 3000 1000; run/b 2 6000 6000 0; "

static void the_table_is_the_same_with_and_without_an_index(void **state)
{
	struct mkstore *mk = *state;

	assert_string_equal(table(mk->store, NULL), ALL);
	reindex(mk);
	assert_string_equal(table(mk->store, NULL), ALL);
	assert_string_equal(table(mk->store, "run"),
			    "run/a 1 3000 3000 1000; run/b 2 6000 6000 0; ");
}

static void a_run_that_is_none_is_named(void **state)
{
	struct mkstore *mk = *state;
	struct ckpt_entries_opts opts = { .size = sizeof(opts) };
	struct ckpt_err err = { 0 };
	char text[400] = "";

	for (int i = 0; i < 2; i++) {
		opts.run = i ? "c" : "nope";
		assert_int_equal(ckpt_store_entries(mk->store, &opts, take,
						    text, &err), CKPT_ENOENT);
		assert_non_null(strstr(err.message, opts.run));
	}
}

/* How many files are opened for a table, a last seq? */
static int opens(struct mkstore *mk, bool seq_only)
{
	struct fault_sys f;
	struct ckpt_store *s;
	struct ckpt_err err = { 0 };
	uint64_t seq = 0;

	fault_init(&f);
	f.kinds = FAULT_BIT(FAULT_READ);
	assert_ok(cks_store_open_sys(&f.sys, mk->path, NULL, &s, &err));
	int before = atomic_load(&f.calls);

	if (seq_only) {
		assert_ok(cks_store_last_seq(s, &seq, &err));
		assert_int_equal(seq, 3);
	} else {
		assert_string_equal(table(s, NULL), ALL);
	}
	int n = atomic_load(&f.calls) - before;

	ckpt_store_close(s);
	return n;
}

static void a_good_index_saves_every_manifest(void **state)
{
	struct mkstore *mk = *state;

	assert_true(opens(mk, true) >= 3);
	assert_true(opens(mk, false) >= 3);
	reindex(mk);
	assert_int_equal(opens(mk, true), 0);
	assert_int_equal(opens(mk, false), 0);
}

static void a_lying_index_changes_nothing(void **state)
{
	static const char *const lies[] = {
		"DELETE FROM checkpoint WHERE name='c'",
		"UPDATE checkpoint SET seq=99 WHERE name='c'",
		"UPDATE checkpoint SET name='d' WHERE name='c'",
		"UPDATE checkpoint SET ino=ino+1",
		"UPDATE checkpoint SET size=size+4096 WHERE name='run/a'",
		"UPDATE checkpoint SET mtime_ns=mtime_ns-1",
		"UPDATE checkpoint SET stored=1",
		"DELETE FROM meta WHERE key='exact'",
		"UPDATE meta SET value=x'00' WHERE key='exact'",
		"DROP TABLE checkpoint",
		"DROP TABLE used",
		"UPDATE meta SET value=zeroblob(16) WHERE key='store'",
		"PRAGMA user_version=1",
		"PRAGMA user_version=3",
	};
	struct mkstore *mk = *state;
	struct ckpt_err err = { 0 };
	uint64_t seq = 0;

	for (size_t i = 0; i < CKB_ARRAY_LEN(lies); i++) {
		reindex(mk);
		sql(mk, lies[i]);
		assert_string_equal(table(mk->store, NULL), ALL);
		assert_ok(cks_store_last_seq(mk->store, &seq, &err));
		assert_int_equal(seq, 3);
	}
}

static void what_changed_behind_the_index_is_seen(void **state)
{
	struct mkstore *mk = *state;
	const struct mk_opts opts = { .reuse = true };
	struct ckpt_err err = { 0 };
	char path[600], to[600];

	reindex(mk);
	/* saved without telling the index */
	assert_ok(mk_save(mk, "run/new", &one, 1, &opts, &err));
	assert_string_equal(table(mk->store, NULL),
			    "c 3 4000 4000 0; run/a 1 3000 3000 0; run/b 2 "
			    "6000 6000 0; run/new 4 1000 1000 0; ");
	/* removed and renamed by hand */
	snprintf(path, sizeof(path), "%s/checkpoints/run/new", mk->path);
	assert_int_equal(unlink(path), 0);
	assert_string_equal(table(mk->store, NULL), ALL);
	snprintf(path, sizeof(path), "%s/checkpoints/run/b", mk->path);
	assert_int_equal(unlink(path), 0);
	assert_string_equal(table(mk->store, NULL),
			    "c 3 4000 4000 4000; run/a 1 3000 3000 3000; ");
	snprintf(path, sizeof(path), "%s/checkpoints/run/a", mk->path);
	snprintf(to, sizeof(to), "%s/checkpoints/z", mk->path);
	assert_int_equal(rename(path, to), 0);
	assert_string_equal(table(mk->store, NULL),
			    "c 3 4000 4000 4000; z 1 3000 3000 3000; ");
}

static void a_damaged_manifest_is_an_entry(void **state)
{
	struct mkstore *mk = *state;
	char path[600];

	snprintf(path, sizeof(path), "%s/checkpoints/run/b", mk->path);
	assert_int_equal(truncate(path, 5000), 0);
	for (int i = 0; i < 2; i++) {
		assert_string_equal(table(mk->store, NULL),
				    "c 3 4000 4000 4000; run/a 1 3000 3000 "
				    "3000; run/b! 0 0 0 0; ");
		reindex(mk);
	}
}

/* rm, mv and cp tell the index: its own bytes stay right without reading. */
static void verbs_keep_the_index_warm(void **state)
{
	struct mkstore *mk = *state;
	struct ckpt_err err = { 0 };

	reindex(mk);
	assert_ok(ckpt_store_rename(mk->store, "c", "run/c", &err));
	assert_ok(ckpt_store_fork(mk->store, "run/a", "f", NULL, &err));
	assert_ok(ckpt_store_remove(mk->store, "run/b", false, &err));

	struct fault_sys f;
	struct ckpt_store *s;

	fault_init(&f);
	f.kinds = FAULT_BIT(FAULT_READ);
	assert_ok(cks_store_open_sys(&f.sys, mk->path, NULL, &s, &err));
	int before = atomic_load(&f.calls);

	assert_string_equal(table(s, NULL),
			    "f 4 3000 3000 0; run/a 1 3000 3000 0; run/c 3 "
			    "4000 4000 4000; ");
	assert_int_equal(atomic_load(&f.calls), before);
	ckpt_store_close(s);
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, setup, teardown)

int main(void)
{
	const struct CMUnitTest tests[] = {
		TEST(the_table_is_the_same_with_and_without_an_index),
		TEST(a_run_that_is_none_is_named),
		TEST(a_good_index_saves_every_manifest),
		TEST(a_lying_index_changes_nothing),
		TEST(what_changed_behind_the_index_is_seen),
		TEST(a_damaged_manifest_is_an_entry),
		TEST(verbs_keep_the_index_warm),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
