/* SPDX-License-Identifier: Apache-2.0 */
/* test_index.c - the cache from digest to place: what it knows it answers
 * right, and whatever is wrong with the file it counts as absent. */
#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <sqlite3.h>

#include "asserts.h"
#include "catalog/index.h"
#include "fixtures.h"

static const uint8_t store_uuid[16] = { 1, 2, 3 };
static const uint8_t other_store[16] = { 3, 2, 1 };

struct fix {
	char *dir;
	char path[400];
	struct ckq_index *ix; /* open for writing */
};

static int fix_setup(void **state)
{
	struct fix *f = calloc(1, sizeof(*f));
	struct ckpt_err err = { 0 };

	assert_non_null(f);
	f->dir = make_folder();
	snprintf(f->path, sizeof(f->path), "%s/index.db", f->dir);
	assert_ok(ckq_index_open(f->path, store_uuid, true, &f->ix, &err));
	*state = f;
	return 0;
}

static int fix_teardown(void **state)
{
	struct fix *f = *state;

	ckq_index_close(f->ix);
	remove_folder(f->dir);
	free(f);
	return 0;
}

static void digest_of(uint8_t digest[32], unsigned i)
{
	memset(digest, 0, 32);
	for (int b = 0; b < 4; b++)
		digest[b] = digest[28 + b] = (uint8_t)(i * 2654435761u >>
						       8 * b);
}

static struct ckq_place place_of(unsigned i)
{
	struct ckq_place p = {
		.pack = { (uint8_t)(i / 100), 0x50 }, .off = 64 + 4096ull * i,
		.stored_len = 1ull << 33 | i, .head_len = 104,
		.raw_len = 8u << 20, .codec = (uint16_t)(i % 2),
	};

	return p;
}

static void put_range(struct ckq_index *ix, unsigned from, unsigned to,
		      bool keep)
{
	struct ckpt_err err = { 0 };
	uint8_t digest[32];

	assert_ok(ckq_index_begin(ix, false, &err));
	for (unsigned i = from; i < to; i++) {
		struct ckq_place p = place_of(i);

		digest_of(digest, i);
		assert_ok(ckq_index_put(ix, digest, &p, &err));
	}
	assert_ok(ckq_index_end(ix, keep, &err));
}

static bool knows(struct ckq_index *ix, unsigned i)
{
	struct ckq_place have, want = place_of(i);
	struct ckpt_err err = { 0 };
	uint8_t digest[32];

	digest_of(digest, i);
	int rc = ckq_index_find(ix, digest, &have, &err);

	if (rc == CKPT_ENOENT) {
		assert_string_equal(err.message, ""); /* an answer */
		return false;
	}
	assert_int_equal(rc, 0);
	assert_memory_equal(have.pack, want.pack, 16);
	assert_int_equal(have.off, want.off);
	assert_int_equal(have.stored_len, want.stored_len);
	assert_int_equal(have.raw_len, want.raw_len);
	assert_int_equal(have.head_len, want.head_len);
	assert_int_equal(have.codec, want.codec);
	return true;
}

static void reopen(struct fix *f, const uint8_t uuid[16], bool write)
{
	struct ckpt_err err = { 0 };

	ckq_index_close(f->ix);
	assert_ok(ckq_index_open(f->path, uuid, write, &f->ix, &err));
}

static void what_was_put_is_found_also_after_reopen(void **state)
{
	struct fix *f = *state;

	assert_false(knows(f->ix, 5));
	put_range(f->ix, 0, 500, true);
	for (int open = 0; open < 3; open++) {
		for (unsigned i = 0; i < 500; i++)
			assert_true(knows(f->ix, i));
		assert_false(knows(f->ix, 500));
		reopen(f, store_uuid, open == 1); /* read, then write */
	}
}

static void what_is_not_kept_is_gone(void **state)
{
	struct fix *f = *state;
	struct ckpt_err err = { 0 };

	put_range(f->ix, 0, 10, true);
	put_range(f->ix, 10, 20, false);
	assert_true(knows(f->ix, 9));
	assert_false(knows(f->ix, 10));
	/* after a rollback pack numbers are looked up anew */
	put_range(f->ix, 10, 20, true);
	assert_true(knows(f->ix, 15));
	/* wipe, then give up: all is as before */
	assert_ok(ckq_index_begin(f->ix, true, &err));
	assert_false(knows(f->ix, 9));
	assert_ok(ckq_index_end(f->ix, false, &err));
	assert_true(knows(f->ix, 9));
	/* wipe for good */
	assert_ok(ckq_index_begin(f->ix, true, &err));
	assert_ok(ckq_index_end(f->ix, true, &err));
	assert_false(knows(f->ix, 9));
}

