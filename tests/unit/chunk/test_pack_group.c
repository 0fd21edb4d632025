/* SPDX-License-Identifier: Apache-2.0 */
/*
 * test_pack_group.c - records that go to a pack in groups, from where they lie:
 * where they come to lie, in how many calls, and what a short or failed call
 * does to them. The rest of pack_write.c is test_pack_write.c's.
 */
#include "pack_fixture.h"

#include <fcntl.h>
#include <pthread.h>
#include <sys/stat.h>

#define MIB (1u << 20)

/* ---- a system of whole blocks ---- */

/* An operating system that wants whole blocks where a file was opened for
 * direct writes, on any file system, and counts, shortens and fails writev. */
struct blocks {
	struct ckb_sys sys;  /* first */
	bool direct;         /* asked for at the last open */
	bool nowhere;        /* writes are lost; no descriptor is needed */
	unsigned calls, turns, syncs;
	size_t few;          /* a call moves no more, every other none */
	unsigned fail_at;    /* the n-th call that moves something */
	unsigned wrong;      /* pieces that are no blocks */
};

static struct blocks *blocks_of(const struct ckb_sys *sys)
{
	return (struct blocks *)(uintptr_t)sys;
}

static int blocks_openat(const struct ckb_sys *sys, int dirfd,
			 const char *path, int flags, mode_t mode)
{
	blocks_of(sys)->direct = flags & O_DIRECT;
	return ckb_sys_real()->openat(ckb_sys_real(), dirfd, path,
				      flags & ~O_DIRECT, mode);
}

static void look_at(struct blocks *b, const void *data, size_t len,
		    uint64_t off)
{
	b->wrong += b->direct && ((uintptr_t)data % 4096 != 0 ||
				  len % 4096 != 0 || off % 4096 != 0);
}

static ssize_t blocks_pwrite(const struct ckb_sys *sys, int fd,
			     const void *src, size_t len, uint64_t off)
{
	look_at(blocks_of(sys), src, len, off);
	return blocks_of(sys)->nowhere ? (ssize_t)len
	     : ckb_sys_real()->pwrite(ckb_sys_real(), fd, src, len, off);
}

static ssize_t blocks_pwritev(const struct ckb_sys *sys, int fd,
			      const struct iovec *iov, int count, uint64_t off)
{
	struct blocks *b = blocks_of(sys);
	struct iovec some[64];
	size_t left = b->few ? b->few : SIZE_MAX, all = 0;
	int n = 0;

	assert_in_range(count, 1, CKB_ARRAY_LEN(some));
	for (; n < count && left > 0; n++) {
		look_at(b, iov[n].iov_base, iov[n].iov_len, off + all);
		some[n] = iov[n];
		some[n].iov_len = ckb_min_u64(left, some[n].iov_len);
		left -= some[n].iov_len;
		all += some[n].iov_len;
	}
	if (b->few && b->turns++ % 2 == 0)
		return -EINTR;
	if (++b->calls == b->fail_at)
		return -ENOSPC;
	return b->nowhere ? (ssize_t)all
	     : ckb_sys_real()->pwritev(ckb_sys_real(), fd, some, n, off);
}

static int blocks_fsync(const struct ckb_sys *sys, int fd)
{
	(void)fd;
	blocks_of(sys)->syncs++;
	return 0;
}

static int blocks_fallocate(const struct ckb_sys *sys, int fd, uint64_t off,
			    uint64_t len)
{
	return blocks_of(sys)->nowhere ? 0
	     : ckb_sys_real()->fallocate(ckb_sys_real(), fd, off, len);
}

static int blocks_ftruncate(const struct ckb_sys *sys, int fd, uint64_t len)
{
	return blocks_of(sys)->nowhere ? 0
	     : ckb_sys_real()->ftruncate(ckb_sys_real(), fd, len);
}

static struct blocks blocks_made(void)
{
	struct blocks b = { .sys = *ckb_sys_real() };

	b.sys.openat = blocks_openat;
	b.sys.pwrite = blocks_pwrite;
	b.sys.pwritev = blocks_pwritev;
	b.sys.fsync = blocks_fsync;
	b.sys.fallocate = blocks_fallocate;
	b.sys.ftruncate = blocks_ftruncate;
	return b;
}

/* ---- groups ---- */

/* Up to eight records of noise, and the memory they are written from. */
struct group {
	uint8_t *data, *head;
	struct ckf_record records[CKC_PUT_MAX];
	struct ckf_cell cells[CKC_PUT_MAX][CKB_CHUNK_CELL_MAX];
	struct ckc_put puts[CKC_PUT_MAX];
	uint32_t count;
};

