/* SPDX-License-Identifier: Apache-2.0 */
/*
 * checkpoint.c - an open checkpoint: facts, items, names.
 *
 * Opening reads every row but the chunk lists, into arrays whose texts and
 * shapes lie in one arena (equal shapes once), so 100,000 tensors cost tens of
 * megabytes and a fraction of a second. A chunk list is loaded and proved when
 * its tensor is first read, and kept until close; who walks all tensors loads
 * them one by one and keeps none. Refuses rows that contradict each other, and
 * two of one name, which a name could not tell apart (S10).
 *
 * Invariants: everything but the pointers to chunk lists and layouts is fixed
 * after open. Such a pointer is set once, by compare and exchange (release;
 * readers acquire).
 */
#include "verbs/checkpoint.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/limits.h"
#include "format/name.h"
#include "verbs/store_impl.h"

/* Memory that is freed all at once. */
struct block {
	struct block *next;
	size_t used, cap;
	uint8_t data[];
};

struct layout_id {
	bool has;
	uint64_t id;
};

struct ckpt_checkpoint {
	struct ckpt_store *store;
	struct ckq_manifest *manifest;
	struct ckpt_checkpoint_info info;
	struct block *arena;
	struct ckpt_item_info *items;
	size_t item_count, item_cap;
	struct ckpt_tensor_info *tensors;
	struct layout_id *layouts;           /* by tensor */
	_Atomic(struct ckf_layout *) *shared; /* decoded, by id */
	uint64_t layout_count;
	_Atomic(struct cks_chunks *) *chunks; /* by tensor */
	size_t tensor_count, tensor_cap;
	uint32_t *by_name;                   /* tensors by (item, name) */
	uint8_t (*packs)[CKPT_UUID_BYTES];
	size_t pack_count, pack_cap;
	const struct ckpt_shape **shapes;    /* interned; cap a power of two */
	size_t shape_count, shape_cap;
	struct ckpt_err *err;                /* of the open under way */
};

/* ---- arena ---- */

static void *arena_get(struct ckpt_checkpoint *c, size_t len)
{
	len = (len + 7) / 8 * 8;
	if (!c->arena || c->arena->cap - c->arena->used < len) {
		/* small checkpoints are many, large ones few */
		size_t cap = c->arena ? 65536 : 2048;

		if (cap < len)
			cap = len;
		/* room behind the last shape: see intern() */
		struct block *b = malloc(sizeof(*b) + cap +
					 sizeof(struct ckpt_shape));

		if (!b)
			return NULL;
		b->next = c->arena;
		b->used = 0;
		b->cap = cap;
		c->arena = b;
	}
	void *p = c->arena->data + c->arena->used;

	c->arena->used += len;
	return p;
}

/* A copy with a NUL behind it. */
static char *keep(struct ckpt_checkpoint *c, const char *text, size_t len)
{
	char *p = arena_get(c, len + 1);

	if (p) {
		memcpy(p, text, len);
		p[len] = '\0';
	}
	return p;
}

static bool same_shape(const struct ckpt_shape *a, const struct ckpt_shape *b)
{
	return a->ndim == b->ndim &&
	       memcmp(a->dim, b->dim, a->ndim * sizeof(a->dim[0])) == 0;
}

static size_t shape_slot(const struct ckpt_checkpoint *c,
			 const struct ckpt_shape *s)
{
	uint64_t h = s->ndim;

	for (uint32_t d = 0; d < s->ndim; d++)
		h = (h ^ s->dim[d]) * 0x9e3779b97f4a7c15ull;
	size_t at = (size_t)(h >> 32) & (c->shape_cap - 1);

	while (c->shapes[at] && !same_shape(c->shapes[at], s))
		at = (at + 1) & (c->shape_cap - 1);
	return at;
}

