/* SPDX-License-Identifier: Apache-2.0 */
/*
 * main.c - the `ckptfs` command: finds the subcommand, answers --help.
 *
 * Called as mount.ckptfs it is mount(8)'s helper: `mount.ckptfs STORE DIR
 * [-o opts]`. Knows nothing of what the commands do.
 */
#include <getopt.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "base/log.h"
#include "cli/cli.h"

static const struct cli_command *const commands[] = {
	&cli_init, &cli_import, &cli_export, &cli_ls, &cli_cat, &cli_check,
	&cli_reindex, &cli_mount, &cli_umount,
};

static void usage(FILE *out)
{
	fprintf(out, "usage: ckptfs COMMAND [OPTIONS] ...\n\n"
		"A place is STORE[:PATH]; $CKPTFS_STORE is the store of a "
		"place that begins with ':'.\n\n");
	for (size_t i = 0; i < CKB_ARRAY_LEN(commands); i++)
		fprintf(out, "  %-8s %s\n", commands[i]->name,
			commands[i]->summary);
	fprintf(out, "\n`ckptfs COMMAND --help` tells more; so does "
		"`man ckptfs-COMMAND`.\n");
}

static void help(const struct cli_command *c)
{
	printf("usage: ckptfs %s %s\n\n%s.\n", c->name, c->usage, c->summary);
	printf("\n%s%s", c->help,
	       "  -q, --quiet      no progress, no summary\n"
	       "  -v, --verbose    notes of the library too\n"
	       "      --json       output for programs\n"
	       "  -h, --help       this text\n");
}

int cli_fail(const struct cli *cli, const struct ckpt_err *err)
{
	fprintf(stderr, "ckptfs %s: %s\n", cli->command, err->message);
	return CLI_FAILED;
}

int cli_usage(const struct cli *cli, const char *fmt, ...)
{
	va_list ap;

	fprintf(stderr, "ckptfs %s: ", cli->command);
	va_start(ap, fmt);
	vfprintf(stderr, fmt, ap);
	va_end(ap);
	fprintf(stderr, "; see: ckptfs %s --help\n", cli->command);
	return CLI_USAGE;
}

int cli_bad_option(const struct cli *cli, char **argv, int c)
{
	if (c == ':')
		return cli_usage(cli, "option '%s' wants a value",
				 argv[optind - 1]);
	if (optopt != 0 && optopt < 128)
		return cli_usage(cli, "there is no option '-%c'", optopt);
	return cli_usage(cli, "there is no option '%s'", argv[optind - 1]);
}

static void note(void *ctx, enum ckb_level level, const char *text)
{
	const struct cli *cli = ctx;

	if (cli->verbose || level <= CKB_WARN)
		fprintf(stderr, "ckptfs %s: note: %s\n", cli->command, text);
}

/* The command nearest to a mistyped one: shares the most leading letters. */
static const char *nearest(const char *typed)
{
	const char *best = NULL;
	size_t best_len = 0;

	for (size_t i = 0; i < CKB_ARRAY_LEN(commands); i++) {
		size_t n = 0;

		while (typed[n] && typed[n] == commands[i]->name[n])
			n++;
		if (n > best_len) {
			best_len = n;
			best = commands[i]->name;
		}
	}
	return best;
}

static const struct cli_command *find(const char *name)
{
	for (size_t i = 0; i < CKB_ARRAY_LEN(commands); i++)
		if (strcmp(commands[i]->name, name) == 0)
			return commands[i];
	return NULL;
}

/* Take the options all commands share out of @argv; true: help was asked. */
static bool strip_common(struct cli *cli, int *argc, char **argv)
{
	int kept = 1;
	bool want_help = false, over = false;

	for (int i = 1; i < *argc; i++) {
		const char *a = argv[i];

		over = over || strcmp(a, "--") == 0;
		if (!over && strcmp(a, "--json") == 0)
			cli->json = true;
		else if (!over && (!strcmp(a, "-q") || !strcmp(a, "--quiet")))
			cli->quiet = true;
		else if (!over && (!strcmp(a, "-v") || !strcmp(a, "--verbose")))
			cli->verbose = true;
		else if (!over && (!strcmp(a, "-h") || !strcmp(a, "--help")))
			want_help = true;
		else
			argv[kept++] = argv[i];
	}
	argv[kept] = NULL;
	*argc = kept;
	return want_help;
}

static int run(const struct cli_command *c, int argc, char **argv)
{
	struct cli cli = { .command = c->name };

	if (strip_common(&cli, &argc, argv)) {
		help(c);
		return CLI_OK;
	}
	ckb_log_sink(note, &cli);
	int rc = c->run(&cli, argc, argv);

	if (fflush(stdout) != 0 || ferror(stdout)) {
		fprintf(stderr, "ckptfs %s: cannot write the output\n",
			c->name);
		return rc ? rc : CLI_FAILED;
	}
	return rc;
}

int main(int argc, char **argv)
{
	const char *base = argc > 0 ? strrchr(argv[0], '/') : NULL;

	base = base ? base + 1 : argc > 0 ? argv[0] : "ckptfs";
	if (strcmp(base, "mount.ckptfs") == 0)
		return run(&cli_mount, argc, argv);
	if (argc < 2) {
		usage(stderr);
		return CLI_USAGE;
	}
	const char *word = argv[1];

	if (!strcmp(word, "--help") || !strcmp(word, "-h") ||
	    !strcmp(word, "help")) {
		const struct cli_command *c = argc > 2 ? find(argv[2]) : NULL;

		if (c)
			help(c);
		else
			usage(stdout);
		return CLI_OK;
	}
	if (!strcmp(word, "--version") || !strcmp(word, "-V")) {
		printf("ckptfs %s\n", ckpt_version());
		return CLI_OK;
	}
	const struct cli_command *c = find(word);

	if (!c) {
		const char *near = nearest(word);

		fprintf(stderr, "ckptfs: there is no command '%s'%s%s%s; see: "
			"ckptfs --help\n", word, near ? "; did you mean '" : "",
			near ? near : "", near ? "'?" : "");
		return CLI_USAGE;
	}
	return run(c, argc - 1, argv + 1);
}