static void group_make(struct group *g, struct ckc_codec *raw_codec,
		       const size_t *lens, uint32_t count, uint64_t seed)
{
	struct ckpt_err err = { 0 };
	size_t at = 0;

	if (!g->data) {
		g->data = aligned_alloc(4096, 4 * MIB);
		g->head = aligned_alloc(4096, CKC_HEAD_BYTES);
	}
	g->count = count;
	for (uint32_t i = 0; i < count; i++) {
		uint8_t digest[32], *to = g->data + at;

		assert_true(at + lens[i] <= 4 * MIB);
		fill(to, lens[i], NOISE, seed * CKC_PUT_MAX + i);
		ckc_sha256(to, lens[i], digest);
		g->records[i] = (struct ckf_record){ .cells = g->cells[i] };
		g->puts[i].record = &g->records[i];
		assert_int_equal(ckc_record_code(raw_codec, digest, to,
						 lens[i], NULL, NULL,
						 &g->records[i],
						 &g->puts[i].data, &err), 0);
		at += ckb_div_up(lens[i], 4096) * 4096;
	}
}

static int group_put(struct ckc_pack_writer *w, struct group *g,
		     struct ckpt_err *err)
{
	return ckc_pack_put(w, CKF_RECORD_CHUNK, g->puts, g->count, g->head,
			    err);
}

static void group_drop(struct group *g)
{
	free(g->data);
	free(g->head);
}

static int count_entry(void *ctx, const struct ckf_trailer_entry *e)
{
	(void)e;
	++*(unsigned *)ctx;
	return 0;
}

static const size_t group_lens[CKC_PUT_MAX] = {
	65536, 65537, 100000, 262144, 262145, MIB, 17 * 4096, 700001,
	/* with all the room that a gap and what is left of a block take */
	69631, 69632, 73727, 73721, 77823, 81913, 86015, 65543,
};
static const size_t small_lens[] = { 100, 5000, 1, 65535 };

static struct ckc_pack_writer *pack_of(struct packs *f, struct blocks *b,
				       const char *name, bool direct)
{
	struct ckc_pack_writer *w;
	struct ckpt_err err = { 0 };

	assert_ok(ckc_pack_create(&b->sys, f->fd, name, pack_uuid, store_uuid,
				  direct, &w, &err));
	return w;
}

/* Where the records of @g came to lie: one behind another, behind @end. */
static uint64_t check_places(const struct group *g, uint64_t end)
{
	for (uint32_t i = 0; i < g->count; i++) {
		const struct ckc_place *at = &g->puts[i].place;
		bool large = g->records[i].raw_len >= 65536;

		assert_int_equal(at->stored_len, g->records[i].raw_len);
		assert_in_range(at->off, end, end + 4096 + 8);
		assert_int_equal(at->off % 8, 0);
		if (large)
			assert_int_equal((at->off + at->head_len) % 4096, 0);
		end = at->off + at->head_len + at->stored_len;
	}
	return end;
}

static void check_group(struct ckc_pack *p, const struct group *g)
{
	static uint8_t again[MIB];
	struct ckpt_err err = { 0 };
	struct ckf_record r;

	for (uint32_t i = 0; i < g->count; i++) {
		const struct ckc_put *put = &g->puts[i];

		assert_ok(read_record(p, &put->place, again, &r, &err));
		assert_memory_equal(again, put->data, put->place.raw_len);
		assert_memory_equal(r.digest, put->record->digest, 32);
	}
}

