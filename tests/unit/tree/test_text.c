/* SPDX-License-Identifier: Apache-2.0 */
/*
 * test_text.c - .txt: its size before it is read, its numbers, its form.
 *
 * content() compares every length with the attributes' size. Expected previews
 * were written by hand from the numbers saved.
 */
#include "tree_fixture.h"

#include <fcntl.h>
#include <math.h>
#include <sys/stat.h>
#include <unistd.h>

#include "mkstore.h"

/* The part after the blank line, or from line @key on. */
static const char *preview(const char *text)
{
	const char *at = strstr(text, "\n\n");

	assert_non_null(at);
	return at + 2;
}

#define assert_line(text, line) \
	do { \
		if (!strstr((text), "\n" line "\n") && \
		    strncmp((text), line "\n", strlen(line) + 1) != 0) \
			fail_msg("no line '%s' in:\n%s", (line), (text)); \
	} while (0)

static void size_is_exact_for_every_dtype_and_shape(void **state)
{
	struct fix *f = *state;
	char path[600];
	size_t n;

	import(f, "safetensors/dtypes/model.safetensors", "d");
	snprintf(path, sizeof(path), "%s/safetensors/dtypes/expected.tsv",
		 fixtures_path());
	struct fixture_row *rows = fixtures_rows(path, &n);

	assert_int_equal(n, 121);
	for (size_t i = 0; i < n; i++) {
		char line[400];

		snprintf(path, sizeof(path), "d/model/%s.txt", rows[i].name);
		*strchr(path + strlen("d/model/"), '.') = '/';
		char *text = content_at(f, path, NULL);

		snprintf(line, sizeof(line), "\ndtype    %s\nshape    %s\n"
			 "bytes    %ju\nsharding whole         \n",
			 rows[i].dtype, rows[i].shape,
			 (uintmax_t)rows[i].nbytes);
		assert_non_null(strstr(text, line));
		if (rows[i].nbytes == 0)
			assert_string_equal(preview(text), "[]\n");
		free(text);
	}
	fixtures_free(rows, n);
}

struct sample {
	enum ckpt_dtype dtype;
	struct ckpt_shape shape;
	const void *bytes;
	size_t len;
	const char *preview;
};

#define DIMS(...) \
	{ .ndim = sizeof((uint64_t[]){ __VA_ARGS__ }) / 8, \
	  .dim = { __VA_ARGS__ } }
#define DATA(...) (__VA_ARGS__), sizeof((__VA_ARGS__))

