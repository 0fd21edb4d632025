/* SPDX-License-Identifier: Apache-2.0 */
/* writer/save.h - what the files of the writer share. */
#ifndef CKW_SAVE_H
#define CKW_SAVE_H

#include <pthread.h>
#include <stdatomic.h>

#include <ckpt/writer.h>

#include "base/buf.h"
#include "limit.h"
#include "tensor/grid.h"
#include "verbs/find.h"
#include "verbs/stage.h"

struct ckw_pool;
struct ckw_past;

/* Bytes in a time; older ones count ever less. */
struct ckw_rate {
	double bytes, ns;
};

struct ckpt_writer {
	struct ckpt_store *store;
	struct ckpt_writer_opts opts;     /* defaults filled in */
	pthread_mutex_t lock;             /* taken inside a save's lock */
	pthread_cond_t turn_changed;
	struct ckpt_save *first, *last;   /* started and not over, in the
					     order of start; guard: lock */
	uint32_t open_saves;              /* guard: lock */
	struct ckw_pool *pool;            /* fixed after open */
	struct ckw_limit writes;          /* bytes of packs; if there is one */
	struct ckw_limit cpu;             /* ns of processors; likewise */
	struct ckw_past *past;            /* the last published save, or NULL;
					     guard: lock */
	uint64_t seed;                    /* of marks; never stored */
	pid_t pid;                        /* whose threads these are */
	uint8_t *own;                     /* 1 there; the kernel clears it in
					     the child of a fork */
	bool direct;                      /* the file system is good at it */
	struct ckw_rate copying, storing; /* of saves so far; guard: lock */
	uint64_t turn_ns;                 /* when `first` came to be it; guard:
					     lock */
	pthread_mutex_t guard_lock;       /* taken inside a save's lock */
	struct ckw_guard *guards;         /* pages that are write-protected;
					     guard: guard_lock */
	struct ckpt_err failed;           /* last of those that nobody was
					     told; guard: lock */
	struct ckpt_save *failed_save;    /* whose it is, NULL when that is
					     freed; guard: lock */
};

struct ckw_item {
	char *name, *separator, *metadata; /* metadata may be NULL */
	enum ckpt_item_kind kind;
};

/* One entry as described, and what saving it found. Small: a save may have a
 * million of them. */
struct ckw_tensor {
	uint32_t item, number;          /* number: as described */
	bool late;                      /* its size is told by its bytes */
	bool parallel;                  /* of the plan: many may read it */
	char *name;                     /* name_len bytes and a NUL */
	size_t name_len;
	enum ckpt_dtype dtype;
	struct ckpt_shape *shape;       /* only ndim dims are there */
	uint64_t bytes, held;           /* of it, and of this process's boxes */
	char *media_type;               /* opaque file; else NULL */
	uint64_t *boxes;                /* storage space: box_ndim origins,
					   then extents, of each box; NULL:
					   one box, the whole */
	uint32_t box_ndim, box_count;
	uint32_t replica, replica_count;
	size_t alias_of;                /* SIZE_MAX: none */
	struct ckpt_provider provider;  /* ops NULL: none */
	/* the pipeline's plan, fixed before capture */
	size_t first_chunk, chunk_count; /* of the save's chunks */
	const uint8_t *base;            /* all bytes, borrowed, or NULL */
	size_t past;                    /* its first chunk in the last save;
					   SIZE_MAX: it was not there */
	/* the pipeline's answers */
	struct ckpt_stats stats;
	bool has_root;
	uint8_t root[CKPT_DIGEST_BYTES];
	struct ckb_buf chunks;          /* encoded entries */
};

/* One chunk of a save. In the order of the manifest: tensor, tile, shard. */
struct ckw_chunk {
	uint64_t tile;
	uint64_t src_off;               /* of its box in the provider */
	uint64_t band;                  /* where its band begins in the box */
	uint32_t shard;                 /* or CKF_WHOLE_TILE */
	uint32_t box, raw_len;
	uint8_t digest[CKPT_DIGEST_BYTES];
	uint64_t quick, mark[2];        /* XXH3 of its head, of all */
};

enum ckw_state {
	CKW_DESCRIBING, CKW_RUNNING, CKW_CAPTURED, CKW_DONE, CKW_FAILED,
};
#define CKW_PHASES CKPT_DURABLE

