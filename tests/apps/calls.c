// Calls the driver as told on stdin, one command a line, by functions that were reached in a chosen way.
//
//   calls WAY      WAY: linked | dlsym | deepbind | default | next | gpa1 | gpa2 | gpa2:FLAGS | cudart:PATH | static
//
// Built plainly it knows all ways but `linked` (needs -DLINKED -lcuda) and `static` (-DSTATIC and libcudart_static.a).
// With -DPLUGIN -shared it is a library whose `run` does the same (see host.c). Each command prints one line:
// its name, the code, and values. Commands are those of `act` at the end.
#define _GNU_SOURCE
#include <dlfcn.h>
#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

typedef unsigned long long u64;
typedef struct { int type, id; } location;
typedef struct { int type, handles; location where; void *win32; unsigned char flags[8]; } allocation_prop;
typedef struct { int type, handles; location where; void *win32; size_t max; unsigned short usage; unsigned char rest[54]; } pool_props;
_Static_assert(sizeof(allocation_prop) == 32 && sizeof(pool_props) == 88, "layouts of cuda.h");

// field, exported name, base name and version for cuGetProcAddress, arguments
#define FUNCTIONS(F) \
    F(init, cuInit, "cuInit", 2000, (unsigned)) \
    F(device_count, cuDeviceGetCount, "cuDeviceGetCount", 2000, (int *)) \
    F(total, cuDeviceTotalMem_v2, "cuDeviceTotalMem", 3020, (size_t *, int)) \
    F(total1, cuDeviceTotalMem, "cuDeviceTotalMem", 2000, (unsigned *, int)) \
    F(info, cuMemGetInfo_v2, "cuMemGetInfo", 3020, (size_t *, size_t *)) \
    F(info1, cuMemGetInfo, "cuMemGetInfo", 2000, (unsigned *, unsigned *)) \
    F(ctx1, cuCtxCreate, "cuCtxCreate", 2000, (void **, unsigned, int)) \
    F(ctx2, cuCtxCreate_v2, "cuCtxCreate", 3020, (void **, unsigned, int)) \
    F(ctx3, cuCtxCreate_v3, "cuCtxCreate", 11040, (void **, void *, int, unsigned, int)) \
    F(ctx4, cuCtxCreate_v4, "cuCtxCreate", 12050, (void **, void *, unsigned, int)) \
    F(destroy1, cuCtxDestroy, "cuCtxDestroy", 2000, (void *)) \
    F(destroy, cuCtxDestroy_v2, "cuCtxDestroy", 4000, (void *)) \
    F(attach, cuCtxAttach, "cuCtxAttach", 2000, (void **, unsigned)) \
    F(detach, cuCtxDetach, "cuCtxDetach", 2000, (void *)) \
    F(current, cuCtxGetDevice, "cuCtxGetDevice", 2000, (int *)) \
    F(set, cuCtxSetCurrent, "cuCtxSetCurrent", 4000, (void *)) \
    F(retain, cuDevicePrimaryCtxRetain, "cuDevicePrimaryCtxRetain", 7000, (void **, int)) \
    F(release1, cuDevicePrimaryCtxRelease, "cuDevicePrimaryCtxRelease", 7000, (int)) \
    F(release, cuDevicePrimaryCtxRelease_v2, "cuDevicePrimaryCtxRelease", 11000, (int)) \
    F(reset1, cuDevicePrimaryCtxReset, "cuDevicePrimaryCtxReset", 7000, (int)) \
    F(reset, cuDevicePrimaryCtxReset_v2, "cuDevicePrimaryCtxReset", 11000, (int)) \
    F(alloc, cuMemAlloc_v2, "cuMemAlloc", 3020, (u64 *, size_t)) \
    F(alloc1, cuMemAlloc, "cuMemAlloc", 2000, (unsigned *, unsigned)) \
    F(pitch, cuMemAllocPitch_v2, "cuMemAllocPitch", 3020, (u64 *, size_t *, size_t, size_t, unsigned)) \
    F(pitch1, cuMemAllocPitch, "cuMemAllocPitch", 2000, (unsigned *, unsigned *, unsigned, unsigned, unsigned)) \
    F(managed, cuMemAllocManaged, "cuMemAllocManaged", 6000, (u64 *, size_t, unsigned)) \
    F(free, cuMemFree_v2, "cuMemFree", 3020, (u64)) \
    F(free1, cuMemFree, "cuMemFree", 2000, (unsigned)) \
    F(async, cuMemAllocAsync, "cuMemAllocAsync", 11020, (u64 *, size_t, void *)) \
    F(async_ptsz, cuMemAllocAsync_ptsz, "", 0, (u64 *, size_t, void *)) \
    F(frompool, cuMemAllocFromPoolAsync, "cuMemAllocFromPoolAsync", 11020, (u64 *, size_t, void *, void *)) \
    F(frompool_ptsz, cuMemAllocFromPoolAsync_ptsz, "", 0, (u64 *, size_t, void *, void *)) \
    F(free_async, cuMemFreeAsync, "cuMemFreeAsync", 11020, (u64, void *)) \
    F(free_async_ptsz, cuMemFreeAsync_ptsz, "", 0, (u64, void *)) \
    F(sync, cuStreamSynchronize, "cuStreamSynchronize", 7000, (void *)) \
    F(pool_create, cuMemPoolCreate, "cuMemPoolCreate", 11020, (void **, pool_props *)) \
    F(pool_destroy, cuMemPoolDestroy, "cuMemPoolDestroy", 11020, (void *)) \
    F(pool_trim, cuMemPoolTrimTo, "cuMemPoolTrimTo", 11020, (void *, size_t)) \
    F(pool_get, cuMemPoolGetAttribute, "cuMemPoolGetAttribute", 11020, (void *, int, void *)) \
    F(pool_put, cuMemPoolSetAttribute, "cuMemPoolSetAttribute", 11020, (void *, int, void *)) \
    F(pool_use, cuDeviceSetMemPool, "cuDeviceSetMemPool", 11020, (int, void *)) \
    F(pool_default, cuDeviceGetDefaultMemPool, "cuDeviceGetDefaultMemPool", 11020, (void **, int)) \
    F(stream_create, cuStreamCreate, "cuStreamCreate", 2000, (void **, unsigned)) \
    F(create, cuMemCreate, "cuMemCreate", 10020, (u64 *, size_t, allocation_prop *, u64)) \
    F(mem_release, cuMemRelease, "cuMemRelease", 10020, (u64)) \
    F(mem_retain, cuMemRetainAllocationHandle, "cuMemRetainAllocationHandle", 11000, (u64 *, void *)) \
    F(reserve, cuMemAddressReserve, "cuMemAddressReserve", 10020, (u64 *, size_t, size_t, u64, u64)) \
    F(map, cuMemMap, "cuMemMap", 10020, (u64, size_t, size_t, u64, u64)) \
    F(unmap, cuMemUnmap, "cuMemUnmap", 10020, (u64, size_t))

