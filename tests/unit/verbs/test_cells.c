/* SPDX-License-Identifier: Apache-2.0 */
/* test_cells.c - the cache of cells: verified, bounded, shared by threads. */
#include <pthread.h>
#include <stdatomic.h>
#include <time.h>

#include "mkstore.h"
#include "store_fixture.h"
#include "verbs/checkpoint.h"

#define CELL CKB_CELL_BYTES
#define THREADS 8

/* An operating system whose reads are slow, or fail. */
static atomic_int slow_ms, fail_reads;

static ssize_t slow_pread(const struct ckb_sys *sys, int fd, void *dst,
			  size_t len, uint64_t off)
{
	(void)sys;
	if (slow_ms > 0) {
		struct timespec t = { .tv_nsec = slow_ms * 1000000l };

		nanosleep(&t, NULL);
	}
	if (fail_reads)
		return -EIO;
	return ckb_sys_real()->pread(ckb_sys_real(), fd, dst, len, off);
}

struct at {
	struct mkstore mk;
	struct ckb_sys sys;
	struct ckpt_store *s;     /* over sys */
	struct ckpt_checkpoint *c;
	uint8_t *bytes;           /* of the one tensor */
	uint64_t len;
};

/* A file of 12 MiB and a bit: tiles of 1 MiB, four cells each. */
static const struct mk_tensor tensors[] = {
	{ .item = "assets", .name = "file", .media_type = "", .ndim = 1,
	  .dim = { 12 << 20 | 12345 } },
};

static void open_cache(struct at *a, size_t cache_bytes)
{
	struct ckpt_store_opts opts = { .size = sizeof(opts),
					.cache_bytes = cache_bytes };
	struct ckpt_err err = { 0 };

	ckpt_checkpoint_close(a->c);
	ckpt_store_close(a->s);
	assert_ok(cks_store_open_sys(&a->sys, a->mk.path, &opts, &a->s, &err));
	assert_ok(ckpt_checkpoint_open(a->s, "run/1", &a->c, &err));
}

static int setup_codec(void **state, enum ckf_codec codec)
{
	struct at *a = calloc(1, sizeof(*a));
	struct mk_opts opts = { .codec = codec };
	struct ckpt_err err = { 0 };

	assert_non_null(a);
	slow_ms = fail_reads = 0;
	a->sys = *ckb_sys_real();
	a->sys.pread = slow_pread;
	assert_ok(mkstore_new(&a->mk, 0, &err));
	assert_ok(mk_save(&a->mk, "run/1", tensors, 1, &opts, &err));
	a->bytes = mk_bytes(&tensors[0], &a->len);
	open_cache(a, 0);
	*state = a;
	return 0;
}

static int setup(void **state)
{
	return setup_codec(state, CKF_CODEC_RAW);
}

static int setup_zstd(void **state)
{
	return setup_codec(state, CKF_CODEC_ZSTD);
}

static int teardown(void **state)
{
	struct at *a = *state;

	ckpt_checkpoint_close(a->c);
	ckpt_store_close(a->s);
	mkstore_free(&a->mk);
	free(a->bytes);
	free(a);
	return 0;
}

/* Chunk number @i as the manifest has it. */
static struct cks_chunk chunk(struct at *a, uint64_t i)
{
	const struct cks_chunks *k;
	struct ckpt_err err = { 0 };

	assert_ok(cks_checkpoint_chunks(a->c, ckpt_tensor_at(a->c, 0), &k,
					&err));
	assert_true(i < k->count);
	const struct ckf_chunk_entry *e = &k->entries[i];
	struct cks_chunk c = {
		.off = e->off, .stored_len = e->stored_len,
		.head_len = e->head_len, .raw_len = e->raw_len,
		.codec = e->codec, .digest = e->digest,
	};

	memcpy(c.pack, cks_checkpoint_pack(a->c, e->pack), sizeof(c.pack));
	return c;
}

static struct cks_cells_counters counters(struct at *a)
{
	struct cks_cells_counters n;

	cks_cells_counters(a->s, &n);
	return n;
}

static struct cks_cell *get(struct at *a, uint64_t i, uint32_t index)
{
	struct cks_chunk c = chunk(a, i);
	struct cks_cell *cell;
	struct ckpt_err err = { 0 };
	uint32_t len;

	assert_ok(cks_cell_get(a->s, &c, index, &cell, &err));
	const uint8_t *data = cks_cell_data(cell, &len);

	assert_int_equal(len, ckf_cell_raw_len(c.raw_len, index));
	assert_memory_equal(data, a->bytes + i * CKB_FILE_TILE_BYTES +
			    (size_t)index * CELL, len);
	return cell;
}

static void a_cell_is_decoded_once(void **state)
{
	struct at *a = *state;

	for (int round = 0; round < 3; round++)
		for (uint64_t i = 0; i < 13; i++)
			cks_cell_put(a->s, get(a, i, 0));
	assert_int_equal(counters(a).misses, 13);
	assert_int_equal(counters(a).hits, 26);
	assert_int_equal(counters(a).decoded_bytes, 12 * CELL + 12345);
}

