/* SPDX-License-Identifier: Apache-2.0 */
/*
 * ckpt.c - a checkpoint behind nodes.
 *
 * Shared by all nodes below it; keyed by name and by the manifest file's
 * identity, so that a replaced checkpoint is another one while old nodes keep
 * reading theirs (S3). Opened at first need; what was opened under another
 * identity than the one asked for is refused, never shown. When the last node
 * goes it is dropped, but for a few that were open: a mount forgets and asks
 * again.
 *
 * tree->lock guards the list and the counts, and is never held while a
 * manifest is read; c->lock guards the opening of one and may be taken by many
 * who wait for the first. They are never held together.
 */
#include <stdlib.h>
#include <string.h>

#include "catalog/manifest.h"
#include "tree/internal.h"
#include "verbs/store.h"

int64_t ckv_mtime_ns(const struct stat *st)
{
	return (int64_t)st->st_mtim.tv_sec * 1000000000 + st->st_mtim.tv_nsec;
}

bool ckv_same_file(const struct stat *a, const struct stat *b)
{
	return a->st_ino == b->st_ino && a->st_dev == b->st_dev &&
	       a->st_size == b->st_size && ckv_mtime_ns(a) == ckv_mtime_ns(b);
}

static void ckpt_free(struct ckv_ckpt *c)
{
	ckv_paths_fini(&c->paths);
	ckpt_checkpoint_close(c->ckpt);
	pthread_mutex_destroy(&c->lock);
	free(c->json);
	free(c->name);
	free(c);
}

static struct ckv_ckpt *ckpt_new(const char *name, const struct stat *st)
{
	struct ckv_ckpt *c = calloc(1, sizeof(*c));

	if (c)
		c->name = strdup(name);
	if (!c || !c->name) {
		free(c);
		return NULL;
	}
	pthread_mutex_init(&c->lock, NULL);
	c->st = *st;
	return c;
}

int ckv_ckpt_get(struct ckv_tree *tree, const char *name,
		 const struct stat *st, struct ckv_ckpt **out,
		 struct ckpt_err *err)
{
	struct ckv_ckpt **at, *c;

	pthread_mutex_lock(&tree->lock);
	for (at = &tree->open; (c = *at) != NULL; at = &c->next)
		if (ckv_same_file(&c->st, st) && strcmp(c->name, name) == 0)
			break;
	if (c)
		*at = c->next;
	else
		c = ckpt_new(name, st);
	if (c) {
		c->next = tree->open;
		tree->open = c;
		c->refs++;
	}
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

/* Under tree->lock. One without a node that is not worth keeping: never opened,
 * or the last used of too many. NULL: none. */
static struct ckv_ckpt *take_idle(struct ckv_tree *tree)
{
	size_t idle = 0;

	for (struct ckv_ckpt **at = &tree->open; *at; at = &(*at)->next) {
		struct ckv_ckpt *c = *at;

		if (c->refs == 0 && (!c->ckpt || ++idle > CKV_IDLE_MAX)) {
			*at = c->next;
			return c;
		}
	}
	return NULL;
}

void ckv_ckpt_put(struct ckv_tree *tree, struct ckv_ckpt *c)
{
	struct ckv_ckpt *gone = NULL;

	if (!c)
		return;
	pthread_mutex_lock(&tree->lock);
	if (--c->refs == 0)
		gone = take_idle(tree);
	pthread_mutex_unlock(&tree->lock);
	if (gone)
		ckpt_free(gone);
}

void ckv_ckpt_fini(struct ckv_tree *tree)
{
	while (tree->open) {
		struct ckv_ckpt *c = tree->open;

		CKB_REQUIRE(c->refs == 0);
		tree->open = c->next;
		ckpt_free(c);
	}
}

/* The name was opened: was it the file that @c stands for? */
static int check_identity(struct ckv_tree *tree, const struct ckv_ckpt *c,
			  struct ckpt_err *err)
{
	struct stat st;
	bool is_run;
	int rc = cks_name_stat(tree->store, c->name, &is_run, &st, err);

	if (rc == CKPT_ENOENT || (rc == 0 && !ckv_same_file(&st, &c->st)))
		return ckb_err(err, CKPT_ESTALE, "checkpoint '%s' was %s while "
			       "it was looked at", c->name,
			       rc == 0 ? "replaced" : "removed");
	return rc;
}

int ckv_ckpt_load(struct ckv_tree *tree, struct ckv_ckpt *c,
		  struct ckpt_err *err)
{
	struct ckpt_checkpoint *k = NULL;
	int rc = 0;

	pthread_mutex_lock(&c->lock);
	if (!c->ckpt) {
		rc = ckpt_checkpoint_open(tree->store, c->name, &k, err);
		if (rc == 0)
			rc = check_identity(tree, c, err);
		if (rc == 0)
			rc = ckv_paths_init(&c->paths, k, err);
		if (rc == 0) {
			c->ckpt = k;
			atomic_store_explicit(&c->loaded, true,
					      memory_order_relaxed);
		} else {
			ckpt_checkpoint_close(k);
		}
	}
	pthread_mutex_unlock(&c->lock);
	return rc;
}

const char *ckv_node_name(const struct ckv_node *n)
{
	CKB_REQUIRE(n->ckpt);
	return n->ckpt->name;
}

bool ckv_gone(const struct ckv_node *n)
{
	return n->ckpt && check_identity(n->tree, n->ckpt, NULL) ==
				  CKPT_ESTALE;
}

void ckv_counts(struct ckv_tree *tree, struct ckv_counts *out)
{
	*out = (struct ckv_counts){ .descriptors = ckq_manifests_open() };
	pthread_mutex_lock(&tree->lock);
	out->known = tree->known_count;
	for (struct ckv_ckpt *c = tree->open; c; c = c->next)
		out->open += atomic_load_explicit(&c->loaded,
						  memory_order_relaxed);
	pthread_mutex_unlock(&tree->lock);
}
