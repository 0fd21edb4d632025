/* SPDX-License-Identifier: Apache-2.0 */
/* format/config.h - ckptfs.json, and our other small JSON (owns jansson.h). */
#ifndef CKF_CONFIG_H
#define CKF_CONFIG_H

#include "base/buf.h"
#include "base/err.h"

#include <ckpt/store.h>

#define CKF_FORMAT_VERSION 1u

struct ckf_config {
	uint32_t version;
	uint8_t uuid[CKPT_UUID_BYTES];
	uint32_t tile_rule;
	/* names this build does not know, "" when none; incompat ones make
	 * decode fail with CKPT_EVERSION; ro_compat ones forbid writing */
	bool ro_only;
};
CKB_MUST int ckf_config_encode(const struct ckf_config *c, struct ckb_buf *out);
CKB_MUST int ckf_config_decode(const char *text, size_t len,
			       struct ckf_config *out, struct ckpt_err *err);

/* Is @text a JSON object (strict, no duplicate keys)? CKPT_EINVAL: @what and
 * where it breaks. NULL text is fine. */
CKB_MUST int ckf_json_object(const char *text, const char *what,
			     struct ckpt_err *err);

/* @text as a JSON string with its quotes, appended to @out. */
void ckf_json_string(struct ckb_buf *out, const char *text, size_t len);

#endif
