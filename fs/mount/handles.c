/* SPDX-License-Identifier: Apache-2.0 */
/*
 * handles.c - what is open: files, folders, the status file.
 *
 * The kernel sends RELEASE when it comes to it, or, when the mount is taken
 * down under open files, never; what is left then is ended here. Any thread.
 */
#include "mount/internal.h"

void ckm_handles_init(struct ckm_handles *h)
{
	pthread_mutex_init(&h->lock, NULL);
	h->head.next = h->head.prev = &h->head;
}

void ckm_handles_add(struct ckm_handles *h, struct ckm_handle *one,
		     void (*end)(struct ckm_handle *one))
{
	one->end = end;
	one->prev = &h->head;
	pthread_mutex_lock(&h->lock);
	one->next = h->head.next;
	one->next->prev = one;
	h->head.next = one;
	pthread_mutex_unlock(&h->lock);
}

void ckm_handles_end(struct ckm_handles *h, struct ckm_handle *one)
{
	pthread_mutex_lock(&h->lock);
	one->prev->next = one->next;
	one->next->prev = one->prev;
	pthread_mutex_unlock(&h->lock);
	one->end(one);
}

void ckm_handles_fini(struct ckm_handles *h)
{
	while (h->head.next != &h->head)
		ckm_handles_end(h, h->head.next);
	pthread_mutex_destroy(&h->lock);
}
