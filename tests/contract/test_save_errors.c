/* SPDX-License-Identifier: Apache-2.0 */
/*
 * test_save_errors.c - what a save refuses, in which words, and that a failed
 * one leaves nothing: no name, no staging, no provider unreleased.
 */
#include "save_fixture.h"

#include "base/log.h"

#define SIZED(type, ...) (&(struct type){ .size = sizeof(struct type), \
					  __VA_ARGS__ })

/* ---- begin ---- */

static void begin_refuses_what_it_can_refuse(void **state)
{
	struct fix *f = *state;
	static const struct {
		struct ckpt_save_desc d;
		int code;
		const char *says;
	} cases[] = {
		{ { .name = NULL }, CKPT_EINVAL, "name" },
		{ { .name = "" }, CKPT_EINVAL, "name" },
		{ { .name = "a//b" }, CKPT_EINVAL, "a//b" },
		{ { .name = "../x" }, CKPT_EINVAL, "../x" },
		{ { .name = "x/latest" }, CKPT_EINVAL, "latest" },
		{ { .name = "/x" }, CKPT_EINVAL, "/x" },
		{ { .name = ".x" }, CKPT_EINVAL, ".x" },
		{ { .name = "a\x80" }, CKPT_EINVAL, "\\x80" },
		{ { .name = "old" }, CKPT_EEXIST, "'old' exists already" },
		{ { .name = "run" }, CKPT_EEXIST, "a run" },
		{ { .name = "run", .replace = true }, CKPT_EEXIST, "a run" },
		{ { .name = "old/b" }, CKPT_EEXIST, "'old' is a checkpoint" },
		{ { .name = "run/1/b/c" }, CKPT_EEXIST,
		  "'run/1' is a checkpoint" },
		{ { .name = "x", .metadata = "[1]" }, CKPT_EINVAL,
		  "metadata must be a JSON object" },
		{ { .name = "x", .metadata = "{" }, CKPT_EINVAL,
		  "metadata is not JSON" },
		{ { .name = "x", .metrics = "{\"a\": 1, \"a\": 2}" },
		  CKPT_EINVAL, "metrics is not JSON" },
		{ { .name = "x", .parent = "gone" }, CKPT_ENOENT, "gone" },
		{ { .name = "x", .parent = "run" }, CKPT_ENOENT, "run" },
		{ { .name = "x", .parent = ".." }, CKPT_EINVAL, ".." },
		{ { .name = "x", .has_step = true, .step = 1ull << 63 },
		  CKPT_ELIMIT, "9223372036854775808" },
		{ { .name = "x", .program = "\xff" }, CKPT_EINVAL, "UTF-8" },
	};
	struct ckpt_err err = { 0 };
	struct ckpt_save *s;
	int fds;

	fix_save(f->writer, "old", false, 8, 1);
	fix_save(f->writer, "run/1", false, 8, 2);
	fds = fix_fds();
	for (size_t i = 0; i < CKB_ARRAY_LEN(cases); i++) {
		struct ckpt_save_desc d = cases[i].d;

		d.size = sizeof(d);
		assert_code(ckpt_save_begin(f->writer, &d, &s, &err),
			    cases[i].code);
		assert_null(s);
		assert_int_equal(err.code, cases[i].code);
		assert_says(err, cases[i].says);
		assert_int_equal(fix_fds(), fds);
		/* no folder either */
		assert_int_equal(fix_files(f, "staging"), 0);
	}
}

static void metadata_has_a_bound(void **state)
{
	struct fix *f = *state;
	size_t len = (16 << 20) + 16;
	char *json = malloc(len + 1);
	struct ckpt_err err = { 0 };
	struct ckpt_save *s;

	assert_non_null(json);
	memset(json, ' ', len);
	memcpy(json, "{}", 2);
	json[len] = '\0';
	assert_code(ckpt_save_begin(f->writer,
				    SIZED(ckpt_save_desc, .name = "x",
					  .metadata = json), &s, &err),
		    CKPT_ELIMIT);
	json[16 << 20] = '\0';
	assert_ok(ckpt_save_begin(f->writer,
				  SIZED(ckpt_save_desc, .name = "x",
					.metadata = json), &s, &err));
	ckpt_save_free(s);
	free(json);
}

static void one_attempt_is_one_save(void **state)
{
	struct fix *f = *state;
	uint8_t attempt[16] = "fifteen letters";
	struct ckpt_save_desc d = { .size = sizeof(d), .name = "x",
				    .attempt = attempt };
	struct ckpt_err err = { 0 };
	struct ckpt_save *a, *b;

	assert_ok(ckpt_save_begin(f->writer, &d, &a, &err));
	assert_code(ckpt_save_begin(f->writer, &d, &b, &err), CKPT_EBUSY);
	ckpt_save_free(a);
	assert_ok(ckpt_save_begin(f->writer, &d, &b, &err));
	ckpt_save_free(b);
}

