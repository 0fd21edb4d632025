/* SPDX-License-Identifier: Apache-2.0 */
/* cmd_store.c - init, check, reindex: commands on a whole store. */
#include <getopt.h>
#include <inttypes.h>
#include <stdio.h>

#include "cli/json.h"
#include "tensor/dtype.h"

static int run_init(struct cli *cli, int argc, char **argv)
{
	CKB_FREE char *path = NULL;
	struct ckpt_err err = { 0 };

	if (cli_no_option(cli, argc, argv) != CLI_OK)
		return CLI_USAGE;
	if (argc - optind != 1)
		return cli_usage(cli, "one STORE is wanted, %d given",
				 argc - optind);
	int rc = cli_new_store(cli, argv[optind], &path);

	if (rc != CLI_OK)
		return rc;
	if (ckpt_store_init(path, &err) < 0)
		return cli_fail(cli, &err);
	if (cli->json) {
		struct cli_json j = { 0 };

		cli_json_open(&j, NULL, '{');
		cli_json_text(&j, "store", path);
		cli_json_close(&j, '}');
		return cli_json_end(cli, &j);
	}
	if (!cli->quiet)
		cli_say(stdout, "made an empty store in '%s'", path);
	return CLI_OK;
}

const struct cli_command cli_init = {
	.name = "init",
	.usage = "STORE",
	.summary = "Make an empty store",
	.help = "",
	.lacks = "verbose",
	.run = run_init,
	.done = "the store was made",
};

/* ---- check ---- */

enum { COL_CHECKPOINT, COL_TENSOR, COL_BOX, COL_PACK, COL_OFFSET, COL_DAMAGE,
       COL_COUNT };

struct check {
	const struct cli *cli;
	struct libscols_table *table;
	struct cli_json json;
	struct cli_progress progress;
	bool failed;
};

static void put_json(struct cli_json *j, const struct ckpt_damage *d,
		     const char *box, const struct ckb_buf *tensor)
{
	cli_json_open(j, NULL, '{');
	cli_json_text(j, "checkpoint", d->checkpoint);
	if (d->tensor)
		cli_json_name(j, "tensor", (char *)tensor->data, tensor->len);
	else
		cli_json_null(j, "tensor");
	cli_json_text(j, "box", d->box ? box : NULL);
	cli_json_text(j, "pack", d->pack);
	if (d->pack)
		cli_json_u64(j, "offset", d->pack_off);
	else
		cli_json_null(j, "offset");
	cli_json_text(j, "damage", d->what);
	cli_json_close(j, '}');
}

static void on_damage(void *ctx, const struct ckpt_damage *d)
{
	struct check *k = ctx;
	char box[CKT_TEXT_BYTES] = "", off[32] = "";
	CKB_BUF struct ckb_buf tensor = { 0 }, shown = { 0 };

	cli_progress_end(&k->progress);
	if (d->box)
		ckt_box_text(box, sizeof(box), d->box);
	if (d->pack)
		snprintf(off, sizeof(off), "%" PRIu64, d->pack_off);
	if (d->tensor) {
		ckb_buf_printf(&tensor, "%s/", d->item ? d->item : "");
		ckb_buf_put(&tensor, d->tensor, d->tensor_len);
	}
	k->failed = k->failed || tensor.failed;
	if (k->failed)
		return;
	if (k->cli->json) {
		put_json(&k->json, d, box, &tensor);
		return;
	}
	cli_escape(&shown, (char *)tensor.data, tensor.len);
	const char *cells[COL_COUNT] = {
		d->checkpoint, (char *)shown.data, box, d->pack,
		off[0] ? off : NULL, d->what,
	};

	k->failed = shown.failed || cli_row(k->table, cells, COL_COUNT) < 0;
}

static void on_check_progress(void *ctx, uint64_t done, uint64_t total)
{
	cli_progress(&((struct check *)ctx)->progress, done, total);
}

