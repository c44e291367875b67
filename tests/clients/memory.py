"""Does what its arguments say, in their order, and prints what NVML (through pynvml) and CUDA tell of memory:

nvml        nvml INDEX UUID v1 TOTAL FREE USED v2 TOTAL FREE USED RESERVED, or: nvml INDEX UUID v1 error CODE v2 error CODE
mig         the same of each GPU's MIG instances
init        init CODE
ctx N       ctx CODE: the primary context of device N, made current
alloc N     alloc CODE: N MiB on the current device
pool N      pool CODE: N MiB from its stream-ordered pool
info        info CODE FREE TOTAL
total N     total CODE BYTES
uuid N      uuid N UUID
props PATH  props CODE BYTES: totalGlobalMem of device 0 by this libcudart
fork        fork, and what follows is done in the child
mapped      mapped, and which of libcuda and libnvidia-ml are
set N=V     set N=V: an environment variable
wait        wait, and goes on after a line on stdin
"""

import ctypes
import os
import sys

import pynvml
from cuda import MIB, Driver, say

# cudaDeviceProp: name[256], uuid[16], luid[8], luidDeviceNodeMask, then totalGlobalMem; 11.x, 12.x and 13.x alike.
TOTAL_AT = 288


def memory(device, index):
    fields = ["nvml", index, pynvml.nvmlDeviceGetUUID(device)]
    for version, names in (("v1", "total free used"), ("v2", "total free used reserved")):
        fields.append(version)
        try:
            info = pynvml.nvmlDeviceGetMemoryInfo(device, **({"version": pynvml.nvmlMemory_v2} if version == "v2" else {}))
            fields += [getattr(info, name) for name in names.split()]
        except pynvml.NVMLError as error:
            fields += ["error", error.value]
    say(*fields)


def nvml(instances):
    pynvml.nvmlInit()
    for index in range(pynvml.nvmlDeviceGetCount()):
        device = pynvml.nvmlDeviceGetHandleByIndex(index)
        if not instances:
            memory(device, index)
        for instance in range(pynvml.nvmlDeviceGetMaxMigDeviceCount(device) if instances else 0):
            memory(pynvml.nvmlDeviceGetMigDeviceHandleByIndex(device, instance), index)


def uuid(cuda, device):
    raw = (ctypes.c_ubyte * 16)()
    cuda.cuDeviceGetUuid_v2(raw, device)
    text = bytes(raw).hex()
    return "-".join((text[:8], text[8:12], text[12:16], text[16:20], text[20:]))


def properties(path):
    room = ctypes.create_string_buffer(4096)
    code = ctypes.CDLL(path).cudaGetDeviceProperties(room, 0)
    return code, int.from_bytes(room.raw[TOTAL_AT : TOTAL_AT + 8], "little")


def context(cuda, device):
    handle = ctypes.c_void_p()
    code = cuda.cuDevicePrimaryCtxRetain(ctypes.byref(handle), device)
    return code or cuda.cuCtxSetCurrent(handle)


def main(words):
    cuda = None
    while words:
        word = words.pop(0)
        if cuda is None and word in ("init", "ctx", "alloc", "pool", "info", "total", "uuid"):
            cuda = Driver()
        match word:
            case "nvml" | "mig":
                nvml(word == "mig")
            case "init":
                say("init", cuda.cuInit(0))
            case "ctx":
                say("ctx", context(cuda, int(words.pop(0))))
            case "alloc":
                say("alloc", cuda.alloc(int(words.pop(0)) * MIB)[0])
            case "pool":
                say("pool", cuda.alloc(int(words.pop(0)) * MIB, "cuMemAllocAsync", None)[0])
            case "info":
                say("info", *cuda.info())
            case "total":
                say("total", *cuda.total(int(words.pop(0))))
            case "uuid":
                device = int(words.pop(0))
                say("uuid", device, uuid(cuda, device))
            case "props":
                say("props", *properties(words.pop(0)))
            case "fork":
                say("fork")
                if child := os.fork():
                    sys.exit(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
            case "mapped":
                maps = open("/proc/self/maps").read()
                say("mapped", *(name for name in ("libcuda.so", "libnvidia") if name in maps))
            case "set":
                name, _, value = words.pop(0).partition("=")
                os.environ[name] = value
                say("set", name)
            case "wait":
                say("wait")
                sys.stdin.readline()
            case _:
                sys.exit(f"{word}?")


main(sys.argv[1:])
