/* SPDX-License-Identifier: Apache-2.0 */
/*
 * owners.c - which shard of a folder holds which tensor, and is that right?
 *
 * The names of all shards, sorted, beside those of the index: a tensor may lie
 * in one shard only, and where there is an index both must say the same. What
 * is wrong is told with the first few names and the count. An index may name a
 * tied tensor that its shard keeps as an alias.
 *
 * Memory: the names once, 24 bytes each. Threads: the caller's.
 */
#include <stdio.h>
#include <string.h>

#include "st_file.h"

#define SHOWN 3u

/* ---- names for an error ---- */

void ckw_names_add(struct ckw_names *n, const char *name, size_t len,
		   const char *where)
{
	char q[CKB_QUOTE_BYTES / 2], w[CKB_QUOTE_BYTES / 2];

	if (n->count++ >= SHOWN)
		return;
	ckb_buf_printf(&n->text, "%s'%s'", n->count > 1 ? ", " : "",
		       ckb_quote(q, sizeof(q), name, len));
	if (where)
		ckb_buf_printf(&n->text, " (in '%s')",
			       ckb_quote(w, sizeof(w), where, strlen(where)));
}

const char *ckw_names_text(struct ckw_names *n)
{
	if (n->count > SHOWN)
		ckb_buf_printf(&n->text, " and %zu more", n->count - SHOWN);
	return n->text.failed ? "..." : (const char *)n->text.data;
}

void ckw_names_fini(struct ckw_names *n)
{
	ckb_buf_fini(&n->text);
}
#define NAMES CKB_CLEANUP(ckw_names_fini)

/* ---- all tensors ---- */

static int add_one(struct ckw_owners *o, const char *name, size_t len,
		   uint32_t file, bool alias, struct ckpt_err *err)
{
	if (!ckb_room(&o->owner, o->count, &o->cap, sizeof(*o->owner)))
		return ckb_err_nomem(err);
	o->owner[o->count++] = (struct ckw_owner){
		.name = o->names.len, .name_len = (uint32_t)len,
		.file = file, .alias = alias,
	};
	ckb_buf_put(&o->names, name, len);
	return o->names.failed ? ckb_err_nomem(err) : 0;
}

int ckw_owners_add(struct ckw_owners *o, uint32_t file,
		   const struct ckx_st *st, struct ckpt_err *err)
{
	int rc = 0;

	for (size_t i = 0; rc == 0 && i < st->tensor_count; i++)
		rc = add_one(o, st->tensors[i].name, st->tensors[i].name_len,
			     file, false, err);
	for (size_t i = 0; rc == 0 && i < st->pair_count; i++)
		if (ckw_st_kept(st, &st->pairs[i]))
			rc = add_one(o, st->pairs[i].key, st->pairs[i].key_len,
				     file, true, err);
	return rc;
}

void ckw_owners_fini(struct ckw_owners *o)
{
	ckb_buf_fini(&o->names);
	free(o->owner);
}

static const char *name_of(const struct ckw_owners *o, size_t i)
{
	return (const char *)o->names.data + o->owner[i].name;
}

static int by_name(const void *a, const void *b, void *ctx)
{
	const struct ckw_owner *x = a, *y = b;
	const char *names = (const char *)((struct ckw_owners *)ctx)->names
				    .data;
	int c = ckx_name_compare(names + x->name, x->name_len,
				 names + y->name, y->name_len);

	/* the tensor before aliases of its name */
	return c ? c : (int)x->alias - (int)y->alias;
}

static int compare(const struct ckw_owners *o, size_t i, const char *name,
		   size_t len)
{
	return ckx_name_compare(name_of(o, i), o->owner[i].name_len, name,
				len);
}

/* The first owner whose name is not before @name. */
static size_t lower_bound(const struct ckw_owners *o, const char *name,
			  size_t len)
{
	size_t low = 0, high = o->count;

	while (low < high) {
		size_t mid = low + (high - low) / 2;

		if (compare(o, mid, name, len) < 0)
			low = mid + 1;
		else
			high = mid;
	}
	return low;
}

