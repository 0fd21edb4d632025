/* SPDX-License-Identifier: Apache-2.0 */
/* test_check.c - damage of every kind is found and named; the check goes on. */
#include <glob.h>

#include "mkstore.h"
#include "store_fixture.h"
#include "tensor/box.h"
#include "verbs/checkpoint.h"

/* ---- what a check says ---- */

struct said {
	char text[8192]; /* "ckpt|item/tensor|box|pack|off|what\n" for each */
	uint64_t count;
	uint64_t done, total;
};

static void on_damage(void *ctx, const struct ckpt_damage *d)
{
	struct said *s = ctx;
	size_t at = strlen(s->text);
	char box[CKT_TEXT_BYTES] = "";

	s->count++;
	if (d->box)
		ckt_box_text(box, sizeof(box), d->box);
	snprintf(s->text + at, sizeof(s->text) - at,
		 "%s|%s/%.*s|%s|%s|%ju|%s\n",
		 d->checkpoint ? d->checkpoint : "", d->item ? d->item : "",
		 d->tensor ? (int)d->tensor_len : 0,
		 d->tensor ? d->tensor : "", box, d->pack ? d->pack : "",
		 (uintmax_t)d->pack_off, d->what);
}

static void on_progress(void *ctx, uint64_t done, uint64_t total)
{
	struct said *s = ctx;

	assert_true(done >= s->done && done <= total);
	s->done = done;
	s->total = total;
}

static struct said check(struct mkstore *mk, const char *name,
			 enum ckpt_check_depth depth,
			 struct ckpt_check_result *out)
{
	struct said said = { 0 };
	struct ckpt_check_opts opts = {
		.size = sizeof(opts), .depth = depth, .on_damage = on_damage,
		.on_progress = on_progress, .ctx = &said,
	};
	struct ckpt_check_result mine;
	struct ckpt_err err = { 0 };

	if (!out)
		out = &mine;
	assert_ok(ckpt_store_check(mk->store, name, &opts, out, &err));
	assert_true(said.done >= out->bytes);
	assert_int_equal(said.done, said.total);
	assert_true(out->damage_count >= said.count);
	assert_int_equal(out->damage_count == 0, said.count == 0);
	return said;
}

static void clean(struct mkstore *mk, enum ckpt_check_depth depth)
{
	struct said s = check(mk, NULL, depth, NULL);

	if (s.count > 0)
		fail_msg("not clean: %s", s.text);
}

#define assert_told(s, part) \
	do { \
		if (!strstr((s).text, (part))) \
			fail_msg("'%s' does not tell '%s'", (s).text, part); \
	} while (0)
#define assert_not_told(s, part) \
	do { \
		if (strstr((s).text, (part))) \
			fail_msg("'%s' tells '%s'", (s).text, part); \
	} while (0)

/* ---- stores ---- */

static const struct mk_box halves[] = {
	{ { 0 }, { 40000 } }, { { 40000 }, { 30000 } },
};
/* Records below and above 64 KiB: the latter leave a gap before them. */
static const struct mk_tensor tensors[] = {
	{ .name = "a", .dtype = CKPT_F32, .ndim = 2, .dim = { 5, 7 } },
	{ .name = "tied", .dtype = CKPT_F32, .ndim = 2, .dim = { 5, 7 },
	  .alias_of = "a" },
	{ .name = "long", .dtype = CKPT_U16, .ndim = 1, .dim = { 35000 },
	  .seed = 1 },
	{ .name = "cut", .ndim = 1, .dim = { 70000 }, .shard_count = 2,
	  .shards = halves, .seed = 2 },
	{ .name = "empty", .ndim = 1, .dim = { 0 } },
	{ .item = "assets", .name = "f", .media_type = "", .ndim = 1,
	  .dim = { 3000 }, .seed = 3 },
};
#define COUNT CKB_ARRAY_LEN(tensors)

static int setup(void **state)
{
	struct mkstore *mk = calloc(1, sizeof(*mk));
	struct mk_opts opts = { .manifest_copy = true, .reuse = true };
	struct ckpt_err err = { 0 };

	assert_non_null(mk);
	assert_ok(mkstore_new(mk, 0, &err));
	assert_ok(mk_save(mk, "run/1", tensors, COUNT, &opts, &err));
	*state = mk;
	return 0;
}

