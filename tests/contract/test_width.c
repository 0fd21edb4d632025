/* SPDX-License-Identifier: Apache-2.0 */
/*
 * test_width.c - tensors whose sizes and offsets no 32 bits hold, through the
 * calls of the library.
 *
 * The caller's memory is one file of 7 MiB, mapped over and over: gigabytes of
 * addresses in little memory. 7 divides no power of two, so an offset that lost
 * its high bits finds other bytes. Each block of it is one byte repeated, so
 * that zstd leaves little of what no two tiles have in common.
 */
#include "save_fixture.h"

#include <errno.h>
#include <fcntl.h>
#include <sys/mman.h>

#include "base/sys.h"

#define MIB (1ull << 20)
#define GIB (1ull << 30)
#define PERIOD (7 * MIB)
#define BLOCK 4096u
#define WINDOW (64u << 10)
#define MOST (4100 * MIB) /* the largest tensor */

/* ---- gigabytes of memory ---- */

static uint8_t *period; /* what is repeated */
static const uint8_t *memory;
static uint8_t *have;

static int make_memory(void **state)
{
	int fd = memfd_create("period", MFD_CLOEXEC);
	uint8_t *at = mmap(NULL, MOST + PERIOD, PROT_NONE,
			   MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);

	(void)state;
	period = fix_bytes(PERIOD, 1);
	for (uint64_t off = 0; off < PERIOD; off += BLOCK)
		memset(period + off, period[off], BLOCK);
	have = malloc(8 * MIB);
	if (fd < 0 || at == MAP_FAILED || !have ||
	    write(fd, period, PERIOD) != (ssize_t)PERIOD)
		return -1;
	memory = at;
	for (uint64_t off = 0; off < MOST; off += PERIOD)
		if (mmap(at + off, PERIOD, PROT_READ, MAP_SHARED | MAP_FIXED,
			 fd, 0) == MAP_FAILED)
			return -1;
	close(fd);
	return 0;
}

static int drop_memory(void **state)
{
	(void)state;
	munmap((void *)(uintptr_t)memory, MOST + PERIOD);
	free(period);
	free(have);
	return 0;
}

static void zstd_writer(struct fix *f)
{
	const struct ckpt_writer_opts opts = { .size = sizeof(opts),
					       .codec = CKPT_CODEC_ZSTD };
	struct ckpt_err err = { 0 };

	ckpt_writer_close(f->writer);
	f->writer = NULL;
	assert_ok(ckpt_writer_open(f->store, &opts, &f->writer, &err));
}

/* A tensor of the memory from byte @first on. */
static void add(struct ckpt_save *s, uint32_t item, const char *name,
		struct ckpt_shape shape, uint64_t first)
{
	struct ckpt_tensor_desc d = fix_desc(name, CKPT_U8, shape);
	struct ckpt_provider p;
	struct ckpt_err err = { 0 };

	assert_ok(ckpt_provider_host(memory + first, ckt_shape_count(&shape),
				     &p, &err));
	assert_ok(ckpt_save_tensor(s, item, &d, &p, &err));
}

/* By the formula: byte @off is that of the period, which began @first ago. */
static void expect_bytes(struct ckpt_checkpoint *c,
			 const struct ckpt_tensor_info *t, uint64_t first,
			 uint64_t off, uint64_t len)
{
	struct ckpt_err err = { 0 };

	assert_ok(ckpt_read_bytes(c, t, off, len, have, &err));
	for (uint64_t i = 0; i < len;) {
		uint64_t at = (first + off + i) % PERIOD;
		uint64_t n = ckb_min_u64(len - i, PERIOD - at);

		if (memcmp(have + i, period + at, n) != 0)
			fail_msg("'%s' differs in [%ju, %ju)", t->name,
				 (uintmax_t)(off + i),
				 (uintmax_t)(off + i + n));
		i += n;
	}
}

/* width-01, width-02 */
static void more_bytes_than_32_bits_tell_read_back(void **state)
{
	static const struct {
		const char *name;
		uint64_t bytes;
	} cases[] = {
		{ "2^31-1", 2 * GIB - 1 },
		{ "2^31", 2 * GIB },
		{ "2^32+1", 4 * GIB + 1 },
	};
	static const uint64_t edges[] = { 0, 2 * GIB, 4 * GIB };
	struct fix *f = *state;
	struct ckpt_err err = { 0 };
	struct ckpt_save_progress done;
	uint32_t item;

	zstd_writer(f);
	struct ckpt_save *s = fix_begin(f->writer, "wide", false, &item);

	for (size_t i = 0; i < CKB_ARRAY_LEN(cases); i++)
		add(s, item, cases[i].name, SHAPE(1, cases[i].bytes), 0);
	assert_ok(ckpt_save_start(s, &err));
	assert_ok(ckpt_save_wait(s, CKPT_DURABLE, &err));
	ckpt_save_progress(s, &done);
	ckpt_save_free(s);
	assert_int_equal(done.bytes_total, 8 * GIB);
	assert_true(done.bytes_written < 256 * MIB);
	struct ckpt_checkpoint *c = fix_opened(f->store, "wide");

	for (size_t i = 0; i < CKB_ARRAY_LEN(cases); i++) {
		const struct ckpt_tensor_info *t =
			fix_find(c, "model", cases[i].name);

		assert_int_equal(t->bytes, cases[i].bytes);
		for (uint64_t off = 0; off < t->bytes; off += 8 * MIB)
			expect_bytes(c, t, 0, off,
				     ckb_min_u64(8 * MIB, t->bytes - off));
		for (size_t e = 0; e < CKB_ARRAY_LEN(edges); e++)
			for (uint64_t off = edges[e] > WINDOW
						    ? edges[e] - WINDOW - 1
						    : 0;
			     off <= edges[e] + 1 && off + WINDOW <= t->bytes;
			     off += WINDOW / 8 + 1)
				expect_bytes(c, t, 0, off, WINDOW);
		expect_bytes(c, t, 0, t->bytes - WINDOW, WINDOW);
		assert_code(ckpt_read_bytes(c, t, t->bytes, 1, have, &err),
			    CKPT_EINVAL);
	}
	ckpt_checkpoint_close(c);
}

