/* SPDX-License-Identifier: Apache-2.0 */
/*
 * catalog/schema.h - the manifest's schema, verbatim as in FORMAT.md. A reader
 * demands exactly these texts.
 */
#ifndef CKQ_SCHEMA_H
#define CKQ_SCHEMA_H

#define CKQ_APPLICATION_ID 0x636b7074 /* "ckpt" */
#define CKQ_USER_VERSION 1
#define CKQ_TABLE_COUNT 5

extern const char *const ckq_schema[CKQ_TABLE_COUNT];

/* "tensors", "files", "origin" by enum ckpt_item_kind; NULL: none. */
const char *ckq_kind_name(int kind);
int ckq_kind_parse(const char *name); /* 0: none */

#endif
