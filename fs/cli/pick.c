/* SPDX-License-Identifier: Apache-2.0 */
/*
 * pick.c - which checkpoints an argument means: names, patterns, runs.
 *
 * A name that is there means itself, whatever characters it has; only then is
 * it a run, and only then a pattern (fnmatch(3); '*' does not cross '/').
 * --step and --since choose among what these give.
 */
#include <ctype.h>
#include <errno.h>
#include <fnmatch.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "base/sys.h"
#include "cli/inside.h"

/* ---- --step, --since ---- */

static bool whole(const char *text, size_t len, uint64_t *out)
{
	char copy[24], *end;

	if (len == 0 || len >= sizeof(copy) || !isdigit((unsigned char)*text))
		return false;
	memcpy(copy, text, len);
	copy[len] = '\0';
	errno = 0;
	*out = strtoull(copy, &end, 10);
	return errno == 0 && *end == '\0';
}

static bool parse_step(struct cli_select *s, const char *text)
{
	const char *colon = strchr(text, ':');

	s->has_step = true;
	s->step_min = 0;
	s->step_max = UINT64_MAX;
	if (!colon) {
		bool ok = whole(text, strlen(text), &s->step_min);

		s->step_max = s->step_min;
		return ok;
	}
	if (colon > text &&
	    !whole(text, (size_t)(colon - text), &s->step_min))
		return false;
	if (colon[1] && !whole(colon + 1, strlen(colon + 1), &s->step_max))
		return false;
	return s->step_min <= s->step_max;
}

static bool parse_age(const char *text, int64_t *out_ns)
{
	static const char units[] = "smhdw";
	static const int64_t seconds[] = { 1, 60, 3600, 86400, 604800 };
	size_t len = strlen(text);
	const char *unit = len > 1 ? strchr(units, text[len - 1]) : NULL;
	uint64_t n = 0;

	if (!unit || !whole(text, len - 1, &n) || n > 1000000)
		return false;
	*out_ns = ckb_time_ns(&(struct timespec){
		.tv_sec = time(NULL) - (int64_t)n * seconds[unit - units] });
	return true;
}

static bool parse_since(struct cli_select *s, const char *text)
{
	static const char *const forms[] = {
		"%Y-%m-%dT%H:%M:%S", "%Y-%m-%d %H:%M:%S", "%Y-%m-%dT%H:%M",
		"%Y-%m-%d %H:%M", "%Y-%m-%d",
	};

	s->has_since = true;
	if (parse_age(text, &s->since_ns))
		return true;
	for (size_t i = 0; i < CKB_ARRAY_LEN(forms); i++) {
		struct tm tm = { .tm_isdst = -1 };
		const char *end = strptime(text, forms[i], &tm);

		if (!end || *end)
			continue;
		s->since_ns = ckb_time_ns(
			&(struct timespec){ .tv_sec = mktime(&tm) });
		return true;
	}
	return false;
}

int cli_select(const struct cli *cli, struct cli_select *s, int option,
	       const char *text)
{
	if (option == CLI_OPT_STEP && !parse_step(s, text))
		return cli_usage(cli, "--step wants N or FROM:TO, whole "
				 "numbers, not '%s'", text);
	if (option == CLI_OPT_SINCE && !parse_since(s, text))
		return cli_usage(cli, "--since wants an age like 2d (s, m, h, "
				 "d, w) or a date like 2026-01-31, not '%s'",
				 text);
	return CLI_OK;
}

bool cli_selected(const struct cli_select *s, const struct ckpt_entry *e)
{
	if (!s)
		return true;
	if (s->has_step && (!e->has_step || e->step < s->step_min ||
			    e->step > s->step_max))
		return false;
	return !s->has_since || (!e->damage && e->created_ns >= s->since_ns);
}

/* ---- what is there ---- */

static char *copy(const char *text, bool *failed)
{
	char *c = text ? strdup(text) : NULL;

	*failed = *failed || (text && !c);
	return c;
}

static int keep(void *ctx, const struct ckpt_entry *e)
{
	struct cli_entries *all = ctx;
	bool failed = false;

	if (!ckb_room(&all->list, all->count, &all->cap, sizeof(*all->list)))
		return CKPT_ENOMEM;
	struct ckpt_entry *mine = &all->list[all->count++];

	*mine = *e;
	mine->name = copy(e->name, &failed);
	mine->metrics = copy(e->metrics, &failed);
	mine->damage = copy(e->damage, &failed);
	return failed ? CKPT_ENOMEM : 0;
}

static int by_name(const void *a, const void *b)
{
	const struct ckpt_entry *x = a, *y = b;

	return strcmp(x->name, y->name);
}

int cli_walk(struct ckpt_store *store, uint32_t flags,
	     struct cli_entries *out, struct ckpt_err *err)
{
	struct ckpt_entries_opts opts = { .size = sizeof(opts),
					  .flags = flags };

	if (out->walked)
		return 0;
	int rc = ckpt_store_entries(store, &opts, keep, out, err);

	if (rc == CKPT_ENOMEM)
		return ckb_err_nomem(err);
	if (rc == 0 && out->count > 0)
		qsort(out->list, out->count, sizeof(*out->list), by_name);
	out->walked = rc == 0;
	return rc;
}

void cli_entries_fini(struct cli_entries *all)
{
	for (size_t i = 0; i < all->count; i++) {
		free((char *)all->list[i].name);
		free((char *)all->list[i].metrics);
		free((char *)all->list[i].damage);
	}
	free(all->list);
	*all = (struct cli_entries){ 0 };
}

/* The first whose name is @name or sorts behind it; at the end: count. */
static size_t find(const struct cli_entries *all, const char *name)
{
	size_t low = 0, high = all->count;

	while (low < high) {
		size_t middle = low + (high - low) / 2;

		if (strcmp(all->list[middle].name, name) < 0)
			low = middle + 1;
		else
			high = middle;
	}
	return low;
}

