/* SPDX-License-Identifier: Apache-2.0 */
/*
 * test_tree.c - folders, links, lookups, inode numbers, checkpoint.json, and
 * what is replaced, removed or damaged while somebody looks.
 */
#include "tree_fixture.h"

#include <fcntl.h>
#include <malloc.h>
#include <pthread.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "base/text.h"
#include "chunk/digest.h"
#include "format/config.h"
#include "mkstore.h"
#include "sanitized.h"

/* Bounds on time and memory are for builds that people use. */
#ifdef __OPTIMIZE__
#define SLOW SANITIZED
#else
#define SLOW 1
#endif

/* ---- runs and links ---- */

static void root_and_runs_list_what_is_there(void **state)
{
	struct fix *f = *state;

	assert_names(f, "", "README.txt");
	save_one(f, "top", 1, 3, false);
	assert_names(f, "", "README.txt|newest@|top/");
	save_one(f, "run/4000", 1, 3, false);
	save_one(f, "run/sub/7", 1, 3, false);
	assert_names(f, "", "README.txt|newest@|run/|top/");
	assert_names(f, "run", "4000/|latest@|newest@|sub/");
	assert_names(f, "run/sub", "7/|latest@|newest@");
	assert_names(f, "run/4000", "checkpoint.json|model/");
	assert_names(f, "run/4000/model", "w/");
	assert_names(f, "run/4000/model/w", "b.npy|b.txt");
}

static void assert_link(struct fix *f, const char *run, const char *name,
			const char *want)
{
	struct ckpt_err err = { 0 };
	CKB_BUF struct ckb_buf target = { 0 };
	struct ckv_node *dir = at(f, run), *n;
	struct ckv_attr a;
	int rc = ckv_lookup(dir, name, &n, &err);

	ckv_put(dir);
	if (!want) {
		assert_int_equal(rc, CKPT_ENOENT);
		assert_null(n);
		return;
	}
	assert_ok(rc);
	assert_ok(ckv_readlink(n, &target, &err));
	assert_string_equal((char *)target.data, want);
	assert_ok(ckv_attr(n, &a, &err));
	assert_true(a.is_link && !a.immutable);
	assert_int_equal(a.size, strlen(want));
	ckv_put(n);
}

/* By number, not by text, and not by time. */
static void links_follow_step_and_order_of_commits(void **state)
{
	struct fix *f = *state;
	struct ckpt_err err = { 0 };

	save_one(f, "run/sub/9", 1, 3, false);
	assert_link(f, "run", "latest", NULL);
	assert_link(f, "run", "newest", NULL);
	save_one(f, "run/best", 1, 3, false);
	assert_link(f, "run", "latest", NULL);
	assert_link(f, "run", "newest", "best");
	save_one(f, "run/2500", 1, 3, false);
	save_one(f, "run/10000", 1, 3, false);
	save_one(f, "run/500", 1, 3, false);
	assert_link(f, "run", "latest", "10000");
	assert_link(f, "run", "newest", "500");
	/* the same step twice: the later commit */
	save_one(f, "run/010000", 1, 3, false);
	assert_link(f, "run", "latest", "010000");
	assert_link(f, "run", "newest", "010000");
	assert_link(f, "", "latest", NULL);
	struct ckv_node *n = at(f, "run/latest/model/w/b.npy");

	struct ckv_inside in;

	assert_ok(ckv_inside_get(n, &in, &err));
	assert_string_equal(in.tensor->name, "w.b");
	assert_string_equal(ckpt_checkpoint_info(in.checkpoint)->name,
			    "run/010000");
	ckv_inside_put(n, &in);
	ckv_put(n);
}

/* ---- inside a checkpoint ---- */

