/* SPDX-License-Identifier: Apache-2.0 */
/*
 * test_save_wait.c - how a caller learns where its save stands: waits with an
 * end, polls, descriptors, calls, and failures that nobody waited for.
 */
#include "gate.h"

#include <fcntl.h>
#include <poll.h>
#include <time.h>

#define SECOND 1000000000ull

static bool readable(int fd)
{
	struct pollfd p = { .fd = fd, .events = POLLIN };

	return poll(&p, 1, 0) == 1 && (p.revents & POLLIN);
}

static void await_readable(int fd)
{
	struct pollfd p = { .fd = fd, .events = POLLIN };

	assert_int_equal(poll(&p, 1, -1), 1);
}

/* ---- waits and polls ---- */

static void a_wait_ends_in_time_and_the_save_goes_on(void **state)
{
	struct fix *f = *state;
	struct gate g = GATE;
	struct watch w = { 0 };
	struct ckpt_err err = { 0 };
	struct ckpt_save *s = gated(f, "a", &w, &g);

	gate_await(&g);
	for (int i = 0; i < 2; i++) {
		uint64_t ns = i * SECOND / 100;

		assert_code(ckpt_save_wait_for(s, CKPT_CAPTURED, ns, &err),
			    CKPT_ETIMEDOUT);
		assert_says(err, "'a' is not captured");
		assert_code(ckpt_save_wait_for(s, CKPT_DURABLE, ns, &err),
			    CKPT_ETIMEDOUT);
		assert_says(err, "not durable");
	}
	assert_int_equal(ckpt_save_phase(s), CKPT_NO_PHASE);
	assert_int_equal(w.released, 0);
	gate_open(&g);
	assert_ok(ckpt_save_wait_for(s, CKPT_CAPTURED, CKPT_UNKNOWN, &err));
	assert_true(ckpt_save_phase(s) >= CKPT_CAPTURED);
	assert_ok(ckpt_save_wait_for(s, CKPT_DURABLE, 3600 * SECOND, &err));
	assert_ok(ckpt_save_wait_for(s, CKPT_CAPTURED, 0, &err));
	assert_ok(ckpt_save_wait_for(s, CKPT_DURABLE, 0, &err));
	assert_int_equal(ckpt_save_phase(s), CKPT_DURABLE);
	ckpt_save_free(s);
}

static void waits_that_cannot_be_are_refused(void **state)
{
	struct fix *f = *state;
	struct ckpt_err err = { 0 };
	uint32_t item;
	int fd = -7;
	struct ckpt_save *s = fix_begin(f->writer, "a", false, &item);

	assert_code(ckpt_save_wait_for(s, (enum ckpt_phase)0, 0, &err),
		    CKPT_EINVAL);
	assert_code(ckpt_save_wait_for(s, (enum ckpt_phase)3, 0, &err),
		    CKPT_EINVAL);
	assert_code(ckpt_save_wait_for(s, CKPT_DURABLE, 0, &err), CKPT_ESTATE);
	assert_code(ckpt_save_fd(s, (enum ckpt_phase)3, &fd, &err),
		    CKPT_EINVAL);
	assert_int_equal(fd, -7);
	assert_ok(ckpt_save_start(s, &err));
	assert_code(ckpt_save_on_phase(s, NULL, NULL, &err), CKPT_ESTATE);
	ckpt_save_free(s);
}

struct waiter {
	pthread_t thread;
	struct ckpt_save *save;
	enum ckpt_phase phase;
	int rc;
};

static void *wait_there(void *arg)
{
	struct waiter *w = arg;

	w->rc = ckpt_save_wait(w->save, w->phase, NULL);
	return NULL;
}

static void *abort_there(void *arg)
{
	ckpt_save_abort(arg);
	return NULL;
}

