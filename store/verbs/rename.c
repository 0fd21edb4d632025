/* SPDX-License-Identifier: Apache-2.0 */
/*
 * rename.c - give a checkpoint another name.
 *
 *	staging folder     made and synced: a save, as gc sees it (S8); then
 *	                   condemned/ is read, and must not name its packs
 *	runs of the name   made, each one's parent synced (S2)
 *	link(2)            the new name; it cannot replace anything
 *	its folder synced  both names hold after power loss
 *	old name taken     by rename(2) into staging, where it is seen whether
 *	                   it was this file's still; its folder synced
 *	index, empty runs  as when one is removed
 *
 * At every instant the manifest has a name, so whoever looks finds it; a walk
 * that passed the new folder too early and the old one too late may miss it,
 * which is why gc must see a save. Killed between the two it has two names; the
 * same call again finds that they are one, and finishes. One rename(2) would
 * not do: it may replace, and power loss may keep half of it (S4).
 *
 * Refuses runs: a folder that moves would take what is being saved in it.
 * No state; any thread; of two that take one name link(2) chooses.
 */
#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "base/bytes.h"
#include "base/log.h"
#include "catalog/manifest.h"
#include "format/name.h"
#include "verbs/stage.h"
#include "verbs/store_impl.h"
#include "verbs/uses.h"

#define RUN_TRIES 8

struct move {
	struct ckpt_store *s;
	struct cks_stage *st;
	struct stat it;         /* the file that is renamed */
	const char *from, *to;
	char from_path[CKS_NAME_PATH_BYTES], to_path[CKS_NAME_PATH_BYTES];
	char folder[CKS_NAME_PATH_BYTES];
};

static bool uuid_of(const struct move *m, const char *path, uint8_t out[24])
{
	struct ckq_manifest *k;

	if (ckq_manifest_open(m->s->sys, m->s->dirfd, path, &k, NULL) < 0)
		return false;
	memcpy(out, ckq_manifest_facts(k)->uuid, CKPT_UUID_BYTES);
	ckb_put_u64(out + CKPT_UUID_BYTES, ckq_manifest_facts(k)->generation);
	ckq_manifest_close(k);
	return true;
}

/* One checkpoint under both names: one file, or, in a copy of a store that did
 * not keep links, two that say the same uuid and generation. */
static bool same_checkpoint(const struct move *m)
{
	uint8_t x[CKPT_UUID_BYTES + 8], y[CKPT_UUID_BYTES + 8];

	struct stat a, b;
	const struct ckb_sys *sys = m->s->sys;

	if (sys->fstatat(sys, m->s->dirfd, m->from_path, &a) < 0 ||
	    sys->fstatat(sys, m->s->dirfd, m->to_path, &b) < 0 ||
	    !S_ISREG(a.st_mode) || !S_ISREG(b.st_mode))
		return false;
	if (cks_same_file(&a, &b))
		return true;
	return uuid_of(m, m->from_path, x) && uuid_of(m, m->to_path, y) &&
	       memcmp(x, y, sizeof(x)) == 0;
}

/* Look first: a refusal should leave no trace. */
static int check_names(const struct move *m, struct ckpt_err *err)
{
	return same_checkpoint(m) ? 0 : cks_name_free(m->s, m->to, false, err);
}

static int link_name(const struct move *m, struct ckpt_err *err)
{
	struct ckpt_store *s = m->s;
	int rc = ckb_make_dirs(s->sys, s->dirfd, m->folder, err);

	if (rc < 0)
		return rc;
	rc = s->sys->linkat(s->sys, s->dirfd, m->from_path, s->dirfd,
			    m->to_path);
	/* sent twice, or half of an earlier try */
	if (rc == 0 || same_checkpoint(m))
		return 0;
	if (rc == -EEXIST)
		return ckb_err(err, CKPT_EEXIST, "checkpoint '%s' exists "
			       "already", m->to);
	return ckb_err_sys(err, -rc, "cannot rename '%s/%s' to '%s'", s->path,
			   m->from_path, m->to_path);
}

