#ifndef SERVER_SYSTEMD_H
#define SERVER_SYSTEMD_H

#include "core/error.h"

#include <stdbool.h>
#include <stdint.h>

/* What a supervisor that speaks systemd's protocol is told and gives: words to
 * the socket in NOTIFY_SOCKET, listening sockets from descriptor 3 on. Without
 * its variables nothing here does anything. Of the main thread. */

enum { SYSTEMD_LISTENERS = 2 };

/* The sockets that were handed over, in the order of the unit's lines; their
 * number, 0 without any, or -1 with an error when they are not listening
 * stream sockets, or too many. They do not block and are closed by exec. */
int systemd_listeners(int fds[SYSTEMD_LISTENERS], struct error *err);

/* "READY=1", "STOPPING=1": what is not taken at once is lost. */
void systemd_tell(const char *words);

/* Says that the process is well, when it is time to: often enough for the
 * WATCHDOG_USEC that was asked for. */
void systemd_beat(int64_t now_ns);

#endif
