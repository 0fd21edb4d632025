/* SPDX-License-Identifier: Apache-2.0 */
/*
 * readme.c - README.txt at the top of the mount: what this is, for somebody
 * who finds the folder and knows nothing of ckptfs. The same in every store,
 * so nothing can fail. No state.
 */
#include "tree/internal.h"

const char *ckv_readme(size_t *out_len)
{
	static const char text[] =
		"This is a store of checkpoints, shown read-only by ckptfs.\n"
		"\n"
		"Folders are runs; in a run each checkpoint is a folder:\n"
		"  checkpoint.json   facts, items, sizes\n"
		"  ITEM/a/b/c.npy    tensor a.b.c, for NumPy: np.load(path)\n"
		"  ITEM/a/b/c.txt    the same for people: shape, statistics\n"
		"latest is the checkpoint of the highest step, newest that\n"
		"saved last. Every byte read was verified; a damaged one is\n"
		"an I/O error. More: man ckptfs\n";

	*out_len = sizeof(text) - 1;
	return text;
}
