/* SPDX-License-Identifier: Apache-2.0 */
/*
 * entries.c - the table of a store's checkpoints.
 *
 * What is in the store is asked of the folders, each time; what a checkpoint
 * is, of the index, when its row was made from the manifest file that is there
 * (inode number, size, time), else of the manifest. So an index that is
 * absent, old or wrong costs time and changes no answer. Bytes that only one
 * checkpoint uses follow from all of them together: the index's counts serve
 * when its list is the store's list, else all chunk lists are read.
 *
 * Memory: a few hundred bytes a checkpoint; without a good index 96 bytes for
 * each chunk of the store, when own bytes are asked for. No state; any thread.
 */
#include "verbs/uses.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/log.h"
#include "catalog/manifest.h"
#include "verbs/places.h"
#include "verbs/store_impl.h"

/* The index's list, by name. */
struct rows {
	struct ckq_row *list;  /* texts are our own */
	size_t count, cap;
	bool exact;            /* own bytes hold, if the list is the store's */
	struct ckpt_err *err;
};

struct entry {
	struct ckpt_entry e;   /* texts are our own */
	bool in_run;           /* asked for */
	bool sized;            /* e.stored_bytes is known */
};

struct entries {
	struct ckpt_store *s;
	const struct ckpt_entries_opts *opts;
	struct rows rows;
	struct entry *list;
	size_t count, cap;
	size_t known;          /* of them from the index */
	struct ckpt_err *err;
};

/* ---- the index's rows ---- */

static char *copy(const char *text)
{
	return text ? strdup(text) : NULL;
}

static int take_row(void *ctx, const struct ckq_row *row)
{
	struct rows *r = ctx;

	if (!ckb_room(&r->list, r->count, &r->cap, sizeof(*r->list)))
		return ckb_err_nomem(r->err);
	struct ckq_row *mine = &r->list[r->count];

	*mine = *row;
	mine->name = copy(row->name);
	mine->metrics = copy(row->metrics);
	r->count++;
	return mine->name && (mine->metrics || !row->metrics)
		       ? 0 : ckb_err_nomem(r->err);
}

static void rows_fini(struct rows *r)
{
	for (size_t i = 0; i < r->count; i++) {
		free((char *)r->list[i].name);
		free((char *)r->list[i].metrics);
	}
	free(r->list);
	r->list = NULL;
	r->count = r->cap = 0;
}

/* No index, or one that fails: no rows. */
static int rows_load(struct ckpt_store *s, struct rows *r,
		     struct ckpt_err *err)
{
	struct ckpt_err mine = { 0 };
	struct ckq_index *ix;

	if (ckq_index_open(s->index_path, s->uuid, false, &ix, NULL) < 0)
		return 0;
	r->err = &mine;
	int rc = ckq_index_list(ix, take_row, r, &r->exact, &mine);

	r->err = NULL;
	ckq_index_close(ix);
	if (rc == CKPT_ENOMEM)
		return ckb_err_nomem(err);
	if (rc < 0) {
		rows_fini(r);
		ckb_log(CKB_INFO, "store '%s': %s", s->path, mine.message);
	}
	return 0;
}

static int by_name(const void *key, const void *row)
{
	return strcmp(key, ((const struct ckq_row *)row)->name);
}

/* The row made from this very file, or NULL. */
static const struct ckq_row *row_of(const struct rows *r, const char *name,
				    const struct stat *st)
{
	const struct ckq_row *row =
		r->count == 0 ? NULL : bsearch(name, r->list, r->count,
					       sizeof(*r->list), by_name);
	struct ckq_row now;

	if (!row)
		return NULL;
	cks_row_identity(&now, st);
	return row->ino == now.ino && row->size == now.size &&
	       row->mtime_ns == now.mtime_ns ? row : NULL;
}

/* ---- one checkpoint ---- */

static bool in_run(const char *name, const char *run)
{
	size_t len = run ? strlen(run) : 0;

	return len == 0 || (strncmp(name, run, len) == 0 && name[len] == '/');
}

static int from_row(struct entry *n, const struct ckq_row *r)
{
	n->e.generation = r->generation;
	n->e.seq = r->seq;
	n->e.has_step = r->has_step;
	n->e.step = r->step;
	n->e.created_ns = r->created_ns;
	n->e.has_parent = r->has_parent;
	memcpy(n->e.uuid, r->uuid, sizeof(n->e.uuid));
	memcpy(n->e.parent, r->parent, sizeof(n->e.parent));
	n->e.metrics = copy(r->metrics);
	n->e.bytes = r->bytes;
	n->e.stored_bytes = r->stored;
	n->e.own_bytes = r->own;
	n->sized = true;
	return n->e.metrics || !r->metrics ? 0 : CKPT_ENOMEM;
}

