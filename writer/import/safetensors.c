/* SPDX-License-Identifier: Apache-2.0 */
/*
 * safetensors.c - import of one safetensors file, over the public writer API.
 *
 *	open, fstat -> header: length, bytes, parsed -> describe -> save
 *
 * The header is checked whole before anything is described, so a bad file
 * leaves nothing behind. Only regular files are read: a FIFO or a folder is
 * refused at once, never waited for.
 *
 * A source that changes while it is read must not become a checkpoint, and a
 * look at the end would come late: publishing follows capture without asking.
 * So tensors come from a provider of our own, which compares size and mtime
 * after each read and before it hands the bytes on. Whatever is captured was
 * read before a look that found the file as it was at the start; a change
 * after the last read touches no byte that is saved. (A writer with the file
 * mapped, or within one tick of the file system's clock, can escape the mtime;
 * nothing but a lock that all obey could tell.)
 *
 * Memory: the header's bytes, what st_store.c allows, 16 bytes a tensor, and
 * the writer's own (S9). Threads: the caller's, and while a progress function
 * is given one that waits for the save, so that progress comes from the
 * caller's thread.
 */
#include <errno.h>
#include <inttypes.h>
#include <pthread.h>
#include <string.h>
#include <time.h>

#include <ckpt/writer.h>

#include "base/buf.h"
#include "base/limits.h"
#include "base/sys.h"
#include "base/text.h"
#include "foreign/safetensors.h"
#include "format/config.h"

#define PROGRESS_NS 200000000L /* five times a second */
#define ORIGIN_ITEM "@orig"
#define ORIGIN_MEDIA_TYPE "application/x-safetensors-header"
#define ORIGIN_NAME_MAX 200u

/* The open file, as it was when its header was read. Never changed after. */
struct source {
	const struct ckb_sys *sys;
	const char *path;
	int fd;
	struct stat st;
};

/* Where one tensor's bytes begin in it. */
struct part {
	const struct source *source;
	uint64_t off;
};

struct import {
	struct source source;
	uint8_t *head;      /* 8 + N bytes: the length and the JSON */
	struct ckx_st st;   /* points into head */
	struct part *parts; /* one per tensor */
	struct ckpt_save *save;
	uint64_t alias_count;
};

/* ---- the source ---- */

static bool same_time(const struct timespec *a, const struct timespec *b)
{
	return a->tv_sec == b->tv_sec && a->tv_nsec == b->tv_nsec;
}

static int changed(const struct source *s, struct ckpt_err *err)
{
	return ckb_err(err, CKPT_EIO, "'%s' was changed while it was being "
		       "read; import it again when it is complete", s->path);
}

static int source_check(const struct source *s, struct ckpt_err *err)
{
	struct stat now;
	int rc = s->sys->fstat(s->sys, s->fd, &now);

	if (rc < 0)
		return ckb_err_sys(err, -rc, "cannot read '%s'", s->path);
	if (now.st_size != s->st.st_size ||
	    !same_time(&now.st_mtim, &s->st.st_mtim))
		return changed(s, err);
	return 0;
}

/* Bytes of the file that were there in a file that had not changed. */
static int source_read(const struct source *s, uint64_t off, void *dst,
		       size_t len, struct ckpt_err *err)
{
	int rc = ckb_pread_full(s->sys, s->fd, dst, len, off, s->path, err);

	if (rc == CKPT_ECORRUPT) /* it ends early, so it was cut */
		return changed(s, err);
	return rc < 0 ? rc : source_check(s, err);
}

static int part_read(void *ctx, uint64_t off, void *dst, size_t len,
		     struct ckpt_err *err)
{
	const struct part *p = ctx;

	return source_read(p->source, p->off + off, dst, len, err);
}

static const struct ckpt_provider_ops part_ops = {
	.size = sizeof(part_ops),
	.read = part_read,
};

static const char *kind_of(mode_t mode)
{
	return S_ISDIR(mode) ? "a folder"
	     : S_ISFIFO(mode) ? "a FIFO"
	     : S_ISSOCK(mode) ? "a socket"
	     : "a device";
}

