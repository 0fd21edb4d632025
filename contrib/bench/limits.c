/* SPDX-License-Identifier: Apache-2.0 */
/*
 * limits.c - what no save of this state can be faster than on this machine:
 * copying, hashing and writing its bytes, each measured alone.
 */
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include <openssl/evp.h>
#include <xxhash.h>

#include "bench.h"

#define BUFFERED_BLOCK (4u << 20)
#define FLIGHT_MAX 4

/* State -> memory that was touched before. */
static double copy_seconds(const struct bench_state *state)
{
	uint8_t *to = mmap(NULL, state->mapped_bytes, PROT_READ | PROT_WRITE,
			   MAP_PRIVATE | MAP_ANONYMOUS | MAP_POPULATE, -1, 0);
	double took = bench_now();

	if (to == MAP_FAILED)
		return -1;
	memcpy(to, state->data, state->mapped_bytes);
	took = bench_now() - took;
	munmap(to, state->mapped_bytes);
	return took;
}

static double sha256_seconds(const struct bench_state *state)
{
	unsigned char digest[EVP_MAX_MD_SIZE];
	double took = bench_now();

	if (EVP_Digest(state->data, state->mapped_bytes, digest, NULL,
		       EVP_sha256(), NULL) != 1)
		return -1;
	return bench_now() - took;
}

struct slice {
	const uint8_t *data;
	size_t bytes;
	XXH128_hash_t hash;
	pthread_t thread;
};

static void *hash_slice(void *arg)
{
	struct slice *slice = arg;

	slice->hash = XXH3_128bits(slice->data, slice->bytes);
	return NULL;
}

static double xxh3_seconds(const struct bench_state *state, unsigned int cores)
{
	struct slice slice[BENCH_CORES_MAX];
	size_t each = state->mapped_bytes / cores;
	double took = bench_now();
	bool failed = false;

	for (unsigned int i = 0; i < cores; i++) {
		slice[i].data = state->data + i * each;
		slice[i].bytes = each;
		if (pthread_create(&slice[i].thread, NULL, hash_slice,
				   &slice[i]) != 0) {
			failed = true;
			cores = i;
		}
	}
	for (unsigned int i = 0; i < cores; i++)
		pthread_join(slice[i].thread, NULL);
	return failed ? -1 : bench_now() - took;
}

struct writing {
	int fd;
	const uint8_t *data;
	size_t bytes, block;
	_Atomic size_t next; /* relaxed: a ticket only */
	_Atomic bool failed;
};

static void *write_blocks(void *arg)
{
	struct writing *w = arg;
	size_t at;

	while ((at = atomic_fetch_add_explicit(
			&w->next, w->block, memory_order_relaxed)) < w->bytes) {
		size_t n = w->bytes - at < w->block ? w->bytes - at : w->block;

		if (pwrite(w->fd, w->data + at, n, (off_t)at) != (ssize_t)n)
			w->failed = true;
	}
	return NULL;
}

/* One file of the state's size, @flight blocks at a time, and fsync. */
static double write_seconds(const struct bench_state *state, const char *folder,
			    int flags, size_t block, unsigned int flight)
{
	char path[4096];
	struct writing w = { .data = state->data,
			     .block = block,
			     .bytes = state->mapped_bytes };
	pthread_t thread[FLIGHT_MAX];
	double took = bench_now();
	unsigned int started = 0;

	snprintf(path, sizeof(path), "%s/limit", folder);
	w.fd = open(path, O_CREAT | O_TRUNC | O_WRONLY | O_CLOEXEC | flags,
		    0600);
	if (w.fd < 0)
		return -1;
	if (flags & O_DIRECT && posix_fallocate(w.fd, 0, (off_t)w.bytes) != 0)
		w.failed = true;
	while (started + 1 < flight &&
	       pthread_create(&thread[started], NULL, write_blocks, &w) == 0)
		started++;
	write_blocks(&w);
	while (started)
		pthread_join(thread[--started], NULL);
	if (fsync(w.fd) != 0)
		w.failed = true;
	took = bench_now() - took;
	close(w.fd);
	unlink(path);
	return w.failed ? -1 : took;
}

void bench_limits(const struct bench_state *state, const char *folder)
{
	long online = sysconf(_SC_NPROCESSORS_ONLN);
	unsigned int cores = 1;

	if (online > 1)
		cores = online > BENCH_CORES_MAX ? BENCH_CORES_MAX
						 : (unsigned int)online;
	printf("{\"cores\": %u, \"bytes\": %zu", cores, state->mapped_bytes);
	printf(", \"buffered\": %.6f",
	       write_seconds(state, folder, 0, BUFFERED_BLOCK, 1));
	printf(", \"direct 2 MiB x 4\": %.6f",
	       write_seconds(state, folder, O_DIRECT, 2u << 20, 4));
	printf(", \"direct 8 MiB x 2\": %.6f",
	       write_seconds(state, folder, O_DIRECT, 8u << 20, 2));
	printf(", \"direct 8 MiB x 4\": %.6f",
	       write_seconds(state, folder, O_DIRECT, 8u << 20, 4));
	printf(", \"memcpy\": %.6f", copy_seconds(state));
	printf(", \"sha256\": %.6f", sha256_seconds(state));
	printf(", \"xxh3\": %.6f", xxh3_seconds(state, 1));
	printf(", \"xxh3 all cores\": %.6f}\n", xxh3_seconds(state, cores));
}
