/* SPDX-License-Identifier: Apache-2.0 */
/*
 * paths.c - a checkpoint's entries as paths, and the folders these make.
 *
 * One sorted array of paths: '/' sorts before every other byte, so a folder's
 * paths are neighbours, and one pass over them gives the folders, in the same
 * order, as small records that point into the paths' texts. 100,000 tensors
 * cost a few megabytes and a fraction of a second. Lookups are binary searches
 * within one folder; they compare names, never whole paths.
 *
 * Escaping keeps distinct names distinct, so no two files have one path. In an
 * item of files a file may have the name of a folder; then the file is shown
 * and the folder is not.
 *
 * Inode numbers are hashes, so two might be equal. Then all are made again
 * with the next salt, until they are distinct: the same in every process, as
 * they follow from the checkpoint alone. Pure but for memory.
 */
#include <stdlib.h>
#include <string.h>

#include "base/limits.h"
#include "tree/internal.h"

#define SALT_MAX 16u /* more never happens: two entries have one path */

void ckv_paths_fini(struct ckv_paths *p)
{
	ckb_buf_fini(&p->texts);
	free(p->path);
	free(p->folder);
	*p = (struct ckv_paths){ 0 };
}

/* ---- paths ---- */

/* The end before '/', '/' before all else: no escaped name holds a byte below
 * 32, so 1 stands for it. */
static int rank(char c)
{
	return c == '/' ? 1 : (unsigned char)c;
}

static int by_path(const void *a, const void *b)
{
	const char *x = ((const struct ckv_path *)a)->text;
	const char *y = ((const struct ckv_path *)b)->text;

	while (*x && *x == *y) {
		x++;
		y++;
	}
	return rank(*x) - rank(*y);
}

static void put_path(struct ckv_paths *p, const struct ckpt_item_info *it,
		     const struct ckpt_tensor_info *t)
{
	struct ckv_path *path = &p->path[p->path_count++];
	bool tensors = it->kind == CKPT_ITEM_TENSORS, item_cut;

	path->tensor = t ? (uint32_t)t->index : CKV_NO_TENSOR;
	/* a text moves while they grow: its offset for now */
	path->text = (const char *)(uintptr_t)p->texts.len;
	ckv_escape(&p->texts, it->name, strlen(it->name), true, 0, &item_cut);
	ckb_buf_putc(&p->texts, '/');
	if (t)
		ckv_tensor_path(&p->texts, t->name, t->name_len,
				tensors ? it->separator : "/", tensors ? 4 : 0,
				&path->cut);
	ckb_buf_put(&p->texts, "", 1);
}

static int make_paths(struct ckv_paths *p, const struct ckpt_checkpoint *k,
		      struct ckpt_err *err)
{
	size_t n = ckpt_item_count(k);

	p->path = calloc(ckpt_tensor_count(k) + n + 1, sizeof(*p->path));
	if (!p->path)
		return ckb_err_nomem(err);
	for (size_t i = 0; i < n; i++) {
		const struct ckpt_item_info *it = ckpt_item_at(k, i);

		if (!ckv_item_shown(it->kind))
			continue;
		if (it->count == 0)
			put_path(p, it, NULL);
		for (size_t t = 0; t < it->count; t++)
			put_path(p, it, ckpt_tensor_at(k, it->first + t));
	}
	if (p->texts.failed)
		return ckb_err_nomem(err);
	for (uint32_t i = 0; i < p->path_count; i++)
		p->path[i].text = (const char *)p->texts.data +
				  (uintptr_t)p->path[i].text;
	if (p->path_count > 0)
		qsort(p->path, p->path_count, sizeof(*p->path), by_path);
	return 0;
}

/* ---- folders ---- */

/* A folder with the first @len bytes of path @at; *@cur is its parent, then
 * itself. */
static bool open_folder(struct ckv_paths *p, uint32_t at, uint32_t len,
			bool hidden, uint32_t *cur)
{
	if (!ckb_room(&p->folder, p->folder_count, &p->folder_cap,
		      sizeof(*p->folder)))
		return false;
	p->folder[p->folder_count] = (struct ckv_folder){
		.text = p->path[at].text, .len = len, .lo = at,
		.parent = *cur, .hidden = hidden,
	};
	if (p->folder_count > 0 && !hidden)
		p->folder[*cur].subfolders++;
	*cur = p->folder_count++;
	return true;
}

