/* SPDX-License-Identifier: Apache-2.0 */
/*
 * index.c - index.db: digest -> pack and offset, in SQLite with a WAL.
 *
 * A cache, so its rule is: whatever is wrong with it, it counts as absent, and
 * a writer makes it anew. Not through struct ckb_sys: SQLite's own VFS does
 * its I/O, and losing any of it loses no checkpoint. On network file systems,
 * whose hosts share no memory for the WAL, there is none.
 *
 * Threads: any; one mutex guards the connection.
 */
#include "catalog/index_impl.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/log.h"

#define APPLICATION_ID 0x636b7469 /* "ckti" */
#define USER_VERSION 2
#define BUSY_MS 5000

static const char *const statements[CKQ_STMT_COUNT] = {
	[CKQ_FIND] = "SELECT p.uuid, c.off, c.stored_len, c.raw_len, "
		     "c.head_len, c.codec FROM chunk c JOIN pack p "
		     "ON p.id = c.pack WHERE c.digest=?",
	[CKQ_PUT_PACK] = "INSERT OR IGNORE INTO pack(uuid) VALUES(?)",
	[CKQ_PACK_ID] = "SELECT id FROM pack WHERE uuid=?",
	[CKQ_PUT] = "INSERT OR REPLACE INTO chunk VALUES(?,?,?,?,?,?,?)",
	[CKQ_LIST_PUT] = "INSERT INTO checkpoint VALUES(NULL,?,?,?,?,?,?,?,?,"
			 "?,?,?,?,?,?,?)",
	[CKQ_LIST_GET] = "SELECT id, ino, size, mtime_ns FROM checkpoint "
			 "WHERE name=?",
	[CKQ_LIST_DROP] = "DELETE FROM checkpoint WHERE id=?",
	[CKQ_LIST_MOVE] = "UPDATE checkpoint SET name=?, sum=? WHERE id=?",
	[CKQ_LIST_OWN] = "UPDATE checkpoint SET own=own+? WHERE id=?",
	[CKQ_LIST_ALL] = "SELECT id, name, ino, size, mtime_ns, uuid, "
			 "generation, seq, step, created_ns, parent, metrics, "
			 "bytes, stored, sum, own FROM checkpoint ORDER BY "
			 "name",
	[CKQ_USED_GET] = "SELECT refs, owners FROM used WHERE pack=? AND "
			 "off=?",
	[CKQ_USED_PUT] = "INSERT OR REPLACE INTO used VALUES(?,?,?,?)",
	[CKQ_USED_DROP] = "DELETE FROM used WHERE pack=? AND off=?",
	[CKQ_EXACT_GET] = "SELECT value FROM meta WHERE key='exact'",
	[CKQ_EXACT_PUT] = "INSERT OR REPLACE INTO meta VALUES('exact', ?)",
};

/* The part that version 2 brought: see index_list.c. */
#define LIST_TABLES \
	"CREATE TABLE checkpoint(id INTEGER PRIMARY KEY, name TEXT NOT NULL " \
	"UNIQUE, ino INTEGER NOT NULL, size INTEGER NOT NULL, mtime_ns " \
	"INTEGER NOT NULL, uuid BLOB NOT NULL, generation INTEGER NOT NULL, " \
	"seq INTEGER NOT NULL, step INTEGER, created_ns INTEGER NOT NULL, " \
	"parent BLOB, metrics TEXT, bytes INTEGER NOT NULL, stored INTEGER " \
	"NOT NULL, sum INTEGER NOT NULL, own INTEGER NOT NULL) STRICT;" \
	"CREATE TABLE used(pack INTEGER NOT NULL, off INTEGER NOT NULL, " \
	"refs INTEGER NOT NULL, owners INTEGER NOT NULL, PRIMARY KEY(pack, " \
	"off)) STRICT, WITHOUT ROWID;" \
	"INSERT OR REPLACE INTO meta VALUES('exact', x'01');"

