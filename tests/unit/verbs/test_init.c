/* SPDX-License-Identifier: Apache-2.0 */
/* test_init.c - making stores, and what init refuses to make one over. */
#include "store_fixture.h"

#include <fcntl.h>

struct place {
	char dir[256], path[300];
};

static int setup(void **state)
{
	struct place *p = calloc(1, sizeof(*p));

	assert_non_null(p);
	fix_folder(p->dir);
	snprintf(p->path, sizeof(p->path), "%s/s", p->dir);
	*state = p;
	return 0;
}

static int teardown(void **state)
{
	struct place *p = *state;

	fix_remove(p->dir);
	free(p);
	return 0;
}

static void put(const struct place *p, const char *name)
{
	char path[400];

	snprintf(path, sizeof(path), "%s/%s", p->path, name);
	FILE *f = fopen(path, "we");

	assert_non_null(f);
	fclose(f);
}

static void make(const struct place *p, const char *name)
{
	char path[400];

	snprintf(path, sizeof(path), "%s/%s", p->path, name);
	assert_int_equal(mkdir(path, 0777), 0);
}

static void opens(const struct place *p)
{
	struct ckpt_store *s;
	struct ckpt_err err = { 0 };
	uint8_t none[16] = { 0 };

	assert_ok(ckpt_store_open(p->path, NULL, &s, &err));
	assert_memory_not_equal(ckpt_store_uuid(s), none, 16);
	for (size_t i = 0; cks_store_folders[i]; i++)
		assert_int_equal(fix_count(s, cks_store_folders[i]), 0);
	/* nothing but the folders and ckptfs.json */
	assert_int_equal(fix_count(s, "."), 9);
	ckpt_store_close(s);
}

static void an_absent_folder_becomes_a_store(void **state)
{
	struct ckpt_err err = { 0 };

	assert_ok(ckpt_store_init(((struct place *)*state)->path, &err));
	opens(*state);
}

static void an_empty_folder_becomes_a_store(void **state)
{
	struct place *p = *state;
	struct ckpt_err err = { 0 };
	char slashes[320];

	make(p, "");
	snprintf(slashes, sizeof(slashes), "%s///", p->path);
	assert_ok(ckpt_store_init(slashes, &err));
	opens(p);
}

static void modes_follow_the_umask(void **state)
{
	struct place *p = *state;
	struct ckpt_err err = { 0 };
	char path[400];
	struct stat st;
	mode_t old = umask(0007);
	int rc = ckpt_store_init(p->path, &err);

	umask(old);
	assert_ok(rc);
	snprintf(path, sizeof(path), "%s/packs", p->path);
	assert_int_equal(stat(path, &st), 0);
	assert_int_equal(st.st_mode & 0777, 0770);
	snprintf(path, sizeof(path), "%s/ckptfs.json", p->path);
	assert_int_equal(stat(path, &st), 0);
	assert_int_equal(st.st_mode & 0777, 0660);
}

static void two_stores_have_different_uuids(void **state)
{
	struct place *p = *state;
	struct ckpt_store *a, *b;
	struct ckpt_err err = { 0 };
	char other[320];

	snprintf(other, sizeof(other), "%s-2", p->path);
	assert_ok(ckpt_store_init(p->path, &err));
	assert_ok(ckpt_store_init(other, &err));
	assert_ok(ckpt_store_open(p->path, NULL, &a, &err));
	assert_ok(ckpt_store_open(other, NULL, &b, &err));
	assert_memory_not_equal(ckpt_store_uuid(a), ckpt_store_uuid(b), 16);
	ckpt_store_close(a);
	ckpt_store_close(b);
}

static void what_a_crashed_init_left_is_no_obstacle(void **state)
{
	struct place *p = *state;
	struct ckpt_err err = { 0 };

	make(p, "");
	make(p, "checkpoints");
	make(p, "staging");
	put(p, "ckptfs.json.0123456789abcdef");
	put(p, "ckptfs.json.fedcba9876543210");
	assert_ok(ckpt_store_init(p->path, &err));
	opens(p);
}

static void a_store_is_not_made_twice(void **state)
{
	struct place *p = *state;
	struct ckpt_store *s;
	struct ckpt_err err = { 0 };
	uint8_t uuid[16];

	assert_ok(ckpt_store_init(p->path, &err));
	assert_ok(ckpt_store_open(p->path, NULL, &s, &err));
	memcpy(uuid, ckpt_store_uuid(s), 16);
	ckpt_store_close(s);
	assert_code(ckpt_store_init(p->path, &err), CKPT_EEXIST);
	assert_says(err, "is a ckptfs store already");
	assert_ok(ckpt_store_open(p->path, NULL, &s, &err));
	assert_memory_equal(uuid, ckpt_store_uuid(s), 16);
	ckpt_store_close(s);
}

