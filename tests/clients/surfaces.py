"""Prints every surface on which a program sees the device's memory, through libcuda and a real libcudart.

surfaces.py LIBCUDART BYTES: before any context, with one, after BYTES were allocated, after as many more from the stream-ordered
pool, and after all was freed. A line is: stage surface code free total (- where it has no such half).
"""

import ctypes
import sys

from cuda import Driver, say

# cudaDeviceProp: name[256], uuid[16], luid[8], luidDeviceNodeMask, then totalGlobalMem; 11.x, 12.x and 13.x alike.
TOTAL_AT = 288

cuda = Driver()
runtime = ctypes.CDLL(sys.argv[1])
size = int(sys.argv[2])


def show(stage, with_context=True):
    say(stage, "cuDeviceTotalMem_v2", cuda.total()[0], "-", cuda.total()[1])
    code, total = cuda.total(entry="cuDeviceTotalMem", kind=ctypes.c_uint32)
    say(stage, "cuDeviceTotalMem", code, "-", total)
    for name in ("cudaGetDeviceProperties", "cudaGetDeviceProperties_v2"):
        if hasattr(runtime, name):
            properties = ctypes.create_string_buffer(4096)
            code = getattr(runtime, name)(properties, 0)
            say(stage, name, code, "-", int.from_bytes(properties.raw[TOTAL_AT : TOTAL_AT + 8], "little"))
    if with_context:
        free, total = ctypes.c_size_t(), ctypes.c_size_t()
        code = runtime.cudaMemGetInfo(ctypes.byref(free), ctypes.byref(total))
        say(stage, "cudaMemGetInfo", code, free.value, total.value)
        say(stage, "cuMemGetInfo_v2", *cuda.info())
        free, total = ctypes.c_uint32(), ctypes.c_uint32()
        code = cuda.cuMemGetInfo(ctypes.byref(free), ctypes.byref(total))
        say(stage, "cuMemGetInfo", code, free.value, total.value)


assert cuda.cuInit(0) == 0
show("before", with_context=False)
assert runtime.cudaFree(None) == 0
show("context")
first, second = ctypes.c_void_p(), ctypes.c_void_p()
assert runtime.cudaMalloc(ctypes.byref(first), ctypes.c_size_t(size)) == 0
show("allocated")
assert runtime.cudaMallocAsync(ctypes.byref(second), ctypes.c_size_t(size), None) == 0
show("pool")
assert runtime.cudaFreeAsync(second, None) == 0
assert runtime.cudaStreamSynchronize(None) == 0
assert runtime.cudaFree(first) == 0
show("freed")