struct ckpt_save {
	struct ckpt_writer *writer;
	/* fixed after begin */
	char *name, *metadata, *metrics, *program;
	bool has_step, has_parent, replace;
	uint64_t step;
	uint8_t parent[CKPT_UUID_BYTES], uuid[CKPT_UUID_BYTES];
	/* described by the caller's thread; fixed after start, but for the
	 * answers in tensors */
	struct ckw_item *items;
	size_t item_count, item_cap;
	struct ckw_tensor *tensors;
	size_t tensor_count, tensor_cap;
	uint32_t *names;                /* hash of (item, name); 0: free */
	size_t names_cap;
	/* the pipeline's own, from start to its end */
	struct cks_stage *stage;
	struct ckw_paced paced;         /* if the writer has a limit */
	struct cks_find *find;
	struct ckw_chunk *plan;         /* of all tensors, in their order */
	struct ckpt_stats *parts;       /* of each chunk */
	size_t plan_count, plan_cap;
	size_t ready, ready_chunks;     /* tensors and chunks that may be
					   captured, the first ones; guard:
					   writer's lock */
	struct ckw_past *past;          /* what it may have in common */
	struct ckw_pack *pack;          /* open; guard: pack_lock */
	pthread_mutex_t pack_lock, publish_lock;
	uint8_t (*packs)[CKPT_UUID_BYTES]; /* named by entries */
	size_t pack_count, pack_cap;
	struct ckw_span *lent;          /* pages, by address, to be guarded;
					   start's own */
	size_t lent_count, lent_cap;
	struct ckw_span *guarded;       /* likewise, and they are; guard:
					   writer's guard_lock */
	size_t guarded_count, guarded_cap;
	struct ckw_progress *run;       /* while it is in the pool; guard:
					   writer's lock */
	bool has_run;                   /* it was; guard: writer's lock */
	uint32_t wanted[CKW_PHASES];    /* callers who wait for each phase;
					   guard: writer's lock */
	/* shared */
	pthread_mutex_t lock;
	pthread_cond_t changed;         /* by the monotonic clock */
	pthread_t thread;               /* set under lock with threaded */
	enum ckw_state state;           /* guard: lock */
	bool started, threaded;         /* guard: lock */
	bool committing;                /* too late to abort; guard: lock */
	struct ckpt_err err;            /* of FAILED; guard: lock */
	int fd[CKW_PHASES];             /* of each phase; -1: not asked for;
					   guard: lock */
	ckpt_phase_fn on_phase;         /* fixed after start, or NULL */
	void *on_phase_ctx;
	atomic_int reached;             /* enum ckpt_phase; release */
	atomic_int ended;               /* the failure's code; release */
	atomic_bool told;               /* the error, to somebody */
	struct ckpt_save *next;         /* guard: writer's lock */
	atomic_bool abort;              /* relaxed: seen soon is enough */
	/* relaxed counters: a snapshot for people */
	atomic_ullong total, captured, hashed, fresh, written, chunks,
		fresh_chunks;
};

/* ---- writer.c ---- */

/* 0; CKPT_ESTATE in the child of a fork, where locks may be held by threads
 * that are not there: nothing of the writer may be touched. */
CKB_MUST int ckw_own_process(const struct ckpt_writer *w,
			     struct ckpt_err *err);
/* The same, noting that @what did nothing. */
CKB_MUST bool ckw_foreign(const struct ckpt_writer *w, const char *what);

/* A codec as the options ask for it. */
CKB_MUST int ckw_codec(const struct ckpt_writer *w, struct ckc_codec **out,
		       struct ckpt_err *err);

/* Start @fn as a thread of the library's: its name, and no signals of the
 * program's. Returns 0 or a positive errno. */
CKB_MUST int ckw_thread(pthread_t *out, const char *name,
			void *(*fn)(void *arg), void *arg);
/* Write packs past the page cache? */
bool ckw_direct(const struct ckpt_save *s);

/* ckpt_writer_last_error() tells it, unless somebody was told. */
void ckw_note_failure(struct ckpt_save *s, const struct ckpt_err *err);

void ckw_queue(struct ckpt_save *s);
/* Wait until every save started before is over, or @s is aborted. */
void ckw_await_turn(struct ckpt_save *s);
void ckw_leave(struct ckpt_save *s);

