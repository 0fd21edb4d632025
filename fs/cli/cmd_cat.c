/* SPDX-License-Identifier: Apache-2.0 */
/*
 * cmd_cat.c - cat: a file of the tree, or a tensor's raw bytes, to stdout.
 *
 * `--tensor NAME` takes the tensor's own name, not its path: names that no
 * argument can carry (NUL) are reached through the tree.
 */
#include <errno.h>
#include <getopt.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "cli/inside.h"

#define STEP_BYTES (1u << 20)

struct cat {
	const char *tensor;   /* --tensor, or NULL */
	bool output_failed;   /* nothing more can be written */
};

/* All of it to stdout, past stdio. */
static int put(struct cat *cat, const uint8_t *data, size_t len,
	       struct ckpt_err *err)
{
	while (len > 0) {
		ssize_t n = write(STDOUT_FILENO, data, len);

		if (n < 0 && errno == EINTR)
			continue;
		if (n < 0) {
			cat->output_failed = true;
			return ckb_err_sys(err, errno, "cannot write the "
					   "output");
		}
		data += n;
		len -= (size_t)n;
	}
	return 0;
}

static int cat_node(struct cat *cat, struct ckv_node *node,
		    const char *path, struct ckpt_err *err)
{
	struct ckv_attr attr;
	CKB_FREE uint8_t *data = malloc(STEP_BYTES);
	int rc = data ? ckv_attr(node, &attr, err) : ckb_err_nomem(err);

	if (rc < 0)
		return rc;
	if (attr.is_folder)
		return ckb_err(err, CKPT_EINVAL, "'%s' is a folder; list it "
			       "with ckptfs ls", path);
	for (uint64_t off = 0; off < attr.size;) {
		size_t len = 0;

		rc = ckv_read(node, off, data, STEP_BYTES, &len, err);
		if (rc == 0)
			rc = put(cat, data, len, err);
		if (rc < 0)
			return rc;
		off += len;
	}
	return 0;
}

/* Tensor @name of @item, or of the only item that has one. */
static int find_tensor(struct ckpt_checkpoint *ckpt,
		       const struct ckpt_item_info *item, const char *name,
		       const struct ckpt_tensor_info **out,
		       struct ckpt_err *err)
{
	char quoted[CKB_QUOTE_BYTES];
	size_t hits = 0;

	for (size_t i = 0; i < ckpt_item_count(ckpt); i++) {
		const struct ckpt_item_info *it = ckpt_item_at(ckpt, i);
		const struct ckpt_tensor_info *t;

		if (item ? it != item : it->kind != CKPT_ITEM_TENSORS)
			continue;
		t = ckpt_tensor_find(ckpt, it, name, strlen(name));
		if (t) {
			*out = t;
			hits++;
		}
	}
	if (hits == 0)
		return cli_no_tensor(ckpt, item, name, err);
	if (hits > 1)
		return ckb_err(err, CKPT_EINVAL, "several items of checkpoint "
			       "'%s' have a tensor '%s'; name one: "
			       "STORE:CKPT/ITEM",
			       ckpt_checkpoint_info(ckpt)->name,
			       ckb_quote(quoted, sizeof(quoted), name,
					 strlen(name)));
	return 0;
}

/* @path: "run/4000" or "run/4000/model". */
static int open_tensor(struct ckv_tree *tree, const char *path,
		       const char *name, struct ckv_node **node,
		       struct ckv_inside *in,
		       const struct ckpt_tensor_info **out,
		       struct ckpt_err *err)
{
	const struct ckpt_item_info *item = NULL;
	const char *rest = "";
	int rc = cli_head(tree, path, node, &rest, err);

