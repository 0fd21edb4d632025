/* SPDX-License-Identifier: Apache-2.0 */
/*
 * ckpt.c - checkpoints behind nodes, and the few of them that are open.
 *
 * A ckv_ckpt says which checkpoint it is: name, state of the manifest file,
 * uuid and generation; all nodes below it share it, and it costs a few hundred
 * bytes. A replaced checkpoint is another one. Its image - the open manifest,
 * its names and paths - is opened at need and kept while memory and
 * descriptors allow (S9): the one used longest ago goes first, and those that
 * an open file holds go last. So a kernel may remember thousands of
 * checkpoints.
 *
 * Nobody can ask again for a checkpoint that is gone once its last node is
 * put: its image goes with that node, or when the tree is tidied.
 *
 * What is opened again is proved to be the same: else CKPT_ESTALE, so nobody
 * sees half of one and half of another (S3). While the image is open a
 * replaced or removed checkpoint reads on.
 *
 * c->lock is held while a manifest is opened, so that those who wait for the
 * first find its image; tree->lock is taken within it, for a moment, and never
 * held while files are opened or closed.
 */
#include <errno.h>
#include <string.h>

#include "base/hash.h"
#include "catalog/manifest.h"
#include "tree/internal.h"
#include "verbs/checkpoint.h"
#include "verbs/store.h"

/* SQLite's page cache and the like: catalog/manifest.c bounds it. */
#define CONNECTION_BYTES (256u << 10)

struct ckv_id ckv_id(const struct stat *st)
{
	return (struct ckv_id){ .dev = st->st_dev, .ino = st->st_ino,
				.size = (uint64_t)st->st_size,
				.mtime_ns = ckb_time_ns(&st->st_mtim) };
}

bool ckv_id_same(const struct ckv_id *a, const struct ckv_id *b)
{
	return a->ino == b->ino && a->dev == b->dev && a->size == b->size &&
	       a->mtime_ns == b->mtime_ns;
}

/* ---- images ---- */

static void image_free(struct ckv_image *m)
{
	if (!m)
		return;
	ckv_paths_fini(&m->paths);
	ckpt_checkpoint_close(m->ckpt);
	pthread_mutex_destroy(&m->lock);
	free(m->counted);
	free(m->json);
	free(m);
}

/* Bytes of memory, about. */
static size_t image_size(const struct ckv_image *m)
{
	const struct ckpt_checkpoint_info *i = ckpt_checkpoint_info(m->ckpt);
	size_t n = ckpt_tensor_count(m->ckpt);
	size_t bytes = sizeof(*m) + CONNECTION_BYTES + m->paths.texts.cap +
		       m->paths.path_count * sizeof(*m->paths.path) +
		       m->paths.folder_cap * sizeof(*m->paths.folder);

	bytes += i->metadata ? strlen(i->metadata) : 0;
	bytes += i->metrics ? strlen(i->metrics) : 0;
	/* arrays grow by doubling; layout, chunk list and order beside */
	bytes += n * (sizeof(struct ckpt_tensor_info) * 3 / 2 + 40);
	for (size_t t = 0; t < n; t++)
		bytes += ckpt_tensor_at(m->ckpt, t)->name_len + 8;
	return bytes;
}

static int err_replaced(const struct ckv_ckpt *c, struct ckpt_err *err)
{
	return ckb_err(err, CKPT_ESTALE, "checkpoint '%s' was replaced while "
		       "it was looked at", c->name);
}

/* Is the file of its name the one that @c stands for? CKPT_ENOENT: none is
 * there. */
static int look(struct ckv_tree *tree, const struct ckv_ckpt *c,
		bool *out_same, struct ckpt_err *err)
{
	struct stat st = { 0 };
	bool is_run = false;
	int rc = cks_name_stat(tree->store, c->name, &is_run, &st, err);
	struct ckv_id id = ckv_id(&st);

	*out_same = rc == 0 && !is_run && ckv_id_same(&id, &c->id);
	return rc;
}

static int same_file(struct ckv_tree *tree, const struct ckv_ckpt *c,
		     struct ckpt_err *err)
{
	bool same;
	int rc = look(tree, c, &same, err);

	return rc == 0 && !same ? err_replaced(c, err) : rc;
}

/* Removed, renamed or replaced; not what cannot be looked at now. */
static bool is_gone(struct ckv_tree *tree, const struct ckv_ckpt *c)
{
	bool same;
	int rc = look(tree, c, &same, NULL);

	return rc == CKPT_ENOENT || (rc == 0 && !same);
}