static void items_become_folders(void **state)
{
	struct fix *f = *state;
	struct ckpt_shape one = { .ndim = 1, .dim = { 1 } };

	begin(f, "c", false);
	item(f, "model", CKPT_ITEM_TENSORS, ".");
	tensor(f, "a", CKPT_U8, one, "1", 1);
	tensor(f, "a.b", CKPT_U8, one, "2", 1);
	tensor(f, "a.b.c", CKPT_U8, one, "3", 1);
	tensor(f, "A", CKPT_U8, one, "4", 1);
	tensor(f, "a-b", CKPT_U8, one, "5", 1);
	tensor(f, "a.npy.x", CKPT_U8, one, "6", 1);
	item(f, "jax", CKPT_ITEM_TENSORS, "/");
	tensor(f, "p/k.npy", CKPT_U8, one, "7", 1);
	tensor(f, "p/k.npy/b", CKPT_U8, one, "8", 1);
	item(f, "flat", CKPT_ITEM_TENSORS, "");
	tensor(f, "a.b/c", CKPT_U8, one, "9", 1);
	item(f, "none", CKPT_ITEM_TENSORS, ".");
	item(f, "@origin", CKPT_ITEM_ORIGIN, "/");
	file(f, "header", "secret");
	item(f, "assets", CKPT_ITEM_FILES, "/");
	file(f, "state.json", "{}");
	file(f, "deep/er/x.npy", "not one");
	file(f, ".hidden", "h");
	commit(f);
	assert_names(f, "c", "assets/|checkpoint.json|flat/|jax/|model/|none/");
	assert_names(f, "c/model",
		     "A.npy|A.txt|a/|a-b.npy|a-b.txt|a.npy|a.txt");
	assert_names(f, "c/model/a", "b/|b.npy|b.txt|npy/");
	assert_names(f, "c/jax/p", "k%2Enpy/|k.npy.npy|k.npy.txt");
	assert_names(f, "c/flat", "a.b%2Fc.npy|a.b%2Fc.txt");
	assert_names(f, "c/none", "");
	assert_names(f, "c/assets", "%2Ehidden|deep/|state.json");
	assert_names(f, "c/assets/deep/er", "x.npy");
	char *text = content_at(f, "c/assets/deep/er/x.npy", NULL);

	assert_string_equal(text, "not one");
	free(text);
	text = content_at(f, "c/assets/%2Ehidden", NULL);
	assert_string_equal(text, "h");
	free(text);
	struct ckpt_err err = { 0 };
	struct ckv_node *n;

	assert_code(ckv_resolve(f->tree, "c/@origin", &n, &err), CKPT_ENOENT);
	assert_code(ckv_resolve(f->tree, "c/%40origin", &n, &err),
		    CKPT_ENOENT);
	assert_code(ckv_resolve(f->tree, "c/assets/state", &n, &err),
		    CKPT_ENOENT);
	assert_code(ckv_resolve(f->tree, "c/assets/state.json.txt", &n, &err),
		    CKPT_ENOENT);
}

/* What no folder can hold and no save makes: the file is shown. */
static void a_file_hides_a_folder_of_its_name(void **state)
{
	static const struct mk_tensor files[] = {
		{ .item = "files", .name = "a", .media_type = "text/plain",
		  .ndim = 1, .dim = { 4 }, .seed = 1 },
		{ .item = "files", .name = "a/b", .media_type = "text/plain",
		  .ndim = 1, .dim = { 5 }, .seed = 2 },
		{ .item = "files", .name = "c/d", .media_type = "text/plain",
		  .ndim = 1, .dim = { 5 }, .seed = 3 },
	};
	struct fix *f = *state;
	struct mkstore mk = { .path = f->path, .store = f->store };
	struct ckpt_err err = { 0 };
	struct ckv_attr a;
	uint64_t len;
	size_t got;

	assert_ok(mk_save(&mk, "c", files, CKB_ARRAY_LEN(files), NULL, &err));
	free(mk.known);
	assert_names(f, "c/files", "a|c/");
	uint8_t *want = mk_bytes(&files[0], &len);
	char *text = content_at(f, "c/files/a", &got);

	assert_int_equal(got, len);
	assert_memory_equal(text, want, len);
	free(text);
	free(want);
	struct ckv_node *n = at(f, "c/files");

	assert_ok(ckv_attr(n, &a, &err));
	assert_int_equal(a.subfolders, 1);
	ckv_put(n);
}

