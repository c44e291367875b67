"""Starts the driver by an address that no look-up gave, and only then calls functions that were looked up.

unseen.py OFFSET: where cuInit lies in libcuda.
"""

import ctypes
import sys

from cuda import GIB, Driver, say

cuda = Driver()
with open("/proc/self/maps") as maps:
    base = min(int(line.split("-")[0], 16) for line in maps if line.rstrip().endswith("libcuda.so"))
init = ctypes.CFUNCTYPE(ctypes.c_uint, ctypes.c_uint)(base + int(sys.argv[1]))
say("init", init(0))
context = ctypes.c_void_p()
say("retain", cuda.cuDevicePrimaryCtxRetain(ctypes.byref(context), 0))
cuda.cuCtxSetCurrent(context)
say("over", cuda.alloc(2 * GIB)[0])
say("within", cuda.alloc(GIB)[0])
say("info", *cuda.info())
