/* SPDX-License-Identifier: Apache-2.0 */
/* catalog/index_impl.h - an open index, inside. For index.c (opening, chunks)
 * and index_list.c (checkpoints). */
#ifndef CKQ_INDEX_IMPL_H
#define CKQ_INDEX_IMPL_H

#include <pthread.h>
#include <sqlite3.h>

#include "catalog/index.h"

enum {
	CKQ_FIND, CKQ_PUT_PACK, CKQ_PACK_ID, CKQ_PUT,
	CKQ_LIST_PUT, CKQ_LIST_GET, CKQ_LIST_DROP, CKQ_LIST_MOVE,
	CKQ_LIST_OWN, CKQ_LIST_ALL,
	CKQ_USED_GET, CKQ_USED_PUT, CKQ_USED_DROP,
	CKQ_EXACT_GET, CKQ_EXACT_PUT,
	CKQ_STMT_COUNT
};

struct ckq_index {
	pthread_mutex_t lock;
	sqlite3 *db;                      /* guard: lock */
	sqlite3_stmt *stmt[CKQ_STMT_COUNT]; /* guard: lock */
	uint8_t last_pack[CKPT_UUID_BYTES]; /* of put; guard: lock */
	int64_t last_pack_id;             /* 0: none; guard: lock */
	char *path;
	bool write;
	bool damaged;                     /* found so; guard: lock */
};

/* Under the lock, all of them. */

/* Why SQLite failed. */
int ckq_index_failed(struct ckq_index *ix, struct ckpt_err *err);

/* Run a statement that gives no rows, and reset it. */
CKB_MUST int ckq_index_step(struct ckq_index *ix, sqlite3_stmt *s,
			    struct ckpt_err *err);

/* The pack's row number; made when it has none. */
CKB_MUST int ckq_index_pack_id(struct ckq_index *ix, const uint8_t uuid[16],
			       int64_t *out, struct ckpt_err *err);

#endif
