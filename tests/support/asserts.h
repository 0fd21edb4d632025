/* SPDX-License-Identifier: Apache-2.0 */
/*
 * support/asserts.h - cmocka, and asserts on calls that fill a `struct
 * ckpt_err err` of the test's: what they say is its message.
 */
#ifndef TEST_ASSERTS_H
#define TEST_ASSERTS_H

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

/* What fixtures in headers begin with: no test uses all of them. */
#define FIX __attribute__((unused)) static

#define assert_ok(call) \
	do { \
		int rc_ = (call); \
		if (rc_ != 0) \
			fail_msg("%s: %d: %s", #call, rc_, err.message); \
	} while (0)
#define assert_code(call, want) \
	do { \
		int rc_ = (call); \
		if (rc_ != (want)) \
			fail_msg("%s: %d, not %d: %s", #call, rc_, (want), \
				 err.message); \
	} while (0)
#define assert_says(err, part) \
	do { \
		if (!strstr((err).message, (part))) \
			fail_msg("'%s' does not say '%s'", (err).message, \
				 (part)); \
	} while (0)

#endif
