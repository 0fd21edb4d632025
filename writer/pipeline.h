/* SPDX-License-Identifier: Apache-2.0 */
/* writer/pipeline.h - what the parts of a running save share. */
#ifndef CKW_PIPELINE_H
#define CKW_PIPELINE_H

#include "save.h"
#include "tensor/box.h"

#define CKW_SMALL_BYTES CKB_PAYLOAD_ALIGN_FROM /* smaller ones go together */
#define CKW_BATCH_BYTES (512u << 10)
#define CKW_BATCH_CHUNKS 256u
#define CKW_BAND_CHUNKS 8u            /* columns are cut three times */
#define CKW_WINDOW_BYTES (1u << 20)   /* of a source read in order */

/* ---- staging.c: the ring of slabs. All calls with the writer's lock ---- */

/* Chunks on their way. In the ring from allocation to its free. */
struct ckw_slab {
	struct ckw_slab *prev, *next; /* in the ring; next: free list */
	size_t off, bytes;            /* in the ring */
	uint8_t *data;
	struct ckpt_save *save;
	struct ckw_slab *behind;      /* in the queue */
	size_t tensor;                /* of the first chunk */
	size_t first;                 /* chunk */
	uint32_t count, taken, done;  /* chunks; in work; through */
};

struct ckw_ring {
	uint8_t *base;
	size_t bytes;
	struct ckw_slab *slabs;       /* slab_count of them */
	size_t slab_count;
	struct ckw_slab *idle;        /* free list */
	struct ckw_slab *first;       /* in use, by their places */
	struct ckw_slab *near;        /* behind which room is looked for */
	size_t room;                  /* bytes not in use */
};
CKB_MUST int ckw_ring_init(struct ckw_ring *r, size_t bytes, bool touch,
			   struct ckpt_err *err);
void ckw_ring_fini(struct ckw_ring *r);
/* NULL: no room now. @bytes is at most half of the ring. */
struct ckw_slab *ckw_ring_take(struct ckw_ring *r, size_t bytes);
void ckw_ring_give(struct ckw_ring *r, struct ckw_slab *slab);

/* Where the chunk behind @at goes in its slab: *@out_at. Returns its end. */
size_t ckw_slab_place(size_t at, uint32_t raw_len, size_t *out_at);

/* ---- pool.c: threads, and what they do next ---- */

/* How the bytes of an entry are had: from borrowed memory, by any thread; from
 * a source that several threads may read, or one at a time. */
enum ckw_kind { CKW_MEMORY, CKW_PARALLEL, CKW_SOURCE, CKW_KINDS };

static inline enum ckw_kind ckw_kind(const struct ckw_tensor *t)
{
	return t->base ? CKW_MEMORY : t->parallel ? CKW_PARALLEL : CKW_SOURCE;
}

/* Where a save in the pool stands. Guard: the writer's lock. */
struct ckw_progress {
	struct ckpt_save *save;
	struct ckw_cursor {           /* of each kind, over all tensors */
		size_t tensor, chunk;
	} cursors[CKW_KINDS];
	bool source_busy;             /* one of CKW_SOURCE is being read */
	size_t uncut;                 /* chunks no slab was cut for */
	size_t uncaptured, unstored;  /* chunks */
	uint32_t jobs;                /* being worked on */
	uint64_t begun_ns;            /* when its first slab was cut; 0: none */
	struct ckw_slab *queue, *queue_last;
	struct ckpt_err err;          /* first failure */
};

/* One thread's own. */
struct ckw_worker {
	struct ckw_pool *pool;
	pthread_t thread;
	int64_t cpu_ns;               /* it took, when last charged */
	struct ckc_codec *raw, *codec; /* codec NULL: raw only */
	uint8_t *head;                /* CKC_HEAD_BYTES, aligned */
	uint8_t *cell;                /* CKB_CELL_BYTES, with a codec */
};

/* CKW_WINDOW_BYTES for who reads a source; NULL: no memory. There are as many
 * as ever read at once, kept until the pool is freed. */
uint8_t *ckw_window_take(struct ckw_pool *pool);
void ckw_window_give(struct ckw_pool *pool, uint8_t *window);
CKB_MUST int ckw_pool_new(struct ckpt_writer *w, struct ckpt_err *err);
void ckw_pool_free(struct ckw_pool *pool);
/* Put @p's save to work; its chunks are stored when its turn comes. */
void ckw_pool_add(struct ckpt_writer *w, struct ckw_progress *p);
/* The first @ready of the save's tensors may be captured now, whose chunks end
 * before @end; @more of them were not known when it was added. */
void ckw_pool_more(struct ckpt_writer *w, struct ckw_progress *p,
		   size_t ready, size_t end, size_t more);
/* Something has changed that a thread may wait for. The lock is held. */
void ckw_pool_wake(struct ckpt_writer *w);
/* Until every chunk is captured, or it failed (false). */
bool ckw_pool_captured(struct ckpt_writer *w, struct ckw_progress *p);
/* Until all chunks are in packs, or it failed (false). */
bool ckw_pool_stored(struct ckpt_writer *w, struct ckw_progress *p);
/* Until no thread works on it; it is in the pool no more. */
void ckw_pool_remove(struct ckpt_writer *w, struct ckw_progress *p);
void ckw_pool_fail(struct ckpt_writer *w, struct ckw_progress *p,
		   const struct ckpt_err *err);
/* Has something of it failed, or was it aborted? *@err: what, or NULL. Any
 * thread. */
