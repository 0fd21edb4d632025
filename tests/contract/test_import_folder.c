/* SPDX-License-Identifier: Apache-2.0 */
/*
 * test_import_folder.c - import of Hugging Face folders: those that transformers
 * wrote (fixtures/safetensors/hf_*), and folders whose files do not fit.
 */
#include "import_rows.h"

#include <sys/resource.h>

/* A shard of one U8 tensor of four bytes. */
#define ONE(name) \
	"{\"" name "\":{\"dtype\":\"U8\",\"shape\":[4]," \
	"\"data_offsets\":[0,4]}}"
#define MAP(pairs) "{\"metadata\":{},\"weight_map\":{" pairs "}}"

struct notes {
	size_t count;
	char text[4][CKPT_ERR_MESSAGE_BYTES];
};

static void on_note(void *ctx, const char *text)
{
	struct notes *n = ctx;

	assert_true(n->count < 4);
	snprintf(n->text[n->count++], sizeof(n->text[0]), "%s", text);
}

static bool noted(const struct notes *n, const char *what)
{
	for (size_t i = 0; i < n->count; i++)
		if (strstr(n->text[i], what))
			return true;
	return false;
}

/* ---- good folders ---- */

/* Every file of the folder that is no shard, byte for byte. */
static void check_files(struct ckpt_checkpoint *c, const char *folder)
{
	const struct ckpt_item_info *assets = ckpt_item_find(c, "assets");
	const struct ckpt_item_info *orig = ckpt_item_find(c, "@orig");
	DIR *d = opendir(folder);
	size_t shards = 0, others = 0;

	assert_non_null(d);
	assert_non_null(assets);
	assert_non_null(orig);
	for (struct dirent *e; (e = readdir(d));) {
		const struct ckpt_item_info *item = assets;
		const struct ckpt_tensor_info *t;
		char path[8192];
		uint8_t *file, *data;
		size_t len;

		if (e->d_name[0] == '.')
			continue;
		if (strstr(e->d_name, ".safetensors"))
			item = orig;
		shards += item == orig;
		others += item == assets;
		t = ckpt_tensor_find(c, item, e->d_name, strlen(e->d_name));
		if (!t)
			fail_msg("'%s' is not kept", e->d_name);
		snprintf(path, sizeof(path), "%s/%s", folder, e->d_name);
		file = fix_slurp(path, &len);
		data = fix_read(c, t);
		if (strcmp(t->media_type, "application/x-safetensors-header"))
			assert_int_equal(t->bytes, len);
		else
			assert_int_equal(t->bytes, 8 + ckb_get_u64(file));
		assert_memory_equal(data, file, t->bytes);
		free(data);
		free(file);
	}
	closedir(d);
	assert_int_equal(orig->count, shards);
	assert_int_equal(assets->count, others);
}

static void every_folder_reads_back(void **state)
{
	static const char *const sets[] = { "hf_gpt2_bf16", "hf_gpt2_f32",
					    "hf_llama_f32",
					    "hf_llama_tied_bf16" };
	struct fix *f = *state;

	if (fix_lacks_fixtures())
		return;
	for (size_t i = 0; i < CKB_ARRAY_LEN(sets); i++) {
		struct ckpt_import_result result = { 0 };
		const struct ckpt_item_info *item;
		struct ckpt_checkpoint *c;
		struct ckpt_err err = { 0 };
		struct rows rows;
		char path[4096];

		snprintf(path, sizeof(path), "%s/safetensors/%s/expected.tsv",
			 fixtures_path(), sets[i]);
		rows = load_rows(path);
		snprintf(path, sizeof(path), "%s/safetensors/%s/checkpoint",
			 fixtures_path(), sets[i]);
		assert_ok(ckpt_import(f->writer, path, sets[i], NULL, &result,
				      &err));
		assert_int_equal(result.file_count, 2);
		assert_ok(ckpt_checkpoint_open(f->store, sets[i], &c, &err));
		item = ckpt_item_find(c, "model");
		assert_string_equal(item->metadata, "{\"format\": \"pt\"}");
		assert_int_equal(item->count, rows.count);
		assert_int_equal(result.tensor_count, rows.count);
		for (size_t k = 0; k < item->count; k++) {
			const struct ckpt_tensor_info *t =
				ckpt_tensor_at(c, item->first + k);

			check_tensor(c, t, find_row(&rows, t));
		}
		check_files(c, path);
		ckpt_checkpoint_close(c);
		free_rows(&rows);
	}
	assert_int_equal(fix_count(f, "store/staging"), 0);
}

