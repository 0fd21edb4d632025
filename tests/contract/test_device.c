/* SPDX-License-Identifier: Apache-2.0 */
/*
 * test_device.c - saves from the memory of a device, through the public calls:
 * the same as from the host, whatever their layout; and a device that fails, is
 * lost or stands still ends its save and nothing else.
 */
#include "device_fixture.h"
#include "fake_device.h"

#include <errno.h>
#include <pthread.h>
#include <time.h>

#include "mem/mem.h"

#define MS 1000000ull

static void a_save_from_a_device_is_the_save_from_the_host(void **state)
{
	struct fix *f = *state;
	static const struct ckpt_fake_opts opts[] = {
		{ 0 },
		{ .delay_ns = 200000, .bytes_per_second = 2000000000 },
	};
	uint8_t *memory[LAYOUTS];
	struct ckpt_err err = { 0 };

	fill(memory);
	assert_ok(fix_finish(describe(f->writer, "host", NULL, memory, NULL),
			     &err));
	for (size_t i = 0; i < CKB_ARRAY_LEN(opts); i++) {
		struct ckpt_memory *mem = fake(opts[i]);
		char name[16];

		snprintf(name, sizeof(name), "device%zu", i);
		struct ckpt_save *s = describe(f->writer, name, mem, memory,
					       NULL);

		ckpt_memory_unref(mem); /* providers have it */
		assert_ok(ckpt_save_start(s, &err));
		assert_ok(ckpt_save_wait(s, CKPT_DURABLE, &err));
		struct ckpt_save_progress p;

		ckpt_save_progress(s, &p);
		assert_int_equal(p.chunk_new_count, 0);
		ckpt_save_free(s);
		expect_same(f->store, "host", name);
	}
	drop(memory);
}

/* async-01: nor does it matter what the device's memory holds after that. */
static void what_changes_after_captured_is_not_saved(void **state)
{
	struct fix *f = *state;
	struct ckpt_memory *mem = fake((struct ckpt_fake_opts){
		.delay_ns = 200000, .bytes_per_second = 2000000000 });
	uint8_t *memory[LAYOUTS];
	struct ckpt_err err = { 0 };

	fill(memory);
	assert_ok(fix_finish(describe(f->writer, "host", NULL, memory, NULL),
			     &err));
	struct ckpt_save *s = describe(f->writer, "device", mem, memory, NULL);

	assert_ok(ckpt_save_start(s, &err));
	assert_ok(ckpt_save_wait(s, CKPT_CAPTURED, &err));
	for (uint32_t i = 0; i < LAYOUTS; i++)
		memset(memory[i], 2, layouts[i].elements *
		       ckpt_dtype_bits(layouts[i].dtype) / 8);
	assert_ok(ckpt_save_wait(s, CKPT_DURABLE, &err));
	ckpt_save_free(s);
	expect_same(f->store, "host", "device");
	drop(memory);
	ckpt_memory_unref(mem);
}

/* Sharded: boxes of one tensor, each with its bytes one after another. */
static void shards_of_a_device_are_saved(void **state)
{
	struct fix *f = *state;
	struct ckpt_memory *mem = fake((struct ckpt_fake_opts){ 0 });
	struct ckpt_box boxes[] = {
		{ 2, { 0, 0 }, { 1000, 300 } },
		{ 2, { 0, 300 }, { 1000, 700 } },
	};
	uint8_t *data = fix_bytes(1000 * 1000 * 2, 5), *want;
	struct ckpt_tensor_desc d = fix_desc("t", CKPT_BF16,
					     SHAPE(2, 1000, 1000));
	struct ckpt_provider p;
	struct ckpt_err err = { 0 };
	uint32_t item;
	struct ckpt_save *s = fix_begin(f->writer, "s", false, &item);

	d.boxes = boxes;
	d.box_count = 2;
	assert_ok(ckpt_provider_device(mem, data, 2000000, NULL, &p, &err));
	assert_ok(ckpt_save_tensor(s, item, &d, &p, &err));
	assert_ok(fix_finish(s, &err));
	want = malloc(2000000);
	assert_non_null(want);
	for (size_t row = 0; row < 1000; row++) {
		memcpy(want + row * 2000, data + row * 600, 600);
		memcpy(want + row * 2000 + 600, data + 600000 + row * 1400,
		       1400);
	}
	struct ckpt_checkpoint *c = fix_opened(f->store, "s");

	fix_equal(c, fix_find(c, "model", "t"), want, 2000000);
	ckpt_checkpoint_close(c);
	ckpt_memory_unref(mem);
	free(data);
	free(want);
}

