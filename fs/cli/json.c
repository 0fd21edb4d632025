/* SPDX-License-Identifier: Apache-2.0 */
/* json.c - JSON that a command prints. See json.h. */
#include "cli/json.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <string.h>
#include <time.h>

#include "base/text.h"
#include "format/config.h"

static void put_key(struct cli_json *j, const char *key)
{
	if (j->comma)
		ckb_buf_puts(&j->text, ", ");
	j->comma = true;
	if (key) {
		ckf_json_string(&j->text, key, strlen(key));
		ckb_buf_puts(&j->text, ": ");
	}
}

void cli_json_open(struct cli_json *j, const char *key, char open)
{
	put_key(j, key);
	ckb_buf_putc(&j->text, open);
	j->comma = false;
}

void cli_json_close(struct cli_json *j, char close)
{
	ckb_buf_putc(&j->text, close);
	j->comma = true;
}

void cli_json_null(struct cli_json *j, const char *key)
{
	put_key(j, key);
	ckb_buf_puts(&j->text, "null");
}

void cli_json_name(struct cli_json *j, const char *key, const char *text,
		   size_t len)
{
	put_key(j, key);
	ckf_json_string(&j->text, text, len);
}

void cli_json_text(struct cli_json *j, const char *key, const char *text)
{
	if (text)
		cli_json_name(j, key, text, strlen(text));
	else
		cli_json_null(j, key);
}

void cli_json_u64(struct cli_json *j, const char *key, uint64_t v)
{
	put_key(j, key);
	ckb_buf_printf(&j->text, "%" PRIu64, v);
}

void cli_json_i64(struct cli_json *j, const char *key, int64_t v)
{
	put_key(j, key);
	ckb_buf_printf(&j->text, "%" PRId64, v);
}

void cli_json_bool(struct cli_json *j, const char *key, bool v)
{
	put_key(j, key);
	ckb_buf_puts(&j->text, v ? "true" : "false");
}

void cli_json_double(struct cli_json *j, const char *key, double v)
{
	if (!isfinite(v)) {
		cli_json_null(j, key);
		return;
	}
	put_key(j, key);
	ckb_buf_printf(&j->text, "%.17g", v);
}

void cli_json_object(struct cli_json *j, const char *key, const char *object)
{
	if (!object || ckf_json_object(object, "", NULL) < 0) {
		cli_json_text(j, key, object);
		return;
	}
	put_key(j, key);
	ckb_buf_puts(&j->text, object);
}

void cli_json_uuid(struct cli_json *j, const char *key, const uint8_t *uuid)
{
	char text[CKB_UUID_TEXT_BYTES];

	if (uuid)
		ckb_uuid_text(text, uuid);
	cli_json_text(j, key, uuid ? text : NULL);
}

void cli_json_time(struct cli_json *j, const char *key, int64_t ns)
{
	int64_t part = ns % 1000000000;
	time_t t = (time_t)(ns / 1000000000);
	char day[40], text[64];
	struct tm tm;

	if (part < 0) {
		part += 1000000000;
		t--;
	}
	gmtime_r(&t, &tm);
	strftime(day, sizeof(day), "%Y-%m-%dT%H:%M:%S", &tm);
	snprintf(text, sizeof(text), "%s.%09dZ", day, (int)part);
	cli_json_text(j, key, text);
}

int cli_json_end(const struct cli *cli, struct cli_json *j)
{
	bool failed = j->text.failed;

	if (!failed) {
		fwrite(j->text.data, 1, j->text.len, stdout);
		putchar('\n');
	} else {
		fprintf(stderr, "ckptfs %s: out of memory\n", cli->command);
	}
	ckb_buf_fini(&j->text);
	return failed ? CLI_FAILED : CLI_OK;
}
