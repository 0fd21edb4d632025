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

#include "base/buf.h"
#include "base/err.h"

enum cli_exit { CLI_OK = 0, CLI_FAILED = 1, CLI_USAGE = 2, CLI_DAMAGE = 3 };

/* Options every command takes; cli_main() strips them before the command. */
struct cli {
	const char *command;  /* "import" */
	bool json;            /* --json */
	bool quiet;           /* -q: no progress, no summary */
	bool verbose;         /* -v: notes of the library to stderr */
};

struct cli_command {
	const char *name;
	const char *usage;    /* "STORE", one line */
	const char *summary;  /* one line for `ckptfs --help` */
	const char *help;     /* options, a line each, or "" */
	int (*run)(const struct cli *cli, int argc, char **argv);
};
extern const struct cli_command cli_init, cli_import, cli_export, cli_ls,
	cli_cat, cli_check, cli_reindex, cli_mount, cli_umount;

/* "ckptfs import: ..." on stderr; returns the exit code. */
int cli_fail(const struct cli *cli, const struct ckpt_err *err);
/* A wrong call: the sentence, and where to read more. */
int cli_usage(const struct cli *cli, const char *fmt, ...) CKB_PRINTF(2, 3);
/* What getopt found wrong with argv[optind - 1]. */
int cli_bad_option(const struct cli *cli, char **argv, int c);

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

CKB_MUST int cli_open(const struct cli_place *place, uint32_t flags,
		      struct ckpt_store **out, struct ckpt_err *err);

/* ---- out.c ---- */

/* "1.5 GiB"; a number below 1 KiB is "640 B". */
#define CLI_SIZE_BYTES 32
const char *cli_size(char dst[CLI_SIZE_BYTES], uint64_t bytes);

/* "2026-01-31 12:00:00" in local time. */
#define CLI_TIME_BYTES 32
const char *cli_time(char dst[CLI_TIME_BYTES], int64_t time_ns);

struct cli_column {
	const char *name;
	bool right;           /* numbers */
	bool number;          /* a JSON number */
};
/* A table for people, or JSON {@name: [...]}; NULL: out of memory. */
struct libscols_table *cli_table(const struct cli *cli, const char *name,
				 const struct cli_column *columns,
				 size_t count);
/* One row; NULL cells stay empty. */
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
