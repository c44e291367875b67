"""Prints errno around a refusal and around a query, having set it to 42 before."""

import ctypes

from cuda import GIB, Driver, say

cuda = Driver()
assert cuda.start() == 0
for name, call in (
    ("first", lambda: cuda.alloc(2 * GIB)[0]),
    ("second", lambda: cuda.alloc(2 * GIB)[0]),
    ("managed", lambda: cuda.alloc(2 * GIB, "cuMemAllocManaged", ctypes.c_uint(1))[0]),
    ("async", lambda: cuda.alloc(2 * GIB, "cuMemAllocAsync", None)[0]),
):
    ctypes.set_errno(42)
    code = call()
    say(name, code, ctypes.get_errno())
