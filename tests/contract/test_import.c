/* SPDX-License-Identifier: Apache-2.0 */
/*
 * test_import.c - import of safetensors files, against what the reference
 * library wrote and read (fixtures/safetensors), and of what is no such file.
 */
#include "import_rows.h"

#include <fcntl.h>
#include <pthread.h>
#include <time.h>

#include "verbs/store.h"

/* Refused though the library takes them; the reasons are in
 * tests/unit/foreign/test_st_verdicts.c. */
static const char *const stricter[] = {
	"key_duplicate_same.safetensors",
	"key_duplicate_covering.safetensors",
	"metadata_key_twice.safetensors",
	"metadata_null.safetensors",
	"info_is_array.safetensors",
	"shape_1000_dims.safetensors",
};

/* ---- good files ---- */

/* The header's bytes under the file's own name, in an item not shown. */
static void check_origin(struct ckpt_checkpoint *c, const char *path)
{
	const struct ckpt_item_info *item = ckpt_item_find(c, "@orig");
	const struct ckpt_tensor_info *t;
	size_t len;
	uint8_t *file = fix_slurp(path, &len), *data;

	assert_non_null(item);
	assert_int_equal(item->kind, CKPT_ITEM_ORIGIN);
	assert_int_equal(item->count, 1);
	t = ckpt_tensor_at(c, item->first);
	assert_string_equal(t->name, strrchr(path, '/') + 1);
	assert_string_equal(t->media_type, "application/x-safetensors-header");
	assert_int_equal(t->bytes, 8 + ckb_get_u64(file));
	data = fix_read(c, t);
	assert_memory_equal(data, file, t->bytes);
	free(data);
	free(file);
}

static void import_good(struct fix *f, const char *path, const char *name,
			struct rows *rows)
{
	struct ckpt_import_result result = { 0 };
	struct ckpt_checkpoint *c;
	const struct ckpt_item_info *item;
	struct ckpt_err err = { 0 };

	if (ckpt_import(f->writer, path, name, NULL, &result,
				    &err) < 0)
		fail_msg("%s: %s", path, err.message);
	assert_ok(ckpt_checkpoint_open(f->store, name, &c, &err));
	item = ckpt_item_find(c, "model");
	assert_non_null(item);
	assert_int_equal(item->kind, CKPT_ITEM_TENSORS);
	assert_string_equal(item->separator, ".");
	assert_int_equal(item->count, result.tensor_count);
	for (size_t i = 0; i < item->count; i++) {
		const struct ckpt_tensor_info *t =
			ckpt_tensor_at(c, item->first + i);

		assert_ptr_equal(ckpt_tensor_find(c, item, t->name,
						  t->name_len), t);
		if (t->alias_of == SIZE_MAX)
			check_tensor(c, t, find_row(rows, t));
	}
	check_origin(c, path);
	ckpt_checkpoint_close(c);
}

/* Every safetensors file in @folder, each as a checkpoint of its own. */
static size_t import_folder(struct fix *f, const char *folder,
			    const char *run, struct rows *rows)
{
	DIR *d = opendir(folder);
	size_t count = 0;

	if (!d)
		return 0;
	for (struct dirent *e; (e = readdir(d));) {
		const char *dot = strrchr(e->d_name, '.');
		char path[4096], name[512];

		if (!dot || strcmp(dot, ".safetensors") != 0)
			continue;
		snprintf(path, sizeof(path), "%s/%s", folder, e->d_name);
		snprintf(name, sizeof(name), "%s/%zu", run, count++);
		import_good(f, path, name, rows);
	}
	closedir(d);
	return count;
}

