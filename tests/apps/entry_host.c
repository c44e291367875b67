// Opens a library in a chosen way and runs its `client` with the rest of the arguments.
//   entry_host HOW[+close] LIBRARY ARGUMENTS...     HOW: lazy, now, global, deep-lazy, deep-now, apart
// With +close it is closed and opened again first, so that the second time finds it at a place that was seen before.
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static void *open_library(const char *how, const char *library)
{
    if (!strncmp(how, "apart", 5))
        return dlmopen(LM_ID_NEWLM, library, RTLD_LAZY);
    int flags = strstr(how, "now") ? RTLD_NOW : RTLD_LAZY;
    if (!strncmp(how, "deep", 4))
        flags |= RTLD_DEEPBIND;
    if (!strncmp(how, "global", 6))
        flags |= RTLD_GLOBAL;
    return dlopen(library, flags);
}

int main(int argc, char **argv)
{
    if (argc < 3)
        return 2;
    void *library = open_library(argv[1], argv[2]);
    if (library && strstr(argv[1], "+close")) {
        dlsym(library, "client");
        dlclose(library);
        library = open_library(argv[1], argv[2]);
    }
    if (!library) {
        printf("%s\n", dlerror());
        return 2;
    }
    int (*client)(int, char **) = (int (*)(int, char **))dlsym(library, "client");
    if (!client) {
        printf("%s\n", dlerror());
        return 2;
    }
    return client(argc - 2, argv + 2);
}
