/* SPDX-License-Identifier: Apache-2.0 */
/*
 * save_fixture.h - a store and a writer over any system table, and saves made
 * through the public calls alone.
 *
 * Every helper asserts, so it belongs to the main thread. Saves and providers
 * that a failed assert leaves behind are not freed; the folder is.
 */
#ifndef SAVE_FIXTURE_H
#define SAVE_FIXTURE_H

#include <dirent.h>
#include <ftw.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include <ckpt/ckpt.h>
#include <ckpt/writer.h>

#include "asserts.h"
#include "base/check.h"
#include "fixtures.h"
#include "tensor/box.h"
#include "tensor/grid.h"
#include "verbs/store.h"

struct fix {
	char dir[256];  /* holds the store, removed at the end */
	char path[300]; /* of the store */
	struct ckpt_store *store;
	struct ckpt_writer *writer;
};

/* ---- folders ---- */

FIX int fix_open(struct fix *f, const struct ckpt_writer_opts *opts)
{
	struct ckpt_err err = { 0 };

	fix_folder(f->dir);
	snprintf(f->path, sizeof(f->path), "%s/store", f->dir);
	assert_ok(ckpt_store_init(f->path, &err));
	assert_ok(ckpt_store_open(f->path, NULL, &f->store, &err));
	assert_ok(ckpt_writer_open(f->store, opts, &f->writer, &err));
	return 0;
}

FIX void fix_close(struct fix *f)
{
	ckpt_writer_close(f->writer);
	ckpt_store_close(f->store);
	fix_remove(f->dir);
}

FIX int fix_setup(void **state)
{
	struct fix *f = calloc(1, sizeof(*f));

	assert_non_null(f);
	*state = f;
	return fix_open(f, NULL);
}

FIX int fix_teardown(void **state)
{
	fix_close(*state);
	free(*state);
	return 0;
}

/* Files below a folder of the store. */
FIX int fix_files_found;

FIX int fix_count_file(const char *path, const struct stat *st, int type,
		       struct FTW *ftw)
{
	(void)path;
	(void)st;
	(void)ftw;
	fix_files_found += type == FTW_F;
	return 0;
}

FIX int fix_files(const struct fix *f, const char *folder)
{
	char path[600];

	snprintf(path, sizeof(path), "%s/%s", f->path, folder);
	fix_files_found = 0;
	assert_int_equal(nftw(path, fix_count_file, 16, FTW_PHYS), 0);
	return fix_files_found;
}

/* Descriptors this process has open. */
FIX int fix_fds(void)
{
	DIR *d = opendir("/proc/self/fd");
	int n = 0;

	assert_non_null(d);
	while (readdir(d))
		n++;
	closedir(d);
	return n;
}

/* ---- bytes ---- */

/* @len bytes that follow from @seed, no two stretches alike; freed by the
 * caller. */
FIX uint8_t *fix_bytes(size_t len, uint32_t seed)
{
	uint8_t *data = malloc(len + 1);
	uint64_t x = seed * 0x9e3779b97f4a7c15ull + 1;

	assert_non_null(data);
	for (size_t i = 0; i < len; i++) {
		x ^= x << 13;
		x ^= x >> 7;
		x ^= x << 17;
		data[i] = (uint8_t)(x >> 32);
	}
	return data;
}

FIX struct ckpt_provider fix_copy(const void *data, size_t len)
{
	struct ckpt_provider p;
	struct ckpt_err err = { 0 };

	assert_ok(ckpt_provider_bytes(data, len, &p, &err));
	return p;
}

/* ---- saves ---- */

FIX struct ckpt_save *fix_begin(struct ckpt_writer *w, const char *name,
				bool replace, uint32_t *out_item)
{
	struct ckpt_save_desc d = { .size = sizeof(d), .name = name,
				    .replace = replace };
	struct ckpt_item_desc model = { .size = sizeof(model), .name = "model",
					.kind = CKPT_ITEM_TENSORS };
	struct ckpt_save *s = NULL;
	struct ckpt_err err = { 0 };

	assert_ok(ckpt_save_begin(w, &d, &s, &err));
	assert_ok(ckpt_save_item(s, &model, out_item, &err));
	return s;
}

FIX struct ckpt_tensor_desc fix_desc(const char *name, enum ckpt_dtype dtype,
				     struct ckpt_shape shape)
{
	return (struct ckpt_tensor_desc){
		.size = sizeof(struct ckpt_tensor_desc), .name = name,
		.dtype = dtype, .shape = shape,
	};
}

#define SHAPE(n, ...) ((struct ckpt_shape){ n, { __VA_ARGS__ } })

/* A tensor of @len bytes at @data, copied now. */
FIX void fix_tensor(struct ckpt_save *s, uint32_t item, const char *name,
		    enum ckpt_dtype dtype, struct ckpt_shape shape,
		    const void *data, size_t len)
{
	struct ckpt_tensor_desc d = fix_desc(name, dtype, shape);
	struct ckpt_provider p = fix_copy(data, len);
	struct ckpt_err err = { 0 };

	assert_ok(ckpt_save_tensor(s, item, &d, &p, &err));
	assert_null(p.ops);
}

