/* SPDX-License-Identifier: Apache-2.0 */
/*
 * save.c - one save as its caller sees it: begin, describe, start, wait.
 *
 *	begin -> DESCRIBING -start-> RUNNING -> CAPTURED -> DONE
 *	                                \----------\------> FAILED
 *
 * begin is the check phase: it refuses what can be refused before anything is
 * described. Descriptions are checked one by one, copied, and change nothing on
 * disk. start proves coverage (S7) and hands everything to one thread, which
 * alone touches the pipeline's fields; state and error pass through `lock`.
 * Providers are released exactly once, on every path.
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/hash.h"
#include "base/limits.h"
#include "base/log.h"
#include "format/config.h"
#include "format/name.h"
#include "save.h"
#include "tensor/box.h"
#include "tensor/stats.h"

#define PROGRAM "libckpt " CKPT_VERSION

void ckw_set_state(struct ckpt_save *s, enum ckw_state state,
		   const struct ckpt_err *err)
{
	pthread_mutex_lock(&s->lock);
	s->state = state;
	if (err)
		s->err = *err;
	pthread_cond_broadcast(&s->changed);
	pthread_mutex_unlock(&s->lock);
}

/* ---- begin ---- */

/* "run/4000" -> 4000; a last component that is no number has no step. */
static bool step_of(const char *name, uint64_t *out)
{
	const char *s = strrchr(name, '/');
	char *end;

	s = s ? s + 1 : name;
	if (*s < '0' || *s > '9' || strlen(s) > 18)
		return false;
	*out = strtoull(s, &end, 10);
	return *end == '\0';
}

/* Free to take? Before anything is read or copied; commit decides. */
static int check_name(struct ckpt_store *store,
		      const struct ckpt_save_desc *d, struct ckpt_err *err)
{
	bool is_run = false;
	int rc = ckf_checkpoint_name(d->name, err);

	if (rc < 0)
		return rc;
	CKB_FREE char *part = strdup(d->name);

	if (!part)
		return ckb_err_nomem(err);
	for (char *slash = strchr(part, '/'); slash;
	     slash = strchr(slash + 1, '/')) {
		*slash = '\0';
		rc = cks_name_stat(store, part, &is_run, NULL, err);
		if (rc == 0 && !is_run)
			return ckb_err(err, CKPT_EEXIST, "cannot save '%s': "
				       "'%s' is a checkpoint, not a run",
				       d->name, part);
		*slash = '/';
	}
	rc = cks_name_stat(store, d->name, &is_run, NULL, err);
	if (rc == CKPT_ENOENT)
		return 0;
	if (rc == 0 && is_run)
		return ckb_err(err, CKPT_EEXIST, "cannot save '%s': it is a "
			       "run, which holds checkpoints", d->name);
	if (rc == 0 && !d->replace)
		return ckb_err(err, CKPT_EEXIST, "checkpoint '%s' exists; "
			       "name another, or ask to replace it", d->name);
	return rc;
}

static bool copy_text(char **to, const char *from)
{
	*to = from ? strdup(from) : NULL;
	return !from || *to;
}

static int take_parent(struct ckpt_save *s, const char *parent,
		       struct ckpt_err *err)
{
	struct ckpt_checkpoint *c = NULL;

	if (!parent)
		return 0;
	int rc = ckpt_checkpoint_open(s->writer->store, parent, &c, err);

	if (rc < 0)
		return ckb_err_prefix(err, rc, "the parent");
	s->has_parent = true;
	memcpy(s->parent, ckpt_checkpoint_info(c)->uuid, sizeof(s->parent));
	ckpt_checkpoint_close(c);
	return 0;
}

static int begin(struct ckpt_save *s, const struct ckpt_save_desc *d,
		 struct ckpt_err *err)
{
	struct ckpt_store *store = s->writer->store;
	const struct ckb_sys *sys = cks_store_sys(store);
	uint8_t attempt[CKPT_UUID_BYTES];
	int rc = check_name(store, d, err);