static int teardown(void **state)
{
	mkstore_free(*state);
	free(*state);
	return 0;
}

static void a_whole_store_is_clean_and_each_record_counts_once(void **state)
{
	struct mkstore *mk = *state;
	struct mk_opts opts = { .reuse = true };
	struct ckpt_check_result r;
	struct ckpt_err err = { 0 };

	/* two more checkpoints of the same chunks */
	assert_ok(mk_save(mk, "run/2", tensors, COUNT, &opts, &err));
	assert_ok(mk_save(mk, "top", tensors, 1, &opts, &err));
	for (int depth = CKPT_CHECK_QUICK; depth <= CKPT_CHECK_FULL; depth++) {
		struct said s = check(mk, NULL, depth, &r);

		assert_string_equal(s.text, "");
		assert_int_equal(r.checkpoint_count, 3);
		assert_int_equal(r.tensor_count, 2 * (COUNT - 1) + 1);
		assert_int_equal(r.file_count, 2);
		/* a, long, two fragments, f; the manifest's copy if walked */
		assert_int_equal(r.chunk_count, 5 + (depth > 0));
		assert_int_equal(r.bytes >= 140 + 70000 + 70000 + 3000,
				 depth > 0);
		check(mk, "top", depth, &r);
		assert_int_equal(r.checkpoint_count, 1);
		assert_int_equal(r.chunk_count, 1);
		assert_int_equal(r.bytes, depth > 0 ? 140 : 0);
	}
	assert_int_equal(fix_count(mk->store, "bad"), 0);
}

static void what_is_not_there_is_an_error(void **state)
{
	struct mkstore *mk = *state;
	struct ckpt_check_opts opts = { .size = sizeof(opts) };
	struct ckpt_check_result r;
	struct ckpt_err err = { 0 };

	assert_code(ckpt_store_check(mk->store, "run/7", &opts, &r, &err),
		    CKPT_ENOENT);
	assert_says(err, "there is no checkpoint 'run/7'");
	assert_code(ckpt_store_check(mk->store, "run", &opts, &r, &err),
		    CKPT_ENOENT);
	opts.size = 8;
	assert_code(ckpt_store_check(mk->store, NULL, &opts, &r, &err),
		    CKPT_EINVAL);
}

/* Chunk entry @i of tensor @n of run/1. */
static struct ckf_chunk_entry entry(struct mkstore *mk, size_t n, uint64_t i)
{
	struct ckpt_checkpoint *c;
	struct cks_chunks *k;
	struct ckpt_err err = { 0 };

	assert_ok(ckpt_checkpoint_open(mk->store, "run/1", &c, &err));
	assert_ok(cks_chunks_load(c, ckpt_tensor_at(c, n), &k, &err));
	assert_true(i < k->count);
	struct ckf_chunk_entry e = k->entries[i];

	cks_chunks_free(k);
	ckpt_checkpoint_close(c);
	return e;
}

static void any_flipped_byte_of_a_pack_is_found(void **state)
{
	struct mkstore *mk = *state;
	char *pack = mk_only_pack(mk);
	struct ckf_chunk_entry big = entry(mk, 2, 0);
	uint64_t size = mk_flip(pack, 0, 0), n = 0;

	for (uint64_t off = 0; off < size; n++) {
		mk_flip(pack, off, (uint8_t)(1 << n % 8));
		struct said s = check(mk, NULL, CKPT_CHECK_FULL, NULL);

		if (s.count == 0)
			fail_msg("a flip at %ju of %ju is not found",
				 (uintmax_t)off, (uintmax_t)size);
		assert_told(s, pack + strlen(mk->path) + 1);
		mk_flip(pack, off, (uint8_t)(1 << n % 8));
		/* every byte of what is small; of payloads and gaps some */
		bool sparse = off > big.off - 3900 && off < size - 4000 &&
			      (off < big.off - 8 || off > big.off + 200);

		off += sparse ? 997 : off > size - 400 ? 1 : 7;
	}
	clean(mk, CKPT_CHECK_FULL);
	free(pack);
}

