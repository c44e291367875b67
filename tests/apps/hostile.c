// Calls the driver's memory functions as no sane program does, the same sequence for the same seed whatever the answers are.
//
//   hostile SEED CALLS [tame]      prints a line per call: number, function, code, outputs; then waits for the end of its input
//   hostile capture                every function during captures of every mode, by the capturing thread and by another
//
// Addresses and handles are printed by the order in which they were first seen. With `tame` nothing stale or random is passed and
// no size is above 64 MiB but those that no device has, so that a refusal changes nothing but what depends on it: each line then
// ends with what it used (`<`) and what it made (`>`), and says what is free after a refusal.
#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

typedef unsigned long long u64;
typedef unsigned u32;
typedef struct { int type, handles, where, device; void *win32; unsigned char flags[8]; } allocation_prop;
typedef struct { int type, handles, where, device; void *win32; size_t max; unsigned short usage; unsigned char rest[54]; } pool_props;
typedef void *ctx, *stream, *pool;
extern u32 cuInit(u32), cuMemAlloc(u32 *, u32), cuMemAlloc_v2(u64 *, size_t), cuMemAllocManaged(u64 *, size_t, u32), cuMemFree(u32), cuMemFree_v2(u64),
    cuMemAllocPitch(u32 *, u32 *, u32, u32, u32), cuMemAllocPitch_v2(u64 *, size_t *, size_t, size_t, u32), cuMemGetInfo(u32 *, u32 *),
    cuMemGetInfo_v2(size_t *, size_t *), cuDeviceTotalMem(u32 *, int), cuDeviceTotalMem_v2(size_t *, int), cuCtxCreate(ctx *, u32, int), cuCtxCreate_v2(ctx *, u32, int),
    cuCtxCreate_v3(ctx *, void *, int, u32, int), cuCtxCreate_v4(ctx *, void *, u32, int), cuCtxDestroy(ctx), cuCtxDestroy_v2(ctx), cuCtxAttach(ctx *, u32), cuCtxDetach(ctx),
    cuCtxSetCurrent(ctx), cuCtxGetCurrent(ctx *), cuCtxPopCurrent_v2(ctx *), cuDevicePrimaryCtxRetain(ctx *, int), cuDevicePrimaryCtxRelease(int), cuDevicePrimaryCtxRelease_v2(int),
    cuDevicePrimaryCtxReset(int), cuDevicePrimaryCtxReset_v2(int), cuDevicePrimaryCtxGetState(int, u32 *, int *), cuMemAllocAsync(u64 *, size_t, stream),
    cuMemAllocAsync_ptsz(u64 *, size_t, stream), cuMemAllocFromPoolAsync(u64 *, size_t, pool, stream), cuMemAllocFromPoolAsync_ptsz(u64 *, size_t, pool, stream),
    cuMemFreeAsync(u64, stream), cuMemFreeAsync_ptsz(u64, stream), cuStreamSynchronize(stream), cuStreamCreate(stream *, u32), cuStreamDestroy_v2(stream),
    cuMemPoolCreate(pool *, const pool_props *), cuMemPoolDestroy(pool), cuMemPoolTrimTo(pool, size_t), cuMemPoolGetAttribute(pool, int, void *), cuDeviceGetDefaultMemPool(pool *, int),
    cuMemCreate(u64 *, size_t, const allocation_prop *, u64), cuMemRelease(u64), cuMemRetainAllocationHandle(u64 *, void *), cuMemMap(u64, size_t, size_t, u64, u64), cuMemUnmap(u64, size_t),
    cuMemAddressReserve(u64 *, size_t, size_t, u64, u64), cuMemAddressFree(u64, size_t), cuGetProcAddress_v2(const char *, void **, int, u64, int *);
extern u32 cuStreamBeginCapture_v2(stream, u32), cuStreamEndCapture(stream, void **), cuStreamIsCapturing(stream, u32 *), cuThreadExchangeStreamCaptureMode(u32 *),
    cuGraphDestroy(void *), cuGraphInstantiateWithFlags(void **, void *, u64), cuGraphExecDestroy(void *), cuGraphLaunch(void *, stream);