static const struct sample samples[] = {
	{ CKPT_F32, DIMS(2, 2),
	  DATA((const float[]){ 1, -0.5f, 3.4028235e38f, 1e-45f }),
	  "[[ 1.000000e+00 -5.000000e-01]\n"
	  " [ 3.402823e+38  1.401298e-45]]\n" },
	{ CKPT_F32, DIMS(3), DATA((const float[]){ NAN, -INFINITY, INFINITY }),
	  "[          nan          -inf           inf]\n" },
	{ CKPT_F64, DIMS(2), DATA((const double[]){ -1.5e-300, 0.1 }),
	  "[-1.500000e-300   1.000000e-01]\n" },
	{ CKPT_F16, DIMS(2), DATA((const uint16_t[]){ 0xfbff, 0x0001 }),
	  "[-6.5504e+04  5.9605e-08]\n" },
	{ CKPT_BF16, DIMS(2), DATA((const uint16_t[]){ 0x3f80, 0xffc0 }),
	  "[ 1.0000e+00         nan]\n" },
	{ CKPT_F8_E4M3, DIMS(3), DATA((const uint8_t[]){ 0x7e, 0x7f, 0x80 }),
	  "[ 4.4800e+02         nan -0.0000e+00]\n" },
	{ CKPT_F8_E8M0, DIMS(2), DATA((const uint8_t[]){ 127, 255 }),
	  "[ 1.0000e+00         nan]\n" },
	{ CKPT_F4, DIMS(4), DATA((const uint8_t[]){ 0x72, 0xf1 }),
	  "[ 1.0000e+00  6.0000e+00  5.0000e-01 -6.0000e+00]\n" },
	/* 6 bits each, low first: 0x08 1.0, 0x1f 7.5, 0x3f -7.5, 0x00 */
	{ CKPT_F6_E2M3, DIMS(4), DATA((const uint8_t[]){ 0xc8, 0xf7, 0x03 }),
	  "[ 1.0000e+00  7.5000e+00 -7.5000e+00  0.0000e+00]\n" },
	{ CKPT_BOOL, DIMS(2, 2), DATA((const uint8_t[]){ 1, 0, 0, 1 }),
	  "[[ True False]\n [False  True]]\n" },
	{ CKPT_U8, DIMS(3), DATA((const uint8_t[]){ 0, 7, 255 }),
	  "[  0   7 255]\n" },
	{ CKPT_I8, DIMS(3), DATA((const int8_t[]){ -128, -1, 127 }),
	  "[-128   -1  127]\n" },
	{ CKPT_U16, DIMS(2), DATA((const uint16_t[]){ 1, 65535 }),
	  "[    1 65535]\n" },
	{ CKPT_I16, DIMS(2), DATA((const int16_t[]){ -32768, 5 }),
	  "[-32768      5]\n" },
	{ CKPT_U32, DIMS(2), DATA((const uint32_t[]){ 0, UINT32_MAX }),
	  "[         0 4294967295]\n" },
	{ CKPT_I32, DIMS(2), DATA((const int32_t[]){ INT32_MIN, 0 }),
	  "[-2147483648           0]\n" },
	/* beyond what a double holds */
	{ CKPT_U64, DIMS(1), DATA((const uint64_t[]){ UINT64_MAX - 1 }),
	  "[18446744073709551614]\n" },
	{ CKPT_I64, DIMS(2), DATA((const int64_t[]){ INT64_MIN + 1, 1 }),
	  "[-9223372036854775807                    1]\n" },
	{ CKPT_C64, DIMS(1, 2), DATA((const float[]){ 1, -2, NAN, NAN }),
	  "[[ 1.000000e+00-2.000000e+00j           nan         +nanj]]\n" },
	{ CKPT_C128, DIMS(1), DATA((const double[]){ -1e-300, 1 }),
	  "[-1.000000e-300 +1.000000e+00j]\n" },
	{ CKPT_I8, { .ndim = 0 }, DATA((const int8_t[]){ -3 }), "  -3\n" },
	{ CKPT_I8, DIMS(2, 1, 2), DATA((const int8_t[]){ 1, 2, 3, 4 }),
	  "[[[   1    2]]\n\n [[   3    4]]]\n" },
	{ CKPT_U8, DIMS(0, 3), "", 0, "[]\n" },
};

static void numbers_are_those_that_were_saved(void **state)
{
	struct fix *f = *state;
	char name[40];

	begin(f, "c", false);
	item(f, "m", CKPT_ITEM_TENSORS, "");
	for (size_t i = 0; i < CKB_ARRAY_LEN(samples); i++) {
		snprintf(name, sizeof(name), "t%zu", i);
		tensor(f, name, samples[i].dtype, samples[i].shape,
		       samples[i].bytes, samples[i].len);
	}
	commit(f);
	for (size_t i = 0; i < CKB_ARRAY_LEN(samples); i++) {
		snprintf(name, sizeof(name), "c/m/t%zu.txt", i);
		char *text = content_at(f, name, NULL);

		assert_string_equal(preview(text), samples[i].preview);
		free(text);
	}
}

static void statistics_are_lines(void **state)
{
	static const float values[] = { -2, 0, 6, NAN, INFINITY, -0.0f };
	struct fix *f = *state;

	begin(f, "c", false);
	item(f, "m", CKPT_ITEM_TENSORS, ".");
	tensor(f, "a\nb", CKPT_F32, (struct ckpt_shape)DIMS(6), values,
	       sizeof(values));
	commit(f);
	char *text = content_at(f, "c/m/a%0Ab.txt", NULL);

	assert_line(text, "name     a\\x0ab");
	assert_line(text, "dtype    F32");
	assert_line(text, "shape    [6]");
	assert_line(text, "bytes    24");
	assert_line(text, "sharding whole         ");
	assert_line(text, "min      -2");
	assert_line(text, "max      6");
	assert_line(text, "mean     1");
	assert_line(text, "absmax   6");
	assert_line(text, "nan      1");
	assert_line(text, "inf      1");
	assert_line(text, "zeros    2");
	free(text);
}

