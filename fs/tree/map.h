/* SPDX-License-Identifier: Apache-2.0 */
/*
 * tree/map.h - a hash of what carries its own link; nothing is copied.
 *
 * The owner compares keys: walk from ckv_map_first() along `next` over what
 * has the same hash. Out of memory for more slots only makes chains longer.
 * No locks: the owner has one.
 */
#ifndef CKV_MAP_H
#define CKV_MAP_H

#include <stdbool.h>
#include <stdint.h>
#include <stdlib.h>

struct ckv_link {
	struct ckv_link *next;
	uint64_t hash;
};

struct ckv_map {
	struct ckv_link **slots;
	size_t cap, count;       /* cap is a power of two, or 0 */
};

static inline struct ckv_link **ckv_map_slot(const struct ckv_map *m,
					     uint64_t hash)
{
	return &m->slots[(size_t)hash & (m->cap - 1)];
}

static inline struct ckv_link *ckv_map_first(const struct ckv_map *m,
					     uint64_t hash)
{
	return m->cap ? *ckv_map_slot(m, hash) : NULL;
}

static inline void ckv_map_grow(struct ckv_map *m)
{
	struct ckv_map old = *m;

	m->cap = old.cap ? 2 * old.cap : 64;
	m->slots = calloc(m->cap, sizeof(struct ckv_link *));
	if (!m->slots) {
		*m = old;
		return;
	}
	for (size_t i = 0; i < old.cap; i++)
		while (old.slots[i]) {
			struct ckv_link *l = old.slots[i];
			struct ckv_link **slot = ckv_map_slot(m, l->hash);

			old.slots[i] = l->next;
			l->next = *slot;
			*slot = l;
		}
	free(old.slots);
}

/* false: out of memory. */
static inline bool ckv_map_add(struct ckv_map *m, struct ckv_link *l,
			       uint64_t hash)
{
	if (m->count >= m->cap)
		ckv_map_grow(m);
	if (m->cap == 0)
		return false;
	l->hash = hash;
	l->next = *ckv_map_slot(m, hash);
	*ckv_map_slot(m, hash) = l;
	m->count++;
	return true;
}

/* @l is in it. */
static inline void ckv_map_remove(struct ckv_map *m, struct ckv_link *l)
{
	struct ckv_link **at = ckv_map_slot(m, l->hash);

	while (*at != l)
		at = &(*at)->next;
	*at = l->next;
	m->count--;
}

#endif
