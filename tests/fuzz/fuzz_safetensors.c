/* SPDX-License-Identifier: Apache-2.0 */
/* fuzz_safetensors.c - any bytes as a safetensors file: an answer or a
 * sentence, and what is accepted keeps the format's rules. */
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include "base/check.h"
#include "foreign/safetensors.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct ckpt_err err = { 0 };
	struct ckx_st st = { 0 };
	uint64_t len = 0, at = 0;

	if (ckx_st_header_len(data, size < 64 ? size : 64, size, &len, &err) <
	    0) {
		CKB_REQUIRE(err.message[0] && !strchr(err.message, '\n'));
		return 0;
	}
	CKB_REQUIRE(len <= size - 8);
	if (ckx_st_parse(&st, (const char *)data + 8, (size_t)len, size, &err) <
	    0) {
		CKB_REQUIRE(err.message[0] && !strchr(err.message, '\n'));
		return 0;
	}
	for (size_t i = 0; i < st.tensor_count; i++) {
		CKB_REQUIRE(st.tensors[i].begin == at);
		at = st.tensors[i].end;
	}
	CKB_REQUIRE(8 + len + at == size);
	ckx_st_fini(&st);
	return 0;
}
