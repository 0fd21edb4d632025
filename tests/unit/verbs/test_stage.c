/* SPDX-License-Identifier: Apache-2.0 */
/* test_stage.c - staging folders, what they bar from reuse, their packs. */
#include "store_fixture.h"

#include <fcntl.h>
#include <sys/file.h>

#include "format/config.h"
#include "verbs/stage_impl.h"

static const uint8_t attempt[16] = { 0x01, 0x23 };
#define ATTEMPT_HEX "01230000000000000000000000000000"

static struct cks_stage *stage(struct fix *f, const char *name)
{
	struct cks_stage *st;
	struct ckpt_err err = { 0 };

	assert_ok(cks_stage_open(f->store, name, attempt, &st, &err));
	return st;
}

static void the_folder_is_named_for_save_and_attempt(void **state)
{
	struct fix *f = *state;
	struct cks_stage *st = stage(f, "run/4000");
	CKB_BUF struct ckb_buf text = { 0 };
	struct ckpt_err err = { 0 };
	/* printf run/4000 | sha256sum */
	const char *dir = "staging/" "20085a486f868582" "-" ATTEMPT_HEX;

	assert_string_equal(st->dir, dir);
	assert_int_equal(fix_count(f->store, dir), 2);
	char file[200];

	snprintf(file, sizeof(file), "%s/save.json", dir);
	assert_ok(ckb_read_file(f->store->sys, f->store->dirfd, file, 4096,
				&text, &err));
	assert_ok(ckf_json_object((char *)text.data, "save.json", &err));
	assert_non_null(strstr((char *)text.data, "\"name\": \"run/4000\""));
	cks_stage_close(st);
	assert_int_equal(fix_count(f->store, "staging"), 0);
}

static void the_lock_is_held_until_close(void **state)
{
	struct fix *f = *state;
	struct cks_stage *st = stage(f, "a");
	char file[CKS_STAGE_PATH_BYTES];

	cks_stage_path(file, st, "lock");
	int fd = open(fix_at(f, file), O_RDWR | O_CLOEXEC);

	assert_true(fd >= 0);
	assert_int_equal(flock(fd, LOCK_EX | LOCK_NB), -1);
	assert_int_equal(errno, EWOULDBLOCK);
	cks_stage_close(st);
	assert_int_equal(flock(fd, LOCK_EX | LOCK_NB), 0);
	close(fd);
}

static void one_attempt_is_one_save(void **state)
{
	struct fix *f = *state;
	struct cks_stage *st = stage(f, "a"), *other = (void *)1;
	struct ckpt_err err = { 0 };

	assert_code(cks_stage_open(f->store, "a", attempt, &other, &err),
		    CKPT_EBUSY);
	assert_null(other);
	/* the loser removed nothing of the winner's */
	assert_int_equal(fix_count(f->store, st->dir), 2);
	other = stage(f, "b");
	cks_stage_close(other);
	cks_stage_close(st);
}

static void illegal_names_are_refused(void **state)
{
	static const char *const bad[] = { "", "..", "a/../b", "latest", "/" };
	struct fix *f = *state;
	struct cks_stage *st;

	for (size_t i = 0; i < CKB_ARRAY_LEN(bad); i++) {
		struct ckpt_err err = { 0 };

		assert_code(cks_stage_open(f->store, bad[i], attempt, &st,
					   &err), CKPT_EINVAL);
	}
	assert_int_equal(fix_count(f->store, "staging"), 0);
}

static void copies_without_empty_folders_can_be_saved_to(void **state)
{
	struct fix *f = *state;
	struct ckpt_err err = { 0 };

	for (size_t i = 0; cks_store_folders[i]; i++)
		assert_int_equal(rmdir(fix_at(f, cks_store_folders[i])), 0);
	assert_ok(fix_save(f->store, "r/a", 1, false, &err));
	assert_ok(fix_whole(f->store, "r/a", 1, &err));
}

/* ---- S8: what must not be reused ---- */

#define PACK_A "aaaaaaaa-0000-4000-8000-000000000001"
#define PACK_B "bbbbbbbb-0000-4000-8000-000000000002"
#define PACK_C "cccccccc-0000-4000-8000-000000000003"

