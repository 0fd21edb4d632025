/* SPDX-License-Identifier: Apache-2.0 */
/*
 * tree_fixture.h - a store made through the writer's public calls, and a tree
 * over it.
 *
 * Every helper asserts, so it belongs to the main thread. The folder goes in
 * the teardown, also after a failed assert.
 */
#ifndef TREE_FIXTURE_H
#define TREE_FIXTURE_H

#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <ckpt/ckpt.h>
#include <ckpt/writer.h>

#include "asserts.h"
#include "fixtures.h"
#include "tree/internal.h"

struct fix {
	char *dir;
	char path[512];
	struct ckpt_store *store;
	struct ckv_tree *tree;
	struct ckpt_writer *writer;
	struct ckpt_save *save;  /* under way */
	uint32_t item;           /* last one made */
};

FIX int fix_setup(void **state)
{
	struct fix *f = calloc(1, sizeof(*f));
	struct ckpt_err err = { 0 };

	f->dir = make_folder();
	snprintf(f->path, sizeof(f->path), "%s/store", f->dir);
	assert_ok(ckpt_store_init(f->path, &err));
	assert_ok(ckpt_store_open(f->path, NULL, &f->store, &err));
	assert_ok(ckpt_writer_open(f->store, NULL, &f->writer, &err));
	assert_ok(ckv_tree_new(f->store, &f->tree, &err));
	*state = f;
	return 0;
}

FIX int fix_teardown(void **state)
{
	struct fix *f = *state;

	ckv_tree_free(f->tree);
	ckpt_save_free(f->save);
	ckpt_writer_close(f->writer);
	ckpt_store_close(f->store);
	remove_folder(f->dir);
	free(f);
	return 0;
}

/* ---- saving ---- */

FIX void begin(struct fix *f, const char *name, bool replace)
{
	struct ckpt_err err = { 0 };
	struct ckpt_save_desc desc = { .size = sizeof(desc), .name = name,
				       .replace = replace,
				       .metadata = "{\"k\": [1, 2]}" };

	assert_ok(ckpt_save_begin(f->writer, &desc, &f->save, &err));
}

FIX void item(struct fix *f, const char *name, enum ckpt_item_kind kind,
	      const char *separator)
{
	struct ckpt_err err = { 0 };
	struct ckpt_item_desc desc = { .size = sizeof(desc), .name = name,
				       .kind = kind, .separator = separator };

	assert_ok(ckpt_save_item(f->save, &desc, &f->item, &err));
}

FIX void tensor(struct fix *f, const char *name, enum ckpt_dtype dtype,
		struct ckpt_shape shape, const void *bytes, size_t len)
{
	struct ckpt_err err = { 0 };
	struct ckpt_provider p = { 0 };
	struct ckpt_tensor_desc desc = { .size = sizeof(desc), .name = name,
					 .dtype = dtype, .shape = shape };

	assert_ok(ckpt_provider_bytes(bytes, len, &p, &err));
	assert_ok(ckpt_save_tensor(f->save, f->item, &desc, &p, &err));
}

FIX void file(struct fix *f, const char *name, const char *text)
{
	struct ckpt_err err = { 0 };
	struct ckpt_provider p = { 0 };

	assert_ok(ckpt_provider_bytes(text, strlen(text), &p, &err));
	assert_ok(ckpt_save_file(f->save, f->item, name, "text/plain",
				 strlen(text), &p, &err));
}

FIX void commit(struct fix *f)
{
	struct ckpt_err err = { 0 };

	assert_ok(ckpt_save_start(f->save, &err));
	assert_ok(ckpt_save_wait(f->save, CKPT_DURABLE, &err));
	ckpt_save_free(f->save);
	f->save = NULL;
}

/* A checkpoint with one tensor 'model/w.b' of @count bytes, each @value. */
FIX void save_one(struct fix *f, const char *name, uint8_t value,
		  size_t count, bool replace)
{
	uint8_t *bytes = malloc(count + 1);

	memset(bytes, value, count);
	begin(f, name, replace);
	item(f, "model", CKPT_ITEM_TENSORS, ".");
	tensor(f, "w.b", CKPT_U8,
	       (struct ckpt_shape){ .ndim = 1, .dim = { count } }, bytes,
	       count);
	free(bytes);
	commit(f);
}

/* Import a file of the fixtures as checkpoint @name. */
FIX void import(struct fix *f, const char *file, const char *name)
{
	struct ckpt_err err = { 0 };
	char path[700];

	snprintf(path, sizeof(path), "%s/%s", fixtures_path(), file);
	assert_ok(ckpt_import(f->writer, path, name, NULL, NULL,
					  &err));
}

/* ---- looking ---- */

FIX struct ckv_node *at(struct fix *f, const char *path)
{
	struct ckpt_err err = { 0 };
	struct ckv_node *n = NULL;

	if (ckv_resolve(f->tree, path, &n, &err) != 0)
		fail_msg("'%s': %s", path, err.message);
	return n;
}

/* All of a file, NUL-ended; its attributes' size must be its length. */
FIX char *content(struct ckv_node *n, size_t *out_len)
{
	struct ckpt_err err = { 0 };
	struct ckv_attr a;
	size_t len;

	assert_ok(ckv_attr(n, &a, &err));
	char *text = calloc(1, a.size + 8);

	assert_ok(ckv_read(n, 0, text, a.size + 7, &len, &err));
	assert_int_equal(len, a.size);
	text[len] = '\0';
	if (out_len)
		*out_len = len;
	return text;
}

FIX char *content_at(struct fix *f, const char *path, size_t *out_len)
{
	struct ckv_node *n = at(f, path);
	char *text = content(n, out_len);

	ckv_put(n);
	return text;
}

/* Names of a folder, joined by '|', links with '@', folders with '/'. */
FIX char *names_at(struct fix *f, const char *path)
{
	struct ckpt_err err = { 0 };
	struct ckv_node *n = at(f, path);
	struct ckb_buf b = { 0 };
	struct ckv_list *l;

	assert_ok(ckv_list_new(n, &l, &err));
	for (size_t i = 0; i < ckv_list_count(l); i++)
		ckb_buf_printf(&b, "%s%s%s", i ? "|" : "",
			       ckv_list_name(l, i),
			       ckv_list_is_link(l, i) ? "@"
			       : ckv_list_is_folder(l, i) ? "/" : "");
	ckv_list_free(l);
	ckv_put(n);
	return b.data ? (char *)b.data : calloc(1, 1);
}

#define assert_names(f, path, want) \
	do { \
		char *got_ = names_at(f, path); \
		assert_string_equal(got_, want); \
		free(got_); \
	} while (0)

/* Nodes and attributes of all that @l lists. */
FIX void look_at_all(const struct ckv_list *l)
{
	struct ckpt_err err = { 0 };

	for (size_t i = 0; i < ckv_list_count(l); i++) {
		struct ckv_node *x;
		struct ckv_attr a;

		assert_ok(ckv_list_node(l, i, &x, &err));
		assert_ok(ckv_attr(x, &a, &err));
		assert_true(a.ino == ckv_list_ino(l, i));
		ckv_put(x);
	}
}

#endif
