"""Asks NVML for memory wrongly, through ctypes, and prints each code and what was written."""

import ctypes

lib = ctypes.CDLL("libnvidia-ml.so.1")
VERSION_2 = 2 << 24 | 40


def ask(what, name, device, words, size=5, first=None):
    """`size` words of 8 bytes, all ones but the first; a null pointer where it is 0."""
    memory = (ctypes.c_uint64 * size)(*[2**64 - 1] * size) if size else None
    if first is not None:
        memory[0] = first
    code = getattr(lib, name)(ctypes.c_void_p(device), memory)
    print(what, name, code, "-" if memory is None else "written" if list(memory)[1 : words] != [2**64 - 1] * (words - 1) else "untouched")


v1, v2 = "nvmlDeviceGetMemoryInfo", "nvmlDeviceGetMemoryInfo_v2"
ask("before init", v1, 16, 3)
ask("before init", v2, 16, 5, first=VERSION_2)
print("init", lib.nvmlInit_v2())
device = ctypes.c_void_p()
print("device", lib.nvmlDeviceGetHandleByIndex_v2(0, ctypes.byref(device)))
handle = device.value or 16
for bad in (0, 7, 1 << 20):
    ask(f"device {bad}", v1, bad, 3)
    ask(f"device {bad}", v2, bad, 5, first=VERSION_2)
ask("null", v1, handle, 0, size=0)
ask("null", v2, handle, 0, size=0)
for version in (0, 1 << 24 | 24, 3 << 24 | 40, 2 << 24 | 48):
    ask(f"version {version:x}", v2, handle, 5, first=version)
print("shutdown", lib.nvmlShutdown())
ask("after shutdown", v1, handle, 3)
print(lib.nvmlShutdown())
