/* SPDX-License-Identifier: Apache-2.0 */
/*
 * test_ckpt.c - nodes keep nothing open: images come and go within bounds, and
 * what comes back is the same checkpoint or CKPT_ESTALE.
 */
#include "tree_fixture.h"

#include <dirent.h>
#include <fcntl.h>
#include <malloc.h>
#include <pthread.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include "fault_sys.h"
#include "mkstore.h"
#include "verbs/store.h"

#define MANY 9

static const char *name_of(int i)
{
	static char name[40];

	snprintf(name, sizeof(name), "run/%d", i);
	return name;
}

static struct ckv_node *tensor_at(struct fix *f, int i)
{
	char path[60];

	snprintf(path, sizeof(path), "%s/model/w/b.npy", name_of(i));
	return at(f, path);
}

/* Checkpoint @i has 100 bytes of @i. */
static void save_many(struct fix *f)
{
	for (int i = 0; i < MANY; i++)
		save_one(f, name_of(i), (uint8_t)i, 100, false);
}

static void assert_reads(struct ckv_node *n, uint8_t value)
{
	size_t len;
	char *text = content(n, &len);

	assert_int_equal(len, 128 + 100);
	for (size_t i = 128; i < len; i++)
		assert_int_equal((uint8_t)text[i], value);
	free(text);
}

/* Look into others until nothing of before is open. */
static void open_others(struct fix *f, int first)
{
	for (int i = first; i < MANY; i++)
		ckv_put(tensor_at(f, i));
}

static size_t descriptors(void)
{
	DIR *d = opendir("/proc/self/fd");
	size_t n = 0;

	assert_non_null(d);
	while (readdir(d))
		n++;
	closedir(d);
	return n;
}

static void few_images_are_kept(void **state)
{
	struct fix *f = *state;

	f->tree->image_max = 4;
	save_many(f);
	assert_names(f, "run", "0/|1/|2/|3/|4/|5/|6/|7/|8/|latest@|newest@");
	assert_null(f->tree->images); /* listing opens none */
	for (int i = 0; i < MANY; i++)
		ckv_put(tensor_at(f, i));
	assert_int_equal(f->tree->image_count, 4);
	assert_int_equal(f->tree->ckpts.count, 4);
	for (struct ckv_image *m = f->tree->images; m; m = m->next)
		assert_true(strcmp(m->of->name, "run/5") >= 0);
}

static void nodes_keep_nothing_open(void **state)
{
	struct fix *f = *state;
	struct ckpt_err err = { 0 };
	struct ckv_node *n[MANY], *c[MANY], *again;

	f->tree->image_max = 2;
	save_many(f);
	for (int i = 0; i < MANY; i++) {
		n[i] = tensor_at(f, i);
		c[i] = at(f, name_of(i));
	}
	size_t before = descriptors();

	for (int round = 0; round < 3; round++)
		for (int i = 0; i < MANY; i++) {
			assert_reads(n[i], (uint8_t)i);
			assert_names(f, name_of(i), "checkpoint.json|model/");
			assert_ok(ckv_lookup(c[i], "model", &again, &err));
			ckv_put(again);
			assert_true(f->tree->image_count <= 2);
		}
	/* the packs of the store stay open, one for each */
	assert_true(descriptors() <= before + MANY + 2);
	again = tensor_at(f, 3);
	assert_true(ckv_same(again, n[3]));
	ckv_put(again);
	for (int i = 0; i < MANY; i++) {
		ckv_put(n[i]);
		ckv_put(c[i]);
	}
	assert_int_equal(f->tree->ckpts.count, f->tree->image_count);
}

/* ---- replaced, removed ---- */

