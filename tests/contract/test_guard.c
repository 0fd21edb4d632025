/* SPDX-License-Identifier: Apache-2.0 */
/*
 * test_guard.c - a save that fails is no accident of the job.
 *
 * One writer lives on through disks that fill up at every step of a save, by a
 * table that fails calls and on a real file system of 64 MiB. After each: the
 * job's memory is as it was and its own again, nothing of the save is listed or
 * staged, no thread and no descriptor is left of it, the next call tells why,
 * once, and the next save, larger than staging, is whole. A slab that did not
 * come back would end the process when the writer is closed.
 */
#include "gate.h"

#include <errno.h>
#include <sched.h>
#include <sys/mount.h>
#include <sys/statvfs.h>

#include "base/limits.h"
#include "base/log.h"
#include "fault_sys.h"

#define MIB (1u << 20)
#define HELD (36 * MIB)   /* in memory; more than staging */
#define READ (8 * MIB)    /* through a provider */
#define LEN (HELD + READ)
#define THREADS 3
#define MINUTE 60000000000ull
#define NAMES_BYTES 1000

/* ---- a job ---- */

struct job {
	struct fix *f;         /* its writer is ours */
	struct fault_sys sys;
	struct ckpt_store *store;
	uint8_t *data, *copy;
	struct watch first, second; /* what saves read from */
};

static void job_begin(struct job *j, struct fix *f)
{
	struct ckpt_writer_opts o = { .size = sizeof(o), .threads = THREADS,
				      .staging_bytes = CKB_STAGING_MIN_BYTES };
	struct ckpt_err err = { 0 };

	j->f = f;
	ckpt_writer_close(f->writer);
	f->writer = NULL;
	fault_init(&j->sys);
	assert_ok(cks_store_open_sys(&j->sys.sys, f->path, NULL, &j->store,
				     &err));
	assert_ok(ckpt_writer_open(j->store, &o, &f->writer, &err));
	j->data = fix_bytes(LEN, 1);
	j->copy = fix_bytes(LEN, 1);
}

static void job_end(struct job *j)
{
	ckpt_writer_close(j->f->writer);
	j->f->writer = NULL;
	ckpt_store_close(j->store);
	assert_int_equal(fault_open_count(&j->sys), 0);
	free(j->data);
	free(j->copy);
}

/* A step of training: every tile changes. */
static void step(struct job *j)
{
	for (size_t i = 0; i < LEN; i += 4096) {
		j->data[i]++;
		j->copy[i]++;
	}
}

/* A save of all that the job has, begun, and not waited for. */
static struct ckpt_save *saved(struct job *j, struct watch *source,
			       const char *name)
{
	struct ckpt_tensor_desc held = fix_desc("held", CKPT_U8,
						SHAPE(1, HELD));
	struct ckpt_tensor_desc read = fix_desc("read", CKPT_U8,
						SHAPE(1, READ));
	struct ckpt_provider p;
	struct ckpt_err err = { 0 };
	uint32_t item;
	struct ckpt_save *s = fix_begin(j->f->writer, name, false, &item);

	*source = (struct watch){ .data = j->data + HELD, .bytes = READ };
	assert_ok(ckpt_provider_host(j->data, HELD, &p, &err));
	assert_ok(ckpt_save_tensor(s, item, &held, &p, &err));
	p = watch_provider(source);
	assert_ok(ckpt_save_tensor(s, item, &read, &p, &err));
	assert_ok(ckpt_save_start(s, &err));
	return s;
}

static void check_whole(struct ckpt_store *store, const char *name,
			const uint8_t *want)
{
	struct ckpt_checkpoint *c = fix_opened(store, name);

	fix_equal(c, fix_find(c, "model", "held"), want, HELD);
	fix_equal(c, fix_find(c, "model", "read"), want + HELD, READ);
	ckpt_checkpoint_close(c);
}

/* ---- what is left of a save ---- */

static int name_entry(void *ctx, const struct ckpt_entry *e)
{
	char *names = ctx;
	size_t len = strlen(names);

	snprintf(names + len, NAMES_BYTES - len, "%s%s ", e->name,
		 e->damage ? "(damaged)" : "");
	return 0;
}

