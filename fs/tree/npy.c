/* SPDX-License-Identifier: Apache-2.0 */
/*
 * npy.c - a tensor as a virtual .npy file: NumPy's header, then its bytes.
 *
 * F4 is shown as NumPy has it, one byte an element, low nibble first; F6 has no
 * NumPy form. The header follows from metadata, so the size is exact before
 * anything is read. A read of the header alone touches no chunk. Any thread.
 */
#include <stdlib.h>
#include <string.h>

#include "foreign/npy.h"
#include "tree/internal.h"

#define NIBBLE_STEP (64u << 10) /* packed bytes unpacked at once (S9) */

static uint64_t body_size(const struct ckpt_tensor_info *t)
{
	return t->dtype == CKPT_F4 ? t->bytes * 2 : t->bytes;
}

uint64_t ckv_npy_size(const struct ckpt_tensor_info *t)
{
	if (!ckx_npy_possible(t->dtype))
		return UINT64_MAX;
	return ckx_npy_header_len(t->dtype, t->shape) + body_size(t);
}

/* Elements [@off, @off + @len) of packed F4, a byte each. */
static int read_nibbles(struct ckpt_checkpoint *ckpt,
			const struct ckpt_tensor_info *t, uint64_t off,
			uint8_t *dst, size_t len, struct ckpt_err *err)
{
	CKB_FREE uint8_t *packed = malloc(NIBBLE_STEP);
	int rc = packed ? 0 : ckb_err_nomem(err);

	while (rc == 0 && len > 0) {
		uint64_t first = off / 2;
		size_t n = (size_t)ckb_min_u64(len, 2 * NIBBLE_STEP - off % 2);

		rc = ckpt_read_bytes(ckpt, t, first,
				     (size_t)((off + n + 1) / 2 - first),
				     packed, err);
		for (size_t i = 0; rc == 0 && i < n; i++) {
			uint64_t at = off + i;

			dst[i] = packed[at / 2 - first] >> (at % 2 * 4) & 15;
		}
		off += n;
		dst += n;
		len -= n;
	}
	return rc;
}

int ckv_npy_read(struct ckpt_checkpoint *ckpt,
		 const struct ckpt_tensor_info *t, uint64_t off, uint8_t *dst,
		 size_t len, struct ckpt_err *err)
{
	CKB_BUF struct ckb_buf head = { 0 };
	size_t n = 0;

	ckx_npy_header(t->dtype, t->shape, &head);
	if (head.failed)
		return ckb_err_nomem(err);
	if (off < head.len) {
		n = (size_t)ckb_min_u64(len, head.len - off);
		memcpy(dst, head.data + off, n);
	}
	if (n == len)
		return 0;
	off = off + n - head.len;
	if (t->dtype == CKPT_F4)
		return read_nibbles(ckpt, t, off, dst + n, len - n, err);
	return ckpt_read_bytes(ckpt, t, off, len - n, dst + n, err);
}
