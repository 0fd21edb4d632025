/* SPDX-License-Identifier: Apache-2.0 */
/*
 * cuda.c - memory of NVIDIA devices: the module ckpt_cuda.so. The only user of
 * CUDA's headers, and written against ckpt/memory.h alone.
 *
 * Staging memory is pinned, for all contexts. A lane is a non-blocking stream
 * of its own, so it waits for no other stream, the default one included, unless
 * it is told to follow one. Waiting is asking, again and again and more and
 * more seldom, as only that can be given up.
 *
 * The runtime is linked in, so that what the module needs is the driver, and
 * that is loaded at first use: a machine without one gets a sentence. Threads
 * keep the device they had: each call pushes the device's primary context (that
 * of all users of the runtime in this process, PyTorch among them) and pops it.
 * A thread's last error is cleared only of errors that calls here made.
 *
 * A device is lost when its context is: after such errors the driver fails all
 * calls until the process ends.
 *
 * Threads: as the table's; nothing here is shared but what is never written.
 */
#include <dlfcn.h>
#include <errno.h>
#include <sched.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include <cuda.h>
#include <cuda_runtime_api.h>

#include <ckpt/memory.h>

#define SPIN_NS 100000u      /* a short copy is waited for awake */
#define NAP_NS_MAX 1000000u
#define CLOSE_NS 1000000000u /* what queued work may take at a lane's end */
#define PITCH_MAX 0x7fffffffu /* where the device does not say */

struct device {
	CUdevice handle;
	CUcontext context;   /* primary; a reference */
	size_t pitch_max;
	CUresult (*push)(CUcontext context);
	CUresult (*pop)(CUcontext *out);
	CUresult (*release)(CUdevice device);
};

struct lane {
	struct device *dev;
	cudaStream_t stream;
	cudaEvent_t events[CKPT_MEMORY_EVENTS];
	uint64_t count;      /* marks so far */
	bool stuck;          /* it was not to be closed */
};

/* ---- errors ---- */

static int say(struct ckpt_err *err, int code, int sys_errno, const char *fmt,
	       ...) __attribute__((format(printf, 4, 5)));

static int say(struct ckpt_err *err, int code, int sys_errno, const char *fmt,
	       ...)
{
	va_list args;

	if (!err)
		return code;
	err->code = code;
	err->sys_errno = sys_errno;
	va_start(args, fmt);
	vsnprintf(err->message, sizeof(err->message), fmt, args);
	va_end(args);
	return code;
}

/* Errors after which a context does nothing any more. */
static bool is_lost(cudaError_t rc)
{
	switch (rc) {
	case cudaErrorCudartUnloading:
	case cudaErrorDevicesUnavailable:
	case cudaErrorDeviceUninitialized:
	case cudaErrorECCUncorrectable:
	case cudaErrorNvlinkUncorrectable:
	case cudaErrorIllegalAddress:
	case cudaErrorLaunchTimeout:
	case cudaErrorContextIsDestroyed:
	case cudaErrorAssert:
	case cudaErrorHardwareStackError:
	case cudaErrorIllegalInstruction:
	case cudaErrorMisalignedAddress:
	case cudaErrorInvalidAddressSpace:
	case cudaErrorInvalidPc:
	case cudaErrorLaunchFailure:
#if CUDART_VERSION >= 13000
	case cudaErrorContained:
	case cudaErrorTensorMemoryLeak:
	case cudaErrorExternalDevice:
#endif
		return true;
	default:
		return false;
	}
}

static int failed(cudaError_t rc, const char *what, struct ckpt_err *err)
{
	int code = rc == cudaErrorMemoryAllocation ? CKPT_ENOMEM
		 : rc == cudaErrorNoDevice || rc == cudaErrorInvalidDevice ||
		   rc == cudaErrorInsufficientDriver
			 ? CKPT_ENOENT : CKPT_EIO;

	(void)cudaGetLastError();
	return say(err, code, is_lost(rc) ? ENODEV : 0, "%s: %s (%s)", what,
		   cudaGetErrorString(rc), cudaGetErrorName(rc));
}

