/* SPDX-License-Identifier: Apache-2.0 */
/*
 * save_tensor.c - a training loop of three steps that saves its one tensor.
 *
 *	cc save_tensor.c $(pkg-config --cflags --libs ckpt) -o save_tensor
 *	ckptfs init STORE; ./save_tensor STORE
 */
#include <stdio.h>

#include <ckpt/ckpt.h>
#include <ckpt/writer.h>

static float weight[64][32];

static int save(struct ckpt_writer *writer, uint64_t step,
		struct ckpt_err *err)
{
	char name[32];
	struct ckpt_save_desc what = { .size = sizeof(what), .name = name };
	struct ckpt_item_desc model = { .size = sizeof(model),
					.name = "model",
					.kind = CKPT_ITEM_TENSORS };
	struct ckpt_tensor_desc w = { .size = sizeof(w), .name = "weight",
				      .dtype = CKPT_F32,
				      .shape = { 2, { 64, 32 } } };
	struct ckpt_provider bytes;
	struct ckpt_save *save = NULL;
	uint32_t item;

	snprintf(name, sizeof(name), "demo/%llu", (unsigned long long)step);
	int rc = ckpt_save_begin(writer, &what, &save, err);

	if (rc == 0)
		rc = ckpt_save_item(save, &model, &item, err);
	if (rc == 0)
		rc = ckpt_provider_host(weight, sizeof(weight), &bytes, err);
	if (rc == 0)
		rc = ckpt_save_tensor(save, item, &w, &bytes, err);
	if (rc == 0)
		rc = ckpt_save_start(save, err);
	/* forward and backward may run here: they do not change the weight */
	if (rc == 0)
		rc = ckpt_save_wait(save, CKPT_CAPTURED, err);
	/* now it may be updated */
	if (rc == 0)
		rc = ckpt_save_wait(save, CKPT_DURABLE, err);
	ckpt_save_free(save);
	return rc;
}

int main(int argc, char **argv)
{
	struct ckpt_store *store = NULL;
	struct ckpt_writer *writer = NULL;
	struct ckpt_err err = { 0 };
	int rc;

	if (argc != 2) {
		fprintf(stderr, "usage: save_tensor STORE\n");
		return 2;
	}
	rc = ckpt_store_open(argv[1], NULL, &store, &err);
	if (rc == 0)
		rc = ckpt_writer_open(store, NULL, &writer, &err);
	for (uint64_t step = 1; rc == 0 && step <= 3; step++) {
		for (int i = 0; i < 64 * 32; i++)
			weight[i / 32][i % 32] += (float)step;
		rc = save(writer, step, &err);
	}
	if (rc < 0)
		fprintf(stderr, "%s\n", err.message);
	ckpt_writer_close(writer);
	ckpt_store_close(store);
	return rc < 0;
}