static void the_bytes_before_the_table_are_looked_at(void **state)
{
	static const struct mk_tensor odd = { .name = "odd", .ndim = 1,
					      .dim = { 3001 }, .seed = 9 };
	struct mkstore *mk = *state;
	char path[300], *old = mk_only_pack(mk);
	struct ckpt_err err = { 0 };

	snprintf(path, sizeof(path), "%s/checkpoints/run/1", mk->path);
	assert_int_equal(unlink(path), 0);
	assert_int_equal(unlink(old), 0);
	free(old);
	assert_ok(mk_save(mk, "odd", &odd, 1, NULL, &err));
	char *pack = mk_only_pack(mk);
	uint64_t size = mk_flip(pack, 0, 0);

	/* one entry, the footer, before them zeros up to a multiple of 8 */
	mk_flip(pack, size - 129, 1);
	assert_told(check(mk, NULL, CKPT_CHECK_CELLS, NULL), "is not zero");
	mk_flip(pack, size - 129, 1);
	clean(mk, CKPT_CHECK_FULL);
	free(pack);
}

static void a_bad_chunk_is_told_for_each_who_needs_it(void **state)
{
	struct mkstore *mk = *state;
	struct mk_opts opts = { .reuse = true };
	char *pack = mk_only_pack(mk), line[400];
	struct ckf_chunk_entry e = entry(mk, 3, 1);
	struct ckpt_check_result r;
	struct ckpt_err err = { 0 };

	assert_ok(mk_save(mk, "run/2", tensors, COUNT, &opts, &err));
	mk_flip(pack, e.off + e.head_len + 5, 0x10);
	clean(mk, CKPT_CHECK_QUICK);
	for (int depth = CKPT_CHECK_CELLS; depth <= CKPT_CHECK_FULL; depth++) {
		struct said s = check(mk, NULL, depth, &r);

		for (int run = 1; run <= 2; run++) {
			snprintf(line, sizeof(line),
				 "run/%d|model/cut|[40000:70000]|%s|%ju|cell 0",
				 run, pack + strlen(mk->path) + 1,
				 (uintmax_t)e.off);
			assert_told(s, line);
		}
		assert_int_equal(s.count, 2);
		assert_int_equal(r.damage_count, 2);
		assert_int_equal(r.chunk_count, 5); /* all but that one */
		assert_int_equal(fix_count(mk->store, "bad"), 1);
	}
	free(pack);
}

static void a_readonly_store_notes_nothing(void **state)
{
	struct mkstore *mk = *state;
	struct ckpt_store_opts opts = { .size = sizeof(opts),
					.flags = CKPT_STORE_READONLY };
	char *pack = mk_only_pack(mk);
	struct ckf_chunk_entry e = entry(mk, 0, 0);
	struct ckpt_err err = { 0 };

	mk_flip(pack, e.off + e.head_len, 1);
	ckpt_store_close(CKB_TAKE(mk->store));
	assert_ok(ckpt_store_open(mk->path, &opts, &mk->store, &err));
	assert_told(check(mk, NULL, CKPT_CHECK_CELLS, NULL), "run/1|model/a|");
	assert_int_equal(fix_count(mk->store, "bad"), 0);
	free(pack);
}

static void bytes_that_are_not_their_digests_are_found_by_full(void **state)
{
	struct mkstore *mk = *state;
	struct mk_opts opts = { .wrong_digest = true };
	struct ckpt_err err = { 0 };

	assert_ok(mk_save(mk, "liar", &tensors[2], 1, &opts, &err));
	clean(mk, CKPT_CHECK_CELLS);
	struct said s = check(mk, NULL, CKPT_CHECK_FULL, NULL);

	assert_int_equal(s.count, 1);
	assert_told(s, "liar|model/long|[0:35000]|packs/");
	assert_told(s, "SHA-256");
}

/* ---- manifests ---- */