static void memory_is_the_budget_and_what_is_pinned(void **state)
{
	static const size_t budgets[] = { 1, 1 << 20, 3 << 20, 8 << 20 };
	struct at *a = *state;

	for (size_t b = 0; b < CKB_ARRAY_LEN(budgets); b++) {
		size_t budget = budgets[b] < 5 * CELL ? 5 * CELL : budgets[b];
		struct cks_cell *pinned[13];

		open_cache(a, budgets[b]);
		for (int round = 0; round < 2; round++)
			for (uint64_t i = 0; i < 48; i++) {
				cks_cell_put(a->s, get(a, i / 4, i % 4));
				assert_true(counters(a).held_bytes <= budget);
			}
		for (uint64_t i = 0; i < 13; i++)
			pinned[i] = get(a, i, 0);
		assert_true(counters(a).held_bytes <= budget + 14 * CELL);
		for (uint64_t i = 0; i < 48; i++)
			cks_cell_put(a->s, get(a, i / 4, i % 4));
		/* what is pinned stays what it was */
		for (uint64_t i = 0; i < 13; i++) {
			uint32_t len;
			const uint8_t *p = cks_cell_data(pinned[i], &len);

			assert_memory_equal(p, a->bytes +
					    i * CKB_FILE_TILE_BYTES, len);
			cks_cell_put(a->s, pinned[i]);
		}
		assert_true(counters(a).held_bytes <= budget);
	}
}

/* mount-17: two readers of different places do not push each other out. */
static void the_smallest_cache_serves_two_readers(void **state)
{
	struct at *a = *state;

	open_cache(a, 1);
	for (int i = 0; i < 100; i++) {
		cks_cell_put(a->s, get(a, 2, 1));
		cks_cell_put(a->s, get(a, 9, 3));
	}
	assert_int_equal(counters(a).misses, 2);
}

static void the_least_recently_used_goes_first(void **state)
{
	struct at *a = *state;

	open_cache(a, 1); /* four cells, a header each */
	cks_cell_put(a->s, get(a, 0, 0));
	for (uint32_t i = 0; i < 40; i++) {
		cks_cell_put(a->s, get(a, 1 + i / 4, i % 4));
		cks_cell_put(a->s, get(a, 0, 0));
	}
	assert_int_equal(counters(a).misses, 41);
}

/* A table in parts may fill one part while others are empty: a small one is
 * not parted. */
static void a_small_cache_holds_what_it_has_room_for(void **state)
{
	struct at *a = *state;

	open_cache(a, 8 << 20);
	for (int round = 0; round < 3; round++)
		for (uint64_t i = 0; i < 30; i++)
			cks_cell_put(a->s, get(a, i / 4, i % 4));
	assert_int_equal(counters(a).misses, 30);
}

static void a_record_that_is_not_the_manifests_is_refused(void **state)
{
	struct at *a = *state;
	struct cks_chunk good = chunk(a, 3);
	uint8_t digest[CKPT_DIGEST_BYTES];
	struct ckpt_err err = { 0 };

	memcpy(digest, good.digest, sizeof(digest));
	digest[31] ^= 1;
	/* before the record is cached, and after */
	for (int round = 0; round < 2; round++) {
		struct cks_chunk bad[5] = { good, good, good, good, good };
		struct cks_cell *cell = (void *)1;

		bad[0].digest = digest;
		bad[1].stored_len--;
		bad[2].codec ^= 1;
		bad[3].raw_len--;
		bad[4].off += 8;
		for (size_t i = 0; i < CKB_ARRAY_LEN(bad); i++) {
			assert_code(cks_cell_get(a->s, &bad[i], 0, &cell,
						 &err), CKPT_ECORRUPT);
			assert_null(cell);
			assert_code(cks_cell_read(a->s, &bad[i], 0, a->bytes,
						  NULL), CKPT_ECORRUPT);
		}
		cks_cell_put(a->s, get(a, 3, 0));
	}
}

static void what_failed_is_not_kept(void **state)
{
	struct at *a = *state;
	char *pack = mk_only_pack(&a->mk);
	struct cks_chunk c = chunk(a, 2);
	struct cks_cell *cell;
	struct ckpt_err err = { 0 };
	uint64_t payload = c.off + c.head_len;

	mk_flip(pack, payload + 77, 4);
	for (int i = 0; i < 2; i++) {
		assert_code(cks_cell_get(a->s, &c, 0, &cell, &err),
			    CKPT_ECORRUPT);
		assert_null(cell);
		assert_says(err, "cell 0");
		assert_says(err, "checksum");
	}
	cks_cell_put(a->s, get(a, 2, 1)); /* its neighbour is whole */
	mk_flip(pack, payload + 77, 4);
	cks_cell_put(a->s, get(a, 2, 0));
	mk_flip(pack, c.off + 50, 1); /* a cached header is not read */
	cks_cell_put(a->s, get(a, 2, 2));
	free(pack);
}

