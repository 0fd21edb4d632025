/* SPDX-License-Identifier: Apache-2.0 */
/*
 * test_process.c - what becomes of a save when its process ends, and of a
 * process that forks while a save is under way.
 *
 * Processes that end are this program run again, with a way to end.
 */
#include "gate.h"

#include <errno.h>
#include <sched.h>
#include <signal.h>
#include <spawn.h>
#include <string.h>
#include <sys/wait.h>

extern char **environ;

enum { BYTES = 24 << 20 };

/* ---- processes that end ---- */

static uint8_t *data; /* reachable until the end */

/* This program run again: WAY STORE NAME US. */
static int saver(char **argv)
{
	struct ckpt_tensor_desc d = fix_desc("w", CKPT_U8, SHAPE(1, BYTES));
	static struct ckpt_store *store;
	static struct ckpt_writer *w;
	static struct ckpt_save *s;
	struct ckpt_provider p;
	struct ckpt_err err = { 0 };
	uint32_t item;

	alarm(60);
	assert_ok(ckpt_store_open(argv[2], NULL, &store, &err));
	assert_ok(ckpt_writer_open(store, NULL, &w, &err));
	data = fix_bytes(BYTES, (uint32_t)atoi(argv[4]));
	s = fix_begin(w, argv[3], false, &item);
	assert_ok(ckpt_provider_host(data, BYTES, &p, &err));
	assert_ok(ckpt_save_tensor(s, item, &d, &p, &err));
	assert_ok(ckpt_save_start(s, &err));
	if (strcmp(argv[1], "wait") == 0)
		assert_ok(ckpt_save_wait(s, CKPT_DURABLE, &err));
	else
		usleep((useconds_t)atoi(argv[4]));
	if (strcmp(argv[1], "exit") == 0)
		exit(7);
	if (strcmp(argv[1], "SIGTERM") == 0)
		raise(SIGTERM);
	return 7; /* from main */
}

#define NO_NAMESPACE 128 /* and errno */

/* In a process of a new namespace, which is number 1 there, do @fn. */
static int first_of_its_own(int (*fn)(void *ctx), void *ctx)
{
	int status;
	pid_t pid;

	if (unshare(CLONE_NEWPID) != 0)
		return NO_NAMESPACE + errno % NO_NAMESPACE;
	pid = fork();
	if (pid == 0)
		_exit(getpid() == 1 ? fn(ctx) : 2);
	return pid > 0 && waitpid(pid, &status, 0) == pid && WIFEXITED(status)
		? WEXITSTATUS(status) : 3;
}

static int begin_in_fork(void *ctx)
{
	struct ckpt_save_desc d = { .size = sizeof(d), .name = "fork" };
	struct ckpt_err err = { 0 };
	struct ckpt_save *s;

	alarm(20);
	return ckpt_save_begin(ctx, &d, &s, &err) == CKPT_ESTATE && !s &&
	       strstr(err.message, "fork") ? 0 : 4;
}

static int open_and_fork(void *ctx)
{
	struct ckpt_store *store;
	struct ckpt_writer *w;
	struct ckpt_err err = { 0 };
	int rc;

	assert_ok(ckpt_store_open(ctx, NULL, &store, &err));
	assert_ok(ckpt_writer_open(store, NULL, &w, &err));
	rc = first_of_its_own(begin_in_fork, w);
	ckpt_writer_close(w);
	ckpt_store_close(store);
	return rc;
}

static int ended(const char *way, const char *store, const char *name, int us)
{
	char number[16];
	char *argv[] = { (char *)"test_process", (char *)way, (char *)store,
			 (char *)name, number, NULL };
	int status;
	pid_t pid;

	snprintf(number, sizeof(number), "%d", us);
	assert_int_equal(posix_spawn(&pid, "/proc/self/exe", NULL, NULL, argv,
				     environ), 0);
	assert_int_equal(waitpid(pid, &status, 0), pid);
	return status;
}

/* async-03: nothing waits for a save at exit, so it is whole or not there, and
 * the process ends as it was told, without a crash or a hang. */
static void a_process_that_ends_leaves_a_save_whole_or_absent(void **state)
{
	static const char *const ways[] = { "return", "exit", "SIGTERM" };
	static const int us[] = { 0, 2000, 10000, 25000, 60000 };
	struct fix *f = *state;
	struct ckpt_err err = { 0 };
	int absent = 0;

	fix_save(f->writer, "before", false, 1000, 1);
	for (size_t i = 0; i < 3 * CKB_ARRAY_LEN(us); i++) {
		int n = us[i / 3], status;
		const char *way = ways[i % 3];
		char name[32];

		snprintf(name, sizeof(name), "%s/%d", way, n);
		status = ended(way, f->path, name, n);
		if (i % 3 == 2)
			assert_true(WIFSIGNALED(status) &&
				    WTERMSIG(status) == SIGTERM);
		else
			assert_true(WIFEXITED(status) &&
				    WEXITSTATUS(status) == 7);
		int rc = fix_whole(f->store, name, BYTES, (uint32_t)n, &err);

		assert_true(rc == 0 || rc == CKPT_ENOENT);
		absent += rc != 0;
		assert_ok(fix_whole(f->store, "before", 1000, 1, &err));
		/* what it left in staging is in nobody's way */
		fix_save(f->writer, name, rc == 0, 1000, 1);
	}
	assert_true(absent >= 3);
	assert_int_equal(ended("wait", f->path, "waited", 5), 7 << 8);
	assert_ok(fix_whole(f->store, "waited", BYTES, 5, &err));
}

