/* SPDX-License-Identifier: Apache-2.0 */
/*
 * test_provider.c - the providers that come with the library: bytes at any
 * offset against an element by element walk, and what they refuse.
 */
#include "save_fixture.h"

#include <errno.h>
#include <fcntl.h>

/* ---- strided memory ---- */

struct strides {
	const char *what;
	enum ckpt_dtype dtype;
	struct ckpt_shape shape;
	int64_t stride[4];   /* in elements */
	int64_t first;       /* element [0, ..., 0] in the buffer */
	size_t elements;     /* of the buffer */
};

static const struct strides layouts[] = {
	{ "C order", CKPT_F32, { 3, { 4, 5, 6 } }, { 30, 6, 1 }, 0, 120 },
	{ "channels last (layout-01)", CKPT_F32, { 4, { 2, 3, 4, 5 } },
	  { 60, 1, 15, 3 }, 0, 120 },
	{ "transposed", CKPT_BF16, { 2, { 7, 11 } }, { 1, 7 }, 0, 77 },
	{ "backwards", CKPT_I64, { 1, { 9 } }, { -1 }, 8, 9 },
	{ "rows from the bottom", CKPT_U8, { 2, { 5, 8 } }, { -8, 1 }, 32, 40 },
	{ "one row for all", CKPT_F16, { 2, { 6, 10 } }, { 0, 1 }, 0, 10 },
	{ "one element for all", CKPT_F64, { 2, { 3, 3 } }, { 0, 0 }, 0, 1 },
	{ "every other column", CKPT_I32, { 2, { 4, 5 } }, { 10, 2 }, 1, 40 },
	{ "rows with padding", CKPT_U8, { 2, { 6, 5 } }, { 8, 1 }, 0, 48 },
	{ "inner block dense", CKPT_U16, { 3, { 3, 4, 5 } }, { 50, 5, 1 }, 7,
	  180 },
	{ "a view from element 5 (layout-04)", CKPT_F32, { 1, { 95 } }, { 1 },
	  5, 100 },
	{ "a dimension of one, its stride void", CKPT_F32,
	  { 3, { 4, 1, 5 } }, { 5, 123456789, 1 }, 0, 20 },
	{ "16-byte elements", CKPT_C128, { 2, { 3, 4 } }, { 1, 3 }, 0, 12 },
	{ "a scalar", CKPT_F32, { 0, { 0 } }, { 0 }, 2, 3 },
};

static uint8_t *gather(const struct strides *l, const uint8_t *buffer,
		       uint64_t count, uint32_t item)
{
	uint8_t *out = malloc(count * item + 1);

	assert_non_null(out);
	for (uint64_t i = 0; i < count; i++) {
		int64_t at = l->first;
		uint64_t rest = i;

		for (uint32_t d = l->shape.ndim; d-- > 0;) {
			at += (int64_t)(rest % l->shape.dim[d]) * l->stride[d];
			rest /= l->shape.dim[d];
		}
		memcpy(out + i * item, buffer + at * (int64_t)item, item);
	}
	return out;
}

static struct ckpt_provider strided(const struct strides *l,
				    const uint8_t *buffer, uint32_t item)
{
	struct ckpt_provider p;
	struct ckpt_err err = { 0 };
	int64_t stride[4];

	for (uint32_t d = 0; d < l->shape.ndim; d++)
		stride[d] = l->stride[d] * (int64_t)item;
	assert_ok(ckpt_provider_strided(buffer + l->first * (int64_t)item,
					l->dtype, &l->shape,
					l->shape.ndim ? stride : NULL, &p,
					&err));
	return p;
}

static void check_ranges(const struct strides *l, struct ckpt_provider *p,
			 const uint8_t *want, uint64_t bytes)
{
	uint8_t have[2048];
	struct ckpt_err err = { 0 };

	assert_true(bytes <= sizeof(have));
	for (uint64_t off = 0; off < bytes; off++)
		for (uint64_t len = 1; off + len <= bytes;
		     len += 1 + len / 3) {
			const uint8_t *at = p->ops->borrow(p->ctx, off, len);

			assert_ok(p->ops->read(p->ctx, off, have, len, &err));
			if (memcmp(have, want + off, len) != 0 ||
			    (at && memcmp(at, want + off, len) != 0))
				fail_msg("%s: bytes %d to %d differ", l->what,
					 (int)off, (int)(off + len));
		}
}

