/* SPDX-License-Identifier: Apache-2.0 */
/*
 * cmd_show.c - show: what a checkpoint, an item or a tensor is.
 *
 * A tensor is meant by its own name, or by its path in the tree, with or
 * without .npy or .txt; a path that is a folder there means all below it.
 */
#include <getopt.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/text.h"
#include "cli/inside.h"
#include "cli/json.h"
#include "tensor/dtype.h"

struct show {
	const struct cli *cli;
	struct ckpt_store *store;
	struct ckv_tree *tree;
	struct ckv_node *node;         /* of the checkpoint */
	struct ckv_inside inside;      /* it, open */
	struct ckpt_checkpoint *ckpt;  /* borrowed from that */
	const struct ckpt_item_info *item;
	const char *rest;              /* behind CKPT/ITEM, or "" */
};

/* ---- finding it ---- */

/* 2: it is @t; 1: @t lies below it; 0: neither; negative: no memory. */
static int matches(const struct show *w, const struct ckpt_tensor_info *t)
{
	CKB_BUF struct ckb_buf path = { 0 };
	size_t len = strlen(w->rest);
	bool cut;

	if (len == 0)
		return 1;
	if (t->name_len == len && memcmp(t->name, w->rest, len) == 0)
		return 2;
	ckv_tensor_path(&path, t->name, t->name_len, t->media_type ? "/" :
			w->item->separator, t->media_type ? 0 : 4, &cut);
	if (path.failed)
		return CKPT_ENOMEM;
	if (path.len < len && (len - path.len) == 4 && !t->media_type &&
	    (!strcmp(w->rest + path.len, ".npy") ||
	     !strcmp(w->rest + path.len, ".txt")) &&
	    memcmp(path.data, w->rest, path.len) == 0)
		return 2;
	if (path.len < len || memcmp(path.data, w->rest, len) != 0)
		return 0;
	return path.len == len ? 2 : path.data[len] == '/';
}

/* ---- a tensor ---- */

static void put_value(struct cli_json *j, const char *key,
		      enum ckpt_value_class c, union ckpt_value v)
{
	if (c == CKPT_VALUES_FLOAT)
		cli_json_double(j, key, v.f);
	else if (c == CKPT_VALUES_SIGNED)
		cli_json_i64(j, key, v.i);
	else
		cli_json_u64(j, key, v.u);
}

static void put_stats(struct cli_json *j, const struct ckpt_stats *s)
{
	uint64_t finite = s->count - s->nan_count - s->inf_count;
	bool any = s->value_class != CKPT_VALUES_NONE && finite > 0;

	if (s->value_class == CKPT_VALUES_NONE) {
		cli_json_null(j, "statistics");
		return;
	}
	cli_json_open(j, "statistics", '{');
	cli_json_u64(j, "count", s->count);
	cli_json_u64(j, "nan", s->nan_count);
	cli_json_u64(j, "inf", s->inf_count);
	cli_json_u64(j, "zeros", s->zero_count);
	if (any) {
		put_value(j, "min", s->value_class, s->min);
		put_value(j, "max", s->value_class, s->max);
		cli_json_double(j, "mean", s->sum / (double)finite);
		cli_json_double(j, "absmax", s->absmax);
	} else {
		cli_json_null(j, "min");
		cli_json_null(j, "max");
		cli_json_null(j, "mean");
		cli_json_null(j, "absmax");
	}
	cli_json_close(j, '}');
}

static void put_tensor(struct cli_json *j, const char *key,
		       struct ckpt_checkpoint *c,
		       const struct ckpt_tensor_info *t)
{
	char root[2 * CKPT_DIGEST_BYTES + 1];

	cli_json_open(j, key, '{');
	cli_json_name(j, "name", t->name, t->name_len);
	cli_json_text(j, "item", ckpt_item_at(c, t->item)->name);
	cli_json_text(j, "dtype", ckpt_dtype_name(t->dtype));
	cli_json_open(j, "shape", '[');
	for (uint32_t d = 0; d < t->shape->ndim; d++)
		cli_json_u64(j, NULL, t->shape->dim[d]);
	cli_json_close(j, ']');
	cli_json_u64(j, "bytes", t->bytes);
	cli_json_text(j, "media_type", t->media_type);
	if (t->alias_of != SIZE_MAX) {
		const struct ckpt_tensor_info *a =
			ckpt_tensor_at(c, t->alias_of);

		cli_json_name(j, "alias_of", a->name, a->name_len);
	} else {
		cli_json_null(j, "alias_of");
	}
	ckb_hex(root, t->root, CKPT_DIGEST_BYTES);
	cli_json_text(j, "root", t->has_root ? root : NULL);
	put_stats(j, &t->stats);
	cli_json_close(j, '}');
}

