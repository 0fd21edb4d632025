/* SPDX-License-Identifier: Apache-2.0 */
/*
 * test_protect.c - CKPT_WRITER_PROTECT stops who writes to borrowed memory
 * before CAPTURED, and nobody else: pages are writable again when the save has
 * captured them, has failed, or its abort has returned, whatever memory it is
 * and whatever the system refuses.
 *
 * Who asks is a child that writes, or the kernel: read(2) into the page, or its
 * list of mappings.
 */
#include "borrow_fixture.h"
#include "gate.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <signal.h>
#include <stdatomic.h>
#include <stddef.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <sys/wait.h>

#include "base/log.h"

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
	int why;                 /* errno, else */
	int rc;
	struct ckpt_err err;
};

static void *start_there(void *arg)
{
	struct starter *t = arg;
	struct sock_fprog program = { t->len, (struct sock_filter *)t->filter };

	t->filtered = prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0 &&
		      prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program) == 0;
	t->why = errno;
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
		print_message("no filter of system calls here (%s): a start "
			      "that fails was not tried\n", strerror(t->why));
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

/* What the kernel says of the mapping that has @at: where a write would race
 * with the capture. */
static bool says_writable(const void *at)
{
	FILE *f = fopen("/proc/self/maps", "re");
	char line[4096], w = '?';
	size_t lo, hi;

	assert_non_null(f);
	while (fgets(line, sizeof(line), f))
		if (sscanf(line, "%zx-%zx %*c%c", &lo, &hi, &w) == 3 &&
		    lo <= (size_t)at && (size_t)at < hi)
			break;
	fclose(f);
	return w == 'w';
}

/* Can the system write at @at? Nobody is killed by asking. */
static bool writable(uint8_t *at)
{
	int fd = open("/dev/zero", O_RDONLY | O_CLOEXEC);
	ssize_t n = read(fd, at, 1);

	assert_true(n == 1 || errno == EFAULT);
	close(fd);
	return n == 1;
}

/* Ranges in no order, some over others, of two saves that end in turn: a page
 * is protected while a save holds all of it in one range. */
static void any_ranges_are_protected(void **state)
{
	enum { PAGES = 200, RANGES = 120 };
	struct fix *f = *state;
	struct gate gates[2] = { GATE, GATE };
	struct watch w[2] = { { 0 }, { 0 } };
	struct memory m = memory_new(PAGES * PAGE, 1);
	struct ckpt_item_desc more = { .size = sizeof(more), .name = "more",
				       .kind = CKPT_ITEM_TENSORS };
	bool held_by[2][PAGES] = { { false } };
	struct ckpt_save *s[2];
	struct ckpt_err err = { 0 };
	uint32_t item, random = 7;
	char name[16];

	for (int i = 0; i < 2; i++) {
		s[i] = gated_begin(f, i ? "b" : "a", &w[i], &gates[i]);
		assert_ok(ckpt_save_item(s[i], &more, &item, &err));
		for (int j = 0; j < RANGES; j++) {
			random = random * 1664525 + 1013904223;
			size_t from = (random >> 8) % ((PAGES - 9) * PAGE);
			size_t len = (random >> 4) % (8 * PAGE) + 1;

			if (j % 3 == 0) /* on edges, so some touch */
				from = from / PAGE * PAGE;
			snprintf(name, sizeof(name), "%d", j);
			add_host(s[i], item, name, m.data + from, len);
			for (size_t k = (from + PAGE - 1) / PAGE;
			     (k + 1) * PAGE <= from + len; k++)
				held_by[i][k] = true;
		}
		assert_ok(ckpt_save_start(s[i], &err));
	}
	for (int over = 0; over <= 2; over++) {
		for (int k = 0; k < PAGES; k++)
			assert_int_equal(says_writable(m.data + k * PAGE),
					 !(over < 1 && held_by[0][k]) &&
					 !(over < 2 && held_by[1][k]));
		if (over == 2)
			break;
		gate_open(&gates[over]);
		assert_ok(ckpt_save_wait(s[over], CKPT_CAPTURED, &err));
	}
	ckpt_save_free(s[0]);
	ckpt_save_free(s[1]);
	memory_free(&m);
}

/* ---- a provider of somebody's own, that need not tell its size ---- */

struct lender {
	uint8_t *data;
	size_t len;
	void (*on_borrow)(void *ctx);
	void *ctx;
	int asked;
};