static void *finish_soon(void *arg)
{
	uint8_t **memory = arg;

	usleep(30000);
	for (uint32_t i = 0; i < LAYOUTS; i++)
		if (layouts[i].elements > 1)
			memory[i][0] ^= 0xff; /* the producer's last write */
	__atomic_store_n((int *)memory[LAYOUTS], 1, __ATOMIC_RELEASE);
	return NULL;
}

static void copies_start_when_the_producer_is_done(void **state)
{
	struct fix *f = *state;
	struct ckpt_memory *mem = fake((struct ckpt_fake_opts){ 0 });
	uint8_t *memory[LAYOUTS + 1];
	struct ckpt_err err = { 0 };
	pthread_t producer;
	int done = 0;

	fill(memory);
	memory[LAYOUTS] = (uint8_t *)&done;
	struct ckpt_save *s = describe(f->writer, "device", mem, memory,
				       &done);

	assert_ok(ckpt_save_start(s, &err));
	assert_int_equal(pthread_create(&producer, NULL, finish_soon, memory),
			 0);
	assert_ok(ckpt_save_wait(s, CKPT_DURABLE, &err));
	pthread_join(producer, NULL);
	ckpt_save_free(s);
	assert_ok(fix_finish(describe(f->writer, "host", NULL, memory, NULL),
			     &err));
	expect_same(f->store, "host", "device");
	drop(memory);
	ckpt_memory_unref(mem);
}

/* ---- ranges ---- */

static void check_ranges(const struct layout *l, struct ckpt_provider *host,
			 struct ckpt_provider *device, uint8_t *to,
			 size_t room)
{
	uint64_t bytes = host->ops->bytes(host->ctx);
	uint8_t *want = malloc(room);
	struct ckpt_err err = { 0 };

	assert_non_null(want);
	assert_int_equal(device->ops->bytes(device->ctx), bytes);
	for (uint64_t i = 0; bytes > 0 && i < 40; i++) {
		uint64_t off = i * 7919 * 13 % bytes;
		size_t len = (size_t)ckb_min_u64(room, bytes - off);

		if (i % 4 == 1)
			len = len / 3 + 1;
		else if (i % 4 == 2)
			len = (size_t)ckb_min_u64(len, 1 + i);
		assert_ok(host->ops->read(host->ctx, off, want, len, &err));
		memset(to, 0xAA, len);
		assert_ok(device->ops->read(device->ctx, off, to, len, &err));
		if (memcmp(to, want, len) != 0)
			fail_msg("%s: bytes %ju to %ju", l->name,
				 (uintmax_t)off, (uintmax_t)(off + len));
	}
	free(want);
}

/* Any range, whole elements or not, into any memory and into the device's own
 * staging memory. */
static void any_range_is_read_into_any_memory(void **state)
{
	struct ckpt_memory *mem = fake((struct ckpt_fake_opts){ 0 });
	uint8_t *memory[LAYOUTS], *plain = malloc(3 << 20);
	struct ckpt_err err = { 0 };
	void *staging;

	(void)state;
	assert_non_null(plain);
	assert_ok(ckd_alloc(mem, 3 << 20, &staging, &err));
	fill(memory);
	for (uint32_t i = 0; i < LAYOUTS; i++) {
		struct ckpt_provider host = provider(NULL, &layouts[i],
						     memory[i], NULL);
		struct ckpt_provider device = provider(mem, &layouts[i],
						       memory[i], NULL);

		assert_null(device.ops->borrow(device.ctx, 0, 1));
		check_ranges(&layouts[i], &host, &device, plain, 3 << 20);
		check_ranges(&layouts[i], &host, &device, staging, 3 << 20);
		ckpt_provider_release(&host);
		ckpt_provider_release(&device);
	}
	drop(memory);
	free(plain);
	ckd_free(mem, staging);
	ckpt_memory_unref(mem);
}

