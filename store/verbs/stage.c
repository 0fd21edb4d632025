/* SPDX-License-Identifier: Apache-2.0 */
/*
 * stage.c - the staging folder of one save, and its packs.
 *
 * Order of opening is S8's: the folder is made and synced first, then
 * condemned/ and bad/ are read. So either gc sees this save in staging, or
 * this save sees what gc condemned; no lock or clock is needed. A condemned
 * list that cannot be read fails the save: what it names must not be reused.
 *
 * Everything in the folder is reached by its path under the store, never
 * through a descriptor of it: an abandoner renames the folder, and from then
 * on every step of the save fails, its link included.
 *
 * Refuses a folder that is there already: one attempt, one save. The flock on
 * "lock" only tells gc on this host that the save lives (S8); where the file
 * system has none, gc cannot abandon the save by itself, which is safe.
 *
 * Threads: one per save.
 */
#include "verbs/stage_impl.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/file.h>

#include "base/buf.h"
#include "base/log.h"
#include "base/text.h"
#include "chunk/digest.h"
#include "format/config.h"
#include "format/name.h"
#include "verbs/checkpoint.h"

#define CONDEMNED_MAX (64u << 20) /* bytes of one list: 1.8 million packs */

void cks_stage_path(char dst[CKS_STAGE_PATH_BYTES], const struct cks_stage *st,
		    const char *file)
{
	snprintf(dst, CKS_STAGE_PATH_BYTES, "%s/%s", st->dir, file);
}

/* ---- what must not be reused ---- */

static int barred_put(struct cks_barred_set *set, const uint8_t pack[16],
		      uint64_t off)
{
	if (!ckb_room(&set->list, set->count, &set->cap, sizeof(*set->list)))
		return -ENOMEM;
	struct cks_barred *b = &set->list[set->count++];

	memcpy(b->pack, pack, CKPT_UUID_BYTES);
	b->off = off;
	return 0;
}

static int by_place(const void *a, const void *b)
{
	const struct cks_barred *x = a, *y = b;
	int c = memcmp(x->pack, y->pack, CKPT_UUID_BYTES);

	return c ? c : (x->off > y->off) - (x->off < y->off);
}

static void barred_sort(struct cks_barred_set *set)
{
	if (set->count > 0)
		qsort(set->list, set->count, sizeof(*set->list), by_place);
}

static bool barred_has(const struct cks_barred_set *set,
		       const uint8_t pack[16], uint64_t off)
{
	struct cks_barred key = { .off = off };

	memcpy(key.pack, pack, CKPT_UUID_BYTES);
	return set->count > 0 && bsearch(&key, set->list, set->count,
					 sizeof(key), by_place) != NULL;
}

bool cks_stage_reusable(const struct cks_stage *st, const uint8_t pack[16],
			uint64_t off)
{
	return !barred_has(&st->condemned, pack, 0) &&
	       !barred_has(&st->bad, pack, off);
}

bool cks_stage_bad_any(const struct cks_stage *st)
{
	return st->bad.count > 0;
}

struct bar {
	struct cks_stage *st;
	struct ckpt_err *err;
};

/* One list of condemned packs: a uuid a line, and not a byte besides, as a line
 * that is passed over may be a pack that goes. */
static int condemned_lines(struct cks_stage *st, const struct ckb_buf *text,
			   const char *path, struct ckpt_err *err)
{
	const size_t len = CKB_UUID_TEXT_BYTES - 1;

	for (size_t at = 0; at < text->len; at += len + 1) {
		const char *line = (const char *)text->data + at;
		char uuid[CKB_UUID_TEXT_BYTES] = "";
		uint8_t pack[CKPT_UUID_BYTES];

		if (text->len - at > len && line[len] == '\n')
			memcpy(uuid, line, len);
		if (!ckb_uuid_parse(pack, uuid))
			return ckb_err(err, CKPT_ECORRUPT, "'%s/%s' is damaged:"
				       " a line of it is no pack's uuid; no "
				       "save can begin before gc has made it "
				       "again", st->s->path, path);
		if (barred_put(&st->condemned, pack, 0) < 0)
			return ckb_err_nomem(err);
	}
	return 0;
}

