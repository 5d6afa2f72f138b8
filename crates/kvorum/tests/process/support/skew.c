// Preloaded into a node: moves its wall clock ahead by the nanoseconds that are the file SKEW_FILE's only number,
// which may change at any time. All other clocks stay.
//
// libfaketime would be the tool, and cannot be: when its first symbol is looked up, jemalloc, whose first allocation
// that is, asks for the time, which waits for the lookup for ever. Nothing here allocates or looks anything up.

#define _GNU_SOURCE
#include <fcntl.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <time.h>
#include <unistd.h>

static const volatile long long *ahead;

__attribute__((constructor)) static void begin(void) {
    const char *path = getenv("SKEW_FILE");
    int file = path ? open(path, O_RDONLY | O_CLOEXEC) : -1;
    void *mapped = file < 0 ? MAP_FAILED : mmap(NULL, sizeof *ahead, PROT_READ, MAP_SHARED, file, 0);
    if (mapped == MAP_FAILED) {
        _exit(99);
    }
    close(file);
    ahead = mapped;
}

int clock_gettime(clockid_t clock, struct timespec *now) {
    int result = (int)syscall(SYS_clock_gettime, clock, now);
    if (result == 0 && ahead && (clock == CLOCK_REALTIME || clock == CLOCK_REALTIME_COARSE)) {
        long long nanoseconds = now->tv_nsec + *ahead;
        now->tv_sec += nanoseconds / 1000000000;
        now->tv_nsec = nanoseconds % 1000000000;
    }
    return result;
}

int gettimeofday(struct timeval *restrict now, void *restrict zone) {
    (void)zone;
    struct timespec exact;
    int result = clock_gettime(CLOCK_REALTIME, &exact);
    now->tv_sec = exact.tv_sec;
    now->tv_usec = exact.tv_nsec / 1000;
    return result;
}

time_t time(time_t *copy) {
    struct timespec exact;
    clock_gettime(CLOCK_REALTIME, &exact);
    if (copy) {
        *copy = exact.tv_sec;
    }
    return exact.tv_sec;
}
