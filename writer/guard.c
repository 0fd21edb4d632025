/* SPDX-License-Identifier: Apache-2.0 */
/*
 * guard.c - borrowed pages are write-protected until they are captured
 * (CKPT_WRITER_PROTECT): who writes too early is stopped where it does.
 *
 * The writer has one list of guarded stretches, by address, disjoint, each with
 * the number of saves that hold it and what it was before. A new save splits
 * them at its edges, so that each is held whole; a save remembers which it
 * holds, by address too: one walk over the list guards, another lets go. What
 * was not writable is left as it is, and so are pages that only begin or end in
 * borrowed memory: others may be at work there.
 *
 * A stretch that cannot be made writable again, as the process has too many
 * mappings, stays in the list, held by no save, and is tried again.
 *
 * What serialises is passed over: it is released before CAPTURED, and then its
 * memory is the provider's again. Lock: the writer's guard_lock, taken inside a
 * save's lock or alone.
 */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>

#include "base/log.h"
#include "pipeline.h"

struct ckw_span {
	uintptr_t lo, hi;
};

struct ckw_guard {
	struct ckw_guard *next;
	uintptr_t lo, hi;
	int prot;                /* as it was */
	uint32_t saves;          /* 0: to be made writable yet */
	bool told;               /* a note was written of that */
};

struct map {
	uintptr_t lo, hi;
	int prot;
};

struct work {
	struct ckpt_save *save;
	struct map *maps;        /* of the process, by address */
	size_t count, cap;
	uintptr_t page;
	struct ckw_guard **at;   /* of the list: nothing before it matters */
};

/* ---- mappings ---- */

static int read_maps(struct work *w, struct ckpt_err *err)
{
	FILE *f = fopen("/proc/self/maps", "re");
	char *line = NULL, r, p, x;
	size_t len = 0;
	bool room = true;
	struct map m;

	if (!f)
		return ckb_err_sys(err, errno, "cannot open '/proc/self/maps'");
	while (room && getline(&line, &len, f) > 0) {
		if (sscanf(line, "%zx-%zx %c%c%c", &m.lo, &m.hi, &r, &p,
			   &x) != 5)
			continue;
		m.prot = (r == 'r' ? PROT_READ : 0) |
			 (p == 'w' ? PROT_WRITE : 0) |
			 (x == 'x' ? PROT_EXEC : 0);
		room = ckb_room(&w->maps, w->count, &w->cap, sizeof(m));
		if (room)
			w->maps[w->count++] = m;
	}
	free(line);
	fclose(f);
	return room ? 0 : ckb_err_nomem(err);
}

/* The first mapping that ends behind @at. */
static size_t map_at(const struct work *w, uintptr_t at)
{
	size_t low = 0, high = w->count;

	while (low < high) {
		size_t mid = low + (high - low) / 2;

		if (w->maps[mid].hi <= at)
			low = mid + 1;
		else
			high = mid;
	}
	return low;
}

/* Put the stretch back, as far as it is still as it was left: other memory may
 * have come to these addresses. */
static bool restore(const struct work *w, struct ckw_guard *g)
{
	struct ckpt_err why = { 0 };
	bool done = true;

	for (size_t i = map_at(w, g->lo);
	     i < w->count && w->maps[i].lo < g->hi; i++) {
		const struct map *m = &w->maps[i];
		uintptr_t from = m->lo > g->lo ? m->lo : g->lo;
		uintptr_t to = m->hi < g->hi ? m->hi : g->hi;

		if (m->prot != (g->prot & ~PROT_WRITE) ||
		    mprotect((void *)from, to - from, g->prot) == 0)
			continue;
		ckb_err_sys(&why, errno, "make %zu bytes at 0x%zx writable "
			    "again", to - from, from);
		done = false;
	}
	if (!done && !g->told)
		ckb_log(CKB_ERROR, "%s; the writer's next save tries it again",
			why.message);
	g->told |= !done;
	return done;
}