#define FIELD(field, name, base, version, arguments) unsigned (*field) arguments;
static struct { FUNCTIONS(FIELD) } cu;

#ifdef LINKED
#define DECLARE(field, name, base, version, arguments) extern unsigned name arguments;
FUNCTIONS(DECLARE)
// Called through the PLT, as a compiled program does: taking the address would bind at load.
#define LINK(field, name, base, version, arguments) cu.field = name;
#endif

// The runtime's functions, for the ways that go through libcudart.
static struct {
    int (*malloc)(void **, size_t), (*free)(void *), (*pitch)(void **, size_t *, size_t, size_t), (*managed)(void **, size_t, unsigned);
    int (*async)(void **, size_t, void *), (*free_async)(void *, void *), (*sync)(void *), (*info)(size_t *, size_t *), (*reset)(void);
    int (*async_ptsz)(void **, size_t, void *), (*pool_create)(void **, const pool_props *), (*pool_destroy)(void *);
    int (*frompool)(void **, size_t, void *, void *), (*frompool_ptsz)(void **, size_t, void *, void *);
} rt;
static int through_runtime;

#ifdef STATIC
extern int cudaMalloc(void **, size_t), cudaFree(void *), cudaMallocPitch(void **, size_t *, size_t, size_t);
extern int cudaMallocManaged(void **, size_t, unsigned), cudaMallocAsync(void **, size_t, void *), cudaFreeAsync(void *, void *);
extern int cudaStreamSynchronize(void *), cudaMemGetInfo(size_t *, size_t *), cudaDeviceReset(void);
extern int cudaMallocAsync_ptsz(void **, size_t, void *), cudaMemPoolCreate(void **, const pool_props *), cudaMemPoolDestroy(void *);
extern int cudaMallocFromPoolAsync(void **, size_t, void *, void *), cudaMallocFromPoolAsync_ptsz(void **, size_t, void *, void *);
#endif

