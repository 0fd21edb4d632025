/* SPDX-License-Identifier: Apache-2.0 */
/*
 * describe.c - items, tensors and files as the caller describes them.
 *
 * Each description is checked on its own, copied, and changes nothing on disk;
 * a bad one is refused with names and numbers and leaves the others as they
 * are. What is refused: names, dtypes, shapes and boxes that cannot be; a name
 * given twice in its item; a provider with more or fewer bytes than the boxes
 * have, so that padding never becomes data; data that is missing; an alias of
 * what it cannot be an alias of. Whether the boxes cover the tensor is asked
 * at start, when all are known.
 *
 * Providers pass to the save with the call, also when it fails, and are
 * released exactly once on every path. Lengths are checked before use (S10).
 * Threads: the caller's.
 */
#include <stdlib.h>
#include <string.h>

#include "base/hash.h"
#include "base/limits.h"
#include "base/text.h"
#include "format/config.h"
#include "format/name.h"
#include "save.h"
#include "tensor/box.h"

bool ckw_copy_text(char **to, const char *from)
{
	*to = from ? strdup(from) : NULL;
	return !from || *to;
}

int ckw_check_json(const char *text, const char *what, struct ckpt_err *err)
{
	if (text && strnlen(text, CKB_JSON_MAX + 1) > CKB_JSON_MAX)
		return ckb_err(err, CKPT_ELIMIT, "%s has more than %u bytes",
			       what, CKB_JSON_MAX);
	return ckf_json_object(text, what, err);
}

/* ---- items ---- */

void ckw_item_fini(struct ckw_item *item)
{
	free(item->name);
	free(item->separator);
	free(item->metadata);
}

static int check_item_desc(const struct ckpt_save *s,
			   const struct ckpt_item_desc *d,
			   const char *separator, struct ckpt_err *err)
{
	if (d->size < sizeof(*d))
		return ckb_err(err, CKPT_EINVAL, "ckpt_item_desc.size is %zu, "
			       "not %zu", d->size, sizeof(*d));
	if (!d->name)
		return ckb_err(err, CKPT_EINVAL, "an item has no name");
	int rc = ckf_item_name(d->name, d->kind == CKPT_ITEM_ORIGIN, err);

	if (rc < 0)
		return rc;
	if (d->kind < CKPT_ITEM_TENSORS || d->kind > CKPT_ITEM_ORIGIN)
		return ckb_err(err, CKPT_EINVAL, "item '%s' is of no kind",
			       d->name);
	if (strlen(separator) > 1 || (unsigned char)*separator > 126 ||
	    (*separator && (unsigned char)*separator < 32))
		return ckb_err(err, CKPT_EINVAL, "item '%s': the separator is "
			       "one printable ASCII character or none",
			       d->name);
	for (size_t i = 0; i < s->item_count; i++)
		if (strcmp(s->items[i].name, d->name) == 0)
			return ckb_err(err, CKPT_EINVAL, "item '%s' is given "
				       "twice", d->name);
	return ckw_check_json(d->metadata, "the item's metadata", err);
}

int ckpt_save_item(struct ckpt_save *s, const struct ckpt_item_desc *d,
		   uint32_t *out_item, struct ckpt_err *err)
{
	const char *separator = d->separator ? d->separator : ".";
	int rc = ckw_describing(s, err);

	if (rc == 0)
		rc = check_item_desc(s, d, separator, err);
	if (rc < 0)
		return rc;
	if (s->item_count >= UINT32_MAX)
		return ckb_err(err, CKPT_ELIMIT, "too many items");
	if (!ckb_room(&s->items, s->item_count, &s->item_cap,
		      sizeof(*s->items)))
		return ckb_err_nomem(err);
	struct ckw_item *it = &s->items[s->item_count];

	*it = (struct ckw_item){ .kind = d->kind };
	if (!ckw_copy_text(&it->name, d->name) ||
	    !ckw_copy_text(&it->separator, separator) ||
	    !ckw_copy_text(&it->metadata, d->metadata)) {
		ckw_item_fini(it);
		return ckb_err_nomem(err);
	}
	*out_item = (uint32_t)s->item_count++;
	return 0;
}

static int check_item(const struct ckpt_save *s, uint32_t item, bool tensor,
		      struct ckpt_err *err)
{
	if (item >= s->item_count)
		return ckb_err(err, CKPT_EINVAL, "there is no item %u", item);
	bool takes = s->items[item].kind == CKPT_ITEM_TENSORS;

