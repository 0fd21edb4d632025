/* SPDX-License-Identifier: Apache-2.0 */
/*
 * test_borrow.c - what is borrowed is the writer's until CAPTURED, and nothing
 * of it is touched after: of every kind of provider, its memory is made
 * unreadable then (poisoned under AddressSanitizer, to the byte; else without
 * access, by pages) while nothing is stored yet. And CKPT_WRITER_PROTECT stops
 * who writes too early.
 */
#include "gate.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <signal.h>
#include <stddef.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <sys/wait.h>

#if defined(__SANITIZE_ADDRESS__)
#include <sanitizer/asan_interface.h>
#endif

#define PAGE 4096u

/* ---- memory that is taken away ---- */

struct memory {
	uint8_t *data;
	size_t len, mapped;
};

static struct memory memory_new(size_t len, uint32_t seed)
{
	struct memory m = { .len = len, .mapped = (len + PAGE - 1) / PAGE *
						  PAGE };
	uint8_t *bytes = fix_bytes(len, seed);

	m.data = mmap(NULL, m.mapped, PROT_READ | PROT_WRITE,
		      MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	assert_true(m.data != MAP_FAILED);
	memcpy(m.data, bytes, len);
	free(bytes);
	return m;
}

static void memory_seal(struct memory *m, bool seal)
{
#if defined(__SANITIZE_ADDRESS__)
	if (seal)
		__asan_poison_memory_region(m->data, m->len);
	else
		__asan_unpoison_memory_region(m->data, m->len);
#else
	assert_int_equal(mprotect(m->data, m->mapped, seal ? PROT_NONE
					: PROT_READ | PROT_WRITE), 0);
#endif
}

static void memory_free(struct memory *m)
{
	munmap(m->data, m->mapped);
}

/* ---- nothing is touched after CAPTURED ---- */

enum { HOST, STRIDED, DEVICE, PARTS, MADE, FILES, KINDS };

static const char *const names[] = { "host", "strided", "device", "parts",
				     "made", "file" };
enum { ROWS = 700, COLUMNS = 901, BYTES = ROWS * COLUMNS };

static int hand_over(void *ctx, ckpt_sink_fn write, void *sink,
		     struct ckpt_err *err)
{
	(void)err;
	return write(sink, ((const struct memory *)ctx)->data, BYTES);
}

struct sources {
	struct memory memory[KINDS];
	struct ckpt_memory *device;
	int fd;
};

static struct ckpt_provider source(struct sources *all, int kind)
{
	struct ckpt_shape shape = SHAPE(2, ROWS, COLUMNS);
	int64_t turned[] = { 1, ROWS };
	struct memory *m = &all->memory[kind];
	struct ckpt_provider p, halves[2];
	struct ckpt_err err = { 0 };

