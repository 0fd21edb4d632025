/* SPDX-License-Identifier: Apache-2.0 */
/*
 * test_serialise.c - providers whose bytes are made when they are asked for,
 * and providers of several parts.
 */
#include "gate.h"

/* Hands over `data` in pieces, as a pickler does. */
struct object {
	const uint8_t *data;
	size_t len, piece;
	struct gate *gate;     /* waited at before the first; NULL: none */
	int fail_rc;           /* after half of it; 0: never */
	int sink_rc;           /* what write answered last */
	atomic_int made, released;
};

static int object_serialise(void *ctx, ckpt_sink_fn write, void *sink,
			    struct ckpt_err *err)
{
	struct object *o = ctx;

	o->made++;
	if (o->gate)
		gate_pass(o->gate);
	for (size_t off = 0; off < o->len;) {
		size_t n = (size_t)ckb_min_u64(o->piece, o->len - off);

		o->sink_rc = write(sink, o->data + off, n);
		if (o->sink_rc != 0)
			return o->sink_rc;
		off += n;
		if (o->fail_rc != 0 && off >= o->len / 2) {
			snprintf(err->message, sizeof(err->message),
				 "cannot pickle a lambda");
			return o->fail_rc;
		}
	}
	return 0;
}

static void object_release(void *ctx)
{
	((struct object *)ctx)->released++;
}

static struct ckpt_provider object_provider(struct object *o)
{
	struct ckpt_provider p;
	struct ckpt_err err = { 0 };

	assert_ok(ckpt_provider_callback(object_serialise, object_release, o,
					 &p, &err));
	return p;
}

static uint32_t files_item(struct ckpt_save *s)
{
	struct ckpt_item_desc d = { .size = sizeof(d), .name = "state",
				    .kind = CKPT_ITEM_FILES };
	struct ckpt_err err = { 0 };
	uint32_t item;

	assert_ok(ckpt_save_item(s, &d, &item, &err));
	return item;
}

static int add_file(struct ckpt_save *s, uint32_t item, const char *name,
		    uint64_t bytes, struct object *o, struct ckpt_err *err)
{
	struct ckpt_provider p = object_provider(o);

	return ckpt_save_file(s, item, name, NULL, bytes, &p, err);
}

/* ---- objects and tensors ---- */

static void open_gate(void *ctx)
{
	gate_open(ctx);
}

/* The object, described first, waits until the tensor is read: so captures of
 * tensors do not wait for it. CAPTURED does. */
static void tensors_are_captured_while_an_object_is_made(void **state)
{
	struct fix *f = *state;
	size_t len = 3 << 20;
	struct gate g = GATE;
	uint8_t *data = fix_bytes(len, 3);
	struct object o = { .data = data, .len = len, .piece = 100000,
			    .gate = &g };
	struct watch w = { .bytes = 1000, .on_read = open_gate, .ctx = &g };
	struct ckpt_tensor_desc d = fix_desc("t", CKPT_U8, SHAPE(1, 1000));
	struct ckpt_provider p = watch_provider(&w);
	struct ckpt_err err = { 0 };
	uint32_t item;
	struct ckpt_save *s = fix_begin(f->writer, "a", false, &item);

	assert_ok(add_file(s, files_item(s), "o", CKPT_UNKNOWN, &o, &err));
	assert_ok(ckpt_save_tensor(s, item, &d, &p, &err));
	assert_ok(ckpt_save_start(s, &err));
	assert_ok(ckpt_save_wait(s, CKPT_CAPTURED, &err));
	assert_int_equal(o.made, 1);
	assert_int_equal(o.released, 1);
	memset(data, 0, len); /* it was copied */
	assert_ok(ckpt_save_wait(s, CKPT_DURABLE, &err));
	struct ckpt_save_progress done;

	ckpt_save_progress(s, &done);
	assert_int_equal(done.bytes_total, len + 1000);
	assert_int_equal(done.bytes_captured, len + 1000);
	ckpt_save_free(s);
	free(data);
	data = fix_bytes(len, 3);
	struct ckpt_checkpoint *c = fix_opened(f->store, "a");

	fix_equal(c, fix_find(c, "state", "o"), data, len);
	ckpt_checkpoint_close(c);
	free(data);
}