static const char schema[] =
	"BEGIN IMMEDIATE;"
	"CREATE TABLE meta(key TEXT PRIMARY KEY, value BLOB NOT NULL) STRICT;"
	"CREATE TABLE pack(id INTEGER PRIMARY KEY, uuid BLOB NOT NULL UNIQUE) "
	"STRICT;"
	"CREATE TABLE chunk(digest BLOB PRIMARY KEY, pack INTEGER NOT NULL, "
	"off INTEGER NOT NULL, stored_len INTEGER NOT NULL, raw_len INTEGER "
	"NOT NULL, head_len INTEGER NOT NULL, codec INTEGER NOT NULL) STRICT, "
	"WITHOUT ROWID;"
	LIST_TABLES
	"INSERT INTO meta VALUES('store', zeroblob(16));";

/* A version 1 keeps its chunks; its list held nothing that a save needs. What
 * is listed before 'reindex' is what is saved from now on. */
static const char upgrade_sql[] =
	"BEGIN IMMEDIATE;"
	"DROP TABLE checkpoint;"
	LIST_TABLES
	"PRAGMA user_version=2;"
	"COMMIT;";

/* Is that what a wrong or broken file answers, not a busy or denied one? */
static bool says_damaged(int code)
{
	return code == SQLITE_CORRUPT || code == SQLITE_NOTADB ||
	       code == SQLITE_ERROR; /* no such table or column */
}

/* What the system answered when SQLite said @sql, or 0. */
static int system_errno(struct ckq_index *ix, int sql)
{
	int why = ix->db ? sqlite3_system_errno(ix->db) : 0;

	if (sql == SQLITE_FULL)
		return ENOSPC;
	if (sql == SQLITE_READONLY && access(ix->path, W_OK) != 0)
		return errno;
	if (sql == SQLITE_CANTOPEN) {
		/* SQLite's last call was to open it for reading instead */
		CKB_FREE char *dir = strdup(ix->path);
		char *slash = dir ? strrchr(dir, '/') : NULL;

		if (slash)
			slash[slash == dir] = '\0';
		if (access(slash ? dir : ".", W_OK) != 0)
			return errno;
	}
	return sql == SQLITE_CANTOPEN || sql == SQLITE_IOERR ? why : 0;
}

/* Why there is no index to write to. */
static int cannot_write(struct ckq_index *ix, int sql, struct ckpt_err *err)
{
	int why = system_errno(ix, sql);

	if (why != 0)
		return ckb_err_sys(err, why, "cannot write the index '%s'",
				   ix->path);
	return ckb_err(err, sql == SQLITE_BUSY ? CKPT_EBUSY : CKPT_EIO,
		       "cannot write the index '%s': %s", ix->path,
		       sqlite3_errstr(sql));
}

int ckq_index_failed(struct ckq_index *ix, struct ckpt_err *err)
{
	int sql = sqlite3_errcode(ix->db);
	int code = CKPT_EIO, why = system_errno(ix, sql);

	if (why != 0)
		return ckb_err_sys(err, why, "cannot use the index '%s'",
				   ix->path);
	ix->damaged = ix->damaged || sql == SQLITE_CORRUPT ||
		      sql == SQLITE_NOTADB;
	if (ix->damaged)
		code = CKPT_ECORRUPT;
	else if (sql == SQLITE_BUSY || sql == SQLITE_LOCKED)
		code = CKPT_EBUSY;
	else if (sql == SQLITE_FULL)
		code = CKPT_ENOSPC;
	else if (sql == SQLITE_NOMEM)
		code = CKPT_ENOMEM;
	else if (sql == SQLITE_READONLY || sql == SQLITE_PERM ||
		 sql == SQLITE_CANTOPEN)
		code = CKPT_EPERM;
	return ckb_err(err, code, "the index is no use: %s",
		       sqlite3_errmsg(ix->db));
}

bool ckq_index_network(uint64_t fs_magic)
{
	static const uint64_t magics[] = {
		0x6969,     /* NFS */
		0x517b,     /* SMB */
		0xfe534d42, /* SMB2 */
		0xff534d42, /* CIFS */
		0x0bd00bd0, /* Lustre */
		0x47504653, /* GPFS */
		0x00c36400, /* Ceph */
		0x65735546, /* FUSE */
		0x01021997, /* 9P */
		0x5346414f, /* AFS */
		0x19830326, /* BeeGFS */
	};

	for (size_t i = 0; i < CKB_ARRAY_LEN(magics); i++)
		if (magics[i] == fs_magic)
			return true;
	return false;
}

