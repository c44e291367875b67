// Threads whose memory begins and ends in every way at once, linked against libcuda.
//
//   lifetimes ROUNDS KIND...    one thread for each KIND
//
// own:D       a context of its own on device D, destroyed with some of its memory in it
// shared:D    the primary context of device D, retained and released, its memory freed before
// doomed:D    the same, its memory left to die with the context
// reset:D     resets the primary context of device D, now and then
// pool:D      a pool of its own, destroyed with some of its memory in use, which is freed later
// physical:D  physical memory, mapped, released and unmapped in any order
//
// At the end it prints for both devices `end FREE TOTAL`, fills each with blocks of 2 MiB, and prints `filled COUNT`.
#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

typedef unsigned long long u64;
typedef struct { int type, id; } location;
typedef struct { int type, handles; location where; void *win32; unsigned char flags[8]; } allocation_prop;
typedef struct { int type, handles; location where; void *win32; size_t max; unsigned short usage; unsigned char rest[54]; } pool_props;
extern unsigned cuInit(unsigned), cuCtxCreate_v2(void **, unsigned, int), cuCtxDestroy_v2(void *), cuCtxSetCurrent(void *);
extern unsigned cuDevicePrimaryCtxRetain(void **, int), cuDevicePrimaryCtxRelease_v2(int), cuDevicePrimaryCtxReset_v2(int);
extern unsigned cuMemAlloc_v2(u64 *, size_t), cuMemFree_v2(u64), cuMemAllocManaged(u64 *, size_t, unsigned);
extern unsigned cuMemAllocPitch_v2(u64 *, size_t *, size_t, size_t, unsigned), cuMemGetInfo_v2(size_t *, size_t *);
extern unsigned cuMemCreate(u64 *, size_t, const allocation_prop *, u64), cuMemRelease(u64);
extern unsigned cuMemAddressReserve(u64 *, size_t, size_t, u64, u64), cuMemAddressFree(u64, size_t);
extern unsigned cuMemMap(u64, size_t, size_t, u64, u64), cuMemUnmap(u64, size_t);
extern unsigned cuMemAllocFromPoolAsync(u64 *, size_t, void *, void *), cuMemFreeAsync(u64, void *);
extern unsigned cuMemPoolCreate(void **, const pool_props *), cuMemPoolDestroy(void *), cuStreamSynchronize(void *);

#define MIB ((size_t)1 << 20)
static int rounds;
static _Thread_local u64 chance;

static unsigned below(unsigned n) {
    chance ^= chance >> 12, chance ^= chance << 25, chance ^= chance >> 27;
    return (unsigned)((chance * 0x2545f4914f6cdd1dull) >> 33) % n;
}

// Any code but those that are to be expected ends the program.
static unsigned fine(const char *what, unsigned rc, unsigned other) {
    if (rc && rc != other) {
        printf("%s %u\n", what, rc);
        fflush(stdout);
        _Exit(70);
    }
    return rc;
}

// Up to four blocks of the current context; `other`: what else than a refusal may come.
static int take(u64 *blocks, unsigned other) {
    int count = 0;
    for (unsigned n = 1 + below(4); n; n--) {
        size_t pitch, bytes = below(3) ? 1 + below(2 * MIB) : 1 + below(9000);
        unsigned kind = below(3);
        unsigned rc = kind == 0   ? cuMemAlloc_v2(&blocks[count], bytes)
                      : kind == 1 ? cuMemAllocManaged(&blocks[count], bytes, 1)
                                  : cuMemAllocPitch_v2(&blocks[count], &pitch, 512, 1 + bytes / 512, 4);
        if (rc != 2 && !fine("alloc", rc, other)) count++;
    }
    return count;
}

static void own(int device) {
    void *context;
    u64 blocks[4];
    fine("create", cuCtxCreate_v2(&context, 0, device), 0);
    for (int n = take(blocks, 0); n > 0; n--) if (below(2)) fine("free", cuMemFree_v2(blocks[n - 1]), 0);
    fine("destroy", cuCtxDestroy_v2(context), 0);
}

