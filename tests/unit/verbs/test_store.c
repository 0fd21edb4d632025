/* SPDX-License-Identifier: Apache-2.0 */
/* test_store.c - opening stores, the table of packs, notes of bad chunks. */
#include "store_fixture.h"

#include <pthread.h>
#include <sys/resource.h>

/* ---- open ---- */

static void a_folder_without_config_is_no_store(void **state)
{
	struct fix *f = *state;
	struct ckpt_store *s = (void *)1;
	struct ckpt_err err = { 0 };

	assert_code(ckpt_store_open(f->dir, NULL, &s, &err), CKPT_ENOENT);
	assert_null(s);
	assert_says(err, "is not a ckptfs store (no ckptfs.json); make one "
		    "with ckptfs init");
	assert_code(ckpt_store_open(fix_at(f, "none"), NULL, &s, &err),
		    CKPT_ENOENT);
	assert_says(err, "does not exist");
	assert_code(ckpt_store_open(fix_at(f, "ckptfs.json"), NULL, &s, &err),
		    CKPT_ENOENT);
	assert_says(err, "it is no folder");
}

static void a_damaged_config_is_named(void **state)
{
	static const struct {
		const char *text;
		int code;
	} cases[] = {
		{ "", CKPT_ECORRUPT },
		{ "{", CKPT_ECORRUPT },
		{ "[]", CKPT_ECORRUPT },
		{ "{\"format\": \"ckptfs\"}", CKPT_ECORRUPT },
		{ "{\"format\": \"ckptfs\", \"version\": 99, \"compat\": [], "
		  "\"ro_compat\": [], \"incompat\": []}", CKPT_EVERSION },
		{ "{\"format\": \"ckptfs\", \"version\": 1, \"compat\": [], "
		  "\"ro_compat\": [], \"incompat\": [\"x\"]}", CKPT_EVERSION },
	};
	struct fix *f = *state;
	struct ckpt_store *s;

	for (size_t i = 0; i < CKB_ARRAY_LEN(cases); i++) {
		struct ckpt_err err = { 0 };

		fix_put(f, "ckptfs.json", cases[i].text);
		assert_code(ckpt_store_open(f->path, NULL, &s, &err),
			    cases[i].code);
		assert_says(err, f->path);
	}
}

static void a_config_that_is_no_small_file_is_refused(void **state)
{
	struct fix *f = *state;
	struct ckpt_store *s;
	struct ckpt_err err = { 0 };

	assert_int_equal(truncate(fix_at(f, "ckptfs.json"),
				  CKB_CONFIG_MAX + 1), 0);
	assert_code(ckpt_store_open(f->path, NULL, &s, &err), CKPT_ECORRUPT);
	assert_int_equal(unlink(fix_at(f, "ckptfs.json")), 0);
	assert_int_equal(mkfifo(fix_at(f, "ckptfs.json"), 0600), 0);
	assert_code(ckpt_store_open(f->path, NULL, &s, &err), CKPT_ECORRUPT);
	assert_int_equal(unlink(fix_at(f, "ckptfs.json")), 0);
	assert_int_equal(symlink("/etc/passwd", fix_at(f, "ckptfs.json")), 0);
	assert_true(ckpt_store_open(f->path, NULL, &s, &err) < 0);
}

static void wrong_options_are_refused(void **state)
{
	struct fix *f = *state;
	struct ckpt_store_opts opts = { .size = 4 };
	struct ckpt_store *s;
	struct ckpt_err err = { 0 };

	assert_code(ckpt_store_open(f->path, &opts, &s, &err), CKPT_EINVAL);
	opts = (struct ckpt_store_opts){ .size = sizeof(opts), .flags = 2 };
	assert_code(ckpt_store_open(f->path, &opts, &s, &err), CKPT_EINVAL);
}

