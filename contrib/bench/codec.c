/* SPDX-License-Identifier: Apache-2.0 */
/*
 * codec.c - what the planes codec costs and saves, against zstd -3.
 *
 *	codec [-r ROUNDS] [-s FOLDER] [NAME...]
 *
 * Data of known kinds (NAMEs; all of them), 4 MiB each, in pieces of 1 MiB:
 * a piece is four cells for us and one frame of level 3 for zstd, whose context
 * is kept too. The two take turns, first one and then the other, and each
 * figure is the median of all rounds, in time of this thread alone. Ours
 * includes checksums, as a store takes and checks them. -s writes the data to
 * FOLDER, for codec_zipnn.py, and measures nothing.
 */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>
#include <zstd.h>

#include "base/bytes.h"
#include "chunk/codec.h"

#define PIECE (1u << 20)
#define CELLS (PIECE / CKB_CELL_BYTES)
#define PIECES 4u
#define BYTES ((size_t)PIECES * PIECE)
#define ROUNDS_MAX 101

/* ---- data ---- */

static uint64_t seed;

static double uniform(void) /* (0, 1) */
{
	seed ^= seed << 13;
	seed ^= seed >> 7;
	seed ^= seed << 17;
	return ((double)(seed >> 11) + 0.5) * 0x1p-53;
}

static double normal(void)
{
	return sqrt(-2 * log(uniform())) * cos(2 * M_PI * uniform());
}

static void put_f32(uint8_t *to, double v)
{
	float f = (float)v;
	uint32_t bits;

	memcpy(&bits, &f, 4);
	ckb_put_u32(to, bits);
}

static void put_bf16(uint8_t *to, double v)
{
	float f = (float)v;
	uint32_t bits;

	memcpy(&bits, &f, 4);
	ckb_put_u16(to, (uint16_t)((bits + 0x7fff + (bits >> 16 & 1)) >> 16));
}

/* Sign, @e bits of exponent, @m of mantissa; no NaN, no infinity. */
static uint32_t small_float(double v, int e, int m)
{
	int bias = (1 << (e - 1)) - 1, x;
	uint32_t sign = v < 0 ? 1u << (e + m) : 0;
	double f = frexp(fabs(v), &x); /* [0.5, 1) */

	if (f == 0 || x - 1 < 1 - bias) /* subnormal */
		return sign | (uint32_t)lrint(ldexp(fabs(v), bias - 1 + m));
	return sign | (((uint32_t)(x - 1 + bias) << m) +
		       (uint32_t)lrint(ldexp(f - 0.5, m + 1)));
}

static void bf16_weights(uint8_t *p)
{
	for (size_t i = 0; i < BYTES; i += 2)
		put_bf16(p + i, 0.02 * normal());
}

static void f32_weights(uint8_t *p)
{
	for (size_t i = 0; i < BYTES; i += 4)
		put_f32(p + i, 0.02 * normal());
}

/* Adam's moments: rows of 1024 whose gradients have scales of their own. */
static double scale(size_t i, double *of_row)
{
	if (i % 4096 == 0)
		*of_row = 1e-4 * exp(normal());
	return *of_row;
}

static void adam_m(uint8_t *p)
{
	double s = 0;

	for (size_t i = 0; i < BYTES; i += 4)
		put_f32(p + i, scale(i, &s) * 0.23 * normal());
}

/* An average of squares over some 20 steps. */
static void adam_v(uint8_t *p)
{
	double s = 0;

	for (size_t i = 0; i < BYTES; i += 4) {
		double sum = 0;

		scale(i, &s);
		for (int k = 0; k < 20; k++) {
			double g = s * normal();

			sum += g * g;
		}
		put_f32(p + i, sum / 20);
	}
}

static void f16_weights(uint8_t *p)
{
	for (size_t i = 0; i < BYTES; i += 2)
		ckb_put_u16(p + i, (uint16_t)small_float(0.02 * normal(), 5,
							 10));
}

/* As they are scaled before they are cast: the largest to 448. */
static void f8_weights(uint8_t *p)
{
	for (size_t i = 0; i < BYTES; i++) {
		double v = 90 * normal();

		v = v > 440 ? 440 : v < -440 ? -440 : v;
		p[i] = (uint8_t)small_float(v, 4, 3);
	}
}