static void stop(const char *what) {
    const char *why = dlerror();
    fprintf(stderr, "calls: %s: %s\n", what, why ? why : "not there");
    exit(70);
}

static void *library(const char *name, int flags) {
    void *handle = dlopen(name, flags);
    if (!handle) stop(name);
    return handle;
}

// A linked program has the driver in scope, another one puts it there.
static void put_in_scope(void) {
#ifndef LINKED
    library("libcuda.so.1", RTLD_NOW | RTLD_GLOBAL);
#endif
}

static void by_name(void *handle) {
#define LOOK(field, name, base, version, arguments) *(void **)&cu.field = dlsym(handle, #name);
    FUNCTIONS(LOOK)
    dlerror();
}

static void by_address(int version, u64 flags) {
    void *handle = library("libcuda.so.1", RTLD_NOW);
    if (version == 1) {
        unsigned (*get)(const char *, void **, int, u64);
        *(void **)&get = dlsym(handle, "cuGetProcAddress");
        // As libcudart 11.8 does: it goes on with the function that it is given for the name itself.
        void *again = 0;
        if (!get || get("cuGetProcAddress", &again, 11030, 0)) stop("cuGetProcAddress");
        *(void **)&get = again;
#define ASK1(field, name, base, version, arguments) { void *f = 0; if (!get(base, &f, version, 0)) *(void **)&cu.field = f; }
        FUNCTIONS(ASK1)
    } else {
        unsigned (*get)(const char *, void **, int, u64, int *);
        *(void **)&get = dlsym(handle, "cuGetProcAddress_v2");
        void *again = 0;
        if (!get || get("cuGetProcAddress", &again, 12000, 0, 0)) stop("cuGetProcAddress_v2");
        *(void **)&get = again;
#define ASK2(field, name, base, version, arguments) { void *f = 0; int s; if (!get(base, &f, version, flags, &s)) *(void **)&cu.field = f; }
        FUNCTIONS(ASK2)
    }
}

