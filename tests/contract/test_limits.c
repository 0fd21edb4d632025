/* SPDX-License-Identifier: Apache-2.0 */
/*
 * test_limits.c - what a writer may take of the machine, and takes.
 *
 * Times are compared from below only: a slow machine passes.
 */
#include "save_fixture.h"

#include <pthread.h>
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

/* Until three threads wait in writes: at a byte a second it stays so. */
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

/* A started save of 16 MiB of new bytes. */
static struct ckpt_save *started(struct ckpt_writer *w, struct watch *source)
{
	struct ckpt_err err = { 0 };
	uint8_t *data = fix_bytes(16 * MIB, 3);
	uint32_t item;
	struct ckpt_save *s = fix_begin(w, "slow", false, &item);

	fix_tensor(s, item, "w", CKPT_U8, SHAPE(1, 16 * MIB), data, 16 * MIB);
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
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
