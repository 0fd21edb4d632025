/* SPDX-License-Identifier: Apache-2.0 */
/*
 * test_limits.c - what a writer may take of the machine, and takes.
 *
 * Times are compared from below only: a slow machine passes.
 */
#include "save_fixture.h"

#include <pthread.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <time.h>

#include "fault_sys.h"
#include "pipeline.h"

#define SECOND_NS 1000000000ll
#define MIB (1u << 20)

static int64_t now_ns(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return ckb_time_ns(&t);
}

/* A writer as @o says, on the store through @sys. */
static struct ckpt_writer *writer(struct ckpt_store *store,
				  struct ckpt_writer_opts o)
{
	struct ckpt_writer *w;
	struct ckpt_err err = { 0 };

	o.size = sizeof(o);
	assert_ok(ckpt_writer_open(store, &o, &w, &err));
	return w;
}

/* ---- so much a second ---- */

/* By hand: 100 a second is 10 ms each; a burst of 5 is 50 ms. */
static void a_limit_gives_what_the_rate_allows(void **state)
{
	static const struct {
		int64_t now_ms;
		uint64_t n;
		int64_t want_ms;
	} cases[] = {
		{ 10000, 5, 9950 },   /* nothing was taken: one burst */
		{ 10000, 5, 10000 },
		{ 10000, 5, 10050 },
		{ 10001, 1, 10100 },  /* others wait behind it */
		{ 10110, 1, 10110 },
		{ 10300, 20, 10250 }, /* a pause earns one burst, no more */
		{ 10300, 1, 10450 },
		{ 20000, 0, 19950 },
	};
	struct ckw_limit l;

	(void)state;
	ckw_limit_init(&l, 100, 5);
	for (size_t i = 0; i < CKB_ARRAY_LEN(cases); i++)
		assert_int_equal(ckw_limit_take(&l, cases[i].now_ms * 1000000,
						cases[i].n),
				 cases[i].want_ms * 1000000);
	ckw_limit_fini(&l);
}

static void steps_are_small_whole_blocks(void **state)
{
	(void)state;
	assert_int_equal(ckw_paced_step(1), 4096);
	assert_int_equal(ckw_paced_step(64 * 8191), 4096);
	assert_int_equal(ckw_paced_step(64 * 8192), 8192);
	assert_int_equal(ckw_paced_step(64 * MIB - 1), MIB - 4096);
	assert_int_equal(ckw_paced_step(200000000), MIB);
	assert_int_equal(ckw_paced_step(UINT64_MAX), MIB);
}

static void packs_are_written_no_faster(void **state)
{
	struct fix *f = *state;
	const size_t len = 6 * MIB;
	const enum ckpt_io io[] = { CKPT_IO_BUFFERED, CKPT_IO_DIRECT };
	struct fault_sys sys;
	struct ckpt_store *store;
	struct ckpt_err err = { 0 };

	fault_init(&sys);
	assert_ok(cks_store_open_sys(&sys.sys, f->path, NULL, &store, &err));
	for (uint32_t i = 0; i < 2; i++) {
		struct ckpt_writer *w = writer(store,
			(struct ckpt_writer_opts){ .io = io[i],
				.write_bytes_per_s = 12 * MIB });
		const char *name = i == 0 ? "a" : "b";
		int before = atomic_load(&sys.made[FAULT_WRITE]);
		int64_t start = now_ns();

		fix_save(w, name, false, len, 9 + i);
		/* all but two steps of a 64th of a second */
		assert_true(now_ns() - start >= SECOND_NS * 30 / 64);
		assert_true(atomic_load(&sys.made[FAULT_WRITE]) - before >= 32);
		ckpt_writer_close(w);
		assert_ok(fix_whole(f->store, name, len, 9 + i, &err));
	}
	ckpt_store_close(store);
	assert_int_equal(fault_open_count(&sys), 0);
}

/* ---- waiting for the limit ---- */

/* Until three writes or more wait: at a byte a second it stays so. */
static void await_behind(struct ckpt_writer *w)
{
	struct ckw_worker any = { .pool = w->pool };

	while (!ckw_pool_disk_behind(&any))
		usleep(1000);
}

static void behind(void *ctx)
{
	await_behind(ctx);
}

/* A started save of new bytes: more than three writes of them. */
#define SLOW_LEN (64 * MIB)
static struct ckpt_save *started(struct ckpt_writer *w, struct watch *source)
{
	struct ckpt_err err = { 0 };
	uint8_t *data = fix_bytes(SLOW_LEN, 3);
	uint32_t item;
	struct ckpt_save *s = fix_begin(w, "slow", false, &item);

