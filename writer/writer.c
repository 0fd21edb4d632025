/* SPDX-License-Identifier: Apache-2.0 */
/*
 * writer.c - a writer: its options, and the queue of its saves.
 *
 * Lives as long as the training run, and so do its staging memory and threads
 * (S9). Saves stand in a queue in the order they were started; all are
 * captured, but only the first one is stored, so commits keep that order. An
 * aborted save leaves from wherever it stands.
 *
 * Lives inside somebody's training job: a writer closed too early is kept, and
 * a note is written; the job goes on.
 */
#include <signal.h>
#include <stdlib.h>
#include <sys/mman.h>

#include "base/limits.h"
#include "base/log.h"
#include "pipeline.h"

static int check_opts(const struct ckpt_writer_opts *o, struct ckpt_err *err)
{
	if (o->size < sizeof(*o))
		return ckb_err(err, CKPT_EINVAL, "ckpt_writer_opts.size is "
			       "%zu, not %zu", o->size, sizeof(*o));
	if (o->codec != CKPT_CODEC_RAW && o->codec != CKPT_CODEC_ZSTD &&
	    o->codec != CKPT_CODEC_PLANES && o->codec != CKPT_CODEC_AUTO)
		return ckb_err(err, CKPT_EINVAL, "ckpt_writer_opts.codec is "
			       "%d, which is none", (int)o->codec);
	if (o->nice < 0 || o->nice > 19)
		return ckb_err(err, CKPT_EINVAL, "ckpt_writer_opts.nice is %d; "
			       "it must be 0 to 19", o->nice);
	if (o->ionice != CKPT_IONICE_NONE &&
	    o->ionice != CKPT_IONICE_BEST_EFFORT &&
	    o->ionice != CKPT_IONICE_IDLE)
		return ckb_err(err, CKPT_EINVAL, "ckpt_writer_opts.ionice is "
			       "%d, which is no class", (int)o->ionice);
	if (o->ionice_level < 0 || o->ionice_level > 7)
		return ckb_err(err, CKPT_EINVAL, "ckpt_writer_opts."
			       "ionice_level is %d; it must be 0 to 7",
			       o->ionice_level);
	if (o->cpu_share > 100)
		return ckb_err(err, CKPT_EINVAL, "ckpt_writer_opts.cpu_share "
			       "is %u percent; at most 100 there are",
			       o->cpu_share);
	if (o->threads > CKB_WRITER_THREADS_MAX)
		return ckb_err(err, CKPT_EINVAL, "ckpt_writer_opts.threads is "
			       "%u; at most %u are supported", o->threads,
			       CKB_WRITER_THREADS_MAX);
	if (o->pack_bytes > CKB_PACK_MAX_BYTES / 2)
		return ckb_err(err, CKPT_EINVAL, "ckpt_writer_opts.pack_bytes "
			       "is %ju; at most %ju are supported",
			       (uintmax_t)o->pack_bytes,
			       (uintmax_t)CKB_PACK_MAX_BYTES / 2);
	return 0;
}

/* A number is not enough: parent and child may both be process 1, of two
 * namespaces. A kernel that does not know MADV_WIPEONFORK leaves it at that. */
