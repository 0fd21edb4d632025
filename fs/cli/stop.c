/* SPDX-License-Identifier: Apache-2.0 */
/*
 * stop.c - Ctrl-C and kill, for commands that have something to take back.
 *
 * The first signal is noted and the command ends in its own time, by that very
 * signal, so that a shell's loop ends with it; the second kills at once. A
 * signal that was ignored when the program began stays so (nohup).
 */
#include <signal.h>
#include <stdio.h>

#include "cli/cli.h"

static volatile sig_atomic_t stopped;

static void note(int signal)
{
	stopped = signal;
}

void cli_stop_init(void)
{
	static const int signals[] = { SIGINT, SIGTERM, SIGHUP };
	struct sigaction mine = { .sa_handler = note,
				  .sa_flags = SA_RESETHAND }, before;

	for (size_t i = 0; i < CKB_ARRAY_LEN(signals); i++)
		if (sigaction(signals[i], NULL, &before) == 0 &&
		    before.sa_handler != SIG_IGN)
			sigaction(signals[i], &mine, NULL);
}

int cli_stopped(void)
{
	return stopped;
}

int cli_stop_end(const struct cli *cli, const char *left)
{
	fprintf(stderr, "ckptfs %s: interrupted; %s\n", cli->command, left);
	signal(stopped, SIG_DFL);
	raise(stopped);
	return 128 + stopped;
}
