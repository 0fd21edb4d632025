/* SPDX-License-Identifier: Apache-2.0 */
/*
 * module.c - memory by name: "host", or KIND:DEVICE of a module that is loaded
 * when it is asked for.
 *
 * No device's name is known here: KIND is the name of a file. It is looked for
 * where $CKPT_MODULE_DIR says, where modules are installed, and beside the
 * library; what is there and does not load is an error, with the loader's
 * words, and no reason to look further. KIND is letters, digits and '_', so
 * that a name never leads elsewhere. A module is never unloaded: its threads
 * and its driver would not survive it.
 */
#include <ctype.h>
#include <dlfcn.h>
#include <stdio.h>
#include <string.h>

#include "base/err.h"
#include "mem/mem.h"

#define KIND_MAX 32
#define PATH_BYTES 4096

/* The folder this library (or the program it is part of) lies in. */
static void own_folder(char out[PATH_BYTES])
{
	Dl_info info;
	char *end;

	*out = 0;
	if (dladdr((void *)(uintptr_t)&ckpt_memory_open, &info) == 0 ||
	    !info.dli_fname ||
	    strnlen(info.dli_fname, PATH_BYTES) == PATH_BYTES)
		return;
	snprintf(out, PATH_BYTES, "%s", info.dli_fname);
	end = strrchr(out, '/');
	if (end)
		*end = 0;
	else
		snprintf(out, PATH_BYTES, ".");
}

static int load(const char *path, const char *name, struct ckpt_memory **out,
		struct ckpt_err *err)
{
	void *so = dlopen(path, RTLD_NOW | RTLD_LOCAL);
	const struct ckpt_memory_ops *ops = NULL;
	const char *device = strchr(name, ':');
	void *ctx = NULL;

	if (!so)
		return ckb_err(err, CKPT_EIO, "memory '%s': its module does "
			       "not load: %s", name, dlerror());
	ckpt_memory_module_fn open = (ckpt_memory_module_fn)(uintptr_t)dlsym(
		so, CKPT_MEMORY_MODULE_ENTRY);

	if (!open)
		return ckb_err(err, CKPT_EVERSION, "memory '%s': '%s' is no "
			       "module for this libckpt: it lacks "
			       CKPT_MEMORY_MODULE_ENTRY, name, path);
	int rc = open(device ? device + 1 : "", &ops, &ctx, err);

	if (rc != 0)
		return ckb_err_prefix(err, rc < 0 ? rc : CKPT_EIO,
				      "memory '%s'", name);
	rc = ckpt_memory_new(name, ops, ctx, out, err);
	if (rc < 0 && ops->size > offsetof(struct ckpt_memory_ops, close) &&
	    ops->close)
		ops->close(ctx);
	return rc;
}

static int find(const char *file, const char *name, struct ckpt_memory **out,
		struct ckpt_err *err)
{
	char beside[PATH_BYTES], path[PATH_BYTES + KIND_MAX + 16];
	const char *env = secure_getenv("CKPT_MODULE_DIR");
	const char *folders[] = { env, CKPT_MODULE_DIR, beside };

	own_folder(beside);
	for (size_t i = 0; i < CKB_ARRAY_LEN(folders); i++) {
		if (!folders[i] || !*folders[i] ||
		    strnlen(folders[i], PATH_BYTES) == PATH_BYTES)
			continue;
		snprintf(path, sizeof(path), "%s/%s", folders[i], file);
		if (access(path, F_OK) == 0)
			return load(path, name, out, err);
	}
	return ckb_err(err, CKPT_ENOENT, "memory '%s': there is no module "
		       "'%s' in %s%s%s'%s' or '%s'; it is not installed, or "
		       "this libckpt was built without it", name, file,
		       env ? "'" : "", env ? env : "", env ? "', " : "",
		       CKPT_MODULE_DIR, beside);
}

int ckpt_memory_open(const char *name, struct ckpt_memory **out,
		     struct ckpt_err *err)
{
	char file[KIND_MAX + 16];
	size_t kind = strcspn(name, ":");

	*out = NULL;
	if (strcmp(name, "host") == 0)
		return ckpt_memory_host(out, err);
	for (size_t i = 0; i < kind; i++)
		if (!isalnum((unsigned char)name[i]) && name[i] != '_')
			kind = 0;
	if (kind == 0 || kind > KIND_MAX || strncmp(name, "host:", 5) == 0 ||
	    strlen(name) > CKPT_ERR_MESSAGE_BYTES / 4)
		return ckb_err(err, CKPT_EINVAL, "'%s' names no memory: "
			       "\"host\", or KIND:DEVICE as \"cuda:0\"", name);
	snprintf(file, sizeof(file), "ckpt_%.*s.so", (int)kind, name);
	return find(file, name, out, err);
}
