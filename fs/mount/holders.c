/* SPDX-License-Identifier: Apache-2.0 */
/*
 * holders.c - who keeps a mount busy, from /proc.
 *
 * Paths are read as links and compared as text, mappings by device number, so
 * the mount itself is never asked: it may be dead or slow. Root sees every
 * process, others their own. Another mount below is named too. A snapshot, for
 * a message; no state.
 */
#include "mount/internal.h"

#include <ctype.h>
#include <dirent.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define TOLD_MAX 5u

struct search {
	const char *point;
	size_t point_len;
	int minor;
	struct ckb_buf *out;
	size_t found;
};

static bool below(const struct search *s, const char *path)
{
	return strncmp(path, s->point, s->point_len) == 0 &&
	       (path[s->point_len] == '\0' || path[s->point_len] == '/');
}

/* Does the link @path lead into the mount? */
static bool leads(const struct search *s, const char *path)
{
	char target[PATH_MAX];
	ssize_t n = readlink(path, target, sizeof(target) - 1);

	if (n < 0)
		return false;
	target[n] = '\0';
	return below(s, target);
}

static bool has_open(const struct search *s, const char *pid)
{
	char path[PATH_MAX];
	struct dirent *e;
	bool found = false;

	snprintf(path, sizeof(path), "/proc/%s/fd", pid);
	DIR *d = opendir(path);

	if (!d)
		return false;
	while (!found && (e = readdir(d)) != NULL) {
		snprintf(path, sizeof(path), "/proc/%s/fd/%s", pid, e->d_name);
		found = leads(s, path);
	}
	closedir(d);
	return found;
}

static bool has_mapped(const struct search *s, const char *pid)
{
	CKB_FREE char *line = NULL;
	unsigned major, minor;
	char path[300];
	size_t cap = 0;
	bool found = false;

	snprintf(path, sizeof(path), "/proc/%s/maps", pid);
	FILE *f = fopen(path, "re");

	if (!f)
		return false;
	while (!found && getline(&line, &cap, f) > 0)
		found = sscanf(line, "%*s %*s %*s %x:%x", &major, &minor) ==
				2 && major == 0 && (int)minor == s->minor;
	fclose(f);
	return found;
}

/* How process @pid holds the mount; NULL: it does not. */
static const char *how(const struct search *s, const char *pid)
{
	static const struct {
		const char *link, *says;
	} links[] = { { "cwd", "its working folder" },
		      { "root", "its root folder" },
		      { "exe", "the program itself" } };
	char path[300];

	for (size_t i = 0; i < CKB_ARRAY_LEN(links); i++) {
		snprintf(path, sizeof(path), "/proc/%s/%s", pid,
			 links[i].link);
		if (leads(s, path))
			return links[i].says;
	}
	return has_open(s, pid) ? "an open file" :
	       has_mapped(s, pid) ? "a mapped file" : NULL;
}

static void tell(struct search *s, const char *who, const char *name,
		 const char *says)
{
	if (s->found++ < TOLD_MAX)
		ckb_buf_printf(s->out, "%s%s (%s%s%s)",
			       s->found > 1 ? ", " : "", who, name,
			       *name ? ": " : "", says);
}

static void look_at(struct search *s, const char *pid)
{
	char path[300], name[64] = "";
	const char *says = how(s, pid);

	if (!says)
		return;
	snprintf(path, sizeof(path), "/proc/%s/comm", pid);
	FILE *f = fopen(path, "re");

	if (f) {
		if (!fgets(name, sizeof(name), f))
			name[0] = '\0';
		name[strcspn(name, "\n")] = '\0';
		fclose(f);
	}
	tell(s, pid, name, says);
}

static void mounts_below(void *ctx, const char *point, int minor, long user)
{
	struct search *s = ctx;

	(void)minor;
	(void)user;
	if (below(s, point) && point[s->point_len] == '/')
		tell(s, point, "", "another mount");
}

void ckm_holders(const char *point, struct ckb_buf *out)
{
	struct search s = { .point = point, .point_len = strlen(point),
			    .minor = ckm_point_minor(point), .out = out };
	struct dirent *e;

	ckm_point_each(mounts_below, &s);
	DIR *d = opendir("/proc");

	if (!d)
		return;
	while ((e = readdir(d)) != NULL)
		if (isdigit((unsigned char)e->d_name[0]))
			look_at(&s, e->d_name);
	closedir(d);
	if (s.found > TOLD_MAX)
		ckb_buf_printf(out, " and %zu more", s.found - TOLD_MAX);
}
