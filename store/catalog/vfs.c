/* SPDX-License-Identifier: Apache-2.0 */
/*
 * vfs.c - a read-only SQLite VFS over struct ckb_sys that verifies pages.
 *
 * Every byte SQLite sees comes from a whole page whose XXH3-64 (over page
 * number and contents) matched its reserved bytes, so a flipped bit in a name
 * or an offset is an error, not an answer (S6). It refuses everything else:
 * writing, journals, locks, shared memory, other files.
 *
 * Threads: registered once; each open file belongs to one connection.
 */
#include "catalog/vfs.h"

#include <inttypes.h>
#include <pthread.h>
#include <stdio.h>
#include <string.h>

#include "base/bytes.h"
#include "base/hash.h"
#include "base/limits.h"

struct handle {
	sqlite3_file base;
	struct ckq_file *file;
};

int ckq_vfs_page(struct ckq_file *f, uint32_t number, uint8_t *page)
{
	struct ckpt_err err = { 0 };
	uint64_t off = (uint64_t)(number - 1) * CKB_MANIFEST_PAGE;
	int rc = ckq_file_get(f);

	if (rc < 0) {
		f->bad_page = number;
		f->bad_errno = -rc;
		f->cut = false;
		return SQLITE_IOERR_READ;
	}
	rc = ckb_pread_full(f->sys, rc, page, CKB_MANIFEST_PAGE, off,
			    "manifest", &err);
	ckq_file_put(f);
	if (rc < 0) {
		f->bad_page = number;
		f->bad_errno = err.sys_errno;
		f->cut = rc == CKPT_ECORRUPT;
		return SQLITE_IOERR_READ;
	}
	if (ckb_get_u64(page + CKB_MANIFEST_PAGE - 8) !=
	    ckb_xxh3_u32(number, page, CKB_MANIFEST_PAGE - 8)) {
		f->bad_page = number;
		f->bad_errno = 0;
		f->cut = false;
		return SQLITE_IOERR_DATA;
	}
	return SQLITE_OK;
}

static int io_read(sqlite3_file *file, void *dst, int len, sqlite3_int64 off)
{
	struct ckq_file *f = ((struct handle *)file)->file;
	uint8_t page[CKB_MANIFEST_PAGE], *to = dst;

	while (len > 0) {
		uint32_t number = (uint32_t)(off / CKB_MANIFEST_PAGE) + 1;
		uint32_t at = (uint32_t)(off % CKB_MANIFEST_PAGE);
		int n = (int)ckb_min_u64((uint64_t)len, CKB_MANIFEST_PAGE - at);

		if ((uint64_t)off >= f->bytes) {
			memset(to, 0, (size_t)len);
			return SQLITE_IOERR_SHORT_READ;
		}
		/* whole pages land in place; the rest go through a copy */
		uint8_t *p = n == CKB_MANIFEST_PAGE ? to : page;
		int rc = ckq_vfs_page(f, number, p);

		if (rc != SQLITE_OK)
			return rc;
		if (p == page)
			memcpy(to, page + at, (size_t)n);
		to += n;
		off += n;
		len -= n;
	}
	return SQLITE_OK;
}

static int io_close(sqlite3_file *file)
{
	(void)file;
	return SQLITE_OK;
}

static int io_write(sqlite3_file *file, const void *src, int len,
		    sqlite3_int64 off)
{
	(void)file, (void)src, (void)len, (void)off;
	return SQLITE_READONLY;
}

static int io_truncate(sqlite3_file *file, sqlite3_int64 size)
{
	(void)file, (void)size;
	return SQLITE_READONLY;
}

static int io_size(sqlite3_file *file, sqlite3_int64 *out)
{
	*out = (sqlite3_int64)((struct handle *)file)->file->bytes;
	return SQLITE_OK;
}

/* sync, lock, unlock */
static int io_nothing(sqlite3_file *file, int flags)
{
	(void)file, (void)flags;
	return SQLITE_OK;
}

static int io_check_lock(sqlite3_file *file, int *out)
{
	(void)file;
	*out = 0;
	return SQLITE_OK;
}

static int io_control(sqlite3_file *file, int op, void *arg)
{
	(void)file, (void)op, (void)arg;
	return SQLITE_NOTFOUND;
}

static int io_sector(sqlite3_file *file)
{
	(void)file;
	return CKB_MANIFEST_PAGE;
}

static int io_traits(sqlite3_file *file)
{
	(void)file;
	return SQLITE_IOCAP_IMMUTABLE;
}

static const sqlite3_io_methods methods = {
	.iVersion = 1, .xClose = io_close, .xRead = io_read,
	.xWrite = io_write, .xTruncate = io_truncate, .xSync = io_nothing,
	.xFileSize = io_size, .xLock = io_nothing, .xUnlock = io_nothing,
	.xCheckReservedLock = io_check_lock, .xFileControl = io_control,
	.xSectorSize = io_sector, .xDeviceCharacteristics = io_traits,
};

static int vfs_open(sqlite3_vfs *vfs, const char *name, sqlite3_file *file,
		    int flags, int *out_flags)
{
	struct handle *h = (struct handle *)file;
	const char *text = NULL;
	void *p = NULL;

	(void)vfs;
	file->pMethods = NULL;
	if (!name || !(flags & SQLITE_OPEN_MAIN_DB))
		return SQLITE_CANTOPEN;
	text = sqlite3_uri_parameter(name, "file");
	if (!text || sscanf(text, "%p", &p) != 1)
		return SQLITE_CANTOPEN;
	h->file = p;
	file->pMethods = &methods;
	if (out_flags)
		*out_flags = SQLITE_OPEN_READONLY | SQLITE_OPEN_MAIN_DB;
	return SQLITE_OK;
}

static int vfs_delete(sqlite3_vfs *vfs, const char *name, int sync)
{
	(void)vfs, (void)name, (void)sync;
	return SQLITE_READONLY;
}

static int vfs_access(sqlite3_vfs *vfs, const char *name, int flags, int *out)
{
	(void)vfs, (void)name, (void)flags;
	*out = 0; /* no journal, no WAL, ever */
	return SQLITE_OK;
}

static int vfs_full_path(sqlite3_vfs *vfs, const char *name, int len,
			 char *out)
{
	(void)vfs;
	snprintf(out, (size_t)len, "%s", name);
	return SQLITE_OK;
}

static sqlite3_vfs vfs;

static void register_vfs(void)
{
	/* randomness, sleep and time are the default VFS's own */
	const sqlite3_vfs *base = sqlite3_vfs_find(NULL);

	if (!base)
		return;
	vfs = *base;
	vfs.iVersion = 1;
	vfs.szOsFile = sizeof(struct handle);
	vfs.mxPathname = 512;
	vfs.pNext = NULL;
	vfs.zName = CKQ_VFS_NAME;
	vfs.xOpen = vfs_open;
	vfs.xDelete = vfs_delete;
	vfs.xAccess = vfs_access;
	vfs.xFullPathname = vfs_full_path;
	sqlite3_vfs_register(&vfs, 0);
}

int ckq_vfs_open(struct ckq_file *f, sqlite3 **db)
{
	static pthread_once_t once = PTHREAD_ONCE_INIT;
	char uri[128];

	pthread_once(&once, register_vfs);
	snprintf(uri, sizeof(uri), "file:manifest?mode=ro&immutable=1&file=%p",
		 (void *)f);
	return sqlite3_open_v2(uri, db, SQLITE_OPEN_READONLY |
			       SQLITE_OPEN_URI | SQLITE_OPEN_NOMUTEX |
			       SQLITE_OPEN_PRIVATECACHE, CKQ_VFS_NAME);
}
