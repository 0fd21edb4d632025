/* SPDX-License-Identifier: Apache-2.0 */
/*
 * st_sniff.c - is this a safetensors file at all, and how long is its header?
 *
 * The length is checked against the format's bound and the file before anyone
 * allocates it (S10). Names the files that people rename by mistake or get in
 * place of one: the other formats are looked for only when the length or the
 * first byte of the JSON is wrong, so a good file is never taken for one. Pure.
 */
#include "foreign/safetensors.h"

#include <inttypes.h>
#include <string.h>
#include <strings.h>

#include "base/bytes.h"
#include "base/limits.h"

struct magic {
	const char *bytes;
	size_t len;
	const char *what;
};

static const struct magic magics[] = {
	{ "PK\003\004", 4,
	  "a zip archive (a file of torch.save or numpy.savez)" },
	{ "\200\002", 2, "a Python pickle (an old file of torch.save)" },
	{ "\200\003", 2, "a Python pickle" },
	{ "\200\004", 2, "a Python pickle" },
	{ "\200\005", 2, "a Python pickle" },
	{ "\223NUMPY", 6, "a NumPy .npy file" },
	{ "GGUF", 4, "a GGUF file" },
	{ "\211HDF\r\n\032\n", 8, "an HDF5 file" },
	{ "\037\213", 2, "gzip data" },
	{ "\050\265\057\375", 4, "zstd data" },
};

/* Begins the text, white space aside, with @word in any case? */
static bool begins(const char *text, size_t len, const char *word)
{
	size_t n = strlen(word);

	while (len > 0 && (*text == ' ' || *text == '\n' || *text == '\r' ||
			   *text == '\t')) {
		text++;
		len--;
	}
	return len >= n && strncasecmp(text, word, n) == 0;
}

/* A Git-LFS pointer, also one with the marks of a merge conflict in it. */
static bool is_lfs_pointer(const char *text, size_t len)
{
	static const char line[] = "version https://git-lfs";
	const char *at = memmem(text, len, line, sizeof(line) - 1);

	return at && (at == text || at[-1] == '\n');
}

/* What else the file is, or NULL. */
static const char *other_format(const uint8_t *bytes, size_t len)
{
	const char *text = (const char *)bytes;

	for (size_t i = 0; i < CKB_ARRAY_LEN(magics); i++)
		if (len >= magics[i].len &&
		    memcmp(bytes, magics[i].bytes, magics[i].len) == 0)
			return magics[i].what;
	if (is_lfs_pointer(text, len))
		return "a Git-LFS pointer, not the file it stands for; run "
		       "'git lfs pull' to get that";
	if (begins(text, len, "<!doctype html") || begins(text, len, "<html") ||
	    begins(text, len, "<head"))
		return "an HTML page, perhaps of a login or an error; "
		       "download the file again";
	if (begins(text, len, "<?xml"))
		return "an XML text, perhaps an error message; download the "
		       "file again";
	return NULL;
}

static bool begins_json(uint8_t c)
{
	return c == '{' || c == ' ' || c == '\n' || c == '\r' || c == '\t';
}

int ckx_st_header_len(const uint8_t *bytes, size_t len, uint64_t file_len,
		      uint64_t *out, struct ckpt_err *err)
{
	uint64_t n = len >= 8 ? ckb_get_u64(bytes) : 0;
	bool good = len >= 8 && n <= CKB_ST_HEADER_MAX && n <= file_len - 8;
	const char *what = NULL;

	CKB_REQUIRE(len <= file_len);
	if (!good || (len > 8 && !begins_json(bytes[8])))
		what = other_format(bytes, len);
	if (what)
		return ckb_err(err, CKPT_EFORMAT, "this is no safetensors file "
			       "but %s", what);
	if (len < 8)
		return ckb_err(err, CKPT_EFORMAT, "the file has %" PRIu64
			       " bytes: too short for the 8-byte header length "
			       "of a safetensors file", file_len);
	if (n > CKB_ST_HEADER_MAX)
		return ckb_err(err, CKPT_EFORMAT, "this is no safetensors "
			       "file: its first 8 bytes give a header length "
			       "of %" PRIu64 "; at most %u is allowed", n,
			       CKB_ST_HEADER_MAX);
	if (n > file_len - 8)
		return ckb_err(err, CKPT_EFORMAT, "the header length is %"
			       PRIu64 ", but only %" PRIu64 " bytes follow it: "
			       "the file is truncated, or no safetensors file",
			       n, file_len - 8);
	*out = n;
	return 0;
}
