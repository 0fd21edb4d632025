/* SPDX-License-Identifier: Apache-2.0 */
/*
 * gpu.h - tests on a real device, for plain C: no test library, so that they
 * build on a machine that has a compiler and CUDA and nothing else.
 *
 * Prints a line a test and 'N passed, N failed' at the end. Without a device:
 * the reason, and exit code 77.
 */
#ifndef GPU_H
#define GPU_H

#include <errno.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include <cuda_runtime_api.h>

#include <ckpt/writer.h>

#include "base/check.h"
#include "base/limits.h"
#include "mem/mem.h"

#define GPU __attribute__((unused)) static
#define MS 1000000ull

/* The first check that fails ends its test. */
static char gpu_why[2000];

#define CHECK(cond) \
	do { \
		if (!(cond)) { \
			snprintf(gpu_why, sizeof(gpu_why), "%s:%d: %s", \
				 __FILE__, __LINE__, #cond); \
			return; \
		} \
	} while (0)
#define OK(call) \
	do { \
		struct ckpt_err err = { 0 }; \
		int rc_ = (call); \
		if (rc_ != 0) { \
			snprintf(gpu_why, sizeof(gpu_why), "%s:%d: %s: %s", \
				 __FILE__, __LINE__, #call, err.message); \
			return; \
		} \
	} while (0)
#define CUDA(call) \
	do { \
		cudaError_t rc_ = (call); \
		if (rc_ != cudaSuccess) { \
			snprintf(gpu_why, sizeof(gpu_why), "%s:%d: %s: %s", \
				 __FILE__, __LINE__, #call, \
				 cudaGetErrorString(rc_)); \
			return; \
		} \
	} while (0)
#define FAILS(call, part) \
	do { \
		struct ckpt_err err = { 0 }; \
		int rc_ = (call); \
		if (rc_ == 0 || !strstr(err.message, part)) { \
			snprintf(gpu_why, sizeof(gpu_why), \
				 "%s:%d: %s: %d, '%s', not '%s'", __FILE__, \
				 __LINE__, #call, rc_, err.message, part); \
			return; \
		} \
	} while (0)

struct gpu_test {
	const char *name;
	void (*run)(struct ckpt_memory *mem);
};

GPU uint64_t gpu_now_ns(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return (uint64_t)t.tv_sec * 1000000000 + (uint64_t)t.tv_nsec;
}

/* Numbers of no pattern; freed by the caller. */
GPU uint8_t *gpu_bytes(size_t len, uint32_t seed)
{
	uint64_t x = seed * 0x9e3779b97f4a7c15ull + 1;
	uint8_t *data = malloc(len);

	for (size_t i = 0; data && i < len; i++) {
		x ^= x << 13;
		x ^= x >> 7;
		x ^= x << 17;
		data[i] = (uint8_t)(x >> 32);
	}
	return data;
}

/* A copy on the device; NULL: it failed. */
GPU void *gpu_upload(const void *data, size_t len)
{
	void *p = NULL;

	if (cudaMalloc(&p, len) != cudaSuccess ||
	    cudaMemcpy(p, data, len, cudaMemcpyHostToDevice) != cudaSuccess)
		return NULL;
	return p;
}

/* The device, or an end of the program: 77 where there is none. */
GPU struct ckpt_memory *gpu_open(const char *program)
{
	struct ckpt_memory *mem;
	struct ckpt_err err = { 0 };
	int rc = ckpt_memory_open("cuda:0", &mem, &err);

	if (rc == 0)
		return mem;
	if (rc == CKPT_ENOENT) {
		printf("%s: skipped: %s\n", program, err.message);
		exit(77);
	}
	printf("%s: failed (%d): %s\n", program, rc, err.message);
	exit(1);
}

GPU int gpu_run(const struct gpu_test *tests, size_t count)
{
	struct ckpt_memory *mem = gpu_open("gpu");
	int failed = 0;

	for (size_t i = 0; i < count; i++) {
		uint64_t start = gpu_now_ns();

		*gpu_why = 0;
		tests[i].run(mem);
		failed += *gpu_why != 0;
		printf("%s %s (%.2f s)%s%s\n", *gpu_why ? "FAILED" : "ok",
		       tests[i].name, (double)(gpu_now_ns() - start) / 1e9,
		       *gpu_why ? ": " : "", gpu_why);
		fflush(stdout);
	}
	ckpt_memory_unref(mem);
	printf("%zu passed, %d failed\n", count - (size_t)failed, failed);
	return failed > 0;
}

#endif
