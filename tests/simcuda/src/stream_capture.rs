//! Capturing streams into graphs: `cuStreamBeginCapture…`, `cuStreamEndCapture`, and what a program may ask meanwhile.

use std::ffi::c_void;
use std::sync::Arc;

use crate::api::{In, Out, code, cuda_api};
use crate::capture::{self, Capture, GLOBAL, RELAXED};
use crate::codes::{
    CUresult, ILLEGAL_STATE, INVALID_VALUE, NOT_SUPPORTED, STREAM_CAPTURE_IMPLICIT, STREAM_CAPTURE_INVALIDATED,
    STREAM_CAPTURE_UNMATCHED, STREAM_CAPTURE_UNSUPPORTED, STREAM_CAPTURE_WRONG_THREAD,
};
use crate::devices;
use crate::graphs::{self, Graph};
use crate::streams::{self, Handle, Stream, Target};

/// `CUstreamCaptureStatus`.
const NONE: u32 = 0;
const ACTIVE: u32 = 1;
const INVALIDATED: u32 = 2;

fn begin(handle: Handle, mode: u32, graph: Option<graphs::Handle>) -> Result<(), CUresult> {
    if mode > RELAXED {
        return Err(INVALID_VALUE);
    }
    let graph = graph.map(graphs::graph).transpose()?;
    let Target::Stream(stream) = streams::resolve(handle)? else {
        return Err(STREAM_CAPTURE_UNSUPPORTED);
    };
    let mut capture = stream.capture.lock();
    if capture.is_some() {
        return Err(ILLEGAL_STATE);
    }
    let graph = graph.unwrap_or_else(Graph::create);
    let origin = Arc::as_ptr(&stream).addr();
    *capture = Some(Capture::begin(mode, stream.context.id(), origin, stream.is_blocking(), graph));
    Ok(())
}

fn end(handle: Handle, out: Out<graphs::Handle>) -> Result<(), CUresult> {
    if out.is_null() {
        return Err(INVALID_VALUE);
    }
    let Target::Stream(stream) = streams::resolve(handle)? else {
        return Err(ILLEGAL_STATE);
    };
    let mut slot = stream.capture.lock();
    let Some(capture) = slot.as_ref() else {
        return Err(ILLEGAL_STATE);
    };
    if capture.origin != Arc::as_ptr(&stream).addr() {
        return Err(STREAM_CAPTURE_UNMATCHED);
    }
    if capture.mode != RELAXED && capture.thread != devices::thread_id() {
        return Err(STREAM_CAPTURE_WRONG_THREAD);
    }
    let capture = slot.take().ok_or(ILLEGAL_STATE)?;
    drop(slot);
    capture.end();
    streams::leave_capture(capture.id);
    if !capture.is_valid() {
        out.set(0);
        return Err(STREAM_CAPTURE_INVALIDATED);
    }
    out.set(capture.graph.handle());
    Ok(())
}

/// The state of a stream. The legacy stream has none of its own, and asking for it while a capture would have to include
/// it is an error that breaks nothing.
fn state(handle: Handle) -> Result<(u32, Option<Arc<Capture>>), CUresult> {
    match streams::resolve(handle)? {
        Target::Legacy(context) if capture::blocking_capture(context.id()) => Err(STREAM_CAPTURE_IMPLICIT),
        Target::Legacy(_) => Ok((NONE, None)),
        Target::Stream(stream) => Ok(state_of(&stream)),
    }
}

fn state_of(stream: &Stream) -> (u32, Option<Arc<Capture>>) {
    match &*stream.capture.lock() {
        None => (NONE, None),
        Some(capture) if capture.is_valid() => (ACTIVE, Some(capture.clone())),
        Some(capture) => (INVALIDATED, Some(capture.clone())),
    }
}

/// What a capture may answer beside its state.
struct Info {
    id: Out<u64>,
    graph: Out<graphs::Handle>,
    dependencies: Out<*const graphs::Handle>,
    edges: Out<*const c_void>,
    count: Out<usize>,
}

fn info(handle: Handle, status: Out<u32>, answer: &Info) -> Result<(), CUresult> {
    if status.is_null() {
        return Err(INVALID_VALUE);
    }
    let (now, capture) = state(handle)?;
    status.set(now);
    if let (ACTIVE, Some(capture)) = (now, capture) {
        answer.id.set(capture.id);
        answer.graph.set(capture.graph.handle());
        let last = capture.graph.nodes.lock().last().map(graphs::handle_of);
        answer.count.set(usize::from(last.is_some()));
        if !answer.dependencies.is_null() {
            // The list must stay readable until the next call on the stream; a leaked word per question does.
            answer.dependencies.set(last.map_or(std::ptr::null(), |last| &raw const *Box::leak(Box::new(last))));
        }
        answer.edges.set(std::ptr::null());
    }
    Ok(())
}

