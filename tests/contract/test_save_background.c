/* SPDX-License-Identifier: Apache-2.0 */
/*
 * test_save_background.c - saves go on while the caller does: capture, order
 * of commits, abort, descriptors.
 */
#include "gate.h"

#include <math.h>
#include <pthread.h>
#include <sys/resource.h>

#include "chunk/digest.h"
#include "format/entry.h"
#include "verbs/checkpoint.h"

/* ---- in the background ---- */

/* async-01 */
static void what_changes_after_captured_is_not_saved(void **state)
{
	struct fix *f = *state;
	size_t len = 5 << 20;
	uint8_t *data = malloc(len);
	struct ckpt_tensor_desc d = fix_desc("t", CKPT_U8, SHAPE(1, len));
	struct ckpt_provider p;
	struct ckpt_err err = { 0 };
	uint32_t item;
	struct ckpt_save *s = fix_begin(f->writer, "a", false, &item);

	assert_non_null(data);
	memset(data, 1, len);
	assert_ok(ckpt_provider_host(data, len, &p, &err));
	assert_ok(ckpt_save_tensor(s, item, &d, &p, &err));
	assert_ok(ckpt_save_start(s, &err));
	assert_ok(ckpt_save_wait(s, CKPT_CAPTURED, &err));
	memset(data, 2, len);
	assert_ok(ckpt_save_wait(s, CKPT_DURABLE, &err));
	ckpt_save_free(s);
	memset(data, 1, len);
	struct ckpt_checkpoint *c = fix_opened(f->store, "a");

	fix_equal(c, fix_find(c, "model", "t"), data, len);
	ckpt_checkpoint_close(c);
	free(data);
}

/* A started save of two tensors: "w", of bytes from @seed, and one that waits
 * at @g. Returns when "w" is in a pack. */
static struct ckpt_save *half_done(struct fix *f, bool replace, size_t len,
				   uint32_t seed, struct watch *w,
				   struct gate *g)
{
	struct ckpt_tensor_desc d = fix_desc("t", CKPT_U8, SHAPE(1, 1000));
	struct ckpt_provider p = watch_provider(w);
	struct ckpt_save_progress now = { 0 };
	struct ckpt_err err = { 0 };
	uint8_t *data = fix_bytes(len, seed);
	uint32_t item;
	struct ckpt_save *s = fix_begin(f->writer, "a", replace, &item);

	*w = (struct watch){ .bytes = 1000, .on_read = gate_pass, .ctx = g };
	fix_tensor(s, item, "w", CKPT_U8, SHAPE(1, len), data, len);
	assert_ok(ckpt_save_tensor(s, item, &d, &p, &err));
	assert_ok(ckpt_save_start(s, &err));
	for (; now.bytes_written < len; usleep(1000))
		ckpt_save_progress(s, &now);
	free(data);
	return s;
}

/* async-02: until it is durable, a save is not there, or the old one is. */
static void a_save_under_way_is_never_read_in_part(void **state)
{
	struct fix *f = *state;
	size_t len = 3 << 20;
	struct ckpt_err err = { 0 };

	for (uint32_t round = 0; round < 2; round++) {
		struct gate g = GATE;
		struct watch w;
		struct ckpt_save *s = half_done(f, round > 0, len, round, &w,
						&g);

		if (round == 0)
			assert_code(fix_whole(f->store, "a", len, 0, &err),
				    CKPT_ENOENT);
		else
			assert_ok(fix_whole(f->store, "a", len, 0, &err));
		/* who asks the save is told that it goes on */
		assert_code(ckpt_save_wait_for(s, CKPT_DURABLE, 0, &err),
			    CKPT_ETIMEDOUT);
		assert_says(err, "it goes on");
		gate_open(&g);
		assert_ok(ckpt_save_wait(s, CKPT_DURABLE, &err));
		assert_ok(fix_whole(f->store, "a", len, round, &err));
		ckpt_save_free(s);
	}
}