/* U8 of @shape, the index as value. */
static char *of_shape(struct fix *f, const char *name,
		      struct ckpt_shape shape)
{
	static uint8_t bytes[1 << 20];
	char path[100];
	size_t n = 1;

	for (uint32_t d = 0; d < shape.ndim; d++)
		n *= shape.dim[d];
	assert_true(n <= sizeof(bytes));
	for (size_t i = 0; i < n; i++)
		bytes[i] = (uint8_t)i;
	begin(f, name, false);
	item(f, "m", CKPT_ITEM_TENSORS, ".");
	tensor(f, "t", CKPT_U8, shape, bytes, n);
	commit(f);
	snprintf(path, sizeof(path), "%s/m/t.txt", name);
	return content_at(f, path, NULL);
}

static size_t words(const char *text)
{
	size_t n = 0;

	for (; *text; text++)
		n += strchr("0123456789", *text) &&
		     !strchr("0123456789", text[1]);
	return n;
}

static void large_ones_are_summarised(void **state)
{
	struct fix *f = *state;
	char *text = of_shape(f, "row", (struct ckpt_shape)DIMS(1001));

	assert_string_equal(preview(text),
			    "[  0   1   2 ... 230 231 232]\n");
	free(text);
	text = of_shape(f, "matrix", (struct ckpt_shape)DIMS(100, 16));
	assert_string_equal(preview(text),
			    "[[  0   1   2 ...  13  14  15]\n"
			    " [ 16  17  18 ...  29  30  31]\n"
			    " [ 32  33  34 ...  45  46  47]\n"
			    " ...\n"
			    " [ 16  17  18 ...  29  30  31]\n"
			    " [ 32  33  34 ...  45  46  47]\n"
			    " [ 48  49  50 ...  61  62  63]]\n");
	free(text);
	/* 1,000 are all shown, in lines of 79 columns */
	text = of_shape(f, "full", (struct ckpt_shape)DIMS(1000));
	assert_null(strstr(text, "..."));
	assert_int_equal(words(preview(text)), 1000);
	for (const char *at = preview(text); *at; at++) {
		size_t len = strcspn(at, "\n");

		assert_true(len <= 79);
		assert_true(*at == '[' || *at == ' ');
		at += len;
	}
	free(text);
}

static void high_ranks_stay_readable(void **state)
{
	struct fix *f = *state;
	char *text = of_shape(f, "conv",
			      (struct ckpt_shape)DIMS(64, 64, 3, 3));

	/* 3x3, six of the inputs, then as many outputs as fit 300 */
	assert_int_equal(words(preview(text)), 9 * 6 * 4);
	free(text);
	text = of_shape(f, "deep", (struct ckpt_shape)DIMS(
		2, 2, 2, 2, 2, 2, 2, 2, 2, 2, 2, 2, 2, 2, 2, 2, 2, 2, 2, 2));
	assert_true(words(preview(text)) <= 300);
	assert_true(words(preview(text)) >= 100);
	free(text);
	text = of_shape(f, "ones", (struct ckpt_shape)DIMS(
		1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1,
		1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1,
		1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1,
		1));
	assert_int_equal(words(preview(text)), 1);
	free(text);
	text = of_shape(f, "long", (struct ckpt_shape)DIMS(1, 1001, 1, 7));
	assert_int_equal(words(preview(text)), 36);
	free(text);
}

/* ---- shards, damage: stores made by hand ---- */

static const struct mk_box halves[] = {
	{ { 0, 0 }, { 2, 4 } }, { { 2, 0 }, { 2, 4 } },
};
static const struct mk_tensor sharded[] = {
	{ .name = "s", .ndim = 2, .dim = { 4, 4 }, .shard_count = 2,
	  .shards = halves, .seed = 5 },
	{ .name = "tied", .ndim = 2, .dim = { 4, 4 }, .alias_of = "s" },
	{ .name = "t", .ndim = 2, .dim = { 4, 4 }, .seed = 6 },
};

static int mk_setup(void **state)
{
	struct mkstore *mk = calloc(1, sizeof(*mk));
	struct ckpt_err err = { 0 };

	assert_ok(mkstore_new(mk, 0, &err));
	assert_ok(mk_save(mk, "c", sharded, CKB_ARRAY_LEN(sharded), NULL,
			  &err));
	*state = mk;
	return 0;
}

