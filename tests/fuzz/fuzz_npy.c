/* SPDX-License-Identifier: Apache-2.0 */
/* fuzz_npy.c - any bytes as an .npy file: an answer or a sentence, and what is
 * accepted is an array of just the file's size. */
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include "base/check.h"
#include "foreign/npy.h"
#include "tensor/dtype.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void one(const uint8_t *data, size_t size, enum ckpt_dtype void_dtype)
{
	size_t len = size < CKX_NPY_HEAD_MAX ? size : CKX_NPY_HEAD_MAX;
	struct ckpt_err err = { 0 };
	struct ckx_npy npy;
	uint64_t bytes = 0;

	if (ckx_npy_parse(data, len, size, void_dtype, &npy, &err) < 0) {
		CKB_REQUIRE(err.message[0] && !strchr(err.message, '\n'));
		return;
	}
	CKB_REQUIRE(npy.data_off + npy.data_bytes == size);
	CKB_REQUIRE(npy.item_bytes > 0 && npy.item_bytes <= 16);
	CKB_REQUIRE(!npy.swap_bytes || npy.item_bytes % npy.swap_bytes == 0);
	if (npy.dtype == CKPT_F4)
		return; /* half the bytes, once packed */
	CKB_REQUIRE(ckt_shape_bytes(npy.dtype, &npy.shape, &bytes, &err) == 0);
	CKB_REQUIRE(bytes == npy.data_bytes);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	one(data, size, (enum ckpt_dtype)0);
	one(data, size, CKPT_F4);
	return 0;
}
