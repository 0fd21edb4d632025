/* SPDX-License-Identifier: Apache-2.0 */
/*
 * test_save.c - what is saved reads back, whatever its dtype, shape and
 * shards; equal bytes are stored once; facts.
 */
#include "save_fixture.h"

#include <math.h>
#include <pthread.h>

#include "chunk/digest.h"
#include "format/entry.h"
#include "verbs/checkpoint.h"

/* ---- every dtype and shape ---- */

static const struct ckpt_shape shapes[] = {
	{ 0, { 0 } },
	{ 1, { 0 } },
	{ 3, { 2, 0, 3 } },
	{ 1, { 1 } },
	{ 1, { 7 } },
	{ 2, { 0, 5 } },
	{ 3, { 13, 5, 3 } },
	{ 3, { 3, 4, 8 } },
	{ 2, { 1, 4096 } },
	{ 1, { 150004 } },       /* over one tile from 16 bits on */
	{ 2, { 601, 700 } },
	{ 3, { 5, 301, 68 } },
	{ 5, { 2, 1, 3, 1, 8 } },
};

static void tensor_name(char dst[64], enum ckpt_dtype dtype, size_t shape)
{
	snprintf(dst, 64, "%s.%zu", ckpt_dtype_name(dtype), shape);
}

/* false: the shape is no whole number of bytes of this dtype. */
static bool bytes_of(enum ckpt_dtype dtype, const struct ckpt_shape *shape,
		     uint64_t *out)
{
	return ckt_shape_bytes(dtype, shape, out, NULL) == 0;
}

static void check_one_tile(struct ckpt_checkpoint *c,
			   const struct ckpt_tensor_info *t,
			   const uint8_t *data)
{
	uint8_t digest[CKPT_DIGEST_BYTES], root[CKPT_DIGEST_BYTES];
	CKB_BUF struct ckb_buf input = { 0 };
	const struct cks_chunks *k;
	struct ckpt_err err = { 0 };

	ckc_sha256(data, t->bytes, digest);
	assert_ok(cks_checkpoint_chunks(c, t, &k, &err));
	assert_int_equal(k->count, 1);
	assert_memory_equal(k->entries[0].digest, digest, sizeof(digest));
	ckf_root_preamble(t->dtype, t->shape, &input);
	ckb_buf_put(&input, digest, sizeof(digest));
	ckc_sha256(input.data, input.len, root);
	assert_true(t->has_root);
	assert_memory_equal(t->root, root, sizeof(root));
}

static void every_dtype_and_shape_reads_back(void **state)
{
	struct fix *f = *state;
	struct ckpt_err err = { 0 };
	uint32_t item;
	uint64_t bytes;
	char name[64];
	struct ckpt_save *s = fix_begin(f->writer, "all/1", false, &item);
	size_t saved = 0;

	for (int d = CKPT_BOOL; d < CKPT_DTYPE_END; d++)
		for (size_t i = 0; i < CKB_ARRAY_LEN(shapes); i++) {
			if (!bytes_of((enum ckpt_dtype)d, &shapes[i], &bytes))
				continue;
			uint8_t *data = fix_bytes(bytes, (uint32_t)(d * 100u +
								    i));

			tensor_name(name, (enum ckpt_dtype)d, i);
			fix_tensor(s, item, name, (enum ckpt_dtype)d,
				   shapes[i], data, bytes);
			free(data);
			saved++;
		}
	assert_ok(fix_finish(s, &err));
	assert_true(saved > 200);

	struct ckpt_checkpoint *c = fix_opened(f->store, "all/1");

	assert_int_equal(ckpt_tensor_count(c), saved);
	for (int d = CKPT_BOOL; d < CKPT_DTYPE_END; d++)
		for (size_t i = 0; i < CKB_ARRAY_LEN(shapes); i++) {
			const struct ckpt_tensor_info *t;

			if (!bytes_of((enum ckpt_dtype)d, &shapes[i], &bytes))
				continue;
			uint8_t *data = fix_bytes(bytes, (uint32_t)(d * 100u +
								    i));

			tensor_name(name, (enum ckpt_dtype)d, i);
			t = fix_find(c, "model", name);
			assert_int_equal(t->dtype, d);
			assert_int_equal(t->shape->ndim, shapes[i].ndim);
			assert_memory_equal(t->shape->dim, shapes[i].dim,
					    8 * shapes[i].ndim);
			assert_null(t->media_type);
			assert_int_equal(t->stats.count,
					 ckt_shape_count(&shapes[i]));
			fix_equal(c, t, data, bytes);
			if (bytes > 0 && bytes <= CKB_TILE_MIN_BYTES)
				check_one_tile(c, t, data);
			free(data);
		}
	ckpt_checkpoint_close(c);
}

/* ---- shards ---- */

#define BOXES_MAX 8

struct cut {
	const char *what;
	enum ckpt_dtype dtype;
	struct ckpt_shape shape;
	uint32_t count;
	struct ckpt_box box[BOXES_MAX];
};

