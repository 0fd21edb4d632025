/* SPDX-License-Identifier: Apache-2.0 */
/*
 * list.c - checkpoints/ as runs and checkpoints.
 *
 * A regular file is a checkpoint, a folder a run. Whatever else lies there,
 * and what has no legal name, is not shown: a log line says so. Symbolic links
 * are never followed: every component of a name is looked at before the next,
 * and a folder is opened with O_NOFOLLOW (S10).
 *
 * A listing is a snapshot, sorted by bytes; what comes and goes meanwhile may
 * or may not be in it. Threads: no state; any.
 */
#include "verbs/store_impl.h"

#include <dirent.h>
#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "base/hash.h"
#include "base/log.h"
#include "format/name.h"

void cks_name_path(char dst[CKS_NAME_PATH_BYTES], const char *name)
{
	snprintf(dst, CKS_NAME_PATH_BYTES, "checkpoints/%s", name);
}

/* ---- what lies at a name ---- */

static bool is_absent(int rc)
{
	return rc == -ENOENT || rc == -ENOTDIR || rc == -ENAMETOOLONG ||
	       rc == -ELOOP;
}

int cks_name_stat(struct ckpt_store *s, const char *name, bool *out_is_run,
		  struct stat *out_stat, struct ckpt_err *err)
{
	char path[CKS_NAME_PATH_BYTES];
	struct stat st;
	int rc = *name ? ckf_checkpoint_name(name, err) : 0;

	if (rc < 0)
		return rc;
	cks_name_path(path, name);
	if (*name == '\0')
		path[strlen("checkpoints")] = '\0'; /* the top itself */
	for (char *at = path + (*name ? strlen("checkpoints/") : 0);;) {
		char *slash = *name ? strchr(at, '/') : NULL;

		if (slash)
			*slash = '\0';
		rc = s->sys->fstatat(s->sys, s->dirfd, path, &st);
		if (is_absent(rc))
			return CKPT_ENOENT;
		if (rc < 0)
			return ckb_err_sys(err, -rc, "cannot look at '%s/%s'",
					   s->path, path);
		if (!slash)
			break;
		if (!S_ISDIR(st.st_mode))
			return CKPT_ENOENT;
		*slash = '/';
		at = slash + 1;
	}
	if (!S_ISDIR(st.st_mode) && !S_ISREG(st.st_mode))
		return CKPT_ENOENT;
	*out_is_run = S_ISDIR(st.st_mode);
	if (out_stat)
		*out_stat = st;
	return 0;
}

/* ---- one folder ---- */

struct name {
	char *text;
	bool is_run;
};

struct names {
	struct ckpt_store *s;
	int fd;
	const char *run;  /* name of the folder, "" for the top */
	struct name *list;
	size_t count, cap;
};

static void names_fini(struct names *n)
{
	for (size_t i = 0; i < n->count; i++)
		free(n->list[i].text);
	free(n->list);
}

/* Log that checkpoints/@name is passed over: once for each open store. */
void cks_name_skip(struct ckpt_store *s, const char *name, const char *why)
{
	size_t len = strlen(name);
	uint64_t h = ckb_xxh3(name, len);
	char q[CKB_QUOTE_BYTES];

	if (atomic_exchange_explicit(&s->told[h % CKB_ARRAY_LEN(s->told)], h,
				     memory_order_relaxed) == h)
		return;
	ckb_log(CKB_WARN, "store '%s': checkpoints/%s is passed over: %s",
		s->path, ckb_quote(q, sizeof(q), name, len), why);
}

enum kind { CHECKPOINT, RUN, NEITHER };

/* enum kind, or a negative errno. */
static int kind_of(const struct names *n, const char *name,
		   unsigned char type)
{
	struct stat st;

	if (type == DT_DIR)
		return RUN;
	if (type == DT_REG)
		return CHECKPOINT;
	if (type != DT_UNKNOWN)
		return NEITHER;
	int rc = n->s->sys->fstatat(n->s->sys, n->fd, name, &st);

	if (rc < 0)
		return rc;
	return S_ISDIR(st.st_mode) ? RUN :
	       S_ISREG(st.st_mode) ? CHECKPOINT : NEITHER;
}

static int names_put(struct names *n, const char *name, bool is_run)
{
	if (!ckb_room(&n->list, n->count, &n->cap, sizeof(*n->list)))
		return -ENOMEM;
	char *text = strdup(name);

	if (!text)
		return -ENOMEM;
	n->list[n->count++] = (struct name){ text, is_run };
	return 0;
}