static int enter(const struct device *dev, struct ckpt_err *err)
{
	CUresult rc = dev->push(dev->context);

	if (rc == CUDA_SUCCESS)
		return 0;
	return say(err, CKPT_EIO, ENODEV, "enter the device's context: the "
		   "driver refuses (%d)", (int)rc);
}

static void leave(const struct device *dev)
{
	CUcontext mine;

	dev->pop(&mine);
}

/* ---- staging memory ---- */

static int cuda_alloc(void *ctx, size_t bytes, void **out,
		      struct ckpt_err *err)
{
	struct device *dev = ctx;
	int rc = enter(dev, err);

	if (rc < 0)
		return rc;
	cudaError_t e = cudaHostAlloc(out, bytes, cudaHostAllocPortable);

	leave(dev);
	return e == cudaSuccess ? 0 : failed(e, "allocate pinned memory", err);
}

static void cuda_free(void *ctx, void *staging, size_t bytes)
{
	struct device *dev = ctx;

	(void)bytes;
	if (enter(dev, NULL) < 0)
		return;
	if (cudaFreeHost(staging) != cudaSuccess)
		(void)cudaGetLastError();
	leave(dev);
}

/* ---- lanes ---- */

static uint64_t now_ns(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return (uint64_t)t.tv_sec * 1000000000 + (uint64_t)t.tv_nsec;
}

static void nap(uint64_t waited_ns)
{
	struct timespec t = { .tv_nsec = (long)(waited_ns / 16) };

	if (waited_ns < SPIN_NS) {
		sched_yield();
		return;
	}
	if (t.tv_nsec > (long)NAP_NS_MAX)
		t.tv_nsec = (long)NAP_NS_MAX;
	nanosleep(&t, NULL);
}

/* Ask until it is no longer "not ready", for @timeout_ns: @event, or with NULL
 * the whole of @stream. */
static cudaError_t await(cudaStream_t stream, cudaEvent_t event,
			 uint64_t timeout_ns)
{
	uint64_t start = now_ns();

	for (;;) {
		cudaError_t e = event ? cudaEventQuery(event)
				      : cudaStreamQuery(stream);
		uint64_t waited = now_ns() - start;

		if (e != cudaErrorNotReady)
			return e;
		(void)cudaGetLastError();
		if (waited >= timeout_ns)
			return e;
		nap(waited);
	}
}

static void lane_end(struct lane *l)
{
	for (size_t i = 0; i < CKPT_MEMORY_EVENTS; i++)
		if (l->events[i])
			(void)cudaEventDestroy(l->events[i]);
	if (l->stream)
		(void)cudaStreamDestroy(l->stream);
	(void)cudaGetLastError();
	free(l);
}

static int cuda_lane_open(void *ctx, void **out_lane, struct ckpt_err *err)
{
	struct device *dev = ctx;
	struct lane *l = calloc(1, sizeof(*l));
	int rc = 0;

	if (!l)
		return say(err, CKPT_ENOMEM, 0, "out of memory");
	rc = enter(dev, err);
	if (rc < 0) {
		free(l);
		return rc;
	}
	l->dev = dev;
	cudaError_t e = cudaStreamCreateWithFlags(&l->stream,
						  cudaStreamNonBlocking);

	for (size_t i = 0; e == cudaSuccess && i < CKPT_MEMORY_EVENTS; i++)
		e = cudaEventCreateWithFlags(&l->events[i],
					     cudaEventDisableTiming);
	if (e != cudaSuccess) {
		rc = failed(e, "make a stream and its events", err);
		lane_end(l);
	} else {
		*out_lane = l;
	}
	leave(dev);
	return rc;
}

/* Work that is still queued may end, for a second once. A context that is lost
 * has none. */
static int cuda_lane_close(void *lane)
{
	struct lane *l = lane;
	struct device *dev = l->dev;

	if (enter(dev, NULL) < 0)
		return CKPT_EBUSY; /* not known: let nobody have its memory */
	cudaError_t e = await(l->stream, NULL, l->stuck ? 0 : CLOSE_NS);

	l->stuck = e == cudaErrorNotReady;
	if (!l->stuck)
		lane_end(l);
	leave(dev);
	return e == cudaErrorNotReady ? CKPT_EBUSY : 0;
}

