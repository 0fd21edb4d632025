/* SPDX-License-Identifier: Apache-2.0 */
/*
 * base/log.h - notes for whoever runs the program; libraries never print.
 *
 * Log or return, never both. With no sink set, notes are dropped.
 */
#ifndef CKB_LOG_H
#define CKB_LOG_H

#include "base/check.h"

enum ckb_level { CKB_ERROR, CKB_WARN, CKB_INFO, CKB_DEBUG };

typedef void (*ckb_log_fn)(void *ctx, enum ckb_level level, const char *text);

/* Set once, before threads start. */
void ckb_log_sink(ckb_log_fn fn, void *ctx);

void ckb_log(enum ckb_level level, const char *fmt, ...) CKB_PRINTF(2, 3);

#endif
