/* SPDX-License-Identifier: Apache-2.0 */
/* cmd_import.c - import: files of other formats become a checkpoint. */
#include <getopt.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "base/limits.h"
#include "cli/json.h"

#define STAGING_BYTES (128u << 20) /* told in ckptfs-import(1) */

struct import {
	struct ckpt_writer_opts writer;
	struct ckpt_import_opts opts;
	struct cli_progress progress;
	struct ckb_buf notes; /* each with a NUL byte behind it */
	bool has_dtype;
};

static int on_progress(void *ctx, const struct ckpt_save_progress *p)
{
	cli_progress(&((struct import *)ctx)->progress, p->bytes_captured,
		     p->bytes_total);
	return cli_stopped();
}

static void on_note(void *ctx, const char *text)
{
	ckb_buf_put(&((struct import *)ctx)->notes, text, strlen(text) + 1);
}

/* The note after @note, or the first; NULL: there is none. */
static const char *next_note(const struct import *m, const char *note)
{
	const char *first = (const char *)m->notes.data;

	if (m->notes.failed || m->notes.len == 0)
		return NULL;
	note = note ? note + strlen(note) + 1 : first;
	return note < first + m->notes.len ? note : NULL;
}

static int summary_json(const struct cli *cli, const struct import *m,
			const struct ckpt_import_result *r)
{
	struct cli_json j = { 0 };

	cli_json_open(&j, NULL, '{');
	cli_json_u64(&j, "tensors", r->tensor_count);
	cli_json_u64(&j, "aliases", r->alias_count);
	cli_json_u64(&j, "files", r->file_count);
	cli_json_u64(&j, "bytes", r->progress.bytes_total);
	cli_json_u64(&j, "chunks", r->progress.chunk_count);
	cli_json_u64(&j, "new_chunks", r->progress.chunk_new_count);
	cli_json_u64(&j, "new_bytes", r->progress.bytes_new);
	cli_json_open(&j, "notes", '[');
	for (const char *n = NULL; (n = next_note(m, n));)
		cli_json_text(&j, NULL, n);
	cli_json_close(&j, ']');
	cli_json_close(&j, '}');
	return cli_json_end(cli, &j);
}

static void summary(const struct import *m, const char *place,
		    const struct ckpt_import_result *r)
{
	char all[CLI_SIZE_BYTES], new[CLI_SIZE_BYTES];
	char count[CLI_COUNT_BYTES], of[CLI_COUNT_BYTES];
	CKB_BUF struct ckb_buf text = { 0 };

	ckb_buf_printf(&text, "imported '%s': %s", place,
		       cli_count(count, r->tensor_count, "tensor"));
	if (r->alias_count > 0)
		ckb_buf_printf(&text, " (%" PRIu64 " of them tied)",
			       r->alias_count);
	if (r->file_count > 0)
		ckb_buf_printf(&text, ", %s",
			       cli_count(count, r->file_count, "file"));
	ckb_buf_printf(&text, ", %s; new in the store: %s in %" PRIu64
		       " of %s", cli_size(all, r->progress.bytes_total),
		       cli_size(new, r->progress.bytes_new),
		       r->progress.chunk_new_count,
		       cli_count(of, r->progress.chunk_count, "chunk"));
	cli_say(stdout, "%.*s", (int)text.len, (char *)text.data);
	for (const char *n = NULL; (n = next_note(m, n));)
		cli_say(stdout, "note: %s", n);
}

/* --dtype is for arrays of raw bytes; was there one? */
static void note_dtype(struct import *m, struct ckpt_store *store,
		       const char *name)
{
	enum ckpt_dtype want = m->opts.void_dtype;
	struct ckpt_checkpoint *c = NULL;
	char text[120];

	if (!m->has_dtype || ckpt_checkpoint_open(store, name, &c, NULL) < 0)
		return;
	for (size_t i = 0; i < ckpt_tensor_count(c) && m->has_dtype; i++)
		m->has_dtype = ckpt_tensor_at(c, i)->media_type ||
			       ckpt_tensor_at(c, i)->dtype != want;
	ckpt_checkpoint_close(c);
	snprintf(text, sizeof(text), "--dtype %s changed nothing: no .npy "
		 "array of raw bytes of that size is in the source",
		 ckpt_dtype_name(want));
	if (m->has_dtype)
		on_note(m, text);
}

