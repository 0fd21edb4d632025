/* SPDX-License-Identifier: Apache-2.0 */
/*
 * bench.h - parts of the worker bench-save: the state it holds, the limits of
 * the machine, and the work between saves.
 */
#ifndef BENCH_H
#define BENCH_H

#include <stdbool.h>

#include <ckpt/writer.h>

#define BENCH_CORES_MAX 64

/** One tensor or opaque file of the state; its bytes are data + off. */
struct bench_entry {
	const char *group;      /* the item it goes to */
	const char *name;       /* within it */
	bool is_file;
	enum ckpt_dtype dtype;
	struct ckpt_shape shape;
	uint64_t off, bytes;
};

/** A state in anonymous, touched memory. */
struct bench_state {
	uint8_t *data;
	size_t mapped_bytes;    /* a multiple of the page */
	uint64_t bytes;         /* of all entries */
	struct bench_entry *entry;
	size_t entry_count;
	uint64_t update_count;
};

/** Seconds since some moment. */
double bench_now(void);

/** Read PREFIX.json and PREFIX.raw. Exits with a message on failure. */
void bench_state_load(struct bench_state *state, const char *prefix);
void bench_state_fini(struct bench_state *state);

/**
 * Change @fraction of the tensors' bytes, in pieces of at most 8 MiB scattered
 * over all of them. Every 4 KiB changes, in low bits of mantissas only, so that
 * what compresses still does. Returns the bytes in changed pieces.
 */
uint64_t bench_state_update(struct bench_state *state, double fraction);

/** Measure, and print one JSON line; files go to @folder. */
void bench_limits(const struct bench_state *state, const char *folder);

/** Multiply matrices @work times on each of @cores cores. */
void bench_compute(uint64_t work, unsigned int cores);

/** The work that takes @seconds. */
uint64_t bench_calibrate(double seconds, unsigned int cores);

#endif
