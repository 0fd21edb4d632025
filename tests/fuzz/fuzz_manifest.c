/* SPDX-License-Identifier: Apache-2.0 */
/*
 * fuzz_manifest.c - a real manifest with any bytes changed, read as a whole.
 *
 * The input is a list of patches (where, what) to the golden store's manifest;
 * a long one, a text for another target, gives patches by its hash.
 * Page checksums are made right again, so that what lies behind them is
 * reached: SQLite, rows, layouts, chunk lists, the records they name.
 */
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include <ckpt/ckpt.h>

#include "base/bytes.h"
#include "base/check.h"
#include "base/hash.h"
#include "base/limits.h"

#define GOLDEN CKPT_SOURCE_ROOT "/tests/golden/store-1"
#define PATCH_BYTES 5u
#define PATCHES_MAX 4u
#define READ_MAX (64u << 10)

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static char dir[64];
static uint8_t *golden;
static size_t golden_len;

static uint8_t *slurp(const char *path, size_t *out_len)
{
	struct stat st;
	int fd = open(path, O_RDONLY | O_CLOEXEC);

	CKB_REQUIRE(fd >= 0 && fstat(fd, &st) == 0);
	uint8_t *p = malloc((size_t)st.st_size + 1);

	CKB_REQUIRE(p && read(fd, p, (size_t)st.st_size) == st.st_size);
	close(fd);
	*out_len = (size_t)st.st_size;
	return p;
}

static void put(const char *name, const void *data, size_t len)
{
	char path[128];

	snprintf(path, sizeof(path), "%s/%s", dir, name);
	int fd = open(path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);

	CKB_REQUIRE(fd >= 0 && write(fd, data, len) == (ssize_t)len);
	close(fd);
}

static void clean(void)
{
	static const char *const names[] = {
		"checkpoints/m", "checkpoints", "ckptfs.json", "packs", "",
	};
	char path[128];

	for (size_t i = 0; i < CKB_ARRAY_LEN(names); i++) {
		snprintf(path, sizeof(path), "%s/%s", dir, names[i]);
		remove(path);
	}
}

/* A store of one checkpoint, with the golden store's packs. */
static void set_up(void)
{
	char path[128];
	size_t len;
	uint8_t *config = slurp(GOLDEN "/ckptfs.json", &len);

	snprintf(dir, sizeof(dir), "/tmp/ckptfs-fuzz-XXXXXX");
	CKB_REQUIRE(mkdtemp(dir));
	atexit(clean);
	put("ckptfs.json", config, len);
	free(config);
	snprintf(path, sizeof(path), "%s/checkpoints", dir);
	CKB_REQUIRE(mkdir(path, 0700) == 0);
	snprintf(path, sizeof(path), "%s/packs", dir);
	CKB_REQUIRE(symlink(GOLDEN "/packs", path) == 0);
	golden = slurp(GOLDEN "/checkpoints/again/2", &golden_len);
}

static void patch(uint8_t *m, const uint8_t *data, size_t size)
{
	uint64_t h[PATCHES_MAX];

	if (size > PATCHES_MAX * PATCH_BYTES) {
		for (size_t i = 0; i < CKB_ARRAY_LEN(h); i++)
			h[i] = ckb_xxh3_u32((uint32_t)i, data, size);
		size = (1 + h[0] % PATCHES_MAX) * PATCH_BYTES;
		data = (const uint8_t *)h;
	}
	for (; size >= PATCH_BYTES; size -= PATCH_BYTES, data += PATCH_BYTES)
		m[ckb_get_u32(data) % golden_len] = data[4];
	for (size_t page = 0; page < golden_len / CKB_MANIFEST_PAGE; page++) {
		uint8_t *p = m + page * CKB_MANIFEST_PAGE;

		ckb_put_u64(p + CKB_MANIFEST_PAGE - 8,
			    ckb_xxh3_u32((uint32_t)page + 1, p,
					 CKB_MANIFEST_PAGE - 8));
	}
}

static void read_all(struct ckpt_checkpoint *c)
{
	static uint8_t bytes[READ_MAX];
	uint64_t stored;

	for (size_t i = 0; i < ckpt_tensor_count(c); i++) {
		const struct ckpt_tensor_info *t = ckpt_tensor_at(c, i);

		CKB_REQUIRE(ckpt_item_at(c, t->item));
		CKB_REQUIRE(ckpt_tensor_find(c, ckpt_item_at(c, t->item),
					     t->name, t->name_len) ||
			    t->name_len == 0);
		(void)!ckpt_read_bytes(c, t, 0, t->bytes < READ_MAX
				       ? t->bytes : READ_MAX, bytes, NULL);
	}
	(void)!ckpt_checkpoint_stored_bytes(c, &stored, NULL);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct ckpt_store_opts opts = { .size = sizeof(opts),
					.flags = CKPT_STORE_READONLY };
	struct ckpt_store *s;
	struct ckpt_checkpoint *c;

	if (!golden)
		set_up();
	uint8_t *m = malloc(golden_len);

	memcpy(m, golden, golden_len);
	patch(m, data, size);
	put("checkpoints/m", m, golden_len);
	free(m);
	CKB_REQUIRE(ckpt_store_open(dir, &opts, &s, NULL) == 0);
	if (ckpt_checkpoint_open(s, "m", &c, NULL) == 0) {
		read_all(c);
		ckpt_checkpoint_close(c);
	}
	ckpt_store_close(s);
	return 0;
}
