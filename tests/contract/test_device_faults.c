/* SPDX-License-Identifier: Apache-2.0 */
/*
 * test_device_faults.c - a device that is slow, fails, is lost or stands still
 * amid a tensor of many tiles, seen through the writer and its threads: tiles
 * are stored while others are copied; a failure is an error with the tensor's
 * and the device's names; and no staging memory stays behind, as saves larger
 * than all of it go on, beside the one that fails and after it.
 */
#include "save_fixture.h"
#include "fake_device.h"

#include <errno.h>

#define MS 1000000ull
#define STAGING (32u << 20) /* the least there can be */
enum { ROWS = 6000, COLUMNS = 6000, BYTES = ROWS * COLUMNS };
_Static_assert(BYTES > STAGING, "a slab that was lost is missed");

struct devices {
	struct fix f; /* first */
	uint8_t *data, *turned; /* BYTES, and its transpose */
};

static int setup(void **state)
{
	struct devices *t = calloc(1, sizeof(*t));
	struct ckpt_writer_opts o = { .size = sizeof(o),
				      .staging_bytes = STAGING,
				      .threads = 4 };

	assert_non_null(t);
	*state = t;
	t->data = fix_bytes(BYTES, 1);
	t->turned = malloc(BYTES);
	assert_non_null(t->turned);
	for (size_t i = 0; i < ROWS; i++)
		for (size_t k = 0; k < COLUMNS; k++)
			t->turned[k * ROWS + i] = t->data[i * COLUMNS + k];
	return fix_open(&t->f, &o);
}

static int teardown(void **state)
{
	struct devices *t = *state;

	fix_close(&t->f);
	free(t->data);
	free(t->turned);
	free(t);
	return 0;
}

/* The tensor, from where it lies in @mem: @turned, with strides. */
static void add(struct devices *t, struct ckpt_save *s, uint32_t item,
		const char *name, struct ckpt_memory *mem, bool turned,
		void *stream)
{
	struct ckpt_shape shape = SHAPE(2, ROWS, COLUMNS);
	struct ckpt_tensor_desc d = fix_desc(name, CKPT_U8, shape);
	int64_t strides[] = { 1, ROWS };
	struct ckpt_provider p;
	struct ckpt_err err = { 0 };

	if (turned)
		assert_ok(ckpt_provider_device_strided(mem, t->turned, CKPT_U8,
						       &shape, strides, stream,
						       &p, &err));
	else
		assert_ok(ckpt_provider_device(mem, t->data, BYTES, stream, &p,
					       &err));
	assert_ok(ckpt_save_tensor(s, item, &d, &p, &err));
}

static struct ckpt_save *start(struct devices *t, const char *name,
			       struct ckpt_memory *mem, bool turned)
{
	struct ckpt_err err = { 0 };
	uint32_t item;
	struct ckpt_save *s = fix_begin(t->f.writer, name, false, &item);

	add(t, s, item, "x", mem, turned, NULL);
	assert_ok(ckpt_save_start(s, &err));
	return s;
}

static int finish(struct ckpt_save *s, struct ckpt_err *err)
{
	int rc = ckpt_save_wait_for(s, CKPT_DURABLE, 60000 * MS, err);

	ckpt_save_free(s);
	return rc;
}

static void expect_whole(struct devices *t, const char *name)
{
	struct ckpt_checkpoint *c = fix_opened(t->f.store, name);

	fix_equal(c, fix_find(c, "model", "x"), t->data, BYTES);
	ckpt_checkpoint_close(c);
}

static void expect_absent(struct devices *t, const char *name)
{
	struct ckpt_checkpoint *c;
	struct ckpt_err err = { 0 };

	assert_code(ckpt_checkpoint_open(t->f.store, name, &c, &err),
		    CKPT_ENOENT);
}

/* ---- slow ---- */

/* While a copy waits for its producer, all that was copied is stored. */
static void copies_overlap_compute(void **state)
{
	struct devices *t = *state;
	struct ckpt_memory *mem = fake((struct ckpt_fake_opts){ 0 });
	struct ckpt_save_progress p = { 0 };
	struct ckpt_err err = { 0 };
	int ready = 0;
	uint32_t item;
	struct ckpt_save *s = fix_begin(t->f.writer, "a", false, &item);

	add(t, s, item, "x", mem, false, NULL);
	add(t, s, item, "y", mem, false, &ready);
	assert_ok(ckpt_save_start(s, &err));
	while (p.bytes_hashed < BYTES) {
		usleep(1000);
		ckpt_save_progress(s, &p);
		assert_int_equal(p.failed, 0);
	}
	ckpt_save_progress(s, &p);
	assert_int_equal(p.bytes_captured, BYTES); /* none of y */
	__atomic_store_n(&ready, 1, __ATOMIC_RELEASE);
	assert_ok(finish(s, &err));
	expect_whole(t, "a");
	ckpt_memory_unref(mem);
}

