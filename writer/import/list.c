/* SPDX-License-Identifier: Apache-2.0 */
/*
 * list.c - the regular files below a folder, sorted.
 *
 * Symbolic links to files are followed, wherever they lead: the cache of
 * Hugging Face consists of them. Refused by name, as nothing may be lost
 * without a word: links to folders (they may lead anywhere, also in a circle),
 * links to nothing, FIFOs, sockets, devices, folders deeper than DEPTH_MAX, and
 * a store, which may be the one that is written to. Folders `.git` and `.cache`
 * are passed over, and noted: they hold copies and history, not the model.
 *
 * Paths are built by name, not by descriptor; source.c notices a file that is
 * another one later. Threads: the caller's.
 */
#include <dirent.h>
#include <stdio.h>
#include <string.h>

#include "import.h"

#define DEPTH_MAX 64
#define PATH_BYTES 4096

struct walk {
	struct ckw_import *im;
	struct ckw_files *files;
	char **folders;          /* below the top, to be listed; "": the top */
	size_t folder_count, folder_cap;
	const char *folder;      /* the one being listed */
	struct ckpt_err *err;
	int rc;
};

bool ckw_ends_with(const char *name, const char *end)
{
	size_t n = strlen(name), m = strlen(end);

	return n > m && strcmp(name + n - m, end) == 0;
}

/* The top folder's path, without slashes at its end. */
static int top_len(const struct walk *w)
{
	size_t len = strlen(w->im->path);

	while (len > 1 && w->im->path[len - 1] == '/')
		len--;
	return (int)len;
}

static int add_folder(struct walk *w, const char *name)
{
	char *copy;
	int depth = 0;

	for (const char *s = name; *s; s++)
		depth += *s == '/';
	if (depth >= DEPTH_MAX)
		return ckb_err(w->err, CKPT_ELIMIT, "'%s': folder '%s' lies "
			       "deeper than %d folders", w->im->path, name,
			       DEPTH_MAX);
	if (!ckb_room(&w->folders, w->folder_count, &w->folder_cap,
		      sizeof(*w->folders)))
		return ckb_err_nomem(w->err);
	copy = strdup(name);
	if (!copy)
		return ckb_err_nomem(w->err);
	w->folders[w->folder_count++] = copy;
	return 0;
}

static int add_file(struct walk *w, const char *name, const char *path)
{
	struct ckw_files *f = w->files;
	struct ckw_file *file;
	int rc;

	if (f->count >= CKW_FILE_MAX)
		return ckb_err(w->err, CKPT_ELIMIT, "'%s' holds more than %u "
			       "files", w->im->path, CKW_FILE_MAX);
	if (!ckb_room(&f->file, f->count, &f->cap, sizeof(*f->file)))
		return ckb_err_nomem(w->err);
	file = &f->file[f->count];
	rc = ckw_input_new(&w->im->inputs, path, &file->input, w->err);
	if (rc < 0)
		return rc;
	file->taken = false;
	file->name = strdup(name);
	if (!file->name)
		return ckb_err_nomem(w->err);
	f->count++;
	return 0;
}

/* What @path is, links followed; *@out_link: it is one. */
static int look(const struct walk *w, const char *path, mode_t *out,
		bool *out_link)
{
	const struct ckb_sys *sys = w->im->inputs.sys;
	struct stat st;
	int rc = sys->fstatat(sys, AT_FDCWD, path, &st), fd;

	if (rc < 0)
		return ckb_err_sys(w->err, -rc, "cannot read '%s'", path);
	*out = st.st_mode;
	*out_link = S_ISLNK(st.st_mode);
	if (!*out_link)
		return 0;
	fd = sys->openat(sys, AT_FDCWD, path, O_PATH, 0);
	if (fd < 0)
		return ckb_err_sys(w->err, -fd, "the symbolic link '%s' leads "
				   "nowhere", path);
	rc = sys->fstat(sys, fd, &st);
	sys->close(sys, fd);
	if (rc < 0)
		return ckb_err_sys(w->err, -rc, "cannot read '%s'", path);
	*out = st.st_mode;
	return 0;
}

