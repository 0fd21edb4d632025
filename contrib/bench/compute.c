/* SPDX-License-Identifier: Apache-2.0 */
/*
 * compute.c - what a training step does between saves: products of matrices
 * that fit the cache of a core.
 */
#include <pthread.h>
#include <string.h>

#include "bench.h"

#define SIDE 256

struct matrices {
	float a[SIDE][SIDE], b[SIDE][SIDE], c[SIDE][SIDE];
};

static struct matrices matrices[BENCH_CORES_MAX];

struct job {
	struct matrices *m;
	uint64_t work;
	pthread_t thread;
};

static void *multiply(void *arg)
{
	struct job *job = arg;
	struct matrices *m = job->m;

	for (uint64_t w = 0; w < job->work; w++)
		for (int i = 0; i < SIDE; i++) {
			memset(m->c[i], 0, sizeof(m->c[i]));
			for (int k = 0; k < SIDE; k++)
				for (int j = 0; j < SIDE; j++)
					m->c[i][j] += m->a[i][k] * m->b[k][j];
		}
	return NULL;
}

void bench_compute(uint64_t work, unsigned int cores)
{
	struct job job[BENCH_CORES_MAX];

	if (cores > BENCH_CORES_MAX)
		cores = BENCH_CORES_MAX;
	for (unsigned int i = 0; i < cores; i++)
		job[i] = (struct job){ .m = &matrices[i], .work = work };
	for (unsigned int i = 1; i < cores; i++)
		if (pthread_create(&job[i].thread, NULL, multiply, &job[i]) !=
		    0)
			job[i].work = 0;
	multiply(&job[0]);
	for (unsigned int i = 1; i < cores; i++)
		if (job[i].work)
			pthread_join(job[i].thread, NULL);
}

uint64_t bench_calibrate(double seconds, unsigned int cores)
{
	uint64_t work = 8;

	for (;;) {
		double took = bench_now();

		bench_compute(work, cores);
		took = bench_now() - took;
		if (took > seconds / 4)
			return (uint64_t)((double)work * seconds / took) + 1;
		work *= 2;
	}
}