static void memory_that_the_host_reads_is_lent(void **state)
{
	struct ckpt_memory *mem;
	struct ckpt_provider p;
	struct ckpt_err err = { 0 };
	struct ckpt_shape two = SHAPE(2, 4, 4);
	int64_t dense[] = { 4, 1 }, turned[] = { 1, 4 };
	uint8_t data[16] = "0123456789abcde", have[16];

	(void)state;
	assert_ok(ckpt_memory_host(&mem, &err));
	assert_ok(ckpt_provider_device(mem, data, 16, NULL, &p, &err));
	assert_ptr_equal(p.ops->borrow(p.ctx, 3, 5), data + 3);
	ckpt_provider_release(&p);
	assert_ok(ckpt_provider_device_strided(mem, data, CKPT_U8, &two, dense,
					       NULL, &p, &err));
	assert_ptr_equal(p.ops->borrow(p.ctx, 3, 5), data + 3);
	ckpt_provider_release(&p);
	assert_ok(ckpt_provider_device_strided(mem, data, CKPT_U8, &two,
					       turned, NULL, &p, &err));
	assert_null(p.ops->borrow(p.ctx, 3, 5));
	assert_ok(p.ops->read(p.ctx, 0, have, 16, &err));
	assert_memory_equal(have, "048c159d26ae37b", 15);
	ckpt_provider_release(&p);
	assert_code(ckpt_provider_device(mem, data, 16, &two, &p, &err),
		    CKPT_EINVAL);
	assert_says(err, "'host' has no streams");
	assert_null(p.ops);
	ckpt_memory_unref(mem);
}

static void what_cannot_be_is_refused(void **state)
{
	struct ckpt_memory *mem = fake((struct ckpt_fake_opts){ 0 });
	struct ckpt_shape two = SHAPE(2, 2, 2), empty = SHAPE(2, 0, 2);
	int64_t stride[] = { 2, 1 };
	struct ckpt_provider p;
	struct ckpt_err err = { 0 };
	uint8_t data[16] = { 0 };

	(void)state;
	assert_code(ckpt_provider_device(mem, NULL, 1, NULL, &p, &err),
		    CKPT_EINVAL);
	assert_says(err, "no data");
	assert_code(ckpt_provider_device(mem, data, UINT64_MAX, NULL, &p,
					 &err), CKPT_EINVAL);
	assert_code(ckpt_provider_device_strided(mem, NULL, CKPT_U8, &two,
						 stride, NULL, &p, &err),
		    CKPT_EINVAL);
	assert_code(ckpt_provider_device_strided(mem, data, CKPT_F4, &two,
						 stride, NULL, &p, &err),
		    CKPT_EINVAL);
	assert_says(err, "F4");
	assert_code(ckpt_provider_device_strided(mem, data, CKPT_U8, &two,
						 NULL, NULL, &p, &err),
		    CKPT_EINVAL);
	assert_says(err, "strides");
	assert_null(p.ops);
	assert_ok(ckpt_provider_device_strided(mem, NULL, CKPT_U8, &empty,
					       stride, NULL, &p, &err));
	assert_int_equal(p.ops->bytes(p.ctx), 0);
	ckpt_provider_release(&p);
	assert_ok(ckpt_provider_device(mem, NULL, 0, NULL, &p, &err));
	ckpt_provider_release(&p);
	ckpt_memory_unref(mem);
}

/* ---- devices that fail ---- */

/* A save of a tensor of each memory; what it ended with. */
static int save_two(struct fix *f, const char *name, struct ckpt_memory *first,
		    struct ckpt_memory *second, const uint8_t *data,
		    size_t len, struct ckpt_err *out)
{
	struct ckpt_err err = { 0 };
	uint32_t item;
	struct ckpt_save *s = fix_begin(f->writer, name, false, &item);

	for (int i = 0; i < 2; i++) {
		struct ckpt_tensor_desc d = fix_desc(i ? "second" : "first",
						     CKPT_U8, SHAPE(1, len));
		struct ckpt_provider p;

		assert_ok(ckpt_provider_device(i ? second : first, data, len,
					       NULL, &p, &err));
		assert_ok(ckpt_save_tensor(s, item, &d, &p, &err));
	}
	return fix_finish(s, out);
}

static void a_device_that_fails_ends_its_save_alone(void **state)
{
	struct fix *f = *state;
	static const struct {
		struct ckpt_fake_opts opts;
		int sys_errno;
		const char *says;
		bool well_after;
	} faults[] = {
		{ { .fail_at = 1 }, 0, "copy 1 failed", true },
		{ { .lost_at = 1 }, ENODEV, "device 'fake' is lost", false },
		{ { .hang_at = 1 }, ETIMEDOUT,
		  "device 'fake' stalled: a copy did not end within 60 ms",
		  true },
	};
	size_t len = 200 << 10; /* one copy a tensor */
	uint8_t *data = fix_bytes(len, 1);

	for (size_t i = 0; i < CKB_ARRAY_LEN(faults); i++) {
		struct ckpt_memory *bad = fake(faults[i].opts);
		struct ckpt_memory *good = fake((struct ckpt_fake_opts){ 0 });
		struct ckpt_err err = { 0 };
		char name[16];

		ckpt_memory_set_deadline(bad, 60 * MS);
		assert_code(save_two(f, "bad", good, bad, data, len, &err),
			    CKPT_EIO);
		assert_says(err, "tensor 'second'");
		assert_says(err, faults[i].says);
		assert_int_equal(err.sys_errno, faults[i].sys_errno);
		assert_int_equal(fix_files(f, "staging"), 0);
		snprintf(name, sizeof(name), "good%zu", i);
		assert_ok(save_two(f, name, good, good, data, len, &err));
		/* the device itself, once it is over */
		snprintf(name, sizeof(name), "again%zu", i);
		ckpt_memory_set_deadline(bad, 0);
		int rc = save_two(f, name, bad, bad, data, len, &err);

		assert_int_equal(rc == 0, faults[i].well_after);
		ckpt_memory_unref(bad);
		ckpt_memory_unref(good);
	}
	free(data);
}

