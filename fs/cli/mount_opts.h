/* SPDX-License-Identifier: Apache-2.0 */
/* cli/mount_opts.h - the options of a mount. For cmd_mount.c. */
#ifndef CLI_MOUNT_OPTS_H
#define CLI_MOUNT_OPTS_H

#include "cli/cli.h"
#include "mount/mount.h"

/* "a,b=c" into @opts, which borrows from @list. @helper: mount(8) wrote it;
 * @sloppy: pass over what is unknown. 0, or an exit code after a sentence. */
int cli_mount_options(const struct cli *cli, char *list, bool helper,
		      bool sloppy, struct ckm_opts *opts);

#endif
