/* SPDX-License-Identifier: Apache-2.0 */
/*
 * cuda_driver_stub.c - libcuda.so.1 of a machine without one: the calls that
 * store/mem/cuda.c takes by name, with answers that the test sets.
 */
#include <cuda.h>

struct driver_stub {
	CUresult init, get, retain, push;
	int contexts; /* pushed and not popped */
	int retained;
};

__attribute__((visibility("default"))) extern struct driver_stub driver_stub;
struct driver_stub driver_stub;

CUresult cuInit(unsigned int flags)
{
	(void)flags;
	return driver_stub.init;
}

CUresult cuDeviceGet(CUdevice *out, int ordinal)
{
	*out = ordinal;
	return ordinal < 2 ? driver_stub.get : CUDA_ERROR_INVALID_DEVICE;
}

CUresult cuDevicePrimaryCtxRetain(CUcontext *out, CUdevice device)
{
	static int context;

	(void)device;
	if (driver_stub.retain == CUDA_SUCCESS) {
		*out = (CUcontext)&context;
		driver_stub.retained++;
	}
	return driver_stub.retain;
}

CUresult cuDevicePrimaryCtxRelease(CUdevice device)
{
	(void)device;
	driver_stub.retained--;
	return CUDA_SUCCESS;
}

CUresult cuCtxPushCurrent(CUcontext context)
{
	(void)context;
	if (driver_stub.push == CUDA_SUCCESS)
		driver_stub.contexts++;
	return driver_stub.push;
}

CUresult cuCtxPopCurrent(CUcontext *out)
{
	*out = NULL;
	driver_stub.contexts--;
	return CUDA_SUCCESS;
}