static void a_later_place_replaces_an_older_one(void **state)
{
	struct fix *f = *state;
	struct ckpt_err err = { 0 };
	struct ckq_place p = place_of(3), have;
	uint8_t digest[32];

	put_range(f->ix, 0, 10, true);
	digest_of(digest, 3);
	p.off = 999936;
	p.pack[0] = 0xff;
	assert_ok(ckq_index_begin(f->ix, false, &err));
	assert_ok(ckq_index_put(f->ix, digest, &p, &err));
	assert_ok(ckq_index_end(f->ix, true, &err));
	assert_ok(ckq_index_find(f->ix, digest, &have, &err));
	assert_int_equal(have.off, 999936);
	assert_int_equal(have.pack[0], 0xff);
}

static void begin_and_end_must_pair(void **state)
{
	struct fix *f = *state;
	struct ckpt_err err = { 0 };

	assert_int_equal(ckq_index_end(f->ix, true, &err), CKPT_EIO);
	assert_ok(ckq_index_begin(f->ix, false, &err));
	assert_int_equal(ckq_index_begin(f->ix, false, &err), CKPT_EIO);
	/* whoever erred, the index serves on */
	put_range(f->ix, 0, 3, true);
	assert_true(knows(f->ix, 2));
}

/* ---- files that are no index of ours ---- */

static void an_absent_index_is_made_only_by_writers(void **state)
{
	struct fix *f = *state;
	struct ckq_index *ix = (struct ckq_index *)1;
	struct ckpt_err err = { 0 };
	char path[420];

	snprintf(path, sizeof(path), "%s/other.db", f->dir);
	assert_int_equal(ckq_index_open(path, store_uuid, false, &ix, &err),
			 CKPT_ENOENT);
	assert_null(ix);
	assert_string_equal(err.message, "");
	assert_int_equal(access(path, F_OK), -1);
	snprintf(path, sizeof(path), "%s/no/index.db", f->dir);
	assert_int_equal(ckq_index_open(path, store_uuid, true, &ix, &err),
			 CKPT_ENOENT);
	assert_null(ix);
}

static void rubbish(const char *path, int kind)
{
	sqlite3 *db = NULL;
	FILE *file;

	switch (kind) {
	case 0: /* noise */
		file = fopen(path, "w");
		for (int i = 0; i < 20000; i++)
			fputc(i * 7919 >> 3 & 0xff, file);
		fclose(file);
		break;
	case 1: /* somebody's database */
	case 2: /* one that claims to be an index, with other tables */
		assert_int_equal(sqlite3_open(path, &db), SQLITE_OK);
		assert_int_equal(sqlite3_exec(
					 db, kind == 1
					 ? "CREATE TABLE mine(a)"
					 : "CREATE TABLE meta(key, value);"
					   "INSERT INTO meta VALUES('store', "
					   "x'01020300000000000000000000000000'"
					   "); PRAGMA application_id=1667986537"
					   "; PRAGMA user_version=1",
					 NULL, NULL, NULL), SQLITE_OK);
		sqlite3_close(db);
		break;
	case 3: /* a later schema of ours */
		assert_int_equal(sqlite3_open(path, &db), SQLITE_OK);
		assert_int_equal(sqlite3_exec(db, "PRAGMA user_version=99",
					      NULL, NULL, NULL), SQLITE_OK);
		sqlite3_close(db);
		break;
	default: /* the first page damaged */
		file = fopen(path, "r+");
		fseek(file, 100, SEEK_SET);
		fwrite("\xff\xff\xff\xff\xff\xff\xff\xff", 8, 1, file);
		fclose(file);
	}
}