static const void *lend(void *ctx, uint64_t off, size_t len)
{
	struct lender *l = ctx;

	if (l->on_borrow && l->asked++ == 0)
		l->on_borrow(l->ctx);
	return off == 0 && len == l->len ? l->data : NULL;
}

static uint64_t lender_bytes(void *ctx)
{
	return ((const struct lender *)ctx)->len;
}

/* Its bytes are zeros, which takes no look. */
static int read_zeros(void *ctx, uint64_t off, void *dst, size_t len,
		      struct ckpt_err *err)
{
	(void)ctx;
	(void)off;
	(void)err;
	memset(dst, 0, len);
	return 0;
}

static const struct ckpt_provider_ops lends = {
	.size = sizeof(lends), .read = read_zeros, .borrow = lend,
};
static const struct ckpt_provider_ops lends_and_tells = {
	.size = sizeof(lends), .read = read_zeros, .borrow = lend,
	.bytes = lender_bytes,
};

static void add_lender(struct ckpt_save *s, uint32_t item, struct lender *l)
{
	struct ckpt_tensor_desc d = fix_desc("lent", CKPT_U8,
					     SHAPE(1, l->len));
	struct ckpt_provider p = { &lends, l };
	struct ckpt_err err = { 0 };

	assert_ok(ckpt_save_tensor(s, item, &d, &p, &err));
}

static void who_does_not_tell_its_size_is_protected(void **state)
{
	struct fix *f = *state;
	struct gate g = GATE;
	struct watch w = { 0 };
	struct memory m = memory_new(4 * PAGE, 1);
	struct lender l = { .data = m.data, .len = 3 * PAGE };
	struct ckpt_item_desc more = { .size = sizeof(more), .name = "more",
				       .kind = CKPT_ITEM_TENSORS };
	struct ckpt_err err = { 0 };
	uint32_t item;
	struct ckpt_save *s = gated_begin(f, "a", &w, &g);

	assert_ok(ckpt_save_item(s, &more, &item, &err));
	add_lender(s, item, &l);
	assert_ok(ckpt_save_start(s, &err));
	for (int i = 0; i < 4; i++)
		assert_int_equal(stopped(m.data + i * PAGE), i < 3);
	gate_open(&g);
	assert_ok(ckpt_save_wait(s, CKPT_CAPTURED, &err));
	memset(m.data, 2, m.len);
	ckpt_save_free(s);
	memory_free(&m);
}

/* ---- an abort beside a start ---- */

/* Abort, and note whether anything is protected then. */
struct aborting {
	struct ckpt_save *save;
	uint8_t *data;
	size_t count; /* pages, every second one */
	atomic_bool go;
	size_t protected;
};

static void *abort_and_look(void *arg)
{
	struct aborting *a = arg;

	while (!atomic_load(&a->go))
		;
	ckpt_save_abort(a->save);
	for (size_t i = 0; i < a->count; i++)
		a->protected += !writable(a->data + 2 * i * PAGE);
	return NULL;
}

/* While start asks a provider; what it asked for before was host memory. */
static void abort_meanwhile(void *ctx)
{
	struct aborting *a = ctx;
	pthread_t thread;

	assert_int_equal(pthread_create(&thread, NULL, abort_and_look, a), 0);
	pthread_join(thread, NULL);
}

static void an_abort_while_providers_are_asked_frees_memory(void **state)
{
	struct fix *f = *state;
	struct memory m = memory_new(4 * PAGE, 1);
	struct aborting a = { .data = m.data, .count = 2, .go = true };
	struct lender l = { .data = m.data + 3 * PAGE, .len = PAGE,
			    .on_borrow = abort_meanwhile, .ctx = &a };
	struct ckpt_err err = { 0 };
	uint32_t item;

	a.save = fix_begin(f->writer, "a", false, &item);
	add_host(a.save, item, "x", m.data, 3 * PAGE);
	add_lender(a.save, item, &l);
	assert_code(ckpt_save_start(a.save, &err), CKPT_ECANCELED);
	assert_int_equal(a.protected, 0);
	memset(m.data, 2, m.len);
	ckpt_save_free(a.save);
	memory_free(&m);
}

