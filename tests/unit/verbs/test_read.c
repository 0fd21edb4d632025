/* SPDX-License-Identifier: Apache-2.0 */
/*
 * test_read.c - boxes and byte ranges against a plain copy of the tensor;
 * damage is told, never served (S6).
 */
#include <dirent.h>
#include <pthread.h>

#include <ckpt/read.h>

#include "mkstore.h"
#include "store_fixture.h"
#include "tensor/box.h"
#include "verbs/checkpoint.h"

#define THREADS 8

static uint64_t random_state;

static uint64_t draw(uint64_t *state, uint64_t below)
{
	*state = *state * 6364136223846793005ull + 1442695040888963407ull;
	return below ? (*state >> 33) % below : 0;
}

/* ---- tensors of every kind ---- */

/* 700 x 900 F32 has tiles of (88,450) or so: shards cut them anywhere. */
static const struct mk_box quarters[] = {
	{ { 0, 0 }, { 333, 401 } }, { { 0, 401 }, { 333, 499 } },
	{ { 333, 0 }, { 367, 401 } }, { { 333, 401 }, { 367, 499 } },
};
static const struct mk_box thirds[] = {
	{ { 0 }, { 100001 } }, { { 100001 }, { 700000 } },
	{ { 800001 }, { 199999 } },
};
static const struct mk_box one_each[] = {
	{ { 0, 0, 0 }, { 1, 3, 5 } }, { { 1, 0, 0 }, { 1, 3, 5 } },
};
static const struct mk_tensor tensors[] = {
	{ .name = "scalar", .dtype = CKPT_F64, .ndim = 0 },
	{ .name = "empty", .dtype = CKPT_F32, .ndim = 3, .dim = { 3, 0, 4 } },
	{ .name = "tiny", .dtype = CKPT_I16, .ndim = 3, .dim = { 2, 3, 5 },
	  .shard_count = 2, .shards = one_each },
	{ .name = "matrix", .dtype = CKPT_F32, .ndim = 2, .dim = { 700, 900 },
	  .seed = 3 },
	{ .name = "sharded", .dtype = CKPT_F32, .ndim = 2,
	  .dim = { 700, 900 }, .shard_count = 4, .shards = quarters,
	  .seed = 4 },
	{ .name = "vector", .dtype = CKPT_BF16, .ndim = 1, .dim = { 1000000 },
	  .shard_count = 3, .shards = thirds, .seed = 5 },
	{ .name = "conv", .dtype = CKPT_F16, .ndim = 4,
	  .dim = { 130, 65, 9, 7 }, .seed = 6 },
	{ .name = "c128", .dtype = CKPT_C128, .ndim = 2, .dim = { 7, 5003 },
	  .seed = 7 },
	{ .name = "f4 rows", .dtype = CKPT_F4, .ndim = 2, .dim = { 900, 1000 },
	  .seed = 8 },
	{ .name = "f6 rows", .dtype = CKPT_F6_E3M2, .ndim = 2,
	  .dim = { 1000, 512 }, .seed = 9 },
	{ .name = "f4 flat", .dtype = CKPT_F4, .ndim = 2, .dim = { 6, 3 },
	  .seed = 10 },
	{ .name = "deep", .dtype = CKPT_I32, .ndim = 64,
	  .dim = { 2, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1,
		   1, 1, 1, 1, 1, 3, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1,
		   1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1,
		   1, 1, 1, 5 }, .seed = 11 },
	{ .name = "tied", .dtype = CKPT_F32, .ndim = 2, .dim = { 700, 900 },
	  .alias_of = "sharded", .seed = 4 },
	{ .item = "assets", .name = "file", .media_type = "", .ndim = 1,
	  .dim = { (5 << 20) + 77 }, .seed = 13 },
	{ .item = "assets", .name = "nothing", .media_type = "", .ndim = 1,
	  .dim = { 0 } },
};
#define COUNT CKB_ARRAY_LEN(tensors)

