// A clock that can be put forward: preloaded, its clock_gettime stands before the C library's.
#define _GNU_SOURCE
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

static long ahead;

void pass_seconds(int seconds) { ahead += seconds; }

int clock_gettime(clockid_t clock, struct timespec *now) {
    int code = (int)syscall(SYS_clock_gettime, clock, now);
    now->tv_sec += ahead;
    return code;
}