static void what_is_no_index_of_ours_is_made_anew(void **state)
{
	struct fix *f = *state;
	struct ckpt_err err = { 0 };

	for (int kind = 0; kind < 5; kind++) {
		put_range(f->ix, 0, 10, true);
		ckq_index_close(f->ix);
		f->ix = NULL;
		if (kind < 3)
			assert_ok(ckq_index_remove(f->path, &err));
		rubbish(f->path, kind);
		/* a reader has none, and leaves the file alone */
		assert_int_equal(ckq_index_open(f->path, store_uuid, false,
						&f->ix, &err), CKPT_ENOENT);
		assert_int_equal(access(f->path, F_OK), 0);
		assert_ok(ckq_index_open(f->path, store_uuid, true, &f->ix,
					 &err));
		assert_false(knows(f->ix, 3));
		put_range(f->ix, 0, 10, true);
		assert_true(knows(f->ix, 3));
	}
}

/* A link in its place is replaced; what it leads to, a good index even, is
 * left alone. */
static void an_index_behind_a_link_is_not_used(void **state)
{
	struct fix *f = *state;
	struct ckpt_err err = { 0 };
	char other[sizeof(f->path) + 8];
	struct stat st;

	put_range(f->ix, 0, 10, true);
	ckq_index_close(f->ix);
	f->ix = NULL;
	snprintf(other, sizeof(other), "%s.other", f->path);
	assert_int_equal(rename(f->path, other), 0);
	assert_int_equal(symlink(other, f->path), 0);
	assert_int_equal(ckq_index_open(f->path, store_uuid, false, &f->ix,
					&err), CKPT_ENOENT);
	assert_ok(ckq_index_open(f->path, store_uuid, true, &f->ix, &err));
	assert_false(knows(f->ix, 3));
	assert_int_equal(lstat(f->path, &st), 0);
	assert_true(S_ISREG(st.st_mode));
	ckq_index_close(f->ix);
	assert_int_equal(rename(other, f->path), 0);
	f->ix = NULL;
	assert_ok(ckq_index_open(f->path, store_uuid, true, &f->ix, &err));
	assert_true(knows(f->ix, 3));
}

static void another_stores_index_is_not_used(void **state)
{
	struct fix *f = *state;
	struct ckq_index *ix = NULL;
	struct ckpt_err err = { 0 };

	put_range(f->ix, 0, 10, true);
	ckq_index_close(f->ix);
	f->ix = NULL;
	assert_int_equal(ckq_index_open(f->path, other_store, false, &ix,
					&err), CKPT_ENOENT);
	assert_ok(ckq_index_open(f->path, other_store, true, &f->ix, &err));
	assert_false(knows(f->ix, 3));
	reopen(f, other_store, false);
}

/* sql-04: damage deep in the file shows when it is met; it is an error then,
 * never a wrong answer, and gone at the next open. */
static void damage_met_under_way_heals_at_the_next_open(void **state)
{
	struct fix *f = *state;
	struct ckpt_err err = { 0 };
	struct ckq_place p;
	uint8_t digest[32];
	int failed = 0;

	put_range(f->ix, 0, 5000, true);
	reopen(f, store_uuid, true);
	ckq_index_close(f->ix); /* the WAL is folded in */
	f->ix = NULL;

	FILE *file = fopen(f->path, "r+");

	fseek(file, 0, SEEK_END);
	long size = ftell(file);

	for (long at = 5 * 4096; at < size; at += 4096) {
		fseek(file, at, SEEK_SET);
		fwrite("rubbish where a b-tree page began", 33, 1, file);
	}
	fclose(file);
	assert_ok(ckq_index_open(f->path, store_uuid, true, &f->ix, &err));
	for (unsigned i = 0; i < 5000; i++) {
		digest_of(digest, i);
		int rc = ckq_index_find(f->ix, digest, &p, &err);

		assert_true(rc == 0 || rc == CKPT_ENOENT ||
			    rc == CKPT_ECORRUPT);
		failed += rc == CKPT_ECORRUPT;
	}
	assert_true(failed > 0);
	reopen(f, store_uuid, true);
	assert_false(knows(f->ix, 3));
	put_range(f->ix, 0, 10, true);
	assert_true(knows(f->ix, 3));
}