static void assert_listed(struct ckpt_store *store, const char *want)
{
	struct ckpt_err err = { 0 };
	char names[NAMES_BYTES] = "";

	assert_ok(ckpt_store_entries(store, NULL, name_entry, names, &err));
	assert_string_equal(names, want);
}

/* Threads of this process called @name; *@out_asleep of them wait. */
static int count_threads(const char *name, int *out_asleep)
{
	DIR *d = opendir("/proc/self/task");
	struct dirent *e;
	int n = 0;

	assert_non_null(d);
	*out_asleep = 0;
	while ((e = readdir(d))) {
		char path[300], text[200] = "";

		snprintf(path, sizeof(path), "/proc/self/task/%s/stat",
			 e->d_name);
		FILE *f = e->d_name[0] == '.' ? NULL : fopen(path, "re");

		if (!f)
			continue;
		(void)!fgets(text, sizeof(text), f);
		fclose(f);
		char *end = strstr(text, name);

		n += end != NULL;
		*out_asleep += end && strncmp(end + strlen(name), " S", 2) == 0;
	}
	closedir(d);
	return n;
}

/* Nobody works on a save any more: all of them wait. */
static void assert_idle(void)
{
	int asleep = 0;

	for (int i = 0; i < 10000 && asleep != THREADS + 12; i++) {
		assert_int_equal(count_threads("(ckpt-worker)", &asleep),
				 THREADS + 12);
		usleep(1000);
	}
	assert_int_equal(asleep, THREADS + 12);
	assert_int_equal(count_threads("(ckpt-capture)", &asleep), 0);
}

/* Until it has failed, as a loop learns that does not wait. */
static int await_failure(const struct ckpt_save *s)
{
	struct ckpt_save_progress p;

	do {
		usleep(1000);
		ckpt_save_progress(s, &p);
		assert_true(p.phase != CKPT_DURABLE);
	} while (p.failed == 0);
	return p.failed;
}

static void count_note(void *ctx, enum ckb_level level, const char *text)
{
	(void)text;
	*(int *)ctx += level == CKB_ERROR;
}

/* One that fails in the background is in the log once, and the next call tells
 * why. */
static void learn_later(struct ckpt_writer *w, struct ckpt_save *s,
			struct ckpt_err *err)
{
	int notes = 0, code = await_failure(s);

	ckb_log_sink(count_note, &notes);
	ckpt_save_free(s);
	ckb_log_sink(NULL, NULL);
	assert_int_equal(notes, 1);
	assert_int_equal(ckpt_writer_last_error(w, err), code);
}

/* One that is waited for, so that staging is full when it fails. */
static void learn_now(struct ckpt_save *s, struct ckpt_err *err)
{
	int rc = ckpt_save_wait(s, CKPT_CAPTURED, err);

	if (rc == 0)
		rc = ckpt_save_wait(s, CKPT_DURABLE, err);
	assert_true(rc < 0);
	ckpt_save_free(s);
}

/* ---- a table that fails ---- */

static const struct failing {
	const char *what;
	enum fault_kind kind;
	const char *path_end;
	int at, error, code;
	const char *says;
} failures[] = {
	{ "the first write", FAULT_WRITE, ".pack", 1, ENOSPC, CKPT_ENOSPC,
	  "No space left on device" },
	{ "a write among others", FAULT_WRITE, ".pack", 9, ENOSPC,
	  CKPT_ENOSPC, "No space left on device" },
	{ "a quota", FAULT_WRITE, ".pack", 5, EDQUOT, CKPT_ENOSPC,
	  "quota exceeded" },
	{ "a pack's sync", FAULT_FSYNC, ".pack", 1, EIO, CKPT_EIO,
	  "Input/output error" },
	{ "a pack's way out of staging", FAULT_RENAME, NULL, 1, ENOSPC,
	  CKPT_ENOSPC, "No space left on device" },
	{ "the manifest", FAULT_WRITE, "/manifest", 1, ENOSPC, CKPT_ENOSPC,
	  "No space left on device" },
	{ "its sync", FAULT_FSYNC, "/manifest", 1, EIO, CKPT_EIO,
	  "Input/output error" },
	{ "its name", FAULT_LINK, NULL, 1, ENOSPC, CKPT_ENOSPC,
	  "No space left on device" },
};

