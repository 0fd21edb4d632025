/* SPDX-License-Identifier: Apache-2.0 */
/*
 * mount.c - the daemon's life: check, fork, mount, serve, unmount.
 *
 * In the background the caller forks first, before any thread or descriptor
 * exists; the child does everything and reports through a pipe: one byte when
 * INIT has come (from then on the mount answers), or its error. So `mount`
 * returns 0 only for a mount that works. SIGTERM, SIGINT and SIGHUP end the
 * loop (sweep.c takes them), and the mount is taken down on every way out, but
 * never another that came on top of it or in its place.
 *
 * Notes go to stderr in the foreground, else to syslog, at most LOG_BURST a
 * minute, so that a scan over a damaged store does not flood the log.
 */
#include "mount/internal.h"

#include <errno.h>
#include <malloc.h>
#include <pthread.h>
#include <signal.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <syslog.h>
#include <time.h>

#include "base/log.h"

#define LOG_BURST 100
#define THREADS_DEFAULT 16

struct daemon {
	const struct ckm_opts *opts;
	char *point;            /* real path of the mount point */
	int report_fd;          /* to the waiting parent; -1: none */
	struct ckm_fs fs;
	struct fuse_session *session;
	struct ckm_sweep *sweep;
	sigset_t stops;         /* signals that end it */
	sigset_t mask;          /* as it was before these were blocked */
};

/* ---- notes ---- */

struct notes {
	bool foreground;
	bool serving;           /* set once, before libfuse's threads start */
	atomic_llong minute;    /* relaxed: a lost note more or less is fine */
	atomic_int count;
};
static struct notes notes;

static void note(void *ctx, enum ckb_level level, const char *text)
{
	static const int priority[] = { LOG_ERR, LOG_WARNING, LOG_INFO,
					LOG_DEBUG };
	struct notes *n = ctx;
	long long minute = (long long)time(NULL) / 60;

	if (level == CKB_DEBUG)
		return;
	if (atomic_exchange_explicit(&n->minute, minute,
				     memory_order_relaxed) != minute)
		atomic_store_explicit(&n->count, 0, memory_order_relaxed);
	int count = atomic_fetch_add_explicit(&n->count, 1,
					      memory_order_relaxed);

	if (count > LOG_BURST)
		return;
	if (count == LOG_BURST)
		text = "too many notes; the rest of this minute is dropped";
	if (n->foreground)
		fprintf(stderr, "ckptfs: %s\n", text);
	else
		syslog(priority[level], "%s", text);
}

/* ---- telling the parent ---- */

static void report(struct daemon *d, const struct ckpt_err *err)
{
	char byte = 0;

	if (d->report_fd < 0)
		return;
	ssize_t n = err ? write(d->report_fd, err, sizeof(*err))
			: write(d->report_fd, &byte, 1);

	(void)n; /* the parent is gone: nobody to tell */
	close(d->report_fd);
	d->report_fd = -1;
}

static void on_ready(void *ctx)
{
	struct daemon *d = ctx;

	ckb_log(CKB_INFO, "mounted '%s' on '%s' (libfuse %s)", d->opts->store,
		d->point, fuse_pkgversion());
	report(d, NULL);
	if (d->opts->foreground)
		ckm_notify("READY=1");
}

/* ---- serving ---- */

/* The last thing libfuse said: why it refused, for our sentence. Written and
 * read before `serving`, by one thread; later it only goes to the log. */
static char fuse_said[200];

static void fuse_says(enum fuse_log_level level, const char *fmt, va_list ap)
{
	char text[sizeof(fuse_said)];

	vsnprintf(text, sizeof(text), fmt, ap);
	text[strcspn(text, "\n")] = '\0';
	if (!notes.serving)
		memcpy(fuse_said, text, sizeof(text));
	else
		ckb_log(level <= FUSE_LOG_ERR ? CKB_ERROR : CKB_INFO, "%s",
			text);
}

static void nothing(int signal)
{
	(void)signal;
}

/* From here on they wait for the sweep's thread. One that was ignored when the
 * program began stays so (nohup). */
