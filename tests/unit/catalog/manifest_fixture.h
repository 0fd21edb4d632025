/* SPDX-License-Identifier: Apache-2.0 */
/*
 * manifest_fixture.h - a manifest with one of everything; the same after some
 * SQL of a hostile hand, its page checksums right again; an operating system
 * that fails and stutters.
 */
#ifndef MANIFEST_FIXTURE_H
#define MANIFEST_FIXTURE_H

#include <errno.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <sqlite3.h>

#include "asserts.h"
#include "base/bytes.h"
#include "base/hash.h"
#include "base/limits.h"
#include "catalog/manifest.h"
#include "catalog/schema.h"
#include "fixtures.h"
#include "format/record.h"

/* ---- one of everything ---- */

FIX struct ckq_facts sample_facts(void)
{
	struct ckq_facts f = {
		.uuid = { 1, 2, 3 }, .store_uuid = { 4, 5, 6 },
		.generation = 1, .seq = 7, .has_step = true, .step = 4000,
		.created_ns = 1700000000123456789, .has_parent = true,
		.parent = { 9, 9 }, .saved_as = "run/4000",
		.metadata = "{\"lr\":0.1}", .metrics = NULL,
		.writer = "test 1.0", .tile_rule = 1,
	};

	return f;
}

/* Chunk entries whose digests follow from @seed. */
FIX void sample_chunks(uint8_t *out, unsigned count, unsigned seed)
{
	for (unsigned i = 0; i < count; i++) {
		struct ckf_chunk_entry e = {
			.tile = i, .shard = CKF_WHOLE_TILE, .pack = i % 2,
			.off = 64 + 8 * (uint64_t)seed, .stored_len = 100,
			.raw_len = 200, .codec = 1,
			.head_len = ckf_record_head_bytes(1),
		};

		memset(e.digest, (int)(seed + i), sizeof(e.digest));
		ckf_chunk_entry_encode(&e, out + i * CKF_CHUNK_ENTRY_BYTES);
	}
}

#define T_COUNT 9
static char longest[60000]; /* a name; filled by sample_build() */

/* Tensor @i of the sample; chunks go to @chunks (8 entries). Names: plain, a
 * twin in case, with NUL, of 60,000 bytes, scalar, empty; an alias; files. */
FIX struct ckq_tensor sample_tensor(unsigned i, uint8_t *chunks)
{
	static const struct {
		const char *name;
		size_t len;
		enum ckpt_dtype dtype;
		struct ckpt_shape shape;
		uint64_t bytes;
		unsigned chunks;
	} t[T_COUNT] = {
		{ "w", 1, CKPT_F32, { 2, { 10, 20 } }, 800, 1 },
		{ "W", 1, CKPT_BF16, { 3, { 2, 3, 4 } }, 48, 2 },
		{ "a\0b", 3, CKPT_I8, { 1, { 200 } }, 200, 1 },
		{ longest, sizeof(longest), CKPT_F64, { 0, { 0 } }, 8, 1 },
		{ "none", 4, CKPT_F16, { 2, { 0, 5 } }, 0, 0 },
		{ "tied", 4, CKPT_F32, { 2, { 10, 20 } }, 800, 0 },
		{ "..", 2, CKPT_F4, { 1, { 8 } }, 4, 1 },
		{ "vocab.txt", 9, CKPT_U8, { 1, { 1000 } }, 1000, 1 },
		{ "empty", 5, CKPT_U8, { 1, { 0 } }, 0, 0 },
	};
	struct ckq_tensor r = {
		.id = i, .item = i >= 7, .name = t[i].name,
		.name_len = t[i].len, .dtype = t[i].dtype,
		.shape = t[i].shape, .bytes = t[i].bytes, .chunks = chunks,
		.chunks_len = t[i].chunks * CKF_CHUNK_ENTRY_BYTES,
	};

	sample_chunks(chunks, t[i].chunks, i);
	r.has_root = i == 0 || i == 5;
	memset(r.root, r.has_root ? 0x77 : 0, sizeof(r.root));
	r.has_layout = i == 1;
	r.has_alias = i == 5;
	r.stats.value_class = i < 7 ? CKPT_VALUES_FLOAT : CKPT_VALUES_NONE;
	r.stats.count = 1;
	for (uint32_t d = 0; d < r.shape.ndim; d++)
		r.stats.count *= r.shape.dim[d];
	r.stats.sum = 0.5 * i;
	r.media_type = i == 7 ? "text/plain" : i == 8 ? "" : NULL;
	return r;
}

