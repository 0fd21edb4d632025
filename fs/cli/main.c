/* SPDX-License-Identifier: Apache-2.0 */
/*
 * main.c - the `ckptfs` command: finds the subcommand, says what went wrong.
 *
 * Called as mount.ckptfs it is mount(8)'s helper: `mount.ckptfs STORE DIR
 * [-o opts]`. Knows nothing of what the commands do.
 */
#include <errno.h>
#include <fcntl.h>
#include <locale.h>
#include <pthread.h>
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

/* ---- what is said on stderr ---- */

#define HELD_BYTES (64u << 10)

/* Errors that the library notes wait for the end: a command that fails says
 * the same in its own sentence. */
static struct {
	pthread_mutex_t lock; /* of the text */
	struct ckb_buf text;  /* each with a NUL byte behind it */
} held = { .lock = PTHREAD_MUTEX_INITIALIZER };

static void say_note(const struct cli *cli, const char *text)
{
	cli_say(stderr, "ckptfs %s: note: %s", cli->command, text);
}

static void let_go(const struct cli *cli, int rc)
{
	pthread_mutex_lock(&held.lock);
	for (size_t at = 0; rc == CLI_OK && at < held.text.len;) {
		const char *text = (char *)held.text.data + at;

		say_note(cli, text);
		at += strlen(text) + 1;
	}
	ckb_buf_fini(&held.text);
	pthread_mutex_unlock(&held.lock);
}

static void note(void *ctx, enum ckb_level level, const char *text)
{
	const struct cli *cli = ctx;
	bool kept = false;

	if (!cli->verbose && level > CKB_WARN)
		return;
	/* a mount may stay for weeks */
	if (level == CKB_ERROR && !cli->verbose && cli->about != &cli_mount) {
		pthread_mutex_lock(&held.lock);
		kept = held.text.len < HELD_BYTES;
		if (kept)
			ckb_buf_put(&held.text, text, strlen(text) + 1);
		pthread_mutex_unlock(&held.lock);
	}
	if (!kept)
		say_note(cli, text);
}

int cli_fail(const struct cli *cli, const struct ckpt_err *err)
{
	return cli_fail_hint(cli, err, NULL);
}

int cli_fail_found(const struct cli *cli, const struct ckpt_err *err)
{
	cli_fail_hint(cli, err, NULL);
	return err->code == CKPT_ECORRUPT ? CLI_DAMAGE : CLI_FAILED;
}

int cli_fail_hint(const struct cli *cli, const struct ckpt_err *err,
		  const char *hint)
{
	bool red = cli->color && isatty(STDERR_FILENO);

	if (red)
		fputs("\033[31m", stderr);
	cli_say(stderr, "ckptfs %s: %s%s%s", cli->command, err->message,
		hint ? "; " : "", hint ? hint : "");
	if (red)
		fputs("\033[0m", stderr);
	return CLI_FAILED;
}

int cli_usage(const struct cli *cli, const char *fmt, ...)
{
	CKB_FREE char *text = NULL;
	va_list ap;

	va_start(ap, fmt);
	if (vasprintf(&text, fmt, ap) < 0)
		text = NULL;
	va_end(ap);
	cli_say(stderr, "ckptfs %s: %s; see: ckptfs %s --help", cli->command,
		text ? text : "wrong usage", cli->command);
	return CLI_USAGE;
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
	bool option = *word == '-';
	struct ckb_near near;

	ckb_near_init(&near, word, strlen(word));
	for (size_t i = 0; !option && cli_commands[i]; i++)
		ckb_near_try(&near, cli_commands[i]->name,
			     strlen(cli_commands[i]->name));
	if (option) {
		ckb_near_try(&near, "--help", strlen("--help"));
		ckb_near_try(&near, "--version", strlen("--version"));
	}
	cli_say(stderr, "ckptfs: %s'%s'%s%s%s; see: ckptfs --help",
		option ? "options stand behind a command, not so "
		       : "there is no command ", word,
		near.best[0] ? "; did you mean '" : "", near.best,
		near.best[0] ? "'?" : "");
	return CLI_USAGE;
}

int cli_finish(const char *command, const char *done, int rc)
{
	errno = 0;
	if (fflush(stdout) == 0 && !ferror(stdout))
		return rc;
	const char *why = errno ? strerror(errno) : NULL;
	const char *saved = rc == CLI_OK ? done : NULL;

	fprintf(stderr, "ckptfs%s%s: %s%s%s%s\n", command ? " " : "",
		command ? command : "", saved ? saved : "",
		saved ? ", but the summary cannot be written"
		      : "cannot write the output",
		why ? ": " : "", why ? why : "");
	return rc ? rc : CLI_FAILED;
}

static int run(const struct cli_command *c, int argc, char **argv)
{
	struct cli cli;

	cli_begin(&cli, c);
	/* what is being typed is not meant for us */
	if (c == &cli_complete)
		return c->run(&cli, argc, argv);
	ckb_log_sink(note, &cli);
	int rc = c->run(&cli, argc, argv);

	let_go(&cli, rc);
	return cli_finish(c->name, c->done, rc);
}

/* A descriptor of 0, 1 and 2 that the caller closed would be the next file's,
 * a pack's say, and messages would be written into it. What is opened there
 * can be used the other way only, so that using it still fails. */
static bool fill_standard(void)
{
	for (int fd = 0; fd < 3; fd++)
		if (fcntl(fd, F_GETFD) < 0 &&
		    open("/dev/null", fd == 0 ? O_WRONLY : O_RDONLY) != fd)
			return false;
	return true;
}

int main(int argc, char **argv)
{
	const char *base = argc > 0 ? strrchr(argv[0], '/') : NULL;

	if (!fill_standard()) {
		fprintf(stderr, "ckptfs: cannot open /dev/null for a standard "
			"descriptor that is closed: %s\n", strerror(errno));
		return CLI_FAILED;
	}
	/* widths and what can be shown; numbers stay as they are */
	setlocale(LC_CTYPE, "");
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
			cli_help(c);
		else
			usage(stdout);
		return cli_finish(NULL, NULL, CLI_OK);
	}
	if (!strcmp(word, "--version") || !strcmp(word, "-V")) {
		printf("ckptfs %s\n", ckpt_version());
		return cli_finish(NULL, NULL, CLI_OK);
	}
	const struct cli_command *c = find(word);

	if (!c)
		return no_command(word);
	return run(c, argc - 1, argv + 1);
}
