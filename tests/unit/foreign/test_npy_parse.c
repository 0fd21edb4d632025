/* SPDX-License-Identifier: Apache-2.0 */
/*
 * test_npy_parse.c - .npy headers read, against NumPy 2.4.6: its verdicts on
 * damaged files (fixtures/npy/bad), the files it wrote (fixtures/npy/good), and
 * a table of texts whose verdicts it gave too.
 *
 * Never laxer. Where we refuse what it accepts, the table has the reason.
 */
#include "st_case.h"

#include <stdlib.h>

#include "base/bytes.h"
#include "foreign/npy.h"
#include "tensor/dtype.h"

static const struct {
	const char *file;
	int code;
	const char *says, *reason;
} stricter[] = {
	{ "data_trailing.npy", CKPT_EFORMAT, "bytes follow the array",
	  "a second np.save to the same file, or a wrong shape: taking the "
	  "first part would lose the rest without a word" },
	{ "shape_scalar_trailing.npy", CKPT_EFORMAT, "bytes follow the array",
	  "the same" },
	{ "shape_hex.npy", CKPT_EFORMAT, "dimensions",
	  "NumPy never wrote a shape in hexadecimal" },
	{ "descr_native.npy", CKPT_EFORMAT, "byte order",
	  "'=' is the order of whoever reads, which is a guess" },
	{ "descr_no_order.npy", CKPT_EFORMAT, "byte order", "the same" },
	{ "descr_name.npy", CKPT_EFORMAT, "byte order", "the same" },
	{ "descr_zero_size.npy", CKPT_EINVAL, "raw bytes",
	  "elements of no bytes are no tensor" },
	{ "descr_bytes_f16.npy", CKPT_EINVAL, "long doubles",
	  "no tensor holds them" },
};

/* Parse @len bytes as the beginning of a file of @file_len. */
static int parse(const uint8_t *bytes, size_t len, uint64_t file_len,
		 enum ckpt_dtype void_dtype, struct ckx_npy *out,
		 struct ckpt_err *err)
{
	size_t head = (size_t)ckb_min_u64(len, CKX_NPY_HEAD_MAX);
	uint8_t *copy = malloc(head ? head : 1);
	int rc;

	assert_non_null(copy); /* of just its length: ASan sees a read past */
	memcpy(copy, bytes, head);
	rc = ckx_npy_parse(copy, head, file_len, void_dtype, out, err);
	free(copy);
	if (rc < 0)
		assert_true(err->message[0] && !strchr(err->message, '\n'));
	return rc;
}

static const char *fixture(const char *folder, const char *file)
{
	static char path[4096];
	const char *dir = getenv("CKPT_FIXTURES");

	snprintf(path, sizeof(path), "%s/npy/%s/%s",
		 dir ? dir : CKPT_SOURCE_ROOT "/../shared/fixtures", folder,
		 file);
	return path;
}

static FILE *open_rows(const char *folder, const char *file)
{
	FILE *f = fopen(fixture(folder, file), "r");

	if (!f) {
		print_message("no %s: skipped\n", fixture(folder, file));
		skip();
	}
	return f;
}

static int parse_file(const char *folder, const char *file,
		      struct ckx_npy *out, struct ckpt_err *err)
{
	static uint8_t bytes[1 << 17];
	FILE *f = fopen(fixture(folder, file), "rb");
	size_t len;

	if (!f)
		fail_msg("cannot open %s", file);
	len = fread(bytes, 1, sizeof(bytes), f);
	assert_true(len < sizeof(bytes));
	fclose(f);
	return parse(bytes, len, len, (enum ckpt_dtype)0, out, err);
}