	if (rc == 0)
		rc = ckf_json_object(d->metadata, "the metadata", err);
	if (rc == 0)
		rc = ckf_json_object(d->metrics, "the metrics", err);
	if (rc == 0)
		rc = take_parent(s, d->parent, err);
	if (rc < 0)
		return rc;
	s->replace = d->replace;
	s->has_step = d->has_step || step_of(d->name, &s->step);
	if (d->has_step)
		s->step = d->step;
	if (!copy_text(&s->name, d->name) ||
	    !copy_text(&s->metadata, d->metadata) ||
	    !copy_text(&s->metrics, d->metrics) ||
	    !copy_text(&s->program, d->program ? d->program : PROGRAM))
		return ckb_err_nomem(err);
	rc = sys->random(sys, s->uuid, sizeof(s->uuid));
	if (rc == 0)
		rc = sys->random(sys, attempt, sizeof(attempt));
	if (rc < 0)
		return ckb_err_sys(err, -rc, "no random numbers");
	s->uuid[6] = (uint8_t)((s->uuid[6] & 0x0f) | 0x40);
	s->uuid[8] = (uint8_t)((s->uuid[8] & 0x3f) | 0x80);
	rc = cks_stage_open(store, s->name, d->attempt ? d->attempt : attempt,
			    &s->stage, err);
	return rc == 0 ? cks_find_new(store, s->stage, &s->find, err) : rc;
}

int ckpt_save_begin(struct ckpt_writer *writer,
		    const struct ckpt_save_desc *desc, struct ckpt_save **out,
		    struct ckpt_err *err)
{
	struct ckpt_save *s = calloc(1, sizeof(*s));

	*out = NULL;
	if (!s)
		return ckb_err_nomem(err);
	s->writer = writer;
	pthread_mutex_init(&s->lock, NULL);
	pthread_cond_init(&s->changed, NULL);
	pthread_mutex_lock(&writer->lock);
	writer->open_saves++;
	pthread_mutex_unlock(&writer->lock);
	int rc = begin(s, desc, err);

	if (rc < 0) {
		s->waited = true; /* this call tells it */
		ckpt_save_free(s);
		return rc;
	}
	*out = s;
	return 0;
}

/* ---- describe ---- */

static int describing(const struct ckpt_save *s, struct ckpt_err *err)
{
	return !s->started ? 0
	     : ckb_err(err, CKPT_ESTATE, "save '%s' was started already",
		       s->name);
}

static bool room(void *array, size_t count, size_t *cap, size_t each)
{
	void **p = array;

	if (count < *cap)
		return true;
	size_t more = *cap ? *cap * 2 : 16;
	void *grown = realloc(*p, more * each);

	if (!grown)
		return false;
	*p = grown;
	*cap = more;
	return true;
}

int ckpt_save_item(struct ckpt_save *s, const struct ckpt_item_desc *d,
		   uint32_t *out_item, struct ckpt_err *err)
{
	const char *separator = d->separator ? d->separator : ".";
	int rc = describing(s, err);

	if (rc == 0)
		rc = ckf_item_name(d->name, d->kind == CKPT_ITEM_ORIGIN, err);
	if (rc == 0)
		rc = ckf_json_object(d->metadata, "the item's metadata", err);
	if (rc < 0)
		return rc;
	if (d->kind < CKPT_ITEM_TENSORS || d->kind > CKPT_ITEM_ORIGIN)
		return ckb_err(err, CKPT_EINVAL, "item '%s' has no kind",
			       d->name);
	if (strlen(separator) > 1 || (unsigned char)*separator > 127)
		return ckb_err(err, CKPT_EINVAL, "item '%s': the separator is "
			       "one ASCII character or none", d->name);
	for (size_t i = 0; i < s->item_count; i++)
		if (strcmp(s->items[i].name, d->name) == 0)
			return ckb_err(err, CKPT_EINVAL, "item '%s' is given "
				       "twice", d->name);
	if (!room(&s->items, s->item_count, &s->item_cap, sizeof(*s->items)))
		return ckb_err_nomem(err);
	struct ckw_item *it = &s->items[s->item_count];

	*it = (struct ckw_item){ .kind = d->kind };
	if (!copy_text(&it->name, d->name) ||
	    !copy_text(&it->separator, separator) ||
	    !copy_text(&it->metadata, d->metadata)) {
		free(it->name);
		free(it->separator);
		return ckb_err_nomem(err);
	}
	*out_item = (uint32_t)s->item_count++;
	return 0;
}

