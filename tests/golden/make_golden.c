/* SPDX-License-Identifier: Apache-2.0 */
/*
 * make_golden.c - write the golden store of this version: make_golden STORE.
 *
 * Run once when the format gains something, never to "refresh" an old store.
 * Byte i of tensor number n is (i / 16 * 2654435761 + n * 97) >> 24 mod 256, in
 * 32-bit arithmetic on i / 16, so test_golden.py can say what must be there.
 *
 * store-1: zstd/1 and again/2. store-2 has planes/3 too: noise(), by planes.
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

/* 64 bits for (i, n): SplitMix64's mixing of i + n * 2^32. */
static uint64_t mixed(uint64_t i, uint64_t n)
{
	uint64_t z = (i + (n << 32)) * 0x9e3779b97f4a7c15u;

	z = (z ^ z >> 30) * 0xbf58476d1ce4e5b9u;
	z = (z ^ z >> 27) * 0x94d049bb133111ebu;
	return z ^ z >> 31;
}

/* Element i of tensor number n: low bits of mixed(i, n), an exponent of
 * @exponent_bits bits from half its range down, each half as frequent as the
 * one before, and a sign. */
static struct ckpt_provider noise(uint64_t count, uint32_t bits,
				  uint32_t exponent_bits)
{
	uint32_t mantissa = bits - 1 - exponent_bits, bytes = bits / 8;
	uint64_t middle = (1u << (exponent_bits - 1)) - 1;
	uint8_t *data = malloc(count * bytes);
	struct ckpt_provider p;

	for (uint64_t i = 0; i < count; i++) {
		uint64_t m = mixed(i, number), step = 0;

		while (step < middle && step < 64 && m >> (63 - step) & 1)
			step++;
		uint64_t v = (m & 1) << (bits - 1) |
			     (middle - step) << mantissa |
			     (m >> 1 & ((UINT64_C(1) << mantissa) - 1));

		for (uint32_t k = 0; k < bytes; k++)
			data[i * bytes + k] = (uint8_t)(v >> 8 * k);
	}
	number++;
	ok(ckpt_provider_bytes(data, count * bytes, &p, &err));
	free(data);
	return p;
}

/* Element i is @base + i * @step. */
static struct ckpt_provider ramp(uint64_t count, uint32_t bytes, uint64_t base,
				 uint64_t step)
{
	uint8_t *data = malloc(count * bytes);
	struct ckpt_provider p;

	for (uint64_t i = 0; i < count; i++)
		for (uint32_t k = 0; k < bytes; k++)
			data[i * bytes + k] =
				(uint8_t)((base + i * step) >> 8 * k);
	ok(ckpt_provider_bytes(data, count * bytes, &p, &err));
	free(data);
	return p;
}

static void vector(struct ckpt_save *s, const char *name,
		   enum ckpt_dtype dtype, uint64_t count,
		   struct ckpt_provider p)
{
	struct ckpt_tensor_desc d = {
		.size = sizeof(d), .name = name, .name_len = strlen(name),
		.dtype = dtype, .shape = { .ndim = 1, .dim = { count } },
	};

	ok(ckpt_save_tensor(s, 0, &d, &p, &err));
}

static void save_planes(struct ckpt_store *store)
{
	struct ckpt_writer_opts wo = { .size = sizeof(wo),
				       .codec = CKPT_CODEC_PLANES };
	struct ckpt_save_desc sd = { .size = sizeof(sd), .name = "planes/3" };
	struct ckpt_item_desc model = { .size = sizeof(model),
					.name = "model",
					.kind = CKPT_ITEM_TENSORS };
	struct ckpt_writer *w;
	struct ckpt_save *s;
	uint32_t m;

	number = 0;
	ok(ckpt_writer_open(store, &wo, &w, &err));
	ok(ckpt_save_begin(w, &sd, &s, &err));
	ok(ckpt_save_item(s, &model, &m, &err));
	vector(s, "bf16", CKPT_BF16, 140001, noise(140001, 16, 8));
	vector(s, "f32", CKPT_F32, 70001, noise(70001, 32, 8));
	vector(s, "f64", CKPT_F64, 3000, noise(3000, 64, 11));
	vector(s, "f16", CKPT_F16, 3000, noise(3000, 16, 5));
	vector(s, "f8", CKPT_F8_E4M3, 3000, noise(3000, 8, 4));
	vector(s, "i64", CKPT_I64, 3000, ramp(3000, 8, 1u << 20, 3));
	vector(s, "i32", CKPT_I32, 3000, ramp(3000, 4, 70000, 0x10000));
	vector(s, "zeros", CKPT_F32, 262144, ramp(262144, 4, 0, 0));
	vector(s, "ones", CKPT_BF16, 131073, ramp(131073, 2, 0x3f80, 0));
	vector(s, "one", CKPT_F64, 1, ramp(1, 8, 0x3ff0000000000000u, 0));
	vector(s, "short", CKPT_F32, 1, ramp(1, 4, 0x3f800000u, 0));
	ok(ckpt_save_start(s, &err));
	ok(ckpt_save_wait(s, CKPT_DURABLE, &err));
	ckpt_save_free(s);
	ckpt_writer_close(w);
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
	save_planes(store);
	ckpt_store_close(store);
	return 0;
}