/* ---- folders made here ---- */

static void put(const struct fix *f, const char *name, const char *text)
{
	fix_write(fix_path(f, name), text, strlen(text));
}

static void put_shard(const struct fix *f, const char *name, const char *json)
{
	fix_model(fix_path(f, name), json, "data", 4);
}

static void put_index(const struct fix *f, const char *json)
{
	put(f, "hf/model.safetensors.index.json", json);
}

/* Import "hf" as @name: 0, or the error and what it says. */
static int import(struct fix *f, const char *name, struct notes *notes,
		  struct ckpt_err *err)
{
	const struct ckpt_import_opts opts = { .size = sizeof(opts),
					       .on_note = on_note,
					       .ctx = notes };
	char path[1024];

	snprintf(path, sizeof(path), "%s", fix_path(f, "hf"));
	return ckpt_import(f->writer, path, name, &opts, NULL, err);
}

static void refused(struct fix *f, int code, const char *says,
		    const char *says_too)
{
	struct notes notes = { 0 };
	struct ckpt_checkpoint *c;
	struct ckpt_err err = { 0 };
	int rc = import(f, "refused", &notes, &err);

	if (rc != code || !strstr(err.message, says) ||
	    !strstr(err.message, says_too))
		fail_msg("%d '%s' does not say '%s', '%s'", rc, err.message,
			 says, says_too);
	assert_null(strchr(err.message, '\n'));
	assert_int_equal(ckpt_checkpoint_open(f->store, "refused", &c, NULL),
			 CKPT_ENOENT);
	assert_int_equal(fix_count(f, "store/staging"), 0);
}

static int folder_setup(void **state)
{
	int rc = fix_setup(state);

	assert_int_equal(mkdir(fix_path(*state, "hf"), 0700), 0);
	return rc;
}

static void the_index_is_followed_not_a_pattern(void **state)
{
	struct fix *f = *state;
	struct notes notes = { 0 };
	struct ckpt_checkpoint *c;
	const struct ckpt_item_info *model;
	struct ckpt_err err = { 0 };

	assert_int_equal(mkdir(fix_path(f, "hf/sub"), 0700), 0);
	assert_int_equal(mkdir(fix_path(f, "hf/.git"), 0700), 0);
	put(f, "hf/.git/config", "x");
	put(f, "hf/.gitattributes", "y");
	put_shard(f, "hf/a.safetensors", ONE("a"));
	put_shard(f, "hf/mtp.safetensors", ONE("m"));
	put_shard(f, "hf/sub/s.safetensors", ONE("s"));
	put_shard(f, "hf/extra.safetensors", ONE("a")); /* a stale copy */
	put_index(f, MAP("\"s\":\"sub/s.safetensors\","
			 "\"m\":\"mtp.safetensors\","
			 "\"\\u0061\":\"a.safetensor\\u0073\""));
	assert_ok(import(f, "good", &notes, &err));
	assert_int_equal(notes.count, 2);
	assert_true(noted(&notes, "'.git' was passed over"));
	assert_true(noted(&notes, "'extra.safetensors' is not in the index"));
	assert_ok(ckpt_checkpoint_open(f->store, "good", &c, &err));
	model = ckpt_item_find(c, "model");
	assert_int_equal(model->count, 3);
	assert_non_null(ckpt_tensor_find(c, model, "s", 1));
	assert_non_null(ckpt_tensor_find(c, model, "m", 1));
	assert_int_equal(ckpt_item_find(c, "assets")->count, 2);
	assert_int_equal(ckpt_item_find(c, "@orig")->count, 4);
	ckpt_checkpoint_close(c);
}