static bool grow_shapes(struct ckpt_checkpoint *c)
{
	const struct ckpt_shape **old = c->shapes;
	size_t old_cap = c->shape_cap;

	c->shape_cap = old_cap ? old_cap * 2 : 64;
	c->shapes = calloc(c->shape_cap, sizeof(*c->shapes));
	if (!c->shapes) {
		c->shapes = old;
		c->shape_cap = old_cap;
		return false;
	}
	for (size_t i = 0; i < old_cap; i++)
		if (old[i])
			c->shapes[shape_slot(c, old[i])] = old[i];
	free(old);
	return true;
}

/* Only ndim dims are stored. What lies behind them is of the same block, so
 * that a caller may copy a struct ckpt_shape whole. */
static const struct ckpt_shape *intern(struct ckpt_checkpoint *c,
				       const struct ckpt_shape *s)
{
	if ((c->shape_count + 1) * 2 > c->shape_cap && !grow_shapes(c))
		return NULL;
	size_t at = shape_slot(c, s);

	if (!c->shapes[at]) {
		size_t len = offsetof(struct ckpt_shape, dim) +
			     s->ndim * sizeof(s->dim[0]);
		struct ckpt_shape *p = arena_get(c, len);

		if (!p)
			return NULL;
		p->ndim = s->ndim;
		memcpy(p->dim, s->dim, s->ndim * sizeof(s->dim[0]));
		c->shapes[at] = p;
		c->shape_count++;
	}
	return c->shapes[at];
}

/* ---- rows ---- */

static int take_item(void *ctx, uint64_t id, const char *name,
		     enum ckpt_item_kind kind, const char *separator,
		     const char *metadata)
{
	struct ckpt_checkpoint *c = ctx;

	(void)id;
	if (!ckb_room(&c->items, c->item_count, &c->item_cap,
		      sizeof(*c->items)))
		return ckb_err_nomem(c->err);
	struct ckpt_item_info *it = &c->items[c->item_count];

	*it = (struct ckpt_item_info){
		.name = keep(c, name, strlen(name)), .kind = kind,
		.separator = keep(c, separator, strlen(separator)),
		.metadata = metadata ? keep(c, metadata, strlen(metadata))
				     : NULL,
	};
	if (!it->name || !it->separator || (metadata && !it->metadata))
		return ckb_err_nomem(c->err);
	c->item_count++;
	return 0;
}

static int take_pack(void *ctx, uint64_t id, const uint8_t uuid[16])
{
	struct ckpt_checkpoint *c = ctx;

	(void)id;
	if (!ckb_room(&c->packs, c->pack_count, &c->pack_cap,
		      sizeof(*c->packs)))
		return ckb_err_nomem(c->err);
	memcpy(c->packs[c->pack_count++], uuid, CKPT_UUID_BYTES);
	return 0;
}

/* What one row says must fit the rows before it. */
static const char *contradiction(const struct ckpt_checkpoint *c,
				 const struct ckq_tensor *t)
{
	if (t->item >= c->item_count)
		return "it belongs to no item";
	if (c->tensor_count > 0 &&
	    t->item < c->tensors[c->tensor_count - 1].item)
		return "it does not lie with its item";
	if ((t->media_type != NULL) !=
	    (c->items[t->item].kind != CKPT_ITEM_TENSORS))
		return "its kind is not its item's";
	if (!t->has_alias)
		return NULL;
	const struct ckpt_tensor_info *a = &c->tensors[t->alias_of];

	if (a->item != t->item || a->dtype != t->dtype ||
	    !same_shape(a->shape, &t->shape) || a->alias_of != SIZE_MAX)
		return "what it is an alias of is another kind of tensor";
	return NULL;
}