static const struct cut cuts[] = {
	{ "uneven rows, given out of order (shape-08)", CKPT_F32,
	  { 2, { 11, 300 } }, 4,
	  { { 2, { 8, 0 }, { 3, 300 } }, { 2, { 0, 0 }, { 1, 300 } },
	    { 2, { 8, 0 }, { 0, 300 } }, { 2, { 1, 0 }, { 7, 300 } } } },
	{ "large uneven rows", CKPT_F32, { 2, { 1100, 700 } }, 4,
	  { { 2, { 0, 0 }, { 100, 700 } }, { 2, { 100, 0 }, { 700, 700 } },
	    { 2, { 800, 0 }, { 0, 700 } }, { 2, { 800, 0 }, { 300, 700 } } } },
	{ "columns", CKPT_BF16, { 2, { 900, 1000 } }, 3,
	  { { 2, { 0, 0 }, { 900, 333 } }, { 2, { 0, 333 }, { 900, 333 } },
	    { 2, { 0, 666 }, { 900, 334 } } } },
	{ "a wheel: no straight cut goes through", CKPT_I64,
	  { 2, { 300, 300 } }, 5,
	  { { 2, { 0, 0 }, { 100, 200 } }, { 2, { 0, 200 }, { 200, 100 } },
	    { 2, { 200, 100 }, { 100, 200 } }, { 2, { 100, 0 }, { 200, 100 } },
	    { 2, { 100, 100 }, { 100, 100 } } } },
	{ "three dimensions", CKPT_U8, { 3, { 12, 200, 300 } }, 4,
	  { { 3, { 0, 0, 0 }, { 5, 200, 300 } },
	    { 3, { 5, 0, 0 }, { 7, 77, 300 } },
	    { 3, { 5, 77, 0 }, { 7, 123, 1 } },
	    { 3, { 5, 77, 1 }, { 7, 123, 299 } } } },
	{ "ranks past the end hold nothing (shape-07)", CKPT_F16,
	  { 2, { 4, 16 } }, 8,
	  { { 2, { 0, 0 }, { 1, 16 } }, { 2, { 1, 0 }, { 1, 16 } },
	    { 2, { 2, 0 }, { 1, 16 } }, { 2, { 3, 0 }, { 1, 16 } },
	    { 2, { 4, 0 }, { 0, 16 } }, { 2, { 4, 0 }, { 0, 16 } },
	    { 2, { 4, 0 }, { 0, 16 } }, { 2, { 4, 0 }, { 0, 16 } } } },
	{ "half bytes, cut on whole ones", CKPT_F4, { 2, { 6, 8 } }, 2,
	  { { 2, { 0, 0 }, { 6, 2 } }, { 2, { 0, 2 }, { 6, 6 } } } },
	{ "6 bits, cut on whole bytes", CKPT_F6_E3M2, { 2, { 3, 12 } }, 2,
	  { { 2, { 0, 0 }, { 3, 4 } }, { 2, { 0, 4 }, { 3, 8 } } } },
	{ "a scalar as one box", CKPT_F64, { 0, { 0 } }, 1, { { 0 } } },
	{ "no element, two boxes", CKPT_F32, { 2, { 0, 4 } }, 2,
	  { { 2, { 0, 0 }, { 0, 2 } }, { 2, { 0, 2 }, { 0, 2 } } } },
	{ "one whole box", CKPT_F32, { 2, { 5, 4 } }, 1,
	  { { 2, { 0, 0 }, { 5, 4 } } } },
};

/* The boxes one after another, each in C order, element by element. Counted
 * in half bytes where elements have 4 bits, in groups of 3 bytes for 6. */
static uint8_t *cut_bytes(const struct cut *c, const uint8_t *whole,
			  uint64_t bytes)
{
	uint8_t *out = calloc(1, bytes + 1), *to = out;
	struct ckt_grid g;
	struct ckpt_err err = { 0 };

	assert_non_null(out);
	assert_ok(ckt_grid_init(&g, c->dtype, &c->shape, &err));
	for (uint32_t b = 0; b < c->count; b++) {
		struct ckpt_box box;

		assert_ok(ckt_grid_box(&g, c->dtype, &c->shape, &c->box[b],
				       &box, &err));
		uint64_t n = ckt_box_bytes(&box, 1);

		for (uint64_t i = 0; i < n; i++) {
			uint64_t rest = i, at = 0, step = 1;

			for (uint32_t d = g.ndim; d-- > 0;) {
				at += (box.origin[d] + rest % box.extent[d]) *
				      step;
				rest /= box.extent[d];
				step *= g.shape[d];
			}
			memcpy(to, whole + at * g.item_bytes, g.item_bytes);
			to += g.item_bytes;
		}
	}
	assert_int_equal(to - out, bytes);
	return out;
}