static void links_to_files_are_followed(void **state)
{
	struct fix *f = *state;
	struct notes notes = { 0 };
	struct ckpt_checkpoint *c;
	struct ckpt_err err = { 0 };

	assert_int_equal(mkdir(fix_path(f, "blobs"), 0700), 0);
	put_shard(f, "blobs/0123", ONE("a"));
	put(f, "blobs/4567", "{}");
	put(f, "hf/__init__.py", ""); /* a file of no bytes is kept too */
	assert_int_equal(symlink("../blobs/0123",
				 fix_path(f, "hf/model.safetensors")), 0);
	assert_int_equal(symlink("../blobs/4567",
				 fix_path(f, "hf/config.json")), 0);
	assert_ok(import(f, "links", &notes, &err));
	assert_ok(ckpt_checkpoint_open(f->store, "links", &c, &err));
	assert_int_equal(ckpt_item_find(c, "model")->count, 1);
	assert_int_equal(ckpt_item_find(c, "assets")->count, 2);
	ckpt_checkpoint_close(c);
}

static void what_is_no_file_is_refused_by_name(void **state)
{
	struct fix *f = *state;

	put_shard(f, "hf/model.safetensors", ONE("a"));
	assert_int_equal(symlink("..", fix_path(f, "hf/up")), 0);
	refused(f, CKPT_EINVAL, "hf/up' is a symbolic link to a folder", "");
	assert_int_equal(remove(fix_path(f, "hf/up")), 0);
	assert_int_equal(symlink("nowhere", fix_path(f, "hf/lost")), 0);
	refused(f, CKPT_ENOENT, "hf/lost' leads nowhere", "");
	assert_int_equal(remove(fix_path(f, "hf/lost")), 0);
	assert_int_equal(mkfifo(fix_path(f, "hf/pipe"), 0600), 0);
	alarm(60); /* it must not be waited for */
	refused(f, CKPT_EINVAL, "hf/pipe' is a FIFO", "");
	put_index(f, MAP("\"a\":\"pipe\""));
	refused(f, CKPT_EINVAL, "hf/pipe' is a FIFO", "");
	alarm(0);
}

static void shards_and_index_must_agree(void **state)
{
	struct fix *f = *state;

	put_shard(f, "hf/a.safetensors", ONE("a"));
	put_shard(f, "hf/b.safetensors", ONE("b"));
	put_index(f, MAP("\"a\":\"a.safetensors\",\"b\":\"b.safetensors\","
			 "\"c\":\"b.safetensors\""));
	refused(f, CKPT_EFORMAT, "tensors of 'model.safetensors.index.json' "
		"that are not in the shards it names (1): 'c' (in "
		"'b.safetensors')", "");
	/* in another shard than the index says */
	put_index(f, MAP("\"a\":\"b.safetensors\",\"b\":\"a.safetensors\""));
	refused(f, CKPT_EFORMAT, "(2)", "'a' (in 'b.safetensors'), 'b'");
	put_shard(f, "hf/b.safetensors",
		  "{\"b\":{\"dtype\":\"U8\",\"shape\":[2],"
		  "\"data_offsets\":[0,2]},\"x\":{\"dtype\":\"U8\","
		  "\"shape\":[2],\"data_offsets\":[2,4]}}");
	put_index(f, MAP("\"a\":\"a.safetensors\",\"b\":\"b.safetensors\""));
	refused(f, CKPT_EFORMAT, "tensors of its shards that are not in "
		"'model.safetensors.index.json' (1)",
		"'x' (in 'b.safetensors')");
	put_shard(f, "hf/b.safetensors", ONE("a"));
	put_index(f, MAP("\"a\":\"a.safetensors\",\"b\":\"b.safetensors\""));
	refused(f, CKPT_EFORMAT, "that lie in two shards (1): 'a' (in "
		"'a.safetensors' and 'b.safetensors')", "");
	assert_int_equal(remove(fix_path(
		f, "hf/model.safetensors.index.json")), 0);
	refused(f, CKPT_EFORMAT, "lie in two shards", "without an index");
}

