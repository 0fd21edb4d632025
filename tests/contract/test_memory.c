/* SPDX-License-Identifier: Apache-2.0 */
/*
 * test_memory.c - a save of any size takes its staging memory and 64 MiB (S9).
 *
 *	test_memory CODEC [STATE-MIB [STAGING-MIB]]
 *
 * The state is one tensor in memory, which is there before anything is
 * measured, and tensors whose providers make every byte when it is asked for:
 * rows and columns of a large one, middle ones, and small ones by the hundred.
 * What counts is the process's peak as the kernel keeps it (VmHWM), which sees
 * what lived for a moment only, less what was resident before the writer was
 * opened: code, tables, heap and stacks of all threads among it. The page cache
 * is not the process's. A process does one save: what an earlier one has freed,
 * and malloc(3) keeps, would hide what the next one takes.
 *
 * As many threads as a writer takes by itself on a large machine, whatever
 * machine this is.
 */
#include "save_fixture.h"

#include <sys/statvfs.h>

#include "base/err.h"
#include "base/limits.h"
#include "sanitized.h"

#define MIB (1ull << 20)
#define BEYOND (64 * MIB)
#define COLUMNS 8192u         /* of the large one: tiles are columns, too */
#define MIDDLE_BYTES (16 * MIB)
#define SMALL_BYTES 40000u    /* of two dimensions and one tile */
#define SMALL_COUNT 400u

static uint64_t state_mib = 600, staging_mib = 64;

/* ---- a state ---- */

/* Like weights: a few exponents, and mantissas that no codec shortens. */
static uint32_t element(uint64_t seed, uint64_t i)
{
	uint64_t x = (i + (seed << 40)) * 0x9e3779b97f4a7c15ull;

	x = (x ^ x >> 29) * 0xbf58476d1ce4e5b9ull;
	return ((uint32_t)(x >> 32) & 0x807fffffu) |
	       (0x3c000000u + ((uint32_t)(x >> 20) & 7) * 0x00800000u);
}

struct made {
	uint64_t seed, bytes;
	struct ckpt_shape shape;
};

static int made_read(void *ctx, uint64_t off, void *dst, size_t len,
		     struct ckpt_err *err)
{
	const struct made *m = ctx;
	uint8_t *to = dst;

	if (off % 4 != 0 || len % 4 != 0)
		return ckb_err(err, CKPT_EINVAL, "half an element");
	for (uint64_t i = off / 4; len > 0; len -= 4, to += 4) {
		uint32_t value = element(m->seed, i++);

		memcpy(to, &value, 4);
	}
	return 0;
}

static uint64_t made_bytes(void *ctx)
{
	return ((const struct made *)ctx)->bytes;
}

static const struct ckpt_provider_ops made_ops = {
	.size = sizeof(made_ops), .read = made_read, .bytes = made_bytes,
};

struct state {
	struct made *made;   /* [0] lies in memory, at `held` */
	size_t count;
	uint64_t bytes;
	uint8_t *held;
};

static void add(struct state *s, struct ckpt_shape shape)
{
	uint64_t bytes = 4;

	for (uint32_t d = 0; d < shape.ndim; d++)
		bytes *= shape.dim[d];
	s->made[s->count] = (struct made){ s->count, bytes, shape };
	s->count++;
	s->bytes += bytes;
}

static void state_init(struct state *s)
{
	struct ckpt_err err = { 0 };

	*s = (struct state){ .made = calloc(SMALL_COUNT + 2 + state_mib / 16,
					    sizeof(*s->made)) };
	assert_non_null(s->made);
	add(s, SHAPE(2, 4096, 1024));
	add(s, SHAPE(2, state_mib * MIB / 2 / 4 / COLUMNS, COLUMNS));
	for (uint32_t i = 0; i < SMALL_COUNT; i++)
		add(s, SHAPE(2, 100, SMALL_BYTES / 400));
	while (s->bytes < state_mib * MIB)
		add(s, SHAPE(2, 2048, MIDDLE_BYTES / 4 / 2048));
	s->held = malloc(s->made[0].bytes);
	assert_non_null(s->held);
	assert_ok(made_read(&s->made[0], 0, s->held, s->made[0].bytes, &err));
}

static void state_fini(struct state *s)
{
	free(s->held);
	free(s->made);
}

static void describe(const struct state *s, struct ckpt_save *save,
		     uint32_t item)
{
	struct ckpt_err err = { 0 };
	char name[32];

	for (size_t i = 0; i < s->count; i++) {
		struct ckpt_tensor_desc d = fix_desc(name, CKPT_F32,
						     s->made[i].shape);
		struct ckpt_provider p = { &made_ops, &s->made[i] };

		snprintf(name, sizeof(name), "t%zu", i);
		if (i == 0)
			assert_ok(ckpt_provider_host(s->held, s->made[0].bytes,
						     &p, &err));
		assert_ok(ckpt_save_tensor(save, item, &d, &p, &err));
	}
}