static void structs_of_another_size_are_refused(void **state)
{
	struct fix *f = *state;
	struct ckpt_err err = { 0 };
	struct ckpt_writer *w;
	struct ckpt_save *s;
	struct ckpt_save_desc d = { .size = 8, .name = "x" };
	struct ckpt_item_desc i = { .size = 0, .name = "x", .kind = 1 };
	struct ckpt_tensor_desc t = fix_desc("x", CKPT_U8, SHAPE(1, 0));
	struct ckpt_writer_opts o = { .size = 1 };
	uint32_t item;

	assert_code(ckpt_writer_open(f->store, &o, &w, &err), CKPT_EINVAL);
	assert_null(w);
	o = (struct ckpt_writer_opts){ .size = sizeof(o),
				       .codec = (enum ckpt_codec)7 };
	assert_code(ckpt_writer_open(f->store, &o, &w, &err), CKPT_EINVAL);
	assert_says(err, "codec");
	assert_code(ckpt_save_begin(f->writer, &d, &s, &err), CKPT_EINVAL);
	s = fix_begin(f->writer, "x", false, &item);
	assert_code(ckpt_save_item(s, &i, &item, &err), CKPT_EINVAL);
	t.size--;
	assert_code(ckpt_save_tensor(s, 0, &t, NULL, &err), CKPT_EINVAL);
	assert_says(err, "ckpt_tensor_desc.size");
	ckpt_save_free(s);
}

static void a_read_only_store_has_no_writer(void **state)
{
	struct fix *f = *state;
	struct ckpt_store_opts o = { .size = sizeof(o),
				     .flags = CKPT_STORE_READONLY };
	struct ckpt_err err = { 0 };
	struct ckpt_store *store;
	struct ckpt_writer *w;

	assert_ok(ckpt_store_open(f->path, &o, &store, &err));
	assert_code(ckpt_writer_open(store, NULL, &w, &err), CKPT_EPERM);
	assert_says(err, "read-only");
	ckpt_store_close(store);
}

/* ---- items and files ---- */

static void items_that_cannot_be_are_refused(void **state)
{
	struct fix *f = *state;
	static const struct {
		struct ckpt_item_desc d;
		const char *says;
	} cases[] = {
		{ { .name = NULL, .kind = 1 }, "no name" },
		{ { .name = "a/b", .kind = 1 }, "a/b" },
		{ { .name = "checkpoint.json", .kind = 1 }, "checkpoint" },
		{ { .name = "@orig", .kind = 1 }, "@orig" },
		{ { .name = "x", .kind = 0 }, "no kind" },
		{ { .name = "x", .kind = 4 }, "no kind" },
		{ { .name = "x", .kind = 1, .separator = "::" }, "separator" },
		{ { .name = "x", .kind = 1, .separator = "\n" }, "separator" },
		{ { .name = "x", .kind = 1, .separator = "\xa7" },
		  "separator" },
		{ { .name = "x", .kind = 1, .metadata = "1" }, "JSON object" },
		{ { .name = "model", .kind = 2 }, "twice" },
	};
	struct ckpt_err err = { 0 };
	uint32_t item;
	struct ckpt_save *s = fix_begin(f->writer, "x", false, &item);

	for (size_t i = 0; i < CKB_ARRAY_LEN(cases); i++) {
		struct ckpt_item_desc d = cases[i].d;

		d.size = sizeof(d);
		item = 77;
		assert_code(ckpt_save_item(s, &d, &item, &err), CKPT_EINVAL);
		assert_says(err, cases[i].says);
		assert_int_equal(item, 77); /* unchanged */
	}
	assert_ok(ckpt_save_item(s, SIZED(ckpt_item_desc, .name = "@orig",
					  .kind = CKPT_ITEM_ORIGIN), &item,
				 &err));
	assert_int_equal(item, 1);
	assert_ok(fix_finish(s, &err));
}

