// A program that uses the driver only where there is one: it finds out by weak references, by looking in global scope, and by
// loading the library. Prints what each way says, without addresses.
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stdio.h>

extern unsigned cuInit(unsigned) __attribute__((weak));
extern unsigned cuMemAlloc_v2(unsigned long long *, size_t) __attribute__((weak));

int main(void) {
    unsigned long long p = 7;
    // Volatile: the compiler must ask at run time.
    unsigned (*volatile init)(unsigned) = cuInit;
    unsigned (*volatile alloc)(unsigned long long *, size_t) = cuMemAlloc_v2;
    if (init) printf("weak init %u\n", init(0));
    if (alloc) printf("weak alloc %u %llu\n", alloc(&p, 4096), p);
    const char *names[] = {"cuInit", "cuMemAlloc_v2", "cuGetProcAddress_v2", "cuDriverGetVersion", "nvmlInit_v2"};
    for (int i = 0; i < 5; i++) {
        void *found = dlsym(RTLD_DEFAULT, names[i]), *next = dlsym(RTLD_NEXT, names[i]);
        printf("%s default %d next %d\n", names[i], found != 0, next != 0);
        const char *why = dlerror();
        printf("%s\n", why ? why : "no error");
    }
    for (int i = 0; i < 2; i++) {
        void *handle = dlopen(i ? "libcuda.so" : "libcuda.so.1", RTLD_NOW);
        printf("open %d: %s\n", handle != 0, handle ? "" : dlerror());
    }
    return 0;
}