static void remove_takes_its_companions_too(void **state)
{
	struct fix *f = *state;
	struct ckpt_err err = { 0 };
	static const char *const ends[] = { "", "-wal", "-shm" };

	put_range(f->ix, 0, 10, true);
	assert_ok(ckq_index_remove(f->path, &err));
	for (int i = 0; i < 3; i++) {
		char path[420];

		snprintf(path, sizeof(path), "%s%s", f->path, ends[i]);
		assert_int_equal(access(path, F_OK), -1);
	}
	assert_ok(ckq_index_remove(f->path, &err)); /* nothing there: fine */
}

/* ---- several at once ---- */

struct reader {
	struct fix *f;
	struct ckq_index *ix;
	bool wrong;
};

static void *look_up(void *arg)
{
	struct reader *r = arg;
	uint8_t digest[32];

	for (unsigned n = 0; n < 3000; n++) {
		struct ckq_place have, want = place_of(n % 300);

		digest_of(digest, n % 300);
		int rc = ckq_index_find(r->ix, digest, &have, NULL);

		if (rc != 0 || have.off != want.off ||
		    memcmp(have.pack, want.pack, 16) != 0)
			r->wrong = true;
	}
	return NULL;
}

static void threads_look_up_while_another_connection_writes(void **state)
{
	struct fix *f = *state;
	struct ckpt_err err = { 0 };
	struct ckq_index *second = NULL;
	struct reader r[3];
	pthread_t threads[3];

	put_range(f->ix, 0, 300, true);
	assert_ok(ckq_index_open(f->path, store_uuid, true, &second, &err));
	for (int i = 0; i < 3; i++) {
		r[i] = (struct reader){ .f = f, .ix = f->ix };
		assert_int_equal(pthread_create(&threads[i], NULL, look_up,
						&r[i]), 0);
	}
	for (unsigned i = 1; i < 6; i++)
		put_range(second, 300 * i, 300 * i + 300, true);
	for (int i = 0; i < 3; i++)
		pthread_join(threads[i], NULL);
	for (int i = 0; i < 3; i++)
		assert_false(r[i].wrong);
	assert_true(knows(f->ix, 1799));
	ckq_index_close(second);
}

static void *open_it(void *arg)
{
	struct reader *r = arg;

	r->wrong = ckq_index_open(r->f->path, store_uuid, true, &r->ix,
				  NULL) != 0;
	return NULL;
}

static void writers_that_make_it_at_once_agree(void **state)
{
	struct fix *f = *state;
	struct ckpt_err err = { 0 };

	for (int turn = 0; turn < 10; turn++) {
		struct reader r[4];
		pthread_t threads[4];

		ckq_index_close(f->ix);
		f->ix = NULL;
		assert_ok(ckq_index_remove(f->path, &err));
		for (int i = 0; i < 4; i++) {
			r[i] = (struct reader){ .f = f };
			assert_int_equal(pthread_create(&threads[i], NULL,
							open_it, &r[i]), 0);
		}
		for (int i = 0; i < 4; i++)
			pthread_join(threads[i], NULL);
		for (int i = 0; i < 4; i++) {
			assert_false(r[i].wrong);
			put_range(r[i].ix, 10u * i, 10u * i + 10, true);
		}
		for (int i = 0; i < 4; i++)
			assert_true(knows(r[3 - i].ix, 10u * i));
		for (int i = 0; i < 4; i++)
			ckq_index_close(r[i].ix);
		assert_ok(ckq_index_open(f->path, store_uuid, true, &f->ix,
					 &err));
		assert_true(knows(f->ix, 35));
	}
}

/* ---- the list of checkpoints ---- */

struct listed {
	char text[400]; /* "name:own " each */
	bool exact;
};

static int take(void *ctx, const struct ckq_row *row)
{
	struct listed *l = ctx;
	size_t len = strlen(l->text);

	snprintf(l->text + len, sizeof(l->text) - len, "%s:%d ", row->name,
		 (int)row->own);
	return 0;
}

static struct listed listed(struct fix *f)
{
	struct listed l = { 0 };
	struct ckpt_err err = { 0 };

	assert_ok(ckq_index_list(f->ix, take, &l, &l.exact, &err));
	return l;
}

/* Uses [from, to) of pack 1: place i has 2^i bytes. */
static size_t uses_of(struct ckq_use *uses, unsigned from, unsigned to)
{
	for (unsigned i = from; i < to; i++)
		uses[i - from] = (struct ckq_use){ { 1 }, 64 + 8 * i,
						   1ull << i };
	return to - from;
}