static void a_group_goes_in_one_call_of_whole_blocks(void **state)
{
	struct packs *f = *state;

	for (int direct = 0; direct < 2; direct++) {
		struct blocks b = blocks_made();
		struct group groups[4] = { 0 };
		const char *name = direct ? "direct" : "buffered";
		struct ckc_pack_writer *w = pack_of(f, &b, name, direct);
		uint64_t end = CKF_PACK_HEADER_BYTES;
		struct ckpt_err err = { 0 };
		unsigned listed = 0, scanned = 0;
		struct ckc_pack *p = NULL;
		struct stat st;

		assert_int_equal(b.direct, direct);
		for (uint32_t i = 0; i < 4; i++) {
			bool small = i == 2;

			group_make(&groups[i], f->raw,
				   small ? small_lens : group_lens,
				   small ? CKB_ARRAY_LEN(small_lens)
					 : CKC_PUT_MAX, i);
			b.calls = 0;
			assert_ok(group_put(w, &groups[i], &err));
			/* small ones wait for company */
			assert_int_equal(b.calls, small ? 0 : 1);
			end = check_places(&groups[i], end);
		}
		assert_ok(ckc_pack_seal(w, &err));
		ckc_pack_writer_close(w);
		assert_int_equal(b.wrong, 0);
		/* no block of zeros is left at the end */
		assert_int_equal(fstatat(f->fd, name, &st, 0), 0);
		assert_int_equal(st.st_size, (end + 7) / 8 * 8 +
				 (3 * CKC_PUT_MAX + 4) *
				 CKF_TRAILER_ENTRY_BYTES + CKF_FOOTER_BYTES);
		assert_ok(ckc_pack_open(ckb_sys_real(), f->fd, name, NULL, &p,
					&err));
		for (uint32_t i = 0; i < 4; i++) {
			check_group(p, &groups[i]);
			group_drop(&groups[i]);
		}
		assert_ok(ckc_pack_trailer(p, count_entry, &listed, &err));
		assert_ok(ckc_pack_scan(p, count_entry, &scanned, &err));
		assert_int_equal(listed, 3 * CKC_PUT_MAX + 4);
		assert_int_equal(scanned, listed);
		ckc_pack_close(p);
	}
}

/* Cut in a header, in a payload, between two pieces: nothing is lost, nothing
 * written twice elsewhere. */
static void short_writes_of_a_group_are_gone_on_with(void **state)
{
	static const size_t few[] = { 0, 4096, 2 * 4096, 17 * 4096,
				      64 * 4096 };
	struct packs *f = *state;
	struct group g = { 0 };
	struct ckpt_err err = { 0 };
	uint8_t *want = NULL;
	size_t len = 0;

	for (size_t i = 0; i < CKB_ARRAY_LEN(few); i++) {
		struct blocks b = blocks_made();
		char name[16];

		snprintf(name, sizeof(name), "p%zu", i);
		struct ckc_pack_writer *w = pack_of(f, &b, name, true);

		b.few = few[i];
		for (uint32_t n = 0; n < 2; n++) {
			group_make(&g, f->raw, group_lens, CKC_PUT_MAX, n);
			assert_ok(group_put(w, &g, &err));
		}
		assert_ok(ckc_pack_seal(w, &err));
		ckc_pack_writer_close(w);
		assert_int_equal(b.wrong, 0);
		assert_true(few[i] == 0 || b.calls >= 4 * MIB / few[i]);
		size_t have_len;
		uint8_t *have = slurp(f, name, &have_len);

		if (i == 0) {
			want = have;
			len = have_len;
			continue;
		}
		assert_int_equal(have_len, len);
		assert_memory_equal(have, want, len);
		free(have);
	}
	free(want);
	group_drop(&g);
}

/* The disk is full after some of the group: it poisons the pack (S5). */
static void a_group_that_fails_in_its_midst_poisons_the_pack(void **state)
{
	struct packs *f = *state;
	struct group g = { 0 };
	unsigned n = 1;

	group_make(&g, f->raw, group_lens, CKC_PUT_MAX, 1);
	for (;; n++) {
		struct blocks b = blocks_made();
		struct ckpt_err err = { 0 };
		char name[16];

		snprintf(name, sizeof(name), "p%u", n);
		struct ckc_pack_writer *w = pack_of(f, &b, name, true);

		b.few = 64 * 4096;
		b.fail_at = n;
		int rc = group_put(w, &g, &err);

		if (rc == 0) {
			ckc_pack_writer_close(w);
			break;
		}
		struct ckpt_err first = err;

		assert_int_equal(rc, CKPT_ENOSPC);
		assert_int_equal(err.sys_errno, ENOSPC);
		assert_says(err, name);
		assert_int_equal(b.calls, n);
		for (int i = 0; i < 2; i++) {
			assert_code(group_put(w, &g, &err), CKPT_ENOSPC);
			assert_string_equal(err.message, first.message);
		}
		assert_code(ckc_pack_seal(w, &err), CKPT_ENOSPC);
		assert_int_equal(b.calls, n);
		assert_int_equal(b.syncs, 0);
		ckc_pack_writer_close(w);
	}
	assert_true(n > 8);
	group_drop(&g);
}

/* A pack of 1 TiB, written nowhere. What does not fit writes nothing, and is a
 * failure like others: some of the group may have a place. */
