/* SPDX-License-Identifier: Apache-2.0 */
/* test_fork.c - a fork reads as its source does, and is its own checkpoint. */
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include "asserts.h"
#include "mkstore.h"

#include <ckpt/read.h>

static const struct mk_box halves[] = { { { 0, 0 }, { 5, 300 } },
					{ { 5, 0 }, { 4, 300 } } };
static const struct mk_tensor tensors[] = {
	{ .name = "w", .dtype = CKPT_F32, .ndim = 2, .dim = { 9, 300 },
	  .shard_count = 2, .shards = halves, .seed = 1 },
	{ .name = "w2", .dtype = CKPT_F32, .ndim = 2, .dim = { 9, 300 },
	  .alias_of = "w" },
	{ .name = "a\0b", .name_len = 3, .dtype = CKPT_BF16, .ndim = 1,
	  .dim = { 3000000 }, .seed = 2 },
	{ .name = "empty", .ndim = 1, .dim = { 0 } },
	{ .name = "scalar", .dtype = CKPT_F64, .seed = 3 },
	{ .item = "files", .name = "d/x.json", .ndim = 1, .dim = { 77 },
	  .media_type = "application/json", .seed = 4 },
};
#define COUNT CKB_ARRAY_LEN(tensors)

static int setup(void **state)
{
	struct mkstore *mk = calloc(1, sizeof(*mk));
	const struct mk_opts opts = { .pack_each = true };
	struct ckpt_err err = { 0 };

	assert_non_null(mk);
	assert_ok(mkstore_new(mk, 0, &err));
	assert_ok(mk_save(mk, "a", tensors, COUNT, &opts, &err));
	*state = mk;
	return 0;
}

static int teardown(void **state)
{
	mkstore_free(*state);
	free(*state);
	return 0;
}

static void check_bytes(struct ckpt_checkpoint *c)
{
	struct ckpt_err err = { 0 };

	assert_int_equal(ckpt_tensor_count(c), COUNT);
	for (size_t i = 0; i < COUNT; i++) {
		const struct ckpt_tensor_info *t = ckpt_tensor_at(c, i);
		uint64_t len;
		/* an alias has the bytes of what it names */
		uint8_t *want = mk_bytes(&tensors[i == 1 ? 0 : i], &len);
		uint8_t *have = malloc(t->bytes + 1);

		assert_int_equal(t->bytes, len);
		assert_int_equal(t->dtype, tensors[i].dtype ? tensors[i].dtype
							    : CKPT_U8);
		assert_ok(ckpt_read_bytes(c, t, 0, len, have, &err));
		assert_memory_equal(have, want, len);
		free(have);
		free(want);
	}
}

static int count_pack(void *ctx, const uint8_t uuid[16])
{
	(void)uuid;
	++*(int *)ctx;
	return 0;
}

static void a_fork_reads_as_its_source(void **state)
{
	struct mkstore *mk = *state;
	struct ckpt_checkpoint *a, *b;
	struct ckpt_err err = { 0 };
	int before = 0, after = 0;

	assert_ok(cks_packs_walk(mk->store, false, count_pack, &before,
				 &err));
	assert_ok(ckpt_store_fork(mk->store, "a", "run/b", NULL, &err));
	assert_ok(cks_packs_walk(mk->store, false, count_pack, &after,
				 &err));
	assert_int_equal(after, before);
	assert_ok(ckpt_checkpoint_open(mk->store, "a", &a, &err));
	assert_ok(ckpt_checkpoint_open(mk->store, "run/b", &b, &err));
	const struct ckpt_checkpoint_info *ai = ckpt_checkpoint_info(a);
	const struct ckpt_checkpoint_info *bi = ckpt_checkpoint_info(b);

	check_bytes(b);
	assert_memory_not_equal(ai->uuid, bi->uuid, 16);
	assert_true(bi->has_parent);
	assert_memory_equal(bi->parent, ai->uuid, 16);
	assert_int_equal(bi->seq, ai->seq + 1);
	assert_int_equal(bi->generation, 1);
	assert_int_equal(bi->bytes, ai->bytes);
	for (size_t i = 0; i < COUNT; i++) {
		const struct ckpt_tensor_info *x = ckpt_tensor_at(a, i);
		const struct ckpt_tensor_info *y = ckpt_tensor_at(b, i);

		assert_int_equal(x->name_len, y->name_len);
		assert_memory_equal(x->name, y->name, x->name_len);
		assert_int_equal(x->alias_of, y->alias_of);
		assert_int_equal(x->has_root, y->has_root);
		assert_memory_equal(x->root, y->root, 32);
	}
	ckpt_checkpoint_close(a);
	/* and does not need it */
	assert_ok(ckpt_store_remove(mk->store, "a", false, &err));
	check_bytes(b);
	ckpt_checkpoint_close(b);

	struct ckpt_check_result r;
	struct ckpt_check_opts opts = { .size = sizeof(opts),
					.depth = CKPT_CHECK_FULL };

	assert_ok(ckpt_store_check(mk->store, NULL, &opts, &r, &err));
	assert_int_equal(r.damage_count, 0);
	assert_int_equal(r.checkpoint_count, 1);
}

