/* SPDX-License-Identifier: Apache-2.0 */
/*
 * number.c - values of options: whole numbers, bytes, times.
 *
 * Digits, for bytes and times a point and more digits, and one unit; a sign, a
 * blank, "inf" or an exponent is no number here, and what does not fit is not
 * cut. What to say about a wrong one the command knows. Pure; the point is a
 * point in every locale, as the program leaves LC_NUMERIC alone.
 */
#include <ctype.h>
#include <stdlib.h>
#include <string.h>

#include "cli/cli.h"

#define DIGITS_MAX 24

bool cli_whole(const char *text, uint64_t min, uint64_t max, uint64_t *out)
{
	uint64_t n = 0;

	if (!*text)
		return false;
	for (; *text; text++) {
		uint64_t digit = (uint64_t)(unsigned char)*text - '0';

		if (digit > 9 || n > (UINT64_MAX - digit) / 10)
			return false;
		n = n * 10 + digit;
	}
	if (n < min || n > max)
		return false;
	*out = n;
	return true;
}

/* "1.5" or "15" before one of @units or the end; *@out_unit: which, or -1. */
static bool decimal(const char *text, const char *units, double *out,
		    int *out_unit)
{
	size_t len = strspn(text, "0123456789.");
	const char *point = memchr(text, '.', len);
	const char *unit = text[len] ? strchr(units, text[len]) : NULL;

	if (len == 0 || len > DIGITS_MAX || *text == '.' ||
	    (point && (point == text + len - 1 ||
		       memchr(point + 1, '.', len - (point + 1 - text)))))
		return false;
	if (text[len] && (!unit || text[len + 1]))
		return false;
	*out = strtod(text, NULL);
	*out_unit = unit ? (int)(unit - units) : -1;
	return true;
}

bool cli_bytes(const char *text, uint64_t *out)
{
	double n;
	int unit;

	if (!decimal(text, "KMGT", &n, &unit))
		return false;
	n *= (double)(1ull << 10 * (unit + 1));
	if (n < 1 || n > 9e18)
		return false;
	*out = (uint64_t)n;
	return true;
}

bool cli_seconds(const char *text, double *out)
{
	static const double seconds[] = { 1, 60, 3600, 86400, 604800 };
	double n;
	int unit;

	if (!decimal(text, "smhdw", &n, &unit))
		return false;
	*out = n * (unit < 0 ? 1 : seconds[unit]);
	return true;
}
