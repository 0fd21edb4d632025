/* SPDX-License-Identifier: Apache-2.0 */
/*
 * tag.c - tags: names that people give to checkpoints, and may give anew.
 *
 * A tag is a small file: the checkpoint's uuid and, so that it is found
 * quickly, the name it had. The uuid decides: a checkpoint that was renamed
 * keeps its tags; another one under its old name does not get them. Replaced
 * whole, by rename(2), and synced. What is no tag there is passed over.
 *
 * No state; any thread; of two that set one tag at once one wins.
 */
#include "verbs/tag.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/limits.h"
#include "base/log.h"
#include "base/text.h"
#include "catalog/manifest.h"
#include "format/name.h"
#include "verbs/store_impl.h"

#define TAG_FILE_MAX (CKB_UUID_TEXT_BYTES + CKB_NAME_MAX + 1)
#define TAG_PATH_BYTES (sizeof("tags/") + CKB_NAME_COMPONENT_MAX)

static int tag_name(const char *tag, struct ckpt_err *err)
{
	struct ckpt_err mine = { 0 };

	if (strchr(tag, '/'))
		return ckb_err(err, CKPT_EINVAL, "'%s' is no tag: it has a "
			       "'/'", tag);
	if (ckf_checkpoint_name(tag, &mine) < 0)
		return ckb_err(err, CKPT_EINVAL, "'%s' is no tag: a tag is "
			       "like one component of a checkpoint's name (%s)",
			       tag, mine.message);
	return 0;
}

static void tag_path(char dst[TAG_PATH_BYTES], const char *tag)
{
	snprintf(dst, TAG_PATH_BYTES, "tags/%s", tag);
}

struct tag {
	uint8_t uuid[CKPT_UUID_BYTES];
	char checkpoint[CKB_NAME_MAX + 1]; /* its name when it was tagged */
};

/* "UUID NAME\n" */
static bool parse(const char *text, size_t len, struct tag *out)
{
	size_t uuid_len = CKB_UUID_TEXT_BYTES - 1;
	char uuid[CKB_UUID_TEXT_BYTES];

	if (len < uuid_len + 3 || len > TAG_FILE_MAX ||
	    text[uuid_len] != ' ' || text[len - 1] != '\n' ||
	    memchr(text, '\0', len))
		return false;
	memcpy(uuid, text, uuid_len);
	uuid[uuid_len] = '\0';
	size_t name_len = len - uuid_len - 2;

	memcpy(out->checkpoint, text + uuid_len + 1, name_len);
	out->checkpoint[name_len] = '\0';
	return ckb_uuid_parse(out->uuid, uuid) &&
	       ckf_checkpoint_name(out->checkpoint, NULL) == 0;
}

static int tag_read(struct ckpt_store *s, const char *tag, struct tag *out,
		    struct ckpt_err *err)
{
	CKB_BUF struct ckb_buf text = { 0 };
	char path[TAG_PATH_BYTES];
	struct ckpt_err mine = { 0 };

	tag_path(path, tag);
	int rc = ckb_read_file(s->sys, s->dirfd, path, TAG_FILE_MAX, &text,
			       &mine);

	if (rc == CKPT_ENOENT)
		return ckb_err(err, rc, "there is no tag '%s' in store '%s'",
			       tag, s->path);
	if (rc == CKPT_ELIMIT || rc == CKPT_EINVAL ||
	    (rc == 0 && !parse(text.len ? (char *)text.data : "", text.len,
			       out)))
		return ckb_err(err, CKPT_ECORRUPT, "tag '%s' is damaged: "
			       "'%s/%s' does not hold a uuid and a name; set "
			       "it again", tag, s->path, path);
	if (rc < 0 && err)
		*err = mine;
	return rc;
}

/* ---- which checkpoint ---- */

/* The uuid of checkpoint @name, from its manifest. */
static int uuid_of(struct ckpt_store *s, const char *name, uint8_t out[16],
		   struct ckpt_err *err)
{
	char path[CKS_NAME_PATH_BYTES];
	struct ckpt_err mine = { 0 };
	struct ckq_manifest *m;
	bool is_run = false;
	int rc = cks_name_stat(s, name, &is_run, NULL, err);

