/* SPDX-License-Identifier: Apache-2.0 */
/* test_checkpoint.c - opening, names, chunk lists: told right, or refused. */
#include <time.h>

#include <ckpt/read.h>

#include "mkstore.h"
#include "store_fixture.h"
#include "verbs/checkpoint.h"
#include "sanitized.h"

static int setup(void **state)
{
	struct mkstore *mk = calloc(1, sizeof(*mk));
	struct ckpt_err err = { 0 };

	assert_non_null(mk);
	assert_ok(mkstore_new(mk, 0, &err));
	*state = mk;
	return 0;
}

static int teardown(void **state)
{
	mkstore_free(*state);
	free(*state);
	return 0;
}

static const struct mk_tensor small[] = {
	{ .name = "b.w", .dtype = CKPT_F32, .ndim = 2, .dim = { 3, 5 } },
	{ .name = "a.w", .dtype = CKPT_BF16, .ndim = 2, .dim = { 3, 5 },
	  .seed = 1 },
	{ .name = "tied", .dtype = CKPT_F32, .ndim = 2, .dim = { 3, 5 },
	  .alias_of = "b.w" },
	{ .name = "x\0y", .name_len = 3, .dtype = CKPT_I64, .seed = 2 },
	{ .name = "x", .dtype = CKPT_I8, .ndim = 3, .dim = { 4, 0, 7 } },
	{ .item = "optimizer", .name = "b.w", .ndim = 1, .dim = { 9 } },
	{ .item = "assets", .name = "a/b.json", .media_type = "text/json",
	  .ndim = 1, .dim = { 12 } },
};

static void open_tells_what_was_saved(void **state)
{
	struct mkstore *mk = *state;
	struct ckpt_err err = { 0 };
	struct ckpt_checkpoint *c;

	assert_ok(mk_save(mk, "run/1", small, CKB_ARRAY_LEN(small), NULL,
			  &err));
	assert_ok(ckpt_checkpoint_open(mk->store, "run/1", &c, &err));
	const struct ckpt_checkpoint_info *i = ckpt_checkpoint_info(c);

	assert_string_equal(i->name, "run/1");
	assert_string_equal(i->writer, "mkstore");
	assert_int_equal(i->generation, 1);
	assert_false(i->has_step);
	assert_int_equal(i->bytes, 60 + 30 + 8 + 0 + 9 + 12);
	assert_int_equal(ckpt_item_count(c), 3);
	assert_int_equal(ckpt_tensor_count(c), CKB_ARRAY_LEN(small));
	assert_null(ckpt_item_at(c, 3));
	assert_null(ckpt_tensor_at(c, CKB_ARRAY_LEN(small)));
	assert_null(ckpt_item_find(c, "modem"));
	const struct ckpt_item_info *model = ckpt_item_find(c, "model");
	const struct ckpt_item_info *assets = ckpt_item_find(c, "assets");

	assert_ptr_equal(model, ckpt_item_at(c, 0));
	assert_int_equal(model->first, 0);
	assert_int_equal(model->count, 5);
	assert_int_equal(model->bytes, 98);
	assert_int_equal(assets->first, 6);
	assert_int_equal(assets->kind, CKPT_ITEM_FILES);
	for (size_t n = 0; n < CKB_ARRAY_LEN(small); n++) {
		const struct mk_tensor *want = &small[n];
		const struct ckpt_tensor_info *t = ckpt_tensor_at(c, n);
		size_t len = want->name_len ? want->name_len
					    : strlen(want->name);

		assert_int_equal(t->index, n);
		assert_int_equal(t->name_len, len);
		assert_memory_equal(t->name, want->name, len);
		assert_int_equal(t->dtype, want->dtype ? want->dtype : CKPT_U8);
		assert_int_equal(t->shape->ndim, want->ndim);
		assert_memory_equal(t->shape->dim, want->dim,
				    want->ndim * sizeof(want->dim[0]));
		assert_int_equal(t->alias_of, want->alias_of ? 0 : SIZE_MAX);
		assert_ptr_equal(ckpt_tensor_find(c, ckpt_item_at(c, t->item),
						  want->name, len), t);
	}
	assert_null(ckpt_tensor_find(c, model, "x\0z", 3));
	assert_null(ckpt_tensor_find(c, model, "", 0));
	assert_null(ckpt_tensor_find(c, assets, "b.w", 3));
	ckpt_checkpoint_close(c);
}