static int mk_teardown(void **state)
{
	mkstore_free(*state);
	free(*state);
	return 0;
}

static void shards_are_counted(void **state)
{
	struct mkstore *mk = *state;
	struct fix f = { .store = mk->store };
	struct ckpt_err err = { 0 };

	assert_ok(ckv_tree_new(mk->store, &f.tree, &err));
	char *text = content_at(&f, "c/model/s.txt", NULL);
	char *tied = content_at(&f, "c/model/tied.txt", NULL);

	assert_line(text, "sharding 2 shards      ");
	assert_line(tied, "sharding 2 shards      ");
	assert_string_equal(preview(text), preview(tied));
	free(text);
	free(tied);
	ckv_tree_free(f.tree);
}

static void damage_fails_the_read_not_the_attributes(void **state)
{
	struct mkstore *mk = *state;
	struct fix f = { .store = mk->store };
	struct ckpt_err err = { 0 };
	char *pack = mk_only_pack(mk);
	struct ckv_attr a;
	char text[4096];
	uint64_t len;
	size_t got;
	uint8_t *raw = mk_bytes(&sharded[2], &len), *data;
	struct stat st;

	/* find the bytes of 't' in the pack and flip one */
	FILE *file = fopen(pack, "rb");

	assert_non_null(file);
	assert_int_equal(fstat(fileno(file), &st), 0);
	data = malloc((size_t)st.st_size);
	assert_int_equal(fread(data, 1, (size_t)st.st_size, file), st.st_size);
	fclose(file);
	uint8_t *at_ = memmem(data, (size_t)st.st_size, raw, len);

	assert_non_null(at_);
	mk_flip(pack, (uint64_t)(at_ - data) + 3, 1);
	assert_ok(ckv_tree_new(mk->store, &f.tree, &err));
	struct ckv_node *n = at(&f, "c/model/t.txt");

	assert_ok(ckv_attr(n, &a, &err));
	assert_true(a.size > 0 && a.size < sizeof(text));
	assert_code(ckv_read(n, 0, text, sizeof(text), &got, &err),
		    CKPT_ECORRUPT);
	assert_int_equal(got, 0);
	assert_says(err, "model/t");
	/* the end is the end */
	assert_ok(ckv_read(n, a.size, text, sizeof(text), &got, &err));
	ckv_put(n);
	free(content_at(&f, "c/model/s.txt", NULL));
	ckv_tree_free(f.tree);
	free(data);
	free(raw);
	free(pack);
}

/* Sizes need no pack at all: what `ls -l` costs. */
static void attributes_read_no_tensor(void **state)
{
	struct mkstore *mk = *state;
	struct fix f = { .store = mk->store };
	struct ckpt_err err = { 0 };
	char *pack = mk_only_pack(mk);
	struct ckv_attr a;

	assert_int_equal(unlink(pack), 0);
	assert_ok(ckv_tree_new(mk->store, &f.tree, &err));
	for (size_t i = 0; i < CKB_ARRAY_LEN(sharded); i++) {
		char path[64];

		snprintf(path, sizeof(path), "c/model/%s.txt",
			 sharded[i].name);
		struct ckv_node *n = at(&f, path);

		assert_ok(ckv_attr(n, &a, &err));
		assert_true(a.size > 100);
		ckv_put(n);
	}
	ckv_tree_free(f.tree);
	free(pack);
}

#define WITH(set, test) \
	cmocka_unit_test_setup_teardown(test, set##_setup, set##_teardown)

int main(void)
{
	const struct CMUnitTest tests[] = {
		WITH(fix, size_is_exact_for_every_dtype_and_shape),
		WITH(fix, numbers_are_those_that_were_saved),
		WITH(fix, statistics_are_lines),
		WITH(fix, large_ones_are_summarised),
		WITH(fix, high_ranks_stay_readable),
		WITH(mk, shards_are_counted),
		WITH(mk, damage_fails_the_read_not_the_attributes),
		WITH(mk, attributes_read_no_tensor),
	};

	fixtures_need();
	return cmocka_run_group_tests(tests, NULL, NULL);
}