static void shared(int device, int dies) {
    void *context;
    u64 blocks[4];
    fine("retain", cuDevicePrimaryCtxRetain(&context, device), 0);
    fine("set", cuCtxSetCurrent(context), 0);
    int count = take(blocks, dies ? 709 : 0);
    if (!dies) while (count > 0) fine("free", cuMemFree_v2(blocks[--count]), 0);
    fine("release", cuDevicePrimaryCtxRelease_v2(device), 0);
}

static void pool(int device) {
    void *context, *pool;
    u64 blocks[3];
    int count = 0;
    pool_props props = {1, 0, {1, device}, 0, 0, 0, {0}};
    fine("retain", cuDevicePrimaryCtxRetain(&context, device), 0);
    fine("set", cuCtxSetCurrent(context), 0);
    fine("pool", cuMemPoolCreate(&pool, &props), 0);
    while (count < 3 && !fine("frompool", cuMemAllocFromPoolAsync(&blocks[count], 1 + below(3 * MIB), pool, 0), 2)) count++;
    if (count && below(2)) fine("free async", cuMemFreeAsync(blocks[--count], 0), 0);
    fine("destroy pool", cuMemPoolDestroy(pool), 0);
    while (count > 0) {
        count--;
        fine("free async", below(2) ? cuMemFreeAsync(blocks[count], 0) : cuMemFree_v2(blocks[count]), 0);
    }
    fine("sync", cuStreamSynchronize(0), 0);
    fine("release", cuDevicePrimaryCtxRelease_v2(device), 0);
}

static void physical(int device) {
    u64 handle, at[2];
    size_t size = (1 + below(3)) * 2 * MIB;
    allocation_prop prop = {1, 0, {1, device}, 0, {0}};
    if (fine("physical", cuMemCreate(&handle, size, &prop, 0), 2)) return;
    int maps = (int)below(3), released = 0;
    for (int i = 0; i < maps; i++) {
        fine("reserve", cuMemAddressReserve(&at[i], size, 0, 0, 0), 0);
        fine("map", cuMemMap(at[i], size, 0, handle, 0), 0);
    }
    for (int i = 0; i < maps; i++) {
        if (!released && below(2)) released = 1, fine("release handle", cuMemRelease(handle), 0);
        fine("unmap", cuMemUnmap(at[i], size), 0);
        fine("free address", cuMemAddressFree(at[i], size), 0);
    }
    if (!released) fine("release handle", cuMemRelease(handle), 0);
}

static void *live(void *argument) {
    const char *kind = argument, *colon = strchr(kind, ':');
    int device = colon ? atoi(colon + 1) : 0;
    static unsigned seeds;
    chance = 0x9e3779b97f4a7c15ull * (1 + __atomic_fetch_add(&seeds, 1, __ATOMIC_RELAXED)) | 1;
    for (int round = 0; round < rounds; round++) {
        if (*kind == 'o') own(device);
        else if (*kind == 's') shared(device, 0);
        else if (*kind == 'd') shared(device, 1);
        else if (!strncmp(kind, "po", 2)) pool(device);
        else if (!strncmp(kind, "ph", 2)) physical(device);
        else if (round % 16 == 0) fine("reset", cuDevicePrimaryCtxReset_v2(device), 0);
    }
    return 0;
}

int main(int argc, char **argv) {
    if (argc < 3 || cuInit(0)) return 64;
    rounds = atoi(argv[1]);
    pthread_t threads[16];
    for (int i = 2; i < argc && i < 18; i++) pthread_create(&threads[i - 2], 0, live, argv[i]);
    for (int i = 2; i < argc && i < 18; i++) pthread_join(threads[i - 2], 0);
    for (int device = 0; device < 2; device++) {
        void *context;
        size_t free = 0, total = 0;
        u64 block;
        int count = 0;
        fine("retain", cuDevicePrimaryCtxRetain(&context, device), 0);
        fine("set", cuCtxSetCurrent(context), 0);
        fine("info", cuMemGetInfo_v2(&free, &total), 0);
        printf("end %zu %zu\n", free, total);
        while (!fine("fill", cuMemAlloc_v2(&block, 2 * MIB), 2)) count++;
        printf("filled %d\n", count);
    }
    return 0;
}
