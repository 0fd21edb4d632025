/* SPDX-License-Identifier: Apache-2.0 */
/*
 * test_pool.c - the writer's threads: what is captured while the disk stands
 * still, what is stored in whose turn, and what a save that failed leaves to
 * the next. The disk stands still, or fails, in pwritev(2): large records.
 */
#include <errno.h>

#include "contract/gate.h"
#include "pipeline.h"

#define MIB ((size_t)1 << 20)
#define STAGING (32 * MIB)
#define LEN (80 * MIB)

/* ---- a disk that waits ---- */

struct disk {
	struct ckb_sys sys;      /* first */
	struct gate gate;        /* of all pwritev(2) */
	atomic_int fail_in;      /* so many from now; 0: none */
	atomic_int calls, now, most;
	_Atomic(struct ckpt_save *) watched;
	atomic_ullong captured;  /* of it, when 3 calls were under way */
};

static uint64_t captured(const struct ckpt_save *s)
{
	struct ckpt_save_progress now;

	ckpt_save_progress(s, &now);
	return now.bytes_captured;
}

static ssize_t disk_pwritev(const struct ckb_sys *sys, int fd,
			    const struct iovec *iov, int count, uint64_t off)
{
	struct disk *d = (struct disk *)(uintptr_t)sys;
	const struct ckb_sys *os = ckb_sys_real();
	int now = atomic_fetch_add(&d->now, 1) + 1, most = d->most;

	while (now > most && !atomic_compare_exchange_weak(&d->most, &most,
							   now))
		;
	if (now == 3 && d->watched)
		d->captured = captured(d->watched);
	atomic_fetch_add(&d->calls, 1);
	gate_pass(&d->gate);
	atomic_fetch_sub(&d->now, 1);
	if (atomic_fetch_sub(&d->fail_in, 1) == 1)
		return -EIO;
	return os->pwritev(os, fd, iov, count, off);
}

struct slow {
	struct fix f;            /* first; its own writer is not used */
	struct disk disk;
	struct ckpt_store *store;
	struct ckpt_writer *w;
	uint8_t *data;           /* LEN bytes */
};

static void open_writer(struct slow *t, struct ckpt_writer_opts opts)
{
	struct ckpt_err err = { 0 };

	opts.size = sizeof(opts);
	opts.staging_bytes = STAGING;
	assert_ok(ckpt_writer_open(t->store, &opts, &t->w, &err));
}

static int slow_setup(void **state)
{
	struct slow *t = calloc(1, sizeof(*t));
	struct ckpt_err err = { 0 };

	assert_non_null(t);
	*state = t;
	alarm(100);
	fix_open(&t->f, NULL);
	t->disk = (struct disk){ .sys = *ckb_sys_real(), .gate = GATE };
	t->disk.sys.pwritev = disk_pwritev;
	assert_ok(cks_store_open_sys(&t->disk.sys, t->f.path, NULL, &t->store,
				     &err));
	t->data = fix_bytes(LEN, 6);
	return 0;
}

static int slow_teardown(void **state)
{
	struct slow *t = *state;

	ckpt_writer_close(t->w);
	ckpt_store_close(t->store);
	fix_close(&t->f);
	free(t->data);
	free(t);
	alarm(0);
	return 0;
}

/* No tile is in the store any more. */
static void renew(struct slow *t)
{
	for (size_t at = 0; at < LEN; at += 65536)
		t->data[at]++;
}

/* A started save of "w", @len bytes: borrowed memory, or read from @source. */
static struct ckpt_save *started(struct slow *t, const char *name, size_t len,
				 struct watch *source)
{
	struct ckpt_tensor_desc d = fix_desc("w", CKPT_U8, SHAPE(1, len));
	struct ckpt_provider p;
	struct ckpt_err err = { 0 };
	uint32_t item;
	struct ckpt_save *s = fix_begin(t->w, name, false, &item);

	if (source) {
		source->data = t->data;
		source->bytes = len;
		p = watch_provider(source);
	} else {
		assert_ok(ckpt_provider_host(t->data, len, &p, &err));
	}
	assert_ok(ckpt_save_tensor(s, item, &d, &p, &err));
	assert_ok(ckpt_save_start(s, &err));
	return s;
}