static void every_good_file_reads_back(void **state)
{
	static const char *const sets[] = {
		"dtypes", "names", "torch_save_file", "torch_save_model_tied",
		"hf_gpt2_bf16", "hf_gpt2_f32", "hf_llama_f32",
		"hf_llama_tied_bf16",
	};

	if (fix_lacks_fixtures())
		return;
	for (size_t i = 0; i < CKB_ARRAY_LEN(sets); i++) {
		char path[4096];
		struct rows rows;
		size_t files;

		snprintf(path, sizeof(path), "%s/safetensors/%s/expected.tsv",
			 fixtures_path(), sets[i]);
		rows = load_rows(path);
		*strrchr(path, '/') = '\0';
		files = import_folder(*state, path, sets[i], &rows);
		strcat(path, "/checkpoint");
		files += import_folder(*state, path, sets[i], &rows);
		assert_true(files > 0);
		for (size_t r = 0; r < rows.count; r++)
			if (!rows.row[r].seen)
				fail_msg("%s: '%s' is missing", sets[i],
					 rows.row[r].name);
		free_rows(&rows);
	}
	assert_int_equal(fix_count(*state, "store/staging"), 0);
}

/* ---- bad files ---- */

static bool is_stricter(const char *file)
{
	for (size_t i = 0; i < CKB_ARRAY_LEN(stricter); i++)
		if (strcmp(stricter[i], file) == 0)
			return true;
	return false;
}

static void check_bad(struct fix *f, const char *file, bool accepts)
{
	char path[4096], name[1024];
	struct ckpt_err err = { 0 };
	struct ckpt_checkpoint *c;
	int rc;

	snprintf(path, sizeof(path), "%s/safetensors/bad/%s", fixtures_path(),
		 file);
	snprintf(name, sizeof(name), "bad/%s", file);
	rc = ckpt_import(f->writer, path, name, NULL, NULL, &err);
	assert_int_equal(fix_count(f, "store/staging"), 0);
	if (accepts && !is_stricter(file)) {
		assert_ok(rc);
		return;
	}
	if (rc != CKPT_EFORMAT && rc != CKPT_ELIMIT)
		fail_msg("%s gave %d '%s'", file, rc, err.message);
	assert_non_null(strstr(err.message, file)); /* which file it was */
	assert_null(strchr(err.message, '\n'));
	assert_int_equal(ckpt_checkpoint_open(f->store, name, &c, NULL),
			 CKPT_ENOENT);
}

static void every_bad_file_leaves_nothing(void **state)
{
	char path[4096], line[512], *tab;
	size_t count = 0;
	FILE *f;

	if (fix_lacks_fixtures())
		return;
	snprintf(path, sizeof(path), "%s/safetensors/bad/verdicts.tsv",
		 fixtures_path());
	f = fopen(path, "r");
	assert_non_null(f);
	for (; fgets(line, sizeof(line), f); count++) {
		tab = strchr(line, '\t');
		assert_non_null(tab);
		*tab = '\0';
		check_bad(*state, line, strncmp(tab + 1, "accepts", 7) == 0);
	}
	fclose(f);
	assert_true(count >= 114);
}

/* ---- what is kept ---- */

#define TIED \
	"{\"__metadata__\":{\"z\":\"1\",\"format\":\"w.kept\"," \
	"\"w.tied\":\"w.kept\",\"nul\":\"a\\u0000b\\\"\",\"\":\"empty\"," \
	"\"w.kept\":\"e\",\"lost\":\"w.gone\"}," \
	"\"e\":{\"dtype\":\"F32\",\"shape\":[0,3],\"data_offsets\":[8,8]}," \
	"\"w.kept\":{\"dtype\":\"BF16\",\"shape\":[2,2]," \
	"\"data_offsets\":[0,8]}}"