/* From call c->at on, until there is room again. */
static void fail_from(struct fault_sys *sys, const struct failing *c)
{
	fault_each(sys, c->kind, c->path_end);
	sys->fail_at = c->at;
	sys->error = c->error;
	atomic_store(&sys->met, false);
}

static void lose(struct job *j, const struct failing *c, bool waits)
{
	struct ckpt_err err = { 0 };
	int fds = fix_fds(), ours = fault_open_count(&j->sys);

	fail_from(&j->sys, c);
	struct ckpt_save *s = saved(j, &j->first, "run/lost");

	if (waits)
		learn_now(s, &err);
	else
		learn_later(j->f->writer, s, &err);
	print_message("%s: %s\n", c->what, err.message);
	assert_true(atomic_load(&j->sys.met));
	assert_int_equal(err.code, c->code);
	assert_int_equal(err.sys_errno, c->error);
	assert_says(err, "saving 'run/lost'");
	assert_says(err, c->says);
	assert_ok(ckpt_writer_last_error(j->f->writer, &err));
	/* the job's memory is its own again, and as it was */
	assert_int_equal(j->first.released, 1);
	assert_memory_equal(j->data, j->copy, LEN);
	assert_idle();
	assert_int_equal(fix_files(j->f, "staging"), 0);
	assert_int_equal(fix_fds(), fds);
	assert_int_equal(fault_open_count(&j->sys), ours);
	j->sys.fail_at = 0; /* there is room again */
}

/* What the lost one wrote is not taken for there. */
static void win(struct job *j, const char *name)
{
	struct ckpt_err err = { 0 };
	struct ckpt_save_progress p;
	struct ckpt_save *s = saved(j, &j->second, name);

	assert_ok(ckpt_save_wait_for(s, CKPT_DURABLE, MINUTE, &err));
	ckpt_save_progress(s, &p);
	assert_int_equal(p.bytes_new, LEN);
	ckpt_save_free(s);
	check_whole(j->f->store, name, j->copy);
	assert_ok(ckpt_writer_last_error(j->f->writer, &err));
	assert_idle();
}

static void the_job_lives_whatever_fails(void **state)
{
	const size_t count = CKB_ARRAY_LEN(failures);
	struct fix *f = *state;
	struct job j = { .data = NULL };
	struct ckpt_check_opts o = { .size = sizeof(o),
				     .depth = CKPT_CHECK_FULL };
	struct ckpt_check_result r;
	struct ckpt_err err = { 0 };
	char listed[NAMES_BYTES] = "run/00 ", good[20];

	job_begin(&j, f);
	win(&j, "run/00");
	for (size_t i = 0; i < 2 * count; i++) {
		step(&j);
		lose(&j, &failures[i / 2], i % 2 == 1);
		assert_listed(f->store, listed);
		snprintf(good, sizeof(good), "run/%02zu", i + 1);
		win(&j, good);
		strcat(strcat(listed, good), " ");
	}
	job_end(&j);
	assert_ok(ckpt_store_check(f->store, NULL, &o, &r, &err));
	assert_int_equal(r.checkpoint_count, 2 * count + 1);
	assert_int_equal(r.damage_count, 0);
}

/* The one behind it has nothing to do with that. */
static void a_failure_does_not_reach_the_next_save(void **state)
{
	struct fix *f = *state;
	struct job j = { .data = NULL };
	struct ckpt_err err = { 0 };

	job_begin(&j, f);
	fail_from(&j.sys, &failures[0]);
	j.sys.fail_count = 1;
	struct ckpt_save *a = saved(&j, &j.first, "a");
	struct ckpt_save *b = saved(&j, &j.second, "b");

	assert_ok(ckpt_save_wait_for(b, CKPT_DURABLE, MINUTE, &err));
	assert_code(ckpt_save_wait_for(a, CKPT_DURABLE, MINUTE, &err),
		    CKPT_ENOSPC);
	assert_says(err, "saving 'a'");
	ckpt_save_free(a);
	ckpt_save_free(b);
	assert_listed(f->store, "b ");
	check_whole(f->store, "b", j.copy);
	assert_int_equal(fix_files(f, "staging"), 0);
	job_end(&j);
}

