// A random program of four threads over two devices, linked against libcuda.
//
//   random SEED STEPS come|stay       come: contexts come and go; stay: those made before the first step stay, with a module in each
//
// Memory lies in slots that all threads share, so that anybody frees what another one allocated, in whatever context is
// current. Every 500 steps all threads stop; then it prints `quiet FREE TOTAL FREE TOTAL` and waits for a line, asks for 2 MiB
// on each device, prints `probe CODE CODE`, and waits for a line. At the end everything is given back, and it prints
// `end FREE TOTAL FREE TOTAL`. Between these lines `code ENTRY CODE` tells of every answer but 0 that an entry gave, once.
#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

typedef unsigned long long u64;
typedef struct { int type, id; } location;
typedef struct { int type, handles; location where; void *win32; unsigned char flags[8]; } allocation_prop;
typedef struct { int type, handles; location where; void *win32; size_t max; unsigned short usage; unsigned char rest[54]; } pool_props;
typedef struct { size_t width, height; unsigned format, channels; } shape;
typedef struct { unsigned width, height, format, channels; } shape_v1;
typedef struct { size_t width, height, depth; unsigned format, channels, flags; } shape_3d;
typedef struct { unsigned width, height, depth, format, channels, flags; } shape_3d_v1;
typedef struct { pool_props props; const void *access; size_t count, bytes; u64 address; } node_params;
_Static_assert(sizeof(pool_props) == 88 && sizeof(node_params) == 120, "as in cuda.h");

extern unsigned cuInit(unsigned), cuCtxCreate_v2(void **, unsigned, int), cuCtxDestroy_v2(void *), cuCtxSetCurrent(void *);
extern unsigned cuDevicePrimaryCtxRetain(void **, int), cuDevicePrimaryCtxRelease_v2(int);
extern unsigned cuMemAlloc(unsigned *, unsigned), cuMemAlloc_v2(u64 *, size_t), cuMemFree(unsigned), cuMemFree_v2(u64);
extern unsigned cuMemAllocManaged(u64 *, size_t, unsigned), cuMemAllocPitch_v2(u64 *, size_t *, size_t, size_t, unsigned);
extern unsigned cuMemAllocAsync(u64 *, size_t, void *), cuMemAllocFromPoolAsync(u64 *, size_t, void *, void *), cuMemFreeAsync(u64, void *);
extern unsigned cuMemPoolCreate(void **, const pool_props *), cuMemPoolDestroy(void *), cuMemPoolTrimTo(void *, size_t);
extern unsigned cuDeviceGetDefaultMemPool(void **, int), cuStreamSynchronize(void *), cuMemGetInfo_v2(size_t *, size_t *);
extern unsigned cuMemCreate(u64 *, size_t, const allocation_prop *, u64), cuMemRelease(u64), cuMemRetainAllocationHandle(u64 *, void *);
extern unsigned cuMemAddressReserve(u64 *, size_t, size_t, u64, u64), cuMemAddressFree(u64, size_t);
extern unsigned cuMemMap(u64, size_t, size_t, u64, u64), cuMemUnmap(u64, size_t);
extern unsigned cuArrayCreate(void **, const shape_v1 *), cuArrayCreate_v2(void **, const shape *), cuArrayDestroy(void *);
extern unsigned cuArray3DCreate(void **, const shape_3d_v1 *), cuArray3DCreate_v2(void **, const shape_3d *);
extern unsigned cuMipmappedArrayCreate(void **, const shape_3d *, unsigned), cuMipmappedArrayDestroy(void *);
extern unsigned cuGraphCreate(void **, unsigned), cuGraphAddMemAllocNode(void **, void *, void *const *, size_t, node_params *);
extern unsigned cuGraphInstantiateWithFlags(void **, void *, u64), cuGraphLaunch(void *, void *), cuGraphExecDestroy(void *);
extern unsigned cuGraphDestroy(void *), cuDeviceGraphMemTrim(int), cuModuleLoadData(void **, const void *);

