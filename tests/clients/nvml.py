"""What pynvml sees beside a program that allocates: nvml.py [hold BYTES]"""

import ctypes
import os
import sys

import pynvml

if len(sys.argv) > 2 and sys.argv[1] == "hold":
    cuda = ctypes.CDLL("libcuda.so.1")
    context, pointer = ctypes.c_void_p(), ctypes.c_uint64()
    print("cuInit", cuda.cuInit(0))
    print("cuCtxCreate", cuda.cuCtxCreate_v2(ctypes.byref(context), 0, 0))
    print("cuMemAlloc", cuda.cuMemAlloc_v2(ctypes.byref(pointer), ctypes.c_size_t(int(sys.argv[2]))))
    uuid = (ctypes.c_ubyte * 16)()
    cuda.cuDeviceGetUuid_v2(uuid, 0)
    print("cuda_uuid", bytes(uuid).hex())


def say(what, ask):
    try:
        print(what, ask())
    except pynvml.NVMLError as error:
        print(what, "error", error.value)


say("init", pynvml.nvmlInit)
say("count", pynvml.nvmlDeviceGetCount)
try:
    device = pynvml.nvmlDeviceGetHandleByIndex(0)
except pynvml.NVMLError:
    sys.exit(0)
say("uuid", lambda: pynvml.nvmlDeviceGetUUID(device).removeprefix("GPU-").replace("-", ""))
say("name", lambda: pynvml.nvmlDeviceGetName(device))
say("bus", lambda: pynvml.nvmlDeviceGetPciInfo(device).busId)


def memory(info):
    return f"{info.total} {info.free} {info.used}"


say("v1", lambda: memory(pynvml.nvmlDeviceGetMemoryInfo(device)))
say("v2", lambda: memory(pynvml.nvmlDeviceGetMemoryInfo(device, version=pynvml.nvmlMemory_v2)))
say("mine", lambda: [p.usedGpuMemory for p in pynvml.nvmlDeviceGetComputeRunningProcesses(device) if p.pid == os.getpid()])
say("fan", lambda: pynvml.nvmlDeviceGetFanSpeed(device))
