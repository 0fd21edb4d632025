/* SPDX-License-Identifier: Apache-2.0 */
/*
 * run.c - a run as it was last seen: names, and the facts read so far.
 *
 * A listing is kept, and is good while its folder stays as it was; but a
 * folder's time is coarse, so only one that had been left alone for a while
 * when it was listed (settled) is trusted later. Else the run is listed again,
 * and takes over what is known of files that are still the same: so facts are
 * read from a manifest once, those of a vanished name go with it, and what is
 * wrong with a manifest is logged once for each state of its file. Only damage
 * is looked at again after a while, as it need not last.
 *
 * Names and order of a run are fixed when it is made; facts come in under
 * tree->lock, which is not held while anything is read. Runs are counted: the
 * tree holds one reference of each, until it is listed again or, over
 * CKV_RUN_ENTRIES, was used longest ago (S9).
 */
#include <stdio.h>
#include <string.h>

#include "base/hash.h"
#include "base/log.h"
#include "tree/internal.h"
#include "verbs/store.h"

char *ckv_join(const char *run, const char *name)
{
	char *full;

	return asprintf(&full, "%s%s%s", run, *run ? "/" : "", name) < 0
		       ? NULL : full;
}

char *ckv_link_path(const char *run, const char *link)
{
	char *path;

	return asprintf(&path, "%s/%s", run, link) < 0 ? NULL : path;
}

/* ---- the tree's runs; all under tree->lock ---- */

static struct ckv_run *find_run(const struct ckv_tree *t, const char *name)
{
	uint64_t hash = ckb_xxh3(name, strlen(name));
	struct ckv_run *r = (struct ckv_run *)ckv_map_first(&t->runs, hash);

	while (r && strcmp(r->name, name) != 0)
		r = (struct ckv_run *)r->link.next;
	return r;
}

static struct ckv_run *use(struct ckv_tree *t, struct ckv_run *r)
{
	if (r) {
		r->refs++;
		r->used = ++t->clock;
	}
	return r;
}

/* The tree's reference of @r becomes the caller's. */
static struct ckv_run *take_out(struct ckv_tree *t, struct ckv_run *r)
{
	if (r) {
		ckv_map_remove(&t->runs, &r->link);
		t->run_entries -= r->count + 1;
	}
	return r;
}

static struct ckv_run *used_longest_ago(const struct ckv_tree *t)
{
	struct ckv_run *first = NULL;

	for (size_t i = 0; i < t->runs.cap; i++)
		for (struct ckv_link *l = t->runs.slots[i]; l; l = l->next) {
			struct ckv_run *r = (struct ckv_run *)l;

			if (!first || r->used < first->used)
				first = r;
		}
	return first;
}

/* ---- references ---- */

static void run_free(struct ckv_run *r)
{
	ckb_buf_fini(&r->names);
	free(r->entry);
	free(r->name);
	free(r);
}

void ckv_run_put(struct ckv_tree *t, struct ckv_run *r)
{
	if (!r)
		return;
	pthread_mutex_lock(&t->lock);
	bool gone = --r->refs == 0;

	pthread_mutex_unlock(&t->lock);
	if (gone)
		run_free(r);
}

static void forget(struct ckv_tree *t, const char *name)
{
	pthread_mutex_lock(&t->lock);
	struct ckv_run *old = take_out(t, find_run(t, name));

	pthread_mutex_unlock(&t->lock);
	ckv_run_put(t, old);
}

/* @r is what its name shows now. Out of memory: it is not kept. */
static void keep(struct ckv_tree *t, struct ckv_run *r)
{
	uint64_t hash = ckb_xxh3(r->name, strlen(r->name));

	pthread_mutex_lock(&t->lock);
	struct ckv_run *out = take_out(t, find_run(t, r->name));

	if (ckv_map_add(&t->runs, &r->link, hash)) {
		use(t, r);
		t->run_entries += r->count + 1;
	}
	pthread_mutex_unlock(&t->lock);
	do {
		ckv_run_put(t, out);
		pthread_mutex_lock(&t->lock);
		out = t->run_entries > CKV_RUN_ENTRIES && t->runs.count > 1
			      ? take_out(t, used_longest_ago(t)) : NULL;
		pthread_mutex_unlock(&t->lock);
	} while (out);
}

void ckv_runs_fini(struct ckv_tree *t)
{
	for (size_t i = 0; i < t->runs.cap; i++)
		while (t->runs.slots[i])
			ckv_run_put(t, take_out(t, (struct ckv_run *)
							   t->runs.slots[i]));
	free(t->runs.slots);
}

/* ---- listing ---- */

