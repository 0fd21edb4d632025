/* SPDX-License-Identifier: Apache-2.0 */
/* import_rows.h - the rows of an expected.tsv, and a tensor against its row. */
#ifndef IMPORT_ROWS_H
#define IMPORT_ROWS_H

#include "import_fixture.h"

#include "base/text.h"
#include "chunk/digest.h"

struct row {
	char *name;
	size_t name_len;
	char dtype[16], shape[1024], sha256[65];
	uint64_t bytes;
	bool seen;
};
struct rows {
	struct row *row;
	size_t count;
};

/* Undo the escapes of expected.tsv; returns the length. */
FIX size_t unescape(char *name)
{
	char *to = name;

	for (const char *from = name; *from; from++) {
		if (*from != '\\') {
			*to++ = *from;
			continue;
		}
		from++;
		*to++ = *from == 't' ? '\t' : *from == 'n' ? '\n'
		      : *from == 'r' ? '\r' : *from == '0' ? '\0' : *from;
	}
	return (size_t)(to - name);
}

FIX struct rows load_rows(const char *path)
{
	struct rows rows = { 0 };
	FILE *f = fopen(path, "r");
	char *line = NULL;
	size_t cap = 0;

	if (!f)
		fail_msg("cannot open %s", path);
	while (getline(&line, &cap, f) > 0) {
		char *tab = strchr(line, '\t');
		struct row *r;

		assert_non_null(tab);
		*tab = '\0';
		rows.row = realloc(rows.row, (rows.count + 1) * sizeof(*r));
		assert_non_null(rows.row);
		r = &rows.row[rows.count++];
		memset(r, 0, sizeof(*r));
		r->name = strdup(line);
		r->name_len = unescape(r->name);
		assert_int_equal(sscanf(tab + 1, "%15s %1023s %ju %64s",
					r->dtype, r->shape,
					(uintmax_t *)&r->bytes, r->sha256), 4);
	}
	free(line);
	fclose(f);
	assert_true(rows.count > 0);
	return rows;
}

FIX void free_rows(struct rows *rows)
{
	for (size_t i = 0; i < rows->count; i++)
		free(rows->row[i].name);
	free(rows->row);
}

FIX struct row *find_row(struct rows *rows,
			 const struct ckpt_tensor_info *t)
{
	for (size_t i = 0; i < rows->count; i++)
		if (rows->row[i].name_len == t->name_len &&
		    memcmp(rows->row[i].name, t->name, t->name_len) == 0)
			return &rows->row[i];
	fail_msg("'%s' is expected nowhere", t->name);
	return NULL;
}

FIX void check_tensor(struct ckpt_checkpoint *c,
		      const struct ckpt_tensor_info *t, struct row *r)
{
	char shape[2048] = "[", sha256[65];
	uint8_t digest[32], *data = fix_read(c, t);

	for (uint32_t d = 0; d < t->shape->ndim; d++)
		snprintf(shape + strlen(shape), sizeof(shape) - strlen(shape),
			 d ? ",%ju" : "%ju", (uintmax_t)t->shape->dim[d]);
	strcat(shape, "]");
	assert_string_equal(shape, r->shape);
	assert_string_equal(ckpt_dtype_name(t->dtype), r->dtype);
	assert_int_equal(t->bytes, r->bytes);
	ckc_sha256(data, t->bytes, digest);
	ckb_hex(sha256, digest, sizeof(digest));
	assert_string_equal(sha256, r->sha256);
	assert_false(r->seen);
	r->seen = true;
	free(data);
}

#endif
