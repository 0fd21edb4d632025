/* SPDX-License-Identifier: Apache-2.0 */
/*
 * test_cuda.c - memory of a real CUDA device: copies, events, order after a
 * producer, lanes beside each other, a device that stands still, one that is
 * lost. Nothing of the store is needed (contrib/gpu-check).
 */
#include "gpu.h"

#include <stdatomic.h>

/* ---- one lane ---- */

static int copy_rows(struct ckpt_memory *mem, void *dst, size_t dst_pitch,
		     const void *src, size_t src_pitch, size_t width,
		     size_t height, struct ckpt_err *err)
{
	struct ckd_lane *lane;
	uint64_t event;
	int rc = ckd_lane_get(mem, &lane, err);

	if (rc < 0)
		return rc;
	rc = ckd_copy_2d(lane, dst, dst_pitch, src, src_pitch, width, height,
			 err);
	if (rc == 0)
		rc = ckd_record(lane, &event, err);
	if (rc == 0)
		rc = ckd_wait(lane, event, err);
	ckd_lane_put(lane, rc == 0);
	return rc;
}

static void copies_are_byte_for_byte(struct ckpt_memory *mem)
{
	static const size_t sizes[] = { 1, 3, 4096, 1 << 20, (64 << 20) + 7 };
	size_t max = (64 << 20) + 7;
	uint8_t *data = gpu_bytes(max, 1);
	uint8_t *dev = gpu_upload(data, max);
	void *to;

	CHECK(data && dev);
	OK(ckd_alloc(mem, max, &to, &err));
	CHECK((uintptr_t)to % 4096 == 0);
	for (size_t i = 0; i < CKB_ARRAY_LEN(sizes); i++) {
		memset(to, 0xDB, max);
		OK(copy_rows(mem, to, sizes[i], dev, sizes[i], sizes[i], 1,
			     &err));
		CHECK(memcmp(to, data, sizes[i]) == 0);
		if (sizes[i] < max)
			CHECK(((uint8_t *)to)[sizes[i]] == 0xDB);
	}
	ckd_free(mem, to);
	cudaFree(dev);
	free(data);
}

static void copies_of_rows_leave_the_gaps(struct ckpt_memory *mem)
{
	static const struct {
		size_t width, src_pitch, dst_pitch, height;
	} cases[] = {
		{ 1, 2, 1, 100000 }, { 80, 4000, 96, 5000 },
		{ 3000, 3000, 3000, 1000 }, { 4096, 8192, 4100, 2000 },
	};
	size_t max = 32 << 20;
	uint8_t *data = gpu_bytes(max, 2);
	uint8_t *dev = gpu_upload(data, max);
	void *mine;

	CHECK(data && dev);
	OK(ckd_alloc(mem, max, &mine, &err));
	uint8_t *to = mine;

	for (size_t i = 0; i < CKB_ARRAY_LEN(cases); i++) {
		size_t width = cases[i].width, pitch = cases[i].dst_pitch;

		memset(to, 0xDB, max);
		OK(copy_rows(mem, to, pitch, dev, cases[i].src_pitch, width,
			     cases[i].height, &err));
		for (size_t k = 0; k < cases[i].height; k++) {
			CHECK(memcmp(to + k * pitch,
				     data + k * cases[i].src_pitch,
				     width) == 0);
			for (size_t b = width; b < pitch; b++)
				CHECK(to[k * pitch + b] == 0xDB);
		}
	}
	ckd_free(mem, to);
	cudaFree(dev);
	free(data);
}

/* ---- providers: strided memory against a walk of the same bytes ---- */

struct layout {
	const char *what;
	enum ckpt_dtype dtype;
	struct ckpt_shape shape;
	int64_t stride[4]; /* in elements */
	int64_t first;
	size_t elements;
};

static const struct layout layouts[] = {
	{ "dense", CKPT_F32, { 2, { 3000, 1300 } }, { 1300, 1 }, 0, 3900000 },
	{ "scalar", CKPT_F64, { 0, { 0 } }, { 0 }, 2, 3 },
	{ "transposed", CKPT_BF16, { 2, { 1700, 1900 } }, { 1, 1700 }, 0,
	  3230000 },
	{ "channels last", CKPT_BF16, { 4, { 4, 64, 30, 50 } },
	  { 96000, 1, 3200, 64 }, 0, 384000 },
	{ "upside down", CKPT_U8, { 2, { 1000, 2000 } }, { -2000, 1 },
	  1998000, 2000000 },
	{ "broadcast", CKPT_F32, { 2, { 1000, 500 } }, { 0, 1 }, 0, 500 },
	{ "padded rows", CKPT_F16, { 2, { 900, 1000 } }, { 1024, 1 }, 0,
	  921600 },
	{ "every other", CKPT_C64, { 2, { 300, 400 } }, { 800, 2 }, 1,
	  240000 },
	{ "windows", CKPT_F32, { 2, { 5000, 16 } }, { 1, 1 }, 0, 5015 },
};