static u64 seed;
static int tame;
static u64 next(void) { seed ^= seed << 13; seed ^= seed >> 7; seed ^= seed << 17; return seed * 0x2545f4914f6cdd1dull >> 16; }
static u32 below(u32 n) { return (u32)(next() % n); }
static int once_in(u32 n) { return !below(n); }

// --- what was made, by place; what was there before is remembered to be passed once more ---
#define PLACES 40
struct place { u64 value, stale; ctx owner; size_t size; };
static struct place memory[PLACES], handles[12], ranges[8], contexts[5], streams[5], pools[5];

// An address or handle by the order in which it was first seen.
static const char *named(u64 value) {
    static u64 seen[1 << 16];
    static int count;
    static char text[4][24];
    static int turn;
    char *out = text[turn++ & 3];
    if (!value) return "0";
    int at = 0;
    while (at < count && seen[at] != value) at++;
    if (at == count && count < (1 << 16)) seen[count++] = value;
    sprintf(out, "#%d", at);
    return tame ? "#" : out;
}

static char uses[64];
static void use(const char *kind, u32 place) { sprintf(uses + strlen(uses), " %s%u", kind, place); }

#define COUNT(array) (u32)(sizeof(array) / sizeof(*array))
static char host[64];

static u64 size(void) {
    static const u64 sizes[] = {0, 1, 511, 512, 513, 4096, 65536, (1 << 20) - 1, 1 << 20, (1 << 20) + 1, (2 << 20) - 1, 2 << 20, (2 << 20) + 1, 3 << 20,
        32 << 20, (32 << 20) + 1, 64 << 20, 1ull << 40, (1ull << 63) - 1, 1ull << 63, -(1ull << 21), -512ull, -511ull, -2ull, -1ull, 1ull << 30, 5ull << 30, 1ull << 32, (1ull << 32) - 1};
    return sizes[below(tame ? 25 : COUNT(sizes))];
}

static u64 from(struct place *places, u32 count, const char *kind) {
    u32 how = below(16), at = below(count);
    u64 random = next();
    struct place *p = &places[at];
    if (how < 10) { use(kind, at); return p->value; }
    if (how == 10) return 0;
    if (how == 11) return 1;
    // Where contexts, address ranges and pools lie is not the same in every run: what is stale or near may be another one.
    int placed = strchr("crp", *kind) != 0;
    if (tame) { use(kind, at); return p->value ? p->value + (how & 1 || placed ? 1 : 256) : 0; } // inside, or no handle at all
    if (how == 12) return *kind == 'r' ? 0 : p->stale;
    if (how == 13) return p->value + (random & 1 && !placed ? 512 : 1);
    if (how == 14) return (u64)(uintptr_t)host;
    return random << 16;
}
static u64 address(void) {
    u32 how = below(12);
    if (how == 0) return from(ranges, COUNT(ranges), "r");
    if (how == 1 && !tame) return from(handles, COUNT(handles), "h");
    return from(memory, PLACES, "m");
}
static u64 handle(void) { return from(handles, COUNT(handles), "h"); }
static u32 address32(void) { u64 a = address(); return a >> 32 ? 0xfff0 : (u32)a; }
static ctx context(void) { return (ctx)(uintptr_t)from(contexts, COUNT(contexts), "c"); }
// 0, 1 and 2 are the default streams.
static stream a_stream(void) {
    u32 how = below(12), at = below(COUNT(streams));
    if (how < 6) return (stream)(uintptr_t)(how % 3);
    if (how == 6) return (stream)(uintptr_t)0x1230;
    use("s", at);
    return (stream)(uintptr_t)(streams[at].value ? streams[at].value : 0x1240);
}
static pool a_pool(void) { return (pool)(uintptr_t)from(pools, COUNT(pools), "p"); }
static int device(void) { static const int all[] = {0, 0, 0, 0, 1, 1, 2, -1, 2147483647, (int)0x80000000}; return all[below(COUNT(all))]; }
static u32 flags(u32 usual) { static const u32 odd[] = {0, 1, 2, 3, 4, 0x80, 0x100, 0xffffffff}; u32 o = odd[below(8)]; return once_in(4) ? o : usual; }
static int missing(void) { return once_in(14); }

