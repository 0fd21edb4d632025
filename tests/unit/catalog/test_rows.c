/* SPDX-License-Identifier: Apache-2.0 */
/* test_rows.c - items, packs and tensors: thousands come back, callbacks may
 * stop, and no row that breaks a rule is handed out. */
#include "manifest_fixture.h"

static struct ckq_manifest *opened(struct fix *f, const char *name)
{
	struct ckpt_err err = { 0 };
	struct ckq_manifest *m = NULL;

	assert_ok(open_it(f, name, &m, &err));
	return m;
}

static void a_callback_may_stop_the_walk(void **state)
{
	struct ckq_manifest *m = opened(*state, "m");
	struct ckpt_err err = { 0 };
	struct walk w = { .stop_at = 2 };

	assert_code(ckq_manifest_items(m, walk_item, &w, &err), 42);
	assert_code(ckq_manifest_packs(m, walk_pack, &w, &err), 42);
	assert_code(ckq_manifest_tensors(m, walk_tensor, &w, &err), 42);
	assert_int_equal(w.items, 2);
	assert_int_equal(w.packs, 2);
	assert_int_equal(w.tensors, 2);
	assert_string_equal(err.message, ""); /* its own affair */
	/* and the manifest serves on */
	w = (struct walk){ 0 };
	assert_ok(read_rows(m, &w, &err));
	assert_false(w.wrong);
	ckq_manifest_close(m);
}

/* ---- many ---- */

#define MANY 5000u

struct many {
	unsigned count;
	bool wrong;
};

static size_t many_name(char name[32], unsigned i)
{
	int n = snprintf(name, 32, "layer.%u.weight", i);

	name[5] = i % 2 ? '\0' : '.'; /* every other name holds NUL */
	if (i == 7)
		return 0; /* and one is empty */
	return (size_t)n;
}

static int many_row(void *ctx, const struct ckq_tensor *t)
{
	struct many *m = ctx;
	char name[32];
	size_t len = many_name(name, m->count);

	m->wrong = m->wrong || t->id != m->count || t->name_len != len ||
		   memcmp(t->name, name, len) != 0 ||
		   t->shape.ndim != 2 || t->shape.dim[0] != m->count + 1 ||
		   t->shape.dim[1] != 3 || t->dtype != CKPT_F32 ||
		   t->bytes != 12 * (m->count + 1ull);
	m->count++;
	return 0;
}

static void five_thousand_tensors_come_back(void **state)
{
	struct fix *f = *state;
	struct ckq_facts facts = sample_facts();
	struct ckq_build *b = NULL;
	struct ckpt_err err = { 0 };
	struct many many = { 0 };
	CKB_BUF struct ckb_buf image = { 0 }, blob = { 0 };
	uint8_t chunks[CKF_CHUNK_ENTRY_BYTES];
	char name[32];

	assert_ok(ckq_build_new(&facts, &b, &err));
	assert_ok(ckq_build_item(b, "model", CKPT_ITEM_TENSORS, ".", NULL,
				 &err));
	for (unsigned i = 0; i < MANY; i++) {
		struct ckq_tensor t = {
			.name = name, .name_len = many_name(name, i),
			.dtype = CKPT_F32, .shape = { 2, { i + 1, 3 } },
			.bytes = 12 * (i + 1ull), .chunks = chunks,
			.chunks_len = sizeof(chunks),
		};

		sample_chunks(chunks, 1, i);
		assert_ok(ckq_build_tensor(b, &t, &err));
	}
	assert_ok(ckq_build_finish(b, &image, &err));
	ckq_build_free(b);
	put_file(f, "many", image.data, image.len);

	struct ckq_manifest *m = opened(f, "many");

	assert_ok(ckq_manifest_tensors(m, many_row, &many, &err));
	assert_int_equal(many.count, MANY);
	assert_false(many.wrong);
	for (unsigned i = 0; i < MANY; i += 37) {
		blob.len = 0;
		sample_chunks(chunks, 1, i);
		assert_ok(ckq_manifest_chunks(m, i, &blob, &err));
		assert_int_equal(blob.len, sizeof(chunks));
		assert_memory_equal(blob.data, chunks, sizeof(chunks));
	}
	assert_ok(ckq_manifest_verify(m, &err));
	ckq_manifest_close(m);
}