static void a_read_only_store_reads_and_refuses_to_write(void **state)
{
	struct fix *f = *state;
	struct ckpt_store_opts opts = { .size = sizeof(opts),
					.flags = CKPT_STORE_READONLY };
	struct ckpt_reindex_result r;
	struct ckpt_store *s;
	struct ckpt_err err = { 0 };
	uint8_t pack[16] = { 1 }, digest[32] = { 2 };

	assert_ok(fix_save(f->store, "a", 1, false, &err));
	assert_ok(ckpt_store_open(f->path, &opts, &s, &err));
	assert_true(cks_store_readonly(s));
	assert_ok(fix_whole(s, "a", 1, &err));
	assert_code(fix_save(s, "b", 2, false, &err), CKPT_EPERM);
	assert_says(err, "read-only");
	assert_code(ckpt_store_reindex(s, &r, &err), CKPT_EPERM);
	cks_bad_note(s, pack, 1, digest, "test");
	assert_int_equal(fix_count(s, "bad"), 0);
	ckpt_store_close(s);
}

static void a_store_with_a_newer_feature_is_read_only(void **state)
{
	struct fix *f = *state;
	struct ckpt_store *s;
	struct ckpt_err err = { 0 };

	fix_put(f, "ckptfs.json", "{\"format\": \"ckptfs\", \"version\": 1, "
		"\"uuid\": \"01234567-89ab-4def-8123-456789abcdef\", "
		"\"digest\": \"sha256\", \"tile_rule\": 1, \"compat\": "
		"[\"y\"], \"ro_compat\": [\"x\"], \"incompat\": []}");
	assert_ok(ckpt_store_open(f->path, NULL, &s, &err));
	assert_code(fix_save(s, "b", 2, false, &err), CKPT_EPERM);
	assert_says(err, "newer ckptfs");
	ckpt_store_close(s);
}

static void closing_nothing_is_allowed(void **state)
{
	(void)state;
	ckpt_store_close(NULL);
}

/* ---- packs ---- */

/* Make @count packs; their uuids into @out. */
static void make_packs(struct fix *f, size_t count, uint8_t (*out)[16])
{
	uint8_t attempt[16] = { 9 };
	struct ckc_place place;
	struct cks_stage *st;
	struct ckpt_err err = { 0 };

	assert_ok(cks_stage_open(f->store, "p", attempt, &st, &err));
	for (size_t i = 0; i < count; i++)
		assert_ok(fix_pack(st, i, out[i], &place, &err));
	cks_stage_close(st);
}

static void a_missing_pack_is_damage_and_named(void **state)
{
	struct fix *f = *state;
	uint8_t uuid[16];
	struct ckc_pack *p = (void *)1;
	struct ckpt_err err = { 0 };

	assert_true(ckb_uuid_parse(uuid,
				   "abcdef01-2345-4678-89ab-cdef01234567"));
	assert_code(cks_pack_get(f->store, uuid, &p, &err), CKPT_ECORRUPT);
	assert_null(p);
	assert_string_equal(err.message, "pack packs/ab/abcdef01-2345-4678-"
			    "89ab-cdef01234567.pack is missing");
}

static void a_pack_under_another_name_is_refused(void **state)
{
	struct fix *f = *state;
	uint8_t uuid[2][16];
	char from[CKS_PACK_PATH_BYTES], to[CKS_PACK_PATH_BYTES];
	struct ckc_pack *p;
	struct ckpt_err err = { 0 };

	make_packs(f, 2, uuid);
	cks_pack_path(from, uuid[0]);
	cks_pack_path(to, uuid[1]);
	assert_int_equal(rename(fix_at(f, from), fix_at(f, to)), 0);
	assert_code(cks_pack_get(f->store, uuid[1], &p, &err), CKPT_ECORRUPT);
}

enum { MANY = CKB_OPEN_PACKS + 8 };