/* ---- walking all of it ---- */

struct walk {
	uint64_t *inos;
	size_t ino_count, npy_count, cap;
};

static void walk(struct walk *w, struct ckv_node *dir)
{
	struct ckpt_err err = { 0 };
	struct ckv_list *l;
	struct ckv_attr a;
	uint32_t folders = 0;

	assert_ok(ckv_list_new(dir, &l, &err));
	for (size_t i = 0; i < ckv_list_count(l); i++) {
		const char *name = ckv_list_name(l, i);
		size_t len = strlen(name);
		struct ckv_node *n, *again;

		assert_true(len > 0 && len <= 255 && !strchr(name, '/'));
		assert_true(name[0] != '.');
		if (i > 0)
			assert_true(strcmp(ckv_list_name(l, i - 1), name) < 0);
		assert_ok(ckv_list_node(l, i, &n, &err));
		assert_ok(ckv_lookup(dir, name, &again, &err));
		assert_true(ckv_same(n, again));
		assert_false(ckv_same(n, dir));
		ckv_put(again);
		assert_ok(ckv_attr(n, &a, &err));
		assert_true(a.ino == ckv_list_ino(l, i));
		assert_true(a.is_folder == ckv_list_is_folder(l, i));
		assert_true(a.is_link == ckv_list_is_link(l, i));
		assert_true(a.ino > 1);
		if (w->ino_count == w->cap) {
			w->cap = w->cap ? 2 * w->cap : 1024;
			w->inos = realloc(w->inos, w->cap * 8);
		}
		w->inos[w->ino_count++] = a.ino;
		w->npy_count += a.kind == CKV_NPY;
		folders += a.is_folder;
		if (a.is_folder)
			walk(w, n);
		ckv_put(n);
	}
	assert_ok(ckv_attr(dir, &a, &err));
	assert_int_equal(a.subfolders, folders);
	ckv_list_free(l);
}

static int by_number(const void *a, const void *b)
{
	uint64_t x = *(const uint64_t *)a, y = *(const uint64_t *)b;

	return (x > y) - (x < y);
}

static void hostile_names_are_all_there(void **state)
{
	struct fix *f = *state;
	char file[700];
	size_t n, len;

	import(f, "safetensors/names/model.safetensors", "c");
	snprintf(file, sizeof(file), "%s/safetensors/names/expected.tsv",
		 fixtures_path());
	struct fixture_row *rows = fixtures_rows(file, &n);

	assert_int_equal(n, 73);
	for (size_t i = 0; i < n; i++) {
		CKB_BUF struct ckb_buf path = { 0 };
		uint8_t digest[CKPT_DIGEST_BYTES];
		char hex[65];
		bool cut;

		ckb_buf_puts(&path, "c/model/");
		ckv_tensor_path(&path, rows[i].name, rows[i].name_len, ".", 4,
				&cut);
		ckb_buf_puts(&path, ".npy");
		char *npy = content_at(f, (char *)path.data, &len);

		assert_true(len > rows[i].nbytes);
		ckc_sha256(npy + len - rows[i].nbytes, rows[i].nbytes, digest);
		ckb_hex(hex, digest, sizeof(digest));
		assert_string_equal(hex, rows[i].sha256);
		free(npy);
	}
	struct ckv_node *root = ckv_root(f->tree);
	struct walk w = { 0 };

	walk(&w, root);
	assert_int_equal(w.npy_count, n);
	qsort(w.inos, w.ino_count, 8, by_number);
	for (size_t i = 1; i < w.ino_count; i++)
		assert_true(w.inos[i] != w.inos[i - 1]);
	ckv_put(root);
	free(w.inos);
	fixtures_free(rows, n);
}

