/* SPDX-License-Identifier: Apache-2.0 */
/*
 * test_save_race.c - an abort amid any system call of a save, of its commit
 * too: the checkpoint is there whole or not at all, and who was told that the
 * save was aborted never finds it there.
 */
#include "save_fixture.h"

#include <pthread.h>
#include <semaphore.h>

enum { LEN = 300000 };

/* ---- a system that tells of its n-th call, and tarries in it ---- */

struct told {
	struct ckb_sys sys;  /* first */
	atomic_int calls;
	atomic_int at;       /* which; 0: none */
	sem_t now;
};

#define OS ckb_sys_real()

static void step(const struct ckb_sys *sys)
{
	struct told *t = (struct told *)(uintptr_t)sys;

	if (atomic_fetch_add(&t->calls, 1) + 1 != t->at)
		return;
	sem_post(&t->now);
	usleep(3000); /* the abort comes meanwhile */
}

static int t_openat(const struct ckb_sys *sys, int dirfd, const char *path,
		    int flags, mode_t mode)
{
	step(sys);
	return OS->openat(OS, dirfd, path, flags, mode);
}

static int t_close(const struct ckb_sys *sys, int fd)
{
	step(sys);
	return OS->close(OS, fd);
}

static ssize_t t_pwrite(const struct ckb_sys *sys, int fd, const void *src,
			size_t len, uint64_t off)
{
	step(sys);
	return OS->pwrite(OS, fd, src, len, off);
}

static ssize_t t_pwritev(const struct ckb_sys *sys, int fd,
			 const struct iovec *iov, int count, uint64_t off)
{
	step(sys);
	return OS->pwritev(OS, fd, iov, count, off);
}

static int t_fsync(const struct ckb_sys *sys, int fd)
{
	step(sys);
	return OS->fsync(OS, fd);
}

static int t_fdatasync(const struct ckb_sys *sys, int fd)
{
	step(sys);
	return OS->fdatasync(OS, fd);
}

static int t_mkdirat(const struct ckb_sys *sys, int dirfd, const char *path,
		     mode_t mode)
{
	step(sys);
	return OS->mkdirat(OS, dirfd, path, mode);
}

static int t_linkat(const struct ckb_sys *sys, int from_dirfd,
		    const char *from, int to_dirfd, const char *to)
{
	step(sys);
	return OS->linkat(OS, from_dirfd, from, to_dirfd, to);
}

static int t_renameat(const struct ckb_sys *sys, int from_dirfd,
		      const char *from, int to_dirfd, const char *to)
{
	step(sys);
	return OS->renameat(OS, from_dirfd, from, to_dirfd, to);
}

static int t_unlinkat(const struct ckb_sys *sys, int dirfd, const char *path,
		      int flags)
{
	step(sys);
	return OS->unlinkat(OS, dirfd, path, flags);
}

static void told_init(struct told *t)
{
	*t = (struct told){ .sys = *OS };
	sem_init(&t->now, 0, 0);
	t->sys.openat = t_openat;
	t->sys.close = t_close;
	t->sys.pwrite = t_pwrite;
	t->sys.pwritev = t_pwritev;
	t->sys.fsync = t_fsync;
	t->sys.fdatasync = t_fdatasync;
	t->sys.mkdirat = t_mkdirat;
	t->sys.linkat = t_linkat;
	t->sys.renameat = t_renameat;
	t->sys.unlinkat = t_unlinkat;
}

/* ---- the race ---- */

struct aborter {
	pthread_t thread;
	struct told *told;
	struct ckpt_save *save;
};

static void *abort_then(void *arg)
{
	struct aborter *a = arg;

	sem_wait(&a->told->now);
	ckpt_save_abort(a->save);
	return NULL;
}

/* What @name is after a save of @seed came to @rc: that, or what it was. */
static void check_name(struct fix *f, const char *name, int rc, uint32_t seed,
		       uint32_t before)
{
	struct ckpt_err err = { 0 };

	if (rc == 0)
		assert_ok(fix_whole(f->store, name, LEN, seed, &err));
	else if (before > 0)
		assert_ok(fix_whole(f->store, name, LEN, before, &err));
	else
		assert_code(fix_whole(f->store, name, LEN, seed, &err),
			    CKPT_ENOENT);
}

/* A save of @seed that is aborted amid its @n-th call. Returns what it came to;
 * *@met: it had so many. */
static int race(struct fix *f, struct told *t, struct ckpt_writer *w,
		const char *name, int n, uint32_t seed, uint32_t before,
		bool *met)
{
	struct aborter a = { .told = t };
	struct ckpt_err err = { 0 };
	uint8_t *data = fix_bytes(LEN, seed);
	uint32_t item;
	struct ckpt_save *s = fix_begin(w, name, before > 0, &item);

	fix_tensor(s, item, "w", CKPT_U8, SHAPE(1, LEN), data, LEN);
	free(data);
	atomic_store(&t->calls, 0);
	t->at = n;
	a.save = s;
	assert_int_equal(pthread_create(&a.thread, NULL, abort_then, &a), 0);
	assert_ok(ckpt_save_start(s, &err));
	int rc = ckpt_save_wait(s, CKPT_DURABLE, &err);

	/* the abort may still be under way: the answer stands already */
	check_name(f, name, rc, seed, before);
	*met = atomic_load(&t->calls) >= n;
	if (!*met) {
		t->at = 0;
		sem_post(&t->now);
	}
	pthread_join(a.thread, NULL);
	assert_true(rc == 0 || rc == CKPT_ECANCELED);
	assert_code(ckpt_save_wait(s, CKPT_DURABLE, &err), rc);
	assert_int_equal(ckpt_save_phase(s) == CKPT_DURABLE, rc == 0);
	ckpt_save_free(s);
	check_name(f, name, rc, seed, before);
	assert_int_equal(fix_files(f, "staging"), 0);
	return rc;
}

static void sweep(struct fix *f, bool replace)
{
	struct told t;
	struct ckpt_store *store;
	struct ckpt_writer *w;
	struct ckpt_err err = { 0 };
	uint32_t before = replace ? 1 : 0;
	int saved = 0, aborted = 0;
	bool met = true;

	told_init(&t);
	assert_ok(cks_store_open_sys(&t.sys, f->path, NULL, &store, &err));
	assert_ok(ckpt_writer_open(store, NULL, &w, &err));
	if (replace)
		fix_save(f->writer, "r/0", false, LEN, 1);
	for (int n = 1; met; n++) {
		uint32_t seed = 1 + (uint32_t)n;
		char name[16];

		snprintf(name, sizeof(name), "r/%d", replace ? 0 : n);
		int rc = race(f, &t, w, name, n, seed, before, &met);

		if (replace && rc == 0)
			before = seed;
		saved += met && rc == 0;
		aborted += rc != 0;
		assert_true(n < 1000);
	}
	/* calls before and after the point of no return were both met */
	assert_true(aborted >= 5);
	assert_true(saved >= 3);
	ckpt_writer_close(w);
	ckpt_store_close(store);
	sem_destroy(&t.now);
}

static void an_aborted_save_is_whole_or_absent(void **state)
{
	sweep(*state, false);
}

static void an_aborted_save_leaves_what_it_would_replace(void **state)
{
	sweep(*state, true);
}

#define TEST(name) \
	cmocka_unit_test_setup_teardown(name, fix_setup, fix_teardown)

int main(void)
{
	const struct CMUnitTest tests[] = {
		TEST(an_aborted_save_is_whole_or_absent),
		TEST(an_aborted_save_leaves_what_it_would_replace),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