const struct ckpt_entry *cli_entry(const struct cli_entries *all,
				   const char *name)
{
	size_t i = find(all, name);

	return i < all->count && strcmp(all->list[i].name, name) == 0
		       ? &all->list[i] : NULL;
}

static bool below(const char *name, const char *run)
{
	size_t len = strlen(run);

	return strncmp(name, run, len) == 0 && name[len] == '/';
}

bool cli_is_run(const struct cli_entries *all, const char *name)
{
	size_t len = strlen(name), i = find(all, name);

	/* what sorts between "a" and "a/" begins with "a", too */
	while (i < all->count && strncmp(all->list[i].name, name, len) == 0 &&
	       all->list[i].name[len] < '/')
		i++;
	return i < all->count && below(all->list[i].name, name);
}

int cli_entry_free(const struct cli_entries *all, const char *name,
		   struct ckpt_err *err)
{
	CKB_FREE char *head = strdup(name);

	if (!head)
		return ckb_err_nomem(err);
	if (cli_is_run(all, name))
		return ckb_err(err, CKPT_EEXIST, "'%s' is a run, so no "
			       "checkpoint can have that name", name);
	if (cli_entry(all, name))
		return ckb_err(err, CKPT_EEXIST, "checkpoint '%s' exists "
			       "already", name);
	for (char *slash; (slash = strrchr(head, '/'));) {
		*slash = '\0';
		if (cli_entry(all, head))
			return ckb_err(err, CKPT_EEXIST, "'%s' is a "
				       "checkpoint, so nothing can be below "
				       "it: '%s'", head, name);
	}
	return 0;
}

/* ---- names ---- */

bool cli_is_pattern(const char *path)
{
	return strpbrk(path, "*?[") != NULL;
}

static int by_text(const void *a, const void *b)
{
	return strcmp(*(char *const *)a, *(char *const *)b);
}

void cli_names_sort(struct cli_names *n)
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

enum { EXACT, RUN, PATTERN, ROUNDS };

static bool matches(const char *path, int round, const char *name)
{
	if (round == EXACT)
		return strcmp(name, path) == 0;
	if (round == RUN)
		return !*path || below(name, path);
	return fnmatch(path, name, FNM_PATHNAME) == 0;
}

static int add(struct cli_names *n, const char *name, struct ckpt_err *err)
{
	if (!ckb_room(&n->list, n->count, &n->cap, sizeof(*n->list)))
		return ckb_err_nomem(err);
	n->list[n->count] = strdup(name);
	return n->list[n->count] ? (n->count++, 0) : ckb_err_nomem(err);
}

/* Of the name of no checkpoint: does it go on behind one's? */
static int nothing(struct ckpt_store *store, const struct cli_place *place,
		   struct ckpt_err *err)
{
	struct ckv_tree *tree = NULL;
	struct ckv_node *node = NULL;
	const char *rest = "";
	int rc = ckv_tree_new(store, &tree, err);

	if (rc < 0)
		return rc;
	if (cli_head(tree, place->path, &node, &rest, NULL) == 0) {
		while (rest > place->path && rest[-1] == '/')
			rest--;
		rc = ckb_err(err, CKPT_EINVAL, "'%s' is in a checkpoint, and a "
			     "whole one is wanted: '%s:%.*s'", place->path,
			     place->store, (int)(rest - place->path),
			     place->path);
	}
	ckv_put(node);
	ckv_tree_free(tree);
	if (rc < 0)
		return rc;
	if (cli_is_pattern(place->path))
		return ckb_err(err, CKPT_ENOENT, "no checkpoint in store '%s' "
			       "matches '%s'; a '*' does not cross '/', and "
			       "ckptfs log lists what is there", place->store,
			       place->path);
	return ckb_err(err, CKPT_ENOENT, "there is no checkpoint '%s' in "
		       "store '%s'", place->path, place->store);
}

int cli_pick_of(struct ckpt_store *store, const struct cli_entries *all,
		struct cli_place *place, bool runs,
		const struct cli_select *select, struct cli_names *out,
		struct ckpt_err *err)
{
	bool seen = false; /* something matched, chosen or not */
	int rc = cli_follow(store, &place->path, err);

	for (int round = 0; rc == 0 && round < ROUNDS && !seen; round++) {
		if (round == PATTERN && !cli_is_pattern(place->path))
			break;
		for (size_t i = 0; rc == 0 && i < all->count; i++) {
			const struct ckpt_entry *e = &all->list[i];

			if (!matches(place->path, round, e->name))
				continue;
			seen = true;
			if (cli_selected(select, e))
				rc = add(out, e->name, err);
		}
		if (rc == 0 && round == RUN && seen && !runs)
			rc = ckb_err(err, CKPT_EINVAL, "'%s' is a run, a "
				     "folder of checkpoints; the pattern "
				     "'%s/*' means those in it", place->path,
				     place->path);
	}
	return rc < 0 || seen ? rc : nothing(store, place, err);
}

int cli_pick(struct ckpt_store *store, struct cli_place *place, bool runs,
	     const struct cli_select *select, struct cli_names *out,
	     struct ckpt_err *err)
{
	CKB_CLEANUP(cli_entries_fini) struct cli_entries all = { 0 };
	int rc = cli_walk(store, 0, &all, err);

	return rc < 0 ? rc : cli_pick_of(store, &all, place, runs, select, out,
					 err);
}

void cli_names_fini(struct cli_names *n)
{
	for (size_t i = 0; i < n->count; i++)
		free(n->list[i]);
	free(n->list);
	*n = (struct cli_names){ 0 };
}