/* Over two trees, as over two mounts; and the root is 1. */
static void inode_numbers_are_stable(void **state)
{
	static const char *const paths[] = {
		"", "README.txt", "run", "run/7", "run/7/checkpoint.json",
		"run/7/model", "run/7/model/w", "run/7/model/w/b.npy",
		"run/7/model/w/b.txt",
	};
	struct fix *f = *state;
	struct ckpt_err err = { 0 };
	uint64_t first[CKB_ARRAY_LEN(paths)];
	struct ckv_attr a;

	save_one(f, "run/7", 1, 3, false);
	for (size_t i = 0; i < 2 * CKB_ARRAY_LEN(paths); i++) {
		size_t p = i % CKB_ARRAY_LEN(paths);

		if (p == 0 && i > 0) {
			ckv_tree_free(f->tree);
			assert_ok(ckv_tree_new(f->store, &f->tree, &err));
		}
		struct ckv_node *n = at(f, paths[p]);

		assert_ok(ckv_attr(n, &a, &err));
		if (i < CKB_ARRAY_LEN(paths))
			first[p] = a.ino;
		assert_true(first[p] == a.ino);
		assert_true(p == 0 ? a.ino == 1 : a.ino > 1);
		ckv_put(n);
	}
}

static void times_are_the_checkpoints(void **state)
{
	struct fix *f = *state;
	struct ckpt_err err = { 0 };
	char path[600];
	struct stat st;
	struct ckv_attr a;

	save_one(f, "run/7", 1, 3, false);
	struct ckv_node *n = at(f, "run/7/model/w/b.txt");
	struct ckv_node *c = at(f, "run/7");
	struct ckv_node *run = at(f, "run");
	struct ckv_inside in;

	assert_ok(ckv_inside_get(c, &in, &err));
	int64_t created = ckpt_checkpoint_info(in.checkpoint)->created_ns;

	ckv_inside_put(c, &in);

	assert_ok(ckv_attr(n, &a, &err));
	assert_true(a.time_ns == created && a.immutable);
	assert_ok(ckv_attr(c, &a, &err));
	assert_true(a.time_ns == created && a.immutable);
	snprintf(path, sizeof(path), "%s/checkpoints/run", f->path);
	assert_int_equal(stat(path, &st), 0);
	assert_ok(ckv_attr(run, &a, &err));
	assert_true(a.time_ns == ckb_time_ns(&st.st_mtim) && !a.immutable);
	ckv_put(n);
	ckv_put(c);
	ckv_put(run);
}

/* ---- replaced, removed, damaged ---- */

static void old_nodes_read_the_old_checkpoint(void **state)
{
	struct fix *f = *state;
	struct ckpt_err err = { 0 };

	save_one(f, "run/1", 0xaa, 300000, false);
	struct ckv_node *run = at(f, "run"), *unread, *again, *below;
	struct ckv_node *old = at(f, "run/1/model/w/b.npy");
	struct ckv_node *folder = at(f, "run/1/model");
	struct ckv_node *c = at(f, "run/1");
	size_t len;

	save_one(f, "run/2", 0xaa, 10, false);
	assert_ok(ckv_lookup(run, "2", &unread, &err));
	save_one(f, "run/1", 0xbb, 50, true);
	save_one(f, "run/2", 0xbb, 50, true);
	char *text = content(old, &len);

	assert_int_equal(len, 128 + 300000);
	assert_int_equal((uint8_t)text[len - 1], 0xaa);
	free(text);
	assert_ok(ckv_lookup(folder, "w", &below, &err));
	ckv_put(below);
	text = content_at(f, "run/1/model/w/b.npy", &len);
	assert_int_equal(len, 128 + 50);
	assert_int_equal((uint8_t)text[len - 1], 0xbb);
	free(text);
	assert_ok(ckv_lookup(run, "1", &again, &err));
	assert_false(ckv_same(again, c));
	/* nobody had looked into it: it is not the new one either (S3) */
	assert_code(ckv_lookup(unread, "model", &below, &err), CKPT_ESTALE);
	assert_says(err, "replaced");
	ckv_put(again);
	ckv_put(unread);
	ckv_put(run);
	ckv_put(old);
	ckv_put(folder);
	ckv_put(c);
}

