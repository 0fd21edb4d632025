/* SPDX-License-Identifier: Apache-2.0 */
/* test_hash.c - XXH3-64 is that of the format, for ever. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include "base/check.h"
#include "base/hash.h"

/* Of bytes (7 i + 3) % 256, alone and after the word 0x01020304, at lengths
 * where the algorithm changes its ways. Made with libxxhash 0.8.1 called from
 * Python, and equal to what contrib/python/reader.py computes on its own. */
struct known {
	size_t len;
	uint64_t alone, after;
};
static const struct known known[] = {
	{ 0, 0x2d06800538d394c2, 0xc738ba38634321a9 },
	{ 1, 0x13e608bc156defed, 0xd1c3a27bc4705840 },
	{ 3, 0xa9088dda485b481c, 0xe0cafa00eb4d3341 },
	{ 4, 0x6d9253b16c8b1ed3, 0xb9708da27e9770cc },
	{ 8, 0x60539db630471163, 0x44456681fc5de806 },
	{ 9, 0xfeff668361d723a8, 0xf87cff2501edc11b },
	{ 16, 0xb8c859b0f030b585, 0xa975d59cd34f33af },
	{ 17, 0x714a04408e79b80f, 0x44138541e1308733 },
	{ 128, 0x67425a03650261bf, 0xdbaa64845594bd4e },
	{ 129, 0xc664bf3311c6abc4, 0xef1f6498695d6d45 },
	{ 240, 0x64556dc6b462a6cf, 0xac3cc78f8482b818 },
	{ 241, 0x8beadd3a8874fe17, 0xeab58d516c583254 },
	{ 256, 0x3c38817f6d79c0da, 0x3edf2e6233b195b7 },
	{ 257, 0x2a300c3495738ea6, 0x13703b664182ec8e },
	{ 1024, 0x9b81661c641c72b1, 0xadef78fdfdd245ff },
	{ 4096, 0xd7428746842be37e, 0x3088c94432b48eb9 },
	{ 262144, 0xbb242521d241d721, 0x6673f81910cb7fb8 },
};

static uint8_t bytes[262144 + 8];

static void hashes_are_the_known_ones(void **state)
{
	(void)state;
	for (size_t i = 0; i < CKB_ARRAY_LEN(known); i++) {
		size_t n = known[i].len;

		assert_true(ckb_xxh3(bytes, n) == known[i].alone);
		assert_true(ckb_xxh3_u32(0x01020304, bytes, n) ==
			    known[i].after);
	}
	assert_true(ckb_xxh3(NULL, 0) == known[0].alone);
	assert_true(ckb_xxh3_u32(0x01020304, NULL, 0) == known[0].after);
}

static void alignment_does_not_matter(void **state)
{
	static uint8_t moved[4096 + 8];

	(void)state;
	for (size_t shift = 0; shift < 8; shift++) {
		for (size_t i = 0; i < 4096; i++)
			moved[shift + i] = (uint8_t)(7 * i + 3);
		assert_true(ckb_xxh3(moved + shift, 4096) ==
			    0xd7428746842be37e);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(hashes_are_the_known_ones),
		cmocka_unit_test(alignment_does_not_matter),
	};

	for (size_t i = 0; i < sizeof(bytes); i++)
		bytes[i] = (uint8_t)(7 * i + 3);
	return cmocka_run_group_tests(tests, NULL, NULL);
}