static void signals_hold(struct daemon *d)
{
	static const int stops[] = { SIGTERM, SIGINT, SIGHUP };
	struct sigaction wake = { .sa_handler = nothing }, before;

	sigemptyset(&d->stops);
	for (size_t i = 0; i < CKB_ARRAY_LEN(stops); i++)
		if (sigaction(stops[i], NULL, &before) == 0 &&
		    before.sa_handler != SIG_IGN)
			sigaddset(&d->stops, stops[i]);
	pthread_sigmask(SIG_BLOCK, &d->stops, &d->mask);
	sigaction(CKM_WAKE, &wake, NULL);
	signal(SIGPIPE, SIG_IGN);
}

/* A second one while it ended asked for no more than that. */
static void signals_release(struct daemon *d)
{
	const struct timespec now = { 0 };

	while (sigtimedwait(&d->stops, NULL, &now) > 0)
		;
	pthread_sigmask(SIG_SETMASK, &d->mask, NULL);
}

/* fsname ends at a comma in a mount option: escape it and the backslash. */
static char *mount_options(const struct ckm_opts *opts)
{
	CKB_BUF struct ckb_buf b = { 0 };
	const char *source = opts->fsname ? opts->fsname : opts->store;

	ckb_buf_puts(&b, "ro,nosuid,nodev,noatime,default_permissions,"
			 "subtype=ckptfs");
	if (opts->allow_other)
		ckb_buf_puts(&b, ",allow_other");
	if (opts->noexec)
		ckb_buf_puts(&b, ",noexec");
	ckb_buf_puts(&b, ",fsname=");
	for (const char *p = source; *p; p++) {
		if (*p == ',' || *p == '\\')
			ckb_buf_putc(&b, '\\');
		ckb_buf_putc(&b, *p);
	}
	return b.failed ? NULL : (char *)CKB_TAKE(b.data);
}

static int session_open(struct daemon *d, struct ckpt_err *err)
{
	CKB_FREE char *options = mount_options(d->opts);
	char *argv[] = { "ckptfs", "-o", options, NULL };
	struct fuse_args args = FUSE_ARGS_INIT(3, argv);

	if (!options)
		return ckb_err_nomem(err);
	fuse_set_log_func(fuse_says);
	const struct fuse_lowlevel_ops *ops = ckm_ops(d->opts->xattr);

	d->session = fuse_session_new(&args, ops, sizeof(*ops), &d->fs);
	fuse_opt_free_args(&args);
	if (!d->session)
		return ckb_err(err, CKPT_EIO, "cannot mount on '%s': libfuse "
			       "refused the options: %s", d->opts->dir,
			       fuse_said);
	signals_hold(d);
	if (fuse_session_mount(d->session, d->point) != 0)
		return ckb_err(err, CKPT_EPERM, "cannot mount on '%s': FUSE "
			       "refused%s%s; `ls`, `cat` and `export` work "
			       "without a mount", d->opts->dir,
			       fuse_said[0] ? ": " : "", fuse_said);
	d->fs.minor = ckm_point_minor(d->point);
	return 0;
}

/* What is at the point now may be somebody else's mount, on top of ours or in
 * its place after `umount -l`: then ours ends with its descriptor alone.
 * libfuse unmounts by path unless the device polls as an error, its sign of a
 * connection that is gone; a pipe that nobody reads does too. */
static void session_unmount(struct daemon *d)
{
	int fds[2];

	if (ckm_point_minor(d->point) != d->fs.minor) {
		if (pipe2(fds, O_CLOEXEC) != 0)
			return; /* destroying the session closes it */
		close(fds[0]);
		dup2(fds[1], fuse_session_fd(d->session));
		close(fds[1]);
	}
	fuse_session_unmount(d->session);
}

static int session_loop(struct daemon *d, struct ckpt_err *err)
{
	struct fuse_loop_config *cfg = fuse_loop_cfg_create();
	int rc;

	if (!cfg)
		return ckb_err_nomem(err);
	fuse_loop_cfg_set_clone_fd(cfg, 0);
	fuse_loop_cfg_set_max_threads(cfg, d->opts->threads ? d->opts->threads
							    : THREADS_DEFAULT);
	notes.serving = true;
	rc = fuse_session_loop_mt(d->session, cfg);
	fuse_loop_cfg_destroy(cfg);
	return rc < 0 ? ckb_err_sys(err, -rc, "serving '%s' ended",
				    d->opts->dir) : 0;
}