static int condemned_file(void *ctx, const char *name, unsigned char type)
{
	struct bar *b = ctx;
	struct ckpt_store *s = b->st->s;
	CKB_BUF struct ckb_buf text = { 0 };
	char path[300];

	(void)type;
	snprintf(path, sizeof(path), "condemned/%s", name);
	int rc = ckb_read_file(s->sys, s->dirfd, path, CONDEMNED_MAX, &text,
			       b->err);

	/* gc has just ended: what it named is unlinked, and proves itself so */
	if (rc == CKPT_ENOENT)
		return 0;
	if (rc == 0)
		rc = condemned_lines(b->st, &text, path, b->err);
	return rc;
}

static int bad_file(void *ctx, const char *name, unsigned char type)
{
	struct bar *b = ctx;
	char q[CKB_QUOTE_BYTES];
	uint8_t pack[CKPT_UUID_BYTES];
	uint64_t off;

	(void)type;
	if (!cks_bad_parse(name, pack, &off)) {
		ckb_log(CKB_WARN, "store '%s': bad/%s is passed over: it names "
			"no chunk", b->st->s->path,
			ckb_quote(q, sizeof(q), name, strlen(name)));
		return 0;
	}
	return barred_put(&b->st->bad, pack, off) < 0 ? ckb_err_nomem(b->err)
						      : 0;
}

/* Copies of a store may lack empty folders: an absent one bars nothing. */
static int read_barred(struct cks_stage *st, const char *folder,
		       ckb_dirent_fn fn, struct ckpt_err *err)
{
	struct ckpt_err mine = { 0 };
	struct bar b = { st, &mine };
	int rc = st->s->sys->list(st->s->sys, st->s->dirfd, folder, fn, &b);

	if (rc == 0 || (rc == -ENOENT && mine.code == 0))
		return 0;
	if (mine.code == 0)
		return ckb_err_sys(err, -rc, "cannot read folder '%s/%s'",
				   st->s->path, folder);
	if (err)
		*err = mine;
	return mine.code;
}

/* ---- the folder ---- */

static void stage_name(struct cks_stage *st, const uint8_t attempt[16])
{
	uint8_t digest[CKPT_DIGEST_BYTES];
	char save[17], try[33];

	ckc_sha256(st->name, strlen(st->name), digest);
	ckb_hex(save, digest, 8);
	ckb_hex(try, attempt, 16);
	snprintf(st->dir, sizeof(st->dir), "staging/%s-%s", save, try);
}

static int make_folder(struct cks_stage *st, struct ckpt_err *err)
{
	const struct ckb_sys *sys = st->s->sys;
	int rc = sys->mkdirat(sys, st->s->dirfd, st->dir, 0777);

	if (rc == -ENOENT) { /* a copy without empty folders */
		rc = ckb_make_dirs(sys, st->s->dirfd, "staging", err);
		if (rc < 0)
			return rc;
		rc = sys->mkdirat(sys, st->s->dirfd, st->dir, 0777);
	}
	if (rc == -EEXIST)
		return ckb_err(err, CKPT_EBUSY, "this attempt of a save of '%s'"
			       " is under way already ('%s/%s'); every try "
			       "needs an attempt of its own", st->name,
			       st->s->path, st->dir);
	if (rc < 0)
		return ckb_err_sys(err, -rc, "cannot make folder '%s/%s'",
				   st->s->path, st->dir);
	st->made = true;
	return 0;
}

/* For people who find the folder; nothing reads it to decide. */
static int put_save_json(struct cks_stage *st, struct ckpt_err *err)
{
	char path[CKS_STAGE_PATH_BYTES], host[256] = "";
	CKB_BUF struct ckb_buf text = { 0 };

	if (gethostname(host, sizeof(host) - 1) != 0)
		host[0] = '\0';
	ckb_buf_puts(&text, "{\"name\": ");
	ckf_json_string(&text, st->name, strlen(st->name));
	ckb_buf_puts(&text, ", \"host\": ");
	ckf_json_string(&text, host, strlen(host));
	ckb_buf_printf(&text, ", \"pid\": %ld}\n", (long)getpid());
	if (text.failed)
		return ckb_err_nomem(err);
	cks_stage_path(path, st, "save.json");
	return ckb_write_file(st->s->sys, st->s->dirfd, path, text.data,
			      text.len, err);
}

