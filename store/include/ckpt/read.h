/* SPDX-License-Identifier: Apache-2.0 */
/*
 * ckpt/read.h - tensor bytes into memory.
 *
 * Every byte handed out was verified against its stored checksum (S6). A bad
 * chunk is CKPT_ECORRUPT, its message naming checkpoint, tensor, box, pack and
 * offset; the destination may then hold some of the box, never wrong bytes
 * passed off as right.
 */
#ifndef CKPT_READ_H
#define CKPT_READ_H

#include <ckpt/store.h>

#ifdef __cplusplus
extern "C" {
#endif

/**
 * Read @box of @tensor into @dst.
 *
 * @strides: bytes between neighbours of each dimension in @dst, or NULL for
 * C order without gaps. For F4 and F6 the box must fall on whole bytes and
 * strides must be NULL.
 *
 * Blocks:      until the bytes are there.
 * Buffers:     @dst is the caller's, untouched after return.
 * Threads:     any number may read at once.
 * Returns:     0; CKPT_EINVAL, the box leaves the tensor or cuts a byte;
 *              CKPT_ECORRUPT, CKPT_EIO, CKPT_ENOMEM.
 */
CKPT_API CKPT_MUST int ckpt_read_box(struct ckpt_checkpoint *ckpt,
				     const struct ckpt_tensor_info *tensor,
				     const struct ckpt_box *box, void *dst,
				     const uint64_t *strides,
				     struct ckpt_err *err);

/**
 * Read bytes [@off, @off + @len) of the tensor's C-order bytes into @dst.
 *
 * Returns:     as ckpt_read_box(); CKPT_EINVAL, the range leaves the tensor.
 */
CKPT_API CKPT_MUST int ckpt_read_bytes(struct ckpt_checkpoint *ckpt,
				       const struct ckpt_tensor_info *tensor,
				       uint64_t off, size_t len, void *dst,
				       struct ckpt_err *err);

#ifdef __cplusplus
}
#endif
#endif
