// Programs that start, and what becomes of their stderr; linked against libcuda.
//
//   start one               waits for the end of its input, starts the driver and allocates, and prints what that took:
//                           CPU and wall microseconds, and how often it had to wait for something
//   start many N            N of these released at once: prints median and 99th percentile of each
//   start serve             starts, allocates, prints `up WALL` and holds it until the end of its input
//   start deny HOW [FILE]   asks for more than it may have after stderr has become
//     closed | pipe (nobody reads) | socket (nobody reads) | full (nobody empties it) | data (FILE has the number 2, which was
//     closed when the program began) | connection (a socket has the number 2, after CUDA was looked up)
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

typedef unsigned long long u64;
extern unsigned cuInit(unsigned), cuDevicePrimaryCtxRetain(void **, int), cuCtxSetCurrent(void *), cuMemAlloc_v2(u64 *, size_t);

static long micros(clockid_t clock) {
    struct timespec t;
    clock_gettime(clock, &t);
    return t.tv_sec * 1000000 + t.tv_nsec / 1000;
}

static void begin(void) {
    void *context;
    u64 p;
    unsigned rc = cuInit(0);
    if (!rc) rc = cuDevicePrimaryCtxRetain(&context, 0);
    if (!rc) rc = cuCtxSetCurrent(context);
    if (!rc) rc = cuMemAlloc_v2(&p, 2 << 20);
    if (rc) { printf("begin %u\n", rc); exit(70); }
}

static void one(void) {
    char end;
    struct rusage before, after;
    if (write(1, "r", 1) != 1 || read(0, &end, 1)) exit(70);
    getrusage(RUSAGE_THREAD, &before);
    long cpu = micros(CLOCK_THREAD_CPUTIME_ID), wall = micros(CLOCK_MONOTONIC);
    begin();
    cpu = micros(CLOCK_THREAD_CPUTIME_ID) - cpu, wall = micros(CLOCK_MONOTONIC) - wall;
    getrusage(RUSAGE_THREAD, &after);
    char line[64];
    // One write, so that lines of several processes do not mix.
    int n = snprintf(line, sizeof line, "\n%ld %ld %ld", cpu, wall, after.ru_nvcsw - before.ru_nvcsw);
    if (write(1, line, (size_t)n) != n) exit(70);
}

static int order(const void *a, const void *b) { long x = *(const long *)a, y = *(const long *)b; return (x > y) - (x < y); }

static int many(const char *self, int n) {
    int go[2], results[2];
    if (pipe2(go, O_CLOEXEC) || pipe2(results, O_CLOEXEC)) return 70;
    for (int i = 0; i < n; i++)
        if (!fork()) {
            dup2(go[0], 0);
            dup2(results[1], 1);
            execl(self, self, "one", (char *)0);
            _exit(71);
        }
    close(go[0]);
    close(results[1]);
    // Each says `r` when it is ready and only a number afterwards.
    for (int i = 0; i < n; i++) { char c; if (read(results[0], &c, 1) != 1 || c != 'r') return 72; }
    close(go[1]);
    long *values[3];
    for (int k = 0; k < 3; k++) values[k] = calloc((size_t)n, sizeof(long));
    FILE *in = fdopen(results[0], "r");
    for (int i = 0; i < n; i++)
        if (fscanf(in, " %ld %ld %ld", &values[0][i], &values[1][i], &values[2][i]) != 3) return 73;
    const char *names[] = {"cpu", "wall", "waits"};
    for (int k = 0; k < 3; k++) {
        qsort(values[k], (size_t)n, sizeof(long), order);
        printf("%s %ld %ld\n", names[k], values[k][n / 2], values[k][n - 1 - n / 100]);
    }
    for (int i = 0, status; i < n; i++) if (wait(&status) < 0 || status) return 74;
    return 0;
}

static int deny(const char *how, const char *file) {
    int pair[2], data = -1;
    u64 p;
    sigset_t pending, mask;
    if (!strcmp(how, "closed")) close(2);
    else if (!strcmp(how, "pipe")) { if (pipe(pair)) return 70; dup2(pair[1], 2); close(pair[0]); close(pair[1]); }
    else if (!strcmp(how, "socket")) { if (socketpair(AF_UNIX, SOCK_STREAM, 0, pair)) return 70; dup2(pair[1], 2); close(pair[0]); close(pair[1]); }
    else if (!strcmp(how, "full")) {
        char block[4096] = {0};
        if (pipe(pair)) return 70;
        fcntl(pair[1], F_SETFL, O_NONBLOCK);
        while (write(pair[1], block, sizeof block) > 0) {}
        fcntl(pair[1], F_SETFL, 0);
        dup2(pair[1], 2);
    } else if (!strcmp(how, "data")) {
        // Started with `2>&-`: the file gets the lowest number that is free.
        data = open(file, O_RDWR | O_CREAT | O_TRUNC, 0600);
        if (data != 2) return 75;
        if (write(data, "data", 4) != 4) return 70;
    }
    begin();
    if (!strcmp(how, "connection")) {
        close(2);
        if (socketpair(AF_UNIX, SOCK_STREAM, 0, pair) || pair[0] != 2) return 75;
    }
    long wall = micros(CLOCK_MONOTONIC);
    errno = 4711;
    unsigned rc = cuMemAlloc_v2(&p, (size_t)1 << 33);
    int kept = errno == 4711;
    wall = micros(CLOCK_MONOTONIC) - wall;
    sigpending(&pending);
    pthread_sigmask(SIG_BLOCK, 0, &mask);
    printf("denied %u errno %s pending %d blocked %d %s\n", rc, kept ? "kept" : "changed", sigismember(&pending, SIGPIPE),
           sigismember(&mask, SIGPIPE), wall < 1000000 ? "soon" : "late");
    if (!strcmp(how, "connection")) {
        struct pollfd other = {pair[1], POLLIN, 0};
        printf("heard %d\n", poll(&other, 1, 0));
    }
    return 0;
}

int main(int argc, char **argv) {
    if (argc < 2) return 64;
    if (!strcmp(argv[1], "one")) one();
    else if (!strcmp(argv[1], "many")) return many(argv[0], atoi(argv[2]));
    else if (!strcmp(argv[1], "deny")) return deny(argv[2], argc > 3 ? argv[3] : 0);
    else if (!strcmp(argv[1], "serve")) {
        long wall = micros(CLOCK_MONOTONIC);
        begin();
        printf("up %ld\n", micros(CLOCK_MONOTONIC) - wall);
        fflush(stdout);
        while (getchar() != EOF) {}
    } else return 64;
    return 0;
}