#define MIB ((size_t)1 << 20)
#define THREADS 4
#define SHARED 64
#define OWN 16 // slots of each thread's own, for memory that dies with a context of its own
#define SLOTS (SHARED + THREADS * OWN)
#define RUN 125 // steps of a thread between two quiet points

// l: linear; 1: linear from a 32-bit call; a: stream-ordered; h: physical, `at` = where it is mapped; r, m: array, mipmapped array.
struct thing { char kind; u64 value, at; size_t size; void *owner; };
static struct thing slots[SLOTS];
static pthread_mutex_t locks[SLOTS];
static pthread_barrier_t line;
static int stay, steps;
static u64 seed;

// What a thread holds: its contexts, the primary contexts that it retained, its pools; and which context is current.
struct self { void *own[2], *primary[2], *pool[2], *current; int device; };
static struct self selves[THREADS];
static _Thread_local struct self *me;
static _Thread_local u64 chance;

static unsigned below(unsigned n) {
    chance ^= chance >> 12, chance ^= chance << 25, chance ^= chance >> 27;
    return (unsigned)((chance * 0x2545f4914f6cdd1dull) >> 33) % n;
}

static struct { const char *entry; unsigned rc; } told[512];
static unsigned tell(const char *entry, unsigned rc) {
    static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
    if (!rc) return 0;
    pthread_mutex_lock(&lock);
    int i = 0;
    while (i < 511 && told[i].entry && (told[i].rc != rc || strcmp(told[i].entry, entry))) i++;
    if (i < 511 && !told[i].entry) told[i].entry = entry, told[i].rc = rc, printf("code %s %u\n", entry, rc);
    pthread_mutex_unlock(&lock);
    return rc;
}
#define CALL(function, ...) tell(#function, function(__VA_ARGS__))

static unsigned private_slot(void) { return SHARED + (unsigned)(me - selves) * OWN + below(OWN); }

static struct thing taken(void) {
    unsigned at = below(3) ? below(SHARED) : private_slot();
    pthread_mutex_lock(&locks[at]);
    struct thing thing = slots[at];
    slots[at].kind = 0;
    pthread_mutex_unlock(&locks[at]);
    return thing;
}

static int give(struct thing *t);

// Puts a thing into a slot; what was there is given back.
static void put(struct thing thing) {
    unsigned at = thing.owner ? private_slot() : below(SHARED);
    pthread_mutex_lock(&locks[at]);
    struct thing old = slots[at];
    slots[at] = thing;
    pthread_mutex_unlock(&locks[at]);
    for (int tries = 0; old.kind && !give(&old) && tries < 30; tries++) {}
}

// Frees by the thing's own function or by its counterpart. What the driver failed to free stays; what it does not know is gone.
static int give(struct thing *t) {
    unsigned rc;
    if (t->kind == 'h') {
        if (t->at && (!t->value || below(2)) && !CALL(cuMemUnmap, t->at, t->size)) CALL(cuMemAddressFree, t->at, t->size), t->at = 0;
        if (t->value && below(2) && !CALL(cuMemRelease, t->value)) t->value = 0;
        return !t->at && !t->value;
    }
    if (t->kind == 'r') rc = CALL(cuArrayDestroy, (void *)(uintptr_t)t->value);
    else if (t->kind == 'm') rc = CALL(cuMipmappedArrayDestroy, (void *)(uintptr_t)t->value);
    else if (t->kind == '1' && below(2)) rc = CALL(cuMemFree, (unsigned)t->value);
    else if ((t->kind == 'a') != !below(4)) rc = CALL(cuMemFreeAsync, t->value, 0);
    else rc = CALL(cuMemFree_v2, t->value);
    return !rc || rc == 1 || rc == 400;
}

// The thread's own context that memory taken now dies with.
#define OWNER (me->current == me->own[me->device] ? me->current : 0)

static size_t size(void) {
    static const size_t sizes[] = {1, 512, 513, 70000, MIB - 1, MIB, 3 * MIB, 6 * MIB, 16 * MIB, 34 * MIB, 90 * MIB};
    return below(3) ? 1 + below(4 * MIB) : below(2) ? 1 + below(9000) : sizes[below(sizeof sizes / sizeof *sizes)];
}