static void runtime(const char *path) {
    through_runtime = 1;
#define TAKE_FROM(field, name) if (!(*(void **)&rt.field = dlsym(handle, #name))) stop(#name)
    if (path) {
        void *handle = library(path, RTLD_NOW);
        TAKE_FROM(malloc, cudaMalloc); TAKE_FROM(free, cudaFree); TAKE_FROM(pitch, cudaMallocPitch);
        TAKE_FROM(managed, cudaMallocManaged); TAKE_FROM(async, cudaMallocAsync); TAKE_FROM(free_async, cudaFreeAsync);
        TAKE_FROM(sync, cudaStreamSynchronize); TAKE_FROM(info, cudaMemGetInfo); TAKE_FROM(reset, cudaDeviceReset);
        TAKE_FROM(async_ptsz, cudaMallocAsync_ptsz); TAKE_FROM(pool_create, cudaMemPoolCreate); TAKE_FROM(pool_destroy, cudaMemPoolDestroy);
        TAKE_FROM(frompool, cudaMallocFromPoolAsync); TAKE_FROM(frompool_ptsz, cudaMallocFromPoolAsync_ptsz);
    }
#ifdef STATIC
    if (!path) {
        rt.malloc = cudaMalloc; rt.free = cudaFree; rt.pitch = cudaMallocPitch; rt.managed = cudaMallocManaged;
        rt.async = cudaMallocAsync; rt.free_async = cudaFreeAsync; rt.sync = cudaStreamSynchronize;
        rt.info = cudaMemGetInfo; rt.reset = cudaDeviceReset; rt.async_ptsz = cudaMallocAsync_ptsz;
        rt.pool_create = cudaMemPoolCreate; rt.pool_destroy = cudaMemPoolDestroy;
        rt.frompool = cudaMallocFromPoolAsync; rt.frompool_ptsz = cudaMallocFromPoolAsync_ptsz;
    }
#endif
}

static void reach(const char *way) {
    if (!strcmp(way, "dlsym")) by_name(library("libcuda.so.1", RTLD_NOW));
    else if (!strcmp(way, "deepbind")) by_name(library("libcuda.so.1", RTLD_NOW | RTLD_DEEPBIND));
    else if (!strcmp(way, "default")) put_in_scope(), by_name(RTLD_DEFAULT);
    else if (!strcmp(way, "next")) put_in_scope(), by_name(RTLD_NEXT);
    else if (!strcmp(way, "gpa1")) by_address(1, 0);
    else if (!strncmp(way, "gpa2", 4)) by_address(2, way[4] ? strtoull(way + 5, 0, 0) : 0);
    else if (!strncmp(way, "cudart:", 7)) runtime(way + 7);
    else if (!strcmp(way, "static")) runtime(0);
#ifdef LINKED
    else if (!strcmp(way, "linked")) { FUNCTIONS(LINK) }
#endif
    else stop(way);
}

// What is allocated, by the name that the script gave it.
static struct thing { char name[32]; char kind; u64 value; size_t size; void *owner; } things[4096];
static int used;
static void *context, *pool, *stream;

static struct thing *thing(const char *name) {
    for (int i = used - 1; *name && i >= 0; i--) if (!strcmp(things[i].name, name)) return &things[i];
    return 0;
}

static void keep(const char *name, char kind, u64 value, size_t size) {
    if (used == 4096) stop("too many things");
    struct thing *t = &things[used++];
    snprintf(t->name, sizeof t->name, "%s", name);
    t->kind = kind; t->value = value; t->size = size; t->owner = pool;
}