	switch (kind) {
	case HOST:
		assert_ok(ckpt_provider_host(m->data, BYTES, &p, &err));
		break;
	case STRIDED:
		assert_ok(ckpt_provider_strided(m->data, CKPT_U8, &shape,
						turned, &p, &err));
		break;
	case DEVICE:
		assert_ok(ckpt_provider_device(all->device, m->data, BYTES,
					       NULL, &p, &err));
		break;
	case PARTS:
		assert_ok(ckpt_provider_host(m->data, 1001, &halves[0],
					     &err));
		assert_ok(ckpt_provider_host(m->data + 1001, BYTES - 1001,
					     &halves[1], &err));
		assert_ok(ckpt_provider_composite(halves, 2, &p, &err));
		break;
	case MADE:
		assert_ok(ckpt_provider_callback(hand_over, NULL, m, &p,
						 &err));
		break;
	default:
		assert_ok(ckpt_provider_file(all->fd, 0, BYTES, &p, &err));
	}
	return p;
}

static void sources_open(struct fix *f, struct sources *all)
{
	struct ckpt_fake_opts opts = { .size = sizeof(opts),
				       .delay_ns = 100000 };
	char path[600];
	struct ckpt_err err = { 0 };

	for (uint32_t i = 0; i < KINDS; i++)
		all->memory[i] = memory_new(BYTES, i);
	assert_ok(ckpt_memory_fake(&opts, &all->device, &err));
	snprintf(path, sizeof(path), "%s/source", f->dir);
	all->fd = open(path, O_RDWR | O_CREAT | O_CLOEXEC, 0600);
	assert_true(all->fd >= 0);
	assert_int_equal(write(all->fd, all->memory[FILES].data, BYTES),
			 BYTES);
}

static void expect_bytes(struct fix *f, struct sources *all)
{
	struct ckpt_checkpoint *c = fix_opened(f->store, "a");

	for (int i = 0; i < KINDS; i++) {
		uint8_t *want = malloc(BYTES);
		const uint8_t *have = all->memory[i].data;

		assert_non_null(want);
		for (size_t at = 0; at < BYTES; at++)
			want[at] = i == STRIDED
				? have[at % COLUMNS * ROWS + at / COLUMNS]
				: have[at];
		fix_equal(c, fix_find(c, "model", names[i]), want, BYTES);
		free(want);
	}
	ckpt_checkpoint_close(c);
}

/* async-01: of every kind. The save before it is held at its gate, so when
 * memory goes, no byte of this one has been stored. */
static void nothing_is_touched_after_captured(void **state)
{
	struct fix *f = *state;
	struct gate g = GATE;
	struct watch w = { 0 };
	struct sources all;
	struct ckpt_err err = { 0 };
	uint32_t item;

	sources_open(f, &all);
	struct ckpt_save *before = gated(f, "before", &w, &g);
	struct ckpt_save *s = fix_begin(f->writer, "a", false, &item);

	for (int i = 0; i < KINDS; i++) {
		struct ckpt_tensor_desc d = fix_desc(names[i], CKPT_U8,
						     SHAPE(2, ROWS, COLUMNS));
		struct ckpt_provider p = source(&all, i);

		assert_ok(ckpt_save_tensor(s, item, &d, &p, &err));
	}
	assert_ok(ckpt_save_start(s, &err));
	assert_ok(ckpt_save_wait(s, CKPT_CAPTURED, &err));
	for (int i = 0; i < KINDS; i++)
		memory_seal(&all.memory[i], true);
	assert_int_equal(ftruncate(all.fd, 0), 0);
	close(all.fd);
	ckpt_memory_unref(all.device); /* ends: no provider has it */
	assert_int_equal(ckpt_save_phase(s), CKPT_CAPTURED);
	gate_open(&g);
	assert_ok(ckpt_save_wait(s, CKPT_DURABLE, &err));
	ckpt_save_free(s);
	ckpt_save_free(before);
	for (int i = 0; i < KINDS; i++)
		memory_seal(&all.memory[i], false);
	expect_bytes(f, &all);
	for (int i = 0; i < KINDS; i++)
		memory_free(&all.memory[i]);
}

/* ---- CKPT_WRITER_PROTECT ---- */

/* Is a byte written at @at by a child stopped? */
static bool stopped(volatile uint8_t *at)
{
	int status;
	pid_t child = fork();

	if (child == 0) {
		struct rlimit none = { 0, 0 };

		signal(SIGSEGV, SIG_DFL); /* sanitizers have their own */
		setrlimit(RLIMIT_CORE, &none);
		*at = 1;
		_exit(0);
	}
	assert_true(child > 0);
	assert_int_equal(waitpid(child, &status, 0), child);
	if (WIFEXITED(status))
		return WEXITSTATUS(status) != 0;
	assert_int_equal(WTERMSIG(status), SIGSEGV);
	return true;
}

static int protected_setup(void **state)
{
	struct fix *f = calloc(1, sizeof(*f));
	struct ckpt_writer_opts o = { .size = sizeof(o),
				      .staging_bytes = 32 << 20,
				      .flags = CKPT_WRITER_PROTECT };

	assert_non_null(f);
	*state = f;
	return fix_open(f, &o);
}

static void add_host(struct ckpt_save *s, uint32_t item, const char *name,
		     const uint8_t *data, size_t len)
{
	struct ckpt_tensor_desc d = fix_desc(name, CKPT_U8, SHAPE(1, len));
	struct ckpt_provider p;
	struct ckpt_err err = { 0 };

	assert_ok(ckpt_provider_host(data, len, &p, &err));
	assert_ok(ckpt_save_tensor(s, item, &d, &p, &err));
}

/* A started save of memory [@from, @to), held at @g beside it. */
static struct ckpt_save *held(struct fix *f, const char *name,
			      const struct memory *m, size_t from, size_t to,
			      struct watch *w, struct gate *g)
{
	struct ckpt_item_desc more = { .size = sizeof(more), .name = "more",
				       .kind = CKPT_ITEM_TENSORS };
	struct ckpt_err err = { 0 };
	uint32_t item;
	struct ckpt_save *s = gated_begin(f, name, w, g);

