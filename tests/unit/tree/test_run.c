/* SPDX-License-Identifier: Apache-2.0 */
/*
 * test_run.c - runs as last seen: what is cached of them and for how long,
 * what is logged, and that a link never moves because something cannot be
 * read.
 */
#include "tree_fixture.h"

#include <errno.h>
#include <fcntl.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "base/log.h"
#include "fault_sys.h"
#include "mkstore.h"
#include "verbs/store.h"

/* The real system, with a clock ahead, a file that does not open, and counts
 * of opens and listings. */
struct other_sys {
	struct ckb_sys sys;   /* first */
	int64_t ahead_ns;
	const char *deny;     /* files of paths that end so fail */
	int error;
	int opens, lists;
	bool frozen;          /* every folder has the times of @st */
	struct stat st;
};

static bool ends(const char *path, const char *end)
{
	size_t n = strlen(path), m = end ? strlen(end) : n + 1;

	return n >= m && strcmp(path + n - m, end) == 0;
}

static int other_openat(const struct ckb_sys *sys, int dirfd, const char *path,
			int flags, mode_t mode)
{
	struct other_sys *o = (struct other_sys *)(uintptr_t)sys;

	o->opens++;
	if (ends(path, o->deny))
		return -o->error;
	return ckb_sys_real()->openat(sys, dirfd, path, flags, mode);
}

static int other_list(const struct ckb_sys *sys, int dirfd, const char *path,
		      ckb_dirent_fn fn, void *ctx)
{
	((struct other_sys *)(uintptr_t)sys)->lists++;
	return ckb_sys_real()->list(sys, dirfd, path, fn, ctx);
}

static int other_fstatat(const struct ckb_sys *sys, int dirfd,
			 const char *path, struct stat *out)
{
	const struct other_sys *o = (const struct other_sys *)sys;
	int rc = ckb_sys_real()->fstatat(sys, dirfd, path, out);

	if (rc == 0 && o->frozen && S_ISDIR(out->st_mode)) {
		out->st_mtim = o->st.st_mtim;
		out->st_ctim = o->st.st_ctim;
		out->st_size = o->st.st_size;
	}
	return rc;
}

static int64_t other_now_ns(const struct ckb_sys *sys)
{
	return ckb_sys_real()->now_ns(sys) +
	       ((const struct other_sys *)sys)->ahead_ns;
}

/* A second store and tree over @o; the fixture's own writes. */
static void other_open(struct fix *f, struct other_sys *o, struct fix *out)
{
	struct ckpt_err err = { 0 };

	*o = (struct other_sys){ .sys = *ckb_sys_real(), .error = EIO };
	o->sys.openat = other_openat;
	o->sys.list = other_list;
	o->sys.fstatat = other_fstatat;
	o->sys.now_ns = other_now_ns;
	*out = *f;
	assert_ok(cks_store_open_sys(&o->sys, f->path, NULL, &out->store,
				     &err));
	assert_ok(ckv_tree_new(out->store, &out->tree, &err));
}

static void other_close(struct fix *g)
{
	ckv_tree_free(g->tree);
	ckpt_store_close(g->store);
}

static int lines; /* of the log */

static void count_line(void *ctx, enum ckb_level level, const char *text)
{
	(void)ctx;
	(void)level;
	(void)text;
	lines++;
}

/* What @link of run/ means, or the error its lookup has. */
static int meaning(struct fix *f, const char *link, char *dst)
{
	struct ckpt_err err = { 0 };
	struct ckb_buf target = { 0 };
	struct ckv_node *dir = at(f, "run"), *n = NULL;
	int rc = ckv_lookup(dir, link, &n, &err);

	*dst = '\0';
	if (rc == 0)
		rc = ckv_readlink(n, &target, &err);
	if (rc == 0)
		strcpy(dst, (char *)target.data);
	ckb_buf_fini(&target);
	ckv_put(n);
	ckv_put(dir);
	return rc;
}

static void assert_means(struct fix *f, const char *link, const char *want)
{
	char got[300];

	assert_int_equal(meaning(f, link, got), 0);
	assert_string_equal(got, want);
}

static uint64_t ino_of(struct fix *f, const char *name)
{
	struct ckpt_err err = { 0 };
	struct ckv_node *dir = at(f, "run");
	struct ckv_list *l;
	uint64_t ino = 0;

	assert_ok(ckv_list_new(dir, &l, &err));
	for (size_t i = 0; i < ckv_list_count(l); i++)
		if (strcmp(ckv_list_name(l, i), name) == 0)
			ino = ckv_list_ino(l, i);
	ckv_list_free(l);
	ckv_put(dir);
	return ino;
}

/* ---- what cannot be read ---- */

