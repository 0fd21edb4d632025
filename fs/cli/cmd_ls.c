/* SPDX-License-Identifier: Apache-2.0 */
/*
 * cmd_ls.c - ls: what a mount would show, without one.
 *
 * Names are those of the tree. What cannot be read now, or is damaged, is a row
 * all the same, and a sentence; what vanishes meanwhile is none.
 */
#include <getopt.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cli/json.h"
#include "tensor/dtype.h"
#include "tree/tree.h"

enum { COL_NAME, COL_KIND, COL_SIZE, COL_TIME, COL_DTYPE, COL_SHAPE,
       COL_COUNT };

struct ls {
	const struct cli *cli;
	struct libscols_table *table;
	struct cli_json json;
	bool detail, recurse;
	int code;              /* the exit code so far */
	struct ckpt_err said;  /* last */
};

static const char *kind_name(enum ckv_kind kind)
{
	switch (kind) {
	case CKV_ROOT:
	case CKV_RUN:
		return "run";
	case CKV_CHECKPOINT:
		return "checkpoint";
	case CKV_FOLDER:
		return "folder";
	case CKV_LINK:
		return "link";
	case CKV_NPY:
	case CKV_TXT:
		return "tensor";
	default:
		return "file";
	}
}

/* Dtype and shape of what @node shows; *@dtype NULL: it has none. */
static int describe(struct ckv_node *node, const char **dtype,
		    char shape[CKT_TEXT_BYTES], struct ckpt_err *err)
{
	struct ckv_inside in;
	int rc;

	*dtype = NULL;
	if (ckv_node_kind(node) < CKV_NPY)
		return 0;
	rc = ckv_inside_get(node, &in, err);
	if (rc < 0)
		return rc;
	*dtype = ckpt_dtype_name(in.tensor->dtype);
	ckt_shape_text(shape, CKT_TEXT_BYTES, in.tensor->shape);
	ckv_inside_put(node, &in);
	return 0;
}

/* What cannot be listed is said, once for each cause; the list goes on. */
static void complain(struct ls *ls, const struct ckpt_err *why)
{
	if (strcmp(ls->said.message, why->message) == 0)
		return;
	ls->said = *why;
	int code = cli_fail_found(ls->cli, why);

	if (ls->code != CLI_DAMAGE)
		ls->code = code;
}

struct row {
	const char *name, *kind;
	const struct ckv_attr *attr;  /* NULL: nothing else is known */
	const char *target;           /* of a link, or NULL */
	const char *dtype, *shape;    /* of a tensor, or NULL */
};

static void put_json(struct cli_json *j, const struct row *r)
{
	cli_json_open(j, NULL, '{');
	cli_json_text(j, "name", r->name);
	cli_json_text(j, "kind", r->kind);
	if (r->attr && !r->attr->is_folder)
		cli_json_u64(j, "size", r->attr->size);
	else
		cli_json_null(j, "size");
	if (r->attr)
		cli_json_time(j, "time", r->attr->time_ns);
	else
		cli_json_null(j, "time");
	cli_json_text(j, "target", r->target);
	cli_json_text(j, "dtype", r->dtype);
	cli_json_text(j, "shape", r->shape);
	cli_json_close(j, '}');
}

static int put_row(struct ls *ls, const struct row *r, struct ckpt_err *err)
{
	CKB_BUF struct ckb_buf name = { 0 };
	char size[32], when[CLI_TIME_BYTES];

	if (ls->cli->json) {
		put_json(&ls->json, r);
		return 0;
	}
	ckb_buf_puts(&name, r->name);
	if (r->attr && r->attr->is_folder)
		ckb_buf_putc(&name, '/');
	if (r->target)
		ckb_buf_printf(&name, " -> %s", r->target);
	if (name.failed)
		return ckb_err_nomem(err);
	if (!ls->table) {
		cli_line((char *)name.data);
		return 0;
	}
	if (r->attr)
		snprintf(size, sizeof(size), "%" PRIu64, r->attr->size);
	const char *cells[COL_COUNT] = {
		(char *)name.data, r->kind,
		r->attr && !r->attr->is_folder ? size : NULL,
		r->attr ? cli_time(when, r->attr->time_ns) : NULL, r->dtype,
		r->shape,
	};

	return cli_row(ls->table, cells, COL_COUNT) < 0 ? ckb_err_nomem(err)
							: 0;
}

