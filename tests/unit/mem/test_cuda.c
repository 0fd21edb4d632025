/* SPDX-License-Identifier: Apache-2.0 */
/*
 * test_cuda.c - store/mem/cuda.c over a runtime and a driver that are not
 * there: that it waits, gives up, tells a lost device from a failed copy, and
 * leaves threads as they were. What a real device does is tests/gpu.
 */
#include "mem_fixture.h"

#include <dlfcn.h>
#include <stdio.h>

#include <cuda.h>
#include <cuda_runtime_api.h>

/* ---- the runtime ---- */

static struct {
	cudaError_t fail;       /* what calls of @fail_in answer */
	const char *fail_in;
	int not_ready;          /* queries that many times; < 0: for ever */
	int streams, events;    /* that exist */
	int copies_1d, copies_2d;
	int pitch_max;
	void *followed, *recorded_on;
	cudaError_t last;       /* the thread's last error */
} stub;

static cudaError_t answer(const char *call)
{
	if (stub.fail_in && strcmp(call, stub.fail_in) == 0 && stub.fail)
		return stub.last = stub.fail;
	return cudaSuccess;
}

static cudaError_t query(void)
{
	if (stub.not_ready != 0) {
		stub.not_ready -= stub.not_ready > 0;
		return stub.last = cudaErrorNotReady;
	}
	return answer("query");
}

cudaError_t cudaGetLastError(void)
{
	cudaError_t e = stub.last;

	stub.last = cudaSuccess;
	return e;
}

const char *cudaGetErrorName(cudaError_t error)
{
	return error == cudaErrorIllegalAddress ? "cudaErrorIllegalAddress"
						: "cudaErrorSome";
}

const char *cudaGetErrorString(cudaError_t error)
{
	return error == cudaErrorIllegalAddress
		       ? "an illegal memory access was encountered" : "some";
}

cudaError_t cudaHostAlloc(void **out, size_t bytes, unsigned int flags)
{
	assert_int_equal(flags, cudaHostAllocPortable);
	*out = aligned_alloc(4096, (bytes + 4095) / 4096 * 4096);
	cudaError_t e = answer("alloc");

	if (e != cudaSuccess)
		free(*out);
	return e;
}

cudaError_t cudaFreeHost(void *p)
{
	free(p);
	return answer("free");
}

cudaError_t cudaStreamCreateWithFlags(cudaStream_t *out, unsigned int flags)
{
	cudaError_t e = answer("stream");

	assert_int_equal(flags, cudaStreamNonBlocking);
	if (e == cudaSuccess) {
		*out = (cudaStream_t)malloc(1);
		stub.streams++;
	}
	return e;
}

cudaError_t cudaStreamDestroy(cudaStream_t stream)
{
	free(stream);
	stub.streams--;
	return cudaSuccess;
}

cudaError_t cudaStreamQuery(cudaStream_t stream)
{
	(void)stream;
	return query();
}

cudaError_t cudaStreamWaitEvent(cudaStream_t stream, cudaEvent_t event,
				unsigned int flags)
{
	(void)stream;
	assert_int_equal(flags, 0);
	stub.followed = event;
	return answer("follow");
}

cudaError_t cudaEventCreateWithFlags(cudaEvent_t *out, unsigned int flags)
{
	cudaError_t e = answer("event");

	assert_int_equal(flags, cudaEventDisableTiming);
	if (e == cudaSuccess) {
		*out = (cudaEvent_t)malloc(1);
		stub.events++;
	}
	return e;
}

cudaError_t cudaEventDestroy(cudaEvent_t event)
{
	free(event);
	stub.events--;
	return cudaSuccess;
}

cudaError_t cudaEventRecord(cudaEvent_t event, cudaStream_t stream)
{
	(void)event;
	stub.recorded_on = stream;
	return answer("record");
}

cudaError_t cudaEventQuery(cudaEvent_t event)
{
	(void)event;
	return query();
}

cudaError_t cudaMemcpyAsync(void *dst, const void *src, size_t count,
			    enum cudaMemcpyKind kind, cudaStream_t stream)
{
	(void)stream;
	assert_int_equal(kind, cudaMemcpyDeviceToHost);
	memcpy(dst, src, count);
	stub.copies_1d++;
	return answer("copy");
}

