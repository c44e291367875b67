// Processes that fork, linked against libcuda. What the children say comes out under `child N`.
//
//   fork loaded BYTES           a parent that has not called cuInit; child and parent each fill what they may have
//   fork started BYTES          a parent that has, and holds memory; the child calls everything, then the parent goes on
//   fork storm CHILDREN         the same while other threads allocate, free and look functions up
//   fork generations N BYTES    each generation forks the next before it starts the driver, and once more afterwards
//   fork workers N BYTES        N children of a parent that has not called cuInit hold what they may have at the same time;
//                               they end at a line on stdin
//   fork exec HOW BYTES         a started parent; its child becomes this program as `fill`: fork | vfork | spawn
//   fork fill BYTES             fills what it may have, and says so
#define _GNU_SOURCE
#include <dlfcn.h>
#include <pthread.h>
#include <spawn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

typedef unsigned long long u64;
typedef struct { int type, handles, where, device; void *win32; unsigned char flags[8]; } allocation_prop;
extern unsigned cuInit(unsigned), cuDevicePrimaryCtxRetain(void **, int), cuDevicePrimaryCtxRelease_v2(int), cuCtxSetCurrent(void *);
extern unsigned cuMemAlloc_v2(u64 *, size_t), cuMemFree_v2(u64), cuMemAllocManaged(u64 *, size_t, unsigned), cuMemGetInfo_v2(size_t *, size_t *);
extern unsigned cuMemAllocPitch_v2(u64 *, size_t *, size_t, size_t, unsigned), cuDeviceTotalMem_v2(size_t *, int);
extern unsigned cuCtxCreate_v2(void **, unsigned, int), cuCtxDestroy_v2(void *);
extern unsigned cuMemAllocAsync(u64 *, size_t, void *), cuMemFreeAsync(u64, void *), cuMemCreate(u64 *, size_t, const allocation_prop *, u64), cuMemRelease(u64);
extern unsigned cuGetProcAddress_v2(const char *, void **, int, u64, int *);
extern char **environ;

static void *context;

static void die(const char *what, unsigned code) {
    printf("%s %u\n", what, code);
    fflush(stdout);
    _exit(70);
}

static void start(void) {
    unsigned rc;
    if ((rc = cuInit(0))) die("cuInit", rc);
    if ((rc = cuDevicePrimaryCtxRetain(&context, 0)) || (rc = cuCtxSetCurrent(context))) die("context", rc);
}

// Takes what it may have in blocks of that size.
static void fill(const char *who, size_t bytes) {
    size_t f = 0, t = 0, left = 0;
    unsigned rc, count = 0;
    u64 p;
    if ((rc = cuMemGetInfo_v2(&f, &t))) die("info", rc);
    while (!(rc = cuMemAlloc_v2(&p, bytes)) && count < 100000) count++;
    if (cuMemGetInfo_v2(&left, &t)) die("info", 1);
    printf("%s free %zu total %zu had %u then %u left %zu\n", who, f, t, count, rc, left);
    fflush(stdout);
}

// One call of everything in a child of a started parent, where the driver answers 3 whatever is asked.
static unsigned everything(void) {
    static const allocation_prop here = {1, 0, 1, 0, 0, {0}};
    u64 p = 0;
    size_t a = 0, b = 0;
    void *c = 0;
    unsigned codes[] = {
        cuMemAlloc_v2(&p, 512), cuMemAllocManaged(&p, 512, 1), cuMemAllocPitch_v2(&p, &a, 64, 64, 4), cuMemFree_v2(p),
        cuMemGetInfo_v2(&a, &b), cuDeviceTotalMem_v2(&a, 0), cuCtxCreate_v2(&c, 0, 0), cuCtxDestroy_v2(context),
        cuDevicePrimaryCtxRetain(&c, 0), cuDevicePrimaryCtxRelease_v2(0), cuMemAllocAsync(&p, 512, 0), cuMemFreeAsync(p, 0),
        cuMemCreate(&p, 2 << 20, &here, 0), cuMemRelease(p),
    };
    for (unsigned i = 0; i < sizeof codes / sizeof *codes; i++)
        if (codes[i] != 3) return 1000 * (i + 1) + codes[i];
    return 3;
}

static unsigned look(void) {
    void *handle = dlopen("libcuda.so.1", RTLD_NOW), *p = 0;
    if (!handle || !dlsym(handle, "cuMemAlloc_v2") || !dlsym(RTLD_DEFAULT, "cuMemFree_v2") || !dlsym(RTLD_DEFAULT, "malloc")) return 1;
    if (dlsym(RTLD_NEXT, "no_such_function") || !dlerror()) return 2;
    return cuGetProcAddress_v2("cuMemAlloc", &p, 12000, 0, 0) || !p ? 3 : 0;
}