/* The provider is in its read all the while: nobody who waits waits for it. */
static void an_abort_wakes_who_waits_while_a_provider_blocks(void **state)
{
	struct fix *f = *state;
	struct gate g = GATE;
	struct watch w = { 0 };
	struct ckpt_save *s = gated(f, "a", &w, &g);
	struct waiter waiters[] = {
		{ .save = s, .phase = CKPT_CAPTURED },
		{ .save = s, .phase = CKPT_DURABLE },
	};
	struct ckpt_err err = { 0 };
	pthread_t aborter;
	int fd;

	gate_await(&g);
	assert_ok(ckpt_save_fd(s, CKPT_CAPTURED, &fd, &err));
	assert_false(readable(fd));
	for (int i = 0; i < 2; i++)
		assert_int_equal(pthread_create(&waiters[i].thread, NULL,
						wait_there, &waiters[i]), 0);
	assert_int_equal(pthread_create(&aborter, NULL, abort_there, s), 0);
	for (int i = 0; i < 2; i++) {
		pthread_join(waiters[i].thread, NULL);
		assert_int_equal(waiters[i].rc, CKPT_ECANCELED);
	}
	await_readable(fd);
	assert_code(ckpt_save_wait(s, CKPT_DURABLE, &err), CKPT_ECANCELED);
	assert_says(err, "'a' was aborted");
	assert_int_equal(w.released, 0); /* its read goes on */
	gate_open(&g);
	pthread_join(aborter, NULL);
	assert_int_equal(w.released, 1);
	ckpt_save_free(s);
	assert_int_equal(fix_files(f, "checkpoints"), 0);
}

/* ---- descriptors ---- */

static void descriptors_become_readable_with_their_phase(void **state)
{
	struct fix *f = *state;
	struct gate first = GATE, second = GATE;
	struct watch w = { 0 }, v = { 0 };
	struct ckpt_err err = { 0 };
	int before = fix_fds(), captured, durable, again;
	/* the second cannot be stored before the first is */
	struct ckpt_save *a = gated(f, "a", &w, &first);
	struct ckpt_save *b = gated_begin(f, "b", &v, &second);

	assert_ok(ckpt_save_fd(b, CKPT_CAPTURED, &captured, &err));
	assert_ok(ckpt_save_fd(b, CKPT_DURABLE, &durable, &err));
	assert_ok(ckpt_save_fd(b, CKPT_DURABLE, &again, &err));
	assert_int_equal(durable, again);
	assert_true(fcntl(captured, F_GETFD) & FD_CLOEXEC);
	assert_true(fcntl(captured, F_GETFL) & O_NONBLOCK);
	assert_ok(ckpt_save_start(b, &err));
	gate_await(&first);
	assert_false(readable(captured) || readable(durable));
	gate_open(&second);
	await_readable(captured);
	assert_int_equal(ckpt_save_phase(b), CKPT_CAPTURED);
	assert_false(readable(durable));
	assert_code(ckpt_save_wait_for(b, CKPT_DURABLE, 0, &err),
		    CKPT_ETIMEDOUT);
	gate_open(&first);
	await_readable(durable);
	assert_ok(ckpt_save_wait_for(b, CKPT_DURABLE, 0, &err));
	/* asked for late: readable at once */
	assert_ok(ckpt_save_wait(a, CKPT_DURABLE, &err));
	assert_ok(ckpt_save_fd(a, CKPT_CAPTURED, &captured, &err));
	assert_true(readable(captured));
	ckpt_save_free(a);
	ckpt_save_free(b);
	assert_in_range(fix_fds(), before, before + 2); /* packs, index */
}

/* ---- calls ---- */

struct call {
	enum ckpt_phase phase;
	int rc, wait_rc;
	char says[200];
};

struct calls {
	struct ckpt_writer *writer;
	struct call at[4];
	int count;       /* the save's thread; the main one after free */
	int saved;       /* by a save that a call made */
};

static void take_call(void *ctx, struct ckpt_save *s, enum ckpt_phase phase,
		      int rc, const struct ckpt_err *err)
{
	struct calls *c = ctx;
	struct call *to = &c->at[c->count++];

	to->phase = phase;
	to->rc = rc;
	if (err)
		snprintf(to->says, sizeof(to->says), "%.199s", err->message);
	to->wait_rc = ckpt_save_wait(s, CKPT_DURABLE, NULL);
	ckpt_save_free(s); /* refused, and noted */
}