/* Stretches that no save holds any more. */
static void settle(struct ckpt_writer *w)
{
	struct ckw_guard **at = &w->guards;
	struct work k = { 0 };

	while (*at && (*at)->saves > 0)
		at = &(*at)->next;
	if (*at && read_maps(&k, NULL) == 0)
		while (*at) {
			struct ckw_guard *g = *at;

			if (g->saves > 0 || !restore(&k, g)) {
				at = &g->next;
				continue;
			}
			*at = g->next;
			free(g);
		}
	free(k.maps);
}

/* ---- guarding ---- */

static bool remember(struct ckpt_save *s, uintptr_t lo, uintptr_t hi)
{
	if (!ckb_room(&s->guarded, s->guarded_count, &s->guarded_cap,
		      sizeof(*s->guarded)))
		return false;
	s->guarded[s->guarded_count++] = (struct ckw_span){ lo, hi };
	return true;
}

static struct ckw_guard *insert(struct ckw_guard **at, uintptr_t lo,
				uintptr_t hi, int prot, uint32_t saves)
{
	struct ckw_guard *g = malloc(sizeof(*g));

	if (!g)
		return NULL;
	*g = (struct ckw_guard){ *at, lo, hi, prot, saves, false };
	*at = g;
	return g;
}

/* The first page alone, then all: a mapping of larger pages refuses that, and
 * it must, for nobody could undo it in parts. Returns 0 or an errno. */
static int protect(const struct work *w, uintptr_t lo, uintptr_t hi, int prot)
{
	if (mprotect((void *)lo, w->page, prot) == 0 &&
	    mprotect((void *)lo, hi - lo, prot) == 0)
		return 0;
	return errno;
}

/* Pages that nobody guards: what of them may be written to is guarded, from
 * *@at on. What cannot be stays writable: letting go finds nothing to undo. */
static int guard_new(struct work *w, struct ckw_guard **at, uintptr_t lo,
		     uintptr_t hi, struct ckpt_err *err)
{
	for (size_t i = map_at(w, lo); i < w->count && w->maps[i].lo < hi;
	     i++) {
		const struct map *m = &w->maps[i];
		uintptr_t from = m->lo > lo ? m->lo : lo;
		uintptr_t to = m->hi < hi ? m->hi : hi;

		if (!(m->prot & PROT_WRITE))
			continue;
		if (!remember(w->save, from, to))
			return ckb_err_nomem(err);
		if (!insert(at, from, to, m->prot, 1)) {
			w->save->guarded_count--;
			return ckb_err_nomem(err);
		}
		if (protect(w, from, to, m->prot & ~PROT_WRITE) == ENOMEM)
			return ckb_err_sys(err, ENOMEM, "protect %zu bytes "
					   "from writes", to - from);
		at = &(*at)->next;
	}
	return 0;
}

/* One more save holds *@at, which begins at @lo or before. */
static int guard_again(struct work *w, struct ckw_guard *g, uintptr_t lo,
		       uintptr_t hi, struct ckpt_err *err)
{
	if (g->lo < lo) { /* it stays, up to @lo */
		if (!insert(&g->next, lo, g->hi, g->prot, g->saves))
			return ckb_err_nomem(err);
		g->hi = lo;
		g = g->next;
	}
	if (g->hi > hi) {
		if (!insert(&g->next, hi, g->hi, g->prot, g->saves))
			return ckb_err_nomem(err);
		g->hi = hi;
	}
	if (!remember(w->save, g->lo, g->hi))
		return ckb_err_nomem(err);
	g->saves++;
	return 0;
}

/* Spans come by address, so @w->at goes on from the last one. */
static int guard_span(struct work *w, const struct ckw_span *span,
		      struct ckpt_err *err)
{
	uintptr_t lo = span->lo, hi = span->hi;
	int rc = 0;

	while (rc == 0 && lo < hi) {
		while (*w->at && (*w->at)->hi <= lo)
			w->at = &(*w->at)->next;
		struct ckw_guard *g = *w->at;
		uintptr_t end = hi;

		if (!g || g->lo > lo) {
			if (g && g->lo < hi)
				end = g->lo;
			rc = guard_new(w, w->at, lo, end, err);
		} else {
			if (g->hi < hi)
				end = g->hi;
			rc = guard_again(w, g, lo, hi, err);
		}
		lo = end;
	}
	return rc;
}

