/* SPDX-License-Identifier: Apache-2.0 */
/*
 * test_st_sniff.c - the first bytes of a file: its header's length, or the
 * name of what people have in place of a safetensors file.
 */
#include "st_case.h"

#include "base/bytes.h"

static int header_len(const void *bytes, size_t len, uint64_t file_len,
		      uint64_t *out, struct ckpt_err *err)
{
	uint8_t *copy = malloc(len ? len : 1); /* exact, for ASan */
	int rc;

	assert_non_null(copy);
	memcpy(copy, bytes, len);
	rc = ckx_st_header_len(copy, len, file_len, out, err);
	free(copy);
	return rc;
}

static void length_is_checked_against_bound_and_file(void **state)
{
	static const struct {
		uint64_t n, file_len;
		const char *says; /* NULL: accepted */
	} cases[] = {
		{ 2, 10, NULL },
		{ 0, 8, NULL }, /* the parser says that the header is empty */
		{ 100000000, 100000008, NULL },
		{ 100000000, UINT64_MAX, NULL },
		{ 100000001, UINT64_MAX, "at most 100000000" },
		{ UINT64_MAX, UINT64_MAX, "18446744073709551615" },
		{ UINT64_MAX - 7, 64, "at most 100000000" },
		{ 3, 10, "length is 3, but only 2 bytes follow" },
		{ 1000, 132, "truncated" },
		{ 1ull << 40, 132, "at most 100000000" },
		{ 2, 8, "only 0 bytes follow" },
	};

	(void)state;
	for (size_t i = 0; i < CKB_ARRAY_LEN(cases); i++) {
		uint8_t bytes[10] = { 0, 0, 0, 0, 0, 0, 0, 0, '{', '}' };
		size_t len = cases[i].file_len < 10 ? cases[i].file_len : 10;
		uint64_t out = 77;
		struct ckpt_err err = { 0 };
		int rc;

		ckb_put_u64(bytes, cases[i].n);
		rc = header_len(bytes, len, cases[i].file_len, &out, &err);
		if (!cases[i].says) {
			assert_int_equal(rc, 0);
			assert_int_equal(out, cases[i].n);
			continue;
		}
		assert_int_equal(rc, CKPT_EFORMAT);
		assert_int_equal(out, 77);
		if (!strstr(err.message, cases[i].says))
			fail_msg("said '%s', not '%s'", err.message,
				 cases[i].says);
	}
}

static void fewer_than_8_bytes_are_too_short(void **state)
{
	(void)state;
	for (size_t len = 0; len < 8; len++) {
		struct ckpt_err err = { 0 };
		char says[64];
		uint64_t out;

		snprintf(says, sizeof(says), "has %zu bytes: too short", len);
		assert_int_equal(header_len("\x02\0\0\0\0\0\0\0", len, len,
					    &out, &err), CKPT_EFORMAT);
		assert_non_null(strstr(err.message, says));
	}
}

#define LFS "version https://git-lfs.github.com/spec/v1\n" \
	    "oid sha256:4d7a214614ab2935c943f9e0ff69d22eadbb8f32b1258daaa5e2" \
	    "ca24d17e2393\nsize 12345\n"

static void other_formats_are_named(void **state)
{
	static const struct {
		const char *bytes;
		size_t len;
		const char *says;
	} cases[] = {
#define TEXT(t) t, sizeof(t) - 1
		{ TEXT(LFS), "Git-LFS pointer" },
		{ TEXT("<<<<<<< HEAD\n" LFS "=======\n" LFS ">>>>>>> b\n"),
		  "Git-LFS pointer" },
		{ TEXT("<!DOCTYPE html>\n<html></html>"), "HTML page" },
		{ TEXT("\r\n  <HTML><body>404"), "HTML page" },
		{ TEXT("<?xml version=\"1.0\"?><Error/>"), "XML" },
		{ TEXT("PK\3\4\x14\0\0\0\x08\0aaaa"), "zip archive" },
		/* torch writes zips of which 8 bytes look like a length */
		{ TEXT("PK\3\4\0\0\0\0\0\0\0\0\0\0"), "zip archive" },
		{ TEXT("\x80\x02}q\0(X\1\0"), "pickle" },
		{ TEXT("\x80\x04\x95\x0c\0\0\0\0\0\0\0}\x94."), "pickle" },
		{ TEXT("\x80\x02."), "pickle" },
		{ TEXT("\x93NUMPY\1\0v\0{'descr'"), "npy" },
		{ TEXT("GGUF\3\0\0\0\1\0\0\0\0\0\0\0"), "GGUF" },
		{ TEXT("\x89HDF\r\n\x1a\n\0"), "HDF5" },
		{ TEXT("\x1f\x8b\x08\0\0\0\0\0\0\3"), "gzip" },
		{ TEXT("\x28\xb5\x2f\xfd\x04\0\1\0\0"), "zstd" },
	};

	(void)state;
	for (size_t i = 0; i < CKB_ARRAY_LEN(cases); i++) {
		struct ckpt_err err = { 0 };
		uint64_t out;
		int rc = header_len(cases[i].bytes, cases[i].len,
				    cases[i].len, &out, &err);

		assert_int_equal(rc, CKPT_EFORMAT);
		if (!strstr(err.message, "no safetensors file") ||
		    !strstr(err.message, cases[i].says))
			fail_msg("case %zu said '%s', not '%s'", i,
				 err.message, cases[i].says);
	}
}

/* 67,324,752 is a legal length, though its bytes are those of a zip. */
static void a_zip_in_a_file_long_enough_is_still_named(void **state)
{
	static const char zip[] = "PK\3\4\0\0\0\0\0\0\0\0\0\0";
	struct ckpt_err err = { 0 };
	uint64_t out;

	(void)state;
	assert_int_equal(header_len(zip, 14, 90000000, &out, &err),
			 CKPT_EFORMAT);
	assert_non_null(strstr(err.message, "zip archive"));
	/* with JSON after the length it is what it says it is */
	assert_int_equal(header_len("PK\3\4\0\0\0\0{\"a\":", 13, 90000000,
				    &out, &err), 0);
	assert_int_equal(out, 67324752);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(length_is_checked_against_bound_and_file),
		cmocka_unit_test(fewer_than_8_bytes_are_too_short),
		cmocka_unit_test(other_formats_are_named),
		cmocka_unit_test(a_zip_in_a_file_long_enough_is_still_named),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
