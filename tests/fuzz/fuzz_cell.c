/* SPDX-License-Identifier: Apache-2.0 */
/* fuzz_cell.c - any bytes as a cell's stored bytes, and what was encoded with a
 * few of its bytes changed. Checksums are right, so that what lies behind them
 * is reached; memory is exact, so that a sanitizer sees the first byte past. */
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "base/hash.h"
#include "chunk/codec.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static int decode(const uint8_t *stored, size_t len, uint32_t coding,
		  uint8_t **out, size_t raw_len)
{
	struct ckf_cell cell = { (uint32_t)len, coding,
				 ckb_xxh3(stored, len) };

	*out = malloc(raw_len + (raw_len == 0));
	return ckc_cell_decode(&cell, stored, *out, raw_len, NULL);
}

static void any_bytes(const uint8_t *data, size_t size, size_t raw_len)
{
	uint8_t *head = malloc(size), *out;
	static const uint8_t widths[] = { 1, 2, 4, 8 };

	for (uint32_t coding = 0; coding < 4; coding++) {
		(void)!decode(data, size, coding, &out, raw_len);
		free(out);
	}
	/* a header that is right so far, whatever the lengths */
	memcpy(head, data, size);
	if (size > 4) {
		head[0] = widths[data[0] % 4];
		head[1] = data[1] % 2 && head[0] > 1;
		head[2] = head[3] = 0;
	}
	for (size_t k = 7; size > 4 && k < 4 + 4 * (size_t)head[0] && k < size;
	     k += 4) {
		head[k] %= 4;
		head[k - 1] = 0;
	}
	(void)!decode(head, size, CKF_CELL_PLANES, &out, raw_len);
	free(out);
	free(head);
}

/* Numbers with the data's own exponents; round trip, then harm. */
static void encoded(const uint8_t *data, size_t size)
{
	static struct ckc_codec *codec;
	static const enum ckpt_dtype dtypes[] = { CKPT_BF16, CKPT_F32, CKPT_F64,
						  CKPT_F16, CKPT_F8_E4M3,
						  CKPT_I64, CKPT_U8 };
	size_t len = 256 + (size_t)data[0] * 24, n = len;
	uint8_t *raw = malloc(len), *dst = malloc(len), *again;
	struct ckf_cell cell;
	const void *stored;

	for (size_t i = 0; i < len; i++)
		raw[i] = i % 4 == 3 ? data[i / 4 % size] % 16 + 52
				    : (uint8_t)(i * i * 167 >> 5 ^
						data[i % size]);
	if (!codec && ckc_codec_new(CKF_CODEC_PLANES, 1, &codec, NULL) < 0)
		abort();
	ckc_codec_dtype(codec, dtypes[data[size - 1] % 7]);
	if (ckc_cell_encode(codec, raw, len, dst, &cell, &stored, NULL) < 0)
		abort();
	again = malloc(len);
	CKB_REQUIRE(ckc_cell_decode(&cell, stored, again, len, NULL) == 0 &&
		    memcmp(raw, again, len) == 0);
	free(again);
	n = cell.stored_len;
	uint8_t *harmed = malloc(n + 1);

	memcpy(harmed, stored, n);
	for (size_t i = 1; n > 0 && i + 2 < size && i < 24; i += 3)
		harmed[(data[i] << 8 | data[i + 1]) % (i % 2 ? n : n % 64 + 1)] =
			data[i + 2];
	(void)!decode(harmed, n, cell.coding, &again, len);
	free(again);
	free(harmed);
	free(raw);
	free(dst);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	if (size < 4 || size > CKB_CELL_BYTES)
		return 0;
	any_bytes(data, size, (size_t)(data[2] << 8 | data[3]) + 1);
	any_bytes(data, size, size * (data[2] % 4 + 1));
	encoded(data, size);
	return 0;
}
