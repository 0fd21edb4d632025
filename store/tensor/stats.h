/* SPDX-License-Identifier: Apache-2.0 */
/*
 * tensor/stats.h - statistics in one pass over the bytes.
 *
 * One partial per tile, merged in tile order, so the sum (and so the mean)
 * does not depend on threads. Complex tensors: value class NONE, count only.
 */
#ifndef CKT_STATS_H
#define CKT_STATS_H

#include <ckpt/store.h>

#include "tensor/dtype.h"

void ckt_stats_init(struct ckpt_stats *stats, enum ckpt_dtype dtype);

/* Take in @len raw bytes, whole elements (F4: whole bytes; F6: whole groups
 * of 3 or the tail the tensor has). */
void ckt_stats_add(struct ckpt_stats *stats, enum ckpt_dtype dtype,
		   const void *data, size_t len);

/* @stats of earlier tiles, @next of the tile after them. */
void ckt_stats_merge(struct ckpt_stats *stats, const struct ckpt_stats *next);

/* Elements @first.. of packed little-endian @data as double; complex: real
 * part. For previews and statistics. */
double ckt_value_f64(enum ckpt_dtype dtype, const void *data, uint64_t index);

#endif
