/* SPDX-License-Identifier: Apache-2.0 */
/* fixtures.c - where the oracles lie, and temporary folders. */
#include "fixtures.h"

#include <ftw.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

const char *fixtures_path(void)
{
	const char *given = getenv("CKPT_FIXTURES");

	return given ? given : CKPT_SOURCE_ROOT "/../shared/fixtures";
}

void fixtures_need(void)
{
	if (access(fixtures_path(), R_OK) == 0)
		return;
	printf("skipped: no fixtures at %s\n", fixtures_path());
	exit(77);
}

/* \\ \t \n \r \0, in place; the length without the final NUL. */
static size_t unescape(char *s)
{
	char *to = s, *start = s;

	for (; *s; s++) {
		if (*s != '\\') {
			*to++ = *s;
			continue;
		}
		s++;
		*to++ = *s == 't' ? '\t' : *s == 'n' ? '\n'
		      : *s == 'r' ? '\r' : *s == '0' ? '\0' : *s;
	}
	*to = '\0';
	return (size_t)(to - start);
}

static int parse(char *line, struct fixture_row *r)
{
	char *field[5];

	for (int i = 0; i < 5; i++)
		field[i] = strsep(&line, "\t");
	if (!field[4])
		return -1;
	r->name_len = unescape(field[0]);
	r->name = malloc(r->name_len + 1);
	memcpy(r->name, field[0], r->name_len + 1);
	snprintf(r->dtype, sizeof(r->dtype), "%s", field[1]);
	snprintf(r->shape, sizeof(r->shape), "%s", field[2]);
	r->nbytes = strtoull(field[3], NULL, 10);
	snprintf(r->sha256, sizeof(r->sha256), "%s", field[4]);
	return 0;
}

struct fixture_row *fixtures_rows(const char *path, size_t *out_count)
{
	FILE *f = fopen(path, "re");
	struct fixture_row *rows = NULL;
	char *line = NULL;
	size_t cap = 0, n = 0;
	ssize_t len;

	*out_count = 0;
	if (!f)
		return NULL;
	while ((len = getline(&line, &cap, f)) > 0) {
		if (line[len - 1] == '\n')
			line[len - 1] = '\0';
		rows = realloc(rows, (n + 1) * sizeof(*rows));
		if (parse(line, &rows[n]) == 0)
			n++;
	}
	free(line);
	fclose(f);
	*out_count = n;
	return rows;
}

void fixtures_free(struct fixture_row *rows, size_t count)
{
	for (size_t i = 0; i < count; i++)
		free(rows[i].name);
	free(rows);
}

void fix_folder(char dst[256])
{
	const char *base = getenv("TMPDIR");

	snprintf(dst, 256, "%.200s/ckpt-test-XXXXXX", base ? base : "/tmp");
	if (!mkdtemp(dst)) {
		perror(dst);
		abort();
	}
}

static int remove_one(const char *path, const struct stat *st, int type,
		      struct FTW *ftw)
{
	(void)st, (void)type, (void)ftw;
	return remove(path);
}

void fix_remove(const char *path)
{
	nftw(path, remove_one, 16, FTW_DEPTH | FTW_PHYS);
}

char *make_folder(void)
{
	char *path = malloc(256);

	if (!path)
		abort();
	fix_folder(path);
	return path;
}

void remove_folder(char *path)
{
	if (path)
		fix_remove(path);
	free(path);
}
