/* SPDX-License-Identifier: Apache-2.0 */
/*
 * sweep.c - the kernel is asked to let go of checkpoints that are gone (S9).
 *
 * The kernel forgets a removed or replaced checkpoint when its name is looked
 * up again, which may be never: for days a mount would keep each one that was
 * ever looked into. So now and then a thread of its own stats every checkpoint
 * the kernel knows in the store, and looks up the gone ones through the mount,
 * as anybody might. What was open at that moment is out of reach of any path
 * afterwards: there the kernel is told to drop the entries of the folder.
 *
 * It serves no request and holds no lock of ours, but while it tells the kernel
 * to drop an entry it holds the device open and waits for the folder's lock,
 * which a look-up that is not answered yet may have: were the requests answered
 * no more by then, neither would ever end. So the stop signals are this
 * thread's: it takes them between two of its calls only, and lets the loop end,
 * while whatever it asked before was answered. A loop that ends by itself has
 * lost its connection, and then nobody waits.
 */
#include "mount/internal.h"

#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>

#define SWEEP_S 5
#define STATS_PER_S 100  /* no more: the store may be across a network */

struct ckm_sweep {
	struct ckm_fs *fs;
	struct fuse_session *session;
	const char *point;
	pthread_t thread, loop; /* loop: who serves the session */
	sigset_t stops;         /* CKM_WAKE among them */
	bool stop;              /* the thread's own */
	atomic_bool ended;      /* the loop has; relaxed, CKM_WAKE follows */
};

/* Is it time to end? A signal is waited for so long. */
static bool stopped(struct ckm_sweep *s, struct timespec wait)
{
	int sig = s->stop ? 0 : sigtimedwait(&s->stops, NULL, &wait);

	s->stop = s->stop || (sig > 0 && sig != CKM_WAKE) ||
		  atomic_load_explicit(&s->ended, memory_order_relaxed);
	return s->stop;
}

static bool stopped_now(struct ckm_sweep *s)
{
	return stopped(s, (struct timespec){ 0 });
}

static void drop_entries(struct ckm_sweep *s, const struct ckm_known *k)
{
	struct ckv_list *l = NULL;

	/* one that is not open is not opened for it */
	if (ckv_list_open(k->node, &l, NULL) < 0)
		return;
	for (size_t i = 0; i < ckv_list_count(l) && !stopped_now(s); i++) {
		const char *name = ckv_list_name(l, i);

		fuse_lowlevel_notify_inval_entry(s->session, k->id, name,
						 strlen(name));
	}
	ckv_list_free(l);
}

static void let_go(struct ckm_sweep *s, const struct ckm_known *k)
{
	CKB_FREE char *path = NULL;
	struct stat st;

	/* it may be detached, and another be there */
	if (ckm_point_minor(s->point) != s->fs->minor) {
		drop_entries(s, k);
		return;
	}
	if (asprintf(&path, "%s/%s", s->point, ckv_node_name(k->node)) < 0) {
		path = NULL;
		return;
	}
	/* what it finds does not matter */
	(void)!lstat(path, &st);
	drop_entries(s, k);
}

/* Seconds until the next one. */
static time_t sweep(struct ckm_sweep *s)
{
	size_t count = 0;
	struct ckm_known *known = ckm_nodes_checkpoints(s->fs->nodes, &count);

	for (size_t i = 0; i < count; i++) {
		if (!stopped_now(s) && ckv_gone(known[i].node))
			let_go(s, &known[i]);
		ckv_put(known[i].node);
	}
	free(known);
	ckv_tidy(s->fs->tree);
	return SWEEP_S + (time_t)(count / STATS_PER_S);
}

/* libfuse looks whether it is to end, then waits for a signal: one between the
 * two would be lost, so it is sent until the loop has ended. */
static void end_loop(struct ckm_sweep *s)
{
	const struct timespec wait = { .tv_nsec = 20000000 };

	fuse_session_exit(s->session);
	while (!atomic_load_explicit(&s->ended, memory_order_relaxed)) {
		pthread_kill(s->loop, CKM_WAKE);
		nanosleep(&wait, NULL);
	}
}

static void *run(void *arg)
{
	struct timespec wait = { .tv_sec = SWEEP_S };
	struct ckm_sweep *s = arg;

	while (!stopped(s, wait))
		wait.tv_sec = sweep(s);
	end_loop(s);
	return NULL;
}

int ckm_sweep_start(struct ckm_fs *fs, struct fuse_session *session,
		    const char *point, const sigset_t *stops,
		    struct ckm_sweep **out, struct ckpt_err *err)
{
	struct ckm_sweep *s = calloc(1, sizeof(*s));
	sigset_t all, was;

	*out = NULL;
	if (!s)
		return ckb_err_nomem(err);
	*s = (struct ckm_sweep){ .fs = fs, .session = session, .point = point,
				 .loop = pthread_self(), .stops = *stops };
	sigaddset(&s->stops, CKM_WAKE);
	sigfillset(&all);
	pthread_sigmask(SIG_SETMASK, &all, &was);
	int rc = pthread_create(&s->thread, NULL, run, s);

	pthread_sigmask(SIG_SETMASK, &was, NULL);
	if (rc != 0) {
		free(s);
		return ckb_err_sys(err, rc, "cannot start a thread");
	}
	*out = s;
	return 0;
}

void ckm_sweep_ask_stop(struct ckm_sweep *s)
{
	if (!s)
		return;
	atomic_store_explicit(&s->ended, true, memory_order_relaxed);
	pthread_kill(s->thread, CKM_WAKE);
}

void ckm_sweep_free(struct ckm_sweep *s)
{
	if (!s)
		return;
	pthread_join(s->thread, NULL);
	free(s);
}
