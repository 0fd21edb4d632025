/* SPDX-License-Identifier: Apache-2.0 */
/*
 * catalog/schema.h - the manifest's schema, verbatim as in FORMAT.md. A reader
 * demands exactly these texts.
 */
#ifndef CKQ_SCHEMA_H
#define CKQ_SCHEMA_H

#include <stdbool.h>

#define CKQ_APPLICATION_ID 0x636b7074 /* "ckpt" */
#define CKQ_USER_VERSION 1
#define CKQ_TABLE_COUNT 5
#define CKQ_OBJECT_COUNT 9 /* rows of sqlite_schema: indexes of UNIQUE too */

extern const char *const ckq_schema[CKQ_TABLE_COUNT];

/* Is this row @n (from 0, by rowid) of a manifest's sqlite_schema? Texts may
 * be NULL. */
bool ckq_schema_is(int n, const char *type, const char *name,
		   const char *table, const char *sql);

/* "tensors", "files", "origin" by enum ckpt_item_kind; NULL: none. */
const char *ckq_kind_name(int kind);
int ckq_kind_parse(const char *name); /* 0: none */

#endif
