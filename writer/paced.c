/* SPDX-License-Identifier: Apache-2.0 */
/*
 * paced.c - packs are written no faster than the writer was told.
 *
 * A system table over the store's: its writes wait until the writer's limit
 * lets them go, and move one small step, which who writes takes for a short
 * write and goes on. Steps are whole blocks, so direct writes stay direct.
 *
 * A thread waits as it does for a slow disk, within its write: others compute
 * meanwhile, and codec `auto` sees a disk that is behind. Who has been aborted,
 * or has failed, waits no more and takes nothing of the limit: what is left of
 * his writes is thrown away.
 */
#include <time.h>

#include "base/limits.h"
#include "pipeline.h"

#define STEP_MAX_BYTES (1u << 20)
#define STEPS_PER_S 64u
#define NAP_NS 20000000 /* an abort is seen in between */

static const struct ckw_paced *of(const struct ckb_sys *sys)
{
	return (const struct ckw_paced *)(const void *)sys;
}

size_t ckw_paced_step(uint64_t bytes_per_s)
{
	uint64_t step = bytes_per_s / STEPS_PER_S / CKB_PAYLOAD_ALIGN *
			CKB_PAYLOAD_ALIGN;

	if (step < CKB_PAYLOAD_ALIGN)
		return CKB_PAYLOAD_ALIGN;
	return step < STEP_MAX_BYTES ? (size_t)step : STEP_MAX_BYTES;
}

static bool in_vain(struct ckpt_save *s)
{
	return ckw_pool_failed(s, NULL);
}

static int64_t now_ns(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return ckb_time_ns(&t);
}

static void wait_for(const struct ckb_sys *sys, size_t len)
{
	struct ckpt_save *s = of(sys)->save;
	int64_t left, at;

	if (in_vain(s))
		return;
	at = ckw_limit_take(&s->writer->writes, now_ns(), len);
	while ((left = at - now_ns()) > 0 && !in_vain(s)) {
		struct timespec nap = {
			.tv_nsec = left < NAP_NS ? left : NAP_NS,
		};

		(void)clock_nanosleep(CLOCK_MONOTONIC, 0, &nap, NULL);
	}
}

static size_t step(const struct ckb_sys *sys)
{
	return (size_t)of(sys)->save->writer->writes.burst;
}

static ssize_t p_pwrite(const struct ckb_sys *sys, int fd, const void *src,
			size_t len, uint64_t off)
{
	const struct ckb_sys *in = of(sys)->inner;

	if (len > step(sys))
		len = step(sys);
	wait_for(sys, len);
	return in->pwrite(in, fd, src, len, off);
}

static ssize_t p_pwritev(const struct ckb_sys *sys, int fd,
			 const struct iovec *iov, int count, uint64_t off)
{
	const struct ckb_sys *in = of(sys)->inner;
	struct iovec part[2] = { { 0 } };
	size_t left = step(sys);
	int n = 0;

	for (; n < count && n < 2 && left > 0; n++) {
		part[n] = iov[n];
		if (part[n].iov_len > left)
			part[n].iov_len = left;
		left -= part[n].iov_len;
	}
	wait_for(sys, step(sys) - left);
	return in->pwritev(in, fd, part, n, off);
}

/* ---- what else a pack asks for: as it is ---- */

static int p_openat(const struct ckb_sys *sys, int dirfd, const char *path,
		    int flags, mode_t mode)
{
	const struct ckb_sys *in = of(sys)->inner;

	return in->openat(in, dirfd, path, flags, mode);
}

static int p_close(const struct ckb_sys *sys, int fd)
{
	const struct ckb_sys *in = of(sys)->inner;

	return in->close(in, fd);
}

static int p_fsync(const struct ckb_sys *sys, int fd)
{
	const struct ckb_sys *in = of(sys)->inner;

	return in->fsync(in, fd);
}

static int p_fdatasync(const struct ckb_sys *sys, int fd)
{
	const struct ckb_sys *in = of(sys)->inner;

	return in->fdatasync(in, fd);
}

static int p_sync_range(const struct ckb_sys *sys, int fd, uint64_t off,
			uint64_t len)
{
	const struct ckb_sys *in = of(sys)->inner;

	return in->sync_range(in, fd, off, len);
}

static int p_fallocate(const struct ckb_sys *sys, int fd, uint64_t off,
		       uint64_t len)
{
	const struct ckb_sys *in = of(sys)->inner;

	return in->fallocate(in, fd, off, len);
}

static int p_ftruncate(const struct ckb_sys *sys, int fd, uint64_t len)
{
	const struct ckb_sys *in = of(sys)->inner;

	return in->ftruncate(in, fd, len);
}

static int p_unlinkat(const struct ckb_sys *sys, int dirfd, const char *path,
		      int flags)
{
	const struct ckb_sys *in = of(sys)->inner;

	return in->unlinkat(in, dirfd, path, flags);
}

void ckw_paced_init(struct ckpt_save *s)
{
	if (s->writer->opts.write_bytes_per_s == 0)
		return;
	s->paced = (struct ckw_paced){
		.sys = { .openat = p_openat, .close = p_close,
			 .pwrite = p_pwrite, .pwritev = p_pwritev,
			 .fsync = p_fsync, .fdatasync = p_fdatasync,
			 .sync_range = p_sync_range,
			 .fallocate = p_fallocate, .ftruncate = p_ftruncate,
			 .unlinkat = p_unlinkat },
		.inner = cks_store_sys(s->writer->store), .save = s,
	};
	cks_stage_write_through(s->stage, &s->paced.sys);
}