static void never_laxer_than_numpy(void **state)
{
	char line[512], *tab;
	size_t count = 0, refused = 0;
	FILE *f = open_rows("bad", "verdicts.tsv");

	(void)state;
	while (f && fgets(line, sizeof(line), f)) {
		struct ckpt_err err = { 0 };
		struct ckx_npy npy;
		size_t i;
		int rc;

		tab = strchr(line, '\t');
		assert_non_null(tab);
		*tab = '\0';
		count++;
		rc = parse_file("bad", line, &npy, &err);
		for (i = 0; i < CKB_ARRAY_LEN(stricter); i++)
			if (strcmp(stricter[i].file, line) == 0)
				break;
		if (i < CKB_ARRAY_LEN(stricter)) {
			assert_int_equal(strncmp(tab + 1, "accepts", 7), 0);
			assert_int_equal(rc, stricter[i].code);
			assert_non_null(strstr(err.message,
					       stricter[i].says));
			refused++;
		} else if (strncmp(tab + 1, "accepts", 7) == 0) {
			if (rc != 0)
				fail_msg("%s: %s", line, err.message);
		} else if (rc == 0) {
			fail_msg("%s: NumPy refuses it", line);
		}
	}
	fclose(f);
	assert_int_equal(count, 49);
	assert_int_equal(refused, CKB_ARRAY_LEN(stricter));
}

static void files_of_numpy_give_their_facts(void **state)
{
	char line[1024], file[128], *field[4], *save, shape[1024];
	size_t count = 0;
	FILE *f = open_rows("good", "expected.tsv");

	(void)state;
	while (f && fgets(line, sizeof(line), f)) {
		struct ckpt_err err = { 0 };
		struct ckx_npy npy;

		for (int i = 0; i < 4; i++)
			field[i] = strtok_r(i ? NULL : line, "\t", &save);
		assert_non_null(field[3]);
		snprintf(file, sizeof(file), "%.100s.npy", field[0]);
		if (parse_file("good", file, &npy, &err) < 0)
			continue; /* what they hold: see test_import_array.c */
		count++;
		assert_string_equal(ckt_shape_text(shape, sizeof(shape),
						   &npy.shape), field[2]);
		assert_int_equal(npy.data_bytes, strtoull(field[3], NULL, 10));
		assert_int_equal(npy.data_off % 64, 0);
		assert_int_equal(npy.swap_bytes > 0, field[1][0] == '>');
	}
	fclose(f);
	assert_int_equal(count, 59); /* the others no tensor holds */
}

/* ---- texts ---- */

#define REST ", 'fortran_order': False, 'shape': (3, 4)}"
#define F4 "{'descr': '<f4', 'fortran_order': False, 'shape': "

