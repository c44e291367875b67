// Loads a plugin and runs it: host PLUGIN HOW ARGUMENTS..., HOW: lazy | now | deepbind-lazy | deepbind-now | dlmopen
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stdio.h>
#include <string.h>

int main(int argc, char **argv) {
    if (argc < 3) return 64;
    const char *how = argv[2];
    int flags = strstr(how, "lazy") ? RTLD_LAZY : RTLD_NOW;
    if (strstr(how, "deepbind")) flags |= RTLD_DEEPBIND;
    void *plugin = strcmp(how, "dlmopen") ? dlopen(argv[1], flags) : dlmopen(LM_ID_NEWLM, argv[1], RTLD_NOW);
    if (!plugin) {
        fprintf(stderr, "host: %s\n", dlerror());
        return 70;
    }
    int (*run)(int, char **) = (int (*)(int, char **))dlsym(plugin, "run");
    if (!run) return 70;
    argv[2] = argv[0];
    return run(argc - 2, argv + 2);
}