	if (rc == CKPT_ENOENT || (rc == 0 && is_run))
		return ckb_err(err, CKPT_ENOENT, rc == 0
			       ? "'%s' is a run, not a checkpoint"
			       : "there is no checkpoint '%s'", name);
	if (rc < 0)
		return rc;
	cks_name_path(path, name);
	rc = ckq_manifest_open(s->sys, s->dirfd, path, &m, &mine);
	if (rc < 0) {
		if (err)
			*err = mine;
		return ckb_err_prefix(err, rc, "checkpoint '%s'", name);
	}
	memcpy(out, ckq_manifest_facts(m)->uuid, CKPT_UUID_BYTES);
	ckq_manifest_close(m);
	return 0;
}

struct search {
	const uint8_t *uuid;
	char *found;
};

static int match(void *ctx, const struct ckpt_entry *e)
{
	struct search *f = ctx;

	if (e->damage || memcmp(e->uuid, f->uuid, CKPT_UUID_BYTES) != 0)
		return 0;
	f->found = strdup(e->name);
	return 1;
}

/* 0 and NULL: it is gone. What has its name and cannot be read may be it: a
 * tag is not lost with that. */
static int find(struct ckpt_store *s, const struct tag *t, char **out,
		struct ckpt_err *err)
{
	struct search f = { .uuid = t->uuid };
	uint8_t uuid[CKPT_UUID_BYTES];

	*out = NULL;
	int there = uuid_of(s, t->checkpoint, uuid, NULL);

	if (there == 0 && memcmp(uuid, t->uuid, CKPT_UUID_BYTES) == 0) {
		*out = strdup(t->checkpoint);
		return *out ? 0 : ckb_err_nomem(err);
	}
	int rc = ckpt_store_entries(s, NULL, match, &f, err);
	bool unread = there < 0 && there != CKPT_ENOENT;

	if (rc < 0)
		return rc;
	if (rc == 0 && unread)
		f.found = strdup(t->checkpoint);
	*out = f.found;
	return (rc == 1 || unread) && !f.found ? ckb_err_nomem(err) : 0;
}

int ckpt_tag_get(struct ckpt_store *s, const char *tag, char **out,
		 struct ckpt_err *err)
{
	struct tag t;

	CKB_REQUIRE(s && tag && out);
	*out = NULL;
	int rc = tag_name(tag, err);

	if (rc == 0)
		rc = tag_read(s, tag, &t, err);
	if (rc == 0)
		rc = find(s, &t, out, err);
	if (rc == 0 && !*out)
		return ckb_err(err, CKPT_ENOENT, "the checkpoint that tag '%s' "
			       "named is gone; it was '%s'", tag,
			       t.checkpoint);
	return rc;
}

/* ---- setting ---- */

static int write_tag(struct ckpt_store *s, const char *path, const char *text,
		     size_t len, struct ckpt_err *err)
{
	uint8_t random[8];
	char hex[2 * sizeof(random) + 1], temp[TAG_PATH_BYTES];
	int rc = s->sys->random(s->sys, random, sizeof(random));

	if (rc < 0)
		return ckb_err_sys(err, -rc, "no random bytes");
	ckb_hex(hex, random, sizeof(random));
	snprintf(temp, sizeof(temp), "tags/.new-%s", hex);
	rc = ckb_make_dirs(s->sys, s->dirfd, "tags", err);
	if (rc == 0)
		rc = ckb_write_file(s->sys, s->dirfd, temp, text, len, err);
	if (rc < 0) {
		(void)s->sys->unlinkat(s->sys, s->dirfd, temp, 0);
		return rc;
	}
	rc = s->sys->renameat(s->sys, s->dirfd, temp, s->dirfd, path);
	if (rc < 0) {
		(void)s->sys->unlinkat(s->sys, s->dirfd, temp, 0);
		return ckb_err_sys(err, -rc, "cannot set '%s/%s'", s->path,
				   path);
	}
	return ckb_sync_dir(s->sys, s->dirfd, "tags", err);
}

