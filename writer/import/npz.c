/* SPDX-License-Identifier: Apache-2.0 */
/*
 * npz.c - import of .npz archives: .npy files as members of a zip.
 *
 * Member NAME.npy becomes tensor NAME. Every member's place, size and header is
 * checked before the save is begun. libzip reads the archive through source.c,
 * so a change of it is noticed.
 *
 * A member is read whole once, which proves its CRC, before a byte of it is
 * handed on. A deflated one goes to an unlinked temporary file meanwhile, a
 * stored one is read in its place after that: one member at a time. What a
 * member may unpack to is what its own header announces, and that must be what
 * the archive's directory says: a bomb ends there (S9, S10).
 *
 * Refused by name: encrypted members, compression other than deflate, what is
 * no .npy, paths that lead out, a name given twice. Folders as members, which
 * hold nothing, are passed over.
 *
 * Threads: the caller's until the save starts, then the capture thread.
 */
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <zip.h>

#include "base/text.h"
#include "npy.h"

#define COPY_BYTES ((size_t)256 << 10)
#define MEMBER_MAX 1000000u

struct npz;

struct member {
	struct npz *npz;
	char *name;              /* with .npy */
	uint64_t index, size;
	bool stored;
};

struct npz {
	struct ckw_import *im;
	struct ckw_input *in;
	zip_t *zip;
	uint64_t at, size;       /* of libzip in the archive */
	zip_error_t told;        /* to libzip */
	struct ckpt_err io;      /* what failed below libzip */
	struct member *members;
	size_t count, cap;
	struct member *current;  /* its bytes can be read */
	zip_file_t *file;        /* of a stored one */
	int spool;               /* of a deflated one; -1: none */
};

/* ---- the archive, for libzip ---- */

static zip_int64_t source_read(struct npz *z, void *dst, zip_uint64_t len)
{
	len = z->at < z->size ? ckb_min_u64(len, z->size - z->at) : 0;
	if (len > 0 &&
	    ckw_input_read(z->in, z->at, dst, (size_t)len, &z->io) < 0) {
		zip_error_set(&z->told, ZIP_ER_READ, EIO);
		return -1;
	}
	z->at += len;
	return (zip_int64_t)len;
}

static zip_int64_t source_seek(struct npz *z, void *data, zip_uint64_t len)
{
	zip_int64_t at = zip_source_seek_compute_offset(z->at, z->size, data,
							len, &z->told);

	if (at < 0)
		return -1;
	z->at = (uint64_t)at;
	return 0;
}

static zip_int64_t source_stat(struct npz *z, zip_stat_t *st)
{
	zip_stat_init(st);
	st->size = z->size;
	st->valid = ZIP_STAT_SIZE;
	return sizeof(*st);
}

static zip_int64_t on_source(void *ctx, void *data, zip_uint64_t len,
			     zip_source_cmd_t cmd)
{
	struct npz *z = ctx;

	switch (cmd) {
	case ZIP_SOURCE_OPEN:
		z->at = 0;
		return 0;
	case ZIP_SOURCE_READ:
		return source_read(z, data, len);
	case ZIP_SOURCE_SEEK:
		return source_seek(z, data, len);
	case ZIP_SOURCE_TELL:
		return (zip_int64_t)z->at;
	case ZIP_SOURCE_STAT:
		return source_stat(z, data);
	case ZIP_SOURCE_ERROR:
		return zip_error_to_data(&z->told, data, len);
	case ZIP_SOURCE_SUPPORTS:
		return zip_source_make_command_bitmap(
			ZIP_SOURCE_OPEN, ZIP_SOURCE_READ, ZIP_SOURCE_CLOSE,
			ZIP_SOURCE_STAT, ZIP_SOURCE_ERROR, ZIP_SOURCE_FREE,
			ZIP_SOURCE_SEEK, ZIP_SOURCE_TELL,
			ZIP_SOURCE_SUPPORTS, -1);
	case ZIP_SOURCE_CLOSE:
	case ZIP_SOURCE_FREE:
		return 0;
	default:
		zip_error_set(&z->told, ZIP_ER_OPNOTSUPP, 0);
		return -1;
	}
}

