/* SPDX-License-Identifier: Apache-2.0 */
/*
 * st_check.c - the tensors of a safetensors header, taken together.
 *
 * Sorted by their bytes they must cover the data exactly once: no hole, no
 * overlap, no byte too few or too many, as the reference library demands.
 * Names, and keys of __metadata__, may be given only once: the library keeps
 * the last one, but whoever reads the file elsewhere may get the first. All
 * O(n log n): 100,000 names of the same range end at the second (S10). Pure.
 */
#include "foreign/st_internal.h"

#include <inttypes.h>
#include <string.h>

static int compare_text(const char *a, size_t a_len, const char *b,
			size_t b_len)
{
	int order = memcmp(a, b, a_len < b_len ? a_len : b_len);

	return order ? order : (a_len > b_len) - (a_len < b_len);
}

static int compare_name(const void *a, const void *b, void *ctx)
{
	const struct ckx_st_tensor *t = ctx;
	const struct ckx_st_tensor *x = &t[*(const uint32_t *)a];
	const struct ckx_st_tensor *y = &t[*(const uint32_t *)b];

	return compare_text(x->name, x->name_len, y->name, y->name_len);
}

static int compare_key(const void *a, const void *b, void *ctx)
{
	const struct ckx_st_pair *p = ctx;
	const struct ckx_st_pair *x = &p[*(const uint32_t *)a];
	const struct ckx_st_pair *y = &p[*(const uint32_t *)b];

	return compare_text(x->key, x->key_len, y->key, y->key_len);
}

/* By begin, then end; equal ones keep the order of the header. */
static int compare_place(const void *a, const void *b, void *ctx)
{
	const struct ckx_st_tensor *t = ctx;
	uint32_t i = *(const uint32_t *)a, j = *(const uint32_t *)b;

	if (t[i].begin != t[j].begin)
		return t[i].begin < t[j].begin ? -1 : 1;
	if (t[i].end != t[j].end)
		return t[i].end < t[j].end ? -1 : 1;
	return (i > j) - (i < j);
}

/* 0, 1, ... @count - 1, sorted; the caller's to free. NULL: out of memory. */
static uint32_t *sorted(size_t count, void *array,
			int (*compare)(const void *, const void *, void *))
{
	uint32_t *index = malloc(count * sizeof(*index));

	if (!index)
		return NULL;
	for (size_t i = 0; i < count; i++)
		index[i] = (uint32_t)i;
	qsort_r(index, count, sizeof(*index), compare, array);
	return index;
}

/* Move tensors so that the one at order[i] comes to i; spoils @order. */
static void permute(struct ckx_st_tensor *t, uint32_t *order, size_t count)
{
	for (size_t i = 0; i < count; i++) {
		struct ckx_st_tensor held = t[i];
		size_t at = i;

		while (order[at] != i) {
			size_t from = order[at];

			t[at] = t[from];
			order[at] = (uint32_t)at;
			at = from;
		}
		t[at] = held;
		order[at] = (uint32_t)at;
	}
}

static int sort_by_place(struct ckx_st *st, struct ckpt_err *err)
{
	CKB_FREE uint32_t *order = sorted(st->tensor_count, st->tensors,
					  compare_place);

	if (!order)
		return ckb_err_nomem(err);
	permute(st->tensors, order, st->tensor_count);
	return 0;
}

static int check_names(struct ckx_st *st, struct ckpt_err *err)
{
	char q[CKB_QUOTE_BYTES];

	st->by_name = sorted(st->tensor_count, st->tensors, compare_name);
	if (!st->by_name)
		return ckb_err_nomem(err);
	for (size_t i = 1; i < st->tensor_count; i++) {
		const struct ckx_st_tensor *t = &st->tensors[st->by_name[i]];

		if (compare_name(&st->by_name[i - 1], &st->by_name[i],
				 st->tensors) == 0)
			return ckb_err(err, CKPT_EFORMAT, "tensor '%s' is "
				       "given twice",
				       ckb_quote(q, sizeof(q), t->name,
						 t->name_len));
	}
	return 0;
}

