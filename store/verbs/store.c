/* SPDX-License-Identifier: Apache-2.0 */
/*
 * store.c - the open store: its facts, its open packs, its notes of damage.
 *
 * Refuses a folder without ckptfs.json, and to write to a store that was
 * opened read-only or that has features only a newer ckptfs may write.
 *
 * Packs are kept open in a table of CKB_OPEN_PACKS; the idle one used longest
 * ago makes room. When all are in use a pack is opened beside the table and
 * closed when it is put back, so descriptors are bounded by the table and the
 * threads that read. When the process has none left, idle packs give theirs.
 *
 * Threads: any. packs_lock guards the table; packs are opened outside it, so
 * that one slow open holds up nobody else.
 */
#include "verbs/store_impl.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "base/buf.h"
#include "base/log.h"
#include "base/text.h"
#include "format/config.h"

/* ---- open and close ---- */

static int read_config(struct ckpt_store *s, struct ckpt_err *err)
{
	CKB_BUF struct ckb_buf text = { 0 };
	struct ckf_config config;
	struct ckpt_err mine = { 0 };
	int rc = ckb_read_file(s->sys, s->dirfd, "ckptfs.json", CKB_CONFIG_MAX,
			       &text, &mine);

	if (rc == 0)
		rc = ckf_config_decode(text.len ? (char *)text.data : "",
				       text.len, &config, &mine);
	if (rc == 0) {
		memcpy(s->uuid, config.uuid, CKPT_UUID_BYTES);
		s->ro_only = config.ro_only;
		s->readonly = s->readonly || s->ro_only;
		return 0;
	}
	if (rc == CKPT_ENOENT)
		return ckb_err(err, rc, "'%s' is not a ckptfs store (no "
			       "ckptfs.json); make one with ckptfs init",
			       s->path);
	/* too long, a folder, a link: whatever it is, it is no ckptfs.json */
	if (rc == CKPT_ELIMIT || rc == CKPT_EINVAL)
		rc = CKPT_ECORRUPT;
	ckb_err_prefix(&mine, rc, "store '%s'", s->path);
	if (err)
		*err = mine;
	return rc;
}

static int open_folder(struct ckpt_store *s, struct ckpt_err *err)
{
	s->dirfd = s->sys->openat(s->sys, AT_FDCWD, s->path,
				  O_RDONLY | O_DIRECTORY, 0);
	if (s->dirfd == -ENOENT)
		return ckb_err(err, CKPT_ENOENT, "'%s' does not exist; make a "
			       "store there with ckptfs init", s->path);
	if (s->dirfd == -ENOTDIR)
		return ckb_err(err, CKPT_ENOENT, "'%s' is not a ckptfs store: "
			       "it is no folder", s->path);
	if (s->dirfd < 0)
		return ckb_err_sys(err, -s->dirfd, "cannot open store '%s'",
				   s->path);
	return 0;
}

static char *index_path(const char *path)
{
	CKB_BUF struct ckb_buf text = { 0 };
	CKB_FREE char *cwd = path[0] == '/' ? NULL : getcwd(NULL, 0);

	if (cwd)
		ckb_buf_printf(&text, "%s/", cwd);
	ckb_buf_printf(&text, "%s/index.db", path);
	return text.failed ? NULL : (char *)CKB_TAKE(text.data);
}

static int check_opts(const struct ckpt_store_opts *opts, struct ckpt_err *err)
{
	if (opts->size < sizeof(*opts))
		return ckb_err(err, CKPT_EINVAL, "ckpt_store_opts.size is %zu, "
			       "not %zu", opts->size, sizeof(*opts));
	if (opts->flags & ~(uint32_t)CKPT_STORE_READONLY)
		return ckb_err(err, CKPT_EINVAL, "ckpt_store_opts.flags has "
			       "unknown bits: 0x%x", opts->flags);
	return 0;
}

int cks_store_open_sys(const struct ckb_sys *sys, const char *path,
		       const struct ckpt_store_opts *opts,
		       struct ckpt_store **out, struct ckpt_err *err)
{
	size_t cache_bytes = opts && opts->cache_bytes ? opts->cache_bytes
						       : CKB_CACHE_BYTES;
	struct ckpt_store *s;
	int rc;

	*out = NULL;
	rc = opts ? check_opts(opts, err) : 0;
	if (rc < 0)
		return rc;
	s = calloc(1, sizeof(*s));
	if (!s)
		return ckb_err_nomem(err);
	s->sys = sys;
	s->dirfd = -1;
	s->readonly = opts && (opts->flags & CKPT_STORE_READONLY);
	pthread_mutex_init(&s->packs_lock, NULL);
	s->path = strdup(path);
	s->index_path = index_path(path);
	if (!s->path || !s->index_path) {
		rc = ckb_err_nomem(err);
		goto fail;
	}
	rc = open_folder(s, err);
	if (rc == 0)
		rc = read_config(s, err);
	if (rc == 0)
		rc = cks_cells_new(cache_bytes, &s->cells, err);
	if (rc < 0)
		goto fail;
	*out = s;
	return 0;
fail:
	ckpt_store_close(s);
	return rc;
}