static void shards_that_are_missing_are_counted(void **state)
{
	struct fix *f = *state;

	put_shard(f, "hf/a.safetensors", ONE("a"));
	put_index(f, MAP("\"a\":\"a.safetensors\",\"b\":\"s1\",\"c\":\"s2\","
			 "\"d\":\"s3\",\"e\":\"s4\",\"f\":\"s5\","
			 "\"g\":\"s5\""));
	refused(f, CKPT_EFORMAT, "shards that 'model.safetensors.index.json' "
		"names and that are not there (5)",
		"'s1', 's2', 's3' and 2 more");
	/* without an index their own names tell */
	assert_int_equal(remove(fix_path(
		f, "hf/model.safetensors.index.json")), 0);
	put_shard(f, "hf/m-00001-of-00003.safetensors", ONE("x"));
	put_shard(f, "hf/m-00003-of-00003.safetensors", ONE("y"));
	refused(f, CKPT_EFORMAT, "shards of the set of "
		"'m-00001-of-00003.safetensors' that are not there (1)",
		"'m-00002-of-00003.safetensors'");
}

static void a_stale_index_can_be_ignored(void **state)
{
	struct fix *f = *state;
	const struct ckpt_import_opts opts = { .size = sizeof(opts),
					       .ignore_index = true };
	struct ckpt_import_result result = { 0 };
	struct ckpt_checkpoint *c;
	struct ckpt_err err = { 0 };

	put_shard(f, "hf/a.safetensors", ONE("a"));
	put_shard(f, "hf/b.safetensors", ONE("b"));
	put_index(f, MAP("\"a\":\"gone.safetensors\""));
	refused(f, CKPT_EFORMAT, "'gone.safetensors'", "--no-index");
	assert_ok(ckpt_import(f->writer, fix_path(f, "hf"), "loose", &opts,
			      &result, &err));
	assert_int_equal(result.tensor_count, 2);
	assert_ok(ckpt_checkpoint_open(f->store, "loose", &c, &err));
	assert_non_null(ckpt_tensor_find(
		c, ckpt_item_find(c, "assets"), "model.safetensors.index.json",
		strlen("model.safetensors.index.json")));
	ckpt_checkpoint_close(c);
}

static void an_index_that_is_none_is_named(void **state)
{
	static const struct {
		const char *json, *says;
	} cases[] = {
		{ "not json", "JSON error" },
		{ "[]", "no object" },
		{ "{\"metadata\":{}}", "no weight_map" },
		{ "{\"weight_map\":[]}", "no JSON object" },
		{ "{\"weight_map\":{},\"weight_map\":{}}", "two keys" },
		{ MAP("\"a\":1"), "gives tensor 'a' no file name" },
		{ MAP("\"a\":\"x\",\"\\u0061\":\"y\""),
		  "names tensor 'a' twice" },
		{ MAP("\"a\":\"../a.safetensors\""),
		  "'../a.safetensors', which is no path inside" },
		{ MAP("\"a\":\"/etc/passwd\""), "no path inside" },
		{ MAP("\"a\":\"sub/../../a\""), "no path inside" },
		{ MAP("\"a\":\"a\\u0000b\""), "no path inside" },
		{ MAP("\"a\":\"\""), "no path inside" },
		{ "version https://git-lfs.github.com/spec/v1\noid sha256:0\n",
		  "Git-LFS pointer" },
		{ "", "JSON error" },
	};
	struct fix *f = *state;

	put_shard(f, "a.safetensors", ONE("a"));
	put_shard(f, "hf/a.safetensors", ONE("a"));
	for (size_t i = 0; i < CKB_ARRAY_LEN(cases); i++) {
		put_index(f, cases[i].json);
		refused(f, CKPT_EFORMAT, cases[i].says,
			"hf/model.safetensors.index.json");
	}
	assert_int_equal(remove(fix_path(
		f, "hf/model.safetensors.index.json")), 0);
	put(f, "hf/x.safetensors.index.json", MAP(""));
	put(f, "hf/y.safetensors.index.json", MAP(""));
	refused(f, CKPT_EINVAL, "has two indexes", "'y.safetensors.index");
}