static bool parse_codec(const char *text, enum ckpt_codec *out)
{
	static const struct {
		const char *name;
		enum ckpt_codec codec;
	} codecs[] = { { "raw", CKPT_CODEC_RAW }, { "zstd", CKPT_CODEC_ZSTD },
		       { "planes", CKPT_CODEC_PLANES },
		       { "auto", CKPT_CODEC_AUTO } };

	for (size_t i = 0; i < CKB_ARRAY_LEN(codecs); i++)
		if (strcmp(text, codecs[i].name) == 0) {
			*out = codecs[i].codec;
			return true;
		}
	return false;
}

/* idle, best-effort or best-effort:LEVEL; the level as ionice(1) has it. */
static bool parse_ionice(const char *text, struct ckpt_writer_opts *o)
{
	static const char best[] = "best-effort";
	const size_t len = sizeof(best) - 1;
	uint64_t level = 4;

	if (strcmp(text, "idle") == 0) {
		o->ionice = CKPT_IONICE_IDLE;
		return true;
	}
	if (strncmp(text, best, len) != 0 ||
	    (text[len] && (text[len] != ':' ||
			   !cli_whole(text + len + 1, 0, 7, &level))))
		return false;
	o->ionice = CKPT_IONICE_BEST_EFFORT;
	o->ionice_level = (int)level;
	return true;
}

enum { OPT_RATE = 256, OPT_THREADS, OPT_NICE, OPT_IONICE };

/* What the import may take of the machine. 0, or an exit code. */
static int parse_limit(const struct cli *cli, int option,
		       struct ckpt_writer_opts *o)
{
	uint64_t n = 0;

	if (option == OPT_RATE && !cli_bytes(optarg, &o->write_bytes_per_s))
		return cli_usage(cli, "--limit-rate wants bytes a second such "
				 "as 200M (K, M, G, T), not '%s'", optarg);
	if (option == OPT_IONICE && !parse_ionice(optarg, o))
		return cli_usage(cli, "--ionice is idle, best-effort or "
				 "best-effort:N, N from 0 to 7, not '%s'",
				 optarg);
	if (option == OPT_THREADS) {
		if (!cli_whole(optarg, 1, CKB_WRITER_THREADS_MAX, &n))
			return cli_usage(cli, "--threads wants a number from "
					 "1 to %u, not '%s'",
					 CKB_WRITER_THREADS_MAX, optarg);
		o->threads = (uint32_t)n;
	}
	if (option == OPT_NICE) {
		if (!cli_whole(optarg, 0, 19, &n))
			return cli_usage(cli, "--nice wants a number from 0 "
					 "to 19, not '%s'", optarg);
		o->nice = (int)n;
	}
	return CLI_OK;
}

/* getopt's options into @m. 0, or an exit code. */
static int parse(struct cli *cli, int argc, char **argv,
		 struct import *m)
{
	static const struct option options[] = {
		{ "item", required_argument, NULL, 'i' },
		{ "step", required_argument, NULL, 's' },
		{ "metadata", required_argument, NULL, 'm' },
		{ "codec", required_argument, NULL, 'c' },
		{ "dtype", required_argument, NULL, 'd' },
		{ "no-index", no_argument, NULL, 'n' },
		{ "replace", no_argument, NULL, 'r' },
		{ "limit-rate", required_argument, NULL, OPT_RATE },
		{ "threads", required_argument, NULL, OPT_THREADS },
		{ "nice", required_argument, NULL, OPT_NICE },
		{ "ionice", required_argument, NULL, OPT_IONICE }, { 0 },
	};
	int c;

	while ((c = cli_option(cli, argc, argv, "", options)) != -1) {
		switch (c) {
		case 'i':
			m->opts.item = optarg;
			break;
		case 's':
			if (!cli_whole(optarg, 0, UINT64_MAX, &m->opts.step))
				return cli_usage(cli, "--step wants a whole "
						 "number, not '%s'", optarg);
			m->opts.has_step = true;
			break;
		case 'm':
			m->opts.metadata = optarg;
			break;
		case 'c':
			if (!parse_codec(optarg, &m->writer.codec))
				return cli_usage(cli, "--codec is raw, zstd, "
						 "planes or auto, not '%s'",
						 optarg);
			break;
		case 'd':
			if (ckpt_dtype_parse(optarg, &m->opts.void_dtype) < 0)
				return cli_usage(cli, "--dtype wants a code "
						 "such as F8_E4M3, not '%s'",
						 optarg);
			m->has_dtype = true;
			break;
		case 'n':
			m->opts.ignore_index = true;
			break;
		case 'r':
			m->opts.replace = true;
			break;
		case '?':
			return CLI_USAGE;
		default:
			if (parse_limit(cli, c, &m->writer) != CLI_OK)
				return CLI_USAGE;
			break;
		}
	}
	return CLI_OK;
}

