/* SPDX-License-Identifier: Apache-2.0 */
/*
 * test_past.c - what a writer knows of its last published save: which tensors
 * are the same again, what their chunks were, and which save that is.
 *
 * Saves are planned and matched here, by hand, and then given up.
 */
#include <openssl/sha.h>

#include "contract/save_fixture.h"
#include "pipeline.h"

enum { LEN = 3 << 20, TILE = LEN / 16 }; /* DESIGN 6: 16 tiles, in order */

static void match(struct ckpt_save *s)
{
	struct ckpt_err err = { 0 };

	assert_ok(ckw_order(s, true, &err));
	assert_ok(ckw_plan(s, &err));
	ckw_past_match(s, s->tensors, s->tensor_count);
}

/* A save of "w", as fix_save() makes it, but not started. */
static struct ckpt_save *begun(struct fix *f, const char *name)
{
	uint8_t *data = fix_bytes(LEN, 1);
	uint32_t item;
	struct ckpt_save *s = fix_begin(f->writer, name, false, &item);

	fix_tensor(s, item, "w", CKPT_U8, SHAPE(1, LEN), data, LEN);
	free(data);
	return s;
}

/* The past of "w" is what fix_save() made of @seed. */
static void expect_past(const struct ckpt_save *s, uint32_t seed)
{
	const struct ckw_tensor *t = &s->tensors[0];
	uint8_t *data = fix_bytes(LEN, seed), digest[32];
	uint64_t ends = 0;

	assert_true(t->past != SIZE_MAX);
	assert_int_equal(t->chunk_count, LEN / TILE);
	for (size_t i = 0; i < t->chunk_count; i++) {
		const uint8_t *at = data + i * TILE;
		const struct ckpt_stats *stats = ckw_past_stats(s, t, i);
		struct ckq_place place;
		const struct ckw_chunk *c = ckw_past_chunk(s, t, i, &place);
		uint64_t sum = 0;

		SHA256(at, TILE, digest);
		assert_memory_equal(c->digest, digest, sizeof(digest));
		assert_int_equal(c->raw_len, TILE);
		assert_int_equal(c->quick, ckw_quick(at, TILE));
		assert_int_equal(place.raw_len, TILE);
		assert_int_equal(place.codec, CKF_CODEC_RAW);
		assert_int_equal(place.stored_len, TILE);
		assert_true(place.off > 0);
		ends += place.off;
		for (size_t k = 0; k < TILE; k++)
			sum += at[k];
		assert_int_equal(stats->count, TILE);
		assert_true(stats->sum == (double)sum);
	}
	assert_true(ends > (uint64_t)LEN * 7); /* one behind another */
	free(data);
}

static void chunks_are_known_with_digest_place_and_statistics(void **state)
{
	struct fix *f = *state;
	struct ckpt_save *s = begun(f, "b");

	match(s); /* a writer that has saved nothing knows nothing */
	assert_null(s->past);
	assert_int_equal(s->tensors[0].past, SIZE_MAX);
	struct ckq_place place;

	assert_null(ckw_past_chunk(s, &s->tensors[0], 0, &place));
	ckpt_save_free(s);
	fix_save(f->writer, "a", false, LEN, 1);
	s = begun(f, "b");
	match(s);
	expect_past(s, 1);
	ckpt_save_free(s);
}

/* ---- which tensors are the same ---- */

struct variant {
	const char *what, *item, *name;
	enum ckpt_dtype dtype;
	struct ckpt_shape shape;
	uint64_t cut; /* two boxes, the second from this row; 0: one */
	bool same;
};

#define SQUARE { 2, { 1000, 1000 } }

