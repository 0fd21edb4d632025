/* SPDX-License-Identifier: Apache-2.0 */
/* test_pack_read.c - a pack with any byte flipped or cut off gives errors or
 * the right bytes, never wrong ones; and what a scan still finds. */
#include <pthread.h>

#include "base/hash.h"
#include "pack_fixture.h"

#define RECORDS 6
static const size_t sizes[RECORDS] = { 1, 300, 2000, 66000, 100, 270000 };

/* A sealed pack "p" of RECORDS records, raw and zstd in turn. */
struct sample {
	struct packs *f;
	struct ckc_place at[RECORDS];
	uint8_t *raw[RECORDS];
	uint8_t *bytes; /* of the file */
	size_t len;
	uint8_t *got;   /* scratch */
	struct ckc_pack *pack; /* "p", open */
	int x;          /* "x", a copy of it, open for writing */
};

static int sample_setup(void **state)
{
	struct sample *s = calloc(1, sizeof(*s));
	struct ckpt_err err = { 0 };
	void *f = NULL;

	packs_setup(&f);
	s->f = f;
	struct ckc_pack_writer *w = create(s->f, "p");

	s->got = malloc(sizes[RECORDS - 1]);
	for (size_t i = 0; i < RECORDS; i++) {
		s->raw[i] = malloc(sizes[i]);
		fill(s->raw[i], sizes[i], i % 2 ? WORDS : NOISE, i);
		assert_ok(append(w, i == 3 ? s->f->raw : s->f->zstd,
				 s->raw[i], sizes[i], &s->at[i], &err));
	}
	assert_ok(ckc_pack_seal(w, &err));
	ckc_pack_writer_close(w);
	s->bytes = slurp(s->f, "p", &s->len);
	spew(s->f, "x", s->bytes, s->len);
	s->x = openat(s->f->fd, "x", O_RDWR);
	assert_ok(ckc_pack_open(&s->f->os.sys, s->f->fd, "p", pack_uuid,
				&s->pack, &err));
	*state = s;
	return 0;
}

static int sample_teardown(void **state)
{
	struct sample *s = *state;
	void *f = s->f;

	ckc_pack_close(s->pack);
	close(s->x);
	for (size_t i = 0; i < RECORDS; i++)
		free(s->raw[i]);
	free(s->bytes);
	free(s->got);
	free(s);
	return packs_teardown(&f);
}

static int count_entry(void *ctx, const struct ckf_trailer_entry *e)
{
	(void)e;
	++*(int *)ctx;
	return 0;
}

/* All of "x" is read; the number of failures. Wrong bytes end the test. */
static int failures(struct sample *s, struct ckpt_err *err)
{
	struct ckc_pack *p = NULL;
	struct ckf_record r;
	int n = 0, entries = 0;
	int rc = ckc_pack_open(&s->f->os.sys, s->f->fd, "x", pack_uuid, &p,
			       err);

	if (rc < 0) {
		assert_null(p);
		assert_true(rc == CKPT_ECORRUPT || rc == CKPT_EVERSION);
		return 1;
	}
	if (ckc_pack_trailer(p, count_entry, &entries, err) < 0) {
		assert_int_equal(entries, 0); /* all or nothing */
		n++;
	} else {
		assert_int_equal(entries, RECORDS);
	}
	for (int i = 0; i < RECORDS; i++) {
		rc = read_record(p, &s->at[i], s->got, &r, err);
		if (rc == 0)
			assert_memory_equal(s->got, s->raw[i], sizes[i]);
		else
			assert_true(rc == CKPT_ECORRUPT ||
				    rc == CKPT_EVERSION);
		n += rc < 0;
	}
	ckc_pack_close(p);
	return n;
}

