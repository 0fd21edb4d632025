/* SPDX-License-Identifier: Apache-2.0 */
/*
 * test_commit.c - the n-th system call fails: of init, of a whole save.
 *
 * For n = 1, 2, ... until a body runs without meeting the fault, and for
 * several errnos, a call fails before it did anything, or (where the caller
 * cannot lose a descriptor by it) after it did all, its answer lost. After
 * each: no descriptor leaked, the store opens, older checkpoints are whole,
 * the new one is whole or absent, and absent unless the save said so (S3-S5).
 */
#include "unit/verbs/store_fixture.h"

#include "verbs/stage_impl.h"

/* ---- an operating system that fails ---- */

enum when { BEFORE, AFTER };

/* The table is first: a call finds the rest behind it. */
struct faulty {
	struct ckb_sys sys;
	int left;            /* calls until the fault; 0: it was met */
	int error;
	enum when when;
	const char *sync_of; /* fsync of a path that ends so fails, or NULL */
	const char *close_of;
	size_t write_max;    /* a write does no more; 0: no bound */
	int unlinks, syncs_of;
};

static const struct ckb_sys *os;

/* Is it this call that fails? */
static bool hit(const struct ckb_sys *sys)
{
	struct faulty *f = (struct faulty *)(uintptr_t)sys;

	return f->left > 0 && --f->left == 0;
}

static struct faulty *faulty(const struct ckb_sys *sys)
{
	return (struct faulty *)(uintptr_t)sys;
}

static bool after(const struct ckb_sys *sys)
{
	return faulty(sys)->when == AFTER;
}

static int error_of(const struct ckb_sys *sys)
{
	return -faulty(sys)->error;
}

static bool ends_with(int fd, const char *end)
{
	char link[64], path[4096];

	snprintf(link, sizeof(link), "/proc/self/fd/%d", fd);
	ssize_t n = readlink(link, path, sizeof(path) - 1);
	size_t len = strlen(end);

	return n >= (ssize_t)len && memcmp(path + n - len, end, len) == 0;
}

/* A call that leaves no descriptor behind when its answer is lost. */
#define FAIL_OR(call) \
	do { \
		if (!hit(sys)) \
			return call; \
		if (after(sys)) \
			(void)call; \
		return error_of(sys); \
	} while (0)

static int f_openat(const struct ckb_sys *sys, int dirfd, const char *path,
		    int flags, mode_t mode)
{
	return hit(sys) ? error_of(sys)
			: os->openat(os, dirfd, path, flags, mode);
}

static int f_close(const struct ckb_sys *sys, int fd)
{
	bool named = faulty(sys)->close_of &&
		     ends_with(fd, faulty(sys)->close_of);
	int rc = os->close(os, fd); /* as Linux: closed in any case */

	return hit(sys) || named ? error_of(sys) : rc;
}

static ssize_t f_pread(const struct ckb_sys *sys, int fd, void *dst,
		       size_t len, uint64_t off)
{
	return hit(sys) ? error_of(sys) : os->pread(os, fd, dst, len, off);
}

static ssize_t f_pwrite(const struct ckb_sys *sys, int fd, const void *src,
			size_t len, uint64_t off)
{
	size_t max = faulty(sys)->write_max;

	if (max && len > max)
		len = max;
	if (!hit(sys))
		return os->pwrite(os, fd, src, len, off);
	if (after(sys)) /* half of it got there */
		(void)!os->pwrite(os, fd, src, len / 2, off);
	return error_of(sys);
}

static int f_fsync(const struct ckb_sys *sys, int fd)
{
	struct faulty *f = faulty(sys);

	if (f->sync_of && ends_with(fd, f->sync_of)) {
		f->syncs_of++;
		return error_of(sys);
	}
	FAIL_OR(os->fsync(os, fd));
}

static int f_fdatasync(const struct ckb_sys *sys, int fd)
{
	FAIL_OR(os->fdatasync(os, fd));
}

static int f_sync_range(const struct ckb_sys *sys, int fd, uint64_t off,
			uint64_t len)
{
	FAIL_OR(os->sync_range(os, fd, off, len));
}

static int f_fallocate(const struct ckb_sys *sys, int fd, uint64_t off,
		       uint64_t len)
{
	FAIL_OR(os->fallocate(os, fd, off, len));
}

static int f_ftruncate(const struct ckb_sys *sys, int fd, uint64_t len)
{
	FAIL_OR(os->ftruncate(os, fd, len));
}