struct at {
	struct mkstore mk;
	struct ckpt_checkpoint *c;
	uint8_t *bytes[COUNT];
	uint64_t len[COUNT];
};

static int setup_all(void **state, enum ckf_codec codec, size_t cache_bytes)
{
	struct at *a = calloc(1, sizeof(*a));
	struct mk_opts opts = { .codec = codec };
	struct ckpt_err err = { 0 };

	assert_non_null(a);
	assert_ok(mkstore_new(&a->mk, cache_bytes, &err));
	assert_ok(mk_save(&a->mk, "run/1", tensors, COUNT, &opts, &err));
	assert_ok(ckpt_checkpoint_open(a->mk.store, "run/1", &a->c, &err));
	for (size_t i = 0; i < COUNT; i++)
		a->bytes[i] = mk_bytes(&tensors[i], &a->len[i]);
	*state = a;
	return 0;
}

static int setup(void **state)
{
	return setup_all(state, CKF_CODEC_RAW, 0);
}

static int setup_zstd_small(void **state)
{
	return setup_all(state, CKF_CODEC_ZSTD, 1);
}

static int teardown(void **state)
{
	struct at *a = *state;

	ckpt_checkpoint_close(a->c);
	mkstore_free(&a->mk);
	for (size_t i = 0; i < COUNT; i++)
		free(a->bytes[i]);
	free(a);
	return 0;
}

/* Stores for the tests that do no damage: raw, and zstd with a small cache. */
static void *shared[2];

static int setup_group(void **state)
{
	(void)state;
	return setup(&shared[0]) || setup_zstd_small(&shared[1]);
}

static int teardown_group(void **state)
{
	(void)state;
	return teardown(&shared[0]) || teardown(&shared[1]);
}

static int use_raw(void **state)
{
	random_state = 1;
	*state = shared[0];
	return 0;
}

static int use_zstd(void **state)
{
	random_state = 1;
	*state = shared[1];
	return 0;
}

static size_t number(const char *name)
{
	size_t i = 0;

	while (strcmp(tensors[i].name, name) != 0)
		i++;
	return i;
}

static struct cks_cells_counters counters(struct at *a)
{
	struct cks_cells_counters n;

	cks_cells_counters(a->mk.store, &n);
	return n;
}

/* ---- boxes ---- */

/*
 * Read @box into memory full of 0xee whose rows lie @gap bytes apart more than
 * they need; compare with a copy made row by row, and see that nothing else was
 * touched.
 */
static void compare_box(struct at *a, size_t n, const struct ckpt_box *box,
			uint64_t gap)
{
	const struct ckpt_tensor_info *t = ckpt_tensor_at(a->c, n);
	uint64_t item = ckpt_dtype_bits(t->dtype) / 8;
	uint64_t strides[CKPT_NDIM_MAX], size = item, rows = 1, row = item;
	uint32_t last = box->ndim ? box->ndim - 1 : 0;
	struct ckpt_err err = { 0 };

	for (uint32_t d = box->ndim; d-- > 0;) {
		strides[d] = size;
		size = size * box->extent[d] + gap;
		rows *= d == last ? 1 : box->extent[d];
		row *= d == last ? box->extent[d] : 1;
	}
	uint8_t *dst = malloc(size + 8);
	uint8_t *want = malloc(size + 8);

	memset(dst, 0xee, size + 8);
	memset(want, 0xee, size + 8);
	for (uint64_t r = 0; r < rows; r++) {
		uint64_t rest = r, from = 0, to = 0, step = 1;

		for (uint32_t d = box->ndim; d-- > 0;) {
			uint64_t side = d == last ? 1 : box->extent[d];
			uint64_t at = rest % side;

			rest /= side;
			from += (box->origin[d] + at) * step;
			to += at * strides[d];
			step *= t->shape->dim[d];
		}
		memcpy(want + to, a->bytes[n] + from * item, row);
	}
	assert_ok(ckpt_read_box(a->c, t, box, dst, gap ? strides : NULL,
				&err));
	if (memcmp(dst, want, size + 8) != 0)
		fail_msg("'%s' reads wrong", t->name);
	free(dst);
	free(want);
}

