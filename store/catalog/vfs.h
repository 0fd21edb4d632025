/* SPDX-License-Identifier: Apache-2.0 */
/* catalog/vfs.h - SQLite's view of a manifest: pages verified as they are
 * read. For manifest.c alone. */
#ifndef CKQ_VFS_H
#define CKQ_VFS_H

#include <sqlite3.h>

#include "base/sys.h"

#define CKQ_VFS_NAME "ckptfs-manifest"

/* One open manifest file; outlives the connection that reads it. */
struct ckq_file {
	const struct ckb_sys *sys;
	int fd;
	uint64_t bytes;
	/* of the last failure, until it is told: */
	uint32_t bad_page;   /* page that could not be had; 0: none */
	int bad_errno;       /* why a read failed; 0: its bytes are wrong */
	bool cut;            /* the file ends before that page does */
};

/* Open @f as database through @db: registers the VFS on first use. The file
 * is passed by pointer in the URI. */
int ckq_vfs_open(struct ckq_file *f, sqlite3 **db);

/* Page @number (from 1) into @page, verified. SQLITE_OK or an error. */
int ckq_vfs_page(struct ckq_file *f, uint32_t number, uint8_t *page);

#endif