static void check_summary(const struct ckpt_check_result *r)
{
	char a[CLI_COUNT_BYTES], b[CLI_COUNT_BYTES], size[CLI_SIZE_BYTES];

	printf("%s, %s", cli_count(a, r->checkpoint_count, "checkpoint"),
	       cli_count(b, r->tensor_count, "tensor"));
	if (r->file_count > 0)
		printf(", %s", cli_count(a, r->file_count, "file"));
	printf(", %s", cli_count(a, r->chunk_count, "chunk"));
	if (r->bytes > 0)
		printf(", %s read", cli_size(size, r->bytes));
	if (r->unread_count > 0)
		printf(", %" PRIu64 " could not be looked at",
		       r->unread_count);
	if (r->damage_count == 0)
		printf(": no damage\n");
	else
		printf(": %" PRIu64 " damaged\n", r->damage_count);
}

static int check_json(struct check *k, const struct ckpt_check_result *r)
{
	cli_json_close(&k->json, ']');
	cli_json_u64(&k->json, "checkpoints", r->checkpoint_count);
	cli_json_u64(&k->json, "tensors", r->tensor_count);
	cli_json_u64(&k->json, "files", r->file_count);
	cli_json_u64(&k->json, "chunks", r->chunk_count);
	cli_json_u64(&k->json, "bytes", r->bytes);
	cli_json_u64(&k->json, "damaged", r->damage_count);
	cli_json_u64(&k->json, "unread", r->unread_count);
	cli_json_close(&k->json, '}');
	return cli_json_end(k->cli, &k->json);
}

/* One checkpoint after the other; NULL is the whole store. */
static int check_names(struct ckpt_store *store, const struct cli_names *names,
		       const struct ckpt_check_opts *opts,
		       struct ckpt_check_result *sum, struct ckpt_err *err)
{
	int rc = 0;

	if (!names)
		return ckpt_store_check(store, NULL, opts, sum, err);
	for (size_t i = 0; rc == 0 && i < names->count; i++) {
		struct ckpt_check_result r = { 0 };

		rc = ckpt_store_check(store, names->list[i], opts, &r, err);
		sum->checkpoint_count += r.checkpoint_count;
		sum->tensor_count += r.tensor_count;
		sum->file_count += r.file_count;
		sum->chunk_count += r.chunk_count;
		sum->bytes += r.bytes;
		sum->damage_count += r.damage_count;
		sum->unread_count += r.unread_count;
	}
	return rc;
}

static int check_place(const struct cli *cli, struct cli_place *place,
		       enum ckpt_check_depth depth,
		       const struct cli_select *select)
{
	CKB_CLEANUP(cli_names_fini) struct cli_names names = { 0 };
	bool some = *place->path || select->has_step || select->has_since;
	static const struct cli_column columns[COL_COUNT] = {
		{ "CHECKPOINT", false, false }, { "TENSOR", false, false },
		{ "BOX", false, false }, { "PACK", false, false },
		{ "OFFSET", true, false }, { "DAMAGE", false, false },
	};
	struct ckpt_store *store = NULL;
	struct ckpt_check_result result = { 0 };
	struct ckpt_err err = { 0 };
	struct check k = { .cli = cli };
	struct ckpt_check_opts opts = {
		.size = sizeof(opts), .depth = depth, .on_damage = on_damage,
		.on_progress = on_check_progress, .ctx = &k,
	};

	if (cli_open(place, 0, &store, &err) < 0)
		return cli_fail_found(cli, &err);
	k.table = cli_table(cli, "damage", columns, COL_COUNT);
	k.failed = !k.table;
	if (k.table) {
		cli_table_cut(k.table, COL_TENSOR);
		cli_table_cut(k.table, COL_DAMAGE);
	}
	cli_json_open(&k.json, NULL, '{');
	cli_json_open(&k.json, "damage", '[');
	cli_progress_init(&k.progress, cli, "checking");
	int rc = k.failed ? ckb_err_nomem(&err) : 0;

	if (rc == 0 && some)
		rc = cli_pick(store, place, true, select, &names, &err);
	if (rc == CKPT_ENOENT && !*place->path)
		rc = 0; /* nothing is chosen of an empty store */
	if (rc == 0)
		rc = check_names(store, some ? &names : NULL, &opts, &result,
				 &err);

	cli_progress_end(&k.progress);
	ckpt_store_close(store);
	if (rc == 0 && k.failed)
		rc = ckb_err_nomem(&err);
	if (rc < 0) {
		scols_unref_table(k.table);
		ckb_buf_fini(&k.json.text);
		return cli_fail(cli, &err);
	}
	bool found = result.damage_count > 0 || result.unread_count > 0;

	if (found && !cli->json)
		rc = cli_table_end(k.table);
	else
		scols_unref_table(k.table);
	if (cli->json)
		rc = check_json(&k, &result);
	else
		ckb_buf_fini(&k.json.text);
	if (!cli->json && !cli->quiet)
		check_summary(&result);
	if (result.damage_count > 0)
		return CLI_DAMAGE;
	if (result.unread_count > 0) {
		ckb_err(&err, CKPT_EIO, "no damage was found, but %s not be "
			"looked at", result.unread_count == 1
			? "one part could" : "some parts could");
		return cli_fail(cli, &err);
	}
	return rc;
}

