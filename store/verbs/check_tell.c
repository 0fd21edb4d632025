/* SPDX-License-Identifier: Apache-2.0 */
/*
 * check_tell.c - whose a bad record is, told.
 *
 * What is wrong with a pack's records is gathered and told when the pack is
 * done, checkpoint by checkpoint, so that each is opened once for its names.
 */
#include "verbs/check_impl.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/buf.h"

void cks_check_count(struct cks_check *k, int code, uint64_t n)
{
	if (code == CKPT_EPERM || code == CKPT_EVERSION)
		k->result->unread_count += n;
	else
		k->result->damage_count += n;
}

void cks_check_tell(struct cks_check *k, const struct ckpt_damage *d)
{
	cks_check_count(k, d->code, 1);
	if (k->opts->on_damage)
		k->opts->on_damage(k->opts->ctx, d);
}

bool cks_check_fatal(struct cks_check *k, int rc, const struct ckpt_err *why)
{
	if (rc != CKPT_ENOMEM && rc != CKPT_ECANCELED &&
	    !(rc < 0 && (why->sys_errno == EMFILE || why->sys_errno == ENFILE)))
		return false;
	if (k->err)
		*k->err = *why;
	return true;
}

/* ---- of one pack ---- */

int cks_check_note(struct cks_check *k, const struct cks_demand *d, size_t n,
		   int code, const char *what)
{
	if (!ckb_room(&k->whats, k->what_count, &k->what_cap,
		      sizeof(*k->whats)))
		return ckb_err_nomem(k->err);
	struct cks_what *w = &k->whats[k->what_count];

	*w = (struct cks_what){ code, strdup(what) };
	if (!w->text)
		return ckb_err_nomem(k->err);
	k->what_count++;
	for (size_t i = 0; i < n; i++) {
		if (!ckb_room(&k->findings, k->finding_count, &k->finding_cap,
			  sizeof(*k->findings)))
			return ckb_err_nomem(k->err);
		k->findings[k->finding_count++] = (struct cks_finding){
			&d[i], k->what_count - 1 };
	}
	return 0;
}

int cks_finding_order(const void *a, const void *b)
{
	const struct cks_demand *x = ((const struct cks_finding *)a)->demand;
	const struct cks_demand *y = ((const struct cks_finding *)b)->demand;

	if (x->ckpt != y->ckpt)
		return x->ckpt < y->ckpt ? -1 : 1;
	if (x->tensor != y->tensor)
		return x->tensor < y->tensor ? -1 : 1;
	return (x->entry > y->entry) - (x->entry < y->entry);
}

/* Findings [@f, @f + @n) are of one tensor of @c; @c may be NULL when its
 * manifest is gone meanwhile. */
static void tell_owner(struct cks_check *k, struct ckpt_checkpoint *c,
		       const struct cks_finding *f, size_t n, const char *pack)
{
	const struct cks_demand *d = f->demand;
	struct ckpt_damage out = { .checkpoint = k->names[d->ckpt],
				   .pack = pack };
	struct cks_chunks *chunks = NULL;
	const struct ckpt_tensor_info *t = c ? ckpt_tensor_at(c, d->tensor)
					     : NULL;
	struct ckpt_box box;

	if (t) {
		out.item = ckpt_item_at(c, t->item)->name;
		out.tensor = t->name;
		out.tensor_len = t->name_len;
		if (cks_chunks_load(c, t, &chunks, NULL) < 0)
			chunks = NULL;
	}
	for (size_t i = 0; i < n; i++) {
		d = f[i].demand;
		out.box = NULL;
		if (chunks && d->entry < chunks->count) {
			cks_chunk_box(chunks, &chunks->entries[d->entry],
				      &box);
			cks_box_logical(chunks, t, &box);
			out.box = &box;
		}
		out.pack_off = d->off;
		out.code = k->whats[f[i].what].code;
		out.what = k->whats[f[i].what].text;
		cks_check_tell(k, &out);
	}
	cks_chunks_free(chunks);
}

void cks_check_tell_noted(struct cks_check *k, const char *pack)
{
	struct ckpt_checkpoint *c = NULL;
	const struct cks_finding *f = k->findings;
	size_t n = k->finding_count;

	if (n > 0)
		qsort(k->findings, n, sizeof(*k->findings), cks_finding_order);
	for (size_t i = 0, end; i < n; i = end) {
		const struct cks_demand *d = f[i].demand;

		if (i == 0 || f[i - 1].demand->ckpt != d->ckpt) {
			ckpt_checkpoint_close(c);
			if (ckpt_checkpoint_open(k->store, k->names[d->ckpt],
						 &c, NULL) < 0)
				c = NULL;
		}
		for (end = i + 1; end < n && f[end].demand->ckpt == d->ckpt &&
				  f[end].demand->tensor == d->tensor;)
			end++;
		tell_owner(k, c, f + i, end - i, pack);
	}
	ckpt_checkpoint_close(c);
	for (size_t i = 0; i < k->what_count; i++)
		free(k->whats[i].text);
	k->finding_count = k->what_count = 0;
}
