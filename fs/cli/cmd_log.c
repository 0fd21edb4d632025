/* SPDX-License-Identifier: Apache-2.0 */
/*
 * cmd_log.c - log: a table of checkpoints, newest first.
 *
 * Everything comes from ckpt_store_entries(), so it is as quick as the index
 * is good. A checkpoint whose manifest is damaged is a row too, and makes the
 * command exit with 3.
 */
#include <getopt.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cli/json.h"

enum { COL_NAME, COL_STEP, COL_TIME, COL_SIZE, COL_STORED, COL_OWN,
       COL_SHARED, COL_METRICS, COL_COUNT };

enum sort { BY_NEWEST, BY_NAME, BY_STEP, BY_TIME, BY_SIZE, BY_STORED, BY_OWN,
	    SORT_COUNT };
static const char *const sort_names[SORT_COUNT] = {
	"newest", "name", "step", "time", "size", "stored", "own",
};

struct log {
	struct cli *cli;
	struct cli_select select;
	enum sort sort;
	bool reverse, has_limit;
	uint64_t limit;
	struct cli_entries all;
	struct ckpt_entry *list; /* what is shown, borrowed from there */
	size_t count;
	int code;                /* the exit code that what is shown makes */
};

static void log_fini(struct log *l)
{
	cli_entries_fini(&l->all);
	free(l->list);
}

/* ---- order ---- */

static int more(uint64_t a, uint64_t b)
{
	return a < b ? 1 : a > b ? -1 : 0;
}

static int compare(const struct ckpt_entry *a, const struct ckpt_entry *b,
		   enum sort sort)
{
	switch (sort) {
	case BY_NAME:
		return strcmp(a->name, b->name);
	case BY_STEP:
		if (a->has_step != b->has_step)
			return a->has_step ? -1 : 1;
		return more(a->step, b->step);
	case BY_TIME:
		return a->created_ns < b->created_ns ? 1
		     : a->created_ns > b->created_ns ? -1 : 0;
	case BY_SIZE:
		return more(a->bytes, b->bytes);
	case BY_STORED:
		return more(a->stored_bytes, b->stored_bytes);
	case BY_OWN:
		return more(a->own_bytes, b->own_bytes);
	default:
		return more(a->seq, b->seq);
	}
}

static int in_order(const void *a, const void *b, void *ctx)
{
	const struct log *l = ctx;
	int c = compare(a, b, l->sort);

	if (c == 0)
		c = compare(a, b, BY_NEWEST);
	if (c == 0)
		c = compare(a, b, BY_NAME);
	return l->reverse ? -c : c;
}

/* ---- output ---- */

/* {"loss": 2.5, "acc": 1} -> loss: 2.5, acc: 1 */
static void metrics_text(struct ckb_buf *out, const char *json)
{
	size_t len = strlen(json);

	for (size_t i = 0; i < len; i++)
		if (json[i] != '"' && !(i == 0 && json[i] == '{') &&
		    !(i + 1 == len && json[i] == '}'))
			ckb_buf_putc(out, json[i]);
}

static int put_row(const struct log *l, struct libscols_table *table,
		   const struct ckpt_entry *e)
{
	char step[24], when[CLI_TIME_BYTES];
	CKB_BUF struct ckb_buf metrics = { 0 };
	char size[CLI_SIZE_BYTES], stored[CLI_SIZE_BYTES];
	char own[CLI_SIZE_BYTES], shared[CLI_SIZE_BYTES];

	if (e->damage) {
		const char *cells[COL_COUNT] = { e->name };

		cells[COL_METRICS] = e->damage_code == CKPT_ECORRUPT
					     ? "damaged" : "unreadable";
		int rc = cli_row(table, cells, COL_COUNT);

		cli_row_red(l->cli, table);
		return rc;
	}
	snprintf(step, sizeof(step), "%" PRIu64, e->step);
	if (e->metrics)
		metrics_text(&metrics, e->metrics);
	if (metrics.failed)
		return CKPT_ENOMEM;
	const char *cells[COL_COUNT] = {
		e->name, e->has_step ? step : NULL,
		cli_time(when, e->created_ns), cli_size(size, e->bytes),
		cli_size(stored, e->stored_bytes),
		cli_size(own, e->own_bytes),
		cli_size(shared, e->stored_bytes - e->own_bytes),
		(char *)metrics.data,
	};

	return cli_row(table, cells, COL_COUNT);
}

static int print_table(const struct log *l, size_t count)
{
	static const struct cli_column columns[COL_COUNT] = {
		{ "NAME", false, false }, { "STEP", true, false },
		{ "TIME", false, false }, { "SIZE", true, false },
		{ "STORED", true, false }, { "OWN", true, false },
		{ "SHARED", true, false }, { "METRICS", false, false },
	};
	struct libscols_table *table = cli_table(l->cli, "log", columns,
						 COL_COUNT);
	int rc = table ? 0 : CKPT_ENOMEM;

	if (table) {
		cli_table_cut(table, COL_NAME);
		cli_table_cut(table, COL_METRICS);
	}
	for (size_t i = 0; rc == 0 && i < count; i++)
		rc = put_row(l, table, &l->list[i]);
	if (rc < 0) {
		scols_unref_table(table);
		fprintf(stderr, "ckptfs log: out of memory\n");
		return CLI_FAILED;
	}
	return cli_table_end(table);
}