static void save_cut(struct fix *f, const struct cut *c, const char *name,
		     const uint8_t *whole, uint64_t bytes, bool borrowed)
{
	struct ckpt_tensor_desc d = fix_desc("t", c->dtype, c->shape);
	uint8_t *data = cut_bytes(c, whole, bytes);
	struct watch w = { .data = data, .bytes = bytes };
	struct ckpt_provider p = borrowed ? fix_copy(data, bytes)
					  : watch_provider(&w);
	struct ckpt_err err = { 0 };
	uint32_t item;
	struct ckpt_save *s = fix_begin(f->writer, name, false, &item);

	d.boxes = c->box;
	d.box_count = c->count;
	if (ckpt_save_tensor(s, item, &d, &p, &err) != 0)
		fail_msg("%s: %s", c->what, err.message);
	assert_ok(fix_finish(s, &err));
	assert_int_equal(w.released, !borrowed);
	if (!borrowed) /* each byte once, however tiles lie */
		assert_int_equal(w.read_bytes, bytes);
	free(data);
}

static void any_exact_cut_reads_back(void **state)
{
	struct fix *f = *state;
	char name[32];

	for (size_t i = 0; i < 2 * CKB_ARRAY_LEN(cuts); i++) {
		const struct cut *c = &cuts[i / 2];
		uint64_t bytes;

		assert_true(bytes_of(c->dtype, &c->shape, &bytes));
		uint8_t *whole = fix_bytes(bytes, (uint32_t)i);

		snprintf(name, sizeof(name), "cut/%zu", i);
		save_cut(f, c, name, whole, bytes, i % 2);
		struct ckpt_checkpoint *k = fix_opened(f->store, name);

		fix_equal(k, fix_find(k, "model", "t"), whole, bytes);
		ckpt_checkpoint_close(k);
		free(whole);
	}
}

/* import-04: the grid is the tensor's, not the ranks'. */
static void shards_of_whole_tiles_have_the_root_of_one_shard(void **state)
{
	struct fix *f = *state;
	/* BF16 1024 x 1024: 2 MiB, tiles of 256 x 512 */
	struct cut c = { "tiles", CKPT_BF16, { 2, { 1024, 1024 } }, 3,
			 { { 2, { 0, 0 }, { 512, 1024 } },
			   { 2, { 512, 0 }, { 512, 512 } },
			   { 2, { 512, 512 }, { 512, 512 } } } };
	struct cut fragments = { "no tiles", CKPT_BF16, { 2, { 1024, 1024 } },
				 2, { { 2, { 0, 0 }, { 1000, 1024 } },
				      { 2, { 1000, 0 }, { 24, 1024 } } } };
	uint64_t bytes = 2 << 20;
	uint8_t *whole = fix_bytes(bytes, 5);
	struct ckpt_err err = { 0 };
	uint32_t item;
	struct ckpt_save *s = fix_begin(f->writer, "one", false, &item);

	fix_tensor(s, item, "t", c.dtype, c.shape, whole, bytes);
	assert_ok(fix_finish(s, &err));
	save_cut(f, &c, "tiles", whole, bytes, true);
	assert_int_equal(fix_files(f, "packs"), 1); /* nothing new */
	save_cut(f, &fragments, "fragments", whole, bytes, true);

	struct ckpt_checkpoint *a = fix_opened(f->store, "one");
	struct ckpt_checkpoint *b = fix_opened(f->store, "tiles");
	struct ckpt_checkpoint *d = fix_opened(f->store, "fragments");
	const struct ckpt_tensor_info *t = fix_find(a, "model", "t");
	const struct ckpt_tensor_info *u = fix_find(b, "model", "t");

	assert_true(t->has_root && u->has_root);
	assert_memory_equal(t->root, u->root, sizeof(t->root));
	assert_false(fix_find(d, "model", "t")->has_root);
	fix_equal(b, u, whole, bytes);
	fix_equal(d, fix_find(d, "model", "t"), whole, bytes);
	ckpt_checkpoint_close(a);
	ckpt_checkpoint_close(b);
	ckpt_checkpoint_close(d);
	free(whole);
}

/* One tensor of 64 MiB over column tiles from a source that can only be read:
 * each byte is asked for once, in pieces within the staging memory (S9). */
static void a_source_is_read_once_in_bounded_pieces(void **state)
{
	struct fix *f = *state;
	const struct {
		size_t staging;
		uint64_t most;
	} cases[] = { { 0, 1 << 20 }, { 1 << 20, 1 << 20 } };

	for (size_t i = 0; i < CKB_ARRAY_LEN(cases); i++) {
		struct ckpt_writer_opts o = { .size = sizeof(o),
					      .staging_bytes =
						      cases[i].staging };
		struct ckpt_tensor_desc d = fix_desc("t", CKPT_F32,
						     SHAPE(2, 4096, 4096));
		struct watch w = { .bytes = 64 << 20 };
		struct ckpt_provider p = watch_provider(&w);
		struct ckpt_save_progress done;
		struct ckpt_writer *writer;
		struct ckpt_err err = { 0 };
		uint32_t item;

		assert_ok(ckpt_writer_open(f->store, &o, &writer, &err));
		struct ckpt_save *s = fix_begin(writer, "big", true, &item);

		assert_ok(ckpt_save_tensor(s, item, &d, &p, &err));
		assert_ok(ckpt_save_start(s, &err));
		assert_ok(ckpt_save_wait(s, CKPT_DURABLE, &err));
		ckpt_save_progress(s, &done);
		assert_int_equal(done.bytes_total, 64 << 20);
		assert_int_equal(done.bytes_captured, 64 << 20);
		assert_int_equal(w.read_bytes, 64 << 20);
		assert_true(w.read_max <= cases[i].most);
		ckpt_save_free(s);
		ckpt_writer_close(writer);
	}
}