static void random_box(size_t n, struct ckpt_box *box)
{
	const struct mk_tensor *t = &tensors[n];

	box->ndim = t->ndim;
	for (uint32_t d = 0; d < t->ndim; d++) {
		box->origin[d] = draw(&random_state, t->dim[d] + 1);
		box->extent[d] = draw(&random_state,
				      t->dim[d] - box->origin[d] + 1);
		/* thin boxes are the common ones */
		if (draw(&random_state, 3) == 0 && box->extent[d] > 3)
			box->extent[d] = 3;
	}
}

static void any_box_equals_a_plain_copy(void **state)
{
	struct at *a = *state;

	for (size_t n = 0; n < COUNT; n++) {
		struct ckpt_box box = { .ndim = tensors[n].ndim };

		if (ckpt_dtype_bits(ckpt_tensor_at(a->c, n)->dtype) % 8 != 0)
			continue;
		memcpy(box.extent, tensors[n].dim, sizeof(box.extent));
		compare_box(a, n, &box, 0);
		compare_box(a, n, &box, 24);
		for (int i = 0; i < 10; i++) {
			random_box(n, &box);
			compare_box(a, n, &box, 0);
			compare_box(a, n, &box, 8);
		}
	}
}

static void packed_elements_read_where_they_fall_on_bytes(void **state)
{
	static const struct {
		const char *name;
		uint64_t origin[2], extent[2];
		uint64_t from, row, len, rows; /* in bytes; 0: EINVAL */
	} cases[] = {
		{ "f4 rows", { 0, 0 }, { 900, 1000 }, 0, 500, 500, 900 },
		{ "f4 rows", { 777, 10 }, { 100, 500 }, 777 * 500 + 5, 500,
		  250, 100 },
		{ "f4 rows", { 3, 1 }, { 1, 2 }, 0, 0, 0, 0 },
		{ "f4 rows", { 3, 2 }, { 1, 3 }, 0, 0, 0, 0 },
		{ "f6 rows", { 500, 4 }, { 400, 504 }, 500 * 384 + 3, 384, 378,
		  400 },
		{ "f6 rows", { 0, 2 }, { 1, 4 }, 0, 0, 0, 0 },
		{ "f4 flat", { 0, 0 }, { 6, 3 }, 0, 9, 9, 1 },
		{ "f4 flat", { 0, 0 }, { 2, 3 }, 0, 0, 0, 0 },
	};
	struct at *a = *state;
	uint8_t *dst = malloc(1 << 20);
	struct ckpt_err err = { 0 };

	for (size_t i = 0; i < CKB_ARRAY_LEN(cases); i++) {
		size_t n = number(cases[i].name);
		struct ckpt_box box = { .ndim = 2 };

		memcpy(box.origin, cases[i].origin, sizeof(cases[i].origin));
		memcpy(box.extent, cases[i].extent, sizeof(cases[i].extent));
		if (cases[i].rows == 0) {
			assert_code(ckpt_read_box(a->c, ckpt_tensor_at(a->c, n),
						  &box, dst, NULL, &err),
				    CKPT_EINVAL);
			assert_says(err, "whole bytes");
			continue;
		}
		assert_ok(ckpt_read_box(a->c, ckpt_tensor_at(a->c, n), &box,
					dst, NULL, &err));
		for (uint64_t r = 0; r < cases[i].rows; r++)
			assert_memory_equal(dst + r * cases[i].len,
					    a->bytes[n] + cases[i].from +
					    r * cases[i].row, cases[i].len);
		assert_code(ckpt_read_box(a->c, ckpt_tensor_at(a->c, n), &box,
					  dst, cases[i].origin, &err),
			    CKPT_EINVAL);
		assert_says(err, "cannot be read with strides");
	}
	free(dst);
}

