#include "server/watchdog.h"

#include "server/clock.h"

#include <execinfo.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { FRAMES = 64 };

/* Back to the default after the first, which then ends the process. */
static void on_abort(int signal)
{
    static const char head[] = "attnd: aborted; addr2line -e attnd tells the "
                               "lines of this stack:\n";
    void *frame[FRAMES];

    (void)!write(STDERR_FILENO, head, sizeof head - 1);
    backtrace_symbols_fd(frame, backtrace(frame, FRAMES), STDERR_FILENO);
    raise(signal);
}

/* The first backtrace() loads a library, which a signal handler must not. */
void watchdog_init(void)
{
    struct sigaction action = { .sa_handler = on_abort,
                                .sa_flags = (int)(SA_RESETHAND | SA_NODEFER) };
    void *frame[1];

    backtrace(frame, 1);
    sigaction(SIGABRT, &action, NULL);
}

void watchdog_end(pthread_t thread)
{
    pthread_kill(thread, SIGABRT);
    clock_sleep_ns(CLOCK_NS_PER_S);
    abort();
}