/* ---- equal bytes are stored once ---- */

static void the_same_bytes_are_stored_once(void **state)
{
	struct fix *f = *state;
	struct ckpt_save_progress done;
	struct ckpt_err err = { 0 };
	uint8_t *data = fix_bytes(100000, 1);
	uint32_t item;

	for (int round = 0; round < 2; round++) {
		struct ckpt_save *s = fix_begin(f->writer, round ? "b" : "a",
						false, &item);

		fix_tensor(s, item, "x", CKPT_U8, SHAPE(1, 100000), data,
			   100000);
		fix_tensor(s, item, "y", CKPT_I32, SHAPE(2, 100, 250), data,
			   100000);
		assert_ok(ckpt_save_start(s, &err));
		assert_ok(ckpt_save_wait(s, CKPT_DURABLE, &err));
		ckpt_save_progress(s, &done);
		assert_int_equal(done.bytes_total, 200000);
		assert_int_equal(done.chunk_count, 2);
		assert_int_equal(done.chunk_new_count, round == 0);
		assert_int_equal(done.bytes_new, round == 0 ? 100000 : 0);
		assert_true((done.bytes_written > 0) == (round == 0));
		ckpt_save_free(s);
		assert_int_equal(fix_files(f, "packs"), 1);
		assert_int_equal(fix_files(f, "staging"), 0);
	}
	struct ckpt_checkpoint *c = fix_opened(f->store, "b");

	/* never an alias: that is declared, not inferred */
	assert_int_equal(fix_find(c, "model", "y")->alias_of, SIZE_MAX);
	fix_equal(c, fix_find(c, "model", "y"), data, 100000);
	ckpt_checkpoint_close(c);
	free(data);
}

/* scale-02: what 256 ranks hold of each of 30 tensors, saved three times;
 * from the second save on no pack is written. */
static void the_next_save_of_many_shards_writes_no_pack(void **state)
{
	enum { RANKS = 256, TENSORS = 30, BYTES = 4 * RANKS };
	struct fix *f = *state;
	struct ckpt_box boxes[RANKS];
	struct ckpt_save_progress done;
	struct ckpt_err err = { 0 };
	uint8_t *data = fix_bytes(BYTES + TENSORS, 3);
	uint32_t item;
	char name[32];

	for (uint32_t r = 0; r < RANKS; r++)
		boxes[r] = (struct ckpt_box){ 1, { 4 * r }, { 4 } };
	for (int round = 0; round < 3; round++) {
		snprintf(name, sizeof(name), "step/%d", round);
		struct ckpt_save *s = fix_begin(f->writer, name, false, &item);

		for (int i = 0; i < TENSORS; i++) {
			struct ckpt_provider p = fix_copy(data + i, BYTES);

			snprintf(name, sizeof(name), "t%d", i);
			struct ckpt_tensor_desc d = fix_desc(name, CKPT_U8,
							     SHAPE(1, BYTES));

			d.boxes = boxes;
			d.box_count = RANKS;
			assert_ok(ckpt_save_tensor(s, item, &d, &p, &err));
		}
		assert_ok(ckpt_save_start(s, &err));
		assert_ok(ckpt_save_wait(s, CKPT_DURABLE, &err));
		ckpt_save_progress(s, &done);
		assert_int_equal(done.chunk_count, RANKS * TENSORS);
		assert_true((done.chunk_new_count > 0) == (round == 0));
		assert_true((done.bytes_written > 0) == (round == 0));
		ckpt_save_free(s);
		assert_int_equal(fix_files(f, "packs"), 1);
	}
	struct ckpt_checkpoint *c = fix_opened(f->store, "step/2");

	fix_equal(c, fix_find(c, "model", "t29"), data + 29, BYTES);
	ckpt_checkpoint_close(c);
	free(data);
}

