/* SPDX-License-Identifier: Apache-2.0 */
/* ckpt/ckpt.h - everything of ckptfs that reads: include this one. */
#ifndef CKPT_CKPT_H
#define CKPT_CKPT_H

#include <ckpt/err.h>
#include <ckpt/read.h>
#include <ckpt/store.h>
#include <ckpt/types.h>

#ifdef __cplusplus
extern "C" {
#endif

/** The library's version, "MAJOR.MINOR.PATCH". */
CKPT_API const char *ckpt_version(void);

#ifdef __cplusplus
}
#endif
#endif
