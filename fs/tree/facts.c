/* SPDX-License-Identifier: Apache-2.0 */
/*
 * facts.c - the facts of checkpoints that a run shows: uuid, step, order.
 *
 * Read from the manifest once and kept, keyed by name and by the manifest
 * file's identity (inode, size, time), so a replaced checkpoint is noticed. A
 * damaged manifest is a fact too, and kept: its name is still listed, and the
 * log says once what is wrong. What could not be read for another reason may
 * be read the next time. The cache holds a few hundred bytes a checkpoint and
 * begins anew at KNOWN_MAX, as names long gone stay in it (S9);
 * tree->lock guards it, and is not held while a manifest is read.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/hash.h"
#include "base/limits.h"
#include "base/log.h"
#include "catalog/manifest.h"
#include "tree/internal.h"
#include "verbs/store.h"

#define KNOWN_MAX (1u << 17)

struct ckv_known {
	struct ckv_known *next;
	struct stat st;
	struct ckv_facts facts;
	char name[];
};

static struct ckv_known **bucket(struct ckv_tree *t, const char *name)
{
	return &t->known[ckb_xxh3(name, strlen(name)) % t->known_cap];
}

/* Under tree->lock. */
static struct ckv_known *find(struct ckv_tree *t, const char *name)
{
	struct ckv_known *k = t->known_cap ? *bucket(t, name) : NULL;

	while (k && strcmp(k->name, name) != 0)
		k = k->next;
	return k;
}

/* Under tree->lock. */
static bool grow(struct ckv_tree *t)
{
	struct ckv_known **old = t->known;
	size_t old_cap = t->known_cap;

	if (t->known_count < t->known_cap)
		return true;
	t->known_cap = old_cap ? old_cap * 2 : 64;
	t->known = calloc(t->known_cap, sizeof(*t->known));
	if (!t->known) {
		t->known = old;
		t->known_cap = old_cap;
		return false;
	}
	for (size_t i = 0; i < old_cap; i++)
		while (old[i]) {
			struct ckv_known *k = old[i];

			old[i] = k->next;
			k->next = *bucket(t, k->name);
			*bucket(t, k->name) = k;
		}
	free(old);
	return true;
}

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

static int open_facts(struct ckv_tree *t, const char *name,
		      struct ckv_facts *out, struct ckpt_err *err)
{
	char path[CKB_NAME_MAX + 16];
	struct ckq_manifest *m = NULL;
	int rc;

	snprintf(path, sizeof(path), "checkpoints/%s", name);
	rc = ckq_manifest_open(cks_store_sys(t->store),
			       cks_store_dirfd(t->store), path, &m, err);
	if (rc < 0)
		return rc;
	const struct ckq_facts *f = ckq_manifest_facts(m);

	memcpy(out->uuid, f->uuid, sizeof(out->uuid));
	out->has_step = f->has_step;
	out->step = f->step;
	out->seq = f->seq;
	out->created_ns = f->created_ns;
	rc = ckq_manifest_items(m, count_item, &out->item_count, err);
	ckq_manifest_close(m);
	return rc;
}

/* *@out_keep: the next time it would be the same. */
static int read_facts(struct ckv_tree *t, const char *name,
		      const struct stat *st, struct ckv_facts *out,
		      bool *out_keep, struct ckpt_err *err)
{
	struct ckpt_err mine = { 0 };
	int rc;

	*out = (struct ckv_facts){ 0 };
	rc = open_facts(t, name, out, &mine);
	*out_keep = rc == 0 || rc == CKPT_ECORRUPT || rc == CKPT_EVERSION;
	if (rc == CKPT_ENOENT)
		return rc;
	if (rc == CKPT_ENOMEM)
		return ckb_err_nomem(err);
	if (rc < 0) {
		ckb_log(CKB_ERROR, "checkpoint '%s': %s", name, mine.message);
		*out = (struct ckv_facts){ .damaged = true,
					   .created_ns = ckv_mtime_ns(st) };
	}
	return 0;
}