static struct ckq_row row_of(const char *name, unsigned ino)
{
	return (struct ckq_row){ .name = name, .ino = ino, .size = 4096,
				 .mtime_ns = 5, .uuid = { 7 }, .generation = 1,
				 .seq = ino, .metrics = "{}", .bytes = 1 << 20,
				 .stored = 1 << 20 };
}

static void put_row(struct fix *f, const char *name, unsigned ino,
		    unsigned from, unsigned to)
{
	struct ckq_row row = row_of(name, ino);
	struct ckq_use uses[16];
	struct ckpt_err err = { 0 };
	size_t n = uses_of(uses, from, to);

	assert_ok(ckq_index_begin(f->ix, false, &err));
	assert_ok(ckq_index_list_put(f->ix, &row, uses, n, &err));
	assert_ok(ckq_index_end(f->ix, true, &err));
}

static void drop_row(struct fix *f, const char *name, unsigned from,
		     unsigned to)
{
	struct ckq_use uses[16];
	struct ckpt_err err = { 0 };
	size_t n = from == to ? CKQ_USES_UNKNOWN : uses_of(uses, from, to);

	assert_ok(ckq_index_begin(f->ix, false, &err));
	assert_ok(ckq_index_list_drop(f->ix, name, uses, n, &err));
	assert_ok(ckq_index_end(f->ix, true, &err));
}

static void own_bytes_follow_what_comes_and_goes(void **state)
{
	struct fix *f = *state;

	put_row(f, "a", 1, 0, 4);
	assert_string_equal(listed(f).text, "a:15 ");
	put_row(f, "b", 2, 2, 6); /* 2 and 3 shared */
	assert_string_equal(listed(f).text, "a:3 b:48 ");
	put_row(f, "c", 3, 3, 5); /* 3 of three, 4 of two */
	assert_string_equal(listed(f).text, "a:3 b:32 c:0 ");
	put_row(f, "c", 3, 3, 5); /* the same again: nothing new */
	assert_string_equal(listed(f).text, "a:3 b:32 c:0 ");
	reopen(f, store_uuid, true);
	drop_row(f, "b", 2, 6);
	assert_string_equal(listed(f).text, "a:7 c:16 ");
	drop_row(f, "nope", 0, 4); /* never counted: counts nothing */
	drop_row(f, "a", 0, 4);
	assert_string_equal(listed(f).text, "c:24 ");
	assert_true(listed(f).exact);
}

static void what_cannot_be_counted_is_said_to_be_inexact(void **state)
{
	struct fix *f = *state;
	struct ckpt_err err = { 0 };

	put_row(f, "a", 1, 0, 4);
	put_row(f, "a", 9, 4, 6); /* replaced */
	assert_false(listed(f).exact);
	assert_ok(ckq_index_begin(f->ix, true, &err)); /* wiped: again exact */
	assert_ok(ckq_index_end(f->ix, true, &err));
	put_row(f, "a", 1, 0, 4);
	assert_true(listed(f).exact);
	drop_row(f, "a", 0, 0); /* it used nobody knows what */
	assert_false(listed(f).exact);
	assert_string_equal(listed(f).text, "");
}

static void a_renamed_row_keeps_its_counts(void **state)
{
	struct fix *f = *state;
	struct ckq_row row = row_of("z", 1), other = row_of("y", 8);
	struct ckpt_err err = { 0 };

	put_row(f, "a", 1, 0, 4);
	put_row(f, "b", 2, 2, 6);
	assert_ok(ckq_index_begin(f->ix, false, &err));
	assert_ok(ckq_index_list_move(f->ix, "a", &row, &err));
	assert_ok(ckq_index_list_move(f->ix, "b", &other, &err)); /* no */
	assert_ok(ckq_index_end(f->ix, true, &err));
	assert_string_equal(listed(f).text, "b:48 z:3 ");
	assert_true(listed(f).exact);
}

static void sql(const char *path, const char *text)
{
	sqlite3 *db = NULL;

	assert_int_equal(sqlite3_open(path, &db), SQLITE_OK);
	assert_int_equal(sqlite3_exec(db, text, NULL, NULL, NULL), SQLITE_OK);
	sqlite3_close(db);
}

