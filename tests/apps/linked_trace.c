// Calls two functions of the driver that it is linked to.
extern unsigned cuInit(unsigned flags);
extern unsigned cuDeviceGetCount(int *count);

int main(void) {
    int count = 0;
    return cuInit(0) || cuDeviceGetCount(&count) || count != 1;
}
