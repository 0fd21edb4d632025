/* SPDX-License-Identifier: Apache-2.0 */
/*
 * ckpt.c - a checkpoint behind nodes, and the paths of its entries.
 *
 * Shared by all nodes below it and dropped with the last one; keyed by name
 * and by the manifest file's identity, so that a replaced checkpoint is another
 * one while old nodes keep reading theirs (S3). Opened at first need.
 *
 * The folder tree is one sorted array of paths: sorted so that '/' comes before
 * every other byte, a folder is a range of it. 100,000 tensors are 100,000
 * small records and their texts; nothing is made for a folder.
 */
#include <stdlib.h>
#include <string.h>

#include "tree/internal.h"

bool ckv_item_shown(const struct ckpt_item_info *item)
{
	return item->kind != CKPT_ITEM_ORIGIN;
}

static bool same_file(const struct stat *a, const struct stat *b)
{
	return a->st_ino == b->st_ino && a->st_dev == b->st_dev &&
	       a->st_size == b->st_size &&
	       a->st_mtim.tv_sec == b->st_mtim.tv_sec &&
	       a->st_mtim.tv_nsec == b->st_mtim.tv_nsec;
}

int ckv_ckpt_get(struct ckv_tree *tree, const char *name,
		 const struct stat *st, struct ckv_ckpt **out,
		 struct ckpt_err *err)
{
	struct ckv_ckpt *c;

	pthread_mutex_lock(&tree->lock);
	for (c = tree->open; c; c = c->next)
		if (same_file(&c->st, st) && strcmp(c->name, name) == 0)
			break;
	if (!c) {
		c = calloc(1, sizeof(*c));
		if (c)
			c->name = strdup(name);
		if (!c || !c->name) {
			pthread_mutex_unlock(&tree->lock);
			free(c);
			return ckb_err_nomem(err);
		}
		pthread_mutex_init(&c->lock, NULL);
		c->st = *st;
		c->next = tree->open;
		tree->open = c;
	}
	c->refs++;
	pthread_mutex_unlock(&tree->lock);
	*out = c;
	return 0;
}

void ckv_ckpt_put(struct ckv_tree *tree, struct ckv_ckpt *c)
{
	if (!c)
		return;
	pthread_mutex_lock(&tree->lock);
	bool last = --c->refs == 0;

	for (struct ckv_ckpt **at = &tree->open; last && *at;
	     at = &(*at)->next)
		if (*at == c) {
			*at = c->next;
			break;
		}
	pthread_mutex_unlock(&tree->lock);
	if (!last)
		return;
	ckpt_checkpoint_close(c->ckpt);
	pthread_mutex_destroy(&c->lock);
	ckb_buf_fini(&c->texts);
	free(c->paths);
	free(c->json);
	free(c->name);
	free(c);
}

/* ---- paths ---- */

/* Bytes in order, but '/' before all, so a folder's paths are neighbours. */
static int compare(const char *a, size_t a_len, const char *b, size_t b_len)
{
	size_t n = a_len < b_len ? a_len : b_len;

	for (size_t i = 0; i < n; i++) {
		int x = a[i] == '/' ? 0 : (unsigned char)a[i];
		int y = b[i] == '/' ? 0 : (unsigned char)b[i];

		if (x != y)
			return x - y;
	}
	return (a_len > b_len) - (a_len < b_len);
}

static int by_path(const void *a, const void *b)
{
	const struct ckv_path *x = a, *y = b;

	return compare(x->text, strlen(x->text), y->text, strlen(y->text));
}

static void add_path(struct ckb_buf *texts, const struct ckpt_item_info *it,
		     const struct ckpt_tensor_info *t, bool *out_cut)
{
	bool tensors = it->kind == CKPT_ITEM_TENSORS, cut = false;

	ckv_escape(texts, it->name, strlen(it->name), true, 0, &cut);
	ckb_buf_putc(texts, '/');
	ckv_tensor_path(texts, t->name, t->name_len,
			tensors ? it->separator : "/", tensors ? 4 : 0,
			out_cut);
	ckb_buf_put(texts, "", 1);
}

static int build_paths(struct ckv_ckpt *c, struct ckpt_checkpoint *k,
		       struct ckpt_err *err)
{
	size_t n = ckpt_tensor_count(k), count = 0;
	struct ckv_path *paths = calloc(n + 1, sizeof(*paths));
	size_t *offs = calloc(n + 1, sizeof(*offs));

	for (size_t i = 0; paths && offs && i < n; i++) {
		const struct ckpt_tensor_info *t = ckpt_tensor_at(k, i);
		const struct ckpt_item_info *it = ckpt_item_at(k, t->item);

		if (!ckv_item_shown(it))
			continue;
		offs[count] = c->texts.len;
		paths[count].tensor = (uint32_t)i;
		add_path(&c->texts, it, t, &paths[count].cut);
		count++;
	}
	if (!paths || !offs || c->texts.failed) {
		free(paths);
		free(offs);
		return ckb_err_nomem(err);
	}
	for (size_t i = 0; i < count; i++)
		paths[i].text = (char *)c->texts.data + offs[i];
	free(offs);
	if (count > 0)
		qsort(paths, count, sizeof(*paths), by_path);
	c->paths = paths;
	c->path_count = count;
	return 0;
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
			rc = build_paths(c, k, err);
		if (rc == 0)
			c->ckpt = k;
		else
			ckpt_checkpoint_close(k);
	}
	pthread_mutex_unlock(&c->lock);
	return rc;
}

/* First path that does not sort before @key. */
static size_t lower_bound(const struct ckv_ckpt *c, const char *key,
			  size_t len)
{
	size_t low = 0, high = c->path_count;

	while (low < high) {
		size_t mid = (low + high) / 2;
		const char *text = c->paths[mid].text;

		if (compare(text, strlen(text), key, len) < 0)
			low = mid + 1;
		else
			high = mid;
	}
	return low;
}

void ckv_paths_below(const struct ckv_ckpt *c, const char *prefix,
		     size_t prefix_len, size_t *lo, size_t *hi)
{
	size_t low = lower_bound(c, prefix, prefix_len), first = low;
	size_t high = c->path_count;

	*lo = low;
	while (low < high) {
		size_t mid = (low + high) / 2;

		if (strncmp(c->paths[mid].text, prefix, prefix_len) == 0)
			low = mid + 1;
		else
			high = mid;
	}
	*hi = low > first ? low : first;
}

const struct ckv_path *ckv_path_find(const struct ckv_ckpt *c,
				     const char *path, size_t len)
{
	size_t at = lower_bound(c, path, len);

	if (at < c->path_count && strlen(c->paths[at].text) == len &&
	    memcmp(c->paths[at].text, path, len) == 0)
		return &c->paths[at];
	return NULL;
}
