/* SPDX-License-Identifier: Apache-2.0 */
/*
 * verbs/stage.h - the staging folder of one save, and the commit (S2-S5, S8).
 *
 *	cks_stage_open()      staging folder made and synced, flock held, then
 *	                      condemned/ and bad/ read
 *	cks_stage_pack()      a new pack in staging
 *	cks_stage_publish()   sealed pack -> packs/ab/, folders synced
 *	cks_stage_commit()    manifest written, synced, linked: the commit point
 *	cks_stage_take()      a name is taken from the file it was seen to have
 *	cks_stage_close()     removes what is left in staging
 */
#ifndef CKS_STAGE_H
#define CKS_STAGE_H

#include "verbs/store.h"

struct cks_stage;

/* Folder staging/SAVE-ATTEMPT: SAVE is 16 hex digits of SHA-256(@name),
 * ATTEMPT 32 hex digits. In it: "save.json" (name, host, pid, for people),
 * "lock" (held with flock), packs, "manifest", and what cks_stage_take()
 * looks at. */
CKB_MUST int cks_stage_open(struct ckpt_store *s, const char *name,
			    const uint8_t attempt[16], struct cks_stage **out,
			    struct ckpt_err *err);

/* May a chunk at @off of @pack be reused? Neither condemned nor bad (S8). */
bool cks_stage_reusable(const struct cks_stage *st, const uint8_t pack[16],
			uint64_t off);

/* Is any chunk of the store listed in bad/? */
bool cks_stage_bad_any(const struct cks_stage *st);

/* CKPT_EBUSY when gc is about to remove a pack that @ckpt names: it did not
 * see this save, so nothing may go on naming them under a new name (S8). */
CKB_MUST int cks_stage_keeps(const struct cks_stage *st,
			     const struct ckpt_checkpoint *ckpt,
			     struct ckpt_err *err);

/* Packs made from now on are written through @sys, which outlives them; of its
 * calls those are made that a pack in the making needs (writer/paced.c). */
void cks_stage_write_through(struct cks_stage *st, const struct ckb_sys *sys);

/* @direct: see ckc_pack_create(). */
CKB_MUST int cks_stage_pack(struct cks_stage *st, bool direct,
			    struct ckc_pack_writer **out,
			    struct ckpt_err *err);

/* Seal @w (one record at least), move it to packs/ab/, sync both folders. @w
 * is closed in any case. */
CKB_MUST int cks_stage_publish(struct cks_stage *st, struct ckc_pack_writer *w,
			       struct ckpt_err *err);

/* May @name be taken? 0; CKPT_EEXIST: what lies there, or on the way;
 * CKPT_EBUSY: what would be replaced has a tag, which protects it. */
CKB_MUST int cks_name_free(struct ckpt_store *s, const char *name,
			   bool replace, struct ckpt_err *err);

/* Publish @manifest as checkpoint @name. EEXIST with our own manifest is
 * success (retransmitted link). CKPT_EEXIST: taken by another. CKPT_EBUSY:
 * taken, and tagged. CKPT_EUNSURE: visible, the folder's sync failed. */
CKB_MUST int cks_stage_commit(struct cks_stage *st, const void *manifest,
			      size_t len, bool replace, struct ckpt_err *err);

/*
 * Take the name @path (under the store) from the file @it: by rename(2) to
 * @as in staging, looked at there and removed, so that a file that came to the
 * name meanwhile is put back, not lost; so is the file itself unless @stays is
 * there without that name. 0: the file has that name no more; CKPT_ESTALE:
 * another file has it, and keeps it; CKPT_EEXIST: @stays is that name, spelt
 * otherwise, or is gone. Syncs nothing of that name.
 */
CKB_MUST int cks_stage_take(struct cks_stage *st, const char *path,
			    const struct stat *it, const char *stays,
			    const char *as, struct ckpt_err *err);

/* Is it the same file? By inode number and device. */
bool cks_same_file(const struct stat *a, const struct stat *b);

/* Packs already published by an abandoned save stay for gc. Never fails. */
void cks_stage_close(struct cks_stage *st);

#endif