static const char sample_layout[] = "a layout is opaque to the catalog";

FIX void sample_build(struct ckb_buf *out)
{
	struct ckq_facts f = sample_facts();
	struct ckq_build *b = NULL;
	struct ckpt_err err = { 0 };
	uint64_t id = 99;

	memset(longest, 'n', sizeof(longest));
	assert_ok(ckq_build_new(&f, &b, &err));
	assert_ok(ckq_build_item(b, "model", CKPT_ITEM_TENSORS, ".",
				 "{\"a\":1}", &err));
	assert_ok(ckq_build_item(b, "assets", CKPT_ITEM_FILES, "", NULL,
				 &err));
	assert_ok(ckq_build_item(b, "@orig", CKPT_ITEM_ORIGIN, "/", NULL,
				 &err));
	assert_ok(ckq_build_pack(b, (const uint8_t[16]){ 0xa0 }, &err));
	assert_ok(ckq_build_pack(b, (const uint8_t[16]){ 0xa1 }, &err));
	assert_ok(ckq_build_layout(b, sample_layout, sizeof(sample_layout),
				   &id, &err));
	assert_int_equal(id, 0);
	for (unsigned i = 0; i < T_COUNT; i++) {
		uint8_t chunks[8 * CKF_CHUNK_ENTRY_BYTES];
		struct ckq_tensor t = sample_tensor(i, chunks);

		assert_ok(ckq_build_tensor(b, &t, &err));
	}
	assert_ok(ckq_build_finish(b, out, &err));
	ckq_build_free(b);
}

/* ---- an operating system with faults ---- */

struct odd {
	struct ckb_sys sys;  /* first */
	int read_errno;
	bool stutter;
	unsigned turn;
};

FIX ssize_t odd_pread(const struct ckb_sys *sys, int fd, void *dst, size_t len,
		      uint64_t off)
{
	struct odd *o = (struct odd *)(uintptr_t)sys;

	if (o->read_errno)
		return -o->read_errno;
	if (o->stutter && o->turn++ % 2)
		return -EINTR;
	if (o->stutter && len > 777)
		len = 777;
	return ckb_sys_real()->pread(ckb_sys_real(), fd, dst, len, off);
}

/* ---- a folder with a manifest "m" in it ---- */

struct fix {
	char *dir;
	int fd;
	int file;             /* "m", open for writing */
	struct odd os;
	struct ckb_buf image; /* what "m" holds */
};

FIX int fix_setup(void **state)
{
	struct fix *f = calloc(1, sizeof(*f));
	struct ckpt_err err = { 0 };

	assert_non_null(f);
	f->dir = make_folder();
	f->fd = open(f->dir, O_RDONLY | O_DIRECTORY);
	f->os.sys = *ckb_sys_real();
	f->os.sys.pread = odd_pread;
	sample_build(&f->image);
	assert_ok(ckb_write_file(ckb_sys_real(), f->fd, "m", f->image.data,
				 f->image.len, &err));
	f->file = openat(f->fd, "m", O_RDWR);
	*state = f;
	return 0;
}

FIX int fix_teardown(void **state)
{
	struct fix *f = *state;

	close(f->fd);
	close(f->file);
	remove_folder(f->dir);
	ckb_buf_fini(&f->image);
	free(f);
	return 0;
}

FIX void put_file(struct fix *f, const char *name, const void *data,
		  size_t len)
{
	struct ckpt_err err = { 0 };

	unlinkat(f->fd, name, 0);
	assert_ok(ckb_write_file(ckb_sys_real(), f->fd, name, data, len,
				 &err));
}

FIX int open_it(struct fix *f, const char *name, struct ckq_manifest **out,
		struct ckpt_err *err)
{
	return ckq_manifest_open(&f->os.sys, f->fd, name, out, err);
}

/* "bad" does not open; @sql made it so. */
FIX void is_refused(struct fix *f, const char *sql, int code,
		    const char *says)
{
	struct ckpt_err err = { 0 };
	struct ckq_manifest *m = NULL;
	int rc = open_it(f, "bad", &m, &err);

	if (rc != code || m || !strstr(err.message, says) ||
	    !strstr(err.message, "'bad'"))
		fail_msg("%s: %d: %s", sql, rc, err.message);
}

/* ---- a hostile hand ---- */