static void f64_weights(uint8_t *p)
{
	for (size_t i = 0; i < BYTES; i += 8) {
		double v = 0.02 * normal();
		uint64_t bits;

		memcpy(&bits, &v, 8);
		ckb_put_u64(p + i, bits);
	}
}

/* F32 that holds BF16 values, as loaders make them. */
static void f32_of_bf16(uint8_t *p)
{
	for (size_t i = 0; i < BYTES; i += 4) {
		ckb_put_u16(p + i, 0);
		put_bf16(p + i + 2, 0.02 * normal());
	}
}

static void i64_tokens(uint8_t *p)
{
	for (size_t i = 0; i < BYTES; i += 8)
		ckb_put_u64(p + i, (uint64_t)(50257 * pow(uniform(), 3)));
}

static void zeros(uint8_t *p)
{
	memset(p, 0, BYTES);
}

static const struct kind {
	const char *name;
	enum ckpt_dtype dtype;
	void (*fill)(uint8_t *p);
} kinds[] = {
	{ "bf16", CKPT_BF16, bf16_weights },
	{ "f32", CKPT_F32, f32_weights },
	{ "adam_m", CKPT_F32, adam_m },
	{ "adam_v", CKPT_F32, adam_v },
	{ "f16", CKPT_F16, f16_weights },
	{ "f8", CKPT_F8_E4M3, f8_weights },
	{ "f64", CKPT_F64, f64_weights },
	{ "f32_of_bf16", CKPT_F32, f32_of_bf16 },
	{ "i64_tokens", CKPT_I64, i64_tokens },
	{ "zeros", CKPT_F32, zeros },
};

/* ---- the two ---- */

struct bench {
	struct ckc_codec *codec;
	ZSTD_CCtx *cctx;
	ZSTD_DCtx *dctx;
	uint8_t *raw, *again;
	uint8_t *ours[PIECES];  /* cells one after another */
	struct ckf_cell cells[PIECES][CELLS];
	uint8_t *theirs[PIECES];
	size_t their_len[PIECES];
	size_t our_bytes, their_bytes;
};

static void need(int ok, const char *what)
{
	if (ok)
		return;
	fprintf(stderr, "codec: %s\n", what);
	exit(1);
}

static void encode_ours(struct bench *b)
{
	b->our_bytes = 0;
	for (size_t i = 0; i < PIECES; i++) {
		size_t at = 0;

		for (size_t k = 0; k < CELLS; k++) {
			const uint8_t *raw = b->raw + i * PIECE +
					     k * CKB_CELL_BYTES;
			struct ckf_cell *cell = &b->cells[i][k];
			const void *data;

			need(ckc_cell_encode(b->codec, raw, CKB_CELL_BYTES,
					     b->ours[i] + at, cell, &data,
					     NULL) == 0, "encode");
			if (data == raw)
				memcpy(b->ours[i] + at, raw, cell->stored_len);
			at += cell->stored_len;
		}
		b->our_bytes += at;
	}
}

static void decode_ours(struct bench *b)
{
	for (size_t i = 0; i < PIECES; i++) {
		const uint8_t *from = b->ours[i];

		for (size_t k = 0; k < CELLS; k++) {
			need(ckc_cell_decode(&b->cells[i][k], from, b->again +
					     i * PIECE + k * CKB_CELL_BYTES,
					     CKB_CELL_BYTES, NULL) == 0,
			     "decode");
			from += b->cells[i][k].stored_len;
		}
	}
}

static void encode_theirs(struct bench *b)
{
	b->their_bytes = 0;
	for (size_t i = 0; i < PIECES; i++) {
		b->their_len[i] = ZSTD_compress2(b->cctx, b->theirs[i],
						 ZSTD_compressBound(PIECE),
						 b->raw + i * PIECE, PIECE);
		need(!ZSTD_isError(b->their_len[i]), "zstd");
		b->their_bytes += b->their_len[i];
	}
}

static void decode_theirs(struct bench *b)
{
	for (size_t i = 0; i < PIECES; i++)
		need(ZSTD_decompressDCtx(b->dctx, b->again + i * PIECE, PIECE,
					 b->theirs[i], b->their_len[i]) ==
		     PIECE, "unzstd");
}

/* ---- measuring ---- */

