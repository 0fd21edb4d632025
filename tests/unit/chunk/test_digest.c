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
static void two_at_once_are_each_their_own(void **state)
{
	static const size_t lengths[] = { 0, 1, 55, 56, 63, 64, 65, 127, 128,
					  4096, 70001 };
	static uint8_t bytes[2][70001 + 1];

	(void)state;
	for (size_t i = 0; i < 2 * sizeof(bytes[0]); i++)
		bytes[i & 1][i / 2] = (uint8_t)(i * 2654435761u >> 13);
	for (size_t i = 0; i < CKB_ARRAY_LEN(lengths); i++)
		for (size_t j = 0; j < CKB_ARRAY_LEN(lengths); j++) {
			const void *data[2] = { bytes[0] + 1, bytes[1] };
			size_t len[2] = { lengths[i], lengths[j] };
			struct ckc_sha256 h[2];

			for (int k = 0; k < 2; k++)
				ckc_sha256_init(&h[k]);
			/* with what is left of a block, and without */
			ckc_sha256_add_pair(h, data, len);
			ckc_sha256_add_pair(h, data, len);
			for (int k = 0; k < 2; k++)
				expect_twice(&h[k], data[k], len[k]);
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
		cmocka_unit_test(two_at_once_are_each_their_own),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
