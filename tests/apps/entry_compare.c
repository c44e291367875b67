// Looks names up in every way a program can and prints what it got, so that a run under the preload can be compared with
// one without. The same file is the program (-DPROGRAM) and each of the libraries that ask from their own place:
// linked, dlopened (RTLD_LOCAL), RTLD_DEEPBIND, dlmopen.
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define PASTE(a, b) a##b
#define NAME(a, b) PASTE(a, b)
#define TEXT(a) TEXT2(a)
#define TEXT2(a) #a

// Everyone defines this one; RTLD_NEXT must find the next one's.
const char *marker(void) { return TEXT(PART); }
// As the OpenMP tools interface does: a weak definition that looks for another.
__attribute__((weak)) const char *tool_start(void) { return TEXT(PART); }

static const char *error_text(void)
{
    const char *text = dlerror();
    return text ? text : "-";
}

static void say(const char *what, const char *name, void *found)
{
    Dl_info info = {0};
    const char *file = "?";
    unsigned long offset = 0;
    if (found && dladdr(found, &info) && info.dli_fname) {
        const char *slash = strrchr(info.dli_fname, '/');
        file = slash ? slash + 1 : info.dli_fname;
        offset = (unsigned long)found - (unsigned long)info.dli_fbase;
    }
    // A CUDA name is ours or the driver's: only whether it is there can be compared.
    if (!found)
        printf("%s %s %s: null, %s\n", TEXT(PART), what, name, error_text());
    else if (!strncmp(name, "cu", 2))
        printf("%s %s %s: there, %s\n", TEXT(PART), what, name, error_text());
    else
        printf("%s %s %s: %s+%lx, %s\n", TEXT(PART), what, name, file, offset, error_text());
}

static void ask(const char *what, void *handle, const char *name)
{
    say(what, name, dlsym(handle, name));
}

static void ask_versioned(const char *what, void *handle, const char *name, const char *version)
{
    say(what, name, dlvsym(handle, name, version));
}

void NAME(battery_, PART)(void)
{
    static const char *names[] = {
        "marker", "tool_start", "malloc", "memcpy", "private_marker", "no_such_name", "cu", "cudaMalloc", "curl_easy_init", "",
        "c", "n", "nvml", "nv", "cuInit", "cuMemAlloc_v2", "cuGetProcAddress_v2", "cuMemAlloc_v99", "cuMemcpyHtoD_v2", "dlsym_x",
    };
    void *program = dlopen(NULL, RTLD_LAZY);
    for (unsigned i = 0; i < sizeof names / sizeof *names; i++) {
        ask("default", RTLD_DEFAULT, names[i]);
        ask("next", RTLD_NEXT, names[i]);
        ask("program", program, names[i]);
    }
    ask_versioned("next, old", RTLD_NEXT, "memcpy", "GLIBC_2.2.5");
    ask_versioned("next, new", RTLD_NEXT, "memcpy", "GLIBC_2.14");
    ask_versioned("default, old", RTLD_DEFAULT, "memcpy", "GLIBC_2.2.5");
    ask_versioned("default, none", RTLD_DEFAULT, "memcpy", "GLIBC_9.9");
    ask_versioned("default, none", RTLD_DEFAULT, "cuInit", "CUDA_1");
    ask_versioned("next, none", RTLD_NEXT, "cuMemAlloc_v2", "CUDA_1");
    ask_versioned("program, none", program, "cuMemAlloc_v2", "CUDA_1");
    // Found through the RUNPATH of the library that asks, or not at all.
    void *beside = dlopen("libbeside.so", RTLD_NOW);
    printf("%s $ORIGIN: %s, %s\n", TEXT(PART), beside ? "there" : "null", error_text());
    if (beside) {
        ask("handle", beside, "private_marker");
        ask("handle", beside, "marker");
        ask("handle", beside, "no_such_name");
        ask("handle", beside, "cuInit");
    }
    // A pending message is gone after a look-up that succeeds, and told once.
    dlsym(RTLD_DEFAULT, "no_such_name");
    dlsym(RTLD_DEFAULT, "malloc");
    printf("%s message after success: %s\n", TEXT(PART), error_text());
    dlsym(RTLD_DEFAULT, "cuInit");
    printf("%s message once: %s", TEXT(PART), error_text());
    printf(" %s\n", error_text());
}

#ifdef PROGRAM
void battery_linked(void);

static void run_library(void *library, const char *name)
{
    void (*battery)(void) = library ? (void (*)(void))dlsym(library, name) : NULL;
    printf("%s: %s, %s\n", name, battery ? "there" : "null", error_text());
    if (battery)
        battery();
    fflush(stdout);
}

int main(int argc, char **argv)
{
    const char *cuda = argc > 1 ? argv[1] : "none";
    setvbuf(stdout, NULL, _IOLBF, 0);
    if (strcmp(cuda, "none")) {
        void *driver = dlopen("libcuda.so.1", RTLD_NOW | (strcmp(cuda, "global") ? RTLD_LOCAL : RTLD_GLOBAL));
        printf("driver: %s, %s\n", driver ? "there" : "null", error_text());
        ask("driver", driver, "cuInit");
        ask("driver", driver, "cuNoSuchName");
        ask("driver", driver, "marker");
        ask_versioned("driver", driver, "cuInit", "CUDA_1");
    }
    battery_program();
    battery_linked();
    run_library(dlopen("liblocal.so", RTLD_NOW | RTLD_LOCAL), "battery_local");
    run_library(dlopen("libdeep.so", RTLD_LAZY | RTLD_LOCAL | RTLD_DEEPBIND), "battery_deep");
    run_library(dlmopen(LM_ID_NEWLM, "libapart.so", RTLD_LAZY), "battery_apart");
    return 0;
}
#endif