static int show_tensor(struct show *w, const struct ckpt_tensor_info *t,
		       struct ckpt_err *err)
{
	CKB_BUF struct ckb_buf text = { 0 };
	struct cli_json j = { 0 };

	if (w->cli->json) {
		put_tensor(&j, NULL, w->ckpt, t);
		return cli_json_end(w->cli, &j);
	}
	if (t->media_type) {
		cli_escape(&text, t->name, t->name_len);
		ckb_buf_puts(&text, "\nmedia    ");
		cli_escape(&text, *t->media_type ? t->media_type : "unknown",
			   strlen(*t->media_type ? t->media_type : "unknown"));
		if (text.failed)
			return ckb_err_nomem(err);
		printf("name     %s\nbytes    %" PRIu64 "\n",
		       (char *)text.data, t->bytes);
		return CLI_OK;
	}
	int rc = ckv_text(w->ckpt, t, &text, err);

	if (rc == 0)
		fwrite(text.data, 1, text.len, stdout);
	return rc;
}

/* ---- an item ---- */

enum { COL_NAME, COL_DTYPE, COL_SHAPE, COL_SIZE, COL_NOTE, COL_COUNT };

static int put_row(struct show *w, struct libscols_table *table,
		   const struct ckpt_tensor_info *t)
{
	char shape[CKT_TEXT_BYTES], size[CLI_SIZE_BYTES];
	CKB_BUF struct ckb_buf name = { 0 }, note = { 0 };

	cli_escape(&name, t->name, t->name_len);
	if (t->alias_of != SIZE_MAX) {
		const struct ckpt_tensor_info *a =
			ckpt_tensor_at(w->ckpt, t->alias_of);

		ckb_buf_puts(&note, "is ");
		cli_escape(&note, a->name, a->name_len);
	}
	if (name.failed || note.failed)
		return CKPT_ENOMEM;
	const char *cells[COL_COUNT] = {
		(char *)name.data,
		t->media_type ? NULL : ckpt_dtype_name(t->dtype),
		t->media_type ? NULL
			      : ckt_shape_text(shape, sizeof(shape), t->shape),
		cli_size(size, t->bytes),
		t->media_type ? t->media_type : (char *)note.data,
	};

	return cli_row(table, cells, COL_COUNT);
}

static int show_item(struct show *w, struct ckpt_err *err)
{
	static const struct cli_column columns[COL_COUNT] = {
		{ "NAME", false, false }, { "DTYPE", false, false },
		{ "SHAPE", false, false }, { "SIZE", true, false },
		{ "NOTE", false, false },
	};
	struct libscols_table *table = cli_table(w->cli, "tensors", columns,
						 COL_COUNT);
	const struct ckpt_tensor_info *exact = NULL;
	struct cli_json j = { 0 };
	int rc = table ? 0 : ckb_err_nomem(err);
	size_t found = 0;

	if (table) {
		cli_table_cut(table, COL_NAME);
		cli_table_cut(table, COL_NOTE);
	}
	cli_json_open(&j, NULL, '{');
	cli_json_open(&j, "tensors", '[');
	for (size_t i = 0; rc >= 0 && i < w->item->count && !exact; i++) {
		const struct ckpt_tensor_info *t =
			ckpt_tensor_at(w->ckpt, w->item->first + i);

		rc = matches(w, t);
		if (rc == 2)
			exact = t;
		if (rc != 1)
			continue;
		found++;
		if (w->cli->json)
			put_tensor(&j, NULL, w->ckpt, t);
		else if (put_row(w, table, t) < 0)
			rc = CKPT_ENOMEM;
	}
	cli_json_close(&j, ']');
	cli_json_close(&j, '}');
	if (rc == CKPT_ENOMEM)
		ckb_err_nomem(err);
	if (rc >= 0 && !exact && found == 0 && *w->rest)
		rc = cli_no_tensor(w->ckpt, w->item, w->rest, err);
	bool list = rc >= 0 && !exact;

	if (list && w->cli->json)
		rc = cli_json_end(w->cli, &j);
	else
		ckb_buf_fini(&j.text);
	if (list && !w->cli->json && found > 0)
		return cli_table_end(table);
	scols_unref_table(table);
	if (rc < 0 || list)
		return rc < 0 ? rc : CLI_OK;
	return show_tensor(w, exact, err);
}

/* ---- a checkpoint ---- */

struct sizes {
	const char *name;
	uint64_t stored, own;
	bool found;
};

static int find_sizes(void *ctx, const struct ckpt_entry *e)
{
	struct sizes *s = ctx;

	if (strcmp(e->name, s->name) != 0 || e->damage)
		return 0;
	s->stored = e->stored_bytes;
	s->own = e->own_bytes;
	s->found = true;
	return 1;
}

