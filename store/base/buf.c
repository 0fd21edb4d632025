/* SPDX-License-Identifier: Apache-2.0 */
/*
 * buf.c - a byte buffer that grows by doubling.
 *
 * Out of memory sets `failed` and drops further appends, so a chain of them
 * is checked once. A NUL byte always follows the contents. One thread.
 */
#include "base/buf.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

void ckb_buf_fini(struct ckb_buf *buf)
{
	free(buf->data);
	memset(buf, 0, sizeof(*buf));
}

static bool reserve(struct ckb_buf *buf, size_t more)
{
	size_t want, cap = buf->cap ? buf->cap : 64;

	if (buf->failed)
		return false;
	if (__builtin_add_overflow(buf->len, more, &want) ||
	    __builtin_add_overflow(want, (size_t)1, &want)) {
		buf->failed = true;
		return false;
	}
	if (want <= buf->cap)
		return true;
	while (cap < want)
		cap = cap > SIZE_MAX / 2 ? want : cap * 2;
	uint8_t *data = realloc(buf->data, cap);

	if (!data) {
		buf->failed = true;
		return false;
	}
	buf->data = data;
	buf->cap = cap;
	return true;
}

void *ckb_buf_extend(struct ckb_buf *buf, size_t len)
{
	if (!reserve(buf, len))
		return NULL;
	void *at = buf->data + buf->len;

	memset(at, 0, len + 1);
	buf->len += len;
	return at;
}

void ckb_buf_put(struct ckb_buf *buf, const void *data, size_t len)
{
	if (!reserve(buf, len))
		return;
	if (len > 0)
		memcpy(buf->data + buf->len, data, len);
	buf->len += len;
	buf->data[buf->len] = '\0';
}

void ckb_buf_puts(struct ckb_buf *buf, const char *text)
{
	ckb_buf_put(buf, text, strlen(text));
}

void ckb_buf_putc(struct ckb_buf *buf, char c)
{
	ckb_buf_put(buf, &c, 1);
}

void ckb_buf_printf(struct ckb_buf *buf, const char *fmt, ...)
{
	char small[256];
	va_list ap;
	int n;

	va_start(ap, fmt);
	n = vsnprintf(small, sizeof(small), fmt, ap);
	va_end(ap);
	if (n < 0) {
		buf->failed = true;
		return;
	}
	if ((size_t)n < sizeof(small)) {
		ckb_buf_put(buf, small, (size_t)n);
		return;
	}
	if (!reserve(buf, (size_t)n))
		return;
	va_start(ap, fmt);
	vsnprintf((char *)buf->data + buf->len, (size_t)n + 1, fmt, ap);
	va_end(ap);
	buf->len += (size_t)n;
}

bool ckb_room(void *array, size_t count, size_t *cap, size_t each)
{
	size_t more = *cap ? *cap * 2 : 16;
	void *p;

	if (count < *cap)
		return true;
	memcpy(&p, array, sizeof(p)); /* a pointer of whatever type */
	p = reallocarray(p, more, each);
	if (!p)
		return false;
	memcpy(array, &p, sizeof(p));
	*cap = more;
	return true;
}

void *ckb_spare_take(void **list)
{
	void *buffer = *list;

	if (buffer)
		memcpy(list, buffer, sizeof(*list));
	return buffer;
}

void ckb_spare_give(void **list, void *buffer)
{
	if (!buffer)
		return;
	memcpy(buffer, list, sizeof(*list));
	*list = buffer;
}
