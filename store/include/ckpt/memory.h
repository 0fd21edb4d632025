/* SPDX-License-Identifier: Apache-2.0 */
/*
 * ckpt/memory.h - memory that is not the process's own: kinds of memory.
 *
 *	ckpt_memory_open("cuda:0", &mem, err)
 *	ckpt_provider_device(mem, address, bytes, stream, &provider, err)
 *	ckpt_save_tensor(...)                  as with any provider
 *	ckpt_memory_unref(mem)
 *
 * A kind is a table of functions (struct ckpt_memory_ops): memory of the host
 * that the device copies into fastest, and lanes that copy in the background.
 * The library knows no device by name: "host" and the fake device are built
 * in, CUDA is a module that is loaded when it is asked for, and a program may
 * bring a table of its own (ckpt_memory_new()) or a module.
 *
 * Unless a call says otherwise: any thread; what is opened is referenced once,
 * for the caller; nothing blocks.
 *
 * Failures of a device never end the process. They are CKPT_EIO, and the
 * message names the device and what happened:
 *	a copy failed      other copies may still succeed
 *	a device is lost   sys_errno ENODEV; all later calls fail at once
 *	a device stalled   sys_errno ETIMEDOUT; a copy did not end within the
 *	                   deadline. Later calls fail at once while it goes on
 */
#ifndef CKPT_MEMORY_H
#define CKPT_MEMORY_H

#include <stddef.h>
#include <stdint.h>

#include <ckpt/err.h>