static void phases_are_called_back_in_order(void **state)
{
	struct fix *f = *state;
	struct calls c = { .writer = f->writer };
	struct ckpt_err err = { 0 };
	uint32_t item;
	struct ckpt_save *s = fix_begin(f->writer, "a", false, &item);

	fix_tensor(s, item, "t", CKPT_U8, SHAPE(1, 4), "abc", 4);
	assert_ok(ckpt_save_on_phase(s, take_call, &c, &err));
	assert_ok(ckpt_save_start(s, &err));
	assert_ok(ckpt_save_wait(s, CKPT_DURABLE, &err));
	ckpt_save_free(s);
	assert_int_equal(c.count, 2);
	assert_int_equal(c.at[0].phase, CKPT_CAPTURED);
	assert_int_equal(c.at[0].rc, 0);
	assert_int_equal(c.at[0].wait_rc, CKPT_ESTATE); /* its own thread */
	assert_int_equal(c.at[1].phase, CKPT_DURABLE);
	assert_int_equal(c.at[1].rc, 0);
	assert_int_equal(c.at[1].wait_rc, 0);
}

static void a_failure_is_called_back_once(void **state)
{
	struct fix *f = *state;
	struct gate g = GATE;
	struct watch w = { .fail_rc = CKPT_EIO, .fail_says = "no tape" };
	struct calls c = { .writer = f->writer };
	struct ckpt_err err = { 0 };
	struct ckpt_save *s = gated_begin(f, "a", &w, &g);

	gate_open(&g);
	assert_ok(ckpt_save_on_phase(s, take_call, &c, &err));
	assert_ok(ckpt_save_start(s, &err));
	assert_code(ckpt_save_wait(s, CKPT_CAPTURED, &err), CKPT_EIO);
	ckpt_save_free(s);
	assert_int_equal(c.count, 1);
	assert_int_equal(c.at[0].phase, CKPT_CAPTURED);
	assert_int_equal(c.at[0].rc, CKPT_EIO);
	assert_string_equal(c.at[0].says, err.message);
	assert_int_equal(c.at[0].wait_rc, CKPT_EIO);
	/* somebody was told */
	assert_ok(ckpt_writer_last_error(f->writer, &err));
}

static void save_the_next(void *ctx, struct ckpt_save *s,
			  enum ckpt_phase phase, int rc,
			  const struct ckpt_err *err)
{
	struct calls *c = ctx;
	struct ckpt_save_desc d = { .size = sizeof(d), .name = "next" };
	struct ckpt_save *next;

	(void)s;
	(void)err;
	if (phase != CKPT_DURABLE || rc != 0)
		return;
	c->saved = ckpt_save_begin(c->writer, &d, &next, NULL);
	if (c->saved < 0)
		return;
	c->saved = ckpt_save_start(next, NULL);
	if (c->saved == 0)
		c->saved = ckpt_save_wait(next, CKPT_DURABLE, NULL);
	ckpt_save_free(next);
}

static void a_call_may_save_again(void **state)
{
	struct fix *f = *state;
	struct calls c = { .writer = f->writer, .saved = 1 };
	struct ckpt_err err = { 0 };
	uint32_t item;
	struct ckpt_save *s = fix_begin(f->writer, "a", false, &item);

	assert_ok(ckpt_save_on_phase(s, save_the_next, &c, &err));
	assert_ok(ckpt_save_start(s, &err));
	assert_ok(ckpt_save_wait(s, CKPT_DURABLE, &err));
	ckpt_save_free(s); /* after the call */
	assert_ok(c.saved);
	ckpt_checkpoint_close(fix_opened(f->store, "next"));
}

/* ---- failures that nobody waited for ---- */

/* async-04: save 1 is good, 2 fails in the background, 3 is good; 2's failure
 * is told once. */