static int add(struct walk *w, const char *name, const char *path,
	       const char *base)
{
	mode_t mode = 0;
	bool link = false;
	int rc = look(w, path, &mode, &link);

	if (rc < 0)
		return rc;
	if (strcmp(base, "ckptfs.json") == 0)
		return ckb_err(w->err, CKPT_EINVAL, "'%.*s' is a ckptfs store "
			       "or has one in it; import a folder without one",
			       (int)(strlen(path) - strlen(base) - 1), path);
	if (S_ISREG(mode))
		return add_file(w, name, path);
	if (!S_ISDIR(mode))
		return ckb_err(w->err, CKPT_EINVAL, "'%s' is %s, not a regular "
			       "file; take it out of the folder", path,
			       ckw_kind_of(mode));
	if (link)
		return ckb_err(w->err, CKPT_EINVAL, "'%s' is a symbolic link "
			       "to a folder, which is not followed; put a copy "
			       "in its place, or take it away", path);
	if (strcmp(base, ".git") == 0 || strcmp(base, ".cache") == 0) {
		ckw_import_note(w->im, "folder '%s' was passed over", name);
		return 0;
	}
	return add_folder(w, name);
}

static int on_entry(void *ctx, const char *base, unsigned char type)
{
	struct walk *w = ctx;
	char path[PATH_BYTES], name[PATH_BYTES];
	int top = top_len(w), n;

	(void)type; /* some file systems do not tell it */
	n = snprintf(name, sizeof(name), "%s%s%s", w->folder,
		     *w->folder ? "/" : "", base);
	if (n < (int)sizeof(name))
		n = snprintf(path, sizeof(path), "%.*s%s%s", top, w->im->path,
			     w->im->path[top - 1] == '/' ? "" : "/", name);
	if (n >= PATH_BYTES)
		w->rc = ckb_err(w->err, CKPT_ELIMIT, "a path below '%.*s' has "
				"more than %d bytes", top, w->im->path,
				PATH_BYTES - 1);
	else
		w->rc = add(w, name, path, base);
	return w->rc < 0;
}

static int list(struct walk *w)
{
	const struct ckb_sys *sys = w->im->inputs.sys;
	char path[2 * PATH_BYTES];
	int rc;

	snprintf(path, sizeof(path), "%.*s/%s", top_len(w), w->im->path,
		 w->folder);
	rc = sys->list(sys, AT_FDCWD, path, on_entry, w);
	if (w->rc < 0)
		return w->rc;
	return rc < 0 ? ckb_err_sys(w->err, -rc, "cannot list folder '%s'",
				    path) : 0;
}

static int by_name(const void *a, const void *b)
{
	return strcmp(((const struct ckw_file *)a)->name,
		      ((const struct ckw_file *)b)->name);
}

int ckw_files_read(struct ckw_import *im, struct ckw_files *out,
		   struct ckpt_err *err)
{
	struct walk w = { .im = im, .files = out, .err = err };
	int rc;

	memset(out, 0, sizeof(*out));
	if (strlen(im->path) >= PATH_BYTES)
		return ckb_err(err, CKPT_ELIMIT, "the path '%.40s...' is too "
			       "long", im->path);
	rc = add_folder(&w, "");
	for (size_t i = 0; rc == 0 && i < w.folder_count; i++) {
		w.folder = w.folders[i];
		rc = list(&w);
	}
	for (size_t i = 0; i < w.folder_count; i++)
		free(w.folders[i]);
	free(w.folders);
	if (rc == 0 && out->count > 0)
		qsort(out->file, out->count, sizeof(*out->file), by_name);
	if (rc < 0)
		ckw_files_fini(out);
	return rc;
}

void ckw_files_fini(struct ckw_files *files)
{
	for (size_t i = 0; i < files->count; i++)
		free(files->file[i].name);
	free(files->file);
	memset(files, 0, sizeof(*files));
}

struct ckw_file *ckw_files_find(const struct ckw_files *files,
				const char *name, size_t len)
{
	size_t low = 0, high = files->count;

	while (low < high) {
		size_t mid = low + (high - low) / 2;
		struct ckw_file *f = &files->file[mid];
		int c = strncmp(f->name, name, len);

		if (c == 0 && f->name[len] == '\0')
			return f;
		if (c < 0)
			low = mid + 1;
		else
			high = mid;
	}
	return NULL;
}

int ckw_files_to_assets(struct ckw_import *im, const struct ckw_files *files,
			struct ckpt_err *err)
{
	int rc = 0;

	for (size_t i = 0; rc == 0 && i < files->count; i++)
		if (!files->file[i].taken)
			rc = ckw_import_asset(im, files->file[i].input,
					      files->file[i].name, err);
	return rc;
}
