/* SPDX-License-Identifier: Apache-2.0 */
/* test_build.c - the file that comes out: header, page checksums, the same
 * bytes for the same input, and SQLite's and Python's opinion of it. */
#include <malloc.h>
#include <sys/mman.h>
#include <sys/wait.h>

#include "manifest_fixture.h"

static void the_file_is_as_format_md_says(void **state)
{
	struct fix *f = *state;
	const uint8_t *b = f->image.data;

	assert_int_equal(f->image.len % 4096, 0);
	assert_memory_equal(b, "SQLite format 3", 16);
	assert_int_equal(b[16] << 8 | b[17], 4096);
	assert_int_equal(b[18], 1); /* no WAL */
	assert_int_equal(b[19], 1);
	assert_int_equal(b[20], 8); /* reserved bytes */
	assert_int_equal((size_t)(b[28] << 24 | b[29] << 16 | b[30] << 8 |
				  b[31]) * 4096, f->image.len);
	assert_memory_equal(b + 32, "\0\0\0\0\0\0\0\0", 8); /* no freelist */
	assert_memory_equal(b + 56, "\0\0\0\1", 4); /* UTF-8 */
	assert_memory_equal(b + 60, "\0\0\0\1", 4); /* user_version */
	assert_memory_equal(b + 68, "ckpt", 4);     /* application_id */
	for (size_t p = 0; p < f->image.len / 4096; p++) {
		uint8_t joined[4 + 4088];

		ckb_put_u32(joined, (uint32_t)p + 1);
		memcpy(joined + 4, b + p * 4096, 4088);
		assert_int_equal(ckb_get_u64(b + p * 4096 + 4088),
				 ckb_xxh3(joined, sizeof(joined)));
	}
}

/* Fresh memory is filled with other bytes each time: none may get out. */
static void the_same_input_gives_the_same_bytes(void **state)
{
	struct fix *f = *state;

	for (int i = 0; i < 3; i++) {
		CKB_BUF struct ckb_buf again = { 0 };

		mallopt(M_PERTURB, 0x11 << i);
		sample_build(&again);
		mallopt(M_PERTURB, 0);
		assert_int_equal(again.len, f->image.len);
		assert_memory_equal(again.data, f->image.data, again.len);
	}
}

static int64_t number(sqlite3 *db, const char *sql)
{
	sqlite3_stmt *s = NULL;

	if (sqlite3_prepare_v2(db, sql, -1, &s, NULL) != SQLITE_OK ||
	    sqlite3_step(s) != SQLITE_ROW)
		fail_msg("%s: %s", sql, sqlite3_errmsg(db));
	int64_t v = sqlite3_column_int64(s, 0);

	sqlite3_finalize(s);
	return v;
}

static void sqlite_opens_it_and_finds_no_fault(void **state)
{
	struct fix *f = *state;
	char path[512];
	sqlite3 *db = NULL;

	snprintf(path, sizeof(path), "%s/m", f->dir);
	assert_int_equal(sqlite3_open_v2(path, &db, SQLITE_OPEN_READONLY,
					 NULL), SQLITE_OK);
	assert_int_equal(number(db, "SELECT count(*) FROM tensor"), T_COUNT);
	assert_int_equal(number(db, "SELECT count(*) FROM pragma_integrity_"
				"check WHERE integrity_check='ok'"), 1);
	assert_int_equal(number(db, "SELECT count(*) FROM pragma_foreign_key_"
				"check"), 0);
	assert_int_equal(number(db, "SELECT name = x'610062' FROM tensor "
				"WHERE id=2"), 1);
	assert_int_equal(number(db, "SELECT typeof(shape) = 'blob' AND "
				"length(shape) = 0 FROM tensor WHERE id=3"),
			 1);
	assert_int_equal(number(db, "SELECT count(*) FROM tensor WHERE chunks "
				"IS NULL"), 3);
	assert_int_equal(number(db, "SELECT step FROM checkpoint"), 4000);
	sqlite3_close(db);
}

static void python_opens_it(void **state)
{
	struct fix *f = *state;
	char command[1024];

	if (system("python3 -c 'import sqlite3' 2>/dev/null") != 0) {
		print_message("no python3 with sqlite3 here\n");
		skip();
	}
	snprintf(command, sizeof(command), "python3 -c '"
		 "import sqlite3, sys\n"
		 "d = sqlite3.connect(\"file:%s/m?mode=ro&immutable=1\", "
		 "uri=True)\n"
		 "r = d.execute(\"SELECT bytes FROM tensor ORDER BY id\")"
		 ".fetchall()\n"
		 "sys.exit(sum(x[0] for x in r) != 2860)'", f->dir);
	int rc = system(command);

	assert_true(WIFEXITED(rc));
	assert_int_equal(WEXITSTATUS(rc), 0);
}

static struct ckq_build *fresh(void)
{
	struct ckq_facts f = sample_facts();
	struct ckq_build *b = NULL;
	struct ckpt_err err = { 0 };

