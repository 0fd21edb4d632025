/* SPDX-License-Identifier: Apache-2.0 */
/* test_pack_write.c - what lands in a pack's file, at which cost in system
 * calls, and what a failed write or sync does to it (S5). */
#include "pack_fixture.h"

#define MIB (1u << 20)

static const size_t sizes[] = {
	1, 7, 8, 255, 4096, 65535, 65536, 65537, CKB_CELL_BYTES - 1,
	CKB_CELL_BYTES, CKB_CELL_BYTES + 1, MIB, 3 * MIB + 5, 8 * MIB,
};

static uint8_t *raw, *again;

static int big_setup(void **state)
{
	raw = malloc(8 * MIB);
	again = malloc(8 * MIB);
	assert_non_null(raw);
	assert_non_null(again);
	return packs_setup(state);
}

static int big_teardown(void **state)
{
	free(raw);
	free(again);
	return packs_teardown(state);
}

static void round_trip(struct packs *f, struct ckc_codec *codec,
		       const char *name)
{
	struct ckc_place places[CKB_ARRAY_LEN(sizes)][KINDS];
	struct ckc_pack_writer *w = create(f, name);
	struct ckpt_err err = { 0 };
	struct ckc_pack *p = NULL;
	uint64_t end = CKF_PACK_HEADER_BYTES;

	for (size_t i = 0; i < CKB_ARRAY_LEN(sizes); i++)
		for (int k = 0; k < KINDS; k++) {
			struct ckc_place *at = &places[i][k];

			fill(raw, sizes[i], (enum kind)k, i);
			assert_ok(append(w, codec, raw, sizes[i], at, &err));
			assert_int_equal(at->raw_len, sizes[i]);
			assert_int_equal(at->off % 8, 0);
			assert_true(at->off >= end);
			/* DESIGN 4: large payloads start on 4 KiB */
			if (at->stored_len >= 65536)
				assert_int_equal(
					(at->off + at->head_len) % 4096, 0);
			end = at->off + at->head_len + at->stored_len;
		}
	assert_memory_equal(ckc_pack_writer_uuid(w), pack_uuid, 16);
	assert_ok(ckc_pack_seal(w, &err));
	assert_int_equal(f->os.syncs, 1);
	ckc_pack_writer_close(w);

	assert_ok(ckc_pack_open(&f->os.sys, f->fd, name, pack_uuid, &p, &err));
	for (size_t i = 0; i < CKB_ARRAY_LEN(sizes); i++)
		for (int k = 0; k < KINDS; k++) {
			struct ckf_record r;

			fill(raw, sizes[i], (enum kind)k, i);
			assert_ok(read_record(p, &places[i][k], again, &r,
					      &err));
			assert_memory_equal(raw, again, sizes[i]);
			assert_int_equal(r.codec, places[i][k].codec);
			if (codec == f->raw ||
			    (k == NOISE && r.codec != CKF_CODEC_PLANES))
				assert_int_equal(r.codec, CKF_CODEC_RAW);
			else if (sizes[i] > 4096)
				assert_int_equal(r.codec,
						 ckc_codec_kind(codec));
		}
	ckc_pack_close(p);
}

static void raw_records_of_every_size_come_back(void **state)
{
	round_trip(*state, ((struct packs *)*state)->raw, "p");
}

static void zstd_records_of_every_size_come_back(void **state)
{
	round_trip(*state, ((struct packs *)*state)->zstd, "p");
}

static void planes_records_of_every_size_come_back(void **state)
{
	struct packs *f = *state;

	ckc_codec_dtype(f->planes, CKPT_BF16);
	round_trip(f, f->planes, "p");
}

static int count_entry(void *ctx, const struct ckf_trailer_entry *e)
{
	assert_true(e->stored_len > 0 || e->codec == CKF_CODEC_PLANES);
	++*(unsigned *)ctx;
	return 0;
}

