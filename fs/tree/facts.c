/* SPDX-License-Identifier: Apache-2.0 */
/*
 * facts.c - facts of a checkpoint that a run shows, and what its links mean.
 *
 * Wrong bytes, or those of a newer format, are a fact of a checkpoint: no link
 * means it. What cannot be read now (permission, I/O, descriptors) is none: it
 * may be the very one a link means, so the link fails with that cause instead
 * of moving to another. Run.c keeps facts and answers. No state; any thread.
 */
#include <stdio.h>
#include <string.h>

#include "base/limits.h"
#include "catalog/manifest.h"
#include "tree/internal.h"
#include "verbs/store.h"

static int count_item(void *ctx, uint64_t id, const char *name,
		      enum ckpt_item_kind kind, const char *separator,
		      const char *metadata)
{
	uint32_t *count = ctx;

	(void)id;
	(void)name;
	(void)separator;
	(void)metadata;
	*count += ckv_item_shown(kind);
	return 0;
}

static int open_manifest(struct ckv_tree *t, const char *name,
			 struct ckq_manifest **out, struct ckpt_err *err)
{
	char path[CKB_NAME_MAX + 16];

	snprintf(path, sizeof(path), "checkpoints/%s", name);
	return ckq_manifest_open(cks_store_sys(t->store),
				 cks_store_dirfd(t->store), path, out, err);
}

static int read_facts(struct ckv_tree *t, const char *name,
		      struct ckv_facts *out, struct ckpt_err *err)
{
	struct ckq_manifest *m = NULL;
	int rc = open_manifest(t, name, &m, err);

	if (rc < 0 && ckv_images_spare(t, err))
		rc = open_manifest(t, name, &m, err);
	if (rc < 0)
		return rc;
	const struct ckq_facts *f = ckq_manifest_facts(m);

	memcpy(out->uuid, f->uuid, sizeof(out->uuid));
	out->generation = f->generation;
	out->has_step = f->has_step;
	out->step = f->step;
	out->seq = f->seq;
	out->created_ns = f->created_ns;
	rc = ckq_manifest_items(m, count_item, &out->item_count, err);
	ckq_manifest_close(m);
	return rc;
}

int ckv_facts_read(struct ckv_tree *t, const char *name,
		   const struct ckv_id *id, struct ckv_facts *out,
		   struct ckpt_err *why, struct ckpt_err *err)
{
	const struct ckb_sys *sys = cks_store_sys(t->store);
	struct ckpt_err mine = { 0 };
	int rc;

	*out = (struct ckv_facts){ 0 };
	rc = read_facts(t, name, out, &mine);
	if (rc == 0 || rc == CKPT_ENOENT)
		return rc;
	ckb_err_prefix(&mine, rc, "checkpoint '%s'", name);
	if (rc != CKPT_ECORRUPT && rc != CKPT_EVERSION) {
		if (err)
			*err = mine;
		return rc;
	}
	*out = (struct ckv_facts){ .damaged = true,
				   .read_ns = sys->now_ns(sys),
				   .created_ns = id->mtime_ns };
	*why = mine;
	return 0;
}

/* ---- latest, newest ---- */

static bool better(bool latest, const struct ckv_facts *f,
		   const struct ckv_facts *best)
{
	if (latest && f->step != best->step)
		return f->step > best->step;
	return f->seq > best->seq;
}

/* *@out_all: none was damaged or gone, so the answer lasts as the run does. */
static int pick(struct ckv_tree *t, struct ckv_run *r, bool latest,
		uint32_t *out, bool *out_all, struct ckpt_err *err)
{
	struct ckv_facts f, best = { 0 };

	*out = UINT32_MAX;
	*out_all = true;
	for (uint32_t i = 0; i < r->count; i++) {
		if (r->entry[i].is_run)
			continue;
		int rc = ckv_run_facts(t, r, i, &f, err);

		if (rc < 0 && rc != CKPT_ENOENT)
			return rc;
		if (rc < 0 || f.damaged) {
			*out_all = false;
			continue;
		}
		if ((f.has_step || !latest) &&
		    (*out == UINT32_MAX || better(latest, &f, &best))) {
			*out = i;
			best = f;
		}
	}
	return 0;
}

/* Is the answer kept in @p still right? What it names may have been replaced
 * in place, which no folder shows. */
static bool still(struct ckv_tree *t, struct ckv_run *r,
		  const struct ckv_pick *p, uint32_t *out)
{
	struct stat st;
	bool is_run;

	pthread_mutex_lock(&t->lock);
	bool known = p->known;

	*out = p->entry;
	pthread_mutex_unlock(&t->lock);
	if (!known || *out == UINT32_MAX)
		return known;
	CKB_FREE char *full = ckv_join(r->name, r->entry[*out].name);

	if (!full || cks_name_stat(t->store, full, &is_run, &st, NULL) < 0 ||
	    is_run)
		return false;
	struct ckv_id id = ckv_id(&st);

	pthread_mutex_lock(&t->lock);
	known = ckv_id_same(&id, &r->entry[*out].id);
	if (!known)
		for (uint32_t i = 0; i < r->count; i++)
			r->entry[i].checked = false;
	pthread_mutex_unlock(&t->lock);
	return known;
}

static int target(struct ckv_tree *t, struct ckv_run *r, bool latest,
		  struct ckb_buf *out, struct ckpt_err *err)
{
	struct ckv_pick *p = latest ? &r->latest : &r->newest;
	uint32_t entry;
	bool all;

	if (!still(t, r, p, &entry)) {
		int rc = pick(t, r, latest, &entry, &all, err);

		if (rc < 0)
			return rc;
		pthread_mutex_lock(&t->lock);
		*p = (struct ckv_pick){ .known = all, .entry = entry };
		pthread_mutex_unlock(&t->lock);
	}
	if (entry == UINT32_MAX)
		return CKPT_ENOENT;
	ckb_buf_puts(out, r->entry[entry].name);
	return out->failed ? ckb_err_nomem(err) : 0;
}

int ckv_link_target(struct ckv_tree *t, const char *run, const char *link,
		    struct ckb_buf *out, struct ckpt_err *err)
{
	struct ckv_run *r = NULL;
	int rc = ckv_run_get(t, run, &r, err);

	if (rc < 0)
		return rc;
	rc = target(t, r, strcmp(link, "latest") == 0, out, err);
	ckv_run_put(t, r);
	return rc;
}