static void a_row_that_rotted_is_left_out(void **state)
{
	static const char *const rot[] = {
		"name='b'", "ino=ino+1", "mtime_ns=6", "seq=77", "step=3",
		"uuid=zeroblob(16)", "uuid=x'00'", "metrics='{ }'",
		"metrics=NULL", "stored=stored-1", "own=-1", "own=stored+1",
	};
	struct fix *f = *state;
	char text[200];

	for (size_t i = 0; i < CKB_ARRAY_LEN(rot); i++) {
		put_row(f, "a", 1, 0, 4);
		assert_string_equal(listed(f).text, "a:15 ");
		snprintf(text, sizeof(text), "UPDATE checkpoint SET %s", rot[i]);
		sql(f->path, text);
		assert_string_equal(listed(f).text, "");
		assert_false(listed(f).exact);
		sql(f->path, "DELETE FROM checkpoint; DELETE FROM used");
	}
}

/* The tables of version 1, as they were made then. */
static void an_older_index_keeps_its_chunks(void **state)
{
	struct fix *f = *state;
	struct ckpt_err err = { 0 };

	put_range(f->ix, 0, 300, true);
	put_row(f, "a", 1, 0, 4);
	ckq_index_close(f->ix);
	sql(f->path, "DROP TABLE used; DROP TABLE checkpoint; DELETE FROM meta "
	    "WHERE key='exact'; CREATE TABLE checkpoint(name TEXT PRIMARY KEY,"
	    " uuid BLOB NOT NULL, seq INTEGER NOT NULL) STRICT, WITHOUT ROWID;"
	    "INSERT INTO checkpoint VALUES('a', zeroblob(16), 1);"
	    "PRAGMA user_version=1");
	/* a reader leaves it as it is, and has none */
	assert_int_equal(ckq_index_open(f->path, store_uuid, false, &f->ix,
					&err), CKPT_ENOENT);
	assert_ok(ckq_index_open(f->path, store_uuid, true, &f->ix, &err));
	for (unsigned i = 0; i < 300; i++)
		assert_true(knows(f->ix, i));
	assert_string_equal(listed(f).text, "");
	put_row(f, "b", 2, 2, 6);
	reopen(f, store_uuid, false);
	assert_string_equal(listed(f).text, "b:60 ");
}

static void network_file_systems_have_none(void **state)
{
	static const uint64_t network[] = { 0x6969, 0x517b, 0xfe534d42,
					    0xff534d42, 0x0bd00bd0, 0x47504653,
					    0x00c36400, 0x65735546, 0x01021997,
					    0x5346414f, 0x19830326 };
	/* ext4, xfs, btrfs, tmpfs, overlayfs, zfs */
	static const uint64_t local[] = { 0xef53, 0x58465342, 0x9123683e,
					  0x01021994, 0x794c7630, 0x2fc12fc1 };

	(void)state;
	for (size_t i = 0; i < CKB_ARRAY_LEN(network); i++)
		assert_true(ckq_index_network(network[i]));
	for (size_t i = 0; i < CKB_ARRAY_LEN(local); i++)
		assert_false(ckq_index_network(local[i]));
}

#define T(name) cmocka_unit_test_setup_teardown(name, fix_setup, fix_teardown)

int main(void)
{
	const struct CMUnitTest tests[] = {
		T(what_was_put_is_found_also_after_reopen),
		T(what_is_not_kept_is_gone),
		T(a_later_place_replaces_an_older_one),
		T(begin_and_end_must_pair),
		T(an_absent_index_is_made_only_by_writers),
		T(what_is_no_index_of_ours_is_made_anew),
		T(an_index_behind_a_link_is_not_used),
		T(another_stores_index_is_not_used),
		T(damage_met_under_way_heals_at_the_next_open),
		T(remove_takes_its_companions_too),
		T(threads_look_up_while_another_connection_writes),
		T(writers_that_make_it_at_once_agree),
		T(network_file_systems_have_none),
		T(own_bytes_follow_what_comes_and_goes),
		T(what_cannot_be_counted_is_said_to_be_inexact),
		T(a_renamed_row_keeps_its_counts),
		T(a_row_that_rotted_is_left_out),
		T(an_older_index_keeps_its_chunks),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
