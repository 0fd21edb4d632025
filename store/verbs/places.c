/* SPDX-License-Identifier: Apache-2.0 */
/*
 * places.c - a hash set of (pack, offset); and the walk over packs/.
 *
 * Memory: about 128 bytes for each distinct place. No state but the set's;
 * one thread for each set.
 */
#include "verbs/places.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/buf.h"
#include "base/bytes.h"
#include "base/hash.h"
#include "base/text.h"
#include "verbs/store_impl.h"

#define CAP_FIRST 1024

void cks_places_fini(struct cks_places *p)
{
	free(p->slots);
	*p = (struct cks_places){ 0 };
}

static struct cks_place *slot_of(const struct cks_places *p,
				 const struct ckq_use *use)
{
	uint8_t key[CKPT_UUID_BYTES + 8];

	memcpy(key, use->pack, CKPT_UUID_BYTES);
	ckb_put_u64(key + CKPT_UUID_BYTES, use->off);
	size_t at = (size_t)ckb_xxh3(key, sizeof(key)) & (p->cap - 1);

	while (p->slots[at].used &&
	       (p->slots[at].use.off != use->off ||
		memcmp(p->slots[at].use.pack, use->pack, CKPT_UUID_BYTES)))
		at = (at + 1) & (p->cap - 1);
	return &p->slots[at];
}

static bool grow(struct cks_places *p)
{
	struct cks_places old = *p;

	if ((p->count + 1) * 4 <= p->cap * 3)
		return true;
	p->cap = old.cap ? old.cap * 2 : CAP_FIRST;
	p->slots = calloc(p->cap, sizeof(*p->slots));
	if (!p->slots) {
		*p = old;
		return false;
	}
	for (size_t i = 0; i < old.cap; i++)
		if (old.slots[i].used)
			*slot_of(p, &old.slots[i].use) = old.slots[i];
	free(old.slots);
	return true;
}

struct cks_place *cks_places_get(struct cks_places *p,
				 const struct ckq_use *use, bool *out_new)
{
	if (!grow(p))
		return NULL;
	struct cks_place *s = slot_of(p, use);

	*out_new = !s->used;
	if (!s->used) {
		p->count++;
		s->use = *use;
		s->used = true;
	}
	return s;
}

/* ---- packs/ ---- */

/* The uuid of "UUID.pack" in folder "packs/ab", or false. */
static bool pack_of(const char *name, const char *folder, uint8_t uuid[16])
{
	char text[CKB_UUID_TEXT_BYTES];
	size_t len = CKB_UUID_TEXT_BYTES - 1;

	if (strlen(name) != len + strlen(".pack") ||
	    strcmp(name + len, ".pack") != 0 ||
	    strncmp(name, folder + strlen("packs/"), 2) != 0)
		return false;
	memcpy(text, name, len);
	text[len] = '\0';
	return ckb_uuid_parse(uuid, text);
}

struct packs {
	const char *folder;
	struct ckb_buf uuids; /* 16 bytes each */
};

static int collect_pack(void *ctx, const char *name, unsigned char type)
{
	struct packs *p = ctx;
	uint8_t uuid[CKPT_UUID_BYTES];

	(void)type;
	if (pack_of(name, p->folder, uuid))
		ckb_buf_put(&p->uuids, uuid, sizeof(uuid));
	return 0;
}

static int walk_folder(struct ckpt_store *s, const char *folder, bool sync,
		       cks_packs_fn fn, void *ctx, struct ckpt_err *err)
{
	struct packs p = { .folder = folder };
	/* a pack may have been moved here a moment ago */
	int rc = sync ? ckb_sync_dir(s->sys, s->dirfd, folder, err) : 0;

	if (rc < 0)
		return rc;
	rc = s->sys->list(s->sys, s->dirfd, folder, collect_pack, &p);

	if (rc < 0)
		rc = ckb_err_sys(err, -rc, "cannot read folder '%s/%s'",
				 s->path, folder);
	else if (p.uuids.failed)
		rc = ckb_err_nomem(err);
	for (size_t at = 0; rc == 0 && at < p.uuids.len; at += CKPT_UUID_BYTES)
		rc = fn(ctx, p.uuids.data + at);
	ckb_buf_fini(&p.uuids);
	return rc;
}

static int collect_folder(void *ctx, const char *name, unsigned char type)
{
	(void)type;
	if (strlen(name) == 2 && strspn(name, "0123456789abcdef") == 2)
		ckb_buf_put(ctx, name, 2);
	return 0;
}

int cks_packs_walk(struct ckpt_store *s, bool sync, cks_packs_fn fn,
		   void *ctx, struct ckpt_err *err)
{
	CKB_BUF struct ckb_buf names = { 0 };
	int rc = s->sys->list(s->sys, s->dirfd, "packs", collect_folder,
			      &names);

	if (rc == -ENOENT) /* a copy without empty folders */
		return 0;
	if (rc < 0)
		return ckb_err_sys(err, -rc, "cannot read folder '%s/packs'",
				   s->path);
	if (names.failed)
		return ckb_err_nomem(err);
	rc = sync ? ckb_sync_dir(s->sys, s->dirfd, "packs", err) : 0;
	for (size_t at = 0; rc == 0 && at < names.len; at += 2) {
		char folder[] = "packs/ab";

		memcpy(folder + strlen("packs/"), names.data + at, 2);
		rc = walk_folder(s, folder, sync, fn, ctx, err);
	}
	return rc;
}
