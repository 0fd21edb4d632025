/* SPDX-License-Identifier: Apache-2.0 */
/*
 * planes.c - elements to byte planes and back, on any processor.
 *
 * The loops are written once and become one function for each width, so that
 * shifts are by constants. Where the processor has wider means, planes_wide.c
 * or planes_vbmi.c does all but the last few elements. Pure; refuses nothing
 * but other widths.
 */
#include "tensor/planes.h"

#include "base/bytes.h"
#include "base/check.h"

static inline uint64_t get(const uint8_t *p, uint32_t width)
{
	return width == 2 ? ckb_get_u16(p)
	     : width == 4 ? ckb_get_u32(p) : ckb_get_u64(p);
}

static inline void put(uint8_t *p, uint32_t width, uint64_t v)
{
	if (width == 2)
		ckb_put_u16(p, (uint16_t)v);
	else if (width == 4)
		ckb_put_u32(p, (uint32_t)v);
	else
		ckb_put_u64(p, v);
}

/* What leaves @v at the top lies above its width: bytes are cut there. */
static inline __attribute__((always_inline))
void split(const uint8_t *from, size_t first, size_t n, uint32_t width,
	   bool turned, uint8_t *const *planes)
{
	uint32_t top = 8 * width - 1;

	for (size_t i = first; i < n; i++) {
		uint64_t v = get(from + i * width, width);

		if (turned)
			v = v << 1 | v >> top;
		for (uint32_t k = 0; k < width; k++)
			planes[k][i] = (uint8_t)(v >> 8 * k);
	}
}

static inline __attribute__((always_inline))
void join(const uint8_t *const *planes, size_t first, size_t n,
	  uint32_t width, bool turned, uint8_t *to)
{
	uint32_t top = 8 * width - 1;

	for (size_t i = first; i < n; i++) {
		uint64_t v = 0;

		for (uint32_t k = 0; k < width; k++)
			v |= (uint64_t)planes[k][i] << 8 * k;
		if (turned)
			v = v >> 1 | v << top;
		put(to + i * width, width, v);
	}
}

void ckt_planes_split_plain(const uint8_t *from, size_t first, size_t n,
			    uint32_t width, bool turned,
			    uint8_t *const *planes)
{
	if (width == 2)
		split(from, first, n, 2, turned, planes);
	else if (width == 4)
		split(from, first, n, 4, turned, planes);
	else
		split(from, first, n, 8, turned, planes);
}

void ckt_planes_join_plain(const uint8_t *const *planes, size_t first,
			   size_t n, uint32_t width, bool turned, uint8_t *to)
{
	if (width == 2)
		join(planes, first, n, 2, turned, to);
	else if (width == 4)
		join(planes, first, n, 4, turned, to);
	else
		join(planes, first, n, 8, turned, to);
}

static void require_width(uint32_t width)
{
	CKB_REQUIRE(width == 2 || width == 4 || width == 8);
}

void ckt_planes_split(const uint8_t *from, size_t n, uint32_t width,
		      bool turned, uint8_t *const *planes)
{
	size_t done = 0;

	require_width(width);
#ifdef __x86_64__
	if (width < 8 && ckt_planes_has_vbmi())
		done = ckt_planes_split_vbmi(from, n, width, turned, planes);
	else if (ckt_planes_has_wide())
		done = ckt_planes_split_wide(from, n, width, turned, planes);
#endif
	ckt_planes_split_plain(from, done, n, width, turned, planes);
}

void ckt_planes_join(const uint8_t *const *planes, size_t n, uint32_t width,
		     bool turned, uint8_t *to)
{
	size_t done = 0;

	require_width(width);
#ifdef __x86_64__
	if (width < 8 && ckt_planes_has_vbmi())
		done = ckt_planes_join_vbmi(planes, n, width, turned, to);
	else if (ckt_planes_has_wide())
		done = ckt_planes_join_wide(planes, n, width, turned, to);
#endif
	ckt_planes_join_plain(planes, done, n, width, turned, to);
}
