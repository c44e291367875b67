"""Uses the driver, then becomes another program that does, with the limit changed on the way where an argument says so.

exec.py [LIMIT]
"""

import os
import sys

from cuda import MIB, Driver, say

cuda = Driver()
assert cuda.start() == 0
say("info", *cuda.info())
assert cuda.alloc(64 * MIB)[0] == 0
if len(sys.argv) > 1:
    limit = sys.argv[1]
    os.environ["GPUCAP_LIMIT"] = limit
    os.execv(sys.executable, [sys.executable, sys.argv[0]])