static void walk(const struct layout *l, const uint8_t *memory, uint8_t *out)
{
	uint32_t item = ckpt_dtype_bits(l->dtype) / 8;
	uint64_t n = 1;

	for (uint32_t d = 0; d < l->shape.ndim; d++)
		n *= l->shape.dim[d];
	for (uint64_t i = 0; i < n; i++) {
		int64_t at = l->first;
		uint64_t rest = i;

		for (uint32_t d = l->shape.ndim; d-- > 0;) {
			at += (int64_t)(rest % l->shape.dim[d]) * l->stride[d];
			rest /= l->shape.dim[d];
		}
		memcpy(out + i * item, memory + at * (int64_t)item, item);
	}
}

static void check_layout(struct ckpt_memory *mem, const struct layout *l,
			 uint8_t *to, uint8_t *want)
{
	uint32_t item = ckpt_dtype_bits(l->dtype) / 8;
	uint8_t *data = gpu_bytes(l->elements * item, 3);
	uint8_t *dev = gpu_upload(data, l->elements * item);
	struct ckpt_provider p;
	int64_t stride[4];

	CHECK(data && dev);
	for (uint32_t d = 0; d < l->shape.ndim; d++)
		stride[d] = l->stride[d] * (int64_t)item;
	OK(ckpt_provider_device_strided(mem, dev + l->first * (int64_t)item,
					l->dtype, &l->shape, stride, NULL, &p,
					&err));
	uint64_t bytes = p.ops->bytes(p.ctx);

	walk(l, data, want);
	memset(to, 0xDB, bytes);
	OK(p.ops->read(p.ctx, 0, to, bytes, &err));
	CHECK(memcmp(to, want, bytes) == 0);
	memset(to, 0xDB, bytes);
	OK(p.ops->read(p.ctx, bytes / 3, to, bytes / 2 - bytes / 3, &err));
	CHECK(memcmp(to, want + bytes / 3, bytes / 2 - bytes / 3) == 0);
	CHECK(!p.ops->borrow(p.ctx, 0, 1));
	ckpt_provider_release(&p);
	cudaFree(dev);
	free(data);
}

static void strided_memory_arrives_in_c_order(struct ckpt_memory *mem)
{
	size_t max = 16 << 20;
	uint8_t *plain = malloc(max), *want = malloc(max);
	void *staging;

	CHECK(plain && want);
	OK(ckd_alloc(mem, max, &staging, &err));
	for (size_t i = 0; !*gpu_why && i < CKB_ARRAY_LEN(layouts); i++) {
		check_layout(mem, &layouts[i], plain, want);
		if (!*gpu_why)
			check_layout(mem, &layouts[i], staging, want);
		if (*gpu_why)
			printf("  layout '%s'\n", layouts[i].what);
	}
	ckd_free(mem, staging);
	free(plain);
	free(want);
}

/* ---- streams that a test holds ---- */

struct gate {
	cudaStream_t stream;
	atomic_int open;
};

static void wait_open(void *arg)
{
	struct gate *g = arg;

	for (int i = 0; !atomic_load(&g->open) && i < 20000; i++)
		usleep(1000);
}

/* A stream that does nothing until the gate is opened. */
static cudaError_t gate_close(struct gate *g)
{
	cudaError_t e = cudaStreamCreateWithFlags(&g->stream,
						  cudaStreamNonBlocking);

	atomic_init(&g->open, 0);
	return e != cudaSuccess ? e
				: cudaLaunchHostFunc(g->stream, wait_open, g);
}

static void gate_end(struct gate *g)
{
	atomic_store(&g->open, 1);
	(void)cudaStreamSynchronize(g->stream);
	(void)cudaStreamDestroy(g->stream);
}

/* Memory that is 0, and 0x5A once the gate was opened. */
static void copies_start_after_the_producers_work(struct ckpt_memory *mem)
{
	size_t len = 5 << 20;
	uint8_t *have = malloc(len);
	void *dev = NULL;
	struct gate g;
	struct ckpt_provider p;

	CHECK(have);
	CUDA(cudaMalloc(&dev, len));
	CUDA(cudaMemset(dev, 0, len));
	CUDA(cudaDeviceSynchronize());
	CUDA(gate_close(&g));
	CUDA(cudaMemsetAsync(dev, 0x5A, len, g.stream));
	OK(ckpt_provider_device(mem, dev, len, g.stream, &p, &err));
	/* work that comes later is not waited for, nor seen: it is held */
	atomic_store(&g.open, 1);
	OK(p.ops->read(p.ctx, 0, have, len, &err));
	for (size_t i = 0; i < len; i++)
		CHECK(have[i] == 0x5A);
	ckpt_provider_release(&p);
	gate_end(&g);
	cudaFree(dev);
	free(have);
}