static bool reusable(struct cks_stage *st, const char *pack, uint64_t off)
{
	uint8_t uuid[16];

	assert_true(ckb_uuid_parse(uuid, pack));
	return cks_stage_reusable(st, uuid, off);
}

static void condemned_packs_and_bad_chunks_are_barred(void **state)
{
	struct fix *f = *state;

	fix_put(f, "condemned/1", PACK_C "\n" PACK_A "\n");
	fix_put(f, "condemned/2", PACK_A "\n");
	fix_put(f, "bad/" PACK_B "-0000000000001000", "");
	fix_put(f, "bad/notes.txt", "");
	struct cks_stage *st = stage(f, "a");

	assert_false(reusable(st, PACK_A, 0));
	assert_false(reusable(st, PACK_A, 4096));
	assert_false(reusable(st, PACK_C, 1));
	assert_false(reusable(st, PACK_B, 4096));
	assert_true(reusable(st, PACK_B, 0));
	assert_true(reusable(st, PACK_B, 8192));
	cks_stage_close(st);
}

static void an_unreadable_condemned_list_stops_the_save(void **state)
{
	static const char *const texts[] = {
		"rubbish\n", PACK_A "\n" PACK_B "x\n", "\xff\xfe\n",
		PACK_A " \n", PACK_A, PACK_A "\n\n" PACK_B "\n",
	};
	static const char hidden[] = PACK_A "\n\0" PACK_B "\n";
	struct fix *f = *state;
	struct cks_stage *st;

	for (size_t i = 0; i < CKB_ARRAY_LEN(texts); i++) {
		struct ckpt_err err = { 0 };

		fix_put(f, "condemned/7", texts[i]);
		assert_code(cks_stage_open(f->store, "a", attempt, &st, &err),
			    CKPT_ECORRUPT);
		assert_says(err, "condemned/7");
		/* and leaves nothing */
		assert_int_equal(fix_count(f->store, "staging"), 0);
	}
	FILE *file = fopen(fix_at(f, "condemned/7"), "w");
	struct ckpt_err err = { 0 };

	assert_non_null(file);
	fwrite(hidden, sizeof(hidden) - 1, 1, file);
	fclose(file);
	assert_code(cks_stage_open(f->store, "a", attempt, &st, &err),
		    CKPT_ECORRUPT);
	/* power was lost while it was written: nothing goes by it */
	fix_put(f, "condemned/7", "");
	assert_ok(cks_stage_open(f->store, "a", attempt, &st, &err));
	cks_stage_close(st);
}

/* Records the order of what S8 orders. */
static const struct ckb_sys *real;
static char order[100];

static int note_fsync(const struct ckb_sys *sys, int fd)
{
	struct stat st, staging;

	if (fstat(fd, &st) == 0 && S_ISDIR(st.st_mode))
		strcat(order, fstatat(fd, "lock", &staging, 0) == 0 ? "F" :
			      "S");
	return real->fsync(sys, fd);
}

static int note_list(const struct ckb_sys *sys, int dirfd, const char *path,
		     ckb_dirent_fn fn, void *ctx)
{
	if (strcmp(path, "condemned") == 0)
		strcat(order, "c");
	if (strcmp(path, "bad") == 0)
		strcat(order, "b");
	return real->list(sys, dirfd, path, fn, ctx);
}

static void staging_is_synced_before_condemned_is_read(void **state)
{
	struct fix *f = *state;
	struct ckb_sys sys = *ckb_sys_real();
	struct ckpt_store *s;
	struct cks_stage *st;
	struct ckpt_err err = { 0 };

	real = ckb_sys_real();
	sys.fsync = note_fsync;
	sys.list = note_list;
	assert_ok(cks_store_open_sys(&sys, f->path, NULL, &s, &err));
	order[0] = '\0';
	assert_ok(cks_stage_open(s, "a", attempt, &st, &err));
	/* the folder, then staging/, then what gc says */
	assert_string_equal(order, "FScb");
	cks_stage_close(st);
	ckpt_store_close(s);
}

static int no_flock(const struct ckb_sys *sys, int fd, int op)
{
	(void)sys;
	(void)fd;
	(void)op;
	return -ENOLCK;
}

