"""Threads that all start the driver and allocate at once; prints how often each code came.

crowd.py COUNT
"""

import collections
import ctypes
import sys
import threading

from cuda import MIB, Driver, say

cuda = Driver()
count = int(sys.argv[1])
barrier = threading.Barrier(count)
codes = []


def work():
    barrier.wait()
    init = cuda.cuInit(0)
    context = ctypes.c_void_p()
    cuda.cuDevicePrimaryCtxRetain(ctypes.byref(context), 0)
    cuda.cuCtxSetCurrent(context)
    codes.append((init, cuda.alloc(2 * MIB)[0]))


threads = [threading.Thread(target=work) for _ in range(count)]
for thread in threads:
    thread.start()
for thread in threads:
    thread.join()
for (init, alloc), times in sorted(collections.Counter(codes).items()):
    say(init, alloc, times)
