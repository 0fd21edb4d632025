/* SPDX-License-Identifier: Apache-2.0 */
/* import_fixture.h - a store, a writer, and files to import. */
#ifndef IMPORT_FIXTURE_H
#define IMPORT_FIXTURE_H

#include <dirent.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include <ckpt/ckpt.h>
#include <ckpt/writer.h>

#include "asserts.h"
#include "base/bytes.h"
#include "base/check.h"
#include "fixtures.h"

struct fix {
	char dir[256]; /* removed at the end; the store is in it */
	struct ckpt_store *store;
	struct ckpt_writer *writer;
};

/* "DIR/@name", in one of a few buffers. */
FIX const char *fix_path(const struct fix *f, const char *name)
{
	static char paths[4][1024];
	static unsigned turn;
	char *p = paths[turn++ % 4];

	snprintf(p, 1024, "%s/%s", f->dir, name);
	return p;
}

FIX int fix_setup(void **state)
{
	const struct ckpt_writer_opts opts = {
		.size = sizeof(opts),
		.staging_bytes = 32 << 20,
	};
	struct fix *f = calloc(1, sizeof(*f));
	struct ckpt_err err = { 0 };

	assert_non_null(f);
	fix_folder(f->dir);
	assert_ok(ckpt_store_init(fix_path(f, "store"), &err));
	assert_ok(ckpt_store_open(fix_path(f, "store"), NULL, &f->store,
				  &err));
	assert_ok(ckpt_writer_open(f->store, &opts, &f->writer, &err));
	*state = f;
	return 0;
}

FIX int fix_teardown(void **state)
{
	struct fix *f = *state;

	ckpt_writer_close(f->writer);
	ckpt_store_close(f->store);
	fix_remove(f->dir);
	free(f);
	return 0;
}

/* true: the fixtures are not there, and the test was skipped. */
FIX bool fix_lacks_fixtures(void)
{
	if (access(fixtures_path(), R_OK) == 0)
		return false;
	print_message("no %s: skipped\n", fixtures_path());
	skip();
	return true;
}

FIX int fix_count(const struct fix *f, const char *folder)
{
	DIR *d = opendir(fix_path(f, folder));
	int n = 0;

	assert_non_null(d);
	for (struct dirent *e; (e = readdir(d));)
		n += e->d_name[0] != '.';
	closedir(d);
	return n;
}

FIX void fix_write(const char *path, const void *data, size_t len)
{
	FILE *file = fopen(path, "wb");

	assert_non_null(file);
	assert_int_equal(fwrite(data, 1, len, file), len);
	assert_int_equal(fclose(file), 0);
}

/* A safetensors file of this header and data. */
FIX void fix_model(const char *path, const char *json, const void *data,
		   size_t len)
{
	FILE *file = fopen(path, "wb");
	uint8_t head[8];

	assert_non_null(file);
	ckb_put_u64(head, strlen(json));
	assert_int_equal(fwrite(head, 1, 8, file), 8);
	assert_int_equal(fwrite(json, 1, strlen(json), file), strlen(json));
	assert_int_equal(fwrite(data, 1, len, file), len);
	assert_int_equal(fclose(file), 0);
}

/* All of a file; the caller's to free. */
FIX uint8_t *fix_slurp(const char *path, size_t *out_len)
{
	FILE *file = fopen(path, "rb");
	struct stat st;
	uint8_t *data;

	if (!file)
		fail_msg("cannot open %s", path);
	assert_int_equal(fstat(fileno(file), &st), 0);
	data = malloc((size_t)st.st_size + 1);
	assert_non_null(data);
	*out_len = fread(data, 1, (size_t)st.st_size, file);
	assert_int_equal(*out_len, st.st_size);
	fclose(file);
	return data;
}

/* All bytes of an entry, read in pieces of an odd length; to be freed. */
FIX uint8_t *fix_read(struct ckpt_checkpoint *c,
		      const struct ckpt_tensor_info *t)
{
	uint8_t *data = malloc(t->bytes + 1);
	struct ckpt_err err = { 0 };

	assert_non_null(data);
	for (uint64_t off = 0; off < t->bytes;) {
		size_t len = (size_t)ckb_min_u64(t->bytes - off, 99991);

		assert_ok(ckpt_read_bytes(c, t, off, len, data + off, &err));
		off += len;
	}
	return data;
}

#endif
