#!/usr/bin/env python3
"""Writes names.txt, the list of every public name of the CUDA driver API.

    names.py --headers DIR [--headers DIR ...] --driver LIBCUDA > names.txt

Two public sources are combined. The headers of the runtime wheels (scripts/fetch) say which versions of a function exist:
cudaTypedefs.h names one pointer type per version (PFN_cuMemAlloc_v3020), cuda.h declares the exported variants (cuMemAlloc,
cuMemAlloc_v2); the k-th version of a name is the k-th exported variant. A real libcuda, which needs no GPU for it, says
from which requested version on cuGetProcAddress hands out which of its exports; where it knows a name, its word is taken
(a few names come one release later than their typedef says).

One line per exported name:  exported  base  version  kind
kind: legacy (default stream is the legacy one), thread (per-thread default stream), export (never given by
cuGetProcAddress).
"""

import argparse
import ctypes
import pathlib
import re
import subprocess
from collections import defaultdict

TYPEDEF = re.compile(r"\(CUDAAPI \*PFN_(cu\w+?)_v(\d+)(_ptsz|_ptds)?\)")
DECLARED = re.compile(r"CUDAAPI\s+(?:__CUDA_API_PT[SD][SZ]\()?(cu[A-Z]\w*)\)?\s*\(")
VARIANT = re.compile(r"(cu\w+?)(?:_v(\d+))?$")


def from_headers(folders):
    """base -> {kind: sorted versions}, and every declared exported name."""
    versions, suffix, declared = defaultdict(lambda: defaultdict(set)), {}, set()
    for folder in folders:
        for path in sorted(pathlib.Path(folder).glob("cuda*.h")):
            text = path.read_text(errors="replace")
            if path.name.endswith("Typedefs.h"):
                for base, version, tail in TYPEDEF.findall(text):
                    versions[base]["thread" if tail else "legacy"].add(int(version))
                    if tail:
                        suffix[base] = tail
            elif path.name in ("cuda.h", "cudaGL.h", "cudaEGL.h", "cudaVDPAU.h", "cudaProfiler.h"):
                declared.update(re.sub(r"_pt[sd][sz]$", "", name) for name in DECLARED.findall(text))
    return versions, suffix, declared


def from_driver(path, bases):
    """exported -> (base, first version, kind) as cuGetProcAddress answers, and every exported cu* name."""
    listing = subprocess.run(["nm", "-D", "--defined-only", path], check=True, capture_output=True, text=True).stdout
    rows = (line.split() for line in listing.splitlines())
    exports = sorted(row[2] for row in rows if row[1] in "TW" and re.match(r"cu[A-Z]", row[2]))
    lib = ctypes.CDLL(path)
    at = defaultdict(list)
    for name in exports:
        at[ctypes.cast(getattr(lib, name), ctypes.c_void_p).value].append(name)
    steps = [2000, 2010, 2020, 2030, 3000, 3010, 3020, 4000, 4010, 4020, 5000, 5050, 6000, 6050, 7000, 7050, 8000, 9000,
             9010, 9020, 10000, 10010, 10020, 11000, 11010, 11020, 11030, 11040, 11050, 11060, 11070, 11080, 12000,
             12010, 12020]
    found = {}
    pfn, status = ctypes.c_void_p(), ctypes.c_int()
    for base in sorted(bases):
        for flags, kind in ((1, "legacy"), (2, "thread")):
            for step in steps:
                rc = lib.cuGetProcAddress_v2(base.encode(), ctypes.byref(pfn), step, ctypes.c_uint64(flags),
                                             ctypes.byref(status))
                if rc == 0 and pfn.value:
                    for name in at[pfn.value]:
                        found.setdefault(name, (base, step, kind))
    return found, exports


def order(name):
    return int(VARIANT.match(name).group(2) or 1)


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--headers", action="append", required=True)
    parser.add_argument("--driver", required=True)
    options = parser.parse_args()
    versions, suffix, declared = from_headers(options.headers)
    known, exports = from_driver(options.driver, set(versions) | {VARIANT.match(n).group(1) for n in declared})
    rows = {}
    for base, kinds in versions.items():
        variants = sorted((n for n in declared | set(exports)
                           if VARIANT.match(n) and VARIANT.match(n).group(1) == base and "_pt" not in n), key=order)
        for kind in ("legacy", "thread"):
            tail = suffix.get(base, "") if kind == "thread" else ""
            wanted = sorted(kinds[kind])
            # A per-thread kind that began later lacks the oldest variants.
            usable = variants[len(variants) - len(wanted):] if kind == "thread" else variants
            for name, version in zip(usable, wanted):
                rows[name + tail] = (base, version, kind)
    for name, (base, version, kind) in known.items():
        if name in rows and rows[name] != (base, version, kind):
            print("note:", name, "typedef", rows[name], "driver", (base, version, kind), file=__import__("sys").stderr)
        rows[name] = (base, version, kind)
    # What the headers have for other platforms only (Windows, EGL on Tegra), the driver does not export.
    version = ctypes.c_int()
    ctypes.CDLL(options.driver).cuDriverGetVersion(ctypes.byref(version))
    rows = {name: row for name, row in rows.items() if name in exports or row[1] > version.value}
    for name in sorted(exports):
        rows.setdefault(name, ("-", 2000, "export"))
    for name in sorted(rows):
        print(name, *rows[name])


if __name__ == "__main__":
    main()