int ckpt_store_open(const char *path, const struct ckpt_store_opts *opts,
		    struct ckpt_store **out, struct ckpt_err *err)
{
	CKB_REQUIRE(path && out);
	return cks_store_open_sys(ckb_sys_real(), path, opts, out, err);
}

void ckpt_store_close(struct ckpt_store *s)
{
	if (!s)
		return;
	for (size_t i = 0; i < CKB_OPEN_PACKS; i++) {
		CKB_REQUIRE(s->packs[i].refs == 0);
		ckc_pack_close(s->packs[i].pack);
	}
	cks_cells_free(s->cells);
	if (s->dirfd >= 0)
		s->sys->close(s->sys, s->dirfd);
	pthread_mutex_destroy(&s->packs_lock);
	free(s->index_path);
	free(s->path);
	free(s);
}

/* ---- facts ---- */

const uint8_t *ckpt_store_uuid(const struct ckpt_store *s)
{
	return s->uuid;
}

const struct ckb_sys *cks_store_sys(const struct ckpt_store *s)
{
	return s->sys;
}

int cks_store_dirfd(const struct ckpt_store *s)
{
	return s->dirfd;
}

const char *cks_store_path(const struct ckpt_store *s)
{
	return s->path;
}

bool cks_store_readonly(const struct ckpt_store *s)
{
	return s->readonly;
}

int cks_store_writable(const struct ckpt_store *s, struct ckpt_err *err)
{
	if (s->ro_only)
		return ckb_err(err, CKPT_EPERM, "store '%s' has a feature that "
			       "only a newer ckptfs can write", s->path);
	if (s->readonly)
		return ckb_err(err, CKPT_EPERM, "store '%s' is open read-only",
			       s->path);
	return 0;
}

/* ---- open packs ---- */

void cks_pack_path(char dst[CKS_PACK_PATH_BYTES], const uint8_t uuid[16])
{
	char text[CKB_UUID_TEXT_BYTES];

	ckb_uuid_text(text, uuid);
	snprintf(dst, CKS_PACK_PATH_BYTES, "packs/%.2s/%s.pack", text, text);
}

/* A new reference to a pack of the table, or NULL. Under packs_lock. */
static struct ckc_pack *table_get(struct ckpt_store *s, const uint8_t uuid[16])
{
	for (size_t i = 0; i < CKB_OPEN_PACKS; i++) {
		struct cks_pack_slot *slot = &s->packs[i];

		if (!slot->pack || memcmp(ckc_pack_uuid(slot->pack), uuid,
					  CKPT_UUID_BYTES) != 0)
			continue;
		slot->refs++;
		slot->used = ++s->packs_tick;
		return slot->pack;
	}
	return NULL;
}

/* A slot to fill: a free one, else the idle one used longest ago, whose pack
 * is closed; NULL when all are in use. Under packs_lock. */
static struct cks_pack_slot *table_room(struct ckpt_store *s)
{
	struct cks_pack_slot *best = NULL;

	for (size_t i = 0; i < CKB_OPEN_PACKS; i++) {
		struct cks_pack_slot *slot = &s->packs[i];

		if (!slot->pack)
			return slot;
		if (slot->refs == 0 && (!best || slot->used < best->used))
			best = slot;
	}
	if (best) {
		ckc_pack_close(best->pack);
		best->pack = NULL;
	}
	return best;
}

/* true: at least one descriptor came free. */
static bool close_idle(struct ckpt_store *s)
{
	bool any = false;

	pthread_mutex_lock(&s->packs_lock);
	for (size_t i = 0; i < CKB_OPEN_PACKS; i++) {
		struct cks_pack_slot *slot = &s->packs[i];

		if (!slot->pack || slot->refs > 0)
			continue;
		ckc_pack_close(slot->pack);
		slot->pack = NULL;
		any = true;
	}
	pthread_mutex_unlock(&s->packs_lock);
	return any;
}

static int open_pack(struct ckpt_store *s, const uint8_t uuid[16],
		     struct ckc_pack **out, struct ckpt_err *err)
{
	struct ckpt_err mine = { 0 };
	char path[CKS_PACK_PATH_BYTES];
	int rc;

