/* SPDX-License-Identifier: Apache-2.0 */
/*
 * ckpt/err.h - how every ckptfs call reports failure.
 *
 * A fallible call returns 0 or a negative enum ckpt_code. Its last argument,
 * struct ckpt_err *, may be NULL; when it is not, a failing call leaves one
 * sentence there: what, where, why, and what to do where that is known. It is
 * left untouched on success. There is no global or thread-local error state.
 */
#ifndef CKPT_ERR_H
#define CKPT_ERR_H

#ifdef __cplusplus
extern "C" {
#endif

#if defined(__GNUC__)
#define CKPT_API __attribute__((visibility("default")))
#define CKPT_MUST __attribute__((warn_unused_result))
#else
#define CKPT_API
#define CKPT_MUST
#endif

enum ckpt_code {
	CKPT_OK = 0,
	CKPT_EINVAL = -1,    /* an argument is wrong or contradicts another */
	CKPT_ENOENT = -2,    /* no such store, checkpoint, item or tensor */
	CKPT_EEXIST = -3,    /* the name is taken */
	CKPT_EIO = -4,       /* the operating system could not read or write */
	CKPT_ECORRUPT = -5,  /* bytes were read, and they are wrong */
	CKPT_EFORMAT = -6,   /* foreign input breaks its own format's rules */
	CKPT_EVERSION = -7,  /* made by a newer ckptfs: not for this one */
	CKPT_ENOMEM = -8,    /* out of memory */
	CKPT_ENOSPC = -9,    /* out of disk space or quota */
	CKPT_ELIMIT = -10,   /* over a bound of limits.h */
	CKPT_EPERM = -11,    /* permission denied, or a read-only file system */
	CKPT_EBUSY = -12,    /* somebody else holds it; trying later may work */
	CKPT_ESTATE = -13,   /* the call came at the wrong time */
	CKPT_ECANCELED = -14, /* the caller cancelled it */
	CKPT_EPEER = -15,    /* another rank failed */
	CKPT_EUNSURE = -16,  /* published, visible; durability unknown (S3) */
	CKPT_ESTALE = -17,   /* removed or replaced since it was opened */
	CKPT_ETIMEDOUT = -18, /* not yet: what was waited for goes on */
};

#define CKPT_ERR_MESSAGE_BYTES 1008

/** One failure. Fixed size, owned by the caller, never freed. */
struct ckpt_err {
	int code;       /* enum ckpt_code */
	int sys_errno;  /* errno behind it, or 0 */
	char message[CKPT_ERR_MESSAGE_BYTES]; /* UTF-8, NUL-ended, one line */
};

/** A short constant name of @code ("EIO", ...), never NULL. */
CKPT_API const char *ckpt_code_name(int code);

#ifdef __cplusplus
}
#endif
#endif
