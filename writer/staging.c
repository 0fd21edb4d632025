/* SPDX-License-Identifier: Apache-2.0 */
/*
 * staging.c - the ring of slabs that bytes in flight lie in (S9).
 *
 * One mapping, as large as the writer was told and never larger, from which
 * slabs are cut one behind the other. They are freed in any order and had back
 * in the order they were taken: those in work are the oldest, so little is ever
 * held back. Slabs and what lies in them are aligned for direct writes; the
 * mapping is of huge pages where the system has them.
 *
 * Invariant: slabs from `oldest` to `youngest` lie in this order, with at most
 * one step back to the start. Lock: the writer's, held by every caller.
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

/* Where @bytes lie free; SIZE_MAX: nowhere. */
static size_t find_room(const struct ckw_ring *r, size_t bytes)
{
	if (!r->oldest)
		return 0;
	size_t head = r->oldest->off;
	size_t tail = r->youngest->off + r->youngest->bytes;

	if (tail <= head)
		return head - tail >= bytes ? tail : SIZE_MAX;
	if (r->bytes - tail >= bytes)
		return tail;
	return head >= bytes ? 0 : SIZE_MAX;
}

struct ckw_slab *ckw_ring_take(struct ckw_ring *r, size_t bytes)
{
	size_t off = find_room(r, bytes);
	struct ckw_slab *slab = r->idle;

	CKB_INVARIANT(bytes > 0 && bytes <= r->bytes &&
		      bytes % CKB_PAYLOAD_ALIGN == 0);
	if (off == SIZE_MAX || !slab)
		return NULL;
	r->idle = slab->next;
	*slab = (struct ckw_slab){ .off = off, .bytes = bytes,
				   .data = r->base + off };
	if (r->youngest)
		r->youngest->next = slab;
	else
		r->oldest = slab;
	r->youngest = slab;
	return slab;
}

void ckw_ring_give(struct ckw_ring *r, struct ckw_slab *slab)
{
	slab->over = true;
	while (r->oldest && r->oldest->over) {
		slab = r->oldest;
		r->oldest = slab->next;
		slab->next = r->idle;
		r->idle = slab;
	}
	if (!r->oldest)
		r->youngest = NULL;
}

size_t ckw_slab_place(size_t at, uint32_t raw_len, size_t *out_at)
{
	size_t align = raw_len < CKW_SMALL_BYTES ? 64 : CKB_PAYLOAD_ALIGN;

	*out_at = (at + align - 1) / align * align;
	return *out_at + raw_len;
}