static bool on_network(const char *path)
{
	const struct ckb_sys *sys = ckb_sys_real();
	CKB_FREE char *dir = strdup(path);
	char *slash = dir ? strrchr(dir, '/') : NULL;
	uint64_t magic = 0;

	if (slash)
		slash[slash == dir] = '\0';
	int fd = sys->openat(sys, AT_FDCWD, slash ? dir : ".",
			     O_RDONLY | O_DIRECTORY, 0);

	if (fd < 0)
		return false;
	int rc = sys->fs_magic(sys, fd, &magic);

	sys->close(sys, fd);
	return rc == 0 && ckq_index_network(magic);
}

/* One integer; SQLITE_OK or why not. */
static int number(sqlite3 *db, const char *sql, int *out)
{
	sqlite3_stmt *s = NULL;
	int rc = sqlite3_prepare_v2(db, sql, -1, &s, NULL);

	if (rc == SQLITE_OK) {
		rc = sqlite3_step(s);
		if (rc == SQLITE_ROW)
			*out = sqlite3_column_int(s, 0);
		rc = rc == SQLITE_ROW ? SQLITE_OK : rc == SQLITE_DONE
						 ? SQLITE_NOTADB : rc;
	}
	sqlite3_finalize(s);
	return rc;
}

/* SQLITE_OK: the open database is an index of this store, whole enough to
 * prepare. SQLITE_NOTADB: it is another file. Else why that is not known. */
static int usable(struct ckq_index *ix, const uint8_t store_uuid[16])
{
	sqlite3_stmt *s = NULL;
	int application = 0, version = 0;
	int rc = number(ix->db, "PRAGMA application_id", &application);

	if (rc == SQLITE_OK)
		rc = number(ix->db, "PRAGMA user_version", &version);
	if (rc == SQLITE_OK &&
	    (application != APPLICATION_ID || version != USER_VERSION))
		rc = SQLITE_NOTADB;
	if (rc == SQLITE_OK)
		rc = sqlite3_prepare_v2(ix->db, "SELECT value FROM meta WHERE "
					"key='store'", -1, &s, NULL);
	if (rc == SQLITE_OK) {
		rc = sqlite3_step(s);
		if (rc == SQLITE_ROW)
			rc = sqlite3_column_bytes(s, 0) == CKPT_UUID_BYTES &&
			     memcmp(sqlite3_column_blob(s, 0), store_uuid,
				    CKPT_UUID_BYTES) == 0
				     ? SQLITE_OK : SQLITE_NOTADB;
		else if (rc == SQLITE_DONE)
			rc = SQLITE_NOTADB;
	}
	sqlite3_finalize(s);
	for (int i = 0; rc == SQLITE_OK && i < CKQ_STMT_COUNT; i++)
		rc = sqlite3_prepare_v3(ix->db, statements[i], -1,
					SQLITE_PREPARE_PERSISTENT,
					&ix->stmt[i], NULL);
	return rc;
}

/* Version 1 -> 2; whatever goes wrong, usable() tells. Two that do it at once:
 * the second finds nothing to drop, and is undone. */
static void upgrade(struct ckq_index *ix)
{
	int application = 0, version = 0;

	if (number(ix->db, "PRAGMA application_id", &application) !=
		    SQLITE_OK || application != APPLICATION_ID ||
	    number(ix->db, "PRAGMA user_version", &version) != SQLITE_OK ||
	    version != 1)
		return;
	sqlite3_exec(ix->db, upgrade_sql, NULL, NULL, NULL);
	if (!sqlite3_get_autocommit(ix->db))
		sqlite3_exec(ix->db, "ROLLBACK", NULL, NULL, NULL);
}