static void expect_whole(struct slow *t, const char *name, size_t len)
{
	struct ckpt_checkpoint *c = fix_opened(t->f.store, name);

	fix_equal(c, fix_find(c, "model", "w"), t->data, len);
	ckpt_checkpoint_close(c);
}

/* ---- back-pressure ---- */

/* While nothing is written, staging fills up and no more is asked for. */
static void staging_is_all_that_is_captured_ahead(void **state)
{
	struct slow *t = *state;
	struct ckpt_err err = { 0 };

	open_writer(t, (struct ckpt_writer_opts){ 0 });
	for (int i = 0; i < 2; i++) {
		struct watch source = { 0 };
		const char *name = i ? "read" : "borrowed";
		struct ckpt_save *s;

		t->disk.gate.open = false;
		renew(t);
		s = started(t, name, LEN, i ? &source : NULL);
		/* the whole ring, but for what a large unit does not fit in */
		while (captured(s) < STAGING / 2)
			usleep(1000);
		assert_code(ckpt_save_wait_for(s, CKPT_CAPTURED, 100000000,
					       &err), CKPT_ETIMEDOUT);
		assert_in_range(captured(s), STAGING / 2, STAGING);
		assert_true(source.read_bytes <= STAGING);
		gate_open(&t->disk.gate);
		assert_ok(ckpt_save_wait(s, CKPT_CAPTURED, &err));
		assert_int_equal(captured(s), LEN);
		assert_ok(ckpt_save_wait(s, CKPT_DURABLE, &err));
		ckpt_save_free(s);
		expect_whole(t, name, LEN);
	}
}

/* One thread that computes is enough to have several writes under way. */
static void the_disk_has_several_writes_to_do(void **state)
{
	struct slow *t = *state;
	struct ckpt_err err = { 0 };

	open_writer(t, (struct ckpt_writer_opts){ .threads = 1 });
	struct ckw_worker any = { .pool = t->w->pool };

	assert_false(ckw_pool_disk_behind(&any));
	struct ckpt_save *s = started(t, "a", LEN, NULL);

	while (atomic_load(&t->disk.now) < 8)
		usleep(1000);
	assert_true(ckw_pool_disk_behind(&any));
	gate_open(&t->disk.gate);
	assert_ok(ckpt_save_wait(s, CKPT_DURABLE, &err));
	ckpt_save_free(s);
	assert_false(ckw_pool_disk_behind(&any));
	/* and no more than its threads */
	assert_in_range(t->disk.most, 8, 1 + 12);
	expect_whole(t, "a", LEN);
}

/* ---- for whom ---- */

/* Memory that is lent when a gate opens. */
struct loan {
	const uint8_t *data;
	struct gate gate;
};

static const void *loan_borrow(void *ctx, uint64_t off, size_t len)
{
	struct loan *l = ctx;

	(void)len;
	gate_pass(&l->gate);
	return l->data + off;
}

static int loan_read(void *ctx, uint64_t off, void *dst, size_t len,
		     struct ckpt_err *err)
{
	(void)err;
	memcpy(dst, ((struct loan *)ctx)->data + off, len);
	return 0;
}

static const struct ckpt_provider_ops loan_ops = {
	.size = sizeof(loan_ops), .read = loan_read, .borrow = loan_borrow,
};

static void *await_durable(void *save)
{
	struct ckpt_err err = { 0 };

	assert_ok(ckpt_save_wait(save, CKPT_DURABLE, &err));
	return NULL;
}

static bool is_wanted(struct ckpt_save *s)
{
	pthread_mutex_lock(&s->writer->lock);
	bool yes = s->wanted[CKPT_DURABLE - 1] > 0;

	pthread_mutex_unlock(&s->writer->lock);
	return yes;
}