static int add_entry(void *ctx, const char *name, bool is_run)
{
	struct ckv_run *r = ctx;

	if (!ckb_room(&r->entry, r->count, &r->cap, sizeof(*r->entry)))
		return CKPT_ENOMEM;
	/* names move while they grow: an offset for now */
	r->entry[r->count++] = (struct ckv_run_entry){
		.name = (const char *)(uintptr_t)r->names.len,
		.is_run = is_run,
	};
	ckb_buf_put(&r->names, name, strlen(name) + 1);
	return r->names.failed ? CKPT_ENOMEM : 0;
}

/* Under tree->lock: what @old knows of the same names. Both are sorted. */
static void take_over(struct ckv_run *r, const struct ckv_run *old)
{
	uint32_t o = 0;

	for (uint32_t i = 0; i < r->count && o < old->count;) {
		struct ckv_run_entry *e = &r->entry[i];
		const struct ckv_run_entry *was = &old->entry[o];
		int c = strcmp(e->name, was->name);

		if (c == 0 && !e->is_run && !was->is_run) {
			e->has_facts = was->has_facts;
			e->told = was->told;
			e->id = was->id;
			e->facts = was->facts;
		}
		i += c <= 0;
		o += c >= 0;
	}
}

/* Names and entries of @r. */
static int list_names(struct ckv_tree *t, struct ckv_run *r,
		      struct ckpt_err *err)
{
	int rc = ckpt_store_list(t->store, r->name, add_entry, r, err);

	if (rc == CKPT_ENOMEM)
		return ckb_err_nomem(err);
	for (uint32_t i = 0; i < r->count; i++)
		r->entry[i].name = (const char *)r->names.data +
				   (uintptr_t)r->entry[i].name;
	return rc;
}

/* Did nothing happen to the folder for a while before @now_ns? Its mtime may
 * be set to anything, its ctime not. */
static bool is_settled(const struct stat *st, int64_t now_ns)
{
	int64_t before_ns = now_ns - CKV_SETTLED_NS;

	return ckb_time_ns(&st->st_mtim) < before_ns &&
	       ckb_time_ns(&st->st_ctim) < before_ns;
}

static int run_new(struct ckv_tree *t, const char *name, const struct stat *st,
		   struct ckv_run **out, struct ckpt_err *err)
{
	struct ckv_run *r = calloc(1, sizeof(*r));
	const struct ckb_sys *sys = cks_store_sys(t->store);
	int rc;

	if (r)
		r->name = strdup(name);
	if (!r || !r->name) {
		free(r);
		return ckb_err_nomem(err);
	}
	r->refs = 1;
	r->st = *st;
	r->settled = is_settled(st, sys->now_ns(sys));
	rc = list_names(t, r, err);
	if (rc < 0) {
		run_free(r);
		return rc;
	}
	pthread_mutex_lock(&t->lock);
	const struct ckv_run *old = find_run(t, name);

	if (old)
		take_over(r, old);
	pthread_mutex_unlock(&t->lock);
	*out = r;
	return 0;
}

static bool same_folder(const struct stat *a, const struct stat *b)
{
	return a->st_ino == b->st_ino && a->st_dev == b->st_dev &&
	       a->st_size == b->st_size && a->st_nlink == b->st_nlink &&
	       a->st_mtim.tv_sec == b->st_mtim.tv_sec &&
	       a->st_mtim.tv_nsec == b->st_mtim.tv_nsec &&
	       a->st_ctim.tv_sec == b->st_ctim.tv_sec &&
	       a->st_ctim.tv_nsec == b->st_ctim.tv_nsec;
}

int ckv_run_get(struct ckv_tree *t, const char *name, struct ckv_run **out,
		struct ckpt_err *err)
{
	struct stat st = { 0 };
	bool is_run = true;
	int rc = cks_name_stat(t->store, name, &is_run, &st, err);

	if (rc == CKPT_ENOENT && *name == '\0')
		rc = 0; /* a store without checkpoints/ is empty */
	if (rc == 0 && !is_run)
		rc = CKPT_ENOENT;
	if (rc == 0) {
		pthread_mutex_lock(&t->lock);
		struct ckv_run *r = find_run(t, name);

		if (r && r->settled && same_folder(&r->st, &st))
			*out = use(t, r);
		else
			r = NULL;
		pthread_mutex_unlock(&t->lock);
		if (r)
			return 0;
		rc = run_new(t, name, &st, out, err);
	}
	if (rc == 0)
		keep(t, *out);
	else if (rc == CKPT_ENOENT)
		forget(t, name);
	return rc;
}

/* ---- facts ---- */

