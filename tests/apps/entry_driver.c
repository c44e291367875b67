// A driver of a few functions, for look-ups that the simulated driver is too good for: copies, old and newer drivers, a
// libcuda that hands over to its implementation. Memory is a counter.
//   -DOLD          as of CUDA 11.5: no cuGetProcAddress_v2, no cuMemCreate
//   -DNEWER        has a cuMemAlloc_v3
//   -DSTUB         cuInit loads libcuda_impl.so and looks its functions up there and in every other way
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

typedef unsigned long long u64;

static int initialised;
static u64 next = 0x700000000000;

#ifdef STUB
static int depth;

int cuInit(unsigned flags)
{
    if (++depth > 1) {
        printf("cuInit called itself\n");
        exit(1);
    }
    void *impl = dlopen("libcuda_impl.so", RTLD_NOW);
    int (*by_handle)(unsigned) = (int (*)(unsigned))dlsym(impl, "cuInit");
    void *own = dlsym(dlopen("libcuda.so.1", RTLD_NOW | RTLD_NOLOAD), "cuInit");
    void *by_default = dlsym(RTLD_DEFAULT, "cuInit");
    printf("handle: %s, own: %s, default: %s\n", by_handle && (void *)by_handle != (void *)cuInit ? "implementation" : "wrong",
           own == (void *)cuInit ? "itself" : "wrong", !by_default || by_default == (void *)cuInit ? "right" : "wrong");
    int code = by_handle(flags);
    initialised = code == 0;
    depth--;
    return code;
}
#else
int cuInit(unsigned flags)
{
    initialised = 1;
    return flags ? 1 : 0;
}
#endif

int cuMemAlloc(unsigned *pointer, unsigned bytes)
{
    *pointer = bytes ? 0x1000 : 0;
    return initialised ? 0 : 3;
}

int cuMemAlloc_v2(u64 *pointer, size_t bytes)
{
    *pointer = next;
    next += (bytes + 0x3fffff) & ~0x1fffffULL;
    return initialised ? 0 : 3;
}

#ifdef NEWER
int cuMemAlloc_v3(u64 *pointer, size_t bytes, u64 flags)
{
    return cuMemAlloc_v2(pointer, bytes + flags);
}
#endif

int cuMemFree_v2(u64 pointer)
{
    return pointer ? 0 : 1;
}

// One device; what a cap is made from.
int cuDeviceGetCount(int *count)
{
    *count = 1;
    return initialised ? 0 : 3;
}

int cuDeviceGet(int *device, int ordinal)
{
    *device = 0;
    return !initialised ? 3 : ordinal ? 101 : 0;
}

int cuDeviceTotalMem_v2(size_t *bytes, int device)
{
    *bytes = (size_t)1 << 34;
    return device ? 101 : 0;
}

int cuDeviceGetUuid(unsigned char *uuid, int device)
{
    memset(uuid, 7, 16);
    return device ? 101 : 0;
}

int cuDeviceGetName(char *name, int size, int device)
{
    snprintf(name, (size_t)size, "a device");
    return device ? 101 : 0;
}

int cuCtxGetCurrent(void **ctx)
{
    *ctx = &next;
    return 0;
}

int cuCtxGetDevice(int *device)
{
    *device = 0;
    return 0;
}

int cuDriverGetVersion(int *version)
{
    *version = 11050;
    return 0;
}

#ifndef OLD
int cuMemCreate(u64 *handle, size_t size, const void *prop, u64 flags)
{
    *handle = size + (prop != NULL) + flags;
    return 0;
}
#endif

int cuGetProcAddress(const char *symbol, void **pfn, int version, u64 flags);
int cuGetProcAddress_v2(const char *symbol, void **pfn, int version, u64 flags, int *status);

static void *find(const char *symbol, int version)
{
    if (!strcmp(symbol, "cuInit"))
        return (void *)cuInit;
#ifdef NEWER
    if (!strcmp(symbol, "cuMemAlloc") && version >= 14000)
        return (void *)cuMemAlloc_v3;
#endif
    if (!strcmp(symbol, "cuMemAlloc"))
        return version >= 3020 ? (void *)cuMemAlloc_v2 : (void *)cuMemAlloc;
    if (!strcmp(symbol, "cuMemFree") && version >= 3020)
        return (void *)cuMemFree_v2;
    if (!strcmp(symbol, "cuDriverGetVersion"))
        return (void *)cuDriverGetVersion;
#ifdef OLD
    if (!strcmp(symbol, "cuGetProcAddress"))
        return (void *)cuGetProcAddress;
#else
    if (!strcmp(symbol, "cuMemCreate"))
        return (void *)cuMemCreate;
    if (!strcmp(symbol, "cuGetProcAddress"))
        return version >= 12000 ? (void *)cuGetProcAddress_v2 : (void *)cuGetProcAddress;
#endif
    return NULL;
}

int cuGetProcAddress(const char *symbol, void **pfn, int version, u64 flags)
{
    void *found = flags > 3 ? NULL : find(symbol, version);
    if (found)
        *pfn = found;
    return flags > 3 ? 1 : found ? 0 : 500;
}

#ifndef OLD
int cuGetProcAddress_v2(const char *symbol, void **pfn, int version, u64 flags, int *status)
{
    if (flags > 3)
        return 1;
    *pfn = find(symbol, version);
    if (status)
        *status = *pfn ? 0 : 1;
    return 0;
}
#endif