/* What went wrong: below libzip, or what libzip says of the bytes. */
static int failed(const struct npz *z, const struct member *m,
		  zip_error_t *why, struct ckpt_err *err)
{
	char q[CKB_QUOTE_BYTES];

	if (z->io.code) {
		if (err)
			*err = z->io;
		return z->io.code;
	}
	if (!m)
		return ckb_err(err, CKPT_EFORMAT, "'%s' cannot be read as a "
			       "zip archive: %s; it may be cut or damaged",
			       z->in->path, zip_error_strerror(why));
	return ckb_err(err, CKPT_EFORMAT, "'%s': member '%s' cannot be read: "
		       "%s; the archive is damaged", z->in->path,
		       ckb_quote(q, sizeof(q), m->name, strlen(m->name)),
		       zip_error_strerror(why));
}

static int open_zip(struct npz *z, struct ckpt_err *err)
{
	zip_error_t why;
	zip_source_t *source;
	int rc = ckw_input_size(z->in, &z->size, err);

	if (rc < 0)
		return rc;
	zip_error_init(&why);
	source = zip_source_function_create(on_source, z, &why);
	if (!source) {
		zip_error_fini(&why);
		return ckb_err_nomem(err);
	}
	z->zip = zip_open_from_source(source, ZIP_RDONLY, &why);
	if (!z->zip) {
		rc = failed(z, NULL, &why, err);
		zip_source_free(source);
	}
	zip_error_fini(&why);
	return rc;
}

/* ---- members ---- */

static int bad_member(const struct npz *z, const char *name,
		      const char *what, struct ckpt_err *err)
{
	char q[CKB_QUOTE_BYTES];

	return ckb_err(err, CKPT_EFORMAT, "'%s': member '%s' %s", z->in->path,
		       ckb_quote(q, sizeof(q), name, strlen(name)), what);
}

/* Does the name stay below the folder it would be unpacked to? */
static bool inside(const char *name)
{
	for (const char *at = name;; at++) {
		size_t n = strcspn(at, "/");

		if (n == 0 || (n == 1 && at[0] == '.') ||
		    (n == 2 && at[0] == '.' && at[1] == '.'))
			return false;
		at += n;
		if (!*at)
			return true;
	}
}

static int check_member(const struct npz *z, const char *name,
			const zip_stat_t *st, struct ckpt_err *err)
{
	if (st->encryption_method != ZIP_EM_NONE)
		return bad_member(z, name, "is encrypted; save it without a "
				  "password", err);
	if (ckw_ends_with(name, "/data.pkl"))
		return bad_member(z, name, "is a pickle: this is a file of "
				  "torch.save, no .npz; save its tensors with "
				  "safetensors", err);
	if (!ckw_npy_name_len(name))
		return bad_member(z, name, "is no .npy file, as all members "
				  "of an .npz are", err);
	if (!inside(name))
		return bad_member(z, name, "has a name that leads out of the "
				  "archive", err);
	if (!ckb_utf8_ok(name, strlen(name)))
		return bad_member(z, name, "has a name that is not UTF-8",
				  err);
	if (st->comp_method != ZIP_CM_STORE &&
	    st->comp_method != ZIP_CM_DEFLATE)
		return bad_member(z, name, "is compressed otherwise than by "
				  "deflate; save it with NumPy again", err);
	return 0;
}

static int add_member(struct npz *z, zip_uint64_t index, struct ckpt_err *err)
{
	const zip_uint64_t need = ZIP_STAT_SIZE | ZIP_STAT_COMP_METHOD |
				  ZIP_STAT_ENCRYPTION_METHOD;
	const char *name = zip_get_name(z->zip, index, ZIP_FL_ENC_RAW);
	struct member *m;
	zip_stat_t st;
	int rc;

	if (!name || zip_stat_index(z->zip, index, 0, &st) < 0 ||
	    (st.valid & need) != need)
		return failed(z, NULL, zip_get_error(z->zip), err);
	if (st.size == 0 && *name && name[strlen(name) - 1] == '/')
		return 0;
	rc = check_member(z, name, &st, err);
	if (rc < 0)
		return rc;
	if (z->count >= MEMBER_MAX)
		return ckb_err(err, CKPT_ELIMIT, "'%s' has more than %u "
			       "members", z->in->path, MEMBER_MAX);
	if (!ckb_room(&z->members, z->count, &z->cap, sizeof(*m)))
		return ckb_err_nomem(err);
	m = &z->members[z->count];
	*m = (struct member){ .npz = z, .index = index, .size = st.size,
			      .stored = st.comp_method == ZIP_CM_STORE };
	m->name = strdup(name);
	if (!m->name)
		return ckb_err_nomem(err);
	z->count++;
	return 0;
}