static int from_facts(struct entry *n, const struct ckq_facts *f)
{
	n->e.generation = f->generation;
	n->e.seq = f->seq;
	n->e.has_step = f->has_step;
	n->e.step = f->step;
	n->e.created_ns = f->created_ns;
	n->e.has_parent = f->has_parent;
	memcpy(n->e.uuid, f->uuid, sizeof(n->e.uuid));
	memcpy(n->e.parent, f->parent, sizeof(n->e.parent));
	n->e.metrics = copy(f->metrics);
	return n->e.metrics || !f->metrics ? 0 : CKPT_ENOMEM;
}

static int damaged(struct entry *n, const struct ckpt_err *why)
{
	free((char *)n->e.metrics);
	*n = (struct entry){ .e.name = n->e.name, .in_run = n->in_run,
			     .e.damage = copy(why->message),
			     .e.damage_code = why->code };
	return n->e.damage ? 0 : CKPT_ENOMEM;
}

/* 0; CKPT_ENOENT: it is gone; CKPT_ENOMEM. What is wrong with a manifest is
 * its entry's. */
static int from_manifest(struct entries *t, struct entry *n)
{
	char path[CKS_NAME_PATH_BYTES];
	struct ckpt_err why = { 0 };
	struct ckq_manifest *m;

	cks_name_path(path, n->e.name);
	int rc = ckq_manifest_open(t->s->sys, t->s->dirfd, path, &m, &why);

	if (rc == CKPT_ENOENT || rc == CKPT_ENOMEM)
		return rc;
	if (rc < 0)
		return damaged(n, &why);
	rc = from_facts(n, ckq_manifest_facts(m));
	ckq_manifest_close(m);
	return rc;
}

static void entry_fini(struct entry *n)
{
	free((char *)n->e.name);
	free((char *)n->e.metrics);
	free((char *)n->e.damage);
}

static int add(void *ctx, const char *name)
{
	struct entries *t = ctx;
	char path[CKS_NAME_PATH_BYTES];
	struct stat st;

	cks_name_path(path, name);
	int rc = t->s->sys->fstatat(t->s->sys, t->s->dirfd, path, &st);

	if (rc == -ENOENT || rc == -ENOTDIR)
		return 0; /* removed meanwhile */
	if (rc < 0)
		return ckb_err_sys(t->err, -rc, "cannot look at '%s/%s'",
				   t->s->path, path);
	if (!ckb_room(&t->list, t->count, &t->cap, sizeof(*t->list)))
		return ckb_err_nomem(t->err);
	struct entry *n = &t->list[t->count];
	const struct ckq_row *row = row_of(&t->rows, name, &st);

	*n = (struct entry){ .e.name = copy(name),
			     .in_run = in_run(name, t->opts->run) };
	rc = n->e.name ? 0 : CKPT_ENOMEM;
	if (rc == 0)
		rc = row ? from_row(n, row) : from_manifest(t, n);
	if (rc < 0) {
		entry_fini(n);
		return rc == CKPT_ENOENT ? 0 : ckb_err_nomem(t->err);
	}
	t->known += row != NULL;
	t->count++;
	return 0;
}

/* What is in it is not known: then own bytes are not, and are counted anew. */
static void unread_run(void *ctx, const char *run, const struct ckpt_err *why)
{
	struct entries *t = ctx;

	t->rows.exact = false;
	cks_name_skip(t->s, run, why->message);
}

/* ---- sizes ---- */

static int add_places(struct cks_places *p, const struct ckq_use *uses,
		      size_t count, size_t owner, struct ckpt_err *err)
{
	for (size_t i = 0; i < count; i++) {
		bool is_new;
		struct cks_place *place = cks_places_get(p, &uses[i], &is_new);

		if (!place)
			return ckb_err_nomem(err);
		place->owner = is_new ? owner : CKS_SHARED;
	}
	return 0;
}

/* Read entry @i's chunk lists: its sizes, and into @places (or NULL) what it
 * uses. */
