/* SPDX-License-Identifier: Apache-2.0 */
/*
 * text.c - a tensor for people: what it is, its statistics, a preview.
 *
 * Its size is needed by every `ls -l`, so it must follow from what an open
 * checkpoint holds in memory: statistics are there, numbers of the preview have
 * a fixed width, and the one line that needs the chunk list (sharding) is
 * padded. Only reading the text reads the tensor; a damaged one fails there
 * (S6), while its attributes still tell. No state; any thread.
 */
#include <inttypes.h>
#include <stdio.h>

#include "tensor/dtype.h"
#include "tree/internal.h"
#include "verbs/checkpoint.h"

#define SHARDING_WIDTH 14 /* "1048576 shards": CKB_SHARD_MAX of them */

static void put_value(struct ckb_buf *b, const char *key,
		      enum ckpt_value_class c, union ckpt_value v)
{
	if (c == CKPT_VALUES_FLOAT)
		ckb_buf_printf(b, "%-9s%.9g\n", key, v.f);
	else if (c == CKPT_VALUES_SIGNED)
		ckb_buf_printf(b, "%-9s%" PRId64 "\n", key, v.i);
	else
		ckb_buf_printf(b, "%-9s%" PRIu64 "\n", key, v.u);
}

static void put_stats(struct ckb_buf *b, const struct ckpt_stats *s)
{
	uint64_t finite = s->count - s->nan_count - s->inf_count;

	if (s->value_class == CKPT_VALUES_NONE || s->count == 0)
		return;
	if (finite > 0) {
		put_value(b, "min", s->value_class, s->min);
		put_value(b, "max", s->value_class, s->max);
		ckb_buf_printf(b, "%-9s%.9g\n", "mean",
			       s->sum / (double)finite);
		ckb_buf_printf(b, "%-9s%.9g\n", "absmax", s->absmax);
	}
	ckb_buf_printf(b, "%-9s%" PRIu64 "\n%-9s%" PRIu64 "\n%-9s%" PRIu64
		       "\n", "nan", s->nan_count, "inf", s->inf_count,
		       "zeros", s->zero_count);
}

static void put_head(struct ckb_buf *b, const struct ckpt_tensor_info *t)
{
	char name[512], shape[CKT_TEXT_BYTES];

	ckb_buf_printf(b, "%-9s%s\n", "name",
		       ckb_quote(name, sizeof(name), t->name, t->name_len));
	ckb_buf_printf(b, "%-9s%s\n%-9s%s\n%-9s%" PRIu64 "\n", "dtype",
		       ckpt_dtype_name(t->dtype), "shape",
		       ckt_shape_text(shape, sizeof(shape), t->shape), "bytes",
		       t->bytes);
}

/* How the save's ranks held it; @ckpt NULL: blanks. */
static int put_sharding(struct ckb_buf *b, struct ckpt_checkpoint *ckpt,
			const struct ckpt_tensor_info *t,
			struct ckpt_err *err)
{
	const struct cks_chunks *chunks;
	char text[32];
	int rc = ckpt ? cks_checkpoint_chunks(ckpt, t, &chunks, err) : 0;

	if (rc < 0)
		return rc;
	if (ckpt && chunks->layout && chunks->layout->shard_count > 1)
		snprintf(text, sizeof(text), "%u shards",
			 chunks->layout->shard_count);
	else
		snprintf(text, sizeof(text), "whole");
	ckb_buf_printf(b, "%-9s%-*s\n", "sharding", SHARDING_WIDTH, text);
	return 0;
}

/* @ckpt NULL: nothing is read, blanks of the same width stand there. */
static int render(struct ckpt_checkpoint *ckpt,
		  const struct ckpt_tensor_info *t, struct ckb_buf *b,
		  struct ckpt_err *err)
{
	put_head(b, t);
	int rc = put_sharding(b, ckpt, t, err);

	if (rc < 0)
		return rc;
	put_stats(b, &t->stats);
	ckb_buf_putc(b, '\n');
	rc = ckv_preview(b, ckpt, t, err);
	if (rc == 0 && b->failed)
		rc = ckb_err_nomem(err);
	return rc;
}

int ckv_text_size(const struct ckpt_tensor_info *t, uint64_t *out,
		  struct ckpt_err *err)
{
	CKB_BUF struct ckb_buf b = { 0 };
	int rc = render(NULL, t, &b, err);

	if (rc == 0)
		*out = b.len;
	return rc;
}

int ckv_text(struct ckpt_checkpoint *ckpt, const struct ckpt_tensor_info *t,
	     struct ckb_buf *out, struct ckpt_err *err)
{
	return render(ckpt, t, out, err);
}