static void equal_shapes_are_one_and_may_be_copied(void **state)
{
	struct mkstore *mk = *state;
	struct ckpt_err err = { 0 };
	struct ckpt_checkpoint *c;

	assert_ok(mk_save(mk, "s", small, CKB_ARRAY_LEN(small), NULL, &err));
	assert_ok(ckpt_checkpoint_open(mk->store, "s", &c, &err));
	assert_ptr_equal(ckpt_tensor_at(c, 0)->shape,
			 ckpt_tensor_at(c, 1)->shape);
	assert_ptr_not_equal(ckpt_tensor_at(c, 0)->shape,
			     ckpt_tensor_at(c, 4)->shape);
	for (size_t i = 0; i < CKB_ARRAY_LEN(small); i++) {
		struct ckpt_shape copy = *ckpt_tensor_at(c, i)->shape;

		assert_int_equal(copy.ndim, small[i].ndim);
	}
	ckpt_checkpoint_close(c);
}

static void names_that_are_no_checkpoint_are_told_apart(void **state)
{
	static const struct {
		const char *name, *says;
		int code;
	} cases[] = {
		{ "run/2", "there is no checkpoint 'run/2'", CKPT_ENOENT },
		{ "run", "'run' is a run", CKPT_ENOENT },
		{ "run/1/x", "there is no checkpoint", CKPT_ENOENT },
		{ "", "cannot be a checkpoint's name", CKPT_EINVAL },
		{ "run/../run/1", "cannot be a checkpoint's", CKPT_EINVAL },
	};
	struct mkstore *mk = *state;
	struct ckpt_err err = { 0 };
	struct ckpt_checkpoint *c;

	assert_ok(mk_save(mk, "run/1", small, 1, NULL, &err));
	for (size_t i = 0; i < CKB_ARRAY_LEN(cases); i++) {
		assert_code(ckpt_checkpoint_open(mk->store, cases[i].name, &c,
						 &err), cases[i].code);
		assert_null(c);
		assert_says(err, cases[i].says);
	}
	assert_code(ckpt_checkpoint_open(mk->store, "run", &c, NULL),
		    CKPT_ENOENT);
}

static void a_hundred_thousand_tensors_open_at_once(void **state)
{
	struct mkstore *mk = *state;
	struct mk_opts opts = { .reuse = true };
	struct ckpt_err err = { 0 };
	struct ckpt_checkpoint *c;
	size_t n = SANITIZED ? 10000 : 100000;
	struct mk_tensor *t = calloc(n, sizeof(*t));
	char (*names)[40] = calloc(n, sizeof(*names));
	struct timespec from, to;
	uint64_t stored;

	for (size_t i = 0; i < n; i++) {
		/* not in the order of names */
		snprintf(names[i], sizeof(names[i]), "layers.%zu.weight",
			 i * 7919 % n);
		t[i] = (struct mk_tensor){ .name = names[i], .ndim = 2,
					   .dim = { 8, 1 + i % 4 } };
	}
	assert_ok(mk_save(mk, "wide", t, n, &opts, &err));
	clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &from);
	assert_ok(ckpt_checkpoint_open(mk->store, "wide", &c, &err));
	clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &to);
	double s = (double)(to.tv_sec - from.tv_sec) +
		   (double)(to.tv_nsec - from.tv_nsec) / 1e9;

	printf("opened in %.3f s\n", s);
	assert_true(s < 10); /* the square of n would take longer */
	const struct ckpt_item_info *model = ckpt_item_at(c, 0);

	for (size_t i = 0; i < n; i++)
		assert_int_equal(ckpt_tensor_find(c, model, names[i],
						  strlen(names[i]))->index, i);
	/* four kinds of content, each stored once */
	assert_ok(ckpt_checkpoint_stored_bytes(c, &stored, &err));
	assert_int_equal(stored, 8 + 16 + 24 + 32);
	ckpt_checkpoint_close(c);
	free(t);
	free(names);
}

/* ---- rows that contradict each other ---- */

