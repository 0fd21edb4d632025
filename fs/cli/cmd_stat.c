/* SPDX-License-Identifier: Apache-2.0 */
/* cmd_stat.c - stat: what a store holds, what that saves, how often to save. */
#include <errno.h>
#include <getopt.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <sys/statvfs.h>

#include "cli/advice.h"

enum { COL_DTYPE, COL_TENSORS, COL_SIZE, COL_UNIQUE, COL_STORED, COL_DEDUP,
       COL_CODEC, COL_COUNT };

static const char *const codec_names[CKPT_STORED_END] = {
	"raw", "zstd", "planes", "constant", "newer",
};

/* Infinite where nothing but headers is stored. */
static double ratio(uint64_t whole, uint64_t part)
{
	return whole == part ? 1 : (double)whole / (double)part;
}

static const char *dtype_name(size_t i)
{
	return i == 0 ? "files" : ckpt_dtype_name((enum ckpt_dtype)i);
}

/* ---- for programs ---- */

static void put_dtype(struct cli_json *j, const char *key, const char *name,
		      const struct ckpt_usage_dtype *d)
{
	cli_json_open(j, key, '{');
	if (name)
		cli_json_text(j, "dtype", name);
	cli_json_u64(j, "tensors", d->tensor_count);
	cli_json_u64(j, "bytes", d->bytes);
	cli_json_u64(j, "unique_bytes", d->unique_bytes);
	cli_json_u64(j, "stored_bytes", d->stored_bytes);
	cli_json_double(j, "dedup_ratio", ratio(d->bytes, d->unique_bytes));
	cli_json_double(j, "codec_ratio", ratio(d->unique_bytes,
						d->stored_bytes));
	cli_json_close(j, '}');
}

static void put_codecs(struct cli_json *j, const struct ckpt_usage_codec *c)
{
	cli_json_open(j, "codecs", '[');
	for (size_t i = 0; i < CKPT_STORED_END; i++) {
		if (c[i].chunk_count == 0)
			continue;
		cli_json_open(j, NULL, '{');
		cli_json_text(j, "codec", codec_names[i]);
		cli_json_u64(j, "chunks", c[i].chunk_count);
		cli_json_u64(j, "unique_bytes", c[i].unique_bytes);
		cli_json_u64(j, "stored_bytes", c[i].stored_bytes);
		cli_json_double(j, "codec_ratio", ratio(c[i].unique_bytes,
							c[i].stored_bytes));
		cli_json_close(j, '}');
	}
	cli_json_close(j, ']');
}

static int print_json(const struct cli *cli, const uint8_t *uuid,
		      const struct ckpt_usage *u, const struct statvfs *fs,
		      const struct cli_advice *advice)
{
	struct cli_json j = { 0 };

	cli_json_open(&j, NULL, '{');
	cli_json_uuid(&j, "uuid", uuid);
	cli_json_u64(&j, "checkpoints", u->checkpoint_count);
	cli_json_u64(&j, "damaged", u->damaged_count);
	cli_json_u64(&j, "unread", u->unread_count);
	cli_json_u64(&j, "tags", u->tag_count);
	cli_json_u64(&j, "packs", u->pack_count);
	cli_json_u64(&j, "pack_bytes", u->pack_bytes);
	cli_json_u64(&j, "unused_packs", u->unused_pack_count);
	cli_json_u64(&j, "unused_pack_bytes", u->unused_pack_bytes);
	cli_json_u64(&j, "chunks", u->chunk_count);
	cli_json_u64(&j, "duplicate_chunks", u->duplicate_count);
	cli_json_u64(&j, "duplicate_bytes", u->duplicate_bytes);
	put_dtype(&j, "total", NULL, &u->total);
	cli_json_open(&j, "dtypes", '[');
	for (size_t i = 0; i < CKPT_DTYPE_END; i++)
		if (u->dtype[i].tensor_count > 0)
			put_dtype(&j, NULL, dtype_name(i), &u->dtype[i]);
	if (u->headers.tensor_count > 0)
		put_dtype(&j, NULL, "headers", &u->headers);
	cli_json_close(&j, ']');
	put_codecs(&j, u->codec);
	cli_json_u64(&j, "free_bytes", (uint64_t)fs->f_bavail * fs->f_frsize);
	cli_json_u64(&j, "file_system_bytes",
		     (uint64_t)fs->f_blocks * fs->f_frsize);
	if (advice->mtbf > 0)
		cli_advice_json(advice, &j);
	cli_json_close(&j, '}');
	return cli_json_end(cli, &j);
}

/* ---- for people ---- */

#define RATIO_BYTES 24
static const char *ratio_text(char dst[RATIO_BYTES], uint64_t whole,
			      uint64_t part)
{
	snprintf(dst, RATIO_BYTES, whole > 0 && part == 0 ? "-" : "%.2f",
		 ratio(whole, part));
	return dst;
}