static double now(void)
{
	struct timespec t;

	clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
	return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

static double timed(struct bench *b, void (*fn)(struct bench *b))
{
	double from = now();

	fn(b);
	return now() - from;
}

static int by_value(const void *a, const void *b)
{
	double x = *(const double *)a, y = *(const double *)b;

	return (x > y) - (x < y);
}

static double rate(double *seconds, size_t n)
{
	qsort(seconds, n, sizeof(*seconds), by_value);
	return (double)BYTES / 1e9 / seconds[n / 2];
}

static void measure(struct bench *b, const struct kind *kind, size_t rounds)
{
	static void (*const what[4])(struct bench *b) = {
		encode_ours, encode_theirs, decode_ours, decode_theirs,
	};
	double seconds[4][ROUNDS_MAX], r[4];

	seed = 88172645463325252u;
	kind->fill(b->raw);
	ckc_codec_dtype(b->codec, kind->dtype);
	for (size_t i = 0; i <= rounds; i++) /* the first one warms */
		for (size_t k = 0; k < 4; k++) {
			double s = timed(b, what[k]);

			need(k < 2 || memcmp(b->raw, b->again, BYTES) == 0,
			     "other bytes came back");
			memset(b->again, 0xee, k < 2 ? 0 : BYTES);
			seconds[k][i > 0 ? i - 1 : 0] = s;
		}
	for (size_t k = 0; k < 4; k++)
		r[k] = rate(seconds[k], rounds);
	printf("%-12s %6.4f %6.4f %5.1f%%  %6.2f %6.2f %5.2fx  %6.2f %6.2f "
	       "%5.2fx\n", kind->name, (double)b->our_bytes / (double)BYTES,
	       (double)b->their_bytes / (double)BYTES,
	       100 - 100.0 * (double)b->our_bytes / (double)b->their_bytes,
	       r[0], r[1], r[0] / r[1], r[2], r[3], r[2] / r[3]);
	fflush(stdout);
}

static void *room(size_t n)
{
	void *p = malloc(n);

	need(p != NULL, "out of memory");
	memset(p, 1, n);
	return p;
}

static void start(struct bench *b)
{
	need(ckc_codec_new(CKF_CODEC_PLANES, 1, &b->codec, NULL) == 0, "codec");
	b->cctx = ZSTD_createCCtx();
	b->dctx = ZSTD_createDCtx();
	need(b->cctx && b->dctx, "out of memory");
	ZSTD_CCtx_setParameter(b->cctx, ZSTD_c_compressionLevel, 3);
	b->raw = room(BYTES);
	b->again = room(BYTES);
	for (size_t i = 0; i < PIECES; i++) {
		b->ours[i] = room(PIECE);
		b->theirs[i] = room(ZSTD_compressBound(PIECE));
	}
}

static void save(struct bench *b, const struct kind *kind, const char *folder)
{
	char path[4096];

	snprintf(path, sizeof(path), "%s/%s", folder, kind->name);
	FILE *f = fopen(path, "wb");

	need(f != NULL, path);
	seed = 88172645463325252u;
	kind->fill(b->raw);
	need(fwrite(b->raw, 1, BYTES, f) == BYTES && fclose(f) == 0, path);
}

int main(int argc, char **argv)
{
	static struct bench b;
	const char *folder = NULL;
	size_t rounds = 15;
	int c;

	while ((c = getopt(argc, argv, "r:s:")) != -1) {
		if (c == 'r')
			rounds = strtoul(optarg, NULL, 10);
		else if (c == 's')
			folder = optarg;
		else
			return 2;
	}
	need(rounds > 0 && rounds <= ROUNDS_MAX, "1 to 101 rounds");
	start(&b);
	if (!folder)
		printf("%-12s %6s %6s %6s  %6s %6s %6s  %6s %6s %6s\n", "",
		       "ratio", "zstd-3", "less", "enc", "zstd-3", "", "dec",
		       "zstd-3", "GB/s");
	for (size_t i = 0; i < sizeof(kinds) / sizeof(kinds[0]); i++) {
		bool wanted = optind == argc;

		for (int k = optind; k < argc; k++)
			wanted = wanted || strcmp(argv[k], kinds[i].name) == 0;
		if (wanted && folder)
			save(&b, &kinds[i], folder);
		else if (wanted)
			measure(&b, &kinds[i], rounds);
	}
	return 0;
}