#ifdef __cplusplus
extern "C" {
#endif

/** Memory of one device: a kind's table, and a few lanes to copy on. */
struct ckpt_memory;

/**
 * Open memory by name: "host", or KIND:DEVICE of a module, as "cuda:0".
 *
 * The module is the file ckpt_KIND.so: of the folder $CKPT_MODULE_DIR, else of
 * the folder libckpt was installed to have modules in, else beside libckpt. A
 * module stays loaded.
 *
 * Blocks:      for loading, and for what the device's driver does at first.
 * Returns:     0; CKPT_EINVAL, not such a name; CKPT_ENOENT, no module, with
 *              the places looked in, or no driver, or no such device;
 *              CKPT_EVERSION, a module for another libckpt; CKPT_EIO, the
 *              module does not load, or the driver fails: its words;
 *              CKPT_ENOMEM.
 */
CKPT_API CKPT_MUST int ckpt_memory_open(const char *name,
					struct ckpt_memory **out,
					struct ckpt_err *err);

/** The process's own memory: the same as the name "host". */
CKPT_API CKPT_MUST int ckpt_memory_host(struct ckpt_memory **out,
					struct ckpt_err *err);

/** Another reference to @mem. Returns @mem. */
CKPT_API struct ckpt_memory *ckpt_memory_ref(struct ckpt_memory *mem);

/**
 * Drop a reference (NULL is allowed). The last one closes the lanes and calls
 * the table's close. Providers hold references of their own.
 *
 * Blocks:      with the last reference, for what lanes still have to do.
 */
CKPT_API void ckpt_memory_unref(struct ckpt_memory *mem);

/** The name it was opened by, until @mem ends. */
CKPT_API const char *ckpt_memory_name(const struct ckpt_memory *mem);

/** How long a copy may take before the device counts as stalled; 0: 60 s. */
CKPT_API void ckpt_memory_set_deadline(struct ckpt_memory *mem,
				       uint64_t deadline_ns);

/* ---- a kind of one's own --------------------------------------------- */

enum ckpt_memory_flag {
	/* The processor may read device addresses as they are. */
	CKPT_MEMORY_HOST = 1,
};

/**
 * A kind of memory. @ctx is what came with the table. A lane is a stream of
 * work, in order, beside other lanes; the library uses each from one thread at
 * a time, and several at once. All that returns int returns 0, or a negative
 * enum ckpt_code with @err filled: what happened, in words that fit after
 * "device 'NAME': ". sys_errno ENODEV says that the device is lost and no later
 * call can succeed. After any failure of a lane it is only closed.
 */
struct ckpt_memory_ops {
	size_t size;
	uint32_t flags; /* of enum ckpt_memory_flag */
	/*
	 * Optional, both or neither: memory of the host that this device copies
	 * into fastest (pinned), at least 4096-aligned. NULL: plain memory.
	 */
	int (*alloc)(void *ctx, size_t bytes, void **out,
		     struct ckpt_err *err);
	void (*free)(void *ctx, void *staging, size_t bytes);
	/* *@out_lane is not NULL. */
	int (*lane_open)(void *ctx, void **out_lane, struct ckpt_err *err);
	/*
	 * End @lane. Work that it still has is done or dropped when this has
	 * returned 0, and nothing is written to the host after. CKPT_EBUSY:
	 * the device holds on to a copy, and may write later; @lane stays as
	 * it is, and is closed again later.
	 */
	int (*lane_close)(void *lane);
	/*
	 * Queue @height rows of @width bytes from the device to the host; a
	 * pitch is the bytes between the begins of two rows, at least @width.
	 * @height 1 is a plain copy. @dst may be any memory of the host, but
	 * most often is from alloc.
	 */
	int (*copy_2d)(void *lane, void *dst, size_t dst_pitch,
		       const void *src, size_t src_pitch, size_t width,
		       size_t height, struct ckpt_err *err);
	/*
	 * Mark the end of what is queued now. The library waits for any of the
	 * last CKPT_MEMORY_EVENTS of a lane, and never has more than
	 * CKPT_MEMORY_QUEUE copies queued that it has not waited for.
	 */
	int (*record)(void *lane, uint64_t *out_event, struct ckpt_err *err);
	/*
	 * Wait until all that was queued before @event is done: then the
	 * copies are in host memory. CKPT_EBUSY, with no words: not within
	 * @timeout_ns. The failure of a copy comes from here, or earlier.
	 */
	int (*wait)(void *lane, uint64_t event, uint64_t timeout_ns,
		    struct ckpt_err *err);
	/*
	 * Optional, all or none: order after the work of a producer. @stream
	 * is whatever the kind's users call a stream. ready_open marks the end
	 * of what @stream has been given so far; work that is queued on @lane
	 * after follow starts when that is done.
	 */
	int (*ready_open)(void *ctx, void *stream, void **out_ready,
			  struct ckpt_err *err);
	int (*follow)(void *lane, void *ready, struct ckpt_err *err);
	void (*ready_close)(void *ctx, void *ready);
	/* Optional: the last call. */
	void (*close)(void *ctx);
};

#define CKPT_MEMORY_EVENTS 4
#define CKPT_MEMORY_QUEUE 32

/**
 * Make memory of a table of one's own. @ops and @name (some text for messages)
 * are copied. From here on @ctx belongs to the memory, which ends it with
 * ops->close; after a failure it is still the caller's.
 *
 * Returns:     0; CKPT_EINVAL, the table lacks what it must have;
 *              CKPT_ENOMEM.
 */
CKPT_API CKPT_MUST int ckpt_memory_new(const char *name,
				       const struct ckpt_memory_ops *ops,
				       void *ctx, struct ckpt_memory **out,
				       struct ckpt_err *err);

/**
 * What a module exports under the name CKPT_MEMORY_MODULE_ENTRY: open @device
 * (what follows the ':' in the name; "" without one). The name's number changes
 * when the table does in a way that its size cannot tell. *@out_ops lives as
 * long as the module is loaded.
 */
typedef int (*ckpt_memory_module_fn)(const char *device,
				     const struct ckpt_memory_ops **out_ops,
				     void **out_ctx, struct ckpt_err *err);
#define CKPT_MEMORY_MODULE_ENTRY "ckpt_memory_module_1"

/* ---- a fake device --------------------------------------------------- */

/**
 * A device for tests, its addresses those of the process. Each lane is a thread
 * that copies later. Until then @dst holds 0xDB, so bytes that are used too
 * early are seen. Faults happen to the n-th copy, counted from 1 over the whole
 * device; 0 is never.
 *
 * Its streams are `const int *`: the producer's work is done when the int is
 * not 0 (read with acquire order).
 */
struct ckpt_fake_opts {
	size_t size;
	uint64_t delay_ns;         /* before each copy */
	uint64_t bytes_per_second; /* of each lane; 0: no limit */
	uint64_t fail_at;          /* this copy fails */
	uint64_t lost_at;          /* the device is lost amid this copy */
	uint64_t hang_at;          /* this copy does not end ... */
	uint64_t hang_ns;          /* ... for this long, and so long its lane
				      cannot be closed, as on a real device;
				      0: never, but its lane can */
};

/** Open a fake device. @opts may be NULL: no delay, no fault. */
CKPT_API CKPT_MUST int ckpt_memory_fake(const struct ckpt_fake_opts *opts,
					struct ckpt_memory **out,
					struct ckpt_err *err);

#ifdef __cplusplus
}
#endif
#endif