static int f_mkdirat(const struct ckb_sys *sys, int dirfd, const char *path,
		     mode_t mode)
{
	FAIL_OR(os->mkdirat(os, dirfd, path, mode));
}

static int f_linkat(const struct ckb_sys *sys, int from_dirfd,
		    const char *from, int to_dirfd, const char *to)
{
	FAIL_OR(os->linkat(os, from_dirfd, from, to_dirfd, to));
}

static int f_renameat(const struct ckb_sys *sys, int from_dirfd,
		      const char *from, int to_dirfd, const char *to)
{
	FAIL_OR(os->renameat(os, from_dirfd, from, to_dirfd, to));
}

static int f_unlinkat(const struct ckb_sys *sys, int dirfd, const char *path,
		      int flags)
{
	faulty(sys)->unlinks++;
	FAIL_OR(os->unlinkat(os, dirfd, path, flags));
}

static int f_fstat(const struct ckb_sys *sys, int fd, struct stat *out)
{
	return hit(sys) ? error_of(sys) : os->fstat(os, fd, out);
}

static int f_fstatat(const struct ckb_sys *sys, int dirfd, const char *path,
		     struct stat *out)
{
	return hit(sys) ? error_of(sys) : os->fstatat(os, dirfd, path, out);
}

static int f_list(const struct ckb_sys *sys, int dirfd, const char *path,
		  ckb_dirent_fn fn, void *ctx)
{
	FAIL_OR(os->list(os, dirfd, path, fn, ctx));
}

static int f_flock(const struct ckb_sys *sys, int fd, int op)
{
	FAIL_OR(os->flock(os, fd, op));
}

static int f_fs_magic(const struct ckb_sys *sys, int fd, uint64_t *out)
{
	FAIL_OR(os->fs_magic(os, fd, out));
}

static int f_random(const struct ckb_sys *sys, void *dst, size_t len)
{
	FAIL_OR(os->random(os, dst, len));
}

static struct faulty faulty_new(int left, int error, enum when when)
{
	os = ckb_sys_real();
	return (struct faulty){
		.sys = {
			f_openat, f_close, f_pread, f_pwrite, f_fsync,
			f_fdatasync, f_sync_range, f_fallocate, f_ftruncate,
			f_mkdirat, f_linkat, f_renameat, f_unlinkat, f_fstat,
			f_fstatat, f_list, f_flock, f_fs_magic, f_random,
			os->now_ns,
		},
		.left = left, .error = error, .when = when,
	};
}

static const int errors[] = { EIO, ENOSPC, EMFILE, EROFS, ESTALE, ENOENT };

/* ---- init ---- */

static void init_is_whole_or_can_be_done_again(void **state)
{
	char dir[256], path[300];

	(void)state;
	fix_folder(dir);
	snprintf(path, sizeof(path), "%s/s", dir);
	for (size_t e = 0; e < 2 * CKB_ARRAY_LEN(errors); e++)
		for (int n = 1;; n++) {
			struct faulty f = faulty_new(n, errors[e / 2],
						     (enum when)(e % 2));
			struct ckpt_store *s;
			struct ckpt_err err = { 0 };
			int fds = fix_fds();
			int rc = cks_store_init_sys(&f.sys, path, &err);

			assert_int_equal(fix_fds(), fds);
			assert_true(rc == 0 || err.message[0]);
			if (ckpt_store_open(path, NULL, &s, NULL) == 0)
				ckpt_store_close(s);
			else if (rc == 0)
				fail_msg("call %d: 0, and no store", n);
			else
				assert_ok(ckpt_store_init(path, &err));
			assert_ok(ckpt_store_open(path, NULL, &s, &err));
			ckpt_store_close(s);
			fix_remove(path);
			if (f.left > 0) /* the fault was not met */
				break;
			assert_true(n < 1000);
		}
	fix_remove(dir);
}

/* ---- a save ---- */

static int open_and_save(struct faulty *f, const char *path, const char *name,
			 uint64_t seq, bool replace, struct ckpt_err *err)
{
	struct ckpt_store *s;
	int rc = cks_store_open_sys(&f->sys, path, NULL, &s, err);

	if (rc < 0)
		return rc;
	rc = fix_save(s, name, seq, replace, err);
	ckpt_store_close(s);
	return rc;
}

