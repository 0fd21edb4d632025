/* SPDX-License-Identifier: Apache-2.0 */
/*
 * import.c - ckpt_import(): what lies at the path, and the save around it.
 *
 *	detect -> the format reads and checks -> begin -> describe
 *	       -> start -> wait, telling progress
 *
 * Headers are checked whole before the save is begun, so a bad source leaves
 * nothing behind; whatever fails later fails the save. Bytes come from
 * providers over source.c, which stop a source that changes meanwhile.
 *
 * Memory: names and shapes of all tensors, one header at a time, what a format
 * says of itself, and the writer's own (S9). Threads: the caller's, and while a
 * progress function is given one that waits for the save, so that progress
 * comes from the caller's thread.
 */
#include "import.h"

#include <errno.h>
#include <pthread.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <time.h>

#include "base/text.h"
#include "save.h"

#define PROGRESS_NS 200000000L /* five times a second */
#define BASE_NAME_MAX 200u

/* ---- for the formats ---- */

static int add_item(struct ckw_import *im, const char *name,
		    enum ckpt_item_kind kind, const char *separator,
		    const char *metadata, uint32_t *out, struct ckpt_err *err)
{
	const struct ckpt_item_desc desc = {
		.size = sizeof(desc),
		.name = name,
		.kind = kind,
		.separator = separator,
		.metadata = metadata,
	};

	return ckpt_save_item(im->save, &desc, out, err);
}

int ckw_import_begin(struct ckw_import *im, const char *separator,
		     const char *item_metadata, struct ckpt_err *err)
{
	const struct ckpt_import_opts *opts = im->opts;
	const struct ckpt_save_desc desc = {
		.size = sizeof(desc),
		.name = im->name,
		.has_step = opts->has_step,
		.step = opts->step,
		.metadata = opts->metadata,
		.replace = opts->replace,
	};
	int rc = ckpt_save_begin(im->writer, &desc, &im->save, err);

	if (rc == 0)
		rc = add_item(im, opts->item ? opts->item : "model",
			      CKPT_ITEM_TENSORS, separator, item_metadata,
			      &im->item, err);
	return rc;
}

int ckw_import_origin(struct ckw_import *im, struct ckw_input *in,
		      const char *name, uint64_t len, const char *media_type,
		      struct ckpt_err *err)
{
	struct ckpt_provider provider;
	int rc = 0;

	if (!im->has_origin)
		rc = add_item(im, "@orig", CKPT_ITEM_ORIGIN, "", NULL,
			      &im->origin, err);
	if (rc == 0)
		rc = ckw_input_provider(in, 0, &provider, err);
	if (rc < 0)
		return rc;
	im->has_origin = true;
	return ckpt_save_file(im->save, im->origin, name, media_type, len,
			      &provider, err);
}

static const char *media_type_of(const char *name)
{
	static const struct {
		const char *end, *type;
	} types[] = {
		{ ".json", "application/json" },
		{ ".jsonl", "application/jsonl" },
		{ ".md", "text/markdown" },
		{ ".txt", "text/plain" },
		{ ".jinja", "text/plain" },
		{ ".py", "text/x-python" },
		{ ".yaml", "application/yaml" },
		{ ".yml", "application/yaml" },
		{ ".png", "image/png" },
		{ ".jpg", "image/jpeg" },
		{ ".safetensors", "application/x-safetensors" },
	};

	for (size_t i = 0; i < CKB_ARRAY_LEN(types); i++)
		if (ckw_ends_with(name, types[i].end))
			return types[i].type;
	return "application/octet-stream";
}

int ckw_import_asset(struct ckw_import *im, struct ckw_input *in,
		     const char *name, struct ckpt_err *err)
{
	struct ckpt_provider provider;
	uint64_t size = 0;
	int rc = ckw_input_size(in, &size, err);

	if (rc == 0)
		rc = ckw_input_no_lfs(in, err);
	if (rc == 0 && !im->has_assets)
		rc = add_item(im, "assets", CKPT_ITEM_FILES, NULL, NULL,
			      &im->assets, err);
	if (rc == 0)
		rc = ckw_input_provider(in, 0, &provider, err);
	if (rc < 0)
		return rc;
	im->has_assets = true;
	im->result.file_count++;
	return ckpt_save_file(im->save, im->assets, name, media_type_of(name),
			      size, &provider, err);
}

