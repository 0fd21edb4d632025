/* SPDX-License-Identifier: Apache-2.0 */
/* schema.c - the manifest's tables. Changing a byte here changes the format:
 * FORMAT.md and its version move with it. */
#include "catalog/schema.h"

#include <stddef.h>
#include <string.h>

#include <ckpt/store.h>

const char *const ckq_schema[CKQ_TABLE_COUNT] = {
	"CREATE TABLE checkpoint(id INTEGER PRIMARY KEY CHECK(id = 1), "
	"uuid BLOB NOT NULL, store_uuid BLOB NOT NULL, "
	"generation INTEGER NOT NULL, seq INTEGER NOT NULL, step INTEGER, "
	"created_ns INTEGER NOT NULL, parent BLOB, saved_as TEXT NOT NULL, "
	"metadata TEXT, metrics TEXT, writer TEXT NOT NULL, "
	"tile_rule INTEGER NOT NULL, digest TEXT NOT NULL) STRICT",
	"CREATE TABLE item(id INTEGER PRIMARY KEY, name TEXT NOT NULL UNIQUE, "
	"kind TEXT NOT NULL, separator TEXT NOT NULL, metadata TEXT) STRICT",
	"CREATE TABLE pack(id INTEGER PRIMARY KEY, uuid BLOB NOT NULL UNIQUE) "
	"STRICT",
	"CREATE TABLE layout(id INTEGER PRIMARY KEY, spec BLOB NOT NULL "
	"UNIQUE) STRICT",
	"CREATE TABLE tensor(id INTEGER PRIMARY KEY, item INTEGER NOT NULL "
	"REFERENCES item(id), name BLOB NOT NULL, dtype TEXT NOT NULL, shape "
	"BLOB NOT NULL, bytes INTEGER NOT NULL, media_type TEXT, layout "
	"INTEGER REFERENCES layout(id), alias_of INTEGER REFERENCES "
	"tensor(id), stats BLOB, root BLOB, chunks BLOB, UNIQUE(item, name)) "
	"STRICT",
};

/* Rows of sqlite_schema as SQLite writes them: each table, and behind it the
 * index of its UNIQUE constraint, which has no text. */
static const struct {
	const char *table, *index; /* one of the two is the row's name */
} objects[CKQ_OBJECT_COUNT] = {
	{ "checkpoint", NULL },
	{ "item", NULL },
	{ "item", "sqlite_autoindex_item_1" },
	{ "pack", NULL },
	{ "pack", "sqlite_autoindex_pack_1" },
	{ "layout", NULL },
	{ "layout", "sqlite_autoindex_layout_1" },
	{ "tensor", NULL },
	{ "tensor", "sqlite_autoindex_tensor_1" },
};

bool ckq_schema_is(int n, const char *type, const char *name,
		   const char *table, const char *sql)
{
	const char *index = objects[n].index;
	int nth = 0; /* table of ckq_schema */

	for (int i = 0; i < n; i++)
		nth += !objects[i].index;
	if (!type || !name || !table || strcmp(table, objects[n].table) != 0)
		return false;
	if (index)
		return strcmp(type, "index") == 0 && !sql &&
		       strcmp(name, index) == 0;
	return strcmp(type, "table") == 0 && strcmp(name, table) == 0 && sql &&
	       strcmp(sql, ckq_schema[nth]) == 0;
}

static const char *const kinds[] = { NULL, "tensors", "files", "origin" };

const char *ckq_kind_name(int kind)
{
	return kind >= CKPT_ITEM_TENSORS && kind <= CKPT_ITEM_ORIGIN
		       ? kinds[kind] : NULL;
}

int ckq_kind_parse(const char *name)
{
	for (int k = CKPT_ITEM_TENSORS; k <= CKPT_ITEM_ORIGIN; k++)
		if (name && strcmp(kinds[k], name) == 0)
			return k;
	return 0;
}
