"""Is refused an allocation while descriptor 2 is something else than the stderr that the process started with.

stderr.py WHEN WHAT PATH: closes 2 before or after the driver's first look-up (WHEN: early, late), and has a file at PATH or a socket
(WHAT: file, socket) take its number. Says on stdout what that file or socket got.
"""

import os
import socket
import sys

from cuda import GIB, Driver, say

when, what, path = sys.argv[1:]
if when == "early":
    os.close(2)
cuda = Driver()
assert cuda.start() == 0
if when == "late":
    os.close(2)
if what == "file":
    taken = os.open(path, os.O_RDWR | os.O_CREAT)
else:
    taken_socket, other = socket.socketpair()
    taken = taken_socket.fileno()
assert taken == 2, taken
assert cuda.alloc(2 * GIB)[0] == 2
if what == "file":
    got = os.pread(2, 4096, 0)
else:
    other.setblocking(False)
    try:
        got = other.recv(4096)
    except BlockingIOError:
        got = b""
say(got)