static int measure(struct entries *t, size_t i, struct cks_places *places)
{
	CKB_FREE struct ckq_use *uses = NULL;
	struct entry *n = &t->list[i];
	struct ckpt_checkpoint *c = NULL;
	struct ckpt_err why = { 0 };
	size_t count = 0;

	if (n->e.damage)
		return 0;
	int rc = ckpt_checkpoint_open(t->s, n->e.name, &c, &why);

	if (rc == 0)
		rc = cks_uses(c, &uses, &count, &n->e.stored_bytes, &why);
	if (rc == 0) {
		n->e.bytes = ckpt_checkpoint_info(c)->bytes;
		n->sized = true;
		n->e.own_bytes = 0;
		if (places)
			rc = add_places(places, uses, count, i, &why);
	}
	ckpt_checkpoint_close(c);
	if (rc == CKPT_ENOMEM)
		return ckb_err_nomem(t->err);
	return rc < 0 && damaged(n, &why) < 0 ? ckb_err_nomem(t->err) : 0;
}

static int measure_all(struct entries *t)
{
	CKB_CLEANUP(cks_places_fini) struct cks_places places = { 0 };
	int rc = 0;

	if (t->rows.count > 0)
		ckb_log(CKB_INFO, "store '%s': the index's list of checkpoints "
			"is not the store's; all manifests are read (ckptfs "
			"reindex makes this quick)", t->s->path);
	for (size_t i = 0; rc == 0 && i < t->count; i++)
		rc = measure(t, i, &places);
	for (size_t i = 0; rc == 0 && i < places.cap; i++) {
		const struct cks_place *s = &places.slots[i];

		if (s->used && s->owner != CKS_SHARED)
			t->list[s->owner].e.own_bytes += s->use.stored_len;
	}
	return rc;
}

static int sizes(struct entries *t)
{
	size_t good = 0;
	int rc = 0;

	for (size_t i = 0; i < t->count; i++)
		good += !t->list[i].e.damage;
	/* own bytes need the same list on both sides */
	if ((t->opts->flags & CKPT_ENTRIES_OWN) &&
	    !(t->rows.exact && t->known == good && t->known == t->rows.count))
		return measure_all(t);
	for (size_t i = 0; rc == 0 && i < t->count; i++)
		if (t->list[i].in_run && !t->list[i].sized)
			rc = measure(t, i, NULL);
	return rc;
}

/* ---- the verbs ---- */

static int load(struct entries *t, struct ckpt_err *err)
{
	t->err = err;
	int rc = rows_load(t->s, &t->rows, err);

	return rc < 0 ? rc : cks_store_walk(t->s, add, unread_run, t, err);
}

static void entries_fini(struct entries *t)
{
	for (size_t i = 0; i < t->count; i++)
		entry_fini(&t->list[i]);
	free(t->list);
	rows_fini(&t->rows);
}

int ckpt_store_entries(struct ckpt_store *s,
		       const struct ckpt_entries_opts *opts, ckpt_entry_fn fn,
		       void *ctx, struct ckpt_err *err)
{
	static const struct ckpt_entries_opts none = { .size = sizeof(none) };
	CKB_CLEANUP(entries_fini) struct entries t = {
		.s = s, .opts = opts ? opts : &none };
	bool is_run = true;
	int rc = 0;

	CKB_REQUIRE(s && fn);
	if (t.opts->size < sizeof(none))
		return ckb_err(err, CKPT_EINVAL, "ckpt_entries_opts.size is "
			       "%zu, not %zu", t.opts->size, sizeof(none));
	if (t.opts->run && t.opts->run[0])
		rc = cks_name_stat(s, t.opts->run, &is_run, NULL, err);
	if (rc == CKPT_ENOENT || (rc == 0 && !is_run))
		return ckb_err(err, CKPT_ENOENT, "there is no run '%s' in "
			       "store '%s'", t.opts->run, s->path);
	if (rc == 0)
		rc = load(&t, err);
	if (rc == 0 && (t.opts->flags & (CKPT_ENTRIES_SIZES |
					 CKPT_ENTRIES_OWN)))
		rc = sizes(&t);
	for (size_t i = 0; rc == 0 && i < t.count; i++)
		if (t.list[i].in_run)
			rc = fn(ctx, &t.list[i].e);
	return rc;
}

int cks_store_last_seq(struct ckpt_store *s, uint64_t *out,
		       struct ckpt_err *err)
{
	static const struct ckpt_entries_opts none = { .size = sizeof(none) };
	CKB_CLEANUP(entries_fini) struct entries t = { .s = s, .opts = &none };
	uint64_t last = 0;
	int rc = load(&t, err);

	for (size_t i = 0; rc == 0 && i < t.count; i++) {
		const struct ckpt_entry *e = &t.list[i].e;

		if (e->damage)
			cks_name_skip(s, e->name, e->damage);
		else if (e->seq > last)
			last = e->seq;
	}
	if (rc == 0)
		*out = last;
	return rc;
}
