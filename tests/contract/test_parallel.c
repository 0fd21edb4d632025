/* SPDX-License-Identifier: Apache-2.0 */
/*
 * test_parallel.c - how many threads read a provider at once: one, unless it
 * says CKPT_PROVIDER_PARALLEL; then as many as compute, four at most. A read
 * waits until so many are there, so too few are seen, and too many as well.
 */
#include "save_fixture.h"

#include <pthread.h>
#include <time.h>

enum { ROWS = 2048, COLUMNS = 4096, BYTES = ROWS * COLUMNS };

struct reader {
	pthread_mutex_t lock;
	pthread_cond_t changed;
	int inside, most, want; /* threads in a read: now, ever, at least */
	const uint8_t *data;
};

/* What a provider has of it. */
struct piece {
	struct reader *r;
	uint64_t first, bytes;
};

static int reader_read(void *ctx, uint64_t off, void *dst, size_t len,
		       struct ckpt_err *err)
{
	const struct piece *piece = ctx;
	struct reader *r = piece->r;
	struct timespec until;

	(void)err;
	clock_gettime(CLOCK_REALTIME, &until);
	until.tv_sec += 10;
	pthread_mutex_lock(&r->lock);
	if (++r->inside > r->most)
		r->most = r->inside;
	pthread_cond_broadcast(&r->changed);
	while (r->most < r->want &&
	       pthread_cond_timedwait(&r->changed, &r->lock, &until) == 0)
		;
	pthread_mutex_unlock(&r->lock);
	usleep(500); /* for one more to come */
	memcpy(dst, r->data + piece->first + off, len);
	pthread_mutex_lock(&r->lock);
	r->inside--;
	pthread_mutex_unlock(&r->lock);
	return 0;
}

static uint64_t reader_bytes(void *ctx)
{
	return ((const struct piece *)ctx)->bytes;
}

/* A writer of @threads threads; *@out_save is begun. */
static struct ckpt_writer *writer(struct fix *f, uint32_t threads,
				  const char *name,
				  struct ckpt_save **out_save,
				  uint32_t *out_item)
{
	struct ckpt_writer_opts o = { .size = sizeof(o), .threads = threads };
	struct ckpt_writer *w;
	struct ckpt_err err = { 0 };

	assert_ok(ckpt_writer_open(f->store, &o, &w, &err));
	*out_save = fix_begin(w, name, false, out_item);
	return w;
}

/* Save what @p reads on @threads threads: it must come back as @data, and be
 * read by @r->want threads at once, not by more. */
static void check(struct fix *f, const char *name, uint32_t threads,
		  struct ckpt_provider *p, struct reader *r)
{
	struct ckpt_tensor_desc d = fix_desc("x", CKPT_U8,
					     SHAPE(2, ROWS, COLUMNS));
	struct ckpt_save *s;
	struct ckpt_err err = { 0 };
	uint32_t item;
	struct ckpt_writer *w = writer(f, threads, name, &s, &item);

	assert_ok(ckpt_save_tensor(s, item, &d, p, &err));
	assert_ok(fix_finish(s, &err));
	ckpt_writer_close(w);
	if (r->most != r->want)
		fail_msg("%s: read by %d threads at once, not by %d", name,
			 r->most, r->want);
	struct ckpt_checkpoint *c = fix_opened(f->store, name);

	fix_equal(c, fix_find(c, "model", "x"), r->data, BYTES);
	ckpt_checkpoint_close(c);
}

#define READER(n, bytes) { PTHREAD_MUTEX_INITIALIZER, \
			   PTHREAD_COND_INITIALIZER, 0, 0, n, bytes }

static void so_many_threads_read_as_may(void **state)
{
	static const struct {
		const char *name;
		uint32_t flags, threads;
		int want;
		bool old; /* a table of before there were flags */
	} cases[] = {
		{ "none", 0, 8, 1, false },
		{ "one", CKPT_PROVIDER_PARALLEL, 1, 1, false },
		{ "two", CKPT_PROVIDER_PARALLEL, 2, 2, false },
		{ "four", CKPT_PROVIDER_PARALLEL, 8, 4, false },
		{ "old", CKPT_PROVIDER_PARALLEL, 8, 1, true },
	};
	uint8_t *data = fix_bytes(BYTES, 1);

	for (size_t i = 0; i < CKB_ARRAY_LEN(cases); i++) {
		struct ckpt_provider_ops ops = {
			.size = cases[i].old
				? offsetof(struct ckpt_provider_ops, flags)
				: sizeof(ops),
			.read = reader_read, .bytes = reader_bytes,
			.flags = cases[i].flags,
		};
		struct reader r = READER(cases[i].want, data);
		struct piece all = { &r, 0, BYTES };
		struct ckpt_provider p = { &ops, &all };

		check(*state, cases[i].name, cases[i].threads, &p, &r);
	}
	free(data);
}