static void evicted_and_replaced_is_stale(void **state)
{
	struct fix *f = *state;
	struct ckpt_err err = { 0 };
	struct ckv_inside in;
	struct ckv_list *l;
	struct ckv_attr a;
	uint8_t bytes[8];
	char path[600];
	size_t len;

	f->tree->image_max = 2;
	save_many(f);
	struct ckv_node *old = tensor_at(f, 0), *gone = tensor_at(f, 1);
	struct ckv_node *folder = at(f, "run/0/model"), *below;
	struct ckv_node *top = at(f, "run/1");

	open_others(f, 2);
	save_one(f, "run/0", 0xbb, 100, true);
	snprintf(path, sizeof(path), "%s/checkpoints/run/1", f->path);
	assert_int_equal(unlink(path), 0);
	assert_code(ckv_read(old, 0, bytes, 8, &len, &err), CKPT_ESTALE);
	assert_says(err, "'run/0' was replaced");
	assert_int_equal(len, 0);
	assert_code(ckv_read(gone, 0, bytes, 8, &len, &err), CKPT_ESTALE);
	assert_says(err, "'run/1' was removed");
	/* not "no such name in it", which a mount remembers for ever */
	assert_code(ckv_lookup(folder, "w", &below, &err), CKPT_ESTALE);
	assert_code(ckv_lookup(top, "model", &below, &err), CKPT_ESTALE);
	assert_code(ckv_list_new(folder, &l, &err), CKPT_ESTALE);
	assert_code(ckv_hold(old, &err), CKPT_ESTALE);
	assert_code(ckv_inside_get(gone, &in, &err), CKPT_ESTALE);
	/* what it was is still known */
	assert_ok(ckv_attr(old, &a, &err));
	assert_int_equal(a.size, 128 + 100);
	assert_ok(ckv_attr(folder, &a, &err));
	assert_int_equal(a.subfolders, 1);
	struct ckv_node *new = tensor_at(f, 0);

	assert_false(ckv_same(old, new));
	assert_reads(new, 0xbb);
	ckv_put(new);
	ckv_put(old);
	ckv_put(gone);
	ckv_put(folder);
	ckv_put(top);
}

/* Its file shows it: no manifest is read to say so, however often it is asked
 * for. And who tidies up opens nothing, and keeps nothing longer. */
static void replaced_is_stale_without_a_read(void **state)
{
	struct fix *f = *state, g = *f;
	struct ckpt_err err = { 0 };
	struct fault_sys sys;
	struct ckv_inside in;
	struct ckv_list *l;

	save_many(f);
	fault_init(&sys);
	assert_ok(cks_store_open_sys(&sys.sys, f->path, NULL, &g.store, &err));
	assert_ok(ckv_tree_new(g.store, &g.tree, &err));
	g.tree->image_max = 2;
	struct ckv_node *c0 = at(&g, "run/0"), *c1 = at(&g, "run/1");

	save_one(f, "run/0", 0xbb, 100, true);
	int opens = atomic_load(&sys.made[FAULT_OPEN]);

	for (int i = 0; i < 3; i++) {
		assert_code(ckv_inside_get(c0, &in, &err), CKPT_ESTALE);
		assert_says(err, "'run/0' was replaced");
		assert_code(ckv_list_open(c1, &l, &err), CKPT_ESTALE);
		assert_null(l);
	}
	assert_int_equal(atomic_load(&sys.made[FAULT_OPEN]), opens);
	ckv_put(tensor_at(&g, 1));
	ckv_put(tensor_at(&g, 2));
	assert_ok(ckv_list_open(c1, &l, &err));
	assert_int_equal(ckv_list_count(l), 2);
	assert_string_equal(ckv_list_name(l, 1), "model");
	ckv_list_free(l);
	ckv_put(tensor_at(&g, 3)); /* 1 was used longest ago all the same */
	assert_code(ckv_list_open(c1, &l, &err), CKPT_ESTALE);
	ckv_put(c0);
	ckv_put(c1);
	ckv_tree_free(g.tree);
	ckpt_store_close(g.store);
}

static void remove_many(struct fix *f, int i)
{
	char path[600];

	snprintf(path, sizeof(path), "%s/checkpoints/%s", f->path, name_of(i));
	assert_int_equal(unlink(path), 0);
}