#define CANARY 0x5ca1ab1e5ca1ab1eull
// One allocation. The out-param holds a canary, so that a refusal that touches it shows.
static unsigned take(const char *entry, size_t bytes, const char *name, int device, int *untouched) {
    u64 p = CANARY; size_t pitch = (size_t)CANARY; unsigned p1 = 0x5ca1ab1e, pitch1 = 0x5ca1ab1e, rc = 801;
    char kind = 'l';
#define IS(word) !strcmp(entry, word)
    if (through_runtime) {
        if (IS("alloc")) rc = rt.malloc((void **)&p, bytes);
        else if (IS("pitch")) rc = rt.pitch((void **)&p, &pitch, 4096, bytes / 4096);
        else if (IS("managed")) rc = rt.managed((void **)&p, bytes, 1);
        else if (IS("async")) rc = rt.async((void **)&p, bytes, 0), kind = 'a';
        else if (IS("async_ptsz")) rc = rt.async_ptsz((void **)&p, bytes, 0), kind = 'a';
        else if (IS("frompool")) rc = rt.frompool((void **)&p, bytes, pool, 0), kind = 'a';
        else if (IS("frompool_ptsz")) rc = rt.frompool_ptsz((void **)&p, bytes, pool, 0), kind = 'a';
        // The runtime may clear what it was given when it fails: that is its business, with and without us.
        *untouched = 1;
        if (!rc) keep(name, kind, p, bytes);
        return rc;
    }
    if (IS("alloc") && cu.alloc) rc = cu.alloc(&p, bytes);
    else if (IS("alloc1") && cu.alloc1) { rc = cu.alloc1(&p1, (unsigned)bytes); kind = '1'; }
    else if (IS("pitch") && cu.pitch) rc = cu.pitch(&p, &pitch, 4096, bytes / 4096, 4);
    else if (IS("pitch1") && cu.pitch1) { rc = cu.pitch1(&p1, &pitch1, 4096, (unsigned)(bytes / 4096), 4); kind = '1'; }
    else if (IS("managed") && cu.managed) rc = cu.managed(&p, bytes, 1);
    else if (IS("async") && cu.async) { rc = cu.async(&p, bytes, stream); kind = 'a'; }
    else if (IS("async_ptsz") && cu.async_ptsz) { rc = cu.async_ptsz(&p, bytes, stream); kind = 'a'; }
    else if (IS("frompool") && cu.frompool) { rc = cu.frompool(&p, bytes, pool, stream); kind = 'a'; }
    else if (IS("frompool_ptsz") && cu.frompool_ptsz) { rc = cu.frompool_ptsz(&p, bytes, pool, stream); kind = 'a'; }
    else if (IS("create") && cu.create) {
        allocation_prop prop = {1, 0, {1, device}, 0, {0}};
        rc = cu.create(&p, bytes, &prop, 0);
        kind = 'h';
    }
    *untouched = p == CANARY && pitch == (size_t)CANARY && p1 == 0x5ca1ab1e && pitch1 == 0x5ca1ab1e;
    if (!rc) keep(name, kind, kind == '1' ? p1 : p, bytes);
    return rc;
}

static unsigned give(struct thing *t, int crosswise) {
    unsigned rc = 801;
    u64 v = t->value;
    if (through_runtime) rc = (t->kind == 'a') != crosswise ? rt.free_async((void *)v, 0) : rt.free((void *)v);
    else if (t->kind == 'h') rc = cu.mem_release(v);
    else if (t->kind == '1' && cu.free1) rc = cu.free1((unsigned)v);
    else if ((t->kind == 'a') != crosswise) rc = cu.free_async(v, stream);
    else rc = cu.free(v);
    if (!rc) t->name[0] = 0;
    return rc;
}

// Frees everything but contexts, which are kept by name.
static unsigned give_all(void) {
    unsigned rc = 0;
    int kept = 0;
    for (int i = 0; i < used; i++) {
        if (things[i].kind == 'c') things[kept++] = things[i];
        else if (things[i].name[0] && things[i].kind != 'm') rc |= give(&things[i], 0);
    }
    used = kept;
    return rc;
}

// Maps the handles, one after the other, into one range that is known by one name.
static unsigned map(struct thing *first, struct thing *second, const char *name) {
    size_t size = first->size + (second ? second->size : 0);
    u64 where = 0;
    unsigned rc = cu.reserve(&where, size, 0, 0, 0);
    if (!rc) rc = cu.map(where, first->size, 0, first->value, 0);
    if (!rc && second) rc = cu.map(where + first->size, second->size, 0, second->value, 0);
    if (!rc) keep(name, 'm', where, size);
    return rc;
}

static void *retain_in_thread(void *device) {
    void *same;
    return (void *)(uintptr_t)cu.retain(&same, *(int *)device);
}

// Retains from eight threads at once; the codes, added up.
static unsigned retain_in_threads(int device) {
    pthread_t threads[8];
    unsigned sum = 0;
    for (int i = 0; i < 8; i++) if (pthread_create(&threads[i], 0, retain_in_thread, &device)) stop("pthread_create");
    for (int i = 0; i < 8; i++) { void *rc; pthread_join(threads[i], &rc); sum += (unsigned)(uintptr_t)rc; }
    return sum;
}

