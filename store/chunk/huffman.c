/* SPDX-License-Identifier: Apache-2.0 */
/*
 * huffman.c - bytes to zstd frames that hold literals only (RFC 8878).
 *
 * A frame of known size; blocks of at most 128 KiB, each a table of code
 * lengths and four streams of codes, and no sequence. Lengths come from a
 * sample where the values lie close together, as exponents do; a value that
 * the sample missed gets a code too, so the sample costs room and no more.
 * streams.c writes the codes. Pure; never more than the room is written.
 */
#include "chunk/huffman.h"

#include <stdbool.h>
#include <string.h>

#include "base/bytes.h"
#include "base/check.h"
#include "chunk/streams.h"
#include "chunk/weights.h"

#define BLOCK (128u << 10)
#define BITS_MAX CKC_CODE_BITS_MAX
#define SAMPLE_RUN 128u
#define SAMPLE_RUNS 64u
#define FRAME_HEAD 9u        /* magic, descriptor, size in 4 bytes */
#define BLOCK_HEAD 3u
#define LITERALS_HEAD 5u

/* ---- how often each value comes ---- */

/* In 32 lanes, which compilers make vectors of. */
static void find_range(const uint8_t *raw, size_t n, uint32_t *out_min,
		       uint32_t *out_max)
{
	uint8_t min[32], max[32];

	memcpy(min, raw, sizeof(min));
	memcpy(max, raw, sizeof(max));
	for (size_t i = 0; i < n; i += 32) {
		/* the last ones again rather than past the end */
		const uint8_t *p = raw + ckb_min_u64(i, n - 32);

		for (int k = 0; k < 32; k++)
			min[k] = p[k] < min[k] ? p[k] : min[k];
		for (int k = 0; k < 32; k++)
			max[k] = p[k] > max[k] ? p[k] : max[k];
	}
	*out_min = 255;
	*out_max = 0;
	for (int k = 0; k < 32; k++) {
		*out_min = min[k] < *out_min ? min[k] : *out_min;
		*out_max = max[k] > *out_max ? max[k] : *out_max;
	}
}

/* Four tables, as the same value often comes twice in a row. */
static void count(struct ckc_huffman *h, const uint8_t *raw, size_t n)
{
	size_t i = 0;

	for (; i + 4 <= n; i += 4) {
		uint32_t v = ckb_get_u32(raw + i);

		h->seen[0][v & 255]++;
		h->seen[1][v >> 8 & 255]++;
		h->seen[2][v >> 16 & 255]++;
		h->seen[3][v >> 24]++;
	}
	for (; i < n; i++)
		h->seen[0][raw[i]]++;
}

/* Into seen[0]. True: the values lie close together. */
static bool count_all(struct ckc_huffman *h, const uint8_t *raw, size_t n,
		      uint32_t *out_min, uint32_t *out_max)
{
	find_range(raw, n, out_min, out_max);
	bool narrow = *out_max - *out_min < CKC_HUFFMAN_NARROW;

	memset(h->seen, 0, sizeof(h->seen));
	if (narrow && n > 2 * SAMPLE_RUN * SAMPLE_RUNS)
		for (size_t i = 0; i < SAMPLE_RUNS; i++)
			count(h, raw + (n - SAMPLE_RUN) * i /
				 (SAMPLE_RUNS - 1), SAMPLE_RUN);
	else
		count(h, raw, n);
	for (uint32_t s = *out_min; s <= *out_max; s++)
		h->seen[0][s] += h->seen[1][s] + h->seen[2][s] +
				 h->seen[3][s];
	for (uint32_t s = *out_min; narrow && s <= *out_max; s++)
		h->seen[0][s] += h->seen[0][s] == 0;
	return narrow;
}

/* ---- code lengths ---- */

/* Ascending; Shell's, as there are 256 at most. */
static void sort(uint32_t *a, uint32_t n)
{
	static const uint32_t gaps[] = { 57, 23, 10, 4, 1 };

	for (size_t g = 0; g < CKB_ARRAY_LEN(gaps); g++)
		for (uint32_t gap = gaps[g], i = gap; i < n; i++) {
			uint32_t v = a[i], j = i;

			for (; j >= gap && a[j - gap] > v; j -= gap)
				a[j] = a[j - gap];
			a[j] = v;
		}
}

/* Frequencies, ascending, become depths in the tree, descending: Moffat and
 * Katajainen, in place. @n >= 2. */
static void depths(uint32_t *a, uint32_t n)
{
	uint32_t root = 0, leaf = 2, next, avail = 1, used = 0, depth = 0;

	a[0] += a[1];
	for (next = 1; next < n - 1; next++) {
		if (leaf >= n || a[root] < a[leaf]) {
			a[next] = a[root];
			a[root++] = next;
		} else {
			a[next] = a[leaf++];
		}
		if (leaf >= n || (root < next && a[root] < a[leaf])) {
			a[next] += a[root];
			a[root++] = next;
		} else {
			a[next] += a[leaf++];
		}
	}
	a[n - 2] = 0;
	for (next = n - 2; next-- > 0;)
		a[next] = a[a[next]] + 1;
	root = n - 1; /* one past the inner node that is looked at */
	next = n;
	while (avail > 0) {
		while (root > 0 && a[root - 1] == depth) {
			used++;
			root--;
		}
		for (; avail > used; avail--)
			a[--next] = depth;
		avail = 2 * used;
		depth++;
		used = 0;
	}
}

