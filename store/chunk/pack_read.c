/* SPDX-License-Identifier: Apache-2.0 */
/*
 * pack_read.c - read sealed packs: headers, cells, the trailer; and scan one
 * whose trailer is lost.
 *
 * Every offset and length is held against the file's size before use, and
 * every byte against a checksum before it is handed out (S6, S10). A reader
 * serves any number of threads: it keeps no position.
 */
#include "chunk/pack.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "base/bytes.h"
#include "base/hash.h"
#include "base/text.h"

static const uint8_t record_magic[8] = "ckptREC1"; /* FORMAT.md */

struct ckc_pack {
	const struct ckb_sys *sys;
	int fd;
	uint64_t bytes;
	uint8_t uuid[CKPT_UUID_BYTES];
	char *path;
};

static int read_header(struct ckc_pack *p, const uint8_t *uuid,
		       struct ckpt_err *err)
{
	uint8_t bytes[CKF_PACK_HEADER_BYTES];
	struct ckf_pack_header h;
	char want[CKB_UUID_TEXT_BYTES], have[CKB_UUID_TEXT_BYTES];
	struct stat st;
	int rc = p->sys->fstat(p->sys, p->fd, &st);

	if (rc < 0)
		return ckb_err_sys(err, -rc, "cannot read pack '%s'", p->path);
	if (!S_ISREG(st.st_mode))
		return ckb_err(err, CKPT_ECORRUPT, "pack '%s' is no regular "
			       "file", p->path);
	p->bytes = (uint64_t)st.st_size;
	rc = ckb_pread_full(p->sys, p->fd, bytes, sizeof(bytes), 0, p->path,
			    err);
	if (rc < 0)
		return rc;
	rc = ckf_pack_header_decode(bytes, sizeof(bytes), &h, err);
	if (rc < 0)
		return ckb_err_prefix(err, rc, "pack '%s'", p->path);
	memcpy(p->uuid, h.uuid, CKPT_UUID_BYTES);
	if (!uuid || memcmp(uuid, h.uuid, CKPT_UUID_BYTES) == 0)
		return 0;
	ckb_uuid_text(want, uuid);
	ckb_uuid_text(have, h.uuid);
	return ckb_err(err, CKPT_ECORRUPT, "pack '%s' is another pack: it "
		       "says %s, not %s", p->path, have, want);
}

int ckc_pack_open(const struct ckb_sys *sys, int dirfd, const char *path,
		  const uint8_t uuid[16], struct ckc_pack **out,
		  struct ckpt_err *err)
{
	struct ckc_pack *p = calloc(1, sizeof(*p));
	int rc;

	*out = NULL;
	if (!p)
		return ckb_err_nomem(err);
	p->sys = sys;
	p->path = strdup(path);
	p->fd = sys->openat(sys, dirfd, path,
			    O_RDONLY | O_NOFOLLOW | O_NONBLOCK, 0);
	if (!p->path)
		rc = ckb_err_nomem(err);
	else if (p->fd < 0)
		rc = ckb_err_sys(err, -p->fd, "cannot open pack '%s'", path);
	else
		rc = read_header(p, uuid, err);
	if (rc < 0) {
		ckc_pack_close(p);
		return rc;
	}
	*out = p;
	return 0;
}

void ckc_pack_close(struct ckc_pack *p)
{
	if (!p)
		return;
	if (p->fd >= 0)
		p->sys->close(p->sys, p->fd);
	free(p->path);
	free(p);
}

uint64_t ckc_pack_file_bytes(const struct ckc_pack *p)
{
	return p->bytes;
}

const uint8_t *ckc_pack_uuid(const struct ckc_pack *p)
{
	return p->uuid;
}

const char *ckc_pack_path(const struct ckc_pack *p)
{
	return p->path;
}

int ckc_pack_read(struct ckc_pack *p, uint64_t off, void *dst, size_t len,
		  struct ckpt_err *err)
{
	uint64_t end;

	if (!ckb_add_u64(off, len, &end) || end > p->bytes)
		return ckb_err(err, CKPT_ECORRUPT, "pack '%s' has %" PRIu64
			       " bytes, and %zu must be at offset %" PRIu64
			       ": it is truncated", p->path, p->bytes, len,
			       off);
	return ckb_pread_full(p->sys, p->fd, dst, len, off, p->path, err);
}

int ckc_pack_head(struct ckc_pack *p, uint64_t off, uint32_t head_len,
		  struct ckf_cell *cells, uint32_t cell_max,
		  struct ckf_record *out, struct ckpt_err *err)
{
	uint8_t small[1024];
	CKB_FREE uint8_t *large = NULL;
	uint8_t *bytes = small;