static void files_that_stand_for_others_are_named(void **state)
{
	static const char lfs[] = "version https://git-lfs.github.com/spec/"
				  "v1\noid sha256:00\nsize 12345\n";
	struct fix *f = *state;

	put_shard(f, "hf/a.safetensors", ONE("a"));
	put(f, "hf/b.safetensors", lfs);
	refused(f, CKPT_EFORMAT, "hf/b.safetensors'", "git lfs pull");
	put(f, "hf/b.safetensors", "");
	refused(f, CKPT_EFORMAT, "hf/b.safetensors'", "has 0 bytes");
	put_shard(f, "hf/b.safetensors", ONE("b"));
	put(f, "hf/tokenizer.json", lfs);
	refused(f, CKPT_EFORMAT, "hf/tokenizer.json'", "git lfs pull");
}

/* A name that a shard's __metadata__ ties is no tensor of its own. */
static void tied_names_do_not_hide_tensors(void **state)
{
	struct fix *f = *state;
	struct notes notes = { 0 };
	struct ckpt_checkpoint *c;
	const struct ckpt_item_info *model;
	struct ckpt_err err = { 0 };

	put_shard(f, "hf/a.safetensors",
		  "{\"__metadata__\":{\"b\":\"a\",\"t\":\"a\"},\"a\":"
		  "{\"dtype\":\"U8\",\"shape\":[4],\"data_offsets\":[0,4]}}");
	put_shard(f, "hf/b.safetensors", ONE("b"));
	put_index(f, MAP("\"a\":\"a.safetensors\",\"b\":\"b.safetensors\","
			 "\"t\":\"a.safetensors\""));
	assert_ok(import(f, "tied", &notes, &err));
	assert_ok(ckpt_checkpoint_open(f->store, "tied", &c, &err));
	model = ckpt_item_find(c, "model");
	assert_int_equal(model->count, 3);
	assert_int_equal(ckpt_tensor_find(c, model, "b", 1)->alias_of,
			 SIZE_MAX);
	assert_int_equal(ckpt_tensor_find(c, model, "t", 1)->alias_of,
			 ckpt_tensor_find(c, model, "a", 1)->index);
	ckpt_checkpoint_close(c);
}

/* layout-06: a tie is what a file says, never what its bytes look like, and
 * never made up for a name that is not there. */
