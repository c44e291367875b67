// Calls any function of the driver by name, as told: one command an argument, or without arguments one a line of stdin.
//
//   driver [--via dlsym|default|gpa1|gpa2] [--lib FILE] [COMMAND...]
//
//   cuMemAlloc_v2 &a 4M          calls it; prints its name, its code, and the slots it was given: "cuMemAlloc_v2 0 a=1234"
//   cuMemFree_v2 $a              $a: the value of slot a; $a+8, $a-8 too
//   cuIpcOpenMemHandle_v2 &p 1 : *h   what follows the colon goes onto the stack; *h: the 64 bytes of slot h by value
//   set h 8 4 17                 writes 17 into 4 bytes at offset 8 of slot h (slots are 128 bytes of zeros at first)
//   get h 8 4                    prints "get 17"
//   bytes h / bytes h HEX        prints a slot's first 64 bytes; sets them: how a handle goes to another process
//   fill N cuMemAlloc_v2 &a 2M   calls it until it fails, N times at most; prints "fill COUNT CODE"
//   race N ROUNDS $ctx BYTES     N threads allocate and free BYTES, ROUNDS times each; prints "race GRANTED REFUSED OTHER"
//   peek $a / poke $a 7          reads and writes a byte of host memory
//   open f PATH / close $f       opens a file for reading and writing, its descriptor in slot f; closes it
//   other cuMemAlloc_v2 &a 2M    makes the call in another thread, with the context of slot c
//   sleep MS, exit CODE, fork    (fork: the child goes on with the commands, its parent waits and ends with its code)
//
// Numbers may be hexadecimal, negative, and end in K, M, G. Every argument is passed as a 64-bit word, which is right for
// any integer or pointer in the x86-64 C ABI. With gpa1 and gpa2 a name is the base name and may carry a version:
// cuMemAlloc@3020 (without: 99999), and flags: cuMemAlloc@3020@2.
#define _GNU_SOURCE
#include <dlfcn.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

typedef uint64_t word;
typedef unsigned (*any)(word, word, word, word, word, word, word, word, word, word, word, word, word, word);

static struct slot { char name[32]; union { unsigned char bytes[128]; word value; }; } slots[256];
static const char *via = "dlsym", *library = "libcuda.so.1";

static struct slot *slot(const char *name) {
    for (int i = 0; i < 256; i++) {
        if (!slots[i].name[0]) strncpy(slots[i].name, name, sizeof slots[i].name - 1);
        if (!strcmp(slots[i].name, name)) return &slots[i];
    }
    abort();
}

static word number(const char *text) {
    char *end;
    word value = text[0] == '-' ? (word)strtoll(text, &end, 0) : strtoull(text, &end, 0);
    switch (*end) {
    case 'G': return value << 30;
    case 'M': return value << 20;
    case 'K': return value << 10;
    }
    return value;
}

// The value of $name, $name+n, $name-n, &name, null, or a number.
static word value(const char *text) {
    if (text[0] == '&') return (word)slot(text + 1)->bytes;
    if (!strcmp(text, "null")) return 0;
    if (text[0] != '$') return number(text);
    char name[64];
    strncpy(name, text + 1, sizeof name - 1);
    name[sizeof name - 1] = 0;
    char *sign = strpbrk(name, "+-");
    word more = 0;
    if (sign) more = *sign == '+' ? number(sign + 1) : -number(sign + 1), *sign = 0;
    return slot(name)->value + more;
}

static void *driver(void) {
    static void *handle;
    int scope = strcmp(via, "default") ? RTLD_LOCAL : RTLD_GLOBAL;
    if (!handle) handle = dlopen(library, RTLD_NOW | scope);
    return handle;
}

static any resolve(char *name) {
    void *found = NULL;
    if (!strncmp(via, "gpa", 3)) {
        char *at = strchr(name, '@'), *flags = at ? strchr(at + 1, '@') : NULL;
        int version = at ? atoi(at + 1) : 99999;
        word how = flags ? number(flags + 1) : 0;
        char base[64];
        snprintf(base, sizeof base, "%.*s", at ? (int)(at - name) : (int)strlen(name), name);
        if (via[3] == '1') {
            unsigned (*lookup)(const char *, void **, int, word) = dlsym(driver(), "cuGetProcAddress");
            if (!lookup || lookup(base, &found, version, how)) found = NULL;
        } else {
            unsigned (*lookup)(const char *, void **, int, word, int *) = dlsym(driver(), "cuGetProcAddress_v2");
            if (!lookup || lookup(base, &found, version, how, NULL)) found = NULL;
        }
    } else if (!strcmp(via, "default")) {
        driver();
        found = dlsym(RTLD_DEFAULT, name);
    } else if (driver()) {
        found = dlsym(driver(), name);
    }
    return (any)(word)found;
}

static unsigned call(any function, int count, char **words) {
    word in[14] = {0};
    int next = 0;
    for (int i = 0; i < count; i++) {
        if (!strcmp(words[i], ":")) next = 6;
        else if (words[i][0] == '*') memcpy(&in[next], slot(words[i] + 1)->bytes, 64), next += 8;
        else in[next++] = value(words[i]);
    }
    return function(in[0], in[1], in[2], in[3], in[4], in[5], in[6], in[7], in[8], in[9], in[10], in[11], in[12], in[13]);
}

static struct { any alloc, free, set; word context, bytes; int rounds; long granted, refused, other; } race;

