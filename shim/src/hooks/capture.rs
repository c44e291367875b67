//! Stream captures begin and end, by every function that there is for it.

use core::ffi::c_void;

use gpucap_core::code::Code;

use crate::captures::{self, GLOBAL};
use crate::ffi::{CUstream, Graph};

/// `CU_STREAM_PER_THREAD`: what stream 0 stands for in the functions of the thread's own default stream.
const PER_THREAD: CUstream = 2;

fn own(stream: CUstream) -> CUstream {
    if stream == 0 { PER_THREAD } else { stream }
}

/// `cuStreamBeginCapture`.
///
/// # Safety
/// As the driver's function.
pub unsafe fn begin(real: unsafe extern "C" fn(CUstream) -> Code, stream: CUstream) -> Code {
    // SAFETY: the program's own argument.
    captures::begin(stream, GLOBAL, || unsafe { real(stream) })
}

/// `cuStreamBeginCapture_ptsz`.
///
/// # Safety
/// As the driver's function.
pub unsafe fn begin_ptsz(real: unsafe extern "C" fn(CUstream) -> Code, stream: CUstream) -> Code {
    // SAFETY: the program's own argument.
    captures::begin(own(stream), GLOBAL, || unsafe { real(stream) })
}

/// `cuStreamBeginCapture_v2`.
///
/// # Safety
/// As the driver's function.
pub unsafe fn begin_v2(real: unsafe extern "C" fn(CUstream, u32) -> Code, stream: CUstream, mode: u32) -> Code {
    // SAFETY: the program's own arguments.
    captures::begin(stream, mode, || unsafe { real(stream, mode) })
}

/// `cuStreamBeginCapture_v2_ptsz`.
///
/// # Safety
/// As the driver's function.
pub unsafe fn begin_v2_ptsz(real: unsafe extern "C" fn(CUstream, u32) -> Code, stream: CUstream, mode: u32) -> Code {
    // SAFETY: the program's own arguments.
    captures::begin(own(stream), mode, || unsafe { real(stream, mode) })
}

type ToGraph = unsafe extern "C" fn(CUstream, Graph, *const c_void, *const c_void, usize, u32) -> Code;

/// `cuStreamBeginCaptureToGraph`.
///
/// # Safety
/// As the driver's function.
pub unsafe fn begin_to_graph(
    real: ToGraph,
    stream: CUstream,
    graph: Graph,
    after: *const c_void,
    edges: *const c_void,
    count: usize,
    mode: u32,
) -> Code {
    // SAFETY: the program's own arguments.
    captures::begin(stream, mode, || unsafe { real(stream, graph, after, edges, count, mode) })
}

/// `cuStreamBeginCaptureToGraph_ptsz`.
///
/// # Safety
/// As the driver's function.
pub unsafe fn begin_to_graph_ptsz(
    real: ToGraph,
    stream: CUstream,
    graph: Graph,
    after: *const c_void,
    edges: *const c_void,
    count: usize,
    mode: u32,
) -> Code {
    // SAFETY: the program's own arguments.
    captures::begin(own(stream), mode, || unsafe { real(stream, graph, after, edges, count, mode) })
}

type Recapture = unsafe extern "C" fn(CUstream, u32, Graph, *const c_void, *mut c_void) -> Code;

/// `cuStreamBeginRecaptureToGraph`.
///
/// # Safety
/// As the driver's function.
pub unsafe fn recapture(
    real: Recapture,
    stream: CUstream,
    mode: u32,
    graph: Graph,
    callback: *const c_void,
    data: *mut c_void,
) -> Code {
    // SAFETY: the program's own arguments.
    captures::begin(stream, mode, || unsafe { real(stream, mode, graph, callback, data) })
}

/// `cuStreamBeginRecaptureToGraph_ptsz`.
///
/// # Safety
/// As the driver's function.
pub unsafe fn recapture_ptsz(
    real: Recapture,
    stream: CUstream,
    mode: u32,
    graph: Graph,
    callback: *const c_void,
    data: *mut c_void,
) -> Code {
    // SAFETY: the program's own arguments.
    captures::begin(own(stream), mode, || unsafe { real(stream, mode, graph, callback, data) })
}

type ToCig = unsafe extern "C" fn(CUstream, *const c_void) -> Code;

/// `cuStreamBeginCaptureToCig`.
///
/// # Safety
/// As the driver's function.
pub unsafe fn begin_to_cig(real: ToCig, stream: CUstream, params: *const c_void) -> Code {
    // SAFETY: the program's own arguments.
    captures::begin(stream, GLOBAL, || unsafe { real(stream, params) })
}

/// `cuStreamBeginCaptureToCig_ptsz`.
///
/// # Safety
/// As the driver's function.
pub unsafe fn begin_to_cig_ptsz(real: ToCig, stream: CUstream, params: *const c_void) -> Code {
    // SAFETY: the program's own arguments.
    captures::begin(own(stream), GLOBAL, || unsafe { real(stream, params) })
}

/// `cuStreamEndCapture`.
///
/// # Safety
/// As the driver's function.
pub unsafe fn end(
    real: unsafe extern "C" fn(CUstream, *mut Graph) -> Code,
    stream: CUstream,
    graph: *mut Graph,
) -> Code {
    // SAFETY: the program's own arguments.
    captures::end(stream, || unsafe { real(stream, graph) })
}

/// `cuStreamEndCapture_ptsz`.
///
/// # Safety
/// As the driver's function.
pub unsafe fn end_ptsz(
    real: unsafe extern "C" fn(CUstream, *mut Graph) -> Code,
    stream: CUstream,
    graph: *mut Graph,
) -> Code {
    // SAFETY: the program's own arguments.
    captures::end(own(stream), || unsafe { real(stream, graph) })
}

/// `cuStreamEndCaptureToCig`.
///
/// # Safety
/// As the driver's function.
pub unsafe fn end_to_cig(real: unsafe extern "C" fn(CUstream) -> Code, stream: CUstream) -> Code {
    // SAFETY: the program's own argument.
    captures::end(stream, || unsafe { real(stream) })
}

/// `cuStreamEndCaptureToCig_ptsz`.
///
/// # Safety
/// As the driver's function.
pub unsafe fn end_to_cig_ptsz(real: unsafe extern "C" fn(CUstream) -> Code, stream: CUstream) -> Code {
    // SAFETY: the program's own argument.
    captures::end(own(stream), || unsafe { real(stream) })
}

/// `cuStreamDestroy` in both versions: a capture of the stream ends with it.
///
/// # Safety
/// As the driver's function.
pub unsafe fn stream_destroy(real: unsafe extern "C" fn(CUstream) -> Code, stream: CUstream) -> Code {
    // SAFETY: the program's own argument.
    captures::with_stream(stream, || unsafe { real(stream) })
}