static void boxes_outside_the_tensor_are_refused(void **state)
{
	static const struct ckpt_box boxes[] = {
		{ .ndim = 2, .origin = { 0, 0 }, .extent = { 701, 900 } },
		{ .ndim = 2, .origin = { 700, 899 }, .extent = { 0, 2 } },
		{ .ndim = 2, .origin = { UINT64_MAX, 0 }, .extent = { 2, 1 } },
		{ .ndim = 1, .origin = { 0 }, .extent = { 1 } },
		{ .ndim = 3, .extent = { 1, 1, 1 } },
	};
	struct at *a = *state;
	struct ckpt_err err = { 0 };
	uint8_t dst[64];

	for (size_t i = 0; i < CKB_ARRAY_LEN(boxes); i++) {
		assert_code(ckpt_read_box(a->c,
					  ckpt_tensor_at(a->c,
							 number("matrix")),
					  &boxes[i], dst, NULL, &err),
			    CKPT_EINVAL);
		assert_says(err, "tensor 'model/matrix'");
	}
}

/* ---- byte ranges ---- */

static void compare_range(struct at *a, size_t n, uint64_t off, uint64_t len)
{
	struct ckpt_err err = { 0 };
	uint8_t *dst = malloc(len + 8);

	memset(dst, 0xee, len + 8);
	assert_ok(ckpt_read_bytes(a->c, ckpt_tensor_at(a->c, n), off, len, dst,
				  &err));
	if (memcmp(dst, a->bytes[n] + off, len) != 0)
		fail_msg("'%s': bytes %ju to %ju read wrong", tensors[n].name,
			 (uintmax_t)off, (uintmax_t)(off + len));
	assert_int_equal(dst[len], 0xee);
	free(dst);
}

static void any_range_equals_a_plain_copy(void **state)
{
	struct at *a = *state;

	for (size_t n = 0; n < COUNT; n++) {
		uint64_t all = a->len[n];

		compare_range(a, n, 0, all);
		compare_range(a, n, all, 0);
		if (all == 0)
			continue;
		compare_range(a, n, all - 1, 1);
		for (int i = 0; i < 20; i++) {
			uint64_t off = draw(&random_state, all);
			uint64_t len = draw(&random_state, all - off + 1);

			if (i % 2)
				len = ckb_min_u64(len, 1 + (uint64_t)i * 97);
			compare_range(a, n, off, len);
		}
	}
}

/* Cells in the middle go straight to the destination, both ends do not. */
static void long_ranges_may_begin_and_end_anywhere(void **state)
{
	static const uint64_t ends[] = { 0, 1, 5, CKB_CELL_BYTES - 1,
					 CKB_CELL_BYTES, CKB_CELL_BYTES + 1 };
	struct at *a = *state;
	size_t n = number("file");

	for (size_t i = 0; i < CKB_ARRAY_LEN(ends); i++) {
		struct ckpt_box box = { .ndim = 1, .origin = { ends[i] },
					.extent = { 9 << 19 } };

		compare_range(a, n, ends[i], a->len[n] - 2 * ends[i]);
		compare_box(a, n, &box, 0);
	}
}

static void ranges_outside_the_tensor_are_refused(void **state)
{
	static const struct { uint64_t off; size_t len; } cases[] = {
		{ 0, 2520001 }, { 2520000, 1 }, { 2520001, 0 },
		{ UINT64_MAX, 2 }, { 1, SIZE_MAX },
	};
	struct at *a = *state;
	struct ckpt_err err = { 0 };
	uint8_t dst[4];

	for (size_t i = 0; i < CKB_ARRAY_LEN(cases); i++) {
		assert_code(ckpt_read_bytes(a->c,
					    ckpt_tensor_at(a->c,
							   number("matrix")),
					    cases[i].off, cases[i].len, dst,
					    &err), CKPT_EINVAL);
		assert_says(err, "leave its 2520000 bytes");
	}
}