cuda_api! {
    fn cuStreamBeginCapture, cuStreamBeginCapture_ptsz(handle: Handle) -> CUresult {
        code(begin(handle, GLOBAL, None))
    }

    fn cuStreamBeginCapture_v2, cuStreamBeginCapture_v2_ptsz(handle: Handle, mode: u32) -> CUresult {
        code(begin(handle, mode, None))
    }

    fn cuStreamBeginCaptureToGraph, cuStreamBeginCaptureToGraph_ptsz(handle: Handle, graph: graphs::Handle, _after: In<graphs::Handle>, _edges: *const c_void, _count: usize, mode: u32) -> CUresult {
        code(begin(handle, mode, Some(graph)))
    }

    /// Captures as if for the first time; the callback, which may keep old nodes, is not asked.
    fn cuStreamBeginRecaptureToGraph, cuStreamBeginRecaptureToGraph_ptsz(handle: Handle, mode: u32, graph: graphs::Handle, _callback: *const c_void, _data: *mut c_void) -> CUresult {
        code(begin(handle, mode, Some(graph)))
    }

    fn cuStreamEndCapture, cuStreamEndCapture_ptsz(handle: Handle, graph: Out<graphs::Handle>) -> CUresult {
        code(end(handle, graph))
    }

    fn cuStreamIsCapturing, cuStreamIsCapturing_ptsz(handle: Handle, status: Out<u32>) -> CUresult {
        if status.is_null() {
            return INVALID_VALUE;
        }
        match state(handle) {
            Ok((now, _)) => status.answer(now),
            Err(code) => code,
        }
    }

    fn cuStreamGetCaptureInfo, cuStreamGetCaptureInfo_ptsz(handle: Handle, status: Out<u32>, id: Out<u64>) -> CUresult {
        code(info(handle, status, &Info { id, graph: Out::null(), dependencies: Out::null(), edges: Out::null(), count: Out::null() }))
    }

    fn cuStreamGetCaptureInfo_v2, cuStreamGetCaptureInfo_v2_ptsz(handle: Handle, status: Out<u32>, id: Out<u64>, graph: Out<graphs::Handle>, dependencies: Out<*const graphs::Handle>, count: Out<usize>) -> CUresult {
        code(info(handle, status, &Info { id, graph, dependencies, edges: Out::null(), count }))
    }

    fn cuStreamGetCaptureInfo_v3, cuStreamGetCaptureInfo_v3_ptsz(handle: Handle, status: Out<u32>, id: Out<u64>, graph: Out<graphs::Handle>, dependencies: Out<*const graphs::Handle>, edges: Out<*const c_void>, count: Out<usize>) -> CUresult {
        code(info(handle, status, &Info { id, graph, dependencies, edges, count }))
    }

    fn cuStreamUpdateCaptureDependencies, cuStreamUpdateCaptureDependencies_ptsz(handle: Handle, _nodes: In<graphs::Handle>, _count: usize, _flags: u32) -> CUresult {
        match state(handle) {
            Ok((ACTIVE, _)) => 0,
            Ok(_) => ILLEGAL_STATE,
            Err(code) => code,
        }
    }

    fn cuStreamUpdateCaptureDependencies_v2, cuStreamUpdateCaptureDependencies_v2_ptsz(handle: Handle, _nodes: In<graphs::Handle>, _edges: *const c_void, _count: usize, _flags: u32) -> CUresult {
        match state(handle) {
            Ok((ACTIVE, _)) => 0,
            Ok(_) => ILLEGAL_STATE,
            Err(code) => code,
        }
    }

    fn cuThreadExchangeStreamCaptureMode(mode: Out<u32>) -> CUresult {
        match In::from(mode).get() {
            Some(wanted) if wanted <= RELAXED => mode.answer(capture::exchange_mode(wanted)),
            _ => INVALID_VALUE,
        }
    }

    fn cuStreamBeginCaptureToCig, cuStreamBeginCaptureToCig_ptsz(_handle: Handle, _params: *const c_void) -> CUresult {
        NOT_SUPPORTED
    }
}
