/* SPDX-License-Identifier: Apache-2.0 */
/*
 * out.c - tables, JSON, sizes, times and progress.
 *
 * Tables come from libsmartcols, which sizes columns and cuts them on narrow
 * terminals; what is in a cell is made harmless here. Progress goes to stderr,
 * only to a terminal, and only after a second: quick commands stay silent.
 */
#include <inttypes.h>
#include <langinfo.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "base/text.h"
#include "cli/cli.h"

#define SECOND_NS 1000000000ll

const char *cli_size(char dst[CLI_SIZE_BYTES], uint64_t bytes)
{
	static const char units[] = "KMGTPE";
	double v = (double)bytes;
	size_t u = 0;

	if (bytes < 1024) {
		snprintf(dst, CLI_SIZE_BYTES, "%" PRIu64 " B", bytes);
		return dst;
	}
	for (v /= 1024; v >= 1024 && u + 2 < sizeof(units); u++)
		v /= 1024;
	snprintf(dst, CLI_SIZE_BYTES, v < 10 ? "%.2f %ciB" : "%.1f %ciB", v,
		 units[u]);
	return dst;
}

const char *cli_time(char dst[CLI_TIME_BYTES], int64_t time_ns)
{
	time_t t = (time_t)(time_ns / SECOND_NS);
	struct tm tm;

	if (!localtime_r(&t, &tm) ||
	    strftime(dst, CLI_TIME_BYTES, "%Y-%m-%d %H:%M:%S", &tm) == 0)
		snprintf(dst, CLI_TIME_BYTES, "?");
	return dst;
}

const char *cli_bold(const struct cli *cli)
{
	return cli->color ? "\033[1m" : "";
}

const char *cli_red(const struct cli *cli)
{
	return cli->color ? "\033[31m" : "";
}

const char *cli_plain(const struct cli *cli)
{
	return cli->color ? "\033[0m" : "";
}

const char *cli_count(char dst[CLI_COUNT_BYTES], uint64_t n,
		      const char *noun)
{
	snprintf(dst, CLI_COUNT_BYTES, "%" PRIu64 " %s%s", n, noun,
		 n == 1 ? "" : "s");
	return dst;
}

void cli_escape(struct ckb_buf *out, const char *text, size_t len)
{
	bool utf8 = strcmp(nl_langinfo(CODESET), "UTF-8") == 0;

	while (len > 0) {
		unsigned char first = (unsigned char)*text;
		size_t n = utf8 || first < 0x80 ? ckb_utf8_char(text, len) : 0;

		if (n > 0 && !ckb_utf8_hidden(ckb_utf8_value(text, n))) {
			ckb_buf_put(out, text, n);
		} else {
			ckb_buf_printf(out, "\\x%02x", first);
			n = 1;
		}
		text += n;
		len -= n;
	}
}

void cli_say(FILE *to, const char *fmt, ...)
{
	CKB_BUF struct ckb_buf shown = { 0 };
	CKB_FREE char *text = NULL;
	va_list ap;

	va_start(ap, fmt);
	if (vasprintf(&text, fmt, ap) < 0)
		text = NULL;
	va_end(ap);
	if (text && isatty(fileno(to)))
		cli_escape(&shown, text, strlen(text));
	else
		ckb_buf_puts(&shown, text ? text : "out of memory");
	/* in one write: lines of others come between */
	ckb_buf_putc(&shown, '\n');
	if (!shown.failed)
		fwrite(shown.data, 1, shown.len, to);
}

void cli_line(const char *text)
{
	cli_say(stdout, "%s", text);
}

struct libscols_table *cli_table(const struct cli *cli, const char *name,
				 const struct cli_column *columns,
				 size_t count)
{
	struct libscols_table *t = scols_new_table();

	if (!t)
		return NULL;
	scols_table_set_name(t, name);
	scols_table_enable_json(t, cli->json);
	scols_table_enable_colors(t, cli->color && !cli->json);
	/* cli_row() escapes */
	scols_table_enable_noencoding(t, !cli->json);
	for (size_t i = 0; i < count; i++) {
		struct libscols_column *c =
			scols_table_new_column(t, columns[i].name, 0,
					       columns[i].right ?
					       SCOLS_FL_RIGHT : 0);
		if (!c) {
			scols_unref_table(t);
			return NULL;
		}
		if (cli->color && !cli->json)
			scols_cell_set_color(scols_column_get_header(c),
					     "\033[1m");
		if (columns[i].number)
			scols_column_set_json_type(c, SCOLS_JSON_NUMBER);
	}
	return t;
}

void cli_table_cut(struct libscols_table *table, size_t column)
{
	struct libscols_column *c = scols_table_get_column(table, column);

	scols_column_set_flags(c, scols_column_get_flags(c) | SCOLS_FL_TRUNC);
}

void cli_row_red(const struct cli *cli, struct libscols_table *table)
{
	size_t n = scols_table_get_nlines(table);

	if (cli->color && !cli->json && n > 0)
		scols_line_set_color(scols_table_get_line(table, n - 1),
				     "\033[31m");
}

int cli_row(struct libscols_table *table, const char *const *cells,
	    size_t count)
{
	struct libscols_line *line = scols_table_new_line(table, NULL);

	if (!line)
		return CKPT_ENOMEM;
	for (size_t i = 0; i < count; i++) {
		CKB_BUF struct ckb_buf cell = { 0 };

		if (!cells[i])
			continue;
		if (scols_table_is_json(table))
			ckb_buf_puts(&cell, cells[i]);
		else
			cli_escape(&cell, cells[i], strlen(cells[i]));
		ckb_buf_put(&cell, "", 1);
		if (cell.failed ||
		    scols_line_set_data(line, i, (char *)cell.data) != 0)
			return CKPT_ENOMEM;
	}
	return 0;
}

int cli_table_end(struct libscols_table *table)
{
	int rc = scols_print_table(table);

	scols_unref_table(table);
	return rc == 0 ? CLI_OK : CLI_FAILED;
}

static int64_t now_ns(void)
{
	struct timespec ts;

	clock_gettime(CLOCK_MONOTONIC, &ts);
	return (int64_t)ts.tv_sec * SECOND_NS + ts.tv_nsec;
}

void cli_progress_init(struct cli_progress *p, const struct cli *cli,
		       const char *verb)
{
	memset(p, 0, sizeof(*p));
	p->verb = verb;
	p->on = !cli->quiet && isatty(STDERR_FILENO);
	p->start_ns = now_ns();
}

void cli_progress(struct cli_progress *p, uint64_t done, uint64_t total)
{
	char have[CLI_SIZE_BYTES], all[CLI_SIZE_BYTES], rate[CLI_SIZE_BYTES];
	int64_t now = now_ns();
	double seconds = (double)(now - p->start_ns) / SECOND_NS;

	if (!p->on || seconds < 1 || now - p->last_ns < SECOND_NS / 5)
		return;
	double per_second = (double)done / seconds;

	fprintf(stderr, "\r\033[K%s %s of %s, %s/s", p->verb,
		cli_size(have, done), cli_size(all, total),
		cli_size(rate, (uint64_t)per_second));
	if (per_second > 0 && done <= total)
		fprintf(stderr, ", %.0f s left",
			(double)(total - done) / per_second);
	fflush(stderr);
	p->drawn = true;
	p->last_ns = now;
}

void cli_progress_end(struct cli_progress *p)
{
	if (p->drawn)
		fprintf(stderr, "\r\033[K");
	p->drawn = false;
}