/* A list of chunks of many pages, as a large tensor has. */
static void a_long_list_of_chunks_comes_back(void **state)
{
	struct fix *f = *state;
	struct ckq_facts facts = sample_facts();
	struct ckq_build *b = NULL;
	struct ckpt_err err = { 0 };
	CKB_BUF struct ckb_buf image = { 0 }, blob = { 0 };
	unsigned count = 40000;
	size_t len = count * CKF_CHUNK_ENTRY_BYTES;
	uint8_t *chunks = malloc(len);
	struct ckq_tensor t = {
		.name = "w", .name_len = 1, .dtype = CKPT_F32,
		.shape = { 1, { 1000000000 } }, .bytes = 4000000000,
		.chunks = chunks, .chunks_len = len,
	};

	sample_chunks(chunks, count, 1);
	assert_ok(ckq_build_new(&facts, &b, &err));
	assert_ok(ckq_build_item(b, "model", CKPT_ITEM_TENSORS, ".", NULL,
				 &err));
	assert_ok(ckq_build_tensor(b, &t, &err));
	assert_ok(ckq_build_finish(b, &image, &err));
	ckq_build_free(b);
	put_file(f, "long", image.data, image.len);

	struct ckq_manifest *m = opened(f, "long");

	assert_ok(ckq_manifest_chunks(m, 0, &blob, &err));
	assert_int_equal(blob.len, len);
	assert_memory_equal(blob.data, chunks, len);
	ckq_manifest_close(m);
	free(chunks);
}

/* ---- rows of a hostile hand ---- */

enum which { ITEM, PACK, TENSOR };

struct change {
	enum which which;
	const char *sql, *says;
};

/* "bad" opens, as its facts are right; the walk over @which is refused. */
static void walk_is_refused(struct fix *f, const struct change *c)
{
	struct ckq_manifest *m = opened(f, "bad");
	struct ckpt_err err = { 0 };
	struct walk w = { 0 };
	int rc = c->which == ITEM ? ckq_manifest_items(m, walk_item, &w, &err)
		 : c->which == PACK
			 ? ckq_manifest_packs(m, walk_pack, &w, &err)
			 : ckq_manifest_tensors(m, walk_tensor, &w, &err);

	if (rc != CKPT_ECORRUPT || !strstr(err.message, c->says) ||
	    !strstr(err.message, "manifest 'bad' is damaged"))
		fail_msg("%s: %d: %s", c->sql, rc, err.message);
	/* no row but right ones came before it */
	assert_false(w.wrong);
	ckq_manifest_close(m);
}

