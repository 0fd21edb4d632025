/* SPDX-License-Identifier: Apache-2.0 */
/*
 * cmd_export.c - export: a subtree as plain files.
 *
 * Everything is written beside the destination under a temporary name, synced
 * (files and folders), and renamed when it is whole, so a destination that
 * exists is complete, and a file that somebody has mapped keeps its old bytes.
 * Without --force the rename replaces nothing, whatever appeared meanwhile. A
 * failure, Ctrl-C or kill takes back what was begun.
 */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <getopt.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <unistd.h>

#include "cli/json.h"
#include "tree/tree.h"

#define STEP_BYTES (1u << 20)

struct export {
	uint8_t *data;         /* STEP_BYTES */
	struct cli_progress progress;
	uint64_t bytes, total_bytes, files;
};

static int write_all(int fd, const uint8_t *data, size_t len)
{
	while (len > 0) {
		ssize_t n = write(fd, data, len);

		if (n < 0 && errno == EINTR)
			continue;
		if (n < 0)
			return -errno;
		data += n;
		len -= (size_t)n;
	}
	return 0;
}

/* Some file systems cannot sync a folder and have done what they can. */
static int sync_fd(int fd, const char *path, struct ckpt_err *err)
{
	if (fsync(fd) == 0 || errno == EINVAL || errno == ENOSYS ||
	    errno == EOPNOTSUPP)
		return 0;
	return ckb_err_sys(err, errno, "cannot sync '%s'", path);
}

static int copy_file(struct export *x, struct ckv_node *node, uint64_t size,
		     int dirfd, const char *name, const char *path,
		     struct ckpt_err *err)
{
	CKB_FD int fd = openat(dirfd, name, O_WRONLY | O_CREAT | O_EXCL |
			       O_NOFOLLOW | O_CLOEXEC, 0666);
	int rc = 0;

	if (fd < 0)
		return ckb_err_sys(err, errno, "cannot write '%s'", path);
	for (uint64_t off = 0; rc == 0 && off < size;) {
		size_t len = 0;

		rc = cli_stopped() ? CKPT_ECANCELED
				   : ckv_read(node, off, x->data, STEP_BYTES,
					      &len, err);
		if (rc < 0)
			return rc;
		int w = write_all(fd, x->data, len);

		if (w < 0)
			return ckb_err_sys(err, -w, "cannot write '%s'", path);
		off += len;
		x->bytes += len;
		cli_progress(&x->progress, x->bytes, x->total_bytes);
	}
	x->files++;
	return sync_fd(fd, path, err);
}

static int copy_node(struct export *x, struct ckv_node *node, int dirfd,
		     const char *name, const char *path, struct ckpt_err *err);

static int copy_folder(struct export *x, struct ckv_node *node, int dirfd,
		       const char *name, const char *path,
		       struct ckpt_err *err)
{
	struct ckv_list *list = NULL;
	int rc = 0;

	if (mkdirat(dirfd, name, 0777) != 0)
		return ckb_err_sys(err, errno, "cannot make '%s'", path);
	CKB_FD int fd = openat(dirfd, name, O_RDONLY | O_DIRECTORY |
			       O_NOFOLLOW | O_CLOEXEC);

	if (fd < 0)
		return ckb_err_sys(err, errno, "cannot open '%s'", path);
	rc = ckv_list_new(node, &list, err);
	for (size_t i = 0; rc == 0 && i < ckv_list_count(list); i++) {
		const char *child = ckv_list_name(list, i);
		struct ckv_node *below = NULL;
		CKB_FREE char *full = NULL;

		if (asprintf(&full, "%s/%s", path, child) < 0)
			rc = ckb_err_nomem(err);
		if (rc == 0)
			rc = ckv_list_node(list, i, &below, err);
		if (rc == 0)
			rc = copy_node(x, below, fd, child, full, err);
		ckv_put(below);
	}
	ckv_list_free(list);
	return rc < 0 ? rc : sync_fd(fd, path, err);
}

