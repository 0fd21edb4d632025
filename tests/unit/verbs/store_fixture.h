/* SPDX-License-Identifier: Apache-2.0 */
/*
 * store_fixture.h - small stores for the tests of the verbs.
 *
 * A checkpoint made here has one pack with one chunk, whose bytes follow from
 * @seq; "whole" means: manifest verified, its seq right, its pack sealed and
 * its bytes the expected ones.
 */
#ifndef STORE_FIXTURE_H
#define STORE_FIXTURE_H

#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>

#include "asserts.h"
#include "base/text.h"
#include "catalog/manifest.h"
#include "chunk/digest.h"
#include "fixtures.h"
#include "verbs/find.h"
#include "verbs/store_impl.h"

#define CHUNK_BYTES 3000u

struct fix {
	char dir[256];  /* holds the store, removed at the end */
	char path[300]; /* of the store */
	struct ckpt_store *store;
};

/* ---- folders ---- */

FIX int fix_setup(void **state)
{
	struct fix *f = calloc(1, sizeof(*f));
	struct ckpt_err err = { 0 };

	assert_non_null(f);
	fix_folder(f->dir);
	snprintf(f->path, sizeof(f->path), "%s/store", f->dir);
	assert_ok(ckpt_store_init(f->path, &err));
	assert_ok(ckpt_store_open(f->path, NULL, &f->store, &err));
	*state = f;
	return 0;
}

FIX int fix_teardown(void **state)
{
	struct fix *f = *state;

	ckpt_store_close(f->store);
	fix_remove(f->dir);
	free(f);
	return 0;
}

/* "STORE/@name", in one of a few buffers. */
FIX const char *fix_at(const struct fix *f, const char *name)
{
	static char paths[4][2048];
	static unsigned turn;
	char *p = paths[turn++ % 4];

	snprintf(p, 2048, "%s/%s", f->path, name);
	return p;
}

FIX bool fix_there(const struct fix *f, const char *name)
{
	struct stat st;

	return lstat(fix_at(f, name), &st) == 0;
}

FIX void fix_put(const struct fix *f, const char *name, const char *text)
{
	FILE *file = fopen(fix_at(f, name), "we");

	assert_non_null(file);
	fputs(text, file);
	assert_int_equal(fclose(file), 0);
}

/* Names in a folder of the store. */
FIX int fix_count_one(void *ctx, const char *name, unsigned char type)
{
	(void)name;
	(void)type;
	++*(int *)ctx;
	return 0;
}

FIX int fix_count(const struct ckpt_store *s, const char *folder)
{
	int n = 0;

	if (s->sys->list(s->sys, s->dirfd, folder, fix_count_one, &n) < 0)
		return -1;
	return n;
}

/* Descriptors this process has open. */
FIX int fix_fds(void)
{
	const struct ckb_sys *sys = ckb_sys_real();
	int n = 0;

	if (sys->list(sys, AT_FDCWD, "/proc/self/fd", fix_count_one, &n) < 0)
		return -1;
	return n;
}

/* ---- checkpoints ---- */

FIX void fix_bytes(uint8_t dst[CHUNK_BYTES], uint64_t seq)
{
	uint32_t x = (uint32_t)seq * 2654435761u + 1;

	for (size_t i = 0; i < CHUNK_BYTES; i++) {
		x = x * 1664525u + 1013904223u;
		dst[i] = (uint8_t)(x >> 24);
	}
}

FIX void fix_uuid(uint8_t dst[16], uint64_t seq)
{
	memset(dst, 0xab, 16);
	memcpy(dst, &seq, sizeof(seq));
}

/* A manifest that names @pack (NULL: none). */
FIX int fix_manifest(const struct ckpt_store *s, uint64_t seq,
		     const uint8_t *pack, struct ckb_buf *out,
		     struct ckpt_err *err)
{
	struct ckq_facts facts = {
		.generation = 1, .seq = seq, .saved_as = "fixture",
		.writer = "store_fixture", .tile_rule = 1,
	};
	struct ckq_build *b;

	fix_uuid(facts.uuid, seq);
	memcpy(facts.store_uuid, s->uuid, CKPT_UUID_BYTES);
	int rc = ckq_build_new(&facts, &b, err);

	if (rc < 0)
		return rc;
	rc = ckq_build_item(b, "model", CKPT_ITEM_TENSORS, ".", NULL, err);
	if (rc == 0 && pack)
		rc = ckq_build_pack(b, pack, err);
	if (rc == 0)
		rc = ckq_build_finish(b, out, err);
	ckq_build_free(b);
	return rc;
}

/* A pack with the chunk of @seq, published. */
FIX int fix_pack(struct cks_stage *st, uint64_t seq, uint8_t out_uuid[16],
		 struct ckc_place *out_place, struct ckpt_err *err)
{
	uint8_t bytes[CHUNK_BYTES], digest[CKPT_DIGEST_BYTES];
	struct ckc_pack_writer *w = NULL;
	struct ckc_codec *codec = NULL;
	int rc = ckc_codec_new(CKF_CODEC_RAW, 0, &codec, err);