// Waits for a child no longer than a few seconds: one that hangs is the failure that these tests are about.
static int end_of(pid_t child) {
    for (int i = 0; i < 4000; i++) {
        int status;
        if (waitpid(child, &status, WNOHANG) == child) return WIFEXITED(status) ? WEXITSTATUS(status) : 1000 + WTERMSIG(status);
        nanosleep(&(struct timespec){0, i < 50 ? 200000 : 5000000}, 0);
    }
    printf("child %d hangs\n", child);
    fflush(stdout);
    pause(); // for whoever wants to look; the test's timeout ends it
    return -1;
}

static volatile int stop;
static void *busy(void *number) {
    int how = (int)(size_t)number;
    if (cuCtxSetCurrent(context)) die("context", 1);
    while (!stop) {
        u64 p = 0;
        size_t f, t;
        if (how == 0) { if (!cuMemAlloc_v2(&p, 65536)) cuMemFree_v2(p); }
        else if (how == 1) { if (!cuMemAllocAsync(&p, 65536, 0)) cuMemFreeAsync(p, 0); cuMemAlloc_v2(&p, (size_t)1 << 40); }
        else if (how == 2) cuMemGetInfo_v2(&f, &t), look();
        else { void *c; if (!cuDevicePrimaryCtxRetain(&c, 0)) cuDevicePrimaryCtxRelease_v2(0); look(); }
    }
    return 0;
}

static void storm(int children) {
    pthread_t threads[4];
    start();
    for (size_t i = 0; i < 4; i++) pthread_create(&threads[i], 0, busy, (void *)i);
    for (int i = 0; i < children; i++) {
        fflush(stdout);
        pid_t child = fork();
        if (!child) {
            unsigned code = everything();
            if (code != 3) die("child's code", code);
            if ((code = look())) die("child's look-up", code);
            free(malloc(100000));
            exit(0); // with everything that is done at exit
        }
        int end = end_of(child);
        if (end) die("child ended", (unsigned)end);
    }
    stop = 1;
    for (int i = 0; i < 4; i++) pthread_join(threads[i], 0);
    printf("children %d\n", children);
}

static void generations(int left, int n, size_t bytes) {
    char who[32];
    snprintf(who, sizeof who, "generation %d", n);
    if (left) {
        fflush(stdout);
        pid_t child = fork();
        if (!child) { generations(left - 1, n + 1, bytes); exit(0); }
        if (end_of(child)) die("generation", (unsigned)n + 1);
    }
    start();
    fill(who, bytes);
    fflush(stdout);
    pid_t late = fork();
    if (!late) {
        unsigned code = cuInit(0), all = everything();
        printf("child of %s %u %u\n", who, code, all);
        exit(0);
    }
    if (end_of(late)) die("late child", (unsigned)n);
}

int main(int argc, char **argv) {
    if (argc < 3) return 64;
    size_t bytes = strtoull(argv[argc - 1], 0, 0);
    const char *what = argv[1];
    if (!strcmp(what, "fill")) start(), fill("filled", bytes);
    else if (!strcmp(what, "loaded")) {
        pid_t child = fork();
        if (!child) { start(); fill("child", bytes); exit(0); }
        printf("ended %d\n", end_of(child));
        start();
        fill("parent", bytes);
    } else if (!strcmp(what, "started")) {
        start();
        u64 p;
        if (cuMemAlloc_v2(&p, bytes)) return 70;
        pid_t child = fork();
        if (!child) { printf("child %u", everything()); printf(" %u\n", cuInit(0)); exit(0); }
        printf("ended %d\n", end_of(child));
        fflush(stdout);
        fill("parent", bytes);
        if (cuMemFree_v2(p)) return 70;
    } else if (!strcmp(what, "storm")) storm((int)bytes);
    else if (!strcmp(what, "generations")) generations(atoi(argv[2]) - 1, 0, bytes);
    else if (!strcmp(what, "workers")) {
        int n = atoi(argv[2]), go[2];
        if (pipe(go)) return 70;
        for (int i = 0; i < n; i++)
            if (!fork()) {
                char who[32], end;
                snprintf(who, sizeof who, "worker %d %d", i, getpid());
                close(go[1]);
                start();
                fill(who, bytes);
                if (read(go[0], &end, 1)) _exit(70);
                exit(0);
            }
        if (getchar() == EOF) return 70;
        close(go[1]);
        for (int i = 0, status; i < n; i++) if (wait(&status) < 0 || status) return 71;
        printf("all ended\n");
    } else if (!strcmp(what, "exec")) {
        u64 p;
        char *arguments[] = {argv[0], "fill", argv[3], 0};
        start();
        if (cuMemAlloc_v2(&p, bytes)) return 70;
        pid_t child = 0;
        if (!strcmp(argv[2], "spawn")) { if (posix_spawn(&child, argv[0], 0, 0, arguments, environ)) return 70; }
        else if (!strcmp(argv[2], "vfork")) { child = vfork(); if (!child) { execv(argv[0], arguments); _exit(71); } }
        else { child = fork(); if (!child) { execv(argv[0], arguments); _exit(71); } }
        int end = end_of(child);
        fill("parent", bytes);
        return end;
    } else return 64;
    return 0;
}