static int run_import(struct cli *cli, int argc, char **argv)
{
	struct import m = {
		.writer = { .size = sizeof(m.writer),
			    .codec = CKPT_CODEC_AUTO,
			    .staging_bytes = STAGING_BYTES },
		.opts = { .size = sizeof(m.opts), .on_progress = on_progress,
			  .on_note = on_note },
	};
	struct ckpt_import_result result = { 0 };
	struct ckpt_store *store = NULL;
	struct ckpt_writer *writer = NULL;
	struct cli_place place;
	struct ckpt_err err = { 0 };
	int rc = parse(cli, argc, argv, &m);

	if (rc != CLI_OK)
		return rc;
	if (argc - optind != 2)
		return cli_usage(cli, "SOURCE and STORE:NAME are wanted, %d "
				 "given", argc - optind);
	if (cli_swapped(argv[optind + 1], argv[optind]))
		return cli_usage(cli, "'%s' is in a store and '%s' is not: the "
				 "SOURCE comes first, then STORE:NAME",
				 argv[optind], argv[optind + 1]);
	if (cli_place(argv[optind + 1], &place, &err) < 0)
		return cli_fail(cli, &err);
	if (!*place.path) {
		cli_place_fini(&place);
		return cli_usage(cli, "'%s' lacks the checkpoint's name: "
				 "STORE:NAME", argv[optind + 1]);
	}
	const char *to = argv[optind + 1];

	if (to[strlen(to) - 1] == '/') {
		cli_place_fini(&place);
		return cli_usage(cli, "'%s' names a run, and the checkpoint's "
				 "own name is wanted: STORE:RUN/NAME", to);
	}
	m.opts.ctx = &m;
	cli_progress_init(&m.progress, cli, "importing");
	cli_stop_init();
	rc = cli_open(&place, 0, &store, &err);
	if (rc == 0)
		rc = ckpt_writer_open(store, &m.writer, &writer, &err);
	if (rc == 0)
		rc = ckpt_import(writer, argv[optind], place.path, &m.opts,
				 &result, &err);
	cli_progress_end(&m.progress);
	int said = CLI_OK;

	if (rc == 0)
		note_dtype(&m, store, place.path);
	if (rc == 0 && cli->json)
		said = summary_json(cli, &m, &result);
	else if (rc == 0 && !cli->quiet)
		summary(&m, argv[optind + 1], &result);
	ckb_buf_fini(&m.notes);
	ckpt_writer_close(writer);
	ckpt_store_close(store);
	cli_place_fini(&place);
	if (rc == CKPT_ECANCELED && cli_stopped())
		return cli_stop_end(cli, "nothing was saved");
	return rc < 0 ? cli_fail(cli, &err) : said;
}

const struct cli_command cli_import = {
	.name = "import",
	.usage = "[OPTIONS] SOURCE STORE:NAME",
	.summary = "Make a checkpoint of files of other formats",
	.help = "SOURCE is a safetensors file, a Hugging Face folder, an .npy "
		"file, a folder of\n.npy files, or an .npz file. NAME is a path"
		" such as gpt2/4000.\n\n"
		"      --item NAME  what its tensors are together (model)\n"
		"      --step N     training step; else NAME's last part gives "
		"it: 4000, step_4000\n"
		"      --metadata J the user's metadata, a JSON object\n"
		"      --dtype CODE what .npy arrays of raw bytes (V1, V2) "
		"hold, such as F8_E4M3\n"
		"      --no-index   every *.safetensors at a folder's top is a "
		"shard\n"
		"      --codec C    how chunks are stored: raw, zstd, planes "
		"or auto\n"
		"      --replace    a checkpoint of this name may be "
		"replaced\n"
		"      --limit-rate R\n"
		"                   write at most R bytes a second: 200M "
		"(K, M, G, T)\n"
		"      --threads N  compute with N threads; else one a "
		"processor, at most 16\n"
		"      --nice N     these threads' nice value, 0 to 19\n"
		"      --ionice C   their class of disk accesses: idle or "
		"best-effort[:0-7]\n",
	.run = run_import,
	.done = "the checkpoint was saved",
};