// What a forked child is told when it allocates.
static unsigned alloc_in_child(void) {
    u64 p;
    pid_t child = fork();
    if (!child) _exit((int)cu.alloc(&p, 4096));
    int status = -1;
    return waitpid(child, &status, 0) == child && WIFEXITED(status) ? (unsigned)WEXITSTATUS(status) : 999;
}

// One command with up to four words behind it.
static void act(const char *c, char a[4][64]) {
    int untouched = 1, n = atoi(a[0]);
    u64 x = strtoull(a[1], 0, 0), y = strtoull(a[2], 0, 0);
    struct thing *t;
#define DO(word) else if (!strcmp(c, word))
#define CALL(expression) printf("%s %u\n", c, (unsigned)(expression))
    if (!strcmp(c, "init")) CALL(through_runtime ? 0 : cu.init(0));
    DO("total") { size_t b = 0; unsigned rc = cu.total(&b, n); printf("total %u %zu\n", rc, b); }
    DO("total1") { unsigned b = 0, rc = cu.total1(&b, n); printf("total1 %u %u\n", rc, b); }
    DO("info") { size_t f = 0, s = 0; unsigned rc = through_runtime ? (unsigned)rt.info(&f, &s) : cu.info(&f, &s); printf("info %u %zu %zu\n", rc, f, s); }
    DO("info1") { unsigned f = 0, s = 0, rc = cu.info1(&f, &s); printf("info1 %u %u %u\n", rc, f, s); }
    DO("info_free") { size_t f = 0; unsigned rc = cu.info(&f, 0); printf("info_free %u %zu\n", rc, f); }
    DO("info_total") { size_t s = 0; unsigned rc = cu.info(0, &s); printf("info_total %u %zu\n", rc, s); }
    DO("info_null") CALL(cu.info(0, 0));
    DO("ctx1") CALL(cu.ctx1(&context, 0, n));
    DO("ctx") CALL(cu.ctx2(&context, 0, n));
    DO("ctx3") CALL(cu.ctx3(&context, 0, 0, 0, n));
    DO("ctx4") CALL(cu.ctx4(&context, 0, 0, n));
    DO("destroy1") CALL(cu.destroy1(context));
    DO("destroy") CALL(cu.destroy(context));
    DO("attach") { void *same; CALL(cu.attach(&same, 0)); }
    DO("detach") CALL(cu.detach(context));
    DO("keep_ctx") { keep(a[0], 'c', (u64)(uintptr_t)context, 0); CALL(0); }
    DO("use_ctx") { t = thing(a[0]); context = t ? (void *)(uintptr_t)t->value : 0; CALL(cu.set(context)); }
    DO("device") { int d = -1; unsigned rc = cu.current(&d); printf("device %u %d\n", rc, d); }
    DO("no_ctx") CALL(cu.set(0));
    DO("retain") { unsigned rc = through_runtime ? 0 : cu.retain(&context, n); if (!rc && !through_runtime) rc = cu.set(context); CALL(rc); }
    DO("retain_only") CALL(cu.retain(&context, n));
    DO("release1") CALL(cu.release1(n));
    DO("release") CALL(cu.release(n));
    DO("reset1") CALL(cu.reset1(n));
    DO("reset") CALL(through_runtime ? (unsigned)rt.reset() : cu.reset(n));
    // take ENTRY NAME BYTES [DEVICE]
    DO("take") { unsigned rc = take(a[0], y ? y : x, a[1], atoi(a[3]), &untouched); printf("take %u %s\n", rc, rc && !untouched ? "touched" : "ok"); }
    // fill ENTRY BYTES: until it is refused; prints the code, how many went, whether the out-params were left alone
    DO("fill") {
        unsigned rc, count = 0;
        while (!(rc = take(a[0], x, "fill", atoi(a[2]), &untouched)) && used < 4000) count++;
        printf("fill %u %u %s\n", rc, count, untouched ? "untouched" : "touched");
    }
    DO("free") { t = thing(a[0]); CALL(t ? give(t, 0) : 1); }
    DO("free_crosswise") { t = thing(a[0]); CALL(t ? give(t, 1) : 1); }
    DO("free_thing") { t = thing(a[0]); CALL(t ? cu.free(t->value) : 1); }
    // same_as NAME OTHER: OTHER has the value of NAME too; same NAME OTHER: whether they have
    DO("same_as") { t = thing(a[0]); if (t) keep(a[1], t->kind, t->value, t->size); CALL(!t); }
    DO("same") { t = thing(a[0]); struct thing *other = thing(a[1]); CALL(!t || !other || t->value != other->value); }
    DO("free_raw") CALL(cu.free(strtoull(a[0], 0, 0)));
    DO("free_all") CALL(give_all());
    DO("forget_all") { used = 0; CALL(0); }
    DO("sync") CALL(through_runtime ? (unsigned)rt.sync(0) : cu.sync(stream));
    DO("stream") CALL(cu.stream_create(&stream, 1));
    DO("no_stream") { stream = 0; CALL(0); }
    DO("retain_in_threads") CALL(retain_in_threads(n));
    DO("alloc_in_child") CALL(alloc_in_child());
    DO("pool_create") { pool_props props = {1, 0, {1, n}, 0, x, 0, {0}}; CALL(through_runtime ? (unsigned)rt.pool_create(&pool, &props) : cu.pool_create(&pool, &props)); }
    DO("pool_create_host") { pool_props props = {1, 0, {2, 0}, 0, 0, 0, {0}}; CALL(cu.pool_create(&pool, &props)); }
    DO("pool_default") CALL(cu.pool_default(&pool, n));
    DO("pool_use") CALL(cu.pool_use(n, pool));
    DO("pool_keep") { u64 v = strtoull(a[0], 0, 0); CALL(cu.pool_put(pool, 4, &v)); }
    DO("pool_destroy") CALL(through_runtime ? (unsigned)rt.pool_destroy(pool) : cu.pool_destroy(pool));
    DO("pool_trim") CALL(cu.pool_trim(pool, strtoull(a[0], 0, 0)));
    DO("pool_reserved") { u64 v = 0; unsigned rc = cu.pool_get(pool, 5, &v); printf("pool_reserved %u %llu\n", rc, v); }
    DO("create_host") { u64 h = CANARY; allocation_prop prop = {1, 0, {2, 0}, 0, {0}}; unsigned rc = cu.create(&h, x, &prop, 0); if (!rc) keep(a[0], 'h', h, x); CALL(rc); }
    // map HANDLE NAME [HANDLE]: reserves addresses and maps the whole of each handle there
    DO("map") { t = thing(a[0]); CALL(t ? map(t, thing(a[2]), a[1]) : 1); }
    DO("unmap") { t = thing(a[0]); unsigned rc = t ? cu.unmap(t->value, t->size) : 1; if (t && !rc) t->name[0] = 0; CALL(rc); }
    DO("mem_retain") { t = thing(a[0]); u64 h = CANARY; unsigned rc = t ? cu.mem_retain(&h, (void *)(uintptr_t)t->value) : 1; if (!rc) keep(a[1], 'h', h, t->size); CALL(rc); }
    DO("setenv") { setenv(a[0], a[1], 1); CALL(0); }
    else { printf("%s unknown\n", c); exit(70); }
    fflush(stdout);
}

int run(int argc, char **argv) {
    reach(argc > 1 ? argv[1] : "dlsym");
    char line[256], c[64], a[4][64];
    while (fgets(line, sizeof line, stdin)) {
        memset(a, 0, sizeof a);
        if (sscanf(line, "%63s %63s %63s %63s %63s", c, a[0], a[1], a[2], a[3]) < 1 || c[0] == '#') continue;
        act(c, a);
    }
    return 0;
}

#ifndef PLUGIN
int main(int argc, char **argv) { return run(argc, argv); }
#endif