static void metadata_and_tied_names_are_kept(void **state)
{
	static const uint8_t bytes[8] = { 1, 2, 3, 4, 5, 6, 7, 8 };
	struct fix *f = *state;
	const char *path = fix_path(f, "tied.safetensors");
	const struct ckpt_import_opts opts = {
		.size = sizeof(opts), .item = "weights",
		.metadata = "{\"mine\": [1]}", .has_step = true, .step = 7,
	};
	struct ckpt_import_result result = { 0 };
	struct ckpt_checkpoint *c;
	const struct ckpt_item_info *item;
	const struct ckpt_tensor_info *kept, *tied;
	struct ckpt_err err = { 0 };
	uint8_t *data;

	fix_model(path, TIED, bytes, sizeof(bytes));
	assert_ok(ckpt_import(f->writer, path, "run/x", &opts,
					  &result, &err));
	assert_int_equal(result.tensor_count, 3);
	assert_int_equal(result.alias_count, 1);
	assert_ok(ckpt_checkpoint_open(f->store, "run/x", &c, &err));
	assert_string_equal(ckpt_checkpoint_info(c)->metadata,
			    "{\"mine\": [1]}");
	assert_int_equal(ckpt_checkpoint_info(c)->step, 7);
	item = ckpt_item_find(c, "weights");
	assert_non_null(item);
	assert_string_equal(item->metadata,
			    "{\"z\": \"1\", \"format\": \"w.kept\", "
			    "\"w.tied\": \"w.kept\", \"nul\": "
			    "\"a\\u0000b\\\"\", \"\": \"empty\", "
			    "\"w.kept\": \"e\", \"lost\": \"w.gone\"}");
	assert_int_equal(item->count, 3);
	kept = ckpt_tensor_find(c, item, "w.kept", 6);
	tied = ckpt_tensor_find(c, item, "w.tied", 6);
	assert_non_null(tied);
	assert_int_equal(tied->alias_of, kept->index);
	assert_int_equal(tied->dtype, CKPT_BF16);
	data = fix_read(c, tied);
	assert_memory_equal(data, bytes, sizeof(bytes));
	free(data);
	check_origin(c, path);
	ckpt_checkpoint_close(c);
}

static void a_file_without_metadata_has_none(void **state)
{
	struct fix *f = *state;
	const char *path = fix_path(f, "plain.safetensors");
	struct ckpt_checkpoint *c;
	struct ckpt_err err = { 0 };

	fix_model(path, "{}", "", 0);
	assert_ok(ckpt_import(f->writer, path, "plain", NULL, NULL,
					  &err));
	assert_ok(ckpt_checkpoint_open(f->store, "plain", &c, &err));
	assert_null(ckpt_item_find(c, "model")->metadata);
	ckpt_checkpoint_close(c);
	fix_model(path, "{\"__metadata__\":{}}", "", 0);
	assert_ok(ckpt_import(f->writer, path, "empty", NULL, NULL,
					  &err));
	assert_ok(ckpt_checkpoint_open(f->store, "empty", &c, &err));
	assert_string_equal(ckpt_item_find(c, "model")->metadata, "{}");
	ckpt_checkpoint_close(c);
}

static void odd_file_names_become_model_safetensors(void **state)
{
	static const char *const names[] = { "a\xff", ".hidden", "@x", "a\n" };
	struct fix *f = *state;
	struct ckpt_err err = { 0 };

	for (size_t i = 0; i < CKB_ARRAY_LEN(names); i++) {
		const char *path = fix_path(f, names[i]);
		struct ckpt_checkpoint *c;
		char name[16];

		snprintf(name, sizeof(name), "odd/%zu", i);
		fix_model(path, "{}", "", 0);
		assert_ok(ckpt_import(f->writer, path, name, NULL,
						  NULL, &err));
		assert_ok(ckpt_checkpoint_open(f->store, name, &c, &err));
		assert_string_equal(
			ckpt_tensor_at(c, ckpt_item_find(c, "@orig")->first)
				->name, "model.safetensors");
		ckpt_checkpoint_close(c);
	}
}