static void strided_memory_is_gathered_at_any_offset(void **state)
{
	(void)state;
	for (size_t i = 0; i < CKB_ARRAY_LEN(layouts); i++) {
		const struct strides *l = &layouts[i];
		uint32_t item = ckpt_dtype_bits(l->dtype) / 8;
		uint64_t count = ckt_shape_count(&l->shape);
		/* a buffer of its very size: one step aside is found */
		uint8_t *made = fix_bytes(l->elements * item, (uint32_t)i);
		uint8_t *buffer = malloc(l->elements * item);

		assert_non_null(buffer);
		memcpy(buffer, made, l->elements * item);
		uint8_t *want = gather(l, buffer, count, item);
		struct ckpt_provider p = strided(l, buffer, item);

		assert_int_equal(p.ops->bytes(p.ctx), count * item);
		check_ranges(l, &p, want, count * item);
		ckpt_provider_release(&p);
		assert_null(p.ops);
		free(want);
		free(buffer);
		free(made);
	}
}

static void strided_memory_is_saved_in_c_order(void **state)
{
	struct fix *f = *state;
	static const struct strides large[] = {
		{ "large transposed", CKPT_F32, { 2, { 700, 900 } },
		  { 1, 700 }, 0, 630000 },
		{ "large channels last", CKPT_BF16, { 4, { 4, 64, 30, 50 } },
		  { 96000, 1, 3200, 64 }, 0, 384000 },
		{ "large upside down", CKPT_U8, { 2, { 1000, 2000 } },
		  { -2000, 1 }, 1998000, 2000000 },
		{ "large broadcast", CKPT_F32, { 2, { 1000, 500 } },
		  { 0, 1 }, 0, 500 },
	};
	struct ckpt_err err = { 0 };
	uint8_t *want[CKB_ARRAY_LEN(large)], *buffer[CKB_ARRAY_LEN(large)];
	uint32_t item;
	struct ckpt_save *s = fix_begin(f->writer, "s", false, &item);

	for (size_t i = 0; i < CKB_ARRAY_LEN(large); i++) {
		const struct strides *l = &large[i];
		struct ckpt_tensor_desc d = fix_desc(l->what, l->dtype,
						     l->shape);
		uint32_t bytes = ckpt_dtype_bits(l->dtype) / 8;

		buffer[i] = fix_bytes(l->elements * bytes, (uint32_t)i);
		want[i] = gather(l, buffer[i], ckt_shape_count(&l->shape),
				 bytes);
		struct ckpt_provider p = strided(l, buffer[i], bytes);

		assert_ok(ckpt_save_tensor(s, item, &d, &p, &err));
	}
	assert_ok(fix_finish(s, &err));
	struct ckpt_checkpoint *c = fix_opened(f->store, "s");

	for (size_t i = 0; i < CKB_ARRAY_LEN(large); i++) {
		const struct ckpt_tensor_info *t = fix_find(c, "model",
							    large[i].what);

		fix_equal(c, t, want[i], t->bytes);
		free(want[i]);
		free(buffer[i]);
	}
	ckpt_checkpoint_close(c);
}

