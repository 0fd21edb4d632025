/* SPDX-License-Identifier: Apache-2.0 */
/*
 * mem/mem.h - what the pipeline and the providers do with a kind of memory:
 * staging memory, and lanes.
 *
 * A lane is taken from the memory's pool, used by one thread, and put back.
 * Every failure of it comes with the device's name, and is remembered: a lane
 * that failed is closed when it is put back, a lost device stays lost, and a
 * lane that cannot be closed (its device still holds a copy) is kept aside,
 * with all staging memory that is freed meanwhile.
 */
#ifndef CKD_MEM_H
#define CKD_MEM_H

#include <ckpt/memory.h>

#include "base/check.h"

/* Does the processor read device addresses as they are? */
bool ckd_is_host(const struct ckpt_memory *mem);

/* ---- staging memory ---- */

/*
 * Memory that @mem copies into fastest, 4096-aligned. At most CKB_SLAB_MAX at a
 * time (CKPT_ELIMIT).
 *
 * Memory that a failed lane was copying into may still be written to: free it,
 * and do not use it again. ckd_free() lets go of it when that is safe.
 */
CKB_MUST int ckd_alloc(struct ckpt_memory *mem, size_t bytes, void **out,
		       struct ckpt_err *err);
void ckd_free(struct ckpt_memory *mem, void *staging);

/* Lies [@p, @p + @len) in memory of ckd_alloc()? */
bool ckd_is_staging(struct ckpt_memory *mem, const void *p, size_t len);

/* ---- lanes ---- */

struct ckd_lane;

/*
 * A lane of the pool; a thread gets the same one again where it can, and takes
 * no lock for it. Waits while all CKB_LANE_MAX are in use, at most for the
 * deadline. CKPT_EIO: the device is lost, or stalled before and still is.
 */
CKB_MUST int ckd_lane_get(struct ckpt_memory *mem, struct ckd_lane **out,
			  struct ckpt_err *err);
/* Put it back. @idle: all that was queued has been waited for; else the lane
 * is closed, as after a failure. */
void ckd_lane_put(struct ckd_lane *lane, bool idle);

/* As in struct ckpt_memory_ops. After a failure: put it back. */
CKB_MUST int ckd_copy_2d(struct ckd_lane *lane, void *dst, size_t dst_pitch,
			 const void *src, size_t src_pitch, size_t width,
			 size_t height, struct ckpt_err *err);
CKB_MUST int ckd_record(struct ckd_lane *lane, uint64_t *out_event,
			struct ckpt_err *err);
/* Waits for the memory's deadline at most. */
CKB_MUST int ckd_wait(struct ckd_lane *lane, uint64_t event,
		      struct ckpt_err *err);

/*
 * The lane's own staging memory, CKB_BOUNCE_BYTES, for copies whose end is no
 * staging memory. Holds nothing between get and put.
 */
CKB_MUST int ckd_bounce(struct ckd_lane *lane, uint8_t **out,
			struct ckpt_err *err);

/* ---- order after a producer ---- */

/* CKPT_EINVAL: this kind has no streams. */
CKB_MUST int ckd_ready_open(struct ckpt_memory *mem, void *stream,
			    void **out_ready, struct ckpt_err *err);
CKB_MUST int ckd_follow(struct ckd_lane *lane, void *ready,
			struct ckpt_err *err);
void ckd_ready_close(struct ckpt_memory *mem, void *ready);

#endif