static void captured_waits_for_an_object(void **state)
{
	struct fix *f = *state;
	struct gate g = GATE;
	struct object o = { .data = (const uint8_t *)"abc", .len = 3,
			    .piece = 1, .gate = &g };
	struct ckpt_err err = { 0 };
	uint32_t item;
	struct ckpt_save *s = fix_begin(f->writer, "a", false, &item);

	fix_tensor(s, item, "t", CKPT_U8, SHAPE(1, 3), "xyz", 3);
	assert_ok(add_file(s, files_item(s), "o", CKPT_UNKNOWN, &o, &err));
	assert_ok(ckpt_save_start(s, &err));
	gate_await(&g);
	assert_code(ckpt_save_wait_for(s, CKPT_CAPTURED, 1000000, &err),
		    CKPT_ETIMEDOUT);
	gate_open(&g);
	assert_ok(ckpt_save_wait(s, CKPT_DURABLE, &err));
	ckpt_save_free(s);
}

static struct ckpt_save *many(struct fix *f, const char *name,
			      struct object *o, uint8_t *data, size_t count)
{
	static const size_t sizes[] = { 0, 1, 70000, 1 << 20, 3000001 };
	struct ckpt_err err = { 0 };
	uint32_t item, files;
	struct ckpt_save *s = fix_begin(f->writer, name, false, &item);

	files = files_item(s);
	for (size_t i = 0; i < count; i++) {
		size_t len = sizes[i % CKB_ARRAY_LEN(sizes)];
		char file[16];

		snprintf(file, sizeof(file), "f%zu", i);
		o[i] = (struct object){ .data = data + i, .len = len,
					.piece = 4097 };
		if (i % 3 == 0) { /* one that is there already */
			struct ckpt_provider p = fix_copy(data + i, len);

			assert_ok(ckpt_save_file(s, files, file, NULL, len, &p,
						 &err));
		} else {
			assert_ok(add_file(s, files, file, i % 3 == 1 ? len
							: CKPT_UNKNOWN,
					   &o[i], &err));
		}
		snprintf(file, sizeof(file), "t%zu", i);
		fix_tensor(s, item, file, CKPT_U8, SHAPE(1, 1000), data + i,
			   1000);
	}
	return s;
}

/* Entries keep their order, and the next save finds all as it was. */
static void objects_of_all_sizes_read_back_in_their_order(void **state)
{
	enum { COUNT = 30 };
	struct fix *f = *state;
	uint8_t *data = fix_bytes(4 << 20, 9);
	struct object o[COUNT];
	struct ckpt_err err = { 0 };

	for (int round = 0; round < 2; round++) {
		const char *name = round ? "b" : "a";
		struct ckpt_save *s = many(f, name, o, data, COUNT);
		struct ckpt_save_progress done;

		assert_ok(ckpt_save_start(s, &err));
		assert_ok(ckpt_save_wait(s, CKPT_DURABLE, &err));
		ckpt_save_progress(s, &done);
		assert_true((done.bytes_new > 0) == (round == 0));
		assert_int_equal(done.bytes_hashed, done.bytes_total);
		ckpt_save_free(s);
		struct ckpt_checkpoint *c = fix_opened(f->store, name);

		for (size_t i = 0; i < COUNT; i++) {
			const struct ckpt_tensor_info *t =
				ckpt_tensor_at(c, COUNT + i);
			char file[16];

			snprintf(file, sizeof(file), "f%zu", i);
			assert_string_equal(t->name, file);
			fix_equal(c, t, data + i, o[i].len);
			assert_int_equal(o[i].made, i % 3 != 0);
			assert_int_equal(o[i].released, i % 3 != 0);
		}
		ckpt_checkpoint_close(c);
	}
	free(data);
}