static const struct variant variants[] = {
	{ "all alike", "model", "t", CKPT_F32, SQUARE, 400, true },
	{ "another item", "other", "t", CKPT_F32, SQUARE, 400, false },
	{ "another name", "model", "T", CKPT_F32, SQUARE, 400, false },
	{ "a longer name", "model", "tt", CKPT_F32, SQUARE, 400, false },
	{ "as wide a dtype", "model", "t", CKPT_I32, SQUARE, 400, false },
	{ "a dtype half as wide", "model", "t", CKPT_F16, SQUARE, 400, false },
	{ "as many elements", "model", "t", CKPT_F32, { 2, { 2000, 500 } },
	  400, false },
	{ "a dimension more", "model", "t", CKPT_F32, { 3, { 1000, 1000, 1 } },
	  400, false },
	{ "a row more", "model", "t", CKPT_F32, { 2, { 1001, 1000 } }, 400,
	  false },
	{ "a row less", "model", "t", CKPT_F32, { 2, { 999, 1000 } }, 400,
	  false },
	{ "another cut", "model", "t", CKPT_F32, SQUARE, 401, false },
	{ "no cut", "model", "t", CKPT_F32, SQUARE, 0, false },
};

/* A save of the variant, zeros all of it. */
static struct ckpt_save *described(struct fix *f, const struct variant *v,
				   const char *name, struct watch *w)
{
	struct ckpt_save_desc d = { .size = sizeof(d), .name = name };
	struct ckpt_item_desc item = { .size = sizeof(item), .name = v->item,
				       .kind = CKPT_ITEM_TENSORS };
	struct ckpt_tensor_desc t = fix_desc(v->name, v->dtype, v->shape);
	struct ckpt_box boxes[2] = { { .ndim = v->shape.ndim } };
	struct ckpt_provider p = watch_provider(w);
	struct ckpt_save *s;
	struct ckpt_err err = { 0 };
	uint32_t number;

	memcpy(boxes[0].extent, v->shape.dim, sizeof(v->shape.dim));
	boxes[1] = boxes[0];
	boxes[0].extent[0] = v->cut;
	boxes[1].origin[0] = v->cut;
	boxes[1].extent[0] -= v->cut;
	t.boxes = v->cut ? boxes : NULL;
	t.box_count = v->cut ? 2 : 0;
	*w = (struct watch){ .bytes = ckt_shape_count(&v->shape) *
				      ckpt_dtype_bits(v->dtype) / 8 };
	assert_ok(ckpt_save_begin(f->writer, &d, &s, &err));
	assert_ok(ckpt_save_item(s, &item, &number, &err));
	assert_ok(ckpt_save_tensor(s, number, &t, &p, &err));
	return s;
}

static void only_the_same_description_is_the_same_tensor(void **state)
{
	struct fix *f = *state;
	struct ckpt_err err = { 0 };
	struct watch w;

	assert_ok(fix_finish(described(f, &variants[0], "a", &w), &err));
	for (size_t i = 0; i < CKB_ARRAY_LEN(variants); i++) {
		struct ckpt_save *s = described(f, &variants[i], "b", &w);

		match(s);
		assert_int_equal(s->tensor_count, 1);
		if ((s->tensors[0].past != SIZE_MAX) != variants[i].same)
			fail_msg("%s is %sthe same", variants[i].what,
				 variants[i].same ? "not " : "");
		ckpt_save_free(s);
	}
}

