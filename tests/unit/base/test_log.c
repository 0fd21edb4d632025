/* SPDX-License-Identifier: Apache-2.0 */
/* test_log.c - notes reach the one sink, as one line each, or nobody. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>
#include <string.h>

#include "base/log.h"

struct heard {
	int count;
	enum ckb_level level;
	char text[4096];
};

static void hear(void *ctx, enum ckb_level level, const char *text)
{
	struct heard *h = ctx;

	h->count++;
	h->level = level;
	strncpy(h->text, text, sizeof(h->text) - 1);
}

static void notes_reach_the_sink_as_one_line(void **state)
{
	struct heard h = { 0 };
	char name[3000];

	(void)state;
	ckb_log_sink(hear, &h);
	ckb_log(CKB_WARN, "pack '%s': %d", "a\nb", 3);
	assert_int_equal(h.count, 1);
	assert_int_equal(h.level, CKB_WARN);
	assert_string_equal(h.text, "pack 'a\\x0ab': 3");
	memset(name, 'n', sizeof(name) - 1);
	name[sizeof(name) - 1] = '\0';
	ckb_log(CKB_DEBUG, "%s", name);
	assert_int_equal(h.count, 2);
	assert_string_equal(h.text + strlen(h.text) - 3, "...");
	ckb_log_sink(NULL, NULL);
}

static void without_a_sink_notes_are_dropped(void **state)
{
	struct heard h = { 0 };

	(void)state;
	ckb_log_sink(hear, &h);
	ckb_log_sink(NULL, NULL);
	ckb_log(CKB_ERROR, "nobody hears %d", 1);
	assert_int_equal(h.count, 0);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(notes_reach_the_sink_as_one_line),
		cmocka_unit_test(without_a_sink_notes_are_dropped),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