static int take_tensor(void *ctx, const struct ckq_tensor *t)
{
	struct ckpt_checkpoint *c = ctx;
	char q[CKB_QUOTE_BYTES];
	const char *why = contradiction(c, t);
	size_t cap = c->tensor_cap;

	if (why)
		return ckb_err(c->err, CKPT_ECORRUPT, "the manifest's row of "
			       "tensor '%s' is wrong: %s",
			       ckb_quote(q, sizeof(q), t->name, t->name_len),
			       why);
	if (!ckb_room(&c->tensors, c->tensor_count, &c->tensor_cap,
		  sizeof(*c->tensors)) ||
	    !ckb_room(&c->layouts, c->tensor_count, &cap, sizeof(*c->layouts)))
		return ckb_err_nomem(c->err);
	struct ckpt_tensor_info *i = &c->tensors[c->tensor_count];
	struct ckpt_item_info *it = &c->items[t->item];

	*i = (struct ckpt_tensor_info){
		.index = c->tensor_count, .item = (size_t)t->item,
		.name = keep(c, t->name, t->name_len),
		.name_len = t->name_len, .dtype = t->dtype,
		.shape = intern(c, &t->shape), .bytes = t->bytes,
		.media_type = t->media_type ? keep(c, t->media_type,
						   strlen(t->media_type))
					    : NULL,
		.alias_of = t->has_alias ? (size_t)t->alias_of : SIZE_MAX,
		.has_root = t->has_root, .stats = t->stats,
	};
	memcpy(i->root, t->root, sizeof(i->root));
	if (!i->name || !i->shape || (t->media_type && !i->media_type))
		return ckb_err_nomem(c->err);
	c->layouts[c->tensor_count] = (struct layout_id){ t->has_layout,
							  t->layout };
	if (t->has_layout && t->layout >= c->layout_count)
		c->layout_count = t->layout + 1;
	if (it->count == 0)
		it->first = c->tensor_count;
	it->count++;
	if (!t->has_alias) {
		it->bytes += t->bytes;
		c->info.bytes += t->bytes;
	}
	c->tensor_count++;
	return 0;
}

/* ---- names ---- */

static int compare_names(const struct ckpt_tensor_info *a,
			 const struct ckpt_tensor_info *b)
{
	if (a->item != b->item)
		return a->item < b->item ? -1 : 1;
	size_t n = a->name_len < b->name_len ? a->name_len : b->name_len;
	int c = memcmp(a->name, b->name, n);

	return c ? c : (a->name_len > b->name_len) -
			       (a->name_len < b->name_len);
}

static int by_name(const void *a, const void *b, void *ctx)
{
	const struct ckpt_tensor_info *t = ctx;

	return compare_names(&t[*(const uint32_t *)a],
			     &t[*(const uint32_t *)b]);
}

static int index_names(struct ckpt_checkpoint *c)
{
	size_t n = c->tensor_count;
	char q[CKB_QUOTE_BYTES];

	if (n > UINT32_MAX)
		return ckb_err(c->err, CKPT_ELIMIT, "too many tensors");
	c->by_name = malloc((n + 1) * sizeof(*c->by_name));
	c->chunks = calloc(n + 1, sizeof(*c->chunks));
	c->shared = calloc(c->layout_count + 1, sizeof(*c->shared));
	if (!c->by_name || !c->chunks || !c->shared)
		return ckb_err_nomem(c->err);
	for (size_t i = 0; i < n; i++)
		c->by_name[i] = (uint32_t)i;
	qsort_r(c->by_name, n, sizeof(*c->by_name), by_name, c->tensors);
	for (size_t i = 1; i < n; i++) {
		const struct ckpt_tensor_info *t = &c->tensors[c->by_name[i]];

		if (by_name(&c->by_name[i - 1], &c->by_name[i], c->tensors) ==
		    0)
			return ckb_err(c->err, CKPT_ECORRUPT, "two tensors are "
				       "called '%s'", ckb_quote(q, sizeof(q),
				       t->name, t->name_len));
	}
	return 0;
}

const struct ckpt_tensor_info *
ckpt_tensor_find(const struct ckpt_checkpoint *c,
		 const struct ckpt_item_info *item, const char *name,
		 size_t name_len)
{
	struct ckpt_tensor_info key = {
		.item = (size_t)(item - c->items), .name = name,
		.name_len = name_len ? name_len : strlen(name),
	};
	size_t low = 0, high = c->tensor_count;

	while (low < high) {
		size_t mid = (low + high) / 2;
		const struct ckpt_tensor_info *t =
			&c->tensors[c->by_name[mid]];
		int r = compare_names(t, &key);

		if (r == 0)
			return t;
		if (r < 0)
			low = mid + 1;
		else
			high = mid;
	}
	return NULL;
}