	assert_ok(ckpt_save_item(s, &more, &item, &err));
	add_host(s, item, "x", m->data + from, to - from);
	assert_ok(ckpt_save_start(s, &err));
	return s;
}

static void who_writes_too_early_is_stopped(void **state)
{
	struct fix *f = *state;
	struct gate g = GATE;
	struct watch w = { 0 };
	struct memory m = memory_new(5 * PAGE, 1);
	struct ckpt_err err = { 0 };
	/* from inside page 0 into page 3 */
	struct ckpt_save *s = held(f, "a", &m, 100, 3 * PAGE + 7, &w, &g);

	assert_true(stopped(m.data + PAGE));
	assert_true(stopped(m.data + 3 * PAGE - 1));
	m.data[0] = m.data[99] = 1; /* edges are left */
	m.data[3 * PAGE + 8] = 1;
	m.data[4 * PAGE] = 1;
	gate_open(&g);
	assert_ok(ckpt_save_wait(s, CKPT_CAPTURED, &err));
	assert_false(stopped(m.data + PAGE));
	memset(m.data, 2, m.len);
	assert_ok(ckpt_save_wait(s, CKPT_DURABLE, &err));
	ckpt_save_free(s);
	struct gate other = GATE; /* and when it fails */
	struct watch v = { .fail_rc = CKPT_EIO };

	gate_open(&other);
	s = held(f, "b", &m, 0, m.len, &v, &other);
	assert_code(ckpt_save_wait(s, CKPT_CAPTURED, &err), CKPT_EIO);
	memset(m.data, 3, m.len);
	ckpt_save_free(s);
	memory_free(&m);
}

static void *abort_there(void *save)
{
	ckpt_save_abort(save);
	return NULL;
}

static void an_aborted_save_lets_go(void **state)
{
	struct fix *f = *state;
	struct gate g = GATE;
	struct watch w = { 0 };
	struct memory m = memory_new(3 * PAGE, 1);
	struct ckpt_err err = { 0 };
	struct ckpt_save *s = held(f, "a", &m, 0, m.len, &w, &g);
	pthread_t aborter;

	gate_await(&g);
	assert_int_equal(pthread_create(&aborter, NULL, abort_there, s), 0);
	assert_code(ckpt_save_wait(s, CKPT_CAPTURED, &err), CKPT_ECANCELED);
	assert_true(stopped(m.data)); /* a read is under way */
	gate_open(&g);
	pthread_join(aborter, NULL);
	memset(m.data, 2, m.len);
	ckpt_save_free(s);
	/* and one that is freed without more */
	struct gate other = GATE;
	struct watch v = { 0 };

	gate_open(&other);
	s = held(f, "b", &m, 0, m.len, &v, &other);
	ckpt_save_free(s);
	memset(m.data, 3, m.len);
	memory_free(&m);
}

/* ---- a start that fails ---- */

/* Start a save while system calls of this thread fail. */
struct starter {
	struct ckpt_save *save;
	const struct sock_filter *filter;
	unsigned short len;
	bool filtered;
	int rc;
	struct ckpt_err err;
};

static void *start_there(void *arg)
{
	struct starter *t = arg;
	struct sock_fprog program = { t->len, (struct sock_filter *)t->filter };

	t->filtered = prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0 &&
		      prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program) == 0;
	if (t->filtered)
		t->rc = ckpt_save_start(t->save, &t->err);
	return NULL;
}

static void start_filtered(struct starter *t)
{
	pthread_t thread;

	assert_int_equal(pthread_create(&thread, NULL, start_there, t), 0);
	pthread_join(thread, NULL);
	if (!t->filtered) {
		ckpt_save_free(t->save);
		print_message("no seccomp(2) here\n");
		skip();
	}
}

#define LOAD(field) BPF_STMT(BPF_LD | BPF_W | BPF_ABS, \
			     offsetof(struct seccomp_data, field))
#define IS(value, yes, no) BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, value, yes, no)
#define ALLOW BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW)
#define FAIL(number) BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | (number))