static const struct mk_tensor rows[] = {
	{ .item = "m", .name = "a", .dtype = CKPT_F32, .ndim = 2,
	  .dim = { 3, 5 } },
	{ .item = "m", .name = "b", .dtype = CKPT_BF16, .ndim = 2,
	  .dim = { 3, 5 } },
	{ .item = "n", .name = "c", .ndim = 1, .dim = { 2 } },
	{ .item = "n", .name = "d", .ndim = 1, .dim = { 2 } },
};

static void bad_row(void *ctx, size_t tensor, struct ckf_chunk_entry *e,
		    size_t *count, struct ckq_tensor *row)
{
	int which = *(const int *)ctx;

	(void)e;
	if (tensor != (which == 0 ? 3 : 1))
		return;
	switch (which) {
	case 0:
		row->item = 0; /* behind n's c */
		break;
	case 1:
		row->media_type = "text/plain";
		row->dtype = CKPT_U8;
		row->shape = (struct ckpt_shape){ .ndim = 1, .dim = { 30 } };
		break;
	case 2:
		row->has_alias = true; /* of another dtype */
		row->alias_of = 0;
		*count = 0;
		break;
	case 3:
		row->shape.dim[0] = 4; /* not its bytes */
		break;
	}
}

static void rows_that_contradict_each_other_are_refused(void **state)
{
	static const char *const says[] = {
		"tensor 'd'", "its kind is not its item's", "tensor 'b'",
		"tensor 'b'",
	};
	struct mkstore *mk = *state;
	struct ckpt_err err = { 0 };
	struct ckpt_checkpoint *c;

	for (int i = 0; i < (int)CKB_ARRAY_LEN(says); i++) {
		struct mk_opts opts = { .tamper = bad_row, .ctx = &i };
		char name[16];

		snprintf(name, sizeof(name), "bad/%d", i);
		assert_ok(mk_save(mk, name, rows, CKB_ARRAY_LEN(rows),
				  &opts, &err));
		assert_code(ckpt_checkpoint_open(mk->store, name, &c, &err),
			    CKPT_ECORRUPT);
		assert_null(c);
		assert_says(err, name);
		assert_says(err, says[i]);
	}
}

/* ---- chunk lists ---- */

/* 1,000,000 bytes: four tiles of 250,000; shards cut the second. */
static const struct mk_box halves[] = {
	{ { 0 }, { 300000 } }, { { 300000 }, { 700000 } },
};
static const struct mk_tensor tiled[] = {
	{ .name = "whole", .ndim = 1, .dim = { 1000000 } },
	{ .name = "sharded", .ndim = 1, .dim = { 1000000 }, .shard_count = 2,
	  .shards = halves, .seed = 4 },
};

enum { SWAP, LOSE_FIRST, LOSE_MIDDLE, LOSE_LAST, TWICE, FAR_TILE, FAR_PACK,
       FAR_SHARD, NO_LAYOUT, WRONG_LENGTH, HOLE, OVERLAP };

static void lose(struct ckf_chunk_entry *e, size_t *count, size_t at)
{
	memmove(&e[at], &e[at + 1], (--*count - at) * sizeof(*e));
}

/* The sharded one has entries: tile 0; tile 1, shards 0 and 1; 2; 3. */
static void bad_chunks(void *ctx, size_t tensor, struct ckf_chunk_entry *e,
		       size_t *count, struct ckq_tensor *row)
{
	struct ckf_chunk_entry first = e[0];

	if (tensor != 1)
		return;
	assert_int_equal(*count, 5);
	switch (*(const int *)ctx) {
	case SWAP:
		e[0] = e[3];
		e[3] = first;
		break;
	case LOSE_FIRST:
		lose(e, count, 0);
		break;
	case LOSE_MIDDLE:
		lose(e, count, 3);
		break;
	case LOSE_LAST:
		--*count;
		break;
	case TWICE:
		e[3].tile = 0;
		e[1] = e[3];
		break;
	case FAR_TILE:
		e[4].tile = 4;
		break;
	case FAR_PACK:
		e[2].pack = 1;
		break;
	case FAR_SHARD:
		e[2].shard = 2;
		break;
	case NO_LAYOUT:
		row->has_layout = false;
		break;
	case WRONG_LENGTH:
		e[3].raw_len--;
		e[3].stored_len--;
		break;
	case HOLE:
		lose(e, count, 2);
		break;
	case OVERLAP:
		e[2] = e[3];
		e[2].tile = 1;
		break;
	}
}