static void any_flipped_byte_of_a_manifest_is_found(void **state)
{
	struct mkstore *mk = *state;
	struct ckpt_err err = { 0 };
	char path[300];
	uint64_t size;

	snprintf(path, sizeof(path), "%s/checkpoints/run/1", mk->path);
	assert_ok(mk_save(mk, "zzz", &tensors[5], 1, NULL, &err));
	size = mk_flip(path, 0, 0);
	for (uint64_t off = 0; off < size; off += off < 128 ? 3 : 331) {
		struct ckpt_check_result r;

		mk_flip(path, off, 0x20);
		struct said s = check(mk, NULL, CKPT_CHECK_QUICK, &r);

		if (s.count == 0)
			fail_msg("a flip at %ju is not found", (uintmax_t)off);
		assert_told(s, "run/1|");
		assert_not_told(s, "zzz|");
		assert_int_equal(r.checkpoint_count, 2);
		assert_true(r.chunk_count >= 1); /* zzz's */
		mk_flip(path, off, 0x20);
	}
	assert_int_equal(truncate(path, (off_t)size / 2), 0);
	assert_told(check(mk, NULL, CKPT_CHECK_QUICK, NULL), "run/1|");
	assert_int_equal(truncate(path, 0), 0);
	assert_told(check(mk, NULL, CKPT_CHECK_QUICK, NULL), "run/1|");
	assert_told(check(mk, "run/1", CKPT_CHECK_QUICK, NULL), "run/1|");
}

enum { BAD_ROOT, ROOT_OF_FRAGMENTS, NO_ROOT, LOST_CHUNK, OTHER_RECORD, NO_RECORD,
       OTHER_LENGTH, PAST_THE_END };

static void lie(void *ctx, size_t tensor, struct ckf_chunk_entry *e,
		size_t *count, struct ckq_tensor *row)
{
	static struct ckf_chunk_entry first;

	if (tensor == 0)
		first = e[0];
	switch (*(const int *)ctx) {
	case BAD_ROOT:
		row->root[3] ^= tensor == 2;
		break;
	case ROOT_OF_FRAGMENTS:
		row->has_root = row->has_root || tensor == 3;
		break;
	case NO_ROOT:
		row->has_root = row->has_root && tensor != 2;
		break;
	case LOST_CHUNK:
		*count -= tensor == 3;
		break;
	case OTHER_RECORD:
		if (tensor == 2)
			e[0].off = first.off;
		break;
	case NO_RECORD:
		if (tensor == 2)
			e[0].off += 8;
		break;
	case OTHER_LENGTH:
		if (tensor == 2)
			e[0].stored_len--;
		break;
	case PAST_THE_END:
		if (tensor == 2)
			e[0].off = 1 << 20;
		break;
	}
}

static void a_manifest_that_lies_is_found(void **state)
{
	static const struct { const char *who, *what; } cases[] = {
		[BAD_ROOT] = { "lies|model/long|", "its root" },
		[ROOT_OF_FRAGMENTS] = { "lies|model/cut|", "a root" },
		[NO_ROOT] = { "lies|model/long|", "no root" },
		[LOST_CHUNK] = { "lies|model/cut|", "do not cover" },
		[OTHER_RECORD] = { "lies|model/long|[0:35000]|packs/",
				   "another one than the manifest names" },
		[NO_RECORD] = { "lies|model/long|[0:35000]|packs/",
				"no record begins here" },
		[OTHER_LENGTH] = { "lies|model/long|[0:35000]|packs/",
				   "another one than the manifest names" },
		[PAST_THE_END] = { "lies|model/long|[0:35000]|packs/",
				   "truncated" },
	};
	struct mkstore *mk = *state;
	struct ckpt_err err = { 0 };
	char path[300];

	snprintf(path, sizeof(path), "%s/checkpoints/lies", mk->path);
	for (int i = 0; i < (int)CKB_ARRAY_LEN(cases); i++) {
		struct mk_opts opts = { .reuse = true, .tamper = lie,
					.ctx = &i };

		assert_ok(mk_save(mk, "lies", tensors, COUNT, &opts, &err));
		struct said s = check(mk, NULL, CKPT_CHECK_QUICK, NULL);

		assert_told(s, cases[i].who);
		assert_told(s, cases[i].what);
		assert_not_told(s, "run/1|"); /* who is right stays clean */
		assert_int_equal(unlink(path), 0);
	}
}