static void only_what_meets_the_box_is_decoded(void **state)
{
	struct at *a = *state;
	struct ckpt_box box = { .ndim = 2, .origin = { 500, 600 },
				.extent = { 1, 1 } };
	uint64_t before = counters(a).decoded_bytes;

	compare_box(a, number("matrix"), &box, 0);
	assert_true(counters(a).decoded_bytes - before <= CKB_CELL_BYTES);
	/* a file's tile has four cells; a byte needs one of them */
	before = counters(a).decoded_bytes;
	compare_range(a, number("file"), 3 << 20, 1);
	assert_int_equal(counters(a).decoded_bytes - before, CKB_CELL_BYTES);
	/* a long read does not sweep the cache */
	before = counters(a).held_bytes;
	compare_range(a, number("file"), 0, a->len[number("file")]);
	assert_true(counters(a).held_bytes < before + CKB_CELL_BYTES);
}

/* scale-04: what one of two ranks decodes for its share, whichever way the
 * tensor is cut; q, k and v in one are three boxes. Nothing is read before. */
static void a_rank_decodes_its_share(void **state)
{
	static const struct {
		struct ckpt_box box[3];
		uint32_t count;
		uint64_t most; /* bytes; 2,520,000 are all */
	} shares[] = {
		/* the tiles of 88 rows go on for two rows */
		{ { { 2, { 0, 0 }, { 350, 900 } } }, 1, 352 * 900 * 4 },
		{ { { 2, { 350, 0 }, { 350, 900 } } }, 1, 436 * 900 * 4 },
		{ { { 2, { 0, 0 }, { 700, 450 } } }, 1, 700 * 450 * 4 },
		{ { { 2, { 0, 450 }, { 700, 450 } } }, 1, 700 * 450 * 4 },
		{ { { 2, { 0, 0 }, { 350, 300 } },
		    { 2, { 0, 300 }, { 350, 300 } },
		    { 2, { 0, 600 }, { 350, 300 } } }, 3, 352 * 900 * 4 },
		{ { { 2, { 0, 0 }, { 88, 900 } },
		    { 2, { 264, 0 }, { 88, 900 } },
		    { 2, { 528, 0 }, { 88, 900 } } }, 3, 3 * 88 * 900 * 4 },
	};
	struct at *a;

	(void)state;
	for (size_t i = 0; i < CKB_ARRAY_LEN(shares); i++) {
		void *fresh = NULL;

		assert_int_equal(setup(&fresh), 0);
		a = fresh;
		for (uint32_t b = 0; b < shares[i].count; b++)
			compare_box(a, number("matrix"), &shares[i].box[b], 0);
		uint64_t decoded = counters(a).decoded_bytes;

		teardown(&fresh);
		if (decoded > shares[i].most)
			fail_msg("share %zu decodes %llu bytes", i,
				 (unsigned long long)decoded);
	}
}

/* ---- damage ---- */

static int count_notes(struct at *a)
{
	return fix_count(a->mk.store, "bad");
}

/* Chunk @i of tensor @n. */
static struct ckf_chunk_entry entry(struct at *a, size_t n, uint64_t i)
{
	const struct cks_chunks *k;
	struct ckpt_err err = { 0 };

	assert_ok(cks_checkpoint_chunks(a->c, ckpt_tensor_at(a->c, n), &k,
					&err));
	assert_true(i < k->count);
	return k->entries[i];
}

static void a_bad_cell_is_named_and_noted(void **state)
{
	struct at *a = *state;
	char *pack = mk_only_pack(&a->mk), says[300];
	size_t n = number("file");
	struct ckf_chunk_entry e = entry(a, n, 2);
	uint8_t *dst = malloc(a->len[n]);
	struct ckpt_err err = { 0 };

	/* the last stored byte is of cell 3 */
	mk_flip(pack, e.off + e.head_len + e.stored_len - 1, 0x80);
	snprintf(says, sizeof(says), "checkpoint 'run/1', tensor "
		 "'assets/file', box [2097152:3145728], pack %s, offset %ju: "
		 "cell 3", pack + strlen(a->mk.path) + 1, (uintmax_t)e.off);
	for (uint64_t off = 2 << 20; off <= (2 << 20) + 10; off += 10) {
		assert_code(ckpt_read_bytes(a->c, ckpt_tensor_at(a->c, n), off,
					    1 << 20, dst, &err),
			    CKPT_ECORRUPT);
		assert_says(err, says);
		assert_says(err, "checksum");
	}
	assert_int_equal(count_notes(a), 1);
	/* in one long read, too; what is whole reads */
	assert_code(ckpt_read_bytes(a->c, ckpt_tensor_at(a->c, n), 0,
				    a->len[n], dst, &err), CKPT_ECORRUPT);
	assert_says(err, says);
	compare_range(a, n, 0, (2 << 20) + 3 * CKB_CELL_BYTES);
	compare_range(a, number("matrix"), 0, a->len[number("matrix")]);
	assert_int_equal(count_notes(a), 1);
	free(dst);
	free(pack);
}