/* dtype-11: views of other dtypes over one memory are tensors of their own */
static void complex_and_its_parts_are_three_tensors(void **state)
{
	struct fix *f = *state;
	static const float pairs[] = { 0, -1, 2, -3, 4, -5 }; /* C64 */
	static const float real[] = { 0, 2, 4 }, imag[] = { -1, -3, -5 };
	static const struct {
		const char *name;
		enum ckpt_dtype dtype;
		const float *from;
		int64_t stride;
		const void *want;
		size_t bytes;
	} views[] = {
		{ "a", CKPT_C64, pairs, 8, pairs, sizeof(pairs) },
		{ "a.real", CKPT_F32, pairs, 8, real, sizeof(real) },
		{ "a.imag", CKPT_F32, pairs + 1, 8, imag, sizeof(imag) },
	};
	struct ckpt_shape three = SHAPE(1, 3);
	struct ckpt_err err = { 0 };
	struct ckpt_provider p;
	uint32_t item;
	struct ckpt_save *s = fix_begin(f->writer, "views", false, &item);

	for (size_t i = 0; i < CKB_ARRAY_LEN(views); i++) {
		struct ckpt_tensor_desc d = fix_desc(views[i].name,
						     views[i].dtype, three);

		assert_ok(ckpt_provider_strided(views[i].from, views[i].dtype,
						&three, &views[i].stride, &p,
						&err));
		assert_ok(ckpt_save_tensor(s, item, &d, &p, &err));
	}
	assert_ok(fix_finish(s, &err));
	struct ckpt_checkpoint *c = fix_opened(f->store, "views");

	for (size_t i = 0; i < CKB_ARRAY_LEN(views); i++) {
		const struct ckpt_tensor_info *t = fix_find(c, "model",
							    views[i].name);

		assert_int_equal(t->dtype, views[i].dtype);
		fix_equal(c, t, views[i].want, views[i].bytes);
	}
	ckpt_checkpoint_close(c);
}

/* layout-03, layout-04: of one memory of 1 MiB ten views are stored, and not
 * the memory ten times. Element k is k. */
static void views_are_stored_without_what_is_behind_them(void **state)
{
	enum { VIEWS = 10, ELEMENTS = 1 << 18 };
	struct fix *f = *state;
	float *memory = malloc(ELEMENTS * sizeof(*memory)), want[1000];
	struct ckpt_save_progress done;
	struct ckpt_err err = { 0 };
	uint64_t bytes = 0;
	char name[8];
	uint32_t item;
	struct ckpt_save *s = fix_begin(f->writer, "views", false, &item);

	assert_non_null(memory);
	for (uint32_t k = 0; k < ELEMENTS; k++)
		memory[k] = (float)k;
	for (uint32_t i = 0; i < VIEWS; i++) {
		struct ckpt_shape shape = SHAPE(1, 95 + i * 100);
		const int64_t stride = 4 * (1 + i % 3);
		struct ckpt_provider p;

		snprintf(name, sizeof(name), "v%u", i);
		struct ckpt_tensor_desc d = fix_desc(name, CKPT_F32, shape);

		assert_ok(ckpt_provider_strided(memory + 5 + 20000 * i,
						CKPT_F32, &shape, &stride, &p,
						&err));
		assert_ok(ckpt_save_tensor(s, item, &d, &p, &err));
		bytes += 4 * shape.dim[0];
	}
	assert_ok(ckpt_save_start(s, &err));
	assert_ok(ckpt_save_wait(s, CKPT_DURABLE, &err));
	ckpt_save_progress(s, &done);
	assert_int_equal(done.bytes_total, bytes);
	assert_int_equal(done.bytes_captured, bytes);
	/* and headers, and a copy of the manifest */
	assert_in_range(done.bytes_written, bytes, bytes + 32000);
	ckpt_save_free(s);
	free(memory);
	struct ckpt_checkpoint *c = fix_opened(f->store, "views");

	for (uint32_t i = 0; i < VIEWS; i++) {
		uint32_t count = 95 + i * 100;

		for (uint32_t k = 0; k < count; k++)
			want[k] = (float)(5 + 20000 * i + k * (1 + i % 3));
		snprintf(name, sizeof(name), "v%u", i);
		fix_equal(c, fix_find(c, "model", name), want, 4 * count);
	}
	ckpt_checkpoint_close(c);
}

/* layout-05: a tie is what the caller declares (test_save.c); one memory that
 * is given twice is two tensors, whose bytes lie there once. */
