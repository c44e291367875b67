// Threads that race for the last bytes, linked against libcuda.
//
//   race last FIT ROUNDS BYTES ENTRY...    each round 8 threads ask once; thread i asks through ENTRY[i mod n]; all that was had
//                                          is freed after the round. Of those that the driver did not fail, FIT must have it.
//   race mixed ROUNDS LIMIT ENTRY...       the sizes differ by thread and round: nobody whose bytes still fit was refused
//   race churn OPERATIONS ENTRY...         allocations and frees, also of what another thread allocated
//
// ENTRY: alloc | pitch | managed | create | async | frompool. At the end it prints `held FREE TOTAL`, with what churn left
// live, waits for a line, frees everything, prints `freed FREE TOTAL`, and waits for the end of its input.
#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

typedef unsigned long long u64;
typedef struct { int type, id; } location;
typedef struct { int type, handles; location where; void *win32; unsigned char flags[8]; } allocation_prop;
typedef struct { int type, handles; location where; void *win32; size_t max; unsigned short usage; unsigned char rest[54]; } pool_props;
extern unsigned cuInit(unsigned), cuDevicePrimaryCtxRetain(void **, int), cuCtxSetCurrent(void *);
extern unsigned cuMemAlloc_v2(u64 *, size_t), cuMemFree_v2(u64), cuMemAllocManaged(u64 *, size_t, unsigned);
extern unsigned cuMemAllocPitch_v2(u64 *, size_t *, size_t, size_t, unsigned);
extern unsigned cuMemCreate(u64 *, size_t, const allocation_prop *, u64), cuMemRelease(u64);
extern unsigned cuMemAllocAsync(u64 *, size_t, void *), cuMemFreeAsync(u64, void *), cuStreamSynchronize(void *);
extern unsigned cuMemAllocFromPoolAsync(u64 *, size_t, void *, void *), cuMemPoolCreate(void **, const pool_props *);
extern unsigned cuMemPoolTrimTo(void *, size_t), cuDeviceGetDefaultMemPool(void **, int), cuMemGetInfo_v2(size_t *, size_t *);

#define THREADS 8
#define CANARY 0x5ca1ab1e5ca1ab1eull

static void *context, *pool;
static char **entries;
static int entry_count;
static pthread_barrier_t line;

struct block { u64 value; char kind; };

static unsigned take(const char *entry, size_t bytes, struct block *b) {
    static const allocation_prop here = {1, 0, {1, 0}, 0, {0}};
    size_t pitch = 0;
    u64 p = CANARY;
    unsigned rc;
    b->kind = 'l';
    if (!strcmp(entry, "alloc")) rc = cuMemAlloc_v2(&p, bytes);
    else if (!strcmp(entry, "managed")) rc = cuMemAllocManaged(&p, bytes, 1);
    else if (!strcmp(entry, "pitch")) rc = cuMemAllocPitch_v2(&p, &pitch, bytes < 512 ? bytes : 512, bytes < 512 ? 1 : bytes / 512, 4);
    else if (!strcmp(entry, "create")) rc = cuMemCreate(&p, (bytes + 0x1fffff) & ~(size_t)0x1fffff, &here, 0), b->kind = 'h';
    else if (!strcmp(entry, "async")) rc = cuMemAllocAsync(&p, bytes, 0), b->kind = 'a';
    else if (!strcmp(entry, "frompool")) rc = cuMemAllocFromPoolAsync(&p, bytes, pool, 0), b->kind = 'a';
    else { fprintf(stderr, "race: %s?\n", entry); exit(64); }
    if (rc && p != CANARY) { printf("touched %s %u\n", entry, rc); exit(70); }
    b->value = rc ? 0 : p;
    return rc;
}

static void give(struct block *b) {
    if (!b->value) return;
    unsigned rc = b->kind == 'h' ? cuMemRelease(b->value) : b->kind == 'a' ? cuMemFreeAsync(b->value, 0) : cuMemFree_v2(b->value);
    if (rc) { printf("free %c %u\n", b->kind, rc); exit(70); }
    b->value = 0;
}

static const char *entry_of(int i) { return entries[i % entry_count]; }

static u64 next(u64 *seed) {
    *seed ^= *seed << 13; *seed ^= *seed >> 7; *seed ^= *seed << 17;
    return *seed;
}

// --- last and mixed ---
static int rounds, fit, mixed;
static size_t bytes_each;
static u64 limit;
static unsigned codes[THREADS];
static size_t asked[THREADS];
static struct block had[THREADS];

static u64 charge(size_t bytes) { u64 step = bytes < 1 << 20 ? 512 : 2 << 20; return (bytes + step - 1) / step * step; }

static void *racer(void *number) {
    int i = (int)(intptr_t)number;
    u64 seed = 88172645463325252ull * (2 * (u64)i + 1);
    if (cuCtxSetCurrent(context)) exit(70);
    for (int round = 0; round < rounds; round++) {
        // From 512 bytes to limit/2, small and large ones.
        asked[i] = !mixed ? bytes_each : next(&seed) % 3 ? 512 * (1 + next(&seed) % 2047) : next(&seed) % (limit / 2) + 1;
        pthread_barrier_wait(&line);
        codes[i] = take(entry_of(i), asked[i], &had[i]);
        pthread_barrier_wait(&line);
        pthread_barrier_wait(&line); // main judges
        give(&had[i]);
        if (entry_of(i)[0] == 'a' && entry_of(i)[1] == 's') cuStreamSynchronize(0);
        pthread_barrier_wait(&line);
        if (!i && pool) cuMemPoolTrimTo(pool, 0);
    }
    return 0;
}

