/* SPDX-License-Identifier: Apache-2.0 */
/* verbs/check_impl.h - what the files of check share. */
#ifndef CKS_CHECK_IMPL_H
#define CKS_CHECK_IMPL_H

#include "verbs/checkpoint.h"
#include "verbs/store_impl.h"

/* One chunk that a tensor needs. */
struct cks_demand {
	uint8_t pack[CKPT_UUID_BYTES];
	uint64_t off, stored_len;
	uint32_t head_len, raw_len;
	uint16_t codec;
	uint8_t digest[CKPT_DIGEST_BYTES];
	uint32_t ckpt;          /* in check.names */
	uint32_t tensor;
	uint64_t entry;         /* in its chunk list */
};

/* A demand that is not met, and why: whats[what] of the pack at hand. */
struct cks_finding {
	const struct cks_demand *demand;
	size_t what;
};

struct cks_check {
	struct ckpt_store *store;
	const struct ckpt_check_opts *opts;
	struct ckpt_check_result *result;
	struct cks_demand *demands;
	size_t demand_count, demand_cap;
	char **names;
	size_t name_count, name_cap;
	/* of the pack at hand */
	struct ckf_trailer_entry *extents; /* its trailer, by offset */
	size_t extent_count, extent_cap;
	struct cks_finding *findings;
	size_t finding_count, finding_cap;
	struct cks_what {
		int code;
		char *text;
	} *whats;
	size_t what_count, what_cap;

	/* of the checkpoint at hand: layouts proved, by slot */
	struct cks_proved {
		const struct ckf_layout *layout;
		const struct ckpt_shape *shape;
		uint32_t bits;
	} proved[64];

	uint8_t *cell, *scratch; /* CKB_CELL_BYTES each */
	uint64_t done, total;    /* stored bytes, as known so far */
	struct ckpt_err *err;
};

/* ---- check_tell.c ---- */

void cks_check_tell(struct cks_check *k, const struct ckpt_damage *d);
/* Count @n findings that are told as one. */
void cks_check_count(struct cks_check *k, int code, uint64_t n);
/* Out of memory, cancelled, no descriptors: not damage, ends the check. */
bool cks_check_fatal(struct cks_check *k, int rc, const struct ckpt_err *why);
/* Keep @what for the demands [@d, @d + @n) of the pack at hand. */
CKB_MUST int cks_check_note(struct cks_check *k, const struct cks_demand *d,
			    size_t n, int code, const char *what);
/* The order in which findings are told: checkpoint, tensor, entry. */
int cks_finding_order(const void *a, const void *b);
/* Tell what was noted of the pack at hand, and forget it. */
void cks_check_tell_noted(struct cks_check *k, const char *pack);

/* ---- check_pack.c ---- */

/* By pack and offset; 0: the same claim on the same record. */
int cks_demand_order(const void *a, const void *b);
/* @d: the demands on this pack, in order; @whole: look at the rest too. */
CKB_MUST int cks_check_pack(struct cks_check *k, const uint8_t uuid[16],
			    const struct cks_demand *d, size_t n, bool whole);

#endif
