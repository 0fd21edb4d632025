/* SPDX-License-Identifier: Apache-2.0 */
/*
 * commit.c - publish a manifest: the one commit point (S3).
 *
 *	look at the name         refuse what can be refused without a trace
 *	manifest -> staging      written, synced; the folder too
 *	run folders of the name  made, each one's parent synced (S2)
 *	link(2), or rename(2)    the checkpoint is there, whole
 *	fsync of its folder      ... and survives power loss
 *
 * The caller has published every pack the manifest names (S2). Before the link
 * nothing of the save is visible. After it nothing is taken back: a failed
 * last sync is CKPT_EUNSURE, and staging stays as it is, so that whichever of
 * the two names survives a power loss still holds the manifest.
 *
 * Refuses to replace unless asked, and to go through symbolic links.
 * Threads: one per save; against other saves link(2) decides.
 */
#include "verbs/stage_impl.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "base/log.h"
#include "verbs/tag.h"

#define RUN_TRIES 8

struct commit {
	struct cks_stage *st;
	bool replace;
	char from[CKS_STAGE_PATH_BYTES];
	char to[CKS_NAME_PATH_BYTES];
	char folder[CKS_NAME_PATH_BYTES]; /* the one @to lies in */
};

/* ---- may the name be used? ---- */

/* @st lies at the first @len bytes of @path; @last: all of it. */
static int judge(const char *store, const char *path, const struct stat *st,
		 int len, bool last, bool replace, struct ckpt_err *err)
{
	const char *name = path + strlen("checkpoints/");
	int part_len = len - (int)strlen("checkpoints/");

	if (!last && S_ISDIR(st->st_mode))
		return 0;
	if (!S_ISDIR(st->st_mode) && !S_ISREG(st->st_mode))
		return ckb_err(err, CKPT_EEXIST, "'%s/%.*s' is neither a "
			       "checkpoint nor a run: '%s' cannot be saved "
			       "there", store, len, path, name);
	if (!last)
		return ckb_err(err, CKPT_EEXIST, "'%.*s' is a checkpoint, so "
			       "'%s' cannot be saved below it", part_len, name,
			       name);
	if (S_ISDIR(st->st_mode))
		return ckb_err(err, CKPT_EEXIST, "'%s' is a run, a folder of "
			       "checkpoints: give the checkpoint a name in it",
			       name);
	if (replace)
		return 0;
	return ckb_err(err, CKPT_EEXIST, "checkpoint '%s' exists already; "
		       "name another, or ask to replace it", name);
}

int cks_name_free(struct ckpt_store *s, const char *name, bool replace,
		  struct ckpt_err *err)
{
	char path[CKS_NAME_PATH_BYTES], part[CKS_NAME_PATH_BYTES];
	struct stat st;
	int rc;

	cks_name_path(path, name);
	/* each component in turn, so that no link is followed */
	for (size_t len = strlen("checkpoints/");; len++) {
		len += strcspn(path + len, "/");
		snprintf(part, sizeof(part), "%.*s", (int)len, path);
		rc = s->sys->fstatat(s->sys, s->dirfd, part, &st);
		if (rc == -ENOENT)
			return 0;
		if (rc < 0)
			return ckb_err_sys(err, -rc, "cannot look at '%s/%s'",
					   s->path, part);
		bool last = path[len] == '\0';

		rc = judge(s->path, path, &st, (int)len, last, replace, err);
		if (rc == 0 && last)
			return cks_name_untagged(s, name, err);
		if (rc < 0)
			return rc;
	}
}

/* ---- steps ---- */

static int put_manifest(const struct commit *c, const void *manifest,
			size_t len, struct ckpt_err *err)
{
	struct ckpt_store *s = c->st->s;
	int rc = ckb_write_file(s->sys, s->dirfd, c->from, manifest, len, err);

	if (rc == 0)
		rc = ckb_sync_dir(s->sys, s->dirfd, c->st->dir, err);
	return rc;
}

bool cks_same_file(const struct stat *a, const struct stat *b)
{
	return a->st_ino == b->st_ino && a->st_dev == b->st_dev;
}

/*
 * The link or rename failed; did it happen all the same? A request that a
 * network file system sent twice is answered EEXIST (link) or ENOENT (rename)
 * the second time. Ours is what lies there when it is the staged inode, or,
 * where inode numbers differ by name, when both count two links (a checkpoint
 * of another save counts one once that save is over).
 */