/* A row of what is there but cannot be read, and why. */
static int show_bad(struct ls *ls, const char *path,
		    const struct ckv_attr *attr, const struct ckpt_err *why,
		    struct ckpt_err *err)
{
	struct row r = { .name = path, .attr = attr,
			 .kind = why->code == CKPT_ECORRUPT ? "damaged"
							    : "unreadable" };

	complain(ls, why);
	return put_row(ls, &r, err);
}

/* One row; @node is borrowed. CKPT_ENOENT, CKPT_ESTALE: it is gone. */
static int show(struct ls *ls, const char *path, struct ckv_node *node,
		struct ckpt_err *err)
{
	char shape[CKT_TEXT_BYTES];
	CKB_BUF struct ckb_buf target = { 0 };
	struct ckv_inside in;
	struct ckv_attr attr;
	struct row r = { .name = path, .attr = &attr };
	int rc = ckv_attr(node, &attr, err);

	if (rc == 0 && attr.damaged) {
		struct ckpt_err why = { 0 };

		rc = ckv_inside_get(node, &in, &why);
		if (rc < 0 && rc != CKPT_ENOENT && rc != CKPT_ESTALE)
			return show_bad(ls, path, &attr, &why, err);
		if (rc == 0)
			ckv_inside_put(node, &in);
	}
	if (rc == 0 && attr.is_link)
		rc = ckv_readlink(node, &target, err);
	if (rc == 0 && (ls->table || ls->cli->json))
		rc = describe(node, &r.dtype, shape, err);
	if (rc < 0)
		return rc;
	r.kind = kind_name(attr.kind);
	r.target = attr.is_link ? (char *)target.data : NULL;
	r.shape = r.dtype ? shape : NULL;
	return put_row(ls, &r, err);
}

static int walk(struct ls *ls, struct ckv_node *dir, const char *prefix,
		struct ckpt_err *err);

static int walk_below(struct ls *ls, struct ckv_node *node, const char *path,
		      struct ckpt_err *err)
{
	CKB_FREE char *inner = NULL;
	struct ckv_attr attr;
	int rc = ckv_attr(node, &attr, err);

	if (rc < 0 || !attr.is_folder || attr.damaged)
		return rc;
	if (asprintf(&inner, "%s/", path) < 0) {
		inner = NULL;
		return ckb_err_nomem(err);
	}
	return walk(ls, node, inner, err);
}

/* What vanished since it was listed is passed over. */
static int entry(struct ls *ls, const struct ckv_list *list, size_t i,
		 const char *prefix, struct ckpt_err *err)
{
	CKB_FREE char *path = NULL;
	struct ckv_node *node = NULL;
	struct ckpt_err why = { 0 };

	if (asprintf(&path, "%s%s", prefix, ckv_list_name(list, i)) < 0) {
		path = NULL;
		return ckb_err_nomem(err);
	}
	int rc = ckv_list_node(list, i, &node, &why);

	if (rc == 0)
		rc = show(ls, path, node, &why);
	if (rc < 0 && rc != CKPT_ENOENT && rc != CKPT_ESTALE &&
	    rc != CKPT_ENOMEM) {
		ckv_put(node);
		return show_bad(ls, path, NULL, &why, err);
	}
	if (rc == 0 && ls->recurse) {
		rc = walk_below(ls, node, path, &why);
		if (rc < 0 && rc != CKPT_ENOENT && rc != CKPT_ESTALE &&
		    rc != CKPT_ENOMEM) {
			complain(ls, &why);
			rc = 0;
		}
	}
	ckv_put(node);
	return rc == CKPT_ENOMEM ? ckb_err_nomem(err) : 0;
}

static int walk(struct ls *ls, struct ckv_node *dir, const char *prefix,
		struct ckpt_err *err)
{
	struct ckv_list *list = NULL;
	int rc = ckv_list_new(dir, &list, err);

	for (size_t i = 0; rc == 0 && i < ckv_list_count(list); i++)
		rc = entry(ls, list, i, prefix, err);
	ckv_list_free(list);
	return rc;
}