static void without_flock_saves_work(void **state)
{
	struct fix *f = *state;
	struct ckb_sys sys = *ckb_sys_real();
	struct ckpt_store *s;
	struct ckpt_err err = { 0 };

	sys.flock = no_flock;
	assert_ok(cks_store_open_sys(&sys, f->path, NULL, &s, &err));
	assert_ok(fix_save(s, "a", 1, false, &err));
	ckpt_store_close(s);
}

static int no_list(const struct ckb_sys *sys, int dirfd, const char *path,
		   ckb_dirent_fn fn, void *ctx)
{
	return strncmp(path, "staging/", 8) == 0 ? -EMFILE
	     : real->list(sys, dirfd, path, fn, ctx);
}

static const char *unopened;

static int no_open(const struct ckb_sys *sys, int dirfd, const char *path,
		   int flags, mode_t mode)
{
	const char *slash = strrchr(path, '/');

	return slash && strcmp(slash + 1, unopened) == 0 ? -EMFILE
	     : real->openat(sys, dirfd, path, flags, mode);
}

/* scale-07: the folder goes, though it cannot be listed either */
static void without_descriptors_nothing_is_left(void **state)
{
	static const char *const files[] = { "lock", "save.json" };
	struct fix *f = *state;
	struct ckb_sys sys = *ckb_sys_real();
	struct ckpt_store *s;
	struct cks_stage *st;
	struct ckpt_err err = { 0 };

	real = ckb_sys_real();
	sys.openat = no_open;
	sys.list = no_list;
	for (size_t i = 0; i < CKB_ARRAY_LEN(files); i++) {
		unopened = files[i];
		assert_ok(cks_store_open_sys(&sys, f->path, NULL, &s, &err));
		assert_code(cks_stage_open(s, "a", attempt, &st, &err),
			    CKPT_EIO);
		assert_says(err, "Too many open files");
		assert_int_equal(fix_count(f->store, "staging"), 0);
		ckpt_store_close(s);
	}
}

/* ---- packs ---- */

static void a_published_pack_leaves_staging_and_is_whole(void **state)
{
	struct fix *f = *state;
	struct cks_stage *st = stage(f, "a");
	char path[CKS_PACK_PATH_BYTES];
	struct ckc_place place;
	uint8_t uuid[16];
	struct ckpt_err err = { 0 };

	assert_ok(fix_pack(st, 3, uuid, &place, &err));
	cks_pack_path(path, uuid);
	assert_true(fix_there(f, path));
	assert_int_equal(fix_count(f->store, st->dir), 2);
	assert_ok(fix_pack_whole(f->store, uuid, 3, &err));
	cks_stage_close(st);
	/* what an abandoned save published stays for gc */
	assert_true(fix_there(f, path));
}

static void closing_removes_what_was_staged(void **state)
{
	struct fix *f = *state;
	struct cks_stage *st = stage(f, "a");
	struct ckc_pack_writer *w;
	struct ckpt_err err = { 0 };

	assert_ok(cks_stage_pack(st, false, &w, &err));
	ckc_pack_writer_close(w);
	fix_put(f, "staging/keep", "");
	cks_stage_close(st);
	assert_int_equal(fix_count(f->store, "staging"), 1);
	cks_stage_close(NULL);
}

#define TEST(name) \
	cmocka_unit_test_setup_teardown(name, fix_setup, fix_teardown)

int main(void)
{
	const struct CMUnitTest tests[] = {
		TEST(the_folder_is_named_for_save_and_attempt),
		TEST(the_lock_is_held_until_close),
		TEST(one_attempt_is_one_save),
		TEST(illegal_names_are_refused),
		TEST(copies_without_empty_folders_can_be_saved_to),
		TEST(condemned_packs_and_bad_chunks_are_barred),
		TEST(an_unreadable_condemned_list_stops_the_save),
		TEST(staging_is_synced_before_condemned_is_read),
		TEST(without_flock_saves_work),
		TEST(without_descriptors_nothing_is_left),
		TEST(a_published_pack_leaves_staging_and_is_whole),
		TEST(closing_removes_what_was_staged),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
