/* SPDX-License-Identifier: Apache-2.0 */
/*
 * cmd_ls.c - ls: what a mount would show, without one.
 *
 * Names go to people and to JSON as they are in the tree: escaped, so no name
 * can play tricks with a terminal.
 */
#include <getopt.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>

#include "cli/cli.h"
#include "tensor/dtype.h"
#include "tree/tree.h"

enum { COL_NAME, COL_KIND, COL_SIZE, COL_TIME, COL_DTYPE, COL_SHAPE,
       COL_COUNT };

struct ls {
	const struct cli *cli;
	struct libscols_table *table;
	bool detail, recurse;
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

/* One row, or one line; @node is borrowed. */
static int show(struct ls *ls, const char *path, struct ckv_node *node,
		struct ckpt_err *err)
{
	const char *dtype;
	char size[32], shape[CKT_TEXT_BYTES], when[CLI_TIME_BYTES];
	struct ckv_attr attr;
	int rc = ckv_attr(node, &attr, err);

	if (rc < 0)
		return rc;
	CKB_BUF struct ckb_buf name = { 0 };

	ckb_buf_puts(&name, path);
	if (attr.is_folder && !ls->cli->json)
		ckb_buf_putc(&name, '/');
	if (attr.is_link) {
		if (!ls->cli->json)
			ckb_buf_puts(&name, " -> ");
		if (!ls->cli->json)
			rc = ckv_readlink(node, &name, err);
	}
	if (rc < 0)
		return rc;
	if (name.failed)
		return ckb_err_nomem(err);
	if (!ls->table) {
		printf("%s\n", (char *)name.data);
		return 0;
	}
	rc = describe(node, &dtype, shape, err);
	if (rc < 0)
		return rc;
	snprintf(size, sizeof(size), "%" PRIu64, attr.size);
	const char *cells[COL_COUNT] = {
		(char *)name.data, kind_name(attr.kind),
		attr.is_folder ? NULL : size, cli_time(when, attr.time_ns),
		dtype, dtype ? shape : NULL,
	};

	return cli_row(ls->table, cells, COL_COUNT) < 0 ? ckb_err_nomem(err)
							: 0;
}

/* A damaged or vanished entry is shown by its name, and said. */
static bool bad;

static int walk(struct ls *ls, struct ckv_node *dir, const char *prefix,
		struct ckpt_err *err);

static int entry(struct ls *ls, const struct ckv_list *list, size_t i,
		 const char *prefix, struct ckpt_err *err)
{
	CKB_FREE char *path = NULL;
	struct ckv_node *node = NULL;

	if (asprintf(&path, "%s%s", prefix, ckv_list_name(list, i)) < 0)
		return ckb_err_nomem(err);
	int rc = ckv_list_node(list, i, &node, err);

	if (rc == 0)
		rc = show(ls, path, node, err);
	if (rc == 0 && ls->recurse && ckv_list_is_folder(list, i) &&
	    ckv_node_kind(node) != CKV_LINK) {
		CKB_FREE char *inner = NULL;

		rc = asprintf(&inner, "%s/", path) < 0
			     ? ckb_err_nomem(err)
			     : walk(ls, node, inner, err);
	}
	ckv_put(node);
	if (rc == CKPT_ECORRUPT || rc == CKPT_EVERSION || rc == CKPT_EIO) {
		const char *cells[COL_COUNT] = { path, "damaged" };

		if (!ls->table)
			printf("%s\n", path);
		else if (cli_row(ls->table, cells, COL_COUNT) < 0)
			return ckb_err_nomem(err);
		cli_fail(ls->cli, err);
		bad = true;
		rc = 0;
	}
	return rc;
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
		{ "SIZE", true, true }, { "TIME", false, false },
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
	if (ls.detail || cli->json) {
		ls.table = cli_table(cli, "entries", columns, COL_COUNT);
		if (!ls.table) {
			cli_place_fini(&place);
			ckb_err_nomem(&err);
			return cli_fail(cli, &err);
		}
	}
	int rc = ls_place(&ls, &place, &err);

	cli_place_fini(&place);
	if (rc < 0) {
		scols_unref_table(ls.table);
		return cli_fail(cli, &err);
	}
	if (ls.table && cli_table_end(ls.table) != CLI_OK)
		return CLI_FAILED;
	return bad ? CLI_DAMAGE : CLI_OK;
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
