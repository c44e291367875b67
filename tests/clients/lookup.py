"""Asks a libcuda for every public name, version and flag, and prints what cuGetProcAddress answers.

    lookup.py LIBCUDA NAMES.TXT

One line per question: name version flags, then return code, status and exported name of version 2's answer, and return
code and exported name of version 1's. `-` where the answer was left as it was, `0` where it was null.
"""

import ctypes
import sys

VERSIONS = [1000, 2000, 2010, 2020, 2030, 3000, 3010, 3020, 4000, 4010, 4020, 5000, 5050, 6000, 6050, 7000, 7050, 8000,
            9000, 9020, 10000, 10010, 10020, 11000, 11010, 11020, 11030, 11040, 11050, 11060, 11070, 11080, 12000, 12010,
            12020, 13050, 2**31 - 1, -1]

lib = ctypes.CDLL(sys.argv[1])
rows = [line.split() for line in open(sys.argv[2]) if not line.startswith("#")]
at = {}
for exported, *_ in rows:
    function = getattr(lib, exported, None)
    if function is not None:
        at[ctypes.cast(function, ctypes.c_void_p).value] = exported
bases = sorted({row[1] for row in rows if row[1] != "-"})
odd = ["", "cuNoSuchName", "cumemalloc", "cuMemAlloc_v2", "cuMemAllocAsync_ptsz"]
UNTOUCHED = 0x1234


def named(value):
    return {UNTOUCHED: "-", None: "0"}.get(value) or at.get(value, hex(value or 0))


for name in bases + odd:
    for version in VERSIONS:
        # Bit 0 changes nothing; bit 2 and above are unknown.
        for flags in (0, 1, 2, 3, 4) if version == 12020 else (0, 2):
            first, second, status = ctypes.c_void_p(UNTOUCHED), ctypes.c_void_p(UNTOUCHED), ctypes.c_int(77)
            rc2 = lib.cuGetProcAddress_v2(name.encode(), ctypes.byref(second), version, ctypes.c_uint64(flags),
                                          ctypes.byref(status))
            rc1 = lib.cuGetProcAddress(name.encode(), ctypes.byref(first), version, ctypes.c_uint64(flags))
            print(repr(name), version, flags, rc2, status.value, named(second.value), rc1, named(first.value))