/* Checksums of all pages, as FORMAT.md says. */
FIX void seal_pages(uint8_t *image, size_t len)
{
	for (size_t p = 0; p < len / CKB_MANIFEST_PAGE; p++) {
		uint8_t *page = image + p * CKB_MANIFEST_PAGE;

		ckb_put_u64(page + CKB_MANIFEST_PAGE - 8,
			    ckb_xxh3_u32((uint32_t)p + 1, page,
					 CKB_MANIFEST_PAGE - 8));
	}
}

/* Run @sql on @image (in its own connection: schema changes of an earlier step
 * are then seen), which is replaced by what comes out. */
FIX void hostile_step(struct ckb_buf *image, const char *sql)
{
	sqlite3 *db = NULL;
	sqlite3_int64 len = 0;
	char *why = NULL;
	unsigned char *copy = sqlite3_malloc64(image->len);

	memcpy(copy, image->data, image->len);
	assert_int_equal(sqlite3_open(":memory:", &db), SQLITE_OK);
	sqlite3_db_config(db, SQLITE_DBCONFIG_DEFENSIVE, 0, NULL);
	sqlite3_db_config(db, SQLITE_DBCONFIG_WRITABLE_SCHEMA, 1, NULL);
	assert_int_equal(sqlite3_deserialize(
				 db, "main", copy, (sqlite3_int64)image->len,
				 (sqlite3_int64)image->len,
				 SQLITE_DESERIALIZE_FREEONCLOSE |
					 SQLITE_DESERIALIZE_RESIZEABLE),
			 SQLITE_OK);
	if (sqlite3_exec(db, sql, NULL, NULL, &why) != SQLITE_OK)
		fail_msg("%s: %s", sql, why);
	copy = sqlite3_serialize(db, "main", &len, 0);
	assert_non_null(copy);
	ckb_buf_fini(image);
	ckb_buf_put(image, copy, (size_t)len);
	sqlite3_free(copy);
	sqlite3_close(db);
}

/* "bad": the sample after @sql with its checksums right. */
FIX void hostile(struct fix *f, const char *sql)
{
	CKB_BUF struct ckb_buf image = { 0 };

	ckb_buf_put(&image, f->image.data, f->image.len);
	hostile_step(&image, sql);
	seal_pages(image.data, image.len);
	put_file(f, "bad", image.data, image.len);
}

/* The same with the tables' STRICT (and with it every type) out of the way. */
FIX void hostile_types(struct fix *f, const char *sql)
{
	CKB_BUF struct ckb_buf image = { 0 };

	ckb_buf_put(&image, f->image.data, f->image.len);
	hostile_step(&image, "UPDATE sqlite_schema SET sql=replace(replace("
		     "sql, ' STRICT', ''), ' NOT NULL', '')");
	hostile_step(&image, sql);
	for (int i = 0; i < CKQ_TABLE_COUNT; i++) {
		char *back = sqlite3_mprintf(
			"UPDATE sqlite_schema SET sql=%Q WHERE type='table' "
			"AND substr(%Q, 14, length(name) + 1) = name || '('",
			ckq_schema[i], ckq_schema[i]);

		hostile_step(&image, back);
		sqlite3_free(back);
	}
	seal_pages(image.data, image.len);
	put_file(f, "bad", image.data, image.len);
}

/* ---- reading all of it ---- */

struct walk {
	int items, packs, tensors;
	bool wrong;  /* something differs from the sample */
	int stop_at; /* callbacks answer 42 at this count; 0: never */
};

FIX int walk_item(void *ctx, uint64_t id, const char *name,
		  enum ckpt_item_kind kind, const char *separator,
		  const char *metadata)
{
	static const struct {
		const char *name, *separator, *metadata;
		enum ckpt_item_kind kind;
	} want[] = { { "model", ".", "{\"a\":1}", CKPT_ITEM_TENSORS },
		     { "assets", "", NULL, CKPT_ITEM_FILES },
		     { "@orig", "/", NULL, CKPT_ITEM_ORIGIN } };
	struct walk *w = ctx;

	w->wrong = w->wrong || id != (uint64_t)w->items || id >= 3 ||
		   strcmp(name, want[id].name) != 0 ||
		   strcmp(separator, want[id].separator) != 0 ||
		   kind != want[id].kind || !metadata != !want[id].metadata ||
		   (metadata && strcmp(metadata, want[id].metadata) != 0);
	return ++w->items == w->stop_at ? 42 : 0;
}