static void made(struct place *places, const char *kind, u32 at, u64 value, size_t size, u32 rc) {
    struct place *p = &places[at];
    if (rc) value = 0;
    if (p->value) p->stale = p->value;
    p->value = value, p->size = size;
    if (cuCtxGetCurrent(&p->owner)) p->owner = 0;
    if (tame) printf(" >%s%u", kind, at);
}
static void gone(struct place *places, u32 count, u64 value) {
    for (u32 i = 0; i < count; i++) if (places[i].value == value && value) { places[i].stale = value, places[i].value = 0; break; }
}
// In a tame run nothing stale is passed: what died with a context is forgotten.
static void forget(ctx owner) {
    for (u32 i = 0; i < PLACES; i++) if (memory[i].owner == owner && memory[i].value && memory[i].size) { memory[i].stale = memory[i].value, memory[i].value = 0; }
    for (u32 i = 0; i < COUNT(streams); i++) if (streams[i].owner == owner) streams[i].value = 0;
}
static void forget_primary(int d) {
    u32 f; int active = 1; ctx c;
    // Its handle, without keeping it: a retain of a dead one would make it live.
    if (cuDevicePrimaryCtxGetState(d, &f, &active) || active) return;
    if (!cuDevicePrimaryCtxRetain(&c, d)) { cuDevicePrimaryCtxRelease_v2(d); forget(c); }
}

static long number;
static void line(const char *name, u32 rc) {
    printf("%ld %s %u", number++, name, rc);
    if (tame && *uses) { char *w = uses; while ((w = strchr(w, ' '))) { *w++ = 0; printf(" <%.*s", (int)strcspn(w, " "), w); } }
    uses[0] = 0;
    size_t f = 0, t;
    if (tame && rc == 2) printf(" free %zu", cuMemGetInfo_v2(&f, &t) ? (size_t)-1 : f);
}
static void end(void) { putchar('\n'); }

#define CANARY 0x5ca1ab1e5ca1ab1eull
#define OUT(v) (missing() ? 0 : &(v))
// What a call wrote, if anything.
static void out64(u64 v, int is_address) { if (v == CANARY) printf(" -"); else if (is_address) printf(" %s", named(v)); else printf(" %llu", v); }
static void out32(u32 v, int is_address) { if (v == (u32)CANARY) printf(" -"); else if (is_address) printf(" %s", named(v)); else printf(" %u", v); }

// An allocation into a place, whose last content is freed before: one line each.
#define ALLOCATION(name, expression, kind) { u32 at = below(PLACES); clear(at); u64 v = CANARY, n = size(); size_t given = (size_t)CANARY; u64 *o = OUT(v); (void)given; (void)n; \
    u32 rc = expression; line(name, rc); if (tame) printf(" of %llu", n); out64(v, 1); if (v != CANARY && given != (size_t)CANARY) out64(given, 0); made(memory, "m", at, v == CANARY ? 0 : v, kind, rc); end(); }
#define ALLOCATION32(name, expression) { u32 at = below(PLACES); clear(at); u32 v = (u32)CANARY, given = (u32)CANARY; u64 n = (u32)size(); u32 *o = OUT(v); (void)given; \
    u32 rc = expression; line(name, rc); if (tame) printf(" of %llu", n); out32(v, 1); made(memory, "m", at, v == (u32)CANARY ? 0 : v, 1, rc); end(); }
#define PLAIN(name, expression) { u32 rc = expression; line(name, rc); end(); }

