/* SPDX-License-Identifier: Apache-2.0 */
/*
 * cli/cli.h - what the commands of `ckptfs` share.
 *
 * Exit codes: 0 done, 1 failed, 2 wrong usage, 3 found damage. Every failure
 * is one line on stderr.
 */
#ifndef CLI_CLI_H
#define CLI_CLI_H

#include <ckpt/ckpt.h>
#include <ckpt/writer.h>
#include <libsmartcols.h>
#include <stdio.h>

#include "base/buf.h"
#include "base/err.h"

enum cli_exit { CLI_OK = 0, CLI_FAILED = 1, CLI_USAGE = 2, CLI_DAMAGE = 3 };

/* Options that commands share; cli_option() sets them. */
struct cli_command;
struct cli {
	const char *command;  /* "import" */
	const struct cli_command *about; /* what it can do */
	bool json;            /* --json */
	bool quiet;           /* -q: no progress, no summary */
	bool verbose;         /* -v: notes of the library to stderr */
	bool color;           /* --color, NO_COLOR, a terminal */
};

struct cli_command {
	const char *name;
	const char *usage;    /* "STORE", one line */
	const char *summary;  /* one line for `ckptfs --help` */
	const char *help;     /* options, a line each, or "" */
	const char *lacks;    /* of those that commands share: "quiet json" */
	int (*run)(struct cli *cli, int argc, char **argv);
	const char *done;     /* what is so even if the output is lost: "the
				 checkpoint was saved"; NULL: nothing */
};
extern const struct cli_command cli_init, cli_import, cli_export, cli_ls,
	cli_cat, cli_show, cli_log, cli_stat, cli_rm, cli_mv, cli_cp, cli_tag,
	cli_check, cli_reindex, cli_mount, cli_umount, cli_complete;

/* The commands, in the order of --help; NULL ends. complete is not shown. */
extern const struct cli_command *const cli_commands[];

/* "ckptfs import: ..." on stderr; returns the exit code. */
int cli_fail(const struct cli *cli, const struct ckpt_err *err);
/* The same of something that was read: CLI_DAMAGE if it is damaged. */
int cli_fail_found(const struct cli *cli, const struct ckpt_err *err);
/* The same with "; @hint" behind it. */
int cli_fail_hint(const struct cli *cli, const struct ckpt_err *err,
		  const char *hint);
/* A wrong call: the sentence, and where to read more. */
int cli_usage(const struct cli *cli, const char *fmt, ...) CKB_PRINTF(2, 3);
/* The exit code, @rc unless output was lost, which is said. @command: NULL for
 * ckptfs itself; @done: as in struct cli_command. */
int cli_finish(const char *command, const char *done, int rc);

/* ---- option.c ---- */

struct option;
enum { CLI_OPT_STEP = 1000, CLI_OPT_SINCE, CLI_OPT_JSON, CLI_OPT_COLOR };

void cli_begin(struct cli *cli, const struct cli_command *c);
/* The next of the command's @own options, as getopt_long(3) gives it with
 * optarg and optind; -1 behind the last; '?': wrong, and it was said. --help
 * ends the program. */
int cli_option(struct cli *cli, int argc, char **argv, const char *letters,
	       const struct option *own);
/* The same for a command that has none of its own: CLI_OK or CLI_USAGE. */
int cli_no_option(struct cli *cli, int argc, char **argv);
void cli_help(const struct cli_command *c);
/* Line @index of the help of what commands share, "" where @c lacks it; NULL
 * behind the last. */
const char *cli_common_help(const struct cli_command *c, size_t index);

/* ---- number.c: values of options. false: @text is none ---- */

/* Digits only, from @min to @max. */
bool cli_whole(const char *text, uint64_t min, uint64_t max, uint64_t *out);
/* "200M", "1.5G", "4096"; units K, M, G and T of 1,024. At least one. */
bool cli_bytes(const char *text, uint64_t *out);
/* "36h", "1.5d", "90"; units s, m, h, d and w. */
bool cli_seconds(const char *text, double *out);

/* ---- stop.c ---- */

/* From now on Ctrl-C and kill are noted once, instead of the end. */
void cli_stop_init(void);
/* The signal that came, or 0. */
int cli_stopped(void);
/* "interrupted; @left" on stderr, then end by the signal that came. */
int cli_stop_end(const struct cli *cli, const char *left);

/* ---- place.c ---- */

/* STORE[:PATH], split at the first ':' whose left side holds ckptfs.json.
 * An empty STORE is $CKPTFS_STORE. */
struct cli_place {
	char *store;
	char *path;           /* without leading or trailing '/'; "": none */
	bool has_path;        /* a ':' was there */
};
CKB_MUST int cli_place(const char *arg, struct cli_place *out,
		       struct ckpt_err *err);
void cli_place_fini(struct cli_place *place);
/* The place @arg, which must be a whole store: "STORE", "STORE:" or ":".
 * CLI_OK, or the exit code, and it was said. */
int cli_store_place(const struct cli *cli, const char *arg,
		    struct cli_place *out);
/* The path of the store that is to be made at @arg; malloc'ed. CLI_OK, or the
 * exit code, and it was said. */
int cli_new_store(const struct cli *cli, const char *arg, char **out);
/* The one argument of a command that is for a whole store, behind its options.
 * CLI_OK, or the exit code, and it was said. */
int cli_one_store(struct cli *cli, int argc, char **argv,
		  struct cli_place *out);
/* The same for a command that has no options. */
int cli_whole_store(struct cli *cli, int argc, char **argv,
		    struct cli_place *out);