int ckw_guard(struct ckpt_save *s, struct ckpt_err *err)
{
	struct work w = { .save = s, .page = (uintptr_t)sysconf(_SC_PAGESIZE),
			  .at = &s->writer->guards };
	int rc;

	if (s->lent_count == 0)
		return 0;
	pthread_mutex_lock(&s->writer->guard_lock);
	settle(s->writer);
	rc = read_maps(&w, err);
	for (size_t i = 0; rc == 0 && i < s->lent_count; i++)
		rc = guard_span(&w, &s->lent[i], err);
	pthread_mutex_unlock(&s->writer->guard_lock);
	free(w.maps);
	return rc;
}

/* ---- what is lent ---- */

/* Whole pages in it. */
static int add_lent(void *ctx, const void *data, uint64_t bytes,
		    struct ckpt_err *err)
{
	struct ckpt_save *s = ctx;
	uintptr_t page = (uintptr_t)sysconf(_SC_PAGESIZE);
	uintptr_t lo = ((uintptr_t)data + page - 1) & ~(page - 1);
	uintptr_t hi = ((uintptr_t)data + (uintptr_t)bytes) & ~(page - 1);

	if (lo >= hi)
		return 0;
	if (!ckb_room(&s->lent, s->lent_count, &s->lent_cap, sizeof(*s->lent)))
		return ckb_err_nomem(err);
	s->lent[s->lent_count++] = (struct ckw_span){ lo, hi };
	return 0;
}

static int by_address(const void *a, const void *b)
{
	const struct ckw_span *x = a, *y = b;

	return (x->lo > y->lo) - (x->lo < y->lo);
}

int ckw_find_lent(struct ckpt_save *s, struct ckpt_err *err)
{
	size_t count = 0;
	int rc = 0;

	s->lent_count = 0;
	if (!(s->writer->opts.flags & CKPT_WRITER_PROTECT))
		return 0;
	for (size_t i = 0; rc == 0 && i < s->tensor_count; i++) {
		const struct ckw_tensor *t = &s->tensors[i];

		rc = ckw_lent(&t->provider, t->held, add_lent, s, err);
	}
	if (rc < 0 || s->lent_count == 0)
		return rc;
	qsort(s->lent, s->lent_count, sizeof(*s->lent), by_address);
	for (size_t i = 1; i < s->lent_count; i++) {
		const struct ckw_span *next = &s->lent[i];

		if (next->lo > s->lent[count].hi)
			s->lent[++count] = *next;
		else if (next->hi > s->lent[count].hi)
			s->lent[count].hi = next->hi;
	}
	s->lent_count = count + 1;
	return 0;
}

/* ---- letting go ---- */

/* From @at of the list on. Returns where the next span goes on. */
static struct ckw_guard **let_go(struct ckw_guard **at,
				 const struct ckw_span *span)
{
	while (*at && (*at)->lo < span->hi) {
		struct ckw_guard *g = *at;

		if (g->lo < span->lo || --g->saves > 0 ||
		    mprotect((void *)g->lo, g->hi - g->lo, g->prot)) {
			at = &g->next;
			continue;
		}
		*at = g->next;
		free(g);
	}
	return at;
}

void ckw_unguard(struct ckpt_save *s)
{
	struct ckpt_writer *w = s->writer;
	struct ckw_guard **at = &w->guards;

	if (!(w->opts.flags & CKPT_WRITER_PROTECT))
		return;
	pthread_mutex_lock(&w->guard_lock);
	for (size_t i = 0; i < s->guarded_count; i++)
		at = let_go(at, &s->guarded[i]);
	s->guarded_count = 0;
	settle(w);
	pthread_mutex_unlock(&w->guard_lock);
}

void ckw_guard_fini(struct ckpt_writer *w)
{
	settle(w);
	while (w->guards) {
		struct ckw_guard *g = w->guards;

		w->guards = g->next;
		free(g);
	}
}
