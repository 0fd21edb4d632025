/* SPDX-License-Identifier: Apache-2.0 */
/*
 * cmd_mount.c - mount and umount.
 *
 * Accepts what mount(8) and fstab hand to a helper: -o anywhere, with options
 * that are the kernel's or mount's own business passed over.
 */
#include <getopt.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cli/cli.h"

#ifdef CKPT_HAVE_MOUNT
#include "mount/mount.h"

/* What mount(8) may pass and a read-only mount already is, or ignores. */
static bool passed_over(const char *o)
{
	static const char *const known[] = {
		"ro", "nosuid", "nodev", "noatime", "relatime", "noexec",
		"exec", "auto", "noauto", "user", "users", "nofail", "_netdev",
		"defaults", "default_permissions",
	};

	for (size_t i = 0; i < CKB_ARRAY_LEN(known); i++)
		if (strcmp(o, known[i]) == 0)
			return true;
	return strncmp(o, "x-", 2) == 0;
}

/* "-o a,b=c". 0, or an exit code. */
static int mount_option(const struct cli *cli, char *list,
			struct ckm_opts *opts)
{
	char *save = NULL, *end;

	for (char *o = strtok_r(list, ",", &save); o;
	     o = strtok_r(NULL, ",", &save)) {
		if (strcmp(o, "allow_other") == 0) {
			opts->allow_other = true;
		} else if (strncmp(o, "cache=", 6) == 0) {
			unsigned long long mib = strtoull(o + 6, &end, 10);

			if (*end || mib == 0 || mib > (1ull << 20))
				return cli_usage(cli, "cache= wants MiB, not "
						 "'%s'", o + 6);
			opts->cache_bytes = (size_t)mib << 20;
		} else if (strncmp(o, "max_threads=", 12) == 0) {
			unsigned long n = strtoul(o + 12, &end, 10);

			if (*end || n == 0 || n > 1024)
				return cli_usage(cli, "max_threads= wants 1 "
						 "to 1024, not '%s'", o + 12);
			opts->threads = (uint32_t)n;
		} else if (strcmp(o, "rw") == 0) {
			return cli_usage(cli, "a mount is read-only: leave out "
					 "'rw'");
		} else if (!passed_over(o)) {
			return cli_usage(cli, "there is no mount option '%s'",
					 o);
		}
	}
	return CLI_OK;
}

static int run_mount(const struct cli *cli, int argc, char **argv)
{
	static const struct option options[] = {
		{ "foreground", no_argument, NULL, 'f' }, { 0 },
	};
	struct ckm_opts opts = { 0 };
	struct ckpt_err err = { 0 };
	int c, rc = CLI_OK;

	opterr = 0;
	while ((c = getopt_long(argc, argv, ":fo:", options, NULL)) != -1) {
		if (c == 'f')
			opts.foreground = true;
		else if (c == 'o')
			rc = mount_option(cli, optarg, &opts);
		else
			return cli_bad_option(cli, argv, c);
		if (rc != CLI_OK)
			return rc;
	}
	if (argc - optind != 2)
		return cli_usage(cli, "STORE and DIR are wanted, %d given",
				 argc - optind);
	opts.store = argv[optind];
	opts.dir = argv[optind + 1];
	return ckm_mount(&opts, &err) < 0 ? cli_fail(cli, &err) : CLI_OK;
}

static int run_umount(const struct cli *cli, int argc, char **argv)
{
	static const struct option options[] = { { 0 } };
	struct ckpt_err err = { 0 };
	int c;

	opterr = 0;
	while ((c = getopt_long(argc, argv, ":", options, NULL)) != -1)
		return cli_bad_option(cli, argv, c);
	if (argc - optind != 1)
		return cli_usage(cli, "one DIR is wanted, %d given",
				 argc - optind);
	return ckm_umount(argv[optind], &err) < 0 ? cli_fail(cli, &err)
						  : CLI_OK;
}
#else
static int run_mount(const struct cli *cli, int argc, char **argv)
{
	(void)argc;
	(void)argv;
	fprintf(stderr, "ckptfs %s: built without libfuse3; `ls`, `cat` and "
		"`export` do the same without a mount\n", cli->command);
	return CLI_FAILED;
}
#define run_umount run_mount
#endif

const struct cli_command cli_mount = {
	.name = "mount",
	.usage = "[-f] [-o OPTIONS] STORE DIR",
	.summary = "Show a store as folders and files; returns when it answers",
	.help = "  -f, --foreground stay, and log to stderr\n"
		"  -o allow_other   let other users in\n"
		"  -o cache=MIB     decoded bytes kept (64)\n"
		"  -o max_threads=N most threads that serve requests (16)\n",
	.run = run_mount,
};

const struct cli_command cli_umount = {
	.name = "umount",
	.usage = "DIR",
	.summary = "Take a mount down",
	.help = "",
	.run = run_umount,
};