	if (head_len > CKB_RECORD_HEAD_MAX)
		return ckb_err(err, CKPT_ECORRUPT, "a record header of %u "
			       "bytes cannot be", head_len);
	if (head_len > sizeof(small)) {
		bytes = large = malloc(head_len);
		if (!large)
			return ckb_err_nomem(err);
	}
	int rc = ckc_pack_read(p, off, bytes, head_len, err);

	if (rc == 0)
		rc = ckf_record_decode(bytes, head_len, cells, cell_max, out,
				       err);
	return rc;
}

int ckc_pack_cell(struct ckc_pack *p, uint64_t off, uint32_t head_len,
		  const struct ckf_record *rec, uint32_t index, void *dst,
		  void *scratch, struct ckpt_err *err)
{
	CKB_REQUIRE(index < rec->cell_count);
	const struct ckf_cell *cell = &rec->cells[index];
	uint32_t raw_len = ckf_cell_raw_len(rec->raw_len, index);
	uint64_t at = off + head_len;
	void *to = cell->coding == CKF_CELL_RAW ? dst : scratch;

	/* no copy for a raw cell, so its length must be dst's beforehand */
	if (cell->coding == CKF_CELL_RAW && cell->stored_len != raw_len)
		return ckb_err(err, CKPT_ECORRUPT, "cell %u: a raw cell has "
			       "%u bytes, not %u", index, cell->stored_len,
			       raw_len);
	for (uint32_t i = 0; i < index; i++)
		at += rec->cells[i].stored_len;
	int rc = 0;

	if (cell->coding != CKF_CELL_CONSTANT) /* that is all in the header */
		rc = ckc_pack_read(p, at, to, cell->stored_len, err);
	if (rc == 0)
		rc = ckc_cell_decode(cell, to, dst, raw_len, err);
	if (rc == CKPT_ECORRUPT)
		ckb_err_prefix(err, rc, "cell %u", index);
	return rc;
}

/* ---- the trailer ---- */

static int read_footer(struct ckc_pack *p, struct ckf_footer *out,
		       struct ckpt_err *err)
{
	uint8_t foot[CKF_FOOTER_BYTES];

	if (p->bytes < CKF_PACK_HEADER_BYTES + CKF_FOOTER_BYTES)
		return ckb_err(err, CKPT_ECORRUPT, "the pack has %" PRIu64
			       " bytes: it is truncated", p->bytes);
	int rc = ckc_pack_read(p, p->bytes - sizeof(foot), foot, sizeof(foot),
			       err);

	if (rc == 0)
		rc = ckf_footer_decode(foot, p->bytes, out, err);
	if (rc == 0 && memcmp(out->uuid, p->uuid, CKPT_UUID_BYTES) != 0)
		rc = ckb_err(err, CKPT_ECORRUPT, "the pack's footer belongs "
			     "to another pack");
	return rc;
}

/* S10: the checksum says that the table is what was written, not that who
 * wrote it meant well. Kinds and codecs of a newer ckptfs may be there. */
static bool entry_ok(const struct ckf_trailer_entry *e, uint64_t table_off)
{
	uint64_t end;

	return e->off >= CKF_PACK_HEADER_BYTES && e->off % 8 == 0 &&
	       e->raw_len > 0 && e->raw_len <= CKB_RECORD_RAW_MAX &&
	       ckf_stored_len_ok(e->codec, e->stored_len, e->raw_len) &&
	       e->head_len >= ckf_record_head_bytes(
				      ckf_cell_count(e->raw_len)) &&
	       e->head_len <= CKB_RECORD_HEAD_MAX &&
	       ckb_add_u64(e->off, e->head_len, &end) &&
	       ckb_add_u64(end, e->stored_len, &end) && end <= table_off;
}

static int check_table(const uint8_t *table, const struct ckf_footer *f,
		       struct ckpt_err *err)
{
	uint64_t len = f->entry_count * CKF_TRAILER_ENTRY_BYTES;
	struct ckf_trailer_entry e;

	if (ckb_xxh3(table, len) != f->table_xxh3)
		return ckb_err(err, CKPT_ECORRUPT, "the pack's table of "
			       "records does not match its checksum");
	for (uint64_t i = 0; i < f->entry_count; i++) {
		const uint8_t *at = table + i * CKF_TRAILER_ENTRY_BYTES;

		ckf_trailer_entry_decode(at, &e);
		if (!entry_ok(&e, f->table_off) ||
		    (i > 0 && memcmp(at - CKF_TRAILER_ENTRY_BYTES, at,
				     CKPT_DIGEST_BYTES) > 0))
			return ckb_err(err, CKPT_ECORRUPT, "entry %" PRIu64
				       " of the pack's table of records cannot "
				       "be", i);
	}
	return 0;
}

