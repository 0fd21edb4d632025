/* SPDX-License-Identifier: Apache-2.0 */
/* module_empty.c - a library that is no module of memory. */
#include <ckpt/memory.h>

CKPT_API int empty_module_has_no_entry(void);

int empty_module_has_no_entry(void)
{
	return 0;
}