	return takes == tensor ? 0
	     : ckb_err(err, CKPT_EINVAL, "item '%s' takes %s",
		       s->items[item].name, takes ? "tensors, not files"
						  : "files, not tensors");
}

/* ---- names: an open-addressing set of entry numbers plus one ---- */

static size_t name_slot(const struct ckpt_save *s, uint32_t item,
			const char *name, size_t len)
{
	uint64_t h = ckb_xxh3_u32(item, name, len);
	size_t at = (size_t)h & (s->names_cap - 1);

	while (s->names[at]) {
		const struct ckw_tensor *t = &s->tensors[s->names[at] - 1];

		if (t->item == item && t->name_len == len &&
		    memcmp(t->name, name, len) == 0)
			break;
		at = (at + 1) & (s->names_cap - 1);
	}
	return at;
}

static bool grow_names(struct ckpt_save *s)
{
	size_t cap = s->names_cap ? s->names_cap * 2 : 256;

	if ((s->tensor_count + 1) * 2 <= s->names_cap)
		return true;
	uint32_t *grown = calloc(cap, sizeof(*grown));

	if (!grown)
		return false;
	free(s->names);
	s->names = grown;
	s->names_cap = cap;
	for (size_t i = 0; i < s->tensor_count; i++) {
		const struct ckw_tensor *t = &s->tensors[i];

		s->names[name_slot(s, t->item, t->name, t->name_len)] =
			(uint32_t)i + 1;
	}
	return true;
}

/* The entry of this name, or SIZE_MAX. */
static size_t find_name(const struct ckpt_save *s, uint32_t item,
			const char *name, size_t len)
{
	if (s->names_cap == 0)
		return SIZE_MAX;
	uint32_t n = s->names[name_slot(s, item, name, len)];

	return n ? n - 1 : SIZE_MAX;
}

/* ---- entries ---- */

void ckw_tensor_fini(struct ckw_tensor *t)
{
	ckpt_provider_release(&t->provider);
	free(t->name);
	free(t->shape);
	free(t->boxes);
	free(t->media_type);
	ckb_buf_fini(&t->chunks);
}

int ckw_grid(const struct ckw_tensor *t, struct ckt_grid *out,
	     struct ckpt_err *err)
{
	if (!t->media_type)
		return ckt_grid_init(out, t->dtype, t->shape, err);
	ckt_grid_init_file(out, t->bytes);
	return 0;
}

void ckw_box(const struct ckw_tensor *t, const struct ckt_grid *grid,
	     uint32_t i, struct ckpt_box *out)
{
	const uint64_t *b = t->boxes + 2 * (size_t)i * t->box_ndim;
	size_t half = t->box_ndim * sizeof(*b);

	if (!t->boxes) {
		ckt_box_whole(out, grid->ndim, grid->shape);
		return;
	}
	out->ndim = t->box_ndim;
	memcpy(out->origin, b, half);
	memcpy(out->extent, b + t->box_ndim, half);
}

/* Take the provider out of the caller's hands, whatever happens. */
static struct ckpt_provider take_provider(struct ckpt_provider *p)
{
	struct ckpt_provider mine = { NULL, NULL };

	if (p) {
		mine = *p;
		*p = (struct ckpt_provider){ NULL, NULL };
	}
	return mine;
}

/* A usable table with exactly @bytes bytes behind it. */
bool ckw_serialises(const struct ckpt_provider *p)
{
	return p->ops &&
	       p->ops->size >= offsetof(struct ckpt_provider_ops, flags) &&
	       p->ops->serialise;
}

bool ckw_parallel(const struct ckpt_provider *p)
{
	return p->ops && p->ops->size >= sizeof(*p->ops) &&
	       (p->ops->flags & CKPT_PROVIDER_PARALLEL);
}

static int check_provider(const struct ckpt_provider *p, uint64_t bytes,
			  struct ckpt_err *err)
{
	const struct ckpt_provider_ops *ops = p->ops;