/* Of a file with 48 bytes of data; version 1. @numpy: does it read that? */
static const struct {
	const char *text;
	int code;
	const char *says;
	bool numpy;
} texts[] = {
	{ "{'descr': '<f4'" REST, 0, NULL, true },
	{ " \t{'descr':'<f4','fortran_order':False,'shape':(3,4)}\n ", 0, NULL,
	  true },
	{ "{\n'shape' : ( 3 , 4 , ) ,\r\"descr\"\f:\t'<f4',"
	  "'fortran_order':True}", 0, NULL, true },
	{ F4 "(12,)}", 0, NULL, true },
	{ F4 "(12L,)}", 0, NULL, true },
	{ "{'descr': '>i4'" REST, 0, NULL, true },
	{ "{'descr': '|u1', 'fortran_order': False, 'shape': (48,)}", 0, NULL,
	  true },
	{ "{'descr': '<b1', 'fortran_order': False, 'shape': (48,)}", 0, NULL,
	  true },
	{ "{'descr': '<V2', 'fortran_order': False, 'shape': (24,)}", 0, NULL,
	  true },
	/* ml_dtypes' float8_e5m2, which NumPy writes and does not read */
	{ "{'descr': '<f1', 'fortran_order': False, 'shape': (48,)}", 0, NULL,
	  false },
	{ "{'descr': '|f1', 'fortran_order': False, 'shape': (48,)}",
	  CKPT_EFORMAT, "unknown", false },
	{ "{'descr': '>f1', 'fortran_order': False, 'shape': (48,)}",
	  CKPT_EFORMAT, "unknown", false },
	{ "{'descr': '|V2', 'fortran_order': False, 'shape': (24,)}",
	  CKPT_EINVAL, "--dtype", true },
	{ "{'descr': '|V1', 'fortran_order': False, 'shape': (48,)}",
	  CKPT_EINVAL, "F8_E4M3", true },
	{ "{'descr': '>V2', 'fortran_order': False, 'shape': (24,)}",
	  CKPT_EINVAL, "raw bytes", true },
	/* '|' says there is no order: not what NumPy writes for four bytes */
	{ "{'descr': '|f4'" REST, CKPT_EFORMAT, "unknown", true },
	/* NumPy keeps the last */
	{ "{'descr': '<f4', 'descr': '<f4'" REST, CKPT_EFORMAT, "given twice",
	  true },
	/* other spellings of the literal, which it never wrote */
	{ "{'descr': u'<f4'" REST, CKPT_EFORMAT, "a string in quotes", true },
	{ "{'descr': '<' 'f4'" REST, CKPT_EFORMAT, "','", true },
	{ "{'descr': '\\x3cf4'" REST, CKPT_EFORMAT, "plain ASCII", true },
	{ F4 "(3, +4)}", CKPT_EFORMAT, "decimal", true },
	{ F4 "(1_2,)}", CKPT_EFORMAT, "','", true },
	{ F4 "((3), 4)}", CKPT_EFORMAT, "decimal", true },
	{ F4 "(3, 4)} # x", CKPT_EFORMAT, "follows", true },
	{ F4 "3, 4}", CKPT_EFORMAT, "tuple", false },
	{ F4 "(12)}", CKPT_EFORMAT, "not a tuple", false },
	{ F4 "(3 4)}", CKPT_EFORMAT, "','", false },
	{ F4 "(,)}", CKPT_EFORMAT, "decimal", false },
	{ F4 "(3,,4)}", CKPT_EFORMAT, "decimal", false },
	{ F4 "(3, 4)", CKPT_EFORMAT, "a ','", false },
	{ F4 "(3, 4", CKPT_EFORMAT, "','", false },
	{ F4 "(3, 4)}}", CKPT_EFORMAT, "follows", false },
	{ F4 "(3, 4),,}", CKPT_EFORMAT, "quotes", false },
	{ F4 "(9223372036854775808,)}", CKPT_EFORMAT, "2^63", false },
	{ F4 "(9223372036854775807, 0)}", CKPT_EFORMAT, "2^63", false },
	{ "{'descr': '<f4' 'fortran_order': False, 'shape': (3, 4)}",
	  CKPT_EFORMAT, "','", false },
	{ "{'descr': '<f4', 'fortran_order': Falsey, 'shape': (3, 4)}",
	  CKPT_EFORMAT, "','", false },
	{ "{'descr': '<f4, 'fortran_order': False, 'shape': (3, 4)}",
	  CKPT_EFORMAT, "','", false },
	{ "{'descr': '<f3'" REST, CKPT_EFORMAT, "unknown", false },
	{ "{'descr': ''" REST, CKPT_EFORMAT, "unknown", false },
	{ "{'descr': '<'" REST, CKPT_EFORMAT, "unknown", false },
	{ "{'descr': '|O'" REST, CKPT_EINVAL, "Python objects", false },
	{ "{}", CKPT_EFORMAT, "lacks", false },
	{ "{", CKPT_EFORMAT, "quotes", false },
	{ "", CKPT_EFORMAT, "'{'", false },
};

static int parse_text(const char *text, unsigned version, uint64_t data_len,
		      struct ckx_npy *out, struct ckpt_err *err)
{
	uint8_t bytes[512] = "\223NUMPY";
	size_t len = strlen(text), from = version == 1 ? 10 : 12;

	bytes[6] = (uint8_t)version;
	ckb_put_u16(bytes + 8, (uint16_t)len); /* v2: the upper half is 0 */
	memcpy(bytes + from, text, len);
	memset(bytes + from + len, 'd', 48);
	return parse(bytes, from + len + data_len, from + len + data_len,
		     (enum ckpt_dtype)0, out, err);
}

