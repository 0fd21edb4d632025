/* SPDX-License-Identifier: Apache-2.0 */
/* writer/limit.h - what a writer may take of the machine: so much a second. */
#ifndef CKW_LIMIT_H
#define CKW_LIMIT_H

#include <pthread.h>
#include <time.h>

#include "base/sys.h"

struct ckpt_save;
struct ckpt_writer;

/* ---- limit.c ---- */

struct ckw_limit {
	uint64_t per_s, burst;
	pthread_mutex_t lock;
	int64_t free_ns;              /* when the next may go; guard: lock */
};
void ckw_limit_init(struct ckw_limit *l, uint64_t per_s, uint64_t burst);
void ckw_limit_fini(struct ckw_limit *l);
/* Take @n: when it may go, which may be past. */
int64_t ckw_limit_take(struct ckw_limit *l, int64_t now_ns, uint64_t n);
/* When what was taken is paid. */
int64_t ckw_limit_free(struct ckw_limit *l);

/* ---- paced.c ---- */

/* The system table that a save's packs are written through. */
struct ckw_paced {
	struct ckb_sys sys;           /* first: a call finds the rest */
	const struct ckb_sys *inner;
	struct ckpt_save *save;
};
/* For @save's packs, if the writer has a limit. */
void ckw_paced_init(struct ckpt_save *save);
/* At most so many bytes are written at once at this rate. */
size_t ckw_paced_step(uint64_t bytes_per_s);

/* ---- share.c ---- */

/* Processors this process may use. */
uint32_t ckw_processors(void);
/* The calling thread's priorities, as the options say. */
void ckw_share_begin(const struct ckpt_writer *w);
void ckw_share_init(struct ckpt_writer *w);
/* What the calling thread took since *@taken_ns, which moves on; free of charge
 * while a caller has @waited. */
void ckw_share_charge(struct ckpt_writer *w, int64_t *taken_ns, bool waited);
/* Is more taken than the share allows? Until when, of CLOCK_MONOTONIC. */
bool ckw_share_spent(struct ckpt_writer *w, struct timespec *out_until);

#endif
