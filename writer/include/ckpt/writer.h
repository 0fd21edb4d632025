/* SPDX-License-Identifier: Apache-2.0 */
/*
 * ckpt/writer.h - save sharded state into a store.
 *
 *	ckpt_writer_open(store, opts)          once per training run
 *	ckpt_save_begin(writer, desc)          the check phase: fails fast
 *	ckpt_save_item / _tensor / _file       describe; nothing is copied
 *	ckpt_save_start(save)                  capture goes on in background
 *	ckpt_save_wait(save, CKPT_CAPTURED)    now the tensors may change
 *	ckpt_save_wait(save, CKPT_DURABLE)     now a reader anywhere finds it
 *	ckpt_save_free(save)
 *
 * Instead of a wait: ckpt_save_wait_for(), ckpt_save_fd(),
 * ckpt_save_on_phase(), ckpt_save_phase(), ckpt_save_progress().
 *
 * Unless a call says otherwise: one thread at a time per save; texts and
 * descriptions are copied during the call; nothing is durable before
 * CKPT_DURABLE; a failed save never makes anything visible, and leaves the
 * process and all older checkpoints as they were. A struct whose size field is
 * too small is CKPT_EINVAL.
 *
 * Several saves of one writer may be in flight: they are captured, stored and
 * committed in the order they were started, each captured while those before it
 * are stored, as far as staging memory goes. So a provider that takes its time
 * holds up the capture of later saves. Staging memory and threads are had when
 * the writer is opened.
 *
 * The child of a fork(2) has none of these threads: whatever may fail of a
 * writer and its saves is CKPT_ESTATE there, abort, free and close do nothing,
 * and the parent's saves go on. The library itself never forks. A process that
 * ends has its last save whole or not at all: nothing waits for it at exit, and
 * nobody is told, so wait for CKPT_DURABLE before.
 */
#ifndef CKPT_WRITER_H
#define CKPT_WRITER_H

#include <ckpt/memory.h>
#include <ckpt/store.h>