static int source_open(struct source *s, const char *path,
		       struct ckpt_err *err)
{
	int rc;

	s->sys = ckb_sys_real();
	s->path = path;
	/* O_NONBLOCK: a FIFO without a writer would block here for ever */
	s->fd = s->sys->openat(s->sys, AT_FDCWD, path, O_RDONLY | O_NONBLOCK,
			       0);
	if (s->fd < 0)
		return ckb_err_sys(err, -s->fd, "cannot open '%s'", path);
	rc = s->sys->fstat(s->sys, s->fd, &s->st);
	if (rc < 0)
		return ckb_err_sys(err, -rc, "cannot read '%s'", path);
	if (!S_ISREG(s->st.st_mode))
		return ckb_err(err, CKPT_EINVAL, "'%s' is %s, not a regular "
			       "file", path, kind_of(s->st.st_mode));
	return 0;
}

/* ---- the header ---- */

static int read_head(struct import *im, uint64_t *out_len,
		     struct ckpt_err *err)
{
	uint8_t first[CKX_ST_SNIFF_BYTES];
	uint64_t file_len = (uint64_t)im->source.st.st_size;
	size_t len = (size_t)ckb_min_u64(file_len, sizeof(first));
	int rc = source_read(&im->source, 0, first, len, err);

	if (rc < 0)
		return rc;
	rc = ckx_st_header_len(first, len, file_len, out_len, err);
	if (rc < 0)
		return ckb_err_prefix(err, rc, "'%s'", im->source.path);
	im->head = malloc((size_t)*out_len + 8);
	if (!im->head)
		return ckb_err_nomem(err);
	return source_read(&im->source, 0, im->head, (size_t)*out_len + 8,
			   err);
}

static int parse_head(struct import *im, struct ckpt_err *err)
{
	uint64_t len = 0;
	int rc = read_head(im, &len, err);

	if (rc < 0)
		return rc;
	rc = ckx_st_parse(&im->st, (const char *)im->head + 8, (size_t)len,
			  (uint64_t)im->source.st.st_size, err);
	if (rc < 0)
		return ckb_err_prefix(err, rc, "'%s'", im->source.path);
	im->parts = calloc(im->st.tensor_count + 1, sizeof(*im->parts));
	return im->parts ? 0 : ckb_err_nomem(err);
}

/* __metadata__ as a JSON object, in the file's order. */
static void put_metadata(const struct ckx_st *st, struct ckb_buf *out)
{
	for (size_t i = 0; i < st->pair_count; i++) {
		const struct ckx_st_pair *p = &st->pairs[i];

		ckb_buf_puts(out, i ? ", " : "{");
		ckf_json_string(out, p->key, p->key_len);
		ckb_buf_puts(out, ": ");
		ckf_json_string(out, p->value, p->value_len);
	}
	ckb_buf_puts(out, st->pair_count ? "}" : "{}");
}

/* ---- describing ---- */

static void fill_desc(struct ckpt_tensor_desc *d,
		      const struct ckx_st_tensor *t)
{
	memset(d, 0, sizeof(*d));
	d->size = sizeof(*d);
	d->name = t->name_len ? t->name : "";
	d->name_len = t->name_len;
	d->dtype = (enum ckpt_dtype)t->dtype;
	d->shape.ndim = t->ndim;
	memcpy(d->shape.dim, t->dim, t->ndim * sizeof(t->dim[0]));
}

static int add_tensors(struct import *im, uint32_t item, struct ckpt_err *err)
{
	int rc = 0;

	for (size_t i = 0; rc == 0 && i < im->st.tensor_count; i++) {
		const struct ckx_st_tensor *t = &im->st.tensors[i];
		struct ckpt_provider provider = { &part_ops, &im->parts[i] };
		struct ckpt_tensor_desc desc;

		im->parts[i].source = &im->source;
		im->parts[i].off = im->st.data_off + t->begin;
		fill_desc(&desc, t);
		rc = ckpt_save_tensor(im->save, item, &desc,
				      t->end > t->begin ? &provider : NULL,
				      err);
	}
	return rc;
}

/* safetensors.torch.save_model keeps one of several tied tensors and notes
 * "dropped": "kept" for each other. */
