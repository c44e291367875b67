// A program with libcudart linked statically: allocates as many mebibytes as it is told and prints code, free and total.
#include <stdio.h>
#include <stdlib.h>

extern int cudaMalloc(void **pointer, size_t bytes);
extern int cudaMemGetInfo(size_t *free, size_t *total);

int main(int count, char **words) {
    void *pointer = NULL;
    size_t bytes = count > 1 ? (size_t)atoi(words[1]) << 20 : 1, left = 0, total = 0;
    int code = cudaMalloc(&pointer, bytes);
    printf("%d %d", code, cudaMemGetInfo(&left, &total));
    printf(" %zu %zu\n", left, total);
    return 0;
}
