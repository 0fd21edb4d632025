/* SPDX-License-Identifier: Apache-2.0 */
/* base/err.h - fill in a struct ckpt_err. @err may be NULL in all of them. */
#ifndef CKB_ERR_H
#define CKB_ERR_H

#include <ckpt/err.h>

#include "base/check.h"

/* Set code and message; returns @code, so `return ckb_err(...)` reads well.
 * Bytes that are no visible UTF-8 come out as \xNN, so a message is always
 * one line whatever names it quotes. A long message is cut at the end. */
int ckb_err(struct ckpt_err *err, int code, const char *fmt, ...)
	CKB_PRINTF(3, 4);

/* The same for a failed system call: @sys_errno positive. The code follows
 * from it (ENOSPC, EDQUOT -> CKPT_ENOSPC; EACCES, EPERM, EROFS -> CKPT_EPERM;
 * ENOENT -> CKPT_ENOENT; EEXIST -> CKPT_EEXIST; ENOMEM -> CKPT_ENOMEM; ESTALE
 * -> CKPT_ESTALE; else CKPT_EIO); ": strerror" is added at the end. */
int ckb_err_sys(struct ckpt_err *err, int sys_errno, const char *fmt, ...)
	CKB_PRINTF(3, 4);

/* Put context before the message there is: "commit 'run/1': ...". */
int ckb_err_prefix(struct ckpt_err *err, int code, const char *fmt, ...)
	CKB_PRINTF(3, 4);

/* CKPT_ENOMEM with its sentence. */
int ckb_err_nomem(struct ckpt_err *err);

/* Copy @len bytes of @text into @dst (@dst_len bytes, NUL-ended), escaping as
 * ckb_err does and cutting with "..." ; for names inside messages. Returns
 * @dst. */
const char *ckb_quote(char *dst, size_t dst_len, const char *text, size_t len);
#define CKB_QUOTE_BYTES 200

#endif
