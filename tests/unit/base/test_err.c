/* SPDX-License-Identifier: Apache-2.0 */
/* test_err.c - messages are one printable line, codes follow from errnos. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <string.h>
#include <sys/wait.h>

#include "base/err.h"
#include "base/text.h"

#include <ckpt/ckpt.h>

struct quoted {
	const char *text;
	size_t len;
	const char *want;
};
#define Q(text, want) { text, sizeof(text) - 1, want }

static void names_come_out_printable(void **state)
{
	static const struct quoted cases[] = {
		Q("", ""),
		Q("plain name", "plain name"),
		Q("a\nb\tc", "a\\x0ab\\x09c"),
		Q("a\0b", "a\\x00b"),
		Q("\x1b[31m", "\\x1b[31m"),
		Q("\x7f", "\\x7f"),
		Q("gr\xc3\xbc\xc3\x9f", "gr\xc3\xbc\xc3\x9f"),
		Q("\xf0\x9f\x98\x80", "\xf0\x9f\x98\x80"),
		Q("\xff\xc3", "\\xff\\xc3"),          /* cut, invalid */
		Q("\xc0\xaf", "\\xc0\\xaf"),          /* overlong */
		Q("\xed\xa0\x80", "\\xed\\xa0\\x80"), /* surrogate */
		Q("\xc2\x9b" "2J", "\\xc2\\x9b" "2J"), /* CSI as U+009B */
		Q("\xc2\xa0", "\xc2\xa0"),
		Q("\xe2\x80\xae" "a", "\\xe2\\x80\\xae" "a"), /* right to left */
		Q("\xef\xbb\xbf", "\\xef\\xbb\\xbf"), /* no width */
	};
	char dst[64];

	(void)state;
	for (size_t i = 0; i < CKB_ARRAY_LEN(cases); i++)
		assert_string_equal(ckb_quote(dst, sizeof(dst), cases[i].text,
					      cases[i].len), cases[i].want);
}

/* Whatever the room: it fits, is valid, and says that it was cut. */
static void long_names_are_cut_with_dots(void **state)
{
	const char *const texts[] = {
		"aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa",
		"\xc3\xbc\xc3\xbc\xc3\xbc\xc3\xbc\xc3\xbc\xc3\xbc\xc3\xbc",
		"\xf0\x9f\x98\x80\xf0\x9f\x98\x80\xf0\x9f\x98\x80",
		"\x01\x02\x03\x04\x05\x06\x07\x08",
	};

	(void)state;
	for (size_t i = 0; i < CKB_ARRAY_LEN(texts); i++)
		for (size_t room = 8; room < 64; room++) {
			char whole[256], dst[64];

			memset(dst, 'X', sizeof(dst));
			ckb_quote(whole, sizeof(whole), texts[i],
				  strlen(texts[i]));
			ckb_quote(dst, room, texts[i], strlen(texts[i]));
			size_t n = strlen(dst);

			assert_true(n < room);
			assert_true(ckb_utf8_ok(dst, n));
			if (strlen(whole) < room) {
				assert_string_equal(dst, whole);
				continue;
			}
			assert_string_equal(dst + n - 3, "...");
			assert_memory_equal(dst, whole, n - 3);
			assert_true(n + 4 >= room - 4); /* uses its room */
		}
}

static void messages_are_one_line_and_fit(void **state)
{
	struct ckpt_err err = { 0 };
	char name[3000];

	(void)state;
	assert_int_equal(ckb_err(&err, CKPT_EINVAL, "no '%s' in %d", "a\nb",
				 7), CKPT_EINVAL);
	assert_string_equal(err.message, "no 'a\\x0ab' in 7");
	assert_int_equal(err.code, CKPT_EINVAL);
	assert_int_equal(err.sys_errno, 0);
	memset(name, 'n', sizeof(name) - 1);
	name[sizeof(name) - 1] = '\0';
	ckb_err(&err, CKPT_ELIMIT, "'%s' is too long", name);
	assert_int_equal(strlen(err.message), sizeof(err.message) - 1);
	assert_string_equal(err.message + strlen(err.message) - 3, "...");
}

static void nobody_asks_for_the_message(void **state)
{
	(void)state;
	assert_int_equal(ckb_err(NULL, CKPT_EIO, "x"), CKPT_EIO);
	assert_int_equal(ckb_err_sys(NULL, ENOSPC, "x"), CKPT_ENOSPC);
	assert_int_equal(ckb_err_prefix(NULL, CKPT_EIO, "x"), CKPT_EIO);
	assert_int_equal(ckb_err_nomem(NULL), CKPT_ENOMEM);
}

