/* SPDX-License-Identifier: Apache-2.0 */
/* catalog/manifest_impl.h - an open manifest, inside. For manifest.c (open,
 * facts, BLOBs, verify) and rows.c (items, packs, tensors). */
#ifndef CKQ_MANIFEST_IMPL_H
#define CKQ_MANIFEST_IMPL_H

#include <pthread.h>

#include "catalog/manifest.h"
#include "catalog/vfs.h"

struct ckq_manifest {
	pthread_mutex_t lock;
	struct ckq_file file;     /* guard: lock, once open */
	sqlite3 *db;              /* guard: lock */
	sqlite3_stmt *chunks;     /* guard: lock */
	char *path;
	struct ckq_facts facts;
	char *texts[4];           /* saved_as, metadata, metrics, writer */
};

/* Why SQLite failed: a bad page, the system, or its own sentence. */
int ckq_manifest_failed(struct ckq_manifest *m, struct ckpt_err *err);

/* CKPT_ECORRUPT: what the file says cannot be. */
int ckq_manifest_bad(struct ckq_manifest *m, struct ckpt_err *err,
		     const char *what);

CKB_MUST int ckq_manifest_prepare(struct ckq_manifest *m, const char *sql,
				  sqlite3_stmt **out, struct ckpt_err *err);

/* Do the row's columns have these types? One letter each: i, t, b; in upper
 * case it may be NULL too. To be asked before any value is taken, as taking
 * one may convert it. */
bool ckq_row_types(sqlite3_stmt *s, const char *types);

/* Is column @i, a TEXT, UTF-8 without NUL? */
bool ckq_row_text(sqlite3_stmt *s, int i);

/* Is column @i NULL, or such a TEXT with a JSON object of at most CKB_JSON_MAX
 * bytes? */
bool ckq_row_json(sqlite3_stmt *s, int i);

/* Column @i, a BLOB, if it has exactly @len bytes. */
bool ckq_row_blob(sqlite3_stmt *s, int i, void *out, size_t len);

#endif