static const struct change changes[] = {
	{ ITEM, "UPDATE item SET id=id+10", "numbered" },
	{ ITEM, "UPDATE item SET id=-1 WHERE id=0", "numbered" },
	{ ITEM, "DELETE FROM item WHERE id=1", "numbered" },
	{ ITEM, "UPDATE item SET name='a/b' WHERE id=1", "legal" },
	{ ITEM, "UPDATE item SET name='..' WHERE id=1", "legal" },
	{ ITEM, "UPDATE item SET name='' WHERE id=1", "legal" },
	{ ITEM, "UPDATE item SET name='@x' WHERE id=1", "legal" },
	{ ITEM, "UPDATE item SET name='checkpoint.json' WHERE id=1", "legal" },
	{ ITEM, "UPDATE item SET name=CAST(x'80' AS TEXT) WHERE id=1",
	  "malformed" },
	{ ITEM, "UPDATE item SET name=CAST(x'610062' AS TEXT) WHERE id=1",
	  "malformed" },
	{ ITEM, "UPDATE item SET kind='other' WHERE id=1", "legal" },
	{ ITEM, "UPDATE item SET separator='..' WHERE id=1", "legal" },
	{ ITEM, "UPDATE item SET separator='\xc3\xa9' WHERE id=1", "legal" },
	{ ITEM, "UPDATE item SET metadata=CAST(x'ff' AS TEXT) WHERE id=1",
	  "malformed" },
	{ PACK, "UPDATE pack SET uuid=x'00' WHERE id=1", "malformed" },
	{ PACK, "UPDATE pack SET uuid=zeroblob(0) WHERE id=1", "malformed" },
	{ PACK, "UPDATE pack SET uuid=zeroblob(17) WHERE id=1", "malformed" },
	{ PACK, "UPDATE pack SET id=5 WHERE id=1", "numbered" },
	{ TENSOR, "DELETE FROM tensor WHERE id=3", "numbered" },
	{ TENSOR, "UPDATE tensor SET id=100 WHERE id=8", "numbered" },
	{ TENSOR, "UPDATE tensor SET item=99 WHERE id=8", "no item" },
	{ TENSOR, "UPDATE tensor SET item=-1 WHERE id=8", "no item" },
	{ TENSOR, "UPDATE tensor SET item=0 WHERE id=8", "with its item" },
	{ TENSOR, "UPDATE tensor SET name=x'ff' WHERE id=2", "'\\xff'" },
	{ TENSOR, "UPDATE tensor SET name=CAST(replace(hex(zeroblob(32769)), "
		  "'0', 'x') AS BLOB) WHERE id=2", "legal" },
	{ TENSOR, "UPDATE tensor SET dtype='F99' WHERE id=2", "dtype" },
	{ TENSOR, "UPDATE tensor SET dtype='f32' WHERE id=0", "dtype" },
	{ TENSOR, "UPDATE tensor SET dtype='' WHERE id=0", "dtype" },
	{ TENSOR, "UPDATE tensor SET shape=x'00' WHERE id=2", "shape" },
	{ TENSOR, "UPDATE tensor SET shape=zeroblob(520) WHERE id=2",
	  "shape" },
	{ TENSOR, "UPDATE tensor SET shape=x'' WHERE id=2", "size" },
	{ TENSOR, "UPDATE tensor SET shape=x'ffffffffffffffff' WHERE id=2",
	  "size" },
	{ TENSOR, "UPDATE tensor SET bytes=bytes+1 WHERE id=2", "size" },
	{ TENSOR, "UPDATE tensor SET bytes=-1 WHERE id=2", "size" },
	{ TENSOR, "UPDATE tensor SET bytes=0 WHERE id=2", "size" },
	{ TENSOR, "UPDATE tensor SET media_type='' WHERE id=2", "file" },
	{ TENSOR, "UPDATE tensor SET media_type=CAST(x'ff' AS TEXT) WHERE "
		  "id=7", "media type" },
	{ TENSOR, "UPDATE tensor SET media_type=hex(zeroblob(128)) WHERE "
		  "id=7", "media type" },
	{ TENSOR, "UPDATE tensor SET layout=77 WHERE id=2", "layout" },
	{ TENSOR, "UPDATE tensor SET layout=-1 WHERE id=2", "layout" },
	{ TENSOR, "UPDATE tensor SET stats=NULL WHERE id=2", "malformed" },
	{ TENSOR, "UPDATE tensor SET stats=x'00' WHERE id=2", "statistics" },
	{ TENSOR, "UPDATE tensor SET stats=CAST(x'09' || substr(stats, 2) AS "
		  "BLOB) WHERE id=2", "statistics" },
	{ TENSOR, "UPDATE tensor SET stats=CAST(substr(stats, 1, 8) || x'c9' "
		  "|| substr(stats, 10) AS BLOB) WHERE id=2", "elements" },
	{ TENSOR, "UPDATE tensor SET name=x'2e2e' WHERE id=7", "legal" },
	{ TENSOR, "UPDATE tensor SET name=x'612f2f62' WHERE id=7", "legal" },
	{ TENSOR, "UPDATE tensor SET name=x'610062' WHERE id=7", "legal" },
	{ TENSOR, "UPDATE tensor SET root=x'00' WHERE id=2", "root" },
	{ TENSOR, "UPDATE tensor SET root=x'' WHERE id=2", "root" },
	{ TENSOR, "UPDATE tensor SET root=zeroblob(33) WHERE id=2", "root" },
	{ TENSOR, "UPDATE tensor SET chunks=NULL WHERE id=2", "chunks" },
	{ TENSOR, "UPDATE tensor SET chunks=x'' WHERE id=2", "chunks" },
	{ TENSOR, "UPDATE tensor SET chunks=zeroblob(79) WHERE id=2",
	  "chunks" },
	{ TENSOR, "UPDATE tensor SET chunks=zeroblob(80) WHERE id=4",
	  "chunks" }, /* no bytes */
	{ TENSOR, "UPDATE tensor SET chunks=x'' WHERE id=4", "chunks" },
	{ TENSOR, "UPDATE tensor SET chunks=zeroblob(80) WHERE id=5",
	  "chunks" }, /* an alias */
	{ TENSOR, "UPDATE tensor SET alias_of=5 WHERE id=5", "alias" },
	{ TENSOR, "UPDATE tensor SET alias_of=6 WHERE id=5", "alias" },
	{ TENSOR, "UPDATE tensor SET alias_of=-1 WHERE id=5", "alias" },
	{ TENSOR, "UPDATE tensor SET alias_of=1 WHERE id=5", "alias" },
	{ TENSOR, "UPDATE tensor SET dtype='I32' WHERE id=5", "alias" },
	{ TENSOR, "UPDATE tensor SET shape=(SELECT CAST(substr(shape, 9, 8) || "
		  "substr(shape, 1, 8) AS BLOB) FROM tensor WHERE id=0) WHERE "
		  "id=5", "alias" },
	{ TENSOR, "UPDATE tensor SET alias_of=5, chunks=NULL, dtype='F32', "
		  "bytes=800, shape=(SELECT shape FROM tensor WHERE id=0), "
		  "stats=(SELECT stats FROM tensor WHERE id=0) WHERE id=6",
	  "alias" },
};