	if (rc == 0)
		rc = ckv_inside_get(*node, in, err);
	if (rc == 0 && strchr(rest, '/'))
		return ckb_err(err, CKPT_EINVAL, "'%s' is below an item; "
			       "--tensor wants STORE:CKPT or STORE:CKPT/ITEM, "
			       "such as '%.*s'", path,
			       (int)(strchr(rest, '/') - path), path);
	if (rc == 0 && *rest)
		rc = cli_item(in->checkpoint, rest, strlen(rest), &item, err);
	return rc < 0 ? rc : find_tensor(in->checkpoint, item, name, out, err);
}

static int cat_tensor(struct cat *cat, struct ckpt_store *store,
		      const char *path, struct ckpt_err *err)
{
	struct ckv_tree *tree = NULL;
	struct ckv_node *node = NULL;
	struct ckv_inside in = { 0 };
	const struct ckpt_tensor_info *t = NULL;
	CKB_FREE uint8_t *data = malloc(STEP_BYTES);
	int rc = data ? ckv_tree_new(store, &tree, err) : ckb_err_nomem(err);

	if (rc == 0)
		rc = open_tensor(tree, path, cat->tensor, &node, &in, &t, err);
	for (uint64_t off = 0; rc == 0 && off < t->bytes;) {
		size_t len = (size_t)ckb_min_u64(STEP_BYTES, t->bytes - off);

		rc = ckpt_read_bytes(in.checkpoint, t, off, len, data, err);
		if (rc == 0)
			rc = put(cat, data, len, err);
		off += len;
	}
	if (node)
		ckv_inside_put(node, &in);
	ckv_put(node);
	ckv_tree_free(tree);
	return rc;
}

static int cat_path(struct cat *cat, struct ckpt_store *store,
		    const char *path, struct ckpt_err *err)
{
	struct ckv_tree *tree = NULL;
	struct ckv_node *node = NULL;
	int rc = ckv_tree_new(store, &tree, err);

	if (rc == 0)
		rc = ckv_resolve(tree, path, &node, err);
	if (rc == 0)
		rc = cat_node(cat, node, path, err);
	ckv_put(node);
	ckv_tree_free(tree);
	return rc;
}

/* CLI_OK, or what is wrong, said. */
static int cat_place(const struct cli *cli, struct cat *cat, const char *arg)
{
	struct ckpt_store *store = NULL;
	struct cli_place place;
	struct ckpt_err err = { 0 };

	if (cli_place(arg, &place, &err) < 0)
		return cli_fail(cli, &err);
	if (!*place.path) {
		cli_place_fini(&place);
		return cli_usage(cli, "'%s' lacks a path: STORE:PATH", arg);
	}
	int rc = cli_open(&place, CKPT_STORE_READONLY, &store, &err);

	if (rc == 0)
		rc = cat->tensor ? cat_tensor(cat, store, place.path, &err)
				 : cat_path(cat, store, place.path, &err);
	ckpt_store_close(store);
	cli_place_fini(&place);
	return rc < 0 ? cli_fail_found(cli, &err) : CLI_OK;
}

/* As cat(1) does, it goes on behind a place that cannot be read. */
static int run_cat(struct cli *cli, int argc, char **argv)
{
	static const struct option options[] = {
		{ "tensor", required_argument, NULL, 't' }, { 0 },
	};
	struct cat cat = { 0 };
	int c, worst = CLI_OK;

	while ((c = cli_option(cli, argc, argv, "", options)) != -1) {
		if (c != 't')
			return CLI_USAGE;
		cat.tensor = optarg;
	}
	if (optind >= argc)
		return cli_usage(cli, "a STORE:PATH is wanted");
	for (int i = optind; i < argc && !cat.output_failed; i++) {
		int code = cat_place(cli, &cat, argv[i]);

		worst = code > worst ? code : worst;
	}
	return worst;
}

const struct cli_command cli_cat = {
	.name = "cat",
	.usage = "STORE:PATH... | --tensor NAME STORE:CKPT[/ITEM]",
	.summary = "Write files, or a tensor's raw bytes, to standard output",
	.help = "      --tensor N   raw bytes of the tensor of exactly this "
		"name\n",
	.lacks = "quiet json",
	.run = run_cat,
};
