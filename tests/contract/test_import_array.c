/* SPDX-License-Identifier: Apache-2.0 */
/*
 * test_import_array.c - import of .npy files, folders of them and .npz, against
 * what NumPy wrote and said of it (fixtures/npy).
 */
#include "import_rows.h"

#include "foreign/npy.h"

/* The dtype a row's descr arrives as; 0: no tensor holds such an array. */
static enum ckpt_dtype dtype_of(const char *descr)
{
	static const struct {
		const char *code;
		enum ckpt_dtype dtype;
	} codes[] = {
		{ "b1", CKPT_BOOL }, { "i1", CKPT_I8 }, { "u1", CKPT_U8 },
		{ "i2", CKPT_I16 }, { "u2", CKPT_U16 }, { "i4", CKPT_I32 },
		{ "u4", CKPT_U32 }, { "i8", CKPT_I64 }, { "u8", CKPT_U64 },
		{ "f2", CKPT_F16 }, { "f4", CKPT_F32 }, { "f8", CKPT_F64 },
		{ "c8", CKPT_C64 }, { "c16", CKPT_C128 },
		{ "V2", CKPT_BF16 }, { "f1", CKPT_F8_E5M2 },
	};

	for (size_t i = 0; i < CKB_ARRAY_LEN(codes); i++)
		if (strcmp(descr + 1, codes[i].code) == 0)
			return codes[i].dtype;
	return (enum ckpt_dtype)0;
}

static const char *good_path(const char *name)
{
	static char path[4096];

	snprintf(path, sizeof(path), "%s/npy/good/%s.npy", fixtures_path(),
		 name);
	return path;
}

/* The header in @orig, under the file's own name, of a C-order file. */
static void check_origin(struct ckpt_checkpoint *c, const char *path,
			 const char *name)
{
	const struct ckpt_item_info *item = ckpt_item_find(c, "@orig");
	const struct ckpt_tensor_info *t = NULL;
	size_t len;
	uint8_t *file = fix_slurp(path, &len), *data;

	if (memmem(file, len, "'descr': '>", 11) ||
	    memmem(file, len, "'fortran_order': True", 21)) {
		free(file);
		return; /* the tensor's bytes are not the file's */
	}
	assert_non_null(item);
	for (size_t i = 0; i < item->count; i++)
		if (strcmp(ckpt_tensor_at(c, item->first + i)->name, name) ==
		    0)
			t = ckpt_tensor_at(c, item->first + i);
	assert_non_null(t);
	assert_string_equal(t->media_type, "application/x-npy-header");
	data = fix_read(c, t);
	assert_memory_equal(data, file, t->bytes);
	assert_true(t->bytes < len || len % 64 == 0);
	free(data);
	free(file);
}

static struct ckpt_checkpoint *imported(struct fix *f, const char *path,
					const char *name,
					const struct ckpt_import_opts *opts)
{
	struct ckpt_import_result result = { 0 };
	struct ckpt_checkpoint *c;
	struct ckpt_err err = { 0 };

	if (ckpt_import(f->writer, path, name, opts, &result, &err) < 0)
		fail_msg("%s: %s", path, err.message);
	assert_ok(ckpt_checkpoint_open(f->store, name, &c, &err));
	assert_int_equal(ckpt_item_find(c, "model")->count,
			 result.tensor_count);
	assert_string_equal(ckpt_item_find(c, "model")->separator, "/");
	return c;
}

static const struct ckpt_tensor_info *only(struct ckpt_checkpoint *c)
{
	const struct ckpt_item_info *item = ckpt_item_find(c, "model");

	assert_int_equal(item->count, 1);
	return ckpt_tensor_at(c, item->first);
}

static void refused(struct fix *f, const char *path, int code,
		    const char *says)
{
	struct ckpt_checkpoint *c;
	struct ckpt_err err = { 0 };
	const char *base = strrchr(path, '/') + 1;
	int rc = ckpt_import(f->writer, path, "refused", NULL, NULL, &err);

	if (rc != code || !strstr(err.message, says))
		fail_msg("%s gave %d '%s'", path, rc, err.message);
	assert_non_null(strstr(err.message, base));
	assert_null(strchr(err.message, '\n'));
	assert_int_equal(ckpt_checkpoint_open(f->store, "refused", &c, NULL),
			 CKPT_ENOENT);
	assert_int_equal(fix_count(f, "store/staging"), 0);
}

static void every_good_npy_reads_back(void **state)
{
	struct rows rows;
	char path[4096], name[512];
	size_t good = 0;

	if (fix_lacks_fixtures())
		return;
	snprintf(path, sizeof(path), "%s/npy/good/expected.tsv",
		 fixtures_path());
	rows = load_rows(path);
	for (size_t i = 0; i < rows.count; i++) {
		struct row *r = &rows.row[i];
		enum ckpt_dtype dtype = dtype_of(r->dtype);
		struct ckpt_checkpoint *c;

		if (dtype == 0)
			continue;
		good++;
		snprintf(name, sizeof(name), "good/%zu", i);
		c = imported(*state, good_path(r->name), name, NULL);
		snprintf(path, sizeof(path), "%s.npy", r->name);
		check_origin(c, good_path(r->name), path);
		snprintf(r->dtype, sizeof(r->dtype), "%s",
			 ckpt_dtype_name(dtype));
		check_tensor(c, only(c), r);
		assert_string_equal(only(c)->name, r->name);
		ckpt_checkpoint_close(c);
	}
	assert_int_equal(good, 59); /* of 79 */
	free_rows(&rows);
}