static void a_slow_device_is_saved_whole(void **state)
{
	struct devices *t = *state;

	for (int turned = 0; turned < 2; turned++) {
		struct ckpt_memory *mem = fake((struct ckpt_fake_opts){
			.delay_ns = MS / 2, .bytes_per_second = 500000000 });
		struct ckpt_err err = { 0 };
		const char *name = turned ? "turned" : "dense";

		assert_ok(finish(start(t, name, mem, turned), &err));
		expect_whole(t, name);
		ckpt_memory_unref(mem);
	}
}

/* ---- faults ---- */

struct fault {
	struct ckpt_fake_opts opts;
	bool turned;
	int sys_errno;
	const char *says;
};

/* The device is well, or will be: saved from again. */
static void save_again(struct devices *t, const char *name,
		       struct ckpt_memory *mem)
{
	struct ckpt_err err = { 0 };
	int rc;

	ckpt_memory_set_deadline(mem, 0);
	while ((rc = finish(start(t, name, mem, false), &err)) != 0) {
		assert_says(err, "still holds on to it");
		usleep(20000);
	}
	expect_whole(t, name);
}

static void check_fault(struct devices *t, const struct fault *fault,
			size_t i)
{
	struct ckpt_memory *bad = fake(fault->opts);
	struct ckpt_memory *good = fake((struct ckpt_fake_opts){ 0 });
	char names[3][20];
	struct ckpt_err err = { 0 };

	snprintf(names[0], sizeof(names[0]), "bad%zu", i);
	snprintf(names[1], sizeof(names[1]), "beside%zu", i);
	snprintf(names[2], sizeof(names[2]), "after%zu", i);
	ckpt_memory_set_deadline(bad, 60 * MS);
	struct ckpt_save *s = start(t, names[0], bad, fault->turned);
	struct ckpt_save *beside = start(t, names[1], good, false);

	assert_code(finish(s, &err), CKPT_EIO);
	assert_says(err, "saving 'bad");
	assert_says(err, "': tensor 'x': device 'fake'");
	assert_says(err, fault->says);
	assert_int_equal(err.sys_errno, fault->sys_errno);
	assert_ok(finish(beside, &err));
	expect_absent(t, names[0]);
	expect_whole(t, names[1]);
	save_again(t, names[2], fault->sys_errno == ENODEV ? good : bad);
	assert_int_equal(fix_files(&t->f, "staging"), 0);
	ckpt_memory_unref(bad);
	ckpt_memory_unref(good);
}

static void a_fault_amid_a_tensor_ends_its_save_alone(void **state)
{
	static const struct fault faults[] = {
		{ { .fail_at = 1 }, false, 0, "copy 1 failed" },
		{ { .fail_at = 9 }, false, 0, "copy 9 failed" },
		{ { .fail_at = 9 }, true, 0, "copy 9 failed" },
		{ { .lost_at = 1 }, false, ENODEV, "is lost" },
		{ { .lost_at = 9 }, false, ENODEV, "is lost" },
		{ { .lost_at = 9 }, true, ENODEV, "is lost" },
		{ { .hang_at = 9, .hang_ns = 300 * MS }, false, ETIMEDOUT,
		  "stalled: a copy did not end within 60 ms" },
		{ { .hang_at = 9, .hang_ns = 300 * MS }, true, ETIMEDOUT,
		  "stalled: a copy did not end within 60 ms" },
	};

	for (size_t i = 0; i < CKB_ARRAY_LEN(faults); i++)
		check_fault(*state, &faults[i], i);
}

/* Slabs that were filled, are being filled, and are being stored. */
static void an_abort_amid_a_tensor_returns_staging(void **state)
{
	struct devices *t = *state;
	struct ckpt_memory *mem = fake((struct ckpt_fake_opts){
		.hang_at = 9, .hang_ns = 200 * MS });
	struct ckpt_save *s = start(t, "a", mem, false);
	struct ckpt_save_progress p = { 0 };

	while (p.bytes_captured == 0)
		ckpt_save_progress(s, &p);
	ckpt_save_abort(s);
	ckpt_save_free(s);
	expect_absent(t, "a");
	save_again(t, "b", mem);
	assert_int_equal(fix_files(&t->f, "staging"), 0);
	ckpt_memory_unref(mem);
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, setup, teardown)

int main(void)
{
	const struct CMUnitTest tests[] = {
		TEST(copies_overlap_compute),
		TEST(a_slow_device_is_saved_whole),
		TEST(a_fault_amid_a_tensor_ends_its_save_alone),
		TEST(an_abort_amid_a_tensor_returns_staging),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