int ckpt_tag_set(struct ckpt_store *s, const char *tag, const char *checkpoint,
		 struct ckpt_err *err)
{
	CKB_BUF struct ckb_buf text = { 0 };
	char hex[CKB_UUID_TEXT_BYTES], path[TAG_PATH_BYTES];
	uint8_t uuid[CKPT_UUID_BYTES];

	CKB_REQUIRE(s && tag && checkpoint);
	int rc = tag_name(tag, err);

	if (rc == 0)
		rc = cks_store_writable(s, err);
	if (rc == 0)
		rc = ckf_checkpoint_name(checkpoint, err);
	if (rc == 0)
		rc = uuid_of(s, checkpoint, uuid, err);
	if (rc < 0)
		return rc;
	ckb_uuid_text(hex, uuid);
	ckb_buf_printf(&text, "%s %s\n", hex, checkpoint);
	if (text.failed)
		return ckb_err_nomem(err);
	tag_path(path, tag);
	return write_tag(s, path, (char *)text.data, text.len, err);
}

int ckpt_tag_remove(struct ckpt_store *s, const char *tag,
		    struct ckpt_err *err)
{
	char path[TAG_PATH_BYTES];

	CKB_REQUIRE(s && tag);
	int rc = tag_name(tag, err);

	if (rc == 0)
		rc = cks_store_writable(s, err);
	if (rc < 0)
		return rc;
	tag_path(path, tag);
	rc = s->sys->unlinkat(s->sys, s->dirfd, path, 0);
	if (rc == -ENOENT)
		return ckb_err(err, CKPT_ENOENT, "there is no tag '%s' in "
			       "store '%s'", tag, s->path);
	if (rc < 0)
		return ckb_err_sys(err, -rc, "cannot remove '%s/%s'", s->path,
				   path);
	return ckb_sync_dir(s->sys, s->dirfd, "tags", err);
}

/* ---- all of them ---- */

struct names {
	char **list;
	size_t count, cap;
};

static void names_fini(struct names *n)
{
	for (size_t i = 0; i < n->count; i++)
		free(n->list[i]);
	free(n->list);
}

static int collect(void *ctx, const char *name, unsigned char type)
{
	struct names *n = ctx;

	(void)type;
	if (tag_name(name, NULL) < 0) /* one that is being set, too */
		return 0;
	if (!ckb_room(&n->list, n->count, &n->cap, sizeof(*n->list)))
		return -ENOMEM;
	n->list[n->count] = strdup(name);
	return n->list[n->count] ? (n->count++, 0) : -ENOMEM;
}

static int by_bytes(const void *a, const void *b)
{
	return strcmp(*(char *const *)a, *(char *const *)b);
}

static int tags_names(struct ckpt_store *s, struct names *n,
		      struct ckpt_err *err)
{
	int rc = s->sys->list(s->sys, s->dirfd, "tags", collect, n);

	if (rc == -ENOENT) /* a copy without empty folders */
		return 0;
	if (rc == -ENOMEM)
		return ckb_err_nomem(err);
	if (rc < 0)
		return ckb_err_sys(err, -rc, "cannot read folder '%s/tags'",
				   s->path);
	if (n->count > 0)
		qsort(n->list, n->count, sizeof(*n->list), by_bytes);
	return 0;
}

/* 1: pass over it. */
static int tag_read_or_skip(struct ckpt_store *s, const char *tag,
			    struct tag *out, struct ckpt_err *err)
{
	struct ckpt_err why = { 0 };
	int rc = tag_read(s, tag, out, &why);

	if (rc == CKPT_ENOENT)
		return 1;
	if (rc == CKPT_ECORRUPT) {
		ckb_log(CKB_WARN, "store '%s': %s", s->path, why.message);
		return 1;
	}
	if (rc < 0 && err)
		*err = why;
	return rc;
}

int ckpt_tag_list(struct ckpt_store *s, ckpt_tag_fn fn, void *ctx,
		  struct ckpt_err *err)
{
	CKB_CLEANUP(names_fini) struct names n = { 0 };

