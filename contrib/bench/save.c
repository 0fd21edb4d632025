/* SPDX-License-Identifier: Apache-2.0 */
/*
 * save.c - bench-save: holds one state and saves it on command.
 *
 *	bench-save PREFIX
 *
 * reads PREFIX.json and PREFIX.raw (states.py), then lines on stdin, and
 * answers each with one line of JSON on stdout; seconds throughout.
 *
 *	open STORE [codec=C] [staging=BYTES] [threads=N] [nice=N] [cpu=PERCENT]
 *	     [rate=BYTES] [touch=1]     a new store and a writer on it
 *	close                           both
 *	save NAME durable               times since the call of begin
 *	save NAME captured+durable      waits for the first phase too
 *	save NAME overlap WORK          computes WORK before that wait
 *	update FRACTION
 *	limits FOLDER
 *	calibrate SECONDS CORES         the WORK that takes so long
 *	train STEPS EVERY WORK CORES    as many steps; EVERY 0: no saves
 *	quit
 *
 * One thread; libckpt's own are the only others but while computing.
 */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <ckpt/ckpt.h>
#include <ckpt/writer.h>

#include "bench.h"

struct bench {
	struct bench_state state;
	struct ckpt_store *store;
	struct ckpt_writer *writer;
	struct ckpt_err err;
};

/* Moments of one save, in seconds since the call of begin. */
struct times {
	double zero, begun, described, started, computed, captured, durable;
};

static void answer_error(const struct bench *b)
{
	printf("{\"error\": \"");
	for (const char *c = b->err.message; *c; c++)
		if (*c != '"' && *c != '\\')
			putchar(*c);
	printf("\"}\n");
}

static int refuse(struct bench *b, const char *what)
{
	snprintf(b->err.message, sizeof(b->err.message), "%s", what);
	return CKPT_EINVAL;
}

/* ---- open ---- */

static int parse_codec(struct bench *b, const char *name, enum ckpt_codec *out)
{
	if (!strcmp(name, "auto"))
		*out = CKPT_CODEC_AUTO;
	else if (!strcmp(name, "raw"))
		*out = CKPT_CODEC_RAW;
	else if (!strcmp(name, "zstd"))
		*out = CKPT_CODEC_ZSTD;
	else if (!strcmp(name, "planes"))
		*out = CKPT_CODEC_PLANES;
	else
		return refuse(b, "this libckpt has no such codec");
	return 0;
}

static int parse_option(struct bench *b, struct ckpt_writer_opts *opts,
			const char *word)
{
	const char *value = strchr(word, '=');
	size_t n = value ? (size_t)(value - word) : 0;
	uint64_t number = value ? strtoull(value + 1, NULL, 0) : 0;

	if (n == 5 && !strncmp(word, "codec", n))
		return parse_codec(b, value + 1, &opts->codec);
	if (n == 7 && !strncmp(word, "staging", n))
		opts->staging_bytes = number;
	else if (n == 7 && !strncmp(word, "threads", n))
		opts->threads = (uint32_t)number;
	else if (n == 4 && !strncmp(word, "nice", n))
		opts->nice = (int)number;
	else if (n == 3 && !strncmp(word, "cpu", n))
		opts->cpu_share = (uint32_t)number;
	else if (n == 4 && !strncmp(word, "rate", n))
		opts->write_bytes_per_s = number;
	else if (n == 5 && !strncmp(word, "touch", n))
		opts->flags |= CKPT_WRITER_TOUCH;
	else
		return refuse(b, "this libckpt has no such option");
	return 0;
}

static void shut(struct bench *b)
{
	ckpt_writer_close(b->writer);
	ckpt_store_close(b->store);
	b->writer = NULL;
	b->store = NULL;
}

static int do_open(struct bench *b, char **word, int count)
{
	struct ckpt_writer_opts opts = { .size = sizeof(opts),
					 .codec = CKPT_CODEC_AUTO };
	double took;
	int rc = count < 2 ? refuse(b, "open STORE") : 0;

	shut(b);
	for (int i = 2; i < count && rc == 0; i++)
		rc = parse_option(b, &opts, word[i]);
	if (rc == 0)
		rc = ckpt_store_init(word[1], &b->err);
	if (rc == 0)
		rc = ckpt_store_open(word[1], NULL, &b->store, &b->err);
	took = bench_now();
	if (rc == 0)
		rc = ckpt_writer_open(b->store, &opts, &b->writer, &b->err);
	if (rc == 0)
		printf("{\"open\": %.6f}\n", bench_now() - took);
	return rc;
}

/* ---- save ---- */

