/* SPDX-License-Identifier: Apache-2.0 */
/*
 * usage.c - what a store holds, added up over all manifests and packs.
 *
 * A chunk counts once for each place in a pack that a manifest names: two
 * equal chunks in two places, as two saves at once may leave them, are stored
 * twice and said to be duplicates. A manifest that is damaged, or cannot be
 * read now, is counted as such and left out: its packs then seem to be unused.
 *
 * Memory: about 128 bytes for each distinct chunk. No state; any thread.
 */
#include "verbs/places.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/log.h"
#include "format/record.h"
#include "verbs/checkpoint.h"
#include "verbs/store_impl.h"

struct job {
	struct ckpt_store *s;
	struct ckpt_usage *u;
	struct cks_places places;
	uint8_t (*packs)[CKPT_UUID_BYTES]; /* in use, sorted */
	size_t pack_count, pack_cap;
	struct ckpt_err *err;
};

static enum ckpt_stored stored_as(const struct ckf_chunk_entry *e)
{
	if (e->codec > CKF_CODEC_PLANES)
		return CKPT_STORED_NEWER;
	if (e->stored_len == 0)
		return CKPT_STORED_CONSTANT;
	_Static_assert((int)CKPT_STORED_RAW == CKF_CODEC_RAW &&
		       (int)CKPT_STORED_ZSTD == CKF_CODEC_ZSTD &&
		       (int)CKPT_STORED_PLANES == CKF_CODEC_PLANES,
		       "kinds are told by codecs");
	return (enum ckpt_stored)e->codec;
}

static int add_chunk(struct job *j, struct ckpt_checkpoint *c,
		     const struct ckf_chunk_entry *e,
		     struct ckpt_usage_dtype *sum)
{
	struct ckq_use use = { .off = e->off, .stored_len = e->stored_len };
	bool is_new;

	memcpy(use.pack, cks_checkpoint_pack(c, e->pack), CKPT_UUID_BYTES);
	struct cks_place *p = cks_places_get(&j->places, &use, &is_new);

	if (!p)
		return ckb_err_nomem(j->err);
	if (!is_new)
		return 0;
	p->raw_len = e->raw_len;
	memcpy(p->digest, e->digest, CKPT_DIGEST_BYTES);
	sum->unique_bytes += e->raw_len;
	sum->stored_bytes += e->stored_len;
	struct ckpt_usage_codec *codec = &j->u->codec[stored_as(e)];

	codec->chunk_count++;
	codec->unique_bytes += e->raw_len;
	codec->stored_bytes += e->stored_len;
	return 0;
}

static int add_tensor(struct job *j, struct ckpt_checkpoint *c,
		      const struct ckpt_tensor_info *t, struct ckpt_err *why)
{
	struct ckpt_usage_dtype *sum =
		ckpt_item_at(c, t->item)->kind == CKPT_ITEM_ORIGIN
			? &j->u->headers
			: &j->u->dtype[t->media_type ? 0 : t->dtype];
	struct cks_chunks *k = NULL;
	int rc = cks_chunks_load(c, t, &k, why);

	for (uint64_t i = 0; rc == 0 && i < k->count; i++)
		rc = add_chunk(j, c, &k->entries[i], sum);
	cks_chunks_free(k);
	if (rc == 0) {
		sum->tensor_count++;
		sum->bytes += t->bytes;
	}
	return rc;
}

static void pass_over(struct job *j, const char *name,
		      const struct ckpt_err *why)
{
	(*(why->code == CKPT_ECORRUPT ? &j->u->damaged_count
				      : &j->u->unread_count))++;
	cks_name_skip(j->s, name, why->message);
}

static int add_checkpoint(void *ctx, const char *name)
{
	struct job *j = ctx;
	struct ckpt_checkpoint *c = NULL;
	struct ckpt_err why = { 0 };
	int rc = ckpt_checkpoint_open(j->s, name, &c, &why);

	for (size_t i = 0; rc == 0 && i < ckpt_tensor_count(c); i++) {
		const struct ckpt_tensor_info *t = ckpt_tensor_at(c, i);

		if (t->alias_of == SIZE_MAX)
			rc = add_tensor(j, c, t, &why);
	}
	ckpt_checkpoint_close(c);
	if (rc == CKPT_ENOENT) /* removed meanwhile */
		return 0;
	if (rc == CKPT_ENOMEM)
		return ckb_err_nomem(j->err);
	if (rc < 0) {
		pass_over(j, name, &why);
		return 0;
	}
	j->u->checkpoint_count++;
	return 0;
}

static void unread_run(void *ctx, const char *run, const struct ckpt_err *why)
{
	pass_over(ctx, run, why);
}

