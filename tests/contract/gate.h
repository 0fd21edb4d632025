/* SPDX-License-Identifier: Apache-2.0 */
/* gate.h - a provider that waits at a gate, so that a test decides when. */
#ifndef GATE_H
#define GATE_H

#include <pthread.h>

#include "save_fixture.h"

struct gate {
	pthread_mutex_t lock;
	pthread_cond_t changed;
	bool open;
	int waiting;
};

#define GATE { PTHREAD_MUTEX_INITIALIZER, PTHREAD_COND_INITIALIZER, false, 0 }

FIX void gate_pass(void *ctx)
{
	struct gate *g = ctx;

	pthread_mutex_lock(&g->lock);
	g->waiting++;
	pthread_cond_broadcast(&g->changed);
	while (!g->open)
		pthread_cond_wait(&g->changed, &g->lock);
	pthread_mutex_unlock(&g->lock);
}

FIX void gate_await(struct gate *g)
{
	pthread_mutex_lock(&g->lock);
	while (g->waiting == 0)
		pthread_cond_wait(&g->changed, &g->lock);
	pthread_mutex_unlock(&g->lock);
}

FIX void gate_open(struct gate *g)
{
	pthread_mutex_lock(&g->lock);
	g->open = true;
	pthread_cond_broadcast(&g->changed);
	pthread_mutex_unlock(&g->lock);
}

/* A save of 1000 zeros that will wait at @g. */
FIX struct ckpt_save *gated_begin(struct fix *f, const char *name,
				  struct watch *w, struct gate *g)
{
	struct ckpt_tensor_desc d = fix_desc("t", CKPT_U8, SHAPE(1, 1000));
	struct ckpt_provider p = watch_provider(w);
	struct ckpt_err err = { 0 };
	uint32_t item;
	struct ckpt_save *s = fix_begin(f->writer, name, false, &item);

	w->bytes = 1000;
	w->on_read = gate_pass;
	w->ctx = g;
	assert_ok(ckpt_save_tensor(s, item, &d, &p, &err));
	return s;
}

/* The same, started. */
FIX struct ckpt_save *gated(struct fix *f, const char *name, struct watch *w,
			    struct gate *g)
{
	struct ckpt_save *s = gated_begin(f, name, w, g);
	struct ckpt_err err = { 0 };

	assert_ok(ckpt_save_start(s, &err));
	return s;
}

#endif
