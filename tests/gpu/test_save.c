/* SPDX-License-Identifier: Apache-2.0 */
/*
 * test_save.c - a whole save from a real CUDA device is the save of the same
 * bytes from the host: every layout, every root.
 */
#include "gpu.h"

#include "device_fixture.h"

static struct ckpt_memory *device;

static void upload(uint8_t *memory[LAYOUTS], uint8_t *dev[LAYOUTS])
{
	for (uint32_t i = 0; i < LAYOUTS; i++) {
		size_t item = ckpt_dtype_bits(layouts[i].dtype) / 8;

		dev[i] = gpu_upload(memory[i], layouts[i].elements * item);
		assert_non_null(dev[i]);
	}
}

static void a_save_from_a_device_is_the_save_from_the_host(void **state)
{
	struct fix *f = *state;
	uint8_t *memory[LAYOUTS], *dev[LAYOUTS];
	struct ckpt_err err = { 0 };

	fill(memory);
	upload(memory, dev);
	assert_ok(fix_finish(describe(f->writer, "device", device, dev, NULL),
			     &err));
	assert_ok(fix_finish(describe(f->writer, "host", NULL, memory, NULL),
			     &err));
	expect_same(f->store, "host", "device");
	for (uint32_t i = 0; i < LAYOUTS; i++)
		cudaFree(dev[i]);
	drop(memory);
}

/* async-01: after CAPTURED the step may write to it. */
static void what_changes_after_captured_is_not_saved(void **state)
{
	struct fix *f = *state;
	uint8_t *memory[LAYOUTS], *dev[LAYOUTS];
	struct ckpt_err err = { 0 };

	fill(memory);
	upload(memory, dev);
	struct ckpt_save *s = describe(f->writer, "device", device, dev, NULL);

	assert_ok(ckpt_save_start(s, &err));
	assert_ok(ckpt_save_wait(s, CKPT_CAPTURED, &err));
	for (uint32_t i = 0; i < LAYOUTS; i++) {
		size_t item = ckpt_dtype_bits(layouts[i].dtype) / 8;

		assert_int_equal(cudaMemset(dev[i], 2, layouts[i].elements *
					    item), 0);
	}
	assert_int_equal(cudaDeviceSynchronize(), 0);
	assert_ok(ckpt_save_wait(s, CKPT_DURABLE, &err));
	ckpt_save_free(s);
	assert_ok(fix_finish(describe(f->writer, "host", NULL, memory, NULL),
			     &err));
	expect_same(f->store, "host", "device");
	for (uint32_t i = 0; i < LAYOUTS; i++)
		cudaFree(dev[i]);
	drop(memory);
}

/* Training goes on in a stream; the save sees what was queued before it. */
static void a_save_follows_the_producers_stream(void **state)
{
	struct fix *f = *state;
	uint8_t *memory[LAYOUTS], *dev[LAYOUTS];
	struct ckpt_err err = { 0 };
	cudaStream_t stream;
	size_t big = 512u << 20;
	void *work = NULL;

	fill(memory);
	upload(memory, dev);
	assert_int_equal(cudaStreamCreateWithFlags(&stream,
						   cudaStreamNonBlocking), 0);
	assert_int_equal(cudaMalloc(&work, big), 0);
	for (int i = 0; i < 100; i++)
		assert_int_equal(cudaMemsetAsync(work, i, big, stream), 0);
	for (uint32_t i = 0; i < LAYOUTS; i++) {
		size_t item = ckpt_dtype_bits(layouts[i].dtype) / 8;
		size_t len = layouts[i].elements * item;

		memset(memory[i], (int)i + 1, len);
		assert_int_equal(cudaMemsetAsync(dev[i], (int)i + 1, len,
						 stream), 0);
	}
	assert_ok(fix_finish(describe(f->writer, "device", device, dev,
				      stream), &err));
	assert_ok(fix_finish(describe(f->writer, "host", NULL, memory, NULL),
			     &err));
	expect_same(f->store, "host", "device");
	assert_int_equal(cudaStreamSynchronize(stream), 0);
	cudaStreamDestroy(stream);
	cudaFree(work);
	for (uint32_t i = 0; i < LAYOUTS; i++)
		cudaFree(dev[i]);
	drop(memory);
}

#define TEST(name) \
	cmocka_unit_test_setup_teardown(name, fix_setup, fix_teardown)

int main(void)
{
	const struct CMUnitTest tests[] = {
		TEST(a_save_from_a_device_is_the_save_from_the_host),
		TEST(what_changes_after_captured_is_not_saved),
		TEST(a_save_follows_the_producers_stream),
	};

	device = gpu_open("save");
	int failed = cmocka_run_group_tests(tests, NULL, NULL);

	ckpt_memory_unref(device);
	return failed;
}