/* The name was opened: was it the file that @c stands for? */
static int prove(struct ckv_tree *tree, const struct ckv_ckpt *c,
		 const struct ckpt_checkpoint_info *i, struct ckpt_err *err)
{
	if (c->has_uuid && (memcmp(i->uuid, c->uuid, sizeof(c->uuid)) != 0 ||
			    i->generation != c->generation))
		return err_replaced(c, err);
	return same_file(tree, c, err);
}

static int open_image(struct ckv_tree *tree, struct ckv_ckpt *c,
		      struct ckv_image *m, struct ckpt_err *err)
{
	struct ckpt_err why = { 0 };
	/* before all its names are read: most often it shows there */
	int rc = same_file(tree, c, &why);

	if (rc == 0)
		rc = ckpt_checkpoint_open(tree->store, c->name, &m->ckpt,
					  &why);
	if (rc < 0 && ckv_images_spare(tree, &why))
		rc = ckpt_checkpoint_open(tree->store, c->name, &m->ckpt,
					  &why);
	if (rc == 0)
		rc = prove(tree, c, ckpt_checkpoint_info(m->ckpt), &why);
	if (rc == 0)
		rc = ckv_paths_init(&m->paths, m->ckpt, &why);
	/* not "there is no such name in it", which would be so for ever */
	if (rc == CKPT_ENOENT)
		return ckb_err(err, CKPT_ESTALE, "checkpoint '%s' was removed "
			       "while it was looked at", c->name);
	if (rc < 0 && err)
		*err = why;
	return rc;
}

static int image_new(struct ckv_tree *tree, struct ckv_ckpt *c,
		     struct ckv_image **out, struct ckpt_err *err)
{
	struct ckv_image *m = calloc(1, sizeof(*m));
	int rc;

	if (!m)
		return ckb_err_nomem(err);
	pthread_mutex_init(&m->lock, NULL);
	m->of = c;
	m->uses = 1;
	rc = open_image(tree, c, m, err);
	if (rc == 0) {
		m->counted = calloc(ckpt_tensor_count(m->ckpt) + 1, 1);
		if (!m->counted)
			rc = ckb_err_nomem(err);
	}
	if (rc < 0) {
		image_free(m);
		return rc;
	}
	m->bytes = image_size(m);
	*out = m;
	return 0;
}

/* ---- which of them stay open; all under tree->lock ---- */

static bool goes_before(const struct ckv_image *a, const struct ckv_image *b)
{
	bool a_held = a->of->files > 0, b_held = b->of->files > 0;

	return a_held != b_held ? b_held : a->used < b->used;
}

/* Out of the tree, into the list @gone, to be freed without the lock. */
static void drop_image(struct ckv_tree *tree, struct ckv_image *m,
		       struct ckv_image **gone)
{
	struct ckv_image **at = &tree->images;

	while (*at != m)
		at = &(*at)->next;
	*at = m->next;
	tree->image_count--;
	tree->image_bytes -= m->bytes;
	m->of->image = NULL;
	if (m->of->refs == 0)
		ckv_map_remove(&tree->ckpts, &m->of->link);
	else
		m->of = NULL; /* it stays */
	m->next = *gone;
	*gone = m;
}

/* One that is in no use, if it must or should go; NULL: none. */
static struct ckv_image *victim(const struct ckv_tree *tree, bool any)
{
	struct ckv_image *first = NULL;

	if (!any && tree->image_count <= tree->image_max &&
	    (tree->image_bytes <= tree->image_bytes_max ||
	     tree->image_count <= 1))
		return NULL;
	for (struct ckv_image *m = tree->images; m; m = m->next)
		if (m->uses == 0 && (!first || goes_before(m, first)))
			first = m;
	return first;
}

static struct ckv_image *trim(struct ckv_tree *tree, bool all)
{
	struct ckv_image *gone = NULL, *m;

	while ((m = victim(tree, all)) != NULL)
		drop_image(tree, m, &gone);
	return gone;
}

static void ckpt_free(struct ckv_ckpt *c)
{
	pthread_mutex_destroy(&c->lock);
	free(c);
}

/* Without the lock. */
static bool free_images(struct ckv_image *gone)
{
	bool some = gone != NULL;

	while (gone) {
		struct ckv_image *m = gone;

		gone = m->next;
		if (m->of)
			ckpt_free(m->of);
		image_free(m);
	}
	return some;
}