/* Descriptors of files that have no name any more. */
static int deleted_files(void)
{
	DIR *d = opendir("/proc/self/fd");
	struct dirent *e;
	char to[600];
	int n = 0;

	assert_non_null(d);
	while ((e = readdir(d))) {
		ssize_t len = readlinkat(dirfd(d), e->d_name, to,
					 sizeof(to) - 1);

		to[len > 0 ? len : 0] = '\0';
		n += strstr(to, "/checkpoints/") && strstr(to, " (deleted)");
	}
	closedir(d);
	return n;
}

/* What nobody can find again keeps neither memory nor descriptors. */
static void gone_images_go_with_their_last_node(void **state)
{
	struct fix *f = *state;
	struct ckv_node *n[4], *also;

	save_many(f);
	for (int i = 0; i < 4; i++)
		n[i] = tensor_at(f, i);
	also = at(f, "run/0");
	for (int i = 0; i < 2; i++)
		remove_many(f, i);
	save_one(f, "run/2", 0xbb, 100, true);
	assert_int_equal(f->tree->image_count, 4);
	assert_int_equal(deleted_files(), 3);
	for (int i = 0; i < 4; i++)
		ckv_put(n[i]);
	assert_int_equal(f->tree->image_count, 2); /* 0 has a node, 3 lives */
	ckv_put(also);
	assert_int_equal(f->tree->image_count, 1);
	assert_int_equal(f->tree->ckpts.count, 1);
	assert_int_equal(deleted_files(), 0);
	/* removed after it was last looked at */
	ckv_put(tensor_at(f, 4));
	remove_many(f, 3);
	assert_int_equal(deleted_files(), 1);
	ckv_tidy(f->tree);
	assert_int_equal(f->tree->image_count, 1);
	assert_string_equal(f->tree->images->of->name, "run/4");
	assert_int_equal(deleted_files(), 0);
}

/* The same inode, size and time, and another uuid: nobody may take it for the
 * same. */
static void another_uuid_is_another_checkpoint(void **state)
{
	struct fix *f = *state;
	struct ckpt_err err = { 0 };
	char from[600], to[600];
	struct stat st, other;
	uint8_t page[4096];
	size_t len;

	f->tree->image_max = 1;
	save_many(f);
	snprintf(from, sizeof(from), "%s/checkpoints/run/7", f->path);
	snprintf(to, sizeof(to), "%s/checkpoints/run/0", f->path);
	assert_int_equal(stat(to, &st), 0);
	assert_int_equal(stat(from, &other), 0);
	assert_true(st.st_size == other.st_size);
	struct ckv_node *old = tensor_at(f, 0);

	ckv_put(tensor_at(f, 1));
	assert_int_equal(chmod(to, 0600), 0);
	int in = open(from, O_RDONLY), out = open(to, O_WRONLY);
	struct timespec times[2] = { st.st_atim, st.st_mtim };

	for (off_t at = 0; at < st.st_size; at += 4096) {
		assert_int_equal(pread(in, page, 4096, at), 4096);
		assert_int_equal(pwrite(out, page, 4096, at), 4096);
	}
	assert_int_equal(futimens(out, times), 0);
	close(in);
	close(out);
	assert_code(ckv_read(old, 0, page, 8, &len, &err), CKPT_ESTALE);
	assert_says(err, "replaced");
	ckv_put(old);
}

static void a_held_file_reads_on(void **state)
{
	struct fix *f = *state;
	struct ckpt_err err = { 0 };
	char path[600];
	uint8_t byte;
	size_t len;

	f->tree->image_max = 3;
	save_many(f);
	struct ckv_node *a = tensor_at(f, 0), *b = tensor_at(f, 1);

	assert_ok(ckv_hold(a, &err));
	assert_ok(ckv_hold(a, &err)); /* two opens of one file */
	assert_ok(ckv_hold(b, &err));
	save_one(f, "run/0", 0xbb, 50, true);
	snprintf(path, sizeof(path), "%s/checkpoints/run/1", f->path);
	assert_int_equal(unlink(path), 0);
	for (int round = 0; round < 2; round++) {
		open_others(f, 2);
		assert_true(f->tree->image_count <= 3);
		assert_reads(a, 0);
		assert_reads(b, 1);
		if (round == 0)
			ckv_release(a);
	}
	ckv_release(a);
	ckv_release(b);
	open_others(f, 2);
	assert_code(ckv_read(a, 0, &byte, 1, &len, &err), CKPT_ESTALE);
	assert_code(ckv_read(b, 0, &byte, 1, &len, &err), CKPT_ESTALE);
	ckv_put(a);
	ckv_put(b);
}