/* Bytes captured when the disk had 3 writes to do. */
static uint64_t captured_ahead(struct slow *t, const char *name, bool wait)
{
	struct ckpt_tensor_desc d =
		fix_desc("w", CKPT_U8, SHAPE(1, STAGING - 4 * MIB));
	struct loan loan = { t->data, GATE };
	struct ckpt_err err = { 0 };
	pthread_t waiter;
	uint32_t item;

	renew(t);
	struct ckpt_save *s = fix_begin(t->w, name, false, &item);

	assert_ok(ckpt_save_tensor(s, item, &d, &(struct ckpt_provider){
				   &loan_ops, &loan }, &err));
	t->disk.gate.open = false;
	t->disk.captured = 0;
	t->disk.watched = s;
	assert_ok(ckpt_save_start(s, &err));
	gate_await(&loan.gate); /* the save's plan: no job is there yet */
	if (wait)
		assert_int_equal(pthread_create(&waiter, NULL, await_durable,
						s), 0);
	while (wait && !is_wanted(s))
		usleep(1000);
	gate_open(&loan.gate);
	while (t->disk.captured == 0)
		usleep(1000);
	gate_open(&t->disk.gate);
	if (wait)
		pthread_join(waiter, NULL);
	assert_ok(ckpt_save_wait(s, CKPT_DURABLE, &err));
	t->disk.watched = NULL;
	ckpt_save_free(s);
	expect_whole(t, name, STAGING - 4 * MIB);
	return t->disk.captured;
}

/* Whoever may wait for the capture yet has it done beside two writes; who waits
 * for the end alone has a third begun before more is captured than they take. */
static void a_tile_is_stored_at_once_for_who_waits_for_the_end(void **state)
{
	struct slow *t = *state;
	uint64_t least = UINT64_MAX; /* three writes and the next */

	open_writer(t, (struct ckpt_writer_opts){ .threads = 1 });
	assert_int_equal(captured_ahead(t, "nobody waits", false),
			 STAGING - 4 * MIB);
	/* a thread may be held up before the call that looks */
	for (int i = 0; i < 9 && least >= STAGING / 2; i++) {
		char name[] = { 'w', (char)('0' + i), 0 };

		least = captured_ahead(t, name, true);
	}
	assert_in_range(least, 6 * MIB, STAGING / 2);
}

/* ---- turns ---- */

static void saves_are_captured_and_stored_in_turn(void **state)
{
	struct slow *t = *state;
	struct gate g = GATE;
	struct watch first = { .on_read = gate_pass, .ctx = &g };
	struct ckpt_save_progress p;
	struct ckpt_err err = { 0 };

	open_writer(t, (struct ckpt_writer_opts){ 0 });
	gate_open(&t->disk.gate);
	/* all of it has its staging: the next is captured while it is read */
	struct ckpt_save *a = started(t, "a", MIB / 16, &first);
	struct ckpt_save *b = started(t, "b", 10 * MIB, NULL);

	gate_await(&g);
	assert_ok(ckpt_save_wait(b, CKPT_CAPTURED, &err));
	ckpt_save_progress(b, &p);
	assert_int_equal(p.bytes_captured, 10 * MIB);
	assert_int_equal(p.bytes_hashed, 0);
	assert_int_equal(p.bytes_written, 0);
	gate_open(&g);
	assert_ok(ckpt_save_wait(b, CKPT_DURABLE, &err));
	/* it found what the first one had: its turn came after */
	ckpt_save_progress(b, &p);
	assert_int_equal(p.bytes_hashed, 10 * MIB);
	assert_int_equal(ckpt_save_phase(a), CKPT_DURABLE);
	ckpt_save_free(a);
	ckpt_save_free(b);
	expect_whole(t, "a", MIB / 16);
	expect_whole(t, "b", 10 * MIB);
}

/* What ckw_capture_ns() goes by: a save that others are captured before was
 * not copied meanwhile. The first is too large to say anything. */
static void waiting_for_earlier_saves_is_not_copying(void **state)
{
	struct slow *t = *state;
	struct gate g = GATE;
	struct watch first = { .on_read = gate_pass, .ctx = &g };
	struct ckpt_err err = { 0 };

	open_writer(t, (struct ckpt_writer_opts){ 0 });
	gate_open(&t->disk.gate);
	struct ckpt_save *a = started(t, "a", LEN, &first);
	struct ckpt_save *b = started(t, "b", MIB, NULL);

	gate_await(&g);
	usleep(500000);
	gate_open(&g);
	assert_ok(ckpt_save_wait(a, CKPT_DURABLE, &err));
	assert_ok(ckpt_save_wait(b, CKPT_DURABLE, &err));
	assert_true(t->w->copying.bytes == MIB);
	assert_true(t->w->copying.ns > 0 && t->w->copying.ns < 5e8);
	ckpt_save_free(a);
	ckpt_save_free(b);
}

