/* SPDX-License-Identifier: Apache-2.0 */
/*
 * mount_opts.c - what follows -o: our options, and what mount(8) and fstab
 * pass to every helper.
 *
 * A table; an unknown one is refused with the nearest that exists. `rw`, `dev`
 * and `suid` are refused when a person wrote them; mount(8) itself adds `rw` to
 * every line without `ro`, and fstab lines have the others, so as its helper we
 * take them for "as usual". Pure but for messages.
 */
#include <stdlib.h>
#include <string.h>

#include "base/near.h"
#include "cli/mount_opts.h"

enum what { OURS, KERNELS, USUAL, REFUSED };

static const struct option {
	const char *name;   /* with '=': it takes a value */
	enum what what;
	const char *why;    /* of USUAL, which only the helper takes, and
			       of REFUSED */
} table[] = {
	{ "allow_other", OURS, NULL }, { "cache=", OURS, NULL },
	{ "fsname=", OURS, NULL }, { "gid=", OURS, NULL },
	{ "max_threads=", OURS, NULL }, { "noexec", OURS, NULL },
	{ "uid=", OURS, NULL },
	{ "umask=", OURS, NULL }, { "xattr", OURS, NULL },
	/* a read-only mount is so anyway, or they are mount(8)'s business */
	{ "_netdev", KERNELS, NULL }, { "async", KERNELS, NULL },
	{ "auto", KERNELS, NULL }, { "default_permissions", KERNELS, NULL },
	{ "defaults", KERNELS, NULL }, { "diratime", KERNELS, NULL },
	{ "dirsync", KERNELS, NULL }, { "exec", KERNELS, NULL },
	{ "group", KERNELS, NULL }, { "iversion", KERNELS, NULL },
	{ "lazytime", KERNELS, NULL }, { "loud", KERNELS, NULL },
	{ "mand", KERNELS, NULL }, { "noatime", KERNELS, NULL },
	{ "noauto", KERNELS, NULL }, { "nodev", KERNELS, NULL },
	{ "nodiratime", KERNELS, NULL }, { "nofail", KERNELS, NULL },
	{ "nogroup", KERNELS, NULL }, { "noiversion", KERNELS, NULL },
	{ "nolazytime", KERNELS, NULL }, { "nomand", KERNELS, NULL },
	{ "noowner", KERNELS, NULL }, { "norelatime", KERNELS, NULL },
	{ "nostrictatime", KERNELS, NULL }, { "nosuid", KERNELS, NULL },
	{ "nouser", KERNELS, NULL }, { "nousers", KERNELS, NULL },
	{ "owner", KERNELS, NULL },
	{ "relatime", KERNELS, NULL }, { "ro", KERNELS, NULL },
	{ "silent", KERNELS, NULL }, { "strictatime", KERNELS, NULL },
	{ "sync", KERNELS, NULL }, { "user", KERNELS, NULL },
	{ "users", KERNELS, NULL },
	{ "dev", USUAL, "there are no devices in a store" },
	{ "rw", USUAL, "a mount is read-only, saves go to the store itself" },
	{ "suid", USUAL, "no program in a store gets rights" },
	{ "remount", REFUSED, "unmount and mount again" },
};

static int unknown(const struct cli *cli, const char *o)
{
	struct ckb_near near;

	ckb_near_init(&near, o, strlen(o));
	for (size_t i = 0; i < CKB_ARRAY_LEN(table); i++)
		ckb_near_try(&near, table[i].name, strlen(table[i].name));
	return cli_usage(cli, "there is no mount option '%s'%s%s%s", o,
			 *near.best ? "; did you mean '" : "", near.best,
			 *near.best ? "'?" : "");
}

/* A whole number in @base from @min to @max. */
static int number(const struct cli *cli, const char *name, const char *text,
		  int base, uint64_t min, uint64_t max, uint64_t *out)
{
	char *end;
	bool digits = *text >= '0' && *text <= '9' && strlen(text) < 19;
	unsigned long long n = digits ? strtoull(text, &end, base) : 0;

	if (!digits || *end || n < min || n > max)
		return cli_usage(cli, base == 8
				 ? "%s wants an octal number from %llo to "
				   "%llo, not '%s'"
				 : "%s wants a number from %llu to %llu, not "
				   "'%s'", name, (unsigned long long)min,
				 (unsigned long long)max, text);
	*out = n;
	return CLI_OK;
}

static int set(const struct cli *cli, const char *name, const char *value,
	       struct ckm_opts *opts)
{
	uint64_t n = 0;
	int rc = CLI_OK;

	if (strcmp(name, "allow_other") == 0) {
		opts->allow_other = true;
	} else if (strcmp(name, "xattr") == 0) {
		opts->xattr = true;
	} else if (strcmp(name, "noexec") == 0) {
		opts->noexec = true;
	} else if (strcmp(name, "fsname=") == 0) {
		opts->fsname = value;
	} else if (strcmp(name, "cache=") == 0) {
		rc = number(cli, "cache= (MiB)", value, 10, 1, 1u << 20, &n);
		opts->cache_bytes = (size_t)n << 20;
	} else if (strcmp(name, "max_threads=") == 0) {
		rc = number(cli, name, value, 10, 1, 1024, &n);
		opts->threads = (uint32_t)n;
	} else if (strcmp(name, "umask=") == 0) {
		rc = number(cli, name, value, 8, 0, 0777, &n);
		opts->umask = (mode_t)n;
	} else if (strcmp(name, "uid=") == 0) {
		rc = number(cli, name, value, 10, 0, UINT32_MAX - 1, &n);
		opts->has_uid = true;
		opts->uid = (uid_t)n;
	} else { /* gid= */
		rc = number(cli, name, value, 10, 0, UINT32_MAX - 1, &n);
		opts->has_gid = true;
		opts->gid = (gid_t)n;
	}
	return rc;
}

static int one(const struct cli *cli, char *o, bool helper, bool sloppy,
	       struct ckm_opts *opts)
{
	char *equals = strchr(o, '=');
	size_t len = equals ? (size_t)(equals - o) + 1 : strlen(o);

	if (strncmp(o, "x-", 2) == 0 || strncmp(o, "X-", 2) == 0 ||
	    strncmp(o, "comment=", 8) == 0 || *o == '\0')
		return CLI_OK;
	for (size_t i = 0; i < CKB_ARRAY_LEN(table); i++) {
		const struct option *t = &table[i];

		if (strlen(t->name) != len || strncmp(t->name, o, len) != 0)
			continue;
		if (t->what == REFUSED || (t->what == USUAL && !helper))
			return cli_usage(cli, "mount option '%s' cannot be "
					 "had: %s", o, t->why);
		return t->what == OURS
			       ? set(cli, t->name, o + len, opts)
			       : CLI_OK;
	}
	return sloppy ? CLI_OK : unknown(cli, o);
}

int cli_mount_options(const struct cli *cli, char *list, bool helper,
		      bool sloppy, struct ckm_opts *opts)
{
	int rc = CLI_OK;

	while (list && rc == CLI_OK) {
		char *next = list;

		/* ',' ends an option; "\," is a comma in it, as in fsname */
		while (*next && *next != ',') {
			if (next[0] == '\\' && (next[1] == ',' ||
						next[1] == '\\'))
				memmove(next, next + 1, strlen(next));
			next++;
		}
		bool more = *next == ',';

		*next = '\0';
		rc = one(cli, list, helper, sloppy, opts);
		list = more ? next + 1 : NULL;
	}
	return rc;
}