/* ---- the bytes of a member ---- */

static zip_file_t *open_member(struct member *m, struct ckpt_err *err,
			       int *out_rc)
{
	zip_file_t *f = zip_fopen_index(m->npz->zip, m->index, 0);

	*out_rc = f ? 0 : failed(m->npz, m, zip_get_error(m->npz->zip), err);
	return f;
}

/* Up to @len bytes, fewer at the end; *@out_len of them. */
static int read_some(struct member *m, zip_file_t *f, void *dst, size_t len,
		     size_t *out_len, struct ckpt_err *err)
{
	*out_len = 0;
	while (*out_len < len) {
		zip_int64_t n = zip_fread(f, (char *)dst + *out_len,
					  len - *out_len);

		if (n < 0)
			return failed(m->npz, m, zip_file_get_error(f), err);
		if (n == 0)
			break;
		*out_len += (size_t)n;
	}
	return 0;
}

static int wrong_size(const struct member *m, struct ckpt_err *err)
{
	return bad_member(m->npz, m->name, "has more or fewer bytes than the "
			  "archive's directory says; the archive is damaged",
			  err);
}

static int read_head(struct member *m, struct ckx_npy *out,
		     struct ckpt_err *err)
{
	uint8_t head[CKX_NPY_HEAD_MAX + 1];
	size_t want = (size_t)ckb_min_u64(m->size, CKX_NPY_HEAD_MAX), len = 0;
	char q[CKB_QUOTE_BYTES];
	int rc;
	zip_file_t *f = open_member(m, err, &rc);

	if (!f)
		return rc;
	/* one byte more: at its end the CRC of a small member is proved */
	rc = read_some(m, f, head, want + 1, &len, err);
	zip_fclose(f);
	if (rc < 0)
		return rc;
	if (len < want || (len > want && want == m->size))
		return wrong_size(m, err);
	rc = ckx_npy_parse(head, want, m->size, m->npz->im->opts->void_dtype,
			   out, err);
	return rc == 0 ? 0
	     : ckb_err_prefix(err, rc, "'%s': member '%s'", m->npz->in->path,
			      ckb_quote(q, sizeof(q), m->name,
					strlen(m->name)));
}

/* A file without a name: it is gone when it is closed, or we die. */
static int open_spool(struct npz *z, struct ckpt_err *err)
{
	const struct ckb_sys *sys = z->im->inputs.sys;
	const char *dir = getenv("TMPDIR");
	char name[4096], hex[33];
	uint8_t random[16];
	int fd;

	if (!dir || !*dir)
		dir = "/var/tmp";
	fd = sys->openat(sys, AT_FDCWD, dir, O_TMPFILE | O_RDWR, 0600);
	if (fd == -EOPNOTSUPP || fd == -EISDIR || fd == -EINVAL) {
		fd = sys->random(sys, random, sizeof(random));
		ckb_hex(hex, random, sizeof(random));
		if (fd == 0 && snprintf(name, sizeof(name), "%s/ckptfs-%s",
					dir, hex) >= (int)sizeof(name))
			fd = -ENAMETOOLONG;
		if (fd == 0)
			fd = sys->openat(sys, AT_FDCWD, name, O_RDWR |
					 O_CREAT | O_EXCL | O_NOFOLLOW, 0600);
		if (fd >= 0)
			sys->unlinkat(sys, AT_FDCWD, name, 0);
	}
	if (fd < 0)
		return ckb_err_sys(err, -fd, "cannot make a temporary file in "
				   "'%s' ($TMPDIR) to unpack '%s' to", dir,
				   z->in->path);
	z->spool = fd;
	return 0;
}