static int copy_node(struct export *x, struct ckv_node *node, int dirfd,
		     const char *name, const char *path, struct ckpt_err *err)
{
	struct ckv_attr attr;
	int rc = ckv_attr(node, &attr, err);

	if (rc < 0)
		return rc;
	if (cli_stopped())
		return CKPT_ECANCELED;
	if (attr.is_folder)
		return copy_folder(x, node, dirfd, name, path, err);
	if (!attr.is_link)
		return copy_file(x, node, attr.size, dirfd, name, path, err);
	CKB_BUF struct ckb_buf target = { 0 };

	rc = ckv_readlink(node, &target, err);
	if (rc == 0 && symlinkat((char *)target.data, dirfd, name) != 0)
		rc = ckb_err_sys(err, errno, "cannot make link '%s'", path);
	return rc;
}

static void remove_tree(int dirfd, const char *name);

static void remove_below(int dirfd, const char *name)
{
	int fd = openat(dirfd, name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW |
			O_CLOEXEC);
	CKB_BUF struct ckb_buf names = { 0 };
	DIR *d = fd >= 0 ? fdopendir(fd) : NULL;

	if (!d) {
		if (fd >= 0)
			close(fd);
		return;
	}
	for (struct dirent *e; (e = readdir(d)) != NULL;)
		if (strcmp(e->d_name, ".") && strcmp(e->d_name, ".."))
			ckb_buf_put(&names, e->d_name, strlen(e->d_name) + 1);
	for (size_t at = 0; !names.failed && at < names.len;) {
		const char *child = (char *)names.data + at;

		at += strlen(child) + 1;
		remove_tree(fd, child);
	}
	closedir(d);
}

static void remove_tree(int dirfd, const char *name)
{
	if (unlinkat(dirfd, name, 0) == 0)
		return;
	remove_below(dirfd, name);
	unlinkat(dirfd, name, AT_REMOVEDIR);
}

/* @dest as it must be: absent, or (@force) a file to be replaced; a folder
 * that exists takes a file of the source's name, as with cp. */
static int place_dest(const char *dest, const char *source, bool folder,
		      bool force, char **out, struct ckpt_err *err)
{
	const char *base = strrchr(source, '/');
	size_t len = strlen(dest);
	struct stat st;
	char *path = NULL;

	base = base ? base + 1 : source;
	while (len > 1 && dest[len - 1] == '/')
		len--;
	if (stat(dest, &st) != 0 || !S_ISDIR(st.st_mode))
		base = "";
	if (!*base && !folder && dest[len] == '/')
		return ckb_err(err, CKPT_EINVAL, "'%s' is no folder; make it "
			       "first, or leave out the '/'", dest);
	if (asprintf(&path, "%.*s%s%s", (int)len, dest,
		     *base && strcmp(dest, "/") ? "/" : "", base) < 0)
		return ckb_err_nomem(err);
	if (lstat(path, &st) == 0 && (folder || !force ||
				      S_ISDIR(st.st_mode))) {
		ckb_err(err, CKPT_EEXIST, "'%s' exists%s", path,
			folder ? "; choose another destination"
			       : "; --force replaces a file");
		free(path);
		return CKPT_EEXIST;
	}
	*out = path;
	return 0;
}

/* Is folder @dir @store itself, or below it? */
static bool inside(const char *dir, const char *store)
{
	CKB_FREE char *a = realpath(dir, NULL);
	CKB_FREE char *b = realpath(store, NULL);
	size_t len = b ? strlen(b) : 0;

	return a && b && strncmp(a, b, len) == 0 &&
	       (a[len] == '\0' || a[len] == '/');
}

/* The last step. A file system without RENAME_NOREPLACE gets the rename that
 * cannot replace more than a file or an empty folder. */
static int move(int fd, const char *temp, const char *base, bool force)
{
	struct stat st;

	if (force)
		return renameat(fd, temp, fd, base);
	if (renameat2(fd, temp, fd, base, RENAME_NOREPLACE) == 0)
		return 0;
	if (errno != EINVAL && errno != ENOSYS)
		return -1;
	if (fstatat(fd, base, &st, AT_SYMLINK_NOFOLLOW) == 0) {
		errno = EEXIST;
		return -1;
	}
	return renameat(fd, temp, fd, base);
}

static int export_node(struct export *x, struct ckv_node *node,
		       const char *store, const char *path, bool force,
		       struct ckpt_err *err)
{
	CKB_FREE char *parent = strdup(path);
	CKB_FREE char *temp = NULL;
	char *slash = parent ? strrchr(parent, '/') : NULL;
	const char *base = slash ? slash + 1 : path;
	uint64_t unique; /* a killed export may have left a name like ours */

