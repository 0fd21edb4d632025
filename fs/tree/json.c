/* SPDX-License-Identifier: Apache-2.0 */
/*
 * json.c - checkpoint.json: facts, items, sizes.
 *
 * Rendered once per image and kept: its size is asked for as often as
 * its bytes. No list of tensors: that is what the folders are for; only names
 * that a file name cannot hold in full are given here, by their paths without
 * suffix. Always the same keys in the same order. What a save gave as JSON is
 * passed on as it is; if a manifest holds something else there, as a string,
 * so that the whole stays JSON (S10). The image's lock guards the rendering.
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

/* @json is an object, or NULL. */
static void put_object(struct ckb_buf *b, const char *json)
{
	if (!json)
		ckb_buf_puts(b, "null");
	else if (ckf_json_object(json, "", NULL) == 0)
		ckb_buf_puts(b, json);
	else
		ckf_json_string(b, json, strlen(json));
}

/* RFC 3339, UTC. */
static void put_time(struct ckb_buf *b, int64_t ns)
{
	int64_t part = ns % 1000000000;
	time_t t = (time_t)(ns / 1000000000);
	char text[40];
	struct tm tm;

	if (part < 0) {
		part += 1000000000;
		t--;
	}
	/* 64 bits of nanoseconds: the years 1677 to 2262 */
	gmtime_r(&t, &tm);
	strftime(text, sizeof(text), "%Y-%m-%dT%H:%M:%S", &tm);
	ckb_buf_printf(b, "  \"created\": \"%s.%09dZ\",\n", text, (int)part);
}

static void put_facts(struct ckb_buf *b, const struct ckpt_checkpoint_info *i)
{
	char uuid[CKB_UUID_TEXT_BYTES];

	put_text(b, "name", i->name);
	ckb_uuid_text(uuid, i->uuid);
	put_text(b, "uuid", uuid);
	ckb_buf_printf(b, "  \"generation\": %" PRIu64 ",\n", i->generation);
	if (i->has_step)
		ckb_buf_printf(b, "  \"step\": %" PRIu64 ",\n", i->step);
	else
		ckb_buf_puts(b, "  \"step\": null,\n");
	ckb_buf_printf(b, "  \"seq\": %" PRIu64 ",\n", i->seq);
	put_time(b, i->created_ns);
	if (i->has_parent)
		ckb_uuid_text(uuid, i->parent);
	put_text(b, "parent", i->has_parent ? uuid : NULL);
	put_text(b, "writer", i->writer);
	ckb_buf_puts(b, "  \"metadata\": ");
	put_object(b, i->metadata);
	ckb_buf_puts(b, ",\n  \"metrics\": ");
	put_object(b, i->metrics);
	ckb_buf_puts(b, ",\n");
}

/* Raw bytes of what is shown: the sum of its items'. */
static void put_bytes(struct ckb_buf *b, const struct ckpt_checkpoint *c)
{
	uint64_t bytes = 0;

	for (size_t i = 0; i < ckpt_item_count(c); i++)
		if (ckv_item_shown(ckpt_item_at(c, i)->kind))
			bytes += ckpt_item_at(c, i)->bytes;
	ckb_buf_printf(b, "  \"bytes\": %" PRIu64 ",\n", bytes);
}

static void put_items(struct ckb_buf *b, const struct ckpt_checkpoint *c)
{
	bool first = true;

	ckb_buf_puts(b, "  \"items\": [");
	for (size_t i = 0; i < ckpt_item_count(c); i++) {
		const struct ckpt_item_info *it = ckpt_item_at(c, i);
		const char *kind = it->kind == CKPT_ITEM_TENSORS ? "tensors"
								 : "files";

		if (!ckv_item_shown(it->kind))
			continue;
		ckb_buf_puts(b, first ? "\n    {\"name\": "
				      : ",\n    {\"name\": ");
		ckf_json_string(b, it->name, strlen(it->name));
		ckb_buf_printf(b, ", \"kind\": \"%s\", \"separator\": ", kind);
		ckf_json_string(b, it->separator, strlen(it->separator));
		ckb_buf_printf(b, ", \"%s\": %zu, \"bytes\": %" PRIu64
			       ", \"metadata\": ", kind, it->count, it->bytes);
		put_object(b, it->metadata);
		ckb_buf_putc(b, '}');
		first = false;
	}
	ckb_buf_puts(b, first ? "],\n" : "\n  ],\n");
}

static void put_long(struct ckb_buf *b, bool *first, const char *path,
		     size_t path_len, const char *name, size_t name_len)
{
	ckb_buf_puts(b, *first ? "\n    " : ",\n    ");
	ckf_json_string(b, path, path_len);
	ckb_buf_puts(b, ": ");
	ckf_json_string(b, name, name_len);
	*first = false;
}

static void put_long_names(struct ckb_buf *b, const struct ckv_image *c)
{
	const struct ckv_paths *p = &c->paths;
	bool first = true;

	ckb_buf_puts(b, "  \"long_names\": {");
	for (size_t i = 0; i < ckpt_item_count(c->ckpt); i++) {
		const struct ckpt_item_info *it = ckpt_item_at(c->ckpt, i);
		CKB_BUF struct ckb_buf path = { 0 };
		bool cut = false;

		ckv_escape(&path, it->name, strlen(it->name), true, 0, &cut);
		b->failed |= path.failed;
		if (cut && ckv_item_shown(it->kind))
			put_long(b, &first, (char *)path.data, path.len,
				 it->name, strlen(it->name));
	}
	for (uint32_t i = 0; i < p->path_count; i++) {
		const struct ckv_path *path = &p->path[i];
		const struct ckpt_tensor_info *t;

		if (!path->cut || path->tensor == CKV_NO_TENSOR)
			continue;
		t = ckpt_tensor_at(c->ckpt, path->tensor);
		put_long(b, &first, path->text, strlen(path->text), t->name,
			 t->name_len);
	}
	ckb_buf_puts(b, first ? "}" : "\n  }");
}

int ckv_checkpoint_json(struct ckv_tree *tree, struct ckv_image *m,
			struct ckpt_err *err)
{
	struct ckb_buf b = { 0 };

	pthread_mutex_lock(&m->lock);
	if (!m->json) {
		ckb_buf_puts(&b, "{\n");
		put_facts(&b, ckpt_checkpoint_info(m->ckpt));
		put_bytes(&b, m->ckpt);
		put_items(&b, m->ckpt);
		put_long_names(&b, m);
		ckb_buf_puts(&b, "\n}\n");
		if (b.failed)
			ckb_buf_fini(&b);
		m->json = (char *)b.data;
		m->json_len = b.len;
	}
	bool there = m->json != NULL;

	pthread_mutex_unlock(&m->lock);
	if (b.data)
		ckv_image_grew(tree, m, b.cap);
	return there ? 0 : ckb_err_nomem(err);
}
