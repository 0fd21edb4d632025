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

/* ---- names ---- */

bool cli_is_pattern(const char *path)
{
	return strpbrk(path, "*?[") != NULL;
}

enum { EXACT, RUN, PATTERN, ROUNDS };

struct pick {
	const char *path;
	const struct cli_select *select;
	struct cli_names *out;
	int round;
	bool seen;           /* something matched, chosen or not */
};

static bool matches(const struct pick *p, const char *name)
{
	size_t len = strlen(p->path);

	if (p->round == EXACT)
		return strcmp(name, p->path) == 0;
	if (p->round == RUN)
		return len == 0 || (strncmp(name, p->path, len) == 0 &&
				    name[len] == '/');
	return fnmatch(p->path, name, FNM_PATHNAME) == 0;
}

static int consider(void *ctx, const struct ckpt_entry *e)
{
	struct pick *p = ctx;
	struct cli_names *n = p->out;

	if (!matches(p, e->name))
		return 0;
	p->seen = true;
	if (!cli_selected(p->select, e))
		return 0;
	if (!ckb_room(&n->list, n->count, &n->cap, sizeof(*n->list)))
		return CKPT_ENOMEM;
	n->list[n->count] = strdup(e->name);
	return n->list[n->count] ? (n->count++, 0) : CKPT_ENOMEM;
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
			       "matches '%s' (a '*' does not cross '/'); put "
			       "quotes around a pattern, so that the shell "
			       "leaves it alone", place->store, place->path);
	return ckb_err(err, CKPT_ENOENT, "there is no checkpoint '%s' in "
		       "store '%s'", place->path, place->store);
}

int cli_pick(struct ckpt_store *store, struct cli_place *place, bool runs,
	     const struct cli_select *select, struct cli_names *out,
	     struct ckpt_err *err)
{
	struct pick p = { .select = select, .out = out };
	int rc = cli_follow(store, &place->path, err);

	if (rc < 0)
		return rc;
	p.path = place->path;
	for (; p.round < ROUNDS && !p.seen; p.round++) {
		if (p.round == PATTERN && !cli_is_pattern(p.path))
			break;
		rc = ckpt_store_entries(store, NULL, consider, &p, err);

		if (rc == CKPT_ENOMEM)
			return ckb_err_nomem(err);
		if (rc < 0)
			return rc;
		if (p.round == RUN && p.seen && !runs)
			return ckb_err(err, CKPT_EINVAL, "'%s' is a run, a "
				       "folder of checkpoints; -r takes all "
				       "of them", p.path);
	}
	return p.seen ? 0 : nothing(store, place, err);
}

void cli_names_fini(struct cli_names *n)
{
	for (size_t i = 0; i < n->count; i++)
		free(n->list[i]);
	free(n->list);
	*n = (struct cli_names){ 0 };
}