static void a_direct_read_keeps_nothing_and_uses_what_is_kept(void **state)
{
	struct at *a = *state;
	struct cks_chunk c = chunk(a, 1);
	uint8_t *to = malloc(CELL);
	struct ckpt_err err = { 0 };

	assert_ok(cks_cell_read(a->s, &c, 2, to, &err));
	assert_memory_equal(to, a->bytes + (1 << 20) + 2 * CELL, CELL);
	assert_true(counters(a).held_bytes < CELL);
	cks_cell_put(a->s, get(a, 1, 2));
	fail_reads = 1;
	memset(to, 0, CELL);
	assert_ok(cks_cell_read(a->s, &c, 2, to, &err));
	assert_memory_equal(to, a->bytes + (1 << 20) + 2 * CELL, CELL);
	assert_code(cks_cell_read(a->s, &c, 3, to, &err), CKPT_EIO);
	free(to);
}

/* ---- threads ---- */

struct reader {
	struct at *a;
	struct cks_chunk chunk;
	pthread_barrier_t *start;
	int rc;
	struct ckpt_err err;
	bool right;
};

static void *read_one(void *arg)
{
	struct reader *r = arg;
	struct cks_cell *cell;
	uint32_t len;

	pthread_barrier_wait(r->start);
	r->rc = cks_cell_get(r->a->s, &r->chunk, 0, &cell, &r->err);
	if (r->rc == 0) {
		const uint8_t *p = cks_cell_data(cell, &len);

		r->right = len == CELL &&
			   memcmp(p, r->a->bytes + (5 << 20), len) == 0;
	}
	cks_cell_put(r->a->s, cell);
	return NULL;
}

static void run_all(struct at *a, struct reader *r)
{
	pthread_t threads[THREADS];
	pthread_barrier_t start;

	pthread_barrier_init(&start, NULL, THREADS);
	for (int i = 0; i < THREADS; i++) {
		r[i] = (struct reader){ .a = a, .chunk = chunk(a, 5),
					.start = &start };
		assert_int_equal(pthread_create(&threads[i], NULL, read_one,
						&r[i]), 0);
	}
	for (int i = 0; i < THREADS; i++)
		pthread_join(threads[i], NULL);
	pthread_barrier_destroy(&start);
}

static void many_threads_ask_and_one_decodes(void **state)
{
	struct at *a = *state;
	struct reader r[THREADS];

	chunk(a, 0); /* the chunk list is there */
	slow_ms = 20;
	run_all(a, r);
	for (int i = 0; i < THREADS; i++) {
		assert_int_equal(r[i].rc, 0);
		assert_true(r[i].right);
	}
	assert_int_equal(counters(a).misses, 1);
	assert_int_equal(counters(a).decoded_bytes, CELL);
}

static void who_waits_for_a_failed_load_hears_of_it(void **state)
{
	struct at *a = *state;
	struct reader r[THREADS];

	chunk(a, 0);
	cks_cell_put(a->s, get(a, 5, 1)); /* pack and header are there */
	slow_ms = 20;
	fail_reads = 1;
	run_all(a, r);
	for (int i = 0; i < THREADS; i++) {
		assert_int_equal(r[i].rc, CKPT_EIO);
		assert_int_equal(r[i].err.code, CKPT_EIO);
		assert_true(r[i].err.message[0] != '\0');
	}
	fail_reads = 0;
	run_all(a, r);
	for (int i = 0; i < THREADS; i++)
		assert_true(r[i].rc == 0 && r[i].right);
}

int main(void)
{
#define T(f) cmocka_unit_test_setup_teardown(f, setup, teardown)
#define Z(f) { #f "_zstd", f, setup_zstd, teardown, NULL }
	const struct CMUnitTest tests[] = {
		T(a_cell_is_decoded_once),
		Z(a_cell_is_decoded_once),
		T(memory_is_the_budget_and_what_is_pinned),
		Z(memory_is_the_budget_and_what_is_pinned),
		T(the_smallest_cache_serves_two_readers),
		T(the_least_recently_used_goes_first),
		T(a_small_cache_holds_what_it_has_room_for),
		T(a_record_that_is_not_the_manifests_is_refused),
		Z(a_record_that_is_not_the_manifests_is_refused),
		T(what_failed_is_not_kept),
		Z(what_failed_is_not_kept),
		T(a_direct_read_keeps_nothing_and_uses_what_is_kept),
		Z(a_direct_read_keeps_nothing_and_uses_what_is_kept),
		T(many_threads_ask_and_one_decodes),
		T(who_waits_for_a_failed_load_hears_of_it),
		Z(who_waits_for_a_failed_load_hears_of_it),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