/* Of three parts, the last of them host memory. */
static void a_composite_is_read_as_all_its_parts_may(void **state)
{
	static const struct {
		const char *name;
		uint32_t flags[2];
		int want;
	} cases[] = {
		{ "both", { CKPT_PROVIDER_PARALLEL, CKPT_PROVIDER_PARALLEL },
		  4 },
		{ "the first", { CKPT_PROVIDER_PARALLEL, 0 }, 1 },
		{ "the second", { 0, CKPT_PROVIDER_PARALLEL }, 1 },
	};
	static const uint64_t cut[] = { 0, 3000001, 6000001 };
	uint8_t *data = fix_bytes(BYTES, 1);

	for (size_t i = 0; i < CKB_ARRAY_LEN(cases); i++) {
		struct reader r = READER(cases[i].want, data);
		struct ckpt_provider_ops ops[2];
		struct piece pieces[2];
		struct ckpt_provider parts[3], p;
		struct ckpt_err err = { 0 };

		for (int k = 0; k < 2; k++) {
			pieces[k] = (struct piece){ &r, cut[k],
						    cut[k + 1] - cut[k] };
			ops[k] = (struct ckpt_provider_ops){
				.size = sizeof(ops[k]), .read = reader_read,
				.bytes = reader_bytes,
				.flags = cases[i].flags[k] };
			parts[k] = (struct ckpt_provider){ &ops[k],
							   &pieces[k] };
		}
		assert_ok(ckpt_provider_host(data + cut[2], BYTES - cut[2],
					     &parts[2], &err));
		assert_ok(ckpt_provider_composite(parts, 3, &p, &err));
		check(*state, cases[i].name, 8, &p, &r);
	}
	free(data);
}

/* A failure of one ends the others' save too, when their reads are over. */
static int fail_third(void *ctx, uint64_t off, void *dst, size_t len,
		      struct ckpt_err *err)
{
	static atomic_int reads;

	if (atomic_fetch_add(&reads, 1) == 2)
		return CKPT_EIO;
	return reader_read(ctx, off, dst, len, err);
}

static void one_failure_ends_all_reads(void **state)
{
	static const struct ckpt_provider_ops ops = {
		.size = sizeof(ops), .read = fail_third,
		.bytes = reader_bytes, .flags = CKPT_PROVIDER_PARALLEL,
	};
	struct fix *f = *state;
	uint8_t *data = fix_bytes(BYTES, 1);
	struct reader r = READER(2, data);
	struct piece all = { &r, 0, BYTES };
	struct ckpt_provider p = { &ops, &all };
	struct ckpt_tensor_desc d = fix_desc("x", CKPT_U8,
					     SHAPE(2, ROWS, COLUMNS));
	struct ckpt_save *s;
	struct ckpt_err err = { 0 };
	uint32_t item;
	struct ckpt_writer *w = writer(f, 4, "a", &s, &item);

	assert_ok(ckpt_save_tensor(s, item, &d, &p, &err));
	assert_ok(ckpt_save_start(s, &err));
	assert_code(ckpt_save_wait(s, CKPT_CAPTURED, &err), CKPT_EIO);
	assert_says(err, "tensor 'x': its provider failed");
	assert_int_equal(r.inside, 0);
	ckpt_save_free(s);
	ckpt_writer_close(w);
	free(data);
}

#define TEST(name) \
	cmocka_unit_test_setup_teardown(name, fix_setup, fix_teardown)

int main(void)
{
	const struct CMUnitTest tests[] = {
		TEST(so_many_threads_read_as_may),
		TEST(a_composite_is_read_as_all_its_parts_may),
		TEST(one_failure_ends_all_reads),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