/* Of 1000, described in another order, among others. */
static void each_of_many_tensors_finds_its_own(void **state)
{
	enum { MANY = 1000 };
	struct fix *f = *state;
	struct ckpt_err err = { 0 };
	uint32_t item, hits = 0;
	uint8_t digest[32];
	char name[16];
	struct ckpt_save *s = fix_begin(f->writer, "a", false, &item);

	for (uint32_t i = 0; i < MANY; i++) {
		snprintf(name, sizeof(name), "t%u", i);
		fix_tensor(s, item, name, CKPT_U32, SHAPE(0), &i, 4);
	}
	assert_ok(fix_finish(s, &err));
	s = fix_begin(f->writer, "b", false, &item);
	for (uint32_t i = 2 * MANY; i-- > MANY / 2;) {
		snprintf(name, sizeof(name), "t%u", i);
		fix_tensor(s, item, name, CKPT_U32, SHAPE(0), &i, 4);
	}
	match(s);
	for (size_t n = 0; n < s->tensor_count; n++) {
		const struct ckw_tensor *t = &s->tensors[n];
		uint32_t i = (uint32_t)atoi(t->name + 1);
		struct ckq_place place;
		const struct ckw_chunk *c = ckw_past_chunk(s, t, 0, &place);

		assert_true((c != NULL) == (i < MANY));
		if (!c)
			continue;
		SHA256((const uint8_t *)&i, 4, digest);
		assert_memory_equal(c->digest, digest, sizeof(digest));
		hits++;
	}
	assert_int_equal(hits, MANY / 2);
	ckpt_save_free(s);
}

/* ---- which save is the past ---- */

static void only_a_published_save_is_the_past(void **state)
{
	struct fix *f = *state;
	struct ckpt_err err = { 0 };
	struct watch w = { .bytes = 100, .fail_rc = CKPT_EIO };
	struct ckpt_tensor_desc d = fix_desc("x", CKPT_U8, SHAPE(1, 100));
	struct ckpt_provider p = watch_provider(&w);
	struct ckpt_save *s, *held;

	fix_save(f->writer, "a", false, LEN, 1);
	held = begun(f, "held");
	match(held);
	s = begun(f, "fails");
	assert_ok(ckpt_save_tensor(s, 0, &d, &p, &err));
	assert_code(fix_finish(s, &err), CKPT_EIO);
	s = begun(f, "aborted");
	assert_ok(ckpt_save_start(s, &err));
	ckpt_save_abort(s);
	int rc = ckpt_save_wait(s, CKPT_DURABLE, &err);

	assert_true(rc == 0 || rc == CKPT_ECANCELED);
	ckpt_save_free(s);
	s = begun(f, "b");
	match(s);
	if (rc == CKPT_ECANCELED)
		assert_ptr_equal(s->past, held->past);
	expect_past(s, 1);
	ckpt_save_free(s);
	/* one that takes another's name takes its place here, too */
	fix_save(f->writer, "a", true, LEN, 2);
	s = begun(f, "b");
	match(s);
	assert_ptr_not_equal(s->past, held->past);
	expect_past(s, 2);
	ckpt_save_free(s);
	/* who looked before still knows what it saw */
	expect_past(held, 1);
	ckpt_save_free(held);
	ckw_past_unref(NULL);
}

/* ---- what comes of it ---- */

/* Saves @data as "w" from borrowed memory; what the store did not have. */
static uint64_t saved(struct fix *f, const char *name, const uint8_t *data)
{
	struct ckpt_tensor_desc d = fix_desc("w", CKPT_U8, SHAPE(1, LEN));
	struct ckpt_save_progress done;
	struct ckpt_provider p;
	struct ckpt_err err = { 0 };
	uint32_t item;
	struct ckpt_save *s = fix_begin(f->writer, name, true, &item);

	assert_ok(ckpt_provider_host(data, LEN, &p, &err));
	assert_ok(ckpt_save_tensor(s, item, &d, &p, &err));
	assert_ok(ckpt_save_start(s, &err));
	assert_ok(ckpt_save_wait(s, CKPT_DURABLE, &err));
	ckpt_save_progress(s, &done);
	assert_int_equal(done.bytes_captured, LEN);
	assert_int_equal(done.bytes_hashed, LEN);
	assert_int_equal(done.chunk_count, LEN / TILE);
	ckpt_save_free(s);
	struct ckpt_checkpoint *c = fix_opened(f->store, name);
	const struct ckpt_tensor_info *t = fix_find(c, "model", "w");
	double sum = 0;

	fix_equal(c, t, data, LEN);
	for (size_t i = 0; i < LEN; i++)
		sum += data[i];
	assert_true(t->stats.sum == sum); /* of old and new tiles together */
	ckpt_checkpoint_close(c);
	return done.bytes_new;
}