static bool is_ours(const struct commit *c, const struct stat *staged)
{
	struct ckpt_store *s = c->st->s;
	struct stat there, mine;

	if (s->sys->fstatat(s->sys, s->dirfd, c->to, &there) < 0)
		return false;
	if (cks_same_file(&there, staged))
		return true;
	return !c->replace && S_ISREG(there.st_mode) && there.st_nlink == 2 &&
	       there.st_size == staged->st_size &&
	       s->sys->fstatat(s->sys, s->dirfd, c->from, &mine) == 0 &&
	       mine.st_nlink == 2;
}

/* Why the name could not be had: what lies there says it best. */
static int explain(const struct commit *c, int sys_errno, struct ckpt_err *err)
{
	struct ckpt_store *s = c->st->s;
	struct ckpt_err mine = { 0 };
	struct stat st;

	if (cks_name_free(s, c->st->name, c->replace, &mine) == CKPT_EEXIST) {
		if (err)
			*err = mine;
		return CKPT_EEXIST;
	}
	if (sys_errno == ENOENT &&
	    s->sys->fstatat(s->sys, s->dirfd, c->from, &st) == -ENOENT)
		return ckb_err(err, CKPT_ECANCELED, "the save was abandoned by "
			       "another process: '%s/%s' is gone", s->path,
			       c->from);
	return ckb_err_sys(err, sys_errno, "cannot publish '%s/%s'", s->path,
			   c->to);
}

/* The commit point. */
static int publish(const struct commit *c, struct ckpt_err *err)
{
	struct ckpt_store *s = c->st->s;
	struct stat staged;
	int rc = s->sys->fstatat(s->sys, s->dirfd, c->from, &staged);

	if (rc < 0)
		return explain(c, -rc, err);
	rc = c->replace ? s->sys->renameat(s->sys, s->dirfd, c->from, s->dirfd,
					   c->to)
			: s->sys->linkat(s->sys, s->dirfd, c->from, s->dirfd,
					 c->to);
	if (rc == 0 || is_ours(c, &staged))
		return 0;
	return explain(c, -rc, err);
}

/* How much of the folder's path is there? */
static size_t runs_there(const struct commit *c)
{
	struct ckpt_store *s = c->st->s;
	char path[CKS_NAME_PATH_BYTES];
	struct stat st;
	char *slash;

	snprintf(path, sizeof(path), "%s", c->folder);
	while (s->sys->fstatat(s->sys, s->dirfd, path, &st) < 0 &&
	       (slash = strrchr(path, '/')) != NULL)
		*slash = '\0';
	return strlen(path);
}

/* Take back the run folders, past the first @there bytes, of a checkpoint that
 * did not come; one that holds anything stays. */
static void drop_runs(const struct commit *c, size_t there)
{
	struct ckpt_store *s = c->st->s;
	char path[CKS_NAME_PATH_BYTES];

	snprintf(path, sizeof(path), "%s", c->folder);
	while (strlen(path) > there &&
	       s->sys->unlinkat(s->sys, s->dirfd, path, AT_REMOVEDIR) >= 0)
		*strrchr(path, '/') = '\0';
}

static int make_run(const struct commit *c, struct ckpt_err *err)
{
	struct ckpt_err mine = { 0 };
	int rc = ckb_make_dirs(c->st->s->sys, c->st->s->dirfd, c->folder,
			       &mine);

	if (rc == 0)
		return 0;
	if (mine.sys_errno == ENOTDIR)
		return explain(c, ENOTDIR, err);
	if (err)
		*err = mine;
	return rc;
}

static int settle(const struct commit *c, struct ckpt_err *err)
{
	struct ckpt_store *s = c->st->s;
	struct ckpt_err mine = { 0 };

	if (ckb_sync_dir_surely(s->sys, s->dirfd, c->folder, &mine) == 0)
		return 0;
	c->st->keep = true;
	ckb_err(err, CKPT_EUNSURE, "checkpoint '%s' is published and visible, "
		"but may be gone after a power loss: %s", c->st->name,
		mine.message);
	if (err)
		err->sys_errno = mine.sys_errno;
	return CKPT_EUNSURE;
}

/* So that the caller may try again, replacing. */
static int drop_staged(const struct commit *c, int rc)
{
	struct ckpt_store *s = c->st->s;

	(void)s->sys->unlinkat(s->sys, s->dirfd, c->from, 0);
	return rc;
}