void ckw_import_note(const struct ckw_import *im, const char *fmt, ...)
{
	char raw[CKPT_ERR_MESSAGE_BYTES], text[CKPT_ERR_MESSAGE_BYTES];
	va_list ap;

	if (!im->opts->on_note)
		return;
	va_start(ap, fmt);
	vsnprintf(raw, sizeof(raw), fmt, ap);
	va_end(ap);
	/* one line, whatever names it holds */
	im->opts->on_note(im->opts->ctx, ckb_quote(text, sizeof(text), raw,
						   strlen(raw)));
}

const char *ckw_import_base(const struct ckw_import *im,
			    const char *otherwise)
{
	const char *slash = strrchr(im->path, '/');
	const char *name = slash ? slash + 1 : im->path;
	size_t len = strlen(name);
	bool good = len > 0 && len <= BASE_NAME_MAX && name[0] != '.' &&
		    name[0] != '@' && ckb_utf8_ok(name, len);

	for (size_t i = 0; good && i < len; i++)
		good = (unsigned char)name[i] >= 32 && name[i] != 127;
	return good ? name : otherwise;
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

/* Non-zero: the caller wants no more of it. */
static int report(const struct ckw_import *im)
{
	struct ckpt_save_progress now;

	ckpt_save_progress(im->save, &now);
	return im->opts->on_progress(im->opts->ctx, &now);
}

/* The save is waited for by a thread, as its end has no time-out; progress is
 * told from this one, so that the caller's function needs no lock. */
static int wait_with_progress(struct ckw_import *im, struct ckpt_err *err)
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
			if (report(im) != 0)
				ckpt_save_abort(im->save);
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
		(void)report(im); /* too late to end it */
	return rc;
}

static int save(struct ckw_import *im, struct ckpt_err *err)
{
	int rc = ckpt_save_start(im->save, err);

	if (rc < 0)
		return rc;
	if (im->opts->on_progress)
		return wait_with_progress(im, err);
	return ckpt_save_wait(im->save, CKPT_DURABLE, err);
}

/* ---- what is it? ---- */

/* By its first bytes, unless its name says what it should be; what is nothing
 * else is taken for safetensors, whose reader names the other formats. */
static int describe_file(struct ckw_import *im, struct ckpt_err *err)
{
	struct ckw_input *in;
	uint64_t size = 0;
	char first[6] = "";
	int rc = ckw_input_new(&im->inputs, im->path, &in, err);

	if (rc == 0)
		rc = ckw_input_size(in, &size, err);
	if (rc == 0)
		rc = ckw_input_read(in, 0, first,
				    (size_t)ckb_min_u64(size, sizeof(first)),
				    err);
	if (rc < 0)
		return rc;
	if (ckw_ends_with(im->path, ".safetensors"))
		return ckw_import_safetensors(im, in, err);
	if (memcmp(first, "\223NUMPY", 6) == 0 ||
	    ckw_ends_with(im->path, ".npy"))
		return ckw_import_npy(im, in, err);
	if (memcmp(first, "PK\003\004", 4) == 0 ||
	    memcmp(first, "PK\005\006", 4) == 0)
		return ckw_import_npz(im, in, err);
	return ckw_import_safetensors(im, in, err);
}

static int describe(struct ckw_import *im, struct ckpt_err *err)
{
	const struct ckb_sys *sys = im->inputs.sys;
	int fd = sys->openat(sys, AT_FDCWD, im->path, O_PATH | O_DIRECTORY, 0);

	/* a path that leads nowhere is reported when it is opened */
	if (fd < 0)
		return describe_file(im, err);
	sys->close(sys, fd);
	return ckw_import_folder(im, err);
}

int ckpt_import(struct ckpt_writer *writer, const char *path,
		const char *name, const struct ckpt_import_opts *opts,
		struct ckpt_import_result *out, struct ckpt_err *err)
{
	static const struct ckpt_import_opts none = { .size = sizeof(none) };
	struct ckw_import im = {
		.writer = writer, .path = path, .name = name,
		.opts = opts ? opts : &none,
		.inputs.sys = cks_store_sys(writer->store),
	};
	int rc;

	if (im.opts->size < sizeof(none))
		return ckb_err(err, CKPT_EINVAL, "ckpt_import_opts.size is "
			       "%zu, not %zu", im.opts->size, sizeof(none));
	rc = describe(&im, err);
	if (rc == 0)
		rc = save(&im, err);
	if ((rc == 0 || rc == CKPT_EUNSURE) && out) {
		ckpt_save_progress(im.save, &im.result.progress);
		*out = im.result;
	}
	ckpt_save_free(im.save); /* first: it may still read */
	if (im.state)
		im.state_free(im.state);
	ckw_inputs_fini(&im.inputs);
	return rc;
}