static int mark_process(struct ckpt_writer *w, struct ckpt_err *err)
{
	void *page = mmap(NULL, sizeof(*w->own), PROT_READ | PROT_WRITE,
			  MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

	if (page == MAP_FAILED)
		return ckb_err_nomem(err);
	(void)madvise(page, (size_t)sysconf(_SC_PAGESIZE), MADV_WIPEONFORK);
	w->own = page;
	*w->own = 1;
	w->pid = getpid();
	return 0;
}

int ckw_own_process(const struct ckpt_writer *w, struct ckpt_err *err)
{
	pid_t pid = getpid();

	return pid == w->pid && *w->own ? 0
	     : ckb_err(err, CKPT_ESTATE, "the writer was opened by process "
		       "%d and this is %d, a fork of it without its threads",
		       (int)w->pid, (int)pid);
}

bool ckw_foreign(const struct ckpt_writer *w, const char *what)
{
	struct ckpt_err err = { 0 };

	if (ckw_own_process(w, &err) == 0)
		return false;
	ckb_log(CKB_WARN, "%s did nothing: %s", what, err.message);
	return true;
}

int ckw_codec(const struct ckpt_writer *w, struct ckc_codec **out,
	      struct ckpt_err *err)
{
	enum ckf_codec codec =
		w->opts.codec == CKPT_CODEC_RAW	   ? CKF_CODEC_RAW
		: w->opts.codec == CKPT_CODEC_ZSTD ? CKF_CODEC_ZSTD
						   : CKF_CODEC_PLANES;

	return ckc_codec_new(codec, w->opts.zstd_level, out, err);
}

static uint32_t threads_auto(void)
{
	uint32_t n = ckw_processors();

	return n < CKB_WRITER_THREADS_AUTO ? n : CKB_WRITER_THREADS_AUTO;
}

static size_t staging_auto(uint32_t threads)
{
	uint64_t bytes = threads * CKB_STAGING_THREAD_BYTES;

	if (bytes < CKB_STAGING_LEAST_BYTES)
		bytes = CKB_STAGING_LEAST_BYTES;
	return ckb_min_u64(bytes, CKB_STAGING_MOST_BYTES);
}

/* File systems on which direct writes were measured to win (HACKING.md). */
static bool prefers_direct(const struct ckpt_writer *w)
{
	const struct ckb_sys *sys = cks_store_sys(w->store);
	uint64_t magic = 0;

	if (sys->fs_magic(sys, cks_store_dirfd(w->store), &magic) < 0)
		return false;
	return magic == 0xEF53 || magic == 0x58465342; /* ext4, xfs */
}

bool ckw_direct(const struct ckpt_save *s)
{
	const struct ckpt_writer *w = s->writer;

	if (w->opts.io == CKPT_IO_AUTO)
		return w->direct && atomic_load(&s->total) >=
					    CKB_DIRECT_FROM_BYTES;
	return w->opts.io == CKPT_IO_DIRECT;
}

static int make_ready(struct ckpt_writer *w, struct ckpt_err *err)
{
	const struct ckb_sys *sys = cks_store_sys(w->store);
	int rc = sys->random(sys, &w->seed, sizeof(w->seed));

	if (rc < 0)
		return ckb_err_sys(err, -rc, "no random numbers");
	w->direct = prefers_direct(w);
	return ckw_pool_new(w, err);
}

int ckpt_writer_open(struct ckpt_store *store,
		     const struct ckpt_writer_opts *opts,
		     struct ckpt_writer **out, struct ckpt_err *err)
{
	struct ckpt_writer *w;
	int rc = opts ? check_opts(opts, err) : 0;

	*out = NULL;
	if (rc < 0)
		return rc;
	if (cks_store_readonly(store))
		return ckb_err(err, CKPT_EPERM, "store '%s' was opened "
			       "read-only", cks_store_path(store));
	w = calloc(1, sizeof(*w));
	if (!w)
		return ckb_err_nomem(err);
	w->store = store;
	if (opts)
		w->opts = *opts;
	if (w->opts.threads == 0)
		w->opts.threads = threads_auto();
	if (w->opts.staging_bytes == 0)
		w->opts.staging_bytes = staging_auto(w->opts.threads);
	/* two of the largest tiles, and what is around them */
	if (w->opts.staging_bytes < CKB_STAGING_MIN_BYTES)
		w->opts.staging_bytes = CKB_STAGING_MIN_BYTES;
	if (w->opts.zstd_level == 0)
		w->opts.zstd_level = 1;
	if (w->opts.pack_bytes == 0)
		w->opts.pack_bytes = CKB_PACK_BYTES;
	/* a level that zstd does not have is told here, not by every save */
	struct ckc_codec *codec = NULL;

	rc = ckw_codec(w, &codec, err);
	ckc_codec_free(codec);
	if (rc == 0)
		rc = mark_process(w, err);
	if (rc < 0) {
		free(w);
		return rc;
	}
	pthread_mutex_init(&w->lock, NULL);
	pthread_mutex_init(&w->guard_lock, NULL);
	pthread_cond_init(&w->turn_changed, NULL);
	ckw_limit_init(&w->writes, w->opts.write_bytes_per_s,
		       ckw_paced_step(w->opts.write_bytes_per_s));
	ckw_share_init(w);
	rc = make_ready(w, err);
	if (rc < 0) {
		ckpt_writer_close(w);
		return rc;
	}
	*out = w;
	return 0;
}

void ckpt_writer_close(struct ckpt_writer *w)
{
	if (!w || ckw_foreign(w, "ckpt_writer_close()"))
		return;
	pthread_mutex_lock(&w->lock);
	uint32_t open = w->open_saves;

	pthread_mutex_unlock(&w->lock);
	if (open > 0) {
		ckb_log(CKB_ERROR, "a writer was closed with %u saves that "
			"are not freed; it stays", open);
		return;
	}
	ckw_pool_free(w->pool);
	ckw_guard_fini(w);
	ckw_past_unref(w->past);
	pthread_mutex_destroy(&w->lock);
	pthread_mutex_destroy(&w->guard_lock);
	pthread_cond_destroy(&w->turn_changed);
	ckw_limit_fini(&w->writes);
	ckw_limit_fini(&w->cpu);
	munmap(w->own, sizeof(*w->own));
	free(w);
}

/* ---- failures that nobody waited for ---- */

void ckw_note_failure(struct ckpt_save *s, const struct ckpt_err *err)
{
	struct ckpt_writer *w = s->writer;

	if (err->code == CKPT_ECANCELED)
		return;
	pthread_mutex_lock(&w->lock);
	w->failed = *err;
	w->failed_save = s;
	pthread_mutex_unlock(&w->lock);
}

int ckpt_writer_last_error(struct ckpt_writer *w, struct ckpt_err *err)
{
	int rc = ckw_own_process(w, err);

	if (rc < 0)
		return rc;
	pthread_mutex_lock(&w->lock);
	struct ckpt_save *s = w->failed_save;

	rc = s && atomic_load(&s->told) ? 0 : w->failed.code;

	if (rc < 0 && err)
		*err = w->failed;
	if (rc < 0 && s)
		atomic_store(&s->told, true);
	w->failed.code = 0;
	w->failed_save = NULL;
	pthread_mutex_unlock(&w->lock);
	return rc;
}

int ckw_thread(pthread_t *out, const char *name, void *(*fn)(void *arg),
	       void *arg)
{
	/* faults stay with the thread that makes them */
	static const int own[] = { SIGSEGV, SIGBUS, SIGFPE, SIGILL, SIGTRAP,
				   SIGABRT, SIGSYS };
	sigset_t all, before;

	sigfillset(&all);
	for (size_t i = 0; i < CKB_ARRAY_LEN(own); i++)
		sigdelset(&all, own[i]);
	int rc = pthread_sigmask(SIG_SETMASK, &all, &before);

	if (rc != 0)
		return rc;
	rc = pthread_create(out, NULL, fn, arg);
	if (rc == 0)
		(void)pthread_setname_np(*out, name);
	(void)pthread_sigmask(SIG_SETMASK, &before, NULL);
	return rc;
}

/* ---- the queue ---- */

void ckw_queue(struct ckpt_save *s)
{
	struct ckpt_writer *w = s->writer;

	pthread_mutex_lock(&w->lock);
	s->next = NULL;
	if (w->last) {
		w->last->next = s;
	} else {
		w->first = s;
		w->turn_ns = ckw_now_ns();
	}
	w->last = s;
	pthread_mutex_unlock(&w->lock);
}

void ckw_await_turn(struct ckpt_save *s)
{
	struct ckpt_writer *w = s->writer;

	pthread_mutex_lock(&w->lock);
	while (w->first != s && !ckw_aborted(s, NULL))
		pthread_cond_wait(&w->turn_changed, &w->lock);
	pthread_mutex_unlock(&w->lock);
}

void ckw_leave(struct ckpt_save *s)
{
	struct ckpt_writer *w = s->writer;
	struct ckpt_save *before = NULL;

	pthread_mutex_lock(&w->lock);
	for (struct ckpt_save *at = w->first; at != s; at = at->next)
		before = at;
	if (before) {
		before->next = s->next;
	} else {
		w->first = s->next;
		w->turn_ns = ckw_now_ns();
	}
	if (w->last == s)
		w->last = before;
	ckw_pool_wake(w);
	pthread_mutex_unlock(&w->lock);
}