static void clear(u32 at) {
    use("m", at);
    u64 old = memory[at].value;
    u32 rc = cuMemFree_v2(old);
    if (!rc) gone(memory, PLACES, old);
    line("clear", rc);
    end();
}
static void clear_range(u32 at) {
    struct place *p = &ranges[at];
    if (!p->value) return;
    use("r", at); PLAIN("clear range", cuMemUnmap(p->value, p->size) & 0)
    PLAIN("clear addresses", cuMemAddressFree(p->value, p->size))
    p->stale = p->value, p->value = 0;
}

static allocation_prop *prop(allocation_prop *p) {
    static const int where[] = {1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 2, 3, 0, 5, 6, 7, -1};
    *p = (allocation_prop){once_in(4) ? (int)flags(1) : 1, once_in(9), where[below(19)], device(), 0, {0}};
    return missing() ? 0 : p;
}
static pool_props *props(pool_props *p) {
    static const int where[] = {1, 1, 1, 1, 1, 1, 1, 1, 2, 0, 7};
    *p = (pool_props){once_in(4) ? (int)flags(1) : 1, 0, where[below(11)], device(), 0, once_in(6) ? 64 << 20 : 0, 0, {0}};
    return missing() ? 0 : p;
}

static void memory_call(void) {
    switch (below(15)) {
    case 0: case 1: case 2: ALLOCATION("cuMemAlloc_v2", cuMemAlloc_v2(o, n), 1) break;
    case 3: ALLOCATION32("cuMemAlloc", cuMemAlloc(o, (u32)n)) break;
    case 4: case 5: { u32 f = flags(1); ALLOCATION("cuMemAllocManaged", cuMemAllocManaged(o, n, f), 1) break; }
    case 6: case 7: { u64 w = size(), h = once_in(3) ? size() : below(9); u32 e = once_in(5) ? below(20) : 4u << below(3); int no = missing();
        if (tame) w = w > 1 << 20 ? 777 : w, h = h > 64 ? h > 1ull << 39 ? h : 64 : h;
        ALLOCATION("cuMemAllocPitch_v2", ((void)(n = (w + 511) / 512 * 512 * h), cuMemAllocPitch_v2(o, no ? 0 : &given, w, h, e)), 1) break; }
    case 8: { u32 w = (u32)size(), h = below(9), e = 4u << below(3); int no = missing(); if (tame && w > 1 << 20) w = 777;
        ALLOCATION32("cuMemAllocPitch", ((void)(n = (w + 511) / 512 * 512 * h), cuMemAllocPitch)(o, no ? 0 : &given, w, h, e)) break; }
    case 9: case 10: case 11: { u64 a = address(); u32 rc = cuMemFree_v2(a); if (!rc) gone(memory, PLACES, a); line("cuMemFree_v2", rc); end(); break; }
    case 12: { u32 a = address32(); u32 rc = cuMemFree(a); if (!rc) gone(memory, PLACES, a); line("cuMemFree", rc); end(); break; }
    case 13: { size_t f = (size_t)CANARY, t = (size_t)CANARY; size_t *of = OUT(f), *ot = OUT(t); line("cuMemGetInfo_v2", cuMemGetInfo_v2(of, ot)); if (!tame) out64(f, 0), out64(t, 0); end(); break; }
    default: { u32 f = (u32)CANARY, t = (u32)CANARY; u32 *of = OUT(f), *ot = OUT(t); line("cuMemGetInfo", cuMemGetInfo(of, ot)); if (!tame) out32(f, 0), out32(t, 0); end(); }
    }
}