FIX int fix_finish(struct ckpt_save *s, struct ckpt_err *err)
{
	int rc = ckpt_save_start(s, err);

	if (rc == 0)
		rc = ckpt_save_wait(s, CKPT_DURABLE, err);
	ckpt_save_free(s);
	return rc;
}

/* One checkpoint of one U8 tensor "w" with bytes from @seed. */
FIX void fix_save(struct ckpt_writer *w, const char *name, bool replace,
		  size_t len, uint32_t seed)
{
	struct ckpt_err err = { 0 };
	uint8_t *data = fix_bytes(len, seed);
	uint32_t item;
	struct ckpt_save *s = fix_begin(w, name, replace, &item);

	fix_tensor(s, item, "w", CKPT_U8, SHAPE(1, len), data, len);
	assert_ok(fix_finish(s, &err));
	free(data);
}

/* ---- reading back ---- */

FIX const struct ckpt_tensor_info *fix_find(struct ckpt_checkpoint *c,
					    const char *item, const char *name)
{
	const struct ckpt_item_info *i = ckpt_item_find(c, item);
	const struct ckpt_tensor_info *t;

	if (!i)
		fail_msg("there is no item '%s'", item);
	t = ckpt_tensor_find(c, i, name, strlen(name));
	if (!t)
		fail_msg("there is no '%s' in '%s'", name, item);
	return t;
}

FIX void fix_equal(struct ckpt_checkpoint *c,
		   const struct ckpt_tensor_info *t, const void *want,
		   size_t len)
{
	uint8_t *have = malloc(len + 1);
	struct ckpt_err err = { 0 };

	assert_non_null(have);
	assert_int_equal(t->bytes, len);
	assert_ok(ckpt_read_bytes(c, t, 0, len, have, &err));
	for (size_t i = 0; i < len; i++)
		if (have[i] != ((const uint8_t *)want)[i])
			fail_msg("'%s' differs at byte %zu of %zu", t->name, i,
				 len);
	free(have);
}

FIX struct ckpt_checkpoint *fix_opened(struct ckpt_store *store,
				       const char *name)
{
	struct ckpt_checkpoint *c;
	struct ckpt_err err = { 0 };

	assert_ok(ckpt_checkpoint_open(store, name, &c, &err));
	return c;
}

/* Is @name what fix_save() made of @seed? 0; CKPT_ENOENT: it is not there. */
FIX int fix_whole(struct ckpt_store *store, const char *name, size_t len,
		  uint32_t seed, struct ckpt_err *err)
{
	struct ckpt_checkpoint *c;
	int rc = ckpt_checkpoint_open(store, name, &c, err);

	if (rc < 0)
		return rc;
	uint8_t *want = fix_bytes(len, seed), *have = malloc(len + 1);
	const struct ckpt_tensor_info *t = ckpt_tensor_at(c, 0);

	if (!have || !t || t->bytes != len)
		rc = CKPT_ECORRUPT;
	else
		rc = ckpt_read_bytes(c, t, 0, len, have, err);
	if (rc == 0 && memcmp(have, want, len) != 0)
		rc = CKPT_ESTALE; /* another save's */
	free(have);
	free(want);
	ckpt_checkpoint_close(c);
	return rc;
}

/* ---- a provider that watches, and fails when told to ---- */

struct watch {
	const uint8_t *data;  /* NULL: zeros */
	uint64_t bytes;
	uint64_t read_bytes, read_count, read_max; /* asked for so far */
	uint64_t fail_at;     /* a read that reaches this byte fails */
	int fail_rc;          /* 0: never */
	const char *fail_says; /* NULL: nothing is said */
	atomic_int released;
	void (*on_read)(void *ctx);
	void *ctx;
};

FIX int watch_read(void *ctx, uint64_t off, void *dst, size_t len,
		   struct ckpt_err *err)
{
	struct watch *w = ctx;

	if (w->on_read)
		w->on_read(w->ctx);
	w->read_bytes += len;
	w->read_count++;
	if (len > w->read_max)
		w->read_max = len;
	if (w->fail_rc != 0 && off + len > w->fail_at) {
		if (w->fail_says) {
			err->code = w->fail_rc;
			snprintf(err->message, sizeof(err->message), "%s",
				 w->fail_says);
		}
		return w->fail_rc;
	}
	if (w->data)
		memcpy(dst, w->data + off, len);
	else
		memset(dst, 0, len);
	return 0;
}

FIX void watch_release(void *ctx)
{
	((struct watch *)ctx)->released++;
}

FIX uint64_t watch_bytes(void *ctx)
{
	return ((struct watch *)ctx)->bytes;
}

static const struct ckpt_provider_ops watch_ops = {
	.size = sizeof(watch_ops), .read = watch_read,
	.release = watch_release, .bytes = watch_bytes,
};

FIX struct ckpt_provider watch_provider(struct watch *w)
{
	return (struct ckpt_provider){ &watch_ops, w };
}

#endif
