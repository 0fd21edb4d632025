/* SPDX-License-Identifier: Apache-2.0 */
/*
 * config.c - ckptfs.json, and checks of other small JSON (owns jansson.h).
 *
 * Strict: duplicate keys are refused, types and values are demanded. Features
 * this build does not know: in `compat` they are nothing to it, in `ro_compat`
 * they forbid writing, in `incompat` they forbid everything. Pure.
 */
#include "format/config.h"

#include <jansson.h>
#include <string.h>

#include "base/text.h"

int ckf_config_encode(const struct ckf_config *c, struct ckb_buf *out)
{
	char uuid[CKB_UUID_TEXT_BYTES];

	ckb_uuid_text(uuid, c->uuid);
	ckb_buf_printf(out,
		       "{\n  \"format\": \"ckptfs\",\n  \"version\": %u,\n"
		       "  \"uuid\": \"%s\",\n  \"digest\": \"sha256\",\n"
		       "  \"tile_rule\": %u,\n  \"compat\": [],\n"
		       "  \"ro_compat\": [],\n  \"incompat\": []\n}\n",
		       c->version, uuid, c->tile_rule);
	return out->failed ? CKPT_ENOMEM : 0;
}

static int broken(struct ckpt_err *err, const char *why)
{
	return ckb_err(err, CKPT_ECORRUPT, "ckptfs.json is damaged: %s", why);
}

/* The first name of list @key; NULL: empty. false: no list of strings. */
static bool first_feature(const json_t *root, const char *key,
			  const char **out)
{
	const json_t *list = json_object_get(root, key);

	*out = NULL;
	if (!json_is_array(list))
		return false;
	for (size_t i = 0; i < json_array_size(list); i++)
		if (!json_is_string(json_array_get(list, i)))
			return false;
	*out = json_string_value(json_array_get(list, 0));
	return true;
}

static int decode(const json_t *root, struct ckf_config *out,
		  struct ckpt_err *err)
{
	const char *format = json_string_value(json_object_get(root, "format"));
	const char *uuid = json_string_value(json_object_get(root, "uuid"));
	const char *digest = json_string_value(json_object_get(root, "digest"));
	json_int_t version = json_integer_value(json_object_get(root,
								"version"));
	json_int_t rule = json_integer_value(json_object_get(root,
							     "tile_rule"));
	const char *compat, *ro, *incompat;

	if (!format || strcmp(format, "ckptfs") != 0)
		return broken(err, "its format is not \"ckptfs\"");
	if (!first_feature(root, "compat", &compat) ||
	    !first_feature(root, "ro_compat", &ro) ||
	    !first_feature(root, "incompat", &incompat))
		return broken(err, "a feature list is missing");
	if (incompat)
		return ckb_err(err, CKPT_EVERSION, "the store uses the feature "
			       "'%s', which needs a newer ckptfs", incompat);
	if (version > CKF_FORMAT_VERSION)
		return ckb_err(err, CKPT_EVERSION, "the store has format "
			       "version %lld, which needs a newer ckptfs",
			       (long long)version);
	if (version < 1)
		return broken(err, "its version is missing");
	if (!uuid || !ckb_uuid_parse(out->uuid, uuid))
		return broken(err, "its uuid is missing or malformed");
	if (!digest || strcmp(digest, "sha256") != 0 || rule != 1)
		return ckb_err(err, CKPT_EVERSION, "the store's digest or tile "
			       "rule needs a newer ckptfs");
	out->version = (uint32_t)version;
	out->tile_rule = (uint32_t)rule;
	out->ro_only = ro != NULL;
	return 0;
}

int ckf_config_decode(const char *text, size_t len, struct ckf_config *out,
		      struct ckpt_err *err)
{
	json_error_t je;
	json_t *root = json_loadb(text, len, JSON_REJECT_DUPLICATES, &je);
	struct ckf_config c = { 0 };

	if (!root && json_error_code(&je) == json_error_out_of_memory)
		return ckb_err_nomem(err);
	if (!root)
		return ckb_err(err, CKPT_ECORRUPT, "ckptfs.json is damaged: "
			       "line %d: %s", je.line, je.text);
	int rc = decode(root, &c, err);

	json_decref(root);
	if (rc == 0)
		*out = c;
	return rc;
}

int ckf_json_object(const char *text, const char *what, struct ckpt_err *err)
{
	json_error_t je;

	if (!text)
		return 0;
	json_t *root = json_loadb(text, strlen(text),
				  JSON_REJECT_DUPLICATES | JSON_ALLOW_NUL |
				  JSON_DECODE_ANY, &je);
	if (!root && json_error_code(&je) == json_error_out_of_memory)
		return ckb_err_nomem(err);
	if (!root)
		return ckb_err(err, CKPT_EINVAL, "%s is not JSON: line %d, "
			       "column %d: %s", what, je.line, je.column,
			       je.text);
	bool object = json_is_object(root);

	json_decref(root);
	return object ? 0 : ckb_err(err, CKPT_EINVAL, "%s must be a JSON "
				    "object", what);
}

void ckf_json_string(struct ckb_buf *out, const char *text, size_t len)
{
	ckb_buf_putc(out, '"');
	for (size_t i = 0; i < len;) {
		unsigned char c = (unsigned char)text[i];
		size_t n = ckb_utf8_char(text + i, len - i);

		if (n == 0) {
			/* callers hand in UTF-8; a stray byte stays visible */
			ckb_buf_puts(out, "\\ufffd");
			n = 1;
		} else if (c == '"' || c == '\\') {
			ckb_buf_printf(out, "\\%c", c);
		} else if (c < 32 || c == 127) {
			ckb_buf_printf(out, "\\u%04x", c);
		} else {
			ckb_buf_put(out, text + i, n);
		}
		i += n;
	}
	ckb_buf_putc(out, '"');
}
