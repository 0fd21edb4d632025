/* SPDX-License-Identifier: Apache-2.0 */
/*
 * init.c - make an empty store.
 *
 * Refuses a folder that holds anything but what a crashed init leaves: empty
 * store folders and temporary copies of ckptfs.json. So a store whose
 * ckptfs.json was lost is never made over.
 *
 * Invariant: ckptfs.json appears last, whole, by link(2), which cannot replace
 * (S3's way): after a crash there is no store, and init works again, or a
 * whole one. Of several inits at once exactly one makes the store.
 * Threads: no state; any.
 */
#include "verbs/store_impl.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "base/buf.h"
#include "base/text.h"
#include "format/config.h"
#include "tensor/grid.h"

#define CONFIG "ckptfs.json"
#define TEMP_PREFIX "ckptfs.json."
#define TEMP_BYTES (sizeof(TEMP_PREFIX) + 16)

const char *const cks_store_folders[] = {
	"checkpoints", "packs", "staging", "condemned", "tags", "marks",
	"bad", "plans", NULL,
};

int cks_uuid_new(const struct ckb_sys *sys, uint8_t out[16],
		 struct ckpt_err *err)
{
	int rc = sys->random(sys, out, CKPT_UUID_BYTES);

	if (rc < 0)
		return ckb_err_sys(err, -rc, "cannot get random bytes");
	out[6] = (uint8_t)((out[6] & 0x0f) | 0x40);
	out[8] = (uint8_t)((out[8] & 0x3f) | 0x80);
	return 0;
}

struct look {
	const struct ckb_sys *sys;
	int dirfd;
	const char *path;
	struct ckpt_err *err;
	char temp[TEMP_BYTES]; /* a crashed init's copy, "" when none */
};

static bool is_store_folder(const char *name)
{
	for (size_t i = 0; cks_store_folders[i]; i++)
		if (strcmp(cks_store_folders[i], name) == 0)
			return true;
	return false;
}

static int any_name(void *ctx, const char *name, unsigned char type)
{
	(void)ctx;
	(void)name;
	(void)type;
	return 1;
}

static bool is_temp(const char *name)
{
	return strlen(name) == TEMP_BYTES - 1 &&
	       strncmp(name, TEMP_PREFIX, strlen(TEMP_PREFIX)) == 0 &&
	       strspn(strrchr(name, '.') + 1, "0123456789abcdef") == 16;
}

/* One name of the folder the store shall be made in. */
static int look_at(void *ctx, const char *name, unsigned char type)
{
	struct look *l = ctx;
	char q[CKB_QUOTE_BYTES];

	(void)type;
	if (strcmp(name, CONFIG) == 0)
		return ckb_err(l->err, CKPT_EEXIST, "'%s' is a ckptfs store "
			       "already", l->path);
	if (is_temp(name)) {
		memcpy(l->temp, name, TEMP_BYTES);
		return 0;
	}
	ckb_quote(q, sizeof(q), name, strlen(name));
	if (!is_store_folder(name))
		return ckb_err(l->err, CKPT_EEXIST, "'%s' holds '%s': a store "
			       "needs an empty folder of its own", l->path, q);
	int rc = l->sys->list(l->sys, l->dirfd, name, any_name, NULL);

	if (rc == 0)
		return 0;
	if (rc == 1 || rc == -ENOTDIR)
		return ckb_err(l->err, CKPT_EEXIST, "'%s' holds '%s', which "
			       "is not empty: a store needs an empty folder of "
			       "its own", l->path, q);
	return ckb_err_sys(l->err, -rc, "cannot read folder '%s/%s'", l->path,
			   q);
}

/* Only leftovers there? They are removed or used. */
static int check_empty(const struct ckb_sys *sys, int dirfd, const char *path,
		       struct ckpt_err *err)
{
	struct ckpt_err mine = { 0 };

	for (;;) {
		struct look l = { sys, dirfd, path, &mine, "" };
		int rc = sys->list(sys, dirfd, ".", look_at, &l);

		if (rc < 0 && mine.code == 0)
			return ckb_err_sys(err, -rc, "cannot read folder '%s'",
					   path);
		if (rc < 0) {
			if (err)
				*err = mine;
			return mine.code;
		}
		if (!l.temp[0])
			return 0;
		rc = sys->unlinkat(sys, dirfd, l.temp, 0);
		if (rc < 0 && rc != -ENOENT)
			return ckb_err_sys(err, -rc, "cannot remove '%s/%s'",
					   path, l.temp);
	}
}

static int make_folders(const struct ckb_sys *sys, int dirfd, const char *path,
			struct ckpt_err *err)
{
	for (size_t i = 0; cks_store_folders[i]; i++) {
		int rc = sys->mkdirat(sys, dirfd, cks_store_folders[i], 0777);

		if (rc < 0 && rc != -EEXIST)
			return ckb_err_sys(err, -rc, "cannot make folder "
					   "'%s/%s'", path,
					   cks_store_folders[i]);
	}
	return ckb_sync_dir(sys, dirfd, ".", err);
}

/* The commit point of init: until the link there is no store. */
static int put_config(const struct ckb_sys *sys, int dirfd, const char *path,
		      struct ckpt_err *err)
{
	struct ckf_config c = { .version = CKF_FORMAT_VERSION,
				.tile_rule = CKT_TILE_RULE };
	CKB_BUF struct ckb_buf text = { 0 };
	char temp[TEMP_BYTES] = TEMP_PREFIX;
	uint8_t tail[16];
	int rc = cks_uuid_new(sys, c.uuid, err);

