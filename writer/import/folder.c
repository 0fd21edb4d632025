/* SPDX-License-Identifier: Apache-2.0 */
/*
 * folder.c - import of a folder; of Hugging Face's kind itself.
 *
 *	list -> index -> shards -> every header once: names, metadata
 *	     -> names proved against each other and the index
 *	     -> begin -> every header again: describe -> the other files
 *
 * Headers are read twice, so that only one of them is in memory at a time and
 * still all is checked before the save is begun. A shard is one of the files
 * that the list found, so nothing outside the folder is opened that no link in
 * it leads to.
 *
 * Refused: an index without its shards, a set of which a part is missing, two
 * indexes of which none is model's own. An index that is right makes other
 * *.safetensors plain files, and that is noted.
 *
 * Memory: the list, the index, the names, one header. Threads: the caller's.
 */
#include <ctype.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "base/limits.h"
#include "st_file.h"

#define INDEX_END ".safetensors.index.json"
#define SHARD_END ".safetensors"
#define SHARDS_MAX 99999u /* five digits: of-00000 */

struct folder {
	struct ckw_import *im;
	struct ckw_files files;
	struct ckw_file *index_file;  /* NULL: there is none */
	char *index_text;
	struct ckx_hf_index index;    /* points into index_text */
	struct ckw_owners owners;
	size_t shard_count;
};

static bool at_top(const char *name)
{
	return !strchr(name, '/');
}

/* ---- the index ---- */

/* model.safetensors.index.json, or the only one of another name. */
static int find_index(struct folder *d, struct ckpt_err *err)
{
	struct ckw_file *other = NULL;

	if (d->im->opts->ignore_index)
		return 0;
	d->index_file = ckw_files_find(&d->files, "model" INDEX_END,
				       strlen("model" INDEX_END));
	if (d->index_file)
		return 0;
	for (size_t i = 0; i < d->files.count; i++) {
		struct ckw_file *f = &d->files.file[i];

		if (!at_top(f->name) || !ckw_ends_with(f->name, INDEX_END))
			continue;
		if (other)
			return ckb_err(err, CKPT_EINVAL, "'%s' has two "
				       "indexes, '%s' and '%s'; move one set "
				       "away and import the other",
				       d->im->path, other->name, f->name);
		other = f;
	}
	d->index_file = other;
	return 0;
}

static int read_index(struct folder *d, struct ckpt_err *err)
{
	struct ckw_input *in = d->index_file->input;
	uint64_t size = 0;
	int rc = ckw_input_size(in, &size, err);

	if (rc == 0)
		rc = ckw_input_no_lfs(in, err);
	if (rc < 0)
		return rc;
	if (size > CKB_ST_HEADER_MAX)
		return ckb_err(err, CKPT_ELIMIT, "'%s' has %" PRIu64 " bytes; "
			       "at most %u are supported", in->path, size,
			       CKB_ST_HEADER_MAX);
	d->index_text = malloc((size_t)size + 1);
	if (!d->index_text)
		return ckb_err_nomem(err);
	rc = ckw_input_read(in, 0, d->index_text, (size_t)size, err);
	if (rc < 0)
		return rc;
	rc = ckx_hf_index_parse(&d->index, d->index_text, (size_t)size, err);
	return rc < 0 ? ckb_err_prefix(err, rc, "'%s'", in->path) : 0;
}

/* ---- which files are shards ---- */

static void take_shard(struct folder *d, struct ckw_file *f)
{
	d->shard_count += !f->taken;
	f->taken = true;
}

static int by_file(const void *a, const void *b)
{
	const struct ckx_hf_entry *x = *(void *const *)a;
	const struct ckx_hf_entry *y = *(void *const *)b;

	return ckx_name_compare(x->file, x->file_len, y->file, y->file_len);
}

/* Those that the index names; @order: its entries by file. */
static int indexed_shards(struct folder *d, struct ckx_hf_entry **order,
			  struct ckpt_err *err)
{
	CKB_CLEANUP(ckw_names_fini) struct ckw_names lost = { 0 };

