/* SPDX-License-Identifier: Apache-2.0 */
/* test_manifest.c - a manifest opens whole or not at all: flips, cuts, files
 * of others, and facts or a schema that a hostile hand changed. */
#include <pthread.h>

#include "manifest_fixture.h"

static void facts_come_back(void **state)
{
	struct fix *f = *state;
	struct ckpt_err err = { 0 };
	struct ckq_manifest *m = NULL;
	struct walk w = { 0 };

	assert_ok(open_it(f, "m", &m, &err));
	assert_true(same_facts(ckq_manifest_facts(m)));
	assert_ok(read_rows(m, &w, &err));
	assert_false(w.wrong);
	assert_ok(ckq_manifest_verify(m, &err));
	ckq_manifest_close(m);
	ckq_manifest_close(NULL);
}

/* Everything is read of "m", whose byte at @off is wrong. What is answered
 * must be right, and something must fail. */
static void flip_is_found(struct fix *f, size_t off)
{
	struct ckpt_err err = { 0 };
	struct ckq_manifest *m = NULL;
	struct walk w = { 0 };
	int rc = open_it(f, "m", &m, &err);

	if (rc == 0) {
		assert_true(same_facts(ckq_manifest_facts(m)));
		rc = read_rows(m, &w, &err);
		if (rc == 0 && w.wrong)
			fail_msg("a flip at %zu gives wrong rows", off);
		int verified = ckq_manifest_verify(m, &err);

		if (verified == 0)
			fail_msg("a flip at %zu passes verify", off);
		rc = verified;
	} else {
		assert_null(m);
	}
	assert_int_equal(rc, CKPT_ECORRUPT);
	assert_int_equal(err.code, CKPT_ECORRUPT);
	assert_says(err, "manifest 'm' is damaged: ");
	char page[64];

	/* page 1 is looked at before SQLite is: its flips name it too */
	snprintf(page, sizeof(page), "page %zu does not match its checksum",
		 off / 4096 + 1);
	assert_says(err, page);
	ckq_manifest_close(m);
}

static void every_flip_is_found(void **state)
{
	struct fix *f = *state;
	uint32_t x = 99;

	/* all of page 1, and 400 places anywhere */
	for (size_t i = 0; i < 4096 + 400; i++) {
		size_t off = i;

		x = x * 1664525 + 1013904223;
		if (i >= 4096)
			off = x % f->image.len;
		uint8_t bad = f->image.data[off] ^ (uint8_t)(1u << (x >> 29));

		assert_int_equal(pwrite(f->file, &bad, 1, (off_t)off), 1);
		flip_is_found(f, off);
		assert_int_equal(pwrite(f->file, f->image.data + off, 1,
					(off_t)off), 1);
	}
}

static void every_cut_and_every_addition_is_found(void **state)
{
	struct fix *f = *state;
	struct ckpt_err err = { 0 };
	struct ckq_manifest *m = NULL;
	size_t len = f->image.len;
	size_t sizes[] = { 0, 1, 99, 100, 4095, 4097, len - 1, len + 1,
			   len + 4095, len + 4096 };

	for (size_t i = 0; i < CKB_ARRAY_LEN(sizes) + len / 4096; i++) {
		size_t size = i < CKB_ARRAY_LEN(sizes)
				      ? sizes[i]
				      : (i - CKB_ARRAY_LEN(sizes)) * 4096;

		assert_int_equal(ftruncate(f->file, (off_t)size), 0);
		assert_code(open_it(f, "m", &m, &err), CKPT_ECORRUPT);
		assert_null(m);
		assert_says(err, "pages");
		assert_int_equal(pwrite(f->file, f->image.data, len, 0), len);
	}
}