	if (!ops)
		return bytes == 0 ? 0
		     : ckb_err(err, CKPT_EINVAL, "no data: it has %ju bytes "
			       "and no provider", (uintmax_t)bytes);
	if (ckw_serialises(p))
		return 0; /* its bytes tell */
	if (bytes == CKPT_UNKNOWN)
		return ckb_err(err, CKPT_EINVAL, "its size is not given, and "
			       "its provider does not serialise");
	if (ops->size < offsetof(struct ckpt_provider_ops, bytes) ||
	    !ops->read)
		return ckb_err(err, CKPT_EINVAL, "its provider's table has no "
			       "read function or too small a size");
	if (ops->size < offsetof(struct ckpt_provider_ops, serialise) ||
	    !ops->bytes)
		return 0;
	uint64_t have = ops->bytes(p->ctx);

	return have == bytes ? 0
	     : ckb_err(err, CKPT_EINVAL, "its provider has %ju bytes, but its "
		       "%ju bytes are described", (uintmax_t)have,
		       (uintmax_t)bytes);
}

static bool take_name(struct ckw_tensor *t, const char *name, size_t len)
{
	t->name = malloc(len + 1);
	if (!t->name)
		return false;
	memcpy(t->name, name, len);
	t->name[len] = '\0';
	t->name_len = len;
	return true;
}

/* Only the dims that are there: a million tensors have shapes. */
static bool take_shape(struct ckw_tensor *t, uint32_t ndim,
		       const uint64_t *dims)
{
	size_t len = ndim * sizeof(*dims);

	uint8_t *p = malloc(offsetof(struct ckpt_shape, dim) + len);

	if (!p)
		return false;
	memcpy(p + offsetof(struct ckpt_shape, ndim), &ndim, sizeof(ndim));
	memcpy(p + offsetof(struct ckpt_shape, dim), dims, len);
	t->shape = (struct ckpt_shape *)p;
	return true;
}

/* Add @t (moved in) unless its name is taken. */
static int add(struct ckpt_save *s, struct ckw_tensor *t, struct ckpt_err *err)
{
	if (find_name(s, t->item, t->name, t->name_len) != SIZE_MAX)
		return ckb_err(err, CKPT_EINVAL, "it is given twice in item "
			       "'%s'", s->items[t->item].name);
	if (s->tensor_count >= UINT32_MAX - 1)
		return ckb_err(err, CKPT_ELIMIT, "there are too many entries");
	if (!grow_names(s) ||
	    !ckb_room(&s->tensors, s->tensor_count, &s->tensor_cap,
		  sizeof(*s->tensors)))
		return ckb_err_nomem(err);
	s->names[name_slot(s, t->item, t->name, t->name_len)] =
		(uint32_t)s->tensor_count + 1;
	t->number = (uint32_t)s->tensor_count;
	s->tensors[s->tensor_count++] = *t;
	atomic_fetch_add_explicit(&s->total, t->held, memory_order_relaxed);
	return 0;
}

/* ---- tensors ---- */

static int check_alias(const struct ckpt_save *s, struct ckw_tensor *t,
		       const struct ckpt_tensor_desc *d, struct ckpt_err *err)
{
	size_t len = d->alias_of_len ? d->alias_of_len : strlen(d->alias_of);
	char q[CKB_QUOTE_BYTES];

	t->alias_of = len <= CKB_TENSOR_NAME_MAX
			      ? find_name(s, t->item, d->alias_of, len)
			      : SIZE_MAX;
	ckb_quote(q, sizeof(q), d->alias_of, len);
	if (t->alias_of == SIZE_MAX)
		return ckb_err(err, CKPT_EINVAL, "it is an alias of '%s', "
			       "which is not described", q);
	const struct ckw_tensor *a = &s->tensors[t->alias_of];

	if (a->alias_of != SIZE_MAX)
		return ckb_err(err, CKPT_EINVAL, "it is an alias of '%s', "
			       "which is an alias itself", q);
	if (a->dtype != t->dtype || a->shape->ndim != t->shape->ndim ||
	    memcmp(a->shape->dim, t->shape->dim,
		   t->shape->ndim * sizeof(uint64_t)) != 0)
		return ckb_err(err, CKPT_EINVAL, "it is an alias of '%s', "
			       "whose dtype or shape differs", q);
	if (t->provider.ops)
		return ckb_err(err, CKPT_EINVAL, "an alias has no bytes of "
			       "its own, yet a provider is given");
	return 0;
}

static void put_box(struct ckw_tensor *t, uint32_t i,
		    const struct ckpt_box *box)
{
	uint64_t *to = t->boxes + 2 * (size_t)i * t->box_ndim;
	size_t half = t->box_ndim * sizeof(*to);

	memcpy(to, box->origin, half);
	memcpy(to + t->box_ndim, box->extent, half);
}