	if (getrandom(&unique, sizeof(unique), 0) != sizeof(unique))
		return ckb_err_sys(err, errno, "no random number");
	if (!parent || asprintf(&temp, ".%.200s.partial-%016jx", base,
				(uintmax_t)unique) < 0)
		return ckb_err_nomem(err);
	base = slash ? path + (slash - parent) + 1 : path;
	if (slash)
		slash[slash == parent] = '\0';
	CKB_FD int fd = open(slash ? parent : ".", O_RDONLY | O_DIRECTORY |
			     O_CLOEXEC);

	if (fd < 0)
		return ckb_err_sys(err, errno, "cannot export to '%s'", path);
	if (inside(slash ? parent : ".", store))
		return ckb_err(err, CKPT_EINVAL, "cannot export to '%s': it "
			       "lies inside the store", path);
	int rc = copy_node(x, node, fd, temp, path, err);

	if (rc == 0 && move(fd, temp, base, force) != 0)
		rc = ckb_err_sys(err, errno, "cannot export to '%s'", path);
	if (rc < 0)
		remove_tree(fd, temp);
	return rc < 0 ? rc : sync_fd(fd, slash ? parent : ".", err);
}

/* Add the bytes of all files at and below @node. What cannot be listed is the
 * copy's to report. */
static void count(struct ckv_node *node, uint64_t *bytes)
{
	struct ckv_list *list = NULL;
	struct ckv_attr attr;

	if (cli_stopped() || ckv_attr(node, &attr, NULL) < 0 || attr.is_link)
		return;
	if (!attr.is_folder) {
		*bytes += attr.size;
		return;
	}
	if (ckv_list_new(node, &list, NULL) < 0)
		return;
	for (size_t i = 0; i < ckv_list_count(list); i++) {
		struct ckv_node *below = NULL;

		if (ckv_list_node(list, i, &below, NULL) == 0)
			count(below, bytes);
		ckv_put(below);
	}
	ckv_list_free(list);
}

static void count_path(struct export *x, struct ckv_tree *tree,
		       const char *source)
{
	struct ckv_node *node = NULL;

	/* only progress wants it */
	if (x->progress.on && ckv_resolve(tree, source, &node, NULL) == 0)
		count(node, &x->total_bytes);
	ckv_put(node);
}

struct request {
	const struct cli *cli;
	struct cli_place place;
	struct cli_select select;
	const char *dest;
	bool force;
};

static int export_path(struct export *x, const struct request *r,
		       struct ckv_tree *tree, const char *source,
		       struct ckpt_err *err)
{
	CKB_FREE char *path = NULL;
	struct ckv_node *node = NULL;
	struct ckv_attr attr = { 0 };
	int rc = ckv_resolve(tree, source, &node, err);

	if (rc == 0)
		rc = ckv_attr(node, &attr, err);
	if (rc == 0)
		rc = place_dest(r->dest, source, attr.is_folder, r->force,
				&path, err);
	if (rc == 0)
		rc = export_node(x, node, r->place.store, path,
				 r->force, err);
	ckv_put(node);
	return rc;
}

/* Checkpoints that a pattern matches, into a folder that is there. */
static int export_pattern(struct export *x, struct request *r,
			  struct ckpt_store *store, struct ckv_tree *tree,
			  struct ckpt_err *err)
{
	CKB_CLEANUP(cli_names_fini) struct cli_names names = { 0 };
	struct stat st;
	int rc = cli_pick(store, &r->place, true, &r->select, &names, err);

	if (rc == 0 && (stat(r->dest, &st) != 0 || !S_ISDIR(st.st_mode)))
		rc = ckb_err(err, CKPT_EINVAL, "'%s' is no folder; what a "
			     "pattern matches is exported into one that is "
			     "there", r->dest);
	for (size_t i = 0; rc == 0 && i < names.count; i++)
		count_path(x, tree, names.list[i]);
	for (size_t i = 0; rc == 0 && i < names.count; i++)
		rc = export_path(x, r, tree, names.list[i], err);
	return rc;
}

