// Prints what NVML tells of the memory of each device, reached in the way that argv[1] names:
//   linked             by the symbols that this program is linked with (-DLINKED)
//   handle, default    by dlsym on the handle of libnvidia-ml.so.1, or in global scope
//   deep PATH, apart PATH    by the library PATH, opened with RTLD_DEEPBIND or in a namespace of its own
// With -DLIBRARY it is such a library.
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

typedef struct { unsigned long long total, free, used; } memory;
typedef struct { unsigned version; unsigned long long total, reserved, free, used; } memory_v2;

#if defined LINKED || defined LIBRARY
extern int nvmlInit_v2(void);
extern int nvmlDeviceGetCount_v2(unsigned *count);
extern int nvmlDeviceGetHandleByIndex_v2(unsigned index, void **device);
extern int nvmlDeviceGetMemoryInfo(void *device, memory *out);
extern int nvmlDeviceGetMemoryInfo_v2(void *device, memory_v2 *out);
#define OWN(name) (void *)name
#else
#define OWN(name) NULL
#endif

static int show(int (*init)(void), int (*count)(unsigned *), int (*handle)(unsigned, void **), int (*v1)(void *, memory *),
                int (*v2)(void *, memory_v2 *))
{
    unsigned devices = 0;
    int code = init ? init() : -1;
    if (code || count(&devices)) {
        printf("init %d\n", code);
        return 1;
    }
    for (unsigned i = 0; i < devices; i++) {
        void *device = NULL;
        memory one = {0, 0, 0};
        memory_v2 two = {0x2000028, 0, 0, 0, 0};
        handle(i, &device);
        int first = v1 ? v1(device, &one) : -1, second = v2 ? v2(device, &two) : -1;
        printf("nvml %u %d %llu %llu %llu %d %llu %llu %llu %llu\n", i, first, one.total, one.free, one.used, second, two.total,
               two.free, two.used, two.reserved);
    }
    fflush(stdout);
    return 0;
}

#ifdef LIBRARY
int show_own(void)
{
    return show(nvmlInit_v2, nvmlDeviceGetCount_v2, nvmlDeviceGetHandleByIndex_v2, nvmlDeviceGetMemoryInfo,
                nvmlDeviceGetMemoryInfo_v2);
}
#else
static void *found(void *handle, const char *name)
{
    void *address = dlsym(handle, name);
    if (!address)
        printf("%s: %s\n", name, dlerror() ? "no such symbol" : "no reason");
    return address;
}

int main(int argc, char **argv)
{
    const char *how = argc > 1 ? argv[1] : "linked";
    if (argc > 2) {
        void *library = !strcmp(how, "deep") ? dlopen(argv[2], RTLD_NOW | RTLD_DEEPBIND) : dlmopen(LM_ID_NEWLM, argv[2], RTLD_NOW);
        if (!library) {
            puts(dlerror());
            return 2;
        }
        return ((int (*)(void))dlsym(library, "show_own"))();
    }
    if (!strcmp(how, "linked"))
        return show(OWN(nvmlInit_v2), OWN(nvmlDeviceGetCount_v2), OWN(nvmlDeviceGetHandleByIndex_v2), OWN(nvmlDeviceGetMemoryInfo),
                    OWN(nvmlDeviceGetMemoryInfo_v2));
    void *handle = dlopen("libnvidia-ml.so.1", RTLD_NOW | (strcmp(how, "default") ? RTLD_LOCAL : RTLD_GLOBAL));
    if (!handle) {
        puts("not installed");
        return 2;
    }
    handle = strcmp(how, "default") ? handle : RTLD_DEFAULT;
    return show(found(handle, "nvmlInit_v2"), found(handle, "nvmlDeviceGetCount_v2"), found(handle, "nvmlDeviceGetHandleByIndex_v2"),
                found(handle, "nvmlDeviceGetMemoryInfo"), found(handle, "nvmlDeviceGetMemoryInfo_v2"));
}
#endif
