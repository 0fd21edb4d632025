/* SPDX-License-Identifier: Apache-2.0 */
/*
 * test_save.c - the n-th system call of a whole save through the writer fails.
 *
 * For n = 1, 2, ... until a body runs without meeting the fault, and for
 * several errnos. The body opens the store, saves three tensors into several
 * packs (one of them known already, so a hit is proved by reading) and closes.
 * After each: no descriptor is left, the error has its sentence, older
 * checkpoints read back, and the new one is there whole if the save said 0 or
 * CKPT_EUNSURE, else not at all (S3, S4, S5). Then the next save works.
 */
#include "contract/save_fixture.h"

#include "fault_sys.h"

enum { SMALL = 5000, LARGE = 300000, KNOWN = 70000 };

static const int errors[] = FAULT_ERRORS;

/* ---- the body ---- */

struct body {
	struct ckpt_store *store;
	struct ckpt_writer *writer;
	struct ckpt_save *save;
	uint8_t *data[3];
};

static const size_t lengths[3] = { SMALL, LARGE, KNOWN };
static const char *const names[3] = { "small", "large", "known" };

static void make_data(struct body *b, uint32_t seed)
{
	for (int i = 0; i < 3; i++)
		b->data[i] = fix_bytes(lengths[i], i == 2 ? 7 : seed + 1000u *
							       (uint32_t)i);
}

static int describe(struct body *b, struct ckpt_err *err)
{
	struct ckpt_item_desc model = { .size = sizeof(model), .name = "model",
					.kind = CKPT_ITEM_TENSORS };
	uint32_t item = 0;
	int rc = ckpt_save_item(b->save, &model, &item, err);

	for (int i = 0; rc == 0 && i < 3; i++) {
		struct ckpt_tensor_desc d = fix_desc(names[i], CKPT_U8,
						     SHAPE(1, lengths[i]));
		struct ckpt_provider p;

		rc = ckpt_provider_host(b->data[i], lengths[i], &p, err);
		if (rc == 0)
			rc = ckpt_save_tensor(b->save, item, &d, &p, err);
	}
	return rc;
}

static int save(struct body *b, const char *name, bool replace,
		struct ckpt_err *err)
{
	/* a pack is full after the first large tile: two or three of them */
	struct ckpt_writer_opts o = { .size = sizeof(o),
				      .pack_bytes = 100000 };
	struct ckpt_save_desc d = { .size = sizeof(d), .name = name,
				    .replace = replace };
	int rc = ckpt_writer_open(b->store, &o, &b->writer, err);

	if (rc == 0)
		rc = ckpt_save_begin(b->writer, &d, &b->save, err);
	if (rc == 0)
		rc = describe(b, err);
	if (rc == 0)
		rc = ckpt_save_start(b->save, err);
	if (rc == 0) {
		struct ckpt_err first = { 0 };
		int captured = ckpt_save_wait(b->save, CKPT_CAPTURED, &first);

		rc = ckpt_save_wait(b->save, CKPT_DURABLE, err);
		/* what failed once stays failed, in the same words */
		if (captured != 0 && captured != rc)
			return captured;
	}
	return rc;
}

static int open_and_save(const struct ckb_sys *sys, const char *path,
			 const char *name, uint32_t seed, bool replace,
			 struct ckpt_err *err)
{
	struct body b = { 0 };
	int rc = cks_store_open_sys(sys, path, NULL, &b.store, err);

	make_data(&b, seed);
	if (rc == 0)
		rc = save(&b, name, replace, err);
	ckpt_save_free(b.save);
	ckpt_writer_close(b.writer);
	ckpt_store_close(b.store);
	for (int i = 0; i < 3; i++)
		free(b.data[i]);
	return rc;
}

/* 0: it is there, and whole, and @seed's; CKPT_ENOENT. */
static int whole(struct ckpt_store *store, const char *name, uint32_t seed,
		 struct ckpt_err *err)
{
	struct ckpt_checkpoint *c;
	struct body b;
	int rc = ckpt_checkpoint_open(store, name, &c, err);

	if (rc < 0)
		return rc;
	make_data(&b, seed);
	for (int i = 0; i < 3; i++) {
		fix_equal(c, fix_find(c, "model", names[i]), b.data[i],
			  lengths[i]);
		free(b.data[i]);
	}
	ckpt_checkpoint_close(c);
	return 0;
}