/* ---- open, close ---- */

static int read_all(struct ckpt_checkpoint *c, const char *name,
		    struct ckpt_err *err)
{
	const struct ckq_facts *f = ckq_manifest_facts(c->manifest);
	struct ckpt_checkpoint_info *i = &c->info;

	*i = (struct ckpt_checkpoint_info){
		.name = keep(c, name, strlen(name)),
		.generation = f->generation, .seq = f->seq,
		.has_step = f->has_step, .step = f->step,
		.created_ns = f->created_ns, .has_parent = f->has_parent,
		.metadata = f->metadata, .metrics = f->metrics,
		.writer = f->writer,
	};
	memcpy(i->uuid, f->uuid, sizeof(i->uuid));
	memcpy(i->parent, f->parent, sizeof(i->parent));
	c->err = err;
	int rc = i->name ? ckq_manifest_items(c->manifest, take_item, c, err)
			 : ckb_err_nomem(err);

	if (rc == 0)
		rc = ckq_manifest_packs(c->manifest, take_pack, c, err);
	if (rc == 0)
		rc = ckq_manifest_tensors(c->manifest, take_tensor, c, err);
	if (rc == 0)
		rc = index_names(c);
	c->err = NULL;
	return rc;
}

int ckpt_checkpoint_open(struct ckpt_store *store, const char *name,
			 struct ckpt_checkpoint **out, struct ckpt_err *err)
{
	struct ckpt_err mine = { 0 };
	char path[CKS_NAME_PATH_BYTES];
	struct ckpt_checkpoint *c;
	bool is_run;
	int rc = ckf_checkpoint_name(name, err);

	*out = NULL;
	if (rc < 0)
		return rc;
	rc = cks_name_stat(store, name, &is_run, NULL, err);
	if (rc == CKPT_ENOENT || (rc == 0 && is_run))
		return ckb_err(err, CKPT_ENOENT, rc == 0
			       ? "'%s' is a run, not a checkpoint"
			       : "there is no checkpoint '%s'", name);
	if (rc < 0)
		return rc;
	c = calloc(1, sizeof(*c));
	if (!c)
		return ckb_err_nomem(err);
	c->store = store;
	cks_name_path(path, name);
	rc = ckq_manifest_open(store->sys, store->dirfd, path, &c->manifest,
			       &mine);
	if (rc == 0)
		rc = read_all(c, name, &mine);
	if (rc < 0) {
		ckpt_checkpoint_close(c);
		if (err)
			*err = mine;
		return ckb_err_prefix(err, rc, "checkpoint '%s'", name);
	}
	*out = c;
	return 0;
}

static void free_layout(struct ckf_layout *layout)
{
	if (layout)
		ckf_layout_fini(layout);
	free(layout);
}

void ckpt_checkpoint_close(struct ckpt_checkpoint *c)
{
	if (!c)
		return;
	for (size_t i = 0; c->chunks && i < c->tensor_count; i++)
		cks_chunks_free(atomic_load_explicit(&c->chunks[i],
						     memory_order_relaxed));
	for (uint64_t i = 0; c->shared && i < c->layout_count; i++)
		free_layout(atomic_load_explicit(&c->shared[i],
						 memory_order_relaxed));
	while (c->arena) {
		struct block *b = c->arena;

		c->arena = b->next;
		free(b);
	}
	ckq_manifest_close(c->manifest);
	free(c->items);
	free(c->tensors);
	free(c->layouts);
	free(c->chunks);
	free(c->shared);
	free(c->by_name);
	free(c->packs);
	free(c->shapes);
	free(c);
}

/* ---- answers ---- */

const struct ckpt_checkpoint_info *
ckpt_checkpoint_info(const struct ckpt_checkpoint *c)
{
	return &c->info;
}

size_t ckpt_item_count(const struct ckpt_checkpoint *c)
{
	return c->item_count;
}