#ifdef __cplusplus
extern "C" {
#endif

struct ckpt_writer;
struct ckpt_save;

/** A number of bytes or nanoseconds that nobody knows yet. */
#define CKPT_UNKNOWN UINT64_MAX

enum ckpt_codec {
	CKPT_CODEC_RAW = 0,
	CKPT_CODEC_ZSTD = 1,
	CKPT_CODEC_PLANES = 2, /* numbers by the bytes of their elements */
	CKPT_CODEC_AUTO = 255, /* raw while writes keep up (with the disk, or
				  write_bytes_per_s), else PLANES, some tiles
				  at a time */
};

/** How packs are written. */
enum ckpt_io {
	CKPT_IO_AUTO = 0,     /* as suits the file system and the save's size */
	CKPT_IO_BUFFERED = 1, /* through the page cache, write-out at once */
	CKPT_IO_DIRECT = 2,   /* past it (O_DIRECT), where it can be */
};

/**
 * Classes of ioprio_set(2). Direct writes carry them. What the kernel writes
 * out of the page cache by itself does not, and of its schedulers only some
 * look at them (BFQ and mq-deadline do; none and kyber do not).
 */
enum ckpt_ionice {
	CKPT_IONICE_NONE = 0, /* as the process has it */
	CKPT_IONICE_BEST_EFFORT = 2,
	CKPT_IONICE_IDLE = 3, /* when nobody else wants the disk */
};

/* Touch all of staging when the writer is opened, so that no save pays for
 * memory that is used for the first time. */
#define CKPT_WRITER_TOUCH 1u

/*
 * For finding who writes too early: from ckpt_save_start() until CAPTURED, or
 * the save's end, whole pages of borrowed host memory (contiguous, also as
 * parts of a composite that does not serialise) are write-protected
 * (mprotect(2)), so a thread that writes there gets SIGSEGV at that very
 * instruction; a system call that would write there fails with EFAULT. Part
 * pages at the edges stay writable, as do pages that were not writable before,
 * memory with strides, memory of devices that no processor reads (without
 * CKPT_MEMORY_HOST), and what the system refuses to protect: pages of
 * hugetlbfs, sealed mappings. Saves of one writer may share
 * pages: they are writable again after the last. Costs a look into
 * /proc/self/maps a save, and mappings: where there are too many, start fails
 * with CKPT_ENOMEM. Where there are too many to undo it, those pages stay
 * protected, and a note says where; the writer's next saves try it again, at
 * start and end, and so does its close. A child that is forked meanwhile keeps
 * the protection.
 */
#define CKPT_WRITER_PROTECT 2u

struct ckpt_writer_opts {
	size_t size;          /* sizeof(struct ckpt_writer_opts) */
	size_t staging_bytes; /* memory for bytes in flight, had at open and
				 never more; 0: 64 MiB for each of threads,
				 from 256 MiB to 1 GiB; at least 32 MiB.
				 All else of a save is under 64 MiB, but for
				 what serialises */
	enum ckpt_codec codec;
	int zstd_level;       /* of ZSTD, and of PLANES and AUTO for what is no
				 number; 0: 1 */
	uint64_t pack_bytes;  /* a pack is sealed past this; 0: 2 GiB */
	uint32_t threads;     /* that compute at once; 0: as many as this
				 process has processors, at most 16; twelve
				 more wait in writes */
	int nice;             /* of these threads: 0 to 19; never less than
				 the process's */
	enum ckpt_io io;
	uint32_t flags;       /* CKPT_WRITER_... */
	uint32_t cpu_share;   /* percent of the time of all processors of this
				 process that the writer's threads may take
				 together, kept tile by tile; 0: no limit.
				 Off while a caller waits for CAPTURED: it is
				 stopped, and leaves the processors free */
	enum ckpt_ionice ionice; /* of these threads, with its level: 0, the
				 first, to 7; IDLE has none. Like nice no
				 failure where the system does not grant it */
	int ionice_level;
	uint64_t write_bytes_per_s; /* to packs, of all saves together, in small
				 bursts; 0: no limit. What does not fit in
				 staging is captured no faster, either */
};

/**
 * Open a writer on @store, which must outlive it. @opts may be NULL.
 *
 * Returns:     0; CKPT_EINVAL; CKPT_EPERM, the store is read-only.
 */
CKPT_API CKPT_MUST int ckpt_writer_open(struct ckpt_store *store,
					const struct ckpt_writer_opts *opts,
					struct ckpt_writer **out,
					struct ckpt_err *err);

/** Close @writer (NULL is allowed). Every save must have been freed. */
CKPT_API void ckpt_writer_close(struct ckpt_writer *writer);

/**
 * Take the next @len bytes at @data, which are copied. Returns 0; or a code
 * when the save goes on no more: return that.
 */
typedef int (*ckpt_sink_fn)(void *sink, const void *data, size_t len);

/* `read` and `borrow` may be called from several threads at once: the writer
 * does so, from as many as compute, four at most. */
#define CKPT_PROVIDER_PARALLEL 1u

/**
 * Where the bytes of a tensor or file come from. A table of functions over
 * the entry's bytes: the shard's boxes one after another, each in C order.
 * It has `read`, or `serialise`, or both: then `serialise` is used.
 */
struct ckpt_provider_ops {
	size_t size;
	/*
	 * Put bytes [@off, @off + @len) at @dst. Called from the writer's own
	 * threads, until CKPT_CAPTURED; one at a time, unless @flags say more.
	 * Returns 0 or a negative enum ckpt_code with @err filled.
	 */
	int (*read)(void *ctx, uint64_t off, void *dst, size_t len,
		    struct ckpt_err *err);
	/*
	 * Optional: the same bytes where they lie, when [@off, @off + @len)
	 * is contiguous in host memory; else NULL. Called from any thread of
	 * the writer, and by ckpt_save_start(); the same answer each time, and
	 * good until CKPT_CAPTURED.
	 */
	const void *(*borrow)(void *ctx, uint64_t off, size_t len);
	/* Optional: called once, when the writer needs @ctx no more. */
	void (*release)(void *ctx);
	/*
	 * Optional: how many bytes there are. An entry that is described with
	 * another number is refused: padding never becomes data.
	 */
	uint64_t (*bytes)(void *ctx);
	/*
	 * Optional: make the bytes, in order, and hand them to @write with
	 * @sink; how many there are need not be known before. Called once,
	 * from the save's own thread, beside the capture of all that can be
	 * read; CKPT_CAPTURED waits for it, and the capture of later saves, so
	 * it must not wait for theirs. Those of one save are called one after
	 * another. Returns as read does.
	 *
	 * Memory: all that it hands over, beside staging, until CKPT_CAPTURED;
	 * it is refused (CKPT_ELIMIT) past 64 GiB a save, of entries whose
	 * size was not described.
	 */
	int (*serialise)(void *ctx, ckpt_sink_fn write, void *sink,
			 struct ckpt_err *err);
	uint32_t flags; /* CKPT_PROVIDER_...; none where @size ends before */
};

struct ckpt_provider {
	const struct ckpt_provider_ops *ops;
	void *ctx;
};

/**
 * Host memory at @data, contiguous. @data stays the caller's and must not
 * change until ckpt_save_wait(CKPT_CAPTURED) has returned 0.
 */
CKPT_API CKPT_MUST int ckpt_provider_host(const void *data, uint64_t bytes,
					  struct ckpt_provider *out,
					  struct ckpt_err *err);

/**
 * Host memory with @strides (bytes; may be negative or zero) between
 * neighbours of each dimension of @shape; @data is element [0, ..., 0].
 * Borrowed as with ckpt_provider_host(). Dtypes of whole bytes only. Costs a
 * gather: element by element where the last dimension is not dense.
 */
CKPT_API CKPT_MUST int ckpt_provider_strided(const void *data,
					     enum ckpt_dtype dtype,
					     const struct ckpt_shape *shape,
					     const int64_t *strides,
					     struct ckpt_provider *out,
					     struct ckpt_err *err);

/** @bytes bytes, copied during the call. */
CKPT_API CKPT_MUST int ckpt_provider_bytes(const void *data, uint64_t bytes,
					   struct ckpt_provider *out,
					   struct ckpt_err *err);

/**
 * Bytes [@off, @off + @bytes) of the open file @fd, read with pread(2). @fd
 * is borrowed until CKPT_CAPTURED. A file that ends early is CKPT_EIO.
 */
CKPT_API CKPT_MUST int ckpt_provider_file(int fd, uint64_t off, uint64_t bytes,
					  struct ckpt_provider *out,
					  struct ckpt_err *err);

/**
 * @bytes bytes at @data, an address of the device of @mem, contiguous.
 *
 * @stream orders the copies after the producer's work: they start when all that
 * @stream has been given before this call is done. What it is, the kind says
 * (CUDA: a cudaStream_t; for the default stream cudaStreamLegacy or
 * cudaStreamPerThread). NULL: the caller has synchronised; for CUDA too it does
 * not mean the default stream.
 *
 * Memory:      copies go through 4 MiB of the host's memory a lane, 16 lanes at
 *              most, or straight to memory that the kind gave.
 * Buffers:     @data is borrowed as with ckpt_provider_host(). @stream may end
 *              after the call. The provider holds @mem.
 * Returns:     0; CKPT_EINVAL, no address, or a kind without streams;
 *              CKPT_EIO, the device failed; CKPT_ENOMEM. What reads of it
 *              may fail with: ckpt/memory.h.
 */
CKPT_API CKPT_MUST int ckpt_provider_device(struct ckpt_memory *mem,
					    const void *data, uint64_t bytes,
					    void *stream,
					    struct ckpt_provider *out,
					    struct ckpt_err *err);

/**
 * Memory of a device with @strides, as in ckpt_provider_strided(); @mem and
 * @stream as in ckpt_provider_device(). Copied in the order of the device's
 * memory and put in C order on the host. Bytes in small gaps between elements
 * may be read, too.
 */
CKPT_API CKPT_MUST int
ckpt_provider_device_strided(struct ckpt_memory *mem, const void *data,
			     enum ckpt_dtype dtype,
			     const struct ckpt_shape *shape,
			     const int64_t *strides, void *stream,
			     struct ckpt_provider *out, struct ckpt_err *err);

/**
 * What @serialise hands over, as in struct ckpt_provider_ops; @release may be
 * NULL. @ctx passes to the provider; after a failure it is still the caller's.
 */
CKPT_API CKPT_MUST int
ckpt_provider_callback(int (*serialise)(void *ctx, ckpt_sink_fn write,
					void *sink, struct ckpt_err *err),
		       void (*release)(void *ctx), void *ctx,
		       struct ckpt_provider *out, struct ckpt_err *err);

/**
 * The bytes of @count @parts, one after another: parts that are fused, or a
 * shard that lies in several pieces of memory. Bytes that lie in one piece of
 * host memory are copied from there, as with ckpt_provider_host(). Several
 * threads read it at once if every part allows that (CKPT_PROVIDER_PARALLEL).
 * If one of them serialises, all are handed over as one that does, and cost its
 * memory.
 *
 * Ownership:   @parts pass to it, also on failure: they are empty then.
 * Returns:     0; CKPT_EINVAL, a part that does not say how many bytes it has,
 *              or has no functions; CKPT_ENOMEM.
 */
CKPT_API CKPT_MUST int ckpt_provider_composite(struct ckpt_provider *parts,
					       uint32_t count,
					       struct ckpt_provider *out,
					       struct ckpt_err *err);

/** End a provider that was never handed to a save. */
CKPT_API void ckpt_provider_release(struct ckpt_provider *provider);

struct ckpt_save_desc {
	size_t size;
	const char *name;      /* checkpoint name: "gpt2-125m/4000" */
	bool has_step;         /* false: taken from a last component that is a
				  number, or step, global_step, checkpoint,
				  ckpt, iteration, iter or epoch, then '-',
				  '_', '=' or nothing, and a number */
	uint64_t step;
	const uint8_t *attempt; /* 16 random bytes of all ranks; NULL: solo */
	const char *metadata;  /* JSON object or NULL */
	const char *metrics;   /* JSON object or NULL */
	const char *parent;    /* checkpoint this one follows, or NULL */
	const char *program;   /* who saves, for people; NULL: libckpt X.Y.Z */
	bool replace;          /* a checkpoint of this name may be replaced,
				  unless it is tagged */
};

/**
 * Begin a save: the check phase. Makes the staging folder (synced, S8), reads
 * condemned/, and refuses what can be refused now.
 *
 * Blocks:      for a few small writes and syncs.
 * Ownership:   *@out is the caller's; ckpt_save_free() ends it.
 * Returns:     0; CKPT_EEXIST, the name is taken and @replace is false, or a
 *              run has it, or a part of it is a checkpoint; CKPT_EBUSY, what
 *              would be replaced is tagged; CKPT_EINVAL, not a legal name, or
 *              JSON that is no object; CKPT_ENOENT, no such parent;
 *              CKPT_ENOSPC, CKPT_EPERM, CKPT_EIO.
 */
CKPT_API CKPT_MUST int ckpt_save_begin(struct ckpt_writer *writer,
				       const struct ckpt_save_desc *desc,
				       struct ckpt_save **out,
				       struct ckpt_err *err);

struct ckpt_item_desc {
	size_t size;
	const char *name;      /* one component; FORMAT.md says which */
	enum ckpt_item_kind kind;
	const char *separator; /* ".", "/" or ""; NULL: "." */
	const char *metadata;  /* JSON object or NULL */
};

/** Add a checkpointable; *@out_item names it in the calls below. */
CKPT_API CKPT_MUST int ckpt_save_item(struct ckpt_save *save,
				      const struct ckpt_item_desc *desc,
				      uint32_t *out_item,
				      struct ckpt_err *err);

struct ckpt_tensor_desc {
	size_t size;
	const char *name;      /* UTF-8, <= 64 KiB; may be "" */
	size_t name_len;       /* 0: strlen(name); else NUL is allowed */
	enum ckpt_dtype dtype;
	struct ckpt_shape shape; /* global shape */
	const struct ckpt_box *boxes; /* what this process holds */
	uint32_t box_count;    /* 0: all of it */
	uint32_t replica;      /* r of replicas that hold these boxes */
	uint32_t replica_count; /* 0 or 1: not replicated */
	const char *alias_of;  /* name of an earlier tensor of this item */
	size_t alias_of_len;   /* 0: strlen(alias_of) */
};

/**
 * Describe a tensor and where its bytes come from.
 *
 * Ownership:   @provider passes to the save, also on failure: *@provider is
 *              empty after the call. For an alias it must be NULL; for a
 *              tensor without bytes it may be.
 * Returns:     0; CKPT_EINVAL, with names and numbers: a dtype, shape or box
 *              that cannot be, a name given twice, no data, or more or fewer
 *              bytes than the boxes have; CKPT_ELIMIT; CKPT_ESTATE, started
 *              before; CKPT_ECANCELED, aborted. Other tensors of the save are
 *              unaffected.
 */
CKPT_API CKPT_MUST int ckpt_save_tensor(struct ckpt_save *save, uint32_t item,
					const struct ckpt_tensor_desc *desc,
					struct ckpt_provider *provider,
					struct ckpt_err *err);

/**
 * Describe an opaque file of @bytes bytes in an item of kind FILES (or
 * ORIGIN). @name is a '/'-separated path inside it; @media_type may be NULL.
 * @bytes is CKPT_UNKNOWN when a provider that serialises tells it by what it
 * hands over; bytes_total grows by it then.
 */
CKPT_API CKPT_MUST int ckpt_save_file(struct ckpt_save *save, uint32_t item,
				      const char *name, const char *media_type,
				      uint64_t bytes,
				      struct ckpt_provider *provider,
				      struct ckpt_err *err);

/**
 * Start saving everything described to @save.
 *
 * Blocks:      for the proof of coverage (S7) only, and with
 *              CKPT_WRITER_PROTECT to ask providers and to protect; no tensor
 *              byte is copied.
 * Buffers:     tensors stay borrowed, and must not be written to or freed,
 *              until ckpt_save_wait(CKPT_CAPTURED) has returned 0, or
 *              ckpt_save_abort() or ckpt_save_free() has returned.
 * Returns:     0; CKPT_EINVAL, holes or overlaps, naming tensor and box, or a
 *              file where another file of its item needs a folder;
 *              CKPT_ESTATE, started before; CKPT_ECANCELED, aborted;
 *              CKPT_ENOMEM; with CKPT_WRITER_PROTECT also what says that
 *              /proc/self/maps cannot be read.
 */
CKPT_API CKPT_MUST int ckpt_save_start(struct ckpt_save *save,
				       struct ckpt_err *err);

enum ckpt_phase {
	CKPT_NO_PHASE = 0, /* not captured yet */
	CKPT_CAPTURED = 1, /* the caller's buffers are not needed any more */
	CKPT_DURABLE = 2,  /* published and synced: survives power loss */
};

/**
 * Wait for @phase. The same answer again when it is asked again: a failure is
 * told by every later wait, of either phase.
 *
 * Who waits for CKPT_CAPTURED has copies made before anything else; who waits
 * for CKPT_DURABLE alone has bytes written as they are copied, so CKPT_CAPTURED
 * comes later then.
 *
 * Blocks:      until @phase is reached or the save is over. When it fails,
 *              that is when nothing of the caller's is in use any more; when
 *              another thread aborts it, at once.
 * Buffers:     free on return, but for CKPT_ECANCELED: then they are when that
 *              thread's ckpt_save_abort() has returned.
 * Threads:     any, several at once.
 * Returns:     0; CKPT_EUNSURE, published, but the last sync failed: visible,
 *              durability unknown; CKPT_EEXIST, another save took the name;
 *              CKPT_ECANCELED, aborted; CKPT_ESTATE, not started, or the
 *              caller is the save's own thread (ckpt_save_on_phase());
 *              whatever stopped the save.
 */
CKPT_API CKPT_MUST int ckpt_save_wait(struct ckpt_save *save,
				      enum ckpt_phase phase,
				      struct ckpt_err *err);

/**
 * As ckpt_save_wait(), for @timeout_ns at most; 0 looks and does not wait,
 * CKPT_UNKNOWN waits for ever. Time runs by the monotonic clock.
 *
 * Returns:     as ckpt_save_wait(); CKPT_ETIMEDOUT, not reached yet: the save
 *              goes on, buffers stay borrowed.
 */
CKPT_API CKPT_MUST int ckpt_save_wait_for(struct ckpt_save *save,
					  enum ckpt_phase phase,
					  uint64_t timeout_ns,
					  struct ckpt_err *err);

/** The last phase reached. Never blocks; any thread; tells no failure. */
CKPT_API enum ckpt_phase ckpt_save_phase(const struct ckpt_save *save);

/**
 * A descriptor for poll(2), epoll(7) and their like: it becomes readable, and
 * stays so, when ckpt_save_wait(@phase) would not block any more: ask that then
 * for the answer. An eventfd(2), non-blocking, closed on exec; it need not be
 * read. One for each phase: asked again, the same.
 *
 * Ownership:   the save's: ckpt_save_free() closes it.
 * Threads:     any.
 * Returns:     0; CKPT_EINVAL, no such phase; CKPT_EIO, no descriptor is left.
 */
CKPT_API CKPT_MUST int ckpt_save_fd(struct ckpt_save *save,
				    enum ckpt_phase phase, int *out_fd,
				    struct ckpt_err *err);

/**
 * Called when @phase is reached, with @rc 0; or once, with the first phase that
 * is not reached, when the save is over: @rc is what ckpt_save_wait() returns,
 * and @err its words, borrowed for the call. No call follows DURABLE or a
 * failure.
 */
typedef void (*ckpt_phase_fn)(void *ctx, struct ckpt_save *save,
			      enum ckpt_phase phase, int rc,
			      const struct ckpt_err *err);

/**
 * Have @fn called, before ckpt_save_start(). NULL: no more. A later call takes
 * the place of an earlier one.
 *
 * Threads:     @fn runs on the save's own thread, with signals blocked, and
 *              after waiters were woken. No lock is held: it may make any call
 *              on other saves and the writer, but must not wait for a save
 *              that was started after this one, nor stay long after CAPTURED:
 *              they wait for it. On its own save ckpt_save_wait() of what is
 *              not reached is CKPT_ESTATE, ckpt_save_abort() does not wait, and
 *              ckpt_save_free() is refused with a note in the log. In other
 *              threads ckpt_save_free() returns after the last call.
 * Returns:     0; CKPT_ESTATE, started; CKPT_ECANCELED, aborted.
 */
CKPT_API CKPT_MUST int ckpt_save_on_phase(struct ckpt_save *save,
					  ckpt_phase_fn fn, void *ctx,
					  struct ckpt_err *err);

/**
 * The last failure of a save of @writer that nobody was told of: no wait of
 * that save returned it, and no ckpt_phase_fn was called with it. It is told
 * once. So a training loop that saves and never waits learns of it, with the
 * save's name, when it asks before the next save; that one is not hindered.
 * Failures of ckpt_save_begin() and _start(), and aborts, are not among them.
 *
 * Blocks:      never.
 * Threads:     any.
 * Returns:     0, there is none, and @err is left as it is; else the failure.
 */
CKPT_API CKPT_MUST int ckpt_writer_last_error(struct ckpt_writer *writer,
					      struct ckpt_err *err);

struct ckpt_save_progress {
	uint64_t bytes_total;    /* raw bytes described */
	uint64_t bytes_captured;
	uint64_t bytes_hashed;   /* or found to be as they were */
	uint64_t bytes_new;      /* raw bytes the store did not have */
	uint64_t bytes_written;  /* bytes appended to packs */
	uint64_t chunk_count;
	uint64_t chunk_new_count;
	enum ckpt_phase phase;   /* reached */
	int failed;              /* enum ckpt_code that ended it; 0: none */
	/*
	 * Nanoseconds from now, or from a start now, until CAPTURED, as far
	 * as this writer's saves so far tell: what finds room in staging is
	 * copied, the rest waits until as much was stored, saves before this
	 * one too. 0: it is captured, or has failed; CKPT_UNKNOWN: no save of
	 * this writer tells.
	 */
	uint64_t capture_ns;
};

/** A snapshot; any thread. Takes the writer's lock for a moment. */
CKPT_API void ckpt_save_progress(const struct ckpt_save *save,
				 struct ckpt_save_progress *out);

/** The uuid the checkpoint has, or will have when published. */
CKPT_API const uint8_t *ckpt_save_uuid(const struct ckpt_save *save);

/**
 * Give the save up. On return buffers are free, staging is removed as far as
 * possible. A save whose commit has begun is finished, and stays.
 *
 * Blocks:      until a provider's read that is under way has returned. Those
 *              who wait in other threads return at once.
 * Threads:     any.
 */
CKPT_API void ckpt_save_abort(struct ckpt_save *save);

/**
 * End @save; aborts it unless it is done. NULL is allowed. A failure that
 * nobody was told of is written to the log, and ckpt_writer_last_error() still
 * tells it.
 */
CKPT_API void ckpt_save_free(struct ckpt_save *save);

/* ---- import ---------------------------------------------------------- */

struct ckpt_import_opts {
	size_t size;
	const char *item;      /* of the tensors; NULL: "model" */
	const char *metadata;  /* JSON object for the checkpoint, or NULL */
	bool has_step;
	uint64_t step;
	bool replace;
	enum ckpt_dtype void_dtype; /* what .npy arrays of raw bytes (V1, V2)
				       of its size hold; 0: not known */
	bool ignore_index;     /* of a Hugging Face folder: a file only */
	/* some times a second; non-zero: end it, with CKPT_ECANCELED */
	int (*on_progress)(void *ctx, const struct ckpt_save_progress *p);
	/* one sentence on what was passed over or taken as a file only */
	void (*on_note)(void *ctx, const char *text);
	void *ctx;             /* of both; called from the caller's thread */
};

struct ckpt_import_result {
	uint64_t tensor_count; /* aliases among them */
	uint64_t alias_count;
	uint64_t file_count;   /* files kept whole, in the item `assets` */
	struct ckpt_save_progress progress;
};

/**
 * Import what lies at @path as checkpoint @name: all or nothing.
 *
 * A safetensors file: tensors go to one item; its metadata is the file's
 * __metadata__. Names that __metadata__ maps to a kept tensor
 * (safetensors.torch.save_model) become aliases. The header's bytes are kept
 * in an item of kind ORIGIN.
 *
 * A folder with *.safetensors or an index of them (Hugging Face): the same for
 * all shards together. The index says which they are and is proved against
 * them; without one every *.safetensors at the top is a shard. The item's
 * metadata is that of the shards, the first one's where they differ. All other
 * files, of sub-folders too, go to the item `assets`. Symbolic links to files
 * are followed; folders `.git` and `.cache` are passed over, and noted.
 *
 * An .npy file, or a folder with such: a tensor a file, its name the path below
 * the folder without ".npy", the item's separator "/". Big-endian and
 * Fortran-order arrays arrive as little-endian C order. "<V2" is BF16 and
 * "<f1" F8_E5M2, as ml_dtypes writes them; other raw bytes need @void_dtype.
 * The headers of arrays that are C-order and little-endian are kept in an item
 * of kind ORIGIN, other files of the folder in `assets`.
 *
 * An .npz file: the same for its members. Members are written to an unlinked
 * temporary file in $TMPDIR, else /var/tmp, one at a time.
 *
 * Memory:      beside the writer's under 64 MiB, whatever the arrays' sizes,
 *              and names and shapes of all tensors.
 * Blocks:      until the checkpoint is durable.
 * Returns:     0; CKPT_EFORMAT, a file breaks its format, or the folder's
 *              files do not fit together: what and where; CKPT_EINVAL, what
 *              lies there cannot be imported: why; CKPT_ELIMIT; CKPT_EIO,
 *              unreadable or changed meanwhile; CKPT_ECANCELED, by
 *              @on_progress; and all that ckpt_save_begin() and
 *              ckpt_save_wait() return.
 */
CKPT_API CKPT_MUST int
ckpt_import(struct ckpt_writer *writer, const char *path, const char *name,
	    const struct ckpt_import_opts *opts,
	    struct ckpt_import_result *out, struct ckpt_err *err);

#ifdef __cplusplus
}
#endif
#endif