static void facts_may_be_given(void **state)
{
	struct mkstore *mk = *state;
	const struct ckpt_fork_opts opts = {
		.size = sizeof(opts), .has_step = true, .step = 7,
		.metadata = "{\"k\": 1}", .metrics = "{\"loss\": 2.5}",
	};
	struct ckpt_checkpoint *b;
	struct ckpt_err err = { 0 };

	assert_ok(ckpt_store_fork(mk->store, "a", "b", &opts, &err));
	/* a fork of the fork keeps them */
	assert_ok(ckpt_store_fork(mk->store, "b", "c", NULL, &err));
	assert_ok(ckpt_checkpoint_open(mk->store, "c", &b, &err));
	assert_true(ckpt_checkpoint_info(b)->has_step);
	assert_int_equal(ckpt_checkpoint_info(b)->step, 7);
	assert_string_equal(ckpt_checkpoint_info(b)->metadata, opts.metadata);
	assert_string_equal(ckpt_checkpoint_info(b)->metrics, opts.metrics);
	ckpt_checkpoint_close(b);
}

static void what_is_wrong_is_refused(void **state)
{
	struct mkstore *mk = *state;
	struct ckpt_fork_opts opts = { .size = sizeof(opts),
				       .metrics = "[1]" };
	struct ckpt_err err = { 0 };

	assert_int_equal(ckpt_store_fork(mk->store, "a", "b", &opts, &err),
			 CKPT_EINVAL);
	assert_non_null(strstr(err.message, "metrics"));
	opts.size = 1;
	assert_int_equal(ckpt_store_fork(mk->store, "a", "b", &opts, &err),
			 CKPT_EINVAL);
	assert_int_equal(ckpt_store_fork(mk->store, "nope", "b", NULL, &err),
			 CKPT_ENOENT);
	assert_int_equal(ckpt_store_fork(mk->store, "a", "a", NULL, &err),
			 CKPT_EEXIST);
	assert_int_equal(ckpt_store_fork(mk->store, "a", "a/b", NULL, &err),
			 CKPT_EEXIST);
	assert_int_equal(ckpt_store_fork(mk->store, "a", "..", NULL, &err),
			 CKPT_EINVAL);
}

static int note_bad(void *ctx, const uint8_t pack[16])
{
	static const uint8_t digest[32];

	/* the first record of each: every pack holds one tensor */
	cks_bad_note(ctx, pack, CKF_PACK_HEADER_BYTES, digest, "a test");
	return 0;
}

static void what_was_found_bad_is_not_passed_on(void **state)
{
	struct mkstore *mk = *state;
	struct ckpt_err err = { 0 };

	assert_ok(cks_packs_walk(mk->store, false, note_bad, mk->store, &err));
	assert_code(ckpt_store_fork(mk->store, "a", "run/b", NULL, &err),
		    CKPT_ECORRUPT);
	assert_says(err, "checkpoint 'a', tensor 'model/w'");
	assert_says(err, "/bad/");
	assert_code(ckpt_checkpoint_open(mk->store, "run/b", &(struct
		    ckpt_checkpoint *){ NULL }, &err), CKPT_ENOENT);
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, setup, teardown)

int main(void)
{
	const struct CMUnitTest tests[] = {
		TEST(a_fork_reads_as_its_source),
		TEST(facts_may_be_given),
		TEST(what_is_wrong_is_refused),
		TEST(what_was_found_bad_is_not_passed_on),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
