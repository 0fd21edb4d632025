/* SPDX-License-Identifier: Apache-2.0 */
/*
 * xattr.c - facts of a file as extended attributes, with `-o xattr`.
 *
 * user.ckptfs.checkpoint (its uuid) on everything in a checkpoint; item,
 * tensor, dtype, shape and digest (the root, when the tensor has one) on what
 * shows a tensor; opaque files have no dtype and shape. Short lists, so that
 * tools that copy attributes copy little. All from memory: no chunk is read.
 *
 * Threads: libfuse's workers.
 */
#include "mount/internal.h"

#include <errno.h>
#include <string.h>

#include "base/text.h"

#define PREFIX "user.ckptfs."

enum attr { A_CHECKPOINT, A_ITEM, A_TENSOR, A_DTYPE, A_SHAPE, A_DIGEST,
	    A_COUNT };
static const char *const names[A_COUNT] = {
	PREFIX "checkpoint", PREFIX "item", PREFIX "tensor", PREFIX "dtype",
	PREFIX "shape", PREFIX "digest",
};

static void put_shape(struct ckb_buf *out, const struct ckpt_shape *s)
{
	ckb_buf_putc(out, '[');
	for (uint32_t d = 0; d < s->ndim; d++)
		ckb_buf_printf(out, "%s%llu", d ? "," : "",
			       (unsigned long long)s->dim[d]);
	ckb_buf_putc(out, ']');
}

/* The value of @attr of what is inside; false: it has none. */
static bool value_of(const struct ckv_inside *in, enum attr attr,
		     struct ckb_buf *out)
{
	const struct ckpt_checkpoint *k = in->checkpoint;
	const struct ckpt_tensor_info *t = in->tensor;
	char uuid[CKB_UUID_TEXT_BYTES], hex[2 * CKPT_DIGEST_BYTES + 1];

	if (!k || (attr != A_CHECKPOINT && !t) ||
	    ((attr == A_DTYPE || attr == A_SHAPE) && t->media_type) ||
	    (attr == A_DIGEST && !t->has_root))
		return false;
	switch (attr) {
	case A_CHECKPOINT:
		ckb_uuid_text(uuid, ckpt_checkpoint_info(k)->uuid);
		ckb_buf_puts(out, uuid);
		break;
	case A_ITEM:
		ckb_buf_puts(out, ckpt_item_at(k, t->item)->name);
		break;
	case A_TENSOR:
		ckb_buf_put(out, t->name, t->name_len);
		break;
	case A_DTYPE:
		ckb_buf_puts(out, ckpt_dtype_name(t->dtype));
		break;
	case A_SHAPE:
		put_shape(out, t->shape);
		break;
	case A_DIGEST:
		ckb_hex(hex, t->root, CKPT_DIGEST_BYTES);
		ckb_buf_puts(out, hex);
		break;
	case A_COUNT:
		return false;
	}
	return true;
}

/* What a file shows, for its attributes; NULL, the request is answered: it
 * cannot be had. The status file shows nothing. */
static struct ckv_node *inside(fuse_req_t req, fuse_ino_t ino,
			       struct ckv_inside *in)
{
	struct ckv_node *node = ckm_nodes_get(ckm_fs_of(req)->nodes, ino);
	struct ckpt_err err = { 0 };

	*in = (struct ckv_inside){ 0 };
	int rc = node ? ckv_inside_get(node, in, &err) : 0;

	if (node && rc == 0)
		return node;
	if (rc < 0)
		ckm_fail(req, rc, &err);
	else
		fuse_reply_err(req, ino == CKM_STATUS_INO ? ENODATA : ESTALE);
	ckv_put(node);
	return NULL;
}

/* The kernel asks with size 0 for the length, then for the value. */
static void reply(fuse_req_t req, const struct ckb_buf *b, size_t size)
{
	if (b->failed)
		fuse_reply_err(req, ENOMEM);
	else if (size == 0)
		fuse_reply_xattr(req, b->len);
	else if (b->len > size)
		fuse_reply_err(req, ERANGE);
	else
		fuse_reply_buf(req, (const char *)b->data, b->len);
}

void ckm_op_getxattr(fuse_req_t req, fuse_ino_t ino, const char *name,
		     size_t size)
{
	CKB_BUF struct ckb_buf b = { 0 };
	struct ckv_inside in;
	int i = 0;

	ckm_count(ckm_fs_of(req), CKM_XATTR, 1);
	while (i < A_COUNT && strcmp(names[i], name) != 0)
		i++;
	if (i == A_COUNT) {
		fuse_reply_err(req, ENODATA);
		return;
	}
	struct ckv_node *node = inside(req, ino, &in);

	if (!node)
		return;
	if (value_of(&in, (enum attr)i, &b))
		reply(req, &b, size);
	else
		fuse_reply_err(req, ENODATA);
	ckv_inside_put(node, &in);
	ckv_put(node);
}

void ckm_op_listxattr(fuse_req_t req, fuse_ino_t ino, size_t size)
{
	CKB_BUF struct ckb_buf b = { 0 };
	CKB_BUF struct ckb_buf one = { 0 };
	struct ckv_inside in = { 0 };
	struct ckv_node *node = NULL;

	ckm_count(ckm_fs_of(req), CKM_XATTR, 1);
	if (ino != CKM_STATUS_INO) {
		node = inside(req, ino, &in);
		if (!node)
			return;
	}
	for (int i = 0; i < A_COUNT; i++)
		if (value_of(&in, (enum attr)i, &one))
			ckb_buf_put(&b, names[i], strlen(names[i]) + 1);
	reply(req, &b, size);
	if (node)
		ckv_inside_put(node, &in);
	ckv_put(node);
}