static void one_memory_under_two_names_is_stored_once(void **state)
{
	struct fix *f = *state;
	size_t len = 1000 * 300 * 4;
	uint8_t *data = fix_bytes(len, 8);
	static const char *const names[] = { "embed", "lm_head" };
	struct ckpt_save_progress done;
	struct ckpt_err err = { 0 };
	uint32_t item;
	struct ckpt_save *s = fix_begin(f->writer, "tied", false, &item);

	for (int i = 0; i < 2; i++) {
		struct ckpt_tensor_desc d = fix_desc(names[i], CKPT_F32,
						     SHAPE(2, 1000, 300));
		struct ckpt_provider p;

		assert_ok(ckpt_provider_host(data, len, &p, &err));
		assert_ok(ckpt_save_tensor(s, item, &d, &p, &err));
	}
	assert_ok(ckpt_save_start(s, &err));
	assert_ok(ckpt_save_wait(s, CKPT_DURABLE, &err));
	ckpt_save_progress(s, &done);
	assert_int_equal(done.bytes_total, 2 * len);
	assert_int_equal(done.bytes_new, len);
	ckpt_save_free(s);
	struct ckpt_checkpoint *c = fix_opened(f->store, "tied");

	assert_int_equal(ckpt_tensor_count(c), 2);
	for (int i = 0; i < 2; i++) {
		const struct ckpt_tensor_info *t = fix_find(c, "model",
							    names[i]);

		assert_int_equal(t->alias_of, SIZE_MAX);
		fix_equal(c, t, data, len);
	}
	ckpt_checkpoint_close(c);
	free(data);
}

static void strided_memory_that_cannot_be_is_refused(void **state)
{
	struct ckpt_shape two = SHAPE(2, 2, 2), empty = SHAPE(2, 0, 2);
	struct ckpt_shape huge = SHAPE(2, UINT64_MAX, UINT64_MAX);
	int64_t stride[2] = { 2, 1 };
	struct ckpt_provider p;
	struct ckpt_err err = { 0 };
	uint8_t data[64] = { 0 };

	(void)state;
	assert_code(ckpt_provider_strided(data, CKPT_F4, &two, stride, &p,
					  &err), CKPT_EINVAL);
	assert_says(err, "F4");
	assert_null(p.ops);
	assert_code(ckpt_provider_strided(data, (enum ckpt_dtype)99, &two,
					  stride, &p, &err), CKPT_EINVAL);
	assert_code(ckpt_provider_strided(NULL, CKPT_U8, &two, stride, &p,
					  &err), CKPT_EINVAL);
	assert_says(err, "no data");
	assert_code(ckpt_provider_strided(data, CKPT_U8, &two, NULL, &p, &err),
		    CKPT_EINVAL);
	assert_says(err, "strides");
	assert_true(ckpt_provider_strided(data, CKPT_U8, &huge, stride, &p,
					  &err) < 0);
	assert_ok(ckpt_provider_strided(NULL, CKPT_U8, &empty, stride, &p,
					&err));
	assert_int_equal(p.ops->bytes(p.ctx), 0);
	ckpt_provider_release(&p);
}

/* ---- host memory and copies ---- */

static void host_memory_is_lent_and_a_copy_is_not(void **state)
{
	uint8_t data[8] = "abcdefg", have[8];
	struct ckpt_provider host, copy;
	struct ckpt_err err = { 0 };

	(void)state;
	assert_ok(ckpt_provider_host(data, 8, &host, &err));
	assert_ok(ckpt_provider_bytes(data, 8, &copy, &err));
	assert_ptr_equal(host.ops->borrow(host.ctx, 3, 5), data + 3);
	data[3] = 'X';
	assert_ok(host.ops->read(host.ctx, 2, have, 3, &err));
	assert_memory_equal(have, "cXe", 3);
	assert_ok(copy.ops->read(copy.ctx, 2, have, 3, &err));
	assert_memory_equal(have, "cde", 3);
	assert_int_equal(host.ops->bytes(host.ctx), 8);
	assert_int_equal(copy.ops->bytes(copy.ctx), 8);
	ckpt_provider_release(&host);
	ckpt_provider_release(&host); /* empty by now */
	ckpt_provider_release(&copy);
	ckpt_provider_release(NULL);
}