static void a_start_without_a_thread_lets_go(void **state)
{
	static const struct sock_filter no_threads[] = {
		LOAD(nr), IS(SYS_clone3, 1, 0), IS(SYS_clone, 0, 1),
		FAIL(EAGAIN), ALLOW,
	};
	struct fix *f = *state;
	struct memory m = memory_new(3 * PAGE, 1);
	struct ckpt_err err = { 0 };
	uint32_t item;
	struct ckpt_save *s = fix_begin(f->writer, "a", false, &item);
	struct starter t = { .save = s, .filter = no_threads,
			     .len = CKB_ARRAY_LEN(no_threads) };

	add_host(s, item, "x", m.data, m.len);
	start_filtered(&t);
	assert_int_not_equal(t.rc, 0);
	assert_says(t.err, "saving 'a': cannot start a thread");
	memset(m.data, 2, m.len);
	assert_code(ckpt_save_wait(s, CKPT_CAPTURED, &err), t.rc);
	ckpt_save_free(s);
	memory_free(&m);
}

/* The second stretch cannot be protected; the first one was. Nothing is lost:
 * the same save starts when the system is well. */
static void a_start_that_cannot_protect_lets_go(void **state)
{
	struct fix *f = *state;
	struct memory m = memory_new(5 * PAGE, 1);
	uint8_t *second = m.data + 3 * PAGE, *want = malloc(m.len);
	const struct sock_filter no_second[] = {
		LOAD(nr), IS(SYS_mprotect, 0, 5),
		LOAD(args[0]), IS((uint32_t)(uintptr_t)second, 0, 3),
		LOAD(args[2]), IS(PROT_READ, 0, 1),
		FAIL(ENOMEM), ALLOW,
	};
	struct ckpt_err err = { 0 };
	uint32_t item;
	struct ckpt_save *s = fix_begin(f->writer, "a", false, &item);
	struct starter t = { .save = s, .filter = no_second,
			     .len = CKB_ARRAY_LEN(no_second) };

	assert_non_null(want);
	add_host(s, item, "x", m.data, 2 * PAGE);
	add_host(s, item, "y", second, 2 * PAGE);
	start_filtered(&t);
	assert_int_equal(t.rc, CKPT_ENOMEM);
	assert_says(t.err, "protect 8192 bytes from writes");
	memset(m.data, 2, m.len);
	memcpy(want, m.data, m.len);
	assert_ok(fix_finish(s, &err));
	struct ckpt_checkpoint *c = fix_opened(f->store, "a");

	fix_equal(c, fix_find(c, "model", "x"), want, 2 * PAGE);
	fix_equal(c, fix_find(c, "model", "y"), want, 2 * PAGE);
	ckpt_checkpoint_close(c);
	memset(m.data, 3, m.len);
	free(want);
	memory_free(&m);
}

static void saves_may_share_pages(void **state)
{
	struct fix *f = *state;
	struct gate first = GATE, second = GATE;
	struct watch w = { 0 }, v = { 0 };
	struct memory m = memory_new(6 * PAGE, 1);
	struct ckpt_err err = { 0 };
	struct ckpt_save *a, *b;

	/* pages 0 to 3, and 1 to 5; page 5 never was writable */
	assert_int_equal(mprotect(m.data + 5 * PAGE, PAGE, PROT_READ), 0);
	a = held(f, "a", &m, 0, 4 * PAGE, &w, &first);
	b = held(f, "b", &m, PAGE, 6 * PAGE, &v, &second);
	for (int i = 0; i < 6; i++)
		assert_true(stopped(m.data + i * PAGE));
	gate_open(&first);
	assert_ok(ckpt_save_wait(a, CKPT_CAPTURED, &err));
	for (int i = 0; i < 6; i++)
		assert_int_equal(stopped(m.data + i * PAGE), i > 0);
	gate_open(&second);
	assert_ok(ckpt_save_wait(b, CKPT_CAPTURED, &err));
	for (int i = 0; i < 6; i++)
		assert_int_equal(stopped(m.data + i * PAGE), i == 5);
	memset(m.data, 2, 5 * PAGE);
	ckpt_save_free(a);
	ckpt_save_free(b);
	memory_free(&m);
}