/* Between records nothing is stored: only there may a flip go unseen. */
static bool is_gap(const struct sample *s, size_t off)
{
	uint64_t table = s->len - CKF_FOOTER_BYTES -
			 RECORDS * CKF_TRAILER_ENTRY_BYTES;

	if (off < CKF_PACK_HEADER_BYTES || off >= table)
		return false;
	for (int i = 0; i < RECORDS; i++)
		if (off >= s->at[i].off &&
		    off < s->at[i].off + s->at[i].head_len +
				  s->at[i].stored_len)
			return false;
	return true;
}

/* Flip a byte of "x", read everything, put the byte back. */
static int failures_with_flip(struct sample *s, size_t off, uint8_t mask,
			      struct ckpt_err *err)
{
	uint8_t bad = s->bytes[off] ^ mask;

	assert_int_equal(pwrite(s->x, &bad, 1, (off_t)off), 1);
	int n = failures(s, err);

	assert_int_equal(pwrite(s->x, &s->bytes[off], 1, (off_t)off), 1);
	return n;
}

static void every_flip_is_found_or_harmless(void **state)
{
	struct sample *s = *state;
	struct ckpt_err err = { 0 };
	uint32_t x = 12345;
	size_t tail = s->len - CKF_FOOTER_BYTES -
		      RECORDS * CKF_TRAILER_ENTRY_BYTES;

	assert_int_equal(failures(s, &err), 0);
	for (size_t off = 0; off < s->len; off++) {
		bool head = off < CKF_PACK_HEADER_BYTES || off >= tail;

		for (int i = 0; i < RECORDS; i++)
			head = head || (off >= s->at[i].off &&
					off < s->at[i].off + s->at[i].head_len);
		x = x * 1664525 + 1013904223;
		/* all of headers and trailer, one in 200 of payloads */
		if (!head && x >> 8 & 0xff && off % 200)
			continue;
		int n = failures_with_flip(s, off, (uint8_t)(1u << x % 8),
					   &err);

		if (is_gap(s, off))
			assert_int_equal(n, 0);
		else if (n == 0)
			fail_msg("a flip at %zu is not found", off);
	}
}

/* One record's damage is its own: the others still read. */
static void a_flip_in_a_cell_costs_one_record(void **state)
{
	struct sample *s = *state;
	struct ckpt_err err = { 0 };

	for (int i = 0; i < RECORDS; i++) {
		size_t off = s->at[i].off + s->at[i].head_len;

		assert_int_equal(failures_with_flip(s, off, 0x80, &err), 1);
		assert_says(err, "cell 0");
		assert_says(err, "checksum");
	}
}

static void every_truncation_is_found(void **state)
{
	struct sample *s = *state;
	struct ckpt_err err = { 0 };

	for (size_t len = s->len; len-- > 0;) {
		if (len > 200 && len < s->len - 500 && len % 997)
			continue;
		assert_int_equal(ftruncate(s->x, (off_t)len), 0);
		assert_true(failures(s, &err) > 0);
		if (len >= CKF_PACK_HEADER_BYTES) {
			struct ckc_pack *p = NULL;

			assert_ok(ckc_pack_open(&s->f->os.sys, s->f->fd, "x",
						NULL, &p, &err));
			assert_code(ckc_pack_trailer(p, count_entry,
						     &(int){ 0 }, &err),
				    CKPT_ECORRUPT);
			assert_says(err, "truncated");
			ckc_pack_close(p);
		}
	}
}

static void a_cell_past_the_end_names_path_and_offset(void **state)
{
	struct sample *s = *state;
	struct ckpt_err err = { 0 };
	struct ckc_pack *p = NULL;
	struct ckf_record r;
	uint64_t cut = s->at[3].off + s->at[3].head_len + 10;
	char where[32];

	assert_int_equal(ftruncate(s->x, (off_t)cut), 0);
	assert_ok(ckc_pack_open(&s->f->os.sys, s->f->fd, "x", NULL, &p, &err));
	assert_code(read_record(p, &s->at[3], s->got, &r, &err),
		    CKPT_ECORRUPT);
	snprintf(where, sizeof(where), "offset %ju", (uintmax_t)(cut - 10));
	assert_says(err, "'x'");
	assert_says(err, where);
	assert_says(err, "truncated");
	ckc_pack_close(p);
	/* shrunk after it was opened: pread itself comes up short */
	char path[512];

	assert_ok(read_record(s->pack, &s->at[3], s->got, &r, &err));
	snprintf(path, sizeof(path), "%s/p", s->f->dir);
	assert_int_equal(truncate(path, (off_t)cut), 0);
	assert_code(read_record(s->pack, &s->at[3], s->got, &r, &err),
		    CKPT_ECORRUPT);
	assert_says(err, "'p'");
	assert_says(err, "truncated");
}

