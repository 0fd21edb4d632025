/* SPDX-License-Identifier: Apache-2.0 */
/*
 * sys_fixture.h - a folder for each test, and a table over the real one that
 * fails nothing yet.
 */
#ifndef SYS_FIXTURE_H
#define SYS_FIXTURE_H

#include <ftw.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "fault_sys.h"

#define FIX __attribute__((unused)) static

#define GIB ((size_t)1 << 30)

struct fix {
	char dir[256];
	int fd;             /* of it */
	struct fault_sys f;
	struct ckpt_err err;
};

FIX int fix_remove_one(const char *path, const struct stat *st, int type,
		       struct FTW *ftw)
{
	(void)st;
	(void)type;
	(void)ftw;
	return remove(path);
}

FIX int fix_setup(void **state)
{
	struct fix *fix = calloc(1, sizeof(*fix));
	const char *tmp = getenv("TMPDIR");

	if (!fix)
		return -1;
	snprintf(fix->dir, sizeof(fix->dir), "%.200s/ckptfs-sys-XXXXXX",
		 tmp ? tmp : "/tmp");
	if (!mkdtemp(fix->dir))
		return -1;
	fix->fd = open(fix->dir, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	fault_init(&fix->f);
	umask(022);
	*state = fix;
	return fix->fd < 0 ? -1 : 0;
}

FIX int fix_teardown(void **state)
{
	struct fix *fix = *state;

	close(fix->fd);
	nftw(fix->dir, fix_remove_one, 16, FTW_DEPTH | FTW_PHYS);
	free(fix);
	return 0;
}

FIX void fix_put(struct fix *fix, const char *name, const void *data,
		 size_t len)
{
	int fd = openat(fix->fd, name, O_WRONLY | O_CREAT | O_EXCL, 0666);

	assert_true(fd >= 0);
	assert_int_equal(write(fd, data, len), len);
	close(fd);
}

/* The file @name has these bytes and no more. */
FIX void fix_holds(struct fix *fix, const char *name, const void *data,
		   size_t len)
{
	char have[2048];
	int fd = openat(fix->fd, name, O_RDONLY);

	assert_true(fd >= 0);
	assert_int_equal(read(fd, have, sizeof(have)), len);
	assert_memory_equal(have, data, len);
	close(fd);
}

FIX bool fix_is_folder(struct fix *fix, const char *name)
{
	struct stat st;

	return fstatat(fix->fd, name, &st, 0) == 0 && S_ISDIR(st.st_mode);
}

FIX int fix_count_one(void *ctx, const char *name, unsigned char type)
{
	(void)name;
	(void)type;
	++*(int *)ctx;
	return 0;
}

/* Names in a folder. */
FIX int fix_count(int dirfd, const char *path)
{
	int n = 0;

	assert_int_equal(ckb_sys_real()->list(ckb_sys_real(), dirfd, path,
					      fix_count_one, &n), 0);
	return n;
}

#define TEST(name) \
	cmocka_unit_test_setup_teardown(name, fix_setup, fix_teardown)

#endif