static void a_failure_in_the_background_is_told_once(void **state)
{
	struct fix *f = *state;
	struct gate g = GATE;
	struct watch w = { .fail_rc = CKPT_EIO, .fail_says = "no tape" };
	struct ckpt_err err = { 0 };
	int fd;

	assert_ok(ckpt_writer_last_error(f->writer, &err));
	fix_save(f->writer, "1", false, 10, 1);
	struct ckpt_save *s = gated(f, "2", &w, &g);

	assert_ok(ckpt_save_fd(s, CKPT_DURABLE, &fd, &err));
	gate_open(&g);
	await_readable(fd);
	/* asked while it is there, and again after it was freed */
	assert_code(ckpt_writer_last_error(f->writer, &err), CKPT_EIO);
	assert_says(err, "saving '2'");
	assert_says(err, "no tape");
	assert_ok(ckpt_writer_last_error(f->writer, &err));
	ckpt_save_free(s);
	s = gated(f, "3", &w, &g);
	assert_ok(ckpt_save_fd(s, CKPT_DURABLE, &fd, &err));
	await_readable(fd);
	ckpt_save_free(s);
	fix_save(f->writer, "4", false, 10, 1);
	assert_code(ckpt_writer_last_error(f->writer, &err), CKPT_EIO);
	assert_says(err, "saving '3'");
	assert_ok(ckpt_writer_last_error(f->writer, NULL));
	/* one that was waited for was told, and an abort is no failure */
	s = gated(f, "5", &w, &g);
	assert_code(ckpt_save_wait(s, CKPT_DURABLE, &err), CKPT_EIO);
	assert_ok(ckpt_writer_last_error(f->writer, &err));
	assert_code(ckpt_save_wait(s, CKPT_DURABLE, &err), CKPT_EIO);
	ckpt_save_free(s);
	assert_int_equal(fix_files(f, "checkpoints"), 2);
}

/* ---- figures ---- */

static uint64_t now_ns(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return (uint64_t)t.tv_sec * SECOND + (uint64_t)t.tv_nsec;
}

static void progress_tells_phase_failure_and_what_is_expected(void **state)
{
	struct fix *f = *state;
	struct gate g = GATE, other = GATE;
	struct watch w = { 0 };
	struct watch v = { .fail_rc = CKPT_EIO };
	struct ckpt_save_progress p;
	struct ckpt_err err = { 0 };
	struct ckpt_save *s = gated(f, "a", &w, &g);

	gate_await(&g);
	ckpt_save_progress(s, &p);
	assert_int_equal(p.phase, CKPT_NO_PHASE);
	assert_int_equal(p.failed, 0);
	assert_true(p.capture_ns == CKPT_UNKNOWN); /* nothing was saved yet */
	gate_open(&g);
	assert_ok(ckpt_save_wait(s, CKPT_DURABLE, &err));
	ckpt_save_progress(s, &p);
	assert_int_equal(p.phase, CKPT_DURABLE);
	assert_true(p.capture_ns == 0);
	assert_int_equal(p.bytes_hashed, 1000);
	ckpt_save_free(s);
	s = gated_begin(f, "b", &v, &other); /* not started: it may be asked */
	ckpt_save_progress(s, &p);
	assert_true(p.capture_ns > 0 && p.capture_ns < CKPT_UNKNOWN);
	assert_ok(ckpt_save_start(s, &err));
	gate_open(&other);
	assert_code(ckpt_save_wait(s, CKPT_CAPTURED, &err), CKPT_EIO);
	ckpt_save_progress(s, &p);
	assert_int_equal(p.phase, CKPT_NO_PHASE);
	assert_int_equal(p.failed, CKPT_EIO);
	assert_true(p.capture_ns == 0);
	ckpt_save_free(s);
}

/* Of a save larger than staging: what does not fit waits for the disk, which a
 * limit makes as fast as is said here. */
