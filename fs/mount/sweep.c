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
 * The thread serves no request and holds no lock while it asks; a look-up can
 * be killed, and ends when the connection does. Entries are only ever dropped
 * in folders of checkpoints that are gone, never in one that lives.
 */
#include "mount/internal.h"

#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/vfs.h>
#include <time.h>

#define SWEEP_S 5

struct ckm_sweep {
	struct ckm_fs *fs;
	struct fuse_session *session;
	const char *point;
	pthread_t thread;
	pthread_mutex_t lock;
	pthread_cond_t changed;
	bool stop;              /* guard: lock */
};

static void drop_entries(struct ckm_sweep *s, const struct ckm_known *k)
{
	struct ckv_list *l = NULL;

	/* one that is not open is not opened for it */
	if (ckv_list_open(k->node, &l, NULL) < 0)
		return;
	for (size_t i = 0; i < ckv_list_count(l); i++) {
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

	if (asprintf(&path, "%s/%s", s->point, ckv_node_name(k->node)) < 0) {
		path = NULL;
		return;
	}
	/* what it finds does not matter */
	(void)!lstat(path, &st);
	drop_entries(s, k);
}

static void sweep(struct ckm_sweep *s)
{
	size_t count = 0;
	struct ckm_known *known = ckm_nodes_checkpoints(s->fs->nodes, &count);

	for (size_t i = 0; i < count; i++) {
		if (ckv_gone(known[i].node))
			let_go(s, &known[i]);
		ckv_put(known[i].node);
	}
	free(known);
}

static void *run(void *arg)
{
	struct ckm_sweep *s = arg;
	struct statfs st;

	/* once the mount has answered: INIT lowers what was raised before */
	if (statfs(s->point, &st) == 0)
		ckm_point_readahead(s->point);
	pthread_mutex_lock(&s->lock);
	while (!s->stop) {
		struct timespec at;

		clock_gettime(CLOCK_MONOTONIC, &at);
		at.tv_sec += SWEEP_S;
		if (pthread_cond_timedwait(&s->changed, &s->lock, &at) !=
		    ETIMEDOUT)
			continue;
		pthread_mutex_unlock(&s->lock);
		sweep(s);
		pthread_mutex_lock(&s->lock);
	}
	pthread_mutex_unlock(&s->lock);
	return NULL;
}

int ckm_sweep_start(struct ckm_fs *fs, struct fuse_session *session,
		    const char *point, struct ckm_sweep **out,
		    struct ckpt_err *err)
{
	struct ckm_sweep *s = calloc(1, sizeof(*s));
	pthread_condattr_t attr;
	sigset_t all, was;

	*out = NULL;
	if (!s)
		return ckb_err_nomem(err);
	*s = (struct ckm_sweep){ .fs = fs, .session = session,
				 .point = point };
	pthread_condattr_init(&attr);
	pthread_condattr_setclock(&attr, CLOCK_MONOTONIC);
	pthread_cond_init(&s->changed, &attr);
	pthread_condattr_destroy(&attr);
	pthread_mutex_init(&s->lock, NULL);
	/* signals are for the main thread, which waits for them */
	sigfillset(&all);
	pthread_sigmask(SIG_SETMASK, &all, &was);
	int rc = pthread_create(&s->thread, NULL, run, s);

	pthread_sigmask(SIG_SETMASK, &was, NULL);
	if (rc != 0) {
		pthread_cond_destroy(&s->changed);
		pthread_mutex_destroy(&s->lock);
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
	pthread_mutex_lock(&s->lock);
	s->stop = true;
	pthread_cond_signal(&s->changed);
	pthread_mutex_unlock(&s->lock);
}

void ckm_sweep_free(struct ckm_sweep *s)
{
	if (!s)
		return;
	pthread_join(s->thread, NULL);
	pthread_cond_destroy(&s->changed);
	pthread_mutex_destroy(&s->lock);
	free(s);
}