static void other_layout(void *ctx, size_t tensor, struct ckf_chunk_entry *e,
			 size_t *count, struct ckq_tensor *row)
{
	(void)ctx, (void)e, (void)count;
	if (tensor == 1) {
		row->has_layout = true;
		row->layout = 0; /* the first one's */
	}
}

/* S7: the shards themselves, even when no chunk is a fragment. */
static void a_layout_with_a_hole_is_found(void **state)
{
	static const struct mk_box two[] = {
		{ { 0 }, { 20 } }, { { 20 }, { 20 } },
	};
	static const struct mk_tensor pair[] = {
		{ .name = "forty", .ndim = 1, .dim = { 40 }, .shard_count = 2,
		  .shards = two },
		{ .name = "fifty", .ndim = 1, .dim = { 50 } },
	};
	struct mkstore *mk = *state;
	struct mk_opts opts = { .tamper = other_layout };
	struct ckpt_err err = { 0 };

	assert_ok(mk_save(mk, "hole", pair, 2, &opts, &err));
	struct said s = check(mk, "hole", CKPT_CHECK_QUICK, NULL);

	assert_int_equal(s.count, 1);
	assert_told(s, "hole|model/fifty|");
	assert_told(s, "[40:50]");
}

/* ---- packs ---- */

static void a_missing_pack_names_all_who_need_it(void **state)
{
	struct mkstore *mk = *state;
	struct mk_opts opts = { .reuse = true };
	char *pack = mk_only_pack(mk);
	struct ckpt_check_result r;
	struct ckpt_err err = { 0 };

	assert_ok(mk_save(mk, "run/2", tensors, 3, &opts, &err));
	opts.reuse = false;
	assert_ok(mk_save(mk, "own", tensors, COUNT, &opts, &err));
	assert_int_equal(unlink(pack), 0);
	struct said s = check(mk, NULL, CKPT_CHECK_QUICK, &r);

	assert_told(s, "run/1|model/a|");
	assert_told(s, "run/1|model/long|");
	assert_told(s, "run/1|model/cut|");
	assert_told(s, "2 chunks of this tensor lie in it");
	assert_told(s, "run/1|assets/f|");
	assert_told(s, "run/2|model/a|");
	assert_told(s, "run/2|model/long|");
	assert_told(s, "missing");
	assert_told(s, pack + strlen(mk->path) + 1);
	assert_not_told(s, "own|");
	assert_int_equal(s.count, 6);        /* each tensor once */
	assert_int_equal(r.damage_count, 7); /* every chunk */
	assert_int_equal(check(mk, "own", CKPT_CHECK_FULL, &r).count, 0);
	free(pack);
}

static void a_truncated_pack_is_found_at_every_length(void **state)
{
	struct mkstore *mk = *state;
	char *pack = mk_only_pack(mk);
	uint64_t size = mk_flip(pack, 0, 0);
	struct ckf_chunk_entry e = entry(mk, 2, 0);
	uint64_t cuts[] = { size - 1, size - 64, size - 65, size - 300,
			    e.off + e.head_len + 60000, e.off + 10, e.off,
			    200, 64, 63, 1, 0 };

	for (size_t i = 0; i < CKB_ARRAY_LEN(cuts); i++) {
		assert_int_equal(truncate(pack, (off_t)cuts[i]), 0);
		for (int d = CKPT_CHECK_QUICK; d <= CKPT_CHECK_FULL; d++) {
			struct said s = check(mk, NULL, d, NULL);

			assert_told(s, pack + strlen(mk->path) + 1);
			if (cuts[i] < e.off + e.head_len + e.stored_len)
				assert_told(s, "run/1|model/long|[0:35000]|");
			if (cuts[i] > e.off && cuts[i] >= 300)
				assert_not_told(s, "run/1|model/a|");
		}
	}
	free(pack);
}

