/* SPDX-License-Identifier: Apache-2.0 */
/*
 * test_npy.c - .npy headers against NumPy's own: a table made by NumPy 2.4.6
 * (numpy.lib.format), and the files of fixtures/npy/good.
 */
#include "st_case.h"

#include <stdlib.h>

#include "base/bytes.h"
#include "foreign/npy.h"

struct npy_case {
	enum ckpt_dtype dtype;
	uint32_t ndim;
	uint64_t dim[16];  /* past 16 dimensions all are the first */
	const char *text;  /* what NumPy writes, its padding cut off */
	size_t len;        /* of its whole header */
};

#define NPY(descr, shape) \
	"{'descr': '" descr "', 'fortran_order': False, 'shape': " shape ", }"
#define X8(t) t t t t t t t t
#define X31(t) X8(t) X8(t) X8(t) t t t t t t t
#define X63(t) X31(t) X31(t) t

static const struct npy_case cases[] = {
	{ CKPT_BOOL, 2, { 3, 4 }, NPY("|b1", "(3, 4)"), 128 },
	{ CKPT_U8, 2, { 3, 4 }, NPY("|u1", "(3, 4)"), 128 },
	{ CKPT_I8, 2, { 3, 4 }, NPY("|i1", "(3, 4)"), 128 },
	{ CKPT_U16, 2, { 3, 4 }, NPY("<u2", "(3, 4)"), 128 },
	{ CKPT_I16, 2, { 3, 4 }, NPY("<i2", "(3, 4)"), 128 },
	{ CKPT_U32, 2, { 3, 4 }, NPY("<u4", "(3, 4)"), 128 },
	{ CKPT_I32, 2, { 3, 4 }, NPY("<i4", "(3, 4)"), 128 },
	{ CKPT_U64, 2, { 3, 4 }, NPY("<u8", "(3, 4)"), 128 },
	{ CKPT_I64, 2, { 3, 4 }, NPY("<i8", "(3, 4)"), 128 },
	{ CKPT_F16, 2, { 3, 4 }, NPY("<f2", "(3, 4)"), 128 },
	{ CKPT_BF16, 2, { 3, 4 }, NPY("<V2", "(3, 4)"), 128 },
	{ CKPT_F32, 2, { 3, 4 }, NPY("<f4", "(3, 4)"), 128 },
	{ CKPT_F64, 2, { 3, 4 }, NPY("<f8", "(3, 4)"), 128 },
	{ CKPT_C64, 2, { 3, 4 }, NPY("<c8", "(3, 4)"), 128 },
	{ CKPT_C128, 2, { 3, 4 }, NPY("<c16", "(3, 4)"), 128 },
	{ CKPT_F8_E5M2, 2, { 3, 4 }, NPY("<V1", "(3, 4)"), 128 },
	{ CKPT_F8_E4M3, 2, { 3, 4 }, NPY("<V1", "(3, 4)"), 128 },
	{ CKPT_F8_E5M2FNUZ, 2, { 3, 4 }, NPY("<V1", "(3, 4)"), 128 },
	{ CKPT_F8_E4M3FNUZ, 2, { 3, 4 }, NPY("<V1", "(3, 4)"), 128 },
	{ CKPT_F8_E8M0, 2, { 3, 4 }, NPY("<V1", "(3, 4)"), 128 },
	{ CKPT_F4, 2, { 3, 4 }, NPY("<V1", "(3, 4)"), 128 },
	{ CKPT_F32, 0, { 0 }, NPY("<f4", "()"), 128 },
	{ CKPT_F32, 1, { 5 }, NPY("<f4", "(5,)"), 128 },
	{ CKPT_F32, 3, { 1, 2, 3 }, NPY("<f4", "(1, 2, 3)"), 128 },
	{ CKPT_F32, 1, { 0 }, NPY("<f4", "(0,)"), 128 },
	{ CKPT_F32, 3, { 3, 0, 2 }, NPY("<f4", "(3, 0, 2)"), 128 },
	{ CKPT_F32, 2, { 50257, 768 }, NPY("<f4", "(50257, 768)"), 128 },
	{ CKPT_F32, 1, { 2147483648 }, NPY("<f4", "(2147483648,)"), 128 },
	{ CKPT_F32, 2, { 2147483653, 2 }, NPY("<f4", "(2147483653, 2)"),
	  128 },
	{ CKPT_F32, 1, { INT64_MAX }, NPY("<f4", "(9223372036854775807,)"),
	  128 },
	{ CKPT_F32, 2, { 0, UINT64_MAX },
	  NPY("<f4", "(0, 18446744073709551615)"), 128 },
	{ CKPT_F32, 6, { 9, 10, 99, 100, 999, 1000 },
	  NPY("<f4", "(9, 10, 99, 100, 999, 1000)"), 128 },
	/* aligned already: NumPy adds 64 more */
	{ CKPT_F32, 14, { 3, 4, 4, 4, 4, 4, 4, 4, 4, 4, 4, 4, 55, 55 },
	  NPY("<f4", "(3, 4, 4, 4, 4, 4, 4, 4, 4, 4, 4, 4, 55, 55)"), 192 },
	{ CKPT_F32, 32, { 2 }, NPY("<f4", "(2" X31(", 2") ")"), 192 },
	{ CKPT_F32, 64, { 1 }, NPY("<f4", "(1" X63(", 1") ")"), 320 },
	{ CKPT_F32, 32, { 1000000007 },
	  NPY("<f4", "(1000000007" X31(", 1000000007") ")"), 512 },
};