	for (size_t i = 0; i < d->index.count; i++)
		order[i] = &d->index.entries[i];
	if (d->index.count > 0)
		qsort(order, d->index.count, sizeof(*order), by_file);
	for (size_t i = 0; i < d->index.count; i++) {
		struct ckw_file *f = ckw_files_find(
			&d->files, order[i]->file, order[i]->file_len);

		if (f)
			take_shard(d, f);
		else if (i == 0 || by_file(&order[i - 1], &order[i]) != 0)
			ckw_names_add(&lost, order[i]->file,
				      order[i]->file_len, NULL);
	}
	if (lost.count == 0)
		return 0;
	return ckb_err(err, CKPT_EFORMAT, "'%s': shards that '%s' names and "
		       "that are not there (%zu): %s; get them, or import "
		       "without the index (--no-index)", d->im->path,
		       d->index_file->name, lost.count,
		       ckw_names_text(&lost));
}

/* "-00001-of-00003.safetensors" at the end of @name: 3, else 0. */
static uint32_t parts_of(const char *name)
{
	static const char form[] = "-ddddd-of-ddddd" SHARD_END;
	size_t len = strlen(name), n = strlen(form);

	if (len < n)
		return 0;
	name += len - n;
	for (size_t i = 0; i < n; i++)
		if (form[i] == 'd' ? !isdigit((unsigned char)name[i])
				   : name[i] != form[i])
			return 0;
	return (uint32_t)strtoul(name + 10, NULL, 10);
}

/* The name says how many there are, and no index does: are they all there? */
static int check_parts(const struct folder *d, const struct ckw_file *f,
		       struct ckpt_err *err)
{
	CKB_CLEANUP(ckw_names_fini) struct ckw_names lost = { 0 };
	CKB_FREE char *name = strdup(f->name);
	uint32_t count = parts_of(f->name);
	char *digits;

	if (!name)
		return ckb_err_nomem(err);
	digits = name + strlen(name) - strlen("00000-of-00000" SHARD_END);
	for (uint32_t i = 1; i <= count && i <= SHARDS_MAX; i++) {
		char five[16];

		snprintf(five, sizeof(five), "%05u", i);
		memcpy(digits, five, 5);
		if (!ckw_files_find(&d->files, name, strlen(name)))
			ckw_names_add(&lost, name, strlen(name), NULL);
	}
	if (lost.count == 0)
		return 0;
	return ckb_err(err, CKPT_EFORMAT, "'%s': shards of the set of '%s' "
		       "that are not there (%zu): %s", d->im->path, f->name,
		       lost.count, ckw_names_text(&lost));
}

/* Do the names differ in their number only? */
static bool same_set(const char *a, const char *b)
{
	size_t n = strlen(a), end = strlen("00000-of-00000" SHARD_END);

	return n == strlen(b) && n > end && strncmp(a, b, n - end) == 0 &&
	       strcmp(a + n - end + 5, b + n - end + 5) == 0;
}

/* Without an index: every *.safetensors at the top. */
static int loose_shards(struct folder *d, struct ckpt_err *err)
{
	const char *before = "";
	int rc = 0;

	for (size_t i = 0; rc == 0 && i < d->files.count; i++) {
		struct ckw_file *f = &d->files.file[i];

		if (!at_top(f->name) || !ckw_ends_with(f->name, SHARD_END))
			continue;
		take_shard(d, f);
		/* a set is proved once, by its first */
		if (parts_of(f->name) > 0 && !same_set(before, f->name))
			rc = check_parts(d, f, err);
		before = f->name;
	}
	return rc;
}

