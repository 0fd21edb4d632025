/* SPDX-License-Identifier: Apache-2.0 */
/*
 * pack_fixture.h - a folder, contents of known kinds, and an operating system
 * that fails, shortens, interrupts and counts.
 */
#ifndef PACK_FIXTURE_H
#define PACK_FIXTURE_H

#include <errno.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include "asserts.h"
#include "base/bytes.h"
#include "chunk/digest.h"
#include "chunk/pack.h"
#include "fixtures.h"

/* ---- an operating system with faults; not thread-safe but for reads ---- */

struct odd {
	struct ckb_sys sys;      /* first: &odd->sys is passed around */
	unsigned writes, syncs, ranges;
	unsigned fail_write;     /* the n-th write, from 1; 0: none */
	int write_errno;
	int sync_errno, read_errno;
	unsigned reads;
	bool stutter;            /* interrupt and shorten whatever moves bytes */
	unsigned turn;
	uint64_t range_bytes;
	const uint8_t *mark;     /* writes from [mark, mark + mark_len) ... */
	size_t mark_len;
	uint64_t marked;         /* ... moved this many bytes */
};

FIX struct odd *odd_of(const struct ckb_sys *sys)
{
	return (struct odd *)(uintptr_t)sys;
}

/* Every other call is interrupted, the rest move at most 1000 bytes. */
FIX bool stutter(struct odd *o, size_t *len)
{
	if (!o->stutter)
		return false;
	if (*len > 1000)
		*len = 1000;
	return o->turn++ % 2 == 0;
}

FIX ssize_t odd_pwrite(const struct ckb_sys *sys, int fd, const void *src,
		       size_t len, uint64_t off)
{
	struct odd *o = odd_of(sys);
	const struct ckb_sys *os = ckb_sys_real();

	if (stutter(o, &len))
		return -EINTR;
	o->writes++;
	if (o->fail_write == o->writes)
		return -o->write_errno;
	if ((const uint8_t *)src >= o->mark &&
	    (const uint8_t *)src < o->mark + o->mark_len)
		o->marked += len;
	return os->pwrite(os, fd, src, len, off);
}

/* A short write is legal. */
FIX ssize_t odd_pwritev(const struct ckb_sys *sys, int fd,
			const struct iovec *iov, int count, uint64_t off)
{
	(void)count;
	return odd_pwrite(sys, fd, iov->iov_base, iov->iov_len, off);
}

FIX ssize_t odd_pread(const struct ckb_sys *sys, int fd, void *dst, size_t len,
		      uint64_t off)
{
	struct odd *o = odd_of(sys);
	const struct ckb_sys *os = ckb_sys_real();

	o->reads++;
	if (stutter(o, &len))
		return -EINTR;
	if (o->read_errno)
		return -o->read_errno;
	return os->pread(os, fd, dst, len, off);
}

FIX int odd_fsync(const struct ckb_sys *sys, int fd)
{
	const struct ckb_sys *os = ckb_sys_real();

	odd_of(sys)->syncs++;
	return odd_of(sys)->sync_errno ? -odd_of(sys)->sync_errno
				       : os->fsync(os, fd);
}

FIX int odd_sync_range(const struct ckb_sys *sys, int fd, uint64_t off,
		       uint64_t len)
{
	(void)fd;
	(void)off;
	odd_of(sys)->ranges++;
	odd_of(sys)->range_bytes += len;
	return -ESPIPE; /* advice: its failure changes nothing */
}

FIX void odd_init(struct odd *o)
{
	*o = (struct odd){ .sys = *ckb_sys_real() };
	o->sys.pwrite = odd_pwrite;
	o->sys.pwritev = odd_pwritev;
	o->sys.pread = odd_pread;
	o->sys.fsync = odd_fsync;
	o->sys.sync_range = odd_sync_range;
}

/* ---- contents ---- */

enum kind { ZEROS, WORDS, NOISE, KINDS };