static int take_lock(struct cks_stage *st, struct ckpt_err *err)
{
	const struct ckb_sys *sys = st->s->sys;
	char path[CKS_STAGE_PATH_BYTES];

	cks_stage_path(path, st, "lock");
	st->lock_fd = sys->openat(sys, st->s->dirfd, path, O_RDWR | O_CREAT |
				  O_EXCL | O_NOFOLLOW, 0666);
	if (st->lock_fd < 0)
		return ckb_err_sys(err, -st->lock_fd, "cannot make '%s/%s'",
				   st->s->path, path);
	int rc = sys->flock(sys, st->lock_fd, LOCK_EX | LOCK_NB);

	if (rc == -ENOLCK || rc == -ENOSYS || rc == -EOPNOTSUPP ||
	    rc == -EINVAL) {
		ckb_log(CKB_INFO, "store '%s': this file system has no locks; "
			"what a crashed save leaves has to be abandoned by "
			"hand", st->s->path);
		return 0;
	}
	if (rc == -EWOULDBLOCK)
		return ckb_err(err, CKPT_EBUSY, "'%s/%s' is held by another "
			       "process, which took this save for a dead one",
			       st->s->path, path);
	return rc < 0 ? ckb_err_sys(err, -rc, "cannot lock '%s/%s'",
				    st->s->path, path) : 0;
}

static int stage_make(struct cks_stage *st, struct ckpt_err *err)
{
	const struct ckb_sys *sys = st->s->sys;
	int rc = make_folder(st, err);

	if (rc == 0)
		rc = take_lock(st, err);
	if (rc == 0)
		rc = put_save_json(st, err);
	if (rc == 0)
		rc = ckb_sync_dir(sys, st->s->dirfd, st->dir, err);
	if (rc == 0)
		rc = ckb_sync_dir(sys, st->s->dirfd, "staging", err);
	/* S8: only now that gc would see us may we look at what it condemned */
	if (rc == 0)
		rc = read_barred(st, "condemned", condemned_file, err);
	if (rc == 0)
		rc = read_barred(st, "bad", bad_file, err);
	barred_sort(&st->condemned);
	barred_sort(&st->bad);
	return rc;
}

int cks_stage_open(struct ckpt_store *s, const char *name,
		   const uint8_t attempt[16], struct cks_stage **out,
		   struct ckpt_err *err)
{
	struct cks_stage *st;
	int rc = ckf_checkpoint_name(name, err);

	*out = NULL;
	if (rc == 0)
		rc = cks_store_writable(s, err);
	if (rc < 0)
		return rc;
	st = calloc(1, sizeof(*st));
	if (!st)
		return ckb_err_nomem(err);
	st->s = s;
	st->lock_fd = -1;
	st->name = strdup(name);
	if (!st->name) {
		rc = ckb_err_nomem(err);
		goto fail;
	}
	stage_name(st, attempt);
	rc = stage_make(st, err);
	if (rc < 0)
		goto fail;
	*out = st;
	return 0;
fail:
	cks_stage_close(st);
	return rc;
}

static int collect(void *ctx, const char *name, unsigned char type)
{
	(void)type;
	ckb_buf_put(ctx, name, strlen(name) + 1);
	return 0;
}

/* Best effort: what stays is found by gc (S4). Where no descriptor is left to
 * list it with, what every save begins with is removed by name. */
static void remove_folder(struct cks_stage *st)
{
	static const char first[] = "lock\0save.json";
	const struct ckb_sys *sys = st->s->sys;
	CKB_BUF struct ckb_buf names = { 0 };
	bool listed = sys->list(sys, st->s->dirfd, st->dir, collect,
				&names) == 0 && !names.failed;
	const char *all = listed ? (const char *)names.data : first;
	size_t len = listed ? names.len : sizeof(first);

	for (size_t at = 0; at < len;) {
		const char *name = all + at;
		char path[CKS_STAGE_DIR_BYTES + 257];

		snprintf(path, sizeof(path), "%s/%s", st->dir, name);
		(void)sys->unlinkat(sys, st->s->dirfd, path, 0);
		at += strlen(name) + 1;
	}
	(void)sys->unlinkat(sys, st->s->dirfd, st->dir, AT_REMOVEDIR);
}

