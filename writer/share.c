/* SPDX-License-Identifier: Apache-2.0 */
/*
 * share.c - what the writer's threads take of processors and disks.
 *
 * Priorities are set by each thread for itself; one that the system does not
 * grant is no failure. A share of the processors is kept between jobs: each is
 * charged for what it took, and none begins while more was taken than the share
 * allows. So a slice is a tile, and nobody holds anything while resting.
 *
 * A caller who waits for CAPTURED is stopped, and leaves the processors to us:
 * meanwhile nothing is charged and nobody rests.
 */
#include <sched.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include "pipeline.h"

/* of ioprio_set(2), which glibc lacks */
#define IOPRIO_WHO_PROCESS 1
#define IOPRIO_CLASS_SHIFT 13

#define BURSTS_PER_S 50u

void ckw_share_begin(const struct ckpt_writer *w)
{
	const struct ckpt_writer_opts *o = &w->opts;

	/* root could raise what a nicer job was given */
	if (o->nice > getpriority(PRIO_PROCESS, 0))
		(void)setpriority(PRIO_PROCESS, (id_t)gettid(), o->nice);
	if (o->ionice != CKPT_IONICE_NONE)
		(void)syscall(SYS_ioprio_set, IOPRIO_WHO_PROCESS, 0,
			      ((int)o->ionice << IOPRIO_CLASS_SHIFT) |
			      (o->ionice == CKPT_IONICE_IDLE
				       ? 0 : o->ionice_level));
}

uint32_t ckw_processors(void)
{
	cpu_set_t set;
	int n = sched_getaffinity(0, sizeof(set), &set) == 0 ? CPU_COUNT(&set)
							     : 1;

	return n > 0 ? (uint32_t)n : 1;
}

void ckw_share_init(struct ckpt_writer *w)
{
	/* nanoseconds of processors in a second */
	uint64_t per_s = (uint64_t)ckw_processors() * w->opts.cpu_share *
			 10000000u;

	ckw_limit_init(&w->cpu, per_s, per_s / BURSTS_PER_S);
}

static int64_t clock_ns(clockid_t clock)
{
	struct timespec t;

	clock_gettime(clock, &t);
	return ckb_time_ns(&t);
}

void ckw_share_charge(struct ckpt_writer *w, int64_t *taken_ns, bool waited)
{
	if (w->opts.cpu_share == 0)
		return;
	int64_t now = clock_ns(CLOCK_THREAD_CPUTIME_ID);

	if (!waited)
		(void)ckw_limit_take(&w->cpu, clock_ns(CLOCK_MONOTONIC),
				     (uint64_t)(now - *taken_ns));
	*taken_ns = now;
}

bool ckw_share_spent(struct ckpt_writer *w, struct timespec *out_until)
{
	if (w->opts.cpu_share == 0)
		return false;
	int64_t until = ckw_limit_free(&w->cpu);

	*out_until = (struct timespec){ .tv_sec = until / 1000000000,
					.tv_nsec = until % 1000000000 };
	return until > clock_ns(CLOCK_MONOTONIC);
}
