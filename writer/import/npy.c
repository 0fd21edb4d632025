/* SPDX-License-Identifier: Apache-2.0 */
/*
 * npy.c - import of .npy files: one, or a folder of them.
 *
 * A tensor a file; its name is the path below the folder without ".npy", so the
 * item's separator is "/". All headers are checked before the save is begun,
 * and read again to describe, so that none is kept. What is no .npy goes to
 * `assets`.
 *
 * Threads: the caller's.
 */
#include "npy.h"

#include <string.h>

#define ORIGIN_MEDIA_TYPE "application/x-npy-header"

static int input_read(void *ctx, uint64_t off, void *dst, size_t len,
		      struct ckpt_err *err)
{
	return ckw_input_read(ctx, off, dst, len, err);
}

static int read_head(const struct ckw_import *im, struct ckw_input *in,
		     struct ckx_npy *out, struct ckpt_err *err)
{
	uint8_t head[CKX_NPY_HEAD_MAX];
	uint64_t size = 0;
	size_t len;
	int rc = ckw_input_size(in, &size, err);

	if (rc == 0)
		rc = ckw_input_no_lfs(in, err);
	if (rc < 0)
		return rc;
	len = (size_t)ckb_min_u64(size, sizeof(head));
	rc = ckw_input_read(in, 0, head, len, err);
	if (rc < 0)
		return rc;
	rc = ckx_npy_parse(head, len, size, im->opts->void_dtype, out, err);
	return rc < 0 ? ckb_err_prefix(err, rc, "'%s'", in->path) : 0;
}

size_t ckw_npy_name_len(const char *name)
{
	return ckw_ends_with(name, ".npy") ? strlen(name) - 4 : 0;
}

bool ckw_npy_plain(const struct ckx_npy *npy)
{
	return !npy->fortran && npy->swap_bytes == 0 && npy->dtype != CKPT_F4;
}

int ckw_npy_describe(struct ckw_import *im, const struct ckx_npy *npy,
		     struct ckw_bytes src, const char *name, size_t name_len,
		     struct ckpt_err *err)
{
	const struct ckpt_tensor_desc desc = {
		.size = sizeof(desc),
		.name = name,
		.name_len = name_len,
		.dtype = npy->dtype,
		.shape = npy->shape,
	};
	struct ckpt_provider provider = { 0 };
	int rc = 0;

	if (npy->data_bytes > 0)
		rc = ckw_npy_provider(npy, src, &provider, err);
	if (rc < 0)
		return rc;
	im->result.tensor_count++;
	return ckpt_save_tensor(im->save, im->item, &desc, &provider, err);
}

static int describe(struct ckw_import *im, struct ckw_input *in,
		    const char *name, size_t name_len, struct ckpt_err *err)
{
	const struct ckw_bytes src = { input_read, in };
	struct ckx_npy npy;
	int rc = read_head(im, in, &npy, err);

	if (rc == 0)
		rc = ckw_npy_describe(im, &npy, src, name, name_len, err);
	if (rc == 0 && ckw_npy_plain(&npy))
		rc = ckw_import_origin(im, in, name, npy.data_off,
				       ORIGIN_MEDIA_TYPE, err);
	return rc;
}

int ckw_import_npy(struct ckw_import *im, struct ckw_input *in,
		   struct ckpt_err *err)
{
	const char *name = ckw_import_base(im, "array.npy");
	size_t len = ckw_npy_name_len(name);
	struct ckx_npy npy;
	int rc = read_head(im, in, &npy, err);

	if (rc == 0)
		rc = ckw_import_begin(im, "/", NULL, err);
	if (rc == 0)
		rc = describe(im, in, name, len ? len : strlen(name), err);
	return rc;
}

int ckw_import_npy_folder(struct ckw_import *im, struct ckw_files *files,
			  struct ckpt_err *err)
{
	struct ckx_npy npy;
	int rc = 0;

	for (size_t i = 0; rc == 0 && i < files->count; i++) {
		struct ckw_file *f = &files->file[i];

		f->taken = ckw_npy_name_len(f->name) > 0;
		if (f->taken)
			rc = read_head(im, f->input, &npy, err);
		else if (ckw_ends_with(f->name, ".npz"))
			ckw_import_note(im, "'%s' was kept as a file; import "
					"it by itself for its arrays",
					f->name);
	}
	if (rc == 0)
		rc = ckw_import_begin(im, "/", NULL, err);
	for (size_t i = 0; rc == 0 && i < files->count; i++)
		if (files->file[i].taken)
			rc = describe(im, files->file[i].input,
				      files->file[i].name,
				      ckw_npy_name_len(files->file[i].name),
				      err);
	return rc == 0 ? ckw_files_to_assets(im, files, err) : rc;
}
