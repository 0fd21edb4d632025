/* SPDX-License-Identifier: Apache-2.0 */
/* test_digest.c - SHA-256 against FIPS 180-4's examples, whole, in pieces,
 * and from several threads. */
#include <pthread.h>

#include "base/text.h"
#include "pack_fixture.h"

static const struct {
	const char *text;
	unsigned times;
	const char *hex;
} cases[] = {
	{ "", 1, "e3b0c44298fc1c149afbf4c8996fb924"
		 "27ae41e4649b934ca495991b7852b855" },
	{ "abc", 1, "ba7816bf8f01cfea414140de5dae2223"
		    "b00361a396177a9cb410ff61f20015ad" },
	{ "abcdbcdecdefdefgefghfghighijhijkijkljklmklmnlmnomnopnopq", 1,
	  "248d6a61d20638b8e5c026930c3e6039"
	  "a33ce45964ff2167f6ecedd419db06c1" },
	{ "aaaaaaaaaa", 100000, "cdc76e5c9914fb9281a1c7e284d73e67"
				"f1809a48a497200e046d39ccc7112cd0" },
};

static bool is(const uint8_t digest[32], const char *hex)
{
	char have[65];

	ckb_hex(have, digest, 32);
	return strcmp(have, hex) == 0;
}

static void published_examples_hold_whole(void **state)
{
	(void)state;
	for (size_t i = 0; i < 3; i++) {
		uint8_t digest[32];

		ckc_sha256(cases[i].text, strlen(cases[i].text), digest);
		assert_true(is(digest, cases[i].hex));
	}
}

static void expect_twice(struct ckc_sha256 *h, const void *data, size_t len)
{
	uint8_t have[32], want[32];
	struct ckc_sha256 one;

	ckc_sha256_init(&one);
	ckc_sha256_add(&one, data, len);
	ckc_sha256_add(&one, data, len);
	ckc_sha256_end(&one, want);
	ckc_sha256_end(h, have);
	assert_memory_equal(have, want, sizeof(have));
}

/* The oracle is OpenSSL's, message by message. */
static void several_at_once_are_each_their_own(void **state)
{
	static const size_t lengths[] = { 0, 1, 55, 56, 63, 64, 65, 127, 128,
					  4096, 70001 };
	static uint8_t bytes[CKC_SHA256_LANES][70001 + 1];
	const size_t kinds = CKB_ARRAY_LEN(lengths);

	(void)state;
	for (size_t i = 0; i < sizeof(bytes); i++)
		bytes[i % CKC_SHA256_LANES][i / CKC_SHA256_LANES] =
			(uint8_t)(i * 2654435761u >> 13);
	/* all as long as each other but the first @odd of them */
	for (uint32_t n = 1; n <= CKC_SHA256_LANES; n++)
		for (size_t k = 0; k < kinds * kinds; k++) {
			const void *data[CKC_SHA256_LANES];
			size_t len[CKC_SHA256_LANES], odd = k % 4;
			struct ckc_sha256 h[CKC_SHA256_LANES];

			for (uint32_t i = 0; i < n; i++) {
				data[i] = bytes[i] + i % 2;
				len[i] = lengths[i < odd ? k / kinds
							 : k % kinds];
				ckc_sha256_init(&h[i]);
			}
			/* with what is left of a block, and without */
			ckc_sha256_add_each(h, data, len, n);
			ckc_sha256_add_each(h, data, len, n);
			for (uint32_t i = 0; i < n; i++)
				expect_twice(&h[i], data[i], len[i]);
		}
}

static void published_examples_hold_in_pieces(void **state)
{
	struct ckc_sha256 h;
	uint8_t digest[32];

	(void)state;
	ckc_sha256_init(&h);
	/* one running hash for all: end begins anew */
	for (size_t i = 0; i < CKB_ARRAY_LEN(cases); i++) {
		for (unsigned n = 0; n < cases[i].times; n++)
			ckc_sha256_add(&h, cases[i].text,
				       strlen(cases[i].text));
		ckc_sha256_end(&h, digest);
		assert_true(is(digest, cases[i].hex));
	}
}

static void *hash_often(void *arg)
{
	bool *wrong = arg;
	uint8_t digest[32];

	for (int i = 0; i < 2000; i++) {
		ckc_sha256("abc", 3, digest);
		*wrong = *wrong || !is(digest, cases[1].hex);
	}
	return NULL;
}

static void threads_hash_at_once(void **state)
{
	pthread_t threads[4];
	bool wrong[4] = { false };

	(void)state;
	for (int i = 0; i < 4; i++)
		assert_int_equal(pthread_create(&threads[i], NULL, hash_often,
						&wrong[i]), 0);
	for (int i = 0; i < 4; i++)
		pthread_join(threads[i], NULL);
	for (int i = 0; i < 4; i++)
		assert_false(wrong[i]);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(threads_hash_at_once),
		cmocka_unit_test(published_examples_hold_whole),
		cmocka_unit_test(published_examples_hold_in_pieces),
		cmocka_unit_test(several_at_once_are_each_their_own),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
