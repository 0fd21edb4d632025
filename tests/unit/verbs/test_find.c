/* SPDX-License-Identifier: Apache-2.0 */
/* test_find.c - which chunks count as there; a hint of the index never does
 * without proof. */
#include "store_fixture.h"

static uint8_t attempt[16] = { 0x55 };

static void digest_of(uint64_t seq, uint8_t out[32])
{
	uint8_t bytes[CHUNK_BYTES];

	fix_bytes(bytes, seq);
	ckc_sha256(bytes, sizeof(bytes), out);
}

static struct ckq_place as_place(const uint8_t pack[16],
				 const struct ckc_place *c)
{
	struct ckq_place p = {
		.off = c->off, .stored_len = c->stored_len,
		.head_len = c->head_len, .raw_len = (uint32_t)c->raw_len,
		.codec = c->codec,
	};

	memcpy(p.pack, pack, 16);
	return p;
}

/* A save of chunk @seq, known to the index. */
static struct ckq_place indexed(struct fix *f, uint64_t seq)
{
	uint8_t pack[16] = { 0 }, digest[32];
	struct ckc_place c;
	struct ckq_place p;
	struct cks_stage *st;
	struct cks_find *find;
	struct ckpt_err err = { 0 };

	attempt[1]++;
	assert_ok(cks_stage_open(f->store, "old", attempt, &st, &err));
	assert_ok(cks_find_new(f->store, st, &find, &err));
	assert_ok(fix_pack(st, seq, pack, &c, &err));
	p = as_place(pack, &c);
	digest_of(seq, digest);
	assert_ok(cks_find_add(find, digest, &p, &err));
	cks_find_publish(find, "old");
	cks_find_free(find);
	cks_stage_close(st);
	return p;
}

/* Does a new save find chunk @seq? */
static bool found(struct fix *f, uint64_t seq, uint32_t raw_len,
		  struct ckq_place *out)
{
	struct cks_stage *st;
	struct cks_find *find;
	uint8_t digest[32];
	struct ckpt_err err = { 0 };

	attempt[1]++;
	assert_ok(cks_stage_open(f->store, "new", attempt, &st, &err));
	assert_ok(cks_find_new(f->store, st, &find, &err));
	digest_of(seq, digest);
	bool yes = cks_find_chunk(find, digest, raw_len, out);

	/* asked again, the answer is the same */
	assert_int_equal(cks_find_chunk(find, digest, raw_len, out), yes);
	cks_find_free(find);
	cks_stage_close(st);
	return yes;
}

static void hint(struct fix *f, uint64_t seq, const struct ckq_place *p)
{
	struct ckq_index *ix;
	uint8_t digest[32];
	struct ckpt_err err = { 0 };

	digest_of(seq, digest);
	assert_ok(ckq_index_open(f->store->index_path, f->store->uuid, true,
				 &ix, &err));
	assert_ok(ckq_index_begin(ix, false, &err));
	assert_ok(ckq_index_put(ix, digest, p, &err));
	assert_ok(ckq_index_end(ix, true, &err));
	ckq_index_close(ix);
}

static void a_chunk_of_an_older_save_is_found(void **state)
{
	struct fix *f = *state;
	struct ckq_place p = indexed(f, 1), got;

	assert_true(found(f, 1, CHUNK_BYTES, &got));
	assert_memory_equal(got.pack, p.pack, 16);
	assert_int_equal(got.off, p.off);
	assert_int_equal(got.stored_len, p.stored_len);
	assert_int_equal(got.head_len, p.head_len);
	assert_int_equal(got.raw_len, CHUNK_BYTES);
	assert_int_equal(got.codec, p.codec);
	assert_false(found(f, 2, CHUNK_BYTES, &got));
}

static void this_saves_own_chunks_are_found_without_an_index(void **state)
{
	struct fix *f = *state;
	struct cks_stage *st;
	struct cks_find *find;
	struct ckq_place p = { .raw_len = 10, .off = 64 }, got;
	uint8_t digest[32];
	struct ckpt_err err = { 0 };

	/* a folder in its place: no index can be */
	assert_int_equal(mkdir(fix_at(f, "index.db"), 0777), 0);
	fix_put(f, "index.db/x", "");
	assert_ok(cks_stage_open(f->store, "a", attempt, &st, &err));
	assert_ok(cks_find_new(f->store, st, &find, &err));
	for (uint64_t i = 0; i < 3000; i++) { /* past several growths */
		digest_of(i, digest);
		p.off = 64 + i;
		assert_false(cks_find_chunk(find, digest, 10, &got));
		assert_ok(cks_find_add(find, digest, &p, &err));
	}
	for (uint64_t i = 0; i < 3000; i++) {
		digest_of(i, digest);
		assert_true(cks_find_chunk(find, digest, 10, &got));
		assert_int_equal(got.off, 64 + i);
	}
	assert_false(cks_find_chunk(find, digest, 11, &got));
	cks_find_publish(find, "a"); /* logged, no failure */
	cks_find_free(find);
	cks_stage_close(st);
	cks_find_free(NULL);
}