static void files_that_cannot_be_are_refused(void **state)
{
	struct fix *f = *state;
	static const char *const names[] = { "", "/a", "a/", "a//b", ".", "..",
					     "a/../b", "a/.", "\xc0\x80" };
	char type[300];
	struct watch w = { .bytes = 10 };
	struct ckpt_provider p = watch_provider(&w);
	struct ckpt_err err = { 0 };
	uint32_t model, item;
	struct ckpt_save *s = fix_begin(f->writer, "x", false, &model);

	assert_ok(ckpt_save_item(s, SIZED(ckpt_item_desc, .name = "files",
					  .kind = CKPT_ITEM_FILES), &item,
				 &err));
	for (size_t i = 0; i < CKB_ARRAY_LEN(names); i++) {
		p = watch_provider(&w);
		assert_code(ckpt_save_file(s, item, names[i], NULL, 10, &p,
					   &err), CKPT_EINVAL);
		assert_null(p.ops);
		assert_int_equal(w.released, (int)i + 1);
	}
	assert_code(ckpt_save_file(s, item, NULL, NULL, 0, NULL, &err),
		    CKPT_EINVAL);
	assert_code(ckpt_save_file(s, model, "a", NULL, 0, NULL, &err),
		    CKPT_EINVAL);
	assert_says(err, "'model' takes tensors");
	assert_code(ckpt_save_file(s, 9, "a", NULL, 0, NULL, &err),
		    CKPT_EINVAL);
	assert_code(ckpt_save_file(s, item, "a", NULL, 5, NULL, &err),
		    CKPT_EINVAL);
	assert_says(err, "file 'a': no data");
	p = watch_provider(&w);
	assert_code(ckpt_save_file(s, item, "a", NULL, 11, &p, &err),
		    CKPT_EINVAL);
	assert_says(err, "10 bytes");
	memset(type, 'x', sizeof(type) - 1);
	type[299] = '\0';
	assert_code(ckpt_save_file(s, item, "a", type, 0, NULL, &err),
		    CKPT_EINVAL);
	assert_says(err, "media type");
	assert_code(ckpt_save_file(s, item, "a", "\xff", 0, NULL, &err),
		    CKPT_EINVAL);
	assert_code(ckpt_save_file(s, item, "a", NULL, 1ull << 63, NULL, &err),
		    CKPT_ELIMIT);
	assert_ok(ckpt_save_file(s, item, "a", NULL, 0, NULL, &err));
	assert_code(ckpt_save_file(s, item, "a", NULL, 0, NULL, &err),
		    CKPT_EINVAL);
	assert_says(err, "twice");
	assert_ok(fix_finish(s, &err));
}

/* ---- tensors ---- */

struct bad_tensor {
	const char *name;
	size_t name_len;
	enum ckpt_dtype dtype;
	struct ckpt_shape shape;
	uint32_t box_count;
	struct ckpt_box box[2];
	uint32_t replica, replica_count;
	const char *alias_of;
	uint64_t held;     /* bytes of the provider; UINT64_MAX: none */
	int code;
	const char *says[3];
};

#define NAMED(n) .name = n
#define NONE UINT64_MAX