/* A byte that is changed anywhere in a tile, seen at once or not, is saved. */
static void a_changed_byte_costs_its_tile_and_no_more(void **state)
{
	static const size_t places[] = {
		0, CKW_QUICK_BYTES - 1, CKW_QUICK_BYTES, TILE - 1, TILE,
		5 * TILE + 100000, LEN - 1,
	};
	struct fix *f = *state;
	uint8_t *data = fix_bytes(LEN, 1);

	assert_int_equal(saved(f, "a", data), LEN);
	assert_int_equal(saved(f, "b", data), 0);
	for (size_t i = 0; i < CKB_ARRAY_LEN(places); i++) {
		data[places[i]] ^= 0x10;
		assert_int_equal(saved(f, "c", data), TILE);
		assert_int_equal(saved(f, "d", data), 0);
		data[places[i]] ^= 0x10; /* in the store, not in the past */
		assert_int_equal(saved(f, "d", data), 0);
	}
	free(data);
}

/* A tile that changes place is no tile that stays. */
static void tiles_are_known_by_their_place(void **state)
{
	struct fix *f = *state;
	uint8_t *data = fix_bytes(LEN, 1), *swapped = fix_bytes(LEN, 1);

	memcpy(swapped, data + TILE, TILE);
	memcpy(swapped + TILE, data, TILE);
	assert_int_equal(saved(f, "a", data), LEN);
	assert_int_equal(saved(f, "b", swapped), 0); /* by their digests */
	assert_int_equal(saved(f, "c", data), 0);
	free(data);
	free(swapped);
}

static int unlink_pack(const char *path, const struct stat *st, int type,
		       struct FTW *ftw)
{
	(void)st;
	(void)ftw;
	return type == FTW_F ? unlink(path) : 0;
}

/* What the writer remembers is proved before it is believed. */
static void a_chunk_that_is_gone_is_stored_again(void **state)
{
	struct fix *f = *state;
	uint8_t *data = fix_bytes(LEN, 1);
	char path[600];

	assert_int_equal(saved(f, "a", data), LEN);
	snprintf(path, sizeof(path), "%s/packs", f->path);
	assert_int_equal(nftw(path, unlink_pack, 8, FTW_PHYS), 0);
	assert_int_equal(saved(f, "b", data), LEN);
	assert_int_equal(saved(f, "c", data), 0);
	free(data);
}

static void quick_looks_at_the_first_bytes_alone(void **state)
{
	uint8_t *data = fix_bytes(2 * CKW_QUICK_BYTES, 1);
	uint64_t whole = ckw_quick(data, 2 * CKW_QUICK_BYTES);

	(void)state;
	assert_true(whole == ckw_quick(data, CKW_QUICK_BYTES));
	assert_true(whole != ckw_quick(data, CKW_QUICK_BYTES - 1));
	data[CKW_QUICK_BYTES] ^= 1;
	assert_true(whole == ckw_quick(data, 2 * CKW_QUICK_BYTES));
	data[CKW_QUICK_BYTES - 1] ^= 1;
	assert_true(whole != ckw_quick(data, 2 * CKW_QUICK_BYTES));
	free(data);
}

#define TEST(name) \
	cmocka_unit_test_setup_teardown(name, fix_setup, fix_teardown)

int main(void)
{
	const struct CMUnitTest tests[] = {
		TEST(chunks_are_known_with_digest_place_and_statistics),
		TEST(only_the_same_description_is_the_same_tensor),
		TEST(each_of_many_tensors_finds_its_own),
		TEST(only_a_published_save_is_the_past),
		TEST(a_changed_byte_costs_its_tile_and_no_more),
		TEST(tiles_are_known_by_their_place),
		TEST(a_chunk_that_is_gone_is_stored_again),
		cmocka_unit_test(quick_looks_at_the_first_bytes_alone),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