FIX int walk_pack(void *ctx, uint64_t id, const uint8_t uuid[16])
{
	struct walk *w = ctx;
	uint8_t want[16] = { (uint8_t)(0xa0 + w->packs) };

	w->wrong = w->wrong || id != (uint64_t)w->packs ||
		   memcmp(uuid, want, 16) != 0;
	return ++w->packs == w->stop_at ? 42 : 0;
}

FIX bool same_tensor(const struct ckq_tensor *a, const struct ckq_tensor *b)
{
	return a->id == b->id && a->item == b->item &&
	       a->name_len == b->name_len &&
	       memcmp(a->name, b->name, a->name_len) == 0 &&
	       a->dtype == b->dtype && a->shape.ndim == b->shape.ndim &&
	       memcmp(a->shape.dim, b->shape.dim, 8 * a->shape.ndim) == 0 &&
	       a->bytes == b->bytes && !a->media_type == !b->media_type &&
	       (!a->media_type || !strcmp(a->media_type, b->media_type)) &&
	       a->has_layout == b->has_layout &&
	       (!a->has_layout || a->layout == b->layout) &&
	       a->has_alias == b->has_alias &&
	       (!a->has_alias || a->alias_of == b->alias_of) &&
	       a->has_root == b->has_root &&
	       memcmp(a->root, b->root, 32) == 0 &&
	       a->stats.value_class == b->stats.value_class &&
	       a->stats.count == b->stats.count &&
	       !(a->stats.sum < b->stats.sum) &&
	       !(a->stats.sum > b->stats.sum) &&
	       a->chunks_len == b->chunks_len;
}

FIX int walk_tensor(void *ctx, const struct ckq_tensor *t)
{
	struct walk *w = ctx;
	uint8_t chunks[8 * CKF_CHUNK_ENTRY_BYTES];

	if (w->tensors >= T_COUNT) {
		w->wrong = true;
	} else {
		struct ckq_tensor want = sample_tensor((unsigned)w->tensors,
						       chunks);

		w->wrong = w->wrong || !same_tensor(t, &want);
	}
	return ++w->tensors == w->stop_at ? 42 : 0;
}

/* Rows and BLOBs, but no verify: 0 when all could be read; @w->wrong says
 * whether any of it was another thing than the sample. */
FIX int read_rows(struct ckq_manifest *m, struct walk *w, struct ckpt_err *err)
{
	CKB_BUF struct ckb_buf blob = { 0 };
	int rc = ckq_manifest_items(m, walk_item, w, err);

	if (rc == 0)
		rc = ckq_manifest_packs(m, walk_pack, w, err);
	if (rc == 0)
		rc = ckq_manifest_tensors(m, walk_tensor, w, err);
	for (unsigned i = 0; rc == 0 && i < T_COUNT; i++) {
		uint8_t chunks[8 * CKF_CHUNK_ENTRY_BYTES];
		struct ckq_tensor want = sample_tensor(i, chunks);

		blob.len = 0;
		rc = ckq_manifest_chunks(m, i, &blob, err);
		w->wrong = w->wrong || (rc == 0 &&
			   (blob.len != want.chunks_len ||
			    (blob.len &&
			     memcmp(blob.data, chunks, blob.len) != 0)));
	}
	blob.len = 0;
	if (rc == 0)
		rc = ckq_manifest_layout(m, 0, &blob, err);
	w->wrong = w->wrong || w->items != 3 || w->packs != 2 ||
		   w->tensors != T_COUNT || blob.len != sizeof(sample_layout) ||
		   memcmp(blob.data, sample_layout, sizeof(sample_layout));
	return rc;
}

FIX bool same_facts(const struct ckq_facts *f)
{
	struct ckq_facts want = sample_facts();

	return memcmp(f->uuid, want.uuid, 16) == 0 &&
	       memcmp(f->store_uuid, want.store_uuid, 16) == 0 &&
	       f->generation == want.generation && f->seq == want.seq &&
	       f->has_step && f->step == want.step &&
	       f->created_ns == want.created_ns && f->has_parent &&
	       memcmp(f->parent, want.parent, 16) == 0 &&
	       strcmp(f->saved_as, want.saved_as) == 0 && f->metadata &&
	       strcmp(f->metadata, want.metadata) == 0 && !f->metrics &&
	       strcmp(f->writer, want.writer) == 0 && f->tile_rule == 1;
}

#endif
