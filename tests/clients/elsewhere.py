"""Starts the driver in one folder and is refused in another one below it.

elsewhere.py FOLDER
"""

import os
import sys

from cuda import GIB, Driver

os.chdir(sys.argv[1])
cuda = Driver()
assert cuda.start() == 0
os.mkdir("below")
os.chdir("below")
assert cuda.alloc(2 * GIB)[0] == 2
