// Tells where names lead. Reads from stdin, one a line:
//   open PATH | apart PATH     the library that the next lines ask (dlopen, dlmopen)
//   dlsym NAME                 dlsym on that library
//   default NAME, next NAME    dlsym(RTLD_DEFAULT), dlsym(RTLD_NEXT)
//   gpa1 NAME VERSION FLAGS    cuGetProcAddress as dlsym gave it
//   gpa2 NAME VERSION FLAGS    cuGetProcAddress_v2
//   through NAME VERSION FLAGS as gpa1, with the cuGetProcAddress that cuGetProcAddress itself hands out (11030)
//   call NAME ARGUMENT         calls a function of one integer argument and prints what it returns
//   alloc NAME BYTES           calls an allocating function (pointer, bytes)
// and prints for each what was found: file, symbol, offset.
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

typedef unsigned long long u64;
typedef int (*gpa1_function)(const char *, void **, int, u64);
typedef int (*gpa2_function)(const char *, void **, int, u64, int *);
#define UNTOUCHED ((void *)0x5ca1ab1e)

static void *library;

static void where(void *found)
{
    Dl_info info = {0};
    if (!found)
        printf(" null\n");
    else if (found == UNTOUCHED)
        printf(" untouched\n");
    else if (!dladdr(found, &info))
        printf(" nowhere\n");
    else {
        const char *slash = strrchr(info.dli_fname, '/');
        printf(" %s %s %lx\n", slash ? slash + 1 : info.dli_fname, info.dli_sname ? info.dli_sname : "?",
               (unsigned long)found - (unsigned long)info.dli_fbase);
    }
}

int main(void)
{
    char line[512], how[64], name[256];
    setvbuf(stdout, NULL, _IOFBF, 1 << 16);
    while (fgets(line, sizeof line, stdin)) {
        int version = 0;
        u64 flags = 0;
        name[0] = 0;
        if (sscanf(line, "%63s %255s %d %llu", how, name, &version, &flags) < 1)
            continue;
        line[strcspn(line, "\n")] = 0;
        if (!strcmp(how, "open") || !strcmp(how, "apart")) {
            library = how[0] == 'o' ? dlopen(name, RTLD_NOW) : dlmopen(LM_ID_NEWLM, name, RTLD_NOW);
            printf("%s: %s\n", line, library ? "there" : dlerror());
            continue;
        }
        printf("%s:", line);
        if (!strcmp(how, "dlsym"))
            where(dlsym(library, name));
        else if (!strcmp(how, "default"))
            where(dlsym(RTLD_DEFAULT, name));
        else if (!strcmp(how, "next"))
            where(dlsym(RTLD_NEXT, name));
        else if (!strcmp(how, "gpa1") || !strcmp(how, "through")) {
            gpa1_function ask = (gpa1_function)dlsym(library, "cuGetProcAddress");
            if (ask && how[0] == 't' && ask("cuGetProcAddress", (void **)&ask, 11030, 0))
                ask = NULL;
            void *found = UNTOUCHED;
            if (!ask)
                printf(" none\n");
            else {
                printf(" %d", ask(name, &found, version, flags));
                where(found);
            }
        } else if (!strcmp(how, "gpa2")) {
            gpa2_function ask = (gpa2_function)dlsym(library, "cuGetProcAddress_v2");
            void *found = UNTOUCHED;
            int status = -1;
            if (!ask)
                printf(" none\n");
            else {
                printf(" %d", ask(name, &found, version, flags, &status));
                printf(" %d", status);
                where(found);
            }
        } else if (!strcmp(how, "call")) {
            int (*function)(unsigned) = (int (*)(unsigned))dlsym(library, name);
            printf(" %d\n", function ? function((unsigned)version) : -1);
        } else if (!strcmp(how, "alloc")) {
            int (*function)(u64 *, size_t) = (int (*)(u64 *, size_t))dlsym(library, name);
            u64 pointer = 0;
            printf(" %d\n", function ? function(&pointer, (size_t)version) : -1);
        } else
            printf(" what?\n");
        fflush(stdout);
    }
    return 0;
}
