/* SPDX-License-Identifier: Apache-2.0 */
/* test_vfs.c - how a manifest's pages get to SQLite: verified, through the
 * given operating system, and nothing else. */
#include <pthread.h>

#include "catalog/vfs.h"
#include "manifest_fixture.h"

static void open_file(struct fix *f, struct ckq_file *file)
{
	*file = (struct ckq_file){ .sys = &f->os.sys, .dirfd = f->fd,
				   .path = "m", .bytes = f->image.len };
	assert_int_equal(ckq_file_open(file), 0);
}

static void a_page_is_read_and_verified(void **state)
{
	struct fix *f = *state;
	struct ckq_file file;
	uint8_t page[4096];
	uint32_t last = (uint32_t)(f->image.len / 4096);

	open_file(f, &file);
	for (uint32_t n = 1; n <= last; n++) {
		assert_int_equal(ckq_vfs_page(&file, n, page), SQLITE_OK);
		assert_memory_equal(page, f->image.data + (n - 1) * 4096,
				    4096);
	}
	assert_int_equal(file.bad_page, 0);
	/* page 2 in the place of page 3 has a right checksum, for page 2 */
	assert_int_equal(pwrite(f->file, f->image.data + 4096, 4096, 8192),
			 4096);
	assert_int_equal(ckq_vfs_page(&file, 3, page), SQLITE_IOERR_DATA);
	assert_int_equal(file.bad_page, 3);
	assert_int_equal(file.bad_errno, 0);
	assert_false(file.cut);
	assert_int_equal(ckq_vfs_page(&file, last + 1, page),
			 SQLITE_IOERR_READ);
	assert_true(file.cut);
	f->os.read_errno = EIO;
	assert_int_equal(ckq_vfs_page(&file, 1, page), SQLITE_IOERR_READ);
	assert_int_equal(file.bad_errno, EIO);
	ckq_file_close(&file);
}

static void sqlite_reads_through_it_and_cannot_write(void **state)
{
	struct fix *f = *state;
	struct ckq_file file;
	sqlite3 *db = NULL;
	sqlite3_stmt *s = NULL;

	open_file(f, &file);
	f->os.stutter = true;
	assert_int_equal(ckq_vfs_open(&file, &db), SQLITE_OK);
	assert_int_equal(sqlite3_prepare_v2(db, "SELECT name FROM tensor WHERE "
					    "id=3", -1, &s, NULL), SQLITE_OK);
	assert_int_equal(sqlite3_step(s), SQLITE_ROW);
	assert_int_equal(sqlite3_column_bytes(s, 0), 60000);
	sqlite3_finalize(s);
	assert_int_equal(sqlite3_exec(db, "DELETE FROM tensor", NULL, NULL,
				      NULL), SQLITE_READONLY);
	assert_int_equal(sqlite3_exec(db, "PRAGMA journal_mode=WAL", NULL,
				      NULL, NULL), SQLITE_OK);
	assert_true(f->os.turn > 20);
	sqlite3_close(db);
	ckq_file_close(&file);
	/* nothing was made beside it, and it is as it was */
	assert_int_equal(faccessat(f->fd, "m-journal", F_OK, 0), -1);
	assert_int_equal(faccessat(f->fd, "m-wal", F_OK, 0), -1);
}

/* The VFS belongs to manifests: no other file can be had through it. */
static void it_opens_nothing_by_path(void **state)
{
	struct fix *f = *state;
	struct ckq_file file;
	char path[512];
	sqlite3 *db = NULL;

	open_file(f, &file);
	assert_int_equal(ckq_vfs_open(&file, &db), SQLITE_OK);
	assert_true(sqlite3_exec(db, "ATTACH '/etc/hostname' AS x", NULL, NULL,
				 NULL) != SQLITE_OK);
	sqlite3_close(db);
	ckq_file_close(&file);
	snprintf(path, sizeof(path), "%s/m", f->dir);
	assert_int_equal(sqlite3_open_v2(path, &db, SQLITE_OPEN_READONLY,
					 CKQ_VFS_NAME), SQLITE_CANTOPEN);
	sqlite3_close(db);
	/* and it did not become the default */
	assert_string_not_equal(sqlite3_vfs_find(NULL)->zName, CKQ_VFS_NAME);
}

static void a_read_that_fails_is_io_and_passes(void **state)
{
	struct fix *f = *state;
	struct ckpt_err err = { 0 };
	struct ckq_manifest *m = NULL;
	CKB_BUF struct ckb_buf blob = { 0 };

	assert_ok(open_it(f, "m", &m, &err));
	f->os.read_errno = EIO;
	assert_code(ckq_manifest_verify(m, &err), CKPT_EIO);
	assert_int_equal(err.sys_errno, EIO);
	assert_says(err, "page 1 of manifest 'm'");
	f->os.read_errno = ESTALE;
	assert_code(ckq_manifest_verify(m, &err), CKPT_ESTALE);
	/* trouble that went away is not held against the file */
	f->os.read_errno = 0;
	assert_ok(ckq_manifest_verify(m, &err));
	struct walk w = { 0 };

	assert_ok(read_rows(m, &w, &err));
	assert_false(w.wrong);
	ckq_manifest_close(m);
}

static void a_file_that_shrinks_while_open_is_damage(void **state)
{
	struct fix *f = *state;
	struct ckpt_err err = { 0 };
	struct ckq_manifest *m = NULL;

	assert_ok(open_it(f, "m", &m, &err));
	assert_int_equal(ftruncate(f->file, (off_t)f->image.len - 4096), 0);
	assert_code(ckq_manifest_verify(m, &err), CKPT_ECORRUPT);
	assert_says(err, "it ends before page");
	ckq_manifest_close(m);
}

/* ---- many at once ---- */

static void *open_and_read(void *arg)
{
	struct fix *f = arg;
	bool fine = true;

	for (int i = 0; i < 15; i++) {
		struct ckq_manifest *m = NULL;
		struct walk w = { 0 };

		fine = fine &&
		       ckq_manifest_open(ckb_sys_real(), f->fd, "m", &m,
					 NULL) == 0 &&
		       read_rows(m, &w, NULL) == 0 && !w.wrong;
		ckq_manifest_close(m);
	}
	return fine ? f : NULL;
}

static void threads_open_and_read_at_once(void **state)
{
	pthread_t threads[4];

	for (int i = 0; i < 4; i++)
		assert_int_equal(pthread_create(&threads[i], NULL,
						open_and_read, *state), 0);
	for (int i = 0; i < 4; i++) {
		void *fine = NULL;

		pthread_join(threads[i], &fine);
		threads[i] = fine ? threads[i] : 0;
	}
	for (int i = 0; i < 4; i++)
		assert_true(threads[i] != 0);
}

#define T(name) cmocka_unit_test_setup_teardown(name, fix_setup, fix_teardown)

int main(void)
{
	const struct CMUnitTest tests[] = {
		/* first: the VFS is registered in the middle of the crowd */
		T(threads_open_and_read_at_once),
		T(a_page_is_read_and_verified),
		T(sqlite_reads_through_it_and_cannot_write),
		T(it_opens_nothing_by_path),
		T(a_read_that_fails_is_io_and_passes),
		T(a_file_that_shrinks_while_open_is_damage),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