static const struct bad_tensor bad_tensors[] = {
	{ .name = NULL, .name_len = 0, .dtype = CKPT_U8, .held = NONE,
	  .code = CKPT_EINVAL, .says = { "no name" } },
	{ NAMED("\xed\xa0\x80"), .dtype = CKPT_U8, .held = NONE,
	  .code = CKPT_EINVAL, .says = { "UTF-8" } },
	{ .name = "x", .name_len = 1 << 20, .dtype = CKPT_U8, .held = NONE,
	  .code = CKPT_ELIMIT, .says = { "1048576" } },
	{ NAMED("x"), .dtype = 0, .held = NONE, .code = CKPT_EINVAL,
	  .says = { "'x'" } },
	{ NAMED("x"), .dtype = CKPT_DTYPE_END, .held = NONE,
	  .code = CKPT_EINVAL, .says = { "'x'" } },
	{ NAMED("x"), .dtype = CKPT_U8, .shape = { 65, { 1 } }, .held = NONE,
	  .code = CKPT_ELIMIT, .says = { "'x'", "65" } },
	/* width-05 */
	{ NAMED("x"), .dtype = CKPT_U8, .shape = { 1000, { 1 } }, .held = NONE,
	  .code = CKPT_ELIMIT, .says = { "'x'", "1000 dimensions", "64" } },
	{ NAMED("x"), .dtype = CKPT_U8,
	  .shape = { 3, { 1ull << 32, 1ull << 32, 2 } }, .held = NONE,
	  .code = CKPT_ELIMIT, .says = { "'x'" } },
	{ NAMED("x"), .dtype = CKPT_F4, .shape = { 1, { 3 } }, .held = 2,
	  .code = CKPT_EINVAL, .says = { "'x'" } },
	/* layout-07: no data, and not an alias of each other */
	{ NAMED("x"), .dtype = CKPT_F32, .shape = { 1, { 4 } }, .held = NONE,
	  .code = CKPT_EINVAL, .says = { "'x'", "no data", "16 bytes" } },
	/* shape-09, shape-10: padding is not data */
	{ NAMED("x"), .dtype = CKPT_U8, .shape = { 2, { 5, 10 } }, .held = 80,
	  .code = CKPT_EINVAL, .says = { "'x'", "80", "50" } },
	{ NAMED("x"), .dtype = CKPT_U8, .shape = { 2, { 5, 10 } },
	  .box_count = 1, .box = { { 2, { 0, 0 }, { 3, 10 } } }, .held = 50,
	  .code = CKPT_EINVAL, .says = { "'x'", "50", "30" } },
	/* shape-12: offsets and sizes that do not fit the tensor */
	{ NAMED("x"), .dtype = CKPT_U8, .shape = { 2, { 4, 4 } },
	  .box_count = 1, .box = { { 3, { 0, 0, 0 }, { 1, 4, 4 } } },
	  .held = 16, .code = CKPT_EINVAL,
	  .says = { "'x'", "3 dimensions", "[4,4]" } },
	{ NAMED("x"), .dtype = CKPT_U8, .shape = { 2, { 4, 4 } },
	  .box_count = 1, .box = { { 2, { 1, 0 }, { 4, 4 } } }, .held = 16,
	  .code = CKPT_EINVAL, .says = { "'x'", "[1:5,0:4]", "[4,4]" } },
	{ NAMED("x"), .dtype = CKPT_U8, .shape = { 1, { 4 } },
	  .box_count = 1, .box = { { 1, { UINT64_MAX }, { 2 } } }, .held = 2,
	  .code = CKPT_EINVAL, .says = { "'x'" } },
	{ NAMED("x"), .dtype = CKPT_F4, .shape = { 2, { 2, 4 } },
	  .box_count = 1, .box = { { 2, { 0, 1 }, { 2, 2 } } }, .held = 2,
	  .code = CKPT_EINVAL, .says = { "'x'", "whole bytes" } },
	{ NAMED("x"), .dtype = CKPT_U8, .shape = { 1, { 4 } },
	  .box_count = 1u << 30, .held = 4, .code = CKPT_ELIMIT,
	  .says = { "'x'", "1073741824" } },
	{ NAMED("x"), .dtype = CKPT_U8, .shape = { 1, { 4 } }, .replica = 2,
	  .replica_count = 2, .held = 4, .code = CKPT_EINVAL,
	  .says = { "'x'", "replica 2 of 2" } },
	{ NAMED("there"), .dtype = CKPT_U8, .shape = { 1, { 4 } }, .held = 4,
	  .code = CKPT_EINVAL, .says = { "'there'", "twice", "'model'" } },
	{ NAMED("x"), .dtype = CKPT_U8, .shape = { 1, { 4 } },
	  .alias_of = "gone", .held = NONE, .code = CKPT_EINVAL,
	  .says = { "'x'", "'gone'", "not described" } },
	{ NAMED("x"), .dtype = CKPT_U8, .shape = { 1, { 4 } },
	  .alias_of = "x", .held = NONE, .code = CKPT_EINVAL,
	  .says = { "'x'", "not described" } },
	{ NAMED("x"), .dtype = CKPT_U8, .shape = { 1, { 4 } },
	  .alias_of = "tied", .held = NONE, .code = CKPT_EINVAL,
	  .says = { "'x'", "'tied'", "alias itself" } },
	{ NAMED("x"), .dtype = CKPT_I8, .shape = { 1, { 4 } },
	  .alias_of = "there", .held = NONE, .code = CKPT_EINVAL,
	  .says = { "'x'", "'there'", "differs" } },
	{ NAMED("x"), .dtype = CKPT_U8, .shape = { 2, { 4, 1 } },
	  .alias_of = "there", .held = NONE, .code = CKPT_EINVAL,
	  .says = { "'x'", "'there'", "differs" } },
	{ NAMED("x"), .dtype = CKPT_U8, .shape = { 1, { 4 } },
	  .alias_of = "there", .held = 4, .code = CKPT_EINVAL,
	  .says = { "'x'", "provider" } },
};

