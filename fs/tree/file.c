/* SPDX-License-Identifier: Apache-2.0 */
/*
 * file.c - open files and their bytes.
 *
 * A read uses its checkpoint's image for the length of the call, so the image
 * may go and come between reads; a file that is held makes it go last. Sizes
 * are the nodes', so a read past the end asks nobody. Any thread.
 */
#include <string.h>

#include "base/bytes.h"
#include "tree/internal.h"

int ckv_inside_get(const struct ckv_node *n, struct ckv_inside *out,
		   struct ckpt_err *err)
{
	int rc = 0;

	*out = (struct ckv_inside){ 0 };
	if (n->ckpt)
		rc = ckv_image_get(n->tree, n->ckpt, &out->image, err);
	if (rc < 0 || !n->ckpt)
		return rc;
	out->checkpoint = out->image->ckpt;
	if (n->tensor != CKV_NO_TENSOR)
		out->tensor = ckpt_tensor_at(out->checkpoint, n->tensor);
	return 0;
}

void ckv_inside_put(const struct ckv_node *n, struct ckv_inside *in)
{
	ckv_image_put(n->tree, in->image);
	*in = (struct ckv_inside){ 0 };
}

static void count_file(struct ckv_node *n, uint32_t by)
{
	pthread_mutex_lock(&n->tree->lock);
	n->ckpt->files += by;
	pthread_mutex_unlock(&n->tree->lock);
}

int ckv_hold(struct ckv_node *n, struct ckpt_err *err)
{
	struct ckv_image *m;

	if (!n->ckpt)
		return 0;
	int rc = ckv_image_get(n->tree, n->ckpt, &m, err);

	if (rc < 0)
		return rc;
	count_file(n, 1);
	ckv_image_put(n->tree, m);
	return 0;
}

void ckv_release(struct ckv_node *n)
{
	if (n->ckpt)
		count_file(n, (uint32_t)-1);
}

/* [@off, @off + @len) of @text; a text that is shorter than its file's size
 * cannot be the one that the size was taken of. */
static int copy_out(const void *text, size_t text_len, uint64_t off, void *dst,
		    size_t len, struct ckpt_err *err)
{
	if (off > text_len || len > text_len - off)
		return ckb_err(err, CKPT_ECORRUPT, "a text of %zu bytes was "
			       "longer when its file was listed", text_len);
	memcpy(dst, (const char *)text + off, len);
	return 0;
}

/* [@off, @off + @len) of a file of @image, within its size. */
static int read_inside(const struct ckv_node *n, struct ckv_image *m,
		       uint64_t off, void *dst, size_t len,
		       struct ckpt_err *err)
{
	const struct ckpt_tensor_info *t =
		ckpt_tensor_at(m->ckpt, n->tensor);
	CKB_BUF struct ckb_buf text = { 0 };
	int rc;

	if (n->kind == CKV_CHECKPOINT_JSON) {
		rc = ckv_checkpoint_json(n->tree, m, err);
		return rc == 0 ? copy_out(m->json, m->json_len, off, dst, len,
					  err) : rc;
	}
	if (n->kind == CKV_NPY)
		rc = ckv_npy_read(m->ckpt, t, off, dst, len, err);
	else if (n->kind == CKV_OPAQUE)
		rc = ckpt_read_bytes(m->ckpt, t, off, len, dst, err);
	else
		rc = ckv_text(m->ckpt, t, &text, err);
	if (rc == 0 && n->kind == CKV_TXT)
		rc = copy_out(text.data, text.len, off, dst, len, err);
	if (rc == 0)
		ckv_image_count(n->tree, m, t);
	return rc;
}

int ckv_read(struct ckv_node *n, uint64_t off, void *dst, size_t len,
	     size_t *out_len, struct ckpt_err *err)
{
	struct ckv_image *m = NULL;
	int rc;

	*out_len = 0;
	if (n->kind != CKV_README && n->kind < CKV_CHECKPOINT_JSON)
		return ckb_err(err, CKPT_EINVAL, "this is no file");
	/* past the end there is nothing to read, nor to fail */
	if (off >= n->size)
		return 0;
	len = (size_t)ckb_min_u64(len, n->size - off);
	if (n->kind == CKV_README) {
		size_t size;
		const char *readme = ckv_readme(&size);

		rc = copy_out(readme, size, off, dst, len, err);
	} else {
		rc = ckv_image_get(n->tree, n->ckpt, &m, err);
		if (rc == 0)
			rc = read_inside(n, m, off, dst, len, err);
		ckv_image_put(n->tree, m);
	}
	if (rc == 0)
		*out_len = len;
	return rc;
}