/* width-02: a 3-D slice that begins past 2^32 */
static void a_slice_past_2_to_the_32_is_cut_right(void **state)
{
	static const struct ckpt_box box = {
		3, { 4097, 1000, 500 }, { 3, 24, 524 }
	};
	struct fix *f = *state;
	struct ckpt_err err = { 0 };
	uint32_t item;

	zstd_writer(f);
	struct ckpt_save *s = fix_begin(f->writer, "deep", false, &item);

	add(s, item, "t", SHAPE(3, 4100, 1024, 1024), 0);
	assert_ok(fix_finish(s, &err));
	struct ckpt_checkpoint *c = fix_opened(f->store, "deep");
	const uint8_t *at = have;

	assert_ok(ckpt_read_box(c, fix_find(c, "model", "t"), &box, have, NULL,
				&err));
	for (uint64_t i = 4097; i < 4100; i++)
		for (uint64_t j = 1000; j < 1024; j++)
			for (uint64_t k = 500; k < 1024; k++, at++)
				if (*at != period[(i * MIB + j * 1024 + k) %
						  PERIOD])
					fail_msg("[%ju,%ju,%ju] differs",
						 (uintmax_t)i, (uintmax_t)j,
						 (uintmax_t)k);
	ckpt_checkpoint_close(c);
}

/* ---- a system that never writes what it is asked to ---- */

struct meagre {
	struct ckb_sys sys; /* first */
	atomic_uint turn;
	atomic_ullong most; /* asked for in one call */
};

/* Every third call is interrupted, others write a part: whole blocks where it
 * is a direct write, as a system does. */
static ssize_t meagre_pwritev(const struct ckb_sys *sys, int fd,
			      const struct iovec *iov, int count, uint64_t off)
{
	struct meagre *m = (struct meagre *)(uintptr_t)sys;
	unsigned turn = atomic_fetch_add(&m->turn, 1);
	size_t few = fcntl(fd, F_GETFL) & O_DIRECT ? 73 * 4096 : 299999;
	struct iovec part = *iov;
	uint64_t all = 0;

	for (int i = 0; i < count; i++)
		all += iov[i].iov_len;
	if (all > atomic_load(&m->most))
		atomic_store(&m->most, all);
	if (turn % 3 == 0)
		return -EINTR;
	if (part.iov_len > few)
		part.iov_len = few;
	return ckb_sys_real()->pwritev(ckb_sys_real(), fd, &part, 1, off);
}

static ssize_t meagre_pwrite(const struct ckb_sys *sys, int fd,
			     const void *src, size_t len, uint64_t off)
{
	struct iovec one = { (void *)(uintptr_t)src, len };

	return meagre_pwritev(sys, fd, &one, 1, off);
}

/* width-08: one buffer of 3 GiB, written past the page cache and through it. No
 * call asks for more than Linux writes in one (0x7ffff000 bytes), by far, and
 * what it did not write is gone on with. */
static void a_buffer_of_3_gib_passes_short_writes(void **state)
{
	static const enum ckpt_io ios[] = { CKPT_IO_DIRECT, CKPT_IO_BUFFERED };
	struct fix *f = *state;
	struct meagre m = { .sys = *ckb_sys_real() };
	struct ckpt_store *store;
	struct ckpt_err err = { 0 };

	m.sys.pwrite = meagre_pwrite;
	m.sys.pwritev = meagre_pwritev;
	assert_ok(cks_store_open_sys(&m.sys, f->path, NULL, &store, &err));
	for (uint64_t i = 0; i < 2; i++) {
		const struct ckpt_writer_opts opts = { .size = sizeof(opts),
						       .io = ios[i] };
		const char *name = i == 0 ? "direct" : "buffered";
		struct ckpt_writer *w;
		uint32_t item;

		assert_ok(ckpt_writer_open(store, &opts, &w, &err));
		struct ckpt_save *s = fix_begin(w, name, false, &item);

		atomic_store(&m.turn, 0);
		add(s, item, "t", SHAPE(1, 3 * GIB), i * 12345);
		assert_ok(fix_finish(s, &err));
		ckpt_writer_close(w);
		assert_true(atomic_load(&m.turn) > 150);
		assert_in_range(atomic_load(&m.most), 1 << 20, 128 << 20);
		struct ckpt_checkpoint *c = fix_opened(f->store, name);
		const struct ckpt_tensor_info *t = fix_find(c, "model", "t");

		for (uint64_t off = 0; off < t->bytes; off += 8 * MIB)
			expect_bytes(c, t, i * 12345, off, 8 * MIB);
		ckpt_checkpoint_close(c);
	}
	ckpt_store_close(store);
}

#define TEST(name) \
	cmocka_unit_test_setup_teardown(name, fix_setup, fix_teardown)

int main(void)
{
	const struct CMUnitTest tests[] = {
		TEST(more_bytes_than_32_bits_tell_read_back),
		TEST(a_slice_past_2_to_the_32_is_cut_right),
		TEST(a_buffer_of_3_gib_passes_short_writes),
	};

	return cmocka_run_group_tests(tests, make_memory, drop_memory);
}