static int race(void) {
    pthread_t threads[THREADS];
    int wrong = 0, refused = 0, failed = 0;
    pthread_barrier_init(&line, 0, THREADS + 1);
    for (int i = 0; i < THREADS; i++) pthread_create(&threads[i], 0, racer, (void *)(intptr_t)i);
    for (int round = 0; round < rounds; round++) {
        int ok = 0, other = 0;
        u64 sum = 0;
        pthread_barrier_wait(&line);
        pthread_barrier_wait(&line);
        for (int i = 0; i < THREADS; i++) {
            if (!codes[i]) ok++, sum += charge(asked[i]);
            else if (codes[i] == 2) refused++;
            else other++, failed++;
        }
        if (!mixed) {
            int want = THREADS - other < fit ? THREADS - other : fit;
            if (ok != want && wrong++ < 10) printf("round %d: %d had it, not %d (%d failed)\n", round, ok, want, other);
        } else {
            if (sum > limit && wrong++ < 10) printf("round %d: %llu given, the limit is %llu\n", round, sum, limit);
            for (int i = 0; i < THREADS; i++)
                if (codes[i] == 2 && sum + charge(asked[i]) <= limit && wrong++ < 10)
                    printf("round %d: %s of %zu refused, %llu given, the limit is %llu\n", round, entry_of(i), asked[i], sum, limit);
        }
        pthread_barrier_wait(&line);
        pthread_barrier_wait(&line);
    }
    for (int i = 0; i < THREADS; i++) pthread_join(threads[i], 0);
    printf("rounds %d wrong %d refused %d failed %d\n", rounds, wrong, refused, failed);
    return wrong;
}

// --- churn ---
#define SLOTS 256
static struct block slots[SLOTS];
static pthread_mutex_t locks[SLOTS];
static long operations;
static long totals[3];

static void *churner(void *number) {
    u64 seed = 0x9e3779b97f4a7c15ull * (2 * (u64)(intptr_t)number + 1);
    long counts[3] = {0};
    if (cuCtxSetCurrent(context)) exit(70);
    for (long n = 0; n < operations; n++) {
        int at = (int)(next(&seed) % SLOTS);
        struct block mine = {0, 0};
        // Taken out under the slot's lock, freed outside it: the driver may give the address to somebody else meanwhile.
        pthread_mutex_lock(&locks[at]);
        struct block old = slots[at];
        slots[at].value = 0;
        pthread_mutex_unlock(&locks[at]);
        if (old.value) { give(&old); continue; }
        size_t bytes = next(&seed) % 4 ? 1 + next(&seed) % 65536 : 1 + next(&seed) % (5 << 20);
        unsigned rc = take(entry_of((int)(next(&seed) % 64)), bytes, &mine);
        counts[!rc ? 0 : rc == 2 ? 1 : 2]++;
        pthread_mutex_lock(&locks[at]);
        struct block there = slots[at];
        slots[at] = rc ? there : mine;
        pthread_mutex_unlock(&locks[at]);
        if (!rc) give(&there);
        if (!(n % 64)) { size_t f, t; cuMemGetInfo_v2(&f, &t); }
    }
    for (int k = 0; k < 3; k++) __atomic_fetch_add(&totals[k], counts[k], __ATOMIC_RELAXED);
    return 0;
}

static void churn(void) {
    pthread_t threads[THREADS];
    for (int i = 0; i < SLOTS; i++) pthread_mutex_init(&locks[i], 0);
    for (int i = 0; i < THREADS; i++) pthread_create(&threads[i], 0, churner, (void *)(intptr_t)i);
    for (int i = 0; i < THREADS; i++) pthread_join(threads[i], 0);
    printf("churned ok %ld refused %ld failed %ld\n", totals[0], totals[1], totals[2]);
}

static void say(const char *what) {
    size_t f = 0, t = 0;
    unsigned rc = cuMemGetInfo_v2(&f, &t);
    printf("%s %zu %zu\n", what, f, t);
    if (rc) exit(70);
    fflush(stdout);
}

int main(int argc, char **argv) {
    char word[16];
    int wrong = 0, first;
    if (argc < 4 || cuInit(0) || cuDevicePrimaryCtxRetain(&context, 0) || cuCtxSetCurrent(context)) return 70;
    if (!strcmp(argv[1], "last")) first = 5, fit = atoi(argv[2]), rounds = atoi(argv[3]), bytes_each = strtoull(argv[4], 0, 0);
    else if (!strcmp(argv[1], "mixed")) first = 4, mixed = 1, rounds = atoi(argv[2]), limit = strtoull(argv[3], 0, 0);
    else first = 3, operations = atol(argv[2]);
    entries = argv + first;
    entry_count = argc - first;
    if (entry_count < 1) return 64;
    for (int i = 0; i < entry_count; i++)
        if (!strcmp(entries[i], "frompool") && !pool) {
            pool_props here = {1, 0, {1, 0}, 0, 0, 0, {0}};
            if (cuMemPoolCreate(&pool, &here)) return 70;
        }
    if (operations) churn();
    else wrong = race();
    say("held");
    if (!fgets(word, sizeof word, stdin)) return 70;
    for (int i = 0; i < SLOTS; i++) give(&slots[i]);
    void *usual;
    if (!cuDeviceGetDefaultMemPool(&usual, 0)) cuMemPoolTrimTo(usual, 0);
    if (pool) cuMemPoolTrimTo(pool, 0);
    say("freed");
    if (fgets(word, sizeof word, stdin)) return 64;
    return wrong ? 1 : 0;
}