/* Bytes of @kind that differ with @seed. */
FIX void fill(uint8_t *dst, size_t len, enum kind kind, uint64_t seed)
{
	uint64_t x = seed * 0x9e3779b97f4a7c15ull + 1;

	memset(dst, 0, len);
	for (size_t i = 0; kind == NOISE && i < len; i++) {
		x = x * 6364136223846793005ull + 1442695040888963407ull;
		dst[i] = (uint8_t)(x >> 56);
	}
	for (size_t i = 0; kind == WORDS && i < len; i++)
		dst[i] = (uint8_t)("tensor "[i % 7] + i / 5000 % 3);
	for (size_t i = 0; i < 8 && i < len; i++)
		dst[i] = (uint8_t)(dst[i] ^ seed >> 8 * i);
}

static const uint8_t pack_uuid[16] = { 0xaa, 1, 2, 3 };
static const uint8_t store_uuid[16] = { 0xbb, 1, 2, 3 };

/* ---- a folder with packs in it ---- */

struct packs {
	char *dir;
	int fd;
	struct odd os;
	struct ckc_codec *raw, *zstd, *planes;
};

FIX int packs_setup(void **state)
{
	struct packs *f = calloc(1, sizeof(*f));
	struct ckpt_err err = { 0 };

	assert_non_null(f);
	f->dir = make_folder();
	f->fd = open(f->dir, O_RDONLY | O_DIRECTORY);
	odd_init(&f->os);
	assert_ok(ckc_codec_new(CKF_CODEC_RAW, 0, &f->raw, &err));
	assert_ok(ckc_codec_new(CKF_CODEC_ZSTD, 1, &f->zstd, &err));
	assert_ok(ckc_codec_new(CKF_CODEC_PLANES, 1, &f->planes, &err));
	*state = f;
	return 0;
}

FIX int packs_teardown(void **state)
{
	struct packs *f = *state;

	close(f->fd);
	remove_folder(f->dir);
	ckc_codec_free(f->raw);
	ckc_codec_free(f->zstd);
	ckc_codec_free(f->planes);
	free(f);
	return 0;
}

FIX struct ckc_pack_writer *create(struct packs *f, const char *name)
{
	struct ckc_pack_writer *w = NULL;
	struct ckpt_err err = { 0 };

	assert_ok(ckc_pack_create(&f->os.sys, f->fd, name, pack_uuid,
				  store_uuid, false, &w, &err));
	assert_non_null(w);
	return w;
}

FIX int append(struct ckc_pack_writer *w, struct ckc_codec *codec,
	       const void *raw, size_t len, struct ckc_place *out,
	       struct ckpt_err *err)
{
	uint8_t digest[32];

	ckc_sha256(raw, len, digest);
	return ckc_pack_append(w, CKF_RECORD_CHUNK, codec, digest, raw, len,
			       out, err);
}

/* The whole file; the caller frees it. */
FIX uint8_t *slurp(struct packs *f, const char *name, size_t *out_len)
{
	CKB_BUF struct ckb_buf buf = { 0 };
	struct ckpt_err err = { 0 };

	assert_ok(ckb_read_file(ckb_sys_real(), f->fd, name, 1u << 30, &buf,
				&err));
	*out_len = buf.len;
	return CKB_TAKE(buf.data);
}

FIX void spew(struct packs *f, const char *name, const void *data, size_t len)
{
	struct ckpt_err err = { 0 };

	unlinkat(f->fd, name, 0);
	assert_ok(ckb_write_file(ckb_sys_real(), f->fd, name, data, len,
				 &err));
}

#define CELLS_MAX 64

/* Head and all cells of the record at @p into @dst of @p->raw_len bytes. */
FIX int read_record(struct ckc_pack *pack, const struct ckc_place *p,
		    uint8_t *dst, struct ckf_record *r, struct ckpt_err *err)
{
	struct ckf_cell cells[CELLS_MAX];
	uint8_t *scratch = malloc(CKB_CELL_BYTES);
	int rc = ckc_pack_head(pack, p->off, p->head_len, cells, CELLS_MAX, r,
			       err);

	if (rc == 0 && (r->raw_len != p->raw_len ||
			r->stored_len != p->stored_len))
		rc = ckb_err(err, CKPT_ECORRUPT, "another record");
	for (uint32_t i = 0; rc == 0 && i < r->cell_count; i++)
		rc = ckc_pack_cell(pack, p->off, p->head_len, r, i,
				   dst + (size_t)i * CKB_CELL_BYTES, scratch,
				   err);
	free(scratch);
	r->cells = NULL;
	return rc;
}

#endif
