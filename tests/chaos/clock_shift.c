/* Moves the wall clock of one process, but no other clock. LD_PRELOAD loads it before the C library.
 * CHAOS_CLOCK names a file of eight bytes: the offset in nanoseconds, which may change at any time.
 *
 * Programs that do not read time through the C library, such as Go's, are not affected. */

#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <stdint.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <time.h>
#include <unistd.h>

#define SECOND 1000000000LL

static const volatile int64_t *ahead;

__attribute__((constructor)) static void open_clock(void) {
    const char *name = getenv("CHAOS_CLOCK");
    int file = name == NULL ? -1 : open(name, O_RDONLY | O_CLOEXEC);
    if (file < 0) return;
    void *seen = mmap(NULL, sizeof *ahead, PROT_READ, MAP_SHARED, file, 0);
    if (seen != MAP_FAILED) ahead = seen;
    close(file);
}

static int real_clock(clockid_t clock, struct timespec *out) {
    static int (*next)(clockid_t, struct timespec *);
    if (next == NULL) next = (int (*)(clockid_t, struct timespec *))dlsym(RTLD_NEXT, "clock_gettime");
    return next != NULL ? next(clock, out) : (int)syscall(SYS_clock_gettime, clock, out);
}

int clock_gettime(clockid_t clock, struct timespec *out) {
    int failed = real_clock(clock, out);
    if (failed || ahead == NULL || (clock != CLOCK_REALTIME && clock != CLOCK_REALTIME_COARSE))
        return failed;
    int64_t at = out->tv_sec * SECOND + out->tv_nsec + *ahead;
    out->tv_sec = at / SECOND;
    out->tv_nsec = at % SECOND;
    return 0;
}

int gettimeofday(struct timeval *restrict out, void *restrict zone) {
    (void)zone;
    struct timespec now;
    if (clock_gettime(CLOCK_REALTIME, &now)) return -1;
    out->tv_sec = now.tv_sec;
    out->tv_usec = now.tv_nsec / 1000;
    return 0;
}

time_t time(time_t *out) {
    struct timespec now;
    if (clock_gettime(CLOCK_REALTIME, &now)) return -1;
    if (out != NULL) *out = now.tv_sec;
    return now.tv_sec;
}