static void put_json(struct cli_json *j, const struct ckpt_entry *e)
{
	bool ok = !e->damage;

	cli_json_open(j, NULL, '{');
	cli_json_text(j, "name", e->name);
	cli_json_text(j, "damage", e->damage);
	cli_json_uuid(j, "uuid", ok ? e->uuid : NULL);
	if (ok && e->has_step)
		cli_json_u64(j, "step", e->step);
	else
		cli_json_null(j, "step");
	if (ok)
		cli_json_time(j, "created", e->created_ns);
	else
		cli_json_null(j, "created");
	cli_json_u64(j, "seq", e->seq);
	cli_json_u64(j, "generation", e->generation);
	cli_json_uuid(j, "parent", ok && e->has_parent ? e->parent : NULL);
	cli_json_u64(j, "bytes", e->bytes);
	cli_json_u64(j, "stored_bytes", e->stored_bytes);
	cli_json_u64(j, "own_bytes", e->own_bytes);
	cli_json_u64(j, "shared_bytes", e->stored_bytes - e->own_bytes);
	cli_json_object(j, "metrics", e->metrics);
	cli_json_close(j, '}');
}

static int print(struct log *l)
{
	size_t count = l->count;
	struct cli_json j = { 0 };

	if (l->has_limit)
		count = (size_t)ckb_min_u64(count, l->limit);
	for (size_t i = 0; i < count; i++) {
		const struct ckpt_entry *e = &l->list[i];

		if (!e->damage)
			continue;
		struct ckpt_err why = { 0 };

		ckb_err(&why, e->damage_code, "checkpoint '%s': %s", e->name,
			e->damage);
		int code = cli_fail_found(l->cli, &why);

		l->code = code > l->code ? code : l->code;
	}
	if (!l->cli->json)
		return count > 0 ? print_table(l, count) : CLI_OK;
	cli_json_open(&j, NULL, '{');
	cli_json_open(&j, "checkpoints", '[');
	for (size_t i = 0; i < count; i++)
		put_json(&j, &l->list[i]);
	cli_json_close(&j, ']');
	cli_json_close(&j, '}');
	return cli_json_end(l->cli, &j);
}

/* ---- the command ---- */

/* A run, all of them, one checkpoint, or a pattern. */
static int load(struct log *l, struct ckpt_store *store,
		struct cli_place *place, struct ckpt_err *err)
{
	CKB_CLEANUP(cli_names_fini) struct cli_names names = { 0 };
	int rc = cli_walk(store, CKPT_ENTRIES_OWN, &l->all, err);

	if (rc == 0 && (*place->path || l->all.count > 0))
		rc = cli_pick_of(store, &l->all, place, true, &l->select,
				 &names, err);
	l->list = rc == 0 ? calloc(names.count + 1, sizeof(*l->list)) : NULL;
	if (rc == 0 && !l->list)
		rc = ckb_err_nomem(err);
	for (size_t i = 0; rc == 0 && i < names.count; i++)
		l->list[l->count++] = *cli_entry(&l->all, names.list[i]);
	return rc;
}

static int parse_sort(struct log *l, const char *text)
{
	for (int i = 0; i < SORT_COUNT; i++)
		if (strcmp(text, sort_names[i]) == 0) {
			l->sort = (enum sort)i;
			return CLI_OK;
		}
	return cli_usage(l->cli, "--sort is newest, name, step, time, size, "
			 "stored or own, not '%s'", text);
}

static int parse(struct log *l, int argc, char **argv)
{
	static const struct option options[] = {
		{ "limit", required_argument, NULL, 'n' },
		{ "sort", required_argument, NULL, 's' },
		{ "reverse", no_argument, NULL, 'r' }, CLI_SELECT_OPTIONS,
		{ 0 },
	};
	int c, rc = CLI_OK;

	while (rc == CLI_OK &&
	       (c = cli_option(l->cli, argc, argv, "n:r", options)) != -1) {
		if (c == 'n') {
			l->has_limit = true;
			if (!cli_whole(optarg, 0, UINT64_MAX, &l->limit))
				rc = cli_usage(l->cli, "--limit wants a whole "
					       "number, not '%s'", optarg);
		} else if (c == 's') {
			rc = parse_sort(l, optarg);
		} else if (c == 'r') {
			l->reverse = true;
		} else if (c == CLI_OPT_STEP || c == CLI_OPT_SINCE) {
			rc = cli_select(l->cli, &l->select, c, optarg);
		} else {
			rc = CLI_USAGE;
		}
	}
	if (rc == CLI_OK && argc - optind != 1)
		rc = cli_usage(l->cli, "one STORE[:RUN] is wanted, %d given",
			       argc - optind);
	return rc;
}

static int run_log(struct cli *cli, int argc, char **argv)
{
	CKB_CLEANUP(log_fini) struct log l = { .cli = cli };
	struct ckpt_store *store = NULL;
	struct cli_place place;
	struct ckpt_err err = { 0 };
	int rc = parse(&l, argc, argv);

	if (rc != CLI_OK)
		return rc;
	if (cli_place(argv[optind], &place, &err) < 0)
		return cli_fail(cli, &err);
	rc = cli_open(&place, CKPT_STORE_READONLY, &store, &err);
	if (rc == 0)
		rc = load(&l, store, &place, &err);
	ckpt_store_close(store);
	cli_place_fini(&place);
	if (rc < 0)
		return cli_fail(cli, &err);
	if (l.count > 0)
		qsort_r(l.list, l.count, sizeof(*l.list), in_order, &l);
	rc = print(&l);
	return rc == CLI_OK ? l.code : rc;
}

const struct cli_command cli_log = {
	.name = "log",
	.usage = "[OPTIONS] STORE[:RUN]",
	.summary = "A table of checkpoints, newest first",
	.help = CLI_SELECT_HELP
		"  -n, --limit N    at most N of them\n"
		"      --sort KEY   newest, name, step, time, size, stored or "
		"own\n"
		"  -r, --reverse    the other way round\n",
	.lacks = "quiet",
	.run = run_log,
};