static int fs_open(struct daemon *d, struct ckpt_err *err)
{
	struct ckpt_store_opts so = { .size = sizeof(so),
				      .cache_bytes = d->opts->cache_bytes };
	int rc = ckpt_store_open(d->opts->store, &so, &d->fs.store, err);

	if (rc == 0)
		rc = ckv_tree_new(d->fs.store, &d->fs.tree, err);
	if (rc < 0)
		return rc;
	struct ckv_node *root = ckv_root(d->fs.tree);

	rc = ckm_nodes_new(root, &d->fs.nodes, err);
	ckv_put(root);
	return rc;
}

static void fs_close(struct daemon *d)
{
	ckm_handles_fini(&d->fs.handles);
	ckm_nodes_free(d->fs.nodes);
	ckv_tree_free(d->fs.tree);
	ckpt_store_close(d->fs.store);
	pthread_mutex_destroy(&d->fs.size_lock);
}

/* Checkpoints and packs stay open while there are descriptors. */
static void raise_descriptors(void)
{
	struct rlimit r;

	if (getrlimit(RLIMIT_NOFILE, &r) == 0) {
		r.rlim_cur = r.rlim_max;
		setrlimit(RLIMIT_NOFILE, &r);
	}
}

static int serve(struct daemon *d, struct ckpt_err *err)
{
	d->fs.uid = d->opts->has_uid ? d->opts->uid : geteuid();
	d->fs.gid = d->opts->has_gid ? d->opts->gid : getegid();
	d->fs.umask = d->opts->umask;
	d->fs.start_ns = (int64_t)time(NULL) * 1000000000;
	d->fs.ready = on_ready;
	d->fs.ready_ctx = d;
	pthread_mutex_init(&d->fs.size_lock, NULL);
	ckm_handles_init(&d->fs.handles);
	/* memory that is given back goes back to the system: few arenas, and
	 * large tables never from a heap, whatever was freed before */
	mallopt(M_ARENA_MAX, 2);
	mallopt(M_MMAP_THRESHOLD, 1 << 20);
	raise_descriptors();
	int rc = fs_open(d, err);

	if (rc == 0)
		rc = session_open(d, err);
	if (rc == 0) {
		/* only now: systemd's automount lets its own group by */
		if (!d->opts->foreground)
			setsid();
		rc = ckm_sweep_start(&d->fs, d->session, d->point, &d->stops,
				     &d->sweep, err);
	}
	if (rc == 0) {
		rc = session_loop(d, err);
		ckm_sweep_ask_stop(d->sweep);
		if (d->opts->foreground)
			ckm_notify("STOPPING=1");
	}
	if (d->session) {
		/* closes the connection: whoever waits for it is let go */
		session_unmount(d);
		ckm_sweep_free(d->sweep);
		signals_release(d);
		fuse_session_destroy(d->session);
	}
	fs_close(d);
	return rc;
}

/* ---- in the background ---- */

/* Wait for the child's word: a byte, an error, or its silent end. */
static int await(int fd, pid_t pid, const char *dir, struct ckpt_err *err)
{
	struct ckpt_err theirs;
	ssize_t n;

	do
		n = read(fd, &theirs, sizeof(theirs));
	while (n < 0 && errno == EINTR);
	close(fd);
	if (n == 1)
		return 0;
	waitpid(pid, NULL, 0);
	if (n == (ssize_t)sizeof(theirs)) {
		if (err)
			*err = theirs;
		return theirs.code;
	}
	return ckb_err(err, CKPT_EIO, "cannot mount on '%s': the daemon ended "
		       "without a word", dir);
}

static void detach(void)
{
	int null = open("/dev/null", O_RDWR | O_CLOEXEC);

	if (chdir("/") != 0)
		ckb_log(CKB_WARN, "cannot leave the working folder");
	if (null < 0)
		return;
	for (int fd = 0; fd < 3; fd++)
		dup2(null, fd);
	if (null > 2)
		close(null);
}

/* Descriptors of whoever called us: a lock or a pipe must not stay held for as
 * long as the mount is there. */