static int describe_entry(struct bench *b, struct ckpt_save *save,
			  uint32_t item, const struct bench_entry *e)
{
	struct ckpt_tensor_desc t = { .size = sizeof(t),
				      .name = e->name,
				      .dtype = e->dtype,
				      .shape = e->shape };
	struct ckpt_provider p;
	int rc = ckpt_provider_host(b->state.data + e->off, e->bytes, &p,
				    &b->err);

	if (rc == 0 && e->is_file)
		rc = ckpt_save_file(save, item, e->name, NULL, e->bytes, &p,
				    &b->err);
	else if (rc == 0)
		rc = ckpt_save_tensor(save, item, &t, &p, &b->err);
	return rc;
}

static int describe(struct bench *b, struct ckpt_save *save)
{
	const char *group = "";
	uint32_t item = 0;
	int rc = 0;

	for (size_t i = 0; i < b->state.entry_count && rc == 0; i++) {
		const struct bench_entry *e = &b->state.entry[i];
		struct ckpt_item_desc desc = {
			.size = sizeof(desc),
			.name = e->group,
			.kind = e->is_file ? CKPT_ITEM_FILES
					   : CKPT_ITEM_TENSORS,
		};

		if (strcmp(group, e->group) != 0)
			rc = ckpt_save_item(save, &desc, &item, &b->err);
		group = e->group;
		if (rc == 0)
			rc = describe_entry(b, save, item, e);
	}
	return rc;
}

static int start(struct bench *b, const char *name, struct ckpt_save **out,
		 struct times *t)
{
	struct ckpt_save_desc desc = { .size = sizeof(desc), .name = name };
	int rc;

	if (!b->writer)
		return refuse(b, "no store is open");
	*t = (struct times){ .zero = bench_now() };
	rc = ckpt_save_begin(b->writer, &desc, out, &b->err);
	t->begun = bench_now() - t->zero;
	if (rc == 0)
		rc = describe(b, *out);
	t->described = bench_now() - t->zero;
	if (rc == 0)
		rc = ckpt_save_start(*out, &b->err);
	t->started = bench_now() - t->zero;
	return rc;
}

static int wait_for(struct bench *b, struct ckpt_save *save,
		    enum ckpt_phase phase, double zero, double *out)
{
	int rc = ckpt_save_wait(save, phase, &b->err);

	*out = bench_now() - zero;
	return rc;
}

static void answer_save(const struct ckpt_save *save, const struct times *t)
{
	struct ckpt_save_progress p;

	ckpt_save_progress(save, &p);
	printf("{\"begin\": %.6f, \"describe\": %.6f, \"start\": %.6f",
	       t->begun, t->described, t->started);
	if (t->captured > 0)
		printf(", \"captured\": %.6f, \"blocking\": %.6f", t->captured,
		       t->captured - (t->computed - t->started));
	printf(", \"durable\": %.6f, \"bytes\": %" PRIu64
	       ", \"bytes_new\": %" PRIu64 ", \"bytes_written\": %" PRIu64
	       ", \"chunks\": %" PRIu64 ", \"chunks_new\": %" PRIu64 "}\n",
	       t->durable, p.bytes_total, p.bytes_new, p.bytes_written,
	       p.chunk_count, p.chunk_new_count);
}

static int do_save(struct bench *b, char **word, int count)
{
	struct ckpt_save *save = NULL;
	struct times t = { 0 };
	bool overlap = count == 4 && !strcmp(word[2], "overlap");
	int rc = count < 3 ? refuse(b, "save NAME PHASES")
			   : start(b, word[1], &save, &t);

	if (rc == 0 && overlap)
		bench_compute(strtoull(word[3], NULL, 0), 1);
	t.computed = overlap ? bench_now() - t.zero : t.started;
	if (rc == 0 && strcmp(word[2], "durable") != 0)
		rc = wait_for(b, save, CKPT_CAPTURED, t.zero, &t.captured);
	if (rc == 0)
		rc = wait_for(b, save, CKPT_DURABLE, t.zero, &t.durable);
	if (rc == 0)
		answer_save(save, &t);
	ckpt_save_free(save);
	return rc;
}

/* ---- train ---- */

struct training {
	struct ckpt_save *save; /* in flight, or NULL */
	bool captured;
	uint64_t save_count;
	double blocked;
};

/* Wait for @phase, if a save is in flight; what that takes is lost. */
static int settle(struct bench *b, struct training *t, enum ckpt_phase phase)
{
	double zero = bench_now(), took = 0;
	int rc = 0;

	if (!t->save || (phase == CKPT_CAPTURED && t->captured))
		return 0;
	rc = wait_for(b, t->save, phase, zero, &took);
	t->blocked += took;
	t->captured = true;
	if (phase == CKPT_DURABLE) {
		ckpt_save_free(t->save);
		t->save = NULL;
	}
	return rc;
}

