#ifndef TESTS_FAULTS_BROKEN_BROKEN_H
#define TESTS_FAULTS_BROKEN_BROKEN_H

#include <stdatomic.h>
#include <stdint.h>

/* What a test and the daemon that it breaks have in common: a page of memory,
 * mapped from the file that the variable BREAK_FILE names.
 *
 * broken.c, linked into a daemon for tests, counts there each call by which the
 * daemon, libmicrohttpd or jansson asks for memory, a file, a connection, a
 * thread or a lock, and lets the chosen one fail as it would fail on a full
 * machine. What libc and BLAS ask for by themselves is not counted. The time of
 * day can be made to jump for all but libc. */
struct broken {
    _Atomic int64_t calls;   /* so far; the test sets it to 0 */
    _Atomic int64_t memory;   /* those for memory alone; the same */
    _Atomic int64_t fails_at; /* the call that fails, from 1; 0: none */
    atomic_bool fails_on;    /* and all after it */
    _Atomic int64_t failed;  /* how many have */
    _Atomic int64_t jump_s;  /* what the time of day is off by */
    char hangs_in[32];       /* calls of this name never return; "": none */
    char first[32];          /* name of the first that has */
};

#endif