/* Records of no stored byte, between others, first and last. */
static void records_of_constant_cells_have_no_payload(void **state)
{
	static const size_t lens[] = { 8, MIB, 100, 8 * MIB };
	struct packs *f = *state;
	struct ckc_pack_writer *w = create(f, "p");
	struct ckpt_err err = { 0 };
	struct ckc_place at[2 * CKB_ARRAY_LEN(lens)];
	struct ckc_pack *p = NULL;
	unsigned listed = 0, scanned = 0;

	for (size_t i = 0; i < CKB_ARRAY_LEN(at); i++) {
		size_t len = lens[i / 2];

		memset(raw, (int)i, len);
		if (i % 2)
			raw[len - 1] ^= 1;
		assert_ok(append(w, f->planes, raw, len, &at[i], &err));
		assert_true(i % 2 || at[i].stored_len == 0);
		assert_true(i % 2 || at[i].codec == CKF_CODEC_PLANES);
		if (i > 0 && at[i - 1].stored_len == 0) /* right behind it */
			assert_true(at[i].stored_len >= 65536 ||
				    at[i].off == at[i - 1].off +
						 at[i - 1].head_len);
	}
	assert_ok(ckc_pack_seal(w, &err));
	ckc_pack_writer_close(w);
	assert_ok(ckc_pack_open(&f->os.sys, f->fd, "p", NULL, &p, &err));
	for (size_t i = 0; i < CKB_ARRAY_LEN(at); i++) {
		struct ckf_record r;
		size_t len = lens[i / 2];

		f->os.reads = 0;
		memset(raw, (int)i, len);
		if (i % 2)
			raw[len - 1] ^= 1;
		assert_ok(read_record(p, &at[i], again, &r, &err));
		assert_memory_equal(raw, again, len);
		/* the header is all there is to read */
		if (i % 2 == 0)
			assert_int_equal(f->os.reads, 1);
	}
	assert_ok(ckc_pack_trailer(p, count_entry, &listed, &err));
	assert_ok(ckc_pack_scan(p, count_entry, &scanned, &err));
	assert_int_equal(listed, CKB_ARRAY_LEN(at));
	assert_int_equal(scanned, CKB_ARRAY_LEN(at));
	ckc_pack_close(p);
}

/* Half of the cells shrink, half do not, in one record. */
static void a_record_may_mix_raw_and_coded_cells(void **state)
{
	struct packs *f = *state;
	struct ckc_pack_writer *w = create(f, "p");
	struct ckpt_err err = { 0 };
	struct ckc_pack *p = NULL;
	struct ckf_record r;
	struct ckc_place at;

	for (int i = 0; i < 4; i++)
		fill(raw + i * CKB_CELL_BYTES, CKB_CELL_BYTES,
		     i % 2 ? WORDS : NOISE, (uint64_t)i);
	assert_ok(append(w, f->zstd, raw, MIB, &at, &err));
	assert_int_equal(at.codec, CKF_CODEC_ZSTD);
	assert_true(at.stored_len > MIB / 2 && at.stored_len < MIB * 6 / 10);
	assert_ok(ckc_pack_seal(w, &err));
	ckc_pack_writer_close(w);
	assert_ok(ckc_pack_open(&f->os.sys, f->fd, "p", NULL, &p, &err));
	assert_ok(read_record(p, &at, again, &r, &err));
	assert_memory_equal(raw, again, MIB);
	ckc_pack_close(p);
}

static void small_records_share_system_calls(void **state)
{
	struct packs *f = *state;
	struct ckc_pack_writer *w = create(f, "p");
	struct ckpt_err err = { 0 };
	struct ckc_place at;

	for (uint64_t i = 0; i < 5000; i++) {
		fill(raw, 600, NOISE, i);
		assert_ok(append(w, f->raw, raw, 600, &at, &err));
	}
	assert_ok(ckc_pack_seal(w, &err));
	ckc_pack_writer_close(w);
	assert_in_range(f->os.writes, 1, 10); /* 3.8 MB in steps of 1 MiB */
}

/* As the writer's threads do. */
static int put(struct ckc_pack_writer *w, struct ckc_codec *codec,
	       const void *data, size_t len, uint8_t *head,
	       struct ckc_place *out)
{
	struct ckf_cell cells[CKB_CHUNK_CELL_MAX];
	struct ckf_record r = { .cells = cells };
	struct ckpt_err err = { 0 };
	static uint8_t cell[CKB_CELL_BYTES];
	const uint8_t *payload;
	uint8_t digest[32];

	ckc_sha256(data, len, digest);
	int rc = ckc_record_code(codec, digest, data, len,
				 again, cell, &r, &payload, &err);

	struct ckc_put p = { .record = &r, .data = payload };

	if (rc == 0)
		rc = ckc_pack_put(w, CKF_RECORD_CHUNK, &p, 1, head, &err);
	*out = p.place;
	return rc;
}

static void large_raw_payloads_are_written_where_they_lie(void **state)
{
	struct packs *f = *state;
	struct ckc_pack_writer *w = create(f, "p");
	uint8_t *head = aligned_alloc(4096, CKC_HEAD_BYTES);
	struct ckpt_err err = { 0 };
	struct ckc_place at;

	assert_non_null(head);
	fill(raw, 8 * MIB, NOISE, 1);
	f->os.mark = raw;
	f->os.mark_len = 8 * MIB;
	assert_ok(put(w, f->raw, raw, 8 * MIB, head, &at));
	assert_int_equal(f->os.marked, 8 * MIB);
	/* what did not shrink is not copied either */
	assert_ok(put(w, f->zstd, raw, 4 * MIB, head, &at));
	assert_int_equal(f->os.marked, 12 * MIB);
	/* small ones are gathered, and go with the next */
	assert_ok(put(w, f->raw, raw, 1000, head, &at));
	assert_int_equal(f->os.marked, 12 * MIB);
	f->os.writes = 0;
	assert_ok(put(w, f->raw, raw, MIB, head, &at));
	assert_int_equal(f->os.writes, 2); /* pieces of one call */
	assert_ok(ckc_pack_seal(w, &err));
	ckc_pack_writer_close(w);
	free(head);
}

