/* SPDX-License-Identifier: Apache-2.0 */
/*
 * notify.c - sd_notify(3)'s protocol by hand: a datagram to $NOTIFY_SOCKET.
 *
 * Nothing is told when the variable is absent. Failures are only logged: a
 * mount does not depend on who started it.
 */
#include "mount/internal.h"

#include <errno.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include "base/log.h"

void ckm_notify(const char *state)
{
	struct sockaddr_un to = { .sun_family = AF_UNIX };
	const char *path = getenv("NOTIFY_SOCKET");
	size_t len = path ? strlen(path) : 0;

	if (len < 2 || len >= sizeof(to.sun_path))
		return;
	memcpy(to.sun_path, path, len);
	if (path[0] == '@')
		to.sun_path[0] = '\0'; /* an abstract name */
	int fd = socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0);

	if (fd < 0 ||
	    sendto(fd, state, strlen(state), MSG_NOSIGNAL,
		   (struct sockaddr *)&to,
		   (socklen_t)(offsetof(struct sockaddr_un, sun_path) + len))
		    < 0)
		ckb_log(CKB_WARN, "cannot tell '%s' that %s: %s", path, state,
			strerror(errno));
	if (fd >= 0)
		close(fd);
}
