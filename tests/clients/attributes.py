"""Prints what the driver says of pointers, one by one and in bulk: good ones, interior ones, freed ones, none at all."""

import ctypes

from cuda import MIB, Driver, say

# MEMORY_TYPE, SYNC_MEMOPS, IS_MANAGED, DEVICE_ORDINAL, RANGE_SIZE, MAPPED (CUpointer_attribute)
ATTRIBUTES = (2, 6, 8, 9, 12, 13)
CANARY = 0x5CA1AB1E5CA1AB1E

cuda = Driver()
assert cuda.start() == 0
pointers = {
    "linear": cuda.alloc(MIB)[1],
    "managed": cuda.alloc(MIB, "cuMemAllocManaged", ctypes.c_uint(1))[1],
    "pool": cuda.alloc(MIB, "cuMemAllocAsync", None)[1],
}
pointers["interior"] = pointers["managed"] + 4096
freed = cuda.alloc(MIB)[1]
assert cuda.free(freed) == 0
here = ctypes.create_string_buffer(4096)
pointers.update(freed=freed, wild=4096, null=0, host=ctypes.addressof(here))

for name, pointer in pointers.items():
    for attribute in ATTRIBUTES:
        value = ctypes.c_uint64(CANARY)
        code = cuda.cuPointerGetAttribute(ctypes.byref(value), attribute, ctypes.c_uint64(pointer))
        say(name, attribute, code, value.value)
    values = (ctypes.c_uint64 * len(ATTRIBUTES))(*[CANARY] * len(ATTRIBUTES))
    at = (ctypes.c_void_p * len(ATTRIBUTES))(*[ctypes.addressof(values) + 8 * i for i in range(len(ATTRIBUTES))])
    wanted = (ctypes.c_int * len(ATTRIBUTES))(*ATTRIBUTES)
    code = cuda.cuPointerGetAttributes(len(ATTRIBUTES), wanted, at, ctypes.c_uint64(pointer))
    say(name, "all", code, *values)