/* More files are open than checkpoints may be. */
static void held_files_are_bounded_too(void **state)
{
	struct fix *f = *state;
	struct ckpt_err err = { 0 };
	struct ckv_node *n[MANY];

	f->tree->image_max = 2;
	save_many(f);
	for (int i = 0; i < MANY; i++) {
		n[i] = tensor_at(f, i);
		assert_ok(ckv_hold(n[i], &err));
	}
	for (int i = 0; i < MANY; i++) {
		assert_reads(n[i], (uint8_t)i);
		assert_true(f->tree->image_count <= 2);
	}
	for (int i = 0; i < MANY; i++) {
		ckv_release(n[i]);
		ckv_put(n[i]);
	}
}

/* ---- descriptors and memory ---- */

/* None is left: idle images give theirs, for images and for facts. */
static void idle_images_give_their_descriptors(void **state)
{
	struct fix *f = *state;
	struct ckpt_err err = { 0 };
	struct ckv_node *n = NULL;
	struct rlimit was, low;
	struct ckv_inside in;

	save_many(f);
	for (int i = 0; i < 4; i++)
		ckv_put(tensor_at(f, i));
	assert_int_equal(f->tree->image_count, 4);
	assert_int_equal(getrlimit(RLIMIT_NOFILE, &was), 0);
	int next = dup(0);

	assert_true(next > 0);
	close(next);
	low = (struct rlimit){ .rlim_cur = (rlim_t)next,
			       .rlim_max = was.rlim_max };
	assert_int_equal(setrlimit(RLIMIT_NOFILE, &low), 0);
	/* a folder cannot be listed now, but what it held can be looked up */
	struct ckv_node *run = ckv_root(f->tree), *up = run;
	int rc = ckv_lookup(up, "run", &run, &err);

	ckv_put(up);
	if (rc == 0)
		rc = ckv_lookup(run, "8", &n, &err);
	if (rc == 0)
		rc = ckv_inside_get(n, &in, &err);
	setrlimit(RLIMIT_NOFILE, &was);
	assert_ok(rc);
	assert_string_equal(ckpt_checkpoint_info(in.checkpoint)->name,
			    "run/8");
	ckv_inside_put(n, &in);
	ckv_put(run);
	ckv_put(n);
}

