/* SPDX-License-Identifier: Apache-2.0 */
/*
 * err.c - sentences for failures, and the end of the program for bugs.
 *
 * A message is one line of printable UTF-8 whatever names it quotes: controls,
 * invisible characters and invalid UTF-8 come out as \xNN. It fits its fixed
 * buffer: a long one is cut. No allocation, no state; any thread.
 */
#include "base/err.h"

#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "base/text.h"

#include <ckpt/ckpt.h>

#ifndef CKPT_VERSION
#define CKPT_VERSION "0"
#endif

_Noreturn void ckb_bug(const char *kind, const char *expr, const char *file,
		       int line)
{
	fprintf(stderr, "ckptfs: broken %s: %s (%s:%d)\n", kind, expr, file,
		line);
	abort();
}

const char *ckpt_version(void)
{
	return CKPT_VERSION;
}

const char *ckpt_code_name(int code)
{
	static const char *const names[] = {
		"OK", "EINVAL", "ENOENT", "EEXIST", "EIO", "ECORRUPT",
		"EFORMAT", "EVERSION", "ENOMEM", "ENOSPC", "ELIMIT", "EPERM",
		"EBUSY", "ESTATE", "ECANCELED", "EPEER", "EUNSURE", "ESTALE",
		"ETIMEDOUT",
	};

	if (code > 0 || -code >= (int)CKB_ARRAY_LEN(names))
		return "?";
	return names[-code];
}

/* One printable unit of @text into @unit (NUL-ended); bytes it consumed. */
static size_t print_unit(char unit[5], const char *text, size_t len)
{
	unsigned char c = (unsigned char)*text;
	size_t n = ckb_utf8_char(text, len);

	/* its first byte; the others are no characters alone */
	if (n == 0 || ckb_utf8_hidden(ckb_utf8_value(text, n))) {
		snprintf(unit, 5, "\\x%02x", c);
		return 1;
	}
	memcpy(unit, text, n);
	unit[n] = '\0';
	return n;
}

const char *ckb_quote(char *dst, size_t dst_len, const char *text, size_t len)
{
	size_t at = 0, safe = 0; /* safe: "..." fits behind it */

	CKB_REQUIRE(dst_len >= 8);
	while (len > 0) {
		char unit[5];
		size_t n = print_unit(unit, text, len), unit_len = strlen(unit);

		if (at + unit_len + 1 > dst_len) {
			memcpy(dst + safe, "...", 4);
			return dst;
		}
		memcpy(dst + at, unit, unit_len);
		at += unit_len;
		if (at + 4 <= dst_len)
			safe = at;
		text += n;
		len -= n;
	}
	dst[at] = '\0';
	return dst;
}

static void set(struct ckpt_err *err, int code, int sys_errno,
		const char *text)
{
	err->code = code;
	err->sys_errno = sys_errno;
	ckb_quote(err->message, sizeof(err->message), text, strlen(text));
}

int ckb_err(struct ckpt_err *err, int code, const char *fmt, ...)
{
	char text[2 * CKPT_ERR_MESSAGE_BYTES];
	va_list ap;

	CKB_REQUIRE(code < 0);
	if (!err)
		return code;
	va_start(ap, fmt);
	vsnprintf(text, sizeof(text), fmt, ap);
	va_end(ap);
	set(err, code, 0, text);
	return code;
}

static int code_of(int sys_errno)
{
	switch (sys_errno) {
	case ENOSPC:
	case EDQUOT:
		return CKPT_ENOSPC;
	case EACCES:
	case EPERM:
	case EROFS:
		return CKPT_EPERM;
	case ENOENT:
		return CKPT_ENOENT;
	case EEXIST:
		return CKPT_EEXIST;
	case ENOMEM:
		return CKPT_ENOMEM;
	case ESTALE:
		return CKPT_ESTALE;
	default:
		return CKPT_EIO;
	}
}

int ckb_err_sys(struct ckpt_err *err, int sys_errno, const char *fmt, ...)
{
	char text[2 * CKPT_ERR_MESSAGE_BYTES], why[128];
	int code = code_of(sys_errno);
	va_list ap;
	int n;

	if (!err)
		return code;
	va_start(ap, fmt);
	n = vsnprintf(text, sizeof(text), fmt, ap);
	va_end(ap);
	if (n < 0)
		n = 0;
	if ((size_t)n > sizeof(text) - sizeof(why) - 3)
		n = (int)(sizeof(text) - sizeof(why) - 3);
	/* the GNU strerror_r: returns the text, thread-safe */
	snprintf(text + n, sizeof(text) - (size_t)n, ": %s",
		 strerror_r(sys_errno, why, sizeof(why)));
	set(err, code, sys_errno, text);
	return code;
}

int ckb_err_prefix(struct ckpt_err *err, int code, const char *fmt, ...)
{
	char text[2 * CKPT_ERR_MESSAGE_BYTES] = "";
	va_list ap;
	int n;

	if (!err)
		return code;
	va_start(ap, fmt);
	n = vsnprintf(text, sizeof(text), fmt, ap);
	va_end(ap);
	if (n < 0)
		n = 0;
	if ((size_t)n > CKPT_ERR_MESSAGE_BYTES - 3)
		n = CKPT_ERR_MESSAGE_BYTES - 3;
	snprintf(text + n, sizeof(text) - (size_t)n, ": %s", err->message);
	/* what was made printable already stays as it is */
	set(err, code, err->sys_errno, text);
	return code;
}

int ckb_err_nomem(struct ckpt_err *err)
{
	return ckb_err(err, CKPT_ENOMEM, "out of memory");
}
