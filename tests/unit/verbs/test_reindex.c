/* SPDX-License-Identifier: Apache-2.0 */
/* test_reindex.c - the index made again from packs and manifests. */
#include "store_fixture.h"

static void digest_of(uint64_t seq, uint8_t out[32])
{
	uint8_t bytes[CHUNK_BYTES];

	fix_bytes(bytes, seq);
	ckc_sha256(bytes, sizeof(bytes), out);
}

static bool known(struct fix *f, uint64_t seq)
{
	struct ckq_index *ix;
	struct ckq_place p;
	uint8_t digest[32];
	struct ckpt_err err = { 0 };

	digest_of(seq, digest);
	assert_ok(ckq_index_open(f->store->index_path, f->store->uuid, false,
				 &ix, &err));
	int rc = ckq_index_find(ix, digest, &p, &err);

	ckq_index_close(ix);
	assert_true(rc == 0 || rc == CKPT_ENOENT);
	return rc == 0;
}

static struct ckpt_reindex_result reindex(struct fix *f)
{
	struct ckpt_reindex_result r;
	struct ckpt_err err = { 0 };

	assert_ok(ckpt_store_reindex(f->store, &r, &err));
	return r;
}

static void save(struct fix *f, const char *name, uint64_t seq)
{
	struct ckpt_err err = { 0 };

	assert_ok(fix_save(f->store, name, seq, false, &err));
}

/* Path of the only pack there is. */
static void only_pack(struct fix *f, char out[CKS_PACK_PATH_BYTES])
{
	struct ckq_manifest *m;
	uint8_t uuid[16];
	struct ckpt_err err = { 0 };

	assert_ok(ckq_manifest_open(f->store->sys, f->store->dirfd,
				    "checkpoints/a", &m, &err));
	assert_ok(ckq_manifest_packs(m, fix_first_pack, uuid, &err));
	ckq_manifest_close(m);
	cks_pack_path(out, uuid);
}

static void an_empty_store_has_an_empty_index(void **state)
{
	struct fix *f = *state;
	struct ckpt_reindex_result r = reindex(f);

	assert_int_equal(r.pack_count + r.chunk_count + r.checkpoint_count +
			 r.skipped_count, 0);
	assert_false(known(f, 1));
	/* a copy without empty folders */
	assert_int_equal(rmdir(fix_at(f, "packs")), 0);
	assert_int_equal(rmdir(fix_at(f, "checkpoints")), 0);
	reindex(f);
}

static void all_packs_and_checkpoints_are_counted(void **state)
{
	struct fix *f = *state;

	save(f, "a", 1);
	save(f, "run/b", 2);
	save(f, "run/x/c", 3);
	struct ckpt_reindex_result r = reindex(f);

	assert_int_equal(r.pack_count, 3);
	assert_int_equal(r.chunk_count, 3);
	assert_int_equal(r.checkpoint_count, 3);
	assert_int_equal(r.skipped_count, 0);
	for (uint64_t i = 1; i <= 3; i++)
		assert_true(known(f, i));
	r = reindex(f); /* again: the same */
	assert_int_equal(r.chunk_count, 3);
}

static void what_is_gone_is_forgotten(void **state)
{
	struct fix *f = *state;
	char path[CKS_PACK_PATH_BYTES];

	save(f, "a", 1);
	only_pack(f, path);
	save(f, "b", 2);
	reindex(f);
	assert_true(known(f, 1));
	assert_int_equal(unlink(fix_at(f, path)), 0);
	ckpt_store_close(f->store); /* which holds it open */
	struct ckpt_err err = { 0 };

	assert_ok(ckpt_store_open(f->path, NULL, &f->store, &err));
	reindex(f);
	assert_false(known(f, 1));
	assert_true(known(f, 2));
}

static void an_index_that_is_no_use_is_made_anew(void **state)
{
	struct fix *f = *state;

	save(f, "a", 1);
	fix_put(f, "index.db", "this is no database, but long enough to be "
		"taken for one by whoever looks at its first hundred bytes; "
		"this is no database, but long enough to be taken for one");
	assert_int_equal(reindex(f).chunk_count, 1);
	assert_true(known(f, 1));
}

static void a_damaged_page_does_not_stop_it(void **state)
{
	struct fix *f = *state;
	struct stat st;

	for (uint64_t i = 1; i <= 40; i++) {
		char name[20];

		snprintf(name, sizeof(name), "a%d", (int)i);
		save(f, name, i);
	}
	reindex(f);
	assert_int_equal(stat(fix_at(f, "index.db"), &st), 0);
	FILE *file = fopen(fix_at(f, "index.db"), "r+e");

	/* all but the schema's page */
	assert_int_equal(fseek(file, 4096, SEEK_SET), 0);
	for (long i = 4096; i < st.st_size; i++)
		fputc(0xa5, file);
	fclose(file);
	assert_int_equal(reindex(f).chunk_count, 40);
	for (uint64_t i = 1; i <= 40; i++)
		assert_true(known(f, i));
}

static void a_pack_without_its_trailer_is_scanned(void **state)
{
	struct fix *f = *state;
	char path[CKS_PACK_PATH_BYTES];
	struct stat st;

	save(f, "a", 1);
	only_pack(f, path);
	assert_int_equal(stat(fix_at(f, path), &st), 0);
	assert_int_equal(truncate(fix_at(f, path), st.st_size - 10), 0);
	struct ckpt_reindex_result r = reindex(f);

	assert_int_equal(r.pack_count, 1);
	assert_int_equal(r.chunk_count, 1);
	assert_true(known(f, 1));
}

static void what_cannot_be_read_is_counted_and_passed_over(void **state)
{
	struct fix *f = *state;
	char path[CKS_PACK_PATH_BYTES];

	save(f, "a", 1);
	only_pack(f, path);
	save(f, "b", 2);
	save(f, "c", 3);
	fix_put(f, path, "rubbish");
	fix_put(f, "checkpoints/b", "rubbish");
	fix_put(f, "packs/notes.txt", "");
	assert_int_equal(mkdir(fix_at(f, "packs/zz"), 0777), 0);
	struct ckpt_reindex_result r = reindex(f);

	assert_int_equal(r.pack_count, 2);
	assert_int_equal(r.checkpoint_count, 2);
	assert_int_equal(r.skipped_count, 2);
	assert_false(known(f, 1));
	assert_true(known(f, 2));
	assert_true(known(f, 3));
}

static void a_place_where_no_index_can_be_is_said(void **state)
{
	struct fix *f = *state;
	struct ckpt_reindex_result r;
	struct ckpt_err err = { 0 };

	assert_int_equal(mkdir(fix_at(f, "index.db"), 0777), 0);
	fix_put(f, "index.db/x", "");
	assert_code(ckpt_store_reindex(f->store, &r, &err), CKPT_EIO);
	assert_says(err, "index.db': Is a directory");
}

#define TEST(name) \
	cmocka_unit_test_setup_teardown(name, fix_setup, fix_teardown)

int main(void)
{
	const struct CMUnitTest tests[] = {
		TEST(an_empty_store_has_an_empty_index),
		TEST(all_packs_and_checkpoints_are_counted),
		TEST(what_is_gone_is_forgotten),
		TEST(an_index_that_is_no_use_is_made_anew),
		TEST(a_damaged_page_does_not_stop_it),
		TEST(a_pack_without_its_trailer_is_scanned),
		TEST(what_cannot_be_read_is_counted_and_passed_over),
		TEST(a_place_where_no_index_can_be_is_said),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
