"""Sets GPUCAP_LIMIT by os.environ before the first CUDA call, and again after it; prints what it is told and can have."""

import os

from cuda import GIB, Driver, say

os.environ["GPUCAP_LIMIT"] = "1GiB"
cuda = Driver()
assert cuda.cuInit(0) == 0
os.environ["GPUCAP_LIMIT"] = "100%"
os.environ["GPUCAP_DISABLE"] = "1"
assert cuda.start() == 0
say("info", *cuda.info())
say("alloc", cuda.alloc(2 * GIB)[0])
os.environ["GPUCAP_LIMIT"] = "4GiB"
say("info", *cuda.info())