static void what_is_no_file_is_refused(void **state)
{
	struct fix *f = *state;
	struct ckpt_err err = { 0 };
	struct ckq_manifest *m = (struct ckq_manifest *)1;

	assert_code(open_it(f, "absent", &m, &err), CKPT_ENOENT);
	assert_null(m);
	assert_int_equal(mkdirat(f->fd, "d", 0700), 0);
	assert_code(open_it(f, "d", &m, &err), CKPT_ECORRUPT);
	assert_int_equal(mkfifoat(f->fd, "fifo", 0600), 0);
	assert_code(open_it(f, "fifo", &m, &err), CKPT_ECORRUPT);
	assert_int_equal(symlinkat("m", f->fd, "link"), 0);
	assert_true(open_it(f, "link", &m, &err) < 0);
}

/* A database of somebody else, as any program makes them; and one that took
 * the trouble to have page checksums. */
static void foreign_databases_are_refused(void **state)
{
	struct fix *f = *state;
	struct ckpt_err err = { 0 };
	struct ckq_manifest *m = NULL;
	char path[512];
	sqlite3 *db = NULL;

	snprintf(path, sizeof(path), "%s/foreign", f->dir);
	assert_int_equal(sqlite3_open(path, &db), SQLITE_OK);
	assert_int_equal(sqlite3_exec(db, "CREATE TABLE t(a); INSERT INTO t "
				      "VALUES(1)", NULL, NULL, NULL),
			 SQLITE_OK);
	sqlite3_close(db);
	assert_code(open_it(f, "foreign", &m, &err), CKPT_ECORRUPT);
	put_file(f, "zeros", (uint8_t[8192]){ 0 }, 8192);
	assert_code(open_it(f, "zeros", &m, &err), CKPT_ECORRUPT);

	uint8_t text[4096] = "this is not SQLite";

	seal_pages(text, sizeof(text));
	put_file(f, "text", text, sizeof(text));
	assert_code(open_it(f, "text", &m, &err), CKPT_ECORRUPT);
	assert_says(err, "no manifest of this format");
}

/* Bytes of the header changed, the checksum right. */
static void headers_of_another_format_are_refused(void **state)
{
	static const struct {
		size_t at;
		uint8_t value;
	} cases[] = {
		{ 16, 0x20 }, /* page size 8192 */
		{ 18, 2 },    /* WAL */
		{ 19, 2 },
		{ 20, 0 },    /* no reserved bytes */
		{ 20, 12 },
		{ 28, 1 },    /* pages */
		{ 31, 1 },
		{ 59, 2 },    /* UTF-16 */
	};
	struct fix *f = *state;
	struct ckpt_err err = { 0 };
	struct ckq_manifest *m = NULL;

	for (size_t i = 0; i < CKB_ARRAY_LEN(cases); i++) {
		uint8_t *b = malloc(f->image.len);

		memcpy(b, f->image.data, f->image.len);
		b[cases[i].at] = cases[i].value;
		seal_pages(b, f->image.len);
		put_file(f, "bad", b, f->image.len);
		free(b);
		assert_code(open_it(f, "bad", &m, &err), CKPT_ECORRUPT);
		assert_says(err, "manifest 'bad' is damaged");
	}
}