static void foreign_contents_are_refused_by_name(void **state)
{
	static const struct {
		const char *folder, *file, *says;
	} cases[] = {
		{ NULL, "notes.txt", "'notes.txt'" },
		{ "packs", "packs/x", "'packs', which is not empty" },
		{ "checkpoints", "checkpoints/a", "'checkpoints', which is" },
		{ NULL, "bad", "'bad', which is not empty" },
		{ NULL, "ckptfs.json.of-somebody-with-a-long-name", "holds" },
		{ NULL, "ckptfs.json.bak", "holds 'ckptfs.json.bak'" },
		{ NULL, "new\nline", "new\\x0aline" },
	};
	struct place *p = *state;

	for (size_t i = 0; i < CKB_ARRAY_LEN(cases); i++) {
		struct ckpt_err err = { 0 };

		make(p, "");
		if (cases[i].folder)
			make(p, cases[i].folder);
		put(p, cases[i].file);
		assert_code(ckpt_store_init(p->path, &err), CKPT_EEXIST);
		assert_says(err, cases[i].says);
		fix_remove(p->path);
	}
}

static void a_store_that_lost_its_config_is_not_made_over(void **state)
{
	struct place *p = *state;
	struct ckpt_store *s;
	struct ckpt_err err = { 0 };
	char path[400];

	assert_ok(ckpt_store_init(p->path, &err));
	assert_ok(ckpt_store_open(p->path, NULL, &s, &err));
	assert_ok(fix_save(s, "a", 1, false, &err));
	ckpt_store_close(s);
	snprintf(path, sizeof(path), "%s/ckptfs.json", p->path);
	assert_int_equal(unlink(path), 0);
	assert_code(ckpt_store_init(p->path, &err), CKPT_EEXIST);
}

static void bad_places_are_refused(void **state)
{
	struct place *p = *state;
	struct ckpt_err err = { 0 };
	char path[400];

	snprintf(path, sizeof(path), "%s/no/such", p->path);
	assert_code(ckpt_store_init(path, &err), CKPT_ENOENT);
	assert_says(err, "does not exist");
	FILE *f = fopen(p->path, "we");

	fclose(f);
	assert_code(ckpt_store_init(p->path, &err), CKPT_EEXIST);
	assert_says(err, "is no folder");
	assert_code(ckpt_store_init("", &err), CKPT_EINVAL);
}

static void a_store_is_not_made_inside_a_store(void **state)
{
	static const char *const below[] = {
		"sub", "packs", "checkpoints/run", "packs/../new", "new/",
	};
	struct place *p = *state;
	char path[400];
	struct ckpt_err err = { 0 };

	assert_ok(ckpt_store_init(p->path, &err));
	make(p, "checkpoints/run");
	for (size_t i = 0; i < CKB_ARRAY_LEN(below); i++) {
		snprintf(path, sizeof(path), "%s/%s", p->path, below[i]);
		assert_code(ckpt_store_init(path, &err), CKPT_EEXIST);
		assert_says(err, "inside another store");
		assert_says(err, below[i]);
	}
	snprintf(path, sizeof(path), "%s/new", p->path);
	assert_int_equal(access(path, F_OK), -1);
}

static void a_relative_path_works(void **state)
{
	struct place *p = *state;
	struct ckpt_err err = { 0 };
	int here = open(".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);

	assert_int_equal(chdir(p->dir), 0);
	int rc = ckpt_store_init("s", &err);

	assert_int_equal(fchdir(here), 0);
	close(here);
	assert_ok(rc);
	opens(p);
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, setup, teardown)

int main(void)
{
	const struct CMUnitTest tests[] = {
		TEST(an_absent_folder_becomes_a_store),
		TEST(an_empty_folder_becomes_a_store),
		TEST(modes_follow_the_umask),
		TEST(two_stores_have_different_uuids),
		TEST(what_a_crashed_init_left_is_no_obstacle),
		TEST(a_store_is_not_made_twice),
		TEST(foreign_contents_are_refused_by_name),
		TEST(a_store_that_lost_its_config_is_not_made_over),
		TEST(bad_places_are_refused),
		TEST(a_store_is_not_made_inside_a_store),
		TEST(a_relative_path_works),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