bool ckw_owners_hold(const struct ckw_owners *o, const char *name, size_t len)
{
	size_t i = lower_bound(o, name, len);

	return i < o->count && compare(o, i, name, len) == 0 &&
	       !o->owner[i].alias;
}

/* ---- is it right? ---- */

static int check_twice(const struct ckw_owners *o, const char *path,
		       bool indexed, struct ckpt_err *err)
{
	NAMES struct ckw_names twice = { 0 };

	for (size_t i = 1; i < o->count; i++) {
		char where[CKB_QUOTE_BYTES];

		if (compare(o, i, name_of(o, i - 1),
			    o->owner[i - 1].name_len) != 0 ||
		    o->owner[i].alias)
			continue;
		snprintf(where, sizeof(where), "%.90s' and '%.90s",
			 o->files->file[o->owner[i - 1].file].name,
			 o->files->file[o->owner[i].file].name);
		ckw_names_add(&twice, name_of(o, i), o->owner[i].name_len,
			      where);
	}
	if (twice.count == 0)
		return 0;
	return ckb_err(err, CKPT_EFORMAT, "'%s': tensors that lie in "
		       "two shards (%zu): %s; %s", path, twice.count,
		       ckw_names_text(&twice), indexed
		       ? "one of the copies is stale"
		       : "without an index each *.safetensors is a shard, so "
			 "move the copies away");
}

/* What the index names and its shard lacks. */
static int check_index(const struct ckw_owners *o, const char *path,
		       const char *index_name,
		       const struct ckx_hf_index *index, struct ckpt_err *err)
{
	NAMES struct ckw_names lost = { 0 };

	for (size_t i = 0; i < index->count; i++) {
		const struct ckx_hf_entry *e = &index->entries[i];
		struct ckw_file *f = ckw_files_find(o->files, e->file,
						    e->file_len);
		size_t at = lower_bound(o, e->name, e->name_len);
		bool there = false;

		for (; !there && at < o->count &&
		       compare(o, at, e->name, e->name_len) == 0; at++)
			there = f == &o->files->file[o->owner[at].file];
		if (!there)
			ckw_names_add(&lost, e->name, e->name_len, f->name);
	}
	if (lost.count == 0)
		return 0;
	return ckb_err(err, CKPT_EFORMAT, "'%s': tensors of '%s' that are "
		       "not in the shards it names (%zu): %s; index and "
		       "shards are not of one save", path, index_name,
		       lost.count, ckw_names_text(&lost));
}

/* What a shard holds and the index does not name. Both are sorted. */
static int check_shards(const struct ckw_owners *o, const char *path,
			const char *index_name,
			const struct ckx_hf_index *index,
			struct ckpt_err *err)
{
	NAMES struct ckw_names extra = { 0 };
	size_t at = 0;

	for (size_t i = 0; i < o->count; i++) {
		while (at < index->count &&
		       compare(o, i, index->entries[at].name,
			       index->entries[at].name_len) > 0)
			at++;
		if (o->owner[i].alias ||
		    (at < index->count &&
		     compare(o, i, index->entries[at].name,
			     index->entries[at].name_len) == 0))
			continue;
		ckw_names_add(&extra, name_of(o, i), o->owner[i].name_len,
			      o->files->file[o->owner[i].file].name);
	}
	if (extra.count == 0)
		return 0;
	return ckb_err(err, CKPT_EFORMAT, "'%s': tensors of its shards that "
		       "are not in '%s' (%zu): %s; index and shards are not "
		       "of one save", path, index_name, extra.count,
		       ckw_names_text(&extra));
}

int ckw_owners_check(struct ckw_owners *o, const char *path,
		     const char *index_name, const struct ckx_hf_index *index,
		     struct ckpt_err *err)
{
	int rc;

	if (o->count > 0)
		qsort_r(o->owner, o->count, sizeof(*o->owner), by_name, o);
	rc = check_twice(o, path, index_name != NULL, err);
	if (rc == 0 && index_name)
		rc = check_index(o, path, index_name, index, err);
	if (rc == 0 && index_name)
		rc = check_shards(o, path, index_name, index, err);
	return rc;
}