static int run_check(struct cli *cli, int argc, char **argv)
{
	static const struct option options[] = {
		{ "cells", no_argument, NULL, 'c' },
		{ "full", no_argument, NULL, 'f' }, CLI_SELECT_OPTIONS,
		{ 0 },
	};
	struct cli_select select = { 0 };
	enum ckpt_check_depth depth = CKPT_CHECK_QUICK;
	struct cli_place place;
	struct ckpt_err err = { 0 };
	int c;

	while ((c = cli_option(cli, argc, argv, "", options)) != -1) {
		/* each demands what the one before does */
		if (c == 'f')
			depth = CKPT_CHECK_FULL;
		else if (c == 'c' && depth < CKPT_CHECK_CELLS)
			depth = CKPT_CHECK_CELLS;
		else if (c == 'c')
			continue;
		else if (c == '?')
			return CLI_USAGE;
		else if (cli_select(cli, &select, c, optarg) != CLI_OK)
			return CLI_USAGE;
	}
	if (argc - optind != 1)
		return cli_usage(cli, "one STORE or STORE:CHECKPOINT is "
				 "wanted, %d given", argc - optind);
	if (cli_place(argv[optind], &place, &err) < 0)
		return cli_fail(cli, &err);
	int rc = check_place(cli, &place, depth, &select);

	cli_place_fini(&place);
	return rc;
}

const struct cli_command cli_check = {
	.name = "check",
	.usage = "[--cells|--full] STORE[:CHECKPOINT|RUN|PATTERN]",
	.summary = "Look for damage; exit 3 when some is found",
	.help = "      --cells      every stored byte against its checksum\n"
		"      --full       and every raw byte against its SHA-256\n"
		CLI_SELECT_HELP,
	.run = run_check,
};

/* ---- reindex ---- */

static int run_reindex(struct cli *cli, int argc, char **argv)
{
	char text[4][CLI_COUNT_BYTES];
	struct ckpt_reindex_result r = { 0 };
	struct ckpt_store *store = NULL;
	struct cli_place place;
	struct ckpt_err err = { 0 };

	int rc = cli_whole_store(cli, argc, argv, &place);

	if (rc != CLI_OK)
		return rc;
	rc = cli_open(&place, 0, &store, &err);

	if (rc == 0)
		rc = ckpt_store_reindex(store, &r, &err);
	ckpt_store_close(store);
	cli_place_fini(&place);
	if (rc < 0)
		return cli_fail(cli, &err);
	if (cli->json) {
		struct cli_json j = { 0 };

		cli_json_open(&j, NULL, '{');
		cli_json_u64(&j, "packs", r.pack_count);
		cli_json_u64(&j, "chunks", r.chunk_count);
		cli_json_u64(&j, "checkpoints", r.checkpoint_count);
		cli_json_u64(&j, "skipped", r.skipped_count);
		cli_json_close(&j, '}');
		return cli_json_end(cli, &j);
	}
	if (!cli->quiet)
		printf("indexed %s of %s and %s; %s could not be read\n",
		       cli_count(text[0], r.chunk_count, "chunk"),
		       cli_count(text[1], r.pack_count, "pack"),
		       cli_count(text[2], r.checkpoint_count, "checkpoint"),
		       cli_count(text[3], r.skipped_count, "file"));
	return CLI_OK;
}

const struct cli_command cli_reindex = {
	.name = "reindex",
	.usage = "STORE",
	.summary = "Make the index again from packs and manifests",
	.help = "",
	.run = run_reindex,
	.done = "the index was made",
};
