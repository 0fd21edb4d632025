/* SPDX-License-Identifier: Apache-2.0 */
/*
 * staging.c - the ring of slabs that bytes in flight lie in (S9).
 *
 * One mapping, as large as the writer was told and never larger, from which
 * slabs are cut. Room is looked for where some last came back, and on from
 * there, around the ring: what a tile lay in that had not changed serves the
 * next one at once, still in the processor's cache, and pages that nobody needs
 * are never touched. Slabs and what lies in them are aligned for direct writes;
 * the mapping is of huge pages where the system has them.
 *
 * Invariant: slabs from `first` lie in the order of their places; `near` is one
 * of them, or NULL, the start of the mapping. Lock: the writer's, held by every
 * caller.
 */
#include <stdlib.h>
#include <sys/mman.h>

#include "base/limits.h"
#include "pipeline.h"

int ckw_ring_init(struct ckw_ring *r, size_t bytes, bool touch,
		  struct ckpt_err *err)
{
	int flags = MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE;

	*r = (struct ckw_ring){ .bytes = bytes / CKB_PAYLOAD_ALIGN *
					 CKB_PAYLOAD_ALIGN };
	r->room = r->bytes;
	r->slab_count = bytes / CKW_SMALL_BYTES + 16;
	r->slabs = calloc(r->slab_count, sizeof(*r->slabs));
	r->base = mmap(NULL, r->bytes, PROT_READ | PROT_WRITE, flags, -1, 0);
	if (r->base == MAP_FAILED)
		r->base = NULL;
	if (!r->slabs || !r->base) {
		ckw_ring_fini(r);
		return ckb_err(err, CKPT_ENOMEM, "no memory for %zu bytes of "
			       "staging", bytes);
	}
	(void)madvise(r->base, r->bytes, MADV_HUGEPAGE);
	for (size_t i = 0; touch && i < r->bytes; i += 4096)
		((volatile uint8_t *)r->base)[i] = 0;
	for (size_t i = r->slab_count; i-- > 0;) {
		r->slabs[i].next = r->idle;
		r->idle = &r->slabs[i];
	}
	return 0;
}

void ckw_ring_fini(struct ckw_ring *r)
{
	if (r->base)
		munmap(r->base, r->bytes);
	free(r->slabs);
	*r = (struct ckw_ring){ .base = NULL };
}

static size_t end_of(const struct ckw_slab *slab)
{
	return slab ? slab->off + slab->bytes : 0;
}

static struct ckw_slab *after(const struct ckw_ring *r,
			      const struct ckw_slab *slab)
{
	return slab ? slab->next : r->first;
}

static bool has_room(const struct ckw_ring *r, const struct ckw_slab *slab,
		     size_t bytes)
{
	const struct ckw_slab *next = after(r, slab);

	return (next ? next->off : r->bytes) - end_of(slab) >= bytes;
}

struct ckw_slab *ckw_ring_take(struct ckw_ring *r, size_t bytes)
{
	struct ckw_slab *slab = r->idle, *at = r->near;

	CKB_INVARIANT(bytes > 0 && bytes <= r->bytes &&
		      bytes % CKB_PAYLOAD_ALIGN == 0);
	if (bytes > r->room || !slab)
		return NULL;
	while (!has_room(r, at, bytes)) {
		at = after(r, at);
		if (at == r->near)
			return NULL;
	}
	r->idle = slab->next;
	*slab = (struct ckw_slab){ .off = end_of(at), .bytes = bytes,
				   .data = r->base + end_of(at),
				   .prev = at, .next = after(r, at) };
	if (slab->next)
		slab->next->prev = slab;
	if (at)
		at->next = slab;
	else
		r->first = slab;
	r->near = slab;
	r->room -= bytes;
	return slab;
}

void ckw_ring_give(struct ckw_ring *r, struct ckw_slab *slab)
{
	r->near = slab->prev;
	r->room += slab->bytes;
	if (slab->next)
		slab->next->prev = slab->prev;
	if (slab->prev)
		slab->prev->next = slab->next;
	else
		r->first = slab->next;
	slab->next = r->idle;
	r->idle = slab;
}

size_t ckw_slab_place(size_t at, uint32_t raw_len, size_t *out_at)
{
	size_t align = raw_len < CKW_SMALL_BYTES ? 64 : CKB_PAYLOAD_ALIGN;

	*out_at = (at + align - 1) / align * align;
	return *out_at + raw_len;
}