static void chunk_lists_that_do_not_cover_are_refused(void **state)
{
	static const char *const says[] = {
		[SWAP] = "do not cover tile 2", [LOSE_FIRST] = "do not cover",
		[LOSE_MIDDLE] = "tile 2 is missing",
		[LOSE_LAST] = "chunks of 3 tiles, not 4",
		[TWICE] = "out of order", [FAR_TILE] = "names tile 4",
		[FAR_PACK] = "pack 1, which it does not have",
		[FAR_SHARD] = "shard 2", [NO_LAYOUT] = "shard 0",
		[WRONG_LENGTH] = "which its box does not have",
		[HOLE] = "do not cover tile 1", [OVERLAP] = "do not cover",
	};
	struct mkstore *mk = *state;
	struct ckpt_err err = { 0 };
	struct ckpt_checkpoint *c;
	uint8_t byte;
	uint64_t stored = 77;

	for (int i = 0; i < (int)CKB_ARRAY_LEN(says); i++) {
		struct mk_opts opts = { .tamper = bad_chunks, .ctx = &i,
					.reuse = true };
		char name[16];

		snprintf(name, sizeof(name), "bad/%d", i);
		assert_ok(mk_save(mk, name, tiled, 2, &opts, &err));
		assert_ok(ckpt_checkpoint_open(mk->store, name, &c, &err));
		assert_code(ckpt_read_bytes(c, ckpt_tensor_at(c, 1), 0, 1,
					    &byte, &err), CKPT_ECORRUPT);
		assert_says(err, says[i]);
		assert_says(err, "tensor 'model/sharded'");
		assert_code(ckpt_checkpoint_stored_bytes(c, &stored, &err),
			    CKPT_ECORRUPT);
		assert_int_equal(stored, 77);
		/* its neighbour is none the worse */
		assert_ok(ckpt_read_bytes(c, ckpt_tensor_at(c, 0), 999999, 1,
					  &byte, &err));
		ckpt_checkpoint_close(c);
	}
}

static void boxes_of_packed_elements_are_told_in_elements(void **state)
{
	static const struct {
		enum ckpt_dtype dtype;
		uint64_t shape[2], first, count, want_first, want_count;
		bool ok;
	} cases[] = {
		{ CKPT_F32, { 4, 8 }, 2, 3, 2, 3, true },
		{ CKPT_F4, { 4, 8 }, 1, 2, 2, 4, true },
		{ CKPT_F6_E2M3, { 4, 8 }, 3, 3, 4, 4, true },
		{ CKPT_F6_E2M3, { 4, 8 }, 2, 1, 2, 1, false },
		{ CKPT_F4, { 2, 3 }, 1, 1, 1, 1, false }, /* rows cut bytes */
	};

	(void)state;
	for (size_t i = 0; i < CKB_ARRAY_LEN(cases); i++) {
		struct ckpt_shape shape = { .ndim = 2 };
		struct ckpt_tensor_info t = { .dtype = cases[i].dtype,
					      .shape = &shape };
		struct cks_chunks k = { 0 };
		struct ckpt_err err = { 0 };

		memcpy(shape.dim, cases[i].shape, sizeof(cases[i].shape));
		assert_ok(ckt_grid_init(&k.grid, t.dtype, &shape, &err));
		struct ckpt_box box = { .ndim = k.grid.ndim };
		uint32_t d = box.ndim - 1;

		box.origin[d] = cases[i].first;
		box.extent[d] = cases[i].count;
		assert_int_equal(cks_box_logical(&k, &t, &box), cases[i].ok);
		assert_int_equal(box.origin[d], cases[i].want_first);
		assert_int_equal(box.extent[d], cases[i].want_count);
	}
}

int main(void)
{
#define T(f) cmocka_unit_test_setup_teardown(f, setup, teardown)
	const struct CMUnitTest tests[] = {
		T(open_tells_what_was_saved),
		T(equal_shapes_are_one_and_may_be_copied),
		T(names_that_are_no_checkpoint_are_told_apart),
		T(a_hundred_thousand_tensors_open_at_once),
		T(rows_that_contradict_each_other_are_refused),
		T(chunk_lists_that_do_not_cover_are_refused),
		cmocka_unit_test(boxes_of_packed_elements_are_told_in_elements),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
