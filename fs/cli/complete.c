/* SPDX-License-Identifier: Apache-2.0 */
/*
 * complete.c - what a shell may offer for the word being typed.
 *
 *	ckptfs complete WORD...
 *
 * WORDs are what follows `ckptfs` up to the cursor; the last, which may be
 * empty, is to be completed. One candidate a line, whole words. A place
 * STORE:PATH is completed from the store; files are the shell's own business.
 * Never says a word on stderr, never fails, opens nothing for writing.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cli/cli.h"
#include "tree/tree.h"

#define OFFER_MAX 2000 /* more than anybody reads */

static bool begins(const char *text, size_t len, const char *start)
{
	return strlen(start) <= len && memcmp(text, start, strlen(start)) == 0;
}

static void offer_commands(const char *word)
{
	for (size_t i = 0; cli_commands[i]; i++)
		if (begins(cli_commands[i]->name,
			   strlen(cli_commands[i]->name), word))
			puts(cli_commands[i]->name);
	for (size_t i = 0; i < 2; i++) {
		static const char *const more[] = { "--help", "--version" };

		if (*word == '-' && begins(more[i], strlen(more[i]), word))
			puts(more[i]);
	}
}

/* In a help text an option begins a line, or follows one and a comma. */
static bool next_option(const char **at, const char **out, size_t *out_len)
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

/* Does @help list it before @option? "-o" has many lines. */
static bool listed_before(const char *help, const char *option, size_t len)
{
	const char *other;
	size_t other_len;

	while (next_option(&help, &other, &other_len) && other < option)
		if (other_len == len && memcmp(other, option, len) == 0)
			return true;
	return false;
}

/* Options that a help text lists. */
static void offer_listed(const char *help, const char *word)
{
	const char *at = help, *option;
	size_t len;

	while (next_option(&at, &option, &len))
		if (begins(option, len, word) &&
		    !listed_before(help, option, len))
			printf("%.*s%s\n", (int)len, option,
			       option[len] == '=' ? "=" : "");
}

static void offer_options(const char *command, const char *word)
{
	const char *help;

	for (size_t i = 0; cli_commands[i]; i++) {
		const struct cli_command *c = cli_commands[i];

		if (strcmp(c->name, command) != 0)
			continue;
		offer_listed(c->help, word);
		for (size_t k = 0; (help = cli_common_help(c, k)); k++)
			offer_listed(help, word);
	}
}

static void offer_values(const char *word)
{
	static const char *const colors[] = { "auto", "always", "never" };

	for (size_t i = 0; i < 3; i++)
		if (begins(colors[i], strlen(colors[i]), word))
			printf("--color=%s\n", colors[i]);
}

/* ---- places ---- */

struct typed {
	const char *left;      /* the store, with its ':' */
	const char *path;      /* all of what follows */
	size_t dir_len;        /* of it, without the last '/' */
	const char *word;      /* behind that '/' */
	size_t offered;
	bool links;            /* latest and newest mean something */
};

static void offer(struct typed *t, const char *name, bool folder)
{
	if (!begins(name, strlen(name), t->word) || t->offered++ >= OFFER_MAX)
		return;
	printf("%s%.*s%s%s%s\n", t->left, (int)t->dir_len, t->path,
	       t->word == t->path ? "" : "/", name, folder ? "/" : "");
}

/* Runs and checkpoints are folders, both. */
static int offer_name(void *ctx, const char *name, bool is_run)
{
	struct typed *t = ctx;

	t->links = t->links || !is_run;
	offer(t, name, true);
	return 0;
}

static void offer_in(struct ckpt_store *store, struct ckv_tree *tree,
		     struct typed *t)
{
	CKB_FREE char *dir = strndup(t->path, t->dir_len);
	struct ckv_node *node = NULL;
	struct ckv_list *list = NULL;

	/* a run: names alone, so that no manifest is opened */
	if (dir && ckpt_store_list(store, dir, offer_name, t, NULL) == 0) {
		if (t->links) {
			offer(t, "latest", true);
			offer(t, "newest", true);
		}
		return;
	}
	if (!dir || ckv_resolve(tree, dir, &node, NULL) < 0)
		return;
	if (ckv_list_new(node, &list, NULL) < 0)
		list = NULL;
	for (size_t i = 0; list && i < ckv_list_count(list); i++)
		offer(t, ckv_list_name(list, i), ckv_list_is_folder(list, i));
	ckv_list_free(list);
	ckv_put(node);
}

struct tags {
	const char *left, *word;
};

static int offer_tag(void *ctx, const struct ckpt_tag *t)
{
	const struct tags *o = ctx;

	if (t->checkpoint && begins(t->name, strlen(t->name), o->word))
		printf("%s@%s\n", o->left, t->name);
	return 0;
}

static void offer_place(const char *word)
{
	struct ckpt_store_opts opts = { .size = sizeof(opts),
					.flags = CKPT_STORE_READONLY };
	struct ckpt_store *store = NULL;
	struct ckv_tree *tree = NULL;
	struct cli_place place;
	struct typed t = { 0 };

	if (cli_place(word, &place, NULL) < 0)
		return;
	/* what was typed after the ':', its last '/' too */
	const char *path = word + (*word == ':' ? 1
				   : strlen(place.store) + 1);
	CKB_FREE char *left = place.has_path
				      ? strndup(word, (size_t)(path - word))
				      : NULL;

	const char *slash = strrchr(path, '/');

	t.left = left;
	t.path = path;
	t.dir_len = slash ? (size_t)(slash - path) : 0;
	t.word = slash ? slash + 1 : path;
	if (left && ckpt_store_open(place.store, &opts, &store, NULL) == 0) {
		if (*path == '@' && !strchr(path, '/'))
			(void)!ckpt_tag_list(store, offer_tag,
					     &(struct tags){ left, path + 1 },
					     NULL);
		else if (ckv_tree_new(store, &tree, NULL) == 0)
			offer_in(store, tree, &t);
	}
	ckv_tree_free(tree);
	ckpt_store_close(store);
	cli_place_fini(&place);
}

static int run_complete(struct cli *cli, int argc, char **argv)
{
	(void)cli;
	if (argc < 2)
		return CLI_OK;
	const char *word = argv[argc - 1];

	if (argc == 2)
		offer_commands(word);
	else if (begins(word, strlen(word), "--color="))
		offer_values(word + strlen("--color="));
	else if (*word == '-')
		offer_options(argv[1], word);
	else if (strchr(word, ':'))
		offer_place(word);
	return CLI_OK;
}

const struct cli_command cli_complete = {
	.name = "complete",
	.usage = "WORD...",
	.summary = "What a shell may offer for the last WORD",
	.help = "",
	.run = run_complete,
};