static void close_folder(struct ckv_paths *p, uint32_t at, uint32_t *cur)
{
	struct ckv_folder *f = &p->folder[*cur];

	f->hi = at;
	f->end = p->folder_count;
	*cur = f->parent;
}

/* Bytes that the paths before and at @at have in common. */
static uint32_t common(const struct ckv_paths *p, uint32_t at)
{
	const char *a, *b;
	uint32_t n = 0;

	if (at == 0)
		return 0;
	a = p->path[at - 1].text;
	b = p->path[at].text;
	while (a[n] && a[n] == b[n])
		n++;
	return n;
}

static bool is_file(const struct ckpt_checkpoint *k, const struct ckv_path *p)
{
	return p->tensor != CKV_NO_TENSOR &&
	       ckpt_tensor_at(k, p->tensor)->media_type;
}

static int make_folders(struct ckv_paths *p, const struct ckpt_checkpoint *k,
			struct ckpt_err *err)
{
	uint32_t cur = 0;

	if (p->path_count == 0)
		p->path[0].text = "";
	if (!open_folder(p, 0, 0, false, &cur))
		return ckb_err_nomem(err);
	for (uint32_t i = 0; i < p->path_count; i++) {
		const char *text = p->path[i].text, *slash;
		uint32_t same = common(p, i);

		while (cur > 0 && p->folder[cur].len >= same)
			close_folder(p, i, &cur);
		uint32_t from = ckv_folder_skip(&p->folder[cur]);

		while ((slash = strchr(text + from, '/')) != NULL) {
			uint32_t len = (uint32_t)(slash - text);
			/* the path before is a file of just this name */
			bool hidden = i > 0 && same == len &&
				      !p->path[i - 1].text[len] &&
				      is_file(k, &p->path[i - 1]);

			if (!open_folder(p, i, len, hidden, &cur))
				return ckb_err_nomem(err);
			from = len + 1;
		}
	}
	while (cur > 0)
		close_folder(p, p->path_count, &cur);
	close_folder(p, p->path_count, &cur);
	return 0;
}

/* ---- inode numbers ---- */

/* A set of numbers but 0: are all different? It is larger than the processor's
 * caches, so a number waits until its slot has come from memory. */
#define WAITING 16u /* a power of two */

struct set {
	uint64_t *slots;
	size_t cap;                /* a power of two */
	uint64_t waiting[WAITING]; /* 0: none */
	size_t turn;
	bool twice;
};

static void set_put(struct set *s, uint64_t number)
{
	size_t at = (size_t)number & (s->cap - 1);

	while (s->slots[at] && s->slots[at] != number)
		at = (at + 1) & (s->cap - 1);
	s->twice |= s->slots[at] == number;
	s->slots[at] = number;
}

static void set_add(struct set *s, uint64_t number)
{
	uint64_t *place = &s->waiting[s->turn++ & (WAITING - 1)];

	__builtin_prefetch(&s->slots[(size_t)number & (s->cap - 1)], 1);
	if (*place)
		set_put(s, *place);
	*place = number;
}

static bool set_all_differ(struct set *s)
{
	for (size_t i = 0; i < WAITING; i++)
		if (s->waiting[i])
			set_put(s, s->waiting[i]);
	return !s->twice;
}

/* The files of an entry called @name in folder @f. */
static void number_files(const struct ckv_paths *p, const struct ckv_folder *f,
			 const char *name, bool is_opaque, struct set *set)
{
	char file[CKB_NAME_COMPONENT_MAX + 1];
	size_t len = strlen(name);

	if (is_opaque) {
		set_add(set, ckv_ino_below(f->ino, p->salt, name, len));
		return;
	}
	CKB_INVARIANT(len + 4 < sizeof(file));
	memcpy(file, name, len);
	memcpy(file + len, ".npy", 4);
	set_add(set, ckv_ino_below(f->ino, p->salt, file, len + 4));
	memcpy(file + len, ".txt", 4);
	set_add(set, ckv_ino_below(f->ino, p->salt, file, len + 4));
}

/* Folder number @dir, and the files in it. */
static void number_folder(struct ckv_paths *p, const struct ckpt_checkpoint *k,
			  uint32_t dir, struct set *set)
{
	struct ckv_folder *f = &p->folder[dir];
	uint32_t child = dir + 1;

	if (dir > 0) {
		const struct ckv_folder *up = &p->folder[f->parent];
		uint32_t skip = ckv_folder_skip(up);

		f->ino = ckv_ino_below(up->ino, p->salt, f->text + skip,
				       f->len - skip);
	}
	if (!f->hidden) /* it has the name, and so the number, of a file */
		set_add(set, f->ino);
	for (uint32_t i = f->lo; i < f->hi;) {
		const struct ckv_path *path = &p->path[i];

		if (child < f->end && p->folder[child].lo == i) {
			i = p->folder[child].hi;
			child = p->folder[child].end;
			continue;
		}
		if (path->tensor != CKV_NO_TENSOR)
			number_files(p, f, path->text + ckv_folder_skip(f),
				     is_file(k, path), set);
		i++;
	}
}