/* ---- processes that fork ---- */

/* What a child's calls come to: 0, or which of them was wrong. */
static int child(struct fix *f, struct ckpt_save *running,
		 struct ckpt_save *open)
{
	struct ckpt_save_desc d = { .size = sizeof(d), .name = "child" };
	struct ckpt_item_desc item = { .size = sizeof(item), .name = "i",
				       .kind = CKPT_ITEM_TENSORS };
	struct ckpt_save_progress progress;
	struct ckpt_save *s = open;
	struct ckpt_err err = { 0 };
	uint32_t number;
	int fd;

	alarm(20);
	if (ckpt_save_begin(f->writer, &d, &s, &err) != CKPT_ESTATE || s ||
	    !strstr(err.message, "fork"))
		return 1;
	if (ckpt_save_wait(running, CKPT_DURABLE, NULL) != CKPT_ESTATE ||
	    ckpt_save_wait_for(running, CKPT_CAPTURED, 0, NULL) != CKPT_ESTATE)
		return 2;
	if (ckpt_save_item(open, &item, &number, NULL) != CKPT_ESTATE ||
	    ckpt_save_start(open, NULL) != CKPT_ESTATE)
		return 3;
	if (ckpt_save_fd(running, CKPT_DURABLE, &fd, NULL) != CKPT_ESTATE ||
	    ckpt_writer_last_error(f->writer, NULL) != CKPT_ESTATE)
		return 4;
	ckpt_save_progress(running, &progress);
	ckpt_save_abort(running);
	ckpt_save_free(running);
	ckpt_save_free(open);
	ckpt_writer_close(f->writer);
	return 0;
}

/* async-06: the child of a fork has none of the writer's threads. It is told
 * so at once, and cannot harm what its parent saves. */
static void a_forked_child_is_refused_and_the_parent_saves_on(void **state)
{
	struct fix *f = *state;
	struct gate g = GATE;
	struct watch w = { 0 };
	struct ckpt_err err = { 0 };
	uint32_t item;
	struct ckpt_save *s = gated(f, "running", &w, &g);
	struct ckpt_save *open = fix_begin(f->writer, "open", false, &item);
	int status;

	gate_await(&g);
	pid_t pid = fork();

	if (pid == 0)
		_exit(child(f, s, open));
	assert_int_equal(waitpid(pid, &status, 0), pid);
	assert_int_equal(status, 0);
	gate_open(&g);
	assert_ok(ckpt_save_wait(s, CKPT_DURABLE, &err));
	ckpt_save_free(s);
	fix_tensor(open, item, "w", CKPT_U8, SHAPE(1, 3), "abc", 3);
	assert_ok(fix_finish(open, &err));
	ckpt_checkpoint_close(fix_opened(f->store, "running"));
	ckpt_checkpoint_close(fix_opened(f->store, "open"));
}

/* The child has the number of its parent: both are the first of a namespace. */
static void a_forked_child_with_the_same_number_is_refused(void **state)
{
	struct fix *f = *state;
	int status = ended("namespaces", f->path, "-", 0);

	if (WIFEXITED(status) && WEXITSTATUS(status) > NO_NAMESPACE) {
		print_message("no namespace of processes here (%s): a child "
			      "of its parent's number was not tried\n",
			      strerror(WEXITSTATUS(status) - NO_NAMESPACE));
		skip();
	}
	assert_int_equal(status, 0);
}

#define TEST(name) \
	cmocka_unit_test_setup_teardown(name, fix_setup, fix_teardown)

/* To leave threads behind is what is tried here. */
static void tell_sanitizer(void)
{
	const char *is = getenv("TSAN_OPTIONS");
	char options[1000];

	snprintf(options, sizeof(options), "%.900s report_thread_leaks=0",
		 is ? is : "");
	setenv("TSAN_OPTIONS", options, 1);
}

int main(int argc, char **argv)
{
	const struct CMUnitTest tests[] = {
		TEST(a_process_that_ends_leaves_a_save_whole_or_absent),
		TEST(a_forked_child_is_refused_and_the_parent_saves_on),
		TEST(a_forked_child_with_the_same_number_is_refused),
	};

	if (argc == 5 && strcmp(argv[1], "namespaces") == 0)
		/* no look for leaks, for which threads cannot be made now */
		_exit(first_of_its_own(open_and_fork, argv[2]));
	if (argc == 5)
		return saver(argv);
	tell_sanitizer();
	return cmocka_run_group_tests(tests, NULL, NULL);
}
