// What a profiler puts into a process by CUDA_INJECTION64_PATH: the driver loads it at the start of cuInit.
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stdio.h>

int InitializeInjection(void) {
    // The table that tools ask for first (tools callbacks of the runtime).
    static const unsigned char id[16] = {0xa0, 0x94, 0x79, 0x8c, 0x2e, 0x74, 0x2e, 0x74, 0x93, 0xf2, 0x08, 0x00, 0x20, 0x0c, 0x0a, 0x66};
    const void *table = 0;
    void *driver = dlopen("libcuda.so.1", RTLD_NOW);
    unsigned (*get)(const void **, const void *) = driver ? (unsigned (*)(const void **, const void *))dlsym(driver, "cuGetExportTable") : 0;
    printf("injected %u\n", get ? get(&table, id) : 999);
    fflush(stdout);
    return 1;
}
