/* SPDX-License-Identifier: Apache-2.0 */
/*
 * planes.c - cells of numbers as byte planes, each coded by itself.
 *
 * Exponents of weights and moments take about 2.6 of their 8 bits, the rest is
 * noise: coded apart, the one shrinks and the other costs a copy. There are no
 * matches to be found in either, so exponents get Huffman codes only. A sample
 * of the cell says what to do with each plane before anything is cut, so that
 * planes which stay as they are go straight to where they are stored. FORMAT.md
 * says what the stored bytes are; the offsets below are its tables.
 *
 * Invariants: never more than the raw length is written; every length of stored
 * bytes is held against the rules before use (S10). No allocation.
 */
#include "chunk/planes.h"

#include <math.h>
#include <string.h>

#include "base/bytes.h"

/* 0 width, 1 turned, 2 reserved; then a u32 for each plane: its stored length,
 * in the highest byte its mode */
enum mode { MODE_RAW = 0, MODE_ZSTD = 1, MODE_CONSTANT = 2 };

#define RUN 64u           /* neighbours of a sample */
#define ELEMENTS_MIN 64u  /* fewer are zstd's */

static uint32_t head_bytes(uint32_t width)
{
	return 4 + 4 * width;
}

struct ckc_plan ckc_plan_of(enum ckpt_dtype dtype)
{
	switch (dtype) {
	case CKPT_BF16:
		return (struct ckc_plan){ 2, true, false };
	case CKPT_F16: /* sign, exponent and two bits more fill a byte */
		return (struct ckc_plan){ 2, false, false };
	case CKPT_F32:
	case CKPT_C64:
		return (struct ckc_plan){ 4, true, false };
	case CKPT_F64:
	case CKPT_C128:
		return (struct ckc_plan){ 8, true, false };
	case CKPT_F8_E5M2:
	case CKPT_F8_E4M3:
	case CKPT_F8_E5M2FNUZ:
	case CKPT_F8_E4M3FNUZ:
	case CKPT_F8_E8M0:
		return (struct ckc_plan){ 1, false, false };
	case CKPT_U64:
	case CKPT_I64:
		return (struct ckc_plan){ 8, false, true };
	default:
		return (struct ckc_plan){ 0, false, false };
	}
}

bool ckc_plan_fits(const struct ckc_plan *plan, size_t len)
{
	return plan->width > 0 && len % plan->width == 0 &&
	       len / plan->width >= ELEMENTS_MIN;
}

/* ---- what to do with a plane ---- */

enum how { KEEP, HUFFMAN, MATCHES, SAME };

void ckc_planes_init(struct ckc_planes *p)
{
	p->bits[0] = 0;
	for (uint32_t i = 1; i <= CKC_PLANES_SAMPLE; i++)
		p->bits[i] = (float)(i * log2(i));
}

static enum how look(struct ckc_planes *p, const uint8_t *sample, size_t n,
		     bool integer)
{
	uint32_t most = 0;
	float sum = 0;

	memset(p->seen, 0, sizeof(p->seen));
	for (size_t i = 0; i < n; i++)
		p->seen[sample[i]]++;
	for (size_t i = 0; i < 256; i++) {
		sum += p->bits[p->seen[i]];
		most = p->seen[i] > most ? p->seen[i] : most;
	}
	float entropy = (p->bits[n] - sum) / (float)n;

	if (most == n)
		return SAME; /* as far as it was looked at */
	/* Huffman needs a bit for what is hardly one */
	if (integer || (float)most > 0.7f * (float)n)
		return MATCHES;
	return entropy > 7.6f ? KEEP : HUFFMAN;
}

/* Runs of elements from all over the cell, then their planes. False: nothing
 * but KEEP. */
static bool look_at_all(struct ckc_planes *p, const struct ckc_plan *plan,
			const uint8_t *raw, size_t n, enum how *out)
{
	size_t runs = CKC_PLANES_SAMPLE / RUN, have = n;
	uint32_t width = plan->width;
	const uint8_t *from = raw;
	uint8_t *planes[CKT_PLANES_MAX];
	bool some = false;

	if (n > CKC_PLANES_SAMPLE) {
		have = CKC_PLANES_SAMPLE;
		from = p->sample[0];
		for (size_t i = 0; i < runs; i++)
			memcpy(p->sample[0] + i * RUN * width,
			       raw + (n - RUN) * i / (runs - 1) * width,
			       RUN * width);
	}
	for (uint32_t k = 0; k < width; k++)
		planes[k] = p->sample[1] + k * have;
	if (width > 1)
		ckt_planes_split(from, have, width, plan->turned, planes);
	for (uint32_t k = 0; k < width; k++) {
		out[k] = look(p, width > 1 ? planes[k] : from, have,
			      plan->integer);
		some = some || out[k] != KEEP;
	}
	return some;
}

/* ---- encoding ---- */

/* Stored bytes being made: @at of them are in @dst, which has @space; more
 * than @room are not wanted. */
struct output {
	uint8_t *dst;
	size_t at, room, space;
};

