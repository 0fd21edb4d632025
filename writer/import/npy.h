/* SPDX-License-Identifier: Apache-2.0 */
/* writer/import/npy.h - one .npy array, from a file or a member of an .npz. */
#ifndef CKW_NPY_H
#define CKW_NPY_H

#include "foreign/npy.h"
#include "import.h"

/* Where the bytes of the whole .npy come from. @ctx outlives the save. */
struct ckw_bytes {
	int (*read)(void *ctx, uint64_t off, void *dst, size_t len,
		    struct ckpt_err *err);
	void *ctx;
};

/* The provider of an array's bytes, little-endian and in C order. */
CKB_MUST int ckw_npy_provider(const struct ckx_npy *npy, struct ckw_bytes src,
			      struct ckpt_provider *out, struct ckpt_err *err);

/* Describe the array as tensor @name. */
CKB_MUST int ckw_npy_describe(struct ckw_import *im, const struct ckx_npy *npy,
			      struct ckw_bytes src, const char *name,
			      size_t name_len, struct ckpt_err *err);

/* Is the file the header and then the tensor's bytes as they are? */
bool ckw_npy_plain(const struct ckx_npy *npy);

/* @name without ".npy", its length; 0 when it does not end so. */
size_t ckw_npy_name_len(const char *name);

#endif