bool ckv_images_spare(struct ckv_tree *tree, const struct ckpt_err *err)
{
	if (err->sys_errno != EMFILE && err->sys_errno != ENFILE)
		return false;
	pthread_mutex_lock(&tree->lock);
	struct ckv_image *gone = trim(tree, true);

	pthread_mutex_unlock(&tree->lock);
	return free_images(gone);
}

/* ---- use of an image ---- */

static struct ckv_image *find_image(struct ckv_tree *tree, struct ckv_ckpt *c)
{
	pthread_mutex_lock(&tree->lock);
	struct ckv_image *m = c->image;

	if (m) {
		m->uses++;
		m->used = ++tree->clock;
	}
	pthread_mutex_unlock(&tree->lock);
	return m;
}

/* A new one, which nobody else can see. */
static void add_image(struct ckv_tree *tree, struct ckv_image *m)
{
	pthread_mutex_lock(&tree->lock);
	m->of->image = m;
	m->used = ++tree->clock;
	m->next = tree->images;
	tree->images = m;
	tree->image_count++;
	tree->image_bytes += m->bytes;
	struct ckv_image *gone = trim(tree, false);

	pthread_mutex_unlock(&tree->lock);
	free_images(gone);
}

int ckv_image_get(struct ckv_tree *tree, struct ckv_ckpt *c,
		  struct ckv_image **out, struct ckpt_err *err)
{
	struct ckv_image *m = find_image(tree, c);
	int rc = 0;

	if (!m) {
		pthread_mutex_lock(&c->lock);
		m = find_image(tree, c); /* of somebody who was first */
		if (!m) {
			rc = image_new(tree, c, &m, err);
			if (rc == 0)
				add_image(tree, m);
		}
		pthread_mutex_unlock(&c->lock);
	}
	if (rc == 0)
		*out = m;
	return rc;
}

struct ckv_image *ckv_image_peek(struct ckv_tree *tree, struct ckv_ckpt *c)
{
	pthread_mutex_lock(&tree->lock);
	struct ckv_image *m = c->image;

	if (m)
		m->uses++;
	pthread_mutex_unlock(&tree->lock);
	return m;
}

void ckv_image_put(struct ckv_tree *tree, struct ckv_image *m)
{
	if (!m)
		return;
	pthread_mutex_lock(&tree->lock);
	m->uses--;
	struct ckv_image *gone = trim(tree, false);

	pthread_mutex_unlock(&tree->lock);
	free_images(gone);
}

void ckv_image_grew(struct ckv_tree *tree, struct ckv_image *m, size_t bytes)
{
	pthread_mutex_lock(&tree->lock);
	m->bytes += bytes;
	tree->image_bytes += bytes;
	pthread_mutex_unlock(&tree->lock);
}

void ckv_image_count(struct ckv_tree *tree, struct ckv_image *m,
		     const struct ckpt_tensor_info *t)
{
	size_t at = t->alias_of != SIZE_MAX ? t->alias_of : t->index;
	const struct cks_chunks *chunks;

	pthread_mutex_lock(&tree->lock);
	bool first = !m->counted[at];

	m->counted[at] = 1;
	pthread_mutex_unlock(&tree->lock);
	/* it is there: the read loaded it */
	if (first && cks_checkpoint_chunks(m->ckpt, t, &chunks, NULL) == 0)
		ckv_image_grew(tree, m, sizeof(*chunks) + chunks->count *
			       sizeof(chunks->entries[0]));
}

/* ---- checkpoints ---- */

static struct ckv_ckpt *ckpt_new(const char *name, const struct ckv_id *id,
				 const struct ckv_facts *facts)
{
	size_t len = strlen(name) + 1;
	struct ckv_ckpt *c = calloc(1, sizeof(*c) + len);

	if (!c)
		return NULL;
	pthread_mutex_init(&c->lock, NULL);
	memcpy(c->name, name, len);
	c->id = *id;
	c->has_uuid = !facts->damaged;
	memcpy(c->uuid, facts->uuid, sizeof(c->uuid));
	c->generation = facts->generation;
	return c;
}

static bool is_same(const struct ckv_ckpt *c, const char *name,
		    const struct ckv_id *id, const struct ckv_facts *f)
{
	return ckv_id_same(&c->id, id) && strcmp(c->name, name) == 0 &&
	       c->has_uuid == !f->damaged && c->generation == f->generation &&
	       memcmp(c->uuid, f->uuid, sizeof(c->uuid)) == 0;
}

