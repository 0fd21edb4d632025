/* SPDX-License-Identifier: Apache-2.0 */
/* writer/save.h - what the files of the writer share. */
#ifndef CKW_SAVE_H
#define CKW_SAVE_H

#include <pthread.h>
#include <stdatomic.h>

#include <ckpt/writer.h>

#include "base/buf.h"
#include "tensor/grid.h"
#include "verbs/find.h"
#include "verbs/stage.h"

struct ckpt_writer {
	struct ckpt_store *store;
	struct ckpt_writer_opts opts;   /* defaults filled in */
	pthread_mutex_t lock;
	pthread_cond_t turn_changed;
	uint64_t next_ticket, turn;     /* saves run in the order they were
					   started; guard: lock */
	uint32_t open_saves;            /* guard: lock */
};

struct ckw_item {
	char *name, *separator, *metadata; /* metadata may be NULL */
	enum ckpt_item_kind kind;
};

/* One entry as described, and what saving it found. */
struct ckw_tensor {
	uint32_t item;
	char *name;                     /* name_len bytes and a NUL */
	size_t name_len;
	enum ckpt_dtype dtype;
	struct ckpt_shape *shape;       /* only ndim dims are there */
	uint64_t bytes;
	char *media_type;               /* opaque file; else NULL */
	struct ckpt_box *boxes;         /* storage space; NULL: one, whole */
	uint32_t box_count;
	uint32_t replica, replica_count;
	size_t alias_of;                /* SIZE_MAX: none */
	struct ckpt_provider provider;  /* ops NULL: none */
	/* the pipeline's answers */
	struct ckpt_stats stats;
	bool has_root;
	uint8_t root[CKPT_DIGEST_BYTES];
	struct ckb_buf chunks;          /* encoded entries */
};

enum ckw_state {
	CKW_DESCRIBING, CKW_RUNNING, CKW_CAPTURED, CKW_DONE, CKW_FAILED,
};

struct ckpt_save {
	struct ckpt_writer *writer;
	/* fixed after begin */
	char *name, *metadata, *metrics, *program;
	bool has_step, has_parent, replace;
	uint64_t step;
	uint8_t parent[CKPT_UUID_BYTES], uuid[CKPT_UUID_BYTES];
	struct cks_stage *stage;
	struct cks_find *find;
	/* fixed after start */
	struct ckw_item *items;
	size_t item_count, item_cap;
	struct ckw_tensor *tensors;
	size_t tensor_count, tensor_cap;
	uint32_t *names;                /* hash of (item, name); 0: free */
	size_t names_cap;
	uint64_t ticket;
	pthread_t thread;
	bool threaded;
	bool started;                   /* the caller's thread alone */
	/* the pipeline's own */
	struct ckc_codec *codec;
	struct ckc_pack_writer *pack;
	uint8_t (*packs)[CKPT_UUID_BYTES]; /* named by entries */
	size_t pack_count, pack_cap;
	/* shared */
	pthread_mutex_t lock;
	pthread_cond_t changed;
	enum ckw_state state;           /* guard: lock */
	bool waited;                    /* the error was told; guard: lock */
	struct ckpt_err err;            /* of FAILED; guard: lock */
	atomic_bool abort;              /* relaxed: seen soon is enough */
	atomic_ullong total, captured, fresh, written, chunks, fresh_chunks;
};

/* ---- save.c ---- */
void ckw_set_state(struct ckpt_save *save, enum ckw_state state,
		   const struct ckpt_err *err);

/* ---- pipeline.c: the background work ---- */
void *ckw_run(void *save);

/* The next save of the writer may run. */
void ckw_pass_turn(struct ckpt_save *save);

/* ---- describe.c: the manifest ---- */

/* Sort the tensors by item; aliases follow. */
CKB_MUST int ckw_order(struct ckpt_save *save, struct ckpt_err *err);
/* All of it, when every chunk has its place. */
CKB_MUST int ckw_manifest(struct ckpt_save *save, struct ckb_buf *out,
			  uint64_t *out_seq, struct ckpt_err *err);

/* ---- tile.c: the bytes of tiles, from a provider ---- */

/* Reads tiles of one shard box of one tensor, in order. */
struct ckw_source {
	struct ckpt_provider *provider;
	const struct ckt_grid *grid;
	struct ckpt_box box;            /* the shard's, storage space */
	uint64_t base;                  /* of the box in the provider */
	uint8_t *window;                /* bytes of the band at hand */
	size_t window_size, window_max; /* allocated; allowed */
	uint64_t window_off, window_len; /* of the box's own bytes */
};
/* Bytes of @part (inside src->box) in C order to @dst. */
CKB_MUST int ckw_source_read(struct ckw_source *src,
			     const struct ckpt_box *part, uint8_t *dst,
			     struct ckpt_err *err);

#endif