/* One whole box that nobody else holds is no layout. */
static void drop_plain_box(struct ckw_tensor *t, const struct ckt_grid *grid)
{
	struct ckpt_box whole, box;

	if (t->box_count != 1 || t->replica_count != 1)
		return;
	ckt_box_whole(&whole, grid->ndim, grid->shape);
	ckw_box(t, grid, 0, &box);
	if (!ckt_box_equal(&whole, &box))
		return;
	free(t->boxes);
	t->boxes = NULL;
	t->box_count = 0;
}

/* The boxes as given -> storage space, and what they hold. */
static int take_boxes(struct ckw_tensor *t, const struct ckpt_tensor_desc *d,
		      struct ckpt_err *err)
{
	struct ckt_grid grid;
	struct ckpt_box box;
	int rc = ckt_grid_init(&grid, t->dtype, t->shape, err);

	t->held = t->bytes;
	if (rc < 0 || (d->box_count == 0 && t->replica_count == 1))
		return rc;
	if (d->box_count > CKB_SHARD_MAX)
		return ckb_err(err, CKPT_ELIMIT, "%u boxes are more than %u",
			       d->box_count, CKB_SHARD_MAX);
	if (d->box_count > 0 && !d->boxes)
		return ckb_err(err, CKPT_EINVAL, "%u boxes are counted, and "
			       "none is given", d->box_count);
	t->box_count = d->box_count ? d->box_count : 1;
	t->box_ndim = grid.ndim;
	t->boxes = calloc((size_t)t->box_count * 2 * grid.ndim + 1,
			  sizeof(*t->boxes));
	if (!t->boxes)
		return ckb_err_nomem(err);
	if (d->box_count == 0) {
		ckt_box_whole(&box, grid.ndim, grid.shape);
		put_box(t, 0, &box);
		return 0;
	}
	t->held = 0;
	for (uint32_t i = 0; i < d->box_count; i++) {
		rc = ckt_grid_box(&grid, t->dtype, t->shape, &d->boxes[i],
				  &box, err);
		if (rc < 0)
			return rc;
		put_box(t, i, &box);
		/* a million boxes of 2^63 bytes pass 2^64: overlaps, which
		 * start refuses; here they must not come out as small */
		if (!ckb_add_u64(t->held,
				 ckt_box_bytes(&box, grid.item_bytes),
				 &t->held))
			return ckb_err(err, CKPT_EINVAL, "its boxes overlap: "
				       "they hold more than 2^64 bytes");
	}
	drop_plain_box(t, &grid);
	return 0;
}

static int describe(struct ckpt_save *s, struct ckw_tensor *t,
		    const struct ckpt_tensor_desc *d, struct ckpt_err *err)
{
	int rc = ckf_tensor_name(t->name, t->name_len, err);

	if (rc == 0)
		rc = ckt_shape_bytes(d->dtype, &d->shape, &t->bytes, err);
	if (rc < 0)
		return rc;
	t->dtype = d->dtype;
	if (!take_shape(t, d->shape.ndim, d->shape.dim))
		return ckb_err_nomem(err);
	t->replica_count = d->replica_count ? d->replica_count : 1;
	t->replica = d->replica;
	if (t->replica >= t->replica_count)
		return ckb_err(err, CKPT_EINVAL, "replica %u of %u cannot be: "
			       "they count from 0", t->replica,
			       t->replica_count);
	if (d->alias_of)
		return check_alias(s, t, d, err);
	rc = take_boxes(t, d, err);
	return rc == 0 ? check_provider(&t->provider, t->held, err) : rc;
}

static int check_tensor_desc(const struct ckpt_tensor_desc *d, size_t *out_len,
			     struct ckpt_err *err)
{
	if (d->size < sizeof(*d))
		return ckb_err(err, CKPT_EINVAL, "ckpt_tensor_desc.size is "
			       "%zu, not %zu", d->size, sizeof(*d));
	if (!d->name)
		return ckb_err(err, CKPT_EINVAL, "a tensor has no name");
	*out_len = d->name_len ? d->name_len : strlen(d->name);
	/* before it is copied: a length that is no length ends here (S10) */
	return *out_len <= CKB_TENSOR_NAME_MAX
		       ? 0 : ckf_tensor_name(d->name, *out_len, err);
}