static void packs_nobody_names_are_looked_at_too(void **state)
{
	struct mkstore *mk = *state;
	char *pack = mk_only_pack(mk), path[300];
	struct ckf_chunk_entry e = entry(mk, 0, 0);
	uint64_t size = mk_flip(pack, 0, 0);

	snprintf(path, sizeof(path), "%s/checkpoints/run/1", mk->path);
	assert_int_equal(unlink(path), 0);
	clean(mk, CKPT_CHECK_FULL);
	mk_flip(pack, e.off + e.head_len, 1);
	clean(mk, CKPT_CHECK_QUICK);
	struct said s = check(mk, NULL, CKPT_CHECK_CELLS, NULL);

	assert_int_equal(s.count, 1);
	assert_told(s, "|/||packs/");
	mk_flip(pack, e.off + e.head_len, 1);
	mk_flip(pack, size - 20, 1);
	assert_told(check(mk, NULL, CKPT_CHECK_QUICK, NULL), "footer");
	free(pack);
}

static void a_pack_in_anothers_place_is_found(void **state)
{
	struct mkstore *mk = *state;
	char *first = mk_only_pack(mk), pattern[300];
	struct ckpt_err err = { 0 };
	glob_t g;

	assert_ok(mk_save(mk, "own", tensors, COUNT, NULL, &err));
	snprintf(pattern, sizeof(pattern), "%s/packs/*/*.pack", mk->path);
	assert_int_equal(glob(pattern, 0, NULL, &g), 0);
	assert_int_equal(g.gl_pathc, 2);
	const char *second = g.gl_pathv[strcmp(g.gl_pathv[0], first) == 0];

	assert_int_equal(rename(second, first), 0);
	struct said s = check(mk, NULL, CKPT_CHECK_QUICK, NULL);

	assert_told(s, "another pack");
	assert_told(s, "run/1|model/a|");
	assert_told(s, "own|model/a|");
	globfree(&g);
	free(first);
}

static void what_a_save_left_behind_is_no_damage(void **state)
{
	struct mkstore *mk = *state;
	uint8_t attempt[16] = { 1, 2, 3 };
	struct ckc_pack_writer *w;
	struct cks_stage *st;
	struct ckpt_err err = { 0 };

	assert_ok(cks_stage_open(mk->store, "later", attempt, &st, &err));
	assert_ok(cks_stage_pack(st, false, &w, &err));
	clean(mk, CKPT_CHECK_FULL);
	ckc_pack_writer_close(w);
	cks_stage_close(st);
}

static void coded_store(struct mkstore *mk, enum ckf_codec codec)
{
	struct mk_opts opts = { .codec = codec, .pack_each = true };
	struct mk_tensor t = tensors[2];
	struct ckpt_err err = { 0 };
	struct ckpt_check_result r;

	t.dim[0] = 500000; /* four tiles */
	assert_ok(mk_save(mk, "z", &t, 1, &opts, &err));
	clean(mk, CKPT_CHECK_FULL);
	check(mk, "z", CKPT_CHECK_FULL, &r);
	assert_int_equal(r.chunk_count, 4);
	assert_true(r.bytes < 700000); /* of 1,000,000 */
}

static void a_zstd_store_checks_the_same(void **state)
{
	coded_store(*state, CKF_CODEC_ZSTD);
}

static void a_store_by_planes_checks_the_same(void **state)
{
	coded_store(*state, CKF_CODEC_PLANES);
}

int main(void)
{
#define T(f) cmocka_unit_test_setup_teardown(f, setup, teardown)
	const struct CMUnitTest tests[] = {
		T(a_whole_store_is_clean_and_each_record_counts_once),
		T(what_is_not_there_is_an_error),
		T(any_flipped_byte_of_a_pack_is_found),
		T(the_bytes_before_the_table_are_looked_at),
		T(a_bad_chunk_is_told_for_each_who_needs_it),
		T(a_readonly_store_notes_nothing),
		T(bytes_that_are_not_their_digests_are_found_by_full),
		T(any_flipped_byte_of_a_manifest_is_found),
		T(a_manifest_that_lies_is_found),
		T(a_layout_with_a_hole_is_found),
		T(a_missing_pack_names_all_who_need_it),
		T(a_truncated_pack_is_found_at_every_length),
		T(packs_nobody_names_are_looked_at_too),
		T(a_pack_in_anothers_place_is_found),
		T(what_a_save_left_behind_is_no_damage),
		T(a_zstd_store_checks_the_same),
		T(a_store_by_planes_checks_the_same),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