static void try_bad(struct ckpt_save *s, const struct bad_tensor *b)
{
	struct watch w = { .bytes = b->held };
	struct ckpt_tensor_desc d = fix_desc(b->name, b->dtype, b->shape);
	struct ckpt_provider p = { NULL, NULL };
	struct ckpt_save_progress before, after;
	struct ckpt_err err = { 0 };

	d.name_len = b->name_len;
	d.box_count = b->box_count;
	d.boxes = b->box_count ? b->box : NULL;
	d.replica = b->replica;
	d.replica_count = b->replica_count;
	d.alias_of = b->alias_of;
	if (b->held != NONE)
		p = watch_provider(&w);
	ckpt_save_progress(s, &before);
	assert_code(ckpt_save_tensor(s, 0, &d, &p, &err), b->code);
	assert_int_equal(err.code, b->code);
	for (int i = 0; i < 3 && b->says[i]; i++)
		assert_says(err, b->says[i]);
	assert_null(p.ops);
	assert_int_equal(w.released, b->held != NONE);
	assert_int_equal(w.read_count, 0);
	ckpt_save_progress(s, &after);
	assert_int_equal(after.bytes_total, before.bytes_total);
}

static void a_bad_tensor_is_refused_and_the_others_are_saved(void **state)
{
	struct fix *f = *state;
	const struct ckpt_provider_ops no_read = { .size = sizeof(no_read) };
	struct ckpt_tensor_desc d = fix_desc("tied", CKPT_U8, SHAPE(1, 4));
	struct ckpt_provider p;
	struct ckpt_err err = { 0 };
	uint32_t item;
	struct ckpt_save *s = fix_begin(f->writer, "x", false, &item);

	fix_tensor(s, item, "there", CKPT_U8, SHAPE(1, 4), "abcd", 4);
	d.alias_of = "there";
	assert_ok(ckpt_save_tensor(s, item, &d, NULL, &err));
	for (size_t i = 0; i < CKB_ARRAY_LEN(bad_tensors); i++)
		try_bad(s, &bad_tensors[i]);
	d = fix_desc("x", CKPT_U8, SHAPE(1, 4));
	p = (struct ckpt_provider){ &no_read, NULL };
	assert_code(ckpt_save_tensor(s, item, &d, &p, &err), CKPT_EINVAL);
	assert_says(err, "read function");
	p = fix_copy("abcd", 4);
	d.box_count = 1; /* and d.boxes NULL */
	assert_code(ckpt_save_tensor(s, item, &d, &p, &err), CKPT_EINVAL);
	p = fix_copy("abcd", 4);
	assert_code(ckpt_save_tensor(s, 5, &d, &p, &err), CKPT_EINVAL);
	assert_says(err, "no item 5");
	assert_ok(fix_finish(s, &err));
	struct ckpt_checkpoint *c = fix_opened(f->store, "x");

	assert_int_equal(ckpt_tensor_count(c), 2);
	fix_equal(c, fix_find(c, "model", "tied"), "abcd", 4);
	ckpt_checkpoint_close(c);
}

/* ---- coverage (S7) ---- */

static void holes_and_overlaps_name_their_boxes(void **state)
{
	struct fix *f = *state;
	static const struct {
		const char *what;
		uint32_t count;
		struct ckpt_box box[3];
		const char *says[3];
	} cases[] = {
		{ "a hole of rows", 2,
		  { { 2, { 0, 0 }, { 3, 6 } }, { 2, { 4, 0 }, { 4, 6 } } },
		  { "'w'", "hole", "[3:4," } },
		{ "an overlap", 2,
		  { { 2, { 0, 0 }, { 5, 6 } }, { 2, { 4, 0 }, { 4, 6 } } },
		  { "'w'", "shards 0 and 1 overlap", "[4:8,0:6]" } },
		{ "the same box twice", 3,
		  { { 2, { 0, 0 }, { 4, 6 } }, { 2, { 4, 0 }, { 4, 6 } },
		    { 2, { 4, 0 }, { 4, 6 } } },
		  { "'w'", "shards 1 and 2 overlap", "[4:8,0:6]" } },
		{ "a hole as large as an overlap", 2,
		  { { 2, { 0, 0 }, { 4, 6 } }, { 2, { 3, 0 }, { 4, 6 } } },
		  { "'w'", "overlap", "[3:7,0:6]" } },
		{ "nobody holds a thing", 1, { { 2, { 0, 0 }, { 0, 6 } } },
		  { "'w'", "hole", NULL } },
	};
	struct ckpt_err err = { 0 };

	for (size_t i = 0; i < CKB_ARRAY_LEN(cases); i++) {
		struct ckpt_tensor_desc d = fix_desc("w", CKPT_F32,
						     SHAPE(2, 8, 6));
		struct watch w = { 0 };
		struct ckpt_provider p = watch_provider(&w);
		uint32_t item;
		struct ckpt_save *s = fix_begin(f->writer, "x", false, &item);

		d.boxes = cases[i].box;
		d.box_count = cases[i].count;
		for (uint32_t b = 0; b < d.box_count; b++)
			w.bytes += ckt_box_bytes(&d.boxes[b], 4);
		assert_ok(ckpt_save_tensor(s, item, &d, &p, &err));
		assert_code(ckpt_save_start(s, &err), CKPT_EINVAL);
		for (int k = 0; k < 3 && cases[i].says[k]; k++)
			assert_says(err, cases[i].says[k]);
		/* not started: it can be waited for by nobody */
		assert_code(ckpt_save_wait(s, CKPT_DURABLE, &err),
			    CKPT_ESTATE);
		assert_int_equal(w.read_count, 0);
		ckpt_save_free(s);
		assert_int_equal(w.released, 1);
	}
	assert_int_equal(fix_files(f, "checkpoints"), 0);
	assert_int_equal(fix_files(f, "staging"), 0);
}

