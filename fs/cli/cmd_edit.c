/* SPDX-License-Identifier: Apache-2.0 */
/*
 * cmd_edit.c - rm, mv, cp: checkpoints by name.
 *
 * All arguments are looked at before anything is changed, so that a mistyped
 * one leaves the store as it was. What then fails is said, and the rest of the
 * list is left alone.
 */
#include <errno.h>
#include <getopt.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cli/json.h"

/* ---- places of one store ---- */

struct work {
	const struct cli *cli;
	struct ckpt_store *store;
	char *path;              /* of the store, as it was given */
	struct cli_names names;
	struct cli_select select;
	bool force, dry, runs;
};

static void work_fini(struct work *w)
{
	ckpt_store_close(w->store);
	cli_names_fini(&w->names);
	free(w->path);
}

/* Open the place's store, which must be the one that is open already. */
static int same_store(struct work *w, struct cli_place *place,
		      struct ckpt_err *err)
{
	struct ckpt_store *other = NULL;
	int rc = cli_open(place, w->dry ? CKPT_STORE_READONLY : 0, &other,
			  err);

	if (rc < 0)
		return rc;
	if (!w->store) {
		w->store = other;
		w->path = strdup(place->store);
		return w->path ? 0 : ckb_err_nomem(err);
	}
	if (memcmp(ckpt_store_uuid(w->store), ckpt_store_uuid(other),
		   CKPT_UUID_BYTES) != 0)
		rc = ckb_err(err, CKPT_EINVAL, "'%s' and '%s' are two stores; "
			     "one at a time is meant", w->path, place->store);
	ckpt_store_close(other);
	return rc;
}

/* The checkpoints of argument @arg, appended to w->names. */
static int add_place(struct work *w, const char *arg, struct ckpt_err *err)
{
	struct cli_place place;
	int rc = cli_place(arg, &place, err);

	if (rc < 0)
		return rc;
	rc = same_store(w, &place, err);
	if (rc == 0 && !*place.path)
		rc = ckb_err(err, CKPT_EINVAL, "'%s' names no checkpoint: "
			     "STORE:NAME", arg);
	if (rc == 0)
		rc = cli_pick(w->store, &place, w->runs, &w->select,
			      &w->names, err);
	cli_place_fini(&place);
	return rc;
}

static void list_done(const struct work *w, const char *key, size_t count)
{
	struct cli_json j = { 0 };

	cli_json_open(&j, NULL, '{');
	cli_json_open(&j, key, '[');
	for (size_t i = 0; i < count; i++)
		cli_json_text(&j, NULL, w->names.list[i]);
	cli_json_close(&j, ']');
	cli_json_bool(&j, "dry_run", w->dry);
	cli_json_close(&j, '}');
	cli_json_end(w->cli, &j);
}

/* ---- rm ---- */

static int by_text(const void *a, const void *b)
{
	return strcmp(*(char *const *)a, *(char *const *)b);
}

/* Two arguments may mean one checkpoint. */
static void each_once(struct cli_names *n)
{
	size_t kept = 0;

	if (n->count > 0)
		qsort(n->list, n->count, sizeof(*n->list), by_text);
	for (size_t i = 0; i < n->count; i++) {
		if (kept > 0 && strcmp(n->list[kept - 1], n->list[i]) == 0)
			free(n->list[i]);
		else
			n->list[kept++] = n->list[i];
	}
	n->count = kept;
}

static void rm_summary(const struct work *w, size_t done)
{
	if (w->cli->json) {
		list_done(w, "removed", done);
		return;
	}
	if (w->dry)
		for (size_t i = 0; i < done; i++)
			printf("would remove %s\n", w->names.list[i]);
	if (!w->cli->quiet && !w->dry)
		printf("removed %zu checkpoint%s; what no other one uses stays "
		       "in the packs until garbage is collected\n", done,
		       done == 1 ? "" : "s");
}

