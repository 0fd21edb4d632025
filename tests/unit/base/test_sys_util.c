/* SPDX-License-Identifier: Apache-2.0 */
/*
 * test_sys_util.c - the helpers over the table loop, give up and speak as they
 * must.
 *
 * They go through the table of fault_sys.h; a few answers that no file system
 * gives when asked come from fakes.
 */
#include "unit/base/sys_fixture.h"

#include <sys/mman.h>

#include "base/buf.h"

#define assert_ok(call) \
	do { \
		int rc_ = (call); \
		if (rc_ != 0) \
			fail_msg("%s: %d: %s", #call, rc_, fix->err.message); \
	} while (0)
/* It fails with @want and says @text, and no descriptor stays. */
#define assert_fails(call, want, text) \
	do { \
		fix->err = (struct ckpt_err){ 0 }; \
		assert_int_equal((call), (want)); \
		assert_int_equal(fix->err.code, (want)); \
		assert_string_equal(fix->err.message, (text)); \
		assert_int_equal(fault_open_count(&fix->f), 0); \
	} while (0)

/* ---- times ---- */

static void times_that_do_not_fit_are_clamped(void **state)
{
	static const struct { struct timespec t; int64_t want; } cases[] = {
		{ { 0, 0 }, 0 },
		{ { 1700000000, 5 }, 1700000000000000005 },
		{ { -1, 999999999 }, -1 }, /* just before 1970 */
		{ { 9223372035, 999999999 }, 9223372035999999999 },
		{ { 13569465600, 0 }, INT64_MAX }, /* 2400-01-01 */
		{ { -11676096000, 0 }, INT64_MIN }, /* 1600-01-01 */
		{ { INT64_MAX, 999999999 }, INT64_MAX },
		{ { INT64_MIN, 0 }, INT64_MIN },
	};

	(void)state;
	for (size_t i = 0; i < CKB_ARRAY_LEN(cases); i++)
		assert_true(ckb_time_ns(&cases[i].t) == cases[i].want);
}

/* ---- whole reads and writes ---- */

static void fill(uint8_t *data, size_t len)
{
	for (size_t i = 0; i < len; i++)
		data[i] = (uint8_t)(i * 37 >> 2);
}

static void short_counts_and_eintr_are_gone_on_with(void **state)
{
	static const size_t steps[] = { 1, 7, 999, 1000, 1001, 0 };
	struct fix *fix = *state;
	uint8_t data[1000], have[1010];

	fill(data, sizeof(data));
	for (size_t i = 0; i < CKB_ARRAY_LEN(steps); i++) {
		struct fault_sys *f = &fix->f;
		int fd = openat(fix->fd, "f", O_RDWR | O_CREAT | O_TRUNC, 0666);
		size_t step = steps[i] ? steps[i] : 1000;
		int moves = (int)((1000 + step - 1) / step);

		fault_init(f);
		f->kinds = FAULT_BIT(FAULT_READ) | FAULT_BIT(FAULT_WRITE);
		f->move_max = steps[i];
		f->error = EINTR;
		f->fail_at = moves; /* the last one, but for three signals */
		f->fail_count = 3;
		assert_ok(ckb_pwrite_full(&f->sys, fd, data, 1000, 10, "f",
					  &fix->err));
		assert_int_equal(f->calls, moves + 3);
		assert_int_equal(pread(fd, have, 1010, 0), 1010);
		assert_memory_equal(have + 10, data, 1000);
		memset(have, 0xee, sizeof(have));
		f->calls = 0;
		assert_ok(ckb_pread_full(&f->sys, fd, have, 1000, 10, "f",
					 &fix->err));
		assert_int_equal(f->calls, moves + 3);
		assert_memory_equal(have, data, 1000);
		assert_int_equal(have[1000], 0xee);
		close(fd);
	}
	assert_int_equal(fix->err.code, 0);
}

static void nothing_to_move_asks_nothing(void **state)
{
	struct fix *fix = *state;
	const struct ckb_sys *sys = &fix->f.sys;

	assert_ok(ckb_pread_full(sys, -1, NULL, 0, 0, "f", &fix->err));
	assert_ok(ckb_pwrite_full(sys, -1, NULL, 0, 0, "f", &fix->err));
	assert_int_equal(fix->f.calls, 0);
}

static void a_file_that_ends_early_is_corrupt(void **state)
{
	struct fix *fix = *state;
	char have[100];

	fix_put(fix, "f", "0123456789", 10);
	int fd = openat(fix->fd, "f", O_RDONLY);

	fix->f.move_max = 3;
	assert_fails(ckb_pread_full(&fix->f.sys, fd, have, 9, 4, "packs/f",
				    &fix->err), CKPT_ECORRUPT,
		     "'packs/f' ends at offset 10, where 3 more bytes must "
		     "be: it is truncated");
	assert_int_equal(fix->err.sys_errno, 0);
	assert_int_equal(ckb_pread_full(&fix->f.sys, fd, have, 1, 10, "f",
					NULL), CKPT_ECORRUPT);
	assert_ok(ckb_pread_full(&fix->f.sys, fd, have, 6, 4, "f", &fix->err));
	close(fd);
}

static void a_failure_on_the_way_says_where(void **state)
{
	struct fix *fix = *state;
	uint8_t data[100] = { 1 };

	fix_put(fix, "f", data, sizeof(data));
	int fd = openat(fix->fd, "f", O_RDWR);

	fix->f.move_max = 30;
	fix->f.fail_at = 3;
	assert_fails(ckb_pread_full(&fix->f.sys, fd, data, 90, 5, "f",
				    &fix->err), CKPT_EIO,
		     "cannot read 'f' at offset 65: Input/output error");
	assert_int_equal(fix->err.sys_errno, EIO);
	assert_int_equal(fix->f.calls, 3);
	fix->f.calls = 0;
	fix->f.error = ENOSPC;
	assert_fails(ckb_pwrite_full(&fix->f.sys, fd, data, 100, 5, "f",
				     &fix->err), CKPT_ENOSPC,
		     "cannot write 40 bytes to 'f' at offset 65: No space left "
		     "on device");
	assert_int_equal(fix->err.sys_errno, ENOSPC);
	assert_int_equal(fix->f.calls, 3);
	close(fd);
}

static int asked;

static ssize_t write_nothing(const struct ckb_sys *sys, int fd,
			     const void *src, size_t len, uint64_t off)
{
	(void)sys;
	(void)fd;
	(void)src;
	(void)off;
	return ++asked < 9 ? 0 : (ssize_t)len;
}

static void a_write_of_nothing_is_a_failure(void **state)
{
	struct fix *fix = *state;

	asked = 0;
	fix->f.sys.pwrite = write_nothing;
	assert_fails(ckb_pwrite_full(&fix->f.sys, -1, "abc", 3, 7, "f",
				     &fix->err), CKPT_EIO,
		     "cannot write 3 bytes to 'f' at offset 7: Input/output "
		     "error");
	assert_int_equal(asked, 1);
}

/* Moves that touch no memory; each must follow the one before. */
static size_t moved;

static ssize_t move(size_t len, uint64_t off)
{
	if (len == 0 || len > GIB || off != 3 * GIB + moved)
		return -EDOM;
	moved += len;
	return (ssize_t)len;
}

static ssize_t read_far(const struct ckb_sys *sys, int fd, void *dst,
			size_t len, uint64_t off)
{
	(void)sys;
	(void)fd;
	(void)dst;
	return move(len, off);
}

static ssize_t write_far(const struct ckb_sys *sys, int fd, const void *src,
			 size_t len, uint64_t off)
{
	(void)sys;
	(void)fd;
	(void)src;
	return move(len, off);
}

static void no_call_moves_over_a_gib(void **state)
{
	struct fix *fix = *state;
	struct fault_sys *f = &fix->f;
	size_t len = 2 * GIB + 5;
	void *room = mmap(NULL, len, PROT_NONE,
			  MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);

	assert_true(room != MAP_FAILED);
	f->sys.pread = read_far;
	f->sys.pwrite = write_far;
	moved = 0;
	assert_ok(ckb_pread_full(&f->sys, -1, room, len, 3 * GIB, "f",
				 &fix->err));
	assert_int_equal(moved, len);
	moved = 0;
	assert_ok(ckb_pwrite_full(&f->sys, -1, room, len, 3 * GIB, "f",
				  &fix->err));
	assert_int_equal(moved, len);
	munmap(room, len);
}

/* ---- small files ---- */

static int read_file(struct fix *fix, const char *name, size_t max,
		     const char *want)
{
	struct ckb_buf buf = { 0 };
	int rc = ckb_read_file(&fix->f.sys, fix->fd, name, max, &buf,
			       &fix->err);

	if (rc == 0) {
		assert_int_equal(buf.len, strlen(want));
		assert_string_equal((char *)buf.data, want);
	}
	ckb_buf_fini(&buf);
	assert_int_equal(fault_open_count(&fix->f), 0);
	return rc;
}

static void a_small_file_is_read_whole(void **state)
{
	struct fix *fix = *state;

	fix_put(fix, "f", "hello", 5);
	fix_put(fix, "empty", "", 0);
	assert_ok(read_file(fix, "f", 5, "hello"));
	assert_ok(read_file(fix, "f", SIZE_MAX, "hello"));
	assert_ok(read_file(fix, "empty", 0, ""));
	fix->f.move_max = 2;
	assert_ok(read_file(fix, "f", 5, "hello"));
}

static void what_is_no_small_file_is_refused(void **state)
{
	struct fix *fix = *state;

	fix_put(fix, "f", "hello", 5);
	assert_int_equal(mkfifoat(fix->fd, "fifo", 0666), 0);
	assert_int_equal(mkdirat(fix->fd, "d", 0777), 0);
	assert_int_equal(symlinkat("f", fix->fd, "link"), 0);
	assert_fails(read_file(fix, "f", 4, ""), CKPT_ELIMIT,
		     "'f' has 5 bytes, more than the 4 it may have");
	assert_fails(read_file(fix, "fifo", 9, ""), CKPT_EINVAL,
		     "'fifo' is no regular file");
	assert_fails(read_file(fix, "d", SIZE_MAX, ""), CKPT_EINVAL,
		     "'d' is no regular file");
	assert_fails(read_file(fix, "absent", 9, ""), CKPT_ENOENT,
		     "cannot open 'absent': No such file or directory");
	assert_fails(read_file(fix, "link", 9, ""), CKPT_EIO,
		     "cannot open 'link': Too many levels of symbolic links");
	assert_int_equal(fix->err.sys_errno, ELOOP);
	assert_int_equal(fix->f.made[FAULT_READ], 0);
}

static int stat_larger(const struct ckb_sys *sys, int fd, struct stat *out)
{
	(void)sys;
	int rc = fstat(fd, out);

	out->st_size += 2;
	return rc;
}

static void a_file_that_shrinks_while_read_is_corrupt(void **state)
{
	struct fix *fix = *state;

	fix_put(fix, "f", "hello", 5);
	fix->f.sys.fstat = stat_larger;
	assert_fails(read_file(fix, "f", 9, ""), CKPT_ECORRUPT,
		     "'f' ends at offset 5, where 2 more bytes must be: it is "
		     "truncated");
}

/* In the order of the calls; NULL: nobody minds. */
static void each_failing_call_of_a_read_is_told(void **state)
{
	static const char *const says[] = {
		"cannot open 'f': Input/output error",
		"cannot read 'f': Input/output error",
		"cannot read 'f' at offset 0: Input/output error",
		NULL,
	};
	struct fix *fix = *state;

	fix_put(fix, "f", "hello", 5);
	for (size_t i = 0; i < CKB_ARRAY_LEN(says); i++) {
		fault_init(&fix->f);
		fix->f.fail_at = (int)i + 1;
		if (says[i])
			assert_fails(read_file(fix, "f", 5, ""), CKPT_EIO,
				     says[i]);
		else
			assert_ok(read_file(fix, "f", 5, "hello"));
		assert_true(fix->f.met);
	}
	assert_int_equal(fix->f.calls, CKB_ARRAY_LEN(says));
}

static int write_file(struct fix *fix, const char *name, const char *text)
{
	return ckb_write_file(&fix->f.sys, fix->fd, name, text, strlen(text),
			      &fix->err);
}

static void a_file_is_written_and_synced(void **state)
{
	struct fix *fix = *state;
	struct stat st;

	fix->f.move_max = 2;
	assert_ok(write_file(fix, "f", "hello"));
	fix_holds(fix, "f", "hello", 5);
	assert_int_equal(fix->f.made[FAULT_FSYNC], 1);
	assert_int_equal(fix->f.made[FAULT_CLOSE], 1);
	assert_int_equal(fstatat(fix->fd, "f", &st, 0), 0);
	assert_int_equal(st.st_mode & 07777, 0644);
	assert_ok(write_file(fix, "empty", ""));
	fix_holds(fix, "empty", "", 0);
	assert_int_equal(fix->f.made[FAULT_FSYNC], 2);
	assert_int_equal(fault_open_count(&fix->f), 0);
}

static void a_name_that_exists_is_not_written_to(void **state)
{
	struct fix *fix = *state;

	fix_put(fix, "f", "old", 3);
	assert_int_equal(symlinkat("other", fix->fd, "link"), 0);
	assert_fails(write_file(fix, "f", "new"), CKPT_EEXIST,
		     "cannot make 'f': File exists");
	assert_fails(write_file(fix, "link", "new"), CKPT_EEXIST,
		     "cannot make 'link': File exists");
	fix_holds(fix, "f", "old", 3);
	assert_int_equal(faccessat(fix->fd, "other", F_OK, 0), -1);
	assert_int_equal(fix->f.made[FAULT_WRITE], 0);
}

static void each_failing_call_of_a_write_is_told(void **state)
{
	static const char *const says[] = {
		"cannot make 'f': Input/output error",
		"cannot write 5 bytes to 'f' at offset 0: Input/output error",
		"cannot sync 'f': Input/output error",
		"cannot close 'f': Input/output error",
	};
	struct fix *fix = *state;
	struct fault_sys *f = &fix->f;

	for (int i = 0; i < (int)CKB_ARRAY_LEN(says); i++) {
		fault_init(f);
		f->fail_at = i + 1;
		assert_fails(write_file(fix, "f", "hello"), CKPT_EIO, says[i]);
		assert_int_equal(fix->err.sys_errno, EIO);
		assert_int_equal(f->made[FAULT_FSYNC], i >= 2); /* S5: once */
		assert_int_equal(f->made[FAULT_CLOSE], i >= 1);
		unlinkat(fix->fd, "f", 0);
	}
	fault_init(f);
	f->fail_at = 3; /* of two failures the first is told */
	f->fail_count = 2;
	assert_fails(write_file(fix, "f", "hello"), CKPT_EIO, says[2]);
}

/* NFS tells of lost writes at close; after EINTR it is closed all the same. */
static void of_a_failing_close_only_eintr_is_no_failure(void **state)
{
	struct fix *fix = *state;

	fix->f.error = EDQUOT;
	fault_each(&fix->f, FAULT_CLOSE, "/f");
	assert_fails(write_file(fix, "f", "hello"), CKPT_ENOSPC,
		     "cannot close 'f': Disk quota exceeded");
	assert_int_equal(fix->f.calls, 1);
	fix->f.error = EINTR;
	fault_each(&fix->f, FAULT_CLOSE, "/g");
	assert_ok(write_file(fix, "g", "hello"));
	assert_int_equal(fix->f.calls, 1);
	assert_int_equal(fault_open_count(&fix->f), 0);
}

/* A signal during fsync says nothing of what reached the disk. */
static void a_failed_sync_is_not_repeated(void **state)
{
	struct fix *fix = *state;

	fix->f.error = EINTR;
	fault_each(&fix->f, FAULT_FSYNC, NULL);
	assert_fails(write_file(fix, "f", "hello"), CKPT_EIO,
		     "cannot sync 'f': Interrupted system call");
	assert_int_equal(fix->f.calls, 1);
	assert_fails(ckb_sync_dir(&fix->f.sys, fix->fd, ".", &fix->err),
		     CKPT_EIO,
		     "cannot sync folder '.': Interrupted system call");
	assert_int_equal(fix->f.calls, 2);
}

/* ---- folders ---- */

static int (*const syncs[])(const struct ckb_sys *sys, int dirfd,
			    const char *path, struct ckpt_err *err) = {
	ckb_sync_dir, ckb_sync_dir_surely,
};

static void folders_without_a_sync_are_unsure_or_passed_over(void **state)
{
	static const int errors[] = { EINVAL, ENOSYS, EOPNOTSUPP };
	struct fix *fix = *state;
	const struct ckb_sys *sys = &fix->f.sys;

	assert_int_equal(mkdirat(fix->fd, "d", 0777), 0);
	for (size_t i = 0; i < CKB_ARRAY_LEN(errors); i++) {
		fix->f.error = errors[i];
		fault_each(&fix->f, FAULT_FSYNC, "/d");
		fix->err = (struct ckpt_err){ 0 };
		assert_ok(ckb_sync_dir(sys, fix->fd, "d", &fix->err));
		assert_int_equal(fix->err.code, 0);
		assert_int_equal(fix->f.calls, 1);
		assert_fails(ckb_sync_dir_surely(sys, fix->fd, "d", &fix->err),
			     CKPT_EUNSURE, "its file system cannot sync "
			     "folders");
		assert_int_equal(fix->f.calls, 2);
	}
}

static void a_folder_that_fails_to_sync_is_an_error(void **state)
{
	static const int errors[] = FAULT_ERRORS;
	struct fix *fix = *state;
	const struct ckb_sys *sys = &fix->f.sys;

	assert_int_equal(mkdirat(fix->fd, "d", 0777), 0);
	fix_put(fix, "f", "", 0);
	for (size_t i = 0; i < 2 * CKB_ARRAY_LEN(errors); i++) {
		fix->f.error = errors[i / 2];
		fault_each(&fix->f, FAULT_FSYNC, "/d");
		int rc = syncs[i % 2](sys, fix->fd, "d", &fix->err);

		assert_true(rc < 0 && rc != CKPT_EUNSURE);
		assert_int_equal(fix->err.code, rc);
		assert_int_equal(fix->err.sys_errno, errors[i / 2]);
		assert_int_equal(fix->f.calls, 1);
		assert_int_equal(syncs[i % 2](sys, fix->fd, "d", NULL), rc);
	}
	fix->f.error = EIO;
	for (size_t i = 0; i < CKB_ARRAY_LEN(syncs); i++) {
		assert_fails(syncs[i](sys, fix->fd, "d", &fix->err), CKPT_EIO,
			     "cannot sync folder 'd': Input/output error");
		assert_fails(syncs[i](sys, fix->fd, "e", &fix->err),
			     CKPT_ENOENT, "cannot open folder 'e': No such "
			     "file or directory");
		assert_fails(syncs[i](sys, fix->fd, "f", &fix->err), CKPT_EIO,
			     "cannot open folder 'f': Not a directory");
	}
}

static void a_folder_is_synced_once(void **state)
{
	struct fix *fix = *state;

	for (size_t i = 0; i < CKB_ARRAY_LEN(syncs); i++) {
		fault_init(&fix->f);
		assert_ok(syncs[i](&fix->f.sys, fix->fd, ".", &fix->err));
		assert_int_equal(fix->f.made[FAULT_FSYNC], 1);
		assert_int_equal(fault_open_count(&fix->f), 0);
	}
}

static int make_dirs(struct fix *fix, const char *path)
{
	return ckb_make_dirs(&fix->f.sys, fix->fd, path, &fix->err);
}

static void folders_are_made_one_in_the_other(void **state)
{
	struct fix *fix = *state;
	struct stat st;

	assert_ok(make_dirs(fix, "a/b/c"));
	assert_int_equal(fstatat(fix->fd, "a/b/c", &st, 0), 0);
	assert_int_equal(st.st_mode & 07777, 0755);
	assert_ok(make_dirs(fix, "a/b/c")); /* all there */
	assert_ok(make_dirs(fix, "a/b/d/e")); /* some */
	assert_true(fix_is_folder(fix, "a/b/d/e"));
	assert_ok(make_dirs(fix, "a//x/"));
	assert_true(fix_is_folder(fix, "a/x"));
	assert_ok(make_dirs(fix, "."));
	assert_int_equal(fix_count(fix->fd, "."), 1);
	assert_int_equal(fix_count(fix->fd, "a"), 2);
	assert_int_equal(fix_count(fix->fd, "a/b"), 2);
	assert_int_equal(fault_open_count(&fix->f), 0);
}

/* Also of folders that exist: their maker may not have come to it (S2). */
static void every_parent_is_synced_whether_it_was_there_or_not(void **state)
{
	struct fix *fix = *state;
	const char *parents[] = { strrchr(fix->dir, '/'), "/a", "/a/b" };

	for (int there = 0; there <= 1; there++) {
		fault_init(&fix->f);
		assert_ok(make_dirs(fix, "a/b/c"));
		assert_int_equal(fix->f.made[FAULT_FSYNC], 3);
		assert_int_equal(fix->f.made[FAULT_MKDIR], 3);
	}
	for (size_t i = 0; i < CKB_ARRAY_LEN(parents); i++) {
		fault_each(&fix->f, FAULT_FSYNC, parents[i]);
		assert_int_equal(make_dirs(fix, "a/b/c"), CKPT_EIO);
		assert_int_equal(fix->f.calls, 1);
	}
	fault_each(&fix->f, FAULT_FSYNC, "/a/b");
	assert_fails(make_dirs(fix, "a/b/new/er"), CKPT_EIO,
		     "cannot sync folder 'a/b': Input/output error");
	assert_false(fix_is_folder(fix, "a/b/new/er"));
}

static void what_is_no_folder_is_in_the_way(void **state)
{
	struct fix *fix = *state;
	static const char *const paths[] = { "f", "f/x", "f/x/y" };

	fix_put(fix, "f", "old", 3);
	for (size_t i = 0; i < CKB_ARRAY_LEN(paths); i++) {
		assert_fails(make_dirs(fix, paths[i]), CKPT_EIO,
			     "cannot make folder 'f': Not a directory");
		assert_int_equal(fix->err.sys_errno, ENOTDIR);
	}
	assert_int_equal(symlinkat("nowhere", fix->fd, "dangling"), 0);
	assert_fails(make_dirs(fix, "dangling/x"), CKPT_ENOENT, "cannot make "
		     "folder 'dangling': No such file or directory");
	assert_int_equal(fix->f.made[FAULT_FSYNC], 0);
	assert_int_equal(fix_count(fix->fd, "."), 2);
	fix_holds(fix, "f", "old", 3);
}

static void a_link_to_a_folder_is_gone_through(void **state)
{
	struct fix *fix = *state;

	assert_int_equal(mkdirat(fix->fd, "real", 0777), 0);
	assert_int_equal(symlinkat("real", fix->fd, "link"), 0);
	assert_ok(make_dirs(fix, "link"));
	assert_ok(make_dirs(fix, "link/x"));
	assert_true(fix_is_folder(fix, "real/x"));
}

static void a_path_that_is_too_long_is_refused(void **state)
{
	struct fix *fix = *state;
	char path[4097];

	memset(path, 'n', 4096);
	path[4096] = '\0';
	assert_fails(make_dirs(fix, path), CKPT_ELIMIT, "the path 'nnnnnnnnnn"
		     "nnnnnnnnnnnnnnnnnnnnnnnnnnnnnn...' is too long");
	assert_int_equal(fix->f.calls, 0);
	path[4095] = '\0'; /* the system's to refuse */
	assert_int_equal(make_dirs(fix, path), CKPT_EIO);
	assert_int_equal(fix->err.sys_errno, ENAMETOOLONG);
	assert_int_equal(fix->f.calls, 1);
}

/* Each part: mkdir, open, close, open, fsync, close; no close is minded. */
static void each_failing_call_of_making_folders_is_told(void **state)
{
	static const int errors[] = FAULT_ERRORS;
	struct fix *fix = *state;

	for (size_t e = 0; e < 2 * CKB_ARRAY_LEN(errors); e++) {
		int failed = 0, n = 0;

		do {
			int error = errors[e / 2];

			fault_init(&fix->f);
			fix->f.fail_at = ++n;
			fix->f.error = error;
			fix->f.when = (enum fault_when)(e % 2);
			fix->err = (struct ckpt_err){ 0 };
			int rc = make_dirs(fix, "a/b/c");

			assert_int_equal(fix->err.code, rc);
			assert_int_equal(fix->err.sys_errno, rc ? error : 0);
			assert_true(rc || fix_is_folder(fix, "a/b/c"));
			assert_int_equal(fault_open_count(&fix->f), 0);
			failed += rc < 0;
			unlinkat(fix->fd, "a/b/c", AT_REMOVEDIR);
			unlinkat(fix->fd, "a/b", AT_REMOVEDIR);
			unlinkat(fix->fd, "a", AT_REMOVEDIR);
		} while (fix->f.met);
		assert_int_equal(n, 3 * 6 + 1);
		assert_int_equal(failed, 3 * 4);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		TEST(times_that_do_not_fit_are_clamped),
		TEST(short_counts_and_eintr_are_gone_on_with),
		TEST(nothing_to_move_asks_nothing),
		TEST(a_file_that_ends_early_is_corrupt),
		TEST(a_failure_on_the_way_says_where),
		TEST(a_write_of_nothing_is_a_failure),
		TEST(no_call_moves_over_a_gib),
		TEST(a_small_file_is_read_whole),
		TEST(what_is_no_small_file_is_refused),
		TEST(a_file_that_shrinks_while_read_is_corrupt),
		TEST(each_failing_call_of_a_read_is_told),
		TEST(a_file_is_written_and_synced),
		TEST(a_name_that_exists_is_not_written_to),
		TEST(each_failing_call_of_a_write_is_told),
		TEST(of_a_failing_close_only_eintr_is_no_failure),
		TEST(a_failed_sync_is_not_repeated),
		TEST(folders_without_a_sync_are_unsure_or_passed_over),
		TEST(a_folder_that_fails_to_sync_is_an_error),
		TEST(a_folder_is_synced_once),
		TEST(folders_are_made_one_in_the_other),
		TEST(every_parent_is_synced_whether_it_was_there_or_not),
		TEST(what_is_no_folder_is_in_the_way),
		TEST(a_link_to_a_folder_is_gone_through),
		TEST(a_path_that_is_too_long_is_refused),
		TEST(each_failing_call_of_making_folders_is_told),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