// An array of any shape through any function.
static void array(void) {
    static const unsigned formats[] = {1, 2, 0x10, 0x20}, channels[] = {1, 2, 4};
    unsigned format = formats[below(4)], channel = channels[below(3)], width = 1 + below(700), height = below(3) ? 1 + below(500) : 0;
    unsigned depth = height && below(2) ? 1 + below(4) : 0;
    shape_v1 a = {width, height, format, channel};
    shape b = {width, height, format, channel};
    shape_3d_v1 c = {width, height, depth, format, channel, 0};
    shape_3d d = {width, height, depth, format, channel, 0};
    void *made = 0;
    unsigned which = below(5);
    unsigned rc = which == 0   ? CALL(cuArrayCreate, &made, &a)
                  : which == 1 ? CALL(cuArrayCreate_v2, &made, &b)
                  : which == 2 ? CALL(cuArray3DCreate, &made, &c)
                  : which == 3 ? CALL(cuArray3DCreate_v2, &made, &d)
                               : CALL(cuMipmappedArrayCreate, &made, &d, 1 + below(5));
    if (!rc) put((struct thing){which == 4 ? 'm' : 'r', (u64)(uintptr_t)made, 0, 0, OWNER});
}

// A graph that allocates, launched once; its memory outlives it.
static void graph(void) {
    void *graph, *node, *exec;
    node_params params = {{1, 0, {1, me->device}, 0, 0, 0, {0}}, 0, 0, size(), 0};
    if (CALL(cuGraphCreate, &graph, 0)) return;
    if (!CALL(cuGraphAddMemAllocNode, &node, graph, 0, 0, &params) && !CALL(cuGraphInstantiateWithFlags, &exec, graph, 0)) {
        if (!CALL(cuGraphLaunch, exec, 0)) put((struct thing){'l', params.address, 0, params.bytes, 0});
        CALL(cuGraphExecDestroy, exec);
    }
    CALL(cuGraphDestroy, graph);
}

static void allocate(void) {
    u64 p = 0;
    size_t bytes = size(), pitch;
    unsigned small;
    struct thing t = {'l', 0, 0, bytes, 0};
    unsigned rc;
    switch (below(9)) {
    case 0: rc = CALL(cuMemAlloc_v2, &p, bytes); break;
    case 1: rc = CALL(cuMemAlloc, &small, (unsigned)bytes), t.kind = '1', p = rc ? 0 : small; break;
    case 2: rc = CALL(cuMemAllocPitch_v2, &p, &pitch, 512, 1 + bytes / 512, 4); break;
    case 3: rc = CALL(cuMemAllocManaged, &p, bytes, 1); break;
    case 4: rc = CALL(cuMemAllocAsync, &p, bytes, 0), t.kind = 'a'; break;
    case 5:
        if (!me->pool[me->device]) return;
        rc = CALL(cuMemAllocFromPoolAsync, &p, bytes, me->pool[me->device], 0), t.kind = 'a';
        break;
    case 6: {
        allocation_prop prop = {1, 0, {1, (int)below(2)}, 0, {0}};
        t.size = (bytes + 2 * MIB - 1) / (2 * MIB) * (2 * MIB), t.kind = 'h';
        rc = CALL(cuMemCreate, &p, t.size, &prop, 0);
        break;
    }
    case 7: array(); return;
    default: graph(); return;
    }
    t.value = p, t.owner = t.kind == 'l' || t.kind == '1' ? OWNER : 0;
    if (!rc) put(t);
}

// Maps a handle, or has one more reference to what is mapped.
static void physical(void) {
    struct thing t = taken();
    u64 again;
    if (t.kind == 'h' && !t.at && t.value) {
        u64 at;
        if (!CALL(cuMemAddressReserve, &at, t.size, 0, 0, 0)) {
            if (CALL(cuMemMap, at, t.size, 0, t.value, 0)) CALL(cuMemAddressFree, at, t.size);
            else t.at = at;
        }
    } else if (t.kind == 'h' && t.at && !CALL(cuMemRetainAllocationHandle, &again, (void *)(uintptr_t)t.at)) {
        put((struct thing){'h', again, 0, t.size, 0});
    }
    if (t.kind) put(t);
}

