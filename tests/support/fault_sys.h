/* SPDX-License-Identifier: Apache-2.0 */
/*
 * support/fault_sys.h - an operating system that fails the n-th call.
 *
 * A table over the real one that counts calls, of all kinds or of chosen
 * ones, fails some of them, before they do anything or after they did it all,
 * moves few bytes at a time if told so, and knows which descriptors are open.
 * A sweep is
 *
 *	for (int n = 1;; n++) {
 *		fault_init(&f);
 *		f.fail_at = n;
 *		... the body, through &f.sys ...
 *		assert_int_equal(fault_open_count(&f), 0);
 *		if (!f.met)
 *			break;
 *	}
 *
 * Any thread may call through it; the fields are set before.
 */
#ifndef TEST_FAULT_SYS_H
#define TEST_FAULT_SYS_H

#include <errno.h>
#include <stdatomic.h>

#include "base/sys.h"

enum fault_kind {
	FAULT_OPEN, FAULT_CLOSE, FAULT_READ, FAULT_WRITE, FAULT_FSYNC,
	FAULT_FDATASYNC, FAULT_SYNC_RANGE, FAULT_FALLOCATE, FAULT_TRUNCATE,
	FAULT_MKDIR, FAULT_LINK, FAULT_RENAME, FAULT_UNLINK, FAULT_STAT,
	FAULT_LIST, FAULT_FLOCK, FAULT_FS_MAGIC, FAULT_RANDOM,
	FAULT_KIND_COUNT
};
#define FAULT_BIT(kind) (1u << (kind))
#define FAULT_FD_MAX 1024

/* FAULT_AFTER: it did its work (a write half of it), the answer is lost. An
 * open fails before in any case: what it made could not be closed. */
enum fault_when { FAULT_BEFORE, FAULT_AFTER };

/* What a sweep goes through. */
#define FAULT_ERRORS { EIO, ENOSPC, EMFILE, EROFS, ESTALE, ENOENT }

struct fault_sys {
	struct ckb_sys sys;  /* first: a call finds the rest behind it */
	unsigned kinds;      /* FAULT_BITs that count; 0: all */
	const char *path_end; /* only calls on descriptors of paths that end
			       * so count; NULL: all calls */
	int fail_at;         /* the first call that fails, from 1; 0: none */
	int fail_count;      /* so many in a row; 1 after init */
	int error;           /* errno they fail with; EIO after init */
	enum fault_when when;
	size_t move_max;     /* a read or write moves no more; 0: no bound */
	uint8_t tag;         /* what is drawn at random begins with it, and no
			      * two uuids are alike */
	atomic_int calls;    /* counted ones, so far */
	atomic_int made[FAULT_KIND_COUNT]; /* all */
	atomic_bool met;     /* a call has failed */
	atomic_uchar open[FAULT_FD_MAX];
	atomic_uchar lost[FAULT_FD_MAX]; /* a sync of it has failed */
	atomic_int synced_again; /* syncs of such, of which S5 has none */
};

void fault_init(struct fault_sys *f);

/* From here on every @kind of call fails that is made on a descriptor whose
 * path ends in @end (NULL: every one); `calls` counts them anew. */
void fault_each(struct fault_sys *f, enum fault_kind kind, const char *end);

/* Descriptors opened through @f and not closed through it. */
int fault_open_count(const struct fault_sys *f);

#endif
