/* SPDX-License-Identifier: Apache-2.0 */
/*
 * nothing.c - a FUSE server that does nothing: the floor to measure against.
 *
 *	nothing LIST FILE MNT       stays; SIGTERM unmounts
 *
 * LIST is what `find MNT2 -mindepth 1 -printf '%y %s %P\n'` says of another
 * mount, in any order but parents first: the same tree is shown, from memory,
 * with the kernel told to keep everything for ever. Every file reads as FILE,
 * by one pread into one buffer; nothing is verified, nothing decoded. Names with
 * newlines are not for it.
 */
#define FUSE_USE_VERSION 312
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <fuse_lowlevel.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define FOREVER 1e9

struct node {
	char *path;        /* from the top */
	const char *name;  /* its last part */
	uint32_t parent;
	uint32_t first, count; /* children in `kids`, sorted by name */
	uint64_t size;
	char type;         /* as find's %y */
};

static struct node *nodes; /* [0] is the root; id is index + 1 */
static uint32_t node_count, *kids;
static int file;

static void die(const char *what)
{
	perror(what);
	exit(1);
}

/* ---- the tree ---- */

static int by_path(const void *a, const void *b)
{
	return strcmp(((const struct node *)a)->path,
		      ((const struct node *)b)->path);
}

static int by_parent(const void *a, const void *b)
{
	const struct node *x = &nodes[*(const uint32_t *)a];
	const struct node *y = &nodes[*(const uint32_t *)b];

	if (x->parent != y->parent)
		return x->parent < y->parent ? -1 : 1;
	return strcmp(x->name, y->name);
}

static void find_parent(struct node *n)
{
	char *slash = strrchr(n->path, '/');
	struct node key, *p = nodes;

	n->name = slash ? slash + 1 : n->path;
	if (slash) {
		key.path = strndup(n->path, (size_t)(slash - n->path));
		p = bsearch(&key, nodes, node_count, sizeof(*nodes), by_path);
		free(key.path);
	}
	if (!p)
		die(n->path);
	n->parent = (uint32_t)(p - nodes);
}

static void load(const char *list)
{
	FILE *f = fopen(list, "r");
	char *line = NULL, *path;
	size_t cap = 0, room = 1 << 20;

	nodes = calloc(room, sizeof(*nodes));
	if (!f || !nodes)
		die(list);
	nodes[node_count++] = (struct node){ .path = "", .type = 'd' };
	while (getline(&line, &cap, f) > 0 && node_count < room) {
		unsigned long long size;
		char type;

		line[strcspn(line, "\n")] = '\0';
		if (sscanf(line, "%c %llu %m[^\n]", &type, &size, &path) == 3)
			nodes[node_count++] = (struct node){
				.path = path, .type = type, .size = size };
	}
	fclose(f);
	free(line);
	qsort(nodes, node_count, sizeof(*nodes), by_path);
	kids = calloc(node_count, sizeof(*kids));
	if (!kids)
		die("memory");
	for (uint32_t i = 1; i < node_count; i++) {
		find_parent(&nodes[i]);
		kids[i - 1] = i;
	}
	qsort(kids, node_count - 1, sizeof(*kids), by_parent);
	for (uint32_t i = node_count - 1; i-- > 0;) {
		struct node *p = &nodes[nodes[kids[i]].parent];

		p->first = i;
		p->count++;
	}
}

/* ---- requests ---- */

static void fill(uint32_t i, struct stat *st)
{
	const struct node *n = &nodes[i];

	memset(st, 0, sizeof(*st));
	st->st_ino = i + 1;
	st->st_mode = n->type == 'd' ? S_IFDIR | 0555 :
		      n->type == 'l' ? S_IFLNK | 0777 : S_IFREG | 0444;
	st->st_nlink = n->type == 'd' ? 2 : 1;
	st->st_size = (off_t)n->size;
	st->st_blocks = (blkcnt_t)((n->size + 511) / 512);
}

static void entry(uint32_t i, struct fuse_entry_param *e)
{
	memset(e, 0, sizeof(*e));
	e->ino = i + 1;
	e->entry_timeout = e->attr_timeout = FOREVER;
	fill(i, &e->attr);
}

static void op_init(void *ctx, struct fuse_conn_info *conn)
{
	(void)ctx;
	conn->want &= ~(unsigned)FUSE_CAP_AUTO_INVAL_DATA;
	conn->max_background = 64;
	conn->congestion_threshold = 48;
}