static int add_aliases(struct import *im, uint32_t item, struct ckpt_err *err)
{
	int rc = 0;

	for (size_t i = 0; rc == 0 && i < im->st.pair_count; i++) {
		const struct ckx_st_pair *p = &im->st.pairs[i];
		const struct ckx_st_tensor *kept;
		struct ckpt_tensor_desc desc;

		if (p->key_len > CKB_TENSOR_NAME_MAX ||
		    (p->key_len == 6 && memcmp(p->key, "format", 6) == 0) ||
		    ckx_st_find(&im->st, p->key, p->key_len))
			continue;
		kept = ckx_st_find(&im->st, p->value, p->value_len);
		if (!kept)
			continue;
		fill_desc(&desc, kept);
		desc.name = p->key_len ? p->key : "";
		desc.name_len = p->key_len;
		desc.alias_of = kept->name_len ? kept->name : "";
		desc.alias_of_len = kept->name_len;
		rc = ckpt_save_tensor(im->save, item, &desc, NULL, err);
		im->alias_count++;
	}
	return rc;
}

static int add_model(struct import *im, const char *name,
		     struct ckpt_err *err)
{
	CKB_BUF struct ckb_buf metadata = { 0 };
	struct ckpt_item_desc desc = {
		.size = sizeof(desc),
		.name = name ? name : "model",
		.kind = CKPT_ITEM_TENSORS,
		.separator = ".",
	};
	uint32_t item = 0;
	int rc;

	if (im->st.has_metadata) {
		put_metadata(&im->st, &metadata);
		if (metadata.failed)
			return ckb_err_nomem(err);
		desc.metadata = (const char *)metadata.data;
	}
	rc = ckpt_save_item(im->save, &desc, &item, err);
	if (rc == 0)
		rc = add_tensors(im, item, err);
	if (rc == 0)
		rc = add_aliases(im, item, err);
	return rc;
}

/* The path's last component, when a name in a store may look like that. */
static const char *origin_name(const char *path)
{
	const char *slash = strrchr(path, '/'), *name = slash ? slash + 1
							      : path;
	size_t len = strlen(name);
	bool good = len > 0 && len <= ORIGIN_NAME_MAX && name[0] != '.' &&
		    name[0] != '@' && ckb_utf8_ok(name, len);

	for (size_t i = 0; good && i < len; i++)
		good = (unsigned char)name[i] >= 32 && name[i] != 127;
	return good ? name : "model.safetensors";
}

/* The header as it is in the file: with it and the tensors a later reader can
 * show the file byte for byte. */
static int add_origin(struct import *im, struct ckpt_err *err)
{
	const struct ckpt_item_desc desc = {
		.size = sizeof(desc),
		.name = ORIGIN_ITEM,
		.kind = CKPT_ITEM_ORIGIN,
		.separator = "",
	};
	struct ckpt_provider provider;
	uint32_t item = 0;
	int rc = ckpt_save_item(im->save, &desc, &item, err);

	if (rc == 0)
		rc = ckpt_provider_host(im->head, im->st.data_off, &provider,
					err);
	if (rc < 0)
		return rc;
	return ckpt_save_file(im->save, item, origin_name(im->source.path),
			      ORIGIN_MEDIA_TYPE, im->st.data_off, &provider,
			      err);
}

static int describe(struct import *im, struct ckpt_writer *writer,
		    const char *name, const struct ckpt_import_opts *opts,
		    struct ckpt_err *err)
{
	const struct ckpt_save_desc desc = {
		.size = sizeof(desc),
		.name = name,
		.has_step = opts->has_step,
		.step = opts->step,
		.metadata = opts->metadata,
		.replace = opts->replace,
	};
	int rc = ckpt_save_begin(writer, &desc, &im->save, err);

	if (rc == 0)
		rc = add_model(im, opts->item, err);
	if (rc == 0)
		rc = add_origin(im, err);
	return rc;
}

/* ---- saving ---- */

struct waiter {
	struct ckpt_save *save;
	pthread_mutex_t lock;
	pthread_cond_t ended; /* on the monotonic clock */
	bool done;            /* guard: lock */
	int rc;               /* of the wait; read after the join */
	struct ckpt_err err;
};

