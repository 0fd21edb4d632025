/* SPDX-License-Identifier: Apache-2.0 */
/*
 * place.c - STORE[:PATH] on the command line.
 *
 * A store's path and a checkpoint's name may both hold ':'. The split is at
 * the first ':' whose left side is a folder with a ckptfs.json in it, so an
 * argument means the same whatever its names hold; with none, all of it is a
 * store's path, and opening that says what is missing.
 */
#include <dirent.h>
#include <limits.h>
#include <mntent.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/near.h"
#include "cli/cli.h"

static bool is_store(const char *path)
{
	char *file = NULL;

	if (asprintf(&file, "%s/ckptfs.json", path) < 0)
		return false;
	bool yes = access(file, F_OK) == 0;

	free(file);
	return yes;
}

/* The ckptfs mount that the real path @real lies in: 0, its point, and the
 * store as the mount names it; CKPT_ENOENT: in none. */
static int find_mount(const char *real, char **point, char **store)
{
	FILE *f = setmntent("/proc/self/mounts", "re");
	struct mntent m;
	char line[4 * PATH_MAX];

	while (f && getmntent_r(f, &m, line, sizeof(line))) {
		size_t len = strlen(m.mnt_dir);

		if (strcmp(m.mnt_type, "fuse.ckptfs") != 0 ||
		    strncmp(real, m.mnt_dir, len) != 0 ||
		    (real[len] && real[len] != '/'))
			continue;
		free(*point);
		free(*store);
		*point = strdup(m.mnt_dir);
		*store = strdup(m.mnt_fsname);
	}
	if (f)
		endmntent(f);
	return *point && *store ? 0 : CKPT_ENOENT;
}

/* @left is no store: is it a path in one, or in a mount of one? Then what is
 * to be given instead is the error; @rest came behind a ':'. */
static int explain(const char *left, const char *rest, struct ckpt_err *err)
{
	CKB_FREE char *head = strdup(left), *real = realpath(left, NULL);
	CKB_FREE char *point = NULL, *store = NULL;
	const char *in;

	for (char *at; head && (at = strrchr(head, '/')) > head;) {
		*at = '\0';
		if (!is_store(head))
			continue;
		in = left + (at - head) + 1;
		if (strncmp(in, "checkpoints/", 12) == 0)
			in += 12;
		return ckb_err(err, CKPT_EINVAL, "'%s' is no store but lies in "
			       "one; did you mean '%s:%s%s%s'?", left, head, in,
			       *rest ? "/" : "", rest);
	}
	if (!real || find_mount(real, &point, &store) < 0)
		return 0;
	in = real + strlen(point);
	in += *in == '/';
	if (!is_store(store))
		return ckb_err(err, CKPT_EINVAL, "'%s' lies in the mount '%s', "
			       "and is no store; give the store itself, or use "
			       "cp, cat and ls on the mount", left, point);
	return ckb_err(err, CKPT_EINVAL, "'%s' lies in the mount '%s', and is "
		       "no store; did you mean '%s%s%s%s%s'?", left, point,
		       store, *in || *rest ? ":" : "", in,
		       *in && *rest ? "/" : "", rest);
}

static char *trim(const char *path)
{
	while (*path == '/')
		path++;
	char *copy = strdup(path);
	size_t n = copy ? strlen(copy) : 0;

	while (n > 0 && copy[n - 1] == '/')
		copy[--n] = '\0';
	return copy;
}

static int set(struct cli_place *out, char *store, const char *path,
	       bool has_path, struct ckpt_err *err)
{
	out->store = store;
	out->path = trim(path);
	out->has_path = has_path;
	if (store && out->path)
		return 0;
	cli_place_fini(out);
	return ckb_err_nomem(err);
}

int cli_place(const char *arg, struct cli_place *out, struct ckpt_err *err)
{
	const char *home = getenv("CKPTFS_STORE");

	memset(out, 0, sizeof(*out));
	if (*arg == '\0')
		return ckb_err(err, CKPT_EINVAL, "the place is empty; it is "
			       "STORE or STORE:PATH");
	if (*arg == ':') {
		if (!home || !*home)
			return ckb_err(err, CKPT_EINVAL, "'%s' names no store, "
				       "and CKPTFS_STORE is not set", arg);
		return set(out, strdup(home), arg + 1, true, err);
	}
	const char *first = strchr(arg, ':');

	for (const char *c = first; c; c = strchr(c + 1, ':')) {
		char *left = strndup(arg, (size_t)(c - arg));

		if (!left)
			return ckb_err_nomem(err);
		if (is_store(left))
			return set(out, left, c + 1, true, err);
		free(left);
	}
	if (first && !is_store(arg)) {
		/* the sentence should speak of what was meant as the store */
		char *left = strndup(arg, (size_t)(first - arg));
		int rc = left ? explain(left, first + 1, err) : 0;

		if (rc == 0)
			return set(out, left, first + 1, true, err);
		free(left);
		return rc;
	}
	if (!is_store(arg) && explain(arg, "", err) < 0)
		return CKPT_EINVAL;
	return set(out, strdup(arg), "", false, err);
}

bool cli_in_store(const char *arg)
{
	struct cli_place place;

	if (cli_place(arg, &place, NULL) < 0)
		return false;
	bool yes = is_store(place.store);

	cli_place_fini(&place);
	return yes;
}