/* While one lane waits for a producer, another copies. */
static void two_lanes_overlap(struct ckpt_memory *mem)
{
	size_t len = 8 << 20;
	uint8_t *data = gpu_bytes(len, 4);
	uint8_t *dev = gpu_upload(data, len);
	struct ckd_lane *held, *lane;
	uint64_t event, later;
	void *a, *b, *ready;
	struct gate g;

	CHECK(data && dev);
	OK(ckd_alloc(mem, len, &a, &err));
	OK(ckd_alloc(mem, len, &b, &err));
	memset(a, 0xDB, len);
	CUDA(gate_close(&g));
	OK(ckd_ready_open(mem, g.stream, &ready, &err));
	OK(ckd_lane_get(mem, &held, &err));
	OK(ckd_follow(held, ready, &err));
	OK(ckd_copy_2d(held, a, len, dev, len, len, 1, &err));
	OK(ckd_record(held, &later, &err));
	OK(ckd_lane_get(mem, &lane, &err));
	OK(ckd_copy_2d(lane, b, len, dev, len, len, 1, &err));
	OK(ckd_record(lane, &event, &err));
	OK(ckd_wait(lane, event, &err));
	CHECK(memcmp(b, data, len) == 0);
	CHECK(((uint8_t *)a)[0] == 0xDB && ((uint8_t *)a)[len - 1] == 0xDB);
	atomic_store(&g.open, 1);
	OK(ckd_wait(held, later, &err));
	CHECK(memcmp(a, data, len) == 0);
	ckd_lane_put(held, true);
	ckd_lane_put(lane, true);
	ckd_ready_close(mem, ready);
	ckd_free(mem, a);
	ckd_free(mem, b);
	gate_end(&g);
	cudaFree(dev);
	free(data);
}

static void a_device_that_stands_still_meets_its_deadline(
	struct ckpt_memory *mem)
{
	size_t len = 1 << 20;
	uint8_t *have = calloc(1, len), *data = gpu_bytes(len, 5);
	uint8_t *dev = gpu_upload(data, len);
	struct ckpt_provider p;
	struct gate g;

	CHECK(have && data && dev);
	CUDA(gate_close(&g));
	OK(ckpt_provider_device(mem, dev, len, g.stream, &p, &err));
	ckpt_memory_set_deadline(mem, 100 * MS);
	uint64_t start = gpu_now_ns();

	FAILS(p.ops->read(p.ctx, 0, have, len, &err),
	      "stalled: a copy did not end within 100 ms");
	CHECK(gpu_now_ns() - start < 5000 * MS);
	start = gpu_now_ns();
	FAILS(p.ops->read(p.ctx, 0, have, len, &err),
	      "still holds on to it");
	CHECK(gpu_now_ns() - start < 500 * MS);
	gate_end(&g);
	ckpt_memory_set_deadline(mem, 0);
	for (size_t i = 0; i < len; i++)
		CHECK(have[i] == 0);
	OK(p.ops->read(p.ctx, 0, have, len, &err));
	CHECK(memcmp(have, data, len) == 0);
	ckpt_provider_release(&p);
	cudaFree(dev);
	free(data);
	free(have);
}

static void an_address_that_is_none_fails_and_no_more(struct ckpt_memory *mem)
{
	uint8_t to[16], data[16] = "abcdefghijklmno";
	uint8_t *dev = gpu_upload(data, 16);
	struct ckpt_provider p;

	CHECK(dev);
	OK(ckpt_provider_device(mem, (void *)0x10, 16, NULL, &p, &err));
	FAILS(p.ops->read(p.ctx, 0, to, 16, &err),
	      "device 'cuda:0': copy from the device");
	CHECK(cudaPeekAtLastError() == cudaSuccess);
	ckpt_provider_release(&p);
	OK(copy_rows(mem, to, 16, dev, 16, 16, 1, &err));
	CHECK(memcmp(to, data, 16) == 0);
	cudaFree(dev);
}

/* ---- a device that is lost: a process of its own ---- */

#define LOSE "--lose"