cudaError_t cudaMemcpy2DAsync(void *dst, size_t dst_pitch, const void *src,
			      size_t src_pitch, size_t width, size_t height,
			      enum cudaMemcpyKind kind, cudaStream_t stream)
{
	(void)stream;
	assert_int_equal(kind, cudaMemcpyDeviceToHost);
	for (size_t i = 0; i < height; i++)
		memcpy((char *)dst + i * dst_pitch,
		       (const char *)src + i * src_pitch, width);
	stub.copies_2d++;
	return answer("copy");
}

cudaError_t cudaDeviceGetAttribute(int *out, enum cudaDeviceAttr attribute,
				   int device)
{
	(void)device;
	assert_int_equal(attribute, cudaDevAttrMaxPitch);
	*out = stub.pitch_max;
	return answer("attribute");
}

/* ---- the driver, which the module loads ---- */

struct driver_stub {
	CUresult init, get, retain, push;
	int contexts;
	int retained;
};
static struct driver_stub *driver;

int ckpt_memory_module_1(const char *device,
			 const struct ckpt_memory_ops **out_ops,
			 void **out_ctx, struct ckpt_err *err);

static int open_device(const char *device, struct ckpt_memory **out,
		       struct ckpt_err *err)
{
	const struct ckpt_memory_ops *ops;
	void *ctx;
	int rc = ckpt_memory_module_1(device, &ops, &ctx, err);

	return rc < 0 ? rc : ckpt_memory_new("cuda:0", ops, ctx, out, err);
}

static int setup(void **state)
{
	void *so = dlopen("libcuda.so.1", RTLD_NOW);

	memset(&stub, 0, sizeof(stub));
	stub.pitch_max = 1 << 20;
	driver = so ? dlsym(so, "driver_stub") : NULL;
	if (!driver)
		return -1;
	memset(driver, 0, sizeof(*driver));
	*state = NULL;
	return open_device("0", (struct ckpt_memory **)state, NULL);
}

static int teardown(void **state)
{
	memset(&driver->init, 0, offsetof(struct driver_stub, contexts));
	stub.fail_in = NULL;
	stub.not_ready = 0;
	ckpt_memory_unref(*state);
	/* whatever the test did: nothing is left, no thread is changed */
	if (stub.streams || stub.events || driver->contexts ||
	    driver->retained || stub.last != cudaSuccess) {
		fprintf(stderr, "left: %d streams, %d events, %d contexts, "
			"%d devices, error %d\n", stub.streams, stub.events,
			driver->contexts, driver->retained, stub.last);
		return -1;
	}
	return 0;
}

/* ---- opening ---- */

static void a_device_is_a_number(void **state)
{
	static const char *const bad[] = { "", "x", "-1", "+1", "0x1", "1 ",
					   " 1", "10000", "1:2" };
	struct ckpt_memory *mem;

	(void)state;
	for (size_t i = 0; i < CKB_ARRAY_LEN(bad); i++) {
		struct ckpt_err err = { 0 };

		assert_code(open_device(bad[i], &mem, &err), CKPT_EINVAL);
		assert_says(err, "is no CUDA device");
	}
}

static void what_does_not_open_says_why(void **state)
{
	static const struct {
		struct driver_stub driver;
		const char *device;
		cudaError_t attribute;
		int code;
		const char *says;
	} cases[] = {
		{ { .init = CUDA_ERROR_NO_DEVICE }, "0", 0, CKPT_ENOENT,
		  "sees no device" },
		{ { .init = CUDA_ERROR_UNKNOWN }, "0", 0, CKPT_EIO,
		  "does not start" },
		{ { .init = 0 }, "7", 0, CKPT_ENOENT, "no device of this" },
		{ { .retain = CUDA_ERROR_INVALID_DEVICE }, "1", 0, CKPT_EIO,
		  "gives no context" },
		{ { .init = 0 }, "0", cudaErrorInsufficientDriver,
		  CKPT_ENOENT, "the CUDA runtime: some" },
	};
	struct ckpt_memory *mem;

	(void)state;
	for (size_t i = 0; i < CKB_ARRAY_LEN(cases); i++) {
		struct ckpt_err err = { 0 };
		int retained = driver->retained;

		*driver = cases[i].driver;
		driver->retained = retained;
		stub.fail_in = "attribute";
		stub.fail = cases[i].attribute;
		assert_code(open_device(cases[i].device, &mem, &err),
			    cases[i].code);
		assert_says(err, cases[i].says);
		assert_int_equal(driver->retained, retained);
	}
}