static void an_alias_costs_nothing_and_reads_as_its_tensor(void **state)
{
	struct fix *f = *state;
	uint8_t *data = fix_bytes(4000, 1), *first = fix_bytes(16, 2);
	struct ckpt_tensor_desc d = fix_desc("tied", CKPT_F32,
					     SHAPE(2, 10, 100));
	struct ckpt_item_desc more = { .size = sizeof(more),
				       .name = "optimizer",
				       .kind = CKPT_ITEM_TENSORS };
	struct ckpt_err err = { 0 };
	uint32_t item, other;
	struct ckpt_save *s = fix_begin(f->writer, "a", false, &item);

	/* items described crosswise: entries are sorted, aliases follow */
	assert_ok(ckpt_save_item(s, &more, &other, &err));
	fix_tensor(s, other, "m", CKPT_U8, SHAPE(1, 16), first, 16);
	fix_tensor(s, item, "embed", CKPT_F32, SHAPE(2, 10, 100), data, 4000);
	fix_tensor(s, other, "n", CKPT_U8, SHAPE(1, 8), first, 8);
	d.alias_of = "embed";
	assert_ok(ckpt_save_tensor(s, item, &d, NULL, &err));
	assert_ok(fix_finish(s, &err));

	struct ckpt_checkpoint *c = fix_opened(f->store, "a");
	const struct ckpt_tensor_info *t = fix_find(c, "model", "tied");
	const struct ckpt_tensor_info *e = fix_find(c, "model", "embed");

	assert_int_equal(t->alias_of, e->index);
	assert_int_equal(ckpt_checkpoint_info(c)->bytes, 4000 + 16 + 8);
	assert_true(t->has_root);
	assert_memory_equal(t->root, e->root, sizeof(t->root));
	fix_equal(c, t, data, 4000);
	fix_equal(c, fix_find(c, "optimizer", "n"), first, 8);
	assert_int_equal(ckpt_item_find(c, "optimizer")->first, 2);
	ckpt_checkpoint_close(c);
	free(data);
	free(first);
}

static void replacing_leaves_an_open_checkpoint_readable(void **state)
{
	struct fix *f = *state;
	struct ckpt_err err = { 0 };
	uint8_t *old = fix_bytes(300000, 1);

	fix_save(f->writer, "cur", false, 300000, 1);
	struct ckpt_checkpoint *c = fix_opened(f->store, "cur");

	fix_save(f->writer, "cur", true, 300000, 2);
	fix_equal(c, fix_find(c, "model", "w"), old, 300000);
	assert_ok(fix_whole(f->store, "cur", 300000, 2, &err));
	struct ckpt_checkpoint *n = fix_opened(f->store, "cur");

	assert_memory_not_equal(ckpt_checkpoint_info(c)->uuid,
				ckpt_checkpoint_info(n)->uuid, 16);
	ckpt_checkpoint_close(n);
	ckpt_checkpoint_close(c);
	/* replace may also be asked where there is nothing yet */
	fix_save(f->writer, "new/1", true, 10, 3);
	free(old);
}

/* ---- files, items, facts ---- */

static void files_read_back_under_their_own_names(void **state)
{
	struct fix *f = *state;
	static const struct {
		const char *name, *type;
		size_t len;
	} files[] = {
		{ "state.json", "application/json", 3 },
		{ "deep/er/x.bin", NULL, (1 << 20) + 1 },
		{ "empty", "", 0 },
		{ "one tile", "text/plain", 1 << 20 },
		{ "\xc3\xa9", NULL, 1 },
	};
	struct ckpt_item_desc d = { .size = sizeof(d), .name = "assets",
				    .kind = CKPT_ITEM_FILES, .separator = "/",
				    .metadata = "{\"a\": [1, 2]}" };
	struct ckpt_err err = { 0 };
	uint32_t item, model;
	struct ckpt_save *s = fix_begin(f->writer, "f", false, &model);
	uint8_t *data = fix_bytes(2 << 20, 9);

	assert_ok(ckpt_save_item(s, &d, &item, &err));
	for (size_t i = 0; i < CKB_ARRAY_LEN(files); i++) {
		struct ckpt_provider p = { NULL, NULL };

		if (files[i].len > 0)
			p = fix_copy(data + i, files[i].len);
		assert_ok(ckpt_save_file(s, item, files[i].name, files[i].type,
					 files[i].len, &p, &err));
	}
	assert_ok(fix_finish(s, &err));
	struct ckpt_checkpoint *c = fix_opened(f->store, "f");
	const struct ckpt_item_info *it = ckpt_item_find(c, "assets");

	assert_int_equal(it->kind, CKPT_ITEM_FILES);
	assert_string_equal(it->separator, "/");
	assert_string_equal(it->metadata, "{\"a\": [1, 2]}");
	assert_int_equal(ckpt_item_find(c, "model")->count, 0);
	for (size_t i = 0; i < CKB_ARRAY_LEN(files); i++) {
		const struct ckpt_tensor_info *t = fix_find(c, "assets",
							    files[i].name);

		assert_string_equal(t->media_type,
				    files[i].type ? files[i].type : "");
		assert_int_equal(t->dtype, CKPT_U8);
		assert_int_equal(t->stats.value_class, CKPT_VALUES_NONE);
		assert_false(t->has_root);
		fix_equal(c, t, data + i, files[i].len);
	}
	ckpt_checkpoint_close(c);
	free(data);
}

