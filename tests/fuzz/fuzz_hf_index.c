/* SPDX-License-Identifier: Apache-2.0 */
/* fuzz_hf_index.c - any bytes as the index of a Hugging Face folder: an answer
 * or a sentence; names are sorted, and no shard leads out of the folder. */
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "base/check.h"
#include "foreign/hf_index.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	char *text = malloc(size ? size : 1); /* it is decoded in place */
	struct ckpt_err err = { 0 };
	struct ckx_hf_index ix;

	memcpy(text, data, size);
	if (ckx_hf_index_parse(&ix, text, size, &err) < 0) {
		CKB_REQUIRE(err.message[0] && !strchr(err.message, '\n'));
		CKB_REQUIRE(!ix.entries);
		free(text);
		return 0;
	}
	for (size_t i = 0; i < ix.count; i++) {
		const struct ckx_hf_entry *e = &ix.entries[i];

		CKB_REQUIRE(e->file_len > 0 && e->file[0] != '/');
		CKB_REQUIRE(e->file_len < 3 || memcmp(e->file, "../", 3));
		CKB_REQUIRE(!memmem(e->file, e->file_len, "/../", 4));
		CKB_REQUIRE(i == 0 ||
			    ckx_name_compare(e[-1].name, e[-1].name_len,
					     e->name, e->name_len) < 0);
	}
	ckx_hf_index_fini(&ix);
	free(text);
	return 0;
}