int ckc_pack_trailer(struct ckc_pack *p, ckc_entry_fn fn, void *ctx,
		     struct ckpt_err *err)
{
	struct ckf_footer f;
	int rc = read_footer(p, &f, err);

	if (rc < 0)
		return rc;
	/* bounded by the file's size, which the footer was held against */
	size_t len = (size_t)f.entry_count * CKF_TRAILER_ENTRY_BYTES;
	CKB_FREE uint8_t *table = malloc(len + 1);

	if (!table)
		return ckb_err_nomem(err);
	rc = ckc_pack_read(p, f.table_off, table, len, err);
	if (rc == 0)
		rc = check_table(table, &f, err);
	for (uint64_t i = 0; rc == 0 && i < f.entry_count; i++) {
		struct ckf_trailer_entry e;

		ckf_trailer_entry_decode(table + i * CKF_TRAILER_ENTRY_BYTES,
					 &e);
		rc = fn(ctx, &e);
	}
	return rc;
}

/* ---- the scan ---- */

static int scan_head(struct ckc_pack *p, uint64_t off, uint32_t head_len,
		     struct ckb_buf *cells, struct ckf_record *r,
		     struct ckpt_err *err)
{
	uint32_t max = head_len / CKF_CELL_ENTRY_BYTES;
	size_t need = max * sizeof(*r->cells);

	if (cells->len < need && !ckb_buf_extend(cells, need - cells->len))
		return ckb_err_nomem(err);
	return ckc_pack_head(p, off, head_len, (struct ckf_cell *)cells->data,
			     max, r, err);
}

/* Decode the record at @off if one is whole there; cells go to scratch that
 * grows. 1: a record, 0: none, negative: failure. */
static int scan_one(struct ckc_pack *p, uint64_t off, struct ckb_buf *cells,
		    struct ckf_trailer_entry *e, struct ckpt_err *err)
{
	struct ckpt_err why = { 0 };
	uint8_t peek[16];
	uint32_t head_len;
	struct ckf_record r;

	if (p->bytes - off < sizeof(peek))
		return 0;
	int rc = ckc_pack_read(p, off, peek, sizeof(peek), err);

	if (rc < 0)
		return rc;
	if (ckf_record_peek(peek, sizeof(peek), &head_len, NULL) < 0 ||
	    head_len > p->bytes - off)
		return 0;
	rc = scan_head(p, off, head_len, cells, &r, &why);
	if (rc == CKPT_ECORRUPT || rc == CKPT_EVERSION)
		return 0;
	if (rc < 0) {
		if (err)
			*err = why;
		return rc;
	}
	if (r.stored_len > p->bytes - off - head_len)
		return 0;
	*e = (struct ckf_trailer_entry){
		.off = off, .head_len = head_len, .kind = r.kind,
		.codec = r.codec, .stored_len = r.stored_len,
		.raw_len = r.raw_len,
	};
	memcpy(e->digest, r.digest, CKPT_DIGEST_BYTES);
	return 1;
}

/* The next 8-aligned offset from @off that begins like a record, or the
 * pack's end. */
static int scan_magic(struct ckc_pack *p, uint64_t *off, struct ckpt_err *err)
{
	uint8_t window[16384];

	while (*off < p->bytes) {
		size_t n = ckb_min_u64(sizeof(window), p->bytes - *off);
		int rc = ckc_pack_read(p, *off, window, n, err);

		if (rc < 0)
			return rc;
		for (size_t i = 0; i + 8 <= n; i += 8)
			if (memcmp(window + i, record_magic, 8) == 0) {
				*off += i;
				return 0;
			}
		*off += ckb_div_up(n, 8) * 8;
	}
	*off = p->bytes;
	return 0;
}

int ckc_pack_scan(struct ckc_pack *p, ckc_entry_fn fn, void *ctx,
		  struct ckpt_err *err)
{
	CKB_BUF struct ckb_buf cells = { 0 };
	uint64_t off = CKF_PACK_HEADER_BYTES;

	while (off < p->bytes) {
		struct ckf_trailer_entry e;
		int rc = scan_one(p, off, &cells, &e, err);

		if (rc < 0)
			return rc;
		if (rc == 0) {
			/* padding, damage, or the table: look further */
			off += 8;
			rc = scan_magic(p, &off, err);
			if (rc < 0)
				return rc;
			continue;
		}
		rc = fn(ctx, &e);
		if (rc != 0)
			return rc;
		off = ckb_div_up(e.off + e.head_len + e.stored_len, 8) * 8;
	}
	return 0;
}
