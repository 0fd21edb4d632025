/* SPDX-License-Identifier: Apache-2.0 */
/*
 * support/fixtures.h - the fixtures folder and its expected.tsv files;
 * temporary folders.
 */
#ifndef TEST_FIXTURES_H
#define TEST_FIXTURES_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* $CKPT_FIXTURES, or ../shared/fixtures beside the source. */
const char *fixtures_path(void);

/* Prints why and exits with 77 when the fixtures are not there. */
void fixtures_need(void);

struct fixture_row {
	char *name;
	size_t name_len;
	char dtype[16], shape[256];
	uint64_t nbytes;
	char sha256[65];
};
/* Rows of an expected.tsv; count in *@out_count. NULL: it cannot be read. */
struct fixture_row *fixtures_rows(const char *path, size_t *out_count);
void fixtures_free(struct fixture_row *rows, size_t count);

/* A new folder under $TMPDIR or /tmp, and its removal with all in it. */
void fix_folder(char dst[256]);
void fix_remove(const char *path);
/* The same with a path that remove_folder() frees. */
char *make_folder(void);
void remove_folder(char *path);

#endif
