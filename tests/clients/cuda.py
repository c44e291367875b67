"""The CUDA driver through ctypes, as the scripts beside this file use it. Every call gives its code."""

import ctypes
import os

MIB = 1 << 20
GIB = 1 << 30


class Driver:
    """The functions by the names of libcuda, and shorter ways to the ones that are used most."""

    def __init__(self):
        self.lib = ctypes.CDLL("libcuda.so.1", use_errno=True)

    def __getattr__(self, name):
        return getattr(self.lib, name)

    def start(self, device=0):
        """cuInit, the primary context retained and made current; the first code that is not 0."""
        code = self.lib.cuInit(0)
        if code:
            return code
        context = ctypes.c_void_p()
        code = self.lib.cuDevicePrimaryCtxRetain(ctypes.byref(context), device)
        return code or self.lib.cuCtxSetCurrent(context)

    def alloc(self, size, entry="cuMemAlloc_v2", *more):
        """Code and address."""
        address = ctypes.c_uint64(0)
        return getattr(self.lib, entry)(ctypes.byref(address), ctypes.c_size_t(size), *more), address.value

    def free(self, address):
        return self.lib.cuMemFree_v2(ctypes.c_uint64(address))

    def info(self):
        """Code, free and total bytes."""
        free, total = ctypes.c_size_t(0), ctypes.c_size_t(0)
        code = self.lib.cuMemGetInfo_v2(ctypes.byref(free), ctypes.byref(total))
        return code, free.value, total.value

    def total(self, device=0, entry="cuDeviceTotalMem_v2", kind=ctypes.c_size_t):
        """Code and bytes."""
        total = kind(0)
        return getattr(self.lib, entry)(ctypes.byref(total), device), total.value

    def fill(self, step):
        """Allocates until it is refused: the code, and how many went."""
        count = 0
        while True:
            code, _ = self.alloc(step)
            if code:
                return code, count
            count += 1


def say(*words):
    """A line for the test, at once."""
    os.write(1, (" ".join(str(word) for word in words) + "\n").encode())