/* Whenever it comes: of many pages, as protecting them takes a while. */
static void an_abort_beside_a_start_frees_memory(void **state)
{
	enum { PAGES = 300, TIMES = 100 };
	struct fix *f = *state;
	struct memory m = memory_new(2 * PAGES * PAGE, 1);
	struct ckpt_err err = { 0 };
	uint32_t item;
	char name[16];

	for (int n = 0; n < TIMES; n++) {
		struct aborting a = { .data = m.data, .count = PAGES };
		pthread_t thread;

		snprintf(name, sizeof(name), "%d", n);
		a.save = fix_begin(f->writer, name, false, &item);
		for (int i = 0; i < PAGES; i++) {
			snprintf(name, sizeof(name), "%d", i);
			add_host(a.save, item, name, m.data + 2 * i * PAGE,
				 PAGE);
		}
		assert_int_equal(pthread_create(&thread, NULL, abort_and_look,
						&a), 0);
		atomic_store(&a.go, true);
		int rc = ckpt_save_start(a.save, &err);

		pthread_join(thread, NULL);
		assert_true(rc == 0 || rc == CKPT_ECANCELED);
		assert_int_equal(a.protected, 0);
		ckpt_save_free(a.save);
	}
	memory_free(&m);
}

/* ---- memory that cannot be protected, or not be given back ---- */

#ifndef SYS_mseal
#define SYS_mseal 462
#endif

static void a_sealed_mapping_stays_writable(void **state)
{
	struct fix *f = *state;
	struct gate g = GATE;
	struct watch w = { 0 };
	struct memory m = memory_new(6 * PAGE, 1);
	struct ckpt_err err = { 0 };

	if (syscall(SYS_mseal, m.data + 2 * PAGE, 2 * PAGE, 0) != 0) {
		print_message("no mseal(2) here (%s): sealed memory was not "
			      "tried\n", strerror(errno));
		assert_int_equal(errno, ENOSYS);
		memory_free(&m);
		skip();
	}
	struct ckpt_save *s = held(f, "a", &m, 0, m.len, &w, &g);

	for (int i = 0; i < 6; i++)
		assert_int_equal(says_writable(m.data + i * PAGE),
				 i == 2 || i == 3);
	gate_open(&g);
	assert_ok(ckpt_save_wait(s, CKPT_CAPTURED, &err));
	memset(m.data, 2, m.len);
	ckpt_save_free(s);
	/* nobody unmaps what is sealed */
}

/* Of 2 MiB, and nobody need have any: no byte of it is read. As a part, for
 * what is lent whole is. */
static struct ckpt_save *huge_save(struct fix *f, const char *name,
				   struct lender *l, struct watch *w,
				   struct gate *g)
{
	struct ckpt_item_desc more = { .size = sizeof(more), .name = "more",
				       .kind = CKPT_ITEM_TENSORS };
	struct ckpt_tensor_desc d = fix_desc("parts", CKPT_U8,
					     SHAPE(1, l->len + 1));
	static struct lender one = { .len = 1 };
	struct ckpt_provider p, parts[2] = { { &lends_and_tells, &one },
					     { &lends_and_tells, l } };
	struct ckpt_err err = { 0 };
	uint32_t item;
	struct ckpt_save *s = gated_begin(f, name, w, g);

	assert_ok(ckpt_save_item(s, &more, &item, &err));
	assert_ok(ckpt_provider_composite(parts, 2, &p, &err));
	assert_ok(ckpt_save_tensor(s, item, &d, &p, &err));
	assert_ok(ckpt_save_start(s, &err));
	return s;
}

static void huge_pages_stay_writable(void **state)
{
	enum { HUGE = 2 << 20 };
	struct fix *f = *state;
	struct gate gates[2] = { GATE, GATE };
	struct watch w[2] = { { 0 }, { 0 } };
	struct ckpt_err err = { 0 };
	uint8_t *data = mmap(NULL, 4 * HUGE, PROT_READ | PROT_WRITE,
			     MAP_PRIVATE | MAP_ANONYMOUS | MAP_HUGETLB |
			     MAP_NORESERVE, -1, 0);

	if (data == MAP_FAILED) {
		print_message("no memory of huge pages here (%s): it was not "
			      "tried\n", strerror(errno));
		skip();
	}
	/* whole huge pages, then some with parts of them: no edge fits */
	struct lender all = { .data = data, .len = 4 * HUGE };
	struct lender some = { .data = data + HUGE - PAGE,
			       .len = 2 * HUGE };
	struct ckpt_save *a = huge_save(f, "a", &all, &w[0], &gates[0]);
	struct ckpt_save *b = huge_save(f, "b", &some, &w[1], &gates[1]);

	for (int i = 0; i < 4; i++)
		assert_true(says_writable(data + i * HUGE));
	for (int i = 0; i < 2; i++) {
		struct ckpt_save *s = i ? b : a;

		gate_open(&gates[i]);
		assert_ok(ckpt_save_wait(s, CKPT_CAPTURED, &err));
		ckpt_save_free(s);
	}
	for (int i = 0; i < 4; i++)
		assert_true(says_writable(data + i * HUGE));
	munmap(data, 4 * HUGE);
}