static int summary_json(const struct cli *cli, const struct export *x)
{
	struct cli_json j = { 0 };

	cli_json_open(&j, NULL, '{');
	cli_json_u64(&j, "files", x->files);
	cli_json_u64(&j, "bytes", x->bytes);
	cli_json_close(&j, '}');
	return cli_json_end(cli, &j);
}

/* CLI_OK, CLI_FAILED (said), or an error. */
static int run_place(struct request *r, struct ckpt_err *err)
{
	struct ckpt_store *store = NULL;
	struct ckv_tree *tree = NULL;
	struct ckv_node *node = NULL;
	struct export x = { .data = malloc(STEP_BYTES) };
	bool some = r->select.has_step || r->select.has_since;
	char size[CLI_SIZE_BYTES], count[CLI_COUNT_BYTES];
	int rc = x.data ? cli_open(&r->place, CKPT_STORE_READONLY, &store, err)
			: ckb_err_nomem(err);

	if (rc == 0)
		rc = ckv_tree_new(store, &tree, err);
	cli_progress_init(&x.progress, r->cli, "exporting");
	cli_stop_init();
	if (rc == 0 && (some || (cli_is_pattern(r->place.path) &&
				 ckv_resolve(tree, r->place.path, &node,
					     NULL) == CKPT_ENOENT))) {
		rc = export_pattern(&x, r, store, tree, err);
	} else if (rc == 0) {
		count_path(&x, tree, r->place.path);
		rc = export_path(&x, r, tree, r->place.path, err);
	}
	cli_progress_end(&x.progress);
	if (rc == 0 && r->cli->json)
		rc = summary_json(r->cli, &x);
	else if (rc == 0 && !r->cli->quiet)
		cli_say(stdout, "exported %s, %s, to '%s'",
			cli_count(count, x.files, "file"),
			cli_size(size, x.bytes), r->dest);
	free(x.data);
	ckv_put(node);
	ckv_tree_free(tree);
	ckpt_store_close(store);
	return rc;
}

static int run_export(struct cli *cli, int argc, char **argv)
{
	static const struct option options[] = {
		{ "force", no_argument, NULL, 'f' }, CLI_SELECT_OPTIONS,
		{ 0 },
	};
	struct request r = { .cli = cli };
	struct ckpt_err err = { 0 };
	int c;

	while ((c = cli_option(cli, argc, argv, "f", options)) != -1) {
		if (c == 'f')
			r.force = true;
		else if (c == '?')
			return CLI_USAGE;
		else if (cli_select(cli, &r.select, c, optarg) != CLI_OK)
			return CLI_USAGE;
	}
	if (argc - optind != 2)
		return cli_usage(cli, "STORE:PATH and DEST are wanted, %d "
				 "given", argc - optind);
	if (cli_swapped(argv[optind], argv[optind + 1]))
		return cli_usage(cli, "'%s' is in a store and '%s' is not: "
				 "STORE:PATH comes first, then DEST",
				 argv[optind + 1], argv[optind]);
	if (strcmp(argv[optind + 1], "-") == 0)
		return cli_usage(cli, "DEST is a path: cat writes to standard "
				 "output, and './-' is a file of that name");
	if (strchr(argv[optind + 1], ':') && cli_in_store(argv[optind + 1]) &&
	    access(argv[optind + 1], F_OK) != 0)
		return cli_usage(cli, "'%s' is a place in a store, and DEST is "
				 "a path outside; cp forks within a store, "
				 "import brings files in", argv[optind + 1]);
	if (cli_place(argv[optind], &r.place, &err) < 0)
		return cli_fail(cli, &err);
	r.dest = argv[optind + 1];
	int rc = run_place(&r, &err);

	cli_place_fini(&r.place);
	/* what failed before the signal is told */
	if (rc == CKPT_ECANCELED && cli_stopped())
		return cli_stop_end(cli, "nothing incomplete is left");
	return rc < 0 ? cli_fail_found(cli, &err) : rc;
}

const struct cli_command cli_export = {
	.name = "export",
	.usage = "[--force] STORE:PATH|PATTERN DEST",
	.summary = "Copy a file or a whole subtree out of a store",
	.help = "  -f, --force      replace a file that exists\n"
		CLI_SELECT_HELP,
	.run = run_export,
	.done = "all files were exported",
};
