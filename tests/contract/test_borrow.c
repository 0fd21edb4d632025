/* SPDX-License-Identifier: Apache-2.0 */
/*
 * test_borrow.c - what is borrowed is the writer's until CAPTURED, and nothing
 * of it is touched after: of every kind of provider, its memory is made
 * unreadable then (poisoned under AddressSanitizer, to the byte; else without
 * access, by pages) while nothing is stored yet. Who writes too early:
 * test_protect.c.
 */
#include "borrow_fixture.h"
#include "gate.h"

#include <fcntl.h>
#include <sys/mman.h>

#if defined(__SANITIZE_ADDRESS__)
#include <sanitizer/asan_interface.h>
#endif

static void memory_seal(struct memory *m, bool seal)
{
#if defined(__SANITIZE_ADDRESS__)
	if (seal)
		__asan_poison_memory_region(m->data, m->len);
	else
		__asan_unpoison_memory_region(m->data, m->len);
#else
	assert_int_equal(mprotect(m->data, m->mapped, seal ? PROT_NONE
					: PROT_READ | PROT_WRITE), 0);
#endif
}

/* ---- nothing is touched after CAPTURED ---- */

enum { HOST, STRIDED, DEVICE, PARTS, MADE, FILES, KINDS };

static const char *const names[] = { "host", "strided", "device", "parts",
				     "made", "file" };
enum { ROWS = 700, COLUMNS = 901, BYTES = ROWS * COLUMNS };

static int hand_over(void *ctx, ckpt_sink_fn write, void *sink,
		     struct ckpt_err *err)
{
	(void)err;
	return write(sink, ((const struct memory *)ctx)->data, BYTES);
}

struct sources {
	struct memory memory[KINDS];
	struct ckpt_memory *device;
	int fd;
};

static struct ckpt_provider source(struct sources *all, int kind)
{
	struct ckpt_shape shape = SHAPE(2, ROWS, COLUMNS);
	int64_t turned[] = { 1, ROWS };
	struct memory *m = &all->memory[kind];
	struct ckpt_provider p, halves[2];
	struct ckpt_err err = { 0 };

	switch (kind) {
	case HOST:
		assert_ok(ckpt_provider_host(m->data, BYTES, &p, &err));
		break;
	case STRIDED:
		assert_ok(ckpt_provider_strided(m->data, CKPT_U8, &shape,
						turned, &p, &err));
		break;
	case DEVICE:
		assert_ok(ckpt_provider_device(all->device, m->data, BYTES,
					       NULL, &p, &err));
		break;
	case PARTS:
		assert_ok(ckpt_provider_host(m->data, 1001, &halves[0],
					     &err));
		assert_ok(ckpt_provider_host(m->data + 1001, BYTES - 1001,
					     &halves[1], &err));
		assert_ok(ckpt_provider_composite(halves, 2, &p, &err));
		break;
	case MADE:
		assert_ok(ckpt_provider_callback(hand_over, NULL, m, &p,
						 &err));
		break;
	default:
		assert_ok(ckpt_provider_file(all->fd, 0, BYTES, &p, &err));
	}
	return p;
}

static void sources_open(struct fix *f, struct sources *all)
{
	struct ckpt_fake_opts opts = { .size = sizeof(opts),
				       .delay_ns = 100000 };
	char path[600];
	struct ckpt_err err = { 0 };

	for (uint32_t i = 0; i < KINDS; i++)
		all->memory[i] = memory_new(BYTES, i);
	assert_ok(ckpt_memory_fake(&opts, &all->device, &err));
	snprintf(path, sizeof(path), "%s/source", f->dir);
	all->fd = open(path, O_RDWR | O_CREAT | O_CLOEXEC, 0600);
	assert_true(all->fd >= 0);
	assert_int_equal(write(all->fd, all->memory[FILES].data, BYTES),
			 BYTES);
}

static void expect_bytes(struct fix *f, struct sources *all)
{
	struct ckpt_checkpoint *c = fix_opened(f->store, "a");

	for (int i = 0; i < KINDS; i++) {
		uint8_t *want = malloc(BYTES);
		const uint8_t *have = all->memory[i].data;

		assert_non_null(want);
		for (size_t at = 0; at < BYTES; at++)
			want[at] = i == STRIDED
				? have[at % COLUMNS * ROWS + at / COLUMNS]
				: have[at];
		fix_equal(c, fix_find(c, "model", names[i]), want, BYTES);
		free(want);
	}
	ckpt_checkpoint_close(c);
}

/* async-01: of every kind. The save before it is held at its gate, so when
 * memory goes, no byte of this one has been stored. */
static void nothing_is_touched_after_captured(void **state)
{
	struct fix *f = *state;
	struct gate g = GATE;
	struct watch w = { 0 };
	struct sources all;
	struct ckpt_err err = { 0 };
	uint32_t item;

	sources_open(f, &all);
	struct ckpt_save *before = gated(f, "before", &w, &g);
	struct ckpt_save *s = fix_begin(f->writer, "a", false, &item);

	for (int i = 0; i < KINDS; i++) {
		struct ckpt_tensor_desc d = fix_desc(names[i], CKPT_U8,
						     SHAPE(2, ROWS, COLUMNS));
		struct ckpt_provider p = source(&all, i);

		assert_ok(ckpt_save_tensor(s, item, &d, &p, &err));
	}
	assert_ok(ckpt_save_start(s, &err));
	assert_ok(ckpt_save_wait(s, CKPT_CAPTURED, &err));
	for (int i = 0; i < KINDS; i++)
		memory_seal(&all.memory[i], true);
	assert_int_equal(ftruncate(all.fd, 0), 0);
	close(all.fd);
	ckpt_memory_unref(all.device); /* ends: no provider has it */
	assert_int_equal(ckpt_save_phase(s), CKPT_CAPTURED);
	gate_open(&g);
	assert_ok(ckpt_save_wait(s, CKPT_DURABLE, &err));
	ckpt_save_free(s);
	ckpt_save_free(before);
	for (int i = 0; i < KINDS; i++)
		memory_seal(&all.memory[i], false);
	expect_bytes(f, &all);
	for (int i = 0; i < KINDS; i++)
		memory_free(&all.memory[i]);
}

#define TEST(name) \
	cmocka_unit_test_setup_teardown(name, fix_setup, fix_teardown)

int main(void)
{
	const struct CMUnitTest tests[] = {
		TEST(nothing_is_touched_after_captured),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