static void what_no_tensor_holds_is_named(void **state)
{
	static const struct {
		const char *name, *says;
	} cases[] = {
		{ "longdouble", "long doubles" },
		{ "bytes_S5", "byte strings" },
		{ "unicode_U4", "text" },
		{ "unicode_U3_big_endian", "text" },
		{ "void_V3", "raw bytes" },
		{ "datetime_ns", "dates" },
		{ "timedelta_D", "times" },
		{ "struct_packed", "a structured array" },
		{ "struct_aligned", "a structured array" },
		{ "struct_big_endian", "a structured array" },
		{ "struct_nested", "a structured array" },
		{ "struct_unicode_field_v3", "a structured array" },
		{ "ml_int4", "--dtype" },
		{ "ml_float8_e4m3fn", "--dtype" },
	};

	if (fix_lacks_fixtures())
		return;
	for (size_t i = 0; i < CKB_ARRAY_LEN(cases); i++)
		refused(*state, good_path(cases[i].name), CKPT_EINVAL,
			cases[i].says);
	/* NumPy reads at most 10,000 bytes of header, and so do we */
	refused(*state, good_path("struct_long_header_v2"), CKPT_EFORMAT,
		"a structured array");
}

static void raw_bytes_are_what_the_caller_says(void **state)
{
	static const struct {
		const char *name;
		enum ckpt_dtype dtype;
	} cases[] = {
		{ "ml_float8_e4m3fn", CKPT_F8_E4M3 },
		{ "ml_float8_e4m3fnuz", CKPT_F8_E4M3FNUZ },
		{ "ml_float8_e8m0fnu", CKPT_F8_E8M0 },
		{ "ml_bfloat16", CKPT_F16 }, /* said, so believed */
		{ "ml_bfloat16_fortran", CKPT_U16 },
	};
	struct rows rows;
	char path[4096], name[64];

	if (fix_lacks_fixtures())
		return;
	snprintf(path, sizeof(path), "%s/npy/good/expected.tsv",
		 fixtures_path());
	rows = load_rows(path);
	for (size_t i = 0; i < CKB_ARRAY_LEN(cases); i++) {
		const struct ckpt_import_opts opts = {
			.size = sizeof(opts), .void_dtype = cases[i].dtype,
		};
		struct ckpt_checkpoint *c;
		struct row *r = NULL;

		snprintf(name, sizeof(name), "void/%zu", i);
		c = imported(*state, good_path(cases[i].name), name, &opts);
		for (size_t k = 0; k < rows.count; k++)
			if (strcmp(rows.row[k].name, cases[i].name) == 0)
				r = &rows.row[k];
		assert_non_null(r);
		snprintf(r->dtype, sizeof(r->dtype), "%s",
			 ckpt_dtype_name(cases[i].dtype));
		check_tensor(c, only(c), r);
		ckpt_checkpoint_close(c);
	}
	free_rows(&rows);
}

/* A file with the header that NumPy writes for @dtype's own form. */
static void write_npy(const char *path, enum ckpt_dtype dtype,
		      const struct ckpt_shape *shape, const void *data,
		      size_t len)
{
	struct ckb_buf out = { 0 };

	ckx_npy_header(dtype, shape, &out);
	ckb_buf_put(&out, data, len);
	assert_false(out.failed);
	fix_write(path, (const char *)out.data, out.len);
	ckb_buf_fini(&out);
}

static void f4_is_packed_in_pairs(void **state)
{
	static const struct ckpt_shape shape = { 2, { 2, 4 } };
	static const uint8_t one_a_byte[8] = { 1, 2, 3, 4, 5, 6, 7, 15 };
	static const uint8_t packed[4] = { 0x21, 0x43, 0x65, 0xf7 };
	static const uint8_t over[8] = { 1, 2, 3, 4, 5, 6, 7, 16 };
	const struct ckpt_import_opts opts = { .size = sizeof(opts),
					       .void_dtype = CKPT_F4 };
	struct fix *f = *state;
	const char *path = fix_path(f, "f4.npy");
	struct ckpt_checkpoint *c;
	struct ckpt_err err = { 0 };
	uint8_t *data;

	write_npy(path, CKPT_F4, &shape, one_a_byte, sizeof(one_a_byte));
	c = imported(f, path, "f4/1", &opts);
	assert_int_equal(only(c)->dtype, CKPT_F4);
	assert_int_equal(only(c)->bytes, 4);
	data = fix_read(c, only(c));
	assert_memory_equal(data, packed, sizeof(packed));
	free(data);
	ckpt_checkpoint_close(c);
	write_npy(path, CKPT_F4, &shape, over, sizeof(over));
	assert_int_equal(ckpt_import(f->writer, path, "f4/2", &opts, NULL,
				     &err), CKPT_EFORMAT);
	assert_non_null(strstr(err.message, "no F4"));
}

