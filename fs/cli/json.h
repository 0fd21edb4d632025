/* SPDX-License-Identifier: Apache-2.0 */
/*
 * cli/json.h - JSON that a command prints: ckptfs-json(5) lists the keys.
 *
 * Built in memory and printed whole, so that what is printed always parses.
 * @key NULL: an element of a list. One thread.
 */
#ifndef CLI_JSON_H
#define CLI_JSON_H

#include "cli/cli.h"

struct cli_json {
	struct ckb_buf text;
	bool comma;            /* the next value follows another */
};

/* @open: '{' or '['; each is ended by cli_json_close() with its partner. */
void cli_json_open(struct cli_json *j, const char *key, char open);
void cli_json_close(struct cli_json *j, char close);

/* NULL @text, and an unset number, is null. */
void cli_json_text(struct cli_json *j, const char *key, const char *text);
void cli_json_name(struct cli_json *j, const char *key, const char *text,
		   size_t len);
void cli_json_u64(struct cli_json *j, const char *key, uint64_t v);
void cli_json_null(struct cli_json *j, const char *key);
void cli_json_bool(struct cli_json *j, const char *key, bool v);
/* NaN and infinity, which JSON lacks, are null. */
void cli_json_double(struct cli_json *j, const char *key, double v);
void cli_json_i64(struct cli_json *j, const char *key, int64_t v);
/* An object given by a user: as it is, or a string if it is none. */
void cli_json_object(struct cli_json *j, const char *key, const char *object);
void cli_json_uuid(struct cli_json *j, const char *key, const uint8_t *uuid);
/* RFC 3339, UTC, nanoseconds. */
void cli_json_time(struct cli_json *j, const char *key, int64_t ns);

/* Print and free. CLI_OK or CLI_FAILED. */
int cli_json_end(const struct cli *cli, struct cli_json *j);

#endif
