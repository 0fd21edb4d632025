/* SPDX-License-Identifier: Apache-2.0 */
/*
 * device_fixture.h - tensors of every layout, described from the host or from a
 * device, and checkpoints compared by their roots.
 */
#ifndef DEVICE_FIXTURE_H
#define DEVICE_FIXTURE_H

#include "save_fixture.h"

/* ---- tensors of every layout ---- */

struct layout {
	const char *name;
	enum ckpt_dtype dtype;
	struct ckpt_shape shape;
	int64_t stride[4];  /* in elements */
	int64_t first;      /* element [0, ..., 0] */
	size_t elements;    /* of the memory */
};

static const struct layout layouts[] = {
	{ "dense", CKPT_F32, { 2, { 1000, 1300 } }, { 1300, 1 }, 0, 1300000 },
	{ "scalar", CKPT_F64, { 0, { 0 } }, { 0 }, 2, 3 },
	{ "empty", CKPT_F32, { 2, { 0, 5 } }, { 5, 1 }, 0, 1 },
	{ "transposed", CKPT_F32, { 2, { 700, 900 } }, { 1, 700 }, 0,
	  630000 },
	{ "channels last", CKPT_BF16, { 4, { 4, 64, 30, 50 } },
	  { 96000, 1, 3200, 64 }, 0, 384000 },
	{ "upside down", CKPT_U8, { 2, { 1000, 2000 } }, { -2000, 1 },
	  1998000, 2000000 },
	{ "broadcast", CKPT_F32, { 2, { 1000, 500 } }, { 0, 1 }, 0, 500 },
	{ "padded rows", CKPT_F16, { 2, { 900, 1000 } }, { 1024, 1 }, 0,
	  921600 },
	{ "every other", CKPT_C64, { 2, { 300, 400 } }, { 800, 2 }, 1,
	  240000 },
	{ "windows", CKPT_F32, { 2, { 5000, 16 } }, { 1, 1 }, 0, 5015 },
	{ "wide elements", CKPT_C128, { 2, { 300, 400 } }, { 1, 300 }, 0,
	  120000 },
};
enum { LAYOUTS = CKB_ARRAY_LEN(layouts) };

FIX void byte_strides(const struct layout *l, int64_t *out)
{
	for (uint32_t d = 0; d < l->shape.ndim; d++)
		out[d] = l->stride[d] *
			 (int64_t)(ckpt_dtype_bits(l->dtype) / 8);
}

FIX const uint8_t *element_0(const struct layout *l, const uint8_t *memory)
{
	return memory + l->first * (int64_t)(ckpt_dtype_bits(l->dtype) / 8);
}

FIX void fill(uint8_t *memory[LAYOUTS])
{
	for (uint32_t i = 0; i < LAYOUTS; i++)
		memory[i] = fix_bytes(layouts[i].elements *
				      ckpt_dtype_bits(layouts[i].dtype) / 8,
				      i + 1);
}

FIX void drop(uint8_t *memory[LAYOUTS])
{
	for (uint32_t i = 0; i < LAYOUTS; i++)
		free(memory[i]);
}

FIX struct ckpt_provider provider(struct ckpt_memory *mem,
				     const struct layout *l,
				     const uint8_t *memory, void *stream)
{
	struct ckpt_provider p;
	struct ckpt_err err = { 0 };
	int64_t stride[4];

	byte_strides(l, stride);
	if (mem)
		assert_ok(ckpt_provider_device_strided(
			mem, element_0(l, memory), l->dtype, &l->shape,
			stride, stream, &p, &err));
	else
		assert_ok(ckpt_provider_strided(element_0(l, memory),
						l->dtype, &l->shape, stride,
						&p, &err));
	return p;
}

/* Describe all layouts, from @mem or from the host (NULL). */
FIX struct ckpt_save *describe(struct ckpt_writer *w, const char *name,
				  struct ckpt_memory *mem,
				  uint8_t *memory[LAYOUTS], void *stream)
{
	uint32_t item;
	struct ckpt_save *s = fix_begin(w, name, false, &item);

	for (uint32_t i = 0; i < LAYOUTS; i++) {
		struct ckpt_tensor_desc d = fix_desc(layouts[i].name,
						     layouts[i].dtype,
						     layouts[i].shape);
		struct ckpt_provider p = provider(mem, &layouts[i], memory[i],
						  stream);
		struct ckpt_err err = { 0 };

		assert_ok(ckpt_save_tensor(s, item, &d, &p, &err));
	}
	return s;
}

FIX void expect_same(struct ckpt_store *store, const char *a,
			const char *b)
{
	struct ckpt_checkpoint *ca = fix_opened(store, a);
	struct ckpt_checkpoint *cb = fix_opened(store, b);

	for (uint32_t i = 0; i < LAYOUTS; i++) {
		const struct ckpt_tensor_info *x =
			fix_find(ca, "model", layouts[i].name);
		const struct ckpt_tensor_info *y =
			fix_find(cb, "model", layouts[i].name);

		assert_int_equal(x->bytes, y->bytes);
		assert_int_equal(x->has_root, y->has_root);
		assert_true(x->has_root || x->bytes == 0);
		if (memcmp(x->root, y->root, CKPT_DIGEST_BYTES) != 0)
			fail_msg("'%s' has another root", layouts[i].name);
	}
	ckpt_checkpoint_close(ca);
	ckpt_checkpoint_close(cb);
}

#endif