static void who_ceases_to_wait_wants_nothing_more(void **state)
{
	struct slow *t = *state;
	struct gate g = GATE;
	struct watch source = { .on_read = gate_pass, .ctx = &g };
	struct ckpt_err err = { 0 };

	open_writer(t, (struct ckpt_writer_opts){ 0 });
	gate_open(&t->disk.gate);
	struct ckpt_save *s = started(t, "a", MIB, &source);

	gate_await(&g);
	for (int i = 0; i < 3; i++) {
		assert_code(ckpt_save_wait_for(s, CKPT_CAPTURED, i, &err),
			    CKPT_ETIMEDOUT);
		assert_code(ckpt_save_wait_for(s, CKPT_DURABLE, i, &err),
			    CKPT_ETIMEDOUT);
	}
	pthread_mutex_lock(&t->w->lock);
	uint32_t wanted = s->wanted[0] + s->wanted[1];

	pthread_mutex_unlock(&t->w->lock);
	assert_int_equal(wanted, 0);
	gate_open(&g);
	assert_ok(ckpt_save_wait(s, CKPT_DURABLE, &err));
	ckpt_save_free(s);
}

/* ---- sources ---- */

struct crowd {
	struct watch source;
	atomic_int inside, most;
};

static void crowd_in(void *ctx)
{
	struct crowd *c = ctx;
	int now = atomic_fetch_add(&c->inside, 1) + 1;

	if (now > c->most)
		c->most = now;
	usleep(500);
	atomic_fetch_sub(&c->inside, 1);
}

static void a_provider_is_read_by_one_thread_at_a_time(void **state)
{
	struct slow *t = *state;
	struct crowd crowds[6] = { 0 };
	struct ckpt_err err = { 0 };
	struct ckpt_save *saves[2];
	char name[8];

	open_writer(t, (struct ckpt_writer_opts){ .threads = 4 });
	gate_open(&t->disk.gate);
	for (uint32_t i = 0; i < 6; i++) {
		struct crowd *c = &crowds[i];
		uint32_t item = 0;

		c->source = (struct watch){ .data = t->data, .bytes = 5 * MIB,
					    .on_read = crowd_in, .ctx = c };
		if (i % 3 == 0) {
			snprintf(name, sizeof(name), "%u", i / 3);
			saves[i / 3] = fix_begin(t->w, name, false, &item);
		}
		snprintf(name, sizeof(name), "t%u", i);
		struct ckpt_tensor_desc d = fix_desc(name, CKPT_U8,
						     SHAPE(1, 5 * MIB));
		struct ckpt_provider p = watch_provider(&c->source);

		assert_ok(ckpt_save_tensor(saves[i / 3], item, &d, &p, &err));
	}
	for (int i = 0; i < 2; i++)
		assert_ok(ckpt_save_start(saves[i], &err));
	for (int i = 0; i < 2; i++) {
		assert_ok(ckpt_save_wait(saves[i], CKPT_DURABLE, &err));
		ckpt_save_free(saves[i]);
	}
	for (uint32_t i = 0; i < 6; i++) {
		assert_int_equal(crowds[i].most, 1);
		assert_int_equal(crowds[i].source.read_bytes, 5 * MIB);
		assert_int_equal(crowds[i].source.released, 1);
	}
}

/* ---- failures ---- */

/* Whatever a save had of staging when it failed, the next one has: a slab that
 * was lost would end the process when the writer is closed. */
static void a_failed_save_leaves_all_staging_to_the_next(void **state)
{
	struct slow *t = *state;
	struct ckpt_err err = { 0 };

	open_writer(t, (struct ckpt_writer_opts){ .threads = 3 });
	gate_open(&t->disk.gate);
	for (int n = 1; n < 20; n += 3) {
		struct watch source = { 0 };

		atomic_store(&t->disk.fail_in, n);
		struct ckpt_save *s = started(t, "fails", LEN, n % 2 ? &source
								     : NULL);

		assert_code(ckpt_save_wait(s, CKPT_DURABLE, &err), CKPT_EIO);
		assert_says(err, "saving 'fails'");
		assert_says(err, ".pack");
		ckpt_save_free(s);
		assert_int_equal(fix_files(&t->f, "checkpoints"), 0);
		assert_int_equal(fix_files(&t->f, "staging"), 0);
	}
	struct ckpt_save *s = started(t, "a", LEN, NULL);

	assert_ok(ckpt_save_wait(s, CKPT_DURABLE, &err));
	ckpt_save_free(s);
	expect_whole(t, "a", LEN);
}