int cks_stage_commit(struct cks_stage *st, const void *manifest, size_t len,
		     bool replace, struct ckpt_err *err)
{
	struct commit c = { .st = st, .replace = replace };
	struct ckpt_store *s = st->s;

	cks_stage_path(c.from, st, "manifest");
	cks_name_path(c.to, st->name);
	snprintf(c.folder, sizeof(c.folder), "%.*s",
		 (int)(strrchr(c.to, '/') - c.to), c.to);
	int rc = cks_name_free(s, st->name, replace, err);

	if (rc < 0)
		return rc;
	size_t there = runs_there(&c);

	rc = put_manifest(&c, manifest, len, err);
	if (rc < 0)
		return drop_staged(&c, rc);
	/* another save, that failed, may take the run away in between */
	for (int tries = 0; tries < RUN_TRIES; tries++) {
		rc = make_run(&c, err);
		if (rc == 0)
			rc = publish(&c, err);
		if (rc != CKPT_ENOENT)
			break;
	}
	if (rc < 0) {
		drop_runs(&c, there);
		return drop_staged(&c, rc);
	}
	return settle(&c, err);
}

/* ---- a name that goes ---- */

static int lies_aside(const struct cks_stage *st, const char *aside,
		      const char *path, struct ckpt_err *err)
{
	return ckb_err(err, CKPT_EIO, "the checkpoint of '%s/%s' could not "
		       "surely be put back, and lies at '%s/%s', too: if it "
		       "has no name, link it there by hand", st->s->path, path,
		       st->s->path, aside);
}

/* What lies at @aside was not to leave @path: it gets its name back, and the
 * run, if that became empty and was removed. */
static bool put_back(struct cks_stage *st, const char *aside, const char *path)
{
	const struct ckb_sys *sys = st->s->sys;
	char folder[CKS_NAME_PATH_BYTES];
	int rc = -ENOENT;

	snprintf(folder, sizeof(folder), "%.*s",
		 (int)(strrchr(path, '/') - path), path);
	for (int try = 0; rc == -ENOENT && try < RUN_TRIES; try++) {
		rc = sys->linkat(sys, st->s->dirfd, aside, st->s->dirfd, path);
		if (rc == -ENOENT &&
		    ckb_make_dirs(sys, st->s->dirfd, folder, NULL) < 0)
			break;
	}
	if (rc < 0 || ckb_sync_dir(sys, st->s->dirfd, folder, NULL) < 0) {
		st->keep = true;
		return false;
	}
	(void)sys->unlinkat(sys, st->s->dirfd, aside, 0);
	return true;
}

/* @aside lay at @path, and leaves it if @stays is there without it: that may
 * be @path in another spelling, or be taken away just now, too. */
static int leave(struct cks_stage *st, const char *aside, const char *path,
		 const char *stays, struct ckpt_err *err)
{
	const struct ckb_sys *sys = st->s->sys;
	struct stat there;
	int rc = sys->fstatat(sys, st->s->dirfd, stays, &there);

	if (rc == 0) {
		(void)sys->unlinkat(sys, st->s->dirfd, aside, 0);
		return 0;
	}
	if (!put_back(st, aside, path))
		return lies_aside(st, aside, path, err);
	if (rc != -ENOENT)
		return ckb_err_sys(err, -rc, "cannot look at '%s/%s'",
				   st->s->path, stays);
	return ckb_err(err, CKPT_EEXIST, "'%s/%s' stays: '%s/%s' is the same "
		       "name, or is gone", st->s->path, path, st->s->path,
		       stays);
}

int cks_stage_take(struct cks_stage *st, const char *path,
		   const struct stat *it, const char *stays, const char *as,
		   struct ckpt_err *err)
{
	const struct ckb_sys *sys = st->s->sys;
	const char *store = st->s->path;
	char aside[CKS_STAGE_PATH_BYTES];
	struct stat was;
	int rc = sys->fstatat(sys, st->s->dirfd, path, &was);

	cks_stage_path(aside, st, as);
	if (rc < 0 || cks_same_file(&was, it)) {
		rc = sys->renameat(sys, st->s->dirfd, path, st->s->dirfd,
				   aside);
		int seen = sys->fstatat(sys, st->s->dirfd, aside, &was);

		/* sent twice, or its answer lost: what lies there decides */
		if (seen == 0 && cks_same_file(&was, it))
			return leave(st, aside, path, stays, err);
		if (rc < 0 && seen < 0)
			return sys->fstatat(sys, st->s->dirfd, path, &was) ==
				       -ENOENT ? 0 :
			       ckb_err_sys(err, -rc, "cannot move '%s/%s'",
					   store, path);
		if (!put_back(st, aside, path))
			return lies_aside(st, aside, path, err);
		if (seen < 0)
			return ckb_err_sys(err, -seen, "cannot look at '%s/%s'",
					   store, aside);
	}
	return ckb_err(err, CKPT_ESTALE, "'%s/%s' was replaced meanwhile",
		       store, path);
}