static void pool_call(void) {
    switch (below(13)) {
    case 0: case 1: { stream s = a_stream(); ALLOCATION("cuMemAllocAsync", cuMemAllocAsync(o, n, s), 0) break; }
    case 2: { stream s = a_stream(); ALLOCATION("cuMemAllocAsync_ptsz", cuMemAllocAsync_ptsz(o, n, s), 0) break; }
    case 3: case 4: { stream s = a_stream(); pool p = a_pool(); ALLOCATION("cuMemAllocFromPoolAsync", cuMemAllocFromPoolAsync(o, n, p, s), 0) break; }
    case 5: { stream s = a_stream(); pool p = a_pool(); ALLOCATION("cuMemAllocFromPoolAsync_ptsz", cuMemAllocFromPoolAsync_ptsz(o, n, p, s), 0) break; }
    case 6: case 7: { u64 a = address(); u32 rc = cuMemFreeAsync(a, a_stream()); if (!rc) gone(memory, PLACES, a); line("cuMemFreeAsync", rc); end(); break; }
    case 8: { u64 a = address(); u32 rc = cuMemFreeAsync_ptsz(a, a_stream()); if (!rc) gone(memory, PLACES, a); line("cuMemFreeAsync_ptsz", rc); end(); break; }
    case 9: { u32 at = below(COUNT(pools)); pool_props p; u64 v = CANARY; u64 *o = OUT(v); u32 rc = cuMemPoolCreate((pool *)o, props(&p)); line("cuMemPoolCreate", rc); out64(v, 1); made(pools, "p", at, v == CANARY ? 0 : v, 0, rc); end(); break; }
    case 10: if (once_in(2)) { pool p = a_pool(); u32 rc = cuMemPoolDestroy(p); if (!rc) gone(pools, COUNT(pools), (u64)(uintptr_t)p); line("cuMemPoolDestroy", rc); end(); break; } // fall through
    case 11: { pool p = a_pool(); PLAIN("cuMemPoolTrimTo", cuMemPoolTrimTo(p, size())) break; }
    default: if (once_in(3)) { u32 at = below(COUNT(pools)); u64 v = 0; u32 rc = cuDeviceGetDefaultMemPool((pool *)&v, device()); line("default pool", rc); made(pools, "p", at, v, 0, rc); end(); }
        else { u64 v = CANARY; pool p = a_pool(); u32 rc = cuMemPoolGetAttribute(p, 5 + 2 * (int)below(2), &v); line("cuMemPoolGetAttribute", rc); if (!tame) out64(v, 0); end(); }
    }
}

static void vmm_call(void) {
    u64 v = CANARY;
    switch (below(9)) {
    case 0: case 1: { u32 at = below(COUNT(handles)); u64 n = size(); allocation_prop p; use("h", at);
        if (!once_in(4)) n = (1 + below(5)) << 21;
        PLAIN("clear handle", cuMemRelease(handles[at].value)) if (handles[at].value) handles[at].stale = handles[at].value; handles[at].value = 0;
        u32 rc = cuMemCreate(OUT(v), n, prop(&p), once_in(12)); line("cuMemCreate", rc); if (tame) printf(" of %llu on %d", n, p.device); out64(v, 1); made(handles, "h", at, v == CANARY ? 0 : v, n, rc); end(); break; }
    case 2: case 3: { u64 h = handle(); u32 rc = cuMemRelease(h); if (!rc) gone(handles, COUNT(handles), h); line("cuMemRelease", rc); end(); break; }
    case 4: { u32 at = below(COUNT(handles)); use("h", at); PLAIN("clear handle", cuMemRelease(handles[at].value)) handles[at].value = 0;
        u64 a = from(ranges, COUNT(ranges), "r"); u32 rc = cuMemRetainAllocationHandle(OUT(v), (void *)(uintptr_t)a); line("cuMemRetainAllocationHandle", rc); out64(v, 1); made(handles, "h", at, v == CANARY ? 0 : v, 0, rc); end(); break; }
    case 5: { u32 at = below(COUNT(ranges)); clear_range(at); size_t n = (1 + below(8)) << 21; u32 rc = cuMemAddressReserve(&v, n, 0, 0, 0); line("cuMemAddressReserve", rc); made(ranges, "r", at, v, n, rc); end(); break; }
    case 6: case 7: { u32 h = below(COUNT(handles)), r = below(COUNT(ranges)); int sane = !once_in(3); u64 a = sane ? ranges[r].value : address(), b = sane ? handles[h].value : handle(), off = once_in(8) ? 2 << 20 : 0;
        size_t n = sane ? ranges[r].size : (size_t)size(); if (sane) { use("r", r); use("h", h); if (n > handles[h].size) n = handles[h].size; }
        if (tame && !sane) a = ranges[r].value, use("r", r);
        PLAIN("cuMemMap", cuMemMap(a, n, off, b, once_in(12))) break; }
    default: { u32 r = below(COUNT(ranges)); use("r", r); size_t n = once_in(3) ? (size_t)size() : once_in(2) ? ranges[r].size : (size_t)(1 + below(5)) << 21; PLAIN("cuMemUnmap", cuMemUnmap(ranges[r].value + (once_in(9) ? 512 : 0), n)) }
    }
}

