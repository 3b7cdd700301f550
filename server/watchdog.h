#ifndef SERVER_WATCHDOG_H
#define SERVER_WATCHDOG_H

#include <pthread.h>

/* The end of a process that can't go on, with the stack that shows why on
 * standard error: of a thread that is stuck, and of one whose assertion failed.
 * Who is stuck is for others to find out. */

/* Before there are threads. */
void watchdog_init(void);

/* Ends the process by SIGABRT in this thread, or in the caller when that does
 * not run at all. Does not return. */
void watchdog_end(pthread_t thread) __attribute__((noreturn));

#endif
