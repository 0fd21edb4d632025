/* SPDX-License-Identifier: Apache-2.0 */
/*
 * st_store.c - the memory of a parsed safetensors header.
 *
 * Two arrays that grow, and blocks that never move for dimensions and decoded
 * texts. Every byte is counted before it is taken, sorted indices included,
 * and past CKX_ST_PARSED_MAX the header is refused (S9, S10): a hostile header
 * may be 100 MB of the shortest entries there are. Arrays grow by half; what
 * they have in reserve is never touched, so it takes no memory. Pure.
 */
#include "foreign/st_internal.h"

#include <string.h>

#define BLOCK_BYTES ((size_t)64 << 10)
/* each tensor or pair is sorted by name: an index, and qsort's copy of it */
#define SORT_BYTES (2 * sizeof(uint32_t))

struct ckx_st_block {
	struct ckx_st_block *next;
	size_t used, cap;
	uint64_t data[]; /* 8-aligned */
};

static int charge(struct ckx_st *st, size_t len, struct ckpt_err *err)
{
	if (len > CKX_ST_PARSED_MAX - st->parsed_bytes)
		return ckb_err(err, CKPT_ELIMIT, "the header describes more "
			       "than %u MiB of names and shapes: %zu tensors "
			       "so far", CKX_ST_PARSED_MAX >> 20,
			       st->tensor_count);
	st->parsed_bytes += len;
	return 0;
}

int ckx_st_alloc(struct ckx_st *st, size_t len, void **out,
		 struct ckpt_err *err)
{
	struct ckx_st_block *b = st->blocks;
	size_t padded = (len + 7) & ~(size_t)7;
	int rc = charge(st, padded, err);

	if (rc < 0)
		return rc;
	if (!b || padded > b->cap - b->used) {
		size_t cap = padded > BLOCK_BYTES ? padded : BLOCK_BYTES;

		b = malloc(sizeof(*b) + cap);
		if (!b)
			return ckb_err_nomem(err);
		b->next = st->blocks;
		b->used = 0;
		b->cap = cap;
		st->blocks = b;
	}
	*out = (char *)b->data + b->used;
	b->used += padded;
	return 0;
}

void ckx_st_shrink(struct ckx_st *st, size_t len, size_t used)
{
	size_t back = ((len + 7) & ~(size_t)7) - ((used + 7) & ~(size_t)7);

	st->blocks->used -= back;
	st->parsed_bytes -= back;
}

/* Room for one more of @size bytes in the array at *@array. */
static int grow(void **array, size_t count, size_t *cap, size_t size,
		struct ckpt_err *err)
{
	size_t more = *cap ? *cap + *cap / 2 : 16;

	if (count < *cap)
		return 0;
	void *bigger = realloc(*array, more * size);

	if (!bigger)
		return ckb_err_nomem(err);
	*array = bigger;
	*cap = more;
	return 0;
}

int ckx_st_add_tensor(struct ckx_st *st, struct ckx_st_tensor **out,
		      struct ckpt_err *err)
{
	void *array = st->tensors;
	int rc;

	if (st->tensor_count >= CKX_ST_TENSOR_MAX)
		return ckb_err(err, CKPT_ELIMIT, "the header describes more "
			       "than %u tensors", CKX_ST_TENSOR_MAX);
	rc = charge(st, sizeof(**out) + SORT_BYTES, err);
	if (rc == 0)
		rc = grow(&array, st->tensor_count, &st->tensor_cap,
			  sizeof(**out), err);
	if (rc < 0)
		return rc;
	st->tensors = array;
	*out = &st->tensors[st->tensor_count++];
	memset(*out, 0, sizeof(**out));
	return 0;
}

int ckx_st_add_pair(struct ckx_st *st, struct ckx_st_pair **out,
		    struct ckpt_err *err)
{
	void *array = st->pairs;
	int rc;

	if (st->pair_count >= CKX_ST_PAIR_MAX)
		return ckb_err(err, CKPT_ELIMIT, "__metadata__ has more than "
			       "%u keys", CKX_ST_PAIR_MAX);
	rc = charge(st, sizeof(**out) + SORT_BYTES, err);
	if (rc == 0)
		rc = grow(&array, st->pair_count, &st->pair_cap,
			  sizeof(**out), err);
	if (rc < 0)
		return rc;
	st->pairs = array;
	*out = &st->pairs[st->pair_count++];
	memset(*out, 0, sizeof(**out));
	return 0;
}

void ckx_st_fini(struct ckx_st *st)
{
	struct ckx_st_block *next;

	for (struct ckx_st_block *b = st->blocks; b; b = next) {
		next = b->next;
		free(b);
	}
	free(st->tensors);
	free(st->pairs);
	free(st->by_name);
	memset(st, 0, sizeof(*st));
}
