/* SPDX-License-Identifier: Apache-2.0 */
/*
 * log.c - notes to the one sink of the program.
 *
 * The sink is set before threads start and called by any of them; it must be
 * thread-safe itself. Without one, notes are dropped.
 */
#include "base/log.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "base/err.h"

static ckb_log_fn sink;
static void *sink_ctx;

void ckb_log_sink(ckb_log_fn fn, void *ctx)
{
	sink = fn;
	sink_ctx = ctx;
}

void ckb_log(enum ckb_level level, const char *fmt, ...)
{
	char text[2048], line[1200];
	va_list ap;

	if (!sink)
		return;
	va_start(ap, fmt);
	vsnprintf(text, sizeof(text), fmt, ap);
	va_end(ap);
	sink(sink_ctx, level, ckb_quote(line, sizeof(line), text,
					strlen(text)));
}