static void a_bad_header_is_named(void **state)
{
	struct at *a = *state;
	char *pack = mk_only_pack(&a->mk);
	size_t n = number("sharded");
	struct ckpt_err err = { 0 };
	uint8_t byte;

	mk_flip(pack, entry(a, n, 0).off + 33, 1);
	assert_code(ckpt_read_bytes(a->c, ckpt_tensor_at(a->c, n), 0, 1, &byte,
				    &err), CKPT_ECORRUPT);
	assert_says(err, "tensor 'model/sharded', box [0:");
	assert_says(err, "header does not match its checksum");
	/* an alias is the same bytes */
	assert_code(ckpt_read_bytes(a->c, ckpt_tensor_at(a->c, number("tied")),
				    0, 1, &byte, &err), CKPT_ECORRUPT);
	free(pack);
}

static void a_readonly_store_notes_nothing(void **state)
{
	struct at *a = *state;
	struct ckpt_store_opts opts = { .size = sizeof(opts),
					.flags = CKPT_STORE_READONLY };
	char *pack = mk_only_pack(&a->mk);
	size_t n = number("sharded");
	struct ckpt_err err = { 0 };
	uint8_t byte;

	mk_flip(pack, entry(a, n, 0).off + 33, 1);
	ckpt_checkpoint_close(a->c);
	a->c = NULL;
	ckpt_store_close(CKB_TAKE(a->mk.store));
	assert_ok(ckpt_store_open(a->mk.path, &opts, &a->mk.store, &err));
	assert_ok(ckpt_checkpoint_open(a->mk.store, "run/1", &a->c, &err));
	assert_code(ckpt_read_bytes(a->c, ckpt_tensor_at(a->c, n), 0, 1, &byte,
				    &err), CKPT_ECORRUPT);
	assert_int_equal(count_notes(a), 0);
	free(pack);
}

/* Nothing is noted as bad: the pack may be back tomorrow. */
static void a_lost_pack_is_an_error(void **state)
{
	struct at *a = *state;
	char *pack = mk_only_pack(&a->mk);
	struct ckpt_err err = { 0 };
	uint8_t byte;

	ckpt_checkpoint_close(a->c);
	a->c = NULL;
	ckpt_store_close(CKB_TAKE(a->mk.store));
	assert_int_equal(unlink(pack), 0);
	assert_ok(ckpt_store_open(a->mk.path, NULL, &a->mk.store, &err));
	assert_ok(ckpt_checkpoint_open(a->mk.store, "run/1", &a->c, &err));
	for (size_t n = 0; n < COUNT; n++) {
		int rc = ckpt_read_bytes(a->c, ckpt_tensor_at(a->c, n), 0,
					 a->len[n] > 0, &byte, &err);

		assert_int_equal(rc, a->len[n] ? CKPT_ECORRUPT : 0);
		if (rc < 0)
			assert_says(err, "is missing");
	}
	assert_int_equal(count_notes(a), 0);
	free(pack);
}