static int rm_all(struct work *w, struct ckpt_err *err)
{
	size_t done = 0;
	int rc = 0;

	each_once(&w->names);
	for (; rc == 0 && done < w->names.count; done++) {
		if (!w->dry)
			rc = ckpt_store_remove(w->store, w->names.list[done],
					       w->force, err);
		if (rc < 0)
			break;
	}
	if (rc == 0 || done > 0)
		rm_summary(w, done);
	return rc;
}

static int run_rm(struct cli *cli, int argc, char **argv)
{
	static const struct option options[] = {
		{ "recursive", no_argument, NULL, 'r' },
		{ "dry-run", no_argument, NULL, 'n' },
		{ "force", no_argument, NULL, 'f' }, CLI_SELECT_OPTIONS,
		{ 0 },
	};
	CKB_CLEANUP(work_fini) struct work w = { .cli = cli };
	struct ckpt_err err = { 0 };
	int c, rc = 0;

	while ((c = cli_option(cli, argc, argv, "rnf", options)) != -1) {
		if (c == 'r')
			w.runs = true;
		else if (c == 'n')
			w.dry = true;
		else if (c == 'f')
			w.force = true;
		else if (c < CLI_OPT_STEP)
			return CLI_USAGE;
		else if (cli_select(cli, &w.select, c, optarg) != CLI_OK)
			return CLI_USAGE;
	}
	if (optind >= argc)
		return cli_usage(cli, "a STORE:NAME is wanted");
	for (int i = optind; rc == 0 && i < argc; i++)
		rc = add_place(&w, argv[i], &err);
	if (rc == 0)
		rc = rm_all(&w, &err);
	if (rc == CKPT_EBUSY)
		return cli_fail_hint(cli, &err, "rm -f removes both");
	return rc < 0 ? cli_fail(cli, &err) : CLI_OK;
}

const struct cli_command cli_rm = {
	.name = "rm",
	.usage = "[-r] [-n] [-f] STORE:NAME|PATTERN...",
	.summary = "Remove checkpoints",
	.help = "  -r, --recursive  all checkpoints of a run\n"
		"  -n, --dry-run    only say which\n"
		"  -f, --force      tagged ones too, and their tags\n"
		CLI_SELECT_HELP,
	.run = run_rm,
	.done = "what was asked was done",
};

/* ---- mv, cp ---- */

/* "run/1" in a run "other/" is "other/1"; else @to is the whole name. */
static char *target(const char *from, const char *to, bool into)
{
	const char *base = strrchr(from, '/');
	char *path = NULL;

	if (!into)
		return strdup(to);
	if (asprintf(&path, "%s%s%s", to, *to ? "/" : "",
		     base ? base + 1 : from) < 0)
		return NULL;
	return path;
}

/* DEST: a name, or with '/' behind it (or for several) a run. */
struct dest {
	struct cli_place place;
	bool into;
};

static int dest_init(struct work *w, const char *arg, struct dest *d,
		     struct ckpt_err *err)
{
	size_t len = strlen(arg);
	int rc = cli_place(arg, &d->place, err);

	if (rc < 0)
		return rc;
	d->into = len > 0 && (arg[len - 1] == '/' || arg[len - 1] == ':');
	rc = same_store(w, &d->place, err);
	if (rc == 0 && !d->place.has_path)
		rc = ckb_err(err, CKPT_EINVAL, "'%s' names no checkpoint: "
			     "STORE:NAME, or STORE:RUN/ for a name in a run",
			     arg);
	if (rc == 0 && w->names.count > 1 && !d->into)
		rc = ckb_err(err, CKPT_EINVAL, "%zu checkpoints cannot all be "
			     "called '%s'; '%s/' puts them into a run of that "
			     "name", w->names.count, d->place.path, arg);
	return rc;
}

typedef int (*one_fn)(struct work *w, const char *from, const char *to,
		      void *ctx, struct ckpt_err *err);