/* The direction is told, not guessed: an address that is none is an error then,
 * and not read as the host's. Pitches that a device does not take are rows one
 * by one: they are far apart, so they are few. */
static cudaError_t copy(const struct lane *l, char *dst, size_t dst_pitch,
			const char *src, size_t src_pitch, size_t width,
			size_t height)
{
	cudaError_t e = cudaSuccess;

	if (height > 1 && dst_pitch <= l->dev->pitch_max &&
	    src_pitch <= l->dev->pitch_max)
		return cudaMemcpy2DAsync(dst, dst_pitch, src, src_pitch, width,
					 height, cudaMemcpyDeviceToHost,
					 l->stream);
	for (size_t i = 0; e == cudaSuccess && i < height; i++)
		e = cudaMemcpyAsync(dst + i * dst_pitch, src + i * src_pitch,
				    width, cudaMemcpyDeviceToHost, l->stream);
	return e;
}

static int cuda_copy_2d(void *lane, void *dst, size_t dst_pitch,
			const void *src, size_t src_pitch, size_t width,
			size_t height, struct ckpt_err *err)
{
	struct lane *l = lane;
	int rc = enter(l->dev, err);

	if (rc < 0)
		return rc;
	cudaError_t e = copy(l, dst, dst_pitch, src, src_pitch, width, height);

	leave(l->dev);
	return e == cudaSuccess ? 0
	     : failed(e, "copy from the device", err);
}

static int cuda_record(void *lane, uint64_t *out_event, struct ckpt_err *err)
{
	struct lane *l = lane;
	uint64_t event = l->count + 1;
	int rc = enter(l->dev, err);

	if (rc < 0)
		return rc;
	cudaError_t e = cudaEventRecord(l->events[event % CKPT_MEMORY_EVENTS],
					l->stream);

	leave(l->dev);
	if (e != cudaSuccess)
		return failed(e, "record an event", err);
	*out_event = l->count = event;
	return 0;
}

static int cuda_wait(void *lane, uint64_t event, uint64_t timeout_ns,
		     struct ckpt_err *err)
{
	struct lane *l = lane;
	int rc = enter(l->dev, err);

	if (rc < 0)
		return rc;
	cudaError_t e = await(l->stream,
			      l->events[event % CKPT_MEMORY_EVENTS],
			      timeout_ns);

	leave(l->dev);
	if (e == cudaErrorNotReady)
		return CKPT_EBUSY;
	return e == cudaSuccess ? 0 : failed(e, "wait for a copy", err);
}

/* ---- order after a producer's stream ---- */

static int cuda_ready_open(void *ctx, void *stream, void **out_ready,
			   struct ckpt_err *err)
{
	struct device *dev = ctx;
	cudaEvent_t event = NULL;
	int rc = enter(dev, err);

	if (rc < 0)
		return rc;
	cudaError_t e = cudaEventCreateWithFlags(&event,
						 cudaEventDisableTiming);

	if (e == cudaSuccess)
		e = cudaEventRecord(event, stream);
	if (e != cudaSuccess) {
		rc = failed(e, "record an event on the producer's stream",
			    err);
		if (event)
			(void)cudaEventDestroy(event);
	} else {
		*out_ready = event;
	}
	leave(dev);
	return rc;
}

static int cuda_follow(void *lane, void *ready, struct ckpt_err *err)
{
	struct lane *l = lane;
	int rc = enter(l->dev, err);

	if (rc < 0)
		return rc;
	cudaError_t e = cudaStreamWaitEvent(l->stream, ready, 0);

	leave(l->dev);
	return e == cudaSuccess ? 0
	     : failed(e, "follow the producer's stream", err);
}

static void cuda_ready_close(void *ctx, void *ready)
{
	struct device *dev = ctx;

	if (enter(dev, NULL) < 0)
		return;
	if (cudaEventDestroy(ready) != cudaSuccess)
		(void)cudaGetLastError();
	leave(dev);
}

/* ---- the device ---- */

static void cuda_close(void *ctx)
{
	struct device *dev = ctx;

	dev->release(dev->handle);
	free(dev);
}