struct note {
	atomic_int count;
	char text[500];
};

static void take_note(void *ctx, enum ckb_level level, const char *text)
{
	struct note *n = ctx;

	if (level == CKB_ERROR && atomic_fetch_add(&n->count, 1) == 0)
		snprintf(n->text, sizeof(n->text), "%s", text);
}

/* The save's thread, which has the filter of who started it, cannot give pages
 * back, as when there are too many mappings. Later saves do. */
static void pages_not_given_back_are_tried_again(void **state)
{
	struct fix *f = *state;
	struct memory m = memory_new(5 * PAGE, 1);
	struct memory gone = memory_new(PAGE, 2), other = memory_new(PAGE, 3);
	const struct sock_filter no_return[] = {
		LOAD(nr), IS(SYS_mprotect, 0, 6),
		LOAD(args[0]),
		IS((uint32_t)(uintptr_t)(m.data + PAGE), 1, 0),
		IS((uint32_t)(uintptr_t)gone.data, 0, 3),
		LOAD(args[2]), IS(PROT_READ | PROT_WRITE, 0, 1),
		FAIL(ENOMEM), ALLOW,
	};
	struct note note = { 0 };
	struct ckpt_err err = { 0 };
	char address[32];
	uint32_t item;
	struct ckpt_save *s = fix_begin(f->writer, "a", false, &item);
	struct starter t = { .save = s, .filter = no_return,
			     .len = CKB_ARRAY_LEN(no_return) };

	add_host(s, item, "x", m.data + PAGE, 3 * PAGE);
	add_host(s, item, "y", gone.data, PAGE);
	ckb_log_sink(take_note, &note);
	start_filtered(&t);
	assert_int_equal(t.rc, 0);
	assert_ok(ckpt_save_wait(s, CKPT_DURABLE, &err));
	ckpt_save_free(s);
	assert_false(writable(m.data + PAGE));
	assert_int_equal(atomic_load(&note.count), 2);
	snprintf(address, sizeof(address), "0x%zx",
		 (size_t)(m.data < gone.data ? m.data + PAGE : gone.data));
	assert_non_null(strstr(note.text, address));
	/* its address is another's now, that is not to be written to */
	assert_true(mmap(gone.data, PAGE, PROT_READ | PROT_EXEC, MAP_PRIVATE |
			 MAP_ANONYMOUS | MAP_FIXED, -1, 0) == gone.data);
	s = fix_begin(f->writer, "b", false, &item);
	add_host(s, item, "x", m.data + 2 * PAGE, 3 * PAGE);
	add_host(s, item, "z", other.data, PAGE);
	assert_ok(fix_finish(s, &err));
	ckb_log_sink(NULL, NULL);
	memset(m.data, 2, m.len);
	assert_false(writable(gone.data));
	assert_int_equal(atomic_load(&note.count), 2);
	memory_free(&m);
	memory_free(&gone);
	memory_free(&other);
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

#define PROTECTED(name) \
	cmocka_unit_test_setup_teardown(name, protected_setup, fix_teardown)

int main(void)
{
	const struct CMUnitTest tests[] = {
		PROTECTED(who_writes_too_early_is_stopped),
		PROTECTED(an_aborted_save_lets_go),
		PROTECTED(a_start_without_a_thread_lets_go),
		PROTECTED(a_start_that_cannot_protect_lets_go),
		PROTECTED(saves_may_share_pages),
		PROTECTED(views_and_parts_are_protected),
		PROTECTED(any_ranges_are_protected),
		PROTECTED(who_does_not_tell_its_size_is_protected),
		PROTECTED(an_abort_while_providers_are_asked_frees_memory),
		PROTECTED(an_abort_beside_a_start_frees_memory),
		PROTECTED(a_sealed_mapping_stays_writable),
		PROTECTED(huge_pages_stay_writable),
		PROTECTED(pages_not_given_back_are_tried_again),
		PROTECTED(a_provider_writes_when_it_is_released),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