/* A file cannot lie where another needs a folder: cut at a byte smaller than
 * '/', and one that only looks like a folder, among them. */
static void a_file_where_a_folder_must_be_is_refused(void **state)
{
	struct fix *f = *state;
	static const struct {
		const char *name[3];
		const char *says[2]; /* NULL: fine */
	} cases[] = {
		{ { "a", "a-b", "a/b" }, { "file 'a'", "'a/b'" } },
		{ { "d/e/f", "x", "d" }, { "file 'd'", "'d/e/f'" } },
		{ { "d/e/f", "d/e", "x" }, { "file 'd/e'", "'d/e/f'" } },
		{ { "d/e", "d/ee/f", "de" }, { NULL, NULL } },
	};
	struct ckpt_err err = { 0 };

	for (size_t i = 0; i < CKB_ARRAY_LEN(cases); i++) {
		struct ckpt_save_desc d = { .size = sizeof(d), .name = "x" };
		struct ckpt_item_desc it = { .size = sizeof(it), .name = "i",
					     .kind = CKPT_ITEM_FILES };
		struct ckpt_save *s;
		uint32_t item;

		assert_ok(ckpt_save_begin(f->writer, &d, &s, &err));
		assert_ok(ckpt_save_item(s, &it, &item, &err));
		for (int k = 0; k < 3; k++)
			assert_ok(ckpt_save_file(s, item, cases[i].name[k],
						 NULL, 0, NULL, &err));
		if (cases[i].says[0]) {
			assert_code(ckpt_save_start(s, &err), CKPT_EINVAL);
			assert_says(err, cases[i].says[0]);
			assert_says(err, cases[i].says[1]);
			ckpt_save_free(s);
		} else {
			assert_ok(fix_finish(s, &err));
		}
	}
}

/* ---- failing in the background ---- */

struct note {
	int count;
	char last[2048];
};

static void take_note(void *ctx, enum ckb_level level, const char *text)
{
	struct note *n = ctx;

	if (level != CKB_ERROR)
		return;
	n->count++;
	snprintf(n->last, sizeof(n->last), "%s", text);
}

/* Three tensors of 4 MiB; the middle one's provider fails half way. */
static struct ckpt_save *failing(struct fix *f, const char *name,
				 struct watch w[3])
{
	static const char *const names[] = { "first", "middle", "last" };
	struct ckpt_err err = { 0 };
	uint32_t item;
	struct ckpt_save *s = fix_begin(f->writer, name, true, &item);

	for (int i = 0; i < 3; i++) {
		struct ckpt_tensor_desc d = fix_desc(names[i], CKPT_F32,
						     SHAPE(2, 1024, 1024));
		struct ckpt_provider p = watch_provider(&w[i]);

		w[i].bytes = 4 << 20;
		assert_ok(ckpt_save_tensor(s, item, &d, &p, &err));
	}
	assert_ok(ckpt_save_start(s, &err));
	return s;
}