static int make_numbers(struct ckv_paths *p, const struct ckpt_checkpoint *k,
			struct ckpt_err *err)
{
	size_t most = 2 * (size_t)p->path_count + p->folder_count + 1;
	size_t cap = 64;

	while (cap < 2 * most)
		cap *= 2;
	for (; p->salt < SALT_MAX; p->salt++) {
		CKB_FREE uint64_t *slots = calloc(cap, sizeof(*slots));
		struct set set = { .slots = slots, .cap = cap };

		if (!slots)
			return ckb_err_nomem(err);
		p->folder[0].ino =
			ckv_ino_uuid(ckpt_checkpoint_info(k)->uuid);
		set_add(&set, ckv_ino_below(p->folder[0].ino, p->salt,
					    "checkpoint.json", 15));
		for (uint32_t i = 0; i < p->folder_count; i++)
			number_folder(p, k, i, &set);
		if (set_all_differ(&set))
			return 0;
	}
	return ckb_err(err, CKPT_ECORRUPT, "two entries of checkpoint '%s' "
		       "have one path", ckpt_checkpoint_info(k)->name);
}

int ckv_paths_init(struct ckv_paths *p, const struct ckpt_checkpoint *k,
		   struct ckpt_err *err)
{
	int rc;

	*p = (struct ckv_paths){ 0 };
	if (ckpt_tensor_count(k) + ckpt_item_count(k) >= UINT32_MAX / 2)
		return ckb_err(err, CKPT_ELIMIT, "checkpoint '%s' has too many "
			       "entries to show",
			       ckpt_checkpoint_info(k)->name);
	rc = make_paths(p, k, err);
	if (rc == 0)
		rc = make_folders(p, k, err);
	if (rc == 0)
		rc = make_numbers(p, k, err);
	if (rc < 0)
		ckv_paths_fini(p);
	return rc;
}

/* ---- lookup ---- */

/*
 * @text's component against @name: bytes in order, where a '/' or the end
 * closes the component. As '/' sorts before every byte, this is the order of
 * the arrays.
 */
static int compare(const char *text, size_t text_len, const char *name,
		   size_t len)
{
	size_t n = text_len < len ? text_len : len;
	int c = memcmp(text, name, n);

	return c ? c : (text_len > len) - (text_len < len);
}

const struct ckv_folder *ckv_folder_child(const struct ckv_paths *p,
					  uint32_t dir, const char *name)
{
	uint32_t low = dir + 1, high = p->folder[dir].end;
	uint32_t skip = ckv_folder_skip(&p->folder[dir]);
	size_t len = strlen(name);

	while (low < high) {
		uint32_t mid = low + (high - low) / 2;
		const struct ckv_folder *f = &p->folder[mid];
		const char *text = f->text + skip;
		const char *slash = memchr(text, '/', f->len - skip);
		size_t text_len = slash ? (size_t)(slash - text)
					: f->len - skip;
		int c = compare(text, text_len, name, len);

		if (c == 0 && !slash)
			return f->hidden ? NULL : f;
		if (c < 0)
			low = mid + 1;
		else
			high = mid; /* it, or one below it */
	}
	return NULL;
}

const struct ckv_path *ckv_folder_file(const struct ckv_paths *p, uint32_t dir,
				       const char *name, size_t len)
{
	const struct ckv_folder *f = &p->folder[dir];
	uint32_t low = f->lo, high = f->hi, skip = ckv_folder_skip(f);

	while (low < high) {
		uint32_t mid = low + (high - low) / 2;
		const char *text = p->path[mid].text + skip;
		size_t text_len = strcspn(text, "/");
		bool leaf = text[text_len] == '\0';
		int c = compare(text, text_len, name, len);

		if (c == 0 && leaf)
			return p->path[mid].tensor == CKV_NO_TENSOR
				       ? NULL : &p->path[mid];
		if (c < 0)
			low = mid + 1;
		else
			high = mid; /* the file stands before the folder */
	}
	return NULL;
}