/* Is it a store that is there, or a place in one? */
bool cli_in_store(const char *arg);
/* Was @other, to be a path outside any store, exchanged with @place? */
bool cli_swapped(const char *place, const char *other);

/* Opens the store, or says which one that is there may be meant; "@TAG" at the
 * start of the path becomes the name of the
 * checkpoint that it names. */
CKB_MUST int cli_open(struct cli_place *place, uint32_t flags,
		      struct ckpt_store **out, struct ckpt_err *err);

/* ---- pick.c: which checkpoints are meant ---- */

#define CLI_SELECT_OPTIONS \
	{ "step", required_argument, NULL, CLI_OPT_STEP }, \
	{ "since", required_argument, NULL, CLI_OPT_SINCE }
#define CLI_SELECT_HELP \
	"      --step A:B   only steps from A to B; N: only that one\n" \
	"      --since T    only what was saved since: an age (2d) or a " \
	"date\n"

struct cli_select {
	bool has_step, has_since;
	uint64_t step_min, step_max; /* both included */
	int64_t since_ns;
};
/* Take the value of one of these options. CLI_OK, or CLI_USAGE, said. */
int cli_select(const struct cli *cli, struct cli_select *select, int option,
	       const char *text);
bool cli_selected(const struct cli_select *select,
		  const struct ckpt_entry *entry);

/* The checkpoints of a store, as one walk found them, sorted by name. Their
 * texts are our own. */
struct cli_entries {
	struct ckpt_entry *list;
	size_t count, cap;
	bool walked;
};
/* Walk, unless that was done. @flags: enum ckpt_entries_flag. After a failure
 * @out still is to be freed. */
CKB_MUST int cli_walk(struct ckpt_store *store, uint32_t flags,
		      struct cli_entries *out, struct ckpt_err *err);
void cli_entries_fini(struct cli_entries *all);
/* The one called @name, or NULL. */
const struct ckpt_entry *cli_entry(const struct cli_entries *all,
				   const char *name);
/* Are there checkpoints below @name? */
bool cli_is_run(const struct cli_entries *all, const char *name);
/* CKPT_EEXIST: what stands where @name would be, or on the way there. */
CKB_MUST int cli_entry_free(const struct cli_entries *all, const char *name,
			    struct ckpt_err *err);

struct cli_names {
	char **list;
	size_t count, cap;
};
void cli_names_fini(struct cli_names *names);
/* Sorted, each once. */
void cli_names_sort(struct cli_names *names);

bool cli_is_pattern(const char *path);

/* The checkpoints of @all that @place means, appended to @out: one, those of a
 * run at any depth (@runs), or what matches a pattern; @select (or NULL)
 * chooses. A path that ends in latest or newest is replaced by the name it
 * means. Nothing at all is CKPT_ENOENT; nothing chosen is none. After a failure
 * @out still is to be freed. */
CKB_MUST int cli_pick_of(struct ckpt_store *store,
			 const struct cli_entries *all,
			 struct cli_place *place, bool runs,
			 const struct cli_select *select,
			 struct cli_names *out, struct ckpt_err *err);
/* The same with a walk of its own. */
CKB_MUST int cli_pick(struct ckpt_store *store, struct cli_place *place,
		      bool runs, const struct cli_select *select,
		      struct cli_names *out, struct ckpt_err *err);

/* ---- out.c ---- */

/* "1.5 GiB"; a number below 1 KiB is "640 B". */
#define CLI_SIZE_BYTES 32
const char *cli_size(char dst[CLI_SIZE_BYTES], uint64_t bytes);

/* "\033[1m" and the like, or "" where colours are off. */
const char *cli_bold(const struct cli *cli);
const char *cli_red(const struct cli *cli);
const char *cli_plain(const struct cli *cli);

/* "2026-01-31 12:00:00" in local time. */
#define CLI_TIME_BYTES 32
const char *cli_time(char dst[CLI_TIME_BYTES], int64_t time_ns);

/* "1 tag", "2 tags". */
#define CLI_COUNT_BYTES 64
const char *cli_count(char dst[CLI_COUNT_BYTES], uint64_t n,
		      const char *noun);

/* @len bytes of @text, appended as they may be shown: what the locale cannot
 * show, controls and invisible characters are \xNN. Again changes nothing. */
void cli_escape(struct ckb_buf *out, const char *text, size_t len);
/* A line: as it is for programs, escaped on a terminal. */
void cli_say(FILE *to, const char *fmt, ...) CKB_PRINTF(2, 3);
void cli_line(const char *text);

struct cli_column {
	const char *name;
	bool right;           /* numbers */
	bool number;          /* a JSON number */
};
/* A table for people, or JSON {@name: [...]}; NULL: out of memory. */
struct libscols_table *cli_table(const struct cli *cli, const char *name,
				 const struct cli_column *columns,
				 size_t count);
/* Make the last row red, where colours are on. */
void cli_row_red(const struct cli *cli, struct libscols_table *table);
/* Where a terminal is too narrow, this column's cells are cut. */
void cli_table_cut(struct libscols_table *table, size_t column);
/* One row; NULL cells stay empty. For people it is escaped. */
CKB_MUST int cli_row(struct libscols_table *table, const char *const *cells,
		     size_t count);
/* Print and free. 0 or CLI_FAILED. */
int cli_table_end(struct libscols_table *table);

/* Progress on a terminal, from the first second on. */
struct cli_progress {
	const char *verb;     /* "importing" */
	bool on;
	bool drawn;
	int64_t start_ns, last_ns;
};
void cli_progress_init(struct cli_progress *p, const struct cli *cli,
		       const char *verb);
void cli_progress(struct cli_progress *p, uint64_t done, uint64_t total);
void cli_progress_end(struct cli_progress *p);

#endif