bool cli_swapped(const char *place, const char *other)
{
	return cli_in_store(other) && !cli_in_store(place);
}

int cli_store_place(const struct cli *cli, const char *arg,
		    struct cli_place *out)
{
	struct ckpt_err err = { 0 };

	if (cli_place(arg, out, &err) < 0)
		return cli_fail(cli, &err);
	/* of what is no store, opening it tells more */
	if (!*out->path || !is_store(out->store))
		return CLI_OK;
	int rc = cli_usage(cli, "a whole STORE is wanted, and '%s' is a place "
			   "in one: give '%s'", arg, out->store);

	cli_place_fini(out);
	return rc;
}

int cli_one_store(struct cli *cli, int argc, char **argv,
		  struct cli_place *out)
{
	if (argc - optind != 1)
		return cli_usage(cli, "one STORE is wanted, %d given",
				 argc - optind);
	return cli_store_place(cli, argv[optind], out);
}

int cli_whole_store(struct cli *cli, int argc, char **argv,
		    struct cli_place *out)
{
	if (cli_no_option(cli, argc, argv) != CLI_OK)
		return CLI_USAGE;
	return cli_one_store(cli, argc, argv, out);
}

/* Does the last component of @path hold a ':'? */
static bool named_like_place(const char *path)
{
	const char *colon = strrchr(path, ':');
	const char *slash = colon ? strchr(colon, '/') : NULL;

	return colon && (!slash || slash[strspn(slash, "/")] == '\0');
}

int cli_new_store(const struct cli *cli, const char *arg, char **out)
{
	CKB_CLEANUP(cli_place_fini) struct cli_place place = { 0 };
	struct ckpt_err err = { 0 };

	*out = NULL;
	if (strchr(arg, ':') && cli_place(arg, &place, &err) < 0)
		return cli_fail(cli, &err);
	bool whole = place.has_path && !*place.path; /* "STORE:" */

	if (place.has_path && !whole && (*arg == ':' || is_store(place.store)))
		return cli_usage(cli, "'%s' is a place in the store '%s', and "
				 "no store can be made there; import makes "
				 "checkpoints", arg, place.store);

	if (!whole && named_like_place(arg) && access(arg, F_OK) != 0)
		return cli_usage(cli, "'%s' reads like a checkpoint of a store "
				 "'%.*s'; init makes a store, and import the "
				 "checkpoint (for a store of this very name "
				 "make the folder first)", arg,
				 (int)(strrchr(arg, ':') - arg), arg);
	*out = strdup(whole ? place.store : arg);
	if (*out)
		return CLI_OK;
	ckb_err_nomem(&err);
	return cli_fail(cli, &err);
}

void cli_place_fini(struct cli_place *place)
{
	free(place->store);
	free(place->path);
	place->store = NULL;
	place->path = NULL;
}

/* "@TAG/rest" -> "NAME/rest". No name begins with '@'. */
static int expand_tag(struct ckpt_store *store, struct cli_place *place,
		      struct ckpt_err *err)
{
	size_t len = strcspn(place->path, "/");
	CKB_FREE char *tag = strndup(place->path + 1, len - 1);
	CKB_FREE char *name = NULL;
	char *path = NULL;

	if (!tag)
		return ckb_err_nomem(err);
	int rc = ckpt_tag_get(store, tag, &name, err);

	if (rc < 0)
		return rc;
	if (asprintf(&path, "%s%s", name, place->path + len) < 0)
		return ckb_err_nomem(err);
	free(place->path);
	place->path = path;
	return 0;
}

/* Of a store that is not there: the name beside it that is like it. */
static int near_store(const char *store, struct ckpt_err *err)
{
	const char *slash = strrchr(store, '/');
	const char *base = slash ? slash + 1 : store;
	CKB_FREE char *dir = strndup(store, (size_t)(base - store));
	DIR *d = dir ? opendir(*dir ? dir : ".") : NULL;
	struct ckb_near near;

	ckb_near_init(&near, base, strlen(base));
	for (struct dirent *e; d && (e = readdir(d));) {
		CKB_FREE char *path = NULL;

		if (ckb_edits(e->d_name, strlen(e->d_name), base, near.len,
			      near.most) > near.most)
			continue;
		if (asprintf(&path, "%s%s", dir, e->d_name) < 0)
			path = NULL;
		if (path && is_store(path))
			ckb_near_try(&near, e->d_name, strlen(e->d_name));
	}
	if (d)
		closedir(d);
	if (!*near.best)
		return CKPT_ENOENT;
	return ckb_err(err, CKPT_ENOENT, "store '%s' does not exist; did you "
		       "mean '%s%s'?", store, dir, near.best);
}

int cli_open(struct cli_place *place, uint32_t flags, struct ckpt_store **out,
	     struct ckpt_err *err)
{
	struct ckpt_store_opts opts = { .size = sizeof(opts), .flags = flags };
	int rc = ckpt_store_open(place->store, &opts, out, err);

	if (rc == CKPT_ENOENT && access(place->store, F_OK) != 0)
		return near_store(place->store, err);
	if (rc == 0 && place->path[0] == '@') {
		rc = expand_tag(*out, place, err);
		if (rc < 0) {
			ckpt_store_close(*out);
			*out = NULL;
		}
	}
	return rc;
}