static void twice_imported_stores_no_new_chunk(void **state)
{
	struct fix *f = *state;
	const char *path = fix_path(f, "twice.safetensors");
	struct ckpt_import_result first = { 0 }, second = { 0 };
	size_t len = 3 << 20;
	uint8_t *data = malloc(len);
	struct ckpt_err err = { 0 };

	assert_non_null(data);
	for (size_t i = 0; i < len; i++)
		data[i] = (uint8_t)(i * i >> 7);
	fix_model(path, "{\"a\":{\"dtype\":\"U8\",\"shape\":[3145728],"
		  "\"data_offsets\":[0,3145728]}}", data, len);
	free(data);
	assert_ok(ckpt_import(f->writer, path, "twice/1", NULL,
					  &first, &err));
	assert_true(first.progress.chunk_new_count > 0);
	assert_ok(ckpt_import(f->writer, path, "twice/2", NULL,
					  &second, &err));
	assert_int_equal(second.progress.chunk_count,
			 first.progress.chunk_count);
	assert_int_equal(second.progress.chunk_new_count, 0);
	assert_int_equal(second.progress.bytes_new, 0);
}

static void a_taken_name_is_refused_unless_replaced(void **state)
{
	struct fix *f = *state;
	const char *path = fix_path(f, "taken.safetensors");
	const struct ckpt_import_opts opts = { .size = sizeof(opts),
					       .replace = true };
	struct ckpt_err err = { 0 };

	fix_model(path, "{}", "", 0);
	assert_ok(ckpt_import(f->writer, path, "taken", NULL,
					  NULL, &err));
	assert_int_equal(ckpt_import(f->writer, path, "taken",
						 NULL, NULL, &err),
			 CKPT_EEXIST);
	assert_int_equal(fix_count(f, "store/staging"), 0);
	assert_ok(ckpt_import(f->writer, path, "taken", &opts,
					  NULL, &err));
	assert_ok(ckpt_tag_set(f->store, "best", "taken", &err));
	assert_int_equal(ckpt_import(f->writer, path, "taken", &opts, NULL,
				     &err), CKPT_EBUSY);
	assert_non_null(strstr(err.message, "the tag 'best'"));
	assert_int_equal(fix_count(f, "store/staging"), 0);
}

/* ---- sources that are none ---- */

static void other_sources_are_refused_at_once(void **state)
{
	static const struct {
		const char *name;
		int code;
		const char *says;
	} cases[] = {
		{ "fifo", CKPT_EINVAL, "is a FIFO, not a regular file" },
		{ "folder", CKPT_EINVAL, "there is nothing to import" },
		{ "absent", CKPT_ENOENT, "No such file" },
		{ "pointer", CKPT_EFORMAT, "Git-LFS pointer" },
		{ "page", CKPT_EFORMAT, "HTML page" },
		{ "short", CKPT_EFORMAT, "too short" },
	};
	static const char lfs[] = "version https://git-lfs.github.com/spec/"
				  "v1\noid sha256:00\nsize 12345\n";
	struct fix *f = *state;

	assert_int_equal(mkfifo(fix_path(f, "fifo"), 0600), 0);
	assert_int_equal(mkdir(fix_path(f, "folder"), 0700), 0);
	fix_write(fix_path(f, "pointer"), lfs, strlen(lfs));
	fix_write(fix_path(f, "page"), "<!DOCTYPE html><html>", 21);
	fix_write(fix_path(f, "short"), "abc", 3);
	alarm(60); /* a FIFO must not be waited for */
	for (size_t i = 0; i < CKB_ARRAY_LEN(cases); i++) {
		struct ckpt_err err = { 0 };
		struct ckpt_checkpoint *c;
		int rc = ckpt_import(
			f->writer, fix_path(f, cases[i].name), "none", NULL,
			NULL, &err);

		if (rc != cases[i].code || !strstr(err.message, cases[i].says))
			fail_msg("%s gave %d '%s'", cases[i].name, rc,
				 err.message);
		assert_non_null(strstr(err.message, cases[i].name));
		assert_int_equal(ckpt_checkpoint_open(f->store, "none", &c,
						      NULL), CKPT_ENOENT);
	}
	alarm(0);
	assert_int_equal(fix_count(f, "store/staging"), 0);
}