/* Of a tensor in boxes, cut into tiles: also from a callback. */
static void a_tensor_may_be_made(void **state)
{
	struct fix *f = *state;
	size_t len = 1200 * 1000 * 4;
	uint8_t *data = fix_bytes(len, 9);
	struct object o = { .data = data, .len = len, .piece = 999999 };
	struct ckpt_tensor_desc d = fix_desc("t", CKPT_F32,
					     SHAPE(2, 1200, 1000));
	struct ckpt_provider p = object_provider(&o);
	struct ckpt_err err = { 0 };
	uint32_t item;
	struct ckpt_save *s = fix_begin(f->writer, "a", false, &item);

	assert_ok(ckpt_save_tensor(s, item, &d, &p, &err));
	assert_ok(fix_finish(s, &err));
	struct ckpt_checkpoint *c = fix_opened(f->store, "a");

	fix_equal(c, fix_find(c, "model", "t"), data, len);
	ckpt_checkpoint_close(c);
	free(data);
}

/* ---- objects that cannot be ---- */

static void an_object_that_fails_ends_its_save(void **state)
{
	struct fix *f = *state;
	static const uint8_t data[1000];
	static const struct {
		uint64_t described;
		size_t len;
		int fail_rc, want;
		const char *says;
	} cases[] = {
		{ CKPT_UNKNOWN, 1000, CKPT_EINVAL, CKPT_EINVAL,
		  "file 'o': cannot pickle a lambda" },
		{ 1000, 1000, 7, CKPT_EIO, "cannot pickle a lambda" },
		{ 1000, 999, 0, CKPT_EINVAL,
		  "999 bytes, but its 1000 bytes are described" },
		{ 999, 1000, 0, CKPT_EINVAL, "more than 999 bytes" },
		{ 0, 1, 0, CKPT_EINVAL, "more than 0 bytes" },
	};
	struct ckpt_err err = { 0 };

	for (size_t i = 0; i < CKB_ARRAY_LEN(cases); i++) {
		struct object o = { .data = data, .len = cases[i].len,
				    .piece = 10, .fail_rc = cases[i].fail_rc };
		uint32_t item;
		struct ckpt_save *s = fix_begin(f->writer, "a", false, &item);

		fix_tensor(s, item, "t", CKPT_U8, SHAPE(1, 3), "xyz", 3);
		assert_ok(add_file(s, files_item(s), "o", cases[i].described,
				   &o, &err));
		assert_code(fix_finish(s, &err), cases[i].want);
		assert_says(err, cases[i].says);
		assert_int_equal(o.released, 1);
	}
	assert_int_equal(fix_files(f, "staging"), 0);
	fix_save(f->writer, "a", false, 10, 1);
}

/* Hands over three bytes, then claims that so many more lie there. */
struct claim {
	uint64_t bytes;
	int sink_rc, made;
};

static int claim_serialise(void *ctx, ckpt_sink_fn write, void *sink,
			   struct ckpt_err *err)
{
	struct claim *c = ctx;
	int rc = write(sink, "abc", 3);

	(void)err;
	c->made++;
	c->sink_rc = rc == 0 && c->bytes > 0 ? write(sink, "d", c->bytes) : rc;
	return c->sink_rc;
}

#define MOST (64ull << 30)

/* Of a save, not of an object; refused before a byte of it is looked at. */
static void objects_of_over_64_gib_are_refused(void **state)
{
	static const uint64_t cases[][2] = {
		{ MOST - 2, 0 }, { SIZE_MAX, 0 }, { 0, MOST - 5 },
	};
	struct fix *f = *state;
	struct ckpt_err err = { 0 };

	for (size_t i = 0; i < CKB_ARRAY_LEN(cases); i++) {
		int bad = cases[i][1] > 0;
		struct claim claims[2] = { { 0 } };
		uint32_t item, files;
		struct ckpt_save *s = fix_begin(f->writer, "a", false, &item);

		files = files_item(s);
		for (int k = 0; k < 2; k++) {
			const char *name = k ? "second" : "first";
			struct ckpt_provider p;

			claims[k].bytes = cases[i][k];
			assert_ok(ckpt_provider_callback(claim_serialise, NULL,
							 &claims[k], &p,
							 &err));
			assert_ok(ckpt_save_file(s, files, name, NULL,
						 CKPT_UNKNOWN, &p, &err));
		}
		assert_code(fix_finish(s, &err), CKPT_ELIMIT);
		assert_says(err, bad ? "file 'second'" : "file 'first'");
		assert_says(err, "more than 68719476736 bytes");
		assert_int_equal(claims[bad].sink_rc, CKPT_ELIMIT);
		assert_int_equal(claims[1].made, bad);
		assert_int_equal(fix_files(f, "staging"), 0);
		assert_int_equal(fix_files(f, "checkpoints"), 0);
	}
	fix_save(f->writer, "a", false, 10, 1);
}

