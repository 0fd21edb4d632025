/* SPDX-License-Identifier: Apache-2.0 */
/* npz_none.c - in place of npz.c in a build without libzip. Says so. */
#include "import.h"

int ckw_import_npz(struct ckw_import *im, struct ckw_input *in,
		   struct ckpt_err *err)
{
	(void)im;
	return ckb_err(err, CKPT_EINVAL, "'%s' is a zip archive, perhaps an "
		       ".npz, and this ckptfs was built without libzip; build "
		       "it with libzip, or save the arrays as .npy files",
		       in->path);
}
