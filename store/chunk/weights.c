/* SPDX-License-Identifier: Apache-2.0 */
/*
 * weights.c - the table of code lengths that begins zstd's literals.
 *
 * RFC 8878, 4.2.1: a code's weight is 0 where there is none, else one more
 * than the longest code has bits more than it. All weights but the last are
 * stored, in half a byte each where they are 128 at most, or by FSE: a table of
 * 64 states whose shares are stored first, and two states that take turns, from
 * the last weight to the first. The shorter form is taken. Pure.
 */
#include "chunk/weights.h"

#include <stdbool.h>
#include <string.h>

#include "base/bytes.h"
#include "base/check.h"

#define VALUES 12u          /* weights are 0 to 11 */
#define LOG 6u              /* of the states, the most that is allowed */
#define STATES (1u << LOG)
#define STEP 43u            /* (STATES >> 1) + (STATES >> 3) + 3 */
#define DIRECT_MAX 128u     /* weights in half a byte each */

/* ---- bits, the first one lowest ---- */

struct bits {
	uint64_t acc;
	uint32_t count;
	uint8_t *at;
};

static void put_bits(struct bits *b, uint32_t v, uint32_t count)
{
	b->acc |= (uint64_t)v << b->count;
	for (b->count += count; b->count >= 8; b->count -= 8) {
		*b->at++ = (uint8_t)b->acc;
		b->acc >>= 8;
	}
}

static void end_bits(struct bits *b)
{
	if (b->count > 0)
		*b->at++ = (uint8_t)b->acc;
}

/* ---- shares of the states ---- */

/* In proportion, but at least one for what comes, and STATES in all. */
static bool make_shares(const uint8_t *weights, uint32_t n, uint32_t *shares)
{
	uint32_t seen[VALUES] = { 0 }, most = 0, sum = 0;

	for (uint32_t i = 0; i < n; i++)
		seen[weights[i]]++;
	for (uint32_t v = 0; v < VALUES; v++) {
		shares[v] = (2 * seen[v] * STATES + n) / (2 * n);
		shares[v] += shares[v] == 0 && seen[v] > 0;
		sum += shares[v];
		most = shares[v] > shares[most] ? v : most;
	}
	if (seen[most] == n || shares[most] + STATES <= sum)
		return false; /* a single value has no FSE */
	shares[most] += STATES - sum;
	return true;
}

static void put_shares(struct bits *b, const uint32_t *shares)
{
	uint32_t left = STATES + 1, threshold = STATES, bits = LOG + 1, v = 0;

	put_bits(b, LOG - 5, 4);
	while (left > 1) {
		uint32_t share = shares[v++], low = 2 * threshold - 1 - left;

		left -= share;
		uint32_t code = share + 1;

		if (code >= threshold)
			code += low;
		put_bits(b, code, bits - (code < low));
		while (left < threshold) {
			bits--;
			threshold >>= 1;
		}
		if (share > 0)
			continue;
		uint32_t zeros = 0; /* that follow the first one */

		while (shares[v] == 0) {
			zeros++;
			v++;
		}
		for (; zeros >= 3; zeros -= 3)
			put_bits(b, 3, 2);
		put_bits(b, zeros, 2);
	}
}

/* ---- states ---- */

struct fse {
	uint8_t next[STATES];              /* by value, then rank: a state */
	uint32_t first[VALUES], share[VALUES];
};

static void make_states(struct fse *f, const uint32_t *shares)
{
	uint8_t value[STATES];
	uint32_t at = 0, sum = 0, rank[VALUES];

	for (uint32_t v = 0; v < VALUES; v++) {
		for (uint32_t i = 0; i < shares[v]; i++) {
			value[at] = (uint8_t)v;
			at = (at + STEP) % STATES;
		}
		f->first[v] = rank[v] = sum;
		f->share[v] = shares[v];
		sum += shares[v];
	}
	for (uint32_t s = 0; s < STATES; s++)
		f->next[rank[value[s]]++] = (uint8_t)s;
}

/* States count from STATES on here. To @v from @state: low bits are written
 * until what is left is one of @v's ranks, from its share to twice that. */
static uint32_t step(struct bits *b, const struct fse *f, uint32_t v,
		     uint32_t state)
{
	uint32_t count = 0;

	while (state >> count >= 2 * f->share[v])
		count++;
	put_bits(b, state & ((1u << count) - 1), count);
	return STATES + f->next[f->first[v] + (state >> count) - f->share[v]];
}

/* The first state: any of @v's would do, as no state precedes it. */
static uint32_t start(const struct fse *f, uint32_t v)
{
	return STATES + f->next[f->first[v]];
}

static size_t put_fse(const uint8_t *weights, uint32_t n, uint8_t *dst)
{
	struct bits b = { .at = dst };
	uint32_t shares[VALUES], state[2];
	struct fse f;

	if (n < 3 || !make_shares(weights, n, shares))
		return 0;
	put_shares(&b, shares);
	end_bits(&b);
	b = (struct bits){ .at = b.at };
	make_states(&f, shares);
	state[(n - 1) % 2] = start(&f, weights[n - 1]);
	state[(n - 2) % 2] = start(&f, weights[n - 2]);
	for (uint32_t i = n - 2; i-- > 0;)
		state[i % 2] = step(&b, &f, weights[i], state[i % 2]);
	put_bits(&b, state[1] - STATES, LOG);
	put_bits(&b, state[0] - STATES, LOG);
	put_bits(&b, 1, 1); /* where it ends */
	end_bits(&b);
	return (size_t)(b.at - dst);
}

/* ---- the table ---- */

size_t ckc_weights_encode(const uint8_t *bits, uint32_t longest, uint32_t last,
			  uint8_t *dst)
{
	uint8_t weights[256] = { 0 }, coded[512];

	CKB_REQUIRE(last < 256 && longest < VALUES);
	for (uint32_t i = 0; i < last; i++)
		weights[i] = (uint8_t)(bits[i] ? longest + 1 - bits[i] : 0);
	size_t n = put_fse(weights, last, coded);

	if (n > 0 && n < 128 && (last > DIRECT_MAX || n < (last + 1) / 2)) {
		dst[0] = (uint8_t)n;
		memcpy(dst + 1, coded, n);
		return 1 + n;
	}
	if (last == 0 || last > DIRECT_MAX)
		return 0;
	dst[0] = (uint8_t)(127 + last);
	for (uint32_t i = 0; i < last; i += 2)
		dst[1 + i / 2] = (uint8_t)(weights[i] << 4 | weights[i + 1]);
	return 1 + (last + 1) / 2;
}