	if (rc == 0)
		rc = cks_stage_pack(st, false, &w, err);
	if (rc < 0) {
		ckc_codec_free(codec);
		return rc;
	}
	fix_bytes(bytes, seq);
	ckc_sha256(bytes, sizeof(bytes), digest);
	memcpy(out_uuid, ckc_pack_writer_uuid(w), CKPT_UUID_BYTES);
	rc = ckc_pack_append(w, CKF_RECORD_CHUNK, codec, digest, bytes,
			     sizeof(bytes), out_place, err);
	ckc_codec_free(codec);
	if (rc < 0) {
		ckc_pack_writer_close(w);
		return rc;
	}
	return cks_stage_publish(st, w, err);
}

/* A whole save: stage, pack, manifest, commit, close. */
FIX int fix_save(struct ckpt_store *s, const char *name, uint64_t seq,
		 bool replace, struct ckpt_err *err)
{
	CKB_BUF struct ckb_buf manifest = { 0 };
	uint8_t attempt[16], pack[16];
	struct ckc_place place;
	struct cks_stage *st;
	int rc = cks_uuid_new(s->sys, attempt, err);

	if (rc == 0)
		rc = cks_stage_open(s, name, attempt, &st, err);
	if (rc < 0)
		return rc;
	rc = fix_pack(st, seq, pack, &place, err);
	if (rc == 0)
		rc = fix_manifest(s, seq, pack, &manifest, err);
	if (rc == 0)
		rc = cks_stage_commit(st, manifest.data, manifest.len, replace,
				      err);
	cks_stage_close(st);
	return rc;
}

/* ---- is it whole? ---- */

FIX int fix_first_pack(void *ctx, uint64_t id, const uint8_t uuid[16])
{
	(void)id;
	memcpy(ctx, uuid, CKPT_UUID_BYTES);
	return 0;
}

FIX int fix_first_entry(void *ctx, const struct ckf_trailer_entry *e)
{
	*(struct ckf_trailer_entry *)ctx = *e;
	return 0;
}

FIX int fix_pack_whole(struct ckpt_store *s, const uint8_t uuid[16],
		       uint64_t seq, struct ckpt_err *err)
{
	uint8_t want[CHUNK_BYTES], have[CHUNK_BYTES];
	CKB_FREE uint8_t *scratch = malloc(CKB_CELL_BYTES);
	struct ckf_trailer_entry e = { 0 };
	struct ckf_cell cells[CKB_CHUNK_CELL_MAX];
	struct ckf_record r;
	struct ckc_pack *p;
	int rc = cks_pack_get(s, uuid, &p, err);

	if (rc < 0)
		return rc;
	rc = ckc_pack_trailer(p, fix_first_entry, &e, err);
	if (rc == 0)
		rc = ckc_pack_head(p, e.off, e.head_len, cells,
				   CKB_CHUNK_CELL_MAX, &r, err);
	if (rc == 0 && r.raw_len != CHUNK_BYTES)
		rc = ckb_err(err, CKPT_ECORRUPT, "another chunk");
	if (rc == 0)
		rc = ckc_pack_cell(p, e.off, e.head_len, &r, 0, have, scratch,
				   err);
	fix_bytes(want, seq);
	if (rc == 0 && memcmp(want, have, CHUNK_BYTES) != 0)
		rc = ckb_err(err, CKPT_ECORRUPT, "other bytes");
	cks_pack_put(s, p);
	return rc;
}

/* 0: checkpoint @name is there and is @seq's, whole. CKPT_ENOENT: absent. */
FIX int fix_whole(struct ckpt_store *s, const char *name, uint64_t seq,
		  struct ckpt_err *err)
{
	char path[CKS_NAME_PATH_BYTES];
	uint8_t pack[16] = { 0 };
	struct ckq_manifest *m;
	struct stat st;
	bool is_run;
	int rc = cks_name_stat(s, name, &is_run, &st, err);

	if (rc < 0)
		return rc;
	cks_name_path(path, name);
	rc = ckq_manifest_open(s->sys, s->dirfd, path, &m, err);
	if (rc < 0)
		return rc;
	rc = ckq_manifest_verify(m, err);
	if (rc == 0 && ckq_manifest_facts(m)->seq != seq)
		rc = ckb_err(err, CKPT_ESTALE, "seq %d, not %d",
			     (int)ckq_manifest_facts(m)->seq, (int)seq);
	if (rc == 0)
		rc = ckq_manifest_packs(m, fix_first_pack, pack, err);
	ckq_manifest_close(m);
	return rc == 0 ? fix_pack_whole(s, pack, seq, err) : rc;
}

#endif