/* ---- a file that changes meanwhile ---- */

/* An operating system whose reads of 64 bytes, the payload below, wait until
 * they are let go. */
struct gate {
	struct ckb_sys sys;      /* first: the callback finds the rest */
	pthread_mutex_t lock;
	pthread_cond_t changed;
	bool waiting, open;
};

static ssize_t gate_pread(const struct ckb_sys *sys, int fd, void *dst,
			  size_t len, uint64_t off)
{
	struct gate *g = (struct gate *)(uintptr_t)sys;
	const struct ckb_sys *os = ckb_sys_real();

	pthread_mutex_lock(&g->lock);
	g->waiting = g->waiting || len == 64;
	pthread_cond_broadcast(&g->changed);
	while (len == 64 && !g->open)
		pthread_cond_wait(&g->changed, &g->lock);
	pthread_mutex_unlock(&g->lock);
	return os->pread(os, fd, dst, len, off);
}

struct job {
	struct ckpt_writer *writer;
	const char *path, *name;
	int rc;
	struct ckpt_err err;
};

static void *run_job(void *arg)
{
	struct job *j = arg;

	j->rc = ckpt_import(j->writer, j->path, j->name, NULL,
					NULL, &j->err);
	return NULL;
}

enum change { NOTHING, APPEND, CUT, REWRITE };

static void change_file(const char *path, enum change change)
{
	struct timespec times[2] = { { .tv_sec = 1 }, { .tv_sec = 1 } };
	FILE *file;

	if (change == CUT)
		assert_int_equal(truncate(path, 100), 0);
	if (change != APPEND && change != REWRITE)
		return;
	file = fopen(path, change == APPEND ? "ab" : "r+b");
	assert_non_null(file);
	assert_int_equal(fseek(file, -4, SEEK_END), 0);
	fputs("torn", file);
	assert_int_equal(fclose(file), 0);
	/* whatever the clock of the file system */
	assert_int_equal(utimensat(AT_FDCWD, path, times, 0), 0);
}

static void a_source_that_changes_is_not_published(void **state)
{
	static const char json[] = "{\"a\":{\"dtype\":\"U8\",\"shape\":[64],"
				   "\"data_offsets\":[0,64]}}";
	static const char payload[64] = "sixty-four bytes";
	static const enum change changes[] = { NOTHING, APPEND, CUT, REWRITE };
	struct fix *f = *state;
	char path[1024]; /* fix_path()'s own buffers are used again */

	snprintf(path, sizeof(path), "%s",
		 fix_path(f, "live.safetensors"));

	for (size_t i = 0; i < CKB_ARRAY_LEN(changes); i++) {
		struct gate gate = { *ckb_sys_real(),
				     PTHREAD_MUTEX_INITIALIZER,
				     PTHREAD_COND_INITIALIZER, false, false };
		struct job job = { .path = path, .name = "live/1" };
		struct ckpt_store *store;
		struct ckpt_checkpoint *c;
		struct ckpt_err err;
		pthread_t thread;

		gate.sys.pread = gate_pread;
		fix_model(path, json, payload, sizeof(payload));
		assert_ok(cks_store_open_sys(&gate.sys, fix_path(f, "store"),
					     NULL, &store, &err));
		assert_ok(ckpt_writer_open(store, NULL, &job.writer, &err));
		assert_int_equal(pthread_create(&thread, NULL, run_job, &job),
				 0);
		/* by then it has read the header */
		pthread_mutex_lock(&gate.lock);
		while (!gate.waiting)
			pthread_cond_wait(&gate.changed, &gate.lock);
		pthread_mutex_unlock(&gate.lock);
		change_file(path, changes[i]);
		pthread_mutex_lock(&gate.lock);
		gate.open = true;
		pthread_cond_broadcast(&gate.changed);
		pthread_mutex_unlock(&gate.lock);
		pthread_join(thread, NULL);
		ckpt_writer_close(job.writer);
		ckpt_store_close(store);
		if (changes[i] == NOTHING) {
			assert_int_equal(job.rc, 0);
			assert_int_equal(remove(fix_path(
				f, "store/checkpoints/live/1")), 0);
			continue;
		}
		assert_int_equal(job.rc, CKPT_EIO);
		assert_non_null(strstr(job.err.message, "was changed while it "
				       "was being read"));
		assert_int_equal(ckpt_checkpoint_open(f->store, "live/1", &c,
						      NULL), CKPT_ENOENT);
		assert_int_equal(fix_count(f, "store/staging"), 0);
	}
}