static void headers_asked_for_at_wrong_places_are_refused(void **state)
{
	struct sample *s = *state;
	struct ckpt_err err = { 0 };
	struct ckf_cell cells[CELLS_MAX];
	struct ckf_record r;
	const struct ckc_place *p = &s->at[1];
	const struct {
		uint64_t off;
		uint32_t head_len;
	} cases[] = {
		{ p->off, p->head_len + 8 }, { p->off, p->head_len - 8 },
		{ p->off, 0 }, { p->off, 15 }, { p->off, UINT32_MAX },
		{ p->off, CKB_RECORD_HEAD_MAX }, { p->off + 8, p->head_len },
		{ s->len, p->head_len }, { s->len - 1, p->head_len },
		{ UINT64_MAX, p->head_len }, { UINT64_MAX - 50, p->head_len },
		{ 0, CKF_PACK_HEADER_BYTES },
	};

	for (size_t i = 0; i < CKB_ARRAY_LEN(cases); i++)
		assert_code(ckc_pack_head(s->pack, cases[i].off,
					  cases[i].head_len, cells, CELLS_MAX,
					  &r, &err), CKPT_ECORRUPT);
	/* more cells than there is room for */
	assert_code(ckc_pack_head(s->pack, s->at[5].off, s->at[5].head_len,
				  cells, 1, &r, &err), CKPT_ECORRUPT);
}

static void what_is_no_such_pack_is_refused(void **state)
{
	struct sample *s = *state;
	struct ckpt_err err = { 0 };
	struct ckc_pack *p = (struct ckc_pack *)1;
	const struct ckb_sys *sys = &s->f->os.sys;
	uint8_t other[16] = { 0xcc };
	struct ckf_pack_header h = { .incompat = 4 };
	uint8_t bytes[CKF_PACK_HEADER_BYTES];

	assert_code(ckc_pack_open(sys, s->f->fd, "absent", NULL, &p, &err),
		    CKPT_ENOENT);
	assert_null(p);
	assert_code(ckc_pack_open(sys, s->f->fd, "p", other, &p, &err),
		    CKPT_ECORRUPT);
	assert_says(err, "cc000000-0000-0000-0000-000000000000");
	assert_int_equal(mkdirat(s->f->fd, "d", 0700), 0);
	assert_code(ckc_pack_open(sys, s->f->fd, "d", NULL, &p, &err),
		    CKPT_ECORRUPT);
	/* and does not wait for somebody to write into it */
	assert_int_equal(mkfifoat(s->f->fd, "fifo", 0600), 0);
	assert_code(ckc_pack_open(sys, s->f->fd, "fifo", NULL, &p, &err),
		    CKPT_ECORRUPT);
	assert_int_equal(symlinkat("p", s->f->fd, "link"), 0);
	assert_true(ckc_pack_open(sys, s->f->fd, "link", NULL, &p, &err) < 0);
	ckf_pack_header_encode(&h, bytes);
	spew(s->f, "newer", bytes, sizeof(bytes));
	assert_code(ckc_pack_open(sys, s->f->fd, "newer", NULL, &p, &err),
		    CKPT_EVERSION);
	assert_says(err, "'newer'");
	assert_null(p);
	ckc_pack_close(NULL);
}