/* ---- sweeps ---- */

/* Through a store of its own, opened anew: nothing is remembered. */
static void check_after(const char *path, const char *name, uint32_t seed,
			uint32_t before, int rc)
{
	struct ckpt_store *s;
	struct ckpt_err err = { 0 };

	assert_ok(ckpt_store_open(path, NULL, &s, &err));
	assert_ok(whole(s, "old/1", 1, &err));
	if (rc == 0 || rc == CKPT_EUNSURE)
		assert_ok(whole(s, name, seed, &err));
	else if (before)
		assert_ok(whole(s, name, before, &err));
	else
		assert_code(whole(s, name, seed, &err), CKPT_ENOENT);
	ckpt_store_close(s);
}

static void forget(const struct fix *f, const char *name)
{
	char path[600];

	snprintf(path, sizeof(path), "%s/checkpoints/%s", f->path, name);
	unlink(path);
	*strrchr(path, '/') = '\0';
	rmdir(path);
}

/* @before: seed of what already has the name, or 0. Returns the calls that a
 * save makes. */
static int sweep(struct fix *f, int error, enum fault_when when,
		 const char *name, uint32_t before)
{
	/* new bytes in each save: what is found needs fewer calls */
	static uint32_t seed = 100;
	int failed = 0, missed = 0;

	for (int n = 1;; n++) {
		struct fault_sys sys;
		struct ckpt_err err = { 0 };
		char each[64];
		int fds = fix_fds();

		fault_init(&sys);
		sys.fail_at = n;
		sys.error = error;
		sys.when = when;
		sys.tag = (uint8_t)++seed;
		/* a new run each time, so that making it is met too */
		snprintf(each, sizeof(each), before ? "%s" : "%s%d/1", name, n);
		int rc = open_and_save(&sys.sys, f->path, each, seed,
				       before != 0, &err);

		assert_int_equal(fix_fds(), fds);
		assert_int_equal(fault_open_count(&sys), 0);
		if (rc < 0 && (err.code != rc || !err.message[0]))
			fail_msg("call %d: %d without its sentence", n, rc);
		check_after(f->path, each, seed, before, rc);
		if (before && (rc == 0 || rc == CKPT_EUNSURE))
			before = seed;
		if (!before)
			forget(f, each); /* a save looks at every checkpoint */
		failed += rc < 0;
		missed = sys.met ? 0 : missed + 1;
		if (missed > 0)
			assert_int_equal(rc, 0);
		/* Threads put records in any order, which takes some calls more
		 * or less: so one miss is no end, and no call is met for sure
		 * (the last sync has a test of its own below). */
		if (missed == 6) {
			assert_true(failed > 30);
			return n;
		}
		assert_true(n < 1000);
	}
}

static void a_save_is_whole_or_absent_whatever_fails(void **state)
{
	struct fix *f = *state;
	struct ckpt_err err = { 0 };

	assert_ok(open_and_save(ckb_sys_real(), f->path, "old/1", 1, false,
				&err));
	/* the body is long enough to have met folders, packs, commit */
	for (size_t e = 0; e < CKB_ARRAY_LEN(errors); e++)
		assert_true(sweep(f, errors[e], FAULT_BEFORE, "r", 0) > 60);
	sweep(f, EIO, FAULT_AFTER, "r", 0);
	sweep(f, ENOENT, FAULT_AFTER, "r", 0);
	assert_ok(open_and_save(ckb_sys_real(), f->path, "r/more", 2, false,
				&err));
}

static void replacing_shows_the_old_or_the_new_whatever_fails(void **state)
{
	struct fix *f = *state;
	struct ckpt_err err = { 0 };

	assert_ok(open_and_save(ckb_sys_real(), f->path, "old/1", 1, false,
				&err));
	for (int when = FAULT_BEFORE; when <= FAULT_AFTER; when++) {
		assert_ok(open_and_save(ckb_sys_real(), f->path, "cur", 50,
					true, &err));
		sweep(f, EIO, (enum fault_when)when, "cur", 50);
	}
}

/* ---- single faults ---- */