/* The checkpoints that a pattern matches, a row each. */
static int ls_pattern(struct ls *ls, struct ckpt_store *store,
		      struct ckv_tree *tree, struct cli_place *place,
		      struct ckpt_err *err)
{
	CKB_CLEANUP(cli_names_fini) struct cli_names names = { 0 };
	int rc = cli_pick(store, place, false, NULL, &names, err);

	for (size_t i = 0; rc == 0 && i < names.count; i++) {
		struct ckv_node *node = NULL;

		rc = ckv_resolve(tree, names.list[i], &node, err);
		if (rc == 0)
			rc = show(ls, names.list[i], node, err);
		if (rc == CKPT_ENOENT || rc == CKPT_ESTALE)
			rc = 0; /* gone meanwhile */
		ckv_put(node);
	}
	return rc;
}

static int ls_place(struct ls *ls, struct cli_place *place,
		    struct ckpt_err *err)
{
	struct ckpt_store *store = NULL;
	struct ckv_tree *tree = NULL;
	struct ckv_node *node = NULL;
	struct ckv_attr attr = { 0 };
	int rc = cli_open(place, CKPT_STORE_READONLY, &store, err);

	if (rc == 0)
		rc = ckv_tree_new(store, &tree, err);
	if (rc == 0)
		rc = ckv_resolve(tree, place->path, &node, err);
	if (rc == CKPT_ENOENT && tree && cli_is_pattern(place->path))
		rc = ls_pattern(ls, store, tree, place, err);
	else if (rc == 0)
		rc = ckv_attr(node, &attr, err);
	if (rc == 0 && node)
		rc = attr.is_folder ? walk(ls, node, "", err)
				    : show(ls, place->path, node, err);
	ckv_put(node);
	ckv_tree_free(tree);
	ckpt_store_close(store);
	return rc;
}

static int run_ls(struct cli *cli, int argc, char **argv)
{
	static const struct cli_column columns[COL_COUNT] = {
		{ "NAME", false, false }, { "KIND", false, false },
		{ "SIZE", true, false }, { "TIME", false, false },
		{ "DTYPE", false, false }, { "SHAPE", false, false },
	};
	static const struct option options[] = {
		{ "long", no_argument, NULL, 'l' },
		{ "recursive", no_argument, NULL, 'R' }, { 0 },
	};
	struct ls ls = { .cli = cli };
	struct cli_place place;
	struct ckpt_err err = { 0 };
	int c;

	while ((c = cli_option(cli, argc, argv, "lR", options)) != -1) {
		if (c == 'l')
			ls.detail = true;
		else if (c == 'R')
			ls.recurse = true;
		else
			return CLI_USAGE;
	}
	if (argc - optind != 1)
		return cli_usage(cli, "one STORE[:PATH] is wanted, %d given",
				 argc - optind);
	if (cli_place(argv[optind], &place, &err) < 0)
		return cli_fail(cli, &err);
	if (ls.detail && !cli->json) {
		ls.table = cli_table(cli, "entries", columns,
				     COL_COUNT);
		if (!ls.table) {
			cli_place_fini(&place);
			ckb_err_nomem(&err);
			return cli_fail(cli, &err);
		}
		cli_table_cut(ls.table, COL_NAME);
	}
	cli_json_open(&ls.json, NULL, '{');
	cli_json_open(&ls.json, "entries", '[');
	int rc = ls_place(&ls, &place, &err);

	cli_json_close(&ls.json, ']');
	cli_json_close(&ls.json, '}');
	cli_place_fini(&place);
	if (rc < 0) {
		scols_unref_table(ls.table);
		ckb_buf_fini(&ls.json.text);
		return cli_fail_found(cli, &err);
	}
	rc = cli->json ? cli_json_end(cli, &ls.json)
		       : (ckb_buf_fini(&ls.json.text),
			  ls.table ? cli_table_end(ls.table) : CLI_OK);
	return rc != CLI_OK ? rc : ls.code;
}

const struct cli_command cli_ls = {
	.name = "ls",
	.usage = "[-l] [-R] STORE[:PATH|PATTERN]",
	.summary = "List runs, checkpoints, items and tensors",
	.help = "  -l, --long       kind, size, time, dtype and shape\n"
		"  -R, --recursive  and all that is below\n",
	.lacks = "quiet",
	.run = run_ls,
};