static void texts_are_read_as_numpy_does_or_not_at_all(void **state)
{
	(void)state;
	for (size_t i = 0; i < CKB_ARRAY_LEN(texts); i++) {
		struct ckpt_err err = { 0 };
		struct ckx_npy npy;
		int rc = parse_text(texts[i].text, 1, 48, &npy, &err);

		if (rc != texts[i].code ||
		    (rc < 0 && !strstr(err.message, texts[i].says)))
			fail_msg("%s\n  gave %d '%s'", texts[i].text, rc,
				 err.message);
		if (!texts[i].numpy && rc == 0)
			assert_non_null(strstr(texts[i].text, "<f1"));
	}
}

static void long_suffix_is_of_python_2(void **state)
{
	struct ckpt_err err = { 0 };
	struct ckx_npy npy;

	(void)state;
	assert_int_equal(parse_text(F4 "(12L,)}", 2, 48, &npy, &err), 0);
	assert_int_equal(parse_text(F4 "(12L,)}", 3, 48, &npy, &err),
			 CKPT_EFORMAT);
	assert_int_equal(parse_text(F4 "(12,)}", 3, 48, &npy, &err), 0);
}

static void order_counts_from_two_dimensions_on(void **state)
{
	static const struct {
		const char *shape;
		bool fortran;
	} cases[] = {
		{ "()", false }, { "(1,)", false }, { "(12,)", false },
		{ "(12, 1)", false }, { "(1, 1, 12, 1)", false },
		{ "(2, 6)", true }, { "(1, 2, 1, 6)", true },
		{ "(0, 5)", false },
	};
	struct ckx_npy npy;

	(void)state;
	for (size_t i = 0; i < CKB_ARRAY_LEN(cases); i++) {
		struct ckpt_err err = { 0 };
		char text[256];
		uint64_t bytes = strstr(cases[i].shape, "0,") ? 0
			       : strstr(cases[i].shape, "2") ? 48 : 4;

		snprintf(text, sizeof(text), "{'descr': '<f4', "
			 "'fortran_order': True, 'shape': %s}",
			 cases[i].shape);
		if (parse_text(text, 1, bytes, &npy, &err) < 0)
			fail_msg("%s: %s", text, err.message);
		assert_int_equal(npy.fortran, cases[i].fortran);
	}
}

static void swapped_units_are_numbers_not_elements(void **state)
{
	struct ckpt_err err = { 0 };
	struct ckx_npy npy;

	(void)state;
	assert_int_equal(parse_text("{'descr': '>c16', 'fortran_order': False,"
				    " 'shape': (3,)}", 1, 48, &npy, &err), 0);
	assert_int_equal(npy.dtype, CKPT_C128);
	assert_int_equal(npy.item_bytes, 16);
	assert_int_equal(npy.swap_bytes, 8);
	assert_int_equal(parse_text("{'descr': '>b1', 'fortran_order': False,"
				    " 'shape': (48,)}", 1, 48, &npy, &err), 0);
	assert_int_equal(npy.swap_bytes, 0);
}

/* Every cut of a good file is refused, whatever the caller says it has. */
static void every_cut_is_refused(void **state)
{
	const char *text = F4 "(3, 4)}";
	uint8_t bytes[512] = "\223NUMPY\1";
	size_t len = strlen(text), all = 10 + len + 48;

	(void)state;
	ckb_put_u16(bytes + 8, (uint16_t)len);
	memcpy(bytes + 10, text, len);
	for (size_t cut = 0; cut <= all; cut++) {
		struct ckpt_err err = { 0 };
		struct ckx_npy npy;
		int rc = parse(bytes, cut, cut, (enum ckpt_dtype)0, &npy,
			       &err);

		assert_int_equal(rc, cut == all ? 0 : CKPT_EFORMAT);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(never_laxer_than_numpy),
		cmocka_unit_test(files_of_numpy_give_their_facts),
		cmocka_unit_test(texts_are_read_as_numpy_does_or_not_at_all),
		cmocka_unit_test(long_suffix_is_of_python_2),
		cmocka_unit_test(order_counts_from_two_dimensions_on),
		cmocka_unit_test(swapped_units_are_numbers_not_elements),
		cmocka_unit_test(every_cut_is_refused),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