static void a_failed_pack_sync_fails_the_save_and_is_not_retried(void **state)
{
	struct fix *f = *state;
	struct fault_sys sys;
	struct ckpt_err err = { 0 };

	assert_ok(open_and_save(ckb_sys_real(), f->path, "old/1", 1, false,
				&err));
	int packs = fix_files(f, "packs");

	fault_init(&sys);
	fault_each(&sys, FAULT_FSYNC, ".pack");
	assert_code(open_and_save(&sys.sys, f->path, "a", 2, false, &err),
		    CKPT_EIO);
	assert_int_equal(err.sys_errno, EIO);
	/* S5: none twice; a second pack may be full at the same time */
	assert_int_equal(sys.synced_again, 0);
	assert_in_range(sys.calls, 1, packs);
	assert_int_equal(fault_open_count(&sys), 0);
	assert_code(whole(f->store, "a", 2, &err), CKPT_ENOENT);
	assert_int_equal(fix_files(f, "packs"), packs);
	assert_int_equal(fix_files(f, "staging"), 0);
	assert_ok(open_and_save(ckb_sys_real(), f->path, "a", 2, false, &err));
	assert_ok(whole(f->store, "a", 2, &err));
}

/* What the answer of CKPT_EUNSURE says: it is there, and staging stays. */
static void an_unsure_save_is_visible_and_kept(void **state)
{
	struct fix *f = *state;
	struct fault_sys sys;
	struct ckpt_err err = { 0 };

	assert_ok(open_and_save(ckb_sys_real(), f->path, "old/1", 1, false,
				&err));
	fault_init(&sys);
	fault_each(&sys, FAULT_FSYNC, "/checkpoints/run");
	assert_code(open_and_save(&sys.sys, f->path, "run/1", 2, false, &err),
		    CKPT_EUNSURE);
	assert_int_equal(fault_open_count(&sys), 0);
	assert_says(err, "'run/1'");
	assert_says(err, "visible");
	assert_ok(whole(f->store, "run/1", 2, &err));
	assert_true(fix_files(f, "staging") > 0);
	/* what takes another's place, as well */
	assert_ok(open_and_save(ckb_sys_real(), f->path, "run/2", 3, false,
				&err));
	fault_init(&sys);
	fault_each(&sys, FAULT_FSYNC, "/checkpoints/run");
	assert_code(open_and_save(&sys.sys, f->path, "run/2", 4, true, &err),
		    CKPT_EUNSURE);
	assert_int_equal(fault_open_count(&sys), 0);
	assert_says(err, "'run/2'");
	assert_ok(whole(f->store, "run/2", 4, &err));
}

static void a_disk_that_fills_up_says_so(void **state)
{
	struct fix *f = *state;
	struct fault_sys sys;
	struct ckpt_err err = { 0 };

	assert_ok(open_and_save(ckb_sys_real(), f->path, "old/1", 1, false,
				&err));
	fault_init(&sys);
	sys.error = EDQUOT;
	fault_each(&sys, FAULT_CLOSE, "/manifest"); /* NFS tells at close */
	assert_code(open_and_save(&sys.sys, f->path, "a", 2, false, &err),
		    CKPT_ENOSPC);
	assert_int_equal(fault_open_count(&sys), 0);
	assert_says(err, "'a'");
	assert_code(whole(f->store, "a", 2, &err), CKPT_ENOENT);
}

static void short_writes_are_gone_on_with(void **state)
{
	struct fix *f = *state;
	struct fault_sys sys;
	struct ckpt_err err = { 0 };

	assert_ok(open_and_save(ckb_sys_real(), f->path, "old/1", 1, false,
				&err));
	fault_init(&sys);
	sys.move_max = 1000;
	assert_ok(open_and_save(&sys.sys, f->path, "a", 2, false, &err));
	assert_int_equal(fault_open_count(&sys), 0);
	assert_ok(whole(f->store, "a", 2, &err));
}

#define TEST(name) \
	cmocka_unit_test_setup_teardown(name, fix_setup, fix_teardown)

int main(void)
{
	const struct CMUnitTest tests[] = {
		TEST(a_save_is_whole_or_absent_whatever_fails),
		TEST(replacing_shows_the_old_or_the_new_whatever_fails),
		TEST(a_failed_pack_sync_fails_the_save_and_is_not_retried),
		TEST(an_unsure_save_is_visible_and_kept),
		TEST(a_disk_that_fills_up_says_so),
		TEST(short_writes_are_gone_on_with),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
