/* SPDX-License-Identifier: Apache-2.0 */
/* test_schema.c - the schema's texts are FORMAT.md's, and SQLite itself
 * takes them and lists them as we demand. */
#include "manifest_fixture.h"

/* FORMAT.md is the law: each text stands there, as a line of its own. */
static void format_md_has_every_text(void **state)
{
	CKB_BUF struct ckb_buf doc = { 0 };
	struct ckpt_err err = { 0 };

	(void)state;
	assert_ok(ckb_read_file(ckb_sys_real(), AT_FDCWD, CKPT_SOURCE_ROOT
				"/store/format/FORMAT.md", 1 << 20, &doc,
				&err));
	for (int i = 0; i < CKQ_TABLE_COUNT; i++) {
		const char *at = strstr((char *)doc.data, ckq_schema[i]);

		assert_non_null(at);
		assert_int_equal(at[-1], '\n');
		assert_int_equal(at[strlen(ckq_schema[i])], '\n');
	}
}

static void sqlite_lists_the_objects_as_demanded(void **state)
{
	sqlite3 *db = NULL;
	sqlite3_stmt *s = NULL;
	int n = 0;

	(void)state;
	assert_int_equal(sqlite3_open(":memory:", &db), SQLITE_OK);
	for (int i = 0; i < CKQ_TABLE_COUNT; i++)
		assert_int_equal(sqlite3_exec(db, ckq_schema[i], NULL, NULL,
					      NULL), SQLITE_OK);
	assert_int_equal(sqlite3_prepare_v2(
				 db, "SELECT type, name, tbl_name, sql FROM "
				 "sqlite_schema ORDER BY rowid", -1, &s, NULL),
			 SQLITE_OK);
	while (sqlite3_step(s) == SQLITE_ROW) {
		const char *t[4];

		for (int i = 0; i < 4; i++)
			t[i] = (const char *)sqlite3_column_text(s, i);
		assert_true(n < CKQ_OBJECT_COUNT);
		assert_true(ckq_schema_is(n, t[0], t[1], t[2], t[3]));
		/* and only so, and only there */
		assert_false(ckq_schema_is(n, "view", t[1], t[2], t[3]));
		assert_false(ckq_schema_is(n, t[0], "x", t[2], t[3]));
		assert_false(ckq_schema_is(n, t[0], t[1], "x", t[3]));
		assert_false(ckq_schema_is(n, t[0], t[1], t[2], "x"));
		assert_false(ckq_schema_is(n, NULL, NULL, NULL, NULL));
		for (int other = 0; other < CKQ_OBJECT_COUNT; other++)
			assert_int_equal(ckq_schema_is(other, t[0], t[1], t[2],
						       t[3]), other == n);
		n++;
	}
	assert_int_equal(n, CKQ_OBJECT_COUNT);
	sqlite3_finalize(s);
	sqlite3_close(db);
}

static void kinds_have_names_both_ways(void **state)
{
	(void)state;
	for (int k = CKPT_ITEM_TENSORS; k <= CKPT_ITEM_ORIGIN; k++)
		assert_int_equal(ckq_kind_parse(ckq_kind_name(k)), k);
	assert_string_equal(ckq_kind_name(CKPT_ITEM_TENSORS), "tensors");
	assert_string_equal(ckq_kind_name(CKPT_ITEM_FILES), "files");
	assert_string_equal(ckq_kind_name(CKPT_ITEM_ORIGIN), "origin");
	assert_null(ckq_kind_name(0));
	assert_null(ckq_kind_name(4));
	assert_int_equal(ckq_kind_parse("Tensors"), 0);
	assert_int_equal(ckq_kind_parse(""), 0);
	assert_int_equal(ckq_kind_parse(NULL), 0);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(format_md_has_every_text),
		cmocka_unit_test(sqlite_lists_the_objects_as_demanded),
		cmocka_unit_test(kinds_have_names_both_ways),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