static void check_after(const char *path, const char *name, uint64_t seq,
			uint64_t before, int rc)
{
	struct ckpt_store *s;
	struct ckpt_err err = { 0 };

	assert_ok(ckpt_store_open(path, NULL, &s, &err));
	assert_ok(fix_whole(s, "old/1", 1, &err));
	if (rc == 0 || rc == CKPT_EUNSURE)
		assert_ok(fix_whole(s, name, seq, &err));
	else if (before)
		assert_ok(fix_whole(s, name, before, &err));
	else
		assert_code(fix_whole(s, name, seq, &err), CKPT_ENOENT);
	ckpt_store_close(s);
}

/* @before: seq of what already has the name, or 0. */
static void sweep_saves(struct fix *fix, int error, enum when when,
			const char *name, uint64_t before)
{
	uint64_t seq = 100;
	int unsure = 0;

	for (int n = 1;; n++) {
		struct faulty f = faulty_new(n, error, when);
		struct ckpt_err err = { 0 };
		char each[64];
		int fds = fix_fds();

		snprintf(each, sizeof(each), before ? "%s" : "%s/%d", name, n);
		int rc = open_and_save(&f, fix->path, each, ++seq, before != 0,
				       &err);

		assert_int_equal(fix_fds(), fds);
		if (rc < 0 && (err.code != rc || !err.message[0]))
			fail_msg("call %d: %d without its sentence", n, rc);
		check_after(fix->path, each, seq, before, rc);
		if (before && (rc == 0 || rc == CKPT_EUNSURE))
			before = seq;
		unsure += rc == CKPT_EUNSURE;
		if (f.left > 0) {
			assert_int_equal(rc, 0);
			break;
		}
		assert_true(n < 1000);
	}
	assert_true(unsure >= 1); /* the last sync, at least */
}

static void a_save_is_whole_or_absent_whatever_fails(void **state)
{
	struct fix *fix = *state;
	struct ckpt_err err = { 0 };

	assert_ok(fix_save(fix->store, "old/1", 1, false, &err));
	for (size_t e = 0; e < 2 * CKB_ARRAY_LEN(errors); e++) {
		char run[16];

		snprintf(run, sizeof(run), "r%d", (int)e);
		sweep_saves(fix, errors[e / 2], (enum when)(e % 2), run, 0);
	}
}

static void replacing_shows_the_old_or_the_new_whatever_fails(void **state)
{
	struct fix *fix = *state;
	struct ckpt_err err = { 0 };

	assert_ok(fix_save(fix->store, "old/1", 1, false, &err));
	for (size_t e = 0; e < 2 * CKB_ARRAY_LEN(errors); e++) {
		assert_ok(fix_save(fix->store, "cur", 50, true, &err));
		sweep_saves(fix, errors[e / 2], (enum when)(e % 2), "cur", 50);
	}
}

/* ---- single faults ---- */

static void a_failed_sync_before_the_link_publishes_nothing(void **state)
{
	static const char *const of[] = {
		"/manifest", ".pack", "/packs", "/staging", "/save.json",
	};
	struct fix *fix = *state;

	for (size_t i = 0; i < CKB_ARRAY_LEN(of); i++) {
		struct faulty f = faulty_new(0, EIO, BEFORE);
		struct ckpt_err err = { 0 };

		f.sync_of = of[i];
		assert_code(open_and_save(&f, fix->path, "a", 1, false, &err),
			    CKPT_EIO);
		assert_int_equal(f.syncs_of, 1); /* S5: never again */
		assert_code(fix_whole(fix->store, "a", 1, &err), CKPT_ENOENT);
		assert_int_equal(fix_count(fix->store, "staging"), 0);
	}
}

static void a_failed_last_sync_is_unsure_and_unlinks_nothing(void **state)
{
	struct fix *fix = *state;
	struct faulty f = faulty_new(0, EIO, BEFORE);
	CKB_BUF struct ckb_buf manifest = { 0 };
	uint8_t attempt[16] = { 1 }, pack[16];
	char staged[CKS_STAGE_PATH_BYTES];
	struct ckc_place place;
	struct ckpt_store *s;
	struct cks_stage *st;
	struct ckpt_err err = { 0 };

	assert_ok(cks_store_open_sys(&f.sys, fix->path, NULL, &s, &err));
	assert_ok(cks_stage_open(s, "run/a", attempt, &st, &err));
	assert_ok(fix_pack(st, 1, pack, &place, &err));
	assert_ok(fix_manifest(s, 1, pack, &manifest, &err));
	f.sync_of = "/checkpoints/run";
	assert_code(cks_stage_commit(st, manifest.data, manifest.len, false,
				     &err), CKPT_EUNSURE);
	assert_says(err, "visible");
	assert_int_equal(err.sys_errno, EIO);
	cks_stage_path(staged, st, "manifest");
	cks_stage_close(st);
	assert_int_equal(f.unlinks, 0);
	assert_int_equal(f.syncs_of, 1);
	assert_true(fix_there(fix, staged));
	assert_ok(fix_whole(s, "run/a", 1, &err));
	ckpt_store_close(s);
}