static int check_keys(const struct ckx_st *st, struct ckpt_err *err)
{
	char q[CKB_QUOTE_BYTES];
	CKB_FREE uint32_t *by_key = NULL;

	if (st->pair_count == 0)
		return 0;
	by_key = sorted(st->pair_count, st->pairs, compare_key);
	if (!by_key)
		return ckb_err_nomem(err);
	for (size_t i = 1; i < st->pair_count; i++) {
		const struct ckx_st_pair *p = &st->pairs[by_key[i]];

		if (compare_key(&by_key[i - 1], &by_key[i], st->pairs) == 0)
			return ckb_err(err, CKPT_EFORMAT, "__metadata__ has "
				       "the key '%s' twice",
				       ckb_quote(q, sizeof(q), p->key,
						 p->key_len));
	}
	return 0;
}

/* @t does not begin where @before (NULL: nothing) ended, at @end. */
static int misplaced(const struct ckx_st_tensor *t,
		     const struct ckx_st_tensor *before, uint64_t end,
		     struct ckpt_err *err)
{
	char q[CKB_QUOTE_BYTES], r[CKB_QUOTE_BYTES];

	ckb_quote(q, sizeof(q), t->name, t->name_len);
	if (t->begin > end)
		return ckb_err(err, CKPT_EFORMAT, "a hole in the data: bytes %"
			       PRIu64 " to %" PRIu64 ", before tensor '%s', "
			       "are no tensor's", end, t->begin, q);
	return ckb_err(err, CKPT_EFORMAT, "tensors '%s' (bytes %" PRIu64
		       " to %" PRIu64 " of the data) and '%s' (bytes %" PRIu64
		       " to %" PRIu64 ") overlap",
		       ckb_quote(r, sizeof(r), before->name,
				 before->name_len),
		       before->begin, before->end, q, t->begin, t->end);
}

static int check_cover(const struct ckx_st *st, uint64_t file_len,
		       struct ckpt_err *err)
{
	const struct ckx_st_tensor *before = NULL;
	uint64_t end = 0, have = file_len - st->data_off, want;

	for (size_t i = 0; i < st->tensor_count; i++) {
		const struct ckx_st_tensor *t = &st->tensors[i];

		if (t->begin != end)
			return misplaced(t, before, end, err);
		end = t->end;
		before = t;
	}
	if (end < have)
		return ckb_err(err, CKPT_EFORMAT, "%" PRIu64 " trailing byte%s "
			       "after the last tensor: the header describes %"
			       PRIu64 " bytes, the file has %" PRIu64,
			       have - end, have - end == 1 ? "" : "s",
			       st->data_off + end, file_len);
	if (end > have) {
		if (!ckb_add_u64(st->data_off, end, &want))
			want = UINT64_MAX;
		return ckb_err(err, CKPT_EFORMAT, "the file is truncated: the "
			       "header describes %" PRIu64 " bytes, the file "
			       "has %" PRIu64, want, file_len);
	}
	return 0;
}

int ckx_st_check(struct ckx_st *st, uint64_t file_len, struct ckpt_err *err)
{
	int rc = 0;

	if (st->tensor_count > 0) {
		rc = sort_by_place(st, err);
		if (rc == 0)
			rc = check_names(st, err);
	}
	if (rc == 0)
		rc = check_keys(st, err);
	if (rc == 0)
		rc = check_cover(st, file_len, err);
	return rc;
}

const struct ckx_st_tensor *ckx_st_find(const struct ckx_st *st,
					const char *name, size_t len)
{
	size_t low = 0, high = st->tensor_count;

	while (low < high) {
		size_t mid = low + (high - low) / 2;
		const struct ckx_st_tensor *t = &st->tensors[st->by_name[mid]];
		int order = compare_text(name, len, t->name, t->name_len);

		if (order == 0)
			return t;
		if (order < 0)
			high = mid;
		else
			low = mid + 1;
	}
	return NULL;
}