/* "F32 x 100, I64 x 2" */
static void dtypes_text(const struct show *w, const struct ckpt_item_info *it,
			char *dst, size_t len)
{
	size_t count[CKPT_DTYPE_END] = { 0 }, at = 0;

	dst[0] = '\0';
	for (size_t i = 0; i < it->count; i++) {
		const struct ckpt_tensor_info *t =
			ckpt_tensor_at(w->ckpt, it->first + i);

		if (!t->media_type)
			count[t->dtype]++;
	}
	for (size_t d = 0; d < CKPT_DTYPE_END && at < len; d++)
		if (count[d] > 0)
			at += (size_t)snprintf(dst + at, len - at,
					       "%s%s x %zu", at ? ", " : "",
					       ckpt_dtype_name((enum ckpt_dtype)
							       d), count[d]);
}

static const char *kind_name(enum ckpt_item_kind kind)
{
	return kind == CKPT_ITEM_TENSORS ? "tensors"
	     : kind == CKPT_ITEM_FILES ? "files" : "origin";
}

static void item_dtypes(struct cli_json *j, const struct show *w,
			const struct ckpt_item_info *it)
{
	size_t count[CKPT_DTYPE_END] = { 0 };

	for (size_t i = 0; i < it->count; i++)
		count[ckpt_tensor_at(w->ckpt, it->first + i)->dtype]++;
	cli_json_open(j, "dtypes", '{');
	for (size_t d = 0; d < CKPT_DTYPE_END; d++)
		if (count[d] > 0 && it->kind == CKPT_ITEM_TENSORS)
			cli_json_u64(j, ckpt_dtype_name((enum ckpt_dtype)d),
				     count[d]);
	cli_json_close(j, '}');
}

static int checkpoint_json(struct show *w, const struct sizes *s)
{
	const struct ckpt_checkpoint_info *i = ckpt_checkpoint_info(w->ckpt);
	struct cli_json j = { 0 };

	cli_json_open(&j, NULL, '{');
	cli_json_text(&j, "name", i->name);
	cli_json_uuid(&j, "uuid", i->uuid);
	if (i->has_step)
		cli_json_u64(&j, "step", i->step);
	else
		cli_json_null(&j, "step");
	cli_json_time(&j, "created", i->created_ns);
	cli_json_u64(&j, "seq", i->seq);
	cli_json_u64(&j, "generation", i->generation);
	cli_json_uuid(&j, "parent", i->has_parent ? i->parent : NULL);
	cli_json_text(&j, "writer", i->writer);
	cli_json_u64(&j, "bytes", i->bytes);
	cli_json_u64(&j, "stored_bytes", s->stored);
	cli_json_u64(&j, "own_bytes", s->own);
	cli_json_u64(&j, "shared_bytes", s->stored - s->own);
	cli_json_object(&j, "metrics", i->metrics);
	cli_json_object(&j, "metadata", i->metadata);
	cli_json_open(&j, "items", '[');
	for (size_t n = 0; n < ckpt_item_count(w->ckpt); n++) {
		const struct ckpt_item_info *it = ckpt_item_at(w->ckpt, n);

		cli_json_open(&j, NULL, '{');
		cli_json_text(&j, "name", it->name);
		cli_json_text(&j, "kind", kind_name(it->kind));
		cli_json_text(&j, "separator", it->separator);
		cli_json_u64(&j, "count", it->count);
		cli_json_u64(&j, "bytes", it->bytes);
		item_dtypes(&j, w, it);
		cli_json_object(&j, "metadata", it->metadata);
		cli_json_close(&j, '}');
	}
	cli_json_close(&j, ']');
	cli_json_close(&j, '}');
	return cli_json_end(w->cli, &j);
}

static void line(const struct show *w, const char *key, const char *value)
{
	CKB_BUF struct ckb_buf text = { 0 };

	cli_escape(&text, value, strlen(value));
	printf("%s%-10s%s%s\n", cli_bold(w->cli), key, cli_plain(w->cli),
	       text.data ? (char *)text.data : "");
}

static void facts_text(const struct show *w, const struct sizes *s)
{
	const struct ckpt_checkpoint_info *i = ckpt_checkpoint_info(w->ckpt);
	char text[64], uuid[CKB_UUID_TEXT_BYTES], a[CLI_SIZE_BYTES];
	char b[CLI_SIZE_BYTES], c[CLI_SIZE_BYTES], sizes[200];

	line(w, "name", i->name);
	if (i->has_step) {
		snprintf(text, sizeof(text), "%" PRIu64, i->step);
		line(w, "step", text);
	}
	line(w, "created", cli_time(text, i->created_ns));
	ckb_uuid_text(uuid, i->uuid);
	line(w, "uuid", uuid);
	if (i->has_parent) {
		ckb_uuid_text(uuid, i->parent);
		line(w, "parent", uuid);
	}
	line(w, "writer", i->writer);
	line(w, "size", cli_size(a, i->bytes));
	snprintf(sizes, sizeof(sizes), "%s: %s its own, %s shared with others",
		 cli_size(a, s->stored), cli_size(b, s->own),
		 cli_size(c, s->stored - s->own));
	line(w, "stored", sizes);
	if (i->metrics)
		line(w, "metrics", i->metrics);
	if (i->metadata)
		line(w, "metadata", i->metadata);
	putchar('\n');
	fflush(stdout);
}