static void a_group_that_does_not_fit_poisons_the_pack(void **state)
{
	static const size_t one = 3 * MIB, little = 100;
	struct packs *f = *state;
	struct blocks b = blocks_made();
	struct ckc_pack_writer *w = pack_of(f, &b, "p", true);
	struct group g = { 0 }, last = { 0 };
	struct ckpt_err err = { 0 };
	const struct ckc_place *at = &g.puts[CKC_PUT_MAX - 1].place;
	uint64_t end = 0;
	int rc;

	b.nowhere = true;
	group_make(&g, f->raw, &one, 1, 1);
	g.count = CKC_PUT_MAX; /* all the same */
	for (uint32_t i = 1; i < CKC_PUT_MAX; i++)
		g.puts[i] = g.puts[0];
	while ((rc = group_put(w, &g, &err)) == 0)
		end = at->off + at->head_len + at->stored_len;
	assert_int_equal(rc, CKPT_ELIMIT);
	assert_says(err, "is full");
	assert_in_range(end, CKB_PACK_MAX_BYTES - (1 + CKC_PUT_MAX * 3) * MIB,
			CKB_PACK_MAX_BYTES);
	unsigned calls = b.calls;

	group_make(&last, f->raw, &little, 1, 2);
	assert_code(group_put(w, &last, &err), CKPT_ELIMIT);
	assert_says(err, "is full");
	assert_code(ckc_pack_seal(w, &err), CKPT_ELIMIT);
	assert_int_equal(b.calls, calls);
	ckc_pack_writer_close(w);
	assert_int_equal(b.wrong, 0);
	group_drop(&g);
	group_drop(&last);
}

/* ---- many threads, one pack, and a real disk ---- */

enum { THREADS = 4, GROUPS = 12, IN_GROUP = 4 };

struct putter {
	pthread_t thread;
	struct ckc_pack_writer *w;
	struct group groups[GROUPS];
	struct ckpt_err err;
	int rc;
};

static void *put_groups(void *arg)
{
	struct putter *p = arg;

	for (int i = 0; i < GROUPS && p->rc == 0; i++)
		p->rc = group_put(p->w, &p->groups[i], &p->err);
	return NULL;
}

static void groups_of_many_threads_do_not_meet(void **state)
{
	static const size_t lens[][IN_GROUP] = {
		{ 65536, 70001, 200000, 65537 },  /* all of them large */
		{ 100, 90000, 33, 65536 },        /* some */
		{ 1, 20, 300, 40000 },            /* none */
	};
	struct packs *f = *state;
	struct putter *putters = calloc(THREADS, sizeof(*putters));
	struct ckc_pack_writer *w;
	struct ckpt_err err = { 0 };
	struct ckc_pack *p = NULL;
	unsigned scanned = 0;

	assert_non_null(putters);
	assert_ok(ckc_pack_create(ckb_sys_real(), f->fd, "p", pack_uuid,
				  store_uuid, true, &w, &err));
	for (uint64_t i = 0; i < THREADS * GROUPS; i++) {
		putters[i / GROUPS].w = w;
		group_make(&putters[i / GROUPS].groups[i % GROUPS], f->raw,
			   lens[i % CKB_ARRAY_LEN(lens)], IN_GROUP, i);
	}
	for (int i = 0; i < THREADS; i++)
		assert_int_equal(pthread_create(&putters[i].thread, NULL,
						put_groups, &putters[i]), 0);
	for (int i = 0; i < THREADS; i++) {
		pthread_join(putters[i].thread, NULL);
		if (putters[i].rc != 0)
			fail_msg("%s", putters[i].err.message);
	}
	assert_ok(ckc_pack_seal(w, &err));
	ckc_pack_writer_close(w);
	assert_ok(ckc_pack_open(ckb_sys_real(), f->fd, "p", NULL, &p, &err));
	for (int i = 0; i < THREADS * GROUPS; i++) {
		check_group(p, &putters[i / GROUPS].groups[i % GROUPS]);
		group_drop(&putters[i / GROUPS].groups[i % GROUPS]);
	}
	assert_ok(ckc_pack_scan(p, count_entry, &scanned, &err));
	assert_int_equal(scanned, THREADS * GROUPS * IN_GROUP);
	ckc_pack_close(p);
	free(putters);
}

#define T(name) \
	cmocka_unit_test_setup_teardown(name, packs_setup, packs_teardown)

int main(void)
{
	const struct CMUnitTest tests[] = {
		T(a_group_goes_in_one_call_of_whole_blocks),
		T(short_writes_of_a_group_are_gone_on_with),
		T(a_group_that_fails_in_its_midst_poisons_the_pack),
		T(a_group_that_does_not_fit_poisons_the_pack),
		T(groups_of_many_threads_do_not_meet),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
