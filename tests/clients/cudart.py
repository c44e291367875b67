"""Drives a real CUDA runtime library: cudart.py LIBCUDART

Prints `what code` for every call, and the values it got; `end` last. Exit code 1 if the data that went through the device
came back wrong.
"""

import ctypes
import sys
from ctypes import byref, c_int, c_size_t, c_ubyte, c_uint, c_ulonglong, c_void_p

rt = ctypes.CDLL(sys.argv[1])


def call(what, code, *values):
    print(what, code, *values, flush=True)
    return code


class Desc(ctypes.Structure):
    _fields_ = [(name, c_int) for name in "xyzwf"]


class Extent(ctypes.Structure):
    _fields_ = [(name, c_size_t) for name in ("width", "height", "depth")]


count = c_int()
call("cudaGetDeviceCount", rt.cudaGetDeviceCount(byref(count)), count.value)
properties = ctypes.create_string_buffer(8192)
ask = getattr(rt, "cudaGetDeviceProperties_v2", None) or rt.cudaGetDeviceProperties
call("cudaGetDeviceProperties", ask(properties, 0), properties.value.decode().replace(" ", "_"))

pointer, other = c_void_p(), c_void_p()
call("cudaMalloc", rt.cudaMalloc(byref(pointer), c_size_t(10 << 20)))
free, total = c_size_t(), c_size_t()
call("cudaMemGetInfo", rt.cudaMemGetInfo(byref(free), byref(total)), free.value, total.value)

sent, got = (c_ubyte * 16)(*range(16)), (c_ubyte * 16)()
TO_DEVICE, TO_HOST, WITHIN, DEFAULT = 1, 2, 3, 4
call("cudaMemcpy", rt.cudaMemcpy(pointer, sent, c_size_t(16), TO_DEVICE))
call("cudaMemcpy", rt.cudaMemcpy(c_void_p(pointer.value + 4096), pointer, c_size_t(16), WITHIN))
call("cudaMemset", rt.cudaMemset(c_void_p(pointer.value + 4096), 7, c_size_t(8)))
call("cudaMemcpy", rt.cudaMemcpy(got, c_void_p(pointer.value + 4096), c_size_t(16), TO_HOST))
right = list(got) == [7] * 8 + list(range(8, 16))
call("cudaMemcpy", rt.cudaMemcpy(got, pointer, c_size_t(16), DEFAULT))
right = right and list(got) == list(range(16))
call("cudaFree", rt.cudaFree(pointer))

pitch = c_size_t()
call("cudaMallocPitch", rt.cudaMallocPitch(byref(pointer), byref(pitch), c_size_t(1000), c_size_t(100)), pitch.value)
call("cudaFree", rt.cudaFree(pointer))
call("cudaMallocManaged", rt.cudaMallocManaged(byref(pointer), c_size_t(1 << 20), c_uint(1)))
if pointer.value:
    ctypes.memset(pointer, 5, 1 << 20)
call("cudaFree", rt.cudaFree(pointer))
call("cudaMallocHost", rt.cudaMallocHost(byref(pointer), c_size_t(4096)))
call("cudaFreeHost", rt.cudaFreeHost(pointer))
array = c_void_p()
rt.cudaMalloc3DArray.argtypes = [c_void_p, c_void_p, Extent, c_uint]
FLOAT = 2
code = rt.cudaMalloc3DArray(byref(array), byref(Desc(32, 0, 0, 0, FLOAT)), Extent(64, 64, 4), 0)
call("cudaMalloc3DArray", code)
call("cudaFreeArray", rt.cudaFreeArray(array))

stream, event = c_void_p(), c_void_p()
call("cudaStreamCreate", rt.cudaStreamCreate(byref(stream)))
call("cudaMallocAsync", rt.cudaMallocAsync(byref(pointer), c_size_t(1 << 20), stream))
call("cudaMemsetAsync", rt.cudaMemsetAsync(pointer, 1, c_size_t(100), stream))
call("cudaFreeAsync", rt.cudaFreeAsync(pointer, stream))
call("cudaEventCreate", rt.cudaEventCreate(byref(event)))
call("cudaEventRecord", rt.cudaEventRecord(event, stream))
call("cudaEventSynchronize", rt.cudaEventSynchronize(event))
call("cudaStreamSynchronize", rt.cudaStreamSynchronize(stream))

graph, executable = c_void_p(), c_void_p()
call("cudaStreamBeginCapture", rt.cudaStreamBeginCapture(stream, 0))
call("cudaMallocAsync", rt.cudaMallocAsync(byref(pointer), c_size_t(3 << 20), stream))
call("cudaMemsetAsync", rt.cudaMemsetAsync(pointer, 9, c_size_t(100), stream))
call("cudaFreeAsync", rt.cudaFreeAsync(pointer, stream))
call("cudaStreamEndCapture", rt.cudaStreamEndCapture(stream, byref(graph)))
call("cudaGraphInstantiate", rt.cudaGraphInstantiateWithFlags(byref(executable), graph, c_ulonglong(0)))
call("cudaGraphLaunch", rt.cudaGraphLaunch(executable, stream))
call("cudaGraphLaunch", rt.cudaGraphLaunch(executable, stream))
call("cudaGraphExecDestroy", rt.cudaGraphExecDestroy(executable))
call("cudaGraphDestroy", rt.cudaGraphDestroy(graph))
call("cudaStreamDestroy", rt.cudaStreamDestroy(stream))
call("cudaMalloc_1TiB", rt.cudaMalloc(byref(pointer), c_size_t(1 << 40)))
rt.cudaGetLastError()
call("cudaDeviceReset", rt.cudaDeviceReset())
print("end")
sys.exit(0 if right else 1)