/* ---- copies ---- */

static void copies_are_plain_or_of_rows(void **state)
{
	struct ckpt_memory *mem = *state;
	struct ckd_lane *lane;
	struct ckpt_err err = { 0 };
	uint8_t from[100], to[100] = { 0 };
	uint64_t event;

	for (int i = 0; i < 100; i++)
		from[i] = (uint8_t)i;
	assert_ok(ckd_lane_get(mem, &lane, &err));
	assert_ok(ckd_copy_2d(lane, to, 10, from, 10, 10, 1, &err));
	assert_int_equal(stub.copies_1d, 1);
	assert_ok(ckd_copy_2d(lane, to + 10, 5, from + 10, 8, 5, 4, &err));
	assert_int_equal(stub.copies_2d, 1);
	assert_memory_equal(to, from, 15);
	assert_memory_equal(to + 15, from + 18, 5);
	assert_ok(ckd_record(lane, &event, &err));
	stub.not_ready = 5;
	assert_ok(ckd_wait(lane, event, &err));
	assert_int_equal(stub.not_ready, 0);
	ckd_lane_put(lane, true);
}

static void pitches_that_a_device_does_not_take_are_rows(void **state)
{
	struct ckpt_memory *mem = *state;
	struct ckd_lane *lane;
	struct ckpt_err err = { 0 };
	uint8_t *from = calloc(3, (1 << 20) + 1), to[3];

	assert_non_null(from);
	from[(1 << 20) + 1] = 1;
	from[2 * ((1 << 20) + 1)] = 2;
	assert_ok(ckd_lane_get(mem, &lane, &err));
	assert_ok(ckd_copy_2d(lane, to, 1, from, (1 << 20) + 1, 1, 3, &err));
	assert_int_equal(stub.copies_2d, 0);
	assert_int_equal(stub.copies_1d, 3);
	assert_memory_equal(to, "\0\1\2", 3);
	ckd_lane_put(lane, true);
	free(from);
}

static void a_lane_follows_the_producers_stream(void **state)
{
	struct ckpt_memory *mem = *state;
	struct ckd_lane *lane;
	struct ckpt_err err = { 0 };
	void *ready;

	assert_ok(ckd_ready_open(mem, cudaStreamPerThread, &ready, &err));
	assert_ptr_equal(stub.recorded_on, cudaStreamPerThread);
	assert_ok(ckd_lane_get(mem, &lane, &err));
	assert_ok(ckd_follow(lane, ready, &err));
	assert_ptr_equal(stub.followed, ready);
	ckd_lane_put(lane, true);
	ckd_ready_close(mem, ready);
	stub.fail_in = "record";
	stub.fail = cudaErrorInvalidResourceHandle;
	assert_code(ckd_ready_open(mem, cudaStreamLegacy, &ready, &err),
		    CKPT_EIO);
	assert_says(err, "the producer's stream");
}

/* ---- failures ---- */

