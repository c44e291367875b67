// Which variant of a function cuGetProcAddress gives: for every name, version and flag, the exported name that dlsym has
// the same address under. The variants of a name differ in their signatures, so the name stands for the signature.
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stdio.h>
#include <string.h>

static const char *names[] = {
    "cuGetProcAddress", "cuInit", "cuMemAlloc", "cuMemAllocPitch", "cuMemAllocManaged", "cuMemFree", "cuMemGetInfo",
    "cuDeviceTotalMem", "cuCtxCreate", "cuCtxDestroy", "cuCtxAttach", "cuCtxDetach", "cuDevicePrimaryCtxRetain",
    "cuDevicePrimaryCtxRelease", "cuDevicePrimaryCtxReset", "cuMemAllocAsync", "cuMemAllocFromPoolAsync", "cuMemFreeAsync",
    "cuMemPoolCreate", "cuMemPoolDestroy", "cuMemPoolTrimTo", "cuMemCreate", "cuMemRelease", "cuMemRetainAllocationHandle",
    "cuMemMap", "cuMemUnmap", "cuStreamGetCaptureInfo", "cuStreamSynchronize", "cuMemcpyHtoDAsync", "cuMemAlloc_v2", "cuNone", "",
};
static const int versions[] = {
    0, 2000, 3010, 3020, 4000, 6000, 7000, 10020, 11000, 11020, 11030, 11040, 12000, 12010, 12030, 12050, 13000, 13030, 13050,
};

static const char *variant(void *handle, const char *name, void *address) {
    static const char *ends[] = {"", "_v2", "_v3", "_v4", "_ptsz", "_ptds", "_v2_ptsz", "_v2_ptds", "_v3_ptsz"};
    static char full[128];
    if (!address) return "null";
    for (unsigned i = 0; i < sizeof ends / sizeof *ends; i++) {
        snprintf(full, sizeof full, "%s%s", name, ends[i]);
        if (dlsym(handle, full) == address) return full;
    }
    return "another";
}

int main(void) {
    void *handle = dlopen("libcuda.so.1", RTLD_NOW);
    if (!handle) return 70;
    unsigned (*get1)(const char *, void **, int, unsigned long long);
    unsigned (*get2)(const char *, void **, int, unsigned long long, int *);
    *(void **)&get1 = dlsym(handle, "cuGetProcAddress");
    *(void **)&get2 = dlsym(handle, "cuGetProcAddress_v2");
    for (unsigned n = 0; n < sizeof names / sizeof *names; n++)
        for (unsigned v = 0; v < sizeof versions / sizeof *versions; v++)
            for (unsigned flags = 0; flags < 5; flags++) {
                void *kept = (void *)names, *p = kept;
                unsigned rc = get1(names[n], &p, versions[v], flags);
                printf("1 %s %d %u: %u %s\n", names[n], versions[v], flags, rc, p == kept ? "kept" : variant(handle, names[n], p));
                if (!get2) continue;
                int status = 77;
                p = kept;
                rc = get2(names[n], &p, versions[v], flags, &status);
                printf("2 %s %d %u: %u %d %s\n", names[n], versions[v], flags, rc, status, p == kept ? "kept" : variant(handle, names[n], p));
                p = kept;
                rc = get2(names[n], &p, versions[v], flags, 0);
                printf("2 %s %d %u, no status: %u %s\n", names[n], versions[v], flags, rc, p == kept ? "kept" : variant(handle, names[n], p));
            }
    return 0;
}
