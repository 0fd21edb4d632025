/* SPDX-License-Identifier: Apache-2.0 */
/*
 * source.c - the files an import reads, each as it was when first opened.
 *
 * A source that changes while it is read must not become a checkpoint, and a
 * look at the end would come late: publishing follows capture without asking.
 * So every read compares inode, size and mtime after it, before it hands the
 * bytes on. Whatever is captured was read before a look that found the file as
 * it was at the start; a change after the last read touches no byte that is
 * saved. (A writer with the file mapped, or within one tick of the file
 * system's clock, can escape the mtime; nothing but a lock that all obey could
 * tell.)
 *
 * At most CKW_INPUTS_OPEN descriptors are open however many files there are:
 * who needs one takes the slot that was filled longest ago. Only regular files
 * are read: a FIFO or a folder is refused at once, never waited for.
 *
 * Threads: one at a time, see import.h.
 */
#include <string.h>

#include "import.h"

const char *ckw_kind_of(mode_t mode)
{
	return S_ISDIR(mode) ? "a folder"
	     : S_ISFIFO(mode) ? "a FIFO"
	     : S_ISSOCK(mode) ? "a socket"
	     : S_ISLNK(mode) ? "a symbolic link"
	     : "a device";
}

int ckw_input_new(struct ckw_inputs *all, const char *path,
		  struct ckw_input **out, struct ckpt_err *err)
{
	size_t len = strlen(path) + 1;
	struct ckw_input *in = calloc(1, sizeof(*in) + len);

	if (!in)
		return ckb_err_nomem(err);
	memcpy(in->path, path, len);
	in->all = all;
	in->fd = -1;
	in->next = all->first;
	all->first = in;
	*out = in;
	return 0;
}

static void close_slot(struct ckw_inputs *all, uint32_t slot)
{
	struct ckw_input *in = all->open[slot];

	if (!in)
		return;
	all->sys->close(all->sys, in->fd);
	in->fd = -1;
	all->open[slot] = NULL;
}

void ckw_inputs_fini(struct ckw_inputs *all)
{
	struct ckw_input *next;

	for (uint32_t i = 0; i < CKW_INPUTS_OPEN; i++)
		close_slot(all, i);
	for (struct ckw_input *in = all->first; in; in = next) {
		next = in->next;
		free(in);
	}
	all->first = NULL;
}

static int changed(const struct ckw_input *in, struct ckpt_err *err)
{
	return ckb_err(err, CKPT_EIO, "'%s' was changed while it was being "
		       "read; import it again when it is complete", in->path);
}

static bool same_file(const struct stat *a, const struct stat *b)
{
	return a->st_dev == b->st_dev && a->st_ino == b->st_ino &&
	       a->st_size == b->st_size &&
	       a->st_mtim.tv_sec == b->st_mtim.tv_sec &&
	       a->st_mtim.tv_nsec == b->st_mtim.tv_nsec;
}

/* The first look is kept; each later one must find the same. */
static int look(struct ckw_input *in, struct ckpt_err *err)
{
	const struct ckb_sys *sys = in->all->sys;
	struct stat now;
	int rc = sys->fstat(sys, in->fd, &now);

	if (rc < 0)
		return ckb_err_sys(err, -rc, "cannot read '%s'", in->path);
	if (!S_ISREG(now.st_mode))
		return ckb_err(err, CKPT_EINVAL, "'%s' is %s, not a regular "
			       "file", in->path, ckw_kind_of(now.st_mode));
	if (in->known)
		return same_file(&now, &in->st) ? 0 : changed(in, err);
	in->st = now;
	in->known = true;
	return 0;
}

static int open_input(struct ckw_input *in, struct ckpt_err *err)
{
	struct ckw_inputs *all = in->all;
	uint32_t slot = all->turn;

	if (in->fd >= 0)
		return 0;
	close_slot(all, slot);
	/* O_NONBLOCK: a FIFO without a writer would block here for ever */
	in->fd = all->sys->openat(all->sys, AT_FDCWD, in->path,
				  O_RDONLY | O_NONBLOCK, 0);
	if (in->fd < 0) {
		int rc = -in->fd;

		in->fd = -1;
		return ckb_err_sys(err, rc, "cannot open '%s'", in->path);
	}
	all->open[slot] = in;
	all->turn = (slot + 1) % CKW_INPUTS_OPEN;
	return look(in, err);
}

int ckw_input_size(struct ckw_input *in, uint64_t *out, struct ckpt_err *err)
{
	int rc = in->known ? 0 : open_input(in, err);

	if (rc == 0)
		*out = (uint64_t)in->st.st_size;
	return rc;
}

int ckw_input_read(struct ckw_input *in, uint64_t off, void *dst, size_t len,
		   struct ckpt_err *err)
{
	int rc = open_input(in, err);

	if (rc < 0)
		return rc;
	rc = ckb_pread_full(in->all->sys, in->fd, dst, len, off, in->path,
			    err);
	if (rc == CKPT_ECORRUPT) /* it ends early, so it was cut */
		return changed(in, err);
	return rc < 0 ? rc : look(in, err);
}

/* A pointer is text of under 1 KiB; the bytes it stands for lie elsewhere. */
int ckw_input_no_lfs(struct ckw_input *in, struct ckpt_err *err)
{
	static const char line[] = "version https://git-lfs";
	char first[sizeof(line) - 1];
	uint64_t size = 0;
	int rc = ckw_input_size(in, &size, err);

	if (rc < 0 || size < sizeof(first) || size >= 1024)
		return rc;
	rc = ckw_input_read(in, 0, first, sizeof(first), err);
	if (rc < 0 || memcmp(first, line, sizeof(first)) != 0)
		return rc;
	return ckb_err(err, CKPT_EFORMAT, "'%s' is a Git-LFS pointer, not the "
		       "file it stands for; run 'git lfs pull' to get that",
		       in->path);
}

/* ---- its bytes as they are ---- */

struct part {
	struct ckw_input *input;
	uint64_t off;
};

static int part_read(void *ctx, uint64_t off, void *dst, size_t len,
		     struct ckpt_err *err)
{
	const struct part *p = ctx;

	return ckw_input_read(p->input, p->off + off, dst, len, err);
}

static const struct ckpt_provider_ops part_ops = {
	.size = sizeof(part_ops),
	.read = part_read,
	.release = free,
};

int ckw_input_provider(struct ckw_input *in, uint64_t off,
		       struct ckpt_provider *out, struct ckpt_err *err)
{
	struct part *p = malloc(sizeof(*p));

	if (!p)
		return ckb_err_nomem(err);
	*p = (struct part){ in, off };
	*out = (struct ckpt_provider){ &part_ops, p };
	return 0;
}
