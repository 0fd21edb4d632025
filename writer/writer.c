/* SPDX-License-Identifier: Apache-2.0 */
/*
 * writer.c - a writer: options, and the order its saves commit in.
 *
 * Lives as long as the training run. Saves take a ticket at start and run one
 * after the other, so commits keep the order of the starts.
 */
#include <stdlib.h>

#include "base/limits.h"
#include "save.h"

int ckpt_writer_open(struct ckpt_store *store,
		     const struct ckpt_writer_opts *opts,
		     struct ckpt_writer **out, struct ckpt_err *err)
{
	struct ckpt_writer *w;

	*out = NULL;
	if (cks_store_readonly(store))
		return ckb_err(err, CKPT_EPERM, "store '%s' is read-only",
			       cks_store_path(store));
	if (opts && opts->codec != CKPT_CODEC_RAW &&
	    opts->codec != CKPT_CODEC_ZSTD && opts->codec != CKPT_CODEC_AUTO)
		return ckb_err(err, CKPT_EINVAL, "codec %d is none",
			       (int)opts->codec);
	w = calloc(1, sizeof(*w));
	if (!w)
		return ckb_err_nomem(err);
	w->store = store;
	if (opts)
		w->opts = *opts;
	if (w->opts.staging_bytes == 0)
		w->opts.staging_bytes = CKB_STAGING_BYTES;
	if (w->opts.zstd_level == 0)
		w->opts.zstd_level = 1;
	if (w->opts.pack_bytes == 0)
		w->opts.pack_bytes = CKB_PACK_BYTES;
	pthread_mutex_init(&w->lock, NULL);
	pthread_cond_init(&w->turn_changed, NULL);
	*out = w;
	return 0;
}

void ckpt_writer_close(struct ckpt_writer *w)
{
	if (!w)
		return;
	CKB_REQUIRE(w->open_saves == 0);
	pthread_mutex_destroy(&w->lock);
	pthread_cond_destroy(&w->turn_changed);
	free(w);
}
