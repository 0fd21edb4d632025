/* SPDX-License-Identifier: Apache-2.0 */
/*
 * cmd_mount.c - mount and umount.
 *
 * As mount.ckptfs it is mount(8)'s helper, whose letters mean other things:
 * -f looks at all and mounts nothing, -s passes over unknown options, -n, -v
 * and -t change nothing, -N is refused.
 */
#include <getopt.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "cli/cli.h"

#ifdef CKPT_HAVE_MOUNT
#include "cli/mount_opts.h"
#include "mount/mount.h"

struct mount_call {
	struct ckm_opts opts;
	bool helper, fake, sloppy;
	const char *status;  /* --status DIR */
	char *lists[16];     /* of each -o */
	size_t list_count;
};

static int parse(struct cli *cli, int argc, char **argv,
		 struct mount_call *m)
{
	static const struct option options[] = {
		{ "foreground", no_argument, NULL, 'f' },
		{ "status", required_argument, NULL, 'S' }, { 0 },
	};
	const char *base = strrchr(argv[0], '/');
	int c, rc = CLI_OK;

	m->helper = strcmp(base ? base + 1 : argv[0], "mount.ckptfs") == 0;
	while ((c = cli_option(cli, argc, argv,
			       m->helper ? "fsnvo:N:t:" : "fo:", options)) !=
	       -1) {
		if (c == 'f' && m->helper)
			m->fake = true;
		else if (c == 'f')
			m->opts.foreground = true;
		else if (c == 'S' && m->helper)
			return cli_usage(cli, "--status is for ckptfs mount");
		else if (c == 'S')
			m->status = optarg;
		else if (c == 'N')
			return cli_usage(cli, "a mount in namespace '%s' must "
					 "be made in it: nsenter --mount=... "
					 "ckptfs mount", optarg);
		else if (c == 's')
			m->sloppy = true;
		else if (c == 'o' && m->list_count <
					     CKB_ARRAY_LEN(m->lists))
			m->lists[m->list_count++] = optarg;
		else if (c == 'o')
			return cli_usage(cli, "more than %zu times -o; join "
					 "them with commas",
					 CKB_ARRAY_LEN(m->lists));
		else if (c != 'n' && c != 't')
			return CLI_USAGE;
	}
	for (size_t i = 0; rc == CLI_OK && i < m->list_count; i++)
		rc = cli_mount_options(cli, m->lists[i], m->helper, m->sloppy,
				       &m->opts);
	return rc;
}

static int status_row(void *ctx, const char *name, uint64_t value)
{
	char text[24];
	const char *const cells[] = { name, text };

	snprintf(text, sizeof(text), "%llu", (unsigned long long)value);
	return cli_row(ctx, cells, CKB_ARRAY_LEN(cells)) == 0 ? 0
							     : CKPT_ENOMEM;
}

static int show_status(const struct cli *cli, const char *dir)
{
	static const struct cli_column columns[] = {
		{ "name", false, false }, { "value", true, true },
	};
	struct libscols_table *t = cli_table(cli, "mount", columns,
					     CKB_ARRAY_LEN(columns));
	struct ckpt_err err = { 0 };

	if (!t) {
		ckb_err_nomem(&err);
		return cli_fail(cli, &err);
	}
	int rc = ckm_stat(dir, status_row, t, &err);

	if (rc < 0) {
		scols_unref_table(t);
		return cli_fail(cli, &err);
	}
	return cli_table_end(t);
}

static int run_mount(struct cli *cli, int argc, char **argv)
{
	CKB_CLEANUP(cli_place_fini) struct cli_place place = { 0 };
	struct ckpt_store *store = NULL;
	struct mount_call m = { 0 };
	struct ckpt_err err = { 0 };
	int rc = parse(cli, argc, argv, &m);

	if (rc != CLI_OK)
		return rc;
	if (m.status && argc == optind)
		return show_status(cli, m.status);
	if (cli->json)
		return cli_usage(cli, "--json goes with --status DIR");
	if (m.status)
		return cli_usage(cli, "--status takes one DIR and nothing "
				 "else");
	if (argc - optind != 2)
		return cli_usage(cli, "STORE and DIR are wanted, %d given",
				 argc - optind);
	if (cli_swapped(argv[optind], argv[optind + 1]))
		return cli_usage(cli, "'%s' is a store and '%s' is not: the "
				 "STORE comes first, then DIR",
				 argv[optind + 1], argv[optind]);
	rc = cli_store_place(cli, argv[optind], &place);
	if (rc != CLI_OK)
		return rc;
	m.opts.store = place.store;
	m.opts.dir = argv[optind + 1];
	/* as any command says that it is none */
	rc = cli_open(&place, CKPT_STORE_READONLY, &store, &err);
	ckpt_store_close(store);
	if (rc == 0 && !m.fake)
		rc = ckm_mount(&m.opts, &err);
	return rc < 0 ? cli_fail(cli, &err) : CLI_OK;
}

static int run_umount(struct cli *cli, int argc, char **argv)
{
	static const struct option options[] = {
		{ "lazy", no_argument, NULL, 'l' }, { 0 },
	};
	struct ckpt_err err = { 0 };
	bool lazy = false;
	int c;

	while ((c = cli_option(cli, argc, argv, "l", options)) != -1) {
		if (c != 'l')
			return CLI_USAGE;
		lazy = true;
	}
	if (argc - optind != 1)
		return cli_usage(cli, "one DIR is wanted, %d given",
				 argc - optind);
	return ckm_umount(argv[optind], lazy, &err) < 0 ? cli_fail(cli, &err)
							 : CLI_OK;
}
#else
static int run_mount(struct cli *cli, int argc, char **argv)
{
	if (argc == 2 && strcmp(argv[1], "--help") == 0) {
		cli_help(cli->about);
		return CLI_OK;
	}
	fprintf(stderr, "ckptfs %s: built without libfuse3; `ls`, `cat` and "
		"`export` do the same without a mount\n", cli->command);
	return CLI_FAILED;
}
#define run_umount run_mount
#endif

const struct cli_command cli_mount = {
	.name = "mount",
	.usage = "[-f] [-o OPTIONS] STORE DIR | --status DIR",
	.summary = "Show a store as folders and files; returns when it answers",
	.help = "  -f, --foreground stay, and log to stderr\n"
		"      --status DIR figures of the mount at DIR\n"
		"  -o allow_other   let other users in\n"
		"  -o uid=N,gid=N   owner that files show (yours)\n"
		"  -o umask=OCTAL   bits that modes lack (0)\n"
		"  -o xattr         answer user.ckptfs.* attributes\n"
		"  -o cache=MIB     decoded bytes kept (64)\n"
		"  -o max_threads=N most threads that serve requests (16)\n"
		"  -o fsname=NAME   source that `mount` and `df` show\n"
		"  -o noexec        run no program from it\n",
	.lacks = "quiet verbose",
	.run = run_mount,
};

const struct cli_command cli_umount = {
	.name = "umount",
	.usage = "[-l] DIR",
	.summary = "Take a mount down",
	.help = "  -l, --lazy       detach it now; the daemon ends with the "
		"last user\n",
	.lacks = "quiet verbose json",
	.run = run_umount,
};
