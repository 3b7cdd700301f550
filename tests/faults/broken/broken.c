#include "tests/faults/broken/broken.h"

#include <errno.h>
#include <fcntl.h>
#include <link.h>
#include <pthread.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

/* Stands before libc. The linker's --wrap sends the daemon's own calls here;
 * those of the two libraries come since the program's symbols are found first,
 * and are told from others by where they return to. */

/* Read by threads that are still at work while the process ends. */
static struct broken *_Atomic shared;

__attribute__((constructor)) static void find_shared(void)
{
    const char *path = getenv("BREAK_FILE");
    int fd = path == NULL ? -1 : open(path, O_RDWR | O_CLOEXEC);
    void *page;

    if (fd < 0)
        return;
    page = mmap(NULL, sizeof(struct broken), PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    close(fd);
    if (page != MAP_FAILED)
        shared = page;
}

/* A process that ends is left in peace: gcov writes its counts then. */
__attribute__((destructor)) static void lose_shared(void)
{
    shared = NULL;
}

static bool must_fail(const char *name, int why)
{
    struct broken *with = atomic_load(&shared);
    int64_t call, at;

    if (with == NULL)
        return false;
    atomic_fetch_add(&with->memory, why == ENOMEM);
    while (strcmp(name, with->hangs_in) == 0)
        pause();
    call = atomic_fetch_add(&with->calls, 1) + 1;
    at = atomic_load(&with->fails_at);
    if (at == 0 || call < at || (call > at && !atomic_load(&with->fails_on)))
        return false;
    if (atomic_fetch_add(&with->failed, 1) == 0)
        snprintf(with->first, sizeof with->first, "%s", name);
    errno = why;
    return true;
}

/* A function that returns a pointer or a descriptor, and its failure. */
#define BREAK(type, name, parameters, arguments, failure, why)                 \
    type __real_##name parameters;                                             \
    type __wrap_##name parameters;                                             \
    type __wrap_##name parameters                                              \
    {                                                                          \
        return must_fail(#name, why) ? (failure) : __real_##name arguments;    \
    }

BREAK(void *, malloc, (size_t bytes), (bytes), NULL, ENOMEM)
BREAK(void *, calloc, (size_t count, size_t bytes), (count, bytes), NULL, ENOMEM)
BREAK(void *, realloc, (void *old, size_t bytes), (old, bytes), NULL, ENOMEM)
BREAK(void *, aligned_alloc, (size_t alignment, size_t bytes),
      (alignment, bytes), NULL, ENOMEM)
BREAK(ssize_t, read, (int fd, void *out, size_t bytes), (fd, out, bytes), -1, EIO)
BREAK(FILE *, fopen, (const char *path, const char *mode), (path, mode), NULL,
      EMFILE)
BREAK(int, fstat, (int fd, struct stat *out), (fd, out), -1, EIO)
BREAK(int, accept4, (int fd, struct sockaddr *address, socklen_t *len, int flags),
      (fd, address, len, flags), -1, EMFILE)
BREAK(int, socket, (int family, int type, int protocol),
      (family, type, protocol), -1, EMFILE)
BREAK(int, epoll_create1, (int flags), (flags), -1, EMFILE)
BREAK(int, pthread_create,
      (pthread_t *thread, const pthread_attr_t *attributes,
       void *(*run)(void *), void *arg),
      (thread, attributes, run, arg), EAGAIN, EAGAIN)
BREAK(int, pthread_mutex_init,
      (pthread_mutex_t *mutex, const pthread_mutexattr_t *attributes),
      (mutex, attributes), ENOMEM, ENOMEM)
BREAK(int, pthread_cond_init,
      (pthread_cond_t *cond, const pthread_condattr_t *attributes),
      (cond, attributes), ENOMEM, ENOMEM)
BREAK(int, pthread_rwlock_init,
      (pthread_rwlock_t *lock, const pthread_rwlockattr_t *attributes),
      (lock, attributes), ENOMEM, ENOMEM)

/* These take a mode only when they create, which the daemon never does. */
int __real_open(const char *path, int flags, ...);
int __wrap_open(const char *path, int flags, ...);
int __real_openat(int folder, const char *path, int flags, ...);
int __wrap_openat(int folder, const char *path, int flags, ...);

int __wrap_open(const char *path, int flags, ...)
{
    return must_fail("open", EMFILE) ? -1 : __real_open(path, flags);
}

int __wrap_openat(int folder, const char *path, int flags, ...)
{
    return must_fail("openat", EMFILE) ? -1 : __real_openat(folder, path, flags);
}

/* Found before libc's by the libraries too. */
int clock_gettime(clockid_t id, struct timespec *out)
{
    struct broken *with = atomic_load(&shared);
    int status = (int)syscall(SYS_clock_gettime, id, out);

    if (with != NULL && (id == CLOCK_REALTIME || id == CLOCK_REALTIME_COARSE))
        out->tv_sec += atomic_load(&with->jump_s);
    return status;
}

time_t time(time_t *out)
{
    struct timespec now;

    clock_gettime(CLOCK_REALTIME, &now);
    if (out != NULL)
        *out = now.tv_sec;
    return now.tv_sec;
}

/* A sanitizer has its own malloc, which must stay the first. */
#if !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)

void *__libc_malloc(size_t bytes);
void *__libc_calloc(size_t count, size_t bytes);
void *__libc_realloc(void *old, size_t bytes);

static struct range {
    uintptr_t first, end;
} ranges[2];

static int note_library(struct dl_phdr_info *library, size_t size, void *arg)
{
    int *count = arg;

    (void)size;
    if (strstr(library->dlpi_name, "libmicrohttpd") == NULL &&
        strstr(library->dlpi_name, "libjansson") == NULL)
        return 0;
    for (int i = 0; i < library->dlpi_phnum && *count < 2; i++) {
        const ElfW(Phdr) *part = &library->dlpi_phdr[i];

        if (part->p_type == PT_LOAD && (part->p_flags & PF_X) != 0)
            ranges[(*count)++] =
                (struct range){ library->dlpi_addr + part->p_vaddr,
                                library->dlpi_addr + part->p_vaddr +
                                    part->p_memsz };
    }
    return 0;
}

__attribute__((constructor)) static void find_libraries(void)
{
    int count = 0;

    dl_iterate_phdr(note_library, &count);
}

static bool is_library(const void *caller)
{
    uintptr_t at = (uintptr_t)caller;

    return (at >= ranges[0].first && at < ranges[0].end) ||
           (at >= ranges[1].first && at < ranges[1].end);
}

#define CALLED_BY_LIBRARY is_library(__builtin_return_address(0))

void *malloc(size_t bytes)
{
    return CALLED_BY_LIBRARY && must_fail("library malloc", ENOMEM)
               ? NULL
               : __libc_malloc(bytes);
}

void *calloc(size_t count, size_t bytes)
{
    return CALLED_BY_LIBRARY && must_fail("library calloc", ENOMEM)
               ? NULL
               : __libc_calloc(count, bytes);
}

void *realloc(void *old, size_t bytes)
{
    return CALLED_BY_LIBRARY && must_fail("library realloc", ENOMEM)
               ? NULL
               : __libc_realloc(old, bytes);
}

/* libmicrohttpd maps each connection's memory. */
void *mmap(void *address, size_t bytes, int protection, int flags, int fd,
           off_t offset)
{
    if (CALLED_BY_LIBRARY && must_fail("library mmap", ENOMEM))
        return MAP_FAILED;
    return (void *)syscall(SYS_mmap, address, bytes, protection, flags, fd,
                           offset);
}

#endif