/* ---- wait.c ---- */
void ckw_set_state(struct ckpt_save *s, enum ckw_state state,
		   const struct ckpt_err *err);
/* Those who wait look again. The save's lock is held. */
void ckw_wake(struct ckpt_save *s);
/* The caller's on_phase, from the save's thread. @err NULL: it is reached. */
void ckw_call_back(struct ckpt_save *s, enum ckpt_phase phase,
		   const struct ckpt_err *err);
/* The lock is held. Does the caller run on the save's own thread? */
bool ckw_is_own_thread(const struct ckpt_save *s);
/* From here on it is too late to abort; false: it was aborted before. */
CKB_MUST bool ckw_may_commit(struct ckpt_save *s, struct ckpt_err *err);

/* ---- guard.c: CKPT_WRITER_PROTECT ---- */
/* Find what is borrowed: providers are asked, so no lock is held. */
CKB_MUST int ckw_find_lent(struct ckpt_save *s, struct ckpt_err *err);
/* Write-protect it. After a failure: ckw_unguard(). */
CKB_MUST int ckw_guard(struct ckpt_save *s, struct ckpt_err *err);
void ckw_unguard(struct ckpt_save *s);
/* What could not be made writable yet is tried a last time. */
void ckw_guard_fini(struct ckpt_writer *w);

/* ---- composite.c ---- */
typedef int (*ckw_range_fn)(void *ctx, const void *data, uint64_t bytes,
			    struct ckpt_err *err);
/* Host memory that @p lends of its @bytes: @fn is called with each range, until
 * it fails. */
CKB_MUST int ckw_lent(const struct ckpt_provider *p, uint64_t bytes,
		      ckw_range_fn fn, void *ctx, struct ckpt_err *err);

/* ---- expect.c: how long captures take ---- */
uint64_t ckw_now_ns(void);
void ckw_rate_add(struct ckw_rate *r, uint64_t bytes, uint64_t ns);
/* What struct ckpt_save_progress says. */
uint64_t ckw_capture_ns(const struct ckpt_save *s);

/* ---- save.c ---- */
/* Still to be described? CKPT_ESTATE, CKPT_ECANCELED. */
CKB_MUST int ckw_describing(struct ckpt_save *s, struct ckpt_err *err);
/* Let go of what lies on disk: packs, staging. */
void ckw_discard(struct ckpt_save *s);
bool ckw_aborted(const struct ckpt_save *s, struct ckpt_err *err);

/* ---- describe.c ---- */
CKB_MUST int ckw_check_json(const char *text, const char *what,
			    struct ckpt_err *err);
bool ckw_copy_text(char **to, const char *from);
void ckw_tensor_fini(struct ckw_tensor *t);
bool ckw_serialises(const struct ckpt_provider *p);
/* CKPT_PROVIDER_PARALLEL */
bool ckw_parallel(const struct ckpt_provider *p);
void ckw_item_fini(struct ckw_item *item);
/* No file lies at a path where another needs a folder. */
CKB_MUST int ckw_check_folders(const struct ckpt_save *s,
			       struct ckpt_err *err);
/* Grid of an entry, tensor or file. */
CKB_MUST int ckw_grid(const struct ckw_tensor *t, struct ckt_grid *out,
		      struct ckpt_err *err);
/* Box @i of an entry. */
void ckw_box(const struct ckw_tensor *t, const struct ckt_grid *grid,
	     uint32_t i, struct ckpt_box *out);

/* ---- manifest.c ---- */

/* Sort the tensors by item; @capture: what serialises goes last, and whose
 * size is not known behind all. Aliases follow. */
CKB_MUST int ckw_order(struct ckpt_save *s, bool capture,
		       struct ckpt_err *err);
/* The manifest's number of @pack; a new one gets the next. */
CKB_MUST int ckw_pack_number(struct ckpt_save *s, const uint8_t pack[16],
			     uint32_t *out, struct ckpt_err *err);
/* All of it, when every chunk has its place. */
CKB_MUST int ckw_manifest(struct ckpt_save *s, struct ckb_buf *out,
			  uint64_t *out_seq, struct ckpt_err *err);

/* ---- pipeline.c: the background work ---- */
void *ckw_run(void *save);

#endif