static void a_failing_provider_fails_the_save_in_its_words(void **state)
{
	struct fix *f = *state;
	static const struct {
		int rc;
		const char *says;
		int code;
		const char *said;
	} cases[] = {
		{ CKPT_EIO, "the disk is gone", CKPT_EIO, "the disk is gone" },
		{ CKPT_ECORRUPT, "bad\nline", CKPT_ECORRUPT, "bad\\x0aline" },
		{ CKPT_EINVAL, NULL, CKPT_EINVAL, "does not say why" },
		{ 1, NULL, CKPT_EIO, "failed (1)" },
		{ -12345, NULL, CKPT_EIO, "failed (-12345)" },
		/* published, durability unknown? it cannot know */
		{ CKPT_EUNSURE, "hm", CKPT_EIO, "hm" },
	};
	struct ckpt_err err = { 0 };

	fix_save(f->writer, "run/cur", false, 1000, 1);
	for (size_t i = 0; i < 2 * CKB_ARRAY_LEN(cases); i++) {
		struct watch w[3] = { 0 };
		size_t k = i / 2;
		/* in the way of a checkpoint, or of none */
		const char *name = i % 2 ? "run/cur" : "run/new";
		int fds = fix_fds();

		w[1].fail_at = 2 << 20;
		w[1].fail_rc = cases[k].rc;
		w[1].fail_says = cases[k].says;
		struct ckpt_save *s = failing(f, name, w);

		for (int phase = CKPT_CAPTURED; phase <= CKPT_DURABLE;
		     phase++) {
			err = (struct ckpt_err){ 0 };
			assert_code(ckpt_save_wait(s, (enum ckpt_phase)phase,
						   &err), cases[k].code);
			assert_says(err, "tensor 'middle'");
			assert_says(err, name);
			assert_says(err, cases[k].said);
		}
		for (int t = 0; t < 3; t++)
			assert_int_equal(w[t].released, 1);
		assert_int_equal(w[2].read_count, 0);
		assert_int_equal(fix_files(f, "staging"), 0);
		ckpt_save_free(s);
		assert_int_equal(fix_fds(), fds);
		assert_ok(fix_whole(f->store, "run/cur", 1000, 1, &err));
		assert_int_equal(fix_files(f, "checkpoints"), 1);
	}
	fix_save(f->writer, "run/new", false, 1000, 2);
}

/* async-04: said once, and the next save works */
static void a_failure_nobody_waited_for_is_logged_once(void **state)
{
	struct fix *f = *state;
	struct note note = { 0 };
	struct watch w[3] = { 0 };
	struct ckpt_err err = { 0 };
	struct ckpt_save *s;

	ckb_log_sink(take_note, &note);
	w[1].fail_rc = CKPT_EIO;
	w[1].fail_says = "no luck";
	s = failing(f, "two", w);
	/* free aborts, unless it has failed by itself: let it */
	while (w[2].released == 0)
		usleep(1000);
	ckpt_save_free(s);
	assert_int_equal(note.count, 1);
	assert_non_null(strstr(note.last, "'two'"));
	assert_non_null(strstr(note.last, "no luck"));
	/* told to a wait, it is not told again */
	s = failing(f, "three", w);
	assert_code(ckpt_save_wait(s, CKPT_DURABLE, &err), CKPT_EIO);
	ckpt_save_free(s);
	fix_save(f->writer, "four", false, 10, 1);
	/* an abort is what the caller wanted */
	w[1].fail_rc = 0;
	s = failing(f, "five", w);
	ckpt_save_free(s);
	assert_int_equal(note.count, 1);
	ckb_log_sink(NULL, NULL);
}

static void a_name_taken_meanwhile_is_not_taken_again(void **state)
{
	struct fix *f = *state;
	struct ckpt_err err = { 0 };
	uint32_t item;
	struct ckpt_save *a = fix_begin(f->writer, "n/1", false, &item);
	struct ckpt_save *b = fix_begin(f->writer, "n/1", false, &item);
	struct ckpt_save *below = fix_begin(f->writer, "n/1/x", false, &item);
	struct ckpt_save *above = fix_begin(f->writer, "n", true, &item);

	fix_tensor(a, item, "w", CKPT_U8, SHAPE(1, 4), "aaaa", 4);
	fix_tensor(b, item, "w", CKPT_U8, SHAPE(1, 4), "bbbb", 4);
	assert_ok(fix_finish(a, &err));
	assert_code(fix_finish(b, &err), CKPT_EEXIST);
	assert_says(err, "'n/1'");
	assert_code(fix_finish(below, &err), CKPT_EEXIST);
	assert_code(fix_finish(above, &err), CKPT_EEXIST);
	struct ckpt_checkpoint *c = fix_opened(f->store, "n/1");

	fix_equal(c, fix_find(c, "model", "w"), "aaaa", 4);
	ckpt_checkpoint_close(c);
	assert_int_equal(fix_files(f, "staging"), 0);
}

/* ---- the wrong time ---- */