static int put_row(struct libscols_table *table, const char *name,
		   const struct ckpt_usage_dtype *d)
{
	char count[24], dedup[RATIO_BYTES], codec[RATIO_BYTES];
	char size[CLI_SIZE_BYTES];
	char unique[CLI_SIZE_BYTES], stored[CLI_SIZE_BYTES];

	snprintf(count, sizeof(count), "%" PRIu64, d->tensor_count);
	const char *cells[COL_COUNT] = {
		name, count, cli_size(size, d->bytes),
		cli_size(unique, d->unique_bytes),
		cli_size(stored, d->stored_bytes),
		ratio_text(dedup, d->bytes, d->unique_bytes),
		ratio_text(codec, d->unique_bytes, d->stored_bytes),
	};

	return cli_row(table, cells, COL_COUNT);
}

static int no_table(struct libscols_table *table)
{
	scols_unref_table(table);
	fprintf(stderr, "ckptfs stat: out of memory\n");
	return CLI_FAILED;
}

static int print_dtypes(const struct cli *cli, const struct ckpt_usage *u)
{
	static const struct cli_column columns[COL_COUNT] = {
		{ "DTYPE", false, false }, { "TENSORS", true, false },
		{ "SIZE", true, false }, { "UNIQUE", true, false },
		{ "STORED", true, false }, { "DEDUP", true, false },
		{ "CODEC", true, false },
	};
	struct libscols_table *table = cli_table(cli, "dtypes", columns,
						 COL_COUNT);
	int rc = table ? 0 : CKPT_ENOMEM;

	for (size_t i = 0; rc == 0 && i < CKPT_DTYPE_END; i++)
		if (u->dtype[i].tensor_count > 0)
			rc = put_row(table, dtype_name(i), &u->dtype[i]);
	if (rc == 0 && u->headers.tensor_count > 0)
		rc = put_row(table, "headers", &u->headers);
	if (rc == 0)
		rc = put_row(table, "all", &u->total);
	return rc == 0 ? cli_table_end(table) : no_table(table);
}

static int print_codecs(const struct cli *cli, const struct ckpt_usage *u)
{
	static const struct cli_column columns[] = {
		{ "STORED AS", false, false }, { "CHUNKS", true, false },
		{ "UNIQUE", true, false }, { "STORED", true, false },
		{ "CODEC", true, false },
	};
	const size_t count = CKB_ARRAY_LEN(columns);
	struct libscols_table *table = cli_table(cli, "codecs", columns,
						 count);
	int rc = table ? 0 : CKPT_ENOMEM;

	for (size_t i = 0; rc == 0 && i < CKPT_STORED_END; i++) {
		const struct ckpt_usage_codec *c = &u->codec[i];
		char chunks[24], unique[CLI_SIZE_BYTES];
		char stored[CLI_SIZE_BYTES], codec[RATIO_BYTES];

		if (c->chunk_count == 0)
			continue;
		snprintf(chunks, sizeof(chunks), "%" PRIu64, c->chunk_count);
		const char *cells[] = {
			codec_names[i], chunks,
			cli_size(unique, c->unique_bytes),
			cli_size(stored, c->stored_bytes),
			ratio_text(codec, c->unique_bytes, c->stored_bytes),
		};

		rc = cli_row(table, cells, count);
	}
	return rc == 0 ? cli_table_end(table) : no_table(table);
}

static int print_text(const struct cli *cli, const struct ckpt_usage *u,
		      const struct statvfs *fs)
{
	char a[CLI_SIZE_BYTES], b[CLI_SIZE_BYTES], count[CLI_COUNT_BYTES];

	printf("checkpoints  %" PRIu64 ", %s\n", u->checkpoint_count,
	       cli_count(count, u->tag_count, "tag"));
	if (u->damaged_count > 0)
		printf("%sdamaged      %" PRIu64 "; ckptfs check tells "
		       "more%s\n", cli_red(cli), u->damaged_count,
		       cli_plain(cli));
	if (u->unread_count > 0)
		printf("%sunreadable   %" PRIu64 "; ckptfs check tells "
		       "more%s\n", cli_red(cli), u->unread_count,
		       cli_plain(cli));
	printf("packs        %" PRIu64 ", %s", u->pack_count,
	       cli_size(a, u->pack_bytes));
	if (u->unused_pack_count > 0)
		printf("; %" PRIu64 " of them, %s, used by no checkpoint",
		       u->unused_pack_count,
		       cli_size(b, u->unused_pack_bytes));
	printf("\nchunks       %" PRIu64 "; %" PRIu64 " stored twice, %s\n",
	       u->chunk_count, u->duplicate_count,
	       cli_size(a, u->duplicate_bytes));
	printf("free         %s of %s\n\n",
	       cli_size(a, (uint64_t)fs->f_bavail * fs->f_frsize),
	       cli_size(b, (uint64_t)fs->f_blocks * fs->f_frsize));
	fflush(stdout);
	int rc = print_dtypes(cli, u);

	if (rc != CLI_OK || u->chunk_count == 0)
		return rc;
	putchar('\n');
	fflush(stdout);
	return print_codecs(cli, u);
}

