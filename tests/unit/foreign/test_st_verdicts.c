/* SPDX-License-Identifier: Apache-2.0 */
/*
 * test_st_verdicts.c - damaged and odd files, against what the reference
 * library says of each (fixtures/safetensors/bad), and its own good ones.
 *
 * Never laxer. Where we refuse what it accepts, the table has the reason.
 */
#include "st_case.h"

#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

static const struct {
	const char *file;
	int code;
	const char *says, *reason;
} stricter[] = {
	{ "key_duplicate_same.safetensors", CKPT_EFORMAT,
	  "'a' is given twice",
	  "the library keeps the last of two, other readers the first" },
	{ "key_duplicate_covering.safetensors", CKPT_EFORMAT,
	  "'a' is given twice",
	  "the library keeps the last of two, other readers the first" },
	{ "metadata_key_twice.safetensors", CKPT_EFORMAT,
	  "has the key 'k' twice",
	  "kept as a JSON object, in which a key stands once" },
	{ "info_is_array.safetensors", CKPT_EFORMAT, "its info is a list",
	  "an accident of the library's parser; the format names its fields" },
	{ "metadata_null.safetensors", CKPT_EFORMAT,
	  "__metadata__ is no object",
	  "an accident of the library's parser; the format says a map" },
	{ "shape_1000_dims.safetensors", CKPT_ELIMIT, "at most 64",
	  "no array library has more than 64 dimensions" },
};

/* What each kind of the library's errors is called here, at least in part. */
static const struct {
	const char *kind, *says[5];
} kinds[] = {
	{ "HeaderTooSmall", { "too short for the 8-byte header length" } },
	{ "HeaderTooLarge", { "at most 100000000", "a Python pickle",
			      "a NumPy .npy file" } },
	{ "InvalidHeaderLength", { "bytes follow it", "a zip archive" } },
	{ "InvalidHeader(utf8)", { "not UTF-8" } },
	{ "MetadataIncompleteBuffer", { "trailing byte", "truncated" } },
	{ "InvalidOffset", { "a hole", "overlap", "before they begin",
			     "given twice" } },
	{ "TensorInvalidInfo", { "its data_offsets span" } },
	{ "ValidationOverflow", { "overflows 64 bits" } },
	{ "MisalignedSlice", { "no whole number of bytes" } },
	{ "InvalidHeaderDeserialization", { "JSON", "tensor '", "__metadata__",
					    "the header is empty" } },
};

static const char *fixtures(void)
{
	const char *dir = getenv("CKPT_FIXTURES");

	return dir ? dir : CKPT_SOURCE_ROOT "/../shared/fixtures";
}

/* All of a file, in memory of just its length. */
static uint8_t *slurp(const char *path, size_t *out_len)
{
	FILE *f = fopen(path, "rb");
	struct stat st;
	uint8_t *data;

	if (!f)
		fail_msg("cannot open %s", path);
	assert_int_equal(fstat(fileno(f), &st), 0);
	data = malloc(st.st_size ? (size_t)st.st_size : 1);
	assert_non_null(data);
	assert_int_equal(fread(data, 1, (size_t)st.st_size, f), st.st_size);
	fclose(f);
	*out_len = (size_t)st.st_size;
	return data;
}

static int read_whole(const char *path, size_t *out_count,
		      struct ckpt_err *err)
{
	size_t len;
	uint8_t *data = slurp(path, &len);
	struct ckx_st st;
	uint64_t n;
	int rc = ckx_st_header_len(data, len < CKX_ST_SNIFF_BYTES
				   ? len : CKX_ST_SNIFF_BYTES, len, &n, err);

	if (rc == 0)
		rc = ckx_st_parse(&st, (const char *)data + 8, n, len, err);
	if (rc == 0) {
		*out_count = st.tensor_count;
		ckx_st_fini(&st);
	}
	free(data);
	return rc;
}

static void check_refusal(const char *file, const char *kind,
			  const struct ckpt_err *err)
{
	assert_int_equal(err->code, CKPT_EFORMAT);
	assert_null(strchr(err->message, '\n'));
	for (size_t k = 0; k < CKB_ARRAY_LEN(kinds); k++) {
		if (strcmp(kinds[k].kind, kind) != 0)
			continue;
		for (size_t i = 0; i < 5 && kinds[k].says[i]; i++)
			if (strstr(err->message, kinds[k].says[i]))
				return;
	}
	fail_msg("%s: the library says %s, we say '%s'", file, kind,
		 err->message);
}

static void check_verdict(const char *file, bool accepts, const char *kind)
{
	struct ckpt_err err = { 0 };
	char path[4096];
	size_t count;
	int rc;

	snprintf(path, sizeof(path), "%s/safetensors/bad/%s", fixtures(),
		 file);
	rc = read_whole(path, &count, &err);
	for (size_t i = 0; i < CKB_ARRAY_LEN(stricter); i++) {
		if (strcmp(stricter[i].file, file) != 0)
			continue;
		assert_true(accepts); /* else it does not belong there */
		assert_int_equal(rc, stricter[i].code);
		assert_non_null(strstr(err.message, stricter[i].says));
		return;
	}
	if (accepts != (rc == 0))
		fail_msg("%s: the library %s it, we gave %d '%s'", file,
			 accepts ? "accepts" : "refuses", rc, err.message);
	if (rc < 0)
		check_refusal(file, kind, &err);
}

static void bad_files_get_the_verdict_of_the_library(void **state)
{
	char path[4096], line[512], *verdict, *kind;
	size_t count = 0;
	FILE *f;

	(void)state;
	snprintf(path, sizeof(path), "%s/safetensors/bad/verdicts.tsv",
		 fixtures());
	f = fopen(path, "r");
	if (!f) {
		print_message("no %s: skipped\n", path);
		skip();
		return;
	}
	while (fgets(line, sizeof(line), f)) {
		verdict = strchr(line, '\t');
		assert_non_null(verdict);
		*verdict++ = '\0';
		kind = strchr(verdict, '\t');
		assert_non_null(kind);
		*kind++ = '\0';
		kind[strcspn(kind, "\n")] = '\0';
		check_verdict(line, strcmp(verdict, "accepts") == 0, kind);
		count++;
	}
	fclose(f);
	assert_true(count >= 114);
}

static void good_files_have_their_tensors(void **state)
{
	static const struct {
		const char *file;
		size_t count;
	} cases[] = {
		{ "dtypes/model.safetensors", 121 },
		{ "names/model.safetensors", 73 },
		{ "torch_save_file/model.safetensors", 7 },
		{ "torch_save_model_tied/model.safetensors", 3 },
		{ "hf_gpt2_bf16/checkpoint/"
		  "model-00001-of-00002.safetensors", 12 },
		{ "hf_llama_f32/checkpoint/"
		  "model-00003-of-00004.safetensors", 6 },
	};
	char path[4096];

	(void)state;
	if (access(fixtures(), R_OK) != 0) {
		print_message("no %s: skipped\n", fixtures());
		skip();
		return;
	}
	for (size_t i = 0; i < CKB_ARRAY_LEN(cases); i++) {
		struct ckpt_err err = { 0 };
		size_t count = 0;

		snprintf(path, sizeof(path), "%s/safetensors/%s", fixtures(),
			 cases[i].file);
		if (read_whole(path, &count, &err) < 0)
			fail_msg("%s: %s", path, err.message);
		assert_int_equal(count, cases[i].count);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(bad_files_get_the_verdict_of_the_library),
		cmocka_unit_test(good_files_have_their_tensors),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