static void op_lookup(fuse_req_t req, fuse_ino_t parent, const char *name)
{
	const struct node *p = &nodes[parent - 1];
	uint32_t low = p->first, high = p->first + p->count;
	struct fuse_entry_param e = { .entry_timeout = FOREVER };

	while (low < high) {
		uint32_t mid = (low + high) / 2;
		int c = strcmp(nodes[kids[mid]].name, name);

		if (c == 0) {
			entry(kids[mid], &e);
			break;
		}
		if (c < 0)
			low = mid + 1;
		else
			high = mid;
	}
	fuse_reply_entry(req, &e);
}

static void op_getattr(fuse_req_t req, fuse_ino_t ino,
		       struct fuse_file_info *fi)
{
	struct stat st;

	(void)fi;
	fill((uint32_t)ino - 1, &st);
	fuse_reply_attr(req, &st, FOREVER);
}

static void op_readlink(fuse_req_t req, fuse_ino_t ino)
{
	char text[4096];
	size_t n = nodes[ino - 1].size;

	memset(text, 'x', sizeof(text));
	text[n < sizeof(text) ? n : sizeof(text) - 1] = '\0';
	fuse_reply_readlink(req, text);
}

static void op_open(fuse_req_t req, fuse_ino_t ino, struct fuse_file_info *fi)
{
	(void)ino;
	fi->keep_cache = fi->cache_readdir = fi->noflush = 1;
	fuse_reply_open(req, fi);
}

static void op_read(fuse_req_t req, fuse_ino_t ino, size_t size, off_t off,
		    struct fuse_file_info *fi)
{
	static _Thread_local char *buffer;
	ssize_t n = 0;

	(void)fi;
	if (!buffer && posix_memalign((void **)&buffer, 4096, 1 << 20) != 0)
		die("memory");
	if ((uint64_t)off < nodes[ino - 1].size)
		n = pread(file, buffer, size, off);
	if (n < 0)
		fuse_reply_err(req, errno);
	else
		fuse_reply_buf(req, buffer, (size_t)n);
}

static void op_readdirplus(fuse_req_t req, fuse_ino_t ino, size_t size,
			   off_t off, struct fuse_file_info *fi)
{
	const struct node *p = &nodes[ino - 1];
	char *out = malloc(size);
	size_t used = 0;

	(void)fi;
	for (uint32_t i = (uint32_t)off; i < p->count; i++) {
		struct fuse_entry_param e;
		uint32_t kid = kids[p->first + i];

		entry(kid, &e);
		size_t n = fuse_add_direntry_plus(req, out + used, size - used,
						  nodes[kid].name, &e, i + 1);

		if (n > size - used)
			break;
		used += n;
	}
	fuse_reply_buf(req, out, used);
	free(out);
}

static void op_readdir(fuse_req_t req, fuse_ino_t ino, size_t size, off_t off,
		       struct fuse_file_info *fi)
{
	const struct node *p = &nodes[ino - 1];
	char *out = malloc(size);
	size_t used = 0;

	(void)fi;
	for (uint32_t i = (uint32_t)off; i < p->count; i++) {
		uint32_t kid = kids[p->first + i];
		struct stat st;

		fill(kid, &st);
		size_t n = fuse_add_direntry(req, out + used, size - used,
					     nodes[kid].name, &st, i + 1);

		if (n > size - used)
			break;
		used += n;
	}
	fuse_reply_buf(req, out, used);
	free(out);
}

static const struct fuse_lowlevel_ops ops = {
	.init = op_init, .lookup = op_lookup, .getattr = op_getattr,
	.readlink = op_readlink, .open = op_open, .opendir = op_open,
	.read = op_read, .readdir = op_readdir,
	.readdirplus = op_readdirplus,
};

int main(int argc, char **argv)
{
	char *opts[] = { "nothing", "-o", "ro,fsname=nothing,noatime" };
	struct fuse_args args = FUSE_ARGS_INIT(3, opts);
	struct fuse_loop_config *cfg = fuse_loop_cfg_create();

	if (argc != 4) {
		fprintf(stderr, "usage: nothing LIST FILE MNT\n");
		return 2;
	}
	load(argv[1]);
	file = open(argv[2], O_RDONLY);
	if (file < 0)
		die(argv[2]);
	struct fuse_session *se = fuse_session_new(&args, &ops, sizeof(ops),
						   NULL);

	if (!se || fuse_set_signal_handlers(se) != 0 ||
	    fuse_session_mount(se, argv[3]) != 0)
		return 1;
	fuse_loop_cfg_set_max_threads(cfg, 16);
	int rc = fuse_session_loop_mt(se, cfg);

	fuse_session_unmount(se);
	fuse_remove_signal_handlers(se);
	fuse_session_destroy(se);
	fuse_loop_cfg_destroy(cfg);
	return rc < 0;
}