/* Two tensors over one memory, and parts of a composite. */
static void views_and_parts_are_protected(void **state)
{
	struct fix *f = *state;
	struct gate g = GATE;
	struct watch w = { 0 };
	struct memory m = memory_new(8 * PAGE, 1);
	struct ckpt_provider p, parts[2];
	struct ckpt_err err = { 0 };
	struct ckpt_item_desc more = { .size = sizeof(more), .name = "more",
				       .kind = CKPT_ITEM_TENSORS };
	struct ckpt_tensor_desc d = fix_desc("parts", CKPT_U8,
					     SHAPE(1, 6 * PAGE));
	uint32_t item;
	struct ckpt_save *s = gated_begin(f, "a", &w, &g);

	assert_ok(ckpt_save_item(s, &more, &item, &err));
	assert_ok(ckpt_provider_host(m.data, 2 * PAGE, &parts[0], &err));
	assert_ok(ckpt_provider_host(m.data + 4 * PAGE, 4 * PAGE, &parts[1],
				     &err));
	add_host(s, item, "view", m.data + 5 * PAGE, 2 * PAGE);
	assert_ok(ckpt_provider_composite(parts, 2, &p, &err));
	assert_ok(ckpt_save_tensor(s, item, &d, &p, &err));
	assert_ok(ckpt_save_start(s, &err));
	for (int i = 0; i < 8; i++)
		assert_int_equal(stopped(m.data + i * PAGE), i != 2 && i != 3);
	gate_open(&g);
	assert_ok(ckpt_save_wait(s, CKPT_CAPTURED, &err));
	memset(m.data, 2, m.len);
	ckpt_save_free(s);
	memory_free(&m);
}

/* What a provider lends is its own again when it is released: memory of a
 * composite that serialises is, before CAPTURED. */
static uint64_t recycled_bytes(void *ctx)
{
	return ((const struct memory *)ctx)->len;
}

static const void *recycled_borrow(void *ctx, uint64_t off, size_t len)
{
	(void)len;
	return ((const struct memory *)ctx)->data + off;
}

static int recycled_read(void *ctx, uint64_t off, void *dst, size_t len,
			 struct ckpt_err *err)
{
	(void)err;
	memcpy(dst, ((const struct memory *)ctx)->data + off, len);
	return 0;
}

static void recycled_release(void *ctx)
{
	const struct memory *m = ctx;

	memset(m->data, 9, m->len);
}

static int hand_page(void *ctx, ckpt_sink_fn write, void *sink,
		     struct ckpt_err *err)
{
	static const uint8_t zeros[PAGE];

	(void)ctx;
	(void)err;
	return write(sink, zeros, PAGE);
}

static void a_provider_writes_when_it_is_released(void **state)
{
	static const struct ckpt_provider_ops recycled = {
		.size = sizeof(recycled), .read = recycled_read,
		.borrow = recycled_borrow, .bytes = recycled_bytes,
		.release = recycled_release,
	};
	struct fix *f = *state;
	struct memory lent = memory_new(3 * PAGE, 1);
	struct memory part = memory_new(3 * PAGE, 2);
	struct ckpt_provider p = { &recycled, &lent };
	struct ckpt_provider parts[2] = { { &recycled, &part } };
	struct ckpt_tensor_desc d = fix_desc("lent", CKPT_U8,
					     SHAPE(1, 3 * PAGE));
	struct ckpt_err err = { 0 };
	uint32_t item;
	struct ckpt_save *s = fix_begin(f->writer, "a", false, &item);

	assert_ok(ckpt_save_tensor(s, item, &d, &p, &err));
	assert_ok(ckpt_provider_callback(hand_page, NULL, NULL, &parts[1],
					 &err));
	assert_ok(ckpt_provider_composite(parts, 2, &p, &err));
	d = fix_desc("made", CKPT_U8, SHAPE(1, 4 * PAGE));
	assert_ok(ckpt_save_tensor(s, item, &d, &p, &err));
	assert_ok(fix_finish(s, &err));
	assert_int_equal(lent.data[0], 9);
	assert_int_equal(part.data[0], 9);
	memory_free(&lent);
	memory_free(&part);
}

#define TEST(name) \
	cmocka_unit_test_setup_teardown(name, fix_setup, fix_teardown)
#define PROTECTED(name) \
	cmocka_unit_test_setup_teardown(name, protected_setup, fix_teardown)

int main(void)
{
	const struct CMUnitTest tests[] = {
		TEST(nothing_is_touched_after_captured),
		PROTECTED(who_writes_too_early_is_stopped),
		PROTECTED(an_aborted_save_lets_go),
		PROTECTED(a_start_without_a_thread_lets_go),
		PROTECTED(a_start_that_cannot_protect_lets_go),
		PROTECTED(saves_may_share_pages),
		PROTECTED(views_and_parts_are_protected),
		PROTECTED(a_provider_writes_when_it_is_released),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