static void open_packs_are_bounded_and_shared(void **state)
{
	struct fix *f = *state;
	static uint8_t uuid[MANY][16];
	struct ckc_pack *p, *q, *held[MANY];
	struct ckpt_err err = { 0 };
	int before = fix_fds();

	make_packs(f, MANY, uuid);
	assert_int_equal(fix_fds(), before);
	for (size_t i = 0; i < MANY; i++) {
		assert_ok(cks_pack_get(f->store, uuid[i], &p, &err));
		assert_ok(cks_pack_get(f->store, uuid[i], &q, &err));
		assert_ptr_equal(p, q);
		cks_pack_put(f->store, p);
		cks_pack_put(f->store, q);
	}
	assert_int_equal(fix_fds(), before + CKB_OPEN_PACKS);
	/* all in use: the rest is opened beside the table, and closed */
	for (size_t i = 0; i < MANY; i++)
		assert_ok(cks_pack_get(f->store, uuid[i], &held[i], &err));
	assert_int_equal(fix_fds(), before + MANY);
	for (size_t i = 0; i < MANY; i++)
		cks_pack_put(f->store, held[i]);
	assert_int_equal(fix_fds(), before + CKB_OPEN_PACKS);
}

static void the_pack_used_longest_ago_makes_room(void **state)
{
	struct fix *f = *state;
	static uint8_t uuid[CKB_OPEN_PACKS + 1][16];
	struct ckc_pack *p, *first;
	struct ckpt_err err = { 0 };

	make_packs(f, CKB_OPEN_PACKS + 1, uuid);
	for (size_t i = 0; i < CKB_OPEN_PACKS; i++) {
		assert_ok(cks_pack_get(f->store, uuid[i], &p, &err));
		cks_pack_put(f->store, p);
	}
	assert_ok(cks_pack_get(f->store, uuid[0], &first, &err));
	cks_pack_put(f->store, first);
	assert_ok(cks_pack_get(f->store, uuid[CKB_OPEN_PACKS], &p, &err));
	cks_pack_put(f->store, p);
	/* 1 went, 0 stayed */
	for (size_t i = 0; i < CKB_OPEN_PACKS; i++)
		if (f->store->packs[i].pack)
			assert_memory_not_equal(
				ckc_pack_uuid(f->store->packs[i].pack),
				uuid[1], 16);
	assert_ok(cks_pack_get(f->store, uuid[0], &p, &err));
	assert_ptr_equal(p, first);
	cks_pack_put(f->store, p);
}

static void without_descriptors_idle_packs_give_theirs(void **state)
{
	struct fix *f = *state;
	static uint8_t uuid[6][16];
	struct ckc_pack *p, *held;
	struct rlimit old, low;
	struct ckpt_err err = { 0 };

	make_packs(f, 6, uuid);
	assert_ok(cks_pack_get(f->store, uuid[0], &held, &err));
	for (size_t i = 1; i < 5; i++) {
		assert_ok(cks_pack_get(f->store, uuid[i], &p, &err));
		cks_pack_put(f->store, p);
	}
	int next = dup(0); /* the lowest descriptor that is free */

	assert_true(next >= 0);
	close(next);
	assert_int_equal(getrlimit(RLIMIT_NOFILE, &old), 0);
	low = (struct rlimit){ (rlim_t)next, old.rlim_max };
	assert_int_equal(setrlimit(RLIMIT_NOFILE, &low), 0);
	int rc = cks_pack_get(f->store, uuid[5], &p, &err);

	assert_int_equal(setrlimit(RLIMIT_NOFILE, &old), 0);
	assert_ok(rc);
	assert_int_equal(fix_pack_whole(f->store, uuid[0], 0, &err), 0);
	cks_pack_put(f->store, p);
	cks_pack_put(f->store, held);
}

struct load {
	struct ckpt_store *s;
	uint8_t (*uuid)[16];
	unsigned seed;
	int failures;
};

static void *hammer(void *arg)
{
	struct load *l = arg;

	for (int i = 0; i < 400; i++) {
		size_t at = (size_t)rand_r(&l->seed) % MANY;

		if (fix_pack_whole(l->s, l->uuid[at], at, NULL) != 0)
			l->failures++;
	}
	return NULL;
}