static int train_save(struct bench *b, struct training *t, uint64_t step)
{
	char name[32];
	struct times times = { 0 };
	int rc = settle(b, t, CKPT_DURABLE);

	snprintf(name, sizeof(name), "run/%" PRIu64, step);
	if (rc == 0)
		rc = start(b, name, &t->save, &times);
	if (rc == 0) {
		t->blocked += times.started;
		t->captured = false;
		t->save_count++;
	}
	return rc;
}

/* The save comes half-way between multiples of EVERY, so that the last one has
 * as much time to become durable in the background as the others. */
static int do_train(struct bench *b, char **word, int count)
{
	struct training t = { 0 };
	uint64_t steps = count == 5 ? strtoull(word[1], NULL, 0) : 0;
	uint64_t every = count == 5 ? strtoull(word[2], NULL, 0) : 0;
	uint64_t work = count == 5 ? strtoull(word[3], NULL, 0) : 0;
	unsigned int cores = count == 5 ? (unsigned int)atoi(word[4]) : 0;
	double zero = bench_now();
	int rc = cores ? 0 : refuse(b, "train STEPS EVERY WORK CORES");

	for (uint64_t i = 1; i <= steps && rc == 0; i++) {
		bench_compute(work, cores);
		rc = settle(b, &t, CKPT_CAPTURED);
		if (rc == 0)
			bench_state_update(&b->state, 1);
		if (rc == 0 && every && i % every == (every + 1) / 2)
			rc = train_save(b, &t, i);
	}
	if (rc == 0)
		rc = settle(b, &t, CKPT_DURABLE);
	ckpt_save_free(t.save);
	if (rc == 0)
		printf("{\"total\": %.6f, \"saves\": %" PRIu64
		       ", \"blocked\": %.6f}\n",
		       bench_now() - zero, t.save_count, t.blocked);
	return rc;
}

/* ---- the rest ---- */

static int do_close(struct bench *b, char **word, int count)
{
	(void)word;
	(void)count;
	shut(b);
	printf("{}\n");
	return 0;
}

static int do_update(struct bench *b, char **word, int count)
{
	double took = bench_now();
	uint64_t bytes;

	if (count != 2)
		return refuse(b, "update FRACTION");
	bytes = bench_state_update(&b->state, atof(word[1]));
	printf("{\"update\": %.6f, \"bytes\": %" PRIu64 "}\n",
	       bench_now() - took, bytes);
	return 0;
}

static int do_limits(struct bench *b, char **word, int count)
{
	if (count != 2)
		return refuse(b, "limits FOLDER");
	bench_limits(&b->state, word[1]);
	return 0;
}

static int do_calibrate(struct bench *b, char **word, int count)
{
	if (count != 3 || atoi(word[2]) < 1)
		return refuse(b, "calibrate SECONDS CORES");
	printf("{\"work\": %" PRIu64 "}\n",
	       bench_calibrate(atof(word[1]), (unsigned int)atoi(word[2])));
	return 0;
}

static const struct {
	const char *name;
	int (*fn)(struct bench *b, char **word, int count);
} commands[] = {
	{ "open", do_open },	 { "save", do_save },
	{ "update", do_update }, { "limits", do_limits },
	{ "train", do_train },	 { "calibrate", do_calibrate },
	{ "close", do_close },
};

static int obey(struct bench *b, char *line)
{
	char *word[16], *rest = NULL;
	int count = 0;

	for (char *w = strtok_r(line, " \n", &rest); w && count < 16;
	     w = strtok_r(NULL, " \n", &rest))
		word[count++] = w;
	if (count && !strcmp(word[0], "quit"))
		return 1;
	for (size_t i = 0; count && i < sizeof(commands) / sizeof(*commands);
	     i++)
		if (!strcmp(word[0], commands[i].name)) {
			if (commands[i].fn(b, word, count) != 0)
				answer_error(b);
			return 0;
		}
	refuse(b, "no such command");
	answer_error(b);
	return 0;
}

int main(int argc, char **argv)
{
	struct bench b = { 0 };
	char line[8192];

	if (argc != 2) {
		fprintf(stderr, "usage: bench-save PREFIX\n");
		return 2;
	}
	bench_state_load(&b.state, argv[1]);
	printf("{\"bytes\": %" PRIu64 "}\n", b.state.bytes);
	fflush(stdout);
	while (fgets(line, sizeof(line), stdin) && obey(&b, line) == 0)
		fflush(stdout);
	shut(&b);
	bench_state_fini(&b.state);
	return 0;
}
