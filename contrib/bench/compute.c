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

static double seconds_of(uint64_t work, unsigned int cores)
{
	double zero = bench_now();

	bench_compute(work, cores);
	return bench_now() - zero;
}

uint64_t bench_calibrate(double seconds, unsigned int cores)
{
	uint64_t work = 8;
	double least = seconds_of(work, cores);

	while (least < seconds / 4) {
		work *= 2;
		least = seconds_of(work, cores);
	}
	for (int i = 0; i < 3; i++) { /* others may have disturbed it */
		double took = seconds_of(work, cores);

		if (took < least)
			least = took;
	}
	return (uint64_t)((double)work * seconds / least) + 1;
}