static const struct {
	const char *sql, *says;
	int code;
} changes[] = {
	{ "CREATE TABLE more(a)", "schema", 0 },
	{ "CREATE VIEW v AS SELECT 1", "schema", 0 },
	{ "CREATE INDEX i ON tensor(bytes)", "schema", 0 },
	{ "CREATE TRIGGER t AFTER INSERT ON pack BEGIN DELETE FROM item; END",
	  "schema", 0 },
	{ "CREATE TABLE s(a INTEGER PRIMARY KEY AUTOINCREMENT)", "schema", 0 },
	{ "ANALYZE", "schema", 0 },
	{ "DROP TABLE layout", "schema", 0 },
	{ "DROP TABLE tensor", "schema", 0 }, /* the last one */
	{ "ALTER TABLE item ADD COLUMN more TEXT", "schema", 0 },
	{ "UPDATE sqlite_schema SET sql=replace(sql, 'TEXT', 'text') WHERE "
	  "name='item'", "schema", 0 },
	{ "UPDATE sqlite_schema SET sql=sql || ' ' WHERE name='pack'",
	  "schema", 0 },
	{ "PRAGMA application_id=1", "no manifest of ckptfs", 0 },
	{ "PRAGMA user_version=2", "newer ckptfs", CKPT_EVERSION },
	{ "PRAGMA user_version=0", "version", 0 },
	{ "PRAGMA user_version=-1", "version", 0 },
	{ "DELETE FROM checkpoint", "no checkpoint", 0 },
	{ "UPDATE checkpoint SET tile_rule=2", "facts", 0 },
	{ "UPDATE checkpoint SET tile_rule=4294967297", "facts", 0 },
	{ "UPDATE checkpoint SET digest='md5'", "facts", 0 },
	{ "UPDATE checkpoint SET generation=0", "facts", 0 },
	{ "UPDATE checkpoint SET seq=-1", "facts", 0 },
	{ "UPDATE checkpoint SET step=-1", "facts", 0 },
	{ "UPDATE checkpoint SET uuid=x'00'", "facts", 0 },
	{ "UPDATE checkpoint SET store_uuid=zeroblob(17)", "facts", 0 },
	{ "UPDATE checkpoint SET parent=x''", "facts", 0 },
	{ "UPDATE checkpoint SET saved_as='../../etc/passwd'", "facts", 0 },
	{ "UPDATE checkpoint SET saved_as=''", "facts", 0 },
	{ "UPDATE checkpoint SET metadata=CAST(x'ff' AS TEXT)", "facts", 0 },
	{ "UPDATE checkpoint SET metadata='{} {}'", "facts", 0 },
	{ "UPDATE checkpoint SET metrics='[1]'", "facts", 0 },
	{ "UPDATE checkpoint SET writer=CAST(x'610062' AS TEXT)", "facts", 0 },
};

static void changed_schemas_and_facts_are_refused(void **state)
{
	struct fix *f = *state;
	struct ckpt_err err = { 0 };
	struct ckq_manifest *m = NULL;

	/* the hand itself does no harm */
	hostile(f, "UPDATE checkpoint SET seq=seq");
	assert_ok(open_it(f, "bad", &m, &err));
	ckq_manifest_close(m);
	for (size_t i = 0; i < CKB_ARRAY_LEN(changes); i++) {
		int want = changes[i].code ? changes[i].code : CKPT_ECORRUPT;

		hostile(f, changes[i].sql);
		is_refused(f, changes[i].sql, want, changes[i].says);
	}
}

/* STRICT and NOT NULL bind whoever writes, not what is in the file. */
static void facts_of_a_wrong_type_are_refused(void **state)
{
	static const char *const cases[] = {
		"UPDATE checkpoint SET uuid='0123456789abcdef'",
		"UPDATE checkpoint SET uuid=NULL",
		"UPDATE checkpoint SET seq=CAST('7' AS BLOB)",
		"UPDATE checkpoint SET generation=1.5",
		"UPDATE checkpoint SET created_ns=NULL",
		"UPDATE checkpoint SET step=x'01'",
		"UPDATE checkpoint SET saved_as=x'61'",
		"UPDATE checkpoint SET writer=NULL",
		"UPDATE checkpoint SET digest=NULL",
		"UPDATE checkpoint SET digest=CAST('sha256' AS BLOB)",
	};
	struct fix *f = *state;
	struct ckpt_err err = { 0 };
	struct ckq_manifest *m = NULL;

	hostile_types(f, "UPDATE checkpoint SET seq=seq");
	assert_ok(open_it(f, "bad", &m, &err));
	ckq_manifest_close(m);
	for (size_t i = 0; i < CKB_ARRAY_LEN(cases); i++) {
		hostile_types(f, cases[i]);
		is_refused(f, cases[i], CKPT_ECORRUPT, "facts");
	}
}

/* What only SQLite's own check can see: an index that does not fit its
 * table. Verify tells, whatever the checksums say. */
