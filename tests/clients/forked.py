"""A fork before and one after the driver was started; each child ends by way of the C library's exit functions.

Prints what each was told by cuInit and by an allocation.
"""

import ctypes
import os
import sys

from cuda import MIB, Driver, say

cuda = Driver()
libc = ctypes.CDLL(None)


def child(name):
    pid = os.fork()
    if pid == 0:
        code = cuda.start()
        say(name, code, cuda.alloc(MIB)[0], *cuda.info())
        libc.exit(0)
    assert os.waitpid(pid, 0)[1] == 0
    sys.stdout.flush()


child("before")
say("parent", cuda.start(), cuda.alloc(64 * MIB)[0], *cuda.info())
child("after")
say("parent", 0, cuda.alloc(64 * MIB)[0], *cuda.info())