static void what_does_not_fit_in_staging_is_expected_later(void **state)
{
	struct fix *f = *state;
	const uint64_t mib = 1 << 20, staging = 32 * mib, rate = 40 * mib;
	const struct ckpt_writer_opts opts = {
		.size = sizeof(opts), .staging_bytes = staging,
		.write_bytes_per_s = rate };
	const uint64_t first = 12 * mib, len = 72 * mib;
	uint8_t *data = fix_bytes(len, 4);
	struct ckpt_tensor_desc d = fix_desc("t", CKPT_U8, SHAPE(1, len));
	struct ckpt_provider p;
	struct ckpt_save_progress now;
	struct ckpt_writer *w;
	struct ckpt_err err = { 0 };
	uint32_t item;

	assert_ok(ckpt_writer_open(f->store, &opts, &w, &err));
	uint64_t start = now_ns();

	fix_save(w, "first", false, first, 9);
	uint64_t took = now_ns() - start;
	struct ckpt_save *s = fix_begin(w, "large", false, &item);

	assert_ok(ckpt_provider_host(data, len, &p, &err));
	assert_ok(ckpt_save_tensor(s, item, &d, &p, &err));
	ckpt_save_progress(s, &now);
	/* not sooner than the limit allows, but for what it gives at once; not
	 * later than by all that the first save took */
	assert_in_range(now.capture_ns,
			(len - staging) * (SECOND / mib) / (rate / mib) * 9 / 10,
			(len - staging) / mib * (took / (first / mib)));
	uint64_t expected = now.capture_ns;

	start = now_ns();
	assert_ok(ckpt_save_start(s, &err));
	while (ckpt_save_phase(s) == CKPT_NO_PHASE) {
		/* it becomes less as bytes are stored */
		ckpt_save_progress(s, &now);
		if (now.phase != CKPT_NO_PHASE)
			break;
		assert_true(now.capture_ns <= expected);
		expected = now.capture_ns;
		usleep(10000);
	}
	took = now_ns() - start;
	/* it did come to that */
	assert_true(took >= (len - staging) / mib * (SECOND / (rate / mib)) *
				    8 / 10);
	ckpt_save_progress(s, &now);
	assert_int_equal(now.capture_ns, 0);
	ckpt_save_abort(s);
	ckpt_save_free(s);
	ckpt_writer_close(w);
	free(data);
}

/* Also of tiles that were found as they are. */
static void what_is_as_it_was_counts_as_hashed(void **state)
{
	struct fix *f = *state;
	size_t len = 3 << 20;
	uint8_t *data = fix_bytes(len, 1);
	struct ckpt_err err = { 0 };

	for (int i = 0; i < 2; i++) {
		uint32_t item;
		struct ckpt_save_progress p;
		struct ckpt_save *s = fix_begin(f->writer, i ? "b" : "a",
						false, &item);

		fix_tensor(s, item, "t", CKPT_U8, SHAPE(1, len), data, len);
		assert_ok(ckpt_save_start(s, &err));
		assert_ok(ckpt_save_wait(s, CKPT_DURABLE, &err));
		ckpt_save_progress(s, &p);
		assert_int_equal(p.bytes_hashed, len);
		ckpt_save_free(s);
	}
	free(data);
}

#define TEST(name) \
	cmocka_unit_test_setup_teardown(name, fix_setup, fix_teardown)

int main(void)
{
	const struct CMUnitTest tests[] = {
		TEST(a_wait_ends_in_time_and_the_save_goes_on),
		TEST(waits_that_cannot_be_are_refused),
		TEST(an_abort_wakes_who_waits_while_a_provider_blocks),
		TEST(descriptors_become_readable_with_their_phase),
		TEST(phases_are_called_back_in_order),
		TEST(a_failure_is_called_back_once),
		TEST(a_call_may_save_again),
		TEST(a_failure_in_the_background_is_told_once),
		TEST(progress_tells_phase_failure_and_what_is_expected),
		TEST(what_does_not_fit_in_staging_is_expected_later),
		TEST(what_is_as_it_was_counts_as_hashed),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