/* ---- duplicates ---- */

static int by_digest(const void *a, const void *b)
{
	const struct cks_place *x = *(const struct cks_place *const *)a;
	const struct cks_place *y = *(const struct cks_place *const *)b;
	int c = memcmp(x->digest, y->digest, CKPT_DIGEST_BYTES);

	return c ? c : (x->raw_len > y->raw_len) - (x->raw_len < y->raw_len);
}

static int count_duplicates(struct job *j)
{
	CKB_FREE const struct cks_place **list =
		calloc(j->places.count + 1, sizeof(*list));
	size_t n = 0;

	if (!list)
		return ckb_err_nomem(j->err);
	for (size_t i = 0; i < j->places.cap; i++)
		if (j->places.slots[i].used)
			list[n++] = &j->places.slots[i];
	qsort(list, n, sizeof(*list), by_digest);
	for (size_t i = 1; i < n; i++) {
		if (by_digest(&list[i - 1], &list[i]) != 0)
			continue;
		j->u->duplicate_count++;
		j->u->duplicate_bytes += list[i]->use.stored_len;
	}
	j->u->chunk_count = n;
	return 0;
}

/* ---- packs ---- */

static int by_uuid(const void *a, const void *b)
{
	return memcmp(a, b, CKPT_UUID_BYTES);
}

static int used_packs(struct job *j)
{
	size_t kept = 0;

	for (size_t i = 0; i < j->places.cap; i++) {
		const struct cks_place *p = &j->places.slots[i];

		if (!p->used)
			continue;
		/* neighbours in the table seldom are of one pack: sort */
		if (!ckb_room(&j->packs, j->pack_count, &j->pack_cap,
			      sizeof(*j->packs)))
			return ckb_err_nomem(j->err);
		memcpy(j->packs[j->pack_count++], p->use.pack,
		       CKPT_UUID_BYTES);
	}
	if (j->pack_count > 0)
		qsort(j->packs, j->pack_count, sizeof(*j->packs), by_uuid);
	for (size_t i = 0; i < j->pack_count; i++)
		if (kept == 0 || by_uuid(j->packs[kept - 1], j->packs[i]) != 0)
			memmove(j->packs[kept++], j->packs[i],
				CKPT_UUID_BYTES);
	j->pack_count = kept;
	return 0;
}

static int add_pack(void *ctx, const uint8_t uuid[16])
{
	struct job *j = ctx;
	char path[CKS_PACK_PATH_BYTES];
	struct stat st;

	cks_pack_path(path, uuid);
	int rc = j->s->sys->fstatat(j->s->sys, j->s->dirfd, path, &st);

	if (rc == -ENOENT)
		return 0;
	if (rc < 0)
		return ckb_err_sys(j->err, -rc, "cannot look at '%s/%s'",
				   j->s->path, path);
	j->u->pack_count++;
	j->u->pack_bytes += (uint64_t)st.st_size;
	if (j->pack_count == 0 || !bsearch(uuid, j->packs, j->pack_count,
					   sizeof(*j->packs), by_uuid)) {
		j->u->unused_pack_count++;
		j->u->unused_pack_bytes += (uint64_t)st.st_size;
	}
	return 0;
}

static int count_tag(void *ctx, const struct ckpt_tag *tag)
{
	(void)tag;
	++*(uint64_t *)ctx;
	return 0;
}

static void add_up(struct ckpt_usage *u)
{
	u->total = u->headers;
	u->total.tensor_count = 0;
	for (size_t i = 0; i < CKB_ARRAY_LEN(u->dtype); i++) {
		u->total.tensor_count += u->dtype[i].tensor_count;
		u->total.bytes += u->dtype[i].bytes;
		u->total.unique_bytes += u->dtype[i].unique_bytes;
		u->total.stored_bytes += u->dtype[i].stored_bytes;
	}
}

int ckpt_store_usage(struct ckpt_store *s, struct ckpt_usage *out,
		     struct ckpt_err *err)
{
	struct ckpt_usage u = { 0 };
	struct job j = { .s = s, .u = &u, .err = err };

	CKB_REQUIRE(s && out);
	int rc = cks_store_walk(s, add_checkpoint, unread_run, &j, err);

	if (rc == 0)
		rc = count_duplicates(&j);
	if (rc == 0)
		rc = used_packs(&j);
	if (rc == 0)
		rc = cks_packs_walk(s, false, add_pack, &j, err);
	if (rc == 0)
		rc = ckpt_tag_list(s, count_tag, &u.tag_count, err);
	cks_places_fini(&j.places);
	free(j.packs);
	if (rc < 0)
		return rc;
	add_up(&u);
	*out = u;
	return 0;
}