static void a_wrong_hint_is_a_miss(void **state)
{
	struct fix *f = *state;
	struct ckq_place right = indexed(f, 1), other = indexed(f, 2), got;
	struct ckq_place cases[] = {
		other, right, right, right, right, right, right, right,
	};

	cases[1].off += 8;
	cases[2].off = UINT64_MAX - 4;
	cases[3].head_len += 16;
	cases[4].stored_len++;
	cases[5].stored_len = UINT64_MAX - right.off;
	cases[6].codec = CKF_CODEC_ZSTD;
	cases[7].pack[3] ^= 1;
	for (size_t i = 0; i < CKB_ARRAY_LEN(cases); i++) {
		hint(f, 1, &cases[i]);
		if (found(f, 1, CHUNK_BYTES, &got))
			fail_msg("case %zu counted", i);
	}
	hint(f, 1, &right);
	assert_false(found(f, 1, CHUNK_BYTES - 1, &got));
	assert_true(found(f, 1, CHUNK_BYTES, &got));
}

static void a_manifest_copy_is_no_chunk(void **state)
{
	struct fix *f = *state;
	struct cks_stage *st;
	struct ckc_pack_writer *w;
	struct ckc_codec *codec;
	struct ckc_place c;
	struct ckq_place p, got;
	uint8_t bytes[CHUNK_BYTES], digest[32], pack[16];
	struct ckpt_err err = { 0 };

	assert_ok(cks_stage_open(f->store, "m", attempt, &st, &err));
	assert_ok(cks_stage_pack(st, false, &w, &err));
	assert_ok(ckc_codec_new(CKF_CODEC_RAW, 0, &codec, &err));
	fix_bytes(bytes, 1);
	digest_of(1, digest);
	memcpy(pack, ckc_pack_writer_uuid(w), 16);
	assert_ok(ckc_pack_append(w, CKF_RECORD_MANIFEST, codec, digest, bytes,
				  sizeof(bytes), &c, &err));
	assert_ok(cks_stage_publish(st, w, &err));
	ckc_codec_free(codec);
	cks_stage_close(st);
	p = as_place(pack, &c);
	hint(f, 1, &p);
	assert_false(found(f, 1, CHUNK_BYTES, &got));
}

static void condemned_and_bad_chunks_are_not_reused(void **state)
{
	struct fix *f = *state;
	struct ckq_place p = indexed(f, 1), got;
	char text[CKB_UUID_TEXT_BYTES + 1];
	uint8_t digest[32] = { 0 };

	ckb_uuid_text(text, p.pack);
	strcat(text, "\n");
	fix_put(f, "condemned/1", text);
	assert_false(found(f, 1, CHUNK_BYTES, &got));
	assert_int_equal(unlink(fix_at(f, "condemned/1")), 0);
	assert_true(found(f, 1, CHUNK_BYTES, &got));
	cks_bad_note(f->store, p.pack, p.off, digest, "test");
	assert_false(found(f, 1, CHUNK_BYTES, &got));
}

static void a_damaged_header_is_a_miss(void **state)
{
	struct fix *f = *state;
	struct ckq_place p = indexed(f, 1), got;
	char path[CKS_PACK_PATH_BYTES];

	cks_pack_path(path, p.pack);
	FILE *file = fopen(fix_at(f, path), "r+e");

	assert_non_null(file);
	assert_int_equal(fseek(file, (long)p.off + 40, SEEK_SET), 0);
	fputc('!', file);
	fclose(file);
	assert_false(found(f, 1, CHUNK_BYTES, &got));
}

/* the store may still hold it open: that proves nothing */
static void a_removed_pack_is_a_miss(void **state)
{
	struct fix *f = *state;
	struct ckq_place p = indexed(f, 1), got;
	char path[CKS_PACK_PATH_BYTES];
	struct ckc_pack *pack;
	struct ckpt_err err = { 0 };

	assert_true(found(f, 1, CHUNK_BYTES, &got));
	cks_pack_path(path, p.pack);
	assert_int_equal(unlink(fix_at(f, path)), 0);
	assert_ok(cks_pack_get(f->store, p.pack, &pack, &err));
	cks_pack_put(f->store, pack);
	assert_false(found(f, 1, CHUNK_BYTES, &got));
}

static void a_relative_store_finds_its_index_after_chdir(void **state)
{
	struct fix *f = *state;
	char here[4096];
	struct ckq_place p = indexed(f, 1), got;
	struct fix g = *f;
	struct ckpt_err err = { 0 };

	assert_non_null(getcwd(here, sizeof(here)));
	assert_int_equal(chdir(f->dir), 0);
	int rc = ckpt_store_open("store", NULL, &g.store, &err);

	assert_int_equal(chdir("/"), 0);
	assert_ok(rc);
	bool yes = found(&g, 1, CHUNK_BYTES, &got);

	ckpt_store_close(g.store);
	assert_int_equal(chdir(here), 0);
	assert_true(yes);
	assert_int_equal(got.off, p.off);
}

#define TEST(name) \
	cmocka_unit_test_setup_teardown(name, fix_setup, fix_teardown)

int main(void)
{
	const struct CMUnitTest tests[] = {
		TEST(a_chunk_of_an_older_save_is_found),
		TEST(this_saves_own_chunks_are_found_without_an_index),
		TEST(a_wrong_hint_is_a_miss),
		TEST(a_manifest_copy_is_no_chunk),
		TEST(condemned_and_bad_chunks_are_not_reused),
		TEST(a_damaged_header_is_a_miss),
		TEST(a_removed_pack_is_a_miss),
		TEST(a_relative_store_finds_its_index_after_chdir),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
