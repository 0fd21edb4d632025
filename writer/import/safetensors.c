/* SPDX-License-Identifier: Apache-2.0 */
/*
 * safetensors.c - safetensors files: one by itself, and the shards of a folder.
 *
 * The header is checked whole before anything is described. It is not kept:
 * its bytes for @orig come from the file again, which must not have changed.
 *
 * Memory: one header's bytes and what st_store.c allows. Threads: the caller's.
 */
#include "st_file.h"

#include <string.h>

#include "base/limits.h"
#include "format/config.h"

#define ORIGIN_MEDIA_TYPE "application/x-safetensors-header"

/* ---- the header ---- */

static int read_head(struct ckw_st_file *f, struct ckw_input *in,
		     uint64_t *out_len, uint64_t *out_file_len,
		     struct ckpt_err *err)
{
	uint8_t first[CKX_ST_SNIFF_BYTES];
	uint64_t file_len = 0;
	size_t len;
	int rc = ckw_input_size(in, &file_len, err);

	if (rc < 0)
		return rc;
	len = (size_t)ckb_min_u64(file_len, sizeof(first));
	rc = ckw_input_read(in, 0, first, len, err);
	if (rc < 0)
		return rc;
	rc = ckx_st_header_len(first, len, file_len, out_len, err);
	if (rc < 0)
		return ckb_err_prefix(err, rc, "'%s'", in->path);
	*out_file_len = file_len;
	f->head = malloc((size_t)*out_len + 8);
	if (!f->head)
		return ckb_err_nomem(err);
	return ckw_input_read(in, 0, f->head, (size_t)*out_len + 8, err);
}

int ckw_st_file_open(struct ckw_st_file *f, struct ckw_input *in,
		     struct ckpt_err *err)
{
	uint64_t len = 0, file_len = 0;
	int rc;

	memset(f, 0, sizeof(*f));
	f->input = in;
	rc = read_head(f, in, &len, &file_len, err);
	if (rc == 0) {
		rc = ckx_st_parse(&f->st, (const char *)f->head + 8,
				  (size_t)len, file_len, err);
		if (rc < 0)
			ckb_err_prefix(err, rc, "'%s'", in->path);
	}
	if (rc < 0)
		ckw_st_file_close(f);
	return rc;
}

void ckw_st_file_close(struct ckw_st_file *f)
{
	ckx_st_fini(&f->st);
	free(f->head);
	f->head = NULL;
}

/* ---- describing ---- */

static void fill_desc(struct ckpt_tensor_desc *d,
		      const struct ckx_st_tensor *t)
{
	memset(d, 0, sizeof(*d));
	d->size = sizeof(*d);
	d->name = t->name_len ? t->name : "";
	d->name_len = t->name_len;
	d->dtype = (enum ckpt_dtype)t->dtype;
	d->shape.ndim = t->ndim;
	memcpy(d->shape.dim, t->dim, t->ndim * sizeof(t->dim[0]));
}

static int add_tensors(struct ckw_import *im, const struct ckw_st_file *f,
		       struct ckpt_err *err)
{
	int rc = 0;

	for (size_t i = 0; rc == 0 && i < f->st.tensor_count; i++) {
		const struct ckx_st_tensor *t = &f->st.tensors[i];
		struct ckpt_provider provider = { 0 };
		struct ckpt_tensor_desc desc;

		fill_desc(&desc, t);
		if (t->end > t->begin)
			rc = ckw_input_provider(f->input, f->st.data_off +
						t->begin, &provider, err);
		if (rc == 0)
			rc = ckpt_save_tensor(im->save, im->item, &desc,
					      &provider, err);
		im->result.tensor_count++;
	}
	return rc;
}

const struct ckx_st_tensor *ckw_st_kept(const struct ckx_st *st,
					const struct ckx_st_pair *p)
{
	if (p->key_len > CKB_TENSOR_NAME_MAX ||
	    (p->key_len == 6 && memcmp(p->key, "format", 6) == 0) ||
	    ckx_st_find(st, p->key, p->key_len))
		return NULL;
	return ckx_st_find(st, p->value, p->value_len);
}

static int add_aliases(struct ckw_import *im, const struct ckx_st *st,
		       const struct ckw_owners *others, struct ckpt_err *err)
{
	int rc = 0;

	for (size_t i = 0; rc == 0 && i < st->pair_count; i++) {
		const struct ckx_st_pair *p = &st->pairs[i];
		const struct ckx_st_tensor *kept = ckw_st_kept(st, p);
		struct ckpt_tensor_desc desc;

		if (!kept || (others && ckw_owners_hold(others, p->key,
							p->key_len)))
			continue;
		fill_desc(&desc, kept);
		desc.name = p->key_len ? p->key : "";
		desc.name_len = p->key_len;
		desc.alias_of = kept->name_len ? kept->name : "";
		desc.alias_of_len = kept->name_len;
		rc = ckpt_save_tensor(im->save, im->item, &desc, NULL, err);
		im->result.alias_count++;
		im->result.tensor_count++;
	}
	return rc;
}

int ckw_st_file_describe(struct ckw_import *im, const struct ckw_st_file *f,
			 const struct ckw_owners *others, const char *name,
			 struct ckpt_err *err)
{
	int rc = add_tensors(im, f, err);

	if (rc == 0)
		rc = add_aliases(im, &f->st, others, err);
	/* with it and the tensors the file can be shown byte for byte */
	if (rc == 0)
		rc = ckw_import_origin(im, f->input, name, f->st.data_off,
				       ORIGIN_MEDIA_TYPE, err);
	return rc;
}

/* __metadata__ as a JSON object, in the file's order. */
int ckw_st_file_begin(struct ckw_import *im, const struct ckw_st_file *f,
		      struct ckpt_err *err)
{
	CKB_BUF struct ckb_buf metadata = { 0 };

	for (size_t i = 0; i < f->st.pair_count; i++) {
		const struct ckx_st_pair *p = &f->st.pairs[i];

		ckb_buf_puts(&metadata, i ? ", " : "{");
		ckf_json_string(&metadata, p->key, p->key_len);
		ckb_buf_puts(&metadata, ": ");
		ckf_json_string(&metadata, p->value, p->value_len);
	}
	ckb_buf_puts(&metadata, f->st.pair_count ? "}" : "{}");
	if (metadata.failed)
		return ckb_err_nomem(err);
	return ckw_import_begin(im, ".", f->st.has_metadata
				? (const char *)metadata.data : NULL, err);
}

/* ---- one file ---- */

int ckw_import_safetensors(struct ckw_import *im, struct ckw_input *in,
			   struct ckpt_err *err)
{
	struct ckw_st_file f;
	int rc = ckw_st_file_open(&f, in, err);

	if (rc < 0)
		return rc;
	rc = ckw_st_file_begin(im, &f, err);
	if (rc == 0)
		rc = ckw_st_file_describe(im, &f, NULL, ckw_import_base(
					  im, "model.safetensors"), err);
	ckw_st_file_close(&f);
	return rc;
}