/* ---- progress ---- */

static int count_progress(void *ctx, const struct ckpt_save_progress *p)
{
	struct ckpt_save_progress *last = ctx;

	assert_true(p->bytes_captured >= last->bytes_captured);
	*last = *p;
	return 0;
}

static int end_it(void *ctx, const struct ckpt_save_progress *p)
{
	(void)p;
	return ++*(int *)ctx;
}

/* What asks five times a second must not come too late: the source is large,
 * and holes in it cost no disk. */
static void progress_may_end_it(void **state)
{
	struct fix *f = *state;
	int calls = 0;
	struct ckpt_import_opts opts = {
		.size = sizeof(opts), .on_progress = end_it, .ctx = &calls,
	};
	const char *path = fix_path(f, "large.safetensors");
	struct ckpt_err err = { 0 };

	fix_model(path, "{\"a\":{\"dtype\":\"U8\",\"shape\":[68719476736],"
		  "\"data_offsets\":[0,68719476736]}}", "abcd", 4);
	struct stat st;

	assert_int_equal(stat(path, &st), 0);
	assert_int_equal(truncate(path, st.st_size - 4 + (64ll << 30)), 0);
	assert_int_equal(ckpt_import(f->writer, path, "ended", &opts, NULL,
				     &err), CKPT_ECANCELED);
	assert_int_equal(calls, 1);
	assert_int_equal(fix_count(f, "store/checkpoints"), 0);
	assert_int_equal(fix_count(f, "store/staging"), 0);
}

static void progress_ends_at_all_bytes(void **state)
{
	struct fix *f = *state;
	struct ckpt_save_progress last = { 0 };
	const struct ckpt_import_opts opts = {
		.size = sizeof(opts),
		.on_progress = count_progress,
		.ctx = &last,
	};
	const char *path = fix_path(f, "progress.safetensors");
	struct ckpt_err err = { 0 };

	fix_model(path, "{\"a\":{\"dtype\":\"U8\",\"shape\":[4],"
		  "\"data_offsets\":[0,4]}}", "abcd", 4);
	assert_ok(ckpt_import(f->writer, path, "progress", &opts,
					  NULL, &err));
	assert_true(last.bytes_total > 4); /* the header is kept too */
	assert_int_equal(last.bytes_captured, last.bytes_total);
}

#define FIXED(test) \
	cmocka_unit_test_setup_teardown(test, fix_setup, fix_teardown)

int main(void)
{
	const struct CMUnitTest tests[] = {
		FIXED(every_good_file_reads_back),
		FIXED(every_bad_file_leaves_nothing),
		FIXED(metadata_and_tied_names_are_kept),
		FIXED(a_file_without_metadata_has_none),
		FIXED(odd_file_names_become_model_safetensors),
		FIXED(twice_imported_stores_no_new_chunk),
		FIXED(a_taken_name_is_refused_unless_replaced),
		FIXED(other_sources_are_refused_at_once),
		FIXED(a_source_that_changes_is_not_published),
		FIXED(progress_ends_at_all_bytes),
		FIXED(progress_may_end_it),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