/* Nothing in it yet: made just now, by us or by another who is at it. */
static bool is_empty(struct ckq_index *ix)
{
	int application = -1, objects = -1;

	return number(ix->db, "PRAGMA application_id", &application) ==
		       SQLITE_OK && application == 0 &&
	       number(ix->db, "SELECT count(*) FROM sqlite_schema",
		      &objects) == SQLITE_OK && objects == 0;
}

/* SQLITE_OK, or why not. */
static int create(struct ckq_index *ix, const uint8_t store_uuid[16])
{
	sqlite3_stmt *s = NULL;
	char ids[120];
	bool ok = sqlite3_exec(ix->db, schema, NULL, NULL, NULL) == SQLITE_OK;

	snprintf(ids, sizeof(ids), "PRAGMA application_id=%d; "
		 "PRAGMA user_version=%d", APPLICATION_ID, USER_VERSION);
	ok = ok && sqlite3_exec(ix->db, ids, NULL, NULL, NULL) == SQLITE_OK &&
	     sqlite3_prepare_v2(ix->db, "UPDATE meta SET value=? WHERE "
				"key='store'", -1, &s, NULL) == SQLITE_OK;
	if (ok) {
		sqlite3_bind_blob(s, 1, store_uuid, CKPT_UUID_BYTES,
				  SQLITE_STATIC);
		ok = sqlite3_step(s) == SQLITE_DONE;
	}
	int rc = ok ? SQLITE_OK : sqlite3_errcode(ix->db);

	sqlite3_finalize(s);
	if (sqlite3_get_autocommit(ix->db))
		return rc;
	int end = sqlite3_exec(ix->db, ok ? "COMMIT" : "ROLLBACK", NULL, NULL,
			       NULL);

	return rc != SQLITE_OK ? rc : end;
}

static int connect_db(struct ckq_index *ix, const char *path, bool write)
{
	int flags = write ? SQLITE_OPEN_READWRITE | SQLITE_OPEN_CREATE
			  : SQLITE_OPEN_READONLY;
	struct stat st;

	/* SQLite would leave the group out of its mode, and gives that to its
	 * companions too. Made without a descriptor: to close one would drop
	 * the locks of other connections to the same file. */
	if (write)
		(void)mknod(path, S_IFREG | 0666, 0);
	/* what a link leads to is somebody else's */
	if (lstat(path, &st) == 0 && !S_ISREG(st.st_mode))
		return SQLITE_NOTADB;
	int rc = sqlite3_open_v2(path, &ix->db, flags | SQLITE_OPEN_NOMUTEX |
				 SQLITE_OPEN_PRIVATECACHE, NULL);

	if (rc != SQLITE_OK)
		return rc;
	sqlite3_busy_timeout(ix->db, BUSY_MS);
	sqlite3_db_config(ix->db, SQLITE_DBCONFIG_DEFENSIVE, 1, NULL);
	sqlite3_db_config(ix->db, SQLITE_DBCONFIG_TRUSTED_SCHEMA, 0, NULL);
	if (write)
		sqlite3_exec(ix->db, "PRAGMA journal_mode=WAL; PRAGMA "
			     "synchronous=NORMAL; PRAGMA cache_size=-65536; "
			     "PRAGMA journal_size_limit=268435456", NULL, NULL,
			     NULL);
	return SQLITE_OK;
}

static void disconnect(struct ckq_index *ix)
{
	for (int i = 0; i < CKQ_STMT_COUNT; i++) {
		sqlite3_finalize(ix->stmt[i]);
		ix->stmt[i] = NULL;
	}
	sqlite3_close(ix->db);
	ix->db = NULL;
}

/* 0: open and usable. A fresh or useless file is made anew, once. */
static int open_write(struct ckq_index *ix, const uint8_t store_uuid[16],
		      struct ckpt_err *err)
{
	for (int try = 0;; try++) {
		int rc = connect_db(ix, ix->path, true);
		int made = SQLITE_OK;

		if (rc == SQLITE_OK) {
			if (is_empty(ix))
				made = create(ix, store_uuid);
			upgrade(ix);
			rc = usable(ix, store_uuid);
		}
		if (rc == SQLITE_OK)
			return 0;
		/* of two that make it at once, one fails to, and can use it */
		if (made != SQLITE_OK && !says_damaged(made & 0xff))
			rc = made;
		/* busy, denied, out of memory: not ours to remove */
		if (try == 1 || !says_damaged(rc & 0xff))
			return cannot_write(ix, rc & 0xff, err);
		disconnect(ix);
		rc = ckq_index_remove(ix->path, err);
		if (rc < 0)
			return rc;
		ckb_log(CKB_INFO, "the index '%s' is not this store's, or "
			"damaged: making it anew", ix->path);
	}
}