/* Who empties the run meanwhile removes its folder: made again. */
static int make_name(const struct move *m, struct ckpt_err *err)
{
	struct ckpt_err mine = { 0 };
	int rc = CKPT_ENOENT;

	for (int try = 0; rc == CKPT_ENOENT && try < RUN_TRIES; try++)
		rc = link_name(m, &mine);
	if (rc == 0)
		rc = ckb_sync_dir(m->s->sys, m->s->dirfd, m->folder, &mine);
	if (mine.sys_errno == ENOTDIR)
		rc = ckb_err(&mine, CKPT_EEXIST, "a part of '%s' is a "
			     "checkpoint, so nothing can be below it", m->to);
	if (rc < 0 && err)
		*err = mine;
	return rc;
}

static int drop_name(const struct move *m, struct ckpt_err *err)
{
	struct ckpt_store *s = m->s;
	char folder[CKS_NAME_PATH_BYTES];
	struct ckpt_err mine = { 0 };
	struct stat st;
	int rc = cks_stage_take(m->st, m->from_path, &m->it, m->to_path,
				"from", &mine);

	/* the old name is a newer one's; this one has left it all the same */
	if (rc == CKPT_ESTALE && mine.sys_errno == 0 &&
	    s->sys->fstatat(s->sys, s->dirfd, m->to_path, &st) == 0 &&
	    cks_same_file(&st, &m->it))
		rc = 0;
	if (rc < 0) {
		if (err)
			*err = mine;
		return rc;
	}
	cks_name_folder(folder, m->from);
	if (ckb_sync_dir_surely(s->sys, s->dirfd, folder, &mine) == 0)
		return 0;
	return ckb_err(err, CKPT_EUNSURE, "checkpoint '%s' is renamed to '%s', "
		       "but may have both names after a power loss: %s",
		       m->from, m->to, mine.message);
}

/* Back to one name, the old one, while that is there. */
static void undo(const struct move *m)
{
	const struct ckb_sys *sys = m->s->sys;
	struct stat old, new;

	if (sys->fstatat(sys, m->s->dirfd, m->from_path, &old) == 0 &&
	    sys->fstatat(sys, m->s->dirfd, m->to_path, &new) == 0 &&
	    cks_same_file(&old, &new) &&
	    cks_stage_take(m->st, m->to_path, &new, m->from_path, "to",
			   NULL) == 0)
		cks_prune_runs(m->s, m->to);
}

static int move_name(const struct move *m, struct ckpt_err *err)
{
	bool linked_before = same_checkpoint(m);
	int rc = make_name(m, err);

	if (rc == 0)
		rc = drop_name(m, err);
	if (rc < 0 && rc != CKPT_EUNSURE && !linked_before)
		undo(m);
	return rc;
}

static int move(struct move *m, struct ckpt_err *err)
{
	struct ckpt_checkpoint *c = NULL;
	uint8_t attempt[16];
	bool is_run = false;
	int rc = cks_uuid_new(m->s->sys, attempt, err);

	/* S8: first seen by gc, then looked at */
	if (rc == 0)
		rc = cks_stage_open(m->s, m->to, attempt, &m->st, err);
	/* what is no checkpoint is refused by opening it */
	if (rc == 0) {
		rc = cks_name_stat(m->s, m->from, &is_run, &m->it, err);
		if (rc == 0 || rc == CKPT_ENOENT)
			rc = ckpt_checkpoint_open(m->s, m->from, &c, err);
	}
	if (rc == 0)
		rc = check_names(m, err);
	if (rc == 0)
		rc = cks_stage_keeps(m->st, c, err);
	if (rc == 0)
		rc = move_name(m, err);
	cks_stage_close(m->st);
	ckpt_checkpoint_close(c);
	return rc;
}

int ckpt_store_rename(struct ckpt_store *s, const char *from, const char *to,
		      struct ckpt_err *err)
{
	struct move m = { .s = s, .from = from, .to = to };

	CKB_REQUIRE(s && from && to);
	int rc = cks_store_writable(s, err);

	if (rc == 0)
		rc = ckf_checkpoint_name(from, err);
	if (rc == 0)
		rc = ckf_checkpoint_name(to, err);
	if (rc < 0)
		return rc;
	if (strcmp(from, to) == 0)
		return ckb_err(err, CKPT_EEXIST, "checkpoint '%s' has that "
			       "name already", to);
	cks_name_path(m.from_path, from);
	cks_name_path(m.to_path, to);
	cks_name_folder(m.folder, to);
	rc = move(&m, err);
	if (rc < 0 && rc != CKPT_EUNSURE)
		return rc;
	cks_index_moved(s, from, to);
	cks_prune_runs(s, from);
	return rc;
}