static void a_read_that_fails_is_io_and_not_damage(void **state)
{
	struct sample *s = *state;
	struct ckpt_err err = { 0 };
	struct ckf_record r;
	int n = 0;

	s->f->os.read_errno = EIO;
	assert_code(read_record(s->pack, &s->at[0], s->got, &r, &err),
		    CKPT_EIO);
	assert_code(ckc_pack_trailer(s->pack, count_entry, &n, &err),
		    CKPT_EIO);
	assert_code(ckc_pack_scan(s->pack, count_entry, &n, &err), CKPT_EIO);
	assert_int_equal(n, 0);
	s->f->os.read_errno = 0;
	/* short and interrupted reads change nothing */
	s->f->os.stutter = true;
	for (int i = 0; i < RECORDS; i++) {
		assert_ok(read_record(s->pack, &s->at[i], s->got, &r, &err));
		assert_memory_equal(s->got, s->raw[i], sizes[i]);
	}
}

/* ---- the table of records ---- */

struct seen {
	struct sample *s;
	bool record[RECORDS];
	int count, stop_at;
	uint8_t last[32];
	bool sorted;
};

static int see(void *ctx, const struct ckf_trailer_entry *e)
{
	struct seen *seen = ctx;
	uint8_t digest[32];

	for (int i = 0; i < RECORDS; i++) {
		const struct ckc_place *at = &seen->s->at[i];

		if (e->off != at->off)
			continue;
		ckc_sha256(seen->s->raw[i], sizes[i], digest);
		if (e->head_len == at->head_len && e->codec == at->codec &&
		    e->stored_len == at->stored_len &&
		    e->raw_len == at->raw_len && e->kind == CKF_RECORD_CHUNK &&
		    memcmp(e->digest, digest, 32) == 0)
			seen->record[i] = true;
	}
	seen->sorted = seen->sorted && memcmp(seen->last, e->digest, 32) < 0;
	memcpy(seen->last, e->digest, 32);
	return ++seen->count == seen->stop_at ? 42 : 0;
}

static void saw(const struct seen *seen, int count)
{
	int n = 0;

	for (int i = 0; i < RECORDS; i++)
		n += seen->record[i];
	assert_int_equal(n, count);
	assert_int_equal(seen->count, count);
}

static void the_trailer_lists_every_record_by_digest(void **state)
{
	struct sample *s = *state;
	struct seen seen = { .s = s, .sorted = true }, some = { .s = s };
	struct ckpt_err err = { 0 };

	assert_ok(ckc_pack_trailer(s->pack, see, &seen, &err));
	saw(&seen, RECORDS);
	assert_true(seen.sorted);
	some.stop_at = 2;
	assert_code(ckc_pack_trailer(s->pack, see, &some, &err), 42);
	assert_int_equal(some.count, 2);
}

static void an_empty_pack_has_an_empty_trailer(void **state)
{
	struct sample *s = *state;
	struct ckpt_err err = { 0 };
	struct ckc_pack_writer *w = create(s->f, "empty");
	struct ckc_pack *p = NULL;
	int n = 0;

	assert_ok(ckc_pack_seal(w, &err));
	ckc_pack_writer_close(w);
	assert_ok(ckc_pack_open(&s->f->os.sys, s->f->fd, "empty", pack_uuid,
				&p, &err));
	assert_ok(ckc_pack_trailer(p, count_entry, &n, &err));
	assert_ok(ckc_pack_scan(p, count_entry, &n, &err));
	assert_int_equal(n, 0);
	assert_int_equal(ckc_pack_file_bytes(p), 64 + 64);
	assert_string_equal(ckc_pack_path(p), "empty");
	ckc_pack_close(p);
}