	assert_ok(ckq_build_new(&f, &b, &err));
	assert_ok(ckq_build_item(b, "model", CKPT_ITEM_TENSORS, ".", NULL,
				 &err));
	return b;
}

static void numbers_of_2_to_the_63_are_refused(void **state)
{
	struct ckpt_err err = { 0 };
	struct ckq_build *b = NULL;
	uint8_t chunks[8 * CKF_CHUNK_ENTRY_BYTES];
	struct ckq_tensor t = sample_tensor(0, chunks);

	(void)state;
	for (int i = 0; i < 3; i++) {
		struct ckq_facts f = sample_facts();
		uint64_t *fields[] = { &f.generation, &f.seq, &f.step };

		*fields[i] = 1ull << 63;
		assert_code(ckq_build_new(&f, &b, &err), CKPT_ELIMIT);
		assert_null(b);
		assert_says(err, "9223372036854775808");
		*fields[i] = (1ull << 63) - 1;
		assert_ok(ckq_build_new(&f, &b, &err));
		ckq_build_free(b);
	}
	b = fresh();
	t.bytes = 1ull << 63;
	assert_code(ckq_build_tensor(b, &t, &err), CKPT_ELIMIT);
	ckq_build_free(b);
	ckq_build_free(NULL);
}

static void names_that_repeat_are_refused_by_name(void **state)
{
	struct ckpt_err err = { 0 };
	struct ckq_build *b = fresh();
	uint8_t chunks[8 * CKF_CHUNK_ENTRY_BYTES];
	struct ckq_tensor t = sample_tensor(2, chunks);

	(void)state;
	assert_ok(ckq_build_tensor(b, &t, &err));
	assert_code(ckq_build_tensor(b, &t, &err), CKPT_EINVAL);
	assert_says(err, "tensor 'a\\x00b'");
	assert_code(ckq_build_item(b, "model", CKPT_ITEM_FILES, "", NULL,
				   &err), CKPT_EINVAL);
	assert_says(err, "item 'model'");
	assert_ok(ckq_build_pack(b, (const uint8_t[16]){ 1 }, &err));
	assert_code(ckq_build_pack(b, (const uint8_t[16]){ 1 }, &err),
		    CKPT_EINVAL);
	ckq_build_free(b);
}

static void equal_layouts_are_kept_once(void **state)
{
	static const struct {
		const char *blob;
		size_t len;
		uint64_t id;
	} cases[] = {
		{ "aa", 2, 0 }, { "ab", 2, 1 }, { "aa", 2, 0 }, { "a", 1, 2 },
		{ "", 0, 3 }, { "ab", 2, 1 }, { "", 0, 3 },
	};
	struct ckpt_err err = { 0 };
	struct ckq_build *b = fresh();

	(void)state;
	for (size_t i = 0; i < CKB_ARRAY_LEN(cases); i++) {
		uint64_t id = 99;

		assert_ok(ckq_build_layout(b, cases[i].blob, cases[i].len, &id,
					   &err));
		assert_int_equal(id, cases[i].id);
	}
	ckq_build_free(b);
}

/* SQLite would take a NULL in its place and not tell. */
static void a_row_of_a_gigabyte_is_refused(void **state)
{
	struct ckpt_err err = { 0 };
	struct ckq_build *b = fresh();
	size_t len = 12500001 * CKF_CHUNK_ENTRY_BYTES;
	void *chunks = mmap(NULL, len, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS |
			    MAP_NORESERVE, -1, 0);
	struct ckq_tensor t = { .name = "w", .name_len = 1,
				.dtype = CKPT_U8, .chunks = chunks,
				.chunks_len = len };
	uint64_t id;

	(void)state;
	assert_true(chunks != MAP_FAILED);
	assert_ok(ckq_build_item(b, "i", CKPT_ITEM_TENSORS, ".", NULL, &err));
	assert_code(ckq_build_tensor(b, &t, &err), CKPT_ELIMIT);
	assert_says(err, "'w'");
	assert_code(ckq_build_layout(b, chunks, len, &id, &err), CKPT_ELIMIT);
	/* and the next row is none the worse */
	t.chunks_len = CKF_CHUNK_ENTRY_BYTES;
	assert_ok(ckq_build_tensor(b, &t, &err));
	ckq_build_free(b);
	munmap(chunks, len);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(the_file_is_as_format_md_says),
		cmocka_unit_test(the_same_input_gives_the_same_bytes),
		cmocka_unit_test(sqlite_opens_it_and_finds_no_fault),
		cmocka_unit_test(python_opens_it),
		cmocka_unit_test(numbers_of_2_to_the_63_are_refused),
		cmocka_unit_test(names_that_repeat_are_refused_by_name),
		cmocka_unit_test(equal_layouts_are_kept_once),
		cmocka_unit_test(a_row_of_a_gigabyte_is_refused),
	};

	return cmocka_run_group_tests(tests, fix_setup, fix_teardown);
}