/* ---- options ---- */

static int time_of(const struct cli *cli, const char *option, bool zero,
		   double *out)
{
	double n;

	if (!cli_seconds(optarg, &n) || (n == 0 && !zero))
		return cli_usage(cli, "--%s wants a time%s such as 36h (s, m, "
				 "h, d, w; else seconds), not '%s'", option,
				 zero ? "" : " above 0", optarg);
	*out = n;
	return CLI_OK;
}

/* What was given without what it needs. */
static int complete(const struct cli *cli, const struct cli_advice *a,
		    const char *last)
{
	if (last && a->mtbf == 0)
		return cli_usage(cli, "--%s is for advice on the interval, "
				 "which wants --mtbf", last);
	if (a->mtbf > 0 && a->save == 0)
		return cli_usage(cli, "--mtbf wants --save-seconds: for how "
				 "long a save stops the training, the store "
				 "does not know");
	return CLI_OK;
}

static int parse(struct cli *cli, int argc, char **argv, struct cli_advice *a)
{
	static const struct option options[] = {
		{ "mtbf", required_argument, NULL, 'm' },
		{ "nodes", required_argument, NULL, 'n' },
		{ "save-seconds", required_argument, NULL, 's' },
		{ "restart-seconds", required_argument, NULL, 'r' }, { 0 },
	};
	const char *last = NULL; /* of those that --mtbf wants */
	int c, rc = CLI_OK;

	while (rc == CLI_OK &&
	       (c = cli_option(cli, argc, argv, "", options)) != -1) {
		if (c == 'm') {
			rc = time_of(cli, "mtbf", false, &a->mtbf);
		} else if (c == 'n') {
			last = "nodes";
			if (!cli_whole(optarg, 1, 1000000000, &a->nodes))
				rc = cli_usage(cli, "--nodes wants a whole "
					       "number of at least 1, not "
					       "'%s'", optarg);
		} else if (c == 's') {
			last = "save-seconds";
			rc = time_of(cli, last, false, &a->save);
		} else if (c == 'r') {
			last = "restart-seconds";
			rc = time_of(cli, last, true, &a->restart);
		} else {
			rc = CLI_USAGE;
		}
	}
	return rc == CLI_OK ? complete(cli, a, last) : rc;
}

static int run_stat(struct cli *cli, int argc, char **argv)
{
	struct cli_advice advice = { .nodes = 1 };
	struct ckpt_store *store = NULL;
	struct ckpt_usage u;
	struct statvfs fs = { 0 };
	struct cli_place place;
	struct ckpt_err err = { 0 };
	uint8_t uuid[CKPT_UUID_BYTES];

	int rc = parse(cli, argc, argv, &advice);

	if (rc == CLI_OK)
		rc = cli_one_store(cli, argc, argv, &place);
	if (rc != CLI_OK)
		return rc;
	rc = cli_open(&place, CKPT_STORE_READONLY, &store, &err);

	if (rc == 0)
		rc = ckpt_store_usage(store, &u, &err);
	if (rc == 0 && statvfs(place.store, &fs) != 0)
		rc = ckb_err_sys(&err, errno, "cannot ask for the free space "
				 "of '%s'", place.store);
	if (rc == 0)
		memcpy(uuid, ckpt_store_uuid(store), sizeof(uuid));
	ckpt_store_close(store);
	cli_place_fini(&place);
	if (rc < 0)
		return cli_fail(cli, &err);
	rc = cli->json ? print_json(cli, uuid, &u, &fs, &advice)
		       : print_text(cli, &u, &fs);
	if (!cli->json && rc == CLI_OK && advice.mtbf > 0)
		cli_advice_print(&advice);
	if (rc == CLI_OK && u.damaged_count > 0)
		return CLI_DAMAGE;
	return rc == CLI_OK && u.unread_count > 0 ? CLI_FAILED : rc;
}

const struct cli_command cli_stat = {
	.name = "stat",
	.usage = "[OPTIONS] STORE",
	.summary = "What a store holds, and what deduplication saves",
	.help = "      --mtbf T     advise how often to save, when a node "
		"fails once in T: 90d\n"
		"      --nodes N    nodes that train together (1)\n"
		"      --save-seconds S\n"
		"                   for how long a save stops the training\n"
		"      --restart-seconds R\n"
		"                   from a failure until it trains again (0)\n",
	.lacks = "quiet",
	.run = run_stat,
};