	fix_tensor(s, item, "w", CKPT_U8, SHAPE(1, SLOW_LEN), data, SLOW_LEN);
	free(data);
	if (source) {
		struct ckpt_tensor_desc d = fix_desc("last", CKPT_U8,
						     SHAPE(1, source->bytes));
		struct ckpt_provider p = watch_provider(source);

		assert_ok(ckpt_save_tensor(s, item, &d, &p, &err));
	}
	assert_ok(ckpt_save_start(s, &err));
	return s;
}

static void who_waits_is_behind_and_can_be_aborted(void **state)
{
	struct fix *f = *state;
	struct ckpt_err err = { 0 };
	struct ckpt_writer *w = writer(f->store, (struct ckpt_writer_opts){
		.write_bytes_per_s = 1 });
	struct ckpt_save *s = started(w, NULL);

	await_behind(w);
	/* the caller goes on, long before the disk has it */
	assert_ok(ckpt_save_wait(s, CKPT_CAPTURED, &err));
	ckpt_save_abort(s);
	assert_code(ckpt_save_wait(s, CKPT_DURABLE, &err), CKPT_ECANCELED);
	ckpt_save_free(s);
	ckpt_writer_close(w);
	assert_int_equal(fix_files(f, "staging"), 0);
	assert_int_equal(fix_files(f, "packs"), 0);
}

static void a_failure_does_not_wait(void **state)
{
	struct fix *f = *state;
	struct ckpt_err err = { 0 };
	struct ckpt_writer *w = writer(f->store, (struct ckpt_writer_opts){
		.write_bytes_per_s = 1 });
	struct watch source = { .bytes = 100, .fail_at = 0,
				.fail_rc = CKPT_EIO, .fail_says = "gone",
				.on_read = behind, .ctx = w };
	struct ckpt_save *s = started(w, &source);

	assert_code(ckpt_save_wait(s, CKPT_DURABLE, &err), CKPT_EIO);
	assert_says(err, "gone");
	ckpt_save_free(s);
	ckpt_writer_close(w);
	assert_int_equal(fix_files(f, "staging"), 0);
}

/* ---- a share of the processors ---- */

static void threads_take_their_share(void **state)
{
	struct fix *f = *state;
	struct ckpt_writer *w = writer(f->store, (struct ckpt_writer_opts){
		.cpu_share = 5 });
	struct timespec all, mine, all2, mine2;

	clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &all);
	clock_gettime(CLOCK_THREAD_CPUTIME_ID, &mine);
	int64_t start = now_ns();

	fix_save(w, "a", false, 24 * MIB, 4);
	double wall = (double)(now_ns() - start);

	clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &all2);
	clock_gettime(CLOCK_THREAD_CPUTIME_ID, &mine2);
	double took = (double)(ckb_time_ns(&all2) - ckb_time_ns(&all) -
			       ckb_time_ns(&mine2) + ckb_time_ns(&mine));

	/* the last tiles of each thread are not waited for */
	assert_true(wall >= took / (0.05 * ckw_processors()) / 2);
	ckpt_writer_close(w);
}

static void who_waits_for_capture_is_not_slowed_down(void **state)
{
	struct fix *f = *state;
	struct ckpt_err err = { 0 };
	struct ckpt_writer *w = writer(f->store, (struct ckpt_writer_opts){
		.cpu_share = 1 });

	/* hours of debt */
	(void)ckw_limit_take(&w->cpu, now_ns(), 1000ull * SECOND_NS);
	struct ckpt_save *s = started(w, NULL);
	struct ckpt_save_progress p;

	usleep(20000);
	ckpt_save_progress(s, &p);
	assert_int_equal(p.bytes_captured, 0);
	assert_ok(ckpt_save_wait(s, CKPT_CAPTURED, &err));
	/* nor has an abort to wait */
	ckpt_save_abort(s);
	ckpt_save_free(s);
	ckpt_writer_close(w);
}

/* ---- priorities ---- */

/* Threads of this process called @name, and those with nice @nice and I/O
 * priority @io (< 0: whatever it is). */