/* Lengths of all values' codes, none over BITS_MAX; 0: it does not come. The
 * longest one, or 0 when fewer than two values come. A tree that is too deep is
 * made again with its rarest values a little less rare. */
static uint32_t lengths(const uint32_t *seen, uint32_t min, uint32_t max,
			uint8_t *out)
{
	uint32_t order[256], depth[256], n = 0, sum = 0, least = 0;

	memset(out, 0, 256);
	for (uint32_t s = min; s <= max; s++)
		if (seen[s]) {
			order[n++] = seen[s] << 8 | s;
			sum += seen[s];
		}
	if (n < 2)
		return 0;
	sort(order, n);
	do {
		for (uint32_t i = 0; i < n; i++) {
			depth[i] = order[i] >> 8;
			depth[i] = depth[i] < least ? least : depth[i];
		}
		least += 1 + sum / (4u << BITS_MAX);
		depths(depth, n);
	} while (depth[0] > BITS_MAX);
	for (uint32_t i = 0; i < n; i++)
		out[order[i] & 255] = (uint8_t)depth[i];
	return depth[0];
}

/* Codes in the format's order: the longest first, by value within a length. */
static void make_codes(struct ckc_huffman *h, const uint8_t *bits,
		       uint32_t longest, uint32_t min, uint32_t max,
		       bool narrow)
{
	uint32_t of[BITS_MAX + 1] = { 0 }, next[BITS_MAX + 1], at = 0;

	for (uint32_t s = min; s <= max; s++)
		of[bits[s]] += bits[s] > 0;
	for (uint32_t b = longest; b > 0; b--) {
		next[b] = at;
		at = (at + of[b]) >> 1;
	}
	for (uint32_t s = min; s <= max; s++)
		if (bits[s])
			h->codes[s] = next[bits[s]]++ << 6 | bits[s];
	for (uint32_t b = min; narrow && b <= max; b++) {
		uint32_t second = h->codes[b];
		uint32_t *row = h->pairs + (size_t)(b - min) *
					   CKC_HUFFMAN_NARROW;

		for (uint32_t a = min; a <= max; a++) {
			uint32_t first = h->codes[a];
			uint32_t v = (first >> 6) << (second & 63) |
				     second >> 6;

			row[a - min] = v << 6 | ((first + second) & 63);
		}
	}
}

/* ---- blocks ---- */

static ckc_streams_fn streams_fn(void)
{
#ifdef __x86_64__
	if (ckc_streams_has_bmi2())
		return ckc_streams_encode_bmi2;
#endif
	return ckc_streams_encode;
}

static size_t encode_block(struct ckc_huffman *h, const uint8_t *raw, size_t n,
			   bool is_last, uint8_t *dst, size_t room)
{
	const size_t head = BLOCK_HEAD + LITERALS_HEAD;
	uint32_t min, max;
	uint8_t bits[256];
	bool narrow = count_all(h, raw, n, &min, &max);
	uint32_t longest = lengths(h->seen[0], min, max, bits);

	if (longest == 0 || room < head + CKC_WEIGHTS_MAX + 1)
		return 0;
	make_codes(h, bits, longest, min, max, narrow);
	size_t table = ckc_weights_encode(bits, longest, max, dst + head);
	size_t got = table == 0 ? 0
		   : streams_fn()(h, narrow, min, raw, n, dst + head + table,
				  room - head - table - 1);

	if (got == 0 || head + table + got + 1 >= n)
		return 0;
	uint64_t literals = 2 | 3 << 2 | (uint64_t)n << 4 |
			    (uint64_t)(table + got) << 22;
	size_t len = LITERALS_HEAD + table + got + 1;

	dst[head + table + got] = 0; /* sequences */
	ckb_put_u32(dst + BLOCK_HEAD, (uint32_t)literals);
	dst[BLOCK_HEAD + 4] = (uint8_t)(literals >> 32);
	dst[0] = (uint8_t)(is_last | 2 << 1 | len << 3);
	ckb_put_u16(dst + 1, (uint16_t)(len >> 5));
	return BLOCK_HEAD + len;
}

size_t ckc_huffman_encode(struct ckc_huffman *h, const uint8_t *raw, size_t n,
			  uint8_t *dst, size_t room)
{
	size_t at = FRAME_HEAD;

	CKB_REQUIRE(n >= CKC_HUFFMAN_MIN && n <= UINT32_MAX);
	if (room < FRAME_HEAD)
		return 0;
	ckb_put_u32(dst, 0xfd2fb528);
	dst[4] = 0xa0; /* one segment, its size in 4 bytes, no checksum */
	ckb_put_u32(dst + 5, (uint32_t)n);
	for (size_t done = 0; done < n;) {
		size_t left = n - done;
		/* no block so short that it cannot be cut in four */
		size_t here = left <= BLOCK ? left
			    : left < BLOCK + CKC_HUFFMAN_MIN ? BLOCK / 2
							     : BLOCK;
		size_t got = encode_block(h, raw + done, here, here == left,
					  dst + at, room - at);

		if (got == 0)
			return 0;
		done += here;
		at += got;
	}
	return at;
}