static void *abort_there(void *arg)
{
	ckpt_save_abort(arg);
	return NULL;
}

static void an_abort_ends_an_object_at_its_next_write(void **state)
{
	struct fix *f = *state;
	struct gate g = GATE;
	struct object o = { .data = (const uint8_t *)"abc", .len = 3,
			    .piece = 1, .gate = &g };
	struct object never = { .data = o.data, .len = 3, .piece = 1 };
	struct ckpt_err err = { 0 };
	uint32_t item, files;
	struct ckpt_save *s = fix_begin(f->writer, "a", false, &item);

	files = files_item(s);
	assert_ok(add_file(s, files, "o", CKPT_UNKNOWN, &o, &err));
	assert_ok(add_file(s, files, "never", CKPT_UNKNOWN, &never, &err));
	assert_ok(ckpt_save_start(s, &err));
	gate_await(&g);
	pthread_t aborter;

	assert_int_equal(pthread_create(&aborter, NULL, abort_there, s), 0);
	assert_code(ckpt_save_wait(s, CKPT_CAPTURED, &err), CKPT_ECANCELED);
	gate_open(&g);
	pthread_join(aborter, NULL);
	assert_int_equal(o.sink_rc, CKPT_ECANCELED);
	assert_int_equal(never.made, 0);
	assert_int_equal(o.released + never.released, 2);
	ckpt_save_free(s);
	assert_int_equal(fix_files(f, "checkpoints"), 0);
}

static void a_size_told_later_needs_one_that_serialises(void **state)
{
	struct fix *f = *state;
	struct ckpt_provider p = fix_copy("abc", 3);
	struct ckpt_err err = { 0 };
	uint32_t item;
	struct ckpt_save *s = fix_begin(f->writer, "a", false, &item);

	assert_code(ckpt_save_file(s, files_item(s), "o", NULL, CKPT_UNKNOWN,
				   &p, &err), CKPT_EINVAL);
	assert_says(err, "does not serialise");
	assert_code(ckpt_save_file(s, item + 1, "o", NULL, CKPT_UNKNOWN, NULL,
				   &err), CKPT_EINVAL);
	ckpt_save_free(s);
}

/* ---- composites ---- */

static struct ckpt_provider composite(struct ckpt_provider *parts,
				      uint32_t count)
{
	struct ckpt_provider p;
	struct ckpt_err err = { 0 };

	assert_ok(ckpt_provider_composite(parts, count, &p, &err));
	for (uint32_t i = 0; i < count; i++)
		assert_null(parts[i].ops);
	return p;
}

/* Parts: some host memory, nothing, what must be read, a copy, a composite. */
static struct ckpt_provider pieces(const uint8_t *data, size_t len,
				   struct watch *w)
{
	size_t cut[] = { 0, len / 3, len / 3, len / 2, len - 5, len };
	struct ckpt_provider parts[5], inner[2];
	struct ckpt_err err = { 0 };

	assert_ok(ckpt_provider_host(data, cut[1], &parts[0], &err));
	assert_ok(ckpt_provider_host(NULL, 0, &parts[1], &err));
	*w = (struct watch){ .data = data + cut[2], .bytes = cut[3] - cut[2] };
	parts[2] = watch_provider(w);
	assert_ok(ckpt_provider_host(data + cut[3], cut[4] - cut[3], &parts[3],
				     &err));
	inner[0] = fix_copy(data + cut[4], 2);
	inner[1] = fix_copy(data + cut[4] + 2, 3);
	parts[4] = composite(inner, 2);
	return composite(parts, 5);
}