static void count_threads(const char *name, int nice, int io, int *out_all,
			  int *out_so)
{
	DIR *d = opendir("/proc/self/task");
	struct dirent *e;

	assert_non_null(d);
	*out_all = *out_so = 0;
	while ((e = readdir(d))) {
		char path[300], text[1024] = "";
		int tid = atoi(e->d_name), have = 0, at = 0;

		snprintf(path, sizeof(path), "/proc/self/task/%d/stat", tid);
		FILE *file = tid > 0 ? fopen(path, "r") : NULL;

		if (!file)
			continue;
		(void)!fgets(text, sizeof(text), file);
		fclose(file);
		char *end = strrchr(text, ')');

		if (!end || !strstr(text, name))
			continue;
		/* proc(5): state is field 3, nice 19 */
		assert_int_equal(sscanf(end + 2, "%*s %*s %*s %*s %*s %*s %*s "
					"%*s %*s %*s %*s %*s %*s %*s %*s %*s "
					"%d%n", &have, &at), 1);
		++*out_all;
		*out_so += have == nice &&
			   (io < 0 || syscall(SYS_ioprio_get, 1, tid) == io);
	}
	closedir(d);
}

/* They set it as their first thing, which may be a moment from now. */
static void await_threads(const char *name, int nice, int io, int want)
{
	int all = 0, so = 0;

	for (int i = 0; i < 20000 && (all != want || so != want); i++) {
		count_threads(name, nice, io, &all, &so);
		usleep(1000);
	}
	assert_int_equal(all, want);
	assert_int_equal(so, want);
}

static void threads_have_the_priorities_asked_for(void **state)
{
	static const struct {
		int nice;
		enum ckpt_ionice class;
		int level, want;
	} cases[] = {
		{ 7, CKPT_IONICE_BEST_EFFORT, 6, 2 << 13 | 6 },
		{ 19, CKPT_IONICE_IDLE, 5, 3 << 13 },
		{ 0, CKPT_IONICE_NONE, 0, -1 },
	};
	struct fix *f = *state;
	bool known = syscall(SYS_ioprio_get, 1, 0) >= 0;
	int own = getpriority(PRIO_PROCESS, 0);
	ckpt_writer_close(f->writer);
	f->writer = NULL;
	if (!known)
		print_message("ioprio_get(2) is not there: only nice\n");
	for (size_t i = 0; i < CKB_ARRAY_LEN(cases); i++) {
		struct ckpt_writer *w = writer(f->store,
			(struct ckpt_writer_opts){ .threads = 3,
				.nice = cases[i].nice,
				.ionice = cases[i].class,
				.ionice_level = cases[i].level,
				.write_bytes_per_s = 1 });
		struct ckpt_save *s = started(w, NULL);
		int io = known ? cases[i].want : -1;
		int nice = cases[i].nice > own ? cases[i].nice : own;

		await_threads("(ckpt-worker)", nice, io, 3 + 12);
		/* the save's own, too */
		await_threads("(ckpt-capture)", nice, io, 1);
		/* and the program's keeps what it had */
		assert_int_equal(getpriority(PRIO_PROCESS, 0), own);
		ckpt_save_free(s);
		ckpt_writer_close(w);
	}
}

static void limits_that_cannot_be_are_refused(void **state)
{
	static const struct {
		struct ckpt_writer_opts o;
		const char *says;
	} cases[] = {
		{ { .cpu_share = 101 }, "cpu_share is 101" },
		{ { .ionice = (enum ckpt_ionice)1 }, "ionice is 1" },
		{ { .ionice = (enum ckpt_ionice)4 }, "ionice is 4" },
		{ { .ionice_level = 8 }, "ionice_level is 8" },
		{ { .ionice_level = -1 }, "ionice_level is -1" },
		{ { .nice = -1 }, "nice is -1" },
		{ { .nice = 20 }, "nice is 20" },
	};
	struct fix *f = *state;
	struct ckpt_writer *w;
	struct ckpt_err err = { 0 };

	for (size_t i = 0; i < CKB_ARRAY_LEN(cases); i++) {
		struct ckpt_writer_opts o = cases[i].o;

		o.size = sizeof(o);
		assert_code(ckpt_writer_open(f->store, &o, &w, &err),
			    CKPT_EINVAL);
		assert_null(w);
		assert_says(err, cases[i].says);
	}
}

#define TEST(name) \
	cmocka_unit_test_setup_teardown(name, fix_setup, fix_teardown)

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(a_limit_gives_what_the_rate_allows),
		cmocka_unit_test(steps_are_small_whole_blocks),
		TEST(packs_are_written_no_faster),
		TEST(who_waits_is_behind_and_can_be_aborted),
		TEST(a_failure_does_not_wait),
		TEST(threads_take_their_share),
		TEST(who_waits_for_capture_is_not_slowed_down),
		TEST(threads_have_the_priorities_asked_for),
		TEST(limits_that_cannot_be_are_refused),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