static void a_manifest_that_names_another_record_is_an_error(void **state)
{
	struct at *a = *state;
	struct ckpt_err err = { 0 };
	struct cks_chunks *k;
	uint8_t byte;
	size_t n = number("conv");

	/* the list is borrowed as const: here it lies, as a bad writer's */
	assert_ok(cks_checkpoint_chunks(a->c, ckpt_tensor_at(a->c, n),
					(const struct cks_chunks **)&k, &err));
	assert_true(k->count > 2 &&
		    k->entries[0].raw_len == k->entries[1].raw_len);
	k->entries[0].off = k->entries[1].off;
	assert_code(ckpt_read_bytes(a->c, ckpt_tensor_at(a->c, n), 0, 1, &byte,
				    &err), CKPT_ECORRUPT);
	assert_says(err, "another one than the manifest names");
}

/* ---- threads ---- */

struct reader {
	struct at *a;
	uint64_t seed;
	char wrong[256];
};

static void *read_ranges(void *arg)
{
	struct reader *r = arg;
	uint8_t *dst = malloc(9 << 20);

	for (int i = 0; i < 80 && !r->wrong[0]; i++) {
		size_t n = draw(&r->seed, COUNT);
		uint64_t off = draw(&r->seed, r->a->len[n] + 1);
		uint64_t len = draw(&r->seed, r->a->len[n] - off + 1);
		struct ckpt_err err = { 0 };

		if (i % 4)
			len = ckb_min_u64(len, 5000);
		int rc = ckpt_read_bytes(r->a->c, ckpt_tensor_at(r->a->c, n),
					 off, len, dst, &err);

		if (rc < 0 || memcmp(dst, r->a->bytes[n] + off, len) != 0)
			snprintf(r->wrong, sizeof(r->wrong),
				 "'%s' at %ju: %.200s",
				 tensors[n].name, (uintmax_t)off,
				 rc < 0 ? err.message : "other bytes");
	}
	free(dst);
	return NULL;
}

/* hole-05, mount-17: a cache too small for its readers slows them, no more. */
static void many_threads_through_a_small_cache_read_right(void **state)
{
	struct reader r[THREADS] = { 0 };
	pthread_t threads[THREADS];

	for (int i = 0; i < THREADS; i++) {
		r[i].a = *state;
		r[i].seed = (uint64_t)i + 1;
		assert_int_equal(pthread_create(&threads[i], NULL, read_ranges,
						&r[i]), 0);
	}
	for (int i = 0; i < THREADS; i++)
		pthread_join(threads[i], NULL);
	for (int i = 0; i < THREADS; i++)
		if (r[i].wrong[0])
			fail_msg("%s", r[i].wrong);
	assert_true(counters(*state).held_bytes <= 64 << 20);
}

int main(void)
{
#define R(f) cmocka_unit_test_setup(f, use_raw)
#define Z(f) { #f "_zstd", f, use_zstd, NULL, NULL }
#define T(f) cmocka_unit_test_setup_teardown(f, setup, teardown)
	const struct CMUnitTest tests[] = {
		R(any_box_equals_a_plain_copy),
		Z(any_box_equals_a_plain_copy),
		R(packed_elements_read_where_they_fall_on_bytes),
		R(boxes_outside_the_tensor_are_refused),
		R(any_range_equals_a_plain_copy),
		Z(any_range_equals_a_plain_copy),
		R(long_ranges_may_begin_and_end_anywhere),
		Z(long_ranges_may_begin_and_end_anywhere),
		R(ranges_outside_the_tensor_are_refused),
		R(many_threads_through_a_small_cache_read_right),
		Z(many_threads_through_a_small_cache_read_right),
		T(only_what_meets_the_box_is_decoded),
		cmocka_unit_test(a_rank_decodes_its_share),
		T(a_bad_cell_is_named_and_noted),
		{ "a_bad_cell_is_named_and_noted_zstd",
		  a_bad_cell_is_named_and_noted, setup_zstd_small, teardown,
		  NULL },
		T(a_bad_header_is_named),
		T(a_readonly_store_notes_nothing),
		T(a_lost_pack_is_an_error),
		T(a_manifest_that_names_another_record_is_an_error),
	};

	return cmocka_run_group_tests(tests, setup_group, teardown_group);
}