static void write_out_is_started_in_steps_and_its_failure_ignored(void **state)
{
	struct packs *f = *state;
	struct ckc_pack_writer *w = create(f, "p");
	struct ckpt_err err = { 0 };
	struct ckc_place at;

	for (uint64_t i = 0; i < 4; i++) {
		fill(raw, 8 * MIB, NOISE, i);
		assert_ok(append(w, f->raw, raw, 8 * MIB, &at, &err));
	}
	assert_int_equal(f->os.ranges, 32);
	assert_int_equal(f->os.range_bytes, 32 * MIB);
	assert_int_equal(f->os.syncs, 0);
	assert_ok(ckc_pack_seal(w, &err));
	ckc_pack_writer_close(w);
}

/* A pack whose bytes depend on nothing but what was appended. */
static int write_some(struct packs *f, const char *name,
		      struct ckc_pack_writer **out, struct ckpt_err *err)
{
	struct ckc_pack_writer *w = create(f, name);
	static const size_t some[] = { 100, 70000, 3, 300000, 5000, 1,
				       2100000 };
	struct ckc_place at;
	int rc = 0;

	*out = w;
	for (size_t i = 0; rc == 0 && i < CKB_ARRAY_LEN(some); i++) {
		fill(raw, some[i], i % 2 ? NOISE : WORDS, i);
		rc = append(w, i % 3 ? f->zstd : f->raw, raw, some[i], &at,
			    err);
	}
	return rc;
}

static void short_and_interrupted_writes_change_no_byte(void **state)
{
	struct packs *f = *state;
	struct ckc_pack_writer *w;
	struct ckpt_err err = { 0 };
	size_t len[2];
	uint8_t *bytes[2];

	for (int i = 0; i < 2; i++) {
		const char *name = i ? "stutter" : "plain";

		f->os.stutter = i == 1;
		assert_ok(write_some(f, name, &w, &err));
		assert_ok(ckc_pack_seal(w, &err));
		ckc_pack_writer_close(w);
		bytes[i] = slurp(f, name, &len[i]);
	}
	assert_int_equal(len[0], len[1]);
	assert_memory_equal(bytes[0], bytes[1], len[0]);
	free(bytes[0]);
	free(bytes[1]);
}

/* After a failure every later call fails in the same words, and writes and
 * syncs nothing more (S5). */
static void still_poisoned(struct packs *f, struct ckc_pack_writer *w,
			   const struct ckpt_err *first)
{
	unsigned writes = f->os.writes, syncs = f->os.syncs;
	int code = first->code;
	struct ckpt_err err = { 0 };
	struct ckc_place at;

	f->os.fail_write = 0;
	f->os.sync_errno = 0;
	assert_code(append(w, f->raw, raw, 100, &at, &err), code);
	assert_string_equal(err.message, first->message);
	assert_int_equal(err.sys_errno, first->sys_errno);
	assert_code(append(w, f->raw, raw, MIB, &at, &err), code);
	assert_code(ckc_pack_seal(w, &err), code);
	assert_code(ckc_pack_seal(w, NULL), code);
	assert_int_equal(f->os.writes, writes);
	assert_int_equal(f->os.syncs, syncs);
}

static void every_failed_write_poisons_the_pack(void **state)
{
	static const struct {
		int error, code;
	} kinds[] = { { EIO, CKPT_EIO }, { ENOSPC, CKPT_ENOSPC },
		      { EDQUOT, CKPT_ENOSPC } };
	struct packs *f = *state;

	for (size_t k = 0; k < CKB_ARRAY_LEN(kinds); k++)
		for (unsigned n = 1;; n++) {
			struct ckpt_err err = { 0 };
			struct ckc_pack_writer *w;
			char name[32];

			snprintf(name, sizeof(name), "p%zu.%u", k, n);
			f->os.writes = 0;
			f->os.syncs = 0;
			f->os.fail_write = n;
			f->os.write_errno = kinds[k].error;
			int rc = write_some(f, name, &w, &err);

			if (rc == 0)
				rc = ckc_pack_seal(w, &err);
			if (rc == 0) { /* fewer than n writes: swept all */
				assert_true(n > 3);
				ckc_pack_writer_close(w);
				break;
			}
			assert_int_equal(rc, kinds[k].code);
			assert_int_equal(err.sys_errno, kinds[k].error);
			assert_says(err, name);
			assert_int_equal(f->os.syncs, 0);
			still_poisoned(f, w, &err);
			ckc_pack_writer_close(w);
		}
}