static void a_composite_reads_and_lends_as_its_parts(void **state)
{
	uint8_t *data = fix_bytes(60, 1), have[60];
	struct watch w;
	struct ckpt_provider p = pieces(data, 60, &w);
	struct ckpt_err err = { 0 };

	(void)state;
	assert_int_equal(p.ops->bytes(p.ctx), 60);
	for (size_t off = 0; off < 60; off++)
		for (size_t len = 1; off + len <= 60; len++) {
			const void *at = p.ops->borrow(p.ctx, off, len);

			assert_ok(p.ops->read(p.ctx, off, have, len, &err));
			assert_memory_equal(have, data + off, len);
			assert_true(!at || memcmp(at, data + off, len) == 0);
			if (off + len <= 20 || (off >= 30 && off + len <= 55))
				assert_ptr_equal(at, data + off);
			else if (off < 55)
				assert_null(at);
		}
	ckpt_provider_release(&p);
	assert_int_equal(w.released, 1);
	p = composite(NULL, 0);
	assert_int_equal(p.ops->bytes(p.ctx), 0);
	assert_null(p.ops->borrow(p.ctx, 0, 0));
	ckpt_provider_release(&p);
	free(data);
}

/* layout: a shard in several pieces of memory; a bias that is fused. */
static void a_composite_is_saved_as_one(void **state)
{
	struct fix *f = *state;
	size_t len = 1200 * 1000 * 4;
	uint8_t *data = fix_bytes(len, 7);
	struct ckpt_tensor_desc d = fix_desc("t", CKPT_F32,
					     SHAPE(2, 1200, 1000));
	struct object o = { .data = data + 1000, .len = 5000, .piece = 7 };
	struct ckpt_provider parts[3];
	struct ckpt_err err = { 0 };
	struct watch w;
	uint32_t item;
	struct ckpt_save *s = fix_begin(f->writer, "a", false, &item);
	struct ckpt_provider p = pieces(data, len, &w);

	assert_ok(ckpt_save_tensor(s, item, &d, &p, &err));
	parts[0] = fix_copy(data, 1000);
	parts[1] = object_provider(&o);
	assert_ok(ckpt_provider_host(data + 6000, 2 << 20, &parts[2], &err));
	p = composite(parts, 3); /* one of it serialises */
	assert_ok(ckpt_save_file(s, files_item(s), "o", NULL, CKPT_UNKNOWN, &p,
				 &err));
	assert_ok(fix_finish(s, &err));
	assert_int_equal(o.released, 1);
	struct ckpt_checkpoint *c = fix_opened(f->store, "a");

	fix_equal(c, fix_find(c, "model", "t"), data, len);
	fix_equal(c, fix_find(c, "state", "o"), data, 6000 + (2 << 20));
	ckpt_checkpoint_close(c);
	free(data);
}

static void parts_that_cannot_be_are_refused(void **state)
{
	static const struct ckpt_provider_ops no_size = {
		.size = sizeof(no_size), .read = watch_read,
		.release = watch_release,
	};
	struct watch w = { 0 }, v = { .bytes = UINT64_MAX };
	struct ckpt_provider parts[2] = { { &no_size, &w },
					  watch_provider(&v) }, p;
	struct ckpt_err err = { 0 };

	(void)state;
	assert_code(ckpt_provider_composite(parts, 2, &p, &err), CKPT_EINVAL);
	assert_says(err, "part 0");
	assert_null(p.ops);
	assert_int_equal(w.released + v.released, 2);
	parts[0] = watch_provider(&v);
	parts[1] = watch_provider(&v);
	assert_code(ckpt_provider_composite(parts, 2, &p, &err), CKPT_EINVAL);
	assert_says(err, "2^64");
	assert_null(parts[0].ops);
	assert_code(ckpt_provider_composite(parts, 1, &p, &err), CKPT_EINVAL);
}

#define TEST(name) \
	cmocka_unit_test_setup_teardown(name, fix_setup, fix_teardown)

int main(void)
{
	const struct CMUnitTest tests[] = {
		TEST(tensors_are_captured_while_an_object_is_made),
		TEST(captured_waits_for_an_object),
		TEST(objects_of_all_sizes_read_back_in_their_order),
		TEST(a_tensor_may_be_made),
		TEST(an_object_that_fails_ends_its_save),
		TEST(objects_of_over_64_gib_are_refused),
		TEST(an_abort_ends_an_object_at_its_next_write),
		TEST(a_size_told_later_needs_one_that_serialises),
		cmocka_unit_test(a_composite_reads_and_lends_as_its_parts),
		TEST(a_composite_is_saved_as_one),
		cmocka_unit_test(parts_that_cannot_be_are_refused),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
