/* SPDX-License-Identifier: Apache-2.0 */
/*
 * read_tensor.c - one tensor's bytes to stdout.
 *
 *	cc read_tensor.c $(pkg-config --cflags --libs ckpt) -o read_tensor
 *	./read_tensor STORE CHECKPOINT ITEM TENSOR > bytes
 */
#include <stdio.h>
#include <stdlib.h>

#include <ckpt/ckpt.h>

static int run(char **arg, struct ckpt_err *err)
{
	struct ckpt_store *store = NULL;
	struct ckpt_checkpoint *ckpt = NULL;
	const struct ckpt_item_info *item;
	const struct ckpt_tensor_info *tensor = NULL;
	void *bytes = NULL;
	int rc = ckpt_store_open(arg[1], NULL, &store, err);

	if (rc == 0)
		rc = ckpt_checkpoint_open(store, arg[2], &ckpt, err);
	if (rc == 0 && (item = ckpt_item_find(ckpt, arg[3])) != NULL)
		tensor = ckpt_tensor_find(ckpt, item, arg[4], 0);
	if (tensor && (bytes = malloc(tensor->bytes + 1)) != NULL)
		rc = ckpt_read_bytes(ckpt, tensor, 0, tensor->bytes, bytes,
				     err);
	if (rc == 0 && bytes)
		fwrite(bytes, 1, tensor->bytes, stdout);
	else if (rc == 0)
		fprintf(stderr, "there is no '%s/%s', or too little memory\n",
			arg[3], arg[4]);
	else
		fprintf(stderr, "%s\n", err->message);
	rc = rc == 0 && bytes ? 0 : 1;
	free(bytes);
	ckpt_checkpoint_close(ckpt);
	ckpt_store_close(store);
	return rc;
}

int main(int argc, char **argv)
{
	struct ckpt_err err = { 0 };

	if (argc != 5) {
		fprintf(stderr, "usage: read_tensor STORE CHECKPOINT ITEM "
			"TENSOR\n");
		return 2;
	}
	return run(argv, &err);
}
