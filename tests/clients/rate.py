"""Is refused many times at once, and again after a while that passes in no time.

rate.py CLOCK: CLOCK is tests/apps/clock.c as a library, preloaded too.
"""

import ctypes
import sys

from cuda import GIB, Driver

clock = ctypes.CDLL(sys.argv[1])
cuda = Driver()
assert cuda.start() == 0


def refused(times):
    for _ in range(times):
        assert cuda.alloc(2 * GIB)[0] == 2


refused(100)
clock.pass_seconds(5)
refused(20)
clock.pass_seconds(6)
refused(3)
clock.pass_seconds(11)
refused(1)