static void folders_that_cannot_be_synced_are_no_failure(void **state)
{
	static const int unsupported[] = { EINVAL, ENOSYS, EOPNOTSUPP };
	static const char *const of[] = { "/checkpoints", "/packs", "/staging",
					  "/store" };
	struct fix *fix = *state;
	uint64_t seq = 1;

	for (size_t e = 0; e < CKB_ARRAY_LEN(unsupported); e++)
		for (size_t i = 0; i < CKB_ARRAY_LEN(of); i++, seq++) {
			struct faulty f = faulty_new(0, unsupported[e], BEFORE);
			struct ckpt_err err = { 0 };

			f.sync_of = of[i];
			assert_ok(open_and_save(&f, fix->path, "a", seq, true,
						&err));
			assert_true(f.syncs_of > 0);
			assert_ok(fix_whole(fix->store, "a", seq, &err));
		}
}

/* NFS tells of a full disk at close */
static void a_failed_close_of_the_manifest_publishes_nothing(void **state)
{
	struct fix *fix = *state;
	struct faulty f = faulty_new(0, EDQUOT, BEFORE);
	struct ckpt_err err = { 0 };

	f.close_of = "/manifest";
	assert_code(open_and_save(&f, fix->path, "a", 1, false, &err),
		    CKPT_ENOSPC);
	assert_code(fix_whole(fix->store, "a", 1, &err), CKPT_ENOENT);
}

static void short_writes_are_gone_on_with(void **state)
{
	struct fix *fix = *state;
	struct faulty f = faulty_new(0, EIO, BEFORE);
	struct ckpt_err err = { 0 };

	f.write_max = 100;
	assert_ok(open_and_save(&f, fix->path, "a", 1, false, &err));
	assert_ok(fix_whole(fix->store, "a", 1, &err));
}

/* ---- reading ---- */

static int ignore(void *ctx, const char *name)
{
	(void)ctx;
	(void)name;
	return 0;
}

static void listing_fails_clearly_and_leaks_nothing(void **state)
{
	struct fix *fix = *state;
	struct ckpt_err err = { 0 };

	assert_ok(fix_save(fix->store, "r/a", 1, false, &err));
	assert_ok(fix_save(fix->store, "b", 2, false, &err));
	for (int n = 1;; n++) {
		struct faulty f = faulty_new(n, EIO, BEFORE);
		struct ckpt_store *s;
		uint64_t seq = 0;
		int fds = fix_fds();

		err = (struct ckpt_err){ 0 };
		int rc = cks_store_open_sys(&f.sys, fix->path, NULL, &s, &err);

		if (rc == 0) {
			rc = cks_store_walk(s, ignore, NULL, &err);
			if (rc == 0)
				rc = cks_store_last_seq(s, &seq, &err);
			ckpt_store_close(s);
		}
		assert_int_equal(fix_fds(), fds);
		assert_true(rc == 0 || err.message[0]);
		if (f.left > 0) {
			assert_int_equal(rc, 0);
			assert_int_equal(seq, 2);
			break;
		}
	}
}

#define TEST(name) \
	cmocka_unit_test_setup_teardown(name, fix_setup, fix_teardown)

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(init_is_whole_or_can_be_done_again),
		TEST(a_save_is_whole_or_absent_whatever_fails),
		TEST(replacing_shows_the_old_or_the_new_whatever_fails),
		TEST(a_failed_sync_before_the_link_publishes_nothing),
		TEST(a_failed_last_sync_is_unsure_and_unlinks_nothing),
		TEST(folders_that_cannot_be_synced_are_no_failure),
		TEST(a_failed_close_of_the_manifest_publishes_nothing),
		TEST(short_writes_are_gone_on_with),
		TEST(listing_fails_clearly_and_leaks_nothing),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