static void verify_looks_into_the_trees(void **state)
{
	struct fix *f = *state;
	struct ckpt_err err = { 0 };
	struct ckq_manifest *m = NULL;

	hostile(f, "UPDATE sqlite_schema SET rootpage=(SELECT rootpage FROM "
		"sqlite_schema WHERE name='sqlite_autoindex_pack_1') WHERE "
		"name='sqlite_autoindex_layout_1'");
	assert_ok(open_it(f, "bad", &m, &err));
	assert_code(ckq_manifest_verify(m, &err), CKPT_ECORRUPT);
	assert_says(err, "manifest 'bad' is damaged");
	ckq_manifest_close(m);
}

/* ---- BLOBs ---- */

static void rows_that_are_not_there_have_no_blobs(void **state)
{
	struct fix *f = *state;
	struct ckpt_err err = { 0 };
	struct ckq_manifest *m = NULL;
	CKB_BUF struct ckb_buf blob = { 0 };

	assert_ok(open_it(f, "m", &m, &err));
	assert_code(ckq_manifest_chunks(m, T_COUNT, &blob, &err),
		    CKPT_ECORRUPT);
	assert_code(ckq_manifest_chunks(m, UINT64_MAX, &blob, &err),
		    CKPT_ECORRUPT);
	assert_code(ckq_manifest_layout(m, 1, &blob, &err), CKPT_ECORRUPT);
	assert_int_equal(blob.len, 0);
	/* what is there is appended */
	ckb_buf_puts(&blob, "before");
	assert_ok(ckq_manifest_chunks(m, 0, &blob, &err));
	assert_int_equal(blob.len, 6 + CKF_CHUNK_ENTRY_BYTES);
	assert_memory_equal(blob.data, "before", 6);
	ckq_manifest_close(m);
}

struct reader {
	struct ckq_manifest *m;
	bool wrong;
};

static void *read_chunks(void *arg)
{
	struct reader *r = arg;
	CKB_BUF struct ckb_buf blob = { 0 };

	for (unsigned n = 0; n < 900; n++) {
		uint8_t chunks[8 * CKF_CHUNK_ENTRY_BYTES];
		unsigned i = n % T_COUNT;

		sample_chunks(chunks, 2, i);
		blob.len = 0;
		if (ckq_manifest_chunks(r->m, i, &blob, NULL) != 0 ||
		    blob.len > 2 * CKF_CHUNK_ENTRY_BYTES ||
		    (blob.len && memcmp(blob.data, chunks, blob.len) != 0))
			r->wrong = true;
	}
	return NULL;
}

static void threads_read_chunks_of_one_manifest(void **state)
{
	struct fix *f = *state;
	struct ckpt_err err = { 0 };
	struct ckq_manifest *m = NULL;
	struct reader r[4];
	pthread_t threads[4];

	assert_ok(ckq_manifest_open(ckb_sys_real(), f->fd, "m", &m, &err));
	for (int i = 0; i < 4; i++) {
		r[i] = (struct reader){ .m = m };
		assert_int_equal(pthread_create(&threads[i], NULL, read_chunks,
						&r[i]), 0);
	}
	for (int i = 0; i < 4; i++)
		pthread_join(threads[i], NULL);
	for (int i = 0; i < 4; i++)
		assert_false(r[i].wrong);
	ckq_manifest_close(m);
}

#define T(name) cmocka_unit_test_setup_teardown(name, fix_setup, fix_teardown)

int main(void)
{
	const struct CMUnitTest tests[] = {
		T(facts_come_back),
		T(every_flip_is_found),
		T(every_cut_and_every_addition_is_found),
		T(what_is_no_file_is_refused),
		T(foreign_databases_are_refused),
		T(headers_of_another_format_are_refused),
		T(changed_schemas_and_facts_are_refused),
		T(facts_of_a_wrong_type_are_refused),
		T(verify_looks_into_the_trees),
		T(rows_that_are_not_there_have_no_blobs),
		T(threads_read_chunks_of_one_manifest),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