static void names_may_hold_anything_in_utf8(void **state)
{
	struct fix *f = *state;
	struct ckpt_err err = { 0 };
	char *longest = malloc(65536);
	uint32_t item;
	struct ckpt_save *s = fix_begin(f->writer, "n", false, &item);
	const struct {
		const char *name;
		size_t len;
	} names[] = {
		{ "", 0 }, { "a\0b", 3 }, { "a", 1 }, { "a\0", 2 },
		{ "..", 2 }, { "A", 1 }, { "/", 1 }, { longest, 65536 },
	};

	assert_non_null(longest);
	memset(longest, 'x', 65536);
	for (size_t i = 0; i < CKB_ARRAY_LEN(names); i++) {
		struct ckpt_tensor_desc d = fix_desc(names[i].name, CKPT_U8,
						     SHAPE(1, 1));
		uint8_t byte = (uint8_t)i;
		struct ckpt_provider p = fix_copy(&byte, 1);

		d.name_len = names[i].len;
		assert_ok(ckpt_save_tensor(s, item, &d, &p, &err));
	}
	assert_ok(fix_finish(s, &err));
	struct ckpt_checkpoint *c = fix_opened(f->store, "n");

	for (size_t i = 0; i < CKB_ARRAY_LEN(names); i++) {
		const struct ckpt_tensor_info *t =
			ckpt_tensor_find(c, ckpt_item_at(c, 0), names[i].name,
					 names[i].len);
		uint8_t byte = (uint8_t)i;

		assert_non_null(t);
		fix_equal(c, t, &byte, 1);
	}
	ckpt_checkpoint_close(c);
	free(longest);
}

static void facts_are_kept(void **state)
{
	struct fix *f = *state;
	static const struct {
		const char *name;
		bool has_step, want_has;
		uint64_t step, want;
	} cases[] = {
		{ "run/4000", false, true, 0, 4000 },
		{ "run/0007", false, true, 0, 7 },
		{ "run/4000a", false, false, 0, 0 },
		{ "run/step_2500", false, true, 0, 2500 },
		{ "run/global_step10000", false, true, 0, 10000 },
		{ "checkpoint-500", false, true, 0, 500 },
		{ "r/epoch=3", false, true, 0, 3 },
		{ "r/step", false, false, 0, 0 },
		{ "r/step__1", false, false, 0, 0 },
		{ "r/minilm-l6-v2", false, false, 0, 0 },
		{ "r/step_1/final", false, false, 0, 0 },
		{ "17", false, true, 0, 17 },
		{ "run/5", true, true, 42, 42 },
		{ "run/9223372036854775807", false, true, 0, INT64_MAX },
		{ "run/9223372036854775808", false, false, 0, 0 },
		{ "run/99999999999999999999999999", false, false, 0, 0 },
	};
	struct ckpt_err err = { 0 };
	uint64_t seq = 0;

	fix_save(f->writer, "base", false, 8, 1);
	for (size_t i = 0; i < CKB_ARRAY_LEN(cases); i++) {
		struct ckpt_save_desc d = {
			.size = sizeof(d), .name = cases[i].name,
			.has_step = cases[i].has_step, .step = cases[i].step,
			.metadata = "{\"m\": 1}", .metrics = "{\"loss\": 2.5}",
			.parent = "base", .program = i ? "train 1" : NULL,
		};
		uint8_t uuid[16];
		struct ckpt_save *s;

		assert_ok(ckpt_save_begin(f->writer, &d, &s, &err));
		memcpy(uuid, ckpt_save_uuid(s), 16);
		assert_ok(fix_finish(s, &err)); /* no item at all */
		struct ckpt_checkpoint *c = fix_opened(f->store,
						       cases[i].name);
		struct ckpt_checkpoint *b = fix_opened(f->store, "base");
		const struct ckpt_checkpoint_info *n = ckpt_checkpoint_info(c);

		assert_int_equal(n->has_step, cases[i].want_has);
		if (n->has_step)
			assert_int_equal(n->step, cases[i].want);
		assert_memory_equal(n->uuid, uuid, 16);
		assert_true(n->has_parent);
		assert_memory_equal(n->parent, ckpt_checkpoint_info(b)->uuid,
				    16);
		assert_string_equal(n->metadata, "{\"m\": 1}");
		assert_string_equal(n->metrics, "{\"loss\": 2.5}");
		assert_string_equal(n->writer, i ? "train 1" : "libckpt "
						 CKPT_VERSION);
		assert_int_equal(n->generation, 1);
		assert_true(n->seq > seq && n->created_ns > 0);
		seq = n->seq;
		ckpt_checkpoint_close(c);
		ckpt_checkpoint_close(b);
	}
	assert_int_equal(fix_files(f, "packs"), 1); /* base's */
}