static void calls_at_the_wrong_time_are_refused(void **state)
{
	struct fix *f = *state;
	struct ckpt_tensor_desc d = fix_desc("x", CKPT_U8, SHAPE(1, 4));
	struct watch w = { .bytes = 4 };
	struct ckpt_provider p;
	struct ckpt_err err = { 0 };
	uint32_t item;
	struct ckpt_save *s = fix_begin(f->writer, "x", false, &item);

	assert_code(ckpt_save_wait(s, CKPT_CAPTURED, &err), CKPT_ESTATE);
	assert_says(err, "not started");
	assert_ok(ckpt_save_start(s, &err));
	assert_code(ckpt_save_start(s, &err), CKPT_ESTATE);
	assert_code(ckpt_save_item(s, SIZED(ckpt_item_desc, .name = "y",
					    .kind = 1), &item, &err),
		    CKPT_ESTATE);
	p = watch_provider(&w);
	assert_code(ckpt_save_tensor(s, 0, &d, &p, &err), CKPT_ESTATE);
	assert_int_equal(w.released, 1);
	p = watch_provider(&w);
	assert_code(ckpt_save_file(s, 0, "x", NULL, 4, &p, &err), CKPT_ESTATE);
	assert_int_equal(w.released, 2);
	assert_code(ckpt_save_wait(s, (enum ckpt_phase)3, &err), CKPT_EINVAL);
	assert_ok(ckpt_save_wait(s, CKPT_DURABLE, &err));
	assert_code(ckpt_save_start(s, &err), CKPT_ESTATE);
	ckpt_save_free(s);
	ckpt_save_free(NULL);
	ckpt_writer_close(NULL);
}

/* What every save would fail with is told once, at open. */
static void a_writer_that_cannot_save_is_not_opened(void **state)
{
	struct fix *f = *state;
	struct ckpt_writer_opts o = { .size = sizeof(o), .zstd_level = 99,
				      .codec = CKPT_CODEC_ZSTD };
	struct ckpt_writer *w = NULL;
	struct ckpt_err err = { 0 };

	assert_code(ckpt_writer_open(f->store, &o, &w, &err), CKPT_EINVAL);
	assert_says(err, "99");
	assert_null(w);
}

static void a_save_aborted_before_its_start_stays_so(void **state)
{
	struct fix *f = *state;
	struct ckpt_tensor_desc d = fix_desc("x", CKPT_U8, SHAPE(1, 4));
	struct watch w[2] = { { .bytes = 4 }, { .bytes = 4 } };
	struct ckpt_provider p = watch_provider(&w[0]);
	struct ckpt_err err = { 0 };
	uint32_t item;
	struct ckpt_save *s = fix_begin(f->writer, "x", false, &item);

	assert_ok(ckpt_save_tensor(s, item, &d, &p, &err));
	assert_true(fix_files(f, "staging") > 0);
	ckpt_save_abort(s);
	assert_int_equal(fix_files(f, "staging"), 0);
	ckpt_save_abort(s);
	p = watch_provider(&w[1]);
	assert_code(ckpt_save_tensor(s, item, &d, &p, &err), CKPT_ECANCELED);
	assert_int_equal(w[1].released, 1);
	assert_code(ckpt_save_start(s, &err), CKPT_ECANCELED);
	assert_code(ckpt_save_wait(s, CKPT_DURABLE, &err), CKPT_ECANCELED);
	assert_says(err, "'x'");
	ckpt_save_free(s);
	assert_int_equal(w[0].released, 1);
	assert_int_equal(w[0].read_count, 0);
}

/* The job lives: a writer closed too early stays, and says so. */
static void a_writer_with_open_saves_is_not_closed(void **state)
{
	struct fix *f = *state;
	struct note note = { 0 };
	struct ckpt_err err = { 0 };
	uint32_t item;
	struct ckpt_save *s = fix_begin(f->writer, "x", false, &item);

	ckb_log_sink(take_note, &note);
	ckpt_writer_close(f->writer);
	ckb_log_sink(NULL, NULL);
	assert_int_equal(note.count, 1);
	assert_ok(fix_finish(s, &err));
}

#define TEST(name) \
	cmocka_unit_test_setup_teardown(name, fix_setup, fix_teardown)

int main(void)
{
	const struct CMUnitTest tests[] = {
		TEST(begin_refuses_what_it_can_refuse),
		TEST(metadata_has_a_bound),
		TEST(one_attempt_is_one_save),
		TEST(structs_of_another_size_are_refused),
		TEST(a_read_only_store_has_no_writer),
		TEST(items_that_cannot_be_are_refused),
		TEST(files_that_cannot_be_are_refused),
		TEST(a_bad_tensor_is_refused_and_the_others_are_saved),
		TEST(holes_and_overlaps_name_their_boxes),
		TEST(a_file_where_a_folder_must_be_is_refused),
		TEST(a_failing_provider_fails_the_save_in_its_words),
		TEST(a_failure_nobody_waited_for_is_logged_once),
		TEST(a_name_taken_meanwhile_is_not_taken_again),
		TEST(calls_at_the_wrong_time_are_refused),
		TEST(a_writer_that_cannot_save_is_not_opened),
		TEST(a_save_aborted_before_its_start_stays_so),
		TEST(a_writer_with_open_saves_is_not_closed),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