static void every_call_that_fails_is_an_error_and_nothing_more(void **state)
{
	static const struct {
		const char *call;
		cudaError_t error;
		int code;
		const char *says;
	} cases[] = {
		{ "stream", cudaErrorUnknown, CKPT_EIO, "make a stream" },
		{ "event", cudaErrorMemoryAllocation, CKPT_ENOMEM,
		  "make a stream" },
		{ "copy", cudaErrorInvalidValue, CKPT_EIO,
		  "copy from the device" },
		{ "record", cudaErrorUnknown, CKPT_EIO, "record an event" },
		{ "query", cudaErrorUnknown, CKPT_EIO, "wait for a copy" },
	};
	struct ckpt_memory *mem = *state;
	char to = 0;
	void *p;

	for (size_t i = 0; i < CKB_ARRAY_LEN(cases); i++) {
		struct ckpt_err err = { 0 };

		stub.fail_in = cases[i].call;
		stub.fail = cases[i].error;
		assert_code(fix_copy(mem, &to, "a", 1, &err), cases[i].code);
		assert_says(err, "device 'cuda:0': ");
		assert_says(err, cases[i].says);
		assert_int_equal(err.sys_errno, 0);
		stub.fail_in = NULL;
		assert_ok(fix_copy(mem, &to, "b", 1, &err));
		assert_int_equal(to, 'b');
		/* the next case opens a lane again */
		struct ckd_lane *lane;

		assert_ok(ckd_lane_get(mem, &lane, &err));
		ckd_lane_put(lane, false);
	}
	struct ckpt_err err = { 0 };

	stub.fail_in = "alloc";
	stub.fail = cudaErrorMemoryAllocation;
	assert_code(ckd_alloc(mem, 100, &p, &err), CKPT_ENOMEM);
	assert_says(err, "pinned memory");
}

static void errors_that_stay_lose_the_device(void **state)
{
	static const cudaError_t sticky[] = {
		cudaErrorIllegalAddress, cudaErrorECCUncorrectable,
		cudaErrorLaunchFailure, cudaErrorNvlinkUncorrectable,
		cudaErrorContextIsDestroyed, cudaErrorAssert,
		cudaErrorMisalignedAddress, cudaErrorIllegalInstruction,
	};
	char to = 0;

	(void)state;
	for (size_t i = 0; i < CKB_ARRAY_LEN(sticky); i++) {
		struct ckpt_memory *mem;
		struct ckpt_err err = { 0 };

		assert_ok(open_device("1", &mem, &err));
		stub.fail_in = "query";
		stub.fail = sticky[i];
		assert_code(fix_copy(mem, &to, "a", 1, &err), CKPT_EIO);
		assert_int_equal(err.sys_errno, ENODEV);
		assert_says(err, "device 'cuda:0' is lost: wait for a copy");
		if (i == 0)
			assert_says(err, "an illegal memory access was "
					 "encountered "
					 "(cudaErrorIllegalAddress)");
		int streams = stub.streams;

		assert_code(fix_copy(mem, &to, "a", 1, &err), CKPT_EIO);
		assert_says(err, "is lost");
		assert_int_equal(stub.streams, streams);
		ckpt_memory_unref(mem);
		stub.fail_in = NULL;
		assert_int_equal(stub.last, cudaSuccess);
	}
}

static void a_stream_that_stands_still_keeps_its_lane(void **state)
{
	struct ckpt_memory *mem = *state;
	struct ckpt_err err = { 0 };
	char to = 0;

	ckpt_memory_set_deadline(mem, 10 * MS);
	stub.not_ready = -1;
	assert_code(fix_copy(mem, &to, "a", 1, &err), CKPT_EIO);
	assert_says(err, "stalled: a copy did not end within 10 ms");
	assert_int_equal(stub.streams, 1);
	stub.not_ready = 0;
	assert_ok(fix_copy(mem, &to, "b", 1, &err));
	assert_int_equal(stub.streams, 1);
}

static void a_context_that_cannot_be_entered_is_lost(void **state)
{
	struct ckpt_memory *mem = *state;
	struct ckpt_err err = { 0 };
	char to = 0;

	driver->push = CUDA_ERROR_CONTEXT_IS_DESTROYED;
	assert_code(fix_copy(mem, &to, "a", 1, &err), CKPT_EIO);
	assert_says(err, "is lost: enter the device's context");
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, setup, teardown)

int main(void)
{
	const struct CMUnitTest tests[] = {
		TEST(a_device_is_a_number),
		TEST(what_does_not_open_says_why),
		TEST(copies_are_plain_or_of_rows),
		TEST(pitches_that_a_device_does_not_take_are_rows),
		TEST(a_lane_follows_the_producers_stream),
		TEST(every_call_that_fails_is_an_error_and_nothing_more),
		TEST(errors_that_stay_lose_the_device),
		TEST(a_stream_that_stands_still_keeps_its_lane),
		TEST(a_context_that_cannot_be_entered_is_lost),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