/* A kernel that writes to nowhere: an error that stays. */
static cudaError_t fault(void)
{
	static const char ptx[] =
		".version 7.0\n.target sm_75\n.address_size 64\n"
		".visible .entry fault()\n{\n.reg .b64 %a;\n.reg .b32 %v;\n"
		"mov.u64 %a, 16;\nmov.u32 %v, 1;\nst.global.u32 [%a], %v;\n"
		"ret;\n}\n";
	cudaLibrary_t library;
	cudaKernel_t kernel;
	cudaError_t e = cudaLibraryLoadData(&library, ptx, NULL, NULL, 0, NULL,
					    NULL, 0);

	if (e == cudaSuccess)
		e = cudaLibraryGetKernel(&kernel, library, "fault");
	if (e == cudaSuccess)
		e = cudaLaunchKernel((const void *)kernel, (dim3){ 1, 1, 1 },
				     (dim3){ 1, 1, 1 }, NULL, 0, NULL);
	return e;
}

/* In the child: 0, as it should be. */
static int lose(void)
{
	struct ckpt_memory *mem = gpu_open("gpu");
	uint8_t data[64] = { 1 }, to[64];
	uint8_t *dev = gpu_upload(data, 64);
	struct ckpt_provider p;
	struct ckpt_err err = { 0 };

	if (!dev || ckpt_provider_device(mem, dev, 64, NULL, &p, &err) != 0 ||
	    p.ops->read(p.ctx, 0, to, 64, &err) != 0) {
		printf("  before: %s\n", err.message);
		return 1;
	}
	cudaError_t e = fault();

	if (e != cudaSuccess) {
		printf("  no fault: %s\n", cudaGetErrorString(e));
		return 1;
	}
	(void)cudaDeviceSynchronize();
	for (int i = 0; i < 2; i++) {
		err = (struct ckpt_err){ 0 };
		if (p.ops->read(p.ctx, 0, to, 64, &err) != CKPT_EIO ||
		    err.sys_errno != ENODEV ||
		    !strstr(err.message, "device 'cuda:0' is lost")) {
			printf("  after: %s\n", err.message);
			return 1;
		}
	}
	printf("  %s\n", err.message);
	ckpt_provider_release(&p);
	ckpt_memory_unref(mem);
	return 0;
}

static void a_lost_device_is_an_error_and_the_process_lives(
	struct ckpt_memory *mem)
{
	char self[4096], command[4200];
	ssize_t n = readlink("/proc/self/exe", self, sizeof(self) - 1);

	(void)mem;
	CHECK(n > 0);
	self[n] = 0;
	snprintf(command, sizeof(command), "'%s' " LOSE, self);
	fflush(stdout);
	CHECK(system(command) == 0);
}

/* ---- figures: no test ---- */

static void rates_are_shown(struct ckpt_memory *mem)
{
	size_t len = 1u << 30;
	uint8_t *plain = malloc(len);
	void *dev = NULL, *staging;
	struct ckpt_provider p;

	CHECK(plain);
	CUDA(cudaMalloc(&dev, len));
	CUDA(cudaMemset(dev, 7, len));
	CUDA(cudaDeviceSynchronize());
	OK(ckd_alloc(mem, len, &staging, &err));
	OK(ckpt_provider_device(mem, dev, len, NULL, &p, &err));
	for (int i = 0; i < 4; i++) { /* the first of each warms up */
		uint8_t *to = i < 2 ? staging : plain;
		uint64_t start = gpu_now_ns();

		OK(p.ops->read(p.ctx, 0, to, len, &err));
		CHECK(to[0] == 7 && to[len - 1] == 7);
		if (i % 2 == 1)
			printf("  1 GiB into %s memory: %.1f GB/s\n",
			       i < 2 ? "staging" : "plain",
			       (double)len /
				       (double)(gpu_now_ns() - start));
	}
	ckpt_provider_release(&p);
	ckd_free(mem, staging);
	cudaFree(dev);
	free(plain);
}

#define TEST(name) { #name, name }

int main(int argc, char **argv)
{
	static const struct gpu_test tests[] = {
		TEST(copies_are_byte_for_byte),
		TEST(copies_of_rows_leave_the_gaps),
		TEST(strided_memory_arrives_in_c_order),
		TEST(copies_start_after_the_producers_work),
		TEST(two_lanes_overlap),
		TEST(a_device_that_stands_still_meets_its_deadline),
		TEST(an_address_that_is_none_fails_and_no_more),
		TEST(a_lost_device_is_an_error_and_the_process_lives),
		TEST(rates_are_shown),
	};

	if (argc > 1 && strcmp(argv[1], LOSE) == 0)
		return lose();
	return gpu_run(tests, CKB_ARRAY_LEN(tests));
}
