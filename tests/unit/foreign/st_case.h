/* SPDX-License-Identifier: Apache-2.0 */
/* st_case.h - what the tests of the safetensors reader share. */
#ifndef ST_CASE_H
#define ST_CASE_H

#include <stdarg.h>
#include <setjmp.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include "base/buf.h"
#include "foreign/safetensors.h"

/* Parse @json as the header of a file whose data has @data_len bytes. The
 * text is copied to memory of just its length, so that ASan sees a read past
 * its end; *@out_text is to be freed after @st. */
static inline int st_parse(struct ckx_st *st, const char *json, size_t len,
			   uint64_t data_len, char **out_text,
			   struct ckpt_err *err)
{
	char *text = malloc(len ? len : 1);

	assert_non_null(text);
	memcpy(text, json, len);
	*out_text = text;
	return ckx_st_parse(st, text, len, 8 + (uint64_t)len + data_len, err);
}

struct st_case {
	const char *json;
	uint64_t data_len;
	int code;
	const char *says; /* part of the message; NULL when code is 0 */
};

static inline void st_check_case(const struct st_case *c)
{
	struct ckx_st st;
	struct ckpt_err err = { 0 };
	char *text;
	int rc = st_parse(&st, c->json, strlen(c->json), c->data_len, &text,
			  &err);

	if (rc != c->code)
		print_error("%s\n  gave %d '%s'\n", c->json, rc, err.message);
	assert_int_equal(rc, c->code);
	if (rc < 0 && !strstr(err.message, c->says))
		fail_msg("%s\n  said '%s'\n  not  '%s'", c->json, err.message,
			 c->says);
	if (rc < 0) {
		assert_int_equal(err.code, rc);
		assert_null(st.tensors); /* nothing to free */
	} else {
		ckx_st_fini(&st);
	}
	free(text);
}

#define ONE(name, dtype, shape, offsets) \
	"\"" name "\":{\"dtype\":\"" dtype "\",\"shape\":" shape \
	",\"data_offsets\":" offsets "}"

#endif
