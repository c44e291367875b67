"""Asks an older driver for names, by dlsym and by cuGetProcAddress, and allocates through what it gives.

older.py NAME...: prints, for each name, whether dlsym finds it, and cuGetProcAddress's code and whether it wrote an address; the
address holds a canary before.
"""

import ctypes
import sys

from cuda import MIB, Driver, say

CANARY = 0x5CA1AB1E
cuda = Driver()


def ask(name, version, flags=0):
    found = ctypes.c_void_p(CANARY)
    code = cuda.cuGetProcAddress(name.encode(), ctypes.byref(found), version, ctypes.c_uint64(flags))
    return code, found.value


for name in sys.argv[1:]:
    code, found = ask(name, 11050)
    say(name, hasattr(cuda.lib, name), code, {CANARY: "canary", None: "null"}.get(found, "address"))

assert cuda.start() == 0
alloc = ctypes.CFUNCTYPE(ctypes.c_uint, ctypes.POINTER(ctypes.c_uint64), ctypes.c_size_t)(ask("cuMemAlloc", 11050)[1])
address = ctypes.c_uint64(CANARY)
say("over", alloc(ctypes.byref(address), 65 * MIB), address.value == CANARY)
say("within", alloc(ctypes.byref(address), 64 * MIB))
say("info", *cuda.info())
