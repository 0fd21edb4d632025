/* SPDX-License-Identifier: Apache-2.0 */
/*
 * advice.c - how often to save.
 *
 * Saving seldom makes each failure dear, saving often makes every hour dear.
 * For failures that come at random, by a mean time M between them over all
 * nodes, and a save that stops the training for C:
 *
 *	Young (1974)	sqrt(2 C M)
 *	Daly (2006)	sqrt(2 C M) (1 + sqrt(x) / 3 + x / 9) - C, x = C / 2M;
 *			M where C >= 2M
 *
 * Young's is the first term, good while C is far below M. What is lost follows
 * from Daly's complete model: with intervals of T and restarts of R, a stretch
 * T + C takes M exp(R / M) (exp((T + C) / M) - 1) on average, as failures
 * strike in saves and restarts, too. No state, no I/O but the printing.
 */
#include "cli/advice.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>

static double all_nodes(const struct cli_advice *a)
{
	return a->mtbf / (double)a->nodes;
}

double cli_advice_young(const struct cli_advice *a)
{
	return sqrt(2 * a->save * all_nodes(a));
}

double cli_advice_daly(const struct cli_advice *a)
{
	double m = all_nodes(a), x = a->save / (2 * m);

	if (x >= 1)
		return m;
	return cli_advice_young(a) * (1 + sqrt(x) / 3 + x / 9) - a->save;
}

struct cli_lost cli_advice_lost(const struct cli_advice *a, double interval)
{
	double m = all_nodes(a);
	double took = m * exp(a->restart / m) *
		      expm1((interval + a->save) / m);

	/* infinite where failures come faster than anything is done */
	return (struct cli_lost){
		.saving = a->save / took,
		.rework = fmax(0, 1 - (interval + a->save) / took),
	};
}

/* "90 s", "1.5 h" */
static const char *span(char dst[32], double s)
{
	static const struct {
		double from, unit;
		const char *name;
	} units[] = { { 172800, 86400, "d" }, { 7200, 3600, "h" },
		      { 120, 60, "min" }, { 0, 1, "s" } };
	size_t i = 0;

	while (s < units[i].from)
		i++;
	snprintf(dst, 32, "%.4g %s", s / units[i].unit, units[i].name);
	return dst;
}

void cli_advice_print(const struct cli_advice *a)
{
	double daly = cli_advice_daly(a);
	struct cli_lost lost = cli_advice_lost(a, daly);
	char x[32], y[32], count[CLI_COUNT_BYTES];

	printf("\ninterval     %s of training between saves by Daly",
	       span(x, daly));
	printf(", %s by Young\n", span(x, cli_advice_young(a)));
	printf("             for a failure every %s (%s of %s)",
	       span(x, all_nodes(a)), cli_count(count, a->nodes, "node"),
	       span(y, a->mtbf));
	printf(", %s a save, %s a restart\n", span(x, a->save),
	       span(y, a->restart));
	printf("lost         %.2f %% of the time: %.2f %% saving, %.2f %% "
	       "work done again and restarts\n",
	       100 * (lost.saving + lost.rework), 100 * lost.saving,
	       100 * lost.rework);
}

void cli_advice_json(const struct cli_advice *a, struct cli_json *j)
{
	double daly = cli_advice_daly(a);
	struct cli_lost lost = cli_advice_lost(a, daly);

	cli_json_open(j, "advice", '{');
	cli_json_double(j, "mtbf_seconds", all_nodes(a));
	cli_json_u64(j, "nodes", a->nodes);
	cli_json_double(j, "save_seconds", a->save);
	cli_json_double(j, "restart_seconds", a->restart);
	cli_json_double(j, "young_seconds", cli_advice_young(a));
	cli_json_double(j, "daly_seconds", daly);
	cli_json_double(j, "lost_share", lost.saving + lost.rework);
	cli_json_double(j, "saving_share", lost.saving);
	cli_json_double(j, "rework_share", lost.rework);
	cli_json_close(j, '}');
}