/* Under tree->lock: forget them all. */
static void forget(struct ckv_tree *t)
{
	for (size_t i = 0; i < t->known_cap; i++)
		while (t->known[i]) {
			struct ckv_known *k = t->known[i];

			t->known[i] = k->next;
			free(k);
		}
	free(t->known);
	t->known = NULL;
	t->known_count = t->known_cap = 0;
}

static int keep(struct ckv_tree *t, const char *name, const struct stat *st,
		const struct ckv_facts *facts, struct ckpt_err *err)
{
	size_t len = strlen(name) + 1;

	pthread_mutex_lock(&t->lock);
	struct ckv_known *k = find(t, name);

	if (!k && t->known_count >= KNOWN_MAX)
		forget(t);
	if (!k && grow(t)) {
		k = malloc(sizeof(*k) + len);
		if (k) {
			memcpy(k->name, name, len);
			k->next = *bucket(t, name);
			*bucket(t, name) = k;
			t->known_count++;
		}
	}
	if (k) {
		k->st = *st;
		k->facts = *facts;
	}
	pthread_mutex_unlock(&t->lock);
	return k ? 0 : ckb_err_nomem(err);
}

int ckv_facts(struct ckv_tree *t, const char *name, const struct stat *st,
	      struct ckv_facts *out, struct ckpt_err *err)
{
	bool hit, worth;

	pthread_mutex_lock(&t->lock);
	const struct ckv_known *k = find(t, name);

	hit = k && ckv_same_file(&k->st, st);
	if (hit)
		*out = k->facts;
	pthread_mutex_unlock(&t->lock);
	if (hit)
		return 0;
	int rc = read_facts(t, name, st, out, &worth, err);

	return rc == 0 && worth ? keep(t, name, st, out, err) : rc;
}

void ckv_facts_fini(struct ckv_tree *t)
{
	forget(t);
}

/* ---- latest, newest ---- */

struct pick {
	struct ckv_tree *tree;
	const char *run;
	bool latest;
	char *best;
	struct ckv_facts facts;
	struct ckpt_err *err;
};

static bool better(const struct pick *p, const struct ckv_facts *f)
{
	if (f->damaged || (p->latest && !f->has_step))
		return false;
	if (!p->best)
		return true;
	if (p->latest && f->step != p->facts.step)
		return f->step > p->facts.step;
	return f->seq > p->facts.seq;
}

static int consider(void *ctx, const char *name, bool is_run)
{
	struct pick *p = ctx;
	CKB_FREE char *full = NULL;
	struct ckv_facts f;
	struct stat st;
	bool run;

	if (is_run)
		return 0;
	if (asprintf(&full, "%s%s%s", p->run, *p->run ? "/" : "", name) < 0) {
		full = NULL;
		return ckb_err_nomem(p->err);
	}
	if (cks_name_stat(p->tree->store, full, &run, &st, NULL) < 0 || run)
		return 0; /* gone meanwhile */
	int rc = ckv_facts(p->tree, full, &st, &f, p->err);

	if (rc == CKPT_ENOENT)
		return 0;
	if (rc == 0 && better(p, &f)) {
		free(p->best);
		p->best = strdup(name);
		p->facts = f;
		rc = p->best ? 0 : ckb_err_nomem(p->err);
	}
	return rc;
}

int ckv_link_target(struct ckv_tree *tree, const char *run, const char *link,
		    char **out, struct ckpt_err *err)
{
	struct pick p = { .tree = tree, .run = run, .err = err,
			  .latest = strcmp(link, "latest") == 0 };
	int rc = ckpt_store_list(tree->store, run, consider, &p, err);

	if (rc < 0) {
		free(p.best);
		return rc;
	}
	*out = p.best;
	return p.best ? 0 : CKPT_ENOENT;
}