bool ckw_pool_failed(struct ckpt_save *s, struct ckpt_err *err);
/* A caller waits for @phase: what it needs comes first. */
void ckw_pool_want(struct ckpt_save *s, enum ckpt_phase phase, bool yes);
/* The thread begins to write @bytes, and takes no processor; or ends. */
void ckw_pool_writing(struct ckw_worker *k, bool yes, uint64_t bytes);
/* Does so much wait to be written that the disk is what all wait for? */
bool ckw_pool_disk_behind(struct ckw_worker *k);

/* ---- capture.c: chunks out of the caller's hands ---- */

/* The save's chunks: what they are, and where they come from. */
CKB_MUST int ckw_plan(struct ckpt_save *s, struct ckpt_err *err);
/* And those of one whose size is known now: behind all others. */
CKB_MUST int ckw_plan_late(struct ckpt_save *s, struct ckw_tensor *t,
			   struct ckpt_err *err);
/* The entry's name before what is said. */
int ckw_in_tensor(const struct ckw_tensor *t, struct ckpt_err *err);
/* Chunks [@first, ...) that are captured together: @out_bytes of a slab. The
 * first belongs to tensor @tensor. */
uint32_t ckw_unit(const struct ckpt_save *s, size_t tensor, size_t first,
		  size_t *out_bytes);
/* Bytes of a slab's chunks into it; those that are as they were are `done`.
 * false: the save has failed. */
bool ckw_capture(struct ckw_worker *k, struct ckw_slab *slab);

/* ---- serialise.c: what must be made first ---- */

/* Have it made, and captured. A failure is @p's. */
void ckw_serialise(struct ckpt_save *s, struct ckw_progress *p);

/* ---- tile.c: bytes of boxes, from memory or a provider ---- */

/* The runs of @part in @box, to its own bytes in C order. */
void ckw_runs(struct ckt_runs *runs, const struct ckpt_box *box,
	      const struct ckpt_box *part, uint32_t item_bytes);
/* Bring the next run near while this one is used: no processor foresees where
 * it begins. @base: what the runs lie in, from its byte @first on. */
void ckw_foresee(const struct ckt_runs *runs, const uint8_t *base,
		 uint64_t first);
/* @part of @box, whose bytes from @first on lie at @base. */
void ckw_gather(const uint8_t *base, uint64_t first,
		const struct ckpt_box *box, const struct ckpt_box *part,
		uint32_t item_bytes, uint8_t *dst);
/* Bytes of @count boxes that lie in one band of @box, its bytes from @off of
 * the provider on. @window: CKW_WINDOW_BYTES. */
CKB_MUST int ckw_read_band(const struct ckpt_provider *provider, uint64_t off,
			   const struct ckpt_box *box, uint32_t item_bytes,
			   const struct ckpt_box *parts, uint32_t count,
			   uint8_t *const *dst, uint8_t *window,
			   struct ckpt_err *err);
/* What a provider answered, @rc and its words, as an error of ours. */
int ckw_provider_failed(int rc, const struct ckpt_err *theirs,
			struct ckpt_err *err);
/* The band of @part: bytes [first, end) of the box's own. */
void ckw_band(const struct ckpt_box *box, const struct ckpt_box *part,
	      uint32_t item_bytes, uint64_t *out_first, uint64_t *out_end);

/* ---- past.c: the last published save ---- */

void ckw_past_unref(struct ckw_past *past);
/* The save's plan becomes the writer's past. */
void ckw_past_keep(struct ckpt_save *s);
/* For @count tensors from @t on their chunks of last time. */
void ckw_past_match(struct ckpt_save *s, struct ckw_tensor *t, size_t count);
/* XXH3-64 of the first CKW_QUICK_BYTES of a chunk. */
#define CKW_QUICK_BYTES 4096u
uint64_t ckw_quick(const uint8_t *data, uint32_t raw_len);
/* Chunk @i of last time, with its place; NULL: unknown. */
const struct ckw_chunk *ckw_past_chunk(const struct ckpt_save *s,
				       const struct ckw_tensor *t, size_t i,
				       struct ckq_place *out_place);

const struct ckpt_stats *ckw_past_stats(const struct ckpt_save *s,
					const struct ckw_tensor *t, size_t i);

/* ---- look.c: what a chunk is ---- */

/* A captured chunk, of @tensor; @part: its statistics, to fill. */
struct ckw_todo {
	const struct ckw_tensor *tensor;
	struct ckw_chunk *chunk;
	struct ckpt_stats *part;
	uint8_t *data;
};

/* What each of @todo is: its digest, statistics and marks. Those that are not
 * as in the last save go to @out_changed. Returns how many. */
uint32_t ckw_look(struct ckpt_save *s, const struct ckw_todo *todo,
		  uint32_t count, const struct ckw_todo **out_changed);

/* ---- put.c: chunks into packs ---- */

/* Store up to CKC_PUT_MAX chunks, whose bytes may be coded where they are. */
CKB_MUST int ckw_put(struct ckw_worker *k, struct ckpt_save *s,
		     const struct ckw_todo *todo, uint32_t count,
		     struct ckpt_err *err);
/* The copy of the manifest, then the last pack sealed and published. */
CKB_MUST int ckw_put_end(struct ckpt_save *s, const struct ckb_buf *manifest,
			 struct ckpt_err *err);
void ckw_put_discard(struct ckpt_save *s);

#endif