static const struct ckpt_memory_ops cuda_ops = {
	.size = sizeof(cuda_ops),
	.alloc = cuda_alloc,
	.free = cuda_free,
	.lane_open = cuda_lane_open,
	.lane_close = cuda_lane_close,
	.copy_2d = cuda_copy_2d,
	.record = cuda_record,
	.wait = cuda_wait,
	.ready_open = cuda_ready_open,
	.follow = cuda_follow,
	.ready_close = cuda_ready_close,
	.close = cuda_close,
};

/* A function of the driver by its name, into a pointer of its type. */
static bool entry(void *driver, const char *name, void *out)
{
	void *fn = dlsym(driver, name);

	memcpy(out, &fn, sizeof(fn));
	return fn != NULL;
}

static int no_driver(struct ckpt_err *err, int code, const char *why)
{
	return say(err, code, 0, "the NVIDIA driver %s", why);
}

/* The driver's functions, and its device @index with its primary context. */
static int enter_driver(struct device *dev, int index, struct ckpt_err *err)
{
	CUresult (*init)(unsigned int flags);
	CUresult (*get)(CUdevice *out, int ordinal);
	CUresult (*retain)(CUcontext *out, CUdevice device);
	void *driver = dlopen("libcuda.so.1", RTLD_NOW | RTLD_LOCAL);

	if (!driver)
		return no_driver(err, CKPT_ENOENT, "is not installed: there "
				 "is no libcuda.so.1");
	if (!entry(driver, "cuInit", &init) ||
	    !entry(driver, "cuDeviceGet", &get) ||
	    !entry(driver, "cuDevicePrimaryCtxRetain", &retain) ||
	    !entry(driver, "cuDevicePrimaryCtxRelease_v2", &dev->release) ||
	    !entry(driver, "cuCtxPushCurrent_v2", &dev->push) ||
	    !entry(driver, "cuCtxPopCurrent_v2", &dev->pop))
		return no_driver(err, CKPT_EVERSION, "is too old: it lacks "
				 "calls of CUDA 11");
	CUresult rc = init(0);

	if (rc == CUDA_ERROR_NO_DEVICE)
		return no_driver(err, CKPT_ENOENT, "sees no device");
	if (rc != CUDA_SUCCESS)
		return no_driver(err, CKPT_EIO, "does not start (cuInit)");
	if (get(&dev->handle, index) != CUDA_SUCCESS)
		return no_driver(err, CKPT_ENOENT, "has no device of this "
				 "number");
	if (retain(&dev->context, dev->handle) != CUDA_SUCCESS)
		return no_driver(err, CKPT_EIO, "gives no context of the "
				 "device: is it in exclusive use?");
	return 0;
}

static int device_index(const char *device, int *out, struct ckpt_err *err)
{
	size_t len = strspn(device, "0123456789");

	if (len == 0 || len > 4 || device[len])
		return say(err, CKPT_EINVAL, 0, "'%.64s' is no CUDA device: "
			   "it is a number, as in \"cuda:0\"", device);
	*out = atoi(device);
	return 0;
}

CKPT_API int ckpt_memory_module_1(const char *device,
				  const struct ckpt_memory_ops **out_ops,
				  void **out_ctx, struct ckpt_err *err);

int ckpt_memory_module_1(const char *device,
			 const struct ckpt_memory_ops **out_ops,
			 void **out_ctx, struct ckpt_err *err)
{
	int index = 0, pitch = 0, rc = device_index(device, &index, err);
	struct device *dev;

	if (rc < 0)
		return rc;
	dev = calloc(1, sizeof(*dev));
	if (!dev)
		return say(err, CKPT_ENOMEM, 0, "out of memory");
	rc = enter_driver(dev, index, err);
	if (rc < 0) {
		free(dev);
		return rc;
	}
	/* the runtime's first call: it may find the driver too old */
	cudaError_t e = cudaDeviceGetAttribute(&pitch, cudaDevAttrMaxPitch,
					       index);

	if (e != cudaSuccess) {
		rc = failed(e, "the CUDA runtime", err);
		cuda_close(dev);
		return rc;
	}
	dev->pitch_max = pitch > 0 ? (size_t)pitch : PITCH_MAX;
	*out_ops = &cuda_ops;
	*out_ctx = dev;
	return 0;
}