static void unreadable_is_not_damaged(void **state)
{
	static const struct { int error, code; } cases[] = {
		{ EIO, CKPT_EIO }, { EACCES, CKPT_EPERM },
		{ EMFILE, CKPT_EIO }, { ESTALE, CKPT_ESTALE },
	};
	struct fix *f = *state, g;
	struct ckpt_err err = { 0 };
	struct other_sys o;
	struct ckv_attr a;
	char got[300];

	for (int i = 1; i <= 3; i++) {
		snprintf(got, sizeof(got), "run/%d", i);
		save_one(f, got, 1, 3, false);
	}
	for (size_t i = 0; i < CKB_ARRAY_LEN(cases); i++) {
		struct ckv_node *n;

		other_open(f, &o, &g);
		o.error = cases[i].error;
		o.deny = "run/3";
		struct ckv_node *run = at(&g, "run");

		assert_int_equal(meaning(&g, "newest", got), cases[i].code);
		assert_int_equal(meaning(&g, "latest", got), cases[i].code);
		assert_code(ckv_lookup(run, "3", &n, &err), cases[i].code);
		assert_says(err, "run/3");
		assert_null(n);
		/* it is listed, and so are links that might mean it */
		assert_names(&g, "run", "1/|2/|3/|latest@|newest@");
		ckv_put(at(&g, "run/2/model/w/b.npy"));
		o.deny = NULL; /* it was for a while only */
		assert_means(&g, "newest", "3");
		assert_ok(ckv_lookup(run, "3", &n, &err));
		assert_ok(ckv_attr(n, &a, &err));
		assert_true(a.ino == ino_of(f, "3"));
		assert_true(ino_of(&g, "3") == a.ino);
		ckv_put(n);
		/* what was read of it once holds */
		o.deny = "run/3";
		assert_means(&g, "newest", "3");
		assert_true(ino_of(&g, "3") == a.ino);
		ckv_put(run);
		other_close(&g);
	}
}

/* Every call fails once, in every way but "it is not there": links mean the
 * right checkpoint, or fail. */
static void links_never_mean_the_wrong_one(void **state)
{
	static const int errors[] = { EIO, EMFILE, EACCES, ESTALE };
	struct fix *f = *state, g;
	struct fault_sys fault;
	struct ckpt_err err = { 0 };
	int failed = 0;

	save_one(f, "run/1", 1, 3, false);
	save_one(f, "run/2", 2, 3, false);
	for (size_t e = 0; e < CKB_ARRAY_LEN(errors); e++)
		for (int n = 1;; n++) {
			struct ckv_node *file = NULL;
			uint8_t bytes[200];
			size_t len = 0;

			fault_init(&fault);
			g = *f;
			assert_ok(cks_store_open_sys(&fault.sys, f->path, NULL,
						     &g.store, &err));
			assert_ok(ckv_tree_new(g.store, &g.tree, &err));
			fault.fail_at = atomic_load(&fault.calls) + n;
			fault.error = errors[e];
			int rc = ckv_resolve(g.tree, "run/newest/model/w/b.npy",
					     &file, &err);

			if (rc == 0)
				rc = ckv_read(file, 0, bytes, sizeof(bytes),
					      &len, &err);
			if (rc == 0)
				assert_int_equal(bytes[128], 2);
			failed += rc < 0;
			ckv_put(file);
			fault.fail_at = 0;
			bool met = atomic_load(&fault.met);

			free(content_at(&g, "run/newest/model/w/b.npy", NULL));
			ckv_tree_free(g.tree);
			ckpt_store_close(g.store);
			assert_int_equal(fault_open_count(&fault), 0);
			if (!met)
				break;
		}
	assert_true(failed > 20);
}

static void the_log_says_a_thing_once(void **state)
{
	struct fix *f = *state, g;
	struct ckpt_err err = { 0 };
	struct other_sys o;
	struct ckv_node *n;
	char path[600];

	save_one(f, "run/1", 1, 3, false);
	save_one(f, "run/2", 1, 3, false);
	save_one(f, "run/3", 1, 3, false);
	snprintf(path, sizeof(path), "%s/checkpoints/run/2", f->path);
	assert_int_equal(chmod(path, 0600), 0);
	mk_flip(path, 30, 0xff);
	other_open(f, &o, &g);
	o.deny = "run/3";
	lines = 0;
	ckb_log_sink(count_line, NULL);
	for (int i = 0; i < 3; i++)
		assert_names(&g, "run", "1/|2/|3/|latest@|newest@");
	int listing = lines;
	struct ckv_node *run = at(&g, "run");

	for (int i = 0; i < 3; i++)
		assert_code(ckv_lookup(run, "3", &n, &err), CKPT_EIO);
	int lookups = lines - listing;

	mk_flip(path, 31, 0xff); /* another state of the file */
	free(names_at(&g, "run"));
	free(names_at(&g, "run"));
	int changed = lines - listing - lookups;

	ckb_log_sink(NULL, NULL);
	ckv_put(run);
	other_close(&g);
	assert_int_equal(listing, 2); /* one of 2, one of 3 */
	assert_int_equal(lookups, 0); /* the caller has the error */
	assert_int_equal(changed, 1);
}