	cks_pack_path(path, uuid);
	rc = ckc_pack_open(s->sys, s->dirfd, path, uuid, out, &mine);
	if (rc < 0 && (mine.sys_errno == EMFILE || mine.sys_errno == ENFILE) &&
	    close_idle(s)) {
		mine = (struct ckpt_err){ 0 };
		rc = ckc_pack_open(s->sys, s->dirfd, path, uuid, out, &mine);
	}
	/* a manifest or the index demands it, so its absence is damage */
	if (rc == CKPT_ENOENT) {
		rc = ckb_err(&mine, CKPT_ECORRUPT, "pack %s is missing", path);
		mine.sys_errno = ENOENT;
	}
	if (rc < 0 && err)
		*err = mine;
	return rc;
}

int cks_pack_get(struct ckpt_store *s, const uint8_t uuid[16],
		 struct ckc_pack **out, struct ckpt_err *err)
{
	struct ckc_pack *fresh, *spare = NULL;

	*out = NULL;
	pthread_mutex_lock(&s->packs_lock);
	*out = table_get(s, uuid);
	pthread_mutex_unlock(&s->packs_lock);
	if (*out)
		return 0;
	int rc = open_pack(s, uuid, &fresh, err);

	if (rc < 0)
		return rc;
	pthread_mutex_lock(&s->packs_lock);
	*out = table_get(s, uuid); /* another thread may have been faster */
	if (*out) {
		spare = fresh;
	} else {
		struct cks_pack_slot *slot = table_room(s);

		if (slot)
			*slot = (struct cks_pack_slot){ fresh, 1,
							++s->packs_tick };
		*out = fresh;
	}
	pthread_mutex_unlock(&s->packs_lock);
	ckc_pack_close(spare);
	return 0;
}

void cks_pack_put(struct ckpt_store *s, struct ckc_pack *p)
{
	bool tabled = false;

	if (!p)
		return;
	pthread_mutex_lock(&s->packs_lock);
	for (size_t i = 0; i < CKB_OPEN_PACKS && !tabled; i++) {
		if (s->packs[i].pack != p)
			continue;
		CKB_REQUIRE(s->packs[i].refs > 0);
		s->packs[i].refs--;
		tabled = true;
	}
	pthread_mutex_unlock(&s->packs_lock);
	if (!tabled)
		ckc_pack_close(p);
}

/* ---- bad chunks ---- */

void cks_bad_name(char dst[CKS_BAD_NAME_BYTES], const uint8_t pack[16],
		  uint64_t off)
{
	char text[CKB_UUID_TEXT_BYTES];

	ckb_uuid_text(text, pack);
	snprintf(dst, CKS_BAD_NAME_BYTES, "%s-%016" PRIx64, text, off);
}

bool cks_bad_parse(const char *name, uint8_t out_pack[16], uint64_t *out_off)
{
	char text[CKB_UUID_TEXT_BYTES];
	uint8_t off[8];

	if (strlen(name) != CKS_BAD_NAME_BYTES - 1 || name[36] != '-')
		return false;
	snprintf(text, sizeof(text), "%.36s", name);
	if (!ckb_uuid_parse(out_pack, text) || !ckb_unhex(off, name + 37, 8))
		return false;
	*out_off = 0;
	for (size_t i = 0; i < sizeof(off); i++)
		*out_off = *out_off << 8 | off[i];
	return true;
}

void cks_bad_note(struct ckpt_store *s, const uint8_t pack[16], uint64_t off,
		  const uint8_t digest[32], const char *why)
{
	char name[CKS_BAD_NAME_BYTES], path[CKS_BAD_NAME_BYTES + 4];
	char hex[2 * CKPT_DIGEST_BYTES + 1];
	CKB_BUF struct ckb_buf text = { 0 };
	struct ckpt_err err = { 0 };
	struct stat st;

	if (s->readonly)
		return;
	cks_bad_name(name, pack, off);
	snprintf(path, sizeof(path), "bad/%s", name);
	if (s->sys->fstatat(s->sys, s->dirfd, path, &st) == 0)
		return;
	ckb_hex(hex, digest, CKPT_DIGEST_BYTES);
	ckb_buf_printf(&text, "sha256 %s\n%s\n", hex, why);
	int rc = text.failed ? ckb_err_nomem(&err)
			     : ckb_make_dirs(s->sys, s->dirfd, "bad", &err);

	if (rc == 0)
		rc = ckb_write_file(s->sys, s->dirfd, path, text.data,
				    text.len, &err);

	/* the name alone is the note: a torn text does no harm */
	if (rc == 0)
		rc = ckb_sync_dir(s->sys, s->dirfd, "bad", &err);
	if (rc < 0 && rc != CKPT_EEXIST)
		ckb_log(CKB_WARN, "store '%s': a bad chunk could not be noted: "
			"%s", s->path, err.message);
}