static void context_call(void) {
    u32 at = below(COUNT(contexts)), how = below(26);
    u64 v = CANARY;
    ctx *o = missing() ? 0 : (ctx *)&v;
    int d = device();
    if (how < 4) {
        static const char *names[] = {"cuCtxCreate", "cuCtxCreate_v2", "cuCtxCreate_v3", "cuCtxCreate_v4"};
        u32 f = flags(0);
        ctx old = (ctx)(uintptr_t)contexts[at].value; u32 rc = old ? cuCtxDestroy_v2(old) : 0; use("c", at); line("clear context", rc); end(); if (old && !rc) forget(old);
        rc = how == 0 ? cuCtxCreate(o, f, d) : how == 1 ? cuCtxCreate_v2(o, f, d) : how == 2 ? cuCtxCreate_v3(o, 0, once_in(5), f, d) : cuCtxCreate_v4(o, 0, f, d);
        line(names[how], rc); out64(v, 1); made(contexts, "c", at, v == CANARY ? 0 : v, 0, rc); end();
    } else if (how < 6) { ctx c = context(); u32 rc = how & 1 ? cuCtxDestroy(c) : cuCtxDestroy_v2(c); if (!rc) gone(contexts, COUNT(contexts), (u64)(uintptr_t)c), forget(c); line("cuCtxDestroy", rc); end(); }
    else if (how < 7) { u32 rc = cuCtxAttach(o, flags(0)); line("cuCtxAttach", rc); out64(v, 1); end(); }
    else if (how < 8) { ctx c = context(); u32 rc = cuCtxDetach(c); line("cuCtxDetach", rc); ctx now; if (!rc && (cuCtxGetCurrent(&now) || now != c)) forget(c), gone(contexts, COUNT(contexts), (u64)(uintptr_t)c); end(); }
    else if (how < 14) { ctx c = context(); PLAIN("cuCtxSetCurrent", cuCtxSetCurrent(c)) }
    else if (how < 20) { u32 rc = cuDevicePrimaryCtxRetain(o, once_in(3) ? d : 0); line("cuDevicePrimaryCtxRetain", rc); out64(v, 1); end(); if (!rc && v != CANARY) PLAIN("set primary", cuCtxSetCurrent((ctx)(uintptr_t)v)) }
    else if (how < 22) { u32 rc = how & 1 ? cuDevicePrimaryCtxRelease(d) : cuDevicePrimaryCtxRelease_v2(d); if (!rc) forget_primary(d); line("cuDevicePrimaryCtxRelease", rc); end(); }
    else if (how < 23) { if (once_in(2)) { u32 rc = once_in(2) ? cuDevicePrimaryCtxReset(d) : cuDevicePrimaryCtxReset_v2(d); if (!rc) forget_primary(d); line("cuDevicePrimaryCtxReset", rc); end(); } }
    else if (how < 24) { u32 w = (u32)CANARY; u32 rc = cuDeviceTotalMem(OUT(w), d); line("cuDeviceTotalMem", rc); if (!tame) out32(w, 0); end(); size_t t = (size_t)CANARY; rc = cuDeviceTotalMem_v2(OUT(t), d); line("cuDeviceTotalMem_v2", rc); if (!tame) out64(t, 0); end(); }
    else if (how < 25) {
        u32 s = below(COUNT(streams)); u32 rc = cuStreamDestroy_v2((stream)(uintptr_t)(streams[s].value ? streams[s].value : 77)); line("clear stream", rc); end();
        streams[s].stale = streams[s].value, streams[s].value = 0; rc = cuStreamCreate((stream *)&v, below(2)); line("cuStreamCreate", rc); made(streams, "s", s, v == CANARY ? 0 : v, 0, rc); end();
    } else {
        static const char *names[] = {"cuMemAlloc", "cuMemFree", "cuMemAlloc_v2", "cuNothing", "", "cuGetProcAddress", "cuMemAllocAsync", "cuCtxCreate", "cuInit"};
        static const int versions[] = {2000, 3020, 11020, 12000, 13000, 99999, 0, -1};
        void *p = (void *)host; int status = -7; const char *name = names[below(9)]; /* null crashes the driver */ void **pp = OUT(p); int version = versions[below(8)]; u64 f = flags(0); int *ps = OUT(status);
        u32 rc = cuGetProcAddress_v2(name, pp, version, f, ps);
        line("cuGetProcAddress_v2", rc); printf(" %s %d", p == (void *)host ? "-" : p ? "some" : "none", status); end();
    }
}