static void codes_follow_from_errnos(void **state)
{
	static const int pairs[][2] = {
		{ ENOSPC, CKPT_ENOSPC }, { EDQUOT, CKPT_ENOSPC },
		{ EACCES, CKPT_EPERM }, { EPERM, CKPT_EPERM },
		{ EROFS, CKPT_EPERM }, { ENOENT, CKPT_ENOENT },
		{ EEXIST, CKPT_EEXIST }, { ENOMEM, CKPT_ENOMEM },
		{ ESTALE, CKPT_ESTALE }, { EIO, CKPT_EIO },
		{ EMFILE, CKPT_EIO }, { ENOTDIR, CKPT_EIO },
	};

	(void)state;
	for (size_t i = 0; i < CKB_ARRAY_LEN(pairs); i++) {
		struct ckpt_err err = { 0 };

		assert_int_equal(ckb_err_sys(&err, pairs[i][0],
					     "cannot read '%s'", "f"),
				 pairs[i][1]);
		assert_int_equal(err.code, pairs[i][1]);
		assert_int_equal(err.sys_errno, pairs[i][0]);
		assert_non_null(strstr(err.message, "cannot read 'f': "));
		assert_non_null(strstr(err.message, strerror(pairs[i][0])));
	}
}

/* The cause stands last, also behind a name that is far too long. */
static void a_long_name_leaves_room_for_the_cause(void **state)
{
	struct ckpt_err err = { 0 };
	char name[700];

	(void)state;
	memset(name, 'n', sizeof(name) - 1);
	name[sizeof(name) - 1] = '\0';
	ckb_err_sys(&err, EIO, "cannot read '%s'", name);
	assert_non_null(strstr(err.message, strerror(EIO)));
}

static void context_goes_before_the_message(void **state)
{
	struct ckpt_err err = { 0 };
	char name[1500];

	(void)state;
	ckb_err_sys(&err, ENOSPC, "cannot write");
	assert_int_equal(ckb_err_prefix(&err, CKPT_EUNSURE, "commit '%s'",
					"run\n1"), CKPT_EUNSURE);
	assert_int_equal(err.code, CKPT_EUNSURE);
	assert_int_equal(err.sys_errno, ENOSPC);
	assert_non_null(strstr(err.message,
			       "commit 'run\\x0a1': cannot write: "));
	memset(name, 'n', sizeof(name) - 1);
	name[sizeof(name) - 1] = '\0';
	for (int i = 0; i < 3; i++) {
		ckb_err_prefix(&err, CKPT_EIO, "%s", name);
		assert_true(strlen(err.message) < sizeof(err.message));
	}
}

static void every_code_has_its_name(void **state)
{
	(void)state;
	assert_string_equal(ckpt_code_name(0), "OK");
	assert_string_equal(ckpt_code_name(CKPT_EINVAL), "EINVAL");
	assert_string_equal(ckpt_code_name(CKPT_ECORRUPT), "ECORRUPT");
	assert_string_equal(ckpt_code_name(CKPT_ELIMIT), "ELIMIT");
	assert_string_equal(ckpt_code_name(CKPT_EUNSURE), "EUNSURE");
	assert_string_equal(ckpt_code_name(CKPT_ESTALE), "ESTALE");
	assert_string_equal(ckpt_code_name(CKPT_ETIMEDOUT), "ETIMEDOUT");
	assert_string_equal(ckpt_code_name(CKPT_ETIMEDOUT - 1), "?");
	assert_string_equal(ckpt_code_name(1), "?");
	assert_string_equal(ckpt_code_name(INT32_MIN), "?");
	assert_string_equal(ckpt_code_name(INT32_MAX), "?");
}

static void the_version_is_the_build_s(void **state)
{
	(void)state;
#ifdef CKPT_VERSION
	assert_string_equal(ckpt_version(), CKPT_VERSION);
#else
	assert_string_equal(ckpt_version(), "0");
#endif
}

/* A bug ends the program with a line that names the place. */
static void a_broken_requirement_aborts(void **state)
{
	int ends[2], status;
	char text[512] = "";

	(void)state;
	assert_int_equal(pipe(ends), 0);
	pid_t child = fork();

	if (child == 0) {
		signal(SIGABRT, SIG_DFL);
		dup2(ends[1], 2);
		CKB_REQUIRE(child == 0 && 1 == 2);
		_exit(0);
	}
	assert_true(child > 0);
	close(ends[1]);
	assert_true(read(ends[0], text, sizeof(text) - 1) > 0);
	close(ends[0]);
	assert_int_equal(waitpid(child, &status, 0), child);
	assert_true(WIFSIGNALED(status) && WTERMSIG(status) == SIGABRT);
	assert_non_null(strstr(text, "1 == 2"));
	assert_non_null(strstr(text, "test_err.c"));
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(names_come_out_printable),
		cmocka_unit_test(long_names_are_cut_with_dots),
		cmocka_unit_test(messages_are_one_line_and_fit),
		cmocka_unit_test(nobody_asks_for_the_message),
		cmocka_unit_test(codes_follow_from_errnos),
		cmocka_unit_test(a_long_name_leaves_room_for_the_cause),
		cmocka_unit_test(context_goes_before_the_message),
		cmocka_unit_test(every_code_has_its_name),
		cmocka_unit_test(the_version_is_the_build_s),
		cmocka_unit_test(a_broken_requirement_aborts),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