static void removed_ones_are_not_found_but_read(void **state)
{
	struct fix *f = *state;
	struct ckpt_err err = { 0 };
	struct ckv_attr a;
	char path[600];
	size_t len;

	save_one(f, "run/1", 0xaa, 100, false);
	struct ckv_node *run = at(f, "run"), *n;
	struct ckv_node *old = at(f, "run/1/model/w/b.npy");
	struct ckv_node *link = at(f, "run/newest");

	ckv_put(link);
	assert_ok(ckv_lookup(run, "newest", &link, &err));
	snprintf(path, sizeof(path), "%s/checkpoints/run/1", f->path);
	assert_int_equal(unlink(path), 0);
	assert_code(ckv_lookup(run, "1", &n, &err), CKPT_ENOENT);
	assert_code(ckv_attr(link, &a, &err), CKPT_ENOENT);
	free(content(old, &len));
	assert_int_equal(len, 128 + 100);
	assert_names(f, "run", "");
	snprintf(path, sizeof(path), "%s/checkpoints/run", f->path);
	assert_int_equal(rmdir(path), 0);
	assert_code(ckv_lookup(run, "1", &n, &err), CKPT_ENOENT);
	assert_code(ckv_attr(run, &a, &err), CKPT_ESTALE);
	free(content(old, &len));
	assert_int_equal(len, 128 + 100);
	assert_names(f, "", "README.txt");
	ckv_put(run);
	ckv_put(old);
	ckv_put(link);
}

static void damaged_manifests_are_listed_and_refused(void **state)
{
	struct fix *f = *state;
	struct ckpt_err err = { 0 };
	struct ckv_list *l;
	struct ckv_attr a;
	char path[600];

	save_one(f, "run/1", 1, 3, false);
	save_one(f, "run/2", 1, 3, false);
	snprintf(path, sizeof(path), "%s/checkpoints/run/2", f->path);
	assert_int_equal(chmod(path, 0600), 0);
	mk_flip(path, 30, 0xff); /* of the first page */
	assert_names(f, "run", "1/|2/|latest@|newest@");
	assert_link(f, "run", "newest", "1");
	struct ckv_node *n = at(f, "run/2"), *below;

	assert_ok(ckv_attr(n, &a, &err));
	assert_true(a.is_folder && a.ino > 1);
	assert_code(ckv_lookup(n, "model", &below, &err), CKPT_ECORRUPT);
	assert_says(err, "run/2");
	assert_code(ckv_list_new(n, &l, &err), CKPT_ECORRUPT);
	assert_null(l);
	struct ckv_inside in;

	assert_code(ckv_inside_get(n, &in, &err), CKPT_ECORRUPT);
	assert_code(ckv_resolve(f->tree, "run/2/model", &below, &err),
		    CKPT_ECORRUPT);
	ckv_put(n);
}

/* ---- resolve ---- */

struct question {
	const char *path;
	int code; /* 0: found */
	const char *says[2];
};