/* Checksums are right, entries are not: whoever wrote it meant harm (S10). */
static void hostile_trailers_are_refused(void **state)
{
	struct sample *s = *state;
	struct ckpt_err err = { 0 };
	const struct {
		size_t at, len; /* field of entry 2 */
		uint64_t value;
	} cases[] = {
		{ 32, 8, 0 }, { 32, 8, 65 }, { 32, 8, UINT64_MAX - 7 },
		{ 32, 8, s->len }, { 40, 4, 0 }, { 40, 4, 2u << 20 },
		{ 48, 8, 0 }, { 48, 8, UINT64_MAX }, { 56, 8, 0 },
		{ 56, 8, UINT64_MAX }, { 56, 8, 2ull << 40 },
		{ 0, 8, UINT64_MAX }, /* not sorted */
	};
	size_t table = s->len - CKF_FOOTER_BYTES -
		       RECORDS * CKF_TRAILER_ENTRY_BYTES;

	for (size_t i = 0; i < CKB_ARRAY_LEN(cases); i++) {
		uint8_t *b = malloc(s->len);
		struct ckf_footer foot;
		struct ckc_pack *p = NULL;
		uint8_t value[8];
		int n = 0;

		memcpy(b, s->bytes, s->len);
		ckb_put_u64(value, cases[i].value);
		memcpy(b + table + 2 * CKF_TRAILER_ENTRY_BYTES + cases[i].at,
		       value, cases[i].len);
		assert_ok(ckf_footer_decode(b + s->len - CKF_FOOTER_BYTES,
					    s->len, &foot, &err));
		foot.table_xxh3 = ckb_xxh3(b + table,
					   RECORDS * CKF_TRAILER_ENTRY_BYTES);
		ckf_footer_encode(&foot, b + s->len - CKF_FOOTER_BYTES);
		spew(s->f, "hostile", b, s->len);
		free(b);
		assert_ok(ckc_pack_open(&s->f->os.sys, s->f->fd, "hostile",
					NULL, &p, &err));
		assert_code(ckc_pack_trailer(p, count_entry, &n, &err),
			    CKPT_ECORRUPT);
		assert_says(err, "entry");
		assert_int_equal(n, 0);
		ckc_pack_close(p);
	}
}

static void a_footer_of_another_pack_is_refused(void **state)
{
	struct sample *s = *state;
	struct ckpt_err err = { 0 };
	struct ckf_footer foot;
	struct ckc_pack *p = NULL;
	int n = 0;

	assert_ok(ckf_footer_decode(s->bytes + s->len - CKF_FOOTER_BYTES,
				    s->len, &foot, &err));
	foot.uuid[0] ^= 1;
	ckf_footer_encode(&foot, s->bytes + s->len - CKF_FOOTER_BYTES);
	spew(s->f, "swapped", s->bytes, s->len);
	assert_ok(ckc_pack_open(&s->f->os.sys, s->f->fd, "swapped", NULL, &p,
				&err));
	assert_code(ckc_pack_trailer(p, count_entry, &n, &err), CKPT_ECORRUPT);
	assert_says(err, "another pack");
	ckc_pack_close(p);
}

/* ---- the scan ---- */

static void scan(struct sample *s, const char *name, struct seen *seen)
{
	struct ckpt_err err = { 0 };
	struct ckc_pack *p = NULL;

	*seen = (struct seen){ .s = s };
	assert_ok(ckc_pack_open(&s->f->os.sys, s->f->fd, name, NULL, &p,
				&err));
	assert_ok(ckc_pack_scan(p, see, seen, &err));
	ckc_pack_close(p);
}

static void a_scan_finds_all_records_without_a_trailer(void **state)
{
	struct sample *s = *state;
	size_t table = s->len - CKF_FOOTER_BYTES -
		       RECORDS * CKF_TRAILER_ENTRY_BYTES;
	size_t cuts[] = { s->len, s->len - 1, s->len - 64, table + 70, table };
	struct seen seen;

	for (size_t i = 0; i < CKB_ARRAY_LEN(cuts); i++) {
		assert_int_equal(ftruncate(s->x, (off_t)cuts[i]), 0);
		scan(s, "x", &seen);
		saw(&seen, RECORDS);
	}
	/* a record whose end is missing is none */
	uint64_t end = s->at[RECORDS - 1].off + s->at[RECORDS - 1].head_len +
		       s->at[RECORDS - 1].stored_len;

	assert_int_equal(ftruncate(s->x, (off_t)end - 1), 0);
	scan(s, "x", &seen);
	saw(&seen, RECORDS - 1);
	assert_false(seen.record[RECORDS - 1]);
}