/* All of the member, to the spool if there is one: proves size and CRC. */
static int read_whole(struct member *m, zip_file_t *f, struct ckpt_err *err)
{
	struct npz *z = m->npz;
	CKB_FREE uint8_t *buf = malloc(COPY_BYTES);
	uint64_t done = 0;
	size_t n = 0;
	int rc = buf ? 0 : ckb_err_nomem(err);

	while (rc == 0) {
		rc = read_some(m, f, buf, COPY_BYTES, &n, err);
		if (rc < 0 || n == 0)
			break;
		if (n > m->size - done)
			return wrong_size(m, err);
		if (z->spool >= 0)
			rc = ckb_pwrite_full(z->im->inputs.sys, z->spool, buf,
					     n, done, "a temporary file in "
					     "$TMPDIR or /var/tmp", err);
		done += n;
	}
	return rc == 0 && done < m->size ? wrong_size(m, err) : rc;
}

static void close_current(struct npz *z)
{
	if (z->file)
		zip_fclose(z->file);
	if (z->spool >= 0)
		z->im->inputs.sys->close(z->im->inputs.sys, z->spool);
	z->file = NULL;
	z->spool = -1;
	z->current = NULL;
}

static int make_current(struct member *m, struct ckpt_err *err)
{
	struct npz *z = m->npz;
	int rc = 0;

	if (z->current == m)
		return 0;
	close_current(z);
	z->file = open_member(m, err, &rc);
	if (rc == 0 && !m->stored)
		rc = open_spool(z, err);
	if (rc == 0)
		rc = read_whole(m, z->file, err);
	if (rc < 0) {
		close_current(z);
		return rc;
	}
	if (!m->stored) {
		zip_fclose(z->file);
		z->file = NULL;
	}
	z->current = m;
	return 0;
}

static int member_read(void *ctx, uint64_t off, void *dst, size_t len,
		       struct ckpt_err *err)
{
	struct member *m = ctx;
	struct npz *z = m->npz;
	size_t n = 0;
	int rc = make_current(m, err);

	if (rc < 0)
		return rc;
	if (!m->stored)
		return ckb_pread_full(z->im->inputs.sys, z->spool, dst, len,
				      off, "the temporary file", err);
	if (zip_fseek(z->file, (zip_int64_t)off, SEEK_SET) < 0)
		return failed(z, m, zip_file_get_error(z->file), err);
	rc = read_some(m, z->file, dst, len, &n, err);
	return rc == 0 && n < len ? wrong_size(m, err) : rc;
}

/* ---- the import ---- */

static void npz_free(void *state)
{
	struct npz *z = state;

	close_current(z);
	if (z->zip)
		zip_discard(z->zip);
	zip_error_fini(&z->told);
	for (size_t i = 0; i < z->count; i++)
		free(z->members[i].name);
	free(z->members);
	free(z);
}

static int check(struct npz *z, struct ckpt_err *err)
{
	struct ckx_npy npy;
	int rc = open_zip(z, err);
	zip_int64_t count = rc == 0 ? zip_get_num_entries(z->zip, 0) : 0;

	for (zip_int64_t i = 0; rc == 0 && i < count; i++)
		rc = add_member(z, (zip_uint64_t)i, err);
	for (size_t i = 0; rc == 0 && i < z->count; i++)
		rc = read_head(&z->members[i], &npy, err);
	return rc;
}

static int describe(struct npz *z, struct member *m, struct ckpt_err *err)
{
	const struct ckw_bytes src = { member_read, m };
	struct ckx_npy npy;
	int rc = read_head(m, &npy, err);

	if (rc < 0)
		return rc;
	rc = ckw_npy_describe(z->im, &npy, src, m->name,
			      ckw_npy_name_len(m->name), err);
	return rc < 0 ? ckb_err_prefix(err, rc, "'%s'", z->in->path) : 0;
}

int ckw_import_npz(struct ckw_import *im, struct ckw_input *in,
		   struct ckpt_err *err)
{
	struct npz *z = calloc(1, sizeof(*z));
	int rc;

	if (!z)
		return ckb_err_nomem(err);
	*z = (struct npz){ .im = im, .in = in, .spool = -1 };
	zip_error_init(&z->told);
	im->state = z; /* providers read through it until the save is over */
	im->state_free = npz_free;
	rc = check(z, err);
	if (rc == 0)
		rc = ckw_import_begin(im, "/", NULL, err);
	for (size_t i = 0; rc == 0 && i < z->count; i++)
		rc = describe(z, &z->members[i], err);
	return rc;
}