static void tensor_fini(struct ckw_tensor *t)
{
	ckpt_provider_release(&t->provider);
	free(t->name);
	free(t->shape);
	free(t->boxes);
	free(t->media_type);
	ckb_buf_fini(&t->chunks);
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
	free(s->names);
	s->names = calloc(cap, sizeof(*s->names));
	s->names_cap = s->names ? cap : 0;
	for (size_t i = 0; s->names && i < s->tensor_count; i++) {
		const struct ckw_tensor *t = &s->tensors[i];

		s->names[name_slot(s, t->item, t->name, t->name_len)] =
			(uint32_t)i + 1;
	}
	return s->names != NULL;
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

/* Add @t (moved in) unless its name is taken. */
static int add(struct ckpt_save *s, struct ckw_tensor *t, struct ckpt_err *err)
{
	char q[CKB_QUOTE_BYTES];

	if (find_name(s, t->item, t->name, t->name_len) != SIZE_MAX)
		return ckb_err(err, CKPT_EINVAL, "'%s' is given twice in item "
			       "'%s'", ckb_quote(q, sizeof(q), t->name,
						 t->name_len),
			       s->items[t->item].name);
	if (s->tensor_count >= UINT32_MAX - 1)
		return ckb_err(err, CKPT_ELIMIT, "too many tensors");
	if (!grow_names(s) ||
	    !room(&s->tensors, s->tensor_count, &s->tensor_cap,
		  sizeof(*s->tensors)))
		return ckb_err_nomem(err);
	s->names[name_slot(s, t->item, t->name, t->name_len)] =
		(uint32_t)s->tensor_count + 1;
	s->tensors[s->tensor_count++] = *t;
	if (t->alias_of == SIZE_MAX)
		atomic_fetch_add(&s->total, t->bytes);
	return 0;
}

static int check_alias(const struct ckpt_save *s, struct ckw_tensor *t,
		       const struct ckpt_tensor_desc *d, struct ckpt_err *err)
{
	size_t len = d->alias_of_len == SIZE_MAX ? strlen(d->alias_of)
						 : d->alias_of_len;
	char q[CKB_QUOTE_BYTES];

	t->alias_of = find_name(s, t->item, d->alias_of, len);
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

/* The boxes as given -> storage space. */
static int take_boxes(struct ckw_tensor *t, const struct ckpt_tensor_desc *d,
		      struct ckpt_err *err)
{
	struct ckt_grid grid;
	int rc = ckt_grid_init(&grid, t->dtype, t->shape, err);

	if (rc < 0 || d->box_count == 0)
		return rc;
	if (d->box_count > CKB_SHARD_MAX)
		return ckb_err(err, CKPT_ELIMIT, "%u boxes are too many",
			       d->box_count);
	t->boxes = calloc(d->box_count, sizeof(*t->boxes));
	if (!t->boxes)
		return ckb_err_nomem(err);
	t->box_count = d->box_count;
	for (uint32_t i = 0; rc == 0 && i < d->box_count; i++)
		rc = ckt_grid_box(&grid, t->dtype, t->shape, &d->boxes[i],
				  &t->boxes[i], err);
	return rc;
}

static int describe(struct ckpt_save *s, struct ckw_tensor *t,
		    const struct ckpt_tensor_desc *d, struct ckpt_err *err)
{
	size_t dims = d->shape.ndim * sizeof(d->shape.dim[0]);
	int rc = ckf_tensor_name(t->name, t->name_len, err);

	if (rc == 0)
		rc = ckt_shape_bytes(d->dtype, &d->shape, &t->bytes, err);
	if (rc < 0)
		return rc;
	t->dtype = d->dtype;
	t->shape = malloc(offsetof(struct ckpt_shape, dim) + dims + 8);
	if (!t->shape)
		return ckb_err_nomem(err);
	t->shape->ndim = d->shape.ndim;
	memcpy(t->shape->dim, d->shape.dim, dims);
	if (d->replica_count > 1 && d->replica >= d->replica_count)
		return ckb_err(err, CKPT_EINVAL, "replica %u of %u cannot be",
			       d->replica, d->replica_count);
	t->replica = d->replica_count > 1 ? d->replica : 0;
	t->replica_count = d->replica_count ? d->replica_count : 1;
	if (d->alias_of)
		return check_alias(s, t, d, err);
	rc = take_boxes(t, d, err);
	if (rc == 0 && t->bytes > 0 && !t->provider.ops)
		rc = ckb_err(err, CKPT_EINVAL, "no data: it has %ju bytes and "
			     "no provider", (uintmax_t)t->bytes);
	return rc;
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

int ckpt_save_tensor(struct ckpt_save *s, uint32_t item,
		     const struct ckpt_tensor_desc *d,
		     struct ckpt_provider *provider, struct ckpt_err *err)
{
	struct ckw_tensor t = { .item = item, .alias_of = SIZE_MAX,
				.provider = take_provider(provider) };
	char q[CKB_QUOTE_BYTES];
	int rc = describing(s, err);

	if (rc == 0)
		rc = check_item(s, item, true, err);
	if (rc == 0) {
		t.name_len = d->name_len == SIZE_MAX ? strlen(d->name)
						     : d->name_len;
		t.name = malloc(t.name_len + 1);
		if (t.name) {
			memcpy(t.name, d->name, t.name_len);
			t.name[t.name_len] = '\0';
			rc = describe(s, &t, d, err);
			if (rc < 0)
				ckb_err_prefix(err, rc, "tensor '%s'",
					       ckb_quote(q, sizeof(q), t.name,
							 t.name_len));
		} else {
			rc = ckb_err_nomem(err);
		}
	}
	if (rc == 0)
		rc = add(s, &t, err);
	if (rc < 0)
		tensor_fini(&t);
	return rc;
}

int ckpt_save_file(struct ckpt_save *s, uint32_t item, const char *name,
		   const char *media_type, uint64_t bytes,
		   struct ckpt_provider *provider, struct ckpt_err *err)
{
	struct ckw_tensor t = { .item = item, .alias_of = SIZE_MAX,
				.dtype = CKPT_U8, .bytes = bytes,
				.replica_count = 1,
				.provider = take_provider(provider) };
	int rc = describing(s, err);

	if (rc == 0)
		rc = check_item(s, item, false, err);
	if (rc == 0)
		rc = ckf_tensor_name(name, strlen(name), err);
	if (rc == 0 && media_type && strlen(media_type) > CKB_MEDIA_TYPE_MAX)
		rc = ckb_err(err, CKPT_ELIMIT, "the media type of file '%s' "
			     "is too long", name);
	if (rc == 0 && bytes >= 1ull << 63)
		rc = ckb_err(err, CKPT_ELIMIT, "file '%s' has 2^63 bytes or "
			     "more", name);
	if (rc == 0 && bytes > 0 && !t.provider.ops)
		rc = ckb_err(err, CKPT_EINVAL, "no data: file '%s' has no "
			     "provider", name);
	if (rc == 0) {
		t.name_len = strlen(name);
		t.shape = malloc(offsetof(struct ckpt_shape, dim) + 16);
		if (!copy_text(&t.name, name) || !t.shape ||
		    !copy_text(&t.media_type, media_type ? media_type : ""))
			rc = ckb_err_nomem(err);
	}
	if (rc == 0) {
		t.shape->ndim = 1;
		t.shape->dim[0] = bytes;
		rc = add(s, &t, err);
	}
	if (rc < 0)
		tensor_fini(&t);
	return rc;
}

/* ---- start, wait ---- */

/* S7, once per tensor: its boxes cover it exactly once. */
static int prove_coverage(const struct ckw_tensor *t, struct ckpt_err *err)
{
	struct ckt_grid grid;
	char q[CKB_QUOTE_BYTES];
	uint32_t a, b;

	if (t->box_count == 0)
		return 0;
	int rc = ckt_grid_init(&grid, t->dtype, t->shape, err);

	if (rc == 0)
		rc = ckt_cover_check(grid.ndim, grid.shape, t->boxes,
				     t->box_count, &a, &b, err);
	return rc < 0 ? ckb_err_prefix(err, rc, "tensor '%s'",
				       ckb_quote(q, sizeof(q), t->name,
						 t->name_len)) : 0;
}

int ckpt_save_start(struct ckpt_save *s, struct ckpt_err *err)
{
	struct ckpt_writer *w = s->writer;
	int rc = describing(s, err);

	for (size_t i = 0; rc == 0 && i < s->tensor_count; i++)
		rc = prove_coverage(&s->tensors[i], err);
	if (rc < 0)
		return rc;
	pthread_mutex_lock(&w->lock);
	s->ticket = w->next_ticket++;
	pthread_mutex_unlock(&w->lock);
	s->started = true;
	s->state = CKW_RUNNING;
	rc = pthread_create(&s->thread, NULL, ckw_run, s);
	if (rc != 0) {
		struct ckpt_err why;

		ckb_err_sys(&why, rc, "cannot start the save's thread");
		if (err)
			*err = why;
		ckw_set_state(s, CKW_FAILED, &why);
		ckw_pass_turn(s);
		return why.code;
	}
	s->threaded = true;
	return 0;
}

int ckpt_save_wait(struct ckpt_save *s, enum ckpt_phase phase,
		   struct ckpt_err *err)
{
	enum ckw_state want = phase == CKPT_CAPTURED ? CKW_CAPTURED
						     : CKW_DONE;
	int rc = 0;

	if (!s->started)
		return ckb_err(err, CKPT_ESTATE, "save '%s' was not started",
			       s->name);
	pthread_mutex_lock(&s->lock);
	while (s->state < want)
		pthread_cond_wait(&s->changed, &s->lock);
	if (s->state == CKW_FAILED) {
		rc = s->err.code;
		if (err)
			*err = s->err;
		s->waited = true;
	}
	pthread_mutex_unlock(&s->lock);
	return rc;
}

void ckpt_save_progress(const struct ckpt_save *s,
			struct ckpt_save_progress *out)
{
	out->bytes_total = atomic_load(&s->total);
	out->bytes_captured = atomic_load(&s->captured);
	out->bytes_new = atomic_load(&s->fresh);
	out->bytes_written = atomic_load(&s->written);
	out->chunk_count = atomic_load(&s->chunks);
	out->chunk_new_count = atomic_load(&s->fresh_chunks);
}

const uint8_t *ckpt_save_uuid(const struct ckpt_save *s)
{
	return s->uuid;
}

void ckpt_save_abort(struct ckpt_save *s)
{
	atomic_store_explicit(&s->abort, true, memory_order_relaxed);
	pthread_mutex_lock(&s->writer->lock);
	pthread_cond_broadcast(&s->writer->turn_changed);
	pthread_mutex_unlock(&s->writer->lock);
	pthread_mutex_lock(&s->lock);
	while (s->threaded && s->state < CKW_DONE)
		pthread_cond_wait(&s->changed, &s->lock);
	pthread_mutex_unlock(&s->lock);
}

void ckpt_save_free(struct ckpt_save *s)
{
	if (!s)
		return;
	if (s->threaded) {
		ckpt_save_abort(s);
		pthread_join(s->thread, NULL);
		if (s->state == CKW_FAILED && !s->waited &&
		    s->err.code != CKPT_ECANCELED)
			ckb_log(CKB_ERROR, "checkpoint '%s' was not saved: %s",
				s->name, s->err.message);
	}
	for (size_t i = 0; i < s->tensor_count; i++)
		tensor_fini(&s->tensors[i]);
	for (size_t i = 0; i < s->item_count; i++) {
		free(s->items[i].name);
		free(s->items[i].separator);
		free(s->items[i].metadata);
	}
	ckc_codec_free(s->codec);
	ckc_pack_writer_close(s->pack);
	cks_find_free(s->find);
	cks_stage_close(s->stage);
	pthread_mutex_lock(&s->writer->lock);
	s->writer->open_saves--;
	pthread_mutex_unlock(&s->writer->lock);
	pthread_mutex_destroy(&s->lock);
	pthread_cond_destroy(&s->changed);
	free(s->items);
	free(s->tensors);
	free(s->names);
	free(s->packs);
	free(s->name);
	free(s->metadata);
	free(s->metrics);
	free(s->program);
	free(s);
}