int ckq_index_open(const char *path, const uint8_t store_uuid[16], bool write,
		   struct ckq_index **out, struct ckpt_err *err)
{
	struct ckq_index *ix = calloc(1, sizeof(*ix));

	*out = NULL;
	if (!ix)
		return ckb_err_nomem(err);
	pthread_mutex_init(&ix->lock, NULL);
	ix->write = write;
	ix->path = strdup(path);
	if (!ix->path) {
		ckq_index_close(ix);
		return ckb_err_nomem(err);
	}
	int rc = CKPT_ENOENT;

	if (!on_network(path) && write)
		rc = open_write(ix, store_uuid, err);
	else if (!on_network(path) &&
		 connect_db(ix, path, false) == SQLITE_OK &&
		 usable(ix, store_uuid) == SQLITE_OK)
		rc = 0;
	if (rc < 0) {
		ckq_index_close(ix);
		return rc;
	}
	*out = ix;
	return 0;
}

void ckq_index_close(struct ckq_index *ix)
{
	if (!ix)
		return;
	disconnect(ix);
	/* what was found damaged under way is gone for the next one */
	if (ix->damaged && ix->write && ckq_index_remove(ix->path, NULL) == 0)
		ckb_log(CKB_WARN, "the index '%s' was damaged and is given "
			"up; 'ckptfs reindex' makes it again", ix->path);
	pthread_mutex_destroy(&ix->lock);
	free(ix->path);
	free(ix);
}

int ckq_index_find(struct ckq_index *ix, const uint8_t digest[32],
		   struct ckq_place *out, struct ckpt_err *err)
{
	sqlite3_stmt *s = ix->stmt[CKQ_FIND];
	int rc = CKPT_ENOENT;

	pthread_mutex_lock(&ix->lock);
	sqlite3_bind_blob(s, 1, digest, CKPT_DIGEST_BYTES, SQLITE_STATIC);
	int step = sqlite3_step(s);

	if (step == SQLITE_ROW && sqlite3_column_bytes(s, 0) ==
	    CKPT_UUID_BYTES) {
		memcpy(out->pack, sqlite3_column_blob(s, 0), CKPT_UUID_BYTES);
		out->off = (uint64_t)sqlite3_column_int64(s, 1);
		out->stored_len = (uint64_t)sqlite3_column_int64(s, 2);
		out->raw_len = (uint32_t)sqlite3_column_int64(s, 3);
		out->head_len = (uint32_t)sqlite3_column_int64(s, 4);
		out->codec = (uint16_t)sqlite3_column_int64(s, 5);
		rc = 0;
	} else if (step != SQLITE_DONE && step != SQLITE_ROW) {
		rc = ckq_index_failed(ix, err);
	}
	sqlite3_reset(s);
	pthread_mutex_unlock(&ix->lock);
	return rc;
}

static int run(struct ckq_index *ix, const char *sql, struct ckpt_err *err)
{
	return sqlite3_exec(ix->db, sql, NULL, NULL, NULL) == SQLITE_OK
		       ? 0 : ckq_index_failed(ix, err);
}

int ckq_index_begin(struct ckq_index *ix, bool wipe, struct ckpt_err *err)
{
	pthread_mutex_lock(&ix->lock);
	ix->last_pack_id = 0;
	int rc = run(ix, "BEGIN IMMEDIATE", err);

	if (rc == 0 && wipe)
		rc = run(ix, "DELETE FROM chunk; DELETE FROM pack; DELETE "
			 "FROM checkpoint; DELETE FROM used; INSERT OR "
			 "REPLACE INTO meta VALUES('exact', x'01')", err);
	if (rc < 0 && !sqlite3_get_autocommit(ix->db))
		sqlite3_exec(ix->db, "ROLLBACK", NULL, NULL, NULL);
	pthread_mutex_unlock(&ix->lock);
	return rc;
}