/* layout-07: a NULL pointer is no tensor of zeros, and no alias */
static void null_with_a_size_is_no_data(void **state)
{
	struct ckpt_provider p;
	struct ckpt_err err = { 0 };

	(void)state;
	assert_code(ckpt_provider_host(NULL, 16, &p, &err), CKPT_EINVAL);
	assert_says(err, "no data");
	assert_null(p.ops);
	assert_code(ckpt_provider_bytes(NULL, 16, &p, &err), CKPT_EINVAL);
	assert_says(err, "no data");
	assert_code(ckpt_provider_bytes("x", UINT64_MAX, &p, &err),
		    CKPT_ENOMEM);
	assert_ok(ckpt_provider_host(NULL, 0, &p, &err));
	ckpt_provider_release(&p);
	assert_ok(ckpt_provider_bytes(NULL, 0, &p, &err));
	ckpt_provider_release(&p);
}

/* shape-01: empty tensors, equal pointers: each is a tensor; width-05: a zero
 * is no byte, whatever the other dimensions come to */
static void empty_tensors_at_null_are_tensors(void **state)
{
	struct fix *f = *state;
	static const struct ckpt_shape shapes[] = {
		{ 1, { 0 } }, { 2, { 2, 0 } }, { 2, { 0, 3 } },
		{ 2, { 1ull << 63, 0 } },
		{ 4, { 1ull << 32, 1ull << 32, 2, 0 } },
	};
	const int count = CKB_ARRAY_LEN(shapes);
	struct ckpt_err err = { 0 };
	uint32_t item;
	struct ckpt_save *s = fix_begin(f->writer, "e", false, &item);

	for (int i = 0; i < count; i++) {
		char name[2] = { (char)('a' + i), 0 };
		struct ckpt_tensor_desc d = fix_desc(name, CKPT_F32,
						     shapes[i]);
		struct ckpt_provider p;

		assert_ok(ckpt_provider_host(NULL, 0, &p, &err));
		assert_ok(ckpt_save_tensor(s, item, &d, &p, &err));
	}
	assert_ok(fix_finish(s, &err));
	struct ckpt_checkpoint *c = fix_opened(f->store, "e");

	assert_int_equal(ckpt_tensor_count(c), count);
	for (int i = 0; i < count; i++) {
		const struct ckpt_tensor_info *t = ckpt_tensor_at(
			c, (size_t)i);

		assert_int_equal(t->bytes, 0);
		assert_int_equal(t->alias_of, SIZE_MAX);
		assert_memory_equal(t->shape->dim, shapes[i].dim,
				    8 * shapes[i].ndim);
	}
	assert_int_equal(fix_files(f, "packs"), 0);
	ckpt_checkpoint_close(c);
}

/* ---- files ---- */

static int file_of(const struct fix *f, const void *data, size_t len)
{
	char path[600];

	snprintf(path, sizeof(path), "%s/source", f->dir);
	int fd = open(path, O_RDWR | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);

	assert_true(fd >= 0);
	assert_int_equal(pwrite(fd, data, len, 0), len);
	return fd;
}

static void a_range_of_a_file_is_saved(void **state)
{
	struct fix *f = *state;
	size_t len = 6 << 20, off = 12345, bytes = 1500 * 1000 * 2;
	uint8_t *data = fix_bytes(len, 3);
	int fd = file_of(f, data, len);
	struct ckpt_tensor_desc d = fix_desc("t", CKPT_BF16,
					     SHAPE(2, 1500, 1000));
	struct ckpt_provider p;
	struct ckpt_err err = { 0 };
	uint32_t item;
	struct ckpt_save *s = fix_begin(f->writer, "f", false, &item);

	assert_ok(ckpt_provider_file(fd, off, bytes, &p, &err));
	assert_ok(ckpt_save_tensor(s, item, &d, &p, &err));
	assert_ok(ckpt_save_start(s, &err));
	assert_ok(ckpt_save_wait(s, CKPT_CAPTURED, &err));
	/* the descriptor was lent: it is ours again, and open */
	assert_int_equal(close(fd), 0);
	assert_ok(ckpt_save_wait(s, CKPT_DURABLE, &err));
	ckpt_save_free(s);
	struct ckpt_checkpoint *c = fix_opened(f->store, "f");

	fix_equal(c, fix_find(c, "model", "t"), data + off, bytes);
	ckpt_checkpoint_close(c);
	free(data);
}

