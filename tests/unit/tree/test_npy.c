/* SPDX-License-Identifier: Apache-2.0 */
/*
 * test_npy.c - virtual .npy files: every dtype and shape of the fixture, the
 * bytes by the real library's digests, read in any pieces.
 */
#include "tree_fixture.h"

#include "base/bytes.h"
#include "base/text.h"
#include "chunk/digest.h"

/* Where the array begins: NumPy's format 1.0. */
static size_t header_len(const char *npy)
{
	assert_memory_equal(npy, "\x93NUMPY\x01\x00", 8);
	size_t len = 10 + (size_t)ckb_get_u16(npy + 8);

	assert_int_equal(len % 64, 0);
	assert_int_equal(npy[len - 1], '\n');
	return len;
}

static void assert_digest(const void *bytes, size_t len, const char *want)
{
	uint8_t digest[CKPT_DIGEST_BYTES];
	char hex[65];

	ckc_sha256(bytes, len, digest);
	ckb_hex(hex, digest, sizeof(digest));
	assert_string_equal(hex, want);
}

/* F4, two in a byte again. */
static size_t pack(char *bytes, size_t len)
{
	for (size_t i = 0; i < len / 2; i++) {
		assert_true((bytes[2 * i] | bytes[2 * i + 1]) < 16);
		bytes[i] = (char)(bytes[2 * i] | bytes[2 * i + 1] << 4);
	}
	return len / 2;
}

static void every_dtype_has_its_bytes(void **state)
{
	struct fix *f = *state;
	char path[600];
	size_t n, len, empty = 0, nibbles = 0;

	import(f, "safetensors/dtypes/model.safetensors", "d");
	snprintf(path, sizeof(path), "%s/safetensors/dtypes/expected.tsv",
		 fixtures_path());
	struct fixture_row *rows = fixtures_rows(path, &n);

	assert_int_equal(n, 121);
	for (size_t i = 0; i < n; i++) {
		char shape[300];

		snprintf(path, sizeof(path), "d/model/%s.npy", rows[i].name);
		*strchr(path + strlen("d/model/"), '.') = '/';
		char *npy = content_at(f, path, &len);
		size_t head = header_len(npy), body = len - head;

		/* "(3, 5)" in the header, "[3,5]" in the list */
		snprintf(shape, sizeof(shape), "'shape': (%.*s",
			 (int)strcspn(rows[i].shape + 1, ",]"),
			 rows[i].shape + 1);
		npy[head - 1] = '\0';
		assert_non_null(strstr(npy + 10, shape));
		empty += body == 0;
		if (strcmp(rows[i].dtype, "F4") == 0) {
			body = pack(npy + head, body);
			nibbles++;
		}
		assert_int_equal(body, rows[i].nbytes);
		assert_digest(npy + head, body, rows[i].sha256);
		free(npy);
	}
	assert_int_equal(empty, 40);
	assert_int_equal(nibbles, 5);
	fixtures_free(rows, n);
}

/* Any offset and length gives the bytes of the whole; the end is exact. */
static void assert_pieces(struct fix *f, const char *path)
{
	static const size_t lengths[] = { 1, 2, 3, 7, 64, 127, 128, 129, 4096,
					  131071, 131072, 1 << 20 };
	struct ckpt_err err = { 0 };
	struct ckv_node *n = at(f, path);
	size_t whole, len;
	char *want = content(n, &whole);
	char *got = malloc(whole + (1 << 20));

	for (size_t l = 0; l < CKB_ARRAY_LEN(lengths); l++) {
		size_t step = whole / 53 + 1;

		for (size_t off = 0; off < whole + step; off += step) {
			size_t left = off < whole ? whole - off : 0;
			size_t expect = left < lengths[l] ? left : lengths[l];

			assert_ok(ckv_read(n, off, got, lengths[l], &len,
					   &err));
			assert_int_equal(len, expect);
			if (expect > 0)
				assert_memory_equal(got, want + off, expect);
		}
	}
	assert_ok(ckv_read(n, whole, got, 1, &len, &err));
	assert_int_equal(len, 0);
	assert_ok(ckv_read(n, UINT64_MAX, got, 1, &len, &err));
	assert_int_equal(len, 0);
	assert_ok(ckv_read(n, whole - 1, got, 9, &len, &err));
	assert_int_equal(len, 1);
	assert_ok(ckv_read(n, 0, got, 0, &len, &err));
	assert_int_equal(len, 0);
	free(want);
	free(got);
	ckv_put(n);
}

static void reads_at_any_offset_agree(void **state)
{
	struct fix *f = *state;
	size_t len = 700001;
	uint8_t *bytes = malloc(2 * len);
	static const uint8_t few[] = { 0x21, 0x43, 0x65, 0x87 };

	for (size_t i = 0; i < 2 * len; i++)
		bytes[i] = (uint8_t)(i * 2654435761u >> 11);
	begin(f, "c", false);
	item(f, "m", CKPT_ITEM_TENSORS, ".");
	/* 700,001 columns: odd tiles; F4 larger than one unpacking step */
	tensor(f, "u8", CKPT_U8,
	       (struct ckpt_shape){ .ndim = 2, .dim = { 2, len } }, bytes,
	       2 * len);
	tensor(f, "f4", CKPT_F4,
	       (struct ckpt_shape){ .ndim = 2, .dim = { 2, len } }, bytes, len);
	tensor(f, "few", CKPT_F4,
	       (struct ckpt_shape){ .ndim = 1, .dim = { 6 } }, few, 3);
	tensor(f, "scalar", CKPT_F32, (struct ckpt_shape){ .ndim = 0 }, few,
	       4);
	tensor(f, "none", CKPT_F32,
	       (struct ckpt_shape){ .ndim = 2, .dim = { 0, 7 } }, few, 0);
	commit(f);
	free(bytes);
	assert_pieces(f, "c/m/u8.npy");
	assert_pieces(f, "c/m/f4.npy");
	assert_pieces(f, "c/m/scalar.npy");
	assert_pieces(f, "c/m/none.npy");
	char *npy = content_at(f, "c/m/few.npy", &len);

	assert_memory_equal(npy + header_len(npy), "\1\2\3\4\5\6", 6);
	free(npy);
}

/* F6 packs four in three bytes: NumPy has no form for it, people have. */
static void f6_has_a_text_but_no_npy(void **state)
{
	struct fix *f = *state;
	struct ckpt_err err = { 0 };
	struct ckv_node *n, *dir;

	begin(f, "c", false);
	item(f, "m", CKPT_ITEM_TENSORS, ".");
	tensor(f, "w", CKPT_F6_E2M3,
	       (struct ckpt_shape){ .ndim = 1, .dim = { 4 } }, "abc", 3);
	commit(f);
	assert_names(f, "c/m", "w.txt");
	dir = at(f, "c/m");
	assert_code(ckv_lookup(dir, "w.npy", &n, &err), CKPT_ENOENT);
	assert_null(n);
	ckv_put(dir);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_setup_teardown(every_dtype_has_its_bytes,
						fix_setup, fix_teardown),
		cmocka_unit_test_setup_teardown(reads_at_any_offset_agree,
						fix_setup, fix_teardown),
		cmocka_unit_test_setup_teardown(f6_has_a_text_but_no_npy,
						fix_setup, fix_teardown),
	};

	fixtures_need();
	return cmocka_run_group_tests(tests, NULL, NULL);
}
