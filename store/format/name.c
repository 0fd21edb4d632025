/* SPDX-License-Identifier: Apache-2.0 */
/*
 * name.c - which names checkpoints, items and tensors may have (DESIGN 4).
 *
 * A checkpoint's name is a path under checkpoints/ and in the mount, so what
 * either uses for itself is refused. Pure.
 */
#include "format/name.h"

#include <string.h>

#include "base/limits.h"
#include "base/text.h"

static const char *const reserved[] = { "latest", "newest", "README.txt" };

/* One component of @len bytes; NULL: fine, else what is wrong with it. */
static const char *component(const char *s, size_t len)
{
	if (len == 0)
		return "a component is empty";
	if (len > CKB_NAME_COMPONENT_MAX)
		return "a component has more than 255 bytes";
	if (s[0] == '.')
		return "a component begins with '.'";
	if (s[0] == '@')
		return "a component begins with '@'";
	for (size_t i = 0; i < CKB_ARRAY_LEN(reserved); i++)
		if (strlen(reserved[i]) == len &&
		    memcmp(reserved[i], s, len) == 0)
			return "'latest', 'newest' and 'README.txt' are "
			       "names of the mount itself";
	for (size_t i = 0; i < len; i++)
		if ((unsigned char)s[i] < 32 || s[i] == 127)
			return "a component holds a control character";
	if (!ckb_utf8_ok(s, len))
		return "it is not valid UTF-8";
	return NULL;
}

int ckf_checkpoint_name(const char *name, struct ckpt_err *err)
{
	char q[CKB_QUOTE_BYTES];
	size_t len = strlen(name);
	const char *why = len > CKB_NAME_MAX ? "it has more than 1024 bytes"
					     : NULL;

	for (const char *s = name; !why;) {
		const char *slash = strchrnul(s, '/');

		why = component(s, (size_t)(slash - s));
		if (*slash == '\0')
			break;
		s = slash + 1;
	}
	if (!why)
		return 0;
	return ckb_err(err, CKPT_EINVAL, "'%s' cannot be a checkpoint's name: "
		       "%s", ckb_quote(q, sizeof(q), name, len), why);
}

int ckf_item_name(const char *name, bool origin, struct ckpt_err *err)
{
	char q[CKB_QUOTE_BYTES];
	size_t len = strlen(name);
	const char *why = NULL;

	if (memchr(name, '/', len))
		why = "it holds a '/'";
	else if (len > CKB_ITEM_NAME_MAX)
		why = "it has more than 200 bytes";
	else if (strcmp(name, "checkpoint.json") == 0)
		why = "the mount uses it itself";
	else
		why = component(name + (origin && name[0] == '@'),
				len - (origin && name[0] == '@'));
	if (!why)
		return 0;
	return ckb_err(err, CKPT_EINVAL, "'%s' cannot be an item's name: %s",
		       ckb_quote(q, sizeof(q), name, len), why);
}

int ckf_tensor_name(const char *name, size_t len, struct ckpt_err *err)
{
	char q[CKB_QUOTE_BYTES];

	if (len > CKB_TENSOR_NAME_MAX)
		return ckb_err(err, CKPT_ELIMIT, "the name '%.40s...' has %zu "
			       "bytes; at most %u are supported", name, len,
			       CKB_TENSOR_NAME_MAX);
	if (!ckb_utf8_ok(name, len))
		return ckb_err(err, CKPT_EINVAL, "the name '%s' is not valid "
			       "UTF-8", ckb_quote(q, sizeof(q), name, len));
	return 0;
}

int ckf_file_name(const char *name, size_t len, struct ckpt_err *err)
{
	char q[CKB_QUOTE_BYTES];
	int rc = ckf_tensor_name(name, len, err);

	if (rc == 0 && memchr(name, '\0', len))
		rc = ckb_err(err, CKPT_EINVAL, "the name '%s' holds a NUL",
			     ckb_quote(q, sizeof(q), name, len));
	for (size_t at = 0, end; rc == 0 && at <= len; at = end + 1) {
		for (end = at; end < len && name[end] != '/';)
			end++;
		size_t n = end - at;

		if (n == 0 || (n <= 2 && memcmp(name + at, "..", n) == 0))
			return ckb_err(err, CKPT_EINVAL, "it is no path inside "
				       "an item: a component is empty, '.' or "
				       "'..'");
	}
	return rc;
}