static void a_scan_goes_on_behind_a_damaged_header(void **state)
{
	struct sample *s = *state;
	struct seen seen;

	for (int i = 0; i < RECORDS; i++)
		for (size_t at = 0; at < s->at[i].head_len; at += 5) {
			size_t off = s->at[i].off + at;
			uint8_t bad = (uint8_t)~s->bytes[off];

			assert_int_equal(pwrite(s->x, &bad, 1, (off_t)off), 1);
			scan(s, "x", &seen);
			assert_int_equal(pwrite(s->x, &s->bytes[off], 1,
						(off_t)off), 1);
			saw(&seen, RECORDS - 1);
			assert_false(seen.record[i]);
		}
	struct ckpt_err err = { 0 };

	seen = (struct seen){ .s = s, .stop_at = 3 };
	assert_code(ckc_pack_scan(s->pack, see, &seen, &err), 42);
	assert_int_equal(seen.count, 3);
}

static void a_scan_of_noise_ends(void **state)
{
	struct sample *s = *state;
	size_t len = 300000;
	uint8_t *b = malloc(len);
	struct seen seen;

	fill(b, len, NOISE, 5);
	memcpy(b, s->bytes, CKF_PACK_HEADER_BYTES);
	/* magics with nothing behind them, and one at the very end */
	for (size_t at = 64; at < len - 100; at += 1000)
		memcpy(b + at / 8 * 8, "ckptREC1", 8);
	memcpy(b + len - 8, "ckptREC1", 8);
	spew(s->f, "noise", b, len);
	free(b);
	scan(s, "noise", &seen);
	saw(&seen, 0);
}

/* ---- threads ---- */

struct reader {
	struct sample *s;
	bool wrong;
};

static void *read_all(void *arg)
{
	struct reader *me = arg;
	uint8_t *got = malloc(sizes[RECORDS - 1]);
	struct ckf_record r;

	for (int n = 0; n < 60; n++) {
		int i = n % RECORDS;

		if (read_record(me->s->pack, &me->s->at[i], got, &r, NULL) ||
		    memcmp(got, me->s->raw[i], sizes[i]) != 0)
			me->wrong = true;
	}
	free(got);
	return NULL;
}

static void threads_read_one_pack_at_once(void **state)
{
	struct reader readers[4];
	pthread_t threads[4];

	for (int i = 0; i < 4; i++) {
		readers[i] = (struct reader){ .s = *state };
		assert_int_equal(pthread_create(&threads[i], NULL, read_all,
						&readers[i]), 0);
	}
	for (int i = 0; i < 4; i++)
		pthread_join(threads[i], NULL);
	for (int i = 0; i < 4; i++)
		assert_false(readers[i].wrong);
}

#define T(name) \
	cmocka_unit_test_setup_teardown(name, sample_setup, sample_teardown)

int main(void)
{
	const struct CMUnitTest tests[] = {
		T(every_flip_is_found_or_harmless),
		T(a_flip_in_a_cell_costs_one_record),
		T(every_truncation_is_found),
		T(a_cell_past_the_end_names_path_and_offset),
		T(headers_asked_for_at_wrong_places_are_refused),
		T(what_is_no_such_pack_is_refused),
		T(a_read_that_fails_is_io_and_not_damage),
		T(the_trailer_lists_every_record_by_digest),
		T(an_empty_pack_has_an_empty_trailer),
		T(hostile_trailers_are_refused),
		T(a_footer_of_another_pack_is_refused),
		T(a_scan_finds_all_records_without_a_trailer),
		T(a_scan_goes_on_behind_a_damaged_header),
		T(a_scan_of_noise_ends),
		T(threads_read_one_pack_at_once),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