static void a_folder_of_npy_keeps_paths_as_names(void **state)
{
	static const struct ckpt_shape shape = { 1, { 3 } };
	struct fix *f = *state;
	struct ckpt_checkpoint *c;
	const struct ckpt_item_info *item;
	uint8_t *data;

	assert_int_equal(mkdir(fix_path(f, "arrays"), 0700), 0);
	assert_int_equal(mkdir(fix_path(f, "arrays/a"), 0700), 0);
	assert_int_equal(mkdir(fix_path(f, "arrays/.cache"), 0700), 0);
	write_npy(fix_path(f, "arrays/a/b.c.npy"), CKPT_U8, &shape, "abc", 3);
	write_npy(fix_path(f, "arrays/z.npy"), CKPT_I8, &shape, "xyz", 3);
	write_npy(fix_path(f, "arrays/.cache/no.npy"), CKPT_I8, &shape, "no!",
		  3);
	fix_write(fix_path(f, "arrays/a/notes.md"), "# hello", 7);
	c = imported(f, fix_path(f, "arrays/"), "arrays", NULL);
	item = ckpt_item_find(c, "model");
	assert_int_equal(item->count, 2);
	assert_non_null(ckpt_tensor_find(c, item, "a/b.c", 5));
	assert_non_null(ckpt_tensor_find(c, item, "z", 1));
	check_origin(c, fix_path(f, "arrays/a/b.c.npy"), "a/b.c.npy");
	item = ckpt_item_find(c, "assets");
	assert_non_null(item);
	assert_int_equal(item->kind, CKPT_ITEM_FILES);
	assert_int_equal(item->count, 1);
	assert_string_equal(ckpt_tensor_at(c, item->first)->name,
			    "a/notes.md");
	assert_string_equal(ckpt_tensor_at(c, item->first)->media_type,
			    "text/markdown");
	data = fix_read(c, ckpt_tensor_at(c, item->first));
	assert_memory_equal(data, "# hello", 7);
	free(data);
	ckpt_checkpoint_close(c);
}

static void one_bad_npy_fails_the_folder(void **state)
{
	static const struct ckpt_shape shape = { 1, { 3 } };
	struct fix *f = *state;
	struct ckpt_err err = { 0 };

	assert_int_equal(mkdir(fix_path(f, "mixed"), 0700), 0);
	write_npy(fix_path(f, "mixed/a.npy"), CKPT_U8, &shape, "abc", 3);
	write_npy(fix_path(f, "mixed/b.npy"), CKPT_U8, &shape, "ab", 2);
	assert_int_equal(ckpt_import(f->writer, fix_path(f, "mixed"), "mixed",
				     NULL, NULL, &err), CKPT_EFORMAT);
	assert_non_null(strstr(err.message, "mixed/b.npy"));
	assert_non_null(strstr(err.message, "truncated"));
	assert_int_equal(fix_count(f, "store/staging"), 0);
}

/* ---- npz ---- */

static void every_npz_reads_back(void **state)
{
	static const char *const names[] = { "plain", "deflated" };
	struct fix *f = *state;
	char path[4096];

	if (fix_lacks_fixtures())
		return;
	for (size_t i = 0; i < CKB_ARRAY_LEN(names); i++) {
		const struct ckpt_item_info *item;
		struct ckpt_checkpoint *c;
		struct rows rows;

		snprintf(path, sizeof(path), "%s/npy/npz/expected.tsv",
			 fixtures_path());
		rows = load_rows(path);
		snprintf(path, sizeof(path), "%s/npy/npz/%s.npz",
			 fixtures_path(), names[i]);
#ifndef CKPT_HAVE_NPZ
		free_rows(&rows);
		refused(f, path, CKPT_EINVAL, "built without libzip");
		continue;
#endif
		c = imported(f, path, names[i], NULL);
		item = ckpt_item_find(c, "model");
		assert_int_equal(item->count, rows.count);
		for (size_t k = 0; k < item->count; k++) {
			const struct ckpt_tensor_info *t =
				ckpt_tensor_at(c, item->first + k);

			check_tensor(c, t, find_row(&rows, t));
		}
		ckpt_checkpoint_close(c);
		free_rows(&rows);
	}
}

#define FIXED(test) \
	cmocka_unit_test_setup_teardown(test, fix_setup, fix_teardown)

int main(void)
{
	const struct CMUnitTest tests[] = {
		FIXED(every_good_npy_reads_back),
		FIXED(what_no_tensor_holds_is_named),
		FIXED(raw_bytes_are_what_the_caller_says),
		FIXED(f4_is_packed_in_pairs),
		FIXED(a_folder_of_npy_keeps_paths_as_names),
		FIXED(one_bad_npy_fails_the_folder),
		FIXED(every_npz_reads_back),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