void cks_stage_close(struct cks_stage *st)
{
	if (!st)
		return;
	if (st->made && !st->keep)
		remove_folder(st);
	if (st->lock_fd >= 0)
		st->s->sys->close(st->s->sys, st->lock_fd);
	free(st->condemned.list);
	free(st->bad.list);
	free(st->name);
	free(st);
}

/* ---- packs ---- */

static void pack_file(char dst[CKS_STAGE_PATH_BYTES],
		      const struct cks_stage *st, const uint8_t uuid[16])
{
	char text[CKB_UUID_TEXT_BYTES], file[CKB_UUID_TEXT_BYTES + 5];

	ckb_uuid_text(text, uuid);
	snprintf(file, sizeof(file), "%s.pack", text);
	cks_stage_path(dst, st, file);
}

void cks_stage_write_through(struct cks_stage *st, const struct ckb_sys *sys)
{
	st->packs = sys;
}

int cks_stage_pack(struct cks_stage *st, bool direct,
		   struct ckc_pack_writer **out, struct ckpt_err *err)
{
	char path[CKS_STAGE_PATH_BYTES];
	uint8_t uuid[CKPT_UUID_BYTES];
	int rc = cks_uuid_new(st->s->sys, uuid, err);

	*out = NULL;
	if (rc < 0)
		return rc;
	pack_file(path, st, uuid);
	return ckc_pack_create(st->packs ? st->packs : st->s->sys,
			       st->s->dirfd, path, uuid, st->s->uuid, direct,
			       out, err);
}

/* S2: a sealed, synced pack gets its name, and that name is synced too. */
static int move_pack(struct cks_stage *st, const uint8_t uuid[16],
		     struct ckpt_err *err)
{
	const struct ckb_sys *sys = st->s->sys;
	char from[CKS_STAGE_PATH_BYTES], to[CKS_PACK_PATH_BYTES];
	char folder[CKS_PACK_PATH_BYTES];

	pack_file(from, st, uuid);
	cks_pack_path(to, uuid);
	snprintf(folder, sizeof(folder), "%.*s",
		 (int)(strrchr(to, '/') - to), to);
	/* syncs packs/ also when the folder is there: whoever made it a moment
	 * ago may not have come to that yet */
	int rc = ckb_make_dirs(sys, st->s->dirfd, folder, err);

	if (rc < 0)
		return rc;
	rc = sys->renameat(sys, st->s->dirfd, from, st->s->dirfd, to);
	if (rc < 0)
		return ckb_err_sys(err, -rc, "cannot move pack '%s/%s' to '%s'",
				   st->s->path, from, to);
	return ckb_sync_dir(sys, st->s->dirfd, folder, err);
}

int cks_stage_publish(struct cks_stage *st, struct ckc_pack_writer *w,
		      struct ckpt_err *err)
{
	uint8_t uuid[CKPT_UUID_BYTES];

	memcpy(uuid, ckc_pack_writer_uuid(w), CKPT_UUID_BYTES);
	int rc = ckc_pack_seal(w, err);

	ckc_pack_writer_close(w);
	return rc == 0 ? move_pack(st, uuid, err) : rc;
}

int cks_stage_keeps(const struct cks_stage *st,
		    const struct ckpt_checkpoint *ckpt, struct ckpt_err *err)
{
	const uint8_t *pack;

	for (uint32_t i = 0; (pack = cks_checkpoint_pack(ckpt, i)); i++)
		if (barred_has(&st->condemned, pack, 0))
			return ckb_err(err, CKPT_EBUSY, "gc is at work and is "
				       "about to remove bytes of checkpoint "
				       "'%s'; try again when it is done",
				       ckpt_checkpoint_info(ckpt)->name);
	return 0;
}