static void call(void) {
    u32 how = below(10);
    if (how < 4) memory_call();
    else if (how < 6) pool_call();
    else if (how < 8) vmm_call();
    else context_call();
}

// --- captures ---
static stream other_stream;
static u64 kept, kept_handle, kept_range, kept_pool_block;
static pool kept_pool;
static int which;
static u32 do_which(stream s) {
    static const allocation_prop here = {1, 0, 1, 0, 0, {0}};
    static const pool_props pool_here = {1, 0, 1, 0, 0, 0, 0, {0}};
    u64 v = 0; size_t a = 0, b = 0; u32 w = 0, x = 0; ctx c = 0; pool p = 0;
    switch (which) {
    case 0: return cuMemAlloc_v2(&v, 4096);
    case 1: return cuMemAllocPitch_v2(&v, &a, 100, 10, 4);
    case 2: return cuMemAllocManaged(&v, 4096, 1);
    case 3: return cuMemFree_v2(kept);
    case 4: return cuMemGetInfo_v2(&a, &b);
    case 5: return cuMemGetInfo(&w, &x);
    case 6: return cuDeviceTotalMem_v2(&a, 0);
    case 7: return cuCtxCreate_v2(&c, 0, 0) || cuCtxDestroy_v2(c);
    case 8: return cuDevicePrimaryCtxRetain(&c, 0);
    case 9: return cuDevicePrimaryCtxRelease_v2(0);
    case 10: return cuMemAllocAsync(&v, 4096, s);
    case 11: return cuMemAllocAsync(&v, 4096, other_stream);
    case 12: return cuMemAllocAsync(&v, 4096, 0);
    case 13: return cuMemAllocAsync_ptsz(&v, 4096, 0);
    case 14: return cuMemAllocFromPoolAsync(&v, 4096, kept_pool, other_stream);
    case 15: return cuMemAllocFromPoolAsync(&v, 4096, kept_pool, s);
    case 16: return cuMemFreeAsync(kept_pool_block, other_stream);
    case 17: return cuMemFreeAsync(kept_pool_block, 0);
    case 18: return cuMemFreeAsync(kept_pool_block, s);
    case 19: return cuMemPoolCreate(&p, &pool_here);
    case 20: return cuMemPoolTrimTo(kept_pool, 0);
    case 21: return cuMemCreate(&v, 2 << 20, &here, 0);
    case 22: return cuMemRelease(kept_handle);
    case 23: return cuMemMap(kept_range, 2 << 20, 0, kept_handle, 0);
    case 24: return cuMemUnmap(kept_range, 2 << 20);
    case 25: return cuMemRetainAllocationHandle(&v, (void *)(uintptr_t)kept_range);
    case 26: return cuMemAlloc_v2(&v, (size_t)1 << 45);
    case 27: return cuMemAllocAsync(&v, (size_t)1 << 45, other_stream);
    case 28: return cuMemCreate(&v, (size_t)1 << 45, &here, 0);
    case 29: return cuMemPoolDestroy(0);
    case 30: return cuMemAllocAsync(&v, (size_t)1 << 45, s);
    default: return 0;
    }
}
static ctx the_context;
static u32 answer;
static void *elsewhere(void *s) { answer = cuCtxSetCurrent(the_context) ? 9999 : do_which((stream)s); return 0; }

