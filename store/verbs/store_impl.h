/* SPDX-License-Identifier: Apache-2.0 */
/*
 * verbs/store_impl.h - the open store, for the verbs alone.
 *
 * Fields without a guard are set at open and never change.
 */
#ifndef CKS_STORE_IMPL_H
#define CKS_STORE_IMPL_H

#include <pthread.h>
#include <stdatomic.h>

#include "base/limits.h"
#include "verbs/cells.h"
#include "verbs/store.h"

/* A sealed pack kept open. refs 0: idle, may be closed at any time. */
struct cks_pack_slot {
	struct ckc_pack *pack;   /* NULL: free */
	uint32_t refs;
	uint64_t used;           /* tick of the last get: least goes first */
};

struct ckpt_store {
	const struct ckb_sys *sys;
	char *path;              /* as given to open, for messages */
	char *index_path;        /* absolute: survives a chdir */
	int dirfd;
	uint8_t uuid[CKPT_UUID_BYTES];
	bool readonly;
	bool ro_only;            /* a feature only a newer ckptfs may write */
	struct cks_cells *cells; /* shared by all readers; own lock inside */

	/* No other lock is taken under it, and no call made but close. */
	pthread_mutex_t packs_lock;
	struct cks_pack_slot packs[CKB_OPEN_PACKS]; /* guard: packs_lock */
	uint64_t packs_tick;                        /* guard: packs_lock */

	/* Hashes of names that a log line was written about, each in its
	 * slot, so that a daemon that lists every second says it once. */
	atomic_uint_least64_t told[64]; /* relaxed: one line more is no harm */
};

/* CKPT_EPERM with its sentence when the store must not be written to. */
CKB_MUST int cks_store_writable(const struct ckpt_store *s,
				struct ckpt_err *err);

/* A random uuid (RFC 9562, version 4). */
CKB_MUST int cks_uuid_new(const struct ckb_sys *sys, uint8_t out[16],
			  struct ckpt_err *err);

/* Name of a bad chunk's note in bad/: "UUID-OFFSET", 16 hex digits. */
#define CKS_BAD_NAME_BYTES (36 + 1 + 16 + 1)
void cks_bad_name(char dst[CKS_BAD_NAME_BYTES], const uint8_t pack[16],
		  uint64_t off);
bool cks_bad_parse(const char *name, uint8_t out_pack[16], uint64_t *out_off);

/* The store's folders, in the order init makes them; NULL ends. */
extern const char *const cks_store_folders[];

/* "checkpoints/NAME" */
#define CKS_NAME_PATH_BYTES (sizeof("checkpoints/") + CKB_NAME_MAX)
void cks_name_path(char dst[CKS_NAME_PATH_BYTES], const char *name);

/* The folder that checkpoints/@name lies in: "checkpoints/RUN". */
void cks_name_folder(char dst[CKS_NAME_PATH_BYTES], const char *name);

/* Remove the run folders of @name that are empty, each one's parent synced.
 * Best effort: an empty run does no harm. */
void cks_prune_runs(struct ckpt_store *s, const char *name);

#endif
