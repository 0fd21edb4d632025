/* SPDX-License-Identifier: Apache-2.0 */
/* fuzz_record.c - any bytes as each on-disk record. The checksum is made right
 * first, so that what lies behind it is reached too. */
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "base/bytes.h"
#include "base/hash.h"
#include "format/config.h"
#include "format/entry.h"
#include "format/record.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void record(uint8_t *bytes, size_t size)
{
	static struct ckf_cell cells[64];
	struct ckf_record r;
	struct ckf_footer f;
	struct ckf_pack_header h;

	memcpy(bytes, "ckptREC1", 8);
	ckb_put_u32(bytes + 8, (uint32_t)size);
	ckb_put_u64(bytes + size - 8, ckb_xxh3(bytes, size - 8));
	if (ckf_record_decode(bytes, size, cells, 64, &r, NULL) == 0)
		CKB_REQUIRE(r.stored_len <= r.raw_len);
	memcpy(bytes, "ckptPACK", 8);
	ckb_put_u64(bytes + 56, ckb_xxh3(bytes, 56));
	(void)!ckf_pack_header_decode(bytes, 64, &h, NULL);
	memcpy(bytes, "ckptFOOT", 8);
	ckb_put_u64(bytes + 56, ckb_xxh3(bytes, 56));
	if (ckf_footer_decode(bytes, size, &f, NULL) == 0)
		CKB_REQUIRE(f.table_off <= size);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct ckf_chunk_entry e;
	struct ckf_layout layout;
	struct ckf_config config;
	struct ckpt_shape shape;
	struct ckpt_stats stats;
	size_t even = size / 8 * 8;
	uint8_t *copy = malloc(size + 8);

	memcpy(copy, data, size);
	if (even >= 88)
		record(copy, even);
	if (size >= CKF_CHUNK_ENTRY_BYTES)
		(void)!ckf_chunk_entry_decode(data, &e, NULL);
	if (ckf_layout_decode(data, size, &layout, NULL) == 0)
		ckf_layout_fini(&layout);
	(void)!ckf_shape_decode(data, size, &shape, NULL);
	(void)!ckf_stats_decode(data, size, &stats, NULL);
	(void)!ckf_config_decode((const char *)data, size, &config, NULL);
	free(copy);
	return 0;
}
