/* SPDX-License-Identifier: Apache-2.0 */
/*
 * cli/advice.h - how often to save: the best interval between failures and
 * what saving costs, and what of the time both take then. Seconds throughout.
 */
#ifndef CLI_ADVICE_H
#define CLI_ADVICE_H

#include "cli/json.h"

struct cli_advice {
	double mtbf;          /* of one node; 0: no advice is wanted */
	uint64_t nodes;
	double save;          /* that a save stops the training for */
	double restart;       /* from a failure until it trains again */
};

/* Of training, from the end of one save to the start of the next. */
double cli_advice_young(const struct cli_advice *a);
double cli_advice_daly(const struct cli_advice *a);

/* Shares of all time when @interval is kept: [0, 1] each. */
struct cli_lost {
	double saving;
	double rework;        /* done again, and restarts */
};
struct cli_lost cli_advice_lost(const struct cli_advice *a, double interval);

void cli_advice_print(const struct cli_advice *a);
void cli_advice_json(const struct cli_advice *a, struct cli_json *j);

#endif
