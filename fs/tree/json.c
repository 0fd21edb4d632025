/* SPDX-License-Identifier: Apache-2.0 */
/*
 * json.c - checkpoint.json: facts, items, sizes; and README.txt.
 *
 * Rendered once per open checkpoint and kept: its size is asked for as often as
 * its bytes. No list of tensors: that is what the folders are for; only names
 * that a file name cannot hold in full are given here.
 */
#include <inttypes.h>
#include <string.h>
#include <time.h>

#include "base/text.h"
#include "format/config.h"
#include "tree/internal.h"

static void put_text(struct ckb_buf *b, const char *key, const char *text)
{
	ckb_buf_printf(b, "  \"%s\": ", key);
	if (text)
		ckf_json_string(b, text, strlen(text));
	else
		ckb_buf_puts(b, "null");
	ckb_buf_puts(b, ",\n");
}

/* @json is an object already, or NULL. */
static void put_object(struct ckb_buf *b, const char *key, const char *json)
{
	ckb_buf_printf(b, "  \"%s\": %s,\n", key, json ? json : "null");
}

static void put_time(struct ckb_buf *b, int64_t ns)
{
	time_t t = (time_t)(ns / 1000000000);
	char text[40];
	struct tm tm;

	if (ns < 0 || !gmtime_r(&t, &tm) ||
	    strftime(text, sizeof(text), "%Y-%m-%dT%H:%M:%S", &tm) == 0) {
		ckb_buf_puts(b, "  \"created\": null,\n");
		return;
	}
	ckb_buf_printf(b, "  \"created\": \"%s.%09dZ\",\n", text,
		       (int)(ns % 1000000000));
}

static void put_facts(struct ckb_buf *b, const struct ckpt_checkpoint_info *i)
{
	char uuid[CKB_UUID_TEXT_BYTES];

	put_text(b, "name", i->name);
	ckb_uuid_text(uuid, i->uuid);
	put_text(b, "uuid", uuid);
	ckb_buf_printf(b, "  \"generation\": %" PRIu64 ",\n  \"seq\": %" PRIu64
		       ",\n", i->generation, i->seq);
	if (i->has_step)
		ckb_buf_printf(b, "  \"step\": %" PRIu64 ",\n", i->step);
	else
		ckb_buf_puts(b, "  \"step\": null,\n");
	put_time(b, i->created_ns);
	if (i->has_parent)
		ckb_uuid_text(uuid, i->parent);
	put_text(b, "parent", i->has_parent ? uuid : NULL);
	put_text(b, "writer", i->writer);
	put_object(b, "metadata", i->metadata);
	put_object(b, "metrics", i->metrics);
	ckb_buf_printf(b, "  \"bytes\": %" PRIu64 ",\n", i->bytes);
}

static void put_items(struct ckb_buf *b, const struct ckpt_checkpoint *c)
{
	bool first = true;

	ckb_buf_puts(b, "  \"items\": [");
	for (size_t i = 0; i < ckpt_item_count(c); i++) {
		const struct ckpt_item_info *it = ckpt_item_at(c, i);
		bool tensors = it->kind == CKPT_ITEM_TENSORS;

		if (!ckv_item_shown(it))
			continue;
		ckb_buf_puts(b, first ? "\n    {\"name\": "
				      : ",\n    {\"name\": ");
		ckf_json_string(b, it->name, strlen(it->name));
		ckb_buf_printf(b, ", \"kind\": \"%s\", \"separator\": ",
			       tensors ? "tensors" : "files");
		ckf_json_string(b, it->separator, strlen(it->separator));
		ckb_buf_printf(b, ", \"count\": %zu, \"bytes\": %" PRIu64
			       ", \"metadata\": %s}", it->count, it->bytes,
			       it->metadata ? it->metadata : "null");
		first = false;
	}
	ckb_buf_puts(b, first ? "]" : "\n  ]");
}

static void put_long_names(struct ckb_buf *b, const struct ckv_ckpt *c)
{
	bool first = true;

	for (size_t i = 0; i < c->path_count; i++) {
		const struct ckpt_tensor_info *t;

		if (!c->paths[i].cut)
			continue;
		t = ckpt_tensor_at(c->ckpt, c->paths[i].tensor);
		ckb_buf_puts(b, first ? ",\n  \"long_names\": {\n    "
				      : ",\n    ");
		ckf_json_string(b, c->paths[i].text, strlen(c->paths[i].text));
		ckb_buf_puts(b, ": ");
		ckf_json_string(b, t->name, t->name_len);
		first = false;
	}
	if (!first)
		ckb_buf_puts(b, "\n  }");
}

int ckv_checkpoint_json(struct ckv_ckpt *c, struct ckpt_err *err)
{
	struct ckb_buf b = { 0 };
	int rc = 0;

	pthread_mutex_lock(&c->lock);
	if (!c->json) {
		ckb_buf_puts(&b, "{\n");
		put_facts(&b, ckpt_checkpoint_info(c->ckpt));
		put_items(&b, c->ckpt);
		put_long_names(&b, c);
		ckb_buf_puts(&b, "\n}\n");
		if (b.failed) {
			ckb_buf_fini(&b);
			rc = ckb_err_nomem(err);
		} else {
			c->json = (char *)b.data;
			c->json_len = b.len;
		}
	}
	pthread_mutex_unlock(&c->lock);
	return rc;
}

const char *ckv_readme(size_t *out_len)
{
	static const char text[] =
		"This is a store of checkpoints, shown by ckptfs, read-only.\n"
		"\n"
		"Folders are runs; in a run each checkpoint is a folder:\n"
		"  checkpoint.json   facts, items, sizes\n"
		"  ITEM/a/b/c.npy    tensor a.b.c, for NumPy: np.load(path)\n"
		"  ITEM/a/b/c.txt    the same for people: shape, statistics\n"
		"latest is the checkpoint of the highest step, newest the one\n"
		"saved last. Every byte read was verified; a damaged one is an\n"
		"I/O error. More: man ckptfs\n";

	*out_len = sizeof(text) - 1;
	return text;
}