/* By what malloc says, the estimate is near; over the bound one stays. */
static void memory_is_estimated_and_bounded(void **state)
{
	enum { N = 5000 };
	static struct mk_tensor t[N];
	static char names[N][40];
	struct mk_opts opts = { .reuse = true };
	struct ckpt_err err = { 0 };
	struct mkstore mk = { 0 };
	struct ckv_inside in;

	(void)state;
	for (int i = 0; i < N; i++) {
		snprintf(names[i], sizeof(names[i]), "layers.%d.mlp.weight",
			 i);
		t[i] = (struct mk_tensor){ .name = names[i], .ndim = 1,
					   .dim = { 4 } };
	}
	assert_ok(mkstore_new(&mk, 0, &err));
	assert_ok(mk_save(&mk, "a", t, N, &opts, &err));
	assert_ok(mk_save(&mk, "b", t, N, &opts, &err));
	struct fix f = { .store = mk.store };

	assert_ok(ckv_tree_new(mk.store, &f.tree, &err));
	struct ckv_node *a = at(&f, "a"), *b = at(&f, "b");
	size_t memory = mallinfo2().uordblks;

	assert_ok(ckv_inside_get(a, &in, &err));
	memory = mallinfo2().uordblks - memory;
	ckv_inside_put(a, &in);
	size_t estimate = f.tree->image_bytes;

	print_message("%d tensors: %zu bytes, estimated %zu\n", N, memory,
		      estimate);
	/* sanitizers have their own malloc, and say 0 */
	assert_true(memory == 0 || (estimate > memory / 2 &&
				    estimate < memory * 2));
	f.tree->image_bytes_max = estimate * 3 / 2;
	assert_ok(ckv_inside_get(b, &in, &err));
	ckv_inside_put(b, &in);
	assert_int_equal(f.tree->image_count, 1);
	assert_string_equal(f.tree->images->of->name, "b");
	f.tree->image_bytes_max = 1;
	free(content_at(&f, "b/model/layers/0/mlp/weight.npy", NULL));
	assert_int_equal(f.tree->image_count, 1);
	/* a chunk list counts once, checkpoint.json too */
	size_t before = f.tree->image_bytes;

	free(content_at(&f, "b/model/layers/1/mlp/weight.npy", NULL));
	size_t once = f.tree->image_bytes;

	free(content_at(&f, "b/model/layers/1/mlp/weight.npy", NULL));
	assert_true(once > before && f.tree->image_bytes == once);
	free(content_at(&f, "b/checkpoint.json", NULL));
	assert_true(f.tree->image_bytes > once);
	ckv_put(a);
	ckv_put(b);
	ckv_tree_free(f.tree);
	mkstore_free(&mk);
}

/* ---- threads ---- */

struct reader {
	struct fix *f;
	struct ckv_node **n;
	unsigned seed;
	int bad;
};

static void *read_some(void *arg)
{
	struct reader *r = arg;
	struct ckpt_err err = { 0 };

	for (int i = 0; i < 200 && !r->bad; i++) {
		int k = rand_r(&r->seed) % MANY;
		bool hold = rand_r(&r->seed) % 2;
		uint8_t bytes[300];
		size_t len = 0;

		if (hold && ckv_hold(r->n[k], &err) != 0)
			r->bad = __LINE__;
		if (ckv_read(r->n[k], 0, bytes, sizeof(bytes), &len, &err) !=
			    0 || len != 228 || bytes[200] != k)
			r->bad = __LINE__;
		if (hold)
			ckv_release(r->n[k]);
	}
	return NULL;
}

static void threads_share_few_images(void **state)
{
	struct fix *f = *state;
	struct ckv_node *n[MANY];
	struct reader r[6];
	pthread_t t[6];

	f->tree->image_max = 2;
	save_many(f);
	for (int i = 0; i < MANY; i++)
		n[i] = tensor_at(f, i);
	for (unsigned i = 0; i < 6; i++) {
		r[i] = (struct reader){ .f = f, .n = n, .seed = i };
		assert_int_equal(pthread_create(&t[i], NULL, read_some, &r[i]),
				 0);
	}
	for (unsigned i = 0; i < 6; i++)
		pthread_join(t[i], NULL);
	for (unsigned i = 0; i < 6; i++)
		assert_int_equal(r[i].bad, 0);
	assert_true(f->tree->image_count <= 2);
	for (int i = 0; i < MANY; i++)
		ckv_put(n[i]);
}

#define WITH(test) \
	cmocka_unit_test_setup_teardown(test, fix_setup, fix_teardown)

int main(void)
{
	const struct CMUnitTest tests[] = {
		WITH(few_images_are_kept),
		WITH(nodes_keep_nothing_open),
		WITH(evicted_and_replaced_is_stale),
		WITH(replaced_is_stale_without_a_read),
		WITH(gone_images_go_with_their_last_node),
		WITH(another_uuid_is_another_checkpoint),
		WITH(a_held_file_reads_on),
		WITH(held_files_are_bounded_too),
		WITH(idle_images_give_their_descriptors),
		WITH(threads_share_few_images),
		cmocka_unit_test(memory_is_estimated_and_bounded),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