const struct ckpt_item_info *ckpt_item_at(const struct ckpt_checkpoint *c,
					  size_t index)
{
	return index < c->item_count ? &c->items[index] : NULL;
}

size_t ckpt_tensor_count(const struct ckpt_checkpoint *c)
{
	return c->tensor_count;
}

const struct ckpt_tensor_info *ckpt_tensor_at(const struct ckpt_checkpoint *c,
					      size_t index)
{
	return index < c->tensor_count ? &c->tensors[index] : NULL;
}

const struct ckpt_item_info *ckpt_item_find(const struct ckpt_checkpoint *c,
					    const char *name)
{
	for (size_t i = 0; i < c->item_count; i++)
		if (strcmp(c->items[i].name, name) == 0)
			return &c->items[i];
	return NULL;
}

struct ckpt_store *cks_checkpoint_store(const struct ckpt_checkpoint *c)
{
	return c->store;
}

struct ckq_manifest *cks_checkpoint_manifest(struct ckpt_checkpoint *c)
{
	return c->manifest;
}

const uint8_t *cks_checkpoint_pack(const struct ckpt_checkpoint *c,
				   uint32_t pack)
{
	return pack < c->pack_count ? c->packs[pack] : NULL;
}

const char *cks_where(char dst[CKS_WHERE_BYTES],
		      const struct ckpt_checkpoint *c,
		      const struct ckpt_tensor_info *t)
{
	char q[CKB_QUOTE_BYTES];

	snprintf(dst, CKS_WHERE_BYTES, "checkpoint '%.200s', tensor '%s/%s'",
		 c->info.name, c->items[t->item].name,
		 ckb_quote(q, sizeof(q), t->name, t->name_len));
	return dst;
}

/* ---- layouts and chunk lists, kept ---- */

static int decode_layout(struct ckpt_checkpoint *c, uint64_t id,
			 struct ckf_layout **out, struct ckpt_err *err)
{
	CKB_BUF struct ckb_buf blob = { 0 };
	struct ckf_layout *layout = calloc(1, sizeof(*layout));
	int rc = layout ? ckq_manifest_layout(c->manifest, id, &blob, err)
			: ckb_err_nomem(err);

	if (rc == 0)
		rc = ckf_layout_decode(blob.data, blob.len, layout, err);
	if (rc < 0) {
		free_layout(layout);
		return rc;
	}
	*out = layout;
	return 0;
}

int cks_checkpoint_layout(struct ckpt_checkpoint *c, size_t tensor,
			  const struct ckf_layout **out, uint64_t *out_id,
			  struct ckpt_err *err)
{
	const struct layout_id *l = &c->layouts[tensor];
	struct ckf_layout *layout, *none = NULL;

	*out = NULL;
	*out_id = l->id;
	if (!l->has)
		return 0;
	layout = atomic_load_explicit(&c->shared[l->id], memory_order_acquire);
	if (!layout) {
		int rc = decode_layout(c, l->id, &layout, err);

		if (rc < 0)
			return rc;
		if (!atomic_compare_exchange_strong_explicit(
			    &c->shared[l->id], &none, layout,
			    memory_order_acq_rel, memory_order_acquire)) {
			free_layout(layout); /* somebody else was faster */
			layout = none;
		}
	}
	*out = layout;
	return 0;
}

int cks_checkpoint_chunks(struct ckpt_checkpoint *c,
			  const struct ckpt_tensor_info *t,
			  const struct cks_chunks **out, struct ckpt_err *err)
{
	struct cks_chunks *k, *none = NULL;

	if (t->alias_of != SIZE_MAX)
		t = &c->tensors[t->alias_of];
	k = atomic_load_explicit(&c->chunks[t->index], memory_order_acquire);
	if (!k) {
		int rc = cks_chunks_load(c, t, &k, err);

		if (rc < 0)
			return rc;
		if (!atomic_compare_exchange_strong_explicit(
			    &c->chunks[t->index], &none, k,
			    memory_order_acq_rel, memory_order_acquire)) {
			/* somebody else was faster */
			cks_chunks_free(k);
			k = none;
		}
	}
	*out = k;
	return 0;
}