static void *wait_for_save(void *arg)
{
	struct waiter *w = arg;

	w->rc = ckpt_save_wait(w->save, CKPT_DURABLE, &w->err);
	pthread_mutex_lock(&w->lock);
	w->done = true;
	pthread_cond_signal(&w->ended);
	pthread_mutex_unlock(&w->lock);
	return NULL;
}

/* Wait up to PROGRESS_NS. Is the save over? */
static bool wait_a_little(struct waiter *w)
{
	struct timespec until;
	bool done;
	int rc = 0;

	clock_gettime(CLOCK_MONOTONIC, &until);
	until.tv_nsec += PROGRESS_NS;
	if (until.tv_nsec >= 1000000000L) {
		until.tv_nsec -= 1000000000L;
		until.tv_sec++;
	}
	pthread_mutex_lock(&w->lock);
	while (!w->done && rc != ETIMEDOUT)
		rc = pthread_cond_timedwait(&w->ended, &w->lock, &until);
	done = w->done;
	pthread_mutex_unlock(&w->lock);
	return done;
}

static void report(const struct import *im,
		   const struct ckpt_import_opts *opts)
{
	struct ckpt_save_progress now;

	ckpt_save_progress(im->save, &now);
	opts->on_progress(opts->ctx, &now);
}

/* The save is waited for by a thread, as its end has no time-out; progress is
 * told from this one, so that the caller's function needs no lock. */
static int wait_with_progress(struct import *im,
			      const struct ckpt_import_opts *opts,
			      struct ckpt_err *err)
{
	struct waiter w = { .save = im->save };
	pthread_condattr_t attr;
	pthread_t thread;
	int rc;

	pthread_condattr_init(&attr);
	pthread_condattr_setclock(&attr, CLOCK_MONOTONIC);
	pthread_mutex_init(&w.lock, NULL);
	pthread_cond_init(&w.ended, &attr);
	rc = pthread_create(&thread, NULL, wait_for_save, &w);
	if (rc == 0) {
		while (!wait_a_little(&w))
			report(im, opts);
		pthread_join(thread, NULL);
		rc = w.rc;
		if (rc < 0 && err)
			*err = w.err;
	} else { /* then without progress */
		rc = ckpt_save_wait(im->save, CKPT_DURABLE, err);
	}
	pthread_cond_destroy(&w.ended);
	pthread_mutex_destroy(&w.lock);
	pthread_condattr_destroy(&attr);
	if (rc == 0)
		report(im, opts);
	return rc;
}

static int save(struct import *im, const struct ckpt_import_opts *opts,
		struct ckpt_err *err)
{
	int rc = ckpt_save_start(im->save, err);

	if (rc < 0)
		return rc;
	if (opts->on_progress)
		return wait_with_progress(im, opts, err);
	return ckpt_save_wait(im->save, CKPT_DURABLE, err);
}

static void import_fini(struct import *im)
{
	ckpt_save_free(im->save); /* first: it may still read */
	ckx_st_fini(&im->st);
	free(im->parts);
	free(im->head);
	if (im->source.fd >= 0)
		im->source.sys->close(im->source.sys, im->source.fd);
}

int ckpt_import_safetensors(struct ckpt_writer *writer, const char *path,
			    const char *name,
			    const struct ckpt_import_opts *opts,
			    struct ckpt_import_result *out,
			    struct ckpt_err *err)
{
	static const struct ckpt_import_opts none = { .size = sizeof(none) };
	struct import im = { .source = { .fd = -1 } };
	int rc = source_open(&im.source, path, err);

	if (!opts)
		opts = &none;
	if (rc == 0)
		rc = parse_head(&im, err);
	if (rc == 0)
		rc = describe(&im, writer, name, opts, err);
	if (rc == 0)
		rc = save(&im, opts, err);
	if ((rc == 0 || rc == CKPT_EUNSURE) && out) {
		out->tensor_count = im.st.tensor_count + im.alias_count;
		out->alias_count = im.alias_count;
		ckpt_save_progress(im.save, &out->progress);
	}
	import_fini(&im);
	return rc;
}