static void headers_are_numpys_byte_for_byte(void **state)
{
	(void)state;
	for (size_t i = 0; i < CKB_ARRAY_LEN(cases); i++) {
		const struct npy_case *c = &cases[i];
		struct ckpt_shape shape = { .ndim = c->ndim };
		struct ckb_buf want = { 0 }, have = { 0 };
		uint8_t len[2];

		for (uint32_t d = 0; d < c->ndim; d++)
			shape.dim[d] = c->dim[c->ndim > 16 ? 0 : d];
		ckb_buf_put(&want, "\x93NUMPY\1\0", 8);
		ckb_put_u16(len, (uint16_t)(c->len - 10));
		ckb_buf_put(&want, len, 2);
		ckb_buf_puts(&want, c->text);
		while (want.len < c->len - 1)
			ckb_buf_putc(&want, ' ');
		ckb_buf_putc(&want, '\n');

		assert_true(ckx_npy_possible(c->dtype));
		assert_int_equal(ckx_npy_header_len(c->dtype, &shape), c->len);
		ckb_buf_puts(&have, "before"); /* it appends */
		ckx_npy_header(c->dtype, &shape, &have);
		assert_false(have.failed);
		assert_int_equal(have.len, 6 + c->len);
		assert_memory_equal(have.data + 6, want.data, c->len);
		ckb_buf_fini(&want);
		ckb_buf_fini(&have);
	}
}

static void f6_has_no_npy(void **state)
{
	(void)state;
	assert_false(ckx_npy_possible(CKPT_F6_E2M3));
	assert_false(ckx_npy_possible(CKPT_F6_E3M2));
	assert_false(ckx_npy_possible((enum ckpt_dtype)0));
	assert_false(ckx_npy_possible(CKPT_DTYPE_END));
}

static void length_agrees_for_every_width_and_rank(void **state)
{
	struct ckpt_shape shape;

	(void)state;
	for (uint32_t ndim = 0; ndim <= CKPT_NDIM_MAX; ndim++)
	for (uint64_t dim = 1; dim < UINT64_MAX / 10; dim *= 10) {
		struct ckb_buf out = { 0 };

		shape.ndim = ndim;
		for (uint32_t d = 0; d < ndim; d++)
			shape.dim[d] = d % 2 ? dim : dim - 1;
		ckx_npy_header(CKPT_C128, &shape, &out);
		assert_int_equal(out.len, ckx_npy_header_len(CKPT_C128,
							     &shape));
		assert_int_equal(out.len % 64, 0);
		assert_int_equal(ckb_get_u16(out.data + 8) + 10, out.len);
		ckb_buf_fini(&out);
	}
}

/* ---- files that NumPy wrote ---- */

static enum ckpt_dtype dtype_of(const char *descr)
{
	for (size_t i = 0; i < CKB_ARRAY_LEN(cases); i++) {
		const char *text = cases[i].text + strlen("{'descr': '");
		size_t len = strcspn(text, "'");

		if (strlen(descr) == len && memcmp(text, descr, len) == 0)
			return cases[i].dtype;
	}
	return (enum ckpt_dtype)0;
}

static void parse_shape(const char *text, struct ckpt_shape *out)
{
	char *end;

	out->ndim = 0;
	for (text++; *text && *text != ']'; text = end + (*end == ',')) {
		assert_true(out->ndim < CKPT_NDIM_MAX);
		out->dim[out->ndim++] = strtoull(text, &end, 10);
	}
}

/* Does the file begin with the header we make? false: not C order. */
static bool check_file(const char *path, enum ckpt_dtype dtype,
		       const struct ckpt_shape *shape)
{
	struct ckb_buf want = { 0 };
	char head[1024];
	FILE *f = fopen(path, "rb");
	size_t n;

	if (!f)
		fail_msg("cannot open %s", path);
	n = fread(head, 1, sizeof(head), f);
	fclose(f);
	if (memmem(head, n, "'fortran_order': True", 21) || head[6] != 1)
		return false; /* nor what was written as version 2 or 3 */
	ckx_npy_header(dtype, shape, &want);
	assert_true(want.len <= n);
	if (memcmp(head, want.data, want.len) != 0)
		fail_msg("%s has another header", path);
	ckb_buf_fini(&want);
	return true;
}

static void files_of_numpy_begin_with_our_header(void **state)
{
	const char *dir = getenv("CKPT_FIXTURES");
	char path[4096], line[1024], *field[3], *save;
	size_t count = 0;
	FILE *f;

	(void)state;
	if (!dir)
		dir = CKPT_SOURCE_ROOT "/../shared/fixtures";
	snprintf(path, sizeof(path), "%s/npy/good/expected.tsv", dir);
	f = fopen(path, "r");
	if (!f) {
		print_message("no %s: skipped\n", path);
		skip();
		return;
	}
	while (fgets(line, sizeof(line), f)) {
		struct ckpt_shape shape;
		enum ckpt_dtype dtype;

		field[0] = strtok_r(line, "\t", &save);
		field[1] = strtok_r(NULL, "\t", &save);
		field[2] = strtok_r(NULL, "\t", &save);
		assert_non_null(field[2]);
		dtype = dtype_of(field[1]);
		if (dtype == 0)
			continue; /* big-endian, text, structs, ... */
		parse_shape(field[2], &shape);
		snprintf(path, sizeof(path), "%s/npy/good/%s.npy", dir,
			 field[0]);
		count += check_file(path, dtype, &shape);
	}
	fclose(f);
	assert_true(count >= 30);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(headers_are_numpys_byte_for_byte),
		cmocka_unit_test(f6_has_no_npy),
		cmocka_unit_test(length_agrees_for_every_width_and_rank),
		cmocka_unit_test(files_of_numpy_begin_with_our_header),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