static void close_others(int keep)
{
	(void)close_range(3, (unsigned)keep - 1, 0);
	(void)close_range((unsigned)keep + 1, ~0u, 0);
}

static int background(struct daemon *d, struct ckpt_err *err)
{
	int fds[2];

	if (pipe2(fds, O_CLOEXEC) != 0)
		return ckb_err_sys(err, errno, "cannot make a pipe");
	fflush(NULL); /* or the child's exit writes it once more */
	pid_t pid = fork();

	if (pid < 0) {
		close(fds[0]);
		close(fds[1]);
		return ckb_err_sys(err, errno, "cannot fork");
	}
	if (pid > 0) {
		close(fds[1]);
		return await(fds[0], pid, d->opts->dir, err);
	}
	close(fds[0]);
	struct ckpt_err why = { 0 };

	/* relative paths were resolved by the caller of ckm_mount() */
	detach();
	close_others(fds[1]);
	d->report_fd = fds[1];
	int rc = serve(d, &why);

	if (rc < 0) {
		ckb_log(CKB_ERROR, "%s", why.message);
		report(d, &why);
	}
	free(d->point);
	exit(rc < 0 ? 1 : 0);
}

/* What fusermount3 would refuse, said in our words before it is asked. */
static int may_mount(const struct ckm_opts *opts, struct ckpt_err *err)
{
	CKB_FREE char *line = NULL;
	size_t cap = 0;
	bool allowed = false;

	if (access("/dev/fuse", F_OK) != 0)
		return ckb_err(err, CKPT_EPERM, "cannot mount on '%s': there "
			       "is no /dev/fuse; load the module with "
			       "`modprobe fuse`, or give the container the "
			       "device; `ls`, `cat` and `export` work "
			       "without it", opts->dir);
	if (geteuid() == 0)
		return 0;
	if (access("/dev/fuse", R_OK | W_OK) != 0)
		return ckb_err(err, CKPT_EPERM, "cannot mount on '%s': you may "
			       "not use /dev/fuse; let root give it mode 0666; "
			       "`ls`, `cat` and `export` work without it",
			       opts->dir);
	if (access("/usr/bin/fusermount3", X_OK) != 0 &&
	    access("/bin/fusermount3", X_OK) != 0 &&
	    access("/usr/local/bin/fusermount3", X_OK) != 0)
		return ckb_err(err, CKPT_EPERM, "cannot mount on '%s': there "
			       "is no fusermount3; install the package fuse3",
			       opts->dir);
	FILE *f = opts->allow_other ? fopen("/etc/fuse.conf", "re") : NULL;

	while (f && !allowed && getline(&line, &cap, f) > 0) {
		line[strcspn(line, " \t\r\n")] = '\0';
		allowed = strcmp(line, "user_allow_other") == 0;
	}
	if (f)
		fclose(f);
	if (opts->allow_other && !allowed)
		return ckb_err(err, CKPT_EPERM, "cannot let other users into "
			       "'%s': /etc/fuse.conf has no line "
			       "'user_allow_other'; let root add it, or leave "
			       "out allow_other", opts->dir);
	return 0;
}

int ckm_mount(const struct ckm_opts *opts, struct ckpt_err *err)
{
	CKB_FREE char *store = realpath(opts->store, NULL);
	struct ckm_opts mine = *opts;
	struct daemon d = { .opts = &mine, .fs.minor = -1, .report_fd = -1 };

	if (!store)
		return ckb_err_sys(err, errno, "cannot find store '%s'",
				   opts->store);
	int rc = ckm_point_check(store, opts->dir, &d.point, err);

	if (rc == 0)
		rc = may_mount(opts, err);
	if (rc < 0) {
		free(d.point);
		return rc;
	}
	mine.store = store;
	mine.dir = d.point;
	/* sentences about the store are wanted before any fork */
	struct ckpt_store *probe = NULL;

	rc = ckpt_store_open(store, NULL, &probe, err);
	ckpt_store_close(probe);
	if (rc == 0) {
		notes.foreground = opts->foreground;
		if (!opts->foreground)
			openlog("ckptfs", LOG_PID, LOG_DAEMON);
		ckb_log_sink(note, &notes);
		rc = opts->foreground ? serve(&d, err) : background(&d, err);
	}
	free(d.point);
	return rc;
}