/* Until what lies in memory is captured, so that it waits to be stored. */
static void await_captured(void *ctx)
{
	struct ckpt_save_progress p;

	do {
		usleep(1000);
		ckpt_save_progress(*(struct ckpt_save **)ctx, &p);
	} while (p.bytes_captured < HELD / 2);
}

/* What it had captured was not stored yet: it was not its turn. */
static void a_failure_behind_another_gives_staging_back(void **state)
{
	struct fix *f = *state;
	struct job j = { .data = NULL };
	struct gate g = GATE;
	struct watch gated_by = { 0 }, failing = { .bytes = 1,
		.fail_rc = CKPT_EIO, .fail_says = "no tape",
		.on_read = await_captured };
	struct ckpt_tensor_desc d = fix_desc("t", CKPT_U8, SHAPE(1, 1));
	struct ckpt_tensor_desc held = fix_desc("held", CKPT_U8,
						SHAPE(1, HELD / 2));
	struct ckpt_provider p = watch_provider(&failing);
	struct ckpt_err err = { 0 };
	uint32_t item;

	job_begin(&j, f);
	struct ckpt_save *a = gated(f, "a", &gated_by, &g);
	struct ckpt_save *b = fix_begin(f->writer, "b", false, &item);

	failing.ctx = &b;
	assert_ok(ckpt_save_tensor(b, item, &d, &p, &err));
	assert_ok(ckpt_provider_host(j.data, HELD / 2, &p, &err));
	assert_ok(ckpt_save_tensor(b, item, &held, &p, &err));
	gate_await(&g);
	assert_ok(ckpt_save_start(b, &err));
	assert_code(ckpt_save_wait_for(b, CKPT_CAPTURED, MINUTE, &err),
		    CKPT_EIO);
	assert_says(err, "no tape");
	ckpt_save_free(b);
	gate_open(&g);
	assert_ok(ckpt_save_wait_for(a, CKPT_DURABLE, MINUTE, &err));
	ckpt_save_free(a);
	win(&j, "c");
	assert_listed(f->store, "a c ");
	job_end(&j);
}

/* Told by begin itself, and by nobody else. */
static void no_room_to_begin_is_told_at_once(void **state)
{
	struct fix *f = *state;
	struct job j = { .data = NULL };
	struct ckpt_save_desc d = { .size = sizeof(d), .name = "a" };
	struct ckpt_err err = { 0 };
	struct ckpt_save *s;

	job_begin(&j, f);
	fault_each(&j.sys, FAULT_MKDIR, NULL);
	j.sys.error = ENOSPC;
	assert_code(ckpt_save_begin(f->writer, &d, &s, &err), CKPT_ENOSPC);
	assert_null(s);
	assert_says(err, "No space left on device");
	j.sys.fail_at = 0;
	assert_ok(ckpt_writer_last_error(f->writer, &err));
	s = saved(&j, &j.first, "a");
	assert_ok(ckpt_save_wait_for(s, CKPT_DURABLE, MINUTE, &err));
	ckpt_save_free(s);
	check_whole(f->store, "a", j.copy);
	job_end(&j);
}

/* ---- a file system that is full ---- */

static uint64_t free_bytes(const char *path)
{
	struct statvfs st;

	assert_int_equal(statvfs(path, &st), 0);
	return (uint64_t)st.f_bavail * st.f_frsize;
}

/* Takes all that is left on the file system of @path. */
static void fill(const char *path)
{
	static const char block[4096];
	FILE *f = fopen(path, "we");

	assert_non_null(f);
	setvbuf(f, NULL, _IONBF, 0);
	while (fwrite(block, sizeof(block), 1, f) == 1)
		;
	fclose(f);
}