	CKB_REQUIRE(s && fn);
	int rc = tags_names(s, &n, err);

	for (size_t i = 0; rc == 0 && i < n.count; i++) {
		CKB_FREE char *checkpoint = NULL;
		struct tag t;

		rc = tag_read_or_skip(s, n.list[i], &t, err);
		if (rc == 1) {
			rc = 0;
			continue;
		}
		if (rc == 0)
			rc = find(s, &t, &checkpoint, err);
		if (rc < 0)
			return rc;
		struct ckpt_tag out = { .name = n.list[i],
					.checkpoint = checkpoint };

		memcpy(out.uuid, t.uuid, sizeof(out.uuid));
		rc = fn(ctx, &out);
	}
	return rc;
}

int cks_tags_on(struct ckpt_store *s, const char *name, const uint8_t *uuid,
		struct ckb_buf *out, struct ckpt_err *err)
{
	CKB_CLEANUP(names_fini) struct names n = { 0 };
	int rc = tags_names(s, &n, err);

	for (size_t i = 0; rc == 0 && i < n.count; i++) {
		struct tag t;

		rc = tag_read_or_skip(s, n.list[i], &t, err);
		if (rc == 0 && (uuid ? memcmp(uuid, t.uuid,
					      CKPT_UUID_BYTES) == 0
				     : strcmp(name, t.checkpoint) == 0))
			ckb_buf_put(out, n.list[i], strlen(n.list[i]) + 1);
		rc = rc < 0 ? rc : 0;
	}
	return rc == 0 && out->failed ? ckb_err_nomem(err) : rc;
}

/* The first tag, if any, whose checkpoint is not found now: one that cannot be
 * read may be it. */
static int tags_lost(struct ckpt_store *s, struct ckb_buf *out,
		     struct ckpt_err *err)
{
	CKB_CLEANUP(names_fini) struct names n = { 0 };
	int rc = tags_names(s, &n, err);

	for (size_t i = 0; rc == 0 && out->len == 0 && i < n.count; i++) {
		CKB_FREE char *found = NULL;
		struct tag t;

		rc = tag_read_or_skip(s, n.list[i], &t, err);
		if (rc == 0 && find(s, &t, &found, NULL) == CKPT_ENOMEM)
			rc = ckb_err_nomem(err);
		else if (rc == 0 && !found)
			ckb_buf_put(out, n.list[i], strlen(n.list[i]) + 1);
		rc = rc < 0 ? rc : 0;
	}
	return rc == 0 && out->failed ? ckb_err_nomem(err) : rc;
}

int cks_tags_none(struct ckpt_store *s, const char *name, const uint8_t *uuid,
		  struct ckpt_err *err)
{
	CKB_BUF struct ckb_buf tags = { 0 };
	int rc = cks_tags_on(s, name, uuid, &tags, err);

	if (rc == 0 && tags.len > 0)
		return ckb_err(err, CKPT_EBUSY, "checkpoint '%s' has the tag "
			       "'%s', which protects it; ckptfs tag -d takes "
			       "that away", name, (char *)tags.data);
	if (rc == 0 && !uuid)
		rc = tags_lost(s, &tags, err);
	if (rc == 0 && tags.len > 0)
		return ckb_err(err, CKPT_EBUSY, "checkpoint '%s' is damaged, "
			       "and may be the one with the tag '%s', which "
			       "protects it; ckptfs tag -d takes that away",
			       name, (char *)tags.data);
	return rc;
}

int cks_name_untagged(struct ckpt_store *s, const char *name,
		      struct ckpt_err *err)
{
	uint8_t uuid[CKPT_UUID_BYTES];
	struct ckpt_err why = { 0 };
	int rc = uuid_of(s, name, uuid, &why);

	if (rc == CKPT_ENOENT)
		return 0;
	if (rc == 0 || rc == CKPT_ECORRUPT || rc == CKPT_EVERSION)
		return cks_tags_none(s, name, rc == 0 ? uuid : NULL, err);
	if (err)
		*err = why;
	return rc;
}
