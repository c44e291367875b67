// Uses the driver in a static constructor, before main.
//
// With -DLIBRARY -shared: a library whose constructor does. Plainly: a program whose constructor loads the library that is its
// first argument. With -DDIRECT -lcuda the constructor calls linked functions, else it looks them up.
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stdio.h>

typedef unsigned long long u64;
#define GIB (1ull << 30)

#if defined LIBRARY || defined DIRECT
#ifdef DIRECT
extern unsigned cuInit(unsigned), cuCtxCreate_v2(void **, unsigned, int), cuMemAlloc_v2(u64 *, size_t), cuMemGetInfo_v2(size_t *, size_t *);
#endif

__attribute__((constructor)) static void early(void) {
#ifndef DIRECT
    void *cuda = dlopen("libcuda.so.1", RTLD_NOW);
    unsigned (*cuInit)(unsigned), (*cuCtxCreate_v2)(void **, unsigned, int), (*cuMemAlloc_v2)(u64 *, size_t), (*cuMemGetInfo_v2)(size_t *, size_t *);
    *(void **)&cuInit = dlsym(cuda, "cuInit");
    *(void **)&cuCtxCreate_v2 = dlsym(cuda, "cuCtxCreate_v2");
    *(void **)&cuMemAlloc_v2 = dlsym(cuda, "cuMemAlloc_v2");
    *(void **)&cuMemGetInfo_v2 = dlsym(cuda, "cuMemGetInfo_v2");
#endif
    void *context;
    size_t free = 0, total = 0;
    u64 p = 0;
    unsigned init = cuInit(0);
    cuCtxCreate_v2(&context, 0, 0);
    unsigned info = cuMemGetInfo_v2(&free, &total), alloc = cuMemAlloc_v2(&p, GIB + 1), kept = cuMemAlloc_v2(&p, GIB);
    printf("early: init %u info %u %zu %zu alloc %u kept %u\n", init, info, free, total, alloc, kept);
}
#endif

#ifndef LIBRARY
#ifndef DIRECT
__attribute__((constructor)) static void load(int argc, char **argv) {
    if (argc < 2 || !dlopen(argv[1], RTLD_NOW)) fprintf(stderr, "early: %s\n", argc < 2 ? "no library" : dlerror());
}
#endif

int main(void) {
    puts("main");
    return 0;
}
#endif