static void statistics_come_with_the_bytes(void **state)
{
	struct fix *f = *state;
	enum { N = 600 * 700 };
	float *x = malloc(N * sizeof(*x));
	struct ckpt_tensor_desc d = fix_desc("x", CKPT_F32,
					     SHAPE(2, 600, 700));
	struct ckpt_box boxes[] = { { 2, { 0, 0 }, { 101, 700 } },
				    { 2, { 101, 0 }, { 499, 700 } } };
	struct ckpt_err err = { 0 };
	double sum = 0;
	uint32_t item;
	struct ckpt_save *s = fix_begin(f->writer, "s", false, &item);

	assert_non_null(x);
	for (int i = 0; i < N; i++) {
		x[i] = (float)(i % 1000) - 250;
		sum += (double)x[i];
	}
	sum -= (double)x[77] + (double)x[N - 2];
	x[77] = NAN;
	x[N - 2] = INFINITY;
	fix_tensor(s, item, "whole", CKPT_F32, d.shape, x, N * 4);
	struct ckpt_provider p = fix_copy(x, N * 4);

	d.boxes = boxes;
	d.box_count = 2;
	assert_ok(ckpt_save_tensor(s, item, &d, &p, &err));
	assert_ok(fix_finish(s, &err));
	struct ckpt_checkpoint *c = fix_opened(f->store, "s");

	for (int i = 0; i < 2; i++) {
		const struct ckpt_stats *t =
			&fix_find(c, "model", i ? "x" : "whole")->stats;

		assert_int_equal(t->value_class, CKPT_VALUES_FLOAT);
		assert_int_equal(t->count, N);
		assert_int_equal(t->nan_count, 1);
		assert_int_equal(t->inf_count, 1);
		assert_int_equal(t->zero_count, 420);
		assert_true(t->min.f == -250 && t->max.f == 749);
		assert_true(t->absmax == 749);
		assert_true(fabs(t->sum - sum) < 1e-3);
	}
	ckpt_checkpoint_close(c);
	free(x);
}

/* F6 elements lie four to three bytes; tiles of 2^n bytes cut them. */
static void statistics_are_left_out_where_tiles_cut_elements(void **state)
{
	struct fix *f = *state;
	static const struct {
		uint64_t elements;
		bool counted;
	} cases[] = {
		{ 4096, true },         /* one tile */
		{ 400000, true },       /* two of 150,000 bytes */
		{ 400004, false },      /* 300,003: the first has 150,002 */
	};
	struct ckpt_err err = { 0 };
	uint32_t item;
	struct ckpt_save *s = fix_begin(f->writer, "s", false, &item);

	for (size_t i = 0; i < CKB_ARRAY_LEN(cases); i++) {
		size_t bytes = cases[i].elements * 6 / 8;
		uint8_t *zeros = calloc(1, bytes);
		char name[2] = { (char)('a' + i), 0 };

		assert_non_null(zeros);
		fix_tensor(s, item, name, CKPT_F6_E2M3,
			   SHAPE(1, cases[i].elements), zeros, bytes);
		free(zeros);
	}
	assert_ok(fix_finish(s, &err));
	struct ckpt_checkpoint *c = fix_opened(f->store, "s");

	for (size_t i = 0; i < CKB_ARRAY_LEN(cases); i++) {
		const struct ckpt_stats *t = &ckpt_tensor_at(c, i)->stats;

		assert_int_equal(t->count, cases[i].elements);
		if (cases[i].counted)
			assert_int_equal(t->zero_count, cases[i].elements);
		else
			assert_int_equal(t->value_class, CKPT_VALUES_NONE);
	}
	ckpt_checkpoint_close(c);
}

/* ---- packs ---- */

static int count_kinds(void *ctx, const struct ckf_trailer_entry *e)
{
	((int *)ctx)[e->kind == CKF_RECORD_MANIFEST]++;
	return 0;
}

static void a_full_pack_is_sealed_and_the_last_has_the_manifest(void **state)
{
	static const struct {
		const char *name;
		enum ckpt_codec codec;
	} cases[] = { { "raw", CKPT_CODEC_RAW }, { "zstd", CKPT_CODEC_ZSTD },
		      { "planes", CKPT_CODEC_PLANES } };

	(void)state;
	for (size_t i = 0; i < CKB_ARRAY_LEN(cases); i++) {
		struct ckpt_writer_opts o = { .size = sizeof(o),
					      .codec = cases[i].codec,
					      .pack_bytes = 1 << 20 };
		struct fix f;
		struct ckpt_err err = { 0 };
		int copies = 0, chunks = 0;

		fix_open(&f, &o);
		/* 6 MiB of random bytes: 32 tiles, six to a pack. However many
		 * threads write, only one pair passes its end */
		fix_save(f.writer, cases[i].name, false, 6 << 20, 1);
		struct ckpt_checkpoint *c = fix_opened(f.store,
						       cases[i].name);
		const uint8_t *uuid;
		uint32_t n = 0;

		for (; (uuid = cks_checkpoint_pack(c, n)) != NULL; n++) {
			int kinds[2] = { 0, 0 };
			struct ckc_pack *p;

			assert_ok(cks_pack_get(f.store, uuid, &p, &err));
			assert_ok(ckc_pack_trailer(p, count_kinds, kinds,
						   &err));
			assert_true(ckc_pack_file_bytes(p) <
				    (1 << 20) + 2 * (200 << 10));
			cks_pack_put(f.store, p);
			chunks += kinds[0];
			copies += kinds[1];
			/* the packs are numbered as they were begun */
			assert_true(kinds[1] == 0 ||
				    !cks_checkpoint_pack(c, n + 1));
		}
		assert_in_range(n, 5, 7);
		assert_int_equal(fix_files(&f, "packs"), n);
		assert_int_equal(chunks, 32);
		assert_int_equal(copies, 1);
		ckpt_checkpoint_close(c);
		assert_ok(fix_whole(f.store, cases[i].name, 6 << 20, 1, &err));
		fix_close(&f);
	}
}