static int checkpoint_text(struct show *w, const struct sizes *s,
			   struct ckpt_err *err)
{
	static const struct cli_column columns[] = {
		{ "ITEM", false, false }, { "KIND", false, false },
		{ "COUNT", true, false }, { "SIZE", true, false },
		{ "DTYPES", false, false },
	};
	struct libscols_table *table = cli_table(w->cli, "items", columns, 5);
	int rc = table ? 0 : CKPT_ENOMEM;

	if (rc == 0)
		facts_text(w, s);
	for (size_t i = 0; rc == 0 && i < ckpt_item_count(w->ckpt); i++) {
		const struct ckpt_item_info *it = ckpt_item_at(w->ckpt, i);
		char count[24], size[CLI_SIZE_BYTES], dtypes[600];

		snprintf(count, sizeof(count), "%zu", it->count);
		dtypes_text(w, it, dtypes, sizeof(dtypes));
		const char *cells[] = { it->name, kind_name(it->kind), count,
					cli_size(size, it->bytes), dtypes };

		rc = cli_row(table, cells, 5);
	}
	if (rc < 0) {
		scols_unref_table(table);
		return ckb_err_nomem(err);
	}
	return cli_table_end(table);
}

static int show_checkpoint(struct show *w, struct ckpt_err *err)
{
	const struct ckpt_entries_opts opts = { .size = sizeof(opts),
						.flags = CKPT_ENTRIES_OWN };
	struct sizes s = { .name = ckpt_checkpoint_info(w->ckpt)->name };
	int rc = ckpt_store_entries(w->store, &opts, find_sizes, &s, err);

	if (rc >= 0 && !s.found)
		rc = ckb_err(err, CKPT_ESTALE, "checkpoint '%s' was removed "
			     "meanwhile, or its chunk lists are damaged "
			     "(ckptfs check tells more)", s.name);
	if (rc < 0)
		return rc;
	return w->cli->json ? checkpoint_json(w, &s)
			    : checkpoint_text(w, &s, err);
}

/* ---- the command ---- */

static int show_place(struct show *w, struct cli_place *place,
		      struct ckpt_err *err)
{
	const char *rest = "";
	int rc = cli_open(place, CKPT_STORE_READONLY, &w->store, err);

	if (rc == 0)
		rc = ckv_tree_new(w->store, &w->tree, err);
	if (rc == 0)
		rc = cli_head(w->tree, place->path, &w->node, &rest, err);
	if (rc < 0)
		return rc;
	rc = ckv_inside_get(w->node, &w->inside, err);
	if (rc < 0)
		return rc;
	w->ckpt = w->inside.checkpoint;
	size_t len = strcspn(rest, "/");

	w->rest = rest + len + (rest[len] == '/');
	if (len > 0)
		rc = cli_item(w->ckpt, rest, len, &w->item, err);
	if (rc < 0)
		return rc;
	return w->item ? show_item(w, err) : show_checkpoint(w, err);
}

static int run_show(struct cli *cli, int argc, char **argv)
{
	struct show w = { .cli = cli };
	struct cli_place place;
	struct ckpt_err err = { 0 };

	if (cli_no_option(cli, argc, argv) != CLI_OK)
		return CLI_USAGE;
	if (argc - optind != 1)
		return cli_usage(cli, "one STORE:CKPT[/ITEM[/TENSOR]] is "
				 "wanted, %d given", argc - optind);
	if (cli_place(argv[optind], &place, &err) < 0)
		return cli_fail(cli, &err);
	if (!*place.path) {
		cli_place_fini(&place);
		return cli_usage(cli, "'%s' lacks a checkpoint: STORE:CKPT "
				 "(log lists them, stat is for the store)",
				 argv[optind]);
	}
	int rc = show_place(&w, &place, &err);

	if (w.node)
		ckv_inside_put(w.node, &w.inside);
	ckv_put(w.node);
	ckv_tree_free(w.tree);
	ckpt_store_close(w.store);
	cli_place_fini(&place);
	return rc < 0 ? cli_fail_found(cli, &err) : rc;
}

const struct cli_command cli_show = {
	.name = "show",
	.usage = "STORE:CKPT[/ITEM[/TENSOR]]",
	.summary = "What a checkpoint, an item or a tensor is",
	.help = "",
	.lacks = "quiet",
	.run = run_show,
};