/* Both ends of each tensor are what was made. */
static void check_saved(const struct fix *f, const struct state *s)
{
	static uint8_t want[SMALL_BYTES], have[SMALL_BYTES];
	struct ckpt_checkpoint *c = fix_opened(f->store, "a");
	struct ckpt_err err = { 0 };
	char name[32];

	assert_int_equal(ckpt_tensor_count(c), s->count);
	for (size_t i = 0; i < s->count; i++) {
		struct made *m = &s->made[i];
		const uint64_t offs[] = { 0, m->bytes - SMALL_BYTES };

		snprintf(name, sizeof(name), "t%zu", i);
		for (int k = 0; k < 2; k++) {
			assert_ok(made_read(m, offs[k], want, sizeof(want),
					    &err));
			assert_ok(ckpt_read_bytes(c, fix_find(c, "model",
							      name),
						  offs[k], sizeof(have), have,
						  &err));
			assert_memory_equal(have, want, sizeof(want));
		}
	}
	ckpt_checkpoint_close(c);
}

/* ---- what the process has ---- */

/* A figure of proc(5)'s status, in bytes. */
static uint64_t figure(const char *key)
{
	FILE *f = fopen("/proc/self/status", "re");
	unsigned long long kib = 0;
	char line[256];

	assert_non_null(f);
	while (fgets(line, sizeof(line), f))
		if (strncmp(line, key, strlen(key)) == 0)
			(void)sscanf(line + strlen(key), ": %llu", &kib);
	fclose(f);
	assert_true(kib > 0);
	return kib << 10;
}

/* ---- the ceiling ---- */

static const struct codec {
	const char *name;
	enum ckpt_codec codec;
} codecs[] = {
	{ "raw", CKPT_CODEC_RAW }, { "zstd", CKPT_CODEC_ZSTD },
	{ "planes", CKPT_CODEC_PLANES }, { "auto", CKPT_CODEC_AUTO },
};
static const struct codec *codec;

static void a_save_takes_staging_and_64_mib(void **state_)
{
	struct fix *f = *state_;
	struct ckpt_writer_opts o = {
		.size = sizeof(o), .staging_bytes = staging_mib * MIB,
		.codec = codec->codec, .threads = CKB_WRITER_THREADS_AUTO,
	};
	struct ckpt_err err = { 0 };
	struct ckpt_writer *w;
	struct state state;
	struct ckpt_save_progress p;
	uint32_t item;

	state_init(&state);
	uint64_t before = figure("VmRSS");

	assert_ok(ckpt_writer_open(f->store, &o, &w, &err));
	struct ckpt_save *s = fix_begin(w, "a", false, &item);

	describe(&state, s, item);
	assert_ok(ckpt_save_start(s, &err));
	/* captures go first now: the most that can be in flight */
	assert_ok(ckpt_save_wait(s, CKPT_CAPTURED, &err));
	assert_ok(ckpt_save_wait(s, CKPT_DURABLE, &err));
	uint64_t took = figure("VmHWM") - before;

	ckpt_save_progress(s, &p);
	ckpt_save_free(s);
	ckpt_writer_close(w);
	print_message("%s: %ju MiB, of which %ju were written, took %.1f MiB "
		      "through %ju of staging\n", codec->name,
		      (uintmax_t)(state.bytes / MIB),
		      (uintmax_t)(p.bytes_written / MIB),
		      (double)took / (double)MIB, (uintmax_t)staging_mib);
	/* all of it was hashed, nothing was there, and staging was full */
	assert_int_equal(p.bytes_hashed, state.bytes);
	assert_int_equal(p.bytes_new, state.bytes);
	assert_true(took > staging_mib * MIB / 10 * 9);
	assert_true(took <= staging_mib * MIB + BEYOND);
	check_saved(f, &state);
	state_fini(&state);
}

/* The fixture without its writer. */
static int setup(void **state_)
{
	static struct fix f;
	struct ckpt_err err = { 0 };

	fix_folder(f.dir);
	snprintf(f.path, sizeof(f.path), "%s/store", f.dir);
	assert_ok(ckpt_store_init(f.path, &err));
	assert_ok(ckpt_store_open(f.path, NULL, &f.store, &err));
	*state_ = &f;
	return 0;
}

static int teardown(void **state_)
{
	fix_close(*state_);
	return 0;
}

/* Is there room for the state? */
static bool room(void)
{
	struct statvfs st = { 0 };
	char folder[256];

	fix_folder(folder);
	int rc = statvfs(folder, &st);

	fix_remove(folder);
	return rc == 0 && (uint64_t)st.f_bavail * st.f_frsize / MIB >
			  state_mib + state_mib / 8;
}

int main(int argc, char **argv)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_setup_teardown(
			a_save_takes_staging_and_64_mib, setup, teardown),
	};

	for (size_t i = 0; i < CKB_ARRAY_LEN(codecs); i++)
		if (argc > 1 && strcmp(argv[1], codecs[i].name) == 0)
			codec = &codecs[i];
	if (!codec)
		return 2;
	if (argc > 2)
		state_mib = strtoull(argv[2], NULL, 10);
	if (argc > 3)
		staging_mib = strtoull(argv[3], NULL, 10);
	if (SANITIZED) {
		printf("skipped: a sanitizer's own memory is in the way\n");
		return 77;
	}
	if (!room()) {
		printf("skipped: less than %ju MiB of disk are free\n",
		       (uintmax_t)(state_mib + state_mib / 8));
		return 77;
	}
	return cmocka_run_group_tests(tests, NULL, NULL);
}