static void resolve_says_what_is_there(void **state)
{
	static const struct question cases[] = {
		{ "", 0, { 0 } },
		{ "/", 0, { 0 } },
		{ "//run///4000/", 0, { 0 } },
		{ "run/latest/model/wte/weight.npy", 0, { 0 } },
		{ "run/newest/", 0, { 0 } },
		{ "rnu", CKPT_ENOENT, { "no 'rnu' in the store", "'run'" } },
		{ "run/400", CKPT_ENOENT, { "no '400' in 'run'", "'4000'" } },
		{ "run/4000/model/wte/wieght.npy", CKPT_ENOENT,
		  { "no 'wieght.npy' in 'run/4000/model/wte'",
		    "; there is 'weight.npy'" } },
		{ "run/4000/model/wte/weight", CKPT_ENOENT,
		  { "there is 'weight.npy', 'weight.txt'", "" } },
		{ "run/4000/modle/x", CKPT_ENOENT,
		  { "no 'modle' in 'run/4000'", "'model'" } },
		{ "run/4000/zzz", CKPT_ENOENT, { "no 'zzz' in 'run/4000'",
						 "" } },
		{ "run/4000/model/wte/weight.npy/", CKPT_ENOENT,
		  { "file", "" } },
		{ "run/4000/model/wte/weight.npy/x", CKPT_ENOENT,
		  { "no 'x' in 'run/4000/model/wte/weight.npy'", "file" } },
		{ "README.txt/", CKPT_ENOENT, { "file", "" } },
		{ "run/..", CKPT_EINVAL, { "'..'", "" } },
		{ "./run", CKPT_EINVAL, { "'.'", "" } },
		{ "run/none/latest", CKPT_ENOENT, { "'none'", "" } },
		{ "latest", CKPT_ENOENT, { "no 'latest'", "" } },
		{ "run/4000/@as=BF16", CKPT_ENOENT, { "'@as=BF16'", "" } },
	};
	struct fix *f = *state;
	static const uint8_t byte;

	begin(f, "run/4000", false);
	item(f, "model", CKPT_ITEM_TENSORS, ".");
	tensor(f, "wte.weight", CKPT_U8, (struct ckpt_shape){ .ndim = 0 },
	       &byte, 1);
	commit(f);
	for (size_t i = 0; i < CKB_ARRAY_LEN(cases); i++) {
		struct ckpt_err err = { 0 };
		struct ckv_node *n;
		int rc = ckv_resolve(f->tree, cases[i].path, &n, &err);

		if (rc != cases[i].code)
			fail_msg("'%s': %d: %s", cases[i].path, rc,
				 err.message);
		assert_true((rc == 0) == (n != NULL));
		for (size_t s = 0; rc < 0 && s < 2; s++)
			assert_says(err, cases[i].says[s]);
		if (strcmp(cases[i].path, "run/4000/zzz") == 0)
			assert_null(strstr(err.message, "there is"));
		ckv_put(n);
	}
}

/* No byte behind a name that is there is looked at: ASan sees it. */
static void resolve_bears_typos_of_any_length(void **state)
{
	static const char *const in[] = { "", "run/", "run/4000/" };
	struct fix *f = *state;
	char path[300], want[300];

	save_one(f, "run/4000", 1, 3, false);
	for (size_t i = 0; i < CKB_ARRAY_LEN(in); i++)
		for (int len = 1; len <= 255; len++) {
			struct ckpt_err err = { 0 };
			struct ckv_node *n;
			char *end = stpcpy(path, in[i]);

			memset(end, 'a', (size_t)len);
			end[len] = '\0';
			snprintf(want, sizeof(want), "no '%.60s", end);
			assert_code(ckv_resolve(f->tree, path, &n, &err),
				    CKPT_ENOENT);
			assert_says(err, want);
			assert_null(strstr(err.message, "there is"));
		}
}

/* ---- checkpoint.json ---- */

