/* SPDX-License-Identifier: Apache-2.0 */
/*
 * corpus_main.c - run a fuzz target without libFuzzer: over the fixtures of the
 * formats that are parsed, each as it is and in mutations from a fixed seed, so
 * that every machine tries the same inputs.
 */
#include <dirent.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "fixtures.h"

#ifndef MUTATIONS
#define MUTATIONS 60
#endif
#define BYTES_MAX (1u << 16)

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static uint64_t seed = 20260101;

static uint64_t next_random(void)
{
	seed ^= seed << 13;
	seed ^= seed >> 7;
	seed ^= seed << 17;
	return seed;
}

static void run(const uint8_t *data, size_t size)
{
	/* an exact allocation: ASan sees the first byte past it */
	uint8_t *copy = malloc(size ? size : 1);

	memcpy(copy, data, size);
	LLVMFuzzerTestOneInput(copy, size);
	free(copy);
}

static void mutate(uint8_t *data, size_t *size)
{
	static const char digits[] = "0123456789\"[]{},:-eE\\u";
	size_t at = *size ? next_random() % (*size < 600 ? *size : 600) : 0;

	switch (next_random() % 5) {
	case 0:
		data[at] ^= (uint8_t)(1u << next_random() % 8);
		break;
	case 1:
		data[at] = (uint8_t)digits[next_random() %
					   (sizeof(digits) - 1)];
		break;
	case 2:
		*size -= *size ? next_random() % *size : 0;
		break;
	case 3: /* say a run twice */
		if (*size + 16 < BYTES_MAX && at + 16 < *size) {
			memmove(data + at + 16, data + at, *size - at);
			*size += 16;
		}
		break;
	default:
		data[at] = (uint8_t)next_random();
	}
}

static size_t run_file(const char *path)
{
	static uint8_t whole[BYTES_MAX], mutant[BYTES_MAX];
	FILE *f = fopen(path, "rb");
	size_t size = f ? fread(whole, 1, sizeof(whole), f) : 0;

	if (!f)
		return 0;
	fclose(f);
	run(whole, size);
	for (int i = 0; i < MUTATIONS; i++) {
		size_t n = size;

		memcpy(mutant, whole, size);
		for (uint64_t k = 1 + next_random() % 4; k > 0; k--)
			mutate(mutant, &n);
		run(mutant, n);
	}
	return 1 + MUTATIONS;
}

static int ends_with(const char *path, const char *end)
{
	size_t n = strlen(path), m = strlen(end);

	return n >= m && strcmp(path + n - m, end) == 0;
}

int main(void)
{
	static const struct {
		const char *folder, *end;
	} sets[] = {
		{ "safetensors/bad", ".safetensors" },
		{ "safetensors/dtypes", ".safetensors" },
		{ "safetensors/names", ".safetensors" },
		{ "safetensors/torch_save_model_tied", ".safetensors" },
		{ "safetensors/hf_gpt2_f32/checkpoint", ".index.json" },
		{ "safetensors/hf_llama_tied_bf16/checkpoint", ".index.json" },
		{ "npy/bad", ".npy" },
		{ "npy/good", ".npy" },
	};
	size_t runs = 0;

	fixtures_need();
	for (size_t i = 0; i < sizeof(sets) / sizeof(sets[0]); i++) {
		char folder[600], path[1200];
		struct dirent **names;

		snprintf(folder, sizeof(folder), "%s/%s", fixtures_path(),
			 sets[i].folder);
		int n = scandir(folder, &names, NULL, alphasort);

		for (int k = 0; k < n; k++) {
			snprintf(path, sizeof(path), "%s/%s", folder,
				 names[k]->d_name);
			if (ends_with(path, sets[i].end))
				runs += run_file(path);
			free(names[k]);
		}
		if (n >= 0)
			free(names);
	}
	printf("%zu inputs\n", runs);
	return runs > 1000 ? 0 : 1;
}