/* ---- what is cached ---- */

static void a_settled_run_is_listed_once(void **state)
{
	struct fix *f = *state, g;
	struct ckpt_err err = { 0 };
	struct other_sys o;
	struct ckv_attr a;

	save_one(f, "run/1", 1, 3, false);
	save_one(f, "run/2", 1, 3, false);
	other_open(f, &o, &g);
	o.ahead_ns = 10 * CKV_SETTLED_NS;
	struct ckv_node *run = at(&g, "run");

	for (int i = 0; i < 5; i++) {
		assert_ok(ckv_attr(run, &a, &err));
		assert_int_equal(a.subfolders, 2);
		assert_means(&g, "latest", "2");
		assert_names(&g, "run", "1/|2/|latest@|newest@");
	}
	assert_int_equal(o.lists, 1);
	save_one(f, "run/3", 1, 3, false);
	assert_means(&g, "latest", "3");
	assert_ok(ckv_attr(run, &a, &err));
	assert_int_equal(a.subfolders, 3);
	assert_int_equal(o.lists, 2);
	/* in place, so that no folder shows it */
	char path[600];

	snprintf(path, sizeof(path), "%s/checkpoints/run/3", f->path);
	assert_int_equal(chmod(path, 0600), 0);
	mk_flip(path, 30, 0xff);
	assert_means(&g, "latest", "2");
	ckv_put(run);
	other_close(&g);
}

/* As mk_flip(), but the file has its time again: nothing shows the change. */
static void flip_unseen(const char *path)
{
	struct stat st;

	assert_int_equal(stat(path, &st), 0);
	struct timespec times[2] = { st.st_atim, st.st_mtim };

	mk_flip(path, 30, 0xff);
	assert_int_equal(utimensat(AT_FDCWD, path, times, 0), 0);
}

/* A bad read once, or a repair in place: a link passes the checkpoint over for
 * a while only. */
static void damage_is_looked_at_again(void **state)
{
	struct fix *f = *state, g;
	struct other_sys o;
	char path[600];

	save_one(f, "run/1", 1, 3, false);
	save_one(f, "run/2", 2, 3, false);
	snprintf(path, sizeof(path), "%s/checkpoints/run/2", f->path);
	assert_int_equal(chmod(path, 0600), 0);
	flip_unseen(path);
	other_open(f, &o, &g);
	o.ahead_ns = 10 * CKV_SETTLED_NS; /* the listing itself is kept */
	lines = 0;
	ckb_log_sink(count_line, NULL);
	assert_means(&g, "newest", "1");
	int opens = o.opens;

	for (int i = 0; i < 3; i++)
		assert_means(&g, "newest", "1");
	assert_int_equal(o.opens, opens); /* nor is it read each time */
	o.ahead_ns += CKV_DAMAGED_NS;
	assert_means(&g, "newest", "1");
	assert_true(o.opens > opens);
	o.ahead_ns -= 2 * CKV_DAMAGED_NS; /* the clock was set back */
	opens = o.opens;
	assert_means(&g, "newest", "1");
	assert_true(o.opens > opens);
	assert_int_equal(lines, 1);
	flip_unseen(path);
	o.ahead_ns += CKV_DAMAGED_NS;
	assert_means(&g, "newest", "2");
	assert_means(&g, "latest", "2");
	free(content_at(&g, "run/2/model/w/b.npy", NULL));
	ckb_log_sink(NULL, NULL);
	other_close(&g);
}

/* Two changes in one tick of a clock look like one. */
static void a_change_within_a_tick_is_seen(void **state)
{
	struct fix *f = *state, g;
	struct ckpt_err err = { 0 };
	struct other_sys o;
	struct ckv_attr a;
	char path[600];

	save_one(f, "run/1", 1, 3, false);
	other_open(f, &o, &g);
	snprintf(path, sizeof(path), "%s/checkpoints/run", f->path);
	assert_int_equal(stat(path, &o.st), 0);
	o.frozen = true;
	struct ckv_node *run = at(&g, "run");

	assert_means(&g, "newest", "1");
	save_one(f, "run/2", 1, 3, false);
	assert_means(&g, "newest", "2");
	assert_ok(ckv_attr(run, &a, &err));
	assert_int_equal(a.subfolders, 2);
	/* an old mtime is no proof: it can be set, the ctime cannot */
	o.st.st_mtim.tv_sec -= 1000;
	assert_means(&g, "newest", "2");
	save_one(f, "run/3", 1, 3, false);
	assert_means(&g, "newest", "3");
	ckv_put(run);
	other_close(&g);
}