static void checkpoint_json_has_its_keys_in_order(void **state)
{
	static const char *const keys[] = {
		"\n  \"name\": \"run/7\",", "\n  \"uuid\": \"",
		"\n  \"generation\": 1,", "\n  \"step\": 7,",
		"\n  \"seq\": 1,", "\n  \"created\": \"2",
		"\n  \"parent\": null,", "\n  \"writer\": \"",
		"\n  \"metadata\": {\"k\": [1, 2]},",
		"\n  \"metrics\": null,", "\n  \"bytes\": 7,",
		"\n  \"items\": [",
		"{\"name\": \"model\", \"kind\": \"tensors\", \"separator\": "
		"\".\", \"tensors\": 2, \"bytes\": 4, \"metadata\": null},",
		"{\"name\": \"b c\", \"kind\": \"files\", \"separator\": \"/\","
		" \"files\": 1, \"bytes\": 3, \"metadata\": null}\n",
		"\n  \"long_names\": {\n    \"model/", "%x", "\": \"nnn",
	};
	struct fix *f = *state;
	struct ckpt_err err = { 0 };
	char name[301] = { 0 };

	memset(name, 'n', 300);
	begin(f, "run/7", false);
	item(f, "model", CKPT_ITEM_TENSORS, ".");
	tensor(f, name, CKPT_U8, (struct ckpt_shape){ .ndim = 0 }, "1", 1);
	tensor(f, "w", CKPT_U8, (struct ckpt_shape){ .ndim = 1,
						     .dim = { 3 } }, "123", 3);
	item(f, "b c", CKPT_ITEM_FILES, "/");
	file(f, "x", "abc");
	item(f, "@orig", CKPT_ITEM_ORIGIN, "/"); /* not shown, not counted */
	file(f, "h", "header");
	commit(f);
	char *text = content_at(f, "run/7/checkpoint.json", NULL);
	const char *from = text;

	assert_ok(ckf_json_object(text, "checkpoint.json", &err));
	for (size_t i = 0; i < CKB_ARRAY_LEN(keys); i++) {
		const char *next = strstr(from, keys[i]);

		if (!next)
			fail_msg("no '%s' after '%.40s' in:\n%s", keys[i],
				 from, text);
		from = next + 1;
	}
	assert_non_null(strstr(from, name));
	assert_int_equal(text[strlen(text) - 1], '\n');
	free(text);
	save_one(f, "none", 1, 1, false);
	text = content_at(f, "none/checkpoint.json", NULL);
	assert_non_null(strstr(text, "\n  \"step\": null,"));
	assert_non_null(strstr(text, "\n  \"long_names\": {}\n}\n"));
	free(text);
}

/* ---- many ---- */

static double seconds(void)
{
	struct timespec t;

	clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &t);
	return (double)t.tv_sec + (double)t.tv_nsec / 1e9;
}

/* 100,000 in one folder, 100,000 in many: the tree is small and quick. */
static void a_hundred_thousand_tensors_are_no_burden(void **state)
{
	size_t n = SLOW ? 10000 : 100000;
	struct mk_opts opts = { .reuse = true };
	struct mk_tensor *t = calloc(n, sizeof(*t));
	char (*names)[64] = calloc(n, sizeof(*names));
	struct ckpt_err err = { 0 };
	struct mkstore mk = { 0 };
	struct ckv_list *l;

	(void)state;
	for (size_t i = 0; i < n; i++) {
		size_t k = i * 7919 % n;

		snprintf(names[i], sizeof(names[i]), i % 2
			 ? "flat-%zu" : "model.layers.%zu.mlp.expert.weight",
			 k);
		t[i] = (struct mk_tensor){ .name = names[i], .ndim = 1,
					   .dim = { 4 } };
	}
	assert_ok(mkstore_new(&mk, 0, &err));
	assert_ok(mk_save(&mk, "c", t, n, &opts, &err));
	struct fix f = { .store = mk.store };

	assert_ok(ckv_tree_new(mk.store, &f.tree, &err));
	struct ckv_node *c = at(&f, "c"), *model;
	struct ckpt_checkpoint *k;
	double open = seconds();

	assert_ok(ckpt_checkpoint_open(mk.store, "c", &k, &err));
	open = seconds() - open;
	size_t memory = mallinfo2().uordblks;
	struct ckv_paths paths;
	double build = seconds();

	assert_ok(ckv_paths_init(&paths, k, &err));
	build = seconds() - build;
	memory = mallinfo2().uordblks - memory;
	ckv_paths_fini(&paths);
	ckpt_checkpoint_close(k);
	assert_ok(ckv_lookup(c, "model", &model, &err));
	double list = seconds();

	assert_ok(ckv_list_new(model, &l, &err));
	list = seconds() - list;
	assert_int_equal(ckv_list_count(l), n / 2 * 2 + 1);
	double look = seconds();

	look_at_all(l);
	look = seconds() - look;
	printf("%zu tensors: open %.3f s, tree %.3f s and %.1f MB, list %.3f "
	       "s, lookup and attributes of all %.3f s\n", n, open, build,
	       (double)memory / 1e6, list, look);
	assert_true(SLOW || memory < 60000000);
	/* the square of n would take longer */
	assert_true(build < 10 && list < 10 && look < 10);
	ckv_list_free(l);
	ckv_put(model);
	ckv_put(c);
	ckv_tree_free(f.tree);
	mkstore_free(&mk);
	free(t);
	free(names);
}