static void captures(void) {
    static const allocation_prop here = {1, 0, 1, 0, 0, {0}};
    static const pool_props pool_here = {1, 0, 1, 0, 0, 0, 0, {0}};
    if (cuInit(0) || cuDevicePrimaryCtxRetain(&the_context, 0) || cuCtxSetCurrent(the_context) || cuStreamCreate(&other_stream, 1) || cuMemPoolCreate(&kept_pool, &pool_here)) exit(70);
    for (u32 mode = 0; mode < 3; mode++) for (u32 own = 0; own < 3; own++) for (u32 kind = 0; kind < 2; kind++) for (int thread = 0; thread < 2; thread++)
        for (which = 0; which <= 30; which++) {
            stream s; void *graph = 0, *exec = 0; u32 m = own, status = 99;
            // What the call under test may use up.
            if (cuMemAlloc_v2(&kept, 8192) || cuMemCreate(&kept_handle, 2 << 20, &here, 0) || cuMemAddressReserve(&kept_range, 2 << 20, 0, 0, 0) || cuMemAllocFromPoolAsync(&kept_pool_block, 4096, kept_pool, other_stream)) exit(70);
            if (which > 23 && cuMemMap(kept_range, 2 << 20, 0, kept_handle, 0)) exit(70);
            if (cuStreamCreate(&s, kind) || cuStreamBeginCapture_v2(s, mode)) exit(70);
            cuThreadExchangeStreamCaptureMode(&m);
            if (thread) { pthread_t t; pthread_create(&t, 0, elsewhere, s); pthread_join(t, 0); } else answer = do_which(s);
            cuThreadExchangeStreamCaptureMode(&m);
            u32 asked = cuStreamIsCapturing(s, &status), ended = cuStreamEndCapture(s, &graph), instance = graph ? cuGraphInstantiateWithFlags(&exec, graph, 0) : 77;
            printf("mode %u by %u stream %u thread %d call %d: %u then %u %u end %u instance %u mode back %u\n", mode, own, kind, thread, which, answer, asked, status, ended, instance, m);
            if (exec) cuGraphExecDestroy(exec);
            if (graph) cuGraphDestroy(graph);
            cuStreamDestroy_v2(s);
        }
}

int main(int argc, char **argv) {
    static char buffer[1 << 16];
    setvbuf(stdout, buffer, _IOFBF, sizeof buffer);
    if (argc > 1 && !strcmp(argv[1], "capture")) captures();
    else {
        if (argc < 3) return 64;
        seed = (strtoull(argv[1], 0, 0) + 1) * 0x9e3779b97f4a7c15ull;
        tame = argc > 3;
        long calls = atol(argv[2]);
        for (int i = 0; i < 8; i++) next();
        if (!tame) for (int i = 0; i < 300; i++) call();
        PLAIN("cuInit", cuInit(1))
        PLAIN("cuInit", cuInit(0))
        while (number < calls) call();
        for (int d = 0; d < 2; d++) {
            ctx c; size_t f = 0, t = 0;
            u32 rc = cuDevicePrimaryCtxRetain(&c, d);
            if (!rc) rc = cuCtxSetCurrent(c) ? 1 : cuMemGetInfo_v2(&f, &t);
            printf("end of device %d: %u free %zu total %zu\n", d, rc, f, t);
        }
    }
    puts("done");
    fflush(stdout);
    while (getchar() != EOF) {}
    return 0;
}