static void use(void *context, int device) {
    if (!CALL(cuCtxSetCurrent, context)) me->current = context, me->device = device;
}

// Makes any of the thread's contexts current; retains a primary one if it has none.
static void any_context(void) {
    void *all[4] = {me->own[0], me->own[1], me->primary[0], me->primary[1]};
    for (unsigned i = below(4), n = 0; n < 4; n++, i = (i + 1) % 4) if (all[i]) { use(all[i], i % 2); return; }
    int device = (int)below(2);
    if (!CALL(cuDevicePrimaryCtxRetain, &me->primary[device], device)) use(me->primary[device], device);
    else me->primary[device] = 0, me->current = 0;
}

static void contexts(void) {
    int device = (int)below(2);
    void *context;
    switch (stay ? 9 : below(6)) {
    case 0:
        if (me->own[device] || CALL(cuCtxCreate_v2, &context, 0, device)) break;
        me->own[device] = me->current = context, me->device = device;
        break;
    case 1:
        context = me->own[device];
        if (context && !CALL(cuCtxDestroy_v2, context)) {
            me->own[device] = 0;
            for (struct thing *t = &slots[SHARED + (me - selves) * OWN], *end = t + OWN; t < end; t++) if (t->owner == context) t->kind = 0;
            any_context();
        }
        break;
    case 2:
        if (!me->primary[device] && CALL(cuDevicePrimaryCtxRetain, &me->primary[device], device)) me->primary[device] = 0;
        break;
    case 3:
        if (me->primary[device] && !CALL(cuDevicePrimaryCtxRelease_v2, device)) {
            void *gone = me->primary[device];
            me->primary[device] = 0;
            if (me->current == gone) any_context();
        }
        break;
    default: any_context();
    }
}

static void pools(void) {
    int device = (int)below(2);
    pool_props props = {1, 0, {1, device}, 0, 0, 0, {0}};
    void **pool = &me->pool[device], *usual;
    switch (below(5)) {
    case 0:
    case 1:
        if (!*pool && CALL(cuMemPoolCreate, pool, &props)) *pool = 0;
        break;
    case 2:
        if (*pool && !CALL(cuMemPoolDestroy, *pool)) *pool = 0;
        break;
    case 3:
        if (*pool) CALL(cuMemPoolTrimTo, *pool, below(3) * 32 * MIB);
        break;
    default:
        if (!CALL(cuDeviceGetDefaultMemPool, &usual, device)) CALL(cuMemPoolTrimTo, usual, below(3) * 32 * MIB);
    }
}

static void step(void) {
    struct thing t;
    size_t free, total;
    if (!me->current) any_context();
    unsigned n = below(100);
    if (n < 40) allocate();
    else if (n < 70) {
        t = taken();
        if (t.kind && !give(&t)) put(t);
    } else if (n < 78) physical();
    else if (n < 86) contexts();
    else if (n < 92) pools();
    else if (n < 95) CALL(cuStreamSynchronize, 0);
    else if (n < 97) CALL(cuDeviceGraphMemTrim, (int)below(2));
    else CALL(cuMemGetInfo_v2, &free, &total);
}

static void *live(void *argument) {
    int number = (int)(intptr_t)argument;
    me = &selves[number];
    chance = (0x9e3779b97f4a7c15ull * (u64)(number + 1)) ^ (seed * 0xbf58476d1ce4e5b9ull);
    chance |= 1;
    for (int device = 0; stay && device < 2; device++) {
        CALL(cuDevicePrimaryCtxRetain, &me->primary[device], device);
        CALL(cuCtxCreate_v2, &me->own[device], 0, device);
        use(me->own[device], device);
    }
    pthread_barrier_wait(&line);
    pthread_barrier_wait(&line);
    for (int done = 0; done < steps / THREADS; done++) {
        step();
        if ((done + 1) % RUN) continue;
        pthread_barrier_wait(&line);
        pthread_barrier_wait(&line);
    }
    return 0;
}