/* touch -d 1600-01-01, 2400-01-01: UBSan sees what does not fit. */
static void times_may_be_centuries_away(void **state)
{
	static const time_t years[] = { -11676096000, 13569465600 };
	static const char *const names[] = { "", "/run", "/run/1", "/run/2" };
	struct fix *f = *state;
	char path[600];

	save_one(f, "run/1", 1, 3, false);
	save_one(f, "run/2", 2, 3, false);
	for (size_t y = 0; y < CKB_ARRAY_LEN(years); y++) {
		const struct timespec t[2] = { { .tv_sec = years[y] },
					       { .tv_sec = years[y] } };

		for (size_t i = 0; i < CKB_ARRAY_LEN(names); i++) {
			snprintf(path, sizeof(path), "%s/checkpoints%s",
				 f->path, names[i]);
			assert_int_equal(utimensat(AT_FDCWD, path, t, 0), 0);
		}
		assert_names(f, "run", "1/|2/|latest@|newest@");
		assert_means(f, "newest", "2");
		free(content_at(f, "run/1/model/w/b.npy", NULL));
	}
}

/* Training that keeps the last five for ever. */
static void vanished_names_are_forgotten(void **state)
{
	struct fix *f = *state;
	char path[600];

	for (int i = 0; i < 40; i++) {
		snprintf(path, sizeof(path), "run/%d", i);
		save_one(f, path, 1, 3, false);
		if (i >= 5) {
			snprintf(path, sizeof(path), "%s/checkpoints/run/%d",
				 f->path, i - 5);
			assert_int_equal(unlink(path), 0);
		}
		free(names_at(f, "run"));
	}
	assert_names(f, "run", "35/|36/|37/|38/|39/|latest@|newest@");
	/* the top with one run; the run with five */
	assert_true(f->tree->run_entries <= (1 + 1) + (5 + 1));
	assert_int_equal(f->tree->ckpts.count, f->tree->image_count);
	for (int i = 35; i < 40; i++) {
		snprintf(path, sizeof(path), "%s/checkpoints/run/%d", f->path,
			 i);
		assert_int_equal(unlink(path), 0);
	}
	struct ckv_node *run = at(f, "run");
	struct ckpt_err err = { 0 };
	struct ckv_attr a;

	snprintf(path, sizeof(path), "%s/checkpoints/run", f->path);
	assert_int_equal(rmdir(path), 0);
	assert_code(ckv_attr(run, &a, &err), CKPT_ESTALE);
	assert_int_equal(f->tree->runs.count, 0);
	ckv_put(run);
}

/* ---- many ---- */

static void list_and_look(struct fix *f, int n)
{
	struct ckpt_err err = { 0 };
	struct ckv_node *run = at(f, "run");
	struct ckv_list *l;

	assert_ok(ckv_list_new(run, &l, &err));
	assert_int_equal(ckv_list_count(l), n + 2);
	look_at_all(l);
	ckv_list_free(l);
	ckv_put(run);
}

static void five_thousand_checkpoints_are_no_burden(void **state)
{
	enum { N = 5000 };
	struct fix *f = *state, g;
	struct other_sys o;
	char from[600], to[700];

	save_one(f, "run/0", 1, 3, false);
	snprintf(from, sizeof(from), "%s/checkpoints/run/0", f->path);
	for (int i = 1; i < N; i++) {
		snprintf(to, sizeof(to), "%s/checkpoints/run/%d", f->path, i);
		assert_int_equal(link(from, to), 0);
	}
	other_open(f, &o, &g);
	list_and_look(&g, N);
	int opens = o.opens;

	assert_true(opens >= N);
	/* no manifest is read again, although the folder is not settled */
	list_and_look(&g, N);
	assert_in_range(o.opens - opens, 0, 9);
	assert_int_equal(g.tree->image_count, 0);
	assert_int_equal(g.tree->ckpts.count, 0);
	other_close(&g);
}

#define WITH(test) \
	cmocka_unit_test_setup_teardown(test, fix_setup, fix_teardown)

int main(void)
{
	const struct CMUnitTest tests[] = {
		WITH(unreadable_is_not_damaged),
		WITH(links_never_mean_the_wrong_one),
		WITH(the_log_says_a_thing_once),
		WITH(a_settled_run_is_listed_once),
		WITH(damage_is_looked_at_again),
		WITH(a_change_within_a_tick_is_seen),
		WITH(times_may_be_centuries_away),
		WITH(vanished_names_are_forgotten),
		WITH(five_thousand_checkpoints_are_no_burden),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