/* A device that stands still fails the saves of that time, each at once but
 * the first, and none after. */
static void a_device_that_wakes_up_is_used_again(void **state)
{
	struct fix *f = *state;
	struct ckpt_memory *mem = fake((struct ckpt_fake_opts){
		.hang_at = 1, .hang_ns = 400 * MS });
	size_t len = 200 << 10;
	uint8_t *data = fix_bytes(len, 1);
	struct ckpt_err err = { 0 };
	int rc;

	ckpt_memory_set_deadline(mem, 50 * MS);
	assert_code(save_two(f, "a", mem, mem, data, len, &err), CKPT_EIO);
	assert_says(err, "': device 'fake' stalled"); /* of either tensor */
	ckpt_memory_set_deadline(mem, 0); /* not waited for: else 60 s */
	while ((rc = save_two(f, "b", mem, mem, data, len, &err)) != 0) {
		assert_says(err, "still holds on to it");
		usleep(10000);
	}
	ckpt_memory_unref(mem);
	struct ckpt_checkpoint *c = fix_opened(f->store, "b");

	fix_equal(c, fix_find(c, "model", "second"), data, len);
	ckpt_checkpoint_close(c);
	free(data);
}

/* Several providers at once, as many writers of one process have. */
struct reader {
	pthread_t thread;
	struct ckpt_provider provider;
	const uint8_t *want;
	size_t len;
	int rc;
	struct ckpt_err err;
};

static void *read_all(void *arg)
{
	struct reader *r = arg;
	uint8_t *have = malloc(r->len);

	r->rc = have ? r->provider.ops->read(r->provider.ctx, 0, have, r->len,
					     &r->err) : CKPT_ENOMEM;
	if (r->rc == 0 && memcmp(have, r->want, r->len) != 0)
		r->rc = 1;
	free(have);
	return NULL;
}

static void many_threads_read_many_providers(void **state)
{
	struct ckpt_memory *mem = fake((struct ckpt_fake_opts){ 0 });
	struct reader readers[24] = { 0 };
	size_t len = 700000;
	struct ckpt_err err = { 0 };
	uint8_t *data[CKB_ARRAY_LEN(readers)];

	(void)state;
	for (uint32_t i = 0; i < CKB_ARRAY_LEN(readers); i++) {
		data[i] = fix_bytes(len, i);
		readers[i].want = data[i];
		readers[i].len = len;
		assert_ok(ckpt_provider_device(mem, data[i], len, NULL,
					       &readers[i].provider, &err));
	}
	for (size_t i = 0; i < CKB_ARRAY_LEN(readers); i++)
		assert_int_equal(pthread_create(&readers[i].thread, NULL,
						read_all, &readers[i]), 0);
	for (size_t i = 0; i < CKB_ARRAY_LEN(readers); i++) {
		pthread_join(readers[i].thread, NULL);
		if (readers[i].rc != 0)
			fail_msg("reader %zu: %d: %s", i, readers[i].rc,
				 readers[i].err.message);
		ckpt_provider_release(&readers[i].provider);
		free(data[i]);
	}
	ckpt_memory_unref(mem);
}

#define TEST(name) \
	cmocka_unit_test_setup_teardown(name, fix_setup, fix_teardown)

int main(void)
{
	const struct CMUnitTest tests[] = {
		TEST(a_save_from_a_device_is_the_save_from_the_host),
		TEST(what_changes_after_captured_is_not_saved),
		TEST(shards_of_a_device_are_saved),
		TEST(copies_start_when_the_producer_is_done),
		cmocka_unit_test(any_range_is_read_into_any_memory),
		cmocka_unit_test(memory_that_the_host_reads_is_lent),
		cmocka_unit_test(what_cannot_be_is_refused),
		TEST(a_device_that_fails_ends_its_save_alone),
		TEST(a_device_that_wakes_up_is_used_again),
		cmocka_unit_test(many_threads_read_many_providers),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