static void *racer(void *unused) {
    long granted = 0, refused = 0, other = race.set(race.context, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0) != 0;
    for (int i = 0; i < race.rounds; i++) {
        word address = 0;
        unsigned code = race.alloc((word)&address, race.bytes, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0);
        granted += code == 0;
        refused += code == 2;
        other += code != 0 && code != 2;
        if (code == 0) other += race.free(address, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0) != 0;
    }
    __atomic_add_fetch(&race.granted, granted, __ATOMIC_RELAXED);
    __atomic_add_fetch(&race.refused, refused, __ATOMIC_RELAXED);
    __atomic_add_fetch(&race.other, other, __ATOMIC_RELAXED);
    return unused;
}

static void run_race(char **words) {
    pthread_t threads[64];
    int count = atoi(words[1]);
    int gpa = !strncmp(via, "gpa", 3);
    char alloc[] = "cuMemAlloc_v2", release[] = "cuMemFree_v2", set[] = "cuCtxSetCurrent";
    if (gpa) alloc[10] = release[9] = 0;
    race.alloc = resolve(alloc), race.free = resolve(release), race.set = resolve(set);
    race.rounds = atoi(words[2]), race.context = value(words[3]), race.bytes = value(words[4]);
    race.granted = race.refused = race.other = 0;
    for (int i = 0; i < count; i++) pthread_create(&threads[i], NULL, racer, NULL);
    for (int i = 0; i < count; i++) pthread_join(threads[i], NULL);
    printf("race %ld %ld %ld\n", race.granted, race.refused, race.other);
}

static void print_bytes(const char *name) {
    printf("bytes ");
    for (int i = 0; i < 64; i++) printf("%02x", slot(name)->bytes[i]);
    printf("\n");
}

static void command(char *line);

static void *other_thread(void *line) {
    char set[] = "cuCtxSetCurrent";
    any function = resolve(set);
    if (function) function(slot("c")->value, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0);
    command(line);
    return NULL;
}

static void run_other(char *line) {
    pthread_t thread;
    if (pthread_create(&thread, NULL, other_thread, line)) abort();
    pthread_join(thread, NULL);
}

static void command(char *line) {
    if (!strncmp(line, "other ", 6)) {
        run_other(line + 6);
        return;
    }
    char *words[24], *rest = NULL;
    int count = 0;
    for (char *word = strtok_r(line, " \t\n", &rest); word && count < 24; word = strtok_r(NULL, " \t\n", &rest)) words[count++] = word;
    if (count == 0) return;
    char *name = words[0];
    if (!strcmp(name, "set")) {
        word number = value(words[4]);
        memcpy(slot(words[1])->bytes + value(words[2]), &number, value(words[3]));
        printf("set\n");
    } else if (!strcmp(name, "get")) {
        word number = 0;
        memcpy(&number, slot(words[1])->bytes + value(words[2]), value(words[3]));
        printf("get %llu\n", (unsigned long long)number);
    } else if (!strcmp(name, "bytes") && count == 2) {
        print_bytes(words[1]);
    } else if (!strcmp(name, "bytes")) {
        for (int i = 0; i < 64; i++) sscanf(words[2] + 2 * i, "%2hhx", &slot(words[1])->bytes[i]);
        printf("bytes\n");
    } else if (!strcmp(name, "fill")) {
        any function = resolve(words[2]);
        unsigned code = 0;
        word done = 0, most = value(words[1]);
        while (function && done < most && (code = call(function, count - 3, words + 3)) == 0) done++;
        printf("fill %llu %u\n", (unsigned long long)done, code);
    } else if (!strcmp(name, "race")) {
        run_race(words);
    } else if (!strcmp(name, "peek")) {
        printf("peek %u\n", *(volatile unsigned char *)value(words[1]));
    } else if (!strcmp(name, "poke")) {
        *(volatile unsigned char *)value(words[1]) = (unsigned char)value(words[2]);
        printf("poke\n");
    } else if (!strcmp(name, "open")) {
        int file = open(words[2], O_RDWR);
        slot(words[1])->value = (word)file;
        printf("open %d\n", file < 0);
    } else if (!strcmp(name, "close")) {
        printf("close %d\n", close((int)value(words[1])));
    } else if (!strcmp(name, "sleep")) {
        usleep(1000 * value(words[1]));
        printf("sleep\n");
    } else if (!strcmp(name, "exit")) {
        fflush(stdout);
        exit((int)value(words[1]));
    } else if (!strcmp(name, "fork")) {
        fflush(stdout);
        pid_t child = fork();
        if (child) {
            int status = 0;
            waitpid(child, &status, 0);
            _exit(WIFEXITED(status) ? WEXITSTATUS(status) : 128);
        }
        printf("fork %d\n", getpid());
    } else {
        any function = resolve(name);
        if (!function) {
            printf("%s missing\n", name);
            return;
        }
        printf("%s %u", name, call(function, count - 1, words + 1));
        for (int i = 1; i < count; i++)
            if (words[i][0] == '&') printf(" %s=%llu", words[i] + 1, (unsigned long long)slot(words[i] + 1)->value);
        printf("\n");
    }
}

int main(int count, char **words) {
    setvbuf(stdout, NULL, _IOLBF, 0);
    int next = 1;
    for (; next + 1 < count && !strncmp(words[next], "--", 2); next += 2) {
        if (!strcmp(words[next], "--via")) via = words[next + 1];
        else if (!strcmp(words[next], "--lib")) library = words[next + 1];
    }
    for (int i = next; i < count; i++) command(words[i]);
    static char line[4096];
    while (next == count && fgets(line, sizeof line, stdin)) command(line);
    return 0;
}