/* What zstd makes smaller is stored smaller, and read back the same. */
static void compressible_bytes_take_less_with_zstd(void **state)
{
	struct ckpt_writer_opts o = { .size = sizeof(o),
				      .codec = CKPT_CODEC_ZSTD };
	struct ckpt_save_progress done;
	struct ckpt_err err = { 0 };
	size_t len = 3 << 20;
	uint8_t *data = malloc(len);
	struct fix f;
	uint32_t item;

	(void)state;
	assert_non_null(data);
	for (size_t i = 0; i < len; i++)
		data[i] = (uint8_t)(i / 4096 + i % 7);
	fix_open(&f, &o);
	struct ckpt_save *s = fix_begin(f.writer, "z", false, &item);

	fix_tensor(s, item, "t", CKPT_U8, SHAPE(1, len), data, len);
	assert_ok(ckpt_save_start(s, &err));
	assert_ok(ckpt_save_wait(s, CKPT_DURABLE, &err));
	ckpt_save_progress(s, &done);
	assert_true(done.bytes_new > len / 2 && done.bytes_written < len / 4);
	ckpt_save_free(s);
	struct ckpt_checkpoint *c = fix_opened(f.store, "z");

	fix_equal(c, fix_find(c, "model", "t"), data, len);
	ckpt_checkpoint_close(c);
	fix_close(&f);
	free(data);
}

/* 3 MiB of F32 whose exponents are alike, then of zeros. */
static void floats_take_less_by_planes_and_zeros_nothing(void **state)
{
	struct ckpt_writer_opts o = { .size = sizeof(o),
				      .codec = CKPT_CODEC_PLANES };
	struct ckpt_err err = { 0 };
	size_t n = 3 << 18;
	uint32_t *data = calloc(n, 4);
	uint32_t x = 1;
	struct fix f;

	(void)state;
	assert_non_null(data);
	fix_open(&f, &o);
	for (int zero = 0; zero < 2; zero++) {
		const char *name = zero ? "zeros" : "floats";
		struct ckpt_save_progress done;
		struct ckpt_check_result r;
		struct ckpt_check_opts co = { .size = sizeof(co),
					      .depth = CKPT_CHECK_FULL };
		uint32_t item;
		struct ckpt_save *s = fix_begin(f.writer, name, false, &item);

		for (size_t i = 0; i < n; i++) {
			x = x * 1664525 + 1013904223;
			data[i] = zero ? 0 : 120u << 23 | x >> 5;
		}
		fix_tensor(s, item, "t", CKPT_F32, SHAPE(1, n), data, 4 * n);
		assert_ok(ckpt_save_start(s, &err));
		assert_ok(ckpt_save_wait(s, CKPT_DURABLE, &err));
		ckpt_save_progress(s, &done);
		assert_true(done.bytes_written < (zero ? 50000 : 4 * n * 9 /
								 10));
		ckpt_save_free(s);
		struct ckpt_checkpoint *c = fix_opened(f.store, name);

		fix_equal(c, fix_find(c, "model", "t"), data, 4 * n);
		ckpt_checkpoint_close(c);
		assert_ok(ckpt_store_check(f.store, NULL, &co, &r, &err));
		assert_int_equal(r.damage_count, 0);
	}
	fix_close(&f);
	free(data);
}

#define TEST(name) \
	cmocka_unit_test_setup_teardown(name, fix_setup, fix_teardown)

int main(void)
{
	const struct CMUnitTest tests[] = {
		TEST(every_dtype_and_shape_reads_back),
		TEST(any_exact_cut_reads_back),
		TEST(shards_of_whole_tiles_have_the_root_of_one_shard),
		TEST(a_source_is_read_once_in_bounded_pieces),
		TEST(the_same_bytes_are_stored_once),
		TEST(the_next_save_of_many_shards_writes_no_pack),
		TEST(an_alias_costs_nothing_and_reads_as_its_tensor),
		TEST(replacing_leaves_an_open_checkpoint_readable),
		TEST(files_read_back_under_their_own_names),
		TEST(names_may_hold_anything_in_utf8),
		TEST(facts_are_kept),
		TEST(statistics_come_with_the_bytes),
		TEST(statistics_are_left_out_where_tiles_cut_elements),
		cmocka_unit_test(
			a_full_pack_is_sealed_and_the_last_has_the_manifest),
		cmocka_unit_test(compressible_bytes_take_less_with_zstd),
		cmocka_unit_test(floats_take_less_by_planes_and_zeros_nothing),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
