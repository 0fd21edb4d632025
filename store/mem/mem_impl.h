/* SPDX-License-Identifier: Apache-2.0 */
/* mem/mem_impl.h - inside of a struct ckpt_memory; mem.c and lane.c alone. */
#ifndef CKD_MEM_IMPL_H
#define CKD_MEM_IMPL_H

#include <pthread.h>
#include <semaphore.h>
#include <stdatomic.h>

#include "base/err.h"
#include "base/limits.h"
#include "mem/mem.h"

enum ckd_lane_state {
	CKD_LANE_FREE,  /* in the pool, open or not */
	CKD_LANE_TAKEN, /* all fields are the holder's */
	CKD_LANE_STUCK, /* failed, and the device does not let it close */
};

struct ckd_lane {
	struct ckpt_memory *mem;
	/* acquire when taken, release when given back: hands on the rest */
	atomic_int state;
	void *lane;        /* the kind's; NULL: not open */
	uint8_t *bounce;   /* kept while the memory lives; NULL: none yet */
	uint32_t queued;   /* copies since it was last seen empty */
	bool failed;       /* close it when it is put back */
	uint64_t gave_up_ns; /* the deadline when it got stuck */
};

struct ckd_slab {
	uint8_t *data;     /* NULL: a free entry */
	size_t bytes;
	bool dead;         /* freed while a lane was stuck */
};

struct ckpt_memory {
	struct ckpt_memory_ops ops;
	void *ctx;
	char *name;
	/* relaxed up; acquire and release down, as the last one frees */
	atomic_uint refs;
	_Atomic uint64_t deadline_ns; /* relaxed: a number alone */
	atomic_bool lost;  /* release after lost_why is written */
	atomic_uint stuck; /* lanes that are; relaxed: states decide */
	sem_t free_lanes;  /* lanes that are free, or about to be */
	struct ckd_lane lanes[CKB_LANE_MAX];
	/* locks, none within the other: */
	pthread_rwlock_t slab_lock;
	struct ckd_slab slabs[CKB_SLAB_MAX]; /* by slab_lock */
	pthread_mutex_t lost_lock;
	char lost_why[CKPT_ERR_MESSAGE_BYTES]; /* by lost_lock, written once */
};

/* A kind's failure @rc: with the device's name, and remembered when the device
 * is lost. */
int ckd_failed(struct ckpt_memory *mem, int rc, const struct ckpt_err *theirs,
	       struct ckpt_err *err);
/* "...: @what within @ns@more" */
int ckd_stalled(const struct ckpt_memory *mem, uint64_t ns, const char *what,
		const char *more, struct ckpt_err *err);
/* CKPT_EIO when the device is lost. */
int ckd_check_lost(struct ckpt_memory *mem, struct ckpt_err *err);
/* No lane is stuck any more: let go of slabs that were freed meanwhile. */
void ckd_slabs_settle(struct ckpt_memory *mem);
/* Close what can be closed; false: some lane is stuck. */
bool ckd_lanes_fini(struct ckpt_memory *mem);

#endif
