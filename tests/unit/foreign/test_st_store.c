/* SPDX-License-Identifier: Apache-2.0 */
/*
 * test_st_store.c - the memory of a parsed header stays bounded, whatever a
 * header of the greatest length holds (S9, S10).
 */
#include "st_case.h"

#include <sys/resource.h>

#include "foreign/json_scan.h"
#include "foreign/st_internal.h"
#include "sanitized.h"

/* A header of about @len bytes made of @unit, in which '#' is a number that
 * counts up; @head and @tail around it. */
static void make(struct ckb_buf *json, size_t len, const char *head,
		 const char *unit, const char *tail)
{
	const char *hash = strchr(unit, '#');
	size_t front = hash ? (size_t)(hash - unit) : strlen(unit);

	ckb_buf_puts(json, head);
	for (uint32_t i = 0; json->len < len; i++) {
		char number[16];
		int n = snprintf(number, sizeof(number), "%x", i);

		if (i > 0)
			ckb_buf_putc(json, ',');
		ckb_buf_put(json, unit, front);
		if (!hash)
			continue;
		ckb_buf_put(json, number, (size_t)n);
		ckb_buf_puts(json, hash + 1);
	}
	ckb_buf_puts(json, tail);
	assert_false(json->failed);
}

static long peak_kib(void)
{
	struct rusage use;

	assert_int_equal(getrusage(RUSAGE_SELF, &use), 0);
	return use.ru_maxrss;
}

#define EMPTY "\"#\":{\"dtype\":\"U8\",\"shape\":[0],\"data_offsets\":[0,0]}"
#define DIMS8 "0,0,0,0,0,0,0,0"
#define DIMS64 DIMS8 "," DIMS8 "," DIMS8 "," DIMS8 "," DIMS8 "," DIMS8 "," \
	       DIMS8 "," DIMS8

static void hostile_headers_take_less_than_64_mib(void **state)
{
	static const struct {
		const char *head, *unit, *tail;
		int code;
	} cases[] = {
		{ "{", EMPTY, "}", CKPT_ELIMIT },
		{ "{", "\"#\":{\"dtype\":\"U8\",\"shape\":[" DIMS64
		  "],\"data_offsets\":[0,0]}", "}", CKPT_ELIMIT },
		{ "{", "\"\\u0061#\":{\"dtype\":\"U8\",\"shape\":[0],"
		  "\"data_offsets\":[0,0]}", "}", CKPT_ELIMIT },
		{ "{\"__metadata__\":{", "\"#\":\"\"", "}}", CKPT_ELIMIT },
		{ "{\"__metadata__\":{", "\"#\":\"\\u0061\\u0061\"", "}}",
		  CKPT_ELIMIT },
		/* unknown fields are passed over, not kept */
		{ "{\"a\":{\"dtype\":\"U8\",\"shape\":[0],\"data_offsets\":"
		  "[0,0],\"x\":[", "{\"#\":[]}", "]}}", 0 },
		{ "{\"a\":{\"dtype\":\"U8\",\"shape\":[0],\"data_offsets\":"
		  "[0,0],\"x\":[", "\"\\u0061#\"", "]}}", 0 },
	};
	struct ckb_buf json = { 0 };
	long before = 0; /* a peak only grows: all against the first */

	(void)state;
	for (size_t i = 0; i < CKB_ARRAY_LEN(cases); i++) {
		struct ckx_st st;
		struct ckpt_err err = { 0 };
		int rc;

		/* with sanitizers, where memory proves nothing, a tenth */
		json.len = 0;
		make(&json, SANITIZED ? 10000000 : 99999900, cases[i].head,
		     cases[i].unit, cases[i].tail);
		if (i == 0)
			before = peak_kib();
		rc = ckx_st_parse(&st, (char *)json.data, json.len,
				  8 + json.len, &err);
		if (!SANITIZED || cases[i].code == 0)
			assert_int_equal(rc, cases[i].code);
		if (rc == 0)
			ckx_st_fini(&st);
		if (!SANITIZED && peak_kib() - before > 64 << 10)
			fail_msg("case %zu took %ld KiB", i,
				 peak_kib() - before);
	}
	ckb_buf_fini(&json);
}

static void a_hundred_thousand_tensors_are_no_limit(void **state)
{
	struct ckb_buf json = { 0 };
	struct ckx_st st;
	struct ckpt_err err = { 0 };

	(void)state;
	make(&json, 5500000, "{", EMPTY, "}");
	assert_int_equal(ckx_st_parse(&st, (char *)json.data, json.len,
				      8 + json.len, &err), 0);
	assert_in_range(st.tensor_count, 95000, 105000);
	ckx_st_fini(&st);
	ckb_buf_fini(&json);
}

static void charges_stop_at_the_bound(void **state)
{
	struct ckx_st st = { 0 };
	struct ckpt_err err = { 0 };
	void *p = NULL, *q = NULL;

	(void)state;
	assert_int_equal(ckx_st_alloc(&st, 13, &p, &err), 0);
	assert_int_equal(st.parsed_bytes, 16);
	ckx_st_shrink(&st, 13, 3);
	assert_int_equal(st.parsed_bytes, 8);
	assert_int_equal(ckx_st_alloc(&st, 8, &q, &err), 0);
	assert_ptr_equal(q, (char *)p + 8);
	assert_int_equal(ckx_st_alloc(&st, CKX_ST_PARSED_MAX - 15, &q, &err),
			 CKPT_ELIMIT);
	assert_non_null(strstr(err.message, "48 MiB"));
	assert_int_equal(ckx_st_alloc(&st, CKX_ST_PARSED_MAX - 16, &q, &err),
			 0);
	assert_int_equal(ckx_st_alloc(&st, 1, &q, &err), CKPT_ELIMIT);
	ckx_st_fini(&st);
	assert_null(st.blocks);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(hostile_headers_take_less_than_64_mib),
		cmocka_unit_test(a_hundred_thousand_tensors_are_no_limit),
		cmocka_unit_test(charges_stop_at_the_bound),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
