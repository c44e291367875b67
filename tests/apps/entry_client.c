// Allocates through functions that are linked, or looked up by the object itself. A program (-DPROGRAM) or a library that entry_host.c opens.
//   entry_client CALL BYTES COUNT
// makes COUNT allocations, prints the code of each and what became of the out-parameter, frees them all and tries once more.
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

typedef unsigned long long u64;
#define UNTOUCHED 0x5ca1ab1e5ca1ab1eULL

int cuInit(unsigned flags);
int cuMemAlloc_v2(u64 *pointer, size_t bytes);
int cuMemFree_v2(u64 pointer);
int cuGetProcAddress(const char *symbol, void **pfn, int version, u64 flags);
#ifdef ALL
int cuDeviceGet(int *device, int ordinal);
int cuDevicePrimaryCtxRetain(void **ctx, int device);
int cuCtxSetCurrent(void *ctx);
int cuMemAlloc(unsigned *pointer, unsigned bytes);
int cuMemFree(unsigned pointer);
int cuMemAllocPitch_v2(u64 *pointer, size_t *pitch, size_t width, size_t height, unsigned element);
int cuMemAllocManaged(u64 *pointer, size_t bytes, unsigned flags);
int cuMemAllocAsync(u64 *pointer, size_t bytes, void *stream);
int cuMemFreeAsync(u64 pointer, void *stream);
int cuStreamSynchronize(void *stream);
int cuMemCreate(u64 *handle, size_t size, const void *prop, u64 flags);
int cuMemRelease(u64 handle);
#endif

// Function pointers in data are bound by relocations of another kind than calls.
int (*const in_data)(u64 *, size_t) = cuMemAlloc_v2;

static int take(const char *call, u64 *out, size_t bytes)
{
    if (!strcmp(call, "cuMemAlloc_v2"))
        return cuMemAlloc_v2(out, bytes);
    if (!strcmp(call, "data"))
        return in_data(out, bytes);
    if (!strcmp(call, "cuGetProcAddress")) {
        int (*alloc)(u64 *, size_t) = NULL;
        int code = cuGetProcAddress("cuMemAlloc", (void **)&alloc, 11030, 0);
        return code ? code : alloc(out, bytes);
    }
    void *handle = !strcmp(call, "dlsym")     ? dlopen("libcuda.so.1", RTLD_NOW)
                   : !strcmp(call, "default") ? RTLD_DEFAULT
                   : !strcmp(call, "next")    ? RTLD_NEXT
                                              : (void *)-2L;
    if (handle != (void *)-2L) {
        int (*alloc)(u64 *, size_t) = (int (*)(u64 *, size_t))dlsym(handle, "cuMemAlloc_v2");
        return alloc ? alloc(out, bytes) : -1;
    }
#ifdef ALL
    size_t pitch;
    if (!strcmp(call, "cuMemAlloc"))
        return cuMemAlloc((unsigned *)out, (unsigned)bytes);
    if (!strcmp(call, "cuMemAllocPitch_v2"))
        return cuMemAllocPitch_v2(out, &pitch, 1 << 20, bytes >> 20, 16);
    if (!strcmp(call, "cuMemAllocManaged"))
        return cuMemAllocManaged(out, bytes, 1);
    if (!strcmp(call, "cuMemAllocAsync"))
        return cuMemAllocAsync(out, bytes, NULL);
    if (!strcmp(call, "cuMemCreate")) {
        // CU_MEM_ALLOCATION_TYPE_PINNED on device 0.
        unsigned char prop[32] = {1};
        prop[8] = 1;
        return cuMemCreate(out, bytes, prop, 0);
    }
#endif
    printf("no such call: %s\n", call);
    exit(2);
}

static int give(const char *call, u64 pointer)
{
#ifdef ALL
    if (!strcmp(call, "cuMemAlloc"))
        return cuMemFree((unsigned)pointer);
    if (!strcmp(call, "cuMemAllocAsync"))
        return cuMemFreeAsync(pointer, NULL) || cuStreamSynchronize(NULL);
    if (!strcmp(call, "cuMemCreate"))
        return cuMemRelease(pointer);
#else
    (void)call;
#endif
    return cuMemFree_v2(pointer);
}

int client(int argc, char **argv)
{
    if (argc != 4)
        return 2;
    size_t bytes = strtoull(argv[2], NULL, 0);
    int count = atoi(argv[3]), code = cuInit(0);
    u64 held[64];
    if (count > 64)
        return 2;
    printf("cuInit %d\n", code);
#ifdef ALL
    int device;
    void *ctx;
    if (cuDeviceGet(&device, 0) || cuDevicePrimaryCtxRetain(&ctx, device) || cuCtxSetCurrent(ctx))
        return 3;
#endif
    for (int i = 0; i < count; i++) {
        held[i] = UNTOUCHED;
        code = take(argv[1], &held[i], bytes);
        printf("%s %d %s\n", argv[1], code, held[i] == UNTOUCHED ? "untouched" : "written");
    }
    for (int i = 0; i < count; i++)
        if (held[i] != UNTOUCHED)
            printf("free %d\n", give(argv[1], held[i]));
    code = take(argv[1], &held[0], bytes);
    printf("again %d\n", code);
    // In a namespace of its own nobody else does.
    fflush(stdout);
    return 0;
}

#ifdef PROGRAM
int main(int argc, char **argv)
{
    return client(argc, argv);
}
#endif
