/* SPDX-License-Identifier: Apache-2.0 */
/*
 * cmd_edit.c - rm, mv, cp: checkpoints by name.
 *
 * All arguments are looked at before anything is changed, so that a mistyped
 * one leaves the store as it was. What then fails is said, and the rest of the
 * list is left alone.
 */
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
	struct cli_entries all;
	struct cli_names names;
	struct cli_select select;
	bool force, dry, runs;
	bool can_run;            /* -r sets runs */
};

static void work_fini(struct work *w)
{
	ckpt_store_close(w->store);
	cli_entries_fini(&w->all);
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

/* The checkpoints of argument @arg, appended to w->names. 0, an error, or
 * CLI_USAGE, said. */
static int add_place(struct work *w, const char *arg, struct ckpt_err *err)
{
	struct cli_place place;
	int rc = cli_place(arg, &place, err);

	if (rc < 0)
		return rc;
	rc = same_store(w, &place, err);
	if (rc == 0 && !*place.path)
		rc = cli_usage(w->cli, "'%s' names no checkpoint: STORE:NAME",
			       arg);
	if (rc == 0)
		rc = cli_walk(w->store, 0, &w->all, err);
	if (rc == 0 && w->can_run && !w->runs && cli_is_run(&w->all,
							    place.path))
		rc = ckb_err(err, CKPT_EINVAL, "'%s' is a run, a folder of "
			     "checkpoints; -r takes all of them", place.path);
	if (rc == 0)
		rc = cli_pick_of(w->store, &w->all, &place, w->runs,
				 &w->select, &w->names, err);
	cli_place_fini(&place);
	return rc;
}

static int list_done(const struct work *w, const char *key, size_t count)
{
	struct cli_json j = { 0 };

	cli_json_open(&j, NULL, '{');
	cli_json_open(&j, key, '[');
	for (size_t i = 0; i < count; i++)
		cli_json_text(&j, NULL, w->names.list[i]);
	cli_json_close(&j, ']');
	cli_json_bool(&j, "dry_run", w->dry);
	cli_json_close(&j, '}');
	return cli_json_end(w->cli, &j);
}

/* ---- rm ---- */

static int rm_summary(const struct work *w, size_t done)
{
	if (w->cli->json)
		return list_done(w, "removed", done);
	if (w->dry)
		for (size_t i = 0; i < done; i++)
			cli_say(stdout, "would remove %s", w->names.list[i]);
	if (!w->cli->quiet && !w->dry)
		printf("removed %zu checkpoint%s; what no other one uses stays "
		       "in the packs until garbage is collected\n", done,
		       done == 1 ? "" : "s");
	return CLI_OK;
}

struct guard {
	const struct cli_names *names;
	struct ckpt_err *err;
};

static int guards(void *ctx, const struct ckpt_tag *t)
{
	const struct guard *g = ctx;

	for (size_t i = 0; t->checkpoint && i < g->names->count; i++)
		if (strcmp(g->names->list[i], t->checkpoint) == 0)
			return ckb_err(g->err, CKPT_EBUSY, "checkpoint '%s' "
				       "has the tag '%s', which protects it",
				       t->checkpoint, t->name);
	return 0;
}

/* CLI_OK, CLI_FAILED (said), or an error; *@out_done: how many are gone. */
static int rm_all(struct work *w, size_t *out_done, struct ckpt_err *err)
{
	struct guard g = { &w->names, err };
	size_t done = 0;
	int rc = 0;

	cli_names_sort(&w->names);
	if (!w->force && w->names.count > 0)
		rc = ckpt_tag_list(w->store, guards, &g, err);
	for (; rc == 0 && done < w->names.count; done++) {
		if (!w->dry)
			rc = ckpt_store_remove(w->store, w->names.list[done],
					       w->force, err);
		if (rc < 0 && rc != CKPT_EUNSURE) /* that one is gone, too */
			break;
	}
	int said = rc == 0 || done > 0 ? rm_summary(w, done) : CLI_OK;

	*out_done = done;
	return rc < 0 ? rc : said;
}

/* One of several failed: how far it came is told with it. */
static int fail_among(const struct work *w, size_t done, const char *hint,
		      const struct ckpt_err *err)
{
	CKB_BUF struct ckb_buf text = { 0 };

	if (w->names.count > 1 && done == 0)
		ckb_buf_printf(&text, "none of %zu was done%s",
			       w->names.count, hint ? "; " : "");
	else if (w->names.count > 1)
		ckb_buf_printf(&text, "%zu of %zu were done, the rest was left "
			       "alone%s", done, w->names.count,
			       hint ? "; " : "");
	ckb_buf_printf(&text, "%s", hint ? hint : "");
	ckb_buf_put(&text, "", 1);
	return cli_fail_hint(w->cli, err, !text.failed && *text.data
						  ? (char *)text.data : NULL);
}

static int run_rm(struct cli *cli, int argc, char **argv)
{
	static const struct option options[] = {
		{ "recursive", no_argument, NULL, 'r' },
		{ "dry-run", no_argument, NULL, 'n' },
		{ "force", no_argument, NULL, 'f' }, CLI_SELECT_OPTIONS,
		{ 0 },
	};
	CKB_CLEANUP(work_fini) struct work w = { .cli = cli,
						 .can_run = true };
	struct ckpt_err err = { 0 };
	size_t done = 0;
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
	if (rc != 0)
		return rc < 0 ? cli_fail(cli, &err) : rc;
	rc = rm_all(&w, &done, &err);
	return rc >= 0 ? rc
		       : fail_among(&w, done, rc == CKPT_EBUSY
				    ? "rm -f removes both" : NULL, &err);
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

/* 0, an error, or CLI_USAGE, said. */
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
		rc = cli_usage(w->cli, "'%s' names no checkpoint: STORE:NAME, "
			       "or STORE:RUN/ for a name in a run", arg);
	if (rc == 0 && w->names.count > 1 && !d->into)
		rc = cli_usage(w->cli, "%zu checkpoints cannot all be called "
			       "'%s'; '%s/' puts them into a run of that name",
			       w->names.count, d->place.path, arg);
	return rc;
}

typedef int (*one_fn)(struct work *w, const char *from, const char *to,
		      void *ctx, struct ckpt_err *err);

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

struct pair {
	const struct ckpt_entry *from;
	char *to;
};

static int by_to(const void *a, const void *b)
{
	const struct pair *x = a, *y = b;

	return strcmp(x->to, y->to);
}

/* Killed half-way, a rename leaves both names, and another one ends it. */
static bool half_moved(const struct cli_entries *all, const struct pair *p)
{
	const struct ckpt_entry *e = cli_entry(all, p->to);

	return e && e != p->from &&
	       (e->damage || (e->generation == p->from->generation &&
			      memcmp(e->uuid, p->from->uuid,
				     CKPT_UUID_BYTES) == 0));
}

/* Can all of them be had? Then nothing stops half-way but what happens
 * meanwhile. @p is sorted. */
static int look_first(const struct work *w, const struct pair *p, size_t count,
		      bool moves, struct ckpt_err *err)
{
	int rc = 0;

	for (size_t i = 0; rc == 0 && i < count; i++) {
		const struct ckpt_entry *e = p[i].from;

		if (e->damage)
			return ckb_err(err, e->damage_code, "checkpoint '%s': "
				       "%s", e->name, e->damage);
		if (i > 0 && strcmp(p[i].to, p[i - 1].to) == 0)
			return ckb_err(err, CKPT_EEXIST, "'%s' and '%s' would "
				       "both be '%s'", p[i - 1].from->name,
				       e->name, p[i].to);
		if (!moves || !half_moved(&w->all, &p[i]))
			rc = cli_entry_free(&w->all, p[i].to, err);
	}
	return rc;
}

static void say(const struct work *w, struct cli_json *j, const char *verb,
		const struct pair *p)
{
	cli_json_open(j, NULL, '{');
	cli_json_text(j, "from", p->from->name);
	cli_json_text(j, "to", p->to);
	cli_json_close(j, '}');
	if (!w->cli->json && !w->cli->quiet)
		cli_say(stdout, "%s '%s' to '%s'", verb, p->from->name, p->to);
}

/* CLI_OK, CLI_FAILED (said), or an error; *@out_done: how many have their new
 * name. */
static int each(struct work *w, const struct dest *d, const char *verb,
		one_fn fn, void *ctx, size_t *out_done, struct ckpt_err *err)
{
	size_t count = w->names.count, done = 0;
	CKB_FREE struct pair *p = calloc(count + 1, sizeof(*p));
	struct cli_json j = { 0 };
	int rc = p ? 0 : ckb_err_nomem(err);

	cli_json_open(&j, NULL, '{');
	cli_json_open(&j, verb, '[');
	for (size_t i = 0; rc == 0 && i < count; i++) {
		p[i].from = cli_entry(&w->all, w->names.list[i]);
		p[i].to = target(p[i].from->name, d->place.path, d->into);
		rc = p[i].to ? 0 : ckb_err_nomem(err);
	}
	if (rc == 0 && count > 0) {
		qsort(p, count, sizeof(*p), by_to);
		rc = look_first(w, p, count, fn == move_one, err);
	}
	for (; rc == 0 && done < count; done++) {
		rc = fn(w, p[done].from->name, p[done].to, ctx, err);
		if (rc < 0 && rc != CKPT_EUNSURE)
			break;
		say(w, &j, verb, &p[done]);
	}
	for (size_t i = 0; p && i < count; i++)
		free(p[i].to);
	cli_json_close(&j, ']');
	cli_json_close(&j, '}');
	int said = CLI_OK;

	if (w->cli->json && (rc == 0 || done > 0))
		said = cli_json_end(w->cli, &j);
	else
		ckb_buf_fini(&j.text);
	*out_done = done;
	return rc < 0 ? rc : said;
}

/* SOURCE... DEST from argv[optind] on. */
static int edit(const struct cli *cli, int argc, char **argv,
		const char *verb, one_fn fn, void *ctx)
{
	CKB_CLEANUP(work_fini) struct work w = { .cli = cli };
	struct dest d = { 0 };
	struct ckpt_err err = { 0 };
	size_t done = 0;
	int rc = 0;

	if (argc - optind < 2)
		return cli_usage(cli, "STORE:FROM and STORE:TO are wanted, %d "
				 "given", argc - optind);
	for (int i = optind; rc == 0 && i < argc - 1; i++)
		rc = add_place(&w, argv[i], &err);
	if (rc == 0) {
		cli_names_sort(&w.names);
		rc = dest_init(&w, argv[argc - 1], &d, &err);
	}
	if (rc != 0) {
		cli_place_fini(&d.place);
		return rc < 0 ? cli_fail(cli, &err) : rc;
	}
	rc = each(&w, &d, verb, fn, ctx, &done, &err);
	cli_place_fini(&d.place);
	return rc < 0 ? fail_among(&w, done, NULL, &err) : rc;
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
	int c;

	while ((c = cli_option(cli, argc, argv, "", options)) != -1) {
		if (c == 's') {
			o.has_step = true;
			if (!cli_whole(optarg, 0, UINT64_MAX, &o.step))
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
