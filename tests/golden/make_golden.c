/* SPDX-License-Identifier: Apache-2.0 */
/*
 * make_golden.c - write the golden store of this version: make_golden STORE.
 *
 * Run once when the format gains something, never to "refresh" an old store.
 * Byte i of tensor number n is (i / 16 * 2654435761 + n * 97) >> 24 mod 256, in
 * 32-bit arithmetic on i / 16, so test_golden.py can say what must be there.
 */
#include <ckpt/writer.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static struct ckpt_err err;
static uint32_t number;

static void ok(int rc)
{
	if (rc == 0)
		return;
	fprintf(stderr, "make_golden: %s\n", err.message);
	exit(1);
}

static struct ckpt_provider pattern(uint64_t bytes)
{
	uint8_t *data = malloc(bytes + 1);
	struct ckpt_provider p;

	for (uint64_t i = 0; i < bytes; i++)
		data[i] = (uint8_t)(((uint32_t)(i / 16) * 2654435761u +
				     number * 97u * 16777216u) >> 24);
	number++;
	ok(ckpt_provider_bytes(data, bytes, &p, &err));
	free(data);
	return p;
}

static void tensor(struct ckpt_save *s, uint32_t item, const char *name,
		   size_t name_len, enum ckpt_dtype dtype, uint64_t bytes,
		   uint32_t ndim, uint64_t a, uint64_t b)
{
	struct ckpt_tensor_desc d = {
		.size = sizeof(d), .name = name, .name_len = name_len,
		.dtype = dtype, .shape = { .ndim = ndim, .dim = { a, b } },
	};
	struct ckpt_provider p = pattern(bytes);

	ok(ckpt_save_tensor(s, item, &d, &p, &err));
}

/* Two row shards that cut tiles, and one in columns: fragments. */
static void sharded(struct ckpt_save *s, uint32_t item)
{
	struct ckpt_box boxes[3] = {
		{ 2, { 0, 0 }, { 101, 700 } },
		{ 2, { 101, 0 }, { 499, 333 } },
		{ 2, { 101, 333 }, { 499, 367 } },
	};
	struct ckpt_tensor_desc d = {
		.size = sizeof(d), .name = "sharded", .name_len = 7,
		.dtype = CKPT_BF16, .shape = { .ndim = 2, .dim = { 600, 700 } },
		.boxes = boxes, .box_count = 3,
	};
	struct ckpt_provider p = pattern(600 * 700 * 2);

	ok(ckpt_save_tensor(s, item, &d, &p, &err));
}

static void save(struct ckpt_store *store, const char *name,
		 enum ckpt_codec codec)
{
	struct ckpt_writer_opts wo = { .size = sizeof(wo), .codec = codec };
	struct ckpt_save_desc sd = { .size = sizeof(sd), .name = name,
				     .metadata = "{\"who\": \"golden\"}" };
	struct ckpt_item_desc model = { .size = sizeof(model),
					.name = "model",
					.kind = CKPT_ITEM_TENSORS };
	struct ckpt_item_desc files = { .size = sizeof(files),
					.name = "dataloader",
					.kind = CKPT_ITEM_FILES };
	struct ckpt_tensor_desc tied = {
		.size = sizeof(tied), .name = "tied", .name_len = 4,
		.dtype = CKPT_F32, .shape = { .ndim = 1, .dim = { 1000 } },
		.alias_of = "vector", .alias_of_len = 6,
	};
	struct ckpt_provider p;
	struct ckpt_writer *w;
	struct ckpt_save *s;
	uint32_t m, f;

	number = 0;
	ok(ckpt_writer_open(store, &wo, &w, &err));
	ok(ckpt_save_begin(w, &sd, &s, &err));
	ok(ckpt_save_item(s, &model, &m, &err));
	ok(ckpt_save_item(s, &files, &f, &err));
	tensor(s, m, "scalar", 6, CKPT_F64, 8, 0, 0, 0);
	tensor(s, m, "vector", 6, CKPT_F32, 4000, 1, 1000, 0);
	tensor(s, m, "whole", 5, CKPT_BF16, 400 * 500 * 2, 2, 400, 500);
	sharded(s, m);
	tensor(s, m, "empty", 5, CKPT_I64, 0, 2, 0, 3);
	tensor(s, m, "f4.rows", 7, CKPT_F4, 12, 2, 4, 6);
	tensor(s, m, "f6", 2, CKPT_F6_E2M3, 9, 1, 12, 0);
	tensor(s, m, "nul\0name", 8, CKPT_U8, 5, 1, 5, 0);
	ok(ckpt_save_tensor(s, m, &tied, NULL, &err));
	p = pattern(1500000);
	ok(ckpt_save_file(s, f, "state/shuffle.bin", "", 1500000, &p, &err));
	ok(ckpt_save_start(s, &err));
	ok(ckpt_save_wait(s, CKPT_DURABLE, &err));
	ckpt_save_free(s);
	ckpt_writer_close(w);
}

int main(int argc, char **argv)
{
	struct ckpt_store *store;

	if (argc != 2)
		return 2;
	ok(ckpt_store_init(argv[1], &err));
	ok(ckpt_store_open(argv[1], NULL, &store, &err));
	save(store, "zstd/1", CKPT_CODEC_ZSTD);
	save(store, "again/2", CKPT_CODEC_RAW);
	ckpt_store_close(store);
	return 0;
}
