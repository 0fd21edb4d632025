/* SPDX-License-Identifier: Apache-2.0 */
/* cmd_tag.c - tag: names that may be given anew. See store/verbs/tag.c. */
#include <getopt.h>
#include <stdio.h>
#include <string.h>

#include "cli/inside.h"
#include "cli/json.h"

enum what { SET, LIST, DROP };

struct list {
	const struct cli *cli;
	struct libscols_table *table;
	struct cli_json json;
};

static int list_one(void *ctx, const struct ckpt_tag *t)
{
	struct list *l = ctx;
	const char *cells[2] = { t->name, t->checkpoint ? t->checkpoint
							: "(gone)" };

	if (l->cli->json) {
		cli_json_open(&l->json, NULL, '{');
		cli_json_text(&l->json, "tag", t->name);
		cli_json_text(&l->json, "checkpoint", t->checkpoint);
		cli_json_uuid(&l->json, "uuid", t->uuid);
		cli_json_close(&l->json, '}');
		return 0;
	}
	if (cli_row(l->table, cells, 2) < 0)
		return CKPT_ENOMEM;
	if (!t->checkpoint)
		cli_row_red(l->cli, l->table);
	return 0;
}

/* An exit code, or an error. */
static int list_tags(const struct cli *cli, struct ckpt_store *store,
		     struct ckpt_err *err)
{
	static const struct cli_column columns[] = {
		{ "TAG", false, false }, { "CHECKPOINT", false, false },
	};
	struct list l = { .cli = cli,
			  .table = cli_table(cli, "tags", columns, 2) };

	if (!l.table)
		return ckb_err_nomem(err);
	cli_json_open(&l.json, NULL, '{');
	cli_json_open(&l.json, "tags", '[');
	int rc = ckpt_tag_list(store, list_one, &l, err);

	cli_json_close(&l.json, ']');
	cli_json_close(&l.json, '}');
	if (rc == CKPT_ENOMEM)
		ckb_err_nomem(err);
	if (rc == 0 && cli->json)
		rc = cli_json_end(cli, &l.json);
	else
		ckb_buf_fini(&l.json.text);
	if (rc == 0 && !cli->json &&
	    scols_table_get_nlines(l.table) > 0)
		return cli_table_end(l.table);
	scols_unref_table(l.table);
	return rc;
}

/* An exit code, or an error. */
static int change(const struct cli *cli, struct ckpt_store *store,
		  enum what what, const char *checkpoint, const char *tag,
		  struct ckpt_err *err)
{
	int rc = what == SET ? ckpt_tag_set(store, tag, checkpoint, err)
			     : ckpt_tag_remove(store, tag, err);
	struct cli_json j = { 0 };

	if (rc < 0)
		return rc;
	if (cli->json) {
		cli_json_open(&j, NULL, '{');
		cli_json_text(&j, "tag", tag);
		cli_json_text(&j, "checkpoint", what == SET ? checkpoint
							    : NULL);
		cli_json_close(&j, '}');
		return cli_json_end(cli, &j);
	}
	if (!cli->quiet && what == SET)
		cli_say(stdout, "tag '%s' names '%s'", tag, checkpoint);
	else if (!cli->quiet)
		cli_say(stdout, "removed tag '%s'", tag);
	return CLI_OK;
}

/* A tag is written "@best" or "best". */
static const char *bare(const char *tag)
{
	return *tag == '@' ? tag + 1 : tag;
}

static int run_tag(struct cli *cli, int argc, char **argv)
{
	static const struct option options[] = {
		{ "list", no_argument, NULL, 'l' },
		{ "delete", no_argument, NULL, 'd' }, { 0 },
	};
	enum what what = SET;
	struct ckpt_store *store = NULL;
	struct cli_place place;
	struct ckpt_err err = { 0 };
	int c;

	while ((c = cli_option(cli, argc, argv, "ld", options)) != -1) {
		if (c != 'l' && c != 'd')
			return CLI_USAGE;
		enum what asked = c == 'l' ? LIST : DROP;

		if (what != SET && what != asked)
			return cli_usage(cli, "-l and -d cannot be one call");
		what = asked;
	}
	int want = what == LIST ? 1 : 2;

	if (argc - optind != want)
		return cli_usage(cli, "%s wanted, %d given", what == SET
				 ? "STORE:NAME and TAG are" : what == DROP
				 ? "STORE and TAG are" : "one STORE is",
				 argc - optind);
	if (cli_place(argv[optind], &place, &err) < 0)
		return cli_fail(cli, &err);
	if ((what == SET) != (*place.path != '\0')) {
		cli_place_fini(&place);
		return cli_usage(cli, what == SET
				 ? "'%s' lacks the checkpoint's name: "
				   "STORE:NAME"
				 : "a whole STORE is wanted, not '%s'",
				 argv[optind]);
	}
	int rc = cli_open(&place, what == LIST ? CKPT_STORE_READONLY : 0,
			  &store, &err);

	if (rc == 0 && what == SET)
		rc = cli_follow(store, &place.path, &err);
	if (rc == 0)
		rc = what == LIST ? list_tags(cli, store, &err)
				  : change(cli, store, what, place.path,
					   bare(argv[optind + 1]), &err);
	ckpt_store_close(store);
	cli_place_fini(&place);
	return rc < 0 ? cli_fail(cli, &err) : rc;
}

const struct cli_command cli_tag = {
	.name = "tag",
	.usage = "STORE:NAME TAG | -l STORE | -d STORE TAG",
	.summary = "Name a checkpoint once more; STORE:@TAG is then that one",
	.help = "  -l, --list       all tags and what they name\n"
		"  -d, --delete     remove a tag, not the checkpoint\n",
	.run = run_tag,
	.done = "what was asked was done",
};