static void many_threads_share_the_table(void **state)
{
	struct fix *f = *state;
	static uint8_t uuid[MANY][16];
	struct load loads[4];
	pthread_t threads[4];

	make_packs(f, MANY, uuid);
	for (unsigned i = 0; i < 4; i++) {
		loads[i] = (struct load){ f->store, uuid, i, 0 };
		assert_int_equal(pthread_create(&threads[i], NULL, hammer,
						&loads[i]), 0);
	}
	for (unsigned i = 0; i < 4; i++) {
		pthread_join(threads[i], NULL);
		assert_int_equal(loads[i].failures, 0);
	}
}

/* ---- bad chunks ---- */

static void a_bad_chunk_is_noted_once_and_read_back(void **state)
{
	struct fix *f = *state;
	uint8_t pack[16], digest[32] = { 0xfe }, got[16];
	uint64_t off;

	assert_true(ckb_uuid_parse(pack,
				   "abcdef01-2345-4678-89ab-cdef01234567"));
	cks_bad_note(f->store, pack, 0x1234000, digest, "cell 0: wrong");
	cks_bad_note(f->store, pack, 0x1234000, digest, "again");
	assert_int_equal(fix_count(f->store, "bad"), 1);
	assert_true(fix_there(f, "bad/abcdef01-2345-4678-89ab-cdef01234567-"
			      "0000000001234000"));
	assert_true(cks_bad_parse("abcdef01-2345-4678-89ab-cdef01234567-"
				  "0000000001234000", got, &off));
	assert_memory_equal(got, pack, 16);
	assert_int_equal(off, 0x1234000);
}

static void other_names_in_bad_are_no_notes(void **state)
{
	static const char *const names[] = {
		"", "x", "abcdef01-2345-4678-89ab-cdef01234567",
		"abcdef01-2345-4678-89ab-cdef01234567-",
		"abcdef01-2345-4678-89ab-cdef01234567-000000000123400g",
		"abcdef01-2345-4678-89ab-cdef0123456x-0000000001234000",
		"abcdef01-2345-4678-89ab-cdef01234567x0000000001234000",
		"abcdef01-2345-4678-89ab-cdef01234567-00000000012340000",
	};
	uint8_t pack[16];
	uint64_t off;

	(void)state;
	for (size_t i = 0; i < CKB_ARRAY_LEN(names); i++)
		assert_false(cks_bad_parse(names[i], pack, &off));
}

static void a_note_that_cannot_be_written_is_no_failure(void **state)
{
	struct fix *f = *state;
	uint8_t pack[16] = { 0 }, digest[32] = { 0 };

	assert_int_equal(rmdir(fix_at(f, "bad")), 0);
	cks_bad_note(f->store, pack, 1, digest, "x");
}

#define TEST(name) \
	cmocka_unit_test_setup_teardown(name, fix_setup, fix_teardown)

int main(void)
{
	const struct CMUnitTest tests[] = {
		TEST(a_folder_without_config_is_no_store),
		TEST(a_damaged_config_is_named),
		TEST(a_config_that_is_no_small_file_is_refused),
		TEST(wrong_options_are_refused),
		TEST(a_read_only_store_reads_and_refuses_to_write),
		TEST(a_store_with_a_newer_feature_is_read_only),
		TEST(closing_nothing_is_allowed),
		TEST(a_missing_pack_is_damage_and_named),
		TEST(a_pack_under_another_name_is_refused),
		TEST(open_packs_are_bounded_and_shared),
		TEST(the_pack_used_longest_ago_makes_room),
		TEST(without_descriptors_idle_packs_give_theirs),
		TEST(many_threads_share_the_table),
		TEST(a_bad_chunk_is_noted_once_and_read_back),
		TEST(other_names_in_bad_are_no_notes),
		TEST(a_note_that_cannot_be_written_is_no_failure),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