static void saves_commit_in_the_order_they_were_started(void **state)
{
	struct fix *f = *state;
	struct gate g = GATE;
	struct watch w = { 0 };
	struct ckpt_save *s[3];
	struct ckpt_err err = { 0 };
	uint64_t seq = 0;
	uint32_t item;
	uint8_t byte = 7;
	char name[16];

	s[0] = gated(f, "0", &w, &g);
	for (int i = 1; i < 3; i++) {
		snprintf(name, sizeof(name), "%d", i);
		s[i] = fix_begin(f->writer, name, false, &item);
		fix_tensor(s[i], item, "t", CKPT_U8, SHAPE(0), &byte, 1);
		assert_ok(ckpt_save_start(s[i], &err));
	}
	gate_await(&g);
	gate_open(&g);
	for (int i = 2; i >= 0; i--)
		assert_ok(ckpt_save_wait(s[i], CKPT_DURABLE, &err));
	for (int i = 0; i < 3; i++) {
		snprintf(name, sizeof(name), "%d", i);
		struct ckpt_checkpoint *c = fix_opened(f->store, name);

		assert_true(ckpt_checkpoint_info(c)->seq > seq);
		seq = ckpt_checkpoint_info(c)->seq;
		ckpt_checkpoint_close(c);
		ckpt_save_free(s[i]);
	}
}

/* A first save whose source stands still, and one behind it with more bytes
 * than staging has: were that captured meanwhile, there would be no room left
 * for the first, and so never for either. Both are larger than staging. */
static void a_later_save_leaves_the_first_its_room(void **state)
{
	static const size_t len = 40 << 20;
	struct ckpt_writer_opts o = { .size = sizeof(o),
				      .staging_bytes = 32 << 20 };
	struct fix *f = *state;
	struct gate g = GATE;
	uint8_t *data = fix_bytes(len, 1);
	struct watch w = { .data = data, .bytes = len, .on_read = gate_pass,
			   .ctx = &g };
	struct ckpt_tensor_desc d = fix_desc("t", CKPT_U8, SHAPE(1, len));
	struct ckpt_provider p = watch_provider(&w);
	struct ckpt_save *s[2];
	struct ckpt_err err = { 0 };
	uint32_t item;

	ckpt_writer_close(f->writer);
	assert_ok(ckpt_writer_open(f->store, &o, &f->writer, &err));
	s[0] = fix_begin(f->writer, "first", false, &item);
	assert_ok(ckpt_save_tensor(s[0], item, &d, &p, &err));
	assert_ok(ckpt_save_start(s[0], &err));
	gate_await(&g);
	s[1] = fix_begin(f->writer, "later", false, &item);
	assert_ok(ckpt_provider_host(data, len, &p, &err));
	assert_ok(ckpt_save_tensor(s[1], item, &d, &p, &err));
	assert_ok(ckpt_save_start(s[1], &err));
	usleep(100000); /* time to take all that it may */
	gate_open(&g);
	for (int i = 0; i < 2; i++)
		assert_ok(ckpt_save_wait_for(s[i], CKPT_DURABLE, 60000000000,
					     &err));
	for (int i = 0; i < 2; i++) {
		struct ckpt_checkpoint *c = fix_opened(f->store,
						       i ? "later" : "first");

		ckpt_save_free(s[i]);
		fix_equal(c, fix_find(c, "model", "t"), data, len);
		ckpt_checkpoint_close(c);
	}
	free(data);
}

static void *open_soon(void *arg)
{
	usleep(20000);
	gate_open(arg);
	return NULL;
}