static void a_file_that_ends_early_fails_the_save(void **state)
{
	struct fix *f = *state;
	uint8_t *data = fix_bytes(1 << 20, 3);
	struct ckpt_tensor_desc d = fix_desc("short", CKPT_U8,
					     SHAPE(1, 1 << 20));
	struct ckpt_provider p;
	struct ckpt_err err = { 0 };
	uint32_t item;
	struct ckpt_save *s = fix_begin(f->writer, "f", false, &item);
	int fd = file_of(f, data, (1 << 20) - 1);

	assert_ok(ckpt_provider_file(fd, 0, 1 << 20, &p, &err));
	assert_ok(ckpt_save_tensor(s, item, &d, &p, &err));
	assert_code(fix_finish(s, &err), CKPT_EIO);
	assert_says(err, "'short'");
	assert_says(err, "ends before");
	assert_int_equal(fix_files(f, "checkpoints"), 0);
	assert_int_equal(fix_files(f, "staging"), 0);
	close(fd);
	free(data);
}

static void a_file_that_cannot_be_read_fails_the_save(void **state)
{
	struct fix *f = *state;
	struct ckpt_tensor_desc d = fix_desc("t", CKPT_U8, SHAPE(1, 100));
	struct ckpt_provider p;
	struct ckpt_err err = { 0 };
	uint32_t item;
	struct ckpt_save *s = fix_begin(f->writer, "f", false, &item);
	int fd = open(f->dir, O_RDONLY | O_DIRECTORY | O_CLOEXEC);

	assert_ok(ckpt_provider_file(fd, 0, 100, &p, &err));
	assert_ok(ckpt_save_tensor(s, item, &d, &p, &err));
	assert_code(fix_finish(s, &err), CKPT_EIO);
	assert_int_equal(err.sys_errno, EISDIR);
	close(fd);
}

static void file_ranges_that_cannot_be_are_refused(void **state)
{
	static const struct {
		int fd;
		uint64_t off, bytes;
		int want;
	} cases[] = {
		{ -1, 0, 1, CKPT_EINVAL },
		{ 0, UINT64_MAX, 1, CKPT_EINVAL },
		{ 0, 1, UINT64_MAX, CKPT_EINVAL },
		{ 0, INT64_MAX, 1, CKPT_EINVAL },
		{ 0, INT64_MAX - 1, 1, 0 },
	};
	struct ckpt_provider p;
	struct ckpt_err err = { 0 };

	(void)state;
	for (size_t i = 0; i < CKB_ARRAY_LEN(cases); i++) {
		assert_code(ckpt_provider_file(cases[i].fd, cases[i].off,
					       cases[i].bytes, &p, &err),
			    cases[i].want);
		assert_true((cases[i].want == 0) == (p.ops != NULL));
		ckpt_provider_release(&p);
	}
}

#define TEST(name) \
	cmocka_unit_test_setup_teardown(name, fix_setup, fix_teardown)

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(strided_memory_is_gathered_at_any_offset),
		TEST(strided_memory_is_saved_in_c_order),
		TEST(complex_and_its_parts_are_three_tensors),
		TEST(views_are_stored_without_what_is_behind_them),
		TEST(one_memory_under_two_names_is_stored_once),
		cmocka_unit_test(strided_memory_that_cannot_be_is_refused),
		cmocka_unit_test(host_memory_is_lent_and_a_copy_is_not),
		cmocka_unit_test(null_with_a_size_is_no_data),
		TEST(empty_tensors_at_null_are_tensors),
		TEST(a_range_of_a_file_is_saved),
		TEST(a_file_that_ends_early_fails_the_save),
		TEST(a_file_that_cannot_be_read_fails_the_save),
		cmocka_unit_test(file_ranges_that_cannot_be_are_refused),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