/* Stored bytes of plane @k behind what is there. False: not within the room. */
static bool put_plane(struct output *o, struct ckc_codec *c,
		      struct ckc_planes *p, uint32_t k, enum how how,
		      const uint8_t *plane, size_t n)
{
	uint8_t *to = o->dst + o->at;
	enum mode mode = MODE_ZSTD;
	size_t got = 0;

	if (o->at >= o->room)
		return false;
	size_t room = o->room - o->at;

	if (how == SAME && memcmp(plane, plane + 1, n - 1) == 0) {
		*to = *plane;
		mode = MODE_CONSTANT;
		got = 1;
	} else if (how == HUFFMAN) {
		got = ckc_huffman_encode(&p->huffman, plane, n, to,
					 o->space - o->at);
	} else if (how != KEEP) {
		got = ckc_zstd_encode(c, plane, n, to, room);
	}
	/* a saving of less than that is not worth decoding */
	if (got == 0 || got >= n - n / 64 || got > room) {
		if (n > room)
			return false;
		if (plane != to)
			memcpy(to, plane, n);
		mode = MODE_RAW;
		got = n;
	}
	ckb_put_u32(o->dst + 4 + 4 * (size_t)k,
		    (uint32_t)mode << 24 | (uint32_t)got);
	o->at += got;
	return true;
}

size_t ckc_planes_encode(struct ckc_codec *c, struct ckc_planes *p,
			 const struct ckc_plan *plan, const uint8_t *raw,
			 size_t len, uint8_t *dst, size_t room)
{
	uint32_t width = plan->width;
	size_t n = len / width;
	struct output o = { dst, head_bytes(width), room, len };
	enum how how[CKT_PLANES_MAX];
	uint8_t *planes[CKT_PLANES_MAX] = { NULL };
	bool placed = true;

	CKB_REQUIRE(ckc_plan_fits(plan, len) && room < len);
	if (!look_at_all(p, plan, raw, n, how))
		return 0;
	/* planes that are kept, up to the first that is not, have their place;
	 * one is not kept, and the header is no longer than that one */
	for (uint32_t k = 0; k < width; k++) {
		placed = placed && how[k] == KEEP;
		planes[k] = placed ? dst + o.at + k * n : p->cell + k * n;
	}
	if (width > 1)
		ckt_planes_split(raw, n, width, plan->turned, planes);
	memset(dst, 0, 4);
	dst[0] = (uint8_t)width;
	dst[1] = plan->turned;
	for (uint32_t k = 0; k < width; k++)
		if (!put_plane(&o, c, p, k, how[k],
			       width > 1 ? planes[k] : raw, n))
			return 0;
	return o.at;
}

/* ---- decoding ---- */

static int head_check(const uint8_t *stored, size_t len, size_t raw_len,
		      struct ckpt_err *err)
{
	uint32_t width = len > 0 ? stored[0] : 0;

	if (width != 1 && width != 2 && width != 4 && width != 8)
		return ckb_err(err, CKPT_ECORRUPT, "planes of elements of %u "
			       "bytes cannot be", width);
	if (len < head_bytes(width) || raw_len == 0 || raw_len % width != 0 ||
	    stored[1] > (width > 1) || stored[2] != 0 || stored[3] != 0)
		return ckb_err(err, CKPT_ECORRUPT, "the header of its planes "
			       "cannot be");
	return 0;
}

/* Plane of @n bytes from @len stored ones: *@out is where it is, either in the
 * stored bytes or in @to. */
static int get_plane(struct ckc_decoder *d, uint32_t mode,
		     const uint8_t *stored, size_t len, uint8_t *to, size_t n,
		     const uint8_t **out, struct ckpt_err *err)
{
	*out = to;
	switch (mode) {
	case MODE_RAW:
		*out = stored;
		return len == n ? 0 : ckb_err(err, CKPT_ECORRUPT, "raw, it "
					      "has %zu bytes, not %zu", len,
					      n);
	case MODE_ZSTD:
		return ckc_zstd_decode(d, stored, len, to, n, err);
	case MODE_CONSTANT:
		if (len != 1)
			break;
		memset(to, *stored, n);
		return 0;
	}
	return ckb_err(err, CKPT_ECORRUPT, "mode %u with %zu bytes cannot be",
		       mode, len);
}

int ckc_planes_decode(struct ckc_decoder *d, const uint8_t *stored,
		      size_t len, uint8_t *dst, size_t raw_len,
		      struct ckpt_err *err)
{
	const uint8_t *planes[CKT_PLANES_MAX];
	int rc = head_check(stored, len, raw_len, err);

	if (rc < 0)
		return rc;
	uint32_t width = stored[0];
	size_t n = raw_len / width, at = head_bytes(width);
	uint8_t *to = width > 1 ? ckc_decoder_scratch(d) : dst;

	for (uint32_t k = 0; k < width; k++) {
		uint32_t entry = ckb_get_u32(stored + 4 + 4 * (size_t)k);
		size_t here = entry & 0xffffff;

		if (here > len - at)
			return ckb_err(err, CKPT_ECORRUPT, "plane %u is cut "
				       "short", k);
		rc = get_plane(d, entry >> 24, stored + at, here, to + k * n, n,
			       &planes[k], err);
		if (rc < 0)
			return ckb_err_prefix(err, rc, "plane %u", k);
		at += here;
	}
	if (at != len)
		return ckb_err(err, CKPT_ECORRUPT, "%zu bytes follow its "
			       "planes", len - at);
	if (width > 1)
		ckt_planes_join(planes, n, width, stored[1], dst);
	else if (planes[0] != dst)
		memcpy(dst, planes[0], n);
	return 0;
}
