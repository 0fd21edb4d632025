/* SPDX-License-Identifier: Apache-2.0 */
/* test_usage.c - sums over a store, against sums by hand. */
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "asserts.h"
#include "mkstore.h"

static void sums_are_right(void **state)
{
	const struct mk_opts share = { .reuse = true }, again = { 0 };
	const struct mk_tensor first[] = {
		{ .name = "a", .dtype = CKPT_F32, .ndim = 1, .dim = { 100 },
		  .seed = 1 },
		{ .name = "tied", .dtype = CKPT_F32, .ndim = 1,
		  .dim = { 100 }, .alias_of = "a" },
		{ .name = "b", .dtype = CKPT_BF16, .ndim = 1, .dim = { 50 },
		  .seed = 2 },
		{ .item = "files", .name = "f", .ndim = 1, .dim = { 33 },
		  .media_type = "", .seed = 3 },
	};
	struct mkstore mk = { 0 };
	struct ckpt_usage u;
	struct ckpt_err err = { 0 };
	char path[600];

	(void)state;
	assert_ok(mkstore_new(&mk, 0, &err));
	assert_ok(ckpt_store_usage(mk.store, &u, &err));
	assert_int_equal(u.checkpoint_count + u.pack_count + u.total.bytes, 0);
	assert_ok(mk_save(&mk, "x", first, 4, &share, &err));
	assert_ok(mk_save(&mk, "y", first, 4, &share, &err)); /* all shared */
	assert_ok(mk_save(&mk, "z", first, 1, &again, &err)); /* a again */
	assert_ok(ckpt_tag_set(mk.store, "t", "x", &err));
	assert_ok(ckpt_store_usage(mk.store, &u, &err));
	assert_int_equal(u.checkpoint_count, 3);
	assert_int_equal(u.damaged_count, 0);
	assert_int_equal(u.tag_count, 1);
	assert_int_equal(u.chunk_count, 4);
	assert_int_equal(u.duplicate_count, 1);
	assert_int_equal(u.duplicate_bytes, 400);
	assert_int_equal(u.dtype[CKPT_F32].tensor_count, 3);
	assert_int_equal(u.dtype[CKPT_F32].bytes, 1200);
	assert_int_equal(u.dtype[CKPT_F32].unique_bytes, 800);
	assert_int_equal(u.dtype[CKPT_F32].stored_bytes, 800);
	assert_int_equal(u.dtype[CKPT_BF16].bytes, 200);
	assert_int_equal(u.dtype[CKPT_BF16].unique_bytes, 100);
	assert_int_equal(u.dtype[0].bytes, 66);
	assert_int_equal(u.dtype[0].unique_bytes, 33);
	assert_int_equal(u.total.bytes, 1466);
	assert_int_equal(u.total.stored_bytes, 933);
	assert_int_equal(u.codec[CKPT_STORED_RAW].chunk_count, 4);
	assert_int_equal(u.codec[CKPT_STORED_RAW].unique_bytes, 933);
	assert_int_equal(u.codec[CKPT_STORED_RAW].stored_bytes, 933);
	assert_int_equal(u.unused_pack_count, 0);
	assert_true(u.pack_bytes > 933);
	/* one that nobody names any more, one that cannot be read */
	assert_ok(ckpt_store_remove(mk.store, "z", false, &err));
	snprintf(path, sizeof(path), "%s/checkpoints/y", mk.path);
	assert_int_equal(truncate(path, 100), 0);
	assert_ok(ckpt_store_usage(mk.store, &u, &err));
	assert_int_equal(u.checkpoint_count, 1);
	assert_int_equal(u.damaged_count, 1);
	assert_int_equal(u.unused_pack_count, 1);
	assert_int_equal(u.duplicate_count, 0);
	mkstore_free(&mk);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(sums_are_right),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
