/* SPDX-License-Identifier: Apache-2.0 */
/*
 * remove.c - remove a checkpoint: its manifest, and nothing else.
 *
 *	tags on it      refused, or removed first
 *	unlink(2)       the checkpoint is gone
 *	folder synced   ... and stays so after power loss
 *	index           told; what it counts stays right
 *	empty runs      removed, each one's parent synced
 *
 * Packs are not touched: who reads the checkpoint goes on, and gc finds what
 * nobody names any more. A damaged one can be removed like another.
 *
 * No state; any thread.
 */
#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "base/buf.h"
#include "base/log.h"
#include "format/name.h"
#include "verbs/store_impl.h"
#include "verbs/tag.h"
#include "verbs/uses.h"

void cks_name_folder(char dst[CKS_NAME_PATH_BYTES], const char *name)
{
	cks_name_path(dst, name);
	*strrchr(dst, '/') = '\0';
}

void cks_prune_runs(struct ckpt_store *s, const char *name)
{
	char path[CKS_NAME_PATH_BYTES];
	struct ckpt_err err = { 0 };

	cks_name_folder(path, name);
	for (char *slash; (slash = strrchr(path, '/')); ) {
		if (s->sys->unlinkat(s->sys, s->dirfd, path, AT_REMOVEDIR) < 0)
			return; /* not empty, or another was faster */
		*slash = '\0';
		if (ckb_sync_dir(s->sys, s->dirfd, path, &err) < 0) {
			ckb_log(CKB_WARN, "store '%s': %s", s->path,
				err.message);
			return;
		}
	}
}

/* ---- tags ---- */

static int tags_allow(struct ckpt_store *s, const char *name,
		      const uint8_t *uuid, bool force, struct ckb_buf *out,
		      struct ckpt_err *err)
{
	if (!force)
		return cks_tags_none(s, name, uuid, err);
	return cks_tags_on(s, name, uuid, out, err);
}

/* Behind the removal: a tag of nothing harms nobody, one that is gone while its
 * checkpoint stays has left it without protection. */
static void drop_tags(struct ckpt_store *s, const struct ckb_buf *tags)
{
	struct ckpt_err err = { 0 };

	for (size_t at = 0; at < tags->len;) {
		const char *tag = (char *)tags->data + at;
		int rc = ckpt_tag_remove(s, tag, &err);

		at += strlen(tag) + 1;
		if (rc < 0 && rc != CKPT_ENOENT)
			ckb_log(CKB_WARN, "store '%s': tag '%s' is left, of a "
				"checkpoint that is gone: %s", s->path, tag,
				err.message);
	}
}

/* ---- the checkpoint ---- */

static int must_be(struct ckpt_store *s, const char *name,
		   struct ckpt_err *err)
{
	bool is_run = false;
	int rc = ckf_checkpoint_name(name, err);

	if (rc == 0)
		rc = cks_name_stat(s, name, &is_run, NULL, err);
	if (rc == CKPT_ENOENT)
		return ckb_err(err, rc, "there is no checkpoint '%s'", name);
	if (rc == 0 && is_run)
		return ckb_err(err, CKPT_EINVAL, "'%s' is a run, not a "
			       "checkpoint", name);
	return rc;
}

/* The only step that counts. */
static int unlink_name(struct ckpt_store *s, const char *name,
		       struct ckpt_err *err)
{
	char path[CKS_NAME_PATH_BYTES];
	struct ckpt_err mine = { 0 };

	cks_name_path(path, name);
	int rc = s->sys->unlinkat(s->sys, s->dirfd, path, 0);

	if (rc == -ENOENT)
		return ckb_err(err, CKPT_ENOENT, "there is no checkpoint '%s'",
			       name);
	if (rc < 0)
		return ckb_err_sys(err, -rc, "cannot remove '%s/%s'", s->path,
				   path);
	cks_name_folder(path, name);
	if (ckb_sync_dir_surely(s->sys, s->dirfd, path, &mine) == 0)
		return 0;
	return ckb_err(err, CKPT_EUNSURE, "checkpoint '%s' is removed, but may "
		       "be back after a power loss: %s", name, mine.message);
}

int ckpt_store_remove(struct ckpt_store *s, const char *name, bool force,
		      struct ckpt_err *err)
{
	CKB_BUF struct ckb_buf tags = { 0 };
	CKB_FREE struct ckq_use *uses = NULL;
	struct ckpt_err why = { 0 };
	struct ckpt_checkpoint *c = NULL;
	size_t count = CKQ_USES_UNKNOWN;
	uint8_t uuid[CKPT_UUID_BYTES];
	uint64_t stored;
	bool readable = false;

	CKB_REQUIRE(s && name);
	int rc = cks_store_writable(s, err);

	if (rc == 0)
		rc = must_be(s, name, err);
	if (rc < 0)
		return rc;
	/* before it is gone: what it used, for the index */
	rc = ckpt_checkpoint_open(s, name, &c, &why);
	if (rc == 0) {
		readable = true;
		memcpy(uuid, ckpt_checkpoint_info(c)->uuid, sizeof(uuid));
		if (cks_uses(c, &uses, &count, &stored, NULL) < 0)
			count = CKQ_USES_UNKNOWN;
	}
	ckpt_checkpoint_close(c);
	/* what its tags are may be known in a moment */
	if (rc < 0 && rc != CKPT_ECORRUPT && rc != CKPT_EVERSION && !force) {
		if (err)
			*err = why;
		return rc;
	}
	rc = tags_allow(s, name, readable ? uuid : NULL, force, &tags, err);
	if (rc == 0)
		rc = unlink_name(s, name, err);
	if (rc < 0 && rc != CKPT_EUNSURE)
		return rc;
	drop_tags(s, &tags);
	cks_index_forget(s, name, uses, count);
	cks_prune_runs(s, name);
	return rc;
}
