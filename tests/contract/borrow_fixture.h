/* SPDX-License-Identifier: Apache-2.0 */
/* borrow_fixture.h - memory to lend, pages of its own. */
#ifndef BORROW_FIXTURE_H
#define BORROW_FIXTURE_H

#include <sys/mman.h>

#include "save_fixture.h"

#define PAGE 4096u

struct memory {
	uint8_t *data;
	size_t len, mapped;
};

FIX struct memory memory_new(size_t len, uint32_t seed)
{
	struct memory m = { .len = len, .mapped = (len + PAGE - 1) / PAGE *
						  PAGE };
	uint8_t *bytes = fix_bytes(len, seed);

	m.data = mmap(NULL, m.mapped, PROT_READ | PROT_WRITE,
		      MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	assert_true(m.data != MAP_FAILED);
	memcpy(m.data, bytes, len);
	free(bytes);
	return m;
}

FIX void memory_free(struct memory *m)
{
	munmap(m->data, m->mapped);
}

#endif
