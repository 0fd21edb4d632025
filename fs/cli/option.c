/* SPDX-License-Identifier: Apache-2.0 */
/*
 * option.c - options: each command's own, and those that all share.
 *
 * getopt_long(3), and the sentences it has no words for: a flag that was given
 * a value, an option that would be another's value, a beginning that fits two
 * options, the option that a mistyped one was meant to be.
 */
#include <ctype.h>
#include <getopt.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/near.h"
#include "cli/cli.h"

#define TABLE_MAX 32

static const struct common {
	struct option option;
	const char *help;
} common[] = {
	{ { "quiet", no_argument, NULL, 'q' },
	  "  -q, --quiet      no progress, no summary\n" },
	{ { "verbose", no_argument, NULL, 'v' },
	  "  -v, --verbose    notes of the library too\n" },
	{ { "json", no_argument, NULL, CLI_OPT_JSON },
	  "      --json       output for programs\n" },
	{ { "color", required_argument, NULL, CLI_OPT_COLOR },
	  "      --color=WHEN auto (on a terminal), always or never\n" },
	{ { "help", no_argument, NULL, 'h' },
	  "  -h, --help       this text\n" },
};

static bool lacks(const struct cli_command *c, const struct common *o)
{
	return c->lacks && strstr(c->lacks, o->option.name);
}

const char *cli_common_help(const struct cli_command *c, size_t index)
{
	if (index >= CKB_ARRAY_LEN(common))
		return NULL;
	return lacks(c, &common[index]) ? "" : common[index].help;
}

void cli_help(const struct cli_command *c)
{
	const char *line;

	printf("usage: ckptfs %s %s\n\n%s.\n\n%s", c->name, c->usage,
	       c->summary, c->help);
	for (size_t i = 0; (line = cli_common_help(c, i)); i++)
		fputs(line, stdout);
}

struct table {
	struct option all[TABLE_MAX];
	char letters[40];
};

static void join(const struct cli_command *c, const char *letters,
		 const struct option *own, struct table *t)
{
	size_t n = 0, len = (size_t)snprintf(t->letters, sizeof(t->letters),
					     ":%s", letters);

	for (; own[n].name; n++)
		t->all[n] = own[n];
	CKB_INVARIANT(n + CKB_ARRAY_LEN(common) < TABLE_MAX &&
		      len + CKB_ARRAY_LEN(common) < sizeof(t->letters));
	for (size_t i = 0; i < CKB_ARRAY_LEN(common); i++) {
		int val = common[i].option.val;

		if (lacks(c, &common[i]))
			continue;
		t->all[n++] = common[i].option;
		if (val < 128 && !strchr(letters, val))
			t->letters[len++] = (char)val;
	}
	t->letters[len] = '\0';
	t->all[n] = (struct option){ 0 };
}

/* "; did you mean '--long'?", or "" */
static const char *suggest(const struct table *t, const char *typed,
			   char dst[80])
{
	struct ckb_near near;
	char name[40];

	ckb_near_init(&near, typed, strcspn(typed, "="));
	for (const struct option *o = t->all; o->name; o++) {
		int len = snprintf(name, sizeof(name), "--%s", o->name);

		ckb_near_try(&near, name, (size_t)len);
	}
	snprintf(dst, 80, near.best[0] ? "; did you mean '%s'?" : "%s",
		 near.best);
	return dst;
}

/* The next option from @o on whose name begins with @len bytes of @typed. */
static const struct option *begun(const struct option *o, const char *typed,
				  size_t len)
{
	while (o->name && strncmp(o->name, typed, len) != 0)
		o++;
	return o->name ? o : NULL;
}

/* What getopt found wrong; it tells the letter, or that there is none. */
static void wrong(const struct cli *cli, char **argv, int c,
		  const struct table *t)
{
	const char *word = argv[optind - 1];
	bool is_long = strncmp(word, "--", 2) == 0;
	size_t len = is_long ? strcspn(word + 2, "=") : 0;
	const struct option *o = is_long ? begun(t->all, word + 2, len) : NULL;
	const struct option *other = o ? begun(o + 1, word + 2, len) : NULL;
	bool letter = optopt > 0 && optopt < 128;
	char text[80];

	if (c == ':' && !is_long)
		cli_usage(cli, "option '-%c' wants a value", optopt);
	else if (c == ':')
		cli_usage(cli, "option '%s' wants a value", word);
	else if (o && optopt != 0 && word[2 + len] == '=')
		cli_usage(cli, "option '--%s' takes no value, so not '%s'",
			  o->name, word);
	else if (other && optopt == 0)
		cli_usage(cli, "'%s' may be '--%s' or '--%s'", word, o->name,
			  other->name);
	else if (letter && argv[optind] && argv[optind][0] == '-' &&
		 strchr(argv[optind], optopt)) /* within that word */
		cli_usage(cli, "there is no option '-%c'%s", optopt,
			  suggest(t, argv[optind], text));
	else if (letter)
		cli_usage(cli, "there is no option '-%c'", optopt);
	else
		cli_usage(cli, "there is no option '%s'%s", word,
			  suggest(t, word, text));
}

/* Would @c take an option for its value? "-3" is none. */
static bool swallows(const struct cli *cli, char **argv)
{
	const char *word = argv[optind - 1], *before = argv[optind - 2];

	if (!optarg || optarg != word || word[0] != '-' ||
	    (word[1] != '-' && !isalpha((unsigned char)word[1])))
		return false;
	cli_usage(cli, "option '%s' wants a value, and '%s' looks like an "
		  "option; if it is the value, write '%s%s%s'", before, word,
		  before, before[1] == '-' ? "=" : "", word);
	return true;
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

void cli_begin(struct cli *cli, const struct cli_command *c)
{
	*cli = (struct cli){ .command = c->name, .about = c };
	set_color(cli, "auto");
}

int cli_option(struct cli *cli, int argc, char **argv, const char *letters,
	       const struct option *own)
{
	struct table t;
	int c;

	join(cli->about, letters, own, &t);
	opterr = 0;
	while ((c = getopt_long(argc, argv, t.letters, t.all, NULL)) != -1) {
		if (c == '?' || c == ':') {
			wrong(cli, argv, c, &t);
			return '?';
		}
		if (swallows(cli, argv))
			return '?';
		if (c == 'q') {
			cli->quiet = true;
		} else if (c == 'v') {
			cli->verbose = true;
		} else if (c == CLI_OPT_JSON) {
			cli->json = true;
		} else if (c == 'h') {
			cli_help(cli->about);
			exit(cli_finish(cli->command, NULL, CLI_OK));
		} else if (c != CLI_OPT_COLOR) {
			return c;
		} else if (!set_color(cli, optarg)) {
			cli_usage(cli, "--color is auto, always or never, not "
				  "'%s'", optarg);
			return '?';
		}
	}
	return -1;
}

int cli_no_option(struct cli *cli, int argc, char **argv)
{
	static const struct option none[] = { { 0 } };

	return cli_option(cli, argc, argv, "", none) == -1 ? CLI_OK
							    : CLI_USAGE;
}
