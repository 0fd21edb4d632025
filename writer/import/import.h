/* SPDX-License-Identifier: Apache-2.0 */
/*
 * writer/import/import.h - what the importers of the formats share.
 *
 * An import is one save. Each format has one function, which reads and checks
 * what it can, calls ckw_import_begin(), and describes; import.c does the rest.
 * All of it is called from the caller's thread, and providers then from the
 * save's capture thread alone: never both at a time, so nothing is locked.
 */
#ifndef CKW_IMPORT_H
#define CKW_IMPORT_H

#include <sys/stat.h>

#include <ckpt/writer.h>

#include "base/buf.h"
#include "base/sys.h"

/* ---- source.c: files, as they were when first opened ---- */

#define CKW_INPUTS_OPEN 8u

struct ckw_input;

/* The few that have a descriptor, whatever the number of files. */
struct ckw_inputs {
	const struct ckb_sys *sys;
	struct ckw_input *open[CKW_INPUTS_OPEN];
	uint32_t turn;           /* the slot that is used next */
	struct ckw_input *first; /* all of them */
};

struct ckw_input {
	struct ckw_inputs *all;
	struct ckw_input *next;
	int fd;                  /* -1: closed at the moment */
	bool known;              /* st is that of the first opening */
	struct stat st;
	char path[];
};

/* A file to be read, opened when that is needed; lives as long as @all. */
CKB_MUST int ckw_input_new(struct ckw_inputs *all, const char *path,
			   struct ckw_input **out, struct ckpt_err *err);
void ckw_inputs_fini(struct ckw_inputs *all);

/* Its size, when it is a regular file that can be opened. */
CKB_MUST int ckw_input_size(struct ckw_input *in, uint64_t *out,
			    struct ckpt_err *err);

/* Bytes that were there in a file that had not changed since it was first
 * opened; CKPT_EIO when it has, or ends before. */
CKB_MUST int ckw_input_read(struct ckw_input *in, uint64_t off, void *dst,
			    size_t len, struct ckpt_err *err);

/* CKPT_EFORMAT when it is a Git-LFS pointer and not what it stands for. */
CKB_MUST int ckw_input_no_lfs(struct ckw_input *in, struct ckpt_err *err);

/* Bytes of @in from @off on as a provider; @in must outlive the save. */
CKB_MUST int ckw_input_provider(struct ckw_input *in, uint64_t off,
				struct ckpt_provider *out,
				struct ckpt_err *err);

/* "a folder", "a FIFO", ... */
const char *ckw_kind_of(mode_t mode);

/* ---- import.c ---- */

struct ckw_import {
	struct ckpt_writer *writer;
	const char *path, *name;             /* from, to */
	const struct ckpt_import_opts *opts; /* never NULL */
	struct ckw_inputs inputs;
	struct ckpt_save *save;
	uint32_t item, origin, assets;       /* of the save */
	bool has_origin, has_assets;
	void *state;                         /* what a format's providers */
	void (*state_free)(void *state);     /* need until the save is over */
	struct ckpt_import_result result;
};

/* Begin the save, with its item of tensors; nothing is described before. */
CKB_MUST int ckw_import_begin(struct ckw_import *im, const char *separator,
			      const char *item_metadata, struct ckpt_err *err);

/* Keep bytes [0, @len) of @in in the item @orig, as file @name. */
CKB_MUST int ckw_import_origin(struct ckw_import *im, struct ckw_input *in,
			       const char *name, uint64_t len,
			       const char *media_type, struct ckpt_err *err);

/* Keep a whole file in the item `assets`. */
CKB_MUST int ckw_import_asset(struct ckw_import *im, struct ckw_input *in,
			      const char *name, struct ckpt_err *err);

/* One sentence for the summary. */
void ckw_import_note(const struct ckw_import *im, const char *fmt, ...)
	CKB_PRINTF(2, 3);

/* The last component of im->path, when a name in a store may look like that;
 * else @otherwise. */
const char *ckw_import_base(const struct ckw_import *im,
			    const char *otherwise);

/* ---- list.c: what lies in a folder ---- */

#define CKW_FILE_MAX 1000000u

struct ckw_file {
	char *name;              /* below the folder, '/' between */
	struct ckw_input *input;
	bool taken;              /* for its tensors: no asset */
};
struct ckw_files {
	struct ckw_file *file;   /* sorted by name, bytewise */
	size_t count, cap;
};

/* Every regular file below im->path. Refused by name: links to folders and to
 * nothing, FIFOs, sockets, devices. */
CKB_MUST int ckw_files_read(struct ckw_import *im, struct ckw_files *out,
			    struct ckpt_err *err);
void ckw_files_fini(struct ckw_files *files);
/* The file of this name, or NULL. */
struct ckw_file *ckw_files_find(const struct ckw_files *files,
				const char *name, size_t len);
/* The files that were not taken, into `assets`. */
CKB_MUST int ckw_files_to_assets(struct ckw_import *im,
				 const struct ckw_files *files,
				 struct ckpt_err *err);
bool ckw_ends_with(const char *name, const char *end);

/* ---- the formats: read, check, begin, describe ---- */
CKB_MUST int ckw_import_safetensors(struct ckw_import *im, struct ckw_input *in,
				    struct ckpt_err *err);
CKB_MUST int ckw_import_npy(struct ckw_import *im, struct ckw_input *in,
			    struct ckpt_err *err);
CKB_MUST int ckw_import_npz(struct ckw_import *im, struct ckw_input *in,
			    struct ckpt_err *err);
CKB_MUST int ckw_import_folder(struct ckw_import *im, struct ckpt_err *err);
/* ... when the folder holds .npy files and no shards. */
CKB_MUST int ckw_import_npy_folder(struct ckw_import *im,
				   struct ckw_files *files,
				   struct ckpt_err *err);

#endif