static int each(struct work *w, const struct dest *d, const char *verb,
		one_fn fn, void *ctx, struct ckpt_err *err)
{
	struct cli_json j = { 0 };
	int rc = 0;

	cli_json_open(&j, NULL, '{');
	cli_json_open(&j, verb, '[');
	for (size_t i = 0; rc == 0 && i < w->names.count; i++) {
		const char *from = w->names.list[i];
		CKB_FREE char *to = target(from, d->place.path, d->into);

		rc = to ? fn(w, from, to, ctx, err) : ckb_err_nomem(err);
		if (rc < 0)
			break;
		cli_json_open(&j, NULL, '{');
		cli_json_text(&j, "from", from);
		cli_json_text(&j, "to", to);
		cli_json_close(&j, '}');
		if (!w->cli->json && !w->cli->quiet)
			printf("%s '%s' to '%s'\n", verb, from, to);
	}
	cli_json_close(&j, ']');
	cli_json_close(&j, '}');
	if (w->cli->json)
		cli_json_end(w->cli, &j);
	else
		ckb_buf_fini(&j.text);
	return rc;
}

static int move_one(struct work *w, const char *from, const char *to,
		    void *ctx, struct ckpt_err *err)
{
	(void)ctx;
	return ckpt_store_rename(w->store, from, to, err);
}

static int fork_one(struct work *w, const char *from, const char *to,
		    void *ctx, struct ckpt_err *err)
{
	return ckpt_store_fork(w->store, from, to, ctx, err);
}

/* SOURCE... DEST from argv[optind] on. */
static int edit(const struct cli *cli, int argc, char **argv,
		const char *verb, one_fn fn, void *ctx)
{
	CKB_CLEANUP(work_fini) struct work w = { .cli = cli };
	struct dest d = { 0 };
	struct ckpt_err err = { 0 };
	int rc = 0;

	if (argc - optind < 2)
		return cli_usage(cli, "STORE:FROM and STORE:TO are wanted, %d "
				 "given", argc - optind);
	for (int i = optind; rc == 0 && i < argc - 1; i++)
		rc = add_place(&w, argv[i], &err);
	if (rc == 0) {
		rc = dest_init(&w, argv[argc - 1], &d, &err);
		if (rc == 0)
			rc = each(&w, &d, verb, fn, ctx, &err);
		cli_place_fini(&d.place);
	}
	return rc < 0 ? cli_fail(cli, &err) : CLI_OK;
}

static int run_mv(struct cli *cli, int argc, char **argv)
{
	if (cli_no_option(cli, argc, argv) != CLI_OK)
		return CLI_USAGE;
	return edit(cli, argc, argv, "renamed", move_one, NULL);
}

const struct cli_command cli_mv = {
	.name = "mv",
	.usage = "STORE:FROM... STORE:TO|STORE:RUN/",
	.summary = "Rename checkpoints",
	.help = "",
	.run = run_mv,
	.done = "what was asked was done",
};

static int run_cp(struct cli *cli, int argc, char **argv)
{
	static const struct option options[] = {
		{ "step", required_argument, NULL, 's' },
		{ "metadata", required_argument, NULL, 'm' },
		{ "metrics", required_argument, NULL, 'M' }, { 0 },
	};
	struct ckpt_fork_opts o = { .size = sizeof(o) };
	char *end;
	int c;

	while ((c = cli_option(cli, argc, argv, "", options)) != -1) {
		if (c == 's') {
			errno = 0;
			o.step = strtoull(optarg, &end, 10);
			o.has_step = true;
			if (errno || *end || *optarg < '0' || *optarg > '9')
				return cli_usage(cli, "--step wants a whole "
						 "number, not '%s'", optarg);
		} else if (c == 'm') {
			o.metadata = optarg;
		} else if (c == 'M') {
			o.metrics = optarg;
		} else {
			return CLI_USAGE;
		}
	}
	return edit(cli, argc, argv, "forked", fork_one, &o);
}

const struct cli_command cli_cp = {
	.name = "cp",
	.usage = "[OPTIONS] STORE:FROM... STORE:TO|STORE:RUN/",
	.summary = "Fork checkpoints: new ones of the same bytes",
	.help = "      --step N     training step; else the source's\n"
		"      --metadata J the user's metadata, a JSON object\n"
		"      --metrics J  metrics, a JSON object\n",
	.run = run_cp,
	.done = "what was asked was done",
};
