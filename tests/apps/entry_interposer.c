// Another library for LD_PRELOAD, written the way such libraries are: it exports dlsym, finds the real one by version, and
// answers the names it is interested in with its own functions. With -DWRAPS_CUDA it wraps allocations and look-ups, and
// reaches the driver's functions through RTLD_NEXT and the handles that it is asked with.
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

typedef void *(*dlsym_function)(void *, const char *);

static dlsym_function real_dlsym(void)
{
    static dlsym_function real;
    if (!real)
        real = (dlsym_function)dlvsym(RTLD_NEXT, "dlsym", "GLIBC_2.2.5");
    return real;
}

#ifdef WRAPS_CUDA
static int allocations;
static void *handle_asked;

static void *driver_function(const char *name)
{
    void *found = real_dlsym()(RTLD_NEXT, name);
    if (!found && handle_asked)
        found = real_dlsym()(handle_asked, name);
    return found;
}

int cuMemAlloc_v2(unsigned long long *pointer, size_t bytes)
{
    int (*real)(unsigned long long *, size_t) = (int (*)(unsigned long long *, size_t))driver_function("cuMemAlloc_v2");
    if (++allocations > 1000)
        abort(); // called by its own callee
    return real ? real(pointer, bytes) : 3;
}

int cuGetProcAddress_v2(const char *symbol, void **pfn, int version, unsigned long long flags, int *status)
{
    int (*real)(const char *, void **, int, unsigned long long, int *) =
        (int (*)(const char *, void **, int, unsigned long long, int *))driver_function("cuGetProcAddress_v2");
    int code = real ? real(symbol, pfn, version, flags, status) : 3;
    if (!code && !strcmp(symbol, "cuMemAlloc") && version >= 3020)
        *pfn = (void *)cuMemAlloc_v2;
    return code;
}

__attribute__((destructor)) static void told(void)
{
    fprintf(stderr, "interposer: %d allocations\n", allocations);
}
#endif

#ifndef NO_DLSYM
void *dlsym(void *handle, const char *name)
{
#ifdef WRAPS_CUDA
    if (!strncmp(name, "cu", 2) && handle != RTLD_NEXT) {
        void *found = real_dlsym()(handle, name);
        if (found && handle != RTLD_DEFAULT)
            handle_asked = handle;
        if (found && !strcmp(name, "cuMemAlloc_v2"))
            return (void *)cuMemAlloc_v2;
        if (found && !strcmp(name, "cuGetProcAddress_v2"))
            return (void *)cuGetProcAddress_v2;
        return found;
    }
#endif
    return real_dlsym()(handle, name);
}
#endif