static void a_failed_sync_poisons_and_is_never_repeated(void **state)
{
	struct packs *f = *state;
	struct ckpt_err err = { 0 };
	struct ckc_pack_writer *w;

	assert_ok(write_some(f, "p", &w, &err));
	f->os.sync_errno = EIO;
	assert_code(ckc_pack_seal(w, &err), CKPT_EIO);
	assert_says(err, "sync");
	assert_int_equal(f->os.syncs, 1);
	still_poisoned(f, w, &err);
	assert_int_equal(f->os.syncs, 1);
	ckc_pack_writer_close(w);
}

static void a_failure_without_an_err_is_remembered(void **state)
{
	struct packs *f = *state;
	struct ckpt_err err = { 0 };
	struct ckc_pack_writer *w = create(f, "p");
	struct ckc_place at;

	f->os.fail_write = 1;
	f->os.write_errno = ENOSPC;
	assert_int_equal(append(w, f->raw, raw, MIB, &at, NULL), CKPT_ENOSPC);
	assert_code(ckc_pack_seal(w, &err), CKPT_ENOSPC);
	assert_says(err, "No space left");
	ckc_pack_writer_close(w);
}

static void a_sealed_pack_takes_no_more(void **state)
{
	struct packs *f = *state;
	struct ckc_pack_writer *w = create(f, "p");
	struct ckpt_err err = { 0 };
	struct ckc_place at;

	assert_ok(append(w, f->raw, raw, 100, &at, &err));
	assert_ok(ckc_pack_seal(w, &err));
	assert_code(append(w, f->raw, raw, 100, &at, &err), CKPT_ESTATE);
	assert_code(ckc_pack_seal(w, &err), CKPT_ESTATE);
	assert_int_equal(f->os.syncs, 1);
	ckc_pack_writer_close(w);
	ckc_pack_writer_close(NULL);
}

static void a_pack_is_never_made_over_a_file(void **state)
{
	struct packs *f = *state;
	struct ckc_pack_writer *w = create(f, "p"), *second = w;
	struct ckpt_err err = { 0 };
	struct stat st;
	mode_t mask = umask(027);

	assert_code(ckc_pack_create(&f->os.sys, f->fd, "p", pack_uuid,
				    store_uuid, false, &second, &err), CKPT_EEXIST);
	assert_null(second);
	assert_code(ckc_pack_create(&f->os.sys, f->fd, "no/p", pack_uuid,
				    store_uuid, false, &second, &err), CKPT_ENOENT);
	ckc_pack_writer_close(w);
	/* perm-01: the umask decides, not the library */
	w = create(f, "q");
	assert_int_equal(fstatat(f->fd, "q", &st, 0), 0);
	assert_int_equal(st.st_mode & 0777, 0640);
	umask(mask);
	ckc_pack_writer_close(w);
}

static void a_record_whose_header_would_be_too_large_is_refused(void **state)
{
	struct packs *f = *state;
	struct ckc_pack_writer *w = create(f, "p");
	struct ckpt_err err = { 0 };
	uint8_t digest[32] = { 0 };
	struct ckc_place at;

	/* 32 GiB are 131072 cells: refused before a byte is looked at */
	assert_code(ckc_pack_append(w, CKF_RECORD_MANIFEST, f->raw, digest,
				    raw, 32ull << 30, &at, &err),
		    CKPT_ELIMIT);
	assert_ok(append(w, f->raw, raw, 100, &at, &err));
	assert_ok(ckc_pack_seal(w, &err));
	ckc_pack_writer_close(w);
}

#define T(name) cmocka_unit_test_setup_teardown(name, big_setup, big_teardown)

int main(void)
{
	const struct CMUnitTest tests[] = {
		T(raw_records_of_every_size_come_back),
		T(zstd_records_of_every_size_come_back),
		T(planes_records_of_every_size_come_back),
		T(records_of_constant_cells_have_no_payload),
		T(a_record_may_mix_raw_and_coded_cells),
		T(small_records_share_system_calls),
		T(large_raw_payloads_are_written_where_they_lie),
		T(write_out_is_started_in_steps_and_its_failure_ignored),
		T(short_and_interrupted_writes_change_no_byte),
		T(every_failed_write_poisons_the_pack),
		T(a_failed_sync_poisons_and_is_never_repeated),
		T(a_failure_without_an_err_is_remembered),
		T(a_sealed_pack_takes_no_more),
		T(a_pack_is_never_made_over_a_file),
		T(a_record_whose_header_would_be_too_large_is_refused),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