/* Damage has to be seen again now and then, and when the clock was set back. */
static bool is_believed(const struct ckv_tree *t, const struct ckv_facts *f)
{
	const struct ckb_sys *sys = cks_store_sys(t->store);

	if (!f->damaged)
		return true;
	int64_t now_ns = sys->now_ns(sys);

	return now_ns >= f->read_ns && now_ns - f->read_ns < CKV_DAMAGED_NS;
}

/* Facts of entry @e if they are of the file @id, or, without one, if that was
 * looked at. */
static bool known(struct ckv_tree *t, struct ckv_run_entry *e,
		  const struct ckv_id *id, struct ckv_facts *out)
{
	pthread_mutex_lock(&t->lock);
	bool hit = e->has_facts && is_believed(t, &e->facts) &&
		   (id ? ckv_id_same(&e->id, id) : e->checked);

	if (hit) {
		e->checked = true;
		*out = e->facts;
	}
	pthread_mutex_unlock(&t->lock);
	return hit;
}

/* Under tree->lock: @e is of the file @id from now on. */
static void renew(struct ckv_run_entry *e, const struct ckv_id *id)
{
	if (!ckv_id_same(&e->id, id))
		e->told = false;
	e->id = *id;
	e->has_facts = false;
	e->checked = true;
}

static int facts_of(struct ckv_tree *t, struct ckv_run *r,
		    struct ckv_run_entry *e, const struct ckv_id *id,
		    struct ckv_facts *out, struct ckpt_err *err)
{
	CKB_FREE char *full = ckv_join(r->name, e->name);
	struct ckpt_err why = { 0 };

	if (!full)
		return ckb_err_nomem(err);
	if (known(t, e, id, out))
		return 0;
	int rc = ckv_facts_read(t, full, id, out, &why, err);
	bool tell = false;

	pthread_mutex_lock(&t->lock);
	renew(e, id);
	if (rc == 0) {
		e->facts = *out;
		e->has_facts = true;
		tell = out->damaged && !e->told;
		e->told = out->damaged;
	}
	pthread_mutex_unlock(&t->lock);
	if (tell)
		ckb_log(CKB_ERROR, "%s", why.message);
	return rc;
}

int ckv_run_facts(struct ckv_tree *t, struct ckv_run *r, uint32_t index,
		  struct ckv_facts *out, struct ckpt_err *err)
{
	struct ckv_run_entry *e = &r->entry[index];
	struct stat st;
	bool is_run;

	if (known(t, e, NULL, out))
		return 0;
	CKB_FREE char *full = ckv_join(r->name, e->name);
	int rc = full ? cks_name_stat(t->store, full, &is_run, &st, err)
		      : ckb_err_nomem(err);

	if (rc == 0 && is_run)
		return CKPT_ENOENT; /* it is no checkpoint any more */
	if (rc < 0)
		return rc;
	struct ckv_id id = ckv_id(&st);

	return facts_of(t, r, e, &id, out, err);
}

static int by_name(const void *key, const void *entry)
{
	return strcmp(key, ((const struct ckv_run_entry *)entry)->name);
}

static struct ckv_run_entry *find_entry(const struct ckv_run *r,
					const char *name)
{
	struct ckv_run_entry *e =
		r && r->count > 0 ? bsearch(name, r->entry, r->count,
					    sizeof(*r->entry), by_name)
				  : NULL;

	return e && !e->is_run ? e : NULL;
}

int ckv_run_facts_of(struct ckv_tree *t, const char *run, const char *name,
		     const struct ckv_id *id, struct ckv_facts *out,
		     struct ckpt_err *err)
{
	pthread_mutex_lock(&t->lock);
	struct ckv_run *r = use(t, find_run(t, run));

	pthread_mutex_unlock(&t->lock);
	struct ckv_run_entry *e = find_entry(r, name);
	int rc = 0;

	if (!e) { /* it is new there */
		ckv_run_put(t, r);
		r = NULL;
		rc = ckv_run_get(t, run, &r, err);
		e = rc == 0 ? find_entry(r, name) : NULL;
	}
	if (rc == 0) /* gone again, if the run does not have it */
		rc = e ? facts_of(t, r, e, id, out, err) : CKPT_ENOENT;
	ckv_run_put(t, r);
	return rc;
}

void ckv_run_tell(struct ckv_tree *t, struct ckv_run *r, uint32_t index,
		  const struct ckpt_err *why)
{
	struct ckv_run_entry *e = &r->entry[index];

	pthread_mutex_lock(&t->lock);
	bool first = !e->told;

	e->told = true;
	pthread_mutex_unlock(&t->lock);
	if (first)
		ckb_log(CKB_ERROR, "%s", why->message);
}
