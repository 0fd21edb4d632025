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
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/log.h"
#include "base/near.h"
#include "cli/cli.h"

const struct cli_command *const cli_commands[] = {
	&cli_init, &cli_import, &cli_export, &cli_ls, &cli_cat, &cli_show,
	&cli_log, &cli_stat, &cli_cp, &cli_mv, &cli_rm, &cli_tag, &cli_check,
	&cli_reindex, &cli_mount, &cli_umount, NULL,
};

const char cli_common_help[] =
	"  -q, --quiet      no progress, no summary\n"
	"  -v, --verbose    notes of the library too\n"
	"      --json       output for programs\n"
	"      --color=WHEN auto (on a terminal), always or never\n"
	"  -h, --help       this text\n";

static void usage(FILE *out)
{
	fprintf(out, "usage: ckptfs COMMAND [OPTIONS] ...\n\n"
		"A place is STORE[:PATH]; $CKPTFS_STORE is the store of a "
		"place that begins with ':'.\n\n");
	for (size_t i = 0; cli_commands[i]; i++)
		fprintf(out, "  %-8s %s\n", cli_commands[i]->name,
			cli_commands[i]->summary);
	fprintf(out, "\n`ckptfs COMMAND --help` tells more; so does "
		"`man ckptfs-COMMAND`.\n");
}

static void help(const struct cli_command *c)
{
	printf("usage: ckptfs %s %s\n\n%s.\n", c->name, c->usage, c->summary);
	printf("\n%s%s", c->help, cli_common_help);
}

int cli_fail(const struct cli *cli, const struct ckpt_err *err)
{
	return cli_fail_hint(cli, err, NULL);
}

int cli_fail_hint(const struct cli *cli, const struct ckpt_err *err,
		  const char *hint)
{
	bool red = cli->color && isatty(STDERR_FILENO);

	fprintf(stderr, "%sckptfs %s: %s%s%s%s\n", red ? "\033[31m" : "",
		cli->command, err->message, hint ? "; " : "",
		hint ? hint : "", red ? "\033[0m" : "");
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

/* In a help text an option begins a line, or follows one and a comma. */
bool cli_next_option(const char **at, const char **out, size_t *out_len)
{
	for (const char *p = *at; *p; p++) {
		if (*p != '-' || (p != *at && p[-1] != ' '))
			continue;
		const char *before = p;

		while (before > *at && before[-1] == ' ')
			before--;
		if (before > *at && before[-1] != '\n' && before[-1] != ',')
			continue;
		*out = p;
		*out_len = strcspn(p, " ,=\n");
		*at = p + *out_len;
		return true;
	}
	return false;
}

/* "; did you mean '--long'?", or "" */
static const char *suggest(const struct cli *cli, const char *typed,
			   char dst[80])
{
	const char *texts[] = { cli->about->help, cli_common_help };
	struct ckb_near near;

	ckb_near_init(&near, typed, strcspn(typed, "="));
	for (size_t i = 0; i < CKB_ARRAY_LEN(texts); i++) {
		const char *at = texts[i], *option;
		size_t len;

		while (cli_next_option(&at, &option, &len))
			if (len > 2)
				ckb_near_try(&near, option, len);
	}
	snprintf(dst, 80, near.best[0] ? "; did you mean '%s'?" : "%s",
		 near.best);
	return dst;
}

int cli_bad_option(const struct cli *cli, char **argv, int c)
{
	char text[80];

	if (c == ':')
		return cli_usage(cli, "option '%s' wants a value",
				 argv[optind - 1]);
	if (optopt != 0 && optopt < 128)
		return cli_usage(cli, "there is no option '-%c'", optopt);
	return cli_usage(cli, "there is no option '%s'%s", argv[optind - 1],
			 suggest(cli, argv[optind - 1], text));
}

static void note(void *ctx, enum ckb_level level, const char *text)
{
	const struct cli *cli = ctx;

	if (cli->verbose || level <= CKB_WARN)
		fprintf(stderr, "ckptfs %s: note: %s\n", cli->command, text);
}

static const struct cli_command *find(const char *name)
{
	for (size_t i = 0; cli_commands[i]; i++)
		if (strcmp(cli_commands[i]->name, name) == 0)
			return cli_commands[i];
	return strcmp(name, cli_complete.name) == 0 ? &cli_complete : NULL;
}

static int no_command(const char *word)
{
	struct ckb_near near;

	ckb_near_init(&near, word, strlen(word));
	for (size_t i = 0; cli_commands[i]; i++)
		ckb_near_try(&near, cli_commands[i]->name,
			     strlen(cli_commands[i]->name));
	fprintf(stderr, "ckptfs: there is no command '%s'%s%s%s; see: ckptfs "
		"--help\n", word, near.best[0] ? "; did you mean '" : "",
		near.best, near.best[0] ? "'?" : "");
	return CLI_USAGE;
}

/* --color=WHEN; false: no such WHEN. NO_COLOR: no-color.org. */
static bool set_color(struct cli *cli, const char *when)
{
	const char *no = getenv("NO_COLOR"), *term = getenv("TERM");

	cli->color = !strcmp(when, "always") ||
		     (!strcmp(when, "auto") && isatty(STDOUT_FILENO) &&
		      !(no && *no) && !(term && !strcmp(term, "dumb")));
	return !strcmp(when, "always") || !strcmp(when, "auto") ||
	       !strcmp(when, "never");
}

/* Take the options all commands share out of @argv; true: help was asked.
 * *@out_color: WHEN of the last --color. */
static bool strip_common(struct cli *cli, int *argc, char **argv,
			 const char **out_color)
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
		else if (!over && !strncmp(a, "--color=", 8))
			*out_color = a + 8;
		else
			argv[kept++] = argv[i];
	}
	argv[kept] = NULL;
	*argc = kept;
	return want_help;
}

static int run(const struct cli_command *c, int argc, char **argv)
{
	struct cli cli = { .command = c->name, .about = c };
	const char *color = "auto";

	/* what is being typed is not meant for us */
	if (c == &cli_complete)
		return c->run(&cli, argc, argv);
	if (strip_common(&cli, &argc, argv, &color)) {
		help(c);
		return CLI_OK;
	}
	if (!set_color(&cli, color))
		return cli_usage(&cli, "--color is auto, always or never, not "
				 "'%s'", color);
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

	if (!c)
		return no_command(word);
	return run(c, argc - 1, argv + 1);
}