int ckv_ckpt_get(struct ckv_tree *tree, const char *name,
		 const struct ckv_id *id, const struct ckv_facts *facts,
		 struct ckv_ckpt **out, struct ckpt_err *err)
{
	uint64_t hash = ckb_xxh3(name, strlen(name));
	struct ckv_ckpt *c;

	pthread_mutex_lock(&tree->lock);
	for (c = (struct ckv_ckpt *)ckv_map_first(&tree->ckpts, hash);
	     c && !is_same(c, name, id, facts);)
		c = (struct ckv_ckpt *)c->link.next;
	if (!c) {
		c = ckpt_new(name, id, facts);
		if (c && !ckv_map_add(&tree->ckpts, &c->link, hash)) {
			ckpt_free(c);
			c = NULL;
		}
	}
	if (c)
		c->refs++;
	pthread_mutex_unlock(&tree->lock);
	*out = c;
	return c ? 0 : ckb_err_nomem(err);
}

void ckv_ckpt_ref(struct ckv_tree *tree, struct ckv_ckpt *c)
{
	pthread_mutex_lock(&tree->lock);
	c->refs++;
	pthread_mutex_unlock(&tree->lock);
}

void ckv_ckpt_put(struct ckv_tree *tree, struct ckv_ckpt *c)
{
	struct ckv_image *left = NULL;

	if (!c)
		return;
	pthread_mutex_lock(&tree->lock);
	bool last = c->refs == 1 && c->image;

	pthread_mutex_unlock(&tree->lock);
	/* while our reference keeps it */
	bool is_lost = last && is_gone(tree, c);

	pthread_mutex_lock(&tree->lock);
	bool unknown = --c->refs == 0 && !c->image;

	if (unknown)
		ckv_map_remove(&tree->ckpts, &c->link);
	else if (c->refs == 0 && is_lost && c->image->uses == 0)
		drop_image(tree, c->image, &left);
	pthread_mutex_unlock(&tree->lock);
	if (unknown)
		ckpt_free(c);
	free_images(left);
}

void ckv_tidy(struct ckv_tree *tree)
{
	struct ckv_ckpt *idle[CKV_IMAGES_MAX];
	size_t count = 0;

	pthread_mutex_lock(&tree->lock);
	for (struct ckv_image *m = tree->images; m; m = m->next)
		if (m->of->refs == 0 && count < CKV_IMAGES_MAX) {
			m->of->refs++;
			idle[count++] = m->of;
		}
	pthread_mutex_unlock(&tree->lock);
	for (size_t i = 0; i < count; i++)
		ckv_ckpt_put(tree, idle[i]);
}

void ckv_ckpts_fini(struct ckv_tree *tree)
{
	free_images(trim(tree, true));
	CKB_REQUIRE(tree->image_count == 0); /* no call is under way */
	/* those of nodes that nobody puts any more */
	for (size_t i = 0; i < tree->ckpts.cap; i++)
		while (tree->ckpts.slots[i]) {
			struct ckv_link *l = tree->ckpts.slots[i];

			tree->ckpts.slots[i] = l->next;
			ckpt_free((struct ckv_ckpt *)l);
		}
	free(tree->ckpts.slots);
}

/* ---- for people ---- */

const char *ckv_node_name(const struct ckv_node *n)
{
	CKB_REQUIRE(n->ckpt);
	return n->ckpt->name;
}

bool ckv_gone(const struct ckv_node *n)
{
	return n->ckpt && is_gone(n->tree, n->ckpt);
}

/* Under tree->lock. */
static uint64_t with_facts(const struct ckv_run *r)
{
	uint64_t n = 0;

	for (uint32_t i = 0; i < r->count; i++)
		n += r->entry[i].has_facts;
	return n;
}

void ckv_counts(struct ckv_tree *tree, struct ckv_counts *out)
{
	*out = (struct ckv_counts){ .descriptors = ckq_manifests_open() };
	pthread_mutex_lock(&tree->lock);
	out->open = tree->image_count;
	for (size_t i = 0; i < tree->runs.cap; i++)
		for (struct ckv_link *l = tree->runs.slots[i]; l; l = l->next)
			out->known += with_facts((struct ckv_run *)l);
	pthread_mutex_unlock(&tree->lock);
}