static void an_aborted_save_leaves_nothing(void **state)
{
	struct fix *f = *state;
	struct gate g = GATE, passed = GATE;
	struct watch w = { 0 }, queued = { 0 };
	struct ckpt_save *s, *next;
	struct ckpt_err err = { 0 };
	pthread_t opener;

	s = gated(f, "a", &w, &g);
	gate_open(&passed);
	next = gated(f, "b", &queued, &passed);
	gate_await(&g);
	/* one that waits for its turn need not wait to be aborted */
	ckpt_save_abort(next);
	assert_in_range(queued.read_count, 0, 1);
	assert_int_equal(queued.released, 1);
	assert_code(ckpt_save_wait(next, CKPT_CAPTURED, &err), CKPT_ECANCELED);
	assert_code(ckpt_save_wait(next, CKPT_DURABLE, &err), CKPT_ECANCELED);
	/* one at work ends after the read it is in */
	assert_int_equal(pthread_create(&opener, NULL, open_soon, &g), 0);
	ckpt_save_abort(s);
	pthread_join(opener, NULL);
	assert_int_equal(w.released, 1);
	assert_int_equal(fix_files(f, "staging"), 0);
	assert_code(ckpt_save_wait(s, CKPT_DURABLE, &err), CKPT_ECANCELED);
	assert_says(err, "'a'");
	assert_int_equal(fix_files(f, "checkpoints"), 0);
	ckpt_save_free(s);
	ckpt_save_free(next);
	fix_save(f->writer, "a", false, 10, 1);
}

static void aborting_a_finished_save_changes_nothing(void **state)
{
	struct fix *f = *state;
	struct ckpt_err err = { 0 };
	uint32_t item;
	struct ckpt_save *s = fix_begin(f->writer, "a", false, &item);

	assert_ok(ckpt_save_start(s, &err));
	assert_ok(ckpt_save_wait(s, CKPT_DURABLE, &err));
	ckpt_save_abort(s);
	assert_ok(ckpt_save_wait(s, CKPT_DURABLE, &err));
	ckpt_save_free(s);
	ckpt_checkpoint_close(fix_opened(f->store, "a"));
}

/* async-05 */
static void descriptors_do_not_grow_with_tensors(void **state)
{
	struct fix *f = *state;
	struct rlimit few = { 256, 256 }, limit;
	int before = fix_fds();
	struct ckpt_err err = { 0 };
	char name[16];
	uint32_t item;
	struct ckpt_save *s = fix_begin(f->writer, "many", false, &item);
	int begun = fix_fds();

	assert_int_equal(getrlimit(RLIMIT_NOFILE, &limit), 0);
	few.rlim_max = limit.rlim_max;
	assert_int_equal(setrlimit(RLIMIT_NOFILE, &few), 0);
	for (uint32_t i = 0; i < 5000; i++) {
		snprintf(name, sizeof(name), "t%u", i);
		fix_tensor(s, item, name, CKPT_U32, SHAPE(0), &i, 4);
	}
	assert_int_equal(fix_fds(), begun);
	assert_ok(fix_finish(s, &err));
	assert_int_equal(setrlimit(RLIMIT_NOFILE, &limit), 0);
	struct ckpt_checkpoint *c = fix_opened(f->store, "many");
	const uint32_t last = 4999;

	fix_equal(c, fix_find(c, "model", "t4999"), &last, 4);
	ckpt_checkpoint_close(c);
	/* packs that were read may stay open; nothing else */
	assert_in_range(fix_fds(), before, before + 1);
	assert_int_equal(fix_files(f, "packs"), 1); /* scalars lie together */
}

#define TEST(name) \
	cmocka_unit_test_setup_teardown(name, fix_setup, fix_teardown)

int main(void)
{
	const struct CMUnitTest tests[] = {
		TEST(what_changes_after_captured_is_not_saved),
		TEST(a_save_under_way_is_never_read_in_part),
		TEST(saves_commit_in_the_order_they_were_started),
		TEST(a_later_save_leaves_the_first_its_room),
		TEST(an_aborted_save_leaves_nothing),
		TEST(aborting_a_finished_save_changes_nothing),
		TEST(descriptors_do_not_grow_with_tensors),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