static int names_add(void *ctx, const char *name, unsigned char type)
{
	struct names *n = ctx;
	char whole[2 * CKB_NAME_MAX];
	int len = snprintf(whole, sizeof(whole), "%s%s%s", n->run,
			   n->run[0] ? "/" : "", name);
	struct ckpt_err why = { 0 };

	if (len < 0 || (size_t)len >= sizeof(whole) ||
	    ckf_checkpoint_name(whole, &why) < 0) {
		cks_name_skip(n->s, whole,
		     why.code ? why.message : "its name is too long");
		return 0;
	}
	int kind = kind_of(n, name, type);

	if (kind == -ENOENT)
		return 0; /* removed meanwhile */
	if (kind < 0)
		return kind;
	if (kind == NEITHER) {
		cks_name_skip(n->s, whole, "it is neither a file nor a folder");
		return 0;
	}
	return names_put(n, name, kind == RUN);
}

static int by_bytes(const void *a, const void *b)
{
	const struct name *x = a, *y = b;

	return strcmp(x->text, y->text);
}

/* Fill @n with the sorted names of run @n->run. */
static int names_read(struct names *n, struct ckpt_err *err)
{
	const struct ckb_sys *sys = n->s->sys;
	char path[CKS_NAME_PATH_BYTES];
	bool top = n->run[0] == '\0';

	cks_name_path(path, n->run);
	n->fd = sys->openat(sys, n->s->dirfd, top ? "checkpoints" : path,
			    O_RDONLY | O_DIRECTORY | O_NOFOLLOW, 0);
	/* copies that leave out empty folders lose checkpoints/ itself */
	if (top && n->fd == -ENOENT)
		return 0;
	if (!top && is_absent(n->fd))
		return CKPT_ENOENT;
	if (n->fd < 0)
		return ckb_err_sys(err, -n->fd, "cannot open folder '%s/%s'",
				   n->s->path, path);
	int rc = sys->list(sys, n->fd, ".", names_add, n);

	sys->close(sys, n->fd);
	if (rc == -ENOMEM)
		return ckb_err_nomem(err);
	if (rc < 0)
		return ckb_err_sys(err, -rc, "cannot read folder '%s/%s'",
				   n->s->path, path);
	if (n->count > 0)
		qsort(n->list, n->count, sizeof(*n->list), by_bytes);
	return 0;
}

int ckpt_store_list(struct ckpt_store *s, const char *run, ckpt_list_fn fn,
		    void *ctx, struct ckpt_err *err)
{
	CKB_CLEANUP(names_fini) struct names n = { .s = s, .run = run };
	bool is_run = true;
	struct stat st;
	int rc = 0;

	CKB_REQUIRE(s && run && fn);
	if (run[0])
		rc = cks_name_stat(s, run, &is_run, &st, err);
	if (rc == 0)
		rc = is_run ? names_read(&n, err) : CKPT_ENOENT;
	if (rc == CKPT_ENOENT)
		return ckb_err(err, rc, "there is no run '%s' in store '%s'",
			       run, s->path);
	for (size_t i = 0; rc == 0 && i < n.count; i++)
		rc = fn(ctx, n.list[i].text, n.list[i].is_run);
	return rc;
}

/* ---- all of them ---- */

struct walk {
	struct ckpt_store *s;
	cks_walk_fn fn;
	cks_unread_fn unread;
	void *ctx;
	struct ckpt_err *err;
	char name[CKB_NAME_MAX + 1]; /* of the folder being walked */
};

/* Depth is bounded by CKB_NAME_MAX: a level takes two bytes of the name. */
static int walk_folder(struct walk *w)
{
	CKB_CLEANUP(names_fini) struct names n = { .s = w->s, .run = w->name };
	struct ckpt_err why = { 0 };
	size_t len = strlen(w->name);
	int rc = names_read(&n, &why);

	if (rc == CKPT_ENOENT)
		return 0; /* removed meanwhile */
	if (rc == CKPT_EPERM && w->unread) {
		w->unread(w->ctx, w->name, &why);
		return 0;
	}
	if (rc < 0 && w->err)
		*w->err = why;
	for (size_t i = 0; rc == 0 && i < n.count; i++) {
		snprintf(w->name + len, sizeof(w->name) - len, "%s%s",
			 len ? "/" : "", n.list[i].text);
		rc = n.list[i].is_run ? walk_folder(w)
				      : w->fn(w->ctx, w->name);
		w->name[len] = '\0';
	}
	return rc;
}

int cks_store_walk(struct ckpt_store *s, cks_walk_fn fn,
		   cks_unread_fn unread, void *ctx, struct ckpt_err *err)
{
	struct walk w = { .s = s, .fn = fn, .unread = unread, .ctx = ctx,
			  .err = err };

	return walk_folder(&w);
}
