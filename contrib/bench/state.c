/* SPDX-License-Identifier: Apache-2.0 */
/*
 * state.c - the state that the benchmark saves, as states.py left it.
 */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include <jansson.h>

#include "bench.h"

#define PIECE_BYTES (8u << 20)
#define BLOCK_BYTES 4096u
#define LOW_BITS 0x000f000f000f000full /* mantissa, of fp32 and of bf16 */

double bench_now(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return (double)t.tv_sec + (double)t.tv_nsec / 1e9;
}

static void die(const char *what, const char *why)
{
	fprintf(stderr, "bench-save: %s: %s\n", what, why);
	exit(1);
}

/* "group/name" -> both; the strings live as long as the process. */
static void split(struct bench_entry *entry, const char *path)
{
	char *group = strdup(path);
	char *slash = group ? strchr(group, '/') : NULL;

	if (!slash)
		die(path, "not 'group/name'");
	*slash = 0;
	entry->group = group;
	entry->name = slash + 1;
}

static void read_tensor(struct bench_entry *entry, json_t *t)
{
	json_t *shape = json_object_get(t, "shape");
	const char *name = json_string_value(json_object_get(t, "name"));
	const char *dtype = json_string_value(json_object_get(t, "dtype"));

	if (!name || !dtype || ckpt_dtype_parse(dtype, &entry->dtype) != 0 ||
	    json_array_size(shape) > CKPT_NDIM_MAX)
		die("index", "a tensor is not described");
	split(entry, name);
	entry->shape.ndim = (uint32_t)json_array_size(shape);
	for (uint32_t d = 0; d < entry->shape.ndim; d++)
		entry->shape.dim[d] =
			(uint64_t)json_integer_value(json_array_get(shape, d));
}

static void read_entries(struct bench_state *state, json_t *list, bool files)
{
	for (size_t i = 0; i < json_array_size(list); i++) {
		json_t *t = json_array_get(list, i);
		struct bench_entry *e = &state->entry[state->entry_count++];

		if (files) {
			e->is_file = true;
			e->group = "files";
			e->name = strdup(
				json_string_value(json_object_get(t, "name")));
		} else {
			read_tensor(e, t);
		}
		e->off = (uint64_t)json_integer_value(
			json_object_get(t, "offset"));
		e->bytes = (uint64_t)json_integer_value(
			json_object_get(t, "bytes"));
		state->bytes += e->bytes;
	}
}

static void read_raw(struct bench_state *state, const char *path)
{
	int fd = open(path, O_RDONLY | O_CLOEXEC);
	struct stat st;
	size_t at = 0;

	if (fd < 0 || fstat(fd, &st) != 0)
		die(path, strerror(errno));
	state->mapped_bytes = ((size_t)st.st_size + BLOCK_BYTES - 1) /
			      BLOCK_BYTES * BLOCK_BYTES;
	state->data = mmap(NULL, state->mapped_bytes, PROT_READ | PROT_WRITE,
			   MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	if (state->data == MAP_FAILED)
		die("memory", strerror(errno));
	while (at < (size_t)st.st_size) {
		ssize_t n = read(fd, state->data + at, (size_t)st.st_size - at);

		if (n <= 0)
			die(path, "cannot be read");
		at += (size_t)n;
	}
	close(fd);
}

void bench_state_load(struct bench_state *state, const char *prefix)
{
	char path[4096];
	json_error_t error;
	json_t *index, *tensors, *files;

	*state = (struct bench_state){ 0 };
	snprintf(path, sizeof(path), "%s.json", prefix);
	index = json_load_file(path, 0, &error);
	if (!index)
		die(path, error.text);
	tensors = json_object_get(index, "tensors");
	files = json_object_get(index, "files");
	state->entry =
		calloc(json_array_size(tensors) + json_array_size(files) + 1,
		       sizeof(*state->entry));
	if (!state->entry)
		die("memory", strerror(errno));
	read_entries(state, tensors, false);
	read_entries(state, files, true);
	json_decref(index);
	snprintf(path, sizeof(path), "%s.raw", prefix);
	read_raw(state, path);
}

void bench_state_fini(struct bench_state *state)
{
	munmap(state->data, state->mapped_bytes);
	free(state->entry);
}

static void change(uint64_t *words, uint64_t bytes, uint64_t key)
{
	for (uint64_t at = 0; at < bytes / 8; at += BLOCK_BYTES / 8) {
		uint64_t end = at + BLOCK_BYTES / 8;
		uint64_t low;

		key = key * 6364136223846793005ull + 1442695040888963407ull;
		low = (key >> 7 | 1) & LOW_BITS;
		if (end > bytes / 8)
			end = bytes / 8;
		for (uint64_t i = at; i < end; i++)
			words[i] ^= low;
	}
}

uint64_t bench_state_update(struct bench_state *state, double fraction)
{
	double due = 0;
	uint64_t changed = 0;

	state->update_count++;
	for (size_t i = 0; i < state->entry_count; i++) {
		struct bench_entry *e = &state->entry[i];
		uint64_t key = state->update_count << 32 ^ i << 12;
		uint64_t at = 0;

		while (!e->is_file && at < e->bytes) {
			uint64_t n = e->bytes - at;

			if (n > PIECE_BYTES)
				n = PIECE_BYTES;
			due += fraction * (double)n;
			if (due >= (double)n) {
				change((uint64_t *)(state->data + e->off + at),
				       n, key + at / PIECE_BYTES);
				due -= (double)n;
				changed += n;
			}
			at += n;
		}
	}
	return changed;
}