/* A save of @len bytes that cannot be. */
static void no_room_for(struct ckpt_writer *w, const char *name, size_t len)
{
	struct ckpt_save_desc d = { .size = sizeof(d), .name = name };
	struct ckpt_item_desc it = { .size = sizeof(it), .name = "model",
				     .kind = CKPT_ITEM_TENSORS };
	struct ckpt_tensor_desc t = fix_desc("w", CKPT_U8, SHAPE(1, len));
	uint8_t *data = fix_bytes(len, 77);
	struct ckpt_provider p = fix_copy(data, len);
	struct ckpt_save *s = NULL;
	struct ckpt_err err = { 0 };
	uint32_t item;
	int rc = ckpt_save_begin(w, &d, &s, &err);

	if (rc < 0) { /* not even that */
		assert_code(rc, CKPT_ENOSPC);
		ckpt_provider_release(&p);
	} else {
		assert_ok(ckpt_save_item(s, &it, &item, &err));
		assert_ok(ckpt_save_tensor(s, item, &t, &p, &err));
		assert_ok(ckpt_save_start(s, &err));
		learn_later(w, s, &err);
		assert_int_equal(err.code, CKPT_ENOSPC);
		assert_says(err, name);
	}
	assert_says(err, "No space left on device");
	free(data);
}

/* Over the fixture's folder, so that its store is made anew. */
static bool mount_small(struct fix *f)
{
	struct ckpt_writer_opts o = { .size = sizeof(o), .threads = THREADS,
				      .staging_bytes = CKB_STAGING_MIN_BYTES };
	struct ckpt_err err = { 0 };

	if (unshare(CLONE_NEWNS) != 0 ||
	    mount("none", "/", NULL, MS_REC | MS_PRIVATE, NULL) != 0 ||
	    mount("none", f->dir, "tmpfs", 0, "size=64m") != 0)
		return false;
	assert_ok(ckpt_store_init(f->path, &err));
	assert_ok(ckpt_store_open(f->path, NULL, &f->store, &err));
	assert_ok(ckpt_writer_open(f->store, &o, &f->writer, &err));
	return true;
}

static void shut(struct fix *f)
{
	ckpt_writer_close(f->writer);
	ckpt_store_close(f->store);
	f->writer = NULL;
	f->store = NULL;
}

/* commit-08 */
static void a_disk_that_was_full_is_used_again(void **state)
{
	struct fix *f = *state;
	struct ckpt_err err = { 0 };
	char ballast[600];

	shut(f);
	if (!mount_small(f)) {
		print_message("no file system may be mounted here (%s): a "
			      "full one was not tried\n", strerror(errno));
		skip();
	}
	fix_save(f->writer, "1", false, 8 * MIB, 1);
	uint64_t before = free_bytes(f->dir);

	no_room_for(f->writer, "2", 100 * MIB);
	/* what it had written is room again, but for some pages of index */
	assert_true(free_bytes(f->dir) + MIB / 4 >= before);
	fix_save(f->writer, "3", false, 40 * MIB, 3);
	snprintf(ballast, sizeof(ballast), "%s/ballast", f->dir);
	fill(ballast);
	no_room_for(f->writer, "4", 8 * MIB);
	unlink(ballast);
	fix_save(f->writer, "4", false, 8 * MIB, 4);
	assert_ok(fix_whole(f->store, "1", 8 * MIB, 1, &err));
	assert_ok(fix_whole(f->store, "3", 40 * MIB, 3, &err));
	assert_ok(fix_whole(f->store, "4", 8 * MIB, 4, &err));
	assert_listed(f->store, "1 3 4 ");
	assert_idle();
	shut(f);
	assert_int_equal(umount(f->dir), 0);
}

#define TEST(name) \
	cmocka_unit_test_setup_teardown(name, fix_setup, fix_teardown)

int main(void)
{
	const struct CMUnitTest tests[] = {
		TEST(the_job_lives_whatever_fails),
		TEST(a_failure_does_not_reach_the_next_save),
		TEST(a_failure_behind_another_gives_staging_back),
		TEST(no_room_to_begin_is_told_at_once),
		TEST(a_disk_that_was_full_is_used_again),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