int ckq_index_step(struct ckq_index *ix, sqlite3_stmt *s, struct ckpt_err *err)
{
	int rc = sqlite3_step(s) == SQLITE_DONE ? 0 : ckq_index_failed(ix, err);

	sqlite3_reset(s);
	return rc;
}

/* The pack's row number; chunks come pack by pack, so the last is kept. */
int ckq_index_pack_id(struct ckq_index *ix, const uint8_t uuid[16],
		      int64_t *out, struct ckpt_err *err)
{
	sqlite3_stmt *get = ix->stmt[CKQ_PACK_ID];

	if (ix->last_pack_id == 0 ||
	    memcmp(ix->last_pack, uuid, CKPT_UUID_BYTES) != 0) {
		sqlite3_bind_blob(ix->stmt[CKQ_PUT_PACK], 1, uuid,
				  CKPT_UUID_BYTES, SQLITE_STATIC);
		int rc = ckq_index_step(ix, ix->stmt[CKQ_PUT_PACK], err);

		if (rc < 0)
			return rc;
		sqlite3_bind_blob(get, 1, uuid, CKPT_UUID_BYTES,
				  SQLITE_STATIC);
		rc = sqlite3_step(get) == SQLITE_ROW
			     ? 0 : ckq_index_failed(ix, err);
		ix->last_pack_id = rc == 0 ? sqlite3_column_int64(get, 0) : 0;
		sqlite3_reset(get);
		if (rc < 0)
			return rc;
		memcpy(ix->last_pack, uuid, CKPT_UUID_BYTES);
	}
	*out = ix->last_pack_id;
	return 0;
}

int ckq_index_put(struct ckq_index *ix, const uint8_t digest[32],
		  const struct ckq_place *place, struct ckpt_err *err)
{
	sqlite3_stmt *s = ix->stmt[CKQ_PUT];
	int64_t id = 0;

	pthread_mutex_lock(&ix->lock);
	int rc = ckq_index_pack_id(ix, place->pack, &id, err);

	if (rc == 0) {
		sqlite3_bind_blob(s, 1, digest, CKPT_DIGEST_BYTES,
				  SQLITE_STATIC);
		sqlite3_bind_int64(s, 2, id);
		sqlite3_bind_int64(s, 3, (int64_t)place->off);
		sqlite3_bind_int64(s, 4, (int64_t)place->stored_len);
		sqlite3_bind_int64(s, 5, place->raw_len);
		sqlite3_bind_int64(s, 6, place->head_len);
		sqlite3_bind_int64(s, 7, place->codec);
		rc = ckq_index_step(ix, s, err);
	}
	pthread_mutex_unlock(&ix->lock);
	return rc;
}

int ckq_index_end(struct ckq_index *ix, bool keep, struct ckpt_err *err)
{
	pthread_mutex_lock(&ix->lock);
	int rc = run(ix, keep ? "COMMIT" : "ROLLBACK", err);

	if (rc < 0 && !sqlite3_get_autocommit(ix->db))
		sqlite3_exec(ix->db, "ROLLBACK", NULL, NULL, NULL);
	ix->last_pack_id = 0;
	pthread_mutex_unlock(&ix->lock);
	return rc;
}

int ckq_index_remove(const char *path, struct ckpt_err *err)
{
	static const char *const ends[] = { "", "-wal", "-shm" };
	const struct ckb_sys *sys = ckb_sys_real();

	for (size_t i = 0; i < CKB_ARRAY_LEN(ends); i++) {
		CKB_FREE char *file = NULL;

		if (asprintf(&file, "%s%s", path, ends[i]) < 0)
			return ckb_err_nomem(err);
		int rc = sys->unlinkat(sys, AT_FDCWD, file, 0);

		if (rc < 0 && rc != -ENOENT)
			return ckb_err_sys(err, -rc, "cannot remove '%s'",
					   file);
	}
	return 0;
}