static void *open_late(void *arg)
{
	usleep(20000);
	gate_open(arg);
	return NULL;
}

/* One that is aborted with staging full and all its writes under way; another
 * waits behind it, for room. */
static void an_abort_makes_room_for_who_waits(void **state)
{
	struct slow *t = *state;
	struct ckpt_err err = { 0 };
	pthread_t opener;

	open_writer(t, (struct ckpt_writer_opts){ 0 });
	struct ckpt_save *a = started(t, "a", LEN, NULL);

	while (captured(a) < STAGING / 2)
		usleep(1000);
	struct ckpt_save *b = started(t, "b", LEN / 2, NULL);

	assert_int_equal(pthread_create(&opener, NULL, open_late,
					&t->disk.gate), 0);
	ckpt_save_abort(a);
	assert_code(ckpt_save_wait(a, CKPT_DURABLE, &err), CKPT_ECANCELED);
	pthread_join(opener, NULL);
	assert_ok(ckpt_save_wait(b, CKPT_DURABLE, &err));
	ckpt_save_free(a);
	ckpt_save_free(b);
	expect_whole(t, "b", LEN / 2);
	assert_int_equal(fix_files(&t->f, "checkpoints"), 1);
	assert_int_equal(fix_files(&t->f, "staging"), 0);
}

/* ---- packs ---- */

struct packs {
	size_t count, small;
	uint64_t most;
};

static struct packs seen;

static int look(const char *path, const struct stat *st, int type,
		struct FTW *ftw)
{
	(void)path;
	(void)ftw;
	if (type != FTW_F)
		return 0;
	seen.count++;
	seen.small += st->st_size < 4 << 20;
	if ((uint64_t)st->st_size > seen.most)
		seen.most = (uint64_t)st->st_size;
	return 0;
}

/* A group goes whole to the pack that it was begun for, which is then full:
 * beyond its size a pack has what six threads bring, two tiles each. */
static void groups_that_cross_the_end_of_a_pack_stay_whole(void **state)
{
	struct slow *t = *state;
	struct ckpt_err err = { 0 };
	const enum ckpt_io ios[] = { CKPT_IO_DIRECT, CKPT_IO_BUFFERED };
	char path[600];

	gate_open(&t->disk.gate);
	snprintf(path, sizeof(path), "%s/packs", t->f.path);
	for (size_t i = 0; i < 2; i++) {
		const char *name = i ? "buffered" : "direct";

		open_writer(t, (struct ckpt_writer_opts){
			.threads = 2, .pack_bytes = 4 << 20, .io = ios[i] });
		renew(t);
		struct ckpt_save *s = started(t, name, LEN, NULL);

		assert_ok(ckpt_save_wait(s, CKPT_DURABLE, &err));
		ckpt_save_free(s);
		ckpt_writer_close(CKB_TAKE(t->w));
		seen = (struct packs){ 0 };
		assert_int_equal(nftw(path, look, 8, FTW_PHYS), 0);
		assert_true(seen.most < 4 * MIB + 6 * 2 * 320 * 1024 + MIB);
		assert_true(seen.count >= (i + 1) * LEN / (9 * MIB));
		assert_true(seen.small <= i + 1); /* the last of a save */
		expect_whole(t, name, LEN);
	}
}

#define TEST(name) \
	cmocka_unit_test_setup_teardown(name, slow_setup, slow_teardown)

int main(void)
{
	const struct CMUnitTest tests[] = {
		TEST(staging_is_all_that_is_captured_ahead),
		TEST(the_disk_has_several_writes_to_do),
		TEST(a_tile_is_stored_at_once_for_who_waits_for_the_end),
		TEST(saves_are_captured_and_stored_in_turn),
		TEST(waiting_for_earlier_saves_is_not_copying),
		TEST(who_ceases_to_wait_wants_nothing_more),
		TEST(a_provider_is_read_by_one_thread_at_a_time),
		TEST(a_failed_save_leaves_all_staging_to_the_next),
		TEST(an_abort_makes_room_for_who_waits),
		TEST(groups_that_cross_the_end_of_a_pack_stay_whole),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