static int find_shards(struct folder *d, struct ckpt_err *err)
{
	CKB_FREE struct ckx_hf_entry **order = NULL;
	int rc = find_index(d, err);

	if (rc < 0)
		return rc;
	if (!d->index_file)
		return loose_shards(d, err);
	rc = read_index(d, err);
	if (rc < 0)
		return rc;
	order = calloc(d->index.count + 1, sizeof(*order));
	if (!order)
		return ckb_err_nomem(err);
	return indexed_shards(d, order, err);
}

/* ---- the shards ---- */

static int check_shards(struct folder *d, struct ckpt_err *err)
{
	int rc = 0;

	d->owners.files = &d->files;
	for (size_t i = 0; rc == 0 && i < d->files.count; i++) {
		struct ckw_st_file f;

		if (!d->files.file[i].taken)
			continue;
		rc = ckw_st_file_open(&f, d->files.file[i].input, err);
		if (rc < 0)
			break;
		rc = ckw_owners_add(&d->owners, (uint32_t)i, &f.st, err);
		ckw_st_file_close(&f);
	}
	if (rc == 0)
		rc = ckw_owners_check(&d->owners, d->im->path, d->index_file
				      ? d->index_file->name : NULL, &d->index,
				      err);
	return rc;
}

static int describe_shards(struct folder *d, struct ckpt_err *err)
{
	bool begun = false;
	int rc = 0;

	for (size_t i = 0; rc == 0 && i < d->files.count; i++) {
		const struct ckw_file *file = &d->files.file[i];
		struct ckw_st_file f;

		if (!file->taken)
			continue;
		rc = ckw_st_file_open(&f, file->input, err);
		if (rc < 0)
			break;
		if (!begun)
			rc = ckw_st_file_begin(d->im, &f, err);
		begun = true;
		if (rc == 0)
			rc = ckw_st_file_describe(d->im, &f, &d->owners,
						  file->name, err);
		ckw_st_file_close(&f);
	}
	if (rc == 0 && !begun) /* an index may be empty */
		rc = ckw_import_begin(d->im, ".", NULL, err);
	return rc;
}

static int describe(struct folder *d, struct ckpt_err *err)
{
	uint64_t size = 0;
	int rc = describe_shards(d, err);

	if (rc == 0 && d->index_file) {
		rc = ckw_input_size(d->index_file->input, &size, err);
		if (rc == 0)
			rc = ckw_import_origin(d->im, d->index_file->input,
					       d->index_file->name, size,
					       "application/json", err);
		d->index_file->taken = true;
	}
	for (size_t i = 0; rc == 0 && i < d->files.count; i++)
		if (!d->files.file[i].taken &&
		    ckw_ends_with(d->files.file[i].name, SHARD_END))
			ckw_import_note(d->im, "'%s' is %s: it was kept as a "
					"file, its tensors were not imported",
					d->files.file[i].name, d->index_file
					? "not in the index"
					: "in a sub-folder");
	return rc == 0 ? ckw_files_to_assets(d->im, &d->files, err) : rc;
}

/* ---- which kind of folder ---- */

static int import(struct folder *d, struct ckpt_err *err)
{
	int rc = find_shards(d, err);

	if (rc < 0)
		return rc;
	if (d->index_file || d->shard_count > 0) {
		rc = check_shards(d, err);
		return rc == 0 ? describe(d, err) : rc;
	}
	for (size_t i = 0; i < d->files.count; i++)
		if (ckw_ends_with(d->files.file[i].name, ".npy"))
			return ckw_import_npy_folder(d->im, &d->files, err);
	return ckb_err(err, CKPT_EINVAL, "'%s' holds no *.safetensors at its "
		       "top and no *.npy: there is nothing to import",
		       d->im->path);
}

int ckw_import_folder(struct ckw_import *im, struct ckpt_err *err)
{
	struct folder d = { .im = im };
	int rc = ckw_files_read(im, &d.files, err);

	if (rc == 0)
		rc = import(&d, err);
	ckw_owners_fini(&d.owners);
	ckx_hf_index_fini(&d.index);
	free(d.index_text);
	ckw_files_fini(&d.files);
	return rc;
}
