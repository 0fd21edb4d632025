/* SPDX-License-Identifier: Apache-2.0 */
/*
 * nodes.c - the nodes that the kernel holds, by node id.
 *
 * A node id is the tree's inode number; where two live nodes share one (a
 * checkpoint renamed while its old name is in use, or a hash collision), the
 * later gets the next free number, so an id never shows another file, and keeps
 * it when the first is forgotten. Each entry counts the kernel's lookups and
 * holds one reference of the tree's; FORGET takes lookups away, and the last
 * one drops the entry. At unmount no FORGETs come: free drops everything. When
 * most of many are forgotten, the table shrinks and memory goes back to the
 * system.
 *
 * Threads: any. One mutex, held for a table probe only; never while a node is
 * put (that may close files).
 */
#include "mount/internal.h"

#include <malloc.h>
#include <stdlib.h>

#define CAP_MIN 1024u

struct entry {
	fuse_ino_t id;          /* 0: free slot */
	struct ckv_node *node;
	uint64_t lookups;
};

struct ckm_nodes {
	pthread_mutex_t lock;
	struct entry *slots;    /* open addressing; guard: lock */
	size_t cap, used;       /* cap is a power of two; guard: lock */
	uint64_t reach;         /* most that an id was above its inode number;
				   guard: lock */
};

static size_t slot_of(const struct ckm_nodes *n, fuse_ino_t id)
{
	return (size_t)((id * 0x9e3779b97f4a7c15ull) >> 20) & (n->cap - 1);
}

static struct entry *find(struct ckm_nodes *n, fuse_ino_t id)
{
	size_t at = slot_of(n, id);

	while (n->slots[at].id != 0) {
		if (n->slots[at].id == id)
			return &n->slots[at];
		at = (at + 1) & (n->cap - 1);
	}
	return NULL;
}

static void place(struct ckm_nodes *n, struct entry e)
{
	size_t at = slot_of(n, e.id);

	while (n->slots[at].id != 0)
		at = (at + 1) & (n->cap - 1);
	n->slots[at] = e;
}

/* Into a table of @cap slots. */
static bool resize(struct ckm_nodes *n, size_t cap)
{
	struct entry *old = n->slots;
	size_t old_cap = n->cap;

	n->slots = calloc(cap, sizeof(*old));
	if (!n->slots) {
		n->slots = old;
		return false;
	}
	n->cap = cap;
	for (size_t i = 0; i < old_cap; i++)
		if (old[i].id != 0)
			place(n, old[i]);
	free(old);
	return true;
}

/* Linear probing without tombstones: close the gap behind @e. */
static void erase(struct ckm_nodes *n, struct entry *e)
{
	size_t gap = (size_t)(e - n->slots), at = gap;

	for (;;) {
		at = (at + 1) & (n->cap - 1);
		if (n->slots[at].id == 0)
			break;
		size_t home = slot_of(n, n->slots[at].id);

		if (((at - home) & (n->cap - 1)) >=
		    ((at - gap) & (n->cap - 1))) {
			n->slots[gap] = n->slots[at];
			gap = at;
		}
	}
	n->slots[gap] = (struct entry){ 0 };
	n->used--;
}

int ckm_nodes_new(struct ckv_node *root, struct ckm_nodes **out,
		  struct ckpt_err *err)
{
	struct ckm_nodes *n = calloc(1, sizeof(*n));

	*out = NULL;
	if (!n)
		return ckb_err_nomem(err);
	n->cap = CAP_MIN;
	n->slots = calloc(n->cap, sizeof(*n->slots));
	if (!n->slots) {
		free(n);
		return ckb_err_nomem(err);
	}
	pthread_mutex_init(&n->lock, NULL);
	/* the kernel never forgets the root */
	place(n, (struct entry){ FUSE_ROOT_ID, ckv_ref(root), 1 });
	n->used = 1;
	*out = n;
	return 0;
}

void ckm_nodes_free(struct ckm_nodes *n)
{
	if (!n)
		return;
	for (size_t i = 0; i < n->cap; i++)
		if (n->slots[i].id != 0)
			ckv_put(n->slots[i].node);
	free(n->slots);
	pthread_mutex_destroy(&n->lock);
	free(n);
}

struct ckv_node *ckm_nodes_get(struct ckm_nodes *n, fuse_ino_t id)
{
	struct ckv_node *node = NULL;

	pthread_mutex_lock(&n->lock);
	struct entry *e = find(n, id);

	if (e)
		node = ckv_ref(e->node);
	pthread_mutex_unlock(&n->lock);
	return node;
}

/* The entry that shows @node, which may stand above a free id. */
static struct entry *known(struct ckm_nodes *n, const struct ckv_node *node,
			   uint64_t ino)
{
	for (fuse_ino_t id = ino; id - ino <= n->reach; id++) {
		struct entry *e = id > CKM_STATUS_INO ? find(n, id) : NULL;

		if (e && ckv_same(e->node, node))
			return e;
	}
	return NULL;
}

fuse_ino_t ckm_nodes_learn(struct ckm_nodes *n, struct ckv_node *node,
			   uint64_t ino)
{
	struct ckv_node *spare = NULL;

	pthread_mutex_lock(&n->lock);
	struct entry *e = known(n, node, ino);
	fuse_ino_t id = e ? e->id : ino;

	while (!e && (id <= CKM_STATUS_INO || find(n, id)))
		id++;
	if (e) {
		e->lookups++;
		spare = node;
	} else if ((n->used + 1) * 4 > n->cap * 3 && !resize(n, n->cap * 2)) {
		id = 0;
		spare = node;
	} else {
		place(n, (struct entry){ id, node, 1 });
		n->used++;
		if (id - ino > n->reach)
			n->reach = id - ino;
	}
	pthread_mutex_unlock(&n->lock);
	ckv_put(spare);
	return id;
}

void ckm_nodes_forget(struct ckm_nodes *n, fuse_ino_t id, uint64_t count)
{
	struct ckv_node *gone = NULL;
	bool shrunk = false;

	pthread_mutex_lock(&n->lock);
	struct entry *e = find(n, id);

	if (e && id != FUSE_ROOT_ID) {
		e->lookups -= ckb_min_u64(e->lookups, count);
		if (e->lookups == 0) {
			gone = e->node;
			erase(n, e);
			shrunk = n->cap > CAP_MIN && n->used < n->cap / 8 &&
				 resize(n, n->cap / 4);
		}
	}
	pthread_mutex_unlock(&n->lock);
	ckv_put(gone);
	if (shrunk)
		malloc_trim(0);
}

size_t ckm_nodes_count(struct ckm_nodes *n)
{
	pthread_mutex_lock(&n->lock);
	size_t used = n->used;

	pthread_mutex_unlock(&n->lock);
	return used;
}

struct ckm_known *ckm_nodes_checkpoints(struct ckm_nodes *n,
					size_t *out_count)
{
	struct ckm_known *known = NULL;
	size_t cap = 0;

	*out_count = 0;
	pthread_mutex_lock(&n->lock);
	for (size_t i = 0; i < n->cap; i++) {
		const struct entry *e = &n->slots[i];

		if (e->id == 0 || ckv_node_kind(e->node) != CKV_CHECKPOINT)
			continue;
		if (!ckb_room(&known, *out_count, &cap, sizeof(*known)))
			break; /* the rest the next time */
		known[(*out_count)++] = (struct ckm_known){ e->id,
							    ckv_ref(e->node) };
	}
	pthread_mutex_unlock(&n->lock);
	return known;
}