static void rows_that_break_a_rule_are_not_handed_out(void **state)
{
	for (size_t i = 0; i < CKB_ARRAY_LEN(changes); i++) {
		hostile(*state, changes[i].sql);
		walk_is_refused(*state, &changes[i]);
	}
}

static const struct change types[] = {
	{ ITEM, "UPDATE item SET name=x'61' WHERE id=1", "malformed" },
	{ ITEM, "UPDATE item SET name=NULL WHERE id=1", "malformed" },
	{ ITEM, "UPDATE item SET kind=NULL WHERE id=1", "malformed" },
	{ ITEM, "UPDATE item SET separator=NULL WHERE id=1", "malformed" },
	{ ITEM, "UPDATE item SET metadata=x'7b7d' WHERE id=1", "malformed" },
	{ ITEM, "UPDATE item SET metadata='[]' WHERE id=1", "malformed" },
	{ ITEM, "UPDATE item SET metadata='{' WHERE id=1", "malformed" },
	{ ITEM, "UPDATE item SET metadata='{\"a\": \"' || "
		"hex(zeroblob(9000000)) || '\"}' WHERE id=1", "malformed" },
	{ PACK, "UPDATE pack SET uuid=NULL WHERE id=1", "malformed" },
	{ PACK, "UPDATE pack SET uuid='0123456789abcdef' WHERE id=1",
	  "malformed" },
	{ TENSOR, "UPDATE tensor SET name='text' WHERE id=2", "malformed" },
	{ TENSOR, "UPDATE tensor SET name=NULL WHERE id=2", "malformed" },
	{ TENSOR, "UPDATE tensor SET dtype=x'4638' WHERE id=2", "malformed" },
	{ TENSOR, "UPDATE tensor SET dtype=NULL WHERE id=2", "malformed" },
	{ TENSOR, "UPDATE tensor SET shape=NULL WHERE id=2", "malformed" },
	{ TENSOR, "UPDATE tensor SET shape='12345678' WHERE id=2",
	  "malformed" },
	{ TENSOR, "UPDATE tensor SET bytes=NULL WHERE id=2", "malformed" },
	{ TENSOR, "UPDATE tensor SET bytes=200.5 WHERE id=2", "malformed" },
	{ TENSOR, "UPDATE tensor SET item=NULL WHERE id=2", "malformed" },
	{ TENSOR, "UPDATE tensor SET layout='x' WHERE id=2", "malformed" },
	{ TENSOR, "UPDATE tensor SET alias_of=x'00' WHERE id=5",
	  "malformed" },
	{ TENSOR, "UPDATE tensor SET media_type=x'61' WHERE id=7",
	  "malformed" },
	{ TENSOR, "UPDATE tensor SET root='x' WHERE id=2", "malformed" },
	/* 80 characters, but not 80 bytes */
	{ TENSOR, "UPDATE tensor SET chunks=replace(hex(zeroblob(40)), '0', "
		  "char(233)) WHERE id=2", "chunks" },
	{ TENSOR, "UPDATE tensor SET chunks=12 WHERE id=2", "chunks" },
};

static void rows_of_a_wrong_type_are_not_handed_out(void **state)
{
	for (size_t i = 0; i < CKB_ARRAY_LEN(types); i++) {
		hostile_types(*state, types[i].sql);
		walk_is_refused(*state, &types[i]);
	}
}

#define T(name) cmocka_unit_test_setup_teardown(name, fix_setup, fix_teardown)

int main(void)
{
	const struct CMUnitTest tests[] = {
		T(a_callback_may_stop_the_walk),
		T(five_thousand_tensors_come_back),
		T(a_long_list_of_chunks_comes_back),
		T(rows_that_break_a_rule_are_not_handed_out),
		T(rows_of_a_wrong_type_are_not_handed_out),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
