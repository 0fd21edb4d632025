/* SPDX-License-Identifier: Apache-2.0 */
/* base/buf.h - a byte buffer that grows. Zero-initialised is empty. */
#ifndef CKB_BUF_H
#define CKB_BUF_H

#include "base/check.h"

struct ckb_buf {
	uint8_t *data; /* NULL when empty; always followed by a NUL byte */
	size_t len;
	size_t cap;
	bool failed;   /* an append ran out of memory: contents are void */
};

void ckb_buf_fini(struct ckb_buf *buf);
#define CKB_BUF CKB_CLEANUP(ckb_buf_fini)

/* Appends set `failed` instead of returning: check it once, at the end. */
void ckb_buf_put(struct ckb_buf *buf, const void *data, size_t len);
void ckb_buf_puts(struct ckb_buf *buf, const char *text);
void ckb_buf_putc(struct ckb_buf *buf, char c);
void ckb_buf_printf(struct ckb_buf *buf, const char *fmt, ...)
	CKB_PRINTF(2, 3);

/* Room for @len more bytes, zeroed and counted in; NULL when out of memory. */
void *ckb_buf_extend(struct ckb_buf *buf, size_t len);

/* Room for one element more behind the @count of @each bytes in the array that
 * the pointer at @array points to; *@cap: its capacity in elements. */
CKB_MUST bool ckb_room(void *array, size_t count, size_t *cap, size_t each);

/* A list of spare buffers, each with the next one's address in front. NULL:
 * there is none; no buffer is given where @buffer is NULL. */
void *ckb_spare_take(void **list);
void ckb_spare_give(void **list, void *buffer);

#endif