/* Threads record; the main thread asserts. */
struct reader {
	struct fix *f;
	unsigned seed;
	int bad;
};

static void *read_some(void *arg)
{
	struct reader *r = arg;
	struct ckpt_err err = { 0 };

	for (int i = 0; i < 60 && !r->bad; i++) {
		size_t off = (size_t)rand_r(&r->seed) % 300000, len, want;
		uint8_t bytes[5000];
		struct ckv_node *n = NULL;
		const char *path = i % 3 == 0 ? "run/latest/checkpoint.json"
				   : i % 3 == 1 ? "run/1/model/w/b.npy"
						: "run/1/model/w/b.txt";

		if (ckv_resolve(r->f->tree, path, &n, &err) != 0) {
			r->bad = __LINE__;
			break;
		}
		if (ckv_read(n, off, bytes, sizeof(bytes), &len, &err) != 0)
			r->bad = __LINE__;
		want = off + 5000 <= 300128 ? 5000 : 300128 - off;
		if (i % 3 == 1 && len != want)
			r->bad = __LINE__;
		for (size_t b = off < 128 ? 128 : 0; i % 3 == 1 && b < len;
		     b++)
			if (bytes[b] != 0xaa)
				r->bad = __LINE__;
		ckv_put(n);
	}
	return NULL;
}

static void many_threads_share_a_tree(void **state)
{
	struct fix *f = *state;
	struct reader r[6];
	pthread_t t[6];

	save_one(f, "run/1", 0xaa, 300000, false);
	for (unsigned i = 0; i < 6; i++) {
		r[i] = (struct reader){ .f = f, .seed = i };
		assert_int_equal(pthread_create(&t[i], NULL, read_some, &r[i]),
				 0);
	}
	for (unsigned i = 0; i < 6; i++)
		pthread_join(t[i], NULL);
	for (unsigned i = 0; i < 6; i++)
		assert_int_equal(r[i].bad, 0);
}

#define WITH(test) \
	cmocka_unit_test_setup_teardown(test, fix_setup, fix_teardown)

int main(void)
{
	const struct CMUnitTest tests[] = {
		WITH(root_and_runs_list_what_is_there),
		WITH(links_follow_step_and_order_of_commits),
		WITH(items_become_folders),
		WITH(a_file_hides_a_folder_of_its_name),
		WITH(hostile_names_are_all_there),
		WITH(inode_numbers_are_stable),
		WITH(times_are_the_checkpoints),
		WITH(old_nodes_read_the_old_checkpoint),
		WITH(removed_ones_are_not_found_but_read),
		WITH(damaged_manifests_are_listed_and_refused),
		WITH(resolve_says_what_is_there),
		WITH(resolve_bears_typos_of_any_length),
		WITH(checkpoint_json_has_its_keys_in_order),
		WITH(many_threads_share_a_tree),
		cmocka_unit_test(a_hundred_thousand_tensors_are_no_burden),
	};

	fixtures_need();
	return cmocka_run_group_tests(tests, NULL, NULL);
}