	if (rc == 0)
		rc = cks_uuid_new(sys, tail, err);
	if (rc < 0)
		return rc;
	ckb_hex(temp + strlen(TEMP_PREFIX), tail + 8, 8);
	if (ckf_config_encode(&c, &text) < 0)
		return ckb_err_nomem(err);
	rc = ckb_write_file(sys, dirfd, temp, text.data, text.len, err);
	if (rc == 0) {
		rc = sys->linkat(sys, dirfd, temp, dirfd, CONFIG);
		if (rc == -EEXIST)
			rc = ckb_err(err, CKPT_EEXIST, "'%s' is a ckptfs store "
				     "already", path);
		else if (rc < 0)
			rc = ckb_err_sys(err, -rc, "cannot make '%s/" CONFIG
					 "'", path);
	}
	/* best effort: it is a leftover that the next init knows */
	(void)sys->unlinkat(sys, dirfd, temp, 0);
	return rc == 0 ? ckb_sync_dir(sys, dirfd, ".", err) : rc;
}

/* The folder @path lies in, appended to @out. */
static void parent_of(struct ckb_buf *out, const char *path)
{
	size_t len = strlen(path);

	while (len > 1 && path[len - 1] == '/')
		len--;
	while (len > 0 && path[len - 1] != '/')
		len--;
	if (len > 0)
		ckb_buf_put(out, path, len);
	else
		ckb_buf_putc(out, '.');
}

static int sync_parent(const struct ckb_sys *sys, const char *path, bool made,
		       struct ckpt_err *err)
{
	CKB_BUF struct ckb_buf parent = { 0 };
	struct ckpt_err mine = { 0 };

	parent_of(&parent, path);
	if (parent.failed)
		return ckb_err_nomem(err);
	int rc = ckb_sync_dir(sys, AT_FDCWD, (const char *)parent.data, &mine);

	/* whoever gave us a folder in a place we may not read has synced it */
	if (rc == CKPT_EPERM && !made)
		return 0;
	if (rc < 0 && err)
		*err = mine;
	return rc;
}

/* No folder above @fd is a store: its runs are folders as well, and what lies
 * in them is taken for checkpoints. A folder that may not be looked at ends the
 * search. @fd is closed. */
static int check_above(const struct ckb_sys *sys, int fd, const char *path,
		       struct ckpt_err *err)
{
	struct stat here, above, st;
	int rc = sys->fstat(sys, fd, &here);

	while (rc >= 0) {
		if (sys->fstatat(sys, fd, CONFIG, &st) == 0) {
			rc = ckb_err(err, CKPT_EEXIST, "'%s' would lie inside "
				     "another store; a checkpoint in that one "
				     "is named STORE:NAME", path);
			break;
		}
		int up = sys->openat(sys, fd, "..", O_RDONLY | O_DIRECTORY, 0);

		if (up < 0)
			break;
		sys->close(sys, fd);
		fd = up;
		rc = sys->fstat(sys, fd, &above);
		if (rc < 0 || (above.st_ino == here.st_ino &&
			       above.st_dev == here.st_dev))
			break; /* the root */
		here = above;
	}
	sys->close(sys, fd);
	return rc == CKPT_EEXIST ? rc : 0;
}

/* The folder that @path lies in, or will. */
static int check_place(const struct ckb_sys *sys, const char *path,
		       struct ckpt_err *err)
{
	CKB_BUF struct ckb_buf up = { 0 };

	if (*path == '\0')
		return ckb_err(err, CKPT_EINVAL, "the store's path is empty");
	ckb_buf_puts(&up, path);
	ckb_buf_puts(&up, "/..");
	if (up.failed)
		return ckb_err_nomem(err);
	int fd = sys->openat(sys, AT_FDCWD, (const char *)up.data,
			     O_RDONLY | O_DIRECTORY, 0);

	if (fd == -ENOENT) {
		up.len = 0;
		parent_of(&up, path);
		if (up.failed)
			return ckb_err_nomem(err);
		fd = sys->openat(sys, AT_FDCWD, (const char *)up.data,
				 O_RDONLY | O_DIRECTORY, 0);
	}
	if (fd == -ENOENT)
		return ckb_err(err, CKPT_ENOENT, "cannot make folder '%s': the "
			       "folder it lies in does not exist", path);
	return fd < 0 ? 0 : check_above(sys, fd, path, err);
}

int cks_store_init_sys(const struct ckb_sys *sys, const char *path,
		       struct ckpt_err *err)
{
	int rc = check_place(sys, path, err);

	if (rc < 0)
		return rc;
	rc = sys->mkdirat(sys, AT_FDCWD, path, 0777);
	bool made = rc == 0;

	if (rc < 0 && rc != -EEXIST)
		return ckb_err_sys(err, -rc, "cannot make folder '%s'", path);
	int fd = sys->openat(sys, AT_FDCWD, path, O_RDONLY | O_DIRECTORY, 0);

	if (fd == -ENOTDIR)
		return ckb_err(err, CKPT_EEXIST, "'%s' is there and is no "
			       "folder", path);
	if (fd < 0)
		return ckb_err_sys(err, -fd, "cannot open folder '%s'", path);
	rc = check_empty(sys, fd, path, err);
	if (rc == 0)
		rc = make_folders(sys, fd, path, err);
	if (rc == 0)
		rc = sync_parent(sys, path, made, err);
	if (rc == 0)
		rc = put_config(sys, fd, path, err);
	sys->close(sys, fd);
	return rc;
}

int ckpt_store_init(const char *path, struct ckpt_err *err)
{
	CKB_REQUIRE(path);
	return cks_store_init_sys(ckb_sys_real(), path, err);
}