static void ties_are_never_invented(void **state)
{
	static const char *const names[] = { "embed", "lm_head" };
	static const struct {
		const char *name, *bytes;
	} cases[] = { { "differ", "abcdefgh" }, { "equal", "abcdabcd" } };
	struct fix *f = *state;
	struct notes notes = { 0 };
	struct ckpt_checkpoint *c;
	struct ckpt_err err = { 0 };

	put_shard(f, "hf/a.safetensors", ONE("lm_head"));
	assert_ok(import(f, "alone", &notes, &err));
	assert_ok(ckpt_checkpoint_open(f->store, "alone", &c, &err));
	const struct ckpt_item_info *model = ckpt_item_find(c, "model");

	assert_int_equal(model->count, 1);
	assert_int_equal(ckpt_tensor_find(c, model, "lm_head", 7)->alias_of,
			 SIZE_MAX);
	ckpt_checkpoint_close(c);
	put_index(f, MAP("\"lm_head\":\"a.safetensors\","
			 "\"embed\":\"a.safetensors\""));
	refused(f, CKPT_EFORMAT, "(1): 'embed'", "not in the shards");
	for (size_t i = 0; i < CKB_ARRAY_LEN(cases); i++) {
		fix_model(fix_path(f, "hf/a.safetensors"),
			  "{\"embed\":{\"dtype\":\"U8\",\"shape\":[4],"
			  "\"data_offsets\":[0,4]},\"lm_head\":{\"dtype\":"
			  "\"U8\",\"shape\":[4],\"data_offsets\":[4,8]}}",
			  cases[i].bytes, 8);
		assert_ok(import(f, cases[i].name, &notes, &err));
		assert_ok(ckpt_checkpoint_open(f->store, cases[i].name, &c,
					       &err));
		model = ckpt_item_find(c, "model");
		for (size_t t = 0; t < 2; t++) {
			const struct ckpt_tensor_info *at = ckpt_tensor_find(
				c, model, names[t], strlen(names[t]));
			uint8_t have[4];

			assert_int_equal(at->alias_of, SIZE_MAX);
			assert_ok(ckpt_read_bytes(c, at, 0, 4, have, &err));
			assert_memory_equal(have, cases[i].bytes + 4 * t, 4);
		}
		ckpt_checkpoint_close(c);
	}
}

static void many_files_need_few_descriptors(void **state)
{
	struct fix *f = *state;
	struct notes notes = { 0 };
	struct ckpt_checkpoint *c;
	struct rlimit few = { 64, 64 }, before;
	struct ckpt_err err = { 0 };

	for (int i = 0; i < 200; i++) {
		char name[64], json[256];

		snprintf(name, sizeof(name), "hf/%d.safetensors", i);
		snprintf(json, sizeof(json), "{\"t%d\":{\"dtype\":\"U8\","
			 "\"shape\":[4],\"data_offsets\":[0,4]}}", i);
		put_shard(f, name, json);
		snprintf(name, sizeof(name), "hf/%d.txt", i);
		put(f, name, name);
	}
	assert_int_equal(getrlimit(RLIMIT_NOFILE, &before), 0);
	few.rlim_max = before.rlim_max;
	assert_int_equal(setrlimit(RLIMIT_NOFILE, &few), 0);
	assert_ok(import(f, "many", &notes, &err));
	assert_int_equal(setrlimit(RLIMIT_NOFILE, &before), 0);
	assert_ok(ckpt_checkpoint_open(f->store, "many", &c, &err));
	assert_int_equal(ckpt_item_find(c, "model")->count, 200);
	assert_int_equal(ckpt_item_find(c, "assets")->count, 200);
	ckpt_checkpoint_close(c);
}

static void a_folder_with_a_store_is_refused(void **state)
{
	struct fix *f = *state;
	struct ckpt_err err = { 0 };

	put_shard(f, "m.safetensors", ONE("a")); /* beside "store" */
	assert_int_equal(ckpt_import(f->writer, f->dir, "x", NULL, NULL, &err),
			 CKPT_EINVAL);
	assert_non_null(strstr(err.message, "store' is a ckptfs store"));
}

#define FIXED(test) \
	cmocka_unit_test_setup_teardown(test, folder_setup, fix_teardown)

int main(void)
{
	const struct CMUnitTest tests[] = {
		FIXED(every_folder_reads_back),
		FIXED(the_index_is_followed_not_a_pattern),
		FIXED(links_to_files_are_followed),
		FIXED(what_is_no_file_is_refused_by_name),
		FIXED(shards_and_index_must_agree),
		FIXED(shards_that_are_missing_are_counted),
		FIXED(a_stale_index_can_be_ignored),
		FIXED(an_index_that_is_none_is_named),
		FIXED(files_that_stand_for_others_are_named),
		FIXED(tied_names_do_not_hide_tensors),
		FIXED(ties_are_never_invented),
		FIXED(many_files_need_few_descriptors),
		FIXED(a_folder_with_a_store_is_refused),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
