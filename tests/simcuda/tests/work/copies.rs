//! Copies and memsets move bytes, and refuse what is no device memory.

use harness::{Sim, python};

use crate::codes;

#[test]
fn copies_outside_of_allocations_are_refused() {
    codes(
        &Sim::new(),
        &[
            ("cuMemAlloc_v2 &a 4096", 0),
            ("cuMemsetD8_v2 $a 7 4096", 0),
            ("cuMemsetD8_v2 $a 7 4097", 1),
            ("cuMemsetD32_v2 $a+2 7 1", 1),
            ("cuMemcpyDtoH_v2 &b $a 64", 0),
            ("cuMemcpyDtoH_v2 null $a 64", 1),
            ("cuMemcpyHtoD_v2 $a+4095 &b 2", 1),
            ("cuMemcpyHtoD_v2 &b &b 8", 1),
            ("cuMemcpyHtoD_v2 $a null 0", 0),
            ("cuMemFree_v2 $a", 0),
            ("cuMemcpyHtoD_v2 $a &b 8", 1),
            ("cuMemsetD8Async $a 7 1 0", 1),
        ],
    );
}

#[test]
fn a_host_function_runs_in_order_and_may_not_call_the_driver() {
    let script = r"
import ctypes
from ctypes import byref, c_uint64, c_void_p, c_size_t, c_uint
cu = ctypes.CDLL('libcuda.so.1')
context, pointer, stream = c_void_p(), c_uint64(), c_void_p()
print(cu.cuInit(0), cu.cuCtxCreate_v2(byref(context), 0, 0), cu.cuStreamCreate(byref(stream), 0))
print(cu.cuMemAlloc_v2(byref(pointer), c_size_t(64)))
heard, buffer = [], (ctypes.c_ubyte * 64)()
@ctypes.CFUNCTYPE(None, c_void_p)
def host(data):
    heard.append(cu.cuMemFree_v2(pointer))
    ctypes.memset(buffer, 5, 64)
print(cu.cuLaunchHostFunc(stream, host, None))
print(cu.cuMemcpyHtoDAsync_v2(pointer, buffer, c_size_t(64), stream), cu.cuStreamSynchronize(stream), heard)
got = (ctypes.c_ubyte * 64)()
print(cu.cuMemcpyDtoH_v2(got, pointer, c_size_t(64)), set(got))
";
    let out = Sim::new().run(python()).arg("-c").arg(script).out();
    assert_eq!(out.ok().stdout, "0 0 0\n0\n0\n0 0 [800]\n0 {5}\n");
}