// Calls again what the driver was told to fail.
#define SURELY(function, ...) do { int tries = 0; while (function(__VA_ARGS__) && ++tries < 20) {} if (tries == 20) { printf("never %s\n", #function); exit(70); } } while (0)

static void wait_for_a_line(void) {
    char word[64];
    fflush(stdout);
    if (!fgets(word, sizeof word, stdin)) exit(71);
}

static void say(const char *what, void *primary[2]) {
    size_t free[2], total[2];
    for (int device = 0; device < 2; device++) {
        SURELY(cuDevicePrimaryCtxRetain, &primary[device], device);
        SURELY(cuCtxSetCurrent, primary[device]);
        SURELY(cuMemGetInfo_v2, &free[device], &total[device]);
    }
    printf("%s %zu %zu %zu %zu\n", what, free[0], total[0], free[1], total[1]);
    fflush(stdout);
}

static void quiet(void) {
    void *primary[2];
    unsigned codes[2];
    say("quiet", primary);
    wait_for_a_line();
    for (int device = 0; device < 2; device++) {
        u64 p;
        SURELY(cuCtxSetCurrent, primary[device]);
        codes[device] = cuMemAlloc_v2(&p, 2 * MIB);
        if (!codes[device]) SURELY(cuMemFree_v2, p);
    }
    printf("probe %u %u\n", codes[0], codes[1]);
    wait_for_a_line();
    for (int device = 0; device < 2; device++) SURELY(cuDevicePrimaryCtxRelease_v2, device);
}

// Gives everything back but the primary contexts of this thread.
static void give_all(void) {
    void *usual, *primary[2];
    for (int device = 0; device < 2; device++) SURELY(cuDevicePrimaryCtxRetain, &primary[device], device);
    SURELY(cuCtxSetCurrent, primary[0]);
    for (int i = 0; i < SLOTS; i++) for (int tries = 0; slots[i].kind && tries < 100; tries++) if (give(&slots[i])) slots[i].kind = 0;
    for (int i = 0; i < THREADS; i++) for (int device = 0; device < 2; device++) {
        if (selves[i].own[device]) SURELY(cuCtxDestroy_v2, selves[i].own[device]);
        if (selves[i].pool[device]) SURELY(cuMemPoolDestroy, selves[i].pool[device]);
        if (selves[i].primary[device]) SURELY(cuDevicePrimaryCtxRelease_v2, device);
    }
    for (int device = 0; device < 2; device++) {
        SURELY(cuCtxSetCurrent, primary[device]);
        SURELY(cuStreamSynchronize, 0);
        SURELY(cuDeviceGetDefaultMemPool, &usual, device);
        SURELY(cuMemPoolTrimTo, usual, 0);
        SURELY(cuDeviceGraphMemTrim, device);
    }
}

int main(int argc, char **argv) {
    static const unsigned char image[64] = "image";
    void *primary[2], *module;
    pthread_t threads[THREADS];
    if (argc < 4 || cuInit(0)) return 64;
    seed = strtoull(argv[1], 0, 0), steps = atoi(argv[2]), stay = !strcmp(argv[3], "stay"), chance = 88172645463325252ull;
    pthread_barrier_init(&line, 0, THREADS + 1);
    for (int i = 0; i < SLOTS; i++) pthread_mutex_init(&locks[i], 0);
    for (int device = 0; device < 2; device++) {
        // They live to the end: what is in them may be freed by anybody at any time.
        SURELY(cuDevicePrimaryCtxRetain, &primary[device], device);
        SURELY(cuCtxSetCurrent, primary[device]);
        if (stay) SURELY(cuModuleLoadData, &module, image);
    }
    for (int i = 0; i < THREADS; i++) pthread_create(&threads[i], 0, live, (void *)(intptr_t)i);
    pthread_barrier_wait(&line);
    pthread_barrier_wait(&line);
    for (int done = 0; done < steps / THREADS / RUN; done++) {
        pthread_barrier_wait(&line);
        quiet();
        pthread_barrier_wait(&line);
    }
    for (int i = 0; i < THREADS; i++) pthread_join(threads[i], 0);
    give_all();
    say("end", primary);
    wait_for_a_line();
    return 0;
}