int ckpt_save_tensor(struct ckpt_save *s, uint32_t item,
		     const struct ckpt_tensor_desc *d,
		     struct ckpt_provider *provider, struct ckpt_err *err)
{
	struct ckw_tensor t = { .item = item, .alias_of = SIZE_MAX,
				.provider = take_provider(provider) };
	char q[CKB_QUOTE_BYTES];
	size_t len = 0;
	int rc = ckw_describing(s, err);

	if (rc == 0)
		rc = check_item(s, item, true, err);
	if (rc == 0)
		rc = check_tensor_desc(d, &len, err);
	if (rc == 0 && !take_name(&t, d->name, len))
		rc = ckb_err_nomem(err);
	if (rc == 0) {
		rc = describe(s, &t, d, err);
		if (rc == 0)
			rc = add(s, &t, err);
		if (rc < 0)
			ckb_err_prefix(err, rc, "tensor '%s'",
				       ckb_quote(q, sizeof(q), t.name,
						 t.name_len));
	}
	if (rc < 0)
		ckw_tensor_fini(&t);
	return rc;
}

/* ---- files ---- */

static int describe_file(struct ckw_tensor *t, const char *media_type,
			 struct ckpt_err *err)
{
	size_t len = strlen(media_type);
	int rc = ckf_file_name(t->name, t->name_len, err);

	if (rc < 0)
		return rc;
	if (len > CKB_MEDIA_TYPE_MAX || !ckb_utf8_ok(media_type, len))
		return ckb_err(err, CKPT_EINVAL, "its media type is over %u "
			       "bytes or not UTF-8", CKB_MEDIA_TYPE_MAX);
	t->late = t->bytes == CKPT_UNKNOWN;
	if (t->bytes > INT64_MAX && !t->late)
		return ckb_err(err, CKPT_ELIMIT, "it has 2^63 bytes or more");
	rc = check_provider(&t->provider, t->bytes, err);
	if (rc < 0)
		return rc;
	if (t->late)
		t->bytes = 0;
	t->held = t->bytes;
	if (!ckw_copy_text(&t->media_type, media_type) ||
	    !take_shape(t, 1, &t->bytes))
		return ckb_err_nomem(err);
	return 0;
}

int ckpt_save_file(struct ckpt_save *s, uint32_t item, const char *name,
		   const char *media_type, uint64_t bytes,
		   struct ckpt_provider *provider, struct ckpt_err *err)
{
	struct ckw_tensor t = { .item = item, .alias_of = SIZE_MAX,
				.dtype = CKPT_U8, .bytes = bytes,
				.replica_count = 1,
				.provider = take_provider(provider) };
	char q[CKB_QUOTE_BYTES];
	int rc = ckw_describing(s, err);

	if (rc == 0)
		rc = check_item(s, item, false, err);
	if (rc == 0 && !name)
		rc = ckb_err(err, CKPT_EINVAL, "a file has no name");
	if (rc == 0 && !take_name(&t, name, strlen(name)))
		rc = ckb_err_nomem(err);
	if (rc == 0) {
		rc = describe_file(&t, media_type ? media_type : "", err);
		if (rc == 0)
			rc = add(s, &t, err);
		if (rc < 0)
			ckb_err_prefix(err, rc, "file '%s'",
				       ckb_quote(q, sizeof(q), t.name,
						 t.name_len));
	}
	if (rc < 0)
		ckw_tensor_fini(&t);
	return rc;
}

static int check_parents(const struct ckpt_save *s, const struct ckw_tensor *t,
			 struct ckpt_err *err)
{
	char file[CKB_QUOTE_BYTES], inside[CKB_QUOTE_BYTES];

	for (size_t len = 0; len < t->name_len; len++) {
		if (t->name[len] != '/' ||
		    find_name(s, t->item, t->name, len) == SIZE_MAX)
			continue;
		return ckb_err(err, CKPT_EINVAL, "item '%s' cannot hold both "
			       "file '%s' and file '%s': the first would have "
			       "to be a folder", s->items[t->item].name,
			       ckb_quote(file, sizeof(file), t->name, len),
			       ckb_quote(inside, sizeof(inside), t->name,
					 t->name_len));
	}
	return 0;
}

int ckw_check_folders(const struct ckpt_save *s, struct ckpt_err *err)
{
	int rc = 0;

	for (size_t i = 0; rc == 0 && i < s->tensor_count; i++)
		if (s->tensors[i].media_type)
			rc = check_parents(s, &s->tensors[i], err);
	return rc;
}
