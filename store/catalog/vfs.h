/* SPDX-License-Identifier: Apache-2.0 */
/* catalog/vfs.h - SQLite's view of a manifest: pages verified as they are
 * read. For manifest.c alone. */
#ifndef CKQ_VFS_H
#define CKQ_VFS_H

#include <sqlite3.h>

#include "base/sys.h"

#define CKQ_VFS_NAME "ckptfs-manifest"

/* One open manifest file; outlives the connection that reads it. Its folder's
 * descriptor outlives it. */
struct ckq_file {
	const struct ckb_sys *sys;
	int dirfd;           /* borrowed */
	const char *path;    /* under dirfd; borrowed */
	struct stat st;      /* what it was when it was opened */
	uint64_t bytes;
	/* Let go of what reads through it, or say no; may be NULL. Called
	 * under handles.c's lock by any thread. */
	bool (*give_up)(struct ckq_file *f);
	void *owner;         /* give_up()'s */
	/* handles.c's, guarded by its lock: */
	int fd;              /* -1: given up for now */
	bool busy, listed;
	struct ckq_file *newer, *older;
	/* of the last failure, until it is told: */
	uint32_t bad_page;   /* page that could not be had; 0: none */
	int bad_errno;       /* why a read failed; 0: its bytes are wrong */
	bool cut;            /* the file ends before that page does */
};

/* ---- handles.c: descriptors, a bounded number in a process ---- */

/* Open @f for the first time and set its `st`. 0 or -errno. */
CKB_MUST int ckq_file_open(struct ckq_file *f);
/* A descriptor of @f until ckq_file_put(), or -errno; -ESTALE: its name shows
 * another file by now. */
CKB_MUST int ckq_file_get(struct ckq_file *f);
void ckq_file_put(struct ckq_file *f);
void ckq_file_close(struct ckq_file *f);

/* ---- vfs.c ---- */

/* Open @f as database through @db: registers the VFS on first use. The file
 * is passed by pointer in the URI. */
int ckq_vfs_open(struct ckq_file *f, sqlite3 **db);

/* Page @number (from 1) into @page, verified. SQLITE_OK or an error. */
int ckq_vfs_page(struct ckq_file *f, uint32_t number, uint8_t *page);

#endif
